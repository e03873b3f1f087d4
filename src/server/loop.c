// The event loop: sockets, signals and time. The logic is in hosts and sessions.
//
//     poll ─► read callbacks: bytes into sessions ─► check: the turn ends, replies are sent
//
// connection.c has the code of a single connection.
#include "server/loop.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/fetch.h"
#include "server/notice.h"
#include "server/places.h"
#include "server/systemd.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

enum {
    SENDING_MS = 2000,     // for unread replies when the server stops
    LAST_WRITES_MS = 5000, // for the store, when a node stops and its jobs have ended
    OWNED_CHECK_MS = 1000, // how often a node checks that it still owns the store
};

// ---- Turns ------------------------------------------------------------------------------------

bool has_lost_store(const struct loop *v) {
    uint64_t max_ms = v->server->options.max_unowned_ms;
    return max_ms && (v->host.stopped || !host_owns_store(&v->host, monotonic_ms(), max_ms));
}

static void lose_store(struct loop *);

// Each session that is ready has its turn once; one that is ready again follows when the sockets
// were polled.
static void flush(struct loop *v) {
    struct host *h = &v->host;
    host_durable(h);
    if (has_lost_store(v)) {
        lose_store(v);
        return;
    }
    if (h->loops && h->loops->is_cluster && !v->index)
        places_check(v->server); // before anything is sent
    list_append(&h->ready, &v->ready_mark);
    while (h->ready.next != &v->ready_mark) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        if (s->remote)
            router_send_replies(s);
        else
            connection_write(s->owner);
    }
    list_remove(&v->ready_mark);
}

static void on_timer(uv_timer_t *timer);

// The turn ends when the sockets were polled, which does not wait while the handle is idle.
static void on_idle(uv_idle_t *idle) {
    struct loop *v = idle->data;
    host_begin(&v->host);
}

// While sessions are in the backlog, or more is due than one turn does, there is a turn in every
// iteration of the loop, and sockets are polled in between. A timer would not do: libuv runs one
// that is due at once again and again before it polls the sockets.
static void plan_idle(struct loop *v, bool has_work) {
    if (!has_work)
        uv_idle_stop(&v->idle);
    else if (!uv_is_closing((uv_handle_t *)&v->idle))
        uv_idle_start(&v->idle, on_idle);
}

// Sets the timer only if something is due before it would fire.
static void loop_plan(struct loop *v) {
    int64_t next_ms = host_next_ms(&v->host);
    if (v->server->options.max_unowned_ms)
        next_ms = wait_shorter(next_ms, OWNED_CHECK_MS);
    plan_idle(v, next_ms == 0);
    if (next_ms == 0)
        return;
    uint64_t at = next_ms < 0 ? UINT64_MAX : uv_now(&v->uv) + (uint64_t)next_ms;
    if (at >= v->timer_at_ms)
        return;
    v->timer_at_ms = at;
    uv_timer_start(&v->timer, on_timer, (uint64_t)next_ms, 0);
}

static void note_leases(struct loop *);
static void loop_end(struct loop *);

static bool accepts_later(const struct loop *v) {
    const struct listen_socket *listen = v->server->listen;
    return v->accepted && (listen[LISTEN_TCP].deferred || listen[LISTEN_UNIX].deferred ||
                           listen[LISTEN_FRONT].deferred);
}

static bool has_turn(const struct loop *v) {
    const struct host *h = &v->host;
    return !list_empty(&v->resting) || !list_empty(&v->skipped) || accepts_later(v) || h->in_turn ||
           !list_empty(&h->touched) || !list_empty(&h->resuming) || !list_empty(&h->outgoing) ||
           !list_empty(&h->ready);
}

void turn_plan(struct loop *v) {
    if (has_turn(v))
        plan_idle(v, true);
    else
        loop_plan(v);
}

void turn_end(struct loop *v) {
    struct host *h = &v->host;
    if (has_turn(v)) {
        host_end(h);
        flush(v); // sessions may continue after their replies were sent
        connections_make_room(v);
        connections_read_on(v);
        if (h->loops)
            router_note_client_bytes(h);
    }
    turn_plan(v);
    if (!v->server->lost && !v->was_lost)
        health_look(&v->health, h);
    if (v->stopping)
        note_leases(v);
    if (v->leaving)
        place_leave_on(v);
}

// Messages are handled only here, where no caller uses a connection: they may close any of them.
static void receive_messages(struct loop *v) {
    if (v->leaving == HAS_LEFT)
        return; // the first loop handles them
    host_begin(&v->host);
    if (v->host.loops)
        (void)router_receive(&v->host);
    turn_end(v);
}

static void on_timer(uv_timer_t *timer) {
    struct loop *v = timer->data;
    v->timer_at_ms = UINT64_MAX;
    receive_messages(v); // there may have been no memory for some
}

// ---- Waking -----------------------------------------------------------------------------------
//
// Other threads leave a bit in `news`, and wake the loop by its eventfd only if it sleeps: a loop
// that runs looks before it sleeps. uv_async_send would also wake a loop that runs, and a woken one
// would spin until the sender is back from its write, for long if it has the sender's core.

enum { NEWS_MESSAGES = 1, NEWS_DURABLE = 2, LOOP_SLEEPS = 4 };

static void loop_wake(struct loop *v, unsigned news) {
    uint64_t one = 1;
    if (atomic_fetch_or(&v->news, news) != LOOP_SLEEPS)
        return; // it runs, or was woken
    ssize_t wrote = write(v->wake_fd, &one, sizeof one);
    assert(wrote == sizeof one || errno == EAGAIN); // EAGAIN: it is readable already
}

static void on_wake(uv_poll_t *poll, int status, int events) {
    const struct loop *v = poll->data;
    uint64_t count;
    (void)status, (void)events;
    ssize_t got = read(v->wake_fd, &count, sizeof count);
    assert(got == sizeof count || errno == EAGAIN);
}

// With news the sockets are polled without waiting.
static void on_prepare(uv_prepare_t *prepare) {
    struct loop *v = prepare->data;
    if (atomic_fetch_or(&v->news, LOOP_SLEEPS))
        plan_idle(v, true);
}

// Called by the thread of a log; wakes the loop of its shard.
static void loop_log_is_durable(void *part) {
    struct host *h = ((struct part *)part)->host;
    loop_wake(list_entry(h, struct loop, host), NEWS_DURABLE);
}

static void read_messages(struct loop *v) {
    if (atomic_load(&v->end)) {
        loop_end(v);
        return;
    }
    receive_messages(v);
    if (!v->index)
        places_collect(v->server);
    if (v->closing)
        loop_finish(v);
}

static void loop_read_news(struct loop *v) {
    unsigned news = atomic_exchange(&v->news, 0);
    if (news & NEWS_DURABLE)
        flush(v);
    if (news & NEWS_MESSAGES)
        read_messages(v);
}

static void on_check(uv_check_t *check) {
    struct loop *v = check->data;
    loop_read_news(v);
    if (uv_is_closing((uv_handle_t *)check))
        return;
    v->sent = 0;
    connections_accept_on(v);
    turn_end(v);
}

static void wake_loop(void *loop) {
    loop_wake(loop, NEWS_MESSAGES);
}

// ---- Reading bodies from disk -----------------------------------------------------------------

static void read_fetch(uv_work_t *work) {
    fetch_read(work->data);
}

static void on_fetched(uv_work_t *work, int status) {
    struct fetch *f = work->data;
    struct loop *v = f->owner;
    (void)status; // it is never cancelled
    mem_free(work);
    v->fetching--;
    host_begin(&v->host);
    fetch_end(f);
    turn_end(v);
    if (v->closing)
        loop_finish(v);
    if (v->leaving)
        place_leave_on(v);
}

static int fetch(void *server, struct fetch *f) {
    struct loop *v = server;
    uv_work_t *work = mem_alloc(sizeof *work);
    if (!work)
        return error_set(MR_ENOMEM, "no memory to read in another thread");
    work->data = f;
    f->owner = v;
    int err = uv_queue_work(&v->uv, work, read_fetch, on_fetched);
    assert(err == 0); // it only fails without a callback
    v->fetching++;
    return 0;
}

// ---- Stopping ---------------------------------------------------------------------------------
//
// The first loop decides; it sends messages to the others, which report when they are ready:
//
//     signal ─► all: start nothing ─► no leases, or time is up ─► all: give back, send, close
//            ─► no connections ─► all: a barrier, no sessions ─► the store is closed
//            ─► all: close the handles, end the thread

static struct loop *loop_of(struct host *h) {
    return list_entry(h, struct loop, host);
}

// A node closes its other loops first.
static uint32_t loop_count(const struct server *server) {
    return server->loops.is_cluster ? 1 : server->loops.count;
}

// Runs a function in every loop; in this one, the first, at once. A loop to which no message can be
// sent for lack of memory gets that of the next step.
static void run_in_all(struct server *server, void (*run)(struct host *, void *)) {
    for (uint32_t i = 1; i < loop_count(server); i++)
        (void)loops_run(&server->loops, i, run, server);
    run(&server->loop[0]->host, server);
}

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void loop_end(struct loop *v) {
    uv_walk(&v->uv, close_handle, NULL);
}

void loop_close_handles(struct loop *v) {
    loop_end(v);
    if (!v->threaded)
        uv_run(&v->uv, UV_RUN_DEFAULT);
}

// The store is closed before the handles, because the log calls back until then.
static void close_store(struct server *server) {
    const struct server_cluster *cluster = server->options.cluster;
    if (cluster)
        cluster->closing(cluster->arg);
    group_close(server->group);
    server->group = NULL;
    for (uint32_t i = 1; i < loop_count(server); i++) {
        atomic_store(&server->loop[i]->end, true);
        loop_wake(server->loop[i], NEWS_MESSAGES);
    }
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

void loop_finish(struct loop *v) {
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
    loop_finish(v);
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
    flush(v);
    for (struct list *l = h->sessions.next; server->loops.is_cluster && l != &h->sessions;
         l = l->next)
        node_link_end_idle(list_entry(l, struct session, of_host));
    loop_finish(v);
}

static void close_all(struct server *server) {
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
        close_all(server);
}

// Also those that connections of a node have in shards of others.
static uint64_t leases_of_loop(const struct loop *v) {
    uint64_t leases = host_leases(&v->host);
    for (const struct list *l = v->host.sessions.next;
         v->server->loops.is_cluster && l != &v->host.sessions; l = l->next)
        leases += router_work(list_entry(l, struct session, of_host)).leases;
    return leases;
}

static void note_leases(struct loop *v) {
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
    notice(NOTICE_WARN, "%" PRIu64 " jobs are still running: they go back to their channels",
           leases_of_all(server));
    close_all(server);
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
    close_all(server);
    if (server->closing)
        run_in_all(server, close_now);
}

static void on_store_lost(uv_timer_t *timer) {
    struct server *server = timer->data;
    notice(NOTICE_ERROR, "%s: closing all connections", server->load_text);
    server->exit = MR_ESTOPPED;
    server->stopping = true;
    close_all(server);
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

static void lose_store(struct loop *v) {
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

static void loop_on_signal(uv_signal_t *signal, int number) {
    struct server *server = signal->data;
    if (server->stopping || server->loading_now) {
        stop_at_once(server);
        return;
    }
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (server->loops.is_cluster)
        notice(NOTICE_INFO, "%s: accepting no more connections; handing over shards", name);
    else
        notice(NOTICE_INFO,
               "%s: accepting no more connections; waiting for %" PRIu64 " running jobs", name,
               count_leases(server));
    server_drain(server);
}

void server_fail_node(struct server *server, int err) {
    server->exit = err;
    snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
    if (!server->stopping)
        server_drain(server);
}

void server_drain(struct server *server) {
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

// ---- Reloading --------------------------------------------------------------------------------

static void set_tokens(struct host *h, void *auth) {
    host_set_auth(h, auth);
}

static void drop_tokens(void *auth) {
    auth_destroy(auth);
}

// Other loops get what the first one has read, not what the file says by then. The loop of a shard
// that is being opened may end before it runs.
static int pass_on_tokens(struct server *server, uint32_t loop) {
    struct auth *copy;
    int err = auth_copy(server->loop[0]->host.auth, &copy);
    if (err < 0)
        return err;
    err = loops_give(&server->loops, loop, set_tokens, drop_tokens, copy);
    if (err < 0)
        auth_destroy(copy);
    return err;
}

// Reads files that may change at run time; an invalid one is reported and changes nothing.
static void server_reload(void *arg) {
    struct server *server = arg;
    struct loop *v = server->loop[0];
    host_begin(&v->host);
    pthread_mutex_lock(&server->lock);
    bool tokens = credentials_reload(&server->credentials, &v->host);
    pthread_mutex_unlock(&server->lock);
    for (uint32_t i = 1; tokens && i < server->loops.count; i++)
        if (server->loop[i] && pass_on_tokens(server, i) < 0)
            notice(NOTICE_ERROR, "a loop keeps its old tokens: %s", error_text());
    if (server->options.on_reload)
        server->options.on_reload(server->options.arg);
    turn_end(v);
}

// ---- Loading the store ------------------------------------------------------------------------

void server_group_options(struct server *server, struct loop *v, struct group_options *out) {
    const struct server_options *o = &server->options;
    *out =
        (struct group_options){ .store = o->store_url,
                                .shards = o->shards,
                                .log = { .sync = o->sync,
                                         .interval_ms = o->interval_ms,
                                         .stream = o->stream,
                                         .max_unwritten = LOG_UNWRITTEN,
                                         .on_durable = loop_log_is_durable },
                                .limits = { .max_body = o->max_body, .max_memory = o->max_bytes },
                                .cancel = &server->cancel_load };
    host_group_options(&v->host, out);
}

static void load_store(uv_work_t *work) {
    struct server *server = work->data;
    struct group_options group;
    server_group_options(server, server->loop[0], &group);
    server->load_err = group_open(&group, &server->group);
    if (server->load_err < 0)
        snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
}

void loop_set_fetch(struct loop *v) {
    host_set_fetch(&v->host, fetch, v);
}

static int loop_load(struct loop *v) {
    int err = host_load(&v->host, v->server->group);
    loop_set_fetch(v);
    return err;
}

// A loop that fails here, for lack of memory, answers LOADING until the server stops.
static void other_loop_load(struct host *h, void *server) {
    (void)server;
    if (loop_load(loop_of(h)) < 0)
        notice(NOTICE_ERROR, "a loop cannot serve the store: %s", error_text());
}

static void fail_loading(struct server *server) {
    bool by_signal = server->load_err == MR_ECANCELLED;
    server->exit = by_signal ? 0 : server->load_err;
    close_all(server);
}

static void on_loaded(uv_work_t *work, int status) {
    struct server *server = work->data;
    struct loop *v = server->loop[0];
    (void)status;
    server->loading_now = false;
    if (server->load_err == 0 && (server->load_err = loop_load(v)) < 0)
        snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
    if (server->load_err < 0) {
        fail_loading(server);
        return;
    }
    for (uint32_t i = 1; i < server->loops.count; i++)
        (void)loops_run(&server->loops, i, other_loop_load,
                        server); // if it fails, that loop answers LOADING
    const struct server_options *o = &server->options;
    if (o->on_ready)
        o->on_ready(o->arg, o->host, o->port, true);
    systemd_notify("READY=1\nSTATUS=Ready");
    if (server->stopping) {
        close_all(server);
        return;
    }
    credentials_note_exceeded(&v->host);
    host_begin(&v->host); // emits may have to be sent to other shards
    turn_end(v);
}

// ---- Starting ---------------------------------------------------------------------------------

static void end_turn(void *loop) {
    turn_end(loop);
}

static void loop_watch(struct loop *v) {
    const struct server *server = v->server;
    if (!server->fronts)
        return;
    v->host.watch = server->options.front->turn;
    v->host.watcher = server->fronts;
}

static int start_fronts(struct server *server) {
    struct server_options *o = &server->options;
    struct loop *v = server->loop[0];
    if (!o->front)
        return 0;
    struct front_place place = { .loop = &v->uv,
                                 .host = &v->host,
                                 .address = o->front_host,
                                 .names = o->front_names,
                                 .turn_end = end_turn,
                                 .server = v };
    int err = o->front->start(&place, &server->fronts);
    if (err == 0)
        err = listen_on(&server->listen[LISTEN_FRONT], o->front_host, &o->front_port, o->front_fd);
    if (err == MR_ENET)
        err = error_set(err, "%s; --http sets another address", error_text());
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++)
        loop_watch(server->loop[i]);
    return o->front_asked ? err : 0;
}

static void write_listening(const struct server *server) {
    const struct server_options *o = &server->options;
    if (o->on_ready)
        o->on_ready(o->arg, o->host, o->port, false);
    if (o->front && !server->listen[LISTEN_FRONT].open)
        notice(NOTICE_WARN,
               "%s:%u is in use: running without the page and the API; --http sets another address",
               o->front_host, o->front_port);
    else if (o->front && o->on_front)
        o->on_front(o->arg, o->front_host, o->front_port);
    systemd_notify("STATUS=Reading the store %s", o->store);
}

// Handles that were not initialised because of an error need not be closed.
static int init_loop_handles(struct loop *v) {
    int err;
    if ((err = uv_check_init(&v->uv, &v->check)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->timer)) < 0 ||
        (err = uv_idle_init(&v->uv, &v->idle)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->unauthenticated_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->unread_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->inactive_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->leave_timer)) < 0 ||
        (err = uv_prepare_init(&v->uv, &v->prepare)) < 0 ||
        (err = uv_poll_init(&v->uv, &v->wake, v->wake_fd)) < 0 ||
        (err = uv_poll_start(&v->wake, UV_READABLE, on_wake)) < 0 ||
        (err = uv_prepare_start(&v->prepare, on_prepare)) < 0 ||
        (err = uv_check_start(&v->check, on_check)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->idle.data = v->check.data = v->timer.data = v;
    v->wake.data = v->prepare.data = v->leave_timer.data = v;
    v->unauthenticated_timer.data = v->unread_timer.data = v->inactive_timer.data = v;
    v->timer_at_ms = UINT64_MAX;
    return 0;
}

static int init_server_handles(struct server *server) {
    uv_loop_t *uv = &server->loop[0]->uv;
    int err = 0;
    for (int i = 0; err == 0 && i < LISTEN_KINDS; i++) {
        server->listen[i].loop = server->loop[0];
        err = uv_tcp_init(uv, &server->listen[i].tcp);
    }
    if (err < 0 || (err = uv_timer_init(uv, &server->drain_timer)) < 0 ||
        (err = uv_signal_init(uv, &server->interrupt)) < 0 ||
        (err = uv_signal_init(uv, &server->terminate)) < 0 ||
        (err = reload_init(&server->reload, uv, server_reload, server)) < 0 ||
        (err = uv_signal_start(&server->interrupt, loop_on_signal, SIGINT)) < 0 ||
        (err = uv_signal_start(&server->terminate, loop_on_signal, SIGTERM)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    server->drain_timer.data = server->loading.data = server;
    server->interrupt.data = server->terminate.data = server;
    return 0;
}

static uint32_t max_clients(const struct server_options *o) {
    return o->max_clients ? o->max_clients : LIMIT_CLIENTS;
}

// Half of all, so that others can connect.
static uint32_t connections_of_token(const struct server *server) {
    uint32_t most = max_clients(&server->options);
    most = most < server->most_connections ? most : server->most_connections;
    return most / 2 + most % 2;
}

// Zero is a default.
static void set_limits(struct loop *v) {
    const struct server_options *o = &v->server->options;
    v->unread.ms = o->max_unread_ms ? o->max_unread_ms : LIMIT_UNREAD_MS;
    v->inactive.ms = o->max_idle_ms;
    v->host.max_bytes = o->max_bytes;
    v->host.max_client_bytes = o->max_client_bytes;
    v->host.token_connections = connections_of_token(v->server);
    v->host.clock = monotonic_ms;
    v->host.node = o->node;
}

// ---- Loops ------------------------------------------------------------------------------------

void loop_destroy(struct loop *v) {
    if (!v)
        return;
    host_finish(&v->host);
    if (v->has_uv) {
        int open = uv_loop_close(&v->uv);
        assert(open == 0); // every handle was closed
    }
    if (v->wake_fd >= 0)
        close(v->wake_fd);
    mem_free(v->cipher);
    mem_free(v);
}

int loop_create(struct server *server, uint32_t index) {
    struct loop *v = mem_alloc(sizeof *v);
    if (!v)
        return error_set(MR_ENOMEM, "no memory for a server");
    server->loop[index] = v;
    v->server = server;
    v->index = index;
    v->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (v->wake_fd < 0)
        return error_set(MR_EIO, "no event loop: %s", strerror(errno));
    v->cipher = mem_alloc(READ_SIZE);
    if (!v->cipher)
        return error_set(MR_ENOMEM, "no memory for a server");
    int err = host_init(&v->host, server->options.store);
    if (err < 0)
        return err;
    v->host.loop = index;
    set_limits(v);
    err = uv_loop_init(&v->uv);
    if (err < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->has_uv = true;
    err = init_loop_handles(v);
    if (err < 0)
        return err;
    loops_add(&server->loops, &v->host, wake_loop, v); // from now on other threads wake it
    return 0;
}

static int create_loops(struct server *server) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++)
        err = loop_create(server, i);
    if (err == 0 && (err = credentials_open(&server->credentials, &server->loop[0]->host)) < 0 &&
        err != MR_ENOMEM)
        err = error_set(MR_EAUTH, "%s", error_text());
    struct auth *auth = server->loop[0] ? server->loop[0]->host.auth : NULL;
    for (uint32_t i = 1; err == 0 && auth && i < loop_count(server); i++)
        err = auth_copy(auth, &server->loop[i]->host.auth);
    return err;
}

// ---- Running ----------------------------------------------------------------------------------

static void *loop_thread(void *loop) {
    struct loop *v = loop;
    uv_run(&v->uv, UV_RUN_DEFAULT);
    return NULL;
}

int loop_start_thread(struct loop *v) {
    loop_watch(v);
    int failed = pthread_create(&v->thread, NULL, loop_thread, v);
    if (failed)
        return error_set(MR_ENOMEM, "no thread for a loop: %s", strerror(failed));
    v->threaded = true;
    return 0;
}

static int loop_start_threads(struct server *server) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < loop_count(server); i++)
        err = loop_start_thread(server->loop[i]);
    return err;
}

// Loops whose threads run end by themselves; the handles of the others are closed here.
static void end_loops(struct server *server) {
    for (uint32_t i = 0; i < loop_count(server) && server->loop[i]; i++) {
        struct loop *v = server->loop[i];
        if (v->threaded) {
            atomic_store(&v->end, true);
            loop_wake(v, NEWS_MESSAGES);
            pthread_join(v->thread, NULL);
        } else if (v->has_uv) {
            loop_end(v);
            uv_run(&v->uv, UV_RUN_DEFAULT);
        }
    }
}

static int start_listening(struct server *server) {
    struct server_options *o = &server->options;
    struct listen_socket *listen = server->listen;
    int err = o->host ? listen_on(&listen[LISTEN_TCP], o->host, &o->port, o->listen_fd) : 0;
    if (err == 0 && o->unix_path)
        err = listen_on_file(&listen[LISTEN_UNIX], o->unix_path, o->unix_mode, o->unix_fd);
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++) {
        server->loop[i]->host.port = o->port;
        server->loop[i]->host.unix_path = o->unix_path;
    }
    return err;
}

static int loop_start(struct server *server) {
    int err = create_loops(server);
    if (err == 0)
        err = init_server_handles(server);
    if (err == 0)
        err = start_listening(server);
    if (err == 0)
        err = start_fronts(server);
    return err < 0 ? err : loop_start_threads(server);
}

static int serve_as_node(struct server *server) {
    struct loop *v = server->loop[0];
    int err = places_start(server);
    if (err < 0)
        server_fail_node(server, err);
    uv_run(&v->uv, UV_RUN_DEFAULT);
    places_stop(server);
    end_loops(server);
    if (server->exit < 0)
        error_set(server->exit, "%s", server->load_text);
    return server->exit;
}

static int serve(struct server *server) {
    int err = loop_start(server);
    if (err < 0) {
        end_loops(server);
        return err;
    }
    write_listening(server);
    struct loop *v = server->loop[0];
    if (server->loops.is_cluster)
        return serve_as_node(server);
    err = uv_queue_work(&v->uv, &server->loading, load_store, on_loaded);
    assert(err == 0); // it only fails without a callback
    server->loading_now = true;
    uv_run(&v->uv, UV_RUN_DEFAULT);
    end_loops(server);
    if (server->exit < 0)
        error_set(server->exit, "%s", server->load_text);
    return server->exit;
}

// The number of processors for SERVER_LOOPS_AUTO.
static uint32_t loops_wanted(uint32_t asked) {
    uint32_t count = asked == SERVER_LOOPS_AUTO ? uv_available_parallelism() : asked ? asked : 1;
    return count < LOOPS_MOST ? count : LOOPS_MOST;
}

int server_run(const struct server_options *options) {
    struct server *server = mem_alloc(sizeof *server);
    if (!server)
        return error_set(MR_ENOMEM, "no memory for a server");
    server->options = *options;
    server->most_connections = most_descriptors();
    server->credentials = (struct credentials){ .auth = options->auth, .tls = options->tls };
    pthread_mutex_init(&server->lock, NULL);
    quota_init(&server->quota, max_clients(options),
               options->max_per_address ? options->max_per_address : LIMIT_CLIENTS_OF_ADDRESS,
               (struct quota_words){ "clients", "max-clients", "address", "max-per-address" });
    bool is_node = options->cluster != NULL;
    loops_init(&server->loops,
               is_node ? options->cluster->shards + 1 : loops_wanted(options->loops), is_node);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file size limit is then an error of write
    int err = serve(server);
    socket_file_remove(&server->listen[LISTEN_UNIX].file); // after a start that failed
    for (uint32_t i = server->loops.count; i > 0; i--)
        loop_destroy(server->loop[i - 1]);
    if (server->options.front)
        server->options.front->stop(server->fronts);
    loops_finish(&server->loops);
    quota_finish(&server->quota);
    credentials_close(&server->credentials);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
    return err;
}
