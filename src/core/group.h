// Group: the channels of one tenant. Where a stage has `group on`, the part of a key before its
// first slash is its group, and groups take turns; see group.c. A key without a slash is a group
// itself; jobs without a key are in the group with the empty name.
#ifndef CORE_GROUP_H
#define CORE_GROUP_H

#include "core/limit.h"

// ---- Keys -------------------------------------------------------------------------------------

// The group's part of a key.
mr_bytes group_of_key(mr_bytes key);

// Whether nothing stands behind its slash, as in "acme/": it names a group, but no channel.
bool key_is_unordered(mr_bytes key);

// Whether jobs of this key are a channel of the stage; false: each is its own.
static inline bool key_has_channel(const struct stage *s, mr_bytes key) {
    return key.size && !(s->groups && key_is_unordered(key));
}

// The number that stands behind the key of a channel with `grouped`.
static inline uint32_t channel_group(const struct core *c, const struct channel *ch) {
    uint32_t group;
    mr_bytes key = channel_key(c, ch);
    memcpy(&group, (const uint8_t *)key.data + key.size, sizeof group);
    return group;
}

// Adds such a key to `keys`: the new channel uses the group. Returns its number; 0: see out_err.
uint32_t group_add_key(struct core *, uint32_t stage, mr_bytes key, int *out_err);

// ---- Groups -----------------------------------------------------------------------------------

// The group of a key, made when missing; the caller uses it, until group_release. MR_EFULL: there
// are too many; MR_ENOMEM.
int group_use(struct core *, uint32_t stage, mr_bytes key, uint32_t *out);
void group_release(struct core *, uint32_t group);

// The group of a channel of a stage that has groups.
struct key_group *group_of(const struct core *, const struct stage *, chan);
mr_bytes group_name(const struct core *, const struct key_group *);

// A job of a stage that has groups has ended or is removed.
void group_leave(struct core *, const struct stage *, const struct job *);

// ---- Turns ------------------------------------------------------------------------------------

void group_add_ready(struct core *, struct stage *, struct key_group *, chan, enum place);
// `starts`: its block starts, and group_started follows.
void group_remove_ready(struct core *, struct stage *, struct key_group *, chan, bool starts);
void group_count_jobs(struct core *, struct stage *, struct key_group *, int32_t more);

// What keeps the group from starting a job: HOLD_NONE, HOLD_GROUP_LIMIT or HOLD_GROUP_RATE.
enum hold group_hold(const struct core *, const struct stage *, const struct key_group *);

// Its first channel is the head of the stage's ready line, which is not empty.
static inline struct key_group *group_whose_turn_it_is(const struct stage *s) {
    return list_entry(s->groups->turns.next, struct key_group, of_ring);
}

// Before a start: how many of `most` jobs the group whose turn it is may start at once; reserves a
// timer. 0: MR_ENOMEM.
uint32_t group_start_most(struct core *, const struct stage *, uint32_t most);
// The lease has started its jobs: the group has had its turn. The lease uses the group.
void group_started(struct core *, struct stage *, struct lease *);
void group_not_started(struct core *, const struct lease *); // takes its starts back from the rate
// Jobs under the lease were answered.
void group_answered(struct core *, const struct lease *, uint64_t jobs);
void group_fires(struct core *, uint32_t group); // its timer

// Passes over groups at the front of `turns` that may not start: some only, and later the rest.
void groups_refresh(struct core *, struct stage *);

// The ready channels one after another; 0: there are no more.
chan stage_first_ready(const struct stage *);
chan stage_next_ready(const struct core *, const struct stage *, chan);

// ---- Policies ---------------------------------------------------------------------------------

// `group` of the stage's policy was changed, and is not recorded yet. Makes what the stage needs
// for groups; groups_end takes that back. MR_EINVAL: it has jobs or states; MR_ENOMEM.
int groups_prepare_change(struct core *, struct stage *);
// The policies have changed, and are recorded.
void groups_policy_changed(struct core *, struct stage *, const struct policy *before);
// If it has groups; there are no jobs, states and leases.
void groups_end(struct core *, struct stage *);

// ---- Opening ----------------------------------------------------------------------------------

// After replay, which knows no groups because the record of a stage may come late: takes jobs whose
// key names no channel out of their channels. MR_ECORRUPT, MR_ENOMEM.
int groups_open_jobs(struct core *);
// When ready is sorted: divides it among the groups, whose turns are in order of their first
// channels. MR_ENOMEM.
int groups_open(struct core *);

#endif
