// Clock: the system's steady clock, for waits, for the ends of leases in workers, and for
// measurements. It goes on while the machine is suspended, as the clock of the shards does
// (shard.h): so a worker never thinks that a lease lasts longer than the shard does.
//
// Inline, so that only its callers depend on a clock: core, wire and base itself never call it.
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

// Milliseconds until an instant, on any clock; -1 for UINT64_MAX: never.
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

// Waits for a signal, at most until `until_ms` (UINT64_MAX: without a limit); the lock is held.
// Spurious wake-ups are possible; one comes at least every hour. pthread conditions only support
// CLOCK_MONOTONIC: if the machine is suspended meanwhile, the wait ends late.
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
