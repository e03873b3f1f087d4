// Node: a server of a cluster. Its nodes share a store; each owns some of its shards, and passes
// commands about the others on to their owners.
//
//     look at the store, once a second ─► plan (plan.h) ─► open shards, leave shards, link to
//     owners
//
// Nodes keep nothing on their disks, so any of them can take over a shard at any time. With one
// shard, one node is active and the others stand by.
#ifndef CLUSTER_NODE_H
#define CLUSTER_NODE_H

#include "server/server.h"

// After this time without a sign of an owner in the store another node claims its shards. All nodes
// of a cluster must have the same. An owner shows itself five times as often, and stops by its own
// clock when it could not for three fifths of the time. So it answers only within these of its last
// sign, and for two fifths after a worker has sent what is answered no other node owns the shard.
enum { NODE_TAKEOVER_MS = 10000, NODE_TAKEOVER_LEAST_MS = 1000 };

struct node_options {
    const struct server_options *server; // with the URL of the store
    const char *address,
        *http;            // HOST:PORT where other nodes reach this one; NULL: where it listens
    uint64_t takeover_ms; // 0: NODE_TAKEOVER_MS
    // Refuse to run, with MR_EINVAL, if the store does not promise that acknowledged jobs survive
    // the loss of a machine.
    bool requires_replication;
};

// Runs the node until SIGINT or SIGTERM. Errors: those of server_run, and those of the store that
// waiting does not end (MR_EPERM, MR_EINVAL, MR_ECORRUPT).
int node_run(const struct node_options *);

#endif
