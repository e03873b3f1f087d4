// See cluster_sim.h. Time moves in steps of a millisecond.
#include "support/cluster_sim.h"

#include "cluster/assign.h"
#include "support/sim_board.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_NAME = 16, PAUSES_FIRST = 1024 };
static const uint64_t never_ms = UINT64_MAX;

struct sim_node {
    struct board *board;
    char name[NODE_NAME];
    bool alive, draining;
    uint64_t tick_at_ms;  // the next one
    uint64_t answered_ms; // since when the store has answered every tick; never_ms: it does not
};

enum sim_phase { SIM_UNSERVED, SIM_REPLAYING, SIM_SERVING };

// What its owner knows of a shard; the epoch in the store may be another one already.
struct sim_held {
    enum sim_phase phase;
    int32_t node;
    uint64_t epoch, beat_at_ms, left_bytes;
    uint64_t unserved_at_ms; // since when it is not served
};

struct sim_claim {
    uint32_t node, shard;
    uint64_t expected, at_ms;
};

struct cluster_sim {
    struct cluster_sim_options options;
    struct sim_board *store;
    struct sim_node *nodes;
    struct sim_held *held; // of each shard
    struct sim_claim *claims;
    uint32_t claim_count;
    uint64_t random, now_ms, since_ms, changed_ms;
    uint64_t *pauses_ms;
    size_t pause_count, pause_capacity;
    struct cluster_sim_figures figures;
    // What a node reads in a tick.
    struct assign_node *seen;
    uint32_t *seen_node; // its number
    bool *seen_ready;    // it would claim a shard that is released for it
    uint32_t seen_count;
    struct stream_state *states;
    struct assign_shard *shards;
    int32_t *assigned;
};

static uint32_t sim_chance(struct cluster_sim *c, uint32_t below) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)((c->random * UINT64_C(0x2545f4914f6cdd1d) >> 33) % below);
}

// ---- Serving ----------------------------------------------------------------------------------

static void pause_note(struct cluster_sim *c, uint64_t ms) {
    if (c->pause_count == c->pause_capacity) {
        c->pause_capacity = c->pause_capacity ? 2 * c->pause_capacity : PAUSES_FIRST;
        c->pauses_ms = realloc(c->pauses_ms, c->pause_capacity * sizeof *c->pauses_ms);
    }
    c->pauses_ms[c->pause_count++] = ms;
}

// The only place that changes a phase.
static void shard_phase(struct cluster_sim *c, uint32_t shard, enum sim_phase to) {
    struct sim_held *h = &c->held[shard];
    if (h->phase == SIM_SERVING && to != SIM_SERVING)
        h->unserved_at_ms = c->now_ms;
    if (h->phase != SIM_SERVING && to == SIM_SERVING)
        pause_note(c, c->now_ms - h->unserved_at_ms);
    h->phase = to;
    c->changed_ms = c->now_ms;
}

static void shard_lose(struct cluster_sim *c, uint32_t shard) {
    shard_phase(c, shard, SIM_UNSERVED);
    c->held[shard].node = -1;
}

static void replays_run(struct cluster_sim *c) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < c->options.shards; i++)
        count += c->held[i].phase == SIM_REPLAYING;
    uint64_t part = count ? c->options.replay_bytes_per_ms / count + 1 : 0;
    for (uint32_t i = 0; i < c->options.shards && count; i++) {
        struct sim_held *h = &c->held[i];
        if (h->phase != SIM_REPLAYING)
            continue;
        h->left_bytes = h->left_bytes > part ? h->left_bytes - part : 0;
        if (!h->left_bytes)
            shard_phase(c, i, SIM_SERVING);
    }
}

// Owners that cannot prove that they own a shard stop by their own clock.
static void owners_check(struct cluster_sim *c) {
    for (uint32_t i = 0; i < c->options.shards; i++)
        if (c->held[i].node >= 0 && c->now_ms - c->held[i].beat_at_ms >= c->options.unowned_ms)
            shard_lose(c, i);
}

// ---- Claims -----------------------------------------------------------------------------------

static void claim_begin(struct cluster_sim *c, uint32_t node, uint32_t shard, uint64_t expected) {
    if (c->claim_count == 2 * c->options.shards)
        return;
    uint64_t at_ms = c->now_ms + 1 + sim_chance(c, c->options.claim_ms);
    c->claims[c->claim_count++] = (struct sim_claim){ node, shard, expected, at_ms };
}

static void claim_end(struct cluster_sim *c, const struct sim_claim *claim) {
    const struct sim_node *n = &c->nodes[claim->node];
    if (!n->alive)
        return;
    int result = sim_board_claim(n->board, claim->shard, claim->expected, n->name);
    c->figures.fenced += result == STREAM_FENCED;
    if (result != STREAM_DONE)
        return;
    c->figures.claims++;
    struct sim_held *h = &c->held[claim->shard];
    shard_phase(c, claim->shard, SIM_REPLAYING);
    h->node = (int32_t)claim->node;
    h->epoch = claim->expected + 1;
    h->beat_at_ms = c->now_ms;
    h->left_bytes = c->options.replay_bytes;
}

static void claims_run(struct cluster_sim *c) {
    for (uint32_t i = 0; i < c->claim_count;) {
        struct sim_claim claim = c->claims[i];
        if (claim.at_ms > c->now_ms) {
            i++;
            continue;
        }
        c->claims[i] = c->claims[--c->claim_count];
        claim_end(c, &claim);
    }
}

static bool claim_is_under_way(const struct cluster_sim *c, uint32_t node, uint32_t shard) {
    for (uint32_t i = 0; i < c->claim_count; i++)
        if (c->claims[i].node == node && c->claims[i].shard == shard)
            return true;
    return false;
}

// ---- A node's tick ----------------------------------------------------------------------------

static int node_see(void *arg, const struct board_note *note) {
    struct cluster_sim *c = arg;
    c->figures.notes_read++;
    if (note->age_ms >= c->options.takeover_ms)
        return 0;
    uint32_t node = (uint32_t)strtoul(note->key + 1, NULL, 10);
    c->seen_node[c->seen_count] = node;
    c->seen_ready[c->seen_count] = !strcmp(note->value, "ready");
    c->seen[c->seen_count++] =
        (struct assign_node){ c->nodes[node].name, !strcmp(note->value, "drain") };
    return 0;
}

// The place of an owner among the nodes that were seen; -1: it is not alive.
static int32_t owner_place(const struct cluster_sim *c, const char *owner) {
    uint32_t low = 0, high = c->seen_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(c->seen[middle].name, owner);
        if (order == 0)
            return (int32_t)middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static bool is_settled(const struct cluster_sim *c, const struct sim_node *n) {
    return n->answered_ms != never_ms && c->now_ms - n->answered_ms >= c->options.settle_ms;
}

static bool node_read(struct cluster_sim *c, struct sim_node *n) {
    const char *note = n->draining ? "drain" : is_settled(c, n) ? "ready" : "settling";
    c->seen_count = 0;
    c->figures.ticks++;
    c->figures.puts++;
    c->figures.shards_read += c->options.shards;
    bool answers = board_put(n->board, n->name, note) == STREAM_DONE &&
                   board_notes(n->board, node_see, c) == STREAM_DONE &&
                   board_look(n->board, c->options.shards, c->states) == STREAM_DONE;
    if (!answers)
        n->answered_ms = never_ms;
    else if (n->answered_ms == never_ms)
        n->answered_ms = c->now_ms;
    for (uint32_t i = 0; answers && i < c->options.shards; i++)
        c->shards[i] = (struct assign_shard){ owner_place(c, c->states[i].owner), -1 };
    return answers;
}

// What a node does with a shard that it owns; whether it still does.
static bool shard_keep(struct cluster_sim *c, struct sim_node *n, uint32_t shard, bool keep) {
    struct sim_held *h = &c->held[shard];
    c->figures.beats++;
    int result = keep ? sim_board_beat(n->board, shard, h->epoch)
                      : sim_board_release(n->board, shard, h->epoch);
    if (result == STREAM_DONE)
        h->beat_at_ms = c->now_ms;
    if (keep && result == STREAM_DONE)
        return true;
    shard_lose(c, shard);
    return false;
}

// What a node does with a shard that it does not own. One that was not seen for long is claimed
// even if its owner's node is alive: it may have been restarted, and know nothing of it. Such a
// node releases what it should not own.
static void shard_take(struct cluster_sim *c, uint32_t number, uint32_t shard, bool mine) {
    struct sim_node *n = &c->nodes[number];
    const struct stream_state *s = &c->states[shard];
    bool named = !strcmp(s->owner, n->name);
    bool is_free = !s->owner[0] || named || s->silent_ms >= c->options.takeover_ms;
    if (claim_is_under_way(c, number, shard))
        return;
    if (mine && is_free)
        claim_begin(c, number, shard, s->epoch);
    else if (named && !mine)
        (void)sim_board_release(n->board, shard, s->epoch); // or another one has claimed it
}

static void node_end(struct cluster_sim *c, struct sim_node *n) {
    (void)board_remove(n->board, n->name); // a note that stays is ignored once it is old
    n->alive = false;
    c->changed_ms = c->now_ms;
}

static void node_tick(struct cluster_sim *c, uint32_t number) {
    struct sim_node *n = &c->nodes[number];
    if (!node_read(c, n))
        return;
    bool settled = is_settled(c, n);
    uint32_t owned = 0;
    assign_shards(c->seen, c->seen_count, c->shards, c->options.shards, c->assigned);
    for (uint32_t i = 0; i < c->options.shards; i++) {
        int32_t to = c->assigned[i];
        bool mine = to >= 0 && c->seen_node[to] == number;
        bool keep = mine || !settled || to < 0 || !c->seen_ready[to];
        if (c->held[i].node == (int32_t)number)
            owned += shard_keep(c, n, i, keep);
        else if (settled)
            shard_take(c, number, i, mine);
    }
    if (n->draining && !owned)
        node_end(c, n);
}

// ---- The cluster ------------------------------------------------------------------------------

struct cluster_sim *cluster_sim_create(const struct cluster_sim_options *o) {
    struct cluster_sim *c = calloc(1, sizeof *c);
    assert(o->nodes <= 10000 && o->nodes <= ASSIGN_NODES_MOST);
    c->options = *o;
    c->random = o->seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
    c->store = sim_board_create(o->shards);
    c->nodes = calloc(o->nodes, sizeof *c->nodes);
    c->held = calloc(o->shards, sizeof *c->held);
    c->claims = calloc(2 * (size_t)o->shards, sizeof *c->claims);
    c->seen = calloc(o->nodes, sizeof *c->seen);
    c->seen_node = calloc(o->nodes, sizeof *c->seen_node);
    c->seen_ready = calloc(o->nodes, sizeof *c->seen_ready);
    c->states = calloc(o->shards, sizeof *c->states);
    c->shards = calloc(o->shards, sizeof *c->shards);
    c->assigned = calloc(o->shards, sizeof *c->assigned);
    for (uint32_t i = 0; i < o->nodes; i++) {
        c->nodes[i].board = sim_board_open(c->store);
        snprintf(c->nodes[i].name, NODE_NAME, "n%04" PRIu32, i);
    }
    for (uint32_t i = 0; i < o->shards; i++)
        c->held[i].node = -1;
    return c;
}

void cluster_sim_destroy(struct cluster_sim *c) {
    for (uint32_t i = 0; i < c->options.nodes; i++)
        board_close(c->nodes[i].board);
    sim_board_destroy(c->store);
    void *const parts[] = { c->nodes,     c->held,       c->claims, c->seen,
                            c->seen_node, c->seen_ready, c->states, c->shards,
                            c->assigned,  c->pauses_ms,  c };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        free(parts[i]);
}

void cluster_sim_start(struct cluster_sim *c, uint32_t node, uint64_t after_ms) {
    struct sim_node *n = &c->nodes[node];
    assert(!n->alive);
    n->alive = true;
    n->draining = false;
    n->answered_ms = never_ms;
    n->tick_at_ms = c->now_ms + after_ms + 1 + sim_chance(c, c->options.tick_ms);
}

void cluster_sim_kill(struct cluster_sim *c, uint32_t node) {
    c->nodes[node].alive = false;
    for (uint32_t i = 0; i < c->options.shards; i++)
        if (c->held[i].node == (int32_t)node)
            shard_lose(c, i);
}

void cluster_sim_drain(struct cluster_sim *c, uint32_t node) {
    c->nodes[node].draining = true;
}

void cluster_sim_outage(struct cluster_sim *c, bool lasts) {
    sim_board_outage(c->store, lasts);
}

void cluster_sim_run(struct cluster_sim *c, uint64_t ms) {
    for (uint64_t end_ms = c->now_ms + ms; c->now_ms < end_ms;) {
        c->now_ms++;
        sim_board_advance(c->store, 1);
        claims_run(c);
        replays_run(c);
        owners_check(c);
        for (uint32_t i = 0; i < c->options.nodes; i++) {
            struct sim_node *n = &c->nodes[i];
            if (!n->alive || n->tick_at_ms > c->now_ms)
                continue;
            n->tick_at_ms = c->now_ms + c->options.tick_ms;
            node_tick(c, i);
        }
    }
}

// ---- Figures ----------------------------------------------------------------------------------

void cluster_sim_measure(struct cluster_sim *c) {
    c->figures = (struct cluster_sim_figures){ 0 };
    c->pause_count = 0;
    c->since_ms = c->changed_ms = c->now_ms;
}

static int compare_ms(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct cluster_sim_figures cluster_sim_figures(const struct cluster_sim *c) {
    struct cluster_sim_figures f = c->figures;
    uint32_t *count = calloc(c->options.nodes, sizeof *count);
    for (uint32_t i = 0; i < c->options.shards; i++) {
        f.unserved += c->held[i].phase != SIM_SERVING;
        if (c->held[i].node >= 0)
            count[c->held[i].node]++;
    }
    f.fewest = UINT32_MAX;
    for (uint32_t i = 0; i < c->options.nodes; i++) {
        if (!c->nodes[i].alive || c->nodes[i].draining)
            continue;
        f.fewest = count[i] < f.fewest ? count[i] : f.fewest;
        f.most = count[i] > f.most ? count[i] : f.most;
    }
    free(count);
    f.outages = c->pause_count;
    if (c->pause_count) {
        qsort(c->pauses_ms, c->pause_count, sizeof *c->pauses_ms, compare_ms);
        f.pause_50_ms = c->pauses_ms[(c->pause_count - 1) / 2];
        f.pause_99_ms = c->pauses_ms[(c->pause_count - 1) * 99 / 100];
        f.pause_most_ms = c->pauses_ms[c->pause_count - 1];
    }
    f.settled_ms = c->changed_ms - c->since_ms;
    return f;
}
