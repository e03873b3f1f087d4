// Reads a plan from YAML: which fields a source, a step and a sink may have, and their values.
#include "base/errors.h"
#include "cli/flow/plan.h"
#include "cli/values.h"
#include "work/worker.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- Mappings by table ------------------------------------------------------------------------

// A row for each name that may stand in a mapping: how its value is read, and whether it makes a
// node what it is.
//
//     { size: 100, slide: 10 }
//       └ name └ value
struct field {
    const char *name;
    void (*read)(struct plan *, struct flow_node *, const yaml_node_t *value);
    enum flow_verb verb; // VERB_NONE: it does not make the node what it is
};

enum { FIELDS_MOST = 32 };

static void read_verb(struct plan *p, struct flow_node *node, const struct field *field,
                      const yaml_node_t *key) {
    if (node->verb != VERB_NONE) {
        yaml_refuse(&p->file, place_of(key), "it is a %s already, and '%s' would make it another",
                    verb_word(node->verb), field->name);
        return;
    }
    node->verb = field->verb;
    node->verb_at = place_of(key);
}

// Reads each pair by its row; `fields` ends with an empty one.
static void read_mapping(struct plan *p, struct flow_node *node, const struct field *fields,
                         const char *what, const yaml_node_t *n) {
    const char *names[FIELDS_MOST];
    size_t count = 0;
    uint32_t seen = 0;
    if (n->type != YAML_MAPPING_NODE) {
        yaml_refuse(&p->file, place_of(n), "%s is a mapping, as in { %s: … }", what,
                    fields[0].name);
        return;
    }
    for (; fields[count].name; count++)
        names[count] = fields[count].name;
    const yaml_node_pair_t *pair = n->data.mapping.pairs.start;
    for (; pair < n->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(&p->file, pair->key);
        int i = yaml_field_of(&p->file, key, what, names, count, &seen);
        if (i >= 0 && fields[i].verb != VERB_NONE)
            read_verb(p, node, &fields[i], key);
        if (i >= 0)
            fields[i].read(p, node, node_at(&p->file, pair->value));
    }
}

// ---- Values -----------------------------------------------------------------------------------

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                   "_-";

// Names with two dashes are those of operators (build.c).
bool name_is_good(const char *name) {
    return *name && strlen(name) <= FLOW_NAME && !name[strspn(name, name_letters)] &&
           !strstr(name, "--");
}

static const char *flow_read_name_of(struct plan *p, const yaml_node_t *n, const char *what) {
    const char *name = word_of(&p->file, n, what);
    if (!name || name_is_good(name))
        return name;
    yaml_refuse(&p->file, place_of(n), "%s '%.70s': up to %d letters, digits, _ and -, but not --",
                what, name, FLOW_NAME);
    return NULL;
}

static void read_name(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->name = flow_read_name_of(p, n, "a name");
}

static void read_input(struct plan *p, const yaml_node_t *n, struct flow_input *list,
                       size_t *count) {
    const char *name = word_of(&p->file, n, "the name of a node");
    if (!name)
        return;
    if (*count == FLOW_INPUTS) {
        yaml_refuse(&p->file, place_of(n), "these are too many: %d at most", FLOW_INPUTS);
        return;
    }
    for (size_t i = 0; i < *count; i++)
        if (strcmp(list[i].name, name) == 0)
            yaml_refuse(&p->file, place_of(n), "'%.60s' is named twice", name);
    const char *colon = strchr(name, ':');
    list[(*count)++] = (struct flow_input){ .name = name,
                                            .name_size = strcspn(name, ":"),
                                            .output = colon ? colon + 1 : NULL,
                                            .at = place_of(n) };
}

static void read_inputs(struct plan *p, const yaml_node_t *n, struct flow_input *list,
                        size_t *count) {
    if (n->type != YAML_SEQUENCE_NODE) {
        read_input(p, n, list, count);
        return;
    }
    const yaml_node_item_t *item = n->data.sequence.items.start;
    for (; item < n->data.sequence.items.top; item++)
        read_input(p, node_at(&p->file, *item), list, count);
    if (n->data.sequence.items.start == n->data.sequence.items.top)
        yaml_refuse(&p->file, place_of(n), "this list is empty");
}

static void flow_read_read_from(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    read_inputs(p, n, node->from, &node->from_count);
}

static void read_loop(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    read_inputs(p, n, node->loop, &node->loop_count);
}

// Words of a command, or files.
static void read_words(struct plan *p, struct flow_node *node, const yaml_node_t *n,
                       const char *what) {
    const yaml_node_item_t *item = n->data.sequence.items.start;
    for (; item < n->data.sequence.items.top; item++) {
        const yaml_node_t *word = node_at(&p->file, *item);
        const char *text =
            node->word_count ? text_of(&p->file, word, what) : word_of(&p->file, word, what);
        if (!text)
            return;
        if (node->word_count == FLOW_WORDS) {
            yaml_refuse(&p->file, place_of(word), "these are too many: %d at most", FLOW_WORDS);
            return;
        }
        node->words_at[node->word_count] = place_of(word);
        node->words[node->word_count++] = text;
    }
    if (!node->word_count)
        yaml_refuse(&p->file, place_of(n), "this list is empty: %s is missing", what);
}

static void read_part(struct plan *p, const yaml_node_t *n, const char *what,
                      struct flow_part *out) {
    const char *text = word_of(&p->file, n, what);
    if (!text)
        return;
    out->text = text;
    out->all = strcmp(text, "all") == 0;
    if (!out->all && keys_read(text, &out->keys) < 0)
        yaml_refuse(&p->file, place_of(n), "%s: %s", what, error_text());
}

static void read_key(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->key_at = place_of(n);
    read_part(p, n, "key", &node->key);
}

static void read_value(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->value_at = place_of(n);
    read_part(p, n, "value", &node->value);
    if (node->value.all)
        yaml_refuse(&p->file, place_of(n), "value: 'all' is none of: field N, regex RE, json NAME");
}

static void read_duration(struct plan *p, const yaml_node_t *n, const char *what, int64_t *out) {
    const char *text = word_of(&p->file, n, what);
    if (text && duration_read(text, out) < 0)
        yaml_refuse(&p->file, place_of(n), "%s: %s", what, error_text());
}

static void flow_read_read_timeout(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    read_duration(p, n, "timeout", &node->timeout_ms);
}

static void read_attempts(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    uint64_t number = 0;
    number_of(&p->file, n, "attempts", UINT16_MAX, &number);
    node->attempts = (uint32_t)number;
}

// FIRST..MOST, as the stage's policy has it.
static void read_backoff(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    const char *text = word_of(&p->file, n, "backoff"), *dots = text ? strstr(text, "..") : NULL;
    char first[32];
    int64_t first_ms = 0, most_ms = 0;
    if (!text)
        return;
    snprintf(first, sizeof first, "%.*s", dots ? (int)(dots - text) : (int)strlen(text), text);
    int err = duration_read(first, &first_ms);
    if (err >= 0 && dots)
        err = duration_read(dots + 2, &most_ms);
    if (err < 0)
        yaml_refuse(&p->file, place_of(n), "backoff: %s", error_text());
    else if (!dots || most_ms < first_ms)
        yaml_refuse(&p->file, place_of(n), "backoff: '%.40s' is not FIRST..MOST, as in 1s..5m",
                    text);
    node->backoff = text;
}

static void read_jobs(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    uint64_t number = 0;
    const char *text = word_of(&p->file, n, "jobs");
    if (text && strcmp(text, "auto") != 0)
        number_of(&p->file, n, "jobs", WORKER_JOBS, &number);
    node->jobs = (uint32_t)number;
}

static void read_partitions(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    uint64_t number = 0;
    number_of(&p->file, n, "partitions", MR_FLOW_PARTITIONS, &number);
    node->partitions_at = place_of(n);
    node->partitions = (uint32_t)number;
}

static void read_mode(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    static const char *const modes[] = { "job", "filter" };
    int mode = choice_of(&p->file, n, "mode", modes, 2);
    node->mode_at = place_of(n);
    node->mode = mode == 1 ? MODE_FILTER : MODE_JOB;
}

static enum flow_on_dead on_dead_of(struct plan *p, const yaml_node_t *n) {
    static const char *const ways[] = { "skip", "halt" };
    return choice_of(&p->file, n, "on-dead", ways, 2) == 1 ? ON_DEAD_HALT : ON_DEAD_SKIP;
}

static void read_on_dead(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->on_dead = on_dead_of(p, n);
    node->has_on_dead = true;
}

static void flow_read_read_size(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    number_of(&p->file, n, "size", UINT32_MAX, &node->window_size);
}

static void read_slide(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    number_of(&p->file, n, "slide", UINT32_MAX, &node->window_slide);
}

static void read_window(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    static const struct field fields[] = { { .name = "size", .read = flow_read_read_size },
                                           { .name = "slide", .read = read_slide },
                                           { 0 } };
    unsigned before = p->file.mistakes;
    node->window_at = place_of(n);
    read_mapping(p, node, fields, "a window", n);
    if (p->file.mistakes > before)
        return;
    if (!node->window_size) {
        yaml_refuse(&p->file, place_of(n), "a window has a size, as in { size: 100, slide: 100 }");
        return;
    }
    if (!node->window_slide)
        node->window_slide = node->window_size;
    if (node->window_size / node->window_slide > FLOW_OPEN_WINDOWS)
        yaml_refuse(&p->file, place_of(n),
                    "windows of %" PRIu64 " that slide by %" PRIu64
                    " are too many at once: slide is at least size / %d",
                    node->window_size, node->window_slide, FLOW_OPEN_WINDOWS);
}

// ---- Verbs ------------------------------------------------------------------------------------

// A list is a command; false: it is none, and its text has to be read.
static bool read_command(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    if (n->type != YAML_SEQUENCE_NODE)
        return false;
    node->how = HOW_COMMAND;
    read_words(p, node, n, "the command");
    return true;
}

static void read_fields(struct plan *p, struct flow_node *node, const yaml_node_t *n,
                        const char *text) {
    node->how = HOW_FIELDS;
    for (const char *at = text; *at;) {
        char *end;
        unsigned long field = strtoul(at, &end, 10);
        bool good = *at >= '0' && *at <= '9' && (*end == ' ' || !*end) && field && field < 100000;
        if (!good || node->field_count == FLOW_FIELDS) {
            yaml_refuse(&p->file, place_of(n),
                        "'fields %.60s': up to %d numbers from 1, as in fields 2 1", text,
                        FLOW_FIELDS);
            return;
        }
        node->fields[node->field_count++] = (unsigned)field;
        at = end + strspn(end, " ");
    }
}

static void read_map(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    if (read_command(p, node, n))
        return;
    const char *text = node->text = word_of(&p->file, n, "map");
    if (!text)
        return;
    if (strncmp(text, "fields ", 7) == 0)
        read_fields(p, node, n, text + 7 + strspn(text + 7, " "));
    else
        yaml_refuse(&p->file, place_of(n),
                    "map: '%.60s' is neither fields N…, nor a command, as in [./command]", text);
}

static void read_flat_map(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    static const char *const words[] = { "fields", "words", "lines" };
    static const enum flow_how hows[] = { HOW_FIELDS, HOW_WORDS, HOW_LINES };
    if (read_command(p, node, n))
        return;
    node->text = "";
    int i = choice_of(&p->file, n, "flat_map", words, 3);
    if (i >= 0) {
        node->text = words[i];
        node->how = hows[i];
    }
}

static void read_filter(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    char why[128];
    if (read_command(p, node, n))
        return;
    const char *text = node->text = word_of(&p->file, n, "filter");
    if (!text)
        return;
    bool not = strncmp(text, "not regex ", 10) == 0;
    if (!not &&strncmp(text, "regex ", 6) != 0) {
        yaml_refuse(&p->file, place_of(n),
                    "filter: '%.60s' is none of: regex RE, not regex RE, a command, as in "
                    "[./command]",
                    text);
        return;
    }
    node->how = not ? HOW_NOT_REGEX : HOW_REGEX;
    int failed = regcomp(&node->regex, text + (not ? 10 : 6), REG_EXTENDED | REG_NOSUB);
    node->has_regex = !failed;
    if (failed) {
        regerror(failed, &node->regex, why, sizeof why);
        yaml_refuse(&p->file, place_of(n), "filter: '%.60s': %s", text, why);
    }
}

static void read_aggregate(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    static const char *const words[] = { "count", "sum", "min", "max", "mean" };
    static const enum flow_how hows[] = { HOW_COUNT, HOW_SUM, HOW_MIN, HOW_MAX, HOW_MEAN };
    node->how = HOW_COUNT;
    node->text = "";
    if (n->type == YAML_SEQUENCE_NODE) {
        yaml_refuse(&p->file, place_of(n),
                    "aggregate: count, sum, min, max or mean; a command can keep any "
                    "state with millrace state: map: [./command]");
        return;
    }
    int i = choice_of(&p->file, n, "aggregate", words, 5);
    if (i >= 0) {
        node->text = words[i];
        node->how = hows[i];
    }
}

static void read_crash(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    const char *text = word_of(&p->file, n, "crash");
    char *end;
    node->text = text;
    if (!text)
        return;
    node->chance = strtod(text, &end);
    if (*end || end == text || !(node->chance >= 0 && node->chance < 1))
        yaml_refuse(&p->file, place_of(n),
                    "crash: '%.30s' is no probability: at least 0 and less than 1 (at 1 no line "
                    "would pass)",
                    text);
}

static void flow_read_read_lines(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    if (n->type == YAML_SEQUENCE_NODE) {
        read_words(p, node, n, "a file");
        return;
    }
    node->words[0] = word_of(&p->file, n, "lines");
    node->words_at[0] = place_of(n);
    node->word_count = node->words[0] != NULL;
}

static void read_stage(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->text = word_of(&p->file, n, "stage");
    if (node->text && engine_check_stage(mr_str(node->text)) < 0)
        yaml_refuse(&p->file, place_of(n), "stage: %s", error_text());
}

static void flow_read_read_file(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    node->text = word_of(&p->file, n, "file");
    node->words_at[0] = place_of(n);
}

// stdout and nothing have no value.
static void read_bare(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    const char *text = text_of(&p->file, n, "it");
    (void)node;
    if (text && *text)
        yaml_refuse(&p->file, place_of(n), "this has no value: '%.30s' does not belong here", text);
}

// A sink that needs no value may be a bare word.
static bool flow_read_is_word(const yaml_node_t *n, const char *word) {
    return n->type == YAML_SCALAR_NODE && strcmp((const char *)n->data.scalar.value, word) == 0;
}

// stdin is the file -.
static void flow_read_read_stdin(struct plan *p, struct flow_node *node, const yaml_node_t *n) {
    if (!flow_read_is_word(n, "stdin"))
        read_bare(p, node, n);
    node->verb = VERB_LINES;
    node->words[0] = "-";
    node->words_at[0] = place_of(n);
    node->word_count = 1;
}

static const struct field source_fields[] = {
    { .name = "name", .read = read_name },
    { .name = "stdin", .read = flow_read_read_stdin, .verb = VERB_LINES },
    { .name = "lines", .read = flow_read_read_lines, .verb = VERB_LINES },
    { .name = "stage", .read = read_stage, .verb = VERB_TAKE },
    { .name = "key", .read = read_key },
    { 0 },
};

static const struct field step_fields[] = {
    { .name = "name", .read = read_name },
    { .name = "from", .read = flow_read_read_from },
    { .name = "loop", .read = read_loop },
    { .name = "map", .read = read_map, .verb = VERB_MAP },
    { .name = "flat_map", .read = read_flat_map, .verb = VERB_FLAT_MAP },
    { .name = "filter", .read = read_filter, .verb = VERB_FILTER },
    { .name = "aggregate", .read = read_aggregate, .verb = VERB_AGGREGATE },
    { .name = "crash", .read = read_crash, .verb = VERB_CRASH },
    { .name = "mode", .read = read_mode },
    { .name = "key", .read = read_key },
    { .name = "value", .read = read_value },
    { .name = "window", .read = read_window },
    { .name = "timeout", .read = flow_read_read_timeout },
    { .name = "jobs", .read = read_jobs },
    { .name = "partitions", .read = read_partitions },
    { .name = "attempts", .read = read_attempts },
    { .name = "backoff", .read = read_backoff },
    { .name = "on-dead", .read = read_on_dead },
    { 0 },
};

static const struct field sink_fields[] = {
    { .name = "name", .read = read_name },
    { .name = "from", .read = flow_read_read_from },
    { .name = "file", .read = flow_read_read_file, .verb = VERB_FILE },
    { .name = "stdout", .read = read_bare, .verb = VERB_STDOUT },
    { .name = "stage", .read = read_stage, .verb = VERB_PUSH },
    { .name = "nothing", .read = read_bare, .verb = VERB_NOTHING },
    { .name = "key", .read = read_key },
    { 0 },
};

// ---- Nodes ------------------------------------------------------------------------------------

static struct flow_node *node_add(struct plan *p, enum flow_kind kind, const yaml_node_t *n) {
    if (p->count == FLOW_NODES) {
        yaml_refuse(&p->file, place_of(n), "sources, steps and sinks are too many: %d at most",
                    FLOW_NODES);
        return NULL;
    }
    struct flow_node *node = &p->nodes[p->count++];
    node->kind = kind;
    node->at = place_of(n);
    return node;
}

static void read_source(struct plan *p, const yaml_node_t *n) {
    struct flow_node *node = node_add(p, KIND_SOURCE, n);
    if (!node)
        return;
    unsigned before = p->file.mistakes;
    if (flow_read_is_word(n, "stdin"))
        flow_read_read_stdin(p, node, n);
    else
        read_mapping(p, node, source_fields, "a source", n);
    if (p->file.mistakes == before && node->verb == VERB_NONE)
        yaml_refuse(&p->file, node->at,
                    "a source is one of { lines: FILE }, { stage: NAME } and stdin");
}

static void read_step(struct plan *p, const yaml_node_t *n) {
    struct flow_node *node = node_add(p, KIND_STEP, n);
    if (!node)
        return;
    unsigned before = p->file.mistakes;
    read_mapping(p, node, step_fields, "a step", n);
    if (p->file.mistakes == before && node->verb == VERB_NONE)
        yaml_refuse(&p->file, node->at,
                    "this step has no operator: map, flat_map, filter, aggregate or "
                    "crash");
    if (p->file.mistakes == before && !node->name)
        yaml_refuse(&p->file, node->at, "this step has no name");
}

static void read_sink(struct plan *p, const yaml_node_t *n) {
    struct flow_node *node = node_add(p, KIND_SINK, n);
    if (!node)
        return;
    unsigned before = p->file.mistakes;
    node->verb_at = node->at;
    if (flow_read_is_word(n, "stdout"))
        node->verb = VERB_STDOUT;
    else if (flow_read_is_word(n, "nothing"))
        node->verb = VERB_NOTHING;
    else
        read_mapping(p, node, sink_fields, "a sink", n);
    if (p->file.mistakes == before && node->verb == VERB_NONE)
        yaml_refuse(&p->file, node->at,
                    "a sink is one of { file: PATH }, { stage: NAME }, stdout and "
                    "nothing");
}

// One, or a list of them.
static void read_each(struct plan *p, const yaml_node_t *n,
                      void (*read)(struct plan *, const yaml_node_t *)) {
    if (n->type != YAML_SEQUENCE_NODE) {
        read(p, n);
        return;
    }
    const yaml_node_item_t *item = n->data.sequence.items.start;
    for (; item < n->data.sequence.items.top; item++)
        read(p, node_at(&p->file, *item));
}

// ---- The flow ---------------------------------------------------------------------------------

static void top_name(struct plan *p, struct flow_node *top, const yaml_node_t *n) {
    (void)top;
    p->name = flow_read_name_of(p, n, "the name of a flow");
}

static void top_on_dead(struct plan *p, struct flow_node *top, const yaml_node_t *n) {
    (void)top;
    p->on_dead = on_dead_of(p, n);
}

// Nodes are read when all names were checked: sources, then steps, then sinks.
static void top_later(struct plan *p, struct flow_node *top, const yaml_node_t *n) {
    (void)p;
    (void)top;
    (void)n;
}

static const struct field top_fields[] = {
    { .name = "flow", .read = top_name },       { .name = "source", .read = top_later },
    { .name = "steps", .read = top_later },     { .name = "sink", .read = top_later },
    { .name = "on-dead", .read = top_on_dead }, { 0 },
};

static const yaml_node_t *member(struct plan *p, const yaml_node_t *root, const char *name) {
    const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
    for (; pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = node_at(&p->file, pair->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((char *)key->data.scalar.value, name) == 0)
            return node_at(&p->file, pair->value);
    }
    return NULL;
}

static void read_nodes(struct plan *p, const yaml_node_t *root) {
    const yaml_node_t *source = member(p, root, "source"), *steps = member(p, root, "steps");
    const yaml_node_t *sink = member(p, root, "sink");
    if (!source)
        yaml_refuse(&p->file, place_of(root), "there is no source: source: { lines: FILE }");
    else
        read_each(p, source, read_source);
    if (steps && steps->type != YAML_SEQUENCE_NODE)
        yaml_refuse(&p->file, place_of(steps), "steps is a list, one step a line, each behind a -");
    else if (steps)
        read_each(p, steps, read_step);
    if (!sink)
        yaml_refuse(&p->file, place_of(root),
                    "there is no sink: sink: { file: PATH }, or sink: nothing");
    else
        read_each(p, sink, read_sink);
}

bool plan_read(struct plan *p, const char *path) {
    struct flow_node top = { 0 };
    *p = (struct plan){ .file = { .path = path, .about = "flow" } };
    if (!document_load(&p->file))
        return false;
    const yaml_node_t *root = yaml_document_get_root_node(p->file.document);
    read_mapping(p, &top, top_fields, "a flow", root);
    if (root->type != YAML_MAPPING_NODE)
        return false;
    if (!member(p, root, "flow"))
        yaml_refuse(&p->file, place_of(root), "the flow has no name: flow: NAME");
    read_nodes(p, root);
    if (!p->file.mistakes)
        plan_connect(p);
    return p->file.mistakes == 0;
}

void plan_finish(struct plan *p) {
    for (size_t i = 0; i < p->count; i++) {
        if (p->nodes[i].has_regex)
            regfree(&p->nodes[i].regex);
        keys_close(&p->nodes[i].key.keys);
        keys_close(&p->nodes[i].value.keys);
    }
    document_free(&p->file);
}
