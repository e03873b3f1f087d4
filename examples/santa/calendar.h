// Calendar: which letters arrive when, in batches, drawn as the story draws them.
//
// A letter is a job: {batch, number, value}. Its key is its street, so that letters of one street
// are answered one after another, in the order they came.
#ifndef SANTA_CALENDAR_H
#define SANTA_CALENDAR_H

#include <stdint.h>

enum {
    BATCH_MOST = 10,
    BATCHES_MOST = 120,
    LETTERS_MOST = BATCHES_MOST * BATCH_MOST,
    STREETS = 64,
};

struct calendar {
    int batches, letters;
    double interval_s;
    int first[BATCHES_MOST + 1]; // letter of each batch; the last entry is `letters`
    int street[LETTERS_MOST];
    uint32_t value; // of every letter: the number to factorise
    double wait_s;  // above 0: letters wait for so long instead, and need no processor
};

// Draws batches for a way of so many seconds; `value` is left to be filled in.
void calendar_draw(struct calendar *, double seconds);

// The same, with letters that ask for a little more than the processors can do while they arrive:
// a backlog grows, and dissolves when no more arrive. Returns how long a letter takes alone;
// negative: no threads to find out with.
double calendar_plan(struct calendar *, double seconds, int processors);

// Letters that wait, and arrive during all of the time: `at_once` at once would keep up with them.
void calendar_draw_busy(struct calendar *, double seconds, int at_once);

// Letters that wait, for ways of so many seconds together: one at once for each processor would
// take half of that. Returns how long a letter waits.
double calendar_plan_waits(struct calendar *, double seconds, int processors);

#endif
