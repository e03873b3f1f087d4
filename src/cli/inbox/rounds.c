// Rounds: the transactions of the inbox. A round is one of them:
//
//     for each stage of the last round: delete the rows that were pushed, move a refused one
//     for the next stages that have rows: give them a batch, if they have none, and read it
//
// Stages take turns in the order of their names, so that none has to wait for another's end.
#include "cli/inbox/inbox.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "core/core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEAD_COLUMNS "id, stage, key, body, once, delay, deadline, attempts, created"

enum { NUMBER_TEXT = 24 };

static const char *number_text(char out[NUMBER_TEXT], int64_t number) {
    snprintf(out, NUMBER_TEXT, "%" PRId64, number);
    return out;
}

// ---- What was done ----------------------------------------------------------------------------

static int round_delete(struct inbox *b, struct inbox_stage *s) {
    char count[NUMBER_TEXT];
    const char *values[] = { s->name, number_text(count, s->accepted) };
    int err = database_ask(&b->database,
                           "DELETE FROM millrace.inbox WHERE stage = $1 AND id = ANY (ARRAY("
                           "SELECT unnest(batch[1:$2::int]) FROM millrace.inbox_stage"
                           " WHERE stage = $1))",
                           2, values);
    if (err < 0)
        return err;
    return database_ask(&b->database,
                        "UPDATE millrace.inbox_stage SET next = next + $2::int,"
                        " batch = batch[$2::int + 1:] WHERE stage = $1",
                        2, values);
}

// Moves the row at this place of the batch, counted from 1; its number will be skipped.
static int round_bury(struct inbox *b, const struct inbox_stage *s, uint32_t place,
                      const char *reason) {
    char at[NUMBER_TEXT];
    const char *values[] = { s->name, number_text(at, place), reason };
    int err = database_ask(&b->database,
                           "WITH gone AS (DELETE FROM millrace.inbox WHERE stage = $1 AND id ="
                           " (SELECT batch[$2::int] FROM millrace.inbox_stage WHERE stage = $1)"
                           " RETURNING " DEAD_COLUMNS ")"
                           " INSERT INTO millrace.inbox_dead (" DEAD_COLUMNS ", reason)"
                           " SELECT " DEAD_COLUMNS ", $3 FROM gone",
                           3, values);
    if (err < 0)
        return err;
    b->dead++;
    return database_ask(&b->database,
                        "UPDATE millrace.inbox_stage SET batch[$2::int] = 0 WHERE stage = $1", 2,
                        values);
}

static int round_settle(struct inbox *b, struct inbox_stage *s, bool *out_any) {
    bool bury = s->outcome == INBOX_ROW_REFUSED;
    if (!s->accepted && !bury)
        return 0;
    *out_any = true;
    int err = s->accepted ? round_delete(b, s) : 0;
    if (err == 0 && bury)
        err = round_bury(b, s, 1, s->reason);
    return err;
}

// It was written; if the transaction then fails, everything known of the stages is forgotten.
static void round_settled(struct inbox *b) {
    for (uint32_t i = 0; i < b->stage_count; i++) {
        struct inbox_stage *s = b->stages[i];
        s->next += s->accepted;
        s->accepted = 0;
        if (s->outcome == INBOX_ROW_REFUSED)
            s->outcome = INBOX_WELL;
    }
}

// ---- Rows that have no number yet, and will have none -----------------------------------------

// Moves rows of a stage that nothing can be pushed to. Numbered ones stay: the server may have
// accepted them.
static int round_bury_stage(struct inbox *b, const char *stage, const char *reason, bool *out_any) {
    char most[NUMBER_TEXT];
    const char *values[] = { stage, number_text(most, INBOX_STAGE_ROWS), reason };
    int err = database_ask(
        &b->database,
        "WITH gone AS (DELETE FROM millrace.inbox WHERE stage = $1 AND id = ANY (ARRAY("
        "SELECT id FROM millrace.inbox WHERE stage = $1 ORDER BY id LIMIT $2::int))"
        " AND NOT EXISTS (SELECT FROM millrace.inbox_stage WHERE stage = $1 AND batch <> '{}')"
        " RETURNING " DEAD_COLUMNS "), dead AS (INSERT INTO millrace.inbox_dead (" DEAD_COLUMNS
        ", reason) SELECT " DEAD_COLUMNS ", $3 FROM gone RETURNING id)"
        " SELECT count(*)::text FROM dead",
        3, values);
    if (err < 0)
        return err;
    uint64_t count = (uint64_t)database_number(&b->database, 0, 0);
    b->dead += count;
    *out_any = *out_any || count;
    return count ? 1 : 0;
}

static int round_refused_stage(struct inbox *b, struct inbox_stage *s, bool *out_any) {
    char reason[REASON_MOST];
    snprintf(reason, sizeof reason, "%s", s->reason);
    int err = round_bury_stage(b, s->name, reason, out_any);
    s->is_refused = s->is_known = false; // it is asked again, for the next rows
    if (err == 0)
        inbox_hold(b, s, INBOX_STUCK, reason);
    return err < 0 ? err : 0;
}

// ---- What is next -----------------------------------------------------------------------------

// How far the epic must be: at the first number of the batch or, if it is not known what became of
// the batch, at most behind it.
static bool numbers_agree(struct inbox *b, struct inbox_stage *s, uint64_t batch) {
    char sentence[1100]; // with four names
    if (s->resume >= s->next && s->resume <= s->next + batch)
        return true;
    if (s->resume < s->next)
        snprintf(
            sentence, sizeof sentence,
            "the server knows the epic %s up to number %" PRIu64 " only, not %" PRIu64
            ": its store was replaced, or the epic dropped. To begin anew: millrace epic %s %s "
            "--drop, if there is one, and DELETE FROM millrace.inbox_stage WHERE stage = '%s'",
            b->epic, s->resume - 1, s->next - 1, s->name, b->epic, s->name);
    else
        snprintf(sentence, sizeof sentence,
                 "the epic %s has number %" PRIu64 ", and this database has numbered %" PRIu64
                 " rows: it was restored, or another database has its name (install --name)"
                 ". To begin anew: millrace epic %s %s --drop and DELETE FROM millrace.inbox_stage "
                 "WHERE stage = '%s'",
                 b->epic, s->resume - 1, s->next + batch - 1, s->name, b->epic, s->name);
    s->is_known = false;
    inbox_hold(b, s, INBOX_STUCK, sentence);
    return false;
}

// Gives the stage a batch, if it has none. 1: it has one; 0: there are no rows, or it must wait.
static int round_number(struct inbox *b, struct inbox_stage *s) {
    char most[NUMBER_TEXT];
    const char *values[] = { s->name, number_text(most, INBOX_STAGE_ROWS) };
    int err = database_ask(&b->database,
                           "SELECT next::text, cardinality(batch)::text FROM millrace.inbox_stage"
                           " WHERE stage = $1",
                           1, values);
    if (err < 0)
        return err;
    bool is_new = !database_rows(&b->database);
    uint64_t batch = is_new ? 0 : (uint64_t)database_number(&b->database, 0, 1);
    s->next = is_new ? 1 : (uint64_t)database_number(&b->database, 0, 0);
    if (!numbers_agree(b, s, batch))
        return 0;
    if (batch)
        return 1;
    err = database_ask(&b->database,
                       "INSERT INTO millrace.inbox_stage AS s (stage, batch) SELECT $1, ids FROM"
                       " (SELECT ARRAY(SELECT id FROM millrace.inbox WHERE stage = $1"
                       " ORDER BY id LIMIT $2::int) AS ids) AS of WHERE ids <> '{}'"
                       " ON CONFLICT (stage) DO UPDATE SET batch = EXCLUDED.batch RETURNING 'yes'",
                       2, values);
    return err < 0 ? err : database_rows(&b->database) > 0;
}

enum { ROW_SIZE, ROW_BODY, ROW_KEY, ROW_ONCE, ROW_DELAY, ROW_DEADLINE, ROW_ATTEMPTS };

// Rows from the first one on that the server has not accepted, and as many as there is room for. A
// delay and a deadline count from the insertion; a deadline that has passed still makes a job,
// which the server counts as expired.
static const char select_rows[] =
    "SELECT size::text, CASE WHEN size <= $4::int THEN body END, key, once,"
    " CASE WHEN delay IS NULL THEN 0 ELSE greatest(0,"
    "  ceil(extract(epoch FROM created + delay - clock_timestamp()) * 1000)) END::bigint::text,"
    " CASE WHEN deadline IS NULL THEN 0 ELSE greatest(1,"
    "  ceil(extract(epoch FROM created + deadline - clock_timestamp()) * 1000)) END::bigint::text,"
    " attempts::text FROM (SELECT i.*, at, octet_length(i.body) AS size,"
    "  sum(octet_length(i.body)) OVER (ORDER BY at ROWS BETWEEN UNBOUNDED PRECEDING AND 1 "
    "PRECEDING)"
    "  AS before FROM millrace.inbox_stage s"
    "  CROSS JOIN LATERAL unnest(s.batch[$2::int:]) WITH ORDINALITY AS b(row_id, at)"
    "  LEFT JOIN millrace.inbox i ON i.stage = $1 AND i.id = row_id WHERE s.stage = $1) AS r"
    " WHERE coalesce(before, 0) < $3::int ORDER BY at";

static struct inbox_row row_read(const struct database *d, int at) {
    if (database_is_null(d, at, ROW_SIZE))
        return (struct inbox_row){ .is_skipped = true };
    return (struct inbox_row){ .body = database_bytes(d, at, ROW_BODY),
                               .key = database_bytes(d, at, ROW_KEY),
                               .once = database_bytes(d, at, ROW_ONCE),
                               .delay_ms = database_number(d, at, ROW_DELAY),
                               .deadline_ms = database_number(d, at, ROW_DEADLINE),
                               .attempts = database_number(d, at, ROW_ATTEMPTS) };
}

// Why a row can be pushed to no server, or NULL.
static const char *row_fault(const struct database *d, int at, const struct inbox_row *r,
                             char out[REASON_MOST]) {
    if (r->is_skipped)
        return NULL;
    if (database_is_null(d, at, ROW_BODY))
        snprintf(out, REASON_MOST, "TOOBIG the body has %s bytes, %d at most",
                 database_text(d, at, ROW_SIZE), BODY_MOST);
    else if (r->key.size > KEY_MOST)
        snprintf(out, REASON_MOST, "TOOBIG the key has %zu bytes, %d at most", r->key.size,
                 KEY_MOST);
    else if (r->once.size > ONCE_MOST)
        snprintf(out, REASON_MOST, "TOOBIG once has %zu bytes, %d at most", r->once.size,
                 ONCE_MOST);
    else
        return NULL;
    return out;
}

// Moves those of the rows that no server takes. The result that they are in is kept meanwhile.
static int round_bury_faulty(struct inbox *b, struct inbox_stage *s) {
    struct database rows = { .result = s->result };
    char reason[REASON_MOST];
    for (uint32_t i = 0; i < s->row_count; i++) {
        if (!row_fault(&rows, (int)i, &s->rows[i], reason))
            continue;
        int err = round_bury(b, s, s->accepted + i + 1, reason);
        if (err < 0)
            return err;
        s->rows[i] = (struct inbox_row){ .is_skipped = true };
    }
    return 0;
}

// Reads the batch, or a part of it; `room` becomes less by the bytes.
static int round_get_rows(struct inbox *b, struct inbox_stage *s, int64_t *room) {
    char from[NUMBER_TEXT], bytes[NUMBER_TEXT], most[NUMBER_TEXT];
    s->accepted = (uint32_t)(s->resume - s->next);
    int64_t most_bytes =
        s->outcome == INBOX_WAITS && *room > INBOX_TRIAL_BYTES ? INBOX_TRIAL_BYTES : *room;
    const char *values[] = { s->name, number_text(from, s->accepted + 1),
                             number_text(bytes, most_bytes), number_text(most, BODY_MOST) };
    int err = database_ask(&b->database, select_rows, 4, values);
    if (err < 0)
        return err;
    uint32_t count = (uint32_t)database_rows(&b->database);
    s->rows = mem_alloc((count + 1) * sizeof *s->rows);
    if (!s->rows)
        return error_set(MR_ENOMEM, "no memory for %u rows", count);
    s->result = b->database.result;
    b->database.result = NULL;
    struct database rows = { .result = s->result };
    for (; s->row_count < count; s->row_count++) {
        s->rows[s->row_count] = row_read(&rows, (int)s->row_count);
        *room -= (int64_t)s->rows[s->row_count].body.size;
    }
    return round_bury_faulty(b, s);
}

static int round_get(struct inbox *b, struct inbox_stage *s, int64_t *room, bool *out_any) {
    if (s->is_refused)
        return round_refused_stage(b, s, out_any);
    if (!s->is_known) {
        s->is_wanted = *out_any = true;
        return 0;
    }
    int found = round_number(b, s);
    if (found <= 0)
        return found;
    *out_any = true;
    return round_get_rows(b, s, room);
}

// ---- The stages that have rows ----------------------------------------------------------------

static struct inbox_stage *stage_known_as(struct inbox *b, const char *name) {
    for (uint32_t i = 0; i < b->stage_count; i++)
        if (strcmp(b->stages[i]->name, name) == 0)
            return b->stages[i];
    return NULL;
}

static bool stage_is_free(const struct inbox_stage *s, uint64_t now_ms) {
    return !s->row_count && !s->accepted && s->outcome == INBOX_WELL && !s->is_refused &&
           !inbox_is_held(s, now_ms);
}

// Finds or adds it; when many are known, one that nothing is done for is forgotten. NULL: no room.
static struct inbox_stage *inbox_stage_get(struct inbox *b, const char *name) {
    struct inbox_stage *s = stage_known_as(b, name);
    uint64_t now_ms = monotonic_ms();
    for (uint32_t i = 0; !s && b->stage_count == INBOX_STAGES && i < INBOX_STAGES; i++)
        if (stage_is_free(b->stages[i], now_ms))
            s = b->stages[i];
    bool is_new = !s && b->stage_count < INBOX_STAGES;
    if (is_new)
        s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    if (is_new)
        b->stages[b->stage_count++] = s;
    if (strcmp(s->name, name) != 0) {
        *s = (struct inbox_stage){ 0 };
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    return s;
}

// The names of the stages that are held, as an array of SQL. They consist of letters that need no
// escape.
static int held_names(struct inbox *b, struct buffer *out) {
    uint64_t now_ms = b->listed_ms = monotonic_ms();
    int err = buffer_append(out, "{", 1);
    for (uint32_t i = 0; i < b->stage_count && err >= 0; i++) {
        char quoted[STAGE_NAME_MOST + 4];
        if (!inbox_is_held(b->stages[i], now_ms))
            continue;
        snprintf(quoted, sizeof quoted, "%s\"%s\"", out->size > 1 ? "," : "", b->stages[i]->name);
        err = buffer_append(out, quoted, strlen(quoted));
    }
    return err < 0 ? err : buffer_append(out, "}", 2);
}

// Each step of the recursion is one look into the index: it does not read all rows of a stage.
static int round_list(struct inbox *b) {
    char most[NUMBER_TEXT];
    struct buffer held = { 0 };
    int err = held_names(b, &held);
    const char *values[] = { b->cursor, (const char *)held.data,
                             number_text(most, INBOX_ROUND_STAGES) };
    if (err >= 0)
        err = database_ask(&b->database,
                           "WITH RECURSIVE found AS ((SELECT stage FROM millrace.inbox"
                           " WHERE stage > $1 ORDER BY stage LIMIT 1) UNION ALL"
                           " SELECT (SELECT i.stage FROM millrace.inbox i WHERE i.stage > f.stage"
                           " ORDER BY i.stage LIMIT 1) FROM found f WHERE f.stage IS NOT NULL)"
                           " SELECT stage FROM found WHERE stage IS NOT NULL"
                           " AND stage <> ALL ($2::text[]) LIMIT $3::int",
                           3, values);
    buffer_finish(&held);
    return err;
}

// One stage of the list.
static int round_stage(struct inbox *b, const char *name, int64_t *room, bool *out_any) {
    if (stage_name_check(mr_str(name)) < 0) {
        char reason[REASON_MOST];
        snprintf(reason, sizeof reason, "ERR %s", error_text());
        int err = round_bury_stage(b, name, reason, out_any);
        return err < 0 ? err : 0;
    }
    struct inbox_stage *s = inbox_stage_get(b, name);
    snprintf(b->cursor, sizeof b->cursor, "%s", name);
    return s ? round_get(b, s, room, out_any) : 0;
}

static int round_next(struct inbox *b, bool *out_any) {
    int64_t room = INBOX_ROUND_BYTES;
    int err = round_list(b);
    if (err < 0)
        return err;
    struct database names = { .result = b->database.result };
    b->database.result = NULL;
    bool was_behind = b->cursor[0];
    int count = database_rows(&names), i = 0;
    for (; i < count && err == 0 && room > 0; i++)
        err = round_stage(b, database_text(&names, i, 0), &room, out_any);
    bool is_last = i == count && count < INBOX_ROUND_STAGES;
    *out_any = *out_any || !is_last || was_behind;
    if (is_last)
        b->cursor[0] = 0;
    PQclear(names.result);
    return err;
}

// ---- The transaction --------------------------------------------------------------------------

static int round_transact(struct inbox *b, bool *out_any) {
    int err = database_run(&b->database, "BEGIN ISOLATION LEVEL READ COMMITTED");
    for (uint32_t i = 0; i < b->stage_count && err == 0; i++)
        err = round_settle(b, b->stages[i], out_any);
    if (err < 0)
        return err;
    round_settled(b);
    err = round_next(b, out_any);
    return err < 0 ? err : database_run(&b->database, "COMMIT");
}

int inbox_round(struct inbox *b) {
    bool any = false;
    uint64_t dead = b->dead;
    for (uint32_t i = 0; i < b->stage_count; i++)
        inbox_stage_clear_rows(b->stages[i]);
    int err = round_transact(b, &any);
    if (err < 0)
        b->dead = dead;
    return err < 0 ? err : any;
}
