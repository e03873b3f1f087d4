// Poll loop: a worker without threads of its own. One loop waits for jobs and for a timer; a job is
// kept with MR_LATER when it arrives and ended when the timer has ticked for it.
#define _POSIX_C_SOURCE 200809L // only needed with -std=c17; gcc and clang define it by default

#include <millrace.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { JOBS = 10, AT_ONCE = 4 };

struct desk {
    mr_job *open[AT_ONCE];
    int count, done, failed;
};

static int receive(mr_job *job, void *arg) {
    struct desk *desk = arg;
    desk->open[desk->count++] = job; // never more than `jobs` at once
    return MR_LATER;
}

static void finish_one(struct desk *desk) {
    if (desk->count == 0)
        return;
    mr_job *job = desk->open[--desk->count];
    printf("job %d: %s\n", (int)mr_job_id(job), (const char *)mr_job_body(job).data);
    if (mr_done(job) < 0)
        desk->failed++;
    desk->done++;
}

static int run(mr_worker *worker, int timer, struct desk *desk) {
    struct pollfd fds[] = { { .fd = mr_worker_fd(worker), .events = POLLIN },
                            { .fd = timer, .events = POLLIN } };
    while (desk->done < JOBS) {
        if (poll(fds, 2, -1) < 0)
            return -1;
        uint64_t ticks = 0;
        if (fds[0].revents && mr_worker_turn(worker) < 0)
            return -1;
        if (fds[1].revents && read(timer, &ticks, sizeof ticks) > 0)
            finish_one(desk);
    }
    return 0;
}

int main(void) {
    struct desk desk = { 0 };
    mr *engine = NULL;
    mr_worker *worker = NULL;
    mr_work_options loop = { .own_loop = 1, .jobs = AT_ONCE };
    struct itimerspec tick = { .it_interval.tv_nsec = 5000000, .it_value.tv_nsec = 5000000 };
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (timer < 0 || timerfd_settime(timer, 0, &tick, NULL) < 0)
        return 1;
    int err = mr_open("mem:", NULL, &engine);
    for (int i = 0; err == 0 && i < JOBS; i++)
        err = mr_push(engine, "letters", mr_str("read and answered"), NULL, NULL);
    if (err == 0)
        err = mr_work(engine, "letters", receive, &desk, &loop, &worker);
    if (err == 0)
        err = run(worker, timer, &desk);
    if (err == 0)
        err = mr_worker_stop(worker, MR_FOREVER);
    if (err == 0)
        err = mr_close(engine);
    close(timer);
    if (err < 0)
        fprintf(stderr, "%s\n", mr_error());
    return err < 0 || desk.failed || desk.done != JOBS;
}
