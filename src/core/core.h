// Core: the rules of Millrace as a pure state machine, for one shard.
//
//      commands, time ──►┌──────────────┐──► records (what must survive; through `sink`)
//      records, replayed►│     core     │──► events  (notifications for the owner)
//                        └──────────────┘
//
// The core knows no clock, file, socket, thread or random number: time comes in with core_advance,
// randomness once with core_open, and what must survive is written as entries of a log before
// memory changes. So the same inputs in the same order give the same state and the same records,
// and a history replayed from its records gives the state it had.
//
// A channel is all jobs of one key of one stage; a job without a key is a channel of its own. Every
// known channel is in exactly one of four states:
//
//                    deliver                  start
//        dormant ───────────────► ready ─────────────────► in progress
//           ▲                      ▲ ▲                        │ │ │
//           │                 due  │ └── end, work is left ───┘ │ │
//           │                      │                            │ │
//           │                   parked ◄── fail: backoff, halt ─┘ │
//           └────────────────── end, no work is left ─────────────┘
//
// Every command answers 0 or a negative MR_E… with a sentence in error_text(); a command that fails
// has changed nothing and written nothing. One thread at a time; events are called inside commands
// and must not call back into the core.
//
// An answer or event may be passed on only when every record written before it is durable. The
// shard sees to that.
//
// An engine of several shards has a core for each. A stage lives in one of them (route.h). Two
// things cross shards: emits, which travel over links; and the facts that back pressure needs,
// namely which stage emits to which and which stage is over its high mark.
#ifndef CORE_CORE_H
#define CORE_CORE_H

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/entry.h"
#include "base/histogram.h"
#include "base/job_spec.h"
#include "base/list.h"
#include "base/quotas.h"
#include "base/reply_fields.h"
#include "core/policy.h"
#include "core/route.h"

#include <stdbool.h>
#include <stdint.h>

struct core;

enum job_status {
    JOB_DELAYED,
    JOB_WAITING,
    JOB_RUNNING,
    JOB_DONE,
    JOB_DEAD,
    JOB_EXPIRED,
    JOB_CANCELLED,
};

enum channel_state { CHANNEL_DORMANT, CHANNEL_READY, CHANNEL_IN_PROGRESS, CHANNEL_PARKED };

const char *job_status_name(enum job_status);

// Names a lease; no token is issued twice. `serial` is epoch and counter, `random` the bits given
// at open, `lease` the number by which the core finds the lease.
struct token {
    uint64_t serial, random;
    uint32_t lease;
};

// ---- What the owner provides ------------------------------------------------------------------

// The log, as the core sees it. `append` stores a group of entries, all or none, and returns their
// positions; a failure leaves everything as it was. `read` returns the body of an entry. `running`
// notes for rule 22 that a lease begins or has ended; NULL: this is not noted.
struct core_sink {
    int (*append)(void *owner, const struct entry *, size_t count, enum room, uint64_t *out_at);
    // MR_EAGAIN: it is being read; the core tries again later, and core_fail answers that.
    int (*read)(void *owner, uint64_t at, struct buffer *out_body);
    void (*running)(void *owner, uint64_t id, uint32_t attempt, bool begins);
    void *owner;
};

// Every limit of the core, in one place; zero means the default given here (names: base/limits.h).
struct core_limits {
    uint32_t max_body;      // BODY_MOST
    uint32_t max_state;     // STATE_MOST
    uint32_t max_reason;    // REASON_MOST: bytes kept of one reason
    uint32_t max_reasons;   // reasons kept of a job's latest attempts: 10
    uint32_t max_jobs;      // in total, ended ones included: 500 million
    uint32_t max_channels;  // 100 million
    uint32_t max_groups;    // 10 million
    uint32_t max_stages;    // 10,000
    uint32_t max_sources;   // 10,000
    uint32_t max_schedules; // 100,000
    uint32_t maker_part;  // one maker may have 1 / maker_part of max_stages, of max_sources and of
                          // max_schedules, divided by the number of shards: 4 …
    uint32_t maker_least; // … but at least this many in a shard, if that part is not less: 250
    uint32_t max_once_entries; // 100 million
    uint32_t max_block;        // jobs under one lease: 1,000
    uint32_t max_take;         // jobs in one answer: 1,000
    uint64_t max_take_bytes;   // in one answer; beyond it no more jobs are added: 16 MiB
    uint32_t max_take_stages;  // stages in one TAKE: TAKE_STAGES_MOST
    uint32_t id_block;         // ids reserved by one record: 2^20
    uint32_t max_due;          // timers handled by one core_advance: 2,000
    uint32_t max_emits;        // in one commit: 1,000
    uint64_t max_emit_bytes;   // in one commit: BODY_MOST
    uint64_t max_bytes;        // live bytes in the log: none
    uint64_t max_memory;       // core_memory plus core_set_outside_memory: none
    uint64_t max_room_bytes;   // of pushes waiting for room: 64 MiB
    uint64_t grace_ms;         // for callers to come back after a restart: 10 s
    uint64_t source_idle_ms;   // after that time unused a client's source is forgotten: 1 h
    uint64_t source_least_ms;  // after that time it may be forgotten to make room: SOURCE_LEAST_MS
};

enum { GAPS_MOST = 1024 }; // refused numbers that a connection remembers

// A connection, or anything else that is lost as a whole: its leases and waits end with it. The
// owner embeds the struct, starts it with core_join, and keeps it until core_leave.
struct conn {
    struct list leases, takers, callers, pushers;
    uint32_t lease_count, held; // leases, and unanswered jobs under them
    struct gap *gaps;           // numbers that were refused on it, at most GAPS_MOST …
    uint32_t gap_count, gap_capacity;
    bool gaps_over; // … if there were more, no number is accepted on it any more
};

// One waiting command: a TAKE, a wait for a result, or a push that waits for room. The owner embeds
// the struct and sets `conn`; the core borrows it from the call that answered MR_EAGAIN until the
// event or the …_leave call.
struct taker {
    struct conn *conn;
    struct list of_conn; // the core's, as is all below
    struct taker_entry *entries;
    uint32_t entry_count, count, batch;
    int64_t lease_ms;
    bool detached, in_process;
};

struct caller {
    struct conn *conn;
    struct list of_conn, of_job; // the core's, as is all below
    uint32_t job;
};

struct pusher {
    struct conn *conn;
    struct list of_conn, of_stage; // the core's, as is all below
    uint32_t stage, bytes;
    uint64_t order; // order of arrival among all pushers
    bool granted;   // it was notified of room, which is reserved for it
};

// A command that waits for an epic: see core_epic_watch.
struct watcher {
    struct list of_epic; // the core's, as is all below
    int64_t left;
};

// A job leased to a worker. Names and key are borrowed until the event or call returns.
struct grant {
    uint64_t id;
    struct token token;
    mr_bytes stage, key;
    uint32_t attempt;   // from 1
    int64_t left_ms;    // to its deadline; -1: none
    int64_t lease_ms;   // how long the lease lasts without a beat
    uint32_t size;      // of its entry
    uint32_t shard;     // whose log the positions below are in
    uint32_t meta_size; // bytes of META behind the job's body
    uint64_t at;        // the entry whose body is the job's body and its META
    uint64_t state_at;  // the entry whose body is the channel's state; 0: none
};

// How a job ended.
struct outcome {
    uint64_t id;
    enum job_status status;
    uint32_t shard; // whose log `at` is in
    uint64_t at;    // the entry whose body is the result (done) or the reasons (dead); 0: none
};

// What the core notifies its owner of. No function may call back into the core.
struct core_events {
    // Whether this waiting taker may still be given work. After true it is granted some at once; if
    // memory runs out just then, the core calls this again later.
    bool (*reserve)(void *owner, struct taker *);
    void (*granted)(void *owner, struct taker *, const struct grant *, size_t count);
    void (*ended)(void *owner, struct caller *, const struct outcome *);
    // There is room: push again. The room stays reserved for this pusher meanwhile.
    void (*room)(void *owner, struct pusher *);
    // Running work must stop: MR_ECANCELLED, MR_EEXPIRED or MR_ESTALE (the lease is over).
    void (*stop)(void *owner, struct conn *, uint64_t id, const struct token *, int why);
    // An epic has reached what this watcher waits for, or was changed or dropped: look again.
    void (*epic)(void *owner, struct watcher *);
};

// Facts for the other shards of the engine; NULL functions: there are no other shards. Names are
// borrowed until the function returns. After a negative answer the core sends the fact again with
// the next change or emit.
struct core_peers {
    // A stage of this shard went over its high mark or came back under it: for core_learn_over.
    int (*over)(void *owner, mr_bytes stage, bool over, uint64_t high_mark);
    // A stage emitted to another for the first time: for core_learn_edge, so that each shard sees
    // the cycles. `maker`: of core_act_for.
    int (*edge)(void *owner, mr_bytes stage, mr_bytes downstream, uint64_t maker);
    // A maker has much of its share of stages here: for core_share_left in each other shard.
    int (*share)(void *owner, uint64_t maker);
    void *owner;
};

// What a token may have of what it makes; 0: any number. The name is for messages.
struct maker_quota {
    mr_bytes token;
    struct quotas most;
};

// Quotas, for all shards of a process together. NULL functions: this is the only shard, and jobs
// that no command makes count for no token.
struct core_quotas {
    // What a maker has in this shard becomes more or less. Any thread that uses the core.
    void (*changed)(void *owner, uint64_t maker, enum quota_kind, int64_t by);
    // What it has in all shards.
    uint64_t (*used)(void *owner, uint64_t maker, enum quota_kind);
    // Whether jobs count for this maker: it has a quota of jobs or bytes.
    bool (*counts_jobs)(void *owner, uint64_t maker);
    void *owner;
};

struct core_config {
    struct core_limits limits;
    struct core_sink sink;
    struct core_events events; // NULL functions are not called
    void *owner;               // passed to the events
    struct core_peers peers;
    struct core_quotas quotas;
    uint32_t shard, shards;     // which of how many this is: 0 of 1 when both are 0
    uint64_t first_id, id_step; // ids of this shard: 0 means shard + 1 and shards
    uint64_t segment_size;      // of the log, a power of two: 0 means 1 MiB
    bool never_replayed;        // nor copied: an end that leaves nothing is not written (done.c)
};

// ---- Creation, replay, time -------------------------------------------------------------------

// MR_ENOMEM. The core is then empty and replaying.
int core_create(const struct core_config *, struct core **out);
void core_destroy(struct core *); // takes NULL; connections have left before

// Applies one entry, found at `at`, in log order. Forgetting an ended job writes no record: a job
// whose records are still there comes back if its stage's retention was raised since. MR_ECORRUPT:
// the record is not possible here; MR_ENOMEM.
int core_replay(struct core *, uint64_t at, mr_bytes head, uint32_t body_size);

// Ends replay: puts every channel in order, then begins a new epoch with the given random bits. The
// shard makes the epoch record durable before it passes anything on.
int core_open(struct core *, uint64_t now_ms, uint64_t random);

// Ids are reserved in blocks, ahead, and issued only when the record of their block is durable:
// core_ids_wait is the position of such a record that is not known to be durable yet, synced
// whatever the policy, or 0; core_ids_durable is called when it is. Until then a push may get
// MR_EFULL, if half a block was issued meanwhile.
uint64_t core_ids_wait(const struct core *);
void core_ids_durable(struct core *);

// Called before a clean close: gives back reserved ids that were not used, so that the ids of the
// next epoch follow on. Errors are the sink's; the ids are then skipped.
int core_return_ids(struct core *);

// After core_open: the engine died while this attempt ran. It counts as failed (rule 22).
int core_crashed(struct core *, uint64_t id, uint32_t attempt);

// Moves time forward (never back) and handles due timers, earliest first, at most max_due of them:
// the next calls handle the rest, and core_next is in the past meanwhile. The owner calls this
// before every command and at core_next. MR_ESTOPPED and the sink's other errors: a record could
// not be written.
int core_advance(struct core *, uint64_t now_ms);
uint64_t core_next(const struct core *); // UINT64_MAX: nothing is planned
uint64_t core_now(const struct core *);
uint64_t
core_epoch(const struct core *); // each opening of a log has a higher one than those before

// Sets who makes what the following commands make: a number that stands for a token, and what it
// may have (NULL: its share only), borrowed until the next call. 0: unknown, which has no share
// limit. Records keep the maker; records of older stores have none.
//
// Jobs count for a maker that has a quota of jobs or bytes, from their push to their end: those
// that it pushes, those of schedules and of THEN of epics that it has made, and what such jobs
// emit. Jobs that were pushed while it had no such quota do not count. Emits and ticks are accepted
// beyond the quota.
void core_act_for(struct core *, uint64_t maker, const struct maker_quota *);

// The owner's sums no longer include this shard, and no function of core_quotas is called any more.
// core_destroy does the same.
void core_end_quotas(struct core *);

// What a maker has in this shard.
void core_used(const struct core *, uint64_t maker, struct quotas *out);

// ---- Connections ------------------------------------------------------------------------------

void core_join(struct core *, struct conn *);

// The connection is gone: its waits and its interest in calls end without events, and its leases
// are lost unless detached. What cannot be written now is retried later; the first error is
// returned.
int core_leave(struct core *, struct conn *);

// Does a part of that, of about `steps` steps (see core_take_steps). True once the connection has
// left; until then there may still be events for its callers.
bool core_leave_some(struct core *, struct conn *, uint64_t steps);

// The engine is about to close: the connection's leased jobs go back to their places, no attempt is
// counted, and the worker is not notified. Leases that outlive the engine stay, without a
// connection.
void core_give_back(struct core *, struct conn *);
// The same of those with the last `jobs` that it has taken, as if they had not been: starts that a
// rate has counted may be used again.
void core_give_back_last(struct core *, struct conn *, uint64_t jobs);

// ---- Pushes and calls -------------------------------------------------------------------------

struct push {
    mr_bytes stage, body;
    struct job_spec job; // times count from now
    mr_bytes source;     // a numbered push: its source's name, and the number (from 1)
    uint64_t number;
    bool epic;             // the source is an epic of the stage; else a client's
    mr_bytes scope;        // of a client's source: names of one scope mean nothing in another
    struct conn *conn;     // on which a refused number blocks the source; may be NULL
    struct caller *caller; // a call; NULL: a push
    struct pusher *pusher; // waits for room (MR_EAGAIN); NULL: MR_EFULL at once
    bool promised;         // room was promised for it: see core_promises_room
};

struct pushed {
    uint64_t id; // the first one's when it is a repeat; 0: a repeat no longer known by id
    bool repeat;
    bool ended; // a call's job that has ended already: `outcome` says how, no event follows
    struct outcome outcome;
};

// MR_EINVAL, MR_ETOOBIG, MR_EFULL, MR_EGAP, MR_EDRAINING, MR_EAGAIN (waits for room: event `room`),
// MR_EGONE: a call that repeats one whose job is forgotten.
int core_push(struct core *, const struct push *, struct pushed *out);
void core_push_leave(struct core *, struct pusher *);

// Whether the owner may accept so many plain pushes to a stage, until this is asked again, and push
// them later (`promised`). They are not refused then, except with MR_ENOMEM, and max-jobs holds, if
// no more than PUSHES_A_TURN others are pushed meanwhile. False: each has to be pushed at once,
// because a take waits for it, or there is a limit to be checked. A push is plain if it says
// nothing of its job but the key.
enum { PUSHES_A_TURN = 1000 };
bool core_promises_room(struct core *, mr_bytes stage, uint32_t jobs);
bool push_is_plain(const struct push *);
// The first number that was not seen of the source that this push names, and whether its own was.
uint64_t core_source_resume(struct core *, const struct push *);
bool core_has_seen(struct core *, const struct push *);

// Waits for a job's end. 0: it has ended, see `out`; MR_EAGAIN: event `ended` follows; MR_EGONE.
int core_await(struct core *, uint64_t id, struct caller *, struct outcome *out);

// The caller gives up. If the job was a call and this its last caller, it is cancelled.
int core_await_leave(struct core *, struct caller *);

int core_cancel(struct core *, uint64_t id, bool *out_changed); // MR_EGONE

// ---- Takes and commits ------------------------------------------------------------------------

struct take {
    const mr_bytes *stages; // served in this order
    size_t stage_count;
    uint32_t count, batch; // 0: 1
    int64_t lease_ms;      // 0: as the stage says
    bool detached;         // the lease outlives the connection
    bool in_process;       // the worker ends with the engine's process: its lease is not recorded
    struct conn *conn;
    struct taker *taker; // waits (MR_EAGAIN, event `granted`); NULL: MR_EAGAIN at once
};

// Leases up to `count` jobs; `out_grants` has room for that many. MR_EAGAIN: no job may start now.
int core_take(struct core *, const struct take *, struct grant *out_grants, size_t *out_count);
// Waits in any case: for a take that has to be reserved before it is given anything. The events
// `reserve` and `granted` may come before this returns 0.
int core_take_wait(struct core *, const struct take *);
// Checks the arguments of a take only: 0, or MR_EINVAL.
int core_take_check(struct core *, const struct take *);
void core_take_leave(struct core *, struct taker *);

struct done {
    uint64_t id;
    struct token token;
    mr_bytes result;
    bool set_state; // an empty state deletes
    mr_bytes state;
    const struct emit *emits;
    size_t emit_count;
};

// MR_ESTALE, MR_EEXPIRED, MR_ECANCELLED, MR_EGONE; MR_EINVAL: a block's jobs end in order.
int core_done(struct core *, const struct done *);

// Why an attempt has failed: a sentence, and what the worker has printed, of which the end is kept.
struct cause {
    mr_bytes reason, output;
};

// `retry_ms`: delay before the next attempt, or MR_BACKOFF, or MR_NEVER.
int core_fail_by(struct core *, uint64_t id, const struct token *, struct cause, int64_t retry_ms);
int core_fail(struct core *, uint64_t id, const struct token *, mr_bytes reason, int64_t retry_ms);
// The job keeps its place, and no attempt counts. `delay_ms`: its channel waits that long, which is
// recorded; 0: not at all, unless it was released before without an attempt in between.
int core_release(struct core *, uint64_t id, const struct token *, int64_t delay_ms);

// The body of a job that was just leased cannot be read. The first job of a lease fails, as with
// core_fail; any other goes back without a counted attempt while those before it stay leased, so
// that next time it is the first. All jobs behind it under the lease go back. `why` is the error of
// reading it: what is damaged (MR_ECORRUPT) stays so, other errors may be temporary.
int core_unreadable(struct core *, uint64_t id, const struct token *, mr_bytes reason, int why);

// Extends the lease. MR_ECANCELLED, MR_EEXPIRED, MR_ESTALE: stop working on it.
int core_beat(struct core *, uint64_t id, const struct token *);

// As core_beat, and notes the progress of the job, in memory only, until the lease ends. The text
// is copied, and cut at PROGRESS_MOST bytes. MR_ENOMEM: neither was done.
int core_progress(struct core *, uint64_t id, const struct token *, const struct job_progress *);

// ---- Operator commands ------------------------------------------------------------------------

int core_retry(struct core *, uint64_t id); // MR_EGONE; MR_EINVAL: it is not dead
// Makes a job due now that is delayed, or waits after a failed attempt or a release. MR_EGONE;
// MR_EFULL: not just now, since timers are late.
int core_due(struct core *, uint64_t id, bool *out_changed);
int core_drop(struct core *, uint64_t id); // waiting, delayed or dead; MR_EBUSY: it is running
// Whether this can be a stage's name: 0, or MR_EINVAL with what is allowed.
int stage_name_check(mr_bytes name);
int core_set(struct core *, mr_bytes stage, mr_bytes name, mr_bytes value);
// Forgets an empty stage with its policy and counters. MR_EGONE; MR_EINVAL says what is left.
int core_stage_remove(struct core *, mr_bytes stage);
int core_pause(struct core *, mr_bytes stage);
int core_drain(struct core *, mr_bytes stage);
int core_resume(struct core *, mr_bytes stage);
// The same for one channel: its jobs are kept and not started; running ones go on. RESUME of the
// stage does not end it. A second PAUSE, or a RESUME of a channel that is not paused, changes
// nothing. MR_EINVAL: no key; MR_EFULL: too many are paused.
int core_pause_key(struct core *, mr_bytes stage, mr_bytes key);
int core_resume_key(struct core *, mr_bytes stage, mr_bytes key);
// Learns that one stage emits to another (core_peers.edge). Stages that are not known here yet
// count for the maker, apart from those it has made. An edge of a stage that belongs to this shard
// of several and is not known changes nothing: it was removed. MR_ENOMEM, MR_EFULL: it was not
// learned.
int core_learn_edge(struct core *, mr_bytes stage, mr_bytes downstream, uint64_t maker);

// Learns whether a stage of another shard is over its high mark (core_peers.over). While it is,
// stages that emit to it are not started. MR_ENOMEM, MR_EFULL.
int core_learn_over(struct core *, mr_bytes stage, bool over, uint64_t high_mark);
// Forgets what a shard has sent about its stages; it will send all that is still true.
void core_forget_over(struct core *, uint32_t shard);

// All facts that another shard has to know, one after another, as core_peers would send them:
// stages of this shard that are over their high mark or have one that is not the default, and all
// edges. Facts that change meanwhile are sent by core_peers. Names are borrowed until the next
// command. False: there are no more.
struct core_fact {
    mr_bytes stage, downstream; // an edge; without `downstream` about the high mark
    uint64_t maker;             // of an edge
    bool over;
    uint64_t high_mark;
};
struct fact_cursor {
    uint32_t stages, edges; // stages that are done; edges of the next one that are not
    bool in_stage;
};
bool core_fact_next(const struct core *, struct fact_cursor *, struct core_fact *out);

// The members that replies show are listed in base/reply_fields.h, here and below. The stage is
// borrowed until the next command; an epic of an older store has none.
struct epic_info {
    EPIC_FIELDS(CORE_MEMBER)
    uint64_t total;    // once it has ended
    uint64_t expected; // how many pushes its producer expects; 0: not known
    bool ended;        // its total is known
    bool over;         // every number was pushed or it was cancelled, and every job has ended
    uint64_t maker;    // as core_act_for said when it was made; 0: not known
};

enum { EPIC_OVER = -1 };

// Whether at most `left` of its jobs have not ended; for EPIC_OVER, whether it is over.
static inline bool epic_has_come_to(const struct epic_info *e, int64_t left) {
    return e->over || (left >= 0 && e->waiting + e->running <= (uint64_t)left);
}

// An epic belongs to a stage, and its name is unique within it.
int core_epic(struct core *, mr_bytes stage, mr_bytes name, struct epic_info *out); // MR_EGONE
// MR_EINVAL: a number beyond `total` is there.
int core_epic_end(struct core *, mr_bytes stage, mr_bytes name, uint64_t total);
int core_epic_skip(struct core *, mr_bytes stage, mr_bytes name, uint64_t number);
int core_epic_drop(struct core *, mr_bytes stage, mr_bytes name);
// THEN: pushes a job with the end of the epic, in the same group of records, once; a second one
// replaces the first until then. If it has ended, the job is pushed now, unless that was done: the
// same again changes nothing. Only the stage, the body (THEN_BODY_MOST) and the key count.
// MR_EINVAL: another one was pushed.
int core_epic_then(struct core *, mr_bytes stage, mr_bytes name, const struct emit *);
// CANCEL: ends all unended jobs of the epic as cancelled, at once or, if they are many, by and by
// (core_next), also after a restart. No other number is accepted from now on, so the epic ends with
// the last of them. MR_EGONE.
int core_epic_cancel(struct core *, mr_bytes stage, mr_bytes name);
// FORGET: drops the epic that long after its end, or from now if it has ended; 0: never.
// MR_EINVAL: less than FORGET_LEAST_MS, so that a client that waits for the end sees it.
enum { FORGET_LEAST_MS = 1000 };
int core_epic_forget(struct core *, mr_bytes stage, mr_bytes name, uint64_t after_ms);
// Notes how many pushes the producer expects, for displays only; this is not recorded. Does nothing
// if the epic is not known.
void core_epic_expect(struct core *, mr_bytes stage, mr_bytes name, uint64_t total);
// Asks for one `epic` event when the epic may have reached `left` (as for epic_has_come_to): after
// a job's end, END, SKIP or DROP. The caller has looked first. The core borrows the watcher until
// the event or core_epic_unwatch. MR_EGONE.
int core_epic_watch(struct core *, mr_bytes stage, mr_bytes name, int64_t left, struct watcher *);
void core_epic_unwatch(struct watcher *);

// Epics have places, from 0 to below core_epic_places, which they keep; some are empty.
uint32_t core_epic_places(const struct core *);
int core_epic_place(struct core *, mr_bytes stage, mr_bytes name, uint32_t *out); // MR_EGONE
bool core_epic_at(const struct core *, uint32_t place, mr_bytes *out_stage, mr_bytes *out_name);
void core_epic_look_at(struct core *, uint32_t place, struct epic_info *out); // it is not empty

// ---- Schedules --------------------------------------------------------------------------------
//
// A schedule is a push that repeats, with a name that is unique within its stage. Its instants, the
// ticks, are of the wall clock, which the core does not know, and follow from a cron expression and
// the rules of a time zone, which it cannot read. So the owner computes them (shard/ticks.h) and
// passes each next one to the core, which records it:
//
//     wall clock ──► core_tick_due ──► owner: which instant, and which is next? ──► core_tick
//                                                                                      │
//                             PUSH and SCHEDULE_MOVE (last, next), one group of records ◄┘
//
// So each tick is pushed once, over any crash. No tick at or before the last one is ever pushed:
// the owner never passes on such an instant, also when the clock went back. A tick is accepted like
// an emit, whatever the room, pause or drain of its stage; while the log has no room for it, it
// waits.

enum missed { MISSED_SKIP, MISSED_ONE, MISSED_ALL };

// "skip", "one", "all"; and the other way round, in small or capital letters: false, there is none
// of this name.
const char *missed_name(enum missed);
bool missed_find(mr_bytes name, enum missed *out);

struct schedule_spec {
    mr_bytes stage, name;
    mr_bytes cron;     // which the owner has checked; empty: an interval
    uint64_t every_ms; // the interval; EVERY_LEAST_MS at least
    mr_bytes zone;
    enum missed missed;
    mr_bytes body;
    struct job_spec job; // all but its once and its delay
};

// Makes a schedule, or replaces the one of this name, which keeps its last tick, its counts and its
// pause; if its cron expression, interval and zone are the same also the next one. `next_ms`: the
// first tick, later than the last one of the schedule that it replaces. MR_EINVAL, MR_ETOOBIG,
// MR_EFULL.
int core_schedule_set(struct core *, const struct schedule_spec *, uint64_t next_ms);
// Whether that would be refused now: the same errors, but for those of memory and of the log.
int core_schedule_check(struct core *, const struct schedule_spec *);
int core_schedule_drop(struct core *, mr_bytes stage, mr_bytes name); // MR_EGONE, as all below
int core_schedule_pause(struct core *, mr_bytes stage, mr_bytes name);
// Ends a pause; the next tick is `next_ms`, later than the last one.
int core_schedule_resume(struct core *, mr_bytes stage, mr_bytes name, uint64_t next_ms);
// Asks for a job now, beside the ticks: core_tick_due returns the schedule until it was pushed.
int core_schedule_now(struct core *, mr_bytes stage, mr_bytes name);

// All texts are borrowed until the next command.
struct schedule_info {
    SCHEDULE_FIELDS(CORE_MEMBER)
    enum missed missed;
    uint64_t next_ms, last_ms; // 0: none
    uint32_t shard;            // whose log `at` is in
    uint64_t at;               // the entry whose body is that of its jobs …
    uint32_t meta_size;        // … and META of this size behind it
};

int core_schedule(struct core *, mr_bytes stage, mr_bytes name, struct schedule_info *out);
// Schedules have places, as epics have.
uint32_t core_schedule_places(const struct core *);
int core_schedule_place(struct core *, mr_bytes stage, mr_bytes name, uint32_t *out);
bool core_schedule_at(const struct core *, uint32_t place, mr_bytes *out_stage, mr_bytes *out_name);
void core_schedule_look_at(struct core *, uint32_t place, struct schedule_info *out);

// When a schedule is due next, by the wall clock, if not earlier; UINT64_MAX: never.
uint64_t core_tick_next(const struct core *);

struct due_schedule {
    uint32_t place;
    mr_bytes cron, zone; // borrowed until the next command
    uint64_t every_ms, next_ms, last_ms;
    enum missed missed;
    bool asked;       // by core_schedule_now
    bool catching_up; // how many missed ticks to make up for was decided before
    uint32_t body_size;
};

// The schedule that has been due longest; false: none is due. It has to be answered by core_tick or
// core_tick_later before any other command.
bool core_tick_due(struct core *, uint64_t wall_ms, struct due_schedule *out);

struct tick {
    bool pushes;      // a job is pushed
    uint64_t last_ms; // the tick that is pushed, or the last one that is skipped; 0: as before
    uint64_t next_ms; // the one after it; 0: as before
    bool catching_up; // that one is due, too, and was counted
};

// Pushes the job of a due schedule, or only moves it on. After a failure nothing has changed, and
// it is due again a little after `wall_ms`: MR_EFULL, MR_EAGAIN (its body is being read) and
// others.
int core_tick(struct core *, uint32_t place, uint64_t wall_ms, const struct tick *);
// It cannot be decided now: it is due again at `wall_ms`.
void core_tick_later(struct core *, uint32_t place, uint64_t wall_ms);

// ---- Links ------------------------------------------------------------------------------------
//
// An emit whose channel belongs to another shard waits in an outbox, which is written down with the
// commit, until that shard has it:
//
//     here    core_done ──► OUTBOX ── durable ──┐
//     there                                     └──► core_link_accept ──► ARRIVAL ── durable ──┐
//     here                                                              core_link_acked ◄──────┘
//
// The owner transports entries and acknowledgements. It may lose, repeat and reorder them, and
// start again at the oldest: the receiver accepts each entry once and in order.
//
// Shards may have different engine times, so an entry says how much time is left: the sender
// subtracts its present from its instants, and the receiver adds its own. An entry may arrive
// faster than the one before it; `now_ms` keeps delayed jobs in the order of the sender's instants.

enum { LINK_EXPIRED = -1 };

struct link_entry {
    uint64_t number;           // increases within a link, with gaps
    uint64_t after;            // the number of the previous unacknowledged entry; 0: none
    uint64_t at;               // the entry whose body is the job's body and its META
    uint32_t meta_size;        // bytes of META behind the job's body
    mr_bytes stage, key, once; // borrowed until the next command
    uint64_t now_ms;           // engine time of the sender, from which these count:
    int64_t delay_ms;          // until the job is due; 0: it is
    int64_t deadline_ms;       // until its deadline; 0: it has none; LINK_EXPIRED: that has passed
    uint32_t attempts;         // 0: as the stage says
    uint64_t maker;            // of the stage, for whose share it counts here; 0: not known
    uint64_t job_maker;        // whom the job counts for; 0: no maker
};

// The oldest entry to that shard with a number above `after` that was not acknowledged; 0: the
// oldest of all. False: there is none.
bool core_link_next(struct core *, uint32_t to, uint64_t after, struct link_entry *out);
uint64_t core_link_highest(const struct core *); // no entry to any shard has had a higher number
uint64_t core_links(const struct core *);        // entries to all shards that were not acknowledged
uint64_t core_linked(struct core *, mr_bytes stage); // emits to it that have not arrived there

// Makes the job, as a local emit does: even when the stage is full, paused or draining. `body` is
// all of the entry's, META included. An entry
// that was accepted before changes nothing and answers 0. It may be acknowledged once all that was
// written before is durable. MR_EGAP: an earlier entry is missing: start again at the oldest. After
// other errors it has to be sent again later.
int core_link_accept(struct core *, uint32_t from, const struct link_entry *, mr_bytes body);
// The highest number accepted from there; 0: none.
uint64_t core_link_mark(const struct core *, uint32_t from);

// Shard `to` has accepted everything up to this number: those jobs now count there and no longer
// here. The call is optional; without it they count twice until they are acknowledged.
void core_link_arrived(struct core *, uint32_t to, uint64_t upto);

// Shard `to` has a new owner, which may lack what the former one had accepted: all entries count
// here until core_link_arrived says so again.
void core_link_restarted(struct core *, uint32_t to);

// Shard `to` has everything up to this number durably: the entries are dropped. This is recorded
// only now and then; after a crash some entries are sent again.
int core_link_acked(struct core *, uint32_t to, uint64_t upto);

// A stage of another shard that was made for an emit counts in its maker's share of stages here,
// until that shard has room for it in the maker's share there (maker.c has the reasons):
//
//     here    peers.share ──┐                              ┌──► core_share_forget
//     there                 └──► core_share_left ── durable ┘
//
// These messages, too, may be lost, repeated and reordered: the answer names the last entry that
// was accepted before it (core_link_mark).

// Whether the maker may have one more stage here. Removes empty stages for that.
bool core_share_left(struct core *, uint64_t maker);

// That shard has answered, when it had accepted emits up to this number, that the maker may have
// more stages there. Forgets stages of that shard to which no later emit went, so that they no
// longer count here.
void core_share_forget(struct core *, uint32_t shard, uint64_t maker, uint64_t upto);

// ---- Queries ----------------------------------------------------------------------------------

// The name is borrowed until the next command.
struct stage_info {
    STAGE_FIELDS(CORE_MEMBER)
    uint64_t ready, takers;
    uint64_t linked;   // emits to it that wait here for another shard to accept them
    uint64_t maker;    // as core_act_for said when it was made; 0: not known
    char held_by[224]; // "", "no-worker", "paused", "limit", "rate", "downstream:X", …
    const struct policy *policy;
    const struct histogram *waits; // ms from joining to start; NULL: none started yet
    const struct histogram *runs;  // ms from start to DONE, since opening; NULL: none yet
};

struct channel_info {
    CHANNEL_FIELDS(CORE_MEMBER)
    enum channel_state state;
};

// The name is borrowed until the next command.
struct group_info {
    GROUP_FIELDS(CORE_MEMBER)
    const char *held_by; // "group-limit", "group-rate" or ""
};

// The key is empty once the job has ended: its entry's head has it.
struct job_info {
    JOB_FIELDS(CORE_MEMBER)
    enum job_status status;
    const struct conn *conn; // that holds its lease; NULL: none, or it is gone
    uint32_t shard;          // whose log the positions below are in
    uint64_t at, reasons_at; // the entries of its body or result, and of its reasons; 0: none
    bool no_result;          // it is done, and `at` is the entry of its body still
    uint32_t meta_size;      // bytes of META behind its body
    uint64_t maker;          // whom it counts for (core_act_for); 0: no maker
    uint64_t state_at;       // the entry of its channel's state; 0: none
    bool has_progress;
    struct job_progress progress; // its text is borrowed until the next command
};

int core_look_stage(struct core *, mr_bytes stage, struct stage_info *out); // MR_EGONE
// Writes one sentence: why the stage starts nothing, or what it does, and the command that would
// change that. It is cut to fit; STAGE_WHY_MOST is enough.
enum { STAGE_WHY_MOST = 1024 };
void stage_why(const struct stage_info *, char *out, size_t size);
// Whether jobs here had ids of other shards when the core was opened: the store was copied from
// another number of shards, and an id does not say where its job is. Any thread, after core_open.
bool core_has_foreign_ids(const struct core *);
// A stage keeps its place in this list. The place of a forgotten stage is empty until another stage
// gets it.
size_t core_stage_places(const struct core *);
mr_bytes core_stage_name(const struct core *, size_t place);      // empty: there is none
int core_stage_place(struct core *, mr_bytes stage, size_t *out); // MR_EGONE
// The known stages that this one emits to, in the order in which they were learned; borrowed until
// the next command. Returns how many: at most CORE_EDGES.
enum { CORE_EDGES = 64 };
size_t core_stage_feeds(struct core *, mr_bytes stage, mr_bytes out[CORE_EDGES]);
int core_look_channel(struct core *, mr_bytes stage, mr_bytes key, struct channel_info *out);
// The deepest channels, deepest first (within 1/16 of their depth). Returns how many.
size_t core_top_channels(struct core *, mr_bytes stage, struct channel_info *out, size_t max);
// The group of a job that has not ended. MR_EGONE: it is not known, or in no group.
int core_look_group(struct core *, uint64_t id, struct group_info *out);
// The deepest groups of a stage, likewise; it has none without `group on`.
size_t core_top_groups(struct core *, mr_bytes stage, struct group_info *out, size_t max);
int core_look_job(struct core *, uint64_t id, struct job_info *out); // MR_EGONE
// The next stage after `number` (0: from the first) that has dead jobs, without a scan of the
// others; 0: there is none. core_stage_number: the number of a stage; 0: it is not known.
uint32_t core_next_dead_stage(struct core *, uint32_t number, mr_bytes *out_name);
uint32_t core_stage_number(struct core *, mr_bytes stage);

// The counters of the stage with this number, from 1; false: there are no more. An unused number
// has an empty name and zero counts.
struct stage_counts {
    mr_bytes name;
    uint64_t waiting, running, delayed, dead, pushed, done, failed;
};
bool core_stage_counts(struct core *, uint32_t number, struct stage_counts *out);

// Walks dead jobs, longest dead first. `each` returns nonzero to stop and must not change anything.
int core_each_dead(struct core *, mr_bytes stage, int (*each)(void *, const struct job_info *),
                   void *arg);
// For tests: walks the jobs of a channel (key not empty) in order, or the unkeyed ready ones.
int core_each_job(struct core *, mr_bytes stage, mr_bytes key,
                  int (*each)(void *, const struct job_info *), void *arg);

struct job_walk {
    mr_bytes stage;
    mr_bytes key; // not empty: of the waiting and running only those of this channel
    enum job_status status;
    bool parked;    // waiting: only the first of each parked channel, or the dead that halts it
    uint64_t from;  // continues after this job; 0: from the first
    uint64_t steps; // ends with WALK_CUT once core_take_steps would return this many; 0: no limit
};

enum { WALK_CUT = 2 }; // the limit of steps was reached

// Walks the jobs of a stage that have this status: waiting jobs by channel in the order of their
// starts, running ones by lease, dead and ended ones oldest first, delayed ones by id. Continuing
// after a job costs as little as starting. `each` returns nonzero to stop, which is then returned,
// and must not change anything. MR_EGONE: there is no such stage, or `from` is not among these jobs
// any more; MR_ENOMEM.
int core_walk(struct core *, const struct job_walk *, int (*each)(void *, const struct job_info *),
              void *arg);
// The same for jobs of every status, one status after another: running, waiting, delayed, dead, and
// without a key also done, expired, cancelled. `status` and `parked` do not count. With a key, jobs
// of other keys are walked, too, where they are delayed or dead.
int core_walk_all(struct core *, const struct job_walk *,
                  int (*each)(void *, const struct job_info *), void *arg);
// Whether jobs of this status can be listed by their key: not once they have ended.
bool job_status_has_key(enum job_status);
// The status of this name, in small or capital letters; false: there is none.
bool job_status_find(mr_bytes name, enum job_status *out);

// ---- Memory -----------------------------------------------------------------------------------

// The cost of walks, searches and timers since the last call: an entry that was looked at counts 1,
// a job that was changed 10.
uint64_t core_take_steps(struct core *);

// Bytes of memory that the index uses now: jobs, channels, keys, names, timers.
uint64_t core_memory(const struct core *);

// Sets how much memory the owner uses beside the index: bodies, buffers. It counts against
// max_memory until the next call. Over the limit, some ended jobs are forgotten early; below it,
// pushes that wait for room continue.
void core_set_outside_memory(struct core *, uint64_t outside_bytes);
bool core_memory_is_short(const struct core *); // true: pushes are refused

// Whether the log has refused a push, for lack of room or of durable ids. Pushes that wait for room
// wait for that, too, until the owner sees that there is some and calls core_log_has_room.
bool core_log_is_full(const struct core *);
void core_log_has_room(struct core *);

// ---- Cleaning ---------------------------------------------------------------------------------

// Bytes of the log's entries that are still needed: the homes of live things (record.h).
uint64_t core_live_bytes(const struct core *);

// How much of that lies at positions from `from` to below `upto`. UINT64_MAX: not known without a
// scan; 0 is certain.
uint64_t core_live_in(const struct core *, uint64_t from, uint64_t upto);

// How many of the things that core_clean_own looks at it has passed. Begins with zeros.
struct clean_cursor {
    bool marks;
    uint32_t stages, sources, links;
};

// Copies records that the core finds without a scan (stages, sources, its own marks) out of this
// range, so that often nothing is left to search for. Looks at about `most` of them; 1: there are
// more, and the next call continues. On failure the next call tries the same one again. After
// core_open.
int core_clean_own(struct core *, uint64_t from, uint64_t upto, uint32_t most,
                   struct clean_cursor *);

// Checks one entry of the log; if it is the home of something alive, appends a copy, which becomes
// the home. The shard then trims what lies before.
int core_clean(struct core *, uint64_t at, mr_bytes head, mr_bytes body);

// Records that everything below `upto` is about to be trimmed.
int core_trimmed(struct core *, uint64_t upto);
uint64_t core_trim_mark(const struct core *); // the last such record, after replay too

// For tests: checks every invariant by a full scan. 0, or MR_ECORRUPT with what is wrong.
int core_check(const struct core *);

#endif
