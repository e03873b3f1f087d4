// Orders of an epic on the bare core: THEN is pushed with the end of the epic, in one group and
// once; CANCEL ends its jobs and refuses later ones; FORGET drops it after a time.
#include "support/core_fixture.h"

// Pushes numbers 1 to `count`, and ends the epic there.
static void push_epic(struct core_fixture *t, const char *name, uint64_t count) {
    char body[FIXTURE_TEXT];
    for (uint64_t n = 1; n <= count; n++) {
        (void)snprintf(body, sizeof body, "%s%d", name, (int)n);
        must(push_number(t, name, n, body));
    }
    must(end_epic(t, name, count));
}

static void expect_then(struct core_fixture *t, uint64_t pushed, bool waits) {
    struct epic_info e = look_epic(t, "e");
    assert_int_equal(look_stage(t, "report").pushed, pushed);
    assert_int_equal(e.then_pushed, pushed != 0);
    assert_int_equal(e.then.size, waits ? strlen("report") : 0);
}

// ---- THEN -------------------------------------------------------------------------------------

// G4: END of the last job, PUSH of THEN and EPIC are one group, so every prefix of the log has both
// or none.
static void G4_then_is_pushed_in_the_commit_that_ends_the_epic(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "k", "all done"));
    push_epic(t, "e", 2);
    expect_take(t, "e1");
    expect_then(t, 0, true);
    crash(t);
    expect_take(t, "e2");
    expect_then(t, 1, false);
    crash(t);
    expect_then(t, 1, false);
    struct taken then = take_from(t, "report");
    assert_string_equal(then.body, "all done");
    assert_string_equal(then.key, "k");
    done(t, then);
}

static void G4_the_end_the_push_and_the_epic_are_one_group(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    bool ended = false, pushed = false, noted = false;
    for (size_t i = 0; i < t->log_count && t->mode == MODE_PLAIN; i++) {
        struct record r;
        struct record_about about;
        must(record_decode(bytes_of(t->log[i].bytes, t->log[i].head_size), &about, &r));
        ended |= r.kind == RECORD_END;
        pushed |= r.kind == RECORD_PUSH && ended;
        noted |= r.kind == RECORD_EPIC && about.epic.pushed;
        if (t->log[i].last)
            assert_true(ended == pushed && pushed == noted);
    }
    expect_then(t, 1, false);
}

// G4: the last number names a job that is there already, so none is made; LAST changes that job.
static void G4_then_comes_with_a_last_number_that_makes_no_job(void **state) {
    struct core_fixture *t = *state;
    struct push once = { .body = mr_str("first"), .job.once = mr_str("o") };
    struct push last = {
        .source = mr_str("e"), .number = 1, .epic = true, .job.once = mr_str("o")
    };
    for (int way = 0; way < 2; way++) {
        struct pushed pushed = { 0 };
        uint64_t id = push_with(t, once);
        must(epic_then(t, "e", "report", "", "x"));
        uint64_t before = look_stage(t, "report").pushed;
        must(end_epic(t, "e", 1));
        last.job.last = way;
        last.body = mr_str(way ? "second" : "first");
        must(try_push(t, last, &pushed));
        assert_true(pushed.repeat && pushed.id == id);
        assert_int_equal(look_stage(t, "report").pushed, before + 1);
        crash(t);
        assert_int_equal(look_stage(t, "report").pushed, before + 1);
        assert_true(look_epic(t, "e").over);
        expect_take(t, way ? "second" : "first");
        struct taken then = take_from(t, "report");
        assert_string_equal(then.body, "x");
        done(t, then);
        must(drop_epic(t, "e"));
        pass_ms(t, 3600000); // the name is forgotten
    }
}

// Every way in which a job can end ends its epic.
static void G4_then_comes_with_each_kind_of_end(void **state) {
    struct core_fixture *t = *state;
    for (int way = 0; way < 5; way++) {
        must(epic_then(t, "e", "report", "", "x"));
        struct push last = { .source = mr_str("e"),
                             .number = 1,
                             .epic = true,
                             .body = mr_str("last"),
                             .job.deadline_ms = way == 2 ? 10 : 0 };
        uint64_t id = push_with(t, last);
        must(end_epic(t, "e", 1));
        uint64_t before = look_stage(t, "report").pushed;
        if (way == 0)
            must(fail_with(t, take(t), "no", MR_NEVER));
        else if (way == 1)
            assert_true(cancel(t, id));
        else if (way == 2)
            pass_ms(t, 10);
        else if (way == 3)
            must(drop(t, id));
        else
            lose(t, (set(t, "attempts", "1"), (void)take(t), 0));
        assert_int_equal(look_stage(t, "report").pushed, before + 1);
        if (way == 0)
            must(drop(t, id));
        must(drop_epic(t, "e"));
    }
}

// The last number comes by END or SKIP, or it makes no job.
static void G4_then_comes_with_end_and_skip(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    must(push_number(t, "e", 1, "a"));
    expect_take(t, "a");
    expect_then(t, 0, true);
    must(end_epic(t, "e", 2));
    expect_then(t, 0, true);
    must(skip_number(t, "e", 2));
    expect_then(t, 1, false);
    must(drop_epic(t, "e"));

    must(epic_then(t, "e", "report", "", "y"));
    must(end_epic(t, "e", 0)); // an empty epic ends at once
    assert_int_equal(look_stage(t, "report").pushed, 2);
    must(drop_epic(t, "e"));

    uint64_t first = push_once(t, "k", "n", "once");
    must(epic_then(t, "e", "report", "", "z"));
    must(end_epic(t, "e", 1));
    struct pushed again;
    must(try_push(t,
                  (struct push){ .source = mr_str("e"),
                                 .number = 1,
                                 .epic = true,
                                 .job = { .key = mr_str("k"), .once = mr_str("n") } },
                  &again));
    assert_int_equal(again.id, first);
    assert_int_equal(look_stage(t, "report").pushed, 3);
}

// G4: once, even if dead jobs are retried later.
static void G4_then_is_pushed_once_although_a_dead_job_is_retried(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    push_epic(t, "e", 1);
    struct taken job = take(t);
    must(fail_with(t, job, "no", MR_NEVER));
    expect_then(t, 1, false);
    must(retry(t, job.id));
    assert_false(look_epic(t, "e").over);
    expect_take(t, "e1");
    assert_true(look_epic(t, "e").over);
    expect_then(t, 1, false);
    crash(t);
    expect_then(t, 1, false);
}

static void G4_then_said_after_the_end_is_pushed_at_once(void **state) {
    struct core_fixture *t = *state;
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    must(epic_then(t, "e", "report", "", "x"));
    expect_then(t, 1, false);
    must(epic_then(t, "e", "report", "", "x")); // the reply was lost
    expect_then(t, 1, false);
    refused(MR_EINVAL, epic_then(t, "e", "report", "", "y"));
    crash(t);
    must(epic_then(t, "e", "report", "", "x"));
    expect_then(t, 1, false);
}

static void a_second_then_replaces_the_first(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "k", "old"));
    must(epic_then(t, "e", "report", "", "new"));
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    struct taken then = take_from(t, "report");
    assert_string_equal(then.body, "new");
    assert_string_equal(then.key, "");
    done(t, then);
    expect_then(t, 1, false);
}

static void then_is_pushed_whatever_the_limits(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    must(core_set(t->core, mr_str("report"), mr_str("max-jobs"), mr_str("1")));
    must(try_push(t, (struct push){ .stage = mr_str("report") }, &(struct pushed){ 0 }));
    pause_stage(t, "report");
    drain_stage(t, "report");
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    expect_then(t, 2, false);
}

static void a_dropped_epic_pushes_nothing(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    push_epic(t, "e", 1);
    must(drop_epic(t, "e"));
    expect_take(t, "e1");
    struct stage_info info;
    refused(MR_EGONE, core_look_stage(t->core, mr_str("report"), &info)); // it was made for THEN
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    assert_int_equal(look_epic(t, "e").then_pushed, 0);
}

static void the_stage_of_then_stays(void **state) {
    struct core_fixture *t = *state;
    must(epic_then(t, "e", "report", "", "x"));
    refused(MR_EINVAL, core_stage_remove(t->core, mr_str("report")));
    assert_non_null(strstr(error_text(), "THEN"));
    must(drop_epic(t, "e"));
    refused(MR_EGONE, core_stage_remove(t->core, mr_str("report")));
}

static void what_cannot_be_a_then_is_refused(void **state) {
    struct core_fixture *t = *state;
    static char big[THEN_BODY_MOST + 2], key[KEY_MOST + 2];
    memset(big, 'b', sizeof big - 1);
    memset(key, 'k', sizeof key - 1);
    core_fixture_learn_epic(t, "e");
    struct emit then = { .stage = mr_str("report"), .body = mr_str(big) };
    refused(MR_ETOOBIG, core_epic_then(t->core, mr_str("s"), mr_str("e"), &then));
    then.body.size--;
    then.job.key = mr_str(key);
    refused(MR_ETOOBIG, core_epic_then(t->core, mr_str("s"), mr_str("e"), &then));
    then.job.key.size--;
    then.stage = mr_str("no stage");
    refused(MR_EINVAL, core_epic_then(t->core, mr_str("s"), mr_str("e"), &then));
    then.stage = (mr_bytes){ 0 };
    refused(MR_EINVAL, core_epic_then(t->core, mr_str("s"), mr_str("e"), &then));
    then.stage = mr_str("report");
    refused(MR_EINVAL, core_epic_then(t->core, mr_str("s"), (mr_bytes){ 0 }, &then));
    struct stage_info info;
    refused(MR_EGONE, core_look_stage(t->core, mr_str("report"), &info));
    must(core_epic_then(t->core, mr_str("s"), mr_str("e"), &then)); // as large as it may be
    must(end_epic(t, "e", 0));
    assert_int_equal(look_stage(t, "report").pushed, 1);
    core_fixture_forget_log(t, t->log_count); // keys of this length are not printed
}

// ---- CANCEL -----------------------------------------------------------------------------------

// G5: waiting, delayed and running jobs, and no others.
static void G5_an_epic_is_cancelled_whole(void **state) {
    struct core_fixture *t = *state;
    uint64_t other = push(t, "k", "other");
    must(push_number(t, "e", 1, "a"));
    must(push_number(t, "e", 2, "b"));
    push_with(t, (struct push){ .source = mr_str("e"),
                                .number = 3,
                                .epic = true,
                                .body = mr_str("c"),
                                .job.delay_ms = 1000 });
    expect_take(t, "other");
    struct taken running = take(t);
    must(epic_then(t, "e", "report", "", "x"));
    must(cancel_epic(t, "e"));
    struct epic_info e = look_epic(t, "e");
    assert_int_equal(e.cancelled, 3);
    assert_int_equal(e.waiting + e.running, 0);
    assert_true(e.stopped && e.over); // although its last number is not known
    expect_status(t, other, JOB_DONE);
    expect_then(t, 1, false);
    refused(MR_ECANCELLED, done_again(t, running));
    refused(MR_ECANCELLED, push_number(t, "e", 4, "late"));
    must(push_number(t, "e", 2, "b")); // a repeat is answered as before
    must(cancel_epic(t, "e"));
    crash(t);
    refused(MR_ECANCELLED, push_number(t, "e", 4, "late"));
    expect_then(t, 1, false);
    must(drop_epic(t, "e"));
    must(push_number(t, "e", 1, "again"));
    expect_take(t, "again");
}

static void an_epic_without_jobs_is_cancelled_too(void **state) {
    struct core_fixture *t = *state;
    refused(MR_EGONE, core_epic_cancel(t->core, mr_str("s"), mr_str("e")));
    must(epic_then(t, "e", "report", "", "x"));
    must(cancel_epic(t, "e"));
    assert_true(look_epic(t, "e").over);
    expect_then(t, 1, false);
}

static void a_job_retried_after_cancel_may_run(void **state) {
    struct core_fixture *t = *state;
    push_epic(t, "e", 2);
    struct taken dead = take(t);
    must(fail_with(t, dead, "no", MR_NEVER));
    must(cancel_epic(t, "e"));
    assert_int_equal(look_epic(t, "e").dead, 1);
    must(retry(t, dead.id));
    crash(t);
    pass_ms(t, 1);
    expect_take(t, "e1");
    must(cancel_epic(t, "e"));
    assert_int_equal(look_epic(t, "e").cancelled, 1);
}

// G5: a large epic is ended piece by piece, also after a crash in between.
static void G5_a_large_epic_is_cancelled_in_pieces(void **state) {
    (void)state;
    enum { MANY = 50 };
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_due = 7 });
    for (uint64_t n = 1; n <= MANY; n++) {
        must(push_number(t, "e", n, "x"));
        if (n % 10 == 0)
            push(t, "k", "other");
    }
    must(epic_then(t, "e", "report", "", "x"));
    t->unlike = true; // after a restart it goes on at once
    must(core_epic_cancel(t->core, mr_str("s"), mr_str("e")));
    uint64_t left = look_epic(t, "e").waiting;
    assert_true(left > 0 && !look_epic(t, "e").over);
    refused(MR_ECANCELLED, push_number(t, "e", MANY + 1, "late"));
    crash(t);
    for (int turns = 0; !look_epic(t, "e").over; turns++) {
        assert_true(turns < MANY);
        assert_int_equal(look_stage(t, "report").pushed, 0);
        assert_true(core_next(t->core) <= core_now(t->core));
        must(core_advance(t->core, core_now(t->core)));
    }
    t->unlike = false;
    replay(t);
    assert_int_equal(look_epic(t, "e").cancelled, MANY);
    assert_int_equal(look_stage(t, "report").pushed, 1);
    assert_int_equal(look_stage(t, "s").waiting, MANY / 10);
    core_fixture_destroy(t);
}

static void a_watcher_is_notified_of_cancel(void **state) {
    struct core_fixture *t = *state;
    must(push_number(t, "e", 1, "a"));
    must(watch_epic(t, 0, "e", EPIC_OVER));
    must(core_epic_cancel(t->core, mr_str("s"), mr_str("e")));
    expect_events(t, "watcher 0\n");
}

// ---- FORGET -----------------------------------------------------------------------------------

static void expect_forgotten(struct core_fixture *t) {
    struct epic_info e;
    refused(MR_EGONE, core_epic(t->core, mr_str("s"), mr_str("e"), &e));
}

static void an_epic_is_forgotten_after_its_time(void **state) {
    struct core_fixture *t = *state;
    must(forget_epic(t, "e", 5000));
    push_epic(t, "e", 1);
    pass_ms(t, 100000); // it has not ended
    expect_take(t, "e1");
    pass_ms(t, 3000);
    crash(t);
    pass_ms(t, 1999);
    assert_int_equal(look_epic(t, "e").forget_ms, 5000);
    pass_ms(t, 1);
    expect_forgotten(t);
    crash(t);
    expect_forgotten(t);
    must(push_number(t, "e", 1, "anew"));
    expect_take(t, "anew");
}

static void an_ended_epic_is_forgotten_from_now_on(void **state) {
    struct core_fixture *t = *state;
    push_epic(t, "e", 1);
    expect_take(t, "e1");
    pass_ms(t, 100000);
    must(forget_epic(t, "e", 1000));
    pass_ms(t, 999);
    must(forget_epic(t, "e", 0)); // it is kept after all
    pass_ms(t, 100000);
    assert_int_equal(look_epic(t, "e").forget_ms, 0);
    must(forget_epic(t, "e", 1000));
    pass_ms(t, 1000);
    expect_forgotten(t);
}

// A dead job that is retried puts it off.
static void the_time_begins_again_with_the_last_end(void **state) {
    struct core_fixture *t = *state;
    must(forget_epic(t, "e", 5000));
    push_epic(t, "e", 1);
    struct taken job = take(t);
    must(fail_with(t, job, "no", MR_NEVER));
    pass_ms(t, 4000);
    must(retry(t, job.id));
    pass_ms(t, 10000);
    assert_int_equal(look_epic(t, "e").waiting, 1);
    expect_take(t, "e1");
    pass_ms(t, 4999);
    assert_true(look_epic(t, "e").over);
    pass_ms(t, 1);
    expect_forgotten(t);
}

static void all_orders_hold_together(void **state) {
    struct core_fixture *t = *state;
    must(push_number(t, "e", 1, "a"));
    must(epic_then(t, "e", "report", "", "x"));
    must(forget_epic(t, "e", 2000));
    must(cancel_epic(t, "e"));
    expect_then(t, 1, false);
    pass_ms(t, 1999);
    assert_true(look_epic(t, "e").stopped);
    pass_ms(t, 1);
    expect_forgotten(t);
}

static void an_impossible_time_is_refused(void **state) {
    struct core_fixture *t = *state;
    refused(MR_EINVAL, core_epic_forget(t->core, mr_str("s"), mr_str("e"), 999));
    refused(MR_EINVAL, core_epic_forget(t->core, mr_str("s"), mr_str("e"), UINT64_MAX));
    expect_forgotten(t);
}

// ---- Damage -----------------------------------------------------------------------------------

static void refuse_orders(struct record_epic said, const char *key, uint64_t source) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    struct record_about about = { .epic = said };
    must(push_number(t, "e", 1, "a"));
    struct record r = { .kind = RECORD_EPIC,
                        .time_ms = core_now(t->core),
                        .stage = 1,
                        .source = source,
                        .key = mr_str(key),
                        .about = &about };
    uint8_t head[RECORD_MAX];
    struct core *core = NULL;
    size_t size = record_encode(&r, head);
    must(core_create(&(struct core_config){ .limits = { 0 } }, &core));
    must(core_fixture_replay_into(t, t->log_count, core));
    refused(MR_ECORRUPT, core_replay(core, UINT64_C(1) << 40, bytes_of(head, size), 0));
    core_destroy(core);
    core_fixture_destroy(t);
}

static void orders_that_cannot_be_are_damage(void **state) {
    (void)state;
    mr_bytes stage = mr_str("report");
    refuse_orders((struct record_epic){ .then = stage }, "", 0);
    refuse_orders((struct record_epic){ .then = mr_str("no stage") }, "", 1);
    refuse_orders((struct record_epic){ .then = stage, .pushed = 5 }, "", 1);
    refuse_orders((struct record_epic){ .body = mr_str("b") }, "", 1);
    refuse_orders((struct record_epic){ .cancelled = true }, "k", 1);
    refuse_orders((struct record_epic){ .forget_ms = 999 }, "", 1);
    refuse_orders((struct record_epic){ .forget_ms = UINT64_MAX }, "", 1);
    refuse_orders((struct record_epic){ .ended_ms = INSTANT_MOST }, "", 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G4_then_is_pushed_in_the_commit_that_ends_the_epic),
        CORE_TEST(G4_the_end_the_push_and_the_epic_are_one_group),
        CORE_TEST(G4_then_comes_with_a_last_number_that_makes_no_job),
        CORE_TEST(G4_then_comes_with_each_kind_of_end),
        CORE_TEST(G4_then_comes_with_end_and_skip),
        CORE_TEST(G4_then_is_pushed_once_although_a_dead_job_is_retried),
        CORE_TEST(G4_then_said_after_the_end_is_pushed_at_once),
        CORE_TEST(a_second_then_replaces_the_first),
        CORE_TEST(then_is_pushed_whatever_the_limits),
        CORE_TEST(a_dropped_epic_pushes_nothing),
        CORE_TEST(the_stage_of_then_stays),
        CORE_TEST(what_cannot_be_a_then_is_refused),
        CORE_TEST(G5_an_epic_is_cancelled_whole),
        CORE_TEST(an_epic_without_jobs_is_cancelled_too),
        CORE_TEST(a_job_retried_after_cancel_may_run),
        CORE_TEST(G5_a_large_epic_is_cancelled_in_pieces),
        CORE_TEST(a_watcher_is_notified_of_cancel),
        CORE_TEST(an_epic_is_forgotten_after_its_time),
        CORE_TEST(an_ended_epic_is_forgotten_from_now_on),
        CORE_TEST(the_time_begins_again_with_the_last_end),
        CORE_TEST(all_orders_hold_together),
        CORE_TEST(an_impossible_time_is_refused),
        CORE_TEST(orders_that_cannot_be_are_damage),
    };
    return RUN_CORE_TESTS(tests);
}
