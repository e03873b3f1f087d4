// Evidence: what a tuner has measured of each level, and how two levels compare.
//
//     rounds of completions ──► arms: count, seconds, times in flight, by level ──► difference
//                          └──► noise: how far apart neighbouring rounds are ──────► ± error
//
// Throughput is measured in two ways. Counting completions per second is the truth, but a few very
// long jobs make it noisy. By Little's law throughput is also level ÷ time in flight; the mean
// logarithm of that time is hardly disturbed by long jobs, but it is right only if all jobs are
// slowed down alike. So it is used where it is much the quieter, if the times of neighbours look
// independent (an unfair lock makes some jobs wait for ages while others pass), and until it
// contradicts the count.
#ifndef TUNE_EVIDENCE_H
#define TUNE_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    EVIDENCE_PLACES = 160, // levels that are tried: all up to 29, then steps of about 4 %
    EVIDENCE_SCALES = 6,   // of the noise: neighbours, neighbouring pairs, …
};

// Completions at one level.
struct arm {
    double count, seconds;
    double logs, squares; // sums of ln(seconds in flight) and its square
    double others;        // completions of other tuners meanwhile
};

struct noise {
    double variance[EVIDENCE_SCALES]; // of one completion, in logarithms
    double weight[EVIDENCE_SCALES];
    double half_count[EVIDENCE_SCALES], half_sum[EVIDENCE_SCALES]; // waiting for their other halves
};

struct evidence {
    uint32_t levels[EVIDENCE_PLACES]; // by place, rising
    uint32_t places;
    struct arm arms[EVIDENCE_PLACES];
    struct noise counted, timed;
    double spread, spread_weight; // variance of ln(seconds in flight) within rounds
    bool mistrust;                // times in flight have contradicted the count
};

// A difference of throughput, in logarithms, with its standard error.
struct difference {
    double gain, error;
};

void evidence_init(struct evidence *, uint32_t least, uint32_t most);

// Forgets all measurements but the noise.
void evidence_forget(struct evidence *);

// Learns the noise from a round; one after a pause is not compared with the one before it.
void evidence_round(struct evidence *, const struct arm *round);
void evidence_pause(struct evidence *);

void arm_add(struct arm *, const struct arm *more);

// Adds to what is known about a level, of which the latest some ten thousand completions count.
void evidence_learn(struct evidence *, uint32_t place, const struct arm *);
// What is known about the level loses weight.
void evidence_age(struct evidence *, uint32_t place);

// Compares b, at its place, with a. Both have completions.
struct difference evidence_compare(struct evidence *, uint32_t place_a, const struct arm *a,
                                   uint32_t place_b, const struct arm *b);

// The difference as it is for all: with what `others` tuners gain or lose at b, as far as that is
// opposite and sure. It is never more than the tuner's own, and never of the other sign.
struct difference evidence_joint(struct difference own, uint32_t others, const struct arm *a,
                                 const struct arm *b);

// The mean of what this tuner and `others` gain at b, whose level is e^levels times that of a. The
// others are taken to be slowed down as much as this one, unless they are idle or it is clear from
// their completions that they are not.
struct difference evidence_mean(struct difference own, double levels, uint32_t others,
                                const struct arm *a, const struct arm *b);

// How widely times in flight are spread: the variance of their logarithm, as far as it is known.
double evidence_spread(const struct evidence *);

// The place whose level is about `ratio` times that of `place`; a different one, unless `place` is
// the last.
uint32_t evidence_place(const struct evidence *, uint32_t place, double ratio);

#endif
