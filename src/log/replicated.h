// Replicated stores: those whose logs are streams (stream.h), opened by their URL.
#ifndef LOG_REPLICATED_H
#define LOG_REPLICATED_H

#include "base/store_url.h"
#include "log/stream.h"

static inline bool store_is_replicated(const struct store_url *s) {
    return s->scheme == STORE_IN_POSTGRES || s->scheme == STORE_IN_NATS;
}

// Its streams; claims write `owner` (NULL: nothing), for other nodes and for people to read. Does
// not wait for the store. MR_EINVAL: a name is not valid, or this build has no such store.
int stream_store_open(const struct store_url *, const char *owner, struct stream_store **out);
void stream_store_close(struct stream_store *); // after its streams; takes NULL

// Its streams in one transaction, for logs with an inline writer in a single thread; connects. Read
// only, all shards are seen as they were at one moment, even while a node serves them. Otherwise
// others see all that was written with stream_store_commit, or nothing. MR_ENET, also of later
// calls: the session was lost; MR_EINVAL, MR_EPERM.
int stream_store_begin(const struct store_url *, bool read_only, struct stream_store **out);

// After closing its streams; then only stream_store_close may follow. MR_ENET: it may have happened
// or not.
int stream_store_commit(struct stream_store *);

// How many shards it was made for. MR_ENET: it does not answer; MR_EINVAL: it was not made, and how
// to make it; MR_EPERM.
int stream_store_shards(const struct store_url *, uint32_t *out);

// For how long it may answer with less than it has acknowledged, because a part of it does not know
// yet that it is cut off from the rest.
uint64_t stream_store_behind_ms(const struct store_url *);

// Makes it, for so many shards, or upgrades it from an older version. MR_EINVAL: it is there with
// another number, or of a newer version; MR_EPERM, MR_ENET, MR_EFULL.
int stream_store_make(const struct store_url *, uint32_t shards, enum store_made *out);

#endif
