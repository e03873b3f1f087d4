// Turns and waits: the lock, which threads are woken at the end of a turn, and how they sleep.
//
// A waiter has a condition of its own, so that exactly those wake that have an answer. It is made
// only when the thread really goes to sleep.
#include "base/clock.h"
#include "base/errors.h"
#include "engine/local.h"

#include <assert.h>

// How far the log grows before the shard checks whether to clean it.
enum { ASK_EVERY_BYTES = 1 << 20 };

// ---- A log that has stopped -------------------------------------------------------------------

static void note_stop(struct local_shard *s) {
    struct local_engine *e = s->engine;
    struct log_state log;
    shard_look(s->shard, &log);
    pthread_mutex_lock(&e->lock);
    if (log.stopped[0] && !e->why_stopped[0])
        memcpy(e->why_stopped, log.stopped, sizeof e->why_stopped);
    pthread_mutex_unlock(&e->lock);
    atomic_store(&e->stopped, true);
}

int local_error_stopped(struct local_engine *e) {
    pthread_mutex_lock(&e->lock);
    int err = error_set(MR_ESTOPPED, "%s", e->why_stopped);
    pthread_mutex_unlock(&e->lock);
    return err;
}

void local_stop_waiters(struct local_shard *s) {
    s->stopped = true;
    note_stop(s);
    for (struct list *l; (l = list_first(&s->started)) != NULL;) {
        struct local_call *c = list_entry(l, struct local_call, of_calls);
        list_remove(l);
        list_append(&s->calls, l);
        core_await_leave(s->core, &c->caller);
    }
    for (struct list *l = s->waiters.next; l != &s->waiters; l = l->next)
        local_cancel_wait(list_entry(l, struct waiter, of_shard), MR_ESTOPPED);
    for (struct list *l = s->pullers.next; l != &s->pullers; l = l->next) {
        const struct puller_options *o =
            &list_entry(l, struct shard_puller, of_shard)->puller->options;
        if (o->ring)
            o->ring(o->arg);
    }
    if (!list_empty(&s->calls))
        local_call_notifier(s);
    local_wake_thread(s);
}

// ---- The inbox --------------------------------------------------------------------------------

// MR_ENOMEM: the rest is delivered later.
static int deliver_exchanged(struct local_shard *s) {
    struct accepted_push p;
    int err = 0;
    while (err >= 0 && push_inbox_first(&s->inbox, &p)) {
        struct push push = { .stage = p.stage, .body = p.body, .job.key = p.key, .promised = true };
        struct pushed pushed;
        err = core_push(s->core, &push, &pushed);
        if (err >= 0)
            push_inbox_delivered(&s->inbox, &p);
    }
    assert(err >= 0 || err == MR_ENOMEM);
    return err;
}

static void deliver_pushes(void *shard) {
    struct local_shard *s = shard;
    int err = deliver_exchanged(s); // what could not be delivered in an earlier turn
    if (err < 0)
        return;
    push_inbox_exchange(&s->inbox);
    (void)deliver_exchanged(s);
}

// The permit holds until the end of the next turn, which begins by delivering what is in the inbox
// then; meanwhile as many may be accepted again.
static bool may_accept(struct local_shard *s, mr_bytes stage) {
    return !push_inbox_has_rest(&s->inbox) && core_promises_room(s->core, stage, 2 * INBOX_JOBS);
}

// A stage that has no permit any more, because a take waits there, say, must have all its jobs.
static void renew_permits(struct local_shard *s) {
    bool taken_away;
    do {
        taken_away = false;
        for (uint32_t i = 0; i < INBOX_STAGES; i++) {
            mr_bytes stage = push_inbox_permit_stage(&s->inbox, i);
            if (stage.size && push_inbox_permit_set(&s->inbox, i, may_accept(s, stage)))
                taken_away = true;
        }
        if (taken_away)
            deliver_pushes(s);
    } while (taken_away);
}

void local_accept_stage(struct local_shard *s, mr_bytes stage) {
    if (s->in_memory && !push_inbox_knows(&s->inbox, stage) && may_accept(s, stage))
        push_inbox_permit_add(&s->inbox, stage);
}

// ---- Turns ------------------------------------------------------------------------------------

static int local_begin_turn(struct local_shard *s) {
    return push_inbox_is_empty(&s->inbox) ? shard_begin(s->shard)
                                          : shard_begin_with(s->shard, deliver_pushes, s);
}

int local_enter(struct local_shard *s) {
    pthread_mutex_lock(&s->lock);
    int err = atomic_load_explicit(&s->engine->stopped, memory_order_relaxed)
                  ? local_error_stopped(s->engine)
                  : local_begin_turn(s);
    if (err == MR_ESTOPPED && !s->stopped)
        local_stop_waiters(s);
    return err;
}

int local_begin(struct local_shard *s) {
    int err = local_enter(s);
    if (err >= 0 && push_inbox_has_rest(&s->inbox)) {
        local_end_keep(s);
        err = error_set(MR_ENOMEM, "no memory for jobs that were pushed before");
    }
    if (err < 0)
        pthread_mutex_unlock(&s->lock);
    return err;
}

static void wake_notified(struct local_shard *s) {
    for (struct list *l; (l = list_first(&s->notified)) != NULL;) {
        struct waiter *w = list_entry(l, struct waiter, of_notified);
        list_remove(l);
        w->at = s->position;
        w->notified = true;
        if (w->shared)
            shared_take_answer(w->shared, false);
        else if (w->asleep)
            pthread_cond_signal(&w->cond);
    }
}

// A take was claimed for a job that could then not be started: it tries again.
static void give_up_claim(struct local_shard *s) {
    taker_try_again(s->claimed);
    s->claimed = NULL;
}

static bool log_wants_cleaning(struct local_shard *s) {
    if (s->position - s->asked_at < ASK_EVERY_BYTES)
        return false;
    s->asked_at = s->position;
    return shard_next_ms(s->shard) == 0;
}

static bool has_message(struct local_shard *s) {
    struct peers *peers = shard_peers(s->shard);
    uint64_t at;
    return peers && peers_want(peers, &at);
}

uint64_t local_due_ms(struct local_shard *s) {
    uint64_t due_ms = core_next(s->core), tick_ms = ticks_due_ms(shard_ticks(s->shard));
    return tick_ms < due_ms ? tick_ms : due_ms;
}

static bool thread_is_wanted(struct local_shard *s) {
    return s->thread_sleeps &&
           (local_due_ms(s) < s->thread_wakes_ms || !list_empty(&s->ringing) || has_message(s) ||
            log_wants_cleaning(s) || push_inbox_has_rest(&s->inbox));
}

static void local_end_turn(struct local_shard *s, enum flush_by by) {
    if (!list_empty(&s->empties) && !push_inbox_is_empty(&s->inbox))
        deliver_pushes(s); // no stage is empty while one of its jobs is in the inbox
    if (s->in_memory)
        renew_permits(s);
    s->position = shard_end_by(s->shard, by);
    if (!list_empty(&s->empties))
        local_check_empties(s);
    if (!list_empty(&s->notified))
        wake_notified(s);
    if (s->claimed)
        give_up_claim(s);
    if (!list_empty(&s->calls) || !list_empty(&s->stops))
        local_call_notifier(s);
    if (thread_is_wanted(s))
        local_wake_thread(s);
}

void local_end_keep(struct local_shard *s) {
    local_end_turn(s, FLUSH_BY_WRITER);
}

static uint64_t local_end_by(struct local_shard *s, enum flush_by by) {
    local_end_turn(s, by);
    uint64_t at = s->position;
    pthread_mutex_unlock(&s->lock);
    return at;
}

uint64_t local_end(struct local_shard *s) {
    return local_end_by(s, FLUSH_BY_WRITER);
}

uint64_t local_end_to_wait(struct local_shard *s) {
    return local_end_by(s, FLUSH_BY_WAITER);
}

int local_wait_durable(struct local_shard *s, uint64_t at, int err) {
    int waited = shard_wait(s->shard, at);
    if (waited >= 0)
        return err;
    pthread_mutex_lock(&s->lock);
    if (!s->stopped)
        local_stop_waiters(s);
    pthread_mutex_unlock(&s->lock);
    return waited;
}

int local_end_durable(struct local_shard *s, int err) {
    return local_wait_durable(s, local_end_to_wait(s), err);
}

// ---- Waits ------------------------------------------------------------------------------------

uint64_t local_until(int64_t wait_ms) {
    if (wait_ms < 0)
        return UINT64_MAX;
    uint64_t now = monotonic_ms(); // this millisecond has begun already: one more, so that it is
                                   // never too short
    return (uint64_t)wait_ms < UINT64_MAX - 1 - now ? now + (uint64_t)wait_ms + 1 : UINT64_MAX;
}

void local_notify(struct local_shard *s, struct waiter *w) {
    if (list_empty(&w->of_notified))
        list_append(&s->notified, &w->of_notified);
}

void local_cancel_wait(struct waiter *w, int err) {
    w->err = err;
    if (w->shared)
        shared_take_cancel(w->shared, err);
    else if (w->asleep)
        pthread_cond_signal(&w->cond);
}

static void waiter_sleep(struct local_shard *s, struct waiter *w, uint64_t until_ms) {
    cond_init(&w->cond);
    w->asleep = true;
    list_append(&s->waiters, &w->of_shard);
    while (!w->notified && !w->err && monotonic_ms() < until_ms)
        cond_wait_until(&w->cond, &s->lock, until_ms);
    list_remove(&w->of_shard);
    w->asleep = false;
    pthread_cond_destroy(&w->cond);
}

bool local_wait(struct local_shard *s, struct waiter *w, uint64_t until_ms) {
    if (s->stopped)
        w->err = MR_ESTOPPED;
    if (!w->notified && !w->err)
        waiter_sleep(s, w, until_ms);
    if (!w->notified) {
        int err = local_begin_turn(s); // time moves on, which may be what it waited for
        if (!w->err)
            w->err = err < 0 ? err : MR_EAGAIN;
        if (list_empty(&w->of_notified))
            return false;
        local_end_keep(s);
    }
    pthread_mutex_unlock(&s->lock);
    return true;
}
