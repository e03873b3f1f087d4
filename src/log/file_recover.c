// Recovery: finds the end of the log, and tells a torn write behind it from damage.
//
//     ┌────────┬───────┬───────┬──────── · · · ─┬───────┬──────── · · ·
//     │ header │ group │ group │ not valid      │ valid?│ zeros
//     └────────┴───────┴───────┴──────── · · · ─┴───────┴──────── · · ·
//                              end
//
// A crash may leave any part of what was not synced, in any order. So a valid frame behind the end
// proves damage only if it was written when the end had already been synced; every frame says how
// far that was. Otherwise the rest is torn: it was never reported as durable. It is zeroed, so that
// old frames can never follow what is written next.
//
// The bytes between the last known sync and the end are written again before they are relied on:
// after a failed sync of an earlier owner they may be in the page cache only.
#include "log/file.h"

#include "base/mutant.h"

// Walks whole groups. Stops at the seal, or at the first frame that is not valid or does not
// continue a group.
static int examine_groups(struct walk *w, struct recovered *r) {
    struct walk_frame f;
    bool in_group = false;
    int found;
    while ((found = walk_next(w, &f)) > 0) {
        uint64_t synced = f.at - f.frame.unsynced;
        if (synced > r->synced)
            r->synced = synced;
        bool begins = !frame_is_entry(&f.frame) || f.frame.flags & FRAME_FIRST;
        if (begins == in_group) {
            w->at = f.at;
            break;
        }
        if (f.frame.flags & FRAME_SEAL) {
            r->sealed = true;
            break;
        }
        if (f.frame.flags & FRAME_DAMAGED && !r->damaged)
            r->damaged = f.at;
        in_group = frame_is_entry(&f.frame) && !(f.frame.flags & FRAME_LAST);
        if (!in_group || MUTANT(half_a_group_recovered))
            r->end = w->at;
    }
    return found < 0 ? found : 0;
}

// Looks for frames behind the end that were written after it had been synced.
static int examine_rest(struct file_log *l, const struct segment *s, struct walk *w,
                        struct recovered *r) {
    uint64_t broken = w->at;
    int err = walk_content_end(w, r->end, &r->content);
    if (err < 0)
        return err;
    struct walk_frame f;
    int found = 0;
    w->bodies = false;
    while (r->synced <= r->end && (found = walk_find(w, r->content, &f)) > 0)
        r->synced = f.at - f.frame.unsynced > r->synced ? f.at - f.frame.unsynced : r->synced;
    if (found < 0)
        return found;
    if (r->synced > r->end)
        return log_damaged(l, s->number, broken, "no valid entry, but later ones follow");
    return 0;
}

int segment_examine(struct file_log *l, struct segment *s, struct recovered *out) {
    char path[LOG_PATH];
    int err = segment_hold(l, s);
    if (err < 0)
        return err;
    struct walk w = segment_walk(l, s, path, SEGMENT_START);
    struct recovered r = { .end = SEGMENT_START, .synced = SEGMENT_START };
    w.bodies = true;
    err = examine_groups(&w, &r);
    if (err == 0 && !r.sealed)
        err = examine_rest(l, s, &w, &r);
    walk_finish(&w);
    segment_release(l, s);
    if (err == 0)
        *out = r;
    return err;
}

static int rewrite_range(const struct disk *d, int fd, uint64_t from, uint64_t end) {
    uint8_t block[1 << 14];
    while (from < end) {
        size_t size = end - from < sizeof block ? (size_t)(end - from) : sizeof block;
        int64_t n = disk_read_all(d, fd, block, size, from);
        int err = n < 0 ? (int)n : disk_write_all(d, fd, block, size, from);
        if (err < 0)
            return err;
        from += size;
    }
    return 0;
}

static int zero_range(const struct disk *d, int fd, uint64_t from, uint64_t end) {
    static const uint8_t zeros[1 << 14];
    while (from < end) {
        size_t size = end - from < sizeof zeros ? (size_t)(end - from) : sizeof zeros;
        int err = disk_write_all(d, fd, zeros, size, from);
        if (err < 0)
            return err;
        from += size;
    }
    return 0;
}

// Writes the valid end of a segment again and zeroes the rest, as segment_examine found them.
static int segment_rewrite_tail(struct file_log *l, struct segment *s, const struct recovered *r) {
    const struct disk *d = l->disk;
    int err = segment_hold(l, s);
    if (err < 0)
        return err;
    if (d->size(d, s->fd) < (int64_t)s->capacity)
        err = d->allocate(d, s->fd, 0, s->capacity);
    if (err == 0 && !MUTANT(tail_not_written_again))
        err = rewrite_range(d, s->fd, r->synced, r->end);
    if (err == 0 && !MUTANT(torn_tail_not_zeroed))
        err = zero_range(d, s->fd, r->end, r->content);
    if (err == 0)
        err = d->sync(d, s->fd);
    segment_release(l, s);
    if (err == 0)
        return 0;
    char path[LOG_PATH];
    segment_path(path, l->dir, s->number, "seg");
    return disk_failed(path, "rewrite the last entries", err);
}

static int last_remove(struct file_log *l) {
    uint64_t number = segment_last(l)->number;
    l->bytes -= segment_last(l)->capacity;
    segment_destroy(l, segment_last(l));
    l->segments.next--;
    if (l->options.read_only)
        return 0;
    char path[LOG_PATH];
    segment_path(path, l->dir, number, "seg");
    int err = l->disk->unlink(l->disk, path);
    if (err == 0)
        err = l->disk->sync_dir(l->disk, l->dir);
    return err < 0 ? disk_failed(path, "remove", err) : 0;
}

// A segment is created before its predecessor is sealed. So an empty last segment is removed if its
// predecessor has no seal; if it has one, the seal may be in the page cache only and is written
// again.
static int last_settle_empty(struct file_log *l, struct recovered *r) {
    struct segment *before = ring_at(&l->segments, segment_last(l)->number - 1);
    struct recovered found = { 0 };
    if (r->end > SEGMENT_START || r->sealed || !before)
        return 0;
    int err = segment_examine(l, before, &found);
    if (err < 0)
        return err;
    if (!found.sealed) {
        *r = found;
        return last_remove(l);
    }
    found.end += ENTRY_FRAME;
    return l->options.read_only ? 0 : segment_rewrite_tail(l, before, &found);
}

// Adds the entries of the last segment to its index.
static int last_index(struct file_log *l, struct segment *s, uint64_t end) {
    char path[LOG_PATH];
    int err = segment_hold(l, s);
    if (err < 0)
        return err;
    struct walk w = segment_walk(l, s, path, SEGMENT_START);
    struct walk_frame f;
    int found = 1;
    index_begin(&l->index, l->disk, l->dir, s->number);
    while (l->index.active && w.at < end && (found = walk_next(&w, &f)) > 0)
        index_add(&l->index, &f);
    walk_finish(&w);
    segment_release(l, s);
    return found < 0 ? found : 0;
}

static void positions_set(struct file_log *l, uint64_t tail) {
    l->head = segment_base(l, l->segments.first) + SEGMENT_START;
    l->tail = l->written = l->synced = l->durable = tail;
    l->flush_to = l->sync_to = l->opened_at = tail;
    l->trim_to = l->segments.first;
}

void file_log_begin(struct file_log *l) {
    const struct segment *first = segment_last(l);
    index_begin(&l->index, l->disk, l->dir, first->number);
    positions_set(l, segment_base(l, first->number) + SEGMENT_START);
}

int file_log_recover(struct file_log *l) {
    struct recovered r = { 0 };
    int err = segment_examine(l, segment_last(l), &r);
    if (err == 0)
        err = last_settle_empty(l, &r);
    if (err < 0)
        return err;
    struct segment *last = segment_last(l);
    if (r.sealed)
        return log_damaged(l, last->number + 1, 0, "the segment is missing");
    if (!l->options.read_only)
        err = segment_rewrite_tail(l, last, &r);
    if (err == 0 && !l->options.read_only)
        err = last_index(l, last, r.end);
    if (err == 0)
        positions_set(l, segment_base(l, last->number) + r.end);
    return err;
}
