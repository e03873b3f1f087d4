// Mailbox: letters arrive in batches, a worker answers them, one tidy log tells of it.
//
//     calendar   what arrives when: the same for every way of working
//     way        how many letters are answered at once, and what became of it
//
// A letter is a job: {batch, number, value}. Its key is its street, so that letters of one street
// are answered one after another, in the order they came.
#ifndef SANTA_MAILBOX_H
#define SANTA_MAILBOX_H

#include <stdint.h>

enum {
    BATCH_MOST = 10,
    BATCHES_MOST = 120,
    LETTERS_MOST = BATCHES_MOST * BATCH_MOST,
    STREETS = 64,
    SAMPLES_MOST = 2 * LETTERS_MOST + BATCHES_MOST,
};

struct calendar {
    int batches, letters;
    double interval_s;
    int first[BATCHES_MOST + 1]; // letter of each batch; the last entry is `letters`
    int street[LETTERS_MOST];
    uint32_t value; // of every letter: the number to factorise
};

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

// Draws batches for a way of so many seconds; `value` is left to be filled in.
void calendar_draw(struct calendar *, double seconds);

// Runs the way to its end, in an engine of its own. A negative code: see mr_error().
int way_run(struct way *, const struct calendar *);

#endif
