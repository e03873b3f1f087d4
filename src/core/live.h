// Live: which parts of the log are still needed. The bytes of all homes (record.h) are counted by
// stretches of positions, usually the log's segments, in a ring from the last trim to the tail:
//
//     given up │ 0 │ 812 │ 0 │ 0 │ 41,003 │ …      stretches in which nothing lives need no look
//
// The counts only save the cleaner work: without memory for them it scans instead.
#ifndef CORE_LIVE_H
#define CORE_LIVE_H

#include <stdbool.h>
#include <stdint.h>

struct live {
    uint32_t shift;       // stretch = position >> shift
    uint64_t *bytes;      // a ring by stretch
    uint64_t first, size; // the stretches in the ring; size: a power of two, or 0
    bool unknown;         // there was no memory to count
    uint64_t uncounted;
};

// A power of two; 0: 1 MiB.
void live_init(struct live *, uint64_t stretch_size);
// Grows the ring, or gives the counts up.
uint64_t *live_outside_ring(struct live *, uint64_t stretch);
void live_forget(struct live *, uint64_t upto); // everything below was trimmed
void live_finish(struct live *);

// The count for a position.
static inline uint64_t *live_at(struct live *l, uint64_t at) {
    uint64_t stretch = at >> l->shift;
    return stretch - l->first < l->size ? &l->bytes[stretch & (l->size - 1)]
                                        : live_outside_ring(l, stretch);
}

#endif
