// Replies, read as a client does: RESP2 and RESP3 as reply.h writes them. A reply is a value, or
// values within values; it is returned as a flat array in the order of the protocol:
//
//     *2 $1 a *1 :7      array of 2 · bulk "a" · array of 1 · integer 7
//
// As in request.h, values point to the bytes, nothing is copied or allocated, a reader remembers
// offsets only, and no body byte is read twice however small the pieces. Pure; a reader belongs to
// one thread at a time.
#ifndef WIRE_RESPONSE_H
#define WIRE_RESPONSE_H

#include "millrace.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RESPONSE_DEPTH = 8 }; // levels of arrays and maps

enum response_type {
    RESPONSE_SIMPLE, // bytes
    RESPONSE_ERROR,  // bytes: a code, perhaps a space and a sentence
    RESPONSE_BULK,   // bytes
    RESPONSE_DOUBLE, // bytes, as received: 0.5 inf -inf nan
    RESPONSE_INTEGER,
    RESPONSE_BOOLEAN,
    RESPONSE_NULL,
    RESPONSE_ARRAY, // count
    RESPONSE_MAP,   // count, of names and values together: as in RESP2, where it is an array
    RESPONSE_PUSH,  // count; not an answer to a request
};

struct response_value {
    enum response_type type;
    uint32_t count; // values directly inside
    union {
        mr_bytes bytes;
        int64_t integer;
        bool boolean;
    };
};

// Checked as soon as a length is known, before anything of that length has arrived.
struct response_limits {
    uint32_t values;  // at most this many in a reply; the caller's array has as many
    size_t line_size; // bytes of a simple string, error or double
    size_t bulk_size; // bytes of a bulk string
    size_t size;      // bytes of a reply and all that is in it
};

// What a reader remembers of an incomplete reply. Zero is a valid start.
struct response {
    size_t need;     // the reply has at least this many bytes: no call is needed with fewer
    size_t at;       // where the next value begins
    size_t searched; // there is no line end from `at` up to here
    uint32_t count;  // values read
    uint32_t inside; // values that the arrays, maps and pushes among them announce
    uint32_t depth;  // open arrays, maps and pushes …
    uint32_t left[RESPONSE_DEPTH]; // … and how many values each still needs
};

// Reads the reply that begins at `data`. Returns
//     > 0            the bytes it took; its values point into `data`; `r` is ready for the next one
//       0            incomplete: call again with at least r->need bytes from the same beginning
//     MR_EINVAL      not a reply; MR_ETOOBIG: over a limit. error_text() says what is wrong
// `out_values` is undefined until a reply is complete.
ptrdiff_t response_read(struct response *r, const struct response_limits *, const uint8_t *data,
                        size_t size, struct response_value *out_values, uint32_t *out_count);

// The index after the value at `at` and all values in it; skips values that the caller does not
// know.
static inline uint32_t response_skip(const struct response_value *values, uint32_t at) {
    for (uint64_t left = 1; left > 0; left--)
        left += values[at++].count;
    return at;
}

// The value with this name in a map, or in an array, which is how RESP2 sends a map. NULL: there is
// none, or it is neither.
const struct response_value *response_field(const struct response_value *map, const char *name);

#endif
