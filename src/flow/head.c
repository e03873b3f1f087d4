// A job of a flow, at the head that it was sent to: its pairs run through the head and all that is
// fused behind it; what comes of that, the partition's state and the end of the job are one commit.
//
// Jobs and states say of which run of the flow they are. What an earlier run has left in a state
// counts as nothing; and what comes of a run that is over, from a process that does not know that
// yet, changes nothing.
#include "base/bytes.h"
#include "base/errors.h"
#include "base/limits.h"
#include "base/mem.h"
#include "flow/block.h"
#include "flow/state.h"

#include <inttypes.h>
#include <stdio.h>

// ---- State ------------------------------------------------------------------------------------

// The run of which the partition has kept something; 0: it has kept nothing. `out->kept` is what.
static int state_open(struct mr_flow_out *out, uint64_t *out_run) {
    mr_bytes state = keeps_state(out->head) ? mr_job_state(out->job) : (mr_bytes){ 0 };
    struct reader r = reader_of(state);
    out->kept = (mr_bytes){ 0 };
    *out_run = state.size ? get_number(&r) : 0;
    if (state.size)
        out->kept = (mr_bytes){ r.data + r.at, r.size - r.at };
    return r.bad ? out_fail(out, MR_ECORRUPT, "the state of its partition is damaged") : 0;
}

static int state_begin(struct mr_flow_out *out) {
    struct op *op = out->head;
    if (is_sink(op))
        return sink_begin(out, op);
    int err = op->keyed_state ? keyed_load(&out->keyed, out->kept) : 0;
    return err < 0 ? out_fail(out, err, "%s", error_text()) : 0;
}

static int refuse_large_state(struct mr_flow_out *out) {
    return out_fail(
        out, MR_ETOOBIG,
        "what its keys keep in one of its partitions has %zu bytes, 1 MiB is the limit; "
        "with more partitions each keeps less: it has %u, %d at most",
        out->saved.size, out->head->options.partitions, FLOW_PARTITIONS);
}

static int state_end(struct mr_flow_out *out) {
    struct op *op = out->head;
    uint8_t run[SIZES_MOST];
    if (is_sink(op))
        return sink_end(out, op);
    if (!op->keyed_state)
        return 0;
    size_t run_size = (size_t)(put_size(run, out->run) - run);
    buffer_clear(&out->saved);
    int err = buffer_append(&out->saved, run, run_size);
    if (err >= 0)
        err = keyed_save(&out->keyed, &out->saved);
    bool keeps = out->saved.size > run_size;
    if (err >= 0)
        err = mr_job_set_state(out->job, keeps ? buffer_bytes(&out->saved) : (mr_bytes){ 0 });
    if (err == MR_ETOOBIG)
        return refuse_large_state(out);
    return err < 0 ? out_fail(out, err, "%s", mr_error()) : 0;
}

// ---- Pairs ------------------------------------------------------------------------------------

static int damaged(struct mr_flow_out *out) {
    return out_fail(out, MR_ECORRUPT, "the body is not a block of pairs");
}

static int run_pair(struct mr_flow_out *out, mr_pair pair) {
    out->bytes_before = out->bytes;
    return operate(out, out->head, pair);
}

static int run_pairs(struct mr_flow_out *out, struct reader *r) {
    int err = 0;
    for (mr_pair pair; err >= 0 && block_next(r, &pair);)
        err = run_pair(out, pair);
    return err >= 0 && r->bad ? damaged(out) : err;
}

// Pairs that fail now are set apart, and the others go on: in the last attempt all that do, else
// those that will never do.
static bool goes_apart(const struct mr_flow_out *out, int answer) {
    if (answer == MR_EBUSY)
        return false;
    return answer == MR_EDEAD || mr_job_attempt(out->job) >= out->head->options.attempts;
}

static void head_write_reason(const struct op *failed, const char *why, char out[REASON_MOST]) {
    if (failed->title)
        snprintf(out, REASON_MOST, "%s: %s", failed->title, why);
    else
        snprintf(out, REASON_MOST, "operator %s: %s", failed->name, why);
}

static int set_aside(struct mr_flow_out *out, struct marks *marks, mr_pair pair) {
    char reason[REASON_MOST + 1 + LAST_WORDS_MOST], key[KEY_MOST];
    mr_bytes listed = { key, out->key_size };
    memcpy(key, out->key, out->key_size);
    head_write_reason(out->failed ? out->failed : out->head, out->reason, reason);
    size_t size = strlen(reason);
    if (out->output_size) {
        memcpy(reason + size + 1, out->output, out->output_size); // behind the 0 byte
        size += 1 + out->output_size;
    }
    out_return(out, marks);
    return out_set_aside(out, pair, listed.size ? listed : pair.key, (mr_bytes){ reason, size });
}

static int run_pairs_apart(struct mr_flow_out *out, struct reader *r) {
    struct marks marks = { 0 };
    int err = 0;
    for (mr_pair pair; err >= 0 && block_next(r, &pair);) {
        err = out_mark(out, &marks);
        int answer = err < 0 ? err : run_pair(out, pair);
        if (err < 0 || answer >= 0)
            continue;
        err = goes_apart(out, answer) ? set_aside(out, &marks, pair) : answer;
    }
    mem_free(marks.marks);
    return err >= 0 && r->bad ? damaged(out) : err;
}

// What OPERATOR_PUSH has emitted cannot be taken back within a job.
static bool sets_apart(const struct mr_flow_out *out, struct reader r) {
    const struct op *op = out->head;
    mr_pair pair;
    bool last = mr_job_attempt(out->job) >= op->options.attempts;
    return (last || out->apart) && op->kind != OPERATOR_PUSH && strcmp(op->on_dead, "halt") != 0 &&
           block_next(&r, &pair);
}

// What kind of job it is, and its pairs. A job of OPERATOR_TAKE's stage is one pair, of this run.
struct job_block {
    uint8_t what;
    struct reader pairs;
    struct letter letter; // if it is one
};

static int block_open(struct mr_flow_out *out, struct job_block *b) {
    *b = (struct job_block){ .what = BLOCK_PAIRS, .pairs = reader_of(mr_job_body(out->job)) };
    if (out->head->kind == OPERATOR_TAKE)
        return 0;
    b->what = b->pairs.size ? get_u8(&b->pairs) : 0;
    out->run = get_number(&b->pairs);
    bool known = b->what == BLOCK_PAIRS || b->what == BLOCK_FLUSH || b->what == BLOCK_ERASE ||
                 (b->what == BLOCK_DEAD && letter_read(&b->pairs, &b->letter));
    return known && !b->pairs.bad ? 0 : damaged(out);
}

static int run_block(struct mr_flow_out *out, struct job_block *b) {
    struct op *op = out->head;
    if (op->kind == OPERATOR_TAKE)
        return run_pair(out, (mr_pair){ mr_job_key(out->job), mr_job_body(out->job) });
    if (b->what == BLOCK_FLUSH)
        return op->kind == OPERATOR_AGGREGATE ? window_flush(out, op) : damaged(out);
    return sets_apart(out, b->pairs) ? run_pairs_apart(out, &b->pairs) : run_pairs(out, &b->pairs);
}

// ---- The job ----------------------------------------------------------------------------------

// The latest run that this process knows of; `run` if that is later.
static uint64_t latest_run(struct mr_flow *f, uint64_t run) {
    uint64_t latest = atomic_load(&f->latest);
    while (latest < run && !atomic_compare_exchange_weak(&f->latest, &latest, run))
        ;
    return latest > run ? latest : run;
}

// A job of a run that is over: its pairs are refused; a flush or an erase of it needs nothing more.
static int end_late(struct mr_flow_out *out, uint8_t what, uint64_t now) {
    if (what == BLOCK_FLUSH || what == BLOCK_ERASE)
        return 0;
    return out_fail(out, MR_ECORRUPT,
                    "these are pairs of run %" PRIu64 " of the flow, which is over: now it is run "
                    "%" PRIu64,
                    out->run, now);
}

static bool was_retried(const mr_job *letter) {
    return mr_job_left_ms(letter) == MR_FOREVER; // see block.h
}

static int letter_die(mr_job *job, const struct letter *letter) {
    char reason[REASON_MOST];
    mr_bytes text = letter->reason;
    const char *end = text.size ? memchr(text.data, 0, text.size) : NULL;
    size_t size = end ? (size_t)(end - (const char *)text.data) : text.size;
    snprintf(reason, sizeof reason, "%.*s", (int)size, (const char *)text.data);
    if (end)
        (void)mr_job_set_output(job, (mr_bytes){ end + 1, text.size - size - 1 }); // or without it
    (void)mr_fail(job, reason, MR_NEVER); // if that fails its lease ends, too
    return MR_LATER;
}

static int head_run(struct mr_flow_out *out) {
    struct job_block block;
    uint64_t kept = 0;
    int err = block_open(out, &block);
    if (err >= 0)
        err = state_open(out, &kept);
    if (err < 0)
        return err;
    if (block.what == BLOCK_DEAD && !was_retried(out->job))
        return letter_die(out->job, &block.letter);
    uint64_t latest = latest_run(out->flow, kept > out->run ? kept : out->run);
    if (out->run < latest)
        return end_late(out, block.what, latest);
    if (block.what == BLOCK_ERASE)
        return mr_job_set_state(out->job, (mr_bytes){ 0 });
    if (block.what == BLOCK_DEAD)
        return out_put_back(out, &block.letter);
    if (kept < out->run)
        out->kept = (mr_bytes){ 0 };
    err = state_begin(out);
    if (err >= 0)
        err = run_block(out, &block);
    if (err >= 0)
        err = state_end(out);
    if (err >= 0)
        err = out_emit(out);
    if (err >= 0 && out->flushed)
        err = mr_job_set_result(out->job, mr_str("flushed"));
    return err;
}

// Runs the job; if some pairs can never succeed, runs it again with those set apart.
static int head_run_job(struct op *op, mr_job *job, struct mr_flow_out **out) {
    int err = head_run(*out);
    if (err != MR_EDEAD)
        return err;
    out_reuse(*out);
    *out = out_new(op, job);
    if (!*out)
        return MR_ENOMEM;
    (*out)->apart = true;
    return head_run(*out);
}

// Errors that another attempt would not change.
static bool is_for_good(int err) {
    return err == MR_EDEAD || err == MR_ETOOBIG || err == MR_EFULL || err == MR_ECORRUPT;
}

static int head_fail(struct op *op, mr_job *job, const struct mr_flow_out *out, int err) {
    const struct op *failed = out && out->failed ? out->failed : op;
    char reason[REASON_MOST];
    if (err == MR_EBUSY) {
        (void)mr_release(job, 0); // if that fails its lease ends, too
        return MR_LATER;
    }
    head_write_reason(failed, out ? out->reason : error_text(), reason);
    if (out)
        (void)mr_job_set_output(job, (mr_bytes){ out->output, out->output_size }); // or without it
    (void)mr_fail(job, reason, is_for_good(err) ? MR_NEVER : MR_BACKOFF);          // so with this
    return MR_LATER;
}

int head_handle(mr_job *job, void *arg) {
    struct op *op = arg;
    struct mr_flow_out *out = out_new(op, job);
    int err = out ? head_run_job(op, job, &out) : MR_ENOMEM;
    if (err < 0)
        err = head_fail(op, job, out, err);
    if (out)
        out_reuse(out);
    return err;
}

void head_on_stop(mr_job *job, void *arg) {
    const struct op *op = arg;
    if (op->flow->options.on_stop)
        op->flow->options.on_stop(job, op->flow->options.arg);
}
