// See reply.h. Every value first reserves the most it can need, then writes without checks.
#include "wire/reply.h"

#include "base/hints.h"
#include "wire/number.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LINE_SIZE = 1 + NUMBER_DIGITS + 2 }; // "$" and twenty digits, or ":-" and nineteen

// Room for `size` bytes, or NULL after a failure.
static inline uint8_t *reply_room(struct reply *r, size_t size) {
    if (r->err == 0)
        r->err = buffer_reserve(r->out, size);
    return r->err == 0 ? r->out->data + r->out->size : NULL;
}

static inline void reply_written(struct reply *r, const uint8_t *end) {
    r->out->size = (size_t)(end - r->out->data);
}

static inline uint8_t *copy_bytes(uint8_t *to, const void *data, size_t size) {
    if (size)
        memcpy(to, data, size);
    return to + size;
}

static void reply_head(struct reply *r, char kind, uint64_t number) {
    uint8_t *to = reply_room(r, LINE_SIZE);
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

void reply_simple(struct reply *r, const char *text) {
    mr_bytes line = mr_str(text);
    uint8_t *to = reply_room(r, 1 + line.size + 2);
    if (!to)
        return;
    *to++ = '+';
    reply_written(r, copy_bytes(copy_line(to, line), "\r\n", 2));
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
    if (number >= 0) {
        reply_head(r, ':', (uint64_t)number);
        return;
    }
    uint8_t *to = reply_room(r, LINE_SIZE);
    if (!to)
        return;
    *to++ = ':';
    reply_written(r, number_line_write(to, '-', -(uint64_t)number));
}

void reply_bulk(struct reply *r, mr_bytes bytes) {
    uint8_t *to = reply_room(r, LINE_SIZE + bytes.size + 2);
    if (!to)
        return;
    to = number_line_write(to, '$', bytes.size);
    reply_written(r, copy_bytes(copy_bytes(to, bytes.data, bytes.size), "\r\n", 2));
}

void reply_id(struct reply *r, uint64_t id) {
    uint8_t *to = reply_room(r, LINE_SIZE + NUMBER_DIGITS + 2);
    if (!to)
        return;
    size_t size = number_size(id);
    to = number_line_write(to, '$', size);
    reply_written(r, copy_bytes(number_write_sized(to, id, size), "\r\n", 2));
}

void reply_null(struct reply *r) {
    uint8_t *to = reply_room(r, sizeof "$-1\r\n" - 1);
    if (to)
        reply_written(r, r->resp3 ? copy_bytes(to, "_\r\n", 3) : copy_bytes(to, "$-1\r\n", 5));
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

size_t reply_bulk_begin(struct reply *r, size_t likely_size) {
    size_t begin = r->out->size;
    reply_head(r, '$', likely_size);
    return begin;
}

void reply_bulk_end(struct reply *r, size_t begin) {
    if (!reply_room(r, LINE_SIZE + 2))
        return;
    uint8_t *line = r->out->data + begin;
    const uint8_t *end = r->out->data + r->out->size;
    const uint8_t *body = (const uint8_t *)memchr(line, '\n', LINE_SIZE) + 1;
    size_t size = (size_t)(end - body);
    uint8_t *to = line + number_line_size(size);
    if (to != body)
        memmove(to, body, size);
    number_line_write(line, '$', size);
    reply_written(r, copy_bytes(to + size, "\r\n", 2));
}
