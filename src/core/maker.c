// Makers: how many stages and sources each token has made, so that no token uses up all of them.
// STAGE and SOURCE records name the maker, so the counts survive a restart.
//
// Each shard checks the maker's share when it makes a stage. An emit to a stage of another shard is
// checked here, before the commit is accepted: the shard that receives it cannot refuse it any
// more, so it makes the stage even beyond the share. The sender has an entry for that stage, too,
// which counts here:
//
//     here    entry of x, made by m ── emit, maker m ──┐
//     there                                            └──► stage x, made by m
//
// If the entry could go with its last emit, a token could make ever new stages there. So it stays
// until the other shard answers that, counting x, the maker has less than its share there
// (core_share_left); the answer is no good for an entry that a later emit has used. Then in each
// shard at any time: stages that no entry of another shard stands for + entries ≤ share. Proof:
// making a stage or an entry is checked; an arrival has its entry; and when entries go, all stages
// of the maker there, with the entries there, are less than its share. So all shards together never
// have more stages of a maker than their shares together.
//
// The entry is a STAGE record with the maker, in one group with the commit: it exists before the
// stage in the other shard, also after a crash, and the OUTBOX record needs no maker. The answer is
// sent when it is durable there that stages are gone.
#include "core/state.h"

static struct maker *maker_at(const struct core *c, uint32_t index) {
    return slab_at(&c->makers, index);
}

static bool maker_has_name(const void *owner, uint32_t index, const void *name) {
    return maker_at(owner, index)->name == *(const uint64_t *)name;
}

uint32_t maker_of_name(const struct core *c, uint64_t name) {
    return name ? map_find(&c->maker_by_name, number_hash(name), maker_has_name, c, &name) : 0;
}

uint32_t maker_find(const struct core *c) {
    return maker_of_name(c, c->maker);
}

uint64_t maker_name(const struct core *c, uint32_t index) {
    return index ? maker_at(c, index)->name : 0;
}

uint32_t maker_count(const struct core *c, enum made made) {
    uint32_t index = maker_find(c);
    return index ? maker_at(c, index)->made[made] : 0;
}

// Shards do not know each other's counts, so each allows an equal part of what the whole store
// allows. The epics of a stage are all in one shard: with many shards the part has a minimum.
uint32_t maker_share(const struct core *c, uint32_t most) {
    uint32_t of_all = most / c->limits.maker_part, share = of_all / c->config.shards;
    if (share < c->limits.maker_least)
        share = c->limits.maker_least;
    return share < of_all ? share : of_all;
}

// If there is no memory for the question, the next stage asks again.
void maker_ask_peers(struct core *c, uint32_t index) {
    struct maker *m = index ? maker_at(c, index) : NULL;
    if (!m || !c->config.peers.share || m->asked_ms == c->now_ms)
        return;
    if (c->config.peers.share(c->config.peers.owner, m->name) == 0)
        m->asked_ms = c->now_ms;
}

const char *maker_where(const struct core *c) {
    return c->config.shards > 1 ? " in this shard" : "";
}

int maker_reserve(struct core *c, uint64_t name) {
    if (!name)
        return 0;
    int err = map_reserve(&c->maker_by_name, 1);
    return err < 0 ? err : slab_reserve(&c->makers, 1);
}

uint32_t maker_add(struct core *c, uint64_t name, enum made made) {
    uint32_t index = maker_of_name(c, name);
    if (!name)
        return 0;
    if (!index) {
        index = slab_take(&c->makers);
        maker_at(c, index)->name = name;
        map_put(&c->maker_by_name, number_hash(name), index);
    }
    maker_at(c, index)->made[made]++;
    c->made++;
    return index;
}

void maker_remove(struct core *c, uint32_t index, enum made made) {
    if (!index)
        return;
    struct maker *m = maker_at(c, index);
    m->made[made]--;
    c->made--;
    for (int i = 0; i < MADE_END; i++)
        if (m->made[i])
            return;
    map_remove(&c->maker_by_name, number_hash(m->name), index);
    slab_give(&c->makers, index);
}
