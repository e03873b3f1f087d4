// One job: the handler is called with no lock held, and what it returns decides. The first thread
// that claims the job ends it: this one after the handler, or another thread of the program.
#include "base/clock.h"
#include "base/mutant.h"
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
static void runner_job_ended(struct leased_job_owner *owner, uint64_t run, int outcome) {
    struct runner *r = (struct runner *)owner;
    struct worker *w = r->worker;
    pthread_mutex_lock(&w->lock);
    if (atomic_load(&r->begun) == run) {
        r->ended = run;
        r->outcome = outcome;
        if (r->waits_ended) { // its thread goes on in the job's place
            atomic_fetch_add(&w->active, 1);
            w->waiting--;
        }
        r->waits_ended = false;
    }
    if (outcome == 0) {
        worker_count_completed(w, 1);
        worker_completed(w, 0);
    }
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

void runner_release(struct worker *w, mr_job *job) {
    leased_job_claim(job);
    w->engine->impl->release(job, 0, FINISH_UNPIN);
}

// Calls the handler. 0: the job is to be committed; MR_LATER: it is kept; else it has failed or was
// not begun, and its lease may be over.
static int runner_call(struct runner *r, mr_job *job) {
    struct worker *w = r->worker;
    job->owner = &r->owner;
    job->run = r->begun + 1;
    atomic_store_explicit(&r->begun, job->run, memory_order_release);
    if (!leased_job_start(job) &&
        !MUTANT(stopped_job_begun)) { // stopped before it began: there is nothing to commit
        runner_release(w, job);
        return MR_ESTALE;
    }
    int answer = call_handler(w, job);
    if (answer == MR_LATER || !leased_job_claim(job))
        return keep_job(w, job);
    return answer == 0 || MUTANT(failure_committed) ? 0 : fail_job(w, job, answer);
}

uint64_t runner_run_one(struct runner *r, mr_job *job, uint64_t started_ns) {
    struct worker *w = r->worker;
    if (runner_call(r, job) != 0)
        return worker_now(w);
    visit_note_ended(r, job);
    return worker_completed(w, started_ns);
}

static int wait_until_ended(struct runner *r) {
    struct worker *w = r->worker;
    uint64_t run = r->begun;
    pthread_mutex_lock(&w->lock);
    if (r->ended != run) { // until then the job counts, and not its thread
        r->waits_ended = true;
        w->waiting++;
        atomic_fetch_sub(&w->active, 1);
    }
    while (r->ended != run)
        worker_sleep(w, &w->changed, UINT64_MAX);
    int outcome = r->outcome;
    pthread_mutex_unlock(&w->lock);
    return outcome;
}

// The last of those taken together is committed by the next visit.
static int runner_commit(struct runner *r, mr_job *job, bool is_last) {
    struct worker *w = r->worker;
    if (is_last && w->visits) {
        visit_note_ended(r, job);
        return 0;
    }
    int err = w->engine->impl->done(job, FINISH_UNPIN);
    if (err >= 0)
        worker_count_completed(w, 1);
    return err;
}

mr_job *runner_run(struct runner *r, mr_job *job) {
    struct worker *w = r->worker;
    int outcome = 0;
    uint64_t started_ns = worker_now(w);
    for (mr_job *next; job; job = next) {
        next = job->next;
        if (next && !next->follows)
            job->next = NULL; // another lease: that job may end first, and be another one then
        bool lost = job->follows && outcome < 0 && !MUTANT(block_goes_on_after_its_loss) &&
                    w->engine->impl->beat(job) < 0;
        if (lost || atomic_load(&w->stopping)) {
            runner_release(w, job);
            continue;
        }
        outcome = runner_call(r, job);
        if (outcome == 0)
            outcome = runner_commit(r, job, !next);
        if (outcome == 0)
            started_ns = worker_completed(w, started_ns);
        if (outcome == MR_LATER && next && next->follows)
            outcome = wait_until_ended(r);
    }
    return visit_end(r);
}
