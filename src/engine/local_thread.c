// The engine's thread: timers, cleaning, and everything that is told by a callback.
//
// It sleeps until the next thing is due and is woken earlier only when that came nearer or there is
// something to tell. What it tells has been made durable first, like every other answer.
#include "engine/spread.h"

// How long to rest when driving the shard failed, for want of memory say.
enum { REST_MS = 100 };

void local_wake_thread(struct local *e) {
    pthread_cond_signal(e->thread_sleeps_on);
    e->thread_sleeps_on = NULL; // once is enough
}

// Returns how many.
static uint32_t list_splice(struct list *from, struct list *to) {
    uint32_t count = 0;
    for (struct list *l; (l = list_first(from)) != NULL; count++) {
        list_remove(l);
        list_append(to, l);
    }
    return count;
}

static bool has_callbacks(const struct local *e) {
    return !list_empty(&e->calls) || !list_empty(&e->notices);
}

// Of a spread, the callbacks are the teller's.
static bool has_to_tell(const struct local *e) {
    return !list_empty(&e->ringing) || (!e->spread && has_callbacks(e));
}

static void tell_calls(struct local *e, struct list *calls, int err) {
    for (struct list *l; (l = list_first(calls)) != NULL;) {
        list_remove(l);
        pthread_mutex_unlock(&e->lock);
        local_tell_call(e, list_entry(l, struct local_call, of_calls), err);
        pthread_mutex_lock(&e->lock);
        e->telling_calls--;
    }
    pthread_cond_broadcast(&e->calls_told);
}

static void tell_notices(struct local *e, struct list *notices) {
    for (struct list *l; (l = list_first(notices)) != NULL;)
        local_tell_stop(e, list_entry(l, struct mr_job, of_notices));
}

static void ring(struct list *ringing) {
    for (struct list *l; (l = list_first(ringing)) != NULL;) {
        struct local_puller *p = list_entry(l, struct local_puller, of_ringing);
        list_remove(l);
        p->arrived_durable = true;
        p->options.ring(p->options.arg);
    }
}

// With the lock, which it gives up: waits until everything told so far may be shown.
static int show_told(struct local *e) {
    uint64_t at = e->position;
    pthread_mutex_unlock(&e->lock);
    int err = local_show(e, at, 0);
    pthread_mutex_lock(&e->lock);
    return err;
}

static void tell_ringing(struct local *e) {
    struct list ringing;
    list_init(&ringing);
    list_splice(&e->ringing, &ringing);
    (void)show_told(e); // whoever is rung hears of a failure
    ring(&ringing);
}

void local_tell_callbacks(struct local *e) {
    struct list calls, notices;
    list_init(&calls);
    list_init(&notices);
    e->telling_calls += list_splice(&e->calls, &calls);
    list_splice(&e->notices, &notices);
    int err = show_told(e);
    if (err >= 0 && e->spread && e->stopped) // by another shard's log
        err = spread_say_stopped(e->spread);
    tell_notices(e, &notices);
    tell_calls(e, &calls, err);
}

static void tell_all(struct local *e) {
    if (!list_empty(&e->ringing))
        tell_ringing(e);
    if (!e->spread && has_callbacks(e))
        local_tell_callbacks(e);
}

// Drives the shard if it wants to be; returns how long to sleep otherwise: -1 for ever.
static int64_t drive(struct local *e) {
    int64_t due_ms = e->stopped ? -1 : shard_next_ms(e->shard);
    if (due_ms != 0)
        return due_ms;
    bool more;
    pthread_mutex_unlock(&e->lock); // lets others in between the steps of cleaning
    int err = local_enter(e);
    if (err >= 0)
        err = shard_clean(e->shard, &more);
    local_end_keep(e);
    return err < 0 ? REST_MS : 0;
}

void *local_thread(void *engine) {
    struct local *e = engine;
    pthread_mutex_lock(&e->lock);
    while (!e->closing) {
        if (has_to_tell(e))
            tell_all(e);
        if (e->spread && spread_has_duty(e))
            spread_do_duty(e);
        int64_t sleep_ms = drive(e);
        if (sleep_ms != 0 && !e->closing && !has_to_tell(e) && !(e->spread && spread_has_duty(e)))
            local_sleep(e, &e->due, local_until(sleep_ms));
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}
