// Reads: what a shard itself needs from its log (emits for other shards, the reasons of a job that
// fails again) and what is not in memory. If the owner reads in another thread, the positions are
// noted for it; what it has read is kept here until it is used.
//
// Shard thread only.
#ifndef SHARD_READS_H
#define SHARD_READS_H

#include "base/buffer.h"
#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    READS_WANTED = 256,     // positions noted at most: what is not noted is wanted again later
    READS_BYTES = 32 << 20, // kept at most, beside the newest …
    READS_KEPT_MS = 30000,  // … and not longer, if nothing uses it
};

struct reads {
    bool elsewhere; // the owner reads in another thread
    uint64_t wanted[READS_WANTED];
    uint32_t wanted_count;
    struct list kept; // struct kept_read, oldest first
    uint64_t kept_bytes;
};

void reads_finish(struct reads *);

void reads_want(struct reads *, uint64_t at);

// Moves up to `most` noted positions to `out` and returns how many.
uint32_t reads_take_wanted(struct reads *, uint64_t *out, uint32_t most);

// Keeps what reading `at` has answered; takes the bytes. Without memory it is not kept.
void reads_keep(struct reads *, uint64_t at, int err, struct buffer *bytes, uint64_t now_ms);

bool reads_has(const struct reads *, uint64_t at);

// Appends what was read at `at` to `out` and forgets it; errors are those of the reading.
// MR_EAGAIN: it was not read.
int reads_use(struct reads *, uint64_t at, struct buffer *out);

#endif
