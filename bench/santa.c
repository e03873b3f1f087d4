// Learning from a completion, then one step.
#include "bench/santa.h"

static double next_random(struct santa *s) { // 0 ≤ … < 1
    uint64_t z = s->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static uint32_t next_level(struct santa *s) {
    uint32_t level = s->level;
    if (next_random(s) < s->exploring)
        return next_random(s) < 0.5 ? level - 1 : level + 1;
    double now = s->rate[level], lower = s->rate[level - 1], higher = s->rate[level + 1];
    if (now == 0)
        return level;
    if (lower > now && lower > higher)
        return level - 1;
    return higher > now ? level + 1 : level;
}

static void adjust(struct santa *s) {
    uint32_t level = next_level(s);
    if (level >= 1 && level <= s->most)
        s->level = level;
}

void santa_init(struct santa *s, double learning, double exploring, uint64_t seed, uint32_t most) {
    *s = (struct santa){
        .learning = learning, .exploring = exploring, .random = seed, .level = 1, .most = most
    };
}

void santa_arrive(struct santa *s) {
    adjust(s);
}

void santa_complete(struct santa *s, uint32_t in_flight, uint64_t took_ns) {
    if (in_flight > 0 && in_flight <= TUNER_MOST && took_ns > 0) {
        double *known = &s->rate[in_flight], measure = in_flight / ((double)took_ns * 1e-9);
        *known = *known == 0 ? measure : (1 - s->learning) * *known + s->learning * measure;
    }
    adjust(s);
}

// ---- In the zoo -------------------------------------------------------------------------------

static uint32_t level_of(const void *tuner) {
    return ((const struct santa *)tuner)->level;
}

static void arrived(void *tuner) {
    santa_arrive(tuner);
}

static void fed(void *tuner, const struct tuner_event *e, uint64_t waited_ns) {
    if (e->kind == TUNER_COMPLETED)
        santa_complete(tuner, e->in_flight, waited_ns + e->ran_ns);
}

struct zoo_tuner santa_tuner(struct santa *s) {
    return (struct zoo_tuner){ s, level_of, fed, arrived };
}
