// See interrupts.h.
#include "cli/interrupts.h"

#include "base/clock.h"
#include "base/errors.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

// A signal that was ignored when this process was started (by nohup, or for what a script runs in
// the background) stays ignored.
static void interrupt_add(sigset_t *ours, int number) {
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

bool interrupt_read(struct interrupts *i, int fd) {
    struct signalfd_siginfo info;
    if (read(fd, &info, sizeof info) != sizeof info)
        return false;
    return interrupt_counts(i, monotonic_us());
}

// ---- Waiting in place of another thread
// -------------------------------------------------------------

static void *listen_until_over(void *arg) {
    const struct listener *l = arg;
    struct pollfd fds[] = { { .fd = l->signals, .events = POLLIN },
                            { .fd = l->over, .events = POLLIN } };
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    if (fds[0].revents & POLLIN) {
        progress_clear();
        _exit(CLI_INTERRUPTED);
    }
    return NULL;
}

int listener_begin(struct listener *l, int signals) {
    l->signals = signals;
    l->over = eventfd(0, EFD_CLOEXEC);
    if (l->over < 0)
        return error_set(MR_EIO, "no eventfd: %s", strerror(errno));
    int failed = pthread_create(&l->thread, NULL, listen_until_over, l);
    if (failed == 0)
        return 0;
    close(l->over);
    return error_set(MR_EIO, "no thread to listen for signals: %s", strerror(failed));
}

void listener_end(struct listener *l) {
    uint64_t one = 1;
    while (write(l->over, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(l->thread, NULL);
    close(l->over);
}

// ---- Signals that are not read ----------------------------------------------------------------

static struct {
    int signals;
    const char *sentence;
    _Atomic uint64_t ends_us; // when interrupts_guard_end was called last; 0: not yet
} guarded;

static bool signal_waits(int wait_ms) {
    struct pollfd on = { .fd = guarded.signals, .events = POLLIN };
    while (poll(&on, 1, wait_ms) < 0 && errno == EINTR)
        ;
    return on.revents != 0;
}

enum { STEP_MS = 100 };

static bool end_is_stuck(void) {
    uint64_t since_us = atomic_load(&guarded.ends_us);
    return since_us && monotonic_us() - since_us > INTERRUPT_UNREAD_MS * UINT64_C(1000);
}

// Whether a signal that waits is read in time.
static bool interrupts_is_read(void) {
    for (int ms = 0; ms < INTERRUPT_UNREAD_MS; ms += STEP_MS) {
        if (!signal_waits(0))
            return true;
        poll(NULL, 0, STEP_MS);
    }
    return !signal_waits(0);
}

static void *guard_signals(void *arg) {
    (void)arg;
    while (!end_is_stuck() && (!signal_waits(STEP_MS) || interrupts_is_read()))
        ;
    complain("%s", guarded.sentence);
    _exit(CLI_INTERRUPTED);
}

int interrupts_guard(int signals, const char *sentence) {
    pthread_t thread;
    guarded.signals = signals;
    guarded.sentence = sentence;
    int failed = pthread_create(&thread, NULL, guard_signals, NULL);
    if (failed)
        return error_set(MR_EIO, "no thread to listen for signals: %s", strerror(failed));
    pthread_detach(thread);
    return 0;
}

void interrupts_guard_end(void) {
    atomic_store(&guarded.ends_us, monotonic_us());
}
