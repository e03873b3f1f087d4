// Looking at stages and jobs through the library, on every engine: lists, sentences, draining.
#include "support/api.h"

struct names {
    char text[4096];
    int count, most;
};

static int note_stage(const mr_stage_info *info, void *arg) {
    struct names *n = arg;
    size_t used = strlen(n->text);
    snprintf(n->text + used, sizeof n->text - used, "[%s %d]", info->name, (int)info->waiting);
    return ++n->count == n->most;
}

static int note_job(const mr_job_info *info, void *arg) {
    struct names *n = arg;
    size_t used = strlen(n->text);
    snprintf(n->text + used, sizeof n->text - used, "[%.*s %s]", (int)info->key.size,
             info->key.size ? (const char *)info->key.data : "", info->status);
    return ++n->count == n->most;
}

static struct names list(mr *m, mr_job_filter filter) {
    struct names n = { .text = "" };
    must(mr_jobs(m, "s", &filter, note_job, &n));
    return n;
}

static void R20_all_stages_are_listed_until_the_caller_has_seen_enough(void **state) {
    (void)state;
    mr *m = open_mem();
    struct names n = { .text = "" }, one = { .text = "", .most = 1 };
    must(mr_stages(m, note_stage, &n));
    assert_int_equal(n.count, 0);
    push(m, "mail", NULL, "x");
    push(m, "mail", NULL, "y");
    push(m, "print", NULL, "x");
    must(mr_stage_pause(m, "empty"));
    must(mr_stages(m, note_stage, &n));
    assert_int_equal(n.count, 3);
    assert_non_null(strstr(n.text, "[mail 2]"));
    assert_non_null(strstr(n.text, "[print 1]"));
    assert_non_null(strstr(n.text, "[empty 0]"));
    must(mr_stages(m, note_stage, &one));
    assert_int_equal(one.count, 1);
    assert_string_equal(look(m, "mail").name, "mail");
    must(mr_close(m));
}

struct looking {
    mr *engine;
    int count;
};

// Looks at another stage, which does not change the info at hand.
static int look_aside(const mr_stage_info *info, void *arg) {
    struct looking *l = arg;
    char name[64];
    snprintf(name, sizeof name, "%s", info->name);
    assert_string_equal(look(l->engine, "aside").name, "aside");
    assert_string_equal(info->name, name);
    assert_string_equal(info->held_by, strcmp(name, "aside") == 0 ? "paused" : "no-worker");
    l->count++;
    return 0;
}

// More stages than one answer of a server lists.
static void R20_a_list_of_stages_may_be_long_and_its_reader_may_look(void **state) {
    (void)state;
    enum { STAGES = 900 };
    mr *m = open_mem();
    struct looking l = { .engine = m };
    must(mr_stage_pause(m, "aside"));
    for (int i = 0; i < STAGES; i++) {
        char name[32];
        snprintf(name, sizeof name, "stage-%d", i);
        push(m, name, NULL, "x");
    }
    must(mr_stages(m, look_aside, &l));
    assert_int_equal(l.count, STAGES + 1);
    must(mr_close(m));
}

static void R20_a_sentence_explains_why_a_stage_waits(void **state) {
    (void)state;
    mr *m = open_mem();
    char why[300], short_why[8];
    refused(MR_EGONE, mr_stage_why(m, "s", why, sizeof why));
    push(m, "s", NULL, "x");
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s has no worker, and 1 job waiting: TAKE s takes one.");
    must(mr_stage_pause(m, "s"));
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s is paused, with 1 job waiting: RESUME s starts them.");
    must(mr_stage_why(m, "s", short_why, sizeof short_why));
    assert_string_equal(short_why, "s is pa");
    must(mr_stage_resume(m, "s"));
    must(mr_done(take(m, "s", "x")));
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s has no jobs: PUSH s BODY pushes one.");
    push(m, "s", "k", "first");
    push(m, "s", "k", "second");
    mr_job *first = take(m, "s", "first");
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s runs jobs (running: 1, waiting: 1); all that wait are behind jobs "
                             "of their keys: CHANNELS s shows the keys.");
    push(m, "s", "other", "third");
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s runs jobs (running: 1, waiting: 2); more workers (TAKE s) would "
                             "run more at once.");
    must(mr_done(first));
    must(mr_done(take(m, "s", "third")));
    must(mr_done(take(m, "s", "second")));
    must(mr_stage_set(m, "s", "attempts", "1"));
    push(m, "s", NULL, "y");
    must(mr_fail(take(m, "s", "y"), "no", MR_BACKOFF));
    must(mr_stage_why(m, "s", why, sizeof why));
    assert_string_equal(why, "s has only dead jobs (1): DEAD s shows them, and why they failed.");
    must(mr_close(m));
}

static void R15_a_draining_stage_finishes_and_refuses_pushes_until_it_is_resumed(void **state) {
    (void)state;
    mr *m = open_mem();
    push(m, "s", NULL, "x");
    must(mr_stage_drain(m, "s"));
    refused(MR_EDRAINING, mr_push(m, "s", mr_str("y"), NULL, NULL));
    must(mr_done(take(m, "s", "x")));
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    assert_string_equal(look(m, "s").held_by, "draining");
    must(mr_stage_resume(m, "s"));
    push(m, "s", NULL, "z");
    must(mr_done(take(m, "s", "z")));
    must(mr_close(m));
}

// One job of each status: a done, b dead, c running, d waiting behind c, e delayed.
static mr_job *one_of_each(mr *m) {
    must(mr_stage_set(m, "s", "attempts", "1"));
    push(m, "s", "a", "1");
    must(mr_done(take(m, "s", "1")));
    push(m, "s", "b", "2");
    must(mr_fail(take(m, "s", "2"), "no such host", MR_BACKOFF));
    push(m, "s", "c", "3");
    mr_job *running = take(m, "s", "3");
    push(m, "s", "c", "4");
    mr_push_options later = { .key = mr_str("e"), .delay_ms = 1000000 };
    must(mr_push(m, "s", mr_str("5"), &later, NULL));
    return running;
}

static void R20_jobs_are_listed_by_status_and_key(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *running = one_of_each(m);
    assert_string_equal(list(m, (mr_job_filter){ 0 }).text,
                        "[c running][c waiting][e delayed][b dead][a done]");
    assert_string_equal(list(m, (mr_job_filter){ .status = "dead" }).text, "[b dead]");
    assert_string_equal(list(m, (mr_job_filter){ .status = "done" }).text, "[a done]");
    assert_string_equal(list(m, (mr_job_filter){ .status = "expired" }).text, "");
    assert_string_equal(list(m, (mr_job_filter){ .key = mr_str("c") }).text,
                        "[c running][c waiting]");
    assert_string_equal(list(m, (mr_job_filter){ .status = "delayed", .key = mr_str("e") }).text,
                        "[e delayed]");
    assert_string_equal(list(m, (mr_job_filter){ .key = mr_str("z") }).text, "");
    struct names two = { .text = "", .most = 2 };
    must(mr_jobs(m, "s", NULL, note_job, &two));
    assert_string_equal(two.text, "[c running][c waiting]");
    must(mr_done(running));
    must(mr_close(m));
}

static int copy_info(const mr_job_info *info, void *arg) {
    *(mr_job_info *)arg = *info;
    return 0;
}

static int copy_reason(const mr_job_info *info, void *arg) {
    snprintf(arg, 64, "%s", info->reason);
    return 0;
}

static void R20_the_info_of_a_job_has_its_status(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *running = one_of_each(m);
    mr_job_info info;
    char reason[64];
    must(mr_jobs(m, "s", &(mr_job_filter){ .status = "running" }, copy_info, &info));
    assert_int_equal(info.id, mr_job_id(running));
    assert_int_equal(info.attempt, 1);
    assert_int_equal(info.attempts, 1);
    assert_int_equal(info.left_ms, -1);
    assert_int_equal(info.due_ms, -1);
    assert_true(info.running_ms >= 0 && info.age_ms >= info.running_ms);
    must(mr_jobs(m, "s", &(mr_job_filter){ .status = "delayed" }, copy_info, &info));
    assert_true(info.due_ms > 900000 && info.due_ms <= 1000000);
    assert_int_equal(info.running_ms, -1);
    assert_int_equal(info.attempt, 0);
    must(mr_jobs(m, "s", &(mr_job_filter){ .status = "dead" }, copy_reason, reason));
    assert_string_equal(reason, "no such host");
    must(mr_jobs(m, "s", &(mr_job_filter){ .status = "done" }, copy_reason, reason));
    assert_string_equal(reason, "");
    must(mr_done(running));
    must(mr_close(m));
}

static void R20_a_list_continues_after_its_last_job(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job_info info = { 0 };
    for (int i = 0; i < 5; i++)
        push(m, "s", (char[]){ (char)('a' + i), 0 }, "x");
    mr_job_filter filter = { .count = 2 };
    char all[] = "abcde";
    for (int i = 0; i < 5; i += 2) {
        struct names n = list(m, filter);
        assert_int_equal(n.count, i < 4 ? 2 : 1);
        assert_int_equal(n.text[1], all[i]);
        must(mr_jobs(m, "s", &filter, copy_info, &info));
        filter.from = info.id;
    }
    assert_int_equal(list(m, filter).count, 0);
    must(mr_drop(m, filter.from));
    refused(MR_EGONE, mr_jobs(m, "s", &filter, note_job, NULL));
    must(mr_close(m));
}

struct dropping {
    mr *engine;
    int dropped;
};

static int drop_it(const mr_job_info *info, void *arg) {
    struct dropping *d = arg;
    must(mr_drop(d->engine, info->id));
    d->dropped++;
    return 0;
}

static void R20_jobs_may_be_dropped_while_they_are_listed(void **state) {
    (void)state;
    mr *m = open_mem();
    struct dropping d = { .engine = m };
    for (int i = 0; i < 20; i++)
        push(m, "s", i % 2 ? "k" : NULL, "x");
    must(mr_jobs(m, "s", &(mr_job_filter){ .status = "waiting" }, drop_it, &d));
    assert_int_equal(d.dropped, 20);
    assert_int_equal(look(m, "s").waiting, 0);
    must(mr_close(m));
}

static void X_lists_that_can_not_be_are_refused(void **state) {
    (void)state;
    mr *m = open_mem();
    char why[8];
    struct names n = { .text = "" };
    refused(MR_EGONE, mr_jobs(m, "never", NULL, note_job, &n));
    push(m, "s", NULL, "x");
    refused(MR_EINVAL, mr_jobs(m, "s", NULL, NULL, NULL));
    refused(MR_EINVAL, mr_jobs(m, "a b", NULL, note_job, &n));
    refused(MR_EINVAL, mr_jobs(m, "s", &(mr_job_filter){ .status = "lost" }, note_job, &n));
    refused(MR_EINVAL, mr_jobs(m, "s", &(mr_job_filter){ .count = 1001 }, note_job, &n));
    refused(MR_EINVAL, mr_jobs(m, "s", &(mr_job_filter){ .reserved = { 1 } }, note_job, &n));
    refused(MR_EINVAL, mr_jobs(m, "s", &(mr_job_filter){ .key = { NULL, 1 } }, note_job, &n));
    refused(MR_EINVAL, mr_jobs(m, "s", &(mr_job_filter){ .status = "done", .key = mr_str("k") },
                               note_job, &n));
    refused(MR_EGONE, mr_jobs(m, "s", &(mr_job_filter){ .from = 77 }, note_job, &n));
    refused(MR_EINVAL, mr_stages(m, NULL, NULL));
    refused(MR_EINVAL, mr_stages(NULL, note_stage, &n));
    refused(MR_EINVAL, mr_stage_why(m, "s", why, 0));
    refused(MR_EINVAL, mr_stage_why(m, "s", NULL, 8));
    refused(MR_EINVAL, mr_stage_why(m, "a b", why, 8));
    refused(MR_EINVAL, mr_stage_drain(m, NULL));
    assert_int_equal(n.count, 0);
    must(mr_close(m));
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(R20_all_stages_are_listed_until_the_caller_has_seen_enough),
        cmocka_unit_test(R20_a_list_of_stages_may_be_long_and_its_reader_may_look),
        cmocka_unit_test(R20_a_sentence_explains_why_a_stage_waits),
        cmocka_unit_test(R15_a_draining_stage_finishes_and_refuses_pushes_until_it_is_resumed),
        cmocka_unit_test(R20_jobs_are_listed_by_status_and_key),
        cmocka_unit_test(R20_the_info_of_a_job_has_its_status),
        cmocka_unit_test(R20_a_list_continues_after_its_last_job),
        cmocka_unit_test(R20_jobs_may_be_dropped_while_they_are_listed),
        cmocka_unit_test(X_lists_that_can_not_be_are_refused),
    };
    return run_here_and_there(tests, sizeof tests / sizeof *tests);
}
