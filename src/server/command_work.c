// Working: TAKE, DONE, FAIL, RELEASE, BEAT, LEVEL.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/fetch.h"
#include "server/router.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "wire/number.h"

#include <stddef.h>
#include <string.h>

struct take_options {
    uint32_t count, batch, slots;
    int64_t wait_ms, lease_ms;
    bool detached;
};

#define TAKE(field) offsetof(struct take_options, field)

const struct option take_options[] = {
    { "COUNT", OPTION_COUNT, TAKE(count) },
    { "BATCH", OPTION_COUNT, TAKE(batch) },
    { "WAIT", OPTION_WAIT, TAKE(wait_ms) },
    { "LEASE", OPTION_MS, TAKE(lease_ms) },
    { "DETACHED", OPTION_FLAG, TAKE(detached) },
    { "SLOTS", OPTION_COUNT, TAKE(slots) },
    { 0 },
};

// Names of stages stand first; the first word behind the first that is an option ends them.
static bool take_read(struct session *s, struct arguments *a, struct take_options *o,
                      uint32_t *out_stages) {
    uint32_t stages = 1;
    a->at = 2;
    while (a->at < a->count) {
        int read = option_read(s, a, take_options, o);
        if (read < 0)
            return false;
        if (read)
            break;
        stages++;
        a->at++;
    }
    *out_stages = stages;
    if (!options_read(s, a, take_options, o))
        return false;
    for (uint32_t i = 1; s->who && i <= stages; i++)
        if (!access_name(s, "stage", a->words[i]))
            return false;
    return true;
}

void session_note_stages(struct session *s, const mr_bytes *stages, uint32_t count,
                         uint32_t level) {
    static const char more[] = " ...";
    char names[SESSION_STAGES];
    size_t used = 0, room = sizeof names - sizeof more;
    uint32_t i = 0;
    if (s->remote)
        return; // its connection has
    for (; i < count && used + 1 + stages[i].size <= room; i++) {
        if (i)
            names[used++] = ' ';
        memcpy(names + used, stages[i].data, stages[i].size);
        used += stages[i].size;
    }
    names[used] = 0;
    if (i < count)
        memcpy(names + used, more, sizeof more);
    session_work_for(s, names, level);
    if (s->remotes)
        router_identity_changed(s);
}

// All that a connection has taken comes back when it is lost, so there is a limit to it.
static bool take_within(struct session *s, struct take *t) {
    uint32_t held = session_jobs(s);
    if (held >= LIMIT_HELD) {
        answer_error(s, error_set(MR_EFULL,
                                  "this connection has taken %u jobs and not ended them, which is "
                                  "the most: end or RELEASE some first",
                                  held));
        return false;
    }
    if (t->count > LIMIT_HELD - held && s->host->first < s->host->end &&
        core_take_check(s->host->parts[s->host->first].core, t) == 0)
        t->count = LIMIT_HELD - held;
    return true;
}

static void take_leave(struct session *s) {
    shards_take_leave(s, NULL);
    router_end_reservation(s);
}

static void take_resume(struct session *s, void *state, enum wake wake) {
    (void)state;
    if (wake == WAKE_STOPPED)
        session_answer_stopped(s);
    else
        reply_array(&s->reply, 0);
}

static const struct wait_kind for_jobs = { .is_open = true,
                                           .leave = take_leave,
                                           .resume = take_resume };

bool take_waits(const struct session *s) {
    return s->wait.kind == &for_jobs && !s->wait.is_woken;
}

// Also while the server stops: a client that is answered at once would ask again at once.
static void take_wait(struct session *s, const struct take_options *o) {
    wait_begin(s, &for_jobs, NULL, 0, wait_until(s, o->wait_ms));
}

// It waits in other loops as well, and does so before any of its shards can answer.
static void take_reserved(struct session *s, const struct take *t, const struct take_options *o) {
    if (!router_may_reserve(s)) { // another loop has answered while this one was busy
        router_end_reservation(s);
        reply_array(&s->reply, 0);
        return;
    }
    take_wait(s, o);
    int err = s->host->stopping ? 0 : shards_take_reserved(s, t);
    if (err == 0 || !take_waits(s))
        return;
    shards_take_leave(s, NULL);
    wait_finish(s);
    answer_error(s, err);
}

void run_take(struct session *s, struct arguments *a) {
    struct take_options o = { 0 };
    struct host *h = s->host;
    uint32_t stages;
    size_t count = 0;
    if (!take_read(s, a, &o, &stages))
        return;
    struct take t = { .stages = a->words + 1,
                      .stage_count = stages,
                      .count = o.count,
                      .batch = o.batch,
                      .lease_ms = o.lease_ms,
                      .detached = o.detached };
    if (!take_within(s, &t))
        return;
    bool waits = o.wait_ms != 0;
    if (s->reserved) {
        take_reserved(s, &t, &o);
        return;
    }
    int err = h->stopping ? MR_EAGAIN : shards_take(s, &t, waits, h->grants, &count);
    if ((err >= 0 || err == MR_EAGAIN) && (!s->stages[0] || waits))
        session_note_stages(s, t.stages, stages, o.slots ? o.slots : s->level);
    else if (o.slots && !s->remote)
        session_work_for(s, s->stages, o.slots);
    if (err == MR_EAGAIN && waits)
        take_wait(s, &o);
    else if (err == MR_EAGAIN)
        reply_array(&s->reply, 0);
    else if (err < 0)
        answer_error(s, err);
    else
        (void)fetch_grants(s, h->grants, count); // now or later
}

// A limited token gets GONE for an unknown job before anything else is checked, as for one out of
// bounds (access_scope). `err`: of reading the token. The lease of a forgotten job may remain: the
// core ends it.
APART static int check_known(struct session *s, uint64_t id, const struct token *token, int err) {
    struct job_info job;
    if (s->checks || shards_look_job(s->host, id, &job) == 0)
        return err;
    return err == 0 ? core_release(core_of_job(s->host, id), id, token, 0) : access_no_job(id);
}

// The id and token that stand at words 1 and 2.
static bool read_lease(struct session *s, const mr_bytes *words, uint64_t *out_id,
                       struct token *out) {
    if (!read_id(s, words[0], out_id))
        return false;
    int err = token_read(words[1], out);
    if (access_is_limited(s))
        err = check_known(s, *out_id, out, err);
    if (err < 0)
        answer_error(s, err);
    return err == 0;
}

APART static struct session *find_worker(struct session *s, uint64_t id) {
    struct job_info job;
    return shards_look_job(s->host, id, &job) == 0 && job.conn ? session_of(job.conn) : s;
}

// The session that took the job: a client may take on one connection and end on another. A session
// that takes itself ends its own, which saves looking.
static struct session *worker_of(struct session *s, uint64_t id) {
    return s->stages[0] ? s : find_worker(s, id);
}

// ---- The level of a client ---------------------------------------------------------------------

static uint64_t maker_of(const struct session *s) {
    return s->who ? s->who->maker : 0;
}

static struct level_key level_key_of(const struct session *s, mr_bytes stage) {
    return (struct level_key){ .maker = maker_of(s), .client = mr_str(s->name), .stage = stage };
}

void run_level(struct session *s, struct arguments *a) {
    struct host *h = s->host;
    mr_bytes stage = a->words[1];
    size_t place;
    if (s->checks)
        return;
    if (!s->name[0]) {
        session_usage(s, "LEVEL needs a client with a name that is unique to its process: CLIENT "
                         "SETNAME name");
        return;
    }
    struct level_key key = level_key_of(s, stage);
    uint64_t now_ms = host_now_ms(h);
    struct client_level *level = levels_find(&h->levels, &key);
    int err = level ? 0 : core_stage_place(core_of_stage(h, stage), stage, &place);
    if (err == MR_EGONE) { // nothing can be learned before there is a job
        reply_integer(&s->reply, CLIMB_FIRST);
        return;
    }
    if (!level) {
        level = levels_make(&h->levels, &key, now_ms);
        budget_spend(s, h->levels.slab.used / STEP_LEVELS);
    }
    if (!level) {
        answer_error(s, error_set(MR_ENOMEM, "no memory for a level"));
        return;
    }
    level->used_ms = now_ms;
    reply_integer(&s->reply, climb_ask(&level->climb));
}

// A job that is about to end: by whom it was taken, and what learns from it.
struct ending {
    struct session *worker;
    struct client_level *level; // NULL: none
    uint32_t in_flight;
};

APART static void ending_find_level(struct ending *e, uint64_t id) {
    struct session *s = e->worker;
    struct job_info job;
    if (shards_look_job(s->host, id, &job) < 0)
        return;
    struct level_key key = level_key_of(s, job.stage);
    e->level = levels_find(&s->host->levels, &key);
    e->in_flight = session_jobs(s);
}

static struct ending ending_of(struct session *s, uint64_t id) {
    struct ending e = { .worker = worker_of(s, id) };
    if (levels_exist(&s->host->levels) && e.worker->name[0])
        ending_find_level(&e, id);
    return e;
}

static void note_end(const struct ending *e, int err) {
    e->worker->ended += err >= 0;
    if (err >= 0 && e->level && e->in_flight > 0)
        climb_completed(&e->level->climb, host_now_ms(e->worker->host), e->in_flight);
    if (e->worker->remote)
        session_offer(e->worker); // its connection counts them, too
}

static void answer_end(struct session *s, const struct ending *e, int err) {
    note_end(e, err);
    answer_ok(s, err);
}

// ---- Ending -------------------------------------------------------------------------------------

struct done_options {
    mr_bytes result, state;
};

static const struct option done_options[] = {
    { "RESULT", OPTION_BYTES, offsetof(struct done_options, result) },
    { "STATE", OPTION_BYTES, offsetof(struct done_options, state) },
    { 0 },
};

enum { EMIT_WORDS = 4 }; // EMIT, stage, key, body

static uint32_t count_emits(const struct arguments *a) {
    return (a->count - a->at) / EMIT_WORDS;
}

#define OF_EMIT(member, kind, word, ...) { word, OPTION_##kind, offsetof(struct emit, job.member) },

static const struct option emit_options[] = { EMIT_OPTIONS(OF_EMIT){ 0 } };

// Reads EMIT and its options. False: an error was answered.
static bool emit_read(struct session *s, struct arguments *a, struct emit *out) {
    const mr_bytes *word = &a->words[a->at];
    if (a->count - a->at < EMIT_WORDS) {
        session_usage(s, "EMIT needs a stage, a key (which may be empty) and a body behind it");
        return false;
    }
    *out = (struct emit){ .stage = word[1], .body = word[3], .job.key = word[2] };
    if (!access_name(s, "stage", word[1]))
        return false;
    a->at += EMIT_WORDS;
    int read = 1;
    while (read > 0 && a->at < a->count)
        read = option_read(s, a, emit_options, out);
    return read >= 0;
}

// Reads RESULT, STATE and EMIT in any order. -1: an error was answered.
static int done_read(struct session *s, struct arguments *a, struct done_options *o,
                     struct emit *emits) {
    int count = 0;
    while (a->at < a->count) {
        if (word_is(a->words[a->at], "EMIT")) {
            if (!emit_read(s, a, &emits[count++]))
                return -1;
            continue;
        }
        int read = option_read(s, a, done_options, o);
        if (read == 0)
            return options_read(s, a, done_options, o) ? count : -1; // answers which word is wrong
        if (read < 0)
            return -1;
    }
    return count;
}

APART static void done_with(struct session *s, struct arguments *a, struct done *d,
                            struct emit *emits) {
    struct done_options o = { 0 };
    int count = done_read(s, a, &o, emits);
    if (count < 0 || s->checks)
        return;
    d->result = o.result;
    d->set_state = o.state.data != NULL;
    d->state = o.state;
    d->emits = emits;
    d->emit_count = (size_t)count;
    struct ending e = ending_of(s, d->id);
    answer_end(s, &e, core_done(core_of_job(s->host, d->id), d));
}

HOT void run_done(struct session *s, struct arguments *a) {
    struct done d = { 0 };
    if (!read_lease(s, a->words + 1, &d.id, &d.token))
        return;
    a->at = 3;
    if (a->at == a->count && !s->checks) {
        struct ending e = ending_of(s, d.id);
        answer_end(s, &e, core_done(core_of_job(s->host, d.id), &d));
        return;
    }
    uint32_t most = count_emits(a);
    struct emit *emits = mem_alloc((most + 1) * sizeof *emits);
    if (!emits) {
        error_set(MR_ENOMEM, "no memory for %u emits", most);
        answer_error(s, MR_ENOMEM);
        return;
    }
    done_with(s, a, &d, emits);
    mem_free(emits);
}

// An id or token that cannot be read is an error of its own job, since other loops may have
// committed theirs.
static int done_one(struct session *s, const mr_bytes *words) {
    struct done d = { 0 };
    if (number_parse(words[0], &d.id) < 0)
        return error_set(MR_EINVAL, "'%.*s' is not an id",
                         (int)(words[0].size < 32 ? words[0].size : 32),
                         (const char *)words[0].data);
    int err = token_read(words[1], &d.token);
    if (err < 0)
        return err;
    if (!access_sees_job(s, d.id))
        return access_no_job(d.id);
    struct ending e = ending_of(s, d.id);
    err = core_done(core_of_job(s->host, d.id), &d);
    note_end(&e, err);
    return err;
}

void run_donemany(struct session *s, struct arguments *a) {
    if ((a->count - 1) % 2) {
        session_usage(s, "DONEMANY needs pairs of an id and a token");
        return;
    }
    bool is_prompt = s->is_prompt;
    reply_array(&s->reply, (a->count - 1) / 2);
    for (uint32_t i = 1; i < a->count; i += 2)
        answer_ok(s, done_one(s, a->words + i));
    s->is_prompt = is_prompt; // one may lack room, but the others must be durable
    budget_spend(s, STEPS_CHANGE * (uint64_t)(a->count / 2));
}

struct fail_options {
    int64_t retry_ms;
    bool never;
    mr_bytes output;
};

static const struct option fail_options[] = {
    { "OUTPUT", OPTION_BYTES, offsetof(struct fail_options, output) },
    { "RETRY", OPTION_MS, offsetof(struct fail_options, retry_ms) },
    { "NEVER", OPTION_FLAG, offsetof(struct fail_options, never) },
    { 0 },
};

static void fail_resume(struct session *, void *, enum wake);

static const struct wait_kind for_reasons = { .resume = fail_resume, .free = mem_free };

// The reasons of earlier attempts have to be read first. `kept`: its words, if it has waited
// before.
static void fail_wait(struct session *s, const struct arguments *a, struct kept_words *kept,
                      const struct job_info *job) {
    buffer_clear(&s->host->scratch);
    (void)fetch_look(s, job->shard, job->reasons_at, FETCH_BODY, &s->host->scratch); // notes it
    struct kept_words *words = kept ? kept : words_keep(a->words, a->count);
    if (!words)
        answer_error(s, error_set(MR_ENOMEM, "no memory to read earlier reasons"));
    else if (!fetch_wait(s, &for_reasons, words, words->bytes) && !kept)
        mem_free(words);
}

// Passes on what was read for the command to the core, which reads it in core_fail.
static void fail_pass_on(struct session *s, const struct job_info *job) {
    struct buffer reasons = { 0 };
    int err = fetch_look(s, job->shard, job->reasons_at, FETCH_BODY, &reasons);
    if (err != MR_EAGAIN && err != MR_ENOMEM)
        shard_keep(shard_at(s->host, job->shard), job->reasons_at, err, &reasons);
    buffer_finish(&reasons);
    buffer_clear(&s->host->wanted);
}

static void fail_with(struct session *s, struct arguments *a, struct kept_words *kept) {
    struct fail_options o = { .retry_ms = MR_BACKOFF };
    uint64_t id;
    struct token token;
    if (!read_lease(s, a->words + 1, &id, &token))
        return;
    a->at = 4;
    if (!options_read(s, a, fail_options, &o))
        return;
    if (o.never && o.retry_ms != MR_BACKOFF) {
        session_usage(s, "FAIL takes RETRY or NEVER, not both");
        return;
    }
    int64_t retry_ms = o.never ? MR_NEVER : o.retry_ms;
    struct ending e = ending_of(s, id);
    struct job_info job;
    if (kept && shards_look_job(s->host, id, &job) == 0 && job.reasons_at)
        fail_pass_on(s, &job);
    int err = core_fail_by(core_of_job(s->host, id), id, &token,
                           (struct cause){ a->words[3], o.output }, retry_ms);
    if (err == MR_EAGAIN && shards_look_job(s->host, id, &job) == 0)
        fail_wait(s, a, kept, &job);
    else
        answer_end(s, &e, err);
}

static void fail_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    struct kept_words *kept = state;
    struct arguments a = { .words = kept->words, .count = kept->count };
    if (s->host->stopped)
        session_answer_stopped(s);
    else
        fail_with(s, &a, kept);
}

void run_fail(struct session *s, struct arguments *a) {
    fail_with(s, a, NULL);
}

struct release_options {
    int64_t delay_ms;
};

static const struct option release_options[] = {
    { "DELAY", OPTION_MS, offsetof(struct release_options, delay_ms) },
    { 0 },
};

void run_release(struct session *s, struct arguments *a) {
    struct release_options o = { 0 };
    uint64_t id;
    struct token token;
    if (!read_lease(s, a->words + 1, &id, &token))
        return;
    a->at = 3;
    if (!options_read(s, a, release_options, &o))
        return;
    struct ending e = ending_of(s, id);
    answer_end(s, &e, core_release(core_of_job(s->host, id), id, &token, o.delay_ms));
}

// A beat that could not be recorded extends nothing, but the lease goes on until its end.
static bool must_stop(int err) {
    return err == MR_ESTALE || err == MR_ECANCELLED || err == MR_EEXPIRED || err == MR_EGONE;
}

// Answers with the jobs that must stop. An id that cannot be read refuses all.
void run_beat(struct session *s, struct arguments *a) {
    struct host *h = s->host;
    if ((a->count - 1) % 2) {
        session_usage(s, "BEAT needs pairs of an id and a token");
        return;
    }
    uint64_t id;
    struct token token;
    for (uint32_t i = 1; i < a->count; i += 2)
        if (!read_id(s, a->words[i], &id))
            return;
    uint32_t stops = 0;
    uint64_t written = shards_written(h);
    for (uint32_t i = 1; i < a->count; i += 2) {
        (void)read_id(s, a->words[i], &id); // it was read before
        bool lives = token_read(a->words[i + 1], &token) == 0 && access_sees_job(s, id) &&
                     !must_stop(core_beat(core_of_job(h, id), id, &token));
        if (!lives)
            h->arguments[stops++] = a->words[i]; // in place: it was read already
    }
    // Workers must not stop for a short outage of the store: only what was recorded waits for it.
    s->is_prompt = shards_written(h) == written && !s->multi.runs;
    reply_array(&s->reply, stops);
    for (uint32_t i = 0; i < stops; i++)
        reply_bulk(&s->reply, h->arguments[i]);
}

static bool read_amount(struct session *s, const char *what, mr_bytes word, uint64_t *out) {
    if (number_parse(word, out) == 0 && *out <= INT64_MAX)
        return true;
    option_refuse(s, what, "a number", word);
    return false;
}

struct progress_options {
    mr_bytes text;
};

static const struct option progress_options[] = {
    { "SAY", OPTION_BYTES, offsetof(struct progress_options, text) },
    { 0 },
};

static int progress_note(struct session *s, uint64_t id, mr_bytes text,
                         const struct job_progress *p) {
    struct token token;
    int err = token_read(text, &token);
    return err < 0 ? err : core_progress(core_of_job(s->host, id), id, &token, p);
}

void run_progress(struct session *s, struct arguments *a) {
    struct progress_options o = { 0 };
    struct job_progress p;
    uint64_t id;
    if (!read_id(s, a->words[1], &id) || !read_amount(s, "done", a->words[3], &p.done) ||
        !read_amount(s, "total", a->words[4], &p.total))
        return;
    a->at = 5;
    if (!options_read(s, a, progress_options, &o) || s->checks)
        return;
    struct job_info job;
    if (access_is_limited(s) && shards_look_job(s->host, id, &job) < 0) { // as one out of bounds
        answer_error(s, access_no_job(id));
        return;
    }
    p.text = o.text;
    uint64_t written = shards_written(s->host);
    int err = progress_note(s, id, a->words[2], &p);
    if (err < 0 && !must_stop(err)) {
        answer_error(s, err);
        return;
    }
    s->is_prompt = shards_written(s->host) == written && !s->multi.runs; // as BEAT
    reply_array(&s->reply, err < 0);
    if (err < 0)
        reply_bulk(&s->reply, a->words[1]);
}
