// Runs a plan: opens the engine, starts the flow and waits until it is over, a signal comes, or it
// cannot go on.
//
//     engine: a journal, or the one that --at names ─► flow_build ─► mr_flow_start ─► watch ─►
//     finish
//
// A journal is a directory with a store in it (journal.h). It is removed when the flow has
// finished, so that the next run begins anew; dead jobs stay in it until then.
#include "base/clock.h"
#include "cli/flow/flow.h"

#include "base/errors.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { LOOK_MS = 50, NEWS_MS = 100, COUNT_MS = 1000, DEAD_PRINTED = 10 };

static enum cli_exit flow_run_exit_of(int err) {
    switch (err) {
    case MR_EINVAL:
        return CLI_USAGE;
    case MR_EAUTH:
    case MR_EPERM:
        return CLI_REFUSED;
    case MR_EFULL:
        return CLI_FULL;
    case MR_ENET:
    case MR_EBUSY:
    case MR_ECORRUPT:
        return CLI_UNOPENED;
    default:
        return CLI_FAILED;
    }
}

static enum cli_exit flow_run_refuse(int err) {
    complain("flow: %s", mr_error());
    return flow_run_exit_of(err);
}

// ---- The engine -------------------------------------------------------------------------------

// The identity of a flow: its name and what it reads. Steps may be changed between runs, as far as
// the library allows.
static int flow_run_identity_of(const struct plan *p, struct buffer *out) {
    int err = identity_add(out, "millrace-flow", "1");
    if (err >= 0)
        err = identity_add(out, "flow", p->name);
    for (size_t i = 0; i < p->count; i++) {
        const struct flow_node *n = &p->nodes[i];
        for (size_t k = 0; err >= 0 && n->verb == VERB_LINES && k < n->word_count; k++)
            err = identity_add(out, n->name, n->words[k]);
    }
    return err;
}

static int flow_run_journal_begin(struct flow *f) {
    struct buffer identity = { 0 };
    f->engine.local = true;
    int err = flow_run_identity_of(f->plan, &identity);
    if (err >= 0 && f->options.fresh)
        err = journal_forget(f->options.journal);
    if (err >= 0)
        err = journal_open(&f->journal, f->options.journal, buffer_bytes(&identity));
    buffer_finish(&identity);
    if (err >= 0) {
        f->where = f->journal.url;
        journal_counted(&f->journal, f->before);
    }
    if (err < 0)
        return err;
    return engine_open_url(f->where, NULL, f->signals, &f->engine.engine);
}

static int flow_run_open_engine(struct flow *f, const struct input *in) {
    if (!input_option(in, "--at"))
        return flow_run_journal_begin(f);
    int err = address_read(in, &f->address);
    if (err < 0)
        return err;
    f->where = f->address.url.where;
    f->engine.local = f->address.url.local;
    return engine_open(&f->address, "millrace-flow", f->signals, &f->engine.engine);
}

// The threads of the workers hold blocks and states of some 100 KiB, each for a moment. Memory of
// its own for every thread would keep the most that each has ever held: a million keys took 150 MB
// instead of 50.
static void share_memory(void) {
#ifdef M_ARENA_MAX
    (void)mallopt(M_ARENA_MAX, 2);
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
#endif
}

static int flow_open(struct flow *f, const struct input *in) {
    share_memory();
    signal(SIGPIPE, SIG_IGN); // writing then returns EPIPE
    f->signals = interrupts_open();
    if (f->signals < 0)
        return f->signals;
    f->halt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->halt < 0)
        return error_set(MR_EIO, "no eventfd: %s", strerror(errno));
    int err = interrupts_guard(f->signals,
                               "flow: the engine does not answer; leaving without it (what runs "
                               "is released, and the same command continues)");
    if (err >= 0)
        err = flow_run_open_engine(f, in);
    if (err >= 0)
        err = job_execs_open(&f->execs);
    return err < 0 ? err : flow_build(f);
}

static void flow_free(struct flow *f) {
    if (f->flow && mr_flow_close(f->flow) < 0)
        complain("flow: %s", mr_error());
    for (size_t i = 0; i < f->plan->count; i++) {
        reading_close(f->actors[i].reading);
        f->actors[i].reading = NULL;
        program_close(&f->actors[i]);
    }
    if (mr_close(f->engine.engine) < 0)
        complain("flow: %s", mr_error());
    job_execs_close(&f->execs);
    f->flow = NULL;
    f->engine.engine = NULL;
}

// ---- Dead jobs --------------------------------------------------------------------------------

struct dead_look {
    struct flow *flow;
    const char *stage;
    uint64_t count;
    bool retries;
};

static int handle_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    struct dead_look *look = arg;
    char plain[2048];
    (void)key;
    if (look->retries)
        return mr_retry(look->flow->engine.engine, id) < 0;
    if (++look->count <= DEAD_PRINTED)
        complain("flow: %s (job %" PRIu64 " of %s)",
                 text_plain(plain, sizeof plain, mr_str(reason)), id, look->stage);
    return 0;
}

// Of all stages; a stage that does not exist has none.
static uint64_t each_dead(struct flow *f, bool retries) {
    struct dead_look look = { .flow = f, .retries = retries };
    for (size_t i = 0; i < f->plan->count; i++) {
        char stage[2 * FLOW_NAME + 2];
        if (retries && f->plan->nodes[i].on_dead != ON_DEAD_HALT)
            continue;
        actor_stage(&f->actors[i], stage, sizeof stage);
        look.stage = stage;
        (void)mr_dead(f->engine.engine, stage, handle_dead, &look);
    }
    if (look.count > DEAD_PRINTED)
        complain("flow: and %" PRIu64 " more", look.count - DEAD_PRINTED);
    return look.count;
}

// ---- Running ----------------------------------------------------------------------------------

static bool flow_run_is_interrupted(struct flow *f) {
    struct pollfd p = { .fd = f->signals, .events = POLLIN };
    return poll(&p, 1, 0) > 0 && interrupt_read(&f->interrupts, f->signals);
}

static void flow_run_end_all(struct flow *f) {
    f->ending_us = monotonic_us();
    atomic_store(&f->ending, true);
    execs_stop_any(f->execs.execs);
    for (size_t i = 0; i < f->plan->count; i++)
        if (f->actors[i].filters)
            filters_stop_any(f->actors[i].filters);
}

// Makes sources read no more and steps take no more. MR_EBUSY: something still runs.
static int halt(struct flow *f) {
    uint64_t one = 1;
    if (write(f->halt, &one, sizeof one) < 0)
        complain("flow: %s", strerror(errno));
    return mr_flow_stop(f->flow, 0);
}

// Ends filters that do not answer: waiting for them would have no end.
static void end_silent(struct flow *f, uint64_t since_us) {
    for (size_t i = 0; i < f->plan->count; i++) {
        struct actor *a = &f->actors[i];
        if (!a->filters || a->ended || !program_is_stuck(a, since_us))
            continue;
        a->ended = true;
        complain("flow: %s: it does not answer; it is ended, and its lines are released", a->title);
        filters_stop_any(a->filters);
    }
}

// After a signal a server that cannot be reached is not waited for: it has released what runs. Nor
// is one that does not answer when all that ran was ended. The store of a journal may take its
// time.
static void guard_end(struct flow *f) {
    uint64_t grace_us = EXEC_GRACE_MS * UINT64_C(1000);
    bool ended = atomic_load(&f->ending) && monotonic_us() - f->ending_us > grace_us;
    if (f->interrupts.count && !f->engine.local && !ended && mr_check(f->engine.engine) != MR_ENET)
        interrupts_guard_end();
}

// Waits for what runs; a signal ends that, and a filter that does not answer is not waited for.
static void flow_run_drain(struct flow *f) {
    uint64_t since_us = monotonic_us();
    int err = halt(f);
    for (; err == MR_EBUSY; err = mr_flow_stop(f->flow, LOOK_MS)) {
        guard_end(f);
        if (flow_run_is_interrupted(f) && !atomic_load(&f->ending)) {
            complain("flow: ending what runs");
            flow_run_end_all(f);
        }
        end_silent(f, since_us);
        flow_draw(f);
    }
    if (err < 0)
        complain("flow: %s", mr_error());
    progress_clear();
}

static enum cli_exit interrupted(struct flow *f) {
    if (!f->engine.local)
        interrupts_guard_end();
    if (halt(f) == MR_EBUSY)
        complain("flow: reading no more; what runs may finish (again to end it)");
    flow_run_drain(f);
    return CLI_INTERRUPTED;
}

static enum cli_exit given_up(struct flow *f) {
    flow_run_end_all(f);
    flow_run_drain(f);
    if (f->why[0])
        complain("flow: %s", f->why);
    return f->why[0] ? CLI_FAILED : CLI_INTERRUPTED;
}

// Jobs are dead: the flow halts, or has finished without them.
static enum cli_exit died(struct flow *f, bool over) {
    if (!over)
        flow_run_drain(f);
    each_dead(f, false);
    if (!over)
        complain("flow: halted, because of on-dead: halt; correct it and run the same command "
                 "again, or drop the line: millrace drop --at %s JOB",
                 f->where);
    return CLI_FAILED;
}

// It cannot go on: a source or the engine has failed.
static enum cli_exit flow_run_failed(struct flow *f, int err) {
    enum cli_exit code = flow_run_refuse(err);
    flow_run_drain(f);
    return code;
}

// Prints that a filter holds back its answers.
static void report_silent(struct flow *f) {
    char sentence[512];
    for (size_t i = 0; i < f->plan->count; i++)
        if (f->actors[i].filters && program_is_silent(&f->actors[i], sentence, sizeof sentence))
            complain("flow: %s", sentence);
}

// Notes the counts once a second, so that the next run has those of a run that was killed.
static void count_now_and_then(struct flow *f) {
    uint64_t now_us = monotonic_us();
    if (now_us - f->counted_us < COUNT_MS * 1000)
        return;
    f->counted_us = now_us;
    flow_count(f);
}

static enum cli_exit flow_run_watch(struct flow *f, bool *out_over) {
    for (;;) {
        mr_flow_info info = { 0 };
        int err = mr_flow_wait(f->flow, LOOK_MS);
        if (atomic_load(&f->failed))
            return given_up(f);
        if (err == MR_EDEAD && mr_flow_look(f->flow, &info) == 0) {
            *out_over = info.over;
            return died(f, info.over);
        }
        if (err < 0 && err != MR_EAGAIN)
            return flow_run_failed(f, err);
        if (err == 0) {
            *out_over = true;
            return CLI_DONE;
        }
        if (flow_run_is_interrupted(f))
            return interrupted(f);
        report_silent(f);
        flow_draw(f);
        count_now_and_then(f);
    }
}

// Prints that the server has gone, and that it is back. The main thread cannot: it may be in a call
// that waits for the server.
struct reporter {
    struct flow *flow;
    pthread_t thread;
    int over; // an eventfd
};

static void *report_news(void *arg) {
    const struct reporter *r = arg;
    struct pollfd over = { .fd = r->over, .events = POLLIN };
    char sentence[600];
    while (poll(&over, 1, NEWS_MS) <= 0)
        if (engine_news(&r->flow->engine, sentence, sizeof sentence))
            complain("flow: %s", sentence);
    return NULL;
}

static bool reporter_begin(struct reporter *r) {
    if (r->flow->engine.local)
        return false;
    r->over = eventfd(0, EFD_CLOEXEC);
    int failed = r->over < 0 ? errno : pthread_create(&r->thread, NULL, report_news, r);
    if (failed)
        complain("flow: no thread to watch the server: %s", strerror(failed));
    if (failed && r->over >= 0)
        close(r->over);
    return !failed;
}

static void reporter_end(struct reporter *r) {
    uint64_t one = 1;
    if (write(r->over, &one, sizeof one) == sizeof one)
        pthread_join(r->thread, NULL);
    close(r->over);
}

// A flow that has finished leaves nothing behind but dead jobs.
static void flow_run_finish(struct flow *f, enum cli_exit code) {
    if (!f->journal.dir && mr_flow_forget(f->flow, MR_FOREVER) < 0)
        complain("flow: %s", mr_error());
    for (size_t i = 0; i < f->plan->count; i++)
        if (f->actors[i].reading)
            reading_forget(f->actors[i].reading);
    flow_free(f);
    if (!f->journal.dir && code != CLI_DONE)
        complain("flow: finished without these; millrace dead --at %s lists them until it is run "
                 "again, which begins anew",
                 f->where);
    if (!f->journal.dir)
        return;
    int err = code == CLI_DONE ? journal_remove(&f->journal) : journal_retire(&f->journal);
    if (err >= 0 && code == CLI_DONE && !f->options.journal_given)
        (void)rmdir(f->journal.dir); // unless there is something else in it
    if (err < 0)
        complain("flow: %s", error_text());
    else if (code != CLI_DONE)
        complain("flow: finished without these; millrace dead --at file:%s/finished lists them "
                 "until it is run again, which begins anew",
                 f->journal.dir);
}

static enum cli_exit flow_go(struct flow *f) {
    bool over = false;
    each_dead(f, true);
    f->begun_us = monotonic_us();
    f->draws = flow_is_drawn(f);
    int err = mr_flow_start(f->flow);
    if (err < 0) {
        flow_run_refuse(err);
        if (err == MR_EINVAL && f->journal.dir)
            complain("flow: or begin anew: --fresh");
        return flow_run_exit_of(err);
    }
    struct reporter reporter = { .flow = f };
    bool reports = reporter_begin(&reporter);
    enum cli_exit code = flow_run_watch(f, &over);
    if (reports)
        reporter_end(&reporter);
    progress_clear();
    flow_summary(f, code, over);
    if (!over)
        flow_count(f);
    if (over)
        flow_run_finish(f, code);
    else if (f->journal.dir || strcmp(f->where, "mem:") != 0)
        complain("flow: the same command goes on from here (%s)",
                 f->journal.dir ? f->journal.dir : f->where);
    return code;
}

enum cli_exit flow_start(struct flow *f, const struct input *in) {
    int err = flow_open(f, in);
    enum cli_exit code = err == MR_EAUTH ? engine_unopened("flow", &f->address, err)
                         : err < 0       ? flow_run_refuse(err)
                                         : flow_go(f);
    if (err == MR_EIO)
        code = CLI_UNOPENED;
    flow_free(f);
    journal_close(&f->journal);
    return code;
}
