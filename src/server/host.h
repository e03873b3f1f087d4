// Host: what the sessions of a loop share: the shards, the current turn, and the waiting sessions.
// Like the sessions it uses no socket and reads no clock of its own, so that tests and fuzzers
// drive it directly.
//
//     host_begin ─► session_receive, session_destroy … ─► host_end ─► session_ready, session_sent
//         │                  │                               │
//     time advances    commands run and reply          the logs' writers are woken
//
// host_begin runs no received commands: bytes may have been written into a session's buffer before
// the turn began. The backlog (see budget.h) continues in host_end.
//
// A reply is released when everything written before it is durable, in every shard: turns are
// numbered, at the end of one every session with new replies notes their size and the turn, and
// host_durable releases those of turns that are durable. What commands do with several shards is in
// shards.h.
//
// host_end waits for the disk only if there is a single client and a single log, and the disk was
// quick last (log/file.h): no other client notices. Nothing else here waits for one.
//
// One thread.
#ifndef SERVER_HOST_H
#define SERVER_HOST_H

#include "base/heap.h"
#include "base/slab.h"
#include "server/auth.h"
#include "server/backup.h"
#include "server/levels.h"
#include "server/limits.h"
#include "server/usage.h"
#include "server/workers.h"
#include "shard/group.h"
#include "wire/request.h"

struct cluster_seen;
struct fetch;
struct loops;
struct session;

struct session_slot {
    uint32_t next; // the slab's, when the slot is free
    struct session *session;
};

enum { HOST_FREE_BUFFERS = 16, HOST_UNREADABLE = 16, PART_TURNS = 512 };

// A shard as the host drives it.
struct part {
    struct host *host;
    struct shard *shard;
    struct core *core;
    uint64_t last_at; // the entry appended last
    // Turns in which it was written to that were not durable at the last check, a ring. If
    // there are too many the latest ones are one: the first of them, durable when all are.
    struct {
        uint64_t turn, at;
    } written[PART_TURNS];
    uint32_t first_written, written_count;
    struct message message; // to another shard, not delivered yet …
    bool has_message;       // … if there is one
    bool is_reading;        // another thread reads what the shard wants
};

// A node of a cluster (cluster/node.h), for INFO and CLUSTER. Borrowed from the node.
struct host_node {
    const char *cluster, *address;   // its name; where clients and other nodes reach this one
    const char *secret;              // that nodes of the cluster share; "": not known yet
    const char *promise;             // what an acknowledged job survives, in a sentence
    bool is_replicated;              // the promise includes the loss of a machine
    uint64_t owned_ms;               // how long after a reply it surely owns its shards
    const struct cluster_seen *seen; // all nodes and shards (node_seen.h)
    uint64_t takeover_ms;     // after this time without a sign of a node or an owner it is lost
    char outage[256];         // why the store does not answer; "": it does …
    uint64_t outage_since_ms; // … and since when (monotonic_ms)
    // What an operator wants, as a note for all nodes (cluster/node.c); an empty value takes it
    // back. MR_EFULL.
    int (*change)(void *arg, const char *key, const char *value);
    void *arg;
};

struct host {
    struct group *group;   // NULL: still loading
    struct part *parts;    // its shards …
    uint32_t shards;       // … and how many the store has; 0: still loading
    uint32_t first, end;   // from the first to before the end they are this host's
    uint32_t next_cleaned; // of these, the one whose log is cleaned next: how many are before it
    uint32_t loop;         // which of the server's loops it is …
    struct loops *loops;   // … and what they share: see router.h; NULL: it is the only one
    struct backup own_backup, *backup; // the copy that a client makes; of several loops the first's
    struct usage own_usage, *usage;    // what tokens have; of several loops: in all
    uint64_t token_connections;        // most of one token; 0: any number
    uint64_t backup_seen;              // its number when the loop last looked
    struct list outgoing;              // struct remote: those with messages to be sent …
    struct list parked;                // … and those that wait until their shard can be reached
    bool foreign_ids;        // the store was copied: ids do not name the shards of their jobs
    bool owns_parts;         // no other loop uses them
    uint64_t (*clock)(void); // milliseconds, for a host without shards of its own
    uint64_t clock_ms;       // when the turn began, by that
    uint64_t turn;           // how many have ended
    bool messages_delayed;   // there was no memory for a message in this turn
    const char *store;       // its URL, for INFO
    uint16_t port;           // of its clients, for INFO; 0: none
    const char *unix_path;   // the same, of their Unix-domain socket; NULL: none
    struct auth *auth;       // tokens; NULL: none is required
    struct request_limits request_limits;
    struct request_limits unauthenticated_limits; // of unauthenticated clients
    struct list sessions;
    struct workers workers;   // which stages they work for
    struct levels levels;     // how many jobs they should run at once
    struct list touched;      // sessions with replies of this turn
    struct list held;         // sessions with replies that are not durable yet
    struct list resuming;     // sessions that may continue with their input
    struct list ready;        // sessions with bytes to send, or to be closed: the loop's to empty
    struct list leaving;      // sessions without a client that still have to free what they hold
    struct list backlog;      // sessions that continue in a later turn (see budget.h) …
    struct list backlog_mark; // … and the end of those that continue in this one
    struct heap waits;        // of blocked sessions, by the end of their wait
    struct slab slots;        // struct session_slot of each session; `waits` has their numbers
    uint8_t *inbox;           // READ_SIZE bytes: the receive buffer of sessions without input
    mr_bytes *arguments;      // of the request being run
    struct grant *grants;     // of the TAKE being run
    struct buffer free_buffers[HOST_FREE_BUFFERS]; // the free list of buffers
    uint32_t free_buffer_count;
    struct {
        uint64_t id;
        struct token token;
        uint32_t shard;
        int why;                   // why it cannot be read
    } unreadable[HOST_UNREADABLE]; // jobs to be failed at the end of the turn
    uint32_t unreadable_count;
    // Reads it in another thread, which ends it (see fetch.h). Negative: that failed. NULL: the
    // loop reads from the disk itself.
    int (*fetch)(void *fetcher, struct fetch *);
    void *fetcher;
    // Called when a turn has begun, before anything is changed in it. May be NULL.
    void (*watch)(void *watcher, struct host *);
    void *watcher;
    struct buffer scratch; // what is read from the log on its way into a reply
    struct buffer wanted;  // what the command has not found in memory: struct fetch_entry
    uint64_t steps;        // of work so far (see budget.h) …
    uint64_t turn_steps;   // … when this turn began …
    uint64_t busy_steps;   // … and when it is busy
    bool skipped;          // sockets without input could not be read in this turn …
    uint32_t continued;    // … and how many turns in a row were there to read them: see budget.h
    uint64_t next_session;
    uint64_t commands, connections; // so far …
    uint64_t refusals, rejections;  // … of wrong secrets, and of connections
    uint64_t refused;               // for lack of room or memory, so far
    uint64_t max_bytes;             // of memory for jobs; 0: none
    uint64_t max_client_bytes;      // of memory for clients; 0: see host_client_limit
    uint64_t buffered;              // bytes of all sessions' buffers
    uint64_t started_ms;
    const struct host_node *node; // NULL: it is none
    bool in_turn, stopping;
    bool is_leaving; // the shard goes to another node: no more sessions are made …
    bool is_paused;  // … and no commands run
    bool stopped;    // the log has failed: only commands that change nothing run
    char why_stopped[256];
    uint64_t damaged; // damaged entries that cleaning has found …
    char damage[512]; // … and where the last one is
};

// Borrows `store` and, once loaded, the group. MR_ENOMEM.
int host_init(struct host *, const char *store);

// Options for opening the group: the owners of its shards, and the callbacks. Any thread may open
// it, before host_load.
void host_group_options(struct host *, struct group_options *out);

// Starts to serve the group, which was opened with these options. With several loops it is called
// for each host, in its thread. MR_ENOMEM.
int host_load(struct host *, struct group *);

// Starts to serve a store of so many shards, of which the host has none: they are reached through
// the router.
void host_load_none(struct host *, uint32_t shards);

// Refuses all changes from now on: the log of another loop's shard has failed, for this reason.
void host_stop_changes(struct host *, const char *why);

// Whether its logs are known to have owned their store within the last `max_ms`; `now_ms` is
// monotonic_ms() (base/clock.h).
bool host_owns_store(const struct host *, uint64_t now_ms, uint64_t max_ms);

// Replaces the tokens; the host owns them. A session whose token is still in the list stays open;
// other authenticated sessions are closed. Within a turn.
void host_set_auth(struct host *, struct auth *);

// Ends all sessions; then the caller may close the group. The host serves no shards any more, and
// its turns do nothing.
void host_detach(struct host *);
void host_finish(struct host *); // the same, if it was not done, and frees

void host_begin(struct host *);
void host_end(struct host *);

// From now on another thread reads what is not in memory (host.fetch); after host_load.
void host_set_fetch(struct host *, int (*fetch)(void *fetcher, struct fetch *), void *fetcher);

// Releases replies that have become durable. The loop calls it after host_end and when a log has
// synced. If a log has failed or has room again, or emits can be sent to another shard, a turn may
// have begun.
void host_durable(struct host *);

// Waits until everything is durable, or a log has failed. Between turns.
void host_wait(struct host *);

// The state of all logs together: sizes are added; it is full or stopped if one of them is; the
// outage is the longest.
void host_look(const struct host *, struct log_state *out);

// The last turn of which everything is durable.
uint64_t host_durable_turn(struct host *);

// Whether a session waits for the next turn.
static inline bool host_has_backlog(const struct host *h) {
    return !list_empty(&h->backlog) || !list_empty(&h->leaving);
}

// Milliseconds until a turn is due without new input; -1: none.
int64_t host_next_ms(struct host *);

// Starts no more jobs: waiting takes are answered with an empty list.
void host_stop(struct host *);

// Returns running jobs to their channels without counting an attempt. Before host_close.
void host_give_back(struct host *);

// Runs no more commands: a session ends when its replies were sent.
void host_close(struct host *);

// The number of leases of connected workers; leases without a connection are not counted.
uint64_t host_leases(const struct host *);

uint64_t host_now_ms(const struct host *);

// Bytes of memory for jobs: the index, and bodies that are not on disk.
uint64_t host_memory(const struct host *);

// Memory for clients is apart from that for jobs: requests as far as they have arrived, what is
// queued, and replies until they were sent. Its limit is max-client-bytes, else a quarter of
// max-bytes (at least LIMIT_CLIENT_LEAST, with several loops twice that), else LIMIT_CLIENT_BYTES.
uint64_t host_client_limit(const struct host *);

// Whether clients take up more than that; of several loops, those of all together, and those of
// this loop more than its share.
bool host_clients_exceed(const struct host *);

// Which clients are to be closed if so, in this order and until there is room: of the token whose
// clients together hold the most, those that hold the most bytes of requests, unread replies and
// calls with LATER.
// Returns their number; one search finds many, because it passes all sessions. They may be remote
// sessions (router.h). Between turns.
enum { LARGEST_CLIENTS = 64 };
size_t host_largest_clients(struct host *, struct session *out[LARGEST_CLIENTS]);

// Makes room for the wait of one more session. MR_ENOMEM.
int host_reserve_wait(struct host *);
// Schedules the end of the session's wait.
void host_plan_wait(struct host *, struct session *);

// The body of a leased job cannot be read: see core_unreadable.
void host_note_unreadable(struct host *, const struct grant *, int why);

// An empty buffer for replies, from the free list if possible; and returns one to the free list.
void host_buffer_take(struct host *, struct buffer *out);
void host_buffer_return(struct host *, struct buffer *);

#endif
