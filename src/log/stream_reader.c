// Reading the stream log: all heads at opening, one entry, or a range with bodies.
//
// What is in memory is read there. Everything else comes over the readers' connection: in the
// thread that reads for log_read, in the reader thread for the owner's scan. Checksums are tested
// on both ways. A store that does not answer is waited for, up to STREAM_READ_MS.
#include "log/stream_log.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>

enum { BODY_GUESS = 2048, HEAD_GUESS = 512 }; // bytes read before the size is known

// ---- Retries ----------------------------------------------------------------------------------

struct retries {
    uint64_t until_ms; // 0: nothing has failed yet
    uint32_t pause_ms;
};

static bool stream_pause(struct stream_log *l, uint64_t at_ms) {
    const struct log_clock *c = l->options.stream.clock;
    if (!l->threaded && !c)
        return false;
    if (!l->threaded) {
        c->wait_until(c->arg, at_ms);
        return true;
    }
    pthread_mutex_lock(&l->lock);
    while (!l->closing && monotonic_ms() < at_ms)
        cond_wait_until(&l->done, &l->lock, at_ms);
    bool closing = l->closing;
    pthread_mutex_unlock(&l->lock);
    return !closing;
}

// Whether the call should be repeated; waits before. Any thread, without locks.
static bool may_retry(struct stream_log *l, struct retries *p, int result) {
    if (result != STREAM_UNAVAILABLE && result != STREAM_IN_DOUBT)
        return false;
    uint64_t now_ms = stream_now_ms(l);
    if (!p->until_ms)
        *p = (struct retries){ .until_ms = now_ms + STREAM_READ_MS, .pause_ms = STREAM_RETRY_MS };
    if (now_ms >= p->until_ms || !stream_pause(l, now_ms + p->pause_ms))
        return false;
    if (p->pause_ms < STREAM_RETRY_MAX_MS)
        p->pause_ms *= 2;
    return true;
}

static int reading_get(struct stream_log *l, uint64_t at, enum stream_part part, size_t offset,
                       size_t size, struct buffer *out) {
    struct retries p = { 0 };
    size_t before = out->size;
    int result;
    do {
        out->size = before;
        pthread_mutex_lock(&l->reading_lock);
        result = l->reading->impl->get(l->reading, at, part, offset, size, out);
        pthread_mutex_unlock(&l->reading_lock);
    } while (may_retry(l, &p, result));
    if (result == MR_EGONE)
        return error_set(MR_EGONE, "the entry at %" PRIu64 " was trimmed", at);
    return stream_failed(result);
}

// ---- Replay -----------------------------------------------------------------------------------

struct stream_replay {
    struct stream_log *log;
    log_each *each;
    void *arg;
    uint64_t at; // the end of the last batch; 0: none yet
};

static int stream_missing(const struct stream_log *l, uint64_t from, uint64_t upto) {
    return error_set(MR_ECORRUPT,
                     "the stream of shard %u: acknowledged entries between %" PRIu64 " and %" PRIu64
                     " are missing; bring back the server that has them, or restore a backup",
                     l->shard, from, upto);
}

static int replay_batch(void *arg, const struct stream_batch *b) {
    struct stream_replay *r = arg;
    struct batch_header h;
    struct stream_batch heads = { .at = b->at, .end = b->end, .heads = b->heads };
    const char *wrong = batch_check(&heads, &h);
    if (wrong)
        return stream_damaged(r->log, b->at, wrong);
    if (r->at && h.before != r->at)
        return stream_missing(r->log, r->at, b->at);
    struct batch_walk w = batch_walk_all(&heads);
    struct log_seen seen;
    while (batch_walk_next(&w, &seen)) {
        int err = r->each(r->arg, &seen);
        if (err < 0)
            return err;
    }
    r->at = b->end;
    return 0;
}

int stream_log_replay(struct log *base, log_each *each, void *arg) {
    struct stream_log *l = (struct stream_log *)base;
    struct stream_replay r = { .log = l, .each = each, .arg = arg };
    uint64_t from = l->head, upto = l->stored;
    struct retries p = { 0 };
    while (from < upto) {
        uint64_t next = from;
        pthread_mutex_lock(&l->reading_lock);
        int result = l->reading->impl->read(l->reading, from, upto, STREAM_PIECE, false,
                                            replay_batch, &r, &next);
        pthread_mutex_unlock(&l->reading_lock);
        if (result != STREAM_DONE && !may_retry(l, &p, result))
            return stream_failed(result);
        if (result == STREAM_DONE && next <= from)
            return stream_missing(l, from, upto);
        p = result == STREAM_DONE ? (struct retries){ 0 } : p;
        from = result == STREAM_DONE ? next : r.at > from ? r.at : from;
    }
    if (upto > l->head && r.at != upto)
        return stream_missing(l, r.at ? r.at : l->head, upto);
    return 0;
}

// ---- One entry --------------------------------------------------------------------------------

// The first batch that ends behind `at`; NULL: there is none.
static struct memory_batch *batches_find(const struct ring *r, uint64_t at) {
    uint64_t low = r->first, high = r->next;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct memory_batch *b = ring_at(r, middle);
        if (!b->closed || b->batch.end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return ring_at(r, low);
}

static bool batches_reach(const struct ring *r, uint64_t at) {
    const struct memory_batch *first = ring_at(r, r->first);
    return first && at >= first->before;
}

static int parts_append(mr_bytes head, mr_bytes body, struct buffer *out_head,
                        struct buffer *out_body) {
    int err = out_head && out_body ? buffer_reserve(out_body, body.size) : 0;
    if (err == 0 && out_head)
        err = buffer_append(out_head, head.data, head.size);
    return err == 0 && out_body ? buffer_append(out_body, body.data, body.size) : err;
}

static mr_bytes bytes_from(const struct buffer *b, uint64_t offset) {
    return offset < b->size ? (mr_bytes){ b->data + offset, b->size - offset } : (mr_bytes){ 0 };
}

static int stream_body_damaged(const struct stream_log *l, uint64_t at) {
    return error_set(MR_ECORRUPT,
                     "the stream of shard %u: the body of the entry at %" PRIu64 " is damaged",
                     l->shard, at);
}

static int memory_batch_read(const struct stream_log *l, const struct memory_batch *b, uint64_t at,
                             struct buffer *out_head, struct buffer *out_body) {
    struct batch_item item;
    mr_bytes head = { 0 }, raw = { 0 };
    if (at >= b->batch.at)
        raw = bytes_from(&b->bodies, at - b->batch.at);
    if (!raw.data || !batch_get_item(raw, at, &item))
        return error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    mr_bytes body = { (const uint8_t *)raw.data + BATCH_ITEM, item.body_size };
    if (out_body && !batch_body_fits(&item, at, body))
        return stream_body_damaged(l, at);
    if (out_head && !batch_get_head(bytes_from(&b->heads, item.frame_at), at, &head))
        return stream_damaged(l, at, "the head of an entry is wrong");
    return parts_append(head, body, out_head, out_body);
}

// Gets the item and the whole body.
static int body_fetch(struct stream_log *l, uint64_t at, bool wanted, struct buffer *raw,
                      struct batch_item *out) {
    int err = reading_get(l, at, STREAM_BODIES, 0, wanted ? BODY_GUESS : BATCH_ITEM, raw);
    if (err < 0)
        return err;
    if (!batch_get_item(buffer_bytes(raw), at, out))
        return stream_damaged(l, at, "no entry begins there");
    size_t whole = BATCH_ITEM + (size_t)out->body_size;
    if (wanted && raw->size < whole)
        err = reading_get(l, at, STREAM_BODIES, raw->size, whole - raw->size, raw);
    if (err < 0 || !wanted)
        return err;
    mr_bytes body = { raw->data + BATCH_ITEM, out->body_size };
    if (raw->size < whole || !batch_body_fits(out, at, body))
        return stream_body_damaged(l, at);
    return 0;
}

static int head_fetch(struct stream_log *l, uint64_t at, const struct batch_item *item,
                      struct buffer *raw, mr_bytes *out) {
    int err = reading_get(l, at, STREAM_HEADS, item->frame_at, HEAD_GUESS, raw);
    uint64_t whole = err < 0 ? 0 : batch_get_head(buffer_bytes(raw), at, out);
    if (whole > raw->size) {
        err = reading_get(l, at, STREAM_HEADS, item->frame_at + raw->size,
                          (size_t)(whole - raw->size), raw);
        whole = err < 0 ? 0 : batch_get_head(buffer_bytes(raw), at, out);
    }
    if (err < 0)
        return err;
    return whole && whole <= raw->size ? 0 : stream_damaged(l, at, "the head of an entry is wrong");
}

static int entry_fetch(struct stream_log *l, uint64_t at, struct buffer *out_head,
                       struct buffer *out_body) {
    struct buffer bodies = { 0 }, heads = { 0 };
    struct batch_item item;
    mr_bytes head = { 0 }, body = { 0 };
    int err = body_fetch(l, at, out_body != NULL, &bodies, &item);
    if (err == 0 && out_head)
        err = head_fetch(l, at, &item, &heads, &head);
    if (err == 0 && out_body)
        body = (mr_bytes){ bodies.data + BATCH_ITEM, item.body_size };
    if (err == 0)
        err = parts_append(head, body, out_head, out_body);
    buffer_finish(&bodies);
    buffer_finish(&heads);
    return err;
}

static int position_check(const struct stream_log *l, uint64_t at) {
    if (at >= l->tail)
        return error_set(MR_EINVAL, "nothing was appended at %" PRIu64, at);
    if (at < l->head)
        return error_set(MR_EGONE, "the entry at %" PRIu64 " was trimmed", at);
    return 0;
}

// A batch that still gathers may move in memory, so it is copied from under the lock.
static int stream_read_one(struct stream_log *l, uint64_t at, bool wait, struct buffer *out_head,
                           struct buffer *out_body) {
    pthread_mutex_lock(&l->lock);
    int err = position_check(l, at);
    bool here = batches_reach(&l->batches, at);
    struct memory_batch *b = err == 0 && here ? batches_find(&l->batches, at) : NULL;
    if (b && b->closed) {
        memory_batch_hold(b);
        pthread_mutex_unlock(&l->lock);
        err = memory_batch_read(l, b, at, out_head, out_body);
        pthread_mutex_lock(&l->lock);
        memory_batch_release(b);
    } else if (b) {
        err = memory_batch_read(l, b, at, out_head, out_body);
    }
    pthread_mutex_unlock(&l->lock);
    if (err < 0 || b)
        return err;
    return wait ? entry_fetch(l, at, out_head, out_body) : MR_EAGAIN;
}

int stream_log_read(struct log *base, uint64_t at, struct buffer *out_head,
                    struct buffer *out_body) {
    return stream_read_one((struct stream_log *)base, at, true, out_head, out_body);
}

int stream_log_read_now(struct log *base, uint64_t at, struct buffer *out_head,
                        struct buffer *out_body) {
    return stream_read_one((struct stream_log *)base, at, false, out_head, out_body);
}

// ---- Fetching batches for a scan --------------------------------------------------------------

struct batch_collector {
    struct stream_log *log;
    struct ring batches;
    uint64_t damaged_at; // position of the batch that was refused; 0: none
};

static void batches_clear(struct ring *r) {
    while (ring_count(r))
        memory_batch_drop(ring_shift(r));
}

void stream_fetch_clear(struct stream_log *l) {
    batches_clear(&l->fetch.batches);
    l->fetch.state = FETCH_NONE;
    l->fetch.err = 0;
}

static int collect_batch(void *arg, const struct stream_batch *from) {
    struct batch_collector *c = arg;
    struct batch_header h;
    const char *wrong = batch_check(from, &h);
    if (wrong) {
        c->damaged_at = from->at;
        return stream_damaged(c->log, from->at, wrong);
    }
    struct memory_batch *b = mem_alloc(sizeof *b);
    int err = b ? ring_reserve(&c->batches, 1) : error_set(MR_ENOMEM, "no memory for a batch");
    if (err == 0)
        err = buffer_append(&b->heads, from->heads.data, from->heads.size);
    if (err == 0)
        err = buffer_append(&b->bodies, from->bodies.data, from->bodies.size);
    if (err < 0) {
        memory_batch_destroy(b);
        return err;
    }
    b->batch = (struct stream_batch){ from->at, from->end, buffer_bytes(&b->heads),
                                      buffer_bytes(&b->bodies) };
    b->before = h.before;
    b->count = h.count;
    b->closed = true;
    ring_push(&c->batches, b);
    return 0;
}

// Finds the beginning of the batch that `from` is in. `from` may also be between batches.
static int batch_locate(struct stream_log *l, uint64_t from, uint64_t *out_at) {
    struct buffer raw = { 0 };
    struct batch_header h;
    int err = reading_get(l, from, STREAM_HEADS, 0, BATCH_HEADER, &raw);
    bool found = err == 0 && batch_get_header(buffer_bytes(&raw), &h) && h.at < from;
    *out_at = found ? h.at : from;
    buffer_finish(&raw);
    return err == MR_EGONE ? 0 : err;
}

static int batches_fetch(struct stream_log *l, uint64_t from, uint64_t upto, size_t bytes,
                         struct batch_collector *c, uint64_t *out_next) {
    struct retries p = { 0 };
    uint64_t at;
    int result = batch_locate(l, from, &at);
    if (result < 0)
        return result;
    do {
        batches_clear(&c->batches);
        pthread_mutex_lock(&l->reading_lock);
        result =
            l->reading->impl->read(l->reading, at, upto, bytes, true, collect_batch, c, out_next);
        pthread_mutex_unlock(&l->reading_lock);
    } while (may_retry(l, &p, result));
    if (result == STREAM_DONE && ring_count(&c->batches) == 0)
        return stream_missing(l, from, upto);
    return stream_failed(result);
}

// Does what the owner's scan has requested. The lock is held, and dropped meanwhile; a request that
// was replaced meanwhile stays.
static void stream_fetch(struct stream_log *l) {
    struct batch_collector c = { .log = l };
    uint64_t from = l->fetch.from, upto = l->stored, next = from;
    size_t bytes = l->fetch.bytes;
    pthread_mutex_unlock(&l->lock);
    int err = batches_fetch(l, from, upto, bytes, &c, &next);
    pthread_mutex_lock(&l->lock);
    if (l->fetch.state != FETCH_WANTED || l->fetch.from != from) {
        batches_clear(&c.batches);
        ring_finish(&c.batches);
        return;
    }
    const struct memory_batch *last = ring_at(&c.batches, c.batches.next - 1);
    ring_finish(&l->fetch.batches);
    l->fetch.batches = c.batches;
    l->fetch.next = last ? last->batch.end : from;
    l->fetch.state = FETCH_READY;
    l->fetch.err = err;
    if (err < 0)
        snprintf(l->fetch.error_text, sizeof l->fetch.error_text, "%s", error_text());
}

void *stream_reader_main(void *log) {
    struct stream_log *l = log;
    pthread_mutex_lock(&l->lock);
    while (!l->closing) {
        if (l->fetch.state != FETCH_WANTED) {
            pthread_cond_wait(&l->fetching, &l->lock);
            continue;
        }
        stream_fetch(l);
        log_notify(&l->options, &l->lock, &l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

// ---- Scanning ---------------------------------------------------------------------------------

struct stream_scan {
    struct stream_log *log;
    uint64_t at, end; // positions: the next entry, and the tail when the scan began
    size_t left;      // bytes wanted
    log_each *each;
    void *arg;
};

// Requests the batches from `c->at` on. MR_EAGAIN: the reader thread reads them.
static int scan_request(struct stream_scan *c) {
    struct stream_log *l = c->log;
    if (l->fetch.state == FETCH_WANTED && l->fetch.from == c->at)
        return MR_EAGAIN;
    stream_fetch_clear(l);
    l->fetch.state = FETCH_WANTED;
    l->fetch.from = c->at;
    l->fetch.bytes = c->left < STREAM_PIECE ? c->left : STREAM_PIECE;
    if (l->threaded) {
        pthread_cond_signal(&l->fetching);
        return MR_EAGAIN;
    }
    stream_fetch(l);
    return 0;
}

// Finds the batch that has the entry at `c->at` or the next one behind. 0 without a batch: again.
static int scan_find(struct stream_scan *c, struct memory_batch **out) {
    struct stream_log *l = c->log;
    struct scan_fetch *f = &l->fetch;
    *out = NULL;
    if (batches_reach(&l->batches, c->at)) {
        *out = batches_find(&l->batches, c->at);
        if (*out)
            stream_batch_close(l, *out); // `each` may append, and must not move it
        return 0;
    }
    if (f->state == FETCH_READY && c->at >= f->from && c->at < f->next) {
        *out = batches_find(&f->batches, c->at);
        return 0;
    }
    if (f->state == FETCH_READY && f->err < 0 && c->at == f->next) {
        int err = error_set(f->err, "%s", f->error_text);
        stream_fetch_clear(l);
        return err;
    }
    return scan_request(c);
}

// A walk from the entry at `at`: its item says where its frame is. If the item is damaged, the
// frames before it say where it begins.
static struct batch_walk batch_walk_from(const struct memory_batch *b, uint64_t at) {
    struct batch_walk w = batch_walk_all(&b->batch);
    struct batch_item item;
    struct log_seen seen;
    uint64_t offset = at - b->batch.at;
    if (batch_get_item(bytes_from(&b->bodies, offset), at, &item)) {
        w.item_at = (size_t)offset;
        w.frame_at = item.frame_at;
        return w;
    }
    while (w.item_at < offset && batch_walk_next(&w, &seen))
        ;
    return w;
}

// Passes the entries of a batch, which is held, to `each`. Without the lock.
static int scan_walk(struct stream_scan *c, const struct memory_batch *b) {
    if (c->at < b->batch.at)
        c->at = b->batch.at;
    struct batch_walk w = batch_walk_from(b, c->at);
    struct log_seen seen;
    while (c->left > 0 && c->at < c->end) {
        if (!batch_walk_next(&w, &seen)) {
            c->at = b->batch.end;
            return 0;
        }
        if (seen.damaged)
            (void)stream_body_damaged(c->log, seen.at); // sets error_text() for `each`
        int err = c->each(c->arg, &seen);
        if (err < 0)
            return err;
        size_t size = entry_size(seen.head.size, seen.body_size);
        c->at = b->batch.at + w.item_at;
        c->left -= size < c->left ? size : c->left;
    }
    if (w.frame_at >= b->batch.heads.size)
        c->at = b->batch.end;
    return 0;
}

int stream_log_scan(struct log *base, uint64_t from, size_t max_bytes, log_each *each, void *arg,
                    uint64_t *out_next) {
    struct stream_log *l = (struct stream_log *)base;
    pthread_mutex_lock(&l->lock);
    struct stream_scan c = {
        .log = l, .at = from, .end = l->tail, .left = max_bytes, .each = each, .arg = arg
    };
    int err =
        from < l->head ? error_set(MR_EGONE, "the entry at %" PRIu64 " was trimmed", from) : 0;
    while (err == 0 && c.left > 0 && c.at < c.end) {
        struct memory_batch *b;
        err = scan_find(&c, &b);
        if (err < 0 && c.at > from)
            break; // the next scan reports it
        if (err < 0 || !b)
            continue;
        memory_batch_hold(b);
        pthread_mutex_unlock(&l->lock);
        err = scan_walk(&c, b);
        pthread_mutex_lock(&l->lock);
        memory_batch_release(b);
        if (err < 0) {
            pthread_mutex_unlock(&l->lock);
            return err;
        }
    }
    pthread_mutex_unlock(&l->lock);
    if (err < 0 && c.at == from)
        return err;
    *out_next = c.at;
    return 0;
}
