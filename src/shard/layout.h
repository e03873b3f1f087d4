// Layout: where the shards of a store are on a disk, and how many. See layout.c for how one is
// made; group.h for what it looks like.
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include "core/route.h"
#include "log/disk.h"

#include <stdbool.h>
#include <stdint.h>

enum { LAYOUT_PATH = 4096 };

struct layout {
    uint32_t shards; // 0: there is no store
    bool making;     // not all of them may be there yet
    bool by_key;     // of an older version: a stage is in all of them
};

// How many shards the store in `dir` has; 0: there is none. `disk` NULL: the real one.
// MR_ECORRUPT: DIR/shards is damaged; MR_EIO.
int layout_read(const struct disk *, const char *dir, uint32_t *out_shards);

// Where a shard's store is: DIR itself if it is the only one. `out` has LAYOUT_PATH bytes.
void layout_path(char *out, const char *dir, uint32_t shards, uint32_t index);

// ---- For the group ----------------------------------------------------------------------------

int layout_look(const struct disk *, const char *dir, struct layout *out);

// Brings what is there and what is wanted (0: whatever there is) together. MR_EINVAL: they differ,
// or the store was made by key; says how to change it.
int layout_choose(const char *dir, uint32_t wanted, struct layout *);

// For several shards: makes and locks the directory, and writes how many there will be if that is
// new. MR_EBUSY: somebody has it; MR_EINVAL: it is not a store, or one of another number; MR_EIO.
int layout_lock(const struct disk *, const char *dir, struct layout *, int *out_fd);

// MR_ECORRUPT: a shard is missing.
int layout_check(const struct disk *, const char *dir, const struct layout *);

// Writes DIR/shards, synced and in place. MR_EFULL, MR_EIO.
int layout_write(const struct disk *, const char *dir, const struct layout *);

#endif
