// Schedules on the bare core: a tick is a push and a move in one group, each once over any crash;
// when a schedule is due, the test says, as the shard does.
#include "support/core_fixture.h"

// G1: the push and the last instant are one group of records, so a crash keeps both or none.
static void G1_a_tick_and_its_instant_are_one_group(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "nightly", "", "backup", 5000);
    expect_no_tick(t, 4999);
    run_tick(t, 5000, (struct tick){ .pushes = true, .last_ms = 5000, .next_ms = 6000 });
    assert_int_equal(look_schedule(t, "nightly").last_at, 5000);
    assert_int_equal(look_schedule(t, "nightly").next_at, 6000);
    assert_int_equal(look_schedule(t, "nightly").pushed, 1);
    assert_int_equal(look_stage(t, "s").pushed, 1);
    expect_no_tick(t, 5999);
    crash(t);
    expect_no_tick(t, 5999);
    assert_int_equal(look_stage(t, "s").pushed, 1);
    assert_int_equal(look_schedule(t, "nightly").pushed, 1);
    run_tick(t, 6000, (struct tick){ .pushes = true, .last_ms = 6000, .next_ms = 7000 });
    expect_take(t, "backup");
    expect_take(t, "backup");
    expect_no_work(t);
}

// What a log cut at any group contains: as many jobs as moves say.
static void G1_every_prefix_of_the_log_has_a_job_for_each_tick(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "a", "k", "x", 1000);
    schedule(t, "b", "k", "y", 1500);
    for (uint64_t at = 1000; at < 4000; at += 1000) {
        run_tick(t, at, (struct tick){ true, at, at + 1000, false });
        run_tick(t, at + 500, (struct tick){ true, at + 500, at + 1500, false });
    }
    size_t pushes = 0, moved = 0;
    for (size_t i = 0; i < t->log_count; i++) {
        struct record r;
        struct record_about about;
        must(record_decode(bytes_of(t->log[i].bytes, t->log[i].head_size), &about, &r));
        pushes += r.kind == RECORD_PUSH;
        moved += r.kind == RECORD_SCHEDULE_MOVE;
        if (t->log[i].last && t->mode == MODE_PLAIN)
            assert_int_equal(pushes, moved);
    }
    assert_int_equal(look_stage(t, "s").pushed, 6);
}

// G3: channels see to it that runs of one key do not overlap.
static void G3_runs_of_a_schedule_with_a_key_do_not_overlap(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "sync", "one-at-a-time", "x", 1000);
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    struct taken first = take(t);
    run_tick(t, 2000, (struct tick){ true, 2000, 3000, false });
    expect_no_work(t);
    done(t, first);
    expect_take(t, "x");
}

// A tick is accepted like an emit.
static void a_tick_is_accepted_whatever_the_room_pause_and_drain(void **state) {
    struct core_fixture *t = *state;
    struct pushed out;
    set(t, "max-jobs", "1");
    push(t, "k", "a");
    schedule(t, "n", "k", "b", 1000);
    pause_stage(t, "s");
    drain_stage(t, "s");
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    refused(MR_EDRAINING, try_push(t, (struct push){ .body = mr_str("c") }, &out));
    resume_stage(t, "s");
    expect_order(t, "k", "a b");
    refused(MR_EFULL, try_push(t, (struct push){ .body = mr_str("c") }, &out));
}

static void a_job_of_a_schedule_has_its_options(void **state) {
    struct core_fixture *t = *state;
    struct schedule_spec spec = { .name = mr_str("n"),
                                  .body = mr_str("b"),
                                  .job = {
                                      .key = mr_str("k"), .deadline_ms = 500, .attempts = 3 } };
    must(try_schedule(t, spec, 1000));
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    uint64_t id = look_schedule(t, "n").last_id;
    assert_int_equal(look(t, id).attempts, 3);
    assert_int_equal(look(t, id).left_ms, 500);
    pass_ms(t, 500);
    expect_status(t, id, JOB_EXPIRED);
}

static void a_paused_schedule_is_not_due_until_resumed(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "n", "", "b", 1000);
    must(pause_schedule(t, "n"));
    must(pause_schedule(t, "n")); // changes nothing
    assert_true(look_schedule(t, "n").paused);
    assert_int_equal(look_schedule(t, "n").next_at, -1);
    expect_no_tick(t, 1000000);
    crash(t);
    expect_no_tick(t, 1000000);
    must(resume_schedule(t, "n", 2000000));
    must(resume_schedule(t, "n", 3000000)); // changes nothing
    assert_int_equal(look_schedule(t, "n").next_at, 2000000);
    run_tick(t, 2000000, (struct tick){ true, 2000000, 2001000, false });
}

static void asked_for_now_it_pushes_one_beside_its_ticks(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "n", "", "b", 1000);
    must(ask_schedule(t, "n"));
    must(ask_schedule(t, "n")); // that one was not pushed yet
    crash(t);
    run_tick(t, 0, (struct tick){ .pushes = true });
    expect_no_tick(t, 999);
    assert_int_equal(look_schedule(t, "n").next_at, 1000);
    assert_int_equal(look_schedule(t, "n").last_at, -1);
    assert_int_equal(look_schedule(t, "n").pushed, 1);
    must(pause_schedule(t, "n"));
    must(ask_schedule(t, "n"));
    run_tick(t, 0, (struct tick){ .pushes = true });
    expect_no_tick(t, 1000000);
    assert_int_equal(look_stage(t, "s").pushed, 2);
}

static void a_skipped_tick_moves_on_without_a_job(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "n", "", "b", 1000);
    run_tick(t, 99500, (struct tick){ .last_ms = 99000, .next_ms = 100000 });
    crash(t);
    expect_no_tick(t, 99999);
    expect_no_work(t);
    assert_int_equal(look_schedule(t, "n").last_at, 99000);
    assert_int_equal(look_schedule(t, "n").pushed, 0);
}

// A schedule that is replaced keeps its place in time, unless its instants are others.
static void replacing_a_schedule_keeps_its_last_tick(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "n", "", "old", 1000);
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    schedule(t, "n", "", "new", 7777);
    assert_int_equal(look_schedule(t, "n").next_at, 2000);
    assert_int_equal(look_schedule(t, "n").last_at, 1000);
    run_tick(t, 2000, (struct tick){ true, 2000, 3000, false });
    expect_take(t, "old");
    expect_take(t, "new");
    struct schedule_spec hourly = { .name = mr_str("n"),
                                    .cron = mr_str("@hourly"),
                                    .zone = mr_str("Europe/Berlin"),
                                    .missed = MISSED_ALL,
                                    .body = mr_str("third") };
    must(try_schedule(t, hourly, 3600000));
    struct schedule_info now = look_schedule(t, "n");
    assert_int_equal(now.next_at, 3600000);
    assert_int_equal(now.last_at, 2000);
    assert_int_equal(now.pushed, 2);
    assert_int_equal(now.missed, MISSED_ALL);
    expect_no_tick(t, 3599999);
    must(pause_schedule(t, "n"));
    hourly.cron = mr_str("@daily");
    must(try_schedule(t, hourly, 86400000));
    assert_true(look_schedule(t, "n").paused); // a new definition does not end a pause
    expect_no_tick(t, 90000000);
}

static void two_schedules_of_one_name_are_of_different_stages(void **state) {
    struct core_fixture *t = *state;
    schedule(t, "n", "", "a", 1000);
    must(try_schedule(t,
                      (struct schedule_spec){
                          .stage = mr_str("other"), .name = mr_str("n"), .body = mr_str("b") },
                      2000));
    run_tick(t, 1000, (struct tick){ true, 1000, 3000, false });
    run_tick(t, 2000, (struct tick){ true, 2000, 3000, false });
    expect_take(t, "a");
    assert_string_equal(take_from(t, "other").body, "b");
    must(drop_schedule(t, "n"));
    refused(MR_EGONE, drop_schedule(t, "n"));
    refused(MR_EGONE, pause_schedule(t, "n"));
    refused(MR_EGONE, resume_schedule(t, "n", 1));
    refused(MR_EGONE, ask_schedule(t, "n"));
    run_tick(t, 3000, (struct tick){ true, 3000, 4000, false });
    expect_no_tick(t, 3999);
}

// A stage with a schedule is neither removed nor forgotten.
static void a_stage_with_a_schedule_stays(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "10");
    set(t, "retention", "3600000");
    schedule(t, "n", "", "a", 1000);
    refused(MR_EINVAL, core_stage_remove(t->core, mr_str("s")));
    assert_non_null(strstr(error_text(), "schedules"));
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    expect_take(t, "a");
    pass_ms(t, 7200000);
    assert_int_equal(core_stage_number(t->core, mr_str("s")) != 0, true);
    must(drop_schedule(t, "n"));
    assert_int_equal(core_stage_number(t->core, mr_str("s")), 0);
}

static void what_cannot_be_a_schedule_is_refused(void **state) {
    static char long_name[SCHEDULE_NAME_MOST + 1], long_text[CRON_MOST + 1];
    struct core_fixture *t = *state;
    memset(long_name, 'x', sizeof long_name);
    memset(long_text, '*', sizeof long_text);
    struct schedule_spec good = { .name = mr_str("n"), .body = mr_str("b"), .every_ms = 1000 };
    struct schedule_spec bad = good;
    bad.name = (mr_bytes){ 0 };
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad.name = bytes_of(long_name, sizeof long_name);
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.every_ms = 999;
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    assert_non_null(strstr(error_text(), "999"));
    bad = good, bad.every_ms = (uint64_t)TIME_MOST_MS + 1;
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.cron = bytes_of(long_text, sizeof long_text);
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.zone = bytes_of(long_name, ZONE_NAME_MOST + 1);
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.job.once = mr_str("o");
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.stage = mr_str("no stage");
    refused(MR_EINVAL, try_schedule(t, bad, 1));
    bad = good, bad.body.size = BODY_MOST + 1;
    refused(MR_ETOOBIG, try_schedule(t, bad, 1));
    assert_int_equal(core_stage_places(t->core) && core_stage_number(t->core, mr_str("s")), 0);
}

static void schedules_are_bounded_in_all_and_for_each_maker(void **state) {
    struct core_fixture *t = *state;
    core_fixture_close(t);
    t->limits.max_schedules = 8;
    core_fixture_open(t);
    core_act_for(t->core, 7, NULL);
    schedule(t, "a", "", "x", 1000);
    schedule(t, "b", "", "x", 1000);
    refused(MR_EFULL, try_schedule(t, (struct schedule_spec){ .name = mr_str("c") }, 1000));
    assert_non_null(strstr(error_text(), "its share of 8"));
    schedule(t, "b", "", "y", 1000); // is there
    crash(t);
    core_act_for(t->core, 7, NULL);
    refused(MR_EFULL, try_schedule(t, (struct schedule_spec){ .name = mr_str("c") }, 1000));
    must(drop_schedule(t, "a"));
    schedule(t, "c", "", "x", 1000);
    core_act_for(t->core, 0, NULL);
    for (char name[] = "d"; *name < 'j'; ++*name)
        schedule(t, name, "", "x", 1000);
    refused(MR_EFULL, try_schedule(t, (struct schedule_spec){ .name = mr_str("z") }, 1000));
    assert_non_null(strstr(error_text(), "8 schedules"));
}

// A tick that the log refuses stays due; nothing is lost and nothing comes twice.
static void a_tick_waits_while_the_log_is_full(void **state) {
    struct core_fixture *t = *state;
    struct due_schedule d;
    schedule(t, "n", "", "b", 1000);
    t->full = true;
    for (uint64_t wall = 1000; wall < 2000; wall += 100) {
        assert_true(core_tick_due(t->core, wall, &d));
        assert_int_equal(
            core_tick(t->core, d.place, wall, &(struct tick){ true, 1000, 2000, false }), MR_EFULL);
    }
    t->full = false;
    run_tick(t, 2000, (struct tick){ true, 1000, 2000, false });
    assert_int_equal(look_stage(t, "s").pushed, 1);
}

// Many schedules cost nothing while none is due, and timers that became obsolete do not add up.
static void obsolete_timers_are_removed(void **state) {
    struct core_fixture *t = *state;
    if (t->mode != MODE_PLAIN)
        return;
    struct schedule_spec spec = { .stage = mr_str("s"), .name = mr_str("n"), .every_ms = 1000 };
    uint64_t before = core_memory(t->core);
    for (uint64_t i = 0; i < 20000; i++) {
        spec.every_ms = 1000 + i;
        must(core_schedule_set(t->core, &spec, 1000000 + i));
    }
    assert_true(core_memory(t->core) < before + 200000);
    expect_no_tick(t, 1000000 + 19998);
    run_tick(t, 1000000 + 19999, (struct tick){ true, 1019999, 1040000, false });
    core_fixture_forget_log(t, t->log_count); // opening each prefix of it would take long
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G1_a_tick_and_its_instant_are_one_group),
        CORE_TEST(G1_every_prefix_of_the_log_has_a_job_for_each_tick),
        CORE_TEST(G3_runs_of_a_schedule_with_a_key_do_not_overlap),
        CORE_TEST(a_tick_is_accepted_whatever_the_room_pause_and_drain),
        CORE_TEST(a_job_of_a_schedule_has_its_options),
        CORE_TEST(a_paused_schedule_is_not_due_until_resumed),
        CORE_TEST(asked_for_now_it_pushes_one_beside_its_ticks),
        CORE_TEST(a_skipped_tick_moves_on_without_a_job),
        CORE_TEST(replacing_a_schedule_keeps_its_last_tick),
        CORE_TEST(two_schedules_of_one_name_are_of_different_stages),
        CORE_TEST(a_stage_with_a_schedule_stays),
        CORE_TEST(what_cannot_be_a_schedule_is_refused),
        CORE_TEST(schedules_are_bounded_in_all_and_for_each_maker),
        CORE_TEST(a_tick_waits_while_the_log_is_full),
        CORE_TEST(obsolete_timers_are_removed),
    };
    return RUN_CORE_TESTS(tests);
}
