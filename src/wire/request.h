// Requests, read as a server does and written as a client does. A request is an array of bulk
// strings, or a line of words (see inline.h):
//
//     *2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n            ECHO hi\r\n
//
// Reading works on the bytes a connection has received so far. What comes out are pointers into
// them; nothing is copied or allocated. Between calls a reader remembers offsets only, so the bytes
// may move, and many connections can share one array of arguments. A request that arrives in pieces
// is parsed piece by piece, no body byte twice, and once more by its lengths when it is complete.
//
// Pure; a reader belongs to one thread at a time.
#ifndef WIRE_REQUEST_H
#define WIRE_REQUEST_H

#include "base/buffer.h"

#include <stddef.h>
#include <stdint.h>

// Checked as soon as a length is known, before anything of that length has arrived.
struct request_limits {
    uint32_t arguments;   // at most this many; the caller's array has as many
    size_t argument_size; // bytes of one argument
    size_t line_size;     // bytes of an inline command, its line end included
    size_t size;          // bytes of an array and all that is in it
};

// What a reader remembers of an incomplete request. Zero is a valid start.
struct request {
    size_t need;    // the request has at least this many bytes: no call is needed with fewer
    size_t at;      // everything before this offset was checked, or searched for a line end
    uint32_t count; // arguments announced
    uint32_t seen;  // arguments parsed
};

// Reads the request that begins at `data`. Returns
//     > 0            the bytes it took; its arguments lie in `data`; `r` is ready for the next one
//       0            incomplete: call again with at least r->need bytes from the same beginning
//     MR_EINVAL      not a request; MR_ETOOBIG: over a limit. error_text() begins with "Protocol
//                    error:"; send it to the peer and close: the rest cannot be parsed
// A request without arguments (an empty line or array) needs no reply: skip it. `out_arguments` is
// undefined until a request is complete. Quoted words of a line are unquoted in place, so `data` is
// changed, never beyond the bytes used.
ptrdiff_t request_read(struct request *r, const struct request_limits *, uint8_t *data, size_t size,
                       mr_bytes *out_arguments, uint32_t *out_count);

// Appends a request. Errors as buffer_reserve; the buffer is then unchanged.
int request_write(struct buffer *, const mr_bytes *arguments, size_t count);

#endif
