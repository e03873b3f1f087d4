// Quota: limits the number of connections, in all and from one address, so that neither a fleet
// that leaks connections nor one client can use up all of them.
//
// One thread at a time.
#ifndef SERVER_QUOTA_H
#define SERVER_QUOTA_H

#include "base/map.h"
#include "base/slab.h"

#include <stdbool.h>

enum { QUOTA_ADDRESS = 16 };

// The words of the refusals: "N members are connected, which is the limit: way_out".
struct quota_words {
    const char *members, *way_out, *way_out_of_address;
};

struct quota {
    uint32_t most, most_of_address;
    struct quota_words words;
    uint32_t count;
    struct slab addresses; // struct quota_address, one for each address with connections
    struct map by_address;
};

// Zero is a valid start.
struct quota_member {
    bool counted;
    uint32_t address; // index of its address; 0: it counts only in the total
};

// Borrows the strings.
void quota_init(struct quota *, uint32_t most, uint32_t most_of_address, struct quota_words);
void quota_finish(struct quota *);

// Counts one more connection, from an address of QUOTA_ADDRESS bytes; NULL: from this machine,
// where the address does not distinguish clients. MR_EFULL: too many, with the quota's words;
// MR_ENOMEM. It is not counted then.
int quota_enter(struct quota *, const uint8_t *address, struct quota_member *out);

void quota_leave(struct quota *,
                 struct quota_member *); // does nothing for one that was not counted

#endif
