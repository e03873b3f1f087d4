// run: the options, and the loop that holds everything together.
//
//     poll: input (while the window is open), signals, a handler's ring, and the time
//
// It ends when the input is over and the engine has nothing left, or when somebody has stopped it
// (a signal, a failure with --halt, the deadline, output that nobody reads) and nothing runs any
// more. The engine lives in this process: its leases need not end by time.
#include "cli/run.h"

#include "base/errors.h"
#include "cli/output.h"
#include "cli/values.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { BAR_MS = 100, FIRST_BAR_MS = 500, LAST_WAIT_MS = EXEC_GRACE_MS + 3000 };

uint64_t run_now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

// ---- Options ----------------------------------------------------------------------------------

static bool refuse(const struct input *in) {
    complain("%s: %s", in->command->name, error_text());
    return false;
}

static bool read_jobs(const struct input *in, uint64_t *out) {
    const char *text = input_option(in, "--jobs");
    if (!text || strcmp(text, "auto") == 0)
        return true;
    if (!input_count(in, "--jobs", WORKER_JOBS, out))
        return false;
    if (*out == 0)
        complain("run: --jobs 0: at least 1, or auto");
    return *out > 0;
}

static bool read_halt(const struct input *in, enum halt *out) {
    static const char *const names[] = { "never", "soon", "now" };
    const char *text = input_option(in, "--halt");
    for (int i = 0; text && i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum halt)i;
            return true;
        }
    }
    if (text)
        complain("run: --halt '%.30s' is none of never, soon, now", text);
    return !text;
}

static bool options_read(const struct input *in, struct run_options *o) {
    o->input = input_option(in, "--stdin") != NULL;
    o->zero_bytes = input_option(in, "-0") != NULL;
    o->keep_order = input_option(in, "--keep-order") != NULL;
    o->progress = input_option(in, "--progress") != NULL;
    o->json = input_option(in, "--json") != NULL;
    o->journal = input_option(in, "--journal");
    o->results = input_option(in, "--results");
    o->template = template_of(in->words, o->input);
    if (!read_jobs(in, &o->jobs) || !read_halt(in, &o->halt) ||
        !input_count(in, "--retries", UINT16_MAX - 1, &o->retries) ||
        !input_duration(in, "--timeout", &o->timeout_ms) ||
        !input_duration(in, "--deadline", &o->deadline_ms))
        return false;
    if (keys_open(input_option(in, "--key-field"), input_option(in, "--key-regex"),
                  input_option(in, "--key-json"), &o->keys) < 0)
        return refuse(in);
    return true;
}

// ---- The command ------------------------------------------------------------------------------

// Whether there is such a program, before anything is read. What only the start can tell is told
// then.
static bool is_program(const char *path, size_t size, const char *name) {
    char whole[4096];
    int used = snprintf(whole, sizeof whole, "%.*s%s%s", (int)size, path, size ? "/" : "", name);
    return used < (int)sizeof whole && access(whole, X_OK) == 0;
}

static bool command_is_there(const char *name) {
    if (strchr(name, '/'))
        return is_program("", 0, name);
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/bin:/usr/bin"; *name; p++) {
        size_t size = strcspn(p, ":");
        if (is_program(p, size, name))
            return true;
        p += size;
        if (!*p)
            break;
    }
    return false;
}

static bool command_check(const struct run_options *o) {
    const char *name = o->template.words[0];
    if (o->template.varies || command_is_there(name))
        return true;
    if (strchr(name, '/') && access(name, F_OK) == 0)
        complain("run: '%.200s' is not executable", name);
    else
        complain("run: there is no command '%.200s'", name);
    return false;
}

// ---- Opening ----------------------------------------------------------------------------------

static int signals_open(struct run *r) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, NULL); // before there are threads
    signal(SIGPIPE, SIG_IGN);                // a write says it
    r->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    r->ring = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->signals < 0 || r->ring < 0)
        return error_set(MR_EIO, "no descriptors: %s", strerror(errno));
    return 0;
}

static int identity_make(const struct run_options *o, const struct input *in, struct buffer *out) {
    const char *field = input_option(in, "--key-field"), *regex = input_option(in, "--key-regex");
    const char *member = input_option(in, "--key-json");
    int err = journal_say(out, "millrace-journal", "1");
    if (err >= 0)
        err = journal_say(out, "lines", o->zero_bytes ? "-0" : "newline");
    if (err >= 0)
        err = journal_say(out, "input", o->input ? "--stdin" : "arguments");
    if (err >= 0)
        err = journal_say(out, "output", o->keep_order ? "--keep-order" : "as it comes");
    if (err >= 0 && o->keys.from == KEY_NONE)
        err = journal_say(out, "keys", "none");
    if (err >= 0 && field)
        err = journal_say(out, "--key-field", field);
    if (err >= 0 && regex)
        err = journal_say(out, "--key-regex", regex);
    if (err >= 0 && member)
        err = journal_say(out, "--key-json", member);
    for (size_t i = 0; err >= 0 && in->words[i]; i++)
        err = journal_say(out, i ? "argument" : "command", in->words[i]);
    return err;
}

static int journal_begin(struct run *r, const struct input *in) {
    struct buffer identity = { 0 };
    int err = identity_make(r->options, in, &identity);
    if (err >= 0)
        err = journal_open(&r->journal, r->options->journal, buffer_bytes(&identity));
    buffer_finish(&identity);
    return err;
}

// A line may run for any time, and be tried as often as run says; results are read at once, or in
// an order's turn.
static int engine_open(struct run *r) {
    static const char *const policies[][2] = { { "lease", "40d" },
                                               { "attempts", "65535" },
                                               { "backoff", "200ms..1m" } };
    struct local_options options = { .dir = r->journal.store };
    int err = local_open(&options, &r->engine);
    for (size_t i = 0; err >= 0 && i < sizeof policies / sizeof *policies; i++)
        err = r->engine->impl->set(r->engine, mr_str(RUN_STAGE), mr_str(policies[i][0]),
                                   mr_str(policies[i][1]));
    const char *retention = r->options->keep_order && r->journal.dir ? "365d,2048" : "1s,0";
    if (err >= 0)
        err = r->engine->impl->set(r->engine, mr_str(RUN_STAGE), mr_str("retention"),
                                   mr_str(retention));
    return err;
}

static int drop_dead(mr_id id, mr_bytes key, const char *reason, void *run) {
    (void)key;
    (void)reason;
    struct run *r = run;
    return r->engine->impl->drop(r->engine, id);
}

// What an earlier run has ended counts as before.
static int resume(struct run *r) {
    struct epic_look look = { 0 };
    int err = journal_resume(&r->journal, r->engine);
    if (err >= 0)
        err = r->engine->impl->dead(r->engine, mr_str(RUN_STAGE), drop_dead, r);
    if (err < 0)
        return err;
    if (r->journal.resume > 1)
        err = r->engine->impl->epic(r->engine, mr_str(JOURNAL_EPIC), &look);
    r->done = look.done;
    r->failed = look.dead;
    if (r->output.in_order) {
        r->failed = r->output.failed;
        r->done = r->output.printed - r->failed;
    }
    r->ended = r->ended_before = r->done + r->failed;
    return err;
}

static int run_open(struct run *r, const struct input *in) {
    const struct run_options *o = r->options;
    int mark = -1;
    int err = signals_open(r);
    if (err >= 0)
        err = execs_create(NULL, &r->execs);
    if (err >= 0)
        err = carry_create(&r->carry);
    if (err >= 0 && o->results)
        err = results_open(o->results);
    if (err >= 0 && o->journal)
        err = journal_begin(r, in);
    if (err >= 0)
        err = engine_open(r);
    if (err >= 0 && o->journal && o->keep_order)
        err = mark = journal_mark(&r->journal);
    if (err >= 0)
        err = output_open(&r->output, o->keep_order, mark);
    if (err >= 0 && o->journal)
        err = resume(r);
    return err;
}

static enum cli_exit run_unopened(struct run *r, int err) {
    complain("run: %s", error_text());
    if (err == MR_ECORRUPT && r->journal.store)
        complain("run: nothing was changed; to see what can be done: millrace store check file:%s",
                 r->journal.store);
    return CLI_UNOPENED;
}

// ---- Stopping ---------------------------------------------------------------------------------

static void ring(const struct run *r) {
    uint64_t one = 1;
    ssize_t written = write(r->ring, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

void run_ring_any(struct run *r) {
    if (lines_outstanding(r) <= r->ring_at || atomic_load(&r->stopping))
        ring(r);
}

void run_stop_any(struct run *r, enum cli_exit code, bool now) {
    pthread_mutex_lock(&r->lock);
    if (r->exit_code < 0)
        r->exit_code = (int)code;
    pthread_mutex_unlock(&r->lock);
    atomic_store(&r->stopping, true);
    if (now)
        execs_stop_any(r->execs);
    ring(r);
}

static void hear_signal(struct run *r) {
    struct signalfd_siginfo info;
    if (read(r->signals, &info, sizeof info) != sizeof info)
        return;
    int running = r->running;
    if (r->interrupts++ > 0) {
        output_say(&r->output, "ending what runs");
        run_stop_any(r, CLI_INTERRUPTED, true);
        return;
    }
    run_stop_any(r, CLI_INTERRUPTED, false);
    if (running)
        output_say(&r->output, "starting no more; waiting for %d that run%s (again to end %s)",
                   running, running == 1 ? "s" : "", running == 1 ? "it" : "them");
}

// ---- The loop ---------------------------------------------------------------------------------

static bool deadline_is_over(const struct run *r) {
    int64_t ms = r->options->deadline_ms;
    return ms && run_now_us() >= r->begun_us + (uint64_t)ms * 1000;
}

static int loop_wait_ms(const struct run *r, bool bar) {
    int64_t ms = r->options->deadline_ms;
    if (bar)
        return BAR_MS;
    if (!ms)
        return -1;
    uint64_t now = run_now_us(), until = r->begun_us + (uint64_t)ms * 1000;
    uint64_t left = until > now ? (until - now) / 1000 + 1 : 0;
    return left > 3600000 ? 3600000 : (int)left;
}

// The engine knows best whether anything is left.
static bool all_has_ended(const struct run *r) {
    mr_stage_info info = { 0 };
    if (!r->input_over || r->running > 0)
        return false;
    int err = r->engine->impl->stage(r->engine, mr_str(RUN_STAGE), &info);
    return err < 0 || info.waiting + info.delayed + info.running == 0;
}

static bool is_over(const struct run *r) {
    return atomic_load(&r->stopping) ? r->running == 0 : all_has_ended(r);
}

// Whether there is input to be had: read already, or to be polled for.
static bool wants_input(struct run *r) {
    if (r->input_over || atomic_load(&r->stopping)) {
        r->ring_at = INT64_MAX;
        return false;
    }
    if (window_is_open(r)) {
        r->ring_at = -1;
        return true;
    }
    window_wait(r);
    bool opened = window_is_open(r); // meanwhile: then nobody has rung
    if (opened)
        r->ring_at = -1;
    return opened;
}

static int loop_wait(struct run *r, bool bar) {
    struct pollfd polled[] = { { .fd = r->signals, .events = POLLIN },
                               { .fd = r->ring, .events = POLLIN },
                               { .fd = STDIN_FILENO, .events = POLLIN } };
    uint64_t count;
    bool input = wants_input(r);
    if (!input && is_over(r))
        return 0;
    bool at_once = input && r->pending;
    int n = poll(polled, input ? 3 : 2, at_once ? 0 : loop_wait_ms(r, bar));
    if (n < 0 && errno != EINTR)
        return error_set(MR_EIO, "poll: %s", strerror(errno));
    if (polled[0].revents)
        hear_signal(r);
    if (polled[1].revents && read(r->ring, &count, sizeof count) < 0)
        return 0;
    return input && (at_once || polled[2].revents) ? input_take(r) : 0;
}

static void look_at_time(struct run *r, bool bar, uint64_t *drawn_us) {
    uint64_t now = run_now_us();
    if (deadline_is_over(r) && !atomic_load(&r->stopping)) {
        output_say(&r->output, "the deadline has passed; ending what runs");
        run_stop_any(r, CLI_DEADLINE, true);
    }
    levels_note(r);
    if (!bar || now - r->begun_us < FIRST_BAR_MS * 1000 || now - *drawn_us < BAR_MS * 1000)
        return;
    bar_draw(r);
    *drawn_us = now;
}

static int run_loop(struct run *r) {
    bool bar = bar_is_wanted(r->options);
    uint64_t drawn_us = 0;
    int err = 0;
    while (err >= 0 && !is_over(r)) {
        err = loop_wait(r, bar);
        look_at_time(r, bar, &drawn_us);
    }
    return err;
}

// ---- Closing ----------------------------------------------------------------------------------

// Something cannot be ended, say a write that nobody reads: we go without it. What was to be kept
// is on disk.
static void leave_at_once(struct run *r) {
    output_say(&r->output, "something does not end; leaving it");
    _exit(r->exit_code < 0 ? CLI_FAILED : r->exit_code);
}

static int worker_end(struct run *r) {
    if (!r->worker)
        return 0;
    int64_t wait_ms = r->interrupts > 1 ? LAST_WAIT_MS : MR_FOREVER;
    int err = worker_stop(r->worker, wait_ms);
    if (err == MR_EBUSY)
        leave_at_once(r);
    r->worker = NULL;
    return err;
}

static enum cli_exit exit_code_of(const struct run *r) {
    if (r->exit_code >= 0)
        return (enum cli_exit)r->exit_code;
    return r->failed ? CLI_FAILED : CLI_DONE;
}

static void say_how_to_go_on(struct run *r) {
    if (r->journal.dir && !r->quiet)
        output_say(&r->output, "the same command goes on from here (journal %s)", r->journal.dir);
}

static void run_close(struct run *r) {
    if (r->engine)
        r->engine->impl->close(r->engine);
    execs_destroy(r->execs);
    carry_destroy(r->carry);
    lines_finish(&r->lines);
    journal_close(&r->journal);
    if (r->signals > 0)
        close(r->signals);
    if (r->ring > 0)
        close(r->ring);
    pthread_mutex_destroy(&r->lock);
}

static enum cli_exit run_finish(struct run *r, int err) {
    if (err < 0) {
        output_say(&r->output, "run: %s", error_text());
        run_stop_any(r, err == MR_EINVAL ? CLI_UNOPENED : CLI_FAILED, false);
    }
    levels_note(r);
    if (worker_end(r) < 0)
        output_say(&r->output, "run: %s", error_text());
    bool complete = err >= 0 && all_has_ended(r);
    enum cli_exit code = exit_code_of(r);
    if (!complete && err >= 0)
        say_how_to_go_on(r);
    summary_print(r, code);
    output_close(&r->output);
    if (complete && r->journal.dir) {
        r->engine->impl->close(r->engine);
        r->engine = NULL;
        if (journal_remove(&r->journal) < 0)
            complain("run: %s", error_text());
    }
    return code;
}

static enum cli_exit run_all(struct run *r, const struct input *in) {
    int err = run_open(r, in);
    if (err < 0)
        return run_unopened(r, err);
    if (isatty(STDIN_FILENO))
        complain("run: lines are read from this terminal; Ctrl-D ends them");
    r->begun_us = run_now_us();
    err = run_loop(r);
    return run_finish(r, err);
}

enum cli_exit run_run(const struct input *in) {
    struct run_options o = { 0 };
    if (!options_read(in, &o))
        return CLI_USAGE;
    static struct run run; // large
    struct run *r = &run;
    r->options = &o;
    r->lines.delimiter = o.zero_bytes ? 0 : '\n';
    r->journal.resume = 1;
    r->ring_at = -1;
    r->exit_code = -1;
    pthread_mutex_init(&r->lock, NULL);
    enum cli_exit code = command_check(&o) ? run_all(r, in) : CLI_USAGE;
    run_close(r);
    keys_close(&o.keys);
    return code;
}
