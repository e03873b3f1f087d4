// A leased job, from its take until it is ended. Engines make these structs and use them again; the
// api and the worker runtime read them and fill in what the commit will contain.
//
//     take ──► leased ──► used up ──► free list ──► take …
//                 │          ▲
//                 └── pinned ┘   by a handler or callback that still reads it
//
// The first thread that claims a job (leased_job_claim) ends it; so a handler, another thread and a
// callback may all try. The engine frees the struct only when it is closed: a job that is used
// after its end is detected by `used_up`.
#ifndef ENGINE_LEASED_JOB_H
#define ENGINE_LEASED_JOB_H

#include "base/buffer.h"
#include "base/job_spec.h"
#include "base/limits.h"
#include "base/list.h"
#include "millrace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// The api calls `ended` when it has ended a job of this owner, with no lock held; the job must not
// be used any more then. `run` is what the owner has noted there: an id would not do, since an
// owner may get the same job again. `outcome`: 0 it was committed; negative it was not, and the
// lease of the jobs that follow it may be lost.
struct leased_job_owner {
    void (*ended)(struct leased_job_owner *, uint64_t run, int outcome);
};

// What a handler sets for the end of its job. A job gets one with the first that is set, and keeps
// it for the jobs that use the struct later.
struct job_output {
    struct buffer result;
    struct buffer *new_state;       // NULL: none was set yet
    struct buffer last_words;       // if it fails instead: the end of what it has printed
    struct buffer emits, emit_text; // struct emit, and their bytes one after another
    struct buffer reason;           // if it fails; ends with a 0 byte
};

// Small, because a thread may hold many: what only some jobs have lies elsewhere.
struct mr_job {
    uint32_t magic;
    atomic_bool used_up; // a thread has claimed it, to end it
    bool follows;        // under the same lease as the one before it: runs only after that was done
    bool has_new_state;
    bool is_named;    // a local engine's: the names could be copied
    atomic_int phase; // 0, LEASED_JOB_STARTED, or the code of why it must stop

    // As it was taken.
    uint32_t attempt;
    struct puller *puller;
    struct mr_job *next; // taken together with it, to be run after it
    mr_id id;
    uint64_t token[5];              // the engine's own
    uint64_t deadline_at_ms;        // of monotonic_ms; 0: none
    _Atomic uint64_t lease_from_ms; // beats change it while other threads read it
    uint32_t lease_ms;
    uint32_t meta_size;
    uint16_t stage_size, key_size, names_room;
    bool has_body;             // a local engine's: the body was read when it was leased
    uint8_t *names;            // stage, a 0 byte, key
    struct buffer body;        // a 0 byte follows and does not count; then META
    struct buffer *state;      // the same, without META; NULL: no job has needed one yet
    struct job_output *output; // NULL: nothing was set yet

    struct leased_job_owner *owner; // called when the api has ended it; NULL: none
    uint64_t run;                   // see there
    int pins;                       // the engine's lock guards this and what follows
    int stop_why;                   // passed to on_stop
    union {
        struct {
            uint64_t at, state_at; // where a local engine reads body and state
        };
        uint64_t beat_ms; // when a remote engine has sent the last beat
    };
    void *leased_with;    // a local engine's puller at the shard, a remote one's connection or NULL
    struct mr_job *chain; // of the engine's table of leased jobs, or of its free ones
    struct list of_puller, of_stops;
};

_Static_assert(sizeof(struct mr_job) <= 256, "a leased job is small");

enum { LEASED_JOB_MAGIC = 0x4d524a42, LEASED_JOB_STARTED = 1 };

// The job behind one that a caller was given to look at: for what an engine notes of it under its
// own lock, as a beat does.
static inline struct mr_job *leased_job_itself(const mr_job *job) {
    return (struct mr_job *)(uintptr_t)job;
}

// True for the first caller only, which must then end the job or drop it.
static inline bool leased_job_claim(struct mr_job *job) {
    return !atomic_exchange_explicit(&job->used_up, true, memory_order_acq_rel);
}

// Marks that a handler begins. False: the job was stopped before and must not begin.
static inline bool leased_job_start(struct mr_job *job) {
    int fresh = 0;
    return atomic_compare_exchange_strong(&job->phase, &fresh, LEASED_JOB_STARTED);
}

// Marks that the job must stop, and why. True: a handler has begun, so on_stop may be called; this
// returns true only once.
static inline bool leased_job_stop(struct mr_job *job, int why) {
    return atomic_exchange(&job->phase, why) == LEASED_JOB_STARTED;
}

// Why the job must stop; 0: it need not.
static inline int leased_job_stopped(const struct mr_job *job) {
    int phase = atomic_load_explicit(&job->phase, memory_order_acquire);
    return phase < 0 ? phase : 0;
}

// `forget` empties the buffers of a job that is used up (small ones keep their memory) and leaves
// it marked as used up; `renew` makes it ready for the next take; `finish` frees its buffers.
void leased_job_forget(struct mr_job *);
void leased_job_renew(struct mr_job *);
void leased_job_finish(struct mr_job *);

// Sets the names, or says MR_ENOMEM.
int leased_job_set_names(struct mr_job *, mr_bytes stage, mr_bytes key);

static inline const char *leased_job_stage(const struct mr_job *job) {
    return (const char *)job->names;
}

static inline mr_bytes leased_job_key(const struct mr_job *job) {
    return (mr_bytes){ job->names + job->stage_size + 1, job->key_size };
}

// What the handler has set; `_made` makes room for it: NULL is MR_ENOMEM.
const struct job_output *leased_job_output(const struct mr_job *);
struct job_output *leased_job_output_made(struct mr_job *);

// Makes a buffer that may be missing: NULL is MR_ENOMEM.
struct buffer *leased_job_buffer_made(struct buffer **);

// The state of the channel; empty: there is none.
mr_bytes leased_job_state(const struct mr_job *);

// NULL: the handler has set none.
const char *leased_job_reason(const struct mr_job *);

// Separates META, the last bytes of what `body` was filled with, from the body itself. MR_ENOMEM.
int leased_job_split_meta(struct mr_job *, uint32_t meta_size);

static inline mr_bytes leased_job_meta(const struct mr_job *job) {
    return (mr_bytes){ job->meta_size ? job->body.data + job->body.size + 1 : NULL,
                       job->meta_size };
}

// Whether another job follows it under the same lease.
bool leased_job_is_followed(const struct mr_job *);

// When the job has ended: passes the channel's state to the job that follows, if one does. A commit
// that was refused leaves the state as it was: the lease may go on without the job. Needs no
// memory.
void leased_job_pass_state(struct mr_job *, bool committed);

// Adds an emit; options have been checked. MR_EFULL, MR_ETOOBIG, MR_ENOMEM.
int leased_job_add_emit(struct mr_job *, mr_bytes stage, mr_bytes body, const mr_push_options *);

// The emits, in order; they belong to the job, until another is added.
const struct emit *leased_job_emits(struct mr_job *, size_t *out_count);

#endif
