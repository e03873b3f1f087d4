// The bucket of a value is its top eight bits and how far they were shifted.
#include "base/histogram.h"

static uint32_t bucket_of(uint64_t value) {
    if (value < 2 * HISTOGRAM_OCTAVE)
        return (uint32_t)value;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(value) - 7;
    uint64_t bucket = (uint64_t)shift * HISTOGRAM_OCTAVE + (value >> shift);
    return bucket < HISTOGRAM_BUCKETS ? (uint32_t)bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t bucket_top(uint32_t bucket) {
    if (bucket < 2 * HISTOGRAM_OCTAVE)
        return bucket;
    uint32_t shift = bucket / HISTOGRAM_OCTAVE - 1;
    uint64_t lowest = (uint64_t)(bucket - shift * HISTOGRAM_OCTAVE) << shift;
    return lowest + (UINT64_C(1) << shift) - 1;
}

static void histogram_halve(struct histogram *h) {
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        h->buckets[i] -= h->buckets[i] / 2;
}

void histogram_add(struct histogram *h, uint64_t value) {
    uint32_t bucket = bucket_of(value);
    if (h->buckets[bucket] == UINT32_MAX)
        histogram_halve(h);
    h->buckets[bucket]++;
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
}

uint64_t histogram_quantile(const struct histogram *h, double share) {
    uint64_t total = 0, seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        total += h->buckets[i];
    uint64_t rank = (uint64_t)(share * (double)total + 0.999999);
    if (rank < 1)
        rank = 1;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS - 1; i++) {
        seen += h->buckets[i];
        if (seen >= rank)
            return bucket_top(i) < h->max ? bucket_top(i) : h->max;
    }
    return h->max;
}
