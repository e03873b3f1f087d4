// The threads of an engine. A shard's thread drives timers and cleaning, passes messages to other
// shards, and rings the loops of pullers. The notifier thread calls back, for all shards, so that a
// shard's thread never waits for a program.
//
// A shard's thread sleeps until the next thing is due and is woken earlier only when that came
// nearer or there is something to do. What a callback reports is durable before it runs, like every
// other answer.
#include "engine/local.h"

#include "base/clock.h"

// How long to wait when driving the shard, or delivering a message or what is in the inbox, failed,
// for want of memory say.
enum { REST_MS = 100 };

void local_wake_thread(struct local_shard *s) {
    if (s->thread_sleeps)
        pthread_cond_signal(&s->due);
    s->thread_sleeps = false; // once is enough
}

// With the lock, which it gives up: waits until everything so far is durable.
static int wait_all_durable(struct local_shard *s) {
    uint64_t at = s->position;
    pthread_mutex_unlock(&s->lock);
    int err = local_wait_durable(s, at, 0);
    pthread_mutex_lock(&s->lock);
    return err;
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

// ---- The notifier thread ----------------------------------------------------------------------

void local_call_notifier(struct local_shard *s) {
    struct local_engine *e = s->engine;
    pthread_mutex_lock(&e->lock);
    e->to_notify |= UINT64_C(1) << s->index;
    pthread_cond_signal(&e->notify);
    pthread_mutex_unlock(&e->lock);
}

static void call_ends(struct local_shard *s, struct list *calls, int err) {
    for (struct list *l; (l = list_first(calls)) != NULL;) {
        list_remove(l);
        pthread_mutex_unlock(&s->lock);
        local_call_end(s, list_entry(l, struct local_call, of_calls), err);
        pthread_mutex_lock(&s->lock);
        s->calling--;
    }
    pthread_cond_broadcast(&s->calls_done);
}

static void call_stops(struct local_shard *s, struct list *stops) {
    for (struct list *l; (l = list_first(stops)) != NULL;)
        local_stop_job(s, list_entry(l, struct mr_job, of_stops));
}

static void call_back(struct local_shard *s) {
    struct list calls, stops;
    list_init(&calls);
    list_init(&stops);
    pthread_mutex_lock(&s->lock);
    s->calling += list_splice(&s->calls, &calls);
    list_splice(&s->stops, &stops);
    int err = wait_all_durable(s);
    if (err >= 0 && s->stopped) // by another shard's log
        err = local_error_stopped(s->engine);
    call_stops(s, &stops);
    call_ends(s, &calls, err);
    pthread_mutex_unlock(&s->lock);
}

void *local_notifier_thread(void *engine) {
    struct local_engine *e = engine;
    pthread_mutex_lock(&e->lock);
    while (!e->closing) {
        if (!e->to_notify) {
            pthread_cond_wait(&e->notify, &e->lock);
            continue;
        }
        uint32_t index = (uint32_t)__builtin_ctzll(e->to_notify);
        e->to_notify &= e->to_notify - 1;
        pthread_mutex_unlock(&e->lock);
        call_back(e->shards[index]);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

// ---- A shard's thread -------------------------------------------------------------------------

static void sleep_until(struct local_shard *s, uint64_t until_ms) {
    s->thread_wakes_ms = local_due_ms(s);
    s->thread_sleeps = true;
    cond_wait_until(&s->due, &s->lock, until_ms);
    s->thread_sleeps = false;
}

static void ring_pullers(struct local_shard *s) {
    struct list ringing;
    list_init(&ringing);
    list_splice(&s->ringing, &ringing);
    (void)wait_all_durable(s); // the loop that is rung gets the failure
    for (struct list *l; (l = list_first(&ringing)) != NULL;) {
        struct shard_puller *p = list_entry(l, struct shard_puller, of_ringing);
        list_remove(l);
        p->arrived_durable = true;
        p->puller->options.ring(p->puller->options.arg);
    }
}

static void stop_others(struct local_shard *s) {
    struct local_engine *e = s->engine;
    s->stop_passed_on = true;
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < e->count; i++) {
        struct local_shard *other = e->shards[i];
        if (other == s)
            continue;
        pthread_mutex_lock(&other->lock);
        if (!other->stopped)
            local_stop_waiters(other);
        pthread_mutex_unlock(&other->lock);
    }
    pthread_mutex_lock(&s->lock);
}

static int deliver_message(struct local_shard *s) {
    struct local_shard *to = s->engine->shards[s->message.to];
    pthread_mutex_unlock(&s->lock);
    int err = local_enter(to);
    if (err >= 0)
        err = peers_receive(shard_peers(to->shard), &s->message);
    local_end(to);
    pthread_mutex_lock(&s->lock);
    return err;
}

// Passes all messages on. One that cannot be received now is tried again a while later; for those
// that are not durable yet it waits.
static void pass_messages(struct local_shard *s) {
    struct peers *peers = shard_peers(s->shard);
    uint64_t at;
    int err = 0;
    while (err >= 0 && !s->closing && !s->stopped) {
        if (!s->has_message)
            s->has_message = peers_next(peers, true, &s->message);
        if (s->has_message) {
            err = deliver_message(s);
            s->has_message = err < 0 && err != MR_ESTOPPED;
        } else if (peers_want(peers, &at)) {
            err = wait_all_durable(s);
        } else {
            break;
        }
    }
    if (err < 0 && !s->closing && !s->stopped)
        sleep_until(s, local_until(REST_MS));
}

static bool has_messages(struct local_shard *s) {
    uint64_t at;
    struct peers *peers = shard_peers(s->shard);
    return peers && !s->stopped && (s->has_message || peers_want(peers, &at));
}

static bool has_work(struct local_shard *s) {
    return !list_empty(&s->ringing) || (s->stopped && !s->stop_passed_on) || has_messages(s);
}

static void work_off(struct local_shard *s) {
    if (!list_empty(&s->ringing))
        ring_pullers(s);
    if (s->stopped && !s->stop_passed_on)
        stop_others(s);
    if (has_messages(s))
        pass_messages(s);
}

// Drives the shard if that is due; returns how long to sleep otherwise: -1 for ever.
static int64_t drive(struct local_shard *s) {
    int64_t due_ms = s->stopped ? -1 : shard_next_ms(s->shard);
    if (due_ms != 0 && (s->stopped || !push_inbox_has_rest(&s->inbox)))
        return due_ms;
    bool more;
    pthread_mutex_unlock(&s->lock); // lets others in between the steps of cleaning
    int err = local_enter(s);
    if (err >= 0)
        err = shard_clean(s->shard, &more);
    local_end_keep(s);
    return err < 0 || push_inbox_has_rest(&s->inbox) ? REST_MS : 0;
}

void *local_shard_thread(void *shard) {
    struct local_shard *s = shard;
    pthread_mutex_lock(&s->lock);
    while (!s->closing) {
        work_off(s);
        int64_t sleep_ms = drive(s);
        if (sleep_ms != 0 && !s->closing && !has_work(s))
            sleep_until(s, local_until(sleep_ms));
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
