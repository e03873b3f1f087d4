// An elf: a worker that answers letters of a server; it finds the number of concurrent letters by
// itself. Several elves may run at once, and start, stop and be killed at any time.
//
//     elf URL             prints "ready", then a line for each letter that it begins
//     elf URL collect     prints all answers, one a line, "STREET NUMBER LETTER", and removes them
//
// An answer is a job that the letter's commit pushes. NUMBER is counted in the state of the street,
// which the same commit changes: so each letter has one answer, and the answers of a street are
// numbered in the order of their letters, even if letters are begun twice because an elf was
// killed. After SIGTERM it finishes the letters that it has begun.
#include "clock.h"

#include <millrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int answer(mr_job *job, void *arg) {
    (void)arg;
    char number[24], text[64];
    mr_bytes street = mr_job_key(job);
    char *wait_at;
    long letter = strtol(mr_job_body(job).data, &wait_at, 10);
    printf("begin %.*s %ld\n", (int)street.size, (const char *)street.data, letter);
    sleep_until(now_s() + strtod(wait_at, NULL) / 1000);
    const char *before = mr_job_state(job).data;
    snprintf(number, sizeof number, "%ld", before ? strtol(before, NULL, 10) + 1 : 1);
    snprintf(text, sizeof text, "%.*s %s %ld", (int)street.size, (const char *)street.data, number,
             letter);
    int err = mr_job_set_state(job, mr_str(number));
    return err < 0 ? err : mr_job_emit(job, "answers", mr_str(text), NULL);
}

static int collect(mr *engine) {
    mr_take_options batch = { .batch = 100 };
    mr_job *job;
    int err;
    while ((err = mr_take(engine, "answers", &batch, &job)) == 0) {
        puts(mr_job_body(job).data);
        err = mr_done(job);
        if (err < 0)
            return err;
    }
    return err == MR_EAGAIN ? 0 : err;
}

static int work(mr *engine) {
    mr_worker *worker;
    sigset_t end;
    int signal;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    int err = mr_work(engine, "letters", answer, NULL, NULL, &worker);
    if (err < 0)
        return err;
    puts("ready"); // SIGTERM is waited for
    sigwait(&end, &signal);
    return mr_worker_stop(worker, MR_FOREVER);
}

int main(int argc, char **argv) {
    mr *engine = NULL;
    mr_options who = { .name = "elf" };
    sigset_t end;
    if (argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "collect") != 0))
        return fprintf(stderr, "elf URL [collect]\n"), 2;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL); // before there are threads, which inherit it
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (mr_open(argv[1], &who, &engine) < 0 || (argc == 3 ? collect : work)(engine) < 0 ||
        mr_close(engine) < 0)
        return fprintf(stderr, "elf: %s\n", mr_error()), 1;
    return 0;
}
