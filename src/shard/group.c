// All shards are replayed before any is started: only then the latest recorded instant is known,
// which is the present for all of them.
#include "shard/group.h"

#include "base/errors.h"
#include "base/map.h"
#include "base/mem.h"

#include <pthread.h>
#include <string.h>

// The sums of one stage, on cache lines of their own: all threads change them.
struct ledger_entry {
    _Alignas(64) struct ledger_stage stage;
    size_t name_size;
    char name[];
};

struct group {
    const struct disk *disk;
    char *dir;   // NULL: in memory
    int lock_fd; // of several shards; -1: the only shard's log has the lock
    uint32_t count;
    struct shard *shards[SHARDS_MOST];

    pthread_mutex_t lock; // guards the ledger's table, which cores ask when they make a stage
    struct map by_name;   // number of the entry + 1
    struct ledger_entry **ledger;
    uint32_t ledger_count, ledger_capacity;
};

uint32_t group_count(const struct group *g) {
    return g->count;
}

struct shard *group_shard(const struct group *g, uint32_t index) {
    return g->shards[index];
}

// ---- The ledger -------------------------------------------------------------------------------

static bool entry_has_name(const void *owner, uint32_t value, const void *name) {
    const struct ledger_entry *e = ((const struct group *)owner)->ledger[value - 1];
    return bytes_equal((mr_bytes){ e->name, e->name_size }, *(const mr_bytes *)name);
}

static int ledger_reserve(struct group *g) {
    if (g->ledger_count == g->ledger_capacity) {
        uint32_t capacity = g->ledger_capacity ? 2 * g->ledger_capacity : 16;
        struct ledger_entry **ledger = mem_resize(g->ledger, capacity * sizeof *ledger);
        if (!ledger)
            return MR_ENOMEM;
        g->ledger = ledger;
        g->ledger_capacity = capacity;
    }
    return map_reserve(&g->by_name, 1);
}

static struct ledger_entry *ledger_add(struct group *g, mr_bytes name, uint32_t hash) {
    if (ledger_reserve(g) < 0)
        return NULL;
    struct ledger_entry *e = mem_alloc_line(sizeof *e + name.size);
    if (!e)
        return NULL;
    memcpy(e->name, name.data, name.size);
    e->name_size = name.size;
    g->ledger[g->ledger_count++] = e;
    map_put(&g->by_name, hash, g->ledger_count);
    return e;
}

static struct ledger_stage *group_ledger(void *group, mr_bytes stage) {
    struct group *g = group;
    uint32_t hash = (uint32_t)bytes_hash(stage, 0);
    pthread_mutex_lock(&g->lock);
    uint32_t found = map_find(&g->by_name, hash, entry_has_name, g, &stage);
    struct ledger_entry *e = found ? g->ledger[found - 1] : ledger_add(g, stage, hash);
    pthread_mutex_unlock(&g->lock);
    return e ? &e->stage : NULL;
}

static void ledger_free(struct group *g) {
    for (uint32_t i = 0; i < g->ledger_count; i++)
        mem_free(g->ledger[i]);
    mem_free(g->ledger);
    map_finish(&g->by_name);
    pthread_mutex_destroy(&g->lock);
}

// ---- Where they are ---------------------------------------------------------------------------

static int group_find(struct group *g, const struct group_options *o, struct layout *out) {
    *out = (struct layout){ 0 };
    int err = g->dir ? layout_look(g->disk, g->dir, out) : 0;
    if (err >= 0)
        err = layout_choose(g->dir, o->shards, out);
    if (err >= 0 && g->dir && out->shards > 1)
        err = layout_lock(g->disk, g->dir, out, &g->lock_fd);
    if (err >= 0 && g->dir && out->shards > 1)
        err = layout_check(g->disk, g->dir, out);
    return err;
}

static int group_made(const struct group *g, struct layout *layout) {
    if (!g->dir || !layout->making || layout->shards == 1)
        return 0;
    layout->making = false;
    return layout_write(g->disk, g->dir, layout);
}

// ---- Opening ----------------------------------------------------------------------------------

static uint64_t share_of(uint64_t all, uint32_t shards) {
    return all && all / shards == 0 ? 1 : all / shards;
}

static int shard_options_of(struct group *g, const struct group_options *o, uint32_t index,
                            struct shard_options *out) {
    *out = (struct shard_options){ .log = o->log,
                                   .limits = o->limits,
                                   .events = o->events,
                                   .world = o->world,
                                   .shard = index,
                                   .shards = g->count,
                                   .ledger = g->count > 1 ? group_ledger : NULL,
                                   .ledger_owner = g,
                                   .cancel = o->cancel };
    out->log.max_bytes = share_of(o->log.max_bytes, g->count);
    out->limits.max_bytes = share_of(o->limits.max_bytes, g->count);
    out->limits.max_memory = share_of(o->limits.max_memory, g->count);
    out->owner = o->owner ? o->owner(o->arg, index, g->count) : o->arg;
    return !o->owner || out->owner ? 0 : error_set(MR_ENOMEM, "no memory for a shard's owner");
}

static int group_load(struct group *g, const struct shard_options *options) {
    char path[LAYOUT_PATH];
    for (uint32_t i = 0; i < g->count; i++) {
        struct shard_options o = options[i];
        if (g->dir) {
            layout_path(path, g->dir, g->count, i);
            o.dir = path;
        }
        int err = shard_load(&o, &g->shards[i]);
        if (err < 0)
            return err;
    }
    return 0;
}

static int group_start(struct group *g, const struct shard_world *world) {
    uint64_t now_ms = world_wall_ms(world), boot_ms = world_boot_ms(world);
    for (uint32_t i = 0; i < g->count; i++) {
        uint64_t recorded_ms = shard_recorded_ms(g->shards[i]);
        now_ms = recorded_ms > now_ms ? recorded_ms : now_ms;
    }
    int err = 0;
    for (uint32_t i = 0; err >= 0 && i < g->count; i++)
        err = shard_start(g->shards[i], now_ms, boot_ms);
    return err;
}

// ---- What a crash has left different ----------------------------------------------------------

// Policies are written to shard 0 first. A crash in between leaves the others behind.
static int agree_on_stages(const struct group *g) {
    struct core *first = shard_core(g->shards[0]);
    int err = 0;
    for (size_t n = 0; err >= 0 && n < core_stage_count(first); n++) {
        struct stage_info info;
        core_stage_at(first, n, &info);
        for (uint32_t i = 1; err >= 0 && i < g->count; i++)
            err = core_follow(shard_core(g->shards[i]), info.name, info.policy, info.paused,
                              info.draining);
    }
    return err;
}

// What one shard knows of an epic's end.
struct epic_end {
    const struct group *group;
    uint32_t shard;
};

// Whoever waits for an epic is told by the shards that know its total: all have to. Of two totals
// that of the earlier shard counts, as with policies.
static int agree_on_end(void *arg, mr_bytes name, const struct epic_info *here) {
    const struct epic_end *e = arg;
    int err = 0;
    for (uint32_t i = 0; here->ended && err >= 0 && i < e->group->count; i++) {
        struct core *core = shard_core(e->group->shards[i]);
        struct epic_info there = { 0 };
        err = core_epic(core, name, &there);
        if (err == MR_EGONE || (err >= 0 && !there.ended) ||
            (err >= 0 && i > e->shard && there.total != here->total))
            err = core_epic_end(core, name, here->total);
    }
    return err;
}

static int agree_on_epics(const struct group *g) {
    int err = 0;
    for (uint32_t i = 0; err >= 0 && i < g->count; i++) {
        struct epic_end end = { .group = g, .shard = i };
        err = core_each_epic(shard_core(g->shards[i]), (mr_bytes){ 0 }, agree_on_end, &end);
    }
    return err;
}

static int group_agree(struct group *g) {
    if (g->count == 1)
        return 0;
    int err = agree_on_stages(g);
    if (err >= 0)
        err = agree_on_epics(g);
    for (uint32_t i = 0; err >= 0 && i < g->count; i++)
        err = shard_wait(g->shards[i], shard_end(g->shards[i]));
    return err;
}

// ---- All of it --------------------------------------------------------------------------------

static int group_fill(struct group *g, const struct group_options *o) {
    struct shard_options options[SHARDS_MOST];
    struct layout layout;
    int err = group_find(g, o, &layout);
    if (err < 0)
        return err;
    g->count = layout.shards;
    for (uint32_t i = 0; err >= 0 && i < g->count; i++)
        err = shard_options_of(g, o, i, &options[i]);
    if (err >= 0)
        err = group_load(g, options);
    if (err >= 0)
        err = group_start(g, &o->world);
    if (err >= 0)
        err = group_agree(g);
    return err < 0 ? err : group_made(g, &layout);
}

static void group_free(struct group *g, void (*leave)(struct shard *)) {
    for (uint32_t i = 0; i < g->count; i++)
        leave(g->shards[i]);
    if (g->lock_fd >= 0)
        g->disk->close(g->disk, g->lock_fd);
    ledger_free(g);
    mem_free(g->dir);
    mem_free(g);
}

static int group_check(const struct group_options *o) {
    if (o->shards > SHARDS_MOST)
        return error_set(MR_EINVAL, "%u shards are too many: 1 to %d", o->shards, SHARDS_MOST);
    if (o->dir && (!o->dir[0] || strlen(o->dir) > LAYOUT_PATH - 96))
        return error_set(MR_EINVAL, "the path of a store has 1 to %d bytes", LAYOUT_PATH - 96);
    return 0;
}

static struct group *group_create(const struct group_options *o) {
    struct group *g = mem_alloc(sizeof *g);
    char *dir = o->dir ? mem_alloc(strlen(o->dir) + 1) : NULL;
    if (!g || (o->dir && !dir)) {
        mem_free(g);
        mem_free(dir);
        return NULL;
    }
    pthread_mutex_init(&g->lock, NULL);
    g->lock_fd = -1;
    g->disk = o->log.disk ? o->log.disk : &disk_os;
    g->dir = dir ? memcpy(dir, o->dir, strlen(o->dir)) : NULL;
    return g;
}

int group_open(const struct group_options *options, struct group **out) {
    int err = group_check(options);
    if (err < 0)
        return err;
    struct group *g = group_create(options);
    if (!g)
        return error_set(MR_ENOMEM, "no memory for the shards of an engine");
    err = group_fill(g, options);
    if (err < 0)
        group_free(g, shard_abandon);
    else
        *out = g;
    return err;
}

void group_close(struct group *g) {
    if (g)
        group_free(g, shard_close);
}
