// Ordered keys: many threads work at once, yet the jobs of one key run one after another, in order.
#include <millrace.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { ACCOUNTS = 5, BOOKINGS = 200 };

struct account {
    int next;          // no lock: only one job of a key runs at a time
    atomic_int inside; // to show that
    atomic_int wrong;
};

static int book(mr_job *job, void *arg) {
    struct account *all = arg;
    struct account *account = &all[strtol(mr_job_key(job).data, NULL, 10)];
    if (atomic_fetch_add(&account->inside, 1) != 0)
        account->wrong++; // overlap
    if (strtol(mr_job_body(job).data, NULL, 10) != account->next++)
        account->wrong++; // overtaking
    atomic_fetch_sub(&account->inside, 1);
    return 0;
}

static int push_all(mr *engine) {
    for (int i = 0; i < BOOKINGS; i++)
        for (int k = 0; k < ACCOUNTS; k++) {
            char number[16], key[2] = { (char)('0' + k), 0 };
            snprintf(number, sizeof number, "%d", i);
            mr_push_options options = { .key = mr_str(key) };
            int err = mr_push(engine, "bookings", mr_str(number), &options, NULL);
            if (err < 0)
                return err;
        }
    return 0;
}

int main(void) {
    static struct account accounts[ACCOUNTS];
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_work_options four = { .jobs = 4 };
    if (mr_open("mem:", NULL, &engine) < 0 ||
        mr_work(engine, "bookings", book, accounts, &four, &worker) < 0 || push_all(engine) < 0 ||
        mr_stage_wait_empty(engine, "bookings", MR_FOREVER) < 0 ||
        mr_worker_stop(worker, MR_FOREVER) < 0 || mr_close(engine) < 0) {
        fprintf(stderr, "%s\n", mr_error());
        return 1;
    }
    int wrong = 0;
    for (int k = 0; k < ACCOUNTS; k++) {
        printf("account %d: %d bookings, %d out of order\n", k, accounts[k].next,
               accounts[k].wrong);
        wrong += accounts[k].wrong + (accounts[k].next != BOOKINGS);
    }
    return wrong != 0;
}
