// Reads replies of the engine into rows and figures, with their past.
#include "cli/top/top.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"
#include "cli/show.h"
#include "wire/number.h"
#include "wire/replies.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct top_stage *top_named(const struct top *t, const char *name) {
    for (uint32_t i = 0; i < t->stage_count; i++)
        if (strcmp(t->stages[i].name, name) == 0)
            return &t->stages[i];
    return NULL;
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

static int top_receive_stage_read(struct top *t, const struct stage_reply *row) {
    char name[TOP_NAME];
    text_plain(name, sizeof name, row->name);
    struct top_stage *st = top_named(t, name);
    if (!st)
        st = stage_add(t, name);
    if (!st)
        return error_set(MR_ENOMEM, "no memory for a stage");
    st->there = true;
    text_plain(st->held, sizeof st->held, row->held_by);
    st->waiting = (int64_t)row->waiting;
    st->running = (int64_t)row->running;
    st->parked = (int64_t)row->parked;
    st->delayed = (int64_t)row->delayed;
    st->dead = (int64_t)row->dead;
    st->oldest_ms = row->oldest_ms;
    st->workers = (int64_t)row->workers;
    st->done = (int64_t)row->done;
    st->failed = (int64_t)row->failed;
    st->wait_p50_ms = (int64_t)row->wait_p50_ms;
    st->wait_p99_ms = (int64_t)row->wait_p99_ms;
    st->in_per_s = row->in_per_s;
    st->out_per_s = row->out_per_s;
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

int stages_read(struct top *t, const struct response_value *reply) {
    double rate = 0, depth = 0;
    for (uint32_t i = 0; i < t->stage_count; i++)
        t->stages[i].there = false;
    const struct response_value *row = reply + 1;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        struct stage_reply stage = { 0 };
        if (!reply_read(&stage_replies, row, &stage))
            continue;
        int err = top_receive_stage_read(t, &stage);
        if (err < 0)
            return err;
        rate += stage.out_per_s;
        depth += (double)stage.waiting;
    }
    forget_missing(t);
    remember(t->rates, t->past, rate);
    remember(t->depths, t->past, depth);
    t->past += t->past < TOP_PAST;
    return 0;
}

void channels_read(struct top *t, const struct response_value *reply) {
    const struct response_value *row = reply + 1;
    t->channel_count = 0;
    for (uint32_t i = 0; i < reply->count && i < TOP_CHANNELS; i++, row = value_next(row)) {
        struct channel_reply channel = { 0 };
        if (!reply_read(&channel_replies, row, &channel))
            continue;
        struct top_channel *c = &t->channels[t->channel_count++];
        text_plain(c->key, sizeof c->key, channel.key);
        text_plain(c->state, sizeof c->state, channel.state);
        c->depth = (int64_t)channel.depth;
        c->oldest_ms = channel.oldest_ms;
        c->parked_ms = strcmp(c->state, "parked") == 0 ? channel.parked_ms : -1;
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

void workers_read(struct top *t, const struct response_value *reply) {
    char stages[4096];
    const struct response_value *row = reply + 1;
    t->worker_count = t->worker_all = 0;
    for (uint32_t i = 0; i < reply->count; i++, row = value_next(row)) {
        struct worker_reply worker = { 0 };
        if (!reply_read(&worker_replies, row, &worker))
            continue;
        text_plain(stages, sizeof stages, worker.stages);
        if (!is_among(stages, t->chosen) || t->worker_all++ >= TOP_WORKERS)
            continue;
        struct top_worker *w = &t->workers[t->worker_count++];
        text_plain(w->name, sizeof w->name, worker.name);
        text_plain(w->address, sizeof w->address, worker.address);
        w->leases = (int64_t)worker.leases;
        w->taken = (int64_t)worker.taken;
        w->ended = (int64_t)worker.ended;
        w->age_ms = (int64_t)worker.age_ms;
    }
}

static void top_job_read(struct top_job *to, const struct job_reply *job,
                         const struct progress_reply *p) {
    if (job->key.size)
        text_plain(to->key, sizeof to->key, job->key);
    else
        snprintf(to->key, sizeof to->key, "%" PRIu64, job->id);
    char words[PROGRESS_WORDS];
    snprintf(to->progress, sizeof to->progress, "%.*s", TOP_TEXT - 1,
             progress_words(words, p->done, p->total, p->text));
    to->running_ms = job->running_ms;
    to->share = p->total ? (double)p->done / (double)p->total : -1;
}

void top_jobs_read(struct top *t, const struct response_value *reply) {
    const struct response_value *row = reply + 1;
    t->job_count = 0;
    for (uint32_t i = 0; i < reply->count && t->job_count < TOP_JOBS; i++, row = value_next(row)) {
        struct job_reply job = { 0 };
        struct progress_reply p = { 0 };
        if (reply_read(&job_replies, row, &job) && job.progress.value &&
            reply_read(&progress_replies, job.progress.value, &p))
            top_job_read(&t->jobs[t->job_count++], &job, &p);
    }
}

// ---- The cluster --------------------------------------------------------------------------------

// The value of a line "name:value" of INFO; empty if there is none.
static mr_bytes info_value(mr_bytes info, const char *name) {
    const char *at = info.data, *end = at + info.size;
    size_t length = strlen(name);
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\r\n", 2);
        stop = stop ? stop : end;
        size_t size = (size_t)(stop - at);
        if (size > length && at[length] == ':' && memcmp(at, name, length) == 0)
            return (mr_bytes){ at + length + 1, size - length - 1 };
        at = stop + 2;
    }
    return (mr_bytes){ "", 0 };
}

void top_cluster_read(struct top *t, const struct response_value *reply) {
    char name[64], nodes[32], shards[32], here[32];
    uint64_t unowned = 0;
    mr_bytes info = reply->bytes;
    t->cluster[0] = 0;
    t->outage_ms = 0;
    if (reply->type != RESPONSE_BULK || !info_value(info, "cluster").size)
        return;
    (void)number_parse(info_value(info, "outage_ms"), &t->outage_ms); // it stays 0
    text_plain(name, sizeof name, info_value(info, "cluster"));
    text_plain(nodes, sizeof nodes, info_value(info, "nodes"));
    text_plain(shards, sizeof shards, info_value(info, "shards"));
    text_plain(here, sizeof here, info_value(info, "shards_here"));
    (void)number_parse(info_value(info, "shards_unowned"), &unowned); // it stays 0
    bool is_replicated = bytes_equal(info_value(info, "replicated"), mr_str("1"));
    int size =
        snprintf(t->cluster, sizeof t->cluster, "cluster %s: nodes %s, shards %s (%s here), %s",
                 name, nodes, shards, here, is_replicated ? "replicated" : "not replicated");
    if (unowned && size > 0 && (size_t)size < sizeof t->cluster)
        snprintf(t->cluster + size, sizeof t->cluster - (size_t)size,
                 "; %" PRIu64 " without an owner", unowned);
}
