// Pushes, which may wait for room, and callers that wait for the end of a job.
//
// The event of a job's end has the position of its result; the waiting thread reads it, without the
// lock, and writes the sentence.
#include "base/errors.h"
#include "base/mem.h"
#include "core/record.h"
#include "engine/local.h"

#include <inttypes.h>

enum { MANY_A_TURN = 256 }; // pushes, before other threads get the lock

// ---- Pushing ----------------------------------------------------------------------------------

static struct push core_push_of(mr_bytes stage, mr_bytes body, const mr_push_options *o) {
    return (struct push){ .stage = stage, .body = body, .job = job_spec_of(o) };
}

void event_room(void *owner, struct pusher *pusher) {
    local_notify(owner, &list_entry(pusher, struct local_pusher, pusher)->waiter);
}

// In a turn. The call is registered here, before its end can be reported.
static int push_now(struct local_shard *s, const struct push *push, struct pushed *out) {
    int err = core_push(s->core, push, out);
    if (err < 0 || !push->caller)
        return err;
    struct local_call *c = list_entry(push->caller, struct local_call, caller);
    c->outcome.id = out->id;
    if (out->ended)
        c->outcome = out->outcome;
    if (c->on_end)
        list_append(out->ended ? &s->calls : &s->started, &c->of_calls);
    return 0;
}

// Ends the turn and waits for room. 0: a new turn has begun.
static int local_wait_for_room(struct local_shard *s, const struct push *push,
                               struct local_pusher *p, int64_t room_ms, uint64_t until) {
    p->waiter = (struct waiter){ 0 };
    local_end_keep(s);
    if (local_wait(s, &p->waiter, until))
        return local_enter(s);
    if (p->waiter.err != MR_EAGAIN)
        return p->waiter.err;
    return error_set(MR_EFULL, "stage '%.*s' had no room for %" PRId64 " ms", (int)push->stage.size,
                     (const char *)push->stage.data, room_ms);
}

// A push that waits for room, in as many turns as it takes.
static int push_waiting(struct local_shard *s, const struct push *order, int64_t room_ms,
                        struct pushed *out, uint64_t *out_at) {
    uint64_t until = local_until(room_ms);
    struct local_pusher p = { .pusher.conn = &s->conn };
    struct push push = *order;
    push.pusher = &p.pusher;
    int err = local_begin(s);
    if (err < 0)
        return err;
    do {
        err = push_now(s, &push, out);
        if (err != MR_EAGAIN)
            break;
        err = local_wait_for_room(s, &push, &p, room_ms, until);
    } while (err >= 0);
    core_push_leave(s->core, &p.pusher);
    *out_at = local_end(s);
    return err;
}

static int push_turn(struct local_shard *s, const struct push *push, int64_t room_ms,
                     struct pushed *out, uint64_t *out_at) {
    if (room_ms != 0)
        return push_waiting(s, push, room_ms, out, out_at);
    int err = local_begin(s);
    if (err < 0)
        return err;
    err = push_now(s, push, out);
    if (err >= 0 && push_is_plain(push))
        local_accept_stage(s, push->stage);
    *out_at = err < 0 || push->caller ? local_end(s) : local_end_to_wait(s);
    return err;
}

int local_push(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
               mr_id *out_id) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct push push = core_push_of(stage, body, o);
    if (!out_id && push_is_plain(&push) && push_inbox_accept(&s->inbox, stage, o->key, body))
        return 0;
    struct pushed pushed;
    uint64_t at = 0;
    int err = push_turn(s, &push, o->room_ms, &pushed, &at);
    if (err >= 0)
        err = local_wait_durable(s, at, 0);
    if (err < 0)
        return err;
    if (out_id)
        *out_id = pushed.id;
    return 0;
}

// Pushes as many as one turn and the room allow. Returns how many; `out_err` says why not all.
static size_t push_some(struct local_shard *s, struct push *push, const mr_item *items,
                        size_t count, mr_id *out_ids, int *out_err) {
    size_t n = 0;
    int err = 0;
    for (; n < count && n < MANY_A_TURN; n++) {
        struct pushed pushed;
        push->job.key = items[n].key;
        push->job.once = items[n].once;
        push->body = items[n].body;
        err = core_push(s->core, push, &pushed);
        if (err < 0)
            break;
        push->number += push->source.size > 0;
        if (out_ids)
            out_ids[n] = pushed.id;
    }
    *out_err = err;
    return n;
}

int local_push_many(struct engine *base, mr_bytes stage, const mr_item *items, size_t count,
                    const mr_push_options *o, const struct push_number *first, mr_id *out_ids,
                    size_t *out_count) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct push push = core_push_of(stage, (mr_bytes){ 0 }, o);
    struct pushed pushed;
    if (first) {
        push.source = first->source;
        push.number = first->number;
        push.epic = first->epic;
    }
    uint64_t at = 0;
    size_t n = 0;
    int err = 0;
    while (n < count && err >= 0) {
        err = local_begin(s);
        if (err < 0)
            break;
        push.pusher = NULL;
        n += push_some(s, &push, items + n, count - n, out_ids ? out_ids + n : NULL, &err);
        at = local_end(s);
        if (err != MR_EFULL || o->room_ms == 0)
            continue;
        err = push_waiting(s, &push, o->room_ms, &pushed, &at);
        if (err >= 0 && out_ids)
            out_ids[n] = pushed.id;
        n += err >= 0;
        push.number += err >= 0 && first;
    }
    if (n == 0 && err < 0)
        return err;
    err = local_wait_durable(s, at, 0);
    if (err < 0)
        return err;
    *out_count = n;
    return 0;
}

// ---- The end of a job -------------------------------------------------------------------------

void event_ended(void *owner, struct caller *caller, const struct outcome *outcome) {
    struct local_shard *s = owner;
    struct local_call *call = list_entry(caller, struct local_call, caller);
    call->outcome = *outcome;
    if (call->waiter) {
        local_notify(s, call->waiter);
        return;
    }
    list_remove(&call->of_calls);
    list_append(&s->calls, &call->of_calls);
}

static int say_dead(struct local_shard *s, const struct outcome *o) {
    struct buffer reasons = { 0 };
    int err = o->at ? local_read(s, o->id, HOME_REASONS, o->at, &reasons) : 0;
    mr_bytes last = err < 0 ? mr_str(error_text()) : reasons_last(buffer_bytes(&reasons));
    char text[REASON_MOST + 1];
    size_t size = last.size < sizeof text ? last.size : sizeof text - 1;
    memcpy(text, size ? last.data : "", size);
    text[size] = 0;
    buffer_finish(&reasons);
    return error_set(MR_EDEAD, "job %" PRIu64 " is dead: %s", o->id, text);
}

static int say_expired(const struct local_call *c) {
    if (!c->stage.size)
        return error_set(MR_EEXPIRED, "job %" PRIu64 " did not end before its deadline",
                         c->outcome.id);
    return error_set(
        MR_EEXPIRED,
        "job %" PRIu64 " of stage '%.*s' did not end within its deadline of %" PRId64 " ms",
        c->outcome.id, (int)c->stage.size, (const char *)c->stage.data, c->deadline_ms);
}

// Reads the result, or makes the sentence.
static int read_outcome(struct local_shard *s, const struct local_call *c, struct buffer *out) {
    const struct outcome *o = &c->outcome;
    switch (o->status) {
    case JOB_DONE:
        return o->at ? local_read(s, o->id, HOME_BODY, o->at, out) : 0;
    case JOB_DEAD:
        return say_dead(s, o);
    case JOB_EXPIRED:
        return say_expired(c);
    case JOB_CANCELLED:
        return error_set(MR_ECANCELLED, "job %" PRIu64 " was cancelled", o->id);
    case JOB_DELAYED:
    case JOB_WAITING:
    case JOB_RUNNING:
        break;
    }
    return error_set(MR_EGONE, "job %" PRIu64 " is not known any more", o->id);
}

// Waits for the end; the lock is held before and released after.
static int wait_for_end(struct local_shard *s, struct local_call *c, uint64_t until,
                        struct buffer *out) {
    if (local_wait(s, c->waiter, until)) {
        int err = local_wait_durable(s, c->waiter->at, 0);
        return err < 0 ? err : read_outcome(s, c, out);
    }
    core_await_leave(s->core, &c->caller);
    return local_end_durable(s, c->waiter->err);
}

int local_call(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
               struct buffer *out_result) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct waiter waiter = { 0 };
    struct local_call call = {
        .caller.conn = &s->conn, .waiter = &waiter, .stage = stage, .deadline_ms = o->deadline_ms
    };
    struct push push = core_push_of(stage, body, o);
    struct pushed pushed;
    uint64_t at = 0;
    push.caller = &call.caller;
    int err = push_turn(s, &push, o->room_ms, &pushed, &at);
    if (err < 0)
        return err;
    if (pushed.ended) {
        err = local_wait_durable(s, at, 0);
        return err < 0 ? err : read_outcome(s, &call, out_result);
    }
    pthread_mutex_lock(&s->lock);
    return wait_for_end(s, &call, UINT64_MAX, out_result);
}

struct await_args {
    int64_t wait_ms;
    struct buffer *out_result;
};

static int await_at(struct local_shard *s, mr_id id, void *arg) {
    const struct await_args *a = arg;
    struct waiter waiter = { 0 };
    struct local_call call = { .caller.conn = &s->conn, .waiter = &waiter };
    uint64_t until = a->wait_ms ? local_until(a->wait_ms) : 0;
    int err = local_begin(s);
    if (err < 0)
        return err;
    err = core_await(s->core, id, &call.caller, &call.outcome);
    if (err == MR_EAGAIN) {
        local_end_keep(s);
        err = wait_for_end(s, &call, until, a->out_result);
        if (err == MR_EAGAIN)
            error_set(err, "job %" PRIu64 " has not ended in %" PRId64 " ms", id, a->wait_ms);
        return err;
    }
    err = local_end_durable(s, err);
    return err < 0 ? err : read_outcome(s, &call, a->out_result);
}

int local_await(struct engine *base, mr_id id, int64_t wait_ms, struct buffer *out_result) {
    return local_by_id(base, id, await_at, &(struct await_args){ wait_ms, out_result });
}

// ---- Started calls ----------------------------------------------------------------------------

// The stage's name lies behind the struct.
static struct local_call *call_create(struct local_shard *s, mr_bytes stage,
                                      const mr_push_options *o, mr_on_end *on_end, void *arg) {
    struct local_call *c = mem_alloc(sizeof *c + stage.size);
    if (!c) {
        error_set(MR_ENOMEM, "no memory for a call");
        return NULL;
    }
    memcpy(c + 1, stage.data, stage.size);
    c->caller.conn = &s->conn;
    c->stage = (mr_bytes){ c + 1, stage.size };
    c->deadline_ms = o->deadline_ms;
    c->on_end = on_end;
    c->arg = arg;
    return c;
}

void local_call_end(struct local_shard *s, struct local_call *c, int err) {
    struct buffer result = { 0 };
    if (err >= 0)
        err = read_outcome(s, c, &result);
    c->on_end(c->outcome.id, err, err < 0 ? mr_str(error_text()) : buffer_bytes(&result), c->arg);
    buffer_finish(&result);
    mem_free(c);
}

int local_call_start(struct engine *base, mr_bytes stage, mr_bytes body, const mr_push_options *o,
                     mr_on_end *on_end, void *arg, mr_id *out_id) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct local_call *c = call_create(s, stage, o, on_end, arg);
    if (!c)
        return MR_ENOMEM;
    struct push push = core_push_of(stage, body, o);
    struct pushed pushed;
    uint64_t at = 0;
    push.caller = &c->caller;
    int err = push_turn(s, &push, o->room_ms, &pushed, &at);
    if (err < 0) {
        mem_free(c);
        return err;
    }
    local_wait_durable(s, at, 0); // if that fails, on_end says so
    if (out_id)
        *out_id = pushed.id;
    return 0;
}

static int cancel_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    bool changed;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_cancel(s->core, id, &changed));
}

int local_cancel(struct engine *base, mr_id id) {
    return local_by_id(base, id, cancel_at, NULL);
}
