// Starting and stopping. What a flow must keep while the engine has jobs and states of it is itself
// a state, of a stage named as the flow: so a flow that was changed is noticed before it runs.
//
//     run 7              the number of the run, and a line for each head;
//     text source …      when it is over and forgotten, only
//     run 7 over         so that the next one has another number
#include "base/bytes.h"
#include "base/clock.h"
#include "base/errors.h"
#include "flow/state.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAKE_MS = 1000 };

static int check_flow(const struct mr_flow *f) {
    return f ? 0 : error_set(MR_EINVAL, "the flow is NULL: mr_flow_open gives one");
}

int mr_flow_check(mr_flow *f) {
    int err = check_flow(f);
    if (err < 0 || f->checked)
        return err;
    err = flow_graph(f);
    if (err >= 0)
        f->checked = true;
    return err;
}

// ---- What is kept -----------------------------------------------------------------------------

struct kept {
    uint64_t run; // 0: there was none
    bool over;    // nothing is left of it
    mr_bytes heads;
};

static struct kept kept_read(mr_bytes state) {
    char first[64];
    const char *end = state.size ? memchr(state.data, '\n', state.size) : NULL;
    size_t size = end ? (size_t)(end - (const char *)state.data) : 0;
    struct kept kept = { .over = state.size == 0, .heads = state };
    snprintf(first, sizeof first, "%.*s", (int)size, size ? (const char *)state.data : "");
    if (!end || sscanf(first, "run %" SCNu64, &kept.run) != 1)
        return kept;
    kept.over = strstr(first, " over") != NULL;
    kept.heads = (mr_bytes){ end + 1, state.size - size - 1 };
    return kept;
}

static int kept_write(uint64_t run, bool over, mr_bytes heads, struct buffer *out) {
    char first[64];
    int size = snprintf(first, sizeof first, "run %" PRIu64 "%s\n", run, over ? " over" : "");
    assert(size > 0 && size < (int)sizeof first);
    int err = buffer_append(out, first, (size_t)size);
    return err < 0 ? err : buffer_append(out, heads.data, heads.size);
}

// ---- The same flow as before ------------------------------------------------------------------

static int flow_line_size(const char *text, size_t left) {
    const char *end = memchr(text, '\n', left);
    return (int)(end ? (size_t)(end - text) : left);
}

static int refuse_change(const struct mr_flow *f, mr_bytes before, mr_bytes now) {
    const char *was = before.data, *is = now.data;
    size_t at = 0;
    for (size_t i = 0; i < before.size && i < now.size && was[i] == is[i]; i++)
        if (is[i] == '\n')
            at = i + 1;
    return error_set(MR_EINVAL,
                     "flow %s was begun with '%.*s', now it has '%.*s': give it another "
                     "name, or the same operators",
                     f->name, flow_line_size(was + at, before.size - at), was + at,
                     flow_line_size(is + at, now.size - at), is + at);
}

static int sink_file_open(const struct op *op, int flags, int *out_fd) {
    int fd = open(op->path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return error_set(MR_EIO, "operator %s cannot open %s: %s", op->name, op->path,
                         strerror(errno));
    *out_fd = fd;
    return 0;
}

// A new file is an entry of its folder, which a sync of the file need not write.
static int sync_folder_of(const struct op *op) {
    char path[PATH_MAX];
    if (strlen(op->path) >= sizeof path)
        return error_set(MR_EINVAL, "operator %s has a path of %zu bytes", op->name,
                         strlen(op->path));
    snprintf(path, sizeof path, "%s", op->path);
    const char *folder = dirname(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), failed = fd < 0 ? -1 : fsync(fd);
    int why = errno;
    if (fd >= 0)
        close(fd);
    return failed ? error_set(MR_EIO, "cannot sync %s: %s", folder, strerror(why)) : 0;
}

static int empty_file(const struct op *op) {
    int fd = -1, err = sink_file_open(op, O_TRUNC, &fd);
    if (err < 0)
        return err;
    close(fd);
    return op->flow->syncs_files ? sync_folder_of(op) : 0;
}

// A flow that emits nothing leaves an empty file.
static int empty_files(const struct mr_flow *f) {
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (f->heads[i]->kind == OPERATOR_FILE)
            err = empty_file(f->heads[i]);
    return err;
}

static int drop_one(mr_id id, mr_bytes key, const char *reason, void *engine) {
    (void)key, (void)reason;
    int err = mr_drop(engine, id);
    return err == MR_EGONE ? 0 : err;
}

// What the run before has left: its input, and what died in it.
static int drop_run_before(const struct op *op, uint64_t run) {
    char name[EPIC_NAME];
    mr *m = op->flow->engine;
    source_epic(op, run, name);
    int err = op->kind == OPERATOR_SOURCE ? mr_epic_drop(m, op->stage, name) : 0;
    if (err >= 0 || err == MR_EGONE)
        err = op->kind != OPERATOR_TAKE ? mr_dead(m, op->stage, drop_one, m) : 0;
    return err == MR_EGONE ? 0 : err;
}

// Files are emptied before it counts that the flow has begun: a process that is killed in between
// empties them again, and a flow that goes on loses nothing.
static int run_begin(struct mr_flow *f, mr_job *job, const struct kept *before, mr_bytes heads) {
    struct buffer now = { 0 };
    uint64_t run = before->run + 1;
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0 && before->run; i++)
        err = drop_run_before(f->heads[i], before->run);
    if (err >= 0)
        err = empty_files(f);
    if (err >= 0)
        err = kept_write(run, false, heads, &now);
    if (err >= 0)
        err = mr_job_set_state(job, buffer_bytes(&now));
    if (err >= 0)
        f->run = run;
    buffer_finish(&now);
    return err;
}

static int begin_or_join(struct mr_flow *f, mr_job *job, mr_bytes heads) {
    struct kept before = kept_read(mr_job_state(job));
    if (before.over)
        return run_begin(f, job, &before, heads);
    if (!bytes_equal(before.heads, heads))
        return refuse_change(f, before.heads, heads);
    f->run = before.run;
    return 0;
}

// Another process that starts the same flow may take this job, and this one its: both are alike.
static int take_run_state(struct mr_flow *f, mr_job **out) {
    mr_push_options o = { .key = mr_str("flow") };
    mr_take_options t = { .wait_ms = TAKE_MS };
    int err = MR_EAGAIN;
    while (err == MR_EAGAIN) {
        err = mr_push(f->engine, f->name, (mr_bytes){ 0 }, &o, NULL);
        if (err >= 0)
            err = mr_take(f->engine, f->name, &t, out);
    }
    return err;
}

// Commits the job and returns the verdict, or the commit's error. MR_ESTALE: the lease was lost,
// with the server for example, and nothing was recorded: try again.
static int commit_run_state(mr_job *job, int verdict) {
    char why[512];
    snprintf(why, sizeof why, "%s", verdict < 0 ? error_text() : "");
    int err = mr_done(job);
    return verdict < 0 ? error_set(verdict, "%s", why) : err;
}

static int end_run(struct mr_flow *f, mr_job *job) {
    struct kept before = kept_read(mr_job_state(job));
    struct buffer now = { 0 };
    if (before.run != f->run)
        return 0;
    int err = kept_write(f->run, true, (mr_bytes){ 0 }, &now);
    if (err >= 0)
        err = mr_job_set_state(job, buffer_bytes(&now));
    buffer_finish(&now);
    return err;
}

int flow_end_run(struct mr_flow *f) {
    int err;
    do {
        mr_job *job = NULL;
        err = take_run_state(f, &job);
        if (err >= 0)
            err = commit_run_state(job, end_run(f, job));
    } while (err == MR_ESTALE);
    return err;
}

static int run_join_or_begin(struct mr_flow *f) {
    struct buffer heads = { 0 };
    int err = flow_describe(f, &heads);
    for (bool again = err >= 0; again; again = err == MR_ESTALE) {
        mr_job *job = NULL;
        err = take_run_state(f, &job);
        if (err >= 0)
            err = commit_run_state(job, begin_or_join(f, job, buffer_bytes(&heads)));
    }
    buffer_finish(&heads);
    return err;
}

// ---- Stages -----------------------------------------------------------------------------------

// A few jobs for each partition may wait: enough for the workers, and few to store.
static uint32_t head_high_mark(const struct op *op) {
    uint32_t mark = 4 * op->options.partitions;
    return mark < 64 ? 64 : mark;
}

// Sets the policies of a stage that the flow pushes into; a stage of OPERATOR_TAKE is not the
// flow's.
static int head_set_policies(struct op *op) {
    char attempts[12], mark[12];
    bool sink = op->kind == OPERATOR_SINK || op->kind == OPERATOR_FILE;
    snprintf(attempts, sizeof attempts, "%u", op->options.attempts);
    snprintf(mark, sizeof mark, "%u", head_high_mark(op));
    const char *const policies[][2] = {
        { "attempts", attempts },   { "backoff", op->backoff },
        { "on-dead", op->on_dead }, { "retention", "1m,1000" },
        { "high-mark", mark },      { "overlap", sink ? "never" : "brief" }
    };
    int err = 0;
    for (size_t i = 0; i < sizeof policies / sizeof *policies && err >= 0; i++)
        if (op->kind != OPERATOR_TAKE)
            err = mr_stage_set(op->flow->engine, op->stage, policies[i][0], policies[i][1]);
    return err;
}

static int start_head(struct op *op) {
    mr_work_options o = { .jobs = op->options.jobs,
                          .batch = op->kind == OPERATOR_AGGREGATE ? FLOW_BATCH : 1,
                          .on_stop = head_on_stop };
    int err = op->kind == OPERATOR_FILE ? sink_file_open(op, 0, &op->fd) : 0;
    if (err >= 0)
        err = mr_work(op->flow->engine, op->stage, head_handle, op, &o, &op->worker);
    return err;
}

// Stages are made from the first to the last, so that lists show them in this order; workers start
// from the last to the first, so that nothing is emitted before a worker waits for it.
static int start_all(struct mr_flow *f) {
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        err = head_set_policies(f->heads[i]);
    for (uint32_t i = f->head_count; i-- > 0 && err >= 0;)
        err = start_head(f->heads[i]);
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        if (f->heads[i]->kind == OPERATOR_SOURCE)
            err = source_start(f->heads[i]);
    return err;
}

int mr_flow_start(mr_flow *f) {
    int err = check_flow(f);
    if (err >= 0 && f->started)
        err = error_set(MR_EINVAL, "flow %s has been started before: make another", f->name);
    if (err >= 0)
        err = mr_flow_check(f);
    if (err >= 0)
        err = run_join_or_begin(f);
    if (err < 0)
        return err;
    f->started = true;
    err = start_all(f);
    if (err < 0) {
        char why[512];
        snprintf(why, sizeof why, "%s", mr_error());
        (void)mr_flow_stop(f, MR_FOREVER); // waits as long as it takes
        return error_set(err, "%s", why);
    }
    return 0;
}

// ---- Stopping ---------------------------------------------------------------------------------

static int64_t wait_left_ms(uint64_t until_ms) {
    uint64_t now = monotonic_ms();
    if (until_ms == UINT64_MAX)
        return MR_FOREVER;
    return until_ms > now ? (int64_t)(until_ms - now) : 0;
}

static int stop_worker(struct op *op, int64_t wait_ms) {
    int err = mr_worker_stop(op->worker, wait_ms);
    if (err >= 0)
        op->worker = NULL;
    return err;
}

int mr_flow_stop(mr_flow *f, int64_t wait_ms) {
    int err = check_flow(f);
    if (err < 0)
        return err;
    uint64_t until_ms = flow_until_ms(wait_ms);
    pthread_mutex_lock(&f->lock);
    atomic_store(&f->stopping, true);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    for (uint32_t i = 0; i < f->head_count; i++)
        (void)stop_worker(f->heads[i], 0); // none takes more jobs; the waits come later
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        err = source_stop(f->heads[i], until_ms);
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        err = stop_worker(f->heads[i], wait_left_ms(until_ms));
    return err;
}

// ---- Waiting and looking ----------------------------------------------------------------------

int mr_flow_wait(mr_flow *f, int64_t wait_ms) {
    int err = check_flow(f);
    if (err >= 0 && !f->started)
        err = error_set(MR_EINVAL, "flow %s has not been started", f->name);
    if (err >= 0 && wait_ms < MR_FOREVER)
        err = error_set(MR_EINVAL, "wait_ms is negative and not MR_FOREVER");
    return err < 0 ? err : flow_end(f, flow_until_ms(wait_ms));
}

int mr_flow_look(mr_flow *f, mr_flow_info *out) {
    int err = check_flow(f);
    if (err >= 0 && !out)
        err = error_set(MR_EINVAL, "the place for the answer is NULL");
    mr_flow_info info = { .over = f ? f->over : 0, .run = f ? f->run : 0 };
    for (uint32_t i = 0; err >= 0 && i < f->head_count; i++) {
        mr_stage_info s;
        err = mr_stage_look(f->engine, f->heads[i]->stage, &s);
        if (err == MR_EGONE)
            err = 0, s = (mr_stage_info){ 0 };
        info.read += atomic_load(&f->heads[i]->blocks_read);
        info.waiting += s.waiting + s.delayed;
        info.running += s.running;
        info.dead += s.dead;
        info.failed += s.failed;
    }
    if (err >= 0)
        *out = info;
    return err;
}
