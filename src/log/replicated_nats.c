// Stores in NATS. See replicated_kind.h.
#include "log/board_nats.h"
#include "log/replicated_kind.h"
#include "log/stream_nats.h"

static struct stream_nats_options nats_options(const struct store_url *s, const char *owner) {
    return (
        struct stream_nats_options){ .url = s->text, .cluster = store_cluster(s), .owner = owner };
}

static int nats_kind_open(const struct store_url *s, const char *owner, struct stream_store **out) {
    struct stream_nats_options o = nats_options(s, owner);
    return stream_nats_create(&o, out);
}

static int nats_kind_begin(const struct store_url *s, bool read_only, struct stream_store **out) {
    struct stream_nats_options o = nats_options(s, NULL);
    return stream_nats_begin(&o, read_only, out);
}

static int nats_kind_shards(const struct store_url *s, uint32_t *out) {
    struct stream_nats_options o = nats_options(s, NULL);
    struct stream_nats_cluster cluster;
    int err = stream_nats_look(&o, &cluster);
    if (!err)
        *out = cluster.shards;
    return err;
}

static int nats_kind_make(const struct store_url *s, uint32_t shards, enum store_made *out) {
    struct stream_nats_options o = nats_options(s, NULL);
    return stream_nats_init(&o, shards, out);
}

static int nats_kind_board(const struct store_url *s, struct board **out) {
    struct stream_nats_options o = nats_options(s, NULL);
    return board_nats_open(&o, out);
}

const struct replicated_kind replicated_nats = {
    .behind_ms = NATS_BEHIND_MS,
    .open = nats_kind_open,
    .begin = nats_kind_begin,
    .shards = nats_kind_shards,
    .make = nats_kind_make,
    .board = nats_kind_board,
};
