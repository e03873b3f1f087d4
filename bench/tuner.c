// The tuner: how near it comes to the best level that does not move.
//
//     tuner zoo [SEEDS [FIRST]]       simulated workloads of zoo.h: a table
//     tuner plot DIR [SEED]           level and throughput over time, as DIR/*.svg
//     tuner start [JOBS [SEEDS]]      short runs from the start, as times of the best level
//     tuner rivals [CURVES [SEED [FILE]]]   beside published algorithms, in the zoo and on random
//                                     curves; FILE: a plot; see tuner_rivals.c
//     tuner several [SEEDS [FIRST]]   two and three tuners on one machine; see tuner_several.c
//     tuner cost [EVENTS]             time to feed it a completion
//     tuner real [SECONDS [NAME]]     real workloads beside fixed levels, SECONDS (10) a tuned run:
//                                     nine in 18 minutes; see tuner_real.c
//
// In the zoo the share of the best throughput is computed from the levels it chose, so that it is
// free of chance; the seeds are not those it was made with. Columns: the lowest level with 99 % of
// the best throughput; share and mean level in the second half; completions until nine runs in ten
// were there for good; and what the server's small tuner (climb.h) and santa's do.
#include "bench/measure.h"
#include "bench/santa.h"
#include "bench/tuner_real.h"
#include "bench/tuner_rivals.h"
#include "bench/tuner_several.h"
#include "tools/plot.h"
#include "tune/climb.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { SEEDS = 32, FIRST_SEED = 70000, COST_EVENTS = 20000000, REAL_SECONDS = 10 };
enum { SEVERAL_SEEDS = 16, CURVES = 200, CURVES_SEED = 20261118 };

#define ASK_NS 250000000
#define CONVERGED_WITHIN 10000.0
#define LEVEL_TIMES 2.0
#define RECOVERED_S 10.0
#define RECOVERED_WITHIN 25000.0

// The tuner that a server keeps for a client, which asks for its level as client libraries do.
struct asked_climb {
    struct climb climb;
    uint64_t asks_at_ns;
    uint32_t level;
};

static uint32_t asked_level(const void *tuner) {
    return ((const struct asked_climb *)tuner)->level;
}

static void asked_feed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    struct asked_climb *a = tuner;
    (void)waited_ns;
    if (e->kind == TUNER_COMPLETED)
        climb_completed(&a->climb, e->now_ns / 1000000, e->in_flight);
    if (e->now_ns < a->asks_at_ns)
        return;
    a->asks_at_ns = e->now_ns + ASK_NS;
    a->level = climb_ask(&a->climb);
}

// One tuner of each kind.
enum which { PROBE, CLIMB, SANTA };

struct tuners {
    struct tuner probe;
    struct asked_climb climb;
    struct santa santa;
};

static struct zoo_tuner tuner_of(struct tuners *t, enum which which, struct tuner_options o,
                                 uint64_t seed) {
    if (which == CLIMB) {
        t->climb = (struct asked_climb){ .level = CLIMB_FIRST };
        climb_init(&t->climb.climb, o.most);
        return (struct zoo_tuner){ &t->climb, asked_level, asked_feed, NULL };
    }
    if (which == SANTA) {
        santa_init(&t->santa, .1, .1, seed, o.most);
        return santa_tuner(&t->santa);
    }
    tuner_init(&t->probe, &o);
    return zoo_tuner(&t->probe);
}

static struct zoo_run simulate(const struct zoo *z, enum which which, uint64_t seed) {
    struct tuners tuners;
    struct zoo_run run;
    zoo_run(z, tuner_of(&tuners, which, (struct tuner_options){ .most = z->most }, seed), seed,
            &run);
    return run;
}

// ---- The table --------------------------------------------------------------------------------

struct score {
    double share, share_least, level, level_most, converged, converged_worst;
};

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct score score(const struct zoo *z, enum which which, uint64_t seeds, uint64_t first) {
    struct score s = { .share_least = 1 };
    double half_s = z->seconds / 2, *converged = calloc(seeds, sizeof *converged);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct zoo_run run = simulate(z, which, seed);
        double share = zoo_share(&run, half_s, z->seconds);
        double level = zoo_level(&run, half_s, z->seconds);
        double in_s, completed = INFINITY;
        zoo_converged(&run, 0, z->seconds, z->share, &in_s, &completed);
        s.share += share / (double)seeds;
        s.share_least = fmin(s.share_least, share);
        s.level += level / (double)seeds;
        s.level_most = fmax(s.level_most, level);
        converged[seed - first] = completed;
        zoo_run_free(&run);
    }
    qsort(converged, seeds, sizeof *converged, by_size);
    s.converged = converged[(seeds - 1) * 9 / 10];
    s.converged_worst = converged[seeds - 1];
    free(converged);
    return s;
}

// What both are after: throughput, and a little for every level spared.
static double worth(const struct score *s) {
    return log(s->share) - .03 * log(s->level);
}

static const char *verdict(bool reached) {
    return reached ? "reached" : "NOT REACHED";
}

static bool row(const struct zoo *z, uint64_t seeds, uint64_t first) {
    uint32_t lowest;
    zoo_best(z, 0, &lowest);
    struct score probe = score(z, PROBE, seeds, first);
    struct score climb = score(z, CLIMB, seeds, first);
    struct score santa = score(z, SANTA, 1, first);
    double within = z->completions > 0 ? z->completions : CONVERGED_WITHIN;
    bool reached = probe.share >= z->share && probe.level <= LEVEL_TIMES * lowest &&
                   probe.converged <= within && worth(&probe) > worth(&santa);
    printf("%-24s %5u  %.3f (%.3f)  %6.1f (%5.1f)  %6.0f (%6.0f)  %.3f @ %5.1f  %.3f @ %5.1f  %s\n",
           z->name, lowest, probe.share, probe.share_least, probe.level, probe.level_most,
           probe.converged, probe.converged_worst, climb.share, climb.level, santa.share,
           santa.level, verdict(reached));
    return reached;
}

static bool row_steps(const struct zoo *z, uint64_t seeds, uint64_t first) {
    double worst_s[ZOO_PHASES] = { 0 }, worst_completed[ZOO_PHASES] = { 0 };
    bool reached = true;
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct zoo_run run = simulate(z, PROBE, seed);
        for (uint32_t p = 0; p < z->phases; p++) {
            double phase_s = z->seconds / z->phases, in_s = INFINITY, completed = INFINITY;
            zoo_converged(&run, p * phase_s, (p + 1) * phase_s, .95, &in_s, &completed);
            reached = reached && (in_s <= RECOVERED_S || completed <= RECOVERED_WITHIN);
            worst_s[p] = fmax(worst_s[p], in_s);
            worst_completed[p] = fmax(worst_completed[p], completed);
        }
        zoo_run_free(&run);
    }
    printf("%-24s recovered after", z->name);
    for (uint32_t p = 0; p < z->phases; p++)
        printf("  %.1f s, %.0f completions", worst_s[p], worst_completed[p]);
    printf(" at worst  %s\n", verdict(reached));
    return reached;
}

static bool row_idle(const struct zoo *z, uint64_t seeds, uint64_t first) {
    uint32_t moves = 0, lowest;
    double level = 0;
    zoo_best(z, 0, &lowest);
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        struct zoo_run run = simulate(z, PROBE, seed);
        for (size_t i = 0; i < run.count; i++)
            moves += run.steps[i].at_s >= z->seconds / 10;
        level += zoo_level(&run, z->seconds / 10, z->seconds) / (double)seeds;
        zoo_run_free(&run);
    }
    bool bursts = z->off_s > 0; // within a burst it may try
    double minutes = z->seconds * .9 / 60 * (double)seeds;
    bool reached = level <= LEVEL_TIMES * lowest && (bursts || moves <= minutes);
    printf("%-24s %5u  level %.1f, %.1f moves a run after the first tenth  %s\n", z->name, lowest,
           level, moves / (double)seeds, verdict(reached));
    return reached;
}

static int zoo(uint64_t seeds, uint64_t first) {
    bool reached = true;
    printf("%-24s %5s  %-13s  %-14s  %-15s  %-13s  %-13s\n", "workload", "99 %", "share (min)",
           "level (max)", "there (worst)", "climb", "santa");
    for (const struct zoo *z = zoo_all; z->name; z++) {
        bool (*how)(const struct zoo *, uint64_t, uint64_t) = z->phases > 1 ? row_steps
                                                              : z->rate > 0 ? row_idle
                                                                            : row;
        reached = how(z, seeds, first) && reached;
    }
    printf("%" PRIu64 " seeds from %" PRIu64 ": all lines %s\n", seeds, first, verdict(reached));
    return 0;
}

// ---- Plots ------------------------------------------------------------------------------------

static void draw_levels(struct plot *p, const struct zoo_run *run, const char *name) {
    plot_line(p, name, PLOT_STEPS);
    for (size_t i = 0; i < run->count; i++)
        plot_point(p, run->steps[i].at_s, run->steps[i].level);
    plot_point(p, run->seconds, run->steps[run->count - 1].level);
}

// Means of short spells: what counts is what was completed.
static void draw_shares(struct plot *p, const struct zoo_run *run, const char *name) {
    enum { SPELLS = 200 };
    plot_line(p, name, 0);
    for (int i = 0; i < SPELLS; i++) {
        double from_s = run->seconds * i / SPELLS, to_s = run->seconds * (i + 1) / SPELLS;
        plot_point(p, to_s, zoo_share(run, from_s, to_s));
    }
}

static int plot(const char *folder, uint64_t seed) {
    for (const struct zoo *z = zoo_all; z->name; z++) {
        char path[4096];
        struct plot p;
        struct zoo_run probe = simulate(z, PROBE, seed), santa = simulate(z, SANTA, seed);
        snprintf(path, sizeof path, "%s/%02d.svg", folder, (int)(z - zoo_all) + 1);
        plot_begin(&p, z->name, "seconds");
        plot_panel(&p, "level");
        draw_levels(&p, &probe, "probe");
        draw_levels(&p, &santa, "santa");
        plot_panel(&p, "throughput, share of the best");
        draw_shares(&p, &probe, "probe");
        draw_shares(&p, &santa, "santa");
        must(plot_write(&p, path), path, strerror(errno));
        printf("%s: %s\n", path, z->name);
        plot_end(&p);
        zoo_run_free(&probe);
        zoo_run_free(&santa);
    }
    return 0;
}

// ---- The start --------------------------------------------------------------------------------

// When each completion was.
struct finite {
    struct zoo_tuner inner;
    uint64_t count, wanted;
    double at_s, level_sum;
};

static uint32_t finite_level(const void *tuner) {
    const struct finite *f = tuner;
    return f->inner.level(f->inner.tuner);
}

static void finite_feed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    struct finite *f = tuner;
    f->inner.feed(f->inner.tuner, e, waited_ns);
    if (e->kind != TUNER_COMPLETED || f->count >= f->wanted)
        return;
    f->level_sum += f->count >= f->wanted / 2 ? finite_level(f) : 0;
    if (++f->count == f->wanted)
        f->at_s = (double)e->now_ns * 1e-9;
}

static struct finite run_finite(const struct zoo *z, enum which which, struct tuner_options o,
                                uint64_t jobs, uint64_t seed) {
    struct tuners tuners;
    struct zoo_run run;
    o.most = z->most;
    struct finite f = { .inner = tuner_of(&tuners, which, o, seed), .wanted = jobs };
    zoo_run(z, (struct zoo_tuner){ &f, finite_level, finite_feed, NULL }, seed, &run);
    zoo_run_free(&run);
    return f;
}

struct start {
    double seconds, worst_s, level;
};

static struct start runs_of(const struct zoo *z, enum which which, struct tuner_options o,
                            uint64_t jobs, uint64_t seeds) {
    struct start s = { 0 };
    for (uint64_t seed = 0; seed < seeds; seed++) {
        struct finite f = run_finite(z, which, o, jobs, seed);
        s.seconds += f.at_s / (double)seeds;
        s.worst_s = fmax(s.worst_s, f.at_s);
        s.level += f.level_sum / (double)(jobs - jobs / 2) / (double)seeds;
    }
    return s;
}

static double best_fixed_s(const struct zoo *z, uint64_t jobs, uint64_t seeds) {
    double best_s = INFINITY;
    for (uint32_t level = 1; level <= 256; level *= 2) {
        struct tuner_options fixed = { .kind = TUNER_FIXED, .first = level };
        best_s = fmin(best_s, runs_of(z, PROBE, fixed, jobs, seeds).seconds);
    }
    return best_s;
}

// Short runs of jobs of 0.2 s that begin at level 2, beside the best level that does not move.
static int start(uint64_t jobs, uint64_t seeds) {
    static const double knees[] = { 1, 2, 4, 8, 16, 32, 64, 200 }, sigmas[] = { .1, .5, 1 };
    printf("%5s %6s %8s  %-13s %6s  %-13s %6s\n", "knee", "sigma", "best", "probe (worst)", "level",
           "climb (worst)", "level");
    for (size_t i = 0; i < sizeof knees / sizeof *knees * 3; i++) {
        struct zoo z = { "start",
                         { { ZOO_KNEE, knees[i / 3], .01 } },
                         1,
                         .mean_s = .2,
                         .sigma = sigmas[i % 3],
                         .seconds = 2 * (double)jobs,
                         .most = 1024,
                         .idle_s = .01 };
        double best_s = best_fixed_s(&z, jobs, seeds);
        struct tuner_options two = { .first = 2 };
        struct start probe = runs_of(&z, PROBE, two, jobs, seeds);
        struct start climb = runs_of(&z, CLIMB, two, jobs, seeds);
        printf("%5.0f %6.1f %6.2f s  %5.2f (%5.2f) %6.1f  %5.2f (%5.2f) %6.1f\n", knees[i / 3],
               z.sigma, best_s, probe.seconds / best_s, probe.worst_s / best_s, probe.level,
               climb.seconds / best_s, climb.worst_s / best_s, climb.level);
    }
    return 0;
}

// ---- Cost -------------------------------------------------------------------------------------

static int cost(uint64_t events) {
    struct tuner tuner;
    tuner_init(&tuner, &(struct tuner_options){ .kind = TUNER_PROBE });
    struct tuner_event e = { .kind = TUNER_COMPLETED };
    struct lap start = lap_begin();
    for (uint64_t i = 0; i < events; i++) {
        e.in_flight = tuner_level(&tuner);
        e.ran_ns = 1000000 + (i * 7919 & 0xfffff);
        e.now_ns += e.ran_ns / (e.in_flight < 8 ? e.in_flight : 8);
        tuner_feed(&tuner, &e);
    }
    lap_tell("feed", lap_end(start), events);
    struct climb climb;
    climb_init(&climb, CLIMB_MOST);
    e.now_ns = 0;
    start = lap_begin();
    for (uint64_t i = 0; i < events; i++) {
        uint32_t level = climb_ask(&climb);
        e.now_ns += (1000000 + (i * 7919 & 0xfffff)) / (level < 8 ? level : 8);
        climb_completed(&climb, e.now_ns / 1000000, level);
    }
    lap_tell("climb_feed", lap_end(start), events);
    printf("tuner_bytes %zu\nclimb_bytes %zu\n", sizeof tuner, sizeof climb);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "zoo";
    if (strcmp(what, "zoo") == 0)
        return zoo(argument(argc, argv, 2, SEEDS), argument(argc, argv, 3, FIRST_SEED));
    if (strcmp(what, "plot") == 0 && argc > 2)
        return plot(argv[2], argument(argc, argv, 3, FIRST_SEED));
    if (strcmp(what, "start") == 0)
        return start(argument(argc, argv, 2, 200), argument(argc, argv, 3, SEEDS));
    if (strcmp(what, "rivals") == 0)
        return tuner_rivals((uint32_t)argument(argc, argv, 2, CURVES),
                            argument(argc, argv, 3, CURVES_SEED), argc > 4 ? argv[4] : NULL);
    if (strcmp(what, "several") == 0)
        return tuner_several(argument(argc, argv, 2, SEVERAL_SEEDS),
                             argument(argc, argv, 3, FIRST_SEED));
    if (strcmp(what, "cost") == 0)
        return cost(argument(argc, argv, 2, COST_EVENTS));
    if (strcmp(what, "real") == 0)
        return tuner_real(argument(argc, argv, 2, REAL_SECONDS), argc > 3 ? argv[3] : "");
    fprintf(stderr,
            "tuner zoo|plot|start|rivals|several|cost|real: see the head of bench/tuner.c\n");
    return 2;
}
