// Groups: with -n, consecutive lines that become the arguments of one command. A group is handled
// as one line from here on: its text is that of its lines, with the delimiter between them, which
// no line contains.
//
//     a 1 ┐                       A group ends when it has N lines, before a line with another key,
//     a 2 ┘ "a 1\na 2"            before one that would make it too long, and with the input. So
//     b 3 ─ "b 3"                 the same input has the same groups, however it is read.
#include "base/bytes.h"
#include "cli/run/run.h"

enum { GROUP_BYTES = 128 << 10 }; // of a group with several lines: what most systems can pass on

static bool group_takes(const struct groups *g, const struct line *line) {
    return g->text.size + 1 + line->size <= GROUP_BYTES &&
           bytes_equal(buffer_bytes(&g->key), buffer_bytes(&g->next_key));
}

static int group_add(struct groups *g, const struct line *line) {
    static const uint64_t prime = UINT64_C(0x100000001b3);
    int err = g->count ? buffer_append(&g->text, &g->lines.delimiter, 1) : 0;
    if (err >= 0 && line->text.size)
        err = buffer_append(&g->text, line->text.data, line->text.size);
    if (err < 0)
        return err;
    if (!g->count) {
        struct buffer key = g->key;
        g->key = g->next_key;
        g->next_key = key;
    }
    g->size = line->size > line->text.size ? line->size : g->text.size;
    g->hash = (g->hash + line->hash) * prime;
    g->count++;
    return 0;
}

// What was gathered becomes the group that is returned.
static int group_return(struct groups *g, struct line *out) {
    struct buffer text = g->returned;
    g->returned = g->text;
    g->text = text;
    *out = (struct line){
        .number = ++g->number, .text = buffer_bytes(&g->returned), .size = g->size, .hash = g->hash
    };
    buffer_clear(&g->text);
    g->count = 0;
    g->hash = 0;
    return 1;
}

static int group_next_of_several(struct groups *g, struct line *out) {
    struct line line;
    while (lines_next(&g->lines, &line)) {
        buffer_clear(&g->next_key);
        int err = keys_find(g->keys, line.text, &g->next_key);
        int ended = err >= 0 && g->count && !group_takes(g, &line) ? group_return(g, out) : 0;
        if (err >= 0)
            err = group_add(g, &line);
        if (err < 0 || ended)
            return err < 0 ? err : ended;
        if (g->count == g->most)
            return group_return(g, out);
    }
    return g->lines.ended && g->count ? group_return(g, out) : 0;
}

int groups_next(struct groups *g, struct line *out) {
    if (g->most > 1)
        return group_next_of_several(g, out);
    if (!lines_next(&g->lines, out))
        return 0;
    g->number = out->number;
    return 1;
}

mr_bytes group_first_line(const struct run_options *o, mr_bytes text) {
    const char *end =
        o->lines_each > 1 && text.size ? memchr(text.data, o->delimiter, text.size) : NULL;
    return end ? (mr_bytes){ text.data, (size_t)(end - (const char *)text.data) } : text;
}

const char *group_shown(const struct run_options *o, mr_bytes text, char out[LINE_SHOWN]) {
    char begin[LINE_SHOWN];
    if (o->lines_each == 1)
        return line_shown(out, text);
    size_t size = text.size < sizeof begin ? text.size : sizeof begin;
    for (size_t i = 0; i < size; i++) {
        char c = ((const char *)text.data)[i];
        begin[i] = c == o->delimiter ? ' ' : c;
    }
    return line_shown(out, (mr_bytes){ begin, size });
}

void groups_finish(struct groups *g) {
    lines_finish(&g->lines);
    buffer_finish(&g->text);
    buffer_finish(&g->returned);
    buffer_finish(&g->key);
    buffer_finish(&g->next_key);
}
