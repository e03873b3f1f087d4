// Stores in PostgreSQL. See replicated_kind.h.
#include "log/board_postgres.h"
#include "log/replicated_kind.h"
#include "log/stream_postgres.h"

// The commit of a large copy waits for the standby.
enum { TRANSACTION_CALL_MS = 60000 };

static struct stream_postgres_options postgres_options(const struct store_url *s,
                                                       const char *owner) {
    return (struct stream_postgres_options){ .url = s->text,
                                             .cluster = store_cluster(s),
                                             .owner = owner };
}

static int postgres_kind_open(const struct store_url *s, const char *owner,
                              struct stream_store **out) {
    struct stream_postgres_options o = postgres_options(s, owner);
    return stream_postgres_create(&o, out);
}

static int postgres_kind_begin(const struct store_url *s, bool read_only,
                               struct stream_store **out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    o.call_ms = TRANSACTION_CALL_MS;
    return stream_postgres_begin(&o, read_only, out);
}

static int postgres_kind_shards(const struct store_url *s, uint32_t *out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    struct stream_postgres_cluster cluster;
    int err = stream_postgres_look(&o, &cluster);
    if (!err)
        *out = cluster.shards;
    return err;
}

static int postgres_kind_make(const struct store_url *s, uint32_t shards, enum store_made *out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    return stream_postgres_init(&o, shards, out);
}

static int postgres_kind_board(const struct store_url *s, struct board **out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    return board_postgres_create(&o, out);
}

const struct replicated_kind replicated_postgres = {
    .open = postgres_kind_open,
    .begin = postgres_kind_begin,
    .shards = postgres_kind_shards,
    .make = postgres_kind_make,
    .board = postgres_kind_board,
};
