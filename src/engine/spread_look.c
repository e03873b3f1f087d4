// Looking and acting over several shards: what is about a stage goes to its shard. A job is looked
// for where its id says, and in the other shards only if it is not there: a store that was copied
// into another number of shards keeps its ids.
#include "base/clock.h"
#include "base/errors.h"
#include "engine/spread.h"

#include <inttypes.h>

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

// Emits that are on their way to it wait as those do that have come.
static uint64_t linked_to(struct spread *s, mr_bytes stage) {
    uint64_t linked = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        pthread_mutex_lock(&s->locals[i]->lock);
        linked += core_linked(s->locals[i]->core, stage);
        pthread_mutex_unlock(&s->locals[i]->lock);
    }
    return linked;
}

int spread_stage(struct engine *base, mr_bytes stage, mr_stage_info *out) {
    struct spread *s = (struct spread *)base;
    int err = local_stage(&spread_local(s, stage)->base, stage, out);
    if (err >= 0)
        out->waiting += linked_to(s, stage);
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

int spread_set(struct engine *base, mr_bytes stage, mr_bytes policy, mr_bytes value) {
    return local_set(&spread_local((struct spread *)base, stage)->base, stage, policy, value);
}

int spread_pause(struct engine *base, mr_bytes stage) {
    return local_pause(&spread_local((struct spread *)base, stage)->base, stage);
}

int spread_resume(struct engine *base, mr_bytes stage) {
    return local_resume(&spread_local((struct spread *)base, stage)->base, stage);
}

int spread_dead(struct engine *base, mr_bytes stage,
                int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    return local_dead(&spread_local((struct spread *)base, stage)->base, stage, each, arg);
}

// ---- Epics ------------------------------------------------------------------------------------

int spread_epic(struct engine *base, mr_bytes stage, mr_bytes name, mr_epic_info *out) {
    return local_epic(&spread_local((struct spread *)base, stage)->base, stage, name, out);
}

int spread_epic_wait(struct engine *base, mr_bytes stage, mr_bytes name, int64_t left,
                     uint64_t expected, int64_t wait_ms, mr_epic_info *out) {
    return local_epic_wait(&spread_local((struct spread *)base, stage)->base, stage, name, left,
                           expected, wait_ms, out);
}

int spread_epic_end(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t total) {
    return local_epic_end(&spread_local((struct spread *)base, stage)->base, stage, name, total);
}

int spread_epic_skip(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t number) {
    return local_epic_skip(&spread_local((struct spread *)base, stage)->base, stage, name, number);
}

int spread_epic_drop(struct engine *base, mr_bytes stage, mr_bytes name) {
    return local_epic_drop(&spread_local((struct spread *)base, stage)->base, stage, name);
}
