// millrace inbox run: rounds and deliveries in turn, and waits in between: for a notification of
// the database, for a stage that is held, for a database or a server that has gone.
#include "cli/inbox/inbox.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/interrupts.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    IDLE_MS = 10000, // notifications come at once; this is for one that was lost
    STANDBY_MS = 1000,
    WAIT_FIRST_MS = 100,
    WAIT_MOST_MS = 2000,
    STUCK_MS = 5000,
    RETRY_MOST_MS = 5000,
};

// ---- Stages -----------------------------------------------------------------------------------

void inbox_stage_clear_rows(struct inbox_stage *s) {
    PQclear(s->result);
    mem_free(s->rows);
    s->result = NULL;
    s->rows = NULL;
    s->row_count = 0;
}

void inbox_forget(struct inbox *b) {
    for (uint32_t i = 0; i < b->stage_count; i++) {
        struct inbox_stage *s = b->stages[i];
        inbox_stage_clear_rows(s);
        s->is_known = s->is_wanted = s->is_refused = false;
        s->accepted = 0;
        if (s->outcome == INBOX_ROW_REFUSED)
            s->outcome = INBOX_WELL;
    }
}

void inbox_hold(struct inbox *b, struct inbox_stage *s, enum inbox_outcome outcome,
                const char *reason) {
    uint64_t longer = s->held_ms ? 2 * s->held_ms : WAIT_FIRST_MS;
    s->held_ms = outcome == INBOX_STUCK ? STUCK_MS : longer < WAIT_MOST_MS ? longer : WAIT_MOST_MS;
    s->held_until_ms = monotonic_ms() + s->held_ms;
    if (!s->is_reported || s->outcome != outcome)
        complain("%s: rows of stage %s wait: %s", b->in->command->name, s->name, reason);
    s->is_reported = true;
    s->outcome = outcome;
}

void inbox_goes_on(struct inbox_stage *s) {
    if (s->is_reported)
        complain("inbox run: rows of stage %s go on", s->name);
    s->is_reported = false;
    s->held_ms = s->held_until_ms = 0;
    s->outcome = INBOX_WELL;
}

bool inbox_is_held(const struct inbox_stage *s, uint64_t now_ms) {
    return s->held_until_ms > now_ms;
}

// ---- Sessions ---------------------------------------------------------------------------------

// Rounds need plans that look into indexes, whatever the statistics of a table say that is empty
// now and has a million rows a minute later. Numbers must be on disk before rows are pushed with
// them.
static const char session_settings[] =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = "
    "off;"
    " SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0;"
    " SET idle_in_transaction_session_timeout = 0; SET search_path = pg_catalog";

// A pooler may give each transaction another session, and the lock belongs to a session.
static int check_session(struct inbox *b) {
    int err = database_run(&b->database, session_settings);
    if (err == 0)
        err = database_ask(&b->database, "SELECT pg_backend_pid()::text", 0, NULL);
    if (err == 0 && database_number(&b->database, 0, 0) != PQbackendPID(b->database.session))
        err =
            error_set(MR_EINVAL, "the URL names a connection pooler: the inbox needs a session of "
                                 "its own, so name the database server itself");
    if (err == 0)
        err = inbox_check(&b->database, b->name);
    if (err == 0)
        snprintf(b->epic, sizeof b->epic, INBOX_EPIC "%s", b->name);
    return err;
}

// Waits for the lock. A blocked pg_advisory_lock would hold a snapshot, and VACUUM could remove no
// row as long as it waits: so it is tried again and again.
static int inbox_lock(struct inbox *b) {
    bool reported = false;
    while (true) {
        int err = database_ask(&b->database,
                               "SELECT CASE WHEN pg_try_advisory_lock(hashtext('millrace.inbox'),"
                               " 1) THEN 'yes' END",
                               0, NULL);
        if (err < 0)
            return err;
        if (!database_is_null(&b->database, 0, 0)) {
            if (reported)
                complain("inbox run: the other runner has gone; this one works now");
            return 0;
        }
        if (!reported)
            complain("inbox run: another runner works on this inbox; this one stands by");
        reported = true;
        err = talks_turn(b->talks, PQsocket(b->database.session), STANDBY_MS);
        if (err < 0 || (err > 0 && (err = database_notified(&b->database)) < 0))
            return err;
    }
}

// The notifications are asked for before the first look at the table, so that none is missed.
static int inbox_session(struct inbox *b, const char *url) {
    int err = database_open(&b->database, url);
    if (err == 0)
        err = check_session(b);
    if (err == 0)
        err = inbox_lock(b);
    if (err == 0)
        err = database_run(&b->database, "LISTEN millrace_inbox");
    inbox_forget(b);
    return err;
}

// ---- Waits ------------------------------------------------------------------------------------

static int inbox_pause(struct inbox *b, uint64_t ms) {
    uint64_t until_ms = monotonic_ms() + ms, now_ms;
    int err = 0;
    while (err >= 0 && (now_ms = monotonic_ms()) < until_ms)
        err = talks_turn(b->talks, -1, wait_ms_until(until_ms, now_ms));
    return err < 0 ? err : 0;
}

static uint64_t wait_longer(uint64_t ms) {
    return ms * 2 < RETRY_MOST_MS ? ms * 2 : RETRY_MOST_MS;
}

static bool database_may_return(int err) {
    return err == MR_ENET || err == MR_EIO || err == MR_ENOMEM;
}

// Opens a new session, however long that takes. Errors: it does not help to try again.
static int inbox_reconnect(struct inbox *b, const char *url) {
    complain("inbox run: " ENGINE_AGAIN "%s", error_text());
    int err;
    uint64_t wait_ms = WAIT_FIRST_MS;
    do {
        err = inbox_pause(b, wait_ms);
        wait_ms = wait_longer(wait_ms);
        if (err == 0)
            err = inbox_session(b, url);
    } while (database_may_return(err));
    if (err == 0)
        complain("inbox run: the database can be used again");
    return err;
}

// Waits until the server answers.
static int inbox_rejoin(struct inbox *b) {
    complain("inbox run: " ENGINE_AGAIN "%s", error_text());
    int err;
    uint64_t wait_ms = WAIT_FIRST_MS;
    inbox_forget(b);
    do {
        const struct response_value *reply;
        struct words ping = { 0 };
        err = inbox_pause(b, wait_ms);
        wait_ms = wait_longer(wait_ms);
        words_text(&ping, "PING");
        if (err == 0 && !b->talk && talk_open(b->talks, &b->talk) != CLI_DONE)
            err = MR_ENOMEM;
        else if (err == 0)
            err = talk_ask(b->talk, &ping, &reply);
        if (err < 0 && b->talk) {
            talk_close(b->talk);
            b->talk = NULL;
        }
        words_finish(&ping);
    } while (err < 0 && err != MR_ECANCELLED);
    if (err == 0)
        complain("inbox run: " ENGINE_BACK);
    return err;
}

// The number of stages that wait for something; and how long until the first one is tried again. A
// stage that was looked for and had no rows waits no longer: its rows were deleted.
static uint32_t stages_waiting(struct inbox *b, int64_t *out_ms, uint32_t *out_stuck) {
    uint64_t now_ms = monotonic_ms();
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->stage_count; i++) {
        struct inbox_stage *s = b->stages[i];
        if (s->is_reported && !inbox_is_held(s, b->listed_ms)) {
            s->is_reported = false;
            s->outcome = INBOX_WELL;
        }
        if (!s->is_reported)
            continue;
        count++;
        *out_stuck += s->outcome == INBOX_STUCK;
        *out_ms = wait_shorter(*out_ms, wait_ms_until(s->held_until_ms, now_ms));
    }
    return count;
}

// Nothing is to be done now. 0: there may be something again; 1: the inbox is empty, and that is
// the end.
static int inbox_idle(struct inbox *b) {
    int64_t wait_ms = IDLE_MS;
    uint32_t stuck = 0, waiting = stages_waiting(b, &wait_ms, &stuck);
    if (waiting == stuck && input_option(b->in, "--until-empty"))
        return 1;
    int err = database_notified(&b->database);
    if (err != 0)
        return err < 0 ? err : 0;
    err = talks_turn(b->talks, PQsocket(b->database.session), wait_ms);
    if (err >= 0)
        err = database_notified(&b->database);
    return err < 0 ? err : 0;
}

// ---- The command ------------------------------------------------------------------------------

static void inbox_draw(const struct inbox *b) {
    progress_count(b->pushed, b->dead ? "rows pushed; some are dead" : "rows pushed");
}

// 0: all done; MR_ECANCELLED: a signal came; other errors are for good.
static int inbox_work(struct inbox *b, const char *url) {
    while (true) {
        int any = inbox_round(b), err = 0, over = 0;
        if (any > 0) {
            err = inbox_deliver(b);
            if (err < 0 && err != MR_ECANCELLED)
                err = inbox_rejoin(b);
        } else if (any == 0) {
            any = over = inbox_idle(b);
        }
        if (any < 0 && database_may_return(any))
            err = inbox_reconnect(b, url);
        else if (any < 0)
            err = any;
        inbox_draw(b);
        if (err < 0 || over > 0)
            return err;
    }
}

static enum cli_exit run_failed(int err) {
    complain("inbox run: %s", error_text());
    if (err == MR_EPERM)
        complain(
            "inbox run: the user of the URL needs USAGE on schema millrace, and SELECT, INSERT, "
            "UPDATE and DELETE on its tables");
    return err == MR_EPERM ? CLI_REFUSED : err == MR_ENET ? CLI_UNOPENED : CLI_FAILED;
}

static void run_report(const struct inbox *b) {
    struct json j = { 0 };
    if (!input_option(b->in, "--json")) {
        printf("%" PRIu64 " pushed, %" PRIu64 " dead\n", b->pushed, b->dead);
        return;
    }
    json_open(&j, NULL, '{');
    json_number(&j, "pushed", b->pushed);
    json_number(&j, "dead", b->dead);
    json_close(&j, '}');
    json_end(&j);
}

// As `serve`, it ends well by a signal: it has no end of its own.
static enum cli_exit inbox_begin(struct inbox *b, const char *url) {
    int signals = interrupts_open();
    int err = signals < 0 ? signals
                          : interrupts_guard(signals, "inbox run: the database does not answer; "
                                                      "leaving without it");
    if (err == 0)
        err = inbox_session(b, url);
    if (err == 0) {
        complain("inbox run: ready: rows of millrace.inbox become jobs");
        err = inbox_work(b, url);
    }
    progress_clear();
    if (err < 0 && err != MR_ECANCELLED)
        return run_failed(err);
    uint32_t stuck = 0;
    int64_t wait_ms = -1;
    if (err == 0)
        (void)stages_waiting(b, &wait_ms, &stuck);
    run_report(b);
    return stuck ? CLI_FAILED : CLI_DONE;
}

enum cli_exit inbox_run_run(const struct input *in) {
    const char *url = inbox_url(in);
    if (!url)
        return CLI_USAGE;
    if (address_is_local(in)) {
        complain("inbox run: without a server no worker could take the jobs: serve the store "
                 "(millrace serve --store file:DIR), and name the server by --at");
        return CLI_USAGE;
    }
    struct inbox *b = mem_alloc(sizeof *b);
    struct talk *first; // stays idle: the connection that rows are pushed on is closed at times
    if (!b) {
        complain("inbox run: no memory");
        return CLI_FAILED;
    }
    b->in = in;
    enum cli_exit code = talk_begin(in, STORE_MUST_EXIST, &b->talks, &first);
    if (code == CLI_DONE) {
        b->database.talks = b->talks;
        code = inbox_begin(b, url);
        inbox_forget(b);
        database_close(&b->database);
        talks_close(b->talks);
    }
    for (uint32_t i = 0; i < b->stage_count; i++)
        mem_free(b->stages[i]);
    mem_free(b);
    return code;
}
