// Pool: many short strings of bytes, addressed by 32-bit numbers. Strings never move; number 0 is
// "none".
//
//     number ──► one slab for every four bytes more ──► [ size | string … ]
//
// A string of up to 63 bytes costs one more, rounded up to four; a longer one is a block of its
// own.
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/bytes.h"
#include "base/slab.h"

enum { POOL_STEP = 4, POOL_SLABS = 1 + 64 / POOL_STEP };

// A number is that of a slab, from POOL_SLAB_AT on, and that of an entry in it.
enum { POOL_SLAB_AT = 27, POOL_ENTRY = (1 << POOL_SLAB_AT) - 1 };

_Static_assert(POOL_SLABS <= 1 << (32 - POOL_SLAB_AT), "a number holds that of its slab");

struct pool {
    struct slab slabs[POOL_SLABS]; // the first is for blocks
    uint64_t block_bytes;          // in blocks
};

struct pool_block {
    uint32_t size;
    uint8_t *data; // NULL: the entry is free
};

// Borrows the struct; allocates nothing yet.
void pool_init(struct pool *);
void pool_finish(struct pool *);

// Copies a string. Its number; 0 when there is neither room nor memory.
uint32_t pool_add(struct pool *, mr_bytes);
void pool_remove(struct pool *, uint32_t number);

static inline mr_bytes pool_at(const struct pool *p, uint32_t number) {
    const uint8_t *entry = slab_at(&p->slabs[number >> POOL_SLAB_AT], number & POOL_ENTRY);
    if (number >> POOL_SLAB_AT)
        return bytes_of(entry + 1, entry[0]);
    const struct pool_block *block = (const void *)entry;
    return bytes_of(block->data, block->size);
}

#endif
