// A worker whose handler is a command: crashes, cancellations and the death of the worker itself.
#include "support/command_support.h"
#include "work/exec.h"

static struct execs *execs;

static int open_execs(void **state) {
    begin(state);
    must(execs_create(NULL, &execs));
    return 0;
}

static int close_execs(void **state) {
    execs_destroy(execs);
    return nothing_is_left(state);
}

// Runs a job's body in a shell; what that writes is the result.
static int run_job(mr_job *job, void *arg) {
    (void)arg;
    const char *const argv[] = { "sh", "-c", mr_job_body(job).data, misbehave, NULL };
    struct exec_order order = { .argv = argv, .job = job };
    struct exec_result r;
    mr_bytes output;
    must(exec_run(execs, &order, &r));
    must(spool_bytes(&r.output, &output));
    must(mr_job_set_result(job, output));
    must(mr_job_set_reason(job, r.reason));
    int answer = r.reason[0] ? -1 : 0;
    exec_result_finish(&r);
    return answer;
}

static void stop_job(mr_job *job, void *arg) {
    (void)arg;
    exec_stop_any(execs, job);
}

static mr_worker *work(mr *m, uint32_t jobs) {
    mr_work_options o = { .jobs = jobs, .on_stop = stop_job };
    mr_worker *w;
    must(mr_work(m, "s", run_job, NULL, &o, &w));
    return w;
}

static void expect_result(mr *m, mr_id id, const char *text) {
    mr_result r = { 0 };
    must(mr_await(m, id, MR_FOREVER, &r));
    assert_int_equal(r.body.size, strlen(text));
    assert_memory_equal(r.body.data, text, strlen(text));
    mr_result_free(&r);
}

static void expect_dead(mr *m, mr_id id, const char *reason) {
    refused(MR_EDEAD, mr_await(m, id, MR_FOREVER, NULL));
    if (!strstr(mr_error(), reason))
        fail_msg("'%s' is not in '%s'", reason, mr_error());
}

static void end(mr *m, mr_worker *w) {
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// A9: a job is cancelled while its command runs: that is ended, and the channel goes on.
static void A9_a_cancelled_jobs_command_is_ended(void **state) {
    (void)state;
    struct meeting meeting = meeting_make();
    mr *m = open_mem();
    mr_worker *w = work(m, 1);
    char script[256];
    snprintf(script, sizeof script, "exec $0 obey-term %s", meeting.path);
    mr_id id = push(m, "s", "k", script);
    mr_id next = push(m, "s", "k", "echo next");
    pid_t command = meeting_wait(&meeting);
    must(mr_cancel(m, id));
    expect_result(m, next, "next\n");
    assert_int_equal(kill(command, 0), -1);
    refused(MR_ECANCELLED, mr_await(m, id, 0, NULL));
    end(m, w);
    meeting_end(&meeting);
}

// A9: and so is one whose deadline passes while it runs.
static void A9_a_command_ends_at_its_jobs_deadline(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = work(m, 1);
    mr_push_options o = { .key = mr_str("k"), .deadline_ms = 20 };
    must(mr_push(m, "s", mr_str("exec sleep 1000"), &o, NULL));
    expect_result(m, push(m, "s", "k", "echo next"), "next\n");
    end(m, w);
}

// F5: the command's process is killed, as for want of memory; the worker continues, and the job
// runs again.
static void F5_a_killed_command_is_a_failed_attempt(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "backoff", "1ms..1ms"));
    mr_worker *w = work(m, 2);
    mr_id id = push(m, "s", "k", "test $MILLRACE_ATTEMPT = 3 || kill -9 $$; echo third");
    expect_result(m, id, "third\n");
    assert_int_equal(look(m, "s").failed, 2);
    end(m, w);
}

static void F10_a_stuck_command_holds_up_no_other_channel(void **state) {
    (void)state;
    struct meeting meeting = meeting_make();
    mr *m = open_mem();
    mr_worker *w = work(m, 2);
    char script[256];
    snprintf(script, sizeof script, "exec $0 obey-term %s", meeting.path);
    mr_id stuck = push(m, "s", "stuck", script);
    meeting_wait(&meeting);
    for (int i = 0; i < 5; i++)
        expect_result(m, push(m, "s", i % 2 ? "a" : "", "echo on"), "on\n");
    must(mr_cancel(m, stuck));
    end(m, w);
    meeting_end(&meeting);
}

static void F13_a_command_that_always_fails_is_dead_with_its_reason(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "attempts", "3"));
    must(mr_stage_set(m, "s", "backoff", "1ms..1ms"));
    mr_worker *w = work(m, 1);
    mr_id id = push(m, "s", "k", "echo attempt $MILLRACE_ATTEMPT failed >&2; exit 5");
    expect_dead(m, id, "exit code 5: attempt 3 failed");
    end(m, w);
}

static _Noreturn void work_until_killed(const struct store *s) {
    mr *m;
    mr_worker *w;
    mr_work_options o = { .jobs = 1 };
    if (mr_open(s->url, NULL, &m) < 0 || mr_work(m, "s", run_job, NULL, &o, &w) < 0)
        _exit(1);
    for (;;)
        pause();
}

// F1: a worker is killed while it runs a command: that dies too, and the job runs again.
static void F1_a_killed_worker_leaves_no_command_and_no_job(void **state) {
    (void)state;
    struct store s = store_make();
    struct meeting meeting = meeting_make();
    char script[256];
    snprintf(script, sizeof script, "exec $0 ignore-term %s", meeting.path);
    mr *m = store_open(&s);
    push(m, "s", "k", script);
    must(mr_close(m));
    pid_t worker = fork();
    if (worker == 0)
        work_until_killed(&s);
    pid_t command = meeting_wait(&meeting);
    assert_int_equal(kill(worker, SIGKILL), 0);
    assert_int_equal(waitpid(worker, NULL, 0), worker);
    int status;
    assert_int_equal(waitpid(command, &status, 0), command); // an orphan, and so ours
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    m = store_open(&s);
    mr_job *job = take_waiting(m, "s");
    assert_int_equal(mr_job_attempt(job), 2);
    must(mr_done(job));
    must(mr_close(m));
    meeting_end(&meeting);
    store_remove(&s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_execs, close_execs)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(A9_a_cancelled_jobs_command_is_ended),
        TEST(A9_a_command_ends_at_its_jobs_deadline),
        TEST(F5_a_killed_command_is_a_failed_attempt),
        TEST(F10_a_stuck_command_holds_up_no_other_channel),
        TEST(F13_a_command_that_always_fails_is_dead_with_its_reason),
        TEST(F1_a_killed_worker_leaves_no_command_and_no_job),
    };
    return cmocka_run_group_tests_name("exec_work", tests, NULL, NULL);
}
