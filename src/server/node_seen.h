// What a node of a cluster has last read of the store: all nodes and shards.
#ifndef SERVER_NODE_SEEN_H
#define SERVER_NODE_SEEN_H

#include "log/stream.h"
#include "server/node_link.h"
#include "server/server.h"

enum { NODES_SEEN = 64 }; // nodes of a cluster

// How other nodes and clients reach a node.
struct node_seen {
    char address[NODE_ADDRESS];
    char http[NODE_ADDRESS]; // "": no HTTP
    char version[24];
    bool is_draining;
    uint32_t link_version;     // of the links between nodes: LINK_VERSION
    uint64_t opening, leaving; // shards that it opens, and that it hands over: bit n is shard n
    uint64_t age_ms;           // since it has last written to the store
};

// What the store says.
struct cluster_seen {
    uint32_t shards, nodes;
    struct stream_state shard[SERVER_SHARDS];
    struct node_seen node[NODES_SEEN]; // sorted by address
    uint32_t left_out;                 // nodes that are alive, and for which there was no room
    char wanted[SERVER_SHARDS][NODE_ADDRESS]; // to which node an operator has moved it; "": none
    bool foreign_ids;                         // the store was copied: see host.h
    char secret[LINK_SECRET + 1];             // "": there is none yet
};

// How a claim names its owner: "ADDRESS", or "ADDRESS HTTP". Reads the address. False: it is none.
bool owner_address(const char *owner, char out[NODE_ADDRESS]);

#endif
