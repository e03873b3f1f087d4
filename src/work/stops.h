// Stops: how a thread that waits for a process learns from another thread that the job must stop.
// The waiting thread enters with its job and polls a descriptor; the other one rings.
//
//     waiting thread: stops_enter(job) ─► poll(stop->ring …) ─► stops_leave
//     any thread:     stops_ring_any(job)
//
// A job is known by its address: the same job taken again is another one. Rings before stops_enter
// are not lost: the engine marks the job first.
#ifndef WORK_STOPS_H
#define WORK_STOPS_H

#include "base/list.h"
#include "engine/engine.h"

#include <pthread.h>

// The entry of one waiting thread; used again by the next.
struct stop {
    struct list link; // among the busy, or the idle
    const mr_job *job;
    int ring; // readable: stop; it stays so until stops_leave
};

struct stops {
    pthread_mutex_t lock; // guards the rest, and the jobs of the busy
    struct list busy, idle;
    bool all;
};

void stops_init(struct stops *);
void stops_finish(struct stops *); // no thread is between enter and leave

// MR_ENOMEM; MR_EBUSY: no descriptor is left. `job` may be NULL.
int stops_enter(struct stops *, const mr_job *job, struct stop **out);
void stops_leave(struct stops *, struct stop *);
bool stop_is_rung(const struct stop *);

// Rings for one job; NULL: for all, and for all that enter later. Any thread.
void stops_ring_any(struct stops *, const mr_job *job);

// When a process that was asked to end is to be killed: after its grace; but if its job's lease was
// lost, when that ends at the latest: then another worker may have the job.
uint64_t stop_kill_at_ms(const mr_job *, int64_t grace_ms);

// Whether the job was stopped because its lease is lost.
bool stop_is_loss(const mr_job *);

// "stopped: the job was cancelled"
void stop_describe(const mr_job *, char *out, size_t size);

#endif
