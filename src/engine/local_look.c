// Looking and acting: what is known of stages and jobs, and the few things a person decides.
//
// Looks work also when the log has stopped. What lies in the log is read without the lock; if the
// cleaner has moved it meanwhile, the core is asked again where it is.
#include "base/errors.h"
#include "core/record.h"
#include "engine/local.h"

#include <inttypes.h>
#include <stdio.h>

enum { READ_TRIES = 10 }; // each follows one move by the cleaner

// ---- Reading ----------------------------------------------------------------------------------

static int home_find(struct local_shard *s, mr_id id, enum home home, uint64_t *out_at) {
    struct job_info info;
    pthread_mutex_lock(&s->lock);
    int err = core_look_job(s->core, id, &info);
    pthread_mutex_unlock(&s->lock);
    if (err < 0)
        return err;
    switch (home) {
    case HOME_BODY:
        *out_at = info.at;
        break;
    case HOME_REASONS:
        *out_at = info.reasons_at;
        break;
    case HOME_STATE:
        *out_at = info.state_at;
        break;
    }
    return 0;
}

int local_read(struct local_shard *s, mr_id id, enum home home, uint64_t at, struct buffer *out) {
    int err = MR_EGONE;
    for (int tries = 0; err == MR_EGONE && tries < READ_TRIES; tries++) {
        buffer_clear(out);
        err = shard_read(s->shard, at, out);
        if (err == MR_EGONE && home_find(s, id, home, &at) < 0)
            return err;
    }
    if (err >= 0)
        err = buffer_reserve(out, 1);
    if (err < 0)
        return err;
    out->data[out->size] = 0;
    return 0;
}

mr_bytes reason_last(mr_bytes reasons) {
    struct reason reason = { .text = mr_str("no reason was kept") };
    for (size_t at = 0; reasons_next(reasons, &at, &reason);)
        continue;
    return reason.text;
}

// ---- Waiting for an empty stage ---------------------------------------------------------------

struct empty_waiter {
    struct waiter waiter;
    struct list of_empties;
    mr_bytes stage;
};

static bool is_empty(struct local_shard *s, mr_bytes stage) {
    struct stage_info info;
    if (core_look_stage(s->core, stage, &info) < 0)
        return true;
    return info.waiting == 0 && info.delayed == 0 && info.running == 0 && info.linked == 0;
}

void local_check_empties(struct local_shard *s) {
    for (struct list *l = s->empties.next, *next; l != &s->empties; l = next) {
        next = l->next;
        struct empty_waiter *w = list_entry(l, struct empty_waiter, of_empties);
        if (!is_empty(s, w->stage))
            continue;
        list_remove(l);
        local_notify(s, &w->waiter);
    }
}

static int wait_empty_at(struct local_shard *s, mr_bytes stage, uint64_t until_ms) {
    struct empty_waiter w = { .stage = stage };
    int err = local_begin(s);
    if (err < 0)
        return err;
    if (is_empty(s, stage))
        return local_end_durable(s, 0);
    list_append(&s->empties, &w.of_empties);
    local_end_keep(s);
    if (local_wait(s, &w.waiter, until_ms))
        return local_wait_durable(s, w.waiter.at, 0);
    list_remove(&w.of_empties);
    local_end(s);
    return w.waiter.err;
}

static bool all_are_empty(struct local *e, mr_bytes stage) {
    bool empty = true;
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_lock(&e->shards[i]->lock);
    for (uint32_t i = 0; empty && i < e->count; i++)
        empty = is_empty(e->shards[i], stage);
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_unlock(&e->shards[i]->lock);
    return empty;
}

// Other shards may have emits on their way to it. Waits at one shard after another; when the last
// one is empty, a look at all of them at once tells whether work has gone from one to another.
int local_wait_empty(struct engine *base, mr_bytes stage, int64_t wait_ms) {
    struct local *e = (struct local *)base;
    uint64_t until_ms = wait_ms ? local_until(wait_ms) : 0;
    int err;
    do {
        err = 0;
        for (uint32_t i = 0; err >= 0 && i < e->count; i++)
            err = wait_empty_at(e->shards[i], stage, until_ms);
    } while (err >= 0 && e->count > 1 && !all_are_empty(e, stage));
    if (err != MR_EAGAIN)
        return err;
    return error_set(MR_EAGAIN, "stage '%.*s' was not empty within %" PRId64 " ms", (int)stage.size,
                     (const char *)stage.data, wait_ms);
}

// ---- Looking ----------------------------------------------------------------------------------

static int look_stage(struct local_shard *s, mr_bytes stage, struct stage_info *out) {
    struct stage_info info;
    local_enter(s);
    int err = core_look_stage(s->core, stage, &info);
    uint64_t at = local_end(s);
    if (err < 0)
        return err;
    shard_wait(s->shard, at); // looks go on when the log has stopped
    *out = info;
    return 0;
}

static void show_stage(const struct stage_info *info, mr_stage_info *out) {
    static _Thread_local char held_by[sizeof info->held_by];
    memcpy(held_by, info->held_by, sizeof held_by);
    *out = (mr_stage_info){ .waiting = info->waiting,
                            .running = info->running,
                            .parked = info->parked,
                            .delayed = info->delayed,
                            .dead = info->dead,
                            .done = info->done,
                            .failed = info->failed,
                            .oldest_ms = info->oldest_ms,
                            .held_by = held_by,
                            .vain_ms = info->wasted_wait_ms };
}

// Emits that are on their way to it wait as those do that have come.
static uint64_t linked_to(struct local *e, mr_bytes stage) {
    uint64_t linked = 0;
    for (uint32_t i = 0; e->count > 1 && i < e->count; i++) {
        pthread_mutex_lock(&e->shards[i]->lock);
        linked += core_linked(e->shards[i]->core, stage);
        pthread_mutex_unlock(&e->shards[i]->lock);
    }
    return linked;
}

int local_stage(struct engine *base, mr_bytes stage, mr_stage_info *out) {
    struct stage_info info;
    int err = look_stage(shard_of_stage(base, stage), stage, &info);
    if (err < 0)
        return err;
    info.waiting += linked_to((struct local *)base, stage);
    show_stage(&info, out);
    return 0;
}

struct dead_list {
    struct buffer ids;
    int err;
};

static int dead_note(void *arg, const struct job_info *info) {
    struct dead_list *dead = arg;
    dead->err = buffer_append(&dead->ids, &info->id, sizeof info->id);
    return dead->err < 0;
}

static int dead_gather(struct local_shard *s, mr_bytes stage, struct dead_list *out) {
    local_enter(s);
    int err = core_each_dead(s->core, stage, dead_note, out);
    shard_wait(s->shard, local_end(s));
    return err < 0 ? err : out->err;
}

struct dead_job {
    struct buffer key, reasons;
    uint64_t reasons_at;
};

// MR_EGONE: it is not dead any more.
static int dead_look(struct local_shard *s, mr_id id, struct dead_job *out) {
    struct job_info info;
    pthread_mutex_lock(&s->lock);
    int err = core_look_job(s->core, id, &info);
    if (err >= 0 && info.status != JOB_DEAD)
        err = MR_EGONE;
    if (err >= 0) {
        buffer_clear(&out->key);
        err = buffer_append(&out->key, info.key.data, info.key.size);
        out->reasons_at = info.reasons_at;
    }
    pthread_mutex_unlock(&s->lock);
    buffer_clear(&out->reasons);
    if (err >= 0 && out->reasons_at)
        err = local_read(s, id, HOME_REASONS, out->reasons_at, &out->reasons);
    return err;
}

// 1: that was enough; MR_EGONE: it is not dead any more.
static int dead_show(struct local_shard *s, mr_id id,
                     int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct dead_job job = { 0 };
    int err = dead_look(s, id, &job);
    if (err >= 0) {
        mr_bytes last = reason_last(buffer_bytes(&job.reasons));
        char reason[REASON_MOST + 1];
        snprintf(reason, sizeof reason, "%.*s", (int)last.size, (const char *)last.data);
        err = each(id, buffer_bytes(&job.key), reason, arg) != 0;
    }
    buffer_finish(&job.key);
    buffer_finish(&job.reasons);
    return err;
}

int local_dead(struct engine *base, mr_bytes stage,
               int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct dead_list dead = { 0 };
    int err = dead_gather(s, stage, &dead);
    for (size_t at = 0; err == 0 && at < dead.ids.size; at += sizeof(mr_id)) {
        mr_id id;
        memcpy(&id, dead.ids.data + at, sizeof id);
        err = dead_show(s, id, each, arg);
        err = err == MR_EGONE ? 0 : err;
    }
    buffer_finish(&dead.ids);
    return err < 0 ? err : 0;
}

// ---- Acting -----------------------------------------------------------------------------------

int local_set(struct engine *base, mr_bytes stage, mr_bytes policy, mr_bytes value) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_set(s->core, stage, policy, value));
}

int local_pause(struct engine *base, mr_bytes stage) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_pause(s->core, stage));
}

int local_resume(struct engine *base, mr_bytes stage) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_resume(s->core, stage));
}

int local_by_id(struct engine *base, mr_id id, int (*act)(struct local_shard *, mr_id, void *arg),
                void *arg) {
    struct local *e = (struct local *)base;
    uint32_t first = route_of_id(e->count, id);
    int err = act(e->shards[first], id, arg);
    for (uint32_t i = 1; err == MR_EGONE && i < e->count; i++)
        err = act(e->shards[(first + i) % e->count], id, arg);
    return err;
}

static int retry_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_retry(s->core, id));
}

int local_retry(struct engine *base, mr_id id) {
    return local_by_id(base, id, retry_at, NULL);
}

static int drop_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_drop(s->core, id));
}

int local_drop(struct engine *base, mr_id id) {
    return local_by_id(base, id, drop_at, NULL);
}
