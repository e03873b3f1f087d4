// Schedules through the public API, on an engine in this process and on a server; then a process
// that pushes missed ticks is killed, again and again.
#include "api/handle.h"
#include "core/core.h"
#include "engine/local.h"
#include "shard/shard.h"
#include "support/api.h"
#include "support/fake_server.h"

#include <sched.h>
#include <time.h>

static mr_schedule_info look_schedule(mr *m, const char *stage, const char *name) {
    mr_schedule_info info;
    must(mr_schedule_look(m, stage, name, &info));
    return info;
}

static const mr_schedule_options hourly = { .every_ms = 3600000 };

// ---- One --------------------------------------------------------------------------------------

static void G1_a_tick_pushes_the_job_of_its_schedule(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = 60000 };
    must(mr_schedule_set(
        m, "s", "beat", mr_str("tick"),
        &(mr_schedule_options){
            .every_ms = 1000, .key = mr_str("k"), .meta = mr_str("trace"), .attempts = 3 }));
    must(mr_take(m, "s", &o, &job));
    assert_string_equal(mr_job_body(job).data, "tick");
    assert_memory_equal(mr_job_key(job).data, "k", 1);
    assert_memory_equal(mr_job_meta(job).data, "trace", 5);
    must(mr_done(job));
    must(mr_schedule_drop(m, "s", "beat"));
    must(mr_close(m));
}

static void a_schedule_is_shown_as_it_was_set(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_schedule_set(m, "reports", "nightly", mr_str("all of it"),
                         &(mr_schedule_options){ .cron = "30 2 * * *",
                                                 .tz = "Europe/Berlin",
                                                 .missed = "one",
                                                 .key = mr_str("night"),
                                                 .deadline_ms = 60000,
                                                 .attempts = 5 }));
    mr_schedule_info i = look_schedule(m, "reports", "nightly");
    assert_string_equal(i.stage, "reports");
    assert_string_equal(i.name, "nightly");
    assert_string_equal(i.cron, "30 2 * * *");
    assert_int_equal(i.every_ms, 0);
    assert_string_equal(i.tz, "Europe/Berlin");
    assert_string_equal(i.missed, "one");
    assert_int_equal(i.paused, 0);
    assert_int_equal(i.key.size, 5);
    assert_memory_equal(i.key.data, "night", 5);
    assert_int_equal(i.deadline_ms, 60000);
    assert_int_equal(i.attempts, 5);
    assert_int_equal(i.body_size, 9);
    assert_int_equal(i.pushed, 0);
    assert_int_equal(i.last_at, -1);
    assert_int_equal(i.last_id, 0);
    assert_int_equal(i.upcoming_count, 5);
    assert_true(i.next_at == i.upcoming[0] && i.next_at > (int64_t)time(NULL) * 1000);
    for (int n = 1; n < 5; n++)
        assert_true(i.upcoming[n] > i.upcoming[n - 1]);
    must(mr_schedule_set(m, "reports", "nightly", mr_str(""), &hourly)); // replaces it
    i = look_schedule(m, "reports", "nightly");
    assert_string_equal(i.cron, "");
    assert_int_equal(i.every_ms, 3600000);
    assert_string_equal(i.missed, "skip");
    assert_int_equal(i.key.size, 0);
    must(mr_close(m));
}

static void a_schedule_is_paused_resumed_run_and_dropped(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_schedule_info i;
    must(mr_schedule_set(m, "s", "n", mr_str("x"), &hourly));
    must(mr_schedule_pause(m, "s", "n"));
    i = look_schedule(m, "s", "n");
    assert_int_equal(i.paused, 1);
    assert_int_equal(i.next_at, -1);
    assert_int_equal(i.upcoming_count, 0);
    must(mr_schedule_now(m, "s", "n")); // also of a paused one
    mr_job *job = take(m, "s", "x");
    i = look_schedule(m, "s", "n");
    assert_int_equal(i.pushed, 1);
    assert_true(i.last_id == mr_job_id(job));
    must(mr_done(job));
    must(mr_schedule_resume(m, "s", "n"));
    i = look_schedule(m, "s", "n");
    assert_int_equal(i.paused, 0);
    assert_int_equal(i.upcoming_count, 5);
    must(mr_schedule_drop(m, "s", "n"));
    refused(MR_EGONE, mr_schedule_drop(m, "s", "n"));
    refused(MR_EGONE, mr_schedule_pause(m, "s", "n"));
    refused(MR_EGONE, mr_schedule_resume(m, "s", "n"));
    refused(MR_EGONE, mr_schedule_now(m, "s", "n"));
    refused(MR_EGONE, mr_schedule_look(m, "s", "n", &i));
    must(mr_close(m));
}

// ---- Lists ------------------------------------------------------------------------------------

struct listed {
    mr *m;
    int count, most;
    bool drops;
    char last[64];
};

static int note_schedule(const mr_schedule_info *i, void *arg) {
    struct listed *l = arg;
    l->count++;
    snprintf(l->last, sizeof l->last, "%s %s", i->stage, i->name);
    assert_int_equal(i->upcoming_count, 5);
    if (l->drops)
        must(mr_schedule_drop(l->m, l->last[0] == 'a' ? "a" : "b", l->last + 2));
    return l->count == l->most;
}

static int count_schedules(mr *m, const char *stage) {
    struct listed l = { .m = m };
    must(mr_schedules(m, stage, note_schedule, &l));
    return l.count;
}

// More than one page of either engine; and `each` may drop what it is shown.
static void schedules_are_listed_by_stage_or_all(void **state) {
    (void)state;
    mr *m = open_mem();
    struct listed one = { .m = m, .most = 1 }, all = { .m = m, .drops = true };
    assert_int_equal(count_schedules(m, NULL), 0);
    for (int n = 0; n < 450; n++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", n);
        must(mr_schedule_set(m, n % 3 ? "a" : "b", name, mr_str(name), &hourly));
    }
    assert_int_equal(count_schedules(m, NULL), 450);
    assert_int_equal(count_schedules(m, "a"), 300);
    assert_int_equal(count_schedules(m, "b"), 150);
    assert_int_equal(count_schedules(m, "c"), 0);
    must(mr_schedules(m, "b", note_schedule, &one));
    assert_int_equal(one.count, 1);
    assert_int_equal(one.last[0], 'b');
    must(mr_schedules(m, NULL, note_schedule, &all));
    assert_int_equal(all.count, 450);
    assert_int_equal(count_schedules(m, NULL), 0);
    must(mr_close(m));
}

// ---- What cannot be ---------------------------------------------------------------------------

static void refused_with(mr *m, const char *says, mr_schedule_options o) {
    refused(MR_EINVAL, mr_schedule_set(m, "s", "n", mr_str("x"), &o));
    if (!strstr(mr_error(), says))
        fail_msg("'%s' does not say '%s'", mr_error(), says);
}

static void X_a_schedule_that_cannot_be_is_refused_with_its_field(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_schedule_info i;
    char name[202];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    refused_with(m, "cron or every_ms", (mr_schedule_options){ 0 });
    refused_with(m, "not both", (mr_schedule_options){ .cron = "@daily", .every_ms = 1000 });
    refused_with(m, "cron is empty", (mr_schedule_options){ .cron = "" });
    refused_with(m, "hour", (mr_schedule_options){ .cron = "0 24 * * *" });
    refused_with(m, "never", (mr_schedule_options){ .cron = "0 0 31 2 *" });
    refused_with(m, "999 ms", (mr_schedule_options){ .every_ms = 999 });
    refused_with(m, "every_ms", (mr_schedule_options){ .every_ms = -1 });
    refused_with(m, "Mars/Base", (mr_schedule_options){ .cron = "@daily", .tz = "Mars/Base" });
    refused_with(m, "tz", (mr_schedule_options){ .every_ms = 1000, .tz = "UTC" });
    refused_with(m, "skip, one", (mr_schedule_options){ .cron = "@daily", .missed = "two" });
    refused_with(m, "deadline_ms", (mr_schedule_options){ .cron = "@daily", .deadline_ms = -1 });
    refused_with(m, "reserved", (mr_schedule_options){ .cron = "@daily", .reserved = { 1 } });
    refused(MR_EINVAL, mr_schedule_set(m, "s", "n", mr_str("x"), NULL));
    refused(MR_EINVAL, mr_schedule_set(m, "s", NULL, mr_str("x"), &hourly));
    refused(MR_EINVAL, mr_schedule_set(m, "s", "", mr_str("x"), &hourly));
    refused(MR_EINVAL, mr_schedule_set(m, "s", name, mr_str("x"), &hourly));
    refused(MR_EINVAL, mr_schedule_set(m, "no stage", "n", mr_str("x"), &hourly));
    refused(MR_EINVAL, mr_schedule_set(m, "s", "n", (mr_bytes){ NULL, 4 }, &hourly));
    refused(MR_EINVAL, mr_schedule_set(NULL, "s", "n", mr_str("x"), &hourly));
    refused(MR_EGONE, mr_schedule_look(m, "s", "n", &i));
    refused(MR_EINVAL, mr_schedule_look(m, "s", "n", NULL));
    refused(MR_EINVAL, mr_schedules(m, NULL, NULL, NULL));
    refused(MR_EINVAL, mr_schedules(m, "no stage", note_schedule, NULL));
    assert_int_equal(count_schedules(m, NULL), 0);
    must(mr_close(m));
}

// ---- An idle engine ---------------------------------------------------------------------------

// Until when the thread of the only shard sleeps, once it sleeps.
static uint64_t thread_sleeps_until(mr *m) {
    struct local_shard *s = ((struct local_engine *)m->engine)->shards[0];
    uint64_t until_ms = 0;
    while (!until_ms) {
        pthread_mutex_lock(&s->lock);
        until_ms = s->thread_sleeps ? s->thread_wakes_ms : 0;
        pthread_mutex_unlock(&s->lock);
        sched_yield();
    }
    return until_ms;
}

// G1: no other call wakes the engine: a schedule wakes its thread, which sleeps until a job is due
// tomorrow, so that it sleeps until the tick instead.
static void G1_an_idle_engine_pushes_when_a_tick_is_due(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *job = NULL;
    mr_take_options o = { .wait_ms = 60000 };
    enum { DAY_MS = 86400000 };
    uint64_t tomorrow_ms;
    must(mr_push(m, "s", mr_str("tomorrow"), &(mr_push_options){ .delay_ms = DAY_MS }, NULL));
    do
        tomorrow_ms = thread_sleeps_until(m);
    while (tomorrow_ms == UINT64_MAX); // it has yet to see that job
    must(mr_schedule_set(m, "s", "beat", mr_str("tick"),
                         &(mr_schedule_options){ .every_ms = 1000 }));
    assert_true(thread_sleeps_until(m) < tomorrow_ms);
    must(mr_take(m, "s", &o, &job));
    assert_string_equal(mr_job_body(job).data, "tick");
    must(mr_done(job));
    must(mr_close(m));
}

// ---- A lost connection ------------------------------------------------------------------------

static void lose_first_schedule(int fd, int number, void *arg) {
    char received[512];
    if (!fake_greet(fd) || !fake_receive(fd, "SCHEDULE", received, sizeof received))
        return;
    if (++*(atomic_int *)arg == 1)
        return;
    fake_say(fd, "+OK\r\n");
    fake_listens(fd, number, NULL);
}

// A second NOW would push a second job: it is not sent again when the reply is lost.
static void G1_a_run_whose_reply_is_lost_is_not_repeated(void **state) {
    (void)state;
    atomic_int count = 0;
    struct fake f;
    mr *m = NULL;
    fake_start(&f, lose_first_schedule, &count);
    must(mr_open(f.url, NULL, &m));
    refused(MR_ENET, mr_schedule_now(m, "s", "n"));
    must(mr_close(m));
    fake_stop(&f);
    assert_int_equal(count, 1);
}

// ---- Kills ------------------------------------------------------------------------------------

enum { CHILDREN = 12, MISSED_S = 900, EACH_STAGE = 5 };

static uint64_t earlier_ms(void *arg) {
    (void)arg;
    return ((uint64_t)time(NULL) - MISSED_S) * 1000;
}

// A store whose schedules were made a quarter of an hour ago, and have missed everything since:
// those of stages a0 … a4 tick each second and make up for all; `one` and `skip` have missed one
// tick, of five minutes ago.
static void store_fill(const struct store *store) {
    struct shard_options o = { .store = store_in(store->dir), .world = { .wall_ms = earlier_ms } };
    struct shard *shard;
    char stage[8];
    must(shard_open(&o, &shard));
    must(shard_begin(shard));
    struct schedule_spec spec = { .name = mr_str("n"), .every_ms = 1000, .missed = MISSED_ALL };
    for (int i = 0; i < EACH_STAGE; i++) {
        snprintf(stage, sizeof stage, "a%d", i);
        spec.stage = mr_str(stage);
        must(ticks_set(shard_ticks(shard), &spec));
    }
    spec.every_ms = 600000;
    spec.stage = mr_str("one");
    spec.missed = MISSED_ONE;
    must(ticks_set(shard_ticks(shard), &spec));
    spec.stage = mr_str("skip");
    spec.missed = MISSED_SKIP;
    must(ticks_set(shard_ticks(shard), &spec));
    must(shard_wait(shard, shard_end(shard)));
    shard_close(shard);
}

// Opens the store, which pushes what was missed, and is killed in the midst of that: as soon as a
// schedule has pushed so many.
static void child_run(const struct store *store, uint64_t pushes) {
    mr *m = NULL;
    mr_schedule_info i;
    if (mr_open(store->url, NULL, &m) < 0)
        _exit(2);
    do {
        if (mr_schedule_look(m, "a2", "n", &i) < 0)
            _exit(3);
    } while (i.pushed < pushes);
    raise(SIGKILL);
}

static void child_kill(const struct store *store, uint64_t pushes) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        child_run(store, pushes);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

// Nothing is due any more, and nothing comes meanwhile.
static mr_schedule_info paused(mr *m, const char *stage) {
    mr_schedule_info i;
    do
        i = look_schedule(m, stage, "n");
    while (i.next_at <= (int64_t)time(NULL) * 1000 - 1000);
    must(mr_schedule_pause(m, stage, "n"));
    return look_schedule(m, stage, "n");
}

// G1, G2: however often the process dies while it makes up for missed ticks, there is one job for
// each instant.
static void G1_G2_a_process_killed_among_ticks_pushes_each_once(void **state) {
    (void)state;
    struct store store = store_make();
    store_fill(&store);
    for (uint64_t n = 1; n <= CHILDREN; n++)
        child_kill(&store, n * MISSED_S / (CHILDREN + 1));
    mr *m = store_open(&store);
    int64_t first = 0;
    for (int n = 0; n < EACH_STAGE; n++) {
        char stage[8];
        snprintf(stage, sizeof stage, "a%d", n);
        mr_schedule_info i = paused(m, stage);
        assert_true(i.pushed >= MISSED_S);
        assert_int_equal(look(m, stage).waiting, i.pushed);
        if (n == 0)
            first = i.last_at - (int64_t)i.pushed * 1000;
        assert_in_range(i.last_at - (int64_t)i.pushed * 1000, first, first + 1000);
    }
    assert_int_equal(paused(m, "one").pushed, 1);
    assert_int_equal(look(m, "one").waiting, 1);
    assert_int_equal(paused(m, "skip").pushed, 0);
    refused(MR_EAGAIN, mr_take(m, "skip", NULL, &(mr_job *){ NULL }));
    must(mr_close(m));
    store_remove(&store);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(G1_a_tick_pushes_the_job_of_its_schedule),
        cmocka_unit_test(a_schedule_is_shown_as_it_was_set),
        cmocka_unit_test(a_schedule_is_paused_resumed_run_and_dropped),
        cmocka_unit_test(schedules_are_listed_by_stage_or_all),
        cmocka_unit_test(X_a_schedule_that_cannot_be_is_refused_with_its_field),
    };
    const struct CMUnitTest troubles[] = {
        cmocka_unit_test(G1_an_idle_engine_pushes_when_a_tick_is_due),
        cmocka_unit_test(G1_a_run_whose_reply_is_lost_is_not_repeated),
        cmocka_unit_test(G1_G2_a_process_killed_among_ticks_pushes_each_once),
    };
    int failed = run_here_and_there(tests, sizeof tests / sizeof *tests);
    return failed + cmocka_run_group_tests(troubles, NULL, NULL);
}
