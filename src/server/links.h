// Links: emits on their way from one shard to another, as core.h tells it. The host carries them:
//
//     durable where it was emitted ─► accepted ─► durable there ─► acknowledged where it was
//     emitted
//
// so that a crash at any time loses none; a repeat changes nothing. One thread, within a turn.
#ifndef SERVER_LINKS_H
#define SERVER_LINKS_H

#include "server/host.h"

struct links;

struct links *links_create(uint32_t shards); // NULL: no memory
void links_destroy(struct links *);          // takes NULL

// Carries what can be carried now.
void links_pump(struct host *);

// Whether a turn would carry something. Between turns.
bool links_can_move(struct host *);

// Milliseconds until what failed is tried again; -1: nothing has.
int64_t links_next_ms(const struct host *);

#endif
