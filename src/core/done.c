// Committing: a job's result, its channel's new state, what it emits and its end go out as one
// group of records, all or nothing; then memory follows.
#include "core/limit.h"
#include "core/link.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>

// A commit being built. Each emit has a push and a plan.
struct done_plan {
    const struct done *done;
    uint32_t job, lease, prepared;
    struct push *pushes;
    struct push_plan *plans;
    uint64_t position;
    size_t end; // the index of the END record in the group
    bool writes_state;
};

static int done_check(const struct core *c, const struct done *d) {
    if (d->result.size > c->limits.max_body)
        return error_set(MR_ETOOBIG, "a result of %zu bytes is too large: %u at most",
                         d->result.size, c->limits.max_body);
    if (d->set_state && d->state.size > c->limits.max_state)
        return error_set(MR_ETOOBIG, "a state of %zu bytes is too large: %u at most", d->state.size,
                         c->limits.max_state);
    if (d->emit_count > c->limits.max_emits)
        return error_set(MR_ETOOBIG, "%zu emits in one commit are too many: %u at most",
                         d->emit_count, c->limits.max_emits);
    uint64_t bytes = 0;
    for (size_t i = 0; i < d->emit_count; i++)
        bytes += d->emits[i].body.size + d->emits[i].job.key.size + d->emits[i].job.meta.size;
    if (bytes > c->limits.max_emit_bytes)
        return error_set(MR_ETOOBIG,
                         "emits of %" PRIu64 " bytes in one commit are too large: %" PRIu64
                         " at most",
                         bytes, c->limits.max_emit_bytes);
    return 0;
}

APART static void done_undo(struct core *c, struct done_plan *m) {
    for (uint32_t i = 0; i < m->prepared; i++) {
        push_plan_unpin(c, &m->plans[i]);
        if (m->plans[i].linked)
            outbox_undo(c, m->plans[i].channel);
    }
    for (size_t i = 0; i < m->done->emit_count && i <= m->prepared; i++)
        stage_forget_unused(c, m->done->emits[i].stage);
    mem_free(m->pushes);
    mem_free(m->plans);
}

enum { EMITS_COMPARED = 32 }; // in a step

static bool is_repeated_here(struct core *c, const struct done_plan *m, uint32_t index) {
    const struct push_plan *plan = &m->plans[index];
    c->steps += plan->has_once ? index / EMITS_COMPARED : 0;
    for (uint32_t i = 0; plan->has_once && i < index; i++) {
        const struct push_plan *other = &m->plans[i];
        if (other->has_once && other->once.low == plan->once.low &&
            other->once.high == plan->once.high)
            return true;
    }
    return false;
}

static int emit_prepare(struct core *c, struct done_plan *m, uint32_t index) {
    const struct emit *e = &m->done->emits[index];
    struct push_plan *plan = &m->plans[index];
    m->pushes[index] = (struct push){ .stage = e->stage, .body = e->body, .job = e->job };
    int err = push_check(c, &m->pushes[index]);
    if (err < 0)
        return err;
    uint32_t to = emit_route(c, e);
    if (to != c->config.shard)
        return outbox_prepare(c, &m->pushes[index], to, plan);
    if ((err = push_plan_begin(c, &m->pushes[index], plan)) < 0)
        return err;
    if (plan->is_repeat || is_repeated_here(c, m, index)) {
        plan->is_repeat = true;
        return 0;
    }
    if ((err = push_plan_prepare(c, plan)) < 0)
        return err;
    push_plan_pin(c, plan);
    return 0;
}

APART static int emits_prepare(struct core *c, struct done_plan *m) {
    const struct done *d = m->done;
    uint32_t count = (uint32_t)d->emit_count, named = 0;
    for (uint32_t i = 0; i < count; i++)
        named += d->emits[i].job.once.size != 0;
    int err = job_reserve(c, count, true);
    if (err < 0)
        return err;
    if ((err = once_reserve(c, named)) < 0)
        return err;
    if ((err = ids_reserve(c, count)) < 0)
        return err;
    c->steps += (uint64_t)count * STEPS_EMIT;
    m->pushes = mem_alloc(count * sizeof *m->pushes);
    m->plans = mem_alloc(count * sizeof *m->plans);
    if (!m->pushes || !m->plans)
        return error_set(MR_ENOMEM, "no memory for %u emits", count);
    for (; m->prepared < count; m->prepared++)
        if ((err = emit_prepare(c, m, m->prepared)) < 0)
            return err;
    return 0;
}

static int done_prepare(struct core *c, struct done_plan *m) {
    const struct done *d = m->done;
    int err = state_reserve(c, chan_of(c, m->job), d->set_state && d->state.size);
    return err < 0 || !d->emit_count ? err : emits_prepare(c, m);
}

// New stages come first in the group, each once: replay needs the STAGE record before it counts
// pushes to it.
APART static void add_new_stages(struct core *c, const struct done_plan *m) {
    for (uint32_t i = 0; i < m->prepared; i++) {
        struct stage *s = c->stages[m->plans[i].stage];
        if (s->recorded || m->plans[i].is_repeat)
            continue;
        struct record_about about;
        struct record r = record_of_stage(c, s, &about);
        stage_set_home(c, s, c->out.count, 0); // `at` is the index in the group for now
        out_add(c, &r, (mr_bytes){ 0 });
    }
}

// An emit with the `once` of a call makes the call wanted without callers, as a push would.
static bool makes_wanted(const struct core *c, const struct done_plan *m, uint32_t index) {
    uint32_t job = m->plans[index].is_repeat ? m->plans[index].repeat_job : 0;
    return job && job_at(c, job)->status < JOB_DONE &&
           !(job_at(c, job)->flags & JOB_WANTED_FOR_GOOD);
}

APART static void add_emits(struct core *c, const struct done_plan *m) {
    for (uint32_t i = 0; i < m->prepared; i++) {
        const struct push_plan *plan = &m->plans[i];
        if (plan->linked)
            outbox_add_record(c, plan);
        else if (!plan->is_repeat)
            out_add_push(c, plan);
    }
    for (uint32_t i = 0; i < m->prepared; i++) {
        if (!makes_wanted(c, m, i))
            continue;
        struct record r = { .kind = RECORD_WANT,
                            .time_ms = c->now_ms,
                            .id = m->plans[i].repeat_id };
        out_add(c, &r, (mr_bytes){ 0 });
    }
}

// Sets the homes of the new stages, or marks them as not recorded.
APART static void new_stages_written(struct core *c, const struct done_plan *m, int err) {
    for (uint32_t i = 0; i < m->prepared && m->end > 0; i++) {
        struct stage *s = c->stages[m->plans[i].stage];
        if (m->plans[i].is_repeat || s->size)
            continue;
        if (err < 0)
            s->recorded = false;
        else
            stage_set_home(c, s, c->out.at[s->at], out_size(c, s->at));
    }
}

APART static void add_state(struct core *c, const struct channel *ch, mr_bytes state) {
    struct record r = {
        .kind = RECORD_STATE, .time_ms = c->now_ms, .stage = ch->stage, .key = channel_key(c, ch)
    };
    out_add(c, &r, state);
}

static int done_write(struct core *c, struct done_plan *m) {
    const struct done *d = m->done;
    const struct job *j = job_at(c, m->job);
    size_t extra = 3 * RECORD_MAX, joined = 0;
    for (uint32_t i = 0; i < m->prepared; i++) {
        extra += d->emits[i].job.key.size + d->emits[i].stage.size + d->emits[i].job.once.size;
        joined += push_joined_size(&m->pushes[i]);
    }
    const struct lease *l = lease_at(c, m->lease);
    int err = out_begin(c, 3 + 2 * (size_t)m->prepared, extra);
    if (err == 0 && m->prepared)
        err = out_reserve_joined(c, joined);
    if (err < 0)
        return err;
    if (m->prepared)
        add_new_stages(c, m);
    m->end = c->out.count;
    m->position = position_next(c);
    out_add_end(c, j, JOB_DONE, m->position, d->result);
    m->writes_state = d->set_state && job_is_keyed(j);
    if (m->writes_state)
        add_state(c, channel_at(c, j->owner), d->state);
    if (m->prepared)
        add_emits(c, m);
    if (l->record && lease_ends_with(c, l, m->done->id))
        lease_add_end(c, l);
    err = out_commit(c, ROOM_COMMIT);
    if (m->prepared)
        new_stages_written(c, m, err);
    return err;
}

APART static void apply_state(struct core *c, const struct done_plan *m, chan ref) {
    size_t entry = m->end + 1;
    if (m->done->state.size)
        state_set(c, ref, c->out.at[entry], out_size(c, entry), c->now_ms);
    else
        state_drop(c, ref);
}

APART static void apply_wants(struct core *c, const struct done_plan *m) {
    for (uint32_t i = 0; i < m->prepared; i++)
        if (makes_wanted(c, m, i))
            job_at(c, m->plans[i].repeat_job)->flags |= JOB_WANTED_FOR_GOOD;
}

APART static void apply_emits(struct core *c, const struct done_plan *m, uint32_t from) {
    size_t next = m->end + 1 + m->writes_state;
    for (uint32_t i = 0; i < m->prepared; i++) {
        struct push_plan *plan = &m->plans[i];
        if (plan->is_repeat)
            continue;
        if (plan->linked)
            outbox_send(c, plan->channel, c->out.at[next], out_size(c, next));
        else
            push_plan_apply(c, plan, c->out.at[next], out_size(c, next));
        next++;
    }
    for (uint32_t i = 0; i < m->prepared; i++) // if this fails, the next emit learns the edge
        (void)stage_learn_edge(c, from, m->plans[i].stage);
}

// The jobs of a block run one after another, so the next one begins now.
static void stage_note_run(struct core *c, const struct stage *s, struct lease *l) {
    if (s->runs)
        histogram_add(s->runs, c->now_ms - l->began_ms);
    l->began_ms = c->now_ms;
}

static void done_apply(struct core *c, struct done_plan *m) {
    struct job *j = job_at(c, m->job);
    uint64_t id = j->id;
    uint32_t from = stage_of(c, j)->number;
    stage_note_run(c, stage_of(c, j), lease_at(c, m->lease));
    if (m->writes_state)
        apply_state(c, m, j->owner);
    if (m->prepared)
        apply_wants(c, m);
    j->position = m->position;
    job_ended(c, m->job, JOB_DONE, c->out.at[m->end], out_size(c, m->end));
    lease_let_go(c, m->lease, id);
    if (m->prepared)
        apply_emits(c, m, from);
}

// A repetition of a commit gets the same answer as the first.
static bool is_repeated_commit(const struct core *c, const struct done_plan *m) {
    return m->job && job_at(c, m->job)->status == JOB_DONE &&
           token_fits(c, &m->done->token, job_at(c, m->job));
}

// Ends the job if its timer has not done so yet.
APART static int refuse_expired(struct core *c, const struct done_plan *m) {
    int err = job_end(c, m->job, JOB_EXPIRED);
    if (err < 0)
        return err;
    uint64_t id = m->done->id;
    err = error_set(MR_EEXPIRED, "job %" PRIu64 " passed its deadline", id);
    return lease_refuse(c, m->lease, id, err);
}

APART HOT int core_done(struct core *c, const struct done *d) {
    struct done_plan m = { .done = d };
    int err = lease_find(c, d->id, &d->token, &m.job, &m.lease);
    if (err < 0 && is_repeated_commit(c, &m))
        return 0;
    if (err < 0)
        return lease_refuse(c, m.lease, d->id, err);
    if (job_is_past_deadline(c, job_at(c, m.job)))
        return refuse_expired(c, &m);
    if ((err = done_check(c, d)) < 0)
        return err;
    c->stages_pinned = true;
    err = done_prepare(c, &m);
    c->stages_pinned = false;
    if (err == 0)
        err = done_write(c, &m);
    if (err < 0) {
        done_undo(c, &m);
        return err;
    }
    done_apply(c, &m);
    if (m.prepared) {
        mem_free(m.pushes);
        mem_free(m.plans);
    }
    settle(c);
    return 0;
}
