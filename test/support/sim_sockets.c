// See sim_threads.h: descriptors of simulated programs. Events, timers and sets of descriptors are
// as epoll has them; a socket is the client's end of a wire (sim_nodes.h). A node is found by its
// address, 10.0.0.1 and on. A connection is made after a while, or refused, or neither; bytes go in
// pieces of any size.
#include "support/sim_threads.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { FIRST = 1 << 20, WATCHED = 32, UNSENT_MOST = 64 << 10, CONNECT_MOST_MS = 40 };

struct sim_descriptor {
    enum { IS_EVENT, IS_TIMER, IS_SET, IS_SOCKET } kind;
    uint64_t count;  // of an event
    uint64_t due_ns; // of a timer; 0: it is not set. Of a socket: when it is connected
    struct watched {
        int fd;
        struct epoll_event event;
    } watched[WATCHED]; // of a set
    int watched_count;
    enum { SOCKET_NEW, SOCKET_CONNECTING, SOCKET_OPEN, SOCKET_FAILED } state;
    int node; // -1: it is not there
    int failed;
    struct sim_wire *wire;
};

// ---- Descriptors --------------------------------------------------------------------------------

static bool is_simulated(int fd) {
    return sim_program_current() && fd >= FIRST;
}

static struct sim_descriptor *descriptor_of(const struct sim_program *p, int fd) {
    struct sim_descriptor *d = p->descriptors[fd - FIRST];
    assert(d);
    return d;
}

static struct sim_descriptor *here(int fd) {
    return descriptor_of(sim_program_current(), fd);
}

static int descriptor_make(int kind) {
    struct sim_program *p = sim_program_current();
    int at = 0;
    while (at < SIM_DESCRIPTORS && p->descriptors[at])
        at++;
    if (at == SIM_DESCRIPTORS) {
        errno = EMFILE;
        return -1;
    }
    p->descriptors[at] = calloc(1, sizeof(struct sim_descriptor));
    assert(p->descriptors[at]);
    p->descriptors[at]->kind = kind;
    return FIRST + at;
}

static void socket_hang_up(struct sim_program *p, struct sim_descriptor *d) {
    if (d->wire)
        sim_wire_close(p->nodes, d->wire);
    d->wire = NULL;
    d->state = SOCKET_FAILED;
    d->failed = ECONNRESET;
}

static void set_forget(struct sim_descriptor *set, int fd) {
    for (int i = 0; i < set->watched_count; i++)
        if (set->watched[i].fd == fd)
            set->watched[i--] = set->watched[--set->watched_count];
}

void sim_descriptors_close(struct sim_program *p) {
    for (int i = 0; i < SIM_DESCRIPTORS; i++)
        if (p->descriptors[i] && p->descriptors[i]->kind == IS_SOCKET)
            socket_hang_up(p, p->descriptors[i]);
}

static void descriptor_close(struct sim_program *p, int fd) {
    struct sim_descriptor *d = descriptor_of(p, fd);
    if (d->kind == IS_SOCKET)
        socket_hang_up(p, d);
    for (int i = 0; i < SIM_DESCRIPTORS; i++)
        if (p->descriptors[i] && p->descriptors[i]->kind == IS_SET)
            set_forget(p->descriptors[i], fd);
    free(d);
    p->descriptors[fd - FIRST] = NULL;
}

// ---- What is ready ------------------------------------------------------------------------------

static void socket_connect_now(struct sim_program *p, struct sim_descriptor *d) {
    if (d->node >= 0 && !p->is_dead)
        d->wire = sim_wire_connect(p->nodes, d->node);
    d->state = d->wire ? SOCKET_OPEN : SOCKET_FAILED;
    d->failed = d->wire ? 0 : ECONNREFUSED;
}

static uint32_t socket_events(struct sim_program *p, struct sim_descriptor *d) {
    if (d->state == SOCKET_CONNECTING && d->due_ns <= sim_program_now_ns(p))
        socket_connect_now(p, d);
    if (d->state == SOCKET_FAILED)
        return EPOLLERR | EPOLLHUP | EPOLLIN | EPOLLOUT;
    if (d->state != SOCKET_OPEN)
        return 0;
    bool readable = sim_wire_is_readable(p->nodes, d->wire);
    bool writable = d->wire->pipes[0].bytes.size < UNSENT_MOST;
    return (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
}

static bool set_is_ready(struct sim_program *p, const struct sim_descriptor *set);

static uint32_t descriptor_events(struct sim_program *p, int fd) {
    struct sim_descriptor *d = descriptor_of(p, fd);
    switch (d->kind) {
    case IS_EVENT:
        return d->count ? EPOLLIN : 0;
    case IS_TIMER:
        return d->due_ns && d->due_ns <= sim_program_now_ns(p) ? EPOLLIN : 0;
    case IS_SET:
        return set_is_ready(p, d) ? EPOLLIN : 0;
    case IS_SOCKET:
        return socket_events(p, d);
    }
    return 0;
}

static uint32_t watched_events(struct sim_program *p, const struct watched *w) {
    return descriptor_events(p, w->fd) & (w->event.events | EPOLLERR | EPOLLHUP);
}

static bool set_is_ready(struct sim_program *p, const struct sim_descriptor *set) {
    for (int i = 0; i < set->watched_count; i++)
        if (watched_events(p, &set->watched[i]))
            return true;
    return false;
}

bool sim_descriptor_is_ready(struct sim_program *p, int fd) {
    return descriptor_events(p, fd) & EPOLLIN;
}

static int set_collect(struct sim_program *p, const struct sim_descriptor *set,
                       struct epoll_event *out, int most) {
    int count = 0;
    for (int i = 0; i < set->watched_count && count < most; i++) {
        uint32_t events = watched_events(p, &set->watched[i]);
        if (events)
            out[count++] =
                (struct epoll_event){ .events = events, .data = set->watched[i].event.data };
    }
    return count;
}

// ---- What programs call -------------------------------------------------------------------------

int __real_eventfd(unsigned, int);
int __real_timerfd_create(int, int);
int __real_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
int __real_epoll_create1(int);
int __real_epoll_ctl(int, int, int, struct epoll_event *);
int __real_epoll_wait(int, struct epoll_event *, int, int);
int __real_socket(int, int, int);
int __real_connect(int, const struct sockaddr *, socklen_t);
int __real_getsockopt(int, int, int, void *, socklen_t *);
int __real_setsockopt(int, int, int, const void *, socklen_t);
int __real_getsockname(int, struct sockaddr *, socklen_t *);
int __real_getpeername(int, struct sockaddr *, socklen_t *);
ssize_t __real_recv(int, void *, size_t, int);
ssize_t __real_send(int, const void *, size_t, int);
ssize_t __real_read(int, void *, size_t);
ssize_t __real_write(int, const void *, size_t);
int __real_close(int);
int __real_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
void __real_freeaddrinfo(struct addrinfo *);

int __wrap_eventfd(unsigned, int);
int __wrap_timerfd_create(int, int);
int __wrap_timerfd_settime(int, int, const struct itimerspec *, struct itimerspec *);
int __wrap_epoll_create1(int);
int __wrap_epoll_ctl(int, int, int, struct epoll_event *);
int __wrap_epoll_wait(int, struct epoll_event *, int, int);
int __wrap_socket(int, int, int);
int __wrap_connect(int, const struct sockaddr *, socklen_t);
int __wrap_getsockopt(int, int, int, void *, socklen_t *);
int __wrap_setsockopt(int, int, int, const void *, socklen_t);
int __wrap_getsockname(int, struct sockaddr *, socklen_t *);
int __wrap_getpeername(int, struct sockaddr *, socklen_t *);
ssize_t __wrap_recv(int, void *, size_t, int);
ssize_t __wrap_send(int, const void *, size_t, int);
ssize_t __wrap_read(int, void *, size_t);
ssize_t __wrap_write(int, const void *, size_t);
int __wrap_close(int);
int __wrap_getaddrinfo(const char *, const char *, const struct addrinfo *, struct addrinfo **);
void __wrap_freeaddrinfo(struct addrinfo *);

int __wrap_eventfd(unsigned count, int flags) {
    if (!sim_program_current())
        return __real_eventfd(count, flags);
    int fd = descriptor_make(IS_EVENT);
    if (fd >= 0)
        here(fd)->count = count;
    return fd;
}

int __wrap_timerfd_create(int clock, int flags) {
    return sim_program_current() ? descriptor_make(IS_TIMER) : __real_timerfd_create(clock, flags);
}

// Without repetition: it is not used.
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *at,
                           struct itimerspec *before) {
    if (!is_simulated(fd))
        return __real_timerfd_settime(fd, flags, at, before);
    assert(!before && !at->it_interval.tv_sec && !at->it_interval.tv_nsec);
    uint64_t ns = (uint64_t)at->it_value.tv_sec * 1000000000 + (uint64_t)at->it_value.tv_nsec;
    bool relative = ns && !(flags & TFD_TIMER_ABSTIME);
    here(fd)->due_ns = ns + (relative ? sim_program_now_ns(sim_program_current()) : 0);
    return 0;
}

int __wrap_epoll_create1(int flags) {
    return sim_program_current() ? descriptor_make(IS_SET) : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int set_fd, int operation, int fd, struct epoll_event *event) {
    if (!is_simulated(set_fd))
        return __real_epoll_ctl(set_fd, operation, fd, event);
    struct sim_descriptor *set = here(set_fd);
    set_forget(set, fd);
    assert(set->watched_count < WATCHED);
    if (operation != EPOLL_CTL_DEL)
        set->watched[set->watched_count++] = (struct watched){ fd, *event };
    return 0;
}

int __wrap_epoll_wait(int set_fd, struct epoll_event *out, int most, int wait_ms) {
    if (!is_simulated(set_fd))
        return __real_epoll_wait(set_fd, out, most, wait_ms);
    struct sim_program *p = sim_program_current();
    uint64_t until_ns =
        wait_ms < 0 ? UINT64_MAX : sim_program_now_ns(p) + (uint64_t)wait_ms * 1000000;
    int count = set_collect(p, here(set_fd), out, most);
    while (!count && sim_program_now_ns(p) < until_ns) {
        sim_thread_wait_descriptor(set_fd, until_ns);
        count = set_collect(p, here(set_fd), out, most);
    }
    return count;
}

int __wrap_socket(int domain, int type, int protocol) {
    return sim_program_current() ? descriptor_make(IS_SOCKET)
                                 : __real_socket(domain, type, protocol);
}

// Now and then neither an answer nor a refusal comes.
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t size) {
    if (!is_simulated(fd))
        return __real_connect(fd, to, size);
    struct sim_program *p = sim_program_current();
    struct sim_descriptor *d = here(fd);
    uint32_t host = ntohl(((const struct sockaddr_in *)(const void *)to)->sin_addr.s_addr) & 0xff;
    bool silent = !p->is_dead && sim_nodes_roll(p->nodes, 60) == 0;
    uint64_t ms = silent ? 3600000 : sim_nodes_roll(p->nodes, CONNECT_MOST_MS);
    d->node = host >= 1 && host <= (uint32_t)p->nodes->node_count ? (int)host - 1 : -1;
    d->state = SOCKET_CONNECTING;
    d->due_ns = sim_program_now_ns(p) + ms * 1000000;
    errno = EINPROGRESS;
    return -1;
}

int __wrap_getsockopt(int fd, int level, int name, void *out, socklen_t *size) {
    if (!is_simulated(fd))
        return __real_getsockopt(fd, level, name, out, size);
    assert(level == SOL_SOCKET && name == SO_ERROR && *size == sizeof(int));
    memcpy(out, &here(fd)->failed, sizeof(int));
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    return is_simulated(fd) ? 0 : __real_setsockopt(fd, level, name, value, size);
}

static int no_name(void) {
    errno = ENOTCONN;
    return -1;
}

int __wrap_getsockname(int fd, struct sockaddr *out, socklen_t *size) {
    return is_simulated(fd) ? no_name() : __real_getsockname(fd, out, size);
}

int __wrap_getpeername(int fd, struct sockaddr *out, socklen_t *size) {
    return is_simulated(fd) ? no_name() : __real_getpeername(fd, out, size);
}

static ssize_t fail_with(int failed) {
    errno = failed;
    return -1;
}

// Lines as they are on the wire, one behind another.
static void note_bytes(struct sim_program *p, int fd, const char *what, mr_bytes bytes) {
    char text[400];
    size_t used = 0;
    if (!p->nodes->prints)
        return;
    for (size_t i = 0; i < bytes.size && used < sizeof text - 1; i++) {
        char c = ((const char *)bytes.data)[i];
        if (c != '\r')
            text[used++] = c >= ' ' && c <= '~' ? c : ' ';
    }
    text[used] = 0;
    sim_nodes_note(p->nodes, "program %d, socket %d %s %s", p->index, fd - FIRST, what, text);
}

ssize_t __wrap_recv(int fd, void *to, size_t room, int flags) {
    if (!is_simulated(fd))
        return __real_recv(fd, to, room, flags);
    struct sim_program *p = sim_program_current();
    struct sim_descriptor *d = here(fd);
    if (d->state != SOCKET_OPEN)
        return fail_with(d->state == SOCKET_FAILED ? d->failed : ENOTCONN);
    ptrdiff_t size = sim_wire_read(p->nodes, d->wire, to, room);
    if (size < 0)
        return d->wire->is_cut ? fail_with(ECONNRESET) : 0;
    if (size)
        note_bytes(p, fd, "receives", (mr_bytes){ to, (size_t)size });
    return size ? size : fail_with(EAGAIN);
}

ssize_t __wrap_send(int fd, const void *data, size_t size, int flags) {
    if (!is_simulated(fd))
        return __real_send(fd, data, size, flags);
    struct sim_program *p = sim_program_current();
    struct sim_descriptor *d = here(fd);
    if (d->state != SOCKET_OPEN)
        return fail_with(d->state == SOCKET_FAILED ? d->failed : ENOTCONN);
    if (d->wire->is_cut || d->wire->closed[1])
        return fail_with(EPIPE);
    if (d->wire->pipes[0].bytes.size >= UNSENT_MOST || sim_nodes_roll(p->nodes, 50) == 0)
        return fail_with(EAGAIN);
    size_t part = sim_nodes_roll(p->nodes, 6) ? size : 1 + sim_nodes_roll(p->nodes, size);
    sim_wire_send(d->wire, (mr_bytes){ data, part });
    note_bytes(p, fd, "sends", (mr_bytes){ data, part });
    return (ssize_t)part;
}

static ssize_t read_count(struct sim_descriptor *d, void *to, size_t room) {
    struct sim_program *p = sim_program_current();
    uint64_t count =
        d->kind == IS_EVENT ? d->count : d->due_ns && d->due_ns <= sim_program_now_ns(p);
    assert(room == sizeof count);
    if (!count)
        return fail_with(EAGAIN);
    d->count = 0;
    if (d->kind == IS_TIMER)
        d->due_ns = 0;
    memcpy(to, &count, sizeof count);
    return sizeof count;
}

ssize_t __wrap_read(int fd, void *to, size_t room) {
    return is_simulated(fd) ? read_count(here(fd), to, room) : __real_read(fd, to, room);
}

ssize_t __wrap_write(int fd, const void *data, size_t size) {
    if (!is_simulated(fd))
        return __real_write(fd, data, size);
    uint64_t count;
    assert(here(fd)->kind == IS_EVENT && size == sizeof count);
    memcpy(&count, data, sizeof count);
    here(fd)->count += count;
    return (ssize_t)size;
}

int __wrap_close(int fd) {
    if (!is_simulated(fd))
        return __real_close(fd);
    descriptor_close(sim_program_current(), fd);
    return 0;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *wanted,
                       struct addrinfo **out) {
    if (!sim_program_current())
        return __real_getaddrinfo(host, port, wanted, out);
    struct {
        struct addrinfo info;
        struct sockaddr_in at;
    } *found = calloc(1, sizeof *found);
    assert(found);
    found->at = (struct sockaddr_in){ .sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)strtol(port, NULL, 10)) };
    int valid = inet_pton(AF_INET, host, &found->at.sin_addr);
    assert(valid == 1);
    found->info = (struct addrinfo){ .ai_family = AF_INET,
                                     .ai_socktype = SOCK_STREAM,
                                     .ai_addrlen = sizeof found->at,
                                     .ai_addr = (struct sockaddr *)&found->at };
    *out = &found->info;
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found) {
    if (sim_program_current())
        free(found);
    else
        __real_freeaddrinfo(found);
}
