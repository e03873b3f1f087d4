// A text to count words in: 20,000 different ones, as frequent as in a language, ten a line, the
// same in each run.
#ifndef BENCH_WORDS_H
#define BENCH_WORDS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { VOCABULARY = 20000, LINE_WORDS = 10 };

static inline uint64_t words_dice(uint64_t *dice) {
    uint64_t z = (*dice += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

// The word of a rank: the frequent ones are short.
static inline void words_say(FILE *to, uint64_t rank) {
    do {
        fputc("etaoinshrdlucmfwypvbgkjqxz"[rank % 26], to);
        rank /= 26;
    } while (rank);
    fputc('s', to);
}

// Zipf's law: the chance of a rank is one over it. Negative: it could not be written.
static inline int words_write(const char *path, uint64_t words) {
    FILE *to = fopen(path, "w");
    uint64_t dice = 1;
    if (!to)
        return -1;
    for (uint64_t i = 1; i <= words; i++) {
        double chance = (double)(words_dice(&dice) >> 11) * 0x1p-53;
        words_say(to, (uint64_t)pow(VOCABULARY, chance) - 1);
        fputc(i % LINE_WORDS ? ' ' : '\n', to);
    }
    return fclose(to) == 0 ? 0 : -1;
}

#endif
