// Quota: limits the number of connections, in all and of one holder (an address, a token), so that
// neither a fleet that leaks connections nor one client can use up all of them.
//
// One thread at a time.
#ifndef SERVER_QUOTA_H
#define SERVER_QUOTA_H

#include "base/map.h"
#include "base/slab.h"

#include <stdbool.h>

enum { QUOTA_HOLDER = 16 };

// The words of the refusals: "N members [of this holder] are connected, which is the limit:
// way_out".
struct quota_words {
    const char *members, *way_out, *holder, *way_out_of_holder;
};

struct quota {
    uint32_t most, most_of_holder;
    struct quota_words words;
    uint32_t count;
    struct slab holders; // struct quota_holder, one for each that has connections
    struct map by_name;
};

// Zero is a valid start.
struct quota_member {
    bool counted;
    uint32_t holder; // index of its holder; 0: it counts only in the total
};

// Borrows the strings.
void quota_init(struct quota *, uint32_t most, uint32_t most_of_holder, struct quota_words);
void quota_finish(struct quota *);

// Counts one more connection, of a holder with a name of QUOTA_HOLDER bytes; NULL: it has none, as
// connections from this machine, where the address does not distinguish clients. MR_EFULL: too
// many, with the quota's words; MR_ENOMEM. It is not counted then.
int quota_enter(struct quota *, const uint8_t *holder, struct quota_member *out);

void quota_leave(struct quota *,
                 struct quota_member *); // does nothing for one that was not counted

#endif
