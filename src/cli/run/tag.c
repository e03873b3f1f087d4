// Tags: with --tag each line of output begins with the input line that it belongs to, and a tab.
#include "cli/run/run.h"

enum { TAG_MOST = 4096, TAG_PIECE = 64 << 10 };

// The input line as one line of at most TAG_MOST bytes; lines of a group with blanks between them.
static int tag_make(const struct run_options *o, mr_bytes text, struct buffer *out) {
    bool cut = text.size > TAG_MOST;
    int err = text.size ? buffer_append(out, text.data, cut ? TAG_MOST : text.size) : 0;
    for (size_t i = 0; err >= 0 && i < out->size; i++) {
        char c = (char)out->data[i];
        bool between = o->lines_each > 1 && c == o->delimiter;
        out->data[i] = between || c == '\n' || c == '\0' ? ' ' : out->data[i];
    }
    if (err >= 0 && cut)
        err = buffer_append(out, "...", 3);
    return err < 0 ? err : buffer_append(out, "\t", 1);
}

static int tag_flush(struct spool *to, struct buffer *piece, size_t least) {
    int err = piece->size >= least && piece->size ? spool_append(to, piece->data, piece->size) : 0;
    if (piece->size >= least)
        buffer_clear(piece);
    return err;
}

// The last line ends as the others do, so that what is printed next begins a line.
static int tag_lines(mr_bytes tag, mr_bytes from, struct spool *to) {
    struct buffer piece = { 0 };
    int err = 0;
    for (size_t at = 0; err >= 0 && at < from.size;) {
        const char *line = (const char *)from.data + at;
        const char *end = memchr(line, '\n', from.size - at);
        size_t size = end ? (size_t)(end - line) : from.size - at;
        err = buffer_append(&piece, tag.data, tag.size);
        if (err >= 0 && size)
            err = buffer_append(&piece, line, size);
        if (err >= 0)
            err = buffer_append(&piece, "\n", 1);
        if (err >= 0)
            err = tag_flush(to, &piece, TAG_PIECE);
        at += size + 1;
    }
    if (err >= 0)
        err = tag_flush(to, &piece, 0);
    buffer_finish(&piece);
    return err;
}

static int tag_spool(mr_bytes tag, struct spool *spool) {
    struct spool tagged = { 0 };
    mr_bytes all;
    int err = spool->size ? spool_bytes(spool, &all) : 0;
    if (err < 0 || !spool->size)
        return err;
    err = tag_lines(tag, all, &tagged);
    if (err < 0) {
        spool_finish(&tagged);
        return err;
    }
    spool_finish(spool);
    *spool = tagged;
    return 0;
}

int tag_output(const struct run_options *o, mr_bytes text, struct spool *output,
               struct spool *errors) {
    if (!o->tag)
        return 0;
    struct buffer tag = { 0 };
    int err = tag_make(o, text, &tag);
    if (err >= 0)
        err = tag_spool(buffer_bytes(&tag), output);
    if (err >= 0)
        err = tag_spool(buffer_bytes(&tag), errors);
    buffer_finish(&tag);
    return err;
}
