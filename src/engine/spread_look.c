// Looking and acting over several shards. A job is looked for where its id says, and in the other
// shards only if it is not there: a store that was copied into another number of shards keeps its
// ids. Counts are added up; policies go to shard 0 first, whose word counts should the engine die
// in between.
#include "base/clock.h"
#include "base/errors.h"
#include "engine/spread.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- One job ----------------------------------------------------------------------------------

static int ask_by_id(struct engine *base, mr_id id, int (*act)(struct engine *, mr_id)) {
    struct spread *s = (struct spread *)base;
    uint32_t first = route_of_id(s->count, id);
    int err = act(&s->locals[first]->base, id);
    for (uint32_t i = 1; err == MR_EGONE && i < s->count; i++)
        err = act(&s->locals[(first + i) % s->count]->base, id);
    return err;
}

int spread_cancel(struct engine *base, mr_id id) {
    return ask_by_id(base, id, local_cancel);
}

int spread_retry(struct engine *base, mr_id id) {
    return ask_by_id(base, id, local_retry);
}

int spread_drop(struct engine *base, mr_id id) {
    return ask_by_id(base, id, local_drop);
}

int spread_await(struct engine *base, mr_id id, int64_t wait_ms, struct buffer *out_result) {
    struct spread *s = (struct spread *)base;
    uint32_t first = route_of_id(s->count, id);
    int err = local_await(&s->locals[first]->base, id, wait_ms, out_result);
    for (uint32_t i = 1; err == MR_EGONE && i < s->count; i++)
        err = local_await(&s->locals[(first + i) % s->count]->base, id, wait_ms, out_result);
    return err;
}

// ---- Stages -----------------------------------------------------------------------------------

int spread_look_stage(struct spread *s, mr_bytes stage, struct stage_info *out) {
    struct stage_info sum, one;
    bool known = false;
    for (uint32_t i = 0; i < s->count; i++) {
        int err = local_look(s->locals[i], stage, &one);
        if (err == MR_EGONE)
            continue;
        if (err < 0)
            return err;
        if (known)
            stage_info_add(&sum, &one);
        else
            sum = one;
        known = true;
    }
    if (!known)
        return MR_EGONE;
    sum.waiting += sum.linked; // where they wait is nobody's business
    *out = sum;
    return 0;
}

int spread_stage(struct engine *base, mr_bytes stage, mr_stage_info *out) {
    struct stage_info info;
    int err = spread_look_stage((struct spread *)base, stage, &info);
    if (err >= 0)
        local_show_stage(&info, out);
    return err;
}

static bool all_are_empty(struct spread *s, mr_bytes stage) {
    bool empty = true;
    for (uint32_t i = 0; i < s->count; i++)
        pthread_mutex_lock(&s->locals[i]->lock);
    for (uint32_t i = 0; empty && i < s->count; i++)
        empty = local_is_empty(s->locals[i], stage);
    for (uint32_t i = 0; i < s->count; i++)
        pthread_mutex_unlock(&s->locals[i]->lock);
    return empty;
}

static int64_t left_ms(uint64_t until_ms) {
    uint64_t now_ms = monotonic_ms();
    return now_ms < until_ms ? (int64_t)(until_ms - now_ms) : 0;
}

// Waits at one shard after the other; when the last one is empty, a look at all of them at once
// tells whether work has gone from one to another meanwhile.
int spread_wait_empty(struct engine *base, mr_bytes stage, int64_t wait_ms) {
    struct spread *s = (struct spread *)base;
    uint64_t until_ms = wait_ms > 0 ? local_until(wait_ms) : 0;
    int err;
    do {
        err = 0;
        for (uint32_t i = 0; err >= 0 && i < s->count; i++)
            err = local_wait_empty(&s->locals[i]->base, stage,
                                   wait_ms > 0 ? left_ms(until_ms) : wait_ms);
    } while (err >= 0 && !all_are_empty(s, stage));
    if (err == MR_EAGAIN)
        error_set(err, "stage '%.*s' was not empty within %" PRId64 " ms", (int)stage.size,
                  (const char *)stage.data, wait_ms);
    return err;
}

static int act_on_all(struct spread *s, mr_bytes stage,
                      int (*act)(struct engine *, mr_bytes stage)) {
    int err = 0;
    pthread_mutex_lock(&s->acting);
    for (uint32_t i = 0; err >= 0 && i < s->count; i++)
        err = act(&s->locals[i]->base, stage);
    pthread_mutex_unlock(&s->acting);
    return err;
}

int spread_set(struct engine *base, mr_bytes stage, mr_bytes policy, mr_bytes value) {
    struct spread *s = (struct spread *)base;
    int err = 0;
    pthread_mutex_lock(&s->acting);
    for (uint32_t i = 0; err >= 0 && i < s->count; i++)
        err = local_set(&s->locals[i]->base, stage, policy, value);
    pthread_mutex_unlock(&s->acting);
    return err;
}

int spread_pause(struct engine *base, mr_bytes stage) {
    return act_on_all((struct spread *)base, stage, local_pause);
}

int spread_resume(struct engine *base, mr_bytes stage) {
    return act_on_all((struct spread *)base, stage, local_resume);
}

// ---- Dead jobs --------------------------------------------------------------------------------

// Longest dead first.
static int dead_before(const void *a, const void *b) {
    const struct dead_one *x = a, *y = b;
    if (x->died_ms != y->died_ms)
        return x->died_ms < y->died_ms ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int dead_list(struct spread *s, mr_bytes stage, struct buffer *out) {
    bool known = false;
    for (uint32_t i = 0; i < s->count; i++) {
        int err = local_dead_list(s->locals[i], stage, out);
        if (err < 0 && err != MR_EGONE)
            return err;
        known = known || err >= 0;
    }
    if (out->size)
        qsort(out->data, out->size / sizeof(struct dead_one), sizeof(struct dead_one), dead_before);
    return known ? 0 : MR_EGONE;
}

int spread_dead(struct engine *base, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct spread *s = (struct spread *)base;
    struct buffer dead = { 0 };
    int err = dead_list(s, stage, &dead);
    for (size_t at = 0; err == 0 && at < dead.size; at += sizeof(struct dead_one)) {
        struct dead_one one;
        memcpy(&one, dead.data + at, sizeof one);
        err = local_dead_show(s->locals[one.shard], one.id, each, arg);
        err = err == MR_EGONE ? 0 : err;
    }
    buffer_finish(&dead);
    return err < 0 ? err : 0;
}
