// The local engine: the shards of a store in this process, each behind a lock and with a thread.
//
//     caller's thread    lock ─ shard_begin ─ core_… ─ shard_end ─ unlock ─ shard_wait ─ answer
//                                               │ events
//     other threads      waiting in take, call, await, push ◄── notified, one by one
//     shard's thread     timers, cleaning, messages to other shards, rings
//     notifier thread    callbacks of all shards, one after another: on_end, on_stop
//
// A call goes to the shard of its stage or id. A turn is what happens between local_begin and
// local_end, under the shard's lock. Before a thread returns the result of a turn, it waits,
// without the lock, until what the turn wrote is durable; so many threads share one sync of the
// disk. Bodies are read without the lock, too. No thread polls: a shard's thread sleeps until
// something is due and is woken only when that came nearer. Callbacks may wait for anything,
// because only the notifier thread waits with them.
//
// No thread holds the locks of two shards, but for wait_empty and closing, which take them in
// ascending order.
//
// When the log of one shard has stopped, every change and every wait answers MR_ESTOPPED, in all
// shards; looks go on.
#ifndef ENGINE_LOCAL_H
#define ENGINE_LOCAL_H

#include "base/list.h"
#include "engine/engine.h"
#include "engine/push_inbox.h"
#include "engine/shared_take.h"
#include "shard/group.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Leased jobs, found by their id.
struct job_table {
    struct mr_job **slots; // chained through mr_job.chain
    uint32_t mask, count;
};

struct local_shard {
    struct local_engine *engine;
    uint32_t index;
    struct shard *shard;
    struct core *core; // the shard's
    pthread_t thread;
    bool threaded;  // `thread` runs
    bool in_memory; // its log, and so it has an inbox

    // Guards all below, and the shard during a turn. On a cache line of its own.
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t due;
    bool thread_sleeps;       // on `due`
    uint64_t thread_wakes_ms; // engine time by which it wakes by itself
    uint64_t position;        // what the last turn wrote
    uint64_t asked_at;        // where the log was when last asked whether to clean it
    bool closing, stopped;
    bool stop_passed_on; // the other shards know that this one has stopped

    struct conn conn;     // of pushes, calls and awaits
    struct list waiters;  // every thread that waits
    struct list notified; // those that this turn has an answer for
    struct list empties;  // those waiting for a stage to be empty
    struct list started;  // started calls that have not ended
    struct list calls;    // started calls that have
    struct list stops;    // leased jobs whose on_stop is due
    struct list ringing;  // pullers that were granted something
    struct list pullers;
    uint32_t calling;          // on_end of so many calls runs, or is about to
    pthread_cond_t calls_done; // of none any more
    struct job_table jobs;     // leased
    struct mr_job *free_jobs;  // chained
    struct grant *grants;      // room for the answer of a take
    uint32_t grant_room;
    struct local_taker *claimed; // of a shared take, and not granted yet
    struct message message;      // on its way to another shard …
    bool has_message;            // … and not received yet
    struct push_inbox inbox;     // see there for what guards it
};

struct local_engine {
    struct engine base;
    struct group *group;
    uint32_t count;
    struct local_shard *shards[SHARDS_MOST];
    pthread_t notifier;
    bool has_notifier;
    atomic_bool stopped; // the log of a shard has failed

    pthread_mutex_t lock; // guards what follows; taken inside that of a shard
    pthread_cond_t notify;
    uint64_t to_notify; // bit n: shard n has callbacks to be called
    bool closing;
    char why_stopped[256];
    struct list pullers;
};

// A thread that waits; on its stack.
struct waiter {
    struct list of_shard, of_notified, of_puller;
    struct shared_take *shared; // that it sleeps on; NULL: it sleeps on `cond`
    pthread_cond_t cond;
    bool asleep; // `cond` is initialised
    bool notified;
    int err;     // why it must not wait on: MR_ESTOPPED, MR_EAGAIN
    uint64_t at; // what must be durable before it returns
};

struct local_taker {
    struct taker taker;
    struct waiter waiter;
    struct shard_puller *puller;
    struct mr_job *free_jobs; // to be filled, chained
    struct mr_job *taken;     // filled
};

// The part of a puller that belongs to one shard.
struct shard_puller {
    struct local_puller *puller;
    struct local_shard *shard;
    struct conn conn;
    struct list of_shard, of_ringing;
    struct list jobs;    // leased by it
    struct list waiters; // its takes that wait
    struct list stops;   // with `ring`: jobs whose on_stop its loop calls
    bool interrupted;
    int notifying; // callbacks that run now
    pthread_cond_t notified;

    // With `ring`: the take that stays pending, and what it brought.
    struct local_taker loop_taker;
    bool waits, arrived_durable;
};

struct local_puller {
    struct puller base;
    struct puller_options options;
    struct list of_engine;
    atomic_bool interrupted;
    struct shared_take loop_take; // with `ring`
    uint32_t count;
    struct shard_puller parts[];
};

// A caller interested in the end of a job: a thread, or a callback.
struct local_call {
    struct caller caller;
    struct outcome outcome;
    struct waiter *waiter; // NULL: a started call
    struct list of_calls;
    mr_on_end *on_end;
    void *arg;
    mr_bytes stage; // of a call, for the sentence; empty: not known
    int64_t deadline_ms;
};

struct local_pusher {
    struct pusher pusher;
    struct waiter waiter;
};

static inline struct local_shard *shard_of_stage(struct engine *base, mr_bytes stage) {
    const struct local_engine *e = (const struct local_engine *)base;
    return e->shards[route_of(e->count, stage)];
}

// ---- local_turn.c: turns and waits ------------------------------------------------------------

// Takes the lock and begins a turn. On failure there is no turn, and the lock is not held.
int local_begin(struct local_shard *);
// The same, but the lock is held also on failure. For looks, and for what must be done anyhow.
int local_enter(struct local_shard *);
// Ends the turn, wakes the threads it has answers for, and unlocks. Returns what must be durable.
uint64_t local_end(struct local_shard *);
void local_end_keep(struct local_shard *);        // the same, still holding the lock
uint64_t local_end_to_wait(struct local_shard *); // the same; local_wait_durable has to follow

// In a turn: plain pushes to this stage may go to the inbox, while there is room for them.
void local_accept_stage(struct local_shard *, mr_bytes stage);

// With the lock: the engine time at which a timer or a schedule is due next.
uint64_t local_due_ms(struct local_shard *);

// Without the lock: waits until `at` is durable, then returns `err`, or MR_ESTOPPED.
int local_wait_durable(struct local_shard *, uint64_t at, int err);
int local_end_durable(struct local_shard *, int err); // local_end, then that

// An instant of monotonic_ms to wait until; UINT64_MAX is for ever.
uint64_t local_until(int64_t wait_ms);

// MR_ESTOPPED, with the sentence of the log that has stopped.
int local_error_stopped(struct local_engine *);
// With the lock: the core sends no more events; every waiting thread gets MR_ESTOPPED.
void local_stop_waiters(struct local_shard *);

// In a turn: this waiter has what it waited for.
void local_notify(struct local_shard *, struct waiter *);
// With the lock: this waiter must not wait on.
void local_cancel_wait(struct waiter *, int err);

// With the lock held and no turn. True: it was notified, and the lock is released. False: time is
// up or it was cancelled (waiter.err says); a turn has begun, in which to leave; the lock is held.
bool local_wait(struct local_shard *, struct waiter *, uint64_t until_ms);

// ---- local_thread.c: the shards' threads and the notifier -------------------------------------

void *local_shard_thread(void *shard);
void *local_notifier_thread(void *engine);
void local_wake_thread(struct local_shard *); // with the lock, if it sleeps
void local_call_notifier(struct local_shard *);

// ---- local_push.c -----------------------------------------------------------------------------

int local_push(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *, mr_id *);
int local_push_many(struct engine *, mr_bytes stage, const mr_item *, size_t,
                    const mr_push_options *, const struct push_number *first, mr_id *out_ids,
                    size_t *out_count);
int local_call(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
               struct buffer *);
int local_call_start(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                     mr_on_end *, void *arg, mr_id *);
int local_await(struct engine *, mr_id, int64_t wait_ms, struct buffer *);
int local_cancel(struct engine *, mr_id);
void local_call_end(struct local_shard *, struct local_call *, int err); // no lock; frees it
void event_ended(void *owner, struct caller *, const struct outcome *);
void event_room(void *owner, struct pusher *);

// ---- local_job.c: leased jobs -----------------------------------------------------------------

struct mr_job *jobs_find(const struct local_shard *, mr_id, const struct token *);
// A chain of `count` new jobs (through `chain`), or NULL with MR_ENOMEM noted. With the lock.
struct mr_job *free_jobs_get(struct local_shard *, uint32_t count);
void free_jobs_put(struct local_shard *, struct mr_job *chain);
// Fills jobs of the chain with grants and leases them; returns the first of them.
struct mr_job *jobs_fill(struct shard_puller *, struct mr_job **free_jobs, const struct grant *,
                         size_t count);
void job_unpin(struct local_shard *, struct mr_job *); // it goes to the free list with its last pin
int job_load(struct local_shard *, struct mr_job *);   // reads its body and state, without the lock
// Without the lock: this job of a take could not be read, and why is noted. The attempt fails, or
// the job is delivered again first; it and those that follow under its lease are not leased any
// more. Returns the job behind them.
struct mr_job *jobs_leave_out(struct local_shard *, struct mr_job *, int err);

// A commit in two steps: what can be done without the lock, and the rest in a turn (`err`: what has
// failed before).
void commit_of(struct mr_job *, struct done *out);
int commit_in_turn(struct local_shard *, struct mr_job *, const struct done *, int err,
                   unsigned how);

int local_done(mr_job *, unsigned how);
int local_fail(mr_job *, mr_bytes reason, int64_t retry_ms, unsigned how);
int local_release(mr_job *, int64_t delay_ms, unsigned how);
void local_unpin(mr_job *);
int local_beat(mr_job *);
int local_progress(mr_job *, const struct job_progress *, bool waits);
int64_t local_beat_all(struct puller *);

static inline struct local_shard *local_shard_of_job(const struct mr_job *job) {
    return ((struct shard_puller *)job->leased_with)->shard;
}

// ---- local_take.c: pullers, and takes at one shard --------------------------------------------

int local_puller_open(struct engine *, const struct puller_options *, struct puller **);
void local_puller_interrupt(struct puller *);
void local_puller_close(struct puller *);
void local_loop_stops(struct puller *);
int local_done_take(mr_job *ended, const struct pull *, uint32_t *out_done, mr_job **);

// Takes without waiting; MR_EAGAIN, without a sentence: there is nothing.
int take_now(struct shard_puller *, const struct pull *, mr_job **);
int take_or_wait(struct shard_puller *, const struct pull *, mr_job **);
int take_nothing_came(const struct pull *); // MR_EAGAIN, with a sentence

// Of a shared take. 0: taken at once, see taker.taken; MR_EAGAIN: nothing, and it waits there if it
// is to `stay`.
int taker_join(struct local_taker *, const struct pull *, bool stay);
void taker_leave(struct local_taker *);     // what was taken stays
void taker_try_again(struct local_taker *); // it was claimed, but there is nothing for it
int taker_return_jobs(struct local_taker *, mr_job **); // when durable, with bodies
// The same for a loop. MR_EAGAIN: it was released, or is not durable yet: the loop is rung then.
int taker_collect(struct shard_puller *, mr_job **);

// With the lock, which it gives up meanwhile: calls on_stop for this job.
void local_stop_job(struct local_shard *, struct mr_job *);
bool event_claim(void *owner, struct taker *);
void event_granted(void *owner, struct taker *, const struct grant *, size_t count);
void event_stop(void *owner, struct conn *, uint64_t id, const struct token *, int why);

// ---- local_take_several.c ---------------------------------------------------------------------

int local_take(struct puller *, const struct pull *, mr_job **);
void shared_take_leave(struct shared_take *); // ends its waits at all shards

// ---- local_look.c -----------------------------------------------------------------------------

// Appends an entry's body, and a 0 byte that does not count, to an empty buffer, without the lock;
// finds it again if the cleaner has moved it.
enum home { HOME_BODY, HOME_REASONS, HOME_STATE };
int local_read(struct local_shard *, mr_id, enum home, uint64_t at, struct buffer *out);

// Asks the shard that the id was issued by, and the others only if it does not know the job: a
// store that was copied into another number of shards keeps its ids.
int local_by_id(struct engine *, mr_id, int (*act)(struct local_shard *, mr_id, void *arg),
                void *arg);

int local_stage_wait_empty(struct engine *, mr_bytes stage, int64_t wait_ms);
void local_check_empties(struct local_shard *); // in a turn
int local_stage_look(struct engine *, mr_bytes stage, mr_stage_info *);
int local_stages(struct engine *, int (*each)(const mr_stage_info *, void *arg), void *arg);
int local_stage_why(struct engine *, mr_bytes stage, char *out, size_t size);
int local_stage_set(struct engine *, mr_bytes stage, mr_bytes policy, mr_bytes value);
int local_stage_pause(struct engine *, mr_bytes stage);
int local_stage_pause_key(struct engine *, mr_bytes stage, mr_bytes key);
int local_stage_resume_key(struct engine *, mr_bytes stage, mr_bytes key);
int local_stage_drain(struct engine *, mr_bytes stage);
int local_stage_resume(struct engine *, mr_bytes stage);
int local_stage_cancel(struct engine *, mr_bytes stage, const mr_job_filter *, bool dry,
                       uint64_t *out_count); // local_cancel.c
int local_jobs(struct engine *, mr_bytes stage, const mr_job_filter *,
               int (*each)(const mr_job_info *, void *arg), void *arg);
int local_dead(struct engine *, mr_bytes stage,
               int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);
int local_retry(struct engine *, mr_id);
int local_due(struct engine *, mr_id);
int local_drop(struct engine *, mr_id);
int local_check(struct engine *);

// ---- local_epic.c -----------------------------------------------------------------------------

struct epic_waiter {
    struct waiter waiter;
    struct watcher watcher;
};

int local_epic(struct engine *, mr_bytes stage, mr_bytes name, mr_epic_info *);
int local_epic_wait(struct engine *, mr_bytes stage, mr_bytes name, int64_t left, uint64_t expected,
                    int64_t wait_ms, mr_epic_info *);
int local_epic_end(struct engine *, mr_bytes stage, mr_bytes name, uint64_t total);
int local_epic_skip(struct engine *, mr_bytes stage, mr_bytes name, uint64_t number);
int local_epic_then(struct engine *, mr_bytes stage, mr_bytes name, const struct emit *);
int local_epic_cancel(struct engine *, mr_bytes stage, mr_bytes name);
int local_epic_forget(struct engine *, mr_bytes stage, mr_bytes name, uint64_t after_ms);
int local_epic_drop(struct engine *, mr_bytes stage, mr_bytes name);
void event_epic(void *owner, struct watcher *);

// ---- local_schedule.c -------------------------------------------------------------------------

int local_schedule_set(struct engine *, mr_bytes stage, mr_bytes name, mr_bytes body,
                       const mr_schedule_options *);
int local_schedule_act(struct engine *, mr_bytes stage, mr_bytes name, enum schedule_act);
int local_schedule(struct engine *, mr_bytes stage, mr_bytes name, mr_schedule_info *);
int local_schedules(struct engine *, mr_bytes stage,
                    int (*each)(const mr_schedule_info *, void *arg), void *arg);

#endif
