// F51 and similar rows: one sequence of commands is run repeatedly, and each time another
// allocation or append fails. The failing command returns an error and changes nothing; repeated,
// it works; and the rest of the sequence runs as without the failure.
#include "support/error_name.h"
#include "support/history.h"

#include "base/errors.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdlib.h>

// ---- Telling ----------------------------------------------------------------------------------

static struct command command_of(const struct lockstep *t, enum op op) {
    struct command c = { .op = op, .now_ms = t->model->now_ms };
    c.source = c.caller = c.pusher = c.taker = -1;
    return c;
}

static struct command push_of(const struct lockstep *t, int stage, const char *key,
                              const char *body) {
    struct command c = command_of(t, OP_PUSH);
    c.job.stage = stage;
    text_copy(c.job.key, key);
    text_copy(c.job.body, body);
    return c;
}

static void push(struct lockstep *t, int stage, const char *key, const char *body) {
    struct command c = push_of(t, stage, key, body);
    lockstep_run(t, &c);
}

static void take(struct lockstep *t, int stage, uint32_t count, uint32_t batch, int taker) {
    struct command c = command_of(t, OP_TAKE);
    c.stages[0] = stage;
    c.stage_count = 1;
    c.count = count;
    c.batch = batch;
    c.lease_ms = 1000;
    c.taker = taker;
    c.conn = taker >= 0;
    lockstep_run(t, &c);
}

// A command about the oldest running job of the stage.
static struct command about_running(const struct lockstep *t, enum op op, int stage) {
    struct command c = command_of(t, op);
    const struct model *m = t->model;
    for (int l = 0; l < m->lease_count && !c.id; l++)
        for (int i = 0; i < m->leases[l].count && m->leases[l].alive; i++)
            if (m->leases[l].stage == stage &&
                m->jobs[m->leases[l].jobs[i]].status == JOB_RUNNING) {
                c.id = m->jobs[m->leases[l].jobs[i]].id;
                c.token = m->leases[l].token;
                break;
            }
    return c;
}

static void done(struct lockstep *t, int stage, const char *result) {
    struct command c = about_running(t, OP_DONE, stage);
    text_copy(c.text, result);
    lockstep_run(t, &c);
}

static void done_with_everything(struct lockstep *t, int stage) {
    struct command c = about_running(t, OP_DONE, stage);
    text_copy(c.text, "result");
    c.set_state = true;
    text_copy(c.state, "state");
    for (c.emit_count = 0; c.emit_count < EMITS; c.emit_count++) {
        struct command_job *e = &c.emits[c.emit_count];
        e->stage = (stage + c.emit_count) % STAGES;
        text_copy(e->key, key_names[c.emit_count + 1]);
        text_copy(e->body, "emitted");
        if (c.emit_count == 1)
            text_copy(e->once, "emitted-once");
    }
    lockstep_run(t, &c);
}

static void fail_job(struct lockstep *t, int stage, int64_t retry_ms) {
    struct command c = about_running(t, OP_FAIL, stage);
    text_copy(c.text, "reason");
    c.retry_ms = retry_ms;
    lockstep_run(t, &c);
}

static void say_about_running(struct lockstep *t, enum op op, int stage) {
    struct command c = about_running(t, op, stage);
    lockstep_run(t, &c);
}

static void say_about_job(struct lockstep *t, enum op op, enum job_status status) {
    struct command c = command_of(t, op);
    c.caller = op == OP_AWAIT ? 1 : -1;
    for (int i = 0; i < t->model->job_count; i++)
        if (t->model->jobs[i].status == status && !t->model->jobs[i].forgotten)
            c.id = t->model->jobs[i].id;
    lockstep_run(t, &c);
}

static void set(struct lockstep *t, int stage, const char *name, const char *value) {
    struct command c = command_of(t, OP_SET);
    c.job.stage = stage;
    c.name = name;
    text_copy(c.text, value);
    lockstep_run(t, &c);
}

static void on_stage(struct lockstep *t, enum op op, int stage) {
    struct command c = command_of(t, op);
    c.job.stage = stage;
    lockstep_run(t, &c);
}

static void pass(struct lockstep *t, uint64_t ms) {
    struct command c = command_of(t, OP_TIME);
    c.now_ms += ms;
    lockstep_run(t, &c);
}

static void numbered(struct lockstep *t, int stage, int source, uint64_t number) {
    struct command c = push_of(t, stage, "m", "numbered");
    c.source = source;
    c.number = number;
    lockstep_run(t, &c);
}

static void lose(struct lockstep *t, int conn) {
    struct command c = command_of(t, OP_LEAVE);
    c.conn = conn;
    lockstep_run(t, &c);
}

static void clean(struct lockstep *t, size_t entries) {
    struct command c = command_of(t, OP_CLEAN);
    c.entries = entries;
    lockstep_run(t, &c);
}

static void crash(struct lockstep *t, bool died) {
    struct command c = command_of(t, OP_CRASH);
    c.now_ms += 5;
    c.died = died;
    lockstep_run(t, &c);
}

static void call(struct lockstep *t, const char *key, const char *once, int64_t deadline_ms,
                 int slot) {
    struct command c = push_of(t, 0, key, "call");
    text_copy(c.job.once, once);
    c.job.deadline_ms = deadline_ms;
    c.caller = slot;
    lockstep_run(t, &c);
}

static void push_late(struct lockstep *t, int64_t delay_ms) {
    struct command c = push_of(t, 0, "l", "late");
    c.job.delay_ms = delay_ms;
    lockstep_run(t, &c);
}

static void link_stages(struct lockstep *t, int from, int to) {
    struct command c = command_of(t, OP_LINK);
    c.stages[0] = from;
    c.stages[1] = to;
    c.stage_count = 2;
    lockstep_run(t, &c);
}

static void wait_for_room(struct lockstep *t, int stage) {
    struct command c = push_of(t, stage, "", "patient");
    c.pusher = 0;
    c.conn = 2;
    lockstep_run(t, &c);
}

// ---- The sequence
// ----------------------------------------------------------------------------------

static void story_of_working(struct lockstep *t) {
    set(t, 0, "backoff", "100");
    set(t, 1, "on-dead", "halt");
    push(t, 0, "k", "one");
    push(t, 0, "k", "two");
    push(t, 0, "", "three");
    push_late(t, 50);
    take(t, 0, 1, 1, -1);
    done_with_everything(t, 0);
    take(t, 0, 3, 3, -1);
    say_about_running(t, OP_BEAT, 0);
    fail_job(t, 0, MR_BACKOFF);
    pass(t, 60);
    take(t, 0, 4, 2, -1);
    say_about_running(t, OP_RELEASE, 0);
    done(t, 0, "");
    take(t, 1, 1, 1, -1);
    fail_job(t, 1, MR_NEVER);
    push(t, 1, "l", "behind the dead");
    say_about_job(t, OP_RETRY, JOB_DEAD);
    pass(t, 300);
    take(t, 0, 4, 4, 0);
    pass(t, 1500);
    take(t, 2, 4, 1, 1);
    lose(t, 1);
}

static void story_of_waiting(struct lockstep *t) {
    call(t, "k", "called", 0, 0);
    call(t, "m", "soon", 40, 2);
    say_about_job(t, OP_AWAIT, JOB_WAITING);
    pass(t, 50);
    say_about_job(t, OP_CANCEL, JOB_WAITING);
    take(t, 2, 1, 1, 2);
    push(t, 2, "k", "for the waiting");
    done(t, 2, "quick");
    numbered(t, 0, 0, 1);
    numbered(t, 0, 1, 1);
    numbered(t, 0, 1, 3);
    numbered(t, 0, 1, 2);
    numbered(t, 0, 1, 2);
    set(t, 2, "max-jobs", "2");
    wait_for_room(t, 2);
    set(t, 2, "max-jobs", "9");
    link_stages(t, 0, 2);
    set(t, 2, "high-mark", "2");
    on_stage(t, OP_PAUSE, 0);
    on_stage(t, OP_DRAIN, 1);
    push(t, 1, "k", "refused");
    on_stage(t, OP_RESUME, 0);
    on_stage(t, OP_RESUME, 1);
    say_about_job(t, OP_DROP, JOB_WAITING);
}

// A lease and a deadline end soon after the connection; names are to be remembered at opening.
static void story_of_little_time(struct lockstep *t) {
    push(t, 2, "l", "one");
    call(t, "l", "brief", 60, 3);
    set(t, 0, "attempts", "1");
    take(t, 0, 4, 1, 3);
    lose(t, 1);
    lose(t, 0);
    set(t, 1, "retention", "1h,2");
    for (int i = 0; i < 4; i++) {
        struct command c = push_of(t, 1, "", "named");
        snprintf(c.job.once, sizeof c.job.once, "name%d", i);
        lockstep_run(t, &c);
        take(t, 1, 1, 1, -1);
        done(t, 1, "");
    }
    crash(t, false);
}

static void story_of_surviving(struct lockstep *t) {
    clean(t, 10);
    take(t, 0, 2, 1, -1);
    crash(t, true);
    clean(t, 1000);
    take(t, 0, 2, 1, -1);
    crash(t, false);
    take(t, 0, 2, 2, -1);
    done_with_everything(t, 0);
    pass(t, 4000000);
    push(t, 0, "k", "last");
}

// Jobs with and without a channel in groups that their limits hold, over a crash.
static void story_of_groups(struct lockstep *t) {
    set(t, 2, "group", "on");
    set(t, 2, "group-concurrency", "1");
    set(t, 2, "group-rate", "100/s");
    push(t, 2, "k/a", "one");
    push(t, 2, "k/", "two");
    push(t, 2, "", "three");
    push(t, 2, "l", "four");
    take(t, 2, 4, 1, -1);
    done(t, 2, "");
    done_with_everything(t, 2);
    take(t, 2, 1, 1, 1);
    pass(t, 20);
    set(t, 2, "group-rate", "none");
    clean(t, 1000);
    crash(t, false);
    for (int i = 0; i < 4; i++) {
        take(t, 2, 1, 1, -1);
        done(t, 2, "");
    }
    set(t, 2, "group", "off");
    set(t, 2, "group-concurrency", "none");
}

static void on_epic(struct lockstep *t, enum op op, int epic, uint64_t number, const char *then) {
    struct command c = push_of(t, 2, "k", then);
    c.op = op;
    c.source = epic;
    c.number = number;
    lockstep_run(t, &c);
}

// THEN with each kind of end, CANCEL, FORGET, over a crash.
static void story_of_epics(struct lockstep *t) {
    on_epic(t, OP_EPIC_THEN, 1, 0, "first");
    on_epic(t, OP_EPIC_THEN, 1, 0, "then");
    on_epic(t, OP_EPIC_FORGET, 1, 2000, "");
    numbered(t, 0, 1, 1);
    on_epic(t, OP_EPIC_END, 1, 1, "");
    clean(t, 1000);
    take(t, 0, 1, 1, -1);
    done_with_everything(t, 0);
    on_epic(t, OP_EPIC_THEN, 2, 0, "other");
    numbered(t, 1, 2, 1);
    numbered(t, 1, 2, 2);
    crash(t, false);
    on_epic(t, OP_EPIC_CANCEL, 2, 0, "");
    clean(t, 1000);
    pass(t, 3000);
    numbered(t, 0, 1, 1);
    on_epic(t, OP_EPIC_THEN, 1, 0, "dies");
    on_epic(t, OP_EPIC_END, 1, 1, "");
    take(t, 0, 1, 1, -1);
    fail_job(t, 0, MR_NEVER);
    say_about_job(t, OP_RETRY, JOB_DEAD);
    say_about_job(t, OP_DROP, JOB_WAITING);
    on_epic(t, OP_EPIC_DROP, 1, 0, "");
    on_epic(t, OP_EPIC_DROP, 2, 0, "");
    for (int i = 0; i < 3; i++) {
        take(t, 2, 1, 1, -1);
        done(t, 2, "");
    }
}

static void tell(struct lockstep *t) {
    story_of_epics(t);
    story_of_groups(t);
    story_of_working(t);
    story_of_waiting(t);
    story_of_little_time(t);
    story_of_surviving(t);
}

// ---- The loops --------------------------------------------------------------------------------

static void expect_good(const struct lockstep *t, const char *what, long n) {
    if (*t->why)
        fail_msg("%s %ld, step %zu: %s", what, n, t->steps, t->why);
}

static void the_story_holds(void **state) {
    (void)state;
    struct lockstep *t = lockstep_create(FAULT_NONE);
    tell(t);
    expect_good(t, "plain", 0);
    assert_false(t->model->ambiguous);
    lockstep_destroy(t);
}

static void each_allocation_fails_once(void **state) {
    (void)state;
    long failures = 0;
    for (long n = 0;; n++) {
        struct lockstep *t = lockstep_create(FAULT_NONE);
        t->fail_alloc = n;
        tell(t);
        expect_good(t, "allocation", n);
        bool over = t->fail_alloc >= 0;
        failures += t->failures;
        lockstep_destroy(t);
        if (over)
            break;
    }
    assert_true(failures > 20);
}

static void each_append_fails_once(void **state) {
    (void)state;
    static const int errors[] = { MR_EFULL, MR_ENOMEM, MR_ESTOPPED };
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++)
        for (long n = 0;; n++) {
            struct lockstep *t = lockstep_create(FAULT_NONE);
            t->refuse_append = n;
            t->refuse_with = errors[e];
            tell(t);
            expect_good(t, error_name(errors[e]), n);
            bool over = t->refuse_append >= 0;
            if (!over) // `late`: the command succeeded and left something for later
                assert_true(t->failures == 1 || t->late);
            lockstep_destroy(t);
            if (over)
                break;
        }
}

static void opening_fails_cleanly(void **state) {
    (void)state;
    struct lockstep *t = lockstep_create(FAULT_NONE);
    tell(t);
    expect_good(t, "opening", 0);
    int err = MR_ENOMEM;
    for (long n = 0; err == MR_ENOMEM; n++) {
        lockstep_stop_core(t);
        mem_fail_after(n);
        err = lockstep_start_core(t, t->model->now_ms);
        mem_fail_after(-1);
    }
    assert_int_equal(err, 0);
    lockstep_destroy(t);
}

// Random histories meet one failed allocation and one failed append, each somewhere.
static void histories_survive_failures(void **state) {
    (void)state;
    static struct history h;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct history_result result;
        struct trouble trouble = NO_TROUBLE;
        trouble.fail_alloc = (long)(seed * 7 % 40);
        trouble.refuse_append = (long)(seed * 13 % 60);
        trouble.refuse_with = MR_ESTOPPED;
        history_make(&h, seed);
        history_run(&h, trouble, NULL, &result);
        if (!result.good) {
            history_shrink(&h, trouble);
            history_run(&h, trouble, stderr, &result);
            fail_msg("seed %" PRIu64 ": %s", seed, result.why);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_story_holds),
        cmocka_unit_test(each_allocation_fails_once),
        cmocka_unit_test(each_append_fails_once),
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(histories_survive_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
