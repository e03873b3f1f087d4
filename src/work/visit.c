// Several jobs a visit. To commit and to take is one visit to the shard, and threads wait for each
// other there. Where handlers are short a visit therefore takes several jobs, of different
// channels: as many as run in about VISIT_NS. Their commits are made by the next visit.
//
//     visit ──► held: c b a ──► run a ──► ended: a ──► run b ──► ended: a b … ──► visit
//
// A handler that takes long all at once must not keep those behind it from running, nor those
// before it from being committed. While there are such jobs the beater looks at the runners every
// LOOK_MS; if one has begun no job since the last look, the beater commits what it has ended and
// releases what it holds, for other threads. Both chains are therefore taken whole, by an atomic
// exchange, by the runner and by the beater alike; only the runner puts jobs there.
//
// Where handlers are so short that a visit takes SOLE_COUNT jobs or more, two threads at one shard
// are slower than one: they spend their time on moving its memory from one processor to the other.
// Then one of them becomes the sole runner, the others park, and no thread is called to help. The
// beater watches the sole runner, too, and calls another when a handler takes long.
#include "base/clock.h"
#include "base/mutant.h"
#include "work/state.h"

enum { VISIT_NS = 20000, COUNT_MOST = 32, SOLE_COUNT = 16, LOOK_MS = 2 };

static mr_job *chain_take(_Atomic(mr_job *) *chain) {
    if (!atomic_load_explicit(chain, memory_order_relaxed))
        return NULL;
    return atomic_exchange_explicit(chain, NULL, memory_order_acquire);
}

static void chain_put(_Atomic(mr_job *) *chain, mr_job *jobs) {
    atomic_store_explicit(chain, jobs, memory_order_release);
}

static void release_all(struct worker *w, mr_job *jobs) {
    for (mr_job *next; jobs; jobs = next) {
        next = jobs->next;
        runner_release(w, jobs);
    }
}

static void commit_each(struct worker *w, mr_job *ended) {
    for (mr_job *next; ended; ended = next) {
        next = ended->next;
        if (w->engine->impl->done(ended, FINISH_UNPIN) >= 0)
            worker_count_completed(w, 1);
    }
}

// ---- How many ---------------------------------------------------------------------------------

// At most twice as many as the last time; few at once after a long handler.
static uint32_t count_after(uint32_t count, uint32_t ran, uint64_t took_ns) {
    uint64_t each_ns = took_ns / (ran ? ran : 1) + 1;
    uint64_t fit = VISIT_NS / each_ns, grown = ran >= count ? (uint64_t)count * 2 : count;
    uint64_t most = grown < COUNT_MOST ? grown : COUNT_MOST;
    return fit < 1 ? 1 : (uint32_t)(fit < most ? fit : most);
}

uint32_t visit_count(const struct runner *r) {
    return r->count ? r->count : 1;
}

// ---- The sole runner --------------------------------------------------------------------------

static bool is_sole(const struct runner *r) {
    return atomic_load_explicit(&r->worker->sole, memory_order_relaxed) == r;
}

bool visit_is_surplus(const struct runner *r) {
    const struct runner *sole = atomic_load_explicit(&r->worker->sole, memory_order_relaxed);
    return sole && sole != r && visit_count(r) >= SOLE_COUNT;
}

static void sole_begins(struct runner *r) {
    struct runner *none = NULL;
    if (!is_sole(r))
        atomic_compare_exchange_strong(&r->worker->sole, &none, r);
}

static void sole_ends(struct runner *r) {
    struct runner *self = r;
    if (is_sole(r))
        atomic_compare_exchange_strong(&r->worker->sole, &self, NULL);
}

void visit_leave(struct runner *r) {
    sole_ends(r);
}

// ---- The runner -------------------------------------------------------------------------------

// They are committed in the order in which they ran.
void visit_note_ended(struct runner *r, mr_job *job) {
    mr_job *first = chain_take(&r->run);
    if (first)
        r->run_last->next = job;
    r->run_last = job;
    job->next = NULL;
    chain_put(&r->run, first ? first : job);
}

// The next job that was taken together with those that have run.
static mr_job *next_held(struct runner *r) {
    mr_job *job = chain_take(&r->held);
    if (!job)
        return NULL;
    if (!pool_may_go_on(r->worker)) {
        release_all(r->worker, job);
        return NULL;
    }
    chain_put(&r->held, job->next);
    job->next = NULL;
    return job;
}

mr_job *visit_end(struct runner *r) {
    struct worker *w = r->worker;
    mr_job *ended = chain_take(&r->run), *next = NULL;
    if (!ended)
        return NULL;
    if (!pool_may_go_on(w) || visit_is_surplus(r)) {
        commit_each(w, ended);
        return NULL;
    }
    struct pull pull = w->pull;
    uint32_t committed = 0;
    pull.wait_ms = 0;
    pull.count = visit_count(r);
    if (w->engine->impl->done_take(ended, &pull, &committed, &next) < 0)
        next = NULL; // the take that follows returns why
    worker_count_completed(w, committed);
    return next;
}

mr_job *visit_run(struct runner *r, mr_job *job) {
    uint64_t began_ns = monotonic_ns(), now_ns = began_ns;
    uint32_t ran = 0;
    atomic_store_explicit(&r->visits, true, memory_order_relaxed);
    if (job->next) {
        chain_put(&r->held, job->next);
        job->next = NULL;
    }
    if (is_sole(r) || atomic_load_explicit(&r->held, memory_order_relaxed))
        visits_watch(r->worker);
    for (; job; job = next_held(r), ran++)
        now_ns = runner_run_one(r, job, now_ns);
    now_ns = now_ns ? now_ns : monotonic_ns();
    r->count = count_after(visit_count(r), ran, now_ns - began_ns);
    if (r->count >= SOLE_COUNT)
        sole_begins(r);
    else
        sole_ends(r);
    atomic_store_explicit(&r->visits, false, memory_order_relaxed);
    return visit_end(r);
}

// ---- The beater -------------------------------------------------------------------------------

void visits_watch(struct worker *w) {
    if (atomic_load_explicit(&w->watches_visits, memory_order_relaxed))
        return;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->watches_visits, true);
    pthread_cond_signal(&w->beat_due);
    pthread_mutex_unlock(&w->lock);
}

// Whether jobs wait for its handler.
static bool is_waited_for(struct runner *r) {
    return atomic_load_explicit(&r->held, memory_order_relaxed) ||
           atomic_load_explicit(&r->run, memory_order_relaxed) ||
           (is_sole(r) && atomic_load_explicit(&r->visits, memory_order_relaxed));
}

// Whether to look again. If its handler has gone on since the last look, what waits is taken from
// it, and other threads may run jobs.
static bool look_at_runner(struct worker *w, struct runner *r) {
    if (!is_waited_for(r))
        return false;
    uint64_t begun = atomic_load_explicit(&r->begun, memory_order_relaxed);
    bool stuck = begun == r->begun_before;
    r->begun_before = begun;
    if (stuck && !MUTANT(jobs_wait_behind_a_slow_handler)) {
        sole_ends(r);
        commit_each(w, chain_take(&r->run));
        release_all(w, chain_take(&r->held));
    }
    return true;
}

uint64_t visits_look(struct worker *w) {
    if (!atomic_load(&w->watches_visits))
        return UINT64_MAX;
    uint32_t made = w->made;
    bool any = false;
    pthread_mutex_unlock(&w->lock);
    for (uint32_t i = 0; i < made; i++)
        any = look_at_runner(w, &w->runners[i]) || any;
    pthread_mutex_lock(&w->lock);
    if (any && !w->options.own_loop)
        (void)pool_call(w);
    else if (!any)
        atomic_store(&w->watches_visits, false);
    return any ? monotonic_ms() + LOOK_MS : UINT64_MAX;
}
