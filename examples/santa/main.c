// Santa's mailbox: batches of letters arrive at an interval, each letter is a number to factorise.
// The program answers the same letters three times:
//
//     unbounded   every letter is begun as soon as it can be: all are slow together
//     fixed       one letter for each processor: each is fast, the others wait
//     tuned       the worker finds out by itself how many at once complete the most
//
//     santa [DIR]         DIR gets the plots; DEMO_SECONDS=60 is the approximate time in all
//     santa --io [DIR]    the same with letters that wait for an answer from elsewhere
//
// It ends with charts, a table and a summary that was checked; 0 only if that holds.
#include "charts.h"
#include "report.h"

#include <millrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double least_s = 1, most_s = 3600;

static int processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}

// Seconds for all ways together; negative if what was asked for is no such number.
static double seconds_wished(void) {
    const char *wish = getenv("DEMO_SECONDS");
    char *end = NULL;
    double seconds = wish && *wish ? strtod(wish, &end) : 60;
    return end && *end ? -1 : seconds >= least_s && seconds <= most_s ? seconds : -1;
}

static int plan(struct calendar *c, double seconds) {
    double letter_s = calendar_plan(c, seconds / WAYS, processors());
    printf("%d letters on %d streets, in %d batches, one every %.2f secs. Each asks for the\n"
           "factors of %u: about %.2f secs of one of %d processors.\n",
           c->letters, STREETS, c->batches, c->interval_s, c->value, letter_s, processors());
    return letter_s < 0 ? -1 : 0;
}

static int plan_waits(struct calendar *c, double seconds) {
    double letter_s = calendar_plan_waits(c, seconds, processors());
    printf("%d letters on %d streets, in %d batches, one every %.2f secs. Each waits %.2f secs\n"
           "for an answer from elsewhere, and needs none of the %d processors meanwhile.\n",
           c->letters, STREETS, c->batches, c->interval_s, letter_s, processors());
    return 0;
}

static int run(struct way ways[WAYS], const struct calendar *c) {
    ways[0].jobs = (uint32_t)c->letters;
    ways[1].jobs = (uint32_t)processors();
    for (int i = 0; i < WAYS; i++) {
        printf("\n--- %s: %s ---\n", ways[i].name, ways[i].means);
        int err = way_run(&ways[i], c);
        if (err < 0)
            return err;
    }
    return 0;
}

int main(int argc, char **argv) {
    static struct calendar calendar;
    static struct way ways[WAYS] = {
        { .name = "unbounded", .means = "as many at once as there are letters" },
        { .name = "fixed", .means = "one at once for each processor" },
        { .name = "tuned", .means = "as many at once as the worker finds to suit" },
    };
    double seconds = seconds_wished();
    bool waits = argc > 1 && strcmp(argv[1], "--io") == 0;
    argc -= waits;
    argv += waits;
    if (argc > 2 || seconds < 0)
        return fprintf(stderr, "santa [--io] [DIR], with DEMO_SECONDS from %g to %g\n", least_s,
                       most_s),
               2;
    if ((waits ? plan_waits : plan)(&calendar, seconds) < 0)
        return perror("no threads"), 1;
    if (run(ways, &calendar) < 0)
        return fprintf(stderr, "%s\n", mr_error()), 1;
    charts_print(ways, &calendar);
    report_table(ways, &calendar);
    bool holds = report_holds(ways, &calendar);
    if (argc > 1 && charts_write(ways, &calendar, argv[1]) < 0)
        return perror(argv[1]), 1;
    if (argc > 1)
        printf("Plots: %s/ways.svg, unbounded.svg, fixed.svg, tuned.svg\n", argv[1]);
    return !holds;
}
