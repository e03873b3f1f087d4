// Pullers, what they take at one shard, and their on_stop callbacks.
//
// Two kinds of waiting: a thread sleeps in its take; or, with `ring`, the puller's take stays at
// the shards and its loop is rung when it was granted.
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

void taker_try_again(struct local_taker *t) {
    const struct puller_options *o = &t->puller->puller->options;
    if (!o->ring) {
        shared_take_answer(t->waiter.shared, true);
        return;
    }
    reservation_set(&t->waiter.shared->reservation, RESERVATION_OVER);
    o->ring(o->arg);
}

// This shard gets a shared take only if no other shard was faster. If the job that it was claimed
// for is not granted (for want of memory), the take has to try again: see local_end_keep.
static bool claim_shared(struct local_shard *s, struct local_taker *t) {
    if (!reservation_claim(&t->waiter.shared->reservation, s->index))
        return false;
    if (s->claimed)
        taker_try_again(s->claimed);
    s->claimed = t;
    return true;
}

bool event_claim(void *owner, struct taker *taker) {
    struct local_taker *t = taker_of(taker);
    if (t->waiter.err || t->puller->interrupted)
        return false;
    return !t->waiter.shared || claim_shared(owner, t);
}

void event_granted(void *owner, struct taker *taker, const struct grant *grants, size_t count) {
    struct local_shard *s = owner;
    struct local_taker *t = taker_of(taker);
    struct shard_puller *p = t->puller;
    t->taken = jobs_fill(p, &t->free_jobs, grants, count);
    s->claimed = NULL;
    if (!p->puller->options.ring) {
        local_notify(s, &t->waiter);
        return;
    }
    p->waits = false;
    if (list_empty(&p->of_ringing))
        list_append(&s->ringing, &p->of_ringing);
}

// Room for the answer and for the jobs, before anything is leased.
static int taker_prepare(struct local_shard *s, struct local_taker *t, uint32_t count) {
    if (s->grant_room < count) {
        struct grant *grants = mem_resize(s->grants, count * sizeof *grants);
        if (!grants)
            return error_set(MR_ENOMEM, "no memory to take %" PRIu32 " jobs", count);
        s->grants = grants;
        s->grant_room = count;
    }
    if (!t->free_jobs)
        t->free_jobs = free_jobs_get(s, count);
    return t->free_jobs ? 0 : MR_ENOMEM;
}

static void taker_finish(struct local_shard *s, struct local_taker *t) {
    free_jobs_put(s, t->free_jobs);
    t->free_jobs = NULL;
}

static int take_in_turn(struct local_taker *t, const struct pull *pull, bool stay) {
    struct local_shard *s = t->puller->shard;
    uint32_t count = pull->count > pull->batch ? pull->count : pull->batch;
    int err = taker_prepare(s, t, count);
    if (err < 0)
        return err;
    struct take take = { .stages = pull->stages,
                         .stage_count = pull->stage_count,
                         .count = count,
                         .batch = pull->batch,
                         .lease_ms = pull->lease_ms,
                         .in_process = true,
                         .conn = &t->puller->conn,
                         .taker = stay ? &t->taker : NULL };
    size_t granted = 0;
    err = core_take(s->core, &take, s->grants, &granted);
    if (err >= 0)
        t->taken = jobs_fill(t->puller, &t->free_jobs, s->grants, granted);
    return err;
}

// ---- Giving back ------------------------------------------------------------------------------

// Releases jobs that cannot be returned to the caller.
static int release_taken(struct mr_job *jobs, int err) {
    char why[REASON_MOST + 1];
    snprintf(why, sizeof why, "%s", error_text());
    for (struct mr_job *job = jobs, *next; job; job = next) {
        next = job->next;
        atomic_store(&job->used_up, true);
        local_release(job, 0, FINISH_UNPIN);
    }
    return error_set(err, "%s", why);
}

// Returns the jobs that can be read. A damaged body fails its own job only; any other error may
// concern the jobs behind it as well, which are released.
static int load_all(struct local_shard *s, struct mr_job *jobs, mr_job **out) {
    int err = 0;
    for (struct mr_job **at = &jobs; *at;) {
        int read = job_load(s, *at);
        if (read == MR_ENOMEM)
            return release_taken(jobs, read);
        err = read < 0 ? read : err;
        if (read < 0)
            *at = jobs_leave_out(s, *at, read);
        else
            at = &(*at)->next;
        if (read < 0 && read != MR_ECORRUPT) {
            release_taken(*at, read);
            *at = NULL;
        }
    }
    if (!jobs)
        return err;
    *out = jobs;
    return 0;
}

static int hand_out(struct local_shard *s, uint64_t at, struct mr_job *jobs, mr_job **out) {
    int err = local_wait_durable(s, at, 0);
    return err < 0 ? release_taken(jobs, err) : load_all(s, jobs, out);
}

// ---- Taking at one shard ----------------------------------------------------------------------

int take_nothing_came(const struct pull *pull) {
    return error_set(MR_EAGAIN, "no job of stage '%.*s' came within %" PRId64 " ms",
                     (int)pull->stages[0].size, (const char *)pull->stages[0].data, pull->wait_ms);
}

// In a turn, which it ends: the take has its answer, or does not wait for one.
static int take_finish(struct local_taker *t, int err, mr_job **out) {
    struct local_shard *s = t->puller->shard;
    if (t->free_jobs)
        taker_finish(s, t);
    if (err >= 0)
        return hand_out(s, local_end_to_wait(s), t->taken, out);
    local_end(s);
    return err;
}

int take_now(struct shard_puller *p, const struct pull *pull, mr_job **out) {
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    int err = local_begin(p->shard);
    if (err < 0)
        return err;
    return take_finish(&t, p->interrupted ? MR_EAGAIN : take_in_turn(&t, pull, false), out);
}

// In a turn that found nothing: waits, and gives the lock up.
static int wait_for_grant(struct local_taker *t, uint64_t until_ms, mr_job **out) {
    struct shard_puller *p = t->puller;
    struct local_shard *s = p->shard;
    local_end_keep(s);
    list_append(&p->waiters, &t->waiter.of_puller);
    bool notified = local_wait(s, &t->waiter, until_ms);
    if (notified)
        pthread_mutex_lock(&s->lock);
    else
        core_take_leave(s->core, &t->taker);
    list_remove(&t->waiter.of_puller);
    taker_finish(s, t);
    if (notified) {
        pthread_mutex_unlock(&s->lock);
        return hand_out(s, t->waiter.at, t->taken, out);
    }
    local_end(s);
    return t->waiter.err;
}

int take_or_wait(struct shard_puller *p, const struct pull *pull, mr_job **out) {
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    uint64_t until_ms = local_until(pull->wait_ms);
    int err = local_begin(p->shard);
    if (err < 0)
        return err;
    if (p->interrupted)
        return take_finish(&t, MR_EAGAIN, out);
    err = take_in_turn(&t, pull, true);
    return err == MR_EAGAIN ? wait_for_grant(&t, until_ms, out) : take_finish(&t, err, out);
}

static bool is_all_here(const struct local_shard *s, const struct pull *pull) {
    for (size_t i = 0; s->engine->count > 1 && i < pull->stage_count; i++)
        if (route_of(s->engine->count, pull->stages[i]) != s->index)
            return false;
    return true;
}

// In a turn, or with the reason why there is none. Returns how many were committed.
static uint32_t commit_all(struct local_shard *s, struct mr_job *ended, int err) {
    uint32_t committed = 0;
    for (struct mr_job *next; ended; ended = next) {
        next = ended->next;
        struct done done;
        commit_of(ended, &done);
        committed += commit_in_turn(s, ended, &done, err, FINISH_UNPIN) >= 0;
    }
    return committed;
}

static uint32_t done_each(struct mr_job *ended) {
    uint32_t committed = 0;
    for (struct mr_job *next; ended; ended = next) {
        next = ended->next;
        committed += local_done(ended, FINISH_UNPIN) >= 0;
    }
    return committed;
}

// Commits and takes in one turn: no other thread comes in between, and the clock is read once. If
// the stages are in several shards, the next take begins with the stage named first.
int local_done_take(mr_job *ended, const struct pull *pull, uint32_t *out_done, mr_job **out) {
    struct shard_puller *p = ended->leased_with;
    struct local_shard *s = p->shard;
    if (!is_all_here(s, pull)) {
        *out_done = done_each(ended);
        return MR_EAGAIN;
    }
    struct local_taker t = { .taker.conn = &p->conn, .puller = p };
    int err = local_enter(s);
    *out_done = commit_all(s, ended, err);
    if (err >= 0)
        err = p->interrupted ? MR_EAGAIN : take_in_turn(&t, pull, false);
    return take_finish(&t, err, out);
}

// ---- A shared take at one of its shards -------------------------------------------------------

int taker_join(struct local_taker *t, const struct pull *pull, bool stay) {
    struct shard_puller *p = t->puller;
    struct local_shard *s = p->shard;
    int err = local_begin(s);
    if (err < 0)
        return err;
    err = p->interrupted ? MR_EAGAIN : take_in_turn(t, pull, stay);
    bool waits = err == MR_EAGAIN && stay;
    if (p->puller->options.ring) {
        p->waits = waits;
        p->arrived_durable = false;
    } else if (waits) {
        list_append(&s->waiters, &t->waiter.of_shard);
        list_append(&p->waiters, &t->waiter.of_puller);
    }
    if (p->interrupted)
        shared_take_cancel(t->waiter.shared, MR_EAGAIN);
    local_end_keep(s);
    if (err >= 0)
        t->waiter.at = s->position;
    pthread_mutex_unlock(&s->lock);
    return err;
}

void taker_leave(struct local_taker *t) {
    struct shard_puller *p = t->puller;
    struct local_shard *s = p->shard;
    local_enter(s);
    if (!t->taken)
        core_take_leave(s->core, &t->taker);
    list_remove(&t->waiter.of_shard);
    list_remove(&t->waiter.of_puller);
    p->waits = false;
    taker_finish(s, t);
    local_end(s);
}

int taker_return_jobs(struct local_taker *t, mr_job **out) {
    return hand_out(t->puller->shard, t->waiter.at, t->taken, out);
}

// With the lock: what has arrived and is durable. NULL: nothing, or the loop is rung when it is.
static struct mr_job *collect_granted(struct shard_puller *p) {
    struct local_shard *s = p->shard;
    struct mr_job *jobs = p->loop_taker.taken;
    if (jobs && !p->arrived_durable && !shard_is_durable(s->shard, s->position)) {
        if (list_empty(&p->of_ringing))
            list_append(&s->ringing, &p->of_ringing);
        local_wake_thread(s);
        return NULL;
    }
    p->loop_taker.taken = NULL;
    return jobs;
}

int taker_collect(struct shard_puller *p, mr_job **out) {
    pthread_mutex_lock(&p->shard->lock);
    struct mr_job *jobs = collect_granted(p);
    pthread_mutex_unlock(&p->shard->lock);
    return jobs ? load_all(p->shard, jobs, out) : MR_EAGAIN;
}

// ---- Stopping what runs -----------------------------------------------------------------------

void event_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token, int why) {
    struct local_shard *s = owner;
    (void)conn;
    struct mr_job *job = jobs_find(s, id, token);
    if (!job)
        return;
    job->stop_why = why;
    if (list_empty(&job->of_stops))
        list_append(&s->stops, &job->of_stops);
}

static void call_on_stop(struct shard_puller *p, struct mr_job *job) {
    const struct puller_options *o = &p->puller->options;
    job->pins++;
    p->notifying++;
    pthread_mutex_unlock(&p->shard->lock);
    o->on_stop(job, o->arg);
    pthread_mutex_lock(&p->shard->lock);
    job_unpin(p->shard, job);
    if (--p->notifying == 0)
        pthread_cond_broadcast(&p->notified);
}

void local_stop_job(struct local_shard *s, struct mr_job *job) {
    (void)s;
    struct shard_puller *p = job->leased_with;
    const struct puller_options *o = &p->puller->options;
    list_remove(&job->of_stops);
    bool runs = leased_job_stop(job, job->stop_why);
    if (!runs || !o->on_stop)
        return;
    if (!o->ring) {
        call_on_stop(p, job);
        return;
    }
    list_append(&p->stops, &job->of_stops);
    o->ring(o->arg);
}

void local_loop_stops(struct puller *base) {
    struct local_puller *puller = (struct local_puller *)base;
    for (uint32_t i = 0; i < puller->count; i++) {
        struct shard_puller *p = &puller->parts[i];
        pthread_mutex_lock(&p->shard->lock);
        for (struct list *l; (l = list_first(&p->stops)) != NULL;) {
            list_remove(l);
            call_on_stop(p, list_entry(l, struct mr_job, of_stops));
        }
        pthread_mutex_unlock(&p->shard->lock);
    }
}

// ---- Pullers ----------------------------------------------------------------------------------

static void part_open(struct local_puller *puller, struct local_shard *s) {
    struct shard_puller *p = &puller->parts[s->index];
    p->puller = puller;
    p->shard = s;
    p->loop_taker = (struct local_taker){ .taker.conn = &p->conn,
                                          .waiter.shared = &puller->loop_take,
                                          .puller = p };
    puller->loop_take.takers[s->index] = &p->loop_taker;
    list_init(&p->jobs);
    list_init(&p->waiters);
    list_init(&p->stops);
    pthread_cond_init(&p->notified, NULL);
    pthread_mutex_lock(&s->lock);
    core_join(s->core, &p->conn);
    list_append(&s->pullers, &p->of_shard);
    pthread_mutex_unlock(&s->lock);
}

int local_puller_open(struct engine *base, const struct puller_options *options,
                      struct puller **out) {
    struct local_engine *e = (struct local_engine *)base;
    struct local_puller *p = mem_alloc(sizeof *p + e->count * sizeof p->parts[0]);
    if (!p)
        return error_set(MR_ENOMEM, "no memory for a worker");
    p->base.engine = base;
    p->options = *options;
    p->count = e->count;
    shared_take_init(&p->loop_take);
    for (uint32_t i = 0; i < e->count; i++)
        part_open(p, e->shards[i]);
    pthread_mutex_lock(&e->lock);
    list_append(&e->pullers, &p->of_engine);
    pthread_mutex_unlock(&e->lock);
    *out = &p->base;
    return 0;
}

static void part_interrupt(struct shard_puller *p) {
    struct local_shard *s = p->shard;
    local_enter(s);
    p->interrupted = true;
    for (struct list *l = p->waiters.next; l != &p->waiters; l = l->next)
        local_cancel_wait(list_entry(l, struct waiter, of_puller), MR_EAGAIN);
    if (p->waits)
        core_take_leave(s->core, &p->loop_taker.taker);
    p->waits = false;
    taker_finish(s, &p->loop_taker);
    struct mr_job *arrived = p->loop_taker.taken;
    p->loop_taker.taken = NULL;
    local_end(s);
    for (struct mr_job *next; arrived; arrived = next) {
        next = arrived->next;
        atomic_store(&arrived->used_up, true);
        local_release(arrived, 0, FINISH_UNPIN);
    }
}

void local_puller_interrupt(struct puller *base) {
    struct local_puller *p = (struct local_puller *)base;
    atomic_store(&p->interrupted, true);
    for (uint32_t i = 0; i < p->count; i++)
        part_interrupt(&p->parts[i]);
}

static void part_close(struct shard_puller *p) {
    struct local_shard *s = p->shard;
    local_enter(s);
    while (p->notifying > 0)
        pthread_cond_wait(&p->notified, &s->lock);
    assert(list_empty(&p->jobs) && list_empty(&p->waiters));
    core_leave(s->core, &p->conn);
    list_remove(&p->of_shard);
    list_remove(&p->of_ringing);
    local_end_durable(s, 0);
    pthread_cond_destroy(&p->notified);
}

void local_puller_close(struct puller *base) {
    if (!base)
        return;
    struct local_puller *p = (struct local_puller *)base;
    struct local_engine *e = (struct local_engine *)base->engine;
    local_puller_interrupt(base);
    for (uint32_t i = 0; i < p->count; i++)
        part_close(&p->parts[i]);
    pthread_mutex_lock(&e->lock);
    list_remove(&p->of_engine);
    pthread_mutex_unlock(&e->lock);
    shared_take_finish(&p->loop_take);
    mem_free(p);
}
