// The ring has a power of two of slots. A position beyond it makes it grow; if that fails, the
// counts are given up.
#include "core/state.h"

#include "base/mem.h"

enum { STRETCH_SHIFT = 20, STRETCHES_MOST = 1 << 24 };

void live_init(struct live *l, uint64_t stretch_size) {
    *l = (struct live){ .shift = STRETCH_SHIFT };
    if (stretch_size)
        l->shift = 63 - (uint32_t)__builtin_clzll(stretch_size);
}

static void live_give_up(struct live *l) {
    mem_free(l->bytes);
    *l = (struct live){ .shift = l->shift, .unknown = true };
}

// Makes the ring reach a stretch behind its end.
static bool live_grow(struct live *l, uint64_t stretch) {
    if (!l->size)
        l->first = stretch;
    if (stretch - l->first >= STRETCHES_MOST)
        return false;
    uint64_t size = l->size ? l->size : 16;
    while (stretch - l->first >= size)
        size *= 2;
    uint64_t *bytes = mem_alloc(size * sizeof *bytes);
    if (!bytes)
        return false;
    for (uint64_t i = l->first; i < l->first + l->size; i++)
        bytes[i & (size - 1)] = l->bytes[i & (l->size - 1)];
    mem_free(l->bytes);
    l->bytes = bytes;
    l->size = size;
    return true;
}

uint64_t *live_outside_ring(struct live *l, uint64_t stretch) {
    if (!l->unknown && !live_grow(l, stretch))
        live_give_up(l);
    return l->unknown ? &l->uncounted : &l->bytes[stretch & (l->size - 1)];
}

void live_forget(struct live *l, uint64_t upto) {
    if (l->size && upto >> l->shift > l->first)
        l->first = upto >> l->shift;
}

void live_finish(struct live *l) {
    mem_free(l->bytes);
}

uint64_t core_live_in(const struct core *c, uint64_t from, uint64_t upto) {
    const struct live *l = &c->live;
    uint64_t bytes = 0;
    if (l->unknown)
        return UINT64_MAX;
    uint64_t i = from >> l->shift, last = (upto - 1) >> l->shift;
    for (i = i > l->first ? i : l->first; i <= last && i - l->first < l->size; i++)
        bytes += l->bytes[i & (l->size - 1)];
    return bytes;
}
