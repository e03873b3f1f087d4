// How the end travels. A source is over when its epic is. A head gets nothing more when all before
// it are over and empty; then it is waited for until it is empty, too, and an aggregate is sent a
// flush for each partition, which emits what was begun and forgets it. A flush of nothing changes
// nothing, so after a crash it is simply done again.
//
//     source over ─► FLOW/source empty ─► FLOW/count empty ─► flush ─► empty ─► FLOW/out empty
//
// Heads that reach each other through a loop are one group: it is empty when all of it was empty
// and nothing has run meanwhile, and it is flushed until nothing comes of it.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "flow/block.h"
#include "flow/state.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t flow_until_ms(int64_t wait_ms) {
    return wait_ms < 0 ? UINT64_MAX : monotonic_ms() + (uint64_t)wait_ms;
}

void flow_sleep(struct mr_flow *f, uint64_t until_ms) {
    cond_wait_until(&f->changed, &f->lock, until_ms);
}

// How long to wait before the next check: 0 when the time is over.
static int64_t slice_ms(uint64_t until_ms) {
    uint64_t now = monotonic_ms(), left = until_ms > now ? until_ms - now : 0;
    return left < FLOW_SLICE_MS ? (int64_t)left : FLOW_SLICE_MS;
}

static int check_stopped(const struct mr_flow *f) {
    if (!atomic_load(&f->stopping))
        return 0;
    return error_set(MR_ECANCELLED, "flow %s was stopped before it was over", f->name);
}

static int not_yet(const struct op *op) {
    return error_set(MR_EAGAIN, "operator %s of flow %s is not through yet", op->name,
                     op->flow->name);
}

// ---- Dead letters -----------------------------------------------------------------------------

struct first_dead {
    mr_id id;
    char reason[400];
};

static int first_dead(mr_id id, mr_bytes key, const char *reason, void *arg) {
    struct first_dead *first = arg;
    (void)key;
    first->id = id;
    snprintf(first->reason, sizeof first->reason, "%s", reason);
    return 1;
}

static int error_dead(const struct op *op, uint64_t count) {
    struct first_dead first = { 0 };
    int err = mr_dead(op->flow->engine, op->stage, first_dead, &first);
    if (err < 0)
        return err;
    return error_set(MR_EDEAD, "%" PRIu64 " dead in operator %s, the first is job %" PRIu64 ": %s",
                     count, op->name, first.id, first.reason);
}

static int look_at_head(const struct op *op, mr_stage_info *out) {
    int err = mr_stage_look(op->flow->engine, op->stage, out);
    if (err == MR_EGONE)
        *out = (mr_stage_info){ 0 };
    return err == MR_EGONE ? 0 : err;
}

static int check_dead(const struct op *op) {
    mr_stage_info info;
    int err = look_at_head(op, &info);
    return err < 0 || info.dead == 0 ? err : error_dead(op, info.dead);
}

static int check_halted(const struct op *op) {
    return strcmp(op->on_dead, "halt") == 0 ? check_dead(op) : 0;
}

// ---- Empty ------------------------------------------------------------------------------------

// A later run has begun: whatever is in the stages does not belong to this one.
static bool is_past(const struct mr_flow *f) {
    return atomic_load(&f->latest) > f->run;
}

static int head_empty(const struct op *op, uint64_t until_ms) {
    while (!is_past(op->flow)) {
        int64_t slice = slice_ms(until_ms);
        int err = mr_stage_wait_empty(op->flow->engine, op->stage, slice);
        if (err < 0 && err != MR_EAGAIN)
            return err;
        int other = check_stopped(op->flow);
        if (other >= 0)
            other = check_halted(op);
        if (other < 0 || err == 0)
            return other;
        if (slice == 0)
            return not_yet(op);
    }
    return 0;
}

struct head_group {
    struct op **heads;
    uint32_t count;
};

static bool is_loop(const struct head_group *g) {
    for (uint32_t i = 0; i < g->count; i++)
        if (g->heads[i]->loops)
            return true;
    return g->count > 1;
}

static int activity(const struct head_group *g, uint64_t *out) {
    uint64_t sum = 0;
    int err = 0;
    for (uint32_t i = 0; i < g->count && err >= 0; i++) {
        mr_stage_info info;
        err = look_at_head(g->heads[i], &info);
        sum += err < 0 ? 0 : info.done + info.failed;
    }
    *out = sum;
    return err;
}

static int group_empty(const struct head_group *g, uint64_t until_ms) {
    uint64_t before = 0, after = 0;
    int err = 0;
    do {
        err = activity(g, &before);
        for (uint32_t i = 0; i < g->count && err >= 0; i++)
            err = head_empty(g->heads[i], until_ms);
        if (err >= 0)
            err = activity(g, &after);
    } while (err >= 0 && is_loop(g) && before != after && !is_past(g->heads[0]->flow));
    return err;
}

// ---- Orders: a job for each partition ---------------------------------------------------------

int head_order(struct op *op, uint8_t what) {
    uint32_t partitions = op->options.partitions;
    uint8_t order[BLOCK_HEAD];
    mr_bytes body = { order, block_head(order, what, op->flow->run) };
    if (!op->orders)
        op->orders = mem_alloc(FLOW_PARTITIONS * sizeof *op->orders);
    if (!op->orders)
        return error_set(MR_ENOMEM, "no memory to end operator %s", op->name);
    mr_item items[FLOW_PARTITIONS];
    char keys[FLOW_PARTITIONS][12];
    for (uint32_t i = 0; i < partitions; i++) {
        snprintf(keys[i], sizeof keys[i], "%u", i);
        items[i] = (mr_item){ .key = mr_str(keys[i]), .body = body };
    }
    size_t pushed = 0;
    int err =
        mr_push_many(op->flow->engine, op->stage, items, partitions, NULL, op->orders, &pushed);
    if (err < 0)
        return err;
    op->order_count = (uint32_t)pushed;
    op->orders_done = 0;
    return pushed == partitions ? 0 : error_set(MR_EFULL, "no room to end operator %s", op->name);
}

static int await_order(struct op *op, uint64_t until_ms, bool *out_any) {
    for (;;) {
        mr_result result = { 0 };
        int64_t slice = slice_ms(until_ms);
        int err = mr_await(op->flow->engine, op->orders[op->orders_done], slice, &result);
        bool flushed = err == 0 && result.body.size;
        mr_result_free(&result);
        if (err != MR_EAGAIN) { // a dead one is reported with the others
            *out_any = *out_any || flushed;
            op->orders_done++;
            return err == MR_EDEAD || err == MR_EGONE ? 0 : err;
        }
        err = check_stopped(op->flow);
        if (err < 0)
            return err;
        if (slice == 0)
            return not_yet(op);
    }
}

int head_ordered(struct op *op, uint64_t until_ms, bool *out_any) {
    int err = 0;
    while (err >= 0 && op->orders_done < op->order_count)
        err = await_order(op, until_ms, out_any);
    return err;
}

// ---- Flushing ---------------------------------------------------------------------------------

// Flushes once for what has run since the last flush.
static int head_flush(struct op *op, uint64_t until_ms, bool *out_any) {
    mr_stage_info info;
    int err = look_at_head(op, &info);
    bool waits = op->orders_done < op->order_count;
    if (err < 0 || (!waits && op->flushed_at == info.done + 1))
        return err;
    if (!waits)
        err = head_order(op, BLOCK_FLUSH);
    if (!waits && err >= 0) // through a loop more may come while it is flushed
        op->flushed_at = info.done + op->order_count + 1;
    return err < 0 ? err : head_ordered(op, until_ms, out_any);
}

static int group_end(const struct head_group *g, uint64_t until_ms) {
    bool any;
    int err;
    do {
        any = false;
        err = group_empty(g, until_ms);
        for (uint32_t i = 0; i < g->count && err >= 0; i++)
            if (g->heads[i]->kind == OPERATOR_AGGREGATE)
                err = head_flush(g->heads[i], until_ms, &any);
    } while (err >= 0 && any && is_loop(g));
    return err;
}

// ---- All of it --------------------------------------------------------------------------------

static int wait_read(struct op *op, uint64_t until_ms) {
    struct mr_flow *f = op->flow;
    int err = 0;
    pthread_mutex_lock(&f->lock);
    while (!op->reader.finished && !atomic_load(&f->stopping) && monotonic_ms() < until_ms)
        flow_sleep(f, until_ms);
    bool finished = op->kind == OPERATOR_SOURCE && op->reader.finished;
    if (finished && op->reader.err < 0)
        err = error_set(op->reader.err, "%s", op->reader.error);
    pthread_mutex_unlock(&f->lock);
    if (finished)
        return err;
    err = check_stopped(f);
    return err < 0 ? err : not_yet(op);
}

// A source that still reads does not hide the failure of another.
static int wait_all_read(struct mr_flow *f, uint64_t until_ms) {
    int all = 0;
    for (uint32_t i = 0; i < f->head_count && (all >= 0 || all == MR_EAGAIN); i++) {
        if (!is_source(f->heads[i]))
            continue;
        int err = wait_read(f->heads[i], until_ms);
        all = err < 0 ? err : all;
    }
    return all;
}

// A head that halts holds up those before it, and so the readers.
static int all_read(struct mr_flow *f, uint64_t until_ms) {
    for (;;) {
        int64_t slice = slice_ms(until_ms);
        int err = wait_all_read(f, flow_until_ms(slice)), halted = 0;
        for (uint32_t i = 0; i < f->head_count && halted >= 0; i++)
            halted = check_halted(f->heads[i]);
        if (halted < 0 || err != MR_EAGAIN || slice == 0)
            return halted < 0 ? halted : err;
    }
}

int flow_end(struct mr_flow *f, uint64_t until_ms) {
    f->over = false;
    int err = all_read(f, until_ms);
    for (uint32_t i = 0; i < f->head_count && err >= 0;) {
        struct head_group g = { &f->heads[i], 0 };
        while (i < f->head_count && f->heads[i]->group == g.heads[0]->group)
            i++, g.count++;
        err = group_end(&g, until_ms);
    }
    if (err < 0)
        return err;
    f->over = true;
    for (uint32_t i = 0; i < f->head_count && err >= 0; i++)
        err = check_dead(f->heads[i]);
    return err;
}
