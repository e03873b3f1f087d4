// Timeouts: a list in the order in which they were started. All timeouts of a list have the same
// length, so the first one always expires next.
//
// Time is an argument. One thread.
#ifndef SERVER_TIMEOUTS_H
#define SERVER_TIMEOUTS_H

#include "base/list.h"

#include <stdint.h>

struct timeout {
    struct list of_timeouts; // unlinked if it does not run
    uint64_t since_ms;
};

struct timeouts {
    struct list list;
    uint64_t ms; // length; 0: timeouts never expire
};

void timeout_begin(struct timeouts *, struct timeout *, uint64_t now_ms); // restarts a running one
void timeout_end(struct timeout *); // does nothing if it does not run

// Removes and returns the next expired one; NULL: none.
struct timeout *timeout_expired(struct timeouts *, uint64_t now_ms);

uint64_t timeouts_next_ms(const struct timeouts *); // when the next one expires; UINT64_MAX: none

#endif
