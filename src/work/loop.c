// A worker in the program's own event loop: no threads, one descriptor.
//
//     ring (eventfd): a job, a job to stop, a place free ──┐
//     timer (timerfd): a kept job's lease wants a beat ────┴─ epoll ──► worker_fd
#include "base/errors.h"
#include "work/state.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { JOBS_A_TURN = 16 }; // then the program's loop has its turn

static int loop_add(struct worker *w, int fd) {
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    return fd < 0 ? -1 : epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

int loop_open(struct worker *w) {
    w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    w->ring_fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC); // the first turn takes
    w->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (w->epoll_fd < 0 || loop_add(w, w->ring_fd) < 0 || loop_add(w, w->timer_fd) < 0)
        return error_set(MR_EIO, "no descriptors for a worker: %s", strerror(errno));
    return 0;
}

void loop_close(struct worker *w) {
    int *fds[] = { &w->epoll_fd, &w->ring_fd, &w->timer_fd };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void loop_ring(void *worker) {
    struct worker *w = worker;
    uint64_t one = 1;
    ssize_t written = write(w->ring_fd, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

static void drain_counter(int fd) {
    uint64_t count;
    ssize_t got = read(fd, &count, sizeof count);
    (void)got; // nothing there is fine
}

static void plan_beat(struct worker *w) {
    int64_t ms = atomic_load(&w->kept) > 0 ? w->engine->impl->beat_all(w->puller) : -1;
    struct itimerspec timer = { 0 }; // zero: none
    if (ms >= 0) {
        timer.it_value.tv_sec = ms / 1000;
        timer.it_value.tv_nsec = (ms % 1000) * 1000000 + 1;
    }
    timerfd_settime(w->timer_fd, 0, &timer, NULL);
}

static bool has_place(const struct worker *w) {
    return !atomic_load(&w->stopping) && atomic_load(&w->kept) < (int)worker_level(w);
}

int worker_fd(const struct worker *w) {
    if (!w->options.own_loop)
        return error_set(MR_EINVAL, "this worker has threads of its own: there is no descriptor; "
                                    "open it with own_loop");
    return w->epoll_fd;
}

int worker_turn(struct worker *w) {
    if (!w->options.own_loop || worker_is_calling(w))
        return error_set(MR_EINVAL, w->options.own_loop
                                        ? "a turn inside a handler of the same worker"
                                        : "this worker has threads of its own: it takes no turns");
    drain_counter(w->ring_fd);
    drain_counter(w->timer_fd);
    w->engine->impl->stop_notices(w->puller);
    int err = 0;
    for (int i = 0; err >= 0 && has_place(w); i++) {
        if (i == JOBS_A_TURN) {
            loop_ring(w);
            break;
        }
        mr_job *job;
        w->pull.level = worker_level(w);
        err = w->engine->impl->take(w->puller, &w->pull, &job);
        if (err == MR_EAGAIN)
            worker_starved(w);
        if (err >= 0)
            runner_run(&w->runners[0], job);
    }
    plan_beat(w);
    return err == MR_EAGAIN ? 0 : err;
}
