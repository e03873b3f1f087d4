// Form: what a request says beside its path, by name: the query behind the question mark, or the
// members of the JSON object that it carries. Values are texts; a flag has none, and of a list each
// item is a field of the same name.
//
//     ?stage=mail&top=3          {"stage": "mail", "dry": true, "max": 3, "ids": ["1", "2"]}
//
// What nobody has asked for can be told at the end.
#ifndef WEB_FORM_H
#define WEB_FORM_H

#include "base/buffer.h"
#include "web/json_read.h"

enum form_kind {
    FORM_TEXT,
    FORM_FLAG, // true
    FORM_OFF,  // false or null: as if it were not there
    FORM_ITEM, // of a list, or an object
};

struct form_field {
    enum form_kind kind;
    size_t name, name_size, at, size; // in the form's text
    bool used;
};

// Zero is a valid start.
struct form {
    struct form_field *fields;
    uint32_t count, capacity;
    struct buffer text; // of all of them
};

void form_finish(struct form *); // also after a failure, and of an empty one

// MR_EINVAL: it cannot be read, and why; MR_ENOMEM.
int form_read_query(struct form *, mr_bytes query);

// How far a JSON object has been read. Zero is a valid start.
struct form_json {
    struct json_read read;
    size_t name, name_size; // of the member at hand, in the form's text
    size_t from;            // where its value, or the item of its list, begins
    bool is_body, is_base64, is_list;
    bool decodes;       // its base64 is being undone …
    size_t read_so_far; // … of so many letters
};

// Reads on in at most `*steps` steps, one a byte, which it takes off. 1: that was all; 0: there is
// more. Errors as above; MR_ETOOBIG: a bound of JSON. The same text is given each time.
int form_read_json(struct form *, struct form_json *, mr_bytes text, size_t *steps);

// The field of that name; NULL: there is none, or it is false or null.
const struct form_field *form_find(struct form *, mr_bytes name);

// The next that nobody has asked for, of that name or (NULL) of any; NULL: none.
const struct form_field *form_next(struct form *, const mr_bytes *name);

// Until more is read.
mr_bytes form_name(const struct form *, const struct form_field *);
mr_bytes form_value(const struct form *, const struct form_field *);

// Undoes percent signs in `bytes` and appends what they stand for. MR_EINVAL; MR_ENOMEM.
int form_unescape(struct buffer *, mr_bytes bytes, bool plus_is_blank);

#endif
