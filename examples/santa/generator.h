// Generator: Knuth's subtractive random numbers, as the story's own batches were drawn: with seed 0
// and a limit of 11 they begin 7 8 8 6 2 6 9 4 10 3 3 5 6 5 10 0 9.
#ifndef SANTA_GENERATOR_H
#define SANTA_GENERATOR_H

#include <stdbool.h>
#include <stdint.h>

struct generator {
    int32_t state[56];
    int at, behind;
};

void generator_init(struct generator *, int32_t seed);
int generator_next(struct generator *, int below); // from 0 to below - 1

bool generator_is_right(void); // it draws the batches above

#endif
