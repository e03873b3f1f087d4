// Channels: how jobs of a key queue, start and end, without an effect on other channels. The rows C
// and T of the acceptance table, on the bare core; each test runs in the modes of core_fixture.h.
#include "support/core_fixture.h"

// ---- C: the three states, and parked ----------------------------------------------------------

// Each state is reached, one at a time; core_check sees after every command that the states
// partition the channels, that ready has no repeats, and that dormant means no work.
static void C1_states_partition_the_channels(void **state) {
    struct core_fixture *t = *state;
    set(t, "backoff", "100");
    expect_unknown(t, "k");
    push(t, "k", "a");
    expect_state(t, "k", CHANNEL_READY);
    struct taken a = take(t);
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    fail_job(t, a);
    expect_state(t, "k", CHANNEL_PARKED);
    pass_ms(t, 200);
    expect_state(t, "k", CHANNEL_READY);
    expect_take(t, "a");
    expect_state(t, "k", CHANNEL_DORMANT);
    assert_int_equal(look_stage(t, "s").ready, 0);
}

static void C2_deliver_to_dormant_makes_ready_at_the_tail(void **state) {
    struct core_fixture *t = *state;
    push(t, "j", "first");
    push(t, "k", "a");
    expect_state(t, "k", CHANNEL_READY);
    expect_order(t, "k", "a");
    expect_order(t, "j", "first");
    expect_take(t, "first");
    expect_take(t, "a");
}

static void C2_deliver_to_ready_changes_no_place(void **state) {
    struct core_fixture *t = *state;
    push(t, "j", "first");
    push(t, "k", "a");
    push(t, "j", "again");
    assert_int_equal(look_stage(t, "s").ready, 2);
    expect_order(t, "j", "first again");
    expect_order(t, "k", "a");
    expect_take(t, "first");
    expect_take(t, "a");
    expect_take(t, "again");
}

static void C2_deliver_to_in_progress_moves_nothing(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken a = take(t);
    push(t, "k", "b");
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    assert_int_equal(look_stage(t, "s").ready, 0);
    expect_order(t, "k", "a b");
    done(t, a);
}

static void C2_deliver_to_parked_moves_nothing(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    fail_job(t, take(t));
    push(t, "k", "b");
    expect_state(t, "k", CHANNEL_PARKED);
    expect_order(t, "k", "a b");
    expect_no_work(t);
}

static void C3_start_takes_the_head_of_the_head_and_changes_no_other_channel(void **state) {
    struct core_fixture *t = *state;
    expect_no_work(t);
    push(t, "j", "a");
    push(t, "j", "b");
    push(t, "k", "c");
    struct taken a = take(t);
    assert_string_equal(a.body, "a");
    expect_state(t, "j", CHANNEL_IN_PROGRESS);
    expect_state(t, "k", CHANNEL_READY);
    expect_order(t, "k", "c");
    struct taken c = take(t);
    assert_string_equal(c.body, "c");
    expect_no_work(t);
    done(t, a);
    done(t, c);
}

static void C4_a_channel_emptied_by_start_is_not_dormant_until_end(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken a = take(t);
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    push(t, "k", "b");
    expect_no_work(t);
    done(t, a);
    expect_take(t, "b");
    expect_state(t, "k", CHANNEL_DORMANT);
}

// Not even when the only job is cancelled meanwhile: the worker has not let go.
static void C4_nor_when_its_only_job_is_cancelled(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "k", "a");
    struct taken a = take(t);
    assert_true(cancel(t, id));
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    push(t, "k", "b");
    expect_no_work(t);
    refused(MR_ECANCELLED, done_again(t, a));
    expect_take(t, "b");
}

static void C5_end_makes_an_empty_channel_dormant_and_leaves_ready_alone(void **state) {
    struct core_fixture *t = *state;
    push(t, "j", "a");
    push(t, "k", "b");
    push(t, "l", "c");
    done(t, take(t));
    expect_unknown(t, "j");
    assert_int_equal(look_stage(t, "s").ready, 2);
    expect_take(t, "b");
    expect_take(t, "c");
}

static void C5_end_with_work_left_goes_to_the_tail_of_ready(void **state) {
    struct core_fixture *t = *state;
    push(t, "j", "a");
    push(t, "j", "d");
    push(t, "k", "b");
    push(t, "l", "c");
    done(t, take(t));
    expect_state(t, "j", CHANNEL_READY);
    expect_take(t, "b");
    expect_take(t, "c");
    expect_take(t, "d");
}

static void C5_end_is_only_for_channels_in_progress(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    struct taken a = take(t);
    done(t, a);
    must(done_again(t, a)); // the same commit: answered again, not done again
    refused(MR_ESTALE, fail_with(t, a, "late", 0));
    refused(MR_ESTALE, release_job(t, a));
    expect_state(t, "k", CHANNEL_READY);
    expect_order(t, "k", "b");
}

static void C6_in_the_beginning_there_is_nothing(void **state) {
    struct core_fixture *t = *state;
    struct stage_info s;
    refused(MR_EGONE, core_look_stage(t->core, mr_str("s"), &s));
    assert_int_equal(core_stage_count(t->core), 0);
    expect_no_work(t); // and asking for some makes none
    assert_int_equal(core_stage_count(t->core), 0);
    assert_int_equal(core_next(t->core), UINT64_MAX);
}

static void C7_any_number_of_workers_and_none_overtakes(void **state) {
    struct core_fixture *t = *state;
    enum { KEYS = 3, EACH = 4 };
    static const char *const keys[KEYS] = { "i", "j", "k" };
    for (int n = 0; n < EACH; n++)
        for (int k = 0; k < KEYS; k++)
            push(t, keys[k], (const char[]){ keys[k][0], (char)('0' + n), 0 });
    for (int n = 0; n < EACH; n++) {
        struct taken held[KEYS];
        for (int k = 0; k < KEYS; k++) {
            held[k] = take(t); // as many at once as there are keys, in turn
            assert_int_equal(held[k].body[0], keys[k][0]);
            assert_int_equal(held[k].body[1], '0' + n);
        }
        expect_no_work(t);
        for (int k = 0; k < KEYS; k++)
            done(t, held[k]);
    }
}

// ---- C8: what the text left open --------------------------------------------------------------

static void C8_a_channel_comes_with_its_first_job_and_goes_with_its_last(void **state) {
    struct core_fixture *t = *state;
    expect_unknown(t, "k");
    push(t, "k", "a");
    expect_take(t, "a");
    expect_unknown(t, "k");
}

static void C8_a_channel_with_state_is_known_while_dormant(void **state) {
    struct core_fixture *t = *state;
    struct channel_info info;
    push(t, "k", "a");
    done_with(t, take(t), "", "kept");
    must(core_look_channel(t->core, mr_str("s"), mr_str("k"), &info));
    assert_int_equal(info.state, CHANNEL_DORMANT);
    assert_true(info.has_state);
    push(t, "k", "b");
    done_with(t, take(t), "", "");
    expect_unknown(t, "k");
}

static void C8_a_cancelled_only_job_leaves_no_empty_ready_channel(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    push(t, "l", "b");
    assert_true(cancel(t, a));
    expect_unknown(t, "k");
    assert_int_equal(look_stage(t, "s").ready, 1);
    expect_take(t, "b");
}

static void C8_a_failed_job_keeps_its_place(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    must(fail_with(t, take(t), "again", 0));
    expect_order(t, "k", "a b");
    expect_take(t, "a");
    expect_take(t, "b");
}

static void C8_removing_a_job_wakes_its_callers(void **state) {
    struct core_fixture *t = *state;
    struct outcome o;
    uint64_t a = push(t, "k", "a"), b = push(t, "k", "b");
    assert_int_equal(await(t, 0, a, &o), MR_EAGAIN);
    must(drop(t, a));
    expect_events(t, "caller 0: a cancelled\n");
    refused(MR_EGONE, drop(t, a));
    struct taken taken = take(t);
    assert_int_equal(taken.id, b);
    refused(MR_EBUSY, drop(t, b));
    done(t, taken);
    refused(MR_EINVAL, drop(t, b));
}

// ---- C9: blocks -------------------------------------------------------------------------------

static void C9_a_block_is_the_front_of_one_channel(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    push(t, "k", "b");
    push(t, "k", "c");
    push(t, "l", "other");
    assert_int_equal(take_block(t, 2, b), 2);
    assert_string_equal(b[0].body, "a");
    assert_string_equal(b[1].body, "b");
    assert_int_equal(b[0].token.serial, b[1].token.serial);
    expect_take(t, "other");
    expect_no_work(t);
    refused(MR_EINVAL, done_again(t, b[1])); // in order
    done(t, b[0]);
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    done(t, b[1]);
    expect_state(t, "k", CHANNEL_READY);
    expect_take(t, "c");
}

static void C9_a_failure_inside_loses_no_later_job(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    uint64_t second = push(t, "k", "b"), third = push(t, "k", "c");
    assert_int_equal(take_block(t, 3, b), 3);
    done(t, b[0]);
    must(fail_with(t, b[1], "no", 0));
    refused(MR_ESTALE, done_again(t, b[2]));
    expect_order(t, "k", "b c");
    assert_int_equal(look(t, second).attempt, 1);
    assert_int_equal(look(t, third).attempt, 0); // uncounted
    expect_take(t, "b");
    expect_take(t, "c");
}

static void C9_the_block_is_given_back_whole(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    uint64_t first = push(t, "k", "a"), second = push(t, "k", "b");
    assert_int_equal(take_block(t, 4, b), 2);
    must(release_job(t, b[0]));
    assert_int_equal(look(t, first).attempt, 0);
    assert_int_equal(take_block(t, 4, b), 2);
    lose(t, 0);
    assert_int_equal(look(t, first).attempt, 1);
    assert_int_equal(look(t, second).attempt, 0);
    expect_order(t, "k", "a b");
}

static void C9_one_cancelled_inside_is_skipped(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    uint64_t second = push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 3, b), 3);
    assert_true(cancel(t, second));
    expect_events(t, "stop b: ECANCELLED (connection 0)\n");
    done(t, b[0]);
    refused(MR_ECANCELLED, done_again(t, b[1]));
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    done(t, b[2]);
    expect_state(t, "k", CHANNEL_DORMANT);
}

static void C9_or_passed_over_in_silence(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    uint64_t second = push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 3, b), 3);
    done(t, b[0]);
    assert_true(cancel(t, second));
    done(t, b[2]);
    expect_unknown(t, "k");
}

// What cannot be read stops what is behind it, not what is before it; then it comes first, and
// dies.
static void C9_an_unreadable_job_does_not_affect_others(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    uint64_t second = push(t, "k", "b"), third = push(t, "k", "c");
    assert_int_equal(take_block(t, 4, b), 3);
    must(find_unreadable(t, b[1]));
    expect_status(t, second, JOB_WAITING);
    expect_status(t, third, JOB_WAITING);
    refused(MR_ESTALE, done_again(t, b[1]));
    refused(MR_ESTALE, beat(t, b[2]));
    must(beat(t, b[0]));
    expect_state(t, "k", CHANNEL_IN_PROGRESS);
    must(release_job(t, b[0]));
    assert_int_equal(take_block(t, 4, b), 1); // never again in the middle of a block
    done(t, b[0]);
    expect_state(t, "k", CHANNEL_READY);
    assert_int_equal(take_block(t, 4, b), 2);
    must(find_unreadable(t, b[0]));
    expect_status(t, second, JOB_DEAD);
    assert_string_equal(reason_of(t, second, 0), "1: damaged");
    refused(MR_ESTALE, done_again(t, b[1]));
    assert_int_equal(look(t, third).attempt, 0);
    expect_take(t, "c");
    refused(MR_ESTALE, find_unreadable(t, b[1]));
}

// Also if it was ended by others before that was found out: those behind it were not handed out.
static void C9_an_unreadable_cancelled_job_releases_the_rest(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    uint64_t first = push(t, "k", "a");
    push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 4, b), 3);
    assert_true(cancel(t, first));
    must(find_unreadable(t, b[0]));
    expect_state(t, "k", CHANNEL_READY);
    assert_int_equal(take_block(t, 4, b), 2);
    assert_int_equal(b[0].attempt, 1);
    assert_true(cancel(t, b[1].id));
    must(find_unreadable(t, b[1]));
    done(t, b[0]);
    expect_unknown(t, "k");
}

// Rule 3: state comes with the first; the worker carries it along.
static void C9_state_comes_with_the_first_of_a_block(void **state) {
    struct core_fixture *t = *state;
    struct taken b[4];
    push(t, "k", "a");
    done_with(t, take(t), "", "one");
    push(t, "k", "b");
    push(t, "k", "c");
    assert_int_equal(take_block(t, 2, b), 2);
    assert_string_equal(b[0].state, "one");
    assert_string_equal(b[1].state, "");
    done_with(t, b[0], "", "two");
    done_with(t, b[1], "", "three");
    push(t, "k", "d");
    assert_string_equal(take(t).state, "three");
}

// ---- T: what the originals test ---------------------------------------------------------------

static void T2_the_first_delivery_makes_ready_the_second_does_not_again(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    assert_int_equal(look_stage(t, "s").ready, 1);
    push(t, "k", "b");
    assert_int_equal(look_stage(t, "s").ready, 1);
}

static void T3_items_leave_in_order_and_then_there_is_no_work(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "k", "b");
    push(t, "k", "c");
    expect_take(t, "a");
    expect_take(t, "b");
    expect_take(t, "c");
    expect_no_work(t);
}

static void T4_what_arrives_in_progress_is_not_ready_until_the_end(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    struct taken a = take(t);
    push(t, "k", "b");
    assert_int_equal(look_stage(t, "s").ready, 0);
    done(t, a);
    assert_int_equal(look_stage(t, "s").ready, 1);
}

static void T5_a_block_of_three_takes_key_ones_two_jobs_then_key_two(void **state) {
    struct core_fixture *t = *state;
    struct taken b[3];
    push(t, "one", "a");
    push(t, "two", "c");
    push(t, "one", "b");
    assert_int_equal(take_block(t, 3, b), 3);
    assert_string_equal(b[0].body, "a");
    assert_string_equal(b[1].body, "b");
    assert_string_equal(b[2].body, "c");
    assert_int_equal(b[0].token.serial, b[1].token.serial);
    assert_true(b[2].token.serial != b[0].token.serial);
}

static int first_job(void *out_id, const struct job_info *j) {
    *(uint64_t *)out_id = j->id;
    return 1;
}

static void remove_key(struct core_fixture *t, const char *key) {
    uint64_t id;
    while (core_each_job(t->core, mr_str("s"), mr_str(key), first_job, &id) == 1)
        must(drop(t, id));
}

static void T6_removing_a_key_drops_its_work_only(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "l", "b");
    push(t, "k", "c");
    remove_key(t, "k");
    expect_unknown(t, "k");
    expect_take(t, "b");
    expect_no_work(t);
}

static void T7_removing_all_leaves_nothing(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "a");
    push(t, "l", "b");
    remove_key(t, "k");
    remove_key(t, "l");
    expect_no_work(t);
    struct stage_info s = look_stage(t, "s");
    assert_int_equal(s.waiting + s.running + s.ready + s.delayed + s.dead, 0);
}

// ---- Rule 17 ----------------------------------------------------------------------------------

static void rule17_ready_channels_take_turns_at_any_depth(void **state) {
    struct core_fixture *t = *state;
    push(t, "deep", "d1");
    push(t, "deep", "d2");
    push(t, "deep", "d3");
    push(t, "flat", "f1");
    push(t, "", "alone");
    push(t, "flat", "f2");
    expect_take(t, "d1");
    expect_take(t, "f1");
    expect_take(t, "alone");
    expect_take(t, "d2");
    expect_take(t, "f2");
    expect_take(t, "d3");
}

// What had its turn and did not use it (released, connection lost) is first again.
static void rule17_what_comes_back_unserved_is_first_again(void **state) {
    struct core_fixture *t = *state;
    push(t, "j", "a");
    push(t, "k", "b");
    must(release_job(t, take(t)));
    assert_string_equal(take(t).body, "a");
    lose(t, 0);
    expect_take(t, "a");
    expect_take(t, "b");
}

static void rule17_stages_named_first_are_served_first(void **state) {
    struct core_fixture *t = *state;
    struct taken b[3];
    mr_bytes stages[] = { mr_str("urgent"), mr_str("calm") };
    push_to(t, "calm", "", "c");
    push_to(t, "urgent", "", "u1");
    push_to(t, "urgent", "", "u2");
    struct take both = { .stages = stages, .stage_count = 2, .count = 3 };
    assert_int_equal(try_take(t, both, b), 3);
    assert_string_equal(b[0].body, "u1");
    assert_string_equal(b[1].body, "u2");
    assert_string_equal(b[2].body, "c");
}

// ---- Much that is due at once -----------------------------------------------------------------

enum { PIECE = 3 };

static struct core_fixture *core_fixture_in_pieces(void) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_due = PIECE });
    t->unlike = true; // a restart does all that is due
    return t;
}

static uint64_t push_delayed(struct core_fixture *t, const char *key, const char *body) {
    return push_with(
        t, (struct push){ .job.key = mr_str(key), .body = mr_str(body), .job.delay_ms = 10 });
}

// U4: what is due at one instant is done in pieces, in order, and nothing is lost. The clock does
// not wait for it.
static void U4_what_is_due_at_once_is_done_in_pieces(void **state) {
    struct core_fixture *t = core_fixture_in_pieces();
    enum { JOBS = 10 };
    uint64_t ids[JOBS];
    char body[8];
    (void)state;
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(body, sizeof body, "%d", i);
        ids[i] = push_delayed(t, "", body);
    }
    t->now_ms += 5; // the core advances late
    for (int done = 0; done < JOBS; done += PIECE) {
        pass_ms(t, done ? 0 : 10);
        assert_int_equal(core_now(t->core), t->now_ms);
        for (int i = 0; i < JOBS; i++)
            expect_status(t, ids[i], i < done + PIECE ? JOB_WAITING : JOB_DELAYED);
        assert_true((core_next(t->core) <= t->now_ms) == (done + PIECE < JOBS));
    }
    for (int i = 0; i < JOBS; i++) {
        (void)snprintf(body, sizeof body, "%d", i);
        expect_take(t, body);
    }
    core_fixture_destroy(t);
}

// U4: what comes for a channel meanwhile stands behind what was due before, over a crash, too.
static void U4_a_channel_is_in_order_while_much_is_due(void **state) {
    struct core_fixture *t = core_fixture_in_pieces();
    (void)state;
    push(t, "dead", "x");
    must(fail_with(t, take(t), "no", MR_NEVER));
    for (int i = 0; i < 5; i++)
        push_delayed(t, "k", (const char *[]){ "a", "b", "c", "d", "e" }[i]);
    uint64_t delayed = push_delayed(t, "dead", "y");
    pass_ms(t, 10);
    expect_order(t, "k", "a b c");
    push(t, "k", "f");
    push(t, "other", "g");
    expect_order(t, "other", "g"); // nothing can be due there
    struct taken a = take(t);
    done_emit(t, a, "s", "k", "emitted"); // seen as ?
    expect_order(t, "k", "b c");
    refused(MR_EFULL, core_retry(t->core, 1));
    pass_ms(t, 0);
    expect_order(t, "k", "b c d e");
    expect_status(t, delayed, JOB_WAITING);
    push(t, "k", "i"); // behind those two, which are not there yet
    expect_order(t, "k", "b c d e");
    pass_ms(t, 1);
    expect_order(t, "k", "b c d e f ? i");
    pass_ms(t, 1);
    push(t, "k", "j");
    must(core_retry(t->core, 1));
    crash(t);
    expect_order(t, "k", "b c d e f ? i j");
    expect_order(t, "dead", "y x");
    core_fixture_destroy(t);
}

// U4: deadlines that have passed hold although their timers did not come round yet.
static void U4_deadlines_hold_while_much_is_due(void **state) {
    struct core_fixture *t = core_fixture_in_pieces();
    enum { JOBS = 3 * PIECE };
    uint64_t ids[JOBS];
    struct push p = { .body = mr_str("late"), .job.deadline_ms = 10 };
    (void)state;
    for (int i = 0; i < JOBS; i++)
        ids[i] = push_with(t, p);
    struct taken first = take(t);
    push(t, "", "good");
    pass_ms(t, 10);
    expect_take(t, "good");
    refused(MR_EEXPIRED, try_done(t, (struct done){ .id = first.id, .token = first.token }));
    for (int i = 0; i < JOBS; i++)
        expect_status(t, ids[i], JOB_EXPIRED);
    core_fixture_destroy(t);
}

// U4: so it is with leases that run out, backoffs, and what is forgotten.
static void U4_other_timers_ring_in_pieces(void **state) {
    struct core_fixture *t = core_fixture_in_pieces();
    enum { JOBS = 2 * PIECE + 1 };
    uint64_t ids[JOBS];
    (void)state;
    set(t, "lease", "1s");
    set(t, "retention", "1h");
    for (int i = 0; i < JOBS; i++)
        ids[i] = push(t, "", "x");
    for (int i = 0; i < JOBS; i++)
        (void)take(t);
    pass_ms(t, 1000);
    assert_int_equal(look_stage(t, "s").running, JOBS - PIECE);
    pass_ms(t, 0);
    pass_ms(t, 0);
    assert_int_equal(look_stage(t, "s").running, 0);
    for (int i = 0; i < 100 && look_stage(t, "s").parked; i++)
        pass_ms(t, 1000);
    for (int i = 0; i < JOBS; i++)
        expect_take(t, "x");
    pass_ms(t, 3600000);
    size_t known = 0;
    struct job_info info;
    for (int i = 0; i < JOBS; i++)
        known += core_look_job(t->core, ids[i], &info) == 0;
    assert_true(known >= JOBS - PIECE - 1);
    for (int i = 0; i < JOBS; i++)
        pass_ms(t, 1);
    for (int i = 0; i < JOBS; i++)
        refused(MR_EGONE, core_look_job(t->core, ids[i], &info));
    core_fixture_destroy(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(C1_states_partition_the_channels),
        CORE_TEST(C2_deliver_to_dormant_makes_ready_at_the_tail),
        CORE_TEST(C2_deliver_to_ready_changes_no_place),
        CORE_TEST(C2_deliver_to_in_progress_moves_nothing),
        CORE_TEST(C2_deliver_to_parked_moves_nothing),
        CORE_TEST(C3_start_takes_the_head_of_the_head_and_changes_no_other_channel),
        CORE_TEST(C4_a_channel_emptied_by_start_is_not_dormant_until_end),
        CORE_TEST(C4_nor_when_its_only_job_is_cancelled),
        CORE_TEST(C5_end_makes_an_empty_channel_dormant_and_leaves_ready_alone),
        CORE_TEST(C5_end_with_work_left_goes_to_the_tail_of_ready),
        CORE_TEST(C5_end_is_only_for_channels_in_progress),
        CORE_TEST(C6_in_the_beginning_there_is_nothing),
        CORE_TEST(C7_any_number_of_workers_and_none_overtakes),
        CORE_TEST(C8_a_channel_comes_with_its_first_job_and_goes_with_its_last),
        CORE_TEST(C8_a_channel_with_state_is_known_while_dormant),
        CORE_TEST(C8_a_cancelled_only_job_leaves_no_empty_ready_channel),
        CORE_TEST(C8_a_failed_job_keeps_its_place),
        CORE_TEST(C8_removing_a_job_wakes_its_callers),
        CORE_TEST(C9_a_block_is_the_front_of_one_channel),
        CORE_TEST(C9_a_failure_inside_loses_no_later_job),
        CORE_TEST(C9_an_unreadable_job_does_not_affect_others),
        CORE_TEST(C9_an_unreadable_cancelled_job_releases_the_rest),
        CORE_TEST(C9_the_block_is_given_back_whole),
        CORE_TEST(C9_one_cancelled_inside_is_skipped),
        CORE_TEST(C9_or_passed_over_in_silence),
        CORE_TEST(C9_state_comes_with_the_first_of_a_block),
        CORE_TEST(T2_the_first_delivery_makes_ready_the_second_does_not_again),
        CORE_TEST(T3_items_leave_in_order_and_then_there_is_no_work),
        CORE_TEST(T4_what_arrives_in_progress_is_not_ready_until_the_end),
        CORE_TEST(T5_a_block_of_three_takes_key_ones_two_jobs_then_key_two),
        CORE_TEST(T6_removing_a_key_drops_its_work_only),
        CORE_TEST(T7_removing_all_leaves_nothing),
        CORE_TEST(rule17_ready_channels_take_turns_at_any_depth),
        CORE_TEST(rule17_what_comes_back_unserved_is_first_again),
        CORE_TEST(rule17_stages_named_first_are_served_first),
        cmocka_unit_test(U4_what_is_due_at_once_is_done_in_pieces),
        cmocka_unit_test(U4_a_channel_is_in_order_while_much_is_due),
        cmocka_unit_test(U4_deadlines_hold_while_much_is_due),
        cmocka_unit_test(U4_other_timers_ring_in_pieces),
    };
    return RUN_CORE_TESTS(tests);
}
