// Real workloads for the tuner: see tuner_real.c.
#ifndef BENCH_TUNER_REAL_H
#define BENCH_TUNER_REAL_H

#include <stdint.h>

// Compares in each workload whose name contains `name`: a table on stdout. A tuned run takes so
// many seconds, a workload about nine times as long, some longer. Returns an exit code.
int tuner_real(uint64_t seconds, const char *name);

#endif
