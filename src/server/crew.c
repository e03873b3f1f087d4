// See crew.h.
#include "server/crew.h"

#include "base/errors.h"
#include "base/mem.h"

#include <string.h>

void crews_init(struct crews *c) {
    *c = (struct crews){ 0 };
    slab_init(&c->slab, sizeof(struct crew), 0);
}

void crews_finish(struct crews *c) {
    for (uint32_t i = 1; i < c->slab.next_new; i++)
        mem_free(SLAB_AT(&c->slab, struct crew, i)->name); // NULL where the place is free
    slab_finish(&c->slab);
    map_finish(&c->by_name);
    *c = (struct crews){ 0 };
}

mr_bytes crew_next_name(const char **text) {
    size_t size = strcspn(*text, " ");
    mr_bytes name = { *text, size };
    *text += size + ((*text)[size] == ' ');
    return name;
}

static bool crew_has_name(const void *owner, uint32_t value, const void *key) {
    const struct crew *crew = SLAB_AT(&((const struct crews *)owner)->slab, struct crew, value);
    return bytes_equal(bytes_of(crew->name, crew->name_size), *(const mr_bytes *)key);
}

static uint32_t name_hash(mr_bytes name) {
    return (uint32_t)bytes_hash(name, 0);
}

static uint32_t crew_find(const struct crews *c, mr_bytes name) {
    return map_find(&c->by_name, name_hash(name), crew_has_name, c, &name);
}

// 0: there is no memory.
static uint32_t crew_make(struct crews *c, mr_bytes name) {
    uint8_t *copy = mem_alloc(name.size);
    uint32_t number = copy && map_reserve(&c->by_name, 1) == 0 ? slab_take(&c->slab) : 0;
    if (!number) {
        mem_free(copy);
        return 0;
    }
    struct crew *crew = SLAB_AT(&c->slab, struct crew, number);
    memcpy(copy, name.data, name.size);
    crew->name = copy;
    crew->name_size = name.size;
    map_put(&c->by_name, name_hash(name), number);
    return number;
}

static void crew_lose(struct crews *c, mr_bytes name, uint32_t level) {
    uint32_t number = crew_find(c, name);
    struct crew *crew = SLAB_AT(&c->slab, struct crew, number);
    crew->workers--;
    crew->level -= level;
    if (crew->workers)
        return;
    map_remove(&c->by_name, name_hash(name), number);
    mem_free(crew->name);
    *crew = (struct crew){ 0 };
    slab_give(&c->slab, number);
}

static void leave_upto(struct crews *c, const char *stages, const char *end, uint32_t level) {
    while (stages < end) {
        mr_bytes name = crew_next_name(&stages);
        crew_lose(c, name, level);
    }
}

int crews_join(struct crews *c, const char *stages, uint32_t level) {
    const char *at = stages, *before = at;
    for (mr_bytes name; (name = crew_next_name(&at)).size; before = at) {
        uint32_t number = crew_find(c, name);
        if (!number && !(number = crew_make(c, name))) {
            leave_upto(c, stages, before, level);
            return error_set(MR_ENOMEM, "no memory for a worker");
        }
        struct crew *crew = SLAB_AT(&c->slab, struct crew, number);
        crew->workers++;
        crew->level += level;
    }
    return 0;
}

void crews_leave(struct crews *c, const char *stages, uint32_t level) {
    leave_upto(c, stages, stages + strlen(stages), level);
}

struct crew crews_of(const struct crews *c, mr_bytes stage) {
    uint32_t number = crew_find(c, stage);
    return number ? *SLAB_AT(&c->slab, struct crew, number) : (struct crew){ 0 };
}
