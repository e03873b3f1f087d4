// See request.h. The loop over arguments is the hot path of a busy server; errors are set in
// separate functions.
#include "wire/request.h"

#include "base/errors.h"
#include "base/hints.h"
#include "wire/inline.h"
#include "wire/number.h"

#include <stdio.h>

enum { LEAST_ARGUMENT = sizeof "$0\r\n\r\n" - 1 };

// A byte as text for an error: 'c' if it prints, else hexadecimal.
struct byte_text {
    char text[8];
};

static struct byte_text byte_text(uint8_t byte) {
    struct byte_text s;
    bool plain = byte > ' ' && byte < 0x7f;
    (void)snprintf(s.text, sizeof s.text, plain ? "'%c'" : "0x%02x", byte);
    return s;
}

// ---- Arrays -----------------------------------------------------------------------------------

APART static int request_too_long(const struct request_limits *limits) {
    return error_set(MR_ETOOBIG, "Protocol error: the request is longer than %zu bytes",
                     limits->size);
}

APART static int request_count_refused(int err, const struct request_limits *limits) {
    if (err == MR_ETOOBIG)
        return error_set(err, "Protocol error: more than %u arguments",
                         (unsigned)limits->arguments);
    return error_set(err, "Protocol error: the count behind '*' is not a number");
}

APART static int request_length_refused(int err, const struct request_limits *limits,
                                        uint32_t number) {
    if (err == MR_ETOOBIG)
        return error_set(err, "Protocol error: argument %u is longer than %zu bytes",
                         (unsigned)number, limits->argument_size);
    return error_set(err, "Protocol error: the length of argument %u is not a number",
                     (unsigned)number);
}

APART static int request_not_an_argument(uint8_t byte, uint32_t number) {
    return error_set(MR_EINVAL, "Protocol error: argument %u must begin with '$', not with %s",
                     (unsigned)number, byte_text(byte).text);
}

APART static int request_end_missing(uint32_t number) {
    return error_set(MR_EINVAL, "Protocol error: argument %u does not end where its length says",
                     (unsigned)number);
}

// "*3\r\n"
static int request_head_read(struct request *r, const struct request_limits *limits,
                             const uint8_t *data, size_t size) {
    uint64_t count = 0;
    int used = number_read(data + 1, size - 1, limits->arguments, &count);
    if (used < 0)
        return request_count_refused(used, limits);
    if (used == 0) {
        r->need = size + 1;
        return 0;
    }
    size_t at = 1 + (size_t)used;
    if (at + count * LEAST_ARGUMENT > limits->size)
        return request_too_long(limits);
    *r = (struct request){ .at = at, .count = (uint32_t)count };
    return used;
}

static int request_pause(struct request *r, size_t at, uint32_t seen, size_t need) {
    r->at = at;
    r->seen = seen;
    r->need = need;
    return 0;
}

// Continues from argument to argument ("$4\r\nECHO\r\n") and stores them in `arguments`. Returns
// the size of the whole request, or 0 when bytes are missing.
static ptrdiff_t request_walk(struct request *r, const struct request_limits *limits,
                              const uint8_t *data, size_t size, mr_bytes *arguments) {
    size_t at = r->at, most = size < limits->size ? size : limits->size;
    for (uint32_t i = r->seen, count = r->count; i < count; i++) {
        if (at == size)
            return request_pause(r, at, i, size + 1);
        if (data[at] != '$')
            return request_not_an_argument(data[at], i + 1);
        uint64_t length = 0;
        int used = number_read(data + at + 1, size - at - 1, limits->argument_size, &length);
        if (used < 0)
            return request_length_refused(used, limits, i + 1);
        if (used == 0)
            return request_pause(r, at, i, size + 1);
        size_t body = at + 1 + (size_t)used, end = body + (size_t)length;
        if (end + 2 > most)
            return end + 2 > limits->size ? request_too_long(limits)
                                          : request_pause(r, at, i, end + 2);
        if (!number_is_line_end(data + end))
            return request_end_missing(i + 1);
        arguments[i] = (mr_bytes){ data + body, (size_t)length };
        at = end + 2;
    }
    return (ptrdiff_t)at;
}

static ptrdiff_t request_array_read(struct request *r, const struct request_limits *limits,
                                    const uint8_t *data, size_t size, mr_bytes *out_arguments,
                                    uint32_t *out_count) {
    bool afresh = r->at == 0;
    if (afresh) {
        int err = request_head_read(r, limits, data, size);
        if (err <= 0)
            return err;
    }
    ptrdiff_t used = request_walk(r, limits, data, size, out_arguments);
    if (used <= 0)
        return used;
    uint32_t count = r->count;
    *r = (struct request){ 0 };
    if (!afresh) // it is complete now: reads it again from the beginning for the arguments
        return request_array_read(r, limits, data, size, out_arguments, out_count);
    *out_count = count;
    return used;
}

// ---- Lines ------------------------------------------------------------------------------------

APART static ptrdiff_t request_line_read(struct request *r, const struct request_limits *limits,
                                         uint8_t *data, size_t size, mr_bytes *out_arguments,
                                         uint32_t *out_count) {
    if (data[0] >= 0x7f || (data[0] < ' ' && !(data[0] >= '\t' && data[0] <= '\r')))
        return error_set(MR_EINVAL, "Protocol error: a request cannot begin with %s",
                         byte_text(data[0]).text);
    size_t most = size < limits->line_size ? size : limits->line_size;
    const uint8_t *end = r->at < most ? memchr(data + r->at, '\n', most - r->at) : NULL;
    if (!end && size >= limits->line_size)
        return error_set(MR_ETOOBIG, "Protocol error: the line is longer than %zu bytes",
                         limits->line_size);
    if (!end)
        return request_pause(r, size, 0, size + 1);
    int err = inline_split(data, (size_t)(end - data), limits->arguments, out_arguments, out_count);
    if (err < 0)
        return err;
    *r = (struct request){ 0 };
    return end - data + 1;
}

ptrdiff_t request_read(struct request *r, const struct request_limits *limits, uint8_t *data,
                       size_t size, mr_bytes *out_arguments, uint32_t *out_count) {
    if (size == 0 || size < r->need)
        return 0;
    return data[0] == '*' ? request_array_read(r, limits, data, size, out_arguments, out_count)
                          : request_line_read(r, limits, data, size, out_arguments, out_count);
}

// ---- Writing ----------------------------------------------------------------------------------

int request_write(struct buffer *b, const mr_bytes *arguments, size_t count) {
    size_t size = number_line_size(count);
    for (size_t i = 0; i < count; i++)
        size += number_line_size(arguments[i].size) + arguments[i].size + 2;
    int err = buffer_reserve(b, size);
    if (err < 0)
        return err;
    uint8_t *to = number_line_write(b->data + b->size, '*', count);
    for (size_t i = 0; i < count; i++) {
        to = number_line_write(to, '$', arguments[i].size);
        if (arguments[i].size)
            memcpy(to, arguments[i].data, arguments[i].size);
        memcpy(to + arguments[i].size, "\r\n", 2);
        to += arguments[i].size + 2;
    }
    b->size += size;
    return 0;
}
