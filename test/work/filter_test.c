// Filters: processes that stay, a line in, an answer out; and how often they are started again.
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "support/command_support.h"
#include "work/filter.h"
#include "work/supervise.h"

#include <poll.h>
#include <sys/pidfd.h>

static struct filters *filters;

static int close_filters(void **state) {
    filters_destroy(filters);
    filters = NULL;
    return nothing_is_left(state);
}

static void open_filters(struct filters_options options) {
    filters_destroy(filters);
    must(filters_create(&options, &filters));
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define OPEN(...) open_filters((struct filters_options){ .argv = ARGV(__VA_ARGS__) })

static struct exec_result ask(struct exec_order order) {
    struct exec_result r;
    must(filter_run(filters, &order, &r));
    return r;
}

static void expect_answer(mr_bytes line, mr_bytes answer) {
    struct exec_result r = ask((struct exec_order){ .input = line });
    mr_bytes got;
    must(spool_bytes(&r.output, &got));
    assert_string_equal(r.reason, "");
    assert_true(bytes_equal(got, answer));
    assert_true(r.end == EXEC_EXITED && r.code == 0);
    exec_result_finish(&r);
}

static void expect_text(const char *line, const char *answer) {
    expect_answer(mr_str(line), mr_str(answer));
}

static void expect_failure(struct exec_order order, enum exec_end end, const char *reason) {
    struct exec_result r = ask(order);
    assert_string_equal(r.reason, reason);
    assert_int_equal(r.end, end);
    exec_result_finish(&r);
}

// ---- Restarts ---------------------------------------------------------------------------------

static void E5_ten_restarts_in_ten_seconds_and_no_more(void **state) {
    (void)state;
    struct supervisor s;
    supervisor_init(&s, 0, 0);
    for (uint64_t i = 0; i < 10; i++)
        assert_true(supervisor_restart(&s, 1000 + i * 100));
    assert_false(supervisor_restart(&s, 10999));
    assert_false(supervisor_restart(&s, 1000000)); // it gave up for good
    assert_true(s.gave_up);
}

static void E5_slower_crashes_are_restarted_for_ever(void **state) {
    (void)state;
    struct supervisor s;
    supervisor_init(&s, 0, 0);
    for (uint64_t i = 0; i < 1000; i++)
        assert_true(supervisor_restart(&s, i * 1000)); // ten in ten seconds
    assert_false(supervisor_restart(&s, 999000));
}

static void E5_the_numbers_can_be_chosen(void **state) {
    (void)state;
    struct supervisor s;
    supervisor_init(&s, 1, 50);
    assert_true(supervisor_restart(&s, 7));
    assert_true(supervisor_restart(&s, 57));
    assert_false(supervisor_restart(&s, 106));
}

static int give_back(mr *m) {
    mr_job *job = take_waiting(m, "s");
    struct exec_order order = { .job = job, .input = mr_job_body(job) };
    struct exec_result r;
    int err = filter_run(filters, &order, &r);
    if (err < 0) {
        must(mr_release(job, 0));
        return err;
    }
    assert_string_equal(r.reason, "the filter ended: exit code 4");
    must(mr_fail(job, r.reason, 0));
    exec_result_finish(&r);
    return 0;
}

// E5: a filter that always crashes makes attempts fail; after ten restarts the worker is stopped,
// and gives its job back.
static void E5_a_filter_that_always_crashes_is_given_up(void **state) {
    (void)state;
    open_filters((struct filters_options){ .argv = ARGV(misbehave, "filter", "exit"),
                                           .window_ms = 3600000 });
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "attempts", "100"));
    push(m, "s", "k", "line");
    for (int i = 0; i < 11; i++)
        assert_int_equal(give_back(m), 0);
    assert_int_equal(give_back(m), MR_ESTOPPED);
    assert_string_equal(mr_error(), "more than 10 restarts in 3600000 ms: the filter ended: exit "
                                    "code 4");
    mr_job *job = take_waiting(m, "s"); // it was given back: no attempt counted
    assert_int_equal(mr_job_attempt(job), 12);
    must(mr_done(job));
    must(mr_close(m));
}

static void a_filter_that_cannot_start_is_given_up_at_once(void **state) {
    (void)state;
    OPEN("there-is-no-such-command");
    struct exec_order order = { .input = mr_str("x") };
    struct exec_result r;
    refused(MR_ESTOPPED, filter_run(filters, &order, &r));
    assert_string_equal(mr_error(), "not found: there-is-no-such-command");
}

// ---- Answers ----------------------------------------------------------------------------------

static void a_line_in_is_a_line_out(void **state) {
    (void)state;
    OPEN("sed", "-u", "s/a/b/");
    expect_text("banana", "bbnana");
    expect_text("car\n", "cbr"); // the line's end is as good as none
    expect_text("", "");
    OPEN("sh", "-c", "while read -r first rest; do echo \"$rest\"; done");
    expect_text("one two three", "two three");
    expect_text("one", "");
}

static void an_answer_may_have_many_lines_or_none(void **state) {
    (void)state;
    open_filters(
        (struct filters_options){ .argv = ARGV(misbehave, "lines"), .mode = FILTER_LINES });
    expect_text("3", "line 3\nline 2\nline 1");
    expect_text("0", "");
    expect_text("1", "line 1");
}

static void long_lines_pass_both_ways_at_once(void **state) {
    (void)state;
    enum { SIZE = 3 << 20 };
    char *line = malloc(SIZE);
    memset(line, 'x', SIZE);
    OPEN("cat");
    expect_answer((mr_bytes){ line, SIZE }, (mr_bytes){ line, SIZE });
    expect_text("short", "short");
    free(line);
}

static void a_job_of_two_lines_is_refused(void **state) {
    (void)state;
    OPEN("cat");
    expect_failure((struct exec_order){ .input = mr_str("one\ntwo") }, EXEC_UNSTARTED,
                   "the job has more than one line: a filter takes one");
}

static void one_that_answers_twice_is_out_of_step(void **state) {
    (void)state;
    OPEN(misbehave, "filter");
    const char *lines[] = { "twice", "part" };
    for (int i = 0; i < 2; i++) {
        expect_failure((struct exec_order){ .input = mr_str(lines[i]) }, EXEC_OUTPUT,
                       "the filter is out of step: it wrote more than one answer to one line");
        expect_text("once", "once");
    }
}

static void too_large_an_answer_ends_it(void **state) {
    (void)state;
    OPEN("cat");
    struct exec_order order = { .input = mr_str("123456"), .max_output = 5 };
    expect_failure(order, EXEC_OUTPUT, "answered with more than 5 bytes");
    order.max_output = 6;
    expect_failure(order, EXEC_EXITED, "");
}

// ---- Crashes and stops ------------------------------------------------------------------------

static void F5_a_crash_is_a_failed_attempt_and_nothing_more(void **state) {
    (void)state;
    OPEN(misbehave, "filter");
    expect_text("one", "one");
    expect_failure((struct exec_order){ .input = mr_str("crash") }, EXEC_KILLED,
                   "the filter ended: killed by signal 9 (KILL)");
    expect_text("two", "two");
    expect_failure((struct exec_order){ .input = mr_str("exit") }, EXEC_EXITED,
                   "the filter ended: exit code 3");
    expect_text("three", "three");
}

static pid_t ask_pid(void) {
    struct exec_result r = ask((struct exec_order){ .input = mr_str("who") });
    mr_bytes got;
    must(spool_bytes(&r.output, &got));
    char text[16] = "";
    assert_true(got.size > 0 && got.size < sizeof text);
    memcpy(text, got.data, got.size);
    exec_result_finish(&r);
    return (pid_t)strtol(text, NULL, 10);
}

static void a_crash_between_jobs_costs_no_attempt(void **state) {
    (void)state;
    OPEN("sh", "-c", "while read line; do echo $$; done");
    pid_t first = ask_pid();
    assert_int_equal(ask_pid(), first); // it stays
    struct pollfd on = { pidfd_open(first, 0), POLLIN, 0 };
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(poll(&on, 1, -1), 1);
    close(on.fd);
    assert_int_not_equal(ask_pid(), first);
}

static void a_timeout_ends_the_filter_and_is_no_crash(void **state) {
    (void)state;
    open_filters((struct filters_options){
        .argv = ARGV(misbehave, "filter"), .restarts = 1, .grace_ms = 1 });
    for (int i = 0; i < 3; i++) {
        expect_failure((struct exec_order){ .input = mr_str("hang"), .timeout_ms = 1 },
                       EXEC_TIMED_OUT, "timed out after 1 ms");
        expect_text("goes on", "goes on");
    }
}

struct other {
    pthread_t thread;
    struct meeting meeting;
    const mr_job *job;
    mr_job *lost; // its lease has run out; NULL: it has not
};

static void *stop_when_there(void *arg) {
    struct other *o = arg;
    meeting_wait(&o->meeting);
    if (o->lost) {
        atomic_store(&o->lost->lease_from_ms, monotonic_ms() - o->lost->lease_ms);
        (void)leased_job_stop(o->lost, MR_ESTALE);
    }
    filter_stop_any(filters, o->job);
    return NULL;
}

// F6: whatever is left of its grace, which is too long for a test.
static void F6_an_unresponsive_filter_does_not_outlive_the_lease_of_its_job(void **state) {
    (void)state;
    struct other other = { .meeting = meeting_make() };
    open_filters((struct filters_options){
        .argv = ARGV("sh", "-c", "trap '' TERM; read line; echo $$ > $0; exec sleep 1000",
                     other.meeting.path),
        .grace_ms = 1000000 });
    mr *m = open_mem();
    push(m, "s", "k", "line");
    mr_job *job = take(m, "s", "line");
    other.job = other.lost = job;
    pthread_create(&other.thread, NULL, stop_when_there, &other);
    struct exec_order order = { .job = job, .input = mr_job_body(job) };
    expect_failure(order, EXEC_STOPPED, "stopped: the lease is no longer held");
    pthread_join(other.thread, NULL);
    meeting_end(&other.meeting);
    must(mr_done(job));
    must(mr_close(m));
}

static void A9_a_filter_is_stopped_by_another_thread(void **state) {
    (void)state;
    struct other other = { .meeting = meeting_make() };
    OPEN("sh", "-c", "read line; echo $$ > $0; exec sleep 1000", other.meeting.path);
    mr *m = open_mem();
    mr_id id = push(m, "s", "k", "line");
    mr_job *job = take(m, "s", "line");
    other.job = job;
    pthread_create(&other.thread, NULL, stop_when_there, &other);
    struct exec_order order = { .job = job, .input = mr_job_body(job) };
    expect_failure(order, EXEC_STOPPED, "stopped");
    pthread_join(other.thread, NULL);
    must(mr_cancel(m, id));
    refused(MR_ECANCELLED, mr_beat(job)); // now this process knows, and runs no filter
    expect_failure(order, EXEC_STOPPED, "stopped: the job was cancelled");
    refused(MR_ECANCELLED, mr_done(job));
    must(mr_close(m));
    meeting_end(&other.meeting);
}

static void one_that_does_not_end_with_its_input_is_killed(void **state) {
    (void)state;
    open_filters((struct filters_options){
        .argv = ARGV("sh", "-c", "trap '' TERM; read line; echo $line; exec sleep 1000"),
        .grace_ms = 1 });
    expect_text("x", "x");
}

// ---- Many, and out of memory ------------------------------------------------------------------

static void *ask_many(void *arg) {
    char line[64];
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line, "thread %d, line %d", *(int *)arg, i);
        expect_text(line, line);
    }
    return NULL;
}

static void each_thread_has_a_filter_for_itself(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    OPEN("cat");
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, ask_many, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void F51_every_allocation_may_fail(void **state) {
    (void)state;
    struct filters_options options = { .argv = ARGV("cat") };
    struct exec_order order = { .input = mr_str("hello") };
    int err = MR_ENOMEM;
    for (long n = 0; err < 0; n++) {
        filters_destroy(filters);
        filters = NULL;
        mem_fail_after(n);
        struct exec_result r;
        err = filters_create(&options, &filters);
        if (err >= 0)
            err = filter_run(filters, &order, &r);
        mem_fail_after(-1);
        if (err < 0) {
            assert_int_equal(err, MR_ENOMEM);
            continue;
        }
        assert_true(n >= 5); // all filters, place, filter, environment, answer
        exec_result_finish(&r);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, close_filters)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(E5_ten_restarts_in_ten_seconds_and_no_more),
        TEST(E5_slower_crashes_are_restarted_for_ever),
        TEST(E5_the_numbers_can_be_chosen),
        TEST(E5_a_filter_that_always_crashes_is_given_up),
        TEST(a_filter_that_cannot_start_is_given_up_at_once),
        TEST(a_line_in_is_a_line_out),
        TEST(an_answer_may_have_many_lines_or_none),
        TEST(long_lines_pass_both_ways_at_once),
        TEST(a_job_of_two_lines_is_refused),
        TEST(one_that_answers_twice_is_out_of_step),
        TEST(too_large_an_answer_ends_it),
        TEST(F5_a_crash_is_a_failed_attempt_and_nothing_more),
        TEST(a_crash_between_jobs_costs_no_attempt),
        TEST(a_timeout_ends_the_filter_and_is_no_crash),
        TEST(A9_a_filter_is_stopped_by_another_thread),
        TEST(F6_an_unresponsive_filter_does_not_outlive_the_lease_of_its_job),
        TEST(one_that_does_not_end_with_its_input_is_killed),
        TEST(each_thread_has_a_filter_for_itself),
        TEST(F51_every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("filter", tests, NULL, NULL);
}
