// Timers: one heap for everything that happens at an instant. Entries are not removed when they
// become obsolete: timer_is_current checks an entry when it fires. When many are, each one more has
// a few entries looked at, so that no command pays for all of them.
//
// One core_advance handles a bounded number of due timers. The clock still moves on, so that
// leases, deadlines and waits that begin meanwhile are not cut short; the rest is handled by later
// calls. Commands that start or end a job check its deadline themselves. Only the order within a
// channel needs care: the position of a delayed job is the instant it is due, so a push to its
// channel that comes before it is delivered is delayed too (push_plan_due).
#include "core/epic.h"
#include "core/group.h"

#include "base/mutant.h"

static uint32_t timer_kind(struct heap_entry e) {
    return e.value >> ATTR_SHIFT;
}

static uint32_t timer_number(struct heap_entry e) {
    return e.value & ATTR_NUMBER;
}

static const struct job *job_if_known(const struct core *c, uint32_t number) {
    if (number >= c->jobs.next_new)
        return NULL;
    const struct job *j = job_at(c, number);
    return job_find(c, j->id) == number ? j : NULL;
}

// NO_TIMER: it has none.
static uint64_t orders_timer(const struct core *c, uint32_t source) {
    const struct source *s = source_at(c, source);
    return s->in_use && s->orders ? s->orders->timer_ms : NO_TIMER;
}

static bool timer_is_current(const void *owner, struct heap_entry e) {
    const struct core *c = owner;
    uint32_t number = timer_number(e);
    const struct job *j;
    switch ((enum timer)timer_kind(e)) {
    case TIMER_DEADLINE: // at_ms is later than the deadline after a retry
        j = job_if_known(c, number);
        return j && job_deadline(c, j) && job_deadline(c, j) <= e.at_ms;
    case TIMER_DUE:
        j = job_if_known(c, number);
        return j && job_due(c, j) == e.at_ms;
    case TIMER_GRACE:
        return job_if_known(c, number) != NULL;
    case TIMER_LEASE:
        return lease_at(c, number)->timer_ms == e.at_ms &&
               lease_at(c, number)->timer_order == e.order;
    case TIMER_SWEEP:
        return c->stages[number]->sweep_at_ms == e.at_ms;
    case TIMER_SERVE:
        return (number & SERVE_GROUP ? group_at(c, number & ~SERVE_GROUP)->timer_ms
                                     : c->stages[number]->serve_at_ms) == e.at_ms;
    case TIMER_SOURCES:
        return !(number & TIMER_EPIC) || orders_timer(c, number & ~TIMER_EPIC) == e.at_ms;
    }
    return false;
}

enum { TIDIED = 4, STEPS_TIDIED = 10 }; // timers looked at for one that is forgotten; their cost

APART void timers_tidy(struct core *c) {
    if (c->replaying)
        return;
    heap_filter_some(&c->timers, timer_is_current, c, TIDIED);
    c->steps += STEPS_TIDIED;
}

static int deadline_fires(struct core *c, uint32_t number) {
    if (MUTANT(deadline_ignored))
        return 0;
    return job_at(c, number)->status < JOB_DONE ? job_end(c, number, JOB_EXPIRED) : 0;
}

void job_comes_due(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    chan ref = chan_of(c, number);
    if (j->status == JOB_DELAYED) {
        job_line_remove(c, &stage_of(c, j)->delayed, number);
        job_set_status(c, j, JOB_WAITING);
        channel_deliver(c, number);
        if (ref & CHAN_KEYED)
            channel_unpin(c, ref);
    } else if (chan_state(c, ref) == CHANNEL_PARKED) {
        channel_resolve(c, ref, AT_TAIL);
    }
}

static int due_fires(struct core *c, uint32_t number) {
    job_drop_attr(c, job_at(c, number), ATTR_DUE);
    c->timers.idle -= c->timers.idle > 0; // job_drop_attr counted its timer, but it was popped
    job_comes_due(c, number);
    return 0;
}

void lease_set_timer(struct core *c, struct lease *l, uint64_t at_ms, uint32_t order) {
    l->timer_ms = at_ms;
    l->timer_order = order;
    heap_put_as(&c->timers, at_ms, order, timer_value(TIMER_LEASE, l->number));
}

static int lease_timer_fires(struct core *c, uint32_t number) {
    struct lease *l = lease_at(c, number);
    l->timer_ms = 0;
    if (!l->count)
        return 0; // the lease has ended, and the slot is free
    due_spend(c, l->count / 8);
    if (l->lost)
        return lease_lose(c, number, LEASE_LOST, false);
    if (l->until_ms <= c->now_ms)
        return lease_lose(c, number, "the lease ran out", true);
    lease_set_timer(c, l, l->until_ms, l->order); // cannot fail: an entry was just popped
    return 0;
}

void timer_retry(struct core *c, enum timer kind, uint32_t number) {
    uint64_t at_ms = c->now_ms + RETRY_AFTER_MS;
    if (kind == TIMER_LEASE && lease_at(c, number)->timer_ms <= at_ms)
        return; // its timer fires earlier anyway
    if (heap_reserve(&c->timers, 1) < 0)
        return; // then a lease ends by its time, and an unwanted call is still run
    if (kind == TIMER_LEASE)
        lease_set_timer(c, lease_at(c, number), at_ms, heap_order(&c->timers));
    else
        heap_put(&c->timers, at_ms, timer_value(kind, number));
}

static int sweep_fires(struct core *c, struct stage *s) {
    s->sweep_at_ms = 0;
    due_spend(c, stage_sweep(c, s, c->due_left + 1));
    if (c->room_pushes)
        memory_wake(c);
    stage_plan_sweep(c, s);
    uint32_t idle = s->idle.count;
    if (!s->sweep_at_ms)
        stage_drop_if_idle(c, s);
    if (!s->name_size)
        due_spend(c, idle / 8); // channels that went with it
    return 0;
}

static void serve_fires(struct core *c, struct stage *s) {
    s->serve_at_ms = 0;
    if (s->groups)
        groups_refresh(c, s);
    stage_wake(c, s);
}

static int timer_fires(struct core *c, struct heap_entry e) {
    uint32_t number = timer_number(e);
    switch ((enum timer)timer_kind(e)) {
    case TIMER_DEADLINE:
        return deadline_fires(c, number);
    case TIMER_DUE:
        return due_fires(c, number);
    case TIMER_GRACE:
        return job_grace_over(c, number);
    case TIMER_LEASE:
        return lease_timer_fires(c, number);
    case TIMER_SWEEP:
        return sweep_fires(c, c->stages[number]);
    case TIMER_SERVE:
        if (number & SERVE_GROUP)
            group_fires(c, number & ~SERVE_GROUP);
        else
            serve_fires(c, c->stages[number]);
        return 0;
    case TIMER_SOURCES:
        if (number & TIMER_EPIC)
            return epic_fires(c, number & ~TIMER_EPIC);
        source_sweep(c);
        return 0;
    }
    return 0;
}

// Puts back a timer that could not be handled; the popped entry left room.
static void timer_put_back(struct core *c, struct heap_entry e, uint64_t at_ms) {
    if (timer_kind(e) == TIMER_LEASE)
        lease_set_timer(c, lease_at(c, timer_number(e)), at_ms, heap_order(&c->timers));
    else
        heap_put(&c->timers, at_ms, e.value);
}

int core_advance(struct core *c, uint64_t now_ms) {
    int first_err = 0;
    size_t put_back = 0;
    if (now_ms < c->now_ms)
        now_ms = c->now_ms;
    c->due_left = c->limits.max_due;
    c->serve_left = c->serve_most;
    while (c->due_left && heap_next(&c->timers) <= now_ms) {
        struct heap_entry e = heap_pop(&c->timers);
        due_spend(c, 1);
        bool counts = timer_is_current(c, e);
        if (!counts) {
            c->timers.idle -= c->timers.idle > 0;
            continue;
        }
        if (e.at_ms > c->now_ms)
            c->now_ms = e.at_ms;
        int err = timer_fires(c, e);
        if (err < 0) {
            first_err = first_err ? first_err : err;
            timer_put_back(c, e, now_ms + RETRY_AFTER_MS + put_back++ / 1024);
        }
        settle(c);
    }
    c->now_ms = now_ms;
    if (heap_next(&c->timers) <= now_ms)
        c->late_ms = c->now_ms;
    return first_err;
}

uint64_t core_next(const struct core *c) {
    return heap_next(&c->timers);
}

uint64_t core_epoch(const struct core *c) {
    return c->epoch;
}

uint64_t core_now(const struct core *c) {
    return c->now_ms;
}
