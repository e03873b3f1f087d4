// Claim: a take that waits at several shards at once, and is answered by exactly one of them.
//
//              waits at each shard            a shard has work: claim_by
//     over ──► trying ───────────────► open ─────────────────────────────► of shard n ──► over
//                 ▲                      │ missed                               granted
//                 └──────────────────────┘
//
// The word changes by compare and swap, so that only one shard grants, and as many takers wake as
// there is work. While the taker goes from shard to shard it tries by itself and no shard may claim
// it: a shard that would have is noted in `missed` and tried again. So a taker never has two
// answers, and no work stays behind without a taker that knows of it.
//
// Any thread may call claim_by; the others are the taker's.
#ifndef SHARD_CLAIM_H
#define SHARD_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { CLAIM_OVER, CLAIM_TRYING, CLAIM_OPEN, CLAIM_OF }; // CLAIM_OF + shard: that one has claimed

struct claim {
    _Atomic uint32_t word;
    _Atomic uint64_t missed; // bit n: shard n
};

// A shard has work for it. True: it must grant, or have the taker try again.
// Noted as missed first, then looked at again: either the taker sees the note, or the word has
// changed.
static inline bool claim_by(struct claim *c, uint32_t shard) {
    for (;;) {
        uint32_t now = CLAIM_OPEN;
        if (atomic_compare_exchange_strong(&c->word, &now, CLAIM_OF + shard))
            return true;
        if (now != CLAIM_TRYING)
            return false;
        atomic_fetch_or(&c->missed, UINT64_C(1) << shard);
        if (atomic_load(&c->word) == CLAIM_TRYING)
            return false;
    }
}

// No shard may claim it from now on. False: one has.
static inline bool claim_try(struct claim *c) {
    uint32_t now = atomic_load(&c->word);
    while (now <= CLAIM_OPEN)
        if (atomic_compare_exchange_weak(&c->word, &now, CLAIM_TRYING))
            return true;
    return false;
}

// Ends the trying. Returns the shards that have to be tried again; 0: none.
static inline uint64_t claim_open(struct claim *c) {
    atomic_store(&c->word, CLAIM_OPEN);
    return atomic_exchange(&c->missed, 0);
}

// Gives up waiting. False: a shard has claimed it, whose answer comes.
static inline bool claim_withdraw(struct claim *c) {
    uint32_t open = CLAIM_OPEN;
    return atomic_compare_exchange_strong(&c->word, &open, CLAIM_OVER);
}

static inline void claim_set(struct claim *c, uint32_t word) {
    atomic_store(&c->word, word);
}

static inline uint32_t claim_word(struct claim *c) {
    return atomic_load(&c->word);
}

#endif
