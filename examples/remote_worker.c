// A worker with Millrace's own library: remote_worker [millrace://HOST:PORT]. The library
// sends beats, reconnects and chooses how many jobs run at once; SIGTERM lets running jobs end.
#define _POSIX_C_SOURCE 200809L // only needed with -std=c17; gcc and clang define it by default

#include <millrace.h>
#include <signal.h>
#include <stdio.h>

static int greet(mr_job *job, void *arg) {
    char text[128];
    mr_bytes name = mr_job_body(job);
    (void)arg;
    if (name.size > 100)
        return mr_fail(job, "too long a name", MR_NEVER);
    snprintf(text, sizeof text, "hello, %.*s", (int)name.size, (const char *)name.data);
    return mr_job_set_result(job, mr_str(text));
}

int main(int argc, char **argv) {
    mr *engine = NULL;
    mr_worker *worker = NULL;
    sigset_t end;
    int signal;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    sigaddset(&end, SIGINT);
    sigprocmask(SIG_BLOCK, &end, NULL); // before there are threads, which inherit it
    if (mr_open(argc > 1 ? argv[1] : "millrace://127.0.0.1", NULL, &engine) < 0 ||
        mr_work(engine, "greetings", greet, NULL, NULL, &worker) < 0)
        return fprintf(stderr, "%s\n", mr_error()), 1;
    sigwait(&end, &signal);
    return mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0;
}
