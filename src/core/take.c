// Take: leases the head of a stage's ready line to the caller, or to the take that has waited
// longest. A waiting take has an entry in the list of every stage it named. A woken stage is served
// at the end of the command, so that exactly as many takes wake as there is work for. A stage that
// only takes have named exists as long as one of them waits.
#include "core/group.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <inttypes.h>

// A waiting take in the list of one stage.
struct taker_entry {
    struct list of_stage;
    struct taker *taker;
    uint32_t stage;
};

// A take, waiting or not.
struct take_request {
    struct conn *conn;
    int64_t lease_ms;
    uint32_t batch;
    bool detached, in_process; // see struct take
    uint64_t bytes;            // granted so far
};

static void grant_fill(const struct core *c, const struct stage *s, const struct job *j,
                       const struct lease *l, struct grant *out) {
    bool has_attrs = job_has_attrs(j);
    uint64_t deadline = has_attrs ? job_deadline(c, j) : 0;
    *out = (struct grant){
        .id = j->id,
        .token = { l->serial, c->random, l->number },
        .stage = bytes_of(s->name, s->name_size),
        .attempt = j->attempt + 1u,
        .left_ms = deadline ? (int64_t)(deadline - c->now_ms) : -1,
        .lease_ms = l->lease_ms,
        .size = j->size,
        .shard = c->config.shard,
        .meta_size = has_attrs ? job_meta_size(c, j) : 0,
        .at = j->at,
    };
    if (job_is_keyed(j)) {
        const struct channel *ch = channel_at(c, j->owner);
        out->key = channel_key(c, ch);
        out->state_at = ch->state ? ((struct state *)slab_at(&c->states, ch->state))->at : 0;
    } else if (j->owner & OWNER_GROUPED) {
        out->key = job_key(c, j);
    }
}

// Reuses the timer of the previous lease in this slot if it fires early enough: it is then set
// again. So the many leases that end in time set no timer, and a beat only moves `until_ms`.
static void lease_plan(struct core *c, struct lease *l) {
    if (l->timer_ms && l->timer_ms < l->until_ms)
        return;
    if (l->timer_ms)
        timer_forget(c);
    lease_set_timer(c, l, l->until_ms, l->order);
}

static int lease_create(struct core *c, struct stage *s, chan ref, uint32_t count,
                        const struct take_request *w, uint32_t *out) {
    int err = heap_reserve(&c->timers, 1);
    if (err < 0)
        return err;
    struct leased *block = NULL;
    if (count > 1 && !(block = mem_alloc(count * sizeof *block)))
        return error_set(MR_ENOMEM, "no memory for a block of %u jobs", count);
    uint32_t number = slab_take_as_is(&c->leases);
    if (!number) {
        mem_free(block);
        return error_set(MR_ENOMEM, "no memory for a lease");
    }
    struct lease *l = lease_at(c, number);
    uint32_t lease_ms = (uint32_t)(w->lease_ms ? w->lease_ms : (int64_t)s->policy.lease_ms);
    *l = (struct lease){ .serial = c->next_serial++,
                         .until_ms = c->now_ms + lease_ms,
                         .timer_ms = l->timer_ms,
                         .timer_order = l->timer_order,
                         .order = heap_order(&c->timers),
                         .number = number,
                         .began_ms = c->now_ms,
                         .lease_ms = lease_ms,
                         .stage = (uint16_t)s->number,
                         .channel = ref,
                         .count = count,
                         .block = block,
                         .conn = w->conn,
                         .detached = w->detached };
    list_init(&l->of_conn);
    if (l->conn) {
        list_append(&l->conn->leases, &l->of_conn);
        l->conn->lease_count++;
        l->conn->held += count;
    }
    lease_plan(c, l);
    *out = number;
    return 0;
}

static void stage_note_wait(const struct core *c, const struct stage *s, const struct job *j) {
    if (s->waits) // NULL without memory: then there are no percentiles
        histogram_add(s->waits, c->now_ms - (j->position >> POSITION_SHIFT));
}

// Whether this job may be part of the block.
static bool block_goes_on(const struct core *c, chan ref, uint64_t bytes, uint32_t job) {
    const struct job *j = job_at(c, job);
    return bytes < c->limits.max_take_bytes && channel_reaches(c, channel_at(c, ref), job) &&
           !(j->flags & JOB_UNREAD) && !job_is_past_deadline(c, j);
}

// How many jobs at the head of a channel go out under one lease, and which is the last.
static uint32_t block_size(const struct core *c, chan ref, uint64_t bytes, uint32_t most,
                           uint32_t *out_last) {
    uint32_t count = ref & CHAN_KEYED ? channel_at(c, ref)->jobs.count : 1, i = 0;
    *out_last = chan_head(c, ref);
    for (uint32_t job = *out_last; i < count && i < most; i++) {
        if (i && !block_goes_on(c, ref, bytes, job))
            break;
        *out_last = job;
        bytes += job_at(c, job)->size;
        job = job_at(c, job)->link.next;
    }
    return i;
}

static uint32_t state_size(const struct core *c, chan ref) {
    uint32_t state = ref & CHAN_KEYED ? channel_at(c, ref)->state : 0;
    return state ? ((const struct state *)slab_at(&c->states, state))->size : 0;
}

// Frees a lease that could not be recorded.
APART static void lease_undo(struct core *c, uint32_t number) {
    struct lease *l = lease_at(c, number);
    if (l->conn) {
        l->conn->lease_count--;
        l->conn->held -= l->count;
        list_remove(&l->of_conn);
    }
    mem_free(l->block);
    l->block = NULL;
    l->count = 0;
    l->serial = 0;
    slab_give(&c->leases, number);
}

// Prefetches the job that is likely to start after the next one.
static void expect_start(const struct core *c, const struct stage *s) {
    chan next = s->ready.head, after = next ? link_of(c, next)->next : 0;
    if (after)
        __builtin_prefetch(job_at(c, chan_head(c, after)), 1);
}

// Leases the channel at the head of ready; fills `out` with `*out_count` grants.
static int take_start(struct core *c, struct stage *s, struct take_request *w, uint32_t most,
                      struct grant *out, uint32_t *out_count) {
    chan ref = s->ready.head;
    if (!s->waits)
        s->waits = mem_alloc(sizeof *s->waits);
    if (!s->runs)
        s->runs = mem_alloc(sizeof *s->runs);
    uint32_t last, lease = 0;
    most = stage_start_most(s, w->batch < most ? w->batch : most);
    if (s->groups && !(most = group_start_most(c, s, most)))
        return MR_ENOMEM;
    uint32_t count = block_size(c, ref, w->bytes, most, &last);
    int err = lease_create(c, s, ref, count, w, &lease);
    if (err == 0 && !MUTANT(detached_lease_not_recorded) &&
        lease_outlives_engine(s, w->detached, w->in_process)) {
        err = lease_record_start(c, lease_at(c, lease), last);
        if (err < 0)
            lease_undo(c, lease);
    }
    if (err < 0)
        return err;
    struct lease *l = lease_at(c, lease);
    channel_move(c, ref, CHANNEL_IN_PROGRESS, AT_TAIL);
    expect_start(c, s);
    link_of(c, ref)->next = lease;
    uint32_t number = chan_head(c, ref);
    for (uint32_t i = 0; i < count; i++) {
        struct job *j = job_at(c, number);
        stage_note_wait(c, s, j);
        if (job_has_attrs(j)) {
            job_drop_attr(c, j, ATTR_DUE);
            j->flags &= (uint8_t)~JOB_RELEASED;
        }
        job_set_status_in(c, s, j, JOB_RUNNING);
        j->serial = l->serial;
        w->bytes += j->size;
        *(l->block ? &l->block[i] : &l->only) = (struct leased){ j->id, number };
        grant_fill(c, s, j, l, &out[i]);
        if (ref & CHAN_KEYED) // the end of this one looks at the next
            __builtin_prefetch(job_at(c, j->link.next), 1);
        if (i > 0 && !MUTANT(state_given_to_all_of_a_block))
            out[i].state_at = 0; // only the first job of a block gets the state
        number = j->link.next;
    }
    w->bytes += state_size(c, ref);
    s->leases++;
    s->leased += count;
    stage_depth_decreased(c, s);
    stage_started(c, s, count);
    if (s->groups)
        group_started(c, s, l);
    l->attempt = out[0].attempt;
    if (c->config.sink.running)
        c->config.sink.running(c->config.sink.owner, out[0].id, out[0].attempt, true);
    *out_count = count;
    return 0;
}

static bool head_is_expired(const struct core *c, const struct stage *s) {
    return s->ready.head && job_is_past_deadline(c, job_at(c, chan_head(c, s->ready.head)));
}

void stage_serve_later(struct core *c, struct stage *s, uint64_t at_ms) {
    bool is_set = s->serve_at_ms && s->serve_at_ms <= at_ms;
    if (is_set || heap_reserve(&c->timers, 1) < 0)
        return;
    if (s->serve_at_ms)
        timer_forget(c);
    s->serve_at_ms = at_ms;
    heap_put(&c->timers, at_ms, timer_value(TIMER_SERVE, s->number));
}

enum { EXPIRED_AT_ONCE = 100 }; // expired jobs ended by one take

APART static int end_expired(struct core *c, struct stage *s) {
    int err = 0;
    for (int i = 0; err == 0 && i < EXPIRED_AT_ONCE && head_is_expired(c, s); i++) {
        err = job_end(c, chan_head(c, s->ready.head), JOB_EXPIRED);
        c->steps += STEPS_DUE;
    }
    if (err < 0 || !head_is_expired(c, s))
        return err;
    stage_serve_later(c, s, c->now_ms + 1); // timers end the rest
    return 1;
}

// Ends expired jobs at the head of ready whose timers were not handled yet. 1: there are more, so
// no job is started now.
static int pass_expired(struct core *c, struct stage *s) {
    return head_is_expired(c, s) ? end_expired(c, s) : 0;
}

// Starts up to `most` jobs of a stage.
static int take_start_some(struct core *c, struct stage *s, struct take_request *w, uint32_t most,
                           struct grant *out, uint32_t *out_count) {
    uint32_t count = 0;
    while (count < most && w->bytes < c->limits.max_take_bytes) {
        uint32_t more = 0;
        int err = pass_expired(c, s);
        if (err > 0 || (err == 0 && (!s->ready.head || !stage_may_start(c, s))))
            break;
        if (err == 0)
            err = take_start(c, s, w, most - count, out + count, &more);
        if (err < 0 && !count)
            return err;
        if (err < 0)
            break;
        count += more;
    }
    *out_count = count;
    return 0;
}

// ---- Waiting ----------------------------------------------------------------------------------

// Sets a timer for a stage that only its rate holds.
static void serve_when_rate_allows(struct core *c, struct stage *s) {
    if (!s->policy.rate_per_h || !s->ready.head || list_empty(&s->takers))
        return;
    if (stage_hold(c, s, NULL) == HOLD_RATE)
        stage_serve_later(c, s, (s->rate_next_us + 999) / 1000);
}

static void taker_stop_waiting(struct core *c, struct taker *t) {
    for (uint32_t i = 0; i < t->entry_count; i++) {
        struct stage *s = c->stages[t->entries[i].stage];
        list_remove(&t->entries[i].of_stage);
        s->taker_count--;
        if (!s->recorded)
            stage_forget_unused(c, bytes_of(s->name, s->name_size));
    }
    list_remove(&t->of_conn);
    mem_free(t->entries);
    t->entries = NULL;
    t->entry_count = 0;
}

// Makes the stages that are not known yet.
static int take_make_stages(struct core *c, const struct take *t, uint32_t *stages) {
    for (size_t i = 0; i < t->stage_count; i++) {
        int err = stages[i] ? 0 : stage_get_if_room(c, t->stages[i], &stages[i]);
        if (err == 0)
            continue;
        while (i--)
            stage_forget_unused(c, t->stages[i]);
        return err;
    }
    return 0;
}

APART static int taker_wait(struct core *c, const struct take *take, uint32_t *stages) {
    struct taker *t = take->taker;
    struct taker_entry *entries = mem_alloc(take->stage_count * sizeof *entries);
    if (!entries)
        return error_set(MR_ENOMEM, "no memory to wait for work");
    c->stages_pinned = true;
    int err = take_make_stages(c, take, stages);
    c->stages_pinned = false;
    if (err < 0) {
        mem_free(entries);
        return err;
    }
    t->entries = entries;
    t->entry_count = (uint32_t)take->stage_count;
    t->count = take->count ? take->count : 1;
    t->batch = take->batch ? take->batch : 1;
    t->lease_ms = take->lease_ms;
    t->detached = take->detached;
    t->in_process = take->in_process;
    t->conn = take->conn;
    list_init(&t->of_conn);
    if (t->conn)
        list_append(&t->conn->takers, &t->of_conn);
    for (uint32_t i = 0; i < t->entry_count; i++) {
        assert(c->stages[stages[i]]->name_size);
        entries[i] = (struct taker_entry){ .taker = t, .stage = stages[i] };
        list_append(&c->stages[stages[i]]->takers, &entries[i].of_stage);
        c->stages[stages[i]]->taker_count++;
        serve_when_rate_allows(c, c->stages[stages[i]]);
    }
    return MR_EAGAIN;
}

void core_take_leave(struct core *c, struct taker *t) {
    taker_stop_waiting(c, t);
}

static struct grant *grants_room(struct core *c, uint32_t count) {
    buffer_clear(&c->grants);
    if (buffer_reserve(&c->grants, count * sizeof(struct grant)) < 0)
        return NULL;
    return (struct grant *)(void *)c->grants.data;
}

enum { SERVED_JOB = 512 }; // what a job counts in `serve_left`, beyond its bytes
enum { STEPS_SERVED = 3, STEP_BYTES_SERVED = 64 }; // its cost, and bytes of it in a step

static void serve_spend(struct core *c, uint32_t jobs, uint64_t bytes) {
    uint64_t spent = bytes + (uint64_t)jobs * SERVED_JOB;
    c->serve_left -= spent < c->serve_left ? spent : c->serve_left;
    c->steps += jobs * STEPS_SERVED + bytes / STEP_BYTES_SERVED;
}

// Grants jobs to a waiting take, in the order of the stages it named.
static int taker_give(struct core *c, struct taker *t) {
    struct grant *grants = grants_room(c, t->count);
    if (!grants)
        return MR_ENOMEM;
    struct take_request w = { .conn = t->conn,
                              .lease_ms = t->lease_ms,
                              .batch = t->batch,
                              .detached = t->detached,
                              .in_process = t->in_process };
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->entry_count && count < t->count; i++) {
        uint32_t more;
        int err = take_start_some(c, c->stages[t->entries[i].stage], &w, t->count - count,
                                  grants + count, &more);
        if (err < 0)
            break;
        count += more;
    }
    if (!count)
        return MR_ENOMEM;
    serve_spend(c, count, w.bytes);
    taker_stop_waiting(c, t);
    if (c->config.events.granted)
        c->config.events.granted(c->config.owner, t, grants, count);
    return 0;
}

// Grants jobs to the waiting takes of a stage, longest wait first. Negative: no memory or no room
// now.
static int stage_serve_takers(struct core *c, struct stage *s) {
    while (!list_empty(&s->takers)) {
        int err = pass_expired(c, s);
        if (err != 0 || !s->ready.head || !stage_may_start(c, s))
            return err;
        if (!c->serve_left) {
            stage_serve_later(c, s, c->now_ms + 1);
            return 0;
        }
        struct taker *t = list_entry(s->takers.next, struct taker_entry, of_stage)->taker;
        bool waits = !c->config.events.reserve || c->config.events.reserve(c->config.owner, t);
        if (!waits)
            taker_stop_waiting(c, t);
        else if ((err = taker_give(c, t)) < 0)
            return err;
    }
    return 0;
}

static void stage_serve(struct core *c, struct stage *s) {
    if (stage_serve_takers(c, s) < 0)
        stage_serve_later(c, s, c->now_ms + RETRY_AFTER_MS);
    serve_when_rate_allows(c, s);
}

APART void settle_woken(struct core *c) {
    while (c->first_dirty) {
        struct stage *s = c->stages[c->first_dirty];
        c->first_dirty = s->next_dirty;
        if (!c->first_dirty)
            c->last_dirty = 0;
        s->dirty = false;
        stage_serve(c, s);
        pushers_notify_room(c, s);
    }
}

// ---- The command ------------------------------------------------------------------------------

static int take_check(const struct core *c, const struct take *t) {
    if (!t->stage_count || t->stage_count > c->limits.max_take_stages)
        return error_set(MR_EINVAL, "a take names 1 to %u stages, not %zu",
                         c->limits.max_take_stages, t->stage_count);
    if (t->count > c->limits.max_take)
        return error_set(MR_EINVAL, "a take of %u jobs is too large: %u at most", t->count,
                         c->limits.max_take);
    if (t->batch > c->limits.max_block)
        return error_set(MR_EINVAL, "a batch of %u jobs is too large: %u at most", t->batch,
                         c->limits.max_block);
    if (t->lease_ms < 0 || t->lease_ms > UINT32_MAX)
        return error_set(MR_EINVAL, "a lease of %" PRId64 " ms is not possible: 0 to 49 days",
                         t->lease_ms);
    return 0;
}

// Finds the stages; 0 for an unknown one, which has no jobs.
static int take_stages(struct core *c, const struct take *t, uint32_t *out) {
    for (size_t i = 0; i < t->stage_count; i++) {
        out[i] = stage_find(c, t->stages[i]);
        int err = out[i] ? 0 : stage_name_check(t->stages[i]);
        if (err < 0)
            return err;
        for (size_t k = 0; k < i; k++)
            if (out[k] == out[i] && bytes_equal(t->stages[k], t->stages[i]))
                return error_set(MR_EINVAL, "a take names stage %.*s twice", (int)t->stages[i].size,
                                 (const char *)t->stages[i].data);
    }
    return 0;
}

int core_take_check(struct core *c, const struct take *t) {
    uint32_t stages[TAKE_STAGES_MOST];
    int err = take_check(c, t);
    return err < 0 ? err : take_stages(c, t, stages);
}

// No job was started: waits if the caller gave a taker.
APART static int take_nothing(struct core *c, const struct take *t, uint32_t *stages, int err) {
    if (!t->taker)
        return err < 0 ? err : MR_EAGAIN;
    if (err == 0)
        err = take_stages(c, t, stages); // again: serving others may have forgotten some
    return err < 0 ? err : taker_wait(c, t, stages);
}

HOT int core_take(struct core *c, const struct take *t, struct grant *out_grants,
                  size_t *out_count) {
    uint32_t stages[TAKE_STAGES_MOST], count = 0, most = t->count ? t->count : 1;
    int err = take_check(c, t);
    if (err < 0)
        return err;
    if ((err = take_stages(c, t, stages)) < 0)
        return err;
    struct take_request w = { .conn = t->conn,
                              .lease_ms = t->lease_ms,
                              .batch = t->batch ? t->batch : 1,
                              .detached = t->detached,
                              .in_process = t->in_process };
    for (size_t i = 0; i < t->stage_count && count < most; i++) {
        uint32_t more = 0;
        if (!stages[i])
            continue;
        err = take_start_some(c, c->stages[stages[i]], &w, most - count, out_grants + count, &more);
        if (err < 0 && !count)
            break;
        count += err < 0 ? 0 : more;
    }
    settle(c);
    if (!count)
        return take_nothing(c, t, stages, err);
    *out_count = count;
    return 0;
}

int core_take_wait(struct core *c, const struct take *t) {
    uint32_t stages[TAKE_STAGES_MOST];
    int err = take_check(c, t);
    if (err == 0)
        err = take_stages(c, t, stages);
    if (err < 0)
        return err;
    err = taker_wait(c, t, stages);
    if (err != MR_EAGAIN)
        return err;
    for (size_t i = 0; i < t->stage_count; i++)
        stage_wake(c, c->stages[stages[i]]);
    settle(c);
    return 0;
}
