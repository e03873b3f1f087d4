// Slab: equal-sized entries addressed by 32-bit numbers. Entries never move; number 0 is "none".
//
//     entries ─► [ in use and free | no memory yet …           ]      one range of addresses
//
// The addresses are reserved when the first entry is made, the memory follows as it is needed; so
// an entry is found without a table of chunks, which saves a job 7 to 9 % of its instructions. Free
// entries form a list. Reuse is last in, first out, so that what was touched last is used next.
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { SLAB_CHUNK = 1 << 12 }; // entries that get memory together

struct slab {
    uint8_t *entries;     // the range; NULL until there is an entry
    size_t size, made_to; // bytes of the range, and of its beginning that has memory
    uint32_t entry_size;
    uint32_t made;      // entries that have memory, without number 0; never beyond the limit
    uint32_t free_head; // 0: none
    uint32_t next_new;  // the first number never used
    uint32_t used;
    uint32_t limit; // entries at most; 0: 2^29 - 1
};

// `entry_size` is at least 4. Borrows the struct; allocates nothing yet.
void slab_init(struct slab *, uint32_t entry_size, uint32_t limit);
void slab_finish(struct slab *);

int slab_grow_for(struct slab *, uint32_t count);

// Makes sure that the next `count` calls of slab_take succeed. MR_ENOMEM, MR_EFULL.
static inline int slab_reserve(struct slab *s, uint32_t count) {
    return s->made - s->used >= count ? 0 : slab_grow_for(s, count);
}

static inline void *slab_at(const struct slab *s, uint32_t number) {
    return s->entries + (size_t)number * s->entry_size;
}

uint32_t slab_take_new(struct slab *);

// An entry's number; 0 when there is neither room nor memory. Its content is what it was when it
// was given back, except for the first four bytes; a new one is zero.
static inline uint32_t slab_take_as_is(struct slab *s) {
    uint32_t number = s->free_head;
    if (!number)
        return slab_take_new(s);
    memcpy(&s->free_head, slab_at(s, number), sizeof s->free_head);
    __builtin_prefetch(slab_at(s, s->free_head), 1); // it may not be in the cache
    s->used++;
    return number;
}

// The same, zeroed.
uint32_t slab_take(struct slab *);

static inline void slab_give(struct slab *s, uint32_t number) {
    assert(number && number < s->next_new);
    memcpy(slab_at(s, number), &s->free_head, sizeof s->free_head);
    s->free_head = number;
    s->used--;
}

// The same for a type known at compile time, which saves a multiplication.
#define SLAB_AT(slab, type, number) ((type *)(void *)(slab)->entries + (number))

#endif
