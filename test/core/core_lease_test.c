// Failing and leases: a job keeps its place until it is done or dead, and only the current token
// ends, fails, releases or prolongs. Rules 5, 6 and 22, the faults of workers, on the bare core.
#include "support/core_fixture.h"

#include "base/mem.h"

// ---- Rule 5: failing --------------------------------------------------------------------------

static void S1_a_retry_stays_at_the_head_and_its_channel_is_parked(void **state) {
    struct core_fixture *t = *state;
    set(t, "backoff", "1000..8000");
    uint64_t a = push(t, "k", "a");
    push(t, "k", "b");
    push(t, "l", "other");
    fail_job(t, take(t));
    expect_state(t, "k", CHANNEL_PARKED);
    expect_order(t, "k", "a b");
    expect_take(t, "other"); // no other channel is held
    expect_no_work(t);
    pass_ms(t, (uint64_t)look(t, a).due_ms);
    expect_take(t, "a");
    expect_take(t, "b");
}

static void rule5_the_backoff_doubles_give_or_take_a_fifth(void **state) {
    struct core_fixture *t = *state;
    set(t, "backoff", "1000..4000");
    uint64_t a = push(t, "k", "a");
    static const int64_t expected[] = { 1000, 2000, 4000, 4000 };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        fail_job(t, take(t));
        int64_t due = look(t, a).due_ms;
        assert_in_range(due, expected[i] * 4 / 5, expected[i] * 6 / 5);
        pass_ms(t, (uint64_t)due - 1);
        expect_no_work(t);
        pass_ms(t, 1);
    }
    expect_take(t, "a");
}

// The instant is recorded, not worked out again.
static void rule5_the_backoff_survives_a_crash(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    fail_job(t, take(t));
    int64_t due = look(t, a).due_ms;
    crash(t);
    assert_int_equal(look(t, a).due_ms, due);
    expect_state(t, "k", CHANNEL_PARKED);
    pass_ms(t, (uint64_t)due);
    assert_int_equal(take(t).attempt, 2);
}

static void rule5_a_worker_may_say_when(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "", "a");
    must(fail_with(t, take(t), "in a minute", 60000));
    assert_int_equal(look(t, a).due_ms, 60000);
    pass_ms(t, 60000);
    refused(MR_EINVAL, fail_with(t, take(t), "that is no time", -3));
}

static void A8_F13_work_that_fails_ends_dead_listed_and_retryable(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "2");
    uint64_t a = push(t, "k", "a"), b = push(t, "k", "b");
    must(fail_with(t, take(t), "one", 0));
    must(fail_with(t, take(t), "two\nlines", 0));
    expect_status(t, a, JOB_DEAD);
    assert_string_equal(reason_of(t, a, 1), "1: one");
    assert_string_equal(reason_of(t, a, 0), "2: two lines");
    assert_int_equal(look_stage(t, "s").dead, 1);
    assert_string_equal(take(t).body, "b"); // skip: the channel goes on
    crash(t);
    expect_status(t, a, JOB_DEAD);
    must(retry(t, a));
    expect_order(t, "k", "b a"); // to the tail
    assert_int_equal(look(t, a).attempt, 0);
    refused(MR_EINVAL, retry(t, b));
    expect_take(t, "b");
    expect_take(t, "a");
}

static void F13_never_means_dead_at_once(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "", "a");
    must(fail_with(t, take(t), "hopeless", MR_NEVER));
    expect_status(t, a, JOB_DEAD);
    must(drop(t, a)); // only a person forgets it
    refused(MR_EGONE, retry(t, a));
}

static void F13_a_job_may_have_its_own_number_of_attempts(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push_with(t, (struct push){ .body = mr_str("a"), .job.attempts = 1 });
    fail_job(t, take(t));
    expect_status(t, a, JOB_DEAD);
}

static void rule5_halt_parks_the_channel_until_retry_or_drop(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "1");
    set(t, "on-dead", "halt");
    uint64_t a = push(t, "k", "a");
    push(t, "k", "b");
    push(t, "l", "other");
    fail_job(t, take(t));
    expect_status(t, a, JOB_DEAD);
    expect_state(t, "k", CHANNEL_PARKED);
    expect_take(t, "other");
    pass_ms(t, 1000000000);
    expect_no_work(t);
    expect_held(t, "s", "halted");
    crash(t);
    expect_no_work(t);
    must(retry(t, a));
    expect_order(t, "k", "a b"); // to the head
    expect_take(t, "a");
    expect_take(t, "b");
}

static void rule5_dropping_the_dead_frees_a_halted_channel(void **state) {
    struct core_fixture *t = *state;
    set(t, "on-dead", "halt");
    uint64_t a = push(t, "k", "a");
    push(t, "k", "b");
    must(fail_with(t, take(t), "no", MR_NEVER));
    must(drop(t, a));
    expect_take(t, "b");
    expect_unknown(t, "k");
}

// Parking belongs to the head job: when that ends in any way the channel moves at once.
static void rule5_parking_ends_with_the_head(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    push(t, "k", "b");
    fail_job(t, take(t));
    assert_true(cancel(t, a));
    expect_state(t, "k", CHANNEL_READY);
    uint64_t b = take(t).id;
    lose(t, 0);
    push_with(t,
              (struct push){ .job.key = mr_str("k"), .body = mr_str("c"), .job.deadline_ms = 100 });
    fail_job(t, take(t));
    must(drop(t, b));
    expect_state(t, "k", CHANNEL_READY);
    fail_job(t, take(t));
    expect_state(t, "k", CHANNEL_PARKED);
    pass_ms(t, 100); // c expires
    expect_unknown(t, "k");
}

static void rule5_a_retried_job_has_no_deadline_and_needs_no_caller(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "", "a", 500);
    must(fail_with(t, take(t), "no", MR_NEVER));
    expect_events(t, "caller 0: a dead\n");
    must(retry(t, a));
    assert_int_equal(look(t, a).left_ms, -1);
    struct outcome o;
    assert_int_equal(await(t, 1, a, &o), MR_EAGAIN);
    hang_up(t, 1);
    pass_ms(t, 1000);
    expect_take(t, "a");
}

static void rule5_the_latest_ten_reasons_are_kept_cut_and_tidy(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "20");
    char text[700];
    uint64_t a = push(t, "", "a");
    for (int i = 0; i < 12; i++) {
        (void)snprintf(text, sizeof text, "reason %d %0590d", i, 0);
        must(fail_with(t, take(t), text, 0));
    }
    assert_memory_equal(reason_of(t, a, 0), "12: reason 11 000", 17);
    assert_memory_equal(reason_of(t, a, 9), "3: reason 2 00000", 17);
    assert_int_equal(strlen(reason_of(t, a, 0)), 512 + strlen("12: "));
}

// ---- Rule 6: leases and tokens ----------------------------------------------------------------

static void expect_powerless(struct core_fixture *t, struct taken old) {
    refused(MR_ESTALE, beat(t, old));
    refused(MR_ESTALE, fail_with(t, old, "late", 0));
    refused(MR_ESTALE, release_job(t, old));
    refused(MR_ESTALE, done_again(t, old));
}

// S4 and rule 6: a lost lease's token changes nothing, on any path, however it was lost.
static void F6_F7_a_late_done_of_delivery_one_does_not_end_delivery_two(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "1000");
    uint64_t id = push(t, "k", "a");
    struct taken first = take(t);
    pass_ms(t, 1000);
    expect_events(t, "stop a: ESTALE (connection 0)\n");
    expect_state(t, "k", CHANNEL_PARKED); // a failed attempt like others
    expect_powerless(t, first);
    pass_ms(t, 10000);
    struct taken second = take(t);
    assert_int_equal(second.attempt, 2);
    expect_powerless(t, first);
    expect_status(t, id, JOB_RUNNING);
    done_with(t, second, "mine", NULL);
    expect_powerless(t, first);
    assert_string_equal(core_fixture_read(t, look(t, id).at), "mine");
}

static void T10_a_taker_is_in_the_list_of_a_stage_only_once(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    mr_bytes stages[] = { mr_str("s"), mr_str("s") };
    struct take twice = { .stages = stages, .stage_count = 2, .conn = &t->conns[0] };
    struct grant grant;
    size_t count;
    refused(MR_EINVAL, core_take(t->core, &twice, &grant, &count));
    assert_int_equal(look_stage(t, "s").takers, 0);
    expect_take(t, "a");
}

// T13: the answer to a commit may be lost, so it is sent again until it comes, then more is taken.
static void T13_a_result_is_resent_until_acknowledged(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take(t);
    done_with(t, a, "42", NULL);
    done_with(t, a, "42", NULL);
    crash(t);
    done_with(t, a, "42", NULL);
    assert_int_equal(look_stage(t, "s").done, 1);
    expect_take(t, "b");
}

static void S4_no_token_is_issued_twice(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken first = take(t);
    must(release_job(t, first));
    struct taken second = take(t);
    expect_powerless(t, first);
    fail_with(t, second, "no", 0);
    struct taken third = take(t);
    expect_powerless(t, second);
    crash(t);
    struct taken fourth = take(t);
    assert_true(first.token.serial < second.token.serial);
    assert_true(second.token.serial < third.token.serial);
    assert_true(third.token.serial < fourth.token.serial);
    expect_powerless(t, third);
    struct taken guessed = fourth;
    guessed.token.random ^= 1;
    expect_powerless(t, guessed);
    done(t, fourth);
    refused(MR_ESTALE, done_again(t, guessed));
}

static void F4_killed_between_effect_and_done_it_runs_again_first(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take(t);
    crash(t);
    push(t, "k", "c");
    expect_powerless(t, a);
    expect_order(t, "k", "a b c");
    struct taken again = take(t);
    assert_string_equal(again.body, "a");
    assert_int_equal(again.attempt, 1); // no failed attempt was counted
}

static void F8_a_delay_longer_than_the_lease_is_just_a_delay(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "100");
    uint64_t a = push_with(t, (struct push){ .body = mr_str("a"), .job.delay_ms = 1000 });
    pass_ms(t, 999);
    expect_status(t, a, JOB_DELAYED);
    pass_ms(t, 1);
    assert_int_equal(take(t).attempt, 1);
}

static void F9_a_job_longer_than_its_lease_lives_by_beats(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "1000");
    push(t, "k", "a");
    struct taken a = take(t);
    for (int i = 0; i < 20; i++) {
        pass_ms(t, 999);
        must(beat(t, a));
    }
    done(t, a);
    push(t, "k", "b");
    struct taken b = take(t);
    must(beat(t, b));
    pass_ms(t, 1000);
    refused(MR_ESTALE, beat(t, b));
}

static void F10_one_stuck_job_holds_up_no_other_channel(void **state) {
    struct core_fixture *t = *state;
    push(t, "stuck", "a");
    take(t);
    push(t, "stuck", "b");
    push(t, "k", "c");
    push(t, "", "d");
    expect_take(t, "c");
    expect_take(t, "d");
    expect_no_work(t);
}

static void F11_a_disconnect_returns_work_at_once(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    take(t);
    lose(t, 0);
    expect_events(t, ""); // no connection is left to notify
    assert_int_equal(look(t, id).attempt, 1);
    assert_string_equal(reason_of(t, id, 0), "1: the worker's connection was lost");
    assert_int_equal(take(t).attempt, 2); // without backoff
}

static void F11_a_disconnect_may_be_the_last_attempt(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "1");
    uint64_t id = push(t, "k", "a");
    take(t);
    lose(t, 0);
    expect_status(t, id, JOB_DEAD);
}

// A full or failing log delays what it is to take down, but not beyond the end of the lease.
static void F11_a_disconnect_that_cannot_be_recorded_counts_soon(void **state) {
    struct core_fixture *t = *state;
    for (int64_t lease_ms = 40; lease_ms <= 4000; lease_ms *= 100) {
        struct taken a;
        uint64_t id = push(t, "", "a");
        assert_int_equal(try_take(t, (struct take){ .lease_ms = lease_ms }, &a), 1);
        t->refuse = MR_ESTOPPED;
        refused(MR_ESTOPPED, core_leave(t->core, &t->conns[0]));
        core_join(t->core, &t->conns[0]);
        expect_status(t, id, JOB_RUNNING);
        pass_ms(t, lease_ms < 100 ? 40 : 100);
        expect_status(t, id, JOB_WAITING);
        assert_string_equal(reason_of(t, id, 0), "1: the worker's connection was lost");
        must(drop(t, id));
    }
}

static void F12_orphans_return_without_a_restart(void **state) {
    struct core_fixture *t = *state;
    struct taken a;
    uint64_t id = push(t, "k", "a");
    assert_int_equal(try_take(t, (struct take){ .detached = true, .lease_ms = 5000 }, &a), 1);
    lose(t, 0);
    expect_status(t, id, JOB_RUNNING); // detached: it outlives its connection
    must(beat(t, a));
    pass_ms(t, 5000);
    expect_status(t, id, JOB_WAITING);
    assert_string_equal(reason_of(t, id, 0), "1: the lease ran out");
}

static void rule6_overlap_never_waits_out_the_lease(void **state) {
    struct core_fixture *t = *state;
    set(t, "overlap", "never");
    set(t, "lease", "1000");
    set(t, "backoff", "0");
    uint64_t id = push(t, "k", "a");
    struct taken a = take(t);
    pass_ms(t, 400);
    lose(t, 0);
    expect_no_work(t);
    expect_status(t, id, JOB_RUNNING);
    pass_ms(t, 600);
    assert_int_equal(take(t).attempt, 2);
    expect_powerless(t, a);
}

// ---- Leases that outlive the engine
// ---------------------------------------------------------------

static struct taken take_detached(struct core_fixture *t, int64_t lease_ms) {
    struct taken taken = { 0 };
    assert_int_equal(try_take(t, (struct take){ .detached = true, .lease_ms = lease_ms }, &taken),
                     1);
    return taken;
}

static void U21_overlap_never_holds_over_a_crash(void **state) {
    struct core_fixture *t = *state;
    set(t, "overlap", "never");
    set(t, "lease", "3000");
    set(t, "backoff", "0");
    push(t, "k", "a");
    push(t, "k", "b");
    take(t);
    pass_ms(t, 80);
    crash_noted(t);
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    pass_ms(t, 2919);
    expect_no_work(t);
    pass_ms(t, 1);
    assert_int_equal(take(t).attempt, 2); // it ran out, which counts once
}

static void U21_so_does_a_detached_lease_also_without_a_key(void **state) {
    struct core_fixture *t = *state;
    set(t, "backoff", "0");
    uint64_t id = push(t, "", "a");
    struct taken a = take_detached(t, 3000);
    pass_ms(t, 80);
    crash(t);
    expect_status(t, id, JOB_RUNNING);
    pass_ms(t, 2920);
    assert_int_equal(take(t).attempt, 2);
    expect_powerless(t, a);
}

static void U21_its_token_is_good_after_a_crash(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take_detached(t, 3000), forged = a;
    crash_noted(t);
    crash_noted(t);
    forged.token.random++;
    refused(MR_ESTALE, done_again(t, forged));
    done(t, a);
    crash(t);
    must(done_again(t, a));
    assert_string_equal(take(t).body, "b"); // nothing is held any more
}

static void expect_progress(struct core_fixture *t, uint64_t id, uint64_t done, const char *text) {
    struct job_info info;
    must(core_look_job(t->core, id, &info));
    assert_int_equal(info.has_progress, text != NULL);
    assert_int_equal(info.progress.done, done);
    assert_true(bytes_equal(info.progress.text, mr_str(text)));
}

static void G11_progress_is_a_beat_that_says_how_far_the_job_is(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "1000");
    set(t, "backoff", "0");
    uint64_t id = push(t, "k", "x");
    struct taken a = take(t);
    expect_progress(t, id, 0, NULL);
    pass_ms(t, 900);
    must(progress(t, a, 3, "attach\nments"));
    expect_progress(t, id, 3, "attach ments");
    pass_ms(t, 900);
    must(beat(t, a));
    expect_progress(t, id, 3, "attach ments"); // a plain beat says nothing new
    must(progress(t, a, 4, NULL));
    expect_progress(t, id, 4, "");
    pass_ms(t, 1000);
    refused(MR_ESTALE, progress(t, a, 5, "late"));
    expect_progress(t, id, 0, NULL);
    struct taken again = take(t);
    expect_progress(t, id, 0, NULL); // another attempt
    must(progress(t, again, 1, "anew"));
    done(t, again);
    expect_progress(t, id, 0, NULL);
}

static void G11_progress_is_of_one_job_of_a_block_and_not_recorded(void **state) {
    struct core_fixture *t = *state;
    uint64_t one = push(t, "k", "1"), two = push(t, "k", "2");
    struct taken a[2];
    assert_int_equal(take_block(t, 2, a), 2);
    must(progress(t, a[0], 1, "one"));
    expect_progress(t, one, 1, "one");
    expect_progress(t, two, 0, NULL);
    done(t, a[0]);
    size_t records = t->log_count;
    must(progress(t, a[1], 2, "two"));
    assert_int_equal(t->log_count, records);
    expect_progress(t, two, 2, "two");
    expect_progress(t, one, 0, NULL);
}

static void G11_a_text_is_cut_between_two_characters(void **state) {
    struct core_fixture *t = *state;
    char text[PROGRESS_MOST + 2];
    uint64_t id = push(t, "k", "x");
    struct taken a = take(t);
    memset(text, 'x', sizeof text);
    memcpy(text + PROGRESS_MOST - 1, "ü", 3); // its second byte is one too many
    must(progress(t, a, 1, text));
    text[PROGRESS_MOST - 1] = 0;
    expect_progress(t, id, 1, text);
}

static void U21_a_beat_is_recorded_before_it_is_answered(void **state) {
    struct core_fixture *t = *state;
    set(t, "backoff", "0");
    push(t, "k", "a");
    struct taken a = take_detached(t, 1000);
    pass_ms(t, 900);
    must(beat(t, a));
    crash(t);
    pass_ms(t, 999);
    expect_no_work(t);
    must(beat(t, a)); // also after it
    pass_ms(t, 999);
    expect_no_work(t);
    pass_ms(t, 1);
    assert_int_equal(take(t).attempt, 2);
}

static void U21_a_lease_that_is_over_holds_nothing(void **state) {
    struct core_fixture *t = *state;
    set(t, "overlap", "never");
    uint64_t id = push(t, "k", "a");
    must(release_job(t, take(t)));
    crash(t);
    must(fail_with(t, take(t), "no", 0));
    crash(t);
    struct taken a = take(t);
    push(t, "k", "b");
    cancel(t, id);
    crash(t);
    expect_no_work(t); // its worker does not know yet
    refused(MR_ECANCELLED, done_again(t, a));
    crash(t);
    expect_take(t, "b");
}

static void U21_a_block_is_held_as_far_as_it_was_leased(void **state) {
    struct core_fixture *t = *state;
    static const char *const bodies[] = { "a", "b", "c", "d" };
    struct taken out[4];
    set(t, "overlap", "never");
    for (int i = 0; i < 4; i++)
        push(t, "k", bodies[i]);
    assert_int_equal(take_block(t, 3, out), 3);
    done(t, out[0]);
    cancel(t, out[2].id);
    crash(t);
    expect_order(t, "k", "b d");
    expect_no_work(t);
    done(t, out[1]);
    crash(t);
    expect_take(t, "d");
}

static void U21_it_holds_no_job_that_was_delayed_until_the_same_instant(void **state) {
    struct core_fixture *t = *state;
    static const char *const bodies[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++)
        push_with(t, (struct push){
                         .job.key = mr_str("k"), .body = mr_str(bodies[i]), .job.delay_ms = 40 });
    pass_ms(t, 40);
    struct taken a = take_detached(t, 3000);
    crash(t);
    assert_int_equal(look_stage(t, "s").running, 1);
    done(t, a);
    expect_take(t, "b");
    expect_take(t, "c");
}

static void U21_when_the_end_passes_while_nothing_runs_no_attempt_is_counted(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    take_detached(t, 1000);
    t->now_ms += 1000;
    crash(t);
    assert_int_equal(take(t).attempt, 1);
}

static void U21_other_starts_write_nothing(void **state) {
    struct core_fixture *t = *state;
    struct taken out[2];
    push(t, "k", "a");
    push(t, "k", "b");
    assert_int_equal(take_block(t, 2, out), 2);
    done(t, out[0]);
    done(t, out[1]);
    set(t, "overlap", "never"); // nor do those of the engine's own process
    push(t, "k", "c");
    assert_int_equal(try_take(t, (struct take){ .in_process = true }, out), 1);
    assert_int_equal(records_of(t, RECORD_LEASE), 0);
    crash(t);
    assert_string_equal(take(t).body, "c");
}

static void U20_an_engine_that_closes_gives_back_uncounted(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, (struct push){ .body = mr_str("a"), .job.attempts = 1 });
    push(t, "k", "b");
    struct taken a = take(t), b = take_detached(t, 1000);
    core_give_back(t->core, &t->conns[0]);
    core_fixture_check(t->core, "given back");
    expect_status(t, id, JOB_WAITING);
    expect_powerless(t, a);
    lose(t, 0);
    crash(t);
    assert_int_equal(take(t).attempt, 1);
    expect_no_work(t);
    done(t, b);
}

// U16: to keep it would count an attempt.
static void U16_a_release_needs_no_memory(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    struct taken a = take(t);
    mem_fail_after(0);
    int err = core_release(t->core, a.id, &a.token, 0);
    mem_fail_after(-1);
    must(err);
    expect_status(t, id, JOB_WAITING);
    assert_int_equal(take(t).attempt, 1);
}

static void G9_snooze_keeps_place_and_attempts(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    push(t, "k", "b");
    push(t, "l", "c");
    must(fail_with(t, take(t), "once", 0));
    struct taken c = take(t), a = take(t);
    assert_string_equal(a.body, "a");
    must(snooze_job(t, a, 60000));
    expect_state(t, "k", CHANNEL_PARKED);
    expect_order(t, "k", "a b");
    assert_int_equal(look(t, id).due_ms, 60000);
    done(t, c);
    expect_no_work(t); // only its channel waits
    clean(t);
    crash(t);
    assert_int_equal(look(t, id).due_ms, 60000);
    pass_ms(t, 59999);
    expect_no_work(t);
    pass_ms(t, 1);
    a = take(t);
    assert_string_equal(a.body, "a");
    assert_int_equal(a.attempt, 2); // only the failure counts
    must(snooze_job(t, a, 1000));
    crash(t); // without a copy of the job
    expect_no_work(t);
    pass_ms(t, 1000);
    expect_take(t, "a");
    expect_take(t, "b");
}

static void G9_a_block_waits_with_the_job_that_snoozes(void **state) {
    struct core_fixture *t = *state;
    struct taken out[3];
    push(t, "k", "a");
    push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 3, out), 3);
    refused(MR_EINVAL, snooze_job(t, out[1], 1000)); // not its turn
    done(t, out[0]);
    must(snooze_job(t, out[1], 1000));
    refused(MR_ESTALE, done_again(t, out[2]));
    expect_order(t, "k", "b c");
    expect_no_work(t);
    pass_ms(t, 1000);
    expect_take(t, "b");
    expect_take(t, "c");
}

static void G9_a_snooze_ends_a_lease_that_outlives_the_engine(void **state) {
    struct core_fixture *t = *state;
    push_with(t, (struct push){ .body = mr_str("a"), .job.delay_ms = 10 });
    pass_ms(t, 10);
    struct taken a = take_detached(t, 5000);
    must(snooze_job(t, a, 60000));
    crash(t);
    refused(MR_ESTALE, done_again(t, a));
    pass_ms(t, 59999);
    expect_no_work(t);
    pass_ms(t, 1);
    assert_int_equal(take(t).attempt, 1);
}

static void G9_a_snooze_out_of_bounds_changes_nothing(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken a = take(t);
    refused(MR_EINVAL, snooze_job(t, a, -1));
    refused(MR_EINVAL, snooze_job(t, a, TIME_MOST_MS + 1));
    must(snooze_job(t, a, 1000));
    refused(MR_ESTALE, snooze_job(t, a, 1));
}

static void G9_a_snoozed_job_expires_and_can_be_cancelled(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, (struct push){ .job.key = mr_str("k"), .job.deadline_ms = 100 });
    uint64_t next = push(t, "k", "b");
    must(snooze_job(t, take(t), 1000));
    pass_ms(t, 100);
    expect_status(t, id, JOB_EXPIRED);
    expect_state(t, "k", CHANNEL_READY);
    must(snooze_job(t, take(t), 1000));
    assert_true(cancel(t, next));
    expect_unknown(t, "k");
}

static void rule6_release_counts_no_attempt_and_backs_off_to_a_second(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    must(release_job(t, take(t)));
    must(release_job(t, take(t))); // the first is free
    int64_t waited = 0;
    for (int i = 0; i < 12; i++) {
        int64_t due = look(t, id).due_ms;
        assert_true(due >= waited && due > 0 && due <= 1000);
        waited = due;
        pass_ms(t, (uint64_t)due);
        must(release_job(t, take(t)));
    }
    assert_int_equal(waited, 1000);
    pass_ms(t, 1000);
    struct taken a = take(t);
    assert_int_equal(a.attempt, 1);
    must(fail_with(t, a, "an attempt in between", 0));
    must(release_job(t, take(t)));
    expect_take(t, "a"); // at once again
}

static void rule6_any_connection_may_answer(void **state) {
    struct core_fixture *t = *state;
    struct taken a;
    push(t, "k", "a");
    assert_int_equal(try_take(t, (struct take){ .conn = &t->conns[1] }, &a), 1);
    lose(t, 0);
    must(beat(t, a));
    done(t, a);
    lose(t, 1);
    expect_unknown(t, "k");
}

static void rule6_a_take_may_say_how_long(void **state) {
    struct core_fixture *t = *state;
    struct taken a;
    push(t, "k", "a");
    assert_int_equal(try_take(t, (struct take){ .lease_ms = 50 }, &a), 1);
    assert_int_equal(a.lease_ms, 50);
    pass_ms(t, 50);
    refused(MR_ESTALE, done_again(t, a));
}

static void T14_unconfirmed_go_to_another_worker_confirmed_do_not(void **state) {
    struct core_fixture *t = *state;
    struct taken b[3], other[3];
    push(t, "k", "1");
    push(t, "k", "2");
    push(t, "k", "3");
    assert_int_equal(take_block(t, 3, b), 3);
    done(t, b[0]);
    lose(t, 0);
    struct take by_another = { .count = 3, .batch = 3, .conn = &t->conns[1] };
    assert_int_equal(try_take(t, by_another, other), 2);
    assert_string_equal(other[0].body, "2");
    assert_string_equal(other[1].body, "3");
}

static void T15_a_confirmation_arrives_even_if_the_worker_dies_afterwards(void **state) {
    struct core_fixture *t = *state;
    call(t, 0, "", "a", 0);
    struct taken a;
    assert_int_equal(try_take(t, (struct take){ .conn = &t->conns[1] }, &a), 1);
    done_with(t, a, "yes", NULL);
    expect_events(t, "caller 0: a done yes\n");
    lose(t, 1);
    crash(t);
    expect_status(t, a.id, JOB_DONE);
    expect_no_work(t);
}

// ---- Rule 22: poison --------------------------------------------------------------------------

static void rule22_what_kills_the_engine_dies_too(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "3");
    uint64_t id = push(t, "k", "a");
    push(t, "k", "b");
    for (uint32_t i = 1; i <= 3; i++) {
        struct taken a = take(t);
        assert_string_equal(a.body, "a");
        assert_int_equal(a.attempt, i);
        crash_noted(t);
    }
    expect_status(t, id, JOB_DEAD);
    assert_string_equal(reason_of(t, id, 0), "3: the engine died while it ran");
    expect_take(t, "b");
}

static void rule22_a_note_counts_once(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    take(t);
    crash_noted(t);
    assert_int_equal(look(t, id).attempt, 1);
    must(core_crashed(t->core, id, 1)); // it was counted
    must(core_crashed(t->core, 999999, 1));
    assert_int_equal(look(t, id).attempt, 1);
    done(t, take(t));
    must(core_crashed(t->core, id, 2)); // it has ended
    expect_status(t, id, JOB_DONE);
}

static void rule22_only_the_first_unanswered_of_a_block_is_noted(void **state) {
    struct core_fixture *t = *state;
    struct taken b[3];
    push(t, "k", "a");
    uint64_t second = push(t, "k", "b"), third = push(t, "k", "c");
    assert_int_equal(take_block(t, 3, b), 3);
    done(t, b[0]);
    crash_noted(t);
    assert_int_equal(look(t, second).attempt, 1);
    assert_int_equal(look(t, third).attempt, 0);
    expect_order(t, "k", "b c");
}

// The commits before it were lost in the crash, so jobs that had ended stand before it again.
static void rule22_a_channel_halts_where_the_killed_job_stood(void **state) {
    struct core_fixture *t = *state;
    struct taken block[3];
    set(t, "attempts", "1");
    set(t, "on-dead", "halt");
    uint64_t a = push(t, "k", "a"), b = push(t, "k", "b");
    push(t, "k", "c");
    crash(t);
    must(core_crashed(t->core, b, 1));
    expect_status(t, b, JOB_DEAD);
    expect_state(t, "k", CHANNEL_READY);
    assert_int_equal(take_block(t, 3, block), 1); // not past the dead one
    crash_noted(t);                               // and now the first dies too
    expect_status(t, a, JOB_DEAD);
    expect_state(t, "k", CHANNEL_PARKED);
    must(drop(t, a));
    expect_state(t, "k", CHANNEL_PARKED);
    expect_no_work(t);
    expect_held(t, "s", "halted");
    must(retry(t, b));
    expect_order(t, "k", "b c"); // in its place
    expect_take(t, "b");
    expect_take(t, "c");
    expect_unknown(t, "k");
}

static void rule22_what_halts_further_on_may_come_back_to_its_place(void **state) {
    struct core_fixture *t = *state;
    set(t, "attempts", "1");
    set(t, "on-dead", "halt");
    push(t, "k", "a");
    uint64_t b = push(t, "k", "b");
    push(t, "k", "c");
    must(core_crashed(t->core, b, 1));
    struct taken first = take(t);
    must(retry(t, b));
    expect_order(t, "k", "a b c");
    done(t, first);
    expect_take(t, "b");
    expect_take(t, "c");
}

// Engine time may not have advanced since: the latest failure sets when the job may start.
static void rule22_a_counted_note_ends_an_earlier_backoff(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    must(fail_with(t, take(t), "no", 5000));
    crash(t);
    must(core_crashed(t->core, a, 2));
    expect_state(t, "k", CHANNEL_READY);
    crash(t);
    expect_state(t, "k", CHANNEL_READY);
    assert_int_equal(take(t).attempt, 3);
}

static void rule22_a_peaceful_end_counts_nothing(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    must(release_job(t, take(t)));
    crash_noted(t);
    assert_int_equal(look(t, id).attempt, 0);
}

// An answer has a bound in bytes, beyond which at most the last job reaches; a state counts.
static void rule13_an_answer_is_bounded_in_bytes(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_take_bytes = 1000 });
    struct taken out[8];
    char body[401];
    (void)state;
    memset(body, 'x', 400);
    body[400] = 0;
    for (int i = 0; i < 4; i++)
        push(t, "k", body);
    for (int i = 0; i < 4; i++)
        push(t, "", body);
    mr_bytes stage = mr_str("s");
    struct take all = { .stages = &stage, .stage_count = 1, .count = 8, .batch = 8 };
    assert_int_equal(try_take(t, all, out), 3); // a block of the channel
    for (int i = 0; i < 3; i++)
        done_with(t, out[i], "", body);
    assert_int_equal(try_take(t, all, out), 3); // without a key
    all.count = 1;
    assert_int_equal(try_take(t, all, out), 1);
    all.count = 8;
    push(t, "", body);
    push(t, "", body);
    assert_int_equal(try_take(t, all, out), 2); // the last of the channel, with its state
    core_fixture_destroy(t);
}

// U4: many that die in one instant, the youngest first, do not visit one another.
static void U4_many_may_die_in_one_instant(void **state) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    enum { JOBS = 300, LOOKED = 64 };
    static struct taken jobs[JOBS];
    (void)state;
    t->unlike = true; // a restart sorts them
    for (int i = 0; i < JOBS; i++)
        push(t, "", "x");
    for (int i = 0; i < JOBS; i++)
        jobs[i] = take(t);
    (void)core_take_steps(t->core);
    for (int i = JOBS; i-- > 0;) {
        must(core_fail(t->core, jobs[i].id, &jobs[i].token, mr_str("no"), MR_NEVER));
        assert_true(core_take_steps(t->core) <= LOOKED);
    }
    assert_int_equal(look_stage(t, "s").dead, JOBS);
    core_fixture_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(S1_a_retry_stays_at_the_head_and_its_channel_is_parked),
        cmocka_unit_test(U4_many_may_die_in_one_instant),
        CORE_TEST(rule5_the_backoff_doubles_give_or_take_a_fifth),
        CORE_TEST(rule5_the_backoff_survives_a_crash),
        CORE_TEST(rule5_a_worker_may_say_when),
        CORE_TEST(A8_F13_work_that_fails_ends_dead_listed_and_retryable),
        CORE_TEST(F13_never_means_dead_at_once),
        CORE_TEST(F13_a_job_may_have_its_own_number_of_attempts),
        CORE_TEST(rule5_halt_parks_the_channel_until_retry_or_drop),
        CORE_TEST(rule5_dropping_the_dead_frees_a_halted_channel),
        CORE_TEST(rule5_parking_ends_with_the_head),
        CORE_TEST(rule5_a_retried_job_has_no_deadline_and_needs_no_caller),
        CORE_TEST(rule5_the_latest_ten_reasons_are_kept_cut_and_tidy),
        CORE_TEST(F6_F7_a_late_done_of_delivery_one_does_not_end_delivery_two),
        CORE_TEST(S4_no_token_is_issued_twice),
        CORE_TEST(T10_a_taker_is_in_the_list_of_a_stage_only_once),
        CORE_TEST(T13_a_result_is_resent_until_acknowledged),
        CORE_TEST(F4_killed_between_effect_and_done_it_runs_again_first),
        CORE_TEST(F8_a_delay_longer_than_the_lease_is_just_a_delay),
        CORE_TEST(F9_a_job_longer_than_its_lease_lives_by_beats),
        CORE_TEST(F10_one_stuck_job_holds_up_no_other_channel),
        CORE_TEST(F11_a_disconnect_returns_work_at_once),
        CORE_TEST(F11_a_disconnect_may_be_the_last_attempt),
        CORE_TEST(F11_a_disconnect_that_cannot_be_recorded_counts_soon),
        CORE_TEST(F12_orphans_return_without_a_restart),
        CORE_TEST(rule6_overlap_never_waits_out_the_lease),
        CORE_TEST(U21_overlap_never_holds_over_a_crash),
        CORE_TEST(U21_so_does_a_detached_lease_also_without_a_key),
        CORE_TEST(U21_its_token_is_good_after_a_crash),
        CORE_TEST(G11_progress_is_a_beat_that_says_how_far_the_job_is),
        CORE_TEST(G11_progress_is_of_one_job_of_a_block_and_not_recorded),
        CORE_TEST(G11_a_text_is_cut_between_two_characters),
        CORE_TEST(U21_a_beat_is_recorded_before_it_is_answered),
        CORE_TEST(U21_a_lease_that_is_over_holds_nothing),
        CORE_TEST(U21_a_block_is_held_as_far_as_it_was_leased),
        CORE_TEST(U21_it_holds_no_job_that_was_delayed_until_the_same_instant),
        CORE_TEST(U21_when_the_end_passes_while_nothing_runs_no_attempt_is_counted),
        CORE_TEST(U21_other_starts_write_nothing),
        CORE_TEST(U20_an_engine_that_closes_gives_back_uncounted),
        CORE_TEST(U16_a_release_needs_no_memory),
        CORE_TEST(G9_snooze_keeps_place_and_attempts),
        CORE_TEST(G9_a_block_waits_with_the_job_that_snoozes),
        CORE_TEST(G9_a_snooze_ends_a_lease_that_outlives_the_engine),
        CORE_TEST(G9_a_snooze_out_of_bounds_changes_nothing),
        CORE_TEST(G9_a_snoozed_job_expires_and_can_be_cancelled),
        CORE_TEST(rule6_release_counts_no_attempt_and_backs_off_to_a_second),
        CORE_TEST(rule6_any_connection_may_answer),
        CORE_TEST(rule6_a_take_may_say_how_long),
        CORE_TEST(T14_unconfirmed_go_to_another_worker_confirmed_do_not),
        CORE_TEST(T15_a_confirmation_arrives_even_if_the_worker_dies_afterwards),
        CORE_TEST(rule22_what_kills_the_engine_dies_too),
        CORE_TEST(rule22_a_note_counts_once),
        CORE_TEST(rule22_only_the_first_unanswered_of_a_block_is_noted),
        CORE_TEST(rule22_a_channel_halts_where_the_killed_job_stood),
        CORE_TEST(rule22_what_halts_further_on_may_come_back_to_its_place),
        CORE_TEST(rule22_a_counted_note_ends_an_earlier_backoff),
        CORE_TEST(rule22_a_peaceful_end_counts_nothing),
        CORE_TEST(rule13_an_answer_is_bounded_in_bytes),
    };
    return RUN_CORE_TESTS(tests);
}
