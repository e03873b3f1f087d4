// Remote: the session that represents a connection in another loop, or on another node, and the
// messages to and from it. For router.c (the side of the connection), remote.c (the side of the
// shards) and node_link.c (messages between nodes) only.
//
//     client's loop                                      loop of the shards
//     session ─ struct remote ─ IDENTITY, REQUESTS … ─► remote session
//                             ◄─ REPLIES, MOVED … ─────
//
// Within a process both sides share the struct, each with fields of its own. Between nodes there is
// one on each: the node of the connection has the client's fields, with `link`; the node of the
// shards has a struct whose client is the link, with `from`.
#ifndef SERVER_REMOTE_H
#define SERVER_REMOTE_H

#include "server/auth.h"
#include "server/holds.h"
#include "server/loops.h"
#include "server/router.h"
#include "server/session.h"
#include "shard/reservation.h"

enum loop_message_kind {
    // To a remote session:
    LOOP_IDENTITY,  // its connection's identity; count 1: makes the remote session
    LOOP_HOLDS,     // sources that it has to hold
    LOOP_REQUESTS,  // bytes; `reserved` if it is a TAKE in several loops
    LOOP_SENT,      // number of bytes of replies that the connection has accepted
    LOOP_UNBLOCK,   // its TAKE waits no longer
    LOOP_RETURN,    // the last `count` jobs that it has taken are not wanted
    LOOP_GIVE_BACK, // none of its jobs is: the connection will be closed by no fault of its own
    LOOP_END,       // the connection has ended
    // From it:
    LOOP_REPLIES, // bytes, and how many replies they are
    LOOP_CLOSED,  // it has ended by itself; count 1: the connection must be closed at once
    LOOP_MOVED,   // it has ended because its shard leaves; nothing that has no reply was run
    LOOP_ENDED,   // the last message, after LOOP_END
    // Between shards, and for the server:
    LOOP_SHARD_MESSAGE,
    LOOP_RUN,
};

// The identity of the connection of a remote session. Compared byte by byte: unused bytes are zero.
struct identity {
    uint64_t id;
    bool resp3, cancels, input_ended;
    uint32_t level;
    char stages[SESSION_STAGES];
    char name[LIMIT_NAME + 1], token[AUTH_NAME + 1], address[64];
};

// It owns its contents.
struct loop_message {
    struct list of_inbox;
    enum loop_message_kind kind;
    uint32_t loop; // that it was sent to
    struct remote *remote;
    struct buffer bytes;
    uint64_t count;
    struct remote_work work;
    struct identity *identity;
    struct holds *holds;
    struct shared_reservation *reserved;
    struct message *message;
    void (*run)(struct host *, void *arg);
    void (*drop)(void *arg); // frees `arg` if it was not run; NULL: it is borrowed
    void *arg;
};

// A TAKE that waits in several loops.
struct shared_reservation {
    struct reservation reservation;
    _Atomic uint32_t users;
};

// Messages that must not fail are allocated in advance.
struct remote {
    struct loops *loops;
    uint32_t client_loop, shard_loop;
    struct loop_message *end, *ended, *closed; // for LOOP_END, LOOP_ENDED and LOOP_CLOSED

    // Between nodes, used by the first loop:
    struct node_link *link; // to the node that has the session; NULL: it is in this process
    struct node_link *from; // from the node of the connection; NULL: it is a connection of this one
    uint64_t id;            // on that link
    struct list of_link;    // of the link
    struct buffer kept;     // in a cluster: requests that were sent …
    uint64_t kept_count;    // … since all had replies, how many …
    uint64_t kept_replies;  // … and how many replies there were
    size_t counted;         // bytes of requests that its connection has counted
    bool has_held;          // sources were held: its session must not be made anew elsewhere

    // Used by the client's loop:
    struct session *client; // NULL: it has ended
    struct list of_outgoing;
    struct buffer requests;   // to be sent at the end of the turn …
    uint64_t request_count;   // … and how many
    uint64_t under_way;       // requests without a reply
    uint64_t bytes_under_way; // of requests, since there were none
    uint64_t to_ack;          // bytes of replies that the connection has accepted
    struct remote_work work;  // as last reported
    struct identity known;    // what was sent to it
    bool is_made;
    struct holds holds;                  // to be sent before the requests
    struct shared_reservation *reserved; // goes with the next requests

    // Used by the loop of the shards:
    struct session *session; // NULL: not yet, or over
    bool is_over;
    bool gives_back; // its jobs go back without a counted attempt when it ends
    bool has_moved;  // messages are ignored until the next identity that makes a session
    struct identity identity;
    uint64_t sent_replies, sent_ended; // numbers of replies and of ends that were reported
};

// ---- loops.c ------------------------------------------------------------------------------------

struct loop_message *loop_message_create(enum loop_message_kind,
                                         struct remote *); // NULL: no memory
void loop_message_free(struct loop_message *);             // takes NULL
void loop_send(struct loops *, uint32_t loop, struct loop_message *);

// ---- router.c -----------------------------------------------------------------------------------

// The struct, without a session on either side. NULL: no memory.
struct remote *remote_create(struct loops *, uint32_t client_loop, uint32_t shard_loop);
void remote_free(struct remote *);

// Handles a message to the first loop, or from a link. May close connections.
void router_handle(struct host *, struct loop_message *);
// The link to the node of this remote session is lost.
void router_lost_link(struct remote *);

// ---- remote.c -----------------------------------------------------------------------------------

// Handles a message to a remote session, in the loop of its shards.
void remote_handle(struct host *, struct loop_message *);

#endif
