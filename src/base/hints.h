// Hints: how the optimiser should cut the code of the commonest commands, where it was measured to
// matter (bench/instructions).
#ifndef BASE_HINTS_H
#define BASE_HINTS_H

#define HOT __attribute__((flatten))    // all that it calls becomes part of it …
#define APART __attribute__((noinline)) // … but for what is seldom needed

#endif
