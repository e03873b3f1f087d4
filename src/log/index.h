// Index: the heads of all entries of one sealed segment in a file of their own, so that opening a
// store need not read the bodies. It is derived data: if it is missing or wrong, opening builds it
// again. So it is never synced, and a failure to write it is not an error of the log.
//
//     ┌────────┬───────────────────────────────────────────────┬───
//     │ header │ offset / 8 │ head size │ body size │ head     │ …
//     └────────┴───────────────────────────────────────────────┴───
#ifndef LOG_INDEX_H
#define LOG_INDEX_H

#include "base/buffer.h"
#include "log/log.h"
#include "log/segment.h"

// Collects heads in blocks while a segment is being written. Zero is a valid start.
struct index_builder {
    const struct disk *disk;
    const char *dir;
    uint64_t number;
    int fd;      // only while active
    bool active; // false: not begun, or given up
    uint64_t size, count, sum;
    uint8_t *block;
    size_t filled;
};

// Begins the index of a segment; an unfinished one is discarded. `dir` is borrowed.
void index_begin(struct index_builder *, const struct disk *, const char *dir, uint64_t number);
void index_add(struct index_builder *, const struct walk_frame *);

// Ends the index of a segment whose seal stands at offset `seal` and gives it its name. Returns the
// bytes of the file; 0: there is no index.
uint64_t index_end(struct index_builder *, uint64_t seal);
void index_finish(struct index_builder *);

// An index read into memory. Zero is a valid start; may be loaded again and again.
struct index {
    struct buffer content;
    uint64_t count, seal, file_bytes;
};

// MR_EGONE: it is missing, wrong, or of another segment; MR_ENOMEM; MR_EIO. `capacity` is the
// segment's.
int index_load(struct index *, const struct disk *, const char *dir, uint64_t number,
               uint64_t capacity);

// Calls `each` for every entry; `base` is the segment's first position.
int index_walk(const struct index *, uint64_t base, log_each *each, void *arg);

#endif
