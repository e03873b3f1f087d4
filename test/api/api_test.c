// The public API on an engine in this process: the stories of the acceptance table that need no
// worker threads.
#include "support/api.h"

// ---- A: cancelling work in flight -------------------------------------------------------------

struct ends {
    struct gate gate;
    int status;
    char body[256];
    mr_id id;
};

static void note_end(mr_id id, int status, mr_bytes body, void *arg) {
    struct ends *e = arg;
    e->id = id;
    e->status = status;
    snprintf(e->body, sizeof e->body, "%.*s", (int)body.size, (const char *)body.data);
    gate_pass(&e->gate);
}

static void A1_handing_in_returns_at_once_and_the_answer_arrives_later(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ends ends = { .gate = GATE };
    mr_push_options o = { .deadline_ms = 60000 };
    mr_id id = 0;
    must(mr_call_start(m, "sums", mr_str("1+2"), &o, note_end, &ends, &id));
    mr_job *job = take(m, "sums", "1+2");
    assert_int_equal(ends.gate.count, 0);
    must(mr_job_set_result(job, mr_str("3")));
    must(mr_done(job));
    gate_wait(&ends.gate, 1);
    assert_int_equal(ends.status, 0);
    assert_string_equal(ends.body, "3");
    assert_true(ends.id == id);
    mr_result result = { 0 };
    must(mr_await(m, id, 0, &result));
    assert_string_equal(result.body.data, "3");
    mr_result_free(&result);
    must(mr_close(m));
}

static void A2_limit_5_starts_five_queues_the_rest_and_an_end_starts_the_next(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "concurrency", "5"));
    for (int i = 0; i < 8; i++)
        push(m, "s", NULL, (char[]){ (char)('a' + i), 0 });
    mr_job *jobs[8];
    for (int i = 0; i < 5; i++)
        jobs[i] = take_next(m, "s", (char[]){ (char)('a' + i), 0 });
    nothing_to_take(m, "s");
    assert_string_equal(look(m, "s").held_by, "limit");
    assert_int_equal(look(m, "s").waiting, 3);
    for (int i = 0; i < 3; i++) {
        must(mr_done(jobs[i]));
        jobs[5 + i] = take_next(m, "s", (char[]){ (char)('f' + i), 0 });
    }
    for (int i = 3; i < 8; i++)
        must(mr_done(jobs[i]));
    assert_int_equal(look(m, "s").done, 8);
    must(mr_close(m));
}

static void A3_the_queue_can_be_looked_into(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", NULL, "a");
    push(m, "s", NULL, "b");
    mr_stage_info info = look(m, "s");
    assert_int_equal(info.waiting, 2);
    assert_true(info.oldest_ms >= 0);
    assert_string_equal(info.held_by, "no-worker");
    must(mr_done(take_next(m, "s", "a")));
    assert_int_equal(look(m, "s").waiting, 1);
    must(mr_done(take_next(m, "s", "b")));
    assert_true(look(m, "s").oldest_ms == -1);
    must(mr_close(m));
}

static void A4_A5_a_call_without_a_caller_never_runs_and_frees_its_slot(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ends ends = { .gate = GATE };
    mr_id given_up = 0;
    must(mr_stage_set(m, "s", "concurrency", "1"));
    must(mr_call_start(m, "s", mr_str("given up"), NULL, note_end, &ends, &given_up));
    push(m, "s", NULL, "wanted");
    must(mr_cancel(m, given_up));
    gate_wait(&ends.gate, 1);
    assert_int_equal(ends.status, MR_ECANCELLED);
    must(mr_done(take(m, "s", "wanted")));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void A4_a_caller_whose_time_is_up_is_not_interested(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .deadline_ms = 20 };
    refused(MR_EEXPIRED, mr_call(m, "s", mr_str("late"), &o, NULL));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void A6_a_call_ends_at_the_deadline_and_a_late_result_is_discarded(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ends ends = { .gate = GATE };
    mr_push_options o = { .deadline_ms = 1000 };
    must(mr_call_start(m, "slow", mr_str("work"), &o, note_end, &ends, NULL));
    mr_job *job = take(m, "slow", "work");
    gate_wait(&ends.gate, 1);
    assert_int_equal(ends.status, MR_EEXPIRED);
    assert_non_null(strstr(ends.body, "'slow'"));
    assert_non_null(strstr(ends.body, "1000 ms"));
    must(mr_job_set_result(job, mr_str("too late")));
    refused(MR_EEXPIRED, mr_done(job));
    refused(MR_EEXPIRED, mr_await(m, ends.id, MR_FOREVER, NULL));
    assert_int_equal(ends.gate.count, 1);
    must(mr_close(m));
}

static void A7_a_result_in_time_reaches_its_caller_once(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ends ends[20];
    for (int i = 0; i < 20; i++) {
        ends[i] = (struct ends){ .gate = GATE };
        must(mr_call_start(m, "s", mr_str((char[]){ (char)('a' + i), 0 }), NULL, note_end, &ends[i],
                           NULL));
    }
    for (int i = 0; i < 20; i++) {
        mr_job *job = take_waiting(m, "s");
        must(mr_job_set_result(job, mr_job_body(job)));
        must(mr_done(job));
    }
    for (int i = 0; i < 20; i++) {
        gate_wait(&ends[i].gate, 1);
        assert_string_equal(ends[i].body, ((char[]){ (char)('a' + i), 0 }));
    }
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    for (int i = 0; i < 20; i++)
        assert_int_equal(ends[i].gate.count, 1);
    must(mr_close(m));
}

static void A8_the_limit_is_absolute_from_the_push(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .deadline_ms = 1000 };
    mr_id id = 0;
    must(mr_push(m, "s", mr_str("x"), &o, &id));
    mr_job *job = take(m, "s", "x");
    assert_true(mr_job_left_ms(job) <= 1000);
    for (int err = 0; err == 0; err = mr_beat(job)) // asking does not prolong it
        let_pass(m, 10);
    assert_true(mr_job_stopped(job));
    refused(MR_EEXPIRED, mr_await(m, id, MR_FOREVER, NULL)); // a wait ends with the job
    refused(MR_EEXPIRED, mr_release(job, 0));
    must(mr_close(m));
}

static void A8_work_that_throws_does_not_restart_for_ever(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .attempts = 2 };
    mr_id id = 0;
    must(mr_push(m, "s", mr_str("x"), &o, &id));
    must(mr_fail(take(m, "s", "x"), "first", 0));
    mr_job *again = take_waiting(m, "s");
    assert_int_equal(mr_job_attempt(again), 2);
    must(mr_fail(again, "second", 0));
    nothing_to_take(m, "s");
    refused(MR_EDEAD, mr_await(m, id, MR_FOREVER, NULL));
    assert_non_null(strstr(mr_error(), "second"));
    must(mr_close(m));
}

static void A10_wasted_waiting_time_is_counted(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .deadline_ms = 30 };
    refused(MR_EEXPIRED, mr_call(m, "s", mr_str("x"), &o, NULL));
    assert_true(look(m, "s").wasted_wait_ms >= 30);
    must(mr_close(m));
}

// ---- D: work pulling --------------------------------------------------------------------------

struct puller {
    mr *m;
    struct gate got;
    mr_job *job;
};

static void *pull_one(void *arg) {
    struct puller *p = arg;
    mr_take_options o = { .wait_ms = MR_FOREVER };
    if (mr_take(p->m, "s", &o, &p->job) == 0)
        gate_pass(&p->got);
    return NULL;
}

static void D2_waiting_takes_are_answered_when_work_comes_as_many_as_there_is_work(void **state) {
    (void)state;
    mr *m = open_mem();
    struct puller p[3] = { { m, GATE, NULL }, { m, GATE, NULL }, { m, GATE, NULL } };
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pull_one, &p[i]), 0);
    mr_id pushed = 0, sum = 0;
    for (int i = 0; i < 3; i++)
        pushed += push(m, "s", NULL, "x");
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(p[i].got.count, 1);
        sum += mr_job_id(p[i].job);
        must(mr_done(p[i].job));
    }
    assert_int_equal(sum, pushed);
    must(mr_close(m));
}

// ---- T: channels ------------------------------------------------------------------------------

static void T1_what_is_not_known_is_answered_clearly(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_stage_info info;
    refused(MR_EGONE, mr_stage_look(m, "unheard-of", &info));
    refused(MR_EGONE, mr_await(m, 77, 0, NULL));
    refused(MR_EGONE, mr_cancel(m, 77));
    refused(MR_EGONE, mr_retry(m, 77));
    refused(MR_EGONE, mr_drop(m, 77));
    must(mr_stage_wait_empty(m, "unheard-of", MR_FOREVER));
    must(mr_close(m));
}

static void T2_T3_T4_one_channel_runs_one_after_another_in_order(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "a");
    push(m, "s", "k", "b");
    mr_job *a = take(m, "s", "a");
    nothing_to_take(m, "s"); // the second delivery did not make it ready again
    push(m, "s", "k", "c");
    nothing_to_take(m, "s"); // delivered while in progress
    must(mr_done(a));
    mr_job *b = take(m, "s", "b");
    nothing_to_take(m, "s");
    must(mr_done(b));
    must(mr_done(take(m, "s", "c")));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static mr_job *take_block(mr *m, uint32_t batch) {
    mr_job *job = NULL;
    mr_take_options o = { .batch = batch };
    must(mr_take(m, "s", &o, &job));
    return job;
}

static void T5_two_keys_block_of_three_gives_the_first_keys_jobs_then_the_second(void **state) {
    (void)state;
    if (story_shards > 1)
        return; // the two keys may be in different shards
    mr *m = open_mem();
    push(m, "s", "one", "1a");
    push(m, "s", "one", "1b");
    push(m, "s", "two", "2a");
    mr_job *a = take_block(m, 3);
    assert_string_equal(mr_job_body(a).data, "1a");
    assert_int_equal(look(m, "s").running, 3);
    mr_job *other = take(m, "s", "2a"); // 1b waits for the end of 1a
    must(mr_job_set_state(a, mr_str("carried")));
    must(mr_done(a));
    mr_job *b = take(m, "s", "1b");
    assert_string_equal(mr_job_state(b).data, "carried");
    must(mr_done(b));
    must(mr_done(other));
    must(mr_close(m));
}

// b is behind a in the take, but ends first; what is in its place then belongs to another block.
static void C9_a_block_ends_where_another_lease_begins(void **state) {
    (void)state;
    if (story_shards > 1)
        return; // the keys may be in different shards
    mr *m = open_mem();
    push(m, "s", "one", "a1");
    push(m, "s", "one", "a2");
    push(m, "s", "two", "b");
    mr_job *a = take_block(m, 4);
    must(mr_job_set_state(a, mr_str("of one")));
    must(mr_done(take(m, "s", "b")));
    for (int i = 1; i <= 4; i++)
        push(m, "s", "three", (char[]){ 'c', (char)('0' + i), 0 });
    mr_job *c = take_block(m, 4);
    must(mr_done(a));
    must(mr_done(take(m, "s", "a2")));
    nothing_to_take(m, "s");
    for (int i = 1; i <= 4; i++) {
        assert_string_equal(mr_job_body(c).data, ((char[]){ 'c', (char)('0' + i), 0 }));
        assert_int_equal(mr_job_state(c).size, 0);
        must(mr_done(c));
        c = i < 4 ? take_block(m, 4) : NULL;
    }
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void C9_a_failure_inside_a_block_loses_no_later_job(void **state) {
    (void)state;
    mr *m = open_mem();
    for (int i = 0; i < 4; i++)
        push(m, "s", "k", (char[]){ (char)('a' + i), 0 });
    must(mr_done(take_block(m, 4)));
    must(mr_fail(take(m, "s", "b"), "not now", 0));
    for (int i = 1; i < 4; i++) {
        mr_job *job = take_waiting(m, "s");
        assert_string_equal(mr_job_body(job).data, ((char[]){ (char)('a' + i), 0 }));
        assert_int_equal(mr_job_attempt(job), i == 1 ? 2 : 1);
        must(mr_done(job));
    }
    push(m, "s", "k", "e"); // taken ahead, never handed out: closing gives it back
    push(m, "s", "k", "f");
    must(mr_done(take_block(m, 2)));
    must(mr_close(m));
}

// The state of a block comes with its first job and is carried along: past one that was cancelled,
// whether it was begun or not, and however it was ended, as the last commit left it.
static void C9_the_state_passes_over_what_is_cancelled_inside_a_block(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_id ids[5];
    for (int i = 0; i < 5; i++)
        ids[i] = push(m, "s", "k", (char[]){ (char)('a' + i), 0 });
    mr_job *a = take_block(m, 5);
    must(mr_cancel(m, ids[1]));
    must(mr_job_set_state(a, mr_str("of a")));
    must(mr_done(a));
    mr_job *c = take_waiting(m, "s");
    if (*(const char *)mr_job_body(c).data ==
        'b') { // this process may not know of the cancellation yet
        refused(MR_ECANCELLED, mr_done(c));
        c = take(m, "s", "c");
    }
    assert_string_equal(mr_job_state(c).data, "of a");
    must(mr_job_set_state(c, mr_str("never recorded")));
    must(mr_cancel(m, ids[2]));
    refused(MR_ECANCELLED, mr_done(c));
    mr_job *d = take(m, "s", "d");
    assert_string_equal(mr_job_state(d).data, "of a");
    must(mr_cancel(m, ids[3]));
    refused(MR_ECANCELLED, mr_fail(d, "it was told to stop", 0));
    mr_job *e = take(m, "s", "e");
    assert_string_equal(mr_job_state(e).data, "of a");
    must(mr_done(e));
    must(mr_close(m));
}

struct cancelled_inside {
    struct gate begun, cancelled, ended;
    char state_of_c[16];
};

static int count_in_state(mr_job *job, void *arg) {
    struct cancelled_inside *s = arg;
    char body = *(const char *)mr_job_body(job).data;
    if (body == 'c')
        snprintf(s->state_of_c, sizeof s->state_of_c, "%s", (const char *)mr_job_state(job).data);
    if (body == 'b') {
        gate_pass(&s->begun);
        gate_wait(&s->cancelled, 1);
    }
    must(mr_job_set_state(job, (mr_bytes){ &body, 1 }));
    gate_pass(&s->ended);
    return 0;
}

static void C9_a_worker_does_not_continue_with_a_refused_state(void **state) {
    (void)state;
    mr *m = open_mem();
    struct cancelled_inside s = { GATE, GATE, GATE, "" };
    mr_worker *w;
    push(m, "s", "k", "a");
    mr_id b = push(m, "s", "k", "b");
    push(m, "s", "k", "c");
    must(mr_work(m, "s", count_in_state, &s, &(mr_work_options){ .jobs = 1, .batch = 3 }, &w));
    gate_wait(&s.begun, 1);
    must(mr_cancel(m, b));
    gate_pass(&s.cancelled);
    gate_wait(&s.ended, 3);
    must(mr_worker_stop(w, MR_FOREVER));
    assert_string_equal(s.state_of_c, "a");
    must(mr_close(m));
}

static void T6_T7_removing_a_keys_jobs_leaves_the_others(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_id first[2] = { push(m, "s", "one", "a"), push(m, "s", "one", "b") };
    mr_id other = push(m, "s", "two", "c");
    must(mr_drop(m, first[0]));
    must(mr_drop(m, first[1]));
    assert_int_equal(look(m, "s").waiting, 1);
    mr_job *c = take(m, "s", "c");
    refused(MR_EBUSY, mr_drop(m, other));
    must(mr_release(c, 0));
    must(mr_drop(m, other));
    nothing_to_take(m, "s");
    assert_int_equal(look(m, "s").waiting, 0);
    must(mr_close(m));
}

static void rule15_one_key_is_paused(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "a");
    push(m, "s", "l", "b");
    refused(MR_EINVAL, mr_stage_pause_key(m, "s", mr_str("")));
    must(mr_stage_pause_key(m, "s", mr_str("k")));
    must(mr_done(take(m, "s", "b")));
    nothing_to_take(m, "s");
    must(mr_stage_resume_key(m, "s", mr_str("k")));
    must(mr_done(take(m, "s", "a")));
    must(mr_close(m));
}

static void G9_a_job_is_released_for_a_while(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_id id = push(m, "s", "k", "a");
    push(m, "s", "k", "b");
    push(m, "s", "l", "c");
    must(mr_release(take(m, "s", "a"), 3600000));
    must(mr_done(take(m, "s", "c")));
    nothing_to_take(m, "s");
    mr_stage_info s = look(m, "s");
    assert_int_equal(s.waiting, 2);
    assert_int_equal(s.parked, 1);
    assert_int_equal(s.failed, 0);
    refused(MR_EGONE, mr_due(m, 12345));
    must(mr_due(m, id));
    must(mr_due(m, id)); // nothing is left to change
    must(mr_done(take(m, "s", "a")));
    must(mr_close(m));
}

// ---- Once, state, emits, death ----------------------------------------------------------------

static void E_a_commit_carries_result_state_and_emits_together(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "x");
    mr_job *job = take(m, "s", "x");
    must(mr_job_set_state(job, mr_str("lost")));
    must(mr_job_emit(job, "t", mr_str("lost"), NULL));
    must(mr_fail(job, "no", 0));
    job = take_waiting(m, "s");
    assert_int_equal(mr_job_state(job).size, 0);
    must(mr_job_set_state(job, mr_str("kept")));
    must(mr_job_emit(job, "t", mr_str("kept"), &(mr_push_options){ .key = mr_str("e") }));
    must(mr_done(job));
    job = take_waiting(m, "t"); // it may come from another shard
    assert_string_equal(mr_job_body(job).data, "kept");
    assert_int_equal(mr_job_key(job).size, 1);
    must(mr_done(job));
    nothing_to_take(m, "t");
    push(m, "s", "k", "y");
    job = take(m, "s", "y");
    assert_string_equal(mr_job_state(job).data, "kept");
    must(mr_done(job));
    must(mr_close(m));
}

// A job may reuse the memory of one that had a state.
static void E_a_key_without_a_state_has_none_of_another_key(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *job;
    for (int i = 0; i < 3; i++) {
        push(m, "s", "k", "x");
        job = take(m, "s", "x");
        must(mr_job_set_state(job, mr_str("kept")));
        must(mr_done(job));
    }
    push(m, "s", "l", "y");
    job = take(m, "s", "y");
    assert_null(mr_job_state(job).data);
    must(mr_done(job));
    must(mr_close(m));
}

static void expect_meta(const mr_job *job, const char *body, mr_bytes meta) {
    assert_string_equal(mr_job_body(job).data, body); // a 0 byte follows it, as without META
    assert_int_equal(mr_job_body(job).size, strlen(body));
    assert_int_equal(mr_job_meta(job).size, meta.size);
    if (meta.size)
        assert_memory_equal(mr_job_meta(job).data, meta.data, meta.size);
}

static void G12_metadata_reaches_the_worker_unchanged(void **state) {
    (void)state;
    char bytes[1025];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    mr_push_options o = { .key = mr_str("k"), .meta = { bytes, sizeof bytes } };
    mr *m = open_mem();
    refused(MR_ETOOBIG, mr_push(m, "s", mr_str("x"), &o, NULL));
    o.meta.size--;
    must(mr_push(m, "s", mr_str("first"), &o, NULL));
    mr_item items[] = { { .body = mr_str("second") }, { .body = mr_str("") } };
    size_t count;
    must(mr_push_many(m, "t", items, 2, &(mr_push_options){ .meta = mr_str("all") }, NULL, &count));
    assert_int_equal(count, 2);
    mr_job *job = take(m, "s", "first");
    expect_meta(job, "first", o.meta);
    must(mr_job_emit(job, "t", mr_str("third"), &(mr_push_options){ .meta = mr_job_meta(job) }));
    must(mr_job_emit(job, "u", mr_str("fourth"), NULL));
    must(mr_done(job));
    const char *bodies[] = { "second", "", "third" };
    for (int i = 0; i < 3; i++) {
        job = take_waiting(m, "t");
        expect_meta(job, bodies[i], i == 2 ? o.meta : mr_str("all"));
        must(mr_done(job));
    }
    job = take_waiting(m, "u");
    expect_meta(job, "fourth", (mr_bytes){ 0 });
    must(mr_done(job));
    must(mr_close(m));
}

static void expect_cancelled(mr *m, const mr_job_filter *f, uint64_t expected) {
    for (int dry = 1; dry >= 0; dry--) {
        uint64_t count = 99;
        must(mr_stage_cancel(m, "s", f, dry, &count));
        assert_int_equal(count, expected);
    }
}

static void G6_jobs_of_a_stage_are_cancelled_by_status_and_key(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options later = { .key = mr_str("l"), .delay_ms = 1000000 };
    refused(MR_EGONE, mr_stage_cancel(m, "s", NULL, 0, NULL));
    for (int i = 0; i < 700; i++)
        push(m, "s", i % 2 ? "k" : "l", "x");
    must(mr_push(m, "s", mr_str("x"), &later, NULL));
    mr_job *job = take(m, "s", "x");
    expect_cancelled(m, &(mr_job_filter){ .status = "running", .key = mr_str("k") }, 0);
    expect_cancelled(m, &(mr_job_filter){ .status = "waiting", .key = mr_str("k") }, 350);
    expect_cancelled(m, &(mr_job_filter){ .key = mr_str("l"), .count = 3 }, 3); // one is delayed
    expect_cancelled(m, &(mr_job_filter){ .status = "delayed" }, 0);
    expect_cancelled(m, NULL, 348);
    refused(MR_ECANCELLED, mr_done(job));
    refused(MR_EINVAL, mr_stage_cancel(m, "s", &(mr_job_filter){ .status = "dead" }, 0, NULL));
    refused(MR_EINVAL, mr_stage_cancel(m, "s", &(mr_job_filter){ .from = 1 }, 0, NULL));
    must(mr_close(m));
}

struct said {
    uint64_t done;
    char text[32];
};

static int note_said(const mr_job_info *info, void *arg) {
    struct said *said = arg;
    assert_non_null(info->progress_text);
    assert_int_equal(info->progress_total, 3);
    said->done = info->progress_done;
    snprintf(said->text, sizeof said->text, "%s", info->progress_text);
    return 0;
}

// Of the only job of stage s, which runs.
static void expect_progress(mr *m, uint64_t done, const char *text) {
    struct said said = { 0 };
    must(mr_jobs(m, "s", NULL, note_said, &said));
    assert_int_equal(said.done, done);
    assert_string_equal(said.text, text);
}

static void G11_a_worker_says_how_far_it_is(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_id id = push(m, "s", "k", "x");
    mr_job *job = take(m, "s", "x");
    must(mr_job_progress(job, 1, 3, "the first"));
    expect_progress(m, 1, "the first");
    must(mr_job_progress(job, 2, 3, NULL));
    expect_progress(m, 2, "");
    refused(MR_EINVAL, mr_job_progress(job, UINT64_MAX, 3, NULL));
    must(mr_cancel(m, id));
    refused(MR_ECANCELLED, mr_job_progress(job, 3, 3, NULL));
    assert_true(mr_job_stopped(job));
    refused(MR_ECANCELLED, mr_done(job));
    must(mr_close(m));
}

static void G10_a_debounced_push_has_the_last_body(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .once = mr_str("name"), .last = 1 };
    mr_id first, second;
    must(mr_push(m, "s", mr_str("a"), &o, &first));
    must(mr_push(m, "s", mr_str("b"), &o, &second));
    assert_true(first == second);
    mr_job *job = take(m, "s", "b");
    must(mr_push(m, "s", mr_str("c"), &o, &second));
    assert_true(first != second);
    refused(MR_EINVAL, mr_job_emit(job, "t", mr_str("x"), &o));
    refused(MR_EINVAL, mr_call(m, "s", mr_str("x"), &o, NULL));
    must(mr_done(job));
    job = take_waiting(m, "s");
    assert_string_equal(mr_job_body(job).data, "c");
    must(mr_done(job));
    o.last = 2;
    refused(MR_EINVAL, mr_push(m, "s", mr_str("a"), &o, NULL));
    must(mr_close(m));
}

static void E2_two_pushes_with_one_once_are_one_job(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_push_options o = { .once = mr_str("order 7") };
    mr_id first = 0, second = 0;
    must(mr_push(m, "s", mr_str("x"), &o, &first));
    must(mr_push(m, "s", mr_str("x"), &o, &second));
    assert_true(first == second);
    mr_job *job = take(m, "s", "x");
    must(mr_job_set_result(job, mr_str("done")));
    must(mr_done(job));
    nothing_to_take(m, "s");
    mr_result result = { 0 };
    must(mr_call(m, "s", mr_str("x"), &o, &result)); // answered as the first time
    assert_string_equal(result.body.data, "done");
    mr_result_free(&result);
    struct ends ends = { .gate = GATE };
    must(mr_call_start(m, "s", mr_str("x"), &o, note_end, &ends, NULL));
    gate_wait(&ends.gate, 1);
    assert_string_equal(ends.body, "done");
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_close(m));
}

struct dead_seen {
    mr *m;
    int count;
    mr_id id;
};

static int see_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    struct dead_seen *seen = arg;
    assert_string_equal(reason, "broken beyond repair");
    assert_int_equal(key.size, 1);
    seen->count++;
    seen->id = id;
    must(mr_retry(seen->m, id)); // no lock is held here
    return 1;
}

static void F13_exhausted_attempts_make_a_dead_job_that_is_listed_and_retryable(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "x");
    push(m, "s", "j", "y");
    must(mr_fail(take_next(m, "s", "x"), "broken\nbeyond repair", MR_NEVER));
    must(mr_fail(take_next(m, "s", "y"), "broken\nbeyond repair", MR_NEVER));
    assert_int_equal(look(m, "s").dead, 2);
    struct dead_seen seen = { .m = m };
    must(mr_dead(m, "s", see_dead, &seen));
    assert_int_equal(seen.count, 1);
    assert_int_equal(look(m, "s").dead, 1);
    must(mr_done(take_next(m, "s", "x")));
    refused(MR_EINVAL, mr_retry(m, seen.id));
    must(mr_close(m));
}

// ---- F: leases --------------------------------------------------------------------------------

static void F6_F7_a_late_done_of_the_first_delivery_does_not_end_the_second(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "backoff", "1ms"));
    push(m, "s", "k", "x");
    mr_job *first = NULL;
    mr_take_options brief = { .lease_ms = 20 };
    must(mr_take(m, "s", &brief, &first));
    mr_job *second = take_waiting(m, "s");
    assert_int_equal(mr_job_attempt(second), 2);
    refused(MR_ESTALE, mr_beat(first));
    assert_true(mr_job_stopped(first));
    refused(MR_ESTALE, mr_done(first));
    assert_int_equal(look(m, "s").running, 1);
    must(mr_done(second));
    assert_int_equal(look(m, "s").done, 1);
    must(mr_close(m));
}

static void F8_a_delay_longer_than_the_lease_is_just_a_delay(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "lease", "10ms"));
    must(mr_push(m, "s", mr_str("later"), &(mr_push_options){ .delay_ms = 3600000 }, NULL));
    must(mr_push(m, "s", mr_str("soon"), &(mr_push_options){ .delay_ms = 60 }, NULL));
    mr_take_options patient = { .wait_ms = MR_FOREVER, .lease_ms = 3600000 };
    mr_job *job = NULL;
    must(mr_take(m, "s", &patient, &job)); // the stage's lease has passed several times
    assert_string_equal(mr_job_body(job).data, "soon");
    assert_int_equal(mr_job_attempt(job), 1);
    assert_int_equal(look(m, "s").failed, 0);
    assert_int_equal(look(m, "s").delayed, 1);
    must(mr_done(job)); // its own lease was long
    must(mr_close(m));
}

// ---- Room -------------------------------------------------------------------------------------

static void *end_one(void *arg) {
    mr *m = arg;
    mr_job *job = take_waiting(m, "s");
    must(mr_done(job));
    return NULL;
}

static void R13_a_push_over_the_limit_waits_for_room_or_is_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "max-jobs", "1"));
    push(m, "s", NULL, "a");
    refused(MR_EFULL, mr_push(m, "s", mr_str("b"), NULL, NULL));
    mr_push_options brief = { .room_ms = 10 }, patient = { .room_ms = MR_FOREVER };
    refused(MR_EFULL, mr_push(m, "s", mr_str("b"), &brief, NULL));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_one, m), 0);
    must(mr_push(m, "s", mr_str("b"), &patient, NULL));
    pthread_join(thread, NULL);
    must(mr_done(take(m, "s", "b")));
    must(mr_close(m));
}

static void R13_push_many_stops_at_the_first_that_does_not_fit(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "max-jobs", "3"));
    mr_item items[5] = { { .body = mr_str("a") },
                         { .body = mr_str("b") },
                         { .body = mr_str("c") },
                         { .body = mr_str("d") },
                         { .body = mr_str("e") } };
    mr_id ids[5] = { 0 };
    size_t n = 99;
    must(mr_push_many(m, "s", items, 5, NULL, ids, &n));
    assert_int_equal(n, 3);
    assert_true(ids[0] && ids[1] && ids[2] && !ids[3]);
    if (story_shards == 1)
        assert_true(ids[1] > ids[0] && ids[2] > ids[1]);
    refused(MR_EFULL, mr_push_many(m, "s", items + 3, 2, NULL, ids, &n));
    assert_int_equal(n, 3);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, end_one, m), 0);
    must(mr_push_many(m, "s", items + 3, 2, &(mr_push_options){ .room_ms = MR_FOREVER }, NULL, &n));
    assert_int_equal(n, 2);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    const char *left[] = { "c", "d", "e" };
    for (int i = 0; i < 3; i++)
        must(mr_done(take_next(m, "s", left[i])));
    must(mr_push_many(m, "s", NULL, 0, NULL, NULL, &n));
    assert_int_equal(n, 0);
    must(mr_close(m));
}

// Pushes behind a refused one are refused, too, or a remote engine would use its numbers twice.
static void E2_what_is_refused_for_its_size_uses_up_no_number(void **state) {
    (void)state;
    mr *m = open_mem();
    static char long_key[2000];
    memset(long_key, 'k', sizeof long_key);
    mr_item items[3] = { { .key = mr_str("k"), .body = mr_str("a") },
                         { .key = { long_key, sizeof long_key }, .body = mr_str("b") },
                         { .key = mr_str("k"), .body = mr_str("c") } };
    size_t n = 99;
    must(mr_push_many(m, "s", items, 3, NULL, NULL, &n));
    assert_int_equal(n, 1);
    refused(MR_ETOOBIG, mr_push_many(m, "s", items + 1, 2, NULL, NULL, &n));
    push(m, "s", "k", "d");
    push(m, "s", "k", "e");
    const char *there[] = { "a", "d", "e" };
    for (int i = 0; i < 3; i++)
        must(mr_done(take_next(m, "s", there[i])));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void R15_a_paused_stage_accepts_and_does_not_start(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_pause(m, "s"));
    push(m, "s", NULL, "x");
    nothing_to_take(m, "s");
    assert_string_equal(look(m, "s").held_by, "paused");
    refused(MR_EAGAIN, mr_stage_wait_empty(m, "s", 10));
    must(mr_stage_resume(m, "s"));
    must(mr_done(take(m, "s", "x")));
    must(mr_close(m));
}

// ---- Closing ----------------------------------------------------------------------------------

static void X_an_engine_in_use_does_not_close(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ends ends = { .gate = GATE };
    must(mr_call_start(m, "s", mr_str("x"), NULL, note_end, &ends, NULL));
    refused(MR_EBUSY, mr_close(m));
    mr_job *job = take(m, "s", "x");
    refused(MR_EBUSY, mr_close(m));
    must(mr_done(job));
    gate_wait(&ends.gate, 1);
    must(mr_close(m));
    refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), NULL, NULL));
    refused(MR_EINVAL, mr_close(m));
    must(mr_close(NULL));
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(A1_handing_in_returns_at_once_and_the_answer_arrives_later),
        cmocka_unit_test(A2_limit_5_starts_five_queues_the_rest_and_an_end_starts_the_next),
        cmocka_unit_test(A3_the_queue_can_be_looked_into),
        cmocka_unit_test(A4_A5_a_call_without_a_caller_never_runs_and_frees_its_slot),
        cmocka_unit_test(A4_a_caller_whose_time_is_up_is_not_interested),
        cmocka_unit_test(A6_a_call_ends_at_the_deadline_and_a_late_result_is_discarded),
        cmocka_unit_test(A7_a_result_in_time_reaches_its_caller_once),
        cmocka_unit_test(A8_the_limit_is_absolute_from_the_push),
        cmocka_unit_test(A8_work_that_throws_does_not_restart_for_ever),
        cmocka_unit_test(A10_wasted_waiting_time_is_counted),
        cmocka_unit_test(D2_waiting_takes_are_answered_when_work_comes_as_many_as_there_is_work),
        cmocka_unit_test(T1_what_is_not_known_is_answered_clearly),
        cmocka_unit_test(T2_T3_T4_one_channel_runs_one_after_another_in_order),
        cmocka_unit_test(T5_two_keys_block_of_three_gives_the_first_keys_jobs_then_the_second),
        cmocka_unit_test(C9_a_block_ends_where_another_lease_begins),
        cmocka_unit_test(C9_a_failure_inside_a_block_loses_no_later_job),
        cmocka_unit_test(C9_the_state_passes_over_what_is_cancelled_inside_a_block),
        cmocka_unit_test(C9_a_worker_does_not_continue_with_a_refused_state),
        cmocka_unit_test(T6_T7_removing_a_keys_jobs_leaves_the_others),
        cmocka_unit_test(G9_a_job_is_released_for_a_while),
        cmocka_unit_test(rule15_one_key_is_paused),
        cmocka_unit_test(E_a_commit_carries_result_state_and_emits_together),
        cmocka_unit_test(E_a_key_without_a_state_has_none_of_another_key),
        cmocka_unit_test(G12_metadata_reaches_the_worker_unchanged),
        cmocka_unit_test(G6_jobs_of_a_stage_are_cancelled_by_status_and_key),
        cmocka_unit_test(G11_a_worker_says_how_far_it_is),
        cmocka_unit_test(G10_a_debounced_push_has_the_last_body),
        cmocka_unit_test(E2_two_pushes_with_one_once_are_one_job),
        cmocka_unit_test(F13_exhausted_attempts_make_a_dead_job_that_is_listed_and_retryable),
        cmocka_unit_test(F6_F7_a_late_done_of_the_first_delivery_does_not_end_the_second),
        cmocka_unit_test(F8_a_delay_longer_than_the_lease_is_just_a_delay),
        cmocka_unit_test(R13_a_push_over_the_limit_waits_for_room_or_is_refused),
        cmocka_unit_test(R13_push_many_stops_at_the_first_that_does_not_fit),
        cmocka_unit_test(E2_what_is_refused_for_its_size_uses_up_no_number),
        cmocka_unit_test(R15_a_paused_stage_accepts_and_does_not_start),
        cmocka_unit_test(X_an_engine_in_use_does_not_close),
    };
    return run_here_and_there(tests, sizeof tests / sizeof *tests);
}
