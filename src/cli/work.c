// millrace work: pulls jobs from an engine and runs a command, or sends a request, for each. The
// library's worker pulls, tunes, beats and drains; this file runs the processes or requests and
// ends their jobs.
//
//     body ─► stdin or {} ─► command ─► stdout: the result; exit 0: committed, else a failed
//     attempt
//     body ─► POST ─► response: the result; 2xx: committed, else see delivery.h
#include "base/limits.h"
#include "cli/delivery.h"
#include "cli/engine.h"
#include "cli/exec_job.h"
#include "cli/interrupts.h"
#include "cli/output.h"
#include "cli/values.h"
#include "work/stops.h"

#include "millrace.h"

#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { STAGES_MOST = 64, LOOK_MS = 100 };
enum { FAILED = 2 }; // a handler's answer that is neither 0 nor MR_LATER

struct working {
    struct template template;
    int64_t timeout_ms;
    struct address address;
    struct engine_state engine;
    mr_worker *worker;
    struct job_execs execs;
    struct deliveries *deliveries; // NULL: commands are run
    int signals;
    struct interrupts interrupts;
    _Atomic uint64_t done, failed, stopped; // jobs, attempts, jobs
    atomic_bool ending;                     // everything is to end at once
    atomic_bool is_missing;                 // the command
};

// ---- A job ------------------------------------------------------------------------------------

// Fails the attempt. `printed` bytes of the reason are printed here, without what the command wrote
// to stderr, which was shown already.
static int fail(struct working *w, mr_job *job, const char *reason, int printed) {
    char plain[1024];
    complain(
        "work: job %" PRIu64 " of %s failed (attempt %u): %s", mr_job_id(job), mr_job_stage(job),
        mr_job_attempt(job),
        text_plain(plain, sizeof plain, (mr_bytes){ reason, strnlen(reason, (size_t)printed) }));
    mr_job_set_reason(job, reason);
    atomic_fetch_add(&w->failed, 1);
    return FAILED;
}

// The engine has stopped the job: its deadline has passed, it was cancelled, or its lease is lost.
// It knows that already, so what is answered here changes nothing. When a server is lost, the
// leases of all jobs are: that is reported once, not for each of them.
static int end_stopped(struct working *w, mr_job *job) {
    char reason[200];
    stop_describe(job, reason, sizeof reason);
    if (!stop_is_loss(job))
        complain("work: job %" PRIu64 " of %s was %s", mr_job_id(job), mr_job_stage(job), reason);
    mr_job_set_reason(job, reason);
    atomic_fetch_add(&w->stopped, 1);
    return FAILED;
}

// The job is not at fault: no attempt counts.
static int release(mr_job *job, int64_t delay_ms) {
    (void)mr_release(job, delay_ms); // if that fails, its lease ends with this process
    return MR_LATER;
}

static int work_commit(struct working *w, mr_job *job, struct job_exec *run) {
    mr_bytes output;
    int64_t snooze_ms = 0;
    int err = spool_bytes(&run->result.output, &output);
    if (err >= 0)
        err = mr_job_set_result(job, output);
    if (err >= 0)
        err = side_file_apply(&run->side, job, &snooze_ms);
    if (err < 0)
        return fail(w, job, mr_error(), EXEC_REASON);
    if (snooze_ms)
        return release(job, snooze_ms);
    atomic_fetch_add(&w->done, 1);
    return 0;
}

static int end_job(struct working *w, mr_job *job, struct job_exec *run) {
    const struct exec_result *x = &run->result;
    if (exec_ended_well(x))
        return work_commit(w, job, run);
    if (x->end == EXEC_STOPPED)
        return atomic_load(&w->ending) ? release(job, 0) : end_stopped(w, job);
    if (exec_is_missing(x) && !w->template.varies) {
        if (!atomic_exchange(&w->is_missing, true))
            complain("work: %s", x->reason);
        return release(job, 0);
    }
    char words[LAST_WORDS_MOST];
    mr_job_set_output(job, (mr_bytes){ words, job_exec_last_words(x, words) });
    return fail(w, job, x->reason, exec_how_size(x));
}

static int work_run_command(struct working *w, mr_job *job) {
    struct job_exec run;
    mr_bytes body = mr_job_body(job);
    struct job_exec_order order = {
        .template = &w->template,
        .parts = { .line = body, .key = mr_job_key(job), .number = mr_job_id(job) },
        .job = job,
        .input = w->template.takes_line ? (mr_bytes){ 0 } : body,
        .state = mr_job_state(job),
        .timeout_ms = w->timeout_ms,
        .max_output = BODY_MOST,
        .pass_errors = true
    };
    int err = job_exec_run(&w->execs, &order, &run);
    if (err < 0)
        return err;
    err = end_job(w, job, &run);
    job_exec_finish(&run);
    return err;
}

// ---- A job that is sent -----------------------------------------------------------------------

static void report_attempt(const mr_job *job, const char *what, const char *reason) {
    complain("work: job %" PRIu64 " of %s %s (attempt %u): %s", mr_job_id(job), mr_job_stage(job),
             what, mr_job_attempt(job), reason);
}

// The receiver will never accept it.
static int fail_for_good(struct working *w, mr_job *job, const struct delivery_result *r) {
    report_attempt(job, "is dead", r->reason);
    atomic_fetch_add(&w->failed, 1);
    (void)mr_fail(job, r->reason, MR_NEVER); // if that fails, its lease ends
    return MR_LATER;
}

static int end_delivery(struct working *w, mr_job *job, struct delivery_result *r) {
    mr_bytes said = { 0 };
    int err = spool_bytes(&r->body, &said);
    if (r->end != DELIVERY_DONE && r->end != DELIVERY_LATER)
        (void)mr_job_set_output(job, said); // without memory it is not shown
    switch (r->end) {
    case DELIVERY_DONE:
        err = err < 0 ? err : mr_job_set_result(job, said);
        if (err < 0)
            return fail(w, job, mr_error(), DELIVERY_REASON);
        atomic_fetch_add(&w->done, 1);
        return 0;
    case DELIVERY_LATER:
        report_attempt(job, "is sent again later", r->reason);
        return release(job, r->later_ms);
    case DELIVERY_DEAD:
        return fail_for_good(w, job, r);
    case DELIVERY_STOPPED:
        return atomic_load(&w->ending) ? release(job, 0) : end_stopped(w, job);
    case DELIVERY_FAILED:
        break;
    }
    return fail(w, job, r->reason, DELIVERY_REASON);
}

static int work_deliver(struct working *w, mr_job *job) {
    struct delivery_result r;
    int err = delivery_post(w->deliveries, job, &r);
    if (err < 0)
        return fail(w, job, mr_error(), DELIVERY_REASON);
    err = end_delivery(w, job, &r);
    delivery_result_finish(&r);
    return err;
}

// ---- Either -----------------------------------------------------------------------------------

static int work_job(mr_job *job, void *arg) {
    struct working *w = arg;
    if (w->deliveries)
        return work_deliver(w, job);
    int err = work_run_command(w, job);
    if (job_execs_are_refused(&w->execs, err))
        complain("work: no command can be started: %s; trying again", mr_error());
    if (err == MR_EBUSY)
        return release(job, 0); // the system allows no more processes just now
    return err < 0 ? fail(w, job, mr_error(), EXEC_REASON) : err;
}

static void stop_job(mr_job *job, void *arg) {
    struct working *w = arg;
    if (w->deliveries)
        delivery_stop_any(w->deliveries, job);
    else
        exec_stop_any(w->execs.execs, job);
}

// ---- The worker -------------------------------------------------------------------------------

// Whether a signal came within this time.
static bool work_is_interrupted(struct working *w, int wait_ms) {
    struct pollfd p = { .fd = w->signals, .events = POLLIN };
    return poll(&p, 1, wait_ms) > 0 && interrupt_read(&w->interrupts, w->signals);
}

static void report_server(struct working *w) {
    char sentence[600];
    if (engine_news(&w->engine, sentence, sizeof sentence))
        complain("work: %s", sentence);
}

// While the server cannot be reached, the ends of jobs cannot be sent to it, and none of them runs
// any more: a signal then ends this wait, too.
static int stop(struct working *w) {
    struct listener listener;
    bool listens = w->engine.trouble == MR_ENET && listener_begin(&listener, w->signals) == 0;
    int err = mr_worker_stop(w->worker, LOOK_MS);
    if (listens)
        listener_end(&listener);
    return err;
}

// After one signal what runs may finish; after two it is ended and released.
static void work_drain(struct working *w) {
    while (stop(w) == MR_EBUSY) {
        if (!work_is_interrupted(w, 0) || atomic_exchange(&w->ending, true))
            continue;
        complain("work: ending what runs");
        if (w->deliveries)
            deliveries_stop_any(w->deliveries);
        else
            execs_stop_any(w->execs.execs);
    }
}

static void report_counts(const struct working *w) {
    uint64_t failed = atomic_load(&w->failed), stopped = atomic_load(&w->stopped);
    char more[40] = "";
    if (stopped)
        snprintf(more, sizeof more, ", %" PRIu64 " stopped", stopped);
    complain("work: %" PRIu64 " done, %" PRIu64 " failed attempt%s%s", atomic_load(&w->done),
             failed, failed == 1 ? "" : "s", more);
}

static enum cli_exit work_on(struct working *w) {
    while (!work_is_interrupted(w, LOOK_MS) && !atomic_load(&w->is_missing) &&
           !engine_is_lost(&w->engine))
        report_server(w);
    if (engine_is_lost(&w->engine)) {
        work_drain(w);
        return exit_of_error(w->engine.trouble);
    }
    report_server(w);
    if (!atomic_load(&w->is_missing))
        complain("work: taking no more; %s",
                 w->engine.trouble == MR_ENET
                     ? "waiting for the server, to send it what has ended (again to leave)"
                     : "what runs may finish (again to end it)");
    work_drain(w);
    if (atomic_load(&w->is_missing))
        return CLI_USAGE;
    report_counts(w);
    return CLI_INTERRUPTED;
}

static bool work_read_http(const struct input *in, struct working *w) {
    if (in->words || input_option(in, "--shell")) {
        complain("work: either --http or a command, not both");
        return false;
    }
    struct delivery_options o = { .url = input_option(in, "--http"),
                                  .headers = in->repeated,
                                  .header_count = in->repeated_count,
                                  .sign_key = input_option(in, "--sign-key"),
                                  .timeout_ms = w->timeout_ms };
    if (deliveries_open(&o, &w->deliveries) >= 0)
        return true;
    complain("work: %s", mr_error());
    return false;
}

// False: an option is refused, and the reason was printed.
static bool work_read_options(const struct input *in, struct working *w, mr_work_options *out,
                              const char **shell) {
    uint64_t batch = 1;
    if (in->count > STAGES_MOST) {
        complain("work: %d stages are too many: %d at most", in->count, STAGES_MOST);
        return false;
    }
    if (!input_jobs(in, &out->jobs) || !input_duration(in, "--lease", &out->lease_ms) ||
        !input_duration(in, "--timeout", &w->timeout_ms) ||
        !input_count(in, "--batch", 1000, &batch))
        return false;
    out->batch = (uint32_t)batch;
    if (input_option(in, "--http"))
        return work_read_http(in, w);
    if (in->repeated_count || input_option(in, "--sign-key")) {
        complain("work: --header and --sign-key belong to --http");
        return false;
    }
    if (input_option(in, "--shell")) { // the word is a script
        shell[0] = "sh", shell[1] = "-c", shell[2] = in->words[0], shell[3] = "sh";
        if (in->words[1]) {
            complain("work: with --shell the command is one word: quote it");
            return false;
        }
    }
    const char *const *words = input_option(in, "--shell") ? shell : in->words;
    const char *name = words[0]; // one with a placeholder differs from job to job
    if (template_open(words, true, &w->template) >= 0 &&
        (w->template.varies || program_find(name) >= 0))
        return true;
    complain("work: %s", mr_error());
    return false;
}

static int work_open_engine(const struct input *in, struct working *w) {
    int err = address_read(in, &w->address);
    if (err >= 0)
        err = w->signals = interrupts_open();
    if (err >= 0)
        err = engine_open(&w->address, "millrace-work", w->signals, &w->engine.engine);
    w->engine.local = w->address.url.local;
    return err;
}

static enum cli_exit work_start(const struct input *in, struct working *w, mr_work_options o) {
    const char *more[STAGES_MOST] = { NULL };
    for (int i = 1; i < in->count; i++)
        more[i - 1] = in->list[i];
    o.more_stages = more;
    o.on_stop = stop_job;
    int err = work_open_engine(in, w);
    if (err < 0)
        return engine_unopened("work", &w->address, err);
    err = w->deliveries ? 0 : job_execs_open(&w->execs);
    if (err >= 0)
        err = mr_work(w->engine.engine, in->list[0], work_job, w, &o, &w->worker);
    if (err >= 0)
        return work_on(w);
    complain("work: %s", mr_error());
    return exit_of_error(err);
}

enum cli_exit work_run(const struct input *in) {
    static const char *shell[5];
    struct working w = { .signals = -1 };
    mr_work_options o = { 0 };
    enum cli_exit code = work_read_options(in, &w, &o, shell) ? work_start(in, &w, o) : CLI_USAGE;
    if (mr_close(w.engine.engine) < 0)
        complain("work: %s", mr_error());
    job_execs_close(&w.execs);
    deliveries_close(w.deliveries);
    template_close(&w.template);
    if (w.signals >= 0)
        close(w.signals);
    return code;
}
