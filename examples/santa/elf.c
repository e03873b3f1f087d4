// An elf: a worker that answers letters of a server; it finds the number of concurrent letters by
// itself. Several elves may run at once, and start and stop at any time.
//
//     elf URL     prints "ready", then for each letter: "begin SECONDS LETTER KEY",
//                 "end SECONDS LETTER right|wrong"
//
// After SIGTERM it finishes the letters that it has begun.
#include "clock.h"
#include "factors.h"

#include <millrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static int answer(mr_job *job, void *arg) {
    (void)arg;
    uint32_t factors[FACTORS_MOST];
    char result[16], text[48] = { 0 };
    mr_bytes key = mr_job_key(job), body = mr_job_body(job);
    memcpy(text, body.data, body.size < sizeof text ? body.size : sizeof text - 1);
    char *value_at = text;
    long letter = strtol(text, &value_at, 10);
    uint32_t value = (uint32_t)strtoul(value_at, NULL, 10);
    printf("begin %.6f %ld %.*s\n", now_s(), letter, (int)key.size, (const char *)key.data);
    int count = factorize(value, factors);
    bool right = count == 1 && factors[0] == value; // it is a prime
    printf("end %.6f %ld %s\n", now_s(), letter, right ? "right" : "wrong");
    snprintf(result, sizeof result, "%d factors", count);
    return mr_job_set_result(job, mr_str(result));
}

int main(int argc, char **argv) {
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_options who = { .name = "elf" };
    // A lease that outlives any pause (Ctrl-Z) keeps each letter with its first elf.
    mr_work_options options = { .lease_ms = 3600 * 1000 };
    sigset_t end;
    int signal;
    if (argc != 2)
        return fprintf(stderr, "elf URL\n"), 2;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigprocmask(SIG_BLOCK, &end, NULL); // before there are threads, which inherit it
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (mr_open(argv[1], &who, &engine) < 0 ||
        mr_work(engine, "letters", answer, NULL, &options, &worker) < 0)
        return fprintf(stderr, "elf: %s\n", mr_error()), 1;
    puts("ready"); // SIGTERM is waited for
    sigwait(&end, &signal);
    if (mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0)
        return fprintf(stderr, "elf: %s\n", mr_error()), 1;
    return 0;
}
