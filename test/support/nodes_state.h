// What a history of nodes remembers: the jobs, their commits and the clients, shared by the files
// of nodes_history.h only:
//
//     nodes_history.c    faults, steps, and what must hold at the end
//     nodes_clients.c    requests, replies and connections of producers, workers and callers
//     nodes_library.c    producers and workers that use the C library
//     nodes_operator.c   epics, schedules and cancels
#ifndef TEST_SUPPORT_NODES_STATE_H
#define TEST_SUPPORT_NODES_STATE_H

#include "support/nodes_history.h"

#include "wire/response.h"

enum { STAGES = 6, KEYS = 4, NO_KEY = -1, PRODUCERS = 4, WORKERS = 6, CALLERS = 2, PLANNERS = 2 };
enum { FIRST_WORKER = 1 + PRODUCERS, FIRST_CALLER = FIRST_WORKER + WORKERS };
enum { FIRST_PLANNER = FIRST_CALLER + CALLERS, CLIENTS = FIRST_PLANNER + PLANNERS };
enum {
    PIECES = 1400,
    PUSHED_MOST = 1200,
    COMMITS = 4000,
    EXPECTED = 32,
    HELD = 6,
    EMITS = 3,
    BLOCK = 3
};

enum { EPICS = 24, EPIC_PIECES = 6, SCHEDULES = 2, AGAIN = 64 };
enum { LIMITED_STAGE = 2, LIMIT = 3, GROUPED_STAGE = 4, GROUP_LIMIT = 2 };

// A job that was pushed, emitted or called.
struct piece {
    int stage, key;
    uint64_t group, order; // jobs of a group start in their order; group 0: none
    int commit;            // that has emitted it; -1: it was pushed
    int epic, then_of;     // the epic it belongs to; the epic whose THEN it is; -1: none
    int schedule;          // that has pushed it; -1: none
    bool is_call, is_named, is_delayed, has_deadline;
    bool acked, refused, begun, done, maybe_done, ended;
    bool cancel_sent, cancelled;
    bool may_return; // a call of the library: it is made again if its job was cancelled
    uint64_t cancelled_step, cancel_id; // what CANCEL named
    uint64_t id, done_serial;
    uint32_t fails;
};

struct library;

// A DONE.
struct commit {
    int piece, first, count;
    uint64_t serial, id;
    const struct library *by; // whose mr_done it is; NULL: a DONE
    char token[48];
    enum { COMMIT_SENT, COMMIT_OK, COMMIT_REFUSED, COMMIT_UNKNOWN } state;
};

struct expected {
    enum {
        EXPECT_OK,
        EXPECT_PUSH,
        EXPECT_TAKE,
        EXPECT_DONE,
        EXPECT_END,
        EXPECT_BEAT,
        EXPECT_CALL,
        EXPECT_CANCEL,
        EXPECT_EPIC,
        EXPECT_SCHEDULE
    } kind;
    int piece, commit; // of an epic or a schedule: its index
};

struct held_job {
    int piece; // -1: none
    uint64_t id, serial, order;
    bool is_detached;
    bool is_ending; // a RELEASE or FAIL was sent
    char token[48];
};

struct client {
    int index;
    struct sim_wire *wire; // NULL: not connected
    uint64_t connection;   // how many it had
    uint64_t connect_at_ms;
    struct buffer in;
    struct expected expected[EXPECTED];
    int expected_count;
    bool takes, takes_detached, gives_up;
    uint64_t take_step;
    struct held_job held[HELD];
    uint64_t taken;
    int again[AGAIN]; // numbers of a source, or commits, to be sent again, in order
    int again_count;
    uint64_t numbered;
    int epic; // that it is making; -1: none
};

// What a planner does with an epic, one after another; each is repeated until it has a reply.
enum epic_phase {
    PLAN_EPIC_THEN,
    PLAN_EPIC_PUSHES,
    PLAN_EPIC_END,
    PLAN_EPIC_CANCEL,
    PLAN_EPIC_FORGET,
    PLAN_EPIC_OVER
};

struct epic_plan {
    enum epic_phase phase;
    bool is_sent, is_cancelled;
    int stage, then;
    int pieces[EPIC_PIECES], count, pushed;
};

struct schedule_plan {
    enum { SCHEDULE_SET, SCHEDULE_RUNS, SCHEDULE_PAUSE, SCHEDULE_COUNT, SCHEDULE_OVER } phase;
    bool is_sent;
    int stage;
    uint64_t seen; // jobs of it
};

// A job as a worker gets it.
struct taken {
    int client;
    uint64_t id, serial, attempt;
    uint64_t step; // when its TAKE was sent; 0: not known
    mr_bytes stage, body, state;
    bool has_state; // the state comes with it: it is the first of its block
};

enum { LIBRARY_WORKERS = 2, LIBRARIES = 3 };

struct history {
    struct sim_nodes *nodes;
    const struct nodes_plan *plan;
    struct nodes_reached *reached;
    uint64_t fault_random;
    uint64_t disk_heals_ms; // 0: it has no fault that lasts
    bool calm;              // no faults but shards that are handed over
    bool forgets;           // ended jobs are forgotten soon, so logs are trimmed often
    uint32_t faults;        // which ones
    bool draining;          // everything is to end …
    bool counts;            // … and has: schedules are asked how many jobs they have pushed
    char stages[STAGES][16];
    struct piece pieces[PIECES];
    int piece_count;
    struct commit commits[COMMITS];
    int commit_count;
    struct client clients[CLIENTS];
    struct epic_plan epics[EPICS];
    int epic_count;
    struct schedule_plan schedules[SCHEDULES];
    struct library *libraries[LIBRARIES];
    struct library *killed; // programs that are to be freed when everything has ended
    int library_count;
    bool libraries_end;
};

#define wrong(h, ...) sim_nodes_fail((h)->nodes, __VA_ARGS__)

static inline uint64_t roll(struct history *h, uint64_t below) {
    return sim_nodes_roll(h->nodes, below);
}

// ---- nodes_clients.c ----------------------------------------------------------------------------

// Sends the words of a text, and expects a reply.
void client_send(struct history *, struct client *, struct expected, const char *text);
void client_step(struct history *, struct client *);
void client_lost(struct history *, struct client *);

int piece_make(struct history *, int stage, int key);
void piece_has_id(struct history *, int n, uint64_t id);
int roll_key(struct history *);
bool has_state(const struct piece *); // of its channel: the number of its last commit
// Checks what must hold when a job begins. Returns its number; -1: it is none of this history.
int job_is_taken(struct history *, const struct taken *);
// Makes a commit of a job, with jobs that it emits. -1: there are too many.
int commit_make(struct history *, int n, uint64_t serial, uint64_t id, mr_bytes token);
void commit_is_done(struct history *, struct commit *);
// Whether one of the jobs before it in its block has a commit of that state.
bool commit_follows(const struct history *, const struct commit *, int state);
void piece_push(struct history *, struct client *, int n);
bool may_make(const struct history *);
// The key of a stage as text; with groups it begins with one.
const char *key_text(int stage, int key);

bool reply_is_code(const struct response_value *, const char *code);
bool reply_is_unsure(const struct history *, const struct response_value *);
uint64_t number_of(mr_bytes text);

// ---- nodes_library.c ----------------------------------------------------------------------------

void libraries_start(struct history *);
void libraries_step(struct history *);
void library_kill(struct history *, int index);
void library_pause(struct history *, int index, uint64_t until_ms);
bool libraries_are_over(const struct history *);
void libraries_finish(struct history *); // whatever they do

// ---- nodes_operator.c ---------------------------------------------------------------------------

void operator_act(struct history *, struct client *);
void planner_act(struct history *, struct client *);
void receive_cancel(struct history *, int n, const struct response_value *);
void receive_epic(struct history *, struct epic_plan *, const struct response_value *);
void receive_schedule(struct history *, int index, const struct response_value *);
void epic_reply_lost(struct epic_plan *);
void schedule_reply_lost(struct schedule_plan *);
// A job of a schedule: the piece that stands for it; -1: it is none of this history.
int schedule_piece(struct history *, mr_bytes body, uint64_t id);
// It begins: all jobs of its epic may have ended.
void expect_epic_ended(struct history *, int n);
// NULL: all that was planned is done.
const char *plans_unfinished(const struct history *, char text[100]);

#endif
