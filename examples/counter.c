// Counter: a channel's state is a durable variable. Every call adds one and answers with the sum;
// the sum, the answer and the job's end are recorded together, so it counts exactly once, even
// over restarts.
//
//     counter [DIR]     run it twice with the same directory: it continues to count
#define _POSIX_C_SOURCE 200809L // only needed with -std=c17; gcc and clang define it by default

#include <millrace.h>
#include <stdio.h>
#include <stdlib.h>

static int add_one(mr_job *job, void *arg) {
    (void)arg;
    long sum = mr_job_state(job).size ? strtol(mr_job_state(job).data, NULL, 10) : 0;
    char text[32];
    snprintf(text, sizeof text, "%ld", sum + 1);
    int err = mr_job_set_state(job, mr_str(text));
    return err < 0 ? err : mr_job_set_result(job, mr_str(text));
}

// Opens the store, counts three times, closes it. Returns the sum, or -1.
static long count_three(const char *url) {
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_push_options clicks = { .key = mr_str("clicks") };
    if (mr_open(url, NULL, &engine) < 0 ||
        mr_work(engine, "counters", add_one, NULL, NULL, &worker) < 0)
        return -1;
    long sum = -1;
    for (int i = 0; i < 3; i++) {
        mr_result answer = { 0 };
        if (mr_call(engine, "counters", mr_str(""), &clicks, &answer) < 0)
            return -1;
        sum = strtol(answer.body.data, NULL, 10);
        mr_result_free(&answer);
    }
    if (mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0)
        return -1;
    return sum;
}

int main(int argc, char **argv) {
    char own[] = "/tmp/counter-XXXXXX", url[4096];
    const char *dir = argc > 1 ? argv[1] : mkdtemp(own);
    if (!dir || snprintf(url, sizeof url, "file:%s", dir) >= (int)sizeof url)
        return 1;
    long first = count_three(url), second = first < 0 ? -1 : count_three(url);
    if (second < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    printf("counted to %ld, then after reopening to %ld; kept in %s\n", first, second, dir);
    return second != first + 3;
}
