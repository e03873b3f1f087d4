// Random flows against a naive evaluator, which pushes one pair after another through the graph
// without stages, blocks or partitions.
//
//     MILLRACE_SECONDS=60   longer than the default slice
//     MILLRACE_SEED=7       that flow alone
//
// A stream is in order as a whole, by key, or not at all (see `order`). Where it is not, only sums
// over everything are asked for, and compared without order.
#include "millrace_flow.h"
#include "support/api.h"
#include "support/crash.h"
#include "support/proof.h"

#include <inttypes.h>

enum { NODES = 12, PAIRS_MOST = 300, KEYS = 7, NAME = 16 };

enum node_kind { SOURCE, MAP, REKEY, FLAT_MAP, FILTER, SPLIT, MERGE, SUMS, STAGE, CRASH, SINK };
enum order { WHOLE, BY_KEY, NONE }; // of what a node emits

struct pair {
    uint64_t key;
    int64_t value;
};

struct seen {
    struct pair *pairs;
    size_t count;
};

struct cell { // of one key in a node: values so far, and the open windows' folds
    uint64_t count;
    int64_t folds[64];
    uint64_t begun[64];
    size_t open;
};

struct node {
    enum node_kind kind;
    enum order order;
    char name[NAME], from[3 * NAME];
    int inputs[2], input_count;
    int output; // of a split that it takes from; -1: any
    bool head, chain, last_dropped;
    uint64_t size, slide;
    uint64_t numbers[4]; // of what came last to each partition of a sink
    mr_operator_options options;
    struct crash crash;
    struct cell cells[KEYS];
    struct seen expected, got;
    pthread_mutex_t lock;
};

struct graph {
    struct node nodes[NODES];
    int count;
    struct pair input[PAIRS_MOST];
    size_t pairs, block;
    uint64_t dice;
};

static uint64_t dice_next(uint64_t *dice) {
    uint64_t z = (*dice += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t roll(struct graph *g, uint64_t sides) {
    return dice_next(&g->dice) % sides;
}

static void seen_add(struct seen *s, struct pair p) {
    if ((s->count & (s->count - 1)) == 0) // a power of two, or nothing: it is full
        s->pairs = realloc(s->pairs, (s->count ? 2 * s->count : 1) * sizeof *s->pairs);
    assert_non_null(s->pairs);
    s->pairs[s->count++] = p;
}

// ---- What functions do, in both worlds --------------------------------------------------------

static uint64_t other_key(uint64_t key, int64_t value) {
    return (key + (uint64_t)(value & 3)) % KEYS;
}

static int64_t chained(int64_t so_far, int64_t value) {
    return (so_far * 31 + value) % 1000003;
}

static int copies(struct pair p) {
    return (int)((uint64_t)p.value % 3);
}

// ---- The naive evaluator ----------------------------------------------------------------------

static void naive_send(struct graph *g, int from, int output, struct pair p);

static int64_t naive_fold(const struct node *n, bool first, int64_t so_far, int64_t value) {
    return first ? value : n->chain ? chained(so_far, value) : so_far + value;
}

static void naive_window(struct graph *g, int at, struct pair p) {
    struct node *n = &g->nodes[at];
    struct cell *c = &n->cells[p.key];
    uint64_t position = c->count++;
    bool begins = n->size ? position % n->slide == 0 : position == 0;
    if (begins) {
        assert_true(c->open < 64);
        c->folds[c->open] = 0;
        c->begun[c->open++] = position;
    }
    for (size_t i = 0; i < c->open; i++)
        c->folds[i] = naive_fold(n, c->begun[i] == position, c->folds[i], p.value);
    if (!n->size || !c->open || position + 1 != c->begun[0] + n->size)
        return;
    struct pair whole = { p.key, c->folds[0] };
    c->open--;
    memmove(c->folds, c->folds + 1, c->open * sizeof *c->folds);
    memmove(c->begun, c->begun + 1, c->open * sizeof *c->begun);
    naive_send(g, at, -1, whole);
}

static void naive_flush(struct graph *g, int at) {
    struct node *n = &g->nodes[at];
    for (uint64_t key = 0; key < KEYS; key++)
        for (size_t i = 0; i < n->cells[key].open && !n->last_dropped; i++)
            naive_send(g, at, -1, (struct pair){ key, n->cells[key].folds[i] });
}

static void naive_run(struct graph *g, int at, struct pair p) {
    struct node *n = &g->nodes[at];
    switch (n->kind) {
    case SOURCE:
    case MERGE:
    case CRASH:
        naive_send(g, at, -1, p);
        break;
    case MAP:
        naive_send(g, at, -1, (struct pair){ p.key, p.value + 1 });
        break;
    case REKEY:
        naive_send(g, at, -1, (struct pair){ other_key(p.key, p.value), p.value });
        break;
    case FLAT_MAP:
        for (int i = 0; i < copies(p); i++)
            naive_send(g, at, -1, (struct pair){ p.key, p.value + i });
        break;
    case FILTER:
        if (p.value % 2 == 0)
            naive_send(g, at, -1, p);
        break;
    case SPLIT:
        naive_send(g, at, (int)((uint64_t)p.value % 2), p);
        break;
    case SUMS:
        naive_window(g, at, p);
        break;
    case STAGE:
        naive_send(g, at, -1, (struct pair){ p.key, p.value + (int64_t)n->cells[p.key].count++ });
        break;
    case SINK:
        seen_add(&n->expected, p);
        break;
    }
}

static void naive_send(struct graph *g, int from, int output, struct pair p) {
    for (int i = from + 1; i < g->count; i++)
        for (int j = 0; j < g->nodes[i].input_count; j++)
            if (g->nodes[i].inputs[j] == from && (output < 0 || output == g->nodes[i].output))
                naive_run(g, i, p);
}

// ---- The same as a flow -----------------------------------------------------------------------

static int64_t number_of(mr_bytes text) {
    char copy[32];
    snprintf(copy, sizeof copy, "%.*s", (int)text.size, (const char *)text.data);
    return strtoll(copy, NULL, 10);
}

static struct pair pair_of(mr_pair p) {
    return (struct pair){ (uint64_t)number_of(p.key), number_of(p.value) };
}

static int say(mr_flow_out *out, const char *output, struct pair p) {
    char key[24], value[24];
    snprintf(key, sizeof key, "%" PRIu64, p.key);
    snprintf(value, sizeof value, "%" PRId64, p.value);
    return output ? mr_flow_emit_to(out, output, mr_str(key), mr_str(value))
                  : mr_flow_emit(out, mr_str(key), mr_str(value));
}

static int read_input(uint64_t number, mr_flow_out *out, void *arg) {
    const struct graph *g = arg;
    size_t from = (size_t)(number - 1) * g->block;
    if (from >= g->pairs)
        return MR_FLOW_END;
    for (size_t i = from; i < from + g->block && i < g->pairs; i++)
        must(say(out, NULL, g->input[i]));
    return 0;
}

static int map(mr_pair in, mr_flow_out *out, void *arg) {
    struct pair p = pair_of(in);
    (void)arg;
    return say(out, NULL, (struct pair){ p.key, p.value + 1 });
}

static int rekey(mr_pair in, mr_flow_out *out, void *arg) {
    struct pair p = pair_of(in);
    (void)arg;
    return say(out, NULL, (struct pair){ other_key(p.key, p.value), p.value });
}

static int flat_map(mr_pair in, mr_flow_out *out, void *arg) {
    struct pair p = pair_of(in);
    (void)arg;
    int err = 0;
    for (int i = 0; i < copies(p) && err >= 0; i++)
        err = say(out, NULL, (struct pair){ p.key, p.value + i });
    return err;
}

static int filter(mr_pair in, mr_flow_out *out, void *arg) {
    (void)out, (void)arg;
    return pair_of(in).value % 2 == 0;
}

static int split(mr_pair in, mr_flow_out *out, void *arg) {
    struct pair p = pair_of(in);
    (void)arg;
    return say(out, (uint64_t)p.value % 2 ? "odd" : "even", p);
}

static int stage(mr_pair in, mr_flow_out *out, void *arg) {
    struct pair p = pair_of(in);
    mr_bytes state = mr_flow_state(out);
    int64_t count = state.size ? number_of(state) : 0;
    char next[24];
    (void)arg;
    snprintf(next, sizeof next, "%" PRId64, count + 1);
    int err = mr_flow_set(out, mr_str(next));
    return err < 0 ? err : say(out, NULL, (struct pair){ p.key, p.value + count });
}

static int chain(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    char next[24];
    int64_t v = number_of(value);
    (void)key, (void)arg;
    snprintf(next, sizeof next, "%" PRId64, so_far.size ? chained(number_of(so_far), v) : v);
    return mr_flow_set(out, mr_str(next));
}

static int receive(mr_pair in, uint64_t number, void *arg) {
    struct node *n = arg;
    pthread_mutex_lock(&n->lock);
    seen_add(&n->got, pair_of(in));
    uint32_t partitions = n->options.partitions;
    uint64_t *last = &n->numbers[(number - 1) % partitions];
    bool in_turn = number == (*last ? *last + partitions : (number - 1) % partitions + 1);
    *last = number;
    pthread_mutex_unlock(&n->lock);
    return in_turn ? 0 : MR_EINVAL;
}

static void add_node(struct graph *g, mr_flow *f, struct node *n) {
    mr_window w = { n->size, n->slide, n->last_dropped, { 0 } };
    switch (n->kind) {
    case SOURCE:
        must(mr_flow_source(f, n->name, read_input, g, &n->options));
        break;
    case MAP:
        must(mr_flow_map(f, n->name, n->from, map, NULL, &n->options));
        break;
    case REKEY:
        must(mr_flow_map(f, n->name, n->from, rekey, NULL, &n->options));
        break;
    case FLAT_MAP:
        must(mr_flow_flat_map(f, n->name, n->from, flat_map, NULL, &n->options));
        break;
    case FILTER:
        must(mr_flow_filter(f, n->name, n->from, filter, NULL, &n->options));
        break;
    case SPLIT:
        must(mr_flow_split(f, n->name, n->from, "even odd", split, NULL, &n->options));
        break;
    case MERGE:
        must(mr_flow_merge(f, n->name, n->from, &n->options));
        break;
    case SUMS:
        must(mr_flow_aggregate(f, n->name, n->from, n->chain ? chain : mr_flow_sum, NULL, &w,
                               &n->options));
        break;
    case STAGE:
        must(mr_flow_stage(f, n->name, n->from, stage, NULL, &n->options));
        break;
    case CRASH:
        n->crash = (struct crash){ 0.5, 1 + g->pairs };
        must(crash_add(f, n->name, n->from, &n->crash, &n->options));
        break;
    case SINK:
        must(mr_flow_sink(f, n->name, n->from, receive, n, &n->options));
        break;
    }
}

// ---- Chance -----------------------------------------------------------------------------------

// What the pairs that come to a node are like, and whether one job's run brings them all.
static void find_order(struct graph *g, struct node *n) {
    const struct node *a = &g->nodes[n->inputs[0]];
    n->order = a->order;
    if (n->input_count > 1 && (a->order != WHOLE || g->nodes[n->inputs[1]].order != WHOLE))
        n->order = NONE;
}

// Behind a head with partitions only the order by key is left, and when keys change, none.
static void behind(struct node *n) {
    if (n->head && n->order == WHOLE)
        n->order = BY_KEY;
    if (n->kind == REKEY && n->order == BY_KEY)
        n->order = NONE;
}

static void choose_window(struct graph *g, struct node *n) {
    if (n->order == NONE)
        return; // sums over all
    static const uint64_t slides[] = { 1, 2, 3, 5, 7 };
    n->size = roll(g, 4) ? 1 + roll(g, 6) : 0;
    n->slide = n->size ? slides[roll(g, 5)] : 0;
    n->chain = roll(g, 2);
    n->last_dropped = roll(g, 4) == 0;
}

static void make_node(struct graph *g, int at) {
    struct node *n = &g->nodes[at];
    static const enum node_kind kinds[] = { MAP,   REKEY, FLAT_MAP, FILTER, SPLIT,
                                            MERGE, SUMS,  SUMS,     STAGE,  CRASH };
    n->kind = at == 0 ? SOURCE : at == g->count - 1 ? SINK : kinds[roll(g, 10)];
    snprintf(n->name, sizeof n->name, "n%d", at);
    n->options.partitions = 1 + (uint32_t)roll(g, 4);
    n->options.apart = roll(g, 4) == 0;
    n->options.block = (uint32_t)roll(g, 3);
    n->output = -1;
    if (n->kind == SOURCE) {
        n->options.partitions = 1;
        return;
    }
    n->inputs[n->input_count++] = roll(g, 3) ? at - 1 : (int)roll(g, (uint64_t)at);
    int other = (int)roll(g, (uint64_t)at);
    if (n->kind == MERGE && other != n->inputs[0] && g->nodes[other].kind != SPLIT)
        n->inputs[n->input_count++] = other;
    size_t used = 0;
    for (int i = 0; i < n->input_count; i++) {
        bool of_split = g->nodes[n->inputs[i]].kind == SPLIT;
        if (of_split)
            n->output = (int)roll(g, 2);
        used += (size_t)snprintf(n->from + used, sizeof n->from - used, " n%d%s", n->inputs[i],
                                 !of_split   ? ""
                                 : n->output ? ":odd"
                                             : ":even");
    }
    find_order(g, n);
    n->head = n->options.apart || n->kind == SUMS || n->kind == STAGE || n->kind == CRASH;
    if (n->kind == SUMS)
        choose_window(g, n);
    if (n->kind == STAGE && n->order == NONE)
        n->kind = FILTER, n->head = n->options.apart;
    if (n->kind != SINK)
        behind(n);
}

// A merge whose other input is no split may take from a split as well: its `output` is about that.
static void make_graph(struct graph *g, uint64_t seed) {
    memset(g, 0, sizeof *g);
    g->dice = seed * 2654435761u;
    g->count = 3 + (int)roll(g, NODES - 2);
    g->pairs = roll(g, PAIRS_MOST);
    g->block = 1 + roll(g, 40);
    for (size_t i = 0; i < g->pairs; i++)
        g->input[i] = (struct pair){ roll(g, KEYS), (int64_t)roll(g, 100) };
    for (int i = 0; i < g->count; i++) {
        pthread_mutex_init(&g->nodes[i].lock, NULL);
        make_node(g, i);
    }
}

// ---- Comparing --------------------------------------------------------------------------------

static int by_key_and_value(const void *a, const void *b) {
    const struct pair *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

// A stable sort by key: what was in order by key stays so.
static void sort_by_key(struct seen *s) {
    for (size_t i = 1; i < s->count; i++) {
        struct pair p = s->pairs[i];
        size_t at = i;
        for (; at > 0 && s->pairs[at - 1].key > p.key; at--)
            s->pairs[at] = s->pairs[at - 1];
        s->pairs[at] = p;
    }
}

static void arrange(struct seen *s, enum order order) {
    if (order == NONE && s->count)
        qsort(s->pairs, s->count, sizeof *s->pairs, by_key_and_value);
    else if (s->count < 3000)
        sort_by_key(s);
    else
        qsort(s->pairs, s->count, sizeof *s->pairs, by_key_and_value);
}

static void compare(const struct graph *g, uint64_t seed) {
    struct node *sink = (struct node *)&g->nodes[g->count - 1];
    arrange(&sink->expected, sink->order);
    arrange(&sink->got, sink->order);
    if (sink->expected.count != sink->got.count)
        fail_msg("seed %" PRIu64 ": %zu pairs, expected were %zu", seed, sink->got.count,
                 sink->expected.count);
    for (size_t i = 0; i < sink->got.count; i++) {
        struct pair e = sink->expected.pairs[i], p = sink->got.pairs[i];
        if (e.key != p.key || e.value != p.value)
            fail_msg("seed %" PRIu64 ": pair %zu is %" PRIu64 " %" PRId64 ", expected was %" PRIu64
                     " %" PRId64,
                     seed, i, p.key, p.value, e.key, e.value);
    }
}

// Runs it for some milliseconds; 0: until it is over. True: it is.
static bool run_once(struct graph *g, mr *m, uint64_t seed, int64_t wait_ms) {
    mr_flow *f = NULL;
    char name[32];
    snprintf(name, sizeof name, "f%" PRIu64, seed);
    mr_flow_options o = { .jobs = 2, .ahead = 4 };
    must(mr_flow_open(m, name, &o, &f));
    for (int i = 0; i < g->count; i++)
        add_node(g, f, &g->nodes[i]);
    must(mr_flow_start(f));
    int err = mr_flow_wait(f, wait_ms ? wait_ms : MR_FOREVER);
    if (err != MR_EAGAIN)
        must(err);
    must(mr_flow_close(f));
    return err == 0;
}

// Some are stopped on the way, and go on.
static uint64_t run_flow(struct graph *g, mr *m, uint64_t seed) {
    uint64_t stops = roll(g, 3) ? 0 : 1 + roll(g, 3), stopped = 0;
    while (!run_once(g, m, seed, stopped < stops ? 1 + (int64_t)roll(g, 10) : 0))
        stopped++;
    return stopped;
}

static void evaluate(struct graph *g) {
    for (size_t i = 0; i < g->pairs; i++)
        naive_run(g, 0, g->input[i]);
    for (int i = 0; i < g->count; i++)
        if (g->nodes[i].kind == SUMS)
            naive_flush(g, i);
}

static size_t one_graph(mr *m, uint64_t seed, uint64_t *stops) {
    static struct graph g;
    make_graph(&g, seed);
    evaluate(&g);
    *stops += run_flow(&g, m, seed);
    compare(&g, seed);
    struct node *sink = &g.nodes[g.count - 1];
    size_t count = sink->got.count;
    free(sink->expected.pairs);
    free(sink->got.pairs);
    return count;
}

// An engine knows so many stages, and a flow leaves its own behind.
enum { FLOWS_AN_ENGINE = 200 };

static void open_engines(mr *out[2]) {
    must(mr_open("mem:", NULL, &out[0]));
    must(mr_open("mem:", &(mr_options){ .shards = 3 }, &out[1]));
}

static void close_engines(mr *m[2]) {
    must(mr_close(m[0]));
    must(mr_close(m[1]));
}

// E1, E4, E6, T16: whatever the graph, its windows, crashes and stops, each pair counts once.
static void random_flows_agree_with_the_naive_evaluator(void **state) {
    uint64_t only = proof_seed(0), seed = only ? only : 1, flows = 0, pairs = 0, stops = 0;
    uint64_t begun_ms = monotonic_ms(), until_ms = proof_until_ms(4, 30);
    (void)state;
    mr *m[2]; // of one shard, and of three
    open_engines(m);
    do {
        pairs += one_graph(m[seed % 2], seed, &stops);
        flows++, seed++;
        if (flows % FLOWS_AN_ENGINE == 0) {
            close_engines(m);
            open_engines(m);
        }
    } while (!only && monotonic_ms() < until_ms);
    close_engines(m);
    print_message("%" PRIu64 " flows, stopped %" PRIu64 " times, %" PRIu64
                  " pairs at their ends, %" PRIu64 " flows a second\n",
                  flows, stops, pairs, flows * 1000 / (monotonic_ms() - begun_ms + 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_flows_agree_with_the_naive_evaluator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
