// JOB, JOBS, DEAD. Rows are collected first, since an array begins with its length.
#include "server/access.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/fetch.h"
#include "server/router.h"
#include "server/shards.h"

#include "base/errors.h"
#include "base/mem.h"
#include "core/record.h"
#include "wire/replies.h"

#include <stddef.h>
#include <string.h>

// ---- One job ----------------------------------------------------------------------------------

// The key of an ended job is only in the log.
static mr_bytes ended_key_of(struct session *s, const struct job_info *i) {
    struct buffer *head = &s->host->scratch;
    struct record record;
    if (job_status_has_key(i->status))
        return i->key;
    buffer_clear(head);
    if (fetch_look(s, i->shard, i->at, FETCH_HEAD, head) < 0 ||
        record_decode(buffer_bytes(head), NULL, &record) < 0)
        return i->key;
    return record.key;
}

static void write_reason(struct session *s, const struct reason *reason) {
    struct reason_reply r = { .attempt = reason->attempt,
                              .age_ms = host_now_ms(s->host) - reason->time_ms,
                              .text = reason->text,
                              .output = reason->output };
    reply_write(&s->reply, &reason_replies, &r);
}

// The job that is being written.
struct shown_job {
    struct session *session;
    const struct job_info *info;
    bool all_reasons; // else only the last one
    uint32_t meta_size;
    uint8_t meta[META_MOST]; // read with the body, which is written before it
};

// The reasons that are kept, oldest first.
static void write_reasons(void *arg) {
    const struct shown_job *job = arg;
    struct session *s = job->session;
    const struct job_info *i = job->info;
    struct buffer *kept = &s->host->scratch;
    struct reason r;
    buffer_clear(kept);
    if (i->reasons_at && fetch_look(s, i->shard, i->reasons_at, FETCH_BODY, kept) < 0)
        buffer_clear(kept);
    uint64_t count = 0, skip;
    for (size_t next = 0; reasons_next(buffer_bytes(kept), &next, &r);)
        count++;
    skip = job->all_reasons || !count ? 0 : count - 1;
    reply_array(&s->reply, count - skip);
    for (size_t next = 0; reasons_next(buffer_bytes(kept), &next, &r);)
        if (skip)
            skip--;
        else
            write_reason(s, &r);
}

static void write_progress(void *arg) {
    const struct shown_job *job = arg;
    const struct job_progress *p = &job->info->progress;
    struct progress_reply r = { .done = p->done, .total = p->total, .text = p->text };
    reply_write(&job->session->reply, &progress_replies, &r);
}

static void write_body(void *arg) {
    struct shown_job *job = arg;
    const struct job_info *i = job->info;
    if (i->status != JOB_DEAD && i->status > JOB_DONE)
        reply_null(&job->session->reply);
    else if (i->no_result)
        reply_bulk(&job->session->reply, (mr_bytes){ 0 });
    else if (answer_body(job->session, i->shard, i->at, i->meta_size, job->meta))
        job->meta_size = i->meta_size;
}

static void write_meta(void *arg) {
    const struct shown_job *job = arg;
    reply_bulk(&job->session->reply, (mr_bytes){ job->meta, job->meta_size });
}

static void write_job(struct session *s, const struct job_info *info, bool whole, bool body) {
    struct shown_job job = { .session = s, .info = info, .all_reasons = whole };
    struct job_reply r = { JOB_FIELDS(FROM_INFO) };
    r.status = mr_str(job_status_name(info->status));
    r.worker = info->conn ? router_id(session_of(info->conn)) : 0;
    r.reasons = (struct reply_other){ write_reasons, &job, NULL };
    if (info->has_progress)
        r.progress = (struct reply_other){ write_progress, &job, NULL };
    r.key = ended_key_of(s, info); // may be in `scratch`: JOB_FIELDS has it before the reasons
    if (body)
        *(info->status == JOB_DONE ? &r.result : &r.body) =
            (struct reply_other){ write_body, &job, NULL };
    if (body && info->meta_size)
        r.meta = (struct reply_other){ write_meta, &job, NULL };
    reply_write(&s->reply, &job_replies, &r);
}

struct job_options {
    bool body;
};

static const struct option job_options[] = {
    { "BODY", OPTION_FLAG, offsetof(struct job_options, body) },
    { 0 },
};

// Replies with one job, by its id.
struct found {
    uint64_t id;
    bool body;
};

// False: something has to be fetched; no reply was written.
static bool write_found(struct session *s, const struct found *found) {
    struct job_info info;
    size_t before = s->reply.out->size;
    int err = shards_look_job(s->host, found->id, &info);
    if (err < 0)
        answer_error(s, err);
    else
        write_job(s, &info, true, found->body);
    if (!fetch_is_needed(s))
        return true;
    s->reply.out->size = before;
    return false;
}

static void found_resume(struct session *, void *, enum wake);

static const struct wait_kind for_found = { .resume = found_resume, .free = mem_free };

static void found_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    if (!write_found(s, state))
        (void)fetch_wait(s, &for_found, state, sizeof(struct found)); // else it has replied
}

static void fetch_found(struct session *s, struct found found) {
    struct found *kept = mem_alloc(sizeof *kept);
    if (!kept) {
        answer_error(s, error_set(MR_ENOMEM, "no memory to read the job"));
        return;
    }
    *kept = found;
    if (!fetch_wait(s, &for_found, kept, sizeof *kept))
        mem_free(kept);
}

void run_job(struct session *s, struct arguments *a) {
    struct job_options o = { 0 };
    uint64_t id;
    a->at = 2;
    if (!read_id(s, a->words[1], &id) || !options_read(s, a, job_options, &o))
        return;
    struct found found = { id, o.body };
    if (!write_found(s, &found))
        fetch_found(s, found);
}

// ---- Lists ------------------------------------------------------------------------------------

struct rows {
    struct job_info *jobs;
    uint32_t count, most;
    uint32_t looked; // jobs examined
    mr_bytes key;    // only jobs of this key; empty: all
};

static int row_add(void *arg, const struct job_info *i) {
    struct rows *r = arg;
    if (r->count == r->most)
        return 1;
    if (!r->key.size || bytes_equal(r->key, i->key))
        r->jobs[r->count++] = *i;
    return r->count == r->most || ++r->looked == LIMIT_LOOKED;
}

static int rows_init(struct session *s, struct rows *r, uint32_t most, mr_bytes key) {
    budget_spend(s, most / STEP_ROWS); // also if there are fewer rows
    *r = (struct rows){ .most = most, .key = key, .jobs = mem_alloc((most + 1) * sizeof *r->jobs) };
    return r->jobs ? 0 : error_set(MR_ENOMEM, "no memory for a list of %u jobs", most);
}

// The jobs of a list, while something is fetched for it. They are looked up again afterwards; those
// that have changed their status are left out.
struct kept_rows {
    uint32_t count;
    struct {
        uint64_t id;
        enum job_status status;
    } rows[];
};

static size_t kept_rows_bytes(uint32_t count) {
    return sizeof(struct kept_rows) + count * sizeof((struct kept_rows *)0)->rows[0];
}

static struct kept_rows *rows_keep(const struct rows *r) {
    struct kept_rows *kept = mem_alloc(kept_rows_bytes(r->count));
    if (!kept)
        return NULL;
    kept->count = r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        kept->rows[i].id = r->jobs[i].id;
        kept->rows[i].status = r->jobs[i].status;
    }
    return kept;
}

// False: something has to be fetched; no reply was written.
static bool write_list_of_jobs(struct session *s, const struct rows *r) {
    size_t before = s->reply.out->size;
    reply_array(&s->reply, r->count);
    for (uint32_t i = 0; i < r->count; i++)
        write_job(s, &r->jobs[i], false, false);
    if (!fetch_is_needed(s))
        return true;
    s->reply.out->size = before;
    return false;
}

static void rows_resume(struct session *, void *, enum wake);

static const struct wait_kind for_rows = { .resume = rows_resume, .free = mem_free };

static void rows_resume(struct session *s, void *state, enum wake wake) {
    (void)wake;
    const struct kept_rows *kept = state;
    struct rows r;
    struct job_info info;
    int err = rows_init(s, &r, kept->count, (mr_bytes){ 0 });
    for (uint32_t i = 0; err == 0 && i < kept->count; i++)
        if (shards_look_job(s->host, kept->rows[i].id, &info) == 0 &&
            info.status == kept->rows[i].status)
            r.jobs[r.count++] = info;
    if (err < 0)
        answer_error(s, err);
    else if (!write_list_of_jobs(s, &r)) // without memory it has replied
        (void)fetch_wait(s, &for_rows, state, kept_rows_bytes(kept->count));
    mem_free(r.jobs);
}

static void fetch_rows(struct session *s, const struct rows *r) {
    struct kept_rows *kept = rows_keep(r);
    if (!kept)
        answer_error(s, error_set(MR_ENOMEM, "no memory to read a list of %u jobs", r->count));
    else if (!fetch_wait(s, &for_rows, kept, kept_rows_bytes(r->count)))
        mem_free(kept);
}

static void write_rows(struct session *s, struct rows *r, int err) {
    if (err == WALK_CUT && !r->count)
        err = error_set(MR_ETOOBIG,
                        "none of the first %u jobs matches, and one command examines no more: a "
                        "shorter retention keeps fewer jobs",
                        LIMIT_LOOKED);
    if (err < 0)
        answer_error(s, err);
    else if (!write_list_of_jobs(s, r))
        fetch_rows(s, r);
    mem_free(r->jobs);
}

struct jobs_options {
    mr_bytes key, status;
    uint64_t from;
    uint32_t count;
    bool parked;
};

#define AT(field) offsetof(struct jobs_options, field)

static const struct option jobs_options[] = {
    { "KEY", OPTION_BYTES, AT(key) },      { "STATUS", OPTION_BYTES, AT(status) },
    { "PARKED", OPTION_FLAG, AT(parked) }, { "FROM", OPTION_NUMBER, AT(from) },
    { "COUNT", OPTION_COUNT, AT(count) },  { 0 },
};

// False: the status is unknown, or cannot be combined with the other options; the error was
// replied.
static bool status_read(struct session *s, const struct jobs_options *o, enum job_status *out) {
    if (o->parked && (o->status.data || o->key.data)) {
        session_usage(s, "PARKED cannot be combined with STATUS or KEY");
        return false;
    }
    *out = JOB_WAITING;
    if (!o->status.data)
        return true;
    enum job_status status;
    if (!job_status_find(o->status, &status))
        option_refuse(s, "STATUS", "running, waiting, delayed, dead, done, expired or cancelled",
                      o->status);
    else if (o->key.size && !job_status_has_key(status))
        session_usage(s, "ended jobs cannot be listed by KEY");
    else {
        *out = status;
        return true;
    }
    return false;
}

static int walk_rows(struct session *s, const struct jobs_options *o, mr_bytes stage,
                     enum job_status status, struct rows *r) {
    struct job_walk w = { .stage = stage,
                          .key = o->key,
                          .status = status,
                          .parked = o->parked,
                          .from = o->from,
                          .steps = LIMIT_LOOKED };
    if (o->parked || o->status.data)
        return shards_walk(s->host, &w, row_add, r);
    if (w.from && !access_sees_job(s, w.from))
        return access_no_job(w.from);
    return core_walk_all(core_of_stage(s->host, stage), &w, row_add, r);
}

void run_jobs(struct session *s, struct arguments *a) {
    struct jobs_options o = { .count = LIMIT_LISTED };
    struct rows r;
    enum job_status status;
    a->at = 2;
    if (!options_read(s, a, jobs_options, &o) || !status_read(s, &o, &status))
        return;
    int err = rows_init(s, &r, listed(o.count), o.key);
    if (!err)
        err = walk_rows(s, &o, a->words[1], status, &r);
    write_rows(s, &r, err);
}

// ---- DEAD -------------------------------------------------------------------------------------

static const struct option dead_options[] = {
    { "FROM", OPTION_NUMBER, AT(from) },
    { "COUNT", OPTION_COUNT, AT(count) },
    { 0 },
};

// Lists dead jobs of all stages, shard by shard, from the first or after the job `from`.
static int walk_all_dead(struct session *s, uint64_t from, struct rows *r) {
    struct host *h = s->host;
    struct job_walk w = { .status = JOB_DEAD, .from = from };
    struct job_info info;
    uint32_t shard = h->first, number = 0;
    if (from && !access_sees_job(s, from))
        return access_no_job(from);
    int err = from ? shards_look_job(h, from, &info) : 0;
    if (from && !err) {
        w.stage = info.stage;
        shard = route_of(h->shards, w.stage);
        number = core_stage_number(h->parts[shard].core, w.stage);
        err = shards_walk(h, &w, row_add, r);
        w.from = 0;
    }
    for (; !err && shard < h->end; shard++, number = 0)
        while (!err && (number = core_next_dead_stage(h->parts[shard].core, number, &w.stage))) {
            if (access_sees(s, w.stage))
                err = shards_walk(h, &w, row_add, r);
        }
    return err;
}

void run_dead(struct session *s, struct arguments *a) {
    struct jobs_options o = { .count = LIMIT_LISTED };
    struct job_walk w = { .status = JOB_DEAD };
    struct rows r;
    // Options are pairs, so if the number of arguments is odd the first is a stage, whatever its
    // name.
    bool option = a->count > 1 && (word_is(a->words[1], "FROM") || word_is(a->words[1], "COUNT"));
    bool one = a->count > 1 && (!option || a->count % 2 == 0);
    a->at += one;
    if (!options_read(s, a, dead_options, &o) || (one && !access_name(s, "stage", a->words[1])))
        return;
    int err = rows_init(s, &r, listed(o.count), (mr_bytes){ 0 });
    if (!err && one) {
        w.stage = a->words[1];
        w.from = o.from;
        err = shards_walk(s->host, &w, row_add, &r);
    } else if (!err) {
        err = walk_all_dead(s, o.from, &r);
    }
    write_rows(s, &r, err);
}
