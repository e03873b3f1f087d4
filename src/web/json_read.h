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
// continues there. The whole text must be present from the first call; it may move. Pure.
#ifndef WEB_JSON_READ_H
#define WEB_JSON_READ_H

#include "web/limits.h"

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

enum json_token {
    JSON_MORE,   // the steps are used up
    JSON_OPEN,   // start of an object or a list
    JSON_CLOSE,  // its end
    JSON_PIECE,  // a part of a name or a string, with escapes decoded
    JSON_NAME,   // end of a name, after its pieces
    JSON_STRING, // end of a string, after its pieces
    JSON_SCALAR, // a number, true, false or null
    JSON_END,    // end of the text
};

enum json_expected {
    JSON_FIRST, // the object that is the whole text; zero, the initial state
    JSON_VALUE,
    JSON_VALUE_OR_CLOSE,
    JSON_NAME_NEXT,
    JSON_NAME_OR_CLOSE,
    JSON_COLON,
    JSON_COMMA_OR_CLOSE,
    JSON_NOTHING, // only blanks
};

// Zero is a valid start.
struct json_read {
    size_t at;       // the next byte
    size_t from;     // start of the latest OPEN or SCALAR, or of the string of the latest PIECE
    mr_bytes piece;  // of JSON_PIECE; valid until the text moves, or the next call
    uint32_t depth;  // number of open brackets
    uint32_t values; // number of values so far
    enum json_expected expected;
    bool in_string, is_name;
    uint8_t letter[4];                    // UTF-8 of the last escape
    uint8_t objects[(WEB_DEPTH + 7) / 8]; // a bit for each depth: whether it is an object
};

// Reads one token, in at most `*steps` steps, and subtracts the steps used. MR_EINVAL: it is not
// JSON, with the position; MR_ETOOBIG: a limit is exceeded.
int json_read_next(struct json_read *, mr_bytes text, size_t *steps, enum json_token *out);

// Whether the innermost open bracket is that of an object.
bool json_read_in_object(const struct json_read *);

#endif
