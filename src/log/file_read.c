// Reading the file log: one entry, a range with bodies, or all heads.
//
// Entries that are not written yet, or were just written, are copied from the batches under the
// lock; all others are read from files without it. Checksums are tested on everything that comes
// from a file.
#include "log/file.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

enum { READ_GUESS = 2048 }; // bytes read of an entry before its size is known

struct walk segment_walk(const struct file_log *l, const struct segment *s, char *path,
                         uint64_t from) {
    segment_path(path, l->dir, s->number, "seg");
    struct walk w = { .disk = l->disk,
                      .path = path,
                      .fd = s->fd,
                      .base = segment_base(l, s->number),
                      .at = from,
                      .room = s->capacity - ENTRY_FRAME };
    w.limit = walk_limit(&w, s->capacity);
    return w;
}

static int entry_copy(const struct log_frame *f, const uint8_t *raw, struct buffer *out_head,
                      struct buffer *out_body) {
    int err = out_head ? buffer_reserve(out_head, f->head_size) : 0;
    if (err == 0 && out_body)
        err = buffer_reserve(out_body, f->body_size);
    if (err < 0)
        return err;
    if (out_head)
        buffer_append(out_head, raw + ENTRY_FRAME, f->head_size);
    if (out_body)
        buffer_append(out_body, raw + ENTRY_FRAME + f->head_size, f->body_size);
    return 0;
}

// ---- Entries still in memory; the lock is held ------------------------------------------------

static const uint8_t *batch_at(const struct log_batch *b, uint64_t at) {
    return at >= b->at && at + ENTRY_FRAME <= b->at + b->size ? b->data + (at - b->at) : NULL;
}

// The last of the recent batches that begins at or before `at`.
static const uint8_t *recent_find(const struct file_log *l, uint64_t at) {
    uint32_t low = 0, high = l->recent_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (l->recent[(l->recent_first + middle) % RECENT_BATCHES]->at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? batch_at(l->recent[(l->recent_first + low - 1) % RECENT_BATCHES], at) : NULL;
}

static const uint8_t *batch_find(const struct file_log *l, uint64_t at) {
    const uint8_t *found = at < l->written ? recent_find(l, at) : NULL;
    for (const struct log_batch *b = l->first; b && !found; b = b->next)
        found = batch_at(b, at);
    return found;
}

static int batch_read(const uint8_t *raw, uint64_t at, struct buffer *out_head,
                      struct buffer *out_body) {
    struct log_frame f;
    if (!frame_get(raw, &f) || !frame_is_entry(&f))
        return error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    if (f.flags & FRAME_DAMAGED && out_body)
        return error_set(MR_ECORRUPT, "the body of the entry at %" PRIu64 " was damaged", at);
    return entry_copy(&f, raw, out_head, out_body);
}

// ---- One entry of a file; the segment is held -------------------------------------------------

int64_t segment_read(const struct file_log *l, const struct segment *s, uint64_t at, bool wait,
                     void *to, size_t size) {
    return wait ? disk_read_all(l->disk, s->fd, to, size, offset_of(l, at))
                : l->disk->pread_now(l->disk, s->fd, to, size, offset_of(l, at));
}

static int entry_verify(const struct file_log *l, const struct segment *s, uint64_t at,
                        const struct log_frame *f, const uint8_t *raw) {
    if (!frame_head_fits(f, raw, at))
        return log_damaged(l, s->number, offset_of(l, at), "the head of an entry is wrong");
    if (!frame_is_entry(f))
        return error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    if (f->flags & FRAME_DAMAGED || !frame_body_fits(f, raw))
        return log_damaged(l, s->number, offset_of(l, at), "the body of an entry is wrong");
    return 0;
}

// MR_EAGAIN: not all of it is in the page cache, and the caller must not wait.
static int read_failed(const struct file_log *l, int64_t n, bool wait) {
    if (!wait && (n >= 0 || n == -EAGAIN))
        return MR_EAGAIN;
    return disk_failed(l->dir, "read", (int)n);
}

static int entry_read_large(const struct file_log *l, const struct segment *s, uint64_t at,
                            const struct log_frame *f, bool wait, struct buffer *out_head,
                            struct buffer *out_body) {
    size_t size = (size_t)frame_size(f);
    uint8_t *raw = mem_resize(NULL, size);
    if (!raw)
        return error_set(MR_ENOMEM, "no memory for an entry of %zu bytes", size);
    int64_t n = segment_read(l, s, at, wait, raw, size);
    bool all = n >= 0 && (wait || (size_t)n == size);
    int err = all ? entry_verify(l, s, at, f, raw) : read_failed(l, n, wait);
    if (err == 0)
        err = entry_copy(f, raw, out_head, out_body);
    mem_free(raw);
    return err;
}

// Decodes an entry in memory. False: the data end within it.
static bool is_whole(const uint8_t *raw, size_t size, struct log_frame *out) {
    return size >= ENTRY_FRAME && frame_get(raw, out) && frame_size(out) <= size;
}

// Reads an entry from the window of its sequence, and refills the window if the entry is not in it.
// False: it has to be read by itself.
static bool entry_read_ahead(const struct file_log *l, const struct segment *s, uint64_t at,
                             bool wait, struct window *w, struct buffer *out_head,
                             struct buffer *out_body, int *out_err) {
    size_t size;
    struct log_frame f;
    const uint8_t *raw = window_find(w, at, &size);
    if (!raw || !is_whole(raw, size, &f)) {
        raw = window_read(l, s, w, at, wait, &size);
        if (!raw || !is_whole(raw, size, &f))
            return false;
    }
    *out_err = entry_verify(l, s, at, &f, raw);
    if (*out_err == 0)
        *out_err = entry_copy(&f, raw, out_head, out_body);
    window_note(w, at, frame_size(&f));
    return true;
}

static int entry_read(const struct file_log *l, const struct segment *s, uint64_t at, bool wait,
                      struct window *w, struct buffer *out_head, struct buffer *out_body) {
    int err;
    if (w && entry_read_ahead(l, s, at, wait, w, out_head, out_body, &err))
        return err;
    uint8_t raw[READ_GUESS];
    uint64_t left = s->capacity - offset_of(l, at);
    struct log_frame f;
    int64_t n = segment_read(l, s, at, wait, raw, sizeof raw < left ? sizeof raw : left);
    if (n < 0 || (!wait && n < ENTRY_FRAME))
        return read_failed(l, n, wait);
    if (n < ENTRY_FRAME || !frame_get(raw, &f) || frame_size(&f) > left)
        return log_damaged(l, s->number, offset_of(l, at), "there is no entry");
    if (w)
        window_note(w, at, frame_size(&f));
    if (frame_size(&f) > (uint64_t)n)
        return entry_read_large(l, s, at, &f, wait, out_head, out_body);
    err = entry_verify(l, s, at, &f, raw);
    return err < 0 ? err : entry_copy(&f, raw, out_head, out_body);
}

// Finds the segment of an entry and holds it; NULL: `out_err` says why. The lock is held.
static struct segment *entry_locate(struct file_log *l, uint64_t at, int *out_err) {
    struct segment *s = ring_at(&l->segments, segment_of(l, at));
    *out_err = 0;
    if (at >= l->tail)
        *out_err = error_set(MR_EINVAL, "nothing was appended at %" PRIu64, at);
    else if (at < l->head || !s)
        *out_err = error_set(MR_EGONE, "the entry at %" PRIu64 " was trimmed", at);
    else if (offset_of(l, at) < SEGMENT_START || offset_of(l, at) >= s->capacity)
        *out_err = error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    else
        *out_err = segment_hold(l, s);
    return *out_err < 0 ? NULL : s;
}

static int read_one(struct file_log *l, uint64_t at, bool wait, struct buffer *out_head,
                    struct buffer *out_body) {
    pthread_mutex_lock(&l->lock);
    int err;
    struct segment *s = entry_locate(l, at, &err);
    const uint8_t *raw = s ? batch_find(l, at) : NULL;
    if (raw) {
        err = batch_read(raw, at, out_head, out_body);
    } else if (s && at >= l->written) {
        err = error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    } else if (s) {
        struct window *w = window_take(l, at);
        pthread_mutex_unlock(&l->lock);
        err = entry_read(l, s, at, wait, w, out_head, out_body);
        pthread_mutex_lock(&l->lock);
        if (w)
            w->taken = false;
    }
    if (s)
        segment_release(l, s);
    pthread_mutex_unlock(&l->lock);
    return err;
}

int file_log_read(struct log *base, uint64_t at, struct buffer *out_head, struct buffer *out_body) {
    return read_one((struct file_log *)base, at, true, out_head, out_body);
}

int file_log_read_now(struct log *base, uint64_t at, struct buffer *out_head,
                      struct buffer *out_body) {
    return read_one((struct file_log *)base, at, false, out_head, out_body);
}

// ---- Scanning ---------------------------------------------------------------------------------

struct file_scan {
    struct file_log *log;
    uint64_t at, end; // positions: the next frame, and the tail when the scan began
    uint64_t left;    // bytes wanted
    log_each *each;
    void *arg;
};

// Steps over a frame, and passes it to `each` if it is an entry.
static int scan_step(struct file_scan *c, const struct log_frame *f, const uint8_t *raw,
                     bool damaged) {
    if (f->flags & FRAME_SEAL) {
        c->at = segment_base(c->log, segment_of(c->log, c->at) + 1) + SEGMENT_START;
        return 0;
    }
    uint64_t size = frame_size(f);
    if (frame_is_entry(f)) {
        const uint8_t *head = raw + ENTRY_FRAME;
        struct log_seen seen = { .at = c->at,
                                 .head = { head, f->head_size },
                                 .body = { head + f->head_size, f->body_size },
                                 .body_size = f->body_size,
                                 .damaged = damaged };
        if (damaged)
            (void)log_damaged(c->log, segment_of(c->log, c->at), offset_of(c->log, c->at),
                              "the body of an entry is wrong"); // sets error_text() for `each`
        int err = c->each(c->arg, &seen);
        if (err < 0)
            return err;
    }
    c->at += size;
    c->left -= size < c->left ? size : c->left;
    return 0;
}

// The first entry at or after a position, as the index of its segment has it.
struct indexed {
    uint64_t from; // the position
    bool found;
    struct log_seen seen;
};

static int indexed_look(void *arg, const struct log_seen *seen) {
    struct indexed *i = arg;
    if (seen->at < i->from)
        return 0;
    i->found = true;
    i->seen = *seen;
    return MR_ECANCELLED; // ends the walk
}

// Passes an entry with a damaged frame or head to `each`: the head comes from the index; the body
// counts as damaged too unless its checksum fits.
static int scan_restored(struct file_scan *c, const struct segment *s, struct log_seen seen) {
    struct log_frame f = { .head_size = (uint32_t)seen.head.size, .body_size = seen.body_size };
    size_t size = (size_t)frame_size(&f);
    uint8_t *raw = mem_resize(NULL, size);
    if (!raw)
        return error_set(MR_ENOMEM, "no memory for an entry of %zu bytes", size);
    int64_t n = segment_read(c->log, s, seen.at, true, raw, size);
    const uint8_t *body = raw + ENTRY_FRAME + f.head_size;
    seen.body = (mr_bytes){ body, f.body_size };
    seen.damaged = f.body_size && XXH3_64bits(body, f.body_size) != load_u64(raw + 16);
    seen.restored = true;
    (void)log_damaged(c->log, s->number, offset_of(c->log, seen.at),
                      "the head of an entry is wrong"); // sets error_text() for `each`
    int err = n < 0 ? disk_failed(c->log->dir, "read", (int)n) : c->each(c->arg, &seen);
    mem_free(raw);
    if (err < 0)
        return err;
    c->at += size;
    c->left -= size < c->left ? size : c->left;
    return 0;
}

// There is no valid frame at `c->at`: continues after it with the help of the index, which a sealed
// segment has. What is no entry is skipped.
static int scan_damage(struct file_scan *c, const struct segment *s) {
    struct file_log *l = c->log;
    struct index index = { 0 };
    struct indexed next = { .from = c->at };
    uint64_t base = segment_base(l, s->number);
    int err = index_load(&index, l->disk, l->dir, s->number, s->capacity);
    if (err == MR_EGONE)
        err = log_damaged(l, s->number, offset_of(l, c->at), "an entry is wrong");
    if (err == 0)
        (void)index_walk(&index, base, indexed_look, &next);
    if (err == 0 && next.found && next.seen.at == c->at)
        err = scan_restored(c, s, next.seen);
    else if (err == 0 && next.found)
        c->at = next.seen.at;
    else if (err == 0 && c->at < base + index.seal)
        c->at = base + index.seal;
    else if (err == 0)
        c->at = segment_base(l, s->number + 1) + SEGMENT_START;
    buffer_finish(&index.content);
    return err;
}

// Passes the entries of one segment below `upto` to `each`. The segment is held.
static int scan_segment(struct file_scan *c, const struct segment *s, uint64_t upto) {
    char path[LOG_PATH];
    struct walk w = segment_walk(c->log, s, path, offset_of(c->log, c->at));
    w.bodies = w.damaged = true;
    w.step = c->left < WALK_STEP ? (size_t)c->left : WALK_STEP;
    int err = 0;
    while (err == 0 && c->left > 0 && c->at < upto && segment_of(c->log, c->at) == s->number) {
        struct walk_frame f;
        err = walk_next(&w, &f);
        if (err > 0) {
            err = scan_step(c, &f.frame, f.raw, f.damaged);
        } else if (err == 0) {
            err = scan_damage(c, s);
            w.at = offset_of(c->log, c->at);
        }
    }
    walk_finish(&w);
    return err;
}

// Passes one entry that is not written yet to `each`, as a copy, because `each` may append. The
// lock is held on entry and dropped.
static int scan_batch(struct file_scan *c, struct buffer *copy) {
    const uint8_t *raw = batch_find(c->log, c->at);
    struct log_frame f = { 0 };
    int err =
        raw && frame_get(raw, &f) ? 0 : error_set(MR_EINVAL, "no entry begins at %" PRIu64, c->at);
    buffer_clear(copy);
    if (err == 0)
        err = buffer_append(copy, raw, frame_size(&f));
    pthread_mutex_unlock(&c->log->lock);
    return err < 0 ? err : scan_step(c, &f, copy->data, f.flags & FRAME_DAMAGED);
}

static int scan_next(struct file_scan *c, struct buffer *copy) {
    struct file_log *l = c->log;
    int err;
    pthread_mutex_lock(&l->lock);
    if (c->at >= l->written)
        return scan_batch(c, copy);
    struct segment *s = entry_locate(l, c->at, &err);
    uint64_t upto = l->written < c->end ? l->written : c->end;
    pthread_mutex_unlock(&l->lock);
    if (!s)
        return err;
    err = scan_segment(c, s, upto);
    pthread_mutex_lock(&l->lock);
    segment_release(l, s);
    pthread_mutex_unlock(&l->lock);
    return err;
}

int file_log_scan(struct log *base, uint64_t from, size_t max_bytes, log_each *each, void *arg,
                  uint64_t *out_next) {
    struct file_log *l = (struct file_log *)base;
    if (offset_of(l, from) == 0)
        from += SEGMENT_START;
    struct file_scan c = { .log = l, .at = from, .left = max_bytes, .each = each, .arg = arg };
    struct buffer copy = { 0 };
    pthread_mutex_lock(&l->lock);
    c.end = l->tail;
    pthread_mutex_unlock(&l->lock);
    int err = 0;
    while (err == 0 && c.at < c.end && c.left > 0)
        err = scan_next(&c, &copy);
    buffer_finish(&copy);
    if (err == MR_ECORRUPT && c.at > from)
        err = 0;
    if (err == 0)
        *out_next = c.at;
    return err;
}

// ---- Replaying --------------------------------------------------------------------------------

struct file_replay {
    struct file_log *log;
    log_each *each;
    void *arg;
    struct index index;
};

// Adds the place and the repair command to the error of a refused entry.
static int replay_pass_entry(void *arg, const struct log_seen *seen) {
    struct file_replay *r = arg;
    int err = r->each(r->arg, seen);
    if (err != MR_ECORRUPT)
        return err;
    char what[256];
    snprintf(what, sizeof what, "%s", error_text());
    return log_damaged(r->log, segment_of(r->log, seen->at), offset_of(r->log, seen->at), what);
}

static int replay_frame(struct file_replay *r, const struct segment *s,
                        const struct walk_frame *f) {
    if (!frame_is_entry(&f->frame))
        return 0;
    struct log_seen seen = { .at = segment_base(r->log, s->number) + f->at,
                             .head = walk_head(f),
                             .body_size = f->frame.body_size };
    return replay_pass_entry(r, &seen);
}

// Replays a segment from its file up to offset `end`, or to its seal, and builds its index.
static int replay_segment(struct file_replay *r, struct segment *s, uint64_t end,
                          struct index_builder *index) {
    char path[LOG_PATH];
    struct walk w = segment_walk(r->log, s, path, SEGMENT_START);
    int err = 0;
    while (err == 0 && w.at < end) {
        struct walk_frame f;
        err = walk_next(&w, &f);
        if (err == 0)
            err = log_damaged(r->log, s->number, w.at, "an entry is wrong");
        if (err < 0)
            break;
        index_add(index, &f);
        err = replay_frame(r, s, &f);
        if (f.frame.flags & FRAME_SEAL) {
            s->seal = f.at;
            break;
        }
    }
    walk_finish(&w);
    return err;
}

static void index_count(struct file_log *l, struct segment *s, uint64_t bytes) {
    pthread_mutex_lock(&l->lock);
    l->bytes += bytes - s->index_bytes;
    s->index_bytes = bytes;
    pthread_mutex_unlock(&l->lock);
}

static int replay_reindex(struct file_replay *r, struct segment *s) {
    struct file_log *l = r->log;
    struct index_builder index = { 0 };
    if (!l->options.read_only)
        index_begin(&index, l->disk, l->dir, s->number);
    int err = replay_segment(r, s, s->capacity, &index);
    if (err == 0)
        index_count(l, s, index_end(&index, s->seal));
    index_finish(&index);
    return err;
}

// An index is valid only if the segment has its seal where the index says. 1: it has.
static int index_fits(const struct file_log *l, const struct segment *s, uint64_t seal) {
    char path[LOG_PATH];
    struct walk w = segment_walk(l, s, path, seal);
    struct walk_frame f;
    w.step = ENTRY_FRAME;
    int found = walk_next(&w, &f);
    walk_finish(&w);
    return found < 0 ? found : found && f.frame.flags & FRAME_SEAL;
}

// Replays the index; if it is missing or not valid, the segment itself.
static int replay_sealed(struct file_replay *r, struct segment *s) {
    struct file_log *l = r->log;
    int err = index_load(&r->index, l->disk, l->dir, s->number, s->capacity);
    int fits = err == 0 ? index_fits(l, s, r->index.seal) : 0;
    if (err == MR_EGONE || (err == 0 && fits == 0))
        return replay_reindex(r, s);
    if (err < 0 || fits < 0)
        return err < 0 ? err : fits;
    s->seal = r->index.seal;
    index_count(l, s, r->index.file_bytes);
    return index_walk(&r->index, segment_base(l, s->number), replay_pass_entry, r);
}

static int replay_one_segment(struct file_replay *r, struct segment *s) {
    struct file_log *l = r->log;
    pthread_mutex_lock(&l->lock);
    int err = segment_hold(l, s);
    uint64_t tail = l->tail;
    pthread_mutex_unlock(&l->lock);
    if (err < 0)
        return err;
    struct index_builder none = { 0 };
    if (s->number == segment_of(l, tail))
        err = replay_segment(r, s, offset_of(l, tail), &none);
    else
        err = replay_sealed(r, s);
    pthread_mutex_lock(&l->lock);
    segment_release(l, s);
    pthread_mutex_unlock(&l->lock);
    return err;
}

int file_log_replay(struct log *base, log_each *each, void *arg) {
    struct file_replay r = { .log = (struct file_log *)base, .each = each, .arg = arg };
    const struct ring *segments = &r.log->segments;
    int err = 0;
    for (uint64_t n = segments->first; err == 0 && n < segments->next; n++)
        err = replay_one_segment(&r, ring_at(segments, n));
    buffer_finish(&r.index.content);
    return err;
}
