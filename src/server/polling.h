// Polling: whether a loop looks at its sockets again and again for a moment before it sleeps.
// Sleeping and waking cost a server and its client more than the few microseconds until the next
// command comes, if it comes that soon.
//
//     the last sleeps were short ──► poll for POLL_NS at most ──► sleep
//
// A loop learns from how long it slept, so an idle one never polls, and one whose commands come at
// longer intervals does not either. A loop that had to give its processor to other threads while it
// polled stops for a while, since no processor is idle. Pure: time and counts are arguments.
#ifndef SERVER_POLLING_H
#define SERVER_POLLING_H

#include <stdbool.h>
#include <stdint.h>

enum { POLL_NS = 50000 };

// Zero is a valid start.
struct polling {
    uint32_t short_share;   // of the last sleeps, those shorter than POLL_NS: of SHORT_ALL
    uint32_t polls;         // since the cost of the last ones was known
    uint64_t preempted;     // the count of the thread at the last look
    uint64_t rest_until_ns; // does not poll until then
    uint64_t rest_ns;       // how long the last rest was
};

// Whether to poll before the sleep that would begin now.
bool polling_pays(const struct polling *, uint64_t now_ns);

// The loop has slept so long, the time that it polled before that included.
void polling_slept(struct polling *, uint64_t ns);

// It has polled. True: it is time to call polling_look.
bool polling_polled(struct polling *);

// How often the thread was preempted since it began, as the system counts it.
void polling_look(struct polling *, uint64_t preempted, uint64_t now_ns);

#endif
