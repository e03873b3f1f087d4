// See socket.h.
#include "tls/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { PIECE = 64 << 10 }; // bytes encrypted or received in one call
enum { KEEP_IDLE_S = 10, KEEP_EVERY_S = 5, KEEP_TRIES = 3, UNSENT_MS = 20000 };

static void socket_set_option(int fd, int level, int name, int value) {
    (void)setsockopt(fd, level, name, &value, sizeof value); // works without, too
}

void socket_set_up(int fd) {
    socket_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    socket_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    socket_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE_S);
    socket_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEP_EVERY_S);
    socket_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEP_TRIES);
    socket_set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, UNSENT_MS);
}

static int secure_failed(void) {
    errno = EPROTO;
    return -1;
}

// Sends encrypted bytes. 0: all are sent; -1: errno.
static int secure_flush(struct tls *t, int fd) {
    for (mr_bytes rest; (rest = tls_unsent(t)).size;) {
        ssize_t sent = send(fd, rest.data, rest.size, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return -1;
        tls_sent(t, sent > 0 ? (size_t)sent : 0);
    }
    return 0;
}

// Receives from the socket into TLS. Returns as recv.
static ssize_t secure_fetch(struct tls *t, int fd) {
    uint8_t piece[PIECE];
    ssize_t got = recv(fd, piece, sizeof piece, 0);
    if (got > 0 && tls_receive(t, piece, (size_t)got) < 0)
        return secure_failed();
    return got;
}

int secure_handshake(struct tls *t, int fd) {
    for (;;) {
        int over = tls_handshake(t);
        if (secure_flush(t, fd) < 0 && errno != EAGAIN)
            return -1;
        if (over)
            return over < 0 ? secure_failed() : 1;
        ssize_t got = secure_fetch(t, fd);
        if (got == 0)
            errno = ECONNRESET;
        if (got <= 0)
            return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    }
}

ssize_t secure_send(struct tls *t, int fd, const void *data, size_t size) {
    if (secure_flush(t, fd) < 0)
        return -1;
    if (!size)
        return 0;
    ptrdiff_t taken = tls_write(t, data, size < PIECE ? size : PIECE);
    if (taken < 0)
        return secure_failed();
    if (secure_flush(t, fd) < 0 && errno != EAGAIN)
        return -1;
    if (taken == 0)
        errno = EAGAIN;
    return taken ? taken : -1;
}

bool secure_is_blocked(struct tls *t) {
    return tls_unsent(t).size > 0;
}

ssize_t secure_recv(struct tls *t, int fd, void *to, size_t room) {
    for (;;) {
        ptrdiff_t size = tls_read(t, to, room);
        if (size)
            return size < 0 ? secure_failed() : size;
        ssize_t got = secure_fetch(t, fd);
        if (got <= 0)
            return got;
    }
}
