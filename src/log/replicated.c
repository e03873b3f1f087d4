// See replicated.h and board.h.
#include "log/replicated.h"

#include "base/errors.h"
#include "log/board.h"
#include "log/replicated_kind.h"

// MR_EINVAL: this build does not have it.
static int replicated_kind_of(const struct store_url *s, const struct replicated_kind **out) {
    *out = s->scheme == STORE_IN_NATS ? &replicated_nats : &replicated_postgres;
    return (*out)->missing ? error_set(MR_EINVAL, "%s", (*out)->missing) : 0;
}

int stream_store_open(const struct store_url *s, const char *owner, struct stream_store **out) {
    const struct replicated_kind *kind;
    int err = replicated_kind_of(s, &kind);
    return err < 0 ? err : kind->open(s, owner, out);
}

int stream_store_begin(const struct store_url *s, bool read_only, struct stream_store **out) {
    const struct replicated_kind *kind;
    int err = replicated_kind_of(s, &kind);
    return err < 0 ? err : stream_failed(kind->begin(s, read_only, out));
}

int stream_store_commit(struct stream_store *s) {
    return stream_failed(s->commit(s));
}

void stream_store_close(struct stream_store *s) {
    if (s)
        s->close(s);
}

int stream_store_shards(const struct store_url *s, uint32_t *out) {
    const struct replicated_kind *kind;
    int err = replicated_kind_of(s, &kind);
    return err < 0 ? err : stream_failed(kind->shards(s, out));
}

uint64_t stream_store_behind_ms(const struct store_url *s) {
    const struct replicated_kind *kind;
    return replicated_kind_of(s, &kind) < 0 ? 0 : kind->behind_ms;
}

int stream_store_make(const struct store_url *s, uint32_t shards, enum store_made *out) {
    const struct replicated_kind *kind;
    int err = replicated_kind_of(s, &kind);
    return err < 0 ? err : stream_failed(kind->make(s, shards, out));
}

int board_open(const struct store_url *s, struct board **out) {
    const struct replicated_kind *kind;
    int err = replicated_kind_of(s, &kind);
    return err < 0 ? err : kind->board(s, out);
}
