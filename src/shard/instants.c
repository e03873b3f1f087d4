// See instants.h. The local clock runs at one offset from UTC during a period (base/zone.h), so a
// search goes from period to period.
#include "shard/instants.h"

enum { MINUTE = 60, OFFSET_MOST_S = 27 * 3600 };

static int64_t minute_from(int64_t seconds) {
    return seconds / MINUTE + (seconds % MINUTE > 0);
}

// The instant of a local time; of one that occurs twice the first, of one that does not exist the
// change. The offset is less than OFFSET_MOST_S, so the first period begins before it.
static int64_t instant_of_local(const struct zone *z, int64_t local) {
    struct zone_period p = zone_period_at(z, local - OFFSET_MOST_S);
    while (p.end != INT64_MAX && local - p.offset >= p.end)
        p = zone_period_at(z, p.end);
    int64_t at = local - p.offset;
    return at < p.start ? p.start : at;
}

// INT64_MAX: there is none. In an hour that occurs twice, local times were due already.
static int64_t next_local(const struct instants *in, int64_t after) {
    int64_t minute = minute_from(after + zone_period_at(in->zone, after).offset + 1);
    for (;; minute++) {
        if ((minute = cron_next(&in->cron, minute)) < 0)
            return INT64_MAX;
        int64_t at = instant_of_local(in->zone, minute * MINUTE);
        if (at > after)
            return at;
    }
}

static int64_t next_elapsed(const struct instants *in, int64_t after) {
    int64_t from = after + 1;
    for (;;) {
        struct zone_period p = zone_period_at(in->zone, from);
        int64_t minute = cron_next(&in->cron, minute_from(from + p.offset));
        if (minute < 0)
            return INT64_MAX;
        int64_t at = minute * MINUTE - p.offset;
        if (at < p.end)
            return at;
        from = p.end;
    }
}

uint64_t instants_next(const struct instants *in, uint64_t after_ms) {
    uint64_t next = INSTANTS_END_MS;
    if (in->every_ms) {
        next = after_ms + in->every_ms;
    } else {
        int64_t after = (int64_t)(after_ms / 1000);
        int64_t at = cron_is_hourly(&in->cron) ? next_elapsed(in, after) : next_local(in, after);
        if (at < (int64_t)(INSTANTS_END_MS / 1000))
            next = (uint64_t)at * 1000;
    }
    return next < INSTANTS_END_MS ? next : INSTANTS_END_MS - 1;
}

// Goes back by ever longer steps until there is one up to `upto_ms`, then halves the step to find
// the last.
uint64_t instants_last(const struct instants *in, uint64_t from_ms, uint64_t upto_ms) {
    if (in->every_ms)
        return from_ms + (upto_ms - from_ms) / in->every_ms * in->every_ms;
    if (instants_next(in, from_ms) > upto_ms)
        return from_ms;
    uint64_t back = MINUTE * 1000, last = from_ms;
    while (back < upto_ms - from_ms && instants_next(in, upto_ms - back) > upto_ms)
        back *= 2;
    uint64_t low = back < upto_ms - from_ms ? upto_ms - back : from_ms, high = upto_ms;
    while (high - low > 1) { // the next one after `low` is due, that after `high` is not
        uint64_t middle = low + (high - low) / 2;
        if (instants_next(in, middle) <= upto_ms)
            low = middle;
        else
            high = middle;
    }
    last = instants_next(in, low);
    return last <= upto_ms ? last : from_ms;
}

static bool are_few(const struct instants *in, uint64_t from_ms, uint64_t upto_ms, uint32_t most) {
    for (; most && from_ms <= upto_ms; most--)
        from_ms = instants_next(in, from_ms);
    return from_ms > upto_ms;
}

uint64_t instants_last_few(const struct instants *in, uint64_t from_ms, uint64_t upto_ms,
                           uint32_t most) {
    uint64_t at = instants_last(in, from_ms, upto_ms);
    if (in->every_ms) {
        uint64_t span = (uint64_t)(most - 1) * in->every_ms;
        return at - from_ms > span ? at - span : from_ms;
    }
    if (are_few(in, from_ms, upto_ms, most))
        return from_ms;
    for (uint32_t left = most - 1; left && at > from_ms; left--)
        at = instants_last(in, from_ms, at - 1);
    return at;
}
