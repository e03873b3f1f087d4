// What functions make: pairs travel through fused operators at once, by calls, and gather in blocks
// for the partitions of the heads that they come to. Nothing leaves before the job's commit.
#include "base/bytes.h"
#include "base/errors.h"
#include "base/limits.h"
#include "base/mem.h"
#include "flow/block.h"
#include "flow/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { KEPT_BYTES = 1 << 18 }; // a free one keeps buffers up to this size

// ---- Free ones --------------------------------------------------------------------------------

struct mr_flow_out *out_new(struct op *head, mr_job *job) {
    struct mr_flow *f = head->flow;
    pthread_mutex_lock(&f->lock);
    struct mr_flow_out *out = f->free_outs;
    if (out)
        f->free_outs = out->next;
    pthread_mutex_unlock(&f->lock);
    if (!out)
        out = mem_alloc(sizeof *out);
    if (!out) {
        error_set(MR_ENOMEM, "no memory to run operator %s", head->name);
        return NULL;
    }
    out->flow = f;
    out->head = head;
    out->job = job;
    out->run = f->run;
    return out;
}

static void clear(struct buffer *b) {
    buffer_clear(b);
    if (b->capacity > KEPT_BYTES)
        buffer_finish(b);
}

static void route_clear(struct out_route *r) {
    for (uint32_t i = 0; i < r->part_count; i++) {
        clear(&r->parts[i].pairs);
        r->parts[i].count = 0;
    }
}

static void routes_clear(struct mr_flow_out *out) {
    for (uint32_t i = 0; i < out->flow->head_count; i++)
        route_clear(&out->routes[i]);
    clear(&out->aside.pairs);
    out->aside.count = 0;
    clear(&out->letters);
    out->letter_count = 0;
    out->bytes = 0;
}

// Clears the reason, key and output that a function has set for its failure.
static void failure_clear(struct mr_flow_out *out) {
    out->reason[0] = 0;
    out->key_size = 0;
    out->output_size = 0;
}

void out_reuse(struct mr_flow_out *out) {
    struct mr_flow *f = out->flow;
    routes_clear(out);
    struct buffer *buffers[] = { &out->block, &out->set, &out->windows, &out->text, &out->saved };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        clear(buffers[i]);
    out->frame = NULL;
    out->has_set = out->flushed = out->apart = false;
    out->state = (mr_bytes){ 0 };
    out->received = 0;
    out->err = 0;
    out->failed = NULL;
    failure_clear(out);
    pthread_mutex_lock(&f->lock);
    out->next = f->free_outs;
    f->free_outs = out;
    pthread_mutex_unlock(&f->lock);
}

static void route_finish(struct out_route *r) {
    for (uint32_t i = 0; i < r->part_count; i++)
        buffer_finish(&r->parts[i].pairs);
    mem_free(r->parts);
}

void out_destroy(struct mr_flow_out *out) {
    for (uint32_t i = 0; i < FLOW_STAGES; i++)
        route_finish(&out->routes[i]);
    buffer_finish(&out->aside.pairs);
    keyed_finish(&out->keyed);
    buffer_finish(&out->letters);
    buffer_finish(&out->block);
    buffer_finish(&out->set);
    buffer_finish(&out->windows);
    buffer_finish(&out->text);
    buffer_finish(&out->saved);
    mem_free(out);
}

// ---- Functions at work ------------------------------------------------------------------------

int out_fail(struct mr_flow_out *out, int code, const char *format, ...) {
    if (out->err < 0)
        return out->err;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(out->reason, sizeof out->reason, format, arguments);
    va_end(arguments);
    out->err = code;
    out->failed = out->frame ? out->frame->op : out->head;
    return code;
}

void frame_begin(struct mr_flow_out *out, struct frame *frame, struct op *op, enum may may) {
    *frame = (struct frame){ .op = op, .may = may, .below = out->frame };
    out->frame = frame;
    if (out->err >= 0)
        failure_clear(out);
}

// A refused emit fails the attempt also if the function ignored it.
int frame_end(struct mr_flow_out *out, int answer) {
    if (answer < 0 && out->err >= 0 && !out->reason[0])
        out_fail(out, answer, "its function answered %d and gave no reason", answer);
    if (answer < 0 && out->err >= 0) {
        out->err = answer;
        out->failed = out->frame->op;
    }
    out->frame = out->frame->below;
    return out->err;
}

const mr_job *mr_flow_job(const mr_flow_out *out) {
    return out ? out->job : NULL;
}

int mr_flow_set_reason(mr_flow_out *out, const char *reason) {
    if (!out || !reason || !out->frame)
        return error_set(MR_EINVAL, "a reason is set by a function of an operator");
    if (out->err >= 0)
        snprintf(out->reason, sizeof out->reason, "%s", reason);
    return 0;
}

int mr_flow_set_key(mr_flow_out *out, mr_bytes key) {
    if (!out || !out->frame || (key.size && !key.data))
        return error_set(MR_EINVAL, "a key is set by a function of an operator");
    if (out->err >= 0) {
        out->key_size = key.size < sizeof out->key ? key.size : sizeof out->key;
        if (key.size)
            memcpy(out->key, key.data, out->key_size);
    }
    return 0;
}

int mr_flow_set_output(mr_flow_out *out, mr_bytes output) {
    if (!out || !out->frame || (output.size && !output.data))
        return error_set(MR_EINVAL, "an output is set by a function of an operator");
    if (out->err < 0)
        return 0;
    size_t size = output.size < LAST_WORDS_MOST ? output.size : LAST_WORDS_MOST;
    if (size)
        memcpy(out->output, (const char *)output.data + (output.size - size), size);
    out->output_size = size;
    return 0;
}

int mr_flow_expect(mr_flow_out *out, uint64_t blocks) {
    if (!out || !out->frame || out->frame->op->kind != OPERATOR_SOURCE)
        return error_set(MR_EINVAL, "how many blocks there will be is a source's to say");
    out->expected = blocks;
    return 0;
}

mr_bytes mr_flow_state(const mr_flow_out *out) {
    return out ? out->state : (mr_bytes){ 0 };
}

static int check_bytes_of(struct mr_flow_out *out, const char *what, mr_bytes bytes) {
    if (bytes.data || bytes.size == 0)
        return 0;
    return error_set(out_fail(out, MR_EINVAL, "its %s has %zu bytes at NULL", what, bytes.size),
                     "the %s has %zu bytes at NULL: {NULL, 0} is empty", what, bytes.size);
}

int mr_flow_set(mr_flow_out *out, mr_bytes value) {
    static const char sentence[] = "only a fold and the function of a stage set something";
    if (!out || !out->frame)
        return error_set(MR_EINVAL, sentence);
    if (out->frame->may != MAY_SET && out->frame->may != MAY_EMIT_AND_SET)
        return error_set(out_fail(out, MR_EINVAL, sentence), sentence);
    int err = check_bytes_of(out, "state", value);
    if (err < 0)
        return err;
    buffer_clear(&out->set);
    err = buffer_append(&out->set, value.data, value.size);
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    out->has_set = true;
    return 0;
}

// ---- Routes -----------------------------------------------------------------------------------

static bool has_order(const struct op *to, mr_bytes key) {
    return key.size || to->keyed_state || to->options.partitions == 1;
}

// Where a pair goes: a partition, or behind them all if it may go anywhere. A sink has partitions
// only, whose pairs are numbered.
static uint32_t out_part_of(const struct mr_flow_out *out, const struct op *to, mr_bytes key) {
    uint32_t partitions = to->options.partitions;
    if (has_order(to, key))
        return partitions == 1 ? 0 : (uint32_t)(bytes_hash(key, 0) % partitions);
    bool numbered = to->kind == OPERATOR_SINK || to->kind == OPERATOR_FILE;
    return numbered ? (uint32_t)(mr_job_id(out->job) % partitions) : partitions;
}

static int route_make(struct mr_flow_out *out, struct out_route *r, uint32_t parts) {
    r->parts = mem_alloc(parts * sizeof *r->parts);
    if (!r->parts)
        return out_fail(out, MR_ENOMEM, "no memory for %u partitions", parts);
    r->part_count = parts;
    return 0;
}

static int part_add(struct mr_flow_out *out, struct out_part *part, mr_pair pair) {
    size_t before = part->pairs.size;
    int err = block_add(&part->pairs, out->run, pair);
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    part->count++;
    out->bytes += part->pairs.size - before;
    return 0;
}

// A pair that makes too much by itself can never succeed; else the block was made too large.
static int refuse_much(struct mr_flow_out *out, size_t more) {
    if (out->bytes - out->bytes_before + more > FLOW_MADE)
        return out_fail(out, MR_EDEAD, "more than 16 MiB were made of one pair");
    return out_fail(out, MR_ETOOBIG,
                    "more than 16 MiB were made of one block: its source, or the operator before "
                    "it, has to make smaller blocks");
}

static int route_add(struct mr_flow_out *out, struct op *to, mr_pair pair) {
    struct out_route *r = &out->routes[to->head_number];
    int err = r->parts ? 0 : route_make(out, r, to->options.partitions + 1);
    if (err < 0)
        return err;
    if (out->bytes + pair.key.size + pair.value.size > FLOW_MADE)
        return refuse_much(out, pair.key.size + pair.value.size);
    return part_add(out, &r->parts[out_part_of(out, to, pair.key)], pair);
}

int out_send(struct mr_flow_out *out, struct op *from, uint32_t output, mr_pair pair) {
    int err = out->err;
    for (uint32_t i = 0; i < from->edge_count && err >= 0; i++) {
        struct op *to = from->edges[i].to;
        if (from->edges[i].output != output)
            continue;
        err = to->head ? route_add(out, to, pair) : operate(out, to, pair);
    }
    return err;
}

// ---- Emitting ---------------------------------------------------------------------------------

static int read_add(struct mr_flow_out *out, mr_pair pair) {
    if (out->block.size + pair.key.size + pair.value.size > FLOW_MADE)
        return out_fail(out, MR_ETOOBIG,
                        "it has more than 16 MiB: a source gives fewer pairs at a time");
    int err = block_add(&out->block, out->run, pair);
    return err < 0 ? out_fail(out, err, "%s", error_text()) : 0;
}

static int out_emit_pair(struct mr_flow_out *out, uint32_t output, mr_bytes key, mr_bytes value) {
    int err = check_bytes_of(out, "key", key);
    if (err >= 0)
        err = check_bytes_of(out, "value", value);
    if (err < 0)
        return err;
    mr_pair pair = { key, value };
    struct frame *frame = out->frame;
    frame->emitted++;
    err = out->job ? out_send(out, frame->op, output, pair) : read_add(out, pair);
    return err < 0 ? error_set(err, "%s", out->reason) : 0;
}

static int check_may_emit(mr_flow_out *out) {
    if (!out || !out->frame)
        return error_set(MR_EINVAL, "pairs are emitted by functions of operators, while they run");
    if (out->frame->may == MAY_EMIT || out->frame->may == MAY_EMIT_AND_SET)
        return 0;
    return error_set(
        out_fail(out, MR_EINVAL, "a %s emits nothing by itself", kind_name(out->frame->op->kind)),
        "operator %s emits nothing by itself", out->frame->op->name);
}

int mr_flow_emit(mr_flow_out *out, mr_bytes key, mr_bytes value) {
    int err = check_may_emit(out);
    return err < 0 ? err : out_emit_pair(out, 0, key, value);
}

int mr_flow_emit_to(mr_flow_out *out, const char *output, mr_bytes key, mr_bytes value) {
    int err = check_may_emit(out);
    if (err < 0)
        return err;
    uint32_t number = 0;
    if (!output || !op_output(out->frame->op, output, &number)) {
        out_fail(out, MR_EINVAL, "there is no output '%s'", output ? output : "");
        return error_set(MR_EINVAL, "operator %s has no output '%s'", out->frame->op->name,
                         output ? output : "");
    }
    return out_emit_pair(out, number, key, value);
}

uint32_t job_partition(const mr_job *job) {
    mr_bytes key = mr_job_key(job);
    uint32_t number = 0;
    for (size_t i = 0; i < key.size; i++)
        number = number * 10 + (uint32_t)(((const char *)key.data)[i] - '0');
    return number;
}

// The partition of the job; `partitions` for a job without one.
static uint32_t own_partition(const struct mr_flow_out *out) {
    uint32_t partitions = out->head->options.partitions;
    uint32_t number = mr_job_key(out->job).size ? job_partition(out->job) : partitions;
    return number < partitions ? number : partitions;
}

// ---- Into the commit --------------------------------------------------------------------------

static int emit_with(struct mr_flow_out *out, const struct op *to, mr_bytes body,
                     const mr_push_options *o) {
    int err = mr_job_emit(out->job, to->stage, body, o);
    return err < 0 ? out_fail(out, err, "for operator %s: %s", to->name, mr_error()) : 0;
}

enum { PARTITION_KEY = 12 };

// The key of a partition's jobs; empty behind the partitions, where there is no order.
static mr_bytes partition_key(const struct op *to, uint32_t part, char room[PARTITION_KEY]) {
    if (part >= to->options.partitions)
        return (mr_bytes){ 0 };
    return (mr_bytes){ room, (size_t)snprintf(room, PARTITION_KEY, "%" PRIu32, part) };
}

static int emit_job(struct mr_flow_out *out, const struct op *to, uint32_t part, mr_bytes body) {
    char room[PARTITION_KEY];
    mr_push_options o = { .key = partition_key(to, part, room) };
    return emit_with(out, to, body, &o);
}

// `block` pairs a job. The pieces are cut in place: each begins where the last one ended, which has
// been copied by then.
static int emit_part(struct mr_flow_out *out, const struct op *to, uint32_t number,
                     struct out_part *part, uint32_t block) {
    if (block == 0 || part->count <= block)
        return emit_job(out, to, number, buffer_bytes(&part->pairs));
    struct reader r = reader_of(buffer_bytes(&part->pairs));
    size_t from = 0;
    uint32_t in_piece = 0;
    uint8_t head[BLOCK_HEAD];
    size_t head_size = block_head(head, BLOCK_PAIRS, out->run);
    int err = 0;
    r.at = head_size;
    for (mr_pair pair; err >= 0 && block_next(&r, &pair);) {
        if (++in_piece < block && r.at < r.size)
            continue;
        memcpy(part->pairs.data + from, head, head_size);
        err = emit_job(out, to, number, (mr_bytes){ r.data + from, r.at - from });
        from = r.at - head_size;
        in_piece = 0;
    }
    return err;
}

static uint64_t pieces(const struct out_route *r, uint32_t block) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < r->part_count; i++)
        count += block ? (r->parts[i].count + block - 1) / block : r->parts[i].count != 0;
    return count;
}

// As many pairs a job as are needed to stay within the jobs of a commit.
static uint32_t fitting_block(const struct out_route *r, uint32_t block, uint32_t room) {
    while (block && pieces(r, block) > room)
        block = block > UINT32_MAX / 2 ? 0 : 2 * block;
    return block;
}

static int route_emit(struct mr_flow_out *out, const struct op *to, struct out_route *r,
                      uint32_t block) {
    int err = 0;
    for (uint32_t i = 0; i < r->part_count && err >= 0; i++)
        if (r->parts[i].count)
            err = emit_part(out, to, i, &r->parts[i], block);
    return err;
}

// The deadline is further ahead than any job waits; removed by a retry, see block.h.
static int emit_letter(struct mr_flow_out *out, const struct letter *letter, mr_bytes body) {
    mr_push_options o = { .key = letter->key, .deadline_ms = TIME_MOST_MS, .attempts = 1 };
    return emit_with(out, out->head, body, &o);
}

// The next of those that this job has made.
static struct letter next_letter(struct reader *r) {
    struct letter letter;
    (void)get_u8(r);
    (void)get_number(r);
    bool whole = letter_read(r, &letter);
    assert(whole);
    return letter;
}

static int emit_letters(struct mr_flow_out *out) {
    struct reader r = reader_of(buffer_bytes(&out->letters));
    int err = 0;
    while (r.at < r.size && err >= 0) {
        size_t from = r.at;
        struct letter letter = next_letter(&r);
        err = emit_letter(out, &letter, (mr_bytes){ r.data + from, r.at - from });
    }
    return err;
}

// More pairs have failed than one commit has room for: they go back to their head as blocks that
// are smaller, or no longer share their commit with pairs that succeed.
static int return_letters(struct mr_flow_out *out, uint32_t room) {
    struct reader r = reader_of(buffer_bytes(&out->letters));
    uint32_t block = (out->letter_count + room - 1) / room;
    int err = 0;
    while (r.at < r.size && err >= 0)
        err = part_add(out, &out->aside, next_letter(&r).pair);
    if (err < 0)
        return err;
    return emit_part(out, out->head, own_partition(out), &out->aside, block);
}

static bool letters_fit(const struct mr_flow_out *out, uint32_t room) {
    if (out->letter_count == 1 && out->bytes == 0)
        return true; // nothing would be gained by sending it back
    return out->letter_count <= room && out->letters.size + out->bytes <= FLOW_MADE;
}

int out_emit(struct mr_flow_out *out) {
    uint32_t used = 1, count = out->flow->head_count;
    uint64_t blocks = 0; // that are emitted at least: fewer than FLOW_EMITS, see flow_graph
    for (uint32_t i = 0; i < count; i++) {
        uint64_t least = pieces(&out->routes[i], 0);
        used += least != 0;
        blocks += least;
    }
    uint32_t left = (uint32_t)(FLOW_EMITS - blocks);
    bool fit = letters_fit(out, left);
    uint32_t room = (FLOW_EMITS - (fit ? out->letter_count : 0)) / used;
    int err = out->err;
    for (uint32_t i = 0; i < count && err >= 0; i++) {
        const struct op *to = out->flow->heads[i];
        struct out_route *r = &out->routes[i];
        err = route_emit(out, to, r, fitting_block(r, to->options.block, room));
    }
    if (err < 0 || out->letter_count == 0)
        return err;
    return fit ? emit_letters(out) : return_letters(out, left < room ? left : room);
}

// A key that is too long for a job is cut: channels of letters keep neither a state nor the order
// of the flow.
int out_set_aside(struct mr_flow_out *out, mr_pair pair, mr_bytes key, mr_bytes reason) {
    key = (mr_bytes){ key.data, key.size < KEY_MOST ? key.size : KEY_MOST };
    struct letter letter = { own_partition(out), key, reason, pair };
    int err = letter_add(&out->letters, out->run, &letter);
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    out->letter_count++;
    return 0;
}

int out_put_back(struct mr_flow_out *out, const struct letter *letter) {
    int err = part_add(out, &out->aside, letter->pair);
    if (err < 0)
        return err;
    return emit_job(out, out->head, letter->partition, buffer_bytes(&out->aside.pairs));
}

// ---- The last attempt -------------------------------------------------------------------------

// Calls `each` for every part that any function could reach, in the same order every time.
static void each_part(struct mr_flow_out *out, struct marks *marks,
                      void (*each)(struct out_part *, struct mark *)) {
    struct mark *mark = marks->marks;
    for (uint32_t i = 0; i < out->flow->head_count; i++) {
        uint32_t parts = out->flow->heads[i]->options.partitions + 1;
        for (uint32_t j = 0; j < parts && out->routes[i].parts; j++)
            each(&out->routes[i].parts[j], &mark[j]);
        mark += parts;
    }
}

static void mark_part(struct out_part *part, struct mark *mark) {
    *mark = (struct mark){ part->pairs.size, part->count };
}

static void return_part(struct out_part *part, struct mark *mark) {
    part->pairs.size = mark->size;
    part->count = mark->count;
}

int out_mark(struct mr_flow_out *out, struct marks *marks) {
    size_t count = 0;
    for (uint32_t i = 0; i < out->flow->head_count; i++)
        count += out->flow->heads[i]->options.partitions + 1;
    if (!marks->marks)
        marks->marks = mem_alloc(count * sizeof *marks->marks);
    if (!marks->marks)
        return out_fail(out, MR_ENOMEM, "no memory for %zu partitions", count);
    marks->bytes = out->bytes;
    each_part(out, marks, mark_part);
    return 0;
}

void out_return(struct mr_flow_out *out, struct marks *marks) {
    out->bytes = marks->bytes;
    each_part(out, marks, return_part);
    out->err = 0;
    out->failed = NULL;
    failure_clear(out);
}
