// History: the counters of a stage over an hour and over a day, in intervals of a fixed length.
// Each span is a ring of HISTORY_POINTS points, one for each interval up to the newest, without
// times:
//
//     interval    …  n−3    n−2    n−1     n       n = time / length of an interval
//     point       …  12     9      9      15       n−1: nothing was sampled, the value held
//
// A point has the greatest value of each gauge and of each percentile among the samples of its
// interval, and the sum of each count. It is made of samples (series.h), so a job costs nothing.
//
// No clock, no memory of its own; one thread.
#ifndef WEB_HISTORY_H
#define WEB_HISTORY_H

#include "wire/json.h"

#include <stddef.h>
#include <stdint.h>

enum { HISTORY_POINTS = 360, HISTORY_NONE = UINT32_MAX };

enum history_span { HISTORY_HOUR, HISTORY_DAY, HISTORY_SPANS };

struct history_point {
    uint32_t waiting, running, delayed, dead, level; // gauges
    uint32_t pushed, done, failed;                   // counts
    uint32_t wait_p50, wait_p99, run_p50, run_p99;   // ms; HISTORY_NONE: no job
};

// Zero is a valid start.
struct history {
    uint64_t newest;           // the interval of the newest point
    uint32_t count;            // of points
    struct history_point last; // the last sample: its gauges hold until the next one
    struct history_point points[HISTORY_POINTS];
};

// Counts of all stages of a client, for a sum. Zero is a valid start.
struct history_sum {
    uint64_t newest; // the interval of the last point
    uint32_t count;  // of points that any stage has, which end with the last
    struct history_sum_point {
        uint64_t waiting, running, delayed, dead, pushed, done, failed;
    } points[HISTORY_POINTS];
};

// The length of an interval.
uint64_t history_step_ms(enum history_span);

// Adds a sample. Intervals since the previous one hold its gauges. Returns how many points were
// written, at most HISTORY_POINTS.
uint32_t history_add(struct history *, enum history_span, uint64_t at_ms,
                     const struct history_point *);

// Adds a stage to the sum of the points that end at p->newest.
void history_sum_add(struct history_sum *p, const struct history *);

// Writes a column for each value of `count` points, of which `at` returns one: also those of
// series.h.
void history_write_columns(struct doc *,
                           const struct history_point *(*at)(const void *, uint32_t i),
                           const void *arg, uint32_t count);

// Write "history": an object with the length of an interval, the time at which the first begins,
// and a column for each value. NULL: a stage without points.
void history_write(const struct history *, enum history_span, struct doc *);
void history_sum_write(const struct history_sum *, enum history_span, struct doc *);

#endif
