// See sim_stream.h. The state of the streams is what the changes make of nothing, so a failover
// cuts the sequence of changes and makes the state anew.
#include "support/sim_stream.h"

#include "base/errors.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 4, PLANNED = 64, LATE_MOST = 16, DELAY_MS = 3000 };

struct sim_change {
    enum sim_call kind;
    uint32_t shard;
    uint64_t epoch;            // claim: expected; others: the caller's
    uint64_t owner, number;    // claim: which stream, and the count of its claims
    uint64_t tail;             // append: expected
    uint64_t upto;             // trim
    const char *name;          // claim: whom it names
    struct stream_batch batch; // append; owns its parts
};

struct sim_shard {
    uint64_t epoch, owner, number; // owner, number: of the last claim
    const char *name;              // whom that has named; NULL: none, or it was released
    uint64_t seen_ms;              // when its owner has last claimed, appended or beaten
    uint64_t tail, trimmed, bytes;
    struct sim_change **batches; // appends that are not trimmed, ascending
    size_t count, capacity;
};

struct sim_store {
    struct stream_store base;
    struct log_clock clock;
    pthread_mutex_t lock; // guards everything below
    pthread_cond_t changed;
    struct sim_shard shards[SHARDS];
    struct sim_change **changes;
    size_t count, capacity, replicated;
    struct sim_change *late[LATE_MOST];
    size_t late_count;
    enum sim_fault planned[SIM_CALLS][PLANNED];
    size_t planned_count[SIM_CALLS], planned_next[SIM_CALLS];
    uint32_t chance[SIM_FAULTS];
    _Atomic uint64_t now_ms; // read without the lock
    uint64_t random, outage_until_ms, space, next_owner;
    uint64_t alone_until_ms; // the standby is away until then; 0: it is there
    bool dies_alone;         // the primary then dies
    uint64_t calls[SIM_CALLS], released, faults[SIM_FAULTS];
    enum sim_mistake mistake;
    bool hold;
    uint32_t waiting;
};

struct sim_stream {
    struct stream base;
    struct sim_store *store;
    uint32_t shard;
    uint64_t owner, claims;
    const char *name; // what a claim writes; NULL: nothing
    bool interrupted; // guarded by the store's lock
};

static uint64_t sim_random(struct sim_store *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

// ---- Changes ----------------------------------------------------------------------------------

static void change_destroy(struct sim_change *c) {
    free((void *)c->batch.heads.data);
    free((void *)c->batch.bodies.data);
    free(c);
}

static mr_bytes bytes_copy(mr_bytes from) {
    void *to = malloc(from.size + 1);
    if (from.size)
        memcpy(to, from.data, from.size);
    return (mr_bytes){ to, from.size };
}

static struct sim_change *change_make(struct sim_change like) {
    struct sim_change *c = malloc(sizeof *c);
    *c = like;
    if (like.kind == SIM_APPEND) {
        c->batch.heads = bytes_copy(like.batch.heads);
        c->batch.bodies = bytes_copy(like.batch.bodies);
    }
    return c;
}

static uint64_t batch_bytes(const struct sim_change *c) {
    return c->batch.heads.size + c->batch.bodies.size;
}

static void shard_add(struct sim_shard *h, struct sim_change *c) {
    if (h->count == h->capacity) {
        h->capacity = h->capacity ? 2 * h->capacity : 16;
        h->batches = realloc(h->batches, h->capacity * sizeof *h->batches);
    }
    size_t i = h->count++;
    for (; i > 0 && h->batches[i - 1]->batch.at > c->batch.at; i--)
        h->batches[i] = h->batches[i - 1];
    h->batches[i] = c;
    h->bytes += batch_bytes(c);
    if (c->batch.end > h->tail)
        h->tail = c->batch.end;
}

static void shard_remove(struct sim_shard *h, size_t first, size_t count) {
    for (size_t i = first; i < first + count; i++)
        h->bytes -= batch_bytes(h->batches[i]);
    memmove(h->batches + first, h->batches + first + count,
            (h->count - first - count) * sizeof *h->batches);
    h->count -= count;
}

static void change_apply(struct sim_store *s, struct sim_change *c) {
    struct sim_shard *h = &s->shards[c->shard];
    h->seen_ms = s->now_ms;
    if (c->kind == SIM_CLAIM) {
        h->epoch++;
        h->owner = c->owner;
        h->name = c->name;
        h->number = c->number;
    } else if (c->kind == SIM_APPEND) {
        shard_add(h, c);
    } else {
        size_t gone = 0;
        while (gone < h->count && h->batches[gone]->batch.end <= c->upto)
            gone++;
        shard_remove(h, 0, gone);
        h->trimmed = c->upto > h->trimmed ? c->upto : h->trimmed;
    }
}

// With a key alone, the record of the claim and the batches behind it keep a former owner out:
// until they are trimmed.
static bool append_is_fenced(const struct sim_store *s, const struct sim_change *c) {
    const struct sim_shard *h = &s->shards[c->shard];
    if (s->mistake == SIM_KEY_FENCE && c->epoch != h->epoch)
        return c->batch.at >= h->trimmed;
    bool owns = c->epoch == h->epoch || s->mistake == SIM_NO_FENCE;
    return !owns || c->tail != h->tail;
}

static bool change_is_fenced(const struct sim_store *s, const struct sim_change *c) {
    const struct sim_shard *h = &s->shards[c->shard];
    if (c->kind == SIM_APPEND)
        return append_is_fenced(s, c);
    if (c->kind == SIM_CLAIM)
        return c->epoch != h->epoch && !(c->owner == h->owner && c->number > h->number);
    return c->epoch != h->epoch && s->mistake != SIM_NO_FENCE;
}

static bool space_is_left(const struct sim_store *s, const struct sim_change *c) {
    uint64_t bytes = c->kind == SIM_APPEND ? batch_bytes(c) : 0;
    for (size_t i = 0; i < SHARDS; i++)
        bytes += s->shards[i].bytes;
    return !s->space || c->kind == SIM_TRIM || bytes <= s->space;
}

// Makes the change on the primary, if it may happen. Takes it.
static int change_run(struct sim_store *s, struct sim_change *c) {
    int result = change_is_fenced(s, c) ? STREAM_FENCED
                 : space_is_left(s, c)  ? STREAM_DONE
                                        : MR_EFULL;
    if (result != STREAM_DONE) {
        change_destroy(c);
        return result == MR_EFULL ? error_set(MR_EFULL, "the simulated store is full") : result;
    }
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->changes = realloc(s->changes, s->capacity * sizeof *s->changes);
    }
    s->changes[s->count++] = c;
    change_apply(s, c);
    return STREAM_DONE;
}

static void late_run(struct sim_store *s, bool all) {
    for (size_t i = 0; i < s->late_count;) {
        if (!all && sim_random(s) % 3) {
            i++;
            continue;
        }
        struct sim_change *c = s->late[i];
        s->late[i] = s->late[--s->late_count];
        (void)change_run(s, c); // no caller waits for the answer
    }
}

static void late_add(struct sim_store *s, struct sim_change *c) {
    if (s->late_count == LATE_MOST)
        late_run(s, true);
    s->late[s->late_count++] = c;
}

// Backends die with the primary, and with them what had not happened yet.
static void primary_replace(struct sim_store *s, size_t keep) {
    while (s->late_count)
        change_destroy(s->late[--s->late_count]);
    for (size_t i = 0; i < SHARDS; i++) {
        struct sim_change **batches = s->shards[i].batches;
        size_t capacity = s->shards[i].capacity;
        s->shards[i] = (struct sim_shard){ .batches = batches, .capacity = capacity };
    }
    for (size_t i = 0; i < s->count; i++) {
        if (i < keep)
            change_apply(s, s->changes[i]);
        else
            change_destroy(s->changes[i]);
    }
    s->count = s->replicated = keep;
}

// ---- Faults -----------------------------------------------------------------------------------

static enum sim_fault fault_pick(struct sim_store *s, enum sim_call kind) {
    if (s->planned_next[kind] < s->planned_count[kind])
        return s->planned[kind][s->planned_next[kind]++];
    for (int i = 0; i < SIM_FAULTS; i++)
        if (s->chance[i] && sim_random(s) % 1000 < s->chance[i])
            return (enum sim_fault)i;
    return SIM_FAULTS;
}

static bool standby_is_away(const struct sim_store *s) {
    return s->now_ms < s->alone_until_ms;
}

static void standby_return(struct sim_store *s) {
    if (s->dies_alone)
        primary_replace(s, s->replicated);
    s->alone_until_ms = 0;
    s->dies_alone = false;
}

static void rival_claim(struct sim_store *s, uint32_t shard) {
    struct sim_change c = {
        .kind = SIM_CLAIM, .shard = shard, .epoch = s->shards[shard].epoch, .owner = ++s->next_owner
    };
    if (change_run(s, change_make(c)) == STREAM_DONE)
        s->replicated = s->count;
}

// Begins a call, with the lock. STREAM_UNAVAILABLE: it ends at once.
static int sim_call_begin(struct sim_stream *x, enum sim_call kind, enum sim_fault *out) {
    struct sim_store *s = x->store;
    pthread_mutex_lock(&s->lock);
    s->calls[kind]++;
    s->now_ms++;
    if (s->alone_until_ms && !standby_is_away(s))
        standby_return(s);
    late_run(s, false);
    while (s->hold && kind == SIM_APPEND && !x->interrupted) {
        s->waiting++;
        pthread_cond_broadcast(&s->changed);
        pthread_cond_wait(&s->changed, &s->lock);
        s->waiting--;
    }
    *out = fault_pick(s, kind);
    if (*out < SIM_FAULTS)
        s->faults[*out]++;
    if (*out == SIM_DELAY)
        s->now_ms += DELAY_MS;
    if (*out == SIM_FAILOVER)
        primary_replace(s, s->replicated);
    if (*out == SIM_RIVAL)
        rival_claim(s, x->shard);
    bool out_of_reach = x->interrupted || s->now_ms < s->outage_until_ms ||
                        *out == SIM_UNAVAILABLE || *out == SIM_FAILOVER;
    if (!out_of_reach)
        return STREAM_DONE;
    pthread_mutex_unlock(&s->lock);
    (void)error_set(MR_ENET, "the simulated store does not answer");
    return STREAM_UNAVAILABLE;
}

// Makes a change with the fault that was picked; its answer.
static int change_call(struct sim_store *s, struct sim_change *c, enum sim_fault fault) {
    int result;
    bool waits = fault == SIM_FAULTS || fault == SIM_DELAY || fault == SIM_RIVAL;
    (void)error_set(MR_ENET, "the simulated store gave no answer");
    if (waits && standby_is_away(s))
        fault = SIM_WAIT_CANCELLED;
    switch (fault) {
    case SIM_REQUEST_LOST:
        change_destroy(c);
        return STREAM_IN_DOUBT;
    case SIM_LATE:
        late_add(s, c);
        return STREAM_IN_DOUBT;
    case SIM_SPACE:
        change_destroy(c);
        return error_set(MR_EFULL, "the simulated store is full");
    case SIM_REPLY_LOST:
    case SIM_WAIT_CANCELLED:
        result = change_run(s, c);
        if (result == STREAM_DONE && fault == SIM_REPLY_LOST && !standby_is_away(s))
            s->replicated = s->count;
        return result == STREAM_DONE ? STREAM_IN_DOUBT : result;
    case SIM_UNAVAILABLE:
    case SIM_DELAY:
    case SIM_FAILOVER:
    case SIM_RIVAL:
    case SIM_FAULTS:
        break;
    }
    result = change_run(s, c);
    if (result == STREAM_DONE)
        s->replicated = s->count;
    return result;
}

// ---- The stream's calls -----------------------------------------------------------------------

static void state_get(const struct sim_store *s, uint32_t shard, struct stream_state *out) {
    const struct sim_shard *h = &s->shards[shard];
    *out = (struct stream_state){ .epoch = h->epoch,
                                  .head = h->count ? h->trimmed : h->tail,
                                  .tail = h->tail,
                                  .bytes = h->bytes,
                                  .silent_ms = s->now_ms - h->seen_ms };
    snprintf(out->owner, sizeof out->owner, "%s", h->name ? h->name : "");
}

static int sim_claim(struct stream *base, uint64_t expected, struct stream_state *out) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_CLAIM, &fault);
    if (result != STREAM_DONE)
        return result;
    struct sim_change c = { .kind = SIM_CLAIM,
                            .shard = x->shard,
                            .epoch = expected,
                            .owner = x->owner,
                            .number = ++x->claims,
                            .name = x->name };
    result = change_call(x->store, change_make(c), fault);
    if (result == STREAM_DONE)
        state_get(x->store, x->shard, out);
    pthread_mutex_unlock(&x->store->lock);
    return result;
}

static int sim_append(struct stream *base, uint64_t epoch, uint64_t tail,
                      const struct stream_batch *batch) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_APPEND, &fault);
    if (result != STREAM_DONE)
        return result;
    assert(batch->at >= tail && batch->end > batch->at);
    struct sim_change c = {
        .kind = SIM_APPEND, .shard = x->shard, .epoch = epoch, .tail = tail, .batch = *batch
    };
    result = change_call(x->store, change_make(c), fault);
    if (result == STREAM_IN_DOUBT && x->store->mistake == SIM_DOUBT_IS_YES)
        result = STREAM_DONE;
    bool was_warned = fault == SIM_WAIT_CANCELLED || fault == SIM_FAULTS; // the rest is lost
    if (result == STREAM_IN_DOUBT && was_warned && x->store->mistake == SIM_WARNING_IS_YES)
        result = STREAM_DONE;
    if (result == STREAM_IN_DOUBT && x->store->mistake == SIM_DOUBT_IS_NO)
        result = STREAM_UNAVAILABLE;
    pthread_mutex_unlock(&x->store->lock);
    return result;
}

static int sim_trim(struct stream *base, uint64_t epoch, uint64_t upto) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_TRIM, &fault);
    if (result != STREAM_DONE)
        return result;
    struct sim_change c = { .kind = SIM_TRIM, .shard = x->shard, .epoch = epoch, .upto = upto };
    result = change_call(x->store, change_make(c), fault == SIM_LATE ? SIM_REPLY_LOST : fault);
    pthread_mutex_unlock(&x->store->lock);
    return result;
}

static int sim_beat(struct stream *base, uint64_t epoch) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_BEAT, &fault);
    if (result != STREAM_DONE)
        return result;
    bool owns = x->store->shards[x->shard].epoch == epoch, away = standby_is_away(x->store);
    if (owns)
        x->store->shards[x->shard].seen_ms = x->store->now_ms;
    pthread_mutex_unlock(&x->store->lock);
    if (away && owns)
        (void)error_set(MR_ENET, "the simulated store has no standby");
    return !owns ? STREAM_FENCED : away ? STREAM_UNAVAILABLE : STREAM_DONE;
}

static int sim_look(struct stream *base, struct stream_state *out) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_READ, &fault);
    if (result != STREAM_DONE)
        return result;
    state_get(x->store, x->shard, out);
    pthread_mutex_unlock(&x->store->lock);
    return STREAM_DONE;
}

static int sim_read(struct stream *base, uint64_t from, uint64_t upto, size_t max_bytes,
                    bool with_bodies, stream_each *each, void *arg, uint64_t *out_next) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_READ, &fault);
    if (result != STREAM_DONE)
        return result;
    const struct sim_shard *h = &x->store->shards[x->shard];
    size_t read = 0;
    uint64_t next = upto;
    for (size_t i = 0; i < h->count && result == 0; i++) {
        struct stream_batch b = h->batches[i]->batch;
        if (b.at < from || b.at >= upto)
            continue;
        if (read >= max_bytes) {
            next = b.at;
            break;
        }
        if (!with_bodies)
            b.bodies = (mr_bytes){ 0 };
        read += b.heads.size + b.bodies.size;
        result = each(arg, &b);
    }
    pthread_mutex_unlock(&x->store->lock);
    if (result == STREAM_DONE)
        *out_next = next;
    return result;
}

static const struct sim_change *batch_containing(const struct sim_shard *h, uint64_t at) {
    for (size_t i = 0; i < h->count; i++)
        if (at >= h->batches[i]->batch.at && at < h->batches[i]->batch.end)
            return h->batches[i];
    return NULL;
}

static int part_get(const struct sim_change *c, uint64_t at, enum stream_part part, size_t offset,
                    size_t size, struct buffer *out) {
    if (!c)
        return error_set(MR_EGONE, "no batch contains it");
    mr_bytes from = part == STREAM_HEADS ? c->batch.heads : c->batch.bodies;
    uint64_t first = part == STREAM_HEADS ? offset : at - c->batch.at + offset;
    if (first >= from.size)
        return 0;
    size_t left = from.size - (size_t)first;
    return buffer_append(out, (const uint8_t *)from.data + first, size < left ? size : left);
}

static int sim_get(struct stream *base, uint64_t at, enum stream_part part, size_t offset,
                   size_t size, struct buffer *out) {
    struct sim_stream *x = (struct sim_stream *)base;
    enum sim_fault fault;
    int result = sim_call_begin(x, SIM_READ, &fault);
    if (result != STREAM_DONE)
        return result;
    const struct sim_change *c = batch_containing(&x->store->shards[x->shard], at);
    result = part_get(c, at, part, offset, size, out);
    pthread_mutex_unlock(&x->store->lock);
    return result;
}

static int sim_release(struct stream *base, uint64_t epoch) {
    struct sim_stream *x = (struct sim_stream *)base;
    struct sim_store *s = x->store;
    pthread_mutex_lock(&s->lock);
    bool owns = s->shards[x->shard].epoch == epoch;
    s->released += owns;
    if (owns)
        s->shards[x->shard].name = NULL;
    pthread_mutex_unlock(&s->lock);
    return owns ? STREAM_DONE : STREAM_FENCED;
}

static void sim_interrupt(struct stream *base) {
    struct sim_stream *x = (struct sim_stream *)base;
    pthread_mutex_lock(&x->store->lock);
    x->interrupted = true;
    pthread_cond_broadcast(&x->store->changed);
    pthread_mutex_unlock(&x->store->lock);
}

static void sim_close(struct stream *base) {
    free(base);
}

static const struct stream_impl sim_stream_impl = {
    .claim = sim_claim,
    .append = sim_append,
    .read = sim_read,
    .get = sim_get,
    .trim = sim_trim,
    .beat = sim_beat,
    .look = sim_look,
    .release = sim_release,
    .interrupt = sim_interrupt,
    .close = sim_close,
};

static int sim_open(struct stream_store *base, uint32_t shard, struct stream **out) {
    struct sim_store *s = (struct sim_store *)base;
    assert(shard < SHARDS);
    struct sim_stream *x = calloc(1, sizeof *x);
    pthread_mutex_lock(&s->lock);
    *x = (struct sim_stream){
        .base.impl = &sim_stream_impl, .store = s, .shard = shard, .owner = ++s->next_owner
    };
    pthread_mutex_unlock(&s->lock);
    *out = &x->base;
    return 0;
}

// ---- For tests --------------------------------------------------------------------------------

static uint64_t sim_now(void *arg) {
    return sim_store_now_ms(arg);
}

static void sim_wait_until(void *arg, uint64_t at_ms) {
    struct sim_store *s = arg;
    assert(at_ms != UINT64_MAX); // nothing would ever happen
    pthread_mutex_lock(&s->lock);
    s->now_ms = at_ms > s->now_ms ? at_ms : s->now_ms + 1;
    pthread_mutex_unlock(&s->lock);
}

struct sim_store *sim_store_create(uint64_t seed) {
    struct sim_store *s = calloc(1, sizeof *s);
    s->base.open = sim_open;
    s->clock = (struct log_clock){ .now_ms = sim_now, .wait_until = sim_wait_until, .arg = s };
    s->random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    s->now_ms = 1000;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    return s;
}

void sim_store_destroy(struct sim_store *s) {
    primary_replace(s, 0);
    for (size_t i = 0; i < SHARDS; i++)
        free(s->shards[i].batches);
    free(s->changes);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct stream_store *sim_store_streams(struct sim_store *s) {
    return &s->base;
}

const struct log_clock *sim_store_clock(struct sim_store *s) {
    return &s->clock;
}

#define LOCKED(s, statement)                                                                       \
    do {                                                                                           \
        pthread_mutex_lock(&(s)->lock);                                                            \
        statement;                                                                                 \
        pthread_mutex_unlock(&(s)->lock);                                                          \
    } while (0)

void sim_stream_name(struct stream *base, const char *owner) {
    ((struct sim_stream *)base)->name = owner;
}

void sim_store_make(struct sim_store *s, enum sim_mistake mistake) {
    LOCKED(s, s->mistake = mistake);
}

uint64_t sim_store_now_ms(struct sim_store *s) {
    return atomic_load_explicit(&s->now_ms, memory_order_relaxed);
}

void sim_store_advance(struct sim_store *s, uint64_t ms) {
    LOCKED(s, s->now_ms += ms);
}

void sim_store_plan(struct sim_store *s, enum sim_call kind, enum sim_fault fault) {
    assert(s->planned_count[kind] < PLANNED);
    LOCKED(s, s->planned[kind][s->planned_count[kind]++] = fault);
}

void sim_store_chance(struct sim_store *s, enum sim_fault fault, uint32_t per_mille) {
    LOCKED(s, s->chance[fault] = per_mille);
}

void sim_store_outage(struct sim_store *s, uint64_t ms) {
    LOCKED(s, s->outage_until_ms = ms == UINT64_MAX ? ms : s->now_ms + ms);
}

void sim_store_outage_end(struct sim_store *s) {
    LOCKED(s, s->outage_until_ms = 0);
}

void sim_store_standby_away(struct sim_store *s, uint64_t ms, bool dies) {
    LOCKED(s, s->alone_until_ms = ms ? s->now_ms + ms : 0; s->dies_alone = ms && dies);
}

void sim_store_space(struct sim_store *s, uint64_t bytes) {
    LOCKED(s, s->space = bytes);
}

void sim_store_let_late(struct sim_store *s) {
    LOCKED(s, late_run(s, true));
}

void sim_store_failover(struct sim_store *s, uint32_t lost) {
    LOCKED(s, primary_replace(s, s->replicated > lost ? s->replicated - lost : 0));
}

uint64_t sim_store_calls(struct sim_store *s, enum sim_call kind) {
    uint64_t calls;
    LOCKED(s, calls = s->calls[kind]);
    return calls;
}

uint64_t sim_store_faults(struct sim_store *s, enum sim_fault fault) {
    uint64_t faults;
    LOCKED(s, faults = s->faults[fault]);
    return faults;
}

uint64_t sim_store_released(struct sim_store *s) {
    uint64_t released;
    LOCKED(s, released = s->released);
    return released;
}

void sim_store_hold(struct sim_store *s, bool hold) {
    LOCKED(s, s->hold = hold; pthread_cond_broadcast(&s->changed));
}

void sim_store_await(struct sim_store *s) {
    pthread_mutex_lock(&s->lock);
    while (!s->waiting)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void sim_store_look(struct sim_store *s, uint32_t shard, struct stream_state *out) {
    LOCKED(s, state_get(s, shard, out));
}

struct stream_batch *sim_store_batch(struct sim_store *s, uint32_t shard, uint64_t at) {
    struct sim_change *c = (struct sim_change *)batch_containing(&s->shards[shard], at);
    return c ? &c->batch : NULL;
}

void sim_store_forget(struct sim_store *s, uint32_t shard, uint64_t at) {
    struct sim_shard *h = &s->shards[shard];
    for (size_t i = 0; i < h->count; i++) {
        if (at >= h->batches[i]->batch.at && at < h->batches[i]->batch.end) {
            shard_remove(h, i, 1);
            return;
        }
    }
}
