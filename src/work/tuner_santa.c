// The mailbox's own tuner. For every number in flight it remembers a throughput: with n in flight
// and S seconds from a job's arrival to its end, n ÷ S jobs complete a second. After whatever
// happens it moves by one: by chance sometimes, else towards a neighbour that is known to be
// better.
//
//     known:  … level−1  level  level+1 …      down if that is better than both, else up if better
//
// Its flaw is told with it: with little in flight nothing is learned about the level it is at,
// while chance goes on moving it, and jobs that waited long make any level look bad.
#include "work/tuner.h"

static double chance(struct tuner_santa *s) { // 0 ≤ … < 1
    uint64_t z = s->random += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static void learn(struct tuner *t, const struct tuner_event *e) {
    uint64_t took_ns = e->waited_ns + e->ran_ns;
    if (e->in_flight == 0 || e->in_flight > TUNER_MOST || took_ns == 0)
        return;
    double *known = &t->santa.rate[e->in_flight];
    double measure = e->in_flight / ((double)took_ns * 1e-9);
    double learning = t->options.learning;
    *known = *known == 0 ? measure : (1 - learning) * *known + learning * measure;
}

static uint32_t adjust(struct tuner *t) {
    struct tuner_santa *s = &t->santa;
    uint32_t level = t->level;
    if (chance(s) < t->options.exploring)
        return chance(s) < 0.5 ? level - 1 : level + 1;
    double now = s->rate[level], lower = s->rate[level - 1], higher = s->rate[level + 1];
    if (now == 0)
        return level;
    if (lower > now && lower > higher)
        return level - 1;
    return higher > now ? level + 1 : level;
}

void santa_feed(struct tuner *t, const struct tuner_event *e) {
    if (e->kind == TUNER_STARVED)
        return;
    if (e->kind == TUNER_COMPLETED)
        learn(t, e);
    uint32_t level = adjust(t);
    if (level >= t->options.least && level <= t->options.most)
        t->level = level;
}

void santa_init(struct tuner *t) {
    t->santa.random = t->options.seed;
}
