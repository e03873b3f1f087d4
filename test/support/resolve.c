// The command of a step. Most choices are sensible, some are wrong on purpose: stale tokens,
// unknown ids, jobs out of turn.
#include "resolve.h"

uint64_t chance_next(struct chance *c) {
    uint64_t z = c->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t chance_below(struct chance *c, uint64_t limit) {
    return limit ? chance_next(c) % limit : 0;
}

static bool one_in(struct chance *c, uint64_t n) {
    return chance_below(c, n) == 0;
}

// A duration with an end of its own: the rules do not order things that are due at the same
// instant.
static int64_t own_time(const struct model *m, uint64_t now_ms, uint64_t ms) {
    while (model_taken(m, now_ms + ms))
        ms++;
    return (int64_t)ms;
}

static uint64_t some_time(struct chance *c) {
    static const uint64_t scales[] = { 10, 50, 200, 1000, 5000, 60000 };
    return 1 + chance_below(c, scales[chance_below(c, 6)]);
}

static void make_job(const struct model *m, struct chance *c, uint64_t now_ms, int stage,
                     struct command_job *j) {
    *j = (struct command_job){ .stage = stage };
    text_copy(j->key, key_names[chance_below(c, KEYS)]);
    if (one_in(c, 4))
        snprintf(j->once, TEXT, "once%d", (int)chance_below(c, ONCES));
    snprintf(j->body, TEXT, "body%u", (unsigned)chance_below(c, 1000000));
    if (one_in(c, 5))
        j->delay_ms = own_time(m, now_ms, some_time(c));
    if (one_in(c, 5))
        j->deadline_ms = own_time(m, now_ms, some_time(c));
    if (j->delay_ms == j->deadline_ms && j->delay_ms)
        j->deadline_ms = 0;
    if (one_in(c, 3))
        j->attempts = 1 + (uint32_t)chance_below(c, 3);
    if (one_in(c, 4))
        snprintf(j->meta, TEXT, "meta%u", (unsigned)chance_below(c, 1000000));
}

static int free_slot(const struct model_slot *slots, struct chance *c) {
    int first = (int)chance_below(c, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (!slots[(first + i) % SLOTS].waits)
            return (first + i) % SLOTS;
    return -1;
}

// A caller's slot that no waiting push uses for its call either.
static int free_caller(const struct model *m, struct chance *c) {
    int slot = free_slot(m->callers, c);
    for (int p = 0; p < SLOTS; p++)
        if (m->pushers[p].waits && m->pushers[p].command.caller == slot)
            return -1;
    return slot;
}

static int waiting_slot(const struct model_slot *slots, struct chance *c) {
    int first = (int)chance_below(c, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (slots[(first + i) % SLOTS].waits)
            return (first + i) % SLOTS;
    return -1;
}

// The next number of a source, mostly; sometimes one ahead, or an old one.
static uint64_t some_number(const struct model *m, struct chance *c, int source) {
    uint64_t next = 1;
    while (m->sources[source].accepted[next])
        next++;
    if (one_in(c, 4))
        return 1 + chance_below(c, next);
    return next + (one_in(c, 3) ? chance_below(c, 4) : 0);
}

static uint64_t last_number(const struct model *m, int source) {
    uint64_t last = NUMBERS - 1;
    while (last && !m->sources[source].accepted[last])
        last--;
    return last;
}

static bool resolve_push(const struct model *m, struct chance *c, unsigned features,
                         struct command *out) {
    make_job(m, c, out->now_ms, out->job.stage, &out->job);
    if ((features & FEATURE_NUMBERS) && one_in(c, 2)) {
        out->source = (int)chance_below(c, SOURCES);
        out->job.stage = source_stage(out->source);
        out->number = some_number(m, c, out->source);
        out->job.last = *out->job.once && one_in(c, 2);
        out->conn %= 2; // so that refused numbers meet higher ones
        if (out->number >= 1000)
            return false;
    } else if ((features & FEATURE_CALLS) && one_in(c, 2)) {
        out->caller = free_caller(m, c);
        if (out->caller < 0)
            return false;
    } else {
        out->job.last = *out->job.once && one_in(c, 2);
    }
    if ((features & FEATURE_ROOM) && one_in(c, 2))
        out->pusher = free_slot(m->pushers, c);
    return true;
}

static bool resolve_take(const struct model *m, struct chance *c, unsigned features,
                         struct command *out) {
    out->stage_count = 1 + (int)chance_below(c, STAGES);
    int first = (int)chance_below(c, STAGES), turn = one_in(c, 2) ? 1 : STAGES - 1;
    for (int i = 0; i < out->stage_count; i++)
        out->stages[i] = (first + i * turn) % STAGES;
    if (features & FEATURE_BLOCKS)
        out->batch = (uint32_t)chance_below(c, BLOCK + 1);
    out->count = one_in(c, 3) ? (uint32_t)chance_below(c, BLOCK + 1) : 1;
    if (features & FEATURE_BLOCKS && one_in(c, 2))
        out->count = BLOCK;
    if (!one_in(c, 4))
        out->lease_ms = own_time(m, out->now_ms, 5 + some_time(c));
    out->detached = one_in(c, 5);
    if (one_in(c, 2))
        out->taker = free_slot(m->takers, c);
    out->refuses = out->taker >= 0 && one_in(c, 10);
    return true;
}

// A lease, mostly one that is alive.
static int some_lease(const struct model *m, struct chance *c) {
    int alive = 0;
    for (int l = 0; l < m->lease_count; l++)
        alive += m->leases[l].alive;
    if (m->lease_count == 0)
        return -1;
    if (alive == 0 || one_in(c, 12))
        return (int)chance_below(c, (uint64_t)m->lease_count);
    int pick = (int)chance_below(c, (uint64_t)alive);
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive && pick-- == 0)
            return l;
    return -1;
}

static bool resolve_lease(const struct model *m, struct chance *c, struct command *out) {
    int lease = some_lease(m, c);
    if (lease < 0)
        return false;
    const struct model_lease *l = &m->leases[lease];
    int at = 0;
    while (at < l->count - 1 && m->jobs[l->jobs[at]].status != JOB_RUNNING)
        at++;
    if (one_in(c, 6))
        at = (int)chance_below(c, (uint64_t)l->count);
    out->id = m->jobs[l->jobs[at]].id;
    out->token = l->token;
    if (one_in(c, 20))
        out->token = m->leases[chance_below(c, (uint64_t)m->lease_count)].token;
    if (one_in(c, 40))
        out->token.random++;
    return true;
}

static void resolve_done(const struct model *m, struct chance *c, unsigned features,
                         struct command *out) {
    snprintf(out->text, TEXT, "result%u", (unsigned)chance_below(c, 1000));
    if (one_in(c, 4))
        *out->text = 0;
    int job = model_find(m, out->id);
    if (job >= 0 && *m->jobs[job].key && one_in(c, 3)) {
        out->set_state = true;
        if (!one_in(c, 3))
            snprintf(out->state, TEXT, "state%u", (unsigned)chance_below(c, 1000));
    }
    if (job < 0 || !one_in(c, 3))
        return;
    out->emit_count = (int)chance_below(c, EMITS + 1);
    for (int i = 0; i < out->emit_count; i++) {
        int stage = (int)chance_below(c, STAGES);
        if ((features & FEATURE_MARKS) && stage <= m->jobs[job].stage)
            stage = m->jobs[job].stage + 1; // edges make no circle
        if (stage == STAGES) {
            out->emit_count = i;
            break;
        }
        make_job(m, c, out->now_ms + (uint64_t)i * 7, stage, &out->emits[i]);
        if (i > 0)
            out->emits[i].delay_ms = out->emits[i].deadline_ms = 0;
    }
}

static void resolve_fail(const struct model *m, struct chance *c, struct command *out) {
    snprintf(out->text, TEXT, "reason%u", (unsigned)chance_below(c, 1000));
    out->retry_ms = MR_BACKOFF;
    if (one_in(c, 8))
        out->retry_ms = MR_NEVER;
    else if (one_in(c, 4))
        out->retry_ms = own_time(m, out->now_ms, some_time(c));
    else if (one_in(c, 8))
        out->retry_ms = 0;
}

static bool some_id(const struct model *m, struct chance *c, enum job_status wish, uint64_t *out) {
    if (m->job_count == 0)
        return false;
    int job = (int)chance_below(c, (uint64_t)m->job_count);
    for (int i = 0; i < m->job_count && !one_in(c, 30); i++) {
        int k = (job + i) % m->job_count;
        if (m->jobs[k].status == wish && !m->jobs[k].forgotten) {
            job = k;
            break;
        }
    }
    *out = one_in(c, 60) ? 123456789 : m->jobs[job].id;
    return true;
}

static void resolve_set(struct chance *c, unsigned features, struct command *out) {
    static const struct {
        const char *name, *value;
        unsigned feature;
    } choices[] = {
        { "max-jobs", "3", 0 },
        { "max-jobs", "8", 0 },
        { "max-jobs", "2", FEATURE_ROOM },
        { "max-jobs", "4", FEATURE_ROOM },
        { "max-jobs", "1", FEATURE_NUMBERS },
        { "max-jobs", "3", FEATURE_ROOM },
        { "max-jobs", "none", 0 },
        { "max-channel", "2", FEATURE_CHANNELS },
        { "max-channel", "none", FEATURE_CHANNELS },
        { "lease", "2s", 0 },
        { "lease", "30s", 0 },
        { "attempts", "1", 0 },
        { "attempts", "2", 0 },
        { "attempts", "none", 0 },
        { "backoff", "100", 0 },
        { "backoff", "50..200", 0 },
        { "backoff", "1s..10s", 0 },
        { "on-dead", "halt", 0 },
        { "on-dead", "halt", 0 },
        { "on-dead", "skip", 0 },
        { "overlap", "never", 0 },
        { "overlap", "brief", 0 },
        { "dedupe-window", "400ms", 0 },
        { "dedupe-window", "5s", 0 },
        { "retention", "2s,3", 0 },
        { "retention", "1h,2", 0 },
        { "retention", "300ms", 0 },
        { "retention", "1h,100", 0 },
        { "concurrency", "1", 0 },
        { "concurrency", "2", 0 },
        { "concurrency", "none", 0 },
        { "high-mark", "2", FEATURE_MARKS },
        { "high-mark", "4", FEATURE_MARKS },
        { "high-mark", "none", FEATURE_MARKS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "on", FEATURE_GROUPS },
        { "group", "off", FEATURE_GROUPS },
        { "group-concurrency", "1", FEATURE_GROUPS },
        { "group-concurrency", "2", FEATURE_GROUPS },
        { "group-concurrency", "none", FEATURE_GROUPS },
        { "group-rate", "100/s", FEATURE_GROUPS },
        { "group-rate", "7/s", FEATURE_GROUPS },
        { "group-rate", "20/m", FEATURE_GROUPS },
        { "group-rate", "none", FEATURE_GROUPS },
        { "attempts", "many", 0 },
        { "colour", "red", 0 },
    };
    uint64_t pick;
    do
        pick = chance_below(c, sizeof choices / sizeof *choices);
    while (choices[pick].feature & ~features);
    out->name = choices[pick].name;
    text_copy(out->text, choices[pick].value);
}

// A retention that is raised brings back at replay what was forgotten under the old one.
static bool raises_retention(const struct model *m, const struct command *c) {
    struct policy now = m->stages[c->job.stage].policy, then = now;
    return policy_set(&then, mr_str(c->name), mr_str(c->text)) == 0 &&
           (then.retention_ms > now.retention_ms || then.retention_count > now.retention_count);
}

static uint64_t time_step(struct chance *c, enum op op) {
    static const uint64_t scales[] = { 10, 100, 1000, 10000, 60000, 4000000 };
    if (op == OP_TIME)
        return 1 + chance_below(c, scales[chance_below(c, one_in(c, 4) ? 6 : 4)]);
    return one_in(c, 2) ? chance_below(c, 8) : 0;
}

static bool resolve_seat(const struct model *m, struct chance *c, struct command *out) {
    if (out->op == OP_PUSH_LEAVE)
        return (out->pusher = waiting_slot(m->pushers, c)) >= 0;
    if (out->op == OP_TAKE_LEAVE)
        return (out->taker = waiting_slot(m->takers, c)) >= 0;
    return (out->caller = waiting_slot(m->callers, c)) >= 0;
}

static uint32_t next_attempt(const struct model *m, uint64_t id) {
    int job = model_find(m, id);
    return job < 0 ? 1 : m->jobs[job].attempt + 1;
}

// An instant after all ticks so far, at which no other schedule is due.
static uint64_t some_tick(const struct model *m, struct chance *c) {
    uint64_t at_ms = m->now_ms + 1000 + chance_below(c, 5000);
    for (int i = 0; i < SCHEDULES; i++)
        while (m->schedules[i].last_ms >= at_ms || m->schedules[i].next_ms >= at_ms)
            at_ms += 1 + chance_below(c, 1000);
    return at_ms;
}

// One that was asked for is pushed before another is: the rules do not order them.
static bool resolve_schedule(const struct model *m, struct chance *c, struct command *out) {
    uint64_t due_ms = 0;
    int first = model_first_due(m, &due_ms);
    out->schedule = (int)chance_below(c, SCHEDULES);
    out->next_ms = some_tick(m, c);
    out->skips = one_in(c, 4);
    out->wall_ms = first < 0 ? out->now_ms : due_ms + chance_below(c, 20);
    if (out->op == OP_TICK)
        return one_in(c, 20) || first >= 0;
    if (out->op == OP_SCHEDULE || out->op == OP_SCHEDULE_DRY) {
        out->every_ms = one_in(c, 8) ? chance_below(c, EVERY_LEAST_MS) : 60000;
        out->job = (struct command_job){ .stage = schedule_stage(out->schedule) };
        text_copy(out->job.key, key_names[chance_below(c, KEYS)]);
        snprintf(out->job.body, TEXT, "tick%u", (unsigned)chance_below(c, 1000000));
        out->job.attempts = one_in(c, 3) ? 1 + (uint32_t)chance_below(c, 3) : 0;
    }
    return out->op != OP_SCHEDULE_NOW || first < 0 || due_ms > 0;
}

static bool resolve_rest(const struct model *m, struct chance *c, struct command *out) {
    switch (out->op) {
    case OP_AWAIT:
        out->caller = free_caller(m, c);
        return out->caller >= 0 && some_id(m, c, JOB_WAITING, &out->id);
    case OP_CANCEL:
    case OP_DROP:
        return some_id(m, c, one_in(c, 3) ? JOB_DEAD : JOB_WAITING + (int)chance_below(c, 2),
                       &out->id);
    case OP_RETRY:
        return some_id(m, c, JOB_DEAD, &out->id);
    case OP_DUE:
        return some_id(m, c, one_in(c, 2) ? JOB_DELAYED : JOB_WAITING, &out->id);
    case OP_PAUSE:
    case OP_RESUME:
        if (one_in(c, 2))
            text_copy(out->job.key, key_names[1 + chance_below(c, KEYS - 1)]);
        return true;
    case OP_LINK:
        out->stages[0] = (int)chance_below(c, STAGES - 1);
        out->stages[1] = out->stages[0] + 1;
        out->stage_count = 2;
        return true;
    case OP_EPIC_FORGET:
        out->source = 1 + (int)chance_below(c, SOURCES - 1);
        if (!one_in(c, 4))
            out->number = (uint64_t)own_time(m, out->now_ms, 990 + some_time(c));
        return true;
    case OP_EPIC_THEN:
        out->source = 1 + (int)chance_below(c, SOURCES - 1);
        text_copy(out->job.key, key_names[chance_below(c, KEYS)]);
        snprintf(out->job.body, TEXT, "then%u", (unsigned)chance_below(c, 3));
        return true;
    case OP_EPIC_END:
    case OP_EPIC_SKIP:
    case OP_EPIC_DROP:
    case OP_EPIC_CANCEL:
        out->source = 1 + (int)chance_below(c, SOURCES - 1);
        out->number = some_number(m, c, out->source);
        if (out->op == OP_EPIC_END) // mostly the last one that was pushed
            out->number = one_in(c, 3) ? out->number + 5 : last_number(m, out->source);
        return true;
    case OP_CLEAN:
        out->entries = one_in(c, 3) ? 100000 : 1 + chance_below(c, 20);
        return true;
    case OP_CRASH:
        out->died = one_in(c, 2);
        if (out->died && one_in(c, 2) && some_id(m, c, JOB_WAITING, &out->id))
            out->attempt = next_attempt(m, out->id);
        return true;
    default:
        return true;
    }
}

bool resolve(const struct model *m, const struct step *step, unsigned features,
             struct command *out) {
    struct chance chance = { step->seed }, *c = &chance;
    *out = (struct command){ .op = step->op, .now_ms = m->now_ms + time_step(c, step->op) };
    out->source = out->caller = out->pusher = out->taker = -1;
    out->conn = (int)chance_below(c, CONNS);
    out->job.stage = (int)chance_below(c, 2 * STAGES) % (STAGES + 1) % STAGES;
    switch (step->op) {
    case OP_PUSH:
        return resolve_push(m, c, features, out);
    case OP_TAKE:
        return resolve_take(m, c, features, out);
    case OP_DONE:
    case OP_FAIL:
    case OP_RELEASE:
    case OP_BEAT:
        if (!resolve_lease(m, c, out))
            return false;
        if (step->op == OP_DONE)
            resolve_done(m, c, features, out);
        if (step->op == OP_FAIL)
            resolve_fail(m, c, out);
        if (step->op == OP_RELEASE && one_in(c, 2))
            out->delay_ms = own_time(m, out->now_ms, some_time(c));
        if (step->op == OP_BEAT && one_in(c, 2))
            out->number = 1 + chance_below(c, 1000);
        return true;
    case OP_PUSH_LEAVE:
    case OP_TAKE_LEAVE:
    case OP_AWAIT_LEAVE:
        return resolve_seat(m, c, out);
    case OP_SET:
        resolve_set(c, features, out);
        return !((features & FEATURE_CRASH) && raises_retention(m, out));
    case OP_SCHEDULE:
    case OP_SCHEDULE_DROP:
    case OP_SCHEDULE_PAUSE:
    case OP_SCHEDULE_RESUME:
    case OP_SCHEDULE_NOW:
    case OP_SCHEDULE_DRY:
    case OP_TICK:
        return resolve_schedule(m, c, out);
    default:
        return resolve_rest(m, c, out);
    }
}
