// Workers: how many connections take jobs of each stage, and with which level in all. Counted when
// a TAKE names its stages, so that a query about a stage need not look at every connection.
//
// One thread.
#ifndef SERVER_WORKERS_H
#define SERVER_WORKERS_H

#include "base/bytes.h"
#include "base/map.h"
#include "base/slab.h"

struct stage_workers {
    uint32_t next; // the slab's, when the place is free
    uint32_t workers;
    uint64_t level; // sum of the levels that are known
    uint8_t *name;
    size_t name_size;
};

struct workers {
    struct slab slab; // struct stage_workers, of stages that have workers
    struct map by_name;
};

void workers_init(struct workers *);
void workers_finish(struct workers *);

// Reads the next of the names in `*text`, which spaces separate; empty: there are no more.
mr_bytes next_stage_name(const char **text);

// Adds a worker of this level to these stages. MR_ENOMEM: to none of them.
int workers_join(struct workers *, const char *stages, uint32_t level);

// Removes a worker that was added with the same arguments.
void workers_leave(struct workers *, const char *stages, uint32_t level);

// The workers of a stage; without a name if there are none.
struct stage_workers workers_of(const struct workers *, mr_bytes stage);

#endif
