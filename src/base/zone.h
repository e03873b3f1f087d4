// Zone: the offsets of a time zone from UTC at any instant, from the bytes of a TZif file (RFC
// 8536, as in /usr/share/zoneinfo): its list of changes, and behind the last of them its rule.
//
//     ──offset──┬──offset──┬─ … ──┬── rule: two changes a year, or none, for ever
//            change      change  last
//
// Instants are seconds since 1970 UTC. Local times are counted the same way by the local clock.
// Pure: shard/zones.h reads the files.
#ifndef BASE_ZONE_H
#define BASE_ZONE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

// The instant of a rule in a year.
struct zone_day {
    enum { ZONE_JULIAN, ZONE_NTH_DAY, ZONE_WEEKDAY } kind; // Jn: without 29 February; n; Mm.w.d
    int32_t day, month, week;
    int32_t time; // seconds from midnight, by the local clock before the change
};

struct zone_rule {
    bool is_known, has_summer;
    int32_t standard, summer;   // offsets, seconds east of UTC
    struct zone_day begin, end; // of summer
};

struct zone_change {
    int64_t at;
    int32_t offset; // from then on
};

struct zone {
    struct zone_change *changes;
    uint32_t count;
    int32_t first; // the offset before all changes
    struct zone_rule rule;
};

// Reads a file; `out` is the caller's, until zone_finish. MR_EINVAL: it is not such a file;
// MR_ENOMEM.
int zone_parse(mr_bytes file, struct zone *out);
void zone_finish(struct zone *);

// From `start` to before `end` the offset does not change; INT64_MIN, INT64_MAX: for ever.
struct zone_period {
    int64_t start, end;
    int32_t offset;
};

struct zone_period zone_period_at(const struct zone *, int64_t at);

#endif
