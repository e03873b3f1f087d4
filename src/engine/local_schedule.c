// Schedules of an engine in this process. They tick by the shard's turns (shard/ticks.h); its
// thread makes one when a tick is due (local_due_ms).
#include "base/errors.h"
#include "core/record.h"
#include "engine/local.h"

#include <stdio.h>
#include <string.h>

// Copied under the lock at once; then `each` is called without it.
enum { SCHEDULES_AT_ONCE = 64, PLACES_AT_ONCE = 10000 };

// ---- Copies -----------------------------------------------------------------------------------

void schedule_answer_text(mr_bytes text, char *to, size_t size) {
    size_t kept = text.size < size ? text.size : size - 1;
    if (kept)
        memcpy(to, text.data, kept);
    to[kept] = 0;
}

mr_schedule_info schedule_answer_info(const struct schedule_answer *copy) {
    mr_schedule_info info = copy->info;
    info.stage = copy->stage;
    info.name = copy->name;
    info.cron = copy->cron;
    info.tz = copy->tz;
    info.missed = copy->missed;
    info.key = (mr_bytes){ copy->key_size ? copy->key : NULL, copy->key_size };
    return info;
}

// In a turn.
static void schedule_answer_fill(struct local_shard *s, const struct schedule_info *from,
                                 struct schedule_answer *to) {
    uint64_t at_ms[UPCOMING_MOST];
    to->info = (mr_schedule_info){ SCHEDULE_INFO_MEMBERS(MEMBER_FROM) };
    to->info.upcoming_count = ticks_upcoming(shard_ticks(s->shard), from, at_ms);
    for (uint32_t i = 0; i < to->info.upcoming_count; i++)
        to->info.upcoming[i] = (int64_t)at_ms[i];
    schedule_answer_text(from->stage, to->stage, sizeof to->stage);
    schedule_answer_text(from->name, to->name, sizeof to->name);
    schedule_answer_text(from->cron, to->cron, sizeof to->cron);
    schedule_answer_text(from->zone, to->tz, sizeof to->tz);
    schedule_answer_text(mr_str(missed_name(from->missed)), to->missed, sizeof to->missed);
    schedule_answer_text(from->key, to->key, sizeof to->key);
    to->key_size = (uint32_t)from->key.size;
}

// ---- Looking ----------------------------------------------------------------------------------

int local_schedule(struct engine *base, mr_bytes stage, mr_bytes name, mr_schedule_info *out) {
    static _Thread_local struct schedule_answer latest;
    struct local_shard *s = shard_of_stage(base, stage);
    struct schedule_info found;
    local_enter(s);
    int err = core_schedule(s->core, stage, name, &found);
    if (err >= 0)
        schedule_answer_fill(s, &found, &latest);
    uint64_t at = local_end(s);
    if (err < 0)
        return err;
    shard_wait(s->shard, at); // looks go on when the log has stopped
    *out = schedule_answer_info(&latest);
    return 0;
}

// Copies the next schedules from place `at` on; returns the place behind them.
static uint32_t schedules_gather(struct local_shard *s, mr_bytes only, uint32_t at,
                                 struct buffer *out, int *out_err) {
    mr_bytes stage, name;
    uint32_t most = SCHEDULES_AT_ONCE, places = PLACES_AT_ONCE;
    int err = 0;
    local_enter(s);
    for (; err >= 0 && most && places-- && at < core_schedule_places(s->core); at++) {
        struct schedule_info found;
        struct schedule_answer copy = { 0 };
        if (!core_schedule_at(s->core, at, &stage, &name) ||
            (only.size && !bytes_equal(stage, only)))
            continue;
        core_schedule_look_at(s->core, at, &found);
        schedule_answer_fill(s, &found, &copy);
        err = buffer_append(out, &copy, sizeof copy);
        most--;
    }
    shard_wait(s->shard, local_end(s));
    *out_err = err;
    return at;
}

// 1: `each` wants no more.
static int schedules_of_shard(struct local_shard *s, mr_bytes only,
                              int (*each)(const mr_schedule_info *, void *arg), void *arg) {
    struct buffer copies = { 0 };
    int err = 0;
    for (uint32_t place = 0, next; err == 0; place = next) {
        buffer_clear(&copies);
        next = schedules_gather(s, only, place, &copies, &err);
        if (next == place)
            break;
        for (size_t at = 0; err == 0 && at < copies.size; at += sizeof(struct schedule_answer)) {
            struct schedule_answer copy;
            memcpy(&copy, copies.data + at, sizeof copy);
            mr_schedule_info info = schedule_answer_info(&copy);
            err = each(&info, arg) != 0;
        }
    }
    buffer_finish(&copies);
    return err;
}

int local_schedules(struct engine *base, mr_bytes stage,
                    int (*each)(const mr_schedule_info *, void *arg), void *arg) {
    struct local_engine *e = (struct local_engine *)base;
    int err = 0;
    if (stage.size)
        err = schedules_of_shard(shard_of_stage(base, stage), stage, each, arg);
    for (uint32_t i = 0; !stage.size && err == 0 && i < e->count; i++)
        err = schedules_of_shard(e->shards[i], stage, each, arg);
    return err < 0 ? err : 0;
}

// ---- Acting -----------------------------------------------------------------------------------

#define SPEC_FROM_OPTION(member, ...) .member = o->member,

int local_schedule_set(struct engine *base, mr_bytes stage, mr_bytes name, mr_bytes body,
                       const mr_schedule_options *o) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct schedule_spec spec = { .stage = stage,
                                  .name = name,
                                  .cron = mr_str(o->cron),
                                  .every_ms = (uint64_t)o->every_ms,
                                  .zone = mr_str(o->tz),
                                  .body = body,
                                  .job = { SCHEDULE_OPTIONS(SPEC_FROM_OPTION) } };
    if (o->missed && !missed_find(mr_str(o->missed), &spec.missed))
        return error_set(MR_EINVAL, "missed '%.40s' is none of skip, one, all", o->missed);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, ticks_set(shard_ticks(s->shard), &spec));
}

static int act_in_turn(struct local_shard *s, mr_bytes stage, mr_bytes name,
                       enum schedule_act act) {
    struct ticks *ticks = shard_ticks(s->shard);
    switch (act) {
    case SCHEDULE_DROP:
        return core_schedule_drop(s->core, stage, name);
    case SCHEDULE_PAUSE:
        return core_schedule_pause(s->core, stage, name);
    case SCHEDULE_RESUME:
        return ticks_resume(ticks, stage, name);
    case SCHEDULE_NOW:
        return ticks_now(ticks, stage, name);
    }
    return MR_EINVAL;
}

int local_schedule_act(struct engine *base, mr_bytes stage, mr_bytes name, enum schedule_act act) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, act_in_turn(s, stage, name, act));
}
