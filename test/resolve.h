// Resolve: from a step of a history to the command it says, given what the model knows.
#ifndef TEST_RESOLVE_H
#define TEST_RESOLVE_H

#include "history.h"

// Numbers without end from one seed.
struct chance {
    uint64_t state;
};

uint64_t chance_next(struct chance *);
uint64_t chance_below(struct chance *, uint64_t limit); // 0 when limit is 0

// False: it makes no sense now (no lease to end, no free seat).
bool resolve(const struct model *, const struct step *, unsigned features, struct command *out);

#endif
