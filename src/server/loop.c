// The loop: sockets in and out, signals, time. All rules are the host's and the sessions'.
//
//     poll ─► read callbacks: bytes into sessions ─► check: the turn ends, replies go out
//
// What a connection does with its socket is connection.c's.
#include "server/loop.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/fetch.h"
#include "server/notice.h"
#include "server/systemd.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

enum {
    BACKLOG = 511,
    SENDING_MS = 2000, // for replies that were not read yet when the server ends
};

// ---- Turns ------------------------------------------------------------------------------------

static void flush(struct server *v) {
    struct host *h = &v->host;
    host_durable(h);
    while (!list_empty(&h->ready)) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        connection_write(s->owner);
    }
}

static void on_timer(uv_timer_t *timer);

static void on_backlog(uv_idle_t *idle) {
    struct server *v = idle->data;
    host_begin(&v->host);
    turn_end(v);
}

// While sessions wait for a later turn there is one in every round of the loop, between which it
// looks at all sockets. A timer would not do: one that is due at once rings before the sockets do.
static void plan_backlog(struct server *v) {
    if (!host_has_backlog(&v->host))
        uv_idle_stop(&v->backlog);
    else if (!uv_is_closing((uv_handle_t *)&v->backlog))
        uv_idle_start(&v->backlog, on_backlog);
}

// The timer is only set when something is due earlier than it would ring anyway.
static void plan(struct server *v) {
    plan_backlog(v);
    if (host_has_backlog(&v->host))
        return;
    int64_t next_ms = host_next_ms(&v->host);
    uint64_t at = next_ms < 0 ? UINT64_MAX : uv_now(&v->loop) + (uint64_t)next_ms;
    if (at >= v->timer_at_ms)
        return;
    v->timer_at_ms = at;
    uv_timer_start(&v->timer, on_timer, (uint64_t)next_ms, 0);
}

static void stop_if_drained(struct server *);

void turn_end(struct server *v) {
    struct host *h = &v->host;
    while (h->in_turn || !list_empty(&h->touched) || !list_empty(&h->resuming)) {
        host_end(h);
        flush(v); // what was sent may let sessions go on
        connections_make_room(v);
    }
    plan(v);
    health_look(&v->health, h);
    if (v->stopping)
        stop_if_drained(v);
}

static void on_check(uv_check_t *check) {
    turn_end(check->data);
}

static void on_timer(uv_timer_t *timer) {
    struct server *v = timer->data;
    v->timer_at_ms = UINT64_MAX;
    host_begin(&v->host);
    turn_end(v);
}

static void on_durable(uv_async_t *async) {
    flush(async->data);
}

static void log_is_durable(void *server) {
    struct server *v = server;
    uv_async_send(&v->durable);
}

// ---- Reading what is on the disk only ---------------------------------------------------------

static void read_fetch(uv_work_t *work) {
    fetch_read(work->data);
}

static void on_fetched(uv_work_t *work, int status) {
    struct fetch *f = work->data;
    struct server *v = f->owner;
    (void)status; // it is never cancelled
    mem_free(work);
    v->fetching--;
    host_begin(&v->host);
    fetch_end(f);
    turn_end(v);
    if (v->closing)
        finish(v);
}

static int fetch(void *server, struct fetch *f) {
    struct server *v = server;
    uv_work_t *work = mem_alloc(sizeof *work);
    if (!work)
        return error_set(MR_ENOMEM, "no memory to read in another thread");
    work->data = f;
    f->owner = v;
    int err = uv_queue_work(&v->loop, work, read_fetch, on_fetched);
    assert(err == 0); // it only refuses what is no work
    v->fetching++;
    return 0;
}

// ---- Stopping ---------------------------------------------------------------------------------

static void close_handle(uv_handle_t *handle, void *server) {
    (void)server;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

// Once the last session has ended, store and loop do, in this order: the log calls back until it is
// closed.
void finish(struct server *v) {
    if (v->finished || v->fetching || !list_empty(&v->host.sessions))
        return;
    v->finished = true;
    host_finish(&v->host);
    group_close(v->group);
    uv_walk(&v->loop, close_handle, v);
}

// Who has not read everything is not waited for any longer.
static void close_now(struct server *v) {
    while (!list_empty(&v->host.sessions))
        connection_close(list_entry(v->host.sessions.next, struct session, of_host)->owner);
    finish(v);
}

static void on_sending_over(uv_timer_t *timer) {
    close_now(timer->data);
}

// Everything said is made durable and sent; each connection is closed when it was.
static void close_all(struct server *v) {
    if (v->closing || v->loading_now)
        return;
    v->closing = true;
    if (v->group) {
        host_give_back(&v->host);
        host_end(&v->host);
        host_wait(&v->host);
    }
    host_close(&v->host);
    flush(v);
    uv_timer_start(&v->drain_timer, on_sending_over, SENDING_MS, 0);
    finish(v);
}

static void stop_if_drained(struct server *v) {
    if (!v->closing && host_leases(&v->host) == 0)
        close_all(v);
}

static void on_drain_over(uv_timer_t *timer) {
    struct server *v = timer->data;
    notice(NOTICE_WARN, "%" PRIu64 " leases are still held: their jobs go back to their channels",
           host_leases(&v->host));
    close_all(v);
}

static void listener_close(struct listener *l) {
    if (l->open)
        uv_close((uv_handle_t *)&l->tcp, NULL);
    l->open = false;
}

static void on_signal(uv_signal_t *signal, int number) {
    struct server *v = signal->data;
    if (v->stopping || v->loading_now) {
        notice(NOTICE_WARN, "stopping at once");
        v->stopping = true;
        atomic_store(&v->cancel_load, true);
        close_all(v);
        if (v->closing)
            close_now(v);
        return;
    }
    v->stopping = true;
    systemd_tell("STOPPING=1\nSTATUS=Letting running jobs end");
    notice(NOTICE_INFO, "%s: taking no more connections; %" PRIu64 " leases are held",
           number == SIGINT ? "interrupted" : "asked to stop", host_leases(&v->host));
    listener_close(&v->wire);
    listener_close(&v->front);
    host_begin(&v->host);
    host_stop(&v->host);
    uv_timer_start(&v->drain_timer, on_drain_over, (uint64_t)v->options.drain_ms, 0);
    turn_end(v);
}

// ---- Reloading --------------------------------------------------------------------------------

// What can change while the server runs is read again; what is wrong is said and changes nothing.
static void server_reload(void *server) {
    struct server *v = server;
    host_begin(&v->host);
    credentials_reload(&v->credentials, &v->host);
    if (v->options.on_reload)
        v->options.on_reload(v->options.arg);
    turn_end(v);
}

// ---- Starting ---------------------------------------------------------------------------------

static void load(uv_work_t *work) {
    struct server *v = work->data;
    const struct server_options *o = &v->options;
    struct group_options group = { .dir = o->dir,
                                   .shards = o->shards,
                                   .log = { .sync = o->sync,
                                            .interval_ms = o->interval_ms,
                                            .on_durable = log_is_durable,
                                            .arg = v },
                                   .limits = { .max_body = o->max_body,
                                               .max_memory = o->max_bytes },
                                   .cancel = &v->cancel_load };
    host_group_options(&v->host, &group);
    v->load_err = group_open(&group, &v->group);
    if (v->load_err < 0)
        snprintf(v->load_text, sizeof v->load_text, "%s", error_text());
}

static void on_loaded(uv_work_t *work, int status) {
    struct server *v = work->data;
    (void)status;
    v->loading_now = false;
    if (v->load_err == 0 && (v->load_err = host_load(&v->host, v->group)) < 0)
        snprintf(v->load_text, sizeof v->load_text, "%s", error_text());
    if (v->load_err < 0) {
        v->exit = v->load_err == MR_ECANCELLED ? 0 : v->load_err; // as it was asked to
        close_all(v);
        return;
    }
    v->host.fetch = fetch;
    v->host.fetcher = v;
    if (v->options.on_ready)
        v->options.on_ready(v->options.arg, v->options.host, v->options.port, true);
    systemd_tell("READY=1\nSTATUS=Ready");
    if (v->stopping) {
        close_all(v);
        return;
    }
    host_begin(&v->host); // emits may be on their way
    turn_end(v);
}

static int bind_to(struct listener *l, const char *host, uint16_t port) {
    struct sockaddr_storage address;
    int err = uv_ip4_addr(host, port, (struct sockaddr_in *)&address);
    if (err < 0)
        err = uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address);
    return err < 0 ? err : uv_tcp_bind(&l->tcp, (struct sockaddr *)&address, 0);
}

// With `fd`, which listens there already. Tells the port that it became.
static int listen_on(struct listener *l, const char *host, uint16_t *port, int fd) {
    struct sockaddr_storage address;
    int err = fd ? uv_tcp_open(&l->tcp, fd) : bind_to(l, host, *port);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    int size = sizeof address;
    if (err == 0)
        err = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&address, &size);
    if (err != 0)
        return error_set(MR_ENET, "cannot listen on %s:%u: %s", host, *port, uv_strerror(err));
    *port = ntohs(((struct sockaddr_in *)&address)->sin_port); // at the same place for IPv6
    l->open = true;
    return 0;
}

static void end_turn(void *server) {
    turn_end(server);
}

static int start_fronts(struct server *v) {
    struct server_options *o = &v->options;
    if (!o->front)
        return 0;
    struct front_place place = { .loop = &v->loop,
                                 .host = &v->host,
                                 .address = o->front_host,
                                 .names = o->front_names,
                                 .turn_end = end_turn,
                                 .server = v };
    int err = o->front->start(&place, &v->fronts);
    if (err == 0)
        err = listen_on(&v->front, o->front_host, &o->front_port, 0);
    v->host.watch = err < 0 ? NULL : o->front->turn;
    v->host.watcher = v->fronts;
    return o->front_asked ? err : 0;
}

static void say_listening(const struct server *v) {
    const struct server_options *o = &v->options;
    if (o->on_ready)
        o->on_ready(o->arg, o->host, o->port, false);
    if (o->front && !v->front.open)
        notice(NOTICE_WARN, "%s:%u is taken: there is no page and no API; --http moves them",
               o->front_host, o->front_port);
    else if (o->front && o->on_front)
        o->on_front(o->arg, o->front_host, o->front_port);
    systemd_tell("STATUS=Reading the store %s", o->store);
}

// What was not begun because of an error before it need not be closed.
static int init_handles(struct server *v) {
    int err;
    if ((err = uv_tcp_init(&v->loop, &v->wire.tcp)) < 0 ||
        (err = uv_tcp_init(&v->loop, &v->front.tcp)) < 0 ||
        (err = uv_check_init(&v->loop, &v->check)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->timer)) < 0 ||
        (err = uv_idle_init(&v->loop, &v->backlog)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->drain_timer)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->door_timer)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->unread_timer)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->silent_timer)) < 0 ||
        (err = uv_async_init(&v->loop, &v->durable, on_durable)) < 0 ||
        (err = uv_signal_init(&v->loop, &v->interrupt)) < 0 ||
        (err = uv_signal_init(&v->loop, &v->terminate)) < 0 ||
        (err = keeper_init(&v->keeper, &v->loop, server_reload, v)) < 0 ||
        (err = uv_check_start(&v->check, on_check)) < 0 ||
        (err = uv_signal_start(&v->interrupt, on_signal, SIGINT)) < 0 ||
        (err = uv_signal_start(&v->terminate, on_signal, SIGTERM)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->wire.server = v->front.server = v;
    v->backlog.data = v;
    v->check.data = v->timer.data = v->drain_timer.data = v;
    v->durable.data = v->interrupt.data = v->terminate.data = v->loading.data = v;
    v->door_timer.data = v->unread_timer.data = v->silent_timer.data = v;
    v->door.is_known = has_come_in;
    v->timer_at_ms = UINT64_MAX;
    v->most_connections = keeper_connections();
    return 0;
}

// Zero is a default.
static void set_limits(struct server *v) {
    const struct server_options *o = &v->options;
    crowd_init(&v->crowd, o->max_clients ? o->max_clients : LIMIT_CLIENTS,
               o->max_per_address ? o->max_per_address : LIMIT_CLIENTS_OF_ADDRESS);
    v->unread.ms = o->max_unread_ms ? o->max_unread_ms : LIMIT_UNREAD_MS;
    v->silent.ms = o->max_idle_ms;
    v->host.max_bytes = o->max_bytes;
    v->host.max_client_bytes = o->max_client_bytes;
}

static int serve(struct server *v) {
    int err = init_handles(v);
    if (err == 0)
        err = listen_on(&v->wire, v->options.host, &v->options.port, v->options.listen_fd);
    if (err == 0)
        err = start_fronts(v);
    if (err < 0) {
        uv_walk(&v->loop, close_handle, v);
        uv_run(&v->loop, UV_RUN_DEFAULT);
        return err;
    }
    say_listening(v);
    err = uv_queue_work(&v->loop, &v->loading, load, on_loaded);
    assert(err == 0); // it only refuses what is no work
    v->loading_now = true;
    uv_run(&v->loop, UV_RUN_DEFAULT);
    if (v->exit < 0)
        error_set(v->exit, "%s", v->load_text);
    return v->exit;
}

int server_run(const struct server_options *options) {
    struct server *v = mem_alloc(sizeof *v);
    if (!v)
        return error_set(MR_ENOMEM, "no memory for a server");
    v->options = *options;
    v->credentials = (struct credentials){ .auth = options->auth, .tls = options->tls };
    v->cipher = mem_alloc(READ_SIZE);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is an error of the disk like others
    int err = v->cipher ? host_init(&v->host, options->store)
                        : error_set(MR_ENOMEM, "no memory for a server");
    set_limits(v);
    if (err == 0 && (err = credentials_open(&v->credentials, &v->host)) < 0 && err != MR_ENOMEM)
        err = error_set(MR_EAUTH, "%s", error_text());
    int loop_err = err < 0 ? 0 : uv_loop_init(&v->loop);
    if (loop_err < 0)
        err = error_set(MR_EIO, "no event loop: %s", uv_strerror(loop_err));
    if (err == 0) {
        err = serve(v);
        int open = uv_loop_close(&v->loop);
        assert(open == 0); // every handle was closed
    }
    host_finish(&v->host);
    if (v->options.front)
        v->options.front->stop(v->fronts);
    crowd_finish(&v->crowd);
    credentials_close(&v->credentials);
    mem_free(v->cipher);
    mem_free(v);
    return err;
}
