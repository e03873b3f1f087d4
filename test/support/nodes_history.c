// See nodes_history.h and nodes_state.h: faults, the steps of a history, and what must hold when it
// ends.
#include "support/nodes_state.h"

#include "core/route.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOUR_MS = 3600000, MINUTE_MS = 60000 };
enum { STEPS = 2500, DRAIN_STEPS = 40000, QUIET_STEPS = 1500 };

// ---- Faults -------------------------------------------------------------------------------------

const char *nodes_fault_name(enum nodes_fault fault) {
    static const char *const names[NODES_FAULTS] = {
        [FAULT_KILL] = "died",
        [FAULT_PAUSE] = "paused",
        [FAULT_CUT_STORE] = "lost the store",
        [FAULT_APART] = "lost another node",
        [FAULT_CUT_WIRE] = "wires cut",
        [FAULT_JUMP] = "clocks jumped",
        [FAULT_DRAIN] = "drained or not",
        [FAULT_OUTAGE] = "outages",
        [FAULT_PAUSE_IN_APPEND] = "paused in an append",
        [FAULT_STANDBY] = "the standby was away",
        [FAULT_POWER] = "lost power",
        [FAULT_DISK_ERROR] = "disk errors",
        [FAULT_DISK_FULL] = "disk full",
        [FAULT_SHORT_WRITES] = "short writes",
        [FAULT_READ_ONLY] = "disk read-only",
        [FAULT_SILENCE] = "wires silent",
        [FAULT_UNREACHABLE] = "nodes unreachable",
        [FAULT_KILL_ALL] = "all died",
        [FAULT_WALL_JUMP] = "time of day jumped",
        [FAULT_LIBRARY_KILLED] = "clients killed",
        [FAULT_LIBRARY_PAUSED] = "clients paused",
    };
    return names[fault];
}

// Faults have their own chance, and what they need is drawn whether they happen or not: without one
// kind of them, the others stay as they are until its effect shows.
static uint64_t fault_roll(struct history *h, uint64_t below) {
    uint64_t z = h->fault_random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

struct fault {
    enum nodes_fault kind;
    struct sim_node *node;
    int other;
    uint64_t ms, number;
    struct sim_wire *wire;
    bool flag;
};

// The process dies, or the machine; what of the disk survives that is decided when it starts.
static void fault_kill(struct history *h, struct sim_node *n, uint64_t number) {
    if (n->is_alive && h->nodes->disk)
        sim_nodes_lose_disk(h->nodes, (enum sim_survival)(number % SIM_SURVIVALS), number);
    else if (n->is_alive)
        sim_node_kill(n);
}

static void disk_fails(struct history *h, const struct fault *f) {
    struct sim_disk *disk = h->nodes->disk;
    uint64_t call = sim_disk_calls(disk) + 1 + f->number % 40;
    if (f->kind == FAULT_POWER)
        sim_disk_crash_at(disk, call);
    else if (f->kind == FAULT_DISK_ERROR)
        sim_disk_fail_at(disk, call, EIO);
    else
        h->disk_heals_ms = sim_nodes_now_ms(h->nodes) + f->ms;
    if (f->kind == FAULT_DISK_FULL)
        sim_disk_space(disk, 1);
    else if (f->kind == FAULT_SHORT_WRITES)
        sim_disk_shorten(disk, 1 + f->number % 700);
    else if (f->kind == FAULT_READ_ONLY)
        sim_disk_break(disk, SIM_WRITES, EROFS);
}

static void fault_happens(struct history *h, const struct fault *f) {
    struct sim_nodes *w = h->nodes;
    struct sim_node *n = f->node;
    uint64_t now_ms = sim_nodes_now_ms(w), until_ms = now_ms + f->ms;
    switch (f->kind) {
    case FAULT_KILL:
        fault_kill(h, n, f->number);
        break;
    case FAULT_PAUSE:
        n->paused_until_ms = until_ms;
        break;
    case FAULT_CUT_STORE:
        n->cut_until_ms = until_ms;
        break;
    case FAULT_APART:
        w->apart_until_ms[n->index][f->other] = w->apart_until_ms[f->other][n->index] = until_ms;
        break;
    case FAULT_CUT_WIRE:
        if (f->wire->is_used && !f->wire->is_cut)
            sim_wire_cut(w, f->wire);
        break;
    case FAULT_JUMP:
        n->ahead_ms += f->ms;
        break;
    case FAULT_DRAIN:
        n->is_drained = !n->is_drained;
        break;
    case FAULT_OUTAGE:
        sim_store_outage(w->store, f->ms / 2);
        break;
    case FAULT_PAUSE_IN_APPEND:
        n->pause_in_append_ms = 2 * f->ms;
        break;
    case FAULT_STANDBY:
        sim_store_standby_away(w->store, f->ms / 2, f->flag);
        break;
    case FAULT_POWER:
    case FAULT_DISK_ERROR:
    case FAULT_DISK_FULL:
    case FAULT_SHORT_WRITES:
    case FAULT_READ_ONLY:
        disk_fails(h, f);
        break;
    case FAULT_SILENCE:
        f->wire->silent_until_ms = now_ms + 4 * f->ms;
        break;
    case FAULT_UNREACHABLE:
        n->unreachable_until_ms = until_ms;
        break;
    case FAULT_KILL_ALL:
        for (int i = 0; i < w->node_count; i++)
            fault_kill(h, &w->nodes[i], f->number);
        break;
    case FAULT_WALL_JUMP:
        n->wall_ahead_ms += f->flag ? MINUTE_MS : -HOUR_MS;
        break;
    case FAULT_LIBRARY_KILLED:
        library_kill(h, (int)(f->number % LIBRARIES));
        break;
    case FAULT_LIBRARY_PAUSED:
        library_pause(h, (int)(f->number % LIBRARIES), until_ms);
        break;
    case NODES_FAULTS:
        break;
    }
}

static void disk_heals(struct sim_disk *disk) {
    sim_disk_space(disk, 0);
    sim_disk_shorten(disk, 0);
    sim_disk_break(disk, SIM_WRITES, 0);
}

// Which faults a history may have: those of its kind of store, without those that are switched off.
static uint32_t faults_possible(const struct history *h) {
    uint32_t all = (1 << NODES_FAULTS) - 1;
    uint32_t disk = 1 << FAULT_POWER | 1 << FAULT_DISK_ERROR | 1 << FAULT_DISK_FULL |
                    1 << FAULT_SHORT_WRITES | 1 << FAULT_READ_ONLY;
    uint32_t cluster = 1 << FAULT_CUT_STORE | 1 << FAULT_APART | 1 << FAULT_DRAIN |
                       1 << FAULT_OUTAGE | 1 << FAULT_PAUSE_IN_APPEND | 1 << FAULT_STANDBY |
                       1 << FAULT_KILL_ALL;
    return all & ~(h->plan->files ? cluster : disk) & ~h->plan->without;
}

static void fault_step(struct history *h) {
    struct sim_nodes *w = h->nodes;
    struct fault f = { .kind = (enum nodes_fault)fault_roll(h, NODES_FAULTS) };
    f.node = &w->nodes[fault_roll(h, (uint64_t)w->node_count)];
    f.other = (int)fault_roll(h, (uint64_t)w->node_count);
    f.ms = 100 + fault_roll(h, fault_roll(h, 3) ? 1500 : 7000);
    f.wire = &w->wires[fault_roll(h, SIM_WIRES)];
    f.flag = fault_roll(h, 2);
    f.number = fault_roll(h, UINT32_MAX);
    if (h->disk_heals_ms && sim_nodes_now_ms(w) >= h->disk_heals_ms) {
        disk_heals(w->disk);
        h->disk_heals_ms = 0;
    }
    if (fault_roll(h, 8) == 0 && h->faults >> f.kind & 1) {
        sim_nodes_note(w, "fault: node %d, %s, %" PRIu64 " ms", f.node->index,
                       nodes_fault_name(f.kind), f.ms);
        h->reached->faults[f.kind]++;
        fault_happens(h, &f);
    }
    struct sim_node *n = &w->nodes[fault_roll(h, (uint64_t)w->node_count)];
    if (fault_roll(h, 60) == 0 && !n->is_alive)
        sim_node_start(n);
}

static void store_faults(struct history *h, bool on) {
    static const uint32_t per_mille[SIM_FAULTS] = {
        [SIM_UNAVAILABLE] = 20, [SIM_REQUEST_LOST] = 10,   [SIM_REPLY_LOST] = 10,
        [SIM_LATE] = 10,        [SIM_WAIT_CANCELLED] = 10, [SIM_FAILOVER] = 3,
    };
    for (int i = 0; i < SIM_FAULTS; i++)
        sim_store_chance(h->nodes->store, (enum sim_fault)i, on ? per_mille[i] : 0);
}

static void faults_end(struct history *h) {
    struct sim_nodes *w = h->nodes;
    sim_nodes_note(w, "the faults end");
    store_faults(h, false);
    sim_store_outage_end(w->store);
    sim_store_standby_away(w->store, 0, false);
    memset(w->apart_until_ms, 0, sizeof w->apart_until_ms);
    w->slow_store = false;
    if (w->disk) {
        sim_disk_crash_at(w->disk, 0);
        sim_disk_fail_at(w->disk, 0, 0);
        disk_heals(w->disk);
    }
    for (int i = 0; i < SIM_WIRES; i++)
        w->wires[i].silent_until_ms = 0;
    for (int i = 0; i < LIBRARIES; i++)
        library_pause(h, i, 0);
    for (int i = 0; i < w->node_count; i++) {
        struct sim_node *n = &w->nodes[i];
        n->paused_until_ms = n->cut_until_ms = n->pause_in_append_ms = 0;
        n->unreachable_until_ms = 0;
        n->is_drained = false;
    }
}

// ---- Histories ----------------------------------------------------------------------------------

static bool fine(const struct history *h) {
    return !h->nodes->failure[0];
}

// Of a shard that runs: its limits hold, and now and then all that it knows is looked through.
static void expect_limits(struct history *h, const struct sim_place *p) {
    struct core *c = shard_core(group_shard(p->group, p->shard));
    struct stage_info s;
    mr_bytes stage = mr_str(h->stages[LIMITED_STAGE]);
    if (route_of(SIM_SHARDS, stage) == p->shard && core_look_stage(c, stage, &s) == 0 &&
        s.running > LIMIT)
        wrong(h, "stage %s runs %" PRIu64 " jobs at once", h->stages[LIMITED_STAGE], s.running);
    if (roll(h, 20) == 0 && core_check(c) < 0)
        wrong(h, "the core of shard %u is not consistent", p->shard);
}

static void history_step(void *arg) {
    struct history *h = arg;
    sim_nodes_step(h->nodes);
    for (int i = 0; i < CLIENTS; i++)
        client_step(h, &h->clients[i]);
    libraries_step(h);
    struct sim_node *n = &h->nodes->nodes[roll(h, (uint64_t)h->nodes->node_count)];
    const struct sim_place *p = &n->places[roll(h, SIM_SHARDS)];
    if (n->is_alive && p->phase == SIM_RUNS)
        expect_limits(h, p);
}

// Every shard has a stage.
static void choose_stages(struct history *h) {
    int number = 0;
    for (int i = 0; i < STAGES; i++)
        do
            snprintf(h->stages[i], sizeof h->stages[i], "s%d", number++);
        while (route_of(SIM_SHARDS, mr_str(h->stages[i])) != (uint32_t)i % SIM_SHARDS);
}

static void set_policies(struct history *h) {
    struct client *c = &h->clients[0];
    for (int i = 0; i < 1000 && !c->wire; i++)
        history_step(h);
    for (int i = 0; i < STAGES; i++) {
        char text[160];
        snprintf(text, sizeof text, "STAGE %s attempts 60000 backoff 1..20%s", h->stages[i],
                 h->forgets ? " retention 200ms,10" : "");
        if (i == LIMITED_STAGE)
            snprintf(text + strlen(text), 32, " concurrency %d", LIMIT);
        if (i == GROUPED_STAGE)
            snprintf(text + strlen(text), 48, " group on group-concurrency %d", GROUP_LIMIT);
        client_send(h, c, (struct expected){ .kind = EXPECT_OK }, text);
    }
    for (int i = 0; i < 5000 && c->expected_count; i++) {
        sim_nodes_step(h->nodes);
        client_step(h, c);
    }
    if (c->expected_count)
        wrong(h, "the nodes do not begin to serve");
}

static bool is_unfinished(const struct piece *p) {
    return p->acked && !p->done && !p->maybe_done && !p->is_call && !p->cancelled;
}

// A client that waits for a reply, or a job that must end. NULL: none.
static const char *find_unfinished(const struct history *h, char text[100]) {
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &h->clients[i];
        bool waits = c->expected_count && !(c->expected_count == 1 && c->takes);
        if (c->again_count || waits) {
            snprintf(text, 100, "client %d waits for a reply", i);
            return text;
        }
    }
    for (int i = 0; i < h->piece_count; i++)
        if (is_unfinished(&h->pieces[i])) {
            snprintf(text, 100, "number %d, id %" PRIu64 ", does not end", i, h->pieces[i].id);
            return text;
        }
    return plans_unfinished(h, text);
}

// All jobs have ended, and all emits have arrived.
static void expect_empty(struct history *h, const struct sim_place *p) {
    struct core *c = shard_core(group_shard(p->group, p->shard));
    struct log_state log;
    shard_look(group_shard(p->group, p->shard), &log);
    h->reached->trims += h->plan->files ? log.head / log.segment_size : 0;
    if (core_check(c) < 0)
        wrong(h, "the core of shard %u is not consistent", p->shard);
    for (int i = 0; i < STAGES; i++) {
        struct stage_info s;
        if (core_look_stage(c, mr_str(h->stages[i]), &s) < 0)
            continue;
        uint64_t left = s.waiting + s.running + s.parked + s.delayed + s.dead;
        if (left || s.linked)
            wrong(h,
                  "shard %u: %" PRIu64 " jobs of stage %s, and %" PRIu64 " emits to it, are left",
                  p->shard, left, h->stages[i], s.linked);
    }
}

// What programs have released at their end is still to be taken, if nothing is known of it: that of
// a commit, for one, whose reply was lost.
static bool is_empty(const struct history *h) {
    uint64_t left = 0;
    for (int k = 0; k < SIM_NODES * (int)SIM_SHARDS; k++) {
        const struct sim_place *p = &h->nodes->nodes[k / SIM_SHARDS].places[k % SIM_SHARDS];
        struct core *c = p->phase == SIM_RUNS ? shard_core(group_shard(p->group, p->shard)) : NULL;
        struct stage_info s;
        for (int i = 0; c && i < STAGES; i++)
            if (core_look_stage(c, mr_str(h->stages[i]), &s) == 0)
                left += s.waiting + s.running + s.parked + s.delayed;
    }
    return left == 0;
}

static void history_describe(struct history *h) {
    sim_nodes_describe(h->nodes);
    for (int i = 0; i < CLIENTS; i++)
        if (h->clients[i].wire)
            sim_wire_describe(h->nodes, h->clients[i].wire);
}

static bool schedules_are_counted(const struct history *h) {
    bool all = true;
    for (int i = 0; !h->plan->flows && i < SCHEDULES; i++)
        all = all && h->schedules[i].phase == SCHEDULE_OVER;
    return all;
}

static void start_nodes(struct sim_nodes *w) {
    for (int i = 0; i < w->node_count; i++)
        if (!w->nodes[i].is_alive)
            sim_node_start(&w->nodes[i]);
}

static void history_drain(struct history *h) {
    char text[100];
    h->draining = true;
    faults_end(h);
    int quiet = 0;
    for (int i = 0; fine(h) && i < DRAIN_STEPS && quiet < QUIET_STEPS; i++) {
        start_nodes(h->nodes); // one may still die of the last fault
        history_step(h);
        quiet = find_unfinished(h, text) ? 0 : quiet + 1;
    }
    if (fine(h) && find_unfinished(h, text)) {
        history_describe(h);
        wrong(h, "%s", text);
    }
    h->counts = true;
    for (int i = 0; fine(h) && i < DRAIN_STEPS && !schedules_are_counted(h); i++)
        history_step(h);
    if (fine(h) && !schedules_are_counted(h))
        wrong(h, "a schedule does not say how many jobs it has pushed");
    h->libraries_end = true;
    for (int i = 0; fine(h) && i < DRAIN_STEPS && !libraries_are_over(h); i++)
        history_step(h);
    if (fine(h) && !libraries_are_over(h))
        wrong(h, "a program that uses the library does not end");
    for (int i = 0; fine(h) && i < DRAIN_STEPS && !is_empty(h); i++)
        history_step(h);
    for (int i = 0; fine(h) && i < SIM_NODES; i++)
        for (uint32_t k = 0; k < SIM_SHARDS; k++)
            if (h->nodes->nodes[i].places[k].phase == SIM_RUNS)
                expect_empty(h, &h->nodes->nodes[i].places[k]);
}

static struct history *history_begin(const struct nodes_plan *plan, struct nodes_reached *reached) {
    struct history *h = calloc(1, sizeof *h);
    h->nodes = sim_nodes_create(plan->seed, plan->files);
    h->fault_random = ~plan->seed;
    h->nodes->prints = plan->prints;
    h->nodes->others = history_step;
    h->nodes->others_arg = h;
    h->plan = plan;
    h->reached = reached;
    h->forgets = plan->seed % 3 == 0;
    choose_stages(h);
    for (int i = 0; i < CLIENTS; i++) {
        h->clients[i].index = i;
        h->clients[i].epic = -1;
        for (int k = 0; k < HELD; k++)
            h->clients[i].held[k].piece = -1;
    }
    for (int i = 0; i < SCHEDULES; i++)
        h->schedules[i].stage = 2 * i + 1;
    h->draining = true;
    set_policies(h);
    h->draining = false;
    libraries_start(h);
    return h;
}

static void history_play(struct history *h) {
    h->calm = h->plan->seed % 4 == 0;
    h->faults = h->calm ? 1 << FAULT_DRAIN : (uint32_t)fault_roll(h, 1 << NODES_FAULTS);
    h->faults &= faults_possible(h);
    if (h->plan->plant) {
        h->nodes->plant = h->plan->plant->plant;
        sim_store_make(h->nodes->store, h->plan->plant->mistake);
    }
    bool store = fault_roll(h, 2), slow = fault_roll(h, 2), fails = !h->calm && !h->plan->files;
    store_faults(h, fails && store && !h->plan->sound_store);
    h->nodes->slow_store = fails && slow && !h->plan->sound_store; // it makes shards be lost
    int steps = h->plan->steps ? h->plan->steps : STEPS;
    for (int i = 0; fine(h) && i < steps; i++) {
        fault_step(h);
        history_step(h);
    }
    if (fine(h))
        history_drain(h);
}

static void history_end(struct history *h) {
    struct nodes_reached *r = h->reached;
    const struct sim_nodes *w = h->nodes;
    r->histories++;
    r->steps += w->reached.steps;
    r->trims += sim_store_calls(w->store, SIM_TRIM);
    r->simulated_ms += sim_nodes_now_ms(w);
    r->opened += w->reached.opened;
    r->left += w->reached.left;
    r->lost += w->reached.lost;
    r->moved += w->reached.moved;
    for (int i = 0; i < SIM_FAULTS; i++)
        r->store_faults[i] += sim_store_faults(w->store, (enum sim_fault)i);
    for (int i = 0; i < CLIENTS; i++) {
        if (h->clients[i].wire)
            sim_wire_close(h->nodes, h->clients[i].wire);
        buffer_finish(&h->clients[i].in);
    }
    libraries_finish(h);
    sim_nodes_destroy(h->nodes);
    free(h);
}

bool nodes_history_run(const struct nodes_plan *plan, struct nodes_reached *reached,
                       char finding[NODES_FINDING]) {
    struct history *h = history_begin(plan, reached);
    history_play(h);
    snprintf(finding, NODES_FINDING, "%s", h->nodes->failure);
    history_end(h);
    return !finding[0];
}
