// Planted bugs, for tests of the tests. `MUTANT(name)` is false in every normal build. In a build
// with -Dmutants=true it is true where the environment says MILLRACE_MUTANT=name: there the line
// does what a bug of that name would do. tools/mutants tries each, and docs/testing.md has the
// table of what found it.
#ifndef BASE_MUTANT_H
#define BASE_MUTANT_H

#include <stdbool.h>

#ifdef MILLRACE_MUTANTS

#include <stdlib.h>
#include <string.h>

static inline bool mutant_is_chosen(const char *name) {
    const char *chosen = getenv("MILLRACE_MUTANT");
    return chosen && strcmp(chosen, name) == 0;
}

// The environment is read once at each place.
#define MUTANT(name)                                                                               \
    ({                                                                                             \
        static _Atomic int state;                                                                  \
        if (!state)                                                                                \
            state = mutant_is_chosen(#name) ? 1 : -1;                                              \
        state > 0;                                                                                 \
    })

#else
#define MUTANT(name) false
#endif

#endif
