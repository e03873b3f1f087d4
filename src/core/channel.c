// Channels: found by stage and key, moved between states by channel_move, put in the right state by
// channel_resolve. A channel without work is kept while it holds state or is pinned by a delayed or
// dead job, or is paused. A few idle ones are cached for their next job, but are reported as
// unknown.
//
// Ready order. After an end a channel goes to the tail of ready. A job that comes back unserved
// (released, connection lost) returns to the head. After a restart channels are ordered by their
// first jobs.
#include "core/group.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <assert.h>

enum { IDLE_KEPT = 1024 };

static uint32_t channel_hash(uint32_t stage, mr_bytes key) {
    return (uint32_t)bytes_hash(key, stage);
}

struct channel_name {
    uint32_t stage;
    mr_bytes key;
};

static bool channel_has_name(const void *owner, uint32_t number, const void *name) {
    const struct channel *ch = channel_at(owner, number);
    const struct channel_name *n = name;
    return ch->stage == n->stage && bytes_equal(channel_key(owner, ch), n->key);
}

chan channel_find(const struct core *c, uint32_t stage, mr_bytes key) {
    struct channel_name name = { stage, key };
    uint32_t number = map_find(&c->by_key, channel_hash(stage, key), channel_has_name, c, &name);
    return number ? number | CHAN_KEYED : 0;
}

APART static void channel_free(struct core *c, chan ref) {
    struct channel *ch = channel_at(c, ref);
    job_line_remove(c, &c->stages[ch->stage]->idle, ref);
    map_remove(&c->by_key, channel_hash(ch->stage, channel_key(c, ch)), ref & ~CHAN_KEYED);
    uint32_t group = ch->grouped ? channel_group(c, ch) : 0;
    pool_remove(&c->keys, ch->key);
    if (group) {
        c->stages[ch->stage]->groups->recent = 0;
        group_release(c, group);
    }
    ch->key = 0;
    slab_give(&c->channels, ref & ~CHAN_KEYED);
}

void channels_forget_idle(struct core *c, struct stage *s) {
    for (; s->idle.head; c->steps++)
        channel_free(c, s->idle.head);
}

// At the limit of channels, cached idle ones are freed first.
static void forget_an_idle_one(struct core *c) {
    for (uint32_t i = 1; i <= c->stage_count; i++)
        if (c->stages[i] && c->stages[i]->idle.head) {
            channel_free(c, c->stages[i]->idle.head);
            return;
        }
}

APART static int channel_create(struct core *c, uint32_t stage, mr_bytes key, chan *out) {
    int err = map_reserve(&c->by_key, 1);
    if (err < 0)
        return err;
    if (c->channels.used >= c->channels.limit)
        forget_an_idle_one(c);
    if ((err = slab_reserve(&c->channels, 1)) < 0)
        return err;
    bool grouped = c->stages[stage]->groups;
    uint32_t copy = grouped ? group_add_key(c, stage, key, &err) : pool_add(&c->keys, key);
    if (!copy)
        return err < 0 ? err : error_set(MR_ENOMEM, "no memory for a channel");
    uint32_t number = slab_take(&c->channels);
    struct channel *ch = channel_at(c, number);
    ch->stage = (uint16_t)stage;
    ch->key = copy;
    ch->grouped = grouped;
    ch->channel_state = CHANNEL_DORMANT;
    map_put(&c->by_key, channel_hash(stage, key), number);
    channel_check_idle(c, number | CHAN_KEYED);
    *out = number | CHAN_KEYED;
    return 0;
}

int channel_get(struct core *c, uint32_t stage, mr_bytes key, chan *out) {
    chan found = channel_find(c, stage, key);
    if (!found)
        return channel_create(c, stage, key, out);
    *out = found;
    return 0;
}

static bool is_used(const struct channel *ch) {
    return ch->channel_state != CHANNEL_DORMANT || ch->jobs.count || ch->pins || ch->state ||
           ch->paused;
}

bool channel_is_known(const struct core *c, chan ref) {
    return !(ref & CHAN_KEYED) || is_used(channel_at(c, ref));
}

// Updates the stage's line of idle channels, and keeps it short.
void channel_check_idle(struct core *c, chan ref) {
    struct channel *ch = channel_at(c, ref);
    struct job_line *idle = &c->stages[ch->stage]->idle;
    if (ch->idle == !is_used(ch))
        return;
    if (ch->idle)
        job_line_remove(c, idle, ref);
    else
        job_line_add(c, idle, ref, AT_TAIL);
    ch->idle = !ch->idle;
    if (idle->count > IDLE_KEPT)
        channel_free(c, idle->head);
}

void channel_pin(struct core *c, chan ref) {
    channel_at(c, ref)->pins++;
    channel_check_idle(c, ref);
}

void channel_unpin(struct core *c, chan ref) {
    assert(channel_at(c, ref)->pins);
    channel_at(c, ref)->pins--;
    channel_check_idle(c, ref);
}

// The line of channels in this state; NULL: there is none.
static struct job_line *line_of_state(struct stage *s, enum channel_state state) {
    switch (state) {
    case CHANNEL_READY:
        return &s->ready;
    case CHANNEL_PARKED:
        return &s->parked;
    case CHANNEL_DORMANT:
    case CHANNEL_IN_PROGRESS:
        break;
    }
    return NULL;
}

static void chan_set_state(struct core *c, chan ref, enum channel_state to) {
    if (ref & CHAN_KEYED) {
        struct channel *ch = channel_at(c, ref);
        ch->channel_state = (uint8_t)to;
        if (to == CHANNEL_DORMANT || ch->idle)
            channel_check_idle(c, ref);
    } else {
        struct job *j = job_at(c, ref);
        j->flags = (uint8_t)((j->flags & ~JOB_CHANNEL_STATE) | to);
    }
}

// The same as channel_move for a stage with groups, which have the ready channels.
APART static void channel_move_in_group(struct core *c, struct stage *s, chan ref,
                                        enum channel_state to, enum place place) {
    bool starts = to == CHANNEL_IN_PROGRESS;
    enum channel_state was = chan_state(c, ref);
    struct key_group *g = starts ? group_whose_turn_it_is(s) : group_of(c, s, ref);
    if (was == CHANNEL_READY)
        group_remove_ready(c, s, g, ref, starts);
    else if (was == CHANNEL_PARKED)
        job_line_remove(c, &s->parked, ref);
    chan_set_state(c, ref, to);
    if (!(ref & CHAN_KEYED) && (was == CHANNEL_DORMANT) != (to == CHANNEL_DORMANT))
        group_count_jobs(c, s, g, to == CHANNEL_DORMANT ? -1 : 1);
    if (to == CHANNEL_READY)
        group_add_ready(c, s, g, ref, place);
    else if (to == CHANNEL_PARKED)
        job_line_add(c, &s->parked, ref, place);
}

void channel_move(struct core *c, chan ref, enum channel_state to, enum place place) {
    struct stage *s = chan_stage(c, ref);
    if (s->groups) {
        channel_move_in_group(c, s, ref, to, place);
        return;
    }
    struct job_line *before = line_of_state(s, chan_state(c, ref));
    struct job_line *after = line_of_state(s, to);
    if (before)
        job_line_remove(c, before, ref);
    chan_set_state(c, ref, to);
    if (!after)
        return;
    job_line_add(c, after, ref, place);
    if (to == CHANNEL_READY && !MUTANT(waiting_take_not_woken))
        stage_wake(c, s);
}

static bool stands_before(const struct job *a, const struct job *b) {
    return a->position != b->position && !MUTANT(order_by_id) ? a->position < b->position
                                                              : a->id < b->id;
}

bool channel_reaches(const struct core *c, const struct channel *ch, uint32_t job) {
    return !ch->halted || (job && stands_before(job_at(c, job), job_at(c, ch->halted)));
}

bool channel_is_halted(const struct core *c, const struct channel *ch) {
    return !channel_reaches(c, ch, ch->jobs.head);
}

static enum channel_state right_state(const struct core *c, chan ref) {
    if (ref & CHAN_KEYED && channel_is_halted(c, channel_at(c, ref)))
        return CHANNEL_PARKED;
    uint32_t head = chan_head(c, ref);
    if (!head || job_at(c, head)->status != JOB_WAITING)
        return CHANNEL_DORMANT;
    if (ref & CHAN_KEYED && channel_at(c, ref)->paused)
        return CHANNEL_PARKED;
    return job_due(c, job_at(c, head)) > c->now_ms ? CHANNEL_PARKED : CHANNEL_READY;
}

void channel_resolve(struct core *c, chan ref, enum place place) {
    enum channel_state right = right_state(c, ref);
    if (right != chan_state(c, ref))
        channel_move(c, ref, right, place);
}

// Depths are divided into classes a sixteenth apart, each with a list. From 32 on, bits below a
// depth's shift do not count.
static uint32_t depth_shift(uint32_t depth) {
    return 31 - (uint32_t)__builtin_clz(depth) - 4;
}

static uint32_t depth_class(uint32_t depth) {
    if (depth < 32)
        return depth;
    uint32_t shift = depth_shift(depth);
    uint32_t class = shift * 16 + (depth >> shift);
    return class < DEPTHS ? class : DEPTHS - 1;
}

static struct line_link *deep_link(const struct core *c, uint32_t ref) {
    return ref & CHAN_KEYED ? &channel_at(c, ref)->deep : &group_at(c, ref)->deep;
}

static void deep_add(struct core *c, struct depths *d, uint32_t ref, uint32_t class) {
    uint32_t *first = &d->first[class];
    *deep_link(c, ref) = (struct line_link){ .prev = 0, .next = *first };
    if (*first)
        deep_link(c, *first)->prev = ref;
    *first = ref;
    d->bits[class / 64] |= UINT64_C(1) << class % 64;
}

static void deep_remove(struct core *c, struct depths *d, uint32_t ref, uint32_t class) {
    struct line_link link = *deep_link(c, ref);
    if (link.prev)
        deep_link(c, link.prev)->next = link.next;
    else
        d->first[class] = link.next;
    if (link.next)
        deep_link(c, link.next)->prev = link.prev;
    if (!d->first[class])
        d->bits[class / 64] &= ~(UINT64_C(1) << class % 64);
}

// Whether they are in different classes, by the greater one's: nearly always not, if they are
// large. Those with fewer than two jobs are not listed: they are by far the most.
static bool depths_differ(uint32_t before, uint32_t after) {
    uint32_t most = before > after ? before : after;
    if (most < 32)
        return (before > 1 || after > 1) && before != after;
    uint32_t shift = depth_shift(most);
    return before >> shift != after >> shift;
}

void depths_move(struct core *c, struct depths *d, uint32_t ref, uint32_t before, uint32_t after) {
    if (!depths_differ(before, after))
        return;
    if (before > 1)
        deep_remove(c, d, ref, depth_class(before));
    if (after > 1)
        deep_add(c, d, ref, depth_class(after));
}

uint32_t depth_of(const struct core *c, uint32_t ref) {
    return ref & CHAN_KEYED ? channel_at(c, ref)->jobs.count : group_at(c, ref)->jobs;
}

uint32_t depths_next(const struct core *c, const struct depths *d, uint32_t ref) {
    uint32_t next = ref ? deep_link(c, ref)->next : 0, class = DEPTHS;
    if (next)
        return next;
    if (ref)
        class = depth_class(depth_of(c, ref));
    for (uint32_t word = DEPTHS / 64; word-- > 0;) {
        uint64_t below = class / 64 > word    ? UINT64_MAX
                         : class / 64 == word ? (UINT64_C(1) << class % 64) - 1
                                              : 0;
        uint64_t bits = d->bits[word] & below;
        if (bits)
            return d->first[word * 64 + 63 - (uint32_t)__builtin_clzll(bits)];
    }
    return 0;
}

void channel_set_depth(struct core *c, chan ref, uint32_t before) {
    const struct channel *ch = channel_at(c, ref);
    struct stage *s = c->stages[ch->stage];
    if (depths_differ(before, ch->jobs.count))
        depths_move(c, &s->by_depth, ref, before, ch->jobs.count);
    if (ch->grouped)
        group_count_jobs(c, s, group_of(c, s, ref), (int32_t)(ch->jobs.count - before));
}

// Nearly always appends: only delayed jobs that are due at the same instant may need another place.
void channel_deliver(struct core *c, uint32_t job) {
    chan ref = chan_of(c, job);
    if (!(ref & CHAN_KEYED)) {
        channel_move(c, ref, CHANNEL_READY, AT_TAIL);
        return;
    }
    struct channel *ch = channel_at(c, ref);
    bool is_newest = job_at(c, job)->position == c->last_position; // then it goes to the tail
    uint32_t before = 0, last = is_newest ? 0 : ch->jobs.tail;
    while (last && !stands_before(job_at(c, last), job_at(c, job))) {
        before = last;
        last = job_at(c, last)->link.prev;
    }
    job_line_insert_before(c, &ch->jobs, job, before);
    channel_set_depth(c, ref, ch->jobs.count - 1);
    if (chan_state(c, ref) == CHANNEL_DORMANT || MUTANT(channel_runs_two_jobs))
        channel_resolve(c, ref, AT_TAIL);
}

// A job that returns to its old place was at the head, so the search starts there.
void channel_insert(struct core *c, uint32_t job) {
    struct channel *ch = channel_at(c, job_at(c, job)->owner);
    uint32_t before = ch->jobs.head;
    while (before && stands_before(job_at(c, before), job_at(c, job)))
        before = job_at(c, before)->link.next;
    job_line_insert_before(c, &ch->jobs, job, before);
    channel_set_depth(c, job_at(c, job)->owner, ch->jobs.count - 1);
}

// The channel stays in its state until channel_resolve.
void channel_take_out(struct core *c, uint32_t job) {
    chan ref = chan_of(c, job);
    if (!(ref & CHAN_KEYED))
        return;
    struct channel *ch = channel_at(c, ref);
    job_line_remove(c, &ch->jobs, job);
    channel_set_depth(c, ref, ch->jobs.count + 1);
}

// ---- Halting ----------------------------------------------------------------------------------

void channel_halt(struct core *c, uint32_t dead_job) {
    struct job *j = job_at(c, dead_job);
    struct channel *ch = channel_at(c, j->owner);
    j->flags |= JOB_HALTS;
    if (!ch->halted)
        c->stages[ch->stage]->halted++;
    else
        ch->halts_again = true;
    if (!ch->halted || stands_before(j, job_at(c, ch->halted)))
        ch->halted = dead_job;
}

// Searches all dead jobs of the stage. It is rare: only core_crashed kills a job that is not the
// head, so a channel hardly ever has a second halting job.
static uint32_t first_halting(const struct core *c, chan ref) {
    uint32_t first = 0;
    for (uint32_t n = chan_stage(c, ref)->dead.head; n; n = job_at(c, n)->link.next) {
        const struct job *j = job_at(c, n);
        if (j->owner == ref && j->flags & JOB_HALTS &&
            (!first || stands_before(j, job_at(c, first))))
            first = n;
    }
    return first;
}

void channel_unhalt(struct core *c, uint32_t dead_job) {
    struct job *j = job_at(c, dead_job);
    if (!(j->flags & JOB_HALTS))
        return;
    struct channel *ch = channel_at(c, j->owner);
    j->flags &= (uint8_t)~JOB_HALTS;
    if (ch->halted != dead_job)
        return;
    ch->halted = ch->halts_again ? first_halting(c, j->owner) : 0;
    ch->halts_again = ch->halted != 0;
    if (!ch->halted)
        c->stages[ch->stage]->halted--;
}
