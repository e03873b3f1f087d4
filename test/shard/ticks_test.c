// Schedules of a shard, by a clock in the test's hands: ticks over crashes, missed ticks, clocks
// that jump, and many schedules at once. Real core, real log.
#include "base/errors.h"
#include "shard/shard.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define NOON UINT64_C(1700049600000) // 2023-11-15 12:00 UTC
enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR };

struct rig {
    char dir[64];
    struct shard_options options;
    uint64_t wall_ms, boot_ms;
    struct shard *shard;
    struct core *core;
    bool unchecked; // a check of the whole core after each turn would take long
};

static uint64_t rig_wall(void *arg) {
    return ((struct rig *)arg)->wall_ms;
}

static uint64_t rig_boot(void *arg) {
    return ((struct rig *)arg)->boot_ms;
}

static void rig_open(struct rig *r) {
    if (shard_open(&r->options, &r->shard) < 0)
        fail_msg("%s", error_text());
    r->core = shard_core(r->shard);
}

static int rig_setup(void **state) {
    struct rig *r = calloc(1, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "/tmp/ticks_test.XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->wall_ms = NOON;
    r->options = (struct shard_options){
        .store = store_in(r->dir),
        .log = { .segment_size = 64 << 10, .inline_writer = true },
        .world = { .wall_ms = rig_wall, .boot_ms = rig_boot, .arg = r },
    };
    rig_open(r);
    *state = r;
    return 0;
}

static int rig_teardown(void **state) {
    struct rig *r = *state;
    shard_close(r->shard);
    folder_remove(r->dir);
    free(r);
    return 0;
}

static void begin(struct rig *r) {
    if (shard_begin(r->shard) < 0)
        fail_msg("%s", error_text());
}

static void end(struct rig *r) {
    assert_int_equal(shard_wait(r->shard, shard_end(r->shard)), 0);
    assert_true(r->unchecked || core_check(r->core) == 0);
}

// Turns until nothing more is due, with the cleaning of the log.
static void turns(struct rig *r) {
    do {
        bool more;
        begin(r);
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
    } while (shard_next_ms(r->shard) == 0);
}

// Time passes; turns come when the shard wants them.
static void pass_ms(struct rig *r, uint64_t ms) {
    uint64_t until = r->boot_ms + ms;
    while (r->boot_ms < until) {
        int64_t wait = shard_next_ms(r->shard);
        uint64_t step =
            wait < 0 || (uint64_t)wait > until - r->boot_ms ? until - r->boot_ms : (uint64_t)wait;
        r->boot_ms += step;
        r->wall_ms += step;
        turns(r);
    }
}

// The clock of the machine is set; it is noticed within TICKS_LOOK_MS.
static void set_clock(struct rig *r, uint64_t wall_ms) {
    r->wall_ms = wall_ms;
    r->boot_ms += TICKS_LOOK_MS;
    turns(r);
}

static void reopen(struct rig *r, uint64_t later_ms) {
    shard_close(r->shard);
    r->wall_ms += later_ms;
    r->boot_ms = 0; // the machine was restarted, too
    rig_open(r);
    turns(r);
}

static int try_schedule(struct rig *r, struct schedule_spec spec) {
    if (!spec.stage.size)
        spec.stage = mr_str("s");
    if (!spec.body.size)
        spec.body = mr_str("b");
    begin(r);
    int err = ticks_set(shard_ticks(r->shard), &spec);
    end(r);
    return err;
}

static void schedule(struct rig *r, const char *name, const char *cron, const char *zone,
                     enum missed missed) {
    struct schedule_spec spec = {
        .name = mr_str(name), .cron = mr_str(cron), .zone = mr_str(zone), .missed = missed
    };
    if (try_schedule(r, spec) < 0)
        fail_msg("%s", error_text());
}

static struct schedule_info look(struct rig *r, const char *name) {
    struct schedule_info s;
    if (core_schedule(r->core, mr_str("s"), mr_str(name), &s) < 0)
        fail_msg("%s", error_text());
    return s;
}

static uint64_t pushed(struct rig *r) {
    struct stage_info s;
    return core_look_stage(r->core, mr_str("s"), &s) == 0 ? s.pushed : 0;
}

// ---- The clock --------------------------------------------------------------------------------

static void G1_ticks_follow_the_wall_clock(void **state) {
    struct rig *r = *state;
    schedule(r, "quarters", "*/15 * * * *", "", MISSED_SKIP);
    assert_int_equal(look(r, "quarters").next_at, NOON + 15 * MINUTE);
    pass_ms(r, 15 * MINUTE - 1);
    assert_int_equal(pushed(r), 0);
    pass_ms(r, 1);
    assert_int_equal(pushed(r), 1);
    assert_int_equal(look(r, "quarters").last_at, NOON + 15 * MINUTE);
    pass_ms(r, 3 * HOUR);
    assert_int_equal(pushed(r), 13);
}

static void G1_no_tick_comes_again_after_the_clock_went_back(void **state) {
    struct rig *r = *state;
    schedule(r, "m", "* * * * *", "", MISSED_ALL);
    pass_ms(r, 10 * MINUTE);
    assert_int_equal(pushed(r), 10);
    set_clock(r, NOON + 5 * MINUTE);
    pass_ms(r, 5 * MINUTE);
    assert_int_equal(pushed(r), 10);
    pass_ms(r, MINUTE);
    assert_int_equal(pushed(r), 11);
    set_clock(r, NOON - DAY);
    reopen(r, 0);                                    // and no restart changes that
    schedule(r, "m", "*/2 * * * *", "", MISSED_ALL); // nor another definition
    assert_true(look(r, "m").next_at > look(r, "m").last_at);
    begin(r);
    assert_int_equal(core_schedule_pause(r->core, mr_str("s"), mr_str("m")), 0);
    assert_int_equal(ticks_resume(shard_ticks(r->shard), mr_str("s"), mr_str("m")), 0);
    end(r);
    assert_true(look(r, "m").next_at > look(r, "m").last_at);
    pass_ms(r, DAY);
    assert_int_equal(pushed(r), 11);
}

static void G1_a_clock_set_forward_is_noticed_without_a_command(void **state) {
    struct rig *r = *state;
    schedule(r, "noon", "0 12 * * *", "", MISSED_ONE);
    pass_ms(r, HOUR);
    r->wall_ms = NOON + DAY + 1;
    pass_ms(r, TICKS_LOOK_MS);
    assert_int_equal(pushed(r), 1);
}

// ---- Missed ticks -----------------------------------------------------------------------------

static void missed_over(struct rig *r, enum missed missed, uint64_t down_ms, uint64_t count) {
    schedule(r, "m", "*/10 * * * *", "", missed);
    pass_ms(r, 10 * MINUTE);
    assert_int_equal(pushed(r), 1);
    reopen(r, down_ms);
    assert_int_equal(pushed(r), 1 + count);
    assert_int_equal(look(r, "m").next_at,
                     NOON + 20 * MINUTE + down_ms / (10 * MINUTE) * 10 * MINUTE);
    pass_ms(r, 10 * MINUTE);
    assert_int_equal(pushed(r), 2 + count);
}

static void G2_missed_ticks_are_skipped(void **state) {
    missed_over(*state, MISSED_SKIP, HOUR + 5 * MINUTE, 0);
}

// A restart that takes less than a minute misses nothing.
static void G2_a_tick_that_is_a_little_late_is_not_missed(void **state) {
    missed_over(*state, MISSED_SKIP, HOUR + TICK_LATE_MS, 1);
}

static void G2_one_is_pushed_for_all_that_were_missed(void **state) {
    missed_over(*state, MISSED_ONE, HOUR + 5 * MINUTE, 1);
}

static void G2_all_missed_ticks_are_pushed(void **state) {
    missed_over(*state, MISSED_ALL, HOUR + 5 * MINUTE, 6);
}

static void G2_of_very_many_missed_ticks_the_last_thousand_are_pushed(void **state) {
    struct rig *r = *state;
    schedule(r, "m", "*/10 * * * *", "", MISSED_ALL);
    assert_int_equal(try_schedule(r, (struct schedule_spec){ .name = mr_str("e"),
                                                             .every_ms = SECOND,
                                                             .missed = MISSED_ALL }),
                     0);
    reopen(r, UINT64_C(400) * DAY);
    assert_int_equal(pushed(r), 2 * MISSED_MOST);
    assert_int_equal(look(r, "m").last_at, NOON + UINT64_C(400) * DAY);
    assert_int_equal(look(r, "e").last_at, NOON + UINT64_C(400) * DAY);
    pass_ms(r, SECOND);
    assert_int_equal(pushed(r), 2 * MISSED_MOST + 1);
}

// The thousand are not counted anew after a crash in the middle of them.
static void G1_G2_a_crash_among_missed_ticks_repeats_none(void **state) {
    struct rig *r = *state;
    schedule(r, "m", "*/10 * * * *", "", MISSED_ALL);
    shard_close(r->shard);
    r->wall_ms += UINT64_C(500) * 10 * MINUTE;
    uint64_t last = 0;
    for (int round = 0; round < 3; round++) {
        rig_open(r);
        begin(r);
        end(r); // one turn is not enough for all of them
        uint64_t now = pushed(r);
        assert_true(now > last && now <= 500);
        last = now;
        shard_close(r->shard);
    }
    rig_open(r);
    turns(r);
    assert_int_equal(pushed(r), 500);
}

// ---- Crashes ----------------------------------------------------------------------------------

// G1: kill it after any turn, also without the end of its log: as many jobs as ticks.
static void G1_each_tick_is_pushed_once_however_often_it_is_opened(void **state) {
    struct rig *r = *state;
    schedule(r, "a", "* * * * *", "Europe/Berlin", MISSED_ALL);
    assert_int_equal(try_schedule(r, (struct schedule_spec){ .name = mr_str("b"),
                                                             .every_ms = 45 * SECOND,
                                                             .missed = MISSED_ALL }),
                     0);
    uint64_t seed = 7;
    for (int i = 0; i < 200; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t ms = (seed >> 33) % (2 * MINUTE);
        if (seed >> 60 & 1)
            reopen(r, ms);
        else
            pass_ms(r, ms);
    }
    uint64_t passed = r->wall_ms - NOON;
    assert_int_equal(look(r, "a").pushed, passed / MINUTE);
    assert_int_equal(look(r, "b").pushed, passed / (45 * SECOND));
    assert_int_equal(pushed(r), look(r, "a").pushed + look(r, "b").pushed);
}

// ---- The rest ---------------------------------------------------------------------------------

static void what_cannot_be_is_refused_and_changes_nothing(void **state) {
    struct rig *r = *state;
    struct schedule_spec bad[] = {
        { .cron = mr_str("0 0 31 2 *") },
        { .cron = mr_str("0 0 * *") },
        { .cron = mr_str("@daily"), .zone = mr_str("Nowhere/Land") },
        { .every_ms = 999 },
        { .every_ms = 0 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i].name = mr_str("n");
        uint64_t at = shard_position(r->shard);
        assert_int_equal(try_schedule(r, bad[i]), MR_EINVAL);
        assert_int_equal(shard_position(r->shard), at);
    }
    assert_int_equal(core_tick_next(r->core), UINT64_MAX);
    assert_int_equal(core_stage_number(r->core, mr_str("s")), 0);
}

static void a_replaced_schedule_keeps_its_phase(void **state) {
    struct rig *r = *state;
    struct schedule_spec every = { .name = mr_str("e"), .every_ms = 10 * MINUTE };
    assert_int_equal(try_schedule(r, every), 0);
    pass_ms(r, 25 * MINUTE);
    every.body = mr_str("other");
    assert_int_equal(try_schedule(r, every), 0);
    assert_int_equal(look(r, "e").next_at, NOON + 30 * MINUTE);
    every.every_ms = HOUR;
    assert_int_equal(try_schedule(r, every), 0);
    assert_int_equal(look(r, "e").next_at, NOON + 25 * MINUTE + HOUR);
}

static void the_next_five_times_are_shown(void **state) {
    struct rig *r = *state;
    uint64_t at[UPCOMING_MOST];
    schedule(r, "w", "0 9 * * mon", "America/New_York", MISSED_SKIP);
    struct schedule_info s = look(r, "w");
    assert_int_equal(ticks_upcoming(shard_ticks(r->shard), &s, at), UPCOMING_MOST);
    assert_int_equal(at[0], (uint64_t)s.next_at);
    for (int i = 1; i < UPCOMING_MOST; i++)
        assert_int_equal(at[i], at[0] + (uint64_t)i * 7 * DAY);
    begin(r);
    assert_int_equal(core_schedule_pause(r->core, mr_str("s"), mr_str("w")), 0);
    end(r);
    s = look(r, "w");
    assert_int_equal(ticks_upcoming(shard_ticks(r->shard), &s, at), 0);
}

// 100,000 schedules: none is looked at before it is due, and a turn pushes a bounded number.
static void many_schedules_cost_nothing_while_none_is_due(void **state) {
    enum { MANY = 100000 };
    struct rig *r = *state;
    shard_close(r->shard);
    r->options.store = store_in(NULL);
    r->unchecked = true;
    rig_open(r);
    begin(r);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        struct schedule_spec spec = { .stage = mr_str("s"),
                                      .name = mr_str(name),
                                      .cron = mr_str(i % 2 ? "0 0 1 1 *" : "@daily") };
        if (ticks_set(shard_ticks(r->shard), &spec) < 0)
            fail_msg("%s", error_text());
    }
    struct schedule_spec more = { .stage = mr_str("s"), .name = mr_str("more"), .every_ms = 1000 };
    assert_int_equal(ticks_set(shard_ticks(r->shard), &more), MR_EFULL);
    end(r);
    (void)core_take_steps(r->core);
    pass_ms(r, 11 * HOUR);
    assert_true(core_take_steps(r->core) < 100);
    r->wall_ms += HOUR;
    r->boot_ms += HOUR;
    begin(r);
    uint64_t first = pushed(r);
    end(r);
    assert_true(first > 0 && first < MANY / 100);
    assert_int_equal(shard_next_ms(r->shard), 0);
    turns(r);
    assert_int_equal(pushed(r), MANY / 2);
}

// Makes `count` schedules; returns when the first of them is due.
static uint64_t fill_yearly(struct rig *r, int count) {
    begin(r);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        struct schedule_spec spec = { .stage = mr_str("s"),
                                      .name = mr_str(name),
                                      .cron = mr_str("0 0 1 1 *") };
        if (ticks_set(shard_ticks(r->shard), &spec) < 0)
            fail_msg("%s", error_text());
    }
    end(r);
    return core_tick_next(r->core);
}

// Steps of turns in which one schedule ticks a hundred times, among `others` that do not.
static uint64_t steps_of_ticks(struct rig *r, int others) {
    uint64_t quiet_until = fill_yearly(r, others);
    schedule(r, "m", "* * * * *", "", MISSED_SKIP);
    (void)core_take_steps(r->core);
    pass_ms(r, 100 * MINUTE);
    assert_true(r->wall_ms < quiet_until);
    uint64_t steps = core_take_steps(r->core);
    assert_int_equal(look(r, "m").pushed, 100);
    assert_true(steps >= 100);
    return steps;
}

// A tick does not look at schedules that are not due, however many there are.
static void a_tick_among_very_many_schedules_looks_at_one(void **state) {
    struct rig *r = *state;
    uint64_t steps[2];
    r->unchecked = true;
    r->options.store = store_in(NULL);
    for (int i = 0; i < 2; i++) {
        shard_close(r->shard);
        rig_open(r);
        steps[i] = steps_of_ticks(r, i ? 99000 : 0);
    }
    assert_int_equal(steps[0], steps[1]);
}

int main(void) {
#define TICKS_TEST(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        TICKS_TEST(G1_ticks_follow_the_wall_clock),
        TICKS_TEST(G1_no_tick_comes_again_after_the_clock_went_back),
        TICKS_TEST(G1_a_clock_set_forward_is_noticed_without_a_command),
        TICKS_TEST(G2_missed_ticks_are_skipped),
        TICKS_TEST(G2_a_tick_that_is_a_little_late_is_not_missed),
        TICKS_TEST(G2_one_is_pushed_for_all_that_were_missed),
        TICKS_TEST(G2_all_missed_ticks_are_pushed),
        TICKS_TEST(G2_of_very_many_missed_ticks_the_last_thousand_are_pushed),
        TICKS_TEST(G1_G2_a_crash_among_missed_ticks_repeats_none),
        TICKS_TEST(G1_each_tick_is_pushed_once_however_often_it_is_opened),
        TICKS_TEST(what_cannot_be_is_refused_and_changes_nothing),
        TICKS_TEST(a_replaced_schedule_keeps_its_phase),
        TICKS_TEST(the_next_five_times_are_shown),
        TICKS_TEST(many_schedules_cost_nothing_while_none_is_due),
        TICKS_TEST(a_tick_among_very_many_schedules_looks_at_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
