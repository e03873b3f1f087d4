// Santa's tuner, to compare with. For every number in flight it remembers a throughput: with n in
// flight and S seconds from a job's arrival to its end, n ÷ S jobs complete a second. After every
// arrival and completion it moves by one level: sometimes at random, else towards a neighbour that
// is known to be better.
//
//     known:  … level−1  level  level+1 …      down if that is better than both, else up if better
//
// Its known flaw is kept: with few jobs in flight it learns nothing about its present level, while
// it still moves at random, and jobs that waited long make any level look bad.
#ifndef BENCH_SANTA_H
#define BENCH_SANTA_H

#include "bench/zoo.h"

struct santa {
    double learning, exploring; // α and ε
    uint64_t random;            // begin with a seed
    uint32_t level, most;
    double rate[TUNER_MOST + 2]; // by number in flight; 0: unknown
};

// Level 1, and nothing known.
void santa_init(struct santa *, double learning, double exploring, uint64_t seed, uint32_t most);
void santa_arrive(struct santa *);
void santa_complete(struct santa *, uint32_t in_flight, uint64_t took_ns);

struct zoo_tuner santa_tuner(struct santa *); // for zoo_run; borrows it

#endif
