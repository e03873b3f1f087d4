// JSON, written into a buffer. Replies of the wire become it as they are: maps objects, arrays
// arrays, numbers numbers, and bytes strings, or base64 in a field whose name says so where they
// are no text:
//
//     %2 $3 key $1 k $4 body $2 \xff\x00      {"key":"k","body-base64":"/wA="}
//
// or, if the walk wraps them, in an object: {"key":"k","body":{"base64":"/wA="}}. Then text with
// control characters other than tabs and ends of lines is base64, too, so that it at most doubles.
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

// A value that is written in pieces: how far that has come. The first members may be set after
// doc_walk_begin.
struct doc_walk {
    // Names of the values in each array of an array, which becomes an object; they end at their
    // first blank, and with NULL; values behind them are left out. NULL: such an array stays one.
    const char *const *row_names;
    bool wraps;                        // bytes become {"base64": …}
    uint32_t row_at;                   // the next value of the row
    uint32_t at;                       // the value that is next
    mr_bytes name;                     // its name; borrowed
    uint32_t depth;                    // open arrays and maps …
    uint32_t left[RESPONSE_DEPTH + 1]; // … how many values each still has …
    bool is_map[RESPONSE_DEPTH + 1];   // … and which are maps
    enum { WALK_NONE, WALK_CHECK, WALK_TEXT, WALK_BASE64 } string; // what is done with a string …
    size_t done;                                                   // … up to here
};

// Begins with the value at `at`; the name is borrowed.
void doc_walk_begin(struct doc_walk *, const char *name, uint32_t at);

// Continues until the value is complete or `*left`, the bytes that may be read or written, is used
// up; a value costs some bytes in addition. True: it is complete, and `at` is behind it. The values
// are the same in every call, but may have moved.
bool doc_walk(struct doc *, struct doc_walk *, const struct response_value *, size_t *left);

// As they are, without quotes.
void doc_plain(struct doc *, const char *text, size_t size);

#endif
