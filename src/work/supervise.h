// Supervise: how often what crashes is started again. A supervisor allows so many restarts in a
// window of time; a program that needs more has a fault that restarting does not cure, and the
// supervisor gives up for good. Pure: time is an argument, and it does not go back.
#ifndef WORK_SUPERVISE_H
#define WORK_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

enum { SUPERVISOR_RESTARTS = 10, SUPERVISOR_WINDOW_MS = 10000, SUPERVISOR_RESTARTS_MOST = 100 };

struct supervisor {
    uint32_t restarts; // allowed in the window; at most SUPERVISOR_RESTARTS_MOST
    uint64_t window_ms;
    bool gave_up;
    uint64_t count;                               // of all so far
    uint64_t recent_ms[SUPERVISOR_RESTARTS_MOST]; // when the last ones were, in a ring
};

// Zeros mean the defaults above.
void supervisor_init(struct supervisor *, uint32_t restarts, uint64_t window_ms);

// Something has crashed: may it be started again? If so, that counts.
bool supervisor_restart(struct supervisor *, uint64_t now_ms);

#endif
