// See replicated.h and board.h.
#include "log/replicated.h"

#include "log/board_postgres.h"
#include "log/stream_postgres.h"

static struct stream_postgres_options postgres_options(const struct store_url *s,
                                                       const char *owner) {
    return (struct stream_postgres_options){ .url = s->text,
                                             .cluster = s->cluster ? s->cluster : STORE_CLUSTER,
                                             .owner = owner };
}

int stream_store_open(const struct store_url *s, const char *owner, struct stream_store **out) {
    struct stream_postgres_options o = postgres_options(s, owner);
    return stream_postgres_create(&o, out);
}

// The commit of a large copy waits for the standby.
enum { TRANSACTION_CALL_MS = 60000 };

int stream_store_begin(const struct store_url *s, bool read_only, struct stream_store **out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    o.call_ms = TRANSACTION_CALL_MS;
    return stream_failed(stream_postgres_begin(&o, read_only, out));
}

int stream_store_commit(struct stream_store *s) {
    return stream_failed(stream_postgres_commit(s));
}

void stream_store_close(struct stream_store *s) {
    stream_postgres_destroy(s);
}

int stream_store_shards(const struct store_url *s, uint32_t *out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    struct stream_postgres_cluster cluster;
    int err = stream_failed(stream_postgres_look(&o, &cluster));
    if (err == 0)
        *out = cluster.shards;
    return err;
}

int stream_store_make(const struct store_url *s, uint32_t shards, enum store_made *out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    return stream_failed(stream_postgres_init(&o, shards, out));
}

int board_open(const struct store_url *s, struct board **out) {
    struct stream_postgres_options o = postgres_options(s, NULL);
    return board_postgres_create(&o, out);
}
