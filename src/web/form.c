// See form.h. Names and values are copied into one buffer; fields say where.
#include "web/form.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/text.h"
#include "web/limits.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

void form_finish(struct form *f) {
    mem_free(f->fields);
    buffer_finish(&f->text);
    *f = (struct form){ 0 };
}

mr_bytes form_name(const struct form *f, const struct form_field *x) {
    return (mr_bytes){ f->text.data + x->name, x->name_size };
}

mr_bytes form_value(const struct form *f, const struct form_field *x) {
    return (mr_bytes){ f->text.data + x->at, x->size };
}

const struct form_field *form_find(struct form *f, mr_bytes name) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct form_field *x = &f->fields[i];
        if (!bytes_equal(form_name(f, x), name))
            continue;
        x->used = true;
        return x->kind == FORM_OFF ? NULL : x;
    }
    return NULL;
}

const struct form_field *form_next(struct form *f, const mr_bytes *name) {
    for (uint32_t i = 0; i < f->count; i++) {
        struct form_field *x = &f->fields[i];
        if (x->used || (name && !bytes_equal(form_name(f, x), *name)))
            continue;
        x->used = true;
        return x;
    }
    return NULL;
}

// ---- Adding -------------------------------------------------------------------------------------

static int no_memory(void) {
    return error_set(MR_ENOMEM, "no memory for what the request says");
}

// A field whose value is what is appended from now on.
static int field_begin(struct form *f, enum form_kind kind, size_t name, size_t name_size) {
    if (f->count == WEB_WORDS)
        return error_set(MR_EINVAL, "a request says at most %d things", WEB_WORDS);
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

static int refuse_twice(const struct form *f, const struct form_field *x) {
    for (const struct form_field *other = f->fields; other < x; other++)
        if (bytes_equal(form_name(f, other), form_name(f, x)))
            return error_set(MR_EINVAL, "'%.*s' stands twice",
                             (int)(x->name_size < 64 ? x->name_size : 64),
                             (const char *)form_name(f, x).data);
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
            return error_set(MR_EINVAL, "behind a %% stand two hexadecimal digits");
        out->data[out->size++] = *p == '%'                    ? (uint8_t)(high << 4 | low)
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

// The text of the name or value that comes next inside brackets, of JSON that was found to be
// right;
// `*at` moves behind it.
static mr_bytes json_next(const char **at) {
    const char *from = *at + strspn(*at, " \t\r\n,:"), *p = from;
    int depth = 0;
    do {
        bool opens = *p == '{' || *p == '[', closes = *p == '}' || *p == ']';
        depth += opens - closes;
        if (*p == '"')
            for (p++; *p != '"'; p++)
                p += *p == '\\';
        p += opens || closes || *p == '"' ? 1 : strcspn(p, ",:{}[]\" \t\r\n");
        p += depth ? strspn(p, " \t\r\n,:") : 0;
    } while (depth);
    *at = p;
    return (mr_bytes){ from, (size_t)(p - from) };
}

static const char base64[] = "-base64";

static bool is_base64(const char *name, size_t size) {
    size_t behind = sizeof base64 - 1;
    return size > behind && memcmp(name + size - behind, base64, behind) == 0;
}

static int add_base64(struct form *f, const json_t *value) {
    mr_bytes letters = { json_string_value(value), json_string_length(value) };
    size_t size;
    int err = buffer_reserve(&f->text, letters.size);
    if (err < 0)
        return err;
    if (!json_is_string(value) || !text_base64_read(letters, f->text.data + f->text.size, &size))
        return error_set(MR_EINVAL, "what ends in -base64 is a string of base64");
    f->text.size += size;
    return 0;
}

// A string is its letters; anything else the JSON that it is, as it was sent: a number that was
// read and written again might be another.
static int add_value(struct form *f, const json_t *value, mr_bytes text) {
    if (json_is_string(value))
        return buffer_append(&f->text, json_string_value(value), json_string_length(value));
    return buffer_append(&f->text, text.data, text.size);
}

static enum form_kind kind_of(const json_t *value) {
    return json_is_true(value)                           ? FORM_FLAG
           : json_is_false(value) || json_is_null(value) ? FORM_OFF
           : json_is_object(value)                       ? FORM_ITEM
                                                         : FORM_TEXT;
}

static int add_items(struct form *f, size_t name, size_t name_size, const json_t *list,
                     mr_bytes text) {
    const char *at = (const char *)text.data + 1;
    int err = 0;
    if (!json_array_size(list))
        return error_set(MR_EINVAL, "'%.*s' is an empty list",
                         (int)(name_size < 64 ? name_size : 64), (const char *)f->text.data + name);
    for (size_t i = 0; err == 0 && i < json_array_size(list); i++) {
        err = field_begin(f, FORM_ITEM, name, name_size);
        if (err == 0)
            err = field_end(f, add_value(f, json_array_get(list, i), json_next(&at)));
    }
    return err;
}

// A body may be anything; elsewhere a list is one of texts, and an object is nothing.
static int add_member(struct form *f, const char *name, size_t size, const json_t *value,
                      mr_bytes text) {
    size_t at = f->text.size;
    bool packed = is_base64(name, size);
    int err = buffer_append(&f->text, name, size);
    size -= packed ? sizeof base64 - 1 : 0;
    if (err < 0)
        return no_memory();
    bool body = size == 4 && memcmp(name, "body", 4) == 0;
    if (json_is_array(value) && !body)
        return add_items(f, at, size, value, text);
    err = field_begin(f, body ? FORM_TEXT : kind_of(value), at, size);
    if (err < 0)
        return err;
    err = field_end(f, packed ? add_base64(f, value) : add_value(f, value, text));
    return err < 0 ? err : refuse_twice(f, &f->fields[f->count - 1]);
}

// Members are walked in the order in which they stand in the text.
static int add_members(struct form *f, json_t *root, const char *text) {
    const char *name, *at = text + strspn(text, " \t\r\n") + 1;
    size_t size;
    json_t *value;
    int err = 0;
    if (!json_is_object(root))
        return error_set(MR_EINVAL, "a body is a JSON object, such as {}");
    json_object_keylen_foreach(root, name, size, value) {
        (void)json_next(&at); // its name
        mr_bytes said = json_next(&at);
        if (err == 0)
            err = add_member(f, name, size, value, said);
    }
    return err;
}

int form_read_json(struct form *f, mr_bytes text) {
    json_error_t why;
    if (!text.size)
        return error_set(MR_EINVAL, "a body is a JSON object, such as {}");
    // Numbers are only looked at: as doubles none is too long.
    json_t *root =
        json_loadb(text.data, text.size,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!root)
        return error_set(MR_EINVAL, "the body is no JSON: %s (line %d, column %d)", why.text,
                         why.line, why.column);
    int err = add_members(f, root, text.data);
    json_decref(root);
    return err;
}
