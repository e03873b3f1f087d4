// A machine that dies while an engine of one or four shards writes: what concerns a stage is in one
// log, so a change is whole or absent, and of numbered pushes nothing is missing below what is
// there, however far a producer has run ahead of the disk.
#include "base/errors.h"
#include "shard/group.h"
#include "support/sim_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <inttypes.h>

static const uint32_t counts[] = { 1, 4 };

struct machine {
    struct sim_disk *disk;
    uint32_t shards;
    struct group *group;
    struct core *core;   // of stage "s" …
    struct shard *shard; // … and its shard
};

static uint64_t read_clock(void *arg) {
    (void)arg;
    return 1700000000000;
}

static void open_on(struct machine *m) {
    struct group_options o = { .store = store_in("store"),
                               .shards = m->shards,
                               .log = { .sync = LOG_SYNC_ALWAYS,
                                        .segment_size = 1 << 16,
                                        .inline_writer = true,
                                        .disk = sim_disk_disk(m->disk) },
                               .world = { .wall_ms = read_clock, .boot_ms = read_clock } };
    if (group_open(&o, &m->group) < 0)
        fail_msg("%s", error_text());
    m->shard = group_shard(m->group, route_of(m->shards, mr_str("s")));
    m->core = shard_core(m->shard);
    assert_int_equal(core_check(m->core), 0);
}

// All descriptors are closed; what was not synced may be lost.
static void die_and_come_back(struct machine *m, enum sim_survival survival, uint64_t seed) {
    sim_disk_crash(m->disk);
    group_close(m->group);
    sim_disk_restart(m->disk, survival, seed);
    open_on(m);
}

static void machine_finish(struct machine *m) {
    group_close(m->group);
    sim_disk_destroy(m->disk);
}

static struct stage_info look(struct machine *m) {
    struct stage_info info = { .policy = NULL };
    if (core_look_stage(m->core, mr_str("s"), &info) < 0)
        info = (struct stage_info){ 0 };
    return info;
}

// ---- U19: whole or absent ---------------------------------------------------------------------

static int set_first(struct core *c) {
    return core_set(c, mr_str("s"), mr_str("concurrency"), mr_str("1"));
}

static int pause_it(struct core *c) {
    return core_pause(c, mr_str("s"));
}

static int drain_it(struct core *c) {
    return core_drain(c, mr_str("s"));
}

static int end_epic(struct core *c) {
    return core_epic_end(c, mr_str("s"), mr_str("e"), 7);
}

static int drop_epic(struct core *c) {
    return core_epic_drop(c, mr_str("s"), mr_str("e"));
}

// What one of these changes, in words.
static const char *say(struct machine *m) {
    static char text[256];
    struct stage_info s = look(m);
    struct epic_info e = { 0 };
    int known = core_epic(m->core, mr_str("s"), mr_str("e"), &e);
    snprintf(text, sizeof text,
             "concurrency %" PRIu64 "%s%s waiting %" PRIu64 " epic %d resume %" PRIu64
             " total %" PRIu64 " accepted %" PRIu64,
             s.policy ? s.policy->concurrency : 0, s.paused ? " paused" : "",
             s.draining ? " draining" : "", s.waiting, known == 0, e.resume, e.total, e.accepted);
    return text;
}

static void push_some(struct machine *m, uint64_t count) {
    struct push p = { .stage = mr_str("s"), .source = mr_str("e"), .epic = true };
    struct pushed pushed;
    assert_int_equal(shard_begin(m->shard), 0);
    for (p.number = 1; p.number <= count; p.number++)
        assert_int_equal(core_push(m->core, &p, &pushed), 0);
    assert_int_equal(shard_wait(m->shard, shard_end(m->shard)), 0);
}

// The machine dies at this disk call of the act, if it comes so far. Returns whether it did.
static bool act_torn(struct machine *m, int (*act)(struct core *), uint64_t call,
                     enum sim_survival survival) {
    char before[256], after[256];
    snprintf(before, sizeof before, "%s", say(m));
    sim_disk_crash_at(m->disk, sim_disk_calls(m->disk) + call);
    assert_int_equal(shard_begin(m->shard), 0);
    assert_int_equal(act(m->core), 0);
    snprintf(after, sizeof after, "%s", say(m));
    bool answered = shard_wait(m->shard, shard_end(m->shard)) == 0;
    bool died = sim_disk_crashed(m->disk);
    die_and_come_back(m, survival, call);
    const char *now = say(m);
    if (strcmp(now, after) != 0 && (answered || strcmp(now, before) != 0))
        fail_msg("%s: before %s, after %s, and now %s", answered ? "answered" : "torn", before,
                 after, now);
    return died;
}

// U19: a first policy, pause, drain, or an epic's end or drop that a crash tears is whole or absent
// when the store is opened again: at every call of the disk.
static void U19_what_a_crash_tears_is_whole_or_absent(void **state) {
    int (*const acts[])(struct core *) = { set_first, pause_it, drain_it, end_epic, drop_epic };
    (void)state;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++)
        for (size_t act = 0; act < sizeof acts / sizeof *acts; act++)
            for (int survival = SIM_DROP; survival < SIM_SURVIVALS; survival++) {
                bool died = true;
                for (uint64_t call = 1; died; call++) {
                    struct machine m = { .disk = sim_disk_create(), .shards = counts[n] };
                    open_on(&m);
                    if (acts[act] == drop_epic || acts[act] == end_epic)
                        push_some(&m, 3);
                    died = act_torn(&m, acts[act], call, (enum sim_survival)survival);
                    machine_finish(&m);
                }
            }
}

// ---- U17: numbers that run ahead of the disk --------------------------------------------------

enum { NUMBERS = 3000, AHEAD = 1024, TURN = 150 };

static uint64_t dice;

static uint64_t roll(uint64_t below) {
    dice += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = (dice ^ dice >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ z >> 27) % below;
}

static uint64_t resume(struct machine *m) {
    struct epic_info e = { .resume = 1 };
    (void)core_epic(m->core, mr_str("s"), mr_str("e"), &e);
    return e.resume;
}

// A push of another stage in each shard: their disks are as busy.
static void push_elsewhere(struct machine *m) {
    for (uint32_t i = 0; i < m->shards; i++) {
        struct shard *s = group_shard(m->group, i);
        struct push p = { .stage = mr_str("other"), .body = mr_str("x") };
        struct pushed pushed;
        (void)shard_begin(s);
        (void)core_push(shard_core(s), &p, &pushed);
        (void)shard_end(s); // no thread waits for it
    }
}

// Pushes a turn's worth without waiting for the disk: any numbers that may be pushed now.
static void run_ahead(struct machine *m) {
    struct push p = { .stage = mr_str("s"), .source = mr_str("e"), .epic = true };
    struct pushed pushed;
    (void)shard_begin(m->shard);
    for (int i = 0; i < TURN && !sim_disk_crashed(m->disk); i++) {
        uint64_t first = resume(m);
        p.number = roll(3) ? first : first + roll(AHEAD + 2);
        int err = core_push(m->core, &p, &pushed);
        if (!sim_disk_crashed(m->disk))
            assert_int_equal(err, p.number >= first + AHEAD ? MR_EGAP : 0);
    }
    (void)shard_end(m->shard);
}

// Below the first number that is missing all are there, and pushing all again makes the rest.
static void expect_nothing_lost(struct machine *m) {
    struct push p = { .stage = mr_str("s"), .source = mr_str("e"), .epic = true };
    struct pushed pushed;
    uint64_t first = resume(m), made = 0, before = look(m).waiting;
    assert_true(before >= first - 1);
    assert_int_equal(shard_begin(m->shard), 0);
    for (p.number = 1; p.number <= NUMBERS; p.number++) {
        assert_int_equal(core_push(m->core, &p, &pushed), 0);
        assert_true(p.number >= first || pushed.repeat);
        made += !pushed.repeat;
    }
    assert_int_equal(shard_wait(m->shard, shard_end(m->shard)), 0);
    assert_int_equal(before + made, look(m).waiting);
    assert_int_equal(look(m).waiting, NUMBERS);
    assert_int_equal(resume(m), NUMBERS + 1);
}

// U17: a producer that does not read its replies, a slow disk, then the machine dies: the number
// that is reported as the first missing one is missing, none below it is, and pushing it again
// makes its job. Numbers are no further than 1,024 beyond the first that is not durable, because
// what is durable is a prefix of what was accepted, and that was so at each instant.
static void U17_numbers_never_pass_what_is_durable(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct machine m = { .disk = sim_disk_create(), .shards = counts[seed % 2] };
        dice = seed;
        open_on(&m);
        for (int crashes = 0; crashes < 3; crashes++) {
            sim_disk_crash_at(m.disk, sim_disk_calls(m.disk) + 1 + roll(40));
            for (int turns = 0; turns < 8 && !sim_disk_crashed(m.disk); turns++) {
                if (resume(&m) + AHEAD + TURN >= NUMBERS)
                    break;
                push_elsewhere(&m);
                run_ahead(&m);
            }
            die_and_come_back(&m, (enum sim_survival)roll(SIM_SURVIVALS), seed);
        }
        expect_nothing_lost(&m);
        machine_finish(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U19_what_a_crash_tears_is_whole_or_absent),
        cmocka_unit_test(U17_numbers_never_pass_what_is_durable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
