// Ask: one take that waits at several shards at once, of which exactly one may answer.
//
//                  seat at each shard           a shard has work: claim
//     over ──► trying ───────────────► open ─────────────────────────────► of shard n ──► over
//                 ▲                      │ missed                               granted, told
//                 └──────────────────────┘
//
// The word `claim` changes by compare and swap, so that only one shard ever grants, and as many
// threads wake as there is work. While the thread goes from shard to shard it tries by itself, and
// nobody else may claim: a shard that would have is noted in `missed` and asked again. So the
// thread never has two answers, and no work is left behind without anybody who knows of it.
//
// A shard's claim comes under that shard's lock; the ask's own lock is taken inside it, never the
// other way round.
#ifndef ENGINE_ASK_H
#define ENGINE_ASK_H

#include "core/route.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct local_taker;

enum { ASK_OVER, ASK_TRYING, ASK_OPEN, ASK_OF }; // ASK_OF + shard: that one has claimed it

struct ask {
    _Atomic uint32_t claim;
    _Atomic uint64_t missed; // bit n: shard n
    uint64_t seated;         // bit n: it waits at shard n
    struct local_taker *takers[SHARDS_MOST];

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t cond;
    bool told;  // the shard that claimed it has granted, or could not: `again`
    bool again; // then everything has to be asked anew
    int err;    // why it must not wait on: MR_ESTOPPED, MR_EAGAIN
};

void ask_init(struct ask *);
void ask_finish(struct ask *);

// By a shard that has work, under its lock. True: it must grant, or say ask_tell(…, true).
bool ask_claim(struct ask *, uint32_t shard);

// By the shard that claimed it, or by whoever breaks it off: wakes the thread.
void ask_tell(struct ask *, bool again);
void ask_break_off(struct ask *, int err);

// By the thread, which is then alone: false if a shard has claimed it.
bool ask_try(struct ask *);
// Ends the trying; waits in the open. Returns the shards to be asked again, 0: none.
uint64_t ask_open(struct ask *);

// Sleeps until a shard has granted (0), wants everything asked anew (MR_LATER), it is broken off,
// or monotonic_ms reaches `until_ms` (MR_EAGAIN). It is over then; after 0, `claim` says whose.
int ask_sleep(struct ask *, uint64_t until_ms);

#endif
