// The bar of a run while it lasts, and its summary when it is over.
//
//     [##########··········] 512 of 1000  45.2/s  4 at once  2 failed  12s left
//       ann [####................] 2 of 10 attachments
//
// Below it are lines whose commands have said how far they are (millrace progress), a few at most.
// The number of lines is known when the input has been read; until then the bar has the lines read
// so far, and no time.
#include "base/clock.h"
#include "cli/json.h"
#include "cli/output.h"
#include "cli/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

// ---- The bar ----------------------------------------------------------------------------------

bool bar_is_wanted(const struct run_options *o) {
    if (!output_is_rich(stderr))
        return false;
    return o->progress || !isatty(STDOUT_FILENO);
}

struct figures {
    uint64_t read, ended, failed;
    double per_s;
    uint32_t level;
};

static struct figures run_progress_look(const struct run *r) {
    struct figures f = { .read = r->read, .ended = r->ended, .failed = r->failed };
    double s = (double)(monotonic_us() - r->begun_us) / 1e6;
    f.per_s = s > 0 ? (double)(f.ended - r->ended_before) / s : 0;
    f.level = r->look.level;
    return f;
}

enum { SHOWN_RUNNING = 5, LOOKED_RUNNING = 100 };

struct bar_lines {
    struct progress_text *to;
    int count;
};

static int bar_add_running(const mr_job_info *job, void *arg) {
    struct bar_lines *lines = arg;
    char words[PROGRESS_WORDS], key[LINE_SHOWN];
    if (!job->progress_text)
        return 0;
    if (job->key.size)
        progress_add(lines->to, "\n  %.40s ", line_shown(key, job->key));
    else
        progress_add(lines->to, "\n  job %" PRIu64 " ", job->id);
    if (job->progress_total) {
        progress_add_bar(lines->to, (double)job->progress_done / (double)job->progress_total);
        progress_add(lines->to, " ");
    }
    progress_add(
        lines->to, "%s",
        progress_words(words, job->progress_done, job->progress_total, mr_str(job->progress_text)));
    return ++lines->count == SHOWN_RUNNING;
}

static void bar_add_progress(struct run *r, struct progress_text *to) {
    struct bar_lines lines = { .to = to };
    mr_job_filter running = { .status = "running", .count = LOOKED_RUNNING };
    if (atomic_load(&r->execs.has_progress))
        (void)mr_jobs(r->engine, RUN_STAGE, &running, bar_add_running, &lines); // the bar is enough
}

void bar_draw(struct run *r) {
    if (r->worker)
        (void)mr_worker_look(r->worker, &r->look); // the worker is open
    struct figures f = run_progress_look(r);
    struct progress_text t = { 0 };
    if (r->input_over) {
        progress_add_bar(&t, f.read ? (double)f.ended / (double)f.read : 0);
        progress_add(&t, " %" PRIu64 " of %" PRIu64, f.ended, f.read);
    } else {
        progress_add(&t, "%" PRIu64 " done, %" PRIu64 " read", f.ended, f.read);
    }
    progress_add(&t, "  %.1f/s  %" PRIu32 " at once", f.per_s, f.level);
    if (f.failed)
        progress_add(&t, "  %" PRIu64 " failed", f.failed);
    if (r->input_over && f.per_s > 0)
        progress_add_left(&t, (double)(f.read - f.ended) / f.per_s);
    bar_add_progress(r, &t);
    output_bar(&r->output, &t);
}

// ---- The summary ------------------------------------------------------------------------------

// The levels that were chosen, and the reason for the last one.
static void print_levels(const mr_worker_info *look) {
    if (!look->choice_count)
        return;
    fprintf(stderr, "; %s", look->why);
    for (uint32_t i = 0; i < look->choice_count && look->choice_count > 1; i++)
        fprintf(stderr, "%s%" PRIu32, i ? " → " : " (", look->choices[i]);
    if (look->choice_count > 1)
        fprintf(stderr, ")");
}

static double ms_of(const struct run *r, double share) {
    return (double)histogram_quantile(&r->job_us, share) / 1000;
}

static void run_progress_print_words(struct run *r) {
    struct figures f = run_progress_look(r);
    fprintf(stderr, "millrace: %" PRIu64 " done, %" PRIu64 " failed", (uint64_t)r->done, f.failed);
    if (r->retried)
        fprintf(stderr, ", %" PRIu64 " retried", (uint64_t)r->retried);
    if (f.read > f.ended)
        fprintf(stderr, ", %" PRIu64 " read and not ended", f.read - f.ended);
    if (r->ended_before)
        fprintf(stderr, ", %" PRIu64 " of them before", r->ended_before);
    fprintf(stderr, " in %.1f s (%.1f/s)", (double)(monotonic_us() - r->begun_us) / 1e6, f.per_s);
    if (r->job_us.count)
        fprintf(stderr, "; half took up to %.1f ms, 95 %% up to %.1f ms", ms_of(r, 0.5),
                ms_of(r, 0.95));
    print_levels(&r->look);
    if (r->keyless)
        fprintf(stderr, "; %" PRIu64 " had no key", (uint64_t)r->keyless);
    fprintf(stderr, "\n");
}

static void print_failures(struct json *j, const struct run *r) {
    json_open(j, "failures", '[');
    for (uint64_t i = 0; i < r->reported && i < FAILURES_LISTED; i++) {
        const struct run_failure *f = &r->failures[i];
        json_open(j, NULL, '{');
        json_number(j, f->line ? "line" : "job", f->line ? f->line : f->job);
        json_text(j, "text", f->text);
        json_text(j, "reason", f->reason);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void run_progress_print_json(struct run *r, enum cli_exit code) {
    struct json j = { .to = stderr };
    struct figures f = run_progress_look(r);
    json_open(&j, NULL, '{');
    json_number(&j, "read", f.read);
    json_number(&j, "done", r->done);
    json_number(&j, "failed", f.failed);
    json_number(&j, "retried", r->retried);
    json_number(&j, "ended-before", r->ended_before);
    json_number(&j, "keyless", r->keyless);
    json_flag(&j, "complete", r->input_over && f.read == f.ended);
    json_number(&j, "wall-ms", (monotonic_us() - r->begun_us) / 1000);
    json_number(&j, "job-p50-us", histogram_quantile(&r->job_us, 0.5));
    json_number(&j, "job-p95-us", histogram_quantile(&r->job_us, 0.95));
    json_open(&j, "levels", '[');
    for (uint32_t i = 0; i < r->look.choice_count; i++)
        json_number(&j, NULL, r->look.choices[i]);
    json_close(&j, ']');
    json_text(&j, "level-why", r->look.why ? r->look.why : "");
    print_failures(&j, r);
    json_number(&j, "exit", code);
    json_close(&j, '}');
    json_end(&j);
}

static bool is_notable(const struct run *r, enum cli_exit code) {
    return r->failed || code == CLI_INTERRUPTED || code == CLI_DEADLINE;
}

void summary_print(struct run *r, enum cli_exit code) {
    progress_clear();
    if (r->options->json)
        run_progress_print_json(r, code);
    else if (r->options->progress || (is_notable(r, code) && !r->quiet))
        run_progress_print_words(r);
    else if (r->keyless > 1 && !r->quiet)
        complain("run: %" PRIu64 " of %" PRIu64 " lines had no key", (uint64_t)r->keyless,
                 (uint64_t)r->read);
}
