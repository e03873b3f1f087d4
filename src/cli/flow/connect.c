// Checks a plan as a whole: which node a name stands for, where lines go, what does not fit
// together, and whether its files and commands exist.
#include "base/errors.h"
#include "cli/flow/plan.h"

#include "cli/placeholders.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- Names ------------------------------------------------------------------------------------

static const char *kind_word(enum flow_kind kind) {
    switch (kind) {
    case KIND_SOURCE:
        return "source";
    case KIND_STEP:
        return "step";
    case KIND_SINK:
        return "sink";
    }
    return "";
}

// A single source or sink has the default name "source" or "sink".
static void name_all(struct plan *p) {
    size_t counts[3] = { 0 };
    unsigned before = p->file.mistakes;
    for (size_t i = 0; i < p->count; i++)
        counts[p->nodes[i].kind]++;
    for (size_t i = 0; i < p->count; i++) {
        struct flow_node *n = &p->nodes[i];
        if (n->name)
            continue;
        if (counts[n->kind] > 1)
            yaml_refuse(&p->file, n->at, "one of several %ss needs a name", kind_word(n->kind));
        n->name = kind_word(n->kind);
    }
    for (size_t i = 0; p->file.mistakes == before && i < p->count; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(p->nodes[i].name, p->nodes[j].name) == 0)
                yaml_refuse(&p->file, p->nodes[i].at,
                            "there is a %s called '%s' already, in line %d",
                            kind_word(p->nodes[j].kind), p->nodes[i].name, p->nodes[j].at.line);
}

static size_t node_find(const struct plan *p, const struct flow_input *in) {
    size_t i = 0;
    while (i < p->count && (strlen(p->nodes[i].name) != in->name_size ||
                            memcmp(p->nodes[i].name, in->name, in->name_size) != 0))
        i++;
    return i;
}

static void refuse_unknown(struct plan *p, const struct flow_input *in) {
    const char *names[FLOW_NODES];
    char name[FLOW_NAME + 1];
    snprintf(name, sizeof name, "%.*s", (int)in->name_size, in->name);
    for (size_t i = 0; i < p->count; i++)
        names[i] = p->nodes[i].kind == KIND_SINK ? NULL : p->nodes[i].name;
    const char *nearest = name_nearest(name, names, p->count);
    if (nearest)
        yaml_refuse(&p->file, in->at, "there is no step '%s'; did you mean %s?", name, nearest);
    else
        yaml_refuse(&p->file, in->at, "there is no step '%s'", name);
}

// ---- Edges ------------------------------------------------------------------------------------

bool node_is_command(const struct flow_node *n) {
    bool may = n->verb == VERB_MAP || n->verb == VERB_FLAT_MAP || n->verb == VERB_FILTER;
    return may && n->how == HOW_COMMAND;
}

// Only a command that runs once a line can emit, with millrace emit.
static void check_output_name(struct plan *p, const struct flow_input *in) {
    const struct flow_node *n = &p->nodes[in->node];
    if (!in->output)
        return;
    if (!node_is_command(n) || n->mode != MODE_JOB)
        yaml_refuse(&p->file, in->at,
                    "'%s' has no outputs with names: a command with mode: job has, to which it "
                    "writes with millrace emit",
                    n->name);
    else if (!name_is_good(in->output))
        yaml_refuse(&p->file, in->at,
                    "an output '%.60s': up to %d letters, digits, _ and -, but not --", in->output,
                    FLOW_NAME);
}

static void connect_from(struct plan *p, size_t index, struct flow_input *in) {
    const struct flow_node *node = &p->nodes[index];
    in->node = node_find(p, in);
    if (in->node == p->count)
        refuse_unknown(p, in);
    else if (p->nodes[in->node].kind == KIND_SINK)
        yaml_refuse(&p->file, in->at, "'%s' is a sink: nothing comes from there", in->name);
    else if (in->node == index)
        yaml_refuse(&p->file, in->at, "'%s' feeds itself; if that is intended: loop: %s", in->name,
                    in->name);
    else if (in->node > index)
        yaml_refuse(&p->file, in->at,
                    "'%s' comes after '%s', so this is a cycle; if that is intended: loop: %s",
                    in->name, node->name, in->name);
    else
        check_output_name(p, in);
}

static void connect_loop(struct plan *p, size_t index, struct flow_input *in) {
    in->node = node_find(p, in);
    if (in->node == p->count)
        refuse_unknown(p, in);
    else if (p->nodes[in->node].kind != KIND_STEP)
        yaml_refuse(&p->file, in->at, "a loop comes from a step, and '%s' is a %s", in->name,
                    kind_word(p->nodes[in->node].kind));
    else if (in->node < index)
        yaml_refuse(&p->file, in->at, "'%s' comes before '%s': that is no loop; from: %s", in->name,
                    p->nodes[index].name, in->name);
    else
        check_output_name(p, in);
}

// The node before it: of steps the one above, of sinks the last step.
static void connect_default(struct plan *p, size_t index) {
    struct flow_node *n = &p->nodes[index];
    size_t before = index;
    while (before > 0 && p->nodes[before - 1].kind == KIND_SINK)
        before--;
    if (n->kind == KIND_SOURCE || before == 0)
        return;
    n->from[n->from_count++] = (struct flow_input){ .name = p->nodes[before - 1].name,
                                                    .name_size = strlen(p->nodes[before - 1].name),
                                                    .at = n->at,
                                                    .node = before - 1 };
    bool doubtful = p->nodes[before - 1].kind == KIND_SOURCE && before > 1;
    if (doubtful)
        yaml_refuse(&p->file, n->at, "there are several sources: which of them? from: NAME");
}

static void connect_node(struct plan *p, size_t index) {
    struct flow_node *n = &p->nodes[index];
    for (size_t i = 0; i < n->from_count; i++)
        connect_from(p, index, &n->from[i]);
    for (size_t i = 0; i < n->loop_count; i++)
        connect_loop(p, index, &n->loop[i]);
    if (!n->from_count)
        connect_default(p, index);
}

static bool has_taker(const struct plan *p, size_t index) {
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; k < p->nodes[i].from_count + p->nodes[i].loop_count; k++)
            if (node_input(&p->nodes[i], k)->node == index)
                return true;
    return false;
}

static void check_takers(struct plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].kind != KIND_SINK && !has_taker(p, i))
            yaml_refuse(
                &p->file, p->nodes[i].at,
                "no step or sink takes the lines of '%s': name it in a from, or drop them: sink: "
                "{ nothing: , from: %s }",
                p->nodes[i].name, p->nodes[i].name);
}

// ---- What does not fit together ---------------------------------------------------------------

bool plan_has_key(const struct plan *p, const struct flow_node *n) {
    if (n->key.text || n->verb == VERB_TAKE)
        return true;
    for (size_t i = 0; i < n->from_count; i++)
        if (!plan_has_key(p, &p->nodes[n->from[i].node]))
            return false;
    return n->from_count > 0;
}

// Whether lines of `index` can come back to it: a loop of a node at or before it comes from one at
// or behind it.
static bool is_in_loop(const struct plan *p, size_t index) {
    for (size_t i = 0; i <= index; i++)
        for (size_t k = 0; k < p->nodes[i].loop_count; k++)
            if (p->nodes[i].loop[k].node >= index)
                return true;
    return false;
}

static void check_aggregate(struct plan *p, size_t index) {
    const struct flow_node *n = &p->nodes[index];
    if (!plan_has_key(p, n))
        yaml_refuse(&p->file, n->verb_at,
                    "an aggregate is per key, and its lines have none: key: field 1, or key: all "
                    "for one over all lines");
    if (n->how == HOW_COUNT && n->value.text)
        yaml_refuse(&p->file, n->value_at, "count counts lines; no value belongs to it");
    if (!n->window_size && is_in_loop(p, index))
        yaml_refuse(
            &p->file, n->verb_at,
            "in a loop there is no end at which an aggregate could have a result: it needs a "
            "window");
}

static void check_step(struct plan *p, size_t index) {
    const struct flow_node *n = &p->nodes[index];
    bool command = node_is_command(n);
    if (n->verb == VERB_AGGREGATE)
        check_aggregate(p, index);
    else if (n->window_at.line)
        yaml_refuse(&p->file, n->window_at, "a window belongs to an aggregate, not to %s",
                    verb_word(n->verb));
    if (n->verb != VERB_AGGREGATE && n->value_at.line)
        yaml_refuse(&p->file, n->value_at, "a value belongs to an aggregate, not to %s",
                    verb_word(n->verb));
    if (n->verb != VERB_AGGREGATE && n->partitions_at.line)
        yaml_refuse(&p->file, n->partitions_at, "partitions belong to an aggregate, not to %s",
                    verb_word(n->verb));
    if (!command && n->mode_at.line)
        yaml_refuse(&p->file, n->mode_at, "a mode belongs to a command, as in [./command]");
    if (n->verb == VERB_FILTER && n->mode == MODE_FILTER)
        yaml_refuse(
            &p->file, n->mode_at,
            "a filter's command decides by its exit code whether a line stays, so it is one "
            "process a line; flat_map with mode: filter answers with the line, or with "
            "none");
}

static bool same_place(const struct flow_node *a, const struct flow_node *b) {
    if (a->verb != b->verb)
        return false;
    return a->verb == VERB_STDOUT || (a->verb == VERB_FILE && strcmp(a->text, b->text) == 0);
}

static void refuse_shared(struct plan *p, const struct flow_node *a, const struct flow_node *b) {
    yaml_refuse(&p->file, b->verb_at,
                "'%s' and '%s' write to the same place: one sink can take from both: "
                "from: [a, b]",
                a->name, b->name);
}

static void check_sink(struct plan *p, size_t index) {
    const struct flow_node *n = &p->nodes[index];
    if (n->key.text && n->verb != VERB_PUSH)
        yaml_refuse(&p->file, n->key_at, "a key belongs to a stage, not to %s", verb_word(n->verb));
    for (size_t i = 0; i < index; i++)
        if (same_place(n, &p->nodes[i]))
            refuse_shared(p, &p->nodes[i], n);
}

void plan_connect(struct plan *p) {
    name_all(p);
    bool named = p->file.mistakes == 0;
    for (size_t i = 0; named && i < p->count; i++)
        connect_node(p, i);
    if (p->file.mistakes)
        return;
    check_takers(p);
    for (size_t i = 0; i < p->count; i++) {
        if (p->nodes[i].kind == KIND_STEP)
            check_step(p, i);
        if (p->nodes[i].kind == KIND_SINK)
            check_sink(p, i);
        if (!p->nodes[i].has_on_dead)
            p->nodes[i].on_dead = p->on_dead;
    }
}

// ---- Files and commands
// --------------------------------------------------------------------------------

static void check_input(struct plan *p, struct place at, const char *path) {
    struct stat about;
    if (strcmp(path, "-") == 0)
        return;
    if (stat(path, &about) < 0 || access(path, R_OK) < 0)
        yaml_refuse(&p->file, at, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(about.st_mode))
        yaml_refuse(&p->file, at, "%s is a directory", path);
}

static bool flow_connect_is_read(const struct plan *p, const struct stat *file) {
    struct stat about;
    for (size_t i = 0; i < p->count; i++)
        for (size_t k = 0; p->nodes[i].verb == VERB_LINES && k < p->nodes[i].word_count; k++)
            if (stat(p->nodes[i].words[k], &about) == 0 && about.st_dev == file->st_dev &&
                about.st_ino == file->st_ino)
                return true;
    return false;
}

// The canonical path of the folder, and the name of the file in it.
static bool full_path(const char *path, char out[PATH_MAX]) {
    char folder[PATH_MAX], name[PATH_MAX];
    if (realpath(path, out))
        return true;
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(name, sizeof name, "%s", path);
    if (!realpath(dirname(folder), out))
        return false;
    size_t used = strlen(out);
    return snprintf(out + used, PATH_MAX - used, "/%s", basename(name)) < (int)(PATH_MAX - used);
}

// Compares files, whatever their paths; equal paths were found when the plan was read.
static void check_shared(struct plan *p, const struct flow_node *n) {
    char path[PATH_MAX], other[PATH_MAX];
    for (const struct flow_node *o = p->nodes; o < n; o++)
        if (o->verb == VERB_FILE && full_path(n->text, path) && full_path(o->text, other) &&
            strcmp(path, other) == 0)
            refuse_shared(p, o, n);
}

static void check_output(struct plan *p, const struct flow_node *n) {
    char copy[PATH_MAX];
    struct stat about;
    snprintf(copy, sizeof copy, "%s", n->text);
    const char *folder = dirname(copy);
    bool exists = stat(n->text, &about) == 0;
    if (exists && flow_connect_is_read(p, &about))
        yaml_refuse(&p->file, n->words_at[0], "%s is read by the flow, too", n->text);
    else if (exists && !S_ISREG(about.st_mode))
        yaml_refuse(&p->file, n->words_at[0],
                    "%s is no regular file, so it cannot be written exactly once; sink: stdout "
                    "writes to what the shell names",
                    n->text);
    else if (access(folder, W_OK | X_OK) < 0)
        yaml_refuse(&p->file, n->words_at[0], "%s: cannot write into %s: %s", n->text, folder,
                    strerror(errno));
}

// Placeholders of a command that runs for each line.
static void check_placeholders(struct plan *p, const struct flow_node *n) {
    struct template template = { 0 };
    if (n->mode == MODE_JOB && template_open(n->words, true, &template) < 0)
        yaml_refuse(&p->file, n->words_at[0], "%s", error_text());
    template_close(&template);
}

static void check_program(struct plan *p, const struct flow_node *n) {
    check_placeholders(p, n);
    if (program_find(n->words[0]) < 0)
        yaml_refuse(&p->file, n->words_at[0], "%s", error_text());
}

bool plan_check_world(struct plan *p) {
    unsigned dashes = 0;
    for (size_t i = 0; i < p->count; i++) {
        const struct flow_node *n = &p->nodes[i];
        for (size_t k = 0; n->verb == VERB_LINES && k < n->word_count; k++) {
            check_input(p, n->words_at[k], n->words[k]);
            if (strcmp(n->words[k], "-") == 0 && dashes++)
                yaml_refuse(&p->file, n->words_at[k], "stdin can be read once");
        }
        if (n->verb == VERB_FILE) {
            check_output(p, n);
            check_shared(p, n);
        }
        if (node_is_command(n))
            check_program(p, n);
    }
    return p->file.mistakes == 0;
}
