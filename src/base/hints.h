// Hints: what the compiler should inline into the hottest functions, where measurements show that
// it matters (bench/instructions).
#ifndef BASE_HINTS_H
#define BASE_HINTS_H

#define HOT __attribute__((flatten))    // inlines all that it calls …
#define APART __attribute__((noinline)) // … except what is rarely needed, or hot itself

// Inlined always, also into functions that have grown large.
#define INLINED __attribute__((always_inline)) static inline

#endif
