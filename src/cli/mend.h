// Mend: gives up records that make no sense, and makes sense of those that are left.
#ifndef CLI_MEND_H
#define CLI_MEND_H

#include <stdbool.h>
#include <stdint.h>

struct log_repair;

// Gives up the records that a core refuses, in the store in `dir`, which is this shard of so many.
// Adds to `sum` what was given up. Errors are the log's.
int records_give_up(const char *dir, uint32_t shard, uint32_t shards, struct log_repair *sum);

struct mended {
    uint64_t stages; // got a name, because theirs was lost
    bool head;       // the log begins later than it knew
};

// Appends to the store in `dir` what its records are missing. `lost`: parts of it were given up,
// and ids that are in use may have been in them. Errors are the log's.
int records_mend(const char *dir, bool lost, struct mended *out);

#endif
