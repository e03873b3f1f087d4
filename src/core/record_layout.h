// The layout of a record's head: a number for the kind, a set of optional fields, the time, and the
// fields of the kind in the order of the lists below.
//
// Each field is described once, by a line of a list: its bit, its member, its encoding, its bound,
// and its printed name. A list is expanded (X) by all code that handles each field: the writer
// here, the reader, the bounds and the table for printing in record.c, copying to other shards in
// cli/store/reshard.c.
//
// The writer is inline: where the kind is known, the compiler leaves only the fields of that kind,
// and for PUSH and END, which are nearly all records (see record_out.c), no struct record is built
// in memory.
#ifndef CORE_RECORD_LAYOUT_H
#define CORE_RECORD_LAYOUT_H

#include "base/limits.h"
#include "core/record.h"
#include "core/route.h"

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
    HAS_META = 1 << 16,
    HAS_ABOUT_SCHEDULE = 1 << 17,
    HAS_MOVE = 1 << 18,
    HAS_ABOUT_EPIC = 1 << 19,
    HAS_RARE = HAS_NAME | HAS_UPTO | HAS_EPOCH | HAS_ABOUT_STAGE | HAS_ABOUT_SOURCE |
               HAS_SOURCE_NUMBER | HAS_LINK | HAS_LEASE | HAS_MAKER | HAS_META |
               HAS_ABOUT_SCHEDULE | HAS_MOVE | HAS_ABOUT_EPIC,
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
    WITH_ALL = (1 << 8) - 1,
};

enum {
    FIELDS_OF_PUSH = HAS_ID | HAS_STAGE | HAS_POSITION,
    FIELDS_OF_JOB = FIELDS_OF_PUSH | HAS_PUSHED | HAS_ATTEMPT | HAS_STATUS,
    FIELDS_OF_END = FIELDS_OF_JOB | HAS_SERIAL,
    FIELDS_OF_STAGE = HAS_STAGE | HAS_NAME | HAS_ABOUT_STAGE,
    FIELDS_OF_SOURCE = HAS_STAGE | HAS_SOURCE_NUMBER | HAS_NAME | HAS_ABOUT_SOURCE,
    FIELDS_OF_OUTBOX = HAS_STAGE | HAS_LINK | HAS_NAME,
    FIELDS_OF_ARRIVAL = FIELDS_OF_PUSH | HAS_LINK,
    FIELDS_OF_MOVE = HAS_STAGE | HAS_NAME | HAS_MOVE,
    FIELDS_OF_SCHEDULE = FIELDS_OF_MOVE | HAS_ABOUT_SCHEDULE,
    FIELDS_OF_EPIC = HAS_STAGE | HAS_SOURCE_NUMBER | HAS_ABOUT_EPIC,
    FIELDS_OF_MADE = HAS_MAKER | HAS_META, // beyond those of the kind, of a job's records
    FIELDS_OF_LEASE =
        HAS_ID | HAS_STAGE | HAS_POSITION | HAS_PUSHED | HAS_ATTEMPT | HAS_SERIAL | HAS_LEASE,
};

// ---- The lists --------------------------------------------------------------------------------

// X(bit, member of struct record, type, bound, printed name: NULL is not printed)
#define RECORD_FIXED_FIELDS(X)                                                                     \
    X(HAS_ID, id, id, NUMBER_MOST, "id")                                                           \
    X(HAS_STAGE, stage, stage, UINT32_MAX, "stage")                                                \
    X(HAS_POSITION, position, u64, UINT64_MAX, NULL)                                               \
    X(HAS_PUSHED, pushed_ms, time, INSTANT_MOST, "pushed")                                         \
    X(HAS_ATTEMPT, attempt, small, UINT16_MAX, "attempt")                                          \
    X(HAS_STATUS, status, status, JOB_CANCELLED, "status")                                         \
    X(HAS_SERIAL, serial, hex, UINT64_MAX, "lease")

// The random bits of a lease's token are a secret, so they are not printed.
#define RECORD_RARE_FIELDS(X)                                                                      \
    X(HAS_UPTO, upto, u64, UINT64_MAX, "upto")                                                     \
    X(HAS_EPOCH, epoch, u64, EPOCH_MOST, "epoch")                                                  \
    X(HAS_EPOCH, next_id, id, NUMBER_MOST, "next-id")                                              \
    X(HAS_SOURCE_NUMBER, source, u64, NUMBER_MOST, "source")                                       \
    X(HAS_LINK, shard, shard, SHARDS_MOST - 1, "other-shard")                                      \
    X(HAS_LINK, number, number, NUMBER_MOST, "number")                                             \
    X(HAS_LEASE, random, u64, UINT64_MAX, NULL)                                                    \
    X(HAS_LEASE, lease_ms, small, UINT32_MAX, "lease-ms")                                          \
    X(HAS_MAKER, maker, hex, UINT64_MAX, "made-by")                                                \
    X(HAS_META, meta_size, small, META_MOST, "meta-bytes")                                         \
    X(HAS_NAME, name, bytes, ONCE_MOST, "name")

// A bit is set if all its members are: see optional_fields.
#define RECORD_OPTIONAL_FIELDS(X)                                                                  \
    X(WITH_COPY, copy, present, 1, NULL)                                                           \
    X(WITH_CALL, call, present, 1, "call")                                                         \
    X(WITH_KEY, key, bytes, KEY_MOST, "key")                                                       \
    X(WITH_ONCE, has_once, present, 1, "once")                                                     \
    X(WITH_ONCE, once, hash, 0, NULL)                                                              \
    X(WITH_DUE, due_ms, time, INSTANT_MOST, "due")                                                 \
    X(WITH_DEADLINE, deadline_ms, time, INSTANT_MOST, "deadline")                                  \
    X(WITH_ATTEMPTS, attempts, small, UINT16_MAX, "attempts")                                      \
    X(WITH_SOURCE, source, u64, NUMBER_MOST, "source")                                             \
    X(WITH_SOURCE, number, number, NUMBER_MOST, "number")

// X(member of struct record_stage and of struct stage, type, how values of several shards are
// merged, printed name). The policy follows.
#define RECORD_STAGE_FIELDS(X)                                                                     \
    X(pushed, number, sum, "pushed")                                                               \
    X(done, number, sum, "done")                                                                   \
    X(failed, number, sum, "failed")                                                               \
    X(died, number, sum, "dead")                                                                   \
    X(expired, number, sum, "expired")                                                             \
    X(cancelled, number, sum, "cancelled")                                                         \
    X(wasted_wait_ms, number, sum, "wasted-wait-ms")                                               \
    X(paused, flag, first, "paused")                                                               \
    X(draining, flag, first, "draining")

// X(member of struct record_source, …) likewise; `window`: the union of the numbers seen.
#define RECORD_SOURCE_FIELDS(X)                                                                    \
    X(epic, flag, either, "epic")                                                                  \
    X(highest, number, window, "highest")                                                          \
    X(total, total, largest, "total")                                                              \
    X(accepted, number, sum, "accepted")                                                           \
    X(done, number, sum, "done")                                                                   \
    X(dead, number, sum, "dead")                                                                   \
    X(cancelled, number, sum, "cancelled")                                                         \
    X(expired, number, sum, "expired")                                                             \
    X(bitmap, bitmap, window, NULL)

// X(member of struct record_schedule, type, bound, printed name)
#define RECORD_SCHEDULE_FIELDS(X)                                                                  \
    X(every_ms, number, TIME_MOST_MS, "every-ms")                                                  \
    X(missed, missed, MISSED_ALL, "missed")                                                        \
    X(deadline_ms, number, TIME_MOST_MS, "deadline-ms")                                            \
    X(cron, bytes, CRON_MOST, "cron")                                                              \
    X(zone, bytes, ZONE_NAME_MOST, "tz")                                                           \
    X(meta_size, small, META_MOST, "meta-bytes")

// X(member of struct record_move, …) likewise.
#define RECORD_MOVE_FIELDS(X)                                                                      \
    X(next_ms, time, INSTANT_MOST, "next")                                                         \
    X(last_ms, time, INSTANT_MOST, "last")                                                         \
    X(pushed, number, NUMBER_MOST, "pushed")                                                       \
    X(last_id, id, NUMBER_MOST, "last-id")                                                         \
    X(paused, flag, 1, "paused")                                                                   \
    X(asked, flag, 1, "asked")

// X(member of struct record_epic, …) likewise.
#define RECORD_EPIC_FIELDS(X)                                                                      \
    X(cancelled, flag, 1, "cancelled")                                                             \
    X(pushed, hex, UINT64_MAX, "pushed")                                                           \
    X(forget_ms, number, TIME_MOST_MS, "forget-ms")                                                \
    X(ended_ms, time, INSTANT_MOST, "ended")                                                       \
    X(then, bytes, STAGE_NAME_MOST, "then")                                                        \
    X(body, bytes, THEN_BODY_MOST, "body")

// The first rows of the table of policies have fixed places within STAGE. Later ones are written at
// its end, after the optional fields, up to the last that is not at its default: so a record that
// was written before a policy existed can still be read.
enum { POLICIES_WITHIN_STAGE = 14 };

struct reader;

// Writes the values of the rows from `from` up to before `to`.
uint8_t *record_write_policies(uint8_t *p, const struct policy *, size_t from, size_t to);

// The end of the rows that must be written, because all that follow have their defaults.
size_t record_policies_end(const struct policy *, size_t from);

// Reads the rows from `from` on. Rows that the record lacks get their defaults; a record whose last
// row has its default is bad, since a policy has one encoding only.
void record_read_later_policies(struct reader *, struct policy *, size_t from);

// ---- Writing, by type -------------------------------------------------------------------------

RECORD_INLINE uint8_t *field_write_u64(uint8_t *p, uint64_t v) {
    v = htole64(v);
    memcpy(p, &v, sizeof v);
    return p + sizeof v;
}

RECORD_INLINE uint8_t *field_write_id(uint8_t *p, uint64_t v) {
    return field_write_u64(p, v);
}

RECORD_INLINE uint8_t *field_write_hex(uint8_t *p, uint64_t v) {
    return field_write_u64(p, v);
}

enum { TIME_BYTES = 6 }; // milliseconds for the next 8,000 years

RECORD_INLINE uint8_t *field_write_time(uint8_t *p, uint64_t ms) {
    field_write_u64(p, ms);
    return p + TIME_BYTES;
}

RECORD_INLINE uint8_t *field_write_number(uint8_t *p, uint64_t v) {
    while (v >= 0x80) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

RECORD_INLINE uint8_t *field_write_total(uint8_t *p, uint64_t v) {
    return field_write_number(p, v);
}

RECORD_INLINE uint8_t *field_write_small(uint8_t *p, uint32_t v) {
    return field_write_number(p, v);
}

RECORD_INLINE uint8_t *field_write_stage(uint8_t *p, uint32_t number) {
    return field_write_number(p, number);
}

RECORD_INLINE uint8_t *field_write_shard(uint8_t *p, uint32_t number) {
    return field_write_number(p, number);
}

RECORD_INLINE uint8_t *field_write_flag(uint8_t *p, bool v) {
    return field_write_number(p, v);
}

RECORD_INLINE uint8_t *field_write_present(uint8_t *p, bool v) {
    (void)v; // its bit is enough
    return p;
}

RECORD_INLINE uint8_t *field_write_status(uint8_t *p, enum job_status v) {
    *p = (uint8_t)v;
    return p + 1;
}

RECORD_INLINE uint8_t *field_write_missed(uint8_t *p, uint32_t v) {
    return field_write_number(p, v);
}

RECORD_INLINE uint8_t *field_write_hash(uint8_t *p, struct hash128 v) {
    return field_write_u64(field_write_u64(p, v.low), v.high);
}

RECORD_INLINE uint8_t *field_write_bytes(uint8_t *p, mr_bytes b) {
    p = field_write_number(p, b.size);
    if (b.size) // data may be NULL
        memcpy(p, b.data, b.size);
    return p + b.size;
}

RECORD_INLINE uint8_t *field_write_bitmap(uint8_t *p, const uint8_t *bitmap) {
    memcpy(p, bitmap, SOURCE_BITMAP);
    return p + SOURCE_BITMAP;
}

// ---- Writing a head ---------------------------------------------------------------------------

#define IS_SET_time(v) ((v) != 0)
#define IS_SET_small(v) ((v) != 0)
#define IS_SET_u64(v) ((v) != 0)
#define IS_SET_number(v) ((v) != 0)
#define IS_SET_present(v) (v)
#define IS_SET_bytes(v) ((v).size != 0)
#define IS_SET_hash(v) true

// Kinds that always have a source number or a link number do not have WITH_SOURCE.
RECORD_INLINE uint32_t optional_fields(const struct record *r, uint32_t fields) {
    uint32_t with = fields & (HAS_SOURCE_NUMBER | HAS_LINK) ? WITH_ALL & ~WITH_SOURCE : WITH_ALL;
#define OPTIONAL_FIELD(bit, member, type, ...) with &= IS_SET_##type(r->member) ? WITH_ALL : ~(bit);
    RECORD_OPTIONAL_FIELDS(OPTIONAL_FIELD)
#undef OPTIONAL_FIELD
    return with;
}

// `p` has RECORD_MAX bytes, which no record exceeds.
#define WRITE_FIELD(bit, member, type, ...)                                                        \
    if (fields & (bit))                                                                            \
        p = field_write_##type(p, r->member);

RECORD_INLINE uint8_t *write_fixed(uint8_t *p, const struct record *r, uint32_t fields) {
    RECORD_FIXED_FIELDS(WRITE_FIELD)
    return p;
}

RECORD_INLINE uint8_t *write_rare(uint8_t *p, const struct record *r, uint32_t fields) {
    RECORD_RARE_FIELDS(WRITE_FIELD)
    return p;
}

RECORD_INLINE uint8_t *write_optional(uint8_t *p, const struct record *r, uint32_t fields) {
    RECORD_OPTIONAL_FIELDS(WRITE_FIELD)
    return p;
}

#undef WRITE_FIELD

// The number of the kind, which optional fields follow, the time, and what the kind always has. The
// kinds that are written without record_encode have the number of their place in the list.
RECORD_INLINE uint8_t *write_front(uint8_t *p, const struct record *r, uint32_t fields,
                                   uint32_t with) {
    *p++ = (uint8_t)r->kind;
    *p++ = (uint8_t)with;
    p = field_write_time(p, r->time_ms);
    return write_fixed(p, r, fields);
}

// A whole head, of a kind without rare fields; returns its size.
RECORD_INLINE size_t record_write(const struct record *r, uint32_t fields, uint8_t *out) {
    uint32_t with = optional_fields(r, fields);
    uint8_t *p = write_front(out, r, fields, with);
    return (size_t)((with ? write_optional(p, r, with) : p) - out);
}

#endif
