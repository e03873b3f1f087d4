// Ring: a queue of pointers with consecutive numbers, which also finds them by number.
//
//     slots  [ 8 | 9 | 10 | · | · | 5 | 6 | 7 ]      number n lives in slot n mod capacity
//                      next ┘       └ first
#ifndef LOG_RING_H
#define LOG_RING_H

#include "base/errors.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdint.h>

struct ring {
    void **slots;
    uint64_t first, next; // the numbers held are first … next - 1
    uint64_t capacity;    // a power of two, or 0
};

static inline uint64_t ring_count(const struct ring *r) {
    return r->next - r->first;
}

// NULL when the number is not held.
static inline void *ring_at(const struct ring *r, uint64_t number) {
    if (number < r->first || number >= r->next)
        return NULL;
    return r->slots[number & (r->capacity - 1)];
}

// Makes sure that the next `more` calls of ring_push succeed. MR_ENOMEM.
static inline int ring_reserve(struct ring *r, uint64_t more) {
    if (ring_count(r) + more <= r->capacity)
        return 0;
    uint64_t capacity = r->capacity ? r->capacity : 16;
    while (capacity < ring_count(r) + more)
        capacity *= 2;
    void **slots = mem_alloc(capacity * sizeof *slots);
    if (!slots)
        return error_set(MR_ENOMEM, "no memory for a table of %llu segments",
                         (unsigned long long)capacity);
    for (uint64_t n = r->first; n < r->next; n++)
        slots[n & (capacity - 1)] = ring_at(r, n);
    mem_free(r->slots);
    r->slots = slots;
    r->capacity = capacity;
    return 0;
}

// Only after ring_reserve.
static inline void ring_push(struct ring *r, void *item) {
    r->slots[r->next++ & (r->capacity - 1)] = item;
}

static inline void *ring_shift(struct ring *r) {
    void *item = ring_at(r, r->first);
    r->first++;
    return item;
}

static inline void ring_finish(struct ring *r) {
    mem_free(r->slots);
    *r = (struct ring){ 0 };
}

#endif
