// History: random steps from one seed, run on the core and on the model.
//
// A step is an operation and a seed of its own. The exact command is chosen when the step runs,
// from the state of the model (its leases, its free slots). So any step can be left out and the
// rest is still valid: that is how a failing history is shortened.
#ifndef TEST_SUPPORT_HISTORY_H
#define TEST_SUPPORT_HISTORY_H

#include "lockstep.h"

#include <stdio.h>

enum { STEPS = 400 };

// Optional features of a history.
enum feature {
    FEATURE_CALLS = 1,
    FEATURE_BLOCKS = 2,
    FEATURE_ROOM = 4,     // pushes that wait for room
    FEATURE_CHANNELS = 8, // max-channel
    FEATURE_NUMBERS = 16,
    FEATURE_MARKS = 32, // edges and high marks
    FEATURE_CRASH = 64,
    FEATURE_CLEAN = 128,
    FEATURE_POLICY = 256,
    FEATURE_SCHEDULES = 512,
    FEATURE_GROUPS = 1024,
    FEATURE_ALL = 2047,
};

struct step {
    enum op op;
    uint64_t seed;
};

struct history {
    uint64_t seed;
    unsigned features;
    struct step steps[STEPS];
    size_t count;
};

struct history_result {
    bool good;
    bool ambiguous; // ended early, because the rules do not define an order
    size_t steps;   // run
    size_t appends;
    uint64_t log_hash;
    long failures; // injected, and noticed
    char why[512];
};

// The faults to inject in a run; see NO_TROUBLE for none.
struct trouble {
    enum fault fault;
    long fail_alloc, refuse_append;
    int refuse_with;
};

#define NO_TROUBLE ((struct trouble){ .fail_alloc = -1, .refuse_append = -1 })

void history_make(struct history *, uint64_t seed);

// Runs all steps; prints each command to `script` unless NULL.
void history_run(const struct history *, struct trouble, FILE *script, struct history_result *out);

// Removes steps as long as the history still fails.
void history_shrink(struct history *, struct trouble);

// Runs the same commands on a second core, whose time moves in jumps. False: the records differ.
bool history_repeats(const struct history *);

#endif
