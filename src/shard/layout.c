// Layout: where the shards of a store are, and how many.
//
//     DIR/shards     "3 shards by stage, being made"  ─►  DIR/shard-0, -1, -2 opened
//                    ─►  "3 shards by stage"
//
// The number is written before anything else, so that no process opens half of a store; that all
// shards were made is written last, so that a missing shard is noticed later. Stores without "by
// stage" are of an older version, with jobs spread over shards by key: they can only be copied.
#include "shard/layout.h"

#include "base/errors.h"
#include "log/segment.h"
#include "log/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)LAYOUT_PATH == (int)LOG_PATH, "a path fits");

static const char whole_text[] = " shards by stage\n";
static const char making_text[] = " shards by stage, being made\n";
static const char old_texts[2][24] = { " shards\n", " shards, being made\n" };

static int layout_parse(const char *path, const char *text, struct layout *out) {
    char *rest;
    unsigned long shards = strtoul(text, &rest, 10);
    bool making = strcmp(rest, making_text) == 0;
    bool old = strcmp(rest, old_texts[0]) == 0 || strcmp(rest, old_texts[1]) == 0;
    if (text[0] < '0' || text[0] > '9' || shards < 2 || shards > SHARDS_MOST ||
        (!making && !old && strcmp(rest, whole_text) != 0))
        return error_set(MR_ECORRUPT, "%s does not say how many shards there are: '%.40s'", path,
                         text);
    *out = (struct layout){ .shards = (uint32_t)shards, .making = making, .by_key = old };
    return 0;
}

static bool has_file(const struct disk *d, const char *dir, const char *name) {
    char path[LOG_PATH];
    path_make(path, dir, name);
    int fd = d->open(d, path, O_RDONLY, 0);
    if (fd >= 0)
        d->close(d, fd);
    return fd >= 0;
}

int layout_look(const struct disk *d, const char *dir, struct layout *out) {
    char path[LOG_PATH], text[64] = { 0 };
    path_make(path, dir, "shards");
    int fd = d->open(d, path, O_RDONLY, 0);
    if (fd == -ENOENT || fd == -ENOTDIR) {
        *out = (struct layout){ .shards = has_file(d, dir, "store") };
        return 0;
    }
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int64_t n = disk_read_all(d, fd, text, sizeof text - 1, 0);
    d->close(d, fd);
    return n < 0 ? disk_failed(path, "read", (int)n) : layout_parse(path, text, out);
}

int layout_read(const struct disk *d, const char *dir, uint32_t *out_shards) {
    struct layout layout = { 0 };
    int err = layout_look(d ? d : &disk_os, dir, &layout);
    if (err >= 0)
        *out_shards = layout.shards;
    return err;
}

void layout_path(char *out, const char *dir, uint32_t shards, uint32_t index) {
    if (shards <= 1)
        snprintf(out, LAYOUT_PATH, "%s", dir);
    else
        snprintf(out, LAYOUT_PATH, "%s/shard-%u", dir, index);
}

// ---- Making one -------------------------------------------------------------------------------

int layout_write(const struct disk *d, const char *dir, const struct layout *layout) {
    char temporary[LOG_PATH], path[LOG_PATH], text[64];
    path_make(temporary, dir, "shards.tmp");
    path_make(path, dir, "shards");
    int size = snprintf(text, sizeof text, "%u%s", layout->shards,
                        layout->making ? making_text : whole_text);
    int fd = d->open(d, temporary, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    if (fd < 0)
        return disk_failed(temporary, "create", fd);
    int err = disk_write_all(d, fd, text, (size_t)size, 0);
    if (err == 0)
        err = d->sync(d, fd);
    d->close(d, fd);
    if (err == 0)
        err = disk_rename(d, dir, temporary, path);
    return err < 0 ? disk_failed(path, "write", err) : 0;
}

static int layout_refuse_foreign(const struct disk *d, const char *dir) {
    struct store_names names = { 0 };
    int err = store_names_read(d, dir, &names);
    if (err >= 0 && names.foreign[0])
        err = error_set(MR_EINVAL, "%s is not a Millrace store: it holds %s", dir, names.foreign);
    else if (err >= 0 && store_names_count(&names))
        err = error_set(MR_ECORRUPT,
                        "%s/store is missing, but there are segments; to keep what is readable: "
                        "millrace store repair file:%s",
                        dir, dir);
    store_names_finish(&names);
    return err;
}

static int refuse_shard_count(const char *dir, uint32_t have, uint32_t wanted) {
    return error_set(
        MR_EINVAL,
        "%s has %u shard%s, not %u: millrace store copy file:%s TO --shards %u makes a "
        "store that has",
        dir, have, have == 1 ? "" : "s", wanted, dir, wanted);
}

static int refuse_by_key(const char *dir, uint32_t shards) {
    return error_set(MR_EINVAL,
                     "%s is of an older version, which spread the jobs of a stage over shards by "
                     "key: millrace store copy file:%s TO --shards %u makes a store that can be "
                     "opened",
                     dir, dir, shards);
}

int layout_choose(const char *dir, uint32_t wanted, struct layout *layout) {
    if (layout->by_key)
        return refuse_by_key(dir, layout->shards);
    if (layout->shards && wanted && layout->shards != wanted)
        return refuse_shard_count(dir, layout->shards, wanted);
    if (!layout->shards)
        *layout = (struct layout){ .shards = wanted ? wanted : 1, .making = true };
    return 0;
}

// Checks again under the lock: another process may have made the store meanwhile.
static int layout_begin(const struct disk *d, const char *dir, struct layout *layout) {
    struct layout now = { 0 };
    int err = layout_look(d, dir, &now);
    if (err >= 0)
        err = layout_choose(dir, layout->shards, &now);
    if (err >= 0 && now.making && !has_file(d, dir, "shards"))
        err = layout_refuse_foreign(d, dir);
    if (err >= 0 && now.making)
        err = disk_sync_above(d, dir);
    if (err >= 0 && now.making)
        err = layout_write(d, dir, &now);
    if (err >= 0)
        *layout = now;
    return err;
}

int layout_lock(const struct disk *d, const char *dir, struct layout *layout, int *out_fd) {
    int err = d->make_dir(d, dir);
    if (err < 0 && err != -EEXIST)
        return disk_failed(dir, "make the directory", err);
    int fd;
    err = store_lock(d, dir, &fd);
    if (err < 0)
        return err;
    err = layout_begin(d, dir, layout);
    if (err < 0)
        d->close(d, fd);
    else
        *out_fd = fd;
    return err;
}

int layout_check(const struct disk *d, const char *dir, const struct layout *layout) {
    char shard[LAYOUT_PATH];
    for (uint32_t i = 0; !layout->making && i < layout->shards; i++) {
        layout_path(shard, dir, layout->shards, i);
        if (!has_file(d, shard, "store"))
            return error_set(MR_ECORRUPT, "%s says %u shard%s, but there is no store in %s", dir,
                             layout->shards, layout->shards == 1 ? "" : "s", shard);
    }
    return 0;
}
