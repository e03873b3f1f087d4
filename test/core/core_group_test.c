// Groups: they take turns, their limits are exact, and a restart keeps what it should. Rule 23, on
// the bare core.
#include "support/core_fixture.h"

static size_t take_up_to(struct core_fixture *t, uint32_t count, struct taken *out) {
    return try_take(t, (struct take){ .count = count }, out);
}

// Takes and ends a job; its body, or "" if there is none.
static const char *next_body(struct core_fixture *t) {
    static struct taken a;
    if (!take_up_to(t, 1, &a))
        return "";
    done(t, a);
    return a.body;
}

static struct group_info look_group(struct core_fixture *t, const char *name) {
    struct group_info top[8];
    size_t count = core_top_groups(t->core, mr_str("s"), top, 8);
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(top[i].group, mr_str(name)))
            return top[i];
    fail_msg("group %s is not listed", name);
    return (struct group_info){ 0 };
}

// ---- Turns ------------------------------------------------------------------------------------

static void G7_a_flood_of_one_group_delays_another_by_one_job(void **state) {
    struct core_fixture *t = *state;
    char key[32];
    set(t, "group", "on");
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "flood/%d", i % 20);
        push(t, key, "f");
    }
    expect_take(t, "f");
    push(t, "small/1", "s1");
    push(t, "other/1", "o1");
    push(t, "small/1", "s2");
    expect_take(t, "f");
    expect_take(t, "s1");
    expect_take(t, "o1");
    expect_take(t, "f");
    expect_take(t, "s2");
    expect_take(t, "f");
}

// Without groups the flood goes first: the test above would not pass.
static void G7_without_groups_each_key_has_a_turn(void **state) {
    struct core_fixture *t = *state;
    push(t, "flood/1", "f");
    push(t, "flood/2", "f");
    push(t, "small/1", "s1");
    expect_take(t, "f");
    expect_take(t, "f");
    expect_take(t, "s1");
}

// The ring of groups with many jobs each: whatever their depths, the starts go round.
static void G7_each_round_has_one_job_of_each_group(void **state) {
    struct core_fixture *t = *state;
    static const char *const groups[] = { "a", "b", "c", "d" };
    char key[32];
    set(t, "group", "on");
    for (int g = 0; g < 4; g++)
        for (int i = 0; i <= 3 * g; i++) {
            snprintf(key, sizeof key, "%s/%d", groups[g], i % 3);
            push(t, key, groups[g]);
        }
    static const char *const rounds = "abcdbcdbcdbcdcdcdcdddd";
    for (const char *at = rounds; *at; at++)
        assert_int_equal(*next_body(t), *at);
    expect_no_work(t);
}

static void G7_a_turn_is_one_block(void **state) {
    struct core_fixture *t = *state;
    struct taken held[8];
    set(t, "group", "on");
    for (int i = 0; i < 3; i++)
        push(t, "a/1", "a");
    push(t, "a/2", "a");
    push(t, "b/1", "b");
    size_t count = try_take(t, (struct take){ .count = 5, .batch = 3 }, held);
    assert_int_equal(count, 5);
    assert_string_equal(held[2].body, "a"); // the block of a/1
    assert_string_equal(held[3].body, "b");
    assert_string_equal(held[4].key, "a/2");
}

// C1 to C5 within a group: a channel has one job at a time, in order, and goes behind the others.
static void G7_channels_of_a_group_take_turns_in_it(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    push(t, "a/1", "1");
    push(t, "a/1", "2");
    push(t, "a/2", "3");
    push(t, "b", "4");
    struct taken first = take(t);
    assert_string_equal(first.body, "1");
    expect_state(t, "a/1", CHANNEL_IN_PROGRESS);
    expect_take(t, "4");
    expect_take(t, "3");
    expect_no_work(t);
    done(t, first);
    expect_take(t, "2");
    expect_unknown(t, "a/1");
}

// A group that gives a job back has had its turn, and the job is its next.
static void G7_a_released_job_is_the_next_of_its_group(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    push(t, "a/1", "1");
    push(t, "a/2", "2");
    push(t, "b/1", "3");
    must(release_job(t, take(t)));
    expect_take(t, "3");
    expect_take(t, "1");
    expect_take(t, "2");
}

static void G7_names_of_groups(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    static const char *const keys[] = { "",       "/",        "/x",    "acme",  "acme/",
                                        "acme/x", "acme/x/y", "acmes", "acmes/" };
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            push(t, keys[i], keys[i]);
    assert_int_equal(look_stage(t, "s").groups, 3);
    assert_int_equal(look_group(t, "").depth, 6);
    assert_int_equal(look_group(t, "acme").depth, 8);
    assert_int_equal(look_group(t, "acme").ready, 5); // two of them without order
    assert_int_equal(look_group(t, "acmes").depth, 4);
    for (struct taken a; take_up_to(t, 1, &a); done(t, a))
        assert_string_equal(a.key, a.body); // each job still has the key that it was pushed with
    assert_int_equal(look_stage(t, "s").groups, 0);
    assert_int_equal(look_stage(t, "s").done, 18);
}

// ---- Keys without a channel -------------------------------------------------------------------

static void G7_a_key_that_ends_with_the_slash_has_no_order_and_no_state(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    set(t, "on-dead", "halt");
    push(t, "acme/", "1");
    uint64_t second = push(t, "acme/", "2");
    push(t, "acme/", "3");
    struct taken one = take(t), two = take(t);
    assert_string_equal(two.body, "2");
    assert_string_equal(two.key, "acme/");
    expect_unknown(t, "acme/");
    struct done d = { .id = one.id, .token = one.token, .set_state = true, .state = mr_str("x") };
    refused(MR_EINVAL, try_done(t, d));
    refused(MR_EINVAL, core_done(t->core, &d));
    assert_non_null(strstr(error_text(), "key acme/ has no channel to keep state"));
    done(t, one);
    must(fail_with(t, two, "no", MR_NEVER)); // it halts nothing
    expect_take(t, "3");
    must(retry(t, second));
    expect_take(t, "2");
}

static void G7_jobs_without_a_channel_survive_a_crash(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    uint64_t dead = push(t, "acme/", "dead");
    must(fail_with(t, take(t), "no", MR_NEVER));
    push_with(t, (struct push){ .job = { .key = mr_str("acme/"), .delay_ms = 100 },
                                .body = mr_str("late") });
    push(t, "acme/", "1");
    push(t, "beta/x", "2");
    push(t, "acme/", "3");
    struct taken lost = take(t);
    crash(t);
    expect_status(t, lost.id, JOB_WAITING);
    expect_take(t, "1");
    expect_take(t, "2");
    crash(t);
    expect_take(t, "3");
    must(retry(t, dead));
    expect_take(t, "dead");
    pass_ms(t, 100);
    expect_take(t, "late");
    assert_int_equal(look_stage(t, "s").groups, 0);
}

static void G7_a_detached_lease_of_such_a_job_survives_a_crash(void **state) {
    struct core_fixture *t = *state;
    struct taken held;
    set(t, "group", "on");
    set(t, "group-concurrency", "1");
    push(t, "acme/", "1");
    push(t, "acme/", "2");
    assert_int_equal(try_take(t, (struct take){ .detached = true }, &held), 1);
    crash(t);
    expect_no_work(t); // the restored lease counts
    expect_held(t, "s", "group-limit");
    done(t, held);
    expect_take(t, "2");
}

// ---- Limits -----------------------------------------------------------------------------------

static void G8_a_group_runs_as_many_jobs_as_its_concurrency(void **state) {
    struct core_fixture *t = *state;
    struct taken held[16];
    set(t, "group", "on");
    set(t, "group-concurrency", "2");
    for (int i = 0; i < 4; i++) {
        push(t, "a/", "a");
        push(t, "b/", "b");
    }
    assert_int_equal(take_up_to(t, 16, held), 4);
    expect_held(t, "s", "group-limit");
    assert_int_equal(look_group(t, "a").running, 2);
    assert_string_equal(look_group(t, "a").held_by, "group-limit");
    wait_for_work(t, 1, "s");
    done(t, held[1]); // of b
    expect_events(t, "taker 1: b\n");
    expect_no_work(t);
    set(t, "group-concurrency", "3");
    assert_int_equal(take_up_to(t, 16, held + 4), 2);
    set(t, "group-concurrency", "1");
    expect_no_work(t);
    set(t, "group-concurrency", "none");
    assert_int_equal(take_up_to(t, 16, held + 6), 1);
}

static void G8_a_block_is_no_longer_than_the_group_may_run(void **state) {
    struct core_fixture *t = *state;
    struct taken held[8];
    set(t, "group", "on");
    set(t, "group-concurrency", "3");
    for (int i = 0; i < 6; i++)
        push(t, "a/1", "a");
    push(t, "a/2", "a");
    assert_int_equal(take_block(t, 8, held), 3);
    expect_no_work(t);
    done(t, held[0]); // an answer makes room for one, though the block goes on
    assert_int_equal(take_up_to(t, 8, held + 3), 1);
    assert_string_equal(held[3].key, "a/2");
    expect_no_work(t);
}

// A job that was cancelled under its lease counts until its worker answers, as for the stage.
static void G8_a_cancelled_job_counts_until_its_worker_answers(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    set(t, "group-concurrency", "1");
    push(t, "a/", "1");
    push(t, "a/", "2");
    struct taken one = take(t);
    assert_true(cancel(t, one.id));
    expect_no_work(t);
    refused(MR_ECANCELLED, done_again(t, one));
    expect_take(t, "2");
}

static void G8_each_group_has_its_rate(void **state) {
    struct core_fixture *t = *state;
    int started[2] = { 0 };
    set(t, "group", "on");
    set(t, "group-rate", "10/s");
    for (int i = 0; i < 30; i++) {
        push(t, "a/", "a");
        push(t, "b/", "b");
    }
    for (int ms = 0; ms < 2000; ms += 50) {
        for (const char *body; *(body = next_body(t));)
            started[*body - 'a']++;
        t->unlike = true;
        expect_held(t, "s", "group-rate");
        pass_ms(t, 50);
    }
    // a start each 100 ms, and one more at once: a tenth of a second is caught up
    assert_int_equal(started[0], 21);
    assert_int_equal(started[1], 21);
    set(t, "group-rate", "none");
    for (int i = 0; i < 18; i++)
        assert_int_not_equal(*next_body(t), 0);
    expect_no_work(t);
}

static void G8_a_taker_is_woken_when_the_first_group_may_start(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    set(t, "group-rate", "1/s");
    push(t, "a/", "a1");
    push(t, "a/", "a2");
    push(t, "b/", "b1");
    push(t, "b/", "b2");
    expect_take(t, "a1");
    t->unlike = true;
    pass_ms(t, 300);
    expect_take(t, "b1");
    wait_for_work(t, 1, "s");
    pass_ms(t, 599);
    expect_events(t, "");
    pass_ms(t, 1); // 900 ms: the first start was 100 ms behind time
    expect_events(t, "taker 1: a2\n");
}

// Emptying a group, and forgetting its channels, gives it no further start.
static void G8_a_group_cannot_reset_its_rate(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    set(t, "group-rate", "1/m");
    for (int i = 0; i < 5; i++)
        push(t, "a/", "a");
    expect_take(t, "a");
    t->unlike = true;
    for (size_t i = 1; i < 5; i++)
        cancel(t, t->jobs[i].id);
    assert_int_equal(look_stage(t, "s").groups, 0);
    pass_ms(t, 59899);
    push(t, "a/", "b");
    expect_no_work(t);
    expect_held(t, "s", "group-rate");
    pass_ms(t, 1);
    expect_take(t, "b");
    pass_ms(t, 120000);
    push(t, "a/", "c");
    push(t, "a/", "d");
    expect_take(t, "c"); // what was not used is not saved up
    expect_no_work(t);
}

static void G8_limits_of_stage_and_group_hold_both(void **state) {
    struct core_fixture *t = *state;
    struct taken held[8];
    set(t, "group", "on");
    set(t, "concurrency", "3");
    set(t, "group-concurrency", "2");
    for (int i = 0; i < 3; i++) {
        push(t, "a/", "a");
        push(t, "b/", "b");
    }
    assert_int_equal(take_up_to(t, 8, held), 3);
    expect_held(t, "s", "limit");
    assert_int_equal(look_group(t, "a").running, 2);
    done(t, held[1]);
    assert_int_equal(take_up_to(t, 8, held + 3), 1);
    assert_string_equal(held[3].body, "b");
}

// ---- Changing the policy ----------------------------------------------------------------------

static void expect_group_refused(struct core_fixture *t, const char *value, const char *why) {
    refused(MR_EINVAL, try_set(t, "s", "group", value));
    refused(MR_EINVAL, core_set(t->core, mr_str("s"), mr_str("group"), mr_str(value)));
    if (!strstr(error_text(), why))
        fail_msg("'%s' does not say '%s'", error_text(), why);
}

static void G7_group_changes_only_in_a_stage_without_jobs_and_states(void **state) {
    struct core_fixture *t = *state;
    push(t, "acme/", "1");
    push(t, "acme/", "2");
    expect_group_refused(t, "on", "stage s has jobs: DRAIN it");
    struct taken one = take(t);
    expect_no_work(t); // its key has order
    done_with(t, one, "", "kept");
    expect_take(t, "2");
    expect_group_refused(t, "on", "has states: set state-ttl");
    set(t, "state-ttl", "1s");
    pass_ms(t, 1000);
    set(t, "group", "on");
    set(t, "group", "on"); // no change
    push(t, "acme/", "3");
    push(t, "acme/", "4");
    expect_group_refused(t, "off", "has jobs");
    struct taken three = take(t);
    must(fail_with(t, take(t), "no", MR_NEVER));
    done(t, three);
    expect_group_refused(t, "off", "dead jobs: RETRY or DROP");
    must(drop(t, t->jobs[3].id));
    set(t, "group", "off");
    push(t, "acme/", "5");
    push(t, "acme/", "6");
    struct taken five = take(t);
    expect_no_work(t);
    done(t, five);
    expect_take(t, "6");
}

static void G7_a_stage_with_groups_can_be_removed(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    set(t, "group-rate", "1/h");
    set(t, "retention", "0");
    push(t, "a/x", "1");
    expect_take(t, "1");
    t->unlike = true;
    pass_ms(t, 1);
    must(core_stage_remove(t->core, mr_str("s")));
    core_fixture_check(t->core, "after REMOVE");
    push(t, "a/", "2");
    push(t, "a/", "3");
    struct taken two = take(t);
    expect_no_work(t); // the new stage has no groups: its key has order
    done(t, two);
}

// ---- Restarts, room ---------------------------------------------------------------------------

// Groups begin in the order of their first channels, and channels in that of their first jobs.
static void G7_after_a_crash_turns_begin_with_the_oldest_job(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    push(t, "a/1", "a1");
    push(t, "a/2", "a2");
    push(t, "b/1", "b1");
    push(t, "a/1", "a3");
    push(t, "c/1", "c1");
    push(t, "b/2", "b2");
    expect_take(t, "a1");
    expect_take(t, "b1");
    crash(t);
    static const char *const order[] = { "a2", "c1", "b2", "a3" };
    for (size_t i = 0; i < 4; i++)
        expect_take(t, order[i]);
}

// A store in which the record of the stage stands behind its jobs.
static void G7_jobs_are_grouped_when_their_stage_is_read_after_them(void **state) {
    struct core_fixture *t = *state;
    set(t, "group", "on");
    push(t, "a/", "1");
    push(t, "a/", "2");
    push(t, "b/x", "3");
    set(t, "retention", "2h"); // a later record of the stage
    crash(t);                  // in one of the modes the log was cleaned, and has the jobs first
    expect_take(t, "1");
    expect_take(t, "3");
    expect_take(t, "2");
}

static void G7_groups_are_bounded(void **state) {
    struct core_fixture *t = *state;
    core_fixture_close(t);
    t->limits.max_groups = 3;
    core_fixture_open(t);
    set(t, "group", "on");
    push(t, "a/1", "1");
    push(t, "b/1", "2");
    push(t, "c/", "3");
    struct push fourth = { .stage = mr_str("s"), .job.key = mr_str("d/"), .body = mr_str("4") };
    struct pushed pushed;
    refused(MR_EFULL, core_push(t->core, &fourth, &pushed));
    assert_non_null(strstr(error_text(), "3 groups are known, which is the limit"));
    push(t, "a/2", "5");
    expect_take(t, "1");
    expect_take(t, "2"); // its channel is cached, and makes room
    push(t, "d/", "4");
    uint64_t before = core_memory(t->core);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(*next_body(t), 0);
    assert_true(core_memory(t->core) < before);
}

// Starts a job of each of so many groups, whose rates then remember them.
static void start_groups(struct core_fixture *t, int count) {
    char key[32];
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "group %d/", i);
        push(t, key, key);
    }
    for (int i = 0; i < count; i++)
        done(t, take(t));
    expect_no_work(t);
}

// U4: however many groups wait until their rates have forgotten them.
static void G8_ending_groups_visits_none_of_them(void **state) {
    struct core_fixture *t = *state;
    enum { GROUPS = 40 };
    set(t, "group-rate", "1/h");
    for (int round = 0; round < 3; round++) {
        set(t, "group", "on");
        start_groups(t, GROUPS);
        core_take_steps(t->core);
        set(t, "group", "off");
        if (t->mode != MODE_CLEANED) // the cleaner's steps depend on the log
            assert_in_range(core_take_steps(t->core), 0, GROUPS / 2);
    }
    set(t, "group", "on");
    push(t, "group 0/", "again");
    expect_take(t, "again"); // groups that have ended hold none of the new ones
    pass_ms(t, 3 * 3600 * 1000);
    push(t, "group 1/", "later");
    expect_take(t, "later");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G7_a_flood_of_one_group_delays_another_by_one_job),
        CORE_TEST(G7_without_groups_each_key_has_a_turn),
        CORE_TEST(G7_each_round_has_one_job_of_each_group),
        CORE_TEST(G7_a_turn_is_one_block),
        CORE_TEST(G7_channels_of_a_group_take_turns_in_it),
        CORE_TEST(G7_a_released_job_is_the_next_of_its_group),
        CORE_TEST(G7_names_of_groups),
        CORE_TEST(G7_a_key_that_ends_with_the_slash_has_no_order_and_no_state),
        CORE_TEST(G7_jobs_without_a_channel_survive_a_crash),
        CORE_TEST(G7_a_detached_lease_of_such_a_job_survives_a_crash),
        CORE_TEST(G8_a_group_runs_as_many_jobs_as_its_concurrency),
        CORE_TEST(G8_a_block_is_no_longer_than_the_group_may_run),
        CORE_TEST(G8_a_cancelled_job_counts_until_its_worker_answers),
        CORE_TEST(G8_each_group_has_its_rate),
        CORE_TEST(G8_ending_groups_visits_none_of_them),
        CORE_TEST(G8_a_taker_is_woken_when_the_first_group_may_start),
        CORE_TEST(G8_a_group_cannot_reset_its_rate),
        CORE_TEST(G8_limits_of_stage_and_group_hold_both),
        CORE_TEST(G7_group_changes_only_in_a_stage_without_jobs_and_states),
        CORE_TEST(G7_a_stage_with_groups_can_be_removed),
        CORE_TEST(G7_after_a_crash_turns_begin_with_the_oldest_job),
        CORE_TEST(G7_jobs_are_grouped_when_their_stage_is_read_after_them),
        CORE_TEST(G7_groups_are_bounded),
    };
    return RUN_CORE_TESTS(tests);
}
