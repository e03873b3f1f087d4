// Entry: the unit that the core writes and a log stores: a head, which is read at every opening,
// and a body, which is read only on request.
#ifndef BASE_ENTRY_H
#define BASE_ENTRY_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

// Bytes that a log adds to an entry.
enum { ENTRY_FRAME = 32 };

struct entry {
    mr_bytes head, body;
    bool damaged; // the body is damaged: it is stored, but reading it fails
};

// Priorities for the last room on a nearly full disk: pushes stop first, then commits (which make
// room), then the cleaner (which makes more).
enum room { ROOM_PUSH, ROOM_COMMIT, ROOM_CLEAN };

// The size of an entry in a log.
static inline uint32_t entry_size(size_t head_size, size_t body_size) {
    return (uint32_t)((ENTRY_FRAME + head_size + body_size + 7) & ~(size_t)7);
}

#endif
