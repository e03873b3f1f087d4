// Shared take: a thread's take that waits at several shards; the reservation makes sure that only
// one of them answers, and the thread sleeps here. A shard's claim comes under that shard's lock;
// the lock here is taken inside it, never the other way round.
#ifndef ENGINE_SHARED_TAKE_H
#define ENGINE_SHARED_TAKE_H

#include "core/route.h"
#include "shard/reservation.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct local_taker;

struct shared_take {
    struct reservation reservation;
    uint64_t waiting; // bit n: it waits at shard n
    struct local_taker *takers[SHARDS_MOST];

    pthread_mutex_t lock; // guards what follows
    pthread_cond_t cond;
    bool answered; // the shard that claimed it has granted, or could not: `again`
    bool again;    // then all shards have to be tried anew
    int err;       // why it must not wait on: MR_ESTOPPED, MR_EAGAIN
};

void shared_take_init(struct shared_take *);
void shared_take_finish(struct shared_take *);

// By the shard that claimed it, or by whatever ends the wait: wakes the thread.
void shared_take_answer(struct shared_take *, bool again);
void shared_take_cancel(struct shared_take *, int err);

// Sleeps until a shard has granted (0), wants all tried anew (MR_LATER), the wait is cancelled, or
// monotonic_ms reaches `until_ms` (MR_EAGAIN). The take is over then; after 0, the reservation has
// the shard.
int shared_take_sleep(struct shared_take *, uint64_t until_ms);

#endif
