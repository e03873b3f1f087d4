// The writer of the stream log: one call of the store at a time, the most urgent first.
//
//     resolve what is in doubt ─► append a batch ─► trim ─► beat ─► sleep
//
// What a call answers decides how it goes on:
//
//     done          the proof of ownership counts from when the call was sent, not from its answer;
//                   one that comes too late (log_stream_options) is final
//     fenced        final: another owner has the stream
//     in doubt      claim again under the own epoch, then compare the tail: the batch is in the
//                   store, or is sent again under the new epoch
//     unavailable   again after a pause that doubles up to a second; never final
//     out of space  the same, and pushes are refused meanwhile
//     a tail below what was durable   final: the store has lost acknowledged entries
#include "log/stream_log.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

// Stops the log for good; the reason is this thread's last error.
static void stream_stop(struct stream_log *l) {
    snprintf(l->stopped, sizeof l->stopped, "%s", error_text());
    atomic_store_explicit(&l->base.stopped, true, memory_order_relaxed);
    log_notify(&l->options, &l->lock, &l->done);
}

static void stream_stop_lost(struct stream_log *l, uint64_t tail) {
    (void)stream_has_lost(l, l->stored, tail);
    stream_stop(l);
}

// ---- Calls ------------------------------------------------------------------------------------

// Notes the beginning of a call, and drops the lock.
static uint64_t store_call_begin(struct stream_log *l) {
    uint64_t now_ms = stream_now_ms(l);
    l->sent_ms = now_ms ? now_ms : 1;
    pthread_mutex_unlock(&l->lock);
    return now_ms;
}

static void store_call_end(struct stream_log *l) {
    pthread_mutex_lock(&l->lock);
    l->sent_ms = 0;
}

// The store has confirmed at `sent_ms` or later that this log owns the stream. If that comes too
// late, another node may have seen before that no owner is alive, and may claim it at any time.
static void store_call_succeeded(struct stream_log *l, uint64_t sent_ms) {
    uint64_t most_ms = l->options.stream.max_unowned_ms;
    uint64_t owned_ms = atomic_load_explicit(&l->owned_ms, memory_order_relaxed);
    if (most_ms && stream_now_ms(l) - owned_ms >= most_ms) {
        (void)error_set(MR_EBUSY,
                        "the store has not answered the owner of shard %u for so long that another "
                        "one may have taken over",
                        l->shard);
        stream_stop(l);
        return;
    }
    sent_ms = MUTANT(ownership_counts_from_the_answer) ? stream_now_ms(l) : sent_ms;
    atomic_store_explicit(&l->owned_ms, sent_ms, memory_order_relaxed);
    l->outage_ms = l->retry_at_ms = 0;
    l->retry_ms = 0;
}

static void store_call_again_later(struct stream_log *l, uint64_t sent_ms) {
    if (!l->outage_ms)
        l->outage_ms = sent_ms ? sent_ms : 1;
    snprintf(l->outage, sizeof l->outage, "%s", error_text());
    uint32_t pause = l->retry_ms ? 2 * l->retry_ms : STREAM_RETRY_MS;
    l->retry_ms = pause < STREAM_RETRY_MAX_MS ? pause : STREAM_RETRY_MAX_MS;
    l->retry_at_ms = stream_now_ms(l) + l->retry_ms;
    log_notify(&l->options, &l->lock, &l->done);
}

// The append, trim or beat was refused. Looks why: a store that has gone back refuses as well.
static void store_call_fenced(struct stream_log *l) {
    struct stream_state state;
    pthread_mutex_unlock(&l->lock);
    int result = l->appending->impl->look(l->appending, &state);
    pthread_mutex_lock(&l->lock);
    if (result == STREAM_DONE && state.tail < l->stored && state.epoch <= l->epoch) {
        stream_stop_lost(l, state.tail);
        return;
    }
    (void)error_set(MR_EBUSY,
                    "another owner has claimed the stream of shard %u; this one held epoch %" PRIu64
                    " and must not write any more",
                    l->shard, l->epoch);
    stream_stop(l);
}

// What is neither success nor doubt.
static void store_call_failed(struct stream_log *l, int result, uint64_t sent_ms) {
    switch (result) {
    case STREAM_FENCED:
        if (MUTANT(fence_ignored))
            break;
        store_call_fenced(l);
        break;
    case STREAM_UNAVAILABLE:
    case STREAM_IN_DOUBT: // of a call that can be repeated
    case MR_ENOMEM:
        store_call_again_later(l, sent_ms);
        break;
    default:
        stream_stop(l);
    }
}

// ---- Appending --------------------------------------------------------------------------------

void stream_window_shrink(struct stream_log *l) {
    while (l->batches.first < l->unsent) {
        struct memory_batch *b = ring_at(&l->batches, l->batches.first);
        if (l->window_bytes <= l->options.stream.window_bytes && b->batch.end > l->head)
            return;
        l->window_bytes -= memory_batch_held(b);
        ring_shift(&l->batches);
        memory_batch_drop(b);
    }
}

// The first batch that is not durable; NULL: there is none.
static struct memory_batch *batch_unsent(const struct stream_log *l) {
    return ring_at(&l->batches, l->unsent);
}

static void batch_is_durable(struct stream_log *l, struct memory_batch *b) {
    l->stored = l->durable = b->batch.end;
    stream_note_end(l, l->stored);
    l->unsent++;
    l->unsent_bytes -= memory_batch_size(b);
    l->window_bytes += memory_batch_held(b);
    l->in_doubt = l->full = false;
    stream_window_shrink(l);
    log_notify(&l->options, &l->lock, &l->done);
}

static void batch_has_no_room(struct stream_log *l) {
    l->full = true;
    l->append_at_ms = stream_now_ms(l) + STREAM_FULL_MS;
    log_notify(&l->options, &l->lock, &l->done);
}

static void batch_send(struct stream_log *l) {
    struct memory_batch *b = batch_unsent(l);
    stream_batch_close(l, b);
    assert(b->before == l->stored);
    uint64_t epoch = l->epoch, sent_ms = store_call_begin(l);
    int result = l->appending->impl->append(l->appending, epoch, b->before, &b->batch);
    store_call_end(l);
    switch (result) {
    case STREAM_DONE:
        store_call_succeeded(l, sent_ms);
        batch_is_durable(l, b);
        break;
    case STREAM_IN_DOUBT:
        l->in_doubt = !MUTANT(doubt_taken_for_no);
        break;
    case MR_EFULL:
        batch_has_no_room(l);
        break;
    default:
        store_call_failed(l, result, sent_ms);
    }
}

// The claim has settled what was in doubt; the tail says how.
static void doubt_settle(struct stream_log *l, const struct stream_state *state) {
    struct memory_batch *b = batch_unsent(l);
    l->epoch = state->epoch;
    if (state->tail == b->batch.end) {
        batch_is_durable(l, b);
    } else if (state->tail == l->stored) {
        l->in_doubt = false; // it never happened, and never will: it is sent again
    } else if (state->tail < l->stored) {
        stream_stop_lost(l, state->tail);
    } else {
        (void)error_set(MR_ECORRUPT,
                        "the stream of shard %u ends at %" PRIu64 ", which its owner did not write",
                        l->shard, state->tail);
        stream_stop(l);
    }
}

static void doubt_resolve(struct stream_log *l) {
    struct stream_state state;
    uint64_t epoch = l->epoch, sent_ms = store_call_begin(l);
    int result = l->appending->impl->claim(l->appending, epoch, &state);
    store_call_end(l);
    if (result == STREAM_DONE) {
        store_call_succeeded(l, sent_ms);
        doubt_settle(l, &state);
    } else if (result == MR_EFULL) {
        batch_has_no_room(l);
    } else {
        store_call_failed(l, result, sent_ms);
    }
}

// ---- Trimming and beats -----------------------------------------------------------------------

static void stream_trim(struct stream_log *l) {
    uint64_t epoch = l->epoch, upto = l->trim_to, sent_ms = store_call_begin(l);
    int result = l->appending->impl->trim(l->appending, epoch, upto);
    store_call_end(l);
    if (result != STREAM_DONE) {
        store_call_failed(l, result == MR_EFULL ? STREAM_UNAVAILABLE : result, sent_ms);
        return;
    }
    store_call_succeeded(l, sent_ms);
    l->trimmed = upto;
    l->append_at_ms = 0; // there may be space now
}

static void stream_beat(struct stream_log *l) {
    uint64_t epoch = l->epoch, sent_ms = store_call_begin(l);
    int result = l->appending->impl->beat(l->appending, epoch);
    store_call_end(l);
    if (result == STREAM_DONE)
        store_call_succeeded(l, sent_ms);
    else
        store_call_failed(l, result == MR_EFULL ? STREAM_UNAVAILABLE : result, sent_ms);
}

// ---- The order of work ------------------------------------------------------------------------

static bool unsent_is_due(const struct stream_log *l) {
    const struct memory_batch *b = batch_unsent(l);
    return b && (b->closed || l->flush_to > b->batch.at || l->closing);
}

static bool trim_is_due(const struct stream_log *l) {
    return l->trim_to > l->trimmed &&
           (l->durable >= l->trim_after || MUTANT(stream_trimmed_before_copies));
}

static uint64_t beat_at_ms(const struct stream_log *l) {
    return atomic_load_explicit(&l->owned_ms, memory_order_relaxed) + l->options.stream.beat_ms;
}

bool stream_writer_step(struct stream_log *l) {
    uint64_t now_ms = stream_now_ms(l);
    if (l->stopped[0] || now_ms < l->retry_at_ms)
        return false;
    bool may_append = now_ms >= l->append_at_ms;
    if (l->in_doubt && !may_append)
        return false; // a claim in doubt may have changed the epoch: first that is resolved
    if (l->in_doubt)
        doubt_resolve(l);
    else if (may_append && unsent_is_due(l))
        batch_send(l);
    else if (trim_is_due(l))
        stream_trim(l);
    else if (now_ms >= beat_at_ms(l))
        stream_beat(l);
    else
        return false;
    return true;
}

uint64_t stream_writer_next_ms(const struct stream_log *l) {
    if (l->stopped[0])
        return UINT64_MAX;
    uint64_t at_ms = l->in_doubt ? UINT64_MAX : beat_at_ms(l);
    if (unsent_is_due(l) && l->append_at_ms < at_ms)
        at_ms = l->append_at_ms;
    if (!l->in_doubt && trim_is_due(l))
        at_ms = 0;
    return at_ms > l->retry_at_ms ? at_ms : l->retry_at_ms;
}

// Whether there is nothing left to do at closing; a stopped log has nothing.
static bool writer_is_finished(const struct stream_log *l) {
    bool idle = !batch_unsent(l) && l->trim_to <= l->trimmed;
    return l->ended || l->stopped[0] || idle;
}

void stream_release(struct stream_log *l) {
    bool settled = !batch_unsent(l) && !l->outage_ms && !l->stopped[0];
    if (!settled || l->options.read_only)
        return;
    uint64_t epoch = l->epoch;
    pthread_mutex_unlock(&l->lock);
    (void)l->appending->impl->release(l->appending, epoch);
    pthread_mutex_lock(&l->lock);
}

void *stream_writer_main(void *log) {
    struct stream_log *l = log;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        if (l->closing && writer_is_finished(l))
            break;
        if (!stream_writer_step(l))
            cond_wait_until(&l->work, &l->lock, stream_writer_next_ms(l));
    }
    stream_release(l);
    l->ended = true;
    pthread_cond_broadcast(&l->done);
    pthread_mutex_unlock(&l->lock);
    return NULL;
}
