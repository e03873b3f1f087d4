// Hand: a job that somebody holds, from its take until it is ended. Engines make them and keep them
// for use again; the api and the worker runtime read them and fill in what the commit will carry.
//
//     take ──► in hand ──► used up ──► spare ──► take …
//                 │          ▲
//                 └── pinned ┘   by a handler or callback that still looks at it
//
// Whoever claims a job first (hand_claim) ends it; so a handler, another thread and a callback may
// all try. The struct's memory stays with its engine until that is closed: a job used twice is
// noticed, not followed into nowhere.
#ifndef ENGINE_HAND_H
#define ENGINE_HAND_H

#include "base/buffer.h"
#include "base/limits.h"
#include "base/list.h"
#include "millrace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    HAND_STAGE = STAGE_NAME_MOST, // bytes of a stage's name
    HAND_KEY = KEY_MOST,          // bytes of a key
    HAND_ONCE = ONCE_MOST,        // bytes of a once
    HAND_STATE = STATE_MOST,      // bytes of a state
    HAND_BODY = BODY_MOST,        // bytes of a body or result; of all emits of one commit
    HAND_REASON = REASON_MOST,    // bytes of a reason that are kept
    HAND_EMITS = 1000,            // emits of one commit
    HAND_TAKE = 1000,             // jobs in one take
    HAND_KEPT_BYTES = 1 << 16     // a spare job keeps buffers up to this size
};

// Told when a job of its was ended through the api, with no lock held; the job is gone then.
// `outcome`: 0 it was committed; negative it was not, and what follows it may not be held any more.
struct hand_owner {
    void (*ended)(struct hand_owner *, mr_id, int outcome);
};

// One job that the commit hands in. Its bytes lie in the job's `emit_text`, one after another.
struct hand_emit {
    uint32_t stage_size, key_size, once_size, body_size;
    int64_t delay_ms, deadline_ms;
    uint32_t attempts;
};

// What every job uses comes first, so that it lies on few cache lines.
struct mr_job {
    uint32_t magic;
    atomic_bool used_up; // claimed by whoever ends it
    bool follows;        // under the same lease as the one before it: only after that was done
    bool has_new_state;
    atomic_int phase; // 0, HAND_STARTED, or why nobody wants it any more

    // As it was taken.
    struct puller *puller;
    struct mr_job *next; // taken together with it, to be run after it
    mr_id id;
    uint64_t token[5]; // the engine's own
    uint32_t attempt;
    uint64_t deadline_at_ms; // of monotonic_ms; 0: none
    uint64_t lease_ms;
    _Atomic uint64_t lease_from_ms; // beats move it while the holder looks
    uint32_t stage_size, key_size;
    struct buffer body, state; // body: a 0 byte behind it does not count

    // What its end will carry.
    struct buffer result, new_state;
    struct buffer emits, emit_text; // struct hand_emit, and their bytes

    struct hand_owner *owner; // told when the api has ended it; NULL: nobody
    int pins;                 // the engine's lock guards this and what follows
    int stop_why;             // to be told
    uint64_t at, state_at;    // where a local engine reads body and state
    void *leased_with;        // a local engine's puller at the shard; a remote one's connection …
    uint64_t beat_ms;         // … and when its last beat was sent
    struct mr_job *chain;     // the engine's table of jobs in hand, or its spare ones
    struct list of_puller, of_stops;

    char stage[HAND_STAGE + 1];
    uint8_t key[HAND_KEY];
    char reason[HAND_REASON + 1]; // set by its handler
};

enum { HAND_MAGIC = 0x4d524a42, HAND_STARTED = 1 };

// True for whoever is first; that one must end the job, or drop it.
static inline bool hand_claim(struct mr_job *job) {
    return !atomic_exchange_explicit(&job->used_up, true, memory_order_acq_rel);
}

// Says that a handler begins. False: it is not wanted any more and must not begin.
static inline bool hand_start(struct mr_job *job) {
    int fresh = 0;
    return atomic_compare_exchange_strong(&job->phase, &fresh, HAND_STARTED);
}

// Notes that nobody wants it any more. True: a handler has begun and may be told; only once.
static inline bool hand_stop(struct mr_job *job, int why) {
    return atomic_exchange(&job->phase, why) == HAND_STARTED;
}

// Why nobody wants it any more; 0: somebody does.
static inline int hand_stopped(const struct mr_job *job) {
    int phase = atomic_load_explicit(&job->phase, memory_order_acquire);
    return phase < 0 ? phase : 0;
}

// A job is forgotten when it is used up, but stays marked so, and is renewed when it is used again.
// Small buffers are kept meanwhile.
void hand_forget(struct mr_job *);
void hand_renew(struct mr_job *);
void hand_finish(struct mr_job *);

// Whether another job follows it under the same lease.
bool hand_is_followed(const struct mr_job *);

// When it has ended: hands the channel's state on to the job that follows, if one does. A commit
// that was refused leaves the state as it was: the lease may go on without the job.
void hand_carry_state(struct mr_job *, bool committed);

// Adds an emit; options have been checked. MR_EFULL, MR_ETOOBIG, MR_ENOMEM.
int hand_emit(struct mr_job *, mr_bytes stage, mr_bytes body, const mr_push_options *);

#endif
