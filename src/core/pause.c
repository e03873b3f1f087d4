// Paused channels: their jobs are kept and not started, while other channels of the stage go on. A
// paused channel is known also while it is empty, so their number is bounded. The home of a pause
// is its PAUSE record.
#include "core/group.h"

#include "base/errors.h"

static uint32_t pause_hash(chan ref) {
    return (uint32_t)number_hash(ref);
}

static bool pause_is_of(const void *owner, uint32_t number, const void *ref) {
    const struct core *c = owner;
    return pause_at(c, number)->channel == *(const chan *)ref;
}

uint32_t pause_find(const struct core *c, chan ref) {
    return map_find(&c->pause_by_channel, pause_hash(ref), pause_is_of, c, &ref);
}

int pause_reserve(struct core *c) {
    int err = slab_reserve(&c->pauses, 1);
    return err < 0 ? err : map_reserve(&c->pause_by_channel, 1);
}

void pause_set_home(struct core *c, uint32_t number, uint64_t at, uint32_t size) {
    struct pause *p = pause_at(c, number);
    home_add(c, at, size);
    home_remove(c, p->at, p->size);
    p->at = at;
    p->size = size;
}

void pause_set(struct core *c, chan ref, uint64_t at, uint32_t size) {
    struct channel *ch = channel_at(c, ref);
    uint32_t number = pause_find(c, ref);
    if (!number) {
        number = slab_take(&c->pauses);
        pause_at(c, number)->channel = ref;
        map_put(&c->pause_by_channel, pause_hash(ref), number);
        c->stages[ch->stage]->paused_keys++;
        ch->paused = true;
        channel_check_idle(c, ref);
    }
    pause_set_home(c, number, at, size);
}

void pause_drop(struct core *c, chan ref) {
    struct channel *ch = channel_at(c, ref);
    uint32_t number = pause_find(c, ref);
    if (!number)
        return;
    pause_set_home(c, number, 0, 0);
    map_remove(&c->pause_by_channel, pause_hash(ref), number);
    slab_give(&c->pauses, number);
    c->stages[ch->stage]->paused_keys--;
    ch->paused = false;
    channel_check_idle(c, ref);
}

// ---- Commands ---------------------------------------------------------------------------------

static int pause_check_key(mr_bytes key) {
    if (!key.size)
        return error_set(MR_EINVAL, "a job without a key has no channel to pause: name a key");
    if (key.size > KEY_MOST)
        return error_set(MR_ETOOBIG, "a key of %zu bytes is too large: %d at most", key.size,
                         KEY_MOST);
    return 0;
}

static int pause_write(struct core *c, enum record_kind kind, uint32_t stage, mr_bytes key) {
    struct record r = { .kind = kind, .time_ms = c->now_ms, .stage = stage, .key = key };
    return out_write(c, &r, ROOM_COMMIT);
}

static void pause_resolve(struct core *c, chan ref) {
    if (chan_state(c, ref) != CHANNEL_IN_PROGRESS)
        channel_resolve(c, ref, AT_TAIL);
    settle(c);
}

static int pause_try(struct core *c, mr_bytes stage, mr_bytes key) {
    uint32_t number = 0;
    chan ref = 0;
    int err = stage_get_if_room(c, stage, &number);
    if (err < 0)
        return err;
    struct stage *s = c->stages[number];
    if (!key_has_channel(s, key))
        return error_set(MR_EINVAL,
                         "key %.*s names a group, and no channel to pause: name a key with "
                         "something behind the slash",
                         (int)(key.size < 80 ? key.size : 80), (const char *)key.data);
    ref = channel_find(c, number, key);
    if (ref && channel_at(c, ref)->paused)
        return 0;
    if (s->paused_keys >= PAUSED_KEYS_MOST)
        return error_set(MR_EFULL,
                         "%u keys of stage %.*s are paused, which is the most: RESUME some, or "
                         "PAUSE the stage",
                         s->paused_keys, s->name_size, s->name);
    if ((err = pause_reserve(c)) < 0)
        return err;
    if (!s->recorded && (err = stage_record(c, s, ROOM_COMMIT)) < 0)
        return err;
    if ((err = channel_get(c, number, key, &ref)) < 0)
        return err;
    if ((err = pause_write(c, RECORD_PAUSE, number, key)) < 0)
        return err;
    pause_set(c, ref, c->out.at[0], out_size(c, 0));
    pause_resolve(c, ref);
    return 0;
}

int core_pause_key(struct core *c, mr_bytes stage, mr_bytes key) {
    int err = pause_check_key(key);
    if (err < 0)
        return err;
    if ((err = pause_try(c, stage, key)) < 0)
        stage_forget_unused(c, stage);
    return err;
}

int core_resume_key(struct core *c, mr_bytes stage, mr_bytes key) {
    uint32_t number = stage_find(c, stage);
    int err = pause_check_key(key);
    if (err == 0 && !number)
        err = stage_name_check(stage);
    if (err < 0)
        return err;
    chan ref = number ? channel_find(c, number, key) : 0;
    if (!ref || !channel_at(c, ref)->paused)
        return 0;
    if ((err = pause_write(c, RECORD_UNPAUSE, number, key)) < 0)
        return err;
    pause_drop(c, ref);
    pause_resolve(c, ref);
    return 0;
}
