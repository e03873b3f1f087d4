// The tuner in its worker: fed by the threads, one at a time; its level is read without a lock.
#include "base/clock.h"
#include "work/idle.h"
#include "work/neighbours.h"
#include "work/state.h"

#include <unistd.h>

enum { LOOKS = 2 }; // at the machine, in a row, that have to find it idle

static uint32_t processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > WORKER_JOBS ? WORKER_JOBS : (uint32_t)count;
}

void worker_tune(struct worker *w) {
    struct tuner_options fixed = { .kind = TUNER_FIXED, .first = w->options.jobs };
    struct tuner_options tuned = { .kind = TUNER_PROBE, .first = processors() };
    const struct tuner_options *o = w->options.tuner;
    if (!o)
        o = w->options.jobs ? &fixed : &tuned;
    tuner_init(&w->tuner, o);
    w->options.tuner = NULL; // the caller's
    w->most = o->kind == TUNER_FIXED ? w->tuner.level : w->tuner.options.most;
    atomic_init(&w->limit, w->most);
    atomic_init(&w->level, tuner_level(&w->tuner));
    atomic_init(&w->asks_idle, tuner_asks_idle(&w->tuner));
    if (!w->options.is_idle)
        w->options.is_idle = machine_is_idle;
    if (o->kind != TUNER_FIXED)
        neighbours_join();
}

void worker_untune(struct worker *w) {
    if (w->tuner.options.kind != TUNER_FIXED)
        neighbours_leave();
}

uint32_t worker_level(const struct worker *w) {
    uint32_t level = atomic_load_explicit(&w->level, memory_order_relaxed);
    uint32_t limit = atomic_load_explicit(&w->limit, memory_order_relaxed);
    return level < limit ? level : limit;
}

void worker_limit(struct worker *w, uint32_t threads) {
    atomic_store(&w->limit, threads > 0 ? threads : 1);
}

// Counts a completion for the other tuners, and theirs for this one.
static void worker_meet_others(struct worker *w, struct tuner_event *e) {
    uint64_t completed;
    e->others = e->kind == TUNER_COMPLETED ? neighbours_count(e->now_ns / 1000000, &completed) : 0;
    if (e->others > 0)
        e->others_completed = completed - ++w->tuned_completed;
}

static void worker_feed_tuner(struct worker *w, struct tuner_event *e) {
    pthread_mutex_lock(&w->tuner_lock);
    worker_meet_others(w, e);
    tuner_feed(&w->tuner, e);
    atomic_store_explicit(&w->level, tuner_level(&w->tuner), memory_order_relaxed);
    if (atomic_load_explicit(&w->asks_idle, memory_order_relaxed) && !tuner_asks_idle(&w->tuner))
        atomic_store_explicit(&w->asks_idle, false, memory_order_relaxed);
    pthread_mutex_unlock(&w->tuner_lock);
}

uint64_t worker_watch_idle(struct worker *w) {
    uint32_t in_flight = pool_in_flight(w);
    if (!atomic_load(&w->asks_idle) || in_flight == 0) {
        w->busy_looks = 0;
        return UINT64_MAX;
    }
    bool is_idle = in_flight >= worker_level(w) && w->options.is_idle();
    w->idle_looks = is_idle ? w->idle_looks + 1 : 0;
    w->busy_looks = is_idle ? 0 : w->busy_looks + 1;
    if (w->idle_looks == LOOKS) {
        w->idle_looks = 0;
        worker_feed_tuner(w, &(struct tuner_event){ .kind = TUNER_IDLE, .now_ns = monotonic_ns() });
        pool_call(w);
    }
    return monotonic_ms() + idle_look_ms(w->busy_looks);
}

uint64_t worker_now(const struct worker *w) {
    return w->tuner.options.kind == TUNER_FIXED ? 0 : monotonic_ns();
}

void worker_count_completed(struct worker *w, uint32_t jobs) {
    atomic_fetch_add_explicit(&w->completed, jobs, memory_order_relaxed);
}

uint64_t worker_completed(struct worker *w, uint64_t started_ns) {
    if (w->tuner.options.kind == TUNER_FIXED)
        return 0;
    uint64_t now_ns = monotonic_ns();
    worker_feed_tuner(w, &(struct tuner_event){ .kind = TUNER_COMPLETED,
                                                .in_flight = pool_in_flight(w),
                                                .now_ns = now_ns,
                                                .ran_ns = started_ns ? now_ns - started_ns : 0 });
    return now_ns;
}

void worker_starved(struct worker *w) {
    if (w->tuner.options.kind != TUNER_FIXED)
        worker_feed_tuner(w,
                          &(struct tuner_event){ .kind = TUNER_STARVED, .now_ns = monotonic_ns() });
}

void worker_look(struct worker *w, struct worker_info *out) {
    pthread_mutex_lock(&w->lock);
    out->threads = w->alive;
    pthread_mutex_unlock(&w->lock);
    out->in_flight = pool_in_flight(w);
    out->completed = atomic_load(&w->completed);
    out->level = worker_level(w);
    pthread_mutex_lock(&w->tuner_lock);
    out->choice = tuner_choice(&w->tuner);
    out->steps = tuner_path(&w->tuner, out->path);
    tuner_describe(&w->tuner, out->why, sizeof out->why);
    pthread_mutex_unlock(&w->tuner_lock);
}
