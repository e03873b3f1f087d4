// From names to a graph: edges, what has no place in it, heads, and in which order they end.
#include "base/errors.h"
#include "base/mem.h"
#include "flow/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PART_MOST = 2 * FLOW_NAME + 2 };

const char *kind_name(enum operator_kind kind) {
    switch (kind) {
    case OPERATOR_SOURCE:
        return "source";
    case OPERATOR_TAKE:
        return "take";
    case OPERATOR_MAP:
        return "map";
    case OPERATOR_FLAT_MAP:
        return "flat_map";
    case OPERATOR_FILTER:
        return "filter";
    case OPERATOR_SPLIT:
        return "split";
    case OPERATOR_MERGE:
        return "merge";
    case OPERATOR_AGGREGATE:
        return "aggregate";
    case OPERATOR_STAGE:
        return "stage";
    case OPERATOR_SINK:
        return "sink";
    case OPERATOR_FILE:
        return "file";
    case OPERATOR_PUSH:
        return "push";
    }
    return "";
}

bool is_source(const struct op *op) {
    return op->kind == OPERATOR_SOURCE || op->kind == OPERATOR_TAKE;
}

bool is_sink(const struct op *op) {
    return op->kind == OPERATOR_SINK || op->kind == OPERATOR_FILE || op->kind == OPERATOR_PUSH;
}

bool keeps_state(const struct op *op) {
    return op->keyed_state || op->kind == OPERATOR_SINK || op->kind == OPERATOR_FILE;
}

// ---- Edges ------------------------------------------------------------------------------------

bool op_output(const struct op *op, const char *name, uint32_t *out) {
    const char *at = op->outputs;
    for (uint32_t i = 1; i <= op->output_count; i++, at += strlen(at) + 1) {
        if (strcmp(at, name) == 0) {
            *out = i;
            return true;
        }
    }
    return false;
}

static int add_edge(struct op *from, uint32_t output, struct op *to) {
    for (uint32_t i = 0; i < from->edge_count; i++)
        if (from->edges[i].to == to && from->edges[i].output == output)
            return error_set(MR_EINVAL, "operator %s takes from %s twice", to->name, from->name);
    struct edge *edges = mem_resize(from->edges, (from->edge_count + 1) * sizeof *edges);
    if (!edges)
        return error_set(MR_ENOMEM, "no memory for a flow");
    from->edges = edges;
    edges[from->edge_count++] = (struct edge){ to, output };
    return 0;
}

// "NAME" or "NAME:OUTPUT".
static int operator_connect(struct mr_flow *f, char *name, struct op *to) {
    char *output = strchr(name, ':');
    if (output)
        *output++ = 0;
    struct op *from = NULL;
    for (uint32_t i = 0; i < f->count && !from; i++)
        if (strcmp(f->operators[i]->name, name) == 0)
            from = f->operators[i];
    if (!from)
        return error_set(MR_EINVAL, "operator %s takes from '%s', but there is no such operator",
                         to->name, name);
    if (is_sink(from))
        return error_set(MR_EINVAL, "operator %s takes from %s, which is a %s and emits nothing",
                         to->name, from->name, kind_name(from->kind));
    uint32_t number = 0;
    if (output && !op_output(from, output, &number))
        return error_set(MR_EINVAL, "operator %s takes from %s:%s, but %s has no output '%s'",
                         to->name, from->name, output, from->name, output);
    return add_edge(from, number, to);
}

static int connect_all(struct mr_flow *f, const char *list, struct op *to) {
    int err = 0;
    for (const char *at = list ? list : ""; err >= 0;) {
        char name[PART_MOST + 1];
        at += strspn(at, " ");
        size_t size = strcspn(at, " ");
        if (size == 0)
            break;
        snprintf(name, sizeof name, "%.*s", (int)(size < PART_MOST ? size : PART_MOST), at);
        err = operator_connect(f, name, to);
        at += size;
    }
    return err;
}

static void disconnect(struct mr_flow *f) {
    for (uint32_t i = 0; i < f->count; i++) {
        mem_free(f->operators[i]->edges);
        f->operators[i]->edges = NULL;
        f->operators[i]->edge_count = 0;
    }
}

// ---- Reach ------------------------------------------------------------------------------------

// Which operators each one can reach: a row of bytes for each operator.
struct reach {
    uint32_t count;
    uint8_t *of;
};

static uint8_t *reaches(const struct reach *r, uint32_t from, uint32_t to) {
    return &r->of[from * r->count + to];
}

static int reach_find(const struct mr_flow *f, struct reach *out) {
    uint32_t n = f->count;
    *out = (struct reach){ n, mem_alloc((size_t)n * n + 1) };
    if (!out->of)
        return error_set(MR_ENOMEM, "no memory for a flow");
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = 0; e < f->operators[i]->edge_count; e++)
            *reaches(out, i, f->operators[i]->edges[e].to->number) = 1;
    for (uint32_t by = 0; by < n; by++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = 0; *reaches(out, i, by) && j < n; j++)
                *reaches(out, i, j) |= *reaches(out, by, j);
    return 0;
}

static int refuse_cycles(const struct mr_flow *f, const struct reach *r) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct op *op = f->operators[i];
        for (uint32_t e = 0; e < op->edge_count; e++) {
            const struct op *to = op->edges[e].to;
            if (to == op || *reaches(r, to->number, i))
                return error_set(MR_EINVAL,
                                 "operators %s and %s are part of a cycle: if it is "
                                 "meant, mr_flow_loop declares it",
                                 op->name, to->name);
        }
    }
    return 0;
}

static int refuse_unreached(const struct mr_flow *f, const struct reach *r) {
    bool any = false;
    for (uint32_t i = 0; i < f->count; i++) {
        bool reached = is_source(f->operators[i]);
        any = any || reached;
        for (uint32_t j = 0; j < f->count; j++)
            reached = reached || (is_source(f->operators[j]) && *reaches(r, j, i));
        if (!reached)
            return error_set(MR_EINVAL, "nothing reaches operator %s: there is no source before it",
                             f->operators[i]->name);
    }
    return any ? 0 : error_set(MR_EINVAL, "flow %s has no source", f->name);
}

// ---- Heads ------------------------------------------------------------------------------------

static bool is_head(const struct op *op) {
    switch (op->kind) {
    case OPERATOR_MAP:
    case OPERATOR_FLAT_MAP:
    case OPERATOR_FILTER:
    case OPERATOR_SPLIT:
    case OPERATOR_MERGE:
        return op->options.apart || op->loops; // a loop passes through the engine
    case OPERATOR_SOURCE:
    case OPERATOR_TAKE:
    case OPERATOR_AGGREGATE:
    case OPERATOR_STAGE:
    case OPERATOR_SINK:
    case OPERATOR_FILE:
    case OPERATOR_PUSH:
        break;
    }
    return true;
}

static int find_heads(struct mr_flow *f) {
    f->head_count = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        struct op *op = f->operators[i];
        op->head = is_head(op);
        op->keyed_state = op->kind == OPERATOR_AGGREGATE || op->kind == OPERATOR_STAGE;
        if (!op->head)
            continue;
        if (f->head_count == FLOW_STAGES)
            return error_set(MR_EINVAL, "operator %s would be stage %d of flow %s: %d at most",
                             op->name, FLOW_STAGES + 1, f->name, FLOW_STAGES);
        f->heads[f->head_count++] = op;
        if (op->kind == OPERATOR_TAKE)
            snprintf(op->stage, sizeof op->stage, "%s", op->path);
        else
            snprintf(op->stage, sizeof op->stage, "%s/%s", f->name, op->name);
    }
    return 0;
}

// How many jobs one commit may emit: one for each partition of each head that it can reach.
static int count_jobs(const struct mr_flow *f, const struct op *op, bool *seen) {
    int jobs = 0;
    for (uint32_t e = 0; e < op->edge_count; e++) {
        const struct op *to = op->edges[e].to;
        if (seen[to->number])
            continue;
        seen[to->number] = true;
        jobs += to->head ? (int)to->options.partitions + 1 : count_jobs(f, to, seen);
    }
    return jobs;
}

static int refuse_spread(const struct mr_flow *f) {
    for (uint32_t i = 0; i < f->head_count; i++) {
        bool seen[FLOW_OPERATORS] = { false };
        int jobs = count_jobs(f, f->heads[i], seen);
        if (jobs >= FLOW_EMITS)
            return error_set(MR_EINVAL,
                             "what operator %s emits goes to %d partitions, %d at most: give those "
                             "that take it fewer",
                             f->heads[i]->name, jobs, FLOW_EMITS - 1);
    }
    return 0;
}

// ---- The order of ends ------------------------------------------------------------------------

// A head that can reach another one and not be reached by it has fewer before it. Those that reach
// each other have the same before them, and are a group: named by the first of them.
static void find_groups(struct mr_flow *f, const struct reach *r) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct op *op = f->operators[i];
        uint32_t before = 0, first = i;
        for (uint32_t j = 0; j < f->count; j++) {
            before += *reaches(r, j, i);
            if (*reaches(r, i, j) && *reaches(r, j, i) && j < first)
                first = j;
        }
        op->group = before * FLOW_OPERATORS + first;
    }
}

static int by_group(const void *a, const void *b) {
    const struct op *const *x = a, *const *y = b;
    if ((*x)->group != (*y)->group)
        return (*x)->group < (*y)->group ? -1 : 1;
    return (*x)->number < (*y)->number ? -1 : 1;
}

static void order_heads(struct mr_flow *f, const struct reach *r) {
    find_groups(f, r);
    qsort(f->heads, f->head_count, sizeof *f->heads, by_group);
    for (uint32_t i = 0; i < f->head_count; i++)
        f->heads[i]->head_number = i;
}

// ---- All of it --------------------------------------------------------------------------------

static int connect_flow(struct mr_flow *f, bool loops) {
    int err = 0;
    for (uint32_t i = 0; i < f->count && err >= 0; i++) {
        struct op *op = f->operators[i];
        err = connect_all(f, loops ? op->loops : op->from, op);
    }
    return err;
}

int flow_graph(struct mr_flow *f) {
    struct reach r = { 0 };
    disconnect(f);
    int err = connect_flow(f, false);
    if (err >= 0)
        err = reach_find(f, &r);
    if (err >= 0)
        err = refuse_cycles(f, &r);
    mem_free(r.of);
    r.of = NULL;
    if (err >= 0)
        err = connect_flow(f, true);
    if (err >= 0)
        err = reach_find(f, &r);
    if (err >= 0)
        err = refuse_unreached(f, &r);
    if (err >= 0)
        err = find_heads(f);
    if (err >= 0)
        err = refuse_spread(f);
    if (err >= 0)
        order_heads(f, &r);
    mem_free(r.of);
    return err;
}

static int describe_head(const struct op *op, struct buffer *out) {
    char line[512];
    int size = snprintf(line, sizeof line, "%s %s partitions %u", op->name, kind_name(op->kind),
                        op->options.partitions);
    if (op->kind == OPERATOR_AGGREGATE)
        size += snprintf(line + size, sizeof line - (size_t)size,
                         " window %" PRIu64 " slide %" PRIu64 " fold %s", op->window.size,
                         op->window.slide, fold_name(op->fold));
    int err = buffer_append(out, line, (size_t)size);
    if (err >= 0 && op->kind == OPERATOR_FILE)
        err = buffer_append(out, " ", 1);
    if (err >= 0 && op->kind == OPERATOR_FILE)
        err = buffer_append(out, op->path, strlen(op->path));
    return err < 0 ? err : buffer_append(out, "\n", 1);
}

int flow_describe(const struct mr_flow *f, struct buffer *out) {
    int err = 0;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        err = describe_head(f->heads[i], out);
    return err;
}
