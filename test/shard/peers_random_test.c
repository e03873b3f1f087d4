// Random histories of shards on different nodes: messages are late and lost, connections are cut,
// and shards get new owners, which replay what was durable and have other clocks.
//
//     feed: k 1, k 2 …  ──►  stage a, key k  ─┬─►  stage b, key k  ──►  stage d, key k
//                                             └─►  stage c, key k, delayed
//
// A channel of b or d keeps in its state how many jobs it has done, and must get the next one: so a
// lost, doubled or overtaken emit shows. A channel of c keeps which ones it has done. Takers only
// wait: what is held for ever never ends. From time to time nothing is done and nothing is lost for
// a while; then a stage must be held exactly if it emits to one that is over its high mark.
//
//     MILLRACE_SECONDS=60   longer than the default slice;   MILLRACE_SEED=7   that history alone
#include "support/peer_set.h"
#include "support/proof.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { STAGE_A, STAGE_B, STAGE_C, STAGE_D };
enum { KEYS = 3, FED = 40, STEPS = 1200, CALM_MS = 10000 };

struct seen {
    uint64_t jobs; // how many; of c: bit n for job n
};

struct world {
    struct peer_set *set;
    uint64_t fed[KEYS]; // numbers pushed since its shard has its owner, repeats included
    uint64_t done[PEER_SET_STAGES];
    bool faults;
};

// ---- Work -------------------------------------------------------------------------------------

static const char *key_name(uint64_t k) {
    static const char *const names[KEYS] = { "k0", "k1", "k2" };
    return names[k];
}

static void feed(struct world *w) {
    struct peer_set *s = w->set;
    uint64_t k = peer_set_roll(s, KEYS);
    char body[32];
    struct pushed pushed;
    if (w->fed[k] == FED)
        return;
    (void)snprintf(body, sizeof body, "%" PRIu64 " %" PRIu64, k, w->fed[k]);
    struct push p = { .stage = mr_str(s->names[STAGE_A]),
                      .job.key = mr_str(key_name(k)),
                      .body = mr_str(body),
                      .source = mr_str(key_name(k)),
                      .number = w->fed[k] + 1,
                      .epic = true };
    peer_set_must(s, core_push(peer_set_core(s, peer_set_home(s, STAGE_A)), &p, &pushed) == 0);
    w->fed[k]++;
}

static struct seen meet(struct world *w, const struct peer_set_held *h, uint64_t n) {
    struct peer_set *s = w->set;
    struct buffer state = { 0 };
    struct seen seen = { 0 };
    peer_set_read(s, h->shard, h->state_at, &state);
    peer_set_must(s, state.size == 0 || state.size == sizeof seen);
    if (state.size)
        memcpy(&seen, state.data, sizeof seen);
    buffer_finish(&state);
    if (h->stage == STAGE_C) {
        peer_set_must(s, !(seen.jobs >> n & 1));
        seen.jobs |= UINT64_C(1) << n;
    } else {
        peer_set_must(s, seen.jobs == n);
        seen.jobs++;
    }
    return seen;
}

static void commit(struct world *w, const struct peer_set_held *h) {
    struct peer_set *s = w->set;
    struct buffer body = { 0 };
    peer_set_read(s, h->shard, h->at, &body);
    peer_set_must(s, buffer_append(&body, "", 1) == 0);
    char *end;
    uint64_t k = strtoull((const char *)body.data, &end, 10), n = strtoull(end, NULL, 10);
    struct seen seen = meet(w, h, n);
    struct emit emits[] = {
        { .stage = mr_str(s->names[h->stage == STAGE_A ? STAGE_B : STAGE_D]),
          .job.key = mr_str(key_name(k)),
          .body = bytes_of(body.data, body.size - 1) },
        { .stage = mr_str(s->names[STAGE_C]),
          .job.key = mr_str(key_name(k)),
          .body = bytes_of(body.data, body.size - 1),
          .job.delay_ms = (int64_t)(1 + n * 7 % 50) },
    };
    struct done d = { .id = h->id,
                      .token = h->token,
                      .set_state = true,
                      .state = bytes_of(&seen, sizeof seen),
                      .emits = emits,
                      .emit_count = h->stage == STAGE_A ? 2 : h->stage == STAGE_B };
    peer_set_must(s, core_done(peer_set_core(s, h->shard), &d) == 0);
    buffer_finish(&body);
}

static void finish(struct world *w) {
    struct peer_set *s = w->set;
    if (!s->held_count)
        return;
    size_t which = peer_set_roll(s, s->held_count);
    struct peer_set_held h = s->held[which];
    peer_set_answered(s, which);
    commit(w, &h);
}

static void wait_everywhere(struct world *w) {
    for (int i = 0; i < PEER_SET_STAGES; i++)
        peer_set_wait(w->set, i);
}

static void set_mark(struct world *w) {
    static const char *const marks[] = { "1", "2", "3", "6", "none", "10000" };
    peer_set_set(w->set, 1 + (int)peer_set_roll(w->set, 3), "high-mark",
                 marks[peer_set_roll(w->set, 6)]);
}

// ---- Faults -----------------------------------------------------------------------------------

static void replace(struct world *w, uint32_t shard) {
    struct peer_set *s = w->set;
    peer_set_replace(s, shard, peer_set_roll(s, 3) > 0);
    if (shard == peer_set_home(s, STAGE_A))
        memset(w->fed, 0, sizeof w->fed);
    for (uint32_t i = 0; i < s->count; i++) // most of what is on its way is lost with its node
        while (peer_set_roll(s, 3) && (peer_set_lose(s, shard, i) || peer_set_lose(s, i, shard))) {
        }
}

static void break_something(struct world *w) {
    struct peer_set *s = w->set;
    uint32_t a = (uint32_t)peer_set_roll(s, s->count),
             b = (a + 1 + (uint32_t)peer_set_roll(s, s->count - 1)) % s->count;
    uint64_t how = peer_set_roll(s, 10);
    if (how < 6)
        (void)peer_set_lose(s, a, b);
    else if (how < 8)
        peer_set_cut(s, a, b);
    else if (how == 8)
        replace(w, a);
    else
        peer_set_pass(s, peer_set_roll(s, 4000));
}

static void step(struct world *w) {
    struct peer_set *s = w->set;
    uint32_t a = (uint32_t)peer_set_roll(s, s->count), b = (uint32_t)peer_set_roll(s, s->count);
    uint64_t how = peer_set_roll(s, 100);
    if (how < 12)
        feed(w);
    else if (how < 20)
        peer_set_wait(s, (int)peer_set_roll(s, PEER_SET_STAGES));
    else if (how < 35)
        finish(w);
    else if (how < 45)
        peer_set_sync(s, a);
    else if (how < 60)
        peer_set_post(s, a);
    else if (how < 88)
        (void)peer_set_deliver(s, a, b);
    else if (how < 92)
        peer_set_reset(s, a, b);
    else if (how < 95)
        peer_set_pass(s, peer_set_roll(s, 100));
    else if (how < 96)
        set_mark(w);
    else if (w->faults)
        break_something(w);
}

// ---- Calm -------------------------------------------------------------------------------------

static bool says_over(struct peer_set *s, int stage) {
    struct fact_cursor at = { 0 };
    struct core_fact f;
    while (core_fact_next(peer_set_core(s, peer_set_home(s, stage)), &at, &f))
        if (!f.downstream.size && f.over && bytes_equal(f.stage, mr_str(s->names[stage])))
            return true;
    return false;
}

static bool knows_edge(struct peer_set *s, uint32_t shard, int from, int to) {
    struct fact_cursor at = { 0 };
    struct core_fact f;
    while (core_fact_next(peer_set_core(s, shard), &at, &f))
        if (bytes_equal(f.stage, mr_str(s->names[from])) &&
            bytes_equal(f.downstream, mr_str(s->names[to])))
            return true;
    return false;
}

static void expect_held_rightly(struct peer_set *s, int stage) {
    struct core *core = peer_set_core(s, peer_set_home(s, stage));
    struct stage_info info;
    bool over = false;
    if (core_look_stage(core, mr_str(s->names[stage]), &info) < 0 || !info.ready)
        return;
    for (int to = 0; to < PEER_SET_STAGES; to++)
        over = over || (knows_edge(s, peer_set_home(s, stage), stage, to) && says_over(s, to));
    bool held = strncmp(info.held_by, "downstream:", 11) == 0;
    peer_set_must(s, held == over);
    peer_set_must(s, held || !info.takers); // a lost wake-up
    peer_set_must(s, info.linked == 0);
}

// A stage that its own shard does not know was lost with an owner.
static void expect_edges_known(struct peer_set *s, int from, int to) {
    struct stage_info info;
    bool any = false;
    if (core_look_stage(peer_set_core(s, peer_set_home(s, from)), mr_str(s->names[from]), &info) <
        0)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        any = any || knows_edge(s, i, from, to);
    for (uint32_t i = 0; i < s->count; i++)
        peer_set_must(s, knows_edge(s, i, from, to) == any);
}

static void be_calm(struct world *w) {
    struct peer_set *s = w->set;
    peer_set_reset_all(s);
    for (uint64_t ms = 0; ms < CALM_MS; ms += 100) {
        peer_set_settle(s);
        peer_set_pass(s, 100);
    }
    peer_set_settle(s);
    for (uint32_t i = 0; i < s->count; i++) {
        struct core *core = peer_set_core(s, i);
        uint64_t at;
        peer_set_must(s, core_check(core) == 0 && core_links(core) == 0);
        peer_set_must(s, !peers_want(shard_peers(s->shards[i].shard), &at));
        peer_set_must(s, peers_due_ms(shard_peers(s->shards[i].shard)) == UINT64_MAX);
    }
    for (int i = 0; i < PEER_SET_STAGES; i++) {
        expect_held_rightly(s, i);
        for (int k = 0; k < PEER_SET_STAGES; k++)
            expect_edges_known(s, i, k);
    }
}

// ---- To the end -------------------------------------------------------------------------------

static bool is_fed(const struct world *w) {
    for (int k = 0; k < KEYS; k++)
        if (w->fed[k] < FED)
            return false;
    return true;
}

static uint64_t unended(struct peer_set *s) {
    uint64_t sum = 0;
    for (int i = 0; i < PEER_SET_STAGES; i++) {
        struct stage_info info;
        struct core *core = peer_set_core(s, peer_set_home(s, i));
        if (core_look_stage(core, mr_str(s->names[i]), &info) == 0)
            sum += info.waiting + info.delayed + info.running;
    }
    for (uint32_t i = 0; i < s->count; i++)
        sum += core_links(peer_set_core(s, i));
    return sum;
}

static void work_off(struct world *w) {
    struct peer_set *s = w->set;
    for (int rounds = 0; !is_fed(w) || unended(s); rounds++) {
        peer_set_must(s, rounds < 5000); // something is held for ever
        feed(w);
        wait_everywhere(w);
        while (s->held_count)
            finish(w);
        (void)peer_set_exchange(s);
        peer_set_pass(s, 20);
    }
}

// A last job of each channel shows what it has seen.
static void expect_all_seen(struct world *w, int stage, uint64_t k) {
    struct peer_set *s = w->set;
    struct push p = { .stage = mr_str(s->names[stage]), .job.key = mr_str(key_name(k)) };
    struct pushed pushed;
    struct buffer state = { 0 };
    struct seen seen;
    peer_set_must(s, core_push(peer_set_core(s, peer_set_home(s, stage)), &p, &pushed) == 0);
    peer_set_wait(s, stage);
    peer_set_must(s, s->held_count == 1);
    peer_set_read(s, s->held[0].shard, s->held[0].state_at, &state);
    peer_set_must(s, state.size == sizeof seen);
    memcpy(&seen, state.data, sizeof seen);
    buffer_finish(&state);
    peer_set_must(s, seen.jobs == (stage == STAGE_C ? (UINT64_C(1) << FED) - 1 : FED));
    struct done d = { .id = s->held[0].id, .token = s->held[0].token };
    peer_set_must(s, core_done(peer_set_core(s, s->held[0].shard), &d) == 0);
    peer_set_answered(s, 0);
}

static void history(uint64_t seed, uint64_t *lost, uint64_t *owners) {
    struct peer_set *s = peer_set_create(2 + (uint32_t)(seed % 3), seed);
    struct world w = { .set = s, .faults = true };
    for (int i = 0; i < STEPS; i++) {
        step(&w);
        if (i % 400 == 399)
            be_calm(&w);
    }
    w.faults = false;
    peer_set_reset_all(s);
    work_off(&w);
    be_calm(&w);
    for (uint64_t k = 0; k < KEYS; k++)
        for (int stage = STAGE_A; stage <= STAGE_D; stage++)
            expect_all_seen(&w, stage, k);
    *lost += s->lost;
    *owners += s->opened - s->count;
    peer_set_destroy(s);
}

static void E4_between_nodes_every_emit_arrives_once_and_in_order(void **state) {
    (void)state;
    uint64_t only = proof_seed(0), seed = 1, until_ms = proof_until_ms(5, 300), lost = 0,
             owners = 0;
    if (only) {
        history(only, &lost, &owners);
        return;
    }
    for (; seed <= 30 || monotonic_ms() < until_ms; seed++)
        history(seed, &lost, &owners);
    print_message("%" PRIu64 " histories, %" PRIu64 " messages lost, %" PRIu64 " new owners\n",
                  seed - 1, lost, owners);
    assert_true(lost && owners);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_between_nodes_every_emit_arrives_once_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
