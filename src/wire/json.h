// JSON, written into a buffer. Replies of the wire become it as they are: maps objects, arrays
// arrays, numbers numbers, and bytes strings, or base64 in a field whose name says so where they
// are no text:
//
//     %2 $3 key $1 k $4 body $2 \xff\x00      {"key":"k","body-base64":"/wA="}
//
// A failure to find memory is remembered, and nothing is written after it: one look at `err` at the
// end is enough. Pure.
#ifndef WIRE_JSON_H
#define WIRE_JSON_H

#include "base/buffer.h"
#include "wire/response.h"

struct doc {
    struct buffer *out; // borrowed
    int err;
    bool behind; // a value stands before, in the same brackets
    bool spaced; // with spaces behind commas and colons, for people
};

void doc_open(struct doc *, const char *name, char bracket); // name NULL: none
void doc_close(struct doc *, char bracket);
void doc_number(struct doc *, const char *name, int64_t);
void doc_text(struct doc *, const char *name, mr_bytes);        // what is not UTF-8 becomes U+FFFD
void doc_raw(struct doc *, const char *name, const char *text); // null, true, 0.5 …

// Text as it is; other bytes in base64, as `name`-base64, or, without a name, with U+FFFD for what
// is not UTF-8.
void doc_bytes(struct doc *, const char *name, mr_bytes);

// The value at `at` with all that is in it. Returns the index behind it.
uint32_t doc_value(struct doc *, const char *name, const struct response_value *, uint32_t at);

// As they are, without quotes.
void doc_plain(struct doc *, const char *text, size_t size);

#endif
