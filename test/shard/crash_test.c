// The crash test: a workload over core, shard and file log on a simulated disk, cut off at every
// call to the disk. What was written and not synced is then torn, lost or reordered. The shard is
// opened again, is perhaps cut off while it recovers, goes on, and everything that was fed must
// come through, once and in order.
//
// The segments are so small that the cleaner is at work all the time. MILLRACE_LONG=1 runs for
// minutes, MILLRACE_SEED begins elsewhere.
#include "support/proof.h"
#include "support/sim_disk.h"
#include "support/workload.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEGMENT = 8 << 10, OPENING_CALLS = 40, STEPS = 120, NORMAL_SECONDS = 6, LONG_SECONDS = 240 };

// ---- A workload on a disk
// ------------------------------------------------------------------------

struct scene {
    struct workload *h;
    struct sim_disk *sim;
    struct shard_options options;
};

static void scene_begin(struct scene *s, uint64_t seed, enum log_sync sync) {
    s->h = calloc(1, sizeof *s->h);
    s->sim = sim_disk_create();
    s->options = (struct shard_options){
        .store = store_in("/store"),
        .log = { .sync = sync,
                 .segment_size = SEGMENT,
                 .inline_writer = true,
                 .disk = sim_disk_disk(s->sim) },
    };
    workload_begin(s->h, seed);
    s->h->forgets = sync != LOG_SYNC_ALWAYS;
}

static void scene_end(struct scene *s) {
    workload_close(s->h);
    sim_disk_destroy(s->sim);
    free(s->h);
}

// Opens and goes on until the machine dies at the changing call of the disk that follows `calls`
// more (negative: it does not).
static void scene_play(struct scene *s, long calls, uint64_t steps) {
    sim_disk_crash_at(s->sim, calls < 0 ? 0 : sim_disk_calls(s->sim) + 1 + (uint64_t)calls);
    int err = workload_open(s->h, &s->options);
    if (err == 0)
        err = workload_go_on(s->h, steps);
    must(s->h, err == 0 || (workload_is_cut(err) && sim_disk_crashed(s->sim)));
}

static void scene_crash(struct scene *s) {
    if (!sim_disk_crashed(s->sim))
        sim_disk_crash_at(s->sim, sim_disk_calls(s->sim) + 1);
    workload_close(s->h);
    sim_disk_restart(s->sim, workload_roll(s->h, SIM_SURVIVALS), workload_roll(s->h, UINT64_MAX));
}

// Everything fed comes through.
static void scene_prove(struct scene *s) {
    workload_close(s->h);
    scene_play(s, -1, 0);
    workload_drain(s->h);
    must(s->h, core_check(shard_core(s->h->shard)) == 0);
}

static uint64_t calls_of_a_whole_story(uint64_t seed) {
    struct scene s;
    scene_begin(&s, seed, LOG_SYNC_ALWAYS);
    scene_play(&s, -1, STEPS);
    scene_prove(&s);
    uint64_t calls = sim_disk_calls(s.sim);
    scene_end(&s);
    return calls;
}

// ---- The proof --------------------------------------------------------------------------------

static void one_crash(uint64_t seed, uint64_t at_call) {
    struct scene s;
    scene_begin(&s, seed, LOG_SYNC_ALWAYS);
    scene_play(&s, (long)at_call, STEPS);
    scene_crash(&s);
    for (int again = (int)(at_call % 3); again > 0; again--) { // in the middle of recovering
        scene_play(&s, (long)workload_roll(s.h, 40), 10);
        scene_crash(&s);
    }
    scene_prove(&s);
    scene_end(&s);
}

static void a_crash_at_every_call_loses_nothing(void **state) {
    (void)state;
    uint64_t until = proof_until_ms(NORMAL_SECONDS, LONG_SECONDS), crashes = 0,
             seed = proof_seed(1);
    // The first workload is cut at every call, however long it takes; others as time allows.
    for (bool first = true; first || monotonic_ms() < until; first = false, seed++) {
        uint64_t calls = calls_of_a_whole_story(seed);
        for (uint64_t at = 0; at < calls && (first || monotonic_ms() < until); at++, crashes++)
            one_crash(seed, at);
    }
    print_message("%llu crashes\n", (unsigned long long)crashes);
}

static void many_crashes(uint64_t seed, enum log_sync sync, uint64_t *cleaned) {
    struct scene s;
    scene_begin(&s, seed, sync);
    for (int i = 0; i < 12; i++) {
        scene_play(&s, (long)workload_roll(s.h, i % 2 ? 60 : 1500), 400);
        scene_crash(&s);
    }
    scene_prove(&s);
    struct log_state log;
    shard_look(s.h->shard, &log);
    *cleaned += log.head / SEGMENT;
    scene_end(&s);
}

// One workload, cut off repeatedly, long enough for every segment to be cleaned many times.
static void many_crashes_lose_nothing(void **state) {
    (void)state;
    uint64_t until = proof_until_ms(NORMAL_SECONDS, LONG_SECONDS), seed = proof_seed(1),
             cleaned = 0;
    do
        many_crashes(seed++, LOG_SYNC_ALWAYS, &cleaned);
    while (monotonic_ms() < until);
    assert_true(cleaned > 0);
    print_message("%llu segments cleaned\n", (unsigned long long)cleaned);
}

// F24: a shard opens only if the record of its epoch is on the disk: else tokens and ids could be
// issued again after the next crash.
static void F24_a_shard_whose_disk_fails_while_it_opens_does_not_serve(void **state) {
    (void)state;
    uint64_t refused = 0;
    for (uint64_t call = 1; call <= OPENING_CALLS; call++) {
        struct scene s;
        struct shard *shard = NULL;
        scene_begin(&s, 1, LOG_SYNC_ALWAYS);
        scene_play(&s, -1, STEPS);
        workload_close(s.h);
        sim_disk_fail_at(s.sim, sim_disk_calls(s.sim) + call, EIO);
        s.options.world =
            (struct shard_world){ workload_wall, workload_boot, workload_random, s.h };
        int err = shard_open(&s.options, &shard);
        assert_true(err < 0 || shard_is_durable(shard, shard_last_at(shard)));
        refused += err < 0;
        shard_close(shard);
        scene_end(&s);
    }
    assert_in_range(refused, 2, OPENING_CALLS);
}

// Without syncs a crash takes what came last, but never half of anything.
static void without_syncs_a_prefix_is_left(void **state) {
    (void)state;
    uint64_t until = proof_until_ms(NORMAL_SECONDS / 2, LONG_SECONDS), seed = proof_seed(1);
    uint64_t cleaned = 0;
    do
        many_crashes(seed++, LOG_SYNC_NONE, &cleaned);
    while (monotonic_ms() < until);
}

// ---- F51: memory ------------------------------------------------------------------------------

static bool workload_with_failing_memory(uint64_t seed, long after) {
    struct scene s;
    scene_begin(&s, seed, LOG_SYNC_ALWAYS);
    mem_fail_after(after);
    for (int tries = 0; s.h->step < STEPS && tries < 10; tries++) {
        if (!s.h->shard && workload_open(s.h, &s.options) < 0)
            continue;
        if (workload_go_on(s.h, STEPS - s.h->step) < 0)
            workload_close(s.h);
    }
    bool happened = mem_fail_after(-1) < 0;
    must(s.h, s.h->step >= STEPS);
    workload_close(s.h);
    scene_prove(&s);
    scene_end(&s);
    return happened;
}

static void every_allocation_may_fail_once(void **state) {
    (void)state;
    long after = 0;
    while (workload_with_failing_memory(proof_seed(1), after))
        after++;
    print_message("%ld allocations\n", after);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_at_every_call_loses_nothing),
        cmocka_unit_test(many_crashes_lose_nothing),
        cmocka_unit_test(F24_a_shard_whose_disk_fails_while_it_opens_does_not_serve),
        cmocka_unit_test(without_syncs_a_prefix_is_left),
        cmocka_unit_test(every_allocation_may_fail_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
