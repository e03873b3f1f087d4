// Index: the heads of all entries of one sealed segment in a file of their own, so that opening a
// store need not read the bodies. It is derived: whoever finds it missing or wrong makes it anew,
// so it is never synced, and failing to write it is no failure of the log.
//
//     ┌────────┬───────────────────────────────────────────────┬───
//     │ header │ offset / 8 │ head size │ body size │ head     │ …
//     └────────┴───────────────────────────────────────────────┴───
#ifndef LOG_INDEX_H
#define LOG_INDEX_H

#include "base/buffer.h"
#include "log/log.h"
#include "log/segment.h"

// Gathers heads in blocks while a segment is being written. Zero is a valid start.
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

// Begins the index of a segment, giving up one that was not finished. `dir` is borrowed.
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

// 0, or why it cannot be used: MR_EGONE (missing, wrong, of another segment), MR_ENOMEM, MR_EIO.
// `capacity` is the segment's.
int index_load(struct index *, const struct disk *, const char *dir, uint64_t number,
               uint64_t capacity);

// Calls `each` for every entry; `base` is the segment's first position.
int index_walk(const struct index *, uint64_t base, log_each *each, void *arg);

#endif
