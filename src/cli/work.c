// millrace work: pulls jobs from an engine and runs a command for each. The worker runtime pulls,
// tunes, beats and drains; here a job becomes a process, and its end the job's.
//
//     body ─► stdin or {} ─► command ─► stdout: the result; exit 0: committed, else a failed
//     attempt
#include "base/limits.h"
#include "cli/engine.h"
#include "cli/interrupts.h"
#include "cli/output.h"
#include "cli/placeholders.h"
#include "cli/values.h"

#include "millrace.h"
#include "work/exec.h"
#include "work/process.h"
#include "work/side_file.h"

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
    struct execs *execs;
    struct side_dir *side_dir;
    int signals;
    struct interrupts interrupts;
    _Atomic uint64_t done, failed;
    atomic_uint refused;  // commands that the system had no room to start, one after another
    atomic_bool ending;   // everything is to end at once
    atomic_bool hopeless; // there is no such command
};

// ---- A job ------------------------------------------------------------------------------------

// One that was told to stop has not failed by itself: nobody wants it any more, or its lease is
// over.
// `told` bytes of the reason are said here: what the command wrote to stderr was seen already.
static int fail(struct working *w, mr_job *job, const char *reason, int told) {
    char plain[1024];
    if (told)
        complain(
            "work: job %" PRIu64 " of %s failed (attempt %u): %s", mr_job_id(job),
            mr_job_stage(job), mr_job_attempt(job),
            text_plain(plain, sizeof plain, (mr_bytes){ reason, strnlen(reason, (size_t)told) }));
    mr_job_set_reason(job, reason);
    atomic_fetch_add(&w->failed, 1);
    return FAILED;
}

static int commit(struct working *w, mr_job *job, const struct side_file *side,
                  struct exec_result *x) {
    mr_bytes output;
    int err = spool_bytes(&x->output, &output);
    if (err >= 0)
        err = mr_job_set_result(job, output);
    if (err >= 0)
        err = side_file_apply(side, job);
    if (err < 0)
        return fail(w, job, mr_error(), EXEC_REASON);
    atomic_fetch_add(&w->done, 1);
    return 0;
}

// Nothing is wrong with the job: it goes back as it was.
static int give_back(mr_job *job) {
    (void)mr_release(job, 0); // if it cannot be given back now, its lease ends with us
    return MR_LATER;
}

static int end_job(struct working *w, mr_job *job, const struct side_file *side,
                   struct exec_result *x) {
    if (exec_ended_well(x))
        return commit(w, job, side, x);
    if (x->end == EXEC_STOPPED && atomic_load(&w->ending))
        return give_back(job);
    if (exec_is_missing(x) && !w->template.varies) {
        if (!atomic_exchange(&w->hopeless, true))
            complain("work: %s", x->reason);
        return give_back(job);
    }
    return fail(w, job, x->reason, x->end == EXEC_STOPPED ? 0 : exec_how_size(x));
}

static int run_filled(struct working *w, mr_job *job, const struct side_file *side,
                      const struct filled *command) {
    struct exec_result x;
    struct exec_order order = { .argv = command->argv,
                                .job = job,
                                .variables = command->variables,
                                .input =
                                    w->template.takes_line ? (mr_bytes){ 0 } : mr_job_body(job),
                                .timeout_ms = w->timeout_ms,
                                .max_output = BODY_MOST,
                                .pass_errors = true };
    int err = exec_run(w->execs, &order, &x);
    if (err < 0)
        return err;
    err = end_job(w, job, side, &x);
    exec_result_finish(&x);
    return err;
}

static int run_command(struct working *w, mr_job *job) {
    struct filled filled = { 0 };
    struct parts parts = { .line = mr_job_body(job),
                           .key = mr_job_key(job),
                           .number = mr_job_id(job) };
    struct side_file side;
    int err = side_file_begin(w->side_dir, mr_job_state(job), &side);
    if (err < 0)
        return err;
    err = template_fill(&w->template, &parts, side.variable, &filled);
    if (err >= 0)
        err = run_filled(w, job, &side, &filled);
    filled_finish(&filled);
    side_file_end(&side);
    return err;
}

static int work_job(mr_job *job, void *arg) {
    struct working *w = arg;
    int err = run_command(w, job);
    if (err == MR_EBUSY && ++w->refused == CLI_REFUSED_OFTEN)
        complain("work: no command can be started: %s; trying again", mr_error());
    if (err == MR_EBUSY)
        return give_back(job); // the system allows no more processes just now
    w->refused = 0;
    return err < 0 ? fail(w, job, mr_error(), EXEC_REASON) : err;
}

static void stop_job(mr_job *job, void *arg) {
    struct working *w = arg;
    exec_stop_any(w->execs, job);
}

// ---- The worker -------------------------------------------------------------------------------

// Whether a signal came within this time.
static bool hears(struct working *w, int wait_ms) {
    struct pollfd p = { .fd = w->signals, .events = POLLIN };
    return poll(&p, 1, wait_ms) > 0 && interrupt_heard(&w->interrupts, w->signals);
}

static void tell_news(struct working *w) {
    char sentence[600];
    if (engine_news(&w->engine, sentence, sizeof sentence))
        complain("work: %s", sentence);
}

// To a server that is away it cannot be told for a while how jobs have ended, and nothing of them
// runs any more: a signal then ends that, too.
static int stop(struct working *w) {
    struct listener listener;
    bool listens = w->engine.trouble == MR_ENET && listener_begin(&listener, w->signals) == 0;
    int err = mr_worker_stop(w->worker, LOOK_MS);
    if (listens)
        listener_end(&listener);
    return err;
}

// Once: what runs may finish. Twice: it is ended, and goes back.
static void drain(struct working *w) {
    while (stop(w) == MR_EBUSY) {
        if (!hears(w, 0) || atomic_exchange(&w->ending, true))
            continue;
        complain("work: ending what runs");
        execs_stop_any(w->execs);
    }
}

static enum cli_exit work_on(struct working *w) {
    while (!hears(w, LOOK_MS) && !atomic_load(&w->hopeless) && !engine_is_lost(&w->engine))
        tell_news(w);
    if (engine_is_lost(&w->engine)) {
        drain(w);
        return exit_of_error(w->engine.trouble);
    }
    tell_news(w);
    if (!atomic_load(&w->hopeless))
        complain("work: taking no more; %s",
                 w->engine.trouble == MR_ENET
                     ? "the server is waited for, to hear what has ended (again to leave)"
                     : "what runs may finish (again to end it)");
    drain(w);
    if (atomic_load(&w->hopeless))
        return CLI_USAGE;
    complain("work: %" PRIu64 " done, %" PRIu64 " failed attempts", atomic_load(&w->done),
             atomic_load(&w->failed));
    return CLI_INTERRUPTED;
}

// What is asked for; false: refused, and said.
static bool read_options(const struct input *in, struct working *w, mr_work_options *out,
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
    if (input_option(in, "--shell")) { // the words together are a script
        shell[0] = "sh", shell[1] = "-c", shell[2] = in->words[0], shell[3] = "sh";
        if (in->words[1]) {
            complain("work: with --shell the command is one word: quote it");
            return false;
        }
    }
    const char *const *words = input_option(in, "--shell") ? shell : in->words;
    if (template_open(words, true, &w->template) >= 0)
        return true;
    complain("work: %s", mr_error());
    return false;
}

static int open_engine(const struct input *in, struct working *w) {
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
    int err = open_engine(in, w);
    if (err < 0)
        return engine_unopened("work", &w->address, err);
    processes_adopt();
    err = execs_create(NULL, &w->execs);
    if (err >= 0)
        err = side_dir_create(&w->side_dir);
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
    if (!read_options(in, &w, &o, shell))
        return CLI_USAGE;
    enum cli_exit code = work_start(in, &w, o);
    if (mr_close(w.engine.engine) < 0)
        complain("work: %s", mr_error());
    side_dir_destroy(w.side_dir);
    execs_destroy(w.execs);
    template_close(&w.template);
    if (w.signals >= 0)
        close(w.signals);
    return code;
}
