// See epic.h.
#include "core/epic.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/limit.h"
#include "core/maker.h"

#include <inttypes.h>

static struct epic_orders *orders_of(const struct core *c, uint32_t source) {
    return source_at(c, source)->orders;
}

bool source_is_over(const struct source *s) {
    return !source_unended(s) && source_is_complete(s);
}

// ---- Timers -----------------------------------------------------------------------------------

// After heap_reserve.
static void orders_set_timer(struct core *c, uint32_t source, uint64_t at_ms) {
    struct epic_orders *o = orders_of(c, source);
    if (o->timer_ms == at_ms)
        return;
    if (o->timer_ms != NO_TIMER)
        timer_forget(c);
    o->timer_ms = at_ms;
    if (at_ms != NO_TIMER)
        heap_put(&c->timers, at_ms, timer_value(TIMER_SOURCES, TIMER_EPIC | source));
}

// Whether its end was not recorded, if it is over.
static bool owes_end(const struct epic_orders *o) {
    return o->then.stage.size || !o->ended_ms;
}

static void orders_plan(struct core *c, uint32_t source) {
    const struct epic_orders *o = orders_of(c, source);
    bool over = source_is_over(source_at(c, source));
    bool now = o->cancelling || (over && owes_end(o));
    bool later = o->forget_ms && o->ended_ms && over;
    orders_set_timer(c, source, now ? c->now_ms : later ? o->ended_ms + o->forget_ms : NO_TIMER);
}

// ---- Making and forgetting --------------------------------------------------------------------

// What orders are made of.
struct orders_parts {
    struct record_epic said;
    mr_bytes key;
};

static struct orders_parts parts_of(const struct epic_orders *o) {
    if (!o)
        return (struct orders_parts){ 0 };
    return (struct orders_parts){ .said = { .cancelled = o->cancelled,
                                            .pushed = o->pushed,
                                            .forget_ms = o->forget_ms,
                                            .ended_ms = o->ended_ms,
                                            .then = o->then.stage,
                                            .body = o->then.body },
                                  .key = o->then.job.key };
}

static mr_bytes orders_put(struct epic_orders *o, mr_bytes text) {
    uint8_t *at = o->text + o->text_size;
    if (text.size)
        memcpy(at, text.data, text.size);
    o->text_size += (uint32_t)text.size;
    return bytes_of(at, text.size);
}

static struct epic_orders *orders_make(const struct orders_parts *p) {
    const struct record_epic *said = &p->said;
    size_t size = said->then.size + p->key.size + said->body.size;
    struct epic_orders *o = mem_alloc(sizeof *o + size);
    if (!o) {
        (void)error_set(MR_ENOMEM, "no memory for the orders of an epic");
        return NULL;
    }
    *o = (struct epic_orders){ .timer_ms = NO_TIMER,
                               .cancelled = said->cancelled,
                               .pushed = said->pushed,
                               .forget_ms = said->forget_ms,
                               .ended_ms = said->ended_ms };
    o->then.stage = orders_put(o, said->then);
    o->then.job.key = orders_put(o, p->key);
    o->then.body = orders_put(o, said->body);
    return o;
}

static uint64_t orders_bytes(const struct epic_orders *o) {
    return sizeof *o + o->text_size + o->found.capacity * sizeof *o->found.entries;
}

static void orders_set_home(struct core *c, struct epic_orders *o, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, o->at, o->size);
    o->at = at;
    o->size = size;
}

// The stage that THEN pushes to stays known.
static void orders_hold(struct core *c, struct epic_orders *o, uint32_t stage) {
    if (o->then_stage)
        c->stages[o->then_stage]->thens--;
    o->then_stage = stage;
    if (stage)
        c->stages[stage]->thens++;
}

static void orders_end_search(struct core *c, struct epic_orders *o) {
    c->orders_bytes -= o->found.capacity * sizeof *o->found.entries;
    heap_finish(&o->found);
    o->found = (struct heap){ 0 };
    o->searched = 0;
    o->cancelling = false;
}

static void orders_free(struct core *c, struct epic_orders *o) {
    orders_end_search(c, o);
    orders_hold(c, o, 0);
    home_remove(c, o->at, o->size);
    c->orders_bytes -= orders_bytes(o);
    mem_free(o);
}

void orders_forget(struct core *c, uint32_t source) {
    struct epic_orders *o = orders_of(c, source);
    if (!o)
        return;
    struct stage *then = o->then_stage ? c->stages[o->then_stage] : NULL;
    orders_set_timer(c, source, NO_TIMER);
    source_at(c, source)->orders = NULL;
    orders_free(c, o);
    if (then)
        stage_drop_if_idle(c, then);
}

void orders_finish(struct core *c, uint32_t source) {
    if (orders_of(c, source))
        heap_finish(&orders_of(c, source)->found);
    mem_free(orders_of(c, source));
}

// Puts new orders, whose home is known, in the place of the old ones.
static void orders_assign(struct core *c, uint32_t source, struct epic_orders *now) {
    struct source *s = source_at(c, source);
    if (s->orders) {
        orders_set_timer(c, source, NO_TIMER);
        orders_free(c, s->orders);
    }
    s->orders = now;
    c->orders_bytes += orders_bytes(now);
}

static struct record record_of_orders(const struct core *c, uint32_t source, uint32_t stage,
                                      const struct orders_parts *p, struct record_about *about) {
    about->epic = p->said;
    return (struct record){ .kind = RECORD_EPIC,
                            .time_ms = c->now_ms,
                            .stage = stage,
                            .source = source_at(c, source)->number,
                            .key = p->key,
                            .about = about };
}

// ---- The end ----------------------------------------------------------------------------------

static void epic_end_of(const struct core *c, uint32_t source, struct epic_end *out) {
    const struct epic_orders *o = orders_of(c, source);
    if (!o->then.stage.size && !o->forget_ms && (!o->cancelled || o->ended_ms))
        return;
    out->source = source;
    out->then = o->then.stage.size ? &o->then : NULL;
    uint64_t maker = maker_name(c, source_at(c, source)->maker);
    out->then_maker = out->then && maker_counts_jobs(c, maker) ? maker : 0;
}

APART void epic_end_find(const struct core *c, const struct job *j, struct epic_end *out) {
    uint32_t source = job_attr(c, j, ATTR_SOURCE)->small;
    const struct source *s = source_at(c, source);
    if (s->orders && j->status < JOB_DONE && source_unended(s) == 1 &&
        (source_is_complete(s) || MUTANT(then_before_the_epic_is_complete)))
        epic_end_of(c, source, out);
}

int epic_end_reserve(struct core *c, uint32_t emits) {
    return heap_reserve(&c->timers, (size_t)emits * TIMERS_PER_JOB + 1);
}

static uint64_t then_hash(const struct emit *then) {
    return bytes_hash(then->stage, bytes_hash(then->job.key, bytes_hash(then->body, 0))) | 1;
}

void epic_end_add(struct core *c, struct epic_end *e) {
    struct orders_parts p = parts_of(orders_of(c, e->source));
    struct record_about about;
    p.said.ended_ms = c->now_ms;
    if (e->then && !MUTANT(then_not_recorded_as_pushed)) {
        p.said.pushed = then_hash(e->then);
        p.said.then = p.said.body = p.key = (mr_bytes){ 0 };
    }
    struct record r = record_of_orders(c, e->source, source_at(c, e->source)->stage, &p, &about);
    e->entry = c->out.count;
    out_add(c, &r, (mr_bytes){ 0 });
}

// The push of THEN may still be applied: its texts stay where they are.
void epic_end_note(struct core *c, const struct epic_end *e) {
    struct epic_orders *o = orders_of(c, e->source);
    orders_set_home(c, o, c->out.at[e->entry], out_size(c, e->entry));
    orders_end_search(c, o);
    orders_hold(c, o, 0);
    o->ended_ms = c->now_ms;
    if (e->then)
        o->pushed = then_hash(e->then);
    o->then.stage.size = o->then.job.key.size = o->then.body.size = 0;
    orders_set_timer(c, e->source, o->forget_ms ? o->ended_ms + o->forget_ms : NO_TIMER);
}

static int epic_finish_prepare(struct core *c, struct epic_finish *f) {
    int err = 0;
    if (f->ends.then) {
        c->stages_pinned = true;
        err = emits_prepare(c, &f->emits, NULL, 0, f->ends.then, f->ends.then_maker);
        c->stages_pinned = false;
    }
    if (err == 0)
        err = epic_end_reserve(c, f->emits.count);
    if (err < 0) {
        emits_undo(c, &f->emits);
        f->ends.source = 0;
    }
    return err;
}

APART int epic_finish_job(struct core *c, const struct job *j, struct epic_finish *f) {
    epic_end_find(c, j, &f->ends);
    return f->ends.source ? epic_finish_prepare(c, f) : 0;
}

int epic_finish_source(struct core *c, uint32_t source, bool was_over, struct epic_finish *f) {
    const struct source *s = source_at(c, source);
    if (s->orders && source_is_over(s) && (!was_over || owes_end(s->orders)))
        epic_end_of(c, source, &f->ends);
    return f->ends.source ? epic_finish_prepare(c, f) : 0;
}

void epic_finish_sizes(const struct epic_finish *f, size_t *records, size_t *bytes) {
    size_t joined = 0; // THEN has no META
    emits_sizes(&f->emits, records, bytes, &joined);
    *records += f->ends.source != 0;
    *bytes += f->ends.source ? 2 * (size_t)RECORD_MAX : 0;
}

void epic_finish_add(struct core *c, struct epic_finish *f) {
    if (!f->ends.source)
        return;
    emits_add_stages(c, &f->emits);
    emits_add(c, &f->emits);
    epic_end_add(c, &f->ends);
}

int epic_finish_written(struct core *c, struct epic_finish *f, int err) {
    if (!f->ends.source)
        return err;
    emits_written(c, &f->emits, err);
    if (err < 0)
        emits_undo(c, &f->emits);
    else
        epic_end_note(c, &f->ends);
    return err;
}

void epic_finish_apply(struct core *c, struct epic_finish *f) {
    if (f->ends.source)
        emits_apply(c, &f->emits, 0, 0);
}

void epic_settle(struct core *c, uint32_t source) {
    struct epic_finish f = { 0 };
    size_t records = 0, bytes = 0;
    int err = epic_finish_source(c, source, true, &f);
    if (err == 0 && !f.ends.source)
        return;
    epic_finish_sizes(&f, &records, &bytes);
    if (err == 0 && (err = out_begin(c, records, bytes)) == 0) {
        epic_finish_add(c, &f);
        err = out_commit(c, ROOM_COMMIT);
    }
    if (epic_finish_written(c, &f, err) == 0)
        epic_finish_apply(c, &f);
    else
        orders_set_timer(c, source, c->now_ms + RETRY_AFTER_MS);
}

// ---- CANCEL -----------------------------------------------------------------------------------

enum { SEARCHED = 64 }; // jobs looked at, at the cost of ending one

// An unended job of the epic.
static bool is_job_of(const struct core *c, uint32_t number, uint32_t source) {
    const struct job *j = job_at(c, number);
    return j->flags & JOB_HAS_SOURCE && j->status < JOB_DONE && job_find(c, j->id) == number &&
           job_attr(c, j, ATTR_SOURCE)->small == source;
}

static int cancel_search_some(struct core *c, uint32_t source) {
    struct epic_orders *o = orders_of(c, source);
    size_t before = o->found.capacity;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < SEARCHED && o->searched + 1 < c->jobs.next_new; i++) {
        uint32_t number = o->searched + 1;
        if (is_job_of(c, number, source) && (err = heap_reserve(&o->found, 1)) == 0)
            heap_put(&o->found, job_at(c, number)->id, number);
        o->searched += err == 0;
    }
    c->orders_bytes += (o->found.capacity - before) * sizeof *o->found.entries;
    return err;
}

// Ends the next job that was found, if it has not ended since.
static int cancel_next(struct core *c, uint32_t source) {
    struct epic_orders *o = orders_of(c, source);
    struct heap_entry e = heap_pop(&o->found);
    bool is_left = is_job_of(c, e.value, source) && job_at(c, e.value)->id == e.at_ms;
    int err = is_left ? job_end(c, e.value, JOB_CANCELLED) : 0;
    if (err < 0)
        heap_put(&o->found, e.at_ms, e.value); // the popped entry left room
    return err;
}

// Does some of it, at most as much as `most` ends cost; returns that. All jobs are found before the
// first is ended, so that they end in the order of their ids. Jobs that were retried meanwhile are
// found by another search.
static uint32_t cancel_some(struct core *c, uint32_t source, uint32_t most) {
    struct epic_orders *o = orders_of(c, source);
    uint32_t used = 0;
    int err = 0;
    for (; err == 0 && o->cancelling && used < most; used++) {
        if (o->searched + 1 < c->jobs.next_new)
            err = cancel_search_some(c, source);
        else if (o->found.count)
            err = cancel_next(c, source);
        else if (source_unended(source_at(c, source)))
            o->searched = 0;
        else
            orders_end_search(c, o);
    }
    if (o->cancelling)
        orders_set_timer(c, source, c->now_ms + (err < 0 ? RETRY_AFTER_MS : 0));
    return used;
}

// The popped entry left room for another.
int epic_fires(struct core *c, uint32_t source) {
    struct epic_orders *o = orders_of(c, source);
    o->timer_ms = NO_TIMER;
    if (o->cancelling) {
        due_spend(c, cancel_some(c, source, c->due_left + 1));
        return 0;
    }
    if (!source_is_over(source_at(c, source)))
        return 0; // a dead job was retried: its end sets the timer again
    if (owes_end(o))
        epic_settle(c, source);
    else if (o->forget_ms && source_drop(c, source) < 0)
        orders_set_timer(c, source, c->now_ms + RETRY_AFTER_MS);
    return 0;
}

// ---- Commands ---------------------------------------------------------------------------------

// A change of the orders of an epic, as it is made.
struct orders_change {
    uint32_t source, stage; // the epic's
    uint32_t then_stage;    // 0: nothing is pushed, or was pushed already
    struct orders_parts parts;
    struct epic_orders *now;
};

static void add_stage_record(struct core *c, struct stage *s) {
    struct record_about about;
    struct record r = record_of_stage(c, s, &about);
    stage_set_home(c, s, c->out.count, 0); // `at` is the index in the group for now
    out_add(c, &r, (mr_bytes){ 0 });
}

static void stage_record_written(struct core *c, struct stage *s, int err) {
    if (err < 0)
        s->recorded = false;
    else
        stage_set_home(c, s, c->out.at[s->at], out_size(c, s->at));
}

// The group: the stages and the epic, if they are new, then its orders.
static int change_write(struct core *c, const struct orders_change *ch, enum room room) {
    struct source *s = source_at(c, ch->source);
    struct stage *stage = c->stages[ch->stage];
    struct stage *then = ch->then_stage ? c->stages[ch->then_stage] : stage;
    struct record_about about;
    int err = out_begin(c, 4, 4 * (size_t)RECORD_MAX);
    if (err < 0)
        return err;
    bool new_stage = !stage->recorded;
    if (new_stage)
        add_stage_record(c, stage);
    bool new_then = !then->recorded;
    if (new_then)
        add_stage_record(c, then);
    bool new_source = !s->size || !s->stage;
    size_t entry = c->out.count;
    struct record r = record_of_source(c, s, ch->stage, &about);
    if (new_source)
        out_add(c, &r, (mr_bytes){ 0 });
    r = record_of_orders(c, ch->source, ch->stage, &ch->parts, &about);
    out_add(c, &r, (mr_bytes){ 0 });
    err = out_commit(c, room);
    if (new_stage)
        stage_record_written(c, stage, err);
    if (new_then)
        stage_record_written(c, then, err);
    if (err < 0)
        return err;
    if (new_source) {
        source_set_home(c, s, c->out.at[entry], out_size(c, entry));
        source_adopt(c, ch->source, ch->stage);
    }
    return 0;
}

static int change_make(struct core *c, struct orders_change *ch, enum room room) {
    int err = heap_reserve(&c->timers, 1);
    if (err < 0)
        return err;
    ch->now = orders_make(&ch->parts);
    if (!ch->now)
        return MR_ENOMEM;
    if ((err = change_write(c, ch, room)) < 0) {
        mem_free(ch->now);
        return err;
    }
    size_t last = c->out.count - 1;
    orders_assign(c, ch->source, ch->now);
    orders_set_home(c, ch->now, c->out.at[last], out_size(c, last));
    orders_hold(c, ch->now, ch->then_stage);
    return 0;
}

static int then_check(struct core *c, const struct emit *then) {
    struct push push = { .stage = then->stage, .body = then->body, .job = then->job };
    int err = stage_name_check(then->stage);
    if (err < 0)
        return err;
    if (then->body.size > THEN_BODY_MOST)
        return error_set(MR_ETOOBIG, "a body of THEN of %zu bytes is too large: %d at most",
                         then->body.size, THEN_BODY_MOST);
    return push_check(c, &push);
}

static int epic_then_try(struct core *c, mr_bytes stage, mr_bytes name, const struct emit *then) {
    struct orders_change ch = { 0 };
    int err = epic_get(c, stage, name, &ch.stage, &ch.source);
    if (err < 0)
        return err;
    const struct epic_orders *o = orders_of(c, ch.source);
    if (o && o->pushed == then_hash(then))
        return 0;
    if (o && o->pushed)
        return error_set(MR_EINVAL, "this epic has ended and has pushed another THEN: EPIC … DROP "
                                    "it to use its name again");
    if ((err = memory_check(c, RECORD_MAX)) < 0)
        return err;
    if ((err = stage_get_if_room(c, then->stage, &ch.then_stage)) < 0)
        return err;
    ch.parts = parts_of(o);
    ch.parts.said.then = then->stage;
    ch.parts.said.body = then->body;
    ch.parts.key = then->job.key;
    if ((err = change_make(c, &ch, ROOM_PUSH)) < 0)
        return err;
    orders_plan(c, ch.source);
    if (source_is_over(source_at(c, ch.source)))
        epic_settle(c, ch.source);
    return 0;
}

int core_epic_then(struct core *c, mr_bytes stage, mr_bytes name, const struct emit *then) {
    int err = then_check(c, then);
    if (err < 0)
        return err;
    uint64_t next = c->next_source;
    if ((err = epic_then_try(c, stage, name, then)) < 0) {
        stage_forget_unused(c, then->stage);
        return epic_refused(c, next, stage, err);
    }
    settle(c);
    return 0;
}

static int epic_forget_try(struct core *c, mr_bytes stage, mr_bytes name, uint64_t after_ms) {
    struct orders_change ch = { 0 };
    int err = epic_get(c, stage, name, &ch.stage, &ch.source);
    if (err < 0)
        return err;
    const struct epic_orders *o = orders_of(c, ch.source);
    ch.parts = parts_of(o);
    ch.then_stage = o ? o->then_stage : 0;
    ch.parts.said.forget_ms = after_ms;
    if (source_is_over(source_at(c, ch.source)))
        ch.parts.said.ended_ms = c->now_ms;
    bool cancelling = o && o->cancelling;
    if ((err = change_make(c, &ch, ROOM_COMMIT)) < 0)
        return err;
    ch.now->cancelling = cancelling; // its search begins again
    orders_plan(c, ch.source);
    return 0;
}

int core_epic_forget(struct core *c, mr_bytes stage, mr_bytes name, uint64_t after_ms) {
    if (after_ms && (after_ms < FORGET_LEAST_MS || after_ms > TIME_MOST_MS))
        return error_set(MR_EINVAL,
                         "an epic cannot be dropped %" PRIu64 " ms after its end: %d ms to 100 "
                         "years, or 0 to keep it",
                         after_ms, FORGET_LEAST_MS);
    uint64_t next = c->next_source;
    int err = epic_forget_try(c, stage, name, after_ms);
    return err < 0 ? epic_refused(c, next, stage, err) : 0;
}

int core_epic_cancel(struct core *c, mr_bytes stage, mr_bytes name) {
    struct orders_change ch = { 0 };
    if (!source_find_epic(c, stage, name))
        return epic_unknown(stage, name);
    int err = epic_get(c, stage, name, &ch.stage, &ch.source);
    if (err < 0)
        return err;
    struct source *s = source_at(c, ch.source);
    if (s->orders && (s->orders->cancelling || (s->orders->cancelled && source_is_over(s))))
        return 0;
    ch.parts = parts_of(s->orders);
    ch.then_stage = s->orders ? s->orders->then_stage : 0;
    ch.parts.said.cancelled = true;
    ch.parts.said.ended_ms = 0;
    if ((err = change_make(c, &ch, ROOM_COMMIT)) < 0)
        return err;
    ch.now->cancelling = source_unended(s) != 0;
    orders_plan(c, ch.source);
    c->steps += STEPS_DUE * (uint64_t)cancel_some(c, ch.source, c->limits.max_due);
    if (source_is_over(s) && owes_end(s->orders))
        epic_settle(c, ch.source);
    watchers_notify_all(c, s);
    settle(c);
    return 0;
}

// ---- Records ----------------------------------------------------------------------------------

int orders_check(const struct record *r, uint32_t body_size) {
    const struct record_epic *a = &r->about->epic;
    int err = record_check_epic(r);
    if (err < 0)
        return err;
    if (!r->source || !r->stage || body_size)
        return error_set(MR_ECORRUPT, "the orders of an epic without a stage, or with a body");
    if (a->then.size && stage_name_check(a->then) < 0)
        return MR_ECORRUPT;
    if (a->then.size ? a->pushed != 0 : a->body.size || r->key.size)
        return error_set(MR_ECORRUPT, "epic %" PRIu64 " has a THEN that is not possible",
                         r->source);
    if (a->ended_ms > r->time_ms || (a->forget_ms && a->forget_ms < FORGET_LEAST_MS))
        return error_set(MR_ECORRUPT, "epic %" PRIu64 " is dropped at an impossible time",
                         r->source);
    return 0;
}

// After replay the stage of THEN is found, and what was begun goes on.
int orders_restore(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct orders_parts p = { r->about->epic, r->key };
    struct epic_orders *o = orders_make(&p);
    uint32_t source = 0;
    if (!o)
        return MR_ENOMEM;
    int err = source_restore(c, r, &source);
    if (err < 0) {
        mem_free(o);
        return err;
    }
    orders_assign(c, source, o);
    orders_set_home(c, o, at, size);
    return 0;
}

int orders_copy(struct core *c, uint32_t source) {
    struct epic_orders *o = orders_of(c, source);
    struct orders_parts p = parts_of(o);
    struct record_about about;
    struct record r = record_of_orders(c, source, source_at(c, source)->stage, &p, &about);
    r.copy = true;
    int err = out_write(c, &r, ROOM_CLEAN);
    if (err == 0)
        orders_set_home(c, o, c->out.at[0], out_size(c, 0));
    return err;
}

// The stage of THEN may live in another shard since the store was copied: then it is made when THEN
// is pushed.
int epics_open(struct core *c) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < c->sources.next_new; i++) {
        const struct source *s = source_at(c, i);
        if (!s->in_use || !s->orders || (err = heap_reserve(&c->timers, 1)) < 0)
            continue;
        if (s->orders->then.stage.size)
            orders_hold(c, s->orders, stage_find(c, s->orders->then.stage));
        s->orders->cancelling = s->orders->cancelled && !s->orders->ended_ms && source_unended(s);
        orders_plan(c, i);
    }
    return err;
}
