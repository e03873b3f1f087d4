// Limit: may a stage start, may it take one more? Limits hold for the whole engine. With several
// shards the ledger counts for all of them, and what a limit counts is claimed before it happens;
// alone, a shard looks at its own numbers.
#ifndef CORE_LIMIT_H
#define CORE_LIMIT_H

#include "core/state.h"

enum hold { HOLD_NONE, HOLD_PAUSED, HOLD_LIMIT, HOLD_RATE, HOLD_DOWNSTREAM };

// What keeps the stage from starting, as it looks now; which stage, if it is one downstream.
enum hold stage_hold(const struct core *, const struct stage *, uint32_t *out_downstream);

// Claims one start from the ledger, unless one is claimed already. If it can not have it and
// somebody `waits`, the shard is told by `freed` when it may.
bool stage_claim(struct core *, struct stage *, bool waits);
void stage_unclaim(struct core *, struct stage *); // gives back a start that did not happen, if any
// How many of so many jobs may start at once, when one may.
uint32_t stage_start_most(const struct stage *, uint32_t most);
void stage_started(struct core *, struct stage *, uint32_t jobs);
uint64_t stage_rate_next_us(const struct stage *); // when the rate allows the next start

bool stage_is_next(const struct core *, const struct stage *); // of the shards that wait to start
// Who has no work or no taker any more does not wait for a start.
void stage_check_line(struct core *, struct stage *);
void stage_leave_line(struct core *, struct stage *); // if it is in it

static inline bool stage_may_start(struct core *c, struct stage *s, bool waits) {
    return s->ledger ? stage_claim(c, s, waits) : stage_hold(c, s, NULL) == HOLD_NONE;
}

// A place in max-jobs; kept until the job is born, or stage_tell. If it can not have one and
// somebody `waits`, the shard is told by `freed` when it is its turn.
bool stage_claim_room(struct core *, struct stage *, bool waits);
// Whose pushes wait for something else, or not any more, does not wait for a place.
void stage_leave_rooms(struct core *, struct stage *); // if it does
void stage_check_rooms(struct core *, struct stage *);
uint64_t stage_jobs(const struct stage *); // that count in max-jobs, of all shards
bool stage_in_cycle(const struct stage *);
bool stage_is_choked(struct core *, struct stage *); // over, and in one

// Whether so many more bytes may live: 0, or MR_EFULL. What is only retained is forgotten for them.
int memory_make_room(struct core *, uint64_t bytes);

static inline int memory_check(struct core *c, uint64_t bytes) {
    return c->limits.max_bytes || c->limits.max_memory ? memory_make_room(c, bytes) : 0;
}

// Something it was held by has become less: serves it, and those that lead to it.
void stage_wake_around(struct core *, struct stage *);

// Before anything about the stage is recorded. MR_ENOMEM.
int stage_join_ledger(struct core *, struct stage *);
void stage_leave_ledger(struct stage *, uint32_t shard); // nothing of this shard counts any more
// Tells the ledger what counts now, and has those told that were held by what has become less.
void stage_tell(struct core *, struct stage *);
bool stage_share_is_right(const struct core *, const struct stage *); // for core_check

#endif
