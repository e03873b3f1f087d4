// Group: the shards of one engine, opened and closed together.
//
//     mem:        N logs in memory
//     file:DIR    one shard: DIR/store, DIR/0…0.seg …
//                 N shards:    DIR/shards      their number; written first
//                              DIR/lock        the process that uses them
//                              DIR/shard-0 …   each a store of its own
//
// The group provides what the engine has as a whole: one time for all shards that it has opened,
// and ids that no two shards issue. Everything else belongs to a stage, and so to one shard
// (core/route.h). The owner drives each shard, as it does for a single one.
#ifndef SHARD_GROUP_H
#define SHARD_GROUP_H

#include "shard/layout.h"
#include "shard/shard.h"

struct group;

struct group_options {
    struct store_url store;
    uint32_t shards; // 0: as many as there are; 1 if there is no store yet
    bool is_one;     // opens only this shard of a replicated store: others have the rest
    uint32_t one;
    struct log_options
        log; // of each; max_bytes is for all together, and without `arg` that is its owner
    struct core_limits limits; // max_bytes and max_memory for all together, the others for each
    struct core_events events; // of each
    struct core_quotas quotas; // of each; their owner is that of the events
    // Returns the owner argument for the events of a shard; called once for each, in order, before
    // any is opened. If it returns NULL, opening fails with MR_ENOMEM. Without the function, `arg`
    // is passed.
    void *(*owner)(void *arg, uint32_t shard, uint32_t shards);
    void *arg;
    struct shard_world world;
    const atomic_bool *cancel; // see shard.h
    bool never_replayed;       // the same
};

// Opens all shards, or none. MR_EINVAL: more than SHARDS_MOST, or another number than the store has
// (the error says both, and how to change it); MR_EBUSY: a process uses the store; MR_ECORRUPT: a
// shard's store is missing or damaged; and what shard_open answers.
int group_open(const struct group_options *, struct group **out);

// Closes every shard. Takes NULL. No thread may use a shard any more.
void group_close(struct group *);

// Any thread.
uint32_t group_count(const struct group *);
struct shard *group_shard(const struct group *, uint32_t index); // NULL: it was not opened

#endif
