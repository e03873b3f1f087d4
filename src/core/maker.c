// Makers: how many stages and sources each token has made, so that no token uses up all of them.
// STAGE and SOURCE records name the maker, so the counts survive a restart.
#include "core/state.h"

static struct maker *maker_at(const struct core *c, uint32_t index) {
    return slab_at(&c->makers, index);
}

static bool maker_has_name(const void *owner, uint32_t index, const void *name) {
    return maker_at(owner, index)->name == *(const uint64_t *)name;
}

static uint32_t maker_of_name(const struct core *c, uint64_t name) {
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
    if (m->made[MADE_STAGE] || m->made[MADE_SOURCE])
        return;
    map_remove(&c->maker_by_name, number_hash(m->name), index);
    slab_give(&c->makers, index);
}
