// Push: a push is checked, found to be new or a repeat, admitted or made to wait, recorded, and
// only then applied. Emits go the same way, but never wait for room.
#include "core/group.h"
#include "core/maker.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <inttypes.h>

static int push_check_size(const char *what, size_t size, size_t most) {
    if (size <= most)
        return 0;
    return error_set(MR_ETOOBIG, "a %s of %zu bytes is too large: %zu at most", what, size, most);
}

// ---- Options, by kind ---------------------------------------------------------------------------

static int push_check_BYTES(const char *name, mr_bytes bytes, size_t most) {
    return push_check_size(name, bytes.size, most);
}

static int push_check_MS(const char *name, int64_t ms, int64_t most) {
    if (ms >= 0 && ms <= most)
        return 0;
    return error_set(MR_EINVAL, "a %s of %" PRId64 " ms is not possible: 0 to 100 years", name, ms);
}

static int push_check_COUNT(const char *name, uint32_t count, uint32_t most) {
    if (count <= most)
        return 0;
    return error_set(MR_EINVAL, "%" PRIu32 " %s are too many: %" PRIu32 " at most", count, name,
                     most);
}

static int push_check_FLAG(const char *name, bool flag, bool most) {
    (void)name, (void)flag, (void)most;
    return 0;
}

#define CHECK_OPTION(member, kind, word, value, name, argument, most, about)                       \
    if ((err = push_check_##kind(name, p->job.member, most)) < 0)                                  \
        return err;

int push_check(struct core *c, const struct push *p) {
    int err = 0;
    JOB_OPTIONS(CHECK_OPTION)
    if ((err = push_check_size("body", p->body.size, c->limits.max_body)) < 0)
        return err;
    if (p->source.size && !p->number)
        return error_set(MR_EINVAL, "numbers of a source start at 1");
    if (p->job.last && (!p->job.once.size || p->caller))
        return error_set(MR_EINVAL, "LAST is said of a push with ONCE, and not of a call");
    return 0;
}

uint64_t position_next(struct core *c) {
    uint64_t earliest = (c->now_ms << POSITION_SHIFT) + 1;
    c->last_position = c->last_position + 1 > earliest ? c->last_position + 1 : earliest;
    return c->last_position;
}

// ---- Ids --------------------------------------------------------------------------------------

//     next_id        id_mark            id_limit                  id_reserved
//     ───┴───────────────┴──────────────────┴─────────────────────────┴──►
//        issued          the next block     usable: its EPOCH record  recorded, not yet
//                        is reserved here   is durable                durable
//
// So no push waits for the record of its block, unless half a block is issued before that record is
// durable.

APART int ids_reserve_block(struct core *c, enum room room) {
    struct record r = { .kind = RECORD_EPOCH,
                        .time_ms = c->now_ms,
                        .epoch = c->epoch,
                        .next_id = c->id_limit + c->limits.id_block * c->config.id_step };
    int err = out_write(c, &r, room);
    if (err < 0)
        return err;
    epoch_set_home(c, c->out.at[0], out_size(c, 0));
    c->id_reserved = r.next_id;
    c->id_reserved_at = c->out.at[0];
    c->id_mark = c->id_limit;
    return 0;
}

void ids_use_reserved(struct core *c) {
    c->id_limit = c->id_reserved;
    c->id_mark = c->id_limit - c->limits.id_block / 2 * c->config.id_step;
    c->id_reserved_at = 0;
}

uint64_t core_ids_wait(const struct core *c) {
    return c->id_reserved_at;
}

void core_ids_durable(struct core *c) {
    if (c->id_reserved_at)
        ids_use_reserved(c);
}

APART static int ids_reserve_ahead(struct core *c, uint64_t next) {
    int err = c->id_reserved_at ? 0 : ids_reserve_block(c, ROOM_COMMIT);
    if (next <= c->id_limit)
        return 0; // if the block could not be recorded, the next push tries again
    return err < 0 ? err
                   : error_set(MR_EFULL, "the log is behind: the ids that it has recorded are used "
                                         "up, and more are not durable yet");
}

int ids_reserve(struct core *c, uint32_t count) {
    uint64_t next = c->next_id + count * c->config.id_step;
    return next <= c->id_mark ? 0 : ids_reserve_ahead(c, next);
}

int core_return_ids(struct core *c) {
    if (c->next_id == c->id_reserved)
        return 0;
    struct record r = {
        .kind = RECORD_EPOCH, .time_ms = c->now_ms, .epoch = c->epoch, .next_id = c->next_id
    };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    epoch_set_home(c, c->out.at[0], out_size(c, 0));
    c->id_reserved = c->id_limit = c->id_mark = c->next_id;
    c->id_reserved_at = 0;
    return 0;
}

void epoch_set_home(struct core *c, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, c->epoch_at, c->epoch_size);
    c->epoch_at = at;
    c->epoch_size = size;
}

// ---- Push plans -------------------------------------------------------------------------------

#define ADD_SAID(member, kind, ...) said |= SAID_##kind(p->job.member);
#define SAID_BYTES(bytes) (bytes).size
#define SAID_MS(ms) (uint64_t)(ms)
#define SAID_COUNT(count) (count)

// Whether anything but its key is said of the job.
static bool push_has_options(const struct push *p) {
    uint64_t said = p->source.size | p->number | (uintptr_t)p->caller;
    EMIT_OPTIONS(ADD_SAID)
    return said;
}

bool push_is_plain(const struct push *p) {
    return !push_has_options(p);
}

static int find_repeat_by_number(struct core *c, struct push_plan *plan) {
    const struct push *p = plan->push;
    int err = source_get(c, p, plan->stage, &plan->source);
    if (err < 0)
        return err;
    struct source *s = source_at(c, plan->source);
    if (!source_has_seen(s, p->number) || MUTANT(number_not_remembered))
        return source_check_new(p, s);
    plan->is_repeat = true;
    plan->repeat_id = source_id(s, p->number);
    plan->repeat_job = plan->repeat_id ? job_find(c, plan->repeat_id) : 0;
    return 0;
}

// No worker has had it, as far as is known: a start is not recorded, so after a restart only failed
// attempts and recorded leases tell.
static bool job_is_untouched(const struct job *j) {
    return j->status <= JOB_WAITING && !j->attempt && !j->serial;
}

static void find_repeat_by_once(struct core *c, struct push_plan *plan) {
    const struct push *p = plan->push;
    plan->has_once = true;
    plan->once = once_name(p->stage, p->job.key, p->job.once);
    plan->repeat_id = once_find(c, c->stages[plan->stage], plan->once, &plan->repeat_job);
    bool changes = p->job.last && plan->repeat_id;
    plan->replaces = changes && plan->repeat_job && job_is_untouched(job_at(c, plan->repeat_job));
    plan->takes_name = changes && !plan->replaces;
    plan->is_repeat = plan->repeat_id && !plan->takes_name;
}

APART static int find_repeat(struct core *c, struct push_plan *plan) {
    int err = plan->push->source.size ? find_repeat_by_number(c, plan) : 0;
    if (err == 0 && !plan->is_repeat && plan->push->job.once.size)
        find_repeat_by_once(c, plan);
    return err;
}

// Finds the stage and the source of a push, and whether it is a repeat. Makes no job.
int push_plan_begin(struct core *c, const struct push *p, struct push_plan *plan) {
    *plan = (struct push_plan){ .push = p,
                                .has_options = push_has_options(p) || is_late(c) || c->job_maker };
    int err = stage_get(c, p->stage, &plan->stage);
    if (err < 0)
        return err;
    if (!plan->has_options)
        return 0;
    plan->maker = c->job_maker;
    return find_repeat(c, plan);
}

// When the job is due; 0: at once. While due timers may be unhandled (is_late), delayed jobs of the
// channel may be due but not delivered yet: the new job is then delayed by 1 ms, so that it comes
// after them.
static uint64_t push_plan_due(const struct core *c, const struct push_plan *plan) {
    if (plan->push->job.delay_ms)
        return c->now_ms + (uint64_t)plan->push->job.delay_ms;
    return is_late(c) && plan->channel && channel_at(c, plan->channel)->pins ? c->now_ms + 1 : 0;
}

static void push_plan_times(struct core *c, struct push_plan *plan) {
    const struct job_spec *job = &plan->push->job;
    plan->due_ms = push_plan_due(c, plan);
    plan->deadline_ms = job->deadline_ms ? c->now_ms + (uint64_t)job->deadline_ms : 0;
    plan->position = plan->due_ms ? plan->due_ms << POSITION_SHIFT : position_next(c);
}

// For a key that no channel has, and in a stage with groups for a job without a key.
APART static int push_plan_owner(struct core *c, struct push_plan *plan) {
    mr_bytes key = plan->push->job.key;
    bool has_channel = key_has_channel(c->stages[plan->stage], key);
    int err = has_channel ? channel_get(c, plan->stage, key, &plan->channel)
                          : group_use(c, plan->stage, key, &plan->group);
    if (err < 0)
        return err;
    plan->owner = has_channel ? plan->channel
                  : key.size  ? OWNER_GROUPED | plan->group
                              : plan->stage;
    return 0;
}

APART static int push_plan_prepare_options(struct core *c, const struct push_plan *plan) {
    int err = plan->source ? source_keep_ids(source_at(c, plan->source)) : 0;
    return err < 0 ? err : maker_reserve_job(c, plan->maker);
}

// Makes sure that nothing can fail once the record is written. A caller that prepares several plans
// before push_plan_apply pins their channels; one that fails to write the record unpins the plan.
int push_plan_prepare(struct core *c, struct push_plan *plan) {
    const struct push *p = plan->push;
    int err = 0;
    if (plan->has_options && (err = push_plan_prepare_options(c, plan)) < 0)
        return err;
    plan->owner = plan->stage;
    if (p->job.key.size)
        plan->owner = plan->channel = channel_find(c, plan->stage, p->job.key);
    bool is_found = p->job.key.size ? plan->channel != 0 : !c->stages[plan->stage]->groups;
    if (!is_found && (err = push_plan_owner(c, plan)) < 0)
        return err;
    if (plan->channel) // the job that this one will follow
        __builtin_prefetch(job_at(c, channel_at(c, plan->channel)->jobs.tail), 1);
    plan->id = c->next_id;
    c->next_id += c->config.id_step;
    push_plan_times(c, plan);
    return 0;
}

// Keeps the channel from being freed while other plans are prepared.
void push_plan_pin(struct core *c, struct push_plan *plan) {
    plan->pinned = plan->channel != 0;
    if (plan->pinned)
        channel_pin(c, plan->channel);
}

static void push_plan_unpin_channel(struct core *c, struct push_plan *plan) {
    if (plan->pinned)
        channel_unpin(c, plan->channel);
    plan->pinned = false;
}

void push_plan_unpin(struct core *c, struct push_plan *plan) {
    push_plan_unpin_channel(c, plan);
    if (plan->group)
        group_release(c, plan->group);
    plan->group = 0;
}

// The bytes of a job that count for its maker.
static uint32_t push_bytes(const struct push *p) {
    return (uint32_t)(p->body.size + p->job.meta.size);
}

APART static void job_apply_options(struct core *c, uint32_t number, const struct push_plan *plan) {
    struct job *j = job_at(c, number);
    const struct push *p = plan->push;
    if (plan->takes_name)
        once_displace(c, plan->once);
    if (plan->has_once)
        once_remember(c, number, plan->once);
    job_set_counts(c, j, p->job.attempts, (uint32_t)p->job.meta.size);
    job_set_maker(c, j, plan->maker, push_bytes(p));
    if (plan->deadline_ms)
        job_set_deadline(c, number, plan->deadline_ms);
    if (plan->source) {
        struct source *s = source_at(c, plan->source);
        source_attach(c, j, plan->source, p->number);
        s->unended[j->status]++;
        s->seen.accepted++;
        source_see(s, p->number, j->id);
    }
    if (p->caller)
        job_add_attr(c, j, ATTR_CALL);
}

uint32_t push_plan_apply(struct core *c, struct push_plan *plan, uint64_t at, uint32_t size) {
    struct stage *s = c->stages[plan->stage];
    uint32_t number = job_create(c, plan->id);
    struct job *j = job_at(c, number);
    j->owner = plan->owner;
    j->position = plan->position;
    j->time_ms = c->now_ms;
    j->status = plan->due_ms ? JOB_DELAYED : JOB_WAITING;
    s->by_status[j->status]++;
    job_set_home(c, j, at, size);
    if (!plan->push->caller)
        j->flags |= JOB_WANTED_FOR_GOOD;
    if (plan->has_options)
        job_apply_options(c, number, plan);
    s->pushed++;
    rate_count(&s->in, c->now_ms);
    ages_add(&s->ages, c->now_ms, c->now_ms);
    if (plan->due_ms) {
        job_line_add(c, &s->delayed, number, AT_TAIL); // the line is sorted by id
        job_set_due(c, number, plan->due_ms);          // a delayed job keeps the channel pinned
        if (!plan->pinned)
            push_plan_pin(c, plan);
    } else {
        channel_deliver(c, number);
        push_plan_unpin_channel(c, plan);
    }
    stage_depth_changed(c, s);
    return number;
}

// ---- Room -------------------------------------------------------------------------------------

#define ADD_SIZE(member, kind, ...) size += SIZE_##kind(p->job.member);
#define SIZE_BYTES(bytes) (bytes).size
#define SIZE_MS(ms) 0
#define SIZE_COUNT(count) 0
#define SIZE_FLAG(flag) 0

static size_t push_size(const struct push *p) {
    size_t size = p->body.size;
    JOB_OPTIONS(ADD_SIZE)
    return size;
}

// All limits except max-jobs.
static int push_check_limits(struct core *c, const struct push_plan *plan) {
    struct stage *s = c->stages[plan->stage];
    const struct policy *policy = &s->policy;
    bool bounded = policy->max_channel && plan->push->job.key.size;
    chan ref = bounded ? channel_find(c, plan->stage, plan->push->job.key) : 0;
    if (ref) {
        const struct channel *ch = channel_at(c, ref);
        if (ch->jobs.count >= policy->max_channel)
            return error_set(MR_EFULL,
                             "this channel of stage %.*s holds %u job%s, which is its "
                             "max-channel",
                             s->name_size, s->name, ch->jobs.count, ch->jobs.count == 1 ? "" : "s");
    }
    int err = memory_check(c, entry_size(HEAD_MAX, push_size(plan->push)));
    if (err < 0)
        return err;
    if (s->edge_count && stage_is_choked(s))
        return error_set(MR_EFULL, "stage %.*s is part of a cycle and over its high-mark",
                         s->name_size, s->name);
    return 0;
}

static int push_check_room(struct core *c, const struct push_plan *plan) {
    struct stage *s = c->stages[plan->stage];
    if (!stage_has_room(s))
        return error_set(MR_EFULL, "stage %.*s holds %" PRIu64 " job%s, which is its max-jobs",
                         s->name_size, s->name, stage_jobs(s), stage_jobs(s) == 1 ? "" : "s");
    return push_check_limits(c, plan);
}

// A push beyond its token's quota does not wait for room: those of other tokens would wait behind
// it.
static int push_check_quota(const struct core *c, const struct push_plan *plan) {
    int err = quota_check(c, QUOTA_JOBS, 1);
    return err < 0 ? err : quota_check(c, QUOTA_BYTES, push_bytes(plan->push));
}

// A pusher that was granted room and still finds none takes its old place again, which is at or
// near the front.
static void pushers_insert(struct stage *s, struct pusher *p) {
    struct list *before = s->pushers.next;
    while (before != &s->pushers && list_entry(before, struct pusher, of_stage)->order < p->order)
        before = before->next;
    list_append(before, &p->of_stage);
}

APART static int push_wait_for_room(struct core *c, const struct push_plan *plan) {
    struct pusher *waiting = plan->push->pusher;
    size_t bytes = push_size(plan->push);
    if (!waiting)
        return MR_EFULL;
    if (c->room_bytes + bytes > c->limits.max_room_bytes)
        return error_set(MR_EFULL, "pushes of %" PRIu64 " bytes wait for room already",
                         c->room_bytes);
    waiting->stage = plan->stage;
    waiting->bytes = (uint32_t)bytes;
    c->room_bytes += bytes;
    c->room_pushes++;
    if (waiting->conn)
        list_append(&waiting->conn->pushers, &waiting->of_conn);
    struct stage *s = c->stages[plan->stage];
    if (plan->room_granted) {
        pushers_insert(s, waiting);
    } else {
        waiting->order = ++c->last_pusher;
        list_append(&s->pushers, &waiting->of_stage);
    }
    if (s->pushers.next == &waiting->of_stage)
        (void)memory_has_room_at(c, s); // if it waits for memory, it is woken when there is some
    return MR_EAGAIN;
}

static int push_check_draining(const struct stage *s) {
    if (!s->draining)
        return 0;
    return error_set(MR_EDRAINING, "stage %.*s is draining: it takes no pushes until resumed",
                     s->name_size, s->name);
}

// Admits a push, or makes it wait behind those that wait already.
static int push_admit(struct core *c, const struct push_plan *plan) {
    struct stage *s = c->stages[plan->stage];
    if (s->draining)
        return push_check_draining(s);
    if (!plan->room_granted && !list_empty(&s->pushers)) {
        error_set(MR_EFULL, "other pushes to stage %.*s wait for room", s->name_size, s->name);
        return push_wait_for_room(c, plan);
    }
    int err = push_check_room(c, plan);
    return err < 0 ? push_wait_for_room(c, plan) : 0;
}

APART static int push_admit_counted(struct core *c, const struct push_plan *plan) {
    int err = push_check_quota(c, plan);
    return err < 0 ? err : push_admit(c, plan);
}

// It waits no longer.
static void pusher_unlink(struct core *c, struct stage *s, struct pusher *p) {
    c->room_pushes--;
    c->room_bytes -= p->bytes;
    list_remove(&p->of_conn);
    list_remove(&p->of_stage);
    if (list_empty(&s->pushers))
        list_remove(&s->of_starved);
}

// Reserves room for a pusher until it pushes again or leaves.
static void room_grant(struct core *c, struct stage *s, struct pusher *p) {
    p->granted = true;
    s->granted_rooms++;
    c->granted_bytes += pusher_needs(p);
    if (p->conn)
        list_append(&p->conn->pushers, &p->of_conn);
}

static void room_end_grant(struct core *c, struct stage *s, struct pusher *p) {
    p->granted = false;
    s->granted_rooms--;
    c->granted_bytes -= pusher_needs(p);
    list_remove(&p->of_conn);
}

// Whether there is room for the push that has waited longest.
static bool stage_fits_first(struct core *c, struct stage *s) {
    return !stage_is_choked(s) && stage_has_room(s) && memory_has_room_at(c, s);
}

// When the stage drains, all waiting pushers are notified; they are refused when they push again.
// What they leave of the memory is for other stages.
APART void pushers_notify_room(struct core *c, struct stage *s) {
    while (!list_empty(&s->pushers) && (s->draining || stage_fits_first(c, s))) {
        struct pusher *p = list_entry(s->pushers.next, struct pusher, of_stage);
        pusher_unlink(c, s, p);
        room_grant(c, s, p);
        if (c->config.events.room)
            c->config.events.room(c->config.owner, p);
        if (s->policy.max_channel && !s->draining)
            break; // it may have waited for its channel only: notify one at a time
    }
    if (c->room_pushes)
        memory_wake(c);
}

void pusher_leave(struct core *c, struct pusher *p) {
    struct stage *s = p->stage ? c->stages[p->stage] : NULL;
    if (!s)
        return;
    if (p->granted)
        room_end_grant(c, s, p);
    else if (!list_empty(&p->of_stage))
        pusher_unlink(c, s, p);
    *p = (struct pusher){ .conn = p->conn };
    stage_depth_changed(c, s);
    stage_wake(c, s);
    if (c->room_pushes)
        memory_wake(c);
    stage_forget_unused(c, bytes_of(s->name, s->name_size));
}

void core_push_leave(struct core *c, struct pusher *p) {
    pusher_leave(c, p);
    settle(c);
}

// ---- Repeats ----------------------------------------------------------------------------------

static int want_for_good(struct core *c, struct job *j) {
    struct record r = { .kind = RECORD_WANT, .time_ms = c->now_ms, .id = j->id };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    j->flags |= JOB_WANTED_FOR_GOOD;
    return 0;
}

static bool has_ended(const struct job *j) {
    return j->status >= JOB_DONE;
}

APART static int push_repeat(struct core *c, const struct push_plan *plan, struct pushed *out) {
    struct pushed answer = { .id = plan->repeat_id, .repeat = true };
    struct job *j = plan->repeat_job ? job_at(c, plan->repeat_job) : NULL;
    if (plan->push->caller && !j)
        return error_set(MR_EGONE, "that call was made before and its result is no longer kept");
    struct source *s = plan->source ? source_at(c, plan->source) : NULL;
    int err = 0;
    if (s &&
        !source_has_seen(s, plan->push->number)) // a new number, but its `once` was used before
        err = source_note(c, plan->source, plan->stage, plan->push->number, plan->repeat_id);
    if (err < 0)
        return err;
    if (j && has_ended(j)) {
        answer.ended = true;
        answer.outcome = outcome_of(c, j);
    } else if (j && plan->push->caller) {
        err = caller_attach(c, plan->repeat_job, plan->push->caller);
    } else if (j && !(j->flags & JOB_WANTED_FOR_GOOD)) {
        err = want_for_good(c, j);
    }
    if (err < 0)
        return err;
    *out = answer;
    return 0;
}

// Writes a new stage or source first, then the push: replay needs their records before it counts
// the push.
static int push_write(struct core *c, const struct push_plan *plan) {
    struct stage *s = c->stages[plan->stage];
    struct source *source = plan->source ? source_at(c, plan->source) : NULL;
    bool new_stage = !s->recorded, new_source = source && (!source->size || !source->stage);
    int err = out_begin(c, 3, plan->push->job.key.size);
    if (err == 0 && plan->has_options)
        err = out_reserve_joined(c, push_joined_size(plan->push));
    if (err < 0)
        return err;
    struct record r;
    struct record_about about;
    if (new_stage) {
        r = record_of_stage(c, s, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    if (new_source) {
        r = record_of_source(c, source, plan->stage, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    out_add_push(c, plan);
    if ((err = out_commit(c, ROOM_PUSH)) < 0)
        return err;
    if (new_stage)
        stage_set_home(c, s, c->out.at[0], out_size(c, 0));
    if (new_source) {
        source_set_home(c, source, c->out.at[new_stage], out_size(c, new_stage));
        source_adopt(c, plan->source, plan->stage);
    }
    return 0;
}

// The log has no room for pushes, or no ids for them, until its owner calls core_log_has_room.
APART static int push_refused_by_log(struct core *c, const struct push_plan *plan) {
    c->log_is_full = true;
    return push_wait_for_room(c, plan);
}

static int push_new(struct core *c, struct push_plan *plan, struct pushed *out) {
    int err = plan->push->promised               ? 0
              : plan->has_options && plan->maker ? push_admit_counted(c, plan)
                                                 : push_admit(c, plan);
    if (err < 0)
        return err;
    if ((err = job_reserve(c, 1, plan->has_options)) < 0)
        return err;
    if (plan->has_once && (err = once_reserve(c, 1)) < 0)
        return err;
    if ((err = ids_reserve(c, 1)) < 0)
        return err == MR_EFULL ? push_refused_by_log(c, plan) : err;
    if ((err = push_plan_prepare(c, plan)) < 0)
        return err;
    if ((err = push_write(c, plan)) < 0) {
        push_plan_unpin(c, plan);
        return err == MR_EFULL ? push_refused_by_log(c, plan) : err;
    }
    size_t last = c->out.count - 1;
    uint32_t job = push_plan_apply(c, plan, c->out.at[last], out_size(c, last));
    if (plan->push->caller)
        caller_link(c, job, plan->push->caller);
    *out = (struct pushed){ .id = plan->id };
    return 0;
}

// ---- ONCE … LAST ------------------------------------------------------------------------------
//
// The record is one of the whole job, as the cleaner writes it: replay may have lost the push that
// made the job, and what that had for a body is no longer needed.

static struct record record_of_replaced(struct core *c, struct push_plan *plan) {
    const struct push *p = plan->push;
    const struct job *j = job_at(c, plan->repeat_job);
    struct record r = record_of_job(c, j);
    r.kind = RECORD_REPLACE;
    r.copy = r.call = false; // a push wants it for good
    r.deadline_ms = plan->deadline_ms;
    r.meta_size = (uint32_t)p->job.meta.size;
    r.maker = plan->maker;
    if (j->status == JOB_DELAYED) {
        r.status = plan->due_ms ? JOB_DELAYED : JOB_WAITING;
        r.due_ms = plan->due_ms;
        r.position = plan->position;
    }
    return r;
}

// The number of the push, if it has a new one, is recorded in the same group.
static int replace_write(struct core *c, struct push_plan *plan, bool notes_number) {
    const struct push *p = plan->push;
    int err = out_begin(c, 2, p->job.key.size);
    if (err == 0)
        err = out_reserve_joined(c, push_joined_size(p));
    if (err < 0)
        return err;
    if (notes_number)
        source_add_note(c, plan->source, plan->stage, p->number, plan->repeat_id);
    struct record r = record_of_replaced(c, plan);
    out_add(c, &r, out_join(c, p));
    return out_commit(c, ROOM_PUSH);
}

static void replace_apply(struct core *c, const struct push_plan *plan) {
    uint32_t number = plan->repeat_job;
    struct job *j = job_at(c, number);
    size_t last = c->out.count - 1;
    job_set_home(c, j, c->out.at[last], out_size(c, last));
    job_set_meta_size(c, j, (uint32_t)plan->push->job.meta.size);
    job_set_maker(c, j, plan->maker, push_bytes(plan->push));
    j->flags |= JOB_WANTED_FOR_GOOD;
    if (plan->deadline_ms)
        job_set_deadline(c, number, plan->deadline_ms);
    else
        job_drop_attr(c, j, ATTR_DEADLINE);
    if (j->status != JOB_DELAYED)
        return;
    j->position = plan->position;
    if (plan->due_ms) {
        job_set_due(c, number, plan->due_ms);
    } else {
        job_drop_attr(c, j, ATTR_DUE);
        job_comes_due(c, number);
    }
}

// The job counts for the token that has changed it, or as before if jobs do not count for that.
static int replace_check_quota(const struct core *c, struct push_plan *plan, const struct job *j) {
    uint64_t before = job_maker(c, j);
    uint32_t bytes = push_bytes(plan->push), had = job_maker_bytes(c, j);
    if (!plan->maker) {
        plan->maker = before;
        return 0;
    }
    if (plan->maker != before)
        return push_check_quota(c, plan);
    return bytes > had ? quota_check(c, QUOTA_BYTES, bytes - had) : 0;
}

// Changes the job that has the name. It needs no room for a job, only for the new body.
APART static int push_replace(struct core *c, struct push_plan *plan, struct pushed *out) {
    const struct push *p = plan->push;
    const struct job *j = job_at(c, plan->repeat_job);
    int err = push_check_draining(c->stages[plan->stage]);
    if (err < 0)
        return err;
    if ((err = replace_check_quota(c, plan, j)) < 0)
        return err;
    if ((err = maker_reserve_job(c, plan->maker)) < 0)
        return err;
    if (memory_check(c, entry_size(HEAD_MAX, push_size(p))) < 0)
        return push_wait_for_room(c, plan);
    if ((err = job_reserve(c, 1, true)) < 0)
        return err;
    bool notes_number = plan->source && !source_has_seen(source_at(c, plan->source), p->number);
    if (notes_number && (err = source_keep_ids(source_at(c, plan->source))) < 0)
        return err;
    plan->channel = job_is_keyed(j) ? j->owner : 0;
    push_plan_times(c, plan);
    if ((err = replace_write(c, plan, notes_number)) < 0)
        return err == MR_EFULL ? push_refused_by_log(c, plan) : err;
    if (notes_number)
        source_noted(c, plan->source, plan->stage, p->number, plan->repeat_id, 0);
    replace_apply(c, plan);
    *out = (struct pushed){ .id = plan->repeat_id, .repeat = true };
    return 0;
}

// ---- Any push ---------------------------------------------------------------------------------

// Uses the room that was reserved for a pusher; true if there was some.
static bool room_use_grant(struct core *c, struct pusher *p) {
    if (!p || !p->granted)
        return false;
    room_end_grant(c, c->stages[p->stage], p);
    return true;
}

static int push_plan_and_run(struct core *c, const struct push *p, bool room_granted,
                             struct pushed *out) {
    struct push_plan plan;
    int err = push_check(c, p);
    if (err < 0)
        return err;
    if ((err = push_plan_begin(c, p, &plan)) < 0)
        return err;
    plan.room_granted = room_granted;
    err = plan.replaces    ? push_replace(c, &plan, out)
          : plan.is_repeat ? push_repeat(c, &plan, out)
                           : push_new(c, &plan, out);
    if (plan.source && err == 0)
        source_accepted(c, p, plan.source);
    return err;
}

static int push(struct core *c, const struct push *p, bool room_granted, struct pushed *out) {
    int err = push_plan_and_run(c, p, room_granted, out);
    if (err < 0 && err != MR_EGAP && p->source.size && p->number)
        source_refused(c, p);
    return err;
}

// The caller may push again after these errors, so the reserved room is kept.
static bool is_transient_error(int err) {
    return err == MR_ENOMEM || err == MR_EFULL || err == MR_EIO || err == MR_ESTOPPED;
}

// Others may get what a pusher has not used of its room. If it waits again, then for its channel or
// for memory: its stage is woken when that has changed.
APART static void room_pass_on(struct core *c, const struct pusher *p, int err) {
    if (err != MR_EAGAIN)
        stage_wake(c, c->stages[p->stage]);
    if (c->room_pushes)
        memory_wake(c);
}

// ---- Room that is promised ----------------------------------------------------------------------

static bool stage_needs_checks(const struct core *c, const struct stage *s) {
    return s->draining || s->policy.max_channel || s->groups || s->edge_count ||
           !list_empty(&s->takers) || !list_empty(&s->pushers) || c->limits.max_bytes ||
           c->limits.max_memory || c->log_is_full;
}

// Whether so many more have entries and ids.
static bool core_has_entries(struct core *c, uint32_t jobs) {
    return slab_reserve(&c->jobs, jobs) == 0 && slab_reserve(&c->channels, jobs) == 0 &&
           c->next_id + jobs * c->config.id_step <= c->id_limit;
}

bool core_promises_room(struct core *c, mr_bytes name, uint32_t jobs) {
    uint32_t number = stage_find(c, name), most = jobs + PUSHES_A_TURN;
    const struct stage *s = number ? c->stages[number] : NULL;
    return s && s->recorded && !stage_needs_checks(c, s) && core_has_entries(c, most) &&
           (!s->policy.max_jobs || s->policy.max_jobs >= stage_jobs(s) + most);
}

// ---- The command --------------------------------------------------------------------------------

APART HOT int core_push(struct core *c, const struct push *p, struct pushed *out) {
    bool room_granted = room_use_grant(c, p->pusher);
    int err = push(c, p, room_granted, out);
    if (room_granted && is_transient_error(err))
        room_grant(c, c->stages[p->pusher->stage], p->pusher);
    else if (room_granted)
        room_pass_on(c, p->pusher, err);
    settle(c);
    if (err < 0)
        stage_forget_unused(c, p->stage);
    return err;
}
