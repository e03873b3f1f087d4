// Heap: numbers ordered by instants, earliest first; ties in order of insertion.
//
// Entries are not removed when they become obsolete (idle); the owner checks each popped entry. It
// counts idle entries with heap_forget, and removes them with heap_filter_some whenever
// heap_wants_filter says so: a few at a time, because there may be very many entries.
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
    size_t looked; // entries that heap_filter_some has passed
    bool filtering;
    uint32_t next_order;
};

void heap_finish(struct heap *);

int heap_grow(struct heap *, size_t more);

// Makes sure that the next `more` calls of heap_put succeed. MR_ENOMEM.
static inline int heap_reserve(struct heap *h, size_t more) {
    return h->count + more <= h->capacity ? 0 : heap_grow(h, more);
}
void heap_put_as(struct heap *, uint64_t at_ms, uint32_t order, uint32_t value);

// The next tie-breaker for heap_put_as: after all entries so far.
static inline uint32_t heap_order(struct heap *h) {
    return h->next_order++;
}

static inline void heap_put(struct heap *h, uint64_t at_ms, uint32_t value) {
    heap_put_as(h, at_ms, heap_order(h), value);
}

// The earliest instant; UINT64_MAX when empty.
static inline uint64_t heap_next(const struct heap *h) {
    return h->count ? h->entries[0].at_ms : UINT64_MAX;
}

struct heap_entry heap_pop(struct heap *);

static inline void heap_forget(struct heap *h) {
    h->idle++;
}

// True from when about half of the entries are idle until heap_filter_some has passed all. Idle
// entries that were popped may still be counted, so this may come early, but at most at every
// 1024th call of heap_forget.
static inline bool heap_wants_filter(const struct heap *h) {
    return h->filtering || (h->idle > 1024 && h->idle > h->count / 2);
}

// Looks at `most` entries, from where the last call stopped, and removes those for which `keep` is
// false. Some may be missed, if entries are put or popped between the calls. Called with each
// heap_forget for a few entries, it keeps the idle ones fewer than the others.
void heap_filter_some(struct heap *, bool (*keep)(const void *owner, struct heap_entry),
                      const void *owner, size_t most);

// Keeps only the entries for which `keep` is true, in their order. It costs a look at all.
void heap_filter(struct heap *, bool (*keep)(const void *owner, struct heap_entry),
                 const void *owner);

#endif
