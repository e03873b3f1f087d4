// Live: where in the log something lives. The bytes of all homes are counted by stretches of
// positions (the log's segments, usually), in a ring that reaches from what was given up last to
// the tail:
//
//     given up │ 0 │ 812 │ 0 │ 0 │ 41,003 │ …      stretches in which nothing lives need no look
//
// It only spares the cleaner work: when there is no memory for it, it is done without.
#ifndef CORE_LIVE_H
#define CORE_LIVE_H

#include <stdbool.h>
#include <stdint.h>

struct live {
    uint32_t shift;       // a position's stretch is what lies above
    uint64_t *bytes;      // a ring by stretch
    uint64_t first, size; // stretches that it counts; size: a power of two, or 0
    bool unknown;         // there was no memory to count
    uint64_t uncounted;
};

// A power of two; 0: 1 MiB.
void live_init(struct live *, uint64_t stretch_size);
uint64_t *live_outside_ring(struct live *, uint64_t stretch); // beyond the ring
void live_forget(struct live *, uint64_t upto);               // nothing lives below any more
void live_finish(struct live *);

// The count for a position.
static inline uint64_t *live_at(struct live *l, uint64_t at) {
    uint64_t stretch = at >> l->shift;
    return stretch - l->first < l->size ? &l->bytes[stretch & (l->size - 1)]
                                        : live_outside_ring(l, stretch);
}

#endif
