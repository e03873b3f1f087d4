// Holds: sources of which a push was refused on a connection. Whoever numbers its pushes has sent
// more behind the one that was refused; if those were accepted, jobs of one key would change their
// order. So higher numbers are refused with GAP until the refused one was accepted, and then those
// that were refused for its sake, one after another:
//
//     1 refused   2, 3: GAP 1   1 accepted   4: GAP 2   2 accepted   3 accepted   4 accepted
//
// The core does so for what it refuses itself. This is for what never comes there: while a store is
// loaded, without the rights, with an option that is wrong. A source takes a few bytes; when a
// connection has had pushes of more than HOLDS_MOST sources refused, those beyond are not known,
// and numbered pushes of any other source are refused on it with FULL.
//
// Of several loops the one of the stage knows what was accepted: the remote session there
// (router.h) has the holds of its stages, also for pushes that never came there.
#ifndef SERVER_HOLDS_H
#define SERVER_HOLDS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { HOLDS_MOST = 16 };

struct hold {
    uint64_t source;      // a hash of its stage, kind and name
    uint64_t need, until; // the number that must come next; the highest that was refused
};

struct holds {
    uint32_t count;
    bool over; // there were more than these
    struct hold list[HOLDS_MOST];
};

// The numbers that a push carries.
struct push_numbers {
    mr_bytes stage, name;
    bool epic;
    uint64_t source, first, last;
};

struct command;
struct session;

// Whether the words, which may be wrong otherwise, are a push with a number.
bool holds_read(const struct command *, const mr_bytes *words, uint32_t count,
                struct push_numbers *out);

// Whether the push has to wait for another, or cannot be held; it is then answered.
bool holds_refuse(struct session *, const struct push_numbers *);

// Adds those of another list; of one source both hold.
void holds_merge(struct holds *, const struct holds *more);

// Whether what was answered, from there on in the session's replies, refuses a push.
bool holds_is_refusal(const struct session *, size_t from);

// The push was refused, or not: to be called when it was answered.
void holds_answered(struct session *, const struct push_numbers *, bool refused);

#endif
