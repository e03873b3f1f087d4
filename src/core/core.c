// Creating and destroying the core, connections, and commands that change a stage.
#include "core/epic.h"
#include "core/group.h"
#include "core/link.h"
#include "core/maker.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <assert.h>

const char *job_status_name(enum job_status status) {
    static const char *const names[] = { "delayed", "waiting", "running",  "done",
                                         "dead",    "expired", "cancelled" };
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

#define LIMIT(field, otherwise)                                                                    \
    if (!l.field)                                                                                  \
    l.field = (otherwise)

static struct core_limits limits_or_defaults(struct core_limits l) {
    LIMIT(max_body, BODY_MOST);
    LIMIT(max_state, STATE_MOST);
    LIMIT(max_reason, REASON_MOST);
    LIMIT(max_reasons, 10);
    LIMIT(max_jobs, 500000000);
    LIMIT(max_channels, 100000000);
    LIMIT(max_groups, 10000000);
    LIMIT(max_stages, 10000);
    LIMIT(max_sources, 10000);
    LIMIT(max_schedules, 100000);
    LIMIT(max_once_entries, 100000000);
    LIMIT(max_block, TAKE_MOST);
    LIMIT(max_take, TAKE_MOST);
    LIMIT(max_take_bytes, UINT64_C(16) << 20);
    LIMIT(max_take_stages, TAKE_STAGES_MOST);
    LIMIT(id_block, 1u << 20);
    LIMIT(max_due, 2000);
    LIMIT(max_emits, EMITS_MOST);
    LIMIT(max_emit_bytes, BODY_MOST);
    LIMIT(max_room_bytes, 64u << 20);
    LIMIT(grace_ms, 10000);
    LIMIT(source_idle_ms, 3600000);
    LIMIT(source_least_ms, SOURCE_LEAST_MS);
    LIMIT(maker_part, 4);
    LIMIT(maker_least, 250);
    return l;
}

enum { SERVED_BYTES = 4 << 20 }; // see serve_most

int core_create(const struct core_config *config, struct core **out) {
    struct core *c = mem_alloc(sizeof *c);
    if (!c)
        return error_set(MR_ENOMEM, "no memory for a core");
    c->config = *config;
    c->limits = limits_or_defaults(config->limits);
    assert(c->limits.max_reason <= REASON_MOST && c->limits.max_take_stages <= TAKE_STAGES_MOST &&
           c->limits.max_stages < UINT16_MAX);
    if (!c->config.shards)
        c->config.shards = 1;
    assert(c->config.shards <= SHARDS_MOST && c->config.shard < c->config.shards);
    if (!c->config.id_step)
        c->config.id_step = c->config.shards;
    if (!c->config.first_id)
        c->config.first_id = c->config.shard + 1;
    c->serve_most = c->serve_left = SERVED_BYTES / c->config.shards;
    c->replaying = true;
    c->next_source = 1;
    slab_init(&c->jobs, sizeof(struct job), 0);
    slab_init(&c->channels, sizeof(struct channel), 0);
    pool_init(&c->keys);
    list_init(&c->sources_by_use);
    list_init(&c->starved);
    live_init(&c->live, c->config.segment_size);
    slab_init(&c->attrs, sizeof(struct attr), 0);
    slab_init(&c->instants, sizeof(struct instant), 0);
    slab_init(&c->onces, sizeof(struct once), 0);
    idmap_init(&c->by_id, c->config.id_step);
    slab_init(&c->spents, sizeof(struct spent), 0);
    slab_init(&c->states, sizeof(struct state), 0);
    slab_init(&c->leases, sizeof(struct lease), 0);
    slab_init(&c->sources, sizeof(struct source), 0);
    slab_init(&c->outbox, sizeof(struct outbox), 0);
    slab_init(&c->makers, sizeof(struct maker), 0);
    slab_init(&c->schedules, sizeof(struct schedule), 0);
    slab_init(&c->pauses, sizeof(struct pause), 0);
    slab_init(&c->groups, sizeof(struct key_group), SERVE_GROUP - 1);
    *out = c;
    return 0;
}

static void finish_parts(struct core *c) {
    core_end_quotas(c);
    for (uint32_t i = 1; i < c->leases.next_new; i++) {
        mem_free(lease_at(c, i)->block);
        mem_free(lease_at(c, i)->record);
        mem_free(lease_at(c, i)->progress);
    }
    for (uint32_t i = 1; i < c->sources.next_new; i++)
        if (source_at(c, i)->in_use)
            source_finish(c, i);
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        if (!c->stages[i]) // a failed replay may have skipped numbers
            continue;
        mem_free(c->stages[i]->waits);
        mem_free(c->stages[i]->runs);
        mem_free(c->stages[i]->groups);
        mem_free(c->stages[i]);
    }
    schedules_finish(c);
    mem_free(c->links);
}

void core_destroy(struct core *c) {
    if (!c)
        return;
    finish_parts(c);
    struct slab *slabs[] = { &c->jobs,   &c->channels,  &c->attrs,  &c->instants, &c->onces,
                             &c->spents, &c->states,    &c->leases, &c->sources,  &c->outbox,
                             &c->makers, &c->schedules, &c->pauses, &c->groups };
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        slab_finish(slabs[i]);
    pool_finish(&c->keys);
    struct map *maps[] = { &c->by_key,           &c->once,
                           &c->source_by_name,   &c->source_by_number,
                           &c->stage_by_name,    &c->outbox_by_number,
                           &c->maker_by_name,    &c->recorded_leases,
                           &c->schedule_by_name, &c->pause_by_channel,
                           &c->by_group };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        map_finish(maps[i]);
    idmap_finish(&c->by_id);
    live_finish(&c->live);
    mem_free(c->stages);
    heap_finish(&c->timers);
    heap_finish(&c->ticks);
    mem_free(c->out.entries);
    mem_free(c->out.at);
    buffer_finish(&c->out.heads);
    buffer_finish(&c->out.joined);
    buffer_finish(&c->scratch);
    buffer_finish(&c->reasons);
    buffer_finish(&c->grants);
    buffer_finish(&c->tick_body);
    mem_free(c);
}

// ---- Connections ------------------------------------------------------------------------------

void core_join(struct core *c, struct conn *conn) {
    (void)c;
    list_init(&conn->leases);
    list_init(&conn->takers);
    list_init(&conn->callers);
    list_init(&conn->pushers);
    conn->lease_count = conn->held = 0;
    conn->gaps = NULL;
    conn->gap_count = conn->gap_capacity = 0;
    conn->gaps_over = false;
}

// A lost lease counts an attempt and its job is ready at once. With `overlap never` the worker may
// still run the job, so the lease runs out by its time instead.
static int leave_lease(struct core *c, struct lease *l) {
    lease_leave_conn(l);
    if (l->detached || c->stages[l->stage]->policy.overlap_never ||
        MUTANT(lease_outlives_connection))
        return 0;
    int err = lease_lose(c, l->number, LEASE_LOST, false);
    if (err < 0) {
        l->lost = true;
        timer_retry(c, TIMER_LEASE, l->number);
    }
    return err;
}

void core_give_back(struct core *c, struct conn *conn) {
    while (!list_empty(&conn->leases)) {
        struct lease *l = list_entry(conn->leases.next, struct lease, of_conn);
        lease_leave_conn(l);
        if (!l->record)
            lease_end(c, l->number, AT_HEAD);
    }
    settle(c);
}

// A lease whose record cannot be written ends by its time.
void core_give_back_last(struct core *c, struct conn *conn, uint64_t jobs) {
    while (jobs && !list_empty(&conn->leases)) {
        struct lease *l = list_entry(conn->leases.prev, struct lease, of_conn);
        jobs -= l->count < jobs ? l->count : jobs;
        lease_leave_conn(l);
        if (lease_write_end(c, l) < 0)
            continue;
        stage_not_started(c->stages[l->stage], MUTANT(rate_not_given_back) ? 0 : l->count);
        group_not_started(c, l);
        lease_end(c, l->number, AT_HEAD);
    }
    settle(c);
}

// True: the connection has left. `err` keeps the first error.
static bool leave_some(struct core *c, struct conn *conn, uint64_t until, int *err) {
    while (!list_empty(&conn->takers))
        core_take_leave(c, list_entry(conn->takers.next, struct taker, of_conn));
    while (!list_empty(&conn->pushers))
        pusher_leave(c, list_entry(conn->pushers.next, struct pusher, of_conn));
    for (; !list_empty(&conn->callers) && c->steps < until; c->steps += STEPS_DUE) {
        int failed = caller_leave(c, list_entry(conn->callers.next, struct caller, of_conn));
        *err = *err ? *err : failed;
    }
    while (!list_empty(&conn->leases) && c->steps < until) {
        struct lease *l = list_entry(conn->leases.next, struct lease, of_conn);
        c->steps += STEPS_DUE + l->count; // one step for each job that goes back
        int failed = leave_lease(c, l);
        *err = *err ? *err : failed;
    }
    settle(c);
    bool left = list_empty(&conn->callers) && list_empty(&conn->leases);
    if (left)
        gaps_drop(c, conn);
    return left;
}

int core_leave(struct core *c, struct conn *conn) {
    int err = 0;
    (void)leave_some(c, conn, UINT64_MAX, &err);
    return err;
}

bool core_leave_some(struct core *c, struct conn *conn, uint64_t steps) {
    int err = 0; // what failed is retried by a timer
    return leave_some(c, conn, c->steps + steps, &err);
}

// ---- Acting on stages -------------------------------------------------------------------------

// What a command changes about a stage.
struct stage_change {
    mr_bytes policy, value;
    bool pauses, drains, resumes;
};

// Changes a stage and records it; on failure the stage is unchanged.
static int stage_try(struct core *c, mr_bytes name, const struct stage_change *change) {
    uint32_t number = 0;
    int err = stage_get_if_room(c, name, &number);
    if (err < 0)
        return err;
    struct stage *s = c->stages[number];
    struct policy policy = s->policy;
    bool paused = s->paused, draining = s->draining;
    if (change->policy.size && (err = policy_set(&s->policy, change->policy, change->value)) < 0)
        return err;
    s->paused = change->pauses || (s->paused && !change->resumes);
    s->draining = change->drains || (s->draining && !change->resumes);
    bool regroups = s->policy.group != policy.group;
    err = regroups ? groups_prepare_change(c, s) : 0;
    if (err == 0)
        err = stage_record(c, s, ROOM_COMMIT);
    if (err < 0) {
        s->policy = policy;
        s->paused = paused;
        s->draining = draining;
        if (!policy.group)
            groups_end(c, s);
        return err;
    }
    groups_policy_changed(c, s, &policy);
    s->sweep_at_ms = 0; // with a shorter retention the sweep may be due earlier
    c->steps += STEPS_DUE * (uint64_t)stage_sweep(c, s, c->limits.max_due);
    stage_plan_sweep(c, s);
    stage_update_mark(c, s); // the policy may have changed the high mark
    stage_wake(c, s);
    settle(c);
    return 0;
}

static int stage_change(struct core *c, mr_bytes name, const struct stage_change *change) {
    int err = stage_try(c, name, change);
    if (err < 0)
        stage_forget_unused(c, name);
    return err;
}

int core_set(struct core *c, mr_bytes stage, mr_bytes name, mr_bytes value) {
    if (!name.size)
        return error_set(MR_EINVAL, "a policy's name is needed");
    struct stage_change change = { .policy = name, .value = value };
    return stage_change(c, stage, &change);
}

int core_pause(struct core *c, mr_bytes stage) {
    return stage_change(c, stage, &(struct stage_change){ .pauses = true });
}

int core_drain(struct core *c, mr_bytes stage) {
    return stage_change(c, stage, &(struct stage_change){ .drains = true });
}

int core_resume(struct core *c, mr_bytes stage) {
    return stage_change(c, stage, &(struct stage_change){ .resumes = true });
}

static int learn_edge(struct core *c, mr_bytes stage, mr_bytes downstream) {
    uint32_t from = 0, to = 0;
    int err = stage_know(c, stage, &from);
    if (err < 0)
        return err;
    if ((err = stage_know(c, downstream, &to)) < 0)
        return err;
    if ((err = stage_learn_edge(c, from, to)) < 0)
        return err;
    stage_wake(c, c->stages[from]);
    settle(c);
    return 0;
}

// An edge of a stage of this shard that is not known was learned before the stage was removed. The
// edge was not learned if the stage has too many: then its end may be unused.
int core_learn_edge(struct core *c, mr_bytes stage, mr_bytes downstream, uint64_t maker) {
    bool own = c->config.shards > 1 && route_of(c->config.shards, stage) == c->config.shard;
    if (own && !stage_find(c, stage))
        return 0;
    uint64_t before = c->maker;
    c->maker = maker;
    stages_make_room_to_know(c);
    c->stages_pinned = true;
    int err = learn_edge(c, stage, downstream);
    c->stages_pinned = false;
    c->maker = before;
    stage_forget_unused(c, stage);
    stage_forget_unused(c, downstream);
    return err;
}
