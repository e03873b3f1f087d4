// JSON as a client sends it, read in steps: one object, checked strictly (RFC 8259), token by
// token, with bounds on depth, values and the length of a number. No tree is built: the caller
// keeps what it wants of each token.
//
//     {"key": "a\nb", "ids": [7, {}]}
//
//     OPEN  PIECE key  NAME  PIECE a  PIECE \n  PIECE b  STRING  …  OPEN  SCALAR 7  OPEN CLOSE
//     CLOSE
//
// A step is a byte. When the steps of a call are used up it returns JSON_MORE, and the next call
// goes on there; all of the text is there from the beginning, though it may move. Pure.
#ifndef WEB_JSON_READ_H
#define WEB_JSON_READ_H

#include "web/limits.h"

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

enum json_token {
    JSON_MORE,   // the steps are used up
    JSON_OPEN,   // an object or a list begins
    JSON_CLOSE,  // it ends
    JSON_PIECE,  // a part of a name or a string, without its escapes
    JSON_NAME,   // the name ends whose pieces came before
    JSON_STRING, // the string ends
    JSON_SCALAR, // a number, true, false or null
    JSON_END,    // the object was the whole text
};

enum json_expected {
    JSON_FIRST, // the object that is the whole text: a valid start is zero
    JSON_VALUE,
    JSON_VALUE_OR_CLOSE,
    JSON_NAME_NEXT,
    JSON_NAME_OR_CLOSE,
    JSON_COLON,
    JSON_COMMA_OR_CLOSE,
    JSON_NOTHING, // but blanks
};

// Zero is a valid start.
struct json_read {
    size_t at;       // the next byte
    size_t from;     // where the latest OPEN or SCALAR, or the string of the latest PIECE, began
    mr_bytes piece;  // of JSON_PIECE; until the text moves, or the next call
    uint32_t depth;  // open brackets
    uint32_t values; // so far
    enum json_expected expected;
    bool in_string, is_name;
    uint8_t letter[4];                    // that an escape stands for
    uint8_t objects[(WEB_DEPTH + 7) / 8]; // a bit for each depth: whether it is an object
};

// Reads one token, in at most `*steps` steps, which it takes off. MR_EINVAL: it is not JSON, and
// where; MR_ETOOBIG: a bound.
int json_read_next(struct json_read *, mr_bytes text, size_t *steps, enum json_token *out);

// Whether the innermost open bracket is an object's.
bool json_read_in_object(const struct json_read *);

#endif
