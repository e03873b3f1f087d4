// A ring of 55 numbers; each draw replaces one by its difference to another, 21 places on.
#include "generator.h"

enum { LARGEST = 2147483647, GOLDEN = 161803398 };

static int32_t difference(int32_t a, int32_t b) {
    int64_t d = (int64_t)a - b;
    return (int32_t)(d < 0 ? d + LARGEST : d);
}

void generator_init(struct generator *g, int32_t seed) {
    int32_t last = GOLDEN - seed, next = 1;
    *g = (struct generator){ .at = 0, .behind = 21 };
    g->state[55] = last;
    for (int i = 1; i < 55; i++) {
        int spread = 21 * i % 55;
        g->state[spread] = next;
        next = difference(last, next);
        last = g->state[spread];
    }
    for (int round = 0; round < 4; round++)
        for (int i = 1; i < 56; i++)
            g->state[i] = difference(g->state[i], g->state[1 + (i + 30) % 55]);
}

int generator_next(struct generator *g, int below) {
    g->at = g->at == 55 ? 1 : g->at + 1;
    g->behind = g->behind == 55 ? 1 : g->behind + 1;
    int32_t next = difference(g->state[g->at], g->state[g->behind]);
    g->state[g->at] = next == LARGEST ? next - 1 : next;
    return (int)(g->state[g->at] * (1.0 / LARGEST) * below);
}

bool generator_is_right(void) {
    static const int expected[] = { 7, 8, 8, 6, 2, 6, 9, 4, 10, 3, 3, 5, 6, 5, 10, 0, 9 };
    struct generator g;
    generator_init(&g, 0);
    for (int i = 0; i < (int)(sizeof expected / sizeof *expected); i++)
        if (generator_next(&g, 11) != expected[i])
            return false;
    return true;
}
