// Door: the unauthenticated connections: those that have still to show a certificate or a secret.
// They are few, few of one address, and none stays for long; one that has authenticated is not
// counted any more. When there are too many the oldest is closed in favour of a new one, so that
// idle connections of clients without a token cannot keep out those that have one.
//
// That one has come in is noticed when it matters: when there is no room, or its time is up. Time
// is an argument. One thread.
#ifndef SERVER_DOOR_H
#define SERVER_DOOR_H

#include "base/list.h"

#include <stdint.h>

enum { DOOR_ADDRESS = 16 };

struct stranger {
    struct list of_door; // in none: it has come in, or is gone
    uint64_t until_ms;
    uint8_t address[DOOR_ADDRESS]; // where it comes from, zeros behind it
};

struct door {
    struct list strangers; // in the order they came
    uint32_t count;
    bool (*is_known)(const struct stranger *); // whether it has come in by now
};

// Counts one more, whose `address` is set.
void door_enter(struct door *, struct stranger *, uint64_t now_ms);

// Which one the caller has to close before one more of that address is counted; NULL: there is
// room.
struct stranger *door_must_leave(struct door *, const uint8_t *address);

// The oldest of that address; NULL: of all. NULL if there is none.
struct stranger *door_oldest(struct door *, const uint8_t *address);

void door_leave(struct door *, struct stranger *); // also one who is not there

// The next whose time is up; NULL: none. The caller closes it.
struct stranger *door_overdue(struct door *, uint64_t now_ms);

uint64_t door_next_ms(const struct door *); // the instant to ask again; UINT64_MAX: nobody is there

#endif
