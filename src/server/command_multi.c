// MULTI, EXEC, DISCARD: commands that are queued and then run one after another.
//
//     MULTI ─► each command is checked ─► QUEUED ─► EXEC runs them ─► an array of their replies
//                        │
//                        └ refused: an error at once; EXEC then replies EXECABORT and runs nothing
//
// Unlike in Redis EXEC is not atomic: if there are many commands, other clients are served in
// between. Commands that wait, or that change the identity of the client, cannot be queued. The
// replies are collected in a separate buffer, because a push message must not come between them.
#include "base/hints.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/holds.h"
#include "wire/code.h"

#include <assert.h>
#include <string.h>

static void multi_end(struct session *s) {
    buffer_finish(&s->multi.queue);
    buffer_finish(&s->multi.replies);
    memset(&s->multi, 0, sizeof s->multi);
}

// ---- Queueing ---------------------------------------------------------------------------------

bool multi_queues(const struct session *s, const struct command *c) {
    return s->multi.open && !(c && c->in_multi == MULTI_RUN);
}

APART void multi_check(struct session *s, const struct command *c, struct arguments *a) {
    switch (c->in_multi) {
    case MULTI_CHECKED:
        c->run(s, a);
        return;
    case MULTI_QUEUED:
    case MULTI_RUN:
        return;
    case MULTI_REFUSED:
        session_usage(
            s,
            "%s cannot be queued: it may wait, or concerns the connection; send it before "
            "MULTI or after EXEC",
            c->name);
        return;
    }
}

static bool keep(struct session *s, const mr_bytes *words, uint32_t count) {
    s->multi.queue.limit = LIMIT_QUEUED_BYTES;
    if (s->multi.count < LIMIT_QUEUED && request_write(&s->multi.queue, words, count) == 0) {
        s->multi.count++;
        return true;
    }
    session_usage(s, "MULTI takes at most %d commands and %d bytes: send EXEC earlier",
                  LIMIT_QUEUED, LIMIT_QUEUED_BYTES);
    return false;
}

static void hold_number(struct session *s, const struct command *c, const mr_bytes *words,
                        uint32_t count) {
    struct push_numbers n;
    if (c && holds_read(c, words, count, &n))
        holds_answered(s, &n, true);
}

// Discards the queued commands. Numbered pushes among them count as refused for their source.
static void drop_queue(struct session *s) {
    struct host *h = s->host;
    struct buffer *queue = &s->multi.queue;
    for (size_t at = 0; at < queue->size;) {
        struct request request = { 0 };
        uint32_t count = 0;
        ptrdiff_t used = request_read(&request, &h->request_limits, queue->data + at,
                                      queue->size - at, h->arguments, &count);
        assert(used > 0); // this file has written it
        hold_number(s, command_row(h->arguments[0]), h->arguments, count);
        budget_spend(s, 1 + count / STEP_WORDS);
        at += (size_t)used;
    }
    buffer_finish(queue);
}

APART void multi_queue(struct session *s, const struct command *c, const mr_bytes *words,
                       uint32_t count) {
    size_t before = s->out.size;
    s->checks = true;
    command_try(s, c, words, count);
    s->checks = false;
    bool fits = s->out.size == before && (s->multi.refused || keep(s, words, count));
    if (fits)
        reply_simple(&s->reply, "QUEUED");
    s->multi.refused = s->multi.refused || !fits;
    if (!s->multi.refused)
        return;
    hold_number(s, c, words, count);
    drop_queue(s);
}

void run_multi(struct session *s, struct arguments *a) {
    (void)a;
    if (s->multi.open) {
        session_usage(s, "MULTI is already active: EXEC or DISCARD ends it");
        s->multi.refused = true;
        drop_queue(s);
        return;
    }
    s->multi.open = true;
    reply_simple(&s->reply, "OK");
}

void run_discard(struct session *s, struct arguments *a) {
    (void)a;
    if (!s->multi.open) {
        session_usage(s, "DISCARD without MULTI");
        return;
    }
    multi_end(s);
    reply_simple(&s->reply, "OK");
}

// ---- Running ----------------------------------------------------------------------------------

// Runs the next command. If it waits, its reply is appended later, after those before it.
static void run_next(struct session *s) {
    struct host *h = s->host;
    struct buffer *queue = &s->multi.queue;
    struct request request = { 0 };
    uint32_t count = 0;
    ptrdiff_t used = request_read(&request, &h->request_limits, queue->data + s->multi.at,
                                  queue->size - s->multi.at, h->arguments, &count);
    assert(used > 0); // this file has written it
    struct budget_mark mark = budget_begin(s);
    size_t before = s->multi.replies.size;
    s->multi.at += (size_t)used;
    h->commands += !s->remote;
    command_try(s, command_row(h->arguments[0]), h->arguments, count);
    budget_spend(s, (size_t)used / STEP_BYTES_IN);
    budget_end(s, mark, count, s->multi.replies.size - before);
}

static void write_replies(struct session *s) {
    s->reply.out = &s->out;
    reply_array(&s->reply, s->multi.count);
    if (!s->reply.err)
        s->reply.err = buffer_append(&s->out, s->multi.replies.data, s->multi.replies.size);
    multi_end(s);
}

bool multi_is_running(const struct session *s) {
    return s->multi.runs;
}

static void run_queue(struct session *s) {
    while (s->multi.at < s->multi.queue.size && !s->wait.kind && budget_left(s))
        run_next(s);
    if (s->wait.kind)
        return;
    if (s->multi.at < s->multi.queue.size && !s->reply.err)
        multi_wait(s);
    else
        write_replies(s);
}

// After a failure of the log the outcome of the commands that were run is unknown.
void multi_go_on(struct session *s) {
    if (!s->host->stopped) {
        run_queue(s);
        return;
    }
    s->reply.out = &s->out;
    multi_end(s);
    session_answer_stopped(s);
}

static void exec_resume(struct session *s, void *state, enum wake wake) {
    (void)s, (void)state, (void)wake; // command_resume continues EXEC
}

static const struct wait_kind exec_waits = { .resume = exec_resume };

void multi_wait(struct session *s) {
    wait_for_turn(s, &exec_waits, NULL, 0);
}

void run_exec(struct session *s, struct arguments *a) {
    (void)a;
    if (!s->multi.open) {
        session_usage(s, "EXEC without MULTI");
    } else if (s->multi.refused) {
        multi_end(s);
        reply_error(&s->reply, code_name(CODE_EXECABORT),
                    mr_str("no command was run, because one was refused when it was queued"));
    } else {
        s->multi.runs = true;
        s->multi.replies.limit = LIMIT_UNSENT;
        s->reply.out = &s->multi.replies;
        run_queue(s);
    }
}
