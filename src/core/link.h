// Link: emits to other shards that were not acknowledged yet, and what was accepted from other
// shards. core.h describes the exchange.
#ifndef CORE_LINK_H
#define CORE_LINK_H

#include "core/state.h"

// An emit that was not acknowledged yet.
struct outbox {
    uint64_t number, at, due_ms, deadline_ms;
    uint32_t next, size; // the next entry to that shard; bytes of its home
    uint32_t key, once;  // in `keys`; 0: none
    uint32_t attempts;
    uint32_t maker; // whom it counts for; 0: no maker
    uint16_t stage, to, meta_size;
};

// The state of the exchange with one other shard, in both directions.
struct link_end {
    uint32_t first, last;     // unacknowledged entries, by number
    uint64_t acked, accepted; // highest number acknowledged by it; accepted from it
    uint64_t arrived;         // highest number it has accepted: those jobs count there
    uint64_t ahead_ms;       // how far this shard's time was ahead of the sender's, modulo 2^64 …
    uint64_t ahead_until_ms; // … for delayed jobs from there, the last of which is due then
    uint32_t unwritten;      // acknowledgements since the last LINK record
    uint32_t size;           // of its home
    uint64_t at;
};

static inline struct outbox *outbox_at(const struct core *c, uint32_t entry) {
    return slab_at(&c->outbox, entry);
}

// The shard that an emit belongs to, which may be this one.
uint32_t emit_route(const struct core *, const struct emit *);

// A new entry is prepared, its record is added to a group, then it is sent or undone.
int outbox_prepare(struct core *, const struct push *, uint32_t to, struct push_plan *out);
void outbox_add_record(struct core *, const struct push_plan *);
void outbox_send(struct core *, const struct push_plan *, uint64_t at, uint32_t size);
void outbox_undo(struct core *, uint32_t entry);

uint32_t outbox_find(const struct core *, uint64_t number); // 0: not there
void outbox_set_home(struct core *, uint32_t entry, uint64_t at, uint32_t size);
int link_record(struct core *, uint32_t shard, enum room); // writes a LINK record for that shard
int links_record_acked(struct core *); // writes the LINK records that are out of date

// Replay: numbers come in any order; links_open sorts the entries.
int outbox_restore(struct core *, const struct record *, uint64_t at, uint32_t size);
int link_restore(struct core *, const struct record *, uint64_t at, uint32_t size);
int link_restore_mark(struct core *, const struct record *);   // of an ARRIVAL
bool links_lead_to(const struct core *, const struct stage *); // an unacknowledged emit does
void links_forget_acked(struct core *);                        // also those out of order
int links_open(struct core *);

#endif
