// ONCE … LAST: a push replaces the body of the job that has its name, if that has not started. A
// restart is checked after each command.
#include "support/core_fixture.h"

static struct push last_push(const char *key, const char *body) {
    return (struct push){ .stage = mr_str("s"),
                          .body = mr_str(body),
                          .job = { .key = mr_str(key), .once = mr_str("name"), .last = true } };
}

// Pushes again; the answer is the first one's id.
static void replace_with(struct core_fixture *t, struct push p, uint64_t id) {
    struct pushed pushed;
    must(try_push(t, p, &pushed));
    assert_true(pushed.repeat && pushed.id == id);
}

static void G10_a_waiting_job_keeps_its_id_and_place_and_has_the_last_body(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "first");
    uint64_t id = push_with(t, last_push("k", "a"));
    push(t, "k", "third");
    struct push p = last_push("k", "b");
    p.job.delay_ms = 5000; // has no effect: it waits already
    p.job.meta = mr_str("trace");
    replace_with(t, p, id);
    replace_with(t, p, id);
    clean(t);
    crash(t);
    expect_take(t, "first");
    struct taken b = take(t);
    assert_true(b.id == id);
    assert_string_equal(b.body, "b");
    assert_string_equal(b.meta, "trace");
    done(t, b);
    expect_take(t, "third");
    assert_int_equal(look_stage(t, "s").pushed, 3);
}

static void G10_a_delayed_job_restarts_its_delay(void **state) {
    struct core_fixture *t = *state;
    struct push p = last_push("k", "a");
    p.job.delay_ms = 100;
    uint64_t id = push_with(t, p);
    pass_ms(t, 60);
    p.body = mr_str("b");
    replace_with(t, p, id);
    pass_ms(t, 60); // the first delay is over
    expect_no_work(t);
    push(t, "k", "other");
    crash(t);
    pass_ms(t, 40);
    expect_order(t, "k", "other a"); // its place is that of the new delay; known by its first body
    expect_take(t, "other");
    struct taken b = take(t);
    assert_true(b.id == id);
    assert_string_equal(b.body, "b");
}

static void G10_without_a_delay_a_delayed_job_is_due_at_once(void **state) {
    struct core_fixture *t = *state;
    struct push p = last_push("k", "a");
    p.job.delay_ms = 100;
    uint64_t id = push_with(t, p);
    wait_for_work(t, 0, "s");
    replace_with(t, last_push("k", "b"), id);
    expect_events(t, "taker 0: a\n"); // as it was pushed
    assert_string_equal(t->granted[0].body, "b");
}

static void G10_the_deadline_is_the_new_one_or_none(void **state) {
    struct core_fixture *t = *state;
    struct push p = last_push("k", "a");
    p.job.deadline_ms = 100;
    uint64_t id = push_with(t, p);
    replace_with(t, last_push("k", "b"), id);
    assert_int_equal(look(t, id).left_ms, -1);
    pass_ms(t, 200);
    expect_status(t, id, JOB_WAITING);
    p.body = mr_str("c");
    replace_with(t, p, id);
    clean(t);
    crash(t);
    pass_ms(t, 100);
    expect_status(t, id, JOB_EXPIRED);
}

// The name belongs to the newest job.
static void expect_new(struct core_fixture *t, const char *body, uint64_t before) {
    uint64_t id = push_with(t, last_push("k", body));
    assert_true(id != before);
    replace_with(t, last_push("k", body), id);
    clean(t);
    crash(t);
    replace_with(t, last_push("k", body), id);
}

static void G10_a_job_that_was_started_or_has_ended_gives_up_its_name(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, last_push("k", "a"));
    done_with(t, take(t), "result", NULL);
    expect_new(t, "b", id); // done
    struct taken b = take(t);
    id = push_with(t, last_push("k", "c")); // running
    must(release_job(t, b));
    replace_with(t, last_push("k", "c again"), id);
    done(t, take(t)); // b
    fail_job(t, take(t));
    expect_new(t, "d", id); // it has failed once
    clean(t);
    crash(t);
}

static void G10_a_name_without_a_job_is_taken_over(void **state) {
    struct core_fixture *t = *state;
    set(t, "retention", "1s,10");
    uint64_t id = push_with(t, last_push("k", "a"));
    done(t, take(t));
    pass_ms(t, 5000); // the job is forgotten, its name is not
    struct pushed pushed;
    struct push plain = last_push("k", "b");
    plain.job.last = false;
    must(try_push(t, plain, &pushed));
    assert_true(pushed.repeat && pushed.id == id);
    expect_new(t, "b", id);
}

static void G10_numbers_count_as_pushed(void **state) {
    struct core_fixture *t = *state;
    struct push p = last_push("k", "a");
    p.source = mr_str("june");
    p.epic = true;
    p.number = 1;
    uint64_t id = push_with(t, p);
    p.number = 2;
    p.body = mr_str("b");
    replace_with(t, p, id);
    p.number = 1; // seen: a repeat changes nothing
    p.body = mr_str("a");
    replace_with(t, p, id);
    clean(t);
    crash(t);
    assert_int_equal(look_epic(t, "june").resume, 3);
    struct taken taken = take(t);
    assert_string_equal(taken.body, "b");
    done(t, taken);
    assert_int_equal(look_epic(t, "june").done, 1);
}

static void G10_a_drained_stage_takes_no_new_body(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, last_push("k", "a"));
    drain_stage(t, "s");
    struct pushed pushed;
    refused(MR_EDRAINING, try_push(t, last_push("k", "b"), &pushed));
    resume_stage(t, "s");
    replace_with(t, last_push("k", "b"), id);
}

static void G10_last_needs_a_name_and_no_caller(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    struct push p = last_push("k", "a");
    p.job.once.size = 0;
    refused(MR_EINVAL, try_push(t, p, &pushed));
    p = last_push("k", "a");
    p.caller = &t->callers[0];
    refused(MR_EINVAL, try_push(t, p, &pushed));
}

static void G10_a_call_that_is_replaced_is_wanted_for_good(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = call(t, 0, "name", "question", 0);
    replace_with(t, last_push("", "another"), id);
    hang_up(t, 0);
    crash(t);
    pass_ms(t, 60000); // the grace of callers
    struct taken taken = take(t);
    assert_true(taken.id == id);
    assert_string_equal(taken.body, "another");
}

// The former body is garbage: what lives does not grow with the number of pushes.
static void G10_replaced_bodies_are_not_kept(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, last_push("k", "a"));
    clean(t);
    uint64_t live = core_live_bytes(t->core);
    for (int i = 0; i < 10; i++)
        replace_with(t, last_push("k", "b"), id);
    clean(t);
    assert_in_range(core_live_bytes(t->core), live - 64, live + 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G10_a_waiting_job_keeps_its_id_and_place_and_has_the_last_body),
        CORE_TEST(G10_a_delayed_job_restarts_its_delay),
        CORE_TEST(G10_without_a_delay_a_delayed_job_is_due_at_once),
        CORE_TEST(G10_the_deadline_is_the_new_one_or_none),
        CORE_TEST(G10_a_job_that_was_started_or_has_ended_gives_up_its_name),
        CORE_TEST(G10_a_name_without_a_job_is_taken_over),
        CORE_TEST(G10_numbers_count_as_pushed),
        CORE_TEST(G10_a_drained_stage_takes_no_new_body),
        CORE_TEST(G10_last_needs_a_name_and_no_caller),
        CORE_TEST(G10_a_call_that_is_replaced_is_wanted_for_good),
        CORE_TEST(G10_replaced_bodies_are_not_kept),
    };
    return RUN_CORE_TESTS(tests);
}
