// Climb: the tuner that a server keeps for each client and stage. A client in any language asks for
// the level now and then; the server feeds completions.
//
//     completions ──►┌───────┐
//     LEVEL asked ──►│ climb │──► level           pure, 104 bytes, whole milliseconds
//                    └───────┘
//
// It seeks what the worker's own tuner seeks (tuner.h), the largest ln X − 0.03 ln L, with less:
// it counts completions only, remembers two levels, and has one estimate of the noise. A change of
// the level counts from when the client has asked for it.
#ifndef TUNE_CLIMB_H
#define TUNE_CLIMB_H

#include <stdbool.h>
#include <stdint.h>

enum { CLIMB_FIRST = 2, CLIMB_MOST = 4096 };

struct climb_arm {
    float count, seconds;
};

struct climb {
    uint64_t began_ms, in_flight_sum; // the round
    uint32_t count, settling;
    struct climb_arm block;         // rounds at the present level, in a row
    struct climb_arm choice, trial; // what is known of these levels
    float variance, pairs;          // of a completion, in logarithms; rounds it was learned from
    float slow_variance, slow_pairs;
    float last_rate, last_count; // the round before; 0: none
    float spent, hold;           // completions spent on comparing; until the next comparison
    uint16_t most, level, choice_level, trial_level;
    uint8_t phase, side, fineness, looks;
    uint8_t rounds, blocks, odd, pause, next_pause;
    uint8_t tried; // sides that were tried, as bits
    bool asked;    // the client has asked since the level changed
};

void climb_init(struct climb *, uint32_t most);

// The level, for a client that will keep to it from now on.
uint32_t climb_ask(struct climb *);

// A job has ended; there were `in_flight`, this one included. `now_ms` never goes back.
void climb_completed(struct climb *, uint64_t now_ms, uint32_t in_flight);

#endif
