// One job: the handler is called with no lock held, and what it returns decides. The first thread
// that claims the job ends it: this one after the handler, or another thread of the program.
#include "base/clock.h"
#include "work/state.h"

#include <stdio.h>

static _Thread_local const struct worker *calling;

bool worker_is_calling(const struct worker *w) {
    return calling == w;
}

void worker_on_stop(mr_job *job, void *worker) {
    struct worker *w = worker;
    const struct worker *before = calling;
    calling = w;
    w->options.on_stop(job, w->options.arg);
    calling = before;
}

// A job that this worker's handler kept was ended through the api.
static void runner_job_ended(struct leased_job_owner *owner, mr_id id, int outcome) {
    struct runner *r = (struct runner *)owner;
    struct worker *w = r->worker;
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&r->current) == id) {
        r->ended = id;
        r->outcome = outcome;
        if (r->waits_ended) { // its thread goes on in the job's place
            atomic_fetch_add(&w->active, 1);
            w->waiting--;
        }
        r->waits_ended = false;
    }
    if (outcome == 0)
        worker_completed(w, 0);
    atomic_fetch_sub(&w->kept, 1);
    if (w->options.own_loop)
        loop_ring(w);
    else
        pool_call(w);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void runner_init(struct runner *r, struct worker *w) {
    r->owner.ended = runner_job_ended;
    r->worker = w;
}

static int call_handler(struct worker *w, mr_job *job) {
    const struct worker *before = calling;
    calling = w;
    int answer = w->options.handler(job, w->options.arg);
    calling = before;
    return answer;
}

static int fail_job(struct worker *w, mr_job *job, int answer) {
    char text[64];
    snprintf(text, sizeof text, "the handler returned %d", answer);
    const char *own = leased_job_reason(job);
    mr_bytes reason = mr_str(own ? own : text);
    int err = w->engine->impl->fail(job, reason, MR_BACKOFF, FINISH_UNPIN);
    return err < 0 ? err : MR_ESTALE; // in any case the lease is over
}

// The program keeps the job, or has ended it already: runner_job_ended counts `kept` down.
static int keep_job(struct worker *w, mr_job *job) {
    atomic_fetch_add(&w->kept, 1);
    w->engine->impl->unpin(job);
    return MR_LATER;
}

// Commits; and takes the next one with it, if the thread may go on.
static int commit_job(struct worker *w, mr_job *job, mr_job **out_next) {
    const struct engine_impl *impl = w->engine->impl;
    if (!out_next || !impl->done_take || !pool_may_go_on(w))
        return impl->done(job, FINISH_UNPIN);
    struct pull pull = w->pull;
    int outcome = 0;
    pull.wait_ms = 0;
    if (impl->done_take(job, &pull, &outcome, out_next) < 0)
        *out_next = NULL; // the take that follows returns why
    return outcome;
}

static void runner_release(struct worker *w, mr_job *job) {
    leased_job_claim(job);
    w->engine->impl->release(job, 0, FINISH_UNPIN);
}

// 0: committed; MR_LATER: kept; else its lease may be over.
static int runner_run_job(struct runner *r, mr_job *job, mr_job **out_next) {
    struct worker *w = r->worker;
    job->owner = &r->owner;
    atomic_store(&r->current, job->id);
    if (!leased_job_start(job)) { // stopped before it began: there is nothing to commit
        runner_release(w, job);
        return MR_ESTALE;
    }
    int answer = call_handler(w, job);
    if (answer == MR_LATER || !leased_job_claim(job))
        return keep_job(w, job);
    return answer == 0 ? commit_job(w, job, out_next) : fail_job(w, job, answer);
}

static int wait_until_ended(struct runner *r, mr_id id) {
    struct worker *w = r->worker;
    pthread_mutex_lock(&w->lock);
    if (r->ended != id) { // until then the job counts, and not its thread
        r->waits_ended = true;
        w->waiting++;
        atomic_fetch_sub(&w->active, 1);
    }
    while (r->ended != id)
        worker_sleep(w, &w->changed, UINT64_MAX);
    int outcome = r->outcome;
    pthread_mutex_unlock(&w->lock);
    return outcome;
}

mr_job *runner_run(struct runner *r, mr_job *job) {
    struct worker *w = r->worker;
    mr_job *taken = NULL;
    int outcome = 0;
    uint64_t started_ns = monotonic_ns();
    for (mr_job *next; job; job = next) {
        next = job->next;
        mr_id id = job->id;
        bool lost = job->follows && outcome < 0 && w->engine->impl->beat(job) < 0;
        if (lost || atomic_load(&w->stopping)) {
            runner_release(w, job);
            continue;
        }
        outcome = runner_run_job(r, job, next || w->options.own_loop ? NULL : &taken);
        if (outcome == 0)
            started_ns = worker_completed(w, started_ns);
        if (outcome == MR_LATER && next && next->follows)
            outcome = wait_until_ended(r, id);
    }
    return taken;
}
