// Unauthenticated: the connections that have still to show a certificate or a secret.
// They are few, few of one address, and none stays for long; one that has authenticated is not
// counted any more. When there are too many the oldest is closed in favour of a new one, so that
// idle connections of clients without a token cannot keep out those that have one.
//
// That one has come in is noticed when it matters: when there is no room, or its time is up. Time
// is an argument. One thread.
#ifndef SERVER_UNAUTHENTICATED_H
#define SERVER_UNAUTHENTICATED_H

#include "base/list.h"

#include <stdint.h>

enum { UNAUTHENTICATED_ADDRESS = 16 };

struct unauthenticated {
    struct list of_list; // in none: it has come in, or is gone
    uint64_t until_ms;
    uint8_t address[UNAUTHENTICATED_ADDRESS]; // where it comes from, zeros behind it
};

struct unauthenticated_list {
    struct list list; // in the order they came
    uint32_t count;
    bool (*is_authenticated)(const struct unauthenticated *); // whether it has come in by now
};

// Counts one more, whose `address` is set.
void unauthenticated_add(struct unauthenticated_list *, struct unauthenticated *, uint64_t now_ms);

// Which one the caller has to close before one more of that address is counted; NULL: there is
// room.
struct unauthenticated *unauthenticated_to_close(struct unauthenticated_list *,
                                                 const uint8_t *address);

// The oldest of that address; NULL: of all. NULL if there is none.
struct unauthenticated *unauthenticated_oldest(struct unauthenticated_list *,
                                               const uint8_t *address);

void unauthenticated_remove(struct unauthenticated_list *,
                            struct unauthenticated *); // also one who is not there

// The next whose time is up; NULL: none. The caller closes it.
struct unauthenticated *unauthenticated_overdue(struct unauthenticated_list *, uint64_t now_ms);

uint64_t unauthenticated_next_ms(
    const struct unauthenticated_list *); // the instant to ask again; UINT64_MAX: nobody is there

#endif
