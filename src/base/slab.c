// The free list runs through the entries' first four bytes. A range begins at a page, so an entry
// of 64 bytes fills a cache line.
#include "base/slab.h"

#include "base/errors.h"
#include "base/mem.h"

void slab_init(struct slab *s, uint32_t entry_size, uint32_t limit) {
    assert(entry_size >= sizeof(uint32_t));
    *s = (struct slab){ .entry_size = entry_size, .next_new = 1 };
    s->limit = limit && limit < (1u << 29) ? limit : (1u << 29) - 1;
}

void slab_finish(struct slab *s) {
    mem_release(s->entries, s->size);
    slab_init(s, s->entry_size, s->limit);
}

static int slab_grow(struct slab *s) {
    if (!s->entries) {
        s->size = ((size_t)s->limit + 1) * s->entry_size;
        s->entries = mem_reserve(&s->size);
    }
    size_t chunk = (size_t)SLAB_CHUNK * s->entry_size, left = s->entries ? s->size - s->made_to : 0;
    if (left < chunk)
        chunk = left; // whole pages, as the range is
    if (!chunk || !mem_commit(s->entries + s->made_to, chunk))
        return error_set(MR_ENOMEM, "no memory for more entries");
    s->made_to += chunk;
    size_t made = s->made_to / s->entry_size - 1;
    s->made = made < s->limit ? (uint32_t)made : s->limit;
    return 0;
}

int slab_grow_for(struct slab *s, uint32_t count) {
    if (count > s->limit - s->used)
        return error_set(MR_EFULL, "%u entries are in use, which is the limit", s->used);
    while (s->made - s->used < count) {
        int err = slab_grow(s);
        if (err < 0)
            return err;
    }
    return 0;
}

uint32_t slab_take_new(struct slab *s) {
    if (s->used >= s->limit || (s->next_new > s->made && slab_grow(s) < 0))
        return 0;
    s->used++;
    return s->next_new++;
}

uint32_t slab_take(struct slab *s) {
    uint32_t number = slab_take_as_is(s);
    if (number)
        memset(slab_at(s, number), 0, s->entry_size);
    return number;
}
