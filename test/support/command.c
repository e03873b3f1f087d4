// Commands as lines of a script that a person can read.
#include "command.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct line {
    char *text;
    size_t size, at;
};

static void add(struct line *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->at, l->size - l->at, format, args);
    va_end(args);
    l->at += n > 0 ? (size_t)n : 0;
    if (l->at >= l->size)
        l->at = l->size - 1;
}

static void add_job(struct line *l, const struct command_job *j) {
    add(l, " %s/%s \"%s\"", stage_names[j->stage], *j->key ? j->key : "-", j->body);
    if (*j->once)
        add(l, " once %s%s", j->once, j->last ? " last" : "");
    if (j->delay_ms)
        add(l, " delay %" PRId64, j->delay_ms);
    if (j->deadline_ms)
        add(l, " deadline %" PRId64, j->deadline_ms);
    if (j->attempts)
        add(l, " attempts %u", j->attempts);
    if (*j->meta)
        add(l, " meta \"%s\"", j->meta);
}

static void add_push(struct line *l, const struct command *c) {
    add(l, c->caller >= 0 ? "call" : "push");
    add_job(l, &c->job);
    if (c->source >= 0)
        add(l, " number %d:%" PRIu64, c->source, c->number);
    if (c->caller >= 0)
        add(l, " caller %d", c->caller);
    if (c->pusher >= 0)
        add(l, " room pusher %d", c->pusher);
    add(l, " on connection %d", c->conn);
}

static void add_take(struct line *l, const struct command *c) {
    add(l, "take");
    for (int i = 0; i < c->stage_count; i++)
        add(l, " %s", stage_names[c->stages[i]]);
    add(l, " count %u batch %u lease %" PRId64, c->count, c->batch, c->lease_ms);
    add(l, "%s on connection %d", c->detached ? " detached" : "", c->conn);
    if (c->taker >= 0)
        add(l, " waiting as taker %d%s", c->taker, c->refuses ? " (not claimable)" : "");
}

static void add_token(struct line *l, const char *verb, const struct command *c) {
    add(l, "%s %" PRIu64 " token %" PRIx64 ".%" PRIx64, verb, c->id, c->token.serial,
        c->token.random);
}

static void add_done(struct line *l, const struct command *c) {
    add_token(l, "done", c);
    add(l, " result \"%s\"", c->text);
    if (c->set_state)
        add(l, " state \"%s\"", c->state);
    for (int i = 0; i < c->emit_count; i++) {
        add(l, " emit");
        add_job(l, &c->emits[i]);
    }
}

static void add_retry(struct line *l, const struct command *c) {
    add_token(l, "fail", c);
    if (c->retry_ms == MR_NEVER)
        add(l, " never");
    else if (c->retry_ms == MR_BACKOFF)
        add(l, " backoff");
    else
        add(l, " retry in %" PRId64, c->retry_ms);
}

static void add_rest(struct line *l, const struct command *c) {
    static const char *const verbs[OPS] = {
        [OP_TIME] = "time passes",
        [OP_PUSH_LEAVE] = "push-leave",
        [OP_AWAIT] = "await",
        [OP_AWAIT_LEAVE] = "await-leave",
        [OP_CANCEL] = "cancel",
        [OP_TAKE_LEAVE] = "take-leave",
        [OP_RETRY] = "retry",
        [OP_DUE] = "due",
        [OP_DROP] = "drop",
        [OP_SET] = "set",
        [OP_PAUSE] = "pause",
        [OP_DRAIN] = "drain",
        [OP_RESUME] = "resume",
        [OP_LINK] = "link",
        [OP_LEAVE] = "connection is lost:",
        [OP_EPIC_END] = "epic-end",
        [OP_EPIC_SKIP] = "epic-skip",
        [OP_EPIC_DROP] = "epic-drop",
        [OP_EPIC_CANCEL] = "epic-cancel",
        [OP_EPIC_FORGET] = "epic-forget",
        [OP_EPIC_THEN] = "epic-then",
        [OP_SCHEDULE] = "schedule",
        [OP_SCHEDULE_DROP] = "schedule-drop",
        [OP_SCHEDULE_PAUSE] = "schedule-pause",
        [OP_SCHEDULE_RESUME] = "schedule-resume",
        [OP_SCHEDULE_NOW] = "schedule-now",
        [OP_SCHEDULE_DRY] = "schedule-dry",
        [OP_TICK] = "tick",
        [OP_CLEAN] = "clean",
        [OP_CRASH] = "crash",
    };
    add(l, "%s", verbs[c->op]);
    if (c->op == OP_SET)
        add(l, " %s %s %s", stage_names[c->job.stage], c->name, c->text);
    if (c->op == OP_PAUSE || c->op == OP_DRAIN || c->op == OP_RESUME)
        add(l, " %s/%s", stage_names[c->job.stage], c->job.key);
    if (c->op == OP_LINK)
        add(l, " %s to %s", stage_names[c->stages[0]], stage_names[c->stages[1]]);
    if (c->op == OP_CANCEL || c->op == OP_RETRY || c->op == OP_DROP || c->op == OP_AWAIT ||
        c->op == OP_DUE)
        add(l, " %" PRIu64, c->id);
    if (c->op == OP_AWAIT)
        add(l, " caller %d on connection %d", c->caller, c->conn);
    if (c->op == OP_AWAIT_LEAVE || c->op == OP_TAKE_LEAVE || c->op == OP_PUSH_LEAVE)
        add(l, " %d", c->caller + c->taker + c->pusher + 2);
    if (c->op == OP_LEAVE)
        add(l, " %d", c->conn);
    if (c->op == OP_CLEAN)
        add(l, " %zu entries", c->entries);
    if (c->op == OP_CRASH)
        add(l, "%s", c->died ? ", the engine died" : ", closed in peace");
    if (c->op == OP_CRASH && c->id)
        add(l, ", also of attempt %u of %" PRIu64, c->attempt, c->id);
    if (c->op >= OP_SCHEDULE && c->op < OP_TICK)
        add(l, " %d next %" PRIu64, c->schedule, c->next_ms);
    if (c->op == OP_SCHEDULE || c->op == OP_SCHEDULE_DRY) {
        add(l, " every %" PRIu64, c->every_ms);
        add_job(l, &c->job);
    }
    if (c->op == OP_TICK)
        add(l, " at %" PRIu64 " next %" PRIu64 "%s", c->wall_ms, c->next_ms,
            c->skips ? " skipped" : "");
    if (c->op >= OP_EPIC_END && c->op <= OP_EPIC_THEN)
        add(l, " %d %" PRIu64, c->source, c->number);
    if (c->op == OP_EPIC_THEN)
        add_job(l, &c->job);
}

void command_print(const struct command *c, char *out, size_t size) {
    struct line l = { out, size, 0 };
    add(&l, "@%" PRIu64 " ", c->now_ms);
    switch (c->op) {
    case OP_PUSH:
        add_push(&l, c);
        break;
    case OP_TAKE:
        add_take(&l, c);
        break;
    case OP_DONE:
        add_done(&l, c);
        break;
    case OP_FAIL:
        add_retry(&l, c);
        break;
    case OP_RELEASE:
    case OP_BEAT:
        add_token(&l, c->op == OP_BEAT ? "beat" : "release", c);
        if (c->delay_ms)
            add(&l, " delay %" PRId64, c->delay_ms);
        if (c->op == OP_BEAT && c->number)
            add(&l, " progress %" PRIu64, c->number);
        break;
    default:
        add_rest(&l, c);
    }
}
