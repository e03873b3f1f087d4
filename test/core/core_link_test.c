// Links, on the bare core of one shard: what its outboxes hold, what it takes from others, and that
// all of it survives refusals, cleaning and crashes. core_links_test.c puts whole shards together.
#include "support/core_fixture.h"

#include <stdio.h>

#include <inttypes.h>
#include <stdlib.h>

static const char *here, *there; // stages of this shard and of shard 1

static int begin(void **state) {
    int err = core_fixture_setup(state);
    struct core_fixture *t = *state;
    in_shards(t, 2);
    here = stage_in(0, 2);
    there = stage_in(1, 2);
    return err;
}

#define LINK_TALE(test)                                                                            \
    { #test, test, begin, core_fixture_teardown, NULL }

static struct taken begun(struct core_fixture *t, const char *body) {
    push(t, "", body);
    return take(t);
}

static uint64_t oldest(struct core_fixture *t) {
    struct link_entry e;
    assert_true(core_link_next(t->core, 1, 0, &e));
    return e.number;
}

// ---- Sending ------------------------------------------------------------------------------------

static void E4_an_emit_for_another_shard_waits_in_the_outbox(void **state) {
    struct core_fixture *t = *state;
    struct emit emits[] = {
        { .stage = mr_str(here), .job.key = mr_str("k"), .body = mr_str("local") },
        { .stage = mr_str(there),
          .job.key = mr_str("k"),
          .job.once = mr_str("name"),
          .body = mr_str("linked"),
          .job.delay_ms = 20,
          .job.deadline_ms = 50,
          .job.attempts = 3 },
        { .stage = mr_str(here), .body = mr_str("without a key") },
    };
    struct taken a = begun(t, "a");
    must(try_done(t,
                  (struct done){ .id = a.id, .token = a.token, .emits = emits, .emit_count = 3 }));
    assert_int_equal(core_links(t->core), 1);
    assert_int_equal(look_stage(t, here).waiting, 2);
    assert_int_equal(look_stage(t, there).linked, 1);
    struct link_entry e;
    crash(t); // E4: the same output, not another
    assert_true(core_link_next(t->core, 1, 0, &e));
    assert_string_equal(core_fixture_read(t, e.at), "linked");
    assert_true(bytes_equal(e.stage, mr_str(there)) && bytes_equal(e.key, mr_str("k")));
    assert_true(bytes_equal(e.once, mr_str("name")));
    assert_int_equal(e.delay_ms, 20);
    assert_int_equal(e.deadline_ms, 50);
    assert_int_equal(e.attempts, 3);
    assert_int_equal(e.after, 0);
    assert_false(core_link_next(t->core, 1, e.number, &e));
    assert_false(core_link_next(t->core, 0, 0, &e));
    assert_false(core_link_next(t->core, 63, 0, &e));
}

// Shards have different times: an entry says what is left of its delay and deadline when it is
// sent, however long it has waited, and a deadline that has passed stays passed.
static void rule15_an_entry_says_how_much_time_is_left(void **state) {
    struct core_fixture *t = *state;
    struct emit emit = { .stage = mr_str(there), .job.delay_ms = 20, .job.deadline_ms = 50 };
    struct taken a = begun(t, "a");
    must(try_done(t,
                  (struct done){ .id = a.id, .token = a.token, .emits = &emit, .emit_count = 1 }));
    static const int64_t left[][3] = {
        { 0, 20, 50 }, { 19, 1, 31 },          { 1, 0, 30 },
        { 29, 0, 1 },  { 1, 0, LINK_EXPIRED }, { 9, 0, LINK_EXPIRED }
    };
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        struct link_entry e;
        pass_ms(t, (uint64_t)left[i][0]);
        assert_true(core_link_next(t->core, 1, 0, &e));
        assert_int_equal(e.delay_ms, left[i][1]);
        assert_int_equal(e.deadline_ms, left[i][2]);
        crash(t);
    }
}

static void E2_entries_stay_in_order_until_they_are_acknowledged(void **state) {
    struct core_fixture *t = *state;
    uint64_t numbers[4];
    char expected[128];
    struct link_entry e = { 0 };
    for (int i = 0; i < 4; i++)
        done_emit(t, begun(t, "a"), there, "k", (const char[]){ (char)('0' + i), 0 });
    for (int i = 0; i < 4; i++) {
        assert_true(core_link_next(t->core, 1, e.number, &e));
        assert_int_equal(e.after, i ? numbers[i - 1] : 0);
        numbers[i] = e.number;
    }
    acked(t, 1, numbers[1]);
    acked(t, 1, numbers[0]); // overtaken
    acked(t, 1, numbers[1]); // repeated
    (void)snprintf(expected, sizeof expected, "%" PRIu64 ":2 %" PRIu64 ":3", numbers[2],
                   numbers[3]);
    expect_outbox(t, 1, expected);
    assert_true(core_link_next(t->core, 1, numbers[1], &e)); // which was forgotten
    assert_int_equal(e.number, numbers[2]);
    assert_int_equal(e.after, 0);
    acked(t, 1, UINT64_MAX);
    expect_outbox(t, 1, "");
    assert_int_equal(look_stage(t, there).linked, 0);
}

// An acknowledgement is written down now and then: after a crash few are sent again.
static void E3_acknowledgements_are_written_lazily(void **state) {
    struct core_fixture *t = *state;
    if (t->mode != MODE_PLAIN)
        return;
    struct emit emits[300];
    for (int i = 0; i < 300; i++)
        emits[i] = (struct emit){ .stage = mr_str(there), .job.key = mr_str("k") };
    struct taken a = begun(t, "a");
    must(try_done(
        t, (struct done){ .id = a.id, .token = a.token, .emits = emits, .emit_count = 300 }));
    struct link_entry e = { 0 };
    for (int i = 0; i < 290; i++) {
        assert_true(core_link_next(t->core, 1, 0, &e));
        acked(t, 1, e.number);
    }
    assert_int_equal(records_of(t, RECORD_LINK), 1);
    assert_int_equal(core_links(t->core), 10);
    crash(t);
    assert_int_equal(core_links(t->core), 300 - 256);
}

// U7: a stage of another shard is forgotten here once no emit to it is left, and replay finds it
// so.
static void U7_a_stage_goes_after_its_emits(void **state) {
    struct core_fixture *t = *state;
    done_emit(t, begun(t, "a"), there, "k", "b");
    uint64_t number = oldest(t);
    core_link_arrived(t->core, 1, number);
    refused(MR_EINVAL, core_stage_remove(t->core, mr_str(there))); // it may be sent again
    acked(t, 1, number);
    must(core_stage_remove(t->core, mr_str(there)));
    crash(t);
    assert_int_equal(core_links(t->core), 0);
    refused(MR_EGONE, core_stage_remove(t->core, mr_str(there)));
}

// U7: the entry of a stage of another shard counts for its maker until that shard has answered,
// also after a restart.
static void U7_an_entry_counts_until_the_other_shard_has_room(void **state) {
    struct core_fixture *t = *state;
    core_act_for(t->core, 7, NULL);
    done_emit(t, begun(t, "a"), there, "k", "b");
    core_act_for(t->core, 0, NULL);
    struct link_entry e;
    clean(t);
    crash(t);
    assert_true(core_link_next(t->core, 1, 0, &e));
    assert_int_equal(e.maker, 7);
    core_share_forget(t->core, 1, 7, e.number);
    assert_int_equal(oldest(t), e.number); // it is on its way
    acked(t, 1, e.number);
    core_share_forget(t->core, 1, 9, e.number);
    core_share_forget(t->core, 1, 7, e.number - 1); // an answer from before it arrived
    struct stage_info info;
    must(core_look_stage(t->core, mr_str(there), &info));
    assert_int_equal(info.maker, 7);
    core_share_forget(t->core, 1, 7, UINT64_MAX);
    refused(MR_EGONE, core_look_stage(t->core, mr_str(there), &info));
    crash(t);
    refused(MR_EGONE, core_look_stage(t->core, mr_str(there), &info));
}

// U7: entries of a token that makes no stages any more give way to stages of others.
static void U7_entries_of_a_former_maker_give_way(void **state) {
    (void)state;
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 4 });
    in_shards(t, 2);
    struct taken a = begun(t, "a");
    core_act_for(t->core, 7, NULL);
    done_emit(t, a, there, "k", "b");
    core_act_for(t->core, 0, NULL);
    acked(t, 1, oldest(t));
    push_to(t, "third", "", "x");
    push_to(t, "fourth", "", "x");
    struct pushed pushed;
    struct push fifth = { .stage = mr_str("fifth"), .body = mr_str("x") };
    t->asked = 0;
    refused(MR_EFULL, try_push(t, fifth, &pushed));
    assert_int_equal(t->asked, 7);
    core_share_forget(t->core, 1, 7, UINT64_MAX);
    must(try_push(t, fifth, &pushed));
    core_fixture_destroy(t);
}

static void F16_the_log_is_bounded_by_what_was_not_acknowledged(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "0,0");
    done_emit(t, begun(t, "a"), there, "k", "stays");
    uint64_t number = oldest(t);
    clean(t);
    clean(t);
    size_t count = t->log_count;
    uint64_t live = core_live_bytes(t->core);
    for (int i = 0; i < 20; i++) {
        struct link_entry e;
        done_emit(t, begun(t, "a"), there, "k", "goes");
        clean(t);
        assert_int_equal(oldest(t), number); // never lost, never overtaken
        assert_true(core_link_next(t->core, 1, number, &e));
        assert_string_equal(core_fixture_read(t, e.at), "goes");
        crash(t);
    }
    acked(t, 1, UINT64_MAX);
    done_emit(t, begun(t, "a"), there, "k", "stays");
    clean(t);
    assert_int_equal(t->log_count, count);
    assert_int_equal(core_live_bytes(t->core), live);
}

static void rule13_a_linked_emit_counts_downstream(void **state) {
    struct core_fixture *t = *state;
    set_on(t, there, "high-mark", "2");
    done_emit(t, begun(t, "a"), there, "k", "one"); // the edge is learned
    push(t, "", "next");
    done_emit(t, take(t), there, "k", "two");
    push(t, "", "held");
    expect_no_work(t);
    char held[32];
    (void)snprintf(held, sizeof held, "downstream:%s", there);
    expect_held(t, "s", held);
    wait_for_work(t, 0, "s");
    t->unlike = true; // edges are not recorded
    acked(t, 1, UINT64_MAX);
    expect_events(t, "taker 0: held\n");
}

// ---- Taking in ----------------------------------------------------------------------------------

static struct link_entry entry(uint64_t number, uint64_t after) {
    return (struct link_entry){ .number = number, .after = after, .key = mr_str("k") };
}

static void F2_a_repeat_is_answered_and_not_taken_again(void **state) {
    struct core_fixture *t = *state;
    must(arrive(t, 1, entry(4, 0), "a"));
    must(arrive(t, 1, entry(6, 4), "b"));
    must(arrive(t, 1, entry(4, 0), "a"));
    must(arrive(t, 1, entry(6, 0), "b"));
    assert_int_equal(core_link_mark(t->core, 1), 6);
    assert_int_equal(look_stage(t, "s").waiting, 2);
    crash(t); // F19
    must(arrive(t, 1, entry(6, 4), "b"));
    expect_take(t, "a");
    expect_take(t, "b");
    expect_no_work(t);
}

static void E2_what_overtakes_is_refused(void **state) {
    struct core_fixture *t = *state;
    must(arrive(t, 1, entry(4, 0), "a"));
    refused(MR_EGAP, arrive(t, 1, entry(8, 6), "c"));
    must(arrive(t, 1, entry(6, 4), "b"));
    must(arrive(t, 1, entry(8, 6), "c"));
    expect_take(t, "a");
    expect_take(t, "b");
    expect_take(t, "c");
}

static void F19_marks_outlive_the_jobs_and_the_log(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "0,0");
    for (uint64_t n = 2; n <= 20; n += 2) {
        must(arrive(t, 1, entry(n, n - 2), "a"));
        expect_take(t, "a");
        clean(t);
        crash(t);
        must(arrive(t, 1, entry(n, 0), "a"));
        expect_no_work(t);
    }
    assert_int_equal(records_of(t, RECORD_LINK), 1);
}

static void rule13_arrivals_are_accepted_without_room(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-jobs", "1");
    set(t, "max-channel", "1");
    drain_stage(t, "s");
    pause_stage(t, "s");
    must(arrive(t, 1, entry(2, 0), "a"));
    must(arrive(t, 1, entry(4, 2), "b"));
    assert_int_equal(look_stage(t, "s").waiting, 2);
    resume_stage(t, "s");
    expect_order(t, "k", "a b");
}

// What a commit was allowed to emit is in transit: a limit that is lower since does not stop it,
// and with it all that comes behind.
static void rule13_arrivals_are_accepted_beyond_present_limits(void **state) {
    struct core_fixture *t = *state;
    t->limits = (struct core_limits){ .max_body = 4 };
    crash(t);
    must(arrive(t, 1, entry(2, 0), "large"));
    must(arrive(t, 1, entry(4, 2), "b"));
    expect_order(t, "k", "large b");
}

static void rule12_names_count_where_the_job_arrives(void **state) {
    struct core_fixture *t = *state;
    struct link_entry e = entry(2, 0);
    e.once = mr_str("name");
    must(arrive(t, 1, e, "a"));
    e.number = 4;
    must(arrive(t, 1, e, "again"));
    assert_int_equal(core_link_mark(t->core, 1), 4);
    expect_order(t, "k", "a");
    crash(t);
    assert_int_equal(core_link_mark(t->core, 1), 4);
    call(t, 0, "called", "c", 0);
    e = (struct link_entry){ .number = 6, .once = mr_str("called") };
    must(arrive(t, 1, e, "c"));
    hang_up(t, 0); // an emit of its name has made it wanted for good
    expect_take(t, "a");
    expect_take(t, "c");
}

static void rule15_the_time_left_counts_from_the_arrival(void **state) {
    struct core_fixture *t = *state;
    struct link_entry late = entry(2, 0), due = entry(4, 2), soon = entry(6, 4), over = entry(8, 6);
    late.delay_ms = 40;
    soon.deadline_ms = 5;
    over.deadline_ms = LINK_EXPIRED;
    must(arrive(t, 1, late, "late"));
    must(arrive(t, 1, due, "due"));
    must(arrive(t, 1, soon, "soon"));
    wait_for_work(t, 0, "other");
    must(arrive(t, 1, over, "over"));
    expect_order(t, "k", "due soon"); // what is over has expired, without being started
    assert_int_equal(look_stage(t, "s").expired, 1);
    pass_ms(t, 5);
    assert_int_equal(look_stage(t, "s").expired, 2);
    pass_ms(t, 35);
    expect_order(t, "k", "due late");
}

// The times of the shards differ, and the second entry travels faster than the first.
static void rule15_delayed_jobs_keep_the_order_of_the_sender(void **state) {
    struct core_fixture *t = *state;
    struct link_entry first = entry(2, 0), second = entry(4, 2), third = entry(6, 4);
    uint64_t there_ms = t->now_ms + 500;
    first.now_ms = there_ms;
    first.delay_ms = 10;
    second.now_ms = there_ms + 5;
    second.delay_ms = 5;
    third.now_ms = there_ms + 3600000; // its time jumps
    third.delay_ms = 30;
    pass_ms(t, 4);
    must(arrive(t, 1, first, "first"));
    pass_ms(t, 2);
    must(arrive(t, 1, second, "second"));
    must(arrive(t, 1, third, "third"));
    pass_ms(t, 7);
    expect_order(t, "k", "");
    pass_ms(t, 1);
    expect_order(t, "k", "first second");
    pass_ms(t, 22);
    expect_order(t, "k", "first second third");
}

static void only_other_shards_have_links(void **state) {
    struct core_fixture *t = *state;
    refused(MR_EINVAL, arrive(t, 0, entry(2, 0), "from itself"));
    refused(MR_EINVAL, arrive(t, 2, entry(2, 0), "from nowhere"));
    refused(MR_EINVAL, core_link_acked(t->core, 0, 1));
    refused(MR_EINVAL, core_link_acked(t->core, 2, 1));
    must(core_link_acked(t->core, 1, 1));
    struct link_entry bad = entry(2, 0);
    bad.stage = mr_str("no stage's name");
    refused(MR_EINVAL, arrive(t, 1, bad, "a"));
    assert_int_equal(core_link_mark(t->core, 1), 0);
}

static void ids_and_numbers_of_shards_never_meet(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push(t, "", "a");
    assert_int_equal(route_of_id(2, id), 0);
    done_emit(t, take(t), there, "k", "b");
    uint64_t number = oldest(t);
    assert_true(number > id && route_of_id(2, number) == 0);
    crash(t);
    assert_true(push(t, "", "c") > number);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LINK_TALE(E4_an_emit_for_another_shard_waits_in_the_outbox),
        LINK_TALE(rule15_an_entry_says_how_much_time_is_left),
        LINK_TALE(E2_entries_stay_in_order_until_they_are_acknowledged),
        LINK_TALE(E3_acknowledgements_are_written_lazily),
        LINK_TALE(U7_a_stage_goes_after_its_emits),
        LINK_TALE(U7_an_entry_counts_until_the_other_shard_has_room),
        LINK_TALE(U7_entries_of_a_former_maker_give_way),
        LINK_TALE(F16_the_log_is_bounded_by_what_was_not_acknowledged),
        LINK_TALE(rule13_a_linked_emit_counts_downstream),
        LINK_TALE(F2_a_repeat_is_answered_and_not_taken_again),
        LINK_TALE(E2_what_overtakes_is_refused),
        LINK_TALE(F19_marks_outlive_the_jobs_and_the_log),
        LINK_TALE(rule13_arrivals_are_accepted_without_room),
        LINK_TALE(rule13_arrivals_are_accepted_beyond_present_limits),
        LINK_TALE(rule12_names_count_where_the_job_arrives),
        LINK_TALE(rule15_the_time_left_counts_from_the_arrival),
        LINK_TALE(rule15_delayed_jobs_keep_the_order_of_the_sender),
        LINK_TALE(only_other_shards_have_links),
        LINK_TALE(ids_and_numbers_of_shards_never_meet),
    };
    return RUN_CORE_TESTS(tests);
}
