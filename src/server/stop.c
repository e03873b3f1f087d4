// See stop.h.
#include "server/stop.h"

#include "base/errors.h"
#include "server/loop.h"
#include "server/notice.h"
#include "server/places.h"
#include "server/systemd.h"

#include <inttypes.h>
#include <stdio.h>

enum {
    SENDING_MS = 2000,     // for unread replies when the server stops
    LAST_WRITES_MS = 5000, // for the store, when a node stops and its jobs have ended
};

// Runs a function in every loop; in this one, the first, at once. A loop to which no message can be
// sent for lack of memory gets that of the next step.
static void run_in_all(struct server *server, void (*run)(struct host *, void *)) {
    for (uint32_t i = 1; i < loop_count(server); i++)
        (void)loops_run(&server->loops, i, run, server);
    run(&server->loop[0]->host, server);
}

// The store is closed before the handles, because the log calls back until then.
static void close_store(struct server *server) {
    const struct server_cluster *cluster = server->options.cluster;
    if (cluster)
        cluster->closing(cluster->arg);
    group_close(server->group);
    server->group = NULL;
    for (uint32_t i = 1; i < loop_count(server); i++)
        loop_end_thread(server->loop[i]);
    loop_end(server->loop[0]);
}

static void one_is_done(struct host *, void *server);

static void loop_done(struct loop *v) {
    struct server *server = v->server;
    if (!v->barrier || v->finished || v->fetching || !list_empty(&v->host.sessions))
        return;
    v->finished = true;
    host_detach(&v->host);
    if (v->index)
        (void)loops_run(&server->loops, 0, one_is_done, server);
    else
        one_is_done(&v->host, server);
}

// In the first loop.
static void one_is_done(struct host *h, void *arg) {
    struct server *server = arg;
    (void)h;
    if (++server->done == loop_count(server))
        close_store(server);
}

// Runs after all messages of connections to this loop, so their remote sessions have ended, too.
static void barrier(struct host *h, void *server) {
    (void)server;
    loop_of(h)->barrier = true;
    loop_done(loop_of(h));
}

// In the first loop: one more has no connections.
static void one_has_no_clients(struct host *h, void *arg) {
    struct server *server = arg;
    (void)h;
    if (++server->without_clients == loop_count(server))
        run_in_all(server, barrier);
}

static bool has_clients(const struct host *h) {
    bool any = false;
    for (const struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        any = any || !list_entry(l, struct session, of_host)->remote;
    return any;
}

void stop_go_on(struct loop *v) {
    struct server *server = v->server;
    if (v->barrier) {
        loop_done(v);
        return;
    }
    if (v->reported || has_clients(&v->host))
        return;
    v->reported = true;
    if (v->index)
        (void)loops_run(&server->loops, 0, one_has_no_clients, server);
    else
        one_has_no_clients(&v->host, server);
}

// Closes connections that have not read everything.
static void close_now(struct host *h, void *server) {
    struct loop *v = loop_of(h);
    (void)server;
    for (struct list *l = h->sessions.next, *next; l != &h->sessions; l = next) {
        struct session *s = list_entry(l, struct session, of_host);
        next = l->next;
        if (!s->remote)
            connection_close(s->owner);
    }
    stop_go_on(v);
}

static void on_sending_over(uv_timer_t *timer) {
    run_in_all(timer->data, close_now);
}

// Makes all replies durable and sends them; each connection is closed when its replies were sent.
static void close_loop(struct host *h, void *arg) {
    struct loop *v = loop_of(h);
    const struct server *server = arg;
    if (v->closing)
        return;
    v->closing = true;
    for (struct list *l = h->sessions.next; server->loops.is_cluster && l != &h->sessions;
         l = l->next)
        router_give_back(list_entry(l, struct session, of_host));
    if (server->group && !server->lost) {
        host_give_back(h);
        host_end(h);
        host_wait(h);
    }
    host_close(h);
    loop_flush(v);
    for (struct list *l = h->sessions.next; server->loops.is_cluster && l != &h->sessions;
         l = l->next)
        node_link_end_idle(list_entry(l, struct session, of_host));
    stop_go_on(v);
}

void stop_close_all(struct server *server) {
    if (server->closing || server->loading_now)
        return;
    server->closing = true;
    uv_timer_start(&server->drain_timer, on_sending_over, SENDING_MS, 0);
    run_in_all(server, close_loop);
}

static uint64_t leases_of_all(const struct server *server) {
    uint64_t leases = 0;
    for (uint32_t i = 0; i < loop_count(server); i++)
        leases += atomic_load(&server->loop[i]->leases);
    return leases;
}

static void stop_if_drained(struct host *h, void *arg) {
    struct server *server = arg;
    (void)h;
    bool ended = leases_of_all(server) == 0 || server->drain_over;
    if (!server->closing && ended && places_have_left(server))
        stop_close_all(server);
}

// Also those that connections of a node have in shards of others.
static uint64_t leases_of_loop(const struct loop *v) {
    uint64_t leases = host_leases(&v->host);
    for (const struct list *l = v->host.sessions.next;
         v->server->loops.is_cluster && l != &v->host.sessions; l = l->next)
        leases += router_work(list_entry(l, struct session, of_host)).leases;
    return leases;
}

void stop_note_leases(struct loop *v) {
    struct server *server = v->server;
    uint64_t leases = leases_of_loop(v);
    bool changed = atomic_exchange(&v->leases, leases) != leases;
    if (!v->index)
        stop_if_drained(&v->host, server);
    else if (changed && !leases)
        (void)loops_run(&server->loops, 0, stop_if_drained,
                        server); // if it fails, the drain timeout ends it
}

static void on_last_writes_over(uv_timer_t *timer) {
    places_give_up(timer->data);
}

// A stop does not wait for a store that does not answer.
static void bound_last_writes(struct server *server) {
    uv_timer_start(&server->drain_timer, on_last_writes_over, LAST_WRITES_MS, 0);
}

static void on_drain_over(uv_timer_t *timer) {
    struct server *server = timer->data;
    server->drain_over = true;
    if (server->loops.is_cluster) { // each of its shards waits by itself
        bound_last_writes(server);
        stop_if_drained(&server->loop[0]->host, server);
        return;
    }
    notice(NOTICE_WARN, "jobs that are still running go back to their channels: %" PRIu64,
           leases_of_all(server));
    stop_close_all(server);
}

static void stop_listening(struct server *server) {
    for (int i = 0; i < LISTEN_KINDS; i++)
        listen_close(&server->listen[i]);
}

// Starts no more jobs.
static void begin_stop(struct host *h, void *server) {
    struct loop *v = loop_of(h);
    (void)server;
    v->stopping = true;
    host_stop(h);
    for (struct list *l = h->sessions.next; v->server->loops.is_cluster && l != &h->sessions;
         l = l->next)
        (void)router_unblock(list_entry(l, struct session, of_host));
}

static void stop_at_once(struct server *server) {
    notice(NOTICE_WARN, "stopping at once");
    server->stopping = true;
    atomic_store(&server->cancel_load, true);
    places_leave(server, true);
    if (!places_have_left(server)) {
        bound_last_writes(server);
        return; // the rest follows when they have
    }
    stop_close_all(server);
    if (server->closing)
        run_in_all(server, close_now);
}

static void on_store_lost(uv_timer_t *timer) {
    struct server *server = timer->data;
    notice(NOTICE_ERROR, "%s: closing all connections", server->load_text);
    server->exit = MR_ESTOPPED;
    server->stopping = true;
    stop_close_all(server);
    run_in_all(server, close_now);
}

// In the first loop. Connections are closed after this turn.
static void note_lost_store(struct host *h, void *arg) {
    struct server *server = arg;
    if (server->lost || server->closing)
        return;
    server->lost = true;
    host_stop_changes(h, "the store was not reached for so long that another node may own it");
    snprintf(server->load_text, sizeof server->load_text, "%s", h->why_stopped);
    stop_listening(server);
    uv_timer_start(&server->drain_timer, on_store_lost, 0, 0);
}

void stop_without_store(struct loop *v) {
    if (v->server->loops.is_cluster)
        place_lost(v);
    else if (v->index == 0)
        note_lost_store(&v->host, v->server);
    else if (!v->lost)
        v->lost = loops_run(&v->server->loops, 0, note_lost_store, v->server) == 0;
}

static uint64_t count_leases(const struct server *server) {
    uint64_t leases = host_leases(&server->loop[0]->host);
    for (uint32_t i = 1; i < loop_count(server); i++)
        leases += atomic_load(&server->loop[i]->leases); // as last reported
    return leases;
}

static void note_drain(const char *signal, uint64_t running) {
    notice(NOTICE_INFO, "%s: accepting no more connections; waiting for %" PRIu64 " running job%s",
           signal, running, running == 1 ? "" : "s");
}

void stop_on_signal(uv_signal_t *signal, int number) {
    struct server *server = signal->data;
    if (server->stopping || server->loading_now) {
        stop_at_once(server);
        return;
    }
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (server->loops.is_cluster)
        notice(NOTICE_INFO, "%s: accepting no more connections; handing over shards", name);
    else
        note_drain(name, count_leases(server));
    stop_drain(server);
}

void server_fail_node(struct server *server, int err) {
    server->exit = err;
    snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
    if (!server->stopping)
        stop_drain(server);
}

void stop_drain(struct server *server) {
    struct loop *v = server->loop[0];
    server->stopping = true;
    if (server->options.on_stop)
        server->options.on_stop(server->options.arg);
    systemd_notify("STOPPING=1\nSTATUS=Letting running jobs end");
    stop_listening(server);
    uv_timer_start(&server->drain_timer, on_drain_over, (uint64_t)server->options.drain_ms, 0);
    places_leave(server, false);
    for (uint32_t i = 1; i < loop_count(server); i++)
        atomic_store(&server->loop[i]->leases, UINT64_MAX / LOOPS_MOST); // until it has reported
    host_begin(&v->host);
    run_in_all(server, begin_stop);
    turn_end(v);
}
