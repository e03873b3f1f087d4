// Queries: answered from counters and the ends of lines, without a scan of jobs, except for the
// walks.
#include "core/group.h"
#include "core/maker.h"

#include "base/errors.h"

#include <inttypes.h>
#include <stdio.h>

static const char *held_by_group(enum hold hold) {
    return hold == HOLD_GROUP_LIMIT ? "group-limit" : hold == HOLD_GROUP_RATE ? "group-rate" : "";
}

// What holds the first of the groups, when all with ready channels are held.
static enum hold groups_hold(const struct core *c, const struct stage *s) {
    const struct list *first = list_first(&s->groups->held);
    return first ? group_hold(c, s, list_entry(first, struct key_group, of_ring)) : HOLD_NONE;
}

enum { PARKED_LOOKED = 16 };

// Whether the first parked channels are all paused.
static bool waits_for_paused_keys(const struct core *c, const struct stage *s) {
    chan ref = s->parked.head;
    for (uint32_t i = 0; ref && i < PARKED_LOOKED; i++, ref = link_of(c, ref)->next)
        if (!(ref & CHAN_KEYED) || !channel_at(c, ref)->paused)
            return false;
    return s->paused_keys && s->parked.count;
}

static const char *held_without_work(const struct core *c, const struct stage *s) {
    if (s->draining)
        return "draining";
    if (waits_for_paused_keys(c, s))
        return "paused-keys";
    if (s->halted)
        return "halted";
    if (s->parked.count)
        return "backoff";
    return s->by_status[JOB_DELAYED] ? "delay" : "";
}

enum { STAGES_FOLLOWED = 16 }; // that hold one another

// Whether a stage that holds another cannot go on until an operator acts. If that is further
// downstream than STAGES_FOLLOWED it is not seen.
static bool is_stuck(struct core *c, uint32_t number) {
    for (uint32_t i = 0; i < STAGES_FOLLOWED; i++) {
        const struct stage *s = c->stages[number];
        c->steps += s->edge_count;
        if (s->paused || (!s->ready.count && !s->leases && s->halted))
            return true;
        if (stage_hold(c, s, &number) != HOLD_DOWNSTREAM)
            return false;
    }
    return false;
}

static void write_held_by(struct core *c, const struct stage *s, char *out, size_t size) {
    uint32_t downstream = 0;
    const char *why = "";
    enum hold hold = stage_hold(c, s, &downstream);
    if (hold == HOLD_PAUSED)
        why = "paused";
    else if (!s->ready.count)
        why = held_without_work(c, s);
    else if (hold == HOLD_LIMIT)
        why = "limit";
    else if (hold == HOLD_RATE)
        why = "rate";
    else if (hold == HOLD_NONE && !s->ready.head)
        why = held_by_group(groups_hold(c, s));
    else if (hold == HOLD_NONE && list_empty(&s->takers) && !s->leases)
        why = "no-worker";
    if (hold == HOLD_DOWNSTREAM && s->ready.count) {
        const struct stage *to = c->stages[downstream];
        (void)snprintf(out, size, "downstream:%.*s%s", to->name_size, to->name,
                       is_stuck(c, downstream) ? " stuck" : "");
        return;
    }
    (void)snprintf(out, size, "%s", why);
}

static void stage_info_fill(struct core *c, const struct stage *s, struct stage_info *out) {
    *out = (struct stage_info){
        .name = bytes_of(s->name, s->name_size),
        .waiting = s->by_status[JOB_WAITING],
        .running = s->by_status[JOB_RUNNING],
        .parked = s->parked.count,
        .delayed = s->by_status[JOB_DELAYED],
        .dead = s->by_status[JOB_DEAD],
        .pushed = s->pushed,
        .done = s->done,
        .failed = s->failed,
        .expired = s->expired,
        .cancelled = s->cancelled,
        .oldest_ms = ages_oldest(&s->ages, c->now_ms),
        .wasted_wait_ms = s->wasted_wait_ms,
        .ready = s->ready.count,
        .states = s->states.count,
        .takers = s->taker_count,
        .groups = s->groups ? s->groups->with_jobs : 0,
        .linked = s->linked,
        .in_per_s = rate_per_s(&s->in, c->now_ms),
        .out_per_s = rate_per_s(&s->out, c->now_ms),
        .paused = s->paused,
        .draining = s->draining,
        .maker = maker_name(c, s->maker),
        .policy = &s->policy,
        .waits = s->waits,
        .runs = s->runs,
    };
    write_held_by(c, s, out->held_by, sizeof out->held_by);
}

int look_find_stage(struct core *c, mr_bytes name, struct stage **out) {
    uint32_t number = stage_find(c, name);
    if (!number)
        return error_set(MR_EGONE, "no stage '%.*s' is known",
                         (int)(name.size < STAGE_NAME_MOST ? name.size : STAGE_NAME_MOST),
                         name.size ? (const char *)name.data : "");
    *out = c->stages[number];
    return 0;
}

int core_look_stage(struct core *c, mr_bytes name, struct stage_info *out) {
    struct stage *s = NULL;
    int err = look_find_stage(c, name, &s);
    if (err < 0)
        return err;
    stage_info_fill(c, s, out);
    return 0;
}

bool core_has_foreign_ids(const struct core *c) {
    return c->has_foreign_ids;
}

size_t core_stage_places(const struct core *c) {
    return c->stage_count;
}

int core_stage_place(struct core *c, mr_bytes name, size_t *out) {
    struct stage *s = NULL;
    int err = look_find_stage(c, name, &s);
    if (err == 0)
        *out = s->number - 1;
    return err;
}

mr_bytes core_stage_name(const struct core *c, size_t place) {
    const struct stage *s = c->stages[place + 1];
    return s ? bytes_of(s->name, s->name_size) : (mr_bytes){ 0 };
}

size_t core_stage_feeds(struct core *c, mr_bytes stage, mr_bytes out[CORE_EDGES]) {
    uint32_t number = stage_find(c, stage);
    const struct stage *s = number ? c->stages[number] : NULL;
    for (uint32_t i = 0; s && i < s->edge_count; i++) {
        const struct stage *to = c->stages[s->edges[i].to];
        out[i] = bytes_of(to->name, to->name_size);
    }
    return s ? s->edge_count : 0;
}

// 0 also when the instant has passed but its timer was not handled yet.
static int64_t left_until(const struct core *c, uint64_t at_ms) {
    return at_ms > c->now_ms ? (int64_t)(at_ms - c->now_ms) : 0;
}

static void channel_info_fill(const struct core *c, chan ref, struct channel_info *out) {
    const struct channel *ch = channel_at(c, ref);
    const struct job *head = ch->jobs.head ? job_at(c, ch->jobs.head) : NULL;
    *out = (struct channel_info){
        .key = channel_key(c, ch),
        .state = (enum channel_state)ch->channel_state,
        .depth = ch->jobs.count,
        .oldest_ms = head ? (int64_t)(c->now_ms - head->time_ms) : -1,
        .halted = channel_is_halted(c, ch),
        .has_state = ch->state != 0,
        .paused = ch->paused,
        .parked_ms = -1,
    };
    if (ch->channel_state == CHANNEL_PARKED && !out->halted && !out->paused && head)
        out->parked_ms = left_until(c, job_due(c, head));
}

int core_look_channel(struct core *c, mr_bytes stage, mr_bytes key, struct channel_info *out) {
    struct stage *s = NULL;
    int err = look_find_stage(c, stage, &s);
    if (err < 0)
        return err;
    chan ref = key.size ? channel_find(c, s->number, key) : 0;
    if (!ref || !channel_is_known(c, ref))
        return error_set(MR_EGONE, "no channel of that key is known");
    channel_info_fill(c, ref, out);
    return 0;
}

static void sort_by_depth(struct core *c, uint32_t *refs, size_t count) {
    for (size_t i = 1; i < count; i++) {
        uint32_t ref = refs[i];
        size_t k = i;
        for (; k && depth_of(c, refs[k - 1]) < depth_of(c, ref); k--)
            refs[k] = refs[k - 1];
        refs[k] = ref;
        c->steps += (i - k) / 8;
    }
}

// The deepest channels or groups, deepest first; borrowed until the next command. None without
// memory.
static const uint32_t *deepest(struct core *c, const struct depths *d, size_t max,
                               size_t *out_count) {
    size_t count = 0;
    buffer_clear(&c->scratch);
    if (buffer_reserve(&c->scratch, max * sizeof(uint32_t)) < 0)
        max = 0;
    uint32_t *refs = (uint32_t *)(void *)c->scratch.data;
    for (uint32_t ref = 0; count < max && (ref = depths_next(c, d, ref)); count++)
        refs[count] = ref;
    sort_by_depth(c, refs, count);
    *out_count = count;
    return refs;
}

size_t core_top_channels(struct core *c, mr_bytes stage, struct channel_info *out, size_t max) {
    struct stage *s = NULL;
    size_t count = 0;
    if (look_find_stage(c, stage, &s) < 0)
        return 0;
    const uint32_t *refs = deepest(c, &s->by_depth, max, &count);
    for (size_t i = 0; i < count; i++)
        channel_info_fill(c, refs[i], &out[i]);
    return count;
}

static void group_info_fill(const struct core *c, const struct stage *s, const struct key_group *g,
                            struct group_info *out) {
    *out = (struct group_info){ .group = group_name(c, g),
                                .depth = g->jobs,
                                .running = g->leased,
                                .ready = g->ready.count,
                                .held_by = held_by_group(group_hold(c, s, g)) };
}

int core_look_group(struct core *c, uint64_t id, struct group_info *out) {
    uint32_t number = job_find(c, id);
    const struct job *j = number ? job_at(c, number) : NULL;
    const struct stage *s = j ? stage_of(c, j) : NULL;
    if (!s || !s->groups || j->status > JOB_RUNNING)
        return error_set(MR_EGONE, "job %" PRIu64 " is in no group", id);
    group_info_fill(c, s, group_of(c, s, chan_of(c, number)), out);
    return 0;
}

size_t core_top_groups(struct core *c, mr_bytes stage, struct group_info *out, size_t max) {
    struct stage *s = NULL;
    size_t count = 0;
    if (look_find_stage(c, stage, &s) < 0 || !s->groups)
        return 0;
    const uint32_t *refs = deepest(c, &s->groups->by_jobs, max, &count);
    for (size_t i = 0; i < count; i++)
        group_info_fill(c, s, group_at(c, refs[i]), &out[i]);
    return count;
}

static uint64_t state_at(const struct core *c, const struct job *j) {
    uint32_t state = job_is_keyed(j) ? channel_at(c, j->owner)->state : 0;
    return state ? ((const struct state *)slab_at(&c->states, state))->at : 0;
}

// NULL: it does not run.
static const struct lease *lease_of_job(const struct core *c, const struct job *j) {
    if (j->status != JOB_RUNNING)
        return NULL;
    return lease_at(c, job_is_keyed(j) ? channel_at(c, j->owner)->link.next : j->link.next);
}

struct job_info look_at_job(const struct core *c, const struct job *j) {
    const struct stage *s = stage_of(c, j);
    uint64_t deadline = job_deadline(c, j), due = job_due(c, j);
    const struct attr *reasons = job_attr(c, j, ATTR_REASONS);
    const struct lease *lease = lease_of_job(c, j);
    const struct lease_progress *p = lease ? lease->progress : NULL;
    p = p && p->id == j->id ? p : NULL;
    return (struct job_info){
        .id = j->id,
        .stage = bytes_of(s->name, s->name_size),
        .key = job_key(c, j),
        .status = (enum job_status)j->status,
        .attempt = j->attempt + (j->status == JOB_RUNNING || j->status == JOB_DONE),
        .attempts = job_attempts(c, j),
        .age_ms = (int64_t)(c->now_ms - j->time_ms),
        .left_ms = deadline ? left_until(c, deadline) : -1,
        .due_ms = due > c->now_ms ? (int64_t)(due - c->now_ms) : -1,
        .running_ms = lease ? (int64_t)(c->now_ms - lease->began_ms) : -1,
        .conn = lease ? lease->conn : NULL,
        .shard = c->config.shard,
        .at = j->at,
        .no_result = j->status == JOB_DONE && j->flags & JOB_END_UNWRITTEN,
        .meta_size = job_meta_size(c, j),
        .maker = job_maker(c, j),
        .reasons_at = reasons ? reasons->value : 0,
        .state_at = state_at(c, j),
        .has_progress = p != NULL,
        .progress = p ? (struct job_progress){ p->done, p->total, bytes_of(p->text, p->size) }
                      : (struct job_progress){ 0 },
    };
}

uint64_t core_take_steps(struct core *c) {
    uint64_t steps = c->steps;
    c->steps = 0;
    return steps;
}

int core_look_job(struct core *c, uint64_t id, struct job_info *out) {
    uint32_t number = job_find(c, id);
    if (!number)
        return error_set(MR_EGONE, "job %" PRIu64 " is not known (any more)", id);
    *out = look_at_job(c, job_at(c, number));
    return 0;
}

static int walk_line(struct core *c, const struct job_line *l,
                     int (*each)(void *, const struct job_info *), void *arg) {
    int stop = 0;
    for (uint32_t ref = l->head; ref && !stop; ref = link_of(c, ref)->next) {
        c->steps++;
        struct job_info info = look_at_job(c, job_at(c, ref));
        stop = each(arg, &info);
    }
    return stop;
}

static int walk_unkeyed(struct core *c, const struct stage *s,
                        int (*each)(void *, const struct job_info *), void *arg) {
    int stop = 0;
    for (chan ref = stage_first_ready(s); ref && !stop; ref = stage_next_ready(c, s, ref)) {
        c->steps++;
        if (ref & CHAN_KEYED)
            continue;
        struct job_info info = look_at_job(c, job_at(c, ref));
        stop = each(arg, &info);
    }
    return stop;
}

uint32_t core_next_dead_stage(struct core *c, uint32_t number, mr_bytes *out_name) {
    while ((number = stage_set_next(&c->dead_stages, number + 1, c->stage_count))) {
        const struct stage *s = c->stages[number];
        c->steps++;
        if (s && s->dead.count) {
            *out_name = bytes_of(s->name, s->name_size);
            return number;
        }
        stage_set_remove(&c->dead_stages, number);
    }
    return 0;
}

uint32_t core_stage_number(struct core *c, mr_bytes stage) {
    return stage_find(c, stage);
}

bool core_stage_counts(struct core *c, uint32_t number, struct stage_counts *out) {
    if (number > c->stage_count)
        return false;
    const struct stage *s = c->stages[number];
    *out = (struct stage_counts){ 0 };
    c->steps += number % 4 == 0; // reading counters costs a quarter of a step
    if (!s)
        return true;
    *out = (struct stage_counts){ .name = bytes_of(s->name, s->name_size),
                                  .waiting = s->by_status[JOB_WAITING] + s->linked,
                                  .running = s->by_status[JOB_RUNNING],
                                  .delayed = s->by_status[JOB_DELAYED],
                                  .dead = s->by_status[JOB_DEAD],
                                  .pushed = s->pushed,
                                  .done = s->done,
                                  .failed = s->failed };
    return true;
}

int core_each_dead(struct core *c, mr_bytes stage, int (*each)(void *, const struct job_info *),
                   void *arg) {
    struct stage *s = NULL;
    int err = look_find_stage(c, stage, &s);
    return err < 0 ? err : walk_line(c, &s->dead, each, arg);
}

int core_each_job(struct core *c, mr_bytes stage, mr_bytes key,
                  int (*each)(void *, const struct job_info *), void *arg) {
    struct stage *s = NULL;
    int err = look_find_stage(c, stage, &s);
    if (err < 0)
        return err;
    if (!key.size)
        return walk_unkeyed(c, s, each, arg);
    chan ref = channel_find(c, s->number, key);
    return ref ? walk_line(c, &channel_at(c, ref)->jobs, each, arg) : 0;
}
