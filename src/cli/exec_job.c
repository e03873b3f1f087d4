// See exec_job.h.
#include "cli/exec_job.h"

#include "base/limits.h"
#include "work/process.h"

enum { REFUSED_OFTEN = 10 };

int job_execs_open(struct job_execs *x) {
    processes_adopt();
    int err = execs_create(NULL, &x->execs);
    return err < 0 ? err : side_dir_create(&x->side_dir);
}

void job_execs_close(struct job_execs *x) {
    execs_destroy(x->execs);
    side_dir_destroy(x->side_dir);
    *x = (struct job_execs){ 0 };
}

struct progress_look {
    struct job_execs *execs;
    struct side_file *side;
    const mr_job *job;
};

static void look_at_progress(void *arg) {
    struct progress_look *l = arg;
    side_file_look(l->side, l->job);
    if (l->side->shown)
        atomic_store(&l->execs->has_progress, true);
}

static int run_filled(struct job_execs *x, const struct job_exec_order *o, struct job_exec *out) {
    struct filled filled = { 0 };
    const char *variable = o->is_pure ? NULL : out->side.variable;
    int err = template_fill(o->template, &o->parts, variable, &filled);
    struct progress_look look = { x, &out->side, o->job };
    struct exec_order order = { .argv = filled.argv,
                                .job = o->job,
                                .variables = filled.variables,
                                .input = o->input,
                                .timeout_ms = o->timeout_ms,
                                .max_output = o->max_output,
                                .pass_errors = o->pass_errors,
                                .look = o->is_pure ? NULL : look_at_progress,
                                .look_arg = &look };
    if (err >= 0)
        err = exec_run(x->execs, &order, &out->result);
    filled_finish(&filled);
    return err;
}

int job_exec_run(struct job_execs *x, const struct job_exec_order *o, struct job_exec *out) {
    struct job_exec run = { 0 };
    int err = o->is_pure ? 0 : side_file_begin(x->side_dir, o->state, &run.side);
    if (err < 0)
        return err;
    err = run_filled(x, o, &run);
    if (err >= 0)
        *out = run;
    else if (!o->is_pure)
        side_file_end(&run.side);
    return err;
}

void job_exec_finish(struct job_exec *run) {
    exec_result_finish(&run->result);
    if (run->side.variable[0])
        side_file_end(&run->side);
}

size_t job_exec_last_words(const struct exec_result *x, char *out) {
    size_t size = spool_end(&x->errors, out, LAST_WORDS_MOST), skip = 0;
    bool cut = x->errors.size > size;
    while (cut && skip < 3 && skip < size && ((uint8_t)out[skip] & 0xc0) == 0x80)
        skip++;
    memmove(out, out + skip, size - skip);
    return size - skip;
}

bool job_execs_are_refused(struct job_execs *x, int err) {
    if (err == MR_EBUSY)
        return atomic_fetch_add(&x->refused, 1) + 1 == REFUSED_OFTEN;
    atomic_store(&x->refused, 0);
    return false;
}
