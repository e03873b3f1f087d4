// Dedupe by name: a `once` is remembered from the push until the stage's window after the job's
// end. While the job is known the name is an attribute of it; after that it is a struct spent.
#include "core/state.h"

#include "base/errors.h"
#include "base/mutant.h"

static struct hash128 name_at(const struct core *c, uint32_t value) {
    if (value & ONCE_SPENT)
        return ((struct spent *)slab_at(&c->spents, value & ~ONCE_SPENT))->name;
    return once_at(c, value);
}

static uint32_t job_of(const struct core *c, uint32_t once) {
    return attr_job(c, (uint32_t)ATTR_ONCE << ATTR_SHIFT | once);
}

static bool once_has_name(const void *owner, uint32_t value, const void *name) {
    struct hash128 a = name_at(owner, value);
    const struct hash128 *b = name;
    return a.low == b->low && a.high == b->high;
}

static uint32_t once_lookup(const struct core *c, struct hash128 name) {
    return map_find(&c->once, (uint32_t)name.low, once_has_name, c, &name);
}

struct spent *once_spent(const struct core *c, struct hash128 name) {
    uint32_t value = once_lookup(c, name);
    return value & ONCE_SPENT ? slab_at(&c->spents, value & ~ONCE_SPENT) : NULL;
}

static bool window_is_over(const struct core *c, const struct stage *s, uint64_t ended_ms) {
    return ended_ms + s->policy.dedupe_window_ms <= c->now_ms + MUTANT(once_window_off_by_one);
}

// Takes a spent name out of the map; once_sweep frees the entry later.
static void spent_void(struct core *c, uint32_t number) {
    struct spent *sp = slab_at(&c->spents, number);
    if (!sp->id)
        return;
    map_remove(&c->once, (uint32_t)sp->name.low, number | ONCE_SPENT);
    home_remove(c, sp->at, sp->size);
    sp->id = 0;
}

static uint64_t spent_find(struct core *c, struct stage *s, uint32_t number) {
    struct spent *sp = slab_at(&c->spents, number);
    if (!window_is_over(c, s, sp->ended_ms))
        return sp->id;
    spent_void(c, number);
    return 0;
}

uint64_t once_find(struct core *c, struct stage *s, struct hash128 name, uint32_t *out_job) {
    *out_job = 0;
    uint32_t value = once_lookup(c, name);
    if (!value)
        return 0;
    if (value & ONCE_SPENT)
        return spent_find(c, s, value & ~ONCE_SPENT);
    uint32_t number = job_of(c, value);
    struct job *j = job_at(c, number);
    if (j->status == JOB_DONE && window_is_over(c, s, j->time_ms)) {
        once_release(c, j);
        return 0;
    }
    *out_job = number;
    return j->id;
}

void once_displace(struct core *c, struct hash128 name) {
    uint32_t value = once_lookup(c, name);
    if (value & ONCE_SPENT)
        spent_void(c, value & ~ONCE_SPENT);
    else if (value)
        once_release(c, job_at(c, job_of(c, value)));
}

static uint32_t spent_add(struct core *c, struct stage *s, struct spent spent) {
    uint32_t number = slab_take(&c->spents);
    if (!number)
        return 0;
    *(struct spent *)slab_at(&c->spents, number) = spent;
    if (s->last_spent)
        ((struct spent *)slab_at(&c->spents, s->last_spent))->next = number;
    else
        s->first_spent = number;
    s->last_spent = number;
    return number;
}

APART int once_spend(struct core *c, struct stage *s, struct job *j) {
    struct spent spent = { .id = j->id, .ended_ms = j->time_ms, .at = j->at, .size = j->size };
    if (!job_once(c, j, &spent.name) || window_is_over(c, s, j->time_ms))
        return 0;
    uint32_t number = spent_add(c, s, spent);
    if (!number)
        return error_set(MR_ENOMEM, "no memory to remember a name");
    once_release(c, j);
    map_put(&c->once, (uint32_t)spent.name.low,
            number | ONCE_SPENT); // cannot fail: once_release made room
    j->size = 0;                  // its home is now the name's
    return 0;
}

APART uint32_t once_sweep(struct core *c, struct stage *s, uint32_t most) {
    uint32_t count = 0;
    for (; s->first_spent && count < most; count++) {
        uint32_t number = s->first_spent;
        struct spent *sp = slab_at(&c->spents, number);
        if (!window_is_over(c, s, sp->ended_ms)) // also if another job has taken the name:
            break;                               // the sweep is planned for the first in line
        spent_void(c, number);
        s->first_spent = sp->next;
        if (!s->first_spent)
            s->last_spent = 0;
        slab_give(&c->spents, number);
    }
    return count;
}

void onces_forget(struct core *c, struct stage *s) {
    for (uint32_t number = s->first_spent, next; number; number = next) {
        next = ((struct spent *)slab_at(&c->spents, number))->next;
        spent_void(c, number);
        slab_give(&c->spents, number);
    }
    s->first_spent = s->last_spent = 0;
}

void once_set_home(struct core *c, struct spent *sp, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, sp->at, sp->size);
    sp->at = at;
    sp->size = size;
}

// The END of a job that was forgotten is still in the log, in front of the copy of its name. It may
// be trimmed without another copy, so the job is forgotten again, and the copy is the name's home.
static int once_restore_known(struct core *c, struct stage *s, uint32_t number,
                              const struct record *r, uint64_t at, uint32_t size) {
    struct job *j = job_at(c, number);
    int err = j->id == r->id && j->status == JOB_DONE ? once_spend(c, s, j) : 0;
    struct spent *sp = once_spent(c, r->once);
    if (!sp)
        return err; // another job has the name now, or its window is over
    job_forget(c, number);
    once_set_home(c, sp, at, size);
    return 0;
}

int once_restore(struct core *c, struct stage *s, const struct record *r, uint64_t at,
                 uint32_t size) {
    uint32_t value = once_lookup(c, r->once);
    if (value & ONCE_SPENT) {
        once_set_home(c, slab_at(&c->spents, value & ~ONCE_SPENT), at, size);
        return 0;
    }
    if (value)
        return once_restore_known(c, s, job_of(c, value), r, at, size);
    if (MUTANT(once_forgotten_in_replay))
        return 0;
    int err = map_reserve(&c->once, 1);
    if (err < 0)
        return err;
    struct spent spent = {
        .name = r->once, .id = r->id, .ended_ms = r->pushed_ms, .at = at, .size = size
    };
    uint32_t number = spent_add(c, s, spent);
    if (!number)
        return error_set(MR_ENOMEM, "no memory to remember a name");
    home_add(c, at, size);
    map_put(&c->once, (uint32_t)r->once.low, number | ONCE_SPENT);
    return 0;
}
