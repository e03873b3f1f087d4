// Records on their way out: a group is begun with room for all of it, filled, and handed to the
// sink at once. Nothing in memory changes before the sink has said yes.
#include "core/state.h"

#include "base/errors.h"
#include "base/mem.h"

#include <assert.h>

// What a head needs beyond names and keys; a SOURCE record is the longest.
enum { HEAD_ROOM = 400 };

static int out_grow(struct out *o, size_t records) {
    size_t capacity = o->capacity ? o->capacity : 8;
    while (capacity < records)
        capacity *= 2;
    struct entry *entries = mem_resize(o->entries, capacity * sizeof *entries);
    if (entries)
        o->entries = entries;
    uint64_t *at = mem_resize(o->at, capacity * sizeof *at);
    if (at)
        o->at = at;
    if (!entries || !at)
        return error_set(MR_ENOMEM, "no memory for %zu records", records);
    o->capacity = capacity;
    return 0;
}

int out_begin(struct core *c, size_t records, size_t extra_bytes) {
    struct out *o = &c->out;
    int err = records > o->capacity ? out_grow(o, records) : 0;
    if (err < 0)
        return err;
    o->count = 0;
    buffer_clear(&o->heads);
    return buffer_reserve(&o->heads, RECORD_MAX + records * HEAD_ROOM + extra_bytes);
}

void out_add(struct core *c, const struct record *r, mr_bytes body) {
    struct out *o = &c->out;
    assert(o->count < o->capacity && o->heads.capacity - o->heads.size >= RECORD_MAX);
    uint8_t *head = o->heads.data + o->heads.size;
    size_t size = record_encode(r, head);
    o->heads.size += size;
    o->entries[o->count++] = (struct entry){ .head = bytes_of(head, size), .body = body };
}

void out_add_copy(struct core *c, mr_bytes head, mr_bytes body) {
    struct out *o = &c->out;
    assert(o->count < o->capacity && o->heads.capacity - o->heads.size >= head.size);
    uint8_t *copy = o->heads.data + o->heads.size;
    memcpy(copy, head.data, head.size);
    record_make_copy(copy);
    o->heads.size += head.size;
    o->entries[o->count++] = (struct entry){ .head = bytes_of(copy, head.size), .body = body };
}

int out_commit(struct core *c, enum room room) {
    return c->config.sink.append(c->config.owner, c->out.entries, c->out.count, room, c->out.at);
}

uint32_t out_size(const struct core *c, size_t index) {
    const struct entry *e = &c->out.entries[index];
    return entry_size(e->head.size, e->body.size);
}

struct record record_of_stage(const struct core *c, const struct stage *s,
                              struct record_about *about) {
    about->stage = (struct record_stage){ .pushed = s->pushed,
                                          .done = s->done,
                                          .failed = s->failed,
                                          .dead = s->died,
                                          .expired = s->expired,
                                          .cancelled = s->cancelled,
                                          .vain_ms = s->vain_ms,
                                          .paused = s->paused,
                                          .draining = s->draining,
                                          .policy = s->policy };
    return (struct record){
        .kind = RECORD_STAGE,
        .time_ms = c->now_ms,
        .stage = s->number,
        .name = bytes_of(s->name, s->name_size),
        .about = about,
    };
}

struct record record_of_source(const struct core *c, const struct source *s,
                               struct record_about *about) {
    about->source = s->seen;
    return (struct record){
        .kind = RECORD_SOURCE,
        .time_ms = c->now_ms,
        .source = s->number,
        .name = bytes_of(s->name, s->name_size),
        .about = about,
    };
}

void record_add_source(const struct core *c, const struct job *j, struct record *r) {
    const struct attr *source = job_attr(c, j, ATTR_SOURCE);
    if (!source || source_at(c, source->small)->dropped)
        return;
    r->source = source_at(c, source->small)->number;
    r->number = source->value;
}

// Everything about a job as it is now: a JOB record while it lives, an END record after.
struct record record_of_job(const struct core *c, const struct job *j) {
    bool ended = j->status == JOB_DONE || j->status > JOB_DEAD;
    struct record r = {
        .kind = ended ? RECORD_END : RECORD_JOB,
        .copy = true,
        .time_ms = c->now_ms,
        .id = j->id,
        .stage = stage_of(c, j)->number,
        .position = j->position,
        .pushed_ms = j->time_ms,
        .attempt = j->attempt,
        .status = j->status == JOB_RUNNING ? JOB_WAITING : (enum job_status)j->status,
        .serial = j->serial,
    };

    if (job_is_keyed(j)) {
        const struct channel *ch = channel_at(c, j->owner);
        r.key = channel_key(c, ch);
        if (ch->halted && job_at(c, ch->halted) == j)
            r.due_ms = j->time_ms; // see RECORD_FAIL
    }
    if (!job_has_attrs(j))
        return r;
    r.deadline_ms = job_deadline(c, j);
    if (!r.due_ms && !(j->flags & JOB_RELEASED))
        r.due_ms = job_due(c, j);
    r.has_once = job_once(c, j, &r.once);
    const struct attr *counts = job_attr(c, j, ATTR_COUNTS);
    r.attempts = counts ? counts->small & UINT16_MAX : 0;
    record_add_source(c, j, &r);
    r.call = job_attr(c, j, ATTR_CALL) && !(j->flags & JOB_WANTED_FOR_GOOD);
    return r;
}
