// Buffer: bytes that grow up to a limit. Zero is a valid start (limit 0 means none).
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include "millrace.h"

#include <stddef.h>
#include <stdint.h>

struct buffer {
    uint8_t *data;
    size_t size, capacity, limit;
};

// Makes room for `more` bytes behind the content. MR_ETOOBIG: the limit; MR_ENOMEM.
int buffer_reserve(struct buffer *, size_t more);

// Appends a copy. Errors as buffer_reserve; the content is then unchanged.
int buffer_append(struct buffer *, const void *data, size_t size);

void buffer_finish(struct buffer *);

static inline void buffer_clear(struct buffer *b) {
    b->size = 0;
}

static inline mr_bytes buffer_bytes(const struct buffer *b) {
    return (mr_bytes){ b->data, b->size };
}

#endif
