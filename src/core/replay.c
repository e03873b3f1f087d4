// Replay: records are read again in log order. Each is checked first, then applied.
//
// Checks: the log's checksums prove that a record was written, not that this engine wrote it. So
// every record is checked against the present state before anything is changed, and refused as a
// whole if it is not possible. An accepted record is applied without further checks. A record about
// an unknown job is no error: the cleaner may have moved the job's record further on.
//
// Effects: no job is started, no timer runs and no event is sent; jobs are collected in their
// channels, in the order of the log, which the cleaner may have changed. core_open then sorts every
// line by position, gives every channel the state that its content implies, and begins a new epoch.
#include "core/epic.h"
#include "core/limit.h"
#include "core/link.h"
#include "core/maker.h"
#include "core/record_layout.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <assert.h>
#include <inttypes.h>

#define ACCEPT_IF(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return error_set(MR_ECORRUPT, __VA_ARGS__);                                            \
    } while (0)

static const struct job *known_job(const struct core *c, const struct replay_entry *e) {
    return e->job ? job_at(c, e->job) : NULL;
}

static bool status_is_end(enum job_status status) {
    return status == JOB_DONE || status == JOB_EXPIRED || status == JOB_CANCELLED;
}

static const char *job_status_text(const struct job *j) {
    return job_status_name((enum job_status)j->status);
}

// ---- Fields that mean the same in every kind --------------------------------------------------

static int replay_check_fields(const struct core *c, const struct record *r) {
    int err = record_check_bounds(r);
    if (err < 0)
        return err;
    ACCEPT_IF(r->pushed_ms <= r->time_ms, "this %s record names a later instant than its own",
              record_kind_name(r->kind));
    ACCEPT_IF(r->stage <= c->limits.max_stages,
              "this %s record names stage %" PRIu32 " of at most %u", record_kind_name(r->kind),
              r->stage, (unsigned)c->limits.max_stages);
    return 0;
}

// ---- Jobs -------------------------------------------------------------------------------------

// A record about a known job names its stage.
static int replay_check_stage_of(const struct core *c, const struct record *r,
                                 const struct job *j) {
    ACCEPT_IF(stage_of(c, j)->number == r->stage,
              "this %s record names job %" PRIu64 " in stage %" PRIu32
              ", but it is in stage %" PRIu32,
              record_kind_name(r->kind), r->id, r->stage, stage_of(c, j)->number);
    return 0;
}

static int refuse_record_of_job(const struct record *r, const struct job *j) {
    return error_set(MR_ECORRUPT, "this %s record for job %" PRIu64 ", which is %s",
                     record_kind_name(r->kind), r->id, job_status_text(j));
}

static int replay_check_job_fields(const struct record *r) {
    ACCEPT_IF(r->id, "this %s record of job 0", record_kind_name(r->kind));
    ACCEPT_IF(r->stage, "this %s record of job %" PRIu64 " names stage 0",
              record_kind_name(r->kind), r->id);
    return 0;
}

int replay_check_push(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c;
    ACCEPT_IF(!e->job, "job %" PRIu64 " is pushed twice", r->id);
    return replay_check_job_fields(r);
}

static int replay_check_copied_status(const struct record *r) {
    bool dead = r->status == JOB_DEAD;
    ACCEPT_IF(dead || r->status == JOB_WAITING || (r->status == JOB_DELAYED && r->due_ms),
              "a job record of job %" PRIu64 " with status %s", r->id, job_status_name(r->status));
    ACCEPT_IF(dead || r->attempt < UINT16_MAX, "job %" PRIu64 " has no attempt left", r->id);
    ACCEPT_IF(!dead || (!r->deadline_ms && !r->call), "dead job %" PRIu64 " has a deadline", r->id);
    return 0;
}

// The copy of a known job only moves its home.
int replay_check_job(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err == 0)
        err = replay_check_copied_status(r);
    if (err < 0 || !j)
        return err;
    if (status_is_end((enum job_status)j->status))
        return refuse_record_of_job(r, j);
    mr_bytes key = { 0 };
    if (job_is_keyed(j))
        key = channel_key(c, channel_at(c, j->owner));
    ACCEPT_IF(bytes_equal(key, r->key), "job %" PRIu64 " has changed its key", r->id);
    return replay_check_stage_of(c, r, j);
}

// A job's source never changes.
static int replay_check_source_of(const struct core *c, const struct record *r,
                                  const struct job *j) {
    const struct attr *a = j->flags & JOB_HAS_SOURCE ? job_attr(c, j, ATTR_SOURCE) : NULL;
    if (!a || !r->source)
        return 0;
    const struct source *s = source_at(c, a->small);
    ACCEPT_IF(s->dropped || (s->number == r->source && a->value == r->number),
              "job %" PRIu64 " has changed its source", r->id);
    return 0;
}

// ONCE … LAST changes a job that has not started. A delayed one may have become due since, which is
// not recorded, but none is delayed again.
int replay_check_replace(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    ACCEPT_IF(r->status <= JOB_WAITING && !r->attempt && r->has_once && !r->call,
              "job %" PRIu64 " is replaced, but was started or has no name", r->id);
    int err = replay_check_job(c, r, e);
    if (err < 0 || !j)
        return err;
    bool fits = j->status == JOB_DELAYED || (j->status == JOB_WAITING && r->status == JOB_WAITING);
    if (!fits || j->attempt)
        return refuse_record_of_job(r, j);
    return replay_check_source_of(c, r, j);
}

// For an ended job only a copy of its end may follow.
int replay_check_end(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0)
        return err;
    ACCEPT_IF(status_is_end(r->status), "job %" PRIu64 " ends as %s, which is no end", r->id,
              job_status_name(r->status));
    ACCEPT_IF(r->due_ms <= r->pushed_ms, "job %" PRIu64 " ended before it was pushed", r->id);
    if (!j)
        return 0;
    bool is_ended = status_is_end((enum job_status)j->status);
    if (j->status == JOB_DEAD || (is_ended && !r->copy))
        return refuse_record_of_job(r, j);
    err = replay_check_source_of(c, r, j);
    return err < 0 ? err : replay_check_stage_of(c, r, j);
}

int replay_check_fail(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0)
        return err;
    bool fits =
        r->status == JOB_DEAD || r->status == JOB_WAITING || (r->copy && r->status == JOB_DELAYED);
    ACCEPT_IF(fits, "job %" PRIu64 " failed and is %s", r->id, job_status_name(r->status));
    ACCEPT_IF(r->status == JOB_DEAD || r->attempt < UINT16_MAX,
              "job %" PRIu64 " has no attempt left", r->id);
    if (!j)
        return 0;
    if (!r->copy && j->status >= JOB_DONE)
        return refuse_record_of_job(r, j);
    return replay_check_stage_of(c, r, j);
}

int replay_check_snooze(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0)
        return err;
    ACCEPT_IF(r->due_ms, "job %" PRIu64 " is released for a while that has no end", r->id);
    if (!j)
        return 0;
    return j->status < JOB_DONE ? replay_check_stage_of(c, r, j) : refuse_record_of_job(r, j);
}

// Only a job that has not joined its channel gets another position. Whether it has joined since is
// not recorded.
int replay_check_due(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0 || !j)
        return err;
    if (j->status >= JOB_DONE)
        return refuse_record_of_job(r, j);
    ACCEPT_IF(j->status == JOB_DELAYED || j->position == r->position,
              "job %" PRIu64 " has changed its place", r->id);
    return replay_check_stage_of(c, r, j);
}

int replay_check_retry(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0 || !j)
        return err;
    return j->status == JOB_DEAD ? replay_check_stage_of(c, r, j) : refuse_record_of_job(r, j);
}

// A delayed job may have become due since, which is not recorded.
int replay_check_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    const struct job *j = known_job(c, e);
    int err = replay_check_job_fields(r);
    if (err < 0)
        return err;
    bool dead = r->status == JOB_DEAD;
    ACCEPT_IF(dead || r->status == JOB_WAITING || r->status == JOB_DELAYED,
              "job %" PRIu64 " is dropped while %s", r->id, job_status_name(r->status));
    if (!j)
        return 0;
    if (status_is_end((enum job_status)j->status) || dead != (j->status == JOB_DEAD))
        return refuse_record_of_job(r, j);
    return replay_check_stage_of(c, r, j);
}

// ---- Stages -----------------------------------------------------------------------------------

int replay_check_stage(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    ACCEPT_IF(r->stage, "a record names stage 0");
    if (stage_name_check(r->name) < 0)
        return MR_ECORRUPT;
    const struct stage *s =
        r->stage < c->stage_capacity ? c->stages[r->stage] : NULL; // NULL: not met yet
    uint32_t found = stage_find(c, r->name);
    ACCEPT_IF(!found || found == r->stage, "stages %" PRIu32 " and %" PRIu32 " have one name",
              found, r->stage);
    ACCEPT_IF(found || !s || !s->name_size, "stage %" PRIu32 " has changed its name", r->stage);
    ACCEPT_IF(policy_is_possible(&r->about->stage.policy),
              "the policy of stage %" PRIu32 " is out of bounds", r->stage);
    return 0;
}

// Retained jobs may still be there: no record says that they are forgotten.
int replay_check_stage_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    ACCEPT_IF(r->stage, "a record names stage 0");
    const struct stage *s = r->stage < c->stage_capacity ? c->stages[r->stage] : NULL;
    uint64_t jobs =
        s ? s->by_status[JOB_DEAD] + s->states.count + s->schedules + links_lead_to(c, s) : 0;
    jobs += s ? s->paused_keys : 0;
    for (int status = JOB_DELAYED; s && status <= JOB_RUNNING; status++)
        jobs += s->by_status[status];
    ACCEPT_IF(!jobs, "stage %" PRIu32 " is forgotten, but is not empty", r->stage);
    return 0;
}

// ---- Links ------------------------------------------------------------------------------------

int replay_check_link(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    const struct core_config *config = &c->config;
    bool fits = r->shard != config->shard && (config->shards == 1 || r->shard < config->shards);
    ACCEPT_IF(fits, "shard %" PRIu32 " of %" PRIu32 " has a link with shard %" PRIu32,
              config->shard, config->shards, r->shard);
    ACCEPT_IF(r->upto <= NUMBER_MOST, "a link acknowledges %" PRIu64, r->upto);
    return 0;
}

int replay_check_outbox(struct core *c, const struct record *r, const struct replay_entry *e) {
    int err = replay_check_link(c, r, e);
    if (err < 0)
        return err;
    ACCEPT_IF(r->stage && r->number, "an outbox record without a stage or a number");
    uint32_t entry = outbox_find(c, r->number);
    ACCEPT_IF(!entry ||
                  (outbox_at(c, entry)->to == r->shard && outbox_at(c, entry)->stage == r->stage),
              "entry %" PRIu64 " of an outbox has changed its destination", r->number);
    return 0;
}

int replay_check_arrival(struct core *c, const struct record *r, const struct replay_entry *e) {
    int err = replay_check_link(c, r, e);
    if (err < 0)
        return err;
    ACCEPT_IF(r->number > core_link_mark(c, r->shard),
              "entry %" PRIu64 " of shard %" PRIu32 " arrives twice", r->number, r->shard);
    return replay_check_push(c, r, e);
}

// ---- Leases -----------------------------------------------------------------------------------

// No lease lasts longer than from its record on, for its own length.
int replay_check_lease(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    ACCEPT_IF(r->id && r->stage && r->serial >> EPOCH_SHIFT,
              "a lease record without a job, a stage or an epoch");
    ACCEPT_IF(r->due_ms <= r->time_ms + r->lease_ms, "a lease of %" PRIu32 " ms that ends later",
              r->lease_ms);
    uint32_t number = lease_find_recorded(c, r->serial);
    if (!number)
        return 0;
    const struct lease *l = lease_at(c, number);
    mr_bytes key = { 0 };
    if (l->channel)
        key = channel_key(c, channel_at(c, l->channel));
    ACCEPT_IF(l->stage == r->stage && bytes_equal(key, r->key),
              "lease %" PRIx64 " has changed its channel", r->serial);
    return 0;
}

// ---- Epoch and trim ---------------------------------------------------------------------------

// Ids below the one that is next were issued, and are not issued again.
int replay_check_epoch(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    ACCEPT_IF(r->epoch >= c->epoch, "epoch %" PRIu64 " follows epoch %" PRIu64, r->epoch, c->epoch);
    ACCEPT_IF(r->next_id > c->highest_id,
              "an epoch that begins with id %" PRIu64 ", but %" PRIu64 " was issued", r->next_id,
              c->highest_id);
    return 0;
}

// Only the part of the log before this record can have been trimmed.
int replay_check_trim(struct core *c, const struct record *r, const struct replay_entry *e) {
    ACCEPT_IF(r->upto <= e->at && r->upto >= c->trim_mark,
              "the log was trimmed up to %" PRIu64 " after %" PRIu64, r->upto, c->trim_mark);
    return 0;
}

// ---- The rest ---------------------------------------------------------------------------------

int replay_check_want(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c, (void)e;
    ACCEPT_IF(r->id, "a want record of job 0");
    return 0;
}

int replay_check_source_old(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    return source_check(c, r);
}

int replay_check_source(struct core *c, const struct record *r, const struct replay_entry *e) {
    ACCEPT_IF(r->stage, "a source without a stage");
    return replay_check_source_old(c, r, e);
}

int replay_check_source_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c, (void)e;
    ACCEPT_IF(r->source, "a record names source 0");
    return 0;
}

int replay_check_state(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c, (void)e;
    ACCEPT_IF(r->stage && r->key.size, "a state without a stage or a key");
    ACCEPT_IF(r->due_ms <= r->time_ms, "a state that was set after its record was written");
    return 0;
}

int replay_check_pause(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    ACCEPT_IF(r->stage && r->key.size, "a pause without a stage or a key");
    const struct stage *s = r->stage < c->stage_capacity ? c->stages[r->stage] : NULL;
    ACCEPT_IF(r->kind == RECORD_UNPAUSE || !s || s->paused_keys <= PAUSED_KEYS_MOST,
              "stage %" PRIu32 " has too many paused keys", r->stage);
    return 0;
}

int replay_check_once(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c, (void)e;
    ACCEPT_IF(r->stage && r->id && r->has_once, "a once record without a name or a job");
    return 0;
}

// ---- Schedules --------------------------------------------------------------------------------

int replay_check_schedule(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c;
    return schedule_check(r, e->body_size);
}

int replay_check_epic(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)c;
    return orders_check(r, e->body_size);
}

int replay_check_schedule_move(struct core *c, const struct record *r,
                               const struct replay_entry *e) {
    (void)e;
    return schedule_check_move(c, r);
}

int replay_check_schedule_drop(struct core *c, const struct record *r,
                               const struct replay_entry *e) {
    (void)c, (void)e;
    ACCEPT_IF(r->stage, "a record names stage 0");
    return 0;
}

// ---- Applying: jobs ---------------------------------------------------------------------------

static int replay_source_of_job(struct core *c, const struct record *r, uint32_t job) {
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

static void replay_attrs(struct core *c, uint32_t number, const struct record *r,
                         uint32_t body_size) {
    struct job *j = job_at(c, number);
    if (r->has_once) {
        once_displace(c, r->once);
        once_remember(c, number, r->once);
    }
    job_set_counts(c, j, r->attempts, r->meta_size);
    job_set_maker(c, j, r->maker, body_size);
    if (r->deadline_ms)
        job_set_deadline(c, number, r->deadline_ms);
    if (r->due_ms && j->status != JOB_DEAD)
        job_set_due(c, number, r->due_ms);
    if (r->call)
        job_add_attr(c, j, ATTR_CALL);
    else
        j->flags |= JOB_WANTED_FOR_GOOD;
}

// Adds a job that is new, or was removed, to the list of its status.
static void job_place(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    bool keyed = job_is_keyed(j);
    switch ((enum job_status)j->status) {
    case JOB_WAITING:
        if (keyed) {
            job_line_add(c, &channel_at(c, j->owner)->jobs, number, AT_TAIL);
            channel_set_depth(c, j->owner, channel_at(c, j->owner)->jobs.count - 1);
            channel_check_idle(c, j->owner);
        } else {
            channel_move(c, number, CHANNEL_READY, AT_TAIL);
        }
        break;
    case JOB_DELAYED:
        if (keyed)
            channel_pin(c, j->owner);
        job_line_add(c, &s->delayed, number, AT_TAIL);
        break;
    case JOB_DEAD:
        if (keyed)
            channel_pin(c, j->owner);
        job_line_add(c, &s->dead, number, AT_TAIL);
        stage_set_add(&c->dead_stages, s->number);
        break;
    case JOB_RUNNING:
    case JOB_DONE:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        break;
    }
}

static void job_unplace(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    bool keyed = job_is_keyed(j);
    if (j->status == JOB_DEAD)
        job_line_remove(c, &s->dead, number);
    if (j->status == JOB_DELAYED)
        job_line_remove(c, &s->delayed, number);
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

// Reserves memory for the record's job and its stage, whose name may not be known yet.
static int reserve_job(struct core *c, const struct record *r, struct stage **out) {
    int err = stage_get_number(c, r->stage, out);
    if (err < 0)
        return err;
    if ((err = job_reserve(c, 1, true)) < 0)
        return err;
    if ((err = maker_reserve_job(c, r->maker)) < 0)
        return err;
    return r->has_once ? once_reserve(c, 1) : 0;
}

static int replay_make_job(struct core *c, const struct record *r, const struct replay_entry *e) {
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
    bool copy = r->kind == RECORD_JOB || r->kind == RECORD_REPLACE;
    j->time_ms = copy ? r->pushed_ms : r->time_ms;
    j->status = (uint8_t)(copy ? r->status : r->due_ms ? JOB_DELAYED : JOB_WAITING);
    s->by_status[j->status]++;
    s->pushed += !copy;
    job_set_home(c, j, e->at, e->size);
    replay_attrs(c, number, r, e->body_size);
    job_place(c, number);
    if (ref && j->status == JOB_DEAD && r->due_ms)
        channel_halt(c, number);
    return replay_source_of_job(c, r, number);
}

int replay_push(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    if (!number)
        return replay_make_job(c, r, e);
    job_set_home(c, job_at(c, number), e->at, e->size); // nothing else has changed
    return 0;
}

int replay_replace(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    if (!number)
        return replay_make_job(c, r, e);
    int err = job_reserve(c, 1, true);
    if (err == 0)
        err = maker_reserve_job(c, r->maker);
    if (err < 0)
        return err;
    job_unplace(c, number);
    struct job *j = job_at(c, number);
    job_set_home(c, j, e->at, e->size);
    job_set_meta_size(c, j, r->meta_size);
    job_set_maker(c, j, r->maker, e->body_size);
    j->position = r->position;
    j->flags |= JOB_WANTED_FOR_GOOD;
    job_drop_attr(c, j, ATTR_DEADLINE);
    if (r->deadline_ms)
        job_set_deadline(c, number, r->deadline_ms);
    job_drop_attr(c, j, ATTR_DUE);
    if (r->due_ms)
        job_set_due(c, number, r->due_ms);
    job_set_status(c, j, r->status);
    job_place(c, number);
    return 0;
}

int replay_arrival(struct core *c, const struct record *r, const struct replay_entry *e) {
    int err = link_restore_mark(c, r);
    return err < 0 ? err : replay_push(c, r, e);
}

// An END whose PUSH has been trimmed says everything that is kept of the job.
static int replay_make_ended(struct core *c, const struct record *r, uint32_t *out) {
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
    return replay_source_of_job(c, r, *out);
}

enum { ENDED_SLACK = 10000 };

static uint64_t end_key(const struct core *c, uint32_t ref) {
    return job_at(c, ref)->position;
}

// Bounds the memory for ended jobs while a long log is replayed.
static void prune_ended(struct core *c, struct stage *s) {
    if (s->ended.count < 2 * s->policy.retention_count + ENDED_SLACK || !s->name_size)
        return;
    job_line_sort(c, &s->ended, end_key);
    while (s->ended.count > s->policy.retention_count) {
        if (once_spend(c, s, job_at(c, s->ended.head)) < 0)
            return;
        job_forget(c, s->ended.head);
    }
}

int replay_end(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    int err = 0;
    if (number && status_is_end((enum job_status)job_at(c, number)->status)) {
        job_set_home(c, job_at(c, number), e->at, e->size);
        return 0;
    }
    if (number)
        job_unplace(c, number);
    else if ((err = replay_make_ended(c, r, &number)) < 0)
        return err;
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    job_set_status(c, j, r->status);
    j->owner = s->number;
    j->time_ms = r->pushed_ms;
    j->position = r->position;
    j->serial = r->serial;
    j->attempt = (uint16_t)r->attempt;
    job_set_home(c, j, e->at, e->size);
    static const enum attr_kind gone[] = { ATTR_CALL, ATTR_DEADLINE, ATTR_DUE, ATTR_REASONS,
                                           ATTR_COUNTS };
    for (size_t i = 0; job_has_attrs(j) && i < sizeof gone / sizeof *gone; i++)
        job_drop_attr(c, j, gone[i]);
    if (!r->has_once)
        once_release(c, j);
    job_line_add(c, &s->ended, number, AT_TAIL);
    stage_set_add(&c->ended_stages, s->number);
    if (r->copy &&
        (err = replay_source_of_job(c, r, number)) < 0) // a copy: the end was counted before
        return err;
    if (!r->copy) {
        s->done += r->status == JOB_DONE;
        s->expired += r->status == JOB_EXPIRED;
        s->cancelled += r->status == JOB_CANCELLED;
        s->wasted_wait_ms += r->due_ms ? r->pushed_ms - r->due_ms : 0;
    }
    prune_ended(c, s);
    return 0;
}

void replay_move(struct core *c, uint32_t number, enum job_status status) {
    job_unplace(c, number);
    job_set_status(c, job_at(c, number), status);
    job_place(c, number);
}

void replay_set_owner(struct core *c, uint32_t number, uint32_t owner) {
    job_unplace(c, number);
    job_at(c, number)->owner = owner;
    job_place(c, number);
}

// A job may be unknown here because the cleaner has moved its record further on. Its events still
// count for its stage and its source.
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

int replay_fail(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    struct stage *s;
    int err = count_failure(c, r, number, &s);
    if (err < 0 || !number || status_is_end((enum job_status)job_at(c, number)->status))
        return err; // its JOB copy further on has its state
    if ((err = job_reserve_due(c)) < 0)
        return err;
    struct job *j = job_at(c, number);
    job_set_reasons(c, j, e->at, e->size);
    if (r->copy)
        return 0;
    job_unplace(c, number);
    j->attempt = MUTANT(attempt_forgotten_in_replay) ? j->attempt : (uint16_t)r->attempt;
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
    job_place(c, number);
    return 0;
}

// It had started, so it is not delayed any more.
int replay_snooze(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    int err = number ? job_reserve_due(c) : 0;
    if (err < 0 || !number)
        return err;
    job_set_due(c, number, r->due_ms);
    replay_move(c, number, JOB_WAITING);
    return 0;
}

int replay_due(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    if (!number)
        return 0;
    job_at(c, number)->position = r->position;
    job_drop_attr(c, job_at(c, number), ATTR_DUE);
    replay_move(c, number, JOB_WAITING);
    return 0;
}

int replay_retry(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
    if (!number)
        count_unknown(c, r, JOB_DEAD, JOB_WAITING);
    if (!number)
        return 0;
    job_unplace(c, number);
    struct job *j = job_at(c, number);
    j->position = r->position;
    j->attempt = 0;
    j->time_ms = r->time_ms;
    job_drop_attr(c, j, ATTR_REASONS);
    job_set_status(c, j, JOB_WAITING);
    job_place(c, number);
    return 0;
}

int replay_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t number = e->job;
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
    job_unplace(c, number);
    s->by_status[j->status]--;
    job_free(c, number);
    return 0;
}

int replay_want(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)r;
    uint32_t number = e->job;
    if (number)
        job_at(c, number)->flags |= JOB_WANTED_FOR_GOOD;
    return 0;
}

// ---- Applying: everything else ----------------------------------------------------------------

static int replay_stage_name(struct core *c, struct stage *s, const struct record *r) {
    int err = maker_reserve(c, r->maker);
    if (err == 0)
        err = stage_set_name(c, s->number, r->name);
    if (err == 0)
        s->maker = maker_add(c, r->maker, stage_made(c, s));
    return err;
}

int replay_stage(struct core *c, const struct record *r, const struct replay_entry *e) {
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
    stage_set_home(c, s, e->at, e->size);
    return 0;
}

int replay_source(struct core *c, const struct record *r, const struct replay_entry *e) {
    uint32_t index = 0;
    int err = source_restore(c, r, &index);
    if (err < 0)
        return err;
    source_set_home(c, source_at(c, index), e->at, e->size);
    return 0;
}

int replay_state(struct core *c, const struct record *r, const struct replay_entry *e) {
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    chan ref = channel_find(c, r->stage, r->key);
    if (!e->body_size) {
        if (ref)
            state_drop(c, ref);
        return 0;
    }
    if (!ref && (err = channel_get(c, r->stage, r->key, &ref)) < 0)
        return err;
    if ((err = slab_reserve(&c->states, 1)) < 0)
        return err;
    state_set(c, ref, e->at, e->size, r->due_ms ? r->due_ms : r->time_ms);
    return 0;
}

int replay_pause(struct core *c, const struct record *r, const struct replay_entry *e) {
    struct stage *s;
    chan ref = 0;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    if ((err = pause_reserve(c)) < 0)
        return err;
    if ((err = channel_get(c, r->stage, r->key, &ref)) < 0)
        return err;
    pause_set(c, ref, e->at, e->size);
    return 0;
}

int replay_unpause(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    chan ref = channel_find(c, r->stage, r->key);
    if (ref)
        pause_drop(c, ref);
    return 0;
}

int replay_once(struct core *c, const struct record *r, const struct replay_entry *e) {
    struct stage *s;
    int err = stage_get_number(c, r->stage, &s);
    if (err < 0)
        return err;
    return once_restore(c, s, r, e->at, e->size);
}

int replay_source_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    uint32_t index = source_find_number(c, r->source);
    if (index)
        source_forget(c, index);
    return 0;
}

int replay_outbox(struct core *c, const struct record *r, const struct replay_entry *e) {
    return outbox_restore(c, r, e->at, e->size);
}

int replay_link(struct core *c, const struct record *r, const struct replay_entry *e) {
    return link_restore(c, r, e->at, e->size);
}

int replay_lease(struct core *c, const struct record *r, const struct replay_entry *e) {
    return lease_replay(c, r, e->at, e->size);
}

int replay_schedule(struct core *c, const struct record *r, const struct replay_entry *e) {
    return schedule_restore(c, r, e->at, e->size, e->body_size);
}

int replay_epic(struct core *c, const struct record *r, const struct replay_entry *e) {
    return orders_restore(c, r, e->at, e->size);
}

int replay_schedule_move(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    schedule_restore_move(c, r);
    return 0;
}

int replay_schedule_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    uint32_t number = schedule_find(c, r->stage, r->name);
    if (number)
        schedule_forget(c, number);
    return 0;
}

int replay_stage_drop(struct core *c, const struct record *r, const struct replay_entry *e) {
    (void)e;
    stage_replay_drop(c, r->stage);
    return 0;
}

int replay_epoch(struct core *c, const struct record *r, const struct replay_entry *e) {
    epoch_set_home(c, e->at, e->size);
    c->epoch = r->epoch;
    if (!MUTANT(ids_issued_again))
        c->next_id = r->next_id; // it may decrease: see core_return_ids
    return 0;
}

int replay_trim(struct core *c, const struct record *r, const struct replay_entry *e) {
    trim_set_home(c, e->at, e->size);
    c->trim_mark = r->upto;
    return 0;
}

// ---- The table --------------------------------------------------------------------------------

#define RULE(kind, number, name, fields, check, apply, ...) [RECORD_##kind] = { check, apply },

static const struct {
    int (*check)(struct core *, const struct record *, const struct replay_entry *);
    int (*apply)(struct core *, const struct record *, const struct replay_entry *);
} rules[] = { RECORD_KINDS(RULE) };

int core_replay(struct core *c, uint64_t at, mr_bytes head, uint32_t body_size) {
    struct record r;
    struct record_about about;
    int err = record_decode(head, &about, &r);
    if (err == 0)
        err = replay_check_fields(c, &r);
    if (err < 0)
        return err;
    if (r.meta_size > body_size)
        return error_set(MR_ECORRUPT, "a body of %" PRIu32 " bytes that ends with META of %" PRIu32,
                         body_size, r.meta_size);
    struct replay_entry e = { at, entry_size(head.size, body_size), body_size,
                              r.id ? job_find(c, r.id) : 0 };
    if ((err = rules[r.kind].check(c, &r, &e)) < 0)
        return err;
    if (r.time_ms > c->now_ms)
        c->now_ms = r.time_ms;
    bool is_push = r.kind == RECORD_PUSH || r.kind == RECORD_ARRIVAL || r.kind == RECORD_REPLACE;
    uint64_t position = r.due_ms && is_push ? 0 : r.position;
    if (position > c->last_position && position >> POSITION_SHIFT <= c->now_ms)
        c->last_position = position;
    return rules[r.kind].apply(c, &r, &e);
}
