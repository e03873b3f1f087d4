// The spare: the preallocated file from which the next segment is made; see file.h.
//
// It is synced before it is used, so that its blocks are allocated on the disk. Its content stays
// zeros: only a header is written before it gets a segment's name, and the next use overwrites
// that. So a spare that an earlier owner left can be used as it is.
#include "base/clock.h"
#include "log/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const char spare_name[] = "spare-ahead";

static uint64_t whole_size(const struct file_log *l) {
    return UINT64_C(1) << l->shift;
}

// The least size of the next segment's file: no smaller than the last one.
static uint64_t spare_smallest(const struct file_log *l) {
    uint64_t first = l->options.first_segment ? l->options.first_segment : LOG_FIRST_SEGMENT;
    uint64_t size = ring_count(&l->segments) ? segment_last(l)->capacity : first;
    uint64_t least = l->spare_least > SEGMENT_SIZE_MIN ? l->spare_least : SEGMENT_SIZE_MIN;
    while (size < least)
        size *= 2;
    return size < whole_size(l) ? size : whole_size(l);
}

static uint64_t spare_wanted(const struct file_log *l) {
    uint64_t size = spare_smallest(l);
    bool doubles = ring_count(&l->segments) && size == segment_last(l)->capacity;
    return doubles && size < whole_size(l) ? 2 * size : size;
}

// Blocks are allocated from the beginning: a file of a size that was never asked for is incomplete.
static bool spare_is_usable(const struct file_log *l, int64_t size) {
    return size >= (int64_t)spare_smallest(l) && size <= (int64_t)whole_size(l) &&
           (size & (size - 1)) == 0;
}

int spare_adopt(struct file_log *l) {
    char path[LOG_PATH];
    path_make(path, l->dir, spare_name);
    int fd = l->disk->open(l->disk, path, O_RDWR, 0);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int64_t size = l->disk->size(l->disk, fd);
    if (spare_is_usable(l, size)) {
        l->spare_fd = fd;
        l->has_spare = true;
        l->spare_size = (uint64_t)size;
        l->bytes += l->spare_size;
        return 0;
    }
    l->disk->close(l->disk, fd);
    int err = l->disk->unlink(l->disk, path);
    return err < 0 ? disk_failed(path, "remove", err) : 0;
}

// While a segment still has the spare's name, no new spare can be made.
bool spare_due(const struct file_log *l) {
    bool name_is_free = !ring_count(&l->segments) || !segment_last(l)->is_spare;
    bool is_enough = l->has_spare && l->spare_size >= l->spare_least;
    return name_is_free && !is_enough && !l->spare_failed && !l->closing && !l->options.read_only;
}

static int spare_allocate(const struct disk *d, int fd, uint64_t size, bool *out_final) {
    int err = d->allocate(d, fd, 0, size);
    if (err < 0)
        return err;
    err = d->sync(d, fd);
    *out_final = err < 0 && err != -ENOSPC && err != -EDQUOT;
    return err;
}

// A descriptor of an allocated and synced file; -errno. A sync that fails sets `out_final`.
static int spare_make(const struct file_log *l, const char *path, uint64_t size, bool *out_final) {
    const struct disk *d = l->disk;
    int fd = d->open(d, path, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    if (fd < 0)
        return fd;
    int err = spare_allocate(d, fd, size, out_final);
    if (err == 0)
        return fd;
    d->close(d, fd);
    d->unlink(d, path);
    return err;
}

static void spare_fails(struct file_log *l, const char *reason) {
    l->spare_failed = true;
    l->spare_retry_ms = monotonic_ms() + FULL_RETRY_MS;
    snprintf(l->spare_reason, sizeof l->spare_reason, "%s", reason);
}

static void spare_add(struct file_log *l, int fd, uint64_t size, uint64_t had) {
    l->bytes += size - had;
    l->spare_fd = fd;
    l->has_spare = true;
    l->spare_size = size;
    bool was_full = l->full;
    l->full = false;
    if (was_full)
        log_notify(&l->options, &l->lock, &l->done);
    pthread_cond_broadcast(&l->done);
}

// Allocates a spare of this size. A spare that cannot be enlarged stays as it is; meanwhile there
// is none to take.
static void spare_try(struct file_log *l, uint64_t size) {
    uint64_t had = l->has_spare ? l->spare_size : 0;
    if (l->options.max_bytes && l->bytes - had + size > l->options.max_bytes) {
        spare_fails(l, "the log may not take up more bytes");
        return;
    }
    char path[LOG_PATH], text[128];
    path_make(path, l->dir, spare_name);
    bool final = false;
    int fd = l->spare_fd;
    l->has_spare = false;
    pthread_mutex_unlock(&l->lock);
    int err =
        had ? spare_allocate(l->disk, fd, size, &final) : (fd = spare_make(l, path, size, &final));
    pthread_mutex_lock(&l->lock);
    l->has_spare = had > 0;
    if (err >= 0) {
        spare_add(l, fd, size, had);
    } else if (final) {
        disk_failed(path, "sync", err);
        writer_stop(l);
    } else {
        spare_fails(l, strerror_r(-err, text, sizeof text));
    }
}

void spare_fill(struct file_log *l) {
    uint64_t wanted = spare_wanted(l), smallest = spare_smallest(l);
    spare_try(l, wanted);
    if (l->spare_failed && smallest < wanted) {
        l->spare_failed = false;
        spare_try(l, smallest);
    }
    if (l->spare_failed)
        pthread_cond_broadcast(&l->done);
}

void spare_take(struct file_log *l, struct segment *s) {
    s->fd = l->spare_fd;
    s->capacity = l->spare_size;
    s->is_spare = true;
    l->has_spare = false;
    l->spare_least = 0;
    l->open_segments++;
}

int segment_place(struct file_log *l, struct segment *s) {
    const struct disk *d = l->disk;
    char from[LOG_PATH], to[LOG_PATH];
    path_make(from, l->dir, spare_name);
    segment_path(to, l->dir, s->number, "seg");
    int err = segment_header_write(d, s->fd, s, whole_size(l));
    if (err == 0)
        err = d->sync(d, s->fd);
    if (err == 0)
        err = disk_rename(d, l->dir, from, to);
    if (err < 0)
        return disk_failed(to, "put a new segment in place", err);
    s->is_spare = false;
    return 0;
}
