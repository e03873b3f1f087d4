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

// The same, up to a few milliseconds ago, for less.
static inline uint64_t monotonic_coarse_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
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
