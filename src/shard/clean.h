// Clean: keeps the log short. What still lives at its head is appended again at its tail; then the
// head is given up, a segment or more at a time.
//
//     head                                    tail                  ┌───────► idle ────┐
//      ├─ dead ─ LIVE ─ dead ─┬─ LIVE ─ … ─────┤─ LIVE ─ TRIM       │                  ▼
//      └── scanned ───────────┘                   copies  note    noting ◄─ copying ◄─ scanning
//        given up when both are durable
//
// No step waits: one that needs something durable asks for it and leaves, and a later one goes on.
// So a crash finds either the old homes, or durable copies of them; and a head that is missing
// without a note is damage.
#ifndef SHARD_CLEAN_H
#define SHARD_CLEAN_H

#include "core/core.h"
#include "log/log.h"

enum cleaner_state {
    CLEANER_IDLE,
    CLEANER_SCANNING,
    CLEANER_COPYING, // waits for the copies, and for whatever made the rest dead
    CLEANER_NOTING,  // waits for the note that the head goes
};

struct cleaner {
    struct log *log; // borrowed, as the two below
    struct core *core;
    const uint64_t *last_at; // the entry appended last
    enum cleaner_state state;
    uint64_t at;            // everything below has been looked at: nothing lives there
    uint64_t end;           // how far this round goes
    uint64_t wait_for;      // the entry that must be durable before the next step
    uint64_t retry_at_ms;   // after a failure, so that it is not repeated at once
    const void *damaged;    // the body being copied, if it is
    uint64_t damaged_count; // entries that were, so far …
    char damage[512];       // … and where the last one is
    bool blocked;           // at `at` is damage that cannot be passed while something lives there
};

// Milliseconds until the next step is possible, as far as `log` tells: 0 now, -1 none is in sight.
int64_t cleaner_next_ms(const struct cleaner *, const struct log_state *log, uint64_t now_ms);

// Does the next step, which is bounded; only when cleaner_next_ms says 0. The core's and the log's
// errors: the step was not done, and is tried again a while later.
int cleaner_step(struct cleaner *, const struct log_state *log, uint64_t now_ms);

// At opening, after replay: finishes a trim that a crash has interrupted. MR_ECORRUPT: the log
// begins in a later segment than the last note says.
int cleaner_resume(struct cleaner *);

#endif
