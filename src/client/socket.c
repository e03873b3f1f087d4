// Sockets: finding the addresses of a host, and connecting without waiting.
#include "tls/socket.h"
#include "base/errors.h"
#include "base/mem.h"
#include "client/state.h"

#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

struct server_address {
    struct sockaddr_storage at;
    socklen_t size;
};

int address_find(const char *host, const char *port, struct server_address **out,
                 size_t *out_count) {
    struct addrinfo *found, wanted = { .ai_socktype = SOCK_STREAM };
    int failed = getaddrinfo(host, port, &wanted, &found);
    if (failed)
        return error_set(MR_ENET, "no address of host '%s' is known: %s", host,
                         gai_strerror(failed));
    size_t count = 0;
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        count++;
    struct server_address *all = mem_alloc(count * sizeof *all);
    struct server_address *to = all;
    for (const struct addrinfo *a = found; a && all; a = a->ai_next, to++) {
        memcpy(&to->at, a->ai_addr, a->ai_addrlen);
        to->size = a->ai_addrlen;
    }
    freeaddrinfo(found);
    if (!all)
        return error_set(MR_ENOMEM, "no memory for addresses");
    *out = all;
    *out_count = count;
    return 0;
}

int socket_connect(const struct server_address *a) {
    int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socket_set_up(fd);
    if (connect(fd, (const struct sockaddr *)&a->at, a->size) == 0 || errno == EINPROGRESS)
        return fd;
    int failed = -errno;
    close(fd);
    return failed;
}

// A socket that keeps connecting to an unused port of this machine may be given that very port as
// its own, and is then connected with itself, and the server could not bind the port when it comes
// back.
static bool is_own(int fd) {
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &here_size) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_size) == 0 &&
           here_size == there_size && memcmp(&here, &there, here_size) == 0;
}

int socket_error(int fd) {
    int failed = 0;
    socklen_t size = sizeof failed;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) < 0)
        return -errno;
    return failed ? -failed : is_own(fd) ? -ECONNREFUSED : 0;
}

void addresses_renew(struct client *c, uint64_t now_ms) {
    struct server_address *found;
    size_t count;
    c->found_ms = now_ms;
    pthread_mutex_unlock(&c->lock);
    int err = address_find(c->host, c->port, &found, &count);
    pthread_mutex_lock(&c->lock);
    if (err < 0)
        return;
    mem_free(c->addresses);
    c->addresses = found;
    c->address_count = count;
}

const struct server_address *address_next(const struct client *c) {
    return &c->addresses[c->address % c->address_count];
}
