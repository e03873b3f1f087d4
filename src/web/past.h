// Past: what stages did lately, for plots: samples of what is counted anyway, about a second apart,
// in a ring of fixed size for each stage.
//
// Nobody wakes up for it. A turn that comes anyway looks whether a second has passed; and since
// nothing changes between turns, the first one after a pause can still say how things were left at
// its beginning:
//
//     turns      | |||| ||                              |||| |
//     samples    ▲      ·                               ▲
//                       └ as it was left, taken in the next turn before anything changes
//
// One thread.
#ifndef WEB_PAST_H
#define WEB_PAST_H

#include "millrace.h"
#include "web/limits.h"

struct doc;
struct host;
struct past_stage;

// Zero is a valid start.
struct past {
    struct past_stage *stages[WEB_STAGES];
    uint32_t count;
    uint64_t sampled_ms, turn_ms; // the last of each
};

void past_finish(struct past *);

// A turn has begun, and nothing was changed in it yet.
void past_turn(struct past *, struct host *);

// Writes the samples of a stage, as an object of columns; without any, of empty ones.
void past_write(const struct past *, mr_bytes stage, struct doc *);

#endif
