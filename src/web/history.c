// See history.h.
#include "web/history.h"

#include "wire/replies.h"

#include <string.h>

uint64_t history_step_ms(enum history_span span) {
    static const uint64_t hours[] = { [HISTORY_HOUR] = 1, [HISTORY_DAY] = 24 };
    return hours[span] * 3600 * 1000 / HISTORY_POINTS;
}

// ---- Points -------------------------------------------------------------------------------------

static void raise_to(uint32_t *value, uint32_t other) {
    *value = other > *value ? other : *value;
}

// HISTORY_NONE is the greatest number, and less than any time.
static void raise_time_to(uint32_t *value, uint32_t other) {
    if (*value == HISTORY_NONE)
        *value = other;
    else if (other != HISTORY_NONE)
        raise_to(value, other);
}

static void history_join(struct history_point *p, const struct history_point *more) {
    raise_to(&p->waiting, more->waiting);
    raise_to(&p->running, more->running);
    raise_to(&p->delayed, more->delayed);
    raise_to(&p->dead, more->dead);
    raise_to(&p->level, more->level);
    p->pushed += more->pushed;
    p->done += more->done;
    p->failed += more->failed;
    raise_time_to(&p->wait_p50, more->wait_p50);
    raise_time_to(&p->wait_p99, more->wait_p99);
    raise_time_to(&p->run_p50, more->run_p50);
    raise_time_to(&p->run_p99, more->run_p99);
}

static struct history_point *point_of(struct history *h, uint64_t interval) {
    return &h->points[interval % HISTORY_POINTS];
}

// The point of an interval in which nothing was sampled.
static struct history_point held_point(const struct history_point *last) {
    struct history_point p = *last;
    p.pushed = p.done = p.failed = 0;
    p.wait_p50 = p.wait_p99 = p.run_p50 = p.run_p99 = HISTORY_NONE;
    return p;
}

// After a long pause only the intervals that the ring still has are written.
static uint32_t history_hold(struct history *h, uint64_t until) {
    struct history_point held = held_point(&h->last);
    uint64_t skipped = until - h->newest - 1;
    uint64_t from = skipped < HISTORY_POINTS ? h->newest + 1 : until - HISTORY_POINTS;
    for (uint64_t i = from; i < until; i++)
        *point_of(h, i) = held;
    h->count = h->count + skipped < HISTORY_POINTS ? h->count + (uint32_t)skipped : HISTORY_POINTS;
    return (uint32_t)(until - from);
}

uint32_t history_add(struct history *h, enum history_span span, uint64_t at_ms,
                     const struct history_point *sample) {
    uint64_t interval = at_ms / history_step_ms(span);
    uint32_t written = 1;
    if (h->count && interval <= h->newest) { // less: the clock was set back
        history_join(point_of(h, h->newest), sample);
    } else {
        if (h->count)
            written += history_hold(h, interval);
        h->newest = interval;
        h->count += h->count < HISTORY_POINTS;
        *point_of(h, interval) = *sample;
    }
    h->last = *sample;
    return written;
}

void history_sum_add(struct history_sum *p, const struct history *h) {
    // A stage that was not sampled in the newest intervals still has its last gauges there.
    struct history_point held = held_point(&h->last);
    for (uint32_t i = 0; h->count && i < HISTORY_POINTS; i++) {
        uint64_t interval = p->newest - i;
        if (interval + h->count <= h->newest)
            break;
        const struct history_point *x =
            interval > h->newest ? &held : &h->points[interval % HISTORY_POINTS];
        struct history_sum_point *sum = &p->points[HISTORY_POINTS - 1 - i];
        sum->waiting += x->waiting;
        sum->running += x->running;
        sum->delayed += x->delayed;
        sum->dead += x->dead;
        sum->pushed += x->pushed;
        sum->done += x->done;
        sum->failed += x->failed;
        p->count = p->count > i ? p->count : i + 1;
    }
}

// ---- Output -------------------------------------------------------------------------------------

static void history_begin(struct doc *d, enum history_span span, uint64_t newest, uint32_t count) {
    uint64_t step_ms = history_step_ms(span);
    doc_open(d, "history", '{');
    doc_number(d, "step-ms", (int64_t)step_ms);
    doc_number(d, "from-ms", count ? (int64_t)((newest + 1 - count) * step_ms) : 0);
}

// A column has the name of the field of STAGES.
#define COLUMN(type, field, member)                                                                \
    { offsetof(struct stage_reply, field), offsetof(type, member) }
#define POINT(field, member) COLUMN(struct history_point, field, member)

static const struct history_column {
    size_t field, offset;
} point_columns[] = {
    POINT(waiting, waiting),    POINT(running, running),      POINT(delayed, delayed),
    POINT(dead, dead),          POINT(pushed, pushed),        POINT(done, done),
    POINT(failed, failed),      POINT(wait_p50_ms, wait_p50), POINT(wait_p99_ms, wait_p99),
    POINT(run_p50_ms, run_p50), POINT(run_p99_ms, run_p99),   POINT(level, level),
};

#define SUM(name) COLUMN(struct history_sum_point, name, name)

static const struct history_column sum_columns[] = {
    SUM(waiting), SUM(running), SUM(delayed), SUM(dead), SUM(pushed), SUM(done), SUM(failed),
};

static void column_open(struct doc *d, const struct history_column *c) {
    doc_open(d, reply_field_at(&stage_replies, c->field)->name, '[');
}

void history_write_columns(struct doc *d, const struct history_point *(*at)(const void *, uint32_t),
                           const void *arg, uint32_t count) {
    for (size_t c = 0; c < sizeof point_columns / sizeof *point_columns; c++) {
        column_open(d, &point_columns[c]);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t value;
            memcpy(&value, (const char *)at(arg, i) + point_columns[c].offset, sizeof value);
            if (value == HISTORY_NONE)
                doc_raw(d, NULL, "null");
            else
                doc_number(d, NULL, value);
        }
        doc_close(d, ']');
    }
}

static const struct history_point *history_at(const void *arg, uint32_t i) {
    const struct history *h = arg;
    return &h->points[(h->newest + 1 - h->count + i) % HISTORY_POINTS];
}

void history_write(const struct history *h, enum history_span span, struct doc *d) {
    history_begin(d, span, h ? h->newest : 0, h ? h->count : 0);
    history_write_columns(d, history_at, h, h ? h->count : 0);
    doc_close(d, '}');
}

void history_sum_write(const struct history_sum *p, enum history_span span, struct doc *d) {
    history_begin(d, span, p->newest, p->count);
    for (size_t c = 0; c < sizeof sum_columns / sizeof *sum_columns; c++) {
        column_open(d, &sum_columns[c]);
        for (uint32_t i = HISTORY_POINTS - p->count; i < HISTORY_POINTS; i++) {
            uint64_t value;
            memcpy(&value, (const char *)&p->points[i] + sum_columns[c].offset, sizeof value);
            doc_number(d, NULL, (int64_t)value);
        }
        doc_close(d, ']');
    }
    doc_close(d, '}');
}
