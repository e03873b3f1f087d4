#ifndef BENCH_TUNER_SEVERAL_H
#define BENCH_TUNER_SEVERAL_H

#include <stdint.h>

// Runs two or three tuners that share a simulated machine, and know of each other; prints a table
// of means over the seeds. Returns 0.
int tuner_several(uint64_t seeds, uint64_t first);

#endif
