// Kinds of replicated stores (replicated.h, board.h). A build without one has a kind that says so.
#ifndef LOG_REPLICATED_KIND_H
#define LOG_REPLICATED_KIND_H

#include "base/store_url.h"
#include "log/stream.h"

struct board;

// As the functions of replicated.h and board.h; results are those of streams.
struct replicated_kind {
    const char *missing; // why this build does not have it; NULL: it does
    uint64_t behind_ms;  // as stream_store_behind_ms
    int (*open)(const struct store_url *, const char *owner, struct stream_store **out);
    int (*begin)(const struct store_url *, bool read_only, struct stream_store **out);
    int (*shards)(const struct store_url *, uint32_t *out);
    int (*make)(const struct store_url *, uint32_t shards, enum store_made *out);
    int (*board)(const struct store_url *, struct board **out);
};

extern const struct replicated_kind replicated_postgres, replicated_nats;

// The name of the cluster in the store.
static inline const char *store_cluster(const struct store_url *s) {
    return s->cluster ? s->cluster : STORE_CLUSTER;
}

#endif
