// Assign: which node of a cluster should own each shard. Pure.
//
// Every node computes the assignment from what it has read of the store (log/board.h), and nodes
// that have read the same compute the same. It only suggests who should claim.
//
//     owners     a: 0 1 2 3 4   b: 5 6 7     c joins
//     assigned   a: 0 1 2       b: 5 6 7     c: 3 4      differ by at most one, two have moved
#ifndef CLUSTER_ASSIGN_H
#define CLUSTER_ASSIGN_H

#include <stdbool.h>
#include <stdint.h>

enum { ASSIGN_NODES_MOST = 4096 };

// A node that is alive. A draining one should own nothing.
struct assign_node {
    const char *name;
    bool draining;
};

// Indexes of nodes, -1: none. `wanted`: to which node an operator has moved the shard.
struct assign_shard {
    int32_t owner, wanted;
};

// Writes for each shard the node that should own it; -1: there are no nodes. The nodes are sorted
// by name, without repeats, at most ASSIGN_NODES_MOST.
//
// A shard goes to the node that is wanted, if that is not draining. The others are spread over the
// nodes that are not draining, so that the numbers of shards per node are as even as possible: they
// differ by at most one, except that a node may have more if all of its shards were moved to it by
// an operator. Of all assignments like that it is one with the fewest shards that change their
// owner. If all nodes are draining, shards stay, and those without an owner are spread as evenly as
// possible.
void assign_shards(const struct assign_node *, uint32_t nodes, const struct assign_shard *,
                   uint32_t shards, int32_t *out);

#endif
