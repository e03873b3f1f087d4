// Bulk push: many jobs in one call, into a stage with a limit of jobs: the push waits for room, so
// the stage never exceeds its limit, however slow the worker is.
//
//     bulk_push [DIR]     in a directory, every batch is on disk before the next
#include <millrace.h>
#include <stdatomic.h>
#include <stdio.h>

enum { LINES = 20000, A_TIME = 500 };

static int add_up(mr_job *job, void *arg) {
    atomic_long *sum = arg;
    uint32_t number;
    memcpy(&number, mr_job_body(job).data, sizeof number);
    *sum += number;
    return 0;
}

static int push_lines(mr *engine) {
    static uint32_t numbers[A_TIME];
    static mr_item items[A_TIME];
    mr_push_options patient = { .room_ms = MR_FOREVER };
    for (uint32_t from = 0; from < LINES;) {
        size_t count = LINES - from < A_TIME ? LINES - from : A_TIME, accepted = 0;
        for (size_t i = 0; i < count; i++) {
            numbers[i] = from + (uint32_t)i;
            items[i].body = (mr_bytes){ &numbers[i], sizeof numbers[i] };
        }
        int err = mr_push_many(engine, "lines", items, count, &patient, NULL, &accepted);
        if (err < 0)
            return err;
        from += (uint32_t)accepted;
    }
    return 0;
}

int main(int argc, char **argv) {
    char url[4096] = "mem:";
    if (argc > 1 && snprintf(url, sizeof url, "file:%s", argv[1]) >= (int)sizeof url)
        return 1;
    atomic_long sum = 0;
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_work_options batches = { .jobs = 2, .batch = 50 };
    if (mr_open(url, NULL, &engine) < 0 || mr_stage_set(engine, "lines", "max-jobs", "2000") < 0 ||
        mr_work(engine, "lines", add_up, &sum, &batches, &worker) < 0 || push_lines(engine) < 0 ||
        mr_stage_wait_empty(engine, "lines", MR_FOREVER) < 0 ||
        mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    long right = (long)LINES * (LINES - 1) / 2;
    printf("%d lines, never more than 2000 waiting; their sum is %ld\n", LINES, sum);
    return sum != right;
}
