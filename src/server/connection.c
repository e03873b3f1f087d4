// Connections: pass bytes from a socket to its session, and replies from the session to the socket.
//
// Replies are written directly from the buffer of the session; bytes that the socket does not
// accept are copied, and while there are many of them the session runs no commands. With TLS,
// server/tls.h is in between. Connections that have not yet presented a certificate or a secret are
// listed in unauthenticated.h; quota.h limits their number, timeouts.h their time.
#include "server/loop.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/budget.h"
#include "server/notice.h"
#include "server/router.h"
#include "server/stop.h"
#include "server/tls.h"
#include "wire/code.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENT_NAME = LIMIT_NAME + 80 };

static void accept_waiting(struct host *, void *server);

static void on_closed(uv_handle_t *handle) {
    struct connection *c = (struct connection *)handle;
    struct loop *v = c->loop;
    buffer_finish(&c->pending);
    tls_destroy(c->tls);
    mem_free(c);
    struct server *server = v->server;
    atomic_fetch_sub(&server->connections, 1);
    if (v->closing)
        stop_go_on(v);
    else if (atomic_load(&server->accept_waits) && v->index)
        (void)loops_run(&server->loops, 0, accept_waiting,
                        server); // on failure, the next close tries
    else if (!v->index)
        accept_waiting(&v->host, server);
}

// "127.0.0.1:40000", with the name that the client has set, if any.
static const char *client_name(const struct session *s, char (*to)[CLIENT_NAME]) {
    const char *name = s->name;
    snprintf(*to, sizeof *to, "%s%s%s%s", s->address, *name ? " (" : "", name, *name ? ")" : "");
    return *to;
}

static size_t unread_size(const struct connection *c) {
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp) +
           session_unsent(c->session);
}

// Logs that replies had no room any more.
static void write_overflow(const struct connection *c) {
    char name[CLIENT_NAME];
    notice(
        NOTICE_WARN,
        "closed the connection of %s: %zu bytes of replies are unread, and there is no %s for more",
        client_name(c->session, &name), unread_size(c),
        c->session->reply.err == MR_ENOMEM ? "memory" : "room");
}

// Sends the close message of TLS, if the socket accepts it.
static void connection_write_end(struct connection *c) {
    tls_end(c->tls);
    mr_bytes last = tls_unsent(c->tls);
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)last.data, (unsigned)last.size);
    if (last.size && !c->writing)
        (void)uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
}

// Removes it from the counts of connections.
static void connection_leave(struct connection *c) {
    struct server *server = c->loop->server;
    pthread_mutex_lock(&server->lock);
    unauthenticated_remove(&server->unauthenticated, &c->unauthenticated);
    quota_leave(&server->quota, &c->member);
    pthread_mutex_unlock(&server->lock);
    c->is_unauthenticated = false;
}

void connection_close(struct connection *c) {
    if (c->closing)
        return;
    c->closing = true;
    connection_leave(c);
    timeout_end(&c->unread);
    timeout_end(&c->inactive);
    list_remove(&c->of_resting);
    if (c->tls)
        connection_write_end(c);
    if (c->session && c->session->refusals)
        notice(NOTICE_WARN, "%u wrong secret%s from %s", c->session->refusals,
               c->session->refusals == 1 ? "" : "s", c->address);
    if (c->session && c->session->reply.err)
        write_overflow(c);
    host_begin(&c->loop->host);
    if (c->session && c->session->front)
        c->session->front->impl->close(c->session->front);
    session_destroy(c->session);
    c->session = NULL;
    uv_close((uv_handle_t *)&c->tcp, on_closed);
}

// ---- Authentication ---------------------------------------------------------------------------

static bool has_authenticated(const struct connection *c) {
    const struct session *s = c->session;
    return (!c->tls || tls_is_up(c->tls)) && (!c->loop->host.auth || s->who || s->is_link);
}

// Called after bytes were received or sent: it may have authenticated.
static void note_authentication(struct connection *c) {
    struct server *server = c->loop->server;
    if (!c->is_unauthenticated || !has_authenticated(c))
        return;
    c->is_unauthenticated = false;
    pthread_mutex_lock(&server->lock);
    unauthenticated_remove(&server->unauthenticated, &c->unauthenticated);
    pthread_mutex_unlock(&server->lock);
}

// ---- Timeouts ---------------------------------------------------------------------------------

// Timeouts of one list are equally long, so a timer that runs fires early enough.
static void plan_timeouts(const struct timeouts *p, uv_timer_t *timer, uv_timer_cb on_due) {
    uint64_t now_ms = uv_now(timer->loop), next_ms = timeouts_next_ms(p);
    if (next_ms != UINT64_MAX && !uv_is_active((uv_handle_t *)timer))
        uv_timer_start(timer, on_due, next_ms > now_ms ? next_ms - now_ms : 0, 0);
}

static void on_idle_timeout(uv_timer_t *);
static void on_unread(uv_timer_t *);

// Restarts the idle timeout: bytes were received or sent.
static void note_activity(struct connection *c) {
    struct loop *v = c->loop;
    timeout_begin(&v->inactive, &c->inactive, uv_now(&v->uv));
    plan_timeouts(&v->inactive, &v->inactive_timer, on_idle_timeout);
}

static bool is_idle(const struct connection *c) {
    const struct session *s = c->session;
    struct remote_work there = router_work(s);
    return !s->is_link && !s->wait.kind && !c->writing && list_empty(&s->async_calls) &&
           session_leases(s) == 0 && !router_is_waiting(s) && !there.leases && !there.async_calls;
}

// A client that waits for a command or holds leases is not idle.
static void on_idle_timeout(uv_timer_t *timer) {
    struct loop *v = timer->data;
    uint64_t now_ms = uv_now(&v->uv);
    char name[CLIENT_NAME];
    for (struct timeout *w; (w = timeout_expired(&v->inactive, now_ms)) != NULL;) {
        struct connection *c = list_entry(w, struct connection, inactive);
        if (!is_idle(c)) {
            timeout_begin(&v->inactive, w, now_ms);
            continue;
        }
        notice(NOTICE_DEBUG, "closed the connection of %s: idle for %" PRIu64 " ms (max-idle)",
               client_name(c->session, &name), v->inactive.ms);
        connection_close(c);
    }
    plan_timeouts(&v->inactive, timer, on_idle_timeout);
    turn_end(v);
}

static void begin_unread(struct connection *c, size_t left) {
    struct loop *v = c->loop;
    c->pending_left = left;
    timeout_begin(&v->unread, &c->unread, uv_now(&v->uv));
    plan_timeouts(&v->unread, &v->unread_timer, on_unread);
}

static void end_unread(struct connection *c) {
    struct loop *v = c->loop;
    timeout_end(&c->unread);
    if (list_empty(&v->unread.list))
        uv_timer_stop(&v->unread_timer); // an idle server does not wake up
}

// Closes connections that have read nothing; slow readers stay.
static void on_unread(uv_timer_t *timer) {
    struct loop *v = timer->data;
    char name[CLIENT_NAME];
    for (struct timeout *w; (w = timeout_expired(&v->unread, uv_now(&v->uv))) != NULL;) {
        struct connection *c = list_entry(w, struct connection, unread);
        size_t left = uv_stream_get_write_queue_size((uv_stream_t *)&c->tcp);
        if (left < c->pending_left) {
            begin_unread(c, left);
            continue;
        }
        notice(NOTICE_WARN,
               "closed the connection of %s: it has read none of %zu bytes of replies for %" PRIu64
               " ms (max-unread)",
               client_name(c->session, &name), unread_size(c), v->unread.ms);
        connection_close(c);
    }
    plan_timeouts(&v->unread, timer, on_unread);
    turn_end(v);
}

// ---- Bytes ------------------------------------------------------------------------------------

enum { STEPS_HANDSHAKE = 5000 }; // a part of it

static bool is_in_handshake(const struct connection *c) {
    return c->tls && !tls_is_up(c->tls);
}

// A handshake takes so long that it waits like a connection with input.
static bool must_rest(const struct connection *c) {
    return budget_must_rest(c->session) || (is_in_handshake(c) && budget_is_busy(&c->loop->host));
}

static size_t read_size(const struct connection *c) {
    return must_rest(c) ? 0 : budget_read_size(c->session);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
    struct connection *c = (struct connection *)handle;
    size_t size = READ_SIZE, most = read_size(c);
    (void)suggested;
    if (!most) {
        *out = uv_buf_init(NULL, 0);
        return;
    }
    void *room = c->tls ? c->loop->cipher : (char *)front_room(c->session, &size);
    *out = uv_buf_init(room, (unsigned)(size < most ? size : most));
}

// They are read again in rotation.
static void connection_rest(struct connection *c) {
    struct loop *v = c->loop;
    uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = false;
    if (list_empty(&c->of_resting))
        list_append(must_rest(c) ? &v->resting : &v->skipped, &c->of_resting);
}

static void rest_if_busy(struct connection *c) {
    if (!c->closing && must_rest(c))
        connection_rest(c);
}

// The client has closed its side. Requests of a front are still answered, as when the server stops.
// Its waiting commands end, also in other loops.
static void input_ended(struct connection *c) {
    struct session *s = c->session;
    c->reading = false;
    host_begin(&c->loop->host);
    if (!s->front) {
        session_end_input(s);
        return;
    }
    s->input_ended = true;
    session_close(s);
    if (s->remotes)
        router_identity_changed(s);
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf) {
    struct connection *c = (struct connection *)stream;
    (void)buf;
    if (size == UV_ENOBUFS) { // the session accepts no bytes now, or has to rest
        uv_read_stop(stream);
        c->reading = false;
        if (!read_size(c))
            connection_rest(c);
        if (c->session->broken)
            connection_close(c);
    } else if (size == UV_EOF) {
        input_ended(c);
    } else if (size < 0) {
        connection_close(c);
    } else if (size > 0) {
        note_activity(c);
        host_begin(&c->loop->host);
        budget_receive(&c->loop->host, (size_t)size);
        front_receive(c->session, (size_t)size);
        if (front_is_over(c->session))
            session_touch_prompt(c->session);
        rest_if_busy(c);
    }
}

// Passes received bytes to the session; if it accepts no more, stops reading until it does.
static void secure_read(struct connection *c) {
    int all = tls_pour(c->tls, c->session);
    if (all < 0 && tls_peer_closed(c->tls) && !c->session->broken) {
        uv_read_stop((uv_stream_t *)&c->tcp);
        input_ended(c);
        return;
    }
    if (all < 0)
        notice(NOTICE_DEBUG, "the connection of %s ends: %s", c->address, error_text());
    if (all < 0 || c->session->broken) {
        connection_close(c);
        return;
    }
    note_authentication(c);
    if (!all && c->reading)
        uv_read_stop((uv_stream_t *)&c->tcp);
    c->reading = c->reading && all;
    if (tls_unsent(c->tls).size)
        connection_write(c);
}

static void on_secure_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf) {
    struct connection *c = (struct connection *)stream;
    if (size == UV_ENOBUFS) {
        connection_rest(c);
    } else if (size < 0 || tls_receive(c->tls, buf->base, (size_t)size) < 0) {
        connection_close(c);
    } else {
        struct host *h = &c->loop->host;
        note_activity(c);
        host_begin(h);
        budget_receive(h, (size_t)size);
        h->steps += is_in_handshake(c) ? STEPS_HANDSHAKE : 0;
        secure_read(c);
        rest_if_busy(c);
    }
}

static void connection_read(struct connection *c) {
    size_t size;
    if (c->reading || c->closing || !list_empty(&c->of_resting))
        return;
    if (must_rest(c) && !c->session->broken) {
        connection_rest(c);
        return;
    }
    if (!front_room(c->session, &size)) {
        if (c->session->broken)
            connection_close(c);
        return;
    }
    uv_read_cb read = c->tls ? on_secure_read : on_read;
    c->reading = uv_read_start((uv_stream_t *)&c->tcp, on_alloc, read) == 0;
    if (c->tls)
        secure_read(c); // bytes that were received before
}

static void read_some(struct list *resting, int most) {
    for (int i = 0; i < most && !list_empty(resting); i++) {
        struct connection *c = list_entry(resting->next, struct connection, of_resting);
        list_remove(&c->of_resting);
        connection_read(c);
    }
}

// As many as one turn can read.
void connections_read_on(struct loop *v) {
    read_some(&v->skipped, SKIPPED_READ);
    if (!host_clients_exceed(&v->host) && !budget_continues(&v->host)) // or they would rest again
        read_some(&v->resting, RESTING_READ);
}

// libuv may call this right before it waits for sockets, without a check in between, so a turn for
// sessions that can continue is scheduled here.
static void on_written(uv_write_t *write, int status) {
    struct connection *c = write->data;
    struct loop *v = c->loop;
    c->writing = false;
    end_unread(c);
    if (c->session)
        session_hold(c->session, 0 - c->pending.size);
    buffer_finish(&c->pending);
    if (status < 0)
        connection_close(c);
    if (!c->closing)
        connection_write(c);
    turn_plan(v);
}

static void connection_sent(struct connection *c, size_t size) {
    if (c->tls)
        tls_sent(c->tls, size);
    else
        front_sent(c->session, size);
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
    c->loop->sent += rest.size;
    session_hold(c->session, c->pending.size);
    begin_unread(c, rest.size);
    connection_sent(c, rest.size);
}

// Limited, so that other connections have their turn.
static mr_bytes connection_next(struct connection *c, size_t most) {
    mr_bytes ready = c->tls ? tls_gather(c->tls, c->session, most) : front_ready(c->session);
    ready.size = ready.size < most ? ready.size : most;
    return ready;
}

// Bytes that the socket did not accept wait in a copy for it; if it has accepted everything, the
// rest follows in the next iteration.
static void connection_write_some(struct connection *c) {
    struct loop *v = c->loop;
    mr_bytes ready = connection_next(c, v->sent < LIMIT_SENT ? SENT_MOST : SENT_SHARE);
    if (!ready.size)
        return;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)ready.data, (unsigned)ready.size);
    int wrote = uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
    if (wrote < 0 && wrote != UV_EAGAIN) {
        connection_close(c);
        return;
    }
    if (wrote > 0) {
        note_activity(c);
        v->sent += (size_t)wrote;
        connection_sent(c, (size_t)wrote);
    }
    bool accepts = wrote == (int)ready.size;
    ready = connection_next(c, SENT_COPIED);
    if (ready.size && accepts)
        session_offer(c->session);
    else if (ready.size)
        write_rest(c, ready);
}

void connection_write(struct connection *c) {
    if (has_lost_store(c->loop))
        return; // it is closed soon
    note_authentication(c);
    if (!c->writing)
        connection_write_some(c);
    if (c->closing)
        return;
    if (c->session->broken || (front_is_over(c->session) && !c->writing))
        connection_close(c);
    else
        connection_read(c);
}

// ---- Memory -----------------------------------------------------------------------------------

static void close_large(struct loop *v, struct session *s) {
    char name[CLIENT_NAME];
    notice(NOTICE_WARN,
           "closed the connection of %s: clients use more than %" PRIu64
           " bytes, and it uses the most, %zu, of which %zu are unread replies (max-client-bytes)",
           client_name(s, &name), host_client_limit(&v->host), session_held(s), session_unread(s));
    if (s->remote)
        router_close_remote(s);
    else
        connection_close(s->owner);
}

void connections_make_room(struct loop *v) {
    struct session *largest[LARGEST_CLIENTS];
    if (!host_clients_exceed(&v->host))
        return;
    size_t count = host_largest_clients(&v->host, largest);
    for (size_t i = 0; i < count && host_clients_exceed(&v->host); i++)
        close_large(v, largest[i]);
}

// ---- New connections --------------------------------------------------------------------------

// Sets the address by which connections are counted: of IPv6 the upper half, which names a network,
// because one client can use all addresses of it; an IPv4-mapped address is counted as IPv4.
static void note_origin(struct connection *c, const struct sockaddr *at) {
    uint8_t *origin = c->unauthenticated.address;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)at)->sin6_addr;
    const uint8_t *v4 = (const uint8_t *)&((const struct sockaddr_in *)at)->sin_addr;
    if (at->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        v4 = v6->s6_addr + 12;
    else if (at->sa_family == AF_INET6)
        v4 = NULL;
    if (v4)
        memcpy(origin, v4, 4);
    else
        memcpy(origin, v6, 8);
    c->local = v4 ? v4[0] == 127 : IN6_IS_ADDR_LOOPBACK(v6);
}

// Reads what the system knows of the process at the other end. False: nothing.
static bool peer_option(const struct connection *c, int option, void *to, socklen_t *size) {
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)&c->tcp, &fd) == 0 &&
           getsockopt(fd, SOL_SOCKET, option, to, size) == 0;
}

static bool peer_process(const struct connection *c, struct ucred *out) {
    socklen_t size = sizeof *out;
    return peer_option(c, SO_PEERCRED, out, &size) && size == sizeof *out;
}

// A client of the Unix-domain socket is counted by its user; no address of a network is like that.
static void note_process(struct connection *c) {
    struct ucred peer;
    c->local = c->by_file = true;
    if (!peer_process(c, &peer))
        return;
    uint8_t *origin = c->unauthenticated.address;
    origin[QUOTA_HOLDER - 1] = 1;
    memcpy(origin + QUOTA_HOLDER / 2, &peer.uid, sizeof peer.uid);
    snprintf(c->address, sizeof c->address, "unix:uid=%u,pid=%d", peer.uid, peer.pid);
}

// Sets "127.0.0.1:40000", "[::1]:40000" or "unix:uid=1000,pid=42"; empty if the system does not
// know it.
static void note_address(struct connection *c) {
    struct sockaddr_storage peer;
    struct sockaddr *at = (struct sockaddr *)&peer;
    int size = sizeof peer;
    char name[INET6_ADDRSTRLEN];
    if (uv_tcp_getpeername(&c->tcp, at, &size) < 0)
        return;
    if (at->sa_family == AF_UNIX) {
        note_process(c);
        return;
    }
    if (uv_ip_name(at, name, sizeof name) < 0)
        return;
    bool v6 = at->sa_family == AF_INET6;
    uint16_t port = ntohs(((struct sockaddr_in *)at)->sin_port); // same offset in IPv6
    snprintf(c->address, sizeof c->address, "%s%s%s:%u", v6 ? "[" : "", name, v6 ? "]" : "", port);
    note_origin(c, at);
}

// ---- Unauthenticated connections ----------------------------------------------------------------

static struct connection *overdue(struct loop *v) {
    struct server *server = v->server;
    pthread_mutex_lock(&server->lock);
    struct unauthenticated *u =
        unauthenticated_overdue(&server->unauthenticated, v->index, uv_now(&v->uv));
    if (u)
        unauthenticated_remove(&server->unauthenticated, u);
    pthread_mutex_unlock(&server->lock);
    return u ? list_entry(u, struct connection, unauthenticated) : NULL;
}

// Closes those of this loop whose time is up, or that were evicted.
static void close_overdue(struct loop *v) {
    for (struct connection *c; (c = overdue(v)) != NULL;) {
        c->is_unauthenticated = false;
        if (!has_authenticated(c))
            connection_close(c);
    }
}

static void on_unauthenticated(uv_timer_t *timer) {
    struct loop *v = timer->data;
    struct server *server = v->server;
    close_overdue(v);
    pthread_mutex_lock(&server->lock);
    uint64_t next_ms = unauthenticated_next_ms(&server->unauthenticated, v->index);
    pthread_mutex_unlock(&server->lock);
    uint64_t now_ms = uv_now(&v->uv);
    if (next_ms != UINT64_MAX)
        uv_timer_start(timer, on_unauthenticated, next_ms > now_ms ? next_ms - now_ms : 0, 0);
    turn_end(v);
}

static void close_evicted(struct host *h, void *server) {
    (void)server;
    close_overdue(list_entry(h, struct loop, host));
}

// Writes at most one notice a second. Under the server's lock.
static void note_evicted(struct loop *v, const struct connection *c) {
    struct server *server = v->server;
    v->host.rejections++;
    server->evicted_unreported++;
    if (uv_now(&v->uv) < server->evicted_notice_ms)
        return;
    notice(NOTICE_WARN,
           "%" PRIu64 " unauthenticated connection%s closed in favour of newer ones, "
           "the last of them from %s",
           server->evicted_unreported, server->evicted_unreported == 1 ? " was" : "s were",
           c->address);
    server->evicted_unreported = 0;
    server->evicted_notice_ms = uv_now(&v->uv) + EVICTED_NOTICE_MS;
}

// Evicts an unauthenticated connection for a new one: it stops counting at once, and its loop
// closes it. False: there is none, or no memory for the message to its loop. Under the server's
// lock.
static bool evict(struct loop *v, struct unauthenticated *u) {
    struct server *server = v->server;
    if (!u ||
        (u->loop != v->index && loops_run(&server->loops, u->loop, close_evicted, server) < 0))
        return false;
    struct connection *c = list_entry(u, struct connection, unauthenticated);
    unauthenticated_evict(&server->unauthenticated, u);
    quota_leave(&server->quota, &c->member);
    note_evicted(v, c);
    return true;
}

// The oldest of an address, or of all if that is NULL.
static bool evict_oldest(struct loop *v, const uint8_t *address) {
    struct server *server = v->server;
    pthread_mutex_lock(&server->lock);
    bool evicted = evict(v, unauthenticated_oldest(&server->unauthenticated, address));
    pthread_mutex_unlock(&server->lock);
    close_overdue(v);
    return evicted;
}

// Without auth and TLS, and for a process with a token, there is nothing to wait for.
static void await_authentication(struct connection *c) {
    struct loop *v = c->loop;
    struct server *server = v->server;
    struct unauthenticated_list *list = &server->unauthenticated;
    if (has_authenticated(c))
        return;
    c->is_unauthenticated = true;
    c->unauthenticated.loop = v->index;
    pthread_mutex_lock(&server->lock);
    (void)evict(v, unauthenticated_to_evict(list, c->unauthenticated.address));
    unauthenticated_add(list, &c->unauthenticated, uv_now(&v->uv));
    pthread_mutex_unlock(&server->lock);
    close_overdue(v);
    if (!uv_is_active((uv_handle_t *)&v->unauthenticated_timer))
        uv_timer_start(&v->unauthenticated_timer, on_unauthenticated, UNAUTHENTICATED_MS, 0);
}

static int connection_quota_enter(struct connection *c, const uint8_t *address, bool *out_all) {
    struct server *server = c->loop->server;
    pthread_mutex_lock(&server->lock);
    int err = quota_enter(&server->quota, address, &c->member);
    *out_all = server->quota.count >= server->quota.most;
    pthread_mutex_unlock(&server->lock);
    return err;
}

// If the quota is used up, an unauthenticated connection is evicted: any, or one of the same
// address if that has too many.
static int quota_enter_or_evict(struct connection *c, const uint8_t *address) {
    struct loop *v = c->loop;
    bool all;
    int err = connection_quota_enter(c, address, &all);
    const uint8_t *whose = all ? NULL : c->unauthenticated.address;
    if (err == MR_EFULL && evict_oldest(v, whose))
        err = connection_quota_enter(c, address, &all);
    return err;
}

static int secure(struct connection *c) {
    struct server *server = c->loop->server;
    pthread_mutex_lock(&server->lock); // a reload may replace it
    struct tls_context *context = server->credentials.context;
    int err = context && !c->by_file ? tls_accept(context, &c->tls) : 0;
    pthread_mutex_unlock(&server->lock);
    return err;
}

// A process has the user and the groups that it had when it connected.
static int admit_process(struct connection *c) {
    gid_t groups[PEER_GROUPS + 1];
    socklen_t size = PEER_GROUPS * sizeof *groups;
    struct ucred process;
    if (!peer_process(c, &process))
        return 0;
    groups[0] = process.gid;
    if (!peer_option(c, SO_PEERGROUPS, groups + 1, &size))
        size = 0; // more than PEER_GROUPS, or a kernel before 4.13
    struct auth_peer peer = { .user = process.uid,
                              .groups = groups,
                              .group_count = 1 + size / sizeof *groups };
    return session_admit_peer(c->session, &peer);
}

static int connection_set_up(struct connection *c, bool front) {
    struct loop *v = c->loop;
    note_address(c);
    const uint8_t *address = c->local ? NULL : c->unauthenticated.address;
    int err = quota_enter_or_evict(c, address);
    if (err == 0)
        err = secure(c);
    if (err == 0)
        err = session_create(&v->host, &c->session);
    if (err == 0 && c->by_file && !front)
        err = admit_process(c);
    if (err == 0 && front)
        err = v->server->options.front->open(v->server->fronts, c->session, address,
                                             &c->session->front);
    if (err < 0)
        return err;
    (void)uv_tcp_nodelay(&c->tcp, 1); // the connection works without these, too
    (void)uv_tcp_keepalive(&c->tcp, 1, LIMIT_SILENCE_S);
    c->session->owner = c;
    c->session->address = c->address;
    await_authentication(c);
    return 0;
}

// Writes a notice for the first of many in a row.
static void connection_note_refused(const struct connection *c) {
    struct server *server = c->loop->server;
    uint64_t now_ms = uv_now(&c->loop->uv);
    pthread_mutex_lock(&server->lock);
    if (now_ms < server->refused_notice_ms) {
        server->refused_unreported++;
    } else {
        notice(NOTICE_WARN,
               "refused a connection of %s: %s (%" PRIu64 " more since the last notice)",
               c->address, error_text(), server->refused_unreported);
        server->refused_unreported = 0;
        server->refused_notice_ms = now_ms + REFUSED_NOTICE_MS;
    }
    pthread_mutex_unlock(&server->lock);
}

// Sends the reason, if the connection is not encrypted.
static void connection_write_refused(struct connection *c, bool front) {
    struct loop *v = c->loop;
    char text[1024];
    size_t size =
        front ? v->server->options.front->refuse(error_text(), text, sizeof text)
              : (size_t)snprintf(text, 256, "-%s %s\r\n", code_name(CODE_FULL), error_text());
    uv_buf_t buf = uv_buf_init(text, (unsigned)size);
    if (!v->server->credentials.tls.cert || c->by_file)
        (void)uv_try_write((uv_stream_t *)&c->tcp, &buf, 1);
    v->host.rejections++;
    connection_note_refused(c);
}

static void on_refused(uv_handle_t *refused) {
    struct loop *v = refused->data;
    struct listen_socket *listen = v->server->listen;
    v->refusing = false;
    for (int i = 0; i < LISTEN_KINDS; i++) {
        bool another = listen[i].another && listen[i].open;
        listen[i].another = false;
        if (another)
            on_connection((uv_stream_t *)&listen[i].tcp, 0);
    }
}

// Accepts and closes the connection: libuv reports no other while one is not accepted.
static void connection_refuse(struct listen_socket *l) {
    struct loop *v = l->loop;
    if (v->refusing) {
        l->another = true; // accepted when that one is closed
        return;
    }
    notice(NOTICE_WARN, "no memory for a connection");
    v->refusing = true;
    v->refused.data = v;
    uv_tcp_init(&v->uv, &v->refused);
    (void)uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)&v->refused); // closed either way
    uv_close((uv_handle_t *)&v->refused, on_refused);
}

// Leaves new connections in the system's queue until descriptors are free.
static void accept_later(struct listen_socket *l) {
    struct loop *v = l->loop;
    struct server *server = v->server;
    l->waiting = true;
    atomic_store(&server->accept_waits, true);
    if (!server->waiting_reported)
        notice(NOTICE_WARN, "%" PRIu32 " connections use all descriptors: new ones wait",
               atomic_load(&server->connections));
    server->waiting_reported = true;
    (void)evict_oldest(v, NULL); // the new one is accepted when that has closed
}

// Runs in the first loop when a connection has closed.
static void accept_waiting(struct host *h, void *arg) {
    struct server *server = arg;
    struct listen_socket *listen = server->listen;
    (void)h;
    atomic_store(&server->accept_waits, false);
    if (atomic_load(&server->connections) <= server->most_connections / 2)
        server->waiting_reported = false;
    for (int i = 0; i < LISTEN_KINDS; i++) {
        bool waits = listen[i].waiting && listen[i].open;
        listen[i].waiting = false;
        if (waits)
            on_connection((uv_stream_t *)&listen[i].tcp, 0);
    }
}

static void connection_begin(struct connection *c, bool front) {
    if (connection_set_up(c, front) == 0) {
        note_activity(c);
        connection_read(c);
        return;
    }
    connection_write_refused(c, front);
    connection_close(c);
}

static struct connection *connection_create(struct loop *v) {
    struct connection *c = mem_alloc(sizeof *c);
    if (!c)
        return NULL;
    c->loop = v;
    uv_tcp_init(&v->uv, &c->tcp);
    return c;
}

// ---- Distribution to loops --------------------------------------------------------------------

// Takes over a socket that another loop has accepted.
static void connection_take_over(struct host *h, void *arg) {
    struct loop *v = list_entry(h, struct loop, host);
    int fd = (int)(intptr_t)arg;
    struct connection *c = v->closing ? NULL : connection_create(v);
    if (c && uv_tcp_open(&c->tcp, fd) == 0) {
        connection_begin(c, false);
        return;
    }
    (void)close(fd);
    if (c)
        connection_close(c);
    else
        atomic_fetch_sub(&v->server->connections, 1);
}

// Duplicates the socket, because its handle belongs to its loop; -1: that failed.
static int take_socket(struct connection *c) {
    uv_os_fd_t fd;
    return uv_fileno((uv_handle_t *)&c->tcp, &fd) < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void on_passed(uv_handle_t *handle) {
    mem_free((struct connection *)handle);
}

// Passes connections to the loops in rotation. False: this loop keeps it.
static bool connection_pass_on(struct connection *c) {
    struct server *server = c->loop->server;
    uint32_t to = server->loops.is_cluster ? 0 : server->next_loop++ % server->loops.count;
    int fd = to == c->loop->index ? -1 : take_socket(c);
    if (fd < 0)
        return false;
    if (loops_run(&server->loops, to, connection_take_over, (void *)(intptr_t)fd) < 0) {
        (void)close(fd);
        return false;
    }
    uv_close((uv_handle_t *)&c->tcp, on_passed);
    return true;
}

void on_connection(uv_stream_t *listener, int status) {
    struct listen_socket *l = (struct listen_socket *)listener;
    struct loop *v = l->loop;
    struct server *server = v->server;
    bool is_front = l == &server->listen[LISTEN_FRONT];
    if (status < 0) {
        notice(NOTICE_WARN, "a connection could not be accepted: %s", uv_strerror(status));
        return;
    }
    if (v->accepted == ACCEPTED_MOST) {
        l->deferred = true; // libuv reports no other before this one is accepted
        turn_plan(v);
        return;
    }
    if (atomic_load(&server->connections) >= server->most_connections) {
        accept_later(l);
        return;
    }
    v->accepted++;
    struct connection *c = connection_create(v);
    if (!c) {
        connection_refuse(l);
        return;
    }
    atomic_fetch_add(&server->connections, 1);
    int err = uv_accept((uv_stream_t *)&l->tcp, (uv_stream_t *)&c->tcp);
    if (err < 0) {
        notice(NOTICE_WARN, "a connection could not be accepted: %s", uv_strerror(err));
        connection_close(c);
    } else if (is_front || !connection_pass_on(c)) {
        connection_begin(c, is_front);
    }
}

// ---- Connections to other nodes ---------------------------------------------------------------

static void on_connected(uv_connect_t *connect, int status) {
    struct connection *c = connect->data;
    struct loop *v = c->loop;
    mem_free(connect);
    if (c->closing)
        return;
    note_address(c);
    if (status < 0) {
        notice(NOTICE_DEBUG, "no connection to another node: %s", uv_strerror(status));
        connection_close(c);
    } else {
        (void)uv_tcp_nodelay(&c->tcp, 1);
        if (c->tls)
            (void)tls_handshake(c->tls); // has its first message written; a failure is found later
        connection_read(c);
        session_offer(c->session);
    }
    turn_end(v);
}

static int connection_start_dial(struct connection *c, const char *host, uint16_t port) {
    struct sockaddr_storage address;
    uv_connect_t *connect = mem_alloc(sizeof *connect);
    if (!connect)
        return error_set(MR_ENOMEM, "no memory for a connection");
    connect->data = c;
    int err = uv_ip4_addr(host, port, (struct sockaddr_in *)&address);
    if (err < 0)
        err = uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address);
    if (err == 0)
        err = uv_tcp_connect(connect, &c->tcp, (struct sockaddr *)&address, on_connected);
    if (err == 0)
        return 0;
    mem_free(connect);
    return error_set(MR_ENET, "cannot connect to %s:%u: %s", host, port, uv_strerror(err));
}

int connection_dial(struct loop *v, const char *host, uint16_t port,
                    const struct node_link_hello *hello, struct node_link **out) {
    struct connection *c = connection_create(v);
    if (!c)
        return error_set(MR_ENOMEM, "no memory for a connection");
    struct node_link *link = NULL;
    atomic_fetch_add(&v->server->connections, 1);
    int err = session_create(&v->host, &c->session);
    if (err == 0)
        c->session->owner = c;
    if (err == 0 && v->server->node_context)
        err = tls_connect(v->server->node_context, host, &c->tls);
    if (err == 0)
        err = node_link_create(c->session, hello, &link);
    if (err == 0)
        err = connection_start_dial(c, host, port);
    if (err < 0) {
        connection_close(c); // and with it the link
        return err;
    }
    *out = link;
    return 0;
}

void connections_accept_on(struct loop *v) {
    struct listen_socket *listen = v->server->listen;
    if (!v->accepted)
        return;
    v->accepted = 0;
    for (int i = 0; i < LISTEN_KINDS; i++) {
        bool accepts = listen[i].deferred && listen[i].open;
        listen[i].deferred = false;
        if (accepts)
            on_connection((uv_stream_t *)&listen[i].tcp, 0);
    }
}
