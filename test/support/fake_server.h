// Servers for tests: one that sends what a test wants, and a proxy in front of a real one that
// breaks connections. Loopback only.
#ifndef TEST_SUPPORT_FAKE_SERVER_H
#define TEST_SUPPORT_FAKE_SERVER_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static inline int atoi_of(const char *text) {
    return (int)strtol(text, NULL, 10);
}

static inline int listen_somewhere(uint16_t *out_port) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *out_port = ntohs(at.sin_port);
    return fd;
}

// A port on which no process listens.
static inline uint16_t free_port(void) {
    uint16_t port;
    close(listen_somewhere(&port));
    return port;
}

// ---- One that sends what a test wants ---------------------------------------------------------

typedef void fake_serve(int fd, int number, void *arg); // one connection; number counts from 0

enum { FAKE_CONNECTIONS = 64 };

struct fake_connection {
    struct fake *fake;
    int fd, number;
    pthread_t thread;
};

struct fake {
    int listener;
    char url[64];
    fake_serve *serve;
    void *arg;
    pthread_t thread;
    struct fake_connection connections[FAKE_CONNECTIONS];
    int count;
};

static inline void *fake_connection_thread(void *arg) {
    struct fake_connection *c = arg;
    c->fake->serve(c->fd, c->number, c->fake->arg);
    close(c->fd);
    return NULL;
}

static inline void *fake_thread(void *arg) {
    struct fake *f = arg;
    for (; f->count < FAKE_CONNECTIONS; f->count++) {
        struct fake_connection *c = &f->connections[f->count];
        *c = (struct fake_connection){ .fake = f, .number = f->count };
        c->fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        if (c->fd < 0 || pthread_create(&c->thread, NULL, fake_connection_thread, c) != 0)
            break;
    }
    return NULL;
}

static inline void fake_start(struct fake *f, fake_serve *serve, void *arg) {
    uint16_t port;
    f->listener = listen_somewhere(&port);
    snprintf(f->url, sizeof f->url, "millrace://127.0.0.1:%u", port);
    f->serve = serve;
    f->arg = arg;
    f->count = 0;
    assert_int_equal(pthread_create(&f->thread, NULL, fake_thread, f), 0);
}

// After its clients have disconnected.
static inline void fake_stop(struct fake *f) {
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->thread, NULL);
    for (int i = 0; i < f->count; i++)
        pthread_join(f->connections[i].thread, NULL);
    close(f->listener);
}

static inline void fake_say(int fd, const char *text) {
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

// Reads until a whole request that has the word is there, which is kept; what comes before it is
// skipped. False: the client has disconnected.
static inline bool fake_receive(int fd, const char *word, char *out, size_t room) {
    size_t used = 0;
    for (;;) {
        ssize_t size = recv(fd, out + used, room - used - 1, 0);
        if (size <= 0)
            return false;
        used += (size_t)size;
        out[used] = 0;
        char *at = strstr(out, word), *begin = at;
        while (begin && begin > out && *begin != '*')
            begin--;
        if (begin) {
            memmove(out, begin, strlen(begin) + 1);
            return true;
        }
    }
}

// Reads on until a request that has `last` is there: all from the first that has `word`.
static inline bool fake_receive_last(int fd, const char *word, const char *last, char *out,
                                     size_t room) {
    if (!fake_receive(fd, word, out, room))
        return false;
    size_t used = strlen(out);
    const char *end = NULL;
    while (!(end = strstr(out, last)) || !strstr(end, "SOURCE") || out[used - 1] != '\n') {
        ssize_t size = recv(fd, out + used, room - used - 1, 0);
        if (size <= 0)
            return false;
        used += (size_t)size;
        out[used] = 0;
    }
    return true;
}

// Receives HELLO and the rest of the greeting, and answers the first two.
static inline bool fake_hello(int fd) {
    char received[2048];
    if (!fake_receive(fd, "INFO", received, sizeof received))
        return false;
    fake_say(fd, "%2\r\n$6\r\nserver\r\n$8\r\nmillrace\r\n$2\r\nid\r\n:1\r\n+OK\r\n");
    return true;
}

static inline bool fake_greet(int fd) {
    if (!fake_hello(fd))
        return false;
    fake_say(fd, "$9\r\nloading:0\r\n");
    return true;
}

// Sends nothing until the client closes.
static inline void fake_listens(int fd, int number, void *arg) {
    char received[512];
    (void)number, (void)arg;
    while (recv(fd, received, sizeof received, 0) > 0)
        continue;
}

static inline void fake_greets(int fd, int number, void *arg) {
    if (fake_greet(fd))
        fake_listens(fd, number, arg);
}

static inline void fake_says(int fd, int number, void *text) {
    (void)number;
    fake_say(fd, text);
    shutdown(fd, SHUT_WR);
    fake_listens(fd, number, NULL);
}

// ---- A proxy that breaks connections off ------------------------------------------------------

enum { PROXY_PAIRS = 64 };

struct proxy {
    int listener;
    uint16_t port; // of the server
    char url[64];
    atomic_int loss_percent;
    uint64_t dice;
    int pairs[PROXY_PAIRS][2];
    int pair_count;
    pthread_t thread;
    int stop[2];
};

static inline void proxy_cut(struct proxy *p, int pair) {
    close(p->pairs[pair][0]);
    close(p->pairs[pair][1]);
    p->pair_count--;
    memmove(p->pairs[pair], p->pairs[p->pair_count], sizeof p->pairs[pair]);
}

static inline void proxy_accept(struct proxy *p) {
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                              .sin_port = htons(p->port) };
    int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fits = client >= 0 && p->pair_count < PROXY_PAIRS &&
                connect(server, (struct sockaddr *)&at, sizeof at) == 0;
    if (!fits) {
        close(client);
        close(server);
        return;
    }
    p->pairs[p->pair_count][0] = client;
    p->pairs[p->pair_count++][1] = server;
}

// Passes one piece on, or loses it and the connection with it. False: it is closed.
static inline bool proxy_pass(struct proxy *p, int pair, int from) {
    static char piece[64 << 10];
    ssize_t size = recv(p->pairs[pair][from], piece, sizeof piece, 0);
    p->dice = p->dice * 6364136223846793005u + 1442695040888963407u;
    bool lost = (int)(p->dice >> 33) % 100 < atomic_load(&p->loss_percent);
    if (size <= 0 || lost)
        return false;
    return send(p->pairs[pair][!from], piece, (size_t)size, MSG_NOSIGNAL) == size;
}

static inline void *proxy_thread(void *arg) {
    struct proxy *p = arg;
    for (;;) {
        struct pollfd fds[2 + 2 * PROXY_PAIRS] = { { p->stop[0], POLLIN, 0 },
                                                   { p->listener, POLLIN, 0 } };
        int count = p->pair_count;
        for (int i = 0; i < 2 * count; i++)
            fds[2 + i] = (struct pollfd){ p->pairs[i / 2][i % 2], POLLIN, 0 };
        poll(fds, (nfds_t)(2 + 2 * count), -1);
        if (fds[0].revents)
            return NULL;
        for (int i = count - 1; i >= 0; i--) { // from the last: a cut moves that to its place
            bool whole = true;
            for (int from = 0; whole && from < 2; from++)
                if (fds[2 + 2 * i + from].revents)
                    whole = proxy_pass(p, i, from);
            if (!whole)
                proxy_cut(p, i);
        }
        if (fds[1].revents)
            proxy_accept(p);
    }
}

static inline void proxy_start(struct proxy *p, uint16_t port, int loss_percent) {
    uint16_t own;
    *p = (struct proxy){ .port = port, .dice = 7 };
    atomic_init(&p->loss_percent, loss_percent);
    p->listener = listen_somewhere(&own);
    snprintf(p->url, sizeof p->url, "millrace://127.0.0.1:%u", own);
    assert_int_equal(pipe(p->stop), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, proxy_thread, p), 0);
}

static inline void proxy_stop(struct proxy *p) {
    assert_int_equal(write(p->stop[1], "x", 1), 1);
    pthread_join(p->thread, NULL);
    while (p->pair_count)
        proxy_cut(p, 0);
    close(p->listener);
    close(p->stop[0]);
    close(p->stop[1]);
}

#endif
