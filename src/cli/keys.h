// Keys: which part of a line is its key: a field, what a regular expression finds, or a member of
// the JSON object that the line is. A line without that part has no key. Zero finds none.
#ifndef CLI_KEYS_H
#define CLI_KEYS_H

#include "base/buffer.h"
#include "base/limits.h"

#include <regex.h>

enum key_from { KEY_NONE, KEY_FIELD, KEY_REGEX, KEY_JSON };

struct keys {
    enum key_from from;
    const char *option;  // that names it
    unsigned long field; // from 1
    regex_t regex;
    const char *member; // borrowed
};

// At most one of the three may be given (not NULL). MR_EINVAL: more were, or it is not possible.
int keys_open(const char *field, const char *regex, const char *member, struct keys *out);

// The same from words: "field 2", "regex ^([a-z]+)", "json user". Borrows `text`. MR_EINVAL with
// what is possible.
int keys_read(const char *text, struct keys *out);

// The line's key, empty if it has none: a part of the line, or made in `room`. Any thread.
// MR_ENOMEM.
int keys_look(const struct keys *, mr_bytes line, struct buffer *room, mr_bytes *out);

// Puts it into `out`. As above.
int keys_find(const struct keys *, mr_bytes line, struct buffer *out);

// The Nth field of the line, from 1: fields stand between blanks, as for awk. Empty: there is none.
mr_bytes field_find(unsigned long field, mr_bytes line);

// Whether the expression finds something in the line: all of it, and its first group.
bool regex_find(const regex_t *, mr_bytes line, regmatch_t out_match[2]);

// The sentence for the first line in which no key was found.
enum { KEYS_MISSING = 128 };
const char *keys_missing(const struct keys *, uint64_t number, char out[KEYS_MISSING]);

// What names the channel of a key of any length: the key, or, for one that is too long, its
// beginning and a hash, made in `room`.
mr_bytes key_channel(mr_bytes key, uint8_t room[KEY_MOST]);

void keys_close(struct keys *);

#endif
