// Peers: the messages between the shards of one engine. A shard produces them; the owner of the
// shards passes each to the shard that it names, in order: in the same turn, under another lock, or
// through the inbox of another thread.
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

// The next message; the owner must deliver messages in this order. `emits` false: leaves EMITS for
// later. False: there is none. Reuses the memory of `out`.
bool peers_next(struct peers *, bool emits, struct message *out);

// Handles a message from another shard, within a turn. MR_ENOMEM and the log's errors: it has to be
// delivered again. MR_EINVAL: there is no such shard.
int peers_receive(struct peers *, const struct message *);

// Whether there is a message now, or will be when the log is durable up to `out_at`.
bool peers_want(struct peers *, uint64_t *out_at);

// Milliseconds until refused emits are sent again; -1: there are none.
int64_t peers_retry_ms(const struct peers *);

#endif
