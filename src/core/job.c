// The table of jobs by id, and their attributes.
#include "core/maker.h"

#include <assert.h>

uint32_t job_find(const struct core *c, uint64_t id) {
    return idmap_find(&c->by_id, id);
}

// Most jobs need one attribute or none, no job more than one of a kind; see enum attr_kind.
enum { ATTRS_PER_JOB = 4, INSTANTS_PER_JOB = 2 };

int job_reserve(struct core *c, uint32_t count, bool has_options) {
    int err = slab_reserve(&c->jobs, count);
    if (err < 0)
        return err;
    if ((err = idmap_reserve(&c->by_id, count)) < 0 || !has_options)
        return err;
    if ((err = slab_reserve(&c->attrs, count * ATTRS_PER_JOB)) < 0)
        return err;
    if ((err = slab_reserve(&c->instants, count * INSTANTS_PER_JOB)) < 0)
        return err;
    return heap_reserve(&c->timers, (size_t)count * TIMERS_PER_JOB);
}

int job_reserve_due(struct core *c) {
    int err = slab_reserve(&c->attrs, 1);
    if (err < 0)
        return err;
    if ((err = slab_reserve(&c->instants, 1)) < 0)
        return err;
    return heap_reserve(&c->timers, 1);
}

int once_reserve(struct core *c, uint32_t count) {
    int err = slab_reserve(&c->onces, count);
    return err < 0 ? err : map_reserve(&c->once, count);
}

uint32_t job_create(struct core *c, uint64_t id) {
    uint32_t number = slab_take_as_is(&c->jobs);
    assert(number);
    *job_at(c, number) = (struct job){ .id = id, .attrs = number };
    idmap_put(&c->by_id, id, number);
    if (c->replaying && (id - c->config.first_id) % c->config.id_step != 0)
        c->has_foreign_ids = true;
    if (id > c->highest_id)
        c->highest_id = id;
    return number;
}

APART static void job_drop_attrs(struct core *c, struct job *j) {
    for (int kind = ATTR_DEADLINE; kind <= ATTR_SOURCE; kind++)
        if (kind != ATTR_ONCE)
            job_drop_attr(c, j, (enum attr_kind)kind);
    once_release(c, j);
}

void job_free(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    if (job_has_attrs(j))
        job_drop_attrs(c, j);
    home_remove(c, j->at, j->size);
    idmap_remove(&c->by_id, j->id);
    j->owner = 0; // marks a free entry
    slab_give(&c->jobs, number);
}

static const struct slab *attr_slab(const struct core *c, enum attr_kind kind) {
    switch (kind) {
    case ATTR_DEADLINE:
    case ATTR_DUE:
        return &c->instants;
    case ATTR_ONCE:
        return &c->onces;
    case ATTR_CALL:
    case ATTR_REASONS:
    case ATTR_COUNTS:
    case ATTR_SOURCE:
        break;
    }
    return &c->attrs;
}

// Every kind of attribute begins with `next`.
static uint32_t *attr_next(const struct core *c, uint32_t attr) {
    return slab_at(attr_slab(c, (enum attr_kind)(attr >> ATTR_SHIFT)), attr & ATTR_NUMBER);
}

static uint32_t attr_search(const struct core *c, uint32_t attr, enum attr_kind kind) {
    for (; attr >> ATTR_SHIFT; attr = *attr_next(c, attr))
        if (attr >> ATTR_SHIFT == kind)
            return attr & ATTR_NUMBER;
    return 0;
}

// Inline, because most jobs have no attributes.
static inline uint32_t attr_find(const struct core *c, const struct job *j, enum attr_kind kind) {
    return job_has_attrs(j) ? attr_search(c, j->attrs, kind) : 0;
}

uint32_t attr_job(const struct core *c, uint32_t attr) {
    while (attr >> ATTR_SHIFT)
        attr = *attr_next(c, attr);
    return attr;
}

// Adds an attribute of a kind that the job does not have; returns its number.
static uint32_t attr_link(struct job *j, enum attr_kind kind, struct slab *slab) {
    uint32_t number = slab_take(slab);
    assert(number);
    *(uint32_t *)slab_at(slab, number) = j->attrs;
    j->attrs = (uint32_t)kind << ATTR_SHIFT | number;
    return number;
}

static void attr_unlink(struct core *c, struct job *j, enum attr_kind kind, uint32_t number) {
    uint32_t tagged = (uint32_t)kind << ATTR_SHIFT | number;
    uint32_t *link = &j->attrs;
    while (*link != tagged)
        link = attr_next(c, *link);
    *link = *attr_next(c, tagged);
}

struct attr *job_attr(const struct core *c, const struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    return number ? slab_at(&c->attrs, number) : NULL;
}

struct attr *job_add_attr(struct core *c, struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    return slab_at(&c->attrs, number ? number : attr_link(j, kind, &c->attrs));
}

// The value of ATTR_COUNTS: the size of META, whom the job counts for, and its bytes that do.
enum { MAKER_SHIFT = 11, MAKER_BYTES_SHIFT = 32 };
#define META_BITS ((UINT64_C(1) << MAKER_SHIFT) - 1)

_Static_assert(META_MOST <= META_BITS, "the size of META has a place");
_Static_assert(JOB_MAKERS_MOST <= UINT32_MAX >> MAKER_SHIFT, "and so has the maker");

static uint32_t counts_maker(const struct attr *counts) {
    return (uint32_t)counts->value >> MAKER_SHIFT;
}

static uint32_t counts_bytes(const struct attr *counts) {
    return (uint32_t)(counts->value >> MAKER_BYTES_SHIFT);
}

static void counts_end(struct core *c, struct attr *counts) {
    uint32_t maker = counts_maker(counts);
    if (!maker)
        return;
    maker_add_bytes(c, maker, -(int64_t)counts_bytes(counts));
    maker_remove(c, maker, MADE_JOB);
    counts->value &= META_BITS;
}

static void attr_dropped(struct core *c, struct job *j, enum attr_kind kind, struct attr *a) {
    if (kind == ATTR_COUNTS)
        counts_end(c, a);
    if (kind == ATTR_REASONS)
        home_remove(c, a->value, a->small);
    if (kind == ATTR_SOURCE) {
        j->flags &= (uint8_t)~JOB_HAS_SOURCE;
        source_detach(c, a->small);
    }
}

void job_drop_attr(struct core *c, struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    if (!number)
        return;
    attr_unlink(c, j, kind, number);
    if (kind == ATTR_DEADLINE || kind == ATTR_DUE) {
        slab_give(&c->instants, number);
        timer_forget(c);
        return;
    }
    attr_dropped(c, j, kind, slab_at(&c->attrs, number));
    slab_give(&c->attrs, number);
}

// ---- Names ------------------------------------------------------------------------------------

bool job_once(const struct core *c, const struct job *j, struct hash128 *out_name) {
    uint32_t number = attr_find(c, j, ATTR_ONCE);
    if (number)
        *out_name = once_at(c, number);
    return number != 0;
}

struct hash128 once_at(const struct core *c, uint32_t number) {
    struct hash128 name;
    const struct once *o = slab_at(&c->onces, number);
    memcpy(&name, o->name, sizeof name);
    return name;
}

void once_remember(struct core *c, uint32_t number, struct hash128 name) {
    uint32_t once = attr_link(job_at(c, number), ATTR_ONCE, &c->onces);
    memcpy(((struct once *)slab_at(&c->onces, once))->name, &name, sizeof name);
    map_put(&c->once, (uint32_t)name.low, once);
}

void once_release(struct core *c, struct job *j) {
    uint32_t number = attr_find(c, j, ATTR_ONCE);
    if (!number)
        return;
    map_remove(&c->once, (uint32_t)once_at(c, number).low, number);
    attr_unlink(c, j, ATTR_ONCE, number);
    slab_give(&c->onces, number);
}

// ---- Instants ---------------------------------------------------------------------------------

static uint64_t job_instant(const struct core *c, const struct job *j, enum attr_kind kind) {
    uint32_t number = attr_find(c, j, kind);
    uint64_t at_ms = 0;
    if (number)
        memcpy(&at_ms, ((struct instant *)slab_at(&c->instants, number))->at_ms, sizeof at_ms);
    return at_ms;
}

static void instant_set(struct core *c, uint32_t number, uint64_t at_ms) {
    memcpy(((struct instant *)slab_at(&c->instants, number))->at_ms, &at_ms, sizeof at_ms);
}

static void job_set_instant(struct core *c, struct job *j, enum attr_kind kind, uint64_t at_ms) {
    job_drop_attr(c, j, kind);
    instant_set(c, attr_link(j, kind, &c->instants), at_ms);
}

uint64_t job_deadline(const struct core *c, const struct job *j) {
    return job_instant(c, j, ATTR_DEADLINE);
}

uint64_t job_due(const struct core *c, const struct job *j) {
    return job_instant(c, j, ATTR_DUE);
}

void job_set_deadline(struct core *c, uint32_t number, uint64_t at_ms) {
    job_set_instant(c, job_at(c, number), ATTR_DEADLINE, at_ms);
    heap_put(&c->timers, at_ms, timer_value(TIMER_DEADLINE, number));
}

bool job_is_past_deadline(const struct core *c, const struct job *j) {
    uint64_t deadline_ms = job_deadline(c, j);
    return deadline_ms && deadline_ms <= c->now_ms;
}

void job_set_due(struct core *c, uint32_t number, uint64_t due_ms) {
    job_set_instant(c, job_at(c, number), ATTR_DUE, due_ms);
    heap_put(&c->timers, due_ms, timer_value(TIMER_DUE, number));
}

// ---- What a job's attributes say --------------------------------------------------------------

uint32_t job_attempts(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_COUNTS);
    uint32_t own = a ? a->small & UINT16_MAX : 0;
    return own ? own : (uint32_t)stage_of(c, j)->policy.attempts;
}

void job_set_counts(struct core *c, struct job *j, uint32_t attempts, uint32_t meta_size) {
    if (!(attempts | meta_size))
        return;
    struct attr *a = job_add_attr(c, j, ATTR_COUNTS);
    a->small = attempts;
    a->value = meta_size;
}

void job_set_meta_size(struct core *c, struct job *j, uint32_t meta_size) {
    struct attr *a = meta_size ? job_add_attr(c, j, ATTR_COUNTS) : job_attr(c, j, ATTR_COUNTS);
    if (a)
        a->value = (a->value & ~META_BITS) | meta_size;
}

uint32_t job_meta_size(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_COUNTS);
    return a ? (uint32_t)(a->value & META_BITS) : 0;
}

uint64_t job_maker(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_COUNTS);
    return a ? maker_name(c, counts_maker(a)) : 0;
}

uint32_t job_maker_bytes(const struct core *c, const struct job *j) {
    const struct attr *a = job_attr(c, j, ATTR_COUNTS);
    return a && counts_maker(a) ? counts_bytes(a) : 0;
}

void job_set_maker(struct core *c, struct job *j, uint64_t maker, uint32_t bytes) {
    struct attr *a = maker ? job_add_attr(c, j, ATTR_COUNTS) : job_attr(c, j, ATTR_COUNTS);
    if (!a)
        return;
    uint32_t index = maker_add(c, maker, MADE_JOB); // first: it may be the one that it has
    counts_end(c, a);
    if (!index)
        return;
    a->value |= (uint64_t)bytes << MAKER_BYTES_SHIFT | (uint64_t)index << MAKER_SHIFT;
    maker_add_bytes(c, index, bytes);
}

int reasons_of(struct core *c, const struct job *j, struct buffer *out) {
    buffer_clear(out);
    const struct attr *a = job_attr(c, j, ATTR_REASONS);
    if (!a)
        return 0;
    c->steps += STEPS_REASONS;
    int err = c->config.sink.read(c->config.sink.owner, a->value, out);
    if (err < 0)
        buffer_clear(out);
    return err;
}
