// See target.h.
#include "cli/store/target.h"

#include "base/errors.h"
#include "log/log_stream.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- A directory ------------------------------------------------------------------------------

// A directory that this copy has made: nothing else is in it.
static void dir_remove(const char *path) {
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    rmdir(path);
}

static void making_remove(const struct store_target *t) {
    char path[LAYOUT_PATH];
    for (uint32_t i = 0; t->view.shards > 1 && i < t->view.shards; i++) {
        layout_path(path, t->making, t->view.shards, i);
        dir_remove(path);
    }
    dir_remove(t->making);
}

static int dir_check_empty(const char *dir) {
    DIR *d = opendir(dir);
    if (!d)
        return errno == ENOENT ? 0 : disk_failed(dir, "open", -errno);
    bool empty = true;
    for (struct dirent *e; (e = readdir(d));)
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    closedir(d);
    return empty ? 0 : error_set(MR_EINVAL, "%s is not empty; copy into a new directory", dir);
}

static int making_begin(struct store_target *t) {
    size_t size = strlen(t->to_dir);
    while (size > 1 && t->to_dir[size - 1] == '/')
        size--;
    int length = snprintf(t->making, sizeof t->making, "%.*s.copying", (int)size, t->to_dir);
    if (length >= (int)sizeof t->making)
        return error_set(MR_EINVAL, "the path of the target is too long");
    if (access(t->making, F_OK) == 0)
        return error_set(MR_EINVAL, "%s was left by a copy that did not end; remove it first",
                         t->making);
    t->view.url = store_in(t->making);
    return dir_check_empty(t->to_dir);
}

// The number of shards is written before anything else: see layout.h.
static int making_open(struct store_target *t, const struct log_options *o) {
    uint32_t count = t->view.shards;
    char path[LAYOUT_PATH];
    int err = 0;
    if (count > 1 && mkdir(t->making, DISK_DIR_MODE) < 0)
        err = disk_failed(t->making, "make the directory", -errno);
    if (err == 0 && count > 1)
        err = layout_write(&disk_os, t->making, &(struct layout){ .shards = count });
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        layout_path(path, t->making, count, i);
        err = log_file_open(path, o, &t->logs[i]);
    }
    return err;
}

static int making_publish(const struct store_target *t) {
    if (rename(t->making, t->to_dir) < 0)
        return disk_failed(t->to_dir, "give the copy its name", -errno);
    return disk_sync_above(&disk_os, t->making); // beside it; to_dir may end in a slash
}

// ---- A cluster --------------------------------------------------------------------------------

static int cluster_begin(struct store_target *t, uint32_t shards) {
    enum store_made made;
    struct store_view *v = &t->view;
    int err = shards ? stream_store_make(&v->url, shards, &made) : 0;
    if (err == 0)
        err = stream_store_shards(&v->url, &v->shards);
    if (err == 0 && v->shards > SHARDS_MOST)
        err = error_set(MR_EINVAL, "%s has %u shards; a copy has at most %d", t->name, v->shards,
                        SHARDS_MOST);
    return err < 0 ? err : stream_store_begin(&v->url, false, &v->streams);
}

// Opening has claimed the streams: what they hold now is final until the transaction ends.
static int cluster_open(struct store_target *t, const struct log_options *options) {
    struct log_options o = *options;
    o.inline_writer = true;
    o.stream.window_bytes = 1; // nothing is read again
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < t->view.shards; i++) {
        struct log_state state;
        err = log_stream_open(t->view.streams, i, &o, &t->logs[i]);
        if (err < 0)
            return err;
        log_look(t->logs[i], &state);
        if (state.head < state.tail)
            err = error_set(MR_EINVAL,
                            "%s holds a store, which is never written over; copy into another "
                            "cluster: --to-cluster NAME --shards N",
                            t->name);
    }
    return err;
}

// ---- Notes of running attempts ----------------------------------------------------------------

// Appends a file to another, whose end is at `*at`. 0 or -errno.
static int file_append(int from, int to, uint64_t *at) {
    uint8_t block[1 << 14];
    for (uint64_t done = 0;;) {
        int64_t size = disk_read_all(&disk_os, from, block, sizeof block, done);
        if (size <= 0)
            return (int)size;
        int err = disk_write_all(&disk_os, to, block, (size_t)size, *at);
        if (err < 0)
            return err;
        done += (uint64_t)size;
        *at += (uint64_t)size;
    }
}

static const char running[] = "running"; // see shard/running.h: slots that stand for themselves

// Those of all shards, into the file `to`, if there are any.
static int running_gather(const struct store_view *store, const char *to) {
    char dir[LAYOUT_PATH], from[LOG_PATH];
    uint64_t at = 0;
    int out = -1, err = 0;
    for (uint32_t i = 0; err == 0 && i < store->shards; i++) {
        layout_path(dir, store->url.text, store->shards, i);
        path_make(from, dir, running);
        int in = open(from, O_RDONLY | O_CLOEXEC);
        if (in < 0 && errno == ENOENT)
            continue;
        if (in >= 0 && out < 0)
            out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, DISK_FILE_MODE);
        err = in < 0 || out < 0 ? -errno : file_append(in, out, &at);
        if (in >= 0)
            close(in);
    }
    if (out >= 0)
        close(out);
    return err < 0 ? disk_failed(to, "copy", err) : 0;
}

int target_copy_running(const struct store_target *t, const struct store_view *from) {
    char dir[LAYOUT_PATH], to[LOG_PATH];
    int err = 0;
    if (!t->to_dir || !store_url_dir(&from->url))
        return 0;
    for (uint32_t i = 0; err == 0 && i < t->view.shards; i++) {
        layout_path(dir, t->making, t->view.shards, i);
        path_make(to, dir, running);
        err = running_gather(from, to);
    }
    return err;
}

// ---- Either -----------------------------------------------------------------------------------

int target_begin(const struct store_url *url, uint32_t shards, uint32_t usual,
                 struct store_target *t) {
    *t = (struct store_target){ .view = { .url = *url }, .to_dir = store_url_dir(url) };
    if (!t->to_dir) {
        snprintf(t->name, sizeof t->name, "cluster %s",
                 url->cluster ? url->cluster : STORE_CLUSTER);
        return cluster_begin(t, shards);
    }
    snprintf(t->name, sizeof t->name, "file:%s", t->to_dir);
    t->view.shards = shards ? shards : usual;
    return making_begin(t);
}

int target_open(struct store_target *t, uint64_t segment_size) {
    struct log_options o = { .sync = LOG_SYNC_NONE, .segment_size = segment_size };
    return t->to_dir ? making_open(t, &o) : cluster_open(t, &o);
}

void target_close(struct store_target *t) {
    for (uint32_t i = 0; i < t->view.shards; i++) {
        log_close(t->logs[i]);
        t->logs[i] = NULL;
    }
}

int target_publish(struct store_target *t) {
    return t->to_dir ? making_publish(t) : stream_store_commit(t->view.streams);
}

void target_finish(struct store_target *t) {
    target_close(t);
    if (t->to_dir)
        making_remove(t); // is not there any more if it was published
    store_view_close(&t->view);
}
