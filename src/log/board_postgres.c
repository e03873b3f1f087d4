// The statements of a board. Each takes effect in one statement, so boards see each other's changes
// in one order.
//
// Ages are measured by the clock of this process, from the look that found a row changed. The clock
// of the database may jump, and after a promotion it is that of another machine; it says only how
// old a row is that is seen for the first time, and how much older than the look that found it.
#include "log/board_postgres.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/postgres.h"
#include "log/postgres_promise.h"
#include "log/postgres_schema.h"

#include <stdio.h>
#include <string.h>

// A row as it was last found: the instant that the database has written into it, and when that was
// by the clock of this process.
struct row_seen {
    uint64_t written;
    int64_t at_ms;
};

struct note_last_seen {
    char key[BOARD_KEY_MOST + 1];
    struct row_seen row;
};

struct postgres_board {
    struct board base;
    struct postgres *session;
    struct schema_checked checked;
    char cluster[CLUSTER_NAME_MOST + 1];
    struct row_seen *shards; // of `shard_count` shards
    uint32_t shard_count;
    struct note_last_seen *notes; // ordered by key
    size_t note_count;
    int64_t looked_ms, read_ms; // when shards and notes were last read; 0: never
};

enum { BOARD_LOOK, NOTES, NOTE_RENEW, NOTE_ADD, NOTE_ADD_NEW, NOTE_REMOVE, BOARD_STATEMENTS };

// Rows are counted only when a note is new: nodes renew theirs all the time.
#define ROOM "(SELECT count(*) FROM (SELECT FROM note LIMIT 4096) n) < 4096"
#define ADD                                                                                        \
    "INSERT INTO note (key, value, put_at) SELECT $1::text, $2::text, clock_timestamp() "          \
    "WHERE " ROOM
#define MICROSECONDS(instant) "(extract(epoch FROM " instant ") * 1000000)::bigint"
static const struct postgres_statement board_statements[BOARD_STATEMENTS] = {
    [BOARD_LOOK] = { "SELECT " SHARD_STATE
                     ", shard, " MICROSECONDS("seen_at") " FROM shard WHERE "
                                                         "shard < $1::bigint ORDER BY shard",
                     BOARD_LOOK, false },
    [NOTES] = { "SELECT key, value, greatest(extract(epoch FROM clock_timestamp() - put_at) * "
                "1000, 0)::bigint, " MICROSECONDS("put_at") " FROM note ORDER BY key LIMIT "
                                                            "$1::bigint",
                NOTES, false },
    [NOTE_RENEW] = { "UPDATE note SET value = $2::text, put_at = clock_timestamp() WHERE key = "
                     "$1::text",
                     NOTE_RENEW, true },
    [NOTE_ADD] = { ADD " ON CONFLICT (key) DO UPDATE SET value = excluded.value, put_at = "
                       "excluded.put_at",
                   NOTE_ADD, true },
    // 0: there is no room, and no such note. A note that another session has just added is not
    // visible to the second part; then there was room.
    [NOTE_ADD_NEW] = { "WITH i AS (" ADD " ON CONFLICT (key) DO NOTHING) SELECT (" ROOM
                       " OR EXISTS (SELECT FROM note WHERE key = $1::text))::int::bigint",
                       NOTE_ADD_NEW, true },
    [NOTE_REMOVE] = { "DELETE FROM note WHERE key = $1::text", NOTE_REMOVE, true },
};
_Static_assert(BOARD_NOTES_MOST == 4096, "the statements have the same bound");

static struct postgres_board *board_of(struct board *base) {
    return (struct postgres_board *)base;
}

static int board_run(struct postgres_board *b, int statement, const struct postgres_arguments *a,
                     PGresult **out) {
    int err = schema_check(b->session, b->cluster, &b->checked);
    return err ? err : postgres_run(b->session, &board_statements[statement], a, out);
}

// --- ages -------------------------------------------------------------------------------------

// A look, by the clock of this process: rows were read between two instants.
struct look_times {
    int64_t last_ms; // when the one before began; 0: there was none
    int64_t began_ms, ended_ms;
};

static int64_t board_clock_ms(void) {
    return (int64_t)monotonic_ms();
}

// How old a row was at least. One that has changed since the last look cannot be older than that:
// if the database says so, its clock has jumped, and the row counts as new. `age_ms`: by that
// clock.
static uint64_t row_age_ms(struct row_seen *s, bool is_known, uint64_t written, uint64_t age_ms,
                           const struct look_times *t) {
    if (!is_known || s->written != written) {
        bool fits = t->last_ms == 0 || age_ms <= (uint64_t)(t->ended_ms - t->last_ms);
        *s = (struct row_seen){ written, t->ended_ms - (fits ? (int64_t)age_ms : 0) };
    }
    return t->began_ms > s->at_ms ? (uint64_t)(t->began_ms - s->at_ms) : 0;
}

// --- the shards -------------------------------------------------------------------------------

static int rows_check(struct postgres_board *b, const PGresult *r, uint32_t shards) {
    if (shards > b->checked.shards)
        return error_set(MR_EINVAL, "%s: cluster '%s' has %u shard%s, not %u",
                         postgres_place(b->session), b->cluster, (unsigned)b->checked.shards,
                         b->checked.shards == 1 ? "" : "s", (unsigned)shards);
    int rows = PQntuples(r);
    for (uint32_t i = 0; i < shards; i++)
        if ((int)i >= rows || postgres_number(r, (int)i, SHARD_STATE_COLUMNS) != i)
            return error_set(MR_EINVAL, "%s: cluster '%s' has lost the row of shard %u; restore it",
                             postgres_place(b->session), b->cluster, (unsigned)i);
    return 0;
}

static int shards_reserve(struct postgres_board *b, uint32_t shards) {
    if (shards <= b->shard_count)
        return 0;
    struct row_seen *more = mem_resize(b->shards, shards * sizeof *more);
    if (!more)
        return error_set(MR_ENOMEM, "no memory for the states of %u shards", (unsigned)shards);
    b->shards = more;
    b->looked_ms = 0; // the new ones were never seen
    b->shard_count = shards;
    return 0;
}

static void shards_read(struct postgres_board *b, const PGresult *r, uint32_t shards,
                        int64_t began_ms, struct stream_state *out) {
    struct look_times t = { b->looked_ms, began_ms, board_clock_ms() };
    for (uint32_t i = 0; i < shards; i++) {
        out[i] = schema_shard_state(r, (int)i);
        out[i].silent_ms =
            row_age_ms(&b->shards[i], t.last_ms != 0,
                       postgres_number(r, (int)i, SHARD_STATE_COLUMNS + 1), out[i].silent_ms, &t);
    }
    b->looked_ms = began_ms;
}

static int postgres_board_look(struct board *base, uint32_t shards, struct stream_state *out) {
    struct postgres_board *b = board_of(base);
    struct postgres_arguments a = { 0 };
    postgres_add_number(&a, shards);
    PGresult *r = NULL;
    int64_t began_ms = board_clock_ms();
    int err = board_run(b, BOARD_LOOK, &a, &r);
    if (err)
        return err;
    err = rows_check(b, r, shards);
    if (!err)
        err = shards_reserve(b, shards);
    if (!err)
        shards_read(b, r, shards, began_ms, out);
    PQclear(r);
    return err;
}

// --- the notes --------------------------------------------------------------------------------

// The age of a note, which is kept in `seen`; `last`: from where on the notes of the last look are
// at or behind its key.
static uint64_t note_age_of_row(const struct postgres_board *b, const PGresult *r, int row,
                                const struct look_times *t, size_t *last,
                                struct note_last_seen *seen) {
    mr_bytes k = postgres_bytes(r, row, 0);
    snprintf(seen->key, sizeof seen->key, "%.*s", (int)k.size, (const char *)k.data);
    while (*last < b->note_count && strcmp(b->notes[*last].key, seen->key) < 0)
        ++*last;
    bool is_known = *last < b->note_count && strcmp(b->notes[*last].key, seen->key) == 0;
    if (is_known)
        seen->row = b->notes[*last].row;
    return row_age_ms(&seen->row, is_known, postgres_number(r, row, 3), postgres_number(r, row, 2),
                      t);
}

static int notes_pass(struct postgres_board *b, const PGresult *r, const struct look_times *t,
                      board_each *each, void *arg) {
    size_t rows = (size_t)PQntuples(r), last = 0;
    struct note_last_seen *seen = mem_alloc((rows + 1) * sizeof *seen);
    if (!seen)
        return error_set(MR_ENOMEM, "no memory for %zu notes of the store", rows);
    int err = 0;
    for (size_t i = 0; i < rows && err >= 0; i++) {
        char value[BOARD_VALUE_MOST + 1];
        mr_bytes v = postgres_bytes(r, (int)i, 1);
        snprintf(value, sizeof value, "%.*s", (int)v.size, (const char *)v.data);
        uint64_t age_ms = note_age_of_row(b, r, (int)i, t, &last, &seen[i]);
        err = each(arg, &(struct board_note){ seen[i].key, value, age_ms });
    }
    if (err < 0) {
        mem_free(seen);
        return err;
    }
    mem_free(b->notes);
    b->notes = seen;
    b->note_count = rows;
    b->read_ms = t->began_ms;
    return STREAM_DONE;
}

static int postgres_board_notes(struct board *base, board_each *each, void *arg) {
    struct postgres_board *b = board_of(base);
    struct postgres_arguments a = { 0 };
    postgres_add_number(&a, BOARD_NOTES_MOST);
    PGresult *r = NULL;
    struct look_times t = { b->read_ms, board_clock_ms(), 0 };
    int err = board_run(b, NOTES, &a, &r);
    if (err)
        return err;
    t.ended_ms = board_clock_ms();
    err = notes_pass(b, r, &t, each, arg);
    PQclear(r);
    return err;
}

static struct postgres_arguments note_arguments(const char *key, const char *value) {
    struct postgres_arguments a = { 0 };
    postgres_add_bytes(&a, (mr_bytes){ key, strlen(key) });
    if (value)
        postgres_add_bytes(&a, (mr_bytes){ value, strlen(value) });
    return a;
}

static int notes_full(struct postgres_board *b) {
    return error_set(MR_EFULL,
                     "%s: cluster '%s' has %d notes, and room for no more; remove those of nodes "
                     "that are gone from the table millrace_%s.note",
                     postgres_place(b->session), b->cluster, BOARD_NOTES_MOST, b->cluster);
}

// Runs a change; `out_changed`: whether there was a row for it.
static int note_change(struct postgres_board *b, int statement, const char *key, const char *value,
                       bool *out_changed) {
    struct postgres_arguments a = note_arguments(key, value);
    PGresult *r = NULL;
    int err = board_run(b, statement, &a, &r);
    if (err)
        return err;
    *out_changed = strcmp(PQcmdTuples(r), "0") != 0;
    PQclear(r);
    return STREAM_DONE;
}

static int postgres_board_put(struct board *base, const char *key, const char *value) {
    struct postgres_board *b = board_of(base);
    bool changed = false;
    int err = note_change(b, NOTE_RENEW, key, value, &changed);
    if (!err && !changed)
        err = note_change(b, NOTE_ADD, key, value, &changed);
    return err || changed ? err : notes_full(b);
}

static int postgres_board_put_new(struct board *base, const char *key, const char *value) {
    struct postgres_board *b = board_of(base);
    struct postgres_arguments a = note_arguments(key, value);
    PGresult *r = NULL;
    int err = board_run(b, NOTE_ADD_NEW, &a, &r);
    if (err)
        return err;
    bool there = postgres_number(r, 0, 0);
    PQclear(r);
    return there ? (int)STREAM_DONE : notes_full(b);
}

static int postgres_board_remove(struct board *base, const char *key) {
    bool changed;
    return note_change(board_of(base), NOTE_REMOVE, key, NULL, &changed);
}

static int postgres_board_promise(struct board *base, struct stream_promise *out) {
    struct postgres_board *b = board_of(base);
    int err = schema_check(b->session, b->cluster, &b->checked);
    return err ? err : postgres_promise(b->session, out);
}

// --- opening ----------------------------------------------------------------------------------

static void postgres_board_interrupt(struct board *base) {
    postgres_interrupt(board_of(base)->session);
}

static void postgres_board_close(struct board *base) {
    struct postgres_board *b = board_of(base);
    postgres_destroy(b->session);
    mem_free(b->shards);
    mem_free(b->notes);
    mem_free(b);
}

static const struct board_impl postgres_board_impl = {
    .look = postgres_board_look,
    .notes = postgres_board_notes,
    .put = postgres_board_put,
    .put_new = postgres_board_put_new,
    .remove = postgres_board_remove,
    .promise = postgres_board_promise,
    .interrupt = postgres_board_interrupt,
    .close = postgres_board_close,
};

int board_postgres_create(const struct stream_postgres_options *o, struct board **out) {
    struct postgres_board *b = mem_alloc(sizeof *b);
    if (!b)
        return error_set(MR_ENOMEM, "out of memory for a connection to the store");
    int err = postgres_create(o, " board", &b->session);
    if (err < 0) {
        mem_free(b);
        return err;
    }
    b->base.impl = &postgres_board_impl;
    snprintf(b->cluster, sizeof b->cluster, "%s", o->cluster);
    *out = &b->base;
    return 0;
}
