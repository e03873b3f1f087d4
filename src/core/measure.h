// Measure: the ages of jobs and the rates of pushes and ends, in constant space.
#ifndef CORE_MEASURE_H
#define CORE_MEASURE_H

#include <stdint.h>

// The age of the oldest job, without a scan: how many unended jobs were pushed since each of a few
// instants, which are spread more thinly the older they are.
enum { AGES = 256 };
struct ages {
    struct {
        uint64_t from_ms;
        uint64_t oldest_ms; // between ages_divide and ages_divided
        uint32_t count;
    } slots[AGES];
    uint32_t used;
    uint64_t newest_ms; // the latest time added
};

// Events per second over the last few whole seconds.
enum { RATE_SECONDS = 8 };
struct rate {
    uint64_t second;
    uint32_t counts[RATE_SECONDS];
};

void ages_add(struct ages *, uint64_t at_ms, uint64_t now_ms);
void ages_remove(struct ages *, uint64_t at_ms);
void ages_divide(struct ages *, uint64_t oldest_ms, uint64_t newest_ms);
void ages_recount(struct ages *, uint64_t at_ms);
void ages_divided(struct ages *);
int64_t ages_oldest(const struct ages *, uint64_t now_ms);
void rate_advance(struct rate *, uint64_t second);
double rate_per_s(const struct rate *, uint64_t now_ms);

static inline void rate_count(struct rate *r, uint64_t now_ms) {
    uint64_t second = now_ms / 1000;
    if (second != r->second)
        rate_advance(r, second);
    r->counts[second % RATE_SECONDS]++;
}

#endif
