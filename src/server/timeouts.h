// Timeouts: what the server waits for, in the order in which it began to. All timeouts of a list
// are equally long, so the one that expires next is always the first.
//
// Time is an argument. One thread.
#ifndef SERVER_TIMEOUTS_H
#define SERVER_TIMEOUTS_H

#include "base/list.h"

#include <stdint.h>

struct timeout {
    struct list of_timeouts; // in none: it does not run
    uint64_t since_ms;
};

struct timeouts {
    struct list list;
    uint64_t ms; // how long; 0: for ever, and none is noted
};

void timeout_begin(struct timeouts *, struct timeout *, uint64_t now_ms); // or begins anew
void timeout_end(struct timeout *); // also one that does not run

// The next one that has expired, which is removed; NULL: none has.
struct timeout *timeout_expired(struct timeouts *, uint64_t now_ms);

uint64_t timeouts_next_ms(const struct timeouts *); // when to ask again; UINT64_MAX: not at all

#endif
