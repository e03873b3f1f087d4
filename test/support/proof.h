// Proofs by chance: which history they begin with, and how long they go on.
//
//     MILLRACE_SEED=7       this history; where each stands alone, no other
//     MILLRACE_LONG=1       longer than in every run of the tests
//     MILLRACE_SECONDS=30   so long
#ifndef TEST_SUPPORT_PROOF_H
#define TEST_SUPPORT_PROOF_H

#include "base/clock.h"

#include <stdlib.h>

static inline uint64_t proof_seed(uint64_t otherwise) {
    const char *seed = getenv("MILLRACE_SEED");
    return seed ? strtoull(seed, NULL, 10) : otherwise;
}

static inline uint64_t proof_ms(uint64_t seconds, uint64_t longer) {
    const char *wanted = getenv("MILLRACE_SECONDS");
    if (wanted)
        return (uint64_t)(strtod(wanted, NULL) * 1000);
    return 1000 * (getenv("MILLRACE_LONG") ? longer : seconds);
}

// The instant at which a proof that begins now ends.
static inline uint64_t proof_until_ms(uint64_t seconds, uint64_t longer) {
    return monotonic_ms() + proof_ms(seconds, longer);
}

#endif
