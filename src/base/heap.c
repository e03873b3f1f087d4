// A binary heap ordered by (instant, order of arrival).
#include "base/heap.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>

static bool entry_is_before(struct heap_entry a, struct heap_entry b) {
    return a.at_ms != b.at_ms ? a.at_ms < b.at_ms : (int32_t)(a.order - b.order) < 0;
}

void heap_finish(struct heap *h) {
    mem_free(h->entries);
    *h = (struct heap){ 0 };
}

int heap_grow(struct heap *h, size_t more) {
    size_t capacity = h->capacity ? h->capacity : 64;
    while (capacity < h->count + more)
        capacity += capacity / 4;
    struct heap_entry *entries = mem_resize(h->entries, capacity * sizeof *entries);
    if (!entries)
        return error_set(MR_ENOMEM, "no memory for %zu timers", capacity);
    h->entries = entries;
    h->capacity = capacity;
    return 0;
}

static void heap_sift_up(struct heap *h, size_t i) {
    struct heap_entry e = h->entries[i];
    while (i && entry_is_before(e, h->entries[(i - 1) / 2])) {
        h->entries[i] = h->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->entries[i] = e;
}

static void heap_sift_down(struct heap *h, size_t i) {
    struct heap_entry e = h->entries[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count && entry_is_before(h->entries[child + 1], h->entries[child]))
            child++;
        if (!entry_is_before(h->entries[child], e))
            break;
        h->entries[i] = h->entries[child];
        i = child;
    }
    h->entries[i] = e;
}

void heap_put_as(struct heap *h, uint64_t at_ms, uint32_t order, uint32_t value) {
    assert(h->count < h->capacity);
    h->entries[h->count] = (struct heap_entry){ at_ms, order, value };
    heap_sift_up(h, h->count++);
}

struct heap_entry heap_pop(struct heap *h) {
    assert(h->count);
    struct heap_entry first = h->entries[0];
    h->entries[0] = h->entries[--h->count];
    if (h->count)
        heap_sift_down(h, 0);
    return first;
}

static void heap_remove_at(struct heap *h, size_t i) {
    struct heap_entry last = h->entries[--h->count];
    if (i == h->count)
        return;
    h->entries[i] = last;
    if (i && entry_is_before(last, h->entries[(i - 1) / 2]))
        heap_sift_up(h, i);
    else
        heap_sift_down(h, i);
}

void heap_filter_some(struct heap *h, bool (*keep)(const void *owner, struct heap_entry),
                      const void *owner, size_t most) {
    if (!h->filtering)
        h->looked = h->idle = 0;
    for (; most && h->looked < h->count; most--) {
        if (keep(owner, h->entries[h->looked]))
            h->looked++;
        else
            heap_remove_at(h, h->looked);
    }
    h->filtering = h->looked < h->count;
}

void heap_filter(struct heap *h, bool (*keep)(const void *owner, struct heap_entry),
                 const void *owner) {
    size_t kept = 0;
    for (size_t i = 0; i < h->count; i++)
        if (keep(owner, h->entries[i]))
            h->entries[kept++] = h->entries[i];
    h->count = kept;
    h->idle = 0;
    h->filtering = false;
    for (size_t i = kept / 2; i-- > 0;)
        heap_sift_down(h, i);
}
