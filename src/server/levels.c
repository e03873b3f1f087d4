// See levels.h.
#include "server/levels.h"

#include "base/mem.h"

#include <string.h>

void levels_init(struct levels *l) {
    *l = (struct levels){ 0 };
    slab_init(&l->slab, sizeof(struct client_level), LEVELS_MOST);
}

static struct client_level *level_at(const struct levels *l, uint32_t number) {
    return SLAB_AT(&l->slab, struct client_level, number);
}

void levels_finish(struct levels *l) {
    for (uint32_t i = 1; i < l->slab.next_new; i++)
        mem_free(level_at(l, i)->names);
    slab_finish(&l->slab);
    map_finish(&l->by_key);
    *l = (struct levels){ 0 };
}

static struct level_key key_of_level(const struct client_level *c) {
    return (struct level_key){ .maker = c->maker,
                               .client = { c->names, c->client_size },
                               .stage = { c->names + c->client_size, c->stage_size } };
}

static uint32_t level_key_hash(const struct level_key *k) {
    return (uint32_t)bytes_hash(k->stage, bytes_hash(k->client, k->maker));
}

static bool has_level_key(const void *owner, uint32_t value, const void *wanted) {
    const struct level_key *b = wanted;
    struct level_key a = key_of_level(level_at(owner, value));
    return a.maker == b->maker && bytes_equal(a.client, b->client) &&
           bytes_equal(a.stage, b->stage);
}

static uint32_t levels_number(const struct levels *l, const struct level_key *key) {
    return map_find(&l->by_key, level_key_hash(key), has_level_key, l, key);
}

struct client_level *levels_find(const struct levels *l, const struct level_key *key) {
    uint32_t number = levels_number(l, key);
    return number ? level_at(l, number) : NULL;
}

static void levels_forget(struct levels *l, struct client_level *c) {
    struct level_key key = key_of_level(c);
    uint32_t number = levels_number(l, &key);
    map_remove(&l->by_key, level_key_hash(&key), number);
    mem_free(c->names);
    c->names = NULL;
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
        struct client_level *c = level_at(l, i);
        if (!c->names)
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

static uint8_t *names_copy(const struct level_key *k) {
    uint8_t *names = mem_alloc(k->client.size + k->stage.size);
    if (names) {
        memcpy(names, k->client.data, k->client.size);
        memcpy(names + k->client.size, k->stage.data, k->stage.size);
    }
    return names;
}

struct client_level *levels_make(struct levels *l, const struct level_key *key, uint64_t now_ms) {
    make_room(l, key->maker);
    uint8_t *names = names_copy(key);
    uint32_t number = names && map_reserve(&l->by_key, 1) == 0 ? slab_take(&l->slab) : 0;
    if (!number) {
        mem_free(names);
        return NULL;
    }
    struct client_level *c = level_at(l, number);
    *c = (struct client_level){ .client_size = (uint16_t)key->client.size,
                                .stage_size = (uint16_t)key->stage.size,
                                .names = names,
                                .maker = key->maker,
                                .used_ms = now_ms };
    climb_init(&c->climb, CLIMB_MOST);
    map_put(&l->by_key, level_key_hash(key), number);
    return c;
}
