// The owner's and the readers' side of the file log; file.h describes the whole.
//
// Appending copies into the last batch under the lock. Readers take unwritten entries from the
// batches and all others from the files; they hold the segment meanwhile, so that a trim unlinks
// the file but does not close it.
#include "log/file.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>

int log_damaged(const struct file_log *l, uint64_t number, uint64_t offset, const char *what) {
    char path[LOG_PATH];
    segment_path(path, l->dir, number, "seg");
    return error_set(MR_ECORRUPT,
                     "%s: damaged at offset %" PRIu64 ": %s; to keep what is readable: "
                     "millrace store repair file:%s",
                     path, offset, what, l->dir);
}

static int log_stopped(const struct file_log *l) {
    return error_set(MR_ESTOPPED, "the log has stopped: %s", l->stopped);
}

static int log_read_only(const struct file_log *l) {
    return error_set(MR_EPERM, "%s was opened to be looked at only", l->dir);
}

void segment_destroy(struct file_log *l, struct segment *s) {
    if (!s)
        return;
    if (s->fd >= 0) {
        l->disk->close(l->disk, s->fd);
        l->open_segments--;
    }
    mem_free(s);
}

// Closes segments without readers; the writer's segments stay open.
static void segments_close_some(struct file_log *l) {
    for (uint64_t n = l->segments.first; n < segment_of(l, l->synced); n++) {
        struct segment *s = ring_at(&l->segments, n);
        if (s->fd < 0 || s->users > 0)
            continue;
        l->disk->close(l->disk, s->fd);
        s->fd = -1;
        l->open_segments--;
    }
}

int segment_hold(struct file_log *l, struct segment *s) {
    if (s->fd < 0) {
        if (l->open_segments >= OPEN_SEGMENTS)
            segments_close_some(l);
        char path[LOG_PATH];
        segment_path(path, l->dir, s->number, "seg");
        int fd = l->disk->open(l->disk, path, l->options.read_only ? O_RDONLY : O_RDWR, 0);
        if (fd < 0)
            return disk_failed(path, "open", fd);
        s->fd = fd;
        l->open_segments++;
    }
    s->users++;
    return 0;
}

void segment_release(struct file_log *l, struct segment *s) {
    if (--s->users == 0 && s->trimmed)
        segment_destroy(l, s);
}

// ---- Appending --------------------------------------------------------------------------------

static uint64_t group_size(const struct entry *entries, size_t count) {
    uint64_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += (ENTRY_FRAME + (uint64_t)entries[i].head.size + entries[i].body.size + 7) &
                ~UINT64_C(7);
    return size;
}

// Every segment keeps room for its seal.
static bool group_fits(uint64_t capacity, uint64_t offset, uint64_t size) {
    return offset + size + ENTRY_FRAME <= capacity;
}

static struct log_batch *batch_begin(struct file_log *l) {
    struct log_batch *b = l->idle;
    if (!b)
        b = mem_alloc(sizeof *b);
    if (!b)
        return NULL;
    l->idle = NULL;
    *b = (struct log_batch){ .room = b->room, .capacity = b->capacity };
    if (l->last)
        l->last->next = b;
    else
        l->first = b;
    l->last = b;
    return b;
}

static int batch_grow(struct log_batch *b, size_t size) {
    size_t capacity = b->capacity ? b->capacity : BATCH_CAPACITY;
    while (capacity < size)
        capacity *= 2;
    uint8_t *room = mem_alloc_blocks(DISK_BLOCK, capacity);
    if (!room)
        return error_set(MR_ENOMEM, "no memory for a batch of %zu bytes", capacity);
    size_t before = b->size ? (size_t)(b->data - b->room) : 0;
    if (b->size)
        memcpy(room + before, b->data, b->size);
    mem_free(b->room);
    b->room = room;
    b->data = room + before;
    b->capacity = capacity;
    return 0;
}

// Makes sure that the last batch has room for `size` more bytes.
static int batch_reserve(struct file_log *l, uint64_t size) {
    struct log_batch *b = l->last && !l->last->closed ? l->last : batch_begin(l);
    if (!b)
        return error_set(MR_ENOMEM, "no memory for a batch");
    uint64_t before = offset_of(l, b->size ? b->at : l->tail) % DISK_BLOCK;
    if (before + b->size + size <= b->capacity)
        return 0;
    if (b->size == 0 || l->options.sync == LOG_SYNC_ALWAYS)
        return batch_grow(b, before + b->size + size);
    b->closed = true;
    return batch_reserve(l, size);
}

// Extends the last batch and the tail by `size` bytes and returns where to write them; after
// batch_reserve.
static uint8_t *batch_extend(struct file_log *l, uint64_t size) {
    struct log_batch *b = l->last;
    if (b->size == 0) {
        b->at = l->tail;
        b->data = b->room + offset_of(l, l->tail) % DISK_BLOCK;
    }
    uint8_t *to = b->data + b->size;
    b->size += size;
    l->pending += size;
    l->tail += size;
    return to;
}

// How many bytes before `at`, in its segment, are not known to be synced.
static uint32_t unsynced_before(const struct file_log *l, uint64_t at) {
    uint64_t start = segment_base(l, segment_of(l, at)) + SEGMENT_START;
    return (uint32_t)(at - (l->synced > start ? l->synced : start));
}

// Seals the last segment and continues in a new one made from the spare.
static int segment_switch(struct file_log *l) {
    struct segment *last = segment_last(l);
    struct segment *next = mem_alloc(sizeof *next);
    if (!next)
        return error_set(MR_ENOMEM, "no memory for a segment");
    int err = ring_reserve(&l->segments, 1);
    if (err == 0)
        err = batch_reserve(l, ENTRY_FRAME);
    if (err < 0) {
        mem_free(next);
        return err;
    }
    last->seal = offset_of(l, l->tail);
    uint64_t at = l->tail;
    frame_put_mark(batch_extend(l, ENTRY_FRAME), at, FRAME_SEAL, ENTRY_FRAME,
                   unsynced_before(l, at));
    l->last->seal = l->last->closed = true;
    next->number = last->number + 1;
    spare_take(l, next);
    ring_push(&l->segments, next);
    l->tail = segment_base(l, next->number) + SEGMENT_START;
    writer_wake(l);
    return 0;
}

static int room_refused(struct file_log *l, enum room room) {
    if (room == ROOM_PUSH)
        l->full = true;
    return error_set(MR_EFULL, "%s: no room for a new segment: %s", l->dir, l->spare_reason);
}

// How much of the last segment this kind of entry may use while there is no spare.
static uint64_t room_limit(const struct file_log *l, enum room room) {
    uint64_t capacity = segment_last(l)->capacity;
    switch (room) {
    case ROOM_PUSH:
        return 0;
    case ROOM_COMMIT:
        return capacity / 4 * 3;
    case ROOM_CLEAN:
        break;
    }
    return capacity;
}

// The writer is behind. Waits for it, unless the owner must not wait.
static int writer_catch_up(struct file_log *l, enum room room) {
    uint64_t most = log_unwritten_most(l->options.max_unwritten, room);
    l->flush_to = l->tail;
    if (!most) {
        writer_await(l);
        return 0;
    }
    writer_wake(l);
    return error_set(MR_EFULL, "%s: %" PRIu64 " bytes are not written yet: the disk is slow",
                     l->dir, l->pending);
}

static bool writer_is_behind(const struct file_log *l, enum room room) {
    uint64_t most = log_unwritten_most(l->options.max_unwritten, room);
    return most ? l->pending >= most : l->pending > GATHER_LIMIT;
}

// Waits while the writer is behind, and for a spare that it can still make; then switches to a new
// segment if the group needs one.
static int room_make(struct file_log *l, uint64_t size, enum room room) {
    if (!l->threaded)
        l->spare_failed = false;
    while (!l->stopped[0]) {
        if (writer_is_behind(l, room)) {
            int err = writer_catch_up(l, room);
            if (err < 0)
                return err;
            continue;
        }
        bool turns = !group_fits(segment_last(l)->capacity, offset_of(l, l->tail), size);
        if (l->has_spare && (!turns || group_fits(l->spare_size, SEGMENT_START, size)))
            return turns ? segment_switch(l) : 0;
        if (turns)
            l->spare_least = SEGMENT_START + size + ENTRY_FRAME;
        if (!l->spare_failed && (turns || !l->threaded)) {
            writer_await(l);
            continue;
        }
        bool refused =
            l->spare_failed && !group_fits(room_limit(l, room), offset_of(l, l->tail), size);
        return refused ? room_refused(l, room) : 0;
    }
    return log_stopped(l);
}

static void group_put(struct file_log *l, const struct entry *entries, size_t count,
                      uint64_t *out_at) {
    for (size_t i = 0; i < count; i++) {
        uint64_t at = l->tail;
        bool split = MUTANT(commit_not_atomic);
        uint32_t flags = (i == 0 || split ? FRAME_FIRST : 0) |
                         (i == count - 1 || split ? FRAME_LAST : 0) |
                         (entries[i].damaged ? FRAME_DAMAGED : 0);
        uint32_t size = entry_size(entries[i].head.size, entries[i].body.size);
        frame_put(batch_extend(l, size), at, &entries[i], flags, unsynced_before(l, at));
        out_at[i] = at;
    }
}

static int file_log_append(struct log *base, const struct entry *entries, size_t count,
                           enum room room, uint64_t *out_at) {
    struct file_log *l = (struct file_log *)base;
    assert(count > 0 && count <= LOG_GROUP);
    if (l->options.read_only)
        return log_read_only(l);
    uint64_t size = group_size(entries, count);
    if (!group_fits(UINT64_C(1) << l->shift, SEGMENT_START, size))
        return error_set(MR_ETOOBIG, "a group of %" PRIu64 " bytes is more than a segment holds",
                         size);
    pthread_mutex_lock(&l->lock);
    int err = room_make(l, size, room);
    if (err == 0)
        err = batch_reserve(l, size);
    if (err == 0)
        group_put(l, entries, count, out_at);
    pthread_mutex_unlock(&l->lock);
    return err;
}

// Lets the writer do its work. Drops the lock before the signal, so that the writer need not wait
// for it.
static void writer_run(struct file_log *l) {
    while (!l->threaded && writer_step(l))
        ;
    bool wakes = l->threaded && !l->awake && !l->replaced;
    l->awake = l->awake || wakes;
    pthread_mutex_unlock(&l->lock);
    if (wakes)
        pthread_cond_signal(&l->work);
}

static void file_log_flush(struct log *base, bool now) {
    struct file_log *l = (struct file_log *)base;
    pthread_mutex_lock(&l->lock);
    l->flush_to = l->tail;
    if (now)
        l->sync_to = l->tail;
    writer_run(l);
}

static void file_log_flush_by(struct log *base, enum flush_by by) {
    struct file_log *l = (struct file_log *)base;
    pthread_mutex_lock(&l->lock);
    l->flush_to = l->tail;
    bool is_left = l->threaded && by == FLUSH_BY_WAITER && l->lone_syncs >= LONE_SYNCS;
    bool is_quick = l->quick_syncs >= QUICK_SYNCS && l->pending <= QUICK_BYTES;
    if (is_left || (by == FLUSH_BY_CALLER && is_quick && writer_replace(l)))
        pthread_mutex_unlock(&l->lock);
    else
        writer_run(l);
}

// After a request for a sync, data that are only written do not count.
static bool is_durable(const struct file_log *l, uint64_t at) {
    return l->durable > at && (at >= l->sync_to || l->synced > at);
}

static void wait_until_durable(struct file_log *l, uint64_t at) {
    if (l->waiting++ && l->waits_for != at)
        l->lone_syncs = 0;
    l->waits_for = at;
    while (!l->stopped[0] && !is_durable(l, at))
        if (l->lone_syncs < LONE_SYNCS || !writer_replace(l))
            writer_await(l);
    l->waiting--;
}

static int file_log_wait(struct log *base, uint64_t at) {
    struct file_log *l = (struct file_log *)base;
    pthread_mutex_lock(&l->lock);
    int err = at < l->tail ? 0 : error_set(MR_EINVAL, "nothing was appended at %" PRIu64, at);
    if (err == 0 && l->flush_to <= at)
        l->flush_to = l->tail;
    if (err == 0 && !is_durable(l, at))
        wait_until_durable(l, at);
    if (err == 0 && !is_durable(l, at))
        err = log_stopped(l);
    pthread_mutex_unlock(&l->lock);
    return err;
}

static uint64_t file_log_segment_end(struct log *base, uint64_t at) {
    struct file_log *l = (struct file_log *)base;
    return segment_base(l, segment_of(l, at) + 1);
}

static int file_log_trim(struct log *base, uint64_t upto) {
    struct file_log *l = (struct file_log *)base;
    if (l->options.read_only)
        return log_read_only(l);
    pthread_mutex_lock(&l->lock);
    uint64_t last = segment_last(l)->number, first = segment_of(l, upto);
    if (first > last)
        first = last;
    int err = l->stopped[0] ? log_stopped(l) : 0;
    if (err < 0 || first <= l->trim_to) {
        pthread_mutex_unlock(&l->lock);
        return err;
    }
    l->trim_to = first;
    l->head = segment_base(l, first) + SEGMENT_START;
    if (!MUTANT(trim_before_sync))
        l->flush_to = l->sync_to = l->tail;
    writer_run(l);
    return 0;
}

static void file_log_look(struct log *base, struct log_state *out) {
    struct file_log *l = (struct file_log *)base;
    pthread_mutex_lock(&l->lock);
    out->head = l->head;
    out->tail = l->tail;
    out->durable = l->durable;
    out->synced = l->synced;
    out->bytes = l->bytes;
    out->memory = l->pending;
    out->segment_size = UINT64_C(1) << l->shift;
    out->last_size = segment_last(l)->capacity;
    out->full = l->full;
    out->behind = l->options.max_unwritten && l->pending >= l->options.max_unwritten;
    out->stopped[0] = 0;
    if (l->stopped[0])
        memcpy(out->stopped, l->stopped, sizeof out->stopped);
    out->outage[0] = 0;
    out->waiting_since_ms = 0;
    pthread_mutex_unlock(&l->lock);
}

// ---- Closing ----------------------------------------------------------------------------------

// Appends a last frame with `unsynced` 0, which proves that everything before it is on the disk. So
// recovery can tell damage of the last entries from a torn write.
static void mark_append(struct file_log *l) {
    uint64_t at = l->tail;
    if (at == l->opened_at || l->synced != at ||
        !group_fits(segment_last(l)->capacity, offset_of(l, at), ENTRY_FRAME) ||
        batch_reserve(l, ENTRY_FRAME) < 0)
        return;
    frame_put_mark(batch_extend(l, ENTRY_FRAME), at, FRAME_SKIP, ENTRY_FRAME, 0);
}

static void writer_end(struct file_log *l) {
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    l->sync_to = l->flush_to = l->tail;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (l->threaded)
        pthread_join(l->writer, NULL);
    l->threaded = false;
}

static void file_log_close(struct log *base) {
    struct file_log *l = (struct file_log *)base;
    if (!l->options.read_only) {
        writer_end(l);
        pthread_mutex_lock(&l->lock);
        writer_run(l);
        pthread_mutex_lock(&l->lock);
        mark_append(l);
        writer_run(l);
    }
    file_log_destroy(l);
}

void batch_destroy(struct log_batch *b) {
    if (b)
        mem_free(b->room);
    mem_free(b);
}

void file_log_destroy(struct file_log *l) {
    index_finish(&l->index);
    direct_finish(l);
    windows_finish(l);
    while (ring_count(&l->segments))
        segment_destroy(l, ring_shift(&l->segments));
    ring_finish(&l->segments);
    while (l->first) {
        struct log_batch *b = l->first;
        l->first = b->next;
        batch_destroy(b);
    }
    for (uint32_t i = 0; i < l->recent_count; i++)
        batch_destroy(l->recent[(l->recent_first + i) % RECENT_BATCHES]);
    batch_destroy(l->idle);
    if (l->has_spare)
        l->disk->close(l->disk, l->spare_fd);
    if (l->store_fd >= 0)
        l->disk->close(l->disk, l->store_fd);
    if (l->lock_fd >= 0)
        l->disk->close(l->disk, l->lock_fd);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->lock);
    mem_free(l->dir);
    mem_free(l);
}

const struct log_impl file_log_impl = {
    .replay = file_log_replay,
    .append = file_log_append,
    .flush = file_log_flush,
    .flush_by = file_log_flush_by,
    .wait = file_log_wait,
    .read = file_log_read,
    .read_now = file_log_read_now,
    .scan = file_log_scan,
    .segment_end = file_log_segment_end,
    .trim = file_log_trim,
    .look = file_log_look,
    .close = file_log_close,
};
