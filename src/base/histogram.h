// Histogram: counts of values in log-linear buckets, 128 to an octave, so that a percentile read
// from it is within 1 % of the true one. Fixed size, no allocation.
//
//     0 1 2 … 255 | 256 258 260 … 510 | 512 516 … | …      bucket width doubles every octave
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

enum { HISTOGRAM_OCTAVE = 128, HISTOGRAM_BUCKETS = 33 * HISTOGRAM_OCTAVE };

struct histogram {
    uint64_t count, sum, max;
    uint32_t buckets[HISTOGRAM_BUCKETS];
};

// Values beyond the last bucket (2^39) are counted in it and read as `max`, which is exact. When a
// bucket would overflow all are halved: `count` stays exact, and the shares nearly so.
void histogram_add(struct histogram *, uint64_t value);

// The value that `share` (0 to 1) of the counted values do not exceed; 0 when empty.
uint64_t histogram_quantile(const struct histogram *, double share);

#endif
