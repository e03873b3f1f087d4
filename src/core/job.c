// The table of jobs, found by id, and the attributes that only some of them have.
#include "core/state.h"

#include "base/errors.h"

#include <assert.h>

uint32_t job_find(const struct core *c, uint64_t id) {
    return idmap_find(&c->by_id, id);
}

// Most jobs need one attribute or none, no job more than one of a kind; see enum attr_kind.
enum { ATTRS_PER_JOB = 6, TIMERS_PER_JOB = 3 };

int job_reserve(struct core *c, uint32_t count, bool dressed) {
    int err = slab_reserve(&c->jobs, count);
    if (err < 0)
        return err;
    if ((err = idmap_reserve(&c->by_id, count)) < 0 || !dressed)
        return err;
    if ((err = slab_reserve(&c->attrs, count * ATTRS_PER_JOB)) < 0)
        return err;
    return heap_reserve(&c->timers, (size_t)count * TIMERS_PER_JOB);
}

int once_reserve(struct core *c, uint32_t count) {
    int err = slab_reserve(&c->onces, count);
    return err < 0 ? err : map_reserve(&c->once, count);
}

uint32_t job_create(struct core *c, uint64_t id) {
    uint32_t number = slab_take(&c->jobs);
    assert(number);
    job_at(c, number)->id = id;
    idmap_put(&c->by_id, id, number);
    if (id > c->highest_id)
        c->highest_id = id;
    return number;
}

void job_free(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    for (int kind = ATTR_DEADLINE; j->attrs && kind <= ATTR_SOURCE; kind++)
        if (kind != ATTR_ONCE)
            job_drop_attr(c, j, (enum attr_kind)kind);
    once_release(c, j);
    c->live_bytes -= j->size;
    idmap_remove(&c->by_id, j->id);
    j->owner = 0; // tells a free entry from a job
    slab_give(&c->jobs, number);
}

void job_set_status(struct core *c, struct job *j, enum job_status status) {
    struct stage *s = stage_of(c, j);
    if (j->flags & JOB_HAS_SOURCE)
        source_count(c, j, (enum job_status)j->status, status);
    s->by_status[j->status]--;
    j->status = (uint8_t)status;
    s->by_status[status]++;
}

void job_set_home(struct core *c, struct job *j, uint64_t at, uint32_t size) {
    c->live_bytes += size;
    c->live_bytes -= j->size;
    j->at = at;
    j->size = size;
}

// The field that holds the (tagged) number of the next attribute.
static uint32_t *attr_next(const struct core *c, uint32_t attr) {
    uint32_t number = attr & ATTR_NUMBER;
    if (attr >> ATTR_SHIFT == ATTR_ONCE)
        return &((struct once *)slab_at(&c->onces, number))->next;
    return &((struct attr *)slab_at(&c->attrs, number))->next;
}

static uint32_t attr_find(const struct core *c, const struct job *j, enum attr_kind kind) {
    for (uint32_t a = j->attrs; a; a = *attr_next(c, a))
        if (a >> ATTR_SHIFT == kind)
            return a & ATTR_NUMBER;
    return 0;
}

struct attr *job_attr(const struct core *c, const struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    return number ? slab_at(&c->attrs, number) : NULL;
}

struct once *job_once(const struct core *c, const struct job *j) {
    uint32_t number = attr_find(c, j, ATTR_ONCE);
    return number ? slab_at(&c->onces, number) : NULL;
}

struct attr *job_add_attr(struct core *c, struct job *j, enum attr_kind kind) {
    struct attr *found = job_attr(c, j, kind);
    if (found)
        return found;
    uint32_t number = slab_take(&c->attrs);
    assert(number);
    struct attr *a = slab_at(&c->attrs, number);
    a->next = j->attrs;
    j->attrs = (uint32_t)kind << ATTR_SHIFT | number;
    return a;
}

static void attr_unlink(struct core *c, struct job *j, enum attr_kind kind, uint32_t number) {
    uint32_t tagged = (uint32_t)kind << ATTR_SHIFT | number;
    uint32_t *link = &j->attrs;
    while (*link != tagged)
        link = attr_next(c, *link);
    *link = *attr_next(c, tagged);
}

void job_drop_attr(struct core *c, struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    if (!number)
        return;
    attr_unlink(c, j, kind, number);
    if (kind == ATTR_DEADLINE || kind == ATTR_DUE)
        heap_forget(&c->timers);
    const struct attr *a = slab_at(&c->attrs, number);
    if (kind == ATTR_REASONS)
        c->live_bytes -= a->small;
    if (kind == ATTR_SOURCE) {
        j->flags &= (uint8_t)~JOB_HAS_SOURCE;
        source_detach(c, a->small);
    }
    slab_give(&c->attrs, number);
}

void once_remember(struct core *c, uint32_t number, struct hash128 name) {
    uint32_t once = slab_take(&c->onces);
    assert(once);
    struct job *j = job_at(c, number);
    *(struct once *)slab_at(&c->onces, once) =
        (struct once){ .name = name, .next = j->attrs, .job = number };
    j->attrs = (uint32_t)ATTR_ONCE << ATTR_SHIFT | once;
    map_put(&c->once, (uint32_t)name.low, once);
}

void once_release(struct core *c, struct job *j) {
    uint32_t number = attr_find(c, j, ATTR_ONCE);
    if (!number)
        return;
    struct once *o = slab_at(&c->onces, number);
    map_remove(&c->once, (uint32_t)o->name.low, number);
    attr_unlink(c, j, ATTR_ONCE, number);
    slab_give(&c->onces, number);
}

uint64_t job_deadline(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_DEADLINE);
    return a ? a->value : 0;
}

uint64_t job_due(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_DUE);
    return a ? a->value : 0;
}

uint32_t job_attempts(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_COUNTS);
    uint32_t own = a ? a->small & UINT16_MAX : 0;
    return own ? own : stage_of(c, j)->policy.attempts;
}

void job_set_due(struct core *c, uint32_t number, uint64_t due_ms) {
    struct job *j = job_at(c, number);
    job_drop_attr(c, j, ATTR_DUE);
    job_add_attr(c, j, ATTR_DUE)->value = due_ms;
    heap_put(&c->timers, due_ms, timer_value(TIMER_DUE, number));
}

int reasons_of(struct core *c, const struct job *j, struct buffer *out) {
    buffer_clear(out);
    const struct attr *a = job_attr(c, j, ATTR_REASONS);
    if (!a)
        return 0;
    int err = c->config.sink.read(c->config.owner, a->value, out);
    if (err < 0)
        buffer_clear(out);
    return err;
}
