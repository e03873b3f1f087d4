// Codec: fields one after another, little-endian; numbers as varints where they are mostly small. A
// writer has a fixed buffer and a reader a fixed input; both remember a failure, so that a sequence
// of calls needs one check at its end.
#ifndef BASE_CODEC_H
#define BASE_CODEC_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

struct writer {
    uint8_t *data;
    size_t size, capacity;
    bool overflow;
};

struct reader {
    const uint8_t *data;
    size_t size, at;
    bool bad; // ran over the end, or a number was not well formed
};

static inline struct reader reader_of(mr_bytes b) {
    return (struct reader){ .data = b.data, .size = b.size };
}

// Room for `size` bytes, or NULL.
static inline uint8_t *writer_room(struct writer *w, size_t size) {
    if (size > w->capacity - w->size || w->overflow) {
        w->overflow = true;
        return NULL;
    }
    uint8_t *p = w->data ? w->data + w->size : NULL;
    w->size += size;
    return p;
}

static inline void put_u8(struct writer *w, uint8_t v) {
    uint8_t *p = writer_room(w, 1);
    if (p)
        *p = v;
}

void put_u32(struct writer *, uint32_t);
void put_u64(struct writer *, uint64_t);
void put_raw(struct writer *, mr_bytes);
void put_bytes(struct writer *, mr_bytes); // size as a number, then the bytes

// A varint: 7 bits per byte, low bits first, shortest form only.
static inline void put_number(struct writer *w, uint64_t v) {
    while (v >= 0x80) {
        put_u8(w, (uint8_t)(v | 0x80));
        v >>= 7;
    }
    put_u8(w, (uint8_t)v);
}

uint8_t get_u8(struct reader *);
uint32_t get_u32(struct reader *);
uint64_t get_u64(struct reader *);
uint64_t get_number(struct reader *);
mr_bytes get_raw(struct reader *, size_t size); // borrowed from the input
mr_bytes get_bytes(struct reader *);

// True when everything was read without a failure.
static inline bool reader_done(const struct reader *r) {
    return !r->bad && r->at == r->size;
}

#endif
