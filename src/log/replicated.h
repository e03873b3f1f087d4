// Replicated stores: those whose logs are streams (stream.h), opened by their URL.
#ifndef LOG_REPLICATED_H
#define LOG_REPLICATED_H

#include "base/store_url.h"
#include "log/stream.h"

static inline bool store_is_replicated(const struct store_url *s) {
    return s->scheme == STORE_IN_POSTGRES;
}

// Its streams; claims write `owner` (NULL: nothing), for other nodes and for people to read. Does
// not wait for the store. MR_EINVAL: a name is not valid, or this build has no such store.
int stream_store_open(const struct store_url *, const char *owner, struct stream_store **out);
void stream_store_close(struct stream_store *); // after its streams; takes NULL

// How many shards it was made for. MR_ENET: it does not answer; MR_EINVAL: it was not made, and how
// to make it; MR_EPERM.
int stream_store_shards(const struct store_url *, uint32_t *out);

// Makes it, for so many shards; `out_made`: it was not there. MR_EINVAL: it is there with another
// number or version; MR_EPERM, MR_ENET, MR_EFULL.
int stream_store_make(const struct store_url *, uint32_t shards, bool *out_made);

#endif
