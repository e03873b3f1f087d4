// Committing: a job's result, its channel's new state, what it emits and its end go out as one
// group of records, all or nothing; then memory follows.
#include "core/epic.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <inttypes.h>

// A commit being built. If it ends an epic, THEN is its last emit.
struct done_plan {
    const struct done *done;
    uint32_t job, lease;
    struct emits emits;
    struct epic_end ends;
    uint64_t position;
    size_t end; // the index of the END record in the group
    bool writes_state;
    bool unwritten; // it leaves nothing, and no records are written: see leaves_nothing
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

// They count as the job does that has emitted them, or for the token of the commit.
APART static int done_prepare_emits(struct core *c, struct done_plan *m) {
    uint64_t of_job = job_maker(c, job_at(c, m->job)), before = c->job_maker;
    c->job_maker = of_job ? of_job : before;
    int err = emits_prepare(c, &m->emits, m->done->emits, (uint32_t)m->done->emit_count,
                            m->ends.then, m->ends.then_maker);
    c->job_maker = before;
    return err;
}

static int done_prepare(struct core *c, struct done_plan *m) {
    const struct done *d = m->done;
    const struct job *j = job_at(c, m->job);
    int err = state_reserve(c, chan_of(c, m->job), d->set_state && d->state.size);
    if (err < 0)
        return err;
    if (j->flags & JOB_HAS_SOURCE)
        epic_end_find(c, j, &m->ends);
    if (d->emit_count || m->ends.then)
        err = done_prepare_emits(c, m);
    return err < 0 || !m->ends.source ? err : epic_end_reserve(c, m->emits.count);
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
    struct emits *emits = &m->emits;
    size_t records = 4, extra = 4 * (size_t)RECORD_MAX, joined = 0;
    if (emits->prepared)
        emits_sizes(emits, &records, &extra, &joined);
    const struct lease *l = lease_at(c, m->lease);
    int err = out_begin(c, records, extra);
    if (err == 0 && emits->prepared)
        err = out_reserve_joined(c, joined);
    if (err < 0)
        return err;
    if (emits->prepared)
        emits_add_stages(c, emits);
    m->end = c->out.count;
    m->position = position_next(c);
    out_add_end(c, j, JOB_DONE, m->position, d->result);
    m->writes_state = d->set_state && job_is_keyed(j);
    if (m->writes_state && !MUTANT(state_not_recorded))
        add_state(c, channel_at(c, j->owner), d->state);
    if (emits->prepared)
        emits_add(c, emits);
    if (l->record && lease_ends_with(c, l, m->done->id) && !MUTANT(lease_end_not_recorded))
        lease_add_end(c, l);
    if (m->ends.source)
        epic_end_add(c, &m->ends);
    err = out_commit(c, ROOM_COMMIT);
    if (emits->prepared)
        emits_written(c, emits, err);
    return err;
}

static int done_record(struct core *c, struct done_plan *m) {
    c->stages_pinned = true;
    int err = done_prepare(c, m);
    c->stages_pinned = false;
    if (err == 0)
        err = done_write(c, m);
    if (err < 0)
        emits_undo(c, &m->emits);
    return err;
}

APART static void apply_state(struct core *c, const struct done_plan *m, chan ref) {
    size_t entry = m->end + 1;
    if (m->done->state.size)
        state_set(c, ref, c->out.at[entry], out_size(c, entry), c->now_ms);
    else
        state_drop(c, ref);
}

// The jobs of a block run one after another, so the next one begins now.
static void stage_note_run(struct core *c, const struct stage *s, struct lease *l) {
    if (s->runs)
        histogram_add(s->runs, c->now_ms - l->began_ms);
    l->began_ms = c->now_ms;
}

// A job that is retained is looked up with its key, which the record of its push has as well as
// that of its end. So a small one may stay in the log instead.
enum { PUSH_KEPT_MOST = 256 };

static bool push_may_stay(const struct core *c, const struct job *j) {
    const struct policy *policy = &stage_of(c, j)->policy;
    return j->size <= PUSH_KEPT_MOST || !policy->retention_ms || !policy->retention_count;
}

// Whether the commit says no more than that the job has ended, which no restart needs to know.
static bool leaves_nothing(const struct core *c, const struct done_plan *m) {
    const struct done *d = m->done;
    const struct job *j = job_at(c, m->job);
    return c->config.never_replayed && push_may_stay(c, j) && !d->result.size && !d->set_state &&
           !d->emit_count && !job_has_attrs(j) && !lease_at(c, m->lease)->record;
}

static void done_apply(struct core *c, struct done_plan *m) {
    struct job *j = job_at(c, m->job);
    uint64_t id = j->id;
    uint32_t from = stage_of(c, j)->number;
    stage_note_run(c, stage_of(c, j), lease_at(c, m->lease));
    if (m->writes_state)
        apply_state(c, m, j->owner);
    if (m->emits.prepared)
        emits_want(c, &m->emits);
    if (m->ends.source)
        epic_end_note(c, &m->ends);
    j->position = m->position;
    if (m->unwritten)
        job_ended(c, m->job, JOB_DONE, 0, 0);
    else
        job_ended(c, m->job, JOB_DONE, c->out.at[m->end], out_size(c, m->end));
    lease_let_go(c, m->lease, id);
    if (m->emits.prepared)
        emits_apply(c, &m->emits, from, (uint32_t)m->done->emit_count);
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
    if (job_is_past_deadline(c, job_at(c, m.job)) && !MUTANT(commit_after_deadline))
        return refuse_expired(c, &m);
    if ((err = done_check(c, d)) < 0)
        return err;
    m.unwritten = leaves_nothing(c, &m);
    if (m.unwritten)
        m.position = position_next(c);
    else if ((err = done_record(c, &m)) < 0)
        return err;
    done_apply(c, &m);
    settle(c);
    return 0;
}
