// Sockets: finding the addresses of a host, and connecting without waiting; a Unix-domain socket
// connects at once.
#include "tls/socket.h"
#include "base/errors.h"
#include "base/mem.h"
#include "client/state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

struct server_address {
    struct sockaddr_storage at;
    socklen_t size;
    uint32_t node; // which node's it is
};

struct address_list {
    struct server_address *all;
    size_t count;
};

static int add_address(struct address_list *f, const struct sockaddr *at, socklen_t size,
                       uint32_t node) {
    struct server_address *more = mem_resize(f->all, (f->count + 1) * sizeof *more);
    if (!more)
        return error_set(MR_ENOMEM, "no memory for addresses");
    f->all = more;
    more += f->count++;
    *more = (struct server_address){ .size = size, .node = node };
    memcpy(&more->at, at, size);
    return 0;
}

static_assert(sizeof((struct sockaddr_un *)0)->sun_path == URL_FILE, "the system's limit");

static int add_file(struct address_list *f, const char *path, uint32_t node) {
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    memcpy(at.sun_path, path, strlen(path)); // url_read has checked its size
    return add_address(f, (const struct sockaddr *)&at, sizeof at, node);
}

static int add_addresses_of(struct address_list *f, const struct url_node *n, uint32_t node) {
    struct addrinfo *all, wanted = { .ai_socktype = SOCK_STREAM };
    if (!n->port[0])
        return add_file(f, n->host, node);
    int failed = getaddrinfo(n->host, n->port, &wanted, &all), err = 0;
    if (failed)
        return error_set(MR_ENET, "no address of host '%s' is known: %s", n->host,
                         gai_strerror(failed));
    for (const struct addrinfo *a = all; err == 0 && a; a = a->ai_next)
        err = add_address(f, a->ai_addr, a->ai_addrlen, node);
    freeaddrinfo(all);
    return err;
}

int addresses_find(const struct client *c, struct server_address **out, size_t *out_count) {
    struct address_list f = { 0 };
    int err = 0;
    for (uint32_t i = 0; i < c->node_count && err != MR_ENOMEM; i++)
        err = add_addresses_of(&f, &c->nodes[i], i); // one of several nodes may have no address now
    if (err == MR_ENOMEM || !f.count) {
        mem_free(f.all);
        return err < 0 ? err : error_set(MR_ENET, "no address of the server is known");
    }
    *out = f.all;
    *out_count = f.count;
    return 0;
}

enum { QUEUE_MS = 1000 };

// Without waiting it would fail while the server's queue of new connections is full, as when many
// clients start at once.
static int connect_file(int fd, const struct server_address *a) {
    struct timeval most = { .tv_sec = QUEUE_MS / 1000 };
    int flags = fcntl(fd, F_GETFL);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most); // works without, too
    if (fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0 ||
        connect(fd, (const struct sockaddr *)&a->at, a->size) < 0)
        return -1;
    return fcntl(fd, F_SETFL, flags);
}

static int connect_to(int fd, const struct server_address *a) {
    if (a->at.ss_family == AF_UNIX)
        return connect_file(fd, a);
    socket_set_up(fd);
    return connect(fd, (const struct sockaddr *)&a->at, a->size);
}

int socket_connect(const struct server_address *a) {
    int fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect_to(fd, a) == 0 || errno == EINPROGRESS)
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
    int err = addresses_find(c, &found, &count);
    pthread_mutex_lock(&c->lock);
    if (err < 0)
        return;
    mem_free(c->addresses);
    c->addresses = found;
    c->address_count = count;
}

const struct server_address *address_at(const struct client *c, size_t number) {
    return &c->addresses[number % c->address_count];
}

const char *address_host(const struct client *c, size_t number) {
    return c->nodes[address_at(c, number)->node].host;
}
