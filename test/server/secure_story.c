// secure_story URL [CA [CERT KEY]]: what a program does with a server, over TLS where the URL names
// it so: pushes, works, calls, with small and large bodies. Exits 0 if all of it came back right;
// else says what the library says. Run by guard_test.py.
#include <millrace.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 2000, LARGE = 3 << 20 };

static atomic_int worked;

static int work(mr_job *job, void *arg) {
    (void)arg;
    worked++;
    return mr_job_set_result(job, mr_job_body(job));
}

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, mr_error());
    return 1;
}

static int call_large(mr *m) {
    char *body = malloc(LARGE);
    mr_result result = { 0 };
    for (int i = 0; i < LARGE; i++)
        body[i] = (char)(i * 7 + i / 251);
    int err = mr_call(m, "story", (mr_bytes){ body, LARGE }, NULL, &result);
    bool same = err >= 0 && result.body.size == LARGE && memcmp(result.body.data, body, LARGE) == 0;
    mr_result_free(&result);
    free(body);
    return same ? 0 : failed("call");
}

static int tell(mr *m) {
    mr_worker *worker;
    mr_work_options options = { .jobs = 4 };
    for (int i = 0; i < JOBS; i++)
        if (mr_push(m, "story", mr_str("a small one"), NULL, NULL) < 0)
            return failed("push");
    if (mr_work(m, "story", work, NULL, &options, &worker) < 0)
        return failed("work");
    int bad = call_large(m);
    if (mr_stage_wait_empty(m, "story", MR_FOREVER) < 0)
        bad = failed("wait");
    if (mr_worker_stop(worker, MR_FOREVER) < 0)
        bad = failed("stop");
    if (!bad && worked != JOBS + 1)
        bad = fprintf(stderr, "%d jobs, not %d\n", worked, JOBS + 1);
    return bad;
}

int main(int argc, char **argv) {
    mr *m;
    mr_options options = { .tls_ca = argc > 2 ? argv[2] : NULL,
                           .tls_cert = argc > 4 ? argv[3] : NULL,
                           .tls_key = argc > 4 ? argv[4] : NULL,
                           .secret = getenv("MILLRACE_TOKEN") };
    if (argc < 2 || mr_open(argv[1], &options, &m) < 0)
        return failed("open");
    int bad = tell(m);
    if (mr_close(m) < 0)
        bad = failed("close");
    return bad ? 1 : 0;
}
