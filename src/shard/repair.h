// Repair: makes a damaged shard's store one that opens, with all that can be kept.
#ifndef SHARD_REPAIR_H
#define SHARD_REPAIR_H

#include "log/log.h"

#include <stdbool.h>
#include <stdint.h>

// Where a shard's store is, and which of how many it is.
struct shard_place {
    const char *dir;
    const struct disk *disk; // NULL: the real one
    uint32_t shard, shards;
};

struct shard_repair {
    struct log_repair log; // what was given up: not readable, or refused by the core
    uint64_t stages;       // got a name, because theirs was lost
    bool head;             // the log begins later than it knew
};

// Nobody may use the store meanwhile. Errors are log_file_repair's.
int shard_repair(const struct shard_place *, struct shard_repair *out);

#endif
