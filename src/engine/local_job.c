// Leased jobs: a table to find them by id when they must stop, free ones to use again, and the ways
// to end them. The table works also if it cannot grow, so that a take never fails because of it.
#include "base/bytes.h"
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "engine/local.h"

#include <assert.h>
#include <inttypes.h>

enum { TABLE_FIRST = 64, BEATS_PER_LEASE = 3, READ_NOW_MOST = 4096 };

_Static_assert(sizeof(struct token) <= sizeof(((struct mr_job *)0)->token), "a token fits");

static struct token token_of(const struct mr_job *job) {
    struct token t;
    memcpy(&t, job->token, sizeof t);
    return t;
}

// ---- The table --------------------------------------------------------------------------------

// Ids of one channel may have any distance, so they are hashed.
static struct mr_job **table_slot(const struct job_table *h, mr_id id) {
    return &h->slots[number_hash(id) & h->mask];
}

static void table_grow(struct job_table *h) {
    uint32_t size = h->slots ? (h->mask + 1) * 2 : TABLE_FIRST;
    struct job_table next = { .mask = size - 1, .count = h->count };
    next.slots = mem_alloc(size * sizeof *next.slots);
    if (!next.slots)
        return;
    for (uint32_t i = 0; h->slots && i <= h->mask; i++) {
        for (struct mr_job *job = h->slots[i], *after; job; job = after) {
            after = job->chain;
            job->chain = *table_slot(&next, job->id);
            *table_slot(&next, job->id) = job;
        }
    }
    mem_free(h->slots);
    *h = next;
}

static void table_add(struct job_table *h, struct mr_job *job) {
    if (h->count > h->mask)
        table_grow(h);
    job->chain = *table_slot(h, job->id);
    *table_slot(h, job->id) = job;
    h->count++;
}

static void table_remove(struct job_table *h, struct mr_job *job) {
    struct mr_job **at = table_slot(h, job->id);
    while (*at != job)
        at = &(*at)->chain;
    *at = job->chain;
    h->count--;
}

struct mr_job *jobs_find(const struct local_shard *s, mr_id id, const struct token *token) {
    struct mr_job *job = *table_slot(&s->jobs, id);
    for (; job; job = job->chain)
        if (job->id == id && token_of(job).serial == token->serial)
            return job;
    return NULL;
}

// ---- Free jobs --------------------------------------------------------------------------------

static struct mr_job *free_job_get(struct local_shard *s) {
    struct mr_job *job = s->free_jobs;
    if (job) {
        s->free_jobs = job->chain;
        return job;
    }
    job = mem_alloc(sizeof *job);
    if (!job)
        error_set(MR_ENOMEM, "no memory for a leased job");
    return job;
}

void free_jobs_put(struct local_shard *s, struct mr_job *chain) {
    while (chain) {
        struct mr_job *after = chain->chain;
        chain->chain = s->free_jobs;
        s->free_jobs = chain;
        chain = after;
    }
}

struct mr_job *free_jobs_get(struct local_shard *s, uint32_t count) {
    if (!s->jobs.slots)
        table_grow(&s->jobs);
    if (!s->jobs.slots) {
        error_set(MR_ENOMEM, "no memory for leased jobs");
        return NULL;
    }
    struct mr_job *chain = NULL;
    for (uint32_t i = 0; i < count; i++) {
        struct mr_job *job = free_job_get(s);
        if (!job) {
            free_jobs_put(s, chain);
            return NULL;
        }
        job->chain = chain;
        chain = job;
    }
    return chain;
}

// ---- Leased, and not any more ------------------------------------------------------------------

static void fill_one(struct mr_job *job, const struct grant *g, uint64_t now_ms) {
    leased_job_renew(job);
    job->magic = LEASED_JOB_MAGIC;
    job->id = g->id;
    memcpy(job->token, &g->token, sizeof g->token);
    job->attempt = g->attempt;
    job->deadline_at_ms = g->left_ms < 0 ? 0 : now_ms + (uint64_t)g->left_ms;
    job->lease_ms = (uint32_t)g->lease_ms;
    atomic_store_explicit(&job->lease_from_ms, now_ms, memory_order_relaxed);
    job->is_named = leased_job_set_names(job, g->stage, g->key) >= 0;
    job->meta_size = g->meta_size;
    job->at = g->at;
    job->state_at = g->state_at;
}

// In memory a small body is read in the turn: to read it later would need another lock.
static void read_body_now(struct local_shard *s, struct mr_job *job, uint32_t size) {
    struct buffer *body = &job->body;
    if (size > READ_NOW_MOST || shard_read_now(s->shard, job->at, body) < 0 ||
        buffer_reserve(body, 1) < 0)
        return; // job_load tries again
    body->data[body->size] = 0;
    job->has_body = true;
}

struct mr_job *jobs_fill(struct shard_puller *p, struct mr_job **free_jobs,
                         const struct grant *grants, size_t count) {
    struct local_shard *s = p->shard;
    struct mr_job *first = NULL, **next = &first;
    uint64_t now_ms = shard_boot_ms(s->shard);
    for (size_t i = 0; i < count; i++) {
        struct mr_job *job = *free_jobs;
        *free_jobs = job->chain;
        fill_one(job, &grants[i], now_ms);
        shard_expect(s->shard, grants[i].at);
        job->follows = i > 0 && grants[i].token.serial == grants[i - 1].token.serial;
        job->puller = &p->puller->base;
        job->leased_with = p;
        job->owner = NULL;
        job->pins = 1 + p->puller->options.handlers;
        list_append(&p->jobs, &job->of_puller);
        table_add(&s->jobs, job);
        *next = job;
        next = &job->next;
    }
    struct mr_job *job = s->in_memory ? first : NULL;
    for (size_t i = 0; job; job = job->next)
        read_body_now(s, job, grants[i++].size);
    return first;
}

void job_unpin(struct local_shard *s, struct mr_job *job) {
    if (--job->pins > 0)
        return;
    leased_job_forget(job);
    job->chain = s->free_jobs;
    s->free_jobs = job;
}

static void job_drop(struct local_shard *s, struct mr_job *job, unsigned how) {
    table_remove(&s->jobs, job);
    list_remove(&job->of_puller);
    list_remove(&job->of_stops);
    if (how & FINISH_UNPIN)
        job->pins--;
    job_unpin(s, job);
}

static int load_state(struct local_shard *s, struct mr_job *job) {
    struct buffer *state = leased_job_buffer_made(&job->state);
    return state ? local_read(s, job->id, HOME_STATE, job->state_at, state) : MR_ENOMEM;
}

int job_load(struct local_shard *s, struct mr_job *job) {
    if (!job->is_named)
        return error_set(MR_ENOMEM, "no memory for the key of a leased job");
    int err = job->has_body ? 0 : local_read(s, job->id, HOME_BODY, job->at, &job->body);
    if (err >= 0 && job->meta_size)
        err = leased_job_split_meta(job, job->meta_size);
    if (err >= 0 && job->state_at)
        err = load_state(s, job);
    return err;
}

struct mr_job *jobs_leave_out(struct local_shard *s, struct mr_job *bad, int err) {
    char why[REASON_MOST + 1];
    size_t size = strnlen(error_text(), REASON_MOST);
    memcpy(why, error_text(), size);
    why[size] = 0;
    struct token token = token_of(bad);
    if (local_enter(s) >= 0)
        (void)core_unreadable(s->core, bad->id, &token, (mr_bytes){ why, size }, err);
    for (bool more = true; more;) {
        struct mr_job *job = bad;
        more = leased_job_is_followed(job);
        bad = job->next;
        atomic_store(&job->used_up, true);
        job_drop(s, job, FINISH_UNPIN);
    }
    local_end(s);
    error_set(err, "%s", why);
    return bad;
}

// ---- Ending -----------------------------------------------------------------------------------

// The codes that mean that the lease is lost.
static bool job_is_lost(int err) {
    return err == MR_ESTALE || err == MR_EEXPIRED || err == MR_ECANCELLED || err == MR_EGONE ||
           err == MR_ESTOPPED;
}

// The job could not be ended: its lease will run out, and then it is the first one again. So the
// jobs behind it under that lease must not begin, nor keep it.
static void stop_behind(const struct mr_job *job) {
    for (; leased_job_is_followed(job); job = job->next)
        leased_job_stop(job->next, MR_ESTALE);
}

// In a turn. What could not be recorded is a failed attempt; the last one, if it was too large.
static int settle_failure(struct local_shard *s, struct mr_job *job, int err) {
    if (err >= 0 || job_is_lost(err))
        return err;
    char why[REASON_MOST + 1];
    size_t size = strnlen(error_text(), REASON_MOST);
    memcpy(why, error_text(), size);
    why[size] = 0;
    struct token token = token_of(job);
    if (core_fail(s->core, job->id, &token, (mr_bytes){ why, size },
                  err == MR_ETOOBIG ? MR_NEVER : MR_BACKOFF) < 0)
        stop_behind(job);
    return error_set(err, "%s", why);
}

static int finish_turn(struct local_shard *s, int err, unsigned how) {
    if (how & FINISH_WAIT)
        return local_end_durable(s, err);
    local_end(s);
    return err;
}

static int end_job_turn(struct local_shard *s, struct mr_job *job, int err, unsigned how) {
    err = settle_failure(s, job, err);
    job_drop(s, job, how);
    return finish_turn(s, err, how);
}

static void commit_add_output(struct mr_job *job, struct done *d) {
    d->result = buffer_bytes(&job->output->result);
    d->set_state = job->has_new_state;
    if (job->has_new_state)
        d->state = buffer_bytes(job->output->new_state);
    if (job->output->emits.size)
        d->emits = leased_job_emits(job, &d->emit_count);
}

void commit_of(struct mr_job *job, struct done *out) {
    *out = (struct done){ .id = job->id };
    memcpy(&out->token, job->token, sizeof out->token);
    if (job->output)
        commit_add_output(job, out);
}

int commit_in_turn(struct local_shard *s, struct mr_job *job, const struct done *done, int err,
                   unsigned how) {
    if (err >= 0)
        err = core_done(s->core, done);
    leased_job_pass_state(job, err >= 0);
    err = settle_failure(s, job, err);
    job_drop(s, job, how);
    return err;
}

int local_done(mr_job *job, unsigned how) {
    struct local_shard *s = local_shard_of_job(job);
    struct done done;
    commit_of(job, &done);
    return finish_turn(s, commit_in_turn(s, job, &done, local_enter(s), how), how);
}

int local_fail(mr_job *job, mr_bytes reason, int64_t retry_ms, unsigned how) {
    struct local_shard *s = local_shard_of_job(job);
    struct token token = token_of(job);
    int err = local_enter(s);
    if (err >= 0)
        err = core_fail_by(
            s->core, job->id, &token,
            (struct cause){ reason, buffer_bytes(&leased_job_output(job)->last_words) }, retry_ms);
    leased_job_pass_state(job, false); // if it had ended already, the lease goes on
    return end_job_turn(s, job, err, how);
}

int local_release(mr_job *job, int64_t delay_ms, unsigned how) {
    struct local_shard *s = local_shard_of_job(job);
    struct token token = token_of(job);
    int err = local_enter(s);
    if (err >= 0)
        err = core_release(s->core, job->id, &token, delay_ms);
    leased_job_pass_state(job, false); // if it had ended already, the lease goes on
    return end_job_turn(s, job, err, how);
}

void local_unpin(mr_job *job) {
    struct local_shard *s = local_shard_of_job(job);
    pthread_mutex_lock(&s->lock);
    job_unpin(s, job);
    pthread_mutex_unlock(&s->lock);
}

// ---- Beats ------------------------------------------------------------------------------------

// `said`: NULL for a plain beat.
static int beat_saying(struct local_shard *s, struct mr_job *job, uint64_t now_ms,
                       const struct job_progress *said) {
    struct token token = token_of(job);
    int why = leased_job_stopped(job);
    if (why < 0)
        return error_set(why, "job %" PRIu64 ": %s", job->id, error_meaning(why));
    int err =
        said ? core_progress(s->core, job->id, &token, said) : core_beat(s->core, job->id, &token);
    if (err >= 0)
        atomic_store_explicit(&job->lease_from_ms, now_ms, memory_order_relaxed);
    return err;
}

int local_progress(mr_job *job, const struct job_progress *said, bool waits) {
    struct local_shard *s = local_shard_of_job(job);
    int err = local_begin(s);
    if (err < 0)
        return err;
    err = beat_saying(s, job, monotonic_ms(), said);
    uint64_t at = local_end(s);
    if (waits)
        err = local_wait_durable(s, at, err);
    if (job_is_lost(err))
        leased_job_stop(job, err);
    return err;
}

int local_beat(mr_job *job) {
    return local_progress(job, NULL, true);
}

static int64_t beat_at(struct shard_puller *p) {
    struct local_shard *s = p->shard;
    bool runs = local_enter(s) >= 0; // also while pushes wait for memory
    int64_t next_ms = -1;
    uint64_t now_ms = monotonic_ms();
    for (struct list *l = p->jobs.next; runs && l != &p->jobs; l = l->next) {
        struct mr_job *job = list_entry(l, struct mr_job, of_puller);
        uint64_t due_ms = job->lease_from_ms + job->lease_ms / BEATS_PER_LEASE;
        if (due_ms <= now_ms && beat_saying(s, job, now_ms, NULL) < 0)
            continue; // an event reports it
        due_ms = job->lease_from_ms + job->lease_ms / BEATS_PER_LEASE;
        next_ms = wait_shorter(next_ms, due_ms > now_ms ? (int64_t)(due_ms - now_ms) : 1);
    }
    local_end(s);
    return next_ms;
}

int64_t local_beat_all(struct puller *base) {
    struct local_puller *p = (struct local_puller *)base;
    int64_t next_ms = -1;
    for (uint32_t i = 0; i < p->count; i++)
        next_ms = wait_shorter(next_ms, beat_at(&p->parts[i]));
    return next_ms;
}
