// The beater: one thread that keeps the leases of a worker, a third of their time at a time. It
// sleeps until the earliest lease needs a beat; a thread that takes a job wakes it only when that
// is earlier, which happens once for every busy period. Until the first jobs have ended it also
// watches whether they leave the machine idle, and it looks after jobs that wait behind a handler
// (visit.c).
#include "base/clock.h"
#include "base/errors.h"
#include "base/mutant.h"
#include "work/state.h"

#include <string.h>

enum { BEATS_PER_LEASE = 3 };

static void *beater_thread(void *arg) {
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->beater_stops) {
        uint64_t visits_at = visits_look(w), look_at = worker_watch_idle(w);
        uint64_t at = atomic_load(&w->beat_at_ms);
        w->watches = look_at != UINT64_MAX;
        look_at = look_at < visits_at ? look_at : visits_at;
        if (monotonic_ms() < at) {
            if (!w->beater_stops)
                worker_sleep(w, &w->beat_due, at < look_at ? at : look_at);
            continue;
        }
        atomic_store(&w->beat_at_ms, UINT64_MAX);
        pthread_mutex_unlock(&w->lock);
        int64_t next_ms = w->engine->impl->beat_all(w->puller);
        pthread_mutex_lock(&w->lock);
        uint64_t next_at = next_ms < 0 ? UINT64_MAX : monotonic_ms() + (uint64_t)next_ms;
        if (next_at < atomic_load(&w->beat_at_ms))
            atomic_store(&w->beat_at_ms, next_at);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void beater_note(struct worker *w, const mr_job *job) {
    uint64_t due = job->lease_from_ms + job->lease_ms / BEATS_PER_LEASE;
    if (due >= atomic_load_explicit(&w->beat_at_ms, memory_order_acquire) &&
        (!atomic_load_explicit(&w->asks_idle, memory_order_relaxed) || atomic_load(&w->watches)))
        return;
    pthread_mutex_lock(&w->lock);
    if (due < atomic_load(&w->beat_at_ms) && !MUTANT(worker_does_not_beat))
        atomic_store(&w->beat_at_ms, due);
    pthread_cond_signal(&w->beat_due);
    pthread_mutex_unlock(&w->lock);
}

int beater_start(struct worker *w) {
    int failed = pthread_create(&w->beater, NULL, beater_thread, w);
    if (failed)
        return error_set(MR_ENOMEM, "no thread for a worker: %s", strerror(failed));
    w->beats = true;
    return 0;
}

void beater_stop(struct worker *w) {
    if (!w->beats)
        return;
    pthread_mutex_lock(&w->lock);
    w->beater_stops = true;
    pthread_cond_signal(&w->beat_due);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->beater, NULL);
    w->beats = false;
}
