// Slow log: a log around another one, which is slow in the ways that a test says. It counts what a
// thread of a loop must not do with such a log: read and wait.
#ifndef SUPPORT_SLOW_LOG_H
#define SUPPORT_SLOW_LOG_H

#include "log/log.h"

struct slow_plan {
    bool cold;         // nothing is in memory: read_now answers MR_EAGAIN …
    bool scan_cold;    // … and scan, too
    bool held;         // nothing more becomes durable
    bool behind;       // pushes are refused, because too much is not durable
    bool another;      // another thread is reading: it may
    bool gone;         // the next read finds that the entry was trimmed
    uint64_t unwanted; // reads and waits by the thread of the loop while cold or held
    uint64_t scans;    // that were answered with MR_EAGAIN
    uint64_t writes;   // that the thread of the loop was willing to wait for
};

// For log_options.wrap, with a plan as its argument.
struct log *slow_log_wrap(void *plan, struct log *);

#endif
