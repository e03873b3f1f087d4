// Unauthenticated: the connections that have still to show a certificate or a secret, of all loops
// of a server. They are few, few of one address, and none stays for long. When there are too many
// the oldest is closed in favour of a new one, so that idle connections of clients without a token
// cannot keep out those that have one.
//
// A connection is closed by its own loop: one that another loop has evicted counts no more, and is
// closed as soon as its loop looks (unauthenticated_overdue). A connection that has authenticated
// is removed by its loop.
//
// Time is an argument. One thread at a time.
#ifndef SERVER_UNAUTHENTICATED_H
#define SERVER_UNAUTHENTICATED_H

#include "base/list.h"

#include <stdint.h>

enum { UNAUTHENTICATED_ADDRESS = 16 };

struct unauthenticated {
    struct list of_list;                      // in none: it has authenticated, or is gone
    uint64_t until_ms;                        // 0: it was evicted
    uint32_t loop;                            // that it belongs to
    uint8_t address[UNAUTHENTICATED_ADDRESS]; // of the client, padded with zeros
};

// Zero is a valid start.
struct unauthenticated_list {
    struct list list; // in the order of arrival
    uint32_t count;   // without those that were evicted
};

// Counts one more, whose `loop` and `address` are set.
void unauthenticated_add(struct unauthenticated_list *, struct unauthenticated *, uint64_t now_ms);

// Which one the caller has to evict before one more of that address is counted; NULL: there is
// room.
struct unauthenticated *unauthenticated_to_evict(struct unauthenticated_list *,
                                                 const uint8_t *address);

// The oldest connection of this address, or (NULL) of all addresses. NULL if there is none.
struct unauthenticated *unauthenticated_oldest(struct unauthenticated_list *,
                                               const uint8_t *address);

void unauthenticated_evict(struct unauthenticated_list *, struct unauthenticated *);
void unauthenticated_remove(struct unauthenticated_list *,
                            struct unauthenticated *); // also one that is not there

// The next of a loop that has to be closed, because its time is up or it was evicted; NULL: none.
struct unauthenticated *unauthenticated_overdue(struct unauthenticated_list *, uint32_t loop,
                                                uint64_t now_ms);

// When that loop has to look again; UINT64_MAX: it has none.
uint64_t unauthenticated_next_ms(const struct unauthenticated_list *, uint32_t loop);

#endif
