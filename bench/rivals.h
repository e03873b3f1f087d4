// Rivals of the tuner: published algorithms for the number of jobs at once, to compare with. Each
// is fed with completions and read for a level, as the tuner is; rivals.c has the idea of each.
//
// Run times are what most of them look at: they seek a level that leaves the run time as it is
// with few in flight. Only .NET's thread pool seeks throughput.
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include "bench/zoo.h"

enum rival_kind {
    RIVAL_HILL,     // .NET's thread pool: hill climbing
    RIVAL_GRADIENT, // Netflix concurrency-limits: Gradient2
    RIVAL_VEGAS,    // the same library: Vegas
    RIVAL_CINNAMON, // failsafe-go's adaptive limiter, after Uber's Cinnamon
    RIVAL_ENVOY,    // Envoy: adaptive concurrency
    RIVAL_VECTOR,   // Vector: adaptive request concurrency
    RIVAL_AIMD,     // Netflix concurrency-limits: AIMD
    RIVAL_KINDS,
};

struct rival_bounds {
    uint32_t first, least, most;
};

enum {
    HILL_PERIOD = 4,
    HILL_HISTORY = 8 * HILL_PERIOD,
    RIVAL_SAMPLES = 256,
    CINNAMON_WINDOWS = 50,
    CINNAMON_MEDIAN = 5,
};

// ---- Inside; use the functions below ----------------------------------------------------------

struct hill {
    double rates[HILL_HISTORY], levels[HILL_HISTORY]; // rings of samples
    uint64_t samples, completed, began_ns, ends_ns;
    double middle, amplitude, noise; // level between the waves; its wave; of the throughput
    double interval_s;
};

// Run times of a window. Of more than fit, any is as likely to be kept.
struct run_times {
    double kept[RIVAL_SAMPLES];
    uint64_t seen, began_ns;
    double sum;
    uint32_t in_flight; // the most
};

struct gradient {
    double long_s;
    uint32_t windows;
};

struct vegas {
    double least_s, jitter;
    uint64_t count;
};

struct cinnamon {
    double medians[CINNAMON_MEDIAN];
    double in_flight[CINNAMON_WINDOWS], rates[CINNAMON_WINDOWS], times[CINNAMON_WINDOWS];
    uint64_t windows;
    double recent_s, baseline_s;
};

struct envoy {
    double least_s;
    uint32_t before; // the level to return to when the least run time is measured
    bool measures;
    uint64_t measures_at_ns;
};

struct vector {
    double mean_s, variance;
    uint64_t updates_at_ns;
    bool full, known;
};

struct rival {
    enum rival_kind kind;
    struct rival_bounds bounds;
    double limit;
    uint32_t level;
    uint64_t random;
    struct run_times window;
    union {
        struct hill hill;
        struct gradient gradient;
        struct vegas vegas;
        struct cinnamon cinnamon;
        struct envoy envoy;
        struct vector vector;
    };
};

// ---- Use --------------------------------------------------------------------------------------

const char *rival_name(enum rival_kind);
// Where it starts and between which levels it stays, as published.
struct rival_bounds rival_published(enum rival_kind, uint32_t processors);

void rival_init(struct rival *, enum rival_kind, struct rival_bounds, uint64_t seed);
// A job has ended after `ran_ns`; there were `in_flight`, this one included.
void rival_completed(struct rival *, uint64_t now_ns, uint32_t in_flight, uint64_t ran_ns);

struct zoo_tuner rival_tuner(struct rival *); // for zoo_run; borrows it

#endif
