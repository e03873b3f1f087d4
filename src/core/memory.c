// Memory: how much the index uses, and whether there is room for more. Freed entries do not count
// although their chunks stay allocated: they are reused before anything grows.
//
// Stages whose first push waits for memory or the log stand in a list, so that a change costs no
// more than what it wakes. One of them is woken at a time, and wakes the next when it needs no
// more. Room that was granted is counted as used, so that no more pushes are granted room than
// there is.
#include "core/limit.h"

#include "base/errors.h"
#include "base/histogram.h"

#include <inttypes.h>

static uint64_t of_slab(const struct slab *s) {
    return (uint64_t)s->used * s->entry_size;
}

static uint64_t of_map(const struct map *m) {
    return ((uint64_t)m->now.size + m->old.size) * sizeof(struct map_slot);
}

static uint64_t of_keys(const struct pool *p) {
    uint64_t bytes = p->block_bytes;
    for (uint32_t i = 0; i < POOL_SLABS; i++)
        bytes += of_slab(&p->slabs[i]);
    return bytes;
}

uint64_t core_memory(const struct core *c) {
    uint64_t bytes = of_slab(&c->jobs) + of_slab(&c->channels) + of_slab(&c->attrs) +
                     of_slab(&c->instants) + of_slab(&c->onces) + of_slab(&c->spents) +
                     of_slab(&c->states) + of_slab(&c->leases) + of_slab(&c->sources) +
                     of_slab(&c->outbox) + of_slab(&c->makers) + of_slab(&c->schedules) +
                     of_slab(&c->pauses) + of_slab(&c->groups);
    bytes += of_keys(&c->keys) + of_slab(&c->by_id.slab) + of_map(&c->by_id.pages);
    bytes += of_map(&c->by_key) + of_map(&c->once) + of_map(&c->source_by_name) +
             of_map(&c->source_by_number) + of_map(&c->stage_by_name) +
             of_map(&c->outbox_by_number) + of_map(&c->maker_by_name) +
             of_map(&c->recorded_leases) + of_map(&c->schedule_by_name) +
             of_map(&c->pause_by_channel) + of_map(&c->by_group);
    bytes += map_count(&c->recorded_leases) * sizeof(struct lease_record);
    bytes += c->progresses * sizeof(struct lease_progress);
    bytes += (uint64_t)c->sources.used * SOURCE_WINDOW * sizeof(uint64_t);
    bytes += (uint64_t)c->stage_count * STAGE_BYTES;
    bytes += c->orders_bytes + c->schedule_bytes + c->ticks.capacity * sizeof *c->ticks.entries;
    bytes += (uint64_t)c->grouped_stages * sizeof(struct stage_groups);
    return bytes + c->timers.capacity * sizeof *c->timers.entries;
}

static bool bytes_are_short(const struct core *c, uint64_t bytes) {
    return c->limits.max_bytes && c->live_bytes + c->granted_bytes + bytes > c->limits.max_bytes;
}

bool core_memory_is_short(const struct core *c) {
    uint64_t used = c->outside_bytes + c->granted_bytes;
    return c->limits.max_memory && core_memory(c) + used >= c->limits.max_memory;
}

static bool is_short(const struct core *c, uint64_t bytes) {
    return bytes_are_short(c, bytes) || core_memory_is_short(c);
}

enum { EARLY = 1000 };        // jobs forgotten at once to free memory
enum { STEPS_FORGOTTEN = 2 }; // cost of one of them

// Ended jobs are forgotten early rather than pushes refused: as many as needed for `max_bytes`; for
// `max_memory`, which also counts other users, at most EARLY at a time.
static bool must_forget(const struct core *c, uint64_t bytes, uint32_t left) {
    return bytes_are_short(c, bytes) || (left && core_memory_is_short(c));
}

static void forget_early(struct core *c, uint64_t bytes) {
    bool cannot_fit = c->limits.max_bytes && bytes > c->limits.max_bytes;
    uint32_t left = EARLY, number = 0;
    while (!cannot_fit && must_forget(c, bytes, left) &&
           (number = stage_set_next(&c->ended_stages, number + 1, c->stage_count))) {
        struct stage *s = c->stages[number];
        for (; must_forget(c, bytes, left) && stage_forget_early(c, s); left -= left > 0)
            c->steps += STEPS_FORGOTTEN;
        if (!s->ended.count)
            stage_set_remove(&c->ended_stages, number);
    }
}

APART int memory_make_room(struct core *c, uint64_t bytes) {
    forget_early(c, bytes);
    if (bytes_are_short(c, bytes))
        return error_set(MR_EFULL, "the engine holds %" PRIu64 " bytes, which is its max-bytes",
                         c->live_bytes);
    if (core_memory_is_short(c))
        return error_set(
            MR_EFULL, "%" PRIu64 " bytes of memory are used or reserved, and max-bytes is %" PRIu64,
            core_memory(c) + c->outside_bytes + c->granted_bytes, c->limits.max_memory);
    return 0;
}

static bool memory_has_room(struct core *c, const struct stage *s) {
    uint64_t bytes = pusher_needs(list_entry(s->pushers.next, struct pusher, of_stage));
    forget_early(c, bytes);
    return !c->log_is_full && !is_short(c, bytes);
}

bool memory_has_room_at(struct core *c, struct stage *s) {
    bool room = memory_has_room(c, s);
    if (!room && list_empty(&s->of_starved))
        list_append(&c->starved, &s->of_starved);
    return room;
}

// A push that needs less than those before it may have room where they have none; but without
// memory for the index there is none for any.
APART void memory_wake(struct core *c) {
    if (c->log_is_full)
        return;
    for (struct list *l = c->starved.next; l != &c->starved; l = l->next) {
        struct stage *s = list_entry(l, struct stage, of_starved);
        c->steps++;
        if (memory_has_room(c, s)) {
            list_remove(&s->of_starved);
            stage_wake(c, s);
            return;
        }
        if (core_memory_is_short(c))
            return;
    }
}

bool core_log_is_full(const struct core *c) {
    return c->log_is_full;
}

void core_log_has_room(struct core *c) {
    c->log_is_full = false;
    if (!c->room_pushes)
        return;
    memory_wake(c);
    settle(c);
}

void core_set_outside_memory(struct core *c, uint64_t outside_bytes) {
    c->outside_bytes = outside_bytes;
    forget_early(c, 1);
    if (!c->room_pushes)
        return;
    memory_wake(c);
    settle(c);
}
