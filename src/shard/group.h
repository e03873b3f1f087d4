// Group: the shards of one engine, opened and closed together.
//
//     mem:        N logs in memory
//     file:DIR    one shard:   DIR/store, DIR/0…0.seg …, as ever
//                 N shards:    DIR/shards      how many; written before anything else
//                              DIR/lock        whoever uses any of them
//                              DIR/shard-0 …   each a store of its own
//
// What belongs to the engine as a whole is the group's: one time for all shards, and ids that no
// two of them issue. Everything else belongs to a stage, and so to one shard (core/route.h). Who
// drives which shard when is the owner's business, as it is for a shard alone.
#ifndef SHARD_GROUP_H
#define SHARD_GROUP_H

#include "shard/layout.h"
#include "shard/shard.h"

struct group;

struct group_options {
    const char *dir;           // NULL: in memory
    uint32_t shards;           // 0: as many as there are; 1 if there is no store yet
    struct log_options log;    // of each; max_bytes is for all together
    struct core_limits limits; // max_bytes and max_memory for all together, the others for each
    struct core_events events; // of each
    // Whom the events of a shard are told; asked once for each, in order, before any is opened.
    // NULL from it is MR_ENOMEM. Without the function it is `arg`.
    void *(*owner)(void *arg, uint32_t shard, uint32_t shards);
    void *arg;
    struct shard_world world;
    const atomic_bool *cancel; // see shard.h
};

// Opens all shards, or none. MR_EINVAL: more than SHARDS_MOST, or another number than the store
// has (the sentence says both, and how to change it); MR_EBUSY: somebody uses the store;
// MR_ECORRUPT: a shard's store is missing or damaged; and what shard_open answers.
int group_open(const struct group_options *, struct group **out);

// Closes every shard. Takes NULL. One thread; nobody uses a shard any more.
void group_close(struct group *);

// Any thread.
uint32_t group_count(const struct group *);
struct shard *group_shard(const struct group *, uint32_t index);

#endif
