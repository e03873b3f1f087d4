// Replay: records taken in again, in log order, each after replay_check has accepted it. Nothing is
// started, timed or told meanwhile; jobs only gather in their channels, in whatever order the
// cleaner left them. core_open then puts every line in order of position, every channel in the
// state its content says, and begins a new epoch.
#include "core/limit.h"
#include "core/link.h"
#include "core/record_layout.h"

#include "base/errors.h"

#include <inttypes.h>

static bool is_ended(enum job_status status) {
    return status == JOB_DONE || status > JOB_DEAD;
}

static int take_source(struct core *c, const struct record *r, uint32_t job) {
    if (!r->source || !r->number)
        return 0;
    struct job *j = job_at(c, job);
    if (j->flags & JOB_HAS_SOURCE)
        return 0;
    uint32_t index = 0;
    int err = source_restore(c, r, &index);
    if (err < 0)
        return err;
    struct source *s = source_at(c, index);
    source_attach(c, j, index, r->number);
    if (j->status < JOB_DONE)
        s->unended[j->status]++;
    if ((err = source_keep_ids(s)) < 0)
        return err;
    s->seen.accepted += r->kind == RECORD_PUSH;
    source_see(s, r->number, r->id);
    return 0;
}

static void take_attrs(struct core *c, uint32_t number, const struct record *r) {
    struct job *j = job_at(c, number);
    if (r->has_once) {
        once_displace(c, r->once);
        once_remember(c, number, r->once);
    }
    if (r->attempts)
        job_add_attr(c, j, ATTR_COUNTS)->small = r->attempts;
    if (r->deadline_ms)
        job_set_deadline(c, number, r->deadline_ms);
    if (r->due_ms && j->status != JOB_DEAD)
        job_set_due(c, number, r->due_ms);
    if (r->call)
        job_add_attr(c, j, ATTR_CALL);
    else
        j->flags |= JOB_WANTED_FOR_GOOD;
}

// Puts a job that is new here, or was taken out, among those of its status.
static void place(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    bool keyed = job_is_keyed(j);
    switch ((enum job_status)j->status) {
    case JOB_WAITING:
        if (keyed) {
            line_add(c, &channel_at(c, j->owner)->jobs, number, AT_TAIL);
            channel_set_depth(c, j->owner, channel_at(c, j->owner)->jobs.count - 1);
            channel_check_idle(c, j->owner);
        } else {
            channel_move(c, number, CHANNEL_READY, AT_TAIL);
        }
        break;
    case JOB_DELAYED:
        if (keyed)
            channel_pin(c, j->owner);
        line_add(c, &s->delayed, number, AT_TAIL);
        break;
    case JOB_DEAD:
        if (keyed)
            channel_pin(c, j->owner);
        line_add(c, &s->dead, number, AT_TAIL);
        stage_note_dead(c, s);
        break;
    case JOB_RUNNING:
    case JOB_DONE:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        break;
    }
}

static void unplace(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    bool keyed = job_is_keyed(j);
    if (j->status == JOB_DEAD)
        line_remove(c, &s->dead, number);
    if (j->status == JOB_DELAYED)
        line_remove(c, &s->delayed, number);
    if (j->status == JOB_WAITING && !keyed)
        channel_move(c, number, CHANNEL_DORMANT, AT_TAIL);
    if (j->status == JOB_WAITING && keyed)
        channel_take_out(c, number);
    if (keyed)
        channel_unhalt(c, number);
    if (keyed && (j->status == JOB_DELAYED || j->status == JOB_DEAD))
        channel_unpin(c, j->owner);
    if (keyed)
        channel_check_idle(c, j->owner);
}

// Makes sure that the record's job can be made; its stage, too, which may be nameless as yet.
static int reserve_job(struct core *c, const struct record *r, struct stage **out) {
    int err = stage_get_number(c, r->stage, out);
    if (err < 0)
        return err;
    if ((err = job_reserve(c, 1, true)) < 0)
        return err;
    return r->has_once ? once_reserve(c, 1) : 0;
}

static int make_job(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct stage *s;
    int err = reserve_job(c, r, &s);
    if (err < 0)
        return err;
    chan ref = 0;
    if (r->key.size && (err = channel_get(c, r->stage, r->key, &ref)) < 0)
        return err;
    uint32_t number = job_create(c, r->id);
    struct job *j = job_at(c, number);
    j->owner = ref ? ref : r->stage;
    j->position = r->position;
    j->attempt = (uint16_t)r->attempt;
    bool copy = r->kind == RECORD_JOB;
    j->time_ms = copy ? r->pushed_ms : r->time_ms;
    j->status = (uint8_t)(copy ? r->status : r->due_ms ? JOB_DELAYED : JOB_WAITING);
    s->by_status[j->status]++;
    s->pushed += !copy;
    job_set_home(c, j, at, size);
    take_attrs(c, number, r);
    place(c, number);
    if (ref && j->status == JOB_DEAD && r->due_ms)
        channel_halt(c, number);
    return take_source(c, r, number);
}

static int replay_push(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    uint32_t number = job_find(c, r->id);
    if (!number)
        return make_job(c, r, at, size);
    job_set_home(c, job_at(c, number), at, size); // nothing else has changed
    return 0;
}

static int replay_arrival(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    int err = link_restore_mark(c, r);
    return err < 0 ? err : replay_push(c, r, at, size);
}

// An END whose PUSH has been trimmed already says all that is left to know.
static int make_ended(struct core *c, const struct record *r, uint32_t *out) {
    struct stage *s;
    int err = reserve_job(c, r, &s);
    if (err < 0)
        return err;
    *out = job_create(c, r->id);
    struct job *j = job_at(c, *out);
    j->owner = r->stage;
    j->status = JOB_RUNNING; // ended below
    s->by_status[JOB_RUNNING]++;
    if (r->has_once) {
        once_displace(c, r->once);
        once_remember(c, *out, r->once);
    }
    if (!r->source || r->copy)
        return 0;
    return take_source(c, r, *out);
}

enum { ENDED_SLACK = 10000 };

static uint64_t end_key(const struct core *c, uint32_t ref) {
    return job_at(c, ref)->position;
}

// Keeps a long history of ended jobs from filling memory while replaying.
static void prune_ended(struct core *c, struct stage *s) {
    if (s->ended.count < 2 * s->policy.retention_count + ENDED_SLACK || !s->name_size)
        return;
    line_sort(c, &s->ended, end_key);
    while (s->ended.count > s->policy.retention_count) {
        if (once_spend(c, s, job_at(c, s->ended.head)) < 0)
            return;
        job_forget(c, s->ended.head);
    }
}

static int replay_end(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    uint32_t number = job_find(c, r->id);
    int err = 0;
    if (number && is_ended((enum job_status)job_at(c, number)->status)) {
        job_set_home(c, job_at(c, number), at, size);
        return 0;
    }
    if (number)
        unplace(c, number);
    else if ((err = make_ended(c, r, &number)) < 0)
        return err;
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    job_set_status(c, j, r->status);
    j->owner = s->number;
    j->time_ms = r->pushed_ms;
    j->position = r->position;
    j->serial = r->serial;
    j->attempt = (uint16_t)r->attempt;
    job_set_home(c, j, at, size);
    static const enum attr_kind gone[] = { ATTR_CALL, ATTR_DEADLINE, ATTR_DUE, ATTR_REASONS,
                                           ATTR_COUNTS };
    for (size_t i = 0; job_has_attrs(j) && i < sizeof gone / sizeof *gone; i++)
        job_drop_attr(c, j, gone[i]);
    if (!r->has_once)
        once_release(c, j);
    line_add(c, &s->ended, number, AT_TAIL);
    if (r->copy && (err = take_source(c, r, number)) < 0) // it was counted when it ended
        return err;
    if (!r->copy) {
        s->done += r->status == JOB_DONE;
        s->expired += r->status == JOB_EXPIRED;
        s->cancelled += r->status == JOB_CANCELLED;
        s->vain_ms += r->due_ms ? r->pushed_ms - r->due_ms : 0;
    }
    prune_ended(c, s);
    return 0;
}

void replay_move(struct core *c, uint32_t number, enum job_status status) {
    unplace(c, number);
    job_set_status(c, job_at(c, number), status);
    place(c, number);
}

// A job may be unknown here because the cleaner has moved its record further on. What happened to
// it still counts, for its stage and for its source, which learns of known jobs by their status.
static void count_unknown(struct core *c, const struct record *r, enum job_status before,
                          enum job_status after) {
    uint32_t index = r->number ? source_find_number(c, r->source) : 0;
    if (!index)
        return;
    struct record_source *seen = &source_at(c, index)->seen;
    seen->dead -= before == JOB_DEAD && seen->dead;
    seen->dead += after == JOB_DEAD;
    seen->cancelled += after == JOB_CANCELLED;
}

static int count_failure(struct core *c, const struct record *r, uint32_t number,
                         struct stage **out) {
    int err = stage_get_number(c, r->stage, out);
    if (err < 0 || r->copy)
        return err;
    (*out)->failed++;
    (*out)->died += r->status == JOB_DEAD;
    if (!number)
        count_unknown(c, r, JOB_WAITING, r->status);
    return 0;
}

static int replay_fail(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    uint32_t number = job_find(c, r->id);
    struct stage *s;
    int err = count_failure(c, r, number, &s);
    if (err < 0 || !number || is_ended((enum job_status)job_at(c, number)->status))
        return err; // its JOB copy further on says how far it has come
    if ((err = job_reserve_due(c)) < 0)
        return err;
    struct job *j = job_at(c, number);
    job_set_reasons(c, j, at, size);
    if (r->copy)
        return 0;
    unplace(c, number);
    j->attempt = (uint16_t)r->attempt;
    if (r->status == JOB_DEAD) {
        job_drop_attr(c, j, ATTR_CALL);
        job_drop_attr(c, j, ATTR_DEADLINE);
        job_drop_attr(c, j, ATTR_DUE);
        j->flags |= JOB_WANTED_FOR_GOOD;
        j->time_ms = r->time_ms;
        if (job_is_keyed(j) && r->due_ms)
            channel_halt(c, number);
    } else if (r->due_ms) {
        job_set_due(c, number, r->due_ms);
    }
    job_set_status(c, j, r->status);
    place(c, number);
    return 0;
}

static int replay_retry(struct core *c, const struct record *r) {
    uint32_t number = job_find(c, r->id);
    if (!number)
        count_unknown(c, r, JOB_DEAD, JOB_WAITING);
    if (!number)
        return 0;
    unplace(c, number);
    struct job *j = job_at(c, number);
    j->position = r->position;
    j->attempt = 0;
    j->time_ms = r->time_ms;
    job_drop_attr(c, j, ATTR_REASONS);
    job_set_status(c, j, JOB_WAITING);
    place(c, number);
    return 0;
}

static int replay_drop(struct core *c, const struct record *r) {
    uint32_t number = job_find(c, r->id);
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    s->cancelled += r->status != JOB_DEAD;
    if (!number) {
        count_unknown(c, r, r->status, r->status == JOB_DEAD ? JOB_DEAD : JOB_CANCELLED);
        return 0;
    }
    struct job *j = job_at(c, number);
    if (j->flags & JOB_HAS_SOURCE && j->status != JOB_DEAD)
        source_count(c, j, (enum job_status)j->status, JOB_CANCELLED);
    unplace(c, number);
    s->by_status[j->status]--;
    job_free(c, number);
    return 0;
}

static int replay_want(struct core *c, const struct record *r) {
    uint32_t number = job_find(c, r->id);
    if (number)
        job_at(c, number)->flags |= JOB_WANTED_FOR_GOOD;
    return 0;
}

static int replay_stage_name(struct core *c, struct stage *s, const struct record *r) {
    int err = maker_reserve(c, r->maker);
    if (err == 0)
        err = stage_name_it(c, s->number, r->name);
    if (err == 0)
        s->maker = maker_add(c, r->maker, MADE_STAGE);
    return err;
}

static int replay_stage(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    if (!s->name_size && (err = replay_stage_name(c, s, r)) < 0)
        return err;
    const struct record_stage *a = &r->about->stage;
#define FROM_RECORD(member, ...) s->member = a->member;
    RECORD_STAGE_FIELDS(FROM_RECORD)
#undef FROM_RECORD
    s->policy = a->policy;
    stage_set_home(c, s, at, size);
    return 0;
}

static int replay_source(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    if (r->kind == RECORD_SOURCE_DROP) {
        uint32_t index = source_find_number(c, r->source);
        if (index)
            source_forget(c, index);
        return 0;
    }
    uint32_t index = 0;
    int err = source_restore(c, r, &index);
    if (err < 0)
        return err;
    source_set_home(c, source_at(c, index), at, size);
    return 0;
}

static int replay_state(struct core *c, const struct record *r, uint64_t at, uint32_t size,
                        bool empty) {
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    chan ref = channel_find(c, r->stage, r->key);
    if (empty) {
        if (ref)
            state_drop(c, ref);
        return 0;
    }
    if (!ref && (err = channel_get(c, r->stage, r->key, &ref)) < 0)
        return err;
    if ((err = slab_reserve(&c->states, 1)) < 0)
        return err;
    state_set(c, ref, at, size, r->due_ms ? r->due_ms : r->time_ms);
    return 0;
}

static int replay_once(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    return once_restore(c, s, r, at, size);
}

static int replay_record(struct core *c, const struct record *r, uint64_t at, uint32_t size,
                         uint32_t body_size) {
    switch (r->kind) {
    case RECORD_PUSH:
    case RECORD_JOB:
        return replay_push(c, r, at, size);
    case RECORD_ARRIVAL:
        return replay_arrival(c, r, at, size);
    case RECORD_OUTBOX:
        return outbox_restore(c, r, at, size);
    case RECORD_LINK:
        return link_restore(c, r, at, size);
    case RECORD_END:
        return replay_end(c, r, at, size);
    case RECORD_FAIL:
        return replay_fail(c, r, at, size);
    case RECORD_RETRY:
        return replay_retry(c, r);
    case RECORD_DROP:
        return replay_drop(c, r);
    case RECORD_WANT:
        return replay_want(c, r);
    case RECORD_STAGE:
        return replay_stage(c, r, at, size);
    case RECORD_SOURCE:
    case RECORD_SOURCE_OLD:
    case RECORD_SOURCE_DROP:
        return replay_source(c, r, at, size);
    case RECORD_STATE:
        return replay_state(c, r, at, size, body_size == 0);
    case RECORD_ONCE:
        return replay_once(c, r, at, size);
    case RECORD_EPOCH:
        epoch_set_home(c, at, size);
        c->epoch = r->epoch;
        c->next_id = r->next_id; // less than before: a block was given back
        return 0;
    case RECORD_STAGE_DROP:
        stage_replay_drop(c, r->stage);
        return 0;
    case RECORD_LEASE:
        return lease_replay(c, r, at, size);
    case RECORD_TRIM:
        trim_set_home(c, at, size);
        c->trim_mark = r->upto;
        return 0;
    }
    return error_set(MR_ECORRUPT, "a record of unknown kind %d", (int)r->kind);
}

int core_replay(struct core *c, uint64_t at, mr_bytes head, uint32_t body_size) {
    struct record r;
    struct record_about about;
    int err = record_decode(head, &about, &r);
    if (err == 0)
        err = replay_check(c, &r, at);
    if (err < 0)
        return err;
    if (r.time_ms > c->now_ms)
        c->now_ms = r.time_ms;
    bool is_push = r.kind == RECORD_PUSH || r.kind == RECORD_ARRIVAL;
    uint64_t position = r.due_ms && is_push ? 0 : r.position;
    if (position > c->last_position && position >> POSITION_SHIFT <= c->now_ms)
        c->last_position = position;
    return replay_record(c, &r, at, entry_size(head.size, body_size), body_size);
}
