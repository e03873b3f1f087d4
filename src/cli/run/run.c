// millrace run: the main loop.
//
//     poll: input (while the window is open), signals, handlers that have ended lines, and the time
//
// It ends when the input is over and the engine is empty, or when it was stopped (by a signal, a
// failure with --halt, the deadline, or because its output is closed) and nothing runs any more.
// The engine is in this process, so leases need not end by time.
#include "cli/run/run.h"
#include "base/clock.h"

#include "base/errors.h"
#include "cli/engine.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LAST_COMMIT_MS = 20, LAST_WAIT_MS = EXEC_GRACE_MS + 3000 };

// ---- Opening ----------------------------------------------------------------------------------

static int signals_open(struct run *r) {
    signal(SIGPIPE, SIG_IGN); // writing then returns EPIPE
    r->signals = interrupts_open();
    if (r->signals < 0)
        return r->signals;
    r->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return r->wake < 0 ? error_set(MR_EIO, "no eventfd: %s", strerror(errno)) : 0;
}

static int run_journal_begin(struct run *r, const struct input *in) {
    struct buffer identity = { 0 };
    int err = run_options_identity(r->options, in, &identity);
    if (err >= 0 && r->options->retry_failed && !journal_exists(r->options->journal))
        err = error_set(MR_EINVAL,
                        "--retry-failed: there is no journal in %.200s, so no line has failed; to "
                        "begin a run leave the option out",
                        r->options->journal);
    if (err >= 0)
        err = journal_open(&r->journal, r->options->journal, buffer_bytes(&identity));
    buffer_finish(&identity);
    return err;
}

// A line may run for any time, and run decides how often it is tried. Results are kept only for
// lines that a later run has to print in order.
static int run_open_engine(struct run *r) {
    static const char *const policies[][2] = { { "lease", "40d" },
                                               { "attempts", "65535" },
                                               { "backoff", "200ms..1m" } };
    int err =
        engine_open_url(r->journal.dir ? r->journal.url : "mem:", NULL, r->signals, &r->engine);
    for (size_t i = 0; err >= 0 && i < sizeof policies / sizeof *policies; i++)
        err = mr_stage_set(r->engine, RUN_STAGE, policies[i][0], policies[i][1]);
    const char *retention = r->options->keep_order && r->journal.dir ? "365d,2048" : "1s,0";
    return err < 0 ? err : mr_stage_set(r->engine, RUN_STAGE, "retention", retention);
}

static int retry_dead(mr_id id, mr_bytes key, const char *reason, void *run) {
    (void)key;
    (void)reason;
    struct run *r = run;
    return mr_retry(r->engine, id);
}

// The run before has ended: what failed in it is tried again. With --keep-order no job of it is
// dead, and the lines that failed are pushed as they are read.
static int retry_failed(struct run *r) {
    int err = mr_dead(r->engine, RUN_STAGE, retry_dead, r);
    return err < 0 ? err : journal_forget_failures(&r->journal);
}

// At least what is behind the window was printed, also if the mark was lost in a power cut.
static int resume_output(struct run *r) {
    uint64_t known = r->journal.resume - 1;
    int mark = journal_mark(&r->journal);
    if (mark < 0)
        return mark;
    output_resume(&r->output, mark, r->journal.round,
                  known > ORDER_AHEAD ? known - ORDER_AHEAD : 0);
    r->failed = r->output.failed;
    r->done = r->output.printed - r->failed + journal_passed(&r->journal);
    return 0;
}

static int resume_counts(struct run *r) {
    mr_epic_info look = { 0 };
    int err = mr_epic_look(r->engine, RUN_STAGE, JOURNAL_EPIC, &look);
    if (err < 0 && err != MR_EGONE)
        return err;
    r->done = look.done;
    r->failed = look.dead;
    return 0;
}

// Lines that an earlier run has ended are counted.
static int run_resume_journal(struct run *r) {
    int err = journal_resume(&r->journal, r->engine);
    bool begins_round = r->journal.round > 1 && r->journal.resume == 1;
    bool ended = r->journal.again || begins_round;
    if (err >= 0 && r->options->retry_failed && !ended && r->output.in_order)
        err =
            error_set(MR_EINVAL, "with --keep-order, --retry-failed has to wait until the run has "
                                 "ended; let the same command go on without it first");
    if (err >= 0 && (ended || r->options->retry_failed))
        err = retry_failed(r);
    if (err >= 0)
        err = r->output.in_order ? resume_output(r) : resume_counts(r);
    r->ended = r->ended_before = r->done + r->failed;
    r->epic = (mr_epic){ .stage = RUN_STAGE, .name = r->journal.epic, .ahead = UINT32_MAX };
    return err < 0 ? err : mr_epic_begin(r->engine, &r->epic);
}

static int begin_engine(struct run *r, const struct input *in) {
    bool journal = r->options->journal != NULL;
    int err = journal ? run_journal_begin(r, in) : 0;
    if (err >= 0)
        err = run_open_engine(r);
    return err < 0 || !journal ? err : run_resume_journal(r);
}

static int run_open(struct run *r, const struct input *in) {
    int err = signals_open(r);
    if (err >= 0)
        err = job_execs_open(&r->execs);
    if (err >= 0)
        err = begin_engine(r, in);
    if (err < 0 || !r->options->results)
        return err;
    return results_open(r->options->results, r->journal.resume > 1 || r->journal.round > 1);
}

static enum cli_exit run_unopened(struct run *r, int err) {
    complain("run: %s", error_text());
    if (err == MR_ECORRUPT && r->journal.store)
        complain("run: nothing was changed; to see what can be done: millrace store check file:%s",
                 r->journal.store);
    return err == MR_EFULL ? CLI_FULL : CLI_UNOPENED;
}

// ---- Stopping ---------------------------------------------------------------------------------

static void wake(const struct run *r) {
    uint64_t one = 1;
    ssize_t written = write(r->wake, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

void run_wake_any(struct run *r) {
    if (lines_outstanding(r) <= r->wake_at || atomic_load(&r->stopping))
        wake(r);
}

enum cli_exit run_exit_of(int err) {
    switch (err) {
    case MR_EFULL:
        return CLI_FULL;
    case MR_EINVAL: // other input than the journal's
    case MR_ESTOPPED:
    case MR_ECORRUPT:
        return CLI_UNOPENED;
    default:
        return CLI_FAILED;
    }
}

void run_stop_any(struct run *r, enum cli_exit code, bool now) {
    pthread_mutex_lock(&r->lock);
    if (r->exit_code < 0)
        r->exit_code = (int)code;
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stopping, true);
    gate_wake(&r->gate);
    if (now)
        execs_stop_any(r->execs.execs);
    wake(r);
}

// Ends what runs; if something has not ended soon after its KILL the process ends without it.
static void run_end_all(struct run *r, enum cli_exit code, const char *why) {
    output_try_complain(&r->output, why);
    run_stop_any(r, code, true);
    if (!r->leave_at_us)
        r->leave_at_us = monotonic_us() + (uint64_t)LAST_WAIT_MS * 1000;
}

static void handle_signal(struct run *r) {
    if (!interrupt_read(&r->interrupts, r->signals))
        return;
    if (r->interrupts.count > 1) {
        run_end_all(r, CLI_INTERRUPTED, "ending what runs");
        return;
    }
    run_stop_any(r, CLI_INTERRUPTED, false);
    if (r->running > 0)
        output_try_complain(&r->output, "starting no more; what runs may finish (again to end it)");
}

// Something cannot be ended, such as a write to a pipe that is not read: the process ends without
// it. What was to be kept is on disk.
static void leave_at_once(struct run *r) {
    output_try_complain(&r->output,
                        "something does not end, or the output is not read; leaving without it");
    _exit(r->exit_code < 0 ? CLI_FAILED : r->exit_code);
}

// ---- The loop ---------------------------------------------------------------------------------

static bool deadline_is_over(const struct run *r) {
    int64_t ms = r->options->deadline_ms;
    return ms && monotonic_us() >= r->begun_us + (uint64_t)ms * 1000;
}

static int loop_wait_ms(const struct run *r, bool bar) {
    int64_t ms = r->options->deadline_ms;
    if (r->input_over && r->running == 0 && lines_outstanding(r) <= 0)
        return 0; // all_has_ended waits
    if (bar || r->leave_at_us)
        return PROGRESS_MS;
    if (!ms)
        return -1;
    uint64_t now = monotonic_us(), until = r->begun_us + (uint64_t)ms * 1000;
    uint64_t left = until > now ? (until - now) / 1000 + 1 : 0;
    return left > 3600000 ? 3600000 : (int)left;
}

// Only the engine knows whether anything is left: emitted jobs are not counted as lines, and the
// last commit may not have ended.
static bool all_has_ended(const struct run *r) {
    if (!r->input_over || r->running > 0 || lines_outstanding(r) > 0)
        return false;
    return mr_stage_wait_empty(r->engine, RUN_STAGE, LAST_COMMIT_MS) != MR_EAGAIN;
}

static bool run_is_over(const struct run *r) {
    return atomic_load(&r->stopping) ? r->running == 0 : all_has_ended(r);
}

// Whether there is input to take: read already, or to be polled for.
static bool wants_input(struct run *r) {
    if (r->input_over || atomic_load(&r->stopping)) {
        r->wake_at = INT64_MAX;
        return false;
    }
    if (window_is_open(r)) {
        r->wake_at = -1;
        return true;
    }
    window_wait(r);
    bool opened =
        window_is_open(r); // if it opened meanwhile, no handler has written to the eventfd
    if (opened)
        r->wake_at = -1;
    return opened;
}

static int loop_wait(struct run *r, bool bar) {
    struct pollfd polled[] = { { .fd = r->signals, .events = POLLIN },
                               { .fd = r->wake, .events = POLLIN },
                               { .fd = STDIN_FILENO, .events = POLLIN } };
    uint64_t count;
    bool input = wants_input(r);
    if (!input && run_is_over(r))
        return 0;
    bool at_once = input && r->pending;
    int n = poll(polled, input ? 3 : 2, at_once ? 0 : loop_wait_ms(r, bar));
    if (n < 0 && errno != EINTR)
        return error_set(MR_EIO, "poll: %s", strerror(errno));
    if (polled[0].revents)
        handle_signal(r);
    if (polled[1].revents && read(r->wake, &count, sizeof count) < 0)
        return 0;
    return input && (at_once || polled[2].revents) ? input_take(r) : 0;
}

static void look_at_time(struct run *r, bool bar) {
    if (deadline_is_over(r) && !r->leave_at_us)
        run_end_all(r, CLI_DEADLINE, "the deadline has passed; ending what runs");
    if (r->leave_at_us && monotonic_us() >= r->leave_at_us)
        leave_at_once(r);
    if (bar && progress_is_due())
        bar_draw(r);
}

static int run_loop(struct run *r) {
    bool bar = bar_is_wanted(r->options);
    int err = 0;
    while (err >= 0 && !run_is_over(r)) {
        err = loop_wait(r, bar);
        look_at_time(r, bar);
    }
    return err;
}

// ---- Closing ----------------------------------------------------------------------------------

static int worker_end(struct run *r) {
    if (!r->worker)
        return 0;
    (void)mr_worker_look(r->worker, &r->look); // the worker is open
    int err = mr_worker_stop(r->worker, MR_FOREVER);
    r->worker = NULL;
    return err;
}

static enum cli_exit exit_code_of(const struct run *r) {
    if (r->exit_code >= 0)
        return (enum cli_exit)r->exit_code;
    return r->failed ? CLI_FAILED : CLI_DONE;
}

// Whether stdout is a file that > would empty; >> would not.
static bool stdout_is_replaced(void) {
    struct stat about;
    return fstat(STDOUT_FILENO, &about) == 0 && S_ISREG(about.st_mode) &&
           !(fcntl(STDOUT_FILENO, F_GETFL) & O_APPEND);
}

static void report_how_to_continue(struct run *r) {
    if (!r->journal.dir || r->quiet)
        return;
    output_complain(&r->output, "the same command goes on from here (journal %s)", r->journal.dir);
    if (stdout_is_replaced())
        output_complain(&r->output,
                        "it prints only what is left: use >> to keep what is in the file "
                        "now, which > would empty (--results DIR keeps all)");
}

static void close_engine(struct run *r) {
    if (mr_close(r->engine) < 0)
        complain("run: %s", error_text());
    r->engine = NULL;
}

// A journal is removed when all has ended, unless lines have failed.
static void journal_end(struct run *r) {
    close_engine(r);
    if (!r->failed) {
        if (journal_remove(&r->journal) < 0)
            complain("run: %s", error_text());
        else
            (void)rmdir(r->journal.dir); // unless there is something else in it
        return;
    }
    int err = 0;
    if (r->output.in_order)
        err = journal_next_round(
            &r->journal, r->groups.number,
            (struct failed_list){ r->output.mark, MARK_FAILED, r->output.failed });
    if (err < 0 || journal_keep_failures(&r->journal) < 0)
        complain("run: %s", error_text());
}

static void run_close(struct run *r) {
    close_engine(r);
    job_execs_close(&r->execs);
    journal_close(&r->journal);
    output_close(&r->output);
    if (r->signals > 0)
        close(r->signals);
    if (r->wake > 0)
        close(r->wake);
}

static enum cli_exit run_finish(struct run *r, int err) {
    if (err < 0) {
        output_complain(&r->output, "run: %s", error_text());
        run_stop_any(r, run_exit_of(err), false);
    }
    if (worker_end(r) < 0)
        output_complain(&r->output, "run: %s", error_text());
    bool complete = err >= 0 && all_has_ended(r);
    enum cli_exit code = exit_code_of(r);
    if (!complete && err >= 0)
        report_how_to_continue(r);
    else if (complete && r->failed && r->journal.dir && !r->quiet)
        output_complain(
            &r->output,
            "%s/failed lists the lines that failed; the same command tries only those again",
            r->journal.dir);
    summary_print(r, code);
    if (complete && r->journal.dir)
        journal_end(r);
    return code;
}

static enum cli_exit run_run_all(struct run *r, const struct input *in) {
    int err = output_open(&r->output, r->options->keep_order);
    if (err >= 0)
        err = run_open(r, in);
    if (err < 0)
        return run_unopened(r, err);
    if (isatty(STDIN_FILENO))
        complain("run: lines are read from this terminal; Ctrl-D ends them");
    r->begun_us = monotonic_us();
    err = run_loop(r);
    return run_finish(r, err);
}

enum cli_exit run_run(const struct input *in) {
    struct run_options o = { 0 };
    if (!run_options_read(in, &o))
        return CLI_USAGE;
    static struct run run; // large
    struct run *r = &run;
    r->options = &o;
    r->groups = (struct groups){ .lines = { .delimiter = o.delimiter },
                                 .most = o.lines_each,
                                 .keys = &o.keys };
    gate_open(&r->gate, &o.gate);
    r->journal.resume = 1;
    r->wake_at = -1;
    r->exit_code = -1;
    pthread_mutex_init(&r->lock, NULL);
    enum cli_exit code = CLI_USAGE;
    if (o.dry_run) {
        code = dry_run(&r->groups, &o);
    } else if (command_check(&o)) {
        code = run_run_all(r, in);
        run_close(r);
    }
    groups_finish(&r->groups);
    gate_close(&r->gate);
    pthread_mutex_destroy(&r->lock);
    run_options_close(&o);
    return code;
}
