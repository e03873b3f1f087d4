// See json.h.
#include "wire/json.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 64 };

void doc_plain(struct doc *d, const char *text, size_t size) {
    if (!d->err)
        d->err = buffer_append(d->out, text, size);
}

static void put(struct doc *d, const char *text) {
    doc_plain(d, text, strlen(text));
}

// Stretches that need no escape are written at once.
static void put_string(struct doc *d, mr_bytes text) {
    const uint8_t *p = text.data;
    char escape[8];
    size_t from = 0, i = 0;
    put(d, "\"");
    while (i < text.size) {
        size_t length = text_letter(p + i, text.size - i);
        bool plain = length && p[i] >= ' ' && p[i] != '"' && p[i] != '\\' && p[i] != 127;
        if (!plain) {
            doc_plain(d, (const char *)p + from, i - from);
            bool quoted = p[i] == '"' || p[i] == '\\';
            snprintf(escape, sizeof escape, quoted ? "\\%c" : "\\u%04x", length ? p[i] : 0xfffdu);
            put(d, escape);
        }
        i += length ? length : 1;
        from = plain ? from : i;
    }
    doc_plain(d, (const char *)p + from, text.size - from);
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

static void put_base64(struct doc *d, mr_bytes bytes) {
    size_t size = text_base64_size(bytes.size);
    put(d, "\"");
    if (!d->err && (d->err = buffer_reserve(d->out, size)) == 0) {
        text_base64(bytes, (char *)d->out->data + d->out->size);
        d->out->size += size;
    }
    put(d, "\"");
}

static void json_put_bytes(struct doc *d, mr_bytes name, mr_bytes bytes) {
    char longer[NAME];
    if (!name.data || text_is_utf8(bytes)) {
        begin(d, name);
        put_string(d, bytes);
        return;
    }
    snprintf(longer, sizeof longer, "%.*s-base64", (int)name.size, (const char *)name.data);
    begin(d, mr_str(longer));
    put_base64(d, bytes);
}

void doc_bytes(struct doc *d, const char *name, mr_bytes bytes) {
    json_put_bytes(d, named(name), bytes);
}

// ---- Values of the wire -------------------------------------------------------------------------

static uint32_t put_value(struct doc *d, mr_bytes name, const struct response_value *, uint32_t at);

static void put_double(struct doc *d, mr_bytes text) {
    const char *p = text.data;
    bool finite = text.size && (p[0] == '-' || (p[0] >= '0' && p[0] <= '9')) &&
                  !memchr(p, 'i', text.size) && !memchr(p, 'n', text.size);
    if (finite)
        doc_plain(d, p, text.size);
    else
        put(d, "null");
}

static uint32_t put_inside(struct doc *d, const struct response_value *v, uint32_t at) {
    const struct response_value *outer = &v[at++];
    bool map = outer->type == RESPONSE_MAP;
    put(d, map ? "{" : "[");
    d->behind = false;
    for (uint32_t i = 0; i < outer->count; i += map ? 2 : 1) {
        mr_bytes name = { 0 };
        if (map)
            name = v[at++].bytes;
        at = put_value(d, name, v, at);
    }
    put(d, map ? "}" : "]");
    d->behind = true;
    return at;
}

static uint32_t put_value(struct doc *d, mr_bytes name, const struct response_value *v,
                          uint32_t at) {
    char number[24];
    if (v[at].type == RESPONSE_BULK) {
        json_put_bytes(d, name, v[at].bytes);
        return at + 1;
    }
    begin(d, name);
    switch (v[at].type) {
    case RESPONSE_ARRAY:
    case RESPONSE_MAP:
    case RESPONSE_PUSH:
        return put_inside(d, v, at);
    case RESPONSE_SIMPLE:
    case RESPONSE_ERROR:
    case RESPONSE_BULK:
        put_string(d, v[at].bytes);
        break;
    case RESPONSE_DOUBLE:
        put_double(d, v[at].bytes);
        break;
    case RESPONSE_INTEGER:
        snprintf(number, sizeof number, "%" PRId64, v[at].integer);
        put(d, number);
        break;
    case RESPONSE_BOOLEAN:
        put(d, v[at].boolean ? "true" : "false");
        break;
    case RESPONSE_NULL:
        put(d, "null");
        break;
    }
    return at + 1;
}

uint32_t doc_value(struct doc *d, const char *name, const struct response_value *v, uint32_t at) {
    return put_value(d, named(name), v, at);
}
