// Route: which shard of an engine a stage lives in, and so all that belongs to it: jobs, channels,
// `once` names, sources, epics, limits.
//
//     slot  = CRC16(stage) mod 16384        the CRC16 and the slots of Redis Cluster
//     shard = slot · shards / 16384
//
// A store is laid out by this, so it is as fixed as the store's format: another number of shards
// means copying the store (`millrace store copy --shards`). Pure; any thread.
#ifndef CORE_ROUTE_H
#define CORE_ROUTE_H

#include "base/bytes.h"

enum { SHARDS_MOST = 64 }; // of one engine: a set of shards is a 64-bit mask
enum { ROUTE_SLOTS = 16384 };

// The slot of a stage, by its name.
uint32_t route_slot(mr_bytes stage);

// The shard that a stage lives in. The only shard is 0.
static inline uint32_t route_of(uint32_t shards, mr_bytes stage) {
    return shards <= 1 ? 0 : route_slot(stage) * shards / ROUTE_SLOTS;
}

// The first slot of a shard; of `shards` itself, the number of slots.
static inline uint32_t route_first_slot(uint32_t shards, uint32_t shard) {
    return (shard * ROUTE_SLOTS + shards - 1) / shards;
}

// The shard that issued this id. A job may have moved since: where it answers MR_EGONE and the
// store was copied into another number of shards, another one knows it.
static inline uint32_t route_of_id(uint32_t shards, uint64_t id) {
    return shards <= 1 || !id ? 0 : (uint32_t)((id - 1) % shards);
}

// The hash that represents a `once` in memory and in records: it covers stage, key and name.
struct hash128 once_name(mr_bytes stage, mr_bytes key, mr_bytes once);

#endif
