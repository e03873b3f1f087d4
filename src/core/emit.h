// Emits: pushes that are part of another command's group of records, so that they are there with
// its effect or not at all. They are accepted whatever the limits are (rule 13), and go into the
// outbox if their stage lives in another shard.
//
//     emits_prepare ──► emits_add_stages, emits_add ──► emits_written ──► emits_apply
//          └── fails ──► emits_undo                          └── fails ──► emits_undo
#ifndef CORE_EMIT_H
#define CORE_EMIT_H

#include "core/state.h"

// A command's emits; each has a push and a plan. Zeroed, it has none.
struct emits {
    uint32_t count, prepared;
    struct push *pushes;
    struct push_plan *plans;
    size_t new_stages; // whose records are in the group
    size_t first;      // the index of the first emit's record in the group
};

// Checks them and reserves what they need. `last` is one more emit, after those of the list, which
// counts for `last_maker`; NULL: none. The others count as all new jobs do (core.job_maker).
// Whatever this returns, emits_undo or emits_apply follows. The caller pins the stages.
int emits_prepare(struct core *, struct emits *, const struct emit *list, uint32_t count,
                  const struct emit *last, uint64_t last_maker);

// What the group needs for them: records, bytes of heads, and of bodies with META.
void emits_sizes(const struct emits *, size_t *records, size_t *bytes, size_t *joined);

// Replay needs the records of new stages before it counts pushes to them.
void emits_add_stages(struct core *, struct emits *);
void emits_add(struct core *, struct emits *);

// After the group was written (0) or refused; before any other group.
void emits_written(struct core *, const struct emits *, int err);

void emits_want(struct core *, const struct emits *); // calls that they repeat are wanted for good
// `from`: the stage that is learned to emit to those of the first `learned`.
void emits_apply(struct core *, struct emits *, uint32_t from, uint32_t learned);
void emits_undo(struct core *, struct emits *);

#endif
