// Interrupts: signals that ask for the end (Ctrl-C, TERM, HUP), and how many have come. After the
// first one what runs may finish, after the second one it is ended; so two signals that mean one
// must count once. They do come in pairs: a terminal or `timeout` signals a group of processes, and
// one of them again.
#ifndef CLI_INTERRUPTS_H
#define CLI_INTERRUPTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { INTERRUPT_APART_US = 300000 };

// Zero is a valid start.
struct interrupts {
    unsigned count;
    uint64_t last_us; // when the last one that counted came
};

// A descriptor that is readable when a signal has come; to be made before there are threads, which
// then do not get them either. MR_EIO.
int interrupts_open(void);

// One more signal came, at this instant: whether it counts.
bool interrupt_counts(struct interrupts *, uint64_t now_us);

// Reads one from the descriptor: whether there was one, and it counts.
bool interrupt_read(struct interrupts *, int fd);

// Waits for signals in place of a thread that is in a call which does not: opening an engine,
// finding a host. A signal that comes between the two calls below, or came before, ends the process
// at once with CLI_INTERRUPTED; so nothing may be left half done there that matters.
struct listener {
    pthread_t thread;
    int signals, over; // what it waits for; `over` is an eventfd
};

// `signals` is of interrupts_open. MR_EIO: there is no listener, and nothing to end.
int listener_begin(struct listener *, int signals);
void listener_end(struct listener *);

// Starts a thread that ends the process, with CLI_INTERRUPTED and this sentence, if a signal is not
// read within INTERRUPT_UNREAD_MS: the thread that reads them is then in a call that waits for an
// engine which does not answer. It watches for as long as the process lives. MR_EIO: there is no
// such thread.
enum { INTERRUPT_UNREAD_MS = 2000 };
int interrupts_guard(int signals, const char *sentence);

// A signal was read, and the caller is about to wait for an engine because of it: from now on the
// guard ends the process also if this is not called again within INTERRUPT_UNREAD_MS.
void interrupts_guard_end(void);

#endif
