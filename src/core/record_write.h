// How a record's head is written: a kind, a set of optional fields, the time, and the kind's own
// fields in a fixed order. Everything here is inline, so that where the kind is known only its own
// fields are looked at, and those of nearly all records (PUSH and END, see record_out.c) go from
// the job to the head without a struct record in memory.
//
// `p` has RECORD_MAX bytes, which no record exceeds.
#ifndef CORE_RECORD_WRITE_H
#define CORE_RECORD_WRITE_H

#include "core/record.h"

#include <endian.h>
#include <string.h>

#define RECORD_INLINE __attribute__((always_inline)) static inline

// Fields that a kind always has.
enum {
    HAS_ID = 1 << 0,
    HAS_STAGE = 1 << 1,
    HAS_NAME = 1 << 2,
    HAS_POSITION = 1 << 3,
    HAS_PUSHED = 1 << 4,
    HAS_ATTEMPT = 1 << 5,
    HAS_STATUS = 1 << 6,
    HAS_SERIAL = 1 << 7,
    HAS_UPTO = 1 << 8,
    HAS_EPOCH = 1 << 9,
    HAS_ABOUT_STAGE = 1 << 10,
    HAS_ABOUT_SOURCE = 1 << 11,
    HAS_SOURCE_NUMBER = 1 << 12,
    HAS_LINK = 1 << 13,
    HAS_LEASE = 1 << 14,
    HAS_MAKER = 1 << 15,
    HAS_RARE = HAS_NAME | HAS_UPTO | HAS_EPOCH | HAS_ABOUT_STAGE | HAS_ABOUT_SOURCE |
               HAS_SOURCE_NUMBER | HAS_LINK | HAS_LEASE | HAS_MAKER,
};

// Fields that a record may have; written as a bit set in front.
enum {
    WITH_COPY = 1 << 0,
    WITH_CALL = 1 << 1,
    WITH_KEY = 1 << 2,
    WITH_ONCE = 1 << 3,
    WITH_DUE = 1 << 4,
    WITH_DEADLINE = 1 << 5,
    WITH_ATTEMPTS = 1 << 6,
    WITH_SOURCE = 1 << 7,
};

enum {
    FIELDS_OF_PUSH = HAS_ID | HAS_STAGE | HAS_POSITION,
    FIELDS_OF_JOB = FIELDS_OF_PUSH | HAS_PUSHED | HAS_ATTEMPT | HAS_STATUS,
    FIELDS_OF_END = FIELDS_OF_JOB | HAS_SERIAL,
};

RECORD_INLINE uint32_t optional_fields(const struct record *r, uint32_t fields) {
    uint32_t with = 0;
    with |= r->copy ? WITH_COPY : 0;
    with |= r->call ? WITH_CALL : 0;
    with |= r->key.size ? WITH_KEY : 0;
    with |= r->has_once ? WITH_ONCE : 0;
    with |= r->due_ms ? WITH_DUE : 0;
    with |= r->deadline_ms ? WITH_DEADLINE : 0;
    with |= r->attempts ? WITH_ATTEMPTS : 0;
    bool numbered = !(fields & (HAS_SOURCE_NUMBER | HAS_LINK));
    with |= numbered && r->number && r->source ? WITH_SOURCE : 0;
    return with;
}

RECORD_INLINE uint8_t *write_u64(uint8_t *p, uint64_t v) {
    v = htole64(v);
    memcpy(p, &v, sizeof v);
    return p + sizeof v;
}

enum { TIME_BYTES = 6 }; // milliseconds for the next 8,000 years

RECORD_INLINE uint8_t *write_time(uint8_t *p, uint64_t ms) {
    write_u64(p, ms);
    return p + TIME_BYTES;
}

RECORD_INLINE uint8_t *write_number(uint8_t *p, uint64_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

RECORD_INLINE uint8_t *write_bytes(uint8_t *p, mr_bytes b) {
    p = write_number(p, b.size);
    if (b.size) // what is empty may have no data
        memcpy(p, b.data, b.size);
    return p + b.size;
}

RECORD_INLINE uint8_t *write_fixed(uint8_t *p, const struct record *r, uint32_t fields) {
    if (fields & HAS_ID)
        p = write_u64(p, r->id);
    if (fields & HAS_STAGE)
        p = write_number(p, r->stage);
    if (fields & HAS_POSITION)
        p = write_u64(p, r->position);
    if (fields & HAS_PUSHED)
        p = write_time(p, r->pushed_ms);
    if (fields & HAS_ATTEMPT)
        p = write_number(p, r->attempt);
    if (fields & HAS_STATUS)
        *p++ = (uint8_t)r->status;
    if (fields & HAS_SERIAL)
        p = write_u64(p, r->serial);
    return p;
}

RECORD_INLINE uint8_t *write_optional(uint8_t *p, const struct record *r, uint32_t with) {
    if (with & WITH_KEY)
        p = write_bytes(p, r->key);
    if (with & WITH_ONCE)
        p = write_u64(write_u64(p, r->once.low), r->once.high);
    if (with & WITH_DUE)
        p = write_time(p, r->due_ms);
    if (with & WITH_DEADLINE)
        p = write_time(p, r->deadline_ms);
    if (with & WITH_ATTEMPTS)
        p = write_number(p, r->attempts);
    if (with & WITH_SOURCE)
        p = write_number(write_u64(p, r->source), r->number);
    return p;
}

// The kind, which optional fields follow, the time, and what the kind always has.
RECORD_INLINE uint8_t *write_front(uint8_t *p, const struct record *r, uint32_t fields,
                                   uint32_t with) {
    *p++ = (uint8_t)r->kind;
    *p++ = (uint8_t)with;
    p = write_time(p, r->time_ms);
    return write_fixed(p, r, fields);
}

// A whole head, of a kind without rare fields; returns its size.
RECORD_INLINE size_t record_write(const struct record *r, uint32_t fields, uint8_t *out) {
    uint32_t with = optional_fields(r, fields);
    uint8_t *p = write_front(out, r, fields, with);
    return (size_t)((with ? write_optional(p, r, with) : p) - out);
}

#endif
