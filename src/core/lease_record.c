// Leases that outlive the engine. Most leases end with it, because their workers see their
// connections close. A worker of a stage with `overlap never`, or one that took DETACHED, may go
// on; so these leases are recorded when they begin, at every beat, and when they end early. After a
// restart such a lease holds its channel until its end, and its token is still valid.
//
//     start ─► LEASE until t ─► beat ─► LEASE until t' ─► answered ─► LEASE without an end
//
// Replay only collects them. core_open then finds their channels, when all jobs are known.
#include "core/state.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>

static uint32_t serial_hash(uint64_t serial) {
    return (uint32_t)number_hash(serial);
}

static bool lease_has_serial(const void *owner, uint32_t number, const void *serial) {
    return lease_at(owner, number)->serial == *(const uint64_t *)serial;
}

uint32_t lease_find_recorded(const struct core *c, uint64_t serial) {
    return map_find(&c->recorded_leases, serial_hash(serial), lease_has_serial, c, &serial);
}

// ---- Writing ----------------------------------------------------------------------------------

static struct record record_of_lease(const struct core *c, const struct lease *l,
                                     uint64_t until_ms) {
    struct record r = { .kind = RECORD_LEASE,
                        .time_ms = c->now_ms,
                        .id = l->record->last_id,
                        .stage = l->stage,
                        .position = l->record->last_position,
                        .pushed_ms = l->began_ms,
                        .attempt = l->attempt,
                        .serial = l->serial,
                        .random = l->record->random,
                        .lease_ms = l->lease_ms,
                        .due_ms = until_ms };
    if (l->channel & CHAN_KEYED)
        r.key = channel_key(c, channel_at(c, l->channel));
    return r;
}

static void lease_record_set_home(struct core *c, struct lease_record *record, uint64_t at,
                                  uint32_t size) {
    home_add(c, at, size);
    home_remove(c, record->at, record->size);
    record->at = at;
    record->size = size;
}

int lease_write(struct core *c, struct lease *l, uint64_t until_ms, enum room room) {
    struct record r = record_of_lease(c, l, until_ms);
    r.copy = room == ROOM_CLEAN;
    int err = out_begin(c, 1, r.key.size);
    if (err < 0)
        return err;
    out_add(c, &r, (mr_bytes){ 0 });
    if ((err = out_commit(c, room)) < 0)
        return err;
    lease_record_set_home(c, l->record, c->out.at[0], out_size(c, 0));
    return 0;
}

static int lease_record_create(struct core *c, struct lease *l) {
    int err = map_reserve(&c->recorded_leases, 1);
    if (err < 0)
        return err;
    l->record = mem_alloc(sizeof *l->record);
    if (!l->record)
        return error_set(MR_ENOMEM, "no memory for a lease");
    map_put(&c->recorded_leases, serial_hash(l->serial), l->number);
    return 0;
}

void lease_unrecord(struct core *c, struct lease *l) {
    if (!l->record)
        return;
    home_remove(c, l->record->at, l->record->size);
    map_remove(&c->recorded_leases, serial_hash(l->serial), l->number);
    mem_free(l->record);
    l->record = NULL;
}

int lease_record_start(struct core *c, struct lease *l, uint32_t last_job) {
    int err = lease_record_create(c, l);
    if (err < 0)
        return err;
    l->record->random = c->random;
    l->record->last_id = job_at(c, last_job)->id;
    l->record->last_position = job_at(c, last_job)->position;
    l->attempt = job_at(c, chan_head(c, l->channel))->attempt + 1u;
    if ((err = lease_write(c, l, l->until_ms, ROOM_COMMIT)) < 0)
        lease_unrecord(c, l);
    return err;
}

int lease_record_cut(struct core *c, struct lease *l, uint32_t last_job) {
    if (!l->record)
        return 0;
    struct lease_record before = *l->record;
    l->record->last_id = job_at(c, last_job)->id;
    l->record->last_position = job_at(c, last_job)->position;
    int err = lease_write(c, l, l->until_ms, ROOM_COMMIT);
    if (err < 0)
        *l->record = before;
    return err;
}

void lease_add_end(struct core *c, const struct lease *l) {
    struct record r = record_of_lease(c, l, 0);
    out_add(c, &r, (mr_bytes){ 0 });
}

int lease_write_end(struct core *c, const struct lease *l) {
    if (!l->record)
        return 0;
    struct record r = record_of_lease(c, l, 0);
    return out_write(c, &r, ROOM_COMMIT);
}

// ---- Reading ----------------------------------------------------------------------------------

// Frees a restored lease that holds no channel.
static void lease_drop_restored(struct core *c, uint32_t number) {
    struct lease *l = lease_at(c, number);
    if (l->channel & CHAN_KEYED)
        channel_unpin(c, l->channel);
    lease_unrecord(c, l);
    l->serial = 0;
    slab_give(&c->leases, number);
}

static int lease_restore(struct core *c, const struct record *r, chan channel, uint32_t *out) {
    uint32_t number = slab_take(&c->leases);
    if (!number)
        return error_set(MR_ENOMEM, "no memory for a lease");
    struct lease *l = lease_at(c, number);
    *l = (struct lease){ .serial = r->serial,
                         .began_ms = r->pushed_ms,
                         .number = number,
                         .lease_ms = r->lease_ms,
                         .stage = (uint16_t)r->stage,
                         .channel = channel,
                         .attempt = r->attempt,
                         .detached = true };
    int err = lease_record_create(c, l);
    if (err < 0) {
        l->serial = 0;
        slab_give(&c->leases, number);
        return err;
    }
    l->record->restored = true;
    l->record->random = r->random;
    list_init(&l->of_conn);
    if (channel)
        channel_pin(c, channel);
    *out = number;
    return 0;
}

int lease_replay(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct stage *s;
    uint32_t number = lease_find_recorded(c, r->serial);
    if (!r->due_ms) { // it is over; its first record may have been trimmed
        if (number)
            lease_drop_restored(c, number);
        return 0;
    }
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    chan channel = 0;
    if (r->key.size && (err = channel_get(c, r->stage, r->key, &channel)) < 0)
        return err;
    if (!number && (err = lease_restore(c, r, channel, &number)) < 0)
        return err;
    struct lease *l = lease_at(c, number);
    l->until_ms = r->due_ms;
    l->record->last_id = r->id;
    l->record->last_position = r->position;
    lease_record_set_home(c, l->record, at, size);
    return 0;
}

void leases_forget(struct core *c, uint32_t stage) {
    for (uint32_t i = 1; map_count(&c->recorded_leases) && i < c->leases.next_new; i++)
        if (lease_at(c, i)->record && lease_at(c, i)->stage == stage)
            lease_drop_restored(c, i);
}

// ---- Opening ----------------------------------------------------------------------------------

// The channel that the lease holds; 0: its job has ended.
static chan held_channel(const struct core *c, const struct lease *l) {
    if (l->channel)
        return l->channel;
    uint32_t job = job_find(c, l->record->last_id);
    bool waits = job && job_at(c, job)->status == JOB_WAITING && !job_is_keyed(job_at(c, job));
    return waits ? job : 0;
}

int leases_open(struct core *c) {
    for (uint32_t i = 1; map_count(&c->recorded_leases) && i < c->leases.next_new; i++) {
        const struct lease *l = lease_at(c, i);
        if (!l->record)
            continue;
        if (!c->stages[l->stage]->name_size)
            return error_set(MR_ECORRUPT, "stage %u is used but its record is missing", l->stage);
        if (l->serial >> EPOCH_SHIFT > c->epoch)
            return error_set(MR_ECORRUPT, "a lease of epoch %" PRIu64 " before that began",
                             l->serial >> EPOCH_SHIFT);
        if (l->until_ms <= c->now_ms)
            lease_drop_restored(c, i);
    }
    return 0;
}

// If several restored leases name a channel, the latest holds it.
static void lease_bind(struct core *c, uint32_t number) {
    struct lease *l = lease_at(c, number);
    chan ref = held_channel(c, l);
    bool is_held = ref && chan_state(c, ref) == CHANNEL_IN_PROGRESS;
    uint32_t other = is_held ? link_of(c, ref)->next : 0;
    if (!ref || (other && lease_at(c, other)->serial > l->serial)) {
        lease_drop_restored(c, number);
        return;
    }
    if (other)
        lease_drop_restored(c, other);
    else
        channel_move(c, ref, CHANNEL_IN_PROGRESS, AT_TAIL);
    link_of(c, ref)->next = number;
    l->channel = ref;
}

void leases_bind(struct core *c) {
    for (uint32_t i = 1; i < c->leases.next_new; i++)
        if (lease_at(c, i)->record)
            lease_bind(c, i);
}

// Jobs that were delayed until the same instant have one position, and stand in order of their ids.
static bool stands_behind_lease(const struct job *j, const struct lease_record *r) {
    return j->position != r->last_position ? j->position > r->last_position : j->id > r->last_id;
}

// Counts the jobs under a restored lease: those at the front, up to its last job.
static uint32_t lease_count_held(const struct core *c, const struct lease *l, chan ref) {
    uint32_t count = 0;
    if (!(ref & CHAN_KEYED))
        return 1;
    for (uint32_t n = chan_head(c, ref); n; n = job_at(c, n)->link.next, count++)
        if (stands_behind_lease(job_at(c, n), l->record) ||
            !channel_reaches(c, channel_at(c, ref), n))
            break;
    return count;
}

static void lease_hold_jobs(struct core *c, struct lease *l, chan ref, uint32_t count) {
    uint32_t number = chan_head(c, ref);
    for (uint32_t i = 0; i < count; i++) {
        struct job *j = job_at(c, number);
        job_drop_attr(c, j, ATTR_DUE);
        job_set_status(c, j, JOB_RUNNING);
        j->serial = l->serial;
        *(l->block ? &l->block[i] : &l->only) = (struct leased){ j->id, number };
        number = j->link.next;
    }
}

// The channel is sorted. Its leased jobs may all have ended while the worker had not answered yet.
static int lease_hold_channel(struct core *c, struct lease *l, chan ref) {
    uint32_t count = lease_count_held(c, l, ref);
    int err = heap_reserve(&c->timers, 1);
    if (err < 0)
        return err;
    if (count > 1 && !(l->block = mem_alloc(count * sizeof *l->block)))
        return error_set(MR_ENOMEM, "no memory for a block of %u jobs", count);
    l->only = (struct leased){ l->record->last_id, job_find(c, l->record->last_id) };
    lease_hold_jobs(c, l, ref, count);
    l->count = count ? count : 1;
    l->order = heap_order(&c->timers);
    lease_set_timer(c, l, l->until_ms, l->order);
    if (ref & CHAN_KEYED)
        channel_unpin(c, ref); // it is in progress now
    c->stages[l->stage]->leases++;
    c->stages[l->stage]->leased += l->count;
    return 0;
}

int leases_hold(struct core *c) {
    for (uint32_t i = 1; i < c->leases.next_new; i++) {
        struct lease *l = lease_at(c, i);
        if (!l->record)
            continue;
        int err = lease_hold_channel(c, l, l->channel);
        if (err < 0)
            return err;
    }
    return 0;
}
