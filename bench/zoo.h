// Zoo: simulated workloads for tuners. Jobs run at a station whose speed depends on how many are in
// flight, or think and then pass one lock; the time is simulated, so that an hour takes a second.
//
//     backlog or arrivals ──► queue ──► in flight (≤ level) ──► completed ──► tuner ──► level
//
// Several tuners can share one machine: each has jobs of its own, and all in flight slow each other
// down.
#ifndef BENCH_ZOO_H
#define BENCH_ZOO_H

#include "tune/tuner.h"

enum zoo_kind {
    ZOO_KNEE,  // a: jobs that run at full speed; b: overhead of each one more
    ZOO_USL,   // a: contention, b: coherence
    ZOO_CLIFF, // a: as the knee; beyond it throughput falls with the power b
    ZOO_LOCK,  // a: seconds under a lock of all, after the rest
    ZOO_BEND,  // a: as the knee; up to b each one more brings a third of one; then nothing
    ZOO_MESA,  // a: as the knee; flat up to b, then throughput falls with the root of the level
};

struct zoo_curve {
    enum zoo_kind kind;
    double a, b;
};

enum { ZOO_PHASES = 8, ZOO_TUNERS = 3 };

struct zoo {
    const char *name;
    struct zoo_curve curves[ZOO_PHASES]; // one after another, each for the same share of the time
    uint32_t phases;
    double mean_s, sigma;  // of a job alone: lognormal; sigma 0: constant
    double seconds;        // how long it runs
    uint32_t most;         // bound of the level
    double rate;           // arrivals a second, at random; 0: there is always work
    double on_s, off_s;    // arrivals come in bursts, with pauses; 0: all the time
    double idle_s;         // how often idle processors are noticed, on a knee; 0: never
    double share;          // of the best throughput that is expected in the second half
    double completions;    // within which it is expected to get there
    double longs;          // one job in ten is so many times as long as the others; 0: none is
    double noise, noise_s; // speed of the machine: lognormal, changes so often; 0: steady
    uint32_t processors;   // of the machine; 0: not known
    uint32_t loaded;       // the lowest level that keeps the processors busy; 0: none does
    double second_times;   // jobs of the second tuner are so many times as long; 0: as long
    double second_s;       // when the second tuner begins
    double second_on_s;    // it has work for so long,
    double second_off_s;   // then none for so long, and so on; 0: it always has
    double second_waits_s; // its jobs wait for so long on average before they come to the station
    bool apart;            // tuners of different processes: they know nothing of each other
};

// A change of the level, or of the phase.
struct zoo_step {
    double at_s;
    uint64_t completed;
    uint32_t level;
    double share; // of the phase's best throughput, as known without a run
    double times; // all levels, as times of the lowest with 97 % of the phase's best throughput
    double share_sum, level_sum, times_sum; // over the time before it
};

struct zoo_run {
    struct zoo_step *steps; // malloc'ed; the first is the start
    size_t count, room;
    uint64_t completed;
    double seconds;
};

// The tuner that a workload is run with.
struct zoo_tuner {
    void *tuner;
    uint32_t (*level)(const void *tuner);
    // A completion, which waited in the queue for so long before it ran; or a lack of work.
    void (*feed)(void *tuner, const struct tuner_event *, uint64_t waited_ns);
    void (*arrive)(void *tuner); // a job arrived; may be NULL
};

struct zoo_tuner zoo_tuner(struct tuner *); // the library's; borrows it

extern const struct zoo zoo_all[]; // ends with a NULL name

// Runs the workload with the tuner, and continues to feed it until the time is over.
void zoo_run(const struct zoo *, struct zoo_tuner, uint64_t seed, struct zoo_run *out);
// The same with several tuners that share the machine. Share and times of the runs are those of
// all together, level and completions those of one.
void zoo_run_shared(const struct zoo *, const struct zoo_tuner *, uint32_t tuners, uint64_t seed,
                    struct zoo_run *out);
void zoo_run_free(struct zoo_run *);

// Completions per second with `level` in flight, in a phase; known without a run.
double zoo_throughput(const struct zoo *, uint32_t phase, uint32_t level);
// The best of all levels, and the lowest level with at least 99 % of it.
double zoo_best(const struct zoo *, uint32_t phase, uint32_t *out_level);
// Throughput with each level as a share of the best of all, by level from 1 to `most`; returns the
// lowest level with `near` of it.
uint32_t zoo_shares(const struct zoo *, uint32_t phase, double near, double out[TUNER_MOST + 1]);

// Between two instants: throughput that the levels chosen give, as a share of the best, free of
// chance; the mean level; and its mean as times of the lowest with 97 % of the best.
double zoo_share(const struct zoo_run *, double from_s, double to_s);
double zoo_level(const struct zoo_run *, double from_s, double to_s);
double zoo_times(const struct zoo_run *, double from_s, double to_s);
// When the share first reached `share` for good (right after it, and until `to_s` on average):
// seconds and completions since `from_s`. False: never.
bool zoo_converged(const struct zoo_run *, double from_s, double to_s, double share, double *out_s,
                   double *out_completed);

#endif
