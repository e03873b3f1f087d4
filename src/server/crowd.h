// Crowd: how many are connected, in all and from one address, so that neither a fleet that leaks
// connections nor somebody who opens them on purpose takes the places of all others.
//
// One thread.
#ifndef SERVER_CROWD_H
#define SERVER_CROWD_H

#include "base/map.h"
#include "base/slab.h"

#include <stdbool.h>

enum { CROWD_ADDRESS = 16 };

struct crowd {
    uint32_t most, most_of_address;
    uint32_t count;
    struct slab addresses; // struct crowd_address, of those who are counted so
    struct map by_address;
};

// Zero is a valid start.
struct guest {
    bool counted;
    uint32_t address; // its number among the crowd's; 0: it counts in all only
};

void crowd_init(struct crowd *, uint32_t most, uint32_t most_of_address);
void crowd_finish(struct crowd *);

// Counts one more, from an address of CROWD_ADDRESS bytes; NULL: from this machine, where an
// address does not tell people apart. MR_EFULL: there are too many, and which limit says so;
// MR_ENOMEM. It is not counted then.
int crowd_enter(struct crowd *, const uint8_t *address, struct guest *out);

void crowd_leave(struct crowd *, struct guest *); // also one who was not counted

#endif
