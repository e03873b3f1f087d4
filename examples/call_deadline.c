// Call with a deadline: mr_call returns at the deadline, not later; the handler sees that it should
// stop; and nothing it does afterwards is recorded.
#include <millrace.h>
#include <stdatomic.h>
#include <stdio.h>

struct kitchen {
    mr *engine;
    atomic_int given_up;
};

// Pretends to work until it is done or the job was stopped.
static int cook(mr_job *job, void *arg) {
    struct kitchen *kitchen = arg;
    int minutes = *(const char *)mr_job_body(job).data == 'e' ? 1 : 1000;
    for (int i = 0; i < minutes; i++) {
        mr_job *none = NULL;
        mr_take_options moment = { .wait_ms = 10 }; // time passes
        mr_take(kitchen->engine, "nothing", &moment, &none);
        if (mr_job_stopped(job)) {
            kitchen->given_up++;
            return -1;
        }
    }
    return mr_job_set_result(job, mr_str("ready"));
}

int main(void) {
    struct kitchen kitchen = { 0 };
    mr_worker *worker = NULL;
    if (mr_open("mem:", NULL, &kitchen.engine) < 0 ||
        mr_work(kitchen.engine, "orders", cook, &kitchen, NULL, &worker) < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    mr_result answer = { 0 };
    mr_push_options patient = { .deadline_ms = 60000 }, hurried = { .deadline_ms = 100 };
    int egg = mr_call(kitchen.engine, "orders", mr_str("egg"), &patient, &answer);
    printf("egg: %s\n", egg < 0 ? mr_error() : (const char *)answer.body.data);
    mr_result_free(&answer);
    int roast = mr_call(kitchen.engine, "orders", mr_str("roast"), &hurried, &answer);
    printf("roast: %s\n", roast < 0 ? mr_error() : "ready, surprisingly");
    if (mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(kitchen.engine) < 0)
        return 1;
    return egg != 0 || roast != MR_EEXPIRED || kitchen.given_up != 1;
}
