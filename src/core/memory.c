// Memory: how much the index uses, and whether there is room for more. Freed entries do not count
// although their chunks stay allocated: they are reused before anything grows.
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
                     of_slab(&c->outbox) + of_slab(&c->makers);
    bytes += of_keys(&c->keys) + of_slab(&c->by_id.slab) + of_map(&c->by_id.pages);
    bytes += of_map(&c->by_key) + of_map(&c->once) + of_map(&c->source_by_name) +
             of_map(&c->source_by_number) + of_map(&c->stage_by_name) +
             of_map(&c->outbox_by_number) + of_map(&c->maker_by_name) + of_map(&c->recorded_leases);
    bytes += map_count(&c->recorded_leases) * sizeof(struct lease_record);
    bytes += (uint64_t)c->sources.used * SOURCE_WINDOW * sizeof(uint64_t);
    bytes += (uint64_t)c->stage_count * (sizeof(struct stage) + 2 * sizeof(struct histogram));
    return bytes + c->timers.capacity * sizeof *c->timers.entries;
}

static bool bytes_are_short(const struct core *c, uint64_t bytes) {
    return c->limits.max_bytes && c->live_bytes + bytes > c->limits.max_bytes;
}

bool core_memory_is_short(const struct core *c) {
    return c->limits.max_memory && core_memory(c) + c->outside_bytes >= c->limits.max_memory;
}

static bool is_short(const struct core *c, uint64_t bytes) {
    return bytes_are_short(c, bytes) || core_memory_is_short(c);
}

enum { EARLY = 1000 }; // jobs forgotten at once to free memory

// Forgets ended jobs early rather than refuse pushes: as many as needed for `max_bytes`; for
// `max_memory`, which also counts other users, at most EARLY at a time.
static void forget_early(struct core *c, uint64_t bytes) {
    bool cannot_fit = c->limits.max_bytes && bytes > c->limits.max_bytes;
    uint32_t left = EARLY;
    for (uint32_t i = 1; !cannot_fit && i <= c->stage_count; i++)
        while ((bytes_are_short(c, bytes) || (left && core_memory_is_short(c))) &&
               stage_forget_early(c, c->stages[i]))
            left -= left > 0;
}

APART int memory_make_room(struct core *c, uint64_t bytes) {
    forget_early(c, bytes);
    if (bytes_are_short(c, bytes))
        return error_set(MR_EFULL, "the engine holds %" PRIu64 " bytes, which is its max-bytes",
                         c->live_bytes);
    if (core_memory_is_short(c))
        return error_set(MR_EFULL, "jobs take up %" PRIu64 " bytes of memory, which is max-bytes",
                         core_memory(c) + c->outside_bytes);
    return 0;
}

void core_set_outside_memory(struct core *c, uint64_t outside_bytes) {
    c->outside_bytes = outside_bytes;
    forget_early(c, 1);
    if (!c->room_pushes || is_short(c, 1))
        return;
    for (uint32_t i = 1; i <= c->stage_count; i++)
        stage_wake(c, c->stages[i]);
    settle(c);
}
