// See reply.h. Every value first reserves the most it can need, then writes without checks.
#include "wire/reply.h"

#include "base/hints.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void reply_head(struct reply *r, char kind, uint64_t number) {
    uint8_t *to = reply_room(r, LINE_ROOM);
    if (to)
        reply_written(r, number_line_write(to, kind, number));
}

// Copies text into a line; line breaks become spaces.
static uint8_t *copy_line(uint8_t *to, mr_bytes text) {
    const uint8_t *from = text.data;
    for (size_t i = 0; i < text.size; i++)
        *to++ = from[i] == '\r' || from[i] == '\n' ? ' ' : from[i];
    return to;
}

APART void reply_error(struct reply *r, const char *code, mr_bytes text) {
    mr_bytes name = mr_str(code);
    uint8_t *to = reply_room(r, 1 + name.size + 1 + text.size + 2);
    if (!to)
        return;
    *to++ = '-';
    to = copy_line(to, name);
    if (text.size)
        *to++ = ' ';
    reply_written(r, copy_bytes(copy_line(to, text), "\r\n", 2));
}

void reply_integer(struct reply *r, int64_t number) {
    uint8_t *to = reply_room(r, LINE_ROOM);
    if (to)
        reply_written(r, integer_write(to, number));
}

void reply_bulk(struct reply *r, mr_bytes bytes) {
    uint8_t *to = reply_room(r, LINE_ROOM + bytes.size + 2);
    if (to)
        reply_written(r, bulk_write(to, bytes));
}

void reply_id(struct reply *r, uint64_t id) {
    uint8_t *to = reply_room(r, VALUE_ROOM);
    if (to)
        reply_written(r, id_write(to, id));
}

void reply_null(struct reply *r) {
    uint8_t *to = reply_room(r, sizeof "$-1\r\n" - 1);
    if (to)
        reply_written(r, null_write(to, r->resp3));
}

// Prints the shorter of two forms that read back as the same number, with a decimal point in any
// locale. Returns the size.
static size_t reply_spell_double(double number, char *to, size_t size) {
    if (isnan(number) || isinf(number))
        return (size_t)snprintf(to, size, "%s",
                                isnan(number) ? "nan"
                                : number > 0  ? "inf"
                                              : "-inf");
    int used = snprintf(to, size, "%.15g", number);
    if (strtod(to, NULL) != number)
        used = snprintf(to, size, "%.17g", number);
    size_t kept = 0;
    for (int i = 0; i < used; i++) {
        bool plain = memchr("0123456789+-e", to[i], 13);
        if (plain || kept == 0 || to[kept - 1] != '.')
            to[kept++] = plain ? to[i] : '.';
    }
    return kept;
}

void reply_double(struct reply *r, double number) {
    char text[40];
    size_t size = reply_spell_double(number, text, sizeof text);
    if (!r->resp3) {
        reply_bulk(r, (mr_bytes){ text, size });
        return;
    }
    uint8_t *to = reply_room(r, 1 + size + 2);
    if (!to)
        return;
    *to++ = ',';
    reply_written(r, copy_bytes(copy_bytes(to, text, size), "\r\n", 2));
}

void reply_array(struct reply *r, uint64_t count) {
    reply_head(r, '*', count);
}

void reply_map(struct reply *r, uint64_t pairs) {
    reply_head(r, r->resp3 ? '%' : '*', r->resp3 ? pairs : 2 * pairs);
}

void reply_push(struct reply *r, uint64_t count) {
    assert(r->resp3);
    reply_head(r, '>', count);
}

enum { BULK_LINE = 1 + 2 + 2 }; // of 10 to 99 bytes

size_t reply_bulk_begin(struct reply *r) {
    size_t begin = r->out->size;
    if (reply_room(r, BULK_LINE))
        r->out->size += BULK_LINE;
    return begin;
}

void reply_bulk_end(struct reply *r, size_t begin) {
    if (!reply_room(r, LINE_ROOM + 2))
        return;
    uint8_t *line = r->out->data + begin, *body = line + BULK_LINE;
    size_t size = r->out->size - begin - BULK_LINE, line_size = number_line_size(size);
    if (line_size != BULK_LINE)
        memmove(line + line_size, body, size);
    number_line_write(line, '$', size);
    reply_written(r, copy_bytes(line + line_size + size, "\r\n", 2));
}
