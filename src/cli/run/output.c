// See output.h.
#include "cli/run/output.h"

#include "base/codec.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cli/output.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { PIECE = 64 << 10, MARK_NUMBER = 8 };

// ---- Opening ----------------------------------------------------------------------------------

static int mark_failed(void) {
    return error_set(MR_EIO, "the journal cannot note what was printed: %s", strerror(errno));
}

static int mark_write(const struct output *o) {
    uint8_t bytes[MARK_FAILED];
    struct writer w = { .data = bytes, .capacity = sizeof bytes };
    put_u64(&w, o->round);
    put_u64(&w, o->printed);
    put_u64(&w, o->failed);
    bool written = o->mark < 0 || pwrite(o->mark, bytes, sizeof bytes, 0) == sizeof bytes;
    return written ? 0 : mark_failed();
}

// Written before the mark counts it.
static int mark_failure(const struct output *o, uint64_t line) {
    uint8_t bytes[MARK_NUMBER];
    struct writer w = { .data = bytes, .capacity = sizeof bytes };
    put_u64(&w, line);
    off_t at = MARK_FAILED + (off_t)((o->failed - 1) * MARK_NUMBER);
    bool written = o->mark < 0 || pwrite(o->mark, bytes, sizeof bytes, at) == sizeof bytes;
    return written ? 0 : mark_failed();
}

// After a power cut notes of lines that were done may be missing, but not that one has failed: it
// is noted nowhere else.
static int mark_sync(const struct output *o) {
    return o->mark < 0 || fdatasync(o->mark) == 0 ? 0 : mark_failed();
}

void output_resume(struct output *o, int mark, uint64_t round, uint64_t least) {
    uint8_t bytes[MARK_FAILED];
    o->mark = mark;
    o->round = round;
    struct reader r = reader_of((mr_bytes){ bytes, sizeof bytes });
    if (pread(mark, bytes, sizeof bytes, 0) == sizeof bytes && get_u64(&r) == round) {
        o->printed = get_u64(&r);
        o->failed = get_u64(&r);
    }
    if (o->printed < least)
        o->printed = least;
}

int output_open(struct output *o, bool in_order) {
    *o = (struct output){
        .in_order = in_order, .file = -1, .mark = -1, .to_terminal = isatty(STDOUT_FILENO)
    };
    pthread_mutex_init(&o->lock, NULL);
    if (in_order)
        o->slots = mem_alloc(ORDER_AHEAD * sizeof *o->slots);
    return in_order && !o->slots ? error_set(MR_ENOMEM, "no memory to keep lines in order") : 0;
}

void output_close(struct output *o) {
    for (size_t i = 0; o->slots && i < ORDER_AHEAD; i++) {
        spool_finish(&o->slots[i].output.spool);
        spool_finish(&o->slots[i].errors.spool);
    }
    mem_free(o->slots);
    if (o->file >= 0)
        close(o->file);
    if (o->mark >= 0)
        close(o->mark);
    pthread_mutex_destroy(&o->lock);
}

// ---- The terminal -----------------------------------------------------------------------------

void output_bar(struct output *o, const struct progress_text *text) {
    if (pthread_mutex_trylock(&o->lock) != 0)
        return;
    if (!o->within_line)
        progress_show(text);
    pthread_mutex_unlock(&o->lock);
}

void output_complain(struct output *o, const char *format, ...) {
    va_list values;
    va_start(values, format);
    pthread_mutex_lock(&o->lock);
    complain_list(format, values);
    pthread_mutex_unlock(&o->lock);
    va_end(values);
}

void output_try_complain(struct output *o, const char *sentence) {
    bool locked = pthread_mutex_trylock(&o->lock) == 0;
    complain("%s", sentence);
    if (locked)
        pthread_mutex_unlock(&o->lock);
}

// ---- Printing ---------------------------------------------------------------------------------

static int copy_part(int from, const struct held_stream *h, int to) {
    uint8_t piece[PIECE];
    for (uint64_t at = h->at, end = h->at + h->size; at < end;) {
        size_t most = end - at < sizeof piece ? (size_t)(end - at) : sizeof piece;
        ssize_t got = pread(from, piece, most, (off_t)at);
        if (got <= 0)
            return error_set(MR_EIO, "output that was held cannot be read: %s", strerror(errno));
        int err = file_write(to, piece, (size_t)got);
        if (err < 0)
            return err;
        at += (uint64_t)got;
    }
    return 0;
}

static int print_stream(const struct output *o, const struct held_stream *h, int to) {
    return h->size ? copy_part(o->file, h, to) : spool_write(&h->spool, to);
}

static bool is_empty(const struct held_stream *h) {
    return !h->size && !h->spool.size;
}

static bool ends_within_line(const struct output *o, const struct held_stream *h) {
    char last = '\n';
    ssize_t got = 1;
    if (h->size)
        got = pread(o->file, &last, 1, (off_t)(h->at + h->size - 1));
    else if (h->spool.file)
        got = pread(h->spool.file, &last, 1, (off_t)(h->spool.size - 1));
    else
        last = (char)h->spool.memory.data[h->spool.size - 1];
    return got == 1 && last != '\n';
}

// With the lock. After a failure nothing is written any more.
static int run_output_print(struct output *o, const struct held_stream *output,
                            const struct held_stream *errors) {
    if (o->broken)
        return error_set(MR_EIO, "an earlier output could not be written");
    if (!is_empty(output) || !is_empty(errors))
        progress_hide();
    int err = print_stream(o, output, STDOUT_FILENO);
    if (err < 0)
        o->broken = errno ? errno : EIO;
    else
        (void)print_stream(o, errors,
                           STDERR_FILENO); // if that fails there is no place to report it
    const struct held_stream *last = is_empty(errors) && o->to_terminal ? output : errors;
    if (!is_empty(last)) {
        o->within_line = ends_within_line(o, last);
        if (!o->within_line)
            progress_again();
    }
    return err;
}

int output_print(struct output *o, const struct spool *output, const struct spool *errors) {
    pthread_mutex_lock(&o->lock);
    struct held_stream streams[] = { { .spool = *output }, { .spool = *errors } };
    int err = run_output_print(o, &streams[0], &streams[1]);
    pthread_mutex_unlock(&o->lock);
    return err;
}

// ---- Holding ----------------------------------------------------------------------------------

static int to_file(struct output *o, struct spool *from, struct held_stream *to) {
    if (o->file < 0 && (o->file = file_unnamed()) < 0)
        return o->file;
    if (lseek(o->file, (off_t)o->file_end, SEEK_SET) < 0)
        return error_set(MR_EIO, "output cannot be held: %s", strerror(errno));
    int err = spool_write(from, o->file);
    if (err < 0)
        return err;
    to->at = o->file_end;
    to->size = from->size;
    o->file_end += from->size;
    o->file_uses++;
    spool_finish(from);
    return 0;
}

// A spool that has a file of its own would hold a descriptor as well.
static int hold(struct output *o, struct spool *from, struct held_stream *to) {
    bool in_memory = !from->file && o->memory + from->size <= HELD_MEMORY;
    if (!in_memory) {
        int err = to_file(o, from, to);
        if (err < 0)
            spool_finish(from);
        return err;
    }
    o->memory += from->size;
    to->spool = *from;
    *from = (struct spool){ 0 };
    return 0;
}

static void file_release(struct output *o, const struct held_stream *h) {
    if (!h->size)
        return;
    int failed = 0;
    if (--o->file_uses == 0) {
        failed = ftruncate(o->file, 0);
        o->file_end = 0;
    } else {
        failed = fallocate(o->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)h->at,
                           (off_t)h->size);
    }
    (void)failed; // then the file stays large until the end
}

static void held_finish(struct output *o, struct held *h) {
    struct held_stream *streams[] = { &h->output, &h->errors };
    for (int i = 0; i < 2; i++) {
        if (streams[i]->size)
            file_release(o, streams[i]);
        else
            o->memory -= streams[i]->spool.size;
        spool_finish(&streams[i]->spool);
    }
    *h = (struct held){ 0 };
}

// A line that could not be printed keeps its turn.
static int print_in_turn(struct output *o) {
    for (;;) {
        struct held *h = &o->slots[(o->printed + 1) % ORDER_AHEAD];
        if (!h->there)
            return 0;
        int err = run_output_print(o, &h->output, &h->errors);
        if (err < 0)
            return err;
        bool failed = h->failed;
        o->failed += failed;
        held_finish(o, h);
        o->printed++;
        err = failed ? mark_failure(o, o->printed) : 0;
        if (err >= 0)
            err = mark_write(o);
        if (err >= 0 && failed)
            err = mark_sync(o);
        if (err < 0)
            return err;
    }
}

int output_hold(struct output *o, uint64_t number, bool failed, struct spool *output,
                struct spool *errors) {
    pthread_mutex_lock(&o->lock);
    assert(number > o->printed && number <= o->printed + ORDER_AHEAD);
    struct held *h = &o->slots[number % ORDER_AHEAD];
    *h = (struct held){ .there = true, .failed = failed };
    int err = hold(o, output, &h->output);
    if (err >= 0)
        err = hold(o, errors, &h->errors);
    if (err >= 0)
        err = print_in_turn(o);
    pthread_mutex_unlock(&o->lock);
    return err;
}
