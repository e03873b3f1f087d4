// Ends: by a commit, which is all or nothing; by a deadline; by a caller that left; by CANCEL.
// Rules 7 to 11 and 16, on the bare core.
#include "support/core_fixture.h"

#include "base/mem.h"

// ---- Rule 7: deadlines ------------------------------------------------------------------------

static uint64_t push_until(struct core_fixture *t, const char *key, const char *body,
                           int64_t deadline_ms) {
    return push_with(t, (struct push){ .job.key = mr_str(key),
                                       .body = mr_str(body),
                                       .job.deadline_ms = deadline_ms });
}

static void rule7_not_started_by_its_deadline_a_job_never_is(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push_until(t, "k", "a", 100);
    push(t, "k", "b");
    pass_ms(t, 99);
    assert_int_equal(look(t, a).left_ms, 1);
    pass_ms(t, 1);
    expect_status(t, a, JOB_EXPIRED);
    expect_order(t, "k", "b");
    crash(t);
    expect_status(t, a, JOB_EXPIRED);
    expect_take(t, "b");
}

static void rule7_a_running_job_is_asked_to_stop_and_its_commit_refused_whole(void **state) {
    struct core_fixture *t = *state;
    push_until(t, "k", "a", 100);
    push(t, "k", "b");
    struct taken a = take(t);
    assert_int_equal(a.left_ms, 100);
    pass_ms(t, 100);
    expect_events(t, "stop a: EEXPIRED (connection 0)\n");
    refused(MR_EEXPIRED, beat(t, a));
    expect_state(t, "k", CHANNEL_IN_PROGRESS); // until the lease ends
    struct emit emit = { .stage = mr_str("s"), .body = mr_str("never") };
    struct done late = { .id = a.id,
                         .token = a.token,
                         .set_state = true,
                         .state = mr_str("never"),
                         .emits = &emit,
                         .emit_count = 1 };
    refused(MR_EEXPIRED, try_done(t, late));
    assert_int_equal(records_of(t, RECORD_STATE), 0);
    expect_take(t, "b");
    expect_no_work(t);
}

static void rule7_delayed_past_its_deadline_it_expires_on_time(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push_with(t, (struct push){ .job.key = mr_str("k"),
                                             .body = mr_str("a"),
                                             .job.delay_ms = 200,
                                             .job.deadline_ms = 100 });
    pass_ms(t, 100);
    expect_status(t, a, JOB_EXPIRED);
    expect_unknown(t, "k");
    pass_ms(t, 100);
    expect_no_work(t);
}

static void A8_the_limit_is_absolute_from_the_push(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "", "a", 1000);
    for (int i = 0; i < 9; i++) { // asking, failing and crashing do not prolong it
        pass_ms(t, 100);
        struct taken taken = take(t);
        assert_int_equal(taken.left_ms, 900 - 100 * i);
        must(fail_with(t, taken, "no", 0));
    }
    pass_ms(t, 99);
    crash(t);
    assert_int_equal(look(t, a).left_ms, 1);
    pass_ms(t, 1);
    expect_status(t, a, JOB_EXPIRED);
}

static void A8_a_waiter_never_outlives_its_job(void **state) {
    struct core_fixture *t = *state;
    struct outcome o;
    uint64_t a = call(t, 0, "", "a", 100), b = push(t, "", "b");
    assert_int_equal(await(t, 1, b, &o), MR_EAGAIN);
    pass_ms(t, 100); // at the deadline, not later
    expect_events(t, "caller 0: a expired\n");
    must(fail_with(t, take(t), "no", MR_NEVER));
    expect_events(t, "caller 1: b dead\n");
    must(await(t, 0, a, &o)); // what has ended is answered at once
    assert_int_equal(o.status, JOB_EXPIRED);
    refused(MR_EGONE, await(t, 0, 999999, &o));
}

// ---- Rule 8: interest -------------------------------------------------------------------------

// S3: the core knows at once that a caller has left, without a round trip.
static void A4_A5_an_unwanted_job_never_runs_and_frees_its_slot(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "", "a", 0);
    call(t, 1, "", "b", 0);
    hang_up(t, 0);
    expect_status(t, a, JOB_CANCELLED);
    expect_take(t, "b");
    expect_events(t, "caller 1: b done\n");
    expect_no_work(t);
}

static void A4_a_lost_connection_is_no_interest(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "", "a", 0);
    lose(t, 0);
    expect_status(t, a, JOB_CANCELLED);
    expect_events(t, "");
    expect_no_work(t);
}

static void A4_a_running_job_without_a_caller_is_asked_to_stop(void **state) {
    struct core_fixture *t = *state;
    call(t, 0, "", "a", 0);
    struct taken a;
    assert_int_equal(try_take(t, (struct take){ .conn = &t->conns[1] }, &a), 1);
    lose(t, 0);
    expect_events(t, "stop a: ECANCELLED (connection 1)\n");
    refused(MR_ECANCELLED, done_again(t, a));
}

static void rule8_a_call_lives_until_its_last_caller_goes(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "name", "a", 0);
    assert_int_equal(call(t, 1, "name", "a", 0), a);
    hang_up(t, 0);
    expect_status(t, a, JOB_WAITING);
    hang_up(t, 1);
    expect_status(t, a, JOB_CANCELLED);
}

static void rule8_a_plain_push_wants_it_for_good(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "name", "a", 0);
    assert_int_equal(push_once(t, "", "name", "a"), a);
    hang_up(t, 0);
    expect_status(t, a, JOB_WAITING);
    crash(t);
    pass_ms(t, 60000);
    expect_take(t, "a");
}

static void rule8_awaiting_never_takes_interest_away(void **state) {
    struct core_fixture *t = *state;
    struct outcome o;
    uint64_t a = push(t, "", "a");
    assert_int_equal(await(t, 0, a, &o), MR_EAGAIN);
    hang_up(t, 0);
    expect_status(t, a, JOB_WAITING);
    uint64_t b = call(t, 0, "", "b", 0);
    assert_int_equal(await(t, 1, b, &o), MR_EAGAIN);
    hang_up(t, 1);
    expect_status(t, b, JOB_WAITING);
}

static void rule8_after_a_restart_callers_have_a_grace_to_come_back(void **state) {
    struct core_fixture *t = *state;
    uint64_t gone = call(t, 0, "gone", "a", 0), back = call(t, 1, "back", "b", 0);
    uint64_t awaited = call(t, 2, "awaited", "c", 0);
    struct outcome o;
    crash(t);
    pass_ms(t, 9000);
    expect_status(t, gone, JOB_WAITING);
    assert_int_equal(call(t, 1, "back", "b", 0), back);
    assert_int_equal(await(t, 2, awaited, &o), MR_EAGAIN);
    pass_ms(t, 1000);
    expect_status(t, gone, JOB_CANCELLED);
    expect_status(t, back, JOB_WAITING);
    expect_status(t, awaited, JOB_WAITING);
    hang_up(t, 1); // the grace is over
    expect_status(t, back, JOB_CANCELLED);
}

static void rule8_a_caller_may_return_within_the_grace_time(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = call(t, 0, "name", "a", 0);
    crash(t);
    assert_int_equal(call(t, 0, "name", "a", 0), a);
    hang_up(t, 0);
    expect_status(t, a, JOB_WAITING);
    pass_ms(t, 10000);
    expect_status(t, a, JOB_CANCELLED);
}

static void A10_wasted_waiting_time_is_counted(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    push_until(t, "l", "b", 500);
    call(t, 0, "", "c", 0);
    pass_ms(t, 300);
    assert_true(cancel(t, a));
    assert_int_equal(look_stage(t, "s").wasted_wait_ms, 300);
    hang_up(t, 0);
    assert_int_equal(look_stage(t, "s").wasted_wait_ms, 600);
    pass_ms(t, 200);
    assert_int_equal(look_stage(t, "s").wasted_wait_ms, 1100);
    crash(t);
    assert_int_equal(look_stage(t, "s").wasted_wait_ms, 1100);
}

// ---- Rule 9: cancelling -----------------------------------------------------------------------

static void S2_a_cancelled_job_ends_in_place_and_is_skipped(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    uint64_t b = push(t, "k", "b"), c = push(t, "l", "c");
    push(t, "k", "d");
    assert_true(cancel(t, b));
    assert_true(cancel(t, c)); // emptied, l leaves ready
    assert_int_equal(look_stage(t, "s").ready, 1);
    assert_false(cancel(t, b)); // it has ended already
    expect_take(t, "a");
    expect_take(t, "d");
    expect_no_work(t);
}

static void rule9_a_delayed_job_is_cancelled_before_it_joins(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push_with(
        t, (struct push){ .job.key = mr_str("k"), .body = mr_str("a"), .job.delay_ms = 100 });
    assert_true(cancel(t, a));
    expect_unknown(t, "k");
    pass_ms(t, 100);
    expect_no_work(t);
}

static void rule9_nothing_a_cancelled_run_does_is_recorded(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take(t);
    assert_true(cancel(t, id));
    expect_events(t, "stop a: ECANCELLED (connection 0)\n");
    refused(MR_ECANCELLED, beat(t, a));
    size_t written = t->appends;
    refused(MR_ECANCELLED, fail_with(t, a, "stopped", 0)); // counts as letting go
    if (t->mode == MODE_PLAIN)
        assert_int_equal(t->appends, written);
    expect_status(t, id, JOB_CANCELLED);
    expect_take(t, "b");
}

// Also when the job is not known any more by then.
static void rule9_a_refused_end_ends_the_lease_although_the_job_is_removed(void **state) {
    struct core_fixture *t = *state;
    struct taken b[3];
    set(t, "retention", "0,0");
    uint64_t first = push(t, "k", "a"), second = push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 2, b), 2);
    assert_true(cancel(t, second));
    assert_true(cancel(t, first));
    refused(MR_EGONE, beat(t, b[0]));
    refused(MR_EGONE, done_again(t, b[0]));
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    refused(MR_EGONE, release_job(t, b[1]));
    expect_take(t, "c");
    uint64_t solo = push(t, "", "d");
    struct taken d = take(t);
    assert_true(cancel(t, solo));
    refused(MR_EGONE, done_again(t, d));
    assert_int_equal(t->conns[0].lease_count, 0);
}

static void rule9_a_worker_that_never_lets_go_loses_its_lease(void **state) {
    struct core_fixture *t = *state;
    set(t, "lease", "1000");
    uint64_t id = push(t, "k", "a");
    push(t, "k", "b");
    take(t);
    assert_true(cancel(t, id));
    expect_no_work(t);
    pass_ms(t, 1000);
    expect_take(t, "b");
    assert_int_equal(look_stage(t, "s").failed, 0);
}

static void rule9_what_has_ended_stays_as_it_ended(void **state) {
    struct core_fixture *t = *state;
    bool changed;
    uint64_t id = push(t, "k", "a");
    expect_take(t, "a");
    assert_false(cancel(t, id));
    expect_status(t, id, JOB_DONE);
    refused(MR_EGONE, core_cancel(t->core, 999999, &changed));
}

// ---- Rules 10 and 11: commits and state -------------------------------------------------------

// S7: input, state and output commit together, in one group of the log.
static void rule10_a_commit_is_one_group_of_records(void **state) {
    struct core_fixture *t = *state;
    if (t->mode != MODE_PLAIN)
        return; // the others write more
    uint64_t id = push(t, "k", "a");
    push_to(t, "next", "k", "known");
    struct taken a = take(t);
    struct emit emits[] = {
        { .stage = mr_str("next"), .job.key = mr_str("k"), .body = mr_str("b") },
        { .stage = mr_str("new"), .body = mr_str("c") }
    };
    size_t before = t->log_count;
    must(try_done(t, (struct done){ .id = id,
                                    .token = a.token,
                                    .result = mr_str("ok"),
                                    .set_state = true,
                                    .state = mr_str("1"),
                                    .emits = emits,
                                    .emit_count = 2 }));
    static const uint8_t kinds[] = { RECORD_STAGE, RECORD_END, RECORD_STATE, RECORD_PUSH,
                                     RECORD_PUSH };
    assert_int_equal(t->log_count - before, sizeof kinds);
    for (size_t i = 0; i < sizeof kinds; i++) {
        assert_int_equal(t->log[before + i].bytes[0], kinds[i]);
        assert_int_equal(t->log[before + i].last, i + 1 == sizeof kinds);
    }
    assert_string_equal(take_from(t, "new").body, "c");
}

static void E2_S6_a_commit_repeated_is_answered_as_the_first_time(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken a = take(t);
    done_emit(t, a, "out", "k", "b");
    for (int i = 0; i < 3; i++) {
        done_emit(t, a, "out", "k", "b"); // answered, not computed again
        crash(t);
    }
    assert_int_equal(look_stage(t, "out").pushed, 1);
    struct taken wrong = a;
    wrong.token.serial++;
    refused(MR_ESTALE, done_again(t, wrong));
    set(t, "retention", "1000");
    pass_ms(t, 1000);
    refused(MR_EGONE, done_again(t, a));
}

static void E4_a_crash_while_computing_computes_again_and_records_once(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    take(t);
    crash(t); // computed, but not committed
    struct taken again = take(t);
    done_emit(t, again, "out", "k", "b");
    crash(t); // recorded, the answer is lost
    done_emit(t, again, "out", "k", "b");
    assert_string_equal(take_from(t, "out").body, "b");
    assert_int_equal(look_stage(t, "out").pushed, 1);
    assert_int_equal(look_stage(t, "s").done, 1);
}

// A commit refused for its size has changed nothing and keeps the lease: it may be made smaller.
static void rule10_emits_are_bounded(void **state) {
    struct core_fixture *t = *state;
    static struct emit emits[1001];
    static char large[9 << 20];
    for (int i = 0; i < 1001; i++)
        emits[i] = (struct emit){ .stage = mr_str("out"), .body = mr_str("x") };
    push(t, "k", "a");
    struct taken a = take(t);
    struct done d = { .id = a.id, .token = a.token, .emits = emits, .emit_count = 1001 };
    refused(MR_ETOOBIG, try_done(t, d));
    emits[0].body = emits[1].body = bytes_of(large, sizeof large);
    d.emit_count = 2;
    refused(MR_ETOOBIG, try_done(t, d));
    emits[0] = (struct emit){ .stage = mr_str("no such name"), .body = mr_str("x") };
    d.emit_count = 1;
    refused(MR_EINVAL, try_done(t, d));
    must(beat(t, a));
    expect_status(t, a.id, JOB_RUNNING);
    done_emit(t, a, "out", "", "small enough");
    assert_int_equal(look_stage(t, "out").waiting, 1);
}

static void rule10_an_emit_may_be_named_and_is_then_made_once(void **state) {
    struct core_fixture *t = *state;
    struct emit emits[] = {
        { .stage = mr_str("out"), .job.once = mr_str("n"), .body = mr_str("b") },
        { .stage = mr_str("out"), .job.once = mr_str("n"), .body = mr_str("c") }
    };
    for (int i = 0; i < 2; i++) {
        push(t, "k", "a");
        struct taken a = take(t);
        must(try_done(
            t, (struct done){ .id = a.id, .token = a.token, .emits = emits, .emit_count = 2 }));
    }
    assert_int_equal(look_stage(t, "out").pushed, 1);
    assert_string_equal(take_from(t, "out").body, "b");
}

static void rule11_state_is_read_at_start_and_replaced_at_commit(void **state) {
    struct core_fixture *t = *state;
    char sum[8] = "";
    for (int i = 1; i <= 4; i++) {
        push(t, "k", "a");
        push(t, "l", "other");
        struct taken a = take(t);
        assert_string_equal(a.state, sum);
        (void)snprintf(sum, sizeof sum, "%d", i);
        done_with(t, a, "", sum);
        struct taken other = take(t);
        assert_string_equal(other.state, "");
        done(t, other); // does not set the state
        if (i == 2)
            crash(t);
    }
    push(t, "k", "a");
    struct taken a = take(t);
    must(fail_with(t, a, "a failed run leaves it alone", 0));
    done_with(t, take(t), "", "");
    expect_unknown(t, "k"); // an empty one deletes
    assert_int_equal(look_stage(t, "s").states, 0);
}

static void rule11_states_are_bounded_in_number_and_need_a_key(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-states", "1");
    push(t, "k", "a");
    push(t, "l", "b");
    push(t, "", "c");
    done_with(t, take(t), "", "one");
    struct taken b = take(t), c = take(t);
    struct done d = { .id = b.id, .token = b.token, .set_state = true, .state = mr_str("two") };
    refused(MR_EFULL, try_done(t, d));
    done(t, b);
    d = (struct done){ .id = c.id, .token = c.token, .set_state = true, .state = mr_str("x") };
    refused(MR_EINVAL, try_done(t, d));
    done(t, c);
    push(t, "k", "d");
    done_with(t, take(t), "", "replaced"); // one that is there may change
    assert_int_equal(look_stage(t, "s").states, 1);
}

static void rule11_states_may_have_a_time_to_live(void **state) {
    struct core_fixture *t = *state;
    set(t, "state-ttl", "1000");
    push(t, "k", "a");
    done_with(t, take(t), "", "one");
    pass_ms(t, 500);
    push(t, "l", "b");
    done_with(t, take(t), "", "two");
    crash(t); // nor do cleaning and opening make it younger
    pass_ms(t, 500);
    expect_unknown(t, "k");
    assert_int_equal(look_stage(t, "s").states, 1);
    pass_ms(t, 500);
    assert_int_equal(look_stage(t, "s").states, 0);
}

static void rule11_a_state_in_use_outlives_its_time(void **state) {
    struct core_fixture *t = *state;
    set(t, "state-ttl", "1000");
    push(t, "k", "a");
    push(t, "k", "b");
    done_with(t, take(t), "", "one");
    struct taken b = take(t);
    assert_string_equal(b.state, "one");
    t->unlike = true; // a restart would end the lease, and the state with it
    pass_ms(t, 1500);
    assert_int_equal(look_stage(t, "s").states, 1); // it may still be what b goes on from
    done(t, b);
    pass_ms(t, 1000);
    t->unlike = false;
    replay(t);
    assert_int_equal(look_stage(t, "s").states, 0);
}

static void rule11_a_state_whose_time_is_over_does_not_come_back(void **state) {
    struct core_fixture *t = *state;
    set(t, "state-ttl", "1000");
    push(t, "k", "a");
    done_with(t, take(t), "", "one");
    pass_ms(t, 1000);
    set(t, "state-ttl", "none");
    crash(t);
    push(t, "k", "b");
    assert_string_equal(take(t).state, "");
}

static void rule11_a_state_in_use_holds_up_no_other(void **state) {
    struct core_fixture *t = *state;
    set(t, "state-ttl", "1000");
    push(t, "k", "a");
    done_with(t, take(t), "", "one");
    push(t, "l", "b");
    done_with(t, take(t), "", "two");
    push(t, "k", "c");
    struct taken c = take(t);
    t->unlike = true; // a restart would end the lease, and the state with it
    pass_ms(t, 1000);
    expect_unknown(t, "l");
    assert_int_equal(look_stage(t, "s").states, 1);
    done(t, c);
}

// ---- Rule 16: results -------------------------------------------------------------------------

static void rule16_ended_jobs_are_kept_for_a_time(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "1000,100");
    uint64_t a = push(t, "k", "a"), b = push(t, "k", "b");
    done_with(t, take(t), "result", NULL);
    assert_true(cancel(t, b));
    pass_ms(t, 999);
    assert_string_equal(core_fixture_read(t, look(t, a).at), "result");
    expect_status(t, b, JOB_CANCELLED);
    pass_ms(t, 1);
    struct job_info j;
    refused(MR_EGONE, core_look_job(t->core, a, &j));
    refused(MR_EGONE, core_look_job(t->core, b, &j));
    assert_int_equal(look_stage(t, "s").done, 1); // counted for ever
}

static void rule16_and_up_to_a_count_oldest_first(void **state) {
    struct core_fixture *t = *state;
    struct job_info j;
    set(t, "retention", "1h,2");
    uint64_t ids[4];
    for (int i = 0; i < 4; i++) {
        ids[i] = push(t, "", "a");
        done(t, take(t));
    }
    refused(MR_EGONE, core_look_job(t->core, ids[1], &j));
    expect_status(t, ids[2], JOB_DONE);
    expect_status(t, ids[3], JOB_DONE);
    set(t, "retention", "1h,0");
    refused(MR_EGONE, core_look_job(t->core, ids[3], &j));
}

// A name outlives its job, which takes memory; while there is none the job stays.
static void rule16_without_memory_forgetting_waits_a_little(void **state) {
    struct core_fixture *t = *state;
    struct job_info j;
    uint64_t named = push_once(t, "k", "o", "a");
    expect_take(t, "a");
    push(t, "k", "b");
    expect_take(t, "b");
    t->unlike = true; // a restart would forget it
    mem_fail_after(0);
    must(core_set(t->core, mr_str("s"), mr_str("retention"), mr_str("1h,1")));
    assert_int_equal(mem_fail_after(-1), -1); // it has failed
    expect_status(t, named, JOB_DONE);
    pass_ms(t, 100);
    t->unlike = false;
    refused(MR_EGONE, core_look_job(t->core, named, &j));
    struct push again = { .job.key = mr_str("k"), .job.once = mr_str("o"), .body = mr_str("a") };
    struct pushed pushed = { 0 };
    must(try_push(t, again, &pushed));
    assert_true(pushed.repeat && pushed.id == named);
}

static void rule16_the_dead_are_not_ended_in_this_sense(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "0,0");
    uint64_t a = push(t, "k", "a");
    must(fail_with(t, take(t), "no", MR_NEVER));
    pass_ms(t, 1000000000);
    expect_status(t, a, JOB_DEAD);
    must(retry(t, a));
    expect_take(t, "a");
}

// A deadline holds also when the end could not be written down as it passed: what has not begun
// does not begin, and what runs is refused.
static void rule7_a_deadline_that_could_not_be_recorded_holds(void **state) {
    struct core_fixture *t = *state;
    t->mode = MODE_PLAIN;
    push_with(
        t, (struct push){ .job.key = mr_str("r"), .body = mr_str("runs"), .job.deadline_ms = 10 });
    struct taken running = take(t);
    push_with(t, (struct push){ .body = mr_str("waits"), .job.deadline_ms = 10 });
    push(t, "k", "first");
    push_with(
        t, (struct push){ .job.key = mr_str("k"), .body = mr_str("late"), .job.deadline_ms = 10 });
    push(t, "k", "last");
    t->full = t->unlike = true; // a restart would end them
    refused(MR_EFULL, core_advance(t->core, t->now_ms += 10));
    struct grant grant;
    size_t count;
    mr_bytes stage = mr_str("s");
    struct take none = { .stages = &stage, .stage_count = 1, .conn = &t->conns[0] };
    refused(MR_EFULL, core_take(t->core, &none, &grant, &count));
    struct done d = { .id = running.id, .token = running.token };
    refused(MR_EFULL, core_done(t->core, &d));
    t->full = false;
    refused(MR_EEXPIRED, try_done(t, d));
    struct taken block[3];
    assert_int_equal(take_block(t, 3, block), 1);
    assert_string_equal(block[0].body, "first");
    done(t, block[0]);
    expect_take(t, "last");
    expect_no_work(t);
    assert_int_equal(look_stage(t, "s").expired, 3);
}

// F19: the engine dies when the name of a forgotten job was copied to the tail of the log and its
// END was not trimmed yet. Both are read; then the END is trimmed.
static void F19_a_name_outlives_the_record_that_it_was_copied_from(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "0,0");
    uint64_t id = push_once(t, "k", "name", "a");
    done(t, take(t));
    size_t count = t->log_count, old = 0;
    uint64_t copies = t->log_end;
    for (size_t i = 0; i < count; i++) {
        struct core_fixture_entry k = t->log[i]; // the array may move
        must(core_clean(t->core, k.at, bytes_of(k.bytes, k.head_size),
                        bytes_of(k.bytes + k.head_size, k.body_size)));
    }
    crash(t);
    while (t->log[old].at < copies)
        old++;
    core_fixture_forget_log(t, old);
    clean(t);
    crash(t);
    struct push again = { .job = { .key = mr_str("k"), .once = mr_str("name") } };
    struct pushed pushed;
    again.body = mr_str("a");
    must(try_push(t, again, &pushed));
    assert_true(pushed.repeat);
    assert_int_equal(pushed.id, id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(F19_a_name_outlives_the_record_that_it_was_copied_from),
        CORE_TEST(rule7_not_started_by_its_deadline_a_job_never_is),
        CORE_TEST(rule7_a_running_job_is_asked_to_stop_and_its_commit_refused_whole),
        CORE_TEST(rule7_delayed_past_its_deadline_it_expires_on_time),
        CORE_TEST(A8_the_limit_is_absolute_from_the_push),
        CORE_TEST(A8_a_waiter_never_outlives_its_job),
        CORE_TEST(A4_A5_an_unwanted_job_never_runs_and_frees_its_slot),
        CORE_TEST(A4_a_lost_connection_is_no_interest),
        CORE_TEST(A4_a_running_job_without_a_caller_is_asked_to_stop),
        CORE_TEST(rule8_a_call_lives_until_its_last_caller_goes),
        CORE_TEST(rule8_a_plain_push_wants_it_for_good),
        CORE_TEST(rule8_awaiting_never_takes_interest_away),
        CORE_TEST(rule8_after_a_restart_callers_have_a_grace_to_come_back),
        CORE_TEST(rule8_a_caller_may_return_within_the_grace_time),
        CORE_TEST(A10_wasted_waiting_time_is_counted),
        CORE_TEST(S2_a_cancelled_job_ends_in_place_and_is_skipped),
        CORE_TEST(rule9_a_delayed_job_is_cancelled_before_it_joins),
        CORE_TEST(rule9_nothing_a_cancelled_run_does_is_recorded),
        CORE_TEST(rule9_a_refused_end_ends_the_lease_although_the_job_is_removed),
        CORE_TEST(rule9_a_worker_that_never_lets_go_loses_its_lease),
        CORE_TEST(rule9_what_has_ended_stays_as_it_ended),
        CORE_TEST(rule10_a_commit_is_one_group_of_records),
        CORE_TEST(E2_S6_a_commit_repeated_is_answered_as_the_first_time),
        CORE_TEST(E4_a_crash_while_computing_computes_again_and_records_once),
        CORE_TEST(rule10_emits_are_bounded),
        CORE_TEST(rule10_an_emit_may_be_named_and_is_then_made_once),
        CORE_TEST(rule11_state_is_read_at_start_and_replaced_at_commit),
        CORE_TEST(rule11_states_are_bounded_in_number_and_need_a_key),
        CORE_TEST(rule11_states_may_have_a_time_to_live),
        CORE_TEST(rule11_a_state_in_use_outlives_its_time),
        CORE_TEST(rule11_a_state_whose_time_is_over_does_not_come_back),
        CORE_TEST(rule11_a_state_in_use_holds_up_no_other),
        CORE_TEST(rule16_ended_jobs_are_kept_for_a_time),
        CORE_TEST(rule16_and_up_to_a_count_oldest_first),
        CORE_TEST(rule16_without_memory_forgetting_waits_a_little),
        CORE_TEST(rule16_the_dead_are_not_ended_in_this_sense),
        CORE_TEST(rule7_a_deadline_that_could_not_be_recorded_holds),
    };
    return RUN_CORE_TESTS(tests);
}
