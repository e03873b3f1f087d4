// Bad input: every call with NULL, empty, oversized, foreign, closed and already ended arguments
// answers with its code and a sentence, and changes nothing. What is just within a limit works.
#include "base/mem.h"
#include "support/api.h"

enum { BODY_MAX = 16 << 20, KEY_MAX = 1 << 10, ONCE_MAX = 256, STATE_MAX = 1 << 20 };

static int nothing(mr_job *job, void *arg) {
    (void)job, (void)arg;
    return 0;
}

static void ignore_end(mr_id id, int status, mr_bytes body, void *arg) {
    (void)id, (void)status, (void)body, (void)arg;
}

static int no_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    (void)id, (void)key, (void)reason, (void)arg;
    return 0;
}

// ---- Engines ----------------------------------------------------------------------------------

// Every call that takes an engine, with one that is none.
static void refuse_engine(mr *m) {
    mr_job *job = NULL;
    mr_worker *w = NULL;
    mr_stage_info info;
    mr_item item = { .body = mr_str("x") };
    size_t n = 7;
    mr_id id = 7;
    refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), NULL, &id));
    refused(MR_EINVAL, mr_push_many(m, "s", &item, 1, NULL, &id, &n));
    refused(MR_EINVAL, mr_call(m, "s", mr_str("x"), NULL, NULL));
    refused(MR_EINVAL, mr_call_start(m, "s", mr_str("x"), NULL, ignore_end, NULL, &id));
    refused(MR_EINVAL, mr_await(m, 1, 0, NULL));
    refused(MR_EINVAL, mr_cancel(m, 1));
    refused(MR_EINVAL, mr_stage_wait_empty(m, "s", 0));
    refused(MR_EINVAL, mr_work(m, "s", nothing, NULL, NULL, &w));
    refused(MR_EINVAL, mr_take(m, "s", NULL, &job));
    refused(MR_EINVAL, mr_stage_look(m, "s", &info));
    refused(MR_EINVAL, mr_stage_set(m, "s", "attempts", "1"));
    refused(MR_EINVAL, mr_stage_pause(m, "s"));
    refused(MR_EINVAL, mr_stage_resume(m, "s"));
    refused(MR_EINVAL, mr_dead(m, "s", no_dead, NULL));
    refused(MR_EINVAL, mr_retry(m, 1));
    refused(MR_EINVAL, mr_drop(m, 1));
    assert_true(!job && !w && n == 7 && id == 7); // outputs are untouched
}

static void X_no_foreign_and_closed_engines_are_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_close(m));
    refuse_engine(NULL);
    refuse_engine(m);
    refuse_engine((mr *)&m);
    refused(MR_EINVAL, mr_close(m));
    refused(MR_EINVAL, mr_close((mr *)&m));
}

static void X_urls_and_options_that_are_none_are_named(void **state) {
    (void)state;
    const char *bad[] = { "", "mem", "mem:x", "file:", "http://x", "MEM:", "/tmp" };
    mr *m = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        refused(MR_EINVAL, mr_open(bad[i], NULL, &m));
        assert_non_null(strstr(mr_error(), bad[i]));
    }
    refused(MR_EINVAL, mr_open(NULL, NULL, &m));
    refused(MR_EINVAL, mr_open("mem:", NULL, NULL));
    const char *syncs[] = { "",
                            "sometimes",
                            "interval:",
                            "interval:0",
                            "interval:-5",
                            "interval:5x",
                            "interval:99999999999999999999" };
    for (size_t i = 0; i < sizeof syncs / sizeof *syncs; i++)
        refused(MR_EINVAL, mr_open("mem:", &(mr_options){ .sync = syncs[i] }, &m));
    refused(MR_EINVAL, mr_open("mem:", &(mr_options){ .shards = 65 }, &m));
    refused(MR_EINVAL, mr_open("mem:", &(mr_options){ .reserved = { [7] = 1 } }, &m));
    refused(MR_EIO, mr_open("file:/proc/nowhere/store", NULL, &m));
    assert_null(m);
    must(mr_open("mem:", &(mr_options){ .sync = "interval:50", .shards = 1 }, &m));
    must(mr_close(m));
}

static void X_too_many_engines_are_refused(void **state) {
    (void)state;
    mr *open[64], *more = NULL;
    for (int i = 0; i < 64; i++)
        open[i] = open_mem();
    refused(MR_EFULL, mr_open("mem:", NULL, &more));
    for (int i = 0; i < 64; i++)
        must(mr_close(open[i]));
}

// ---- Handing in -------------------------------------------------------------------------------

static void F48_names_with_every_byte_and_too_long_ones(void **state) {
    (void)state;
    mr *m = open_mem();
    for (int byte = 1; byte < 256; byte++) {
        char name[] = { 'a', (char)byte, 0 };
        bool fits = byte < 128 && (strchr("._:/-", byte) || (byte >= '0' && byte <= '9') ||
                                   (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z'));
        assert_int_equal(mr_push(m, name, mr_str("x"), NULL, NULL), fits ? 0 : MR_EINVAL);
    }
    refused(MR_EINVAL, mr_push(m, "", mr_str("x"), NULL, NULL));
    refused(MR_EINVAL, mr_push(m, NULL, mr_str("x"), NULL, NULL));
    static char longest[65537];
    memset(longest, 'a', 65536);
    assert_true(mr_push(m, longest, mr_str("x"), NULL, NULL) < 0);
    assert_true(mr_stage_pause(m, longest) < 0);
    longest[201] = 0;
    assert_true(mr_push(m, longest, mr_str("x"), NULL, NULL) < 0);
    longest[200] = 0;
    must(mr_push(m, longest, mr_str("x"), NULL, NULL));
    must(mr_close(m));
}

static void F48_keys_and_once_are_any_bytes_up_to_their_limits(void **state) {
    (void)state;
    mr *m = open_mem();
    static uint8_t bytes[65536];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)i;
    mr_push_options o = { .key = { bytes, KEY_MAX }, .once = { bytes, ONCE_MAX } };
    must(mr_push(m, "s", mr_str("x"), &o, NULL));
    o.key.size = KEY_MAX + 1;
    refused(MR_ETOOBIG, mr_push(m, "s", mr_str("x"), &o, NULL));
    o.key.size = sizeof bytes;
    refused(MR_ETOOBIG, mr_push(m, "s", mr_str("x"), &o, NULL));
    o.key.size = 1;
    o.once.size = ONCE_MAX + 1;
    refused(MR_ETOOBIG, mr_push(m, "s", mr_str("x"), &o, NULL));
    refused(MR_EINVAL,
            mr_push(m, "s", mr_str("x"), &(mr_push_options){ .key = { NULL, 1 } }, NULL));
    refused(MR_EINVAL,
            mr_push(m, "s", mr_str("x"), &(mr_push_options){ .once = { NULL, 1 } }, NULL));
    mr_job *job = take(m, "s", "x");
    assert_int_equal(mr_job_key(job).size, KEY_MAX);
    assert_memory_equal(mr_job_key(job).data, bytes, KEY_MAX);
    must(mr_done(job));
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void F47_bodies_of_no_one_all_and_too_many_bytes(void **state) {
    (void)state;
    mr *m = open_mem();
    uint8_t *bytes = malloc(BODY_MAX + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < BODY_MAX + 1; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8));
    size_t sizes[] = { 0, 1, 256, 65536, BODY_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mr_id id = 0;
        mr_result result = { 0 };
        must(mr_push(m, "s", (mr_bytes){ bytes, sizes[i] }, NULL, &id));
        mr_job *job = take_waiting(m, "s");
        assert_int_equal(mr_job_body(job).size, sizes[i]);
        assert_memory_equal(mr_job_body(job).data, bytes, sizes[i]);
        must(mr_job_set_result(job, mr_job_body(job)));
        must(mr_done(job));
        must(mr_await(m, id, 0, &result));
        assert_int_equal(result.body.size, sizes[i]);
        assert_memory_equal(result.body.data, bytes, sizes[i]);
        mr_result_free(&result);
    }
    refused(MR_ETOOBIG, mr_push(m, "s", (mr_bytes){ bytes, BODY_MAX + 1 }, NULL, NULL));
    refused(MR_EINVAL, mr_push(m, "s", (mr_bytes){ NULL, 1 }, NULL, NULL));
    nothing_to_take(m, "s");
    free(bytes);
    must(mr_close(m));
}

static void F49_numbers_at_and_beyond_their_limits(void **state) {
    (void)state;
    mr *m = open_mem();
    const int64_t bad[] = { -1, INT64_MIN, INT64_MIN + 1 };
    for (size_t i = 0; i < 3; i++) {
        mr_push_options delay = { .delay_ms = bad[i] }, deadline = { .deadline_ms = bad[i] };
        refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), &delay, NULL));
        refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), &deadline, NULL));
    }
    mr_push_options room = { .room_ms = -2 }, most = { .deadline_ms = INT64_MAX },
                    late = { .delay_ms = INT64_MAX }, reserved = { .reserved = { 1 } };
    refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), &room, NULL));
    refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), &reserved, NULL));
    refused(MR_EINVAL, mr_push(m, "d", mr_str("x"), &most, NULL)); // never wrapped
    refused(MR_EINVAL, mr_push(m, "d", mr_str("x"), &late, NULL));
    refused(MR_EINVAL, mr_push(m, "s", mr_str("x"), &(mr_push_options){ .attempts = 65536 }, NULL));
    must(mr_push(m, "s", mr_str("x"), &(mr_push_options){ .attempts = 65535 }, NULL));
    mr_job *job = NULL;
    refused(MR_EINVAL, mr_take(m, "s", &(mr_take_options){ .wait_ms = -2 }, &job));
    refused(MR_EINVAL, mr_take(m, "s", &(mr_take_options){ .lease_ms = -1 }, &job));
    refused(MR_EINVAL, mr_take(m, "s", &(mr_take_options){ .lease_ms = INT64_MAX }, &job));
    refused(MR_EINVAL, mr_take(m, "s", &(mr_take_options){ .batch = 1001 }, &job));
    refused(MR_EINVAL, mr_take(m, "s", &(mr_take_options){ .reserved = { [3] = 9 } }, &job));
    refused(MR_EINVAL, mr_await(m, 1, -2, NULL));
    refused(MR_EINVAL, mr_await(m, 1, INT64_MIN, NULL));
    refused(MR_EINVAL, mr_stage_wait_empty(m, "s", -7));
    refused(MR_EGONE, mr_await(m, 0, 0, NULL));
    refused(MR_EGONE, mr_await(m, UINT64_MAX, INT64_MAX, NULL));
    must(mr_take(m, "s", &(mr_take_options){ .wait_ms = INT64_MAX, .batch = 1000 }, &job));
    refused(MR_EINVAL, mr_fail(job, "x", -3));
    refused(MR_EINVAL, mr_release(job, -1));
    refused(MR_EINVAL, mr_release(job, INT64_MAX));
    refused(MR_EINVAL, mr_fail(job, "x", INT64_MIN));
    must(mr_release(job, INT64_C(100) * 365 * 24 * 3600 * 1000)); // still leased
    must(mr_close(m));
}

static void X_what_is_missing_is_named(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = NULL;
    size_t n = 0;
    mr_item item = { .body = mr_str("x") }, bad = { .body = { NULL, 3 } };
    mr_push_options keyed = { .key = mr_str("k") };
    refused(MR_EINVAL, mr_push_many(m, "s", NULL, 1, NULL, NULL, &n));
    refused(MR_EINVAL, mr_push_many(m, "s", &item, 1, NULL, NULL, NULL));
    refused(MR_EINVAL, mr_push_many(m, "s", &item, 1, &keyed, NULL, &n));
    refused(MR_EINVAL, mr_push_many(m, "s", &bad, 1, NULL, NULL, &n));
    refused(MR_EINVAL, mr_call_start(m, "s", mr_str("x"), NULL, NULL, NULL, NULL));
    refused(MR_EINVAL, mr_take(m, "s", NULL, NULL));
    refused(MR_EINVAL, mr_work(m, "s", NULL, NULL, NULL, &w));
    refused(MR_EINVAL, mr_work(m, "s", nothing, NULL, NULL, NULL));
    refused(MR_EINVAL, mr_work(m, NULL, nothing, NULL, NULL, &w));
    refused(MR_EINVAL, mr_stage_look(m, "s", NULL));
    refused(MR_EINVAL, mr_stage_set(m, "s", NULL, "1"));
    refused(MR_EINVAL, mr_stage_set(m, "s", "attempts", NULL));
    refused(MR_EINVAL, mr_stage_set(m, "s", "colour", "blue"));
    refused(MR_EINVAL, mr_stage_set(m, "s", "attempts", "many"));
    refused(MR_EINVAL, mr_dead(m, "s", NULL, NULL));
    mr_stage_info info;
    refused(MR_EINVAL, mr_stage_look(m, "a b", &info));
    refused(MR_EINVAL, mr_stage_wait_empty(m, "a b", 0));
    refused(MR_EINVAL, mr_dead(m, "a b", no_dead, NULL));
    refused(MR_EGONE, mr_stage_look(m, "never", &info)); // and nothing was made by all that
    nothing_to_take(m, "s");
    must(mr_close(m));
}

static void X_workers_that_can_not_be_are_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = NULL;
    const char *empty[] = { "", NULL }, *twice[] = { "s", NULL }, *wrong[] = { "a b", NULL };
    const char *many[66] = { 0 };
    char names[65][4];
    for (int i = 0; i < 65; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        many[i] = names[i];
    }
    mr_work_options bad[] = { { .jobs = 4097 },        { .batch = 1001 },
                              { .lease_ms = -1 },      { .own_loop = 1, .batch = 2 },
                              { .reserved = { 1 } },   { .more_stages = empty },
                              { .more_stages = many }, { .more_stages = twice },
                              { .more_stages = wrong } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(MR_EINVAL, mr_work(m, "s", nothing, NULL, &bad[i], &w));
    assert_null(w);
    refused(MR_EINVAL, mr_worker_fd(NULL));
    refused(MR_EINVAL, mr_worker_level(NULL));
    refused(MR_EINVAL, mr_worker_look(NULL, &(mr_worker_info){ 0 }));
    refused(MR_EINVAL, mr_worker_turn(NULL));
    refused(MR_EINVAL, mr_worker_stop((mr_worker *)&w, 0));
    must(mr_worker_stop(NULL, 0));
    must(mr_work(m, "s", nothing, NULL, NULL, &w));
    refused(MR_EINVAL, mr_worker_fd(w));
    refused(MR_EINVAL, mr_worker_turn(w));
    refused(MR_EINVAL, mr_worker_look(w, NULL));
    refused(MR_EINVAL, mr_worker_stop(w, -2));
    must(mr_worker_stop(w, MR_FOREVER));
    refused(MR_EINVAL, mr_worker_fd(w));
    refused(MR_EINVAL, mr_worker_level(w));
    must(mr_close(m));
}

// ---- Leased jobs ------------------------------------------------------------------------------

static void refuse_job(mr_job *job) {
    refused(MR_EINVAL, mr_done(job));
    refused(MR_EINVAL, mr_fail(job, "x", 0));
    refused(MR_EINVAL, mr_release(job, 0));
    refused(MR_EINVAL, mr_beat(job));
    refused(MR_EINVAL, mr_job_set_result(job, mr_str("x")));
    refused(MR_EINVAL, mr_job_set_state(job, mr_str("x")));
    refused(MR_EINVAL, mr_job_set_reason(job, "x"));
    refused(MR_EINVAL, mr_job_set_output(job, mr_str("x")));
    refused(MR_EINVAL, mr_job_emit(job, "s", mr_str("x"), NULL));
}

static void X_no_job_and_an_ended_one_are_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    refuse_job(NULL);
    assert_true(mr_job_id(NULL) == 0 && mr_job_attempt(NULL) == 0 && !mr_job_stopped(NULL));
    assert_string_equal(mr_job_stage(NULL), "");
    assert_true(mr_job_key(NULL).size == 0 && mr_job_body(NULL).size == 0);
    assert_true(mr_job_state(NULL).size == 0 && mr_job_left_ms(NULL) == MR_FOREVER);
    push(m, "s", NULL, "x");
    mr_job *job = take(m, "s", "x");
    must(mr_done(job));
    refuse_job(job);
    mr_result_free(NULL);
    mr_result_free(&(mr_result){ 0 });
    must(mr_close(m));
}

static void X_what_a_commit_can_not_carry_is_refused_early(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "x");
    mr_job *job = take(m, "s", "x");
    uint8_t *big = calloc(1, BODY_MAX + 1);
    assert_non_null(big);
    refused(MR_ETOOBIG, mr_job_set_result(job, (mr_bytes){ big, BODY_MAX + 1 }));
    refused(MR_ETOOBIG, mr_job_set_state(job, (mr_bytes){ big, STATE_MAX + 1 }));
    refused(MR_EINVAL, mr_job_set_result(job, (mr_bytes){ NULL, 1 }));
    refused(MR_EINVAL, mr_job_set_reason(job, NULL));
    refused(MR_EINVAL, mr_job_emit(job, NULL, mr_str("x"), NULL));
    refused(MR_EINVAL, mr_job_emit(job, "not a stage", mr_str("x"), NULL));
    refused(MR_EINVAL, mr_job_emit(job, "t", (mr_bytes){ NULL, 1 }, NULL));
    refused(MR_EINVAL, mr_job_emit(job, "t", mr_str("x"), &(mr_push_options){ .room_ms = 1 }));
    refused(MR_ETOOBIG, mr_job_emit(job, "t", (mr_bytes){ big, BODY_MAX + 1 }, NULL));
    refused(MR_ETOOBIG,
            mr_job_emit(job, "t", mr_str("x"), &(mr_push_options){ .key = { big, KEY_MAX + 1 } }));
    for (int i = 0; i < 1000; i++)
        must(mr_job_emit(job, "t", mr_str("x"), NULL));
    refused(MR_EFULL, mr_job_emit(job, "t", mr_str("x"), NULL));
    must(mr_done(job));
    assert_int_equal(look(m, "t").waiting, 1000);
    free(big);
    must(mr_close(m));
}

static void X_a_commit_that_can_not_be_recorded_is_a_failed_attempt(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", "k", "x");
    mr_job *job = take(m, "s", "x");
    must(mr_job_emit(job, "t", mr_str("x"), &(mr_push_options){ .attempts = 70000 }));
    refused(MR_EINVAL, mr_done(job));
    assert_int_equal(look(m, "s").failed, 1);
    assert_int_equal(look(m, "s").waiting, 1);
    must(mr_close(m));
}

// ---- Memory -----------------------------------------------------------------------------------

static int emit_and_end(mr_job *job) {
    int err = mr_job_set_result(job, mr_str("result"));
    if (err >= 0)
        err = mr_job_set_state(job, mr_str("state"));
    if (err >= 0)
        err = mr_job_emit(job, "next", mr_str("x"), NULL);
    if (err >= 0)
        return mr_done(job);
    (void)mr_release(job, 0);
    return err;
}

// Runs jobs until the first failure, and ends all leases.
static int live_once(mr *m) {
    mr_id id = 0;
    mr_job *job = NULL;
    mr_push_options o = { .key = mr_str("k"), .once = mr_str("n"), .deadline_ms = 60000 };
    int err = mr_push(m, "s", mr_str("x"), &o, &id);
    if (err >= 0)
        err = mr_push(m, "s", mr_str("y"), &(mr_push_options){ .key = mr_str("k") }, NULL);
    if (err >= 0)
        err = mr_take(m, "s", &(mr_take_options){ .batch = 4 }, &job);
    if (err >= 0)
        err = emit_and_end(job);
    if (err >= 0)
        err = mr_await(m, id, 0, NULL);
    if (err >= 0)
        err = mr_call_start(m, "called", mr_str("x"), NULL, ignore_end, NULL, &id);
    if (err >= 0)
        err = mr_cancel(m, id);
    mr_worker *w = NULL;
    if (err >= 0)
        err = mr_work(m, "worked", nothing, NULL, &(mr_work_options){ .jobs = 1 }, &w);
    if (err >= 0)
        err = mr_worker_stop(w, MR_FOREVER);
    return err;
}

static void F51_every_allocation_failing_once_is_an_error_and_loses_nothing(void **state) {
    (void)state;
    bool reached = true;
    for (int nth = 0; reached; nth++) {
        mr *m = NULL;
        mem_fail_after(nth);
        int err = mr_open("mem:", NULL, &m);
        if (err >= 0)
            err = live_once(m);
        reached = mem_fail_after(-1) < 0;
        if (err < 0 && err != MR_ENOMEM && err != MR_EFULL) // a table that can not grow is full
            fail_msg("allocation %d failed, and the call with %d: %s", nth, err, mr_error());
        for (int more = 0; m && err < 0 && more < 2; more++) // as if nothing had happened
            err = live_once(m) == MR_EAGAIN ? 0 : err;
        must(mr_close(m));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_no_foreign_and_closed_engines_are_refused),
        cmocka_unit_test(X_urls_and_options_that_are_none_are_named),
        cmocka_unit_test(X_too_many_engines_are_refused),
        cmocka_unit_test(F48_names_with_every_byte_and_too_long_ones),
        cmocka_unit_test(F48_keys_and_once_are_any_bytes_up_to_their_limits),
        cmocka_unit_test(F47_bodies_of_no_one_all_and_too_many_bytes),
        cmocka_unit_test(F49_numbers_at_and_beyond_their_limits),
        cmocka_unit_test(X_what_is_missing_is_named),
        cmocka_unit_test(X_workers_that_can_not_be_are_refused),
        cmocka_unit_test(X_no_job_and_an_ended_one_are_refused),
        cmocka_unit_test(X_what_a_commit_can_not_carry_is_refused_early),
        cmocka_unit_test(X_a_commit_that_can_not_be_recorded_is_a_failed_attempt),
        cmocka_unit_test(F51_every_allocation_failing_once_is_an_error_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
