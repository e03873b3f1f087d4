// Turns and waits: the lock, who is told at the end of a turn, and how threads sleep.
//
// A waiter has a condition of its own, so that exactly those wake that were told something. It is
// made only when the thread really goes to sleep.
#include "base/clock.h"
#include "engine/spread.h"

// How far the log grows before it is asked whether it wants to be cleaned.
enum { ASK_EVERY_BYTES = 1 << 20 };

// ---- Turns ------------------------------------------------------------------------------------

// So do started calls, and the other shards.
void local_stop_waiters(struct local *e) {
    e->stopped = true;
    if (e->spread)
        spread_note_stop(e->spread, e->shard);
    for (struct list *l; (l = list_first(&e->started)) != NULL;) {
        struct local_call *c = list_entry(l, struct local_call, of_calls);
        list_remove(l);
        list_append(&e->calls, l);
        core_await_leave(e->core, &c->caller);
    }
    for (struct list *l = e->waiters.next; l != &e->waiters; l = l->next)
        local_break_off(list_entry(l, struct waiter, of_engine), MR_ESTOPPED);
    for (struct list *l = e->pullers.next; l != &e->pullers; l = l->next) {
        struct local_puller *p = list_entry(l, struct local_puller, of_engine);
        if (p->options.ring)
            p->options.ring(p->options.arg);
    }
    if (e->spread && !list_empty(&e->calls))
        spread_call_teller(e->spread, e->index);
    if (e->thread_sleeps_on)
        local_wake_thread(e);
}

int local_enter(struct local *e) {
    pthread_mutex_lock(&e->lock);
    int err = e->spread && spread_has_stopped(e->spread) ? spread_say_stopped(e->spread)
                                                         : shard_begin(e->shard);
    if (err == MR_ESTOPPED && !e->stopped)
        local_stop_waiters(e);
    return err;
}

int local_begin(struct local *e) {
    int err = local_enter(e);
    if (err < 0)
        pthread_mutex_unlock(&e->lock);
    return err;
}

static void tell_waiters(struct local *e) {
    for (struct list *l; (l = list_first(&e->told)) != NULL;) {
        struct waiter *w = list_entry(l, struct waiter, of_told);
        list_remove(l);
        w->at = e->position;
        w->told = true;
        if (w->ask)
            ask_tell(w->ask, false);
        else if (w->asleep)
            pthread_cond_signal(&w->cond);
    }
}

// It was claimed for work that could then not be started.
static void give_up_claim(struct local *e) {
    local_ask_again(e->claimed);
    e->claimed = NULL;
}

static bool log_wants_cleaning(struct local *e) {
    if (e->position - e->asked_at < ASK_EVERY_BYTES)
        return false;
    e->asked_at = e->position;
    return shard_next_ms(e->shard) == 0;
}

static bool thread_is_wanted(struct local *e) {
    if (!e->thread_sleeps_on)
        return false;
    bool callbacks = !e->spread && (!list_empty(&e->calls) || !list_empty(&e->notices));
    return core_next(e->core) < e->thread_wakes_ms || callbacks || !list_empty(&e->ringing) ||
           e->links_due || e->notes.size || log_wants_cleaning(e);
}

void local_end_keep(struct local *e) {
    e->position = shard_end(e->shard);
    if (!list_empty(&e->empties))
        local_check_empties(e);
    if (!list_empty(&e->told))
        tell_waiters(e);
    if (e->claimed)
        give_up_claim(e);
    if (e->spread && (!list_empty(&e->calls) || !list_empty(&e->notices)))
        spread_call_teller(e->spread, e->index);
    if (thread_is_wanted(e))
        local_wake_thread(e);
}

uint64_t local_end(struct local *e) {
    local_end_keep(e);
    uint64_t at = e->position;
    pthread_mutex_unlock(&e->lock);
    return at;
}

// ---- What other shards are told ---------------------------------------------------------------

static int note(struct local *e, struct shard_note *n, mr_bytes stage) {
    n->stage_size = (uint32_t)stage.size;
    memcpy(n->stage, stage.data, stage.size);
    return buffer_append(&e->notes, n, sizeof *n);
}

int event_edge(void *owner, mr_bytes stage, mr_bytes downstream) {
    struct shard_note n = { .is_edge = true, .downstream_size = (uint32_t)downstream.size };
    memcpy(n.downstream, downstream.data, downstream.size);
    return note(owner, &n, stage);
}

int event_over(void *owner, mr_bytes stage, bool over, uint64_t high_mark) {
    struct shard_note n = { .over = over, .high_mark = high_mark };
    return note(owner, &n, stage);
}

int local_show(struct local *e, uint64_t at, int err) {
    int waited = shard_wait(e->shard, at);
    if (waited >= 0)
        return err;
    pthread_mutex_lock(&e->lock);
    if (!e->stopped)
        local_stop_waiters(e);
    pthread_mutex_unlock(&e->lock);
    return waited;
}

int local_end_and_show(struct local *e, int err) {
    return local_show(e, local_end(e), err);
}

// ---- Waits ------------------------------------------------------------------------------------

uint64_t local_until(int64_t wait_ms) {
    if (wait_ms < 0)
        return UINT64_MAX;
    uint64_t now = monotonic_ms(); // has begun already: one more, so that it is never too short
    return (uint64_t)wait_ms < UINT64_MAX - 1 - now ? now + (uint64_t)wait_ms + 1 : UINT64_MAX;
}

void local_tell(struct local *e, struct waiter *w) {
    if (list_empty(&w->of_told))
        list_append(&e->told, &w->of_told);
}

void local_break_off(struct waiter *w, int err) {
    w->err = err;
    if (w->ask)
        ask_break_off(w->ask, err);
    else if (w->asleep)
        pthread_cond_signal(&w->cond);
}

// A callback that waits keeps the engine's thread; so that thread looks after the timers from here.
static void thread_waits(struct local *e, pthread_cond_t *cond, uint64_t until_ms) {
    int64_t due_ms = e->stopped ? -1 : shard_next_ms(e->shard);
    if (due_ms == 0 && shard_begin(e->shard) >= 0) {
        local_end_keep(e);
        return;
    }
    uint64_t due = due_ms < 0 ? UINT64_MAX : local_until(due_ms ? due_ms : 1);
    local_sleep(e, cond, due < until_ms ? due : until_ms);
}

void local_sleep(struct local *e, pthread_cond_t *cond, uint64_t until_ms) {
    bool is_thread = pthread_equal(pthread_self(), e->thread);
    if (is_thread) {
        e->thread_wakes_ms = core_next(e->core);
        e->thread_sleeps_on = cond;
    }
    cond_wait_until(cond, &e->lock, until_ms);
    if (is_thread)
        e->thread_sleeps_on = NULL;
}

static void waiter_sleep(struct local *e, struct waiter *w, uint64_t until_ms) {
    cond_init(&w->cond);
    w->asleep = true;
    list_append(&e->waiters, &w->of_engine);
    bool is_thread = pthread_equal(pthread_self(), e->thread);
    while (!w->told && !w->err && monotonic_ms() < until_ms) {
        if (is_thread)
            thread_waits(e, &w->cond, until_ms);
        else
            local_sleep(e, &w->cond, until_ms);
    }
    list_remove(&w->of_engine);
    w->asleep = false;
    pthread_cond_destroy(&w->cond);
}

bool local_wait(struct local *e, struct waiter *w, uint64_t until_ms) {
    if (e->stopped)
        w->err = MR_ESTOPPED;
    if (!w->told && !w->err)
        waiter_sleep(e, w, until_ms);
    if (!w->told) {
        int err = shard_begin(e->shard); // time moves on, which may be what it waited for
        if (!w->err)
            w->err = err < 0 ? err : MR_EAGAIN;
        if (list_empty(&w->of_told))
            return false;
        local_end_keep(e);
    }
    pthread_mutex_unlock(&e->lock);
    return true;
}
