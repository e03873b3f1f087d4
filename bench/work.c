// Threads: PUSHERS push to mem: or URL, those of a worker run an empty handler. The jobs of a key
// run in order and never overlap.
//
//     work [KEYS [JOBS [RUNNERS [BATCH [REPEATS [HOW [SHARDS [URL [PUSHERS [WORKERS]]]]]]]]]]
//
// WORKERS 2: the jobs go to two stages in turn, each with a worker; with two shards, these have one
// stage each.
// BATCH: taken at once, and pushed at once. RUNNERS 0: the worker tunes itself. HOW 1: no worker,
// RUNNERS plain threads take and end jobs by hand; what a worker costs is the difference.
// No more than WINDOW jobs are on their way, so that memory does not decide.
#include "bench/keys.h"
#include "bench/measure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static const char *const stages[] = { "bench", "other" };

enum { WORKERS_MOST = sizeof stages / sizeof *stages };
enum { WINDOW = 100000, BATCH_MOST = 1000, THREADS_MOST = 64, PAUSE_US = 100, HAND_WAIT_MS = 10 };

static _Atomic uint64_t ran;
static atomic_bool stops;

static int handle(mr_job *job, void *arg) {
    (void)job, (void)arg;
    atomic_fetch_add_explicit(&ran, 1, memory_order_relaxed);
    return 0;
}

static void try(int err, const char *what) {
    if (err < 0)
        must(err, what, mr_error());
}

static void wait_until_ran(uint64_t count) {
    while (atomic_load_explicit(&ran, memory_order_relaxed) < count)
        usleep(PAUSE_US);
}

static const char body[64];

static void push_one(mr *m, const char *stage, const struct keys *keys, uint64_t number) {
    mr_push_options o = { .key = keys_at(keys, number) };
    try(mr_push(m, stage, (mr_bytes){ body, sizeof body }, &o, NULL), "push");
}

// Not inlined: its items take twelve pages of stack, and entering it touches them all.
__attribute__((noinline)) static void push_some(mr *m, const char *stage, const struct keys *keys,
                                                uint64_t from, size_t count) {
    mr_item items[BATCH_MOST];
    size_t pushed = 0;
    for (size_t i = 0; i < count; i++)
        items[i] = (mr_item){ .key = keys_at(keys, from + i), .body = { body, sizeof body } };
    try(mr_push_many(m, stage, items, count, NULL, NULL, &pushed), "push");
    must(pushed == count ? 0 : -1, "push", "not all were accepted");
}

struct task {
    mr *engine;
    struct keys keys;
    uint64_t jobs, batch, repeats, pushers, workers;
    uint64_t before; // jobs that had run before this repeat
};

static void push_part(struct task *t, uint64_t from, uint64_t step) {
    for (uint64_t i = from; i < t->jobs; i += step) {
        if (i > WINDOW)
            wait_until_ran(t->before + i - WINDOW);
        const char *stage = stages[i / t->batch % t->workers];
        if (t->batch == 1)
            push_one(t->engine, stage, &t->keys, i);
        else
            push_some(t->engine, stage, &t->keys, i, t->batch);
    }
}

struct pusher {
    struct task *task;
    uint64_t number;
};

static void *pusher_thread(void *arg) {
    const struct pusher *p = arg;
    push_part(p->task, p->number * p->task->batch, p->task->pushers * p->task->batch);
    return NULL;
}

static void push_in_threads(struct task *t) {
    pthread_t threads[THREADS_MOST];
    struct pusher pushers[THREADS_MOST];
    for (uint64_t i = 0; i < t->pushers; i++) {
        pushers[i] = (struct pusher){ t, i };
        must(-pthread_create(&threads[i], NULL, pusher_thread, &pushers[i]), "thread",
             "none to be had");
    }
    for (uint64_t i = 0; i < t->pushers; i++)
        pthread_join(threads[i], NULL);
}

static void run_once(struct task *t) {
    t->before = atomic_load(&ran);
    struct lap start = lap_begin();
    if (t->pushers > 1)
        push_in_threads(t);
    else
        push_part(t, 0, t->batch);
    wait_until_ran(t->before + t->jobs);
    lap_tell("life", lap_end(start), t->jobs);
}

static void run(struct task *t) {
    for (uint64_t repeat = 0; repeat < t->repeats; repeat++)
        run_once(t);
}

// ---- Who runs the jobs ------------------------------------------------------------------------

static void *take_by_hand(void *arg) {
    mr *m = arg;
    mr_take_options o = { .wait_ms = HAND_WAIT_MS };
    mr_job *job;
    while (!atomic_load(&stops)) {
        int err = mr_take(m, "bench", &o, &job);
        if (err == MR_EAGAIN)
            continue;
        try(err, "take");
        handle(job, NULL);
        try(mr_done(job), "done");
    }
    return NULL;
}

static void with_hands(uint64_t runners, struct task *task) {
    pthread_t threads[THREADS_MOST];
    for (uint64_t i = 0; i < runners; i++)
        must(-pthread_create(&threads[i], NULL, take_by_hand, task->engine), "thread",
             "none to be had");
    run(task);
    atomic_store(&stops, true);
    for (uint64_t i = 0; i < runners; i++)
        pthread_join(threads[i], NULL);
}

static void with_worker(uint64_t runners, struct task *task) {
    mr_worker *workers[WORKERS_MOST];
    mr_work_options o = { .jobs = (uint32_t)runners, .batch = (uint32_t)task->batch };
    for (uint64_t i = 0; i < task->workers; i++)
        try(mr_work(task->engine, stages[i], handle, NULL, &o, &workers[i]), "work");
    run(task);
    for (uint64_t i = 0; i < task->workers; i++)
        try(mr_worker_stop(workers[i], MR_FOREVER), "stop");
}

int main(int argc, char **argv) {
    struct task task = { .keys = keys_make(argument(argc, argv, 1, 1000)),
                         .jobs = argument(argc, argv, 2, 1000000),
                         .batch = argument(argc, argv, 4, 1),
                         .repeats = argument(argc, argv, 5, 3),
                         .pushers = argument(argc, argv, 9, 1),
                         .workers = argument(argc, argv, 10, 1) };
    uint64_t runners = argument(argc, argv, 3, 1), how = argument(argc, argv, 6, 0);
    if (task.batch < 1 || task.batch > BATCH_MOST || (how && runners > THREADS_MOST) ||
        task.pushers > THREADS_MOST || task.workers < 1 || task.workers > WORKERS_MOST)
        return 1;
    task.jobs -= task.jobs % task.batch;
    mr_options options = { .shards = (uint32_t)argument(argc, argv, 7, 1) };
    try(mr_open(argc > 8 ? argv[8] : "mem:", &options, &task.engine), "open");
    (how ? with_hands : with_worker)(runners, &task);
    try(mr_close(task.engine), "close");
    free(task.keys.names);
    return 0;
}
