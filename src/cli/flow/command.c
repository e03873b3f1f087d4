// Steps that are commands: a line in on stdin (or where {} stands), lines out on stdout.
//
//     mode job:     a process a line; exit 0: what it wrote counts; millrace emit and state work
//     mode filter:  it stays; a line in, one line out (map), or lines and an empty one (flat_map)
//
// The output of a command is committed with the end of its line: nothing of it counts if it fails.
#include "base/clock.h"
#include "base/errors.h"
#include "cli/flow/flow.h"
#include "cli/output.h"

#include <inttypes.h>

enum { OUTPUT_MOST = 8 << 20 };

// ---- Opening ----------------------------------------------------------------------------------

int program_open(struct actor *a) {
    const struct flow_node *n = a->node;
    bool one = n->verb == VERB_MAP;
    if (n->mode != MODE_FILTER)
        return template_open(n->words, true, &a->template);
    struct filters_options options = { .argv = n->words, .mode = one ? FILTER_LINE : FILTER_LINES };
    return filters_create(&options, &a->filters);
}

void program_close(struct actor *a) {
    filters_destroy(a->filters);
    template_close(&a->template);
    a->filters = NULL;
}

// ---- Its output ----------------------------------------------------------------------------

static int send(struct actor *a, mr_flow_out *out, const char *output, mr_bytes key,
                mr_bytes line) {
    struct buffer named = { 0 };
    a->out++;
    if (!a->has_outputs)
        return mr_flow_emit(out, key, line);
    int err = buffer_append(&named, output, strlen(output) + 1);
    if (err >= 0)
        err = buffer_append(&named, line.data, line.size);
    if (err >= 0)
        err = mr_flow_emit(out, key, buffer_bytes(&named));
    buffer_finish(&named);
    return err;
}

// A map answers with one line.
static int check_map(const struct actor *a, mr_flow_out *out, mr_pair pair, mr_bytes text) {
    if (a->node->verb != VERB_MAP)
        return 0;
    if (!text.size && a->node->mode == MODE_JOB)
        return step_fail(out, pair, MR_EINVAL,
                         "it wrote nothing, and a map answers with one line; a flat_map with any "
                         "number");
    if (text.size > 1 && memchr(text.data, '\n', text.size - 1))
        return step_fail(out, pair, MR_EINVAL, "it wrote more than one line, which a flat_map may");
    return 0;
}

static int send_lines(struct actor *a, mr_flow_out *out, mr_pair pair, mr_bytes text) {
    mr_bytes key = pair.key;
    int err = check_map(a, out, pair, text);
    if (err < 0 || !text.size)
        return err < 0 || a->node->verb != VERB_MAP ? err : send(a, out, "", key, text);
    const char *p = text.data, *end = p + text.size;
    while (err >= 0 && p < end) {
        const char *line_end = memchr(p, '\n', (size_t)(end - p));
        size_t size = (size_t)((line_end ? line_end : end) - p);
        err = send(a, out, "", key, (mr_bytes){ p, size });
        p += size + 1;
    }
    return err;
}

// ---- Its emits and state -----------------------------------------------------------

struct flow_collecting {
    struct actor *actor;
    mr_flow_out *out;
    mr_pair pair;
};

static bool output_is_taken(const struct actor *a, const char *output) {
    const struct plan *p = a->flow->plan;
    size_t self = (size_t)(a->node - p->nodes);
    for (size_t i = 0; i < p->count; i++) {
        const struct flow_node *n = &p->nodes[i];
        for (size_t k = 0; k < n->from_count + n->loop_count; k++) {
            const struct flow_input *in = node_input(n, k);
            if (in->node == self && in->output && strcmp(in->output, output) == 0)
                return true;
        }
    }
    return false;
}

// A flow's pairs have no META.
static int flow_command_collect_emit(const char *output, const struct side_emit *e, void *arg) {
    struct flow_collecting *c = arg;
    mr_bytes body = e->body;
    if (!output_is_taken(c->actor, output))
        return step_fail(c->out, c->pair, MR_EINVAL,
                         "it emits to '%.60s', and no step has from: %s:%.60s", output,
                         c->actor->node->name, output);
    if (body.size && ((const char *)body.data)[body.size - 1] == '\n')
        body.size--;
    return send(c->actor, c->out, output, e->key.size ? e->key : c->pair.key, body);
}

static int flow_command_collect_state(mr_bytes state, void *arg) {
    struct flow_collecting *c = arg;
    if (!c->pair.key.size)
        return step_fail(c->out, c->pair, MR_EINVAL,
                         "state is kept for a key, and this line has none: key: field 1");
    return mr_flow_set(c->out, state);
}

// ---- Running ----------------------------------------------------------------------------------

static int flow_command_refuse(struct actor *a, mr_flow_out *out, mr_pair pair,
                               const struct exec_result *x) {
    if (x->end == EXEC_STOPPED)
        return MR_EBUSY;
    if (exec_is_missing(x) && !a->template.varies)
        return actor_give_up(a, x->reason);
    int code =
        x->end == EXEC_OUTPUT ? MR_EDEAD : MR_EINVAL; // a further attempt would write as much
    char words[LAST_WORDS_MOST];
    mr_flow_set_output(out, (mr_bytes){ words, job_exec_last_words(x, words) });
    return step_fail(out, pair, code, "%s", x->reason);
}

// 0: `out_run` has how it ended.
static int run_process(struct actor *a, mr_pair pair, mr_flow_out *out, bool is_pure,
                       struct job_exec *out_run) {
    const mr_job *job = mr_flow_job(out);
    struct buffer input = { 0 };
    bool piped = !a->template.takes_line;
    int err =
        piped && pair.value.size ? buffer_append(&input, pair.value.data, pair.value.size) : 0;
    if (err >= 0 && piped)
        err = buffer_append(&input, "\n", 1);
    struct job_exec_order order = {
        .template = &a->template,
        .parts = { .line = pair.value, .key = pair.key, .number = mr_job_id(job) },
        .job = job,
        .input = buffer_bytes(&input),
        .state = is_pure ? (mr_bytes){ 0 } : mr_flow_state(out),
        .is_pure = is_pure,
        .timeout_ms = a->node->timeout_ms,
        .max_output = OUTPUT_MOST
    };
    if (err >= 0)
        err = job_exec_run(&a->flow->execs, &order, out_run);
    buffer_finish(&input);
    return err < 0 ? step_fail(out, pair, err, "%s", error_text()) : 0;
}

static int take_output(struct actor *a, mr_pair pair, mr_flow_out *out, struct job_exec *run) {
    struct flow_collecting c = { a, out, pair };
    struct side_file_reader taker = { flow_command_collect_emit, flow_command_collect_state, NULL,
                                      &c };
    mr_bytes text;
    int err = spool_bytes(&run->result.output, &text);
    if (err >= 0)
        err = send_lines(a, out, pair, text);
    return err < 0 ? err : side_file_read(&run->side, &taker);
}

static int flow_command_run_job(struct actor *a, mr_pair pair, mr_flow_out *out) {
    struct job_exec run = { 0 };
    int err = run_process(a, pair, out, false, &run);
    if (err < 0)
        return err;
    err = exec_ended_well(&run.result) ? take_output(a, pair, out, &run)
                                       : flow_command_refuse(a, out, pair, &run.result);
    job_exec_finish(&run);
    return err;
}

// ---- Filters ----------------------------------------------------------------------------------

enum { SILENCE_US = 5000000 }; // without an answer until that is printed, the first time

// A line that was sent to a filter, and is not answered yet.
struct asked {
    mr_bytes line;
    uint64_t since_us;
    struct asked *next;
};

static void ask_begin(struct actor *a, struct asked *asked) {
    asked->since_us = monotonic_us();
    pthread_mutex_lock(&a->flow->lock);
    asked->next = a->asked;
    a->asked = asked;
    pthread_mutex_unlock(&a->flow->lock);
}

static void ask_end(struct actor *a, struct asked *asked) {
    pthread_mutex_lock(&a->flow->lock);
    struct asked **at = &a->asked;
    while (*at != asked)
        at = &(*at)->next;
    *at = asked->next;
    pthread_mutex_unlock(&a->flow->lock);
}

bool program_is_silent(struct actor *a, char *out, size_t size) {
    char shown[LINE_SHOWN];
    uint64_t now_us = monotonic_us(), silence_us = a->silence_us ? a->silence_us : SILENCE_US;
    pthread_mutex_lock(&a->flow->lock);
    const struct asked *asked = a->asked;
    while (asked && now_us - asked->since_us < silence_us)
        asked = asked->next;
    if (asked)
        snprintf(out, size,
                 "%s: it has had the line '%s' for %" PRIu64 " s and not answered; does it hold "
                 "back what it writes? (sed -u, grep --line-buffered, python -u; timeout: 30s "
                 "would end it)",
                 a->title, line_shown(shown, asked->line), (now_us - asked->since_us) / 1000000);
    pthread_mutex_unlock(&a->flow->lock);
    if (asked)
        a->silence_us = 2 * silence_us;
    return asked != NULL;
}

bool program_is_stuck(struct actor *a, uint64_t since_us) {
    uint64_t now_us = monotonic_us();
    bool stuck = false;
    pthread_mutex_lock(&a->flow->lock);
    for (const struct asked *asked = a->asked; asked; asked = asked->next) {
        uint64_t from_us = asked->since_us > since_us ? asked->since_us : since_us;
        stuck = stuck || now_us >= from_us + FLOW_GRACE_US;
    }
    pthread_mutex_unlock(&a->flow->lock);
    return stuck;
}

static int ask_filter(struct actor *a, mr_pair pair, mr_flow_out *out) {
    struct exec_order order = { .job = mr_flow_job(out),
                                .input = pair.value,
                                .timeout_ms = a->node->timeout_ms,
                                .max_output = OUTPUT_MOST };
    struct exec_result x = { 0 };
    mr_bytes text;
    struct asked asked = { .line = pair.value };
    ask_begin(a, &asked);
    int err = filter_run(a->filters, &order, &x);
    ask_end(a, &asked);
    if (err == MR_ESTOPPED)
        return actor_give_up(a, error_text());
    if (err < 0)
        return step_fail(out, pair, err, "%s", error_text());
    bool well = exec_ended_well(&x) && !x.reason[0];
    err = well ? spool_bytes(&x.output, &text) : flow_command_refuse(a, out, pair, &x);
    if (well && err >= 0)
        err = send_lines(a, out, pair, text);
    exec_result_finish(&x);
    return err;
}

int program_run(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    a->in++;
    int err = a->filters ? ask_filter(a, pair, out) : flow_command_run_job(a, pair, out);
    if (err < 0)
        a->in--;
    return err;
}

int program_keep(mr_pair pair, mr_flow_out *out, void *arg) {
    struct actor *a = arg;
    struct job_exec run = { 0 };
    a->in++;
    int err = run_process(a, pair, out, true, &run);
    if (err < 0)
        return err;
    const struct exec_result *x = &run.result;
    bool decided = x->end == EXEC_EXITED && (x->code == 0 || x->code == 1);
    int keeps = decided ? x->code == 0 : flow_command_refuse(a, out, pair, x);
    a->out += keeps > 0;
    job_exec_finish(&run);
    return keeps;
}

// A line behind the name of its output and a 0 byte.
int program_route(mr_pair pair, mr_flow_out *out, void *arg) {
    const char *output = pair.value.data;
    size_t size = strlen(output) + 1;
    mr_bytes line = { output + size, pair.value.size - size };
    (void)arg;
    return mr_flow_emit_to(out, *output ? output : PROGRAM_MAIN, pair.key, line);
}
