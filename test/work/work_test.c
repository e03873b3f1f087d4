// Workers: threads that pull, jobs kept for later, loops of one's own, stopping; and that no
// callback runs under a lock.
#include "api/handle.h"
#include "support/api.h"
#include "work/state.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static mr_worker *work(mr *m, const char *stage, mr_handler *handler, void *arg, uint32_t jobs) {
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = jobs };
    must(mr_work(m, stage, handler, arg, &o, &w));
    return w;
}

static int echo(mr_job *job, void *arg) {
    (void)arg;
    return mr_job_set_result(job, mr_job_body(job));
}

static void ask(mr *m, const char *stage, const char *text) {
    mr_result result = { 0 };
    must(mr_call(m, stage, mr_str(text), NULL, &result));
    assert_string_equal(result.body.data, text);
    mr_result_free(&result);
}

// ---- C7: order and overlap --------------------------------------------------------------------

enum { KEYS = 40, PER_KEY = 50 };

struct ledger {
    atomic_int inside[KEYS];
    int next[KEYS]; // written by the thread that runs a job of the key
    atomic_int overlaps, overtakings, runs;
};

static int check_turn(mr_job *job, void *arg) {
    struct ledger *l = arg;
    int key = 0, number = 0;
    assert_int_equal(sscanf(mr_job_body(job).data, "%d %d", &key, &number), 2);
    if (atomic_fetch_add(&l->inside[key], 1) != 0)
        l->overlaps++;
    if (l->next[key] != number)
        l->overtakings++;
    l->next[key]++;
    l->runs++;
    atomic_fetch_sub(&l->inside[key], 1);
    return 0;
}

struct producer {
    mr *m;
    int from, to; // keys
};

static void *push_keys(void *arg) {
    struct producer *p = arg;
    for (int number = 0; number < PER_KEY; number++)
        for (int key = p->from; key < p->to; key++) {
            char body[32], name[16];
            snprintf(body, sizeof body, "%d %d", key, number);
            snprintf(name, sizeof name, "key %d", key);
            push(p->m, "s", name, body);
        }
    return NULL;
}

static void run_ledger(const char *url, uint32_t batch) {
    mr *m = NULL;
    mr_worker *w[2] = { NULL, NULL };
    struct ledger l = { 0 };
    must(mr_open(url, &(mr_options){ .sync = "none", .shards = story_shards }, &m));
    mr_work_options o = { .jobs = 4, .batch = batch };
    must(mr_work(m, "s", check_turn, &l, &o, &w[0]));
    must(mr_work(m, "s", check_turn, &l, &o, &w[1]));
    struct producer p[2] = { { m, 0, KEYS / 2 }, { m, KEYS / 2, KEYS } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, push_keys, &p[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w[0], MR_FOREVER));
    must(mr_worker_stop(w[1], MR_FOREVER));
    assert_int_equal(l.overlaps, 0);
    assert_int_equal(l.overtakings, 0);
    assert_int_equal(l.runs, KEYS * PER_KEY);
    assert_int_equal(look(m, "s").done, KEYS * PER_KEY);
    must(mr_close(m));
}

static void C7_many_threads_never_overlap_or_overtake_within_a_key(void **state) {
    (void)state;
    run_ledger("mem:", 1);
}

static void C7_nor_in_batches(void **state) {
    (void)state;
    run_ledger("mem:", 7);
}

static void C7_nor_on_disk(void **state) {
    (void)state;
    struct store s = store_make();
    run_ledger(s.url, 3);
    store_remove(&s);
}

// ---- A9, D, T: workers ------------------------------------------------------------------------

struct stuck {
    struct gate started, go;
    atomic_int stops, ran;
};

static int wait_at_gate(mr_job *job, void *arg) {
    struct stuck *s = arg;
    (void)job;
    gate_pass(&s->started);
    gate_wait(&s->go, 1);
    s->ran++;
    return 0;
}

static void open_gate(mr_job *job, void *arg) {
    struct stuck *s = arg;
    s->stops++;
    if (mr_job_stopped(job))
        gate_pass(&s->go);
}

static void A9_a_running_job_is_asked_to_stop_and_its_result_is_not_recorded(void **state) {
    (void)state;
    mr *m = open_mem();
    struct stuck s = { .started = GATE, .go = GATE };
    mr_worker *w = NULL;
    must(mr_work(m, "s", wait_at_gate, &s, &(mr_work_options){ .jobs = 1, .on_stop = open_gate },
                 &w));
    mr_id id = push(m, "s", "k", "x");
    gate_wait(&s.started, 1);
    must(mr_cancel(m, id));
    must(mr_worker_stop(w, MR_FOREVER)); // it ends only because it was asked to stop
    assert_int_equal(s.stops, 1);
    refused(MR_ECANCELLED, mr_await(m, id, MR_FOREVER, NULL));
    assert_int_equal(look(m, "s").done, 0);
    must(mr_close(m));
}

// A block of a key, and a job of another key beside it.
struct beside {
    struct stuck block, other;
};

static int wait_at_own_gate(mr_job *job, void *arg) {
    struct beside *b = arg;
    bool other = *(const char *)mr_job_body(job).data == 'x';
    return wait_at_gate(job, other ? &b->other : &b->block);
}

static void open_gate_of_other(mr_job *job, void *arg) {
    open_gate(job, &((struct beside *)arg)->other);
}

// Stops are passed on in their order: when the other job has been asked to stop, this one was, too.
static void A5_a_job_that_is_cancelled_before_its_turn_in_a_block_is_not_begun(void **state) {
    (void)state;
    mr *m = open_mem();
    struct beside b = { { .started = GATE, .go = GATE }, { .started = GATE, .go = GATE } };
    mr_work_options o = { .jobs = 2, .batch = 3, .on_stop = open_gate_of_other };
    mr_worker *w = NULL;
    push(m, "s", "k", "a");
    mr_id behind = push(m, "s", "k", "b");
    push(m, "s", "k", "c");
    must(mr_work(m, "s", wait_at_own_gate, &b, &o, &w));
    gate_wait(&b.block.started, 1);
    mr_id other = push(m, "s", "l", "x"); // for the other thread
    gate_wait(&b.other.started, 1);
    must(mr_cancel(m, behind));
    must(mr_cancel(m, other));
    gate_wait(&b.other.go, 1);
    gate_pass(&b.block.go);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(b.block.ran, 2); // a and c
    must(mr_close(m));
}

// The bodies of the jobs that have begun, by one thread.
struct begun {
    char bodies[16];
    int count;
};

static int fail_the_first(mr_job *job, void *arg) {
    struct begun *b = arg;
    b->bodies[b->count++] = *(const char *)mr_job_body(job).data;
    return b->count == 1 ? -1 : 0;
}

static void C9_jobs_behind_a_failed_one_of_their_block_wait_for_it(void **state) {
    (void)state;
    mr *m = open_mem();
    struct begun begun = { 0 };
    must(mr_stage_set(m, "s", "backoff", "1ms"));
    push(m, "s", "k", "a");
    push(m, "s", "k", "b");
    push(m, "s", "k", "c");
    mr_worker *w = NULL;
    must(mr_work(m, "s", fail_the_first, &begun, &(mr_work_options){ .jobs = 1, .batch = 3 }, &w));
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_string_equal(begun.bodies, "aabc");
    must(mr_close(m));
}

static void D3_a_worker_gets_more_only_when_it_asks(void **state) {
    (void)state;
    mr *m = open_mem();
    struct stuck s = { .started = GATE, .go = GATE };
    mr_worker *w = work(m, "s", wait_at_gate, &s, 2);
    for (int i = 0; i < 6; i++)
        push(m, "s", NULL, "x");
    gate_wait(&s.started, 2);
    assert_int_equal(look(m, "s").running, 2);
    assert_int_equal(look(m, "s").waiting, 4);
    gate_pass(&s.go);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

struct level {
    mr_worker *worker;
    atomic_int seen;
};

static int read_level(mr_job *job, void *arg) {
    struct level *l = arg;
    (void)job;
    l->seen = mr_worker_level(l->worker);
    return 0;
}

static void X_the_level_of_a_worker_can_be_read_from_anywhere(void **state) {
    (void)state;
    mr *m = open_mem();
    for (uint32_t jobs = 0; jobs <= 3; jobs += 3) {
        struct level l = { 0 };
        mr_work_options o = { .jobs = jobs };
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        must(mr_work(m, "s", read_level, &l, &o, &l.worker));
        assert_int_equal(mr_worker_level(l.worker), jobs ? jobs : processors); // before any trial
        push(m, "s", NULL, "x");
        must(mr_stage_wait_empty(m, "s", MR_FOREVER));
        assert_int_equal(l.seen, jobs ? jobs : processors);
        must(mr_worker_stop(l.worker, MR_FOREVER));
    }
    must(mr_close(m));
}

static void X_what_a_worker_does_can_be_looked_at(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker_info info;
    mr_work_options three = { .jobs = 3 };
    mr_worker *w = NULL;
    must(mr_work(m, "s", echo, NULL, &three, &w));
    push(m, "s", NULL, "x");
    do
        must(mr_worker_look(w, &info)); // a job is counted a moment after its end can be seen
    while (!info.completed);
    assert_int_equal(info.completed, 1);
    assert_int_equal(info.level, 3);
    assert_int_equal(info.choice, 3);
    assert_int_equal(info.choice_count, 1);
    assert_int_equal(info.choices[0], 3);
    assert_string_equal(info.why, "3 at once, as asked");
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static void T8_stopping_a_worker_leaves_the_engine_open(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = work(m, "s", echo, NULL, 1);
    refused(MR_EBUSY, mr_close(m));
    ask(m, "s", "hello");
    must(mr_worker_stop(w, MR_FOREVER));
    refused(MR_EINVAL, mr_worker_stop(w, 0)); // freed
    push(m, "s", NULL, "still open");
    w = work(m, "s", echo, NULL, 1);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static int die_on_receipt(mr_job *job, void *arg) {
    (void)arg;
    must(mr_job_set_reason(job, "fell over"));
    return -1;
}

struct asker {
    mr *m;
    char text[16];
};

static void *ask_thread(void *arg) {
    struct asker *a = arg;
    ask(a->m, "s", a->text);
    return NULL;
}

static void T11_five_askers_get_their_own_answers_though_one_worker_dies(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "backoff", "1ms"));
    must(mr_stage_set(m, "s", "attempts", "1000"));
    mr_worker *w[3] = { work(m, "s", echo, NULL, 1), work(m, "s", echo, NULL, 1),
                        work(m, "s", die_on_receipt, NULL, 1) };
    struct asker askers[5];
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) {
        askers[i].m = m;
        snprintf(askers[i].text, sizeof askers[i].text, "item %d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, ask_thread, &askers[i]), 0);
    }
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++)
        must(mr_worker_stop(w[i], MR_FOREVER));
    must(mr_close(m));
}

static void T12_ninety_nine_items_three_good_workers_one_flaky(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "backoff", "1ms"));
    must(mr_stage_set(m, "s", "attempts", "1000"));
    mr_worker *w[4] = { work(m, "s", echo, NULL, 1), work(m, "s", echo, NULL, 1),
                        work(m, "s", echo, NULL, 1), work(m, "s", die_on_receipt, NULL, 1) };
    mr_id ids[99];
    for (int i = 0; i < 99; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", i);
        ids[i] = push(m, "s", NULL, text);
    }
    for (int i = 0; i < 99; i++) {
        mr_result result = { 0 };
        must(mr_await(m, ids[i], MR_FOREVER, &result));
        assert_int_equal(strtol(result.body.data, NULL, 10), i);
        mr_result_free(&result);
    }
    assert_int_equal(look(m, "s").done, 99);
    for (int i = 0; i < 4; i++)
        must(mr_worker_stop(w[i], MR_FOREVER));
    must(mr_close(m));
}

static void T22_a_graceful_stop_drains_first(void **state) {
    (void)state;
    mr *m = open_mem();
    struct stuck s = { .started = GATE, .go = GATE };
    mr_worker *w = NULL;
    must(mr_work(m, "s", wait_at_gate, &s, &(mr_work_options){ .jobs = 1, .batch = 3 }, &w));
    must(mr_stage_pause(m, "s"));
    for (int i = 0; i < 5; i++)
        push(m, "s", "k", (char[]){ (char)('a' + i), 0 });
    must(mr_stage_resume(m, "s"));
    gate_wait(&s.started, 1);
    refused(MR_EBUSY, mr_worker_stop(w, 0));
    refused(MR_EBUSY, mr_worker_stop(w, 10));
    gate_pass(&s.go);
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(s.ran, 1); // what was taken and not started went back, uncounted
    assert_int_equal(look(m, "s").done, 1);
    assert_int_equal(look(m, "s").waiting, 4);
    mr_job *job = take_waiting(m, "s");
    assert_string_equal(mr_job_body(job).data, "b");
    assert_int_equal(mr_job_attempt(job), 1);
    must(mr_done(job));
    must(mr_close(m));
}

// ---- F: leases --------------------------------------------------------------------------------

static int take_long(mr_job *job, void *arg) {
    (void)job;
    let_pass(arg, 2500);
    return 0;
}

static void F9_a_job_longer_than_its_lease_is_kept_by_beats(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = NULL;
    must(mr_work(m, "s", take_long, m, &(mr_work_options){ .jobs = 1, .lease_ms = 2000 }, &w));
    mr_id id = push(m, "s", "k", "x");
    must(mr_await(m, id, MR_FOREVER, NULL));
    assert_int_equal(look(m, "s").failed, 0);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static int stick_to_one_key(mr_job *job, void *arg) {
    return mr_job_key(job).size == 5 ? wait_at_gate(job, arg) : 0;
}

static void F10_one_stuck_job_does_not_hold_up_other_channels(void **state) {
    (void)state;
    mr *m = open_mem();
    struct stuck s = { .started = GATE, .go = GATE };
    mr_worker *w = work(m, "s", stick_to_one_key, &s, 2);
    push(m, "s", "stuck", "x");
    gate_wait(&s.started, 1);
    for (int i = 0; i < 20; i++)
        must(mr_await(m, push(m, "s", "k", "y"), MR_FOREVER, NULL));
    assert_int_equal(s.ran, 0);
    gate_pass(&s.go);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// Short handlers make a thread take several jobs at a time; then one of them blocks.
enum { TOGETHER = 200, BLOCKING = 120 };

struct one_blocks {
    mr_id ids[TOGETHER];
    struct gate started, go;
    atomic_int ran;
};

static int block_one(mr_job *job, void *arg) {
    struct one_blocks *b = arg;
    b->ran++;
    if (mr_job_body(job).size == 1)
        return 0;
    gate_pass(&b->started);
    gate_wait(&b->go, 1);
    return 0;
}

static mr_worker *run_until_one_blocks(mr *m, struct one_blocks *b, uint32_t threads) {
    must(mr_stage_pause(m, "s"));
    for (int i = 0; i < TOGETHER; i++)
        b->ids[i] = push(m, "s", NULL, i == BLOCKING ? "blocks" : "x");
    mr_worker *w = work(m, "s", block_one, b, threads);
    must(mr_stage_resume(m, "s"));
    gate_wait(&b->started, 1);
    return w;
}

static void await_jobs(mr *m, const mr_id *ids, int count) {
    for (int i = 0; i < count; i++)
        must(mr_await(m, ids[i], MR_FOREVER, NULL));
}

static void stop_and_count(mr *m, struct one_blocks *b, mr_worker *w) {
    gate_pass(&b->go);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(b->ran, TOGETHER);
    assert_int_equal(look(m, "s").done, TOGETHER);
    assert_int_equal(look(m, "s").failed, 0);
    must(mr_close(m));
}

static void F10_jobs_taken_with_a_stuck_one_are_run_by_other_threads(void **state) {
    (void)state;
    mr *m = open_mem();
    struct one_blocks b = { .started = GATE, .go = GATE };
    mr_worker *w = run_until_one_blocks(m, &b, 2);
    await_jobs(m, b.ids, BLOCKING);
    await_jobs(m, b.ids + BLOCKING + 1, TOGETHER - BLOCKING - 1);
    stop_and_count(m, &b, w);
}

static void F10_jobs_that_ended_before_a_stuck_one_are_committed(void **state) {
    (void)state;
    mr *m = open_mem();
    struct one_blocks b = { .started = GATE, .go = GATE };
    mr_worker *w = run_until_one_blocks(m, &b, 1);
    await_jobs(m, b.ids, BLOCKING);
    stop_and_count(m, &b, w);
}

// The first attempt's process is killed as the system does when memory runs out; its parent
// continues.
static int run_in_a_process(mr_job *job, void *arg) {
    (void)arg;
    pid_t child = fork();
    if (child == 0) {
        if (mr_job_attempt(job) == 1)
            raise(SIGKILL);
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    must(mr_job_set_reason(job, "its process was killed"));
    return -1;
}

static void F5_a_handlers_process_is_killed_and_the_job_runs_again(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "backoff", "1"));
    mr_worker *w = work(m, "s", run_in_a_process, NULL, 2);
    must(mr_await(m, push(m, "s", "k", "x"), MR_FOREVER, NULL));
    assert_int_equal(look(m, "s").failed, 1);
    assert_int_equal(look(m, "s").done, 1);
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// ---- Several stages, reasons ------------------------------------------------------------------

static int note_stage(mr_job *job, void *arg) {
    struct ledger *l = arg;
    l->next[l->runs++] = mr_job_stage(job)[0];
    return 0;
}

static void R17_stages_named_first_are_served_first(void **state) {
    (void)state;
    mr *m = open_mem();
    struct ledger l = { 0 };
    for (int i = 0; i < 3; i++) {
        push(m, "low", NULL, "x");
        push(m, "high", NULL, "x");
    }
    mr_worker *w = NULL;
    const char *more[] = { "low", NULL };
    must(mr_work(m, "high", note_stage, &l, &(mr_work_options){ .more_stages = more, .jobs = 1 },
                 &w));
    must(mr_stage_wait_empty(m, "high", MR_FOREVER));
    must(mr_stage_wait_empty(m, "low", MR_FOREVER));
    must(mr_worker_stop(w, MR_FOREVER));
    for (int i = 0; i < 6; i++)
        assert_int_equal(l.next[i], i < 3 ? 'h' : 'l');
    must(mr_close(m));
}

static int return_seven(mr_job *job, void *arg) {
    (void)job, (void)arg;
    return 7;
}

static void X_a_handlers_nonzero_answer_is_a_failed_attempt_with_a_reason(void **state) {
    (void)state;
    mr *m = open_mem();
    must(mr_stage_set(m, "s", "attempts", "1"));
    must(mr_stage_set(m, "t", "attempts", "1"));
    mr_worker *seven = work(m, "s", return_seven, NULL, 1);
    mr_worker *dies = work(m, "t", die_on_receipt, NULL, 1);
    refused(MR_EDEAD, mr_call(m, "s", mr_str("x"), NULL, NULL));
    assert_non_null(strstr(mr_error(), "the handler returned 7"));
    refused(MR_EDEAD, mr_call(m, "t", mr_str("x"), NULL, NULL));
    assert_non_null(strstr(mr_error(), "fell over"));
    must(mr_worker_stop(seven, MR_FOREVER));
    must(mr_worker_stop(dies, MR_FOREVER));
    must(mr_close(m));
}

// ---- MR_LATER ---------------------------------------------------------------------------------

struct later {
    pthread_mutex_t lock;
    mr_job *kept[64];
    int count;
    struct gate came;
};

static int keep(mr_job *job, void *arg) {
    struct later *l = arg;
    pthread_mutex_lock(&l->lock);
    l->kept[l->count++] = job;
    pthread_mutex_unlock(&l->lock);
    gate_pass(&l->came);
    return MR_LATER;
}

static mr_job *kept_at(struct later *l, int index) {
    pthread_mutex_lock(&l->lock);
    mr_job *job = l->kept[index];
    pthread_mutex_unlock(&l->lock);
    return job;
}

static void X_a_kept_job_is_ended_by_any_thread_and_counts_as_in_flight(void **state) {
    (void)state;
    mr *m = open_mem();
    struct later l = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE };
    mr_worker *w = work(m, "s", keep, &l, 2);
    for (int i = 0; i < 6; i++)
        push(m, "s", NULL, "x");
    for (int i = 0; i < 6; i++) {
        gate_wait(&l.came, i + 1);
        if (i == 1) {
            assert_int_equal(look(m, "s").running, 2);
            assert_int_equal(look(m, "s").waiting, 4);
            refused(MR_EBUSY, mr_close(m));
        }
        if (i > 0)
            must(i % 2 ? mr_done(kept_at(&l, i - 1)) : mr_fail(kept_at(&l, i - 1), "no", MR_NEVER));
    }
    refused(MR_EBUSY, mr_worker_stop(w, 0));
    must(mr_done(kept_at(&l, 5)));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(look(m, "s").done + look(m, "s").dead, 6);
    must(mr_close(m));
}

static void X_kept_jobs_of_a_batch_still_end_in_order(void **state) {
    (void)state;
    mr *m = open_mem();
    struct later l = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE };
    mr_worker *w = NULL;
    for (int i = 0; i < 4; i++)
        push(m, "s", "k", (char[]){ (char)('a' + i), 0 });
    must(mr_work(m, "s", keep, &l, &(mr_work_options){ .jobs = 2, .batch = 4 }, &w));
    for (int i = 0; i < 4; i++) {
        gate_wait(&l.came, i + 1);
        mr_job *job = kept_at(&l, i);
        assert_string_equal(mr_job_body(job).data, ((char[]){ (char)('a' + i), 0 }));
        assert_int_equal(mr_job_state(job).size, i);
        must(mr_job_set_state(job, (mr_bytes){ "xxxx", (size_t)i + 1 }));
        must(mr_done(job));
    }
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// Whether the worker's thread waits for the end of a kept job before it begins the next of the
// batch.
static bool thread_waits(mr_worker *w) {
    pthread_mutex_lock(&w->worker->lock);
    bool waits = w->worker->waiting > 0;
    pthread_mutex_unlock(&w->worker->lock);
    return waits;
}

// A job that is kept, given back, and kept again by the same thread has ended once, not twice.
static void C9_a_job_that_is_kept_again_is_waited_for_again(void **state) {
    (void)state;
    mr *m = open_mem();
    struct later l = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE };
    mr_worker *w = NULL;
    push(m, "s", "k", "a");
    push(m, "s", "k", "b");
    must(mr_work(m, "s", keep, &l, &(mr_work_options){ .jobs = 1, .batch = 2 }, &w));
    gate_wait(&l.came, 1);
    must(mr_release(kept_at(&l, 0), 0));
    gate_wait(&l.came, 2);
    assert_string_equal(mr_job_body(kept_at(&l, 1)).data, "a");
    for (int came = 2; came == 2 && !thread_waits(w);) {
        pthread_mutex_lock(&l.came.lock);
        came = l.came.count;
        pthread_mutex_unlock(&l.came.lock);
    }
    assert_true(thread_waits(w));
    must(mr_done(kept_at(&l, 1)));
    gate_wait(&l.came, 3);
    assert_string_equal(mr_job_body(kept_at(&l, 2)).data, "b");
    must(mr_done(kept_at(&l, 2)));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// b was taken together with a, and ends first; what is in its place then belongs to another batch.
static void C9_the_state_of_a_kept_job_stays_with_its_key(void **state) {
    (void)state;
    mr *m = open_mem();
    struct later l = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE };
    mr_worker *w = NULL;
    push(m, "s", "one", "a");
    push(m, "s", "two", "b");
    must(mr_work(m, "s", keep, &l, &(mr_work_options){ .jobs = 2, .batch = 4 }, &w));
    gate_wait(&l.came, 2);
    must(mr_done(kept_at(&l, 1)));
    must(mr_stage_pause(m, "s"));
    for (int i = 0; i < 4; i++)
        push(m, "s", "three", "c");
    must(mr_stage_resume(m, "s"));
    for (int i = 2; i < 5; i++) {
        gate_wait(&l.came, i + 1);
        must(mr_done(kept_at(&l, i)));
    }
    gate_wait(&l.came, 6);
    must(mr_job_set_state(kept_at(&l, 0), mr_str("of one")));
    must(mr_done(kept_at(&l, 0)));
    assert_int_equal(mr_job_state(kept_at(&l, 5)).size, 0);
    must(mr_done(kept_at(&l, 5)));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static int end_it_here(mr_job *job, void *arg) {
    (void)arg;
    must(mr_job_set_result(job, mr_str("by hand")));
    must(mr_done(job));
    refused(MR_EINVAL, mr_done(job)); // used up
    refused(MR_EINVAL, mr_job_set_result(job, mr_str("again")));
    return 0;
}

static void X_a_handler_may_end_its_job_itself(void **state) {
    (void)state;
    mr *m = open_mem();
    mr_worker *w = work(m, "s", end_it_here, NULL, 1);
    for (int i = 0; i < 3; i++) {
        mr_result result = { 0 };
        must(mr_call(m, "s", mr_str("x"), NULL, &result));
        assert_string_equal(result.body.data, "by hand");
        mr_result_free(&result);
    }
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(look(m, "s").done, 3);
    must(mr_close(m));
}

// ---- Callbacks run under no lock --------------------------------------------------------------

struct busy {
    mr *m;
    mr_worker *w;
    struct gate done;
};

static void call_from_callback(mr_id id, int status, mr_bytes body, void *arg) {
    struct busy *b = arg;
    (void)body;
    assert_int_equal(status, 0);
    must(mr_await(b->m, id, 0, NULL));
    ask(b->m, "echo", "from a callback"); // waits, in the engine's own thread
    mr_push_options o = { .deadline_ms = 20 };
    refused(MR_EEXPIRED, mr_call(b->m, "without-workers", mr_str("x"), &o, NULL));
    refused(MR_EBUSY, mr_close(b->m));
    gate_pass(&b->done);
}

static int call_from_handler(mr_job *job, void *arg) {
    struct busy *b = arg;
    ask(b->m, "echo", "from a handler");
    assert_true(look(b->m, "s").running >= 1);
    refused(MR_EBUSY, mr_worker_stop(b->w, MR_FOREVER)); // it would wait for itself
    must(mr_call_start(b->m, "echo", mr_str("x"), NULL, call_from_callback, b, NULL));
    (void)job;
    return 0;
}

static void X_handlers_and_callbacks_may_call_anything(void **state) {
    (void)state;
    mr *m = open_mem();
    struct busy b = { .m = m, .done = GATE };
    mr_worker *e = work(m, "echo", echo, NULL, 2);
    must(mr_stage_pause(m, "s"));
    b.w = work(m, "s", call_from_handler, &b, 1);
    for (int i = 0; i < 3; i++)
        push(m, "s", NULL, "x");
    must(mr_stage_resume(m, "s"));
    gate_wait(&b.done, 3);
    must(mr_stage_wait_empty(m, "s", MR_FOREVER));
    must(mr_worker_stop(b.w, MR_FOREVER));
    must(mr_worker_stop(e, MR_FOREVER));
    must(mr_close(m));
}

static int keep_and_wait(mr_job *job, void *arg) {
    (void)job;
    gate_pass(arg);
    return MR_LATER;
}

static void release_it(mr_job *job, void *arg) {
    (void)arg;
    assert_int_equal(mr_release(job, 0), MR_ECANCELLED);
}

static void X_on_stop_may_end_the_job(void **state) {
    (void)state;
    mr *m = open_mem();
    struct gate kept = GATE;
    mr_worker *w = NULL;
    must(mr_work(m, "s", keep_and_wait, &kept,
                 &(mr_work_options){ .jobs = 1, .on_stop = release_it }, &w));
    for (int i = 0; i < 3; i++) {
        mr_id id = push(m, "s", "k", "x");
        gate_wait(&kept, i + 1);
        must(mr_cancel(m, id));
    }
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

// ---- A loop of one's own ----------------------------------------------------------------------

struct loop {
    struct later kept;
    int echoed, stopped;
};

static int loop_handler(mr_job *job, void *arg) {
    struct loop *l = arg;
    if (mr_job_stage(job)[0] == 'l')
        return keep(job, &l->kept);
    l->echoed++;
    return echo(job, NULL);
}

static void loop_stop(mr_job *job, void *arg) {
    struct loop *l = arg;
    l->stopped++;
    assert_int_equal(mr_done(job), MR_ECANCELLED);
}

static void turn(mr_worker *w) {
    struct pollfd fd = { .fd = mr_worker_fd(w), .events = POLLIN };
    assert_int_equal(poll(&fd, 1, -1), 1);
    must(mr_worker_turn(w));
}

static void X_own_loop_runs_everything_in_one_poll_loop(void **state) {
    (void)state;
    mr *m = open_mem();
    struct loop l = { .kept = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE } };
    mr_worker *w = NULL;
    const char *more[] = { "later", NULL };
    mr_work_options o = { .more_stages = more, .jobs = 2, .own_loop = 1, .on_stop = loop_stop };
    must(mr_work(m, "echo", loop_handler, &l, &o, &w));
    mr_id ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = push(m, "echo", "k", "x");
    while (l.echoed < 40)
        turn(w);
    for (int i = 0; i < 40; i++)
        must(mr_await(m, ids[i], MR_FOREVER, NULL));
    for (int i = 0; i < 3; i++)
        push(m, "later", NULL, "x");
    while (l.kept.count < 2)
        turn(w);
    assert_int_equal(look(m, "later").running, 2); // two in flight, that is the level
    must(mr_done(l.kept.kept[0]));
    while (l.kept.count < 3)
        turn(w);
    must(mr_cancel(m, mr_job_id(l.kept.kept[1])));
    while (l.stopped < 1)
        turn(w);
    refused(MR_EBUSY, mr_worker_stop(w, 0));
    must(mr_done(l.kept.kept[2]));
    must(mr_worker_stop(w, MR_FOREVER));
    must(mr_close(m));
}

static void X_own_loop_keeps_the_lease_of_what_was_kept(void **state) {
    (void)state;
    mr *m = open_mem();
    struct loop l = { .kept = { .lock = PTHREAD_MUTEX_INITIALIZER, .came = GATE } };
    mr_worker *w = NULL;
    mr_work_options o = { .jobs = 1, .own_loop = 1, .lease_ms = 1800 };
    must(mr_work(m, "later", loop_handler, &l, &o, &w));
    push(m, "later", "k", "x");
    while (l.kept.count < 1)
        turn(w);
    for (int beats = 0; beats < 4; beats++) // the descriptor wakes us for them
        turn(w);
    must(mr_done(l.kept.kept[0]));
    must(mr_worker_stop(w, MR_FOREVER));
    assert_int_equal(look(m, "later").failed, 0);
    must(mr_close(m));
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(C7_many_threads_never_overlap_or_overtake_within_a_key),
        cmocka_unit_test(C7_nor_in_batches),
        cmocka_unit_test(C7_nor_on_disk),
        cmocka_unit_test(A9_a_running_job_is_asked_to_stop_and_its_result_is_not_recorded),
        cmocka_unit_test(A5_a_job_that_is_cancelled_before_its_turn_in_a_block_is_not_begun),
        cmocka_unit_test(C9_jobs_behind_a_failed_one_of_their_block_wait_for_it),
        cmocka_unit_test(D3_a_worker_gets_more_only_when_it_asks),
        cmocka_unit_test(T8_stopping_a_worker_leaves_the_engine_open),
        cmocka_unit_test(T11_five_askers_get_their_own_answers_though_one_worker_dies),
        cmocka_unit_test(T12_ninety_nine_items_three_good_workers_one_flaky),
        cmocka_unit_test(T22_a_graceful_stop_drains_first),
        cmocka_unit_test(F5_a_handlers_process_is_killed_and_the_job_runs_again),
        cmocka_unit_test(F9_a_job_longer_than_its_lease_is_kept_by_beats),
        cmocka_unit_test(F10_one_stuck_job_does_not_hold_up_other_channels),
        cmocka_unit_test(F10_jobs_taken_with_a_stuck_one_are_run_by_other_threads),
        cmocka_unit_test(F10_jobs_that_ended_before_a_stuck_one_are_committed),
        cmocka_unit_test(R17_stages_named_first_are_served_first),
        cmocka_unit_test(X_a_handlers_nonzero_answer_is_a_failed_attempt_with_a_reason),
        cmocka_unit_test(X_a_kept_job_is_ended_by_any_thread_and_counts_as_in_flight),
        cmocka_unit_test(X_kept_jobs_of_a_batch_still_end_in_order),
        cmocka_unit_test(C9_a_job_that_is_kept_again_is_waited_for_again),
        cmocka_unit_test(C9_the_state_of_a_kept_job_stays_with_its_key),
        cmocka_unit_test(X_a_handler_may_end_its_job_itself),
        cmocka_unit_test(X_handlers_and_callbacks_may_call_anything),
        cmocka_unit_test(X_on_stop_may_end_the_job),
        cmocka_unit_test(X_the_level_of_a_worker_can_be_read_from_anywhere),
        cmocka_unit_test(X_what_a_worker_does_can_be_looked_at),
        cmocka_unit_test(X_own_loop_runs_everything_in_one_poll_loop),
        cmocka_unit_test(X_own_loop_keeps_the_lease_of_what_was_kept),
    };
    return run_here_and_there(tests, sizeof tests / sizeof *tests);
}
