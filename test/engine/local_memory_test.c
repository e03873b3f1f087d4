// An engine in memory: a push that went to its inbox cannot be told from any other, and what only a
// replay would need is not written. Plain pushes are those whose id is not asked for.
#include "api/handle.h"
#include "base/mem.h"
#include "engine/local.h"
#include "support/api.h"

enum { PUSHERS = 3, KEYS = 5, EACH = 4000 };

static struct push_inbox *push_inbox_of(mr *m, const char *stage) {
    return &shard_of_stage(m->engine, mr_str(stage))->inbox;
}

static size_t bytes_in_inbox(mr *m, const char *stage) {
    return atomic_load(&push_inbox_of(m, stage)->filled);
}

static int push_plain(mr *m, const char *stage, const char *key, const char *body) {
    mr_push_options o = { .key = mr_str(key) };
    return mr_push(m, stage, mr_str(body), &o, NULL);
}

// The first push of a stage makes it known; from then on its plain pushes go to the inbox.
static mr *open_with_inbox(const char *stage) {
    mr *m = open_mem();
    must(push_plain(m, stage, "first", "first"));
    assert_int_equal(bytes_in_inbox(m, stage), 0);
    return m;
}

static void take_and_end(mr *m, const char *stage, const char *body) {
    must(mr_done(take(m, stage, body)));
}

static void X_plain_pushes_are_taken_in_order_with_others(void **state) {
    (void)state;
    mr *m = open_with_inbox("s");
    must(push_plain(m, "s", "k", "1"));
    must(push_plain(m, "s", "k", "2"));
    assert_true(bytes_in_inbox(m, "s") > 0);
    push(m, "s", "k", "3"); // asks for its id, so it takes the shard's lock
    assert_int_equal(bytes_in_inbox(m, "s"), 0);
    must(push_plain(m, "s", "k", "4"));
    take_and_end(m, "s", "first");
    const char *bodies[] = { "1", "2", "3", "4" };
    for (int i = 0; i < 4; i++)
        take_and_end(m, "s", bodies[i]);
    must(mr_close(m));
}

static void X_a_look_sees_what_is_in_the_inbox(void **state) {
    (void)state;
    mr *m = open_with_inbox("s");
    must(push_plain(m, "s", "", "no key"));
    must(push_plain(m, "s", "k", ""));
    assert_true(bytes_in_inbox(m, "s") > 0);
    assert_int_equal(look(m, "s").waiting, 3);
    must(mr_close(m));
}

static void X_a_body_too_large_for_the_inbox_keeps_its_place(void **state) {
    (void)state;
    static char large[INBOX_BODY_MOST + 2];
    memset(large, 'x', sizeof large - 1);
    mr *m = open_with_inbox("s");
    must(push_plain(m, "s", "k", "before"));
    must(push_plain(m, "s", "k", large));
    must(push_plain(m, "s", "k", "after"));
    take_and_end(m, "s", "first");
    take_and_end(m, "s", "before");
    take_and_end(m, "s", large);
    take_and_end(m, "s", "after");
    must(mr_close(m));
}

// More than the inbox holds, and more stages than have permits.
static void R13_what_does_not_fit_into_the_inbox_is_pushed_all_the_same(void **state) {
    (void)state;
    mr *m = open_mem();
    char stage[16];
    for (int i = 0; i < 3 * INBOX_JOBS; i++) {
        snprintf(stage, sizeof stage, "s%d", i % (INBOX_STAGES + 2));
        must(push_plain(m, stage, "", "x"));
    }
    uint64_t waiting = 0;
    for (int i = 0; i < INBOX_STAGES + 2; i++) {
        snprintf(stage, sizeof stage, "s%d", i);
        waiting += look(m, stage).waiting;
    }
    assert_int_equal(waiting, 3 * INBOX_JOBS);
    must(mr_close(m));
}

// ---- Refusals ---------------------------------------------------------------------------------

enum { MAX_JOBS = 3 * INBOX_JOBS + PUSHES_A_TURN };

struct filler {
    mr *m;
    bool asks; // for ids
    uint64_t accepted;
};

static void *fill(void *arg) {
    struct filler *f = arg;
    mr_id id;
    int err;
    while ((err = mr_push(f->m, "s", mr_str("x"), NULL, f->asks ? &id : NULL)) == 0)
        f->accepted++;
    assert_int_equal(err, MR_EFULL);
    return NULL;
}

static void R14_max_jobs_is_exact_while_some_pushes_go_to_the_inbox(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "max-jobs", "7000"));
    assert_int_equal(MAX_JOBS, 7000);
    struct filler fillers[PUSHERS];
    pthread_t threads[PUSHERS];
    for (int i = 0; i < PUSHERS; i++) {
        fillers[i] = (struct filler){ .m = m, .asks = i == 0 };
        assert_int_equal(pthread_create(&threads[i], NULL, fill, &fillers[i]), 0);
    }
    uint64_t accepted = 0;
    for (int i = 0; i < PUSHERS; i++) {
        pthread_join(threads[i], NULL);
        accepted += fillers[i].accepted;
    }
    assert_int_equal(accepted, MAX_JOBS);
    assert_int_equal(look(m, "s").waiting, MAX_JOBS);
    must(mr_close(m));
}

static void R15_a_draining_stage_refuses_plain_pushes_at_once(void **state) {
    (void)state;
    mr *m = open_with_inbox("s");
    must(push_plain(m, "s", "k", "in time"));
    assert_true(bytes_in_inbox(m, "s") > 0);
    must(mr_stage_drain(m, "s"));
    refused(MR_EDRAINING, push_plain(m, "s", "k", "too late"));
    assert_int_equal(look(m, "s").waiting, 2);
    must(mr_stage_resume(m, "s"));
    must(push_plain(m, "s", "k", "again"));
    assert_int_equal(look(m, "s").waiting, 3);
    must(mr_close(m));
}

// Delivering needs memory for new keys. What was accepted stays, in front of later pushes.
static void R13_without_memory_what_was_accepted_is_delivered_later(void **state) {
    (void)state;
    enum { ACCEPTED = 300 };
    mr *m = open_with_inbox("s");
    char key[700], body[16];
    memset(key, 'k', sizeof key);
    for (int i = 0; i < ACCEPTED; i++) {
        snprintf(key + sizeof key - 8, 8, "%07d", i);
        snprintf(body, sizeof body, "%d", i);
        must(push_plain(m, "s", key, body));
    }
    assert_true(bytes_in_inbox(m, "s") > ACCEPTED * sizeof key);
    mr_id id;
    mem_fail_after(0);
    refused(MR_ENOMEM, mr_push(m, "s", mr_str("refused"), NULL, &id));
    assert_true(mem_fail_after(-1) < 0);
    push(m, "s", "", "last");
    take_and_end(m, "s", "first");
    for (int i = 0; i < ACCEPTED; i++) {
        snprintf(body, sizeof body, "%d", i);
        take_and_end(m, "s", body);
    }
    take_and_end(m, "s", "last");
    nothing_to_take(m, "s");
    must(mr_close(m));
}

// ---- Takes that wait --------------------------------------------------------------------------

static void *take_in_thread(void *arg) {
    return take_waiting(arg, "s");
}

static void D2_a_take_that_waits_gets_a_plain_push_at_once(void **state) {
    (void)state;
    mr *m = open_with_inbox("s");
    take_and_end(m, "s", "first");
    pthread_t thread;
    for (int i = 0; i < 200; i++) { // the push comes before, while or after the take begins to wait
        void *job;
        assert_int_equal(pthread_create(&thread, NULL, take_in_thread, m), 0);
        must(push_plain(m, "s", "", "x"));
        pthread_join(thread, &job);
        must(mr_done(job));
    }
    must(mr_close(m));
}

// A handler pushes the next job of its own stage: the stage is not empty before the last has ended.
static int push_next(mr_job *job, void *arg) {
    const char *text = mr_job_body(job).data;
    int left = (int)strtol(text, NULL, 10);
    char next[16];
    snprintf(next, sizeof next, "%d", left - 1);
    if (left > 0)
        must(push_plain(arg, "s", left % 2 ? "a" : "b", next));
    return 0;
}

static void T_a_stage_is_not_empty_while_a_job_is_in_the_inbox(void **state) {
    (void)state;
    mr *m = open_with_inbox("s");
    take_and_end(m, "s", "first");
    must(push_plain(m, "s", "k", "x"));
    assert_int_equal(mr_stage_wait_empty(m, "s", 0), MR_EAGAIN);
    take_and_end(m, "s", "x");
    must(push_plain(m, "s", "a", "2000"));
    mr_worker *w = NULL;
    must(mr_work(m, "s", push_next, m, &(mr_work_options){ .jobs = 2 }, &w));
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    assert_int_equal(look(m, "s").done, 2 + 2001);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// ---- Many threads -----------------------------------------------------------------------------

struct history {
    mr *m;
    atomic_int pushers;
    int next[PUSHERS][KEYS];        // of each pusher's jobs of a key, the one that is to run
    atomic_int running[KEYS], jobs; // jobs of a key that run now; and all that have run
};

static void *push_many_keys(void *arg) {
    struct history *h = arg;
    int self = atomic_fetch_add(&h->pushers, 1);
    char key[8], body[32];
    mr_id id;
    for (int i = 0; i < EACH; i++) {
        mr_push_options o = { .key = { key, (size_t)snprintf(key, sizeof key, "%d", i % KEYS) } };
        snprintf(body, sizeof body, "%d %d", self, i / KEYS);
        must(mr_push(h->m, "s", mr_str(body), &o, i % 7 ? NULL : &id));
    }
    return NULL;
}

static int check_order(mr_job *job, void *arg) {
    struct history *h = arg;
    int key = *(const char *)mr_job_key(job).data - '0', pusher, number;
    assert_int_equal(sscanf(mr_job_body(job).data, "%d %d", &pusher, &number), 2);
    assert_int_equal(atomic_fetch_add(&h->running[key], 1), 0);
    assert_int_equal(h->next[pusher][key]++, number);
    atomic_fetch_sub(&h->running[key], 1);
    atomic_fetch_add(&h->jobs, 1);
    return 0;
}

static void C7_jobs_from_many_threads_keep_their_order_through_the_inbox(void **state) {
    (void)state;
    static struct history h;
    memset(&h, 0, sizeof h);
    h.m = open_mem();
    mr_worker *w = NULL;
    pthread_t threads[PUSHERS];
    must(mr_work(h.m, "s", check_order, &h, &(mr_work_options){ .jobs = 2 }, &w));
    for (int i = 0; i < PUSHERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_many_keys, &h), 0);
    for (int i = 0; i < PUSHERS; i++)
        pthread_join(threads[i], NULL);
    must(mr_stage_wait_empty(h.m, "s", MR_FOREVER));
    assert_int_equal(h.jobs, PUSHERS * EACH);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(h.m));
}

// ---- Records that are not needed --------------------------------------------------------------

static uint64_t last_record(mr *m, const char *stage) {
    return shard_last_at(shard_of_stage(m->engine, mr_str(stage))->shard);
}

static void X_the_end_of_a_job_that_leaves_nothing_is_not_written(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "retention", "0,0"));
    mr_id plain = push(m, "s", "k", "plain"), named = push(m, "s", "k", "with a state");
    uint64_t pushed = last_record(m, "s");
    take_and_end(m, "s", "plain");
    assert_int_equal(last_record(m, "s"), pushed);
    refused(MR_EGONE, mr_await(m, plain, 0, NULL));
    mr_job *job = take(m, "s", "with a state");
    must(mr_job_set_state(job, mr_str("kept")));
    must(mr_done(job));
    assert_true(last_record(m, "s") > pushed);
    refused(MR_EGONE, mr_await(m, named, 0, NULL));
    assert_int_equal(look(m, "s").done, 2);
    must(mr_close(m));
}

static int expect_done_k(const mr_job_info *info, void *arg) {
    (void)arg;
    assert_string_equal(info->status, "done");
    assert_true(bytes_equal(info->key, mr_str("k")));
    return 0;
}

// What a job without a result leaves, wherever its record is.
static void expect_retained(mr *m, const char *stage, mr_id id) {
    mr_result result;
    must(mr_await(m, id, 0, &result));
    assert_int_equal(result.body.size, 0);
    mr_result_free(&result);
    must(mr_jobs(m, stage, &(mr_job_filter){ .status = "done" }, expect_done_k, NULL));
    must(mr_check(m));
}

static uint64_t log_head(mr *m, const char *stage) {
    struct log_state log;
    shard_look(shard_of_stage(m->engine, mr_str(stage))->shard, &log);
    return log.head;
}

// Pushes and ends jobs of another stage until the cleaner has passed a position.
static void clean_beyond(mr *m, uint64_t at) {
    static char large[1 << 16];
    memset(large, 'x', sizeof large - 1);
    while (log_head(m, "other") <= at) {
        push(m, "other", "", large);
        take_and_end(m, "other", large);
    }
}

static void R16_a_retained_job_keeps_the_record_of_its_push(void **state) {
    (void)state;
    mr *m = open_mem();
    must(push_plain(m, "other", "", "makes the stage"));
    take_and_end(m, "other", "makes the stage");
    mr_id id = push(m, "s", "k", "a body that is no result");
    uint64_t pushed = last_record(m, "s");
    take_and_end(m, "s", "a body that is no result");
    assert_int_equal(last_record(m, "s"), pushed);
    expect_retained(m, "s", id);
    clean_beyond(m, pushed);
    expect_retained(m, "s", id);
    clean_beyond(m, last_record(m, "s"));
    expect_retained(m, "s", id);
    must(mr_close(m));
}

// Else ended jobs would take as much memory as waiting ones.
static void R16_a_large_body_is_not_retained(void **state) {
    (void)state;
    static char large[1000];
    memset(large, 'x', sizeof large - 1);
    mr *m = open_mem();
    mr_id id = push(m, "s", "k", large);
    uint64_t pushed = last_record(m, "s");
    take_and_end(m, "s", large);
    assert_true(last_record(m, "s") > pushed);
    expect_retained(m, "s", id);
    must(mr_close(m));
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(X_plain_pushes_are_taken_in_order_with_others),
        cmocka_unit_test(X_a_look_sees_what_is_in_the_inbox),
        cmocka_unit_test(X_a_body_too_large_for_the_inbox_keeps_its_place),
        cmocka_unit_test(R13_what_does_not_fit_into_the_inbox_is_pushed_all_the_same),
        cmocka_unit_test(R14_max_jobs_is_exact_while_some_pushes_go_to_the_inbox),
        cmocka_unit_test(R15_a_draining_stage_refuses_plain_pushes_at_once),
        cmocka_unit_test(R13_without_memory_what_was_accepted_is_delivered_later),
        cmocka_unit_test(D2_a_take_that_waits_gets_a_plain_push_at_once),
        cmocka_unit_test(T_a_stage_is_not_empty_while_a_job_is_in_the_inbox),
        cmocka_unit_test(C7_jobs_from_many_threads_keep_their_order_through_the_inbox),
        cmocka_unit_test(X_the_end_of_a_job_that_leaves_nothing_is_not_written),
        cmocka_unit_test(R16_a_retained_job_keeps_the_record_of_its_push),
        cmocka_unit_test(R16_a_large_body_is_not_retained),
    };
    return run_here(tests, sizeof tests / sizeof *tests);
}
