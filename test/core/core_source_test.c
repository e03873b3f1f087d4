// Handing in: the same name or number makes no second job, a full stage makes pushes wait in line,
// and an epic is read as fast as it is worked off. Rules 12 and 13, on the bare core.
#include "support/core_fixture.h"

// ---- Names ------------------------------------------------------------------------------------

static void E2_a_name_pushed_twice_is_one_job(void **state) {
    struct core_fixture *t = *state;
    struct pushed first, again;
    struct push p = { .job.key = mr_str("k"), .job.once = mr_str("n"), .body = mr_str("a") };
    must(try_push(t, p, &first));
    must(try_push(t, p, &again));
    assert_false(first.repeat);
    assert_true(again.repeat);
    assert_int_equal(first.id, again.id);
    assert_true(push_once(t, "l", "n", "b") != first.id); // a name belongs to its stage and key
    assert_int_equal(look_stage(t, "s").pushed, 2);
}

static void E2_S6_a_call_repeated_gets_the_first_ones_result(void **state) {
    struct core_fixture *t = *state;
    struct pushed again;
    uint64_t id = call(t, 0, "n", "a", 0);
    done_with(t, take(t), "42", NULL);
    crash(t);
    t->callers[1] = (struct caller){ .conn = &t->conns[0] };
    struct push p = { .job.once = mr_str("n"), .body = mr_str("a"), .caller = &t->callers[1] };
    must(try_push(t, p, &again));
    assert_true(again.repeat && again.ended);
    assert_int_equal(again.id, id);
    assert_int_equal(again.outcome.status, JOB_DONE);
    assert_string_equal(core_fixture_read(t, look(t, id).at), "42");
    set(t, "retention", "0");
    pass_ms(t, 1);
    refused(MR_EGONE, try_push(t, p, &again)); // known, but its result is not
}

// E3: the memory of names is bounded by a window, and survives restarts.
static void S5_E3_a_name_is_remembered_for_the_window_after_its_end(void **state) {
    struct core_fixture *t = *state;
    set(t, "dedupe-window", "1000");
    set(t, "retention", "10");
    uint64_t id = push_once(t, "k", "n", "a");
    pass_ms(t, 5000); // before the end no window runs
    assert_int_equal(push_once(t, "k", "n", "a"), id);
    expect_take(t, "a");
    pass_ms(t, 500); // the job is forgotten, its name is not
    assert_int_equal(push_once(t, "k", "n", "a"), id);
    crash(t);
    pass_ms(t, 499);
    assert_int_equal(push_once(t, "k", "n", "a"), id);
    pass_ms(t, 1);
    assert_true(push_once(t, "k", "n", "a") != id);
}

static void rule12_cancelled_and_expired_release_the_name_dead_does_not(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push_once(t, "k", "n", "a");
    assert_true(cancel(t, a));
    uint64_t b = push_with(t, (struct push){ .job.key = mr_str("k"),
                                             .job.once = mr_str("n"),
                                             .body = mr_str("b"),
                                             .job.deadline_ms = 10 });
    assert_true(b != a);
    pass_ms(t, 10);
    uint64_t c = push_once(t, "k", "n", "c");
    assert_true(c != b);
    must(fail_with(t, take(t), "no", MR_NEVER));
    assert_int_equal(push_once(t, "k", "n", "c"), c);
    must(drop(t, c));
    assert_true(push_once(t, "k", "n", "d") != c);
}

// ---- Numbers ----------------------------------------------------------------------------------

static void E2_a_number_pushed_twice_is_one_job(void **state) {
    struct core_fixture *t = *state;
    struct pushed first, again;
    struct push p = { .source = mr_str("client"), .number = 1, .body = mr_str("a") };
    must(try_push(t, p, &first));
    crash(t);
    must(try_push(t, p, &again));
    assert_true(again.repeat);
    assert_int_equal(again.id, first.id);
    p.number = 0;
    refused(MR_EINVAL, try_push(t, p, &again));
}

static void S5_E3_numbers_are_remembered_for_ever(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    set(t, "dedupe-window", "0");
    set(t, "retention", "0,0");
    t->mode = MODE_REFUSED; // it is long enough without every prefix of it
    enum { MANY = SOURCE_WINDOW + 100 };
    struct push p = { .stage = mr_str("s"), .source = mr_str("e"), .epic = true };
    pause_stage(t, "s");
    for (p.number = 1; p.number <= MANY; p.number++)
        must(core_push(t->core, &p, &pushed));
    for (int restarted = 0; restarted < 2; restarted++) {
        for (p.number = 1; p.number <= MANY; p.number++) {
            must(core_push(t->core, &p, &pushed));
            assert_true(pushed.repeat);
            // With its id while it is in the window, else it is only known to have been.
            assert_int_equal(pushed.id != 0, p.number > MANY - SOURCE_WINDOW);
        }
        assert_int_equal(look_epic(t, "e").resume, MANY + 1);
        crash(t);
    }
    assert_int_equal(look_stage(t, "s").pushed, MANY);
}

static void rule12_numbers_may_come_in_any_order_within_the_window(void **state) {
    struct core_fixture *t = *state;
    struct pushed p;
    must(push_number(t, "e", 3, "c"));
    must(push_number(t, "e", 1, "a"));
    assert_int_equal(look_epic(t, "e").resume, 2);
    struct push far = { .source = mr_str("e"), .number = 2 + SOURCE_WINDOW, .epic = true };
    refused(MR_EGAP, try_push(t, far, &p));
    crash(t);
    assert_int_equal(look_epic(t, "e").resume, 2);
    must(push_number(t, "e", 2, "b"));
    assert_int_equal(look_epic(t, "e").resume, 4);
    expect_order(t, "e", "c a b"); // by arrival
}

// S9: a full queue makes the epic wait, and order survives the refusal.
static void S9_a_refused_number_holds_the_higher_ones(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-jobs", "2");
    must(push_number(t, "e", 1, "1"));
    must(push_number(t, "e", 2, "2"));
    refused(MR_EFULL, push_number(t, "e", 3, "3"));
    refused(MR_EGAP, push_number(t, "e", 4, "4"));
    expect_take(t, "1");
    refused(MR_EGAP, push_number(t, "e", 4, "4")); // there is room, but not for this one
    must(push_number(t, "e", 2, "2"));             // a repeat is always answered
    must(push_number(t, "e", 3, "3"));
    expect_take(t, "2");
    must(push_number(t, "e", 4, "4"));
    expect_take(t, "3");
    expect_take(t, "4");
}

// Whatever it is refused for: the producer counts none behind it as accepted.
static void S9_a_number_refused_for_its_size_holds_the_higher_ones(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    static char long_key[2000];
    struct push p = { .source = mr_str("e"), .number = 1, .epic = true, .body = mr_str("1") };
    p.job.key = (mr_bytes){ long_key, sizeof long_key };
    refused(MR_ETOOBIG, try_push(t, p, &pushed));
    refused(MR_EGAP, push_number(t, "e", 2, "2"));
    p.job.key = (mr_bytes){ 0 };
    p.stage = mr_str("no stage");
    refused(MR_EINVAL, try_push(t, p, &pushed));
    refused(MR_EGAP, push_number(t, "e", 2, "2"));
    must(push_number(t, "e", 1, "1"));
    must(push_number(t, "e", 2, "2"));
    p.number = 0;
    refused(MR_EINVAL, try_push(t, p, &pushed)); // no number: it holds nothing
    must(push_number(t, "e", 3, "3"));
    expect_order(t, "e", "1 2 3");
}

// The hold belongs to the connection: a new connection starts again from the resume point.
static void S9_the_hold_ends_with_the_connection(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-jobs", "1");
    must(push_number(t, "e", 1, "1"));
    refused(MR_EFULL, push_number(t, "e", 2, "2"));
    lose(t, 0);
    assert_int_equal(look_epic(t, "e").resume, 2);
    expect_take(t, "1");
    must(push_number(t, "e", 3, "3"));
}

static void T9_an_epic_without_workers_is_kept_and_reported(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    struct push p = { .body = mr_str("a"), .source = mr_str("e"), .epic = true, .number = 1 };
    must(try_push(t, p, &pushed));
    crash(t);
    assert_int_equal(look_epic(t, "e").waiting, 1);
    assert_string_equal(look_stage(t, "s").held_by, "no-worker");
    expect_take(t, "a");
    assert_int_equal(look_epic(t, "e").done, 1);
}

// T21: one append in five is refused; the producer repeats the push, and every job is there once.
static void T21_an_epic_is_complete_although_storage_fails_now_and_then(void **state) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    enum { COUNT = 20 };
    struct pushed pushed;
    (void)state;
    for (uint64_t n = 1; n <= COUNT; n++) {
        struct push p = { .body = mr_str("x"),
                          .source = mr_str("e"),
                          .epic = true,
                          .number = n,
                          .conn = &t->conns[0] };
        if (n % 5 == 0) {
            t->refuse = MR_EFULL;
            refused(MR_EFULL, try_push(t, p, &pushed));
            p.number = n + 1;
            refused(MR_EGAP, try_push(t, p, &pushed)); // no later number is accepted
            p.number = n;
        }
        must(try_push(t, p, &pushed));
        assert_false(pushed.repeat);
        must(try_push(t, p, &pushed));
        assert_true(pushed.repeat);
    }
    must(end_epic(t, "e", COUNT));
    for (int i = 0; i < COUNT; i++) {
        expect_take(t, "x");
        if (i % 5 == 0)
            crash(t);
    }
    expect_no_work(t);
    assert_true(look_epic(t, "e").over);
    assert_int_equal(look_epic(t, "e").done, COUNT);
    core_fixture_destroy(t);
}

static void rule12_an_epic_has_an_end_and_progress(void **state) {
    struct core_fixture *t = *state;
    struct epic_info e;
    refused(MR_EGONE, core_epic(t->core, mr_str("s"), mr_str("e"), &e));
    for (uint64_t n = 1; n <= 5; n++)
        must(push_number(t, "e", n, (const char[]){ (char)('0' + n), 0 }));
    must(skip_number(t, "e", 6));
    must(end_epic(t, "e", 6));
    expect_take(t, "1");
    must(fail_with(t, take(t), "no", MR_NEVER));
    assert_true(cancel(t, take(t).id));
    lose(t, 0);
    struct taken four = take(t);
    e = look_epic(t, "e");
    assert_int_equal(e.resume, 7);
    assert_int_equal(e.total, 6);
    assert_int_equal(e.accepted, 5);
    assert_int_equal(e.done, 1);
    assert_int_equal(e.dead, 1);
    assert_int_equal(e.cancelled, 1);
    assert_int_equal(e.running, 1);
    assert_int_equal(e.waiting, 1);
    done(t, four);
    crash(t);
    assert_int_equal(look_epic(t, "e").done, 2);
    refused(MR_EINVAL, skip_number(t, "e", 0));
    refused(MR_EGAP,
            skip_number(t, "e", 7 + SOURCE_WINDOW)); // those before it would seem to be there
    refused(MR_EGAP, skip_number(t, "unheard-of", 1 + SOURCE_WINDOW));
    refused(MR_EGONE, core_epic(t->core, mr_str("s"), mr_str("unheard-of"), &e));
    must(skip_number(t, "f", SOURCE_WINDOW));
    assert_int_equal(look_epic(t, "f").resume, 1);
}

// It would be over although jobs of it are there that it does not count.
static void rule12_an_epic_does_not_end_before_its_highest_number(void **state) {
    struct core_fixture *t = *state;
    for (uint64_t n = 1; n <= 3; n++)
        must(push_number(t, "e", n, "x"));
    must(skip_number(t, "e", 5));
    refused(MR_EINVAL, end_epic(t, "e", 4));
    assert_non_null(strstr(error_text(), "number 5 of this epic is there"));
    refused(MR_EINVAL, end_epic(t, "e", 0));
    assert_false(look_epic(t, "e").ended);
    must(end_epic(t, "e", 6));
    refused(MR_EINVAL, end_epic(t, "e", 4));
    assert_int_equal(look_epic(t, "e").total, 6);
    must(end_epic(t, "e", 5)); // the last word counts
    crash(t);
    assert_int_equal(look_epic(t, "e").total, 5);
}

// What a client may set at most is what a replay accepts at most.
static void U9_the_largest_numbers_are_replayed(void **state) {
    (void)state;
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    static const char *const largest[][2] = {
        { "max-jobs", "1000000000000" },
        { "max-channel", "1000000000000" },
        { "concurrency", "1000000000000" },
        { "max-states", "1000000000000" },
        { "high-mark", "1000000000000" },
        { "lease", "4294967295" },
        { "attempts", "65535" },
        { "rate", "1000000000/s" },
        { "backoff", "1..3153600000000" },
        { "dedupe-window", "3153600000000" },
        { "retention", "3153600000000,1000000000000" },
        { "state-ttl", "3153600000000" },
    };
    for (size_t i = 0; i < sizeof largest / sizeof *largest; i++)
        set(t, largest[i][0], largest[i][1]);
    push_with(t, (struct push){ .body = mr_str("a"),
                                .job.delay_ms = INT64_C(3153600000000),
                                .job.deadline_ms = INT64_C(3153600000000),
                                .job.attempts = UINT16_MAX });
    refused(MR_EINVAL, end_epic(t, "e", NUMBER_MOST + 1));
    refused(MR_EINVAL, end_epic(t, "e", UINT64_MAX));
    must(end_epic(t, "e", NUMBER_MOST));
    must(skip_number(t, "e", SOURCE_WINDOW));
    crash(t);
    assert_int_equal(look_epic(t, "e").total, NUMBER_MOST);
    core_fixture_destroy(t); // without working the job off: that takes a hundred years
}

// A push that repeats a name makes no job, but its number is there: the epic goes on after it, and
// a watcher of the end is notified.
static void rule12_a_number_whose_name_was_used_before_is_not_missing(void **state) {
    struct core_fixture *t = *state;
    struct pushed again;
    must(push_number(t, "e", 1, "a"));
    uint64_t named = push_once(t, "", "n", "b");
    done(t, take(t));
    done(t, take(t));
    must(end_epic(t, "e", 2));
    must(watch_epic(t, 0, "e", EPIC_OVER));
    expect_events(t, "");
    struct push p = { .job.once = mr_str("n"), .source = mr_str("e"), .epic = true, .number = 2 };
    for (int i = 0; i < 2; i++) {
        must(try_push(t, p, &again));
        assert_true(again.repeat);
        assert_int_equal(again.id, named);
    }
    expect_events(t, "watcher 0\n");
    crash(t);
    assert_true(look_epic(t, "e").over);
    assert_int_equal(look_epic(t, "e").resume, 3);
    assert_int_equal(look_epic(t, "e").accepted, 1);
    must(try_push(t, p, &again));
    assert_true(again.repeat);
}

static void rule12_an_idle_source_of_a_client_is_removed_an_epic_is_not(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    struct push p = { .source = mr_str("client"), .number = 1, .body = mr_str("a") };
    must(try_push(t, p, &pushed));
    must(push_number(t, "e", 1, "b"));
    for (int i = 0; i < 4; i++) {
        pass_ms(t, 1800000); // used every half hour it is kept
        p.number++;
        must(try_push(t, p, &pushed));
        assert_false(pushed.repeat);
    }
    pass_ms(t, 2 * 3600000);
    p.number = 1;
    must(try_push(t, p, &pushed));
    assert_false(pushed.repeat);
    crash(t); // its numbers are not those of its forgotten namesake
    p.number = 2;
    must(try_push(t, p, &pushed));
    assert_false(pushed.repeat);
    assert_int_equal(look_epic(t, "e").resume, 2);
}

enum { MANY_SOURCES = 200, PIECE = 10 };

static struct pushed push_of_source(struct core_fixture *t, int source) {
    char name[16];
    struct pushed pushed;
    snprintf(name, sizeof name, "client-%d", source);
    must(try_push(t, (struct push){ .source = mr_str(name), .number = 1 }, &pushed));
    return pushed;
}

static struct core_fixture *fixture_with_sources(void) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_due = PIECE });
    for (int i = 0; i < MANY_SOURCES; i++)
        assert_false(push_of_source(t, i).repeat);
    return t;
}

// U4: very many sources that are idle are looked at in pieces, and all are reached.
static void U4_idle_sources_are_removed_in_pieces(void **state) {
    struct core_fixture *t = fixture_with_sources();
    int calls = 0;
    (void)state;
    t->now_ms += UINT64_C(2) * 3600000;
    (void)core_take_steps(t->core);
    do {
        size_t before = t->log_count;
        must(core_advance(t->core, t->now_ms));
        assert_true(t->log_count - before <= 2 * PIECE); // a record for each that is dropped
        assert_true(core_take_steps(t->core) < 100 * PIECE);
        calls++;
    } while (core_next(t->core) <= t->now_ms);
    assert_true(calls >= MANY_SOURCES / (2 * PIECE));
    for (int i = 0; i < MANY_SOURCES; i++)
        assert_false(push_of_source(t, i).repeat);
    core_fixture_destroy(t);
}

// U4: the same when their records are copied.
static void U4_records_of_sources_are_copied_in_pieces(void **state) {
    struct core_fixture *t = fixture_with_sources();
    struct clean_cursor next = { 0 }, again = { 0 };
    uint64_t upto = t->log_end;
    size_t first = t->log_count;
    int more = 1, calls = 0;
    (void)state;
    for (; more == 1; calls++) {
        size_t before = t->log_count;
        (void)core_take_steps(t->core);
        more = core_clean_own(t->core, 0, upto, PIECE, &next);
        assert_true(more >= 0);
        assert_true(t->log_count - before <= PIECE + 2); // and the core's own marks
        assert_true(core_take_steps(t->core) <= 2 * PIECE);
    }
    assert_true(calls > MANY_SOURCES / PIECE);
    assert_true(t->log_count - first >= MANY_SOURCES);
    size_t all = t->log_count;
    must(core_clean_own(t->core, 0, upto, UINT32_MAX, &again));
    assert_int_equal(t->log_count, all); // none was left out
    replay(t);
    core_fixture_destroy(t);
}

// An ended job does not name its dropped epic any more: neither the cleaner nor a restart brings
// the epic back.
static void rule12_a_dropped_epic_does_not_come_back_with_its_ended_jobs(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_sources = 1 });
    struct pushed pushed;
    (void)state;
    must(push_number(t, "e", 1, "a"));
    expect_take(t, "a");
    must(core_epic_drop(t->core, mr_str("s"), mr_str("e")));
    clean(t);
    crash(t);
    set(t, "retention", "0"); // the job goes, and with it the last that knew of it
    pass_ms(t, 1);
    must(try_push(t, (struct push){ .source = mr_str("other"), .number = 1 }, &pushed));
    assert_false(pushed.repeat);
    core_fixture_destroy(t);
}

static void rule12_a_dropped_epic_is_gone_its_jobs_are_not(void **state) {
    struct core_fixture *t = *state;
    struct epic_info e;
    must(push_number(t, "e", 1, "a"));
    must(core_epic_drop(t->core, mr_str("s"), mr_str("e")));
    replay(t);
    refused(MR_EGONE, core_epic(t->core, mr_str("s"), mr_str("e"), &e));
    expect_take(t, "a");
    must(push_number(t, "e", 1, "again"));
    assert_int_equal(look_epic(t, "e").accepted, 1);
}

// ---- Rule 13: room ----------------------------------------------------------------------------

static int push_to_key_patiently(struct core_fixture *t, int pusher, const char *key,
                                 const char *body) {
    struct pushed pushed;
    if (!t->pushers[pusher].granted)
        t->pushers[pusher] = (struct pusher){ .conn = &t->conns[pusher % FIXTURE_CONNS] };
    struct push p = { .job.key = mr_str(key), .body = mr_str(body), .pusher = &t->pushers[pusher] };
    return try_push(t, p, &pushed);
}

static int push_patiently(struct core_fixture *t, int pusher, const char *body) {
    return push_to_key_patiently(t, pusher, NULL, body);
}

static void rule13_a_push_over_the_limit_is_refused_and_nothing_is_dropped(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    set(t, "max-jobs", "3");
    set(t, "max-channel", "2");
    push(t, "k", "a");
    push(t, "k", "b");
    refused(MR_EFULL, try_push(t, (struct push){ .job.key = mr_str("k") }, &pushed));
    push_with(t, (struct push){ .body = mr_str("delayed"), .job.delay_ms = 60000 });
    refused(MR_EFULL, try_push(t, (struct push){ .job.key = mr_str("l") }, &pushed));
    must(fail_with(t, take(t), "no", MR_NEVER)); // dead and delayed jobs count
    refused(MR_EFULL, try_push(t, (struct push){ .job.key = mr_str("l") }, &pushed));
    expect_take(t, "b");
    push(t, "l", "c");
    assert_int_equal(look_stage(t, "s").pushed, 4);
}

static void rule13_waiting_pushes_are_let_in_one_after_another(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    set(t, "max-jobs", "1");
    push(t, "", "a");
    assert_int_equal(push_patiently(t, 0, "b"), MR_EAGAIN);
    assert_int_equal(push_patiently(t, 1, "c"), MR_EAGAIN);
    refused(MR_EFULL, try_push(t, (struct push){ .body = mr_str("hasty") }, &pushed));
    expect_take(t, "a");
    expect_events(t, "room 0\n");
    refused(MR_EFULL, try_push(t, (struct push){ .body = mr_str("hasty") }, &pushed));
    must(push_patiently(t, 0, "b"));
    expect_events(t, "");
    expect_take(t, "b");
    expect_events(t, "room 1\n");
    must(push_patiently(t, 1, "c"));
    expect_take(t, "c");
    push(t, "", "d");
}

static void rule13_an_abandoned_push_makes_room_for_the_next(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-jobs", "1");
    push(t, "", "a");
    assert_int_equal(push_patiently(t, 0, "b"), MR_EAGAIN);
    assert_int_equal(push_patiently(t, 1, "c"), MR_EAGAIN);
    assert_int_equal(push_patiently(t, 2, "d"), MR_EAGAIN);
    expect_take(t, "a");
    expect_events(t, "room 0\n");
    lose(t, 0); // notified of room, and then disconnected
    expect_events(t, "room 1\n");
    core_push_leave(t->core, &t->pushers[1]);
    expect_events(t, "room 2\n");
    must(push_patiently(t, 2, "d"));
}

// Though there would be room for another key.
static void rule13_no_push_overtakes_a_waiting_push_of_its_stage(void **state) {
    struct core_fixture *t = *state;
    struct pushed pushed;
    struct push hasty = { .job.key = mr_str("l"), .body = mr_str("hasty") };
    set(t, "max-channel", "1");
    push(t, "k", "a");
    assert_int_equal(push_to_key_patiently(t, 0, "k", "b"), MR_EAGAIN);
    refused(MR_EFULL, try_push(t, hasty, &pushed));
    expect_take(t, "a");
    expect_events(t, "room 0\n");
    must(push_to_key_patiently(t, 0, "k", "b"));
    must(try_push(t, hasty, &pushed));
}

static void rule13_more_room_is_reported_at_once(void **state) {
    struct core_fixture *t = *state;
    set(t, "max-jobs", "1");
    push(t, "", "a");
    assert_int_equal(push_patiently(t, 0, "b"), MR_EAGAIN);
    assert_int_equal(push_patiently(t, 1, "c"), MR_EAGAIN);
    set(t, "max-jobs", "none");
    expect_events(t, "room 0\nroom 1\n");
}

// Pushes that wait for room have a budget of their own, and live jobs have one in bytes.
static void rule13_bytes_are_bounded(void **state) {
    struct core_fixture *t = core_fixture_create(
        MODE_PLAIN, (struct core_limits){ .max_room_bytes = 10, .max_bytes = 6000 });
    struct pushed pushed;
    static char large[2000];
    struct push p = { .job.key = mr_str("k"), .body = bytes_of(large, sizeof large) };
    (void)state;
    must(try_push(t, p, &pushed));
    refused(MR_EFULL, try_push(t, p, &pushed));
    assert_int_equal(push_patiently(t, 0, "12345"), 0); // a small one fits
    for (int i = 0; i < 30; i++)
        if (push_patiently(t, 1, "12345") == MR_EAGAIN)
            break;
    assert_int_equal(push_patiently(t, 2, "12345"), MR_EAGAIN);
    assert_int_equal(push_patiently(t, 3, "1"), MR_EFULL);
    core_fixture_destroy(t);
}

// Memory has a limit, too, which includes the owner's part (core_set_outside_memory). It counts
// what is used: jobs that were worked off make room, and what is only retained goes before a push
// is refused.
static void rule13_memory_is_bounded(void **state) {
    struct core_fixture *t = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    struct pushed pushed;
    (void)state;
    push(t, "", "first");
    uint64_t empty = core_memory(t->core);
    core_fixture_destroy(t);

    t = core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_memory = empty + 4000 });
    int held = 0;
    while (try_push(t, (struct push){ .body = mr_str("more") }, &pushed) == 0)
        held++;
    assert_in_range(held, 20, 100);
    assert_in_range(core_memory(t->core), empty + 4000, empty + 4200);
    refused(MR_EFULL, try_push(t, (struct push){ .body = mr_str("more") }, &pushed));
    for (int i = 0; i < held / 2; i++)
        expect_take(t, "more");
    t->unlike = true; // a restart knows again what was forgotten early
    must(try_push(t, (struct push){ .body = mr_str("more") }, &pushed));
    core_set_outside_memory(t->core, 4000); // the owner needs it
    assert_int_equal(push_patiently(t, 0, "later"), MR_EAGAIN);
    core_set_outside_memory(t->core, 0);
    expect_events(t, "room 0\n");
    must(push_patiently(t, 0, "later"));
    core_set_outside_memory(t->core, 4000);
    assert_int_equal(push_patiently(t, 0, ""), MR_EAGAIN); // what has no bytes waits as well
    core_set_outside_memory(t->core, 0);
    expect_events(t, "room 0\n");
    must(push_patiently(t, 0, ""));
    core_fixture_destroy(t);
}

// U6: neither do commands that only name a new stage get beyond the limit.
static void U6_no_stage_is_made_while_memory_is_short(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_memory = 4000 });
    (void)state;
    core_set_outside_memory(t->core, 4000);
    refused(MR_EFULL, core_set(t->core, mr_str("new"), mr_str("high-mark"), mr_str("1")));
    refused(MR_EFULL, core_pause(t->core, mr_str("new")));
    refused(MR_EFULL, core_epic_end(t->core, mr_str("new"), mr_str("epic"), 1));
    struct stage_info info;
    assert_int_equal(core_look_stage(t->core, mr_str("new"), &info), MR_EGONE);
    core_fixture_destroy(t);
}

// U7: the stages of one token leave room in memory for the jobs of others.
static void U7_the_stages_of_a_token_use_a_part_of_memory(void **state) {
    struct core_fixture *t = core_fixture_create(
        MODE_PLAIN, (struct core_limits){ .max_memory = 8 << 20, .maker_part = 4 });
    (void)state;
    int made = 0, err = 0;
    core_act_for(t->core, 1, NULL);
    for (char name[16]; err == 0; made += err == 0) {
        snprintf(name, sizeof name, "a.%d", made);
        err = core_set(t->core, mr_str(name), mr_str("high-mark"), mr_str("1"));
    }
    assert_int_equal(err, MR_EFULL);
    assert_in_range(core_memory(t->core), 1 << 20, 3 << 20);
    core_act_for(t->core, 2, NULL);
    must(core_set(t->core, mr_str("b"), mr_str("high-mark"), mr_str("1")));
    core_act_for(t->core, 0, NULL);
    push(t, "", "there is room");
    core_fixture_destroy(t);
}

static void end_with(struct core_fixture *t, mr_bytes result) {
    struct taken a = take(t);
    must(try_done(t, (struct done){ .id = a.id, .token = a.token, .result = result }));
}

// However many of them are in the way of one push.
static void rule13_many_that_are_retained_make_room_for_a_large_one(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_bytes = 500000 });
    static char large[300000];
    struct push small = { .stage = mr_str("s"), .body = mr_str("small") };
    mr_bytes stage = mr_str("s");
    struct take taking = { .stages = &stage, .stage_count = 1, .conn = &t->conns[0] };
    struct pushed pushed;
    struct grant g;
    size_t count;
    (void)state;
    while (core_live_bytes(t->core) < 480000) {
        must(core_push(t->core, &small, &pushed));
        must(core_take(t->core, &taking, &g, &count));
        must(core_done(t->core, &(struct done){ .id = g.id, .token = g.token }));
    }
    assert_true(look_stage(t, "s").done > 2000);
    struct push p = { .stage = stage, .body = bytes_of(large, sizeof large) };
    must(core_push(t->core, &p, &pushed));
    core_fixture_destroy(t);
}

// Results that are only kept to be asked for go early, oldest first, and never cause FULL: neither
// to a push that comes nor to one that waits.
static void rule13_what_is_retained_makes_room(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_bytes = 8000 });
    static char large[9000];
    uint64_t ids[3];
    struct pushed pushed;
    struct job_info info;
    (void)state;
    t->unlike = true; // a restart knows again what was forgotten early
    for (int i = 0; i < 3; i++) {
        ids[i] = push(t, "k", "a");
        end_with(t, bytes_of(large, 2000));
    }
    struct push p = { .job.key = mr_str("k"), .body = bytes_of(large, sizeof large) };
    refused(MR_EFULL, try_push(t, p, &pushed)); // too large at all: no job is forgotten for it
    must(core_look_job(t->core, ids[0], &info));
    p.body = bytes_of(large, 2000);
    must(try_push(t, p, &pushed));
    refused(MR_EGONE, core_look_job(t->core, ids[0], &info));
    must(core_look_job(t->core, ids[2], &info));
    while (try_push(t, p, &pushed) == 0)
        continue;
    assert_int_equal(push_patiently(t, 0, "later"), 0);
    while (push_patiently(t, 1, "later") == 0)
        continue;
    end_with(t, bytes_of(large, 2500)); // more bytes than the job had
    expect_events(t, "room 1\n");
    must(push_patiently(t, 1, "later"));
    core_fixture_destroy(t);
}

// A push to a stage of its own that waits for room.
static int push_waiting(struct core_fixture *t, int pusher, const char *body) {
    struct pushed pushed;
    char stage[8];
    snprintf(stage, sizeof stage, "w%d", pusher);
    if (!t->pushers[pusher].granted)
        t->pushers[pusher] = (struct pusher){ .conn = &t->conns[0] };
    struct push p = { .stage = mr_str(stage), .body = mr_str(body), .pusher = &t->pushers[pusher] };
    return core_push(t->core, &p, &pushed);
}

// Fills memory with jobs of stage s; returns the first id.
static uint64_t fill_memory(struct core_fixture *t) {
    static char body[2000];
    struct push p = { .stage = mr_str("s"), .body = bytes_of(body, sizeof body) };
    struct pushed pushed;
    must(core_push(t->core, &p, &pushed));
    uint64_t first = pushed.id;
    while (core_push(t->core, &p, &pushed) == 0)
        continue;
    return first;
}

#define NEEDS_AS_MUCH "a push needs room for its body and for the longest head that there is ......"

// U4: memory that becomes free wakes as many pushes as it is enough for, each stage in its turn.
static void U4_no_more_pushes_are_woken_than_there_is_memory_for(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_bytes = 20000 });
    (void)state;
    uint64_t id = fill_memory(t);
    while (push_waiting(t, 0, NEEDS_AS_MUCH) == 0)
        continue;
    for (int i = 1; i < 4; i++)
        assert_int_equal(push_waiting(t, i, NEEDS_AS_MUCH), MR_EAGAIN);
    must(core_drop(t->core, id));
    expect_events(t, "room 0\n");
    must(core_drop(t->core, id + 1));
    expect_events(t, "room 1\n");
    must(push_waiting(t, 0, NEEDS_AS_MUCH)); // it uses less than was reserved
    expect_events(t, "room 2\n");
    core_push_leave(t->core, &t->pushers[2]); // and this one nothing
    expect_events(t, "room 3\n");
    must(push_waiting(t, 1, NEEDS_AS_MUCH));
    must(push_waiting(t, 3, NEEDS_AS_MUCH));
    core_fixture_check(t->core, "in the end");
    core_fixture_destroy(t);
}

// U4: a push that needs less may have room where one before it has none.
static void U4_a_large_push_that_waits_holds_up_no_small_one(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_bytes = 20000 });
    static char large[9000];
    (void)state;
    uint64_t id = fill_memory(t);
    memset(large, 'x', sizeof large - 1);
    assert_int_equal(push_waiting(t, 0, large), MR_EAGAIN);
    while (push_waiting(t, 1, NEEDS_AS_MUCH) == 0)
        continue;
    must(core_drop(t->core, id));
    expect_events(t, "room 1\n");
    must(push_waiting(t, 1, NEEDS_AS_MUCH));
    for (int i = 1; i < 6; i++)
        must(core_drop(t->core, id + (uint64_t)i));
    expect_events(t, "room 0\n");
    must(push_waiting(t, 0, large));
    core_fixture_destroy(t);
}

// U4: while memory is short, no command visits all stages.
static void U4_a_lack_of_memory_costs_no_look_at_all_stages(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_memory = 100 << 20 });
    enum { STAGES = 1000 };
    struct pushed pushed;
    char name[32];
    (void)state;
    for (int i = 0; i < STAGES; i++) {
        snprintf(name, sizeof name, "stage-%d", i);
        struct push p = { .stage = mr_str(name), .body = mr_str("x") };
        must(core_push(t->core, &p, &pushed));
    }
    core_set_outside_memory(t->core, 100 << 20);
    for (int i = 0; i < FIXTURE_SLOTS; i++)
        assert_int_equal(push_waiting(t, i, "x"), MR_EAGAIN);
    (void)core_take_steps(t->core);
    struct push hasty = { .stage = mr_str("stage-1"), .body = mr_str("x") };
    refused(MR_EFULL, core_push(t->core, &hasty, &pushed));
    must(core_drop(t->core, 1));
    core_set_outside_memory(t->core, 100 << 20);
    assert_true(core_take_steps(t->core) < 10);
    core_set_outside_memory(t->core, 0);
    assert_true(core_take_steps(t->core) < 10 * FIXTURE_SLOTS);
    expect_events(t, "room 0\nroom 1\nroom 2\nroom 3\nroom 4\nroom 5\nroom 6\nroom 7\n");
    core_fixture_destroy(t);
}

static void rule13_what_is_too_large_is_named(void **state) {
    static const char text[KEY_MOST + 1];
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_body = 8, .max_state = 4 });
    struct pushed p;
    (void)state;
    refused(MR_ETOOBIG, try_push(t, (struct push){ .body = mr_str("123456789") }, &p));
    refused(MR_ETOOBIG, try_push(t, (struct push){ .job.key = { text, KEY_MOST + 1 } }, &p));
    refused(MR_ETOOBIG, try_push(t, (struct push){ .job.once = { text, ONCE_MOST + 1 } }, &p));
    refused(MR_EINVAL, try_push(t, (struct push){ .job.delay_ms = -1 }, &p));
    refused(MR_EINVAL, try_push(t, (struct push){ .job.deadline_ms = INT64_MAX }, &p));
    refused(MR_EINVAL, try_push(t, (struct push){ .job.attempts = 65536 }, &p));
    refused(MR_EINVAL, try_push(t, (struct push){ .stage = mr_str("a b") }, &p));
    push_with(t, (struct push){ .job.key = { text, KEY_MOST },
                                .job.once = { text, ONCE_MOST },
                                .body = mr_str("12345678"),
                                .job.attempts = 65535 });
    struct taken a = take(t);
    struct done d = { .id = a.id, .token = a.token, .result = mr_str("123456789") };
    refused(MR_ETOOBIG, try_done(t, d));
    d = (struct done){ .id = a.id, .token = a.token, .set_state = true, .state = mr_str("12345") };
    refused(MR_ETOOBIG, try_done(t, d));
    done(t, a);
    core_fixture_destroy(t);
}

static void rule13_everything_has_a_number_that_is_most(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_jobs = 4,
                                                              .max_channels = 2,
                                                              .max_stages = 2,
                                                              .max_sources = 1,
                                                              .max_once_entries = 1 });
    struct pushed p;
    (void)state;
    push_once(t, "k", "n", "a");
    refused(MR_EFULL, try_push(t, (struct push){ .job.once = mr_str("m") }, &p));
    push_with(
        t, (struct push){ .job.key = mr_str("l"), .body = mr_str("b"), .job.deadline_ms = 1000 });
    refused(MR_EFULL, try_push(t, (struct push){ .job.key = mr_str("m") }, &p));
    push_to(t, "s2", "", "c");
    refused(MR_EFULL, try_push(t, (struct push){ .stage = mr_str("s3") }, &p));
    must(try_push(t, (struct push){ .source = mr_str("x"), .number = 1 }, &p));
    refused(MR_EFULL, try_push(t, (struct push){ .body = mr_str("e") }, &p));
    set(t, "retention", "0,0");
    expect_take(t, "a");
    push(t, "m", "d"); // what is over makes room
    expect_take(t, "b");
    refused(MR_EFULL, try_push(t, (struct push){ .source = mr_str("y"), .number = 1 }, &p));
    core_fixture_destroy(t);
}

// A push that is refused, for whatever reason, leaves nothing behind: not even the name of a stage
// that no other command has named. Otherwise names alone could use up memory, and the number of
// stages.
static void rule13_a_refused_push_leaves_nothing(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 3, .max_bytes = 4000 });
    struct pushed pushed;
    static char large[4000];
    (void)state;
    push_to(t, "known", "", "a");
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        struct push p = { .stage = mr_str(name), .body = bytes_of(large, sizeof large) };
        refused(MR_EFULL, try_push(t, p, &pushed));
        p.body = mr_str("small");
        t->refuse = MR_EFULL; // the disk's turn to have no room
        refused(MR_EFULL, try_push(t, p, &pushed));
        struct stage_info info;
        refused(MR_EGONE, core_look_stage(t->core, mr_str(name), &info));
        assert_int_equal(core_stage_count(t->core), 1);
    }
    push_to(t, "other", "", "b"); // with a number that was given before
    assert_int_equal(core_stage_count(t->core), 2);
    wait_for_work(t, 0, "waited-for"); // a take has named this one
    struct push p = { .stage = mr_str("waited-for"), .body = bytes_of(large, sizeof large) };
    refused(MR_EFULL, try_push(t, p, &pushed));
    assert_int_equal(core_stage_count(t->core), 3);
    replay(t);
    core_fixture_destroy(t);
}

// Nor does a policy, an edge or a commit that is refused.
static void rule13_what_is_refused_names_no_stage(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 3 });
    static char large_key[2000];
    (void)state;
    push(t, "k", "a");
    struct taken a = take(t);
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        refused(MR_EINVAL, core_set(t->core, mr_str(name), mr_str("leese"), mr_str("1")));
        t->refuse = MR_EFULL;
        refused(MR_EFULL, core_pause(t->core, mr_str(name)));
        refused(MR_EINVAL, core_learn_edge(t->core, mr_str(name), mr_str("no stage"), 0));
        struct emit emits[] = {
            { .stage = mr_str(name), .body = mr_str("b") },
            { .stage = mr_str("t"), .job.key = { large_key, sizeof large_key } },
        };
        struct done d = { .id = a.id, .token = a.token, .emits = emits, .emit_count = 2 };
        refused(MR_ETOOBIG, try_done(t, d));
        d.emit_count = 1;
        t->refuse = MR_EFULL;
        refused(MR_EFULL, core_done(t->core, &d));
        assert_int_equal(core_stage_count(t->core), 1);
    }
    done_emit(t, a, "new", "", "b");
    push_to(t, "newer", "", "c");
    core_fixture_destroy(t);
}

static int try_wait(struct core_fixture *t, int taker, const char *a, const char *b) {
    mr_bytes stages[] = { mr_str(a), mr_str(b) };
    struct grant grant;
    size_t count;
    t->takers[taker] = (struct taker){ .conn = &t->conns[taker % FIXTURE_CONNS] };
    struct take take = { .stages = stages,
                         .stage_count = 2,
                         .conn = t->takers[taker].conn,
                         .taker = taker ? &t->takers[taker] : NULL };
    return core_take(t->core, &take, &grant, &count);
}

// Nor do takers: a stage that only they have named is there as long as one of them waits at it.
static void rule13_a_stage_that_only_takers_named_goes_with_them(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_stages = 3 });
    struct stage_info info;
    (void)state;
    push_to(t, "known", "", "a");
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "new-%d", i);
        assert_int_equal(try_wait(t, 0, name, "other"),
                         MR_EAGAIN); // a take that does not wait makes no stage
        assert_int_equal(core_stage_count(t->core), 1);
        assert_int_equal(try_wait(t, 1, name, "other"), MR_EAGAIN);
        assert_int_equal(try_wait(t, 2, "other", name), MR_EAGAIN);
        assert_int_equal(core_stage_count(t->core), 3);
        refused(MR_EFULL, try_wait(t, 3, "other", "one-too-many"));
        refused(MR_EINVAL, try_wait(t, 3, "same", "same"));
        core_take_leave(t->core, &t->takers[1]);
        must(core_look_stage(t->core, mr_str(name), &info));
        assert_true(core_stage_at(t->core, 2, &info));
        lose(t, 2);
        refused(MR_EGONE, core_look_stage(t->core, mr_str(name), &info));
        assert_int_equal(core_stage_count(t->core), 1);
        assert_true(core_stage_at(t->core, 0, &info));
        assert_true(bytes_equal(info.name, mr_str("known")));
    }
    assert_int_equal(try_wait(t, 1, "x", "y"), MR_EAGAIN);
    push_to(t, "y", "", "b"); // it has a job now, so it stays
    expect_events(t, "taker 1: b\n");
    assert_int_equal(core_stage_count(t->core), 2); // x was forgotten
    must(core_look_stage(t->core, mr_str("y"), &info));
    assert_int_equal(core_check(t->core), 0);
    core_fixture_destroy(t);
}

// One that waits for room keeps its stage while it waits, and no longer.
static void rule13_a_push_that_gives_up_waiting_leaves_nothing(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_bytes = 500 });
    (void)state;
    while (push_patiently(t, 0, "12345") == 0)
        continue;
    assert_int_equal(core_stage_count(t->core), 1);
    struct push p = { .stage = mr_str("new"), .body = mr_str("x"), .pusher = &t->pushers[1] };
    struct pushed pushed;
    assert_int_equal(try_push(t, p, &pushed), MR_EAGAIN);
    assert_int_equal(core_stage_count(t->core), 2);
    core_push_leave(t->core, &t->pushers[1]);
    assert_int_equal(core_stage_count(t->core), 1);
    core_fixture_destroy(t);
}

// U16: each watcher is notified when its own number is reached, in whatever order they came.
static void U16_watchers_are_notified_only_of_their_epic(void **state) {
    struct core_fixture *t = *state;
    static const char *const bodies[] = { "1", "2", "3", "4" };
    for (uint64_t n = 1; n <= 4; n++)
        must(push_number(t, "e", n, bodies[n - 1]));
    must(watch_epic(t, 0, "e", EPIC_OVER));
    must(watch_epic(t, 1, "e", 1));
    must(watch_epic(t, 2, "e", 3));
    must(watch_epic(t, 3, "e", 0));
    must(watch_epic(t, 4, "e", 1));
    expect_take(t, "1");
    expect_events(t, "watcher 2\n");
    expect_take(t, "2");
    expect_events(t, "");
    core_epic_unwatch(&t->watchers[4]);
    expect_take(t, "3");
    expect_events(t, "watcher 1\n");
    expect_take(t, "4");
    expect_events(t, "watcher 3\n");
    must(end_epic(t, "e", 4));
    expect_events(t, "watcher 0\n");
}

// ---- U22: many short-lived clients ------------------------------------------------------------

static int push_as(struct core_fixture *t, const char *source) {
    struct pushed pushed;
    return try_push(t, (struct push){ .source = mr_str(source), .number = 1 }, &pushed);
}

static bool has_seen(struct core_fixture *t, const char *source) {
    struct push p = { .stage = mr_str("s"), .source = mr_str(source), .number = 1 };
    return core_has_seen(t->core, &p);
}

static void U22_sources_that_are_not_used_give_way_oldest_first(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_sources = 3 });
    (void)state;
    must(push_number(t, "epic", 1, "e"));
    must(push_as(t, "one"));
    pass_ms(t, 1000);
    must(push_as(t, "two"));
    refused(MR_EFULL, push_as(t, "three")); // both may still be in use
    pass_ms(t, 59000);
    must(push_as(t, "three")); // in the place of the first
    assert_true(has_seen(t, "two"));
    assert_false(has_seen(t, "one"));
    crash(t);
    pass_ms(t, 60000);
    must(push_as(t, "two")); // a repeat, which uses it
    must(push_as(t, "four"));
    assert_false(has_seen(t, "three"));
    assert_int_equal(look_epic(t, "epic").resume, 2); // epics stay until they are dropped
    core_fixture_destroy(t);
}

static void U22_a_maker_has_a_share_of_the_sources(void **state) {
    struct core_fixture *t =
        core_fixture_create(MODE_PLAIN, (struct core_limits){ .max_sources = 8 });
    (void)state;
    core_act_for(t->core, 7, NULL);
    must(push_as(t, "one"));
    must(push_as(t, "two"));
    refused(MR_EFULL, push_as(t, "three"));
    core_act_for(t->core, 9, NULL);
    must(push_as(t, "other"));
    core_act_for(t->core, 7, NULL);
    pass_ms(t, 60000);
    must(push_as(t, "three")); // for one of its own
    assert_false(has_seen(t, "one"));
    assert_true(has_seen(t, "other"));
    clean(t);
    crash(t);
    core_act_for(t->core, 7, NULL);
    refused(MR_EFULL, push_as(t, "four")); // its share survives a restart
    core_act_for(t->core, 9, NULL);
    must(push_as(t, "four"));
    refused(MR_EFULL, push_as(t, "five"));
    core_act_for(t->core, 0, NULL);
    must(push_as(t, "five")); // without a maker there is no share limit
    core_fixture_destroy(t);
}

// U2: an epic and a source of one name have separate numbers, also without tokens.
static void U2_an_epic_and_a_source_of_one_name_are_two(void **state) {
    struct core_fixture *t = *state;
    must(push_as(t, "n"));
    struct pushed pushed;
    struct push p = { .source = mr_str("n"), .number = 2 };
    must(try_push(t, p, &pushed));
    refused(MR_EGONE, core_epic(t->core, mr_str("s"), mr_str("n"), &(struct epic_info){ 0 }));
    must(push_number(t, "n", 1, "of the epic"));
    assert_int_equal(look_epic(t, "n").resume, 2);
    assert_int_equal(look_epic(t, "n").accepted, 1);
    crash(t);
    assert_int_equal(look_epic(t, "n").resume, 2);
    assert_true(has_seen(t, "n"));
    must(core_epic_drop(t->core, mr_str("s"), mr_str("n")));
    assert_true(has_seen(t, "n"));
}

// ---- U2: epics of a store that does not name their stages -------------------------------------

// Numbers 1 to 3 were pushed, and their jobs are forgotten.
static void write_stray(struct core_fixture *t, uint64_t number, const char *name) {
    struct record_about about = { .source = { .epic = true, .highest = 3, .accepted = 3 } };
    about.source.done = 3;
    about.source.bitmap[0] = 1 << 1 | 1 << 2 | 1 << 3;
    const struct record r = { .kind = RECORD_SOURCE_OLD,
                              .time_ms = t->now_ms,
                              .source = number,
                              .name = mr_str(name),
                              .about = &about };
    core_fixture_log_add(t, &r);
    core_fixture_learn_epic(t, name);
}

// The progress of the epic in that stage; 0: the stage does not know it.
static uint64_t resume_in(struct core_fixture *t, const char *stage, const char *name) {
    struct epic_info info;
    int err = core_epic(t->core, mr_str(stage), mr_str(name), &info);
    return err < 0 ? 0 : info.resume;
}

static void U2_a_look_adopts_no_epic(void **state) {
    struct core_fixture *t = *state;
    write_stray(t, 7, "book");
    crash(t);
    push_to(t, "other", "", "a");
    size_t before = t->appends;
    assert_int_equal(resume_in(t, "other", "book"), 4);
    assert_int_equal(resume_in(t, "s", "book"), 4);
    assert_int_equal(t->appends, before);
    must(push_number(t, "book", 3, "again")); // a repeat, of which nothing is written
    assert_int_equal(look_epic(t, "book").stage.size, 0);
    drain_stage(t, "s");
    refused(MR_EDRAINING, push_number(t, "book", 4, "four"));
    refused(MR_EINVAL, end_epic(t, "book", 2));
    assert_int_equal(resume_in(t, "other", "book"), 4);
    crash(t);
    assert_int_equal(look_epic(t, "book").stage.size, 0);
}

static void U2_a_recorded_push_adopts_an_epic(void **state) {
    struct core_fixture *t = *state;
    write_stray(t, 7, "book");
    crash(t);
    push_to(t, "other", "", "a");
    must(push_number(t, "book", 4, "four"));
    for (int restarts = 0; restarts < 2; restarts++) {
        assert_int_equal(look_epic(t, "book").resume, 5);
        assert_int_equal(look_epic(t, "book").accepted, 4);
        assert_int_equal(look_epic(t, "book").stage.size, 1);
        assert_int_equal(resume_in(t, "other", "book"), 0);
        crash(t);
    }
    struct pushed pushed;
    struct push p = { .stage = mr_str("other"), .source = mr_str("book"), .number = 1 };
    p.epic = true;
    must(try_push(t, p, &pushed));
    assert_false(pushed.repeat); // an epic of its own
    assert_int_equal(look_epic(t, "book").resume, 5);
}

static void U2_a_recorded_change_adopts_an_epic(void **state) {
    struct core_fixture *t = *state;
    write_stray(t, 7, "ended");
    write_stray(t, 8, "skipped");
    write_stray(t, 9, "named");
    crash(t);
    push_once(t, "e", "n", "four");
    push_to(t, "other", "", "a");
    must(end_epic(t, "ended", 3));
    must(skip_number(t, "skipped", 4));
    struct pushed pushed;
    struct push p = { .job.key = mr_str("e"), .job.once = mr_str("n"), .source = mr_str("named") };
    p.number = 4;
    p.epic = true;
    must(try_push(t, p, &pushed));
    assert_true(pushed.repeat); // by its name: the number is written down
    static const char *const names[] = { "ended", "skipped", "named" };
    for (int i = 0; i < 6; i++) {
        if (i == 3)
            crash(t);
        assert_int_equal(look_epic(t, names[i % 3]).stage.size, 1);
        assert_int_equal(look_epic(t, names[i % 3]).resume, i % 3 ? 5 : 4);
        assert_int_equal(resume_in(t, "other", names[i % 3]), 0);
    }
    assert_true(look_epic(t, "ended").over);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(E2_a_name_pushed_twice_is_one_job),
        CORE_TEST(E2_S6_a_call_repeated_gets_the_first_ones_result),
        CORE_TEST(S5_E3_a_name_is_remembered_for_the_window_after_its_end),
        CORE_TEST(rule12_cancelled_and_expired_release_the_name_dead_does_not),
        CORE_TEST(E2_a_number_pushed_twice_is_one_job),
        CORE_TEST(S5_E3_numbers_are_remembered_for_ever),
        CORE_TEST(rule12_numbers_may_come_in_any_order_within_the_window),
        CORE_TEST(S9_a_refused_number_holds_the_higher_ones),
        CORE_TEST(S9_a_number_refused_for_its_size_holds_the_higher_ones),
        CORE_TEST(S9_the_hold_ends_with_the_connection),
        CORE_TEST(T9_an_epic_without_workers_is_kept_and_reported),
        CORE_TEST(T21_an_epic_is_complete_although_storage_fails_now_and_then),
        CORE_TEST(rule12_an_epic_has_an_end_and_progress),
        CORE_TEST(rule12_an_epic_does_not_end_before_its_highest_number),
        CORE_TEST(U9_the_largest_numbers_are_replayed),
        CORE_TEST(rule12_a_number_whose_name_was_used_before_is_not_missing),
        CORE_TEST(rule12_an_idle_source_of_a_client_is_removed_an_epic_is_not),
        CORE_TEST(U4_idle_sources_are_removed_in_pieces),
        CORE_TEST(U4_records_of_sources_are_copied_in_pieces),
        CORE_TEST(rule12_a_dropped_epic_is_gone_its_jobs_are_not),
        CORE_TEST(rule12_a_dropped_epic_does_not_come_back_with_its_ended_jobs),
        CORE_TEST(rule13_a_push_over_the_limit_is_refused_and_nothing_is_dropped),
        CORE_TEST(rule13_waiting_pushes_are_let_in_one_after_another),
        CORE_TEST(rule13_an_abandoned_push_makes_room_for_the_next),
        CORE_TEST(rule13_no_push_overtakes_a_waiting_push_of_its_stage),
        CORE_TEST(rule13_more_room_is_reported_at_once),
        CORE_TEST(rule13_bytes_are_bounded),
        CORE_TEST(rule13_memory_is_bounded),
        CORE_TEST(U6_no_stage_is_made_while_memory_is_short),
        CORE_TEST(U7_the_stages_of_a_token_use_a_part_of_memory),
        CORE_TEST(rule13_many_that_are_retained_make_room_for_a_large_one),
        CORE_TEST(rule13_what_is_retained_makes_room),
        CORE_TEST(U4_no_more_pushes_are_woken_than_there_is_memory_for),
        CORE_TEST(U4_a_large_push_that_waits_holds_up_no_small_one),
        CORE_TEST(U4_a_lack_of_memory_costs_no_look_at_all_stages),
        CORE_TEST(rule13_what_is_too_large_is_named),
        CORE_TEST(rule13_everything_has_a_number_that_is_most),
        CORE_TEST(rule13_a_refused_push_leaves_nothing),
        CORE_TEST(rule13_what_is_refused_names_no_stage),
        CORE_TEST(rule13_a_stage_that_only_takers_named_goes_with_them),
        CORE_TEST(rule13_a_push_that_gives_up_waiting_leaves_nothing),
        CORE_TEST(U16_watchers_are_notified_only_of_their_epic),
        CORE_TEST(U22_sources_that_are_not_used_give_way_oldest_first),
        CORE_TEST(U22_a_maker_has_a_share_of_the_sources),
        CORE_TEST(U2_an_epic_and_a_source_of_one_name_are_two),
        CORE_TEST(U2_a_look_adopts_no_epic),
        CORE_TEST(U2_a_recorded_push_adopts_an_epic),
        CORE_TEST(U2_a_recorded_change_adopts_an_epic),
    };
    return RUN_CORE_TESTS(tests);
}
