// Resolve: turns a step of a history into a command, given the state of the model.
#ifndef TEST_SUPPORT_RESOLVE_H
#define TEST_SUPPORT_RESOLVE_H

#include "history.h"

// Random numbers from one seed.
struct chance {
    uint64_t state;
};

uint64_t chance_next(struct chance *);
uint64_t chance_below(struct chance *, uint64_t limit); // 0 when limit is 0

// False: it is not possible now (no lease to end, no free slot).
bool resolve(const struct model *, const struct step *, unsigned features, struct command *out);

#endif
