// Curves: random workloads for the zoo, drawn from a family that is described in curves.c. The same
// seed draws the same ones.
#ifndef BENCH_CURVES_H
#define BENCH_CURVES_H

#include "bench/zoo.h"

// The workload with this number of those of the seed.
void curve_draw(uint64_t seed, uint32_t number, struct zoo *out);

#endif
