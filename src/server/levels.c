// See levels.h.
#include "server/levels.h"

void levels_init(struct levels *l) {
    *l = (struct levels){ 0 };
    slab_init(&l->slab, sizeof(struct client_level), LEVELS_MOST);
}

void levels_finish(struct levels *l) {
    slab_finish(&l->slab);
    map_finish(&l->by_key);
    *l = (struct levels){ 0 };
}

uint64_t levels_key(uint64_t maker, mr_bytes client, mr_bytes stage) {
    uint64_t key = bytes_hash(stage, bytes_hash(client, maker));
    return key ? key : 1;
}

static bool has_level_key(const void *owner, uint32_t value, const void *key) {
    const struct levels *l = owner;
    return SLAB_AT(&l->slab, struct client_level, value)->key == *(const uint64_t *)key;
}

static uint32_t levels_number(const struct levels *l, uint64_t key) {
    return map_find(&l->by_key, (uint32_t)(key >> 32), has_level_key, l, &key);
}

struct client_level *levels_find(const struct levels *l, uint64_t key) {
    uint32_t number = levels_number(l, key);
    return number ? SLAB_AT(&l->slab, struct client_level, number) : NULL;
}

static void levels_forget(struct levels *l, struct client_level *c) {
    uint32_t number = levels_number(l, c->key);
    map_remove(&l->by_key, (uint32_t)(c->key >> 32), number);
    c->key = 0;
    slab_give(&l->slab, number);
}

// Forgets the one that was used longest ago: of this token if it has its share, of all if there are
// too many.
static void make_room(struct levels *l, uint64_t maker) {
    struct client_level *own = NULL, *oldest = NULL;
    uint32_t owned = 0;
    if (l->slab.used < LEVELS_SHARE)
        return;
    for (uint32_t i = 1; i < l->slab.next_new; i++) {
        struct client_level *c = SLAB_AT(&l->slab, struct client_level, i);
        if (!c->key)
            continue;
        oldest = !oldest || c->used_ms < oldest->used_ms ? c : oldest;
        if (c->maker != maker)
            continue;
        owned++;
        own = !own || c->used_ms < own->used_ms ? c : own;
    }
    if (owned >= LEVELS_SHARE)
        levels_forget(l, own);
    else if (l->slab.used >= LEVELS_MOST - 1)
        levels_forget(l, oldest);
}

struct client_level *levels_make(struct levels *l, uint64_t key, uint64_t maker, uint64_t now_ms) {
    make_room(l, maker);
    uint32_t number = map_reserve(&l->by_key, 1) == 0 ? slab_take(&l->slab) : 0;
    if (!number)
        return NULL;
    struct client_level *c = SLAB_AT(&l->slab, struct client_level, number);
    *c = (struct client_level){ .key = key, .maker = maker, .used_ms = now_ms };
    climb_init(&c->climb, CLIMB_MOST);
    map_put(&l->by_key, (uint32_t)(key >> 32), number);
    return c;
}
