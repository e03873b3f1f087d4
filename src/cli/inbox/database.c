// See database.h.
#include "cli/inbox/database.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

// ---- Sessions ---------------------------------------------------------------------------------

bool database_url_is_valid(const char *url) {
    return strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0;
}

// The sentences of libpq have several lines, the last of which ends, too.
static int database_error(int err, const char *before, const char *said) {
    char line[900];
    size_t size = 0;
    for (; said && *said && size < sizeof line - 1; said++) {
        bool is_blank = *said == '\n' || *said == '\t' || *said == ' ';
        if (!is_blank)
            line[size++] = *said;
        else if (size && line[size - 1] != ' ')
            line[size++] = ' ';
    }
    while (size && line[size - 1] == ' ')
        size--;
    line[size] = 0;
    return error_set(err, "%s%s", before, size ? line : "no reason is known");
}

// Notices, for example that a trigger to be dropped is not there, are of no interest.
static void database_ignore_notice(void *arg, const char *said) {
    (void)arg;
    (void)said;
}

// What stands before dbname holds unless the URL says otherwise: a server that has vanished is
// noticed within about a minute, not after the two hours of TCP.
int database_open(struct database *d, const char *url) {
    static const char *const names[] = {
        "connect_timeout",  "keepalives_idle",  "keepalives_interval",
        "keepalives_count", "tcp_user_timeout", "fallback_application_name",
        "dbname",           "client_encoding",  NULL
    };
    const char *const values[] = { "10", "30",   "10", "3", "60000", "millrace inbox",
                                   url,  "UTF8", NULL };
    database_close(d);
    d->session = PQconnectdbParams(names, values, 1);
    if (d->session && PQstatus(d->session) == CONNECTION_OK) {
        PQsetNoticeProcessor(d->session, database_ignore_notice, NULL);
        return 0;
    }
    int err = database_error(MR_ENET, "the database cannot be used: ",
                             d->session ? PQerrorMessage(d->session) : "no memory");
    database_close(d);
    return err;
}

void database_close(struct database *d) {
    PQclear(d->result);
    PQfinish(d->session);
    d->result = NULL;
    d->session = NULL;
}

// ---- Queries ----------------------------------------------------------------------------------

static bool state_begins(const char *state, const char *with) {
    return strncmp(state, with, strlen(with)) == 0;
}

// By SQLSTATE. Classes: 08 connection, 25 transaction state (a server that became read-only), 40
// rollback (deadlock), 53 resources, 55 not available (lock timeout), 57 intervention (shut down,
// query cancelled).
static int error_of_state(const char *state) {
    static const char *const passing[] = { "08", "25", "40", "53", "55", "57" };
    if (strcmp(state, "42501") == 0)
        return MR_EPERM;
    if (state_begins(state, "42P01") || state_begins(state, "3F000") ||
        state_begins(state, "42703"))
        return MR_EGONE;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (state_begins(state, passing[i]))
            return MR_ENET;
    return MR_EIO;
}

static int database_lost(const struct database *d) {
    return database_error(MR_ENET,
                          "the session with the database has ended: ", PQerrorMessage(d->session));
}

static int result_error(const struct database *d, const PGresult *r) {
    ExecStatusType status = PQresultStatus(r);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
        return 0;
    if (PQstatus(d->session) != CONNECTION_OK)
        return database_lost(d);
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    return database_error(error_of_state(state ? state : ""),
                          "the database: ", PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY));
}

// Waits until the next result can be had without a wait.
static int database_wait(struct database *d) {
    while (d->talks) {
        if (!PQconsumeInput(d->session))
            return database_lost(d);
        if (!PQisBusy(d->session))
            break;
        int err = talks_turn(d->talks, PQsocket(d->session), -1);
        if (err < 0)
            return err;
    }
    return 0;
}

// Keeps the last result, and the first error.
static int database_receive(struct database *d) {
    int failed = 0;
    while (true) {
        int err = database_wait(d);
        if (err < 0)
            return err;
        PGresult *next = PQgetResult(d->session);
        if (!next)
            break;
        PQclear(d->result);
        d->result = next;
        if (failed == 0)
            failed = result_error(d, next);
    }
    if (failed == 0 && !d->result)
        return database_lost(d);
    return failed;
}

static int database_sent(struct database *d, int sent) {
    return sent ? database_receive(d) : database_lost(d);
}

static int database_begin(struct database *d) {
    PQclear(d->result);
    d->result = NULL;
    return d->session ? 0 : error_set(MR_ENET, "there is no session with the database");
}

int database_ask(struct database *d, const char *command, int count, const char *const *values) {
    int err = database_begin(d);
    if (err < 0)
        return err;
    return database_sent(
        d, PQsendQueryParams(d->session, command, count, NULL, values, NULL, NULL, 1));
}

int database_run(struct database *d, const char *commands) {
    int err = database_begin(d);
    return err < 0 ? err : database_sent(d, PQsendQuery(d->session, commands));
}

// ---- Results ----------------------------------------------------------------------------------

int database_rows(const struct database *d) {
    return PQntuples(d->result);
}

mr_bytes database_bytes(const struct database *d, int row, int column) {
    return (mr_bytes){ PQgetvalue(d->result, row, column),
                       (size_t)PQgetlength(d->result, row, column) };
}

const char *database_text(const struct database *d, int row, int column) {
    return PQgetvalue(d->result, row, column);
}

int64_t database_number(const struct database *d, int row, int column) {
    return strtoll(PQgetvalue(d->result, row, column), NULL, 10);
}

bool database_is_null(const struct database *d, int row, int column) {
    return PQgetisnull(d->result, row, column);
}

int database_notified(struct database *d) {
    int any = 0;
    if (!PQconsumeInput(d->session))
        return database_lost(d);
    for (PGnotify *n; (n = PQnotifies(d->session)) != NULL; any = 1)
        PQfreemem(n);
    return any;
}
