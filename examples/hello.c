// Hello: one engine in memory, one worker, one call that waits for its answer.
#include <millrace.h>
#include <stdio.h>

static int greet(mr_job *job, void *arg) {
    char text[64];
    mr_bytes name = mr_job_body(job);
    snprintf(text, sizeof text, "hello, %.*s", (int)name.size, (const char *)name.data);
    (void)arg;
    return mr_job_set_result(job, mr_str(text));
}

int main(void) {
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_result answer = { 0 };
    if (mr_open("mem:", NULL, &engine) < 0 ||
        mr_work(engine, "greetings", greet, NULL, NULL, &worker) < 0 ||
        mr_call(engine, "greetings", mr_str("world"), NULL, &answer) < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    printf("%.*s\n", (int)answer.body.size, (const char *)answer.body.data);
    int wrong = answer.body.size != 12 || memcmp(answer.body.data, "hello, world", 12) != 0;
    mr_result_free(&answer);
    return wrong || mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0;
}
