// Walking: the jobs of a stage by status, a page at a time, each page going on behind the last job
// of the one before. Whatever the size of the pages, together they show the same.
#include "support/core_fixture.h"

#include <stdlib.h>
#include <string.h>

struct page {
    struct core_fixture *fixture;
    FILE *out;
    uint64_t last;
    size_t count, most;
};

static int turn_page(void *arg, const struct job_info *j) {
    struct page *p = arg;
    fprintf(p->out, " %s", core_fixture_name(p->fixture, j->id));
    p->last = j->id;
    return ++p->count == p->most;
}

// Walks in pages of `most` and expects the bodies "a b c". No key: what parked channels wait for.
static void expect_pages(struct core_fixture *t, const char *key, enum job_status status,
                         uint32_t most, const char *bodies) {
    char *text = NULL;
    size_t size = 0;
    struct page p = { .fixture = t, .out = open_memstream(&text, &size), .most = most };
    do {
        struct job_walk w = {
            .stage = mr_str("s"),
            .key = mr_str(key ? key : ""),
            .status = status,
            .parked = !key,
            .from = p.last,
        };
        p.count = 0;
        int stop = core_walk(t->core, &w, turn_page, &p);
        assert_int_equal(stop, p.count == most);
    } while (p.count == most);
    (void)fclose(p.out);
    assert_string_equal(*text ? text + 1 : text, bodies);
    free(text);
}

// The same of parked channels.
static void expect_parked(struct core_fixture *t, const char *bodies) {
    for (uint32_t most = 1; most <= 8; most++)
        expect_pages(t, NULL, JOB_WAITING, most, bodies);
}

static void expect_walk(struct core_fixture *t, const char *key, enum job_status status,
                        const char *bodies) {
    for (uint32_t most = 1; most <= 8; most++)
        expect_pages(t, key, status, most, bodies);
}

static void A3_waiting_jobs_are_shown_as_they_will_start(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "k1");
    push(t, "", "u1");
    push(t, "k", "k2");
    push(t, "l", "l1");
    push(t, "", "u2");
    expect_walk(t, "", JOB_WAITING, "k1 k2 u1 l1 u2");
    expect_walk(t, "k", JOB_WAITING, "k1 k2");
    expect_walk(t, "nobody", JOB_WAITING, "");
    expect_walk(t, "", JOB_RUNNING, "");
}

// What is parked comes behind what is ready, what waits behind running jobs comes last.
static void A3_parked_and_blocked_jobs_are_listed(void **state) {
    struct core_fixture *t = *state;
    push(t, "k", "k1");
    push(t, "k", "k2");
    push(t, "", "u1");
    push(t, "l", "l1");
    push(t, "l", "l2");
    push(t, "l", "l3");
    push(t, "m", "m1");
    fail_job(t, take(t)); // k1
    fail_job(t, take(t)); // u1
    take(t);              // l1
    expect_walk(t, "", JOB_WAITING, "m1 k1 k2 u1 l2 l3");
    expect_walk(t, "l", JOB_WAITING, "l2 l3");
    expect_walk(t, "", JOB_RUNNING, "l1");
    expect_parked(t, "k1 u1");
}

// C8: a halted channel is listed by the dead job that halts it, whether others wait behind it or
// not.
static void C8_a_halted_channel_is_shown_by_its_dead_job(void **state) {
    struct core_fixture *t = *state;
    set(t, "on-dead", "halt");
    push(t, "k", "k1");
    push(t, "k", "k2");
    push(t, "l", "l1");
    push(t, "m", "m1");
    must(fail_with(t, take(t), "no", MR_NEVER)); // k1
    must(fail_with(t, take(t), "no", MR_NEVER)); // l1
    fail_job(t, take(t));                        // m1
    expect_parked(t, "k1 l1 m1");
}

static void A3_running_jobs_are_shown_by_lease(void **state) {
    struct core_fixture *t = *state;
    struct taken block[4];
    for (int i = 0; i < 4; i++)
        push(t, "k", (const char[]){ 'k', (char)('1' + i), 0 });
    push(t, "", "u1");
    push_to(t, "other", "", "o1");
    assert_int_equal(take_block(t, 3, block), 3);
    take_from(t, "other");
    take(t);
    expect_walk(t, "", JOB_RUNNING, "k1 k2 k3 u1");
    expect_walk(t, "k", JOB_RUNNING, "k1 k2 k3");
    done(t, block[0]);
    expect_walk(t, "", JOB_RUNNING, "k2 k3 u1");
    expect_walk(t, "", JOB_WAITING, "k4");
    assert_int_equal(t->conns[0].lease_count, 3);
    assert_int_equal(t->conns[1].lease_count, 0);
}

static void A3_delayed_jobs_are_shown_by_id(void **state) {
    struct core_fixture *t = *state;
    push_with(t, (struct push){ .body = mr_str("a"), .job.delay_ms = 300 });
    push_with(t, (struct push){ .body = mr_str("b"), .job.key = mr_str("k"), .job.delay_ms = 100 });
    uint64_t c = push_with(t, (struct push){ .body = mr_str("c"), .job.delay_ms = 200 });
    push_with(t, (struct push){ .body = mr_str("d"), .stage = mr_str("o"), .job.delay_ms = 200 });
    push_with(t, (struct push){ .body = mr_str("e"), .job.delay_ms = 50, .job.deadline_ms = 60 });
    push(t, "", "f");
    expect_walk(t, "", JOB_DELAYED, "a b c e");
    must(drop(t, c));
    pass_ms(t, 50);
    expect_walk(t, "", JOB_DELAYED, "a b");
    pass_ms(t, 250);
    expect_walk(t, "", JOB_DELAYED, "");
}

// F13: the dead are listed, longest dead first; those that ended otherwise too.
static void F13_dead_and_ended_jobs_are_shown_as_they_ended(void **state) {
    struct core_fixture *t = *state;
    const char *bodies[] = { "a", "b", "c", "d", "e", "f", "g" };
    for (size_t i = 0; i < 7; i++)
        push(t, "", bodies[i]);
    must(fail_with(t, take(t), "no", MR_NEVER));
    done(t, take(t));
    assert_true(cancel(t, take(t).id));
    lose(t, 0);
    must(fail_with(t, take(t), "no", MR_NEVER));
    done(t, take(t));
    assert_true(cancel(t, take(t).id));
    expect_walk(t, "", JOB_DEAD, "a d");
    expect_walk(t, "", JOB_DONE, "b e");
    expect_walk(t, "", JOB_CANCELLED, "c f");
    expect_walk(t, "", JOB_EXPIRED, "");
}

static int nothing(void *arg, const struct job_info *j) {
    (void)arg, (void)j;
    return 0;
}

static void T1_a_walk_from_nowhere_is_refused(void **state) {
    struct core_fixture *t = *state;
    uint64_t a = push(t, "k", "a");
    struct job_walk w = { .stage = mr_str("nowhere"), .status = JOB_WAITING };
    refused(MR_EGONE, core_walk(t->core, &w, nothing, NULL));
    w = (struct job_walk){ .stage = mr_str("s"), .status = JOB_DEAD, .from = a };
    refused(MR_EGONE, core_walk(t->core, &w, nothing, NULL)); // it is not dead
    w = (struct job_walk){ .stage = mr_str("s"), .status = JOB_WAITING, .from = a + 1000 };
    refused(MR_EGONE, core_walk(t->core, &w, nothing, NULL));
    w.from = a;
    must(core_walk(t->core, &w, nothing, NULL));
    w.key = mr_str("k");
    must(core_walk(t->core, &w, nothing, NULL));
    push(t, "l", "b");
    w.key = mr_str("l");
    refused(MR_EGONE, core_walk(t->core, &w, nothing, NULL)); // it is of another channel
}

static void T1_stages_are_found_by_name(void **state) {
    struct core_fixture *t = *state;
    size_t index = 7;
    push(t, "", "a");
    push_to(t, "o", "", "b");
    must(core_stage_place(t->core, mr_str("o"), &index));
    assert_int_equal(index, 1);
    struct stage_info info;
    assert_true(core_stage_at(t->core, index, &info));
    assert_memory_equal(info.name.data, "o", info.name.size);
    refused(MR_EGONE, core_stage_place(t->core, mr_str("x"), &index));
    assert_int_equal(index, 1);
    expect_take(t, "a");
    pass_ms(t, 3600000); // it is forgotten; the other keeps its place
    must(core_stage_place(t->core, mr_str("o"), &index));
    assert_int_equal(index, 1);
    assert_false(core_stage_at(t->core, 0, &info));
    assert_int_equal(core_stage_places(t->core), 2);
    assert_int_equal(core_stage_count(t->core), 1);
}

// ---- Epics ------------------------------------------------------------------------------------

// D4: an empty epic ends at once.
static void D4_an_empty_epic_is_over_at_once(void **state) {
    struct core_fixture *t = *state;
    must(end_epic(t, "e", 0));
    crash(t);
    struct epic_info e = look_epic(t, "e");
    assert_true(e.ended && e.over);
    assert_int_equal(e.total, 0);
    assert_int_equal(e.resume, 1);
    refused(MR_EINVAL, end_epic(t, "e", UINT64_MAX));
}

static void D4_an_epic_is_over_when_its_last_job_has_ended(void **state) {
    struct core_fixture *t = *state;
    must(push_number(t, "e", 1, "a"));
    must(push_number(t, "e", 2, "b"));
    expect_take(t, "a");
    expect_take(t, "b");
    assert_false(look_epic(t, "e").ended);
    assert_false(look_epic(t, "e").over);
    must(end_epic(t, "e", 3));
    assert_true(look_epic(t, "e").ended);
    assert_false(look_epic(t, "e").over);
    must(push_number(t, "e", 3, "c"));
    struct taken c = take(t);
    assert_false(look_epic(t, "e").over);
    must(fail_with(t, c, "no", MR_NEVER));
    assert_true(look_epic(t, "e").over);
    must(core_epic_drop(t->core, mr_str("s"), mr_str("e")));
    replay(t);
}

// D4: a watcher of an epic is notified once, when at most as many jobs are left as it asked for;
// watchers of other epics are not.
static void D4_a_wait_for_an_epic_ends_when_few_enough_jobs_are_left(void **state) {
    struct core_fixture *t = *state;
    refused(MR_EGONE, watch_epic(t, 0, "e", 1));
    for (uint64_t n = 1; n <= 3; n++)
        must(push_number(t, "e", n, (const char[]){ (char)('0' + n), 0 }));
    must(push_number(t, "other", 1, "x"));
    must(watch_epic(t, 0, "e", EPIC_OVER));
    must(watch_epic(t, 1, "e", 1));
    must(watch_epic(t, 2, "e", 2));
    must(watch_epic(t, 3, "other", 0));
    expect_events(t, "");
    expect_take(t, "1");
    expect_events(t, "watcher 2\n");
    expect_take(t, "2");
    expect_events(t, "watcher 1\n");
    must(watch_epic(t, 1, "e", 0));
    core_epic_unwatch(&t->watchers[1]); // it has lost interest
    expect_take(t, "3");
    expect_events(t, ""); // the end is not known yet
    must(end_epic(t, "e", 4));
    expect_events(t, "watcher 0\n");
    must(watch_epic(t, 0, "e", EPIC_OVER));
    must(skip_number(t, "e", 4));
    expect_events(t, "watcher 0\n");
    assert_true(look_epic(t, "e").over);
    must(core_epic_drop(t->core, mr_str("s"), mr_str("other")));
    expect_events(t, "watcher 3\n");
    replay(t);
}

// However a job ends, it counts.
static void D4_jobs_that_die_or_are_dropped_are_worked_off_too(void **state) {
    struct core_fixture *t = *state;
    const char *bodies[] = { "done", "dead", "cancelled", "dropped", "expired" };
    uint64_t ids[5];
    must(push_number(t, "e", 1, bodies[0]));
    for (int i = 1; i < 5; i++) {
        struct push p = { .body = mr_str(bodies[i]),
                          .source = mr_str("e"),
                          .epic = true,
                          .number = (uint64_t)i + 1,
                          .job.deadline_ms = i == 4 ? 10 : 0 };
        struct pushed pushed;
        must(try_push(t, p, &pushed));
        ids[i] = pushed.id;
    }
    must(end_epic(t, "e", 5));
    for (int left = 4; left >= 0; left--)
        must(watch_epic(t, left, "e", left));
    expect_take(t, "done");
    expect_events(t, "watcher 4\n");
    must(fail_with(t, take(t), "no", MR_NEVER));
    expect_events(t, "watcher 3\n");
    assert_true(cancel(t, ids[2]));
    expect_events(t, "watcher 2\n");
    must(drop(t, ids[3]));
    expect_events(t, "watcher 1\n");
    pass_ms(t, 10);
    expect_events(t, "watcher 0\n");
    assert_true(look_epic(t, "e").over);
}

// An epic belongs to a stage: one of the same name in another is another one.
static void T9_an_epic_belongs_to_its_stage(void **state) {
    struct core_fixture *t = *state;
    must(end_epic(t, "e", 2));
    must(push_number(t, "e", 1, "a"));
    assert_true(bytes_equal(look_epic(t, "e").stage, mr_str("s")));
    struct push p = { .stage = mr_str("other"),
                      .body = mr_str("b"),
                      .source = mr_str("e"),
                      .epic = true,
                      .number = 2 };
    struct pushed pushed;
    must(try_push(t, p, &pushed));
    assert_int_equal(look_epic(t, "e").resume, 2);
    struct epic_info other;
    must(core_epic(t->core, mr_str("other"), mr_str("e"), &other));
    assert_int_equal(other.resume, 1);
    assert_int_equal(other.accepted, 1);
    assert_true(bytes_equal(other.stage, mr_str("other")));
}

// The names of those behind a place.
static void name_epics(struct core_fixture *t, uint32_t place, char *out) {
    mr_bytes stage, name;
    out[0] = 0;
    for (place++; place < core_epic_places(t->core); place++)
        if (core_epic_at(t->core, place, &stage, &name)) {
            assert_true(bytes_equal(stage, mr_str("s")));
            strncat(out, name.data, name.size);
        }
}

// To find epics costs nothing that is not the caller's to count, and every visited entry counts.
static void U7_a_look_at_an_epic_counts_its_steps(void **state) {
    struct core_fixture *t = *state;
    char names[64];
    uint32_t place;
    struct epic_info info;
    must(push_number(t, "e", 1, "a"));
    must(push_number(t, "f", 1, "b"));
    (void)core_take_steps(t->core);
    name_epics(t, 0, names);
    assert_string_equal(names, "ef");
    assert_int_equal(core_take_steps(t->core), 0);
    must(core_epic_place(t->core, mr_str("s"), mr_str("f"), &place));
    core_epic_look_at(t->core, place, &info);
    assert_int_equal(info.accepted, 1);
    assert_true(core_take_steps(t->core) > 2);
}

static void T9_epics_are_listed(void **state) {
    struct core_fixture *t = *state;
    char names[64];
    struct pushed pushed;
    must(push_number(t, "e", 1, "a"));
    must(try_push(t, (struct push){ .source = mr_str("client"), .number = 1 }, &pushed));
    must(end_epic(t, "f", 0));
    must(push_number(t, "g", 1, "b"));
    must(core_epic_drop(t->core, mr_str("s"), mr_str("f")));
    replay(t);
    name_epics(t, 0, names);
    assert_string_equal(names, "eg");
    uint32_t place;
    must(core_epic_place(t->core, mr_str("s"), mr_str("e"), &place));
    name_epics(t, place, names);
    assert_string_equal(names, "g");
    refused(MR_EGONE, core_epic_place(t->core, mr_str("s"), mr_str("f"), &place));
    refused(MR_EGONE, core_epic_place(t->core, mr_str("s"), mr_str("client"), &place));
}

static int never(void *arg, const struct job_info *j) {
    (void)arg, (void)j;
    fail();
    return 1;
}

// U4: a walk among very many of another status ends when it has visited as many as it may.
static void U4_a_walk_that_finds_nothing_is_cut(void **state) {
    struct core_fixture *t = *state;
    for (int i = 0; i < 10; i++)
        push(t, "", "x");
    for (int i = 0; i < 10; i++)
        done(t, take(t));
    struct job_walk w = { .stage = mr_str("s"), .status = JOB_EXPIRED, .steps = 5 };
    (void)core_take_steps(t->core);
    assert_int_equal(core_walk(t->core, &w, never, NULL), WALK_CUT);
    assert_true(core_take_steps(t->core) <= 6);
    w.steps = 0;
    assert_int_equal(core_walk(t->core, &w, never, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(U4_a_walk_that_finds_nothing_is_cut),
        CORE_TEST(A3_waiting_jobs_are_shown_as_they_will_start),
        CORE_TEST(A3_parked_and_blocked_jobs_are_listed),
        CORE_TEST(A3_running_jobs_are_shown_by_lease),
        CORE_TEST(C8_a_halted_channel_is_shown_by_its_dead_job),
        CORE_TEST(A3_delayed_jobs_are_shown_by_id),
        CORE_TEST(F13_dead_and_ended_jobs_are_shown_as_they_ended),
        CORE_TEST(T1_a_walk_from_nowhere_is_refused),
        CORE_TEST(T1_stages_are_found_by_name),
        CORE_TEST(D4_an_empty_epic_is_over_at_once),
        CORE_TEST(D4_an_epic_is_over_when_its_last_job_has_ended),
        CORE_TEST(D4_a_wait_for_an_epic_ends_when_few_enough_jobs_are_left),
        CORE_TEST(D4_jobs_that_die_or_are_dropped_are_worked_off_too),
        CORE_TEST(T9_an_epic_belongs_to_its_stage),
        CORE_TEST(T9_epics_are_listed),
        CORE_TEST(U7_a_look_at_an_epic_counts_its_steps),
    };
    return RUN_CORE_TESTS(tests);
}
