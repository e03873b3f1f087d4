// Gather: a command that concerns several loops, or whose reply must be buffered: the connection's
// remote session in each loop runs it, and the replies are combined into one.
//
//     TAKE                in the order of the stages, without waiting; then in all of them at once,
//                         of which one answers (shard/reservation.h)
//     STAGES, EPICS …     one loop after another, until there are as many rows as COUNT says
//     BEAT, RETRY, DROP   each loop gets its own ids
//     INFO                all of them; counts are added
//     by id               where the id was issued; then, if it is not known there, in the others
//
// The session waits meanwhile. One thread: the connection's loop.
#ifndef SERVER_GATHER_H
#define SERVER_GATHER_H

#include "server/command.h"

struct gather;
struct shared_reservation;

// Whether one loop can answer it, and which.
bool gather_is_one(const struct session *, const struct command *, const mr_bytes *words,
                   uint32_t count, uint32_t *out_loop);

// The session waits until it is answered. With `loop`, only that loop gets it.
void gather_begin(struct session *, const struct command *, const mr_bytes *words, uint32_t count,
                  const uint32_t *loop);

// Receives complete replies, and push messages between them, from a loop.
void gather_receive(struct session *, uint32_t loop, mr_bytes replies);

// Ends the wait of a TAKE.
void gather_cancel(struct session *);

// Whether a TAKE needs no answer of a shard that has not got its request: it is over, or it asks
// one shard after another, and this one cannot be reached now.
bool gather_does_without(const struct session *, bool is_reachable);

void gather_destroy(struct gather *); // takes NULL

// Notes the stages of a TAKE that other loops answer, for WORKERS.
void gather_note_take(struct session *, const mr_bytes *words, uint32_t count);

// ---- router.c ---------------------------------------------------------------------------------

int router_request(struct session *, uint32_t loop, const mr_bytes *words, uint32_t count,
                   struct shared_reservation *);
void router_unblock_at(struct session *, uint32_t loop);
void router_return(struct session *, uint32_t loop, uint64_t jobs); // the last that it has taken
bool router_is_reachable(const struct session *, uint32_t loop); // a command would not wait for it
uint32_t router_loop_of_stage(const struct host *, mr_bytes stage);
uint32_t router_loop_of_id(const struct host *, uint64_t id);
bool router_has_shards(const struct host *, uint32_t loop);
struct shared_reservation *shared_reservation_create(void);    // NULL: no memory
void shared_reservation_withdraw(struct shared_reservation *); // unless a loop has it
void shared_reservation_leave(struct shared_reservation *);    // takes NULL

#endif
