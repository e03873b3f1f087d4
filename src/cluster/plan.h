// Plan: what a node does about the shards, from what it has read of the store. Pure.
//
//     no node owns it, and this one should   ─► open it
//     this node owns it, and another should  ─► leave it; that one opens it then
//     another node owns it                   ─► commands go there
//
// This only suggests who should claim a shard: the store decides (log/stream.h). Of several nodes
// that claim at the same time one succeeds, because each expects the epoch that it has seen.
#ifndef CLUSTER_PLAN_H
#define CLUSTER_PLAN_H

#include "server/node_seen.h"

enum plan_act { PLAN_NOTHING, PLAN_OPEN, PLAN_LEAVE };

struct node_plan {
    struct {
        enum plan_act act;
        char owner[NODE_ADDRESS]; // another node that has it; "": none
    } shard[SERVER_SHARDS];
    bool expects; // a shard of another node should be this one's: look again soon
};

// Adds a node behind the others, all in the order of their addresses. If there is no room, the one
// that has been lost for the longest time is left out; if all are alive, this one.
void cluster_seen_add(struct cluster_seen *, const struct node_seen *, uint64_t takeover_ms);

// Whether a node was left out: it should own no shard.
bool cluster_seen_lacks(const struct cluster_seen *, const char *address);

// A node that is alive and cannot link with this one, because its version differs; NULL: none.
const struct node_seen *cluster_seen_other_version(const struct cluster_seen *,
                                                   uint64_t takeover_ms);

// `own`: this node, which is alive whatever was read; `has[n]`: it has shard n. A node or owner
// that has not written to the store for `takeover_ms` has ended. Nodes that cannot link with this
// one get no shard.
void plan_make(const struct cluster_seen *, const char *own, bool is_draining, const bool *has,
               uint64_t takeover_ms, struct node_plan *out);

#endif
