// Budget: how much work a session may do in one turn. Work is counted in steps, not in commands,
// because one command can be as much work as a thousand others. A step is about a tenth of a
// microsecond: an entry that is looked at, some words of a request, some bytes in or out.
//
//     received ─► commands run ─► budget used up ─► backlog ─► next turn, in rotation ─► …
//
// A session that has used up its steps waits in the host's backlog and goes on in a later turn. A
// turn serves the backlog in order until LIMIT_TURN_STEPS are used up, however many sessions wait
// there. A session that is not in the backlog runs as soon as its request arrives, until the turn
// has had LIMIT_BUSY_STEPS of all of them: then a command that may be large is left for the
// backlog, and a session has LIMIT_BUSY_SHARE. So a turn is bounded, however many connections a
// client has, and small commands of others are still run in it.
//
// One command must not cost more than LIMIT_COMMAND_STEPS. What could be more is done in pieces:
// the command waits for the next turn (wait.h) and goes on then.
#ifndef SERVER_BUDGET_H
#define SERVER_BUDGET_H

#include "server/session.h"

enum {
    STEPS_COMMAND = 8,   // whatever it does
    STEPS_CHANGE = 10,   // a job that is pushed, ended or changed
    STEPS_ROW = 10,      // a row of a list, beyond its bytes
    STEPS_READ = 20,     // an entry that is read from the log
    STEP_ROWS = 8,       // rows that memory is made ready for,
    STEP_WORDS = 8,      // words of a request that cost one step,
    STEP_BYTES_IN = 256, // its bytes …
    STEP_BYTES_OUT = 64, // … and bytes of its reply
};

// Counts work of the command that is being run, beyond what its bytes cost.
static inline void budget_spend(struct session *s, uint64_t steps) {
    s->host->steps += steps;
    s->spent += steps;
}

// How much of this turn is used up, by whomever.
static inline uint64_t budget_used(const struct host *h) {
    return h->steps - h->turn_steps;
}

// Whether so much was done in this turn that only small commands are run in it still. Those of the
// backlog have waited already.
static inline bool budget_is_busy(const struct host *h) {
    return !h->serving && budget_used(h) >= LIMIT_BUSY_STEPS;
}

// Whether the session may go on in this turn. A new turn has a new budget.
static inline bool budget_left(struct session *s) {
    if (s->spent_turn != s->host->turn) {
        s->spent_turn = s->host->turn;
        s->spent = 0;
    }
    return s->spent < (budget_is_busy(s->host) ? LIMIT_BUSY_SHARE : LIMIT_SESSION_STEPS);
}

// Steps for what a client leaves behind that is lost now; the rest follows in later turns.
static inline uint64_t budget_leaving(const struct host *h) {
    return budget_used(h) < LIMIT_TURN_STEPS ? LIMIT_SESSION_STEPS : 0;
}

// What was counted before a command, which may run others (EXEC).
struct budget_mark {
    uint64_t steps, spent;
};

static inline struct budget_mark budget_begin(struct session *s) {
    (void)budget_left(s); // a new turn begins at nothing
    return (struct budget_mark){ s->host->steps, s->spent };
}

// Counts what a command of `words` words and a reply of `said` bytes has cost, the work of the
// cores for it, and what was counted for the host only.
void budget_end(struct session *, struct budget_mark, uint32_t words, uint64_t said);

// The session goes on in a later turn, behind those that wait already.
void budget_defer(struct session *);

// Sessions that wait now have their turn in this one.
void budget_begin_turn(struct host *);

// Goes on with what clients that are gone have left behind, and lets sessions of the backlog go on,
// each once, until the steps of a turn are used up.
void budget_serve(struct host *);

#endif
