// Workers: the checks, then the worker runtime.
#include "api/handle.h"
#include "base/errors.h"

static int check_work(const mr_work_options *o) {
    int err = check_time("lease_ms", o->lease_ms);
    if (err >= 0 && o->jobs > WORKER_JOBS)
        err = error_set(MR_EINVAL, "%u jobs at once: %d at most", o->jobs, WORKER_JOBS);
    if (err >= 0 && o->batch > TAKE_MOST)
        err = error_set(MR_EINVAL, "a batch of %u is too large: %d at most", o->batch, TAKE_MOST);
    if (err >= 0 && o->own_loop && o->batch > 1)
        err = error_set(MR_EINVAL, "a worker with own_loop takes one job at a time: leave batch 0");
    if (err >= 0)
        err = check_reserved(o->reserved, sizeof o->reserved / sizeof *o->reserved);
    return err;
}

static int check_stage_new(const mr_bytes *stages, int count) {
    mr_bytes last = stages[count];
    for (int i = 0; i < count; i++)
        if (stages[i].size == last.size && memcmp(stages[i].data, last.data, last.size) == 0)
            return error_set(MR_EINVAL, "stage '%.*s' is named twice", (int)last.size,
                             (const char *)last.data);
    return 0;
}

// `stage`, then more_stages. Returns how many, or a negative code.
static int gather_stages(const char *stage, const char *const *more, mr_bytes *out) {
    int err = check_stage_name(stage, &out[0]);
    int count = 1;
    for (; err >= 0 && more && *more; more++, count++) {
        if (count == TAKE_STAGES_MOST)
            return error_set(MR_EINVAL, "a worker serves at most %d stages", TAKE_STAGES_MOST);
        err = check_stage_name(*more, &out[count]);
        if (err >= 0)
            err = check_stage_new(out, count);
    }
    return err < 0 ? err : count;
}

int mr_work(mr *m, const char *stage, mr_handler *handler, void *arg, const mr_work_options *o,
            mr_worker **out) {
    static const mr_work_options defaults;
    mr_bytes stages[TAKE_STAGES_MOST];
    o = o ? o : &defaults;
    int err = check_open_engine(m);
    int count = err < 0 ? err : gather_stages(stage, o->more_stages, stages);
    if (count < 0)
        return count;
    if (!handler)
        return error_set(MR_EINVAL, "the handler is NULL: give a function to run");
    err = check_pointer("the place for the worker", out);
    if (err >= 0)
        err = check_work(o);
    if (err < 0)
        return err;
    mr_worker *w = handle_worker();
    if (!w)
        return MR_EFULL;
    struct worker_options options = { .stages = stages,
                                      .stage_count = (size_t)count,
                                      .handler = handler,
                                      .arg = arg,
                                      .on_stop = o->on_stop,
                                      .jobs = o->jobs,
                                      .batch = o->batch ? o->batch : 1,
                                      .own_loop = o->own_loop != 0,
                                      .lease_ms = o->lease_ms };
    err = worker_open(m->engine, &options, &w->worker);
    if (err < 0) {
        atomic_store(&w->open, false);
        return err;
    }
    *out = w;
    return 0;
}

int mr_worker_stop(mr_worker *w, int64_t wait_ms) {
    if (!w)
        return 0;
    int err = check_worker(w);
    if (err >= 0)
        err = check_wait("wait_ms", wait_ms);
    if (err >= 0)
        err = worker_stop(w->worker, wait_ms);
    if (err < 0)
        return err;
    w->worker = NULL;
    atomic_store(&w->open, false);
    return 0;
}

int mr_worker_level(mr_worker *w) {
    int err = check_worker(w);
    return err < 0 ? err : (int)worker_level(w->worker);
}

int mr_worker_look(mr_worker *w, mr_worker_info *out) {
    static _Thread_local struct worker_info info;
    static _Thread_local uint32_t choices[TUNER_PATH];
    int err = check_worker(w);
    if (err >= 0)
        err = check_pointer("the place for the answer", out);
    if (err < 0)
        return err;
    worker_look(w->worker, &info);
    for (size_t i = 0; i < info.steps; i++)
        choices[i] = info.path[i].level;
    *out = (mr_worker_info){ .level = info.level,
                             .choice = info.choice,
                             .in_flight = info.in_flight,
                             .threads = info.threads,
                             .completed = info.completed,
                             .choices = choices,
                             .choice_count = (uint32_t)info.steps,
                             .why = info.why };
    return 0;
}

int mr_worker_fd(mr_worker *w) {
    int err = check_worker(w);
    return err < 0 ? err : worker_fd(w->worker);
}

int mr_worker_turn(mr_worker *w) {
    int err = check_worker(w);
    return err < 0 ? err : worker_turn(w->worker);
}
