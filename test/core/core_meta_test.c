// META: bytes that a push hands to the worker beside the body. They are recorded behind the body,
// so they survive what the body survives; a restart and a cleaning are checked after each command.
#include "support/core_fixture.h"

static uint64_t push_meta(struct core_fixture *t, const char *key, const char *body,
                          const char *meta) {
    return push_with(t, (struct push){ .stage = mr_str("s"),
                                       .body = mr_str(body),
                                       .job = { .key = mr_str(key), .meta = mr_str(meta) } });
}

static void expect_meta(struct taken taken, const char *body, const char *meta) {
    assert_string_equal(taken.body, body);
    assert_string_equal(taken.meta, meta);
}

static void G12_meta_comes_back_unchanged(void **state) {
    struct core_fixture *t = *state;
    push_meta(t, "k", "a", "trace 1");
    push_meta(t, "k", "", "trace 2");
    push(t, "k", "c");
    push_meta(t, "", "d", "trace 4");
    struct taken a = take(t);
    expect_meta(a, "a", "trace 1");
    expect_meta(take(t), "d", "trace 4");
    done(t, a);
    a = take(t);
    expect_meta(a, "", "trace 2");
    done(t, a);
    expect_meta(take(t), "c", "");
}

static void G12_meta_survives_restart_cleaning_and_failed_attempts(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_meta(t, "k", "a", "trace 1");
    fail_job(t, take(t));
    clean(t);
    crash(t);
    pass_ms(t, 1000000);
    struct taken a = take(t);
    expect_meta(a, "a", "trace 1");
    must(release_job(t, a));
    must(fail_with(t, take(t), "no", MR_NEVER));
    expect_status(t, id, JOB_DEAD);
    clean(t);
    crash(t);
    clean(t);
    must(retry(t, id));
    expect_meta(take(t), "a", "trace 1");
}

static void G12_a_job_may_have_meta_and_every_other_option(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_with(t, (struct push){ .stage = mr_str("s"),
                                              .body = mr_str("a"),
                                              .source = mr_str("june"),
                                              .number = 1,
                                              .epic = true,
                                              .job = { .key = mr_str("k"),
                                                       .once = mr_str("name"),
                                                       .delay_ms = 10,
                                                       .deadline_ms = 100000,
                                                       .attempts = 1,
                                                       .meta = mr_str("trace") } });
    assert_int_equal(look(t, id).meta_size, 5);
    clean(t);
    crash(t);
    pass_ms(t, 10);
    struct taken a = take(t);
    expect_meta(a, "a", "trace");
    fail_job(t, a);
    expect_status(t, id, JOB_DEAD); // one attempt
}

static void G12_an_ended_job_keeps_no_meta(void **state) {
    struct core_fixture *t = *state;
    uint64_t id = push_meta(t, "k", "a", "trace");
    done_with(t, take(t), "result", NULL);
    assert_int_equal(look(t, id).meta_size, 0);
    assert_string_equal(core_fixture_read(t, look(t, id).at), "result");
    clean(t);
    crash(t);
    assert_string_equal(core_fixture_read(t, look(t, id).at), "result");
}

static struct emit emit_of(const char *stage, const char *body, const char *meta) {
    return (struct emit){ .stage = mr_str(stage),
                          .body = mr_str(body),
                          .job = { .key = mr_str("k"), .meta = mr_str(meta) } };
}

static void G12_an_emit_has_the_meta_it_is_given(void **state) {
    struct core_fixture *t = *state;
    push_meta(t, "k", "a", "trace");
    struct taken a = take(t);
    struct emit emits[] = { emit_of("next", "b", "trace"), emit_of("next", "c", ""),
                            emit_of("next", "d", "other") };
    must(try_done(t,
                  (struct done){ .id = a.id, .token = a.token, .emits = emits, .emit_count = 3 }));
    clean(t);
    const char *bodies[] = { "b", "c", "d" }, *metas[] = { "trace", "", "other" };
    for (int i = 0; i < 3; i++) {
        struct taken b = take_from(t, "next");
        expect_meta(b, bodies[i], metas[i]);
        done(t, b);
    }
}

static void G12_meta_travels_to_other_shards(void **state) {
    struct core_fixture *t = *state;
    in_shards(t, 2);
    const char *here = stage_in(0, 2), *there = stage_in(1, 2);
    push_to(t, here, "k", "a");
    struct taken a = take_from(t, here);
    struct emit emit = emit_of(there, "b", "trace");
    must(try_done(t,
                  (struct done){ .id = a.id, .token = a.token, .emits = &emit, .emit_count = 1 }));
    clean(t);
    crash(t);
    struct link_entry e;
    assert_true(core_link_next(t->core, 1, 0, &e));
    assert_int_equal(e.meta_size, 5);
    assert_string_equal(core_fixture_read(t, e.at), "btrace");

    e = (struct link_entry){ .number = 7, .stage = mr_str(here), .meta_size = 5 };
    must(arrive(t, 1, e, "ctrace"));
    clean(t);
    crash(t);
    expect_meta(take_from(t, here), "c", "trace");
}

static void G12_meta_has_at_most_a_kilobyte(void **state) {
    struct core_fixture *t = *state;
    char meta[META_MOST + 2];
    struct pushed pushed;
    memset(meta, 'm', sizeof meta);
    struct push p = { .stage = mr_str("s"),
                      .body = mr_str("a"),
                      .job.meta = bytes_of(meta, META_MOST + 1) };
    refused(MR_ETOOBIG, try_push(t, p, &pushed));
    p.job.meta.size--;
    must(try_push(t, p, &pushed));
    assert_int_equal(look(t, pushed.id).meta_size, META_MOST);
}

// A record that claims more META than its body has is refused.
static void G12_a_record_with_impossible_meta_is_refused(void **state) {
    struct core_fixture *t = *state;
    uint8_t head[RECORD_MAX];
    struct record r = {
        .kind = RECORD_PUSH, .time_ms = 1, .id = 1000, .stage = 1, .position = 1, .meta_size = 5
    };
    size_t size = record_encode(&r, head);
    struct core_config config = { 0 };
    struct core *core;
    must(core_create(&config, &core));
    refused(MR_ECORRUPT, core_replay(core, 64, bytes_of(head, size), 4));
    must(core_replay(core, 64, bytes_of(head, size), 5));
    core_destroy(core);
    (void)t;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(G12_meta_comes_back_unchanged),
        CORE_TEST(G12_meta_survives_restart_cleaning_and_failed_attempts),
        CORE_TEST(G12_a_job_may_have_meta_and_every_other_option),
        CORE_TEST(G12_an_ended_job_keeps_no_meta),
        CORE_TEST(G12_an_emit_has_the_meta_it_is_given),
        CORE_TEST(G12_meta_travels_to_other_shards),
        CORE_TEST(G12_meta_has_at_most_a_kilobyte),
        CORE_TEST(G12_a_record_with_impossible_meta_is_refused),
    };
    return RUN_CORE_TESTS(tests);
}
