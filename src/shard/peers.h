// Peers: the messages between the shards of one engine. A shard produces them; the owner of the
// shards passes each to the shard that it names, in order: in the same turn, under another lock,
// through the inbox of another thread, or over a connection to another node.
//
//     EDGE, OVER   a stage emits to another; a stage is over its high mark, or no longer ─► all
//
//     SHARE        a token has much of its share of stages here ─► all, which may answer SHARE_LEFT
//
//     here   emits of a commit ── durable ── EMITS ──┐                     core_link_acked
//     there                                          └► accepted ─► ARRIVED ── durable ── ACKED ─┘
//
// Emits travel in batches, one under way for each pair of shards. A crash loses no emit, because
// the sender keeps it until ACKED, and repeats none, because the receiver knows its number. Notes
// (EDGE, OVER) are sent before everything else: so a stage that goes over its high mark by an emit
// is reported before the sender stops counting that emit. SHARE_LEFT waits until what it is based
// on is durable, and all messages wait behind it.
//
// Between nodes any message may be lost, and a shard may get a new owner, which has replayed its
// log and begins with fresh peers. What is needed is sent again:
//
//     loss        The owner calls peers_reset after a connection was made anew. As a second line of
//                 defence, what was not answered for some seconds is sent again.
//     emits       Sending again means from the oldest that was not acknowledged. The receiver
//                 ignores those that it has, and answers with the highest number that it has
//                 accepted and, once that is durable, acknowledged.
//     notes       They are numbered, and NOTED says up to which they were received; a note is
//                 accepted only behind the one before it. Sending again means BEGIN, which makes
//                 the receiver forget which stages of the sender are over their high mark, and
//                 then all that is true now. Edges are never forgotten.
//     shares      SHARE is asked again when it is needed again.
//     new owners  A message has the epoch of its sender's log, which is higher for each owner. One
//                 of a lower epoch than was seen before is ignored. With the first of a higher one
//                 everything is sent again to that shard, and what the former owner has said of
//                 marks and of arrived emits is forgotten: it may not have been durable. So an
//                 ARRIVED of a former owner that is believed first is corrected by the answer of
//                 its successor to the emits that follow, which the timer ensures.
//
// ACKED stays true for all later owners. Numbers of emits (ids) and of notes (epoch and counter)
// are never used twice, so an answer to a former owner never answers for its successor.
//
// One thread at a time, which the shard's owner ensures.
#ifndef SHARD_PEERS_H
#define SHARD_PEERS_H

#include "shard/message.h"

#include <stdbool.h>
#include <stdint.h>

struct peers;
struct shard;

// For a shard that is one of several. MR_ENOMEM.
int peers_create(struct shard *, uint32_t index, uint32_t count, struct peers **out);
void peers_destroy(struct peers *); // takes NULL

// peers_of_core: for the core's config. peers_start: sets the core, before any other call.
struct core_peers peers_of_core(struct peers *);
void peers_start(struct peers *, struct core *);

// The core was opened, and nothing was sent yet.
void peers_open(struct peers *);

// Sends everything again that shard `other` may lack. The owner calls it in a turn when a
// connection to the owner of that shard was made anew, and when that shard has a new owner.
void peers_reset(struct peers *, uint32_t other);

// The next message; the owner must deliver messages in this order. `emits` false: leaves EMITS for
// later. False: there is none. Reuses the memory of `out`.
bool peers_next(struct peers *, bool emits, struct message *out);

// Handles a message from another shard, within a turn. MR_ENOMEM and the log's errors: it has to be
// delivered again. MR_EINVAL: there is no such shard. An answer to emits that were never sent
// changes nothing.
int peers_receive(struct peers *, const struct message *);

// Whether there is a message now, or will be when the log is durable up to `out_at`.
bool peers_want(struct peers *, uint64_t *out_at);

// Engine time at which the owner has to run a turn and ask for messages: refused emits are then
// sent again, and what was not answered. UINT64_MAX: never.
uint64_t peers_due_ms(const struct peers *);

#endif
