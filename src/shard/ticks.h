// Ticks: runs the schedules of a shard by the wall clock. The core keeps them (core.h); here is
// computed when they are due.
//
//     turn ──► ticks_run: the wall clock ──► core_tick_due ──► which instant, which next? ──►
//     core_tick
//
// The wall clock is read when a schedule may be due, and every TICKS_LOOK_MS, so that a change of
// the clock is noticed. A tick that is pushed at most TICK_LATE_MS after its instant is on time;
// later, the schedule says what happens:
//
//     skip   it is not pushed
//     one    the last of the missed ones is pushed
//     all    all of them are pushed, each for itself; the last MISSED_MOST if there are more
//
// One thread at a time, between shard_begin and shard_end.
#ifndef SHARD_TICKS_H
#define SHARD_TICKS_H

#include "core/core.h"
#include "shard/zones.h"

struct shard_world;

enum { TICKS_LOOK_MS = 10000, TICK_LATE_MS = 60000, UPCOMING_MOST = 5 };

struct ticks {
    struct core *core;
    const struct shard_world *world;
    struct zones zones;
    uint64_t look_ms; // engine time when ticks_run has something to do
};

void ticks_finish(struct ticks *);

// Pushes what is due, in pieces: `look_ms` is the present when there is more. Failures are retried.
void ticks_run(struct ticks *);

// The engine time when ticks_run has something to do; UINT64_MAX: there are no ticks to come.
static inline uint64_t ticks_due_ms(const struct ticks *t) {
    return core_tick_next(t->core) == UINT64_MAX ? UINT64_MAX : t->look_ms;
}

// Whether ticks_run has something to do; it costs nothing without schedules.
static inline bool ticks_are_due(const struct ticks *t) {
    return core_now(t->core) >= ticks_due_ms(t);
}

// The commands that need the wall clock; the others are the core's. An empty zone is UTC.
// MR_EINVAL: also for a cron expression or a zone that cannot be; otherwise as the core's.
int ticks_set(struct ticks *, const struct schedule_spec *);
int ticks_check(struct ticks *, const struct schedule_spec *); // whether ticks_set would refuse it
int ticks_resume(struct ticks *, mr_bytes stage, mr_bytes name);
int ticks_now(struct ticks *, mr_bytes stage, mr_bytes name);

// The next instants of a schedule, as it stands; returns how many: none while it is paused.
uint32_t ticks_upcoming(struct ticks *, const struct schedule_info *, uint64_t out[UPCOMING_MOST]);

#endif
