// Instants: when a schedule is due, by the wall clock (milliseconds since 1970 UTC).
//
// An interval is added to its last instant. A cron expression names local times of a zone, and
// where the clock of the zone is changed:
//
//     a local time that occurs twice     the first one counts
//     a local time that does not exist   the moment of the change counts instead, once
//
// An expression that allows every hour goes by elapsed time instead: it is due whenever the local
// clock shows a minute of it. Otherwise `*/5 * * * *` would pause for an hour once a year.
//
// Pure; errors are not possible: the expression was parsed.
#ifndef SHARD_INSTANTS_H
#define SHARD_INSTANTS_H

#include "base/cron.h"
#include "base/zone.h"

struct instants {
    uint64_t every_ms; // 0: `cron` in `zone`
    struct cron cron;
    const struct zone *zone;
};

// No schedule is due later: it stands for "never".
#define INSTANTS_END_MS (UINT64_C(1) << 44)

// The first one after `after_ms`; of an interval, which has no fixed place in time, one interval
// after it. INSTANTS_END_MS - 1: there is none.
uint64_t instants_next(const struct instants *, uint64_t after_ms);

// The last one up to `upto_ms`, where `from_ms` is one that is not later.
uint64_t instants_last(const struct instants *, uint64_t from_ms, uint64_t upto_ms);

// The first of the last `most` up to `upto_ms`, where `from_ms` is one, from which on they count.
uint64_t instants_last_few(const struct instants *, uint64_t from_ms, uint64_t upto_ms,
                           uint32_t most);

#endif
