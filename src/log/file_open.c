// Opening the file log: checks that the directory is a store, that it is complete, and where it
// ends.
//
//     names known? ─► lock ─► store file ─► segments complete? ─► recover ─► spare ─► writer
//
// Creation writes segment 0 first, then the store file. So a directory without a store file is
// empty, or its creation was interrupted, or it is not a store.
#include "base/clock.h"
#include "log/file.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

static int dir_make(const struct file_log *l) {
    int err = l->disk->make_dir(l->disk, l->dir);
    return err < 0 && err != -EEXIST ? disk_failed(l->dir, "make the directory", err) : 0;
}

// An owner that was killed may have left file names that are not on the disk yet.
static int dir_sync(const struct file_log *l) {
    int err = l->disk->sync_dir(l->disk, l->dir);
    return err < 0 ? disk_failed(l->dir, "sync the directory", err) : 0;
}

static int store_refuse_foreign(const struct file_log *l, const struct store_names *n) {
    if (n->store)
        return 0;
    if (n->foreign[0])
        return error_set(MR_EINVAL, "%s is not a Millrace store: it holds %s", l->dir, n->foreign);
    if (l->options.read_only)
        return error_set(MR_EINVAL, "%s is not a Millrace store: there is no store file", l->dir);
    return 0;
}

// ---- Making a store ---------------------------------------------------------------------------

_Static_assert(SEGMENT_SIZE_MIN == 1 << 10 && SEGMENT_SIZE_MAX == 1 << 30, "the bounds of shift");

void file_log_set_size(struct file_log *l, uint64_t segment_size) {
    for (l->shift = 10; UINT64_C(1) << l->shift < segment_size && l->shift < 30;)
        l->shift++;
}

static int segment_add(struct file_log *l, struct segment *from) {
    struct segment *s = mem_alloc(sizeof *s);
    int err = s ? ring_reserve(&l->segments, 1) : error_set(MR_ENOMEM, "no memory for a segment");
    if (err < 0) {
        mem_free(s);
        return err;
    }
    *s = *from;
    if (!ring_count(&l->segments))
        l->segments.first = l->segments.next = s->number;
    ring_push(&l->segments, s);
    return 0;
}

// Removes what an interrupted creation left: a segment 0 without entries. Anything else is an
// error.
static int remnant_remove(struct file_log *l, const struct store_names *n) {
    char path[LOG_PATH];
    segment_path(path, l->dir, store_names_at(n, 0), "seg");
    int fd = l->disk->open(l->disk, path, O_RDWR, 0);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    struct segment s;
    uint64_t segment_size, end = SEGMENT_START;
    int err = segment_header_read(l->disk, fd, path, &s, &segment_size);
    struct walk w = { .disk = l->disk, .path = path, .fd = fd };
    w.limit = err ? 0 : walk_limit(&w, s.capacity);
    if (err == 0)
        err = walk_content_end(&w, SEGMENT_START, &end);
    walk_finish(&w);
    l->disk->close(l->disk, fd);
    if (err == MR_ECORRUPT || (err == 0 && end > SEGMENT_START) || store_names_count(n) > 1)
        return error_set(MR_ECORRUPT,
                         "%s/store is missing, but there are segments; to keep what is readable: "
                         "millrace store repair file:%s",
                         l->dir, l->dir);
    if (err == 0 && (err = l->disk->unlink(l->disk, path)) < 0)
        return disk_failed(path, "remove", err);
    return err;
}

static int store_make(struct file_log *l, const struct store_names *n) {
    file_log_set_size(l, l->options.segment_size ? l->options.segment_size : LOG_SEGMENT);
    int err = store_names_count(n) ? remnant_remove(l, n) : 0;
    if (err == 0)
        err = disk_sync_above(l->disk, l->dir);
    if (err == 0)
        err = spare_adopt(l);
    if (err < 0)
        return err;
    if (spare_due(l))
        spare_fill(l);
    if (l->stopped[0])
        return MR_EIO;
    if (l->spare_failed)
        return error_set(MR_EFULL, "%s: no room for a store: %s", l->dir, l->spare_reason);
    struct segment first = { 0 };
    spare_take(l, &first);
    err = segment_place(l, &first);
    if (err == 0)
        err = segment_add(l, &first);
    if (err < 0) {
        l->disk->close(l->disk, first.fd);
        return err;
    }
    struct store store = { .segment_size = UINT64_C(1) << l->shift };
    return store_create(l->disk, l->dir, &store);
}

// ---- Opening one ------------------------------------------------------------------------------

struct leftovers {
    const struct file_log *log;
    uint64_t first;
};

// Continues an interrupted trim.
static int leftover_remove(void *arg, const char *name) {
    const struct leftovers *o = arg;
    const struct disk *d = o->log->disk;
    uint64_t number;
    if (!segment_name_parse(name, "seg", &number) && !segment_name_parse(name, "idx", &number) &&
        !segment_name_parse(name, "idx.tmp", &number))
        return 0;
    if (number >= o->first)
        return 0;
    char path[LOG_PATH];
    path_make(path, o->log->dir, name);
    return d->unlink(d, path);
}

// If the trim was interrupted before its sync, the store file may be in the page cache only: it is
// written again before anything is removed.
static int leftovers_remove(struct file_log *l, const struct store_names *n) {
    struct leftovers o = { .log = l, .first = l->store.first };
    if (l->options.read_only || store_names_at(n, 0) >= o.first)
        return 0;
    int err = store_write(l->disk, l->store_fd, &l->store);
    if (err == 0)
        err = l->disk->list(l->disk, l->dir, leftover_remove, &o);
    return err < 0 ? disk_failed(l->dir, "remove trimmed segments", err) : 0;
}

// Only the last segment may be shorter than its header says: recovery handles a torn tail.
static int segment_check(const struct file_log *l, int fd, const char *path, uint64_t number,
                         bool last, struct segment *out) {
    uint64_t segment_size;
    int err = segment_header_read(l->disk, fd, path, out, &segment_size);
    if (err == MR_ECORRUPT)
        return log_damaged(l, number, 0, "there is no segment header");
    if (err < 0)
        return err;
    if (out->number != number || segment_size != l->store.segment_size)
        return log_damaged(l, number, 0, "the header is another segment's");
    int64_t size = l->disk->size(l->disk, fd);
    if (size < 0)
        return disk_failed(path, "look at", (int)size);
    if (size < (int64_t)out->capacity && !last)
        return log_damaged(l, number, (uint64_t)size, "the segment is cut off");
    return 0;
}

static int segment_open(struct file_log *l, uint64_t number, bool last) {
    char path[LOG_PATH];
    struct segment s;
    segment_path(path, l->dir, number, "seg");
    int fd = l->disk->open(l->disk, path, O_RDONLY, 0);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int err = segment_check(l, fd, path, number, last, &s);
    l->disk->close(l->disk, fd);
    if (err == 0)
        err = segment_add(l, &s);
    if (err == 0)
        l->bytes += s.capacity;
    return err;
}

static int segments_open(struct file_log *l, const struct store_names *n) {
    uint64_t expected = l->store.first;
    size_t count = store_names_count(n);
    for (size_t i = 0; i < count; i++) {
        uint64_t number = store_names_at(n, i);
        if (number < l->store.first)
            continue;
        if (number != expected)
            break;
        int err = segment_open(l, number, i == count - 1);
        if (err < 0)
            return err;
        expected++;
    }
    if (expected == l->store.first || (count && store_names_at(n, count - 1) >= expected))
        return log_damaged(l, expected, 0, "the segment is missing");
    return 0;
}

static int file_log_load_store(struct file_log *l) {
    int err = store_open(l->disk, l->dir, l->options.read_only, &l->store, &l->store_fd);
    if (err == MR_ECORRUPT)
        return error_set(MR_ECORRUPT,
                         "%s/store: damaged at offset 0; to keep what is readable: "
                         "millrace store repair file:%s",
                         l->dir, l->dir);
    if (err < 0)
        return err;
    file_log_set_size(l, l->store.segment_size);
    return 0;
}

static int dir_open(struct file_log *l, struct store_names *n) {
    int err = l->options.read_only ? 0 : dir_make(l);
    if (err == 0)
        err = store_names_read(l->disk, l->dir, n);
    if (err == 0)
        err = store_refuse_foreign(l, n);
    if (err == 0 && !l->options.read_only)
        err = store_lock(l->disk, l->dir, &l->lock_fd);
    return err < 0 ? err : store_names_read(l->disk, l->dir, n);
}

static int file_log_fill(struct file_log *l, struct store_names *n) {
    int err = dir_open(l, n);
    if (err < 0)
        return err;
    bool fresh = !n->store;
    err = fresh ? store_make(l, n) : l->options.read_only ? 0 : dir_sync(l);
    if (err == 0)
        err = file_log_load_store(l);
    if (err == 0 && !fresh)
        err = segments_open(l, n);
    if (err == 0 && !fresh)
        err = leftovers_remove(l, n);
    if (err < 0)
        return err;
    if (fresh) {
        file_log_begin(l);
        return 0;
    }
    err = file_log_recover(l);
    return err < 0 || l->options.read_only ? err : spare_adopt(l);
}

struct file_log *file_log_make(const char *dir, const struct log_options *options) {
    struct file_log *l = mem_alloc(sizeof *l);
    char *copy = mem_alloc(strlen(dir) + 1);
    if (!l || !copy) {
        mem_free(l);
        mem_free(copy);
        return NULL;
    }
    l->base.impl = &file_log_impl;
    l->options = options ? *options : (struct log_options){ 0 };
    l->disk = l->options.disk ? l->options.disk : &disk_os;
    l->dir = memcpy(copy, dir, strlen(dir));
    for (size_t end = strlen(dir); end > 1 && copy[end - 1] == '/'; end--)
        copy[end - 1] = 0;
    l->lock_fd = l->store_fd = l->direct.fd = -1;
    l->direct.block_at = UINT64_MAX;
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->work);
    cond_init(&l->done);
    return l;
}

static int writer_start(struct file_log *l) {
    if (l->options.read_only || l->options.inline_writer)
        return 0;
    l->threaded = true;
    int err = pthread_create(&l->writer, NULL, writer_main, l);
    if (err == 0)
        return 0;
    l->threaded = false;
    return error_set(MR_ENOMEM, "%s: the writer's thread cannot be started", l->dir);
}

int log_file_open(const char *dir, const struct log_options *options, struct log **out) {
    if (!dir[0] || strlen(dir) > LOG_PATH - 64)
        return error_set(MR_EINVAL, "the path of a store has 1 to %d bytes", LOG_PATH - 64);
    struct file_log *l = file_log_make(dir, options);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for a log");
    struct store_names names = { 0 };
    pthread_mutex_lock(&l->lock);
    int err = file_log_fill(l, &names);
    pthread_mutex_unlock(&l->lock);
    store_names_finish(&names);
    if (err == 0)
        err = writer_start(l);
    if (err < 0) {
        file_log_destroy(l);
        return err;
    }
    *out = &l->base;
    return 0;
}
