// Health: what has become of the store under the server, said once when it changes: that the disk
// is full and has room again, that the log has failed. Sessions hear the same in their replies.
#ifndef SERVER_HEALTH_H
#define SERVER_HEALTH_H

#include "server/host.h"

// Zero is a valid start.
struct health {
    uint64_t refused; // pushes refused for lack of room when it was looked last
    uint64_t damaged; // entries that were found damaged by then
    bool full, stopped;
};

// At the end of a turn; costs nothing while no push was refused.
void health_look(struct health *, const struct host *);

// How it is now, in a word: "loading", "stopped", "full" or "ok"; and why, in a sentence, which is
// empty if it is ok.
const char *health_word(const struct host *, const char **out_why);

#endif
