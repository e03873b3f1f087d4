// Health: writes a notice when the state of the store changes: the disk is full, or has room again;
// the log has failed; the store of a node does not answer, or does again; cleaning has found
// damage. Clients get the same as errors in replies.
#ifndef SERVER_HEALTH_H
#define SERVER_HEALTH_H

#include "server/host.h"

// Zero is a valid start.
struct health {
    uint64_t refused;   // pushes refused for lack of room at the last look
    uint64_t damaged;   // damaged entries found by then
    uint64_t looked_ms; // when the store of a node was looked at last
    bool full, stopped, outage;
};

// Called at the end of a turn; reads the logs only if a push was refused, and those of a node once
// a second.
void health_look(struct health *, const struct host *);

// The health in one word: "loading", "stopped", "full", "waiting" (for a store that does not
// answer) or "ok"; `out_why` is a sentence, empty for "ok".
const char *health_word(const struct host *, const char **out_why);

// For how long the store has not answered; 0: it does.
uint64_t health_waiting_ms(const struct host *);

#endif
