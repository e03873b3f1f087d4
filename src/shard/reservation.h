// Claim: a take that waits at several shards at once, and is answered by exactly one of them.
//
//              waits at each shard            a shard has work: reservation_claim
//     over ──► trying ───────────────► open ─────────────────────────────► of shard n ──► over
//                 ▲                      │ missed                               granted
//                 └──────────────────────┘
//
// The word changes by compare and swap, so that only one shard grants, and as many takers wake as
// there is work. While the taker goes from shard to shard it tries by itself and no shard may claim
// it: a shard that would have is noted in `missed` and tried again. So a taker never has two
// answers, and no work stays behind without a taker that knows of it.
//
// Any thread may call reservation_claim; the others are the taker's.
#ifndef SHARD_RESERVATION_H
#define SHARD_RESERVATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    RESERVATION_OVER,
    RESERVATION_TRYING,
    RESERVATION_OPEN,
    RESERVATION_OF
}; // RESERVATION_OF + shard: that one has claimed

struct reservation {
    _Atomic uint32_t word;
    _Atomic uint64_t missed; // bit n: shard n
};

// A shard has work for it. True: it must grant, or have the taker try again.
// Noted as missed first, then looked at again: either the taker sees the note, or the word has
// changed.
static inline bool reservation_claim(struct reservation *c, uint32_t shard) {
    for (;;) {
        uint32_t now = RESERVATION_OPEN;
        if (atomic_compare_exchange_strong(&c->word, &now, RESERVATION_OF + shard))
            return true;
        if (now != RESERVATION_TRYING)
            return false;
        atomic_fetch_or(&c->missed, UINT64_C(1) << shard);
        if (atomic_load(&c->word) == RESERVATION_TRYING)
            return false;
    }
}

// No shard may claim it from now on. False: one has.
static inline bool reservation_close(struct reservation *c) {
    uint32_t now = atomic_load(&c->word);
    while (now <= RESERVATION_OPEN)
        if (atomic_compare_exchange_weak(&c->word, &now, RESERVATION_TRYING))
            return true;
    return false;
}

// Ends the trying. Returns the shards that have to be tried again; 0: none.
static inline uint64_t reservation_open(struct reservation *c) {
    atomic_store(&c->word, RESERVATION_OPEN);
    return atomic_exchange(&c->missed, 0);
}

// Gives up waiting. False: a shard has claimed it, whose answer comes.
static inline bool reservation_withdraw(struct reservation *c) {
    uint32_t open = RESERVATION_OPEN;
    return atomic_compare_exchange_strong(&c->word, &open, RESERVATION_OVER);
}

static inline void reservation_set(struct reservation *c, uint32_t word) {
    atomic_store(&c->word, word);
}

static inline uint32_t reservation_word(struct reservation *c) {
    return atomic_load(&c->word);
}

#endif
