// Frame: the 32 bytes in front of every entry of the file log, little-endian.
//
//      0           4           8        12          16          24          32
//      ├───────────┼───────────┼────────┼───────────┼───────────┼───────────┼──────┬──────┐
//      │ head size │ body size │ flags  │ unsynced  │ body sum  │ frame sum │ head │ body │ pad
//      └───────────┴───────────┴────────┴───────────┴───────────┴───────────┴──────┴──────┘
//
// The frame sum covers the fields before it and the head, and depends on the position, so that old
// bytes from another place or time never match. `unsynced` says how many bytes before the frame
// were not known to be on the disk when it was written: with it recovery tells a write that a crash
// tore from later damage. Zeros are not a valid frame: they mark the end.
#ifndef LOG_FRAME_H
#define LOG_FRAME_H

#include "base/entry.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum frame_flags {
    FRAME_FIRST = 1,    // of a group
    FRAME_LAST = 2,     // of a group
    FRAME_SEAL = 4,     // the segment ends here and the next one exists
    FRAME_SKIP = 8,     // no entry: readers skip its bytes
    FRAME_DAMAGED = 16, // the body was found damaged, and moved here as it was
    FRAME_FLAGS = 31,
};

#define FRAME_MAGIC UINT32_C(0x6d720000) // in the upper half of the flags

struct log_frame {
    uint32_t head_size, body_size, flags, unsynced;
    uint64_t body_sum, sum;
};

static inline void store_u32(uint8_t *to, uint32_t v) {
    v = htole32(v);
    memcpy(to, &v, sizeof v);
}

static inline void store_u64(uint8_t *to, uint64_t v) {
    v = htole64(v);
    memcpy(to, &v, sizeof v);
}

static inline uint32_t load_u32(const uint8_t *from) {
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return le32toh(v);
}

static inline uint64_t load_u64(const uint8_t *from) {
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return le64toh(v);
}

static inline uint64_t frame_size(const struct log_frame *f) {
    return (ENTRY_FRAME + (uint64_t)f->head_size + f->body_size + 7) & ~UINT64_C(7);
}

static inline bool frame_is_entry(const struct log_frame *f) {
    return !(f->flags & (FRAME_SEAL | FRAME_SKIP));
}

// The sum of a frame whose fields stand at `raw`, for an entry at `at`.
static inline uint64_t frame_sum(const uint8_t *raw, const uint8_t *head, size_t head_size,
                                 uint64_t at) {
    uint64_t seed = XXH3_64bits(head, head_size) ^ at * UINT64_C(0x9e3779b97f4a7c15);
    return XXH3_64bits_withSeed(raw, ENTRY_FRAME - sizeof(uint64_t), seed);
}

// Writes frame, head and body to `to`, padded with zeros. `body_sum` is XXH3 of the body.
static inline void frame_put(uint8_t *to, uint64_t at, const struct entry *e, uint32_t flags,
                             uint32_t unsynced) {
    uint8_t *head = to + ENTRY_FRAME, *body = head + e->head.size;
    if (e->head.size)
        memcpy(head, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(body, e->body.data, e->body.size);
    store_u32(to, (uint32_t)e->head.size);
    store_u32(to + 4, (uint32_t)e->body.size);
    store_u32(to + 8, flags | FRAME_MAGIC);
    store_u32(to + 12, unsynced);
    store_u64(to + 16, XXH3_64bits(body, e->body.size));
    store_u64(to + 24, frame_sum(to, head, e->head.size, at));
    uint8_t *end = body + e->body.size;
    memset(end, 0, to + entry_size(e->head.size, e->body.size) - end);
}

// Writes a frame that is no entry: a seal, or a skip over `size` bytes (at least ENTRY_FRAME), of
// which only the frame is written.
static inline void frame_put_mark(uint8_t *to, uint64_t at, uint32_t flags, uint64_t size,
                                  uint32_t unsynced) {
    memset(to, 0, ENTRY_FRAME);
    store_u32(to + 4, (uint32_t)(size - ENTRY_FRAME));
    store_u32(to + 8, flags | FRAME_MAGIC);
    store_u32(to + 12, unsynced);
    store_u64(to + 24, frame_sum(to, to, 0, at));
}

// Decodes the fields. False: this is no frame.
static inline bool frame_get(const uint8_t *raw, struct log_frame *out) {
    uint32_t flags = load_u32(raw + 8);
    if ((flags & ~(uint32_t)FRAME_FLAGS) != FRAME_MAGIC)
        return false;
    *out = (struct log_frame){ .head_size = load_u32(raw),
                               .body_size = load_u32(raw + 4),
                               .flags = flags & FRAME_FLAGS,
                               .unsynced = load_u32(raw + 12),
                               .body_sum = load_u64(raw + 16),
                               .sum = load_u64(raw + 24) };
    return true;
}

static inline bool frame_head_fits(const struct log_frame *f, const uint8_t *raw, uint64_t at) {
    return frame_sum(raw, raw + ENTRY_FRAME, f->head_size, at) == f->sum;
}

static inline bool frame_body_fits(const struct log_frame *f, const uint8_t *raw) {
    return !frame_is_entry(f) ||
           XXH3_64bits(raw + ENTRY_FRAME + f->head_size, f->body_size) == f->body_sum;
}

#endif
