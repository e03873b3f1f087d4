// The writer: takes batches in order, writes them, syncs as the policy says, trims, and keeps a
// spare ready. One piece of work at a time, the most urgent first:
//
//     sync ─► write a batch ─► trim ─► make the spare ─► sleep
//
// A thread that waits may write and sync a batch instead (file.h).
//
// Under `always` a written batch is synced before the next is taken. A failed write or sync is
// final: the page cache may have dropped data that the disk does not have, so nothing is retried.
#include "base/clock.h"
#include "log/file.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

void writer_stop(struct file_log *l) {
    snprintf(l->stopped, sizeof l->stopped, "%s", error_text());
    atomic_store_explicit(&l->base.stopped, true, memory_order_relaxed);
    log_notify(&l->options, &l->lock, &l->done);
}

// After an explicit request for a sync, only synced data count as durable until it is done.
static void durable_advance(struct file_log *l) {
    bool promised = (l->options.sync == LOG_SYNC_ALWAYS && !MUTANT(durable_before_sync)) ||
                    l->synced < l->sync_to;
    uint64_t durable = promised ? l->synced : l->written;
    if (durable > l->durable)
        l->durable = durable;
}

static void index_feed(struct file_log *l, const struct log_batch *b) {
    for (size_t at = 0; l->index.active && at < b->size;) {
        struct walk_frame f = { .at = offset_of(l, b->at) + at, .raw = b->data + at };
        bool valid = frame_get(f.raw, &f.frame);
        assert(valid);
        index_add(&l->index, &f);
        at += frame_size(&f.frame);
    }
}

// The first sync of blocks that were only allocated also has to update the file's metadata, which
// doubles its time; a sync of blocks that were written before does not. So a batch that reaches new
// blocks is followed by zeros, and the next batches overwrite written blocks. Returns the offset up
// to which zeros are to be written; 0: none.
static uint64_t zeros_wanted(struct file_log *l, const struct log_batch *b,
                             const struct segment *s) {
    uint64_t at = b->at + b->size, from = offset_of(l, at);
    if (l->options.sync != LOG_SYNC_ALWAYS || b->seal || at <= l->zeroed ||
        b->size > ZEROS_AHEAD / 4)
        return 0;
    uint64_t upto = (from | (ZEROS_AHEAD - 1)) + 1;
    if (upto > s->capacity)
        upto = s->capacity;
    l->zeroed = at - from + upto;
    return upto;
}

// Writes into the page cache. -errno.
static int batch_write_usual(const struct file_log *l, const struct log_batch *b,
                             const struct segment *s, uint64_t zeros_upto) {
    uint64_t at = offset_of(l, b->at), end = at + b->size;
    int err = disk_write_all(l->disk, s->fd, b->data, b->size, at);
    if (err < 0 || zeros_upto <= end)
        return err;
    return disk_write_all(l->disk, s->fd, zeros_ahead, (size_t)(zeros_upto - end), end);
}

// Sets `out_synced` if the batch is on the disk afterwards.
static int batch_write(struct file_log *l, struct log_batch *b, struct segment *s,
                       struct segment *next, bool *out_synced) {
    int err = next ? segment_place(l, next) : 0;
    if (err < 0)
        return err;
    uint64_t zeros_upto = zeros_wanted(l, b, s);
    bool sync = l->options.sync == LOG_SYNC_ALWAYS;
    bool direct = direct_write(l, b, s, zeros_upto, sync, &err);
    if (!direct)
        err = batch_write_usual(l, b, s, zeros_upto);
    if (err < 0) {
        char path[LOG_PATH], doing[64];
        segment_path(path, l->dir, s->number, "seg");
        snprintf(doing, sizeof doing, "write at offset %" PRIu64, offset_of(l, b->at));
        return disk_failed(path, doing, err);
    }
    *out_synced = direct && sync;
    direct_keep(l, b);
    index_feed(l, b);
    return 0;
}

static void batch_recycle(struct file_log *l, struct log_batch *b) {
    if (b && !l->idle && b->capacity <= GATHER_LIMIT)
        l->idle = b;
    else
        batch_destroy(b);
}

static void recent_drop(struct file_log *l) {
    struct log_batch *b = l->recent[l->recent_first];
    l->recent_first = (l->recent_first + 1) % RECENT_BATCHES;
    l->recent_count--;
    l->recent_bytes -= b->capacity;
    batch_recycle(l, b);
}

static uint64_t recent_most(const struct file_log *l) {
    return l->options.recent_bytes ? l->options.recent_bytes : LOG_RECENT;
}

static void recent_add(struct file_log *l, struct log_batch *b) {
    while (l->recent_count == RECENT_BATCHES ||
           (l->recent_count && l->recent_bytes + b->capacity > recent_most(l)))
        recent_drop(l);
    l->recent[(l->recent_first + l->recent_count++) % RECENT_BATCHES] = b;
    l->recent_bytes += b->capacity;
}

// Copies a small batch behind the newest one in memory, if that has room; the lock is not needed,
// because readers do not look there yet. NULL: it is not copied.
static struct log_batch *recent_copy(struct file_log *l, const struct log_batch *b) {
    if (!l->recent_count || b->size > RECENT_MERGED || recent_most(l) < BATCH_CAPACITY)
        return NULL;
    struct log_batch *to = l->recent[(l->recent_first + l->recent_count - 1) % RECENT_BATCHES];
    if (to->at + to->size != b->at ||
        (size_t)(to->data - to->room) + to->size + b->size > to->capacity)
        return NULL;
    memcpy(to->data + to->size, b->data, b->size);
    return to;
}

// A written batch stays in memory for readers for a while: jobs are often taken soon after their
// push. `copied` is the one that has a copy of it.
static void batch_retire(struct file_log *l, struct log_batch *b, struct log_batch *copied) {
    l->first = b->next;
    if (!l->first)
        l->last = NULL;
    l->pending -= b->size;
    if (copied)
        copied->size += b->size;
    if (copied || b->capacity > LOG_RECENT / 2)
        batch_recycle(l, b);
    else
        recent_add(l, b);
}

// After the sync of a sealed segment: completes its index and begins the next one.
static void index_switch(struct file_log *l, struct segment *sealed) {
    pthread_mutex_unlock(&l->lock);
    uint64_t bytes = index_end(&l->index, sealed->seal);
    index_begin(&l->index, l->disk, l->dir, sealed->number + 1);
    pthread_mutex_lock(&l->lock);
    sealed->index_bytes = bytes;
    l->bytes += bytes;
}

// Everything up to `upto` is on the disk now; `s` is the segment that was synced.
static void synced_advance(struct file_log *l, struct segment *s, uint64_t upto) {
    l->synced = upto;
    l->sync_at_ms = 0;
    l->lone_syncs++;
    if (segment_of(l, upto) != s->number)
        index_switch(l, s);
    durable_advance(l);
    log_notify(&l->options, &l->lock, &l->done);
}

static void note_quickness(struct file_log *l, uint64_t began_us) {
    l->quick_syncs = monotonic_us() - began_us <= QUICK_US ? l->quick_syncs + 1 : 0;
}

static void writer_write(struct file_log *l) {
    struct log_batch *b = l->first;
    struct segment *s = ring_at(&l->segments, segment_of(l, b->at));
    struct segment *next = b->seal ? ring_at(&l->segments, s->number + 1) : NULL;
    b->closed = true;
    pthread_mutex_unlock(&l->lock);
    bool synced = false;
    uint64_t began_us = monotonic_us();
    int err = batch_write(l, b, s, next, &synced);
    struct log_batch *copied = err < 0 ? NULL : recent_copy(l, b);
    pthread_mutex_lock(&l->lock);
    note_quickness(l, began_us);
    if (err < 0) {
        writer_stop(l);
        return;
    }
    l->written = next ? segment_base(l, next->number) + SEGMENT_START : b->at + b->size;
    if (l->options.sync == LOG_SYNC_INTERVAL && !l->sync_at_ms)
        l->sync_at_ms = monotonic_ms() + l->options.interval_ms;
    batch_retire(l, b, copied);
    if (synced) {
        synced_advance(l, s, l->written);
        return;
    }
    durable_advance(l);
    if (l->options.sync == LOG_SYNC_ALWAYS)
        pthread_cond_broadcast(&l->done); // appends may go on, but nothing new is durable
    else
        log_notify(&l->options, &l->lock, &l->done);
}

static void writer_sync(struct file_log *l) {
    struct segment *s = ring_at(&l->segments, segment_of(l, l->synced));
    uint64_t upto = l->written;
    pthread_mutex_unlock(&l->lock);
    uint64_t began_us = monotonic_us();
    int err = l->disk->sync(l->disk, s->fd);
    pthread_mutex_lock(&l->lock);
    note_quickness(l, began_us);
    if (err < 0 && !MUTANT(failed_sync_ignored)) {
        char path[LOG_PATH];
        segment_path(path, l->dir, s->number, "seg");
        disk_failed(path, "sync", err);
        writer_stop(l);
        return;
    }
    synced_advance(l, s, upto);
}

static bool sync_due(const struct file_log *l) {
    if (l->synced == l->written)
        return false;
    if (l->options.sync == LOG_SYNC_ALWAYS || l->closing)
        return true;
    if (segment_of(l, l->synced) != segment_of(l, l->written))
        return true;
    if (l->written >= l->sync_to && l->synced < l->sync_to)
        return true;
    return l->threaded && l->sync_at_ms && monotonic_ms() >= l->sync_at_ms;
}

static bool batch_due(const struct file_log *l) {
    const struct log_batch *b = l->first;
    return b && b->size > 0 && (b->closed || l->flush_to > l->written || l->closing);
}

// Segments are removed only when everything that was appended before the trim is on the disk.
static bool trim_due(const struct file_log *l) {
    return l->trim_to > l->segments.first && l->synced >= l->sync_to;
}

static void segment_unlink(struct file_log *l, uint64_t number) {
    char path[LOG_PATH];
    segment_path(path, l->dir, number, "idx");
    l->disk->unlink(l->disk, path);
    segment_path(path, l->dir, number, "seg");
    l->disk->unlink(l->disk, path);
}

static void segment_drop(struct file_log *l) {
    struct segment *s = ring_shift(&l->segments);
    uint64_t number = s->number;
    l->bytes -= s->capacity + s->index_bytes;
    s->trimmed = true;
    if (s->users == 0)
        segment_destroy(l, s);
    pthread_mutex_unlock(&l->lock);
    segment_unlink(l, number);
    pthread_mutex_lock(&l->lock);
}

static void writer_trim(struct file_log *l) {
    struct store store = l->store;
    store.first = l->trim_to;
    pthread_mutex_unlock(&l->lock);
    int err = store_write(l->disk, l->store_fd, &store);
    pthread_mutex_lock(&l->lock);
    if (err < 0) {
        char path[LOG_PATH];
        path_make(path, l->dir, "store");
        disk_failed(path, "write", err);
        writer_stop(l);
        return;
    }
    l->store = store;
    while (l->segments.first < store.first)
        segment_drop(l);
    l->spare_failed = false;
}

bool writer_step(struct file_log *l) {
    if (l->stopped[0])
        return false;
    if (sync_due(l))
        writer_sync(l);
    else if (batch_due(l))
        writer_write(l);
    else if (trim_due(l))
        writer_trim(l);
    else if (spare_due(l))
        spare_fill(l);
    else
        return false;
    return true;
}

void writer_wake(struct file_log *l) {
    if (!l->threaded || l->awake || l->replaced)
        return;
    l->awake = true;
    pthread_cond_signal(&l->work);
}

static bool work_is_due(const struct file_log *l) {
    return sync_due(l) || batch_due(l) || trim_due(l) || spare_due(l) || l->closing;
}

// Only one that needs no new segment.
static bool batch_is_simple(const struct file_log *l) {
    return batch_due(l) && !l->first->closed && l->options.sync == LOG_SYNC_ALWAYS;
}

bool writer_replace(struct file_log *l) {
    if (!l->threaded || l->awake || l->replaced || l->stopped[0] || !batch_is_simple(l))
        return false;
    l->replaced = true;
    writer_write(l);
    if (!l->stopped[0] && sync_due(l))
        writer_sync(l);
    l->replaced = false;
    if (work_is_due(l))
        writer_wake(l);
    return true;
}

void writer_await(struct file_log *l) {
    if (!l->threaded) {
        bool worked = writer_step(l);
        assert(worked || l->stopped[0]);
        return;
    }
    writer_wake(l);
    pthread_cond_wait(&l->done, &l->lock);
}

// When the writer has to wake up by itself; 0: never.
static uint64_t writer_deadline(const struct file_log *l) {
    uint64_t sync = l->synced < l->written ? l->sync_at_ms : 0;
    uint64_t retry = l->spare_failed ? l->spare_retry_ms : 0;
    return !sync || (retry && retry < sync) ? retry : sync;
}

static void writer_sleep(struct file_log *l) {
    uint64_t at_ms = l->stopped[0] ? 0 : writer_deadline(l);
    l->awake = false;
    cond_wait_until(&l->work, &l->lock, at_ms ? at_ms : UINT64_MAX);
    l->awake = true;
    if (l->spare_failed && monotonic_ms() >= l->spare_retry_ms)
        l->spare_failed = false;
}

void *writer_main(void *log) {
    struct file_log *l = log;
    pthread_mutex_lock(&l->lock);
    l->awake = true;
    for (;;) {
        if (!l->replaced && writer_step(l))
            continue;
        if (l->closing && !l->replaced)
            break;
        writer_sleep(l);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
