// Clock: the system's steady clock, for waits, for leases in hand and for what is measured. It goes
// on while the machine is suspended, as that of the shards does (shard.h): who holds a lease must
// not believe in it for longer than they do.
//
// Inline, so that it is part of those who ask only: core, wire and base itself never do.
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
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

// How long it is until then, on any clock; -1: there is no such instant.
static inline int64_t wait_ms_until(uint64_t at_ms, uint64_t now_ms) {
    return at_ms == UINT64_MAX ? -1 : at_ms > now_ms ? (int64_t)(at_ms - now_ms) : 0;
}

static inline int64_t wait_shorter(int64_t a_ms, int64_t b_ms) {
    return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

// A condition for `cond_wait_until`.
static inline void cond_init(pthread_cond_t *cond) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &clock);
    pthread_condattr_destroy(&clock);
}

// With the lock: waits for a signal, at most until then (UINT64_MAX: as long as it takes). Like any
// condition it may return for no reason, as it does once an hour. Conditions know CLOCK_MONOTONIC
// only: if the machine is suspended meanwhile, the wait ends late.
static inline void cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ms) {
    if (until_ms == UINT64_MAX) {
        pthread_cond_wait(cond, lock);
        return;
    }
    const uint64_t hour_ms = 3600000, second_ns = 1000000000;
    uint64_t now_ms = monotonic_ms(), left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t ns = (left_ms < hour_ms ? left_ms : hour_ms) * 1000000 + (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / second_ns);
    t.tv_nsec = (long)(ns % second_ns);
    pthread_cond_timedwait(cond, lock, &t);
}

#endif
