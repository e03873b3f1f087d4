// See sim_nodes.h. The store as a node sees it: streams of the simulated store, from which a node
// may be cut off, and in the middle of an append to which it may be paused. What the store has
// answered is checked: a mistake of its fence need not be visible to clients, because an owner
// whose time is over sends nothing.
#include "support/sim_nodes.h"

#include "base/errors.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

struct node_stream {
    struct stream base;
    struct stream *inner;
    struct sim_place *place;
};

// A node that opens a shard waits for the store, so it is not cut off then.
static bool is_cut_off(const struct sim_place *p) {
    const struct sim_node *n = p->node;
    return n->is_dying || (p->phase != SIM_OPENING && n->cut_until_ms > sim_nodes_now_ms(n->all));
}

static int no_answer(void) {
    (void)error_set(MR_ENET, "the simulated store does not answer this node");
    return STREAM_UNAVAILABLE;
}

#define INNER(x) (((struct node_stream *)(x))->inner)
#define CUT_OFF(x) is_cut_off(((struct node_stream *)(x))->place)

static int node_claim(struct stream *x, uint64_t expected, struct stream_state *out) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->claim(INNER(x), expected, out);
}

// Only the present owner appends.
static void expect_fenced(struct sim_place *p, uint64_t epoch) {
    struct stream_state stored;
    sim_store_look(p->node->all->store, p->shard, &stored);
    if (stored.epoch != epoch)
        sim_nodes_fail(p->node->all,
                       "the store has accepted an append of node %d to shard %u with epoch %" PRIu64
                       ", and has epoch %" PRIu64,
                       p->node->index, p->shard, epoch, stored.epoch);
}

static int node_append(struct stream *x, uint64_t epoch, uint64_t tail,
                       const struct stream_batch *b) {
    struct sim_place *p = ((struct node_stream *)x)->place;
    struct sim_nodes *w = p->node->all;
    if (CUT_OFF(x) || (p->phase != SIM_OPENING && w->slow_store && sim_nodes_roll(w, 4) == 0))
        return no_answer();
    if (p->phase == SIM_RUNS)
        sim_node_pause_in_append(p->node);
    int result = INNER(x)->impl->append(INNER(x), epoch, tail, b);
    if (result == STREAM_DONE)
        expect_fenced(p, epoch);
    return result;
}

static int node_read(struct stream *x, uint64_t from, uint64_t upto, size_t max_bytes,
                     bool with_bodies, stream_each *each, void *arg, uint64_t *out_next) {
    return CUT_OFF(x) ? no_answer()
                      : INNER(x)->impl->read(INNER(x), from, upto, max_bytes, with_bodies, each,
                                             arg, out_next);
}

static int node_get(struct stream *x, uint64_t at, enum stream_part part, size_t offset,
                    size_t size, struct buffer *out) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->get(INNER(x), at, part, offset, size, out);
}

static int node_trim(struct stream *x, uint64_t epoch, uint64_t upto) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->trim(INNER(x), epoch, upto);
}

static int node_beat(struct stream *x, uint64_t epoch) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->beat(INNER(x), epoch);
}

static int node_look(struct stream *x, struct stream_state *out) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->look(INNER(x), out);
}

static int node_release(struct stream *x, uint64_t epoch) {
    return CUT_OFF(x) ? no_answer() : INNER(x)->impl->release(INNER(x), epoch);
}

static void node_interrupt(struct stream *x) {
    INNER(x)->impl->interrupt(INNER(x));
}

static void node_close_stream(struct stream *x) {
    INNER(x)->impl->close(INNER(x));
    free(x);
}

static const struct stream_impl node_stream_impl = {
    .claim = node_claim,
    .append = node_append,
    .read = node_read,
    .get = node_get,
    .trim = node_trim,
    .beat = node_beat,
    .look = node_look,
    .release = node_release,
    .interrupt = node_interrupt,
    .close = node_close_stream,
};

int sim_node_open_stream(struct stream_store *base, uint32_t shard, struct stream **out) {
    struct sim_place *p = list_entry(base, struct sim_place, store);
    struct stream_store *store = sim_store_streams(p->node->all->store);
    struct node_stream *x = calloc(1, sizeof *x);
    int err = store->open(store, shard, &x->inner);
    assert(err == 0);
    x->base.impl = &node_stream_impl;
    x->place = p;
    sim_stream_name(x->inner, p->node->address);
    *out = &x->base;
    return 0;
}
