// Inside the streams in NATS: what the streams of a store share, and stores for copies.
#ifndef LOG_NATS_STORE_H
#define LOG_NATS_STORE_H

#include "log/nats_cluster.h"
#include "log/nats_index.h"

struct shard_index {
    struct shard_index *next;
    uint32_t shard;
    struct nats_index index;
};

struct nats_store {
    struct stream_store base;
    struct stream_nats_options options; // points to what follows
    pthread_mutex_t lock;               // guards `indexes`
    struct shard_index *indexes;
    struct nats_session *session;      // of stream_nats_begin; NULL: none
    struct nats_cluster_state cluster; // then
    struct stream_state *moment; // of every shard: what a read-only copy sees; NULL: the present
    bool is_filling;             // a copy is written into it …
    bool is_claimed;             // … which has claimed all shards
    uint64_t claimer;            // of all streams of a copy; 0: each has its own
    char cluster_name[NATS_CLUSTER_NAME + 1], owner[STREAM_OWNER];
    char url[];
};

// ---- nats_copy.c ------------------------------------------------------------------------------

// Others may use what was written.
int nats_fill_commit(struct stream_store *);

// Removes what was written since stream_nats_begin, if it was not committed.
void nats_fill_abandon(struct nats_store *);

#endif
