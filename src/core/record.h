// Record: what the core writes to the log, one kind for each event or thing.
//
// A record is an entry's head; what is long (a job's body, a result, a state, reasons) is the
// entry's body. Fields are encoded one by one and versioned by the kind's number: a kind never
// changes its fields, a new kind is added instead. A new kind is a number here, a row in record.c
// and a row in replay.c, and in clean.c if it is the home of something; a new field is a member
// here and a line in record_layout.h.
//
// A thing that must survive has one home: its latest full record, which the cleaner must keep.
//
//     job: PUSH, ARRIVAL or JOB      ended job: END            reasons of a failed job: FAIL
//     stage: STAGE                   source: SOURCE            state of a channel: STATE
//     `once` without its job: ONCE   emit not acknowledged: OUTBOX    link to a shard: LINK
//     lease that outlives the engine: LEASE     epoch: EPOCH     trim mark: TRIM
//
// A record with `copy` set was written by the cleaner: it moves a thing's home and has no other
// effect.
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include "base/bytes.h"
#include "core/core.h"

enum record_kind {
    RECORD_PUSH = 1, // a job, with everything about it
    RECORD_JOB,      // a cleaner's copy of PUSH: also has status and attempts
    RECORD_END,      // done, cancelled or expired; body: the result
    RECORD_FAIL,  // a failed attempt; dead with a due instant: halts its channel; body: the reasons
    RECORD_RETRY, // a dead job waits again
    RECORD_DROP,  // a job of this status is forgotten
    RECORD_WANT,  // a call is wanted even without callers from now on
    RECORD_STAGE, // name, policy and counters
    RECORD_SOURCE_OLD, // as SOURCE, without stage and scope: only read
    RECORD_SOURCE_DROP,
    RECORD_STATE, // body: the state; empty deletes; a copy's due_ms is when it was set
    RECORD_ONCE,  // a `once` that outlives its job
    RECORD_EPOCH,
    RECORD_TRIM,
    RECORD_OUTBOX,     // an emit for another shard; name: its `once`; body: the job's
    RECORD_ARRIVAL,    // a job, as PUSH has it, that came from another shard under this number
    RECORD_LINK,       // another shard: accepted from it up to `number`, acknowledged by it `upto`
    RECORD_LEASE,      // a lease of the jobs up to this one; due_ms: its end; none: it is over
    RECORD_STAGE_DROP, // an empty stage is forgotten; its number may be used again
    RECORD_SOURCE,     // stage, name, scope (as key), numbers seen, progress
    RECORD_LAST = RECORD_SOURCE,
};

// The numbers on disk of STAGE and SOURCE records with a maker. They are encoded when `maker` is
// known, and decoded as STAGE and SOURCE: no other code sees these numbers. They are on disk: a new
// kind gets a number behind them.
enum { RECORD_STAGE_MADE = 21, RECORD_SOURCE_MADE = 22, RECORD_NUMBERS = 23 };

enum { RECORD_MAX = 1400 + 512 }; // bytes of the longest head

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

// The counters and the policy that STAGE and SOURCE records have beyond the common fields.
struct record_about {
    struct record_stage stage;
    struct record_source source;
};

// One struct for all kinds; record.c says which kind has which fields, record_layout.h how each is
// written.
struct record {
    enum record_kind kind;
    bool copy;
    uint64_t time_ms; // engine time when it was written
    uint64_t id;
    uint32_t stage; // number
    mr_bytes name;  // of a stage or source; OUTBOX: the `once`
    mr_bytes key;
    bool has_once, call;
    struct hash128 once;
    uint64_t pushed_ms;                     // END, ONCE: when the job ended, due_ms: when it was
                                            // pushed, if it never started; LEASE: when it began
    uint64_t position, due_ms, deadline_ms; // 0: none
    uint32_t attempt, attempts;
    enum job_status status;
    uint64_t serial;         // of the lease that ended it
    uint64_t random;         // LEASE: the random bits of its token
    uint32_t lease_ms;       // LEASE: what a beat extends it by
    uint64_t source, number; // source's number; the push's number in it, or the emit's in its link
    uint32_t shard;          // the other end of a link
    uint64_t epoch, next_id, upto;
    uint64_t maker;                   // STAGE, SOURCE: who made it; 0: not known
    const struct record_about *about; // STAGE, SOURCE
};

const char *record_kind_name(enum record_kind);

// Writes the head into `out` (RECORD_MAX bytes); returns its size.
size_t record_encode(const struct record *, uint8_t *out);

// Names, key and the like are borrowed from `head`, and `about` is filled for kinds that have it;
// NULL: not wanted. MR_ECORRUPT: not a record.
int record_decode(mr_bytes head, struct record_about *about, struct record *out);

// Whether every field is within the bounds that hold for it in any kind. MR_ECORRUPT.
int record_check_bounds(const struct record *);

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
    field_bytes,
    field_hash,
    field_bitmap,
};

// A field as it is printed. Bytes are borrowed from the record.
struct record_value {
    const char *name; // its name in this kind
    enum field_type type;
    bool counter; // of a stage or a source
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

// A FAIL entry's body: the reasons of the latest attempts, oldest first.
struct reason {
    uint32_t attempt;
    uint64_t time_ms;
    mr_bytes text;
};

// Appends one to `body`, dropping the oldest beyond `most`. MR_ENOMEM.
int reasons_add(struct buffer *body, const struct reason *, uint32_t most);

// Steps through; `at` starts at 0. False at the end, or when the rest cannot be read.
bool reasons_next(mr_bytes body, size_t *at, struct reason *out);
// The text of the last one, borrowed; without any, a sentence that says so.
mr_bytes reasons_last(mr_bytes body);

#endif
