// Route: which shard of an engine a job belongs to, by what never changes about it.
//
//     a key          hash (stage, key)        so a channel is in one shard
//     a `once`       hash (stage, once)       so its repeat meets the first
//     a number       hash (source, number)    the same
//     none of them   ROUTE_ANY                whoever hands it in chooses
//
// What lies in a store was routed by this, so it is as fixed as the store's format: another
// spreading means copying the store. Pure; any thread.
#ifndef CORE_ROUTE_H
#define CORE_ROUTE_H

#include "base/bytes.h"

enum { SHARDS_MOST = 64 }; // of one engine: a set of shards is a 64-bit mask

#define ROUTE_ANY UINT32_MAX

// What stands for a `once` in memory and in records: it is scoped to its stage and key, and 128
// bits of hash are enough for all three.
struct hash128 once_name(mr_bytes stage, mr_bytes key, mr_bytes once);

uint32_t route_by_name(uint32_t shards, mr_bytes stage, mr_bytes key, mr_bytes once);
uint32_t route_by_number(uint32_t shards, mr_bytes source, uint64_t number);

// Of a push, call or emit, and of whatever is asked about a channel. The only shard is 0.
static inline uint32_t route_of(uint32_t shards, mr_bytes stage, mr_bytes key, mr_bytes once) {
    return shards <= 1 ? 0 : route_by_name(shards, stage, key, once);
}

// Of what has a `once` and no key.
static inline uint32_t route_of_once(uint32_t shards, struct hash128 once) {
    return shards <= 1 ? 0 : (uint32_t)(once.low % shards);
}

// Of a numbered push for which route_of says ROUTE_ANY.
static inline uint32_t route_of_number(uint32_t shards, mr_bytes source, uint64_t number) {
    return shards <= 1 ? 0 : route_by_number(shards, source, number);
}

// The shard that gave this id. A job may have moved on since: where it answers MR_EGONE and the
// store was copied into another number of shards, the others know.
static inline uint32_t route_of_id(uint32_t shards, uint64_t id) {
    return shards <= 1 || !id ? 0 : (uint32_t)((id - 1) % shards);
}

#endif
