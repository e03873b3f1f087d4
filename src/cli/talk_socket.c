// With a server: a socket a connection, none of which ever blocks; all wait together.
#include "cli/talk_state.h"

#include "base/errors.h"
#include "cli/interrupts.h"
#include "tls/socket.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECT_MS = 10000, RECEIVE_SIZE = 256 << 10, CONNECTIONS = 1024 };

static int socket_open(struct talks *ts) {
    const struct address *a = &ts->address;
    return a->url.secure ? tls_context_create(&a->tls, false, &ts->tls) : 0;
}

static void socket_close(struct talks *ts) {
    tls_context_destroy(ts->tls);
}

// Waits until it is known how the connecting has ended: 0, an errno, or EINTR if interrupted.
static int connect_wait(const struct talks *ts, int fd) {
    struct pollfd fds[3] = { [2] = { .fd = fd, .events = POLLOUT } };
    int why = 0;
    socklen_t size = sizeof why;
    if (talks_wait(ts, fds, 3, -1, ts->connect_ms ? ts->connect_ms : CONNECT_MS) < 0)
        return EINTR;
    if (!fds[2].revents)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) < 0 ? errno : why;
}

// A socket that is connected; or -1, and errno as above.
static int connect_one(const struct talks *ts, const struct addrinfo *to) {
    int type = to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = socket(to->ai_family, type, to->ai_protocol);
    if (fd < 0)
        return -1;
    int why = connect(fd, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (why == EINPROGRESS)
        why = connect_wait(ts, fd);
    if (why == 0)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

// That may take long, and cannot be waited for otherwise.
static int find_host(const struct talks *ts, struct addrinfo **out) {
    const struct address *a = &ts->address;
    struct addrinfo want = { .ai_socktype = SOCK_STREAM };
    struct listener listener;
    int err = listener_begin(&listener, ts->signals);
    if (err < 0)
        return err;
    int failed = getaddrinfo(a->url.host, a->url.port, &want, out);
    listener_end(&listener);
    if (failed)
        return error_set(MR_ENET, "cannot reach %s: %s", a->url.where, gai_strerror(failed));
    return 0;
}

static int unreachable(const struct address *a, int why) {
    bool usual = strcmp(a->url.port, WIRE_PORT) == 0;
    if (why == EINTR)
        return error_set(MR_ECANCELLED, "interrupted");
    if (why != ECONNREFUSED)
        return error_set(MR_ENET, "cannot reach %s: %s", a->url.where, strerror(why));
    return error_set(MR_ENET, "nobody listens at %s; start one with: millrace serve%s%s%s%s",
                     a->url.where, usual ? "" : " --listen ", usual ? "" : a->url.host,
                     usual ? "" : ":", usual ? "" : a->url.port);
}

static int socket_join(struct talks *ts, struct talk *t) {
    const struct address *a = &ts->address;
    struct addrinfo *found;
    int err = find_host(ts, &found), fd = -1, why = 0;
    if (err < 0)
        return err;
    for (const struct addrinfo *to = found; to && fd < 0 && why != EINTR; to = to->ai_next) {
        fd = connect_one(ts, to);
        why = errno;
    }
    freeaddrinfo(found);
    if (fd < 0)
        return unreachable(a, why);
    socket_set_up(fd);
    err = ts->tls ? tls_connect(ts->tls, a->url.host, &t->tls) : 0;
    if (err < 0)
        close(fd);
    else
        t->fd = fd;
    return err;
}

static void socket_leave(struct talk *t) {
    if (t->tls) {
        tls_end(t->tls);
        (void)secure_send(t->tls, t->fd, NULL, 0); // the server notices anyway
    }
    close(t->fd);
    tls_destroy(t->tls);
}

static int lost(const struct talk *t, const char *why) {
    return error_set(MR_ENET, "the connection to %s is lost: %s", t->talks->address.url.where, why);
}

static const char *why_lost(void) {
    return errno == EPROTO ? error_text() : strerror(errno);
}

// What is left of it, and whether the socket is what it waits for (else it is the handshake).
static bool is_blocked(const struct talk *t) {
    return t->tls ? secure_is_blocked(t->tls) : t->out_sent < t->out.size;
}

static int receive_some(struct talk *);

// A server that ends the connection has said why, perhaps. 1: that is to be heard first.
static int lost_unsent(struct talk *t, const char *why) {
    size_t before = t->in.size;
    char kept[256];
    snprintf(kept, sizeof kept, "%s", why);
    buffer_clear(&t->out);
    t->out_sent = 0;
    return receive_some(t) == 0 && t->in.size > before ? 1 : lost(t, kept);
}

static int send_some(struct talk *t) {
    while (t->out_sent < t->out.size || is_blocked(t)) {
        const uint8_t *data = t->out.data + t->out_sent;
        size_t left = t->out.size - t->out_sent;
        ssize_t sent =
            t->tls ? secure_send(t->tls, t->fd, data, left) : send(t->fd, data, left, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            t->out_sent = buffer_compact(&t->out, t->out_sent);
            return 0;
        }
        if (sent < 0)
            return lost_unsent(t, why_lost());
        t->out_sent += (size_t)sent;
    }
    buffer_clear(&t->out);
    t->out_sent = 0;
    return 0;
}

// With TLS more may have come than the socket tells. What came before the end is heard first.
static int receive_some(struct talk *t) {
    size_t before = t->in.size;
    do {
        int err = buffer_reserve(&t->in, RECEIVE_SIZE);
        if (err < 0)
            return err;
        uint8_t *to = t->in.data + t->in.size;
        ssize_t got = t->tls ? secure_recv(t->tls, t->fd, to, RECEIVE_SIZE)
                             : recv(t->fd, to, RECEIVE_SIZE, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (got <= 0 && t->in.size > before)
            return 0;
        if (got <= 0)
            return lost(t, got ? why_lost() : "it was closed");
        t->in.size += (size_t)got;
    } while (t->tls);
    return 0;
}

static int socket_turn(struct talks *ts, int fd, int64_t wait_ms) {
    struct pollfd fds[2 + CONNECTIONS];
    size_t count = 2;
    int err = 0;
    for (struct talk *t = ts->first; t && err == 0; t = t->next) {
        if (count == 2 + CONNECTIONS)
            return error_set(MR_EFULL, "more than %d connections", CONNECTIONS);
        err = send_some(t);
        if (err > 0)
            return 0;
        short more = is_blocked(t) ? POLLOUT : 0;
        fds[count++] = (struct pollfd){ .fd = t->fd, .events = (short)(POLLIN | more) };
    }
    int readable = err < 0 ? err : talks_wait(ts, fds, count, fd, wait_ms);
    err = readable < 0 ? readable : 0;
    count = 2;
    for (struct talk *t = ts->first; t && err == 0; t = t->next)
        if (fds[count++].revents & ~POLLOUT)
            err = receive_some(t);
    return err < 0 ? err : readable;
}

const struct talk_impl socket_talk = { .open = socket_open,
                                       .close = socket_close,
                                       .join = socket_join,
                                       .leave = socket_leave,
                                       .turn = socket_turn };
