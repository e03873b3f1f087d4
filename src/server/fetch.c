// See fetch.h.
#include "server/fetch.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "server/answer.h"
#include "server/shards.h"
#include "shard/backup.h"

#include <stdio.h>
#include <string.h>

// ---- What is wanted, and what was read --------------------------------------------------------

static bool has_fetched(const struct session *s) {
    return s->fetched[FETCH_FOR_COMMAND] || s->fetched[FETCH_FOR_CALL];
}

APART static const struct fetch_entry *fetched_find(struct session *s, uint32_t shard, uint64_t at,
                                                    enum fetch_part part, const char **out_error) {
    for (int purpose = 0; purpose < FETCH_PURPOSES; purpose++)
        for (struct fetch *f = s->fetched[purpose]; f; f = f->next)
            for (size_t tried = 0; tried < f->count; tried++) {
                size_t i = (f->looked + tried) % f->count;
                const struct fetch_entry *e = &f->entries[i];
                if (e->at != at || e->shard != shard || e->part != part)
                    continue;
                f->looked = i + 1;
                *out_error = f->error;
                return e;
            }
    return NULL;
}

APART static int fetch_note(struct session *s, struct fetch_entry e) {
    int err = buffer_append(&s->host->wanted, &e, sizeof e);
    return err < 0 ? err : MR_EAGAIN;
}

static int fetched_use(const struct fetch_entry *e, const char *error, struct buffer *out) {
    if (e->err < 0)
        return error_set(e->err, "%s", error);
    return buffer_append(out, e->bytes.data, e->bytes.size);
}

int fetch_look(struct session *s, uint32_t shard, uint64_t at, enum fetch_part part,
               struct buffer *out) {
    struct shard *of = shard_at(s->host, shard);
    const char *error = NULL;
    const struct fetch_entry *e = has_fetched(s) ? fetched_find(s, shard, at, part, &error) : NULL;
    if (e && e->err != MR_EGONE)
        return fetched_use(e, error, out);
    int err = part == FETCH_HEAD ? shard_read_head_now(of, at, out) : shard_read_now(of, at, out);
    if (err != MR_EAGAIN)
        return err;
    struct fetch_entry wanted = { .at = at, .shard = shard, .part = part };
    if (s->host->fetch)
        return fetch_note(s, wanted);
    return part == FETCH_HEAD ? shard_read_head(of, at, out) : shard_read(of, at, out);
}

int fetch_piece(struct session *s, uint32_t shard, uint64_t at, uint64_t upto, enum fetch_part part,
                struct buffer *out) {
    struct shard *of = shard_at(s->host, shard);
    struct fetch_entry wanted = { .at = at, .upto = upto, .shard = shard, .part = part };
    const char *error = NULL;
    const struct fetch_entry *e = has_fetched(s) ? fetched_find(s, shard, at, part, &error) : NULL;
    struct log_state log;
    if (e)
        return fetched_use(e, error, out);
    shard_look(of, &log);
    if (s->host->fetch && log.memory < log.bytes)
        return fetch_note(s, wanted);
    return backup_pack(of, at, upto, part == FETCH_PIECE, out);
}

bool fetch_is_needed(const struct session *s) {
    return s->host->wanted.size > 0;
}

static void fetch_free(struct fetch *f) {
    for (size_t i = 0; i < f->count; i++)
        buffer_finish(&f->entries[i].bytes);
    mem_free(f->grants);
    mem_free(f);
}

void fetch_forget(struct session *s, enum fetch_purpose purpose) {
    for (struct fetch *f; (f = s->fetched[purpose]);) {
        s->fetched[purpose] = f->next;
        for (size_t i = 0; i < f->count; i++)
            s->fetched_bytes -= f->entries[i].bytes.capacity;
        fetch_free(f);
    }
}

void fetch_leave(struct session *s) {
    for (int purpose = 0; purpose < FETCH_PURPOSES; purpose++)
        fetch_forget(s, (enum fetch_purpose)purpose);
    for (struct list *l; (l = list_first(&s->fetches));) {
        list_remove(l);
        list_entry(l, struct fetch, of_session)->session = NULL;
    }
}

// ---- Beginning --------------------------------------------------------------------------------

// Begins to read the noted entries. MR_ENOMEM.
static int fetch_begin(struct session *s, enum fetch_purpose purpose, const struct grant *grants,
                       size_t grant_count) {
    struct host *h = s->host;
    size_t count = h->wanted.size / sizeof(struct fetch_entry);
    struct fetch *f = mem_alloc(sizeof *f + count * sizeof f->entries[0]);
    struct grant *kept = grant_count ? mem_alloc(grant_count * sizeof *kept) : NULL;
    if (f) {
        f->session = s;
        f->purpose = purpose;
        f->host = h;
        f->grants = kept;
        f->grant_count = grant_count;
        f->count = count;
        memcpy(f->entries, h->wanted.data, h->wanted.size);
        list_init(&f->of_session);
    }
    if (kept)
        memcpy(kept, grants, grant_count * sizeof *kept);
    buffer_clear(&h->wanted);
    if (f && (kept || !grant_count) && h->fetch(h->fetcher, f) == 0) {
        list_append(&s->fetches, &f->of_session);
        return 0;
    }
    mem_free(kept);
    mem_free(f);
    return error_set(MR_ENOMEM, "no memory to read from the store");
}

int fetch_try_wait(struct session *s, const struct wait_kind *kind, void *state, size_t bytes) {
    int err = fetch_begin(s, FETCH_FOR_COMMAND, NULL, 0);
    if (err == 0)
        wait_begin(s, kind, state, bytes, UINT64_MAX);
    return err;
}

bool fetch_wait(struct session *s, const struct wait_kind *kind, void *state, size_t bytes) {
    int err = fetch_try_wait(s, kind, state, bytes);
    if (err < 0)
        answer_error(s, err);
    return err == 0;
}

bool fetch_for_call(struct session *s) {
    return fetch_begin(s, FETCH_FOR_CALL, NULL, 0) == 0;
}

static const struct wait_kind for_bodies = { .resume = NULL }; // of a TAKE: fetch_end replies

static int note_grants(struct session *s, const struct grant *grants, size_t count) {
    int err = 0;
    buffer_clear(&s->host->wanted);
    for (size_t i = 0; err != MR_ENOMEM && i < count; i++) {
        const struct grant *g = &grants[i];
        err = fetch_note(s, (struct fetch_entry){ .at = g->at, .shard = g->shard });
        if (err != MR_ENOMEM && g->state_at)
            err = fetch_note(s, (struct fetch_entry){ .at = g->state_at, .shard = g->shard });
    }
    return err == MR_EAGAIN ? 0 : err;
}

// Without memory to read them the jobs return to their channels, uncounted.
static void refuse_grants(struct session *s, const struct grant *grants, size_t count) {
    for (size_t i = 0; i < count; i++)
        (void)core_release(s->host->parts[grants[i].shard].core, grants[i].id, &grants[i].token, 0);
    session_reply(s);
    answer_error(s, error_set(MR_ENOMEM, "no memory to read the jobs"));
    session_touch(s);
}

bool fetch_grants(struct session *s, const struct grant *grants, size_t count) {
    if (answer_grants(s, grants, count))
        return true;
    if (note_grants(s, grants, count) < 0 || fetch_begin(s, FETCH_FOR_COMMAND, grants, count) < 0) {
        refuse_grants(s, grants, count);
        return true;
    }
    wait_begin(s, &for_bodies, NULL, 0, UINT64_MAX);
    return false;
}

// Without memory the shard wants it again later.
static void fetch_for_shard(struct host *h, uint32_t shard) {
    struct part *p = &h->parts[shard];
    uint64_t at[SHARD_WANTED];
    uint32_t count = shard_take_wanted(p->shard, at, SHARD_WANTED);
    struct fetch *f = count ? mem_alloc(sizeof *f + count * sizeof f->entries[0]) : NULL;
    if (!f)
        return;
    f->purpose = FETCH_FOR_SHARD;
    f->host = h;
    f->count = count;
    for (uint32_t i = 0; i < count; i++)
        f->entries[i] = (struct fetch_entry){ .at = at[i], .shard = shard };
    p->is_reading = h->fetch(h->fetcher, f) == 0;
    if (!p->is_reading)
        mem_free(f);
}

void fetch_for_shards(struct host *h) {
    for (uint32_t i = h->first; h->fetch && i < h->end; i++)
        if (!h->parts[i].is_reading)
            fetch_for_shard(h, i);
}

// ---- In the other thread ----------------------------------------------------------------------

enum { SHARD_READ_BYTES = 4 << 20 }; // read at once for a shard, about

static int fetch_read_entry(const struct fetch *f, struct fetch_entry *e) {
    struct shard *of = shard_at(f->host, e->shard);
    switch (e->part) {
    case FETCH_BODY:
        break;
    case FETCH_HEAD:
        return shard_read_head(of, e->at, &e->bytes);
    case FETCH_PIECE:
    case FETCH_HEADS:
        return backup_pack(of, e->at, e->upto, e->part == FETCH_PIECE, &e->bytes);
    }
    return shard_read(of, e->at, &e->bytes);
}

void fetch_read(struct fetch *f) {
    size_t bytes = 0;
    for (size_t i = 0; i < f->count; i++) {
        struct fetch_entry *e = &f->entries[i];
        if (f->purpose == FETCH_FOR_SHARD && bytes > SHARD_READ_BYTES) {
            e->err = MR_EAGAIN; // the shard wants it again
            continue;
        }
        e->err = fetch_read_entry(f, e);
        bytes += e->bytes.size;
        if (e->err < 0)
            snprintf(f->error, sizeof f->error, "%s", error_text());
    }
}

// ---- Going on ---------------------------------------------------------------------------------

// False: the job was cancelled or has expired meanwhile, and was released.
static bool grant_renew(struct core *core, struct grant *g) {
    struct job_info info;
    if (core_beat(core, g->id, &g->token) < 0 || core_look_job(core, g->id, &info) < 0) {
        (void)core_release(core, g->id, &g->token, 0); // this fails, and ends the lease
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
    if (i + 1 < f->grant_count && f->grants[i + 1].token.serial == g->token.serial)
        f->grants[i + 1].state_at = g->state_at;
}

// Replies to the TAKE, or waits again if the cleaner has moved a body.
static void answer_fetched_grants(struct session *s, struct fetch *f) {
    size_t count = 0;
    for (size_t i = 0; i < f->grant_count; i++) {
        if (grant_renew(s->host->parts[f->grants[i].shard].core, &f->grants[i]))
            f->grants[count++] = f->grants[i];
        else
            state_pass_on(f, i);
    }
    if (!fetch_grants(s, f->grants, count))
        return;
    fetch_forget(s, FETCH_FOR_COMMAND);
    wait_answered(s);
}

static void call_goes_on(struct session *s) {
    s->is_reading_call = false;
    if (list_empty(&s->of_resuming) && list_empty(&s->of_backlog))
        list_append(&s->host->resuming, &s->of_resuming);
}

static void shard_goes_on(struct fetch *f) {
    struct part *p = &f->host->parts[f->entries[0].shard];
    p->is_reading = false;
    for (size_t i = 0; f->host->shards && i < f->count; i++)
        if (f->entries[i].err != MR_EAGAIN)
            shard_keep(p->shard, f->entries[i].at, f->entries[i].err, &f->entries[i].bytes);
}

void fetch_end(struct fetch *f) {
    struct session *s = f->session;
    if (f->purpose == FETCH_FOR_SHARD)
        shard_goes_on(f);
    if (!s) {
        fetch_free(f);
        return;
    }
    list_remove(&f->of_session);
    for (size_t i = 0; i < f->count; i++)
        s->fetched_bytes += f->entries[i].bytes.capacity;
    f->next = s->fetched[f->purpose];
    s->fetched[f->purpose] = f;
    if (f->purpose == FETCH_FOR_CALL)
        call_goes_on(s);
    else if (f->grant_count)
        answer_fetched_grants(s, f);
    else
        wait_wake(s, WAKE_READY);
}
