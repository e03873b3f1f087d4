// Pushes lines as jobs: those of one read together, as far as the window allows.
//
// The window bounds what is read ahead: lines not ended (in order: not printed) and their bytes. It
// closes when full and opens again when a part of it is free, so that reader and workers do not
// wake each other for every line. A line without a key is a channel of its own.
//
// With a journal, lines that the engine accepted in an earlier run are compared and not pushed;
// only when all of them are the same does the worker start.
#include "base/bytes.h"
#include "base/codec.h"
#include "base/errors.h"
#include "cli/run/run.h"

#include <inttypes.h>
#include <unistd.h>

enum {
    WINDOW_LINES = 16384, // without --keep-order
    BATCH_LINES = 256,
    BATCH_BYTES = 1 << 20,
    HEAD_MOST = 28, // mark and two numbers
};
static const uint64_t line_mark = UINT64_C(0xb1f28d5c9e40a763);
static const int64_t window_bytes = 64 << 20;

// ---- A line as a body -------------------------------------------------------------------------

struct line line_of_body(mr_bytes body) {
    struct reader r = reader_of(body);
    bool marked = get_u64(&r) == line_mark;
    struct line line = { .number = get_number(&r), .size = get_number(&r) };
    line.text = get_raw(&r, r.bad ? 0 : r.size - r.at);
    return marked && !r.bad ? line : (struct line){ .size = body.size, .text = body };
}

// With `newline` the text ends as a line does, for a command that reads it from stdin.
static int line_append(struct buffer *to, const struct line *line, bool newline) {
    uint8_t head[HEAD_MOST];
    struct writer w = { .data = head, .capacity = sizeof head };
    put_u64(&w, line_mark);
    put_number(&w, line->number);
    put_number(&w, line->size + newline);
    int err = buffer_append(to, head, w.size);
    if (err >= 0 && line->text.size)
        err = buffer_append(to, line->text.data, line->text.size);
    return err < 0 || !newline ? err : buffer_append(to, "\n", 1);
}

// ---- The window -------------------------------------------------------------------------------

static int64_t window_lines(const struct run *r) {
    return r->output.in_order ? ORDER_AHEAD : WINDOW_LINES;
}

int64_t lines_outstanding(const struct run *r) {
    uint64_t gone = r->output.in_order ? r->output.printed + r->passed : r->ended;
    return (int64_t)(r->read - gone);
}

static int64_t window_mark(const struct run *r) {
    return window_lines(r) * 3 / 4;
}

bool window_is_open(const struct run *r) {
    int64_t most = r->wake_at < 0 ? window_lines(r) - BATCH_LINES : window_mark(r);
    return lines_outstanding(r) <= most && r->bytes < window_bytes;
}

void window_wait(struct run *r) {
    r->wake_at = r->bytes < window_bytes ? window_mark(r) : INT64_MAX;
}

// ---- Pushing ----------------------------------------------------------------------------------

// Lines on their way to the engine: bodies and keys lie in `bytes`, one after another.
struct batch {
    struct buffer bytes, key;
    size_t count;
    uint64_t number; // of the first
    bool cut;        // it ends with the last line of earlier rounds: hashes are noted of later ones
    uint64_t hashes[BATCH_LINES];
    size_t key_sizes[BATCH_LINES], body_sizes[BATCH_LINES];
    mr_item items[BATCH_LINES];
};

// Lines without a key may be intended, or the expression is mistaken: say it once.
static void run_input_note_keyless(struct run *r, uint64_t number) {
    char sentence[KEYS_MISSING];
    if (r->keyless++ == 0)
        output_complain(&r->output, "run: %s", keys_missing(&r->options->keys, number, sentence));
}

static int batch_add(struct run *r, struct batch *b, const struct line *line) {
    const struct run_options *o = r->options;
    uint8_t room[KEY_MOST];
    int err = keys_find(&o->keys, group_first_line(o, line->text), &b->key);
    if (err < 0)
        return err;
    mr_bytes key = key_channel(buffer_bytes(&b->key), room);
    if (o->keys.from != KEY_NONE && !key.size)
        run_input_note_keyless(r, line->number);
    size_t before = b->bytes.size;
    err = key.size ? buffer_append(&b->bytes, key.data, key.size) : 0;
    size_t begin = b->bytes.size;
    if (err >= 0)
        err = line_append(&b->bytes, line, o->input && o->delimiter == '\n');
    if (err < 0)
        return err;
    if (b->count == 0)
        b->number = line->number;
    b->key_sizes[b->count] = begin - before;
    b->body_sizes[b->count] = b->bytes.size - begin;
    b->hashes[b->count++] = line->hash;
    return 0;
}

static void batch_point(struct batch *b) {
    const uint8_t *p = b->bytes.data;
    for (size_t i = 0; i < b->count; i++) {
        b->items[i] = (mr_item){ .key = { p, b->key_sizes[i] },
                                 .body = { p + b->key_sizes[i], b->body_sizes[i] } };
        p += b->key_sizes[i] + b->body_sizes[i];
    }
}

static int run_input_push_all(struct run *r, const struct batch *b) {
    for (size_t pushed = 0, n; pushed < b->count; pushed += n) {
        const mr_item *items = b->items + pushed;
        size_t left = b->count - pushed;
        int err = r->journal.dir
                      ? mr_epic_push_many(r->engine, &r->epic, items, left, NULL, NULL, &n)
                      : mr_push_many(r->engine, RUN_STAGE, items, left, NULL, NULL, &n);
        if (err < 0)
            return err;
    }
    return 0;
}

static int batch_push(struct run *r, struct batch *b) {
    if (b->count == 0)
        return 0;
    if (r->journal.dir && b->number > r->journal.ended_upto) {
        int err = journal_note(&r->journal, b->number, b->hashes, b->count);
        if (err < 0)
            return err;
    }
    batch_point(b);
    r->read += b->count; // before any of them can end
    r->bytes += (int64_t)b->bytes.size;
    return run_input_push_all(r, b);
}

static void batch_finish(struct batch *b) {
    buffer_finish(&b->bytes);
    buffer_finish(&b->key);
}

// ---- Lines of an earlier run ------------------------------------------------------------------

// The id that the engine gave to a line it has: it answers a repeat with it.
static int id_of_line(struct run *r, const struct line *line, mr_id *out) {
    struct batch b = { 0 };
    mr_epic before = r->epic;
    before.next = journal_position(&r->journal, line->number);
    int err = batch_add(r, &b, line);
    if (err >= 0) {
        batch_point(&b);
        mr_push_options options = { .key = b.items[0].key };
        err = mr_epic_push(r->engine, &before, b.items[0].body, &options, out);
    }
    batch_finish(&b);
    return err;
}

// If the line has ended, its result is held until its turn; else it still waits.
static int take_result(struct run *r, const struct line *line) {
    mr_id id = 0;
    int err = id_of_line(r, line, &id);
    if (err < 0)
        return err;
    mr_result result = { 0 };
    err = mr_await(r->engine, id, 0, &result);
    if (err >= 0)
        err = run_hold_result(r, line, result.body);
    mr_result_free(&result);
    return err == MR_EAGAIN ? 0 : err;
}

// A line that failed in an earlier round is pushed into this one.
static int line_again(struct run *r, struct batch *b, const struct line *line) {
    uint64_t position = journal_position(&r->journal, line->number);
    int err = journal_compare(&r->journal, line);
    if (err < 0)
        return err;
    if (position >= r->journal.resume)
        return batch_add(r, b, line);
    r->read++;
    r->passed += position == 0;
    if (r->output.in_order && position > r->output.printed)
        return take_result(r, line);
    return 0;
}

static int worker_begin(struct run *r) {
    if (r->worker || atomic_load(&r->stopping))
        return 0;
    mr_work_options options = { .jobs = r->options->jobs, .on_stop = run_on_stop };
    return mr_work(r->engine, RUN_STAGE, run_handler, r, &options, &r->worker);
}

// ---- Taking -----------------------------------------------------------------------------------

static int take_lines(struct run *r, struct batch *b) {
    struct line line;
    uint64_t known = journal_known(&r->journal);
    int err = 0;
    while (err >= 0 && b->count < BATCH_LINES && b->bytes.size < BATCH_BYTES && !b->cut &&
           (err = groups_next(&r->groups, &line)) > 0) {
        err = line.number <= known ? line_again(r, b, &line) : batch_add(r, b, &line);
        b->cut = b->count && line.number == r->journal.ended_upto;
    }
    return err;
}

static int input_ends(struct run *r) {
    uint64_t known = journal_known(&r->journal);
    r->input_over = true;
    if (r->groups.number >= known)
        return worker_begin(r);
    return error_set(MR_EINVAL,
                     "the input ends with line %" PRIu64 ", but this journal has read %" PRIu64
                     ": use the same input, or another --journal directory",
                     r->groups.number, known);
}

static int take_and_push(struct run *r, struct batch *b) {
    int err = take_lines(r, b);
    if (err >= 0 && r->groups.number >= journal_known(&r->journal))
        err = worker_begin(r);
    return err < 0 ? err : batch_push(r, b);
}

int input_take(struct run *r) {
    struct batch b = { 0 };
    int err = r->pending ? 0 : lines_read(&r->groups.lines, STDIN_FILENO);
    if (err >= 0)
        err = take_and_push(r, &b);
    r->pending = b.count == BATCH_LINES || b.bytes.size >= BATCH_BYTES || b.cut;
    batch_finish(&b);
    if (err < 0 || r->pending)
        return err;
    return r->groups.lines.ended ? input_ends(r) : 0;
}
