// Wait: a command that cannot be answered at once. It registers what it waits for and how it goes
// on, and returns; its session runs no other command until it is answered:
//
//     run ─► wait_begin ─ … ─► wait_wake ─► resume ─► answers, or wait_begin again
//                        └ … ─► answered by what it waited for ─► wait_answered
//
// One thread, within a turn of the host.
#ifndef SERVER_WAIT_H
#define SERVER_WAIT_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session;

// Why a command goes on.
enum wake {
    WAKE_READY,   // what it waited for has happened, or the next turn has begun
    WAKE_TIMEOUT, // its time is over
    WAKE_STOPPED, // the log has failed: nothing more becomes durable
};

// What a command waits for; constant, one for each way to wait.
struct wait_kind {
    // It waits for other clients, or for time to pass: a timeout, a failed log and a client that
    // sends no more end it. Anything else is the server's own work, which ends by itself.
    bool is_open;
    void (*leave)(struct session *); // ends its waiting in the engine; NULL: it does not wait there
    // Answers, or waits again, with the same state or another. NULL: wait_answered ends it.
    void (*resume)(struct session *, void *state, enum wake);
    void (*free)(void *state); // NULL: there is none
};

struct wait {
    const struct wait_kind *kind; // NULL: the session does not wait
    void *state;                  // what the command needs to go on
    size_t bytes;                 // of memory that are kept for it
    uint64_t until_ms;            // UINT64_MAX: for ever
    bool for_turn;                // it goes on in the next turn
    bool is_woken;                // it goes on in this one …
    enum wake wake;               // … because of this
};

// The session waits, until `until_ms` at the longest. It owns the state, which may be NULL.
void wait_begin(struct session *, const struct wait_kind *, void *state, size_t bytes,
                uint64_t until_ms);
// The same until the next turn.
void wait_for_turn(struct session *, const struct wait_kind *, void *state, size_t bytes);
// When a wait of so many milliseconds ends; -1: never.
uint64_t wait_until(const struct session *, int64_t wait_ms);

// The command goes on in this turn.
void wait_wake(struct session *, enum wake);
// Its time is over, or the log has failed: it goes on, if it is open.
void wait_time_out(struct session *);
void wait_stop(struct session *);
// What it waited for has written the answer.
void wait_answered(struct session *);
// Ends an open wait without an answer.
void wait_abandon(struct session *);
// Frees its state. It no longer waits in the engine.
void wait_finish(struct session *);

// Whether it waits for other clients, or for time to pass.
bool wait_is_open(const struct session *);

// Goes on with the command that was woken; afterwards it is answered, or waits again.
void wait_resume(struct session *);

// ---- Words ------------------------------------------------------------------------------------

// A copy of a command's words, for one that goes on in a later turn.
struct kept_words {
    size_t bytes; // of memory
    uint32_t count;
    mr_bytes words[];
};

struct kept_words *words_keep(const mr_bytes *words, uint32_t count); // NULL: no memory

#endif
