// Keyed: what the keys of a partition keep, as a small table. In the engine it is the state of one
// channel: for each key its size, itself, and the same for what it keeps; in order of appearance,
// so that nothing depends on a hash.
//
// Loading borrows the bytes; only what changes is copied. One thread at a time.
#ifndef FLOW_KEYED_H
#define FLOW_KEYED_H

#include "base/buffer.h"
#include "millrace_flow.h"

#include <stdint.h>

struct keyed_entry {
    mr_bytes key, state; // empty state: it keeps nothing
    uint64_t hash;
    uint32_t room; // bytes that may be written at `state`; 0: it is borrowed
};

struct keyed_chunk;

struct keyed {
    struct keyed_entry *entries;
    uint32_t count, capacity;
    uint32_t *slots; // number of an entry + 1; as many as a power of two
    uint32_t slot_count;
    struct keyed_chunk *chunks; // memory of copies; freed together
};

// Fills it from a channel's state, which must stay until it is loaded anew. MR_ECORRUPT, MR_ENOMEM.
int keyed_load(struct keyed *, mr_bytes state);

// The key's entry, which is made if there is none: its state is what the key keeps. Valid until the
// next call with another key. NULL with MR_ENOMEM noted.
struct keyed_entry *keyed_at(struct keyed *, mr_bytes key);

// Replaces what the key keeps by a copy. MR_ENOMEM: nothing has changed.
int keyed_set(struct keyed *, struct keyed_entry *, mr_bytes state);

// Appends the state to come to `out`: nothing if no key keeps anything. MR_ENOMEM.
int keyed_save(const struct keyed *, struct buffer *out);

void keyed_finish(struct keyed *);

#endif
