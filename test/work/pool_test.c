// The threads of a worker: they come with work and level, go without, and never are too many.
// Levels are set by hand, or left to the tuner.
#include "api/handle.h"
#include "support/api.h"
#include "work/idle.h"
#include "work/state.h"

#include <poll.h>
#include <sched.h>

static struct worker *inside(mr_worker *w) {
    return w->worker;
}

static struct worker_info look_at(mr_worker *w) {
    struct worker_info info;
    worker_look(inside(w), &info);
    return info;
}

// A job is counted a moment after its end can be seen.
static void wait_for_completed(mr_worker *w, uint64_t count) {
    while (look_at(w).completed < count)
        sched_yield();
    assert_int_equal(look_at(w).completed, count);
}

static void set_level(mr_worker *w, uint32_t level) {
    atomic_store(&inside(w)->level, level);
}

// Waits until the worker has no more threads than this.
static void wait_for_leaving(mr_worker *w, uint32_t threads) {
    struct worker *worker = inside(w);
    pthread_mutex_lock(&worker->lock);
    while (worker->alive > threads)
        pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}

static void push_some(mr *m, int count) {
    for (int i = 0; i < count; i++)
        push(m, "s", NULL, "x");
}

// A handler that counts how many of its calls run at once, and blocks them until the test releases
// them.
struct blocked_jobs {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int in, most, ended, allowed; // calls that may return
};

#define BLOCKED_JOBS                                                                               \
    { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0, 0 }

static int blocked_handler(mr_job *job, void *arg) {
    struct blocked_jobs *c = arg;
    (void)job;
    pthread_mutex_lock(&c->lock);
    c->in++;
    c->most = c->in > c->most ? c->in : c->most;
    pthread_cond_broadcast(&c->moved);
    while (c->allowed == 0)
        pthread_cond_wait(&c->moved, &c->lock);
    c->allowed--;
    c->in--;
    c->ended++;
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static void blocked_wait_running(struct blocked_jobs *c, int in) {
    pthread_mutex_lock(&c->lock);
    while (c->in < in)
        pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

// Releases `count` calls, and waits until they have returned.
static void blocked_release(struct blocked_jobs *c, int count) {
    pthread_mutex_lock(&c->lock);
    c->allowed += count;
    pthread_cond_broadcast(&c->moved);
    while (c->allowed > 0)
        pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static int blocked_running(struct blocked_jobs *c) {
    pthread_mutex_lock(&c->lock);
    int in = c->in;
    pthread_mutex_unlock(&c->lock);
    return in;
}

// The most calls at once since the last call of this function.
static int blocked_most_running(struct blocked_jobs *c) {
    pthread_mutex_lock(&c->lock);
    int most = c->most;
    c->most = 0;
    pthread_mutex_unlock(&c->lock);
    return most;
}

// ---- By hand ----------------------------------------------------------------------------------

static mr_worker *blocked_worker(mr *m, struct blocked_jobs *c, uint32_t jobs) {
    mr_worker *w = NULL;
    must(mr_work(m, "s", blocked_handler, c, &(mr_work_options){ .jobs = jobs }, &w));
    return w;
}

static void X_threads_come_with_work(void **state) {
    (void)state;
    mr *m = open_mem();
    struct blocked_jobs c = BLOCKED_JOBS;
    mr_worker *w = blocked_worker(m, &c, 100);
    assert_int_equal(look_at(w).threads, 1); // it waits for work
    push_some(m, 3);
    blocked_wait_running(&c, 3);
    assert_in_range(look_at(w).threads, 3, 4); // and one more waits, or is about to
    blocked_release(&c, 3);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    assert_in_range(look_at(w).threads, 1, 4);
    wait_for_completed(w, 3);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static void X_never_more_are_in_flight_than_the_level(void **state) {
    (void)state;
    mr *m = open_mem();
    struct blocked_jobs c = BLOCKED_JOBS;
    mr_worker *w = blocked_worker(m, &c, 8);
    push_some(m, 100);
    for (int i = 0; i < 92; i++) {
        blocked_wait_running(&c, 8);
        blocked_release(&c, 1);
    }
    blocked_wait_running(&c, 8);
    assert_int_equal(look_at(w).in_flight, 8);
    assert_int_equal(look_at(w).threads, 8);
    blocked_release(&c, 8);
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(blocked_most_running(&c), 8);
    assert_int_equal(c.ended, 100);
    must(mr_close(m));
}

static void X_threads_follow_the_level_down_and_up(void **state) {
    (void)state;
    mr *m = open_mem();
    struct blocked_jobs c = BLOCKED_JOBS;
    mr_worker *w = blocked_worker(m, &c, 8);
    push_some(m, 200);
    blocked_wait_running(&c, 8);
    set_level(w, 2); // what runs, runs to its end
    blocked_release(&c, 6);
    assert_int_equal(blocked_most_running(&c), 8);
    for (int i = 0; i < 20; i++) {
        blocked_wait_running(&c, 2);
        blocked_release(&c, 1);
    }
    assert_int_equal(blocked_most_running(&c), 2);
    set_level(w, 5); // parked threads come back
    blocked_release(&c, 1);
    blocked_wait_running(&c, 5);
    assert_int_equal(look_at(w).in_flight, 5);
    blocked_release(&c, 100);
    blocked_wait_running(&c, 5);
    assert_int_equal(blocked_most_running(&c), 5);
    blocked_release(&c, 200 - 6 - 20 - 1 - 100);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static void X_idle_threads_leave_but_one(void **state) {
    (void)state;
    mr *m = open_mem();
    struct blocked_jobs c = BLOCKED_JOBS;
    mr_worker *w = blocked_worker(m, &c, 16);
    push_some(m, 16);
    blocked_wait_running(&c, 16);
    blocked_release(&c, 16);
    wait_for_leaving(w, 1);
    push_some(m, 16); // and come again, in the places of those that left
    blocked_wait_running(&c, 16);
    assert_int_equal(look_at(w).threads, 16);
    blocked_release(&c, 16);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static int keep_one(mr_job *job, void *arg) {
    atomic_store((_Atomic(mr_job *) *)arg, job);
    return MR_LATER;
}

// While all that may be in flight are kept jobs no thread takes; but one stays for what follows.
static void X_a_thread_stays_while_all_jobs_are_kept(void **state) {
    (void)state;
    enum { IDLE_MS = 1000 };
    mr *m = open_mem();
    mr_worker *w = NULL;
    _Atomic(mr_job *) kept = NULL;
    must(mr_work(m, "s", keep_one, &kept, &(mr_work_options){ .jobs = 1 }, &w));
    push_some(m, 1);
    while (!atomic_load(&kept))
        sched_yield();
    let_pass(m, IDLE_MS + 100);
    assert_int_equal(look_at(w).threads, 1);
    must(mr_done(atomic_load(&kept)));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static void T22_a_worker_that_grows_can_be_stopped_at_any_moment(void **state) {
    (void)state;
    enum { JOBS = 60 };
    for (int started = 0; started < 40; started++) {
        mr *m = open_mem();
        struct blocked_jobs c = BLOCKED_JOBS;
        mr_worker *w = blocked_worker(m, &c, 64);
        push_some(m, JOBS);
        blocked_wait_running(&c, started);
        int err = mr_worker_stop(w, 0); // it takes nothing more
        if (started > 0)
            assert_int_equal(err, MR_EBUSY); // without a job that runs it may have stopped already
        while (err == MR_EBUSY) {
            blocked_release(&c, blocked_running(&c)); // some may have been about to begin
            err = mr_worker_stop(w, 10);
        }
        must(err);
        assert_int_equal(look(m, "s").done, c.ended);
        assert_int_equal(look(m, "s").waiting, JOBS - c.ended);
        must(mr_close(m));
    }
}

// ---- By the tuner -----------------------------------------------------------------------------

static atomic_int turns[40]; // of each key, how many have run
static atomic_int wrong;

static int keep_turn(mr_job *job, void *arg) {
    int key = 0, number = 0;
    (void)arg;
    assert_int_equal(sscanf(mr_job_body(job).data, "%d %d", &key, &number), 2);
    if (atomic_fetch_add(&turns[key], 1) != number)
        wrong++;
    return 0;
}

static void C7_self_tuned_workers_keep_order_together(void **state) {
    (void)state;
    enum { KEYS = 40, PER_KEY = 100, WORKERS = 3 };
    mr *m = open_mem();
    mr_worker *w[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        must(mr_work(m, "s", keep_turn, NULL, NULL, &w[i]));
    for (int i = 0; i < KEYS * PER_KEY; i++) {
        char body[32], key[16];
        snprintf(body, sizeof body, "%d %d", i % KEYS, i / KEYS);
        snprintf(key, sizeof key, "key %d", i % KEYS);
        push(m, "s", key, body);
    }
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    for (int i = 0; i < WORKERS; i++) {
        struct worker_info info = look_at(w[i]);
        assert_in_range(info.level, 1, WORKER_JOBS);
        assert_int_equal(info.path[0].why, TUNER_BEGAN);
        assert_non_null(strstr(info.why, " at once"));
        must(mr_worker_stop(w[i], MR_FOREVER));
    }
    for (int i = 0; i < KEYS; i++)
        assert_int_equal(turns[i], PER_KEY);
    assert_int_equal(wrong, 0);
    must(mr_close(m));
}

static void open_tuned(mr *m, mr_handler *handler, void *arg, const struct tuner_options *tuned,
                       mr_worker *out) {
    mr_bytes stage = mr_str("s");
    struct worker_options o = { .stages = &stage,
                                .stage_count = 1,
                                .handler = handler,
                                .arg = arg,
                                .batch = 1,
                                .tuner = tuned };
    must(worker_open(m->engine, &o, &out->worker));
}

// A lane that is wide, so that jobs only wait; or narrow, so that they hinder each other.
struct lane {
    mr *m;
    mr_worker w;
    pthread_mutex_t lock;
    atomic_bool narrow;
    atomic_int running;
    struct gate many, few;
};

// What a job takes; short, because a search takes many jobs.
static void take_us(long us) {
    ppoll(NULL, 0, &(struct timespec){ .tv_nsec = us * 1000 }, NULL);
}

static int pass_lane(mr_job *job, void *arg) {
    struct lane *l = arg;
    (void)job;
    push(l->m, "s", "", "the next one"); // so that there is always work
    if (!l->narrow) {
        take_us(100);
        if (look_at(&l->w).choice >= 8)
            gate_pass(&l->many);
        return 0;
    }
    l->running++;
    pthread_mutex_lock(&l->lock);
    take_us(100 + 50 * l->running);
    pthread_mutex_unlock(&l->lock);
    l->running--;
    if (look_at(&l->w).choice <= 4)
        gate_pass(&l->few);
    return 0;
}

static void B5_the_level_follows_the_work_up_and_down(void **state) {
    (void)state;
    mr *m = open_mem();
    struct lane l = { .m = m, .lock = PTHREAD_MUTEX_INITIALIZER, .many = GATE, .few = GATE };
    must(mr_stage_pause(m, "s"));
    open_tuned(m, pass_lane, &l, &(struct tuner_options){ .first = 2, .most = 16 }, &l.w);
    push_some(m, 100);
    must(mr_stage_resume(m, "s"));
    gate_wait(&l.many, 1);
    l.narrow = true;
    gate_wait(&l.few, 1);
    must(worker_stop(l.w.worker, MR_FOREVER));
    must(mr_close(m));
}

struct crowd {
    struct gate many, end;
    atomic_int running;
};

static int wait_in_crowd(mr_job *job, void *arg) {
    struct crowd *c = arg;
    (void)job;
    if (++c->running == 200)
        gate_pass(&c->many);
    gate_wait(&c->end, 1);
    return 0;
}

static bool always_idle(void) {
    return true;
}

// No job ends before 200 of them run at once, which only idle processors can be the reason for.
static void B5_a_worker_whose_jobs_leave_the_machine_idle_starts_more(void **state) {
    (void)state;
    mr *m = open_mem();
    struct crowd c = { .many = GATE, .end = GATE };
    mr_bytes stage = mr_str("s");
    struct worker_options o = { .stages = &stage,
                                .stage_count = 1,
                                .handler = wait_in_crowd,
                                .arg = &c,
                                .batch = 1,
                                .is_idle = always_idle };
    mr_worker w = { 0 };
    must(worker_open(m->engine, &o, &w.worker));
    push_some(m, 300);
    gate_wait(&c.many, 1);
    gate_pass(&c.end);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(worker_stop(w.worker, MR_FOREVER));
    must(mr_close(m));
}

static void B5_idle_is_read_from_load_and_memory(void **state) {
    (void)state;
    static const char memory[] = "MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  250 kB\n";
    assert_true(idle_read("0.50 0.2 0.1 1/100 4711\n", memory, 2));
    assert_true(idle_read("0.50 0.2 0.1 2/100 4711\n", memory, 2));
    assert_false(idle_read("0.50 0.2 0.1 3/100 4711\n", memory, 2));
    assert_true(idle_read("0.50 0.2 0.1 3/100 4711\n", memory, 4));
    assert_false(idle_read("0.50 0.2 0.1 0/0 0\n", memory, 2)); // the reader itself runs
    assert_false(idle_read("", memory, 2));
    assert_false(idle_read("0.50 0.2 0.1 1/100 4711\n", "", 2));
    assert_false(
        idle_read("0.50 0.2 0.1 1/100 4711\n", "MemTotal: 1000 kB\nMemAvailable: 249 kB\n", 2));
}

static void B5_a_busy_machine_is_looked_at_less_and_less(void **state) {
    (void)state;
    assert_int_equal(idle_look_ms(0), 4);
    for (uint32_t i = 1; i < 200; i++)
        assert_in_range(idle_look_ms(i), idle_look_ms(i - 1), 2 * idle_look_ms(i - 1));
    assert_int_equal(idle_look_ms(200), 256);
    assert_int_equal(idle_look_ms(UINT32_MAX), 256);
}

static int do_nothing(mr_job *job, void *arg) {
    (void)job, (void)arg;
    return 0;
}

static void B5_what_a_worker_went_through_replays(void **state) {
    (void)state;
    enum { JOBS = 20000, ROOM = 10 * JOBS };
    mr *m = open_mem();
    struct tuner_trace trace = { calloc(ROOM, sizeof *trace.events), 0, ROOM };
    struct tuner_options tuned = { .first = 1, .trace = &trace };
    mr_worker w = { 0 };
    open_tuned(m, do_nothing, NULL, &tuned, &w);
    push_some(m, JOBS);
    wait_for_completed(&w, JOBS);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    struct worker_info info = look_at(&w);
    must(worker_stop(w.worker, MR_FOREVER));
    assert_in_range(trace.count, JOBS, ROOM - 1);
    struct tuner again;
    struct tuner_step path[TUNER_PATH];
    tuner_init(&again, &(struct tuner_options){ .first = 1 });
    for (size_t i = 0; i < trace.count; i++)
        tuner_feed(&again, &trace.events[i]);
    assert_int_equal(tuner_choice(&again), info.choice);
    assert_int_equal(tuner_path(&again, path), info.steps);
    for (size_t i = 0; i < info.steps; i++) {
        assert_int_equal(path[i].level, info.path[i].level);
        assert_int_equal(path[i].at_ns, info.path[i].at_ns);
        assert_int_equal(path[i].why, info.path[i].why);
    }
    free(trace.events);
    must(mr_close(m));
}

static int keep_for_later(mr_job *job, void *arg) {
    mr_job *_Atomic *kept = arg;
    for (int i = 0;; i = (i + 1) % 8) {
        mr_job *none = NULL;
        if (atomic_compare_exchange_strong(&kept[i], &none, job))
            return MR_LATER;
    }
}

static void X_kept_jobs_are_tuned_by_their_number(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_job *_Atomic kept[8] = { NULL };
    mr_worker *w = NULL;
    must(mr_work(m, "s", keep_for_later, kept, NULL, &w));
    set_level(w, 2);
    push_some(m, 300);
    for (int ended = 0; ended < 300;)
        for (int i = 0; i < 8; i++) {
            mr_job *job = atomic_exchange(&kept[i], NULL);
            if (!job)
                continue;
            must(mr_done(job));
            ended++;
        }
    wait_for_completed(w, 300);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(X_threads_come_with_work),
        cmocka_unit_test(X_never_more_are_in_flight_than_the_level),
        cmocka_unit_test(X_threads_follow_the_level_down_and_up),
        cmocka_unit_test(X_idle_threads_leave_but_one),
        cmocka_unit_test(X_a_thread_stays_while_all_jobs_are_kept),
        cmocka_unit_test(T22_a_worker_that_grows_can_be_stopped_at_any_moment),
        cmocka_unit_test(C7_self_tuned_workers_keep_order_together),
        cmocka_unit_test(B5_the_level_follows_the_work_up_and_down),
        cmocka_unit_test(B5_a_worker_whose_jobs_leave_the_machine_idle_starts_more),
        cmocka_unit_test(B5_idle_is_read_from_load_and_memory),
        cmocka_unit_test(B5_a_busy_machine_is_looked_at_less_and_less),
        cmocka_unit_test(B5_what_a_worker_went_through_replays),
        cmocka_unit_test(X_kept_jobs_are_tuned_by_their_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
