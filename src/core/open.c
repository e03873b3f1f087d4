// Opening: sorts what replay has collected and begins a new epoch.
#include "core/epic.h"
#include "core/group.h"
#include "core/link.h"

#include "base/errors.h"

#include <inttypes.h>

static uint64_t order_by_position(const struct core *c, uint32_t ref) {
    return job_at(c, ref & CHAN_KEYED ? chan_head(c, ref) : ref)->position;
}

static uint64_t order_by_id(const struct core *c, uint32_t ref) {
    return job_at(c, ref)->id;
}

static uint64_t order_by_time(const struct core *c, uint32_t ref) {
    return job_at(c, ref)->time_ms;
}

// Sorts each channel and gives it the state that its content implies; leased ones stay in progress.
static void place_channels(struct core *c) {
    for (uint32_t i = 1; i < c->channels.next_new; i++) {
        struct channel *ch = channel_at(c, i);
        if (!ch->key)
            continue;
        job_line_sort(c, &ch->jobs, order_by_position);
        if (ch->channel_state != CHANNEL_IN_PROGRESS)
            channel_resolve(c, i | CHAN_KEYED, AT_TAIL);
    }
}

// Replay put every job without a key into ready; those with a backoff are parked.
static void park_unkeyed(struct core *c, struct stage *s) {
    for (chan ref = s->ready.head, next; ref; ref = next) {
        next = link_of(c, ref)->next;
        channel_resolve(c, ref, AT_TAIL);
    }
}

// A number without a name has no STAGE record, so the stage must be empty.
static int open_check_stage(struct core *c, uint32_t number) {
    struct stage *s;
    int err = stage_get_number(c, number, &s);
    if (err < 0 || s->name_size)
        return err;
    uint64_t jobs = 0;
    for (int i = 0; i <= JOB_CANCELLED; i++)
        jobs += s->by_status[i];
    if (jobs || s->states.count || s->first_spent || s->linked || s->schedules || s->paused_keys)
        return error_set(MR_ECORRUPT, "stage %u is used but its record is missing", number);
    c->nameless_stages++;
    return 0;
}

// A delayed job whose instant has passed joins its channel; sorting by position gives it its place.
static void join_due(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    uint64_t due = j->status == JOB_DELAYED ? job_due(c, j) : 0;
    if (!due || due > c->now_ms)
        return;
    job_drop_attr(c, j, ATTR_DUE);
    replay_move(c, number, JOB_WAITING);
}

// Callers of a call have the grace period to come back.
static int plan_grace(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    if (j->flags & JOB_WANTED_FOR_GOOD || !job_attr(c, j, ATTR_CALL))
        return 0;
    int err = heap_reserve(&c->timers, 1);
    if (err < 0)
        return err;
    j->flags |= JOB_IN_GRACE;
    heap_put(&c->timers, c->grace_until_ms, timer_value(TIMER_GRACE, number));
    return 0;
}

// Only jobs with attributes can be delayed or calls.
static int wake_jobs(struct core *c) {
    c->grace_until_ms = c->now_ms + c->limits.grace_ms;
    for (uint32_t i = 1; i < c->jobs.next_new; i++) {
        if (!job_has_attrs(job_at(c, i)))
            continue;
        join_due(c, i);
        int err = plan_grace(c, i);
        if (err < 0)
            return err;
    }
    return 0;
}

static void slab_set_limit(struct slab *slab, uint32_t most) {
    slab->limit = slab->used > most ? slab->used : most;
}

// Limits apply to new things only. Replay accepts all that is in the log, including things that
// were forgotten without a record.
static void begin_limits(struct core *c) {
    slab_set_limit(&c->jobs, c->limits.max_jobs);
    slab_set_limit(&c->channels, c->limits.max_channels);
    slab_set_limit(&c->groups, c->limits.max_groups);
    slab_set_limit(&c->onces, c->limits.max_once_entries);
    slab_set_limit(&c->spents, c->limits.max_once_entries);
}

static int begin_epoch(struct core *c, uint64_t random) {
    uint64_t step = c->config.id_step, first = c->config.first_id;
    uint64_t next = c->next_id > c->highest_id ? c->next_id : c->highest_id + 1;
    if (next < first)
        next = first;
    next += (step - (next - first) % step) % step;
    if (next > NUMBER_MOST / 2 || c->epoch >= UINT64_C(1) << (63 - EPOCH_SHIFT))
        return error_set(MR_ECORRUPT, "epoch %" PRIu64 " would begin with id %" PRIu64,
                         c->epoch + 1, next);
    c->next_id = next;
    c->id_limit = next;
    c->epoch++;
    c->random = random;
    c->next_serial = c->epoch << EPOCH_SHIFT | 1;
    // A full log must open: otherwise no command could make room.
    int err = ids_reserve_block(c, ROOM_CLEAN);
    if (err == 0)
        ids_use_reserved(c);
    return err;
}

static bool is_unended(const struct job *j) {
    return j->owner && j->status < JOB_DONE;
}

// Two passes over the jobs: the first finds the oldest of each stage, the second counts ages.
static void count_ages(struct core *c) {
    for (uint32_t i = 1; i <= c->stage_count; i++)
        c->stages[i]->oldest_ms = UINT64_MAX;
    for (uint32_t i = 1; i < c->jobs.next_new; i++) {
        const struct job *j = job_at(c, i);
        struct stage *s = is_unended(j) ? stage_of(c, j) : NULL;
        if (s && j->time_ms < s->oldest_ms)
            s->oldest_ms = j->time_ms;
    }
    for (uint32_t i = 1; i <= c->stage_count; i++)
        if (c->stages[i]->oldest_ms != UINT64_MAX)
            ages_divide(&c->stages[i]->ages, c->stages[i]->oldest_ms, c->now_ms);
    for (uint32_t i = 1; i < c->jobs.next_new; i++)
        if (is_unended(job_at(c, i)))
            ages_recount(&stage_of(c, job_at(c, i))->ages, job_at(c, i)->time_ms);
    for (uint32_t i = 1; i <= c->stage_count; i++)
        ages_divided(&c->stages[i]->ages);
}

int core_open(struct core *c, uint64_t now_ms, uint64_t random) {
    if (now_ms > c->now_ms)
        c->now_ms = now_ms;
    c->nameless_stages = c->least_nameless = 0; // open_check_stage counts them
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        int err = open_check_stage(c, i);
        if (err < 0)
            return err;
    }
    int err = links_open(c);
    if (err < 0)
        return err;
    if ((err = sources_open(c)) < 0)
        return err;
    if ((err = schedules_open(c)) < 0)
        return err;
    if ((err = wake_jobs(c)) < 0)
        return err;
    if ((err = leases_open(c)) < 0)
        return err;
    if ((err = groups_open_jobs(c)) < 0)
        return err;
    leases_bind(c);
    for (uint32_t i = 1; i <= c->stage_count; i++)
        park_unkeyed(c, c->stages[i]);
    place_channels(c);
    if ((err = leases_hold(c)) < 0)
        return err;
    count_ages(c);
    c->replaying = false;
    for (uint32_t i = 1; i <= c->stage_count; i++)
        job_line_sort(c, &c->stages[i]->ready, order_by_position);
    if ((err = groups_open(c)) < 0)
        return err;
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        struct stage *s = c->stages[i];
        job_line_sort(c, &s->delayed, order_by_id);
        job_line_sort(c, &s->dead, order_by_time);
        job_line_sort(c, &s->ended, order_by_position);
        states_sort(c, s);
        (void)stage_sweep(c, s, UINT32_MAX);
        stage_plan_sweep(c, s);
        stage_update_mark(c, s);
    }
    if (c->sources.used)
        source_plan_sweep(c);
    if ((err = epics_open(c)) < 0)
        return err;
    begin_limits(c);
    return begin_epoch(c, random);
}

int core_crashed(struct core *c, uint64_t id, uint32_t attempt) {
    uint32_t number = job_find(c, id);
    if (!number)
        return 0;
    const struct job *j = job_at(c, number);
    if (j->status != JOB_WAITING || attempt <= j->attempt)
        return 0;
    chan ref = chan_of(c, number);
    int died = attempt_fail(c, number, NULL,
                            (struct cause){ .reason = mr_str("the engine died while it ran") },
                            c->now_ms, false, ROOM_CLEAN);
    if (died < 0)
        return died;
    if (died)
        job_die(c, number);
    if ((!died || ref & CHAN_KEYED) && chan_state(c, ref) != CHANNEL_IN_PROGRESS)
        channel_resolve(c, ref, AT_HEAD);
    settle(c);
    return 0;
}
