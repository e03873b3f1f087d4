// The statements of a board. Each takes effect in one statement, so boards see each other's changes
// in one order.
#include "log/board_postgres.h"

#include "base/errors.h"
#include "base/mem.h"
#include "log/postgres.h"
#include "log/postgres_schema.h"

#include <stdio.h>
#include <string.h>

struct postgres_board {
    struct board base;
    struct postgres *session;
    struct schema_checked checked;
    char cluster[CLUSTER_NAME_MOST + 1];
};

enum { BOARD_LOOK, NOTES, NOTE_RENEW, NOTE_ADD, NOTE_ADD_NEW, NOTE_REMOVE, BOARD_STATEMENTS };

// Rows are counted only when a note is new: nodes renew theirs all the time.
#define ROOM "(SELECT count(*) FROM (SELECT FROM note LIMIT 4096) n) < 4096"
#define ADD                                                                                        \
    "INSERT INTO note (key, value, put_at) SELECT $1::text, $2::text, clock_timestamp() "          \
    "WHERE " ROOM
static const struct postgres_statement board_statements[BOARD_STATEMENTS] = {
    [BOARD_LOOK] = { "SELECT " SHARD_STATE ", shard FROM shard WHERE shard < $1::bigint ORDER BY "
                     "shard",
                     BOARD_LOOK, false },
    [NOTES] = { "SELECT key, value, greatest(extract(epoch FROM clock_timestamp() - put_at) * "
                "1000, 0)::bigint FROM note ORDER BY key LIMIT $1::bigint",
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

// --- the shards -------------------------------------------------------------------------------

static int rows_check(struct postgres_board *b, const PGresult *r, uint32_t shards) {
    if (shards > b->checked.shards)
        return error_set(MR_EINVAL, "%s: cluster '%s' has %u shards, not %u",
                         postgres_place(b->session), b->cluster, (unsigned)b->checked.shards,
                         (unsigned)shards);
    int rows = PQntuples(r);
    for (uint32_t i = 0; i < shards; i++)
        if ((int)i >= rows || postgres_number(r, (int)i, SHARD_STATE_COLUMNS) != i)
            return error_set(MR_EINVAL, "%s: cluster '%s' has lost the row of shard %u; restore it",
                             postgres_place(b->session), b->cluster, (unsigned)i);
    return 0;
}

static int postgres_board_look(struct board *base, uint32_t shards, struct stream_state *out) {
    struct postgres_board *b = board_of(base);
    struct postgres_arguments a = { 0 };
    postgres_add_number(&a, shards);
    PGresult *r = NULL;
    int err = board_run(b, BOARD_LOOK, &a, &r);
    if (err)
        return err;
    err = rows_check(b, r, shards);
    for (uint32_t i = 0; !err && i < shards; i++)
        out[i] = schema_shard_state(r, (int)i);
    PQclear(r);
    return err;
}

// --- the notes --------------------------------------------------------------------------------

static int note_pass(const PGresult *r, int row, board_each *each, void *arg) {
    char key[BOARD_KEY_MOST + 1], value[BOARD_VALUE_MOST + 1];
    mr_bytes k = postgres_bytes(r, row, 0), v = postgres_bytes(r, row, 1);
    snprintf(key, sizeof key, "%.*s", (int)k.size, (const char *)k.data);
    snprintf(value, sizeof value, "%.*s", (int)v.size, (const char *)v.data);
    return each(arg, &(struct board_note){ key, value, postgres_number(r, row, 2) });
}

static int postgres_board_notes(struct board *base, board_each *each, void *arg) {
    struct postgres_arguments a = { 0 };
    postgres_add_number(&a, BOARD_NOTES_MOST);
    PGresult *r = NULL;
    int err = board_run(board_of(base), NOTES, &a, &r);
    if (err)
        return err;
    int rows = PQntuples(r);
    for (int i = 0; i < rows && err >= 0; i++)
        err = note_pass(r, i, each, arg);
    PQclear(r);
    return err < 0 ? err : (int)STREAM_DONE;
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

// --- opening ----------------------------------------------------------------------------------

static void postgres_board_interrupt(struct board *base) {
    postgres_interrupt(board_of(base)->session);
}

static void postgres_board_close(struct board *base) {
    postgres_destroy(board_of(base)->session);
    mem_free(base);
}

static const struct board_impl postgres_board_impl = {
    .look = postgres_board_look,
    .notes = postgres_board_notes,
    .put = postgres_board_put,
    .put_new = postgres_board_put_new,
    .remove = postgres_board_remove,
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
