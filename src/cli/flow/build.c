// Makes operators of the library from a plan. A node becomes one to three of them:
//
//     count: aggregate       count--in ─► count ─► count--out
//                            line to      folds    result to
//                            key, number           line
//
// `--in` finds keys and numbers, `--out` makes lines or sends them to outputs; both run inside the
// operators before them. A command is a stage of its own; one process a line means one line a job,
// so that a line that fails fails alone.
#include "cli/flow/flow.h"

enum {
    OPERATOR = FLOW_NAME + 8,
    INPUTS = 2 * FLOW_INPUTS * (2 * FLOW_NAME + 8),
    FILTER_BLOCK = 64
};

static const char crash_backoff[] = "1ms..10ms"; // short: crashes are demonstrations
static const char builtin_backoff[] = "100ms..10s";

// ---- Names ------------------------------------------------------------------------------------

static const char *part_name(char out[OPERATOR], const struct actor *a, const char *part) {
    snprintf(out, OPERATOR, "%s--%s", a->node->name, part);
    return out;
}

// Whether lines of the node leave it through its `--out`.
static bool has_out(const struct actor *a) {
    return a->node->verb == VERB_AGGREGATE || a->has_outputs;
}

// Whether lines of a step come in through its `--in`: to get a key, to be measured or counted.
static bool has_in(const struct actor *a) {
    return a->node->key.text || a->node->verb == VERB_AGGREGATE || a->node->verb == VERB_CRASH;
}

static void add_input(const struct flow *f, const struct flow_input *in, char out[INPUTS]) {
    const struct actor *a = &f->actors[in->node];
    size_t used = strlen(out);
    const char *part = has_out(a) ? "--out" : "";
    const char *colon = a->has_outputs ? ":" : "";
    const char *output = !a->has_outputs ? "" : in->output ? in->output : PROGRAM_MAIN;
    snprintf(out + used, INPUTS - used, "%s%s%s%s%s", used ? " " : "", a->node->name, part, colon,
             output);
}

// Where the node's lines come from, loops left out: they are declared one by one.
static void inputs_of(const struct actor *a, char out[INPUTS]) {
    *out = 0;
    for (size_t i = 0; i < a->node->from_count; i++)
        add_input(a->flow, &a->node->from[i], out);
}

void actor_stage(const struct actor *a, char *out, size_t size) {
    snprintf(out, size, "%s/%s", a->flow->plan->name, a->node->name);
}

// ---- Options ----------------------------------------------------------------------------------

// Options of an operator that runs inside those before it.
static mr_operator_options part_options(const struct actor *a) {
    return (mr_operator_options){ .title = a->title };
}

// A built-in step fails a faulty line at once and for good; other failures are the machine's, and
// the line is tried until they are over. Options of a step need a stage of its own.
static mr_operator_options options_of(const struct actor *a) {
    const struct flow_node *n = a->node;
    bool command = node_is_command(n);
    const char *backoff = command ? NULL : builtin_backoff;
    return (mr_operator_options){ .title = a->title,
                                  .on_dead = n->on_dead == ON_DEAD_HALT ? "halt" : "skip",
                                  .backoff = n->backoff ? n->backoff : backoff,
                                  .attempts = n->attempts || command ? n->attempts : UINT16_MAX,
                                  .jobs = n->jobs,
                                  .partitions = n->partitions,
                                  .apart = command || n->backoff || n->attempts || n->jobs ||
                                           n->has_on_dead };
}

// ---- Nodes ------------------------------------------------------------------------------------

// Adds an operator before the node that prepares its lines; `from` becomes its name.
static int add_in(struct actor *a, mr_flow_function *function, char from[INPUTS]) {
    char name[OPERATOR];
    mr_operator_options options = part_options(a);
    int err = mr_flow_map(a->flow->flow, part_name(name, a, "in"), from, function, a, &options);
    snprintf(from, INPUTS, "%s", name);
    return err;
}

static int add_source(struct actor *a) {
    const struct flow_node *n = a->node;
    mr_operator_options options = options_of(a);
    if (n->verb == VERB_TAKE)
        return mr_flow_take(a->flow->flow, n->name, n->text, &options);
    int err = reading_open(a->flow, a, &a->reading);
    return err < 0 ? err : mr_flow_source(a->flow->flow, n->name, reading_read, a, &options);
}

static int add_aggregate(struct actor *a, char from[INPUTS]) {
    const struct flow_node *n = a->node;
    mr_operator_options options = options_of(a), telling = part_options(a);
    mr_window window = { .size = n->window_size, .slide = n->window_slide };
    mr_flow_fold *const folds[] = { [HOW_COUNT] = mr_flow_count,
                                    [HOW_SUM] = mr_flow_sum,
                                    [HOW_MIN] = mr_flow_min,
                                    [HOW_MAX] = mr_flow_max,
                                    [HOW_MEAN] = fold_mean };
    char out[OPERATOR];
    int err = add_in(a, step_measure, from);
    if (err >= 0)
        err = mr_flow_aggregate(a->flow->flow, n->name, from, folds[n->how], a,
                                n->window_size ? &window : NULL, &options);
    if (err >= 0)
        err =
            mr_flow_map(a->flow->flow, part_name(out, a, "out"), n->name, step_result, a, &telling);
    return err;
}

static bool same_output(const struct flow_input *a, const struct flow_input *b) {
    return a->node == b->node && a->output && b->output && strcmp(a->output, b->output) == 0;
}

// The names of its outputs, each once.
static void outputs_of(const struct actor *a, char out[INPUTS]) {
    const struct plan *p = a->flow->plan;
    const struct flow_input *seen[FLOW_NODES * FLOW_INPUTS];
    size_t count = 0;
    snprintf(out, INPUTS, PROGRAM_MAIN);
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->nodes[i].from_count + p->nodes[i].loop_count; k++) {
            const struct flow_input *in = node_input(&p->nodes[i], k);
            if (&p->nodes[in->node] != a->node || !in->output)
                continue;
            bool again = false;
            for (size_t j = 0; j < count; j++)
                again = again || same_output(seen[j], in);
            seen[count++] = in;
            size_t used = strlen(out);
            if (!again)
                snprintf(out + used, INPUTS - used, " %s", in->output);
        }
}

static int add_command(struct actor *a, const char *from) {
    const struct flow_node *n = a->node;
    mr_flow *f = a->flow->flow;
    bool keyed = plan_has_key(a->flow->plan, n) && n->mode == MODE_JOB;
    mr_operator_options options = options_of(a), routing = part_options(a);
    char outputs[INPUTS], out[OPERATOR];
    options.block = n->mode == MODE_JOB ? 1 : FILTER_BLOCK;
    options.partitions = keyed ? MR_FLOW_PARTITIONS : 0;
    int err = program_open(a);
    if (err < 0)
        return err;
    if (n->verb == VERB_FILTER)
        return mr_flow_filter(f, n->name, from, program_keep, a, &options);
    if (keyed)
        err = mr_flow_stage(f, n->name, from, program_run, a, &options);
    else
        err = mr_flow_flat_map(f, n->name, from, program_run, a, &options);
    if (err < 0 || !a->has_outputs)
        return err;
    outputs_of(a, outputs);
    return mr_flow_split(f, part_name(out, a, "out"), n->name, outputs, program_route, a, &routing);
}

static int add_crash(struct actor *a, const char *from) {
    mr_operator_options options = options_of(a);
    if (!a->node->backoff)
        options.backoff = crash_backoff;
    options.apart = 1; // so that its attempts can be seen
    return mr_flow_flat_map(a->flow->flow, a->node->name, from, step_crash, a, &options);
}

static int add_builtin(struct actor *a, const char *from) {
    const struct flow_node *n = a->node;
    mr_operator_options options = options_of(a);
    mr_flow *f = a->flow->flow;
    if (n->verb == VERB_FILTER)
        return mr_flow_filter(f, n->name, from, step_regex, a, &options);
    if (n->verb == VERB_MAP)
        return mr_flow_map(f, n->name, from, step_fields, a, &options);
    mr_flow_function *function = n->how == HOW_WORDS   ? step_words
                                 : n->how == HOW_LINES ? step_lines
                                                       : step_fields_each;
    return mr_flow_flat_map(f, n->name, from, function, a, &options);
}

static int add_step(struct actor *a, char from[INPUTS]) {
    const struct flow_node *n = a->node;
    if (n->verb == VERB_AGGREGATE)
        return add_aggregate(a, from);
    int err = has_in(a) ? add_in(a, step_key, from) : 0;
    if (err < 0)
        return err;
    if (n->verb == VERB_CRASH)
        return add_crash(a, from);
    return node_is_command(n) ? add_command(a, from) : add_builtin(a, from);
}

static int add_sink(struct actor *a, char from[INPUTS]) {
    const struct flow_node *n = a->node;
    mr_operator_options options = options_of(a);
    mr_flow *f = a->flow->flow;
    if (n->verb == VERB_NOTHING)
        return mr_flow_filter(f, n->name, from, step_drop, a, &options);
    if (n->verb == VERB_STDOUT)
        return mr_flow_sink(f, n->name, from, receive_print, a, &options);
    int err = add_in(a, n->verb == VERB_FILE ? step_plain : step_key, from);
    if (err < 0)
        return err;
    return n->verb == VERB_FILE ? mr_flow_file(f, n->name, from, n->text, &options)
                                : mr_flow_push(f, n->name, from, n->text, &options);
}

// ---- The whole flow
// --------------------------------------------------------------------------------

static int add_node(struct actor *a) {
    char from[INPUTS];
    inputs_of(a, from);
    switch (a->node->kind) {
    case KIND_SOURCE:
        return add_source(a);
    case KIND_STEP:
        return add_step(a, from);
    case KIND_SINK:
        return add_sink(a, from);
    }
    return 0;
}

// A loop leads to the operator that gets the node's other lines.
static int add_loops(struct actor *a) {
    char from[INPUTS], to[OPERATOR];
    const struct flow_node *n = a->node;
    int err = 0;
    for (size_t i = 0; err >= 0 && i < n->loop_count; i++) {
        *from = 0;
        add_input(a->flow, &n->loop[i], from);
        snprintf(to, sizeof to, "%s%s", n->name, has_in(a) ? "--in" : "");
        err = mr_flow_loop(a->flow->flow, from, to);
    }
    return err;
}

static void stop_command(mr_job *job, void *arg) {
    struct flow *f = arg;
    exec_stop_any(f->execs.execs, job);
    for (size_t i = 0; i < f->plan->count; i++)
        if (f->actors[i].filters)
            filter_stop_any(f->actors[i].filters, job);
}

static void actor_init(struct actor *a, struct flow *f, const struct flow_node *n) {
    *a = (struct actor){ .flow = f, .node = n };
    snprintf(a->title, sizeof a->title, "%s:%d: %s", f->plan->file.path, n->at.line, n->name);
}

static void actors_init(struct flow *f) {
    const struct plan *p = f->plan;
    for (size_t i = 0; i < p->count; i++)
        actor_init(&f->actors[i], f, &p->nodes[i]);
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->nodes[i].from_count + p->nodes[i].loop_count; k++) {
            const struct flow_input *in = node_input(&p->nodes[i], k);
            if (in->output)
                f->actors[in->node].has_outputs = true;
        }
}

int flow_build(struct flow *f) {
    mr_flow_options options = { .on_stop = stop_command, .arg = f };
    actors_init(f);
    int err = mr_flow_open(f->engine.engine, f->plan->name, &options, &f->flow);
    for (size_t i = 0; err >= 0 && i < f->plan->count; i++)
        err = add_node(&f->actors[i]);
    for (size_t i = 0; err >= 0 && i < f->plan->count; i++)
        err = add_loops(&f->actors[i]);
    return err < 0 ? err : mr_flow_check(f->flow);
}
