// Invariant of both tables: there is no empty slot between an entry and its home slot. Entries move
// from the old table to the new one in whole runs between empty slots, a few at a time.
#include "base/map.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>

enum { SMALLEST = 16, MOVES_PER_CHANGE = 32 };

static void map_table_put(struct map_table *t, uint32_t hash, uint32_t value) {
    uint32_t i = map_home(t, hash);
    while (t->slots[i].value)
        i = map_after(t, i);
    t->slots[i] = (struct map_slot){ hash, value };
    t->used++;
}

// The distance from a slot to a later one, with wrap-around.
static uint32_t slot_distance(const struct map_table *t, uint32_t from, uint32_t to) {
    return to >= from ? to - from : to + t->size - from;
}

static void map_table_clear_slot(struct map_table *t, uint32_t hole) {
    for (uint32_t i = map_after(t, hole); t->slots[i].value; i = map_after(t, i)) {
        if (slot_distance(t, map_home(t, t->slots[i].hash), i) < slot_distance(t, hole, i))
            continue;
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = (struct map_slot){ 0 };
    t->used--;
}

static struct map_slot *map_table_slot(const struct map_table *t, uint32_t hash, uint32_t value) {
    if (!t->slots)
        return NULL;
    for (uint32_t i = map_home(t, hash); t->slots[i].value; i = map_after(t, i))
        if (t->slots[i].value == value && t->slots[i].hash == hash)
            return &t->slots[i];
    return NULL;
}

static void map_table_free(struct map_table *t) {
    mem_free_table(t->slots, t->size * sizeof *t->slots);
    *t = (struct map_table){ 0 };
}

// Stops only after an empty slot, so that no run of the old table is split.
static void map_move_some(struct map *m) {
    for (int i = 0; m->old.used; i++) {
        struct map_slot *slot = &m->old.slots[m->move_at++];
        if (slot->value) {
            map_table_put(&m->now, slot->hash, slot->value);
            *slot = (struct map_slot){ 0 };
            m->old.used--;
        } else if (i >= MOVES_PER_CHANGE) {
            break;
        }
    }
    if (m->old.slots && !m->old.used)
        map_table_free(&m->old);
}

void map_finish(struct map *m) {
    map_table_free(&m->now);
    map_table_free(&m->old);
    *m = (struct map){ 0 };
}

int map_grow(struct map *m, size_t more) {
    map_move_some(m);
    if (map_count(m) + more <= map_capacity(m->now.size))
        return 0;
    while (m->old.used) // happens only after a large reservation
        map_move_some(m);
    size_t size = m->now.size ? m->now.size : SMALLEST;
    while (map_count(m) + more > map_capacity(size))
        size += size / 4;
    struct map_slot *fresh = mem_alloc_table(size * sizeof *fresh);
    if (!fresh)
        return error_set(MR_ENOMEM, "no memory for a table of %zu entries", size);
    m->old = m->now;
    m->now = (struct map_table){ fresh, (uint32_t)size, 0 };
    m->move_at = 0;
    return 0;
}

void map_put(struct map *m, uint32_t hash, uint32_t value) {
    assert(value && m->now.slots);
    map_table_put(&m->now, hash, value);
}

void map_remove(struct map *m, uint32_t hash, uint32_t value) {
    struct map_slot *slot = map_table_slot(&m->now, hash, value);
    if (slot) {
        map_table_clear_slot(&m->now, (uint32_t)(slot - m->now.slots));
        return;
    }
    slot = map_table_slot(&m->old, hash, value);
    assert(slot);
    map_table_clear_slot(&m->old, (uint32_t)(slot - m->old.slots));
}
