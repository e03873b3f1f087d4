// Limit: may a stage start, may it take one more? A stage lives in one shard, so its limits are
// plain numbers of one core. Of stages in other shards only one thing matters here: whether they
// are over their high mark, because what leads to them is then held.
#ifndef CORE_LIMIT_H
#define CORE_LIMIT_H

#include "core/state.h"

enum hold { HOLD_NONE, HOLD_PAUSED, HOLD_LIMIT, HOLD_RATE, HOLD_DOWNSTREAM };

// What keeps the stage from starting, as it looks now; which stage, if it is one downstream.
enum hold stage_hold(const struct core *, const struct stage *, uint32_t *out_downstream);

static inline bool stage_may_start(const struct core *c, const struct stage *s) {
    return stage_hold(c, s, NULL) == HOLD_NONE;
}

// How many of so many jobs may start at once, when one may.
uint32_t stage_start_most(const struct stage *, uint32_t most);
void stage_started(struct core *, struct stage *, uint32_t jobs);

bool stage_has_room(const struct stage *); // for one more job, by max-jobs
uint64_t stage_jobs(const struct stage *); // that count in max-jobs
bool stage_in_cycle(const struct stage *);
bool stage_is_choked(const struct stage *); // over its high mark, and in one

// Whether so many more bytes may live: 0, or MR_EFULL. What is only retained is forgotten for them.
int memory_make_room(struct core *, uint64_t bytes);

static inline int memory_check(struct core *c, uint64_t bytes) {
    return c->limits.max_bytes || c->limits.max_memory ? memory_make_room(c, bytes) : 0;
}

// The other shards hear that it has no high mark of its own any more, if they know of one.
int stage_notify_forgotten(const struct core *, struct stage *);

// Something it was held by has become less: serves it, and those that lead to it.
void stage_wake_around(struct core *, struct stage *);

#endif
