// The inbox of a shard in memory: plain pushes that go there without the shard's lock. A plain push
// says nothing but its stage, key and body, and its caller does not ask for the id.
//
//     pusher      inbox's lock ─ is there a permit? ─ copy ─ unlock       (no: the shard's lock)
//     any turn    shard's lock ─ deliver what is in the inbox ─ … ─ renew the permits ─ unlock
//
// No caller can tell where a push is. Every turn begins by delivering what is in the inbox, so each
// command and look sees all pushes that have returned, in the order in which they were accepted.
// And a job that waits in the inbox delays nothing: a stage at which a take waits has no permit.
// Refusals are made at once, too: a stage has a permit only while it has room for all that fits
// into the inbox (core_promises_room), and what was accepted is delivered whatever the room is
// then.
//
// So the pushing threads do not touch what the workers' threads use, and these find many jobs with
// one visit. The lock is held only to copy one push, or to exchange the two buffers.
#ifndef ENGINE_PUSH_INBOX_H
#define ENGINE_PUSH_INBOX_H

#include "base/bytes.h"
#include "base/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    INBOX_BYTES = 256 << 10, // what one buffer holds; beyond that a pusher takes the shard's lock
    INBOX_JOBS = 2000,       // the same
    INBOX_BODY_MOST = 4096,
    INBOX_STAGES = 4, // that have permits at the same time
};

// Written with both locks held, and read with either.
struct push_inbox_permit {
    bool given;
    uint8_t stage_size;
    char stage[STAGE_NAME_MOST];
};

// Pushers and the delivering thread write different cache lines.
struct push_inbox {
    uint8_t *delivering;  // the shard's lock guards this and what follows
    size_t size, at;      // of `delivering`
    uint32_t next_permit; // which to replace

    _Alignas(64) pthread_mutex_t lock; // guards what follows
    uint8_t *filling;                  // NULL: there is no inbox, and no permit
    _Atomic size_t filled;             // bytes; read without the lock, too
    uint32_t accepted;                 // jobs in `filling`
    struct push_inbox_permit permits[INBOX_STAGES];
};

struct accepted_push {
    mr_bytes stage, key, body; // borrowed until the next turn
};

void push_inbox_init(struct push_inbox *);
int push_inbox_open(struct push_inbox *); // makes its buffers. MR_ENOMEM
void push_inbox_finish(struct push_inbox *);

// Any thread, without the shard's lock. False: there is no permit or no space for it; nothing has
// changed.
bool push_inbox_accept(struct push_inbox *, mr_bytes stage, mr_bytes key, mr_bytes body);

// Whether all pushes that have returned are delivered. With the shard's lock, as all that follows.
bool push_inbox_is_empty(const struct push_inbox *);

// Exchanges the buffers, when all of the last exchange is delivered: what was accepted until now is
// to be delivered next.
void push_inbox_exchange(struct push_inbox *);

// Whether something of the last exchange is not delivered yet: there was no memory for it.
static inline bool push_inbox_has_rest(const struct push_inbox *b) {
    return b->at != b->size;
}

// The oldest push of those to be delivered; false: there is none. It stays so until
// push_inbox_delivered.
bool push_inbox_first(const struct push_inbox *, struct accepted_push *out);
void push_inbox_delivered(struct push_inbox *, const struct accepted_push *);

// The permits are numbered; one without a stage is not used.
mr_bytes push_inbox_permit_stage(const struct push_inbox *, uint32_t number);
// True: it was taken away, and jobs may have been accepted by it: they must be delivered in this
// turn.
bool push_inbox_permit_set(struct push_inbox *, uint32_t number, bool given);
bool push_inbox_knows(const struct push_inbox *,
                      mr_bytes stage); // whether it has one, given or not
// Gives the stage a permit in place of the oldest, when all of the last exchange is delivered.
void push_inbox_permit_add(struct push_inbox *, mr_bytes stage);

#endif
