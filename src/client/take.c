// Pullers. For mr_take each take is a request of its own, on a lane if it waits. A worker has a
// link, and on it one TAKE for as many jobs as threads wait:
//
//     takers: ● ● ● ─► TAKE … COUNT 3 WAIT -1 ─► two jobs ─► two are woken ─► TAKE … COUNT 1
//
// so that idle threads cost nothing, and busy ones share their round trips.
//
// A TAKE that waited for long may bring a lease that is, as far as can be known here, nearly over:
// so a BEAT is sent first for what it brings. A TAKE that is not wanted any more cannot be
// withdrawn; CLIENT UNBLOCK makes the server answer it, and jobs that it brings nevertheless are
// released.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "client/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

enum { UNBLOCK_AGAIN_MS = 10, TAKE_AGAIN_LEAST_MS = 10, TAKE_AGAIN_MOST_MS = 1000 };

// A thread that waits for jobs; lies on its stack.
struct client_taker {
    struct list of_puller;
    struct exchange *x; // for mr_take: the request that will answer it
    struct mr_job *jobs;
    bool answered;
    int err;
    char why[512];
    pthread_cond_t cond;
};

static struct client *client_of_puller(const struct client_puller *p) {
    return (struct client *)p->base.engine;
}

static void taker_answer(struct client_taker *t, struct mr_job *jobs, int err, const char *why) {
    list_remove(&t->of_puller);
    t->answered = true;
    t->jobs = jobs;
    t->err = err;
    snprintf(t->why, sizeof t->why, "%s", why);
    pthread_cond_signal(&t->cond);
}

// ---- Sharing out ------------------------------------------------------------------------------

// Cuts about `most` jobs off a chain, but never a lease in two. Returns the rest.
static struct mr_job *cut_chain(struct mr_job *jobs, size_t most) {
    struct mr_job *last = jobs;
    for (size_t count = 1; last->next && (count < most || last->next->follows); count++)
        last = last->next;
    struct mr_job *rest = last->next;
    last->next = NULL;
    return rest;
}

static size_t chain_size(const struct mr_job *jobs) {
    size_t count = 0;
    for (; jobs; jobs = jobs->next)
        count++;
    return count;
}

static size_t list_size(const struct list *l) {
    size_t count = 0;
    for (const struct list *at = l->next; at != l; at = at->next)
        count++;
    return count;
}

static void keep_arrived(struct client_puller *p, struct mr_job *jobs) {
    struct mr_job **last = &p->arrived;
    while (*last)
        last = &(*last)->next;
    *last = jobs;
    if (jobs && p->options.ring)
        p->options.ring(p->options.arg);
}

static void share_out(struct client_puller *p, struct mr_job *jobs) {
    if (p->interrupted && !MUTANT(jobs_of_a_stopping_worker_kept)) {
        client_jobs_release(jobs);
        return;
    }
    for (size_t takers = list_size(&p->takers); jobs && takers; takers--) {
        size_t share = (chain_size(jobs) + takers - 1) / takers;
        struct mr_job *rest = cut_chain(jobs, share);
        taker_answer(list_entry(p->takers.next, struct client_taker, of_puller), jobs, 0, "");
        jobs = rest;
    }
    keep_arrived(p, jobs);
}

// Gives jobs to the threads that wait. For mr_take: to the thread that sent the TAKE, if it still
// waits.
static void pass_to_taker(struct client_puller *p, struct client_taker *t, struct mr_job *jobs) {
    if (p->link)
        share_out(p, jobs);
    else if (t)
        taker_answer(t, jobs, 0, "");
    else
        client_jobs_release(jobs);
}

// ---- Answers to TAKE --------------------------------------------------------------------------

static void renewed_hook(struct client *c, struct exchange *x, const struct response_value *v,
                         uint32_t count) {
    struct client_puller *p = x->puller;
    beat_hook(c, x, v, count);
    p->beating--;
    pthread_cond_broadcast(&p->changed);
    pass_to_taker(p, x->owner, x->jobs);
}

// Sends a BEAT before a handler begins. False: it cannot be sent.
static bool renew(struct client_puller *p, struct client_taker *t, struct mr_job *jobs,
                  uint64_t now_ms) {
    struct client *c = client_of_puller(p);
    struct exchange *x = exchange_new("BEAT");
    if (!x)
        return false;
    for (struct mr_job *job = jobs; job; job = job->next) {
        beat_add(x, job, now_ms);
        job->lease_from_ms = now_ms; // no handler has begun yet: the BEAT confirms this
    }
    x->hook = renewed_hook;
    x->puller = p;
    x->owner = t;
    x->jobs = jobs;
    if (exchange_send(beat_link(c), x) < 0) {
        exchange_free(x);
        return false;
    }
    p->beating++;
    if (t)
        t->x = x;
    return true;
}

static void jobs_arrive(struct client_puller *p, struct client_taker *t, struct mr_job *jobs) {
    uint64_t now_ms = monotonic_ms();
    if (!lease_is_due(jobs, now_ms) || MUTANT(old_lease_not_renewed))
        pass_to_taker(p, t, jobs);
    else if (!renew(p, t, jobs, now_ms)) {
        client_jobs_release(jobs);
        if (t)
            taker_answer(t, NULL, MR_EAGAIN, "");
    }
}

// A worker's TAKE has brought nothing: the server is stopping, or refuses it.
static void take_later(struct client_puller *p) {
    uint64_t pause_ms = TAKE_AGAIN_LEAST_MS;
    for (uint32_t i = 0; i < p->refusals && pause_ms < TAKE_AGAIN_MOST_MS; i++)
        pause_ms *= 2;
    p->refusals++;
    p->take_at_ms = monotonic_ms() + pause_ms;
    p->wants = p->options.ring && !p->interrupted; // a loop is not woken for that
}

// A TAKE waits at a node for `owned_ms` only, so that a node that has become silent is noticed.
static bool wait_was_over(const struct exchange *x) {
    uint64_t wait_ms = x->link->owned_ms;
    return wait_ms && monotonic_ms() >= x->sent_ms + wait_ms;
}

static void take_again(struct client_puller *p) {
    p->refusals = 0;
    p->wants = p->options.ring && !p->interrupted;
}

static void take_note_refused(struct client_puller *p, const struct exchange *x) {
    p->refused = x->err < 0 && x->err != MR_ENET ? x->err : 0;
    if (p->refused)
        snprintf(p->why, sizeof p->why, "%s", exchange_sentence(x));
}

// The threads of a worker go on when the store of a server has failed: that server may come back,
// or another take its place.
static void fail_takers(struct client_puller *p, struct client_taker *t, int err, const char *why) {
    if (t)
        taker_answer(t, NULL, err, why);
    if (err == MR_ESTOPPED)
        err = MR_ENET;
    while (p->link && !list_empty(&p->takers))
        taker_answer(list_entry(p->takers.next, struct client_taker, of_puller), NULL, err, why);
}

static void take_hook(struct client *c, struct exchange *x, const struct response_value *v,
                      uint32_t count) {
    struct client_puller *p = x->puller;
    struct client_taker *t = x->owner;
    struct mr_job *jobs = NULL;
    int err = x->err;
    (void)c, (void)count;
    if (t)
        t->x = NULL;
    if (x == p->pending_take)
        p->pending_take = NULL;
    else
        p->taking--;
    pthread_cond_broadcast(&p->changed);
    take_note_refused(p, x);
    if (err >= 0 && (err = client_jobs_read(p, x->link, x->sent_ms, v, &jobs)) < 0)
        link_lose(x->link, err, "%s", error_text());
    if (jobs) {
        p->refusals = 0;
        jobs_arrive(p, t, jobs);
        return;
    }
    if (p->link && err >= 0 && wait_was_over(x))
        take_again(p);
    else if (p->link)
        take_later(p);
    if (err < 0)
        fail_takers(p, t, err, x->err < 0 ? exchange_sentence(x) : error_text());
    else if (t)
        taker_answer(t, NULL, MR_EAGAIN, "");
}

// Adds the worker's level to a TAKE, if it differs from the one sent last.
static void add_level(struct client_puller *p, const struct pull *pull, struct exchange *x) {
    if (!p->link || !pull->level ||
        (p->sent_level == pull->level && p->sent_session == p->link->session))
        return;
    exchange_option(x, "SLOTS", pull->level);
    p->sent_level = pull->level;
    p->sent_session = p->link->session;
}

static struct exchange *take_new(struct client_puller *p, const struct pull *pull, uint64_t count) {
    struct exchange *x = exchange_new("TAKE");
    if (!x)
        return NULL;
    for (size_t i = 0; i < pull->stage_count; i++)
        exchange_bytes(x, pull->stages[i]);
    exchange_word(x, "COUNT");
    exchange_number(x, count < TAKE_MOST ? count : TAKE_MOST);
    exchange_option(x, "BATCH", pull->batch);
    exchange_option(x, "WAIT", pull->wait_ms);
    exchange_option(x, "LEASE", pull->lease_ms);
    add_level(p, pull, x);
    x->hook = take_hook;
    x->puller = p;
    return x;
}

// ---- A worker's TAKE: I/O thread --------------------------------------------------------------

static bool take_is_wanted(const struct client_puller *p) {
    return p->link && !p->pending_take && !p->interrupted && (p->wants || !list_empty(&p->takers));
}

static void send_worker_take(struct client_puller *p) {
    size_t takers = list_size(&p->takers);
    p->pull.wait_ms = p->link->owned_ms ? (int64_t)p->link->owned_ms : MR_FOREVER;
    struct exchange *x = take_new(p, &p->pull, (takers ? takers : 1) * p->pull.batch);
    int err = x ? exchange_send(p->link, x) : MR_ENOMEM;
    if (err < 0) {
        exchange_free(x);
        take_later(p);
        return;
    }
    p->wants = false;
    p->pending_take = x;
}

static void unblock_hook(struct client *c, struct exchange *x, const struct response_value *v,
                         uint32_t count) {
    (void)c, (void)v, (void)count;
    x->puller->unblocking = false;
    pthread_cond_broadcast(&x->puller->changed);
}

// Another node has other sessions: sent there, it would end the TAKE of a stranger.
static struct client_link *link_to_node_of(const struct client_puller *p) {
    struct client *c = client_of_puller(p);
    if (link_is_at(c->main, p->link))
        return c->main;
    for (struct list *at = c->idle.next; at != &c->idle; at = at->next)
        if (link_is_at(list_entry(at, struct client_link, of_idle), p->link))
            return list_entry(at, struct client_link, of_idle);
    struct client_link *lane = link_create(c, true);
    if (!lane)
        return NULL;
    link_pin(lane, p->link);
    lane_return(lane);
    return lane;
}

// The server may read this before it has read the TAKE; then it is sent again.
static void unblock_take(struct client_puller *p, uint64_t now_ms) {
    if (!p->pending_take->sent) {
        exchange_fail(p->pending_take, MR_EAGAIN, "");
        return;
    }
    if (p->unblocking || now_ms < p->unblock_at_ms)
        return;
    struct client_link *link = link_to_node_of(p);
    struct exchange *x = link ? exchange_new("CLIENT") : NULL;
    p->unblock_at_ms = now_ms + UNBLOCK_AGAIN_MS;
    if (!x)
        return;
    exchange_word(x, "UNBLOCK");
    exchange_number(x, p->link->session);
    x->hook = unblock_hook;
    x->puller = p;
    x->fails_if_lost = true;
    p->unblocking = exchange_send(link, x) >= 0;
    if (!p->unblocking)
        exchange_free(x);
}

void puller_turn(struct client_puller *p, uint64_t now_ms) {
    if (take_is_wanted(p) && now_ms >= p->take_at_ms)
        send_worker_take(p);
    if (p->interrupted && p->pending_take)
        unblock_take(p, now_ms);
}

uint64_t puller_next_ms(const struct client_puller *p) {
    if (take_is_wanted(p))
        return p->take_at_ms;
    return p->interrupted && p->pending_take && !p->unblocking ? p->unblock_at_ms : UINT64_MAX;
}

// ---- Taking -----------------------------------------------------------------------------------

static int no_job_came(const struct pull *pull) {
    return error_set(MR_EAGAIN, "no job of stage '%.*s' came within %" PRId64 " ms",
                     (int)pull->stages[0].size, (const char *)pull->stages[0].data, pull->wait_ms);
}

static struct mr_job *take_arrived(struct client_puller *p, const struct pull *pull) {
    struct mr_job *jobs = p->arrived;
    if (jobs)
        p->arrived = cut_chain(jobs, pull->batch);
    return jobs;
}

// For mr_take. The answer wakes the taker.
static int send_take(struct client_puller *p, const struct pull *pull, struct client_taker *t) {
    struct client *c = client_of_puller(p);
    struct exchange *x = take_new(p, pull, pull->batch);
    struct client_link *l = pull->wait_ms ? lane_borrow(c) : c->main;
    int err = x && l ? exchange_send(l, x) : MR_ENOMEM;
    if (err < 0) {
        if (l && l->lane)
            lane_return(l);
        exchange_free(x);
        return err;
    }
    p->taking++;
    x->owner = t;
    t->x = x;
    return 0;
}

// What its request brings later is released. A TAKE keeps its lane until it was answered.
static void client_taker_leave(struct client_taker *t, struct client_link *lane) {
    bool pending = t->x && t->x->hook == take_hook;
    if (pending)
        exchange_leave(t->x);
    else if (t->x)
        t->x->owner = NULL;
    if (lane && !pending)
        lane_return(lane);
}

// With the lock. The threads of a worker wait for one TAKE, those in mr_take each for its own.
static int wait_for_jobs(struct client_puller *p, const struct pull *pull, struct client_taker *t) {
    struct client *c = client_of_puller(p);
    uint64_t until_ms =
        pull->wait_ms < 0 ? UINT64_MAX : client_until(pull->wait_ms) + CLIENT_SLACK_MS;
    int err = 0;
    if (p->link) {
        p->pull = *pull;
        client_wake_io(c);
    } else {
        err = send_take(p, pull, t);
    }
    if (err < 0)
        return err;
    list_append(&p->takers, &t->of_puller);
    c->waiting_threads += !p->link;
    struct client_link *lane = t->x && t->x->link->lane ? t->x->link : NULL;
    while (!t->answered && (until_ms == UINT64_MAX || monotonic_ms() < until_ms))
        client_sleep(c, &t->cond, until_ms);
    c->waiting_threads -= !p->link;
    if (t->answered) {
        if (lane)
            lane_return(lane);
        return t->err;
    }
    list_remove(&t->of_puller);
    client_taker_leave(t, lane);
    return MR_EAGAIN;
}

static int client_take_in_loop(struct client_puller *p, const struct pull *pull, mr_job **out) {
    struct client *c = client_of_puller(p);
    pthread_mutex_lock(&c->lock);
    struct mr_job *jobs = take_arrived(p, pull);
    if (!jobs && !p->pending_take && !p->beating && !p->interrupted) {
        p->pull = *pull;
        p->wants = true;
        client_wake_io(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (!jobs)
        return no_job_came(pull);
    *out = jobs;
    return 0;
}

int client_take(struct puller *base, const struct pull *pull, mr_job **out) {
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = client_of_puller(p);
    if (p->options.ring)
        return client_take_in_loop(p, pull, out);
    struct client_taker t = { 0 };
    cond_init(&t.cond);
    pthread_mutex_lock(&c->lock);
    int err = p->interrupted ? MR_EAGAIN : 0;
    if (err >= 0 && !(t.jobs = take_arrived(p, pull)))
        err = wait_for_jobs(p, pull, &t);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&t.cond);
    if (err == MR_EAGAIN)
        return no_job_came(pull);
    if (err < 0)
        return t.answered ? error_set(err, "%s", t.why) : err;
    *out = t.jobs;
    return 0;
}

// ---- Stopping what runs -----------------------------------------------------------------------

static void client_call_on_stop(struct client *c, struct client_puller *p, struct mr_job *job) {
    job->pins++;
    p->notifying++;
    pthread_mutex_unlock(&c->lock);
    p->options.on_stop(job, p->options.arg);
    pthread_mutex_lock(&c->lock);
    client_job_unpin(c, job);
    if (--p->notifying == 0)
        pthread_cond_broadcast(&p->changed);
}

void client_notify_stop(struct client *c, struct mr_job *job) {
    struct client_puller *p = (struct client_puller *)job->puller;
    list_remove(&job->of_stops);
    if (!p->options.ring) {
        client_call_on_stop(c, p, job);
        return;
    }
    list_append(&p->notices, &job->of_stops);
    p->options.ring(p->options.arg);
}

void client_stop_notices(struct puller *base) {
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = client_of_puller(p);
    pthread_mutex_lock(&c->lock);
    for (struct list *at; (at = list_first(&p->notices)) != NULL;) {
        list_remove(at);
        client_call_on_stop(c, p, list_entry(at, struct mr_job, of_stops));
    }
    pthread_mutex_unlock(&c->lock);
}

// ---- Pullers ----------------------------------------------------------------------------------

int client_puller_open(struct engine *base, const struct puller_options *options,
                       struct puller **out) {
    struct client *c = (struct client *)base;
    struct client_puller *p = mem_alloc(sizeof *p);
    if (!p)
        return error_set(MR_ENOMEM, "no memory for a worker");
    p->base.engine = base;
    p->options = *options;
    list_init(&p->jobs);
    list_init(&p->takers);
    list_init(&p->notices);
    cond_init(&p->changed);
    pthread_mutex_lock(&c->lock);
    bool works = options->handlers || options->ring;
    p->link = works ? link_create(c, false) : NULL;
    if (p->link)
        p->link->puller = p;
    bool made = p->link || !works;
    if (made)
        list_append(&c->pullers, &p->of_client);
    pthread_mutex_unlock(&c->lock);
    if (!made) {
        pthread_cond_destroy(&p->changed);
        mem_free(p);
        return MR_ENOMEM;
    }
    *out = &p->base;
    return 0;
}

void client_puller_interrupt(struct puller *base) {
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = client_of_puller(p);
    pthread_mutex_lock(&c->lock);
    p->interrupted = true;
    p->wants = false;
    fail_takers(p, NULL, MR_EAGAIN, "");
    client_jobs_release(p->arrived);
    p->arrived = NULL;
    client_wake_io(c);
    pthread_mutex_unlock(&c->lock);
}

static bool is_quiet(const struct client_puller *p) {
    return !p->pending_take && !p->taking && !p->unblocking && !p->beating && !p->unanswered &&
           !p->notifying;
}

// Closes the lanes of TAKEs that no thread waits for any more and that were not answered yet.
static void close_lanes(struct client *c, const struct client_puller *p) {
    for (struct list *at = c->links.next; at != &c->links; at = at->next) {
        struct client_link *l = list_entry(at, struct client_link, of_client);
        struct list *first = list_first(&l->sent);
        if (l->lane && first && list_entry(first, struct exchange, of_link)->puller == p)
            l->closing = true;
    }
}

// Waits until takes are answered and ends are recorded, or until the server has been away too long.
static void wait_until_quiet(struct client *c, struct client_puller *p) {
    uint64_t until_ms = client_until((int64_t)c->unreachable_ms);
    close_lanes(c, p);
    client_wake_io(c);
    while (!is_quiet(p) && monotonic_ms() < until_ms)
        client_sleep(c, &p->changed, until_ms);
    if (p->link)
        p->link->closing = true;
    client_wake_io(c);
    while (p->link || !is_quiet(p))
        pthread_cond_wait(&p->changed, &c->lock);
}

void client_puller_close(struct puller *base) {
    if (!base)
        return;
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = client_of_puller(p);
    client_puller_interrupt(base);
    pthread_mutex_lock(&c->lock);
    wait_until_quiet(c, p);
    assert(list_empty(&p->jobs) && list_empty(&p->takers));
    list_remove(&p->of_client);
    pthread_mutex_unlock(&c->lock);
    pthread_cond_destroy(&p->changed);
    mem_free(p);
}
