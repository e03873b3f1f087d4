// A worker's life: opening puller, threads or loop; draining; freeing.
#include "work/worker.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "work/state.h"

#include <string.h>

void worker_sleep(struct worker *w, pthread_cond_t *cond, uint64_t until_ms) {
    cond_wait_until(cond, &w->lock, until_ms);
}

// ---- Opening ----------------------------------------------------------------------------------

// Copies of the stages' names: an array of mr_bytes, then the bytes.
static int copy_names(struct worker *w, const struct worker_options *o) {
    size_t size = o->stage_count * sizeof(mr_bytes);
    for (size_t i = 0; i < o->stage_count; i++)
        size += o->stages[i].size;
    mr_bytes *names = mem_alloc(size);
    if (!names)
        return error_set(MR_ENOMEM, "no memory for a worker");
    uint8_t *to = (uint8_t *)(names + o->stage_count);
    for (size_t i = 0; i < o->stage_count; i++) {
        memcpy(to, o->stages[i].data, o->stages[i].size);
        names[i] = (mr_bytes){ to, o->stages[i].size };
        to += o->stages[i].size;
    }
    w->names = names;
    w->options.stages = names;
    w->pull = (struct pull){ .stages = names,
                             .stage_count = o->stage_count,
                             .batch = o->batch,
                             .lease_ms = o->lease_ms,
                             .wait_ms = MR_FOREVER };
    return 0;
}

static int make_runners(struct worker *w) {
    uint32_t count = w->options.own_loop ? 1 : w->most;
    w->runners = mem_alloc(count * sizeof *w->runners); // only what is used is ever touched
    if (!w->runners)
        return error_set(MR_ENOMEM, "no memory for %u threads", count);
    runner_init(&w->runners[0], w);
    return 0;
}

static void worker_init(struct worker *w, struct engine *engine, const struct worker_options *o) {
    w->engine = engine;
    w->options = *o;
    w->visits = engine->impl->done_take && !o->own_loop;
    w->epoll_fd = w->ring_fd = w->timer_fd = -1;
    atomic_init(&w->beat_at_ms, UINT64_MAX);
    worker_tune(w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->tuner_lock, NULL);
    cond_init(&w->changed);
    cond_init(&w->called);
    cond_init(&w->beat_due);
}

static int worker_start(struct worker *w, const struct worker_options *o) {
    int err = copy_names(w, o);
    if (err >= 0)
        err = make_runners(w);
    if (err >= 0 && o->own_loop)
        err = loop_open(w);
    if (err >= 0 && !o->own_loop)
        err = beater_start(w);
    if (err < 0)
        return err;
    struct puller_options puller = { .on_stop = o->on_stop ? worker_on_stop : NULL,
                                     .ring = o->own_loop ? loop_ring : NULL,
                                     .arg = w,
                                     .handlers = true };
    err = w->engine->impl->puller_open(w->engine, &puller, &w->puller);
    return err < 0 || o->own_loop ? err : pool_start(w);
}

static void worker_free(struct worker *w) {
    beater_stop(w);
    worker_untune(w);
    w->engine->impl->puller_close(w->puller);
    loop_close(w);
    mem_free(w->runners);
    mem_free(w->names);
    pthread_cond_destroy(&w->changed);
    pthread_cond_destroy(&w->called);
    pthread_cond_destroy(&w->beat_due);
    pthread_mutex_destroy(&w->tuner_lock);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

int worker_open(struct engine *engine, const struct worker_options *o, struct worker **out) {
    struct worker *w = mem_alloc(sizeof *w);
    if (!w)
        return error_set(MR_ENOMEM, "no memory for a worker");
    worker_init(w, engine, o);
    int err = worker_start(w, o);
    if (err < 0) {
        worker_stop(w, MR_FOREVER);
        return err;
    }
    *out = w;
    return 0;
}

// ---- Stopping ---------------------------------------------------------------------------------

static bool worker_drain(struct worker *w, int64_t wait_ms) {
    uint64_t until = wait_ms < 0 ? UINT64_MAX : monotonic_ms() + (uint64_t)wait_ms;
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    pthread_cond_broadcast(&w->called);
    while ((w->alive > 0 || atomic_load(&w->kept) != 0) && monotonic_ms() < until)
        worker_sleep(w, &w->changed, until);
    bool drained = w->alive == 0 && atomic_load(&w->kept) == 0;
    pthread_mutex_unlock(&w->lock);
    return drained;
}

int worker_stop(struct worker *w, int64_t wait_ms) {
    if (worker_is_calling(w))
        return error_set(MR_EBUSY, "a worker cannot be stopped by its own handler: stop it from "
                                   "another thread");
    atomic_store(&w->stopping, true);
    if (w->puller)
        w->engine->impl->puller_interrupt(w->puller);
    if (!worker_drain(w, wait_ms))
        return error_set(MR_EBUSY, "jobs of the worker are still running: it takes no more, call "
                                   "again to wait on");
    pool_join(w);
    worker_free(w);
    return 0;
}
