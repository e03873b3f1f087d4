// Lockstep: runs every command on the core and on the model; answers, events and everything visible
// must be equal afterwards. The log is an array in memory: a crash destroys the core and replays,
// and cleaning drops the oldest entries.
//
// `fault` makes the core appear to be wrong, to prove that the comparison would notice it.
#ifndef TEST_SUPPORT_LOCKSTEP_H
#define TEST_SUPPORT_LOCKSTEP_H

#include "model.h"

enum fault {
    FAULT_NONE,
    FAULT_SWAP_GRANTS,  // the order of two grants
    FAULT_LOSE_END,     // a caller gets no event
    FAULT_LOSE_STOP,    // a worker gets no stop
    FAULT_LOSE_PUSH,    // a job is not replayed
    FAULT_LOSE_FAIL,    // a failed attempt is not replayed
    FAULT_ACCEPT_STALE, // a commit with a stale token is answered with 0
    FAULT_STAY_PARKED,  // the core's time sometimes does not advance
    FAULT_WRONG_BODY,   // a job has the body of another
    FAULT_LOSE_ORDERS,  // THEN, CANCEL and FORGET are not replayed
    FAULTS,
};

struct kept_entry {
    uint64_t at;
    size_t head_size, body_size;
    uint8_t *bytes; // head, then body
};

struct running_note {
    uint64_t id;
    uint32_t attempt;
};

struct lockstep {
    struct core *core;
    struct model *model;
    enum fault fault;
    uint64_t opens; // also the random bits of the latest opening
    bool crashing;  // no records and no events any more

    struct kept_entry *log;
    size_t log_count, log_capacity;
    uint64_t log_end, log_hash;
    size_t appends;
    long refuse_append; // after so many more appends one fails, once; negative: none
    int refuse_with;

    struct conn conns[CONNS];
    struct taker takers[SLOTS];
    struct caller callers[SLOTS];
    struct pusher pushers[SLOTS];
    bool taker_refuses[SLOTS], refused[SLOTS];
    struct command waiting_push[SLOTS];
    int room_notified[SLOTS], room_notified_count;
    bool pushing_again;

    struct observed observed;
    struct running_note running[MANY];
    size_t running_count;
    uint64_t last_id;

    long fail_alloc; // after so many more allocations one fails, once; negative: none
    bool failed_now; // an allocation or append was made to fail in the latest call
    long failures;   // how many commands answered so
    bool late;       // a timer could not be handled in time: the history ends
    size_t steps;
    char why[512]; // the first difference; "": none
};

// Makes an empty core and an empty model. The lockstep owns everything.
struct lockstep *lockstep_create(enum fault);
void lockstep_destroy(struct lockstep *);

// Runs one command on both, at its time, and compares. False: see `why`.
bool lockstep_run(struct lockstep *, const struct command *);

// Runs it on the core alone, time in one jump: for comparing the records of two runs.
void lockstep_run_core(struct lockstep *, const struct command *);

// Destroys the core, as in a crash; and replays a new one from the log.
void lockstep_stop_core(struct lockstep *);
int lockstep_start_core(struct lockstep *, uint64_t now_ms);

// Calls the core for the command, without advancing time.
int lockstep_send_core(struct lockstep *, const struct command *, struct answer *out);

bool lockstep_compare(struct lockstep *); // everything visible

// The body of the entry at `at`, valid until the log changes; as a text, "(lost)" if it is gone.
bool lockstep_differs(struct lockstep *, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
mr_bytes lockstep_body(const struct lockstep *, uint64_t at);
void lockstep_text(struct lockstep *, uint64_t at, char out[TEXT]);
// The body of a job's entry, and the META behind it.
void lockstep_job_texts(struct lockstep *, uint64_t at, uint32_t meta_size, char out_body[TEXT],
                        char out_meta[TEXT]);

#endif
