// See form.h. Names and values are copied into one buffer; fields hold their offsets.
#include "web/form.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/limits.h"

#include <string.h>

void form_finish(struct form *f) {
    mem_free(f->fields);
    buffer_finish(&f->text);
    *f = (struct form){ 0 };
}

// A part of what was read; nothing was, perhaps, and then the buffer has no memory.
static mr_bytes text_part(const struct form *f, size_t at, size_t size) {
    return size ? (mr_bytes){ f->text.data + at, size } : mr_str("");
}

mr_bytes form_name(const struct form *f, const struct form_field *x) {
    return text_part(f, x->name, x->name_size);
}

mr_bytes form_value(const struct form *f, const struct form_field *x) {
    return text_part(f, x->at, x->size);
}

const struct form_field *form_find(struct form *f, mr_bytes name) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct form_field *x = &f->fields[i];
        if (x->item || !bytes_equal(form_name(f, x), name))
            continue;
        x->used = true;
        return x->kind == FORM_OFF ? NULL : x;
    }
    return NULL;
}

const struct form_field *form_find_in(struct form *f, const struct form_field *object,
                                      const char *name) {
    struct form_field *end = f->fields + f->count;
    for (struct form_field *x = f->fields + (object - f->fields) + 1; x < end && x->item; x++) {
        if (!bytes_equal(form_name(f, x), mr_str(name)))
            continue;
        x->used = true;
        return x->kind == FORM_OFF ? NULL : x;
    }
    return NULL;
}

const struct form_field *form_next(struct form *f, const mr_bytes *name) {
    return form_after(f, NULL, name);
}

const struct form_field *form_after(struct form *f, const struct form_field *before,
                                    const mr_bytes *name) {
    for (uint32_t i = before ? (uint32_t)(before - f->fields) + 1 : 0; i < f->count; i++) {
        struct form_field *x = &f->fields[i];
        if (x->used || (name && (x->item || !bytes_equal(form_name(f, x), *name))))
            continue;
        x->used = true;
        return x;
    }
    return NULL;
}

// ---- Adding -------------------------------------------------------------------------------------

static int no_memory(void) {
    return error_set(MR_ENOMEM, "no memory for the parameters of the request");
}

// Starts a field; the text that is appended from now on is its value.
static int field_begin(struct form *f, enum form_kind kind, size_t name, size_t name_size) {
    if (f->count - f->inner == WEB_WORDS)
        return error_set(MR_EINVAL, "a request has at most %d parameters", WEB_WORDS);
    if (f->count == f->capacity) {
        uint32_t capacity = f->capacity ? 2 * f->capacity : 16;
        struct form_field *fields = mem_resize(f->fields, capacity * sizeof *fields);
        if (!fields)
            return no_memory();
        f->fields = fields;
        f->capacity = capacity;
    }
    f->fields[f->count++] = (struct form_field){
        .kind = kind, .name = name, .name_size = name_size, .at = f->text.size
    };
    return 0;
}

static int field_end(struct form *f, int err) {
    struct form_field *x = &f->fields[f->count - 1];
    x->size = f->text.size - x->at;
    return err == MR_ENOMEM ? no_memory() : err;
}

// Names are compared with those of the same object only. Their number has a bound, since each is
// compared with all before it.
static int refuse_twice(struct form *f, const struct form_field *x) {
    uint32_t *names = x->item ? &f->members : &f->names;
    if (++*names > WEB_NAMES)
        return error_set(MR_EINVAL, "an object has at most %d members", WEB_NAMES);
    for (const struct form_field *other = x; other > f->fields;) {
        other--;
        if (other->item == x->item && bytes_equal(form_name(f, other), form_name(f, x)))
            return error_set(MR_EINVAL, "'%.*s' is given twice",
                             (int)(x->name_size < 64 ? x->name_size : 64),
                             (const char *)form_name(f, x).data);
        if (x->item && !other->item)
            break;
    }
    return 0;
}

// ---- Queries ------------------------------------------------------------------------------------

static int hex(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

int form_unescape(struct buffer *out, mr_bytes bytes, bool plus_is_blank) {
    const char *p = bytes.data, *end = p + bytes.size;
    int err = buffer_reserve(out, bytes.size + 1);
    for (; err == 0 && p < end; p++) {
        int high = *p == '%' && end - p > 2 ? hex(p[1]) : -1, low = high >= 0 ? hex(p[2]) : -1;
        if (*p == '%' && low < 0)
            return error_set(MR_EINVAL, "a %% must be followed by two hexadecimal digits");
        out->data[out->size++] = *p == '%'                    ? (uint8_t)(high * 16 + low)
                                 : *p == '+' && plus_is_blank ? ' '
                                                              : (uint8_t)*p;
        p += *p == '%' ? 2 : 0;
    }
    return err;
}

static int read_pair(struct form *f, const char *from, const char *to) {
    const char *equals = memchr(from, '=', (size_t)(to - from));
    size_t name = f->text.size;
    mr_bytes before = { from, (size_t)((equals ? equals : to) - from) };
    mr_bytes behind = { equals ? equals + 1 : to, equals ? (size_t)(to - equals - 1) : 0 };
    int err = form_unescape(&f->text, before, true);
    if (err == 0)
        err = field_begin(f, FORM_TEXT, name, f->text.size - name);
    if (err < 0)
        return err == MR_ENOMEM ? no_memory() : err;
    err = field_end(f, form_unescape(&f->text, behind, true));
    return err < 0 ? err : refuse_twice(f, &f->fields[f->count - 1]);
}

int form_read_query(struct form *f, mr_bytes query) {
    const char *at = query.data, *end = at + query.size;
    int err = 0;
    while (err == 0 && at < end) {
        const char *to = memchr(at, '&', (size_t)(end - at));
        to = to ? to : end;
        if (to > at)
            err = read_pair(f, at, to);
        at = to + 1;
    }
    return err;
}

// ---- JSON ---------------------------------------------------------------------------------------
//
// The value of a member becomes a field, and so does each item of a list, and each member of an
// object in a list; but a list or an object that is the body of a job becomes the body. The value
// of a string is its text; of anything else it is the JSON as sent: a number that is parsed and
// printed again could differ.

static const char base64[] = "-base64";

static int refuse_base64(void) {
    return error_set(MR_EINVAL, "a member whose name ends in -base64, or is base64, must be a "
                                "string of base64");
}

// The depth of values that become fields.
static uint32_t field_depth(const struct form_json *j) {
    return j->is_item ? 3 : j->is_list ? 2 : 1;
}

// Members whose values may be any JSON.
static bool names_body(mr_bytes name) {
    return bytes_equal(name, mr_str("body")) || bytes_equal(name, mr_str("result")) ||
           bytes_equal(name, mr_str("state"));
}

static void end_name(struct form *f, struct form_json *j) {
    size_t size = f->text.size - j->name, behind = sizeof base64 - 1;
    const char *name = text_part(f, j->name, size).data;
    j->is_base64 = size > behind && memcmp(name + size - behind, base64, behind) == 0;
    j->name_size = size - (j->is_base64 ? behind : 0);
    j->is_body = names_body((mr_bytes){ name, j->name_size });
}

// A null is no body but the missing value of it, except of the member `body`, which is required.
static enum form_kind kind_of(const struct form *f, const struct form_json *j, char first) {
    bool is_plain = field_depth(j) == 2;
    mr_bytes name = text_part(f, j->name, j->name_size);
    bool is_missing = first == 'n' && !bytes_equal(name, mr_str("body"));
    return is_plain                       ? FORM_ITEM
           : j->is_body && !is_missing    ? FORM_TEXT
           : first == 't'                 ? FORM_FLAG
           : first == 'f' || first == 'n' ? FORM_OFF
           : first == '{' || first == '[' ? FORM_ITEM
                                          : FORM_TEXT;
}

// Begins a field at the current place: of the whole form, or of an object in a list.
static int json_field_begin(struct form *f, const struct form_json *j, enum form_kind kind) {
    bool is_inner = j->is_item || kind == FORM_OBJECT;
    if (is_inner && f->inner == WEB_INNER)
        return error_set(MR_ETOOBIG, "the objects of a list have at most %d members in all",
                         WEB_INNER);
    f->inner += is_inner;
    int err = field_begin(f, kind, j->name, j->name_size);
    if (err == 0)
        f->fields[f->count - 1].item = j->is_item ? f->items : 0;
    return err;
}

static int end_field(struct form *f, const struct form_json *j, int err) {
    err = field_end(f, err);
    return err < 0 || field_depth(j) == 2 ? err : refuse_twice(f, &f->fields[f->count - 1]);
}

// Ends a value that is not a string: its text is kept as sent.
static int add_raw(struct form *f, struct form_json *j, const char *text, size_t to) {
    if (j->is_base64)
        return refuse_base64();
    int err = json_field_begin(f, j, kind_of(f, j, text[j->from]));
    return err < 0 ? err : end_field(f, j, buffer_append(&f->text, text + j->from, to - j->from));
}

static size_t skip_blanks(const char *text, size_t at, size_t to) {
    while (at < to && strchr(" \t\r\n", text[at]))
        at++;
    return at;
}

// The string of an object {"base64": "…"}, without its quotes; data is NULL for any other value.
static mr_bytes wrapped(const char *text, size_t from, size_t to) {
    static const char name[] = "\"base64\"";
    size_t size = sizeof name - 1, at = text[from] == '{' ? skip_blanks(text, from + 1, to) : to;
    if (to - at < size + 3 || memcmp(text + at, name, size) != 0)
        return (mr_bytes){ 0 };
    at = skip_blanks(text, at + size, to);
    at = skip_blanks(text, at + 1, to); // behind the colon
    const char *first = text + at + 1, *end = text + to - 1;
    while (end > first && strchr(" \t\r\n", end[-1]))
        end--;
    bool is_string = at < to && text[at] == '"' && end > first && end[-1] == '"' &&
                     !memchr(first, '"', (size_t)(end - 1 - first));
    return is_string ? (mr_bytes){ first, (size_t)(end - 1 - first) } : (mr_bytes){ 0 };
}

// Ends an object {"base64": "…"}: its string is decoded in the next steps. JSON may escape the
// slashes of base64.
static int add_wrapped(struct form *f, struct form_json *j, mr_bytes string) {
    const char *p = string.data, *end = p + string.size;
    int err = json_field_begin(f, j, FORM_TEXT);
    while (err == 0 && p < end) {
        const char *to = memchr(p, '\\', (size_t)(end - p));
        to = to ? to : end;
        err = buffer_append(&f->text, p, (size_t)(to - p));
        if (to < end && (end - to < 2 || to[1] != '/'))
            return refuse_base64();
        p = to + (to < end);
    }
    j->decodes = true;
    j->read_so_far = 0;
    return err == MR_ENOMEM ? no_memory() : err;
}

static int refuse_empty(const struct form *f, const struct form_json *j) {
    return error_set(MR_EINVAL, "'%.*s' is an empty list",
                     (int)(j->name_size < 64 ? j->name_size : 64),
                     (const char *)text_part(f, j->name, j->name_size).data);
}

static int item_opens(struct form *f, struct form_json *j) {
    if (j->is_base64)
        return refuse_base64();
    int err = json_field_begin(f, j, FORM_OBJECT);
    if (err == 0)
        err = field_end(f, 0);
    j->list_name = j->name;
    j->list_name_size = j->name_size;
    j->is_item = true;
    f->items++;
    f->members = 0;
    return err;
}

static void item_closes(struct form_json *j) {
    j->is_item = j->is_base64 = j->is_body = false;
    j->name = j->list_name;
    j->name_size = j->list_name_size;
    j->from = j->read.from; // the list has an item
}

static int json_opens(struct form *f, struct form_json *j) {
    if (j->read.depth != 1 + field_depth(j))
        return 0;
    if (!j->is_list && !j->is_body && !json_read_in_object(&j->read)) {
        j->is_list = true;
        j->from = 0; // no item so far
        return 0;
    }
    j->from = j->read.from;
    bool is_item = j->is_list && !j->is_item && json_read_in_object(&j->read);
    return is_item ? item_opens(f, j) : 0;
}

static int json_closes(struct form *f, struct form_json *j, const char *text) {
    if (j->is_item && j->read.depth == 2) {
        item_closes(j);
        return 0;
    }
    if (j->is_list && j->read.depth == 1) {
        j->is_list = false;
        return j->from ? 0 : refuse_empty(f, j);
    }
    if (j->read.depth != field_depth(j))
        return 0;
    mr_bytes string = j->is_base64 ? (mr_bytes){ 0 } : wrapped(text, j->from, j->read.at);
    return string.data ? add_wrapped(f, j, string) : add_raw(f, j, text, j->read.at);
}

// Appends a part of a name, or of a string that becomes a field.
static int add_piece(struct form *f, struct form_json *j) {
    const struct json_read *r = &j->read;
    bool begins = !r->piece.size;
    int err = 0;
    if (r->depth != field_depth(j))
        return 0;
    if (begins && r->is_name)
        j->name = f->text.size;
    else if (begins)
        err = json_field_begin(f, j, kind_of(f, j, '"'));
    if (!r->is_name)
        j->from = r->from;
    if (err == 0 && buffer_append(&f->text, r->piece.data, r->piece.size) < 0)
        err = no_memory();
    return err;
}

static int string_ends(struct form *f, struct form_json *j) {
    if (j->read.depth != field_depth(j))
        return 0;
    if (j->is_base64 && field_depth(j) == 2)
        return refuse_base64();
    j->decodes = j->is_base64;
    j->read_so_far = 0;
    return j->decodes ? 0 : end_field(f, j, 0);
}

// Decodes base64 in place, four characters at a time.
static int decode_some(struct form *f, struct form_json *j, size_t *steps) {
    struct form_field *x = &f->fields[f->count - 1];
    size_t letters = f->text.size - x->at, left = letters - j->read_so_far, size = 0;
    size_t some = *steps < 4 ? 4 : *steps & ~(size_t)3;
    some = left <= *steps || left < some ? left : some;
    uint8_t *from = f->text.data + x->at + j->read_so_far;
    uint8_t *to = f->text.data + x->at + j->read_so_far / 4 * 3;
    bool last = some == left;
    if (!text_base64_read((mr_bytes){ from, some }, to, &size) || (!last && size != some / 4 * 3))
        return refuse_base64();
    *steps -= last && some < *steps ? some : *steps;
    j->read_so_far += some;
    if (!last)
        return 0;
    j->decodes = false;
    f->text.size = (size_t)(to - f->text.data) + size;
    return end_field(f, j, 0);
}

static int take_token(struct form *f, struct form_json *j, enum json_token token,
                      const char *text) {
    switch (token) {
    case JSON_MORE:
    case JSON_END:
        break;
    case JSON_OPEN:
        return json_opens(f, j);
    case JSON_CLOSE:
        return j->read.depth ? json_closes(f, j, text) : 0;
    case JSON_PIECE:
        return add_piece(f, j);
    case JSON_NAME:
        if (j->read.depth == field_depth(j))
            end_name(f, j);
        break;
    case JSON_STRING:
        return string_ends(f, j);
    case JSON_SCALAR:
        if (j->read.depth != field_depth(j))
            break;
        j->from = j->read.from;
        return add_raw(f, j, text, j->read.at);
    }
    return 0;
}

int form_read_json(struct form *f, struct form_json *j, mr_bytes text, size_t *steps) {
    enum json_token token = JSON_OPEN;
    int err = 0;
    while (err == 0 && *steps && token != JSON_END) {
        if (j->decodes) {
            err = decode_some(f, j, steps);
            continue;
        }
        err = json_read_next(&j->read, text, steps, &token);
        if (err == 0)
            err = take_token(f, j, token, text.data);
    }
    return err < 0 ? err : token == JSON_END;
}
