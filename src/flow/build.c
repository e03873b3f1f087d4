// Making a flow and its operators. Names of others are looked up later, so operators may come in
// any order.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "flow/state.h"

#include <stdio.h>
#include <unistd.h>

static const char name_letters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

// ---- Checks -----------------------------------------------------------------------------------

static int check_flow_name(const char *what, const char *name, const char *more) {
    size_t size = name ? strlen(name) : 0, good = 0;
    while (good < size && (strchr(name_letters, name[good]) || strchr(more, name[good])))
        good++;
    if (size > 0 && size <= FLOW_NAME && good == size)
        return 0;
    return error_set(MR_EINVAL, "%s '%s' can not be called so: 1 to %d of A-Za-z0-9_-%s", what,
                     name ? name : "(NULL)", FLOW_NAME, more);
}

static int check_zero(const uint64_t *reserved, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (reserved[i])
            return error_set(MR_EINVAL, "the reserved fields of the options must be zero: begin "
                                        "with = {0}");
    return 0;
}

static int check_on_dead(const char *on_dead) {
    if (!on_dead || strcmp(on_dead, "skip") == 0 || strcmp(on_dead, "halt") == 0)
        return 0;
    return error_set(MR_EINVAL, "on_dead is '%s': there are skip and halt", on_dead);
}

static int check_operator_options(const char *name, const mr_operator_options *o) {
    if (o->partitions > FLOW_PARTITIONS)
        return error_set(MR_EINVAL, "operator %s has %u partitions: %d at most", name,
                         o->partitions, FLOW_PARTITIONS);
    if (o->attempts > 65535)
        return error_set(MR_EINVAL, "operator %s has %u attempts: 65535 at most", name,
                         o->attempts);
    int err = check_on_dead(o->on_dead);
    return err < 0 ? err : check_zero(o->reserved, sizeof o->reserved / sizeof *o->reserved);
}

static int check_window(const char *name, const mr_window *w) {
    if (w->size == 0 && w->slide != 0)
        return error_set(MR_EINVAL, "operator %s has a window with a slide and no size", name);
    return check_zero(w->reserved, sizeof w->reserved / sizeof *w->reserved);
}

// ---- The flow ---------------------------------------------------------------------------------

static int check_options(const mr_flow_options *o) {
    int err = check_on_dead(o->on_dead);
    if (err >= 0 && o->sync && strcmp(o->sync, "always") != 0 && strcmp(o->sync, "none") != 0)
        err = error_set(MR_EINVAL, "sync is '%s': there are always and none", o->sync);
    if (err >= 0 && o->epic && (!*o->epic || strlen(o->epic) > FLOW_EPIC))
        err = error_set(MR_EINVAL, "the epic's name has 1 to %d bytes", FLOW_EPIC);
    if (err >= 0 && o->attempts > 65535)
        err = error_set(MR_EINVAL, "%u attempts: 65535 at most", o->attempts);
    return err < 0 ? err : check_zero(o->reserved, sizeof o->reserved / sizeof *o->reserved);
}

static void set_options(struct mr_flow *f, const mr_flow_options *o) {
    f->options = *o;
    snprintf(f->epic, sizeof f->epic, "%s", o->epic ? o->epic : f->name);
    snprintf(f->on_dead, sizeof f->on_dead, "%s", o->on_dead ? o->on_dead : "skip");
    snprintf(f->backoff, sizeof f->backoff, "%s", o->backoff ? o->backoff : "1s..5m");
    f->syncs_files = !o->sync || strcmp(o->sync, "always") == 0;
    f->options.attempts = o->attempts ? o->attempts : 10;
    f->options.ahead = o->ahead ? o->ahead : FLOW_AHEAD;
}

int mr_flow_open(mr *m, const char *name, const mr_flow_options *o, mr_flow **out) {
    static const mr_flow_options defaults;
    o = o ? o : &defaults;
    if (!m || !out)
        return error_set(MR_EINVAL, m ? "the place for the flow is NULL" : "the engine is NULL");
    int err = check_flow_name("a flow", name, ".");
    if (err >= 0)
        err = check_options(o);
    if (err < 0)
        return err;
    struct mr_flow *f = mem_alloc(sizeof *f);
    if (!f)
        return error_set(MR_ENOMEM, "no memory for a flow");
    f->engine = m;
    snprintf(f->name, sizeof f->name, "%s", name);
    set_options(f, o);
    pthread_mutex_init(&f->lock, NULL);
    cond_init(&f->changed);
    *out = f;
    return 0;
}

static void operator_destroy(struct op *op) {
    if (op->fd >= 0)
        close(op->fd);
    mem_free(op->title);
    mem_free(op->from);
    mem_free(op->loops);
    mem_free(op->outputs);
    mem_free(op->path);
    mem_free(op->edges);
    mem_free(op->orders);
    mem_free(op);
}

int mr_flow_close(mr_flow *f) {
    if (!f)
        return 0;
    int err = mr_flow_stop(f, MR_FOREVER);
    if (err < 0)
        return err;
    for (struct mr_flow_out *out = f->free_outs, *next; out; out = next) {
        next = out->next;
        out_destroy(out);
    }
    for (uint32_t i = 0; i < f->count; i++)
        operator_destroy(f->operators[i]);
    pthread_mutex_destroy(&f->lock);
    pthread_cond_destroy(&f->changed);
    mem_free(f);
    return 0;
}

// ---- Operators --------------------------------------------------------------------------------

static int text_copy(const char *text, char **out) {
    size_t size = strlen(text) + 1;
    char *copy = mem_alloc(size);
    if (!copy)
        return error_set(MR_ENOMEM, "no memory for an operator");
    memcpy(copy, text, size);
    *out = copy;
    return 0;
}

static struct op *operator_find(const struct mr_flow *f, const char *name) {
    for (uint32_t i = 0; i < f->count; i++)
        if (strcmp(f->operators[i]->name, name) == 0)
            return f->operators[i];
    return NULL;
}

static int check_operator_new(const struct mr_flow *f, const char *name) {
    if (!f)
        return error_set(MR_EINVAL, "the flow is NULL: mr_flow_open gives one");
    if (f->started)
        return error_set(MR_EINVAL, "flow %s has been started: its operators stay as they are",
                         f->name);
    int err = check_flow_name("an operator", name, "");
    if (err < 0)
        return err;
    if (operator_find(f, name))
        return error_set(MR_EINVAL, "there are two operators %s", name);
    if (f->count == FLOW_OPERATORS)
        return error_set(MR_EFULL, "a flow has at most %d operators", FLOW_OPERATORS);
    return 0;
}

static void fill_options(struct op *op, const mr_operator_options *o) {
    const struct mr_flow *f = op->flow;
    bool one =
        op->kind == OPERATOR_SINK || op->kind == OPERATOR_FILE || op->kind == OPERATOR_SOURCE;
    op->options = *o;
    op->options.partitions = o->partitions ? o->partitions : one ? 1 : FLOW_SPREAD;
    op->options.attempts = o->attempts ? o->attempts : f->options.attempts;
    op->options.jobs = o->jobs ? o->jobs : f->options.jobs;
    snprintf(op->on_dead, sizeof op->on_dead, "%s", o->on_dead ? o->on_dead : f->on_dead);
    snprintf(op->backoff, sizeof op->backoff, "%s", o->backoff ? o->backoff : f->backoff);
}

static int check_from(const char *name, enum operator_kind kind, const char *from) {
    bool source = kind == OPERATOR_SOURCE || kind == OPERATOR_TAKE;
    if (source || (from && from[strspn(from, " ")]))
        return 0;
    return error_set(MR_EINVAL, "operator %s does not say from which it takes its pairs", name);
}

// Adds an operator; the caller fills in what is its kind's own.
static int operator_add(struct mr_flow *f, const char *name, const char *from,
                        enum operator_kind kind, const mr_operator_options *o, struct op **out) {
    static const mr_operator_options defaults;
    o = o ? o : &defaults;
    int err = check_operator_new(f, name);
    if (err >= 0)
        err = check_from(name, kind, from);
    if (err >= 0)
        err = check_operator_options(name, o);
    if (err < 0)
        return err;
    struct op *op = mem_alloc(sizeof *op);
    if (!op)
        return error_set(MR_ENOMEM, "no memory for an operator");
    op->flow = f;
    op->kind = kind;
    op->fd = -1;
    snprintf(op->name, sizeof op->name, "%s", name);
    fill_options(op, o);
    err = from ? text_copy(from, &op->from) : 0;
    if (err >= 0 && o->title)
        err = text_copy(o->title, &op->title);
    if (err < 0) {
        operator_destroy(op);
        return err;
    }
    op->number = f->count;
    f->operators[f->count++] = op;
    f->checked = false;
    *out = op;
    return 0;
}

// Removes the operator added last, which could not be completed.
static int take_back(struct op *op, int err) {
    op->flow->count--;
    operator_destroy(op);
    return err;
}

static int check_function(const char *name, bool given) {
    return given ? 0 : error_set(MR_EINVAL, "operator %s has no function", name ? name : "(NULL)");
}

static int add_function(struct mr_flow *f, const char *name, const char *from,
                        enum operator_kind kind, mr_flow_function *function, void *arg,
                        const mr_operator_options *o) {
    struct op *op = NULL;
    int err = check_function(name, function != NULL);
    if (err >= 0)
        err = operator_add(f, name, from, kind, o, &op);
    if (err < 0)
        return err;
    op->function = function;
    op->arg = arg;
    return 0;
}

// Adds an operator that has a path or a stage.
static int add_path(struct mr_flow *f, const char *name, const char *from, enum operator_kind kind,
                    const char *path, const mr_operator_options *o, struct op **out) {
    struct op *op = NULL;
    if (!path || !*path)
        return error_set(MR_EINVAL, "operator %s has no path or stage", name ? name : "(NULL)");
    int err = operator_add(f, name, from, kind, o, &op);
    if (err < 0)
        return err;
    err = text_copy(path, &op->path);
    if (err < 0)
        return take_back(op, err);
    *out = op;
    return 0;
}

int mr_flow_source(mr_flow *f, const char *name, mr_flow_read *read, void *arg,
                   const mr_operator_options *o) {
    struct op *op = NULL;
    int err = check_function(name, read != NULL);
    if (err >= 0)
        err = operator_add(f, name, NULL, OPERATOR_SOURCE, o, &op);
    if (err < 0)
        return err;
    op->read = read;
    op->arg = arg;
    return 0;
}

int mr_flow_lines(mr_flow *f, const char *name, const char *path, const mr_operator_options *o) {
    struct op *op = NULL;
    int err = add_path(f, name, NULL, OPERATOR_SOURCE, path, o, &op);
    if (err < 0)
        return err;
    op->read = line_source_block;
    return 0;
}

int mr_flow_take(mr_flow *f, const char *name, const char *stage, const mr_operator_options *o) {
    struct op *op = NULL;
    if (stage && strlen(stage) > 200)
        return error_set(MR_EINVAL, "operator %s takes from a stage with a name of %zu bytes",
                         name ? name : "(NULL)", strlen(stage));
    return add_path(f, name, NULL, OPERATOR_TAKE, stage, o, &op);
}

int mr_flow_map(mr_flow *f, const char *name, const char *from, mr_flow_function *function,
                void *arg, const mr_operator_options *o) {
    return add_function(f, name, from, OPERATOR_MAP, function, arg, o);
}

int mr_flow_flat_map(mr_flow *f, const char *name, const char *from, mr_flow_function *function,
                     void *arg, const mr_operator_options *o) {
    return add_function(f, name, from, OPERATOR_FLAT_MAP, function, arg, o);
}

int mr_flow_filter(mr_flow *f, const char *name, const char *from, mr_flow_function *function,
                   void *arg, const mr_operator_options *o) {
    return add_function(f, name, from, OPERATOR_FILTER, function, arg, o);
}

int mr_flow_stage(mr_flow *f, const char *name, const char *from, mr_flow_function *function,
                  void *arg, const mr_operator_options *o) {
    return add_function(f, name, from, OPERATOR_STAGE, function, arg, o);
}

// Cuts the names of outputs apart, in place, and counts them.
static int cut_outputs(struct op *op) {
    char *to = op->outputs;
    for (char *at = op->outputs; *at;) {
        at += strspn(at, " ");
        size_t size = strcspn(at, " ");
        bool more = at[size] != 0;
        if (size == 0)
            break;
        memmove(to, at, size);
        to[size] = 0;
        int err = check_flow_name("an output", to, "");
        if (err < 0)
            return err;
        if (++op->output_count > FLOW_OUTPUTS)
            return error_set(MR_EINVAL, "operator %s has more than %d outputs", op->name,
                             FLOW_OUTPUTS);
        to += size + 1;
        at += size + more;
    }
    if (op->output_count == 0)
        return error_set(MR_EINVAL, "operator %s is a split without outputs", op->name);
    return 0;
}

int mr_flow_split(mr_flow *f, const char *name, const char *from, const char *outputs,
                  mr_flow_function *function, void *arg, const mr_operator_options *o) {
    int err = add_function(f, name, from, OPERATOR_SPLIT, function, arg, o);
    if (err < 0)
        return err;
    struct op *op = f->operators[f->count - 1];
    err = text_copy(outputs ? outputs : "", &op->outputs);
    if (err >= 0)
        err = cut_outputs(op);
    return err < 0 ? take_back(op, err) : 0;
}

int mr_flow_merge(mr_flow *f, const char *name, const char *from, const mr_operator_options *o) {
    struct op *op = NULL;
    return operator_add(f, name, from, OPERATOR_MERGE, o, &op);
}

int mr_flow_aggregate(mr_flow *f, const char *name, const char *from, mr_flow_fold *fold, void *arg,
                      const mr_window *window, const mr_operator_options *o) {
    static const mr_window all;
    struct op *op = NULL;
    window = window ? window : &all;
    int err = check_function(name, fold != NULL);
    if (err >= 0)
        err = check_window(name ? name : "(NULL)", window);
    if (err >= 0)
        err = operator_add(f, name, from, OPERATOR_AGGREGATE, o, &op);
    if (err < 0)
        return err;
    op->fold = fold;
    op->arg = arg;
    op->window = *window;
    op->window.slide = window->slide ? window->slide : window->size;
    return 0;
}

int mr_flow_sink(mr_flow *f, const char *name, const char *from, mr_flow_receive *receive,
                 void *arg, const mr_operator_options *o) {
    struct op *op = NULL;
    int err = check_function(name, receive != NULL);
    if (err >= 0)
        err = operator_add(f, name, from, OPERATOR_SINK, o, &op);
    if (err < 0)
        return err;
    op->receive = receive;
    op->arg = arg;
    return 0;
}

int mr_flow_file(mr_flow *f, const char *name, const char *from, const char *path,
                 const mr_operator_options *o) {
    struct op *op = NULL;
    if (o && o->partitions > 1)
        return error_set(MR_EINVAL, "operator %s writes one file: it has one partition",
                         name ? name : "(NULL)");
    return add_path(f, name, from, OPERATOR_FILE, path, o, &op);
}

int mr_flow_push(mr_flow *f, const char *name, const char *from, const char *stage,
                 const mr_operator_options *o) {
    struct op *op = NULL;
    int err = add_path(f, name, from, OPERATOR_PUSH, stage, o, &op);
    if (err < 0)
        return err;
    if (op->options.block == 0 || op->options.block > FLOW_EMITS)
        op->options.block = FLOW_EMITS; // each pair becomes a job of the same commit
    return 0;
}

int mr_flow_loop(mr_flow *f, const char *from, const char *to) {
    struct op *op = f && to ? operator_find(f, to) : NULL;
    if (!op || !from || f->started)
        return error_set(MR_EINVAL, "a loop leads to an operator that has been made; '%s' is none",
                         to ? to : "(NULL)");
    size_t before = op->loops ? strlen(op->loops) : 0;
    char *loops = mem_resize(op->loops, before + strlen(from) + 2);
    if (!loops)
        return error_set(MR_ENOMEM, "no memory for an operator");
    op->loops = loops;
    snprintf(loops + before, strlen(from) + 2, "%s%s", before ? " " : "", from);
    f->checked = false;
    return 0;
}
