// Draws a plan: a row for each node, in the order in which lines pass them, with the edges that
// pass it in columns to its left.
//
//     ○ source   lines of access.log
//     ├─╮
//     ● │ hits   count, key field 7
//     │ ● bad    filter regex ' 5[0-9][0-9] '
//     ├─╯
//     ■ sink     file out.tsv
//
// A column belongs to the node that it leads to. Behind a node its column goes to the first of its
// takers that has none yet; others begin columns of their own, or join the one that leads to them.
#include "cli/flow/plan.h"
#include "cli/json.h"
#include "cli/output.h"

#include <inttypes.h>
#include <stdarg.h>

enum { NO_NODE = FLOW_NODES, DESCRIPTION = 160 };

// ---- Words ------------------------------------------------------------------------------------

const char *verb_word(enum flow_verb verb) {
    static const char *const words[] = {
        [VERB_NONE] = "",
        [VERB_LINES] = "lines",
        [VERB_TAKE] = "stage",
        [VERB_MAP] = "map",
        [VERB_FLAT_MAP] = "flat_map",
        [VERB_FILTER] = "filter",
        [VERB_AGGREGATE] = "aggregate",
        [VERB_CRASH] = "crash",
        [VERB_FILE] = "file",
        [VERB_STDOUT] = "stdout",
        [VERB_PUSH] = "stage",
        [VERB_NOTHING] = "nothing",
    };
    return words[verb];
}

// Adds to the text as much as fits.
static void flow_draw_add(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void flow_draw_add(char *out, size_t size, const char *format, ...) {
    size_t used = strlen(out);
    va_list values;
    va_start(values, format);
    vsnprintf(out + used, size - used, format, values);
    va_end(values);
}

static void add_words(char *out, size_t size, const struct flow_node *n) {
    for (size_t i = 0; i < n->word_count; i++)
        flow_draw_add(out, size, " %s", strcmp(n->words[i], "-") == 0 ? "stdin" : n->words[i]);
}

// What a node does, in a few words: "flat_map ./split, long-lived".
static void node_describe(const struct flow_node *n, char *out, size_t size) {
    *out = 0;
    flow_draw_add(out, size, "%s", verb_word(n->verb));
    if (n->word_count)
        add_words(out, size, n);
    else if (n->text && *n->text)
        flow_draw_add(out, size, " %s", n->text);
    if (node_is_command(n) && n->mode == MODE_FILTER)
        flow_draw_add(out, size, ", long-lived");
    if (n->key.text)
        flow_draw_add(out, size, ", key %s", n->key.text);
    if (n->value.text)
        flow_draw_add(out, size, ", value %s", n->value.text);
    if (n->window_size)
        flow_draw_add(out, size, ", window %" PRIu64, n->window_size);
    if (n->window_size && n->window_slide != n->window_size)
        flow_draw_add(out, size, " by %" PRIu64, n->window_slide);
    for (size_t i = 0; i < n->loop_count; i++)
        flow_draw_add(out, size, "%s %s", i ? "," : "  ↺ from", n->loop[i].name);
}

// ---- Columns ----------------------------------------------------------------------------------

struct drawing {
    const struct plan *plan;
    size_t columns[FLOW_NODES]; // the nodes that they lead to, or NO_NODE
    size_t width;               // columns used now
    size_t widest, name_width;
    bool measuring; // draws nothing
};

enum { UP = 1, DOWN = 2, LEFT = 4, RIGHT = 8 };

static const char *const strokes[16] = {
    [0] = " ",
    [UP | DOWN] = "│",
    [LEFT | RIGHT] = "─",
    [UP | RIGHT] = "╰",
    [UP | LEFT] = "╯",
    [DOWN | RIGHT] = "╭",
    [DOWN | LEFT] = "╮",
    [UP | DOWN | RIGHT] = "├",
    [UP | DOWN | LEFT] = "┤",
    [UP] = "│",
    [DOWN] = "│",
    [LEFT] = "─",
    [RIGHT] = "─",
    [LEFT | RIGHT | DOWN] = "┬",
    [LEFT | RIGHT | UP] = "┴",
    [UP | DOWN | LEFT | RIGHT] = "┼",
};

static size_t flow_draw_column_of(struct drawing *d, size_t node) {
    for (size_t i = 0; i < d->width; i++)
        if (d->columns[i] == node)
            return i;
    return NO_NODE;
}

static size_t column_take(struct drawing *d, size_t node) {
    size_t i = flow_draw_column_of(d, NO_NODE);
    if (i == NO_NODE)
        i = d->width++;
    d->columns[i] = node;
    return i;
}

// A column may stay unused at the right end.
static void columns_trim(struct drawing *d) {
    while (d->width > 0 && d->columns[d->width - 1] == NO_NODE)
        d->width--;
}

static bool takes_from(const struct flow_node *taker, size_t node) {
    for (size_t i = 0; i < taker->from_count; i++)
        if (taker->from[i].node == node)
            return true;
    return false;
}

// Gives every taker of the node a column, beginning with the node's own, and notes in `marks` which
// columns its lines go to.
static void columns_lead(struct drawing *d, size_t node, size_t own, bool *marks) {
    d->columns[own] = NO_NODE;
    for (size_t i = node + 1; i < d->plan->count; i++) {
        if (!takes_from(&d->plan->nodes[i], node))
            continue;
        size_t column = flow_draw_column_of(d, i);
        if (column == NO_NODE && d->columns[own] == NO_NODE)
            d->columns[column = own] = i;
        else if (column == NO_NODE)
            column = column_take(d, i);
        marks[column] = true;
    }
}

// ---- Rows -------------------------------------------------------------------------------------

static void draw_node(struct drawing *d, size_t node, size_t own) {
    static const char *const marks[] = { "○", "●", "■" };
    const struct flow_node *n = &d->plan->nodes[node];
    char words[DESCRIPTION], plain[DESCRIPTION * 2];
    if (d->measuring)
        return;
    for (size_t i = 0; i < d->width; i++)
        printf("%s ", i == own ? marks[n->kind] : d->columns[i] == NO_NODE ? " " : "│");
    print_coloured(BOLD, n->name);
    node_describe(n, words, sizeof words);
    size_t pad = d->name_width - strlen(n->name) + 2 * (d->widest - d->width);
    printf("%*s  %s\n", (int)pad, "", text_plain(plain, sizeof plain, mr_str(words)));
}

// The row below a node: from its own column to those that its lines go to.
static void draw_turn(const struct drawing *d, const bool *before, const bool *marks, size_t own) {
    size_t first = own, last = own, used = 0;
    for (size_t i = 0; i < d->width; i++) {
        first = marks[i] && i < first ? i : first;
        last = marks[i] && i > last ? i : last;
        used = before[i] || d->columns[i] != NO_NODE ? i + 1 : used;
    }
    for (size_t i = 0; i < used; i++) {
        bool after = d->columns[i] != NO_NODE, joins = i == own || marks[i];
        unsigned stroke = (before[i] ? UP : 0u) | (after ? DOWN : 0u);
        if (i > first && i <= last && (joins || !stroke))
            stroke |= LEFT;
        if (i >= first && i < last && (joins || !stroke))
            stroke |= RIGHT;
        printf("%s%s", strokes[stroke], i >= first && i < last ? "─" : i + 1 < used ? " " : "");
    }
    printf("\n");
}

static void draw_step(struct drawing *d, size_t node) {
    bool before[FLOW_NODES] = { false }, marks[FLOW_NODES] = { false }, any = false;
    size_t own = flow_draw_column_of(d, node);
    if (own == NO_NODE)
        own = column_take(d, node);
    d->widest = d->width > d->widest ? d->width : d->widest;
    draw_node(d, node, own);
    for (size_t i = 0; i < d->width; i++)
        before[i] = d->columns[i] != NO_NODE;
    bool leads = d->plan->nodes[node].kind != KIND_SINK;
    before[own] = leads;
    columns_lead(d, node, own, marks);
    for (size_t i = 0; i < d->width; i++)
        any = any || d->columns[i] != NO_NODE;
    if (any && !d->measuring)
        draw_turn(d, before, marks, own);
    columns_trim(d);
}

static void draw_all(struct drawing *d) {
    d->width = 0;
    for (size_t i = 0; i < FLOW_NODES; i++)
        d->columns[i] = NO_NODE;
    for (size_t i = 0; i < d->plan->count; i++)
        draw_step(d, i);
}

void plan_draw(const struct plan *p) {
    struct drawing d = { .plan = p, .measuring = true };
    for (size_t i = 0; i < p->count; i++)
        if (strlen(p->nodes[i].name) > d.name_width)
            d.name_width = strlen(p->nodes[i].name);
    draw_all(&d);
    d.measuring = false;
    draw_all(&d);
}

// ---- As JSON -----------------------------------------------------------------------------

static void print_inputs(struct json *j, const char *name, const struct flow_input *list,
                         size_t count) {
    json_open(j, name, '[');
    for (size_t i = 0; i < count; i++)
        json_text(j, NULL, list[i].name);
    json_close(j, ']');
}

void plan_print_json(const struct plan *p) {
    static const char *const kinds[] = { "source", "step", "sink" };
    char words[DESCRIPTION];
    struct json j = { 0 };
    json_open(&j, NULL, '{');
    json_text(&j, "flow", p->name);
    json_open(&j, "nodes", '[');
    for (size_t i = 0; i < p->count; i++) {
        const struct flow_node *n = &p->nodes[i];
        node_describe(n, words, sizeof words);
        json_open(&j, NULL, '{');
        json_text(&j, "name", n->name);
        json_text(&j, "kind", kinds[n->kind]);
        json_text(&j, "does", words);
        print_inputs(&j, "from", n->from, n->from_count);
        print_inputs(&j, "loop", n->loop, n->loop_count);
        json_number(&j, "line", (uint64_t)n->at.line);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    json_close(&j, '}');
    json_end(&j);
}
