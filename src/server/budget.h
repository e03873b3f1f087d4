// Budget: how much work a session may do in one turn. Work is counted in steps, not in commands,
// because one command can be as much work as a thousand others. A step is about a tenth of a
// microsecond: an entry that is looked at, some words of a request, some bytes in or out.
//
//     received ─► commands run ─► budget used up ─► backlog ─► next turn, in rotation ─► …
//
// A session that has used up its steps waits in the host's backlog and continues in a later turn. A
// turn serves the backlog in order until LIMIT_TURN_STEPS are used up, however many sessions wait
// there. A session that is not in the backlog runs as soon as its request arrives, until all
// sessions together have used LIMIT_BUSY_STEPS in the turn: then commands that may be large go to
// the backlog, and a session gets only LIMIT_BUSY_SHARE. So a turn is bounded, however many
// connections a client has, and small commands of others still run in it.
//
// Sockets are read in the same way (connection.c): in a turn that is busy READ_SHARE bytes are read
// from those that have no input left, and the others rest until later turns. After LIMIT_READ_STEPS
// no socket is read any more: those without input are read first in the next turn. That one is busy
// from its beginning, so that all of them are read soon; but after CONTINUED_TURNS of these, one is
// not, so that the others continue, too. When all sockets together have been sent LIMIT_SENT bytes,
// each is sent SENT_SHARE until the loop has polled again.
//
// One command must not cost more than LIMIT_COMMAND_STEPS. A command that could cost more is
// divided: it waits for the next turn (wait.h) and continues then.
#ifndef SERVER_BUDGET_H
#define SERVER_BUDGET_H

#include "server/shards.h"

enum {
    STEPS_COMMAND = 8,   // every command
    STEPS_CHANGE = 10,   // a job that is pushed, ended or changed
    STEPS_ROW = 10,      // a row of a list, beyond its bytes
    STEPS_UPCOMING = 50, // the next five times of a schedule
    STEPS_READ = 20,     // an entry read from the log
    STEP_SESSIONS = 8,   // sessions that a search passes, per step,
    STEP_LEVELS = 8,     // levels of clients that it passes,
    STEP_ROWS = 8,       // rows for which memory is allocated,
    STEP_WORDS = 8,      // words of a request per step,
    STEPS_RECEIVE = 40,  // a call that reads from a socket,
    STEP_RECEIVED = 64,  // bytes that it reads, complete requests or not,
    STEPS_RESUME = 20,   // a session that continues from the backlog,
    STEP_BYTES_IN = 128, // bytes of a request that is run …
    STEP_BYTES_OUT = 64, // … and bytes of its reply
};

// Counts work of the current command, in addition to the cost of its bytes.
static inline void budget_spend(struct session *s, uint64_t steps) {
    s->host->steps += steps;
    s->spent += steps;
}

// Steps used in this turn by all sessions.
static inline uint64_t budget_used(const struct host *h) {
    return h->in_turn ? h->steps - h->turn_steps : 0;
}

// Whether this turn has used so many steps that it runs only small commands. Commands of the
// backlog are exempt: they have waited already.
static inline bool budget_is_busy(const struct host *h) {
    return h->steps >= h->busy_steps;
}

// Whether the session has steps left in this turn. Starts a new budget in a new turn.
static inline bool budget_left(struct session *s) {
    if (s->spent_turn != s->host->turn) {
        s->spent_turn = s->host->turn;
        s->spent = 0;
    }
    return s->spent < (budget_is_busy(s->host) ? LIMIT_BUSY_SHARE : LIMIT_SESSION_STEPS);
}

// Whether the next turn reads what this one has left, and is busy from its beginning.
static inline bool budget_continues(const struct host *h) {
    return h->skipped && h->continued < CONTINUED_TURNS;
}

// Whether the session's socket has to wait until others were read: in a turn that is busy, and
// while clients use too much memory, if it has input that is incomplete or has not been run.
static inline bool budget_must_rest(const struct session *s) {
    const struct host *h = s->host;
    return (s->front || s->in.size) && (budget_is_busy(h) || host_clients_exceed(h));
}

// How many bytes may be read from the session's socket now. 0: none in this turn.
static inline size_t budget_read_size(struct session *s) {
    struct host *h = s->host;
    if (budget_must_rest(s))
        return 0;
    if (budget_used(h) >= LIMIT_READ_STEPS) {
        h->skipped = true;
        return 0;
    }
    return budget_is_busy(h) ? READ_SHARE : READ_SIZE;
}

// Counts bytes that were read from the session's socket.
static inline void budget_receive(struct host *h, size_t bytes) {
    h->steps += STEPS_RECEIVE + bytes / STEP_RECEIVED;
}

// Steps for cleaning up after disconnected clients in this turn; the rest follows in later turns.
static inline uint64_t budget_leaving(const struct host *h) {
    return budget_used(h) < LIMIT_TURN_STEPS ? LIMIT_SESSION_STEPS : 0;
}

// The counts before a command, which may run other commands (EXEC).
struct budget_mark {
    uint64_t steps, spent;
};

static inline struct budget_mark budget_begin(struct session *s) {
    (void)budget_left(s); // a new turn starts at zero
    return (struct budget_mark){ s->host->steps, s->spent };
}

// Counts the cost of a command of `words` words and a reply of `said` bytes, and the work of the
// cores for it.
static inline void budget_end(struct session *s, struct budget_mark mark, uint32_t words,
                              uint64_t said) {
    struct host *h = s->host;
    h->steps += STEPS_COMMAND + words / STEP_WORDS + said / STEP_BYTES_OUT + shards_steps(h);
    s->spent = mark.spent + h->steps - mark.steps;
}

// Appends the session to the backlog: it continues in a later turn.
void budget_defer(struct session *);

// Marks the sessions of the backlog that this turn serves.
void budget_begin_turn(struct host *);

// Continues the clean-up after disconnected clients, then the sessions of the backlog, each once,
// until the steps of the turn are used up.
void budget_serve(struct host *);

#endif
