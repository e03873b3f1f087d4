// Writing records: a group is begun with room for all of it, filled, and given to the sink at once.
// Nothing in memory changes before the sink has accepted it.
#include "core/maker.h"

#include "base/errors.h"
#include "base/mem.h"
#include "core/record_layout.h"

#include <assert.h>

int out_grow(struct core *c, size_t records, size_t bytes) {
    struct out *o = &c->out;
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
    return buffer_reserve(&o->heads, bytes);
}

// ---- META ---------------------------------------------------------------------------------------

enum { JOINED_KEPT = 1 << 16 }; // a larger buffer is not kept for the next group

int out_reserve_joined(struct core *c, size_t bytes) {
    struct buffer *joined = &c->out.joined;
    if (joined->capacity > JOINED_KEPT)
        buffer_finish(joined);
    buffer_clear(joined);
    return bytes ? buffer_reserve(joined, bytes) : 0;
}

size_t push_joined_size(const struct push *p) {
    return p->job.meta.size ? p->body.size + p->job.meta.size : 0;
}

// META stands behind the body, so that a reader cuts off a little instead of moving much.
mr_bytes out_join(struct core *c, const struct push *p) {
    struct buffer *joined = &c->out.joined;
    if (!p->job.meta.size)
        return p->body;
    assert(joined->capacity - joined->size >= push_joined_size(p));
    const uint8_t *from = joined->data + joined->size;
    (void)buffer_append(joined, p->body.data, p->body.size); // after out_reserve_joined
    (void)buffer_append(joined, p->job.meta.data, p->job.meta.size);
    return bytes_of(from, push_joined_size(p));
}

// ---- Groups -------------------------------------------------------------------------------------

// Where the next head goes.
static inline uint8_t *out_head(const struct out *o, size_t size) {
    assert(o->count < o->capacity && o->heads.capacity - o->heads.size >= size);
    return o->heads.data + o->heads.size;
}

static inline void out_added(struct out *o, const uint8_t *head, size_t size, mr_bytes body) {
    o->heads.size += size;
    o->entries[o->count++] = (struct entry){ .head = bytes_of(head, size), .body = body };
}

void out_add(struct core *c, const struct record *r, mr_bytes body) {
    uint8_t *head = out_head(&c->out, RECORD_MAX);
    out_added(&c->out, head, record_encode(r, head), body);
}

void out_add_copy(struct core *c, mr_bytes head, mr_bytes body) {
    uint8_t *copy = out_head(&c->out, head.size);
    memcpy(copy, head.data, head.size);
    record_make_copy(copy);
    out_added(&c->out, copy, head.size, body);
}

// Most jobs have only a stage, a key and a body. `has_options` is a constant where this is called,
// so that these jobs are written by code without the options.
RECORD_INLINE struct record record_of_push(const struct core *c, const struct push_plan *plan,
                                           bool has_options) {
    const struct push *p = plan->push;
    struct record r = { .kind = RECORD_PUSH,
                        .time_ms = c->now_ms,
                        .id = plan->id,
                        .stage = plan->stage,
                        .key = p->job.key,
                        .position = plan->position };
    if (has_options) {
        r.has_once = plan->has_once;
        r.once = plan->once;
        r.call = p->caller != NULL;
        r.due_ms = plan->due_ms;
        r.deadline_ms = plan->deadline_ms;
        r.attempts = p->job.attempts;
        r.source = plan->source ? source_at(c, plan->source)->number : 0;
        r.number = p->number;
    }
    return r;
}

RECORD_INLINE size_t write_push(const struct core *c, const struct push_plan *plan,
                                bool has_options, uint8_t *head) {
    struct record r = record_of_push(c, plan, has_options);
    return record_write(&r, FIELDS_OF_PUSH, head);
}

APART static void out_add_push_whole(struct core *c, const struct push_plan *plan) {
    struct record r = record_of_push(c, plan, true);
    r.meta_size = (uint32_t)plan->push->job.meta.size;
    r.maker = plan->maker;
    out_add(c, &r, out_join(c, plan->push));
}

void out_add_push(struct core *c, const struct push_plan *plan) {
    if (plan->has_options && (plan->push->job.meta.size || plan->maker)) {
        out_add_push_whole(c, plan);
        return;
    }
    uint8_t *head = out_head(&c->out, RECORD_MAX);
    size_t size =
        plan->has_options ? write_push(c, plan, true, head) : write_push(c, plan, false, head);
    out_added(&c->out, head, size, plan->push->body);
}

RECORD_INLINE size_t write_end(const struct core *c, const struct job *j, enum job_status status,
                               uint64_t position, bool has_options, uint8_t *head) {
    bool running = j->status == JOB_RUNNING;
    struct record r = {
        .kind = RECORD_END,
        .time_ms = c->now_ms,
        .id = j->id,
        .stage = stage_of(c, j)->number,
        .position = position,
        .pushed_ms = c->now_ms,
        .due_ms = status != JOB_DONE && !running ? j->time_ms : 0, // only if it was never started
        .attempt = j->attempt,
        .status = status,
        .serial = running ? j->serial : 0,
    };
    r.key = job_key(c, j);
    if (has_options) {
        r.has_once = status == JOB_DONE && job_once(c, j, &r.once); // other ends release the once
        record_add_source(c, j, &r);
    }
    return record_write(&r, FIELDS_OF_END, head);
}

void out_add_end(struct core *c, const struct job *j, enum job_status status, uint64_t position,
                 mr_bytes result) {
    uint8_t *head = out_head(&c->out, RECORD_MAX);
    size_t size = job_has_attrs(j) ? write_end(c, j, status, position, true, head)
                                   : write_end(c, j, status, position, false, head);
    out_added(&c->out, head, size, result);
}

struct record record_of_stage(const struct core *c, const struct stage *s,
                              struct record_about *about) {
#define TO_RECORD(member, ...) about->stage.member = s->member;
    RECORD_STAGE_FIELDS(TO_RECORD)
#undef TO_RECORD
    about->stage.policy = s->policy;
    return (struct record){
        .kind = RECORD_STAGE,
        .time_ms = c->now_ms,
        .stage = s->number,
        .name = bytes_of(s->name, s->name_size),
        .maker = maker_name(c, s->maker),
        .about = about,
    };
}

struct record record_of_source(const struct core *c, const struct source *s, uint32_t stage,
                               struct record_about *about) {
    about->source = s->seen;
    return (struct record){
        .kind = stage ? RECORD_SOURCE : RECORD_SOURCE_OLD,
        .time_ms = c->now_ms,
        .stage = stage,
        .source = s->number,
        .name = bytes_of(s->name, s->name_size),
        .key = bytes_of(s->scope, s->scope_size),
        .maker = maker_name(c, s->maker),
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

// A record with the present state of a job: JOB before its end, END after it.
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
    r.key = job_key(c, j);
    if (j->flags & JOB_HALTS)
        r.due_ms = j->time_ms; // see RECORD_FAIL
    if (!job_has_attrs(j))
        return r;
    r.deadline_ms = job_deadline(c, j);
    if (!r.due_ms && !(j->flags & JOB_RELEASED))
        r.due_ms = job_due(c, j);
    r.has_once = job_once(c, j, &r.once);
    const struct attr *counts = job_attr(c, j, ATTR_COUNTS);
    r.attempts = counts ? counts->small & UINT16_MAX : 0;
    r.meta_size = counts ? job_meta_size(c, j) : 0;
    r.maker = counts ? job_maker(c, j) : 0;
    record_add_source(c, j, &r);
    r.call = job_attr(c, j, ATTR_CALL) && !(j->flags & JOB_WANTED_FOR_GOOD);
    return r;
}

int out_write(struct core *c, const struct record *r, enum room room) {
    int err = out_begin(c, 1, 0);
    if (err < 0)
        return err;
    out_add(c, r, (mr_bytes){ 0 });
    return out_commit(c, room);
}
