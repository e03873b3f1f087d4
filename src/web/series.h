// Series: recent samples of the counters of each stage, for plots, about a second apart, in a ring
// buffer of fixed size for each stage. The samples are also collected in histories (history.h).
//
// Sampling causes no wake-ups. Each turn of the loop checks whether a second has passed; and since
// nothing changes between turns, the first turn after a pause can still sample the state at the
// beginning of the pause:
//
//     turns      | |||| ||                              |||| |
//     samples    ▲      ·                               ▲
//                       └ the state before the pause, sampled in the next turn before any change
//
// A sample costs a look at the stages that are in the series already; new ones are searched for
// among a bounded number of places, so with very many stages it may take some samples to find one.
//
// One thread.
#ifndef WEB_SERIES_H
#define WEB_SERIES_H

#include "base/map.h"
#include "millrace.h"
#include "web/history.h"
#include "web/limits.h"

struct doc;
struct host;
struct series_stage;

// Zero is a valid start.
struct series {
    struct series_stage *stages[WEB_STAGES]; // NULL: free
    struct map by_name;                      // from the hash of a name to its index + 1
    size_t place;                            // at which the search for new stages continues
    bool all_known;                          // the last search found every stage
    uint64_t sampled_ms, turn_ms;            // times of the last sample and the last turn
};

void series_finish(struct series *);

// To be called at the start of a turn, before any change.
void series_turn(struct series *, struct host *);

// Writes the samples of a stage as an object of columns, which are empty if there are none.
void series_write(const struct series *, mr_bytes stage, struct doc *);

// Writes the history of a stage; without points if there is none.
void series_write_history(const struct series *, mr_bytes stage, enum history_span, struct doc *);

// Adds the stage at this index, less than WEB_STAGES, to the sum, if there is one and it counts.
void series_sum(const struct series *, uint32_t index, enum history_span,
                bool (*counts)(const void *arg, mr_bytes stage), const void *arg,
                struct history_sum *to);

#endif
