// Heap: numbers waiting for instants, earliest first; ties leave in the order they came.
//
// Entries are not removed when they lose their meaning; whoever pops one looks whether it still
// counts. The owner says with heap_forget that one has become idle, and asks heap_wants_filter
// whether it is time to rebuild with heap_filter.
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_entry {
    uint64_t at_ms;
    uint32_t order, value;
};

struct heap {
    struct heap_entry *entries;
    size_t count, capacity, idle;
    uint32_t next_order;
};

void heap_finish(struct heap *);

// Makes sure that the next `more` calls of heap_put succeed. MR_ENOMEM.
int heap_reserve(struct heap *, size_t more);
void heap_put(struct heap *, uint64_t at_ms, uint32_t value);

// The earliest instant; UINT64_MAX when empty.
uint64_t heap_next(const struct heap *);
struct heap_entry heap_pop(struct heap *);

static inline void heap_forget(struct heap *h) {
    h->idle++;
}

// True when about half of the entries are idle: idle ones popped meanwhile are still counted, so a
// rebuild may come early, but never more often than every 1024th call of heap_forget.
static inline bool heap_wants_filter(const struct heap *h) {
    return h->idle > 1024 && h->idle > h->count / 2;
}

// Keeps only the entries for which `keep` says so, in their order.
void heap_filter(struct heap *, bool (*keep)(const void *owner, struct heap_entry),
                 const void *owner);

#endif
