// Cron: expressions of five fields, and the local times that match them.
//
//     minute 0-59   hour 0-23   day of the month 1-31   month 1-12 or jan-dec   weekday 0-7 or
//     sun-sat
//
// A field is a list of values, ranges and `*`, each range with an optional step: `0,30`, `9-17`,
// `*/15`, `mon-fri`, `8-18/2`. Weekday 0 and 7 are Sunday. If both days are given, that is, neither
// begins with `*`, a day matches that fits either of them. @hourly, @daily, @midnight, @weekly,
// @monthly, @yearly and @annually stand for whole expressions.
//
// Local times are counted here as minutes since 1970-01-01 00:00 by the local clock, without any
// rules of time zones: see shard/instants.h for these. Pure.
#ifndef BASE_CRON_H
#define BASE_CRON_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

struct cron {
    uint64_t minutes; // bit n: value n matches
    uint32_t hours, days, months;
    uint32_t weekdays;               // bit 0: Sunday
    bool days_given, weekdays_given; // they do not begin with `*`
};

// MR_EINVAL, with the field, what is wrong with it and what is allowed: also if no time ever
// matches.
int cron_parse(mr_bytes text, struct cron *out);

// Whether every hour matches.
bool cron_is_hourly(const struct cron *);

// The first matching minute from `minute` on; -1: none before the year 2500.
int64_t cron_next(const struct cron *, int64_t minute);

// Whether this minute matches; for tests.
bool cron_matches(const struct cron *, int64_t minute);

// Days since 1970-01-01 of a date; months from 1.
int64_t civil_days(int64_t year, uint32_t month, uint32_t day);

struct civil_date {
    int64_t year;
    uint32_t month, day;
};

struct civil_date civil_from_days(int64_t days);
uint32_t civil_month_days(int64_t year, uint32_t month);

#endif
