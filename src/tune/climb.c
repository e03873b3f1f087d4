// The decisions of climb.
//
//     growing ──► searching ──► holding ──► searching …       searching: choice, trial, choice, …
//
// Growing quadruples the level while that at least doubles the throughput; a few completions tell
// these apart. Searching compares the level of choice with one beside it, in alternating blocks,
// until one is better by some standard errors.
#include "tune/climb.h"

#include <math.h>

enum { GROWING, SEARCHING, HOLDING };
enum { FEWER, MORE };

#define PRICE 0.03f // as in probe.c

// A round has as many completions as are in flight, and takes some ticks of the clock.
#define ROUND_LEAST 8
#define ROUND_GROWING 4
#define ROUND_MS 20
#define LIMITED 0.5f // of the level was in flight; jobs that begin and end together have half
#define BLOCK_ROUNDS 3
#define BLOCK_ROUNDS_MOST 96

#define GROWTH 4
#define GROWTH_GAIN 0.69f // ln 2
#define GROWTH_ROUNDS 8   // at most, if it stays undecided

#define NOISE_FIRST 0.5f
#define NOISE_LEAST 1e-3f
#define NOISE_PAIRS 48.0f
#define SLOW_PAIRS 24.0f
#define NOISE_MARGIN 1.5f // there is more of it from block to block than from round to round

#define WON_MORE 2.5f // standard errors
#define WON_FEWER 2.0f
#define LOST 2.5f
#define LAST_WORD 1.5f
#define TRIAL_BLOCKS 4
#define TRIAL_ERROR 0.025f
#define TRIAL_COUNT 8000
#define FINEST 4
#define MEMORY_COUNT 20000.0f

#define SEARCH_SHARE 8 // comparing takes a ninth of the completions
#define HOLD_S 60.0f
#define PAUSE_MOST 64

#define CHANGED 0.15f
#define CHANGED_ERRORS 4.0f

// ---- Arms -------------------------------------------------------------------------------------

static float rate_log(const struct climb_arm *a) {
    return logf(a->count / a->seconds);
}

static void learn(struct climb_arm *a, const struct climb_arm *more) {
    a->count += more->count;
    a->seconds += more->seconds;
    if (a->count > MEMORY_COUNT) {
        a->seconds *= MEMORY_COUNT / a->count;
        a->count = MEMORY_COUNT;
    }
}

static float error_of(const struct climb *c, const struct climb_arm *a, const struct climb_arm *b) {
    float variance = fmaxf(c->variance * NOISE_MARGIN, c->slow_variance);
    return sqrtf(variance * (1 / a->count + 1 / b->count));
}

// From the difference of neighbouring rounds.
static void noise_learn(struct climb *c, const struct climb_arm *round) {
    float rate = rate_log(round);
    if (c->last_count > 0) {
        float apart = rate - c->last_rate;
        float variance = apart * apart / (1 / round->count + 1 / c->last_count);
        c->pairs = fminf(c->pairs + 1, NOISE_PAIRS);
        c->variance = fmaxf(NOISE_LEAST, c->variance + (variance - c->variance) / c->pairs);
    }
    c->last_rate = rate;
    c->last_count = round->count;
}

// ---- Moving -----------------------------------------------------------------------------------

static void climb_block_begin(struct climb *c) {
    c->block = (struct climb_arm){ 0 };
    c->rounds = 0;
}

static void climb_go_to(struct climb *c, uint32_t level) {
    climb_block_begin(c);
    if (level == c->level)
        return;
    c->settling = level > c->level ? level : c->level;
    c->level = (uint16_t)level;
    c->last_count = 0;
    c->asked = false;
}

static uint32_t climb_neighbour(const struct climb *c, int side) {
    uint32_t at = c->choice_level;
    double ratio = exp2(1.0 / (1 << c->fineness));
    uint32_t more = (uint32_t)(at * ratio + .5), fewer = (uint32_t)(at / ratio + .5);
    if (side == MORE)
        return more <= at ? at + (at < c->most) : more < c->most ? more : c->most;
    return fewer >= at ? at - (at > 1) : fewer;
}

// At the lowest and the highest level there is one side only.
static void climb_trial_begin(struct climb *c, int side) {
    if (climb_neighbour(c, side) == c->choice_level)
        side = !side;
    c->side = (uint8_t)side;
    c->trial_level = (uint16_t)climb_neighbour(c, side);
    c->trial = (struct climb_arm){ 0 };
    c->blocks = 0;
    c->phase = SEARCHING;
    climb_go_to(c, c->trial_level);
}

static void climb_choose(struct climb *c, uint32_t level, struct climb_arm known) {
    c->choice_level = (uint16_t)level;
    c->choice = known;
    c->next_pause = 1;
}

// ---- Searching --------------------------------------------------------------------------------

static void climb_hold_level(struct climb *c) {
    float rate = c->choice.count / c->choice.seconds;
    c->hold = fminf(HOLD_S * rate, c->spent * SEARCH_SHARE);
    c->spent = 0;
    c->phase = HOLDING;
    climb_go_to(c, c->choice_level);
}

// The other side, then finer steps, then a rest.
static void climb_search_next(struct climb *c) {
    int other = !c->side;
    uint32_t coarse = climb_neighbour(c, MORE);
    if (!(c->tried & 1 << other) && climb_neighbour(c, other) != c->choice_level) {
        climb_trial_begin(c, other);
        return;
    }
    c->tried = 0;
    while (c->fineness < FINEST) {
        c->fineness++;
        if (climb_neighbour(c, MORE) != coarse) {
            climb_trial_begin(c, other);
            return;
        }
    }
    climb_hold_level(c);
}

static void climb_trial_won(struct climb *c) {
    climb_choose(c, c->trial_level, c->trial);
    c->fineness -= c->fineness > 0;
    c->tried = (uint8_t)(1 << !c->side); // that side was left
    if (climb_neighbour(c, c->side) == c->choice_level)
        climb_search_next(c);
    else
        climb_trial_begin(c, c->side);
}

static void climb_trial_lost(struct climb *c) {
    c->tried |= (uint8_t)(1 << c->side);
    c->next_pause = 1;
    climb_search_next(c);
}

static void climb_trial_block(struct climb *c) {
    c->spent += c->block.count;
    c->blocks++;
    learn(&c->trial, &c->block);
    if (c->choice.count == 0) {
        climb_go_to(c, c->choice_level);
        return;
    }
    float error = error_of(c, &c->choice, &c->trial), gain = rate_log(&c->trial);
    gain -= rate_log(&c->choice) + PRICE * logf((float)c->trial_level / c->choice_level);
    float worth = gain / error;
    bool more = c->side == MORE;
    bool over =
        c->blocks >= TRIAL_BLOCKS && (error <= TRIAL_ERROR || c->trial.count >= TRIAL_COUNT);
    if (worth > (more ? WON_MORE : WON_FEWER) || (over && worth > (more ? LAST_WORD : 0)))
        climb_trial_won(c);
    else if (over || worth < -LOST)
        climb_trial_lost(c);
    else
        climb_go_to(c, c->choice_level);
}

// ---- The level of choice ----------------------------------------------------------------------

// From the difference of a block and what was known before it.
static void slow_noise_learn(struct climb *c, float gain) {
    float variance = gain * gain / (1 / c->block.count + 1 / c->choice.count);
    c->slow_pairs = fminf(c->slow_pairs + 1, SLOW_PAIRS);
    c->slow_variance += (variance - c->slow_variance) / c->slow_pairs;
}

// True: throughput is not what it was, and the search begins anew.
static bool climb_has_changed(struct climb *c) {
    if (c->choice.count <= c->block.count)
        return false;
    float gain = rate_log(&c->block) - rate_log(&c->choice);
    if (fabsf(gain) <= fmaxf(CHANGED, CHANGED_ERRORS * error_of(c, &c->choice, &c->block))) {
        c->odd = 0;
        slow_noise_learn(c, gain);
        return false;
    }
    if (++c->odd < 2) {
        climb_block_begin(c);
        return true;
    }
    c->choice = c->block;
    c->odd = c->tried = c->fineness = 0;
    c->slow_variance = c->slow_pairs = 0;
    climb_trial_begin(c, gain > 0 ? MORE : FEWER);
    return true;
}

static void climb_choice_block(struct climb *c) {
    if (climb_has_changed(c))
        return;
    float count = c->block.count;
    learn(&c->choice, &c->block);
    climb_block_begin(c);
    c->pause -= c->pause > 0;
    if (c->pause > 0)
        return;
    if (c->phase == SEARCHING) {
        c->spent += count;
        climb_go_to(c, c->trial_level);
        return;
    }
    c->hold -= count;
    if (c->hold > 0)
        return;
    c->tried = 0;
    c->fineness = (uint8_t)(1 + c->looks++ % FINEST);
    climb_trial_begin(c, !c->side);
}

// ---- Growing ----------------------------------------------------------------------------------

static uint32_t grown(const struct climb *c) {
    return c->level * GROWTH < c->most ? c->level * GROWTH : c->most;
}

// What lies between the two levels follows from their rates: throughput is in proportion first.
static void climb_stop_growing(struct climb *c, float gain) {
    uint32_t between = (uint32_t)(c->choice_level * expf(fmaxf(gain, 0)) + .5f);
    c->fineness = 1;
    if (between > c->choice_level)
        climb_choose(c, between < c->level ? between : c->level,
                     between < c->level ? (struct climb_arm){ 0 } : c->block);
    climb_trial_begin(c, MORE);
}

static void climb_growing_round(struct climb *c) {
    if (c->level == c->choice_level) {
        climb_choose(c, c->level, c->block);
        climb_go_to(c, grown(c));
        return;
    }
    float gain = rate_log(&c->block) - rate_log(&c->choice);
    if (fabsf(gain - GROWTH_GAIN) < error_of(c, &c->choice, &c->block) && c->rounds < GROWTH_ROUNDS)
        return;
    if (gain < GROWTH_GAIN || c->level == c->most) {
        climb_stop_growing(c, gain);
        return;
    }
    climb_choose(c, c->level, c->block);
    climb_go_to(c, grown(c));
}

// ---- Feeding ----------------------------------------------------------------------------------

static void climb_round_begin(struct climb *c, uint64_t now_ms) {
    c->began_ms = now_ms;
    c->in_flight_sum = 0;
    c->count = 0;
}

// There was not enough work to measure the level: it is tried again later, each time after more.
static void climb_round_dropped(struct climb *c) {
    c->settling = c->level;
    c->last_count = 0;
    if (c->level == c->choice_level)
        return;
    c->next_pause = c->next_pause < PAUSE_MOST ? (uint8_t)(c->next_pause * 2) : PAUSE_MOST;
    c->pause = c->next_pause;
    if (c->phase == GROWING) {
        c->phase = HOLDING;
        c->side = FEWER;
    }
    climb_go_to(c, c->choice_level);
}

static void climb_round_taken(struct climb *c, const struct climb_arm *round) {
    noise_learn(c, round);
    c->block.count += round->count;
    c->block.seconds += round->seconds;
    c->rounds += c->rounds < UINT8_MAX;
    uint32_t rounds = BLOCK_ROUNDS << (c->phase == SEARCHING ? c->blocks / 2 : 0);
    if (c->phase == GROWING)
        climb_growing_round(c);
    else if (c->rounds < (rounds < BLOCK_ROUNDS_MOST ? rounds : BLOCK_ROUNDS_MOST))
        return;
    else if (c->level == c->choice_level)
        climb_choice_block(c);
    else
        climb_trial_block(c);
}

void climb_completed(struct climb *c, uint64_t now_ms, uint32_t in_flight) {
    if (!c->asked)
        return;
    if (c->settling > 0) {
        if (--c->settling == 0)
            climb_round_begin(c, now_ms);
        return;
    }
    c->in_flight_sum += in_flight;
    uint32_t least = c->phase == GROWING ? ROUND_GROWING : ROUND_LEAST;
    if (++c->count < least || c->count < c->level || now_ms < c->began_ms + ROUND_MS)
        return;
    struct climb_arm round = { (float)c->count, (float)(now_ms - c->began_ms) * 1e-3f };
    bool limited = (float)c->in_flight_sum >= LIMITED * round.count * c->level;
    climb_round_begin(c, now_ms);
    if (limited)
        climb_round_taken(c, &round);
    else
        climb_round_dropped(c);
}

uint32_t climb_ask(struct climb *c) {
    c->asked = true;
    return c->level;
}

void climb_init(struct climb *c, uint32_t most) {
    *c = (struct climb){ .most = (uint16_t)most,
                         .level = CLIMB_FIRST,
                         .choice_level = CLIMB_FIRST,
                         .settling = 1,
                         .variance = NOISE_FIRST,
                         .pairs = 4,
                         .next_pause = 1,
                         .side = MORE };
}
