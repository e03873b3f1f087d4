// Watchers: who waits for an epic, by epic, so that a job's end is told to those only whom it
// concerns. Each says how few of its jobs may be left before it wants to look again:
//
//     unended jobs   1,024 ── 900 ── 512 ─────────────── 0
//                                     │                  │
//                     a reader (left 512) goes on   EPIC_OVER looks, once the end is known
//
// Telling does not mean that it has come so far for good: whoever is told looks, and watches again.
#ifndef CORE_WATCH_H
#define CORE_WATCH_H

#include "core/core.h"

struct source;

struct watches {
    struct list watchers; // by how many may be left, most first; EPIC_OVER last
};

void watchers_notify(struct core *, struct source *); // those that it may have come far enough for
void watchers_notify_all(struct core *, struct source *); // it was changed, or is gone

// ---- source.c, for watch.c --------------------------------------------------------------------

uint32_t source_find_epic(struct core *, mr_bytes stage, mr_bytes name); // 0: not known
int epic_unknown(mr_bytes stage, mr_bytes name);                         // says so: MR_EGONE
uint64_t source_unended(const struct source *);

#endif
