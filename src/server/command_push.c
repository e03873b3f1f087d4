// Handing in and waiting for ends: PUSH, PUSHMANY, CALL, AWAIT, CANCEL.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/holds.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <stddef.h>

struct push_words {
    struct job_spec job;
    int64_t room_ms;
    struct numbered epic, source;
    bool later;
};

#define AT(field) offsetof(struct push_words, field)
#define OF_JOB(member, kind, word, ...) { word, OPTION_##kind, AT(job.member) },
#define OF_PUSH(member, kind, word, ...) { word, OPTION_##kind, AT(member) },
#define NUMBERED                                                                                   \
    { "EPIC", OPTION_NUMBERED, AT(epic) }, {                                                       \
        "SOURCE", OPTION_NUMBERED, AT(source)                                                      \
    }

const struct option push_options[] = { JOB_OPTIONS(OF_JOB) ROOM_OPTION(OF_PUSH) NUMBERED, { 0 } };
static const struct option call_options[] = { CALL_OPTIONS(OF_JOB) ROOM_OPTION(OF_PUSH) NUMBERED,
                                              { "LATER", OPTION_FLAG, AT(later) },
                                              { 0 } };
static const struct option many_options[] = { COMMON_OPTIONS(OF_JOB) ROOM_OPTION(OF_PUSH) NUMBERED,
                                              { 0 } };

// Without a name there is no source, and a repeated push would make a second job.
static bool check_numbered(struct session *s, const struct push_words *o) {
    bool epic = o->epic.name.data, source = o->source.name.data;
    if (epic && source)
        session_usage(s, "a push is numbered by an EPIC or by a SOURCE, not by both");
    else if ((epic && !o->epic.name.size) || (source && !o->source.name.size))
        session_usage(s, "%s needs a name before its number", epic ? "EPIC" : "SOURCE");
    else
        return true;
    return false;
}

// A push on its way. While it waits, its words and what its options refer to are copies.
struct push_state {
    struct arguments words;
    struct kept_words *kept;          // NULL: it has not waited yet
    const struct option *option_list; // that its options were read with
    struct push_words options;
    uint64_t received_ms;
    size_t pushed, count; // PUSHMANY: how many so far, of how many …
    uint64_t *ids;        // … and their ids
};

static struct push_state push_state_of(const struct session *s, const struct arguments *a,
                                       const struct option *option_list) {
    return (struct push_state){ .words = *a,
                                .option_list = option_list,
                                .received_ms = host_now_ms(s->host) };
}

static bool push_read(struct session *s, struct push_state *p) {
    p->words.at = 3;
    return options_read(s, &p->words, p->option_list, &p->options) &&
           check_numbered(s, &p->options);
}

// Delay and deadline count from the receipt, also when the push had to wait for room since.
// MR_EEXPIRED.
static int push_age(struct job_spec *job, int64_t passed_ms) {
    if (job->deadline_ms && passed_ms >= job->deadline_ms)
        return error_set(MR_EEXPIRED, "there was no room before the deadline");
    job->deadline_ms -= job->deadline_ms ? passed_ms : 0;
    job->delay_ms = job->delay_ms > passed_ms ? job->delay_ms - passed_ms : 0;
    return 0;
}

// What is pushed now. If its time to wait is over it waits no more. MR_EEXPIRED.
static int push_of(struct session *s, const struct push_state *p, mr_bytes body, enum wake wake,
                   struct push *out) {
    const struct push_words *o = &p->options;
    const struct numbered *n = o->epic.name.data ? &o->epic : &o->source;
    *out = (struct push){ .stage = p->words.words[1],
                          .body = body,
                          .job = o->job,
                          .source = n->name,
                          .number = n->number,
                          .epic = o->epic.name.data != NULL,
                          .scope = access_source_scope(s),
                          .pusher = o->room_ms && wake == WAKE_READY ? &s->pusher : NULL };
    int64_t passed_ms = (int64_t)(host_now_ms(s->host) - p->received_ms);
    return passed_ms && !MUTANT(deadline_counts_from_the_start) ? push_age(&out->job, passed_ms)
                                                                : 0;
}

// ---- Waiting ----------------------------------------------------------------------------------

// Refused: gives up the room that was reserved for it.
APART static void push_fail(struct session *s, int err) {
    shards_push_leave(s);
    answer_error(s, err);
}

static void push_state_free(void *state) {
    struct push_state *p = state;
    mem_free(p->ids);
    mem_free(p->kept);
    mem_free(p);
}

// The ids are the copy's from now on. NULL: no memory.
static struct push_state *push_state_keep(struct push_state *p) {
    struct push_state *copy = mem_alloc(sizeof *copy);
    struct kept_words *kept = copy ? words_keep(p->words.words, p->words.count) : NULL;
    if (!kept) {
        mem_free(copy);
        return NULL;
    }
    *copy = *p;
    options_keep(p->option_list, &copy->options, p->words.words, kept);
    copy->words.words = kept->words;
    copy->kept = kept;
    p->ids = NULL;
    return copy;
}

// Waits for room no longer than the deadline of the job, from when it was received.
static uint64_t room_until(const struct push_state *p) {
    const struct push_words *o = &p->options;
    bool sooner = o->job.deadline_ms && (o->room_ms < 0 || o->job.deadline_ms < o->room_ms);
    int64_t wait_ms = sooner ? o->job.deadline_ms : o->room_ms;
    return wait_ms < 0 ? UINT64_MAX : p->received_ms + (uint64_t)wait_ms;
}

APART static void push_wait(struct session *s, struct push_state *p, const struct wait_kind *kind,
                            bool for_turn) {
    struct push_state *kept = p->kept ? p : push_state_keep(p);
    if (!kept) {
        push_fail(s, error_set(MR_ENOMEM, "no memory for a push that waits"));
        return;
    }
    size_t bytes = sizeof *kept + kept->kept->bytes + kept->count * sizeof *kept->ids;
    if (for_turn)
        wait_for_turn(s, kind, kept, bytes);
    else
        wait_begin(s, kind, kept, bytes, room_until(kept));
}

static void wait_for_room(struct session *s, struct push_state *p, const struct wait_kind *kind) {
    push_wait(s, p, kind, false);
}

// Whether the log has failed, so that the push is not tried again.
static bool push_has_stopped(struct session *s) {
    if (s->host->stopped)
        session_answer_stopped(s);
    return s->host->stopped;
}

// A numbered push that has waited was answered.
static void push_answered(struct session *s, const struct push_state *p, size_t from) {
    struct push_numbers n;
    const struct arguments *a = &p->words;
    if (!s->wait.kind && holds_read(command_row(a->words[0]), a->words, a->count, &n))
        holds_answered(s, &n, holds_is_refusal(s, from));
}

// ---- One --------------------------------------------------------------------------------------

// The id of an old repeat is not known any more.
static void write_pushed(struct session *s, uint64_t id) {
    if (id)
        reply_id(&s->reply, id);
    else
        reply_null(&s->reply);
}

// MR_EAGAIN: it waits for room, unless its time is over.
static int push_one(struct session *s, const struct push_state *p, enum wake wake,
                    struct caller *caller, struct pushed *out) {
    struct push push;
    int err = push_of(s, p, p->words.words[2], wake, &push);
    push.caller = caller;
    return err < 0 ? err : shards_push(s, &push, out);
}

static void push_resume(struct session *, void *, enum wake);

static const struct wait_kind push_room = {
    .is_open = true, .leave = shards_push_leave, .resume = push_resume, .free = push_state_free
};

static void push_try(struct session *s, struct push_state *p, enum wake wake) {
    struct pushed pushed;
    int err = push_one(s, p, wake, NULL, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, p, &push_room);
    else if (err < 0)
        push_fail(s, err);
    else
        write_pushed(s, pushed.id);
}

static void push_resume(struct session *s, void *state, enum wake wake) {
    size_t from = s->reply.out->size;
    if (!push_has_stopped(s))
        push_try(s, state, wake);
    push_answered(s, state, from);
}

HOT void run_push(struct session *s, struct arguments *a) {
    struct push_state p = push_state_of(s, a, push_options);
    if (push_read(s, &p))
        push_try(s, &p, WAKE_READY);
}

// ---- Many -------------------------------------------------------------------------------------

static void write_many(struct session *s, const struct push_state *p) {
    reply_array(&s->reply, p->pushed);
    for (size_t i = 0; i < p->pushed; i++)
        write_pushed(s, p->ids[i]);
}

// Reads the options up to ITEMS. False: an error was answered, or the session only checks.
static bool many_read(struct session *s, struct arguments *a, struct push_words *o) {
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
static int push_many(struct session *s, struct push_state *p, size_t count, enum wake wake) {
    for (; p->pushed < count && budget_left(s); p->pushed++) {
        const mr_bytes *item = p->words.words + p->words.at + 2 * p->pushed;
        struct push push;
        struct pushed pushed;
        int err = push_of(s, p, item[1], wake, &push);
        push.job.key = item[0];
        push.number += push.source.size ? p->pushed : 0;
        if (err >= 0)
            err = shards_push(s, &push, &pushed);
        if (err < 0)
            return err;
        p->ids[p->pushed] = pushed.id;
        budget_spend(s, STEPS_CHANGE);
    }
    return 0;
}

// A numbered item was refused: those behind it, which were not tried, count as refused with it.
// After GAP nothing has to be held: the error names the number that is needed.
static void many_stop(struct session *s, const struct push_state *p, int err) {
    struct push_numbers n;
    const struct arguments *a = &p->words;
    shards_push_leave(s);
    if (err == 0 || err == MR_EGAP || !holds_read(command_row(a->words[0]), a->words, a->count, &n))
        return;
    n.first += p->pushed;
    holds_answered(s, &n, true);
}

static void many_resume(struct session *, void *, enum wake);

static const struct wait_kind many_room = {
    .is_open = true, .leave = shards_push_leave, .resume = many_resume, .free = push_state_free
};
static const struct wait_kind many_turn = { .resume = many_resume, .free = push_state_free };

static void many_try(struct session *s, struct push_state *p, enum wake wake) {
    size_t count = p->count;
    int err = push_many(s, p, count, wake);
    if (err == MR_EAGAIN) {
        wait_for_room(s, p, &many_room);
    } else if (err >= 0 && p->pushed < count) {
        push_wait(s, p, &many_turn, true);
    } else if (err < 0 && !p->pushed) {
        push_fail(s, err);
    } else {
        many_stop(s, p, err);
        write_many(s, p);
    }
}

static void many_resume(struct session *s, void *state, enum wake wake) {
    size_t from = s->reply.out->size;
    if (!push_has_stopped(s))
        many_try(s, state, wake);
    push_answered(s, state, from);
}

void run_pushmany(struct session *s, struct arguments *a) {
    struct push_state p = push_state_of(s, a, many_options);
    p.words.at = 2;
    if (!many_read(s, &p.words, &p.options))
        return;
    p.count = (p.words.count - p.words.at) / 2;
    p.ids = mem_alloc(p.count * sizeof *p.ids);
    if (p.ids)
        many_try(s, &p, WAKE_READY);
    else
        answer_error(s, error_set(MR_ENOMEM, "no memory for %zu ids", p.count));
    mem_free(p.ids);
}

// ---- Ends -------------------------------------------------------------------------------------

static void call_resume(struct session *, void *, enum wake);

static const struct wait_kind call_room = {
    .is_open = true, .leave = shards_push_leave, .resume = call_resume, .free = push_state_free
};

static void end_resume(struct session *s, void *state, enum wake wake) {
    (void)state;
    if (wake == WAKE_STOPPED)
        session_answer_stopped(s);
    else if (wake == WAKE_READY)
        answer_or_fetch_outcome(s, &s->outcome);
    else
        reply_null(&s->reply);
}

static const struct wait_kind for_end = { .is_open = true,
                                          .leave = shards_await_leave,
                                          .resume = end_resume };

// The push message with the end follows the reply with the id.
static void call_later(struct session *s, struct push_state *p, enum wake wake) {
    struct async_call *l;
    if (!s->reply.resp3) {
        session_usage(s, "LATER needs RESP3, whose push messages report ends: send HELLO 3 first, "
                         "or CALL without LATER");
        return;
    }
    int err = async_call_create(s, &l);
    if (err < 0) {
        push_fail(s, err);
        return;
    }
    struct pushed pushed;
    err = push_one(s, p, wake, &l->caller, &pushed);
    if (err < 0)
        async_call_destroy(l);
    if (err == MR_EAGAIN) {
        wait_for_room(s, p, &call_room);
    } else if (err < 0) {
        push_fail(s, err);
    } else {
        write_pushed(s, pushed.id);
        if (pushed.ended)
            async_call_ended(l, &pushed.outcome);
    }
}

static void call_try(struct session *s, struct push_state *p, enum wake wake) {
    if (p->options.later) {
        call_later(s, p, wake);
        return;
    }
    s->caller = (struct caller){ 0 };
    struct pushed pushed;
    int err = push_one(s, p, wake, &s->caller, &pushed);
    if (err == MR_EAGAIN)
        wait_for_room(s, p, &call_room);
    else if (err < 0)
        push_fail(s, err);
    else if (pushed.ended)
        answer_or_fetch_outcome(s, &pushed.outcome);
    else // the core ends it at its deadline, if it has one
        wait_begin(s, &for_end, NULL, 0, UINT64_MAX);
}

static void call_resume(struct session *s, void *state, enum wake wake) {
    size_t from = s->reply.out->size;
    if (!push_has_stopped(s))
        call_try(s, state, wake);
    push_answered(s, state, from);
}

void run_call(struct session *s, struct arguments *a) {
    struct push_state p = push_state_of(s, a, call_options);
    if (push_read(s, &p))
        call_try(s, &p, WAKE_READY);
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
        wait_begin(s, &for_end, NULL, 0, wait_until(s, o.wait_ms));
    } else if (err == MR_EAGAIN) {
        shards_await_leave(s);
        if (o.wait_ms)
            answer_error(s, error_set(MR_ESTOPPED, "%s", s->host->why_stopped));
        else
            reply_null(&s->reply);
    } else if (err < 0)
        answer_error(s, err);
    else
        answer_or_fetch_outcome(s, &outcome);
}
