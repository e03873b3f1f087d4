// Record: what the core writes to the log, one kind for each event or thing.
//
// A record is an entry's head; what is long (a job's body, a result, a state, reasons) is the
// entry's body. Fields are encoded one by one and versioned by the kind's number: a kind never
// changes its fields, a new kind is added instead. A new kind is a line here, and the functions
// that the line names; a new field is a member here and a line in record_layout.h.
//
// A thing that must survive has one home: its latest full record, which the cleaner must keep.
//
//     job: PUSH, ARRIVAL, JOB or REPLACE        ended job: END       reasons of a failed job: FAIL
//     stage: STAGE                   source: SOURCE            state of a channel: STATE
//     `once` without its job: ONCE   emit not acknowledged: OUTBOX    link to a shard: LINK
//     lease that outlives the engine: LEASE     schedule: SCHEDULE      orders of an epic: EPIC
//     epoch: EPOCH                   trim mark: TRIM            paused channel: PAUSE
//
// A record with `copy` set was written by the cleaner: it moves a thing's home and has no other
// effect.
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "base/bytes.h"
#include "base/limits.h"
#include "core/core.h"

// The kinds:
//     PUSH         a job, with everything about it
//     JOB          a cleaner's copy of PUSH: also has status and attempts
//     END          done, cancelled or expired; body: the result
//     FAIL         a failed attempt; dead with a due instant: halts its channel; body: the reasons
//     RETRY        a dead job waits again
//     DROP         a job of this status is forgotten
//     WANT         a call is wanted even without callers from now on
//     STAGE        name, policy and counters
//     SOURCE_OLD   as SOURCE, without stage and scope: only read
//     SOURCE_DROP  a source is forgotten
//     STATE        body: the state; empty deletes; a copy's due_ms is when it was set
//     ONCE         a `once` that outlives its job
//     EPOCH        the engine was opened once more; ids below next_id may be in use
//     TRIM         the log below `upto` is not needed any more
//     OUTBOX       an emit for another shard; name: its `once`; body: the job's
//     ARRIVAL      a job, as PUSH has it, that came from another shard under this number
//     LINK         another shard: accepted from it up to `number`, acknowledged by it `upto`
//     LEASE        a lease of the jobs up to this one; due_ms: its end; none: it is over
//     STAGE_DROP   an empty stage is forgotten; its number may be used again
//     SOURCE       stage, name, scope (as key), numbers seen, progress
//     REPLACE      a job that has not started, as JOB has it, after ONCE … LAST has changed it
//     SNOOZE       a job was released and may not start before due_ms
//     DUE          a delayed job or a job in backoff may start now; position: its place
//     SCHEDULE     a push that repeats, and where it stands; body: the job's
//     SCHEDULE_MOVE  where a schedule stands now; behind the PUSH of its tick, in one group
//     SCHEDULE_DROP  a schedule is forgotten
//     PAUSE        a channel starts no jobs
//     UNPAUSE      it does again
//     EPIC         what THEN, CANCEL and FORGET have said of an epic; key: that of the job of THEN
//
// X(kind, number, name, fields, check, apply, clean, …), a new kind at the end:
//     number         on disk: never used again for another kind; those below are taken
//     name           printed
//     fields         those that it always has (record_layout.h)
//     check, apply   functions that replay it
//     clean          the function that copies it if it is a home; clean_nothing: it never is
//     …              .copy: what happens to it when a store is copied into other shards; .body: the
//                    name of its entry's body, if that can be read; .pushed, .due: other names of
//                    these instants in this kind
#define RECORD_KINDS(X)                                                                            \
    X(PUSH, 1, "push", FIELDS_OF_PUSH, replay_check_push, replay_push, clean_job_record,           \
      .copy = RECORD_COPIED, .body = "body")                                                       \
    X(JOB, 2, "job", FIELDS_OF_JOB, replay_check_job, replay_push, clean_job_record,               \
      .copy = RECORD_COPIED, .body = "body")                                                       \
    X(END, 3, "end", FIELDS_OF_END, replay_check_end, replay_end, clean_end_record,                \
      .copy = RECORD_COPIED, .body = "result", .pushed = "ended", .due = "pushed")                 \
    X(FAIL, 4, "fail", HAS_ID | HAS_STAGE | HAS_ATTEMPT | HAS_STATUS, replay_check_fail,           \
      replay_fail, clean_fail_record, .copy = RECORD_COPIED)                                       \
    X(RETRY, 5, "retry", HAS_ID | HAS_STAGE | HAS_POSITION, replay_check_retry, replay_retry,      \
      clean_nothing, .copy = RECORD_LEFT_OUT)                                                      \
    X(DROP, 6, "drop", HAS_ID | HAS_STAGE | HAS_STATUS, replay_check_drop, replay_drop,            \
      clean_nothing, .copy = RECORD_LEFT_OUT)                                                      \
    X(WANT, 7, "want", HAS_ID, replay_check_want, replay_want, clean_nothing,                      \
      .copy = RECORD_LEFT_OUT)                                                                     \
    X(STAGE, 8, "stage", FIELDS_OF_STAGE, replay_check_stage, replay_stage, clean_stage_record,    \
      .copy = RECORD_MERGED)                                                                       \
    X(SOURCE_OLD, 9, "source", FIELDS_OF_SOURCE & ~HAS_STAGE, replay_check_source_old,             \
      replay_source, clean_source_record, .copy = RECORD_MERGED)                                   \
    X(SOURCE_DROP, 10, "source-drop", HAS_SOURCE_NUMBER, replay_check_source_drop,                 \
      replay_source_drop, clean_nothing, .copy = RECORD_LEFT_OUT)                                  \
    X(STATE, 11, "state", HAS_STAGE, replay_check_state, replay_state, clean_state_record,         \
      .copy = RECORD_COPIED, .body = "state", .due = "set")                                        \
    X(ONCE, 12, "once", HAS_ID | HAS_STAGE | HAS_PUSHED, replay_check_once, replay_once,           \
      clean_once_record, .copy = RECORD_COPIED, .pushed = "ended", .due = "pushed")                \
    X(EPOCH, 13, "epoch", HAS_EPOCH, replay_check_epoch, replay_epoch, clean_epoch_record,         \
      .copy = RECORD_MERGED)                                                                       \
    X(TRIM, 14, "trim", HAS_UPTO, replay_check_trim, replay_trim, clean_trim_record,               \
      .copy = RECORD_LEFT_OUT)                                                                     \
    X(OUTBOX, 15, "outbox", FIELDS_OF_OUTBOX, replay_check_outbox, replay_outbox,                  \
      clean_outbox_record, .copy = RECORD_LEFT_OUT, .body = "body")                                \
    X(ARRIVAL, 16, "arrival", FIELDS_OF_ARRIVAL, replay_check_arrival, replay_arrival,             \
      clean_job_record, .copy = RECORD_COPIED, .body = "body")                                     \
    X(LINK, 17, "link", HAS_LINK | HAS_UPTO, replay_check_link, replay_link, clean_link_record,    \
      .copy = RECORD_LEFT_OUT)                                                                     \
    X(LEASE, 18, "lease", FIELDS_OF_LEASE, replay_check_lease, replay_lease, clean_lease_record,   \
      .copy = RECORD_COPIED, .pushed = "began", .due = "until")                                    \
    X(STAGE_DROP, 19, "stage-drop", HAS_STAGE, replay_check_stage_drop, replay_stage_drop,         \
      clean_nothing, .copy = RECORD_LEFT_OUT)                                                      \
    X(SOURCE, 20, "source", FIELDS_OF_SOURCE, replay_check_source, replay_source,                  \
      clean_source_record, .copy = RECORD_MERGED)                                                  \
    X(SNOOZE, 35, "snooze", HAS_ID | HAS_STAGE, replay_check_snooze, replay_snooze, clean_nothing, \
      .copy = RECORD_LEFT_OUT)                                                                     \
    X(DUE, 36, "due", HAS_ID | HAS_STAGE | HAS_POSITION, replay_check_due, replay_due,             \
      clean_nothing, .copy = RECORD_LEFT_OUT)                                                      \
    X(REPLACE, 34, "replace", FIELDS_OF_JOB | HAS_META, replay_check_replace, replay_replace,      \
      clean_job_record, .copy = RECORD_COPIED, .body = "body")                                     \
    X(SCHEDULE, 23, "schedule", FIELDS_OF_SCHEDULE, replay_check_schedule, replay_schedule,        \
      clean_schedule_record, .copy = RECORD_COPIED, .body = "body")                                \
    X(SCHEDULE_MOVE, 24, "schedule-move", FIELDS_OF_MOVE, replay_check_schedule_move,              \
      replay_schedule_move, clean_nothing, .copy = RECORD_LEFT_OUT)                                \
    X(SCHEDULE_DROP, 25, "schedule-drop", HAS_STAGE | HAS_NAME, replay_check_schedule_drop,        \
      replay_schedule_drop, clean_nothing, .copy = RECORD_LEFT_OUT)                                \
    X(PAUSE, 37, "pause", HAS_STAGE, replay_check_pause, replay_pause, clean_pause_record,         \
      .copy = RECORD_COPIED)                                                                       \
    X(UNPAUSE, 38, "unpause", HAS_STAGE, replay_check_pause, replay_unpause, clean_nothing,        \
      .copy = RECORD_LEFT_OUT)                                                                     \
    X(EPIC, 39, "epic", FIELDS_OF_EPIC, replay_check_epic, replay_epic, clean_epic_record,         \
      .copy = RECORD_COPIED)

// Records with a maker, and records of jobs with META, have numbers of their own
// on disk; those of jobs with a maker (…_MADE) always have the size of META. No other code sees
// them.
enum {
    NUMBER_STAGE_MADE = 21,
    NUMBER_SOURCE_MADE = 22,
    NUMBER_SCHEDULE_MADE = 26,
    NUMBER_PUSH_META = 30,
    NUMBER_JOB_META = 31,
    NUMBER_OUTBOX_META = 32,
    NUMBER_ARRIVAL_META = 33,
    NUMBER_PUSH_MADE = 40,
    NUMBER_JOB_MADE = 41,
    NUMBER_OUTBOX_MADE = 42,
    NUMBER_ARRIVAL_MADE = 43,
    NUMBER_REPLACE_MADE = 44,
};

#define RECORD_KIND(kind, ...) RECORD_##kind,

enum record_kind {
    RECORD_NONE,
    RECORD_KINDS(RECORD_KIND) // from 1 on
    RECORD_KINDS_END,
    RECORD_LAST = RECORD_KINDS_END - 1,
};

enum { HEAD_MAX = 1400 + 512 };                  // bytes of the longest head of a job …
enum { RECORD_MAX = HEAD_MAX + THEN_BODY_MOST }; // … and of any: EPIC has the body of THEN

struct record_stage {
    uint64_t pushed, done, failed, died, expired, cancelled, wasted_wait_ms;
    bool paused, draining;
    struct policy policy;
};

enum { SOURCE_WINDOW = 1024, SOURCE_BITMAP = SOURCE_WINDOW / 8 };

#define EPIC_EMPTY UINT64_MAX // the total of an epic that ended without a push

enum { EPOCH_SHIFT = 40 };    // a lease's serial is an epoch and a counter
enum { POSITION_SHIFT = 20 }; // a position is an instant in ms and an order within it

// Bounds. Ids, and the numbers of sources and of their pushes, can be added to without overflow;
// instants have to fit into a position, epochs into a lease's serial.
#define NUMBER_MOST (UINT64_C(1) << 62)
#define INSTANT_MOST ((UINT64_C(1) << (64 - POSITION_SHIFT)) - 1)
#define EPOCH_MOST ((UINT64_C(1) << (64 - EPOCH_SHIFT)) - 2)

struct record_source {
    bool epic;
    uint64_t highest;
    uint64_t total; // 0: not ended yet
    uint64_t accepted, done, dead, cancelled, expired;
    uint8_t bitmap[SOURCE_BITMAP]; // of the last SOURCE_WINDOW numbers n: bit n % SOURCE_WINDOW
};

// When a schedule is due: instants of the wall clock.
struct record_schedule {
    uint64_t every_ms;    // 0: `cron` says when
    uint32_t missed;      // an enum missed
    uint64_t deadline_ms; // of its jobs, from their push; 0: none
    mr_bytes cron, zone;
    uint32_t meta_size; // how many bytes at the body's end are META
};

// Where a schedule stands. The instants are of the wall clock; 0: none.
struct record_move {
    uint64_t next_ms, last_ms;
    uint64_t pushed, last_id; // jobs so far, and the latest of them
    bool paused;
    bool asked; // a job is to be pushed now, whatever the instant
};

// What THEN, CANCEL and FORGET have said of an epic. The body of THEN is part of the head: a commit
// that ends the epic needs it, and cannot wait until it is read.
struct record_epic {
    bool cancelled;
    uint64_t pushed;    // THEN was pushed: a hash of it, which is not 0
    uint64_t forget_ms; // how long after its end the epic is dropped; 0: it is kept
    uint64_t ended_ms;  // its latest end that is recorded; 0: none
    mr_bytes then;      // the stage that THEN will push to; empty: there is none, or it was pushed
    mr_bytes body;
};

// The fields of STAGE, SOURCE, SCHEDULE and EPIC records beyond the common ones.
struct record_about {
    struct record_stage stage;
    struct record_source source;
    struct record_schedule schedule;
    struct record_move move;
    struct record_epic epic;
};

// One struct for all kinds; record.c says which kind has which fields, record_layout.h how each is
// written.
struct record {
    enum record_kind kind;
    bool copy;
    uint64_t time_ms; // engine time when it was written
    uint64_t id;
    uint32_t stage; // number
    mr_bytes name;  // of a stage, source or schedule; OUTBOX: the `once`
    mr_bytes key;
    bool has_once, call;
    struct hash128 once;
    uint64_t pushed_ms;                     // END, ONCE: when the job ended, due_ms: when it was
                                            // pushed, if it never started; LEASE: when it began
    uint64_t position, due_ms, deadline_ms; // 0: none
    uint32_t attempt, attempts;
    uint32_t
        meta_size; // PUSH, JOB, REPLACE, OUTBOX, ARRIVAL: how many bytes at the body's end are META
    enum job_status status;
    uint64_t serial;         // of the lease that ended it
    uint64_t random;         // LEASE: the random bits of its token
    uint32_t lease_ms;       // LEASE: what a beat extends it by
    uint64_t source, number; // source's number; the push's number in it, or the emit's in its link
    uint32_t shard;          // the other end of a link
    uint64_t epoch, next_id, upto;
    uint64_t maker; // STAGE, SOURCE, SCHEDULE: who made it; PUSH, JOB, REPLACE, OUTBOX, ARRIVAL:
                    // whom the job counts for; 0: not known
    const struct record_about *about; // STAGE, SOURCE, SCHEDULE, EPIC
};

const char *record_kind_name(enum record_kind);

// Writes the head into `out` (RECORD_MAX bytes); returns its size.
size_t record_encode(const struct record *, uint8_t *out);

// Names, key and the like are borrowed from `head`, and `about` is filled for kinds that have it;
// NULL: not wanted. MR_ECORRUPT: not a record.
int record_decode(mr_bytes head, struct record_about *about, struct record *out);

// Whether every field is within the bounds that hold for it in any kind. MR_ECORRUPT.
int record_check_bounds(const struct record *);
// The same for the fields of SCHEDULE and SCHEDULE_MOVE records; the first includes the second.
int record_check_schedule(const struct record *);
int record_check_move(const struct record *);
int record_check_epic(const struct record *); // likewise, of EPIC records

// ---- A record as text -------------------------------------------------------------------------

enum field_type {
    field_id,
    field_u64,
    field_hex,    // a u64 for people in hexadecimal digits
    field_number, // a varint
    field_total,  // of an epic: 0 is not known, EPIC_EMPTY is none
    field_small,  // 32 bits
    field_stage,  // its number
    field_shard,  // 0 is a shard
    field_flag,
    field_present, // true where its bit is set
    field_time,
    field_status,
    field_missed, // an enum missed
    field_bytes,
    field_hash,
    field_bitmap,
};

// A field as it is printed. Bytes are borrowed from the record.
struct record_value {
    const char *name; // its name in this kind
    enum field_type type;
    bool counter; // of a stage, a source or a schedule
    uint64_t number;
    mr_bytes bytes;
};

// Steps through the printable fields of a record; `at` starts at 0. False: there are no more. The
// policy of a STAGE and the body are not among them. Needs `about`.
bool record_next_value(const struct record *, size_t *at, struct record_value *out);

// The name of the body of this kind; NULL: it has no readable body.
const char *record_body_name(enum record_kind);

// What happens to a record when a store is copied into other shards.
enum record_copy {
    RECORD_LEFT_OUT, // other copied records contain it, or it is about the old log only
    RECORD_COPIED,   // goes to the shard of its stage, with the copy's numbers
    RECORD_MERGED,   // the records of all shards are merged first
};
enum record_copy record_copy_of(enum record_kind);

// ---- Without decoding -------------------------------------------------------------------------

// A quick check for the cleaner: whether it is about a job (PUSH, JOB, END), which one, and whether
// it carries a `once`.
bool record_peek(mr_bytes head, enum record_kind *out_kind, uint64_t *out_id, bool *out_once);

// Whether it is a STAGE record, without decoding it.
bool record_is_stage(mr_bytes head);

// Turns an encoded record into its copy, in place.
void record_make_copy(uint8_t *head);

// A FAIL entry's body: the reasons of the latest attempts, oldest first. A text has no 0 byte; if
// one follows it, the end of what the worker printed is behind that, of the last attempts only.
struct reason {
    uint32_t attempt;
    uint64_t time_ms;
    mr_bytes text, output;
};

enum { OUTPUTS_KEPT = 3 };

// Appends one to `body`, dropping the oldest beyond `most`, and outputs beyond OUTPUTS_KEPT.
// MR_ENOMEM.
int reasons_add(struct buffer *body, const struct reason *, uint32_t most);

// Steps through; `at` starts at 0. False at the end, or when the rest cannot be read.
bool reasons_next(mr_bytes body, size_t *at, struct reason *out);
// The text of the last one, borrowed; without any, a sentence that says so.
mr_bytes reasons_last(mr_bytes body);

#endif
