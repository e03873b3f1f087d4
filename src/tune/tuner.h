// Tuner: how many jobs a worker should run at once. It is fed with events and read for a level.
//
//     completions ──►┌───────┐
//     an empty queue ►│ tuner │──► level          pure: no clock, no thread, no randomness
//                     └───────┘
//
// Two kinds:
//   * TUNER_PROBE, the default, seeks the most completions per second X with the fewest jobs L in
//     flight that reach it: the largest ln X − 0.03 ln L. It compares levels by trial: see
//     probe.c.
//   * TUNER_FIXED stays where it is.
//
// Tuners that share a machine would raise each other's level without end, since each one takes
// from the others what it gains. So a tuner can be told what the others complete: what more at once
// takes from them is no gain, and what fewer leave to them is no loss.
//
// The same events in the same order give the same levels: to replay a run, keep what was fed
// (`trace`) and feed it again. A tuner is plain memory, to be copied or dropped; one thread at a
// time.
#ifndef TUNE_TUNER_H
#define TUNE_TUNER_H

#include "tune/evidence.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TUNER_MOST = 4096,     // the highest level
    TUNER_IDLE_MOST = 256, // the highest that idle processors alone are a reason for
};

enum tuner_kind { TUNER_PROBE, TUNER_FIXED };

enum tuner_event_kind {
    TUNER_COMPLETED, // a job has ended
    TUNER_STARVED,   // there was room for a job, and none to be had
    TUNER_IDLE,      // as many as the level are in flight, and the processors have nothing to do
};

struct tuner_event {
    enum tuner_event_kind kind;
    uint32_t in_flight; // COMPLETED: how many there were, this one included
    uint64_t now_ns;
    uint64_t ran_ns; // COMPLETED: time in flight; 0: not known
    // COMPLETED: other tuners that may share the machine, and what they have completed so far.
    uint32_t others;
    uint64_t others_completed;
};

// Where events are kept for a replay; the first `room` of them.
struct tuner_trace {
    struct tuner_event *events;
    size_t count, room;
};

struct tuner_options {
    enum tuner_kind kind;
    uint32_t first;            // where it starts, and where fixed stays; 0: 1
    uint32_t least, most;      // bounds of the level; 0: 1 and TUNER_MOST
    struct tuner_trace *trace; // borrowed; NULL: none
};

// Why the level of choice moved.
enum tuner_why {
    TUNER_BEGAN,    // where it started
    TUNER_WAITING,  // the jobs in flight wait, and the processors are idle
    TUNER_FASTER,   // more at once completes more
    TUNER_FEWER,    // fewer at once completes as much
    TUNER_TOO_MUCH, // fewer at once completes more: there was too much in flight
};

struct tuner_step {
    uint64_t at_ns;
    uint32_t level;
    enum tuner_why why;
};

enum { TUNER_PATH = 32 };

// How a level off the level of choice did beside it, when last tried.
struct tuner_trial {
    uint32_t level; // 0: not tried
    double gain;    // of throughput, in logarithms
    bool sure;      // clearly worse, all things considered; else it made no difference
};

// ---- Inside; use the functions below ----------------------------------------------------------

struct tuner_probe {
    struct evidence evidence;
    int phase;

    // The round being measured, and the block of rounds.
    struct arm round, block;
    uint32_t settling; // completions to let pass first
    uint64_t in_flight_sum, began_ns, now_ns;
    uint32_t others;                         // tuners
    uint64_t others_began, others_completed; // when the round began, and now
    bool starved;
    uint32_t rounds;
    uint64_t moved_ns, since_move; // when the level last changed, and completions since
    uint32_t turn;                 // rounds at the level of choice since the last trial
    uint32_t odd;                  // blocks in a row unlike what is known

    // Places of levels: the present one, the one of choice, the one on trial beside it.
    uint32_t place, choice, trial;

    bool shrinks; // growing began with idle processors: the level may be too high already

    // The trial, and the search it is part of.
    int side;
    uint32_t fineness;
    struct arm trial_sum;
    struct arm beside, last_block; // of the level of choice: during the trial; the latest
    uint32_t trial_blocks;
    bool over[2], worse[2]; // sides: decided; clearly worse
    bool again;             // only a look whether things are still so
    uint32_t looks;
    double spent, regret; // completions spent on comparing, and lost by it

    double hold;                // completions until the next look
    uint32_t pause, next_pause; // blocks until a trial that lacked work; and the next such pause
};

struct tuner {
    struct tuner_options options;
    uint32_t level;
    struct tuner_step path[TUNER_PATH]; // the latest moves of the level of choice
    uint32_t moves;
    struct tuner_trial fewer, more;
    struct tuner_probe probe;
};

void probe_init(struct tuner *);
void probe_feed(struct tuner *, const struct tuner_event *);
void tuner_note(struct tuner *, uint64_t now_ns, uint32_t level, enum tuner_why);

// ---- Use --------------------------------------------------------------------------------------

void tuner_init(struct tuner *, const struct tuner_options *);

// Takes note of what happened; the level may change. `now_ns` never goes back.
void tuner_feed(struct tuner *, const struct tuner_event *);

// How many may be in flight now.
static inline uint32_t tuner_level(const struct tuner *t) {
    return t->level;
}

// Whether TUNER_IDLE would be of use: nothing is known yet but that jobs are in flight.
bool tuner_asks_idle(const struct tuner *);

// The level of choice: what the level returns to between trials.
uint32_t tuner_choice(const struct tuner *);

// Copies the latest moves of the level of choice, oldest first; returns how many.
size_t tuner_path(const struct tuner *, struct tuner_step out[TUNER_PATH]);

// Says in a sentence why the level is what it is. Ends with 0, shortened to fit.
void tuner_describe(const struct tuner *, char *out, size_t size);

#endif
