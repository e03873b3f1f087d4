// Buffer: bytes that grow up to a limit. Zero is a valid start (limit 0 means none).
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buffer {
    uint8_t *data;
    size_t size, capacity, limit;
};

int buffer_grow(struct buffer *, size_t more);

// Makes room for `more` bytes behind the content. MR_ETOOBIG: the limit; MR_ENOMEM.
static inline int buffer_reserve(struct buffer *b, size_t more) {
    bool fits = more <= b->capacity - b->size && (!b->limit || more <= b->limit - b->size);
    return fits ? 0 : buffer_grow(b, more);
}

// Appends a copy. Errors as buffer_reserve; the content is then unchanged.
static inline int buffer_append(struct buffer *b, const void *data, size_t size) {
    int err = buffer_reserve(b, size);
    if (err < 0)
        return err;
    if (size)
        memcpy(b->data + b->size, data, size);
    b->size += size;
    return 0;
}

// For content that is consumed from the front while more is appended: drops the first `used` bytes
// once they are more than half, so that a buffer that never runs empty does not grow for ever.
// Returns how many used bytes are still there: `used` or 0.
size_t buffer_compact(struct buffer *, size_t used);

void buffer_finish(struct buffer *);

static inline void buffer_clear(struct buffer *b) {
    b->size = 0;
}

static inline mr_bytes buffer_bytes(const struct buffer *b) {
    return (mr_bytes){ b->data, b->size };
}

#endif
