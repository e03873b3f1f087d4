// What a record may say. The log's sums prove that a record was written, not that this engine wrote
// it, so replay believes none of it: every record is checked against the state that it is about to
// change, and refused as a whole, before anything is changed. What is accepted can then be applied
// without a further look.
//
// A record about a job that is not known is no mistake: the cleaner moves what lives further on.
#include "core/link.h"

#include "base/errors.h"

#include <inttypes.h>

#define ACCEPT_IF(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return error_set(MR_ECORRUPT, __VA_ARGS__);                                            \
    } while (0)

static bool status_is_end(enum job_status status) {
    return status == JOB_DONE || status == JOB_EXPIRED || status == JOB_CANCELLED;
}

static const char *status_of(const struct job *j) {
    return job_status_name((enum job_status)j->status);
}

// ---- Fields that mean the same in every kind --------------------------------------------------

static int check_fields(const struct core *c, const struct record *r) {
    int err = record_check_bounds(r);
    if (err < 0)
        return err;
    ACCEPT_IF(r->pushed_ms <= r->time_ms, "this %s record tells of a later instant than its own",
              record_kind_name(r->kind));
    ACCEPT_IF(r->stage <= c->limits.max_stages,
              "this %s record names stage %" PRIu32 " of at most %u", record_kind_name(r->kind),
              r->stage, (unsigned)c->limits.max_stages);
    return 0;
}

// ---- Jobs -------------------------------------------------------------------------------------

// Whatever happens to a known job happens in its stage.
static int check_stage_of(const struct core *c, const struct record *r, const struct job *j) {
    ACCEPT_IF(stage_of(c, j)->number == r->stage,
              "this %s record names job %" PRIu64 " in stage %" PRIu32
              ", but it is in stage %" PRIu32,
              record_kind_name(r->kind), r->id, r->stage, stage_of(c, j)->number);
    return 0;
}

static int refuse_job(const struct record *r, const struct job *j) {
    return error_set(MR_ECORRUPT, "this %s record for job %" PRIu64 ", which is %s",
                     record_kind_name(r->kind), r->id, status_of(j));
}

static int check_job_fields(const struct record *r) {
    ACCEPT_IF(r->id, "this %s record of job 0", record_kind_name(r->kind));
    ACCEPT_IF(r->stage, "this %s record of job %" PRIu64 " names stage 0",
              record_kind_name(r->kind), r->id);
    return 0;
}

static int check_push(const struct record *r, const struct job *j) {
    ACCEPT_IF(!j, "job %" PRIu64 " is pushed twice", r->id);
    return check_job_fields(r);
}

static int check_copied_status(const struct record *r) {
    bool dead = r->status == JOB_DEAD;
    ACCEPT_IF(dead || r->status == JOB_WAITING || (r->status == JOB_DELAYED && r->due_ms),
              "a job record of job %" PRIu64 " with status %s", r->id, job_status_name(r->status));
    ACCEPT_IF(dead || r->attempt < UINT16_MAX, "job %" PRIu64 " has no attempt left", r->id);
    ACCEPT_IF(!dead || (!r->deadline_ms && !r->call), "dead job %" PRIu64 " has a deadline", r->id);
    return 0;
}

// The copy of a job that is known says where its record is now, and else nothing new.
static int check_job(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_job_fields(r);
    if (err == 0)
        err = check_copied_status(r);
    if (err < 0 || !j)
        return err;
    if (status_is_end((enum job_status)j->status))
        return refuse_job(r, j);
    mr_bytes key = { 0 };
    if (job_is_keyed(j))
        key = channel_key(c, channel_at(c, j->owner));
    ACCEPT_IF(bytes_equal(key, r->key), "job %" PRIu64 " has changed its key", r->id);
    return check_stage_of(c, r, j);
}

// A job's source never changes.
static int check_source_of(const struct core *c, const struct record *r, const struct job *j) {
    const struct attr *a = j->flags & JOB_HAS_SOURCE ? job_attr(c, j, ATTR_SOURCE) : NULL;
    if (!a || !r->source)
        return 0;
    const struct source *s = source_at(c, a->small);
    ACCEPT_IF(s->dropped || (s->number == r->source && a->value == r->number),
              "job %" PRIu64 " has changed its source", r->id);
    return 0;
}

// An ended job may be met again as a copy of its end, and in no other way.
static int check_end(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_job_fields(r);
    if (err < 0)
        return err;
    ACCEPT_IF(status_is_end(r->status), "job %" PRIu64 " ends as %s, which is no end", r->id,
              job_status_name(r->status));
    ACCEPT_IF(r->due_ms <= r->pushed_ms, "job %" PRIu64 " ended before it was pushed", r->id);
    if (!j)
        return 0;
    bool is_ended = status_is_end((enum job_status)j->status);
    if (j->status == JOB_DEAD || (is_ended && !r->copy))
        return refuse_job(r, j);
    err = check_source_of(c, r, j);
    return err < 0 ? err : check_stage_of(c, r, j);
}

static int check_fail(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_job_fields(r);
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
        return refuse_job(r, j);
    return check_stage_of(c, r, j);
}

static int check_retry(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_job_fields(r);
    if (err < 0 || !j)
        return err;
    return j->status == JOB_DEAD ? check_stage_of(c, r, j) : refuse_job(r, j);
}

// A delayed job may have become due since, which is not recorded.
static int check_drop(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_job_fields(r);
    if (err < 0)
        return err;
    bool dead = r->status == JOB_DEAD;
    ACCEPT_IF(dead || r->status == JOB_WAITING || r->status == JOB_DELAYED,
              "job %" PRIu64 " is dropped while %s", r->id, job_status_name(r->status));
    if (!j)
        return 0;
    if (status_is_end((enum job_status)j->status) || dead != (j->status == JOB_DEAD))
        return refuse_job(r, j);
    return check_stage_of(c, r, j);
}

// ---- What has a name --------------------------------------------------------------------------

static int check_stage(struct core *c, const struct record *r) {
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

// What was only retained may still be there: nobody writes down that it is forgotten.
static int check_stage_drop(const struct core *c, const struct record *r) {
    ACCEPT_IF(r->stage, "a record names stage 0");
    const struct stage *s = r->stage < c->stage_capacity ? c->stages[r->stage] : NULL;
    uint64_t jobs = s ? s->by_status[JOB_DEAD] + s->states.count + links_lead_to(c, s) : 0;
    for (int status = JOB_DELAYED; s && status <= JOB_RUNNING; status++)
        jobs += s->by_status[status];
    ACCEPT_IF(!jobs, "stage %" PRIu32 " is forgotten, but is not empty", r->stage);
    return 0;
}

// ---- Links ------------------------------------------------------------------------------------

static int check_link(const struct core *c, const struct record *r) {
    const struct core_config *config = &c->config;
    bool fits = r->shard != config->shard && (config->shards == 1 || r->shard < config->shards);
    ACCEPT_IF(fits, "shard %" PRIu32 " of %" PRIu32 " has a link with shard %" PRIu32,
              config->shard, config->shards, r->shard);
    ACCEPT_IF(r->upto <= NUMBER_MOST, "a link acknowledges %" PRIu64, r->upto);
    return 0;
}

static int check_outbox(const struct core *c, const struct record *r) {
    int err = check_link(c, r);
    if (err < 0)
        return err;
    ACCEPT_IF(r->stage && r->number, "an outbox record without a stage or a number");
    uint32_t entry = outbox_find(c, r->number);
    ACCEPT_IF(!entry ||
                  (outbox_at(c, entry)->to == r->shard && outbox_at(c, entry)->stage == r->stage),
              "entry %" PRIu64 " of an outbox has changed its destination", r->number);
    return 0;
}

static int check_arrival(const struct core *c, const struct record *r, const struct job *j) {
    int err = check_link(c, r);
    if (err < 0)
        return err;
    ACCEPT_IF(r->number > core_link_mark(c, r->shard),
              "entry %" PRIu64 " of shard %" PRIu32 " arrives twice", r->number, r->shard);
    return check_push(r, j);
}

// ---- Leases -----------------------------------------------------------------------------------

// No lease lasts longer than from its record on, for its own length.
static int check_lease(const struct core *c, const struct record *r) {
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

// ---- Marks ------------------------------------------------------------------------------------

// Ids below the one that is next were issued, and are not issued again.
static int check_epoch(const struct core *c, const struct record *r) {
    ACCEPT_IF(r->epoch >= c->epoch, "epoch %" PRIu64 " follows epoch %" PRIu64, r->epoch, c->epoch);
    ACCEPT_IF(r->next_id > c->highest_id,
              "an epoch that begins with id %" PRIu64 ", but %" PRIu64 " was issued", r->next_id,
              c->highest_id);
    return 0;
}

// Only what lies before it can have been given up.
static int check_trim(const struct core *c, const struct record *r, uint64_t at) {
    ACCEPT_IF(r->upto <= at && r->upto >= c->trim_mark,
              "the log was given up to %" PRIu64 " after %" PRIu64, r->upto, c->trim_mark);
    return 0;
}

static int check_kind(struct core *c, const struct record *r, uint64_t at) {
    uint32_t number = r->id ? job_find(c, r->id) : 0;
    const struct job *j = number ? job_at(c, number) : NULL;
    switch (r->kind) {
    case RECORD_PUSH:
        return check_push(r, j);
    case RECORD_JOB:
        return check_job(c, r, j);
    case RECORD_ARRIVAL:
        return check_arrival(c, r, j);
    case RECORD_OUTBOX:
        return check_outbox(c, r);
    case RECORD_LINK:
        return check_link(c, r);
    case RECORD_END:
        return check_end(c, r, j);
    case RECORD_FAIL:
        return check_fail(c, r, j);
    case RECORD_RETRY:
        return check_retry(c, r, j);
    case RECORD_DROP:
        return check_drop(c, r, j);
    case RECORD_WANT:
        ACCEPT_IF(r->id, "a want record of job 0");
        return 0;
    case RECORD_STAGE:
        return check_stage(c, r);
    case RECORD_SOURCE:
        ACCEPT_IF(r->stage, "a source without a stage");
        return source_check(c, r);
    case RECORD_SOURCE_OLD:
        return source_check(c, r);
    case RECORD_SOURCE_DROP:
        ACCEPT_IF(r->source, "a record names source 0");
        return 0;
    case RECORD_STATE:
        ACCEPT_IF(r->stage && r->key.size, "a state without a stage or a key");
        ACCEPT_IF(r->due_ms <= r->time_ms, "a state that was set later than its record");
        return 0;
    case RECORD_ONCE:
        ACCEPT_IF(r->stage && r->id && r->has_once, "a once record without a name or a job");
        return 0;
    case RECORD_LEASE:
        return check_lease(c, r);
    case RECORD_STAGE_DROP:
        return check_stage_drop(c, r);
    case RECORD_EPOCH:
        return check_epoch(c, r);
    case RECORD_TRIM:
        return check_trim(c, r, at);
    }
    return error_set(MR_ECORRUPT, "a record of unknown kind %d", (int)r->kind);
}

int replay_check(struct core *c, const struct record *r, uint64_t at) {
    int err = check_fields(c, r);
    return err < 0 ? err : check_kind(c, r, at);
}
