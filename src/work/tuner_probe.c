// The default tuner: trial and comparison.
//
//     doubling ──► searching ──► holding ──► searching …       searching: choice, trial, choice, …
//
// The unit of measurement is the round: as many completions as are in flight, so that every job
// counted ran under the level it is counted for. A round in which there was not enough work says
// nothing about the level and is dropped. Some rounds make a block; blocks of the level of choice
// and of the level on trial alternate until one is better by some standard errors.
//
// Throughput is measured in two ways. Counting completions per second is the truth, but a few very
// long jobs make it noisy. By Little's law throughput is also level ÷ time in flight; the mean
// logarithm of that time is hardly disturbed by long jobs, but tells the truth only if all jobs are
// slowed down alike. It is used where it is much the quieter one, and never against the count.
//
// The noise is measured too, at several scales (Allan's variance: of neighbouring means), because
// neighbouring completions are not independent.
#include "work/tuner.h"

#include <math.h>
#include <string.h>

enum { DOUBLING, SEARCHING, HOLDING };
enum { FEWER, MORE }; // sides of the level of choice

#define PRICE 0.03      // of a level: twice as many must bring 2 % more
#define BETTER_MORE 2.5 // standard errors to move up,
#define BETTER_FEWER 2.0 // to move down,
#define WORSE 2.0        // and to give a trial up
#define GROSS 4.0        // the same, before its block is complete

#define ROUND_LEAST 8
#define BLOCK_ROUNDS 4
#define BLOCK_NS 10000000ull
#define TRIAL_BLOCKS 8 // a trial ends undecided after so many blocks and …
#define TRIAL_ERROR 0.02
#ifndef TRIAL_COUNT
#define TRIAL_COUNT 12000
#define SETTLE 1
#endif
#ifndef REMAINS
#define REMAINS .1
#endif

#define DOUBLING_ERROR 0.15 // a doubling is measured as well as this …
#define DOUBLING_COUNT 400  // … or with so many completions
#define DOUBLING_GAIN 0.22  // logarithm of the least that it must bring
#define DOUBLING_FAILS 2
#define DOUBLING_PICK 0.16 // the lowest level so near the best is the first choice

#define MEMORY_COUNT 30000 // completions that are remembered of a level
#define MEMORY_ROUNDS 128
#define REGRET 0.01        // share of the throughput that looking again may cost
#define HOLD_S 60.0        // looks again after so much time at the latest, or …
#define HOLD_TRIALS 20     // … so many times what the last trial took
#define PATIENCE_MOST 64

#define CHANGED 0.15 // the level of choice is not what it was: by so much and so many errors, twice
#define CHANGED_ERRORS 4.0
#define TRIAL_CHANGED 0.08
#define TRIAL_CHANGED_ERRORS 3.5

#define FINEST 2       // steps: 2, √2, √√2
#define QUIETER 2.0    // when times are preferred to counts
#define CONTRADICTION 3.5

// ---- Noise ------------------------------------------------------------------------------------

static void noise_reset(struct tuner_noise *n, double variance, double weight) {
    *n = (struct tuner_noise){ .variance[0] = variance, .weight[0] = weight };
}

static void noise_pause(struct tuner_noise *n) { // what comes next has no neighbour
    memset(n->half_count, 0, sizeof n->half_count);
}

// Takes `count` completions whose values (logarithms) add up to `sum`.
static void noise_add(struct tuner_noise *n, double count, double sum) {
    for (int i = 0; i < TUNER_SCALES; i++) {
        double other = n->half_count[i];
        if (other == 0) {
            n->half_count[i] = count;
            n->half_sum[i] = sum;
            return;
        }
        double apart = sum / count - n->half_sum[i] / other;
        double variance = apart * apart * (count + other) / 4;
        n->weight[i] = fmin(n->weight[i] + 1, 64);
        n->variance[i] += (variance - n->variance[i]) / n->weight[i];
        n->half_count[i] = 0;
        count += other;
        sum += n->half_sum[i];
    }
}

// Of one completion, at the worst scale of which enough is known.
static double noise_level(const struct tuner_noise *n) {
    double worst = 1e-4;
    for (int i = 0; i < TUNER_SCALES; i++)
        if (n->weight[i] >= 6)
            worst = fmax(worst, n->variance[i] * (n->weight[i] >= 16 ? 1 : .7));
    return n->weight[0] >= 6 ? worst : fmax(worst, 1);
}

// ---- Evidence ---------------------------------------------------------------------------------

static void arm_add(struct tuner_arm *a, const struct tuner_arm *more) {
    a->count += more->count;
    a->seconds += more->seconds;
    a->logs += more->logs;
}

static void arm_scale(struct tuner_arm *a, double factor) {
    a->count *= factor;
    a->seconds *= factor;
    a->logs *= factor;
}

static void learn(struct tuner_probe *p, uint32_t place, const struct tuner_arm *block) {
    struct tuner_arm *a = &p->arms[place];
    arm_add(a, block);
    double most = fmax(MEMORY_COUNT, MEMORY_ROUNDS * p->grid[place]);
    if (a->count > most)
        arm_scale(a, most / a->count);
}

// Variance of a completion in a count: at least what times in flight, taken as lognormal, make it.
static double noise_counted(const struct tuner_probe *p) {
    double times = p->timed.weight[0] >= 6 ? p->timed.variance[0] : 0;
    return fmax(noise_level(&p->counted), exp(fmin(times, 5)) - 1);
}

struct difference {
    double gain, error; // of throughput, in logarithms; standard error
};

// How b does beside a.
static struct difference compare(struct tuner_probe *p, uint32_t place_a, const struct tuner_arm *a,
                                 uint32_t place_b, const struct tuner_arm *b) {
    double share = 1 / a->count + 1 / b->count;
    double counted = noise_counted(p), timed = noise_level(&p->timed);
    struct difference count = { log(b->count / b->seconds) - log(a->count / a->seconds),
                                sqrt(counted * share) };
    if (p->mistrust || counted < QUIETER * timed)
        return count;
    struct difference time = { log((double)p->grid[place_b] / p->grid[place_a]) +
                                   a->logs / a->count - b->logs / b->count,
                               sqrt(timed * share) };
    p->mistrust = fabs(time.gain - count.gain) > CONTRADICTION * count.error;
    return p->mistrust ? count : time;
}

static double price(const struct tuner_probe *p, uint32_t place_a, uint32_t place_b) {
    return PRICE * log((double)p->grid[place_b] / p->grid[place_a]);
}

// Nothing known holds any more.
static void forget(struct tuner_probe *p) {
    memset(p->arms, 0, sizeof p->arms);
    p->odd = 0;
    p->mistrust = false;
    noise_reset(&p->counted, fmax(1, p->counted.variance[0]), 4);
    noise_reset(&p->timed, fmax(1, p->timed.variance[0]), 4);
}

// ---- Rounds and blocks ------------------------------------------------------------------------

static void block_begin(struct tuner_probe *p) {
    p->block = (struct tuner_arm){ 0 };
    p->rounds = 0;
}

static void round_begin(struct tuner_probe *p, uint64_t now_ns) {
    p->count = 0;
    p->logs = 0;
    p->in_flight_sum = 0;
    p->starved = false;
    p->began_ns = now_ns;
}

static void go_to(struct tuner *t, uint32_t place) {
    struct tuner_probe *p = &t->probe;
    uint32_t old = t->level, level = p->grid[place];
    p->now = place;
    t->level = level;
    block_begin(p);
    if (level == old)
        return;
    p->settling = level > old ? level : old;
    p->settling += (uint32_t)(SETTLE*fmin(noise_level(&p->timed), 5) * level);
    noise_pause(&p->counted);
    noise_pause(&p->timed);
}

static void choose(struct tuner *t, uint32_t place, enum tuner_why why) {
    struct tuner_probe *p = &t->probe;
    if (place != p->choice || why == TUNER_DOUBLED)
        tuner_note(t, p->now_ns, p->grid[place], why);
    p->choice = place;
    t->fewer = t->more = (struct tuner_trial){ 0 };
}

// ---- Searching --------------------------------------------------------------------------------

static void search_next(struct tuner *);

// The place a step away: at least one.
static uint32_t neighbour(const struct tuner_probe *p, int side, int fineness) {
    double ratio = exp2(1.0 / (1 << fineness));
    double aim = side == MORE ? p->grid[p->choice] * ratio : p->grid[p->choice] / ratio;
    uint32_t place = p->choice;
    if (side == MORE) {
        for (place += place + 1 < p->places; place + 1 < p->places; place++)
            if (p->grid[place] * 1.05 >= aim)
                break;
        return place;
    }
    for (place -= place > 0; place > 0; place--)
        if (p->grid[place] <= aim * 1.05)
            break;
    return place;
}

static void trial_begin(struct tuner *t, int side) {
    struct tuner_probe *p = &t->probe;
    if (p->over[side]) {
        search_next(t);
        return;
    }
    p->direction = side;
    p->trial = neighbour(p, side, p->again && side == FEWER ? FINEST : p->fineness);
    if (p->trial == p->choice) {
        p->over[side] = p->worse[side] = true;
        search_next(t);
        return;
    }
    p->trial_sum = p->choice_sum = (struct tuner_arm){ 0 };
    p->trial_blocks = 0;
    arm_scale(&p->arms[p->trial], .9); // old evidence ages
    go_to(t, p->trial);
}

static void search_begin(struct tuner *t, int side) {
    struct tuner_probe *p = &t->probe;
    p->phase = SEARCHING;
    p->over[0] = p->over[1] = p->worse[0] = p->worse[1] = false;
    p->spent = p->regret = 0;
    trial_begin(t, side);
}

// Things are not what they were: throughput at a known level has changed by `gain`.
static void search_anew(struct tuner *t, double gain) {
    struct tuner_probe *p = &t->probe;
    forget(p);
    learn(p, p->now, &p->block);
    p->fineness = 0;
    p->again = false;
    search_begin(t, gain > 0 ? MORE : FEWER);
}

static void hold(struct tuner *t, double least) {
    struct tuner_probe *p = &t->probe;
    const struct tuner_arm *a = &p->arms[p->choice];
    double rate = a->seconds > 0 ? a->count / a->seconds : 0;
    double most = fmax(HOLD_S * rate, HOLD_TRIALS * p->trial_sum.count);
    p->hold = fmax(least, fmin(most, fmax(p->spent / 8, p->again ? p->regret / REGRET : 0)));
    p->phase = HOLDING;
    p->spent = p->regret = 0;
    go_to(t, p->choice);
}

// A finer step that leads elsewhere; false: there is none, or neither side was worse.
static bool refine(struct tuner_probe *p) {
    if (p->again || !(p->worse[FEWER] || p->worse[MORE]))
        return false;
    uint32_t more = neighbour(p, MORE, p->fineness), fewer = neighbour(p, FEWER, p->fineness);
    for (int finer = p->fineness + 1; finer <= FINEST; finer++)
        if (neighbour(p, MORE, finer) != more || neighbour(p, FEWER, finer) != fewer) {
            p->fineness = finer;
            return true;
        }
    return false;
}

static void search_next(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    int other = !p->direction;
    if (!p->over[other] || !p->over[p->direction]) {
        trial_begin(t, p->over[other] ? p->direction : other);
        return;
    }
    if (!refine(p)) {
        p->patience = 1;
        hold(t, 0);
        return;
    }
    p->over[0] = p->over[1] = p->worse[0] = p->worse[1] = false;
    trial_begin(t, other);
}

static void trial_won(struct tuner *t, double gain) {
    struct tuner_probe *p = &t->probe;
    choose(t, p->trial,
           p->direction == MORE ? TUNER_FASTER : gain > 0 ? TUNER_TOO_MUCH : TUNER_FEWER);
    p->fineness -= p->fineness > 0;
    p->over[p->direction] = p->worse[p->direction] = false;
    p->over[!p->direction] = p->worse[!p->direction] = true; // we come from there
    p->again = false;
    trial_begin(t, p->direction);
}

static void trial_lost(struct tuner *t, double gain, bool sure) {
    struct tuner_probe *p = &t->probe;
    int side = p->direction;
    *(side == MORE ? &t->more : &t->fewer) = (struct tuner_trial){ p->grid[p->trial], gain, sure };
    p->over[side] = true;
    p->worse[side] = sure;
    p->regret += p->trial_sum.count * fmax(0, 1 - exp(gain));
    search_next(t);
}

// What jobs that began under the other level may do to a block: the wider their times are spread,
// the longer some of them stay.
static double remains(const struct tuner_probe *p) {
    return REMAINS * noise_level(&p->timed) / p->rounds;
}

static void trial_block(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    struct tuner_arm *known = &p->arms[p->trial];
    p->spent += p->block.count;
    p->trial_blocks++;
    arm_add(&p->trial_sum, &p->block);
    if (known->count > 0) {
        struct difference d = compare(p, p->trial, known, p->trial, &p->trial_sum);
        if (fabs(d.gain) > fmax(TRIAL_CHANGED, TRIAL_CHANGED_ERRORS * d.error)) {
            search_anew(t, d.gain);
            return;
        }
    }
    learn(p, p->trial, &p->block);
    const struct tuner_arm *choice = &p->arms[p->choice];
    if (choice->count == 0) {
        go_to(t, p->choice);
        return;
    }
    struct difference d = compare(p, p->choice, choice, p->trial, known);
    d.error = hypot(d.error, remains(p));
    double worth = d.gain - price(p, p->choice, p->trial);
    if (worth > (p->direction == MORE ? BETTER_MORE : BETTER_FEWER) * d.error)
        trial_won(t, d.gain);
    else if (worth < -WORSE * d.error)
        trial_lost(t, d.gain, true);
    else if (p->trial_blocks >= TRIAL_BLOCKS &&
             (d.error <= TRIAL_ERROR || p->trial_sum.count >= TRIAL_COUNT) && p->direction==FEWER && worth>0)
        trial_won(t, d.gain);
    else if (p->trial_blocks >= TRIAL_BLOCKS &&
             (d.error <= TRIAL_ERROR || p->trial_sum.count >= TRIAL_COUNT))
        trial_lost(t, d.gain, false);
    else
        go_to(t, p->choice);
}

// ---- The level of choice ----------------------------------------------------------------------

// True: the block shows that things have changed, or may have.
static bool has_changed(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    const struct tuner_arm *known = &p->arms[p->choice];
    if (known->count <= p->block.count)
        return false;
    struct difference d = compare(p, p->choice, known, p->choice, &p->block);
    if (fabs(d.gain) <= fmax(CHANGED, CHANGED_ERRORS * d.error)) {
        p->odd = 0;
        return false;
    }
    if (++p->odd < 2) {
        block_begin(p);
        return true;
    }
    search_anew(t, d.gain);
    return true;
}

static void choice_block(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    struct tuner_arm block = p->block;
    if (has_changed(t))
        return;
    learn(p, p->choice, &block);
    if (p->phase == SEARCHING) {
        p->spent += block.count;
        arm_add(&p->choice_sum, &block);
        go_to(t, p->trial);
        return;
    }
    p->hold -= block.count;
    if (p->hold > 0) {
        block_begin(p);
        return;
    }
    p->again = true;
    p->fineness = (int)(p->looks++ % (FINEST + 1));
    search_begin(t, !p->direction);
}

// ---- Doubling ---------------------------------------------------------------------------------

static bool doubling_is_measured(struct tuner_probe *p) {
    double noise = p->mistrust ? noise_counted(p) : fmin(noise_counted(p), noise_level(&p->timed));
    return p->block.count >= DOUBLING_COUNT ||
           sqrt(noise / p->block.count) <= DOUBLING_ERROR;
}

// The lowest level that is about as good as the best.
static uint32_t doubling_pick(struct tuner_probe *p) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < p->doubled; i++) {
        uint32_t a = p->doublings[best], b = p->doublings[i];
        if (compare(p, a, &p->arms[a], b, &p->arms[b]).gain > 0)
            best = i;
    }
    for (uint32_t i = 0; i < best; i++) {
        uint32_t a = p->doublings[best], b = p->doublings[i];
        struct difference d = compare(p, a, &p->arms[a], b, &p->arms[b]);
        if (d.gain >= -DOUBLING_PICK - d.error / 2)
            return b;
    }
    return p->doublings[best];
}

static void doubling_block(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    learn(p, p->now, &p->block);
    if (p->doubled > 0) {
        uint32_t last = p->doublings[p->doubled - 1];
        struct difference d = compare(p, last, &p->arms[last], p->now, &p->arms[p->now]);
        p->fails = d.gain >= DOUBLING_GAIN ? 0 : p->fails + 1;
    }
    p->doublings[p->doubled++] = p->now;
    if (p->fails < DOUBLING_FAILS && p->now + 1 < p->places) {
        choose(t, p->now, TUNER_DOUBLED);
        go_to(t, neighbour(p, MORE, 0));
        return;
    }
    choose(t, doubling_pick(p), TUNER_DOUBLED);
    search_begin(t, MORE);
}

// ---- Feeding ----------------------------------------------------------------------------------

// Too little work to tell anything about the level: never stay on trial for that.
static void round_dropped(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    noise_pause(&p->counted);
    noise_pause(&p->timed);
    p->settling = t->level;
    block_begin(p);
    if (p->now == p->choice)
        return;
    p->fineness = p->phase == DOUBLING ? 0 : p->fineness;
    p->direction = FEWER; // the next trial is one of more
    p->patience = fmin(p->patience * 2, PATIENCE_MOST);
    hold(t, p->patience * BLOCK_ROUNDS * fmax(ROUND_LEAST, t->level));
}

// A gross difference needs no whole block.
static bool is_gross(struct tuner_probe *p) {
    const struct tuner_arm *choice = &p->arms[p->choice];
    if (p->phase != SEARCHING || p->now != p->trial || choice->count == 0 ||
        p->block.seconds * 4e9 < BLOCK_NS)
        return false;
    struct difference d = compare(p, p->choice, choice, p->trial, &p->block);
    d.error = hypot(d.error, remains(p));
    return fabs(d.gain - price(p, p->choice, p->trial)) > GROSS * d.error;
}

// The longer a trial is undecided, the longer are its blocks: at the beginning of each, jobs that
// began under the other level are still in flight, and long ones longest.
static uint32_t rounds_of_block(const struct tuner_probe *p) {
    uint32_t longer = p->phase == SEARCHING ? p->trial_blocks / 2 : 0;
    return BLOCK_ROUNDS << (longer > 5 ? 5 : longer);
}

static void round_end(struct tuner *t, uint64_t now_ns) {
    struct tuner_probe *p = &t->probe;
    struct tuner_arm round = { p->count, (double)(now_ns - p->began_ns) * 1e-9, p->logs };
    bool limited = !p->starved && p->in_flight_sum >= .9 * p->count * t->level;
    round_begin(p, now_ns);
    if (!limited) {
        round_dropped(t);
        return;
    }
    if (round.seconds <= 0)
        return;
    noise_add(&p->counted, round.count, round.count * log(round.count / round.seconds));
    noise_add(&p->timed, round.count, round.logs);
    arm_add(&p->block, &round);
    p->rounds++;
    if (p->phase == DOUBLING) {
        if (p->rounds >= 2 && doubling_is_measured(p))
            doubling_block(t);
        return;
    }
    bool whole = p->rounds >= rounds_of_block(p) && p->block.seconds * 1e9 >= BLOCK_NS;
    if (!whole && !is_gross(p))
        return;
    if (p->now == p->choice)
        choice_block(t);
    else
        trial_block(t);
}

static void completed(struct tuner *t, const struct tuner_event *e) {
    struct tuner_probe *p = &t->probe;
    if (p->settling > 0) {
        if (--p->settling == 0)
            round_begin(p, e->now_ns);
        return;
    }
    p->count++;
    p->logs += log((double)(e->ran_ns + 1) * 1e-9);
    p->in_flight_sum += e->in_flight;
    if (p->count < ROUND_LEAST || p->count < t->level)
        return;
    p->now_ns = e->now_ns;
    round_end(t, e->now_ns);
}

void probe_feed(struct tuner *t, const struct tuner_event *e) {
    if (e->kind == TUNER_COMPLETED)
        completed(t, e);
    if (e->kind == TUNER_STARVED)
        t->probe.starved = true;
}

// ---- The beginning ----------------------------------------------------------------------------

void probe_init(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    p->grid[p->places++] = t->options.least;
    for (int quarter = 0; p->places < TUNER_GRID; quarter++) {
        uint32_t level = (uint32_t)(exp2(quarter / 4.0) + .5);
        if (level >= t->options.most)
            break;
        if (level > t->options.least && level > p->grid[p->places - 1])
            p->grid[p->places++] = level;
    }
    if (p->grid[p->places - 1] < t->options.most)
        p->grid[p->places++] = t->options.most;
    while (p->grid[p->choice] < t->level)
        p->choice++;
    p->now = p->choice;
    t->level = p->grid[p->choice];
    p->settling = 1; // from the first completion on there is a time to count from
    p->patience = 1;
    p->direction = MORE;
    noise_reset(&p->counted, 1, 2);
    noise_reset(&p->timed, 1, 2);
}
