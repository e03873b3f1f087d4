// Streams in PostgreSQL (stream.h). A cluster is a schema `millrace_NAME` of a database, so one
// database may hold several clusters, each with rights of its own:
//
//     cluster  one row: version, name, number of shards, the secret that nodes share
//     shard    a row for each: epoch, head, tail, owner, and when it was seen last
//     batch    shard, at, ends, epoch, heads, bodies
//     note     key, value, and when it was put: what nodes tell each other (board.h)
//
// The fence is the row of the shard, not the key of a batch: after a trim the key of a stale
// owner's batch would be free again. Every append changes the row where epoch and tail are the
// expected ones, and inserts what that change lets through; one statement, one commit.
//
// The connection must be a session of its own: a pooler in front of it has to pool sessions.
#ifndef LOG_STREAM_POSTGRES_H
#define LOG_STREAM_POSTGRES_H

#include "log/stream.h"

enum { CLUSTER_NAME_MOST = 40, CLUSTER_SHARDS_MOST = 1024, CLUSTER_SECRET = 32 };

// Borrowed during the call.
struct stream_postgres_options {
    const char *url;                // postgres://… with all that libpq accepts, several hosts too
    const char *cluster;            // a to z, 0 to 9 and _, at most CLUSTER_NAME_MOST
    const char *owner;              // what claims write for people to read; NULL: nothing
    const char *synchronous_commit; // NULL: on
    uint32_t connect_ms;            // for each host; 0: POSTGRES_CONNECT_MS
    uint32_t call_ms;               // for each statement; 0: POSTGRES_CALL_MS
};
enum { POSTGRES_CONNECT_MS = 3000, POSTGRES_CALL_MS = 10000 };

// What the table of the cluster says.
struct stream_postgres_cluster {
    uint32_t shards;
    uint8_t secret[CLUSTER_SECRET];
};

// A store whose streams are in the cluster. Does not connect. Any thread may open streams; they
// are closed before the store. MR_EINVAL: the URL or a name; MR_ENOMEM.
int stream_postgres_create(const struct stream_postgres_options *, struct stream_store **out);

// A store whose streams share one session and one transaction, for a single thread; connects. If it
// is `read_only`, all streams are read as they were at one moment, even while others trim them.
// Otherwise what is written is there for others with its `commit`, or never. Results of
// streams; MR_ENET of later calls: the session was lost.
int stream_postgres_begin(const struct stream_postgres_options *, bool read_only,
                          struct stream_store **out);

// Makes the cluster's schema and tables, upgrades those of an older version, or sees that they are
// as wanted; repeating it changes nothing. MR_EINVAL: they are of a newer version, or for another
// number of shards; MR_EPERM; other results of streams.
int stream_postgres_init(const struct stream_postgres_options *, uint32_t shards,
                         enum store_made *out);

// Reads the table of the cluster. Results of streams.
int stream_postgres_look(const struct stream_postgres_options *,
                         struct stream_postgres_cluster *out);

#endif
