// The tables of handles and the checks of arguments.
#include "api/handle.h"

#include "base/errors.h"

#include <inttypes.h>

static mr engines[ENGINES_MAX];
static mr_worker workers[WORKERS_MAX];
static atomic_uint next_engine,
    next_worker; // where to search first, so that a closed handle is not reused at once

static bool open_place(atomic_bool *open) {
    bool closed = false;
    return atomic_compare_exchange_strong(open, &closed, true);
}

mr *handle_engine(void) {
    for (uint32_t tries = 0; tries < ENGINES_MAX; tries++) {
        mr *m = &engines[atomic_fetch_add(&next_engine, 1) % ENGINES_MAX];
        if (open_place(&m->open))
            return m;
    }
    error_set(MR_EFULL, "%d engines are open in this process: close one first", ENGINES_MAX);
    return NULL;
}

mr_worker *handle_worker(void) {
    for (uint32_t tries = 0; tries < WORKERS_MAX; tries++) {
        mr_worker *w = &workers[atomic_fetch_add(&next_worker, 1) % WORKERS_MAX];
        if (open_place(&w->open))
            return w;
    }
    error_set(MR_EFULL, "%d workers are open in this process: stop one first", WORKERS_MAX);
    return NULL;
}

// ---- Checks -----------------------------------------------------------------------------------

// Whether `p` is an entry of the table, without following it.
static bool is_entry(const void *p, const void *table, size_t count, size_t size) {
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)table;
    return at >= from && at < from + count * size && (at - from) % size == 0;
}

int check_open_engine(const mr *m) {
    if (!m)
        return error_set(MR_EINVAL, "the engine is NULL: mr_open gives one");
    if (!is_entry(m, engines, ENGINES_MAX, sizeof *engines))
        return error_set(MR_EINVAL, "the engine is not one that mr_open gave");
    if (!atomic_load_explicit(&m->open, memory_order_relaxed) || !m->engine)
        return error_set(MR_EINVAL, "the engine is closed: mr_open gives another");
    return 0;
}

int check_worker(const mr_worker *w) {
    if (!w)
        return error_set(MR_EINVAL, "the worker is NULL: mr_work gives one");
    if (!is_entry(w, workers, WORKERS_MAX, sizeof *workers))
        return error_set(MR_EINVAL, "the worker is not one that mr_work gave");
    if (!atomic_load_explicit(&w->open, memory_order_relaxed) || !w->worker)
        return error_set(MR_EINVAL, "the worker has been stopped and freed");
    return 0;
}

int check_job(const mr_job *job) {
    if (!job)
        return error_set(MR_EINVAL, "the job is NULL: mr_take gives one, and a handler has one");
    if (job->magic != LEASED_JOB_MAGIC)
        return error_set(MR_EINVAL, "the job is not one that was taken");
    if (atomic_load_explicit(&job->used_up, memory_order_relaxed))
        return error_set(MR_EINVAL, "the job has been ended already and must not be used again");
    return 0;
}

int check_stage(const char *stage, mr_bytes *out) {
    if (!stage || !*stage)
        return error_set(MR_EINVAL, "the stage is %s: name one with 1 to %d of A-Za-z0-9._:/-",
                         stage ? "empty" : "NULL", STAGE_NAME_MOST);
    *out = mr_str(stage);
    return 0;
}

int check_stage_name(const char *stage, mr_bytes *out) {
    int err = check_stage(stage, out);
    return err < 0 ? err : engine_check_stage(*out);
}

int check_bytes(const char *what, mr_bytes bytes) {
    if (bytes.data || bytes.size == 0)
        return 0;
    return error_set(MR_EINVAL, "the %s has %zu bytes at NULL: {NULL, 0} is empty", what,
                     bytes.size);
}

int check_pointer(const char *what, const void *pointer) {
    return pointer ? 0 : error_set(MR_EINVAL, "%s is NULL", what);
}

int check_time(const char *what, int64_t ms) {
    if (ms >= 0)
        return 0;
    return error_set(MR_EINVAL, "%s is %" PRId64 ": milliseconds from 0 on", what, ms);
}

int check_wait(const char *what, int64_t ms) {
    if (ms >= MR_FOREVER)
        return 0;
    return error_set(MR_EINVAL, "%s is %" PRId64 ": milliseconds from 0 on, or MR_FOREVER", what,
                     ms);
}

int check_each(bool given) {
    return given ? 0 : error_set(MR_EINVAL, "each is NULL: give a function to be called");
}

int check_reserved(const uint64_t *reserved, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (reserved[i])
            return error_set(MR_EINVAL, "the reserved fields of the options must be zero: begin "
                                        "with = {0}");
    return 0;
}

static int check_flag(const char *what, uint32_t flag) {
    return flag <= 1 ? 0 : error_set(MR_EINVAL, "%s is %u: 0 or 1", what, flag);
}

#define CHECK_OPTION(member, kind, ...)                                                            \
    if ((err = CHECK_##kind(#member, o->member)) < 0)                                              \
        return err;
#define CHECK_BYTES check_bytes
#define CHECK_MS check_time
#define CHECK_WAIT check_wait
#define CHECK_COUNT(name, count) 0
#define CHECK_FLAG check_flag

int check_push_options(const mr_push_options **options) {
    static const mr_push_options defaults;
    const mr_push_options *o = *options;
    if (!o) {
        *options = &defaults;
        return 0;
    }
    int err = 0;
    PUSH_OPTIONS(CHECK_OPTION)
    return check_reserved(o->reserved, sizeof o->reserved / sizeof *o->reserved);
}
