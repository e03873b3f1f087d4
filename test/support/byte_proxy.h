// A proxy in front of a server, for tests: it loses connections and replies.
#ifndef TEST_SUPPORT_BYTE_PROXY_H
#define TEST_SUPPORT_BYTE_PROXY_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum byte_proxy_mode {
    PROXY_PASS,
    PROXY_REFUSE,       // ends every connection
    PROXY_LOSE_REPLIES, // passes requests, and ends a connection instead of passing a reply
    PROXY_HOLD_REPLIES, // passes requests, and no replies
};
enum { PROXY_PAIRS = 32 };

struct byte_proxy {
    struct sockaddr_storage target;
    socklen_t target_size;
    int listening, wake[2];
    _Atomic int mode;
    atomic_bool ends;
    int client[PROXY_PAIRS], server[PROXY_PAIRS], pairs;
    pthread_t thread;
};

static inline void byte_proxy_cut(struct byte_proxy *p, int pair) {
    close(p->client[pair]);
    close(p->server[pair]);
    p->pairs--;
    p->client[pair] = p->client[p->pairs];
    p->server[pair] = p->server[p->pairs];
}

static inline void byte_proxy_accept(struct byte_proxy *p) {
    int client = accept(p->listening, NULL, NULL);
    assert_true(client >= 0);
    int server = socket(p->target.ss_family, SOCK_STREAM, 0);
    bool refused = atomic_load(&p->mode) == PROXY_REFUSE || p->pairs == PROXY_PAIRS ||
                   connect(server, (struct sockaddr *)&p->target, p->target_size) < 0;
    p->client[p->pairs] = client;
    p->server[p->pairs++] = server;
    if (refused)
        byte_proxy_cut(p, p->pairs - 1);
}

// Whether the connection goes on.
static inline bool byte_proxy_copy(int from, int to) {
    char bytes[65536];
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0, n; got > 0 && sent < got; sent += n) {
        n = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (n < 0)
            return false;
    }
    return got > 0;
}

static inline void byte_proxy_pair(struct byte_proxy *p, int pair, bool request, bool reply) {
    int mode = atomic_load(&p->mode);
    bool goes_on = mode != PROXY_REFUSE;
    if (goes_on && request)
        goes_on = byte_proxy_copy(p->client[pair], p->server[pair]);
    if (goes_on && reply && mode == PROXY_LOSE_REPLIES)
        goes_on = false;
    if (goes_on && reply && mode == PROXY_PASS)
        goes_on = byte_proxy_copy(p->server[pair], p->client[pair]);
    if (!goes_on)
        byte_proxy_cut(p, pair);
}

static inline void *byte_proxy_run(void *arg) {
    struct byte_proxy *p = arg;
    while (!atomic_load(&p->ends)) {
        struct pollfd polled[2 + 2 * PROXY_PAIRS] = { { p->listening, POLLIN, 0 },
                                                      { p->wake[0], POLLIN, 0 } };
        bool holds = atomic_load(&p->mode) == PROXY_HOLD_REPLIES;
        int pairs = p->pairs;
        for (int i = 0; i < pairs; i++) {
            polled[2 + 2 * i] = (struct pollfd){ p->client[i], POLLIN, 0 };
            polled[3 + 2 * i] = (struct pollfd){ holds ? -1 : p->server[i], POLLIN, 0 };
        }
        if (poll(polled, 2 + 2 * (nfds_t)pairs, -1) < 0)
            break;
        char byte;
        if (polled[1].revents && read(p->wake[0], &byte, 1) < 0)
            break;
        for (int i = pairs; i-- > 0;) // from the end: a cut moves the last one
            if (polled[2 + 2 * i].revents || polled[3 + 2 * i].revents ||
                atomic_load(&p->mode) == PROXY_REFUSE)
                byte_proxy_pair(p, i, polled[2 + 2 * i].revents, polled[3 + 2 * i].revents);
        if (polled[0].revents)
            byte_proxy_accept(p);
    }
    while (p->pairs)
        byte_proxy_cut(p, 0);
    return NULL;
}

static inline void byte_proxy_set(struct byte_proxy *p, enum byte_proxy_mode mode) {
    atomic_store(&p->mode, (int)mode);
    assert_int_equal(write(p->wake[1], "", 1), 1);
}

// Passes connections to `listening` on to the target.
static inline void byte_proxy_start(struct byte_proxy *p, int listening, const void *target,
                                    socklen_t size) {
    memcpy(&p->target, target, size);
    p->target_size = size;
    p->listening = listening;
    assert_int_equal(listen(p->listening, 16), 0);
    assert_int_equal(pipe(p->wake), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, byte_proxy_run, p), 0);
}

static inline void byte_proxy_stop(struct byte_proxy *p) {
    atomic_store(&p->ends, true);
    byte_proxy_set(p, PROXY_REFUSE);
    pthread_join(p->thread, NULL);
    close(p->listening);
    close(p->wake[0]);
    close(p->wake[1]);
}

#endif
