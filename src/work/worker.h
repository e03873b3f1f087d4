// Worker: pulls jobs of some stages and runs a handler on them.
//
//     threads:   take ─► handler ─► done, fail ─► take …        one thread a job in flight
//     tuner:     sets how many may be in flight; is fed every commit and lack of work
//     beater:    keeps the leases of the jobs
//     own loop:  worker_fd is readable ─► worker_turn: the same, in the caller's thread
//
// In flight is everything started and not ended, also what a handler kept with MR_LATER. So a slow
// worker never gathers a pile. When the level falls, what is in flight runs to its end, and threads
// already waiting for work may still take one job each.
#ifndef WORK_WORKER_H
#define WORK_WORKER_H

#include "engine/engine.h"
#include "tune/tuner.h"

enum { WORKER_JOBS = TUNER_MOST }; // in flight at most

struct worker;

struct worker_options {
    const mr_bytes *stages; // served in this order; copied
    size_t stage_count;
    mr_handler *handler;
    void *arg; // of handler and on_stop
    void (*on_stop)(mr_job *, void *arg);
    uint32_t jobs;                     // 0: as many as the tuner finds to suit
    const struct tuner_options *tuner; // instead of `jobs`; copied; NULL: by `jobs`
    bool (*is_idle)(void);             // the machine; NULL: machine_is_idle. Called by a thread
    uint32_t batch;                    // at least 1
    bool own_loop;
    int64_t lease_ms;
};

// MR_ENOMEM; the engine's errors.
int worker_open(struct engine *, const struct worker_options *, struct worker **out);

// Drains and frees. MR_EBUSY: not drained in time, or called by its own handler; call again.
int worker_stop(struct worker *, int64_t wait_ms);

// How many may be in flight now, at least 1; any thread.
uint32_t worker_level(const struct worker *);

struct worker_info {
    uint32_t level, choice; // what may be in flight now; what the tuner returns to between trials
    uint32_t in_flight, threads;
    uint64_t completed;                 // jobs committed
    struct tuner_step path[TUNER_PATH]; // the latest moves of the choice, oldest first
    size_t steps;
    char why[160]; // the tuner's reason for its choice, in words
};

// How it goes; any thread. Counts are of the moment and need not agree with each other.
void worker_look(struct worker *, struct worker_info *out);

// With own_loop only; else MR_EINVAL. The descriptor stays the worker's.
int worker_fd(const struct worker *);
int worker_turn(struct worker *);

#endif
