// Connecting, waiting and the meaning of errors. A statement whose bytes were handed to libpq may
// have been executed, whatever its outcome here; only an error of severity ERROR proves that it was
// rolled back.
#include "log/postgres.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    SETTINGS_MOST = 64, // of a URL, with our own
    HOST_MOST = 256,
    PLACE_MOST = 400,
    SOON_MS = 2000, // how soon a server notices that the client of a running statement has gone
};

struct postgres {
    PQconninfoOption *url; // parsed
    uint32_t hosts, host;  // how many the URL has; the one to try first
    uint32_t connect_ms, call_ms;
    char purpose[CLUSTER_NAME_MOST + 32], cluster[CLUSTER_NAME_MOST + 1], synchronous_commit[16];
    char place[PLACE_MOST];
    PGconn *connection;  // NULL: none
    uint32_t prepared;   // a bit for each statement
    uint32_t sessions;   // how many there were
    bool running;        // text was started whose end is still to come
    bool warned;         // the server stopped waiting for its standby
    bool in_transaction; // of postgres_begin
    int wake;            // readable once interrupted
    atomic_bool interrupted;
};

// --- making one -------------------------------------------------------------------------------

static const char *url_value(const struct postgres *p, const char *keyword) {
    for (const PQconninfoOption *o = p->url; o->keyword; o++)
        if (!strcmp(o->keyword, keyword))
            return o->val && *o->val ? o->val : NULL;
    return NULL;
}

static uint32_t list_length(const char *list) {
    uint32_t length = 1;
    for (const char *c = list; *c; c++)
        length += *c == ',';
    return length;
}

static uint32_t host_count(const struct postgres *p) {
    const char *names = url_value(p, "host"), *addresses = url_value(p, "hostaddr");
    uint32_t a = names ? list_length(names) : 1, b = addresses ? list_length(addresses) : 1;
    return a > b ? a : b;
}

static bool cluster_name_valid(const char *name) {
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return length && length <= CLUSTER_NAME_MOST && !name[length];
}

static bool synchronous_commit_valid(const char *value) {
    static const char *const values[] = { "on", "remote_apply", "remote_write", "local", "off" };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!strcmp(value, values[i]))
            return true;
    return false;
}

static int options_check(const struct stream_postgres_options *o) {
    if (!cluster_name_valid(o->cluster))
        return error_set(MR_EINVAL,
                         "the name of a cluster has 1 to %d characters from a to z, 0 to 9 and _",
                         CLUSTER_NAME_MOST);
    if (o->synchronous_commit && !synchronous_commit_valid(o->synchronous_commit))
        return error_set(MR_EINVAL, "synchronous_commit is on, remote_apply, remote_write, local "
                                    "or off");
    return 0;
}

static int url_parse(struct postgres *p, const char *url) {
    char *problem = NULL;
    p->url = PQconninfoParse(url, &problem);
    if (p->url)
        return 0;
    const char *quoted = problem ? strstr(problem, ": \"") : NULL; // may have a password in it
    size_t size = quoted ? (size_t)(quoted - problem) : problem ? strcspn(problem, "\n") : 0;
    int err = problem ? error_set(MR_EINVAL, "the URL of PostgreSQL: %.*s", (int)size, problem)
                      : error_set(MR_ENOMEM, "out of memory for the URL of PostgreSQL");
    PQfreemem(problem);
    return err;
}

static int postgres_start(struct postgres *p, const struct stream_postgres_options *o,
                          const char *purpose) {
    p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->wake < 0)
        return error_set(MR_EIO, "eventfd: %s", strerror(errno));
    int err = url_parse(p, o->url);
    if (err < 0)
        return err;
    p->hosts = host_count(p);
    const char *seconds = url_value(p, "connect_timeout"); // libpq applies it to its own waits only
    long given_s = seconds ? strtol(seconds, NULL, 10) : 0;
    p->connect_ms = o->connect_ms                     ? o->connect_ms
                    : given_s > 0 && given_s <= 86400 ? (uint32_t)given_s * 1000
                                                      : POSTGRES_CONNECT_MS;
    p->call_ms = o->call_ms ? o->call_ms : POSTGRES_CALL_MS;
    snprintf(p->purpose, sizeof p->purpose, "millrace %s%s", o->cluster, purpose);
    snprintf(p->cluster, sizeof p->cluster, "%s", o->cluster);
    snprintf(p->synchronous_commit, sizeof p->synchronous_commit, "%s",
             o->synchronous_commit ? o->synchronous_commit : "on");
    return 0;
}

int postgres_create(const struct stream_postgres_options *o, const char *purpose,
                    struct postgres **out) {
    int err = options_check(o);
    if (err < 0)
        return err;
    struct postgres *p = mem_alloc(sizeof *p);
    if (!p)
        return error_set(MR_ENOMEM, "out of memory for a connection to PostgreSQL");
    p->wake = -1;
    err = postgres_start(p, o, purpose);
    if (err < 0) {
        postgres_destroy(p);
        return err;
    }
    *out = p;
    return 0;
}

void postgres_disconnect(struct postgres *p) {
    PQfinish(p->connection);
    p->connection = NULL;
    p->prepared = 0;
    p->running = false;
}

void postgres_destroy(struct postgres *p) {
    if (!p)
        return;
    postgres_disconnect(p);
    PQconninfoFree(p->url);
    if (p->wake >= 0)
        close(p->wake);
    mem_free(p);
}

void postgres_interrupt(struct postgres *p) {
    atomic_store(&p->interrupted, true);
    ssize_t written = write(p->wake, &(uint64_t){ 1 }, sizeof(uint64_t));
    assert(written == sizeof(uint64_t)); // the counter is far from its end
}

const char *postgres_place(struct postgres *p) {
    const char *database = p->connection ? PQdb(p->connection) : url_value(p, "dbname");
    const char *host = p->connection ? PQhost(p->connection) : url_value(p, "host");
    snprintf(p->place, sizeof p->place, "database %s at %s", database ? database : "(default)",
             host && *host ? host : "(default)");
    return p->place;
}

// --- waiting ----------------------------------------------------------------------------------

// Waits until the socket is ready; 0, or STREAM_UNAVAILABLE with the reason.
static int socket_wait(struct postgres *p, short events, uint64_t until_ms) {
    for (;;) {
        if (atomic_load(&p->interrupted))
            return error_set(STREAM_UNAVAILABLE, "%s: interrupted", postgres_place(p));
        int64_t left_ms = wait_ms_until(until_ms, monotonic_ms());
        if (left_ms == 0)
            return error_set(STREAM_UNAVAILABLE, "%s: no answer in time", postgres_place(p));
        struct pollfd polled[] = {
            { .fd = PQsocket(p->connection), .events = events },
            { .fd = p->wake, .events = POLLIN },
        };
        int ready = poll(polled, 2, (int)(left_ms < 60000 ? left_ms : 60000));
        if (ready < 0 && errno != EINTR)
            return error_set(STREAM_UNAVAILABLE, "%s: poll: %s", postgres_place(p),
                             strerror(errno));
        if (ready > 0 && polled[0].revents)
            return 0;
    }
}

// The server's first line, without its prefix: one line fits into one sentence.
static int connection_failed(struct postgres *p) {
    const char *message = PQerrorMessage(p->connection);
    return error_set(STREAM_UNAVAILABLE, "%s: %.*s", postgres_place(p), (int)strcspn(message, "\n"),
                     *message ? message : "the connection was lost");
}

static int send_all(struct postgres *p, uint64_t until_ms) {
    for (;;) {
        int left = PQflush(p->connection);
        if (left == 0)
            return 0;
        if (left < 0)
            return connection_failed(p);
        // A server that answers before it has read everything must be listened to, too.
        int err = socket_wait(p, POLLIN | POLLOUT, until_ms);
        if (err)
            return err;
        if (!PQconsumeInput(p->connection))
            return connection_failed(p);
    }
}

// The next result, NULL at the end.
static int result_wait(struct postgres *p, uint64_t until_ms, PGresult **out) {
    while (PQisBusy(p->connection)) {
        int err = socket_wait(p, POLLIN, until_ms);
        if (err)
            return err;
        if (!PQconsumeInput(p->connection))
            return connection_failed(p);
    }
    *out = PQgetResult(p->connection);
    return 0;
}

static bool result_failed(const PGresult *r) {
    ExecStatusType status = PQresultStatus(r);
    return status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY;
}

// Reads to the end of what was sent; `out` gets the last result, or the first that failed.
static int results_read(struct postgres *p, uint64_t until_ms, PGresult **out) {
    int err = send_all(p, until_ms);
    PGresult *kept = NULL;
    for (PGresult *next = NULL; !err; next = NULL) {
        err = result_wait(p, until_ms, &next);
        if (err || !next)
            break;
        if (kept && result_failed(kept)) {
            PQclear(next);
            continue;
        }
        PQclear(kept);
        kept = next;
    }
    if (!err && !kept)
        err = connection_failed(p);
    if (err)
        PQclear(kept);
    else
        *out = kept;
    return err;
}

// --- the meaning of errors --------------------------------------------------------------------

static const struct {
    const char *state; // SQLSTATE, or its first characters
    int code;
    const char *advice;
} meanings[] = {
    { "42501", MR_EPERM, "; grant this role what it needs, or connect as the owner of the tables" },
    { "53100", MR_EFULL, "; make room on its disk" },
    { "25006", STREAM_UNAVAILABLE, "; this server is read-only now" },
    { "XX001", MR_ECORRUPT, "; check and restore the database" },
    { "XX002", MR_ECORRUPT, "; reindex and check the database" },
    { "23", MR_ECORRUPT, "; other programs have changed the tables" },
    { "22", MR_EINVAL, "" },
    { "54", MR_ETOOBIG, "" },
};

static bool tables_missing(const char *state) {
    return !strcmp(state, "42P01") || !strcmp(state, "3F000") || !strcmp(state, "42703");
}

static int result_meaning(struct postgres *p, const PGresult *r) {
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
    state = state ? state : "";
    message = message ? message : PQresultErrorMessage(r);
    if (tables_missing(state))
        return error_set(MR_EINVAL,
                         "%s has no cluster '%s' (%s); make it with: millrace store init "
                         "postgres://… --cluster %s --shards N",
                         postgres_place(p), p->cluster, message, p->cluster);
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (!strncmp(state, meanings[i].state, strlen(meanings[i].state)))
            return error_set(meanings[i].code, "%s: %s%s", postgres_place(p), message,
                             meanings[i].advice);
    return error_set(STREAM_UNAVAILABLE, "%s: %s", postgres_place(p), message);
}

// Whether the session is of no more use: it has ended, or it is on a server that was demoted.
static bool session_over(const PGresult *r) {
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    return !severity || !strcmp(severity, "FATAL") || !strcmp(severity, "PANIC") || !state ||
           !strcmp(state, "25006");
}

static bool rolled_back(const PGresult *r) {
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    return severity && !strcmp(severity, "ERROR");
}

static void notice_receive(void *arg, const PGresult *notice) {
    struct postgres *p = arg;
    const char *state = PQresultErrorField(notice, PG_DIAG_SQLSTATE);
    // A cancelled wait for the standby has no code of its own: 01000, or 57P01 when the session
    // ends, too. Any other warning of that class only costs the caller a new claim.
    if (state && (!strcmp(state, "01000") || !strcmp(state, "57P01")))
        p->warned = true;
}

// What the outcome of a statement that was handed to libpq means to the caller.
static int outcome(struct postgres *p, int err, bool writes, PGresult *r, PGresult **out) {
    if (err) {
        postgres_disconnect(p); // the result may still arrive; it must not answer another statement
        return writes ? (int)STREAM_IN_DOUBT : err;
    }
    if (result_failed(r)) {
        bool over = session_over(r), doubtful = writes && !rolled_back(r);
        err = result_meaning(p, r);
        PQclear(r);
        if (over)
            postgres_disconnect(p);
        return doubtful ? (int)STREAM_IN_DOUBT : err;
    }
    if (writes && p->warned) {
        PQclear(r);
        return error_set(STREAM_IN_DOUBT,
                         "%s: the server no longer waited for its standby: committed there, not "
                         "known to be replicated",
                         postgres_place(p));
    }
    *out = r;
    return STREAM_DONE;
}

// --- connecting -------------------------------------------------------------------------------

// Copies the item of a comma-separated list; a list of one item is the same for all hosts.
static const char *list_item(const char *list, uint32_t index, char *to, size_t room) {
    if (!list)
        return NULL;
    uint32_t length = list_length(list);
    for (uint32_t i = 0; i < index && length > 1; i++) {
        list = strchr(list, ',');
        if (!list)
            return NULL;
        list++;
    }
    snprintf(to, room, "%.*s", (int)strcspn(list, ","), list);
    return to;
}

struct settings {
    const char *keywords[SETTINGS_MOST + 1], *values[SETTINGS_MOST + 1];
    int count;
    char host[HOST_MOST], address[HOST_MOST], port[16], user_timeout[16];
};

static void setting_add(struct settings *s, const char *keyword, const char *value) {
    if (!value || !*value)
        return;
    assert(s->count < SETTINGS_MOST);
    s->keywords[s->count] = keyword;
    s->values[s->count++] = value;
}

// A later value of a keyword replaces an earlier one: ours, which the URL may change, then the
// URL's, then those of this host. Hosts are tried one by one, because libpq would give all the time
// to the first one if that does not answer.
static void settings_fill(const struct postgres *p, uint32_t host, struct settings *s) {
    snprintf(s->user_timeout, sizeof s->user_timeout, "%u", (unsigned)p->call_ms);
    setting_add(s, "target_session_attrs", "read-write");
    setting_add(s, "application_name", p->purpose);
    setting_add(s, "keepalives_idle", "5");
    setting_add(s, "keepalives_interval", "2");
    setting_add(s, "keepalives_count", "3");
    setting_add(s, "tcp_user_timeout", s->user_timeout);
    for (const PQconninfoOption *o = p->url; o->keyword; o++)
        setting_add(s, o->keyword, o->val);
    setting_add(s, "host", list_item(url_value(p, "host"), host, s->host, sizeof s->host));
    setting_add(s, "hostaddr",
                list_item(url_value(p, "hostaddr"), host, s->address, sizeof s->address));
    setting_add(s, "port", list_item(url_value(p, "port"), host, s->port, sizeof s->port));
    setting_add(s, "client_encoding", "UTF8");
}

static int handshake(struct postgres *p, uint64_t until_ms) {
    PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;
    while (wanted != PGRES_POLLING_OK) {
        if (wanted == PGRES_POLLING_FAILED || PQstatus(p->connection) == CONNECTION_BAD)
            return connection_failed(p);
        int err = socket_wait(p, wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT, until_ms);
        if (err)
            return err;
        wanted = PQconnectPoll(p->connection);
    }
    return PQsetnonblocking(p->connection, 1) ? connection_failed(p) : 0;
}

// What every session needs. Statements find their rows by key whatever the statistics say, see the
// newest committed rows, and end on the server soon after they were given up here. A wait for a
// lock ends before ours does: then it is certain that nothing happened.
static int session_set_up(struct postgres *p) {
    char sql[1024], watch[80] = "";
    if (PQserverVersion(p->connection) >= 140000)
        snprintf(watch, sizeof watch, "SET client_connection_check_interval = %d;", SOON_MS);
    snprintf(sql, sizeof sql,
             "SET client_min_messages = warning; SET search_path = millrace_%s;"
             "SET synchronous_commit = %s; SET default_transaction_isolation = 'read committed';"
             "SET lock_timeout = %u; SET idle_in_transaction_session_timeout = %u; %s"
             "SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off;"
             "SET plan_cache_mode = force_generic_plan",
             p->cluster, p->synchronous_commit, p->call_ms / 4 * 3 + 1, p->call_ms, watch);
    PGresult *r = NULL;
    p->warned = false;
    int err = PQsendQuery(p->connection, sql) ? results_read(p, monotonic_ms() + p->call_ms, &r)
                                              : connection_failed(p);
    err = outcome(p, err, false, r, &r);
    if (!err)
        PQclear(r);
    return err;
}

static int host_connect(struct postgres *p, uint32_t host) {
    struct settings s = { 0 };
    settings_fill(p, host, &s);
    p->connection = PQconnectStartParams(s.keywords, s.values, 0);
    if (!p->connection)
        return error_set(MR_ENOMEM, "out of memory for a connection to PostgreSQL");
    PQsetNoticeReceiver(p->connection, notice_receive, p);
    int err = handshake(p, monotonic_ms() + p->connect_ms);
    if (!err)
        err = session_set_up(p);
    if (err)
        postgres_disconnect(p);
    return err;
}

// Whether the server has closed an idle connection: then nothing needs to be in doubt.
static bool connection_stale(struct postgres *p) {
    struct pollfd polled = { .fd = PQsocket(p->connection), .events = POLLIN };
    if (poll(&polled, 1, 0) <= 0)
        return PQstatus(p->connection) == CONNECTION_BAD;
    return !PQconsumeInput(p->connection) || PQstatus(p->connection) == CONNECTION_BAD;
}

// Takes what is left of started text. A session that waits for that for long is replaced.
static void started_finish(struct postgres *p) {
    PGresult *r = NULL;
    p->running = false;
    if (results_read(p, monotonic_ms() + p->call_ms, &r))
        postgres_disconnect(p);
    else
        PQclear(r);
}

int postgres_connect(struct postgres *p) {
    if (p->connection && p->running)
        started_finish(p);
    if (p->connection && connection_stale(p))
        postgres_disconnect(p);
    if (p->connection)
        return 0;
    if (p->in_transaction)
        return error_set(MR_ENET,
                         "%s: the connection was lost, and with it the transaction; try again",
                         postgres_place(p));
    int err = 0;
    for (uint32_t i = 0; i < p->hosts; i++) {
        uint32_t host = (p->host + i) % p->hosts;
        err = host_connect(p, host);
        if (!err) {
            p->host = host;
            p->sessions++;
        }
        if (err != STREAM_UNAVAILABLE || atomic_load(&p->interrupted))
            break;
    }
    return err;
}

uint32_t postgres_sessions(const struct postgres *p) {
    return p->sessions;
}

// --- statements -------------------------------------------------------------------------------

void postgres_add_number(struct postgres_arguments *a, uint64_t number) {
    assert(a->count < POSTGRES_ARGUMENTS);
    a->numbers[a->count] = htobe64(number);
    a->sizes[a->count++] = sizeof(uint64_t);
}

void postgres_add_bytes(struct postgres_arguments *a, mr_bytes bytes) {
    assert(a->count < POSTGRES_ARGUMENTS);
    a->bytes[a->count] = bytes.size ? bytes.data : "";
    a->sizes[a->count++] = (int)bytes.size;
}

static int statement_prepare(struct postgres *p, const struct postgres_statement *s,
                             const char *name) {
    if (p->prepared & 1u << s->number)
        return 0;
    PGresult *r = NULL;
    int err = PQsendPrepare(p->connection, name, s->sql, 0, NULL)
                  ? results_read(p, monotonic_ms() + p->call_ms, &r)
                  : connection_failed(p);
    err = outcome(p, err, false, r, &r);
    if (err)
        return err;
    PQclear(r);
    p->prepared |= 1u << s->number;
    return 0;
}

int postgres_run(struct postgres *p, const struct postgres_statement *s,
                 const struct postgres_arguments *a, PGresult **out) {
    static const int binary[POSTGRES_ARGUMENTS] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    char name[16];
    snprintf(name, sizeof name, "s%u", (unsigned)s->number);
    int err = postgres_connect(p);
    if (!err)
        err = statement_prepare(p, s, name);
    if (err)
        return err;
    const char *values[POSTGRES_ARGUMENTS];
    for (int i = 0; i < a->count; i++)
        values[i] = a->bytes[i] ? a->bytes[i] : (const char *)&a->numbers[i];
    p->warned = false;
    PGresult *r = NULL;
    err = PQsendQueryPrepared(p->connection, name, a->count, values, a->sizes, binary, 1)
              ? results_read(p, monotonic_ms() + p->call_ms, &r)
              : connection_failed(p);
    return outcome(p, err, s->writes, r, out);
}

int postgres_run_text(struct postgres *p, const char *sql, PGresult **out) {
    int err = postgres_connect(p);
    if (err)
        return err;
    p->warned = false;
    PGresult *r = NULL;
    err = PQsendQuery(p->connection, sql) ? results_read(p, monotonic_ms() + p->call_ms, &r)
                                          : connection_failed(p);
    return outcome(p, err, true, r, out);
}

int postgres_do(struct postgres *p, const char *sql) {
    PGresult *r = NULL;
    int err = postgres_run_text(p, sql, &r);
    if (!err)
        PQclear(r);
    return err;
}

int postgres_begin(struct postgres *p, const char *sql) {
    int err = postgres_do(p, sql);
    p->in_transaction = true;
    return err;
}

int postgres_commit(struct postgres *p) {
    return postgres_do(p, "COMMIT");
}

bool postgres_start_text(struct postgres *p, const char *sql) {
    if (p->connection && p->running) {
        if (PQconsumeInput(p->connection) && PQisBusy(p->connection))
            return false;
        started_finish(p);
    }
    if (postgres_connect(p) || !PQsendQuery(p->connection, sql))
        return false;
    p->running = true;
    if (send_all(p, monotonic_ms() + p->call_ms))
        postgres_disconnect(p);
    return p->running;
}

// --- fields -----------------------------------------------------------------------------------

mr_bytes postgres_bytes(const PGresult *r, int row, int column) {
    return (mr_bytes){ PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column) };
}

uint64_t postgres_number(const PGresult *r, int row, int column) {
    uint64_t number = 0;
    assert(PQgetlength(r, row, column) == sizeof number); // all our numbers are bigint
    memcpy(&number, PQgetvalue(r, row, column), sizeof number);
    return be64toh(number);
}
