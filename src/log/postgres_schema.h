// The tables of a cluster: their version, which every session compares, and the columns that
// streams and boards read.
#ifndef LOG_POSTGRES_SCHEMA_H
#define LOG_POSTGRES_SCHEMA_H

#include "log/postgres.h"

// 2: the table note
enum { SCHEMA_VERSION = 2 };

// Reads the table of the cluster. MR_EINVAL: there is none, or its tables have another version;
// other results of postgres_run.
int schema_look(struct postgres *, const char *cluster, struct stream_postgres_cluster *out);

// What a connection knows of its cluster. Zero is a valid start.
struct schema_checked {
    uint32_t session; // the last one in which it was looked at
    uint32_t shards;
};

// Connects if necessary, and looks in every new session: after a change of the database's primary
// it may be another one. Results of schema_look.
int schema_check(struct postgres *, const char *cluster, struct schema_checked *);

// The columns of a shard's state, the first ones of a statement, and what they say in a row of it.
#define SHARD_STATE                                                                                \
    "epoch, head, tail, owner, "                                                                   \
    "greatest(extract(epoch FROM clock_timestamp() - seen_at) * 1000, 0)::bigint"
enum { SHARD_STATE_COLUMNS = 5 };
struct stream_state schema_shard_state(const PGresult *, int row);

#endif
