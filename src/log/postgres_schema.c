// Makes the tables of a cluster, or those that a cluster of an older version lacks, in one
// transaction, so that there are all or none. An advisory lock lets two programs that make the same
// cluster take turns.
#include "log/postgres_schema.h"

#include "base/errors.h"
#include "log/postgres.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

// Values are not compressed, so that a part of a body is read without the rest. Rows of `shard`
// change with every append: most of their page is left free, so that new versions stay in it. Dead
// rows are what a log leaves behind: autovacuum removes them whenever it comes, without pauses, and
// does not try to shorten the file, which would need an exclusive lock. Nodes renew their notes all
// the time: half of their pages is left free for that.
#define NOTE_TABLE                                                                                 \
    "CREATE TABLE millrace_%1$s.note (key text COLLATE \"C\" PRIMARY KEY, value text NOT NULL, "   \
    "put_at timestamptz NOT NULL) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, "     \
    "autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);"
static const char tables[] =
    "CREATE SCHEMA IF NOT EXISTS millrace_%1$s;"
    "CREATE TABLE millrace_%1$s.cluster (one boolean PRIMARY KEY DEFAULT true CHECK (one), version "
    "bigint NOT NULL, name text NOT NULL, shards bigint NOT NULL, secret bytea NOT NULL, made_at "
    "timestamptz NOT NULL DEFAULT now());"
    "CREATE TABLE millrace_%1$s.shard (shard bigint PRIMARY KEY, epoch bigint NOT NULL DEFAULT 0, "
    "head bigint NOT NULL DEFAULT 0, tail bigint NOT NULL DEFAULT 0, claimer bigint NOT NULL "
    "DEFAULT 0, owner text NOT NULL DEFAULT '', seen_at timestamptz NOT NULL DEFAULT now(), CHECK "
    "(head <= tail)) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, "
    "autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);"
    "CREATE TABLE millrace_%1$s.batch (shard bigint, at bigint, ends bigint NOT NULL, epoch bigint "
    "NOT NULL, heads bytea NOT NULL, bodies bytea NOT NULL, PRIMARY KEY (shard, at), CHECK (at < "
    "ends)) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, "
    "autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off, "
    "toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000, "
    "toast.autovacuum_vacuum_cost_delay = 0, toast.vacuum_truncate = off);"
    "ALTER TABLE millrace_%1$s.batch ALTER heads SET STORAGE EXTERNAL, ALTER bodies SET STORAGE "
    "EXTERNAL;" NOTE_TABLE
    "INSERT INTO millrace_%1$s.cluster (version, name, shards, secret) VALUES (%2$d, '%1$s', "
    "%3$u, '\\x%4$s');"
    "INSERT INTO millrace_%1$s.shard (shard) SELECT generate_series(0, %3$u - 1);"
    "COMMIT";

// From version 1; %2$d is the new one. Rights are those of the other tables: their owner's.
static const char tables_upgrade[] =
    NOTE_TABLE "UPDATE millrace_%1$s.cluster SET version = %2$d; COMMIT";

static int secret_make(char hex[2 * CLUSTER_SECRET + 1]) {
    uint8_t bytes[CLUSTER_SECRET];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return error_set(MR_EIO, "no random bytes: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static int tables_exist(struct postgres *p, const char *cluster, bool *out) {
    char sql[512];
    snprintf(sql, sizeof sql,
             "BEGIN; SELECT pg_advisory_xact_lock(hashtext('millrace store init'));"
             "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
             "WHERE n.nspname = 'millrace_%s' AND c.relname = 'cluster'",
             cluster);
    PGresult *r = NULL;
    int err = postgres_run_text(p, sql, &r);
    if (err)
        return err;
    *out = PQntuples(r) == 1;
    PQclear(r);
    return 0;
}

static int tables_make(struct postgres *p, const char *cluster, uint32_t shards) {
    char hex[2 * CLUSTER_SECRET + 1], sql[4096];
    int err = secret_make(hex);
    if (err < 0)
        return err;
    int length =
        snprintf(sql, sizeof sql, tables, cluster, (int)SCHEMA_VERSION, (unsigned)shards, hex);
    if (length < 0 || (size_t)length >= sizeof sql)
        return error_set(MR_EINVAL, "the name of the cluster is too long");
    return postgres_do(p, sql);
}

// What the row of the cluster says, of any version.
struct cluster_row {
    uint64_t version;
    struct stream_postgres_cluster cluster;
};

static int cluster_parse(struct postgres *p, const char *cluster, const PGresult *r,
                         struct cluster_row *out) {
    if (PQntuples(r) != 1 || postgres_bytes(r, 0, 2).size != CLUSTER_SECRET)
        return error_set(MR_EINVAL,
                         "%s: the table of cluster '%s' is not as it was made; restore it, or drop "
                         "the schema millrace_%s and make the cluster again",
                         postgres_place(p), cluster, cluster);
    out->version = postgres_number(r, 0, 0);
    out->cluster.shards = (uint32_t)postgres_number(r, 0, 1);
    memcpy(out->cluster.secret, postgres_bytes(r, 0, 2).data, CLUSTER_SECRET);
    return 0;
}

static int version_is_newer(struct postgres *p, const char *cluster, uint64_t version) {
    return error_set(MR_EINVAL,
                     "%s: the tables of cluster '%s' have version %llu, this program uses version "
                     "%d; use a program of that version",
                     postgres_place(p), cluster, (unsigned long long)version, SCHEMA_VERSION);
}

static int version_is_older(struct postgres *p, const char *cluster, const struct cluster_row *r) {
    return error_set(MR_EINVAL,
                     "%s: the tables of cluster '%s' have version %llu, this program uses version "
                     "%d; upgrade them with: millrace store init postgres://… --cluster %s "
                     "--shards %u",
                     postgres_place(p), cluster, (unsigned long long)r->version, SCHEMA_VERSION,
                     cluster, (unsigned)r->cluster.shards);
}

// Names the schema: where it is only in the search path, missing rights look like missing tables.
static int cluster_read(struct postgres *p, const char *cluster, struct cluster_row *out) {
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT version, shards, secret FROM millrace_%s.cluster", cluster);
    PGresult *r = NULL;
    struct postgres_arguments none = { 0 };
    int err =
        postgres_run(p, &(struct postgres_statement){ sql, SCHEMA_STATEMENT, false }, &none, &r);
    if (err)
        return err;
    err = cluster_parse(p, cluster, r, out);
    if (!err && out->version > SCHEMA_VERSION)
        err = version_is_newer(p, cluster, out->version);
    PQclear(r);
    return err;
}

int schema_look(struct postgres *p, const char *cluster, struct stream_postgres_cluster *out) {
    struct cluster_row row;
    int err = cluster_read(p, cluster, &row);
    if (!err && row.version < SCHEMA_VERSION)
        err = version_is_older(p, cluster, &row);
    if (!err)
        *out = row.cluster;
    return err;
}

int schema_check(struct postgres *p, const char *cluster, struct schema_checked *checked) {
    int err = postgres_connect(p);
    if (err || checked->session == postgres_sessions(p))
        return err;
    struct stream_postgres_cluster found;
    err = schema_look(p, cluster, &found);
    if (!err)
        *checked = (struct schema_checked){ postgres_sessions(p), found.shards };
    return err;
}

struct stream_state schema_shard_state(const PGresult *r, int row) {
    struct stream_state state = {
        .epoch = postgres_number(r, row, 0),
        .head = postgres_number(r, row, 1),
        .tail = postgres_number(r, row, 2),
        .silent_ms = postgres_number(r, row, 4),
    };
    mr_bytes owner = postgres_bytes(r, row, 3);
    state.bytes = state.tail - state.head;
    snprintf(state.owner, sizeof state.owner, "%.*s", (int)owner.size, (const char *)owner.data);
    return state;
}

static int cluster_upgrade(struct postgres *p, const char *name) {
    char sql[1024];
    int length = snprintf(sql, sizeof sql, tables_upgrade, name, (int)SCHEMA_VERSION);
    assert(length > 0 && (size_t)length < sizeof sql);
    return postgres_do(p, sql);
}

// Sees that the cluster is as wanted, and upgrades it if it is older.
static int cluster_compare(struct postgres *p, const char *name, uint32_t shards,
                           enum store_made *out) {
    struct cluster_row there;
    int err = cluster_read(p, name, &there);
    if (err)
        return err;
    if (there.cluster.shards != shards)
        return error_set(MR_EINVAL,
                         "%s: cluster '%s' was made with %u shard%s, which cannot be changed; name "
                         "that number, or another cluster",
                         postgres_place(p), name, (unsigned)there.cluster.shards,
                         there.cluster.shards == 1 ? "" : "s");
    *out = there.version < SCHEMA_VERSION ? STORE_UPGRADED : STORE_THERE;
    return *out == STORE_UPGRADED ? cluster_upgrade(p, name) : postgres_do(p, "COMMIT");
}

static int cluster_make(struct postgres *p, const char *name, uint32_t shards,
                        enum store_made *out) {
    bool there = false;
    enum store_made made = STORE_MADE;
    int err = tables_exist(p, name, &there);
    if (err)
        return err;
    err = there ? cluster_compare(p, name, shards, &made) : tables_make(p, name, shards);
    if (!err)
        *out = made;
    return err;
}

int stream_postgres_init(const struct stream_postgres_options *o, uint32_t shards,
                         enum store_made *out) {
    if (!shards || shards > CLUSTER_SHARDS_MOST)
        return error_set(MR_EINVAL, "a cluster has 1 to %d shards", CLUSTER_SHARDS_MOST);
    struct postgres *p = NULL;
    int err = postgres_create(o, " init", &p);
    if (err < 0)
        return err;
    err = cluster_make(p, o->cluster, shards, out);
    postgres_destroy(p); // rolls back what failed
    return err;
}

int stream_postgres_look(const struct stream_postgres_options *o,
                         struct stream_postgres_cluster *out) {
    struct postgres *p = NULL;
    int err = postgres_create(o, " look", &p);
    if (err < 0)
        return err;
    err = schema_look(p, o->cluster, out);
    postgres_destroy(p);
    return err;
}
