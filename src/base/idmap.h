// Idmap: maps a job's id to its number in a slab. Ids are issued in order, so ids that are used
// together share a page:
//
//     id ──► map of pages by id / 13 ──► page ──► numbers[id % 13]
//
// A page is a cache line: a backlog pushed in order costs about six bytes an id, and pushing,
// taking and forgetting in order touch one line for thirteen of them. A single id left in a page
// costs the whole page. If ids are issued in steps, as by one of several shards, a page holds ids
// that are a step apart; other ids work as well.
#ifndef BASE_IDMAP_H
#define BASE_IDMAP_H

#include "base/map.h"
#include "base/slab.h"

enum { IDMAP_PAGE = 13 };

// Pages found last, by what is done there: ids are added in order, and removed nearly so.
enum idmap_use { IDMAP_PUTS, IDMAP_REMOVES, IDMAP_USES };

struct idmap {
    struct map pages;
    struct slab slab; // of struct idmap_page
    size_t count;
    uint64_t step; // from one id to the next
    struct {
        uint64_t index;
        uint32_t page; // 0: none
    } recent[IDMAP_USES];
};

// Borrows the struct; allocates nothing yet. `step` is at least 1.
void idmap_init(struct idmap *, uint64_t step);
void idmap_finish(struct idmap *);

// Makes sure that the next `more` calls of idmap_put succeed. MR_ENOMEM.
int idmap_reserve(struct idmap *, uint32_t more);

// Adds an id that is not there yet. Only after idmap_reserve. `number` is not 0.
void idmap_put(struct idmap *, uint64_t id, uint32_t number);

// 0: not there.
uint32_t idmap_find(const struct idmap *, uint64_t id);

// Removes an id, which must be there.
void idmap_remove(struct idmap *, uint64_t id);

static inline size_t idmap_count(const struct idmap *i) {
    return i->count;
}

#endif
