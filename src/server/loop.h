// Loop: types shared by loop.c (turns), server.c (start), stop.c and connection.c (sockets). A
// server has one loop or several, each with a thread, a host, some of the shards and some of the
// connections. The first one also listens, handles signals, loads the store and serves HTTP; it
// passes connections to the loops in rotation. router.h describes how commands get from one loop to
// another.
#ifndef SERVER_LOOP_H
#define SERVER_LOOP_H

#include "server/credentials.h"
#include "server/front.h"
#include "server/health.h"
#include "server/listen.h"
#include "server/node_link.h"
#include "server/polling.h"
#include "server/quota.h"
#include "server/reload.h"
#include "server/router.h"
#include "server/server.h"
#include "server/session.h"
#include "server/timeouts.h"
#include "server/unauthenticated.h"

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

struct loop {
    struct server *server;
    uint32_t index;
    pthread_t thread;
    bool threaded; // `thread` runs
    struct host host;
    struct timeouts unread;   // connections that do not read their replies
    struct timeouts inactive; // idle connections, if max-idle is set
    char *cipher;             // READ_SIZE bytes, for encrypted input
    uv_loop_t uv;
    bool has_uv;
    uv_tcp_t refused; // a connection that is closed at once
    uv_check_t check;
    uv_timer_t timer; // for the host
    uv_idle_t idle;   // runs while there is work for a turn
    uv_timer_t unauthenticated_timer, unread_timer, inactive_timer;
    uv_poll_t wake;        // of wake_fd
    uv_prepare_t prepare;  // before the loop sleeps
    int wake_fd;           // an eventfd, or -1
    _Atomic unsigned news; // from other threads: see "Waking" in loop.c
    struct polling polling;
    uint64_t sleeps_ns; // when it began to; 0: it does not
    struct health health;
    struct list resting;    // connections with input that are not read until later turns
    struct list skipped;    // those without, which the next turn reads first
    struct list ready_mark; // node of host.ready while it is emptied: the end of this round
    size_t sent;            // bytes written to sockets since they were polled
    uint32_t accepted;      // connections since then
    uint64_t timer_at_ms;   // of the loop's clock; UINT64_MAX: not armed
    uint32_t fetching;      // sessions that wait for bodies from disk
    bool refusing;
    bool stopping, closing;
    bool lost;                        // the first loop knows that the store is lost
    bool reported, barrier, finished; // see stop.h
    _Atomic uint64_t leases;          // while it stops: at the end of its last turn
    atomic_bool end;                  // its handles are to be closed

    // Of a shard of a node (places.h):
    struct group *group;
    uv_timer_t leave_timer; // ends the wait for running jobs
    enum { SERVES, LEAVES, GIVES_BACK, HAS_LEFT } leaving;
    bool was_lost;
    bool is_loss_sent; // used by the first loop
    char why_lost[256];
    atomic_bool gone; // its thread ends
};

struct server {
    struct server_options options;
    struct loops loops;
    struct loop *loop[LOOPS_MOST];
    struct group *group;

    pthread_mutex_t lock; // guards those up to the next empty line, also `member` of connections
    struct credentials credentials;
    struct quota quota;
    struct unauthenticated_list unauthenticated;
    uint64_t refused_notice_ms;  // next time for a notice about refused connections …
    uint64_t refused_unreported; // … and their number since the last notice
    uint64_t evicted_notice_ms;  // the same for evicted unauthenticated connections
    uint64_t evicted_unreported;

    _Atomic uint32_t connections;
    uint32_t most_connections;
    atomic_bool accept_waits; // a listener waits for a connection to close

    // The first loop's:
    struct listen_socket listen[LISTEN_KINDS];
    void *fronts;       // shared state of fronts; NULL: there are none
    uint32_t next_loop; // the loop that gets the next connection
    uv_timer_t drain_timer;
    uv_signal_t interrupt, terminate;
    struct reload reload;
    uv_work_t loading;
    int load_err;
    char load_text[512];
    bool waiting_reported;   // a notice about waiting connections was written
    atomic_bool cancel_load; // for the loading thread
    bool loading_now, stopping, closing;
    bool drain_over; // jobs that still run are not waited for
    bool lost;       // another node may own the store: nothing is sent or written any more
    struct other_nodes *links; // of a node of a cluster
    uv_timer_t tend_timer;
    struct tls_context *node_context; // … for its connections to others; NULL: no TLS
    uint32_t without_clients, done;   // numbers of loops, while the server stops
    int exit;
};

struct connection {
    uv_tcp_t tcp; // first, so that a handle can be cast
    struct loop *loop;
    struct session *session;
    struct tls *tls; // NULL: not encrypted
    struct unauthenticated unauthenticated;
    bool is_unauthenticated; // it has still to authenticate
    struct quota_member member;
    struct timeout unread, inactive;
    uv_write_t write;
    struct buffer pending; // bytes that the socket has not accepted yet …
    size_t pending_left;   // … and their number at the last check
    bool reading, writing, closing;
    struct list of_resting; // node of loop.resting or loop.skipped
    bool local;             // the client is on this machine …
    bool by_file;           // … and connected by a Unix-domain socket: never encrypted
    char address[64];
};

// ---- connection.c -----------------------------------------------------------------------------

void on_connection(uv_stream_t *listener, int status);

// Sends replies as far as the socket accepts them, closes the connection if it is over, and
// continues to read.
void connection_write(struct connection *);
void connections_read_on(struct loop *);   // lets some that rest continue
void connections_accept_on(struct loop *); // after the sockets were polled
void connections_make_room(
    struct loop *); // closes some if clients use too much memory; more in the next turn
void connection_close(struct connection *); // begins a turn: its session ends in it

// Connects to another node; the link is ready when that has accepted it. MR_ENET, MR_ENOMEM.
int connection_dial(struct loop *, const char *host, uint16_t port, const struct node_link_hello *,
                    struct node_link **out);

// ---- loop.c -----------------------------------------------------------------------------------

static inline struct loop *loop_of(struct host *h) {
    return list_entry(h, struct loop, host);
}

// Those that start and stop with the server; the loops of a node's shards come and go (places.h).
static inline uint32_t loop_count(const struct server *server) {
    return server->loops.is_cluster ? 1 : server->loops.count;
}

void turn_end(struct loop *);  // runs what is to be done in this turn; the rest follows in the next
void turn_plan(struct loop *); // has the turn that has begun, or that is needed, end soon
void loop_flush(struct loop *); // sends what is durable
// Whether another node may own the store by now: then nothing may be sent any more.
bool has_lost_store(const struct loop *);

int loop_create(struct server *, uint32_t index); // on failure, too, server->loop[index] may be set
void loop_destroy(struct loop *);                 // after its thread; takes NULL
void loop_watch(struct loop *);                   // its turns are seen by the fronts
void loop_set_fetch(struct loop *);               // reads what is not in memory in other threads
int loop_start_thread(struct loop *);
void loop_end_thread(struct loop *);    // from any thread
void loop_end(struct loop *);           // closes its handles, so that it ends; in its thread
void loop_close_handles(struct loop *); // the same, also before it has a thread
void loop_log_is_durable(void *part);   // from the thread of a log

// ---- server.c ---------------------------------------------------------------------------------

void server_group_options(struct server *, struct loop *, struct group_options *out);

#endif
