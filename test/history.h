// History: a run of random steps, from one seed, said to core and model.
//
// A step is an operation and a seed of its own; what exactly it says is settled when it is said,
// from what the model knows then (which leases there are, which seats are free). So any step can be
// left out and the rest still makes sense: that is how a failing history is made short.
#ifndef TEST_HISTORY_H
#define TEST_HISTORY_H

#include "twin.h"

#include <stdio.h>

enum { STEPS = 400 };

// What a history may use, beside the plain things.
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
    FEATURE_ALL = 511,
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
    bool ambiguous; // ended early: the rules leave an order open
    size_t steps;   // said
    size_t appends;
    uint64_t log_hash;
    long failures; // injected, and noticed
    char why[512];
};

// What is made to fail in a run; zero is nothing but for the two countdowns: negative is none.
struct trouble {
    enum fault fault;
    long fail_alloc, refuse_append;
    int refuse_with;
};

#define NO_TROUBLE ((struct trouble){ .fail_alloc = -1, .refuse_append = -1 })

void history_make(struct history *, uint64_t seed);

// Says it all; prints each command to `script` unless NULL.
void history_run(const struct history *, struct trouble, FILE *script, struct history_result *out);

// Leaves out steps as long as it still fails.
void history_shrink(struct history *, struct trouble);

// The same commands to a second core, which sees time in jumps. False: other records.
bool history_repeats(const struct history *);

#endif
