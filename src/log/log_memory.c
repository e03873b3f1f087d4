// The memory log: positions are divided into cells; a segment covers one cell, or as many as its
// only group needs, and the table maps every cell to its segment.
//
//     positions  0        1M       2M       3M       4M
//                ├────────┼────────┼────────┼────────┼─►
//                │segment │ segment of one big group │ …
//
// Entries below the tail never change and segments never move, so appending takes no lock: it
// copies, then publishes the tail. The lock guards the table of cells, which changes only when a
// segment is added or trimmed. A reader takes it to copy a small entry, or to hold the segment of a
// large one.
//
// Some trimmed segments of one cell are kept for later ones: a new one costs a page fault for every
// page, which a log that grows and shrinks with each burst of jobs would have again and again.
#include "log/log.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "log/ring.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    CELL = 1 << 20,
    START = 64, // no entry has position 0; the first bytes of every segment stay unused
    FRAME = 2 * sizeof(uint32_t), // the sizes of head and body, in front of them
    LINE = 64,                    // bytes of a cache line
    COPY_UNDER_LOCK = 4096, // larger entries are copied without the lock, with their segment held
    IDLE_SEGMENTS = 8,      // trimmed segments that are kept for reuse
};

struct memory_segment {
    _Atomic uint32_t users; // the table counts as one user, each reader as another
    uint64_t base;          // position of data[0]
    uint64_t size;          // bytes of data, a multiple of the cell
    uint64_t end;           // position after its last entry; set when the next segment begins
    uint8_t data[];
};

struct memory_log {
    struct log base;
    uint32_t shift;                             // cell = position >> shift
    _Atomic uint64_t head, tail, bytes;         // the owner writes them
    struct memory_segment *current;             // owner only, also the next two
    struct memory_segment *idle[IDLE_SEGMENTS]; // of one cell
    uint32_t idle_count;
    pthread_mutex_t lock; // guards what follows; the owner reads it without
    struct ring cells;
};

static uint64_t counter_get(const _Atomic uint64_t *number) {
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void counter_set(_Atomic uint64_t *number, uint64_t value) {
    atomic_store_explicit(number, value, memory_order_relaxed);
}

static uint64_t memory_head(const struct memory_log *l) {
    return (l->cells.first << l->shift) + START;
}

static struct memory_segment *memory_segment_at(const struct memory_log *l, uint64_t at) {
    return ring_at(&l->cells, at >> l->shift);
}

static void memory_segment_release(struct memory_segment *s) {
    if (atomic_fetch_sub_explicit(&s->users, 1, memory_order_acq_rel) == 1)
        mem_free(s);
}

static struct memory_segment *memory_segment_make(struct memory_log *l, uint64_t size) {
    bool reuse = l->idle_count && size == UINT64_C(1) << l->shift;
    struct memory_segment *s =
        reuse ? l->idle[--l->idle_count] : mem_resize(NULL, sizeof *s + size);
    if (!s)
        return NULL;
    s->size = size;
    s->base = l->cells.next << l->shift;
    atomic_init(&s->users, 1);
    return s;
}

// Begins a segment that holds a group of `size` bytes.
static int memory_add_segment(struct memory_log *l, uint64_t size) {
    uint64_t cells = (START + size + (UINT64_C(1) << l->shift) - 1) >> l->shift;
    struct memory_segment *s = memory_segment_make(l, cells << l->shift);
    if (!s)
        return error_set(MR_ENOMEM, "no memory for a log segment");
    pthread_mutex_lock(&l->lock);
    int err = ring_reserve(&l->cells, cells);
    for (uint64_t i = 0; err == 0 && i < cells; i++)
        ring_push(&l->cells, s);
    pthread_mutex_unlock(&l->lock);
    if (err < 0) {
        mem_free(s);
        return err;
    }
    counter_set(&l->bytes, counter_get(&l->bytes) + s->size);
    if (l->current)
        l->current->end = counter_get(&l->tail);
    l->current = s;
    atomic_store_explicit(&l->tail, s->base + START, memory_order_release);
    return 0;
}

// The size of an entry here: smaller than entry_size, because there are no checksums.
static uint64_t entry_room(size_t head_size, size_t body_size) {
    return (FRAME + head_size + body_size + 7) & ~UINT64_C(7);
}

static void entry_put(uint8_t *to, const struct entry *e) {
    uint32_t sizes[2] = { (uint32_t)e->head.size, (uint32_t)e->body.size };
    memcpy(to, sizes, FRAME);
    if (e->head.size)
        memcpy(to + FRAME, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(to + FRAME + e->head.size, e->body.data, e->body.size);
}

static void entry_get(const struct memory_segment *s, uint64_t at, struct log_seen *out) {
    const uint8_t *from = s->data + (at - s->base);
    uint32_t sizes[2];
    memcpy(sizes, from, FRAME);
    assert(entry_room(sizes[0], sizes[1]) <= s->base + s->size - at);
    *out = (struct log_seen){ .at = at,
                              .head = { from + FRAME, sizes[0] },
                              .body = { from + FRAME + sizes[0], sizes[1] },
                              .body_size = sizes[1] };
}

static int memory_append(struct log *base, const struct entry *entries, size_t count,
                         enum room room, uint64_t *out_at) {
    struct memory_log *l = (struct memory_log *)base;
    (void)room;
    assert(count > 0 && count <= LOG_GROUP);
    uint64_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += entry_room(entries[i].head.size, entries[i].body.size);
    if (size > LOG_SEGMENT)
        return error_set(MR_ETOOBIG, "a group of %llu bytes is more than a segment holds",
                         (unsigned long long)size);
    uint64_t at = counter_get(&l->tail);
    if (size > l->current->base + l->current->size - at) {
        int err = memory_add_segment(l, size);
        if (err < 0)
            return err;
        at = counter_get(&l->tail);
    }
    for (size_t i = 0; i < count; i++) {
        entry_put(l->current->data + (at - l->current->base), &entries[i]);
        out_at[i] = at;
        at += entry_room(entries[i].head.size, entries[i].body.size);
    }
    atomic_store_explicit(&l->tail, at, memory_order_release);
    return 0;
}

static void memory_flush(struct log *base, bool now) {
    (void)base, (void)now;
}

static int memory_wait(struct log *base, uint64_t at) {
    struct memory_log *l = (struct memory_log *)base;
    if (at >= atomic_load_explicit(&l->tail, memory_order_acquire))
        return error_set(MR_EINVAL, "nothing was appended at %llu", (unsigned long long)at);
    return 0;
}

static int seen_copy(const struct log_seen *seen, struct buffer *out_head,
                     struct buffer *out_body) {
    if (out_head && out_body) {
        int err = buffer_reserve(out_body, seen->body.size);
        if (err < 0)
            return err;
    }
    int err = out_head ? buffer_append(out_head, seen->head.data, seen->head.size) : 0;
    if (err < 0 || !out_body)
        return err;
    return buffer_append(out_body, seen->body.data, seen->body.size);
}

static int memory_read(struct log *base, uint64_t at, struct buffer *out_head,
                       struct buffer *out_body) {
    struct memory_log *l = (struct memory_log *)base;
    if (at >= atomic_load_explicit(&l->tail, memory_order_acquire))
        return error_set(MR_EINVAL, "nothing was appended at %llu", (unsigned long long)at);
    pthread_mutex_lock(&l->lock);
    struct memory_segment *s = memory_segment_at(l, at);
    struct log_seen seen = { 0 };
    if (s)
        entry_get(s, at, &seen);
    bool held = seen.head.size + seen.body.size > COPY_UNDER_LOCK;
    int err = 0;
    if (held)
        atomic_fetch_add_explicit(&s->users, 1, memory_order_relaxed);
    else
        err = seen_copy(&seen, out_head, out_body);
    pthread_mutex_unlock(&l->lock);
    if (!s)
        return error_set(MR_EGONE, "the entry at %llu was trimmed", (unsigned long long)at);
    if (held) {
        err = seen_copy(&seen, out_head, out_body);
        memory_segment_release(s);
    }
    return err;
}

// Only the owner changes the table of cells, so it can read it without the lock.
HOT static int memory_read_now(struct log *base, uint64_t at, struct buffer *out_head,
                               struct buffer *out_body) {
    const struct memory_log *l = (const struct memory_log *)base;
    if (at >= counter_get(&l->tail))
        return error_set(MR_EINVAL, "nothing was appended at %llu", (unsigned long long)at);
    const struct memory_segment *s = memory_segment_at(l, at);
    if (!s)
        return error_set(MR_EGONE, "the entry at %llu was trimmed", (unsigned long long)at);
    struct log_seen seen;
    entry_get(s, at, &seen);
    return seen_copy(&seen, out_head, out_body);
}

static void memory_expect(struct log *base, uint64_t at) {
    const struct memory_segment *s = memory_segment_at((const struct memory_log *)base, at);
    if (!s)
        return;
    const uint8_t *from = s->data + (at - s->base);
    __builtin_prefetch(from);
    __builtin_prefetch(from + LINE);
}

// Passes the entries of one segment from `at` to below `end` to `each`; `at` is then where to
// continue.
static int memory_walk_segment(const struct memory_segment *s, uint64_t end, bool bodies,
                               size_t *left, log_each *each, void *arg, uint64_t *at) {
    while (*left > 0 && *at < end) {
        struct log_seen seen;
        entry_get(s, *at, &seen);
        uint64_t size = entry_room(seen.head.size, seen.body.size);
        if (!bodies)
            seen.body = (mr_bytes){ 0 };
        int err = each(arg, &seen);
        if (err < 0)
            return err;
        *at += size;
        *left -= size < *left ? size : *left;
    }
    return 0;
}

// `from` may be the start of a segment or the position after its last entry; `each` may append.
static int memory_walk(struct memory_log *l, uint64_t from, size_t max_bytes, bool bodies,
                       log_each *each, void *arg, uint64_t *out_next) {
    uint64_t tail = counter_get(&l->tail), at = from;
    while (at < tail && max_bytes > 0) {
        const struct memory_segment *s = memory_segment_at(l, at);
        if (!s)
            return error_set(MR_EGONE, "the entry at %llu was trimmed", (unsigned long long)at);
        bool grew = s == l->current || s->end > tail; // entries that `each` appends are not visited
        uint64_t end = grew ? tail : s->end;
        if (at < s->base + START)
            at = s->base + START;
        int err = memory_walk_segment(s, end, bodies, &max_bytes, each, arg, &at);
        if (err < 0)
            return err;
        if (at == end && end < tail)
            at = s->base + s->size;
    }
    *out_next = at;
    return 0;
}

static int memory_scan(struct log *base, uint64_t from, size_t max_bytes, log_each *each, void *arg,
                       uint64_t *out_next) {
    return memory_walk((struct memory_log *)base, from, max_bytes, true, each, arg, out_next);
}

static int memory_replay(struct log *base, log_each *each, void *arg) {
    struct memory_log *l = (struct memory_log *)base;
    uint64_t next;
    return memory_walk(l, memory_head(l), SIZE_MAX, false, each, arg, &next);
}

static uint64_t memory_segment_end(struct log *base, uint64_t at) {
    const struct memory_segment *s = memory_segment_at((struct memory_log *)base, at);
    return s->base + s->size;
}

// Takes the first segment out of the table, unless it ends after `upto` or is the current one.
static struct memory_segment *memory_shift(struct memory_log *l, uint64_t upto) {
    struct memory_segment *s = ring_at(&l->cells, l->cells.first);
    if (s == l->current || s->base + s->size > upto)
        return NULL;
    pthread_mutex_lock(&l->lock);
    for (uint64_t i = 0; i < s->size >> l->shift; i++)
        ring_shift(&l->cells);
    pthread_mutex_unlock(&l->lock);
    counter_set(&l->bytes, counter_get(&l->bytes) - s->size);
    counter_set(&l->head, memory_head(l));
    return s;
}

static int memory_trim(struct log *base, uint64_t upto) {
    struct memory_log *l = (struct memory_log *)base;
    for (struct memory_segment *s; (s = memory_shift(l, upto)) != NULL;) {
        bool alone = atomic_load_explicit(&s->users, memory_order_acquire) == 1;
        if (alone && l->idle_count < IDLE_SEGMENTS && s->size == UINT64_C(1) << l->shift)
            l->idle[l->idle_count++] = s;
        else
            memory_segment_release(s);
    }
    return 0;
}

static void memory_look(struct log *base, struct log_state *out) {
    struct memory_log *l = (struct memory_log *)base;
    out->head = counter_get(&l->head);
    out->tail = out->durable = out->synced = atomic_load_explicit(&l->tail, memory_order_acquire);
    out->bytes = out->memory = counter_get(&l->bytes);
    out->segment_size = out->last_size = UINT64_C(1) << l->shift;
    out->full = out->behind = false;
    out->stopped[0] = out->outage[0] = 0;
    out->waiting_since_ms = 0;
}

static void memory_close(struct log *base) {
    struct memory_log *l = (struct memory_log *)base;
    while (ring_count(&l->cells)) {
        struct memory_segment *s = ring_at(&l->cells, l->cells.first);
        for (uint64_t cells = s->size >> l->shift; cells > 0; cells--)
            ring_shift(&l->cells);
        mem_free(s);
    }
    ring_finish(&l->cells);
    while (l->idle_count)
        mem_free(l->idle[--l->idle_count]);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

static const struct log_impl memory_log = {
    .replay = memory_replay,
    .append = memory_append,
    .flush = memory_flush,
    .wait = memory_wait,
    .read = memory_read,
    .read_now = memory_read_now,
    .expect = memory_expect,
    .scan = memory_scan,
    .segment_end = memory_segment_end,
    .trim = memory_trim,
    .look = memory_look,
    .close = memory_close,
};

int log_memory_open(const struct log_options *options, struct log **out) {
    struct memory_log *l = mem_alloc(sizeof *l);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for a log");
    uint64_t cell = options && options->segment_size ? options->segment_size : CELL;
    l->base.impl = &memory_log;
    for (l->shift = 10; UINT64_C(1) << l->shift < cell;)
        l->shift++;
    pthread_mutex_init(&l->lock, NULL);
    counter_set(&l->head, memory_head(l));
    int err = memory_add_segment(l, 0);
    if (err < 0) {
        memory_close(&l->base);
        return err;
    }
    *out = &l->base;
    return 0;
}
