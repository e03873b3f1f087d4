// A leased job: taking it, reading it, filling in what its commit will contain, ending it.
#include "api/handle.h"
#include "base/clock.h"
#include "base/errors.h"

#include <inttypes.h>

// ---- Taking -----------------------------------------------------------------------------------

static int check_take(const mr_take_options *o) {
    int err = check_wait("wait_ms", o->wait_ms);
    if (err >= 0)
        err = check_time("lease_ms", o->lease_ms);
    if (err >= 0 && o->batch > TAKE_MOST)
        err = error_set(MR_EINVAL, "a batch of %u is too large: %d at most", o->batch, TAKE_MOST);
    if (err >= 0)
        err = check_reserved(o->reserved, sizeof o->reserved / sizeof *o->reserved);
    return err;
}

int mr_take(mr *m, const char *stage, const mr_take_options *o, mr_job **out) {
    static const mr_take_options defaults;
    mr_bytes name;
    o = o ? o : &defaults;
    int err = check_open_engine(m);
    if (err >= 0)
        err = check_stage(stage, &name);
    if (err >= 0)
        err = check_pointer("the place for the job", out);
    if (err >= 0)
        err = check_take(o);
    if (err < 0)
        return err;
    if (atomic_load(&m->blocks) && ahead_take(m, name, out) == 0)
        return 0;
    struct pull pull = { .stages = &name,
                         .stage_count = 1,
                         .batch = o->batch ? o->batch : 1,
                         .lease_ms = o->lease_ms,
                         .wait_ms = o->wait_ms };
    mr_job *job;
    err = m->engine->impl->take(m->puller, &pull, &job);
    if (err >= 0 && job->next)
        err = ahead_keep(m, job);
    if (err >= 0)
        *out = job;
    return err;
}

// ---- Ending -----------------------------------------------------------------------------------

// Claims the job for the caller to end, after which it is used up; returns its owner and run.
static int claim_job(mr_job *job, struct leased_job_owner **out_owner, uint64_t *out_run) {
    int err = check_job(job);
    if (err < 0)
        return err;
    *out_owner = job->owner;
    *out_run = job->run;
    if (!leased_job_claim(job))
        return error_set(MR_EINVAL, "the job is being ended by another thread");
    return 0;
}

// Calls the owner, if there is one, which has the jobs that follow.
static int call_owner(struct leased_job_owner *owner, uint64_t run, int err, int outcome) {
    if (owner)
        owner->ended(owner, run, outcome);
    return err;
}

int mr_done(mr_job *job) {
    struct leased_job_owner *owner;
    uint64_t run;
    int err = claim_job(job, &owner, &run);
    if (err < 0)
        return err;
    err = impl_of_job(job)->done(job, FINISH_WAIT);
    return call_owner(owner, run, err, err);
}

int mr_fail(mr_job *job, const char *reason, int64_t retry_ms) {
    struct leased_job_owner *owner;
    uint64_t run;
    int err = check_job(job);
    if (err >= 0 && retry_ms < MR_NEVER)
        err = error_set(MR_EINVAL, "retry_ms is none of a time, MR_BACKOFF, MR_NEVER; the job is "
                                   "still leased");
    if (err >= 0)
        err = claim_job(job, &owner, &run);
    if (err < 0)
        return err;
    const char *own = leased_job_reason(job);
    mr_bytes why = mr_str(reason ? reason : own ? own : "no reason was given");
    err = impl_of_job(job)->fail(job, why, retry_ms, FINISH_WAIT);
    return call_owner(owner, run, err, err < 0 ? err : MR_ESTALE);
}

int mr_release(mr_job *job, int64_t delay_ms) {
    struct leased_job_owner *owner;
    uint64_t run;
    int err = check_job(job);
    if (err >= 0 && (delay_ms < 0 || delay_ms > TIME_MOST_MS))
        err = error_set(MR_EINVAL, "delay_ms is not from 0 to 100 years; the job is still leased");
    if (err >= 0)
        err = claim_job(job, &owner, &run);
    if (err < 0)
        return err;
    err = impl_of_job(job)->release(job, delay_ms, FINISH_WAIT);
    return call_owner(owner, run, err, err < 0 ? err : MR_ESTALE);
}

int mr_beat(mr_job *job) {
    int err = check_job(job);
    return err < 0 ? err : impl_of_job(job)->beat(job);
}

int mr_job_progress(mr_job *job, uint64_t done, uint64_t total, const char *text) {
    struct job_progress said = { done, total, mr_str(text) };
    int err = check_job(job);
    if (err >= 0 && (done > INT64_MAX || total > INT64_MAX))
        err = error_set(MR_EINVAL, "a progress of %" PRIu64 " of %" PRIu64 " is too large", done,
                        total);
    return err < 0 ? err : impl_of_job(job)->progress(job, &said, true);
}

// ---- Reading ----------------------------------------------------------------------------------

mr_id mr_job_id(const mr_job *job) {
    return job ? job->id : 0;
}

const char *mr_job_stage(const mr_job *job) {
    return job ? leased_job_stage(job) : "";
}

mr_bytes mr_job_key(const mr_job *job) {
    return job ? leased_job_key(job) : (mr_bytes){ 0 };
}

mr_bytes mr_job_body(const mr_job *job) {
    return job ? buffer_bytes(&job->body) : (mr_bytes){ 0 };
}

mr_bytes mr_job_meta(const mr_job *job) {
    return job ? leased_job_meta(job) : (mr_bytes){ 0 };
}

mr_bytes mr_job_state(const mr_job *job) {
    return job ? leased_job_state(job) : (mr_bytes){ 0 };
}

uint32_t mr_job_attempt(const mr_job *job) {
    return job ? job->attempt : 0;
}

int64_t mr_job_left_ms(const mr_job *job) {
    if (!job || !job->deadline_at_ms)
        return MR_FOREVER;
    uint64_t now_ms = monotonic_ms();
    return job->deadline_at_ms > now_ms ? (int64_t)(job->deadline_at_ms - now_ms) : 0;
}

int mr_job_stopped(const mr_job *job) {
    return job && leased_job_stopped(job) != 0;
}

// ---- What its commit will contain -------------------------------------------------------------

static int set_bytes(const char *what, struct buffer *to, mr_bytes from, size_t most) {
    int err = check_bytes(what, from);
    if (err < 0)
        return err;
    if (from.size > most)
        return error_set(MR_ETOOBIG, "a %s of %zu bytes: %zu at most", what, from.size, most);
    err = buffer_reserve(to, from.size + 1 > to->size ? from.size + 1 - to->size : 0);
    if (err < 0)
        return err;
    buffer_clear(to);
    buffer_append(to, from.data, from.size);
    to->data[to->size] = 0; // as everywhere: behind it, not counted
    return 0;
}

// The job, and room for what its handler sets.
static int check_and_make_output(mr_job *job, struct job_output **out) {
    int err = check_job(job);
    if (err < 0)
        return err;
    struct job_output *output = leased_job_output_made(job);
    if (!output)
        return MR_ENOMEM;
    *out = output;
    return 0;
}

int mr_job_set_result(mr_job *job, mr_bytes result) {
    struct job_output *to;
    int err = check_and_make_output(job, &to);
    return err < 0 ? err : set_bytes("result", &to->result, result, BODY_MOST);
}

int mr_job_set_state(mr_job *job, mr_bytes state) {
    struct job_output *to;
    int err = check_and_make_output(job, &to);
    if (err >= 0 && job->key_size == 0)
        err = error_set(MR_EINVAL, "a job without a key has no channel to keep state: push it with "
                                   "a key");
    if (err >= 0 && !leased_job_buffer_made(&to->new_state))
        err = MR_ENOMEM;
    if (err >= 0)
        err = set_bytes("state", to->new_state, state, STATE_MOST);
    if (err >= 0)
        job->has_new_state = true;
    return err;
}

int mr_job_set_reason(mr_job *job, const char *reason) {
    struct job_output *to;
    int err = check_and_make_output(job, &to);
    if (err >= 0)
        err = check_pointer("the reason", reason);
    if (err < 0)
        return err;
    mr_bytes text = { reason, strnlen(reason, REASON_MOST) };
    return set_bytes("reason", &to->reason, text, REASON_MOST);
}

int mr_job_set_output(mr_job *job, mr_bytes output) {
    struct job_output *to;
    int err = check_and_make_output(job, &to);
    if (err >= 0)
        err = check_bytes("output", output);
    if (err < 0)
        return err;
    if (output.size > LAST_WORDS_MOST)
        output = (mr_bytes){ (const char *)output.data + (output.size - LAST_WORDS_MOST),
                             LAST_WORDS_MOST };
    return set_bytes("output", &to->last_words, output, LAST_WORDS_MOST);
}

static int check_emit_size(const char *name, size_t size, size_t most) {
    if (size <= most)
        return 0;
    return error_set(MR_ETOOBIG, "a %s of %zu bytes: %zu at most", name, size, most);
}

#define CHECK_SIZE(member, kind, word, value, name, argument, most, about)                         \
    if ((err = CHECK_SIZE_##kind(name, o->member, most)) < 0)                                      \
        return err;
#define CHECK_SIZE_BYTES(name, bytes, most) check_emit_size(name, (bytes).size, most)
#define CHECK_SIZE_MS(name, ms, most) 0
#define CHECK_SIZE_COUNT(name, count, most) 0
#define CHECK_SIZE_FLAG(name, flag, most) 0

static int check_emit(mr_bytes body, const mr_push_options *o) {
    int err = 0;
    if (o->room_ms)
        return error_set(MR_EINVAL, "an emit never waits for room: room_ms must be 0");
    if (o->last)
        return error_set(MR_EINVAL, "an emit replaces no job: last must be 0");
    JOB_OPTIONS(CHECK_SIZE)
    return check_bytes("body", body);
}

int mr_job_emit(mr_job *job, const char *stage, mr_bytes body, const mr_push_options *o) {
    mr_bytes name;
    int err = check_job(job);
    if (err >= 0)
        err = check_stage_name(stage, &name);
    if (err >= 0)
        err = check_push_options(&o);
    if (err >= 0)
        err = check_emit(body, o);
    return err < 0 ? err : leased_job_add_emit(job, name, body, o);
}
