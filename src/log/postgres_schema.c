// Makes the tables of a cluster, in one transaction, so that there are all or none. An advisory
// lock lets two programs that make the same cluster take turns.
#include "log/postgres_schema.h"

#include "base/errors.h"
#include "log/postgres.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

// Values are not compressed, so that a part of a body is read without the rest. Rows of `shard`
// change with every append: most of their page is left free, so that new versions stay in it. Dead
// rows are what a log leaves behind: autovacuum removes them whenever it comes, without pauses, and
// does not try to shorten the file, which would need an exclusive lock.
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
    "EXTERNAL;"
    "INSERT INTO millrace_%1$s.cluster (version, name, shards, secret) VALUES (%2$d, '%1$s', "
    "%3$u, '\\x%4$s');"
    "INSERT INTO millrace_%1$s.shard (shard) SELECT generate_series(0, %3$u - 1);"
    "COMMIT";

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

static int cluster_parse(struct postgres *p, const char *cluster, const PGresult *r,
                         struct stream_postgres_cluster *out) {
    if (PQntuples(r) != 1 || postgres_bytes(r, 0, 2).size != CLUSTER_SECRET)
        return error_set(MR_EINVAL,
                         "%s: the table of cluster '%s' is not as it was made; restore it, or drop "
                         "the schema millrace_%s and make the cluster again",
                         postgres_place(p), cluster, cluster);
    uint64_t version = postgres_number(r, 0, 0);
    if (version != SCHEMA_VERSION)
        return error_set(MR_EINVAL,
                         "%s: the tables of cluster '%s' have version %llu, this program uses "
                         "version %d; use a program of that version",
                         postgres_place(p), cluster, (unsigned long long)version, SCHEMA_VERSION);
    out->shards = (uint32_t)postgres_number(r, 0, 1);
    memcpy(out->secret, postgres_bytes(r, 0, 2).data, CLUSTER_SECRET);
    return 0;
}

// Names the schema: where it is only in the search path, missing rights look like missing tables.
int schema_look(struct postgres *p, const char *cluster, struct stream_postgres_cluster *out) {
    char sql[128];
    snprintf(sql, sizeof sql, "SELECT version, shards, secret FROM millrace_%s.cluster", cluster);
    PGresult *r = NULL;
    struct postgres_arguments none = { 0 };
    int err =
        postgres_run(p, &(struct postgres_statement){ sql, SCHEMA_STATEMENT, false }, &none, &r);
    if (err)
        return err;
    err = cluster_parse(p, cluster, r, out);
    PQclear(r);
    return err;
}

static int cluster_compare(struct postgres *p, const char *name, uint32_t shards) {
    struct stream_postgres_cluster there;
    int err = schema_look(p, name, &there);
    if (err)
        return err;
    if (there.shards != shards)
        return error_set(MR_EINVAL,
                         "%s: cluster '%s' was made with %u shards, which cannot be changed; name "
                         "that number, or another cluster",
                         postgres_place(p), name, (unsigned)there.shards);
    return postgres_do(p, "COMMIT");
}

static int cluster_make(struct postgres *p, const char *name, uint32_t shards, bool *out_made) {
    bool there = false;
    int err = tables_exist(p, name, &there);
    if (err)
        return err;
    err = there ? cluster_compare(p, name, shards) : tables_make(p, name, shards);
    if (!err)
        *out_made = !there;
    return err;
}

int stream_postgres_init(const struct stream_postgres_options *o, uint32_t shards, bool *out_made) {
    if (!shards || shards > CLUSTER_SHARDS_MOST)
        return error_set(MR_EINVAL, "a cluster has 1 to %d shards", CLUSTER_SHARDS_MOST);
    struct postgres *p = NULL;
    int err = postgres_create(o, " init", &p);
    if (err < 0)
        return err;
    err = cluster_make(p, o->cluster, shards, out_made);
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
