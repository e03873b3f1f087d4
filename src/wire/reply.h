// Replies, written as a server does, in RESP2 or RESP3:
//
//     reply_             RESP2          RESP3
//     simple             +OK
//     error              -STALE the lease is no longer held
//     integer            :12
//     bulk, id           $3 CR LF 123
//     null               $-1            _
//     boolean            :1             #t
//     double             $3 CR LF 0.5   ,0.5
//     array of 2         *2
//     map of 2 pairs     *4             %2
//     push of 2          –              >2
//
// The header of an array, map or push says how many values follow; the caller has to write them.
// The first failure is remembered and nothing is written after it, so that a sequence of calls
// needs one check at its end; the buffer may then end within a reply, and the connection has to be
// closed.
#ifndef WIRE_REPLY_H
#define WIRE_REPLY_H

#include "base/buffer.h"
#include "wire/number.h"

#include <stdbool.h>
#include <stdint.h>

struct reply {
    struct buffer *out; // borrowed; its limit bounds the replies that the client has not read
    bool resp3;
    int err; // 0, or the first error of buffer_reserve
};

static inline void reply_simple(struct reply *, const char *text); // a line, usually a constant

// A code in capitals, then a sentence, which may be empty. Line breaks in it become spaces.
void reply_error(struct reply *, const char *code, mr_bytes text);

void reply_integer(struct reply *, int64_t);
void reply_bulk(struct reply *, mr_bytes);
void reply_id(struct reply *, uint64_t); // a bulk string of digits, since JavaScript rounds numbers
void reply_null(struct reply *);
void reply_double(struct reply *, double);
void reply_array(struct reply *, uint64_t count);
void reply_map(struct reply *, uint64_t pairs);
void reply_push(struct reply *, uint64_t count); // RESP3 only

// A bulk string whose bytes the caller appends to `out` itself between these two, which saves a
// copy if it has 10 to 99 bytes; otherwise they are moved. The end takes what the beginning
// returned.
size_t reply_bulk_begin(struct reply *);
void reply_bulk_end(struct reply *, size_t begin);

// ---- Several values at once -------------------------------------------------------------------
//
// The caller makes room for all of them; the functions below write one each, where the last has
// ended, without checks:
//
//     uint8_t *to = reply_room(r, VALUE_ROOM + name.size + VALUE_ROOM);
//     if (to)
//         reply_written(r, integer_write(bulk_write(to, name), count));

enum {
    LINE_ROOM = 1 + NUMBER_DIGITS + 2,         // "$" and twenty digits, or ":-" and nineteen
    VALUE_ROOM = LINE_ROOM + NUMBER_DIGITS + 2 // an id, or a bulk string beside its bytes
};

// Room for `size` bytes behind what was written, or NULL after a failure.
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

static inline uint8_t *array_write(uint8_t *to, uint64_t count) {
    return number_line_write(to, '*', count);
}

static inline uint8_t *integer_write(uint8_t *to, int64_t number) {
    if (number >= 0)
        return number_line_write(to, ':', (uint64_t)number);
    *to = ':';
    return number_line_write(to + 1, '-', -(uint64_t)number);
}

static inline uint8_t *bulk_write(uint8_t *to, mr_bytes bytes) {
    to = number_line_write(to, '$', bytes.size);
    return copy_bytes(copy_bytes(to, bytes.data, bytes.size), "\r\n", 2);
}

static inline uint8_t *id_write(uint8_t *to, uint64_t id) {
    size_t size = number_size(id);
    to = number_line_write(to, '$', size);
    return copy_bytes(number_write_sized(to, id, size), "\r\n", 2);
}

static inline uint8_t *null_write(uint8_t *to, bool resp3) {
    return resp3 ? copy_bytes(to, "_\r\n", 3) : copy_bytes(to, "$-1\r\n", 5);
}

static inline void reply_simple(struct reply *r, const char *text) {
    size_t size = strlen(text);
    uint8_t *to = reply_room(r, 1 + size + 2);
    if (!to)
        return;
    *to++ = '+';
    reply_written(r, copy_bytes(copy_bytes(to, text, size), "\r\n", 2));
}

#endif
