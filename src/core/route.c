// Routes: hashes of what a job is known by, seeded by the stage or source it is known in.
#include "core/route.h"

#include "base/codec.h"

// Keeps a key, a `once` and a source of the same bytes apart.
enum { BY_KEY = 1, BY_ONCE = 2, BY_NUMBER = 3 };

struct hash128 once_name(mr_bytes stage, mr_bytes key, mr_bytes once) {
    return bytes_hash128(once, bytes_hash(key, bytes_hash(stage, BY_ONCE)));
}

uint32_t route_by_name(uint32_t shards, mr_bytes stage, mr_bytes key, mr_bytes once) {
    if (key.size)
        return (uint32_t)(bytes_hash(key, bytes_hash(stage, BY_KEY)) % shards);
    return once.size ? route_of_once(shards, once_name(stage, key, once)) : ROUTE_ANY;
}

uint32_t route_by_number(uint32_t shards, mr_bytes source, uint64_t number) {
    uint8_t digits[10];
    struct writer w = { .data = digits, .capacity = sizeof digits };
    put_number(&w, number);
    return (uint32_t)(bytes_hash(bytes_of(w.data, w.size), bytes_hash(source, BY_NUMBER)) % shards);
}
