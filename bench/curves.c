// The family. "From … to" means log-uniform, each of a list is as likely as the others.
//
//   processors   2, 4, 8, 16, 32 or 64
//   shape        computing: a knee at the processors, each more costs 0.01 to 2 %
//                waiting: a knee from 4 to 1000 elsewhere, then flat
//                mixed: jobs compute for 2 to 100 % of their time, so the knee is higher
//                contention: a peak from 3 to 200, 0.5 to 15 % of the work in turn
//                Amdahl: 1 to 20 % of the work in turn, no peak
//                cliff: from 3 to 300, then down with a power of 0.3 to 1.5
//                lock: passed by all jobs, for one part in 2 to 100 of their time
//                bend: half of the processors are hyperthreads, which bring a third
//                mesa: a knee from 2 to 300, flat up to 1.5 to 8 times that, then down
//   speed        2 to 3000 completions a second at best, jobs of 50 µs to 10 s
//   run times    one in ten: constant; six: lognormal with σ up to 2; three: one job in ten is 10
//   to
//                100 times as long as the others
//   noise        for half of them the machine's speed varies, by 2 to 30 %, every 0.05 to 20 s
//   change       three in five stay as they are; one has a step in the middle, one drifts in eight
//                small steps: places, peaks and locks become 1.3 to 4 times what they were, or
//                that part of it
//   duration     40,000 completions at best, between one minute and one hour
#include "bench/curves.h"

#include <math.h>

static uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static double draw_between(uint64_t *state, double low, double high) {
    return low + (high - low) * (double)(random_next(state) >> 11) * 0x1p-53;
}

static double draw_log(uint64_t *state, double low, double high) {
    return exp(draw_between(state, log(low), log(high)));
}

static uint32_t draw_below(uint64_t *state, uint32_t count) {
    return (uint32_t)(random_next(state) % count);
}

static struct zoo_curve draw_contention(uint64_t *state) {
    double peak = draw_log(state, 3, 200), turns = draw_log(state, .005, .15);
    return (struct zoo_curve){ ZOO_USL, turns, (1 - turns) / (peak * peak) };
}

// The mean run time is 1 so far.
static void draw_shape(uint64_t *state, struct zoo *z) {
    enum { COMPUTING, WAITING, MIXED, CONTENTION, AMDAHL, CLIFF, LOCK, BEND, MESA, SHAPES };
    static const char *const names[] = { "computing", "waiting", "mixed", "contention", "Amdahl",
                                         "cliff",     "lock",    "bend",  "mesa" };
    uint32_t shape = draw_below(state, SHAPES), processors = 2u << draw_below(state, 6);
    struct zoo_curve *c = &z->curves[0];
    z->name = names[shape];
    z->processors = z->loaded = processors;
    if (shape == COMPUTING)
        *c = (struct zoo_curve){ ZOO_KNEE, processors, draw_log(state, 1e-4, .02) };
    else if (shape == CONTENTION)
        *c = draw_contention(state);
    else if (shape == BEND)
        *c = (struct zoo_curve){ ZOO_BEND, processors / 2.0, processors };
    else if (shape == MIXED) {
        *c = (struct zoo_curve){ ZOO_KNEE, ceil(processors / draw_log(state, .02, 1)), 0 };
        z->loaded = (uint32_t)fmin(c->a, z->most);
    } else
        z->loaded = 0;
    if (shape == WAITING)
        *c = (struct zoo_curve){ ZOO_KNEE, floor(draw_log(state, 4, 1000)), 0 };
    if (shape == AMDAHL)
        *c = (struct zoo_curve){ ZOO_USL, draw_log(state, .01, .2), 0 };
    if (shape == CLIFF)
        *c = (struct zoo_curve){ ZOO_CLIFF, floor(draw_log(state, 3, 300)),
                                 draw_log(state, .3, 1.5) };
    if (shape == LOCK)
        *c = (struct zoo_curve){ ZOO_LOCK, 1 / draw_log(state, 2, 100), 0 };
    if (shape == MESA) {
        double places = floor(draw_log(state, 2, 300));
        *c = (struct zoo_curve){ ZOO_MESA, places, ceil(places * draw_log(state, 1.5, 8)) };
    }
}

static void draw_times(uint64_t *state, struct zoo *z) {
    uint32_t kind = draw_below(state, 10);
    if (kind >= 1)
        z->sigma = draw_between(state, .1, kind < 7 ? 2 : .5);
    if (kind >= 7)
        z->longs = draw_log(state, 10, 100);
    if (draw_below(state, 2) == 0)
        return;
    z->noise = draw_log(state, .02, .3);
    z->noise_s = draw_log(state, .05, 20);
}

// The curve with `times` as many places.
static struct zoo_curve scale(struct zoo_curve c, double times) {
    switch (c.kind) {
    case ZOO_KNEE:
    case ZOO_CLIFF:
        c.a = fmax(1, round(c.a * times));
        break;
    case ZOO_BEND:
    case ZOO_MESA:
        c.a = fmax(1, round(c.a * times));
        c.b = fmax(c.a, round(c.b * times));
        break;
    case ZOO_USL:
        c.a /= times;
        c.b /= times * times;
        break;
    case ZOO_LOCK:
        c.a /= times;
        break;
    }
    return c;
}

static void draw_change(uint64_t *state, struct zoo *z) {
    uint32_t kind = draw_below(state, 5);
    double times = draw_log(state, 1.3, 4);
    times = draw_below(state, 2) ? times : 1 / times;
    bool locks = z->curves[0].kind == ZOO_LOCK; // the simulator's lock stays as it is
    z->phases = kind < 3 || locks ? 1 : kind == 3 ? 2 : ZOO_PHASES;
    for (uint32_t p = 1; p < z->phases; p++)
        z->curves[p] = scale(z->curves[0], pow(times, (double)p / (z->phases - 1)));
}

// Jobs become so long that the best level completes that many a second.
static void draw_speed(uint64_t *state, struct zoo *z) {
    uint32_t lowest;
    double best = zoo_best(z, 0, &lowest);
    z->mean_s = fmin(fmax(best / draw_log(state, 2, 3000), 50e-6), 10);
    for (uint32_t p = 0; p < z->phases; p++)
        z->curves[p].a *= z->curves[p].kind == ZOO_LOCK ? z->mean_s : 1;
    z->seconds = fmin(fmax(40000 * z->mean_s / best, 60), 3600);
}

void curve_draw(uint64_t seed, uint32_t number, struct zoo *out) {
    uint64_t state = seed * 1000003 + number;
    *out = (struct zoo){ .mean_s = 1, .most = TUNER_MOST };
    draw_shape(&state, out);
    draw_times(&state, out);
    draw_change(&state, out);
    draw_speed(&state, out);
}
