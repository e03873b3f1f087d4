// The statements of a stream, and what their answers mean.
//
// An append that was lost may still sit in a session of the server and commit later; a read would
// not see it. A claim does: it waits for the lock of the shard's row, which such an append holds
// until its commit is on the standby, and no append of the old epoch passes after it.
//
// Trims delete rows. The space comes back by VACUUM, which a trim starts once enough was removed,
// in a session of its own: autovacuum comes once a minute, too seldom for a log. The other way is a
// ring of tables that TRUNCATE empties. Measured on two cores and one disk that were busy with
// other work: batches of 64 KiB, 34 to 50 MB live, trims of 17 MB.
//
//                                          largest size of the database, after a minute each
//     DELETE, autovacuum alone                813 and 719 MB
//     DELETE, a VACUUM every 67 MB            124 and 122 MB
//     DELETE, as here: every 17 MB             72 MB
//     ring of tables, TRUNCATE                 60 and 60 MB
//
// Appends a second, in turn: 147, 125 and 158 as here, 151, 160 and 219 with the ring; an hour
// before, 605 and 543 with a VACUUM every 67 MB, 206 and 253 with the ring: neither is faster in
// every run. So the simple way stays: one statement trims, and no lock waits for every reader of a
// table, a backup too, as TRUNCATE's does.
#include "log/stream_postgres.h"

#include "base/errors.h"
#include "base/mem.h"
#include "log/postgres.h"
#include "log/postgres_schema.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum {
    PIECE_BYTES = 4 << 20,   // of one answer, or one batch
    VACUUM_LEAST = 16 << 20, // bytes to remove before the next VACUUM, …
    VACUUM_PART = 4,         // … or this part of what is left
    VALUE_MOST = 1000 << 20, // PostgreSQL's limit is 1 GB
    CLAIM_BITS = 24,         // as in the statement CLAIM
};
static const uint64_t position_most = INT64_MAX;

struct postgres_stream {
    struct stream base;
    struct postgres *session;
    struct postgres *vacuum; // NULL: the session is the store's, and so is its transaction
    uint32_t shard;
    struct schema_checked checked;
    uint64_t claimer;  // a random number, and in its last CLAIM_BITS the count of its claims
    uint64_t vacuumed; // the head when the last VACUUM began
    uint64_t tail;     // where the stream has ended, as this one has claimed or written it
    char cluster[CLUSTER_NAME_MOST + 1], owner[STREAM_OWNER];
};

enum {
    CLAIM,
    APPEND,
    READ_HEADS,
    READ_ALL,
    GET_HEADS,
    GET_BODIES,
    BOUND,
    TRIM,
    BEAT,
    LOOK,
    RELEASE,
    STATEMENTS
};

// $1 is the shard. A batch that is behind `at <= position` is the last one that begins there or
// before; looking for `ends` as well would walk the whole index when there is none.
#define READ(bodies, size)                                                                         \
    "SELECT at, ends, heads, " bodies " FROM (SELECT *, sum(" size                                 \
    ") OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) - " size " AS "                                 \
    "before FROM (SELECT * FROM batch WHERE shard = $1::bigint AND at >= $2::bigint AND at < "     \
    "$3::bigint ORDER BY at LIMIT 4096) b) t WHERE before < $4::bigint ORDER BY at"
#define GET(part, from)                                                                            \
    "SELECT substring(" part " FROM least(" from ", 2147483647)::int FOR $4::bigint::int) FROM "   \
    "(SELECT * FROM batch WHERE shard = $1::bigint AND at <= $2::bigint ORDER BY at DESC LIMIT 1)" \
    " b WHERE ends > $2::bigint"
static const struct postgres_statement statements[STATEMENTS] = {
    // An earlier claim of the same stream does not fence it. A later one does: then this claim was
    // in doubt, has sat in a backend, and must not raise the epoch any more.
    [CLAIM] = { "UPDATE shard SET epoch = epoch + 1, claimer = $3::bigint, owner = $4::text, "
                "seen_at = clock_timestamp() WHERE shard = $1::bigint AND (epoch = $2::bigint OR "
                "(claimer >> 24 = $3::bigint >> 24 AND claimer < $3::bigint)) "
                "RETURNING " SHARD_STATE,
                CLAIM, true },
    // The first batch of an empty stream is its head.
    [APPEND] = { "WITH s AS (UPDATE shard SET head = CASE WHEN head = tail THEN $4::bigint ELSE "
                 "head "
                 "END, tail = $5::bigint, seen_at = clock_timestamp() WHERE shard = $1::bigint AND "
                 "epoch = $2::bigint AND tail = $3::bigint RETURNING 1) "
                 "INSERT INTO batch (shard, at, ends, epoch, heads, bodies) SELECT $1::bigint, "
                 "$4::bigint, $5::bigint, $2::bigint, $6::bytea, $7::bytea FROM s",
                 APPEND, true },
    [READ_HEADS] = { READ("''::bytea", "octet_length(heads)"), READ_HEADS, false },
    [READ_ALL] = { READ("bodies", "(octet_length(heads) + octet_length(bodies))"), READ_ALL,
                   false },
    [GET_HEADS] = { GET("heads", "$3::bigint + 1"), GET_HEADS, false },
    [GET_BODIES] = { GET("bodies", "$2::bigint - at + $3::bigint + 1"), GET_BODIES, false },
    // The end of what one statement may remove, whose time must be bounded, and the batch behind
    // it.
    [BOUND] = { "WITH e AS (SELECT coalesce(max(ends), 0) AS bound FROM (SELECT * FROM batch WHERE "
                "shard = $1::bigint AND at < $2::bigint AND ends <= $2::bigint ORDER BY at LIMIT "
                "1000) b WHERE at <= (SELECT at FROM batch WHERE shard = $1::bigint ORDER BY at "
                "LIMIT 1) + 268435456) SELECT bound, coalesce((SELECT at FROM batch WHERE shard = "
                "$1::bigint AND at >= bound ORDER BY at LIMIT 1), bound) FROM e",
                BOUND, false },
    [TRIM] = { "WITH s AS (UPDATE shard SET head = CASE WHEN $3::bigint > head THEN $4::bigint "
               "ELSE "
               "head END WHERE shard = $1::bigint AND epoch = $2::bigint RETURNING head, tail), d "
               "AS (DELETE FROM batch WHERE shard = $1::bigint AND at < $3::bigint AND ends <= "
               "$3::bigint AND EXISTS (SELECT FROM s)) SELECT head, tail FROM s",
               TRIM, true },
    // A write: a former primary that has lost its standby can still read, but commit nothing. A
    // new primary that has lost commits may still have the epoch, but not the tail.
    [BEAT] = { "UPDATE shard SET seen_at = clock_timestamp() WHERE shard = $1::bigint AND epoch = "
               "$2::bigint AND tail >= $3::bigint",
               BEAT, true },
    [LOOK] = { "SELECT " SHARD_STATE " FROM shard WHERE shard = $1::bigint", LOOK, false },
    [RELEASE] = { "UPDATE shard SET owner = '' WHERE shard = $1::bigint AND epoch = $2::bigint",
                  RELEASE, true },
};

static struct postgres_stream *stream_of(struct stream *base) {
    return (struct postgres_stream *)base;
}

static struct postgres_arguments arguments(const struct postgres_stream *s) {
    struct postgres_arguments a = { 0 };
    postgres_add_number(&a, s->shard);
    return a;
}

// --- the cluster ------------------------------------------------------------------------------

static int shard_check(struct postgres_stream *s) {
    int err = schema_check(s->session, s->cluster, &s->checked);
    if (err || s->shard < s->checked.shards)
        return err;
    return error_set(MR_EINVAL, "%s: cluster '%s' has %u shard%s, there is no shard %u",
                     postgres_place(s->session), s->cluster, (unsigned)s->checked.shards,
                     s->checked.shards == 1 ? "" : "s", (unsigned)s->shard);
}

static int stream_run(struct postgres_stream *s, int statement, const struct postgres_arguments *a,
                      PGresult **out) {
    int err = shard_check(s);
    return err ? err : postgres_run(s->session, &statements[statement], a, out);
}

// --- owning -----------------------------------------------------------------------------------

static int postgres_stream_look(struct stream *base, struct stream_state *out) {
    struct postgres_stream *s = stream_of(base);
    struct postgres_arguments a = arguments(s);
    PGresult *r = NULL;
    int err = stream_run(s, LOOK, &a, &r);
    if (err)
        return err;
    if (PQntuples(r) == 1) {
        *out = schema_shard_state(r, 0);
    } else {
        err = error_set(MR_EINVAL, "%s: cluster '%s' has lost the row of shard %u; restore it",
                        postgres_place(s->session), s->cluster, (unsigned)s->shard);
    }
    PQclear(r);
    return err;
}

// Why the row of the shard did not let a statement through. A store that knows less than it has
// acknowledged was restored from a backup, or its standby took over without the last commits.
static int stream_refusal(struct stream *base, uint64_t epoch, uint64_t tail) {
    struct postgres_stream *s = stream_of(base);
    struct stream_state now;
    int err = postgres_stream_look(base, &now);
    if (err)
        return err;
    if (now.epoch > epoch)
        return error_set(STREAM_FENCED, "shard %u of cluster '%s' has another owner, in epoch %llu",
                         (unsigned)s->shard, s->cluster, (unsigned long long)now.epoch);
    if (now.epoch < epoch || now.tail < tail)
        return error_set(MR_ECORRUPT,
                         "%s: shard %u of cluster '%s' ends at %llu in epoch %llu, but %llu in "
                         "epoch %llu was acknowledged: the database has lost commits",
                         postgres_place(s->session), (unsigned)s->shard, s->cluster,
                         (unsigned long long)now.tail, (unsigned long long)now.epoch,
                         (unsigned long long)tail, (unsigned long long)epoch);
    return error_set(STREAM_IN_DOUBT, "shard %u of cluster '%s' ends at %llu, not at %llu",
                     (unsigned)s->shard, s->cluster, (unsigned long long)now.tail,
                     (unsigned long long)tail);
}

static int postgres_stream_claim(struct stream *base, uint64_t expected, struct stream_state *out) {
    struct postgres_stream *s = stream_of(base);
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, expected);
    postgres_add_number(&a, ++s->claimer);
    postgres_add_bytes(&a, (mr_bytes){ s->owner, strlen(s->owner) });
    PGresult *r = NULL;
    int err = stream_run(s, CLAIM, &a, &r);
    if (err)
        return err;
    if (PQntuples(r) == 1) {
        *out = schema_shard_state(r, 0);
        s->vacuumed = out->head;
        s->tail = out->tail;
    } else {
        err = stream_refusal(base, expected, 0);
        if (err == STREAM_IN_DOUBT) // it changed back meanwhile: only a restored database does that
            err = STREAM_UNAVAILABLE;
    }
    PQclear(r);
    return err;
}

// A beat or release in doubt has proved nothing, and may be repeated.
static int owner_update(struct stream *base, int statement, const struct postgres_arguments *a,
                        uint64_t epoch, uint64_t tail) {
    PGresult *r = NULL;
    int err = stream_run(stream_of(base), statement, a, &r);
    if (!err && strcmp(PQcmdTuples(r), "1") != 0)
        err = stream_refusal(base, epoch, tail);
    PQclear(r);
    return err == STREAM_IN_DOUBT ? (int)STREAM_UNAVAILABLE : err;
}

static int postgres_stream_beat(struct stream *base, uint64_t epoch) {
    const struct postgres_stream *s = stream_of(base);
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, epoch);
    postgres_add_number(&a, s->tail);
    return owner_update(base, BEAT, &a, epoch, s->tail);
}

static int postgres_stream_release(struct stream *base, uint64_t epoch) {
    struct postgres_arguments a = arguments(stream_of(base));
    postgres_add_number(&a, epoch);
    return owner_update(base, RELEASE, &a, epoch, 0);
}

// --- writing ----------------------------------------------------------------------------------

static int batch_fits(uint64_t tail, const struct stream_batch *b) {
    assert(b->at >= tail && b->end > b->at);
    if (b->end > position_most)
        return error_set(MR_EFULL, "PostgreSQL has no positions above 2^63");
    if (b->heads.size > VALUE_MOST || b->bodies.size > VALUE_MOST - b->heads.size)
        return error_set(MR_ETOOBIG, "a batch for PostgreSQL has at most %d bytes", VALUE_MOST);
    return 0;
}

static int postgres_stream_append(struct stream *base, uint64_t epoch, uint64_t tail,
                                  const struct stream_batch *b) {
    struct postgres_stream *s = stream_of(base);
    int err = batch_fits(tail, b);
    if (err < 0)
        return err;
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, epoch);
    postgres_add_number(&a, tail);
    postgres_add_number(&a, b->at);
    postgres_add_number(&a, b->end);
    postgres_add_bytes(&a, b->heads);
    postgres_add_bytes(&a, b->bodies);
    PGresult *r = NULL;
    err = stream_run(s, APPEND, &a, &r);
    if (err)
        return err;
    if (strcmp(PQcmdTuples(r), "1") != 0)
        err = stream_refusal(base, epoch, tail);
    else
        s->tail = b->end;
    PQclear(r);
    return err;
}

static int trim_bound(struct postgres_stream *s, uint64_t upto, uint64_t *out_bound,
                      uint64_t *out_head) {
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, upto < position_most ? upto : position_most);
    PGresult *r = NULL;
    int err = stream_run(s, BOUND, &a, &r);
    if (err)
        return err;
    *out_bound = postgres_number(r, 0, 0);
    *out_head = postgres_number(r, 0, 1);
    PQclear(r);
    return 0;
}

static void space_recover(struct postgres_stream *s, uint64_t head, uint64_t tail) {
    uint64_t part = (tail - head) / VACUUM_PART;
    if (!s->vacuum || head - s->vacuumed < (part > VACUUM_LEAST ? part : VACUUM_LEAST))
        return;
    // Skips what another shard's owner is doing, and leaves the table's size to be used again:
    // giving pages back would need an exclusive lock.
    if (postgres_start_text(s->vacuum, "VACUUM (SKIP_LOCKED, TRUNCATE off) batch"))
        s->vacuumed = head;
}

static int trim_piece(struct stream *base, uint64_t epoch, uint64_t bound, uint64_t head) {
    struct postgres_stream *s = stream_of(base);
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, epoch);
    postgres_add_number(&a, bound);
    postgres_add_number(&a, head);
    PGresult *r = NULL;
    int err = stream_run(s, TRIM, &a, &r);
    if (err) // what was removed stays removed, and the caller may repeat it
        return err == STREAM_IN_DOUBT ? (int)STREAM_UNAVAILABLE : err;
    if (PQntuples(r) == 1)
        space_recover(s, postgres_number(r, 0, 0), postgres_number(r, 0, 1));
    else
        err = stream_refusal(base, epoch, 0);
    PQclear(r);
    return err == STREAM_IN_DOUBT ? (int)STREAM_UNAVAILABLE : err;
}

static int postgres_stream_trim(struct stream *base, uint64_t epoch, uint64_t upto) {
    uint64_t bound = 0, head = 0;
    do {
        int err = trim_bound(stream_of(base), upto, &bound, &head);
        if (!err)
            err = trim_piece(base, epoch, bound, head); // also with nothing to remove: it is fenced
        if (err)
            return err;
    } while (bound);
    return STREAM_DONE;
}

// --- reading ----------------------------------------------------------------------------------

struct piece_reader {
    stream_each *each;
    void *arg;
    uint64_t next;
    size_t bytes; // read so far
};

static int piece_pass(const PGresult *r, struct piece_reader *reader) {
    int rows = PQntuples(r);
    for (int i = 0; i < rows; i++) {
        struct stream_batch b = {
            .at = postgres_number(r, i, 0),
            .end = postgres_number(r, i, 1),
            .heads = postgres_bytes(r, i, 2),
            .bodies = postgres_bytes(r, i, 3),
        };
        int err = reader->each(reader->arg, &b);
        if (err < 0)
            return err;
        reader->next = b.end;
        reader->bytes += b.heads.size + b.bodies.size;
    }
    return rows;
}

static int postgres_stream_read(struct stream *base, uint64_t from, uint64_t upto, size_t max_bytes,
                                bool with_bodies, stream_each *each, void *arg,
                                uint64_t *out_next) {
    struct postgres_stream *s = stream_of(base);
    struct piece_reader reader = { .each = each, .arg = arg, .next = from };
    int rows = 1;
    while (rows && reader.bytes < max_bytes && reader.next < upto) {
        size_t left = max_bytes - reader.bytes;
        struct postgres_arguments a = arguments(s);
        postgres_add_number(&a, reader.next);
        postgres_add_number(&a, upto < position_most ? upto : position_most);
        postgres_add_number(&a, left < PIECE_BYTES ? left : PIECE_BYTES);
        PGresult *r = NULL;
        int err = stream_run(s, with_bodies ? READ_ALL : READ_HEADS, &a, &r);
        if (err)
            return err;
        rows = piece_pass(r, &reader);
        PQclear(r);
        if (rows < 0)
            return rows;
    }
    *out_next = reader.next;
    return STREAM_DONE;
}

static int postgres_stream_get(struct stream *base, uint64_t at, enum stream_part part,
                               size_t offset, size_t size, struct buffer *out) {
    struct postgres_stream *s = stream_of(base);
    struct postgres_arguments a = arguments(s);
    postgres_add_number(&a, at);
    postgres_add_number(&a, offset < VALUE_MOST ? offset : VALUE_MOST);
    postgres_add_number(&a, size < VALUE_MOST ? size : VALUE_MOST);
    PGresult *r = NULL;
    int err = stream_run(s, part == STREAM_HEADS ? GET_HEADS : GET_BODIES, &a, &r);
    if (err)
        return err;
    if (PQntuples(r) == 1) {
        mr_bytes found = postgres_bytes(r, 0, 0);
        err = buffer_append(out, found.data, found.size);
    } else {
        err = error_set(MR_EGONE, "position %llu of shard %u is not in the log any more",
                        (unsigned long long)at, (unsigned)s->shard);
    }
    PQclear(r);
    return err;
}

// --- opening ----------------------------------------------------------------------------------

static void postgres_stream_interrupt(struct stream *base) {
    const struct postgres_stream *s = stream_of(base);
    postgres_interrupt(s->session);
    if (s->vacuum)
        postgres_interrupt(s->vacuum);
}

static void postgres_stream_close(struct stream *base) {
    struct postgres_stream *s = stream_of(base);
    if (s->vacuum)
        postgres_destroy(s->session);
    postgres_destroy(s->vacuum);
    mem_free(s);
}

static const struct stream_impl postgres_stream_impl = {
    .claim = postgres_stream_claim,
    .append = postgres_stream_append,
    .read = postgres_stream_read,
    .get = postgres_stream_get,
    .trim = postgres_stream_trim,
    .beat = postgres_stream_beat,
    .look = postgres_stream_look,
    .release = postgres_stream_release,
    .interrupt = postgres_stream_interrupt,
    .close = postgres_stream_close,
};

struct postgres_store {
    struct stream_store base;
    struct postgres *transaction;           // shared by all streams; NULL: each has a session
    struct stream_postgres_options options; // points to what follows
    char cluster[CLUSTER_NAME_MOST + 1], owner[STREAM_OWNER], synchronous_commit[16];
    char url[];
};

static int stream_start(struct postgres_store *store, uint32_t shard, struct postgres_stream *s) {
    char purpose[32], cleaning[32];
    snprintf(purpose, sizeof purpose, "/%u", (unsigned)shard);
    snprintf(cleaning, sizeof cleaning, "/%u vacuum", (unsigned)shard);
    s->base.impl = &postgres_stream_impl;
    s->shard = shard;
    snprintf(s->cluster, sizeof s->cluster, "%s", store->options.cluster);
    snprintf(s->owner, sizeof s->owner, "%s", store->owner);
    if (getrandom(&s->claimer, sizeof s->claimer, 0) != sizeof s->claimer)
        return error_set(MR_EIO, "no random bytes: %s", strerror(errno));
    s->claimer = s->claimer >> (CLAIM_BITS + 1) << CLAIM_BITS; // bigint has a sign
    s->session = store->transaction;
    if (s->session)
        return 0;
    int err = postgres_create(&store->options, cleaning, &s->vacuum);
    return err < 0 ? err : postgres_create(&store->options, purpose, &s->session);
}

static int postgres_store_open(struct stream_store *base, uint32_t shard, struct stream **out) {
    struct postgres_stream *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "out of memory for a stream");
    int err = stream_start((struct postgres_store *)base, shard, s);
    if (err < 0) {
        postgres_stream_close(&s->base);
        return err;
    }
    *out = &s->base;
    return 0;
}

static int postgres_store_commit(struct stream_store *base) {
    return postgres_commit(((struct postgres_store *)base)->transaction);
}

static void postgres_store_close(struct stream_store *base) {
    postgres_destroy(((struct postgres_store *)base)->transaction);
    mem_free(base);
}

int stream_postgres_create(const struct stream_postgres_options *o, struct stream_store **out) {
    struct postgres *tried = NULL; // checks the options
    int err = postgres_create(o, "", &tried);
    if (err < 0)
        return err;
    postgres_destroy(tried);
    size_t url_size = strlen(o->url) + 1;
    struct postgres_store *store = mem_alloc(sizeof *store + url_size);
    if (!store)
        return error_set(MR_ENOMEM, "out of memory for a store");
    store->base.open = postgres_store_open;
    store->base.commit = postgres_store_commit;
    store->base.close = postgres_store_close;
    memcpy(store->url, o->url, url_size);
    snprintf(store->cluster, sizeof store->cluster, "%s", o->cluster);
    snprintf(store->owner, sizeof store->owner, "%s", o->owner ? o->owner : "");
    snprintf(store->synchronous_commit, sizeof store->synchronous_commit, "%s",
             o->synchronous_commit ? o->synchronous_commit : "on");
    store->options = *o;
    store->options.url = store->url;
    store->options.cluster = store->cluster;
    store->options.synchronous_commit = store->synchronous_commit;
    store->options.owner = store->owner;
    *out = &store->base;
    return 0;
}

// A copy reads or writes for hours, and waits for the other store meanwhile. It does not wait for
// the locks of another copy.
static int transaction_begin(struct postgres_store *store, bool read_only) {
    int err = postgres_create(&store->options, " transaction", &store->transaction);
    if (err < 0)
        return err;
#define WAITS "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = '5s'"
    return postgres_begin(store->transaction,
                          read_only ? "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;" WAITS
                                    : "BEGIN;" WAITS);
#undef WAITS
}

int stream_postgres_begin(const struct stream_postgres_options *o, bool read_only,
                          struct stream_store **out) {
    struct stream_store *store;
    int err = stream_postgres_create(o, &store);
    if (err < 0)
        return err;
    err = transaction_begin((struct postgres_store *)store, read_only);
    if (err)
        store->close(store);
    else
        *out = store;
    return err;
}
