// For tests beside PostgreSQL (with_postgres.py): SQL of an administrator, streams, and a proxy
// that loses connections and replies.
#ifndef TEST_SUPPORT_POSTGRES_SUPPORT_H
#define TEST_SUPPORT_POSTGRES_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/errors.h"
#include "log/stream_postgres.h"

#include <libpq-fe.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// How to connect to the server, and to its standby. Further settings may be appended.
static inline const char *postgres_in(const char *variable, char to[128]) {
    const char *dir = getenv(variable);
    assert_non_null(dir);
    snprintf(to, 128, "host=%s user=postgres dbname=postgres", dir);
    return to;
}

static inline const char *postgres_of_test(void) {
    static char url[128];
    return postgres_in("MILLRACE_POSTGRES", url);
}

static inline const char *standby_of_test(void) {
    static char url[128];
    return postgres_in("MILLRACE_POSTGRES_STANDBY", url);
}

// Runs SQL and returns the first field as a number; 0 if there is none.
__attribute__((format(printf, 2, 3))) static inline long sql_run(const char *where,
                                                                 const char *format, ...) {
    char sql[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    PGconn *c = PQconnectdb(where);
    PQclear(PQexec(c, "SET client_min_messages = warning"));
    PGresult *r = PQexec(c, sql);
    ExecStatusType status = PQresultStatus(r);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        fail_msg("%s: %s%s", sql, PQerrorMessage(c), PQresultErrorMessage(r));
    long value = PQntuples(r) && PQnfields(r) ? strtol(PQgetvalue(r, 0, 0), NULL, 10) : 0;
    PQclear(r);
    PQfinish(c);
    return value;
}
#define SQL(...) sql_run(postgres_of_test(), __VA_ARGS__)

// Repeats a query until it answers something but 0. The program's own timeout ends what hangs.
#define SQL_AWAIT(...)                                                                             \
    ({                                                                                             \
        long value_;                                                                               \
        do                                                                                         \
            value_ = SQL(__VA_ARGS__);                                                             \
        while (!value_);                                                                           \
        value_;                                                                                    \
    })

// --- a proxy ------------------------------------------------------------------------------------

enum pg_proxy_mode {
    PROXY_PASS,
    PROXY_REFUSE,       // ends every connection
    PROXY_LOSE_REPLIES, // passes requests, and ends a connection instead of passing a reply
    PROXY_HOLD_REPLIES, // passes requests, and no replies
};
enum { PROXY_PAIRS = 32 };

struct pg_proxy {
    char dir[64], target[108];
    int listening, wake[2];
    _Atomic int mode;
    atomic_bool ends;
    int client[PROXY_PAIRS], server[PROXY_PAIRS], pairs;
    pthread_t thread;
};

static inline struct sockaddr_un socket_named(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return address;
}

static inline void pg_proxy_cut(struct pg_proxy *p, int pair) {
    close(p->client[pair]);
    close(p->server[pair]);
    p->pairs--;
    p->client[pair] = p->client[p->pairs];
    p->server[pair] = p->server[p->pairs];
}

static inline void pg_proxy_accept(struct pg_proxy *p) {
    int client = accept(p->listening, NULL, NULL);
    assert_true(client >= 0);
    struct sockaddr_un address = socket_named(p->target);
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    bool refused = atomic_load(&p->mode) == PROXY_REFUSE || p->pairs == PROXY_PAIRS ||
                   connect(server, (struct sockaddr *)&address, sizeof address) < 0;
    p->client[p->pairs] = client;
    p->server[p->pairs++] = server;
    if (refused)
        pg_proxy_cut(p, p->pairs - 1);
}

// Whether the connection goes on.
static inline bool pg_proxy_copy(int from, int to) {
    char bytes[65536];
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    for (ssize_t sent = 0, n; got > 0 && sent < got; sent += n) {
        n = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (n < 0)
            return false;
    }
    return got > 0;
}

static inline void pg_proxy_pair(struct pg_proxy *p, int pair, bool request, bool reply) {
    int mode = atomic_load(&p->mode);
    bool goes_on = mode != PROXY_REFUSE;
    if (goes_on && request)
        goes_on = pg_proxy_copy(p->client[pair], p->server[pair]);
    if (goes_on && reply && mode == PROXY_LOSE_REPLIES)
        goes_on = false;
    if (goes_on && reply && mode == PROXY_PASS)
        goes_on = pg_proxy_copy(p->server[pair], p->client[pair]);
    if (!goes_on)
        pg_proxy_cut(p, pair);
}

static inline void *pg_proxy_run(void *arg) {
    struct pg_proxy *p = arg;
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
                pg_proxy_pair(p, i, polled[2 + 2 * i].revents, polled[3 + 2 * i].revents);
        if (polled[0].revents)
            pg_proxy_accept(p);
    }
    while (p->pairs)
        pg_proxy_cut(p, 0);
    return NULL;
}

static inline void pg_proxy_set(struct pg_proxy *p, enum pg_proxy_mode mode) {
    atomic_store(&p->mode, (int)mode);
    assert_int_equal(write(p->wake[1], "", 1), 1);
}

// In front of the server's unix socket `target`; clients connect to host=`dir`.
static inline void pg_proxy_start(struct pg_proxy *p, const char *target) {
    snprintf(p->dir, sizeof p->dir, "/tmp/millrace-proxy-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    int copied = snprintf(p->target, sizeof p->target, "%s", target);
    assert_in_range(copied, 1, sizeof p->target - 1);
    char path[108];
    int size = snprintf(path, sizeof path, "%s/.s.PGSQL.5432", p->dir);
    assert_in_range(size, 1, sizeof path - 1);
    struct sockaddr_un address = socket_named(path);
    p->listening = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(p->listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(p->listening, 16), 0);
    assert_int_equal(pipe(p->wake), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, pg_proxy_run, p), 0);
}

static inline void pg_proxy_stop(struct pg_proxy *p) {
    atomic_store(&p->ends, true);
    pg_proxy_set(p, PROXY_REFUSE);
    pthread_join(p->thread, NULL);
    char path[108];
    snprintf(path, sizeof path, "%s/.s.PGSQL.5432", p->dir);
    unlink(path);
    rmdir(p->dir);
    close(p->listening);
    close(p->wake[0]);
    close(p->wake[1]);
}

#endif
