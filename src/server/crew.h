// Crews: how many connections work for each stage, and at which level. They are counted when a
// worker says for which stages it takes jobs, so that a look at a stage need not look at every
// connection.
//
// One thread.
#ifndef SERVER_CREW_H
#define SERVER_CREW_H

#include "base/bytes.h"
#include "base/map.h"
#include "base/slab.h"

struct crew {
    uint32_t next; // the slab's, when the place is free
    uint32_t workers;
    uint64_t level; // of those that have told theirs
    uint8_t *name;
    size_t name_size;
};

struct crews {
    struct slab slab; // struct crew, of stages that somebody works for
    struct map by_name;
};

void crews_init(struct crews *);
void crews_finish(struct crews *);

// The next of the names that stand in `*text`, with blanks between them; empty: there are no more.
mr_bytes crew_next_name(const char **text);

// A worker of that level works for these stages from now on. MR_ENOMEM: for none of them.
int crews_join(struct crews *, const char *stages, uint32_t level);

// One that has joined so does no more.
void crews_leave(struct crews *, const char *stages, uint32_t level);

// Who works for the stage: the crew has no name if nobody does.
struct crew crews_of(const struct crews *, mr_bytes stage);

#endif
