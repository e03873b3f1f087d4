// Json: an object or array written as it becomes known, on one line. By hand, because
// nothing here reads JSON, and what has to be right (commas, escapes, bytes that are no text) is
// less than a library needs to be told. Zero is a valid start.
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *to;    // NULL: stdout
    bool behind; // a value stands before: a comma is due
};

// `name` is NULL inside an array and for the outermost value. `bracket` is one of { [ and } ].
void json_open(struct json *, const char *name, char bracket);
void json_close(struct json *, char bracket);
void json_end(struct json *); // the line; the next value begins anew

void json_number(struct json *, const char *name, uint64_t);
void json_id(struct json *, const char *name, uint64_t); // as a string: some readers round numbers
void json_flag(struct json *, const char *name, bool);
void json_text(struct json *, const char *name, const char *text); // may hold any bytes
void json_time(struct json *, const char *name, uint64_t ms);

void json_null(struct json *, const char *name);
void json_real(struct json *, const char *name, double); // null if it is no number
void json_signed(struct json *, const char *name, int64_t);

// Bytes that are UTF-8 as they are; others in base64, as `name`-base64, or, without a name, with
// U+FFFD for what is not.
void json_bytes(struct json *, const char *name, mr_bytes);

#endif
