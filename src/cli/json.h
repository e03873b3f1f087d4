// Json: an object or array printed piece by piece, on one line; wire/json.h writes it. Zero is
// a valid start. Without memory what is missing is reported by json_end. No name is one of jansson,
// which is linked with this.
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include "wire/json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *to; // NULL: stdout
    struct doc doc;
    struct buffer text; // not printed yet
};

// `name` is NULL inside an array and for the outermost value. `bracket` is one of { [ and } ].
void json_open(struct json *, const char *name, char bracket);
void json_close(struct json *, char bracket);
void json_end(struct json *); // of the line; the next value begins another. Frees what it holds

void json_number(struct json *, const char *name, uint64_t);
void json_id(struct json *, const char *name, uint64_t); // as a string: some readers round numbers
void json_flag(struct json *, const char *name, bool);
void json_text(struct json *, const char *name, const char *text); // may hold any bytes
void json_time(struct json *, const char *name, uint64_t ms);

void json_none(struct json *, const char *name);
void json_double(struct json *, const char *name, double); // null if it is no number
void json_signed(struct json *, const char *name, int64_t);

// Bytes that are UTF-8 as they are; others in base64, as `name`-base64, or, without a name, with
// U+FFFD for what is not.
void json_bytes(struct json *, const char *name, mr_bytes);

#endif
