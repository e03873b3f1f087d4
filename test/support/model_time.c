// What time does in the model, and what a crash leaves of it.
#include "model_rules.h"

#include <string.h>

enum due {
    DUE_NOTHING,
    DUE_JOIN,
    DUE_DEADLINE,
    DUE_BACKOFF,
    DUE_GRACE,
    DUE_LEASE,
    DUE_FORGET,
    DUE_GROUP,
    DUE_EPIC
};

struct planned {
    uint64_t at_ms;
    enum due what;
    int index;
};

// Whether the rules leave open which of two things due at one instant comes first, and it matters.
// Forgetting affects no other thing, leases granted together end together in order, and calls
// without callers end together.
static bool open_order(enum due a, enum due b) {
    return a != DUE_FORGET && b != DUE_FORGET && !(a == b && (a == DUE_GRACE || a == DUE_LEASE));
}

static void plan(struct planned *best, uint64_t at_ms, enum due what, int index, bool *tie) {
    if (tie && at_ms == best->at_ms && open_order(what, best->what))
        *tie = true;
    if (at_ms < best->at_ms) {
        *best = (struct planned){ at_ms, what, index };
        if (tie)
            *tie = false;
    }
}

static void plan_job(const struct model *m, int job, struct planned *best, bool *tie) {
    const struct model_job *j = &m->jobs[job];
    uint64_t kept = m->stages[j->stage].policy.retention_ms;
    if (j->forgotten || j->status == JOB_DEAD)
        return;
    if (j->status > JOB_RUNNING) {
        if (kept)
            plan(best, j->ended_ms + kept, DUE_FORGET, job, tie);
        return;
    }
    if (j->status == JOB_DELAYED)
        plan(best, j->joins_ms, DUE_JOIN, job, tie);
    if (j->deadline_ms)
        plan(best, j->deadline_ms, DUE_DEADLINE, job, tie);
    int c = j->status == JOB_WAITING ? rule_channel_of(m, job) : -1;
    if (c >= 0 && m->channels[c].state == CHANNEL_PARKED && !m->channels[c].paused &&
        !model_halted(m, c) && model_nth(m, c, 0) == job)
        plan(best, j->wait_ms, DUE_BACKOFF, job, tie);
    if (j->call && j->grace_ms)
        plan(best, j->grace_ms, DUE_GRACE, job, tie);
}

static struct planned plan_all(const struct model *m, bool *tie) {
    struct planned best = { .at_ms = UINT64_MAX };
    for (int j = 0; j < m->job_count; j++)
        plan_job(m, j, &best, tie);
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive)
            plan(&best, m->leases[l].until_ms, DUE_LEASE, l, tie);
    for (int i = 0; i < STAGES * KEYS; i++)
        plan(&best, model_group_next(m, i / KEYS, i % KEYS), DUE_GROUP, i, tie);
    for (int i = 1; i < SOURCES; i++)
        if (m->sources[i].forget_ms && model_epic_over(m, i))
            plan(&best, m->sources[i].over_ms + m->sources[i].forget_ms, DUE_EPIC, i, tie);
    return best;
}

uint64_t model_next(const struct model *m) {
    return plan_all(m, NULL).at_ms;
}

bool model_taken(const struct model *m, uint64_t at_ms) {
    for (int j = 0; j < m->job_count; j++) {
        const struct model_job *job = &m->jobs[j];
        if (job_unended(job) && (job->deadline_ms == at_ms || job->joins_ms == at_ms ||
                                 job->wait_ms == at_ms || job->grace_ms == at_ms))
            return true;
    }
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive && m->leases[l].until_ms == at_ms)
            return true;
    for (int i = 1; i < SOURCES; i++)
        if (m->sources[i].forget_ms && m->sources[i].over_ms + m->sources[i].forget_ms == at_ms)
            return true;
    return false;
}

static void lease_ran_out(struct model *m, int lease) {
    struct model_lease *l = &m->leases[lease];
    int first = -1;
    for (int i = l->count - 1; i >= 0; i--)
        first = m->jobs[l->jobs[i]].status == JOB_RUNNING ? l->jobs[i] : first;
    if (first >= 0)
        rule_tell_stop(m, lease, first, MR_ESTALE);
    rule_fail(m, lease, "", MR_BACKOFF);
}

static void come_due(struct model *m, struct planned p) {
    switch (p.what) {
    case DUE_NOTHING:
        break;
    case DUE_JOIN:
        rule_join(m, p.index);
        break;
    case DUE_DEADLINE:
        rule_unwanted(m, p.index, JOB_EXPIRED);
        break;
    case DUE_BACKOFF:
        rule_place(m, rule_channel_of(m, p.index), false);
        break;
    case DUE_GRACE:
        m->jobs[p.index].grace_ms = 0;
        rule_interest(m, p.index);
        break;
    case DUE_LEASE:
        lease_ran_out(m, p.index);
        break;
    case DUE_FORGET:
        m->jobs[p.index].forgotten = true;
        break;
    case DUE_GROUP:
        rule_group_freed(m, p.index / KEYS, p.index % KEYS);
        break;
    case DUE_EPIC:
        rule_forget_epic(m, p.index);
        break;
    }
}

// Calls that end together are forgotten one by one, and may make room for one another to start: in
// which order, the rules do not say.
static bool order_of_graces_matters(const struct model *m) {
    for (int s = 0; s < STAGES; s++)
        if (m->stages[s].policy.retention_count < 10)
            return true;
    for (int t = 0; t < SLOTS; t++)
        if (m->takers[t].waits)
            return true;
    return false;
}

void model_advance(struct model *m, uint64_t now_ms) {
    for (;;) {
        bool tie = false;
        struct planned p = plan_all(m, &tie);
        if (p.at_ms > now_ms)
            break;
        m->ambiguous |= tie || (p.what == DUE_GRACE && order_of_graces_matters(m));
        if (p.at_ms > m->now_ms)
            m->now_ms = p.at_ms;
        come_due(m, p);
        rule_settle(m);
    }
    m->now_ms = now_ms;
}

// ---- Stages that are forgotten ----------------------------------------------------------------

static bool job_keeps_stage(const struct model *m, const struct model_job *j) {
    uint64_t window_ms = m->stages[j->stage].policy.dedupe_window_ms;
    bool is_named = *j->once && j->status == JOB_DONE && m->now_ms < j->ended_ms + window_ms;
    return !j->forgotten || is_named;
}

static bool stage_is_empty(const struct model *m, int stage) {
    for (int i = 0; i < m->job_count; i++)
        if (m->jobs[i].stage == stage && job_keeps_stage(m, &m->jobs[i]))
            return false;
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive && m->leases[l].stage == stage)
            return false;
    for (int c = 0; c < m->channel_count; c++)
        if (m->channels[c].known && m->channels[c].stage == stage)
            return false;
    for (int i = 0; i < SCHEDULES; i++)
        if (m->schedules[i].known && schedule_stage(i) == stage)
            return false;
    for (int i = 1; i < SOURCES; i++)
        if (m->sources[i].then_waits && m->sources[i].then.stage == stage)
            return false;
    return true;
}

bool model_forget_stage(struct model *m, int stage) {
    struct model_stage *s = &m->stages[stage];
    struct policy plain = policy_default();
    if (s->paused || s->draining || !policy_equal(&s->policy, &plain) || !stage_is_empty(m, stage))
        return false;
    *s = (struct model_stage){ .policy = plain };
    for (int i = 0; i < STAGES; i++)
        m->stages[i].edges[stage] = false;
    return true;
}

// ---- Crash ------------------------------------------------------------------------------------

static int first_unplaced(struct model *m, int stage, const bool *placed) {
    int best = -1;
    for (int c = 0; c < m->channel_count; c++) {
        if (placed[c] || !m->channels[c].known || m->channels[c].stage != stage)
            continue;
        int head = model_nth(m, c, 0);
        uint64_t position = head < 0 ? UINT64_MAX : m->jobs[head].position;
        int best_head = best < 0 ? -1 : model_nth(m, best, 0);
        if (best < 0 || (best_head >= 0 && position < m->jobs[best_head].position))
            best = c;
        else if (best_head < 0 && head >= 0)
            best = c;
    }
    return best;
}

// Rule 6: a lease that was recorded holds its channel until its end. Without a key the channel is
// the job, and when that has ended there is nothing to hold.
static bool outlives_crash(const struct model *m, const struct model_lease *l, uint64_t now_ms) {
    const struct model_channel *ch = &m->channels[l->channel];
    bool has_channel = !ch->solo || m->jobs[l->jobs[0]].status == JOB_RUNNING;
    return l->alive && l->recorded && l->until_ms > now_ms && has_channel;
}

// Jobs that were ended by others count as answered, but of a block nothing is left of: then the
// channel is held for the last.
static void restore_lease(const struct model *m, struct model_lease *l) {
    bool left = false;
    l->conn = -1;
    l->restored = true;
    l->about = 0;
    for (int i = 0; i < l->count; i++) {
        l->let_go[i] = m->jobs[l->jobs[i]].status != JOB_RUNNING;
        left |= !l->let_go[i];
    }
    if (!left)
        l->let_go[l->count - 1] = false;
}

static void forget_unrecorded(struct model *m, uint64_t now_ms) {
    for (int l = 0; l < m->lease_count; l++) {
        m->leases[l].alive = outlives_crash(m, &m->leases[l], now_ms);
        if (m->leases[l].alive)
            restore_lease(m, &m->leases[l]);
    }
    for (int j = 0; j < m->job_count; j++) {
        struct model_job *job = &m->jobs[j];
        job->replayed = !job_unended(job);
        if (job->status == JOB_RUNNING && !m->leases[model_lease_of(m, j)].alive)
            job->status = JOB_WAITING;
        job->leased = job->status == JOB_RUNNING;
        if (job->released)
            job->wait_ms = 0;
        job->releases = 0;
        job->released = false;
        if (job_unended(job) && job->call)
            job->grace_ms = now_ms + MODEL_GRACE_MS;
    }
    for (int i = 0; i < SLOTS; i++)
        m->takers[i].waits = m->callers[i].waits = m->pushers[i].waits = false;
    m->gap_count = 0;
    for (int s = 0; s < STAGES; s++)
        m->stages[s].seen = false;
    for (int i = 0; i < SOURCES; i++) // that they were seen is kept, for which job is not
        memset(m->sources[i].noted, 0, sizeof m->sources[i].noted);
}

// Delayed jobs that became due while no engine ran join in order of time.
static void join_overdue(struct model *m) {
    for (;;) {
        int first = -1;
        for (int i = 0; i < m->job_count; i++) {
            const struct model_job *j = &m->jobs[i];
            if (!j->forgotten && j->status == JOB_DELAYED && j->joins_ms <= m->now_ms &&
                (first < 0 || j->joins_ms < m->jobs[first].joins_ms))
                first = i;
        }
        if (first < 0)
            return;
        rule_join(m, first);
    }
}

static bool is_held(const struct model *m, int channel) {
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive && m->leases[l].channel == channel)
            return true;
    return false;
}

void model_crash(struct model *m, uint64_t now_ms) {
    bool placed[MANY] = { false };
    m->now_ms = now_ms;
    forget_unrecorded(m, now_ms);
    join_overdue(m);
    for (int s = 0; s < STAGES; s++) {
        m->stages[s].ready_count = m->stages[s].turn_count = m->stages[s].held_count = 0;
        memset(m->stages[s].groups, 0, sizeof m->stages[s].groups);
        m->stages[s].over = false;
        memset(m->stages[s].edges, 0, sizeof m->stages[s].edges);
        for (int c; (c = first_unplaced(m, s, placed)) >= 0;) {
            placed[c] = true;
            if (!is_held(m, c))
                rule_place(m, c, false);
        }
    }
    rule_settle(m);
    model_advance(m, now_ms);
}

void model_crashed(struct model *m, uint64_t id, uint32_t attempt) {
    int job = model_find(m, id);
    if (job < 0 || m->jobs[job].status != JOB_WAITING || m->jobs[job].attempt + 1 != attempt)
        return;
    rule_attempt(m, job, "", RETRY_AT_HEAD);
    int channel = rule_channel_of(m, job);
    if (m->channels[channel].state != CHANNEL_IN_PROGRESS)
        rule_correct(m, channel, true);
    rule_settle(m);
}
