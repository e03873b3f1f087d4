// Reservation: makes sure that a take that waits at several shards at once is answered by exactly
// one of them.
//
//              waits at each shard            a shard has work: reservation_claim
//     over ──► trying ───────────────► open ─────────────────────────────► of shard n ──► over
//                 ▲                      │ missed                               granted
//                 └──────────────────────┘
//
// The word changes by compare and swap, so that only one shard grants, and only as many takes wake
// as there is work. While the thread of the take goes from shard to shard (trying), no shard may
// reserve it: a shard that wanted to is noted in `missed`, and the thread tries it again. So a take
// never gets two answers, and no work is left while a take waits for it.
//
// Any thread may call reservation_claim; only the thread of the take calls the others.
#ifndef SHARD_RESERVATION_H
#define SHARD_RESERVATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// RESERVATION_OF + shard: that shard has reserved the take.
enum { RESERVATION_OVER, RESERVATION_TRYING, RESERVATION_OPEN, RESERVATION_OF };

struct reservation {
    _Atomic uint32_t word;
    _Atomic uint64_t missed; // bit n: shard n
};

// A shard has work for the take. True: the shard must grant, or let the take try again. If the take
// is trying, the shard notes itself in `missed` and then checks the word again: either the thread
// sees the note, or the word has changed.
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

// No shard may reserve the take from now on. False: one has.
static inline bool reservation_close(struct reservation *c) {
    uint32_t now = atomic_load(&c->word);
    while (now <= RESERVATION_OPEN)
        if (atomic_compare_exchange_weak(&c->word, &now, RESERVATION_TRYING))
            return true;
    return false;
}

// Ends the trying. Returns the shards that the thread has to try again; 0: none.
static inline uint64_t reservation_open(struct reservation *c) {
    atomic_store(&c->word, RESERVATION_OPEN);
    return atomic_exchange(&c->missed, 0);
}

// Ends the wait. False: a shard has reserved the take and will answer.
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
