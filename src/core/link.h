// Link: emits on their way to other shards, and what has come from them. See core.h for how they
// travel.
#ifndef CORE_LINK_H
#define CORE_LINK_H

#include "core/state.h"

// An emit on its way.
struct outbox {
    uint64_t number, at, due_ms, deadline_ms;
    uint32_t next, size; // the next one to that shard; of its home
    uint32_t key, once;  // in `keys`; 0: none
    uint32_t attempts;
    uint16_t stage, to;
};

// The other end: a shard to which entries go, and from which others come.
struct link_end {
    uint32_t first, last;     // entries not acknowledged, by number
    uint64_t acked, accepted; // the highest number of each
    uint64_t arrived;         // and of those that it has, as was told: they count there
    uint32_t unwritten;       // acknowledgements that the record does not know of
    uint32_t size;            // of its home
    uint64_t at;
};

static inline struct outbox *outbox_at(const struct core *c, uint32_t entry) {
    return slab_at(&c->outbox, entry);
}

// The shard that an emit belongs to, which may be this one.
uint32_t emit_route(const struct core *, const struct emit *);

// An entry in the making: prepared, its record added to a group, then sent or undone.
int outbox_prepare(struct core *, const struct push *, uint32_t to, struct push_plan *out);
void outbox_add_record(struct core *, const struct push_plan *);
void outbox_send(struct core *, uint32_t entry, uint64_t at, uint32_t size);
void outbox_undo(struct core *, uint32_t entry);

uint32_t outbox_find(const struct core *, uint64_t number); // 0: not there
void outbox_set_home(struct core *, uint32_t entry, uint64_t at, uint32_t size);
int link_record(struct core *, uint32_t shard, enum room); // writes what is known of that end
int links_record_acked(struct core *); // of each end whose acknowledgements are not written yet

// Replaying: in any order of numbers; links_open puts them right.
int outbox_restore(struct core *, const struct record *, uint64_t at, uint32_t size);
int link_restore(struct core *, const struct record *, uint64_t at, uint32_t size);
int link_restore_mark(struct core *, const struct record *);   // of an ARRIVAL
bool links_lead_to(const struct core *, const struct stage *); // something not acknowledged does
void links_forget_acked(struct core *); // also what stands behind later entries
int links_open(struct core *);

#endif
