// The threads of a worker: each takes, runs and ends one job after another.
#include "base/errors.h"
#include "base/mem.h"
#include "work/state.h"

#include <string.h>
#include <unistd.h>

enum { REST_MS = 100 }; // after a take that failed

uint32_t worker_level(const struct worker *w) {
    if (w->options.jobs)
        return w->options.jobs;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > WORKER_JOBS ? WORKER_JOBS : (uint32_t)cpus;
}

// For every job that the handler kept, one thread pauses.
static void pause_for_kept(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    while (!atomic_load(&w->stopping) && w->paused < atomic_load(&w->kept)) {
        w->paused++;
        worker_sleep(w, &w->changed, UINT64_MAX);
        w->paused--;
    }
    pthread_mutex_unlock(&w->lock);
}

static void rest(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->stopping))
        worker_sleep(w, &w->changed, worker_now_ms() + REST_MS);
    pthread_mutex_unlock(&w->lock);
}

static void pull_and_run(struct runner *r) {
    struct worker *w = r->worker;
    while (!atomic_load(&w->stopping)) {
        if (atomic_load(&w->kept) > 0)
            pause_for_kept(w);
        mr_job *job;
        int err = w->engine->impl->take(w->puller, &w->pull, &job);
        if (err == MR_ESTOPPED)
            return;
        if (err < 0 && err != MR_EAGAIN)
            rest(w);
        if (err < 0)
            continue;
        beater_note(w, job);
        runner_run(r, job);
    }
}

static void *pool_thread(void *arg) {
    struct runner *r = arg;
    struct worker *w = r->worker;
    pull_and_run(r);
    pthread_mutex_lock(&w->lock);
    w->alive--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int pool_start(struct worker *w) {
    int failed = 0;
    pthread_mutex_lock(&w->lock);
    while (!failed && w->alive < w->runner_count) {
        struct runner *r = &w->runners[w->alive];
        failed = pthread_create(&r->thread, NULL, pool_thread, r);
        w->alive += failed == 0;
    }
    w->thread_count = w->alive;
    pthread_mutex_unlock(&w->lock);
    if (failed)
        return error_set(MR_ENOMEM, "no more than %u threads of %u for a worker: %s",
                         w->thread_count, w->runner_count, strerror(failed));
    return 0;
}

void pool_join(struct worker *w) {
    for (uint32_t i = 0; i < w->thread_count; i++)
        pthread_join(w->runners[i].thread, NULL);
}
