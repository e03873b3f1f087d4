// The arithmetic of evidence. The noise is Allan's variance: that of the means of neighbouring
// rounds, pairs of rounds, and so on, times their completions. If completions were independent, all
// scales would agree; queues and slow changes make the larger ones worse, and the worst one counts.
#include "tune/evidence.h"

#include <math.h>
#include <string.h>

// Steps between the levels that are tried; a level this near to the wanted one is used for it.
#define STEPS_OF_DOUBLING 16.0
#define NEAR_ENOUGH 1.02

// Memory of a level: completions, or rounds of as many as are in flight.
#define MEMORY_COUNT 30000.0
#define MEMORY_ROUNDS 128.0
#define AGEING 0.9

// Scales are believed after some pairs, fully after some more; none outweighs the latest 64.
#define PAIRS_LEAST 6
#define PAIRS_ENOUGH 16
#define PAIRS_MOST 64.0
#define VARIANCE_LEAST 1e-4
#define SPREAD_MOST 4.0 // beyond it, counts say nothing anyhow

// Times are preferred when so much quieter, while the noise of rounds is no more than so many times
// what independent times would make it, and until they are so many errors off the count.
#define QUIETER 2.0
#define INDEPENDENT 3.0
#define CONTRADICTION 3.5
#define CONTRADICTION_COUNT 16.0 // completions of an arm that has a say in it
#define OTHERS_COUNT 8.0         // completions of others that are evidence
#define OTHERS_ERRORS 0.3        // by which they must have changed
#define OTHERS_MOST 2            // of them count: many may be idle, and noise counts as often
#define SPARED_ERRORS 1.5        // by which they must lose less than half of what is expected

// ---- Noise ------------------------------------------------------------------------------------

static void noise_reset(struct noise *n, double variance, double weight) {
    *n = (struct noise){ .variance[0] = variance, .weight[0] = weight };
}

// Takes `count` completions whose values add up to `sum`.
static void noise_add(struct noise *n, double count, double sum) {
    for (int i = 0; i < EVIDENCE_SCALES; i++) {
        double other = n->half_count[i];
        if (other == 0) {
            n->half_count[i] = count;
            n->half_sum[i] = sum;
            return;
        }
        double apart = sum / count - n->half_sum[i] / other;
        double variance = apart * apart * (count + other) / 4;
        n->weight[i] = fmin(n->weight[i] + 1, PAIRS_MOST);
        n->variance[i] += (variance - n->variance[i]) / n->weight[i];
        n->half_count[i] = 0;
        count += other;
        sum += n->half_sum[i];
    }
}

static double noise_level(const struct noise *n) {
    if (n->weight[0] < PAIRS_LEAST)
        return 1;
    double worst = VARIANCE_LEAST;
    for (int i = 0; i < EVIDENCE_SCALES; i++)
        if (n->weight[i] >= PAIRS_LEAST)
            worst = fmax(worst, n->variance[i] * (n->weight[i] >= PAIRS_ENOUGH ? 1 : .7));
    return worst;
}

// Whether times in flight can be believed: no wider apart from round to round than within rounds.
static bool times_hold(const struct evidence *e) {
    return !e->mistrust && e->spread_weight >= PAIRS_LEAST &&
           noise_level(&e->timed) <= INDEPENDENT * e->spread;
}

// The noise of counts: at least what follows from the times in flight, if they are lognormal.
static double noise_counted(const struct evidence *e) {
    bool early = e->spread_weight > 0 && e->spread_weight < PAIRS_LEAST;
    double least = early || times_hold(e) ? exp(fmin(e->spread, SPREAD_MOST)) - 1 : 0;
    return fmax(noise_level(&e->counted), least);
}

void evidence_round(struct evidence *e, const struct arm *round) {
    noise_add(&e->counted, round->count, round->count * log(round->count / round->seconds));
    noise_add(&e->timed, round->count, round->logs);
    double mean = round->logs / round->count;
    double within = (round->squares - mean * round->logs) / (round->count - 1);
    e->spread_weight = fmin(e->spread_weight + 1, PAIRS_MOST);
    e->spread += (within - e->spread) / e->spread_weight;
}

void evidence_pause(struct evidence *e) {
    memset(e->counted.half_count, 0, sizeof e->counted.half_count);
    memset(e->timed.half_count, 0, sizeof e->timed.half_count);
}

double evidence_spread(const struct evidence *e) {
    return fmin(times_hold(e) ? e->spread : noise_level(&e->counted), SPREAD_MOST);
}

// ---- Levels -----------------------------------------------------------------------------------

// Sixteen levels for each doubling, where those are different whole numbers.
void evidence_init(struct evidence *e, uint32_t least, uint32_t most) {
    *e = (struct evidence){ .levels[0] = least, .places = 1 };
    for (int step = 0; e->places < EVIDENCE_PLACES - 1; step++) {
        uint32_t level = (uint32_t)(exp2(step / STEPS_OF_DOUBLING) + .5);
        if (level * NEAR_ENOUGH >= most)
            break;
        if (level > e->levels[e->places - 1])
            e->levels[e->places++] = level;
    }
    if (e->levels[e->places - 1] < most)
        e->levels[e->places++] = most;
    noise_reset(&e->counted, 1, 2);
    noise_reset(&e->timed, 1, 2);
}

uint32_t evidence_place(const struct evidence *e, uint32_t place, double ratio) {
    double aim = e->levels[place] * ratio;
    if (ratio > 1) {
        for (place += place + 1 < e->places; place + 1 < e->places; place++)
            if (e->levels[place] * NEAR_ENOUGH >= aim)
                break;
        return place;
    }
    for (place -= place > 0; place > 0; place--)
        if (e->levels[place] <= aim * NEAR_ENOUGH)
            break;
    return place;
}

// ---- Arms -------------------------------------------------------------------------------------

void arm_add(struct arm *a, const struct arm *more) {
    a->count += more->count;
    a->seconds += more->seconds;
    a->logs += more->logs;
    a->squares += more->squares;
    a->others += more->others;
}

static void arm_scale(struct arm *a, double factor) {
    a->count *= factor;
    a->seconds *= factor;
    a->logs *= factor;
    a->squares *= factor;
    a->others *= factor;
}

void evidence_learn(struct evidence *e, uint32_t place, const struct arm *more) {
    struct arm *a = &e->arms[place];
    arm_add(a, more);
    double most = fmax(MEMORY_COUNT, MEMORY_ROUNDS * e->levels[place]);
    if (a->count > most)
        arm_scale(a, most / a->count);
}

void evidence_age(struct evidence *e, uint32_t place) {
    arm_scale(&e->arms[place], AGEING);
}

void evidence_forget(struct evidence *e) {
    memset(e->arms, 0, sizeof e->arms);
    e->mistrust = false;
    noise_reset(&e->counted, fmax(1, e->counted.variance[0]), 4);
    noise_reset(&e->timed, fmax(1, e->timed.variance[0]), 4);
    e->spread_weight = 0;
}

static struct difference by_count(const struct evidence *e, const struct arm *a,
                                  const struct arm *b) {
    return (struct difference){ log(b->count / b->seconds) - log(a->count / a->seconds),
                                sqrt(noise_counted(e) * (1 / a->count + 1 / b->count)) };
}

static struct difference by_time(const struct evidence *e, uint32_t place_a, const struct arm *a,
                                 uint32_t place_b, const struct arm *b) {
    double levels = log((double)e->levels[place_b] / e->levels[place_a]);
    return (struct difference){ levels + a->logs / a->count - b->logs / b->count,
                                sqrt(noise_level(&e->timed) * (1 / a->count + 1 / b->count)) };
}

// Whether times and counts disagree about this arm and any that is known: over a large difference
// even noisy counts are sure.
static bool contradicts(const struct evidence *e, uint32_t place, const struct arm *a) {
    for (uint32_t i = 0; i < e->places; i++) {
        const struct arm *known = &e->arms[i];
        if (known->count < CONTRADICTION_COUNT)
            continue;
        struct difference count = by_count(e, known, a), time = by_time(e, i, known, place, a);
        if (fabs(time.gain - count.gain) > CONTRADICTION * count.error)
            return true;
    }
    return false;
}

struct difference evidence_compare(struct evidence *e, uint32_t place_a, const struct arm *a,
                                   uint32_t place_b, const struct arm *b) {
    if (!times_hold(e) || noise_counted(e) < QUIETER * noise_level(&e->timed))
        return by_count(e, a, b);
    e->mistrust = contradicts(e, place_b, b);
    return e->mistrust ? by_count(e, a, b) : by_time(e, place_a, a, place_b, b);
}

// What the others complete at b beside a. Both have completions of others.
static struct difference others_compare(const struct arm *a, const struct arm *b) {
    return (struct difference){ log(b->others / b->seconds) - log(a->others / a->seconds),
                                sqrt(1 / a->others + 1 / b->others) };
}

static double others_counted(uint32_t others) {
    return others < OTHERS_MOST ? others : OTHERS_MOST;
}

// Of tuners that share a machine evenly, one that doubles its level gains as much as all others
// lose together: relative gains add up, theirs as often as there are of them.
struct difference evidence_joint(struct difference own, uint32_t others, const struct arm *a,
                                 const struct arm *b) {
    if (others == 0 || a->others < OTHERS_COUNT || b->others < OTHERS_COUNT)
        return own;
    struct difference d = others_compare(a, b);
    if (fabs(d.gain) <= OTHERS_ERRORS * d.error || d.gain * own.gain >= 0)
        return own;
    double joint = log(fmax(exp(own.gain) + others_counted(others) * (exp(d.gain) - 1), 1e-3));
    own.gain = own.gain > 0 ? fmin(fmax(joint, 0), own.gain) : fmax(fmin(joint, 0), own.gain);
    return own;
}

// Whether the others are idle, or lose at the higher level clearly less than half of `expected`.
static bool others_are_spared(double expected, double levels, const struct arm *a,
                              const struct arm *b) {
    if (a->others < OTHERS_COUNT || b->others < OTHERS_COUNT)
        return a->others < OTHERS_COUNT && b->others < OTHERS_COUNT;
    struct difference d = others_compare(a, b);
    double apart = d.gain - expected / 2;
    return (levels > 0 ? apart : -apart) > SPARED_ERRORS * d.error;
}

// Of r times as many jobs that complete e^g times as much, each takes r / e^g times as long. Jobs
// of the others that share what slows these down take as much longer, so that each other tuner
// gains g - ln r, and the mean of all n is g - (n - 1) / n * ln r. That is less noisy than what the
// others are seen to complete, since the own jobs are counted better, and others try levels, too.
struct difference evidence_mean(struct difference own, double levels, uint32_t others,
                                const struct arm *a, const struct arm *b) {
    if (others == 0 || others_are_spared(own.gain - levels, levels, a, b))
        return own;
    double n = others_counted(others) + 1;
    own.gain -= (n - 1) / n * levels;
    return own;
}
