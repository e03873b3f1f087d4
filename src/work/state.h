// What a worker remembers; shared by the files of this folder only.
#ifndef WORK_STATE_H
#define WORK_STATE_H

#include "work/worker.h"

#include <pthread.h>
#include <stdatomic.h>

// Runs one job after another. Its `owner` is told of those that the handler kept or ended itself.
struct runner {
    struct hand_owner owner;
    struct worker *worker;
    pthread_t thread;
    _Atomic mr_id current;
    mr_id ended; // under the worker's lock: the current job, ended through the api …
    int outcome; // … and how
};

struct worker {
    struct engine *engine;
    struct puller *puller;
    struct worker_options options;
    struct pull pull; // what every take asks for
    void *names;      // copies of the stages' names
    struct runner *runners;
    uint32_t runner_count, thread_count; // the loop's runner has no thread
    atomic_bool stopping;

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    uint32_t alive;  // threads that run
    atomic_int kept; // jobs the handler kept: returned minus ended; read without the lock
    int paused;      // threads pausing for them

    bool beats; // the beater runs
    pthread_t beater;
    pthread_cond_t beat_due;
    _Atomic uint64_t beat_at_ms; // when the next lease wants a beat; read without the lock
    bool beater_stops;

    int epoll_fd, ring_fd, timer_fd; // own loop
};

// ---- run.c: one job ---------------------------------------------------------------------------

void runner_init(struct runner *, struct worker *);

// Runs a job and those taken with it, in order; gives back what the worker has no time for.
void runner_run(struct runner *, mr_job *);

// Whether this thread is inside a callback of this worker.
bool worker_is_calling(const struct worker *);
void worker_on_stop(mr_job *, void *worker);

// ---- pool.c: threads --------------------------------------------------------------------------

int pool_start(struct worker *);
void pool_join(struct worker *);

// ---- beat.c: leases ---------------------------------------------------------------------------

int beater_start(struct worker *);
void beater_stop(struct worker *);
void beater_note(struct worker *, const mr_job *); // a job was taken

// ---- loop.c: own loop -------------------------------------------------------------------------

int loop_open(struct worker *);
void loop_close(struct worker *);
void loop_ring(void *worker);

uint64_t worker_now_ms(void);
// With the lock: sleeps until signalled or the instant; UINT64_MAX is for ever.
void worker_sleep(struct worker *, pthread_cond_t *, uint64_t until_ms);

#endif
