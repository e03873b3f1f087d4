// Three quarters of the time letters arrive; the rest is for what is left over.
#include "calendar.h"

#include "factors.h"
#include "generator.h"

enum { BATCHES_LEAST = 17, BATCHES_OF_WAITS = 36, BATCHES_OF_A_PROCESSOR = 18 };
static const double usual_interval_s = 0.5;
static const double share_of_arrivals = 0.75;
static const double load = 1.25; // of what the processors can do
static const double share_of_waits = 0.15, share_of_fixed = 0.55;

static void draw(struct calendar *c, double wanted, int least, double arriving_s) {
    struct generator sizes, streets;
    generator_init(&sizes, 0);
    generator_init(&streets, 1);
    *c = (struct calendar){ 0 };
    c->batches = wanted < least ? least : wanted < BATCHES_MOST ? (int)wanted : BATCHES_MOST;
    c->interval_s = arriving_s / c->batches;
    for (int batch = 0; batch < c->batches; batch++) {
        c->first[batch] = c->letters;
        c->letters += generator_next(&sizes, BATCH_MOST + 1);
    }
    c->first[c->batches] = c->letters;
    for (int i = 0; i < c->letters; i++)
        c->street[i] = generator_next(&streets, STREETS);
}

void calendar_draw(struct calendar *c, double seconds) {
    double arriving_s = share_of_arrivals * seconds;
    draw(c, arriving_s / usual_interval_s, BATCHES_LEAST, arriving_s);
}

double calendar_plan(struct calendar *c, double seconds, int processors) {
    calendar_draw(c, seconds);
    double letter_s = load * c->interval_s * c->batches * processors / c->letters;
    c->value = factors_prime_for(letter_s, processors);
    return c->value ? letter_s : -1;
}

double calendar_plan_waits(struct calendar *c, double seconds, int processors) {
    draw(c, (double)processors * BATCHES_OF_A_PROCESSOR, BATCHES_OF_WAITS,
         share_of_waits * seconds);
    c->wait_s = share_of_fixed * seconds * processors / c->letters;
    return c->wait_s;
}

void calendar_draw_busy(struct calendar *c, double seconds, int at_once) {
    draw(c, BATCHES_MOST, BATCHES_MOST, seconds);
    c->wait_s = seconds * at_once / c->letters;
}
