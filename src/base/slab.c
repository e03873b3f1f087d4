// The free list runs through the entries' first four bytes.
#include "base/slab.h"

#include "base/errors.h"
#include "base/mem.h"

enum { LINE = 64 };

void slab_init(struct slab *s, uint32_t entry_size, uint32_t limit) {
    assert(entry_size >= sizeof(uint32_t));
    *s = (struct slab){ .entry_size = entry_size, .next_new = 1 };
    s->limit = limit && limit < (1u << 29) ? limit : (1u << 29) - 1;
}

// A chunk begins on a cache line, so that an entry of 64 bytes fills one. The byte before it has
// its offset in the allocated block.
static uint8_t *chunk_create(size_t size) {
    uint8_t *block = mem_alloc(size + LINE);
    if (!block)
        return NULL;
    size_t pad = LINE - (uintptr_t)block % LINE;
    block[pad - 1] = (uint8_t)pad;
    return block + pad;
}

static void chunk_destroy(uint8_t *chunk) {
    mem_free(chunk - chunk[-1]);
}

void slab_finish(struct slab *s) {
    for (uint32_t i = 0; i < s->chunk_count; i++)
        chunk_destroy(s->chunks[i]);
    mem_free(s->chunks);
    *s = (struct slab){ .entry_size = s->entry_size, .next_new = 1, .limit = s->limit };
}

static int slab_grow(struct slab *s) {
    if (s->chunk_count == s->chunk_capacity) {
        uint32_t capacity = s->chunk_capacity ? s->chunk_capacity * 2 : 16;
        uint8_t **chunks = mem_resize(s->chunks, capacity * sizeof *chunks);
        if (!chunks)
            return error_set(MR_ENOMEM, "no memory for more entries");
        s->chunks = chunks;
        s->chunk_capacity = capacity;
    }
    uint8_t *chunk = chunk_create((size_t)SLAB_CHUNK * s->entry_size);
    if (!chunk)
        return error_set(MR_ENOMEM, "no memory for more entries");
    s->chunks[s->chunk_count++] = chunk;
    return 0;
}

int slab_grow_for(struct slab *s, uint32_t count) {
    if (count > s->limit - s->used)
        return error_set(MR_EFULL, "%u entries are in use, which is the limit", s->used);
    uint32_t freed = s->next_new - 1 - s->used;
    while (freed + s->chunk_count * SLAB_CHUNK - s->next_new + (s->chunk_count == 0) < count) {
        int err = slab_grow(s);
        if (err < 0)
            return err;
    }
    return 0;
}

uint32_t slab_take_new(struct slab *s) {
    if (s->used >= s->limit)
        return 0;
    if (s->next_new >= s->chunk_count * SLAB_CHUNK && slab_grow(s) < 0)
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
