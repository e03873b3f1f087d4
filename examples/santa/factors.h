// Factors: what a letter asks for. By trial division, slowly on purpose: it keeps a processor busy.
#ifndef SANTA_FACTORS_H
#define SANTA_FACTORS_H

#include <stdbool.h>
#include <stdint.h>

enum { FACTORS_MOST = 32 };

// The prime factors in rising order. Returns how many.
int factorize(uint32_t number, uint32_t out[FACTORS_MOST]);

bool factorize_is_right(void); // 60 = 2 * 2 * 3 * 5

// A prime that takes about so long here while all processors are busy; the story's own,
// 2130093701, at most. 0: no threads to find out with.
uint32_t factors_prime_for(double seconds, int processors);

#endif
