// The progress of a flow while it lasts, and its summary when it is over.
//
//     [########............] 41 %  12034 lines/s  7s left
//     source      120000 out
//     split       120000 in      730112 out
//     count       730112 in           0 out    3 waiting  2 running
//
// Lines are those of this process, counted again when they are retried; jobs are those of the
// engine.
#include "cli/progress.h"
#include "base/clock.h"
#include "cli/flow/flow.h"
#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <unistd.h>

// ---- Figures ----------------------------------------------------------------------------------

// Of all sources: lines and bytes read, and bytes of all files (total 0: not known).
struct read_so_far {
    uint64_t lines, bytes, total;
};

static struct read_so_far read_so_far(const struct flow *f) {
    struct read_so_far all = { 0 };
    bool known = true;
    for (size_t i = 0; i < f->plan->count; i++) {
        const struct actor *a = &f->actors[i];
        uint64_t bytes = 0, total = 0;
        if (a->node->kind != KIND_SOURCE)
            continue;
        known = a->reading && reading_share(a->reading, &bytes, &total) && known;
        all.lines += a->out;
        all.bytes += bytes;
        all.total += total;
    }
    if (!known)
        all.total = 0;
    return all;
}

// Zero for a node that has no stage of its own.
static mr_stage_info jobs_of(const struct actor *a) {
    char stage[2 * FLOW_NAME + 2];
    mr_stage_info info = { 0 };
    actor_stage(a, stage, sizeof stage);
    (void)mr_stage_look(a->flow->engine.engine, stage, &info); // there may be none
    return info;
}

// ---- While it runs ----------------------------------------------------------------------------

bool flow_is_drawn(const struct flow *f) {
    bool prints = false;
    for (size_t i = 0; i < f->plan->count; i++)
        prints = prints || f->plan->nodes[i].verb == VERB_STDOUT;
    return f->options.progress || !prints || !isatty(STDOUT_FILENO);
}

// How much of all is done: the share that has passed a node is that of the nodes before it, less
// what waits there; the node that is furthest behind decides.
static double share_done(const struct flow *f, const struct read_so_far *r) {
    double read = r->bytes < r->total ? (double)r->bytes / (double)r->total : 1, least = read;
    double through[FLOW_NODES];
    for (size_t i = 0; i < f->plan->count; i++) {
        const struct flow_node *n = &f->plan->nodes[i];
        mr_stage_info info = jobs_of(&f->actors[i]);
        double done = (double)info.done + 1, left = (double)(info.waiting + info.running);
        through[i] = read;
        for (size_t k = 0; k < n->from_count; k++)
            if (through[n->from[k].node] < through[i])
                through[i] = through[n->from[k].node];
        through[i] *= done / (done + left);
        least = through[i] < least ? through[i] : least;
    }
    return least;
}

static void add_head(struct progress_text *t, const struct flow *f) {
    struct read_so_far r = read_so_far(f);
    double seconds = (double)(monotonic_us() - f->begun_us) / 1e6, rate = (double)r.lines / seconds;
    if (!r.total) {
        progress_add(t, "%" PRIu64 " line%s read  %.0f lines/s", r.lines, r.lines == 1 ? "" : "s",
                     rate);
        return;
    }
    double share = share_done(f, &r);
    progress_add_bar(t, share);
    progress_add(t, " %.0f %%  %.0f lines/s", share * 100, rate);
    progress_add_left(t, share > 0 ? seconds * (1 - share) / share : 0);
}

static void add_actor(struct progress_text *t, const struct actor *a, int name_width) {
    mr_stage_info info = jobs_of(a);
    char in[40] = "", out[40] = "";
    if (a->node->kind != KIND_SOURCE)
        snprintf(in, sizeof in, "%" PRIu64 " in", a->in);
    if (a->node->kind != KIND_SINK)
        snprintf(out, sizeof out, "%" PRIu64 " out", a->out);
    progress_add(t, "\n%-*s %14s %14s   ", name_width, a->node->name, in, out);
    if (info.waiting || info.running)
        progress_add(t, "%" PRIu64 " waiting  %" PRIu64 " running", info.waiting, info.running);
    if (info.failed || info.dead)
        progress_add(t, "  %" PRIu64 " failed  %" PRIu64 " dead", info.failed, info.dead);
}

void flow_draw(struct flow *f) {
    struct progress_text t = { 0 };
    int name_width = 0;
    if (!f->draws || !progress_is_due())
        return;
    for (size_t i = 0; i < f->plan->count; i++) {
        int size = (int)strlen(f->plan->nodes[i].name);
        name_width = size > name_width ? size : name_width;
    }
    add_head(&t, f);
    for (size_t i = 0; i < f->plan->count; i++)
        add_actor(&t, &f->actors[i], name_width);
    progress_show(&t);
}

// ---- The summary ------------------------------------------------------------------------------

enum { SINKS_NAMED = 3 };

struct totals {
    uint64_t read, written, dead, failed;
};

// Of all runs: a source that is resumed counts the lines that it skips, unless it was at its end.
static struct totals totals_of(const struct flow *f) {
    struct totals t = { .read = read_so_far(f).lines, .written = f->before[1] };
    if (t.read < f->before[0])
        t.read = f->before[0];
    for (size_t i = 0; i < f->plan->count; i++) {
        mr_stage_info info = jobs_of(&f->actors[i]);
        t.dead += info.dead;
        t.failed += info.failed;
        if (f->plan->nodes[i].kind == KIND_SINK)
            t.written += f->actors[i].in;
    }
    return t;
}

void flow_count(struct flow *f) {
    struct totals t = totals_of(f);
    if (f->journal.dir && journal_count(&f->journal, (uint64_t[]){ t.read, t.written }) < 0)
        complain("flow: %s", mr_error());
}

// Where the lines of a sink go, as the person who started the flow would name it.
static void print_sink(const struct flow *f, const struct flow_node *sink) {
    char text[LINE_SHOWN];
    line_shown(text, mr_str(sink->text ? sink->text : ""));
    if (sink->verb == VERB_FILE)
        fprintf(stderr, "%.*s%s", text[0] == '/' ? 0 : (int)f->folder_size, f->plan->file.path,
                text);
    else if (sink->verb == VERB_PUSH)
        fprintf(stderr, "stage %s", text);
    else
        fprintf(stderr, "%s", sink->verb == VERB_STDOUT ? "stdout" : "nothing");
}

static void print_sinks(const struct flow *f) {
    size_t count = 0;
    for (size_t i = 0; i < f->plan->count; i++)
        count += f->plan->nodes[i].kind == KIND_SINK;
    if (count > SINKS_NAMED) {
        fprintf(stderr, " to %zu sinks", count);
        return;
    }
    const char *before = " to ";
    for (size_t i = 0; i < f->plan->count; i++)
        if (f->plan->nodes[i].kind == KIND_SINK) {
            fputs(before, stderr);
            print_sink(f, &f->plan->nodes[i]);
            before = ", ";
        }
}

static void flow_progress_print_words(const struct flow *f, bool over) {
    struct totals t = totals_of(f);
    double seconds = (double)(monotonic_us() - f->begun_us) / 1e6;
    fprintf(stderr, "millrace: flow %s %s: %" PRIu64 " line%s read, %" PRIu64 " written",
            f->plan->name, over ? "has finished" : "is not finished", t.read,
            t.read == 1 ? "" : "s", t.written);
    print_sinks(f);
    fprintf(stderr, " in %.1f s", seconds);
    if (f->before[0])
        fprintf(stderr, " (%" PRIu64 " and %" PRIu64 " of them by earlier runs)", f->before[0],
                f->before[1]);
    else if (!f->journal.dir)
        fprintf(stderr, " by this process");
    if (t.failed || t.dead)
        fprintf(stderr, "; %" PRIu64 " failed attempt%s, %" PRIu64 " dead job%s", t.failed,
                t.failed == 1 ? "" : "s", t.dead, t.dead == 1 ? "" : "s");
    fprintf(stderr, "\n");
}

static void print_actor(struct json *j, const struct actor *a) {
    mr_stage_info info = jobs_of(a);
    json_open(j, NULL, '{');
    json_text(j, "name", a->node->name);
    json_number(j, "in", a->in);
    json_number(j, "out", a->out);
    json_number(j, "waiting", info.waiting);
    json_number(j, "running", info.running);
    json_number(j, "done", info.done);
    json_number(j, "failed", info.failed);
    json_number(j, "dead", info.dead);
    json_close(j, '}');
}

static void flow_progress_print_json(const struct flow *f, enum cli_exit code, bool over) {
    struct json j = { .to = stderr };
    struct totals t = totals_of(f);
    json_open(&j, NULL, '{');
    json_text(&j, "flow", f->plan->name);
    json_flag(&j, "complete", over);
    json_number(&j, "read", t.read);
    json_number(&j, "written", t.written);
    json_number(&j, "read-before", f->before[0]);
    json_number(&j, "written-before", f->before[1]);
    json_number(&j, "failed", t.failed);
    json_number(&j, "dead", t.dead);
    json_number(&j, "wall-ms", (monotonic_us() - f->begun_us) / 1000);
    json_open(&j, "nodes", '[');
    for (size_t i = 0; i < f->plan->count; i++)
        print_actor(&j, &f->actors[i]);
    json_close(&j, ']');
    json_number(&j, "exit", code);
    json_close(&j, '}');
    json_end(&j);
}

void flow_summary(struct flow *f, enum cli_exit code, bool over) {
    if (f->options.json)
        flow_progress_print_json(f, code, over);
    else if (f->options.progress || code != CLI_DONE || isatty(STDERR_FILENO))
        flow_progress_print_words(f, over);
}
