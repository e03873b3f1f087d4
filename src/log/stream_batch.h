// How a stream log encodes a batch. Everything is little-endian.
//
//     bodies   ┌──────┬──────┬───┬──────┬──────┬───┐     an entry's position is batch.at + the
//              │ item │ body │pad│ item │ body │pad│     offset of its item, so one read of the
//              └──┬───┴──────┴───┴──────┴──────┴───┘     store at the position finds the body
//                 └ u32 body size, u32 offset of the frame, u32 body sum, u32 sum of the item
//
//     heads    ┌────────┬───────┬──────┬───────┬──────┐
//              │ header │ frame │ head │ frame │ head │
//              └───┬────┴───┬───┴──────┴───────┴──────┘
//                  │        └ u32 head size, u32 body size, u64 sum of frame and head
//                  └ u32 version, u32 segment shift, u32 entries, u32 size of bodies,
//                    u64 at, u64 before (the end of the batch in front), u64 sum of all heads
//
//     end = at + both sizes, rounded up to 8
//
// All sums are XXH3 and depend on the position. The sum of a body that was known to be damaged is
// stored inverted: reading it fails, as it did before. `before` shows a missing batch.
#ifndef LOG_STREAM_BATCH_H
#define LOG_STREAM_BATCH_H

#include "base/entry.h"
#include "log/log.h"
#include "log/stream.h"

#include <stdbool.h>
#include <stdint.h>

enum { BATCH_HEADER = 40, BATCH_FRAME = 16, BATCH_ITEM = 16 };

struct batch_header {
    uint32_t shift, count, bodies_size;
    uint64_t at, before;
};

struct batch_item {
    uint32_t body_size, frame_at, body_sum;
};

static inline uint64_t round_up_8(uint64_t size) {
    return (size + 7) & ~UINT64_C(7);
}

// Adds what a group needs in each part.
void batch_measure(const struct entry *, size_t count, uint64_t *heads, uint64_t *bodies);

// Appends an entry to the parts of the batch at `batch_at` and returns its position. The caller has
// reserved the room in both buffers, and the header's in `heads`.
uint64_t batch_put(struct buffer *heads, struct buffer *bodies, uint64_t batch_at,
                   const struct entry *);

// Writes the header, when all entries are there.
void batch_put_header(struct buffer *heads, const struct batch_header *);

// Decodes a header alone, without its sum. False: this is none.
bool batch_get_header(mr_bytes heads, struct batch_header *out);

// Checks header, frames, heads and position. NULL: all is right; otherwise what is wrong. Bodies
// may be missing; if not, only their size is checked.
const char *batch_check(const struct stream_batch *, struct batch_header *out);

// Decodes the item of the entry at position `at`. False: no entry begins there, or it is damaged.
bool batch_get_item(mr_bytes raw, uint64_t at, struct batch_item *out);

// Decodes frame and head of the entry at `at`. `raw` begins at the frame and may end early: the
// result is the size that is needed, 0: damaged. `out` is set if `raw` has all of it.
uint64_t batch_get_head(mr_bytes raw, uint64_t at, mr_bytes *out);

// Whether the body is as it was written, and was not damaged then.
bool batch_body_fits(const struct batch_item *, uint64_t at, mr_bytes body);

// A walk over the entries of a checked batch.
struct batch_walk {
    const struct stream_batch *batch;
    size_t frame_at, item_at;
};

struct batch_walk batch_walk_all(const struct stream_batch *);

// The next entry; false: there is none. With bodies in the batch, `damaged` says whether the body
// is wrong; an item that is wrong counts as that, too.
bool batch_walk_next(struct batch_walk *, struct log_seen *out);

#endif
