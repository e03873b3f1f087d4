// For a build without libpq: every call is refused. See replicated.h and board.h.
#include "log/replicated.h"

#include "base/errors.h"
#include "log/board.h"

static int no_postgres(void) {
    return error_set(MR_EINVAL, "this build has no PostgreSQL: it was made without libpq");
}

int stream_store_open(const struct store_url *s, const char *owner, struct stream_store **out) {
    (void)s, (void)owner, (void)out;
    return no_postgres();
}

int stream_store_begin(const struct store_url *s, bool read_only, struct stream_store **out) {
    (void)s, (void)read_only, (void)out;
    return no_postgres();
}

int stream_store_commit(struct stream_store *s) {
    (void)s;
    return no_postgres();
}

void stream_store_close(struct stream_store *s) {
    (void)s; // there is none
}

int stream_store_shards(const struct store_url *s, uint32_t *out) {
    (void)s, (void)out;
    return no_postgres();
}

int stream_store_make(const struct store_url *s, uint32_t shards, enum store_made *out) {
    (void)s, (void)shards, (void)out;
    return no_postgres();
}

int board_open(const struct store_url *s, struct board **out) {
    (void)s, (void)out;
    return no_postgres();
}
