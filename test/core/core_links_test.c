// Several shards, links between them, and everything that can happen to those: random histories in
// which entries and acknowledgements are lost, repeated and overtaken, logs are cleaned, and shards
// crash, each back to its own durable prefix.
//
//     feed: k 1, k 2 …  ──►  stage "a", key k  ──commit──►  stage "b", keys of the dice's choice
//                                              └─────────►  stage "c", delayed
//
// What job n of key k emits follows from (k, n) alone, so that it is known without having been
// noted. A channel of b or c keeps in its state which emits it has seen, and that moves with its
// commits: whatever comes to it twice, not at all, or (in b) out of order shows at a take, or at
// the end, when everything has been worked off by takers that only wait.
//
//     MILLRACE_SECONDS=60   longer than the default slice;   MILLRACE_SEED=7   that history alone
#include "support/proof.h"
#include "support/shard_set.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { KEYS = 6, FED = 16, EMITS = 4 }; // FED * EMITS bits: one word of a state

struct seen {
    uint64_t emits[KEYS]; // of key k: bit n * EMITS + i
};

struct world {
    struct shard_set *set;
    uint64_t fed[KEYS]; // numbers pushed since the latest crash, repeats included
    uint64_t concurrency, max_jobs, high_mark;
    uint64_t jobs_before, running_before; // in a, and in b, at the last check
};

// ---- What is emitted --------------------------------------------------------------------------

struct planned {
    bool exists, delayed, named; // named: it has a `once`, and is emitted twice
    int key;
};

static struct planned plan(const struct shard_set *f, int k, uint64_t n, uint64_t i) {
    uint64_t what[] = { f->seed, (uint64_t)k, n, i };
    uint64_t dice = bytes_hash(bytes_of(what, sizeof what), 1);
    return (struct planned){ .exists = dice % 3 > 0,
                             .delayed = dice / 3 % 4 == 0,
                             .named = dice / 12 % 4 == 0,
                             .key = (int)(dice / 48 % KEYS) };
}

// All that a channel will ever be sent; in b, only what precedes job n of key k.
static uint64_t expected(const struct shard_set *f, int k, int to, bool delayed, uint64_t below) {
    uint64_t bits = 0;
    for (uint64_t bit = 0; bit < below; bit++) {
        struct planned p = plan(f, k, bit / EMITS, bit % EMITS);
        if (p.exists && p.delayed == delayed && p.key == to)
            bits |= UINT64_C(1) << bit;
    }
    return bits;
}

static const char *key_name(int k) {
    static const char *const names[KEYS] = { "k0", "k1", "k2", "k3", "k4", "k5" };
    return names[k];
}

// ---- Steps ------------------------------------------------------------------------------------

// Pushes of one key are numbered, so that those before a crash can be repeated.
static void feed(struct world *w) {
    struct shard_set *f = w->set;
    int k = (int)shard_set_random(f, KEYS);
    if (w->fed[k] == FED)
        return;
    char body[SHARD_SET_TEXT];
    (void)snprintf(body, sizeof body, "%d %" PRIu64, k, w->fed[k]);
    struct push p = { .stage = mr_str("a"),
                      .job.key = mr_str(key_name(k)),
                      .body = mr_str(body),
                      .source = mr_str(key_name(k)),
                      .number = w->fed[k] + 1,
                      .epic = true };
    int err = shard_set_push(f, shard_set_shard_of(f, "a"), &p);
    shard_set_must(f, err == 0 || (err == MR_EFULL && w->max_jobs));
    w->fed[k] += err == 0;
}

static void commit_source(struct world *w, const struct shard_set_held *h) {
    struct shard_set *f = w->set;
    struct emit emits[2 * EMITS];
    char bodies[EMITS][SHARD_SET_TEXT];
    struct done d = { .id = h->id, .token = h->token, .emits = emits };
    int k = (int)strtol(h->body, NULL, 10);
    uint64_t n = strtoull(strchr(h->body, ' '), NULL, 10);
    for (uint64_t i = 0; i < EMITS; i++) {
        struct planned p = plan(f, k, n, i);
        (void)snprintf(bodies[i], sizeof bodies[i], "%d %" PRIu64, k, n * EMITS + i);
        struct emit e = { .stage = mr_str(p.delayed ? "c" : "b"),
                          .job.key = mr_str(key_name(p.key)),
                          .job.once = mr_str(p.named ? bodies[i] : ""),
                          .body = mr_str(bodies[i]),
                          .job.delay_ms = p.delayed ? 1 + (int64_t)(n * 7 % 50) : 0 };
        for (int times = p.exists + p.named; p.exists && times > 0; times--)
            emits[d.emit_count++] = e;
    }
    shard_set_must(f, core_done(f->shard[h->shard].core, &d) == 0);
}

// The channel's state records what it has seen: not this one, and in b all before it.
static struct seen meet(struct world *w, const struct shard_set_held *h) {
    struct shard_set *f = w->set;
    struct seen seen = { 0 };
    bool delayed = h->stage[0] == 'c';
    int k = (int)strtol(h->body, NULL, 10), to = (int)strtol(h->key + 1, NULL, 10);
    uint64_t bit = strtoull(strchr(h->body, ' '), NULL, 10);
    shard_set_must(f, h->state_size == 0 || h->state_size == sizeof seen);
    memcpy(&seen, h->state, h->state_size);
    shard_set_must(f, expected(f, k, to, delayed, bit + 1) >> bit & 1);
    shard_set_must(f, !(seen.emits[k] >> bit & 1));
    shard_set_must(f, delayed || seen.emits[k] == expected(f, k, to, false, bit));
    seen.emits[k] |= UINT64_C(1) << bit;
    return seen;
}

static void commit_target(struct world *w, const struct shard_set_held *h) {
    struct seen seen = meet(w, h);
    struct done d = {
        .id = h->id, .token = h->token, .set_state = true, .state = bytes_of(&seen, sizeof seen)
    };
    shard_set_must(w->set, core_done(w->set->shard[h->shard].core, &d) == 0);
}

static void finish(struct world *w, bool well) {
    struct shard_set *f = w->set;
    if (!f->held_count)
        return;
    size_t which = shard_set_random(f, f->held_count);
    struct shard_set_held h = f->held[which];
    shard_set_answered(f, which);
    struct core *core = f->shard[h.shard].core;
    uint64_t how = well ? 0 : shard_set_random(f, 12);
    if (how == 11)
        shard_set_must(f, core_fail(core, h.id, &h.token, mr_str("the dice said so"), 5) == 0);
    else if (how == 10)
        shard_set_must(f, core_release(core, h.id, &h.token, 0) == 0);
    else if (h.stage[0] == 'a')
        commit_source(w, &h);
    else
        commit_target(w, &h);
}

static void deliver_some(struct world *w) {
    struct shard_set *f = w->set;
    uint32_t from = (uint32_t)shard_set_random(f, f->shards),
             to = (uint32_t)shard_set_random(f, f->shards);
    uint64_t how = shard_set_random(f, 10);
    if (how < 4)
        (void)shard_set_send(f, from, to);
    else if (how == 4)
        shard_set_resend(f, from, to);
    else if (how < 8 && f->message_count) {
        size_t which = shard_set_random(f, f->message_count);
        if (shard_set_random(f, 5) == 0)
            shard_set_lose_message(f, which);
        else
            shard_set_deliver(f, which, shard_set_random(f, 4) == 0);
    } else if (f->ack_count) {
        size_t which = shard_set_random(f, f->ack_count);
        if (shard_set_random(f, 5) == 0)
            shard_set_lose_ack(f, which);
        else
            (void)shard_set_ack(f, which, shard_set_random(f, 4) == 0);
    }
}

static void crash(struct world *w) {
    struct shard_set *f = w->set;
    if (shard_set_random(f, 2))
        shard_set_crash_all(f);
    else
        shard_set_crash(f, (uint32_t)shard_set_random(f, f->shards));
    memset(w->fed, 0, sizeof w->fed);
    w->jobs_before = UINT64_MAX;
}

// Rule 14: never more than the limit, over all shards. There may be already when it is set, and a
// crash may bring back jobs whose end was lost, although others were pushed in their place: then
// there are none more until there are fewer.
static void check(struct world *w) {
    struct shard_set *f = w->set;
    shard_set_check(f);
    uint64_t running = shard_set_sum(f, "b", JOB_RUNNING);
    shard_set_must(f, !w->concurrency || running <= w->concurrency || running <= w->running_before);
    w->running_before = running;
    uint64_t jobs = shard_set_sum(f, "a", JOB_WAITING) + shard_set_sum(f, "a", JOB_RUNNING);
    shard_set_must(f, !w->max_jobs || jobs <= w->max_jobs || jobs <= w->jobs_before);
    w->jobs_before = jobs;
}

static void set_limits(struct world *w) {
    struct shard_set *f = w->set;
    static const uint64_t few[] = { 0, 1, 2, 5 };
    const struct {
        const char *stage, *name;
        uint64_t *value;
    } limits[] = { { "b", "concurrency", &w->concurrency },
                   { "a", "max-jobs", &w->max_jobs },
                   { "b", "high-mark", &w->high_mark } };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char value[SHARD_SET_TEXT];
        *limits[i].value = few[shard_set_random(f, 4)];
        (void)snprintf(value, sizeof value, "%" PRIu64, *limits[i].value);
        shard_set_set(f, limits[i].stage, limits[i].name, *limits[i].value ? value : "none");
    }
    shard_set_set(f, "b", "rate", shard_set_random(f, 4) == 0 ? "200/s" : "none");
    w->jobs_before = w->running_before = UINT64_MAX;
}

static void step(struct world *w) {
    struct shard_set *f = w->set;
    uint32_t shard = (uint32_t)shard_set_random(f, f->shards);
    uint64_t how = shard_set_random(f, 100);
    if (how < 18)
        feed(w);
    else if (how < 32)
        shard_set_wait(f, shard, (int)shard_set_random(f, SHARD_SET_TAKERS), NULL);
    else if (how < 50)
        finish(w, false);
    else if (how < 80)
        deliver_some(w);
    else if (how < 86)
        shard_set_sync_some(f, shard);
    else if (how < 90)
        shard_set_wake(f, shard);
    else if (how < 94)
        shard_set_pass(f, shard_set_random(f, 20));
    else if (how < 98)
        shard_set_clean(f, shard, shard_set_random(f, 40));
    else if (how == 98 && shard_set_random(f, 3) == 0)
        crash(w);
    else if (how == 99 && shard_set_random(f, 4) == 0)
        set_limits(w);
}

// ---- To the end -------------------------------------------------------------------------------

static bool is_fed(const struct world *w) {
    for (int k = 0; k < KEYS; k++)
        if (w->fed[k] < FED)
            return false;
    return true;
}

// No polling: takers wait at every shard and are woken when jobs are freed, due, or arrive. A stage
// that is held for ever would keep its jobs from ending.
static void drain(struct world *w) {
    struct shard_set *f = w->set;
    for (int idle = 0, rounds = 0; idle < 100; rounds++) {
        shard_set_must(f, rounds < 20000); // a stage is held for ever
        for (int i = 0; i < KEYS && !is_fed(w); i++)
            feed(w);
        for (uint32_t i = 0; i < f->shards; i++)
            for (int t = 0; t < SHARD_SET_TAKERS && f->held_count < SHARD_SET_HELD / 2; t++)
                shard_set_wait(f, i, t, NULL);
        bool busy = f->held_count || !is_fed(w);
        while (f->held_count)
            finish(w, true);
        busy = shard_set_wake_all(f) || busy;
        busy = shard_set_deliver_all(f) || busy;
        if (busy)
            idle = 0;
        else
            idle++;
        shard_set_pass(f, 10);
        check(w);
    }
}

// A last job to each channel of b and c shows what it has seen.
static void expect_all_seen(struct world *w, const char *stage, int to) {
    struct shard_set *f = w->set;
    struct push p = { .stage = mr_str(stage),
                      .job.key = mr_str(key_name(to)),
                      .body = mr_str("last") };
    shard_set_must(f, shard_set_push(f, shard_set_shard_of(f, stage), &p) == 0);
    for (int i = 0; i < 100 && !f->held_count; i++)
        shard_set_pass(f, 100); // a rate
    shard_set_must(f, f->held_count == 1 && !strcmp(f->held[0].body, "last"));
    struct seen seen = { 0 };
    memcpy(&seen, f->held[0].state, f->held[0].state_size);
    for (int k = 0; k < KEYS; k++)
        shard_set_must(f, seen.emits[k] == expected(f, k, to, *stage == 'c', FED * EMITS));
    struct done d = { .id = f->held[0].id, .token = f->held[0].token };
    shard_set_must(f, core_done(f->shard[f->held[0].shard].core, &d) == 0);
    shard_set_answered(f, 0);
    for (uint32_t i = 0; i < f->shards; i++)
        for (int t = 0; t < SHARD_SET_TAKERS; t++)
            shard_set_wait(f, i, t, NULL);
}

static void run(struct shard_set *f) {
    struct world w = { .set = f };
    shard_set_set(f, "a", "attempts", "60000");
    shard_set_set(f, "b", "attempts", "60000");
    shard_set_set(f, "c", "attempts", "60000");
    set_limits(&w);
    for (int i = 0; i < 1500; i++) {
        step(&w);
        check(&w);
    }
    drain(&w);
    for (int to = 0; to < KEYS; to++) {
        expect_all_seen(&w, "b", to);
        expect_all_seen(&w, "c", to);
    }
    for (uint32_t i = 0; i < w.set->shards; i++)
        shard_set_must(w.set, core_links(w.set->shard[i].core) == 0);
}

static struct shard_set *shard_set_of(uint64_t seed) {
    return shard_set_create(2 + (uint32_t)(seed % 3), seed);
}

static void history(uint64_t seed) {
    struct shard_set *f = shard_set_of(seed);
    run(f);
    shard_set_destroy(f);
}

// E2, E3, E4, F2, F15, F19 between shards; rule 14 exactly; no stage is held for ever.
static void E4_every_emit_arrives_once_and_in_order(void **state) {
    (void)state;
    uint64_t only = proof_seed(0), seed = 1, until_ms = proof_until_ms(5, 300);
    if (only) {
        history(only);
        return;
    }
    for (; seed <= 50 || monotonic_ms() < until_ms; seed++)
        history(seed);
    print_message("%" PRIu64 " histories\n", seed - 1);
}

// Where the check is that notices it; 0: none.
static int noticed(enum shard_set_fault fault, uint64_t seed) {
    jmp_buf failed;
    struct shard_set *volatile f = shard_set_of(seed);
    f->fault = fault;
    f->on_fail = &failed;
    int line = setjmp(failed);
    if (line == 0)
        run(f);
    shard_set_forget(f);
    return line;
}

// A set that does something wrong is found out, within a few histories.
static void planted_faults_are_found(void **state) {
    (void)state;
    for (enum shard_set_fault fault = FAULT_NONE + 1; fault < SHARD_SET_FAULTS; fault++) {
        int line = 0;
        uint64_t seed = 1;
        for (; !line && seed < 200; seed++)
            line = noticed(fault, seed);
        print_message("fault %d: history %" PRIu64 ", line %d\n", (int)fault, seed - 1, line);
        assert_true(line);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_every_emit_arrives_once_and_in_order),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
