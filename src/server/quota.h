// Quota: bounds how many connections there are, in all and from one address, so that neither a
// fleet that leaks connections nor one client takes the places of all others.
//
// One thread at a time.
#ifndef SERVER_QUOTA_H
#define SERVER_QUOTA_H

#include "base/map.h"
#include "base/slab.h"

#include <stdbool.h>

enum { QUOTA_ADDRESS = 16 };

struct quota {
    uint32_t most, most_of_address;
    uint32_t count;
    struct slab addresses; // struct quota_address, of those who are counted so
    struct map by_address;
};

// Zero is a valid start.
struct quota_member {
    bool counted;
    uint32_t address; // its number in the quota; 0: it counts in all only
};

void quota_init(struct quota *, uint32_t most, uint32_t most_of_address);
void quota_finish(struct quota *);

// Counts one more, from an address of QUOTA_ADDRESS bytes; NULL: from this machine, where an
// address does not tell people apart. MR_EFULL: there are too many, and which limit says so;
// MR_ENOMEM. It is not counted then.
int quota_enter(struct quota *, const uint8_t *address, struct quota_member *out);

void quota_leave(struct quota *, struct quota_member *); // also one who was not counted

#endif
