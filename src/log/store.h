// Store: the files that make a directory a file log: `store`, with the segment size and the first
// segment, and `lock`, with the process that uses it.
//
// The first segment is written to two slots in turn, in place: moving the head must work on a full
// disk, and if one slot is torn the other is valid. With them opening also notices that the first
// segment is missing.
#ifndef LOG_STORE_H
#define LOG_STORE_H

#include "base/buffer.h"
#include "log/disk.h"

#include <stdbool.h>
#include <stdint.h>

struct store {
    uint64_t segment_size;
    uint64_t first;      // number of the first segment
    uint64_t generation; // counts the writes
};

// Writes a new `store` file with both slots, synced and in place. MR_EIO, MR_EFULL.
int store_create(const struct disk *, const char *dir, const struct store *);

// Opens the `store` file. MR_EGONE: there is none; MR_ECORRUPT; MR_EINVAL: of a newer version;
// MR_EIO.
int store_open(const struct disk *, const char *dir, bool read_only, struct store *out,
               int *out_fd);

// Writes the next slot and syncs it. -errno.
int store_write(const struct disk *, int fd, struct store *);

// Takes the lock of `dir` and writes this process into it. MR_EBUSY, with the holder; MR_EIO.
int store_lock(const struct disk *, const char *dir, int *out_fd);

// The files in a directory. Zero is a valid start; may be read repeatedly.
struct store_names {
    struct buffer segments; // numbers of segments, u64 each, ascending
    bool store;             // there is a store file
    char foreign[64];       // a name that is not a store's; "": none
};

int store_names_read(const struct disk *, const char *dir, struct store_names *out);
void store_names_finish(struct store_names *);
size_t store_names_count(const struct store_names *);
uint64_t store_names_at(const struct store_names *, size_t i);

#endif
