// How things move in the model: channels, ends, leases, starts.
#include "model_rules.h"

#include <string.h>

const char *const stage_names[STAGES] = { "a", "b", "c" };
const char *const key_names[KEYS] = { "", "k", "l", "m", "k/a", "k/" };
const char *const source_names[SOURCES] = { "same", "same", "same" };
const char *const schedule_names[SCHEDULES] = { "hourly", "daily", "daily" };

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

void model_init(struct model *m) {
    memset(m, 0, sizeof *m);
    for (int s = 0; s < STAGES; s++)
        m->stages[s].policy = policy_default();
}

void model_forget_observed(struct model *m) {
    m->observed.count = 0;
}

// ---- Looking ----------------------------------------------------------------------------------

int model_find(const struct model *m, uint64_t id) {
    for (int j = 0; j < m->job_count; j++)
        if (m->jobs[j].id == id && !m->jobs[j].forgotten)
            return j;
    return -1;
}

int model_lease_of(const struct model *m, int job) {
    for (int l = m->lease_count - 1; l >= 0; l--)
        for (int i = 0; i < m->leases[l].count; i++)
            if (m->leases[l].jobs[i] == job)
                return l;
    return -1;
}

int model_channel_of(const struct model *m, int stage, const char *key, uint64_t solo) {
    for (int c = 0; c < m->channel_count; c++) {
        const struct model_channel *ch = &m->channels[c];
        if (ch->known && ch->stage == stage && strcmp(ch->key, key) == 0 &&
            (model_orders(m, stage, key) || ch->solo == solo))
            return c;
    }
    return -1;
}

int rule_channel_of(const struct model *m, int job) {
    return model_channel_of(m, m->jobs[job].stage, m->jobs[job].key, (uint64_t)job + 1);
}

static bool is_of_channel(const struct model *m, int channel, int job) {
    const struct model_channel *ch = &m->channels[channel];
    const struct model_job *j = &m->jobs[job];
    return j->stage == ch->stage && strcmp(j->key, ch->key) == 0 &&
           (!ch->solo || ch->solo == (uint64_t)job + 1);
}

static bool in_channel(const struct model *m, int channel, int job) {
    const struct model_job *j = &m->jobs[job];
    return job_unended(j) && j->joined && is_of_channel(m, channel, job);
}

int model_nth(const struct model *m, int channel, int n) {
    uint64_t above = 0;
    int found = -1;
    for (int i = 0; i <= n; i++) {
        found = -1;
        for (int j = 0; j < m->job_count; j++)
            if (in_channel(m, channel, j) && m->jobs[j].position > above &&
                (found < 0 || m->jobs[j].position < m->jobs[found].position))
                found = j;
        if (found < 0)
            return -1;
        above = m->jobs[found].position;
    }
    return found;
}

// Whether a dead job that halts the channel stands before this one (-1: behind all).
static bool halts_before(const struct model *m, int channel, int job) {
    for (int i = 0; i < m->job_count; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->status == JOB_DEAD && !j->forgotten && j->halts && is_of_channel(m, channel, i) &&
            (job < 0 || j->position < m->jobs[job].position))
            return true;
    }
    return false;
}

bool model_halted(const struct model *m, int channel) {
    return halts_before(m, channel, model_nth(m, channel, 0));
}

int model_depth(const struct model *m, int channel) {
    int depth = 0;
    for (int j = 0; j < m->job_count; j++)
        depth += in_channel(m, channel, j);
    return depth;
}

uint64_t model_count(const struct model *m, int stage, enum job_status status) {
    uint64_t count = 0;
    for (int j = 0; j < m->job_count; j++) {
        const struct model_job *job = &m->jobs[j];
        count += job->stage == stage && !job->forgotten && job->status == status;
    }
    return count;
}

static uint64_t stage_jobs(const struct model *m, int stage) {
    return model_count(m, stage, JOB_DELAYED) + model_count(m, stage, JOB_WAITING) +
           model_count(m, stage, JOB_RUNNING) + model_count(m, stage, JOB_DEAD);
}

bool model_has_room(const struct model *m, const struct command_job *job) {
    const struct policy *p = &m->stages[job->stage].policy;
    int channel = model_channel_of(m, job->stage, job->key, 0);
    uint64_t depth = channel < 0 ? 0 : (uint64_t)model_depth(m, channel);
    return (!p->max_jobs || stage_jobs(m, job->stage) < p->max_jobs) &&
           (!p->max_channel || depth < p->max_channel);
}

int model_first_pusher(const struct model *m, int stage) {
    int first = -1;
    for (int p = 0; p < SLOTS; p++)
        if (m->pushers[p].waits && m->pushers[p].command.job.stage == stage &&
            (first < 0 || m->pushers[p].arrival < m->pushers[first].arrival))
            first = p;
    return first;
}

void rule_touch(struct model *m, int stage) {
    for (int i = 0; i < m->touched_count; i++)
        if (m->touched[i] == stage)
            return;
    m->touched[m->touched_count++] = stage;
}

// ---- Channels ---------------------------------------------------------------------------------

// The one function that changes a channel's state.
static void channel_move(struct model *m, int channel, enum channel_state to, bool at_head) {
    struct model_channel *ch = &m->channels[channel];
    struct model_stage *s = &m->stages[ch->stage];
    int kept = 0;
    for (int i = 0; i < s->ready_count; i++)
        if (s->ready[i] != channel)
            s->ready[kept++] = s->ready[i];
    bool was_ready = kept < s->ready_count;
    s->ready_count = kept;
    if (was_ready)
        rule_group_place(m, ch->stage, model_group(ch->key));
    ch->state = to;
    ch->known = to != CHANNEL_DORMANT || *ch->kept || ch->paused;
    if (to != CHANNEL_READY)
        return;
    rule_touch(m, ch->stage);
    int at = at_head ? 0 : s->ready_count;
    memmove(&s->ready[at + 1], &s->ready[at], (size_t)(s->ready_count - at) * sizeof(int));
    s->ready[at] = channel;
    s->ready_count++;
    rule_group_place(m, ch->stage, model_group(ch->key));
}

static enum channel_state right_state(const struct model *m, int channel) {
    int head = model_nth(m, channel, 0);
    if (model_halted(m, channel))
        return CHANNEL_PARKED;
    if (head < 0)
        return CHANNEL_DORMANT;
    bool waits =
        m->channels[channel].paused || m->jobs[head].unsure || m->jobs[head].wait_ms > m->now_ms;
    return waits ? CHANNEL_PARKED : CHANNEL_READY;
}

void rule_place(struct model *m, int channel, bool at_head) {
    channel_move(m, channel, right_state(m, channel), at_head);
}

void rule_correct(struct model *m, int channel, bool at_head) {
    if (m->channels[channel].state != right_state(m, channel))
        rule_place(m, channel, at_head);
}

static int channel_make(struct model *m, int stage, const char *key, uint64_t solo) {
    int c = 0;
    while (c < m->channel_count && m->channels[c].known)
        c++;
    if (c == m->channel_count)
        m->channel_count++;
    struct model_channel *ch = &m->channels[c];
    *ch = (struct model_channel){ .known = true, .stage = stage };
    text_copy(ch->key, key);
    ch->solo = model_orders(m, stage, key) ? 0 : solo;
    return c;
}

void rule_join(struct model *m, int job) {
    struct model_job *j = &m->jobs[job];
    j->status = JOB_WAITING;
    j->joined = true;
    j->joins_ms = m->now_ms;
    j->position = ++m->last_position;
    int c = rule_channel_of(m, job);
    if (c < 0)
        c = channel_make(m, j->stage, j->key, (uint64_t)job + 1);
    if (m->channels[c].state == CHANNEL_DORMANT)
        rule_place(m, c, false);
}

void rule_pause_key(struct model *m, int stage, const char *key, bool pauses) {
    int c = model_channel_of(m, stage, key, 0);
    if (c < 0 && !pauses)
        return;
    if (c < 0)
        c = channel_make(m, stage, key, 0);
    struct model_channel *ch = &m->channels[c];
    ch->paused = pauses;
    if (ch->state != CHANNEL_IN_PROGRESS)
        rule_correct(m, c, false);
    ch->known = ch->state != CHANNEL_DORMANT || *ch->kept || pauses;
}

void rule_left_channel(struct model *m, int job) {
    int c = rule_channel_of(m, job);
    if (c >= 0 && m->channels[c].state != CHANNEL_IN_PROGRESS)
        rule_correct(m, c, false);
}

// ---- Ends -------------------------------------------------------------------------------------

static void tell_callers(struct model *m, int job) {
    struct model_job *j = &m->jobs[job];
    for (int c = 0; c < SLOTS; c++) {
        if (!m->callers[c].waits || m->callers[c].job != job)
            continue;
        m->callers[c].waits = false;
        struct observed_event *h = observed_add(&m->observed);
        h->kind = OBSERVED_ENDED;
        h->receiver = c;
        h->job = job;
        h->code = (int)j->status;
        text_copy(h->body, j->status == JOB_DONE ? j->result : "");
    }
}

static void die(struct model *m, int job) {
    struct model_job *j = &m->jobs[job];
    j->status = JOB_DEAD;
    j->ended_ms = m->now_ms;
    j->end_order = ++m->last_end;
    j->deadline_ms = 0;
    j->call = false;
    j->wait_ms = 0;
    tell_callers(m, job);
    j->halts = m->stages[j->stage].policy.halt_on_dead && model_orders(m, j->stage, j->key);
}

void rule_end(struct model *m, int job, enum job_status status) {
    struct model_job *j = &m->jobs[job];
    struct model_stage *s = &m->stages[j->stage];
    j->status = status;
    j->replayed = false;
    j->ended_ms = m->now_ms;
    j->end_order = ++m->last_end;
    s->done += status == JOB_DONE;
    s->expired += status == JOB_EXPIRED;
    s->cancelled += status == JOB_CANCELLED;
    rule_touch(m, j->stage);
    tell_callers(m, job);
    rule_forget_old(m, j->stage);
}

void rule_tell_stop(struct model *m, int lease, int job, int why) {
    struct model_lease *l = &m->leases[lease];
    if (l->conn < 0)
        return;
    struct observed_event *h = observed_add(&m->observed);
    h->kind = OBSERVED_STOP;
    h->receiver = l->conn;
    h->job = job;
    h->code = why;
    h->token = l->token;
}

void rule_unwanted(struct model *m, int job, enum job_status status) {
    struct model_job *j = &m->jobs[job];
    if (j->status == JOB_RUNNING) {
        int l = model_lease_of(m, job);
        j->token = m->leases[l].token;
        rule_tell_stop(m, l, job, status == JOB_CANCELLED ? MR_ECANCELLED : MR_EEXPIRED);
        rule_end(m, job, status);
        j->replayed = m->leases[l].restored;
        rule_epics(m);
        return;
    }
    m->stages[j->stage].wasted_wait_ms += m->now_ms - j->pushed_ms;
    rule_end(m, job, status);
    if (j->joined)
        rule_left_channel(m, job);
    rule_epics(m);
}

// Notifies its callers that it was cancelled, then forgets it.
void rule_drop(struct model *m, int job) {
    struct model_job *j = &m->jobs[job];
    if (j->status != JOB_DEAD) {
        j->status = JOB_CANCELLED;
        m->stages[j->stage].cancelled++;
        tell_callers(m, job);
    }
    j->forgotten = true;
    if (j->joined)
        rule_left_channel(m, job);
    rule_epics(m);
}

void rule_interest(struct model *m, int job) {
    struct model_job *j = &m->jobs[job];
    if (!job_unended(j) || !j->call || m->now_ms < j->grace_ms)
        return;
    for (int c = 0; c < SLOTS; c++)
        if (m->callers[c].waits && m->callers[c].job == job)
            return;
    rule_unwanted(m, job, JOB_CANCELLED);
}

static bool kept_too_long(const struct model *m, const struct model_job *j) {
    const struct policy *p = &m->stages[j->stage].policy;
    if (p->retention_ms && j->ended_ms + p->retention_ms <= m->now_ms)
        return true;
    uint64_t later = 0;
    for (int i = 0; i < m->job_count; i++) {
        const struct model_job *o = &m->jobs[i];
        later += o->stage == j->stage && !o->forgotten && o->status > JOB_RUNNING &&
                 o->status != JOB_DEAD && o->end_order > j->end_order;
    }
    return p->retention_count && later >= p->retention_count;
}

void rule_forget_old(struct model *m, int stage) {
    for (int i = 0; i < m->job_count; i++) {
        struct model_job *j = &m->jobs[i];
        if (j->stage == stage && !j->forgotten && j->status > JOB_RUNNING &&
            j->status != JOB_DEAD && kept_too_long(m, j))
            j->forgotten = true;
    }
}

// ---- Epics ------------------------------------------------------------------------------------

bool model_epic_over(const struct model *m, int source) {
    const struct model_source *e = &m->sources[source];
    for (int i = 0; i < m->job_count; i++)
        if (m->jobs[i].source == source && job_unended(&m->jobs[i]))
            return false;
    for (uint64_t n = 1; !e->stopped && n <= e->total; n++)
        if (!e->accepted[n])
            return false;
    return e->known && (e->ended || e->stopped);
}

void rule_epics(struct model *m) {
    for (int i = 1; i < SOURCES; i++) {
        struct model_source *e = &m->sources[i];
        bool over = model_epic_over(m, i), pushes = over && e->then_waits;
        if (over && (!e->was_over || pushes))
            e->over_ms = m->now_ms;
        e->was_over = over;
        if (!pushes)
            continue;
        e->then_waits = false;
        e->then_pushed = true;
        rule_new_job(m, &e->then);
    }
}

void rule_forget_epic(struct model *m, int source) {
    m->sources[source] = (struct model_source){ 0 };
    for (int i = 0; i < m->gap_count; i++)
        if (m->gaps[i].source == source)
            m->gaps[i] = (struct model_gap){ -2, -1, 0 };
    for (int i = 0; i < m->job_count; i++)
        if (m->jobs[i].source == source)
            m->jobs[i].source = -1;
}

// ---- Leases -----------------------------------------------------------------------------------

static void lease_end(struct model *m, int lease, bool at_head) {
    m->leases[lease].alive = false;
    rule_group_freed(m, m->leases[lease].stage, m->leases[lease].group);
    rule_touch(m, m->leases[lease].stage);
    rule_place(m, m->leases[lease].channel, at_head);
}

void rule_lease_over(struct model *m, int lease) {
    struct model_lease *l = &m->leases[lease];
    for (int i = 0; i < l->count; i++)
        if (!l->let_go[i])
            return;
    lease_end(m, lease, false);
}

// The first unended job of the lease, with all unended ones made waiting again; -1: none.
static int take_back(struct model *m, int lease) {
    struct model_lease *l = &m->leases[lease];
    int first = -1;
    for (int i = l->count - 1; i >= 0; i--)
        if (m->jobs[l->jobs[i]].status == JOB_RUNNING) {
            first = l->jobs[i];
            m->jobs[first].status = JOB_WAITING;
        }
    return first;
}

static uint64_t nominal_backoff(const struct policy *p, uint32_t attempt) {
    uint64_t ms = p->backoff_first_ms;
    for (uint32_t i = 1; i < attempt && ms < p->backoff_most_ms; i++)
        ms *= 2;
    return earlier(ms, p->backoff_most_ms);
}

static void wait_for(struct model *m, struct model_job *j, int64_t retry_ms) {
    const struct policy *p = &m->stages[j->stage].policy;
    j->releases = 0;
    j->released = false;
    j->wait_ms = m->now_ms + (retry_ms > 0 ? (uint64_t)retry_ms : 0);
    j->unsure = retry_ms == MR_BACKOFF && nominal_backoff(p, j->attempt) > 0;
    j->backoff_ms = nominal_backoff(p, j->attempt);
    if (j->unsure)
        j->wait_ms = m->now_ms + j->backoff_ms;
}

void rule_attempt(struct model *m, int job, const char *reason, int64_t retry_ms) {
    struct model_job *j = &m->jobs[job];
    uint32_t most = j->attempts ? j->attempts : (uint32_t)m->stages[j->stage].policy.attempts;
    j->attempt++;
    m->stages[j->stage].failed++;
    text_copy(j->reason, reason);
    wait_for(m, j, retry_ms);
    if (retry_ms == MR_NEVER || (most && j->attempt >= most)) {
        j->unsure = false;
        die(m, job);
        rule_epics(m);
    }
}

void rule_fail(struct model *m, int lease, const char *reason, int64_t retry_ms) {
    int job = take_back(m, lease);
    if (job >= 0)
        rule_attempt(m, job, reason, retry_ms);
    bool comes_back = false;
    for (int i = 0; i < m->leases[lease].count; i++)
        comes_back |= m->jobs[m->leases[lease].jobs[i]].status == JOB_WAITING;
    lease_end(m, lease, comes_back && retry_ms == RETRY_AT_HEAD);
}

static void snooze(struct model *m, int lease, struct model_job *j, int64_t delay_ms) {
    j->wait_ms = m->now_ms + (uint64_t)delay_ms;
    j->released = j->unsure = false;
    lease_end(m, lease, false);
}

// With a delay the job waits for that. Otherwise the first release is free; then 10 ms, doubling,
// at most 1 s.
void rule_release(struct model *m, int lease, int64_t delay_ms) {
    int job = take_back(m, lease);
    struct model_job *j = &m->jobs[job];
    if (delay_ms) {
        snooze(m, lease, j, delay_ms);
        return;
    }
    j->releases++;
    uint64_t ms = 0;
    for (uint32_t i = 1; i < j->releases; i++)
        ms = ms ? earlier(ms * 2, 1000) : 10;
    j->wait_ms = m->now_ms + ms;
    j->backoff_ms = ms;
    j->released = j->unsure = ms > 0;
    lease_end(m, lease, true);
}

// ---- Starting ---------------------------------------------------------------------------------

// Rule 13: stages that may start again because their downstream stage is under its low mark.
static void mark_levels(struct model *m) {
    for (int d = 0; d < STAGES; d++) {
        uint64_t high = m->stages[d].policy.high_mark;
        uint64_t jobs = model_count(m, d, JOB_WAITING) + model_count(m, d, JOB_DELAYED);
        bool was_over = m->stages[d].over;
        if (!high || jobs <= high / 2)
            m->stages[d].over = false;
        else if (jobs >= high)
            m->stages[d].over = true;
        for (int s = 0; s < STAGES && was_over && !m->stages[d].over; s++)
            if (m->stages[s].edges[d])
                rule_touch(m, s);
    }
}

// Jobs of a stage that workers have not answered.
static uint64_t leased_jobs(const struct model *m, int stage) {
    uint64_t jobs = 0;
    for (int l = 0; l < m->lease_count; l++)
        for (int i = 0; i < m->leases[l].count; i++)
            jobs += m->leases[l].alive && m->leases[l].stage == stage && !m->leases[l].let_go[i];
    return jobs;
}

// Rule 2: the one predicate.
static bool may_start(struct model *m, int stage) {
    struct model_stage *s = &m->stages[stage];
    if (s->paused || (s->policy.concurrency && leased_jobs(m, stage) >= s->policy.concurrency))
        return false;
    for (int d = 0; d < STAGES; d++)
        if (s->edges[d] && m->stages[d].over)
            return false;
    return model_next_ready(m, stage) >= 0;
}

static void grant(struct model *m, int lease, int job, int taker, bool first) {
    struct model_job *j = &m->jobs[job];
    struct model_lease *l = &m->leases[lease];
    j->status = JOB_RUNNING;
    j->leased = true;
    j->wait_ms = 0;
    l->jobs[l->count++] = job;
    struct observed_event *h = observed_add(&m->observed);
    h->kind = OBSERVED_GRANT;
    h->receiver = taker;
    h->job = job;
    h->stage = j->stage;
    h->attempt = j->attempt + 1;
    h->left_ms = j->deadline_ms ? (int64_t)(j->deadline_ms - m->now_ms) : -1;
    h->lease_ms = (int64_t)l->lease_ms;
    h->first = first;
    h->code = lease;
    text_copy(h->key, j->key);
    text_copy(h->body, j->body);
    text_copy(h->meta, j->meta);
    text_copy(h->state, m->channels[l->channel].kept);
}

static int start_block(struct model *m, const struct command *c, int stage, int most, int taker) {
    uint64_t limit = m->stages[stage].policy.concurrency;
    if (limit && limit - leased_jobs(m, stage) < (uint64_t)most)
        most = (int)(limit - leased_jobs(m, stage));
    int channel = model_next_ready(m, stage), group = model_group(m->channels[channel].key);
    limit = m->stages[stage].policy.group ? m->stages[stage].policy.group_concurrency : 0;
    if (limit && limit - model_group_leased(m, stage, group) < (uint64_t)most)
        most = (int)(limit - model_group_leased(m, stage, group));
    int lease = m->lease_count++;
    struct model_lease *l = &m->leases[lease];
    *l = (struct model_lease){ .alive = true, .detached = c->detached, .conn = c->conn };
    l->stage = stage;
    l->channel = channel;
    l->group = group;
    l->lease_ms = c->lease_ms ? (uint64_t)c->lease_ms : m->stages[stage].policy.lease_ms;
    l->until_ms = m->now_ms + l->lease_ms;
    l->recorded = c->detached || m->stages[stage].policy.overlap_never;
    channel_move(m, l->channel, CHANNEL_IN_PROGRESS, false);
    int jobs[BLOCK], count = 0;
    for (int job; count < most && (job = model_nth(m, l->channel, count)) >= 0; count++) {
        if (halts_before(m, l->channel, job))
            break;
        jobs[count] = job;
    }
    for (int i = 0; i < count; i++)
        grant(m, lease, jobs[i], taker, i == 0);
    rule_group_started(m, stage, group, count);
    return count;
}

int rule_take(struct model *m, const struct command *c, int taker) {
    int given = 0, count = c->count ? (int)c->count : 1, batch = c->batch ? (int)c->batch : 1;
    for (int i = 0; i < c->stage_count; i++)
        while (given < count && may_start(m, c->stages[i]) && m->lease_count < MANY) {
            int most = count - given < batch ? count - given : batch;
            given += start_block(m, c, c->stages[i], most, taker);
            mark_levels(m);
        }
    return given;
}

static int first_taker(const struct model *m, int stage) {
    int first = -1;
    for (int t = 0; t < SLOTS; t++) {
        const struct model_slot *slot = &m->takers[t];
        bool waits_here = false;
        for (int i = 0; slot->waits && i < slot->command.stage_count; i++)
            waits_here |= slot->command.stages[i] == stage;
        if (waits_here && (first < 0 || slot->arrival < m->takers[first].arrival))
            first = t;
    }
    return first;
}

static int waiting_takers(const struct model *m) {
    int count = 0;
    for (int t = 0; t < SLOTS; t++)
        count += m->takers[t].waits;
    return count;
}

// A take waits for several stages that have work: its grant depends on which is served first, which
// the rules do not define.
static bool choice_is_open(struct model *m) {
    for (int t = 0; t < SLOTS; t++) {
        const struct model_slot *slot = &m->takers[t];
        int with_work = 0;
        for (int i = 0; slot->waits && i < slot->command.stage_count; i++)
            with_work += may_start(m, slot->command.stages[i]);
        if (with_work > 1)
            return true;
    }
    return false;
}

void rule_settle(struct model *m) {
    mark_levels(m);
    while (m->touched_count > 0) {
        m->ambiguous |= waiting_takers(m) > 1 && choice_is_open(m);
        int stage = m->touched[0];
        m->touched_count--;
        memmove(m->touched, m->touched + 1, (size_t)m->touched_count * sizeof(int));
        for (int t; may_start(m, stage) && (t = first_taker(m, stage)) >= 0;) {
            m->takers[t].waits = false;
            if (!m->takers[t].command.refuses)
                rule_take(m, &m->takers[t].command, t);
        }
    }
}
