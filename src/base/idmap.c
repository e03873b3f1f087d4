// A page is freed with its last id. There are far fewer pages than ids, so their map is kept half
// empty: most searches need one probe.
#include "base/idmap.h"

#include "base/bytes.h"

#include <assert.h>

struct idmap_page {
    uint64_t index;
    uint32_t used;
    uint32_t numbers[IDMAP_PAGE];
};

_Static_assert(sizeof(struct idmap_page) == 64, "a page is a cache line");

// The page of an id, and the slot in it.
struct idmap_place {
    uint64_t index;
    uint32_t slot;
};

static inline struct idmap_place idmap_place_of(const struct idmap *i, uint64_t id) {
    if (i->step == 1)
        return (struct idmap_place){ id / IDMAP_PAGE, id % IDMAP_PAGE };
    uint64_t turn = id / i->step, lane = id % i->step;
    return (struct idmap_place){ turn / IDMAP_PAGE * i->step + lane, turn % IDMAP_PAGE };
}

static struct idmap_page *idmap_page_at(const struct idmap *i, uint32_t number) {
    return SLAB_AT(&i->slab, struct idmap_page, number);
}

static bool idmap_page_has_index(const void *owner, uint32_t number, const void *index) {
    return idmap_page_at(owner, number)->index == *(const uint64_t *)index;
}

static uint32_t idmap_page_look_up(const struct idmap *i, uint64_t index) {
    return map_find(&i->pages, number_hash(index), idmap_page_has_index, i, &index);
}

// Caches the page; only for functions that change the map.
static uint32_t idmap_page_find(struct idmap *i, uint64_t index, enum idmap_use use) {
    if (i->recent[use].page && i->recent[use].index == index)
        return i->recent[use].page;
    i->recent[use].index = index;
    map_expect(&i->pages, number_hash(index + i->step)); // of the ids that come next
    return i->recent[use].page = idmap_page_look_up(i, index);
}

static void idmap_page_free(struct idmap *i, uint64_t index, uint32_t page) {
    map_remove(&i->pages, number_hash(index), page);
    for (int use = 0; use < IDMAP_USES; use++)
        if (i->recent[use].page == page)
            i->recent[use].page = 0;
    slab_give(&i->slab, page);
}

void idmap_init(struct idmap *i, uint64_t step) {
    assert(step > 0);
    *i = (struct idmap){ .step = step };
    slab_init(&i->slab, sizeof(struct idmap_page), 0);
}

void idmap_finish(struct idmap *i) {
    map_finish(&i->pages);
    slab_finish(&i->slab);
    idmap_init(i, i->step);
}

int idmap_reserve(struct idmap *i, uint32_t more) {
    int err = slab_reserve(&i->slab, more);
    return err < 0 ? err : map_reserve(&i->pages, more + i->slab.used / 2);
}

void idmap_put(struct idmap *i, uint64_t id, uint32_t number) {
    struct idmap_place at = idmap_place_of(i, id);
    uint32_t page = idmap_page_find(i, at.index, IDMAP_PUTS);
    if (!page) {
        page = slab_take(&i->slab);
        assert(page);
        idmap_page_at(i, page)->index = at.index;
        map_put(&i->pages, number_hash(at.index), page);
        i->recent[IDMAP_PUTS].page = page;
    }
    struct idmap_page *p = idmap_page_at(i, page);
    p->numbers[at.slot] = number;
    p->used++;
    i->count++;
}

uint32_t idmap_find(const struct idmap *i, uint64_t id) {
    struct idmap_place at = idmap_place_of(i, id);
    uint32_t page = 0;
    for (int use = 0; use < IDMAP_USES; use++)
        if (i->recent[use].index == at.index)
            page = i->recent[use].page;
    if (!page)
        page = idmap_page_look_up(i, at.index);
    return page ? idmap_page_at(i, page)->numbers[at.slot] : 0;
}

void idmap_remove(struct idmap *i, uint64_t id) {
    struct idmap_place at = idmap_place_of(i, id);
    uint32_t page = idmap_page_find(i, at.index, IDMAP_REMOVES);
    assert(page);
    struct idmap_page *p = idmap_page_at(i, page);
    assert(p->numbers[at.slot]);
    p->numbers[at.slot] = 0;
    i->count--;
    if (--p->used > 0)
        return;
    idmap_page_free(i, at.index, page);
}
