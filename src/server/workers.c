// See workers.h.
#include "server/workers.h"

#include "base/errors.h"
#include "base/mem.h"

#include <string.h>

void workers_init(struct workers *c) {
    *c = (struct workers){ 0 };
    slab_init(&c->slab, sizeof(struct stage_workers), 0);
}

void workers_finish(struct workers *c) {
    for (uint32_t i = 1; i < c->slab.next_new; i++)
        mem_free(SLAB_AT(&c->slab, struct stage_workers, i)->name); // NULL where the place is free
    slab_finish(&c->slab);
    map_finish(&c->by_name);
    *c = (struct workers){ 0 };
}

mr_bytes next_stage_name(const char **text) {
    size_t size = strcspn(*text, " ");
    mr_bytes name = { *text, size };
    *text += size + ((*text)[size] == ' ');
    return name;
}

static bool has_stage_name(const void *owner, uint32_t value, const void *key) {
    const struct stage_workers *workers =
        SLAB_AT(&((const struct workers *)owner)->slab, struct stage_workers, value);
    return bytes_equal(bytes_of(workers->name, workers->name_size), *(const mr_bytes *)key);
}

static uint32_t stage_hash(mr_bytes name) {
    return (uint32_t)bytes_hash(name, 0);
}

static uint32_t workers_find(const struct workers *c, mr_bytes name) {
    return map_find(&c->by_name, stage_hash(name), has_stage_name, c, &name);
}

// 0: there is no memory.
static uint32_t workers_add(struct workers *c, mr_bytes name) {
    uint8_t *copy = mem_alloc(name.size);
    uint32_t number = copy && map_reserve(&c->by_name, 1) == 0 ? slab_take(&c->slab) : 0;
    if (!number) {
        mem_free(copy);
        return 0;
    }
    struct stage_workers *workers = SLAB_AT(&c->slab, struct stage_workers, number);
    memcpy(copy, name.data, name.size);
    workers->name = copy;
    workers->name_size = name.size;
    map_put(&c->by_name, stage_hash(name), number);
    return number;
}

static void workers_remove(struct workers *c, mr_bytes name, uint32_t level) {
    uint32_t number = workers_find(c, name);
    struct stage_workers *workers = SLAB_AT(&c->slab, struct stage_workers, number);
    workers->workers--;
    workers->level -= level;
    if (workers->workers)
        return;
    map_remove(&c->by_name, stage_hash(name), number);
    mem_free(workers->name);
    *workers = (struct stage_workers){ 0 };
    slab_give(&c->slab, number);
}

static void leave_upto(struct workers *c, const char *stages, const char *end, uint32_t level) {
    while (stages < end) {
        mr_bytes name = next_stage_name(&stages);
        workers_remove(c, name, level);
    }
}

int workers_join(struct workers *c, const char *stages, uint32_t level) {
    const char *at = stages, *before = at;
    for (mr_bytes name; (name = next_stage_name(&at)).size; before = at) {
        uint32_t number = workers_find(c, name);
        if (!number && !(number = workers_add(c, name))) {
            leave_upto(c, stages, before, level);
            return error_set(MR_ENOMEM, "no memory for a worker");
        }
        struct stage_workers *workers = SLAB_AT(&c->slab, struct stage_workers, number);
        workers->workers++;
        workers->level += level;
    }
    return 0;
}

void workers_leave(struct workers *c, const char *stages, uint32_t level) {
    leave_upto(c, stages, stages + strlen(stages), level);
}

struct stage_workers workers_of(const struct workers *c, mr_bytes stage) {
    uint32_t number = workers_find(c, stage);
    return number ? *SLAB_AT(&c->slab, struct stage_workers, number) : (struct stage_workers){ 0 };
}
