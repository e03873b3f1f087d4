// Instead of src/work/exec.c: commands that take no time. Each writes its last argument, as echo
// would, and has ended. Linked with the rest of the command, `instant run` takes a million lines in
// seconds, through all but the processes.
#include "work/exec.h"

#include <stdlib.h>
#include <string.h>

struct execs {
    char none;
};

int execs_create(const struct execs_options *options, struct execs **out) {
    (void)options;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : MR_ENOMEM;
}

void execs_destroy(struct execs *e) {
    free(e);
}

int exec_run(struct execs *e, const struct exec_order *order, struct exec_result *out) {
    (void)e;
    const char *last = "";
    for (const char *const *word = order->argv; *word; word++)
        last = *word;
    *out = (struct exec_result){ .end = EXEC_EXITED };
    int err = spool_append(&out->output, last, strlen(last));
    return err < 0 ? err : spool_append(&out->output, "\n", 1);
}

void exec_stop_any(struct execs *e, const mr_job *job) {
    (void)e, (void)job;
}

void execs_stop_any(struct execs *e) {
    (void)e;
}

void exec_result_finish(struct exec_result *r) {
    spool_finish(&r->output);
    spool_finish(&r->errors);
}

bool exec_is_missing(const struct exec_result *r) {
    (void)r;
    return false;
}
