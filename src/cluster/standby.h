// Standby: a node that does not own the store. It watches the owner, passes the connections of its
// clients on to it (relay.h), and ends when it is to own the store itself.
//
//     look at the store, once a second ─┬─ there is an owner ─► clients go there
//                                       ├─ none, or silent for too long ─► this node claims it
//                                       └─ the store does not answer ─► as before
//
// This only suggests who should claim: the store decides (log/stream.h). Of several nodes that
// claim at the same time one succeeds, because each expects the epoch that it has seen.
#ifndef CLUSTER_STANDBY_H
#define CLUSTER_STANDBY_H

#include "cluster/relay.h"
#include "log/stream.h"

enum { STANDBY_LOOK_MS = 1000 };

struct standby_options {
    struct stream *stream;       // of the first shard
    const char *own;             // how other nodes reach this one: struct node_places
    struct relay_place *wire;    // where clients connect; a port of 0 is set
    struct relay_place *http;    // NULL: nowhere
    _Atomic uint64_t *known_end; // of the stream, see log_stream_options
    uint32_t most_connections;
    uint64_t takeover_ms; // an owner that is silent for this time has stopped (node.h)
    // Called when clients can connect, and whenever another node, or none (NULL), owns the store.
    void (*on_owner)(void *arg, const char *owner);
    void *arg;
};

enum standby_end { STANDBY_TAKES_OVER, STANDBY_STOPPED };

// Waits until this node should claim the store, whose epoch is then in `out_epoch`, or for SIGINT
// or SIGTERM. Errors: MR_ENET (cannot listen), and those of the stream that waiting does not end
// (MR_EPERM, MR_EINVAL, MR_ECORRUPT, also if the stream is shorter than it was).
int standby_run(const struct standby_options *, enum standby_end *out_end, uint64_t *out_epoch);

// How other nodes reach a node, as the store keeps it: "HOST:PORT", or "HOST:PORT HOST:PORT" with
// the place of HTTP. False: the text is neither.
struct node_places {
    struct relay_place wire, http; // port 0: none
};
bool node_places_read(const char *text, struct node_places *out);
void node_places_write(const struct node_places *, char out[STREAM_OWNER]);

#endif
