// The owner's side of the stream log, its opening and closing; stream_log.h describes the whole.
#include "log/stream_log.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static int stream_log_stopped(const struct stream_log *l) {
    return error_set(MR_ESTOPPED, "the log has stopped: %s", l->stopped);
}

static int stream_log_read_only(const struct stream_log *l) {
    return error_set(MR_EPERM, "the stream of shard %u was opened to be looked at only", l->shard);
}

int stream_damaged(const struct stream_log *l, uint64_t at, const char *what) {
    return error_set(MR_ECORRUPT,
                     "the stream of shard %u: the batch at %" PRIu64 " is damaged: %s; restore the "
                     "store from a backup or a replica",
                     l->shard, at, what);
}

int stream_has_lost(const struct stream_log *l, uint64_t known_end, uint64_t tail) {
    return error_set(MR_ECORRUPT,
                     "the store has lost acknowledged entries: the log of shard %u was durable up "
                     "to %" PRIu64 ", the store ends at %" PRIu64 "; bring back the server that "
                     "has them, or start the nodes again to go on without them",
                     l->shard, known_end, tail);
}

void stream_note_end(const struct stream_log *l, uint64_t end) {
    if (l->options.stream.known_ends)
        atomic_store(&l->options.stream.known_ends[l->shard], end);
}

static uint64_t stream_known_end(const struct stream_log *l) {
    const _Atomic uint64_t *ends = l->options.stream.known_ends;
    return ends ? atomic_load(&ends[l->shard]) : 0;
}

// ---- Batches in memory ------------------------------------------------------------------------

void memory_batch_destroy(struct memory_batch *b) {
    if (!b)
        return;
    buffer_finish(&b->heads);
    buffer_finish(&b->bodies);
    mem_free(b);
}

void memory_batch_hold(struct memory_batch *b) {
    assert(b->closed);
    b->users++;
}

void memory_batch_release(struct memory_batch *b) {
    if (--b->users == 0 && b->dropped)
        memory_batch_destroy(b);
}

void memory_batch_drop(struct memory_batch *b) {
    b->dropped = true;
    if (b->users == 0)
        memory_batch_destroy(b);
}

void stream_batch_close(struct stream_log *l, struct memory_batch *b) {
    if (b->closed)
        return;
    struct batch_header h = { .shift = l->shift,
                              .count = b->count,
                              .bodies_size = (uint32_t)b->bodies.size,
                              .at = b->batch.at,
                              .before = b->before };
    batch_put_header(&b->heads, &h);
    b->batch.end = b->batch.at + round_up_8(memory_batch_size(b));
    b->batch.heads = buffer_bytes(&b->heads);
    b->batch.bodies = buffer_bytes(&b->bodies);
    b->closed = true;
    l->tail = b->batch.end;
}

// ---- Appending --------------------------------------------------------------------------------

struct group_sizes {
    uint64_t heads, bodies;
};

// Whether a batch at `at` with these parts lies within one segment.
static bool batch_is_within(const struct stream_log *l, uint64_t at, uint64_t size) {
    return round_up_8(size) <= (UINT64_C(1) << l->shift) - (at - stream_segment_base(l, at));
}

// The batch that gathers, if the group may join it.
static struct memory_batch *batch_to_join(const struct stream_log *l, const struct group_sizes *g) {
    struct memory_batch *b = stream_batch_last(l);
    if (!b || b->closed || memory_batch_size(b) >= STREAM_BATCH)
        return NULL;
    uint64_t size = memory_batch_size(b) + g->heads + g->bodies;
    return batch_is_within(l, b->batch.at, size) ? b : NULL;
}

static int memory_batch_reserve(struct memory_batch *b, const struct group_sizes *g) {
    int err = buffer_reserve(&b->heads, g->heads);
    return err < 0 ? err : buffer_reserve(&b->bodies, g->bodies);
}

// Begins a batch behind the last one, or in the next segment.
static int batch_begin_behind(struct stream_log *l, const struct group_sizes *g,
                              struct memory_batch **out) {
    struct group_sizes all = { .heads = BATCH_HEADER + g->heads, .bodies = g->bodies };
    struct memory_batch *b = mem_alloc(sizeof *b), *last = stream_batch_last(l);
    if (!b)
        return error_set(MR_ENOMEM, "no memory for a batch");
    int err = memory_batch_reserve(b, &all);
    if (err == 0)
        err = ring_reserve(&l->batches, 1);
    if (err < 0) {
        memory_batch_destroy(b);
        return err;
    }
    if (last)
        stream_batch_close(l, last);
    b->before = last ? last->batch.end : l->stored;
    b->batch.at = l->tail;
    if (!batch_is_within(l, b->batch.at, all.heads + all.bodies))
        b->batch.at = stream_segment_base(l, l->tail) + (UINT64_C(1) << l->shift);
    b->heads.size = BATCH_HEADER;
    l->unsent_bytes += BATCH_HEADER;
    ring_push(&l->batches, b);
    *out = b;
    return 0;
}

static uint64_t unsent_most(const struct stream_log *l) {
    return l->options.max_unwritten ? l->options.max_unwritten : LOG_UNWRITTEN;
}

static int unsent_check(const struct stream_log *l, enum room room) {
    uint64_t most = log_unwritten_most(unsent_most(l), room);
    if (l->full && room == ROOM_PUSH)
        return error_set(MR_EFULL, "the store of shard %u has no space left", l->shard);
    if (l->unsent_bytes < most)
        return 0;
    return error_set(MR_EFULL, "shard %u has %" PRIu64 " bytes that its store has not taken yet",
                     l->shard, l->unsent_bytes);
}

static void group_append(struct stream_log *l, struct memory_batch *b, const struct entry *entries,
                         size_t count, uint64_t *out_at) {
    uint64_t before = memory_batch_size(b);
    for (size_t i = 0; i < count; i++)
        out_at[i] = batch_put(&b->heads, &b->bodies, b->batch.at, &entries[i]);
    b->count += (uint32_t)count;
    l->unsent_bytes += memory_batch_size(b) - before;
    l->tail = b->batch.at + b->bodies.size;
}

static int stream_log_append(struct log *base, const struct entry *entries, size_t count,
                             enum room room, uint64_t *out_at) {
    struct stream_log *l = (struct stream_log *)base;
    assert(count > 0 && count <= LOG_GROUP);
    if (l->options.read_only)
        return stream_log_read_only(l);
    struct group_sizes g = { 0 };
    batch_measure(entries, count, &g.heads, &g.bodies);
    uint64_t size = round_up_8(BATCH_HEADER + g.heads + g.bodies);
    if (size > UINT64_C(1) << l->shift)
        return error_set(MR_ETOOBIG, "a group of %" PRIu64 " bytes is more than a segment holds",
                         size);
    pthread_mutex_lock(&l->lock);
    struct memory_batch *b = batch_to_join(l, &g);
    int err = l->stopped[0] ? stream_log_stopped(l) : unsent_check(l, room);
    if (err == 0)
        err = b ? memory_batch_reserve(b, &g) : batch_begin_behind(l, &g, &b);
    if (err == 0)
        group_append(l, b, entries, count, out_at);
    pthread_mutex_unlock(&l->lock);
    return err;
}

// ---- Requests to the writer -------------------------------------------------------------------

// Lets the writer do its work, and drops the lock.
static void stream_writer_run(struct stream_log *l) {
    while (!l->threaded && !l->options.read_only && stream_writer_step(l))
        ;
    bool threaded = l->threaded;
    pthread_mutex_unlock(&l->lock);
    if (threaded)
        pthread_cond_signal(&l->work);
}

static void stream_log_flush(struct log *base, bool now) {
    struct stream_log *l = (struct stream_log *)base;
    (void)now; // what is sent is durable when the store answers
    pthread_mutex_lock(&l->lock);
    l->flush_to = l->tail;
    stream_writer_run(l);
}

// Why an inline writer cannot go on.
static int stream_not_written(const struct stream_log *l) {
    if (l->full)
        return error_set(MR_EFULL, "the store of shard %u has no space left", l->shard);
    return error_set(MR_ENET, "the store of shard %u does not answer: %s", l->shard, l->outage);
}

// Waits until the writer has done something. Without a thread it does a piece of work itself; when
// that has to wait for the store, and there is no clock to wait with, it fails.
static int stream_await(struct stream_log *l) {
    if (l->threaded) {
        pthread_cond_signal(&l->work);
        pthread_cond_wait(&l->done, &l->lock);
        return 0;
    }
    if (stream_writer_step(l))
        return 0;
    const struct log_clock *c = l->options.stream.clock;
    if (!c)
        return stream_not_written(l);
    uint64_t at_ms = stream_writer_next_ms(l);
    pthread_mutex_unlock(&l->lock);
    c->wait_until(c->arg, at_ms);
    pthread_mutex_lock(&l->lock);
    return 0;
}

static int stream_log_wait(struct log *base, uint64_t at) {
    struct stream_log *l = (struct stream_log *)base;
    pthread_mutex_lock(&l->lock);
    int err = at < l->tail ? 0 : error_set(MR_EINVAL, "nothing was appended at %" PRIu64, at);
    if (err == 0 && l->flush_to <= at)
        l->flush_to = l->tail;
    while (err == 0 && l->durable <= at)
        err = l->stopped[0] ? stream_log_stopped(l) : stream_await(l);
    pthread_mutex_unlock(&l->lock);
    return err;
}

static uint64_t stream_log_segment_end(struct log *base, uint64_t at) {
    const struct stream_log *l = (const struct stream_log *)base;
    return stream_segment_base(l, at) + (UINT64_C(1) << l->shift);
}

static int stream_log_trim(struct log *base, uint64_t upto) {
    struct stream_log *l = (struct stream_log *)base;
    if (l->options.read_only)
        return stream_log_read_only(l);
    pthread_mutex_lock(&l->lock);
    uint64_t to = stream_segment_base(l, upto < l->tail ? upto : l->tail);
    int err = l->stopped[0] ? stream_log_stopped(l) : 0;
    if (err < 0 || to <= l->trim_to || to <= l->head) {
        pthread_mutex_unlock(&l->lock);
        return err;
    }
    l->trim_to = l->head = to;
    l->trim_after = l->flush_to = l->tail;
    stream_window_shrink(l);
    stream_writer_run(l);
    return 0;
}

static void stream_log_look(struct log *base, struct log_state *out) {
    struct stream_log *l = (struct stream_log *)base;
    pthread_mutex_lock(&l->lock);
    bool slow = l->sent_ms && stream_now_ms(l) - l->sent_ms > STREAM_SLOW_MS;
    *out = (struct log_state){ .head = l->head,
                               .tail = l->tail,
                               .durable = l->durable,
                               .synced = l->durable,
                               .bytes = l->tail - l->head,
                               .memory = l->unsent_bytes,
                               .segment_size = UINT64_C(1) << l->shift,
                               .last_size = UINT64_C(1) << l->shift,
                               .full = l->full,
                               .behind = l->unsent_bytes >= unsent_most(l),
                               .epoch = l->epoch };
    memcpy(out->stopped, l->stopped, sizeof out->stopped);
    if (l->outage_ms || slow)
        out->waiting_since_ms = l->outage_ms ? l->outage_ms : l->sent_ms;
    if (l->outage_ms)
        memcpy(out->outage, l->outage, sizeof out->outage);
    else if (slow)
        snprintf(out->outage, sizeof out->outage, "the store of shard %u has not answered yet",
                 l->shard);
    pthread_mutex_unlock(&l->lock);
}

static uint64_t stream_log_owned_ms(struct log *base) {
    return atomic_load_explicit(&((struct stream_log *)base)->owned_ms, memory_order_relaxed);
}

// ---- Closing ----------------------------------------------------------------------------------

static void stream_log_destroy(struct stream_log *l) {
    stream_fetch_clear(l);
    ring_finish(&l->fetch.batches);
    while (ring_count(&l->batches))
        memory_batch_destroy(ring_shift(&l->batches));
    ring_finish(&l->batches);
    if (l->appending)
        l->appending->impl->close(l->appending);
    if (l->reading)
        l->reading->impl->close(l->reading);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->fetching);
    pthread_cond_destroy(&l->done);
    pthread_mutex_destroy(&l->reading_lock);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

// Gives the writer some time to send the rest, then ends its calls. What is not sent then was not
// acknowledged either.
static void stream_threads_end(struct stream_log *l) {
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    l->flush_to = l->tail;
    uint64_t until_ms = monotonic_ms() + l->options.stream.close_ms;
    pthread_cond_signal(&l->work);
    pthread_cond_signal(&l->fetching);
    while (!l->ended && monotonic_ms() < until_ms)
        cond_wait_until(&l->done, &l->lock, until_ms);
    pthread_mutex_unlock(&l->lock);
    l->appending->impl->interrupt(l->appending);
    l->reading->impl->interrupt(l->reading);
    pthread_mutex_lock(&l->lock);
    l->ended = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->writer, NULL);
    pthread_join(l->reader, NULL);
}

static void stream_inline_end(struct stream_log *l) {
    stream_log_flush(&l->base, true);
    pthread_mutex_lock(&l->lock);
    stream_release(l);
    pthread_mutex_unlock(&l->lock);
}

static void stream_log_close(struct log *base) {
    struct stream_log *l = (struct stream_log *)base;
    if (l->threaded)
        stream_threads_end(l);
    else
        stream_inline_end(l);
    struct stream_store *store = l->store;
    void (*close_store)(struct stream_store *) = l->options.stream.close_store;
    stream_log_destroy(l);
    if (close_store)
        close_store(store);
}

static const struct log_impl stream_log_impl = {
    .replay = stream_log_replay,
    .append = stream_log_append,
    .flush = stream_log_flush,
    .wait = stream_log_wait,
    .read = stream_log_read,
    .read_now = stream_log_read_now,
    .scan = stream_log_scan,
    .segment_end = stream_log_segment_end,
    .trim = stream_log_trim,
    .look = stream_log_look,
    .owned_ms = stream_log_owned_ms,
    .close = stream_log_close,
};

// ---- Opening ----------------------------------------------------------------------------------

static struct stream_log *stream_log_make(uint32_t shard, const struct log_options *options) {
    struct stream_log *l = mem_alloc(sizeof *l);
    if (!l)
        return NULL;
    l->base.impl = &stream_log_impl;
    l->options = *options;
    l->shard = shard;
    uint64_t size = options->segment_size ? options->segment_size : LOG_SEGMENT;
    for (l->shift = 10; UINT64_C(1) << l->shift < size && l->shift < STREAM_SHIFT_MAX;)
        l->shift++;
    if (!l->options.stream.window_bytes)
        l->options.stream.window_bytes = LOG_STREAM_WINDOW;
    if (!l->options.stream.beat_ms)
        l->options.stream.beat_ms = STREAM_BEAT_MS;
    if (!l->options.stream.close_ms)
        l->options.stream.close_ms = STREAM_CLOSE_MS;
    pthread_mutexattr_t nested; // a callback of a replay may read
    pthread_mutexattr_init(&nested);
    pthread_mutexattr_settype(&nested, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&l->reading_lock, &nested);
    pthread_mutexattr_destroy(&nested);
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->work);
    cond_init(&l->fetching);
    cond_init(&l->done);
    return l;
}

static bool is_expected(const struct log_stream_options *o, const struct stream_state *seen) {
    bool epoch = !o->expects_epoch || seen->epoch == o->expected_epoch;
    return epoch && (!o->expected_owner || strcmp(seen->owner, o->expected_owner) == 0);
}

// Claims from the present owner, and from no other: a claim that the store carries out too late
// must not take the stream from a later owner. A claim in doubt is repeated.
static int stream_claim_first(struct stream_log *l, struct stream_state *out) {
    struct stream *s = l->appending;
    struct stream_state seen;
    const struct log_stream_options *o = &l->options.stream;
    int looked = s->impl->look(s, &seen), result = looked;
    if (looked == STREAM_DONE && !is_expected(o, &seen))
        return STREAM_FENCED;
    if (looked == STREAM_DONE && seen.tail < stream_known_end(l) &&
        !MUTANT(lost_entries_not_noticed))
        return stream_has_lost(l, stream_known_end(l), seen.tail); // and it is not claimed
    for (int i = 0; i < STREAM_CLAIMS && looked == STREAM_DONE; i++) {
        atomic_store(&l->owned_ms, stream_now_ms(l));
        result = s->impl->claim(s, seen.epoch, out);
        if (result != STREAM_IN_DOUBT && (result != STREAM_FENCED || o->expects_epoch))
            return result;
        if (result == STREAM_FENCED)
            looked = s->impl->look(s, &seen);
    }
    return looked == STREAM_DONE ? result : looked;
}

static int stream_state_first(struct stream_log *l, struct stream_state *out) {
    struct stream *s = l->appending;
    int result = l->options.read_only ? s->impl->look(s, out) : stream_claim_first(l, out);
    if (result == STREAM_FENCED)
        return error_set(MR_EBUSY, "other owners claim the stream of shard %u as well", l->shard);
    return stream_failed(result);
}

static int keep_header(void *out, const struct stream_batch *b) {
    return batch_get_header(b->heads, out) ? 0 : MR_ECORRUPT;
}

// A stream keeps the segment size that it was begun with. Its first batch may begin after the head.
static int stream_read_shift(struct stream_log *l, const struct stream_state *state) {
    struct batch_header h = { 0 };
    struct stream *s = l->reading;
    uint64_t next;
    if (state->head == state->tail)
        return 0;
    int err =
        s->impl->read(s, state->head, state->tail, BATCH_HEADER, false, keep_header, &h, &next);
    if (err == MR_ECORRUPT || h.shift > STREAM_SHIFT_MAX)
        return stream_damaged(l, state->head, "it has no header of this version");
    if (err == 0 && !h.shift)
        return stream_damaged(l, state->head, "it is missing");
    if (err == 0)
        l->shift = h.shift;
    return stream_failed(err);
}

// A stream begins at 0, its entries a little later.
static uint64_t position_first(uint64_t at) {
    return at > STREAM_START ? at : STREAM_START;
}

static int stream_log_fill(struct stream_log *l, struct stream_store *store) {
    struct stream_state state = { 0 };
    int err = store->open(store, l->shard, &l->appending);
    if (err == 0)
        err = store->open(store, l->shard, &l->reading);
    if (err == 0)
        err = stream_state_first(l, &state);
    if (err == 0)
        err = stream_read_shift(l, &state);
    if (err < 0)
        return err;
    l->epoch = state.epoch;
    l->stored = state.tail;
    stream_note_end(l, l->stored);
    l->tail = l->durable = position_first(state.tail);
    l->head = state.head < state.tail ? position_first(state.head) : l->tail;
    return 0;
}

static int stream_threads_begin(struct stream_log *l) {
    l->threaded = true;
    if (pthread_create(&l->writer, NULL, stream_writer_main, l) != 0)
        return error_set(MR_ENOMEM, "no thread for a log");
    if (pthread_create(&l->reader, NULL, stream_reader_main, l) == 0)
        return 0;
    pthread_mutex_lock(&l->lock);
    l->closing = l->ended = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->writer, NULL);
    return error_set(MR_ENOMEM, "no thread for a log");
}

int log_stream_open(struct stream_store *store, uint32_t shard, const struct log_options *options,
                    struct log **out) {
    struct stream_log *l = stream_log_make(shard, options);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for a log");
    int err = stream_log_fill(l, store);
    if (err == 0 && !options->inline_writer && !options->read_only)
        err = stream_threads_begin(l);
    if (err < 0) {
        stream_log_destroy(l);
        return err;
    }
    l->store = store;
    *out = &l->base;
    return 0;
}
