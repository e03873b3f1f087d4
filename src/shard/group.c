// All shards are replayed before any is started, because all start at the same time: the latest
// recorded instant of any of them.
#include "shard/group.h"

#include "base/errors.h"
#include "base/mem.h"
#include "log/replicated.h"

#include <string.h>

struct group {
    const struct disk *disk;
    char *dir;   // NULL: the store is not `file:`
    int lock_fd; // of several shards; -1: the only shard's log has the lock
    uint32_t count;
    uint32_t first, end; // of these, which are open
    struct shard *shards[SHARDS_MOST];
};

uint32_t group_count(const struct group *g) {
    return g->count;
}

struct shard *group_shard(const struct group *g, uint32_t index) {
    return g->shards[index];
}

// ---- Where they are ---------------------------------------------------------------------------

static int group_find_replicated(const struct group_options *o, struct layout *out) {
    int err = stream_store_shards(&o->store, &out->shards);
    if (err < 0)
        return err;
    if (out->shards > SHARDS_MOST || (o->shards && o->shards != out->shards))
        return error_set(MR_EINVAL, "the cluster has %u shard%s, not %u", out->shards,
                         out->shards == 1 ? "" : "s", o->shards ? o->shards : SHARDS_MOST);
    return 0;
}

static int group_find(struct group *g, const struct group_options *o, struct layout *out) {
    *out = (struct layout){ 0 };
    if (store_is_replicated(&o->store))
        return group_find_replicated(o, out);
    int err = g->dir ? layout_look(g->disk, g->dir, out) : 0;
    if (err >= 0)
        err = layout_choose(g->dir, o->shards, out);
    if (err >= 0 && g->dir && out->shards > 1)
        err = layout_lock(g->disk, g->dir, out, &g->lock_fd);
    if (err >= 0 && g->dir && out->shards > 1)
        err = layout_check(g->disk, g->dir, out);
    return err;
}

static int group_mark_complete(const struct group *g, struct layout *layout) {
    if (!g->dir || !layout->making || layout->shards == 1)
        return 0;
    layout->making = false;
    return layout_write(g->disk, g->dir, layout);
}

// ---- Opening ----------------------------------------------------------------------------------

static uint64_t share_per_shard(uint64_t all, uint32_t shards) {
    return all && all / shards == 0 ? 1 : all / shards;
}

static int shard_options_of(struct group *g, const struct group_options *o, uint32_t index,
                            struct shard_options *out) {
    *out = (struct shard_options){ .store = o->store,
                                   .log = o->log,
                                   .limits = o->limits,
                                   .events = o->events,
                                   .quotas = o->quotas,
                                   .never_replayed = o->never_replayed,
                                   .world = o->world,
                                   .shard = index,
                                   .shards = g->count,
                                   .cancel = o->cancel };
    out->log.max_bytes = share_per_shard(o->log.max_bytes, g->count);
    out->log.recent_bytes =
        share_per_shard(o->log.recent_bytes ? o->log.recent_bytes : LOG_RECENT, g->count);
    uint64_t window = o->log.stream.window_bytes ? o->log.stream.window_bytes : LOG_STREAM_WINDOW;
    out->log.stream.window_bytes = share_per_shard(window, g->count);
    out->limits.max_bytes = share_per_shard(o->limits.max_bytes, g->count);
    out->limits.max_memory = share_per_shard(o->limits.max_memory, g->count);
    out->owner = o->owner ? o->owner(o->arg, index, g->count) : o->arg;
    if (!out->log.arg)
        out->log.arg = out->owner;
    return !o->owner || out->owner ? 0 : error_set(MR_ENOMEM, "no memory for a shard's owner");
}

static int group_load(struct group *g, const struct shard_options *options) {
    char path[LAYOUT_PATH];
    for (uint32_t i = g->first; i < g->end; i++) {
        struct shard_options o = options[i];
        if (g->dir) {
            layout_path(path, g->dir, g->count, i);
            o.store.text = path;
        }
        int err = shard_load(&o, &g->shards[i]);
        if (err < 0)
            return err;
    }
    return 0;
}

static int group_start(struct group *g, const struct shard_world *world) {
    uint64_t now_ms = world_wall_ms(world), boot_ms = world_boot_ms(world);
    for (uint32_t i = g->first; i < g->end; i++) {
        uint64_t recorded_ms = shard_recorded_ms(g->shards[i]);
        now_ms = recorded_ms > now_ms ? recorded_ms : now_ms;
    }
    int err = 0;
    for (uint32_t i = g->first; err >= 0 && i < g->end; i++)
        err = shard_start(g->shards[i], now_ms, boot_ms);
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
    g->first = o->is_one ? o->one : 0;
    g->end = o->is_one ? o->one + 1 : g->count;
    for (uint32_t i = g->first; err >= 0 && i < g->end; i++)
        err = shard_options_of(g, o, i, &options[i]);
    if (err >= 0)
        err = group_load(g, options);
    if (err >= 0)
        err = group_start(g, &o->world);
    return err < 0 ? err : group_mark_complete(g, &layout);
}

static void group_free(struct group *g, void (*leave)(struct shard *)) {
    for (uint32_t i = g->first; i < g->end; i++)
        leave(g->shards[i]);
    if (g->lock_fd >= 0)
        g->disk->close(g->disk, g->lock_fd);
    mem_free(g->dir);
    mem_free(g);
}

static int group_check(const struct group_options *o) {
    if (o->shards > SHARDS_MOST)
        return error_set(MR_EINVAL, "%u shards are too many: 1 to %d", o->shards, SHARDS_MOST);
    const char *dir = store_url_dir(&o->store);
    if (dir && (!dir[0] || strlen(dir) > LAYOUT_PATH - 96))
        return error_set(MR_EINVAL, "the path of a store has 1 to %d bytes", LAYOUT_PATH - 96);
    return 0;
}

static struct group *group_create(const struct group_options *o) {
    struct group *g = mem_alloc(sizeof *g);
    const char *given = store_url_dir(&o->store);
    char *dir = given ? mem_alloc(strlen(given) + 1) : NULL;
    if (!g || (given && !dir)) {
        mem_free(g);
        mem_free(dir);
        return NULL;
    }
    g->lock_fd = -1;
    g->disk = o->log.disk ? o->log.disk : &disk_os;
    g->dir = dir ? memcpy(dir, given, strlen(given)) : NULL;
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
