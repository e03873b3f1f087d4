// The default tuner: trial and comparison.
//
//     growing ──► searching ──► holding ──► searching …      searching: choice, trial, choice, …
//
// The unit of measurement is the round: as many completions as are in flight. One in which there
// was not enough work is no evidence about the level and is dropped. Some rounds make a block;
// blocks of the level of choice and of the level on trial alternate until one is better by some
// standard errors, the lower one being given a little. Steps are doublings first, then finer.
//
// After a change of the level, jobs that began under the other one are still in flight, and long
// ones longest: they make fewer look worse and more look better than they are. So completions are
// let pass first, more of them where times are widely spread; and the longer a trial is undecided,
// the longer its blocks become.
#include "tune/tuner.h"

#include <math.h>

enum { GROWING, SEARCHING, HOLDING };
enum { FEWER, MORE }; // sides of the level of choice

// What a level costs: twice as many at once must complete 2 % more.
#define PRICE 0.03

// A block: rounds, and time for the machine's own hiccups to even out.
#define ROUND_LEAST 8
#define BLOCK_ROUNDS 4
#define BLOCK_ROUNDS_MOST 128
#define BLOCK_S 0.010
#define LIMITED 0.5 // of the level must have been in flight; taking and ending jobs takes time, too

// A trial is won or lost by so many standard errors, or by gross ones before its block is complete.
#define WON_MORE 2.5
#define WON_FEWER 2.0
#define LOST 2.5
#define GROSS 4.0
// It is over in any case after so many blocks, known as well as this or after so many completions.
#define TRIAL_BLOCKS 4
#define TRIAL_ERROR 0.02
#define TRIAL_COUNT 12000
#define LAST_WORD 1.5 // errors by which more must then be better; fewer need only look better
#define REMAINS 0.1   // error left by the other level, for a spread of 1, in a block of one round
#define FINEST 4      // steps: 2, √2, √√2, … one place
#define LOOKS 3       // of looks again, one is by the coarsest step, one by the finest

// Growing quadruples the level while that at least doubles the throughput. A few completions tell
// these apart; where they do not, more rounds do, up to a limit.
#define GROWTH 4
#define GROWTH_GAIN 0.69 // ln 2
#define GROWTH_ERRORS 1.0
#define GROWTH_ROUNDS 6
#define GROWTH_NONE 1.05
#define GROWTH_SOME 1.4
#define GROWTH_LOST -0.2
#define IDLE_GROWTH 8
#define ROUND_GROWING 4

#define HOPELESS 2.0        // times as long as the level of choice takes
#define HOPELESS_GAIN -1.39 // ln ¼: what is known by then

// Looking again may cost this share of the throughput, and comparing take a ninth of the time.
#define REGRET 0.01
#define SEARCH_SHARE 8
#define HOLD_S 60.0
#define HOLD_TRIALS 20
#define PAUSE_MOST 256 // blocks

// A level is not what it was: by so much and so many errors; that of choice twice in a row.
#define CHOICE_CHANGED 0.15
#define CHOICE_CHANGED_ERRORS 4.0
#define TRIAL_CHANGED 0.08
#define TRIAL_CHANGED_ERRORS 3.5

// ---- Moving -----------------------------------------------------------------------------------

static void block_begin(struct tuner_probe *p) {
    p->block = (struct arm){ 0 };
    p->rounds = 0;
}

static void round_begin(struct tuner_probe *p, uint64_t now_ns) {
    p->round = (struct arm){ 0 };
    p->in_flight_sum = 0;
    p->starved = false;
    p->began_ns = now_ns;
    p->others_began = p->others_completed;
}

static void go_to(struct tuner *t, uint32_t place) {
    struct tuner_probe *p = &t->probe;
    uint32_t old = t->level, level = p->evidence.levels[place];
    p->place = place;
    p->turn = 0;
    p->moved_ns = p->now_ns;
    p->since_move = 0;
    t->level = level;
    block_begin(p);
    if (level == old)
        return;
    p->settling = level > old ? level : old;
    p->settling += (uint32_t)(evidence_spread(&p->evidence) * level);
    evidence_pause(&p->evidence);
}

static void choose(struct tuner *t, uint32_t place, enum tuner_why why) {
    struct tuner_probe *p = &t->probe;
    if (place != p->choice)
        tuner_note(t, p->now_ns, p->evidence.levels[place], why);
    p->choice = place;
    p->last_block = (struct arm){ 0 };
    t->fewer = t->more = (struct tuner_trial){ 0 };
}

static uint32_t neighbour(const struct tuner_probe *p, int side, uint32_t fineness) {
    double ratio = exp2(1.0 / (1 << fineness));
    return evidence_place(&p->evidence, p->choice, side == MORE ? ratio : 1 / ratio);
}

// ---- Searching --------------------------------------------------------------------------------

static void search_next(struct tuner *);

static void sides_open(struct tuner_probe *p) {
    p->over[FEWER] = p->over[MORE] = p->worse[FEWER] = p->worse[MORE] = false;
}

// Looking again, fewer are tried by the finest step only: a coarse one costs much when all is well.
static void trial_begin(struct tuner *t, int side) {
    struct tuner_probe *p = &t->probe;
    if (p->over[side]) {
        search_next(t);
        return;
    }
    p->side = side;
    p->trial = neighbour(p, side, p->again && side == FEWER ? FINEST : p->fineness);
    if (p->trial == p->choice) {
        p->over[side] = p->worse[side] = true;
        search_next(t);
        return;
    }
    p->trial_sum = (struct arm){ 0 };
    p->beside = p->last_block;
    p->trial_blocks = 0;
    evidence_age(&p->evidence, p->trial);
    go_to(t, p->trial);
}

static void search_begin(struct tuner *t, int side) {
    struct tuner_probe *p = &t->probe;
    p->phase = SEARCHING;
    p->spent = p->regret = 0;
    sides_open(p);
    trial_begin(t, side);
}

// Things are not what they were: throughput at a known level has changed by `gain`.
static void search_anew(struct tuner *t, double gain) {
    struct tuner_probe *p = &t->probe;
    evidence_forget(&p->evidence);
    evidence_learn(&p->evidence, p->place, &p->block);
    p->odd = 0;
    p->fineness = 0;
    p->again = false;
    search_begin(t, gain > 0 ? MORE : FEWER);
}

static void hold_level(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    const struct arm *a = &p->evidence.arms[p->choice];
    double rate = a->seconds > 0 ? a->count / a->seconds : 0;
    double most = fmax(HOLD_S * rate, HOLD_TRIALS * p->trial_sum.count);
    double pay = fmax(p->spent / SEARCH_SHARE, p->again ? p->regret / REGRET : 0);
    p->hold = fmin(most, pay);
    p->phase = HOLDING;
    p->spent = p->regret = 0;
    go_to(t, p->choice);
}

// To a finer step that leads elsewhere. False: there is none, or neither side was clearly worse.
static bool refine(struct tuner_probe *p) {
    if (p->again || !(p->worse[FEWER] || p->worse[MORE]))
        return false;
    uint32_t more = neighbour(p, MORE, p->fineness), fewer = neighbour(p, FEWER, p->fineness);
    for (uint32_t finer = p->fineness + 1; finer <= FINEST; finer++)
        if (neighbour(p, MORE, finer) != more || neighbour(p, FEWER, finer) != fewer) {
            p->fineness = finer;
            return true;
        }
    return false;
}

static void search_next(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    int other = !p->side;
    if (!p->over[other] || !p->over[p->side]) {
        trial_begin(t, p->over[other] ? p->side : other);
        return;
    }
    if (!refine(p)) {
        hold_level(t);
        return;
    }
    sides_open(p);
    trial_begin(t, other);
}

// ---- The level on trial -----------------------------------------------------------------------

static void trial_won(struct tuner *t, double gain) {
    struct tuner_probe *p = &t->probe;
    enum tuner_why fewer = gain > 0 ? TUNER_TOO_MUCH : TUNER_FEWER;
    choose(t, p->trial, p->side == MORE ? TUNER_FASTER : fewer);
    p->last_block = p->trial_sum;
    p->next_pause = 1;
    p->fineness -= p->fineness > 0;
    p->again = false;
    sides_open(p);
    p->over[!p->side] = p->worse[!p->side] = true; // that side was left
    trial_begin(t, p->side);
}

static void trial_lost(struct tuner *t, double gain, bool sure) {
    struct tuner_probe *p = &t->probe;
    struct tuner_trial *result = p->side == MORE ? &t->more : &t->fewer;
    *result = (struct tuner_trial){ p->evidence.levels[p->trial], gain, sure };
    p->next_pause = 1;
    p->over[p->side] = true;
    p->worse[p->side] = sure;
    p->regret += p->trial_sum.count * fmax(0, 1 - exp(gain));
    search_next(t);
}

// Compares b, at its place, with a. What this tuner loses to others that try levels, too, is no
// change of its own one.
static struct difference compare(struct tuner_probe *p, uint32_t place_a, const struct arm *a,
                                 uint32_t place_b, const struct arm *b) {
    return evidence_joint(evidence_compare(&p->evidence, place_a, a, place_b, b), p->others, a, b);
}

static double trial_levels(const struct tuner_probe *p) {
    const uint32_t *levels = p->evidence.levels;
    return log((double)levels[p->trial] / levels[p->choice]);
}

// The level on trial beside that of choice. What others complete may change for reasons of their
// own, so that only the time of this trial counts.
static struct difference compare_trial(struct tuner_probe *p, const struct arm *trial,
                                       const struct arm *latest) {
    struct evidence *e = &p->evidence;
    struct difference d = evidence_compare(e, p->choice, &e->arms[p->choice], p->trial, trial);
    d = evidence_mean(d, trial_levels(p), p->others, &p->beside, latest);
    d.error = hypot(d.error, REMAINS * evidence_spread(e) / p->rounds);
    return d;
}

// Whether the level of choice, or what others complete beside it, is not known yet.
static bool lacks_beside(const struct tuner_probe *p) {
    return p->evidence.arms[p->choice].count == 0 || (p->others > 0 && p->beside.seconds == 0);
}

static double price(const struct tuner_probe *p) {
    return PRICE * trial_levels(p);
}

// A gross difference needs no whole block.
static bool is_gross(struct tuner_probe *p) {
    if (p->phase != SEARCHING || p->place != p->trial || p->block.seconds < BLOCK_S / 4 ||
        lacks_beside(p))
        return false;
    struct difference d = compare_trial(p, &p->block, &p->block);
    return fabs(d.gain - price(p)) > GROSS * d.error;
}

static bool trial_has_changed(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    const struct arm *known = &p->evidence.arms[p->trial];
    if (known->count == 0)
        return false;
    struct difference d = compare(p, p->trial, known, p->trial, &p->trial_sum);
    if (fabs(d.gain) <= fmax(TRIAL_CHANGED, TRIAL_CHANGED_ERRORS * d.error))
        return false;
    search_anew(t, d.gain);
    return true;
}

static void trial_block(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    p->spent += p->block.count;
    p->trial_blocks++;
    arm_add(&p->trial_sum, &p->block);
    if (trial_has_changed(t))
        return;
    evidence_learn(&p->evidence, p->trial, &p->block);
    if (lacks_beside(p)) {
        go_to(t, p->choice);
        return;
    }
    struct difference d = compare_trial(p, &p->evidence.arms[p->trial], &p->trial_sum);
    double worth = (d.gain - price(p)) / d.error; // in standard errors
    bool more = p->side == MORE;
    bool over = p->trial_blocks >= TRIAL_BLOCKS &&
                (d.error <= TRIAL_ERROR || p->trial_sum.count >= TRIAL_COUNT);
    if (worth > (more ? WON_MORE : WON_FEWER) || (over && worth > (more ? LAST_WORD : 0)))
        trial_won(t, d.gain);
    else if (over || worth < -LOST)
        trial_lost(t, d.gain, worth < -LOST);
    else
        go_to(t, p->choice);
}

// ---- The level of choice ----------------------------------------------------------------------

// The longer a trial is undecided, the more rounds each level gets at a time. The level of choice
// has them in several blocks, so that a change is noticed within one.
static uint32_t rounds_of_turn(const struct tuner_probe *p) {
    uint32_t rounds = BLOCK_ROUNDS;
    for (uint32_t i = 2; p->phase == SEARCHING && i <= p->trial_blocks; i += 2)
        rounds *= 2;
    return rounds < BLOCK_ROUNDS_MOST ? rounds : BLOCK_ROUNDS_MOST;
}

// True: the block is unlike what is known, and was dealt with.
static bool choice_has_changed(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    const struct arm *known = &p->evidence.arms[p->choice];
    if (known->count <= p->block.count)
        return false;
    struct difference d = compare(p, p->choice, known, p->choice, &p->block);
    if (fabs(d.gain) <= fmax(CHOICE_CHANGED, CHOICE_CHANGED_ERRORS * d.error)) {
        p->odd = 0;
        return false;
    }
    if (++p->odd < 2)
        block_begin(p); // it may be a hiccup
    else
        search_anew(t, d.gain);
    return true;
}

static void choice_block(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    if (choice_has_changed(t))
        return;
    double count = p->block.count;
    evidence_learn(&p->evidence, p->choice, &p->block);
    p->turn += p->rounds;
    p->last_block = p->block;
    arm_add(&p->beside, &p->block);
    block_begin(p);
    p->pause -= p->pause > 0;
    if (p->pause > 0)
        return;
    if (p->phase == SEARCHING) {
        p->spent += count;
        if (p->turn >= rounds_of_turn(p))
            go_to(t, p->trial);
        return;
    }
    p->hold -= count;
    if (p->hold > 0)
        return;
    p->again = true;
    p->fineness = p->looks++ % LOOKS * FINEST / (LOOKS - 1);
    search_begin(t, !p->side);
}

// ---- Growing and shrinking --------------------------------------------------------------------

// One more step, up or down.
static void grow_level(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    choose(t, p->place, p->shrinks ? TUNER_FEWER : TUNER_FASTER);
    uint32_t next = evidence_place(&p->evidence, p->choice, p->shrinks ? 0.5 : GROWTH);
    if (next == p->choice)
        search_begin(t, p->shrinks ? MORE : FEWER);
    else
        go_to(t, next);
}

// The best level lies between the two, where the throughput of the higher one is reached: up to
// there it is in proportion to the level.
static void stop_growing(struct tuner *t, struct difference d) {
    struct tuner_probe *p = &t->probe;
    uint32_t low = p->shrinks ? p->place : p->choice, high = p->shrinks ? p->choice : p->place;
    double ratio = exp(fabs(d.gain));
    uint32_t between = ratio < GROWTH_NONE ? low : evidence_place(&p->evidence, low, ratio);
    if (d.gain < 0 && !p->shrinks)
        between = low;
    choose(t, between < high ? between : high, p->shrinks ? TUNER_FEWER : TUNER_FASTER);
    bool too_much = !p->shrinks && d.gain + d.error < GROWTH_LOST; // the first may be so, too
    p->fineness = p->shrinks || ratio < GROWTH_SOME ? 1 : 0;
    search_begin(t, too_much ? FEWER : MORE);
}

static void growing_round(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    struct evidence *e = &p->evidence;
    struct difference d = { 0 };
    double least = p->shrinks ? -GROWTH_GAIN / 2 : GROWTH_GAIN;
    if (p->place != p->choice) {
        d = compare(p, p->choice, &e->arms[p->choice], p->place, &p->block);
        if (fabs(d.gain - least) < GROWTH_ERRORS * d.error && p->rounds < GROWTH_ROUNDS)
            return;
    }
    evidence_learn(e, p->place, &p->block);
    if (p->place == p->choice || d.gain >= least)
        grow_level(t);
    else
        stop_growing(t, d);
}

// Jobs that wait leave the processors idle: before the first of them has ended, that is all that
// can be known about them. What was too much of it is found when they end.
static void idle(struct tuner *t, uint64_t now_ns) {
    struct tuner_probe *p = &t->probe;
    uint32_t next = evidence_place(&p->evidence, p->choice, IDLE_GROWTH);
    while (p->evidence.levels[next] > TUNER_IDLE_MOST)
        next--;
    if (!tuner_asks_idle(t) || next <= p->choice)
        return;
    p->shrinks = true;
    p->place = next;
    p->settling = 0;
    t->level = p->evidence.levels[next];
    choose(t, next, TUNER_WAITING);
    round_begin(p, now_ns);
}

// ---- Feeding ----------------------------------------------------------------------------------

// Too little work to measure the level. A block of the level of choice goes on when there is work
// again; one on trial is broken off, and tried again when there has been enough for a while, each
// time a longer one.
static void round_dropped(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    evidence_pause(&p->evidence);
    p->settling = t->level;
    if (p->place == p->choice)
        return;
    p->next_pause = p->next_pause < PAUSE_MOST ? p->next_pause * 2 : PAUSE_MOST;
    p->pause = p->next_pause;
    if (p->phase == GROWING) {
        p->phase = HOLDING;
        p->side = FEWER; // so that the next trial is one of more
    }
    go_to(t, p->choice);
}

static void round_taken(struct tuner *t, const struct arm *round) {
    struct tuner_probe *p = &t->probe;
    evidence_round(&p->evidence, round);
    arm_add(&p->block, round);
    p->rounds++;
    if (p->phase == GROWING) {
        growing_round(t);
        return;
    }
    uint32_t rounds = p->place == p->choice ? BLOCK_ROUNDS : rounds_of_turn(p);
    bool whole = p->rounds >= rounds && p->block.seconds >= BLOCK_S;
    if (!whole && !is_gross(p))
        return;
    if (p->place == p->choice)
        choice_block(t);
    else
        trial_block(t);
}

static void round_end(struct tuner *t, uint64_t now_ns) {
    struct tuner_probe *p = &t->probe;
    struct arm round = p->round;
    round.seconds = (double)(now_ns - p->began_ns) * 1e-9;
    round.others = (double)(p->others_completed - p->others_began);
    bool limited = !p->starved && (double)p->in_flight_sum >= LIMITED * round.count * t->level;
    p->now_ns = now_ns;
    round_begin(p, now_ns);
    if (!limited)
        round_dropped(t);
    else if (round.seconds > 0)
        round_taken(t, &round);
}

static bool round_is_over(const struct tuner *t) {
    const struct tuner_probe *p = &t->probe;
    uint32_t least = p->phase == GROWING ? ROUND_GROWING : ROUND_LEAST;
    return p->round.count >= least && p->round.count >= t->level;
}

// More at once, and in twice the time in which the level of choice completes as many not half of
// them have ended: what is left of the settling need not be waited for.
static bool is_hopeless(const struct tuner *t, const struct tuner_event *e) {
    const struct tuner_probe *p = &t->probe;
    const struct arm *known = &p->evidence.arms[p->choice];
    if (p->place <= p->choice || 2 * p->since_move >= t->level || p->starved ||
        e->in_flight < LIMITED * t->level)
        return false;
    double seconds = (double)(e->now_ns - p->moved_ns) * 1e-9;
    return seconds * known->count > HOPELESS * t->level * known->seconds;
}

static void give_up(struct tuner *t, uint64_t now_ns) {
    struct tuner_probe *p = &t->probe;
    p->now_ns = now_ns;
    round_begin(p, now_ns);
    if (p->phase == GROWING)
        stop_growing(t, (struct difference){ .gain = HOPELESS_GAIN });
    else
        trial_lost(t, HOPELESS_GAIN, true);
}

// What they completed before they were seen, or while they were not, belongs to no round.
static void see_others(struct tuner_probe *p, const struct tuner_event *e) {
    if ((e->others > 0) != (p->others > 0))
        p->others_began = e->others_completed;
    p->others = e->others;
    p->others_completed = e->others_completed;
}

static void completed(struct tuner *t, const struct tuner_event *e) {
    struct tuner_probe *p = &t->probe;
    see_others(p, e);
    p->since_move++;
    if (is_hopeless(t, e)) {
        give_up(t, e->now_ns);
        return;
    }
    if (p->settling > 0) {
        if (--p->settling == 0)
            round_begin(p, e->now_ns);
        return;
    }
    p->round.count++;
    if (e->ran_ns == 0)
        p->evidence.mistrust = true; // not known
    double log_s = log((double)(e->ran_ns + 1) * 1e-9);
    p->round.logs += log_s;
    p->round.squares += log_s * log_s;
    p->in_flight_sum += e->in_flight;
    if (round_is_over(t))
        round_end(t, e->now_ns);
}

void probe_feed(struct tuner *t, const struct tuner_event *e) {
    if (e->kind == TUNER_COMPLETED)
        completed(t, e);
    if (e->kind == TUNER_STARVED)
        t->probe.starved = true;
    if (e->kind == TUNER_IDLE)
        idle(t, e->now_ns);
}

void probe_init(struct tuner *t) {
    struct tuner_probe *p = &t->probe;
    evidence_init(&p->evidence, t->options.least, t->options.most);
    while (p->evidence.levels[p->choice] < t->level)
        p->choice++;
    p->place = p->choice;
    t->level = p->evidence.levels[p->choice];
    p->settling = t->level; // the first to end are the shortest ones
    p->next_pause = 1;
    p->side = MORE;
    p->phase = GROWING;
}
