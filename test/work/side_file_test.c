// What commands emit and keep, from inside a job: all of it with the commit, or nothing.
#include "support/command_support.h"
#include "work/exec.h"
#include "work/side_file.h"

#include <fcntl.h>

static struct execs *execs;
static struct side_dir *side_dir;
static char script_path[4200]; // PATH=… with the command millrace in front

static int64_t snoozed_ms; // what the last job asked for

static int open_both(void **state) {
    begin(state);
    must(execs_create(NULL, &execs));
    must(side_dir_create(&side_dir));
    if (script_path[0])
        return 0;
    char build[4096];
    memcpy(build, misbehave, sizeof build);
    *strrchr(build, '/') = 0;
    snprintf(script_path, sizeof script_path, "%s/..:%s", build, getenv("PATH"));
    return 0;
}

static int close_both(void **state) {
    execs_destroy(execs);
    side_dir_destroy(side_dir);
    return nothing_is_left(state);
}

static int fail_with(mr_job *job, const char *reason) {
    must(mr_job_set_reason(job, reason));
    return -1;
}

static int run_with_side_file(mr_job *job, const struct side_file *side) {
    const char *const argv[] = { "sh", "-c", mr_job_body(job).data, NULL };
    const char *const variables[] = { side->variable, NULL };
    struct exec_order order = { .argv = argv, .job = job, .variables = variables };
    struct exec_result r;
    snoozed_ms = 0;
    must(exec_run(execs, &order, &r));
    int answer = r.reason[0] ? fail_with(job, r.reason) : 0;
    if (answer == 0 && side_file_apply(side, job, &snoozed_ms) < 0)
        answer = fail_with(job, mr_error());
    exec_result_finish(&r);
    return answer;
}

// Runs a job's body in a shell.
static int run_job(mr_job *job, void *arg) {
    (void)arg;
    struct side_file side;
    must(side_file_begin(side_dir, mr_job_state(job), &side));
    int answer = run_with_side_file(job, &side);
    side_file_end(&side);
    return answer;
}

static void run_next(mr *m, const char *stage) {
    mr_job *job = take_waiting(m, stage);
    if (run_job(job, NULL) < 0)
        must(mr_fail(job, NULL, MR_NEVER));
    else if (snoozed_ms)
        must(mr_release(job, snoozed_ms));
    else
        must(mr_done(job));
}

static void run_script(mr *m, const char *key, const char *script) {
    setenv("PATH", script_path, 1);
    push(m, "s", key, script);
    run_next(m, "s");
}

static int copy_reason(mr_id id, mr_bytes key, const char *reason, void *arg) {
    (void)id, (void)key;
    snprintf(arg, 256, "%s", reason);
    return 1;
}

static void expect_dead(mr *m, const char *reason) {
    char got[256] = "";
    must(mr_dead(m, "s", copy_reason, got));
    assert_string_equal(got, reason);
}

static void expect_emitted(mr *m, const char *key, const char *body) {
    mr_job *job = take(m, "next", body);
    assert_int_equal(mr_job_key(job).size, strlen(key));
    assert_memory_equal(mr_job_key(job).data, key, strlen(key));
    must(mr_done(job));
}

static void emits_come_with_the_commit(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "k",
               "millrace emit next --key anna one && printf 'two\nlines' | millrace emit next -");
    expect_emitted(m, "anna", "one");
    expect_emitted(m, "", "two\nlines");
    nothing_to_take(m, "next");
    must(mr_close(m));
}

static void expect_emitted_meta(mr *m, const char *body, const char *meta) {
    mr_job *job = take(m, "next", body);
    assert_int_equal(mr_job_meta(job).size, strlen(meta));
    if (*meta)
        assert_memory_equal(mr_job_meta(job).data, meta, strlen(meta));
    must(mr_done(job));
}

// G12: a command finds the metadata of its job in its environment, and passes it on if that is
// chosen.
static void G12_metadata_reaches_commands_and_emits_by_choice(void **state) {
    (void)state;
    mr *m = open_mem();
    setenv("PATH", script_path, 1);
    setenv("MILLRACE_META", "of the worker itself", 1);
    mr_push_options o = { .meta = mr_str("trace 7") };
    must(mr_push(m, "s",
                 mr_str("millrace emit next \"<$MILLRACE_META>\"; millrace emit next --keep-meta b;"
                        "millrace emit next --meta other c"),
                 &o, NULL));
    run_next(m, "s");
    expect_emitted_meta(m, "<trace 7>", "");
    expect_emitted_meta(m, "b", "trace 7");
    expect_emitted_meta(m, "c", "other");
    run_script(m, "k", "millrace emit next \"<$MILLRACE_META>\"; millrace emit next --keep-meta b");
    expect_emitted_meta(m, "<>", "");
    expect_emitted_meta(m, "b", "");
    run_script(m, "k", "millrace emit next --keep-meta --meta other c 2>/dev/null");
    expect_dead(m, "exit code 2");
    must(mr_close(m));
}

static void nothing_comes_of_a_job_that_fails(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "k", "echo 5 | millrace state --set -; millrace emit next one; exit 7");
    expect_dead(m, "exit code 7");
    nothing_to_take(m, "next");
    run_script(m, "k", "test -z \"$(millrace state)\"");
    assert_int_equal(look(m, "s").done, 1);
    must(mr_close(m));
}

static void state_goes_from_job_to_job(void **state) {
    (void)state;
    mr *m = open_mem();
    const char *count = "echo $(($(millrace state) + 1)) | millrace state --set -";
    for (int i = 0; i < 3; i++)
        run_script(m, "k", count);
    run_script(m, "other", count);
    run_script(m, "k", "millrace emit next \"$(millrace state)\"");
    expect_emitted(m, "", "3");
    run_script(m, "k", "millrace state --set ''");
    run_script(m, "k", "test -z \"$(millrace state)\"");
    assert_int_equal(look(m, "s").done, 7);
    must(mr_close(m));
}

static void G9_a_command_snoozes_its_job(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "k", "millrace emit next x; millrace snooze 3h; millrace snooze 2h");
    assert_int_equal(snoozed_ms, 2 * 3600 * 1000);
    nothing_to_take(m, "next");
    nothing_to_take(m, "s");
    mr_stage_info s = look(m, "s");
    assert_int_equal(s.waiting, 1);
    assert_int_equal(s.failed, 0);
    run_script(m, "other", "millrace snooze 1h; exit 3"); // a failure stays one
    assert_int_equal(snoozed_ms, 0);
    expect_dead(m, "exit code 3");
    run_script(m, "last", "millrace snooze soon || exit 4");
    assert_int_equal(look(m, "s").dead, 2);
    must(mr_close(m));
}

static void a_job_without_a_key_has_no_state(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "", "millrace state --set x");
    expect_dead(m, "exit code 2: millrace: state: a job without a key has no channel to keep "
                   "state: push it with a key");
    must(mr_close(m));
}

static void emits_at_the_same_time_are_all_there(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "", "for i in 1 2 3 4 5 6 7 8 9; do millrace emit next --key $i x & done; wait");
    unsigned seen = 0;
    for (int i = 0; i < 9; i++) {
        mr_job *job = take(m, "next", "x");
        seen |= 1u << (*(const char *)mr_job_key(job).data - '0');
        must(mr_done(job));
    }
    assert_int_equal(seen, 0x3fe);
    nothing_to_take(m, "next");
    must(mr_close(m));
}

static void what_is_not_whole_fails_the_attempt(void **state) {
    (void)state;
    static const char *const scripts[] = {
        "millrace emit next x; printf y >> $MILLRACE_SIDE_FILE.side",
        "millrace emit next x; truncate -s -1 $MILLRACE_SIDE_FILE.side",
        "millrace emit next x; printf z 1<>$MILLRACE_SIDE_FILE.side",
    };
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        mr *m = open_mem();
        run_script(m, "", scripts[i]);
        expect_dead(m, "what the command left for its commit is not whole: something else wrote "
                       "there, or not all of it was written");
        nothing_to_take(m, "next");
        must(mr_close(m));
    }
    mr *m = open_mem();
    run_script(m, "", "mkfifo $MILLRACE_SIDE_FILE.side"); // and no process reads it
    assert_int_equal(look(m, "s").dead, 1);
    must(mr_close(m));
}

static void no_file_is_left(void **state) {
    (void)state;
    mr *m = open_mem();
    run_script(m, "k", "millrace emit next x; millrace state --set y");
    run_script(m, "k",
               "test -e $MILLRACE_SIDE_FILE.state && ls -A $(dirname $MILLRACE_SIDE_FILE) | "
               "wc -l | grep -q '^1$' && dirname $MILLRACE_SIDE_FILE | millrace emit next");
    mr_job *job = take(m, "next", "x");
    must(mr_done(job));
    job = take_waiting(m, "next");
    char dir[256];
    snprintf(dir, sizeof dir, "%s", (const char *)mr_job_body(job).data);
    dir[strcspn(dir, "\n")] = 0;
    must(mr_done(job));
    assert_int_equal(access(dir, F_OK), 0);
    side_dir_destroy(side_dir);
    side_dir = NULL;
    assert_int_equal(access(dir, F_OK), -1);
    must(mr_close(m));
}

struct looking {
    mr *engine;
    mr_job *job;
    struct side_file *side;
    char shown[64]; // "done/total text", as the engine lists it
    uint32_t looks;
};

static const char *path_of(const struct side_file *side) {
    return side->variable + sizeof SIDE_FILE_VARIABLE;
}

static int note_progress(const mr_job_info *info, void *arg) {
    struct looking *l = arg;
    l->shown[0] = 0;
    if (info->progress_text)
        snprintf(l->shown, sizeof l->shown, "%d/%d %s", (int)info->progress_done,
                 (int)info->progress_total, info->progress_text);
    return 0;
}

static const char *shown_after_look(struct looking *l) {
    mr_job_filter running = { .status = "running" };
    side_file_look(l->side, l->job);
    must(mr_jobs(l->engine, "s", &running, note_progress, l));
    return l->shown;
}

// Lets the command end once its progress is shown.
static void look_and_let_go(void *arg) {
    struct looking *l = arg;
    char go[SIDE_FILE_PATH + 8];
    l->looks++;
    if (!*shown_after_look(l))
        return;
    snprintf(go, sizeof go, "%s.go", path_of(l->side));
    close(open(go, O_CREAT | O_WRONLY, 0600));
}

static void G11_a_command_says_how_far_it_is_while_it_runs(void **state) {
    (void)state;
    mr *m = open_mem();
    setenv("PATH", script_path, 1);
    push(m, "s", "k",
         "millrace progress 3 10 'the first' &&"
         "until [ -e \"$MILLRACE_SIDE_FILE.go\" ]; do sleep 0.01; done");
    struct side_file side;
    struct looking l = { .engine = m, .job = take_waiting(m, "s"), .side = &side };
    must(side_file_begin(side_dir, (mr_bytes){ 0 }, &side));
    struct exec_order order = { .argv = (const char *const[]){ "sh", "-c", mr_job_body(l.job).data,
                                                               NULL },
                                .job = l.job,
                                .variables = (const char *const[]){ side.variable, NULL },
                                .look = look_and_let_go,
                                .look_arg = &l };
    struct exec_result r;
    must(exec_run(execs, &order, &r));
    assert_string_equal(r.reason, "");
    assert_string_equal(l.shown, "3/10 the first");
    assert_true(l.looks > 0);
    exec_result_finish(&r);
    side_file_end(&side);
    must(mr_done(l.job));
    must(mr_close(m));
}

static void overwrite(const struct side_file *side, const char *text) {
    char name[SIDE_FILE_PATH + 16];
    snprintf(name, sizeof name, "%s.progress", path_of(side));
    int fd = open(name, O_WRONLY | O_TRUNC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static bool progress_is_left(const struct side_file *side) {
    char name[SIDE_FILE_PATH + 16];
    snprintf(name, sizeof name, "%s.progress", path_of(side));
    return access(name, F_OK) == 0;
}

static void G11_the_last_progress_counts_and_what_is_not_whole_does_not(void **state) {
    (void)state;
    mr *m = open_mem();
    struct side_file side;
    push(m, "s", "k", "x");
    struct looking l = { .engine = m, .job = take_waiting(m, "s"), .side = &side };
    must(side_file_begin(side_dir, (mr_bytes){ 0 }, &side));
    assert_string_equal(shown_after_look(&l), "");
    must(side_file_progress(path_of(&side), &(struct job_progress){ 1, 9, mr_str("a long one") }));
    must(side_file_progress(path_of(&side), &(struct job_progress){ 2, 0, mr_str("two") }));
    assert_string_equal(shown_after_look(&l), "2/0 two");
    overwrite(&side, "another program wrote this, which is long enough to have been a record");
    assert_string_equal(shown_after_look(&l), "2/0 two");
    overwrite(&side, "");
    assert_string_equal(shown_after_look(&l), "2/0 two");
    must(side_file_progress(path_of(&side), &(struct job_progress){ 3, 9, { 0 } }));
    assert_string_equal(shown_after_look(&l), "3/9 ");
    side_file_end(&side);
    assert_false(progress_is_left(&side));
    must(mr_done(l.job));
    must(mr_close(m));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_both, close_both)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(G11_a_command_says_how_far_it_is_while_it_runs),
        TEST(G11_the_last_progress_counts_and_what_is_not_whole_does_not),
        TEST(emits_come_with_the_commit),
        TEST(G12_metadata_reaches_commands_and_emits_by_choice),
        TEST(nothing_comes_of_a_job_that_fails),
        TEST(state_goes_from_job_to_job),
        TEST(G9_a_command_snoozes_its_job),
        TEST(a_job_without_a_key_has_no_state),
        TEST(emits_at_the_same_time_are_all_there),
        TEST(what_is_not_whole_fails_the_attempt),
        TEST(no_file_is_left),
    };
    return cmocka_run_group_tests_name("side_file", tests, NULL, NULL);
}
