// Layout: where the shards of a store are on disk, and how many. layout.c describes how a store is
// made, group.h what it contains.
#ifndef SHARD_LAYOUT_H
#define SHARD_LAYOUT_H

#include "core/route.h"
#include "log/disk.h"

#include <stdbool.h>
#include <stdint.h>

enum { LAYOUT_PATH = 4096 };

struct layout {
    uint32_t shards; // 0: there is no store
    bool making;     // creation is not complete: some may be missing
    bool by_key;     // an older version, which spreads each stage over all shards
};

// How many shards the store in `dir` has; 0: there is none. `disk` NULL: the real one.
// MR_ECORRUPT: DIR/shards is damaged; MR_EIO.
int layout_read(const struct disk *, const char *dir, uint32_t *out_shards);

// Where a shard's store is: DIR itself if it is the only one. `out` has LAYOUT_PATH bytes.
void layout_path(char *out, const char *dir, uint32_t shards, uint32_t index);

// ---- For the group ----------------------------------------------------------------------------

int layout_look(const struct disk *, const char *dir, struct layout *out);

// Compares the existing number of shards with the wanted one (0: any). MR_EINVAL: they differ, or
// the store is by key; the error says how to change it.
int layout_choose(const char *dir, uint32_t wanted, struct layout *);

// For several shards: makes and locks the directory, and writes how many there will be if that is
// new. MR_EBUSY: a process uses it; MR_EINVAL: not a store, or another number of shards; MR_EIO.
int layout_lock(const struct disk *, const char *dir, struct layout *, int *out_fd);

// MR_ECORRUPT: a shard is missing.
int layout_check(const struct disk *, const char *dir, const struct layout *);

// Writes DIR/shards, synced and in place. MR_EFULL, MR_EIO.
int layout_write(const struct disk *, const char *dir, const struct layout *);

#endif
