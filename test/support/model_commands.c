// The commands: for each, the answer that the rules demand, and its effect.
#include "model_rules.h"

#include <string.h>

// ---- Pushes -----------------------------------------------------------------------------------

int rule_new_job(struct model *m, const struct command_job *of) {
    if (m->job_count == MANY) {
        m->full = true;
        return -1;
    }
    int job = m->job_count++;
    struct model_job *j = &m->jobs[job];
    *j = (struct model_job){ .stage = of->stage, .source = -1, .attempts = of->attempts };
    text_copy(j->key, of->key);
    text_copy(j->once, of->once);
    text_copy(j->body, of->body);
    text_copy(j->meta, of->meta);
    j->made_ms = j->pushed_ms = m->now_ms;
    j->deadline_ms = of->deadline_ms ? m->now_ms + (uint64_t)of->deadline_ms : 0;
    m->stages[of->stage].known = true;
    m->stages[of->stage].pushed++;
    if (of->delay_ms) {
        j->status = JOB_DELAYED;
        j->joins_ms = m->now_ms + (uint64_t)of->delay_ms;
    } else {
        rule_join(m, job);
    }
    return job;
}

// Rule 12. A forgotten job holds its name until the window has passed; a dead one while it is kept.
int rule_once(const struct model *m, int stage, const char *key, const char *once) {
    for (int i = m->job_count - 1; i >= 0 && *once; i--) {
        const struct model_job *j = &m->jobs[i];
        if (j->stage != stage || strcmp(j->key, key) != 0 || strcmp(j->once, once) != 0)
            continue;
        if (job_unended(j) || (j->status == JOB_DEAD && !j->forgotten))
            return i;
        uint64_t window_ms = m->stages[stage].policy.dedupe_window_ms;
        if (j->status == JOB_DONE && m->now_ms < j->ended_ms + window_ms)
            return i;
    }
    return -1;
}

static int job_of_number(const struct model *m, int source, uint64_t number) {
    if (m->sources[source].noted[number])
        return m->sources[source].noted[number] - 1;
    for (int i = 0; i < m->job_count; i++)
        if (m->jobs[i].source == source && m->jobs[i].number == number)
            return i;
    return -1;
}

static bool gap_before(const struct model *m, const struct command *c) {
    for (int i = 0; i < m->gap_count && c->conn >= 0; i++) {
        const struct model_gap *g = &m->gaps[i];
        if (g->conn == c->conn && g->source == c->source && g->number < c->number &&
            !m->sources[g->source].accepted[g->number])
            return true;
    }
    return false;
}

static int refuse(struct model *m, const struct command *c, int err) {
    if (c->source >= 0 && c->conn >= 0 && m->gap_count < MANY)
        m->gaps[m->gap_count++] = (struct model_gap){ c->conn, c->source, c->number };
    return err;
}

static void number_accept(struct model *m, const struct command *c, int job) {
    if (c->source < 0)
        return;
    m->sources[c->source].known = true;
    m->sources[c->source].accepted[c->number] = true;
    m->jobs[job].source = c->source;
    m->jobs[job].number = c->number;
}

// The push is a repeat of a job by its name: its number makes no other, and may be the last.
static void number_note(struct model *m, const struct command *c, int job) {
    if (c->source < 0)
        return;
    struct model_source *s = &m->sources[c->source];
    s->known = s->accepted[c->number] = true;
    s->noted[c->number] = job + 1;
    s->skipped++;
    rule_epics(m);
}

static void caller_sit(struct model *m, const struct command *c, int job) {
    struct model_slot *slot = &m->callers[c->caller];
    *slot = (struct model_slot){ .waits = true, .conn = c->conn, .job = job };
    slot->arrival = ++m->last_arrival;
}

static void tell_end(const struct model *m, int job, struct answer *out) {
    out->ended = true;
    out->status = m->jobs[job].status;
    if (out->status == JOB_DONE)
        text_copy(out->text, m->jobs[job].result);
}

static int push_repeat(struct model *m, const struct command *c, int job, struct answer *out) {
    struct model_job *j = &m->jobs[job];
    if (c->caller >= 0 && j->forgotten)
        return MR_EGONE;
    out->repeat = true;
    out->id = j->id;
    if (c->caller < 0)
        j->call = false;
    else if (job_unended(j))
        caller_sit(m, c, job);
    else
        tell_end(m, job, out);
    number_note(m, c, job);
    return 0;
}

// The quotas of tokens.
static uint64_t maker_of(int conn) {
    return conn_counts_jobs(conn) ? conn_maker(conn) : 0;
}

static uint64_t job_bytes(const char *body, const char *meta) {
    return strlen(body) + strlen(meta);
}

// Whether the token of the connection may have so many more.
static bool quota_allows(const struct model *m, int conn, uint64_t jobs, uint64_t bytes) {
    for (int i = 0; i < m->job_count; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->maker != conn_maker(conn) || j->forgotten ||
            (!job_unended(j) && j->status != JOB_DEAD))
            continue;
        jobs++;
        bytes += job_bytes(j->body, j->meta);
    }
    return conn == 0 ? jobs <= JOBS_OF_FIRST : conn != 1 || bytes <= BYTES_OF_SECOND;
}

// Rule 12, LAST: the job has not started and gets what the push says.
static int push_replace(struct model *m, const struct command *c, int job, struct answer *out) {
    struct model_job *j = &m->jobs[job];
    if (m->stages[j->stage].draining)
        return refuse(m, c, MR_EDRAINING);
    uint64_t maker = maker_of(c->conn), before = job_bytes(j->body, j->meta);
    uint64_t bytes = job_bytes(c->job.body, c->job.meta);
    bool has = maker == j->maker;
    if (maker && !(has && bytes <= before) &&
        !quota_allows(m, c->conn, !has, has ? bytes - before : bytes))
        return refuse(m, c, MR_EFULL);
    j->maker = maker ? maker : j->maker;
    out->repeat = true;
    out->id = j->id;
    j->call = false;
    text_copy(j->body, c->job.body);
    text_copy(j->meta, c->job.meta);
    j->deadline_ms = c->job.deadline_ms ? m->now_ms + (uint64_t)c->job.deadline_ms : 0;
    if (j->status == JOB_DELAYED && c->job.delay_ms)
        j->joins_ms = m->now_ms + (uint64_t)c->job.delay_ms;
    else if (j->status == JOB_DELAYED)
        rule_join(m, job);
    number_note(m, c, job);
    return 0;
}

static bool has_started(const struct model_job *j) {
    return j->forgotten || j->status > JOB_WAITING || j->leased || j->attempt > 0;
}

static int push(struct model *m, const struct command *c, struct answer *out) {
    const struct model_stage *s = &m->stages[c->job.stage];
    if (c->source >= 0 && m->sources[c->source].accepted[c->number]) {
        int first = job_of_number(m, c->source, c->number);
        out->repeat = true;
        out->id = first >= 0 ? m->jobs[first].id : 0;
        return 0;
    }
    if (c->source >= 0 && m->sources[c->source].stopped)
        return refuse(m, c, MR_ECANCELLED);
    if (c->source >= 0 && gap_before(m, c))
        return MR_EGAP;
    int first = rule_once(m, c->job.stage, c->job.key, c->job.once);
    bool takes_name = first >= 0 && c->job.last && has_started(&m->jobs[first]);
    if (first >= 0 && c->job.last && !takes_name)
        return push_replace(m, c, first, out);
    if (first >= 0 && !takes_name)
        return push_repeat(m, c, first, out);
    if (!quota_allows(m, c->conn, 1, job_bytes(c->job.body, c->job.meta)))
        return refuse(m, c, MR_EFULL);
    if (s->draining)
        return refuse(m, c, MR_EDRAINING);
    bool in_turn = m->pushing_again || model_first_pusher(m, c->job.stage) < 0;
    if (!in_turn || !model_has_room(m, &c->job)) {
        if (c->pusher < 0)
            return refuse(m, c, MR_EFULL);
        struct model_slot *slot = &m->pushers[c->pusher];
        *slot = (struct model_slot){ .waits = true, .conn = c->conn, .command = *c };
        slot->arrival = ++m->last_arrival;
        return refuse(m, c, MR_EAGAIN);
    }
    if (takes_name)
        *m->jobs[first].once = 0;
    int job = rule_new_job(m, &c->job);
    if (job < 0)
        return MR_EFULL;
    number_accept(m, c, job);
    m->jobs[job].maker = maker_of(c->conn);
    m->jobs[job].call = c->caller >= 0;
    if (c->caller >= 0)
        caller_sit(m, c, job);
    return 0;
}

static int await(struct model *m, const struct command *c, struct answer *out) {
    int job = model_find(m, c->id);
    if (job < 0)
        return MR_EGONE;
    if (!job_unended(&m->jobs[job])) {
        tell_end(m, job, out);
        return 0;
    }
    caller_sit(m, c, job);
    return MR_EAGAIN;
}

static int cancel(struct model *m, const struct command *c, struct answer *out) {
    int job = model_find(m, c->id);
    if (job < 0)
        return MR_EGONE;
    out->changed = job_unended(&m->jobs[job]);
    if (out->changed)
        rule_unwanted(m, job, JOB_CANCELLED);
    return 0;
}

// ---- Working ----------------------------------------------------------------------------------

static int take(struct model *m, const struct command *c) {
    for (int i = 0; i < c->stage_count; i++)
        m->stages[c->stages[i]].seen = true;
    if (rule_take(m, c, -1) > 0)
        return 0;
    if (c->taker >= 0) {
        struct model_slot *slot = &m->takers[c->taker];
        *slot = (struct model_slot){ .waits = true, .conn = c->conn, .command = *c };
        slot->arrival = ++m->last_arrival;
    }
    return MR_EAGAIN;
}

static bool same_token(const struct token *a, const struct token *b) {
    return a->serial == b->serial && a->random == b->random;
}

// The random bits of a token are not recorded.
static bool ended_by(const struct model_job *j, const struct token *token) {
    return j->token.serial == token->serial && (j->replayed || j->token.random == token->random);
}

static int find_ever(const struct model *m, uint64_t id) {
    int job = m->job_count - 1;
    while (job >= 0 && m->jobs[job].id != id)
        job--;
    return job;
}

// Rule 6: what (id, token) names. 0: the lease is held and the job runs, in its turn; otherwise the
// answer. `out_lease`, `out_index`: set whenever the lease is alive and holds the job.
static int held(const struct model *m, const struct command *c, int *out_lease, int *out_index) {
    int job = find_ever(m, c->id);
    *out_lease = -1;
    if (job < 0)
        return MR_EGONE;
    int lease = model_lease_of(m, job);
    const struct model_lease *l = &m->leases[lease < 0 ? 0 : lease];
    enum job_status status = m->jobs[job].status;
    bool fits = lease >= 0 && same_token(&l->token, &c->token);
    if (fits && l->alive) {
        *out_lease = lease;
        while (l->jobs[*out_index] != job)
            ++*out_index;
    }
    if (m->jobs[job].forgotten)
        return MR_EGONE;
    if (status == JOB_CANCELLED || status == JOB_EXPIRED) {
        return !ended_by(&m->jobs[job], &c->token) ? MR_ESTALE
               : status == JOB_CANCELLED           ? MR_ECANCELLED
                                                   : MR_EEXPIRED;
    }
    return fits && l->alive && status == JOB_RUNNING ? 0 : MR_ESTALE;
}

static bool first_of_block(const struct model *m, int lease, int index) {
    for (int i = 0; i < index; i++)
        if (m->jobs[m->leases[lease].jobs[i]].status == JOB_RUNNING)
            return false;
    return true;
}

// The worker has let go of this job; and of all before it, if it is this one's turn.
static void let_go(struct model *m, int lease, int index) {
    if (lease < 0 || m->leases[lease].let_go[index])
        return;
    bool in_turn = first_of_block(m, lease, index);
    for (int i = in_turn ? 0 : index; i <= index; i++)
        m->leases[lease].let_go[i] = true;
    rule_group_freed(m, m->leases[lease].stage, m->leases[lease].group);
    rule_touch(m, m->leases[lease].stage);
    rule_lease_over(m, lease);
}

// It counts as the job does that has emitted it, or for the token of the commit.
static void emit(struct model *m, int from, const struct command_job *e, uint64_t maker) {
    m->stages[from].edges[e->stage] = from != e->stage;
    int first = rule_once(m, e->stage, e->key, e->once);
    if (first >= 0)
        m->jobs[first].call = false;
    else if ((first = rule_new_job(m, e)) >= 0)
        m->jobs[first].maker = maker;
}

static int done(struct model *m, const struct command *c) {
    int lease, index = 0, err = held(m, c, &lease, &index), job = model_find(m, c->id);
    if (err == MR_ECANCELLED || err == MR_EEXPIRED || err == MR_EGONE)
        let_go(m, lease, index);
    if (job >= 0 && m->jobs[job].status == JOB_DONE)
        return ended_by(&m->jobs[job], &c->token) ? 0 : MR_ESTALE;
    if (err < 0)
        return err;
    if (!first_of_block(m, lease, index))
        return MR_EINVAL;
    struct model_job *j = &m->jobs[job];
    if (c->set_state && *c->state && !model_orders(m, j->stage, j->key))
        return MR_EINVAL;
    j->token = c->token;
    text_copy(j->result, c->text);
    if (c->set_state)
        text_copy(m->channels[m->leases[lease].channel].kept, c->state);
    rule_end(m, job, JOB_DONE);
    j->replayed = m->leases[lease].restored;
    let_go(m, lease, index);
    for (int i = 0; i < c->emit_count; i++)
        emit(m, j->stage, &c->emits[i], j->maker ? j->maker : maker_of(c->conn));
    rule_epics(m);
    return 0;
}

static int fail_or_release(struct model *m, const struct command *c) {
    int lease, index = 0, err = held(m, c, &lease, &index);
    if (err == MR_ECANCELLED || err == MR_EEXPIRED || err == MR_EGONE)
        let_go(m, lease, index);
    if (err < 0)
        return err;
    if (!first_of_block(m, lease, index))
        return MR_EINVAL;
    if (c->op == OP_FAIL)
        rule_fail(m, lease, c->text, c->retry_ms);
    else
        rule_release(m, lease, c->delay_ms);
    return 0;
}

static int beat(struct model *m, const struct command *c) {
    int lease, index = 0, err = held(m, c, &lease, &index);
    if (err < 0)
        return err;
    m->leases[lease].until_ms = m->now_ms + m->leases[lease].lease_ms;
    if (c->number) {
        m->leases[lease].said = c->number;
        m->leases[lease].about = c->id;
    }
    return 0;
}

// ---- Acting -----------------------------------------------------------------------------------

static int retry(struct model *m, const struct command *c) {
    int job = model_find(m, c->id);
    if (job < 0)
        return MR_EGONE;
    struct model_job *j = &m->jobs[job];
    if (j->status != JOB_DEAD)
        return MR_EINVAL;
    j->attempt = 0;
    j->pushed_ms = m->now_ms;
    j->status = JOB_WAITING;
    if (j->halts)
        rule_left_channel(m, job);
    else
        rule_join(m, job);
    return 0;
}

static int due(struct model *m, const struct command *c, struct answer *out) {
    int job = model_find(m, c->id);
    if (job < 0)
        return MR_EGONE;
    struct model_job *j = &m->jobs[job];
    if (j->status == JOB_DELAYED) {
        out->changed = true;
        rule_join(m, job);
    } else if (j->status == JOB_WAITING && j->wait_ms > m->now_ms) {
        out->changed = true;
        j->wait_ms = 0;
        rule_left_channel(m, job);
    }
    return 0;
}

static int drop(struct model *m, const struct command *c) {
    int job = model_find(m, c->id);
    if (job < 0)
        return MR_EGONE;
    struct model_job *j = &m->jobs[job];
    if (j->status == JOB_RUNNING)
        return MR_EBUSY;
    if (j->status != JOB_DEAD && !job_unended(j))
        return MR_EINVAL;
    rule_drop(m, job);
    return 0;
}

// Whether anything keeps `group` as it is: a job, a lease or a state.
static bool stage_has_work(const struct model *m, int stage) {
    bool has = model_count(m, stage, JOB_DELAYED) + model_count(m, stage, JOB_WAITING) +
               model_count(m, stage, JOB_RUNNING) + model_count(m, stage, JOB_DEAD);
    for (int l = 0; l < m->lease_count; l++)
        has |= m->leases[l].alive && m->leases[l].stage == stage;
    for (int c = 0; c < m->channel_count; c++)
        has |= m->channels[c].known && m->channels[c].stage == stage &&
               (*m->channels[c].kept || m->channels[c].paused);
    return has;
}

static int set(struct model *m, const struct command *c) {
    struct model_stage *s = &m->stages[c->job.stage];
    struct policy before = s->policy;
    int err = policy_set(&s->policy, mr_str(c->name), mr_str(c->text));
    if (s->policy.group != before.group && stage_has_work(m, c->job.stage)) {
        s->policy = before;
        return MR_EINVAL;
    }
    s->known |= err == 0;
    rule_group_limits(m, c->job.stage, &before);
    rule_forget_old(m, c->job.stage);
    rule_touch(m, c->job.stage);
    return err;
}

static int pause_or_resume(struct model *m, const struct command *c) {
    struct model_stage *s = &m->stages[c->job.stage];
    bool pauses = c->op == OP_PAUSE;
    if (*c->job.key && !model_orders(m, c->job.stage, c->job.key))
        return pauses ? MR_EINVAL : 0;
    s->known |= pauses;
    if (*c->job.key) {
        rule_pause_key(m, c->job.stage, c->job.key, pauses);
        return 0;
    }
    s->paused = pauses;
    if (pauses)
        return 0;
    s->draining = false;
    rule_touch(m, c->job.stage);
    return 0;
}

static int first_caller_of(const struct model *m, int conn) {
    int first = -1;
    for (int i = 0; i < SLOTS; i++)
        if (m->callers[i].waits && m->callers[i].conn == conn &&
            (first < 0 || m->callers[i].arrival < m->callers[first].arrival))
            first = i;
    return first;
}

static void leave(struct model *m, int conn) {
    for (int i = 0; i < SLOTS; i++) {
        if (m->takers[i].conn == conn)
            m->takers[i].waits = false;
        if (m->pushers[i].conn == conn)
            m->pushers[i].waits = false;
    }
    for (int i; (i = first_caller_of(m, conn)) >= 0;) {
        m->callers[i].waits = false;
        rule_interest(m, m->callers[i].job);
    }
    for (int l = 0; l < m->lease_count; l++) {
        struct model_lease *lease = &m->leases[l];
        if (!lease->alive || lease->conn != conn)
            continue;
        lease->conn = -1;
        if (!lease->detached && !m->stages[lease->stage].policy.overlap_never)
            rule_fail(m, l, "", RETRY_AT_HEAD);
    }
    for (int i = 0; i < m->gap_count; i++)
        if (m->gaps[i].conn == conn)
            m->gaps[i].conn = -2;
}

static void await_leave(struct model *m, int caller) {
    if (!m->callers[caller].waits)
        return;
    m->callers[caller].waits = false;
    rule_interest(m, m->callers[caller].job);
}

// ---- Epics ------------------------------------------------------------------------------------

static int epic(struct model *m, const struct command *c) {
    struct model_source *e = &m->sources[c->source];
    if (c->op == OP_EPIC_DROP && !e->known)
        return MR_EGONE;
    if (c->op == OP_EPIC_DROP) {
        rule_forget_epic(m, c->source);
        return 0;
    }
    for (int i = 0; c->op == OP_EPIC_END && i < NUMBERS; i++)
        if (e->accepted[i] && (uint64_t)i > c->number)
            return MR_EINVAL;
    e->known = true;
    if (c->op == OP_EPIC_END) {
        e->total = c->number;
        e->ended = true;
    } else if (!e->accepted[c->number]) {
        e->accepted[c->number] = true;
        e->skipped++;
    }
    rule_epics(m);
    return 0;
}

static bool same_then(const struct command_job *a, const struct command_job *b) {
    return a->stage == b->stage && strcmp(a->key, b->key) == 0 && strcmp(a->body, b->body) == 0;
}

static int epic_then(struct model *m, const struct command *c) {
    struct model_source *e = &m->sources[c->source];
    if (e->then_pushed)
        return same_then(&e->then, &c->job) ? 0 : MR_EINVAL;
    e->known = e->then_waits = true;
    e->then = c->job;
    m->stages[c->job.stage].known = true;
    rule_epics(m);
    return 0;
}

// In the order of their ids.
static int epic_cancel(struct model *m, const struct command *c) {
    struct model_source *e = &m->sources[c->source];
    if (!e->known)
        return MR_EGONE;
    if (e->stopped && model_epic_over(m, c->source))
        return 0;
    e->stopped = true;
    e->was_over = false;
    for (int i = 0, count = m->job_count; i < count; i++)
        if (m->jobs[i].source == c->source && job_unended(&m->jobs[i]))
            rule_unwanted(m, i, JOB_CANCELLED);
    rule_epics(m);
    return 0;
}

static int epic_forget(struct model *m, const struct command *c) {
    struct model_source *e = &m->sources[c->source];
    if (c->number && c->number < 1000)
        return MR_EINVAL;
    e->known = true;
    e->forget_ms = c->number;
    if (model_epic_over(m, c->source))
        e->over_ms = m->now_ms;
    return 0;
}

static int epic_act(struct model *m, const struct command *c) {
    return c->op == OP_EPIC_CANCEL   ? epic_cancel(m, c)
           : c->op == OP_EPIC_FORGET ? epic_forget(m, c)
           : c->op == OP_EPIC_THEN   ? epic_then(m, c)
                                     : epic(m, c);
}

// ---- Schedules --------------------------------------------------------------------------------

int model_first_due(const struct model *m, uint64_t *out_ms) {
    int first = -1;
    for (int i = 0; i < SCHEDULES; i++) {
        const struct model_schedule *s = &m->schedules[i];
        uint64_t at_ms = s->asked ? 0 : s->next_ms;
        if (!s->known || (s->paused && !s->asked) || (first >= 0 && at_ms >= *out_ms))
            continue;
        first = i;
        *out_ms = at_ms;
    }
    return first;
}

// The definition of a schedule is always the same, but for its job.
static int schedule_set(struct model *m, const struct command *c) {
    struct model_schedule *s = &m->schedules[c->schedule];
    if (c->every_ms < EVERY_LEAST_MS)
        return MR_EINVAL;
    if (c->op == OP_SCHEDULE_DRY)
        return 0;
    if (!s->known)
        *s = (struct model_schedule){ .known = true, .next_ms = c->next_ms, .last = -1 };
    s->job = c->job;
    m->stages[c->job.stage].known = true;
    return 0;
}

static int tick(struct model *, const struct command *, struct answer *out);

static int schedule_act(struct model *m, const struct command *c, struct answer *out) {
    struct model_schedule *s = &m->schedules[c->schedule];
    if (c->op == OP_SCHEDULE || c->op == OP_SCHEDULE_DRY)
        return schedule_set(m, c);
    if (c->op == OP_TICK)
        return tick(m, c, out);
    if (!s->known)
        return MR_EGONE;
    if (c->op == OP_SCHEDULE_DROP)
        *s = (struct model_schedule){ 0 };
    if (c->op == OP_SCHEDULE_PAUSE)
        s->paused = true;
    if (c->op == OP_SCHEDULE_RESUME && s->paused) {
        s->paused = false;
        s->next_ms = c->next_ms;
    }
    if (c->op == OP_SCHEDULE_NOW)
        s->asked = true;
    return 0;
}

static int tick(struct model *m, const struct command *c, struct answer *out) {
    uint64_t due_ms = 0;
    int first = model_first_due(m, &due_ms);
    out->changed = first >= 0 && due_ms <= c->wall_ms;
    if (!out->changed)
        return 0;
    struct model_schedule *s = &m->schedules[first];
    if (!s->asked) {
        s->last_ms = s->next_ms;
        s->next_ms = c->next_ms;
    }
    if (s->asked || !c->skips) {
        s->pushed++;
        s->last = rule_new_job(m, &s->job);
    }
    s->asked = false;
    return 0;
}

// ---- All of them ------------------------------------------------------------------------------

static int say(struct model *m, const struct command *c, struct answer *out) {
    struct model_stage *s = &m->stages[c->job.stage];
    switch (c->op) {
    case OP_PUSH:
        return push(m, c, out);
    case OP_PUSH_LEAVE:
        m->pushers[c->pusher].waits = false;
        return 0;
    case OP_AWAIT:
        return await(m, c, out);
    case OP_AWAIT_LEAVE:
        await_leave(m, c->caller);
        return 0;
    case OP_CANCEL:
        return cancel(m, c, out);
    case OP_TAKE:
        return take(m, c);
    case OP_TAKE_LEAVE:
        m->takers[c->taker].waits = false;
        return 0;
    case OP_DONE:
        return done(m, c);
    case OP_FAIL:
    case OP_RELEASE:
        return fail_or_release(m, c);
    case OP_BEAT:
        return beat(m, c);
    case OP_RETRY:
        return retry(m, c);
    case OP_DUE:
        return due(m, c, out);
    case OP_DROP:
        return drop(m, c);
    case OP_SET:
        return set(m, c);
    case OP_PAUSE:
    case OP_RESUME:
        return pause_or_resume(m, c);
    case OP_DRAIN:
        s->known = s->draining = true;
        return 0;
    case OP_LINK:
        m->stages[c->stages[0]].edges[c->stages[1]] = true;
        return 0;
    case OP_LEAVE:
        leave(m, c->conn);
        return 0;
    case OP_EPIC_END:
    case OP_EPIC_SKIP:
    case OP_EPIC_DROP:
    case OP_EPIC_CANCEL:
    case OP_EPIC_FORGET:
    case OP_EPIC_THEN:
        return epic_act(m, c);
    case OP_SCHEDULE:
    case OP_SCHEDULE_DROP:
    case OP_SCHEDULE_PAUSE:
    case OP_SCHEDULE_RESUME:
    case OP_SCHEDULE_NOW:
    case OP_SCHEDULE_DRY:
    case OP_TICK:
        return schedule_act(m, c, out);
    case OP_TIME:
    case OP_CLEAN:
    case OP_CRASH:
    case OPS:
        return 0;
    }
    return 0;
}

void model_run(struct model *m, const struct command *c, struct answer *out) {
    *out = (struct answer){ 0 };
    out->err = say(m, c, out);
    rule_epics(m);
    rule_settle(m);
}
