// Worker: pulls jobs of some stages and runs a handler on them.
//
//     threads:   take ─► handler ─► done, fail ─► take …        one thread a job in flight
//     beater:    keeps the leases of what is in hand
//     own loop:  worker_fd is readable ─► worker_turn: the same, in the caller's thread
//
// In flight is everything started and not ended, also what a handler kept with MR_LATER: for each
// such job one thread pauses. So a slow worker never gathers a pile.
#ifndef WORK_WORKER_H
#define WORK_WORKER_H

#include "engine/engine.h"

enum { WORKER_JOBS = 4096 }; // in flight at most

struct worker;

struct worker_options {
    const mr_bytes *stages; // served in this order; copied
    size_t stage_count;
    mr_handler *handler;
    void *arg; // of handler and on_stop
    void (*on_stop)(mr_job *, void *arg);
    uint32_t jobs;  // 0: as many as suit
    uint32_t batch; // at least 1
    bool own_loop;
    int64_t lease_ms;
};

// MR_ENOMEM; the engine's errors.
int worker_open(struct engine *, const struct worker_options *, struct worker **out);

// Drains and frees. MR_EBUSY: not drained in time, or called by its own handler; call again.
int worker_stop(struct worker *, int64_t wait_ms);

// How many may be in flight now. Any thread.
uint32_t worker_level(const struct worker *);

// With own_loop only; else MR_EINVAL. The descriptor stays the worker's.
int worker_fd(const struct worker *);
int worker_turn(struct worker *);

#endif
