// Clock: the system's steady clock, for waits and for what is measured. Engine time, which jobs go
// by, is the shard's (shard.h).
//
// Inline, so that it is part of those who ask only: core, wire and base itself never do.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t monotonic_us(void) {
    return monotonic_ns() / 1000;
}

static inline uint64_t monotonic_ms(void) {
    return monotonic_ns() / 1000000;
}

#endif
