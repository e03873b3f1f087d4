// The local engine: one shard behind one lock, and one thread of its own.
//
//     caller's thread    lock ─ shard_begin ─ core_… ─ shard_end ─ unlock ─ shard_wait ─ answer
//                                               │ events
//     other threads      waiting in take, call, await, push ◄── told, one by one
//     engine's thread    timers, cleaning, and what is told by callbacks: on_end, on_stop, ring
//
// A turn is what happens between local_begin and local_end, under the lock. Whoever shows what a
// turn told first waits, without the lock, until what the turn wrote is durable; so many threads
// share one sync of the disk. Bodies are read without the lock, too. Nobody polls: the engine's
// thread sleeps until something is due or to be told, and is woken only when that came nearer.
//
// When the log has stopped, every change and every wait answers MR_ESTOPPED; looks go on.
//
// An engine of several shards has one of these for each, and a spread over them (spread.h), which
// takes over the callbacks: then the thread here never waits for a program.
#ifndef ENGINE_LOCAL_H
#define ENGINE_LOCAL_H

#include "base/list.h"
#include "engine/ask.h"
#include "engine/engine.h"
#include "shard/group.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// The jobs that somebody holds, found by their id.
struct hands {
    struct mr_job **slots; // chained through mr_job.chain
    uint32_t mask, count;
};

struct spread;

struct local {
    struct engine base;
    struct group *group;   // of the only shard; NULL: the spread has it
    struct spread *spread; // NULL: this is the only shard
    uint32_t index;
    struct shard *shard;
    struct core *core; // the shard's
    pthread_t thread;
    bool threaded; // `thread` runs

    // Guards all below, and the shard during a turn. On a cache line of its own.
    _Alignas(64) pthread_mutex_t lock;
    pthread_cond_t due;
    pthread_cond_t *thread_sleeps_on; // NULL: the engine's thread is awake
    uint64_t thread_wakes_ms;         // engine time by which it wakes by itself
    uint64_t position;                // what the last turn wrote
    uint64_t asked_at;                // where the log was when last asked whether to clean it
    bool closing, stopped;

    struct conn conn;    // of pushes, calls and awaits
    struct list waiters; // every thread that waits
    struct list told;    // those that this turn has told
    struct list empties; // those waiting for a stage to be empty
    struct list started; // started calls that have not ended
    struct list calls;   // started calls that have
    struct list notices; // jobs in hand that are to stop
    struct list ringing; // pullers that were granted something
    struct list pullers;
    uint32_t telling_calls;    // being told, or about to be
    pthread_cond_t calls_told; // none is any more
    struct hands hands;
    struct mr_job *spare; // chained
    struct grant *grants; // room for the answer of a take
    uint32_t grant_room;

    // Of a spread:
    struct local_taker *claimed; // for an ask, and not granted yet
    bool links_due;              // emits wait for other shards
    bool stop_told;              // the others know that this one has stopped
    struct buffer notes;         // for the other shards: struct shard_note
};

// What a shard tells the others about a stage: that it emits to another, or how it stands with its
// high mark.
struct shard_note {
    bool is_edge, over;
    uint64_t high_mark;
    uint32_t stage_size, downstream_size;
    char stage[HAND_STAGE], downstream[HAND_STAGE];
};

// A thread that waits; on its stack.
struct waiter {
    struct list of_engine, of_told, of_puller;
    struct ask *ask; // that sleeps for it; NULL: it sleeps on `cond`
    pthread_cond_t cond;
    bool asleep; // `cond` is there
    bool told;
    int err;     // why it must not wait on: MR_ESTOPPED, MR_EAGAIN
    uint64_t at; // what must be durable before it shows what it was told
};

struct local_taker {
    struct taker taker;
    struct waiter waiter;
    struct local_puller *puller;
    struct mr_job *spare; // to be filled, chained
    struct mr_job *taken; // filled
};

struct local_puller {
    struct puller base;
    struct puller_options options;
    struct conn conn;
    struct list of_engine, of_ringing;
    struct list jobs;    // in its hands
    struct list waiters; // its takes that wait
    struct list notices; // with `ring`: to be told in its loop
    bool interrupted;
    int telling; // callbacks that run now
    pthread_cond_t told;

    // With `ring`: the take that stays asked for, and what it brought.
    struct local_taker loop_taker;
    bool asking, arrived_durable;
};

// Somebody interested in the end of a job: a thread, or a callback.
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

// ---- local.c ----------------------------------------------------------------------------------

// The steps of opening and closing. local_start: MR_ENOMEM; local_check_unused: MR_EBUSY.
void local_attach(struct local *, struct shard *);
int local_start(struct local *); // its thread
int local_check_unused(struct local *);
bool local_is_telling(const struct local *); // calls have been started or are told; with the lock
void local_join(struct local *);             // ends the thread, if it was started
void local_free(struct local *);             // the shard has been closed

// ---- local_turn.c: turns and waits ------------------------------------------------------------

// Takes the lock and begins a turn. On failure there is no turn, and the lock is not held.
int local_begin(struct local *);
// The same, but the lock is held also on failure. For looks, and for what must be done anyhow.
int local_enter(struct local *);
// Ends the turn, tells who is to be told, and unlocks. Returns what must be durable.
uint64_t local_end(struct local *);
void local_end_keep(struct local *); // the same, still holding the lock

// Without the lock: waits until `at` is durable, then returns `err`, or MR_ESTOPPED.
int local_show(struct local *, uint64_t at, int err);
int local_end_and_show(struct local *, int err);

// An instant of monotonic_ms to wait until; UINT64_MAX is for ever.
uint64_t local_until(int64_t wait_ms);

// With the lock: nothing more will be told by the core; whoever waits hears that.
void local_stop_waiters(struct local *);

// In a turn: this waiter has what it waited for.
void local_tell(struct local *, struct waiter *);
// With the lock: this waiter must not wait on.
void local_break_off(struct waiter *, int err);

// With the lock held and no turn. True: it was told, and the lock is released. False: time is up or
// it was broken off (waiter.err says); a turn has begun, in which to leave; the lock is held.
bool local_wait(struct local *, struct waiter *, uint64_t until_ms);

// With the lock held: sleeps on `cond`, but not beyond `until_ms`; a spurious end is possible.
void local_sleep(struct local *, pthread_cond_t *cond, uint64_t until_ms);

// ---- local_thread.c ---------------------------------------------------------------------------

void *local_thread(void *engine);
void local_wake_thread(struct local *);
// With the lock, which it gives up meanwhile: calls on_end and on_stop for what there is.
void local_tell_callbacks(struct local *);

// ---- local_push.c -----------------------------------------------------------------------------

int local_push(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *, mr_id *);
// A push in a turn of its own, or in as many as room takes. `out_at`: what must be durable.
int local_push_turn(struct local *, struct push *, int64_t room_ms, struct pushed *,
                    uint64_t *out_at);
struct push local_push_of(mr_bytes stage, mr_bytes body, const mr_push_options *);
int local_push_many(struct engine *, mr_bytes stage, const mr_item *, size_t,
                    const mr_push_options *, const struct numbered *first, mr_id *out_ids,
                    size_t *out_count);
int local_call(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
               struct buffer *);
int local_call_start(struct engine *, mr_bytes stage, mr_bytes body, const mr_push_options *,
                     mr_on_end *, void *arg, mr_id *);
int local_await(struct engine *, mr_id, int64_t wait_ms, struct buffer *);
int local_cancel(struct engine *, mr_id);
void local_tell_call(struct local *, struct local_call *, int err); // no lock; frees it
void event_ended(void *owner, struct caller *, const struct outcome *);
void event_room(void *owner, struct pusher *);

// ---- local_hand.c: jobs in hand ---------------------------------------------------------------

struct mr_job *hands_find(const struct local *, mr_id, const struct token *);
// A chain of `count` new jobs (through `chain`), or NULL with MR_ENOMEM noted. With the lock.
struct mr_job *spares_get(struct local *, uint32_t count);
void spares_put(struct local *, struct mr_job *chain);
// Fills jobs of the chain with grants and puts them into hand; returns the first of them.
struct mr_job *hands_fill(struct local *, struct local_puller *, struct mr_job **spare,
                          const struct grant *, size_t count);
void hands_unpin(struct local *, struct mr_job *); // it is used again when nobody pins it
int hands_load(struct local *, struct mr_job *);   // reads its body and state, without the lock
// Without the lock: this job of a take could not be read, and why is noted. It fails, or comes
// first another time; it and those that follow under its lease are in hand no longer. Returns the
// job behind them.
struct mr_job *hands_leave_out(struct local *, struct mr_job *, int err);

// A commit in two steps: what can be done without the lock, and the rest in a turn (`err`: what has
// failed before). The caller frees `emits` after both.
struct commit {
    struct done done;
    struct emit *emits;
};
int commit_prepare(const struct mr_job *, struct commit *out);
int commit_in_turn(struct local *, struct mr_job *, const struct commit *, int err, unsigned how);

int local_done(mr_job *, unsigned how);
int local_fail(mr_job *, mr_bytes reason, int64_t retry_ms, unsigned how);
int local_release(mr_job *, unsigned how);
void local_unpin(mr_job *);
int local_beat(mr_job *);
int64_t local_beat_all(struct puller *);

// ---- local_take.c: pullers --------------------------------------------------------------------

int local_puller_open(struct engine *, const struct puller_options *, struct puller **);
void local_puller_interrupt(struct puller *);
void local_puller_close(struct puller *);
int local_take(struct puller *, const struct pull *, mr_job **);
int local_done_take(mr_job *, const struct pull *, int *out_done, mr_job **);
void local_tell_loop(struct puller *);

// For spread_take.c. What there is now; MR_EAGAIN, without a sentence: nothing.
int local_try(struct local_puller *, const struct pull *, mr_job **);
// For an ask. 0: taken at once, see taker.taken; MR_EAGAIN: nothing, and seated if it is to `stay`.
int local_seat(struct local_taker *, const struct pull *, bool stay);
void local_unseat(struct local_taker *);    // what was taken stays
void local_ask_again(struct local_taker *); // it was claimed, but there is nothing for it
// Shows what the taker has taken, bodies and all.
int local_hand_out(struct local_taker *, mr_job **);
// The same for a loop. MR_EAGAIN: it was given back, or is not durable yet: the loop is rung then.
int local_collect(struct local_puller *, mr_job **);
int take_nothing_came(const struct pull *); // MR_EAGAIN, with a sentence
// With the lock, which it gives up meanwhile: tells the holder of this job to stop.
void local_tell_stop(struct local *, struct mr_job *);
bool event_claim(void *owner, struct taker *);
void event_granted(void *owner, struct taker *, const struct grant *, size_t count);
void event_stop(void *owner, struct conn *, uint64_t id, const struct token *, int why);
int event_over(void *owner, mr_bytes stage, bool over, uint64_t high_mark);
int event_edge(void *owner, mr_bytes stage, mr_bytes downstream);

// ---- local_look.c -----------------------------------------------------------------------------

// Appends an entry's body, and a 0 byte that does not count, to an empty buffer, without the lock;
// finds it again if the cleaner has moved it.
enum home { HOME_BODY, HOME_REASONS, HOME_STATE };
int local_read(struct local *, mr_id, enum home, uint64_t at, struct buffer *out);
// The last reason in the body of a FAIL entry; borrowed from it.
mr_bytes reason_last(mr_bytes reasons);

int local_wait_empty(struct engine *, mr_bytes stage, int64_t wait_ms);
bool local_is_empty(struct local *, mr_bytes stage); // with the lock; nothing on its way from here
void local_check_empties(struct local *);            // in a turn
int local_stage(struct engine *, mr_bytes stage, mr_stage_info *);
int local_set(struct engine *, mr_bytes stage, mr_bytes policy, mr_bytes value);
int local_pause(struct engine *, mr_bytes stage);
int local_resume(struct engine *, mr_bytes stage);
int local_dead(struct engine *, mr_bytes stage,
               int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);
int local_retry(struct engine *, mr_id);
int local_drop(struct engine *, mr_id);

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
int local_epic_drop(struct engine *, mr_bytes stage, mr_bytes name);
void event_epic(void *owner, struct watcher *);

#endif
