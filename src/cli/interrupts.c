// See interrupts.h.
#include "cli/interrupts.h"

#include "base/errors.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

void interrupt_add(sigset_t *ours, int number) {
    struct sigaction now;
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        sigaddset(ours, number);
}

int interrupts_open(void) {
    sigset_t ours;
    sigemptyset(&ours);
    interrupt_add(&ours, SIGINT);
    interrupt_add(&ours, SIGTERM);
    interrupt_add(&ours, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ours, NULL);
    int fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? error_set(MR_EIO, "signals cannot be caught: %s", strerror(errno)) : fd;
}

bool interrupt_counts(struct interrupts *i, uint64_t now_us) {
    if (i->count && now_us - i->last_us < INTERRUPT_APART_US)
        return false;
    i->count++;
    i->last_us = now_us;
    return true;
}

bool interrupt_heard(struct interrupts *i, int fd) {
    struct signalfd_siginfo info;
    struct timespec now;
    if (read(fd, &info, sizeof info) != sizeof info)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return interrupt_counts(i, (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000);
}
