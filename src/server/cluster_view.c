// See cluster_view.h.
#include "server/cluster_view.h"

#include "base/bytes.h"
#include "server/loops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *shard_state_name(enum shard_state state) {
    switch (state) {
    case SHARD_IS_UNOWNED:
        return "unowned";
    case SHARD_IS_SERVED:
        return "serves";
    case SHARD_IS_OPENING:
        return "opening";
    case SHARD_IS_LEAVING:
        return "leaving";
    case SHARD_IS_UNLINKED:
        return "unlinked";
    }
    return "";
}

bool cluster_view_is_self(const struct host *h, const struct node_seen *n) {
    return strcmp(n->address, h->node->address) == 0;
}

bool cluster_view_is_alive(const struct host *h, const struct node_seen *n) {
    return cluster_view_is_self(h, n) || n->age_ms < h->node->takeover_ms;
}

static const struct node_seen *node_seen_at(const struct host *h, const char *address) {
    const struct cluster_seen *c = h->node->seen;
    for (uint32_t i = 0; i < c->nodes; i++)
        if (strcmp(c->node[i].address, address) == 0)
            return &c->node[i];
    return NULL;
}

// As the owner, which is another node, has last said.
static enum shard_state remote_state(const struct host *h, uint32_t shard, const char *owner) {
    const struct node_seen *n = node_seen_at(h, owner);
    uint64_t bit = UINT64_C(1) << shard;
    if (n && n->opening & bit)
        return SHARD_IS_OPENING;
    if (n && n->leaving & bit)
        return SHARD_IS_LEAVING;
    return node_link_is_ready(h->loops->places[shard + 1].link) ? SHARD_IS_SERVED
                                                                : SHARD_IS_UNLINKED;
}

enum shard_state cluster_view_shard(const struct host *h, uint32_t shard,
                                    char owner[NODE_ADDRESS]) {
    const struct stream_state *s = &h->node->seen->shard[shard];
    enum shard_place at = h->loops->places[shard + 1].at;
    if (at == PLACE_HERE || at == PLACE_LEAVING) {
        snprintf(owner, NODE_ADDRESS, "%s", h->node->address);
        return at == PLACE_HERE ? SHARD_IS_SERVED : SHARD_IS_LEAVING;
    }
    if (!owner_address(s->owner, owner))
        return SHARD_IS_UNOWNED;
    if (s->silent_ms >= h->node->takeover_ms) {
        owner[0] = 0;
        return SHARD_IS_UNOWNED;
    }
    bool is_own = strcmp(owner, h->node->address) == 0;
    return is_own ? SHARD_IS_OPENING : remote_state(h, shard, owner);
}

uint32_t cluster_view_count(const struct host *h, const char *address, uint64_t *out_epoch) {
    char owner[NODE_ADDRESS];
    uint32_t count = 0;
    uint64_t epoch = 0;
    for (uint32_t i = 0; i < h->shards; i++) {
        (void)cluster_view_shard(h, i, owner);
        if (strcmp(owner, address) != 0)
            continue;
        count++;
        epoch = h->node->seen->shard[i].epoch > epoch ? h->node->seen->shard[i].epoch : epoch;
    }
    if (out_epoch)
        *out_epoch = epoch;
    return count;
}

void node_id(const char *address, char out[NODE_ID]) {
    struct hash128 first = bytes_hash128(mr_str(address), 1);
    uint64_t rest = bytes_hash(mr_str(address), 2);
    snprintf(out, NODE_ID, "%016" PRIx64 "%016" PRIx64 "%08" PRIx64, first.high, first.low,
             rest & UINT32_MAX);
}

const struct node_seen *cluster_view_find(const struct host *h, mr_bytes name) {
    const struct cluster_seen *c = h->node->seen;
    char id[NODE_ID];
    for (uint32_t i = 0; i < c->nodes; i++) {
        node_id(c->node[i].address, id);
        if (bytes_equal(name, mr_str(c->node[i].address)) || bytes_equal(name, mr_str(id)))
            return &c->node[i];
    }
    return NULL;
}
