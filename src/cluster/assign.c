// How many shards each node should have is decided first, and then which ones.
//
// Shards that may not be chosen (an operator has moved them) are fixed. The others fill the nodes
// up to a common level, like water; what is left over raises some of the nodes by one, first of all
// those that own so many now. Nodes then keep as many of their own shards as they should have, and
// what they give up goes where there is room.
#include "cluster/assign.h"

#include "base/mutant.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

struct share {
    bool takes;     // may own shards
    uint32_t fixed; // shards that can only be here
    uint32_t owned; // others, which are here now
    uint32_t room;  // how many of the others should be here
};

struct assigning {
    const struct assign_node *nodes;
    const struct assign_shard *shards;
    uint32_t node_count, shard_count;
    bool all_drain;
    uint32_t others; // shards that are not fixed
    struct share shares[ASSIGN_NODES_MOST];
};

static bool takes_shards(const struct assigning *a, int32_t node) {
    return node >= 0 && a->shares[node].takes;
}

// The only node where the shard may be; -1: it may be anywhere.
static int32_t node_fixed(const struct assigning *a, const struct assign_shard *s) {
    if (a->all_drain)
        return s->owner;
    return takes_shards(a, s->wanted) && !MUTANT(move_of_an_operator_ignored) ? s->wanted : -1;
}

static void nodes_read(struct assigning *a) {
    a->all_drain = true;
    for (uint32_t i = 0; i < a->node_count; i++) {
        assert(i == 0 || strcmp(a->nodes[i - 1].name, a->nodes[i].name) < 0);
        a->all_drain = a->all_drain && a->nodes[i].draining;
    }
    for (uint32_t i = 0; i < a->node_count; i++)
        a->shares[i] = (struct share){ .takes = a->all_drain || !a->nodes[i].draining };
}

static void shards_count(struct assigning *a) {
    for (uint32_t i = 0; i < a->shard_count; i++) {
        const struct assign_shard *s = &a->shards[i];
        assert(s->owner < (int32_t)a->node_count && s->wanted < (int32_t)a->node_count);
        int32_t node = node_fixed(a, s);
        if (node >= 0) {
            a->shares[node].fixed++;
            continue;
        }
        a->others++;
        if (takes_shards(a, s->owner))
            a->shares[s->owner].owned++;
    }
}

// How many shards it takes to fill all nodes up to a level.
static uint64_t shards_below(const struct assigning *a, uint32_t level) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->shares[i].takes && a->shares[i].fixed < level)
            count += level - a->shares[i].fixed;
    return count;
}

// The highest level to which the shards suffice.
static uint32_t level_find(const struct assigning *a) {
    uint32_t low = 0, high = a->shard_count;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        if (shards_below(a, middle) <= a->others)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void shares_set(struct assigning *a) {
    uint32_t level = level_find(a);
    uint32_t left = a->others - (uint32_t)shards_below(a, level);
    for (uint32_t i = 0; i < a->node_count; i++) {
        struct share *s = &a->shares[i];
        if (s->takes && s->fixed < level)
            s->room = level - s->fixed;
    }
    for (int keeps = 1; keeps >= 0; keeps--) { // first those that then keep one more
        for (uint32_t i = 0; i < a->node_count && left; i++) {
            struct share *s = &a->shares[i];
            if (s->takes && s->fixed + s->room == level && (s->owned > s->room) == keeps) {
                s->room++;
                left--;
            }
        }
    }
    assert(!left);
}

static void shards_keep(struct assigning *a, int32_t *out) {
    for (uint32_t i = 0; i < a->shard_count; i++) {
        const struct assign_shard *s = &a->shards[i];
        out[i] = node_fixed(a, s);
        if (out[i] >= 0 || !takes_shards(a, s->owner) || !a->shares[s->owner].room ||
            MUTANT(owner_not_kept))
            continue;
        a->shares[s->owner].room--;
        out[i] = s->owner;
    }
}

static void shards_move(struct assigning *a, int32_t *out) {
    uint32_t node = 0;
    for (uint32_t i = 0; i < a->shard_count; i++) {
        if (out[i] >= 0)
            continue;
        while (!a->shares[node].room)
            node++; // the rooms add up to the number of shards, so there is one
        a->shares[node].room--;
        out[i] = (int32_t)node;
    }
}

void assign_shards(const struct assign_node *nodes, uint32_t node_count,
                   const struct assign_shard *shards, uint32_t shard_count, int32_t *out) {
    assert(node_count <= ASSIGN_NODES_MOST);
    struct assigning a;
    a.nodes = nodes;
    a.shards = shards;
    a.node_count = node_count;
    a.shard_count = shard_count;
    a.others = 0;
    for (uint32_t i = 0; i < shard_count; i++)
        out[i] = -1;
    if (!node_count)
        return;
    nodes_read(&a);
    shards_count(&a);
    shares_set(&a);
    shards_keep(&a, out);
    shards_move(&a, out);
}
