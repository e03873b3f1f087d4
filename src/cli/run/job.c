// Runs a job: makes the command for its line, runs it, and ends the job as the command has ended.
//
//     exit 0 ──────────────► done                     printed, then committed; with an order to
//     else ──► tried often enough? ──► failed         keep: committed, then printed in its turn
//                   └─ no: again after a backoff, what this attempt wrote is not shown
//     run was stopped ─────► released: no attempt counts
//
// After a crash of run a line that ran is tried again even if it has no retries left: it has not
// failed.
#include "base/bytes.h"
#include "base/clock.h"
#include "base/codec.h"
#include "base/errors.h"
#include "cli/output.h"
#include "cli/run/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { FAILURES_REPORTED = 10, RESULT_HEAD = 16 };

// With --keep-order and a journal the engine keeps what commands have written: at most so much of
// stdout and of stderr each.
static const uint64_t kept_output = 7 << 20;

enum verdict { VERDICT_DONE, VERDICT_FAILED, VERDICT_AGAIN, VERDICT_NOT_RUN };

// ---- Running ----------------------------------------------------------------------------------

// The line cannot be run, or what it leaves cannot be used: it has failed.
static void run_job_refuse(struct exec_result *out, const char *why) {
    out->end = EXEC_UNSTARTED;
    out->code = 0;
    snprintf(out->reason, sizeof out->reason, "%s", why);
}

static int find_key(const struct run *r, const mr_job *job, mr_bytes text, struct buffer *room,
                    mr_bytes *out) {
    *out = mr_job_key(job);
    if (!r->options->template.uses_key || out->size < KEY_MOST)
        return 0;
    int err = keys_find(&r->options->keys, group_first_line(r->options, text),
                        room); // the engine has only the beginning of a long one
    *out = buffer_bytes(room);
    return err;
}

struct parts run_parts(const struct run_options *o, const struct line *line) {
    return (struct parts){ .line = line->text,
                           .number = line->number,
                           .several = o->lines_each > 1,
                           .delimiter = o->delimiter };
}

struct run_collecting {
    const struct run *run;
    mr_job *job;
    struct buffer state;
    bool has_state;
};

// What it emits must come back to this run: no other program would ever take it.
static int run_job_collect_emit(const char *stage, const struct side_emit *e, void *arg) {
    const struct run_collecting *c = arg;
    mr_push_options options = { .key = e->key,
                                .meta = e->keeps_meta ? mr_job_meta(c->job) : e->meta };
    if (c->run->output.in_order)
        return error_set(MR_EINVAL, "it emits, and --keep-order has no place for that");
    if (strcmp(stage, RUN_STAGE) != 0)
        return error_set(MR_EINVAL, "it emits to stage '%s'; here there is only '%s'", stage,
                         RUN_STAGE);
    return mr_job_emit(c->job, stage, e->body, &options);
}

static int run_job_collect_state(mr_bytes state, void *arg) {
    struct run_collecting *c = arg;
    buffer_clear(&c->state);
    c->has_state = true;
    return state.size ? buffer_append(&c->state, state.data, state.size) : 0;
}

// What a command that ended well leaves for the commit. If it cannot be used the line has failed;
// in order a failed line is committed, too: so the state is set last.
static int run_job_collect(const struct run *r, const struct side_file *side, mr_job *job) {
    struct run_collecting c = { .run = r, .job = job };
    struct side_file_reader reader = { run_job_collect_emit, run_job_collect_state, NULL, &c };
    int err = side_file_read(side, &reader);
    if (err >= 0 && c.has_state)
        err = mr_job_set_state(job, buffer_bytes(&c.state));
    buffer_finish(&c.state);
    return err;
}

static int run_job_run_command(struct run *r, mr_job *job, const struct line *line,
                               const struct parts *parts, struct job_exec *out) {
    const struct run_options *o = r->options;
    bool kept = r->output.in_order && r->journal.dir;
    struct job_exec_order order = { .template = &o->template,
                                    .parts = *parts,
                                    .job = job,
                                    .input = o->input ? line->text : (mr_bytes){ 0 },
                                    .state = mr_job_state(job),
                                    .timeout_ms = o->timeout_ms,
                                    .max_output = kept ? kept_output : 0 };
    int err = job_exec_run(&r->execs, &order, out);
    if (err >= 0 && exec_ended_well(&out->result) && run_job_collect(r, &out->side, job) < 0)
        run_job_refuse(&out->result, error_text());
    return err;
}

// 0: `out` has how it ended; MR_EBUSY: the system has no room for the process now.
static int try_line(struct run *r, mr_job *job, const struct line *line, struct job_exec *out) {
    char why[128];
    if (line->size > line->text.size) {
        snprintf(why, sizeof why, "it has %" PRIu64 " bytes; %d are the most", line->size,
                 LINE_MOST);
        run_job_refuse(&out->result, why);
        return 0;
    }
    struct buffer key = { 0 };
    struct parts parts = run_parts(r->options, line);
    int err = find_key(r, job, line->text, &key, &parts.key);
    if (err >= 0)
        err = run_job_run_command(r, job, line, &parts, out);
    if (err == 0 && out->result.end == EXEC_UNSTARTED && out->result.code == E2BIG)
        run_job_refuse(&out->result, "it is too long for an argument; --stdin pipes it in instead");
    if (err < 0 && err != MR_EBUSY) {
        run_job_refuse(&out->result, error_text());
        err = 0;
    }
    buffer_finish(&key);
    return err;
}

static enum verdict judge(struct run *r, const mr_job *job, const struct exec_result *x) {
    if (exec_ended_well(x))
        return VERDICT_DONE;
    if (x->end == EXEC_STOPPED)
        return VERDICT_NOT_RUN;
    if (exec_is_missing(x) && !r->options->template.varies) { // for every line
        if (!atomic_exchange(&r->is_missing, true) && !atomic_load(&r->stopping))
            output_complain(&r->output, "run: %s", x->reason);
        run_stop_any(r, CLI_USAGE, true);
        return VERDICT_NOT_RUN;
    }
    bool again = mr_job_attempt(job) <= r->options->retries && x->end != EXEC_UNSTARTED;
    return again ? VERDICT_AGAIN : VERDICT_FAILED;
}

// ---- Results for a later run -------------------------------------------------------------

// A result is: failed or not, the size of the output, the output, the errors.
static int keep_result(mr_job *job, bool failed, struct exec_result *x) {
    uint8_t head[RESULT_HEAD];
    struct writer w = { .data = head, .capacity = sizeof head };
    struct buffer all = { 0 };
    mr_bytes output, errors;
    put_u8(&w, failed);
    put_number(&w, x->output.size);
    int err = spool_bytes(&x->output, &output);
    if (err >= 0)
        err = spool_bytes(&x->errors, &errors);
    if (err >= 0)
        err = buffer_append(&all, head, w.size);
    if (err >= 0 && output.size)
        err = buffer_append(&all, output.data, output.size);
    if (err >= 0 && errors.size)
        err = buffer_append(&all, errors.data, errors.size);
    if (err >= 0)
        err = mr_job_set_result(job, buffer_bytes(&all));
    buffer_finish(&all);
    return err;
}

int run_hold_result(struct run *r, const struct line *line, mr_bytes result) {
    struct reader in = reader_of(result);
    bool failed = get_u8(&in);
    mr_bytes output = get_raw(&in, (size_t)get_number(&in));
    mr_bytes errors = get_raw(&in, in.bad ? 0 : in.size - in.at);
    if (!reader_done(&in))
        return error_set(MR_ECORRUPT, "the result of line %" PRIu64 " is not valid", line->number);
    struct spool spools[2] = { 0 };
    int err = output.size ? spool_append(&spools[0], output.data, output.size) : 0;
    if (err >= 0 && errors.size)
        err = spool_append(&spools[1], errors.data, errors.size);
    if (err >= 0)
        err = tag_output(r->options, line->text, &spools[0], &spools[1]);
    if (err >= 0)
        err = output_hold(&r->output, journal_position(&r->journal, line->number), failed,
                          &spools[0], &spools[1]);
    spool_finish(&spools[0]);
    spool_finish(&spools[1]);
    if (err < 0)
        return err;
    *(failed ? &r->failed : &r->done) += 1;
    r->ended++;
    r->ended_before++;
    return 0;
}

// ---- Ending -----------------------------------------------------------------------------------

// The name of a job in messages and results: the number of its line, or, if it was emitted, its id.
static void run_job_name_of(char name[32], const mr_job *job, const struct line *line) {
    if (line->number)
        snprintf(name, 32, "%" PRIu64, line->number);
    else
        snprintf(name, 32, "job-%" PRIu64, mr_job_id(job));
}

// Its stderr is printed with its output, so the message only has how it ended.
static void report_failure(struct run *r, mr_id job, const char *name, const struct line *line,
                           const struct exec_result *x) {
    char shown[LINE_SHOWN];
    bool several = r->options->lines_each > 1;
    pthread_mutex_lock(&r->lock);
    uint64_t reported = ++r->reported;
    if (reported <= FAILURES_LISTED) {
        struct run_failure *f = &r->failures[reported - 1];
        f->line = line->number;
        f->job = job;
        group_shown(r->options, line->text, f->text);
        memcpy(f->reason, x->reason, sizeof f->reason);
    }
    pthread_mutex_unlock(&r->lock);
    if (reported <= FAILURES_REPORTED)
        output_complain(&r->output, "%s %s failed: %.*s; %s '%s'", several ? "group" : "line", name,
                        exec_how_size(x), x->reason, several ? "its lines are" : "the line is",
                        group_shown(r->options, line->text, shown));
    if (reported == FAILURES_REPORTED)
        output_complain(&r->output, "further failures are only counted%s",
                        r->journal.dir ? ", and listed in the journal" : "");
}

// The output is closed or cannot be written: a line that is not printed is not done.
static void stop_printing(struct run *r) {
    if (r->output.broken == EPIPE) {
        pthread_mutex_lock(&r->lock);
        r->quiet = true;
        pthread_mutex_unlock(&r->lock);
        run_stop_any(r, CLI_INTERRUPTED, false);
        return;
    }
    if (!atomic_load(&r->stopping))
        output_complain(&r->output, "run: the output could not be written: %s", error_text());
    run_stop_any(r, CLI_FAILED, false);
}

static int show_before_commit(struct run *r, const char *name, const struct line *line,
                              struct exec_result *x) {
    const struct run_options *o = r->options;
    int err = o->results ? results_write(o->results, name, x) : 0;
    if (err < 0) {
        if (!atomic_load(&r->stopping))
            output_complain(&r->output, "run: %s", error_text());
        run_stop_any(r, CLI_FAILED, false);
        return err;
    }
    if (r->output.in_order)
        return 0;
    err = tag_output(o, line->text, &x->output, &x->errors);
    if (err >= 0)
        err = output_print(&r->output, &x->output, &x->errors);
    if (err < 0)
        stop_printing(r);
    return err;
}

// For who looks into the journal's store.
static void keep_last_words(const struct run *r, mr_job *job, const struct exec_result *x) {
    char words[LAST_WORDS_MOST];
    if (r->journal.dir)
        mr_job_set_output(job, (mr_bytes){ words, job_exec_last_words(x, words) });
}

// In memory the worker commits when the handler returns, and so measures how long the job took.
// With a journal a line is done when its commit is on disk, and a failed one stays there, to be
// tried again by a later run; but in order a failure is a result as well: it is printed in its
// turn.
static int run_job_commit(struct run *r, mr_job *job, bool failed, struct exec_result *x) {
    mr_id id = mr_job_id(job);
    bool kept = r->output.in_order && r->journal.dir;
    int err = kept ? keep_result(job, failed, x) : 0;
    if (err < 0)
        return err;
    if (!failed && !r->journal.dir)
        return 0;
    if (kept || !failed)
        return mr_done(job);
    keep_last_words(r, job, x);
    err = mr_fail(job, x->reason, MR_NEVER);
    return err < 0 || r->journal.dir ? err : mr_drop(r->engine, id);
}

static int hold_in_order(struct run *r, const struct line *line, bool failed,
                         struct exec_result *x) {
    uint64_t position = journal_position(&r->journal, line->number);
    int err = tag_output(r->options, line->text, &x->output, &x->errors);
    return err < 0 ? err : output_hold(&r->output, position, failed, &x->output, &x->errors);
}

// The list has a line for each, so the lines of a group stand between tabs there.
static int note_failure(struct run *r, const char *name, const struct line *line,
                        const struct exec_result *x) {
    struct buffer text = { 0 };
    int err = buffer_append(&text, line->text.data, line->text.size);
    for (size_t i = 0; r->options->lines_each > 1 && i < text.size && err >= 0; i++)
        if ((char)text.data[i] == r->options->delimiter)
            text.data[i] = '\t';
    if (err >= 0)
        err = journal_note_failure(&r->journal, name, x->reason, buffer_bytes(&text));
    buffer_finish(&text);
    return err;
}

static int end_line(struct run *r, mr_job *job, const struct line *line, bool failed,
                    struct exec_result *x) {
    int64_t bytes = (int64_t)mr_job_body(job).size;
    bool emitted = line->number == 0;
    mr_id id = mr_job_id(job);
    char name[32];
    run_job_name_of(name, job, line);
    int err = show_before_commit(r, name, line, x);
    if (err < 0)
        return mr_release(job, 0);
    if (failed && r->journal.dir)
        err = note_failure(r, name, line, x);
    if (err >= 0)
        err = run_job_commit(r, job, failed, x);
    if (err < 0)
        return err;
    if (r->output.in_order && hold_in_order(r, line, failed, x) < 0)
        stop_printing(r);
    *(failed ? &r->failed : &r->done) += 1;
    if (failed)
        report_failure(r, id, name, line, x);
    r->bytes -= emitted ? 0 : bytes;
    r->ended += !emitted;
    if (failed && r->options->halt != HALT_NEVER)
        run_stop_any(r, CLI_FAILED, r->options->halt == HALT_NOW);
    return 0;
}

static void note_time(struct run *r, uint64_t begun_us, uint64_t ended_us) {
    pthread_mutex_lock(&r->lock);
    histogram_add(&r->job_us, ended_us - begun_us);
    pthread_mutex_unlock(&r->lock);
}

static int end_attempt(struct run *r, mr_job *job, const struct line *line, struct exec_result *x) {
    enum verdict verdict = judge(r, job, x);
    switch (verdict) {
    case VERDICT_NOT_RUN:
        return mr_release(job, 0);
    case VERDICT_AGAIN:
        r->retried++;
        keep_last_words(r, job, x);
        return mr_fail(job, x->reason, MR_BACKOFF);
    case VERDICT_DONE:
    case VERDICT_FAILED:
        break;
    }
    return end_line(r, job, line, verdict == VERDICT_FAILED, x);
}

static int run_line(struct run *r, mr_job *job) {
    struct line line = line_of_body(mr_job_body(job));
    struct job_exec run = { 0 };
    if (!gate_enter(&r->gate, &r->stopping))
        return mr_release(job, 0);
    uint64_t begun_us = monotonic_us();
    int err = try_line(r, job, &line, &run);
    gate_leave(&r->gate);
    if (job_execs_are_refused(&r->execs, err))
        output_complain(&r->output, "run: no command can be started: %s; trying again",
                        error_text());
    if (err < 0)
        return mr_release(job, 0); // to be tried a little later
    note_time(r, begun_us, monotonic_us());
    err = end_attempt(r, job, &line, &run.result);
    job_exec_finish(&run);
    return err;
}

int run_handler(mr_job *job, void *arg) {
    struct run *r = arg;
    r->running++;
    int err = atomic_load(&r->stopping) ? mr_release(job, 0) : run_line(r, job);
    if (err < 0 && !atomic_load(&r->stopping)) {
        output_complain(&r->output, "run: %s", error_text());
        run_stop_any(r, run_exit_of(err), false);
    }
    r->running--;
    run_wake_any(r);
    return err; // matters only if the job was not ended above
}

void run_on_stop(mr_job *job, void *arg) {
    struct run *r = arg;
    exec_stop_any(r->execs.execs, job);
}
