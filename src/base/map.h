// Map: from a 32-bit hash to a 32-bit number, with the caller's own test for equality.
//
// Open addressing, linear probing, deletion by shifting back. An entry's home slot is proportional
// to its hash, so a table may have any size: it grows by a quarter, and an entry costs between 9
// and 12 bytes. It grows incrementally: while two tables exist, every change moves a few entries,
// so no single call pays for the whole. Iteration order is never used: no order of the engine
// depends on a hash.
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot {
    uint32_t hash, value; // value 0: empty
};

struct map_table {
    struct map_slot *slots;
    uint32_t size, used;
};

struct map {
    struct map_table now, old; // `old` is being emptied into `now`
    uint32_t move_at;          // the next slot of `old` to move
};

// True if `value` is the entry that `key` names.
typedef bool map_equal(const void *owner, uint32_t value, const void *key);

void map_finish(struct map *);

static inline size_t map_count(const struct map *m) {
    return (size_t)m->now.used + m->old.used;
}

// Entries that this many slots may hold.
static inline size_t map_capacity(size_t slots) {
    return slots - slots / 8;
}

int map_grow(struct map *, size_t more);

// Makes sure that the next `more` calls of map_put succeed. MR_ENOMEM.
static inline int map_reserve(struct map *m, size_t more) {
    if (!m->old.slots && m->now.used + more <= map_capacity(m->now.size))
        return 0;
    return map_grow(m, more);
}

// Adds an entry that is not there yet. Only after map_reserve.
void map_put(struct map *, uint32_t hash, uint32_t value);

// The home slot of a hash, from its upper bits.
static inline uint32_t map_home(const struct map_table *t, uint32_t hash) {
    return (uint32_t)((uint64_t)hash * t->size >> 32);
}

static inline uint32_t map_after(const struct map_table *t, uint32_t slot) {
    return slot + 1 == t->size ? 0 : slot + 1;
}

static inline uint32_t map_table_find(const struct map_table *t, uint32_t hash, map_equal *equal,
                                      const void *owner, const void *key) {
    if (!t->slots)
        return 0;
    for (uint32_t i = map_home(t, hash); t->slots[i].value; i = map_after(t, i))
        if (t->slots[i].hash == hash && equal(owner, t->slots[i].value, key))
            return t->slots[i].value;
    return 0;
}

// The value found, or 0. Inline, so that `equal` can be too.
static inline uint32_t map_find(const struct map *m, uint32_t hash, map_equal *equal,
                                const void *owner, const void *key) {
    uint32_t value = map_table_find(&m->now, hash, equal, owner, key);
    return value || !m->old.slots ? value : map_table_find(&m->old, hash, equal, owner, key);
}

// Prefetches the place of this hash.
static inline void map_expect(const struct map *m, uint32_t hash) {
    __builtin_prefetch(&m->now.slots[map_home(&m->now, hash)]);
}

// Removes the entry (hash, value), which must be there.
void map_remove(struct map *, uint32_t hash, uint32_t value);

#endif
