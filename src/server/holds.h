// Holds: sources of which a push was refused on a connection. A client that numbers its pushes may
// have sent more after the one that was refused; if those were accepted, jobs of one key would
// change their order. So higher numbers are refused with GAP until the refused one was accepted,
// and then the numbers that were refused because of it, one after another:
//
//     1 refused   2, 3: GAP 1   1 accepted   4: GAP 2   2 accepted   3 accepted   4 accepted
//
// The core does this for pushes that it refuses itself. This file does it for pushes that do not
// reach the core: while a store is loaded, without permission, with an invalid option. A source
// takes a few bytes; when pushes of more than HOLDS_MOST sources were refused on a connection,
// further ones are not recorded, and numbered pushes of any other source are refused on it with
// FULL.
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
    bool over; // there were more sources than fit
    struct hold list[HOLDS_MOST];
};

// The numbers of a push.
struct push_numbers {
    mr_bytes stage, name;
    bool epic;
    uint64_t source, first, last;
};

struct command;
struct session;

// Whether the words, which may be invalid otherwise, are a numbered push.
bool holds_read(const struct command *, const mr_bytes *words, uint32_t count,
                struct push_numbers *out);

// Whether the push must be refused because an earlier number is missing; the error was replied.
bool holds_refuse(struct session *, const struct push_numbers *);

// Adds those of another list; of one source both hold.
void holds_merge(struct holds *, const struct holds *more);

// Whether the session's replies from offset `from` on are the refusal of a push.
bool holds_is_refusal(const struct session *, size_t from);

// To be called after the reply to a push: records whether it was refused.
void holds_answered(struct session *, const struct push_numbers *, bool refused);

#endif
