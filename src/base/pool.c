// A slab uses the first four bytes of a free entry for its free list; the address of a block comes
// after them, so pool_finish can still see which entries have one.
#include "base/pool.h"

#include "base/mem.h"

#include <string.h>

void pool_init(struct pool *p) {
    p->block_bytes = 0;
    for (uint32_t i = 0; i < POOL_SLABS; i++)
        slab_init(&p->slabs[i], i ? i * POOL_STEP : sizeof(struct pool_block), POOL_ENTRY);
}

void pool_finish(struct pool *p) {
    for (uint32_t i = 1; i < p->slabs[0].next_new; i++)
        mem_free(((struct pool_block *)slab_at(&p->slabs[0], i))->data);
    for (uint32_t i = 0; i < POOL_SLABS; i++)
        slab_finish(&p->slabs[i]);
}

static uint32_t pool_add_block(struct slab *blocks, mr_bytes string) {
    uint8_t *data = mem_alloc(string.size);
    uint32_t number = data ? slab_take(blocks) : 0;
    if (!number) {
        mem_free(data);
        return 0;
    }
    memcpy(data, string.data, string.size);
    *(struct pool_block *)slab_at(blocks, number) =
        (struct pool_block){ (uint32_t)string.size, data };
    return number;
}

uint32_t pool_add(struct pool *p, mr_bytes string) {
    size_t slab = string.size / POOL_STEP + 1; // with a byte for the size
    if (slab >= POOL_SLABS) {
        uint32_t block = pool_add_block(&p->slabs[0], string);
        p->block_bytes += block ? string.size : 0;
        return block;
    }
    uint32_t number = slab_take(&p->slabs[slab]);
    if (!number)
        return 0;
    uint8_t *entry = slab_at(&p->slabs[slab], number);
    entry[0] = (uint8_t)string.size;
    if (string.size)
        memcpy(entry + 1, string.data, string.size);
    return (uint32_t)slab << POOL_SLAB_AT | number;
}

void pool_remove(struct pool *p, uint32_t number) {
    struct slab *slab = &p->slabs[number >> POOL_SLAB_AT];
    if (!(number >> POOL_SLAB_AT)) {
        struct pool_block *block = slab_at(slab, number);
        p->block_bytes -= block->size;
        mem_free(block->data);
        block->data = NULL;
    }
    slab_give(slab, number & POOL_ENTRY);
}
