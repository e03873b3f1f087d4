// Pullers: taking jobs, waiting for them, and hearing that they are not wanted any more.
//
// Two kinds of waiting: a thread sleeps in its take; or, with `ring`, the puller stays asked for
// one take and its loop is rung when that has been granted.
#include "base/errors.h"
#include "base/mem.h"
#include "engine/local.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

// ---- Grants -----------------------------------------------------------------------------------

static struct local_taker *taker_of(struct taker *taker) {
    return list_entry(taker, struct local_taker, taker);
}

void local_ask_again(struct local_taker *t) {
    const struct puller_options *o = &t->puller->options;
    if (!o->ring) {
        ask_tell(t->waiter.ask, true);
        return;
    }
    atomic_store(&t->waiter.ask->claim, ASK_OVER);
    o->ring(o->arg);
}

// One that waits at other shards too is ours only if none of them was faster; and if what it was
// claimed for is not granted (for want of memory), it has to ask again: see local_end_keep.
static bool claim_ask(struct local *e, struct local_taker *t) {
    if (!ask_claim(t->waiter.ask, e->index))
        return false;
    if (e->claimed)
        local_ask_again(e->claimed);
    e->claimed = t;
    return true;
}

bool event_claim(void *owner, struct taker *taker) {
    struct local_taker *t = taker_of(taker);
    if (t->waiter.err || t->puller->interrupted)
        return false;
    return !t->waiter.ask || claim_ask(owner, t);
}

void event_granted(void *owner, struct taker *taker, const struct grant *grants, size_t count) {
    struct local *e = owner;
    struct local_taker *t = taker_of(taker);
    struct local_puller *p = t->puller;
    t->taken = hands_fill(e, p, &t->spare, grants, count);
    e->claimed = NULL;
    if (!p->options.ring) {
        local_tell(e, &t->waiter);
        return;
    }
    p->asking = false;
    if (list_empty(&p->of_ringing))
        list_append(&e->ringing, &p->of_ringing);
}

// Room for the answer and for the jobs, before anything is leased.
static int taker_prepare(struct local *e, struct local_taker *t, uint32_t count) {
    if (e->grant_room < count) {
        struct grant *grants = mem_resize(e->grants, count * sizeof *grants);
        if (!grants)
            return error_set(MR_ENOMEM, "no memory to take %" PRIu32 " jobs", count);
        e->grants = grants;
        e->grant_room = count;
    }
    if (!t->spare)
        t->spare = spares_get(e, count);
    return t->spare ? 0 : MR_ENOMEM;
}

static void taker_finish(struct local *e, struct local_taker *t) {
    spares_put(e, t->spare);
    t->spare = NULL;
}

static int take_now(struct local *e, struct local_taker *t, const struct pull *pull, bool stay) {
    int err = taker_prepare(e, t, pull->batch);
    if (err < 0)
        return err;
    struct take take = { .stages = pull->stages,
                         .stage_count = pull->stage_count,
                         .count = pull->batch,
                         .batch = pull->batch,
                         .lease_ms = pull->lease_ms,
                         .in_process = true,
                         .conn = &t->puller->conn,
                         .taker = stay ? &t->taker : NULL };
    size_t count = 0;
    err = core_take(e->core, &take, e->grants, &count);
    if (err >= 0)
        t->taken = hands_fill(e, t->puller, &t->spare, e->grants, count);
    return err;
}

// ---- Giving back ------------------------------------------------------------------------------

// What was taken cannot be handed out.
static int give_back(struct mr_job *jobs, int err) {
    char why[HAND_REASON + 1];
    snprintf(why, sizeof why, "%s", error_text());
    for (struct mr_job *job = jobs, *next; job; job = next) {
        next = job->next;
        atomic_store(&job->used_up, true);
        local_release(job, FINISH_UNPIN);
    }
    return error_set(err, "%s", why);
}

// Hands out what can be read. What is damaged costs its own job only; anything else may be the
// matter with those behind it as well, which go back as they were.
static int load_all(struct local *e, struct mr_job *jobs, mr_job **out) {
    int err = 0;
    for (struct mr_job **at = &jobs; *at;) {
        int read = hands_load(e, *at);
        if (read == MR_ENOMEM)
            return give_back(jobs, read);
        err = read < 0 ? read : err;
        if (read < 0)
            *at = hands_leave_out(e, *at, read);
        else
            at = &(*at)->next;
        if (read < 0 && read != MR_ECORRUPT) {
            give_back(*at, read);
            *at = NULL;
        }
    }
    if (!jobs)
        return err;
    *out = jobs;
    return 0;
}

static int hand_out(struct local *e, uint64_t at, struct mr_job *jobs, mr_job **out) {
    int err = local_show(e, at, 0);
    return err < 0 ? give_back(jobs, err) : load_all(e, jobs, out);
}

// ---- Taking -----------------------------------------------------------------------------------

int take_nothing_came(const struct pull *pull) {
    return error_set(MR_EAGAIN, "no job of stage '%.*s' came within %" PRId64 " ms",
                     (int)pull->stages[0].size, (const char *)pull->stages[0].data, pull->wait_ms);
}

// In a turn that found nothing: waits, and gives the lock up.
static int take_waiting(struct local *e, struct local_taker *t, const struct pull *pull,
                        mr_job **out) {
    struct local_puller *p = t->puller;
    local_end_keep(e);
    list_append(&p->waiters, &t->waiter.of_puller);
    bool told = local_wait(e, &t->waiter, local_until(pull->wait_ms));
    if (told)
        pthread_mutex_lock(&e->lock);
    else
        core_take_leave(e->core, &t->taker);
    list_remove(&t->waiter.of_puller);
    taker_finish(e, t);
    if (told) {
        pthread_mutex_unlock(&e->lock);
        return hand_out(e, t->waiter.at, t->taken, out);
    }
    local_end(e);
    if (t->waiter.err == MR_EAGAIN)
        return take_nothing_came(pull);
    return t->waiter.err;
}

// With the lock: what has arrived and may be shown. NULL: nothing, or the loop is rung when it may.
static struct mr_job *collect(struct local *e, struct local_puller *p) {
    struct local_taker *t = &p->loop_taker;
    struct mr_job *jobs = t->taken;
    if (jobs && !p->arrived_durable && !shard_is_durable(e->shard, e->position)) {
        if (list_empty(&p->of_ringing))
            list_append(&e->ringing, &p->of_ringing);
        if (e->thread_sleeps_on)
            local_wake_thread(e);
        return NULL;
    }
    t->taken = NULL;
    return jobs;
}

// The loop's take: hands out what has arrived and is durable, else makes sure that it is rung.
static int take_in_loop(struct local *e, struct local_puller *p, const struct pull *pull,
                        mr_job **out) {
    struct local_taker *t = &p->loop_taker;
    int err = local_begin(e);
    if (err < 0)
        return err;
    if (!t->taken && !p->asking && !p->interrupted) {
        err = take_now(e, t, pull, true);
        p->asking = err == MR_EAGAIN;
        p->arrived_durable = false;
    }
    local_end_keep(e);
    struct mr_job *jobs = collect(e, p);
    pthread_mutex_unlock(&e->lock);
    if (!jobs)
        return err < 0 && err != MR_EAGAIN ? err : take_nothing_came(pull);
    return load_all(e, jobs, out);
}

int local_try(struct local_puller *p, const struct pull *pull, mr_job **out) {
    struct local *e = (struct local *)p->base.engine;
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    int err = local_begin(e);
    if (err < 0)
        return err;
    err = p->interrupted ? MR_EAGAIN : take_now(e, &t, pull, false);
    if (t.spare)
        taker_finish(e, &t);
    uint64_t at = local_end(e);
    return err < 0 ? err : hand_out(e, at, t.taken, out);
}

// One turn for both: nobody comes in between, and the clock is read once.
int local_done_take(mr_job *job, const struct pull *pull, int *out_done, mr_job **out) {
    struct local_puller *p = (struct local_puller *)job->puller;
    struct local *e = (struct local *)p->base.engine;
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    struct commit commit;
    int err = commit_prepare(job, &commit);
    int entered = local_enter(e);
    *out_done = commit_in_turn(e, job, &commit, entered < 0 ? entered : err, FINISH_UNPIN);
    err = entered < 0 ? entered : p->interrupted ? MR_EAGAIN : take_now(e, &t, pull, false);
    if (t.spare)
        taker_finish(e, &t);
    uint64_t at = local_end(e);
    mem_free(commit.emits);
    return err < 0 ? err : hand_out(e, at, t.taken, out);
}

int local_take(struct puller *base, const struct pull *pull, mr_job **out) {
    struct local_puller *p = (struct local_puller *)base;
    struct local *e = (struct local *)base->engine;
    if (p->options.ring)
        return take_in_loop(e, p, pull, out);
    if (pull->wait_ms == 0) {
        int err = local_try(p, pull, out);
        return err == MR_EAGAIN ? take_nothing_came(pull) : err;
    }
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    int err = local_begin(e);
    if (err < 0)
        return err;
    bool waits = !p->interrupted;
    err = waits ? take_now(e, &t, pull, true) : MR_EAGAIN;
    if (err == MR_EAGAIN && waits)
        return take_waiting(e, &t, pull, out);
    if (t.spare)
        taker_finish(e, &t);
    uint64_t at = local_end(e);
    if (err == MR_EAGAIN)
        return take_nothing_came(pull);
    return err < 0 ? err : hand_out(e, at, t.taken, out);
}

// ---- For an ask -------------------------------------------------------------------------------

int local_seat(struct local_taker *t, const struct pull *pull, bool stay) {
    struct local_puller *p = t->puller;
    struct local *e = (struct local *)p->base.engine;
    int err = local_begin(e);
    if (err < 0)
        return err;
    err = p->interrupted ? MR_EAGAIN : take_now(e, t, pull, stay);
    bool waits = err == MR_EAGAIN && stay;
    if (p->options.ring) {
        p->asking = waits;
        p->arrived_durable = false;
    } else if (waits) {
        list_append(&e->waiters, &t->waiter.of_engine);
        list_append(&p->waiters, &t->waiter.of_puller);
    }
    if (p->interrupted)
        ask_break_off(t->waiter.ask, MR_EAGAIN);
    local_end_keep(e);
    if (err >= 0)
        t->waiter.at = e->position;
    pthread_mutex_unlock(&e->lock);
    return err;
}

void local_unseat(struct local_taker *t) {
    struct local_puller *p = t->puller;
    struct local *e = (struct local *)p->base.engine;
    local_enter(e);
    if (!t->taken)
        core_take_leave(e->core, &t->taker);
    list_remove(&t->waiter.of_engine);
    list_remove(&t->waiter.of_puller);
    p->asking = false;
    taker_finish(e, t);
    local_end(e);
}

int local_hand_out(struct local_taker *t, mr_job **out) {
    return hand_out((struct local *)t->puller->base.engine, t->waiter.at, t->taken, out);
}

int local_collect(struct local_puller *p, mr_job **out) {
    struct local *e = (struct local *)p->base.engine;
    pthread_mutex_lock(&e->lock);
    struct mr_job *jobs = collect(e, p);
    pthread_mutex_unlock(&e->lock);
    return jobs ? load_all(e, jobs, out) : MR_EAGAIN;
}

// ---- Stopping what runs -----------------------------------------------------------------------

void event_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token, int why) {
    struct local *e = owner;
    (void)conn;
    struct mr_job *job = hands_find(e, id, token);
    if (!job)
        return;
    job->stop_why = why;
    if (list_empty(&job->of_notices))
        list_append(&e->notices, &job->of_notices);
}

static void call_on_stop(struct local *e, struct local_puller *p, struct mr_job *job) {
    job->pins++;
    p->telling++;
    pthread_mutex_unlock(&e->lock);
    p->options.on_stop(job, p->options.arg);
    pthread_mutex_lock(&e->lock);
    hands_unpin(e, job);
    if (--p->telling == 0)
        pthread_cond_broadcast(&p->told);
}

void local_tell_stop(struct local *e, struct mr_job *job) {
    struct local_puller *p = (struct local_puller *)job->puller;
    list_remove(&job->of_notices);
    bool runs = hand_stop(job, job->stop_why);
    if (!runs || !p->options.on_stop)
        return;
    if (!p->options.ring) {
        call_on_stop(e, p, job);
        return;
    }
    list_append(&p->notices, &job->of_notices);
    p->options.ring(p->options.arg);
}

void local_tell_loop(struct puller *base) {
    struct local_puller *p = (struct local_puller *)base;
    struct local *e = (struct local *)base->engine;
    pthread_mutex_lock(&e->lock);
    for (struct list *l; (l = list_first(&p->notices)) != NULL;) {
        list_remove(l);
        call_on_stop(e, p, list_entry(l, struct mr_job, of_notices));
    }
    pthread_mutex_unlock(&e->lock);
}

// ---- Pullers ----------------------------------------------------------------------------------

int local_puller_open(struct engine *base, const struct puller_options *options,
                      struct puller **out) {
    struct local *e = (struct local *)base;
    struct local_puller *p = mem_alloc(sizeof *p);
    if (!p)
        return error_set(MR_ENOMEM, "no memory for a worker");
    p->base.engine = base;
    p->options = *options;
    p->loop_taker = (struct local_taker){ .taker.conn = &p->conn, .puller = p };
    list_init(&p->jobs);
    list_init(&p->waiters);
    list_init(&p->notices);
    pthread_cond_init(&p->told, NULL);
    pthread_mutex_lock(&e->lock);
    core_join(e->core, &p->conn);
    list_append(&e->pullers, &p->of_engine);
    pthread_mutex_unlock(&e->lock);
    *out = &p->base;
    return 0;
}

static void stop_asking(struct local *e, struct local_puller *p) {
    if (p->asking)
        core_take_leave(e->core, &p->loop_taker.taker);
    p->asking = false;
    taker_finish(e, &p->loop_taker);
}

void local_puller_interrupt(struct puller *base) {
    struct local_puller *p = (struct local_puller *)base;
    struct local *e = (struct local *)base->engine;
    local_enter(e);
    p->interrupted = true;
    for (struct list *l = p->waiters.next; l != &p->waiters; l = l->next)
        local_break_off(list_entry(l, struct waiter, of_puller), MR_EAGAIN);
    stop_asking(e, p);
    struct mr_job *arrived = p->loop_taker.taken;
    p->loop_taker.taken = NULL;
    local_end(e);
    for (struct mr_job *next; arrived; arrived = next) {
        next = arrived->next;
        atomic_store(&arrived->used_up, true);
        local_release(arrived, FINISH_UNPIN);
    }
}

void local_puller_close(struct puller *base) {
    if (!base)
        return;
    struct local_puller *p = (struct local_puller *)base;
    struct local *e = (struct local *)base->engine;
    local_puller_interrupt(base);
    local_enter(e);
    while (p->telling > 0)
        pthread_cond_wait(&p->told, &e->lock);
    assert(list_empty(&p->jobs) && list_empty(&p->waiters));
    core_leave(e->core, &p->conn);
    list_remove(&p->of_engine);
    list_remove(&p->of_ringing);
    local_end_and_show(e, 0);
    pthread_cond_destroy(&p->told);
    mem_free(p);
}
