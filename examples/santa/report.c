// Figures of a way, from the times of its letters.
#include "report.h"

#include "factors.h"
#include "generator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct figures {
    double total_s, waiting_s, running_s; // means
    double total_p95_s;
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct figures figures_of(const struct way *w, int count) {
    struct figures f = { 0 };
    double totals[LETTERS_MOST];
    for (int i = 0; i < count; i++) {
        const struct letter *l = &w->letters[i];
        totals[i] = l->ended_s - l->arrived_s;
        f.waiting_s += (l->started_s - l->arrived_s) / count;
        f.running_s += (l->ended_s - l->started_s) / count;
    }
    f.total_s = f.waiting_s + f.running_s;
    qsort(totals, (size_t)count, sizeof *totals, by_size);
    f.total_p95_s = totals[(count * 95 + 99) / 100 - 1];
    return f;
}

void report_table(const struct way ways[WAYS], const struct calendar *c) {
    printf("\n                        seconds in the system; mean = waiting + running\n"
           "way        letters  wall    mean     p95  waiting  running  most at once  level\n");
    for (int i = 0; i < WAYS; i++) {
        struct figures f = figures_of(&ways[i], c->letters);
        printf("%-10s %7d %5.1f %7.2f %7.2f %8.2f %8.2f %13d %6d\n", ways[i].name, ways[i].done,
               ways[i].wall_s, f.total_s, f.total_p95_s, f.waiting_s, f.running_s,
               ways[i].most_running, ways[i].level);
    }
}

static bool way_holds(const struct way *w, const struct calendar *c) {
    bool all = w->pushed == c->letters && w->done == c->letters && w->committed == c->letters;
    bool within = w->jobs == 0 || w->most_running <= (int)w->jobs;
    printf("%-10s %d pushed, %d done, %d wrong, %d overlaps, %d overtakings in a street%s\n",
           w->name, w->pushed, w->committed, w->wrong, w->overlaps, w->overtakings,
           within ? "" : "; more at once than allowed");
    return all && within && w->wrong == 0 && w->overlaps == 0 && w->overtakings == 0;
}

// The last way against the best of all, by time in the system and by wall.
static void compare(const struct way ways[WAYS], const struct calendar *c) {
    const struct way *last = &ways[WAYS - 1];
    double last_s = figures_of(last, c->letters).total_s, best_s = last_s, wall_s = last->wall_s;
    for (int i = 0; i < WAYS; i++) {
        best_s = fmin(best_s, figures_of(&ways[i], c->letters).total_s);
        wall_s = fmin(wall_s, ways[i].wall_s);
    }
    printf("%-10s level %d; time in the system %.2f and wall %.2f times the best way's\n",
           last->name, last->level, last_s / best_s, last->wall_s / wall_s);
}

bool report_holds(const struct way ways[WAYS], const struct calendar *c) {
    bool factors = factorize_is_right(), generator = generator_is_right(), holds = true;
    putchar('\n');
    for (int i = 0; i < WAYS; i++)
        holds &= way_holds(&ways[i], c);
    compare(ways, c);
    printf("60 %s 2 * 2 * 3 * 5; the batches %s 7 8 8 6 2 6 9 4 10 3 3 5 6 5 10 0 9\n",
           factors ? "=" : "is not", generator ? "begin" : "do not begin");
    holds &= factors && generator;
    puts(holds ? "The summary holds." : "The summary does NOT hold.");
    return holds;
}
