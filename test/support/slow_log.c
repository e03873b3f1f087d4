// See slow_log.h.
#include "slow_log.h"

#include "base/errors.h"

#include <stdlib.h>

struct slow_log {
    struct log base;
    struct log *log;
    struct slow_plan *plan;
    uint64_t durable; // when it was held
};

static struct log *inner(struct log *base) {
    return ((struct slow_log *)base)->log;
}

static struct slow_plan *plan_of(struct log *base) {
    return ((struct slow_log *)base)->plan;
}

static int slow_replay(struct log *l, log_each *each, void *arg) {
    return log_replay(inner(l), each, arg);
}

static int slow_append(struct log *l, const struct entry *e, size_t count, enum room room,
                       uint64_t *out_at) {
    if (plan_of(l)->behind && room == ROOM_PUSH)
        return error_set(MR_EFULL, "the log is behind");
    return log_append(inner(l), e, count, room, out_at);
}

static void slow_flush(struct log *l, bool now) {
    log_flush(inner(l), now);
}

static void slow_flush_by(struct log *l, enum flush_by by) {
    plan_of(l)->writes += by == FLUSH_BY_CALLER;
    log_flush_by(inner(l), by);
}

static int slow_wait(struct log *l, uint64_t at) {
    plan_of(l)->unwanted += plan_of(l)->held;
    return log_wait(inner(l), at);
}

static int slow_read(struct log *l, uint64_t at, struct buffer *out_head, struct buffer *out_body) {
    struct slow_plan *plan = plan_of(l);
    plan->unwanted += plan->cold && !plan->another;
    if (plan->gone) {
        plan->gone = false;
        return error_set(MR_EGONE, "trimmed");
    }
    return log_read(inner(l), at, out_head, out_body);
}

static int slow_read_now(struct log *l, uint64_t at, struct buffer *out_head,
                         struct buffer *out_body) {
    return plan_of(l)->cold ? MR_EAGAIN : log_read_now(inner(l), at, out_head, out_body);
}

static int slow_scan(struct log *l, uint64_t from, size_t max_bytes, log_each *each, void *arg,
                     uint64_t *out_next) {
    if (!plan_of(l)->scan_cold)
        return log_scan(inner(l), from, max_bytes, each, arg, out_next);
    plan_of(l)->scans++;
    return MR_EAGAIN;
}

static uint64_t slow_segment_end(struct log *l, uint64_t at) {
    return log_segment_end(inner(l), at);
}

static int slow_trim(struct log *l, uint64_t upto) {
    return log_trim(inner(l), upto);
}

static void slow_look(struct log *l, struct log_state *out) {
    struct slow_log *s = (struct slow_log *)l;
    log_look(s->log, out);
    if (s->plan->held)
        out->durable = out->synced = s->durable;
    s->durable = out->durable;
    out->behind = s->plan->behind;
}

static void slow_close(struct log *l) {
    log_close(inner(l));
    free(l);
}

static const struct log_impl slow_log_impl = {
    .replay = slow_replay,
    .append = slow_append,
    .flush = slow_flush,
    .flush_by = slow_flush_by,
    .wait = slow_wait,
    .read = slow_read,
    .read_now = slow_read_now,
    .scan = slow_scan,
    .segment_end = slow_segment_end,
    .trim = slow_trim,
    .look = slow_look,
    .close = slow_close,
};

struct log *slow_log_wrap(void *plan, struct log *log) {
    struct slow_log *s = calloc(1, sizeof *s);
    if (!s)
        abort();
    s->base.impl = &slow_log_impl;
    s->log = log;
    s->plan = plan;
    return &s->base;
}
