#ifndef BENCH_TUNER_RIVALS_H
#define BENCH_TUNER_RIVALS_H

#include <stdint.h>

// Runs the tuner and its rivals in the zoo and on random curves; prints tables. `plot`: where the
// plot of the curves goes; NULL: nowhere. Returns 0, or exits with a message.
int tuner_rivals(uint32_t curves, uint64_t seed, const char *plot);

#endif
