// See postgres_promise.h.
#include "log/postgres_promise.h"

#include <stdio.h>
#include <string.h>

static const struct postgres_statement promise_statement = {
    "SELECT current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), "
    "(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')), "
    "(SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL)",
    PROMISE_STATEMENT, false
};

struct durability {
    const char *fsync, *full_pages, *commit, *names;
    uint64_t standbys, hidden; // synchronous ones; those whose state this role may not see
};

static bool is_on(const char *setting) {
    return !strcmp(setting, "on");
}

static const char *promise_words(const struct durability *d) {
    bool named = *d->names;
    if (!is_on(d->fsync) || !strcmp(d->commit, "off"))
        return "nothing: PostgreSQL runs with fsync or synchronous_commit off, and a crash loses "
               "acknowledged jobs";
    if (!is_on(d->full_pages))
        return "a crash of PostgreSQL, if its disk writes whole pages: full_page_writes is off";
    if (!named)
        return "a crash of PostgreSQL, not the loss of its machine: synchronous_standby_names is "
               "empty";
    if (!strcmp(d->commit, "local"))
        return "a crash of PostgreSQL, not the loss of its machine: synchronous_commit is local";
    if (!strcmp(d->commit, "remote_write"))
        return "a crash of PostgreSQL or the loss of its machine, not of both: synchronous_commit "
               "is remote_write";
    if (!d->standbys && !d->hidden)
        return "the loss of PostgreSQL's machine; but no synchronous standby is connected: appends "
               "wait for one";
    if (!d->standbys)
        return "the loss of PostgreSQL's machine (its standbys are not visible to this role)";
    return "the loss of PostgreSQL's machine: a synchronous standby has it on disk";
}

static void promise_judge(const struct durability *d, struct stream_promise *out) {
    bool waits = is_on(d->commit) || !strcmp(d->commit, "remote_apply");
    out->replicated = is_on(d->fsync) && is_on(d->full_pages) && *d->names && waits;
    snprintf(out->text, sizeof out->text, "An acknowledged job survives %s.", promise_words(d));
    out->remedy = "Connect a standby, set synchronous_standby_names and reload PostgreSQL";
}

// A setting, with an end.
static const char *setting_copy(const PGresult *r, int column, char to[64]) {
    mr_bytes value = postgres_bytes(r, 0, column);
    snprintf(to, 64, "%.*s", (int)value.size, (const char *)value.data);
    return to;
}

int postgres_promise(struct postgres *session, struct stream_promise *out) {
    PGresult *r = NULL;
    int err = postgres_run(session, &promise_statement, &(struct postgres_arguments){ 0 }, &r);
    if (err)
        return err;
    char text[4][64];
    struct durability d = {
        .fsync = setting_copy(r, 0, text[0]),
        .full_pages = setting_copy(r, 1, text[1]),
        .commit = setting_copy(r, 2, text[2]),
        .names = setting_copy(r, 3, text[3]),
        .standbys = postgres_number(r, 0, 4),
        .hidden = postgres_number(r, 0, 5),
    };
    PQclear(r);
    promise_judge(&d, out);
    return STREAM_DONE;
}
