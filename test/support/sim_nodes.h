// Simulated nodes: several nodes of a cluster in one thread, from one seed. Hosts, the router,
// links, remote sessions, shards, cores and logs are the real ones; the store (sim_stream.h), the
// board (sim_board.h), sockets and clocks are simulated. Or one server whose logs are files on a
// simulated disk (sim_disk.h).
//
//     client ─ wire ─ node: first loop ─ inboxes ─ loops of its shards ─ stream logs ─ store
//                       └─ wire ─ other node: first loop ─ …
//
// What the event loops and threads of a node do (server/loop.c, places.c, cluster/node.c) is done
// here in small pieces, in random order. A wire delivers bytes in pieces of any size, late, or is
// cut at any byte. Nodes die, start again, and pause; each has a clock of its own, which may jump.
#ifndef TEST_SUPPORT_SIM_NODES_H
#define TEST_SUPPORT_SIM_NODES_H

#include "cluster/plan.h"
#include "log/board.h"
#include "server/node_link.h"
#include "server/remote.h"
#include "server/router.h"
#include "support/sim_board.h"
#include "support/sim_disk.h"
#include "support/sim_stream.h"

enum { SIM_NODES = 3, SIM_SHARDS = 4, SIM_WIRES = 96 };
enum {
    SIM_TAKEOVER_MS = 3000,
    SIM_UNOWNED_MS = SIM_TAKEOVER_MS * 3 / 5,
    SIM_BEAT_MS = SIM_TAKEOVER_MS / 5
};

// Mistakes, for tests of the test. The first two are made by the code here, others by sim_plants.h.
enum sim_plant {
    PLANT_NONE,
    PLANT_UNOWNED,        // an owner goes on although its time is over
    PLANT_PAUSED_GRANTS,  // the first loop does not check before it sends
    PLANT_BEFORE_DURABLE, // replies do not wait until the log is durable
    PLANT_LINK_MARK,      // a new owner does not know which emits of other shards it has
    PLANT_IDS_AGAIN,      // a new owner issues the ids of its predecessor
    PLANT_CROSSED,        // replies to two connections are exchanged
    PLANT_OVERTAKES,      // a request that got MOVED is sent again behind the next one
    PLANT_SURPLUS,        // jobs that a TAKE gets too much are not given back
};

struct sim_node;
struct sim_nodes;

// A connection from a client or a node to a node.
struct sim_wire {
    bool is_used, is_cut;
    int from; // a node; -1: a client
    int to;
    struct sim_pipe {
        struct buffer bytes;
        bool ended; // by the end that writes
    } pipes[2];     // 0: to `to`; 1: back
    struct session *sessions[2];
    bool closed[2];
    uint64_t silent_until_ms; // nothing arrives, not even that it was closed
};

// A shard on a node: see places.c.
struct sim_place {
    struct sim_node *node;
    uint32_t shard;
    enum { SIM_ABSENT, SIM_OPENING, SIM_RUNS, SIM_GONE, SIM_CLOSING } phase;
    enum { SIM_STAYS, SIM_LEAVES, SIM_GIVES_BACK, SIM_HAS_LEFT } leaving;
    bool was_lost, not_opened;
    uint64_t leave_at_ms;
    struct stream_state expected; // as it was seen before it is opened
    struct host host;
    struct list flush_mark; // in host.ready: where a flush ends
    struct group *group;
    struct log *log;
    struct stream_store store;
};

struct sim_link {
    struct sim_node *node;
    int to;
    struct node_link *link; // NULL: none
    uint64_t tried_ms;
};

struct sim_node {
    struct sim_nodes *all;
    int index;
    bool is_alive, is_dying, is_opening, is_drained;
    bool has_failed;       // a log on files has: the server ends, and is started again
    uint64_t ahead_ms;     // how far its clock is ahead of the store's
    int64_t wall_ahead_ms; // how far its time of day is, beside that
    uint64_t paused_until_ms, cut_until_ms, look_at_ms;
    uint64_t unreachable_until_ms; // for clients
    uint64_t pause_in_append_ms;   // so long, in the next append; 0: not
    char address[NODE_ADDRESS];
    struct log_clock clock;
    struct loops loops;
    struct host front;
    struct list flush_mark; // in front.ready: where a flush ends
    struct sim_place places[SIM_SHARDS];
    struct sim_link links[SIM_NODES];
    struct {
        int node, former;
        uint64_t former_ms;
    } of[SIM_SHARDS + 1];
    struct {
        bool is_here, is_opening, is_leaving;
    } shard[SIM_SHARDS];
    struct board *board;
    struct host_node info;
    struct cluster_seen seen;
    _Atomic uint64_t known_ends[SIM_SHARDS];
};

struct sim_nodes {
    uint64_t random;
    int node_count;
    struct sim_disk *disk; // the only node has its logs here; NULL: they are in the store
    struct sim_store *store;
    struct sim_board *notes;
    struct stream *looks[SIM_SHARDS];
    struct sim_node nodes[SIM_NODES];
    struct sim_wire wires[SIM_WIRES];
    int wire_count;      // those behind were never used
    uint64_t idle_steps; // since a connection has delivered something
    uint64_t apart_until_ms[SIM_NODES][SIM_NODES];
    enum sim_plant plant;
    uint64_t first_ids[SIM_SHARDS]; // for PLANT_IDS_AGAIN: those of the first owners
    bool slow_store;                // appends are now and then unavailable for a while
    void (*others)(void *arg);      // a step of everything, while a node is paused in an append
    void *others_arg;
    bool is_nested; // in such a step
    char failure[400];
    bool prints; // what happens
    struct {
        uint64_t opened, left, lost, links, moved, steps, paused_in_append;
    } reached;
};

struct sim_nodes *sim_nodes_create(uint64_t seed, bool on_files);
void sim_nodes_destroy(struct sim_nodes *);

uint64_t sim_nodes_roll(struct sim_nodes *, uint64_t below);
uint64_t sim_nodes_now_ms(const struct sim_nodes *); // the store's clock

// A line of what happens; and the first failure, with the same in it.
void sim_nodes_note(struct sim_nodes *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_nodes_fail(struct sim_nodes *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Everything that can happen has a chance to happen a little.
void sim_nodes_step(struct sim_nodes *);

// For the simulation itself: sim_node_store.c, and sim_nodes.c.
int sim_node_open_stream(struct stream_store *, uint32_t shard, struct stream **out);
void sim_node_pause_in_append(struct sim_node *);

void sim_node_start(struct sim_node *);
void sim_node_kill(struct sim_node *);
// The only node dies, and its disk keeps so much of what was not synced.
void sim_nodes_lose_disk(struct sim_nodes *, enum sim_survival, uint64_t seed);
void sim_wire_cut(struct sim_nodes *, struct sim_wire *);

// For clients. NULL: the node is dead, or there are too many wires.
struct sim_wire *sim_wire_connect(struct sim_nodes *, int node);
void sim_wire_send(struct sim_wire *, mr_bytes);
// Appends what has arrived. False: the other end has closed it, and nothing more arrives.
bool sim_wire_receive(struct sim_nodes *, struct sim_wire *, struct buffer *);
// The same, of so many bytes at most: how many; 0: nothing just now; -1: nothing more arrives.
ptrdiff_t sim_wire_read(struct sim_nodes *, struct sim_wire *, void *to, size_t room);
bool sim_wire_is_readable(const struct sim_nodes *, const struct sim_wire *);
void sim_wire_close(struct sim_nodes *, struct sim_wire *);
// Notes what the node at its end knows of it; and which shards there are.
void sim_wire_describe(struct sim_nodes *, const struct sim_wire *);
void sim_nodes_describe(struct sim_nodes *);

#endif
