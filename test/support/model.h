// Model: the rules (spec/rules.md) implemented in the simplest way: arrays, and scans over all of
// them.
//
// It is slow, and meant to be obviously right. It shares with the core only the types of its
// header, policy_set and policy_default. Two things it cannot know, and learns from the core's
// answers: ids and tokens, and the length of a backoff with jitter (`unsure`).
//
//     model_advance(m, now)    what is due, in order of time
//     model_run(m, c, &answer) the command: the answer it must have, and what must happen
//     m->observed              grants, ends and stops since model_forget_observed
#ifndef TEST_SUPPORT_MODEL_H
#define TEST_SUPPORT_MODEL_H

#include "command.h"

enum { MANY = 2048, NUMBERS = 4096 };

struct model_job {
    uint64_t id; // 0: not learnt yet
    int stage;
    char key[TEXT], once[TEXT], body[TEXT], meta[TEXT], result[TEXT], reason[TEXT];
    enum job_status status;
    bool forgotten, joined;
    uint64_t position;           // given when it joins its channel
    uint64_t made_ms, pushed_ms; // RETRY sets the second again
    uint64_t joins_ms, deadline_ms, ended_ms;
    uint64_t end_order; // among all that ended
    bool halts;         // dead: its channel does not go past it
    uint32_t attempts, attempt, releases;
    bool leased;       // a worker has had it since the latest crash
    bool call;         // wanted only while a caller waits for it
    uint64_t grace_ms; // until when a call counts as wanted after a crash
    uint64_t wait_ms;  // as head of its channel it may not start before
    bool released;     // `wait_ms` comes from releases: not recorded
    bool unsure;       // `wait_ms` is a guess, right within a fifth of `backoff_ms`
    uint64_t backoff_ms;
    uint64_t maker;     // whom it counts for; 0: no token
    struct token token; // of the lease that ended it
    bool replayed;      // it ended before the latest crash, or under a lease from before it
    int source;
    uint64_t number;
};

struct model_channel {
    bool known;
    int stage;
    char key[TEXT];
    uint64_t solo; // index + 1 of its only job, when there is no key
    enum channel_state state;
    char kept[TEXT]; // its state; "": none
    bool paused;
};

struct model_lease {
    bool alive, detached;
    bool recorded, restored; // it outlives a crash; it did
    struct token token;      // learnt
    int channel, conn, stage, group;
    uint64_t until_ms, lease_ms;
    uint64_t said;  // by PROGRESS, of …
    uint64_t about; // … the job with this id; 0: nothing
    int jobs[BLOCK], count;
    bool let_go[BLOCK];
};

struct model_group {
    uint64_t next_us; // no start before
};

struct model_stage {
    bool known, seen; // seen: only by takers, it may or may not be known
    struct policy policy;
    bool paused, draining, over; // over: above its high mark and not yet below the low one
    bool edges[STAGES];
    uint64_t pushed, done, failed, expired, cancelled, wasted_wait_ms;
    int ready[MANY], ready_count;    // channels
    struct model_group groups[KEYS]; // the index is that of the first key of the group
    int turns[KEYS], turn_count;     // groups, in the order of their turns …
    int held[KEYS], held_count;      // … and those that their limits hold
};

struct model_source {
    bool known;
    uint64_t total;
    bool ended; // `total` was said
    bool accepted[NUMBERS];
    int noted[NUMBERS]; // index + 1 of the job that the number stands for, and did not make; 0:
                        // none
    uint64_t skipped;   // numbers without a job of their own
    struct command_job then; // waits for the end, or was pushed with it
    bool then_waits, then_pushed, stopped;
    uint64_t forget_ms, over_ms; // 0: it is kept; since when it is over
    bool was_over;
};

// Instants of the wall clock, which the commands name; 0: none.
struct model_schedule {
    bool known, paused, asked;
    uint64_t next_ms, last_ms, pushed;
    int last; // the job that was pushed last
    struct command_job job;
};

struct model_gap {
    int conn, source;
    uint64_t number;
};

struct model_slot {
    bool waits;
    uint64_t arrival;
    int conn, job;          // a caller's job: index
    struct command command; // a taker's TAKE, a pusher's PUSH
};

struct model {
    uint64_t now_ms, opened_ms, recorded_ms;
    struct model_stage stages[STAGES];
    struct model_job jobs[MANY];
    int job_count;
    struct model_channel channels[MANY];
    int channel_count;
    struct model_lease leases[MANY];
    int lease_count;
    struct model_source sources[SOURCES];
    struct model_schedule schedules[SCHEDULES];
    struct model_gap gaps[MANY];
    int gap_count;
    struct model_slot takers[SLOTS], callers[SLOTS], pushers[SLOTS];
    int touched[STAGES], touched_count; // stages where something may start now, in that order
    uint64_t last_position, last_end, last_arrival;
    struct observed observed;
    bool pushing_again; // for the pusher that was notified of room: it goes first
    bool ambiguous;     // the rules do not say which of two things comes first
    bool full;          // an array is used up: the history must end here
};

enum { MODEL_GRACE_MS = 10000 };

void model_init(struct model *);

// The next instant at which something is due; UINT64_MAX: none.
uint64_t model_next(const struct model *);

// Moves to `now_ms`, which must not be beyond model_next unless nothing in between is `unsure`.
void model_advance(struct model *, uint64_t now_ms);

void model_run(struct model *, const struct command *, struct answer *out);

// The engine is lost and comes back at `now_ms`: everything not recorded is lost.
void model_crash(struct model *, uint64_t now_ms);

// Rule 22: this attempt ran when the engine died.
void model_crashed(struct model *, uint64_t id, uint32_t attempt);

void model_forget_observed(struct model *);

// The index of a job that is not forgotten; -1: gone.
int model_find(const struct model *, uint64_t id);

// The latest lease that had this job, alive or not; -1: none.
int model_lease_of(const struct model *, int job);

// The channel of a job or key (`solo`: index + 1 of a job without key); -1: not known.
int model_channel_of(const struct model *, int stage, const char *key, uint64_t solo);

// The nth unended job that has joined the channel, in order; -1: fewer.
int model_nth(const struct model *, int channel, int n);

// Whether the channel has come to a dead job that halts it.
bool model_halted(const struct model *, int channel);

int model_depth(const struct model *, int channel);
uint64_t model_count(const struct model *, int stage, enum job_status);

// Whether all numbers were pushed, or it was cancelled, and all jobs have ended.
bool model_epic_over(const struct model *, int source);

// The schedule that is due first, and when: 0 if it was asked for; -1: none will be.
int model_first_due(const struct model *, uint64_t *out_ms);

// Whether the push of such a job would have room; the first in line if pushers wait, or -1.
bool model_has_room(const struct model *, const struct command_job *);
int model_first_pusher(const struct model *, int stage);

// Rule 13: the core has forgotten the stage, when is left to it. False: it is not empty, or
// something was set there.
bool model_forget_stage(struct model *, int stage);

// The index of the group of a key.
int model_group(const char *key);

// Whether jobs of the key are a channel; else each is its own.
bool model_orders(const struct model *, int stage, const char *key);

// Unanswered jobs of the group; what holds it: "group-limit", "group-rate" or "".
uint64_t model_group_leased(const struct model *, int stage, int group);
const char *model_group_held(const struct model *, int stage, int group);

// When a held group may start again by its rate; UINT64_MAX: not by that.
uint64_t model_group_next(const struct model *, int stage, int group);

// The channel that starts next; -1: none. All ready ones, as the core walks them.
int model_next_ready(const struct model *, int stage);
void model_ready_order(const struct model *, int stage, int *out);

// True if something is planned for this very instant.
bool model_taken(const struct model *, uint64_t at_ms);

#endif
