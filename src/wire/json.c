// See json.h.
#include "wire/json.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME = 64,
    ESCAPED = 16,    // what an escaped character counts as, in bytes …
    EACH_VALUE = 32, // … and any value, in addition to its bytes
    BASE64_PIECE = 3 << 10,
};

void doc_plain(struct doc *d, const char *text, size_t size) {
    if (!d->err)
        d->err = buffer_append(d->out, text, size);
}

static void put(struct doc *d, const char *text) {
    doc_plain(d, text, strlen(text));
}

static void use_up(size_t *left, size_t used) {
    *left -= used < *left ? used : *left;
}

// The second byte of an escape of two bytes; 0: there is none for this byte.
static char escape_letter(uint8_t byte) {
    return byte == '"' || byte == '\\' ? (char)byte
           : byte == '\n'              ? 'n'
           : byte == '\r'              ? 'r'
           : byte == '\t'              ? 't'
                                       : 0;
}

static void put_escape(struct doc *d, uint8_t byte, bool valid) {
    static const char hex[] = "0123456789abcdef";
    char control[] = { '\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15] };
    char quoted[] = { '\\', escape_letter(byte) };
    if (!valid)
        put(d, "\\ufffd");
    else if (quoted[1])
        doc_plain(d, quoted, sizeof quoted);
    else
        doc_plain(d, control, sizeof control);
}

// Stretches that need no escape are written at once. Returns where it stopped: at the end, or when
// `*left` was used up.
static size_t put_text(struct doc *d, mr_bytes text, size_t i, size_t *left) {
    const uint8_t *p = text.size ? text.data : (const uint8_t *)"";
    size_t from = i;
    while (i < text.size && *left) {
        size_t length = text_letter(p + i, text.size - i);
        bool plain = length && p[i] >= ' ' && p[i] != '"' && p[i] != '\\' && p[i] != 127;
        if (!plain) {
            doc_plain(d, (const char *)p + from, i - from);
            put_escape(d, p[i], length > 0);
        }
        use_up(left, plain ? length : ESCAPED);
        i += length ? length : 1;
        from = plain ? from : i;
    }
    doc_plain(d, (const char *)p + from, i - from);
    return i;
}

static void put_string(struct doc *d, mr_bytes text) {
    size_t left = SIZE_MAX;
    put(d, "\"");
    put_text(d, text, 0, &left);
    put(d, "\"");
}

static void begin(struct doc *d, mr_bytes name) {
    if (d->behind)
        put(d, d->spaced ? ", " : ",");
    d->behind = true;
    if (!name.data)
        return;
    put_string(d, name);
    put(d, d->spaced ? ": " : ":");
}

static mr_bytes named(const char *name) {
    return name ? mr_str(name) : (mr_bytes){ 0 };
}

void doc_open(struct doc *d, const char *name, char bracket) {
    begin(d, named(name));
    doc_plain(d, &bracket, 1);
    d->behind = false;
}

void doc_close(struct doc *d, char bracket) {
    doc_plain(d, &bracket, 1);
    d->behind = true;
}

void doc_raw(struct doc *d, const char *name, const char *text) {
    begin(d, named(name));
    put(d, text);
}

void doc_number(struct doc *d, const char *name, int64_t number) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    doc_raw(d, name, text);
}

void doc_text(struct doc *d, const char *name, mr_bytes text) {
    begin(d, named(name));
    put_string(d, text);
}

// ---- Values of the wire -------------------------------------------------------------------------

// Whether its escape takes six bytes. A walk that wraps bytes writes text with such a byte as
// base64.
static bool is_long(uint8_t byte) {
    return (byte < ' ' || byte == 127) && !escape_letter(byte);
}

// Characters are checked before the first is written, because the name depends on all of them.
static void check_text(struct doc_walk *w, mr_bytes text, size_t *left) {
    const uint8_t *p = text.data;
    size_t length = 1;
    while (w->done < text.size && *left && length) {
        bool breaks = w->wraps && is_long(p[w->done]);
        length = breaks ? 0 : text_letter(p + w->done, text.size - w->done);
        use_up(left, length);
        w->done += length;
    }
    if (!length)
        w->string = WALK_BASE64;
    else if (w->done == text.size)
        w->string = WALK_TEXT;
}

static size_t put_base64(struct doc *d, mr_bytes bytes, size_t i, size_t *left) {
    while (i < bytes.size && *left) {
        size_t rest = bytes.size - i, some = rest < BASE64_PIECE ? rest : BASE64_PIECE;
        size_t size = text_base64_size(some);
        if (!d->err && (d->err = buffer_reserve(d->out, size)) == 0) {
            text_base64((mr_bytes){ (const char *)bytes.data + i, some },
                        (char *)d->out->data + d->out->size);
            d->out->size += size;
        }
        use_up(left, size);
        i += some;
    }
    return i;
}

static void doc_string_begin(struct doc *d, struct doc_walk *w) {
    char longer[NAME];
    w->done = 0;
    if (w->string == WALK_BASE64 && w->wraps) {
        begin(d, w->name);
        put(d, "{\"base64\":");
    } else if (w->string == WALK_BASE64) {
        snprintf(longer, sizeof longer, "%.*s-base64", (int)w->name.size,
                 (const char *)w->name.data);
        begin(d, mr_str(longer));
    } else {
        begin(d, w->name);
    }
    put(d, "\"");
}

// False: it continues when there is more left.
static bool walk_string(struct doc *d, struct doc_walk *w, mr_bytes bytes, size_t *left) {
    bool was_checked = w->string > WALK_CHECK;
    if (w->string == WALK_NONE) {
        w->string = w->name.data ? WALK_CHECK : WALK_TEXT;
        w->done = 0;
    }
    if (w->string == WALK_CHECK)
        check_text(w, bytes, left);
    if (w->string == WALK_CHECK)
        return false;
    if (!was_checked)
        doc_string_begin(d, w);
    w->done = w->string == WALK_TEXT ? put_text(d, bytes, w->done, left)
                                     : put_base64(d, bytes, w->done, left);
    if (w->done < bytes.size)
        return false;
    put(d, w->string == WALK_BASE64 && w->wraps ? "\"}" : "\"");
    w->string = WALK_NONE;
    return true;
}

static void put_double(struct doc *d, mr_bytes text) {
    const char *p = text.data;
    bool finite = text.size && (p[0] == '-' || (p[0] >= '0' && p[0] <= '9')) &&
                  !memchr(p, 'i', text.size) && !memchr(p, 'n', text.size);
    if (finite)
        doc_plain(d, p, text.size);
    else
        put(d, "null");
}

static bool is_row(const struct doc_walk *w, uint32_t depth) {
    return w->row_names && depth == 1;
}

static void put_bracket(struct doc *d, struct doc_walk *w, const struct response_value *v) {
    bool map = v->type == RESPONSE_MAP || is_row(w, w->depth);
    w->row_at = 0;
    put(d, map ? "{" : "[");
    d->behind = false;
    w->is_map[w->depth] = map;
    w->left[w->depth++] = v->count;
}

static void put_value(struct doc *d, struct doc_walk *w, const struct response_value *v) {
    char number[24];
    begin(d, w->name);
    switch (v->type) {
    case RESPONSE_ARRAY:
    case RESPONSE_MAP:
    case RESPONSE_PUSH:
        put_bracket(d, w, v);
        break;
    case RESPONSE_SIMPLE:
    case RESPONSE_ERROR:
    case RESPONSE_BULK:
        put_string(d, v->bytes);
        break;
    case RESPONSE_DOUBLE:
        put_double(d, v->bytes);
        break;
    case RESPONSE_INTEGER:
        snprintf(number, sizeof number, "%" PRId64, v->integer);
        put(d, number);
        break;
    case RESPONSE_BOOLEAN:
        put(d, v->boolean ? "true" : "false");
        break;
    case RESPONSE_NULL:
        put(d, "null");
        break;
    }
}

static void close_brackets(struct doc *d, struct doc_walk *w) {
    while (w->depth && !w->left[w->depth - 1])
        doc_close(d, w->is_map[--w->depth] ? '}' : ']');
}

static void walk_name(struct doc_walk *w, const struct response_value *v) {
    uint32_t level = w->depth - 1;
    w->name = (mr_bytes){ 0 };
    w->left[level]--;
    if (is_row(w, level)) {
        const char *name = w->row_names[w->row_at++];
        const char *blank = memchr(name, ' ', strlen(name));
        w->name = (mr_bytes){ name, blank ? (size_t)(blank - name) : strlen(name) };
    }
    if (!w->is_map[level] || is_row(w, level))
        return;
    w->name = v[w->at++].bytes;
    w->left[level]--;
}

// Leaves out the values of a row that have no names.
static void skip_unnamed(struct doc_walk *w, const struct response_value *v) {
    while (is_row(w, w->depth - 1) && !w->row_names[w->row_at] && w->left[w->depth - 1]) {
        w->at = response_skip(v, w->at);
        w->left[w->depth - 1]--;
    }
}

bool doc_walk(struct doc *d, struct doc_walk *w, const struct response_value *v, size_t *left) {
    while (*left) {
        if (w->depth && w->string == WALK_NONE)
            walk_name(w, v);
        if (v[w->at].type != RESPONSE_BULK)
            put_value(d, w, &v[w->at]);
        else if (!walk_string(d, w, v[w->at].bytes, left))
            return false;
        use_up(left, EACH_VALUE);
        w->at++;
        skip_unnamed(w, v);
        close_brackets(d, w);
        if (!w->depth)
            return true;
    }
    return false;
}

void doc_walk_begin(struct doc_walk *w, const char *name, uint32_t at) {
    *w = (struct doc_walk){ .at = at, .name = named(name) };
}

uint32_t doc_value(struct doc *d, const char *name, const struct response_value *v, uint32_t at) {
    struct doc_walk w;
    size_t left = SIZE_MAX;
    doc_walk_begin(&w, name, at);
    (void)doc_walk(d, &w, v, &left); // it has all that it needs
    return w.at;
}

void doc_bytes(struct doc *d, const char *name, mr_bytes bytes) {
    struct response_value value = { .type = RESPONSE_BULK, .bytes = bytes };
    (void)doc_value(d, name, &value, 0);
}
