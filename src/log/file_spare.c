// Spares: the stack of preallocated files that new segments are made of; see file.h.
//
// A spare is synced before it counts, so that its blocks are real. Its content stays zeros: a
// header left in it by a crash is overwritten when it is used, and nothing else is written before
// it has a segment's name. Left-over spares are therefore used again as they are.
#include "log/file.h"

#include "base/errors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static const char *const spare_names[SPARE_LEVELS] = { "spare-clean", "spare-commit",
                                                       "spare-ahead" };

uint64_t spare_size(const struct file_log *l, uint32_t level) {
    static const uint32_t parts[SPARE_LEVELS] = { 2, 4, 1 };
    uint64_t whole = UINT64_C(1) << l->shift, size = whole / parts[level];
    return size < SEGMENT_SIZE_MIN ? SEGMENT_SIZE_MIN : size;
}

int spares_adopt(struct file_log *l) {
    for (uint32_t level = 0; level < SPARE_LEVELS; level++) {
        char path[LOG_PATH];
        path_make(path, l->dir, spare_names[level]);
        int fd = l->disk->open(l->disk, path, O_RDWR, 0);
        if (fd == -ENOENT)
            continue;
        if (fd < 0)
            return disk_failed(path, "open", fd);
        bool fits = l->disk->size(l->disk, fd) == (int64_t)spare_size(l, level);
        if (fits && level == l->spare_count) {
            l->spare_fd[l->spare_count++] = fd;
            l->bytes += spare_size(l, level);
            continue;
        }
        l->disk->close(l->disk, fd);
        l->disk->unlink(l->disk, path);
    }
    return 0;
}

bool spares_due(const struct file_log *l) {
    uint32_t wanted = l->ahead_wanted ? SPARE_LEVELS : SPARE_AHEAD;
    return l->spare_count < wanted && !l->spares_failed && !l->closing && !l->options.read_only;
}

// A descriptor of an allocated and synced file; -errno. A sync that fails sets `out_final`.
static int spare_make(const struct file_log *l, const char *path, uint64_t size, bool *out_final) {
    const struct disk *d = l->disk;
    int fd = d->open(d, path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return fd;
    int err = d->allocate(d, fd, 0, size);
    if (err == 0) {
        err = d->sync(d, fd);
        *out_final = err < 0 && err != -ENOSPC && err != -EDQUOT;
    }
    if (err == 0)
        return fd;
    d->close(d, fd);
    d->unlink(d, path);
    return err;
}

static void spares_fail(struct file_log *l, const char *reason) {
    l->spares_failed = true;
    l->spares_retry_ms = clock_ms() + FULL_RETRY_MS;
    snprintf(l->spares_reason, sizeof l->spares_reason, "%s", reason);
    pthread_cond_broadcast(&l->done);
}

static void spares_add(struct file_log *l, int fd) {
    uint32_t level = l->spare_count++;
    l->spare_fd[level] = fd;
    l->bytes += spare_size(l, level);
    bool was_full = l->full;
    if (l->spare_count >= SPARE_AHEAD && !spares_due(l))
        l->full = false;
    if (was_full && !l->full)
        writer_tell(l);
    pthread_cond_broadcast(&l->done);
}

void spares_fill(struct file_log *l) {
    uint32_t level = l->spare_count;
    uint64_t size = spare_size(l, level);
    if (l->options.max_bytes && l->bytes + size > l->options.max_bytes) {
        spares_fail(l, "the log may not take up more bytes");
        return;
    }
    char path[LOG_PATH], text[128];
    path_make(path, l->dir, spare_names[level]);
    bool final = false;
    pthread_mutex_unlock(&l->lock);
    int fd = spare_make(l, path, size, &final);
    pthread_mutex_lock(&l->lock);
    if (fd >= 0) {
        spares_add(l, fd);
    } else if (final) {
        disk_failed(path, "sync", fd);
        writer_stop(l);
    } else {
        spares_fail(l, strerror_r(-fd, text, sizeof text));
    }
}

void spare_take(struct file_log *l, struct segment *s) {
    uint32_t level = --l->spare_count;
    s->fd = l->spare_fd[level];
    s->capacity = spare_size(l, level);
    s->spare = (int)level;
    l->open_segments++;
    l->ahead_wanted = false;
}

int segment_place(struct file_log *l, struct segment *s) {
    const struct disk *d = l->disk;
    char from[LOG_PATH], to[LOG_PATH];
    path_make(from, l->dir, spare_names[s->spare]);
    segment_path(to, l->dir, s->number, "seg");
    int err = segment_header_write(d, s->fd, s, UINT64_C(1) << l->shift);
    if (err == 0)
        err = d->sync(d, s->fd);
    if (err == 0)
        err = d->rename(d, from, to);
    if (err == 0)
        err = d->sync_dir(d, l->dir);
    if (err < 0)
        return disk_failed(to, "put a new segment in place", err);
    s->spare = -1;
    return 0;
}
