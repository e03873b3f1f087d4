// See plan.h.
#include "cluster/plan.h"

#include "base/mutant.h"

#include "cluster/assign.h"

#include <stdio.h>
#include <string.h>

// The nodes that are alive and can link with this one, and this one, sorted by address.
struct living {
    uint32_t count;
    struct assign_node nodes[NODES_SEEN + 1];
};

void cluster_seen_add(struct cluster_seen *c, const struct node_seen *n, uint64_t takeover_ms) {
    uint32_t oldest = 0;
    if (c->nodes == NODES_SEEN) {
        for (uint32_t i = 1; i < c->nodes; i++)
            oldest = c->node[i].age_ms > c->node[oldest].age_ms ? i : oldest;
        bool has_room = c->node[oldest].age_ms >= takeover_ms;
        c->left_out += !has_room && n->age_ms < takeover_ms;
        if (!has_room || n->age_ms >= c->node[oldest].age_ms)
            return;
        c->nodes--;
        memmove(&c->node[oldest], &c->node[oldest + 1], (c->nodes - oldest) * sizeof *c->node);
    }
    c->node[c->nodes++] = *n;
}

bool cluster_seen_lacks(const struct cluster_seen *c, const char *address) {
    bool found = false;
    for (uint32_t i = 0; i < c->nodes; i++)
        found = found || strcmp(c->node[i].address, address) == 0;
    return c->left_out && !found;
}

const struct node_seen *cluster_seen_other_version(const struct cluster_seen *c,
                                                   uint64_t takeover_ms) {
    for (uint32_t i = 0; i < c->nodes; i++)
        if (c->node[i].age_ms < takeover_ms && c->node[i].link_version != LINK_VERSION)
            return &c->node[i];
    return NULL;
}

static void living_add(struct living *l, const char *address, bool is_draining) {
    uint32_t at = l->count++;
    for (; at && strcmp(l->nodes[at - 1].name, address) > 0; at--)
        l->nodes[at] = l->nodes[at - 1];
    l->nodes[at] = (struct assign_node){ address, is_draining };
}

static void find_living(const struct cluster_seen *c, const char *own, bool is_draining,
                        uint64_t takeover_ms, struct living *out) {
    out->count = 0;
    living_add(out, own, is_draining);
    for (uint32_t i = 0; i < c->nodes; i++)
        if (c->node[i].age_ms < takeover_ms && strcmp(c->node[i].address, own) != 0 &&
            (c->node[i].link_version == LINK_VERSION || MUTANT(other_version_assigned)))
            living_add(out, c->node[i].address, c->node[i].is_draining);
}

static int32_t living_index(const struct living *l, const char *address) {
    for (uint32_t i = 0; address[0] && i < l->count; i++)
        if (strcmp(l->nodes[i].name, address) == 0)
            return (int32_t)i;
    return -1;
}

// Which node has the shard; "": none, because the owner has released it or shows no sign of life. A
// store that names this node although it has not got the shard was owned by it before it was
// restarted.
static void find_owner(const struct stream_state *s, const char *own, bool has,
                       uint64_t takeover_ms, char out[NODE_ADDRESS]) {
    out[0] = 0;
    if (has)
        snprintf(out, NODE_ADDRESS, "%s", own);
    else if (s->silent_ms < takeover_ms / (MUTANT(takeover_too_early) ? 8 : 1) &&
             owner_address(s->owner, out) && strcmp(out, own) == 0)
        out[0] = 0;
}

void plan_make(const struct cluster_seen *c, const char *own, bool is_draining, const bool *has,
               uint64_t takeover_ms, struct node_plan *out) {
    struct living living;
    struct assign_shard shards[SERVER_SHARDS];
    int32_t should[SERVER_SHARDS];
    char owner[SERVER_SHARDS][NODE_ADDRESS], last[NODE_ADDRESS];
    find_living(c, own, is_draining, takeover_ms, &living);
    for (uint32_t i = 0; i < c->shards; i++) {
        find_owner(&c->shard[i], own, has[i], takeover_ms, owner[i]);
        bool restarted =
            !owner[i][0] && owner_address(c->shard[i].owner, last) && strcmp(last, own) == 0;
        shards[i].owner = living_index(&living, restarted ? own : owner[i]);
        shards[i].wanted = living_index(&living, c->wanted[i]);
    }
    assign_shards(living.nodes, living.count, shards, c->shards, should);
    int32_t self = living_index(&living, own);
    *out = (struct node_plan){ 0 };
    for (uint32_t i = 0; i < c->shards; i++) {
        bool mine = should[i] == self;
        if (has[i])
            out->shard[i].act = mine || should[i] < 0 ? PLAN_NOTHING : PLAN_LEAVE;
        else if (!owner[i][0])
            out->shard[i].act =
                mine && (!is_draining || MUTANT(draining_node_opens)) ? PLAN_OPEN : PLAN_NOTHING;
        else
            memcpy(out->shard[i].owner, owner[i], NODE_ADDRESS);
        out->expects = out->expects || (mine && !has[i] && owner[i][0]);
    }
}
