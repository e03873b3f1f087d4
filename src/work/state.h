// The state of a worker; used by the files of this folder only.
#ifndef WORK_STATE_H
#define WORK_STATE_H

#include "work/worker.h"

#include <pthread.h>
#include <stdatomic.h>

// Runs one job after another. Its `owner` is called for those that the handler kept or ended
// itself.
struct runner {
    struct leased_job_owner owner;
    struct worker *worker;
    pthread_t thread;
    _Atomic uint64_t begun; // jobs, ever: the number of the present run
    uint64_t ended;         // under the worker's lock: the present run, ended through the api …
    int outcome;            // … and how
    bool waits_ended;       // its thread waits for that, and is not active
    bool threaded;          // among those that left: its thread is to be joined
    struct runner *next_left;

    // See visit.c.
    _Atomic(mr_job *) held; // taken, to be run after the present one
    _Atomic(mr_job *) run;  // to be committed by the next visit …
    mr_job *run_last;       // … and the last of them, if there are any; its thread's
    uint64_t begun_before;  // the beater's: at its last look
    uint32_t count;         // jobs to take with the next visit; 0: 1
    atomic_bool visits;     // it runs jobs
    char apart[64];         // its thread writes for every job: no line is shared with the next
};

struct worker {
    struct engine *engine;
    struct puller *puller;
    struct worker_options options;
    struct pull pull;       // what every take asks for
    void *names;            // copies of the stages' names
    struct runner *runners; // as many as there may ever be threads; the loop's has none
    uint32_t most;
    bool visits; // commits and takes together; else one after the other
    atomic_bool stopping;

    pthread_mutex_t tuner_lock; // guards the tuner; taken with no other, or after `lock`
    struct tuner tuner;
    uint64_t tuned_completed;      // beside other tuners
    _Atomic uint32_t level, limit; // of the tuner; what the system allows
    atomic_bool asks_idle;         // the tuner asks for TUNER_IDLE

    _Atomic uint32_t active; // threads that take or run
    _Atomic uint32_t taking; // of them, those that take
    atomic_int kept;         // jobs the handler kept: returned minus ended
    _Atomic uint64_t completed;

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed;
    uint32_t made;       // runners that have had a thread
    uint32_t alive;      // threads that run
    uint32_t waiting;    // of them, those that wait for a kept job before the next of its batch
    struct runner *left; // runners whose threads have left
    uint32_t calls;      // threads that are to go on: parked ones, or on the way there
    pthread_cond_t called;

    uint32_t idle_looks; // at the machine in a row that found it idle; 0 also if none is looked for
    uint32_t busy_looks; // … that found it busy, or too few jobs in flight
    bool beats;          // the beater runs
    atomic_bool watches; // … and looks at the machine
    atomic_bool watches_visits;    // … and at what runners hold
    _Atomic(struct runner *) sole; // runs all jobs, since they are short; NULL: none does
    pthread_t beater;
    pthread_cond_t beat_due;
    _Atomic uint64_t beat_at_ms; // when the next lease wants a beat; read without the lock
    bool beater_stops;

    int epoll_fd, ring_fd, timer_fd; // own loop
};

// ---- run.c: one job ---------------------------------------------------------------------------

void runner_init(struct runner *, struct worker *);

// Runs a job and those taken with it, in order; releases the rest when the worker stops. Returns
// what it took together with the last commit, to be run next; NULL: nothing.
mr_job *runner_run(struct runner *, mr_job *);

// Runs one job that no other follows, from `started_ns` on; the next visit commits it. Returns the
// present, or 0 if the level is fixed.
uint64_t runner_run_one(struct runner *, mr_job *, uint64_t started_ns);
void runner_release(struct worker *, mr_job *);

// Whether this thread is inside a callback of this worker.
bool worker_is_calling(const struct worker *);
void worker_on_stop(mr_job *, void *worker);

// ---- visit.c: several jobs a visit ------------------------------------------------------------

// Runs jobs of different channels that were taken together, commits them and takes the next;
// returns those. NULL: nothing.
mr_job *visit_run(struct runner *, mr_job *);
mr_job *visit_end(struct runner *);          // commits what has ended, and takes
uint32_t visit_count(const struct runner *); // how many jobs to take
void visit_note_ended(struct runner *, mr_job *);
bool visit_is_surplus(const struct runner *); // another runner runs all jobs: it should park
void visit_leave(struct runner *);            // it runs no more jobs

void visits_watch(struct worker *); // a runner holds jobs
// With the lock, which it gives up meanwhile: looks after runners that hold jobs. Returns when to
// look again; UINT64_MAX: none does.
uint64_t visits_look(struct worker *);

// ---- pool.c: threads --------------------------------------------------------------------------

int pool_start(struct worker *); // MR_ENOMEM
void pool_join(struct worker *);
int pool_call(struct worker *); // calls a thread if there is room for a job; with the lock
uint32_t pool_in_flight(const struct worker *);
bool pool_may_go_on(const struct worker *); // the thread that has run a job may take another

// ---- tune.c: the level ------------------------------------------------------------------------

void worker_tune(struct worker *);
void worker_untune(struct worker *);
void worker_limit(struct worker *, uint32_t threads);
// A job was completed, begun then (0: not known). Returns the present, or 0 if the level is fixed.
uint64_t worker_completed(struct worker *, uint64_t started_ns);
uint64_t worker_now(const struct worker *); // the present, or 0 if the level is fixed
void worker_count_completed(struct worker *, uint32_t jobs); // they were committed
void worker_starved(struct worker *); // there was room for a job, and none to be had
// With the lock: looks whether the machine is idle though as many jobs are in flight as may be.
// Returns when to look again; UINT64_MAX: it is of no use.
uint64_t worker_watch_idle(struct worker *);

// ---- beat.c: leases ---------------------------------------------------------------------------

int beater_start(struct worker *);
void beater_stop(struct worker *);
void beater_note(struct worker *, const mr_job *); // a job was taken

// ---- loop.c: own loop -------------------------------------------------------------------------

int loop_open(struct worker *);
void loop_close(struct worker *);
void loop_ring(void *worker);

// With the lock: sleeps until signalled or the instant; UINT64_MAX is for ever.
void worker_sleep(struct worker *, pthread_cond_t *, uint64_t until_ms);

#endif
