// Mailbox: letters arrive in batches, a worker answers them, one log shows it.
//
// What arrives when is the same for every way of working: calendar.h. A way is how many letters are
// answered at once, and what became of it.
#ifndef SANTA_MAILBOX_H
#define SANTA_MAILBOX_H

#include "calendar.h"

#include <stdint.h>

enum { SAMPLES_MOST = 2 * LETTERS_MOST + BATCHES_MOST + 1 };

struct letter {
    double arrived_s, started_s, ended_s; // since the way began
};

struct sample {
    double at_s;
    int waiting, running, level;
};

struct way {
    const char *name, *means;
    uint32_t jobs; // at once; 0: the worker finds out
    struct letter letters[LETTERS_MOST];
    struct sample samples[SAMPLES_MOST]; // at every arrival, start and end
    int sample_count;
    int pushed, started, done, most_running; // by the log
    int committed;                           // by the engine
    int overlaps, overtakings, wrong;        // must stay 0
    int level;                               // at the end
    double wall_s;
};

// Runs the way to its end, in an engine of its own. A negative code: see mr_error().
int way_run(struct way *, const struct calendar *);

#endif
