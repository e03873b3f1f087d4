// Handing in and waiting for ends: PUSH, PUSHMANY, CALL, AWAIT, CANCEL.
#include "server/answer.h"
#include "server/command.h"

#include "base/errors.h"
#include "base/mem.h"

#include <stddef.h>

struct push_options {
    mr_bytes key, once;
    int64_t delay_ms, deadline_ms, room_ms;
    uint32_t attempts;
    struct numbered epic, source;
    bool later;
};

#define AT(field) offsetof(struct push_options, field)

#define PUSH_OPTIONS                                                                               \
    { "KEY", OPTION_BYTES, AT(key) }, { "ONCE", OPTION_BYTES, AT(once) },                          \
        { "DELAY", OPTION_MS, AT(delay_ms) }, { "DEADLINE", OPTION_MS, AT(deadline_ms) },          \
        { "ATTEMPTS", OPTION_COUNT, AT(attempts) }, { "ROOM", OPTION_WAIT, AT(room_ms) },          \
        { "EPIC", OPTION_NUMBERED, AT(epic) }, {                                                   \
        "SOURCE", OPTION_NUMBERED, AT(source)                                                      \
    }

static const struct option push_options[] = { PUSH_OPTIONS, { 0 } };
static const struct option call_options[] = { PUSH_OPTIONS,
                                              { "LATER", OPTION_FLAG, AT(later) },
                                              { 0 } };

static const struct option many_options[] = {
    { "DELAY", OPTION_MS, AT(delay_ms) },
    { "DEADLINE", OPTION_MS, AT(deadline_ms) },
    { "ATTEMPTS", OPTION_COUNT, AT(attempts) },
    { "ROOM", OPTION_WAIT, AT(room_ms) },
    { 0 },
};

static struct push push_of(struct session *s, mr_bytes stage, mr_bytes body,
                           const struct push_options *o) {
    const struct numbered *n = o->epic.name.data ? &o->epic : &o->source;
    return (struct push){ .stage = stage,
                          .body = body,
                          .key = o->key,
                          .once = o->once,
                          .delay_ms = o->delay_ms,
                          .deadline_ms = o->deadline_ms,
                          .attempts = o->attempts,
                          .source = n->name,
                          .number = n->number,
                          .epic = o->epic.name.data != NULL,
                          .conn = &s->conn };
}

// May this push wait for room? Not when its wait has ended already.
static struct pusher *pusher_of(struct session *s, int64_t room_ms) {
    bool over = s->again && s->wait_until_ms == 0;
    if (!room_ms || over)
        return NULL;
    s->pusher.conn = &s->conn;
    return &s->pusher;
}

// Waiting again for the same room, the end of the wait stays where it was.
static void wait_for_room(struct session *s, int64_t room_ms) {
    session_block(s, BLOCKED_ROOM, room_ms);
}

static void say_pushed(struct session *s, const struct pushed *p) {
    if (p->id)
        reply_id(&s->reply, p->id);
    else
        reply_null(&s->reply);
}

void run_push(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    a->at = 3;
    if (!options_read(s, a, push_options, &o))
        return;
    struct push p = push_of(s, a->words[1], a->words[2], &o);
    p.pusher = pusher_of(s, o.room_ms);
    struct pushed pushed;
    int err = core_push(s->host->core, &p, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, o.room_ms);
    else if (err < 0)
        session_fail(s, err);
    else
        say_pushed(s, &pushed);
}

// ---- Many -------------------------------------------------------------------------------------

static void say_many(struct session *s, size_t count) {
    reply_array(&s->reply, count);
    for (size_t i = 0; i < count; i++)
        reply_id(&s->reply, s->ids[i]);
    mem_free(s->ids);
    s->ids = NULL;
    s->pushed = 0;
}

// Reads the options up to ITEMS; false: refused, and told.
static bool many_read(struct session *s, struct arguments *a, struct push_options *o) {
    while (a->at < a->count && !word_is(a->words[a->at], "ITEMS")) {
        struct arguments one = { a->words, a->count, a->at };
        int read = option_read(s, &one, many_options, o);
        if (read < 0)
            return false;
        if (!read) {
            session_usage(s,
                          "unknown option '%.*s' for PUSHMANY; what is pushed stands behind "
                          "ITEMS, a key and a body each",
                          (int)(a->words[a->at].size < 64 ? a->words[a->at].size : 64),
                          (const char *)a->words[a->at].data);
            return false;
        }
        a->at = one.at;
    }
    a->at++; // ITEMS
    if (a->at < a->count && (a->count - a->at) % 2 == 0)
        return true;
    session_usage(s, "PUSHMANY needs ITEMS, and behind it a key and a body for each job");
    return false;
}

// A push that must wait for room is run again from where it stopped.
void run_pushmany(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    a->at = 2;
    if (!many_read(s, a, &o))
        return;
    size_t count = (a->count - a->at) / 2;
    if (!s->ids && !(s->ids = mem_alloc(count * sizeof *s->ids))) {
        error_set(MR_ENOMEM, "no memory for %zu ids", count);
        session_fail(s, MR_ENOMEM);
        return;
    }
    for (; s->pushed < count; s->pushed++) {
        const mr_bytes *item = a->words + a->at + 2 * s->pushed;
        struct push p = push_of(s, a->words[1], item[1], &o);
        p.key = item[0];
        p.pusher = pusher_of(s, o.room_ms);
        struct pushed pushed;
        int err = core_push(s->host->core, &p, &pushed);
        if (err == MR_EAGAIN) {
            wait_for_room(s, o.room_ms);
            return;
        }
        if (err < 0 && !s->pushed) {
            session_fail(s, err);
            mem_free(s->ids);
            s->ids = NULL;
            return;
        }
        if (err < 0)
            break;
        s->ids[s->pushed] = pushed.id;
    }
    say_many(s, s->pushed);
}

// ---- Ends -------------------------------------------------------------------------------------

// The end of a late call follows its id, at once or some time.
static void call_later(struct session *s, struct push *p, int64_t room_ms) {
    struct late *l = s->reply.resp3 ? late_create(s) : NULL;
    if (!l && s->reply.resp3)
        session_fail(s, MR_ENOMEM);
    else if (!l)
        session_usage(s, "ends are told over RESP3 only: say HELLO 3 first, or wait in CALL");
    if (!l)
        return;
    struct pushed pushed;
    p->caller = &l->caller;
    int err = core_push(s->host->core, p, &pushed);
    if (err < 0)
        late_destroy(l);
    if (err == MR_EAGAIN) {
        wait_for_room(s, room_ms);
        return;
    }
    if (err < 0) {
        session_fail(s, err);
        return;
    }
    say_pushed(s, &pushed);
    if (pushed.ended)
        late_tell(l, &pushed.outcome);
}

void run_call(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    a->at = 3;
    if (!options_read(s, a, call_options, &o))
        return;
    struct push p = push_of(s, a->words[1], a->words[2], &o);
    if (o.later) {
        p.pusher = pusher_of(s, o.room_ms);
        call_later(s, &p, o.room_ms);
        return;
    }
    s->caller = (struct caller){ .conn = &s->conn };
    s->awaits = false;
    p.caller = &s->caller;
    p.pusher = pusher_of(s, o.room_ms);
    struct pushed pushed;
    int err = core_push(s->host->core, &p, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, o.room_ms);
    else if (err < 0)
        session_fail(s, err);
    else if (pushed.ended)
        answer_outcome(s, &pushed.outcome);
    else
        session_block(s, BLOCKED_END, -1); // the engine tells at the deadline, if there is one
}

struct await_options {
    int64_t wait_ms;
};

static const struct option await_options[] = {
    { "WAIT", OPTION_WAIT, offsetof(struct await_options, wait_ms) },
    { 0 },
};

void run_await(struct session *s, struct arguments *a) {
    struct await_options o = { 0 };
    uint64_t id;
    a->at = 2;
    if (!read_id(s, a->words[1], &id) || !options_read(s, a, await_options, &o))
        return;
    s->caller = (struct caller){ .conn = &s->conn };
    s->awaits = true;
    struct outcome outcome;
    int err = core_await(s->host->core, id, &s->caller, &outcome);
    if (err == MR_EAGAIN && o.wait_ms)
        session_block(s, BLOCKED_END, o.wait_ms);
    else if (err == MR_EAGAIN && core_await_leave(s->host->core, &s->caller) >= 0)
        reply_null(&s->reply);
    else if (err < 0)
        session_fail(s, err);
    else
        answer_outcome(s, &outcome);
}

void run_cancel(struct session *s, struct arguments *a) {
    uint64_t id;
    bool changed;
    if (!read_id(s, a->words[1], &id))
        return;
    int err = core_cancel(s->host->core, id, &changed);
    if (err < 0)
        session_fail(s, err);
    else
        reply_integer(&s->reply, changed);
}
