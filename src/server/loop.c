// The loop: sockets in and out, signals, time. All rules are the host's and the sessions'.
//
//     poll ─► read callbacks: bytes into sessions ─► check: the turn ends, replies go out
//
// Replies are written straight from a session's buffer; what the socket does not take is copied
// aside, and the session rests meanwhile if that is much. Where there is TLS it stands between the
// two (server/tls.h).
#include "server/server.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/credentials.h"
#include "server/door.h"
#include "server/notice.h"
#include "server/tls.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

enum { BACKLOG = 511 };

struct server {
    struct server_options options;
    struct host host;
    struct shard *shard;
    struct credentials credentials;
    struct door door;
    char *cipher; // READ_SIZE bytes: where what is encrypted arrives
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_check_t check;
    uv_timer_t timer; // for the host
    uv_timer_t drain_timer;
    uv_timer_t door_timer;
    uv_async_t durable; // the log has synced
    uv_signal_t interrupt, terminate, hangup;
    uv_work_t loading;
    uint64_t timer_at_ms; // of the loop's clock; UINT64_MAX: not armed
    int load_err;
    char load_text[512];
    bool listening, loading_now, stopping, closing;
    int exit;
};

struct connection {
    uv_tcp_t tcp; // first: a handle is a connection
    struct server *server;
    struct session *session;
    struct tls *tls; // NULL: nothing is encrypted
    struct stranger stranger;
    uv_write_t write;
    struct buffer pending; // what the socket did not take at once
    bool reading, writing, closing;
    char address[64];
};

static void turn_end(struct server *);

// ---- Connections ------------------------------------------------------------------------------

static void on_closed(uv_handle_t *handle) {
    struct connection *c = (struct connection *)handle;
    buffer_finish(&c->pending);
    tls_destroy(c->tls);
    mem_free(c);
}

// The last word of TLS, if the socket takes it.
static void say_end(struct connection *c) {
    tls_end(c->tls);
    mr_bytes last = tls_unsent(c->tls);
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)last.data, (unsigned)last.size);
    if (last.size && !c->writing)
        (void)uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
}

static void connection_close(struct connection *c) {
    if (c->closing)
        return;
    c->closing = true;
    door_leave(&c->server->door, &c->stranger);
    if (c->tls)
        say_end(c);
    if (c->session && c->session->refusals)
        notice(NOTICE_WARN, "%u wrong secrets from %s", c->session->refusals, c->address);
    host_begin(&c->server->host);
    session_destroy(c->session);
    c->session = NULL;
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct connection *c = (struct connection *)handle;
    size_t size = 0;
    (void)suggested;
    if (c->tls) {
        *out = uv_buf_init(c->server->cipher, READ_SIZE);
        return;
    }
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

static void connection_write(struct connection *c);

// Lets the session have what has come; if that takes no more now, reading stops until it does.
static void secure_read(struct connection *c) {
    int all = tls_pour(c->tls, c->session);
    if (all < 0)
        notice(NOTICE_DEBUG, "the connection of %s ends: %s", c->address, error_text());
    if (all < 0 || c->session->broken) {
        connection_close(c);
        return;
    }
    if (!all && c->reading)
        uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = c->reading && all;
    if (tls_unsent(c->tls).size)
        connection_write(c);
}

static void on_secure_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf) {
    struct connection *c = (struct connection *)stream;
    if (size < 0 || tls_receive(c->tls, buf->base, (size_t)size) < 0)
        connection_close(c);
    else
        secure_read(c);
}

static void connection_read(struct connection *c) {
    size_t size;
    if (c->reading || c->closing || !session_room(c->session, &size))
        return;
    uv_read_cb read = c->tls ? on_secure_read : on_read;
    c->reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, read) == 0;
    if (c->tls)
        secure_read(c); // what came before
}

static void on_written(uv_write_t *write, int status) {
    struct connection *c = write->data;
    c->writing = false;
    buffer_finish(&c->pending);
    if (status < 0)
        connection_close(c);
    if (!c->closing)
        connection_write(c);
}

static mr_bytes connection_ready(struct connection *c) {
    return c->tls ? tls_gather(c->tls, c->session) : session_ready(c->session);
}

static void connection_sent(struct connection *c, size_t size) {
    if (c->tls)
        tls_sent(c->tls, size);
    else
        session_sent(c->session, size);
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
    connection_sent(c, rest.size);
}

enum { WRITE_MOST = 1 << 20 }; // copied aside at once

static void connection_write(struct connection *c) {
    mr_bytes ready = connection_ready(c);
    if (ready.size && !c->writing) {
        uv_buf_t buf = uv_buf_init((char *)(uintptr_t)ready.data, (unsigned)ready.size);
        int wrote = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
        if (wrote < 0 && wrote != UV_EAGAIN) {
            connection_close(c);
            return;
        }
        if (wrote > 0)
            connection_sent(c, (size_t)wrote);
        ready = connection_ready(c);
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

// For people: the address, and the port to tell apart those of one machine. For the door: of IPv6
// the half that names a network, since anybody has all of the rest.
static void note_address(struct connection *c) {
    struct sockaddr_storage peer;
    int size = sizeof peer;
    char host[48] = "?";
    if (uv_tcp_getpeername(&c->tcp, (struct sockaddr *)&peer, &size) < 0)
        return;
    bool v6 = peer.ss_family == AF_INET6;
    if (v6)
        memcpy(c->stranger.address, &((struct sockaddr_in6 *)&peer)->sin6_addr, 8);
    else
        memcpy(c->stranger.address, &((struct sockaddr_in *)&peer)->sin_addr, 4);
    (void)uv_ip_name((struct sockaddr *)&peer, host, sizeof host); // then it is a question mark
    snprintf(c->address, sizeof c->address, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             ntohs(((struct sockaddr_in *)&peer)->sin_port)); // at the same place for IPv6
}

static bool has_come_in(const struct stranger *s) {
    const struct connection *c = list_entry(s, struct connection, stranger);
    return (!c->tls || tls_is_up(c->tls)) && (!c->server->host.auth || c->session->who);
}

static void on_door(uv_timer_t *timer) {
    struct server *v = timer->data;
    uint64_t now_ms = uv_now(&v->loop);
    for (struct stranger *s; (s = door_overdue(&v->door, now_ms)) != NULL;)
        connection_close(list_entry(s, struct connection, stranger));
    uint64_t next_ms = door_next_ms(&v->door);
    if (next_ms != UINT64_MAX)
        uv_timer_start(timer, on_door, next_ms - now_ms, 0);
    turn_end(v);
}

// Where nothing is asked for, nobody is a stranger.
static int stand_at_door(struct connection *c) {
    struct server *v = c->server;
    if (!v->host.auth && !c->tls)
        return 0;
    if (!door_enter(&v->door, &c->stranger, uv_now(&v->loop)))
        return error_set(MR_EFULL, "too many have not said yet who they are");
    if (!uv_is_active((uv_handle_t *)&v->door_timer))
        uv_timer_start(&v->door_timer, on_door, STRANGER_MS, 0);
    return 0;
}

static int connection_set_up(struct connection *c, uv_stream_t *listener) {
    struct server *v = c->server;
    int err = uv_accept(listener, (uv_stream_t *)&c->tcp);
    if (err == 0 && v->credentials.context)
        err = tls_accept(v->credentials.context, &c->tls);
    if (err == 0)
        err = session_create(&v->host, &c->session);
    if (err < 0)
        return err;
    uv_tcp_nodelay(&c->tcp, 1);
    c->session->owner = c;
    c->session->address = c->address;
    note_address(c);
    return stand_at_door(c);
}

static void on_connection(uv_stream_t *listener, int status) {
    struct server *v = listener->data;
    if (status < 0) {
        notice(NOTICE_WARN, "a connection could not be accepted: %s", uv_strerror(status));
        return;
    }
    struct connection *c = mem_alloc(sizeof *c);
    if (!c) {
        notice(NOTICE_WARN, "no memory for a connection");
        return;
    }
    c->server = v;
    uv_tcp_init(&v->loop, &c->tcp);
    if (connection_set_up(c, listener) == 0) {
        connection_read(c);
        return;
    }
    v->host.rejections++;
    connection_close(c);
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

// ---- Stopping ---------------------------------------------------------------------------------

static void close_connection(uv_handle_t *handle, void *server) {
    struct server *v = server;
    if (handle->type == UV_TCP && handle != (uv_handle_t *)&v->listener)
        connection_close((struct connection *)handle);
}

static void close_handle(uv_handle_t *handle, void *server) {
    (void)server;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

// Everything said is made durable and sent; then sessions, store and loop end, in this order: the
// log calls back until it is closed.
static void close_all(struct server *v) {
    if (v->closing || v->loading_now)
        return;
    v->closing = true;
    if (v->shard) {
        host_end(&v->host);
        (void)shard_wait(v->shard, shard_end(v->shard)); // a failure was noticed when it happened
        flush(v);
    }
    uv_walk(&v->loop, close_connection, v);
    host_finish(&v->host);
    shard_close(v->shard);
    uv_walk(&v->loop, close_handle, v);
}

static void stop_if_drained(struct server *v) {
    if (!v->closing && host_running(&v->host) == 0)
        close_all(v);
}

static void on_drain_over(uv_timer_t *timer) {
    struct server *v = timer->data;
    notice(NOTICE_WARN, "%" PRIu64 " jobs are still running: they go back to their channels",
           host_running(&v->host));
    close_all(v);
}

static void on_signal(uv_signal_t *signal, int number) {
    struct server *v = signal->data;
    if (v->stopping || v->loading_now) {
        notice(NOTICE_WARN, "stopping at once");
        v->stopping = true;
        close_all(v);
        return;
    }
    v->stopping = true;
    notice(NOTICE_INFO, "%s: taking no more connections; %" PRIu64 " jobs are running",
           number == SIGINT ? "interrupted" : "asked to stop", host_running(&v->host));
    if (v->listening)
        uv_close((uv_handle_t *)&v->listener, NULL);
    v->listening = false;
    host_begin(&v->host);
    host_stop(&v->host);
    uv_timer_start(&v->drain_timer, on_drain_over, (uint64_t)v->options.drain_ms, 0);
    turn_end(v);
}

static void on_hangup(uv_signal_t *signal, int number) {
    struct server *v = signal->data;
    (void)number;
    host_begin(&v->host);
    credentials_reload(&v->credentials, &v->host);
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

static void init_handles(struct server *v) {
    uv_tcp_init(&v->loop, &v->listener);
    uv_check_init(&v->loop, &v->check);
    uv_timer_init(&v->loop, &v->timer);
    uv_timer_init(&v->loop, &v->drain_timer);
    uv_timer_init(&v->loop, &v->door_timer);
    uv_async_init(&v->loop, &v->durable, on_durable);
    uv_signal_init(&v->loop, &v->interrupt);
    uv_signal_init(&v->loop, &v->terminate);
    uv_signal_init(&v->loop, &v->hangup);
    v->listener.data = v->check.data = v->timer.data = v->drain_timer.data = v;
    v->durable.data = v->interrupt.data = v->terminate.data = v->loading.data = v;
    v->hangup.data = v->door_timer.data = v;
    v->door.is_known = has_come_in;
    v->timer_at_ms = UINT64_MAX;
    uv_check_start(&v->check, on_check);
    uv_signal_start(&v->interrupt, on_signal, SIGINT);
    uv_signal_start(&v->terminate, on_signal, SIGTERM);
    uv_signal_start(&v->hangup, on_hangup, SIGHUP);
}

static int serve(struct server *v) {
    init_handles(v);
    int err = listen_on(v);
    if (err < 0) {
        uv_walk(&v->loop, close_handle, v);
        uv_run(&v->loop, UV_RUN_DEFAULT);
        return err;
    }
    if (v->options.on_ready)
        v->options.on_ready(v->options.arg, v->options.host, v->options.port, false);
    v->loading_now = true;
    uv_queue_work(&v->loop, &v->loading, load, on_loaded);
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
    int err = v->cipher ? host_init(&v->host, options->store)
                        : error_set(MR_ENOMEM, "no memory for a server");
    if (err == 0)
        err = credentials_open(&v->credentials, &v->host);
    if (err == 0 && uv_loop_init(&v->loop) < 0)
        err = error_set(MR_ENOMEM, "no event loop");
    if (err == 0) {
        err = serve(v);
        uv_loop_close(&v->loop);
    }
    host_finish(&v->host);
    credentials_close(&v->credentials);
    mem_free(v->cipher);
    mem_free(v);
    return err;
}
