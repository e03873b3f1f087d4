// Reads requests and replies in pieces of any size, each time at another place in memory that ends
// with the bytes given, and spells what came out in one way, so that two readings can be compared.
// For tests and fuzzers.
#ifndef TEST_SUPPORT_WIRE_H
#define TEST_SUPPORT_WIRE_H

#include "base/buffer.h"
#include "wire/reply.h"
#include "wire/request.h"
#include "wire/response.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WIRE_VALUES = 1024 }; // limits may not allow more arguments or values

static inline uint8_t *wire_copy(mr_bytes b) {
    uint8_t *copy = malloc(b.size ? b.size : 1);
    assert(copy);
    if (b.size)
        memcpy(copy, b.data, b.size);
    return copy;
}

static inline void wire_inside(mr_bytes part, const uint8_t *data, size_t size) {
    const uint8_t *begin = part.data;
    assert(begin >= data && begin + part.size <= data + size);
}

// Checks the result of one call of the reader with `given` bytes.
static inline void wire_plausible(ptrdiff_t used, size_t given, size_t need) {
    assert(used == MR_EINVAL || used == MR_ETOOBIG || (used >= 0 && (size_t)used <= given));
    assert(used != 0 || need > given);
    assert(used <= 0 || need == 0);
}

// Passes `step` bytes more at a time until the reader decides. Returns its last answer; the
// arguments are appended to `out` as a request.
static inline ptrdiff_t request_in_pieces(mr_bytes all, const struct request_limits *limits,
                                          size_t step, struct buffer *out) {
    static mr_bytes arguments[WIRE_VALUES];
    struct request r = { 0 };
    for (size_t given = 0; given < all.size;) {
        given = all.size - given > step ? given + step : all.size;
        uint8_t *data = wire_copy((mr_bytes){ all.data, given });
        uint32_t count = 0;
        ptrdiff_t used = request_read(&r, limits, data, given, arguments, &count);
        wire_plausible(used, given, r.need);
        for (uint32_t i = 0; used > 0 && i < count; i++)
            wire_inside(arguments[i], data, (size_t)used);
        int err = used > 0 ? request_write(out, arguments, count) : 0;
        assert(err == 0);
        free(data);
        if (used != 0)
            return used;
    }
    return 0;
}

// The server sends no booleans, so reply.h cannot write them.
static inline void boolean_spell(struct reply *out, bool yes) {
    if (out->err == 0)
        out->err = buffer_append(out->out, yes ? "#t\r\n" : "#f\r\n", 4);
}

static inline void value_spell(struct reply *out, const struct response_value *v) {
    switch (v->type) {
    case RESPONSE_SIMPLE:
    case RESPONSE_BULK:
    case RESPONSE_DOUBLE:
        reply_bulk(out, v->bytes);
        break;
    case RESPONSE_ERROR:
        reply_error(out, "", v->bytes);
        break;
    case RESPONSE_INTEGER:
        reply_integer(out, v->integer);
        break;
    case RESPONSE_BOOLEAN:
        boolean_spell(out, v->boolean);
        break;
    case RESPONSE_NULL:
        reply_null(out);
        break;
    case RESPONSE_ARRAY:
        reply_array(out, v->count);
        break;
    case RESPONSE_MAP:
        reply_map(out, v->count / 2);
        break;
    case RESPONSE_PUSH:
        reply_push(out, v->count);
        break;
    }
}

static inline void values_spell(const struct response_value *values, uint32_t count,
                                const uint8_t *data, size_t size, struct buffer *out) {
    struct reply reply = { .out = out, .resp3 = true };
    for (uint32_t i = 0; i < count; i++) {
        if (values[i].type <= RESPONSE_DOUBLE)
            wire_inside(values[i].bytes, data, size);
        value_spell(&reply, &values[i]);
    }
    assert(reply.err == 0);
    assert(response_skip(values, 0) == count);
}

// The same for a reply; its values are appended to `out`.
static inline ptrdiff_t response_in_pieces(mr_bytes all, const struct response_limits *limits,
                                           size_t step, struct buffer *out) {
    static struct response_value values[WIRE_VALUES];
    struct response r = { 0 };
    for (size_t given = 0; given < all.size;) {
        given = all.size - given > step ? given + step : all.size;
        uint8_t *data = wire_copy((mr_bytes){ all.data, given });
        uint32_t count = 0;
        ptrdiff_t used = response_read(&r, limits, data, given, values, &count);
        wire_plausible(used, given, r.need);
        if (used > 0)
            values_spell(values, count, data, (size_t)used, out);
        free(data);
        if (used != 0)
            return used;
    }
    return 0;
}

#endif
