// Commands run for jobs: whatever a command does, its job ends, with a reason, and nothing is left.
#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "support/command_support.h"
#include "work/exec.h"

#include <sys/resource.h>

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

static struct exec_result run_order(struct exec_order order) {
    struct exec_result r;
    must(exec_run(execs, &order, &r));
    return r;
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define RUN(...) run_order((struct exec_order){ .argv = ARGV(__VA_ARGS__) })

static void expect_text(struct spool *s, const char *text) {
    mr_bytes got;
    must(spool_bytes(s, &got));
    if (!bytes_equal(got, mr_str(text)))
        fail_msg("expected \"%s\", got \"%.*s\"", text, (int)got.size, (const char *)got.data);
}

static void expect_end(struct exec_result *r, enum exec_end end, int code, const char *reason) {
    assert_string_equal(r->reason, reason);
    assert_int_equal(r->end, end);
    assert_int_equal(r->code, code);
    exec_result_finish(r);
}

// ---- How commands end -------------------------------------------------------------------------

static void output_and_errors_are_kept_apart(void **state) {
    (void)state;
    struct exec_result r = RUN("sh", "-c", "echo out; echo err >&2");
    expect_text(&r.output, "out\n");
    expect_text(&r.errors, "err\n");
    expect_end(&r, EXEC_EXITED, 0, "");
}

static void an_exit_code_comes_with_the_last_words(void **state) {
    (void)state;
    struct exec_result r = RUN(misbehave, "exit", "3");
    expect_end(&r, EXEC_EXITED, 3, "exit code 3: last words");
    r = RUN("false");
    expect_end(&r, EXEC_EXITED, 1, "exit code 1");
}

static void F5_a_crash_is_reported_with_its_signal(void **state) {
    (void)state;
    struct exec_result r = RUN(misbehave, "crash", "9");
    assert_int_equal(strncmp(r.reason, "killed by signal 9 (KILL)", 25), 0); // and memory, if so
    assert_int_equal(r.end, EXEC_KILLED);
    exec_result_finish(&r);
    r = RUN(misbehave, "crash", "6");
    expect_end(&r, EXEC_KILLED, 6, "killed by signal 6 (ABRT): about to crash");
}

static void a_command_that_cannot_start_is_named(void **state) {
    (void)state;
    struct exec_result r = RUN("there-is-no-such-command", "x");
    expect_end(&r, EXEC_UNSTARTED, ENOENT, "not found: there-is-no-such-command");
    r = RUN("/etc/passwd");
    expect_end(&r, EXEC_UNSTARTED, EACCES, "not executable: /etc/passwd");
    char path[] = "/tmp/millrace-test-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(fchmod(fd, 0700), 0);
    assert_int_equal(write(fd, "echo hi\n", 8), 8);
    close(fd);
    r = RUN(path);
    assert_int_equal(strncmp(r.reason, "not a program: /tmp/", 20), 0);
    assert_int_equal(r.end, EXEC_UNSTARTED);
    exec_result_finish(&r);
    unlink(path);
}

// ---- What a command is given ------------------------------------------------------------------

static void only_three_descriptors_and_plain_signals_reach_it(void **state) {
    (void)state;
    int leak = open("/dev/null", O_RDONLY); // without O_CLOEXEC
    sigset_t usr1;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct exec_result r = RUN(misbehave, "tell");
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
    close(leak);
    expect_text(&r.output, "fd 0\nfd 1\nfd 2\nown group\n");
    expect_end(&r, EXEC_EXITED, 0, "");
}

static void expect_variable(struct spool *s, const char *line, bool there) {
    mr_bytes got;
    must(spool_bytes(s, &got));
    if ((memmem(got.data, got.size, line, strlen(line)) != NULL) != there)
        fail_msg("'%s' is%s in\n%.*s", line, there ? " not" : "", (int)got.size,
                 (const char *)got.data);
}

static void a_job_is_in_its_environment(void **state) {
    (void)state;
    mr *m = open_mem();
    setenv("MILLRACE_ID", "of an outer job", 1);
    mr_id id = push(m, "mail", "anna", "body");
    mr_job *job = take(m, "mail", "body");
    struct exec_result r = run_order(
        (struct exec_order){ .argv = ARGV("env", "-0"), .job = job, .variables = ARGV("MORE=x") });
    char line[64];
    snprintf(line, sizeof line, "%cMILLRACE_ID=%llu", 0, (unsigned long long)id);
    expect_variable(&r.output, line + 1, true);
    expect_variable(&r.output, "MILLRACE_KEY=anna", true);
    expect_variable(&r.output, "MILLRACE_STAGE=mail", true);
    expect_variable(&r.output, "MILLRACE_ATTEMPT=1", true);
    expect_variable(&r.output, "MORE=x", true);
    expect_variable(&r.output, "PATH=", true);
    expect_variable(&r.output, "MILLRACE_DEADLINE_MS", false);
    expect_variable(&r.output, "of an outer job", false);
    exec_result_finish(&r);
    unsetenv("MILLRACE_ID");
    must(mr_done(job));
    mr_push_options o = { .deadline_ms = 60000 };
    must(mr_push(m, "mail", mr_str("late"), &o, NULL));
    job = take(m, "mail", "late");
    r = run_order((struct exec_order){ .argv = ARGV("env"), .job = job });
    expect_variable(&r.output, "MILLRACE_DEADLINE_MS=", true);
    exec_result_finish(&r);
    must(mr_done(job));
    must(mr_close(m));
}

enum { LARGE = 8 << 20 };

static void input_of_any_size_comes_through(void **state) {
    (void)state;
    char *body = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        body[i] = (char)(i * 31 >> 3);
    size_t sizes[] = { 1, 4096, 65537, LARGE };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct exec_result r =
            run_order((struct exec_order){ .argv = ARGV("cat"), .input = { body, sizes[i] } });
        mr_bytes got;
        must(spool_bytes(&r.output, &got));
        assert_int_equal(got.size, sizes[i]);
        assert_memory_equal(got.data, body, sizes[i]);
        expect_end(&r, EXEC_EXITED, 0, "");
    }
    struct exec_result r = run_order(
        (struct exec_order){ .argv = ARGV(misbehave, "close-stdin"), .input = { body, LARGE } });
    expect_text(&r.output, "closed\n");
    expect_end(&r, EXEC_EXITED, 0, "");
    free(body);
    r = RUN("cat"); // no input is an empty one
    expect_text(&r.output, "");
    expect_end(&r, EXEC_EXITED, 0, "");
}

// ---- What it writes ---------------------------------------------------------------------------

static void large_output_goes_to_a_file(void **state) {
    (void)state;
    struct exec_result r = RUN(misbehave, "flood", "20000001");
    assert_int_equal(r.output.size, 20000001);
    assert_null(r.output.memory.data);
    FILE *copy = tmpfile();
    must(spool_write(&r.output, fileno(copy)));
    assert_int_equal(lseek(fileno(copy), 0, SEEK_END), 20000001);
    fclose(copy);
    mr_bytes got;
    must(spool_bytes(&r.output, &got));
    assert_int_equal(((const char *)got.data)[0], 'x');
    assert_memory_equal(got.data, (const char *)got.data + 1, got.size - 1); // all alike
    expect_end(&r, EXEC_EXITED, 0, "");
}

static void too_much_output_ends_it(void **state) {
    (void)state;
    struct exec_order order = { .argv = ARGV(misbehave, "flood"), .max_output = 1000 };
    struct exec_result r = run_order(order);
    assert_int_equal(r.output.size, 1000);
    expect_end(&r, EXEC_OUTPUT, 0, "wrote more than 1000 bytes");
    order.argv = ARGV(misbehave, "flood", "1000");
    r = run_order(order);
    assert_int_equal(r.output.size, 1000);
    expect_end(&r, EXEC_EXITED, 0, "");
}

static void the_last_line_is_found(void **state) {
    (void)state;
    static const struct {
        const char *text, *line;
    } cases[] = { { "", "" },
                  { "\n\n", "" },
                  { "one", "one" },
                  { "one\n", "one" },
                  { "one\ntwo\n\n", "two" },
                  { "a\r\nb\tc \r\n", "b c" } };
    char line[8];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spool s = { 0 };
        must(spool_append(&s, cases[i].text, strlen(cases[i].text)));
        spool_last_line(&s, line, sizeof line);
        assert_string_equal(line, cases[i].line);
        spool_finish(&s);
    }
}

// ---- Ending what does not end -----------------------------------------------------------------

static void a_timeout_ends_it(void **state) {
    (void)state;
    struct exec_result r =
        run_order((struct exec_order){ .argv = ARGV("sleep", "1000"), .timeout_ms = 5 });
    expect_end(&r, EXEC_TIMED_OUT, 0, "timed out after 5 ms");
}

// Our stderr becomes a pipe; returns the one that it was.
static int stderr_to_pipe(int *out_read_end) {
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
    *out_read_end = ends[0];
    return before;
}

static void stderr_back(int before) {
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
}

static void errors_are_passed_on(void **state) {
    (void)state;
    char text[16] = "";
    int end, before = stderr_to_pipe(&end);
    struct exec_order order = { .argv = ARGV("sh", "-c", "echo err >&2; exit 3"),
                                .pass_errors = true };
    struct exec_result r = run_order(order);
    stderr_back(before);
    assert_int_equal(read(end, text, sizeof text), 4);
    close(end);
    assert_string_equal(text, "err\n");
    expect_end(&r, EXEC_EXITED, 3, "exit code 3: err");
}

// A9: an unread stderr does not keep a command from being ended.
static void A9_a_stderr_that_is_not_read_holds_up_no_timeout(void **state) {
    (void)state;
    int end, before = stderr_to_pipe(&end);
    struct exec_order order = { .argv = ARGV("sh", "-c", "exec yes >&2"),
                                .timeout_ms = 100,
                                .pass_errors = true };
    struct exec_result r = run_order(order);
    stderr_back(before);
    close(end);
    expect_end(&r, EXEC_TIMED_OUT, 0, "timed out after 100 ms");
}

// A9: TERM is asked to be ignored, and KILL comes.
static void A9_one_that_ignores_TERM_is_killed(void **state) {
    (void)state;
    struct execs_options options = { .grace_ms = 1 };
    execs_destroy(execs);
    must(execs_create(&options, &execs));
    struct exec_result r =
        run_order((struct exec_order){ .argv = ARGV(misbehave, "ignore-term"), .timeout_ms = 1 });
    expect_end(&r, EXEC_TIMED_OUT, 0, "timed out after 1 ms");
    const char *other_ways[] = { "stop", "join-parent" };
    for (int i = 0; i < 2; i++) {
        r = run_order(
            (struct exec_order){ .argv = ARGV(misbehave, other_ways[i]), .timeout_ms = 50 });
        expect_end(&r, EXEC_TIMED_OUT, 0, "timed out after 50 ms");
    }
}

struct other {
    pthread_t thread;
    struct meeting meeting;
    const mr_job *job; // NULL: all of them
    mr_job *lost;      // this one's lease has run out; NULL: none has
    pid_t pid;
};

static void *stop_when_there(void *arg) {
    struct other *o = arg;
    o->pid = meeting_wait(&o->meeting);
    if (o->lost) {
        atomic_store(&o->lost->lease_from_ms, monotonic_ms() - o->lost->lease_ms);
        (void)leased_job_stop(o->lost, MR_ESTALE);
    }
    if (o->job)
        exec_stop_any(execs, o->job);
    else
        execs_stop_any(execs);
    return NULL;
}

static struct exec_result run_and_stop(const char *how, const mr_job *job, struct other other) {
    other.meeting = meeting_make();
    pthread_create(&other.thread, NULL, stop_when_there, &other);
    struct exec_result r = run_order(
        (struct exec_order){ .argv = ARGV(misbehave, how, other.meeting.path), .job = job });
    pthread_join(other.thread, NULL);
    assert_int_equal(kill(other.pid, 0), -1);
    meeting_end(&other.meeting);
    return r;
}

// A job whose command has a grace that is too long for a test.
static mr_job *take_with_grace(mr *m) {
    struct execs_options options = { .grace_ms = 1000000 };
    execs_destroy(execs);
    must(execs_create(&options, &execs));
    push(m, "s", "k", "body");
    return take(m, "s", "body");
}

// A9: another thread stops a command that obeys: TERM was enough.
static void A9_a_command_is_stopped_by_another_thread(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *job = take_with_grace(m);
    struct exec_result r = run_and_stop("obey-term", job, (struct other){ .job = job });
    expect_text(&r.output, "here\nbye\n");
    expect_end(&r, EXEC_STOPPED, 0, "stopped");
    r = run_order((struct exec_order){ .argv = ARGV("true"), .job = job }); // the next one runs
    expect_end(&r, EXEC_EXITED, 0, "");
    r = run_and_stop("stop", job, (struct other){ 0 }); // after SIGCONT, TERM ends it
    expect_end(&r, EXEC_STOPPED, 0, "stopped");
    r = run_order((struct exec_order){ .argv = ARGV("true"), .job = job });
    expect_end(&r, EXEC_STOPPED, 0, "stopped"); // all were, for good
    must(mr_done(job));
    must(mr_close(m));
}

// F6: a command that does not end is killed when the lost lease ends, even if its grace time is not
// over: from then on another worker may have the job. (Here that is at once.)
static void F6_an_unresponsive_command_does_not_outlive_its_lease(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *job = take_with_grace(m);
    struct exec_result r =
        run_and_stop("ignore-term", job, (struct other){ .job = job, .lost = job });
    expect_end(&r, EXEC_STOPPED, 0, "stopped: the lease is no longer held");
    must(mr_done(job));
    must(mr_close(m));
}

static void A9_a_job_stopped_before_its_start_is_not_started(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_id id = push(m, "s", "k", "body");
    mr_job *job = take(m, "s", "body");
    must(mr_cancel(m, id));
    refused(MR_ECANCELLED, mr_beat(job)); // now this process knows
    struct exec_result r =
        run_order((struct exec_order){ .argv = ARGV(misbehave, "flood"), .job = job });
    assert_int_equal(r.output.size, 0);
    expect_end(&r, EXEC_STOPPED, 0, "stopped: the job was cancelled");
    refused(MR_ECANCELLED, mr_done(job));
    must(mr_close(m));
}

// ---- What it leaves ---------------------------------------------------------------------------

static void *meet(void *arg) {
    struct other *o = arg;
    o->pid = meeting_wait(&o->meeting);
    return NULL;
}

static pid_t leave(const char *how) {
    struct other other = { .meeting = meeting_make() };
    pthread_create(&other.thread, NULL, meet, &other);
    struct exec_result r = RUN(misbehave, how, other.meeting.path);
    pthread_join(other.thread, NULL);
    meeting_end(&other.meeting);
    expect_text(&r.output, "left\n");
    expect_end(&r, EXEC_EXITED, 0, "");
    return other.pid;
}

static void what_is_left_of_its_group_is_killed(void **state) {
    (void)state;
    pid_t left = leave("leave-in-group");
    int status;
    assert_int_equal(waitpid(left, &status, 0), left);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_process_that_leaves_the_group_is_not_waited_for(void **state) {
    (void)state;
    pid_t left = leave("leave-group"); // it holds the pipes, and goes on
    assert_int_equal(kill(left, SIGUSR1), 0);
    int status;
    assert_int_equal(waitpid(left, &status, 0), left);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
}

// ---- Many, and out of memory ------------------------------------------------------------------

static void *run_many(void *arg) {
    char text[64];
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "thread %d, command %d\n", *(int *)arg, i);
        struct exec_order order = { .argv = ARGV("cat"), .input = mr_str(text) };
        struct exec_result r = run_order(order);
        expect_text(&r.output, text);
        expect_end(&r, EXEC_EXITED, 0, "");
    }
    return NULL;
}

static void many_threads_run_commands_at_once(void **state) {
    (void)state;
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, run_many, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void F51_every_allocation_may_fail(void **state) {
    (void)state;
    struct exec_order order = { .argv = ARGV("cat"), .input = mr_str("hello") };
    int err = MR_ENOMEM;
    for (long n = 0; err < 0; n++) {
        execs_destroy(execs);
        execs = NULL;
        mem_fail_after(n);
        struct exec_result r;
        err = execs_create(NULL, &execs);
        if (err >= 0)
            err = exec_run(execs, &order, &r);
        mem_fail_after(-1);
        if (err < 0) {
            assert_int_equal(err, MR_ENOMEM);
            continue;
        }
        assert_true(n >= 4); // of all commands, place, environment, output
        expect_text(&r.output, "hello");
        exec_result_finish(&r);
    }
}

static int run_after(long allocations, const char *script) {
    struct exec_order order = { .argv = ARGV("sh", "-c", script), .pass_errors = true };
    struct exec_result r;
    mem_fail_after(allocations);
    int err = exec_run(execs, &order, &r);
    mem_fail_after(-1);
    if (err >= 0)
        exec_result_finish(&r);
    return err;
}

// F51: one whose errors cannot be kept is ended, and not waited for.
static void F51_want_of_memory_for_errors_ends_the_command(void **state) {
    (void)state;
    long enough = 0;
    must(run_after(-1, "exit 0")); // what is kept for the next is there
    while (run_after(enough, "exit 0") < 0)
        enough++;
    int end, before = stderr_to_pipe(&end);
    int err = run_after(enough, "echo err >&2; exec sleep 1000");
    stderr_back(before);
    close(end);
    assert_int_equal(err, MR_ENOMEM);
}

static void a_lack_of_descriptors_is_reported_and_leaks_none(void **state) {
    (void)state;
    struct rlimit before, tight;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    struct exec_order order = { .argv = ARGV("cat"), .input = mr_str("hello") };
    int err = MR_EBUSY, refusals = 0;
    for (rlim_t n = (rlim_t)descriptors_before; err < 0; n++) {
        struct exec_result r;
        tight.rlim_cur = n;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        err = exec_run(execs, &order, &r);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (err >= 0) {
            expect_text(&r.output, "hello");
            exec_result_finish(&r);
            break;
        }
        assert_int_equal(err, MR_EBUSY);
        refusals++;
    }
    assert_true(refusals >= 4); // place, input, pipes
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_execs, close_execs)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(output_and_errors_are_kept_apart),
        TEST(an_exit_code_comes_with_the_last_words),
        TEST(F5_a_crash_is_reported_with_its_signal),
        TEST(a_command_that_cannot_start_is_named),
        TEST(only_three_descriptors_and_plain_signals_reach_it),
        TEST(a_job_is_in_its_environment),
        TEST(input_of_any_size_comes_through),
        TEST(large_output_goes_to_a_file),
        TEST(too_much_output_ends_it),
        TEST(the_last_line_is_found),
        TEST(a_timeout_ends_it),
        TEST(errors_are_passed_on),
        TEST(A9_a_stderr_that_is_not_read_holds_up_no_timeout),
        TEST(A9_one_that_ignores_TERM_is_killed),
        TEST(A9_a_command_is_stopped_by_another_thread),
        TEST(F6_an_unresponsive_command_does_not_outlive_its_lease),
        TEST(A9_a_job_stopped_before_its_start_is_not_started),
        TEST(what_is_left_of_its_group_is_killed),
        TEST(a_process_that_leaves_the_group_is_not_waited_for),
        TEST(many_threads_run_commands_at_once),
        TEST(F51_every_allocation_may_fail),
        TEST(F51_want_of_memory_for_errors_ends_the_command),
        TEST(a_lack_of_descriptors_is_reported_and_leaks_none),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
