// The threads of a worker: each takes, runs and ends one job after another.
//
//     made ──► taking ──► running ──► taking …
//                 ▲           │ too many
//          called └── parked ◄┘                      idle or parked for long: it leaves
//
// No more threads are active (taking or running) than the level allows, less the jobs kept with
// MR_LATER: for each of those one thread steps down. While there is room, one thread more than run
// is taking, so that work never waits for a thread; a thread that takes a job and sees no other
// taking calls another, a parked one if there is one. So threads are made only for work that waits,
// and an idle worker keeps one, asleep in its take.
//
// The counts are atomic, so that a job costs no lock here; parking and making threads need the
// lock.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mutant.h"
#include "work/state.h"

#include <assert.h>
#include <string.h>

enum {
    REST_MS = 100,  // after a take that failed
    IDLE_MS = 1000, // a thread too many leaves after this
};

// Jobs in flight: those that threads run, and those that handlers kept.
uint32_t pool_in_flight(const struct worker *w) {
    int64_t running = (int64_t)atomic_load(&w->active) - atomic_load(&w->taking);
    int64_t in_flight = running + atomic_load(&w->kept);
    return in_flight > 0 ? (uint32_t)in_flight : 0;
}

static int64_t room(const struct worker *w) {
    return (int64_t)worker_level(w) + MUTANT(one_more_than_the_level) - atomic_load(&w->active) -
           atomic_load(&w->kept);
}

bool pool_may_go_on(const struct worker *w) {
    return room(w) >= 0 && !atomic_load(&w->stopping);
}

// ---- Making and calling threads ---------------------------------------------------------------

static void *pool_thread(void *arg);

// With the lock: a runner without a thread. One whose thread has left is used again as it is,
// because jobs that were kept may still report their end to it; the thread has to be joined first.
static struct runner *free_runner(struct worker *w) {
    struct runner *r = w->left;
    if (!r) {
        assert(w->made < w->most);
        r = &w->runners[w->made++];
        runner_init(r, w);
        return r;
    }
    w->left = r->next_left;
    if (r->threaded)
        pthread_join(r->thread, NULL);
    return r;
}

static void runner_leaves(struct worker *w, struct runner *r, bool threaded) {
    r->threaded = threaded;
    r->next_left = w->left;
    w->left = r;
}

static int make_thread(struct worker *w) {
    struct runner *r = free_runner(w);
    int failed = pthread_create(&r->thread, NULL, pool_thread, r);
    if (failed) {
        runner_leaves(w, r, false);
        return error_set(MR_ENOMEM, "no more than %u threads for a worker: %s", w->alive,
                         strerror(failed));
    }
    w->alive++;
    return 0;
}

static bool wants_another(const struct worker *w) {
    return atomic_load(&w->taking) == 0 && room(w) > 0 && !atomic_load(&w->stopping) &&
           !atomic_load_explicit(&w->sole, memory_order_relaxed);
}

// The thread is counted at once, so that no other thread calls one more meanwhile.
int pool_call(struct worker *w) {
    if (!wants_another(w))
        return 0;
    bool idle = w->alive > atomic_load(&w->active) + w->waiting;
    if (!idle && w->alive == w->most)
        return 0; // a handler has ended its job but not returned: its thread will go on
    atomic_fetch_add(&w->active, 1);
    atomic_fetch_add(&w->taking, 1);
    if (idle) { // parked, or about to park or to leave: it looks for calls before it does
        w->calls++;
        pthread_cond_signal(&w->called);
        return 0;
    }
    int err = make_thread(w);
    if (err < 0) { // the level stays where the system's limit is
        atomic_fetch_sub(&w->active, 1);
        atomic_fetch_sub(&w->taking, 1);
        worker_limit(w, w->alive);
    }
    return err;
}

static void pool_fill(struct worker *w) {
    if (w->options.own_loop || !wants_another(w))
        return;
    pthread_mutex_lock(&w->lock);
    pool_call(w);
    pthread_mutex_unlock(&w->lock);
}

// ---- A thread's life --------------------------------------------------------------------------

// Takes count down to `least` and no further: true for one that was above it.
static bool count_down(_Atomic uint32_t *count, int64_t least) {
    uint32_t now = atomic_load(count);
    while ((int64_t)now > least)
        if (atomic_compare_exchange_weak(count, &now, now - 1))
            return true;
    return false;
}

// True: too many threads are active, and this one has stopped being so.
static bool step_down(struct worker *w) {
    return room(w) < 0 && count_down(&w->active, (int64_t)worker_level(w) - atomic_load(&w->kept));
}

static void rest(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->stopping))
        worker_sleep(w, &w->changed, monotonic_ms() + REST_MS);
    pthread_mutex_unlock(&w->lock);
}

// Takes at once, if there is work; else the tuner is fed that there is none, and the thread waits:
// for ever if it is the only one.
static int take(struct runner *r, mr_job **out) {
    struct worker *w = r->worker;
    struct pull pull = w->pull;
    pull.count = visit_count(r);
    pull.wait_ms = 0;
    pull.level = worker_level(w);
    int err = w->engine->impl->take(w->puller, &pull, out);
    if (err != MR_EAGAIN)
        return err;
    worker_starved(w);
    pull.wait_ms = atomic_load(&w->taking) > 1 ? IDLE_MS : MR_FOREVER;
    return w->engine->impl->take(w->puller, &pull, out);
}

// Whether no job is taken together with others of its channel: then jobs may be taken together with
// those of other channels.
static bool runs_alone(const struct worker *w) {
    return w->visits && w->pull.batch == 1;
}

// Runs one job after another until the thread is not needed. Returns whether it may be called
// again.
static bool pull_and_run(struct runner *r) {
    struct worker *w = r->worker;
    while (!atomic_load(&w->stopping)) {
        mr_job *job;
        int err = take(r, &job);
        if (err == MR_ESTOPPED)
            break;
        if (err == MR_EAGAIN && count_down(&w->taking, 1)) {
            atomic_fetch_sub(&w->active, 1);
            return false;
        }
        if (err < 0 && err != MR_EAGAIN)
            rest(w);
        if (err < 0)
            continue;
        atomic_fetch_sub(&w->taking, 1);
        while (job) {
            pool_fill(w);
            beater_note(w, job);
            job = runs_alone(w) ? visit_run(r, job) : runner_run(r, job);
        }
        if (visit_is_surplus(r)) {
            atomic_fetch_sub(&w->active, 1);
            return true;
        }
        if (step_down(w))
            return true;
        atomic_fetch_add(&w->taking, 1);
    }
    atomic_fetch_sub(&w->taking, 1);
    atomic_fetch_sub(&w->active, 1);
    return false;
}

// With the lock: waits to be called; the last thread for ever, since the system may not give
// another one when kept jobs have ended. 0: it does not wait. False: it was not called in time.
static bool park(struct worker *w, uint64_t until_ms) {
    while (w->calls == 0 && !atomic_load(&w->stopping) && until_ms &&
           (w->alive == 1 || monotonic_ms() < until_ms))
        worker_sleep(w, &w->called, w->alive == 1 ? UINT64_MAX : until_ms);
    bool called = w->calls > 0;
    w->calls -= called;
    return called;
}

static void *pool_thread(void *arg) {
    struct runner *r = arg;
    struct worker *w = r->worker;
    for (bool again = true; again;) {
        bool parks = pull_and_run(r);
        visit_leave(r);
        pthread_mutex_lock(&w->lock);
        if (parks)
            pool_call(w); // what made room meanwhile found this thread still active
        again = park(w, parks ? monotonic_ms() + IDLE_MS : 0);
        if (!again) {
            w->alive--;
            runner_leaves(w, r, true);
            pthread_cond_broadcast(&w->changed);
        }
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

int pool_start(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    int err = pool_call(w);
    pthread_mutex_unlock(&w->lock);
    return err;
}

void pool_join(struct worker *w) {
    for (struct runner *r = w->left; r; r = r->next_left)
        if (r->threaded)
            pthread_join(r->thread, NULL);
}
