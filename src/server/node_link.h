// Link: a connection between two nodes of a cluster that carries the messages of loops (remote.h)
// from one to the other. Each node connects to every other one that owns shards; over that link go
// what its connections ask of those shards, the replies, and messages of its shards.
//
//     this node ─ LINK secret … ─► other node          then frames:  size (4), kind (1), id (8), …
//               ◄─ +OK ───────────
//
// The end of a link ends the sessions that it carries on the other node, with their leases; here,
// connections that hold something there are closed. A link has no socket: it is the front
// (front.h) of a connection. One thread: that of the first loop.
#ifndef SERVER_NODE_LINK_H
#define SERVER_NODE_LINK_H

#include "server/front.h"

struct node_link;
struct loop_message;
struct remote;

enum {
    LINK_SECRET = 64, // most bytes of the secret that nodes share
    LINK_VERSION = 1,
    NODE_HOST = 64,
    NODE_ADDRESS = NODE_HOST + 16,
};

// Where a node is: a numeric address.
struct node_place {
    char host[NODE_HOST];
    uint16_t port;
};

// Reads "HOST:PORT" or "[HOST]:PORT". False: it is neither.
bool node_place_read(const char *text, struct node_place *out);

// For the side that connects: what it says first. Borrowed during the call.
struct node_link_hello {
    const char *secret, *cluster, *node; // its own address
    uint32_t shards;
};

// Makes the front of a session: of the side that connects, or, without a hello, of the side that
// has accepted LINK. MR_ENOMEM.
int node_link_create(struct session *, const struct node_link_hello *, struct node_link **out);

// Called when it is ready, and when it ends, with what the other node has said against it or NULL.
void node_link_watch(struct node_link *,
                     void (*changed)(void *arg, struct node_link *, const char *why), void *arg);

bool node_link_is_ready(const struct node_link *); // the other node has accepted it
bool session_serves_node(const struct session *);  // its link was accepted, not dialed

// Adds a remote session that is on the other node, and gives it an id; and removes it. Without
// memory the link ends.
void node_link_add(struct node_link *, struct remote *);
void node_link_remove(struct node_link *, struct remote *);

// Removes a remote session that works for a connection of the other node, and ends it.
void node_link_end_remote(struct node_link *, struct remote *);

// Sends a message to the remote session with this id, or for a connection of the other node; a
// message between shards has id 0. Without memory the link ends.
void node_link_send(struct node_link *, uint64_t id, const struct loop_message *);

// Notifies the other node of an accepted link that this one has closed a shard, which is free now.
void node_link_send_free(struct session *, uint32_t loop);

// A shard that the other node had is elsewhere: what depends on it there ends.
void node_link_reset(struct node_link *, uint32_t loop);

// Ends it, and all that depends on it, soon.
void node_link_end(struct node_link *);
// About once a second: ends a link on which nothing is received, and pings the other side over this
// one. No-op for other sessions.
void node_link_tick(struct session *, uint64_t now_ms);
// The server stops: if the session is a link, it ends with the last remote session on it.
void node_link_end_idle(struct session *);

#endif
