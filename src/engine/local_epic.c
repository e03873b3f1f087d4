// Epics: how far they are, and waiting until they are as far as the caller wants.
#include "base/errors.h"
#include "engine/local.h"

#include <inttypes.h>
#include <stdio.h>

static mr_epic_info show_epic(const struct epic_info *from, const char *held_by) {
    static _Thread_local char stage[STAGE_NAME_MOST + 1],
        held[sizeof((struct stage_info *)0)->held_by];
    snprintf(stage, sizeof stage, "%.*s", (int)from->stage.size,
             from->stage.size ? (const char *)from->stage.data : "");
    snprintf(held, sizeof held, "%s", held_by);
    mr_epic_info info = { EPIC_INFO_MEMBERS(MEMBER_FROM) };
    info.total = from->ended ? (int64_t)from->total : -1;
    info.over = from->over;
    info.stage = stage;
    info.held_by = held;
    info.expected = from->expected ? (int64_t)from->expected : -1;
    return info;
}

// In a turn: what is borrowed from the core is copied for this thread.
static mr_epic_info info_of(struct local_shard *s, const struct epic_info *i) {
    struct stage_info at = { 0 };
    if (i->waiting && i->stage.size)
        (void)core_look_stage(s->core, i->stage, &at); // not known: held by nothing
    return show_epic(i, at.held_by);
}

int local_epic(struct engine *base, mr_bytes stage, mr_bytes name, mr_epic_info *out) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct epic_info found;
    mr_epic_info info;
    local_enter(s);
    int err = core_epic(s->core, stage, name, &found);
    if (err >= 0)
        info = info_of(s, &found);
    uint64_t at = local_end(s);
    if (err < 0)
        return err;
    shard_wait(s->shard, at); // looks go on when the log has stopped
    *out = info;
    return 0;
}

// ---- Waiting ----------------------------------------------------------------------------------

void event_epic(void *owner, struct watcher *watcher) {
    local_notify(owner, &list_entry(watcher, struct epic_waiter, watcher)->waiter);
}

// In a turn, which it ends: waits until the epic may be far enough. MR_EAGAIN: not in time.
static int wait_for_change(struct local_shard *s, mr_bytes stage, mr_bytes name, int64_t left,
                           uint64_t until) {
    struct epic_waiter w = { 0 };
    int err = core_epic_watch(s->core, stage, name, left, &w.watcher);
    if (err < 0) {
        local_end(s);
        return err;
    }
    local_end_keep(s);
    if (local_wait(s, &w.waiter, until))
        return 0;
    core_epic_unwatch(&w.watcher);
    local_end(s);
    return w.waiter.err;
}

int local_epic_wait(struct engine *base, mr_bytes stage, mr_bytes name, int64_t left,
                    uint64_t expected, int64_t wait_ms, mr_epic_info *out) {
    struct local_shard *s = shard_of_stage(base, stage);
    uint64_t until = wait_ms ? local_until(wait_ms) : 0;
    int err = 0;
    while (err >= 0 && (err = local_begin(s)) >= 0) {
        struct epic_info found;
        if (expected)
            core_epic_expect(s->core, stage, name, expected);
        err = core_epic(s->core, stage, name, &found);
        if (err >= 0 && !epic_has_come_to(&found, left)) {
            err = wait_for_change(s, stage, name, left, until);
            continue;
        }
        mr_epic_info info = { 0 };
        if (err >= 0)
            info = info_of(s, &found);
        err = local_end_durable(s, err);
        if (err >= 0)
            *out = info;
        return err;
    }
    if (err != MR_EAGAIN)
        return err;
    return error_set(MR_EAGAIN, "epic '%.*s' was not worked off so far within %" PRId64 " ms",
                     (int)name.size, (const char *)name.data, wait_ms);
}

// ---- Acting -----------------------------------------------------------------------------------

int local_epic_end(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t total) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_end(s->core, stage, name, total));
}

int local_epic_skip(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t number) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_skip(s->core, stage, name, number));
}

int local_epic_then(struct engine *base, mr_bytes stage, mr_bytes name, const struct emit *then) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_then(s->core, stage, name, then));
}

int local_epic_cancel(struct engine *base, mr_bytes stage, mr_bytes name) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_cancel(s->core, stage, name));
}

int local_epic_forget(struct engine *base, mr_bytes stage, mr_bytes name, uint64_t after_ms) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_forget(s->core, stage, name, after_ms));
}

int local_epic_drop(struct engine *base, mr_bytes stage, mr_bytes name) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_epic_drop(s->core, stage, name));
}
