// Both tables obey the same invariant at all times: an entry is reachable from its home slot
// without crossing an empty one. Moving an entry is deleting it here and putting it there.
#include "base/map.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>

enum { SMALLEST = 16, MOVES_PER_CHANGE = 8 };

static void table_put(struct map_table *t, uint32_t hash, uint32_t value) {
    uint32_t i = hash & t->mask;
    while (t->slots[i].value)
        i = (i + 1) & t->mask;
    t->slots[i] = (struct map_slot){ hash, value };
    t->used++;
}

static void table_clear_slot(struct map_table *t, uint32_t hole) {
    uint32_t i = hole;
    for (;;) {
        i = (i + 1) & t->mask;
        if (!t->slots[i].value)
            break;
        uint32_t home = t->slots[i].hash & t->mask;
        if (((i - home) & t->mask) < ((i - hole) & t->mask))
            continue;
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = (struct map_slot){ 0 };
    t->used--;
}

static struct map_slot *table_slot(const struct map_table *t, uint32_t hash, uint32_t value) {
    if (!t->slots)
        return NULL;
    for (uint32_t i = hash & t->mask; t->slots[i].value; i = (i + 1) & t->mask)
        if (t->slots[i].value == value && t->slots[i].hash == hash)
            return &t->slots[i];
    return NULL;
}

static void map_move_some(struct map *m) {
    for (int i = 0; i < MOVES_PER_CHANGE && m->old.used;) {
        struct map_slot slot = m->old.slots[m->move_at & m->old.mask];
        if (!slot.value) {
            m->move_at++;
            i++;
            continue;
        }
        table_clear_slot(&m->old, m->move_at & m->old.mask);
        table_put(&m->now, slot.hash, slot.value);
        i++;
    }
    if (m->old.slots && !m->old.used) {
        mem_free(m->old.slots);
        m->old = (struct map_table){ 0 };
    }
}

void map_finish(struct map *m) {
    mem_free(m->now.slots);
    mem_free(m->old.slots);
    *m = (struct map){ 0 };
}

int map_grow(struct map *m, size_t more) {
    map_move_some(m);
    uint64_t slots = m->now.slots ? (uint64_t)m->now.mask + 1 : 0;
    if (map_count(m) + more <= slots - slots / 8)
        return 0;
    while (m->old.used) // only after a large reservation: growth by doubling never catches up
        map_move_some(m);
    uint64_t wanted = slots ? slots * 2 : SMALLEST;
    while (map_count(m) + more > wanted - wanted / 8)
        wanted *= 2;
    struct map_slot *fresh = mem_alloc(wanted * sizeof *fresh);
    if (!fresh)
        return error_set(MR_ENOMEM, "no memory for a table of %llu entries",
                         (unsigned long long)wanted);
    m->old = m->now;
    m->now = (struct map_table){ fresh, (uint32_t)(wanted - 1), 0 };
    m->move_at = 0;
    return 0;
}

void map_put(struct map *m, uint32_t hash, uint32_t value) {
    assert(value && m->now.slots);
    table_put(&m->now, hash, value);
}

void map_replace(struct map *m, uint32_t hash, uint32_t value, uint32_t other) {
    struct map_slot *slot = table_slot(&m->now, hash, value);
    if (!slot)
        slot = table_slot(&m->old, hash, value);
    assert(slot && other);
    slot->value = other;
}

void map_remove(struct map *m, uint32_t hash, uint32_t value) {
    struct map_slot *slot = table_slot(&m->now, hash, value);
    if (slot) {
        table_clear_slot(&m->now, (uint32_t)(slot - m->now.slots));
        return;
    }
    slot = table_slot(&m->old, hash, value);
    assert(slot);
    table_clear_slot(&m->old, (uint32_t)(slot - m->old.slots));
}
