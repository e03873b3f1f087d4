// Real workloads for the tuner: see tuner_real.c.
#ifndef BENCH_TUNER_REAL_H
#define BENCH_TUNER_REAL_H

#include <stdint.h>

// Runs each workload whose name contains `name` for so many seconds a level. Returns an exit code.
int tuner_real(uint64_t seconds, const char *name);

#endif
