// The loop: sockets in and out, signals, time. All rules are the host's and the sessions'.
//
//     poll ─► read callbacks: bytes into sessions ─► check: the turn ends, replies go out
//
// Replies are written straight from a session's buffer; what the socket does not take is copied
// aside, and the session rests meanwhile if that is much.
#include "server/server.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/fetch.h"
#include "server/notice.h"
#include "server/session.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

enum {
    BACKLOG = 511,
    SENDING_MS = 2000, // for replies that were not read yet when the server ends
};

struct server {
    struct server_options options;
    struct host host;
    struct shard *shard;
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_tcp_t refused; // a connection that there is no memory for
    uv_check_t check;
    uv_timer_t timer; // for the host
    uv_timer_t drain_timer;
    uv_async_t durable; // the log has synced
    uv_signal_t interrupt, terminate;
    uv_work_t loading;
    uint64_t timer_at_ms; // of the loop's clock; UINT64_MAX: not armed
    int load_err;
    char load_text[512];
    uint32_t fetching;      // bodies are read for so many sessions
    bool refusing, another; // the latter waits to be accepted meanwhile
    bool listening, loading_now, stopping, closing, finished;
    int exit;
};

struct connection {
    uv_tcp_t tcp; // first: a handle is a connection
    struct server *server;
    struct session *session;
    uv_write_t write;
    struct buffer pending; // what the socket did not take at once
    bool reading, writing, closing;
    char address[64];
};

static void turn_end(struct server *);
static void finish(struct server *);

// ---- Connections ------------------------------------------------------------------------------

static void on_closed(uv_handle_t *handle) {
    struct connection *c = (struct connection *)handle;
    struct server *v = c->server;
    buffer_finish(&c->pending);
    mem_free(c);
    if (v->closing)
        finish(v);
}

static void connection_close(struct connection *c) {
    if (c->closing)
        return;
    c->closing = true;
    host_begin(&c->server->host);
    session_destroy(c->session);
    c->session = NULL;
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct connection *c = (struct connection *)handle;
    size_t size = 0;
    (void)suggested;
    uint8_t *room = session_room(c->session, &size);
    *out = uv_buf_init((char *)room, (unsigned)(size < INT32_MAX ? size : INT32_MAX));
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf) {
    struct connection *c = (struct connection *)stream;
    (void)buf;
    if (size == UV_ENOBUFS) { // it takes nothing now
        uv_read_stop(stream);
        c->reading = false;
        if (c->session->broken)
            connection_close(c);
    } else if (size < 0) {
        connection_close(c);
    } else if (size > 0) {
        host_begin(&c->server->host);
        session_receive(c->session, (size_t)size);
        if (session_is_over(c->session))
            session_touch(c->session);
    }
}

static void connection_read(struct connection *c) {
    size_t size;
    if (c->reading || c->closing)
        return;
    if (!session_room(c->session, &size)) {
        if (c->session->broken)
            connection_close(c);
        return;
    }
    c->reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) == 0;
}

static void connection_write(struct connection *c);

static void on_written(uv_write_t *write, int status) {
    struct connection *c = write->data;
    c->writing = false;
    buffer_finish(&c->pending);
    if (status < 0)
        connection_close(c);
    if (!c->closing)
        connection_write(c);
}

static void write_rest(struct connection *c, mr_bytes rest) {
    uv_buf_t buf;
    int err = buffer_append(&c->pending, rest.data, rest.size);
    if (err == 0) {
        buf = uv_buf_init((char *)c->pending.data, (unsigned)c->pending.size);
        c->write.data = c;
        err = uv_write(&c->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    }
    if (err < 0) {
        connection_close(c);
        return;
    }
    c->writing = true;
    session_sent(c->session, rest.size);
}

enum { WRITE_MOST = 1 << 20 }; // copied aside at once

static void connection_write(struct connection *c) {
    mr_bytes ready = session_ready(c->session);
    if (ready.size && !c->writing) {
        uv_buf_t buf = uv_buf_init((char *)(uintptr_t)ready.data, (unsigned)ready.size);
        int wrote = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (wrote < 0 && wrote != UV_EAGAIN) {
            connection_close(c);
            return;
        }
        if (wrote > 0)
            session_sent(c->session, (size_t)wrote);
        ready = session_ready(c->session);
        if (ready.size > WRITE_MOST)
            ready.size = WRITE_MOST;
        if (ready.size)
            write_rest(c, ready);
    }
    if (c->closing)
        return;
    if (session_is_over(c->session) && !c->writing)
        connection_close(c);
    else
        connection_read(c);
}

// "127.0.0.1:40000" or "[::1]:40000"; nothing where the system does not say.
static void note_address(struct connection *c) {
    struct sockaddr_storage peer;
    struct sockaddr *at = (struct sockaddr *)&peer;
    int size = sizeof peer;
    char name[INET6_ADDRSTRLEN];
    if (uv_tcp_getpeername(&c->tcp, at, &size) < 0 || uv_ip_name(at, name, sizeof name) < 0)
        return;
    bool v6 = at->sa_family == AF_INET6;
    uint16_t port = ntohs(((struct sockaddr_in *)at)->sin_port); // at the same place for IPv6
    snprintf(c->address, sizeof c->address, "%s%s%s:%u", v6 ? "[" : "", name, v6 ? "]" : "", port);
}

static void on_connection(uv_stream_t *listener, int status);

static void on_refused(uv_handle_t *refused) {
    struct server *v = refused->data;
    bool another = v->another && v->listening;
    v->refusing = v->another = false;
    if (another)
        on_connection((uv_stream_t *)&v->listener, 0);
}

// It is accepted and closed: as long as one is not accepted, no other comes.
static void refuse(struct server *v) {
    if (v->refusing) {
        v->another = true; // its turn comes when that one is closed
        return;
    }
    notice(NOTICE_WARN, "no memory for a connection");
    v->refusing = true;
    v->refused.data = v;
    uv_tcp_init(&v->loop, &v->refused);
    (void)uv_accept((uv_stream_t *)&v->listener, (uv_stream_t *)&v->refused); // closed either way
    uv_close((uv_handle_t *)&v->refused, on_refused);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct server *v = listener->data;
    if (status < 0) {
        notice(NOTICE_WARN, "a connection could not be accepted: %s", uv_strerror(status));
        return;
    }
    struct connection *c = mem_alloc(sizeof *c);
    if (!c) {
        refuse(v);
        return;
    }
    c->server = v;
    uv_tcp_init(&v->loop, &c->tcp);
    int err = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (err == 0)
        err = session_create(&v->host, &c->session);
    if (err < 0) {
        c->closing = true;
        uv_close((uv_handle_t *)&c->tcp, on_closed);
        return;
    }
    (void)uv_tcp_nodelay(&c->tcp, 1); // a comfort: it works without
    note_address(c);
    c->session->owner = c;
    c->session->address = c->address;
    connection_read(c);
}

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

// The timer is only set when something is due earlier than it would ring anyway.
static void plan(struct server *v) {
    int64_t next_ms = host_next_ms(&v->host);
    uint64_t at = next_ms < 0 ? UINT64_MAX : uv_now(&v->loop) + (uint64_t)next_ms;
    if (at >= v->timer_at_ms)
        return;
    v->timer_at_ms = at;
    uv_timer_start(&v->timer, on_timer, (uint64_t)next_ms, 0);
}

static void stop_if_drained(struct server *);

static void turn_end(struct server *v) {
    struct host *h = &v->host;
    while (h->in_turn || !list_empty(&h->touched) || !list_empty(&h->resuming)) {
        host_end(h);
        flush(v); // what was sent may let sessions go on
    }
    plan(v);
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

// ---- Reading what is on the disk only -----------------------------------------------------------

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
static void finish(struct server *v) {
    if (v->finished || v->fetching || !list_empty(&v->host.sessions))
        return;
    v->finished = true;
    host_finish(&v->host);
    shard_close(v->shard);
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
    if (v->shard) {
        host_end(&v->host);
        (void)shard_wait(v->shard, shard_end(v->shard)); // a failure was noticed when it happened
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

static void on_signal(uv_signal_t *signal, int number) {
    struct server *v = signal->data;
    if (v->stopping || v->loading_now) {
        notice(NOTICE_WARN, "stopping at once");
        v->stopping = true;
        close_all(v);
        if (v->closing)
            close_now(v);
        return;
    }
    v->stopping = true;
    notice(NOTICE_INFO, "%s: taking no more connections; %" PRIu64 " leases are held",
           number == SIGINT ? "interrupted" : "asked to stop", host_leases(&v->host));
    if (v->listening)
        uv_close((uv_handle_t *)&v->listener, NULL);
    v->listening = false;
    host_begin(&v->host);
    host_stop(&v->host);
    uv_timer_start(&v->drain_timer, on_drain_over, (uint64_t)v->options.drain_ms, 0);
    turn_end(v);
}

// ---- Starting ---------------------------------------------------------------------------------

static void load(uv_work_t *work) {
    struct server *v = work->data;
    const struct server_options *o = &v->options;
    struct shard_options shard = { .dir = o->dir,
                                   .log = { .sync = o->sync,
                                            .interval_ms = o->interval_ms,
                                            .on_durable = log_is_durable,
                                            .arg = v },
                                   .limits = { .max_body = o->max_body, .max_bytes = o->max_bytes },
                                   .events = host_events(),
                                   .owner = &v->host };
    v->load_err = shard_open(&shard, &v->shard);
    if (v->load_err < 0)
        snprintf(v->load_text, sizeof v->load_text, "%s", error_text());
}

static void on_loaded(uv_work_t *work, int status) {
    struct server *v = work->data;
    (void)status;
    v->loading_now = false;
    if (v->load_err < 0) {
        v->exit = v->load_err;
        close_all(v);
        return;
    }
    v->host.fetch = fetch;
    v->host.fetcher = v;
    host_load(&v->host, v->shard);
    if (v->options.on_ready)
        v->options.on_ready(v->options.arg, v->options.host, v->options.port, true);
    if (v->stopping)
        close_all(v);
    else
        turn_end(v);
}

static int fail_net(const struct server_options *o, int err) {
    return error_set(MR_ENET, "cannot listen on %s:%u: %s", o->host, o->port, uv_strerror(err));
}

static int listen_on(struct server *v) {
    struct server_options *o = &v->options;
    struct sockaddr_storage address;
    int err = uv_ip4_addr(o->host, o->port, (struct sockaddr_in *)&address);
    if (err < 0)
        err = uv_ip6_addr(o->host, o->port, (struct sockaddr_in6 *)&address);
    if (err == 0)
        err = uv_tcp_bind(&v->listener, (struct sockaddr *)&address, 0);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&v->listener, BACKLOG, on_connection);
    int size = sizeof address;
    if (err == 0)
        err = uv_tcp_getsockname(&v->listener, (struct sockaddr *)&address, &size);
    if (err < 0)
        return fail_net(o, err);
    o->port = ntohs(((struct sockaddr_in *)&address)->sin_port); // at the same place for IPv6
    v->listening = true;
    return 0;
}

// What was not begun because of an error before it need not be closed.
static int init_handles(struct server *v) {
    int err;
    if ((err = uv_tcp_init(&v->loop, &v->listener)) < 0 ||
        (err = uv_check_init(&v->loop, &v->check)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->timer)) < 0 ||
        (err = uv_timer_init(&v->loop, &v->drain_timer)) < 0 ||
        (err = uv_async_init(&v->loop, &v->durable, on_durable)) < 0 ||
        (err = uv_signal_init(&v->loop, &v->interrupt)) < 0 ||
        (err = uv_signal_init(&v->loop, &v->terminate)) < 0 ||
        (err = uv_check_start(&v->check, on_check)) < 0 ||
        (err = uv_signal_start(&v->interrupt, on_signal, SIGINT)) < 0 ||
        (err = uv_signal_start(&v->terminate, on_signal, SIGTERM)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->listener.data = v->check.data = v->timer.data = v->drain_timer.data = v;
    v->durable.data = v->interrupt.data = v->terminate.data = v->loading.data = v;
    v->timer_at_ms = UINT64_MAX;
    return 0;
}

static int serve(struct server *v) {
    int err = init_handles(v);
    if (err == 0)
        err = listen_on(v);
    if (err < 0) {
        uv_walk(&v->loop, close_handle, v);
        uv_run(&v->loop, UV_RUN_DEFAULT);
        return err;
    }
    if (v->options.on_ready)
        v->options.on_ready(v->options.arg, v->options.host, v->options.port, false);
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
    signal(SIGPIPE, SIG_IGN);
    int err = host_init(&v->host, options->store);
    int loop_err = err < 0 ? 0 : uv_loop_init(&v->loop);
    if (loop_err < 0)
        err = error_set(MR_EIO, "no event loop: %s", uv_strerror(loop_err));
    if (err == 0) {
        err = serve(v);
        int open = uv_loop_close(&v->loop);
        assert(open == 0); // every handle was closed
    }
    host_finish(&v->host);
    mem_free(v);
    return err;
}
