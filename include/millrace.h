// millrace.h: the public API of Millrace, and its manual. Flows are in millrace_flow.h.
//
// Millrace is a work engine. You push jobs; it runs each one in the order its key demands, only
// while a caller still wants the result, and records its effect exactly once.
//
//     stage ── a queue with a name and a policy
//       └─ channel ── all jobs of one key: they run one after another, in order
//            └─ job ── bytes, an id, at most one deadline, a number of attempts
//
//     mr *m;                                        int shout(mr_job *job, void *arg) {
//     mr_open("file:./jobs", NULL, &m);                 puts(mr_job_body(job).data);
//     mr_push(m, "shouts", mr_str("hi"), NULL, NULL);   return 0; // commits
//     mr_work(m, "shouts", shout, NULL, NULL, &w);  }
//
// Names: mr_stage_… takes a stage, mr_job_… a leased job, mr_epic_… an epic, mr_schedule_… a
// schedule, mr_worker_… a worker; verbs without a noun act on the engine, on a job by its id, or
// end and keep a lease (mr_done, mr_fail, mr_release, mr_beat).
//
// Conventions, which hold for every call:
//   * A call returns 0, or a negative MR_E… code; then mr_error() has the sentence (of this thread,
//     until its next call). Outputs are untouched on failure and nothing needs freeing. A call that
//     fails has changed nothing, except where it says so and after MR_ESTOPPED.
//   * NULL or zeroed options mean defaults. Option structs end in reserved space, which must be
//     zero (else MR_EINVAL), so that they can grow without breaking programs.
//   * Inputs are copied before a call returns. Durations are milliseconds. A wait of 0 does not
//     wait, MR_FOREVER waits for ever, other negative ones are MR_EINVAL.
//   * Bytes are any bytes; {NULL, 0} is empty. Bodies, states and results that calls give out are
//     followed by a 0 byte that does not count, unless they are {NULL, 0}.
//   * A stage is named by 1 to 200 of A-Za-z0-9._:/-
//   * Any thread may use an `mr`. Not across fork(): a child must not touch what its parent opened.
//   * Callbacks and handlers run with no lock of the library held and may call anything here that
//     does not say otherwise.
//   * Every call may answer MR_EINVAL (an argument is not valid: NULL, closed, already ended …) and
//     MR_ENOMEM. A pointer that this library never returned, or whose engine is closed, cannot
//     always be recognised: the check is a help, not a promise.
//
// Limits: body and result 16 MiB, state 1 MiB, key 1 KiB, once 256 bytes; 512 bytes of a reason are
// kept, and 4 KiB of an output; 1,000 emits and 16 MiB in a commit; 1,000 jobs in a take; 64 stages
// of a worker; 65,535 attempts. What is longer is MR_ETOOBIG, a number beyond its limit MR_EINVAL.
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mr mr;
typedef struct mr_job mr_job;
typedef struct mr_worker mr_worker;

// Never 0 and never reused; a decimal string on the wire and in JSON.
typedef uint64_t mr_id;

typedef struct mr_bytes {
    const void *data;
    size_t size;
} mr_bytes;

static inline mr_bytes mr_str(const char *s) {
    mr_bytes b;
    b.data = s;
    b.size = s ? strlen(s) : 0;
    return b;
}

// A handler's answer: I keep the job and finish it later, from any thread.
enum { MR_LATER = 1 };

// Every error there is: name, number, what it means.
#define MR_ERRORS(X)                                                                               \
    X(EAGAIN, 1, "nothing came in time")                                                           \
    X(EFULL, 2, "a limit is reached")                                                              \
    X(EGAP, 3, "an earlier number of this source is missing")                                      \
    X(ESTALE, 4, "the lease is no longer held")                                                    \
    X(EEXPIRED, 5, "the deadline has passed")                                                      \
    X(ECANCELLED, 6, "the job was cancelled")                                                      \
    X(EDEAD, 7, "the job used up its attempts")                                                    \
    X(EGONE, 8, "no such job is known any more")                                                   \
    X(EINVAL, 9, "an argument is not valid")                                                       \
    X(ETOOBIG, 10, "an argument is too large")                                                     \
    X(EBUSY, 11, "it is still in use")                                                             \
    X(ENOMEM, 12, "out of memory")                                                                 \
    X(EIO, 13, "reading or writing failed")                                                        \
    X(ENET, 14, "the engine cannot be reached")                                                    \
    X(EAUTH, 15, "the secret is not accepted")                                                     \
    X(EPERM, 16, "this is not permitted")                                                          \
    X(ECORRUPT, 17, "the store is damaged")                                                        \
    X(ESTOPPED, 18, "the engine has stopped")                                                      \
    X(EDRAINING, 19, "the stage is draining")

enum {
#define MR_ERROR_CODE(name, number, text) MR_##name = -(number),
    MR_ERRORS(MR_ERROR_CODE)
#undef MR_ERROR_CODE
};

#define MR_FOREVER INT64_C(-1) // every wait: 0 does not wait
#define MR_BACKOFF INT64_C(-1) // mr_fail: as the stage says
#define MR_NEVER INT64_C(-2)   // mr_fail: dead at once

// ---- Opening and closing ----------------------------------------------------------------------

typedef struct mr_options {
    // What a call waits for. "always" (default): it is on disk when the call returns.
    // "interval:50": it will be, at most 50 ms later. "none": when the system likes.
    const char *sync;
    const char *user, *secret, *tls_ca, *tls_cert, *tls_key; // of remote engines only
    const char *name;   // of this program, for people: letters without blanks
    uint32_t shards;    // up to 64; 0: as many as the store has, 1 if it is new; see below
    uint64_t max_bytes; // of live jobs, results and states; beyond it results are forgotten before
                        // their time, then pushes get MR_EFULL; 0: none
    uint64_t reserved[8];
} mr_options;

// Opens the engine that `url` names:
//     mem:        in this process, gone with it
//     file:DIR    in this process, kept in the directory DIR, which is made when missing
//     millrace://[USER:SECRET@]HOST[:PORT]   a server (millrace serve); PORT is 7411 unless given
//     millrace://…HOST[:PORT],HOST[:PORT]…   a cluster: up to eight nodes, which are tried in turn
//     millraces://…                          the same with TLS
//     unix:PATH, unix://[USER:]SECRET@/PATH  a server on this machine, by its Unix-domain socket
// What was in the store is there again: jobs that ran when it was closed wait at the head of their
// channels; after a crash they have one failed attempt more.
//
// With several shards as many threads can push, take and commit at once: each shard has a lock and
// a log of its own, and its share of max_bytes. A stage lives in one of them, by its name, with all
// that belongs to it; several busy stages gain by it, one alone does not. A store keeps the number
// it was made with, and another one is refused: `millrace store copy --shards` makes a store that
// has it. If the log of one shard fails, the whole engine answers MR_ESTOPPED.
//
// A server may be restarted under a client: connections come back by themselves, requests whose
// answer was lost are repeated, and none takes effect twice. Meanwhile calls wait, up to 30 s, then
// they answer MR_ENET: the server was not reached, and whether a request that had been sent took
// effect is not known (`once` makes it safe to repeat). So does a push, also one that waits for
// room, whose connection is lost 30 s after it was first sent or later: the server may have
// forgotten its number when the connection comes back. Workers and takes that wait for ever wait
// on. Jobs that were leased over a lost connection must stop (MR_ESTALE): they run again elsewhere.
// `user` and `secret`, also those of the URL (where a byte may be written as %XX), are sent if
// there is a secret. With TLS (if this build has it) the server's certificate must name HOST and be
// signed by an authority of the file `tls_ca`, or by one that the system trusts; `tls_cert` and
// `tls_key` are sent to a server that demands them. All three are files in PEM. What the other
// calls say holds for both kinds of engine, except that mr_stage_wait_empty asks the server again
// and again, up to ten times a second, and that stopping a worker or closing waits for at most 30 s
// for a server that has gone.
//
// MR_ENET: no server answers at HOST:PORT; MR_EAUTH, MR_EPERM: it refuses this user. MR_EINVAL: no
// such URL or option; MR_EBUSY: another process has the directory; MR_ECORRUPT: it is damaged, and
// where; MR_EIO; MR_EFULL: too many engines are open in this process (64), or the server has had
// too many clients for 30 s.
int mr_open(const char *url, const mr_options *, mr **out);

// Makes everything durable and frees the engine. MR_EBUSY while workers, leased jobs, started calls
// or waiting threads use it; the sentence says which, and nothing is closed. Jobs that were taken
// in a batch and not returned by mr_take yet are released; this waits for callbacks that run, and
// they cannot close the engine themselves. NULL is fine. No other thread may be calling, or call
// later, with this `mr`.
int mr_close(mr *);

// Whether jobs can be taken from the engine at present: 0, or what is wrong, while workers and
// calls keep trying. MR_ENET: the server cannot be reached; MR_ESTOPPED: the store failed; any
// other code is what the server answered to the last take of a worker (MR_EPERM: it may not).
int mr_check(mr *);

// What went wrong in this thread's last call that failed. Meaningful only after a failure: a call
// that succeeds may leave the sentence of an earlier one. Never NULL.
const char *mr_error(void);

const char *mr_version(void); // "0.2.0"

// ---- Pushing ----------------------------------------------------------------------------------

typedef struct mr_push_options {
    mr_bytes key;        // jobs of one key run one after another, in order; empty: on its own
    mr_bytes once;       // a name: two pushes of one (stage, key) with the same name are one job
    int64_t delay_ms;    // joins its channel only then
    int64_t deadline_ms; // from now; not done by then, it is stopped and expires; 0: none
    int64_t room_ms;     // how long to wait while a limit is reached; 0: MR_EFULL at once
    uint32_t attempts;   // 0: as the stage says
    uint32_t last;       // 1, with `once`: debounces, see mr_push; not for calls and emits
    mr_bytes meta;       // up to 1 KiB that mr_job_meta gives to the worker, such as a trace id
    uint64_t reserved[4];
} mr_push_options;

// Pushes a job. When it returns 0 the job is as durable as the sync policy promises. `out` gets its
// id, unless it is NULL, which is faster in memory; if `once` names a job that is known, no job is
// made and `out` gets that one's id. With `last`, the known job gets the new body, deadline and
// metadata instead, and keeps its id, if no worker has had it yet: one that is delayed also gets
// the new delay, one that waits keeps its place; if it was started or has ended, a new job is made
// and takes the name. MR_EFULL: a limit of the stage or engine is reached, also after room_ms;
// MR_EDRAINING; MR_ETOOBIG; MR_ESTOPPED: the store failed; whether the job is in it is not known,
// `once` makes it safe to push again.
int mr_push(mr *, const char *stage, mr_bytes body, const mr_push_options *, mr_id *out);

typedef struct mr_item {
    mr_bytes key, once, body;
} mr_item;

// Pushes `n` jobs in order, at the price of one. `all` holds for each of them (its key and once
// must be empty). It stops at the first that is not accepted: *out_n is how many were, out_ids (may
// be NULL; room for n) their ids. 0 when at least one was accepted, or n is 0; push again from
// there and the code says why that one was not.
int mr_push_many(mr *, const char *stage, const mr_item *, size_t n, const mr_push_options *all,
                 mr_id *out_ids, size_t *out_n);

typedef struct mr_result {
    mr_bytes body;
    void *owner; // free with mr_result_free
} mr_result;

// A push that waits for the result. The job lives as long as a caller waits for it: this one does,
// until the deadline. `out` (may be NULL) gets the result, empty if none was set. MR_EEXPIRED: the
// deadline came first; this returns at the deadline, not later; MR_ECANCELLED; MR_EDEAD: it used up
// its attempts, the sentence has the last reason; and those of mr_push.
int mr_call(mr *, const char *stage, mr_bytes body, const mr_push_options *, mr_result *out);

// How a started call ended: `status` is 0 and `body` the result, or `status` is one of the codes of
// mr_call and `body` the reason in words. `body` is borrowed until it returns.
typedef void mr_on_end(mr_id, int status, mr_bytes body, void *arg);

// As mr_call, but returns when the job is pushed; `on_end` is called exactly once if and only if
// this returned 0, by a thread of the engine, perhaps before this has returned. Callbacks run one
// after another, so `on_end` should be brief; it must not wait in mr_worker_stop. To give up
// earlier: mr_cancel.
int mr_call_start(mr *, const char *stage, mr_bytes body, const mr_push_options *, mr_on_end *,
                  void *arg, mr_id *out);

// Waits for the end of a job, whichever program pushed it. A call is cancelled when the last caller
// that waits for it, also here, has gone; a push is not affected. MR_EAGAIN: not ended in time;
// MR_EGONE: not known, or no longer; else as mr_call.
int mr_await(mr *, mr_id, int64_t wait_ms, mr_result *out);

// A job that waits ends cancelled at once. One that runs must stop, and nothing it does later is
// recorded. 0 also when it had ended already; MR_EGONE: not known, or no longer.
int mr_cancel(mr *, mr_id);

void mr_result_free(mr_result *); // also of a zeroed one, or NULL

// ---- Epics ------------------------------------------------------------------------------------
// An epic is a numbered stream of pushes 1, 2, 3 … into one stage, with a name, an end and
// progress: a file of a million lines, read only as fast as it is worked off, and resumed where it
// stopped:
//
//     mr_epic june = { .stage = "mail", .name = "june" };
//     mr_push_options waits = { .room_ms = MR_FOREVER };
//     mr_epic_begin(m, &june);
//     for (uint64_t n = 1; next_line(&line); n++)
//         if (n >= june.next)
//             mr_epic_push(m, &june, line, &waits, NULL);
//     mr_epic_end(m, &june);
//     mr_epic_wait(m, "mail", "june", MR_FOREVER, NULL);
//
// The engine knows which numbers it has accepted and accepts none twice, whatever is restarted:
// this program, the server, the workers. It keeps an epic, a few bytes, until mr_epic_drop or
// mr_epic_forget. A name
// has 1 to 200 bytes and is unique within its stage: epics of two stages never meet.

// The producer's side of an epic. It belongs to the caller and nothing of it needs freeing; one
// thread at a time.
typedef struct mr_epic {
    const char *stage, *name;
    uint64_t next; // the number of the next push
    // So many of its jobs may be there that have not ended, bodies of so many bytes together; then
    // pushing waits for the workers. 0: 1,024 and 64 MiB; UINT32_MAX: any number.
    uint32_t ahead;
    uint64_t ahead_bytes;
    uint64_t expected; // how many there will be, for people who look at it; 0: not known
    uint64_t own[7];   // the library's
} mr_epic;

// Looks up how far the epic is: `next` becomes the first number that the engine has not accepted, 1
// if it does not know the epic. Comes before the other calls.
int mr_epic_begin(mr *, mr_epic *);

// Pushes number `next`, which grows by one if and only if this returns 0. Whatever else it returns,
// also when it is not known whether the engine has the job (MR_ENET, MR_ESTOPPED), pushing the same
// job again is safe. `room_ms` is how long it waits for the workers to catch up as well as for room
// in the stage; 0: MR_EFULL at once. `out` (may be NULL) gets the id; 0: this number was accepted
// before, too long ago for its id to be known. Codes of mr_push, and MR_EGONE: the epic was
// dropped; MR_EGAP: the engine has forgotten accepted numbers (its store was lost): mr_epic_begin
// says where to begin; MR_EINVAL: the epic has ended before `next`.
int mr_epic_push(mr *, mr_epic *, mr_bytes body, const mr_push_options *, mr_id *out);

// As many of `n` as there is room for, at the price of one; see mr_push_many. `next` grows by
// *out_n.
int mr_epic_push_many(mr *, mr_epic *, const mr_item *, size_t n, const mr_push_options *all,
                      mr_id *out_ids, size_t *out_n);

// Number `next` will not be pushed: it counts as accepted, without a job.
int mr_epic_skip(mr *, mr_epic *);

// There is nothing behind what was pushed. An epic of nothing is over at once. MR_EINVAL: it has
// ended with another number, or more was pushed by another program; MR_EGONE: it was dropped
// meanwhile.
int mr_epic_end(mr *, mr_epic *);

typedef struct mr_epic_info {
    uint64_t resume;           // the first number that was not accepted yet
    int64_t total;             // how many there are; -1: not known before mr_epic_end
    uint64_t accepted;         // jobs, and what has become of them:
    uint64_t waiting, running; // not ended
    uint64_t done, dead, cancelled, expired;
    int over;          // 1: all numbers were accepted, or it was cancelled, and all jobs have ended
    const char *stage; // that it belongs to …
    const char *held_by; // … and why none of its jobs starts: see mr_stage_info. Both are valid
                         // until this thread's next look at an epic
    int64_t expected;    // how many there will be, as its producer said; -1: not known
    uint64_t forget_ms;  // as mr_epic_forget said; 0: it is kept
    int stopped;         // 1: mr_epic_cancel was called for it
    int then_pushed;     // 1: the job of mr_epic_then was pushed
    uint64_t reserved[5];
} mr_epic_info;

int mr_epic_look(mr *, const char *stage, const char *name, mr_epic_info *out); // MR_EGONE

// Waits until the epic is over. `out` may be NULL. MR_EDEAD: it is, and jobs of it are dead; the
// sentence says how many; if they are retried it is not over any more. MR_EAGAIN: not in time;
// MR_EGONE: there is none, or it was dropped meanwhile.
int mr_epic_wait(mr *, const char *stage, const char *name, int64_t wait_ms, mr_epic_info *out);

// Pushes a job when the epic is over, in whatever way its jobs have ended: in the same commit that
// ends it, so once, over any crash, and not again if dead jobs are retried and end. It is accepted
// whatever the limits of its stage. `key` may be empty, the body has at most 4 KiB. A second call
// replaces the first until the epic is over; if it is, the job is pushed now. MR_EINVAL: another
// one was pushed already.
int mr_epic_then(mr *, const char *stage, const char *name, const char *then_stage, mr_bytes key,
                 mr_bytes body);

// Cancels all jobs of the epic that have not ended, as mr_cancel does, and refuses all further
// numbers with MR_ECANCELLED until mr_epic_drop; so the epic ends. Many jobs take a while:
// mr_epic_wait waits for the last. MR_EGONE.
int mr_epic_cancel(mr *, const char *stage, const char *name);

// Drops the epic that long after it is over, or from now on if it is: at least 1,000 ms; 0: never.
int mr_epic_forget(mr *, const char *stage, const char *name, int64_t after_ms);

// Forgets an epic: its name and numbers can be used anew. Jobs of it stay and run; what
// mr_epic_then has said is not pushed. MR_EGONE.
int mr_epic_drop(mr *, const char *stage, const char *name);

// ---- Schedules --------------------------------------------------------------------------------
// A schedule pushes a job again and again, by the wall clock of the engine: a tick is pushed once,
// over any crash, and accepted whatever the limits of its stage. It belongs to a stage, where its
// name (1 to 200 bytes) is unique. Runs with a key never overlap. A schedule of an engine in this
// process ticks while the engine is open. See docs/schedules.md.

typedef struct mr_schedule_options {
    const char *cron;    // "30 2 * * *", "@daily"; or NULL, and then …
    int64_t every_ms;    // … an interval of 1 s at least, from now on
    const char *tz;      // time zone of `cron`, as "Europe/Berlin"; NULL: UTC
    const char *missed;  // ticks while the engine was not open: "skip" (or NULL), "one", "all"
    mr_bytes key, meta;  // of its jobs, as the next two
    int64_t deadline_ms; // from their push; 0: none
    uint32_t attempts;   // 0: as the stage says
    uint64_t reserved[8];
} mr_schedule_options;

// Makes a schedule, or replaces the one of this name, which keeps its pause, its last tick and, if
// its times are the same, its next one. MR_EINVAL names the field that is not possible, and what
// is; MR_ETOOBIG; MR_EFULL: there are too many.
int mr_schedule_set(mr *, const char *stage, const char *name, mr_bytes body,
                    const mr_schedule_options *);

// MR_EGONE: there is none of that name.
int mr_schedule_drop(mr *, const char *stage, const char *name);
int mr_schedule_pause(mr *, const char *stage, const char *name);
int mr_schedule_resume(mr *, const char *stage, const char *name); // what it left out stays so
// Pushes one job beside the ticks. MR_ENET: the connection was lost meanwhile, and the job may have
// been pushed.
int mr_schedule_now(mr *, const char *stage, const char *name);

typedef struct mr_schedule_info {
    const char *stage, *name;
    const char *cron; // "": every_ms says when
    int64_t every_ms; // 0: cron says when
    const char *tz;
    const char *missed;
    int paused;
    int64_t next_at;         // its next tick, in ms since 1970 UTC; -1: none while it is paused
    int64_t last_at;         // its last one; -1: none yet
    int64_t upcoming[5];     // the next ticks, in the same unit …
    uint32_t upcoming_count; // … and how many there are: 0 while it is paused
    uint64_t pushed;         // jobs
    mr_id last_id;           // of the latest of these; 0: none yet
    mr_bytes key;            // of its jobs, as what follows
    int64_t deadline_ms;
    uint32_t attempts;
    uint64_t body_size;
    uint64_t reserved[8];
} mr_schedule_info;

// Texts and key are valid until this thread's next look at a schedule. MR_EGONE.
int mr_schedule_look(mr *, const char *stage, const char *name, mr_schedule_info *out);

// Calls `each` for every schedule of the stage (NULL: of all stages), with an info that is borrowed
// until `each` returns, until it returns nonzero. It may call anything here. Those that are made or
// dropped meanwhile may be left out. A server lists those that this user may see.
int mr_schedules(mr *, const char *stage, int (*each)(const mr_schedule_info *, void *arg),
                 void *arg);

// ---- Working ----------------------------------------------------------------------------------

// Runs a job, which is the worker's while it does. Return
//   0           to commit: result, state and emits set so far, and the job's end, all or nothing
//   MR_LATER    to keep the job: it is then yours, and mr_done, mr_fail or mr_release must end it,
//               from any thread, even before the handler has returned
//   otherwise   for a failed attempt, with the reason set by mr_job_set_reason
// If the handler ended the job itself, what it returns does not matter.
typedef int mr_handler(mr_job *, void *arg);

typedef struct mr_work_options {
    const char *const *more_stages; // NULL-terminated; served after `stage`, in this order
    uint32_t jobs;     // in flight at once, also those kept with MR_LATER; 0: self-tuned
    uint32_t batch;    // up to so many are taken at once and run one after another; 0: 1
    uint32_t own_loop; // not 0: no threads, see mr_worker_fd
    int64_t lease_ms;  // how long the lease of a job lasts without a beat; 0: as the stage says
    void (*on_stop)(mr_job *, void *arg); // cancelled, expired or lease lost: stop working on it
    uint64_t reserved[8];
} mr_work_options;

// Begins to pull jobs of `stage` and to run `handler` on them, in up to `jobs` threads of its own;
// threads are made when there is work for them, and leave when there is not. Beats in the
// background keep the leases until the jobs end. A commit that comes too late (cancelled, expired,
// lease lost) is refused and forgotten.
//   * jobs 0: the worker finds out by trial how many at once complete the most, and keeps to the
//     fewest that do: it begins with one for each processor, doubles while that pays, then compares
//     levels side by side, and looks again from time to time. With too little work it stays where
//     it is. Only commits count, so failing fast is no success.
//   * batch: more throughput for short jobs; but a long one holds up those taken with it.
//   * on_stop is called by a thread of the engine while the handler runs (or after MR_LATER), with
//     the handler's `arg`; the job is good until it returns. It may end the job. It is never called
//     after mr_worker_stop returned 0. mr_job_stopped() then returns 1.
int mr_work(mr *, const char *stage, mr_handler *, void *arg, const mr_work_options *,
            mr_worker **out);

// Takes nothing more, gives back what was taken but not started, and waits until what runs (and
// what was kept with MR_LATER) has ended. 0: all has, its commits are durable, the worker is freed.
// MR_EBUSY: not in time; it takes nothing more; call again. Called inside its own handler or
// on_stop it answers MR_EBUSY at once. NULL is fine. The engine stays open.
int mr_worker_stop(mr_worker *, int64_t wait_ms);

// How many jobs the worker lets be in flight at once now: `jobs`, or what it has learned so far; in
// a trial, the level on trial. Above 0. Any thread, handlers too; not while the worker is stopped.
int mr_worker_level(mr_worker *);

typedef struct mr_worker_info {
    uint32_t level;          // as mr_worker_level
    uint32_t choice;         // the level it returns to between trials
    uint32_t in_flight;      // jobs started and not ended
    uint32_t threads;        // of its own
    uint64_t completed;      // jobs committed
    const uint32_t *choices; // the latest choices, oldest first; the last is the present one …
    uint32_t choice_count;   // … and how many there are
    const char *why;         // how the present choice was made, in words. This and `choices` are
                             // valid until this thread's next mr_worker_look
    uint64_t reserved[8];
} mr_worker_info;

// What the worker does. Counts are of the moment and need not agree with each other. Callers as
// mr_worker_level.
int mr_worker_look(mr_worker *, mr_worker_info *out);

// Of a worker with own_loop: a descriptor that is readable when there is something to do; poll it,
// do not read it, do not close it. MR_EINVAL: the worker has threads.
int mr_worker_fd(mr_worker *);

// Runs the handlers that are due, and on_stop, in this thread; never waits. Some work may be left
// for the next turn: the descriptor then stays readable. Handlers that take longer than the lease
// call mr_beat. One thread at a time, and not inside a handler.
int mr_worker_turn(mr_worker *);

// ---- Taking jobs one by one -------------------------------------------------------------------

typedef struct mr_take_options {
    int64_t wait_ms;  // for work to come
    int64_t lease_ms; // until another worker may get the job; 0: as the stage says
    uint32_t batch;   // lease up to so many at once; the next takes of the stage return them; 0: 1
    uint64_t reserved[4];
} mr_take_options;

// Takes the next job of the stage. MR_EAGAIN: none in time. With `batch`, jobs of one channel are
// returned in order, each when the one before it was done; if one fails, those behind it are
// released; the lease of all runs from the first take.
int mr_take(mr *, const char *stage, const mr_take_options *, mr_job **out);

// These end a leased job and use it up whatever they return: it must not be used afterwards.
// MR_ESTALE: the lease was lost, and another worker may have the job; MR_EEXPIRED: its deadline has
// passed; MR_ECANCELLED: it was cancelled; MR_EGONE: it was dropped; MR_ESTOPPED. Any other code:
// what it should record could not be written, and counts as a failed attempt with that reason; as
// the last one, if it was MR_ETOOBIG. If that has no room either, the lease runs out, and what was
// taken behind the job goes back: so it is the first of its key again when there is room.
int mr_done(mr_job *); // commits result, state and emits, and ends the job

// A failed attempt. `reason` may be NULL; `retry_ms` says when to try again: a time, MR_BACKOFF or
// MR_NEVER. Out of attempts, the job is dead: kept, listed by mr_dead, retryable.
int mr_fail(mr_job *, const char *reason, int64_t retry_ms);

// Releases the job: it keeps its place and no attempt counts. Its channel then waits for `delay_ms`
// (0 to 100 years), also over a restart; jobs of other keys do not. MR_EINVAL: the delay is out of
// bounds, and the job is still leased.
int mr_release(mr_job *, int64_t delay_ms);

// Extends the lease by its length. MR_ECANCELLED, MR_EEXPIRED, MR_ESTALE: stop; the job is still
// leased and must be ended.
int mr_beat(mr_job *);

// As mr_beat, and says how far the job is: `done` of `total` (0: not known) and, unless `text` is
// NULL, what it is doing, of which 200 bytes are kept. mr_jobs shows it while the job runs; nothing
// of it is recorded.
int mr_job_progress(mr_job *, uint64_t done, uint64_t total, const char *text);

// ---- A leased job -----------------------------------------------------------------------------
// What these return lives as long as the job. For NULL they answer 0, "", empty. The setters belong
// to one thread at a time; they answer MR_EINVAL once the job was ended.

mr_id mr_job_id(const mr_job *);
const char *mr_job_stage(const mr_job *);
mr_bytes mr_job_key(const mr_job *);
mr_bytes mr_job_body(const mr_job *);
mr_bytes mr_job_meta(const mr_job *);  // mr_push_options.meta of its push; empty: none
mr_bytes mr_job_state(const mr_job *); // what the channel kept from the job before; empty: nothing
uint32_t mr_job_attempt(const mr_job *); // from 1
int64_t mr_job_left_ms(const mr_job *);  // to its deadline, at least 0; MR_FOREVER if none
int mr_job_stopped(const mr_job *);      // 1: cancelled, expired or lease lost; else 0

// What the commit will contain; a later call replaces an earlier one. Nothing of it happens if the
// job then fails.
int mr_job_set_result(mr_job *, mr_bytes);
int mr_job_set_state(mr_job *, mr_bytes);      // replaces the channel's state; empty deletes it
int mr_job_set_reason(mr_job *, const char *); // why, when the handler then fails
// What the work has printed, to be shown beside the reason when the job fails, by mr_fail too: its
// last 4 KiB are kept, with line breaks, of the latest three failed attempts of a job.
int mr_job_set_output(mr_job *, mr_bytes);
// A job that the commit pushes. Emits are always accepted, whatever the room in their stage:
// room_ms must be 0. MR_EFULL: too many in one commit; MR_ETOOBIG: too many bytes.
int mr_job_emit(mr_job *, const char *stage, mr_bytes body, const mr_push_options *);

// ---- Stages and lists -------------------------------------------------------------------------
// For a stage that was never used mr_stage_look, mr_stage_why, mr_jobs and mr_dead answer MR_EGONE;
// mr_stage_set, mr_stage_pause, mr_stage_drain and mr_stage_resume make it.

typedef struct mr_stage_info {
    const char *name;          // as held_by
    uint64_t waiting, running; // jobs
    uint64_t parked;           // channels whose first job may not start yet
    uint64_t delayed, dead;    // jobs
    uint64_t done, failed;     // jobs and attempts since the beginning
    int64_t oldest_ms;         // age of the oldest job not ended; -1: none
    const char *held_by; // why nothing starts: "", "no-worker", "paused", "limit", "downstream:X" …
                         // valid until this thread's next mr_stage_look
    uint64_t wasted_wait_ms; // time waited by jobs that were never started, all together
    uint64_t reserved[6];
} mr_stage_info;

int mr_stage_look(mr *, const char *stage, mr_stage_info *out);

// Calls `each` for every stage, with its info borrowed until `each` returns, until it returns
// nonzero. It may call anything here. A server lists the stages that this user may see.
int mr_stages(mr *, int (*each)(const mr_stage_info *, void *arg), void *arg);

// Writes one sentence into `out`, cut to `size` bytes with its 0: why the stage starts nothing, or
// what it does, and the command of the server's protocol that would change that. A server takes a
// name of digits only for the id of a job, if it knows that job.
int mr_stage_why(mr *, const char *stage, char *out, size_t size);

// Sets a policy of the stage: lease 30s · attempts 10 · backoff 1s..5m · on-dead skip|halt ·
// overlap brief|never · dedupe-window 1h · retention 1h,10000 · high-mark 10000 · group off|on ·
// max-jobs, max-channel, concurrency, rate (N/s), max-states, state-ttl, group-concurrency,
// group-rate: none. Durations are milliseconds or carry a unit (250ms 30s 5m 2h 7d). MR_EINVAL says
// what is possible. `overlap never`: a job whose worker was lost starts again only when its lease
// has ended, also after a server's crash.
//
// `group on`: the part of a key before its
// first / is its group, such as a tenant; groups take turns, however many jobs one has, and each
// may run group-concurrency jobs and start group-rate. A key without a / is a group itself; jobs
// without a key are one group. A key with nothing behind the / ("acme/") belongs to the group, but
// has no order and no state. `group` can be changed while the stage has neither jobs nor states.
int mr_stage_set(mr *, const char *stage, const char *policy, const char *value);

int mr_stage_pause(mr *, const char *stage);  // it accepts pushes and starts nothing
int mr_stage_drain(mr *, const char *stage);  // it finishes its jobs; pushes get MR_EDRAINING
int mr_stage_resume(mr *, const char *stage); // ends both
// The same for the jobs of one key, of at most 1000 keys of a stage. mr_stage_resume does not end
// it.
int mr_stage_pause_key(mr *, const char *stage, mr_bytes key);
int mr_stage_resume_key(mr *, const char *stage, mr_bytes key);

// Waits until nothing of the stage is waiting, delayed or running. A stage that was never used is
// empty. MR_EAGAIN: not in time.
int mr_stage_wait_empty(mr *, const char *stage, int64_t wait_ms);

// Calls `each` for the stage's dead jobs, longest dead first, with the last reason, until it
// returns nonzero. It may retry and drop them. `key` and `reason` are borrowed until it returns.
int mr_dead(mr *, const char *stage,
            int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg);

typedef struct mr_job_filter {
    const char *status; // "running", "waiting", "delayed", "dead", "done", "expired" or
                        // "cancelled"; NULL: all of them, in this order
    mr_bytes key;       // not empty: only jobs of this key, and none that has ended
    mr_id from;         // goes on behind this job, which an earlier list ended with; 0: begins
    uint32_t count;     // at most so many, up to 1,000; 0: 1,000
    uint64_t reserved[4];
} mr_job_filter;

typedef struct mr_job_info {
    mr_id id;
    mr_bytes key;
    const char *status;
    uint32_t attempt;   // the latest one, from 1; 0: none yet
    uint32_t attempts;  // that it may have
    int64_t age_ms;     // since its push; since its end, if it has ended
    int64_t left_ms;    // to its deadline; -1: none
    int64_t due_ms;     // until it may start; -1: now
    int64_t running_ms; // since its start; -1: it does not run
    const char *reason; // of the last failed attempt; "": none
    // While it runs: what its worker has said with mr_job_progress, or all 0.
    uint64_t progress_done, progress_total;
    const char *progress_text; // NULL: it has said nothing
    uint64_t reserved[3];
} mr_job_info;

// Calls `each` for jobs of the stage, with an info that is borrowed until `each` returns, until it
// returns nonzero. It may call anything here. The filter may be NULL. The list is of one moment:
// waiting jobs as they will start, running ones by lease, delayed ones by id, the others longest
// ended first. MR_EGONE also: `from` does not have that status any more, begin again; MR_ETOOBIG:
// none fits among the first 100,000 jobs that were looked at.
int mr_jobs(mr *, const char *stage, const mr_job_filter *,
            int (*each)(const mr_job_info *, void *arg), void *arg);

// Cancels the jobs of the stage that fit and have not ended, as mr_cancel does; with `dry` they are
// only counted. Of the filter count `status` ("delayed", "waiting" or "running"), `key`, and
// `count`, of any size: at most so many; NULL: all of them. `out_count` (may be NULL) gets how
// many; if the connection to a server was lost meanwhile, those since then. MR_EINVAL; MR_EGONE:
// there is no such stage.
int mr_stage_cancel(mr *, const char *stage, const mr_job_filter *, int dry, uint64_t *out_count);

int mr_retry(mr *, mr_id); // a dead job waits again. MR_EINVAL: it is not dead; MR_EGONE
// A job that is delayed, or waits after a failed attempt or a release, may start now; any other is
// not changed. MR_EGONE.
int mr_due(mr *, mr_id);
int mr_drop(mr *, mr_id); // forgets a waiting, delayed or dead job. MR_EBUSY: it runs; MR_EGONE

#ifdef __cplusplus
}
#endif
#endif
