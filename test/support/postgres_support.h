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
#include "support/byte_proxy.h"

#include <libpq-fe.h>
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

struct pg_proxy {
    char dir[64];
    struct byte_proxy bytes;
};

static inline struct sockaddr_un socket_named(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int size = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_in_range(size, 1, sizeof address.sun_path - 1);
    return address;
}

// In front of the server's unix socket `target`; clients connect to host=`dir`.
static inline void pg_proxy_start(struct pg_proxy *p, const char *target) {
    snprintf(p->dir, sizeof p->dir, "/tmp/millrace-proxy-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    char path[108];
    int size = snprintf(path, sizeof path, "%s/.s.PGSQL.5432", p->dir);
    assert_in_range(size, 1, sizeof path - 1);
    struct sockaddr_un address = socket_named(path), server = socket_named(target);
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    byte_proxy_start(&p->bytes, listening, &server, sizeof server);
}

static inline void pg_proxy_set(struct pg_proxy *p, enum byte_proxy_mode mode) {
    byte_proxy_set(&p->bytes, mode);
}

static inline void pg_proxy_stop(struct pg_proxy *p) {
    byte_proxy_stop(&p->bytes);
    char path[108];
    snprintf(path, sizeof path, "%s/.s.PGSQL.5432", p->dir);
    unlink(path);
    rmdir(p->dir);
}

#endif
