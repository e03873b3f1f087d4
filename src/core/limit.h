// Limit: whether a stage may start a job, and whether it may accept one more. A stage lives in one
// shard, so its limits are plain numbers of one core. Of stages in other shards this core only
// needs to know whether they are over their high mark: stages that emit to them are then held.
#ifndef CORE_LIMIT_H
#define CORE_LIMIT_H

#include "core/state.h"

enum hold {
    HOLD_NONE,
    HOLD_PAUSED,
    HOLD_LIMIT,
    HOLD_RATE,
    HOLD_DOWNSTREAM,
    HOLD_GROUP_LIMIT, // of groups: see group_hold
    HOLD_GROUP_RATE,
};

// What keeps the stage from starting now; `out_downstream` (may be NULL) is the stage for
// HOLD_DOWNSTREAM.
enum hold stage_hold(const struct core *, const struct stage *, uint32_t *out_downstream);

static inline bool stage_may_start(const struct core *c, const struct stage *s) {
    return stage_hold(c, s, NULL) == HOLD_NONE;
}

// How many of `most` jobs may start at once; after stage_may_start.
uint32_t stage_start_most(const struct stage *, uint32_t most);
void stage_started(struct core *, struct stage *, uint32_t jobs);
void stage_not_started(struct stage *, uint32_t jobs); // takes that back

// A rate allows a start when this instant has come; each start moves it on. Up to a tenth of a
// second is caught up, so that coarse time steps do not lower the rate.
enum { PACE_SLACK_US = 100000 };
void pace_spend(uint64_t *next_us, uint64_t per_h, uint64_t now_ms, uint32_t jobs);
void pace_return(uint64_t *next_us, uint64_t per_h, uint32_t jobs);

// Serves the waiting takes of a stage at this instant, or earlier.
void stage_serve_later(struct core *, struct stage *, uint64_t at_ms);

bool stage_has_room(const struct stage *); // for one more job, by max-jobs
uint64_t stage_jobs(const struct stage *); // that count in max-jobs
bool stage_in_cycle(const struct stage *);
bool stage_is_choked(const struct stage *); // over its high mark, and in a cycle

// Whether there is room for `bytes` more: 0, or MR_EFULL. Ended jobs are forgotten early to make
// room.
int memory_make_room(struct core *, uint64_t bytes);

static inline int memory_check(struct core *c, uint64_t bytes) {
    return c->limits.max_bytes || c->limits.max_memory ? memory_make_room(c, bytes) : 0;
}

// What a push that waits will need.
static inline uint64_t pusher_needs(const struct pusher *p) {
    return entry_size(HEAD_MAX, p->bytes);
}

// Whether there is room for the push that has waited longest at this stage. If not, the stage is
// woken when there is.
bool memory_has_room_at(struct core *, struct stage *);

// Memory may have become free: wakes the first of the stages that wait for it, if there is room.
void memory_wake(struct core *);

// Tells the other shards that the stage is forgotten, if they know a high mark of it.
int stage_notify_forgotten(const struct core *, struct stage *);

// Wakes the stage and those that emit to it, because it came under its high mark.
void stage_wake_around(struct core *, struct stage *);

#endif
