// Form: the parameters of a request by name: its query, or the members of the JSON object in its
// body. Values are text; a flag has no value; each item of a list is a field with the list's name.
//
//     ?stage=mail&top=3          {"stage": "mail", "dry": true, "max": 3, "ids": ["1", "2"]}
//
// An object in a list is a field, too, and its members are the fields behind it:
//
//     {"emits": [{"stage": "sent", "body": "x"}]}      emits  stage  body
//                                                             └─ item 1 ─┘
//
// Bytes that are no text are base64: in a member whose name ends in -base64, or as the object
// {"base64": "…"} in place of the string.
//
// Fields that the route has not used can be listed at the end, so that unknown ones are refused.
#ifndef WEB_FORM_H
#define WEB_FORM_H

#include "base/buffer.h"
#include "web/json_read.h"

enum form_kind {
    FORM_TEXT,
    FORM_FLAG,   // true
    FORM_OFF,    // false or null: same as a missing field
    FORM_ITEM,   // any other item of a list, or an object
    FORM_OBJECT, // an object in a list; its members follow
};

struct form_field {
    enum form_kind kind;
    size_t name, name_size, at, size; // in the form's text
    uint32_t item; // the object in a list that it is a member of, from 1; 0: none
    bool used;
};

// Zero is a valid start.
struct form {
    struct form_field *fields;
    uint32_t count, capacity;
    uint32_t inner;          // objects in lists, and their members
    uint32_t items;          // objects in lists
    uint32_t names, members; // that were compared: of the form, of its latest object in a list
    struct buffer text;      // names and values of all fields
};

void form_finish(struct form *); // valid after a failure, and for an empty form

// Reads a query. MR_EINVAL: it is malformed; MR_ENOMEM.
int form_read_query(struct form *, mr_bytes query);

// The progress of reading a JSON object. Zero is a valid start.
struct form_json {
    struct json_read read;
    size_t name, name_size;           // of the current member, in the form's text
    size_t from;                      // start of its value, or of the current item of its list
    size_t list_name, list_name_size; // of the list that it is in
    bool is_body, is_base64, is_list;
    bool is_item;       // inside an object in a list
    bool decodes;       // its base64 is being decoded …
    size_t read_so_far; // … and this many characters of it are done
};

// Continues to read `text`, at most one byte per step, and subtracts the steps used from `*steps`.
// Returns 1 at the end of the text, 0 if more is left. Errors as above; MR_ETOOBIG: a limit of
// JSON. Every call gets the same text.
int form_read_json(struct form *, struct form_json *, mr_bytes text, size_t *steps);

// The field of this name; NULL: it is missing, false or null.
const struct form_field *form_find(struct form *, mr_bytes name);

// The same for a member of an object in a list, which is named by its own field.
const struct form_field *form_find_in(struct form *, const struct form_field *object,
                                      const char *name);

// The next field that was not returned yet, of this name or (NULL) of any; NULL: none.
const struct form_field *form_next(struct form *, const mr_bytes *name);

// The same behind another field (NULL: from the first).
const struct form_field *form_after(struct form *, const struct form_field *, const mr_bytes *name);

// Valid until more is read.
mr_bytes form_name(const struct form *, const struct form_field *);
mr_bytes form_value(const struct form *, const struct form_field *);

// Appends `bytes` with percent escapes decoded. MR_EINVAL; MR_ENOMEM.
int form_unescape(struct buffer *, mr_bytes bytes, bool plus_is_blank);

#endif
