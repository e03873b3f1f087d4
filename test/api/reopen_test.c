// Stores that are closed, killed and opened again, and one whose disk fails: what the public API
// promises about them. A process that dies is a child that leaves without closing anything.
#include "support/api.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// Runs `story` in a child, which then dies at once. Its exit status is what the story returns.
static void in_a_process_that_dies(int (*story)(const struct store *), const struct store *s) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(story(s));
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the child ended with %x", status);
}

// In a child there is no test to fail: a wrong answer is an exit status.
#define child_must(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, mr_error());                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

static int pushes_three_and_dies_in_the_second(const struct store *s) {
    mr *m = NULL;
    mr_job *job = NULL;
    mr_push_options o = { .key = mr_str("k") };
    child_must(mr_open(s->url, &(mr_options){ .shards = story_shards }, &m) == 0);
    child_must(mr_push(m, "s", mr_str("1"), &o, NULL) == 0);
    child_must(mr_push(m, "s", mr_str("2"), &o, NULL) == 0);
    child_must(mr_push(m, "s", mr_str("3"), &o, NULL) == 0);
    child_must(mr_take(m, "s", NULL, &job) == 0 && mr_done(job) == 0);
    child_must(mr_take(m, "s", NULL, &job) == 0);
    return 0;
}

static void F4_T17_T18_killed_before_done_it_runs_again_before_new_work(void **state) {
    (void)state;
    struct store s = store_make();
    in_a_process_that_dies(pushes_three_and_dies_in_the_second, &s);
    mr *m = store_open(&s);
    push(m, "s", "k", "4");
    mr_job *job = take_waiting(m, "s");
    assert_string_equal(mr_job_body(job).data, "2");
    assert_int_equal(mr_job_attempt(job), 2);
    must(mr_done(job));
    must(mr_done(take(m, "s", "3")));
    must(mr_done(take(m, "s", "4")));
    assert_int_equal(look(m, "s").done, 4);
    must(mr_close(m));
    store_remove(&s);
}

static void G9_a_snooze_holds_over_a_restart(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s);
    push(m, "s", "k", "a");
    push(m, "s", "k", "b");
    must(mr_release(take(m, "s", "a"), 3600000));
    push(m, "t", "k", "c");
    must(mr_release(take(m, "t", "c"), 1));
    must(mr_close(m));
    m = store_open(&s);
    nothing_to_take(m, "s");
    assert_int_equal(look(m, "s").waiting, 2);
    mr_job *job = take_waiting(m, "t");
    assert_int_equal(mr_job_attempt(job), 1);
    must(mr_done(job));
    must(mr_close(m));
    store_remove(&s);
}

static void T16_a_producer_restarts_and_continues(void **state) {
    (void)state;
    struct store s = store_make();
    for (int run = 0; run < 2; run++) {
        mr *m = store_open(&s);
        for (int i = run * 3; i < run * 3 + 6; i++) {
            char once[16];
            snprintf(once, sizeof once, "n%d", i);
            mr_push_options o = { .key = mr_str("k"), .once = mr_str(once) };
            must(mr_push(m, "s", mr_str(once), &o, NULL));
        }
        must(mr_close(m));
    }
    mr *m = store_open(&s);
    assert_int_equal(look(m, "s").waiting, 9);
    for (int i = 0; i < 9; i++) {
        char once[16];
        snprintf(once, sizeof once, "n%d", i);
        must(mr_done(take(m, "s", once)));
    }
    must(mr_close(m));
    store_remove(&s);
}

static void T19_what_was_confirmed_does_not_come_again(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s);
    push(m, "s", "k", "x");
    mr_job *job = take(m, "s", "x");
    must(mr_job_set_state(job, mr_str("seen")));
    must(mr_job_set_result(job, mr_str("result")));
    mr_id id = mr_job_id(job);
    must(mr_done(job));
    must(mr_close(m));
    m = store_open(&s);
    nothing_to_take(m, "s");
    mr_result result = { 0 };
    must(mr_await(m, id, 0, &result));
    assert_string_equal(result.body.data, "result");
    mr_result_free(&result);
    push(m, "s", "k", "y");
    job = take(m, "s", "y");
    assert_string_equal(mr_job_state(job).data, "seen");
    must(mr_done(job));
    must(mr_close(m));
    store_remove(&s);
}

static void F31_a_directory_has_one_owner(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s), *second = NULL;
    refused(MR_EBUSY, mr_open(s.url, NULL, &second));
    assert_null(second);
    must(mr_close(m));
    m = store_open(&s);
    must(mr_close(m));
    store_remove(&s);
}

// ---- Many threads and one disk ----------------------------------------------------------------

enum { THREADS = 6, EACH = 20 };

static void *push_some(void *arg) {
    for (int i = 0; i < EACH; i++)
        push(arg, "s", NULL, "x");
    return NULL;
}

static void R21_pushes_of_many_threads_are_all_durable_when_they_return(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_some, m), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    must(mr_close(m));
    m = store_open(&s);
    assert_int_equal(look(m, "s").waiting, THREADS * EACH);
    must(mr_close(m));
    store_remove(&s);
}

// ---- A disk that fails ------------------------------------------------------------------------

static void *wait_for_work(void *arg) {
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = MR_FOREVER };
    return (void *)(intptr_t)mr_take(arg, "nothing", &o, &job);
}

static struct gate notified = GATE;
static int notified_status;

static void note_stopped(mr_id id, int status, mr_bytes body, void *arg) {
    (void)id, (void)body, (void)arg;
    notified_status = status;
    gate_pass(&notified);
}

static int stops_when_the_disk_fails(const struct store *s) {
    mr *m = NULL;
    mr_stage_info info;
    mr_job *job = NULL;
    pthread_t thread;
    void *answer = NULL;
    child_must(mr_open(s->url, &(mr_options){ .shards = story_shards }, &m) == 0);
    child_must(mr_call_start(m, "s", mr_str("a"), NULL, note_stopped, NULL, NULL) == 0);
    child_must(mr_push(m, "s", mr_str("b"), NULL, NULL) == 0);
    child_must(mr_take(m, "s", NULL, &job) == 0);
    child_must(pthread_create(&thread, NULL, wait_for_work, m) == 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit none = { 0, RLIM_INFINITY };
    child_must(setrlimit(RLIMIT_FSIZE, &none) == 0);
    int err = mr_push(m, "s", mr_str("c"), NULL, NULL);
    child_must(err == MR_ESTOPPED && mr_error()[0]);
    child_must(mr_push(m, "s", mr_str("d"), NULL, NULL) == MR_ESTOPPED);
    child_must(mr_done(job) == MR_ESTOPPED);
    child_must(mr_stage_look(m, "s", &info) == 0); // reading still works
    pthread_join(thread, &answer);                 // no thread is left waiting
    child_must((intptr_t)answer == MR_ESTOPPED);
    gate_wait(&notified, 1);
    child_must(notified_status == MR_ESTOPPED);
    child_must(mr_close(m) == 0);
    return 0;
}

static void F24_a_failed_disk_stops_the_engine_and_ends_all_waits(void **state) {
    (void)state;
    struct store s = store_make();
    in_a_process_that_dies(stops_when_the_disk_fails, &s);
    mr *m = store_open(&s);
    assert_true(look(m, "s").waiting >= 2);
    must(mr_close(m));
    store_remove(&s);
}

// ---- A body that is damaged -------------------------------------------------------------------

static const char spoiled[] = "spoiled";
static atomic_bool spoils, fails;

// The engine's disk: at the places that a test sets, reads return changed bytes, or fail.
ssize_t pread(int fd, void *to, size_t size, off_t at) {
    ssize_t got = syscall(SYS_pread64, fd, to, size, at);
    uint8_t *found = got > 0 ? memmem(to, (size_t)got, spoiled, 7) : NULL;
    if (found && atomic_load(&spoils))
        *found ^= 1;
    if (!found || !atomic_load(&fails))
        return got;
    errno = EIO;
    return -1;
}

static int note_spoiled(mr_id id, mr_bytes key, const char *reason, void *dead) {
    (void)id, (void)key;
    assert_non_null(strstr(reason, "damaged"));
    ++*(int *)dead;
    return 0;
}

// F22: wherever it stands in a block, it is dead, with a reason, and those around it run, in order.
static void F22_a_damaged_body_costs_its_own_job_only(void **state) {
    (void)state;
    enum { JOBS = 5 };
    for (int bad = 0; bad < JOBS; bad++) {
        struct store s = store_make();
        mr *m = store_open(&s);
        for (int i = 0; i < JOBS; i++)
            push(m, "s", "k", i == bad ? spoiled : (char[]){ (char)('0' + i), 0 });
        must(mr_close(m));
        m = store_open(&s);
        atomic_store(&spoils, true);
        mr_take_options o = { .batch = JOBS };
        mr_job *job = NULL;
        char order[2 * JOBS + 1] = "", wanted[JOBS + 1] = "01234";
        size_t length = 0;
        memmove(wanted + bad, wanted + bad + 1, (size_t)(JOBS - bad));
        for (int err = 0, tries = 0; err != MR_EAGAIN && tries < 2 * JOBS; tries++) {
            if ((err = mr_take(m, "s", &o, &job)) < 0)
                continue;
            order[length++] = *(const char *)mr_job_body(job).data;
            assert_int_equal(mr_job_attempt(job), 1);
            must(mr_done(job));
        }
        assert_string_equal(order, wanted);
        int dead = 0;
        must(mr_stage_wait_empty(m, "s", 0));
        must(mr_dead(m, "s", note_spoiled, &dead));
        assert_int_equal(dead, 1);
        atomic_store(&spoils, false);
        must(mr_close(m));
        store_remove(&s);
    }
}

// A disk that cannot be read just now costs one attempt, not one of each job that was taken.
static void F22_what_cannot_be_read_now_costs_one_attempt(void **state) {
    (void)state;
    struct store s = store_make();
    mr *m = store_open(&s);
    for (int i = 0; i < 3; i++)
        push(m, "s", (char[]){ (char)('a' + i), 0 }, spoiled);
    must(mr_close(m));
    m = store_open(&s);
    atomic_store(&fails, true);
    mr_job *job = NULL;
    refused(MR_EIO, mr_take(m, "s", &(mr_take_options){ .batch = 3 }, &job));
    assert_int_equal(look(m, "s").failed, 1);
    atomic_store(&fails, false);
    for (int i = 0; i < 2; i++) {
        job = take(m, "s", spoiled);
        assert_int_equal(mr_job_attempt(job), 1);
        must(mr_done(job));
    }
    must(mr_close(m));
    store_remove(&s);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(F4_T17_T18_killed_before_done_it_runs_again_before_new_work),
        cmocka_unit_test(T16_a_producer_restarts_and_continues),
        cmocka_unit_test(G9_a_snooze_holds_over_a_restart),
        cmocka_unit_test(T19_what_was_confirmed_does_not_come_again),
        cmocka_unit_test(F31_a_directory_has_one_owner),
        cmocka_unit_test(R21_pushes_of_many_threads_are_all_durable_when_they_return),
        cmocka_unit_test(F22_a_damaged_body_costs_its_own_job_only),
        cmocka_unit_test(F22_what_cannot_be_read_now_costs_one_attempt),
        cmocka_unit_test(F24_a_failed_disk_stops_the_engine_and_ends_all_waits),
    };
    return run_here(tests, sizeof tests / sizeof *tests);
}
