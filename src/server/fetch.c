// See fetch.h.
#include "server/fetch.h"

#include "base/mem.h"
#include "server/answer.h"
#include "server/shards.h"

#include <string.h>

// False: no memory, or no thread that reads it.
static bool fetch_begin(struct session *s, const struct grant *grants, size_t count) {
    struct host *h = s->host;
    struct fetch *f = mem_alloc(sizeof *f + count * sizeof *grants);
    if (!f)
        return false;
    f->session = s;
    f->host = h;
    f->count = count;
    memcpy(f->grants, grants, count * sizeof *grants);
    if (h->fetch(h->fetcher, f) < 0) {
        mem_free(f);
        return false;
    }
    s->fetch = f;
    return true;
}

static const struct wait_kind for_bodies = { .resume = NULL }; // of a TAKE: fetch_end replies

bool fetch_grants(struct session *s, const struct grant *grants, size_t count) {
    bool may_wait = s->host->fetch != NULL;
    if (answer_grants(s, grants, count, !may_wait))
        return true;
    if (fetch_begin(s, grants, count)) {
        wait_begin(s, &for_bodies, NULL, 0, UINT64_MAX);
        return false;
    }
    return answer_grants(s, grants, count, true);
}

bool fetch_first(struct session *s, const struct job_info *job, const struct wait_kind *kind,
                 void *state, size_t bytes) {
    struct host *h = s->host;
    if (!h->fetch)
        return false;
    buffer_clear(&h->scratch);
    if (shard_read_now(shard_at(h, job->shard), job->at, &h->scratch) != MR_EAGAIN ||
        !fetch_begin(s, &(struct grant){ .at = job->at, .shard = job->shard }, 1))
        return false;
    wait_begin(s, kind, state, bytes, UINT64_MAX);
    return true;
}

// A failure is found again, and reported, when the reply is written.
void fetch_read(const struct fetch *f) {
    struct buffer body = { 0 };
    for (size_t i = 0; i < f->count; i++) {
        const struct grant *g = &f->grants[i];
        buffer_clear(&body);
        (void)shard_read(shard_at(f->host, g->shard), g->at, &body);
        if (g->state_at)
            (void)shard_read(shard_at(f->host, g->shard), g->state_at, &body);
    }
    buffer_finish(&body);
}

// False: the job was cancelled or has expired meanwhile, and was released.
static bool grant_renew(struct core *core, struct grant *g) {
    struct job_info info;
    if (core_beat(core, g->id, &g->token) < 0 || core_look_job(core, g->id, &info) < 0) {
        (void)core_release(core, g->id, &g->token); // this fails, and ends the lease
        return false;
    }
    g->stage = info.stage;
    g->key = info.key;
    g->at = info.at;
    g->left_ms = info.left_ms;
    if (g->state_at)
        g->state_at = info.state_at;
    return true;
}

// The state is sent with the first job of a batch; if that is omitted, with the next one.
static void state_pass_on(struct fetch *f, size_t i) {
    const struct grant *g = &f->grants[i];
    if (i + 1 < f->count && f->grants[i + 1].token.serial == g->token.serial)
        f->grants[i + 1].state_at = g->state_at;
}

static void tell_grants(struct session *s, struct fetch *f) {
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) {
        if (grant_renew(s->host->parts[f->grants[i].shard].core, &f->grants[i]))
            f->grants[count++] = f->grants[i];
        else
            state_pass_on(f, i);
    }
    (void)answer_grants(s, f->grants, count, true);
    wait_answered(s);
}

void fetch_end(struct fetch *f) {
    struct session *s = f->session;
    if (s)
        s->fetch = NULL;
    if (s && s->wait.kind->resume)
        wait_wake(s, WAKE_READY);
    else if (s)
        tell_grants(s, f);
    mem_free(f);
}
