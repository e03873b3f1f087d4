// Twin: the core and the model side by side. Every command goes to both; answers, happenings and
// everything that can be looked at must be equal afterwards. The log is an array in memory, so that
// a crash is throwing the core away and replaying, and cleaning is forgetting the oldest entries.
//
// Between the core and the comparison sits a shim that can lie (`fault`): it proves that a wrong
// core would be noticed.
#ifndef TEST_TWIN_H
#define TEST_TWIN_H

#include "model.h"

enum fault {
    FAULT_NONE,
    FAULT_SWAP_GRANTS,  // the order of two grants
    FAULT_LOSE_END,     // a caller is not told
    FAULT_LOSE_STOP,    // a worker is not told to stop
    FAULT_LOSE_PUSH,    // a job is not replayed
    FAULT_LOSE_FAIL,    // a failed attempt is not replayed
    FAULT_ACCEPT_STALE, // a commit with a stale token is said to be good
    FAULT_STAY_PARKED,  // time stands still for the core, now and then
    FAULT_WRONG_BODY,   // a body is another's
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

struct twin {
    struct core *core;
    struct model *model;
    enum fault fault;
    uint64_t opens; // also the random bits of the latest opening
    bool crashing;  // nothing is written or told any more

    struct kept_entry *log;
    size_t log_count, log_capacity;
    uint64_t log_end, log_hash;
    size_t appends;
    long refuse_append; // after so many more appends one fails, once; negative: none
    int refuse_with;

    struct conn conns[CONNS];
    struct taker takers[SEATS];
    struct caller callers[SEATS];
    struct pusher pushers[SEATS];
    bool taker_refuses[SEATS], refused[SEATS];
    struct command waiting_push[SEATS];
    int told_room[SEATS], told_count;
    bool pushing_again;

    struct happenings happened;
    struct running_note running[MANY];
    size_t running_count;
    uint64_t last_id;

    long fail_alloc; // after so many more allocations one fails, once; negative: none
    bool failed_now; // an allocation or append was made to fail in the latest call
    long failures;   // how many commands answered so
    bool late;       // something due could not be done in time: the history is over
    size_t steps;
    char why[512]; // the first difference; "": none
};

// Both are empty and open. The twin owns everything.
struct twin *twin_create(enum fault);
void twin_destroy(struct twin *);

// Says one command to both, at its time, and compares. False: see `why`.
bool twin_say(struct twin *, const struct command *);

// The core alone, time in one jump: for comparing its records with those of another run.
void twin_say_core(struct twin *, const struct command *);

// The core is thrown away with all it held; and a new one replayed from the log as it is.
void twin_stop_core(struct twin *);
int twin_start_core(struct twin *, uint64_t now_ms);

// The command to the core as it is, without its time.
int twin_tell_core(struct twin *, const struct command *, struct answer *out);

bool twin_compare(struct twin *); // all that can be looked at

bool twin_differs(struct twin *, const char *format, ...) __attribute__((format(printf, 2, 3)));

// The body of the entry at `at`, valid until the log changes; as a text, "(lost)" if it is gone.
mr_bytes twin_body(const struct twin *, uint64_t at);
void twin_text(struct twin *, uint64_t at, char out[TEXT]);

#endif
