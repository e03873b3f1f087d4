// Clean: keeps the log short. Live entries at its head are appended again at its tail; then the
// head is trimmed, a segment or more at a time.
//
//     head                                    tail               ┌──► idle ─────► beginning ─┐
//      ├─ dead ─ LIVE ─ dead ─┬─ LIVE ─ … ─────┤─ LIVE ─ TRIM    │                           ▼
//      └── scanned ───────────┘                   copies  note   noting ◄── copying ◄── scanning
//        given up when both are durable
//
// No step blocks: a step that needs something durable requests a sync and returns, and a later step
// continues. So after a crash the log has either the old homes or durable copies of them; and a
// missing head without a TRIM record is damage.
#ifndef SHARD_CLEAN_H
#define SHARD_CLEAN_H

#include "core/core.h"
#include "log/log.h"

enum cleaner_state {
    CLEANER_IDLE,
    CLEANER_BEGINNING, // copies what the core finds without a scan
    CLEANER_SCANNING,
    CLEANER_COPYING, // waits until the copies, and the records that made the rest dead, are durable
    CLEANER_NOTING,  // waits until the TRIM record is durable
};

struct cleaner {
    struct log *log; // borrowed, as the two below
    struct core *core;
    const uint64_t *last_at; // the entry appended last
    enum cleaner_state state;
    uint64_t at;             // everything below was scanned and has no live entries
    uint64_t end;            // how far this round goes
    struct clean_cursor own; // while it begins: what the core has looked at
    uint64_t wait_for;       // the entry that must be durable before the next step
    uint64_t retry_at_ms;    // after a failure: the next try
    const void *damaged;     // the body being copied, if it is damaged; else NULL
    uint64_t damaged_count;  // damaged entries so far …
    char damage[512];        // … and where the last one was
    bool is_pinned;          // a backup reads the log: nothing is removed unless room is short
    bool blocked; // there is damage at `at` that cannot be skipped while live entries follow
};

// Milliseconds until the next step is possible: 0: now; -1: there is nothing to do.
int64_t cleaner_next_ms(const struct cleaner *, const struct log_state *log, uint64_t now_ms);

// Does the next step, which is bounded; only when cleaner_next_ms says 0. The core's and the log's
// errors, and MR_EAGAIN (log_scan): the step was not done, and is retried later.
int cleaner_step(struct cleaner *, const struct log_state *log, uint64_t now_ms);

// At opening, after replay: finishes a trim that a crash has interrupted. MR_ECORRUPT: the log
// begins in a later segment than the last TRIM record says.
int cleaner_resume(struct cleaner *);

#endif
