// Handing in and waiting for ends: PUSH, PUSHMANY, CALL, AWAIT, CANCEL.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/holds.h"
#include "server/shards.h"

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
    { "EPIC", OPTION_NUMBERED, AT(epic) },
    { "SOURCE", OPTION_NUMBERED, AT(source) },
    { 0 },
};

// One without a name would be numbered by nobody, and a repeat of it a second job.
static bool check_numbered(struct session *s, const struct push_options *o) {
    bool epic = o->epic.name.data, source = o->source.name.data;
    if (epic && source)
        session_usage(s, "a push is numbered by an EPIC or by a SOURCE, not by both");
    else if ((epic && !o->epic.name.size) || (source && !o->source.name.size))
        session_usage(s, "%s needs a name before its number", epic ? "EPIC" : "SOURCE");
    else
        return true;
    return false;
}

static bool push_read(struct session *s, struct arguments *a, const struct option *options,
                      struct push_options *o) {
    a->at = 3;
    return options_read(s, a, options, o) && check_numbered(s, o);
}

static struct push push_of(const struct session *s, mr_bytes stage, mr_bytes body,
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
                          .scope = access_source_scope(s) };
}

// May this push wait for room? Not when its wait has ended already.
static struct pusher *pusher_of(struct session *s, int64_t room_ms) {
    bool over = s->again && s->wait_until_ms == 0;
    return room_ms && !over ? &s->pusher : NULL;
}

// It waits no longer than the job could be of use.
static void wait_for_room(struct session *s, const struct push_options *o) {
    bool sooner = o->deadline_ms && (o->room_ms < 0 || o->deadline_ms < o->room_ms);
    session_block(s, BLOCKED_ROOM, sooner ? o->deadline_ms : o->room_ms);
}

// Refused for good: no room is kept for it any more.
static void push_fail(struct session *s, int err) {
    shards_push_leave(s);
    answer_error(s, err);
}

// Delay and deadline count from the receipt, also when the push had to wait for room since.
// MR_EEXPIRED.
static int push_due(struct session *s, struct push_options *o) {
    uint64_t now = host_now_ms(s->host);
    if (!s->again)
        s->received_ms = now;
    int64_t passed_ms = (int64_t)(now - s->received_ms);
    if (o->deadline_ms && passed_ms >= o->deadline_ms)
        return error_set(MR_EEXPIRED, "there was no room before the deadline");
    o->deadline_ms -= o->deadline_ms ? passed_ms : 0;
    o->delay_ms = o->delay_ms > passed_ms ? o->delay_ms - passed_ms : 0;
    return 0;
}

// Of a repeat that came long ago the id is not known any more.
static void say_pushed(struct session *s, uint64_t id) {
    if (id)
        reply_id(&s->reply, id);
    else
        reply_null(&s->reply);
}

static int push_one(struct session *s, struct arguments *a, struct push_options *o,
                    struct caller *caller, struct pushed *out) {
    int err = push_due(s, o);
    if (err < 0)
        return err;
    struct push p = push_of(s, a->words[1], a->words[2], o);
    p.caller = caller;
    p.pusher = pusher_of(s, o->room_ms);
    return shards_push(s, &p, out);
}

void run_push(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    if (!push_read(s, a, push_options, &o))
        return;
    struct pushed pushed;
    int err = push_one(s, a, &o, NULL, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, &o);
    else if (err < 0)
        push_fail(s, err);
    else
        say_pushed(s, pushed.id);
}

// ---- Many -------------------------------------------------------------------------------------

static void many_forget(struct session *s) {
    mem_free(s->ids);
    s->ids = NULL;
    s->pushed = 0;
}

static void say_many(struct session *s) {
    reply_array(&s->reply, s->pushed);
    for (size_t i = 0; i < s->pushed; i++)
        say_pushed(s, s->ids[i]);
}

// Reads the options up to ITEMS; false: refused, and told, or the session only checks.
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
        return check_numbered(s, o) && !s->checks;
    session_usage(s, "PUSHMANY needs ITEMS, and behind it a key and a body for each job");
    return false;
}

// Pushes what is left of the items, as far as the budget of this turn goes. MR_EAGAIN: the next one
// waits for room.
static int push_many(struct session *s, const struct arguments *a, struct push_options *o,
                     size_t count) {
    int err = push_due(s, o);
    for (; err >= 0 && s->pushed < count && budget_left(s); s->pushed++) {
        const mr_bytes *item = a->words + a->at + 2 * s->pushed;
        struct push p = push_of(s, a->words[1], item[1], o);
        struct pushed pushed;
        p.key = item[0];
        p.number += p.source.size ? s->pushed : 0;
        p.pusher = pusher_of(s, o->room_ms);
        err = shards_push(s, &p, &pushed);
        if (err < 0)
            break;
        s->ids[s->pushed] = pushed.id;
        budget_spend(s, STEPS_CHANGE);
    }
    return err;
}

// Of items with numbers it stopped at one that was refused: those behind it, which nobody has seen,
// are refused with it. GAP holds nothing: it says itself which number is needed.
static void many_stop(struct session *s, const struct arguments *a, int err) {
    struct push_numbers n;
    shards_push_leave(s);
    if (err == 0 || err == MR_EGAP || !holds_read(command_row(a->words[0]), a->words, a->count, &n))
        return;
    n.first += s->pushed;
    holds_answered(s, &n, true);
}

// Run again after it had to wait for room, or for the next turn, it goes on where it stopped.
void run_pushmany(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    a->at = 2;
    if (!many_read(s, a, &o))
        return;
    size_t count = (a->count - a->at) / 2;
    if (!s->again) {
        many_forget(s); // one may have been refused while it waited
        s->ids = mem_alloc(count * sizeof *s->ids);
    }
    int err =
        s->ids ? push_many(s, a, &o, count) : error_set(MR_ENOMEM, "no memory for %zu ids", count);
    if (err == MR_EAGAIN) {
        wait_for_room(s, &o);
        return;
    }
    if (err >= 0 && s->pushed < count) {
        session_block(s, BLOCKED_TURN, -1);
        return;
    }
    if (err < 0 && !s->pushed) {
        push_fail(s, err);
    } else {
        many_stop(s, a, err);
        say_many(s);
    }
    many_forget(s);
}

// ---- Ends -------------------------------------------------------------------------------------

// The end of a late call follows its id, at once or some time.
static void call_later(struct session *s, struct arguments *a, struct push_options *o) {
    struct late *l;
    if (!s->reply.resp3) {
        session_usage(s, "ends are told over RESP3 only: say HELLO 3 first, or wait in CALL");
        return;
    }
    int err = late_create(s, &l);
    if (err < 0) {
        push_fail(s, err);
        return;
    }
    struct pushed pushed;
    err = push_one(s, a, o, &l->caller, &pushed);
    if (err < 0)
        late_destroy(l);
    if (err == MR_EAGAIN) {
        wait_for_room(s, o);
    } else if (err < 0) {
        push_fail(s, err);
    } else {
        say_pushed(s, pushed.id);
        if (pushed.ended)
            late_tell(l, &pushed.outcome);
    }
}

void run_call(struct session *s, struct arguments *a) {
    struct push_options o = { 0 };
    if (!push_read(s, a, call_options, &o))
        return;
    if (o.later) {
        call_later(s, a, &o);
        return;
    }
    s->caller = (struct caller){ 0 };
    struct pushed pushed;
    int err = push_one(s, a, &o, &s->caller, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, &o);
    else if (err < 0)
        push_fail(s, err);
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
    struct outcome outcome;
    int err = shards_await(s, id, &outcome);
    if (err == MR_EAGAIN && o.wait_ms && !s->host->stopped) {
        session_block(s, BLOCKED_END, o.wait_ms);
    } else if (err == MR_EAGAIN) {
        shards_await_leave(s);
        if (o.wait_ms)
            answer_error(s, error_set(MR_ESTOPPED, "%s", s->host->why_stopped));
        else
            reply_null(&s->reply);
    } else if (err < 0)
        answer_error(s, err);
    else
        answer_outcome(s, &outcome);
}

void run_cancel(struct session *s, struct arguments *a) {
    uint64_t id;
    bool changed;
    if (!read_id(s, a->words[1], &id))
        return;
    int err = core_cancel(core_of_job(s->host, id), id, &changed);
    if (err < 0)
        answer_error(s, err);
    else
        reply_integer(&s->reply, changed);
}
