// Watchers: commands that wait for an epic, listed by epic, so that a job's end notifies only those
// that it concerns. A watcher is notified when at most `left` of the jobs are unended:
//
//     unended jobs   1,024 ── 900 ── 512 ─────────────── 0
//                                     │                  │
//                     a reader (left 512) goes on   EPIC_OVER looks, once the end is known
//
// The state may change again before the watcher looks: it checks, and watches again if need be.
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include "core/core.h"

struct source;

struct watches {
    struct list watchers; // by `left`, largest first; EPIC_OVER last
};

void watchers_notify(struct core *, struct source *);     // those whose condition may hold
void watchers_notify_all(struct core *, struct source *); // the epic was changed or dropped

// ---- source.c, for watch.c --------------------------------------------------------------------

uint32_t source_find_epic(struct core *, mr_bytes stage, mr_bytes name); // 0: not known
int epic_unknown(mr_bytes stage, mr_bytes name);                         // sets the error: MR_EGONE
uint64_t source_unended(const struct source *);

#endif
