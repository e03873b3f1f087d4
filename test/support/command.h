// Command: an operation of a history, which is run on the core and on the model, and its answer.
//
// Everything is small on purpose, so that names collide and queues fill: a few stages, keys, once
// names and sources, addressed by index; texts are short arrays.
#ifndef TEST_SUPPORT_COMMAND_H
#define TEST_SUPPORT_COMMAND_H

#include "core/core.h"

enum {
    STAGES = 3,
    KEYS = 6, // the first is empty: no key; with `group on` the last names no channel
    ONCES = 4,
    SOURCES = 3, // the last two are epics
    SCHEDULES = 3,
    CONNS = 4,
    SLOTS = 6, // takers, callers and pushers, each
    EMITS = 3,
    BLOCK = 4, // jobs in one TAKE
    TEXT = 24,
};

static inline void text_copy(char out[TEXT], const char *in) {
    char copy[TEXT] = "";
    memcpy(copy, in, strnlen(in, TEXT - 1));
    memcpy(out, copy, TEXT);
}

enum op {
    OP_TIME,
    OP_PUSH,
    OP_PUSH_LEAVE,
    OP_AWAIT,
    OP_AWAIT_LEAVE,
    OP_CANCEL,
    OP_TAKE,
    OP_TAKE_LEAVE,
    OP_DONE,
    OP_FAIL,
    OP_RELEASE,
    OP_BEAT,
    OP_RETRY,
    OP_DUE,
    OP_DROP,
    OP_SET,
    OP_PAUSE,
    OP_DRAIN,
    OP_RESUME,
    OP_LINK,
    OP_LEAVE,
    OP_EPIC_END,
    OP_EPIC_SKIP,
    OP_EPIC_DROP,
    OP_EPIC_CANCEL,
    OP_EPIC_FORGET,
    OP_EPIC_THEN,
    OP_SCHEDULE,
    OP_SCHEDULE_DROP,
    OP_SCHEDULE_PAUSE,
    OP_SCHEDULE_RESUME,
    OP_SCHEDULE_NOW,
    OP_SCHEDULE_DRY, // SCHEDULE, only checked
    OP_TICK,
    OP_CLEAN,
    OP_CRASH,
    OPS,
};

struct command_job {
    int stage;
    char key[TEXT], once[TEXT], body[TEXT], meta[TEXT];
    int64_t delay_ms, deadline_ms;
    uint32_t attempts;
    bool last;
};

struct command {
    enum op op;
    uint64_t now_ms; // when it is run

    struct command_job job; // PUSH, SCHEDULE, EPIC_THEN; `stage` also for what acts on a stage
    int source;             // of a numbered push, or of an epic; -1: none
    uint64_t number; // of the push; of EPIC_SKIP; the total of EPIC_END; ms of EPIC_FORGET; BEAT:
                     // how much is done, as PROGRESS says; 0: it does not
    int schedule;
    uint64_t every_ms;         // of SCHEDULE; EVERY_LEAST_MS at least, or it is refused
    uint64_t wall_ms, next_ms; // TICK: the clock; SCHEDULE, RESUME, TICK: the tick after it
    bool skips;                // TICK: without a push
    int conn;                  // -1: none
    int caller, pusher, taker; // slots; -1: none

    uint64_t id;
    struct token token;
    int stages[STAGES], stage_count; // TAKE; LINK: from, to
    uint32_t count, batch;
    int64_t lease_ms;
    bool detached;
    bool refuses; // the taker refuses to be reserved

    char text[TEXT];  // result, reason, or a policy's value
    const char *name; // a policy's name
    bool set_state;
    char state[TEXT];
    struct command_job emits[EMITS];
    int emit_count;
    int64_t retry_ms;
    int64_t delay_ms; // of RELEASE

    size_t entries;   // CLEAN: how many of the oldest
    bool died;        // CRASH: what ran counts as failed; also `attempt` of `id`, if any, whose
    uint32_t attempt; // predecessor's commit was lost
};

struct answer {
    int err;
    uint64_t id;
    bool repeat, ended, changed;
    enum job_status status;
    char text[TEXT]; // a result
};

enum observed_kind { OBSERVED_GRANT, OBSERVED_ENDED, OBSERVED_STOP };

// An event: a grant (in the answer of TAKE or to a waiting taker), a job's end for a caller, or a
// stop for a connection.
struct observed_event {
    enum observed_kind kind;
    int receiver; // taker (-1: in the answer), caller, connection
    uint64_t id;
    int job;  // the model's: it may learn the id later
    int code; // status of the ended, or why to stop
    int stage;
    uint32_t attempt;
    int64_t left_ms, lease_ms;
    bool first; // of its block
    char key[TEXT], body[TEXT], meta[TEXT], state[TEXT];
    struct token token;
};

enum { OBSERVED_MOST = 256 };

struct observed {
    struct observed_event list[OBSERVED_MOST];
    size_t count;
};

static inline struct observed_event *observed_add(struct observed *h) {
    if (h->count == OBSERVED_MOST)
        h->count--;
    struct observed_event *one = &h->list[h->count++];
    *one = (struct observed_event){ .receiver = -1 };
    return one;
}

// Each connection has a token of its own; that of the first has a quota of jobs, that of the second
// one of bytes.
enum { JOBS_OF_FIRST = 12, BYTES_OF_SECOND = 80 };

static inline uint64_t conn_maker(int conn) {
    return (uint64_t)(conn + 2);
}

static inline bool conn_counts_jobs(int conn) {
    return conn == 0 || conn == 1;
}

extern const char *const stage_names[STAGES];
extern const char *const key_names[KEYS];
extern const char *const source_names[SOURCES];
extern const char *const schedule_names[SCHEDULES];

// All have one name: a client's source and an epic of one stage, and an epic of another.
static inline int source_stage(int source) {
    return source == 2;
}

// Two have one name, in different stages.
static inline int schedule_stage(int schedule) {
    return schedule == 2;
}

static inline bool source_is_epic(int source) {
    return source >= 1;
}

// Writes the command as a line of a script.
void command_print(const struct command *, char *out, size_t size);

#endif
