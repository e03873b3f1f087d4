// Entry: what the core hands out to be kept and a log keeps: a head, which is read again at every
// opening, and a body, which is read only when somebody asks for it.
#ifndef BASE_ENTRY_H
#define BASE_ENTRY_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

// What a log puts around an entry.
enum { ENTRY_FRAME = 32 };

struct entry {
    mr_bytes head, body;
    bool damaged; // the body is not what was written once: it is kept, but reading it fails
};

// Whose room on a nearly full disk an entry may use: pushes stop first, then commits (which make
// room), then the cleaner (which makes more).
enum room { ROOM_PUSH, ROOM_COMMIT, ROOM_CLEAN };

// Bytes that an entry takes up in a log.
static inline uint32_t entry_size(size_t head_size, size_t body_size) {
    return (uint32_t)((ENTRY_FRAME + head_size + body_size + 7) & ~(size_t)7);
}

#endif
