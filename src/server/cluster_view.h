// Cluster view: which node has which shards, as this node knows it: from what it has last read of
// the store (node_seen.h), and of its own shards from their places (loops.h). For a host that is
// the first loop of a node; its thread.
#ifndef SERVER_CLUSTER_VIEW_H
#define SERVER_CLUSTER_VIEW_H

#include "server/host.h"
#include "server/node_seen.h"

enum shard_state {
    SHARD_IS_UNOWNED,
    SHARD_IS_SERVED,
    SHARD_IS_OPENING,  // its owner reads its log
    SHARD_IS_LEAVING,  // its owner hands it over
    SHARD_IS_UNLINKED, // its owner cannot be reached from this node
};

// The name of a state, as CLUSTER STATUS has it.
const char *shard_state_name(enum shard_state);

// The state of a shard, and the address of its owner: "" if it has none.
enum shard_state cluster_view_shard(const struct host *, uint32_t shard, char owner[NODE_ADDRESS]);

// Whether a node is this one, and whether it has written to the store lately.
bool cluster_view_is_self(const struct host *, const struct node_seen *);
bool cluster_view_is_alive(const struct host *, const struct node_seen *);

// How many shards the node at this address owns; "": how many have no owner. `out_epoch`, unless
// NULL: the highest epoch of them, 0 if there is none.
uint32_t cluster_view_count(const struct host *, const char *address, uint64_t *out_epoch);

// The id of the node at this address, as clients of Redis expect it.
enum { NODE_ID = 41 };
void node_id(const char *address, char out[NODE_ID]);

// The node with this address or id; NULL: there is none.
const struct node_seen *cluster_view_find(const struct host *, mr_bytes name);

#endif
