// What top hears: replies of the engine as rows and figures, with their past.
#include "cli/top/top.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/show.h"

#include <stdio.h>
#include <string.h>

struct top_stage *top_named(const struct top *t, const char *name) {
    for (uint32_t i = 0; i < t->stage_count; i++)
        if (strcmp(t->stages[i].name, name) == 0)
            return &t->stages[i];
    return NULL;
}

static void copy_text(char *out, size_t room, const struct response_value *map, const char *name) {
    const struct response_value *v = response_field(map, name);
    text_plain(out, room, v && v->type == RESPONSE_BULK ? v->bytes : (mr_bytes){ 0 });
}

static void remember(double past[TOP_PAST], uint32_t count, double value) {
    if (count == TOP_PAST)
        memmove(past, past + 1, (TOP_PAST - 1) * sizeof *past);
    past[count < TOP_PAST ? count : TOP_PAST - 1] = value;
}

static struct top_stage *stage_add(struct top *t, const char *name) {
    if (t->stage_count == t->room) {
        uint32_t room = t->room ? 2 * t->room : 16;
        struct top_stage *stages = mem_resize(t->stages, room * sizeof *stages);
        if (!stages)
            return NULL;
        t->stages = stages;
        t->room = room;
    }
    struct top_stage *st = &t->stages[t->stage_count++];
    *st = (struct top_stage){ 0 };
    snprintf(st->name, sizeof st->name, "%s", name);
    return st;
}

static int stage_hear(struct top *t, const struct response_value *row) {
    char name[TOP_NAME];
    copy_text(name, sizeof name, row, "name");
    struct top_stage *st = top_named(t, name);
    if (!st)
        st = stage_add(t, name);
    if (!st)
        return error_set(MR_ENOMEM, "no memory for a stage");
    st->there = true;
    copy_text(st->held, sizeof st->held, row, "held-by");
    st->waiting = value_number(row, "waiting");
    st->running = value_number(row, "running");
    st->parked = value_number(row, "parked");
    st->delayed = value_number(row, "delayed");
    st->dead = value_number(row, "dead");
    st->oldest_ms = value_number(row, "oldest-ms");
    st->workers = value_number(row, "workers");
    st->done = value_number(row, "done");
    st->failed = value_number(row, "failed");
    st->wait_p50_ms = value_number(row, "wait-p50-ms");
    st->wait_p99_ms = value_number(row, "wait-p99-ms");
    st->in_per_s = value_real(row, "in-per-s");
    st->out_per_s = value_real(row, "out-per-s");
    remember(st->rates, st->past, st->out_per_s);
    remember(st->depths, st->past, (double)st->waiting);
    st->past += st->past < TOP_PAST;
    return 0;
}

static void forget_missing(struct top *t) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->stage_count; i++)
        if (t->stages[i].there)
            t->stages[kept++] = t->stages[i];
    t->stage_count = kept;
}

int stages_hear(struct top *t, const struct response_value *reply) {
    double rate = 0, depth = 0;
    for (uint32_t i = 0; i < t->stage_count; i++)
        t->stages[i].there = false;
    const struct response_value *row = reply + 1;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        int err = stage_hear(t, row);
        if (err < 0)
            return err;
        rate += value_real(row, "out-per-s");
        depth += (double)value_number(row, "waiting");
    }
    forget_missing(t);
    remember(t->rates, t->past, rate);
    remember(t->depths, t->past, depth);
    t->past += t->past < TOP_PAST;
    return 0;
}

void channels_hear(struct top *t, const struct response_value *reply) {
    const struct response_value *row = reply + 1;
    t->channel_count = 0;
    for (uint32_t i = 0; i < reply->count && i < TOP_CHANNELS; i++, row = value_next(row)) {
        struct top_channel *c = &t->channels[t->channel_count++];
        copy_text(c->key, sizeof c->key, row, "key");
        copy_text(c->state, sizeof c->state, row, "state");
        c->depth = value_number(row, "depth");
        c->oldest_ms = value_number(row, "oldest-ms");
        c->parked_ms = strcmp(c->state, "parked") == 0 ? value_number(row, "parked-ms") : -1;
    }
}

// Whether the name is among names with blanks between them.
static bool is_among(const char *names, const char *name) {
    size_t size = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += size)
        if ((at == names || at[-1] == ' ') && (at[size] == ' ' || at[size] == 0))
            return true;
    return false;
}

void workers_hear(struct top *t, const struct response_value *reply) {
    char stages[4096];
    const struct response_value *row = reply + 1;
    t->worker_count = t->worker_all = 0;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        copy_text(stages, sizeof stages, row, "stages");
        if (!is_among(stages, t->chosen) || t->worker_all++ >= TOP_WORKERS)
            continue;
        struct top_worker *w = &t->workers[t->worker_count++];
        copy_text(w->name, sizeof w->name, row, "name");
        copy_text(w->address, sizeof w->address, row, "address");
        w->leases = value_number(row, "leases");
        w->taken = value_number(row, "taken");
        w->ended = value_number(row, "ended");
        w->age_ms = value_number(row, "age-ms");
    }
}
