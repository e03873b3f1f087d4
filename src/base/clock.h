// Clock: the system's steady clock, for waits, for leases in hand and for what is measured. It goes
// on while the machine is suspended, as that of the shards does (shard.h): who holds a lease must
// not believe in it for longer than they do.
//
// Inline, so that it is part of those who ask only: core, wire and base itself never do.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t monotonic_us(void) {
    return monotonic_ns() / 1000;
}

static inline uint64_t monotonic_ms(void) {
    return monotonic_ns() / 1000000;
}

// Conditions know no such clock: theirs is CLOCK_MONOTONIC. When that will be, if the machine is
// not suspended meanwhile; otherwise the wait ends late.
static inline struct timespec condition_until(uint64_t until_ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now_ns = monotonic_ns(), now_ms = now_ns / 1000000;
    if (until_ms <= now_ms)
        return t;
    uint64_t left_ms = until_ms - now_ms;
    t.tv_sec += (time_t)(left_ms / 1000);
    t.tv_nsec += (long)(left_ms % 1000) * 1000000 - (long)(now_ns % 1000000);
    t.tv_sec += t.tv_nsec >= 1000000000 ? 1 : t.tv_nsec < 0 ? -1 : 0;
    t.tv_nsec += t.tv_nsec >= 1000000000 ? -1000000000 : t.tv_nsec < 0 ? 1000000000 : 0;
    return t;
}

#endif
