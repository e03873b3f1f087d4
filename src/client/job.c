// Leased jobs: made from the answer of TAKE, found again by id, stopped, ended.
//
// A lease runs from when TAKE was sent, or the last BEAT that was answered: the server counts from
// later, so a job that is stopped a little before its lease has run out here is stopped before
// another worker can get it.
//
// No thread waits for the ends of a worker's handlers: a hook gets the answer, and makes a failed
// attempt of what the server could not record.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "client/state.h"
#include "wire/number.h"
#include "wire/replies.h"

#include <inttypes.h>

enum {
    LEASE_MS = 30000, // if the server does not send it
    BEATS_PER_LEASE = 3,
    STOP_EARLIER_MS = 1000, // than the lease ends, at most; a tenth of a short one
    BEATS_AT_ONCE = 10000,
    UNANSWERED_MOST = 1024, // ends of a puller's jobs; then they are waited for
};

static struct client *client_of_job(const struct mr_job *job) {
    return (struct client *)job->puller->engine;
}

static struct client_puller *puller_of_job(const struct mr_job *job) {
    return (struct client_puller *)job->puller;
}

// ---- The table --------------------------------------------------------------------------------

static struct mr_job **client_job_bucket(struct client *c, mr_id id) {
    return &c->leased[id % CLIENT_BUCKETS];
}

static struct mr_job *client_job_find(struct client *c, const struct job_lease *lease) {
    struct mr_job *job = *client_job_bucket(c, lease->id);
    while (job && (job->id != lease->id || memcmp(job->token, lease->token, CLIENT_TOKEN) != 0))
        job = job->chain;
    return job;
}

static struct mr_job *client_job_new(struct client *c) {
    struct mr_job *job = c->free_jobs;
    if (job)
        c->free_jobs = job->chain;
    else if (!(job = mem_alloc(sizeof *job)))
        error_set(MR_ENOMEM, "no memory for a leased job");
    return job;
}

static void client_job_reuse(struct client *c, struct mr_job *job) {
    leased_job_forget(job);
    job->chain = c->free_jobs;
    c->free_jobs = job;
}

void client_job_unpin(struct client *c, struct mr_job *job) {
    if (--job->pins <= 0)
        client_job_reuse(c, job);
}

static void client_job_drop(struct client *c, struct mr_job *job, unsigned how) {
    struct mr_job **at = client_job_bucket(c, job->id);
    while (*at != job)
        at = &(*at)->chain;
    *at = job->chain;
    c->leased_count--;
    if (job->leased_with)
        link_unuse(job->leased_with);
    list_remove(&job->of_puller);
    list_remove(&job->of_stops);
    if (how & FINISH_UNPIN)
        job->pins--;
    client_job_unpin(c, job);
}

static void client_job_add(struct client_puller *p, struct mr_job *job) {
    struct client *c = (struct client *)p->base.engine;
    job->puller = &p->base;
    job->owner = NULL;
    job->pins = 1 + p->options.handlers;
    list_append(&p->jobs, &job->of_puller);
    job->chain = *client_job_bucket(c, job->id);
    *client_job_bucket(c, job->id) = job;
    c->leased_count++;
}

// ---- What TAKE answers ------------------------------------------------------------------------

static int copy_out(struct buffer *to, const struct response_value *v) {
    mr_bytes from = v->type == RESPONSE_BULK ? v->bytes : (mr_bytes){ 0 };
    buffer_clear(to);
    if (v->type == RESPONSE_NULL)
        return 0;
    int err = buffer_reserve(to, from.size + 1);
    if (err < 0)
        return err;
    buffer_append(to, from.data, from.size);
    to->data[to->size] = 0;
    return 0;
}

// The places behind it are newer than the others: a server may leave them out.
enum { GRANT_LEAST = GRANT_lease_ms };

#define TYPE_OF_id RESPONSE_BULK
#define TYPE_OF_bytes RESPONSE_BULK
#define TYPE_OF_entry RESPONSE_BULK
#define TYPE_OF_small RESPONSE_INTEGER
#define TYPE_OF_number RESPONSE_INTEGER
#define TYPE_OF(from, member, kind, ...) [GRANT_##member] = TYPE_OF_##kind,

// `v` are the values of the array. The state is the only one that may be nil.
static bool is_grant(const struct response_value *v) {
    static const enum response_type types[GRANT_PLACES] = { GRANT_FIELDS(TYPE_OF) };
    for (int i = 0; i < GRANT_LEAST; i++)
        if (v[i].type != types[i] && (i != GRANT_state || v[i].type != RESPONSE_NULL))
            return false;
    return v[GRANT_id].bytes.size && v[GRANT_token].bytes.size &&
           v[GRANT_token].bytes.size <= CLIENT_TOKEN &&
           v[GRANT_stage].bytes.size <= STAGE_NAME_MOST && v[GRANT_key].bytes.size <= KEY_MOST;
}

static uint32_t lease_of_grant(const struct response_value *v, uint32_t count) {
    bool there = count > GRANT_lease_ms && v[GRANT_lease_ms].type == RESPONSE_INTEGER;
    int64_t lease_ms = there ? v[GRANT_lease_ms].integer : 0;
    if (lease_ms > UINT32_MAX)
        return UINT32_MAX;
    return lease_ms > 0 ? (uint32_t)lease_ms : LEASE_MS;
}

static mr_bytes meta_of_grant(const struct response_value *v, uint32_t count) {
    bool there = count > GRANT_meta && v[GRANT_meta].type == RESPONSE_BULK;
    return there && v[GRANT_meta].bytes.size <= META_MOST ? v[GRANT_meta].bytes : (mr_bytes){ 0 };
}

// META goes behind the body: see struct mr_job.
static int copy_body(struct mr_job *job, const struct response_value *body, mr_bytes meta) {
    int err = copy_out(&job->body, body);
    if (err >= 0 && meta.size)
        err = buffer_append(&job->body, meta.data, meta.size);
    return err < 0 ? err : leased_job_split_meta(job, (uint32_t)meta.size);
}

static int copy_state(struct mr_job *job, const struct response_value *state) {
    if (state->type != RESPONSE_BULK || !state->bytes.size)
        return 0;
    struct buffer *to = leased_job_buffer_made(&job->state);
    return to ? copy_out(to, state) : MR_ENOMEM;
}

static int job_read(struct mr_job *job, const struct response_value *grant,
                    uint64_t lease_from_ms) {
    const struct response_value *v = grant + 1;
    uint64_t id;
    if (grant->type != RESPONSE_ARRAY || grant->count < GRANT_LEAST || !is_grant(v) ||
        number_parse(v[GRANT_id].bytes, &id) < 0)
        return error_set(MR_ENET, "the server answers TAKE with what is not a job");
    int64_t left_ms = v[GRANT_left_ms].integer;
    leased_job_renew(job);
    job->magic = LEASED_JOB_MAGIC;
    job->id = id;
    memset(job->token, 0, sizeof job->token);
    memcpy(job->token, v[GRANT_token].bytes.data, v[GRANT_token].bytes.size);
    job->attempt = (uint32_t)v[GRANT_attempt].integer;
    job->deadline_at_ms = left_ms < 0 ? 0 : monotonic_ms() + (uint64_t)left_ms;
    job->lease_ms = lease_of_grant(v, grant->count);
    job->lease_from_ms = job->beat_ms = lease_from_ms;
    int err = leased_job_set_names(job, v[GRANT_stage].bytes, v[GRANT_key].bytes);
    if (err >= 0)
        err = copy_body(job, &v[GRANT_body], meta_of_grant(v, grant->count));
    return err < 0 ? err : copy_state(job, &v[GRANT_state]);
}

static uint64_t stops_at_ms(const struct mr_job *job) {
    if (MUTANT(end_of_lease_not_watched))
        return UINT64_MAX;
    uint64_t earlier = job->lease_ms / 10;
    return job->lease_from_ms + job->lease_ms -
           (earlier < STOP_EARLIER_MS ? earlier : STOP_EARLIER_MS);
}

static void watch_lease(struct client *c, const struct mr_job *job) {
    if (stops_at_ms(job) < c->lease_check_ms)
        c->lease_check_ms = stops_at_ms(job);
}

// Forgets jobs of an answer that cannot be read whole: their link is about to be lost.
static void client_jobs_forget(struct client *c, struct mr_job *jobs) {
    for (struct mr_job *next; jobs; jobs = next) {
        next = jobs->next;
        atomic_store(&jobs->used_up, true);
        client_job_drop(c, jobs, FINISH_UNPIN * puller_of_job(jobs)->options.handlers);
    }
}

int client_jobs_read(struct client_puller *p, struct client_link *l, uint64_t lease_from_ms,
                     const struct response_value *v, struct mr_job **out) {
    struct client *c = (struct client *)p->base.engine;
    struct mr_job *first = NULL, *before = NULL, **next = &first;
    if (v->type != RESPONSE_ARRAY)
        return error_set(MR_ENET, "the server answers TAKE with what is no list of jobs");
    uint32_t at = 1;
    for (uint32_t i = 0; i < v->count; i++, at = response_skip(v, at)) {
        struct mr_job *job = client_job_new(c);
        int err = job ? job_read(job, &v[at], lease_from_ms) : MR_ENOMEM;
        if (err < 0) {
            if (job)
                client_job_reuse(c, job);
            client_jobs_forget(c, first);
            return err;
        }
        job->leased_with = l;
        l->uses++;
        if (l->owned_ms && l->owned_ms < job->lease_ms)
            job->lease_ms = (uint32_t)l->owned_ms; // another node may own the store afterwards
        job->follows = before && memcmp(job->token, before->token, CLIENT_TOKEN) == 0;
        client_job_add(p, job);
        watch_lease(c, job);
        *next = before = job;
        next = &job->next;
    }
    *out = first;
    return 0;
}

// ---- Stopping ---------------------------------------------------------------------------------

// With the lock. The job must stop: its handler does not begin, or on_stop is called.
static void client_job_stop(struct client *c, struct mr_job *job, int why) {
    if (leased_job_stopped(job) || !leased_job_stop(job, why) ||
        !puller_of_job(job)->options.on_stop)
        return;
    list_append(&c->notices, &job->of_stops);
    pthread_cond_signal(&c->notify);
}

// The server says only that a job must stop.
static int why_stopped(const struct mr_job *job) {
    uint64_t now_ms = monotonic_ms();
    if (job->deadline_at_ms && now_ms >= job->deadline_at_ms)
        return MR_EEXPIRED;
    return now_ms >= job->lease_from_ms + job->lease_ms ? MR_ESTALE : MR_ECANCELLED;
}

void client_job_stop_id(struct client_link *l, mr_id id) {
    for (struct mr_job *job = *client_job_bucket(l->client, id); job; job = job->chain)
        if (job->id == id && job->leased_with == l)
            client_job_stop(l->client, job, why_stopped(job));
}

void client_jobs_stop_link(struct client_link *l) {
    struct client *c = l->client;
    for (uint32_t i = 0; c->leased_count && i < CLIENT_BUCKETS; i++)
        for (struct mr_job *job = c->leased[i]; job; job = job->chain)
            if (job->leased_with == l)
                client_job_stop(c, job, MR_ESTALE);
}

void client_jobs_leave_link(struct client_link *l) {
    struct client *c = l->client;
    for (uint32_t i = 0; l->uses && i < CLIENT_BUCKETS; i++)
        for (struct mr_job *job = c->leased[i]; job; job = job->chain)
            if (job->leased_with == l) {
                job->leased_with = NULL;
                l->uses--;
            }
}

void client_jobs_check_leases(struct client *c, uint64_t now_ms) {
    c->lease_check_ms = UINT64_MAX;
    for (uint32_t i = 0; c->leased_count && i < CLIENT_BUCKETS; i++)
        for (struct mr_job *job = c->leased[i]; job; job = job->chain) {
            if (leased_job_stopped(job))
                continue;
            if (now_ms >= stops_at_ms(job))
                client_job_stop(c, job, MR_ESTALE);
            else
                watch_lease(c, job);
        }
}

// ---- Ending -----------------------------------------------------------------------------------

static bool lease_is_lost(int err) {
    return err == MR_ESTALE || err == MR_EEXPIRED || err == MR_ECANCELLED || err == MR_EGONE ||
           err == MR_ESTOPPED || err == MR_ENET;
}

static void lease_words(struct exchange *x, const struct job_lease *lease) {
    exchange_number(x, lease->id);
    exchange_bytes(x, (mr_bytes){ lease->token, strnlen(lease->token, CLIENT_TOKEN) });
    if (x->err >= 0)
        x->err = buffer_append(&x->about, lease, sizeof *lease);
}

static struct job_lease job_lease_of(const struct mr_job *job) {
    struct job_lease lease = { .id = job->id };
    memcpy(lease.token, job->token, CLIENT_TOKEN);
    return lease;
}

static struct exchange *end_new(const char *command, const struct job_lease *lease) {
    struct exchange *x = exchange_new(command);
    if (x)
        lease_words(x, lease);
    return x;
}

static int end_send(struct client_puller *, struct exchange *);

// With the lock. A job of a block was not ended as its worker wanted: those behind it must not go
// on, since its lease is over or will run out. It stays if the job had ended before.
static void block_stop(struct client *c, const struct job_lease *ended, int err) {
    if (err == MR_EEXPIRED || err == MR_ECANCELLED || err == MR_EGONE)
        return;
    for (uint32_t i = 0; c->leased_count && i < CLIENT_BUCKETS; i++)
        for (struct mr_job *job = c->leased[i]; job; job = job->chain)
            if (memcmp(job->token, ended->token, CLIENT_TOKEN) == 0)
                client_job_stop(c, job, MR_ESTALE);
}

void commit_refused(struct client_puller *p, const struct job_lease *lease, int err,
                    mr_bytes sentence) {
    block_stop((struct client *)p->base.engine, lease, err);
    if (lease_is_lost(err))
        return;
    struct exchange *failed = end_new("FAIL", lease);
    if (!failed)
        return; // its lease will run out
    exchange_bytes(failed, sentence);
    if (err == MR_ETOOBIG)
        exchange_word(failed, "NEVER"); // it would be as large again
    if (end_send(p, failed) < 0)
        exchange_free(failed);
}

static void end_hook(struct client *c, struct exchange *x, const struct response_value *v,
                     uint32_t count) {
    struct client_puller *p = x->puller;
    (void)c, (void)v, (void)count;
    p->unanswered--;
    pthread_cond_broadcast(&p->changed);
    if (x->err >= 0)
        return;
    struct job_lease lease;
    memcpy(&lease, x->about.data, sizeof lease);
    commit_refused(p, &lease, x->err, buffer_bytes(&x->answer));
}

// A failure that is refused is not failed again: the lease will run out.
static void fail_hook(struct client *c, struct exchange *x, const struct response_value *v,
                      uint32_t count) {
    (void)v, (void)count;
    x->puller->unanswered--;
    pthread_cond_broadcast(&x->puller->changed);
    if (x->err >= 0)
        return;
    struct job_lease lease;
    memcpy(&lease, x->about.data, sizeof lease);
    block_stop(c, &lease, x->err);
}

static int end_send(struct client_puller *p, struct exchange *x) {
    struct client *c = (struct client *)p->base.engine;
    if (!x->hook)
        x->hook = fail_hook;
    x->puller = p;
    int err = exchange_send(c->main, x);
    p->unanswered += err >= 0;
    return err;
}

// Sends the request that ends the job, which is not leased any more then.
static int client_job_end(struct mr_job *job, struct exchange *x, unsigned how) {
    struct client *c = client_of_job(job);
    struct client_puller *p = puller_of_job(job);
    pthread_mutex_lock(&c->lock);
    bool waits = how & FINISH_WAIT || p->unanswered >= UNANSWERED_MOST;
    int err = x ? end_send(p, x) : MR_ENOMEM;
    client_job_drop(c, job, how);
    bool sent = err >= 0;
    if (sent && waits)
        err = exchange_wait(c, x, UINT64_MAX);
    pthread_mutex_unlock(&c->lock);
    if (!sent || waits)
        exchange_free(x);
    return err;
}

#define EMIT_WORD(member, kind, word, ...) EXCHANGE_##kind(x, word, e->job.member);

static void emit_words(struct exchange *x, const struct emit *e) {
    exchange_word(x, "EMIT");
    exchange_bytes(x, e->stage);
    exchange_bytes(x, e->job.key);
    exchange_bytes(x, e->body);
    EMIT_OPTIONS(EMIT_WORD)
}

static void done_words(struct exchange *x, struct mr_job *job) {
    const struct job_output *set = leased_job_output(job);
    if (set->result.size) {
        exchange_word(x, "RESULT");
        exchange_bytes(x, buffer_bytes(&set->result));
    }
    if (job->has_new_state) {
        exchange_word(x, "STATE");
        exchange_bytes(x, buffer_bytes(set->new_state));
    }
    size_t count;
    const struct emit *emits = leased_job_emits(job, &count);
    for (size_t i = 0; i < count; i++)
        emit_words(x, &emits[i]);
}

// The job that follows goes on with the state that this one has set, if that is accepted: so the
// answer is waited for. The job itself is gone by then.
static int end_with_state(struct mr_job *job, struct exchange *x, unsigned how) {
    struct mr_job *next = job->next;
    struct buffer *state = job->output->new_state;
    job->output->new_state = NULL;
    int err = client_job_end(job, x, how | FINISH_WAIT);
    if (err >= 0) {
        struct buffer *before = next->state;
        next->state = state;
        state = before;
    }
    if (state)
        buffer_finish(state);
    mem_free(state);
    return err;
}

static int client_commit(struct mr_job *job, unsigned how) {
    struct job_lease lease = job_lease_of(job);
    struct exchange *x = end_new("DONE", &lease);
    if (x) {
        done_words(x, job);
        x->hook = end_hook;
    }
    bool decides = job->has_new_state && leased_job_is_followed(job);
    leased_job_pass_state(job, false);
    return decides ? end_with_state(job, x, how) : client_job_end(job, x, how);
}

static bool is_plain(const struct mr_job *job) {
    const struct job_output *set = leased_job_output(job);
    return !set->result.size && !job->has_new_state && !set->emits.size;
}

// Sends it together with others, unless the answer is to be waited for. True: it was ended.
static bool end_plainly(struct mr_job *job, unsigned how, int *out_err) {
    struct client *c = client_of_job(job);
    struct client_puller *p = puller_of_job(job);
    struct job_lease lease = job_lease_of(job);
    pthread_mutex_lock(&c->lock);
    bool ends = p->unanswered < UNANSWERED_MOST;
    if (ends) {
        leased_job_pass_state(job, false);
        *out_err = commits_add(p, &lease);
        client_job_drop(c, job, how);
    }
    pthread_mutex_unlock(&c->lock);
    return ends;
}

int client_done(mr_job *job, unsigned how) {
    int err;
    if (!(how & FINISH_WAIT) && is_plain(job) && end_plainly(job, how, &err))
        return err;
    return client_commit(job, how);
}

int client_fail(mr_job *job, mr_bytes reason, int64_t retry_ms, unsigned how) {
    struct job_lease lease = job_lease_of(job);
    struct exchange *x = end_new("FAIL", &lease);
    if (x)
        exchange_bytes(x, reason);
    if (x && retry_ms == MR_NEVER) {
        exchange_word(x, "NEVER");
    } else if (x && retry_ms >= 0) {
        exchange_word(x, "RETRY");
        exchange_number(x, (uint64_t)retry_ms);
    }
    mr_bytes last_words = buffer_bytes(&leased_job_output(job)->last_words);
    if (x && last_words.size) {
        exchange_word(x, "OUTPUT");
        exchange_bytes(x, last_words);
    }
    leased_job_pass_state(job, false); // if it had ended already, the lease goes on
    return client_job_end(job, x, how);
}

int client_release(mr_job *job, int64_t delay_ms, unsigned how) {
    struct job_lease lease = job_lease_of(job);
    leased_job_pass_state(job, false); // if it had ended already, the lease goes on
    struct exchange *x = end_new("RELEASE", &lease);
    if (x && delay_ms) {
        exchange_word(x, "DELAY");
        exchange_number(x, (uint64_t)delay_ms);
    }
    return client_job_end(job, x, how);
}

void client_jobs_release(struct mr_job *jobs) {
    for (struct mr_job *job = jobs, *next; job; job = next) {
        struct client *c = client_of_job(job);
        struct job_lease lease = job_lease_of(job);
        next = job->next;
        struct exchange *x = end_new("RELEASE", &lease);
        if (x && end_send(puller_of_job(job), x) < 0)
            exchange_free(x);
        atomic_store(&job->used_up, true);
        client_job_drop(c, job, FINISH_UNPIN * puller_of_job(job)->options.handlers);
    }
}

void client_unpin(mr_job *job) {
    struct client *c = client_of_job(job);
    pthread_mutex_lock(&c->lock);
    client_job_unpin(c, job);
    pthread_mutex_unlock(&c->lock);
}

// ---- Beats ------------------------------------------------------------------------------------

static bool is_id(const struct response_value *v, mr_id id) {
    uint64_t number;
    return v->type == RESPONSE_BULK && number_parse(v->bytes, &number) == 0 && number == id;
}

// The answer lists the jobs to stop in the order of the request.
void beat_hook(struct client *c, struct exchange *x, const struct response_value *v,
               uint32_t count) {
    (void)count;
    if (x->err < 0 || v->type != RESPONSE_ARRAY)
        return; // the leases run out
    x->number = v->count;
    uint32_t listed = 1;
    for (size_t at = 0; at < x->about.size; at += sizeof(struct job_lease)) {
        struct job_lease lease;
        memcpy(&lease, x->about.data + at, sizeof lease);
        struct mr_job *job = client_job_find(c, &lease);
        bool stops = listed <= v->count && is_id(&v[listed], lease.id);
        listed += stops;
        if (job && stops && !MUTANT(stop_in_a_beat_ignored))
            client_job_stop(c, job, why_stopped(job));
        else if (job && x->sent_ms > job->lease_from_ms)
            job->lease_from_ms = x->sent_ms;
    }
}

void beat_add(struct exchange *x, struct mr_job *job, uint64_t now_ms) {
    struct job_lease lease = job_lease_of(job);
    lease_words(x, &lease);
    job->beat_ms = now_ms;
}

// `said`: NULL for a plain beat. With the lock.
static struct exchange *progress_new(struct mr_job *job, const struct job_progress *said) {
    struct exchange *x = exchange_new(said ? "PROGRESS" : "BEAT");
    if (!x)
        return NULL;
    beat_add(x, job, monotonic_ms());
    if (said) {
        exchange_number(x, said->done);
        exchange_number(x, said->total);
        exchange_text_option(x, "SAY", said->text);
    }
    x->hook = beat_hook;
    return x;
}

// At most one beat of a job is under way that no thread waits for.
static int progress_send(struct client *c, struct mr_job *job, const struct job_progress *said) {
    struct client_link *l = beat_link(c);
    if (l->state != LINK_UP || job->beat_ms > job->lease_from_ms)
        return MR_EAGAIN;
    struct exchange *x = progress_new(job, said);
    int err = x ? exchange_send(l, x) : MR_ENOMEM;
    if (err < 0)
        exchange_free(x);
    return err;
}

// Of a job that follows others it must not overtake their ends, which may have ended its lease.
static int progress_await(struct client *c, struct mr_job *job, const struct job_progress *said) {
    struct exchange *x = progress_new(job, said);
    bool behind_ends = job->follows;
    int err = x ? exchange_send(behind_ends ? c->main : beat_link(c), x) : MR_ENOMEM;
    if (err >= 0)
        err = exchange_wait(c, x, UINT64_MAX);
    exchange_free(x);
    return err;
}

int client_progress(mr_job *job, const struct job_progress *said, bool waits) {
    struct client *c = client_of_job(job);
    pthread_mutex_lock(&c->lock);
    int err = waits ? progress_await(c, job, said) : progress_send(c, job, said);
    pthread_mutex_unlock(&c->lock);
    int why = leased_job_stopped(job);
    if (err >= 0 && why < 0)
        return error_set(why, "job %" PRIu64 ": %s", job->id, error_meaning(why));
    return err;
}

int client_beat(mr_job *job) {
    return client_progress(job, NULL, true);
}

bool lease_is_due(const struct mr_job *job, uint64_t now_ms) {
    return now_ms >= job->lease_from_ms + job->lease_ms / BEATS_PER_LEASE;
}

struct client_link *beat_link(struct client *c) {
    if (c->main->owned_ms && !c->beats)
        c->beats = link_create(c, false);
    return c->beats ? c->beats : c->main;
}

static void beat_send(struct client *c, struct exchange *x) {
    if (x)
        x->hook = beat_hook;
    if (x && exchange_send(beat_link(c), x) < 0)
        exchange_free(x);
}

// Adds the job to a beat if that is due; one that is full is sent, and another begun. Returns when
// the job wants the next one.
static uint64_t beat_if_due(struct client *c, struct exchange **beat, struct mr_job *job,
                            uint64_t now_ms) {
    uint64_t third_ms = job->lease_ms / BEATS_PER_LEASE + 1;
    uint64_t due_ms = (job->beat_ms > job->lease_from_ms ? job->beat_ms : job->lease_from_ms);
    if (now_ms < due_ms + third_ms)
        return due_ms + third_ms;
    if (*beat && (*beat)->about.size >= BEATS_AT_ONCE * sizeof(struct job_lease)) {
        beat_send(c, *beat);
        *beat = NULL;
    }
    if (*beat || (*beat = exchange_new("BEAT")))
        beat_add(*beat, job, now_ms);
    return now_ms + third_ms;
}

int64_t client_beat_all(struct puller *base) {
    struct client_puller *p = (struct client_puller *)base;
    struct client *c = (struct client *)base->engine;
    struct exchange *beat = NULL;
    uint64_t now_ms = monotonic_ms(), next = UINT64_MAX;
    pthread_mutex_lock(&c->lock);
    for (struct list *at = p->jobs.next; at != &p->jobs; at = at->next) {
        struct mr_job *job = list_entry(at, struct mr_job, of_puller);
        uint64_t due_ms = leased_job_stopped(job) ? UINT64_MAX : beat_if_due(c, &beat, job, now_ms);
        if (due_ms < next)
            next = due_ms;
    }
    beat_send(c, beat);
    pthread_mutex_unlock(&c->lock);
    return next == UINT64_MAX ? -1 : (int64_t)(next - now_ms);
}
