// Repair: makes the damaged store of a shard open again, and keeps all that it can.
#ifndef SHARD_REPAIR_H
#define SHARD_REPAIR_H

#include "log/log.h"

#include <stdbool.h>
#include <stdint.h>

// Where a shard's store is, and its index among the shards.
struct shard_place {
    const char *dir;
    const struct disk *disk; // NULL: the real one
    uint32_t shard, shards;
};

struct shard_repair {
    struct log_repair log; // what was removed: not readable, or refused by the core
    uint64_t stages;       // stages that got a new name, because theirs was lost
    bool head;             // the head of the log was missing
};

// No process may use the store meanwhile. Errors are log_file_repair's.
int shard_repair(const struct shard_place *, struct shard_repair *out);

#endif
