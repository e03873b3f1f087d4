// The end of a job (done, cancelled, expired), its callers, and the commands await, cancel, retry
// and drop.
//
// Interest. A call lives while a CALL or AWAIT waits for it; when the last one leaves, it is
// cancelled at once, whether waiting or running. After a restart it counts as wanted for ten
// seconds.
#include "core/epic.h"
#include "core/group.h"

#include "base/errors.h"
#include "base/mutant.h"

#include <assert.h>
#include <inttypes.h>

struct outcome outcome_of(const struct core *c, const struct job *j) {
    struct outcome o = { .id = j->id,
                         .status = (enum job_status)j->status,
                         .shard = c->config.shard };
    if (j->status == JOB_DONE && !(j->flags & JOB_END_UNWRITTEN))
        o.at = j->at;
    const struct attr *reasons = job_attr(c, j, ATTR_REASONS);
    if (j->status == JOB_DEAD && reasons)
        o.at = reasons->value;
    return o;
}

// ---- Callers ----------------------------------------------------------------------------------

static struct caller *first_caller(const struct attr *call) {
    return (struct caller *)(uintptr_t)call->value;
}

void caller_link(struct core *c, uint32_t number, struct caller *caller) {
    struct attr *call = job_add_attr(c, job_at(c, number), ATTR_CALL);
    caller->job = number;
    call->small++;
    list_init(&caller->of_conn);
    list_init(&caller->of_job);
    if (caller->conn)
        list_append(&caller->conn->callers, &caller->of_conn);
    if (first_caller(call))
        list_append(&first_caller(call)->of_job, &caller->of_job);
    else
        call->value = (uintptr_t)caller;
}

enum { CALLERS_MOST = 1 << 16, CALLERS_NOTIFIED = 8 }; // of a job; that cost as much as a timer

int caller_attach(struct core *c, uint32_t number, struct caller *caller) {
    const struct attr *call = job_attr(c, job_at(c, number), ATTR_CALL);
    if (call && call->small >= CALLERS_MOST)
        return error_set(MR_EFULL, "%u calls wait for job %" PRIu64 " already", call->small,
                         job_at(c, number)->id);
    int err = slab_reserve(&c->attrs, 1);
    if (err < 0)
        return err;
    caller_link(c, number, caller);
    return 0;
}

static void caller_unlink(struct core *c, struct caller *caller) {
    struct attr *call = job_attr(c, job_at(c, caller->job), ATTR_CALL);
    assert(call);
    call->small--;
    if (first_caller(call) == caller) {
        struct list *next = list_first(&caller->of_job);
        call->value = next ? (uintptr_t)list_entry(next, struct caller, of_job) : 0;
    }
    list_remove(&caller->of_job);
    list_remove(&caller->of_conn);
    caller->job = 0;
}

void callers_notify(struct core *c, struct job *j, const struct outcome *o) {
    struct attr *call = job_attr(c, j, ATTR_CALL);
    if (call)
        due_spend(c, call->small / CALLERS_NOTIFIED);
    while (call && first_caller(call)) {
        struct caller *caller = first_caller(call);
        caller_unlink(c, caller);
        if (c->config.events.ended)
            c->config.events.ended(c->config.owner, caller, o);
    }
}

// ---- The end of a job -------------------------------------------------------------------------

static void stage_count_end(struct core *c, struct stage *s, const struct job *j,
                            enum job_status status) {
    s->done += status == JOB_DONE;
    s->expired += status == JOB_EXPIRED;
    s->cancelled += status == JOB_CANCELLED;
    if (status == JOB_DONE)
        rate_count(&s->out, c->now_ms);
    else if (j->status != JOB_RUNNING)
        s->wasted_wait_ms += c->now_ms - j->time_ms;
}

// If a job without a key ends while leased, its lease has no channel any more.
static void leave_channel(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    chan ref = chan_of(c, number);
    if (j->status == JOB_DELAYED) {
        job_line_remove(c, &stage_of(c, j)->delayed, number);
        if (ref & CHAN_KEYED)
            channel_unpin(c, ref);
        return;
    }
    channel_take_out(c, number);
    if (ref & CHAN_KEYED) {
        if (chan_state(c, ref) != CHANNEL_IN_PROGRESS)
            channel_resolve(c, ref, AT_TAIL);
        return;
    }
    if (chan_state(c, ref) == CHANNEL_IN_PROGRESS) {
        lease_at(c, j->link.next)->channel = 0;
        j->link = (struct line_link){ 0 };
    }
    channel_move(c, ref, CHANNEL_DORMANT, AT_TAIL);
}

// Notifies the callers and drops the attributes that an ended job does not need.
APART static void drop_ended_attrs(struct core *c, struct job *j) {
    struct outcome o = outcome_of(c, j);
    callers_notify(c, j, &o);
    static const enum attr_kind kinds[] = { ATTR_CALL, ATTR_DEADLINE, ATTR_DUE, ATTR_REASONS,
                                            ATTR_COUNTS };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        job_drop_attr(c, j, kinds[i]);
    if (j->status != JOB_DONE)
        once_release(c, j);
}

void job_ended(struct core *c, uint32_t number, enum job_status status, uint64_t at,
               uint32_t size) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    stage_count_end(c, s, j, status);
    ages_remove(&s->ages, j->time_ms);
    leave_channel(c, number);
    if (j->status != JOB_RUNNING)
        j->serial = 0;
    job_set_status_in(c, s, j, status);
    j->time_ms = c->now_ms;
    if (s->groups)
        group_leave(c, s, j);
    j->owner = s->number;
    j->flags = (uint8_t)((j->flags & ~JOB_END_UNWRITTEN) | (at ? 0 : JOB_END_UNWRITTEN));
    if (at)
        job_set_home(c, j, at, size);
    if (job_has_attrs(j))
        drop_ended_attrs(c, j);
    job_line_add(c, &s->ended, number, AT_TAIL);
    if (s->ended.count == 1)
        stage_set_add(&c->ended_stages, s->number);
    stage_depth_decreased(c, s);
    stage_forget_ended(c, s);
    stage_plan_sweep(c, s);
    stage_wake(c, s);
    if (c->room_pushes)
        memory_wake(c);
}

// A job that ended long ago is not in the processor's cache: prefetches the one after the next.
void job_forget(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    uint32_t next = j->link.next;
    job_line_remove(c, &s->ended, number);
    if (next)
        __builtin_prefetch(job_at(c, job_at(c, next)->link.next), 1);
    s->by_status[j->status]--;
    job_free(c, number);
}

static void worker_notify_stop(struct core *c, uint32_t lease, uint64_t id, int why) {
    const struct lease *l = lease_at(c, lease);
    struct token token = { l->serial, c->random, lease };
    if (c->config.events.stop && l->conn)
        c->config.events.stop(c->config.owner, l->conn, id, &token, why);
}

// Writes the end of a job that is not done, and of its epic if that ends with it.
static int job_write_end(struct core *c, const struct job *j, enum job_status status,
                         uint64_t *out_position, struct epic_finish *f) {
    size_t records = 1, bytes = RECORD_MAX;
    int err = j->flags & JOB_HAS_SOURCE ? epic_finish_job(c, j, f) : 0;
    if (err < 0)
        return err;
    epic_finish_sizes(f, &records, &bytes);
    if ((err = out_begin(c, records, bytes)) < 0)
        return epic_finish_written(c, f, err);
    *out_position = position_next(c);
    out_add_end(c, j, status, *out_position, (mr_bytes){ 0 });
    epic_finish_add(c, f);
    return epic_finish_written(c, f, out_commit(c, ROOM_COMMIT));
}

int job_end(struct core *c, uint32_t number, enum job_status status) {
    struct job *j = job_at(c, number);
    uint64_t id = j->id, position = 0;
    uint32_t lease = j->status == JOB_RUNNING ? link_of(c, chan_of(c, number))->next : 0;
    struct epic_finish f = { 0 };
    int err = job_write_end(c, j, status, &position, &f);
    if (err < 0)
        return err;
    j->position = position;
    job_ended(c, number, status, c->out.at[0], out_size(c, 0));
    epic_finish_apply(c, &f);
    if (lease && !MUTANT(worker_not_told_to_stop))
        worker_notify_stop(c, lease, id, status == JOB_EXPIRED ? MR_EEXPIRED : MR_ECANCELLED);
    return 0;
}

// ---- Commands ---------------------------------------------------------------------------------

static int find_job(struct core *c, uint64_t id, uint32_t *out) {
    uint32_t number = job_find(c, id);
    if (!number)
        return error_set(MR_EGONE, "job %" PRIu64 " is not known (any more)", id);
    *out = number;
    return 0;
}

int core_await(struct core *c, uint64_t id, struct caller *caller, struct outcome *out) {
    uint32_t number = 0;
    int err = find_job(c, id, &number);
    if (err < 0)
        return err;
    if (job_at(c, number)->status >= JOB_DONE) {
        *out = outcome_of(c, job_at(c, number));
        return 0;
    }
    err = caller_attach(c, number, caller);
    return err < 0 ? err : MR_EAGAIN;
}

// True for a call whose last caller has gone.
static bool is_unwanted(const struct core *c, const struct job *j) {
    const struct attr *call = job_attr(c, j, ATTR_CALL);
    return !(j->flags & JOB_WANTED_FOR_GOOD) && call && !call->small;
}

int caller_leave(struct core *c, struct caller *caller) {
    uint32_t number = caller->job;
    if (!number)
        return 0;
    caller_unlink(c, caller);
    bool in_grace = c->now_ms < c->grace_until_ms && !MUTANT(no_grace_for_callers) &&
                    job_at(c, number)->flags & JOB_IN_GRACE;
    if (in_grace || !is_unwanted(c, job_at(c, number)) || MUTANT(call_runs_without_callers))
        return 0;
    int err = job_end(c, number, JOB_CANCELLED);
    if (err < 0)
        timer_retry(c, TIMER_GRACE, number);
    return err;
}

int core_await_leave(struct core *c, struct caller *caller) {
    int err = caller_leave(c, caller);
    settle(c);
    return err;
}

int job_grace_over(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    j->flags &= (uint8_t)~JOB_IN_GRACE;
    return j->status < JOB_DONE && is_unwanted(c, j) ? job_end(c, number, JOB_CANCELLED) : 0;
}

int core_cancel(struct core *c, uint64_t id, bool *out_changed) {
    uint32_t number = 0;
    int err = find_job(c, id, &number);
    if (err < 0)
        return err;
    bool changes = job_at(c, number)->status < JOB_DONE;
    if (changes && (err = job_end(c, number, JOB_CANCELLED)) < 0)
        return err;
    *out_changed = changes;
    settle(c);
    return 0;
}

// `f`: an epic that ends with it.
static int write_event_with(struct core *c, enum record_kind kind, const struct job *j,
                            uint64_t position, struct epic_finish *f) {
    size_t records = 1, bytes = 0;
    epic_finish_sizes(f, &records, &bytes);
    int err = out_begin(c, records, bytes);
    if (err < 0)
        return epic_finish_written(c, f, err);
    struct record r = { .kind = kind,
                        .time_ms = c->now_ms,
                        .id = j->id,
                        .position = position,
                        .stage = stage_of(c, j)->number,
                        .status = (enum job_status)j->status };
    record_add_source(c, j, &r);
    out_add(c, &r, (mr_bytes){ 0 });
    epic_finish_add(c, f);
    return epic_finish_written(c, f, out_commit(c, ROOM_COMMIT));
}

static int write_event(struct core *c, enum record_kind kind, const struct job *j,
                       uint64_t position) {
    struct epic_finish none = { 0 };
    return write_event_with(c, kind, j, position, &none);
}

// Takes a job out of the dead for RETRY; the caller puts it into its channel.
static void job_revive(struct core *c, uint32_t number, uint64_t position) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    job_line_remove(c, &s->dead, number);
    channel_unhalt(c, number);
    j->position = position;
    j->attempt = 0;
    j->time_ms = c->now_ms;
    ages_add(&s->ages, c->now_ms, c->now_ms);
    job_drop_attr(c, j, ATTR_REASONS);
    job_set_status(c, j, JOB_WAITING);
}

// The job gets a new position. While timers are late, jobs of its channel that are due would stand
// behind it.
static int check_in_time(const struct core *c, const struct job *j, const char *what) {
    if (!job_is_keyed(j) || !is_late(c) || channel_at(c, j->owner)->pins <= 1)
        return 0;
    return error_set(MR_EFULL,
                     "job %" PRIu64 " cannot be %s just now, since jobs of its key that are due "
                     "may not have been delivered yet: try again",
                     j->id, what);
}

int core_retry(struct core *c, uint64_t id) {
    uint32_t number = 0;
    int err = find_job(c, id, &number);
    if (err < 0)
        return err;
    struct job *j = job_at(c, number);
    if (j->status != JOB_DEAD)
        return error_set(MR_EINVAL, "job %" PRIu64 " is %s: only dead jobs are retried", id,
                         job_status_name((enum job_status)j->status));
    bool halts = j->flags & JOB_HALTS;
    if (!halts && (err = check_in_time(c, j, "retried")) < 0)
        return err;
    uint64_t position = halts ? j->position : position_next(c);
    if ((err = write_event(c, RECORD_RETRY, j, position)) < 0)
        return err;
    job_revive(c, number, position);
    if (job_is_keyed(j)) {
        if (halts)
            channel_insert(c, number);
        else
            channel_deliver(c, number);
        channel_unpin(c, j->owner);
    }
    if (chan_state(c, chan_of(c, number)) != CHANNEL_IN_PROGRESS)
        channel_resolve(c, chan_of(c, number), AT_TAIL);
    stage_depth_changed(c, stage_of(c, j));
    settle(c);
    return 0;
}

int core_due(struct core *c, uint64_t id, bool *out_changed) {
    uint32_t number = 0;
    int err = find_job(c, id, &number);
    if (err < 0)
        return err;
    struct job *j = job_at(c, number);
    bool delayed = j->status == JOB_DELAYED;
    bool changes = (delayed || j->status == JOB_WAITING) && job_due(c, j) > c->now_ms;
    if (changes && delayed && (err = check_in_time(c, j, "made due")) < 0)
        return err;
    uint64_t position = changes && delayed ? position_next(c) : j->position;
    if (changes && (err = write_event(c, RECORD_DUE, j, position)) < 0)
        return err;
    if (changes) {
        j->position = position;
        job_drop_attr(c, j, ATTR_DUE);
        job_comes_due(c, number);
    }
    *out_changed = changes;
    settle(c);
    return 0;
}

// Removes a job for DROP.
static void job_remove(struct core *c, uint32_t number) {
    struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    chan ref = chan_of(c, number);
    struct outcome gone = { .id = j->id, .status = JOB_CANCELLED };
    callers_notify(c, j, &gone);
    if (j->status == JOB_DEAD) {
        job_line_remove(c, &s->dead, number);
        channel_unhalt(c, number);
        if (ref & CHAN_KEYED) {
            if (chan_state(c, ref) != CHANNEL_IN_PROGRESS)
                channel_resolve(c, ref, AT_TAIL);
            channel_unpin(c, ref);
        }
    } else {
        s->cancelled++;
        ages_remove(&s->ages, j->time_ms);
        if (j->flags & JOB_HAS_SOURCE)
            source_count(c, j, (enum job_status)j->status, JOB_CANCELLED);
        leave_channel(c, number);
    }
    s->by_status[j->status]--;
    if (s->groups)
        group_leave(c, s, j);
    job_free(c, number);
    stage_depth_changed(c, s);
    stage_wake(c, s);
}

int core_drop(struct core *c, uint64_t id) {
    uint32_t number = 0;
    int err = find_job(c, id, &number);
    if (err < 0)
        return err;
    const struct job *j = job_at(c, number);
    if (j->status == JOB_RUNNING)
        return error_set(MR_EBUSY, "job %" PRIu64 " is running: cancel it instead", id);
    if (j->status == JOB_DONE || j->status > JOB_DEAD)
        return error_set(MR_EINVAL, "job %" PRIu64 " has ended already", id);
    struct epic_finish f = { 0 };
    if (j->flags & JOB_HAS_SOURCE && (err = epic_finish_job(c, j, &f)) < 0)
        return err;
    if ((err = write_event_with(c, RECORD_DROP, j, 0, &f)) < 0)
        return err;
    job_remove(c, number);
    epic_finish_apply(c, &f);
    if (c->room_pushes)
        memory_wake(c);
    settle(c);
    return 0;
}
