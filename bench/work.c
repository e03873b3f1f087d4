// Threads: this one pushes to mem:, those of a worker run an empty handler. The jobs of a key run
// in order and never overlap.
//
//     work [KEYS [JOBS [RUNNERS [BATCH [REPEATS]]]]]     BATCH: taken at once, and pushed at once
//
// No more than WINDOW jobs are on their way, so that memory does not decide.
#include "bench/keys.h"
#include "bench/measure.h"

#include <stdatomic.h>

enum { WINDOW = 100000, BATCH_MOST = 1000, PAUSE_US = 100 };

static _Atomic uint64_t ran;

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

static void push_some(mr *m, const struct keys *keys, uint64_t from, size_t count) {
    static const char body[64];
    mr_item items[BATCH_MOST];
    size_t pushed = 0;
    if (count == 1) {
        mr_push_options o = { .key = keys_at(keys, from) };
        try(mr_push(m, "bench", (mr_bytes){ body, sizeof body }, &o, NULL), "push");
        return;
    }
    for (size_t i = 0; i < count; i++)
        items[i] = (mr_item){ .key = keys_at(keys, from + i), .body = { body, sizeof body } };
    try(mr_push_many(m, "bench", items, count, NULL, NULL, &pushed), "push");
    must(pushed == count ? 0 : -1, "push", "not all were accepted");
}

static void run(mr *m, const struct keys *keys, uint64_t jobs, size_t batch) {
    uint64_t before = atomic_load(&ran);
    struct lap start = lap_begin();
    for (uint64_t i = 0; i < jobs; i += batch) {
        if (i > WINDOW)
            wait_until_ran(before + i - WINDOW);
        push_some(m, keys, i, batch);
    }
    wait_until_ran(before + jobs);
    lap_tell("life", lap_end(start), jobs);
}

int main(int argc, char **argv) {
    uint64_t jobs = argument(argc, argv, 2, 1000000), batch = argument(argc, argv, 4, 1);
    uint64_t runners = argument(argc, argv, 3, 1), repeats = argument(argc, argv, 5, 3);
    struct keys keys = keys_make(argument(argc, argv, 1, 1000));
    if (batch < 1 || batch > BATCH_MOST)
        return 1;
    jobs -= jobs % batch;
    mr *m;
    mr_worker *worker;
    mr_work_options o = { .jobs = (uint32_t)runners, .batch = (uint32_t)batch };
    try(mr_open("mem:", NULL, &m), "open");
    try(mr_work(m, "bench", handle, NULL, &o, &worker), "work");
    for (uint64_t repeat = 0; repeat < repeats; repeat++)
        run(m, &keys, jobs, batch);
    try(mr_worker_stop(worker, MR_FOREVER), "stop");
    try(mr_close(m), "close");
    free(keys.names);
    return 0;
}
