// Replies, written as a server does, in RESP2 or RESP3:
//
//     reply_             RESP2          RESP3
//     simple             +OK
//     error              -STALE the lease is no longer held
//     integer            :12
//     bulk, id           $3 CR LF 123
//     null               $-1            _
//     boolean            :1             #t
//     double             $3 CR LF 0.5   ,0.5
//     array of 2         *2
//     map of 2 pairs     *4             %2
//     push of 2          –              >2
//
// The header of an array, map or push says how many values follow; the caller has to write them.
// The first failure is remembered and nothing is written after it, so that a sequence of calls
// needs one check at its end; the buffer may then end within a reply, and the connection has to be
// closed.
#ifndef WIRE_REPLY_H
#define WIRE_REPLY_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

struct reply {
    struct buffer *out; // borrowed; its limit bounds the replies that the client has not read
    bool resp3;
    int err; // 0, or the first error of buffer_reserve
};

void reply_simple(struct reply *, const char *text);

// A code in capitals, then a sentence, which may be empty. Line breaks in it become spaces.
void reply_error(struct reply *, const char *code, mr_bytes text);

void reply_integer(struct reply *, int64_t);
void reply_bulk(struct reply *, mr_bytes);
void reply_id(struct reply *, uint64_t); // a bulk string of digits, since JavaScript rounds numbers
void reply_null(struct reply *);
void reply_double(struct reply *, double);
void reply_array(struct reply *, uint64_t count);
void reply_map(struct reply *, uint64_t pairs);
void reply_push(struct reply *, uint64_t count); // RESP3 only

// A bulk string whose bytes the caller appends to `out` itself between these two, which saves a
// copy. `likely_size` may be a guess: if it has another number of digits than the size, the bytes
// are moved. The end takes what the beginning returned.
size_t reply_bulk_begin(struct reply *, size_t likely_size);
void reply_bulk_end(struct reply *, size_t begin);

#endif
