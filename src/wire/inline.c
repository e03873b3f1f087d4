// See inline.h. A word never grows by losing its quotes, so it can be written where it is read.
#include "wire/inline.h"

#include "base/errors.h"

#include <stdbool.h>

struct inline_cursor {
    uint8_t *at, *end; // the input
    uint8_t *to;       // where the word is written; never beyond `at`
};

static bool inline_is_blank(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The byte that an escape after a backslash means.
static uint8_t inline_escaped(struct inline_cursor *c) {
    static const char names[] = "nrtba", meant[] = "\n\r\t\b\a";
    uint8_t name = *c->at++;
    if (name == 'x' && c->end - c->at >= 2) {
        int high = hex_digit(c->at[0]), low = hex_digit(c->at[1]);
        if (high >= 0 && low >= 0) {
            c->at += 2;
            return (uint8_t)(high << 4 | low);
        }
    }
    const char *known = memchr(names, name, sizeof names - 1);
    return known ? (uint8_t)meant[known - names] : name;
}

// Reads from an opening quote to after the closing one.
static int inline_quoted_read(struct inline_cursor *c) {
    uint8_t quote = *c->at++;
    while (c->at < c->end && *c->at != quote) {
        uint8_t byte = *c->at++;
        bool more = c->at < c->end;
        if (byte == '\\' && more && quote == '"')
            byte = inline_escaped(c);
        else if (byte == '\\' && more && *c->at == '\'')
            byte = *c->at++;
        *c->to++ = byte;
    }
    if (c->at == c->end)
        return error_set(MR_EINVAL, "Protocol error: a quote is not closed");
    c->at++;
    if (c->at < c->end && !inline_is_blank(*c->at))
        return error_set(MR_EINVAL, "Protocol error: a closing quote must end its word");
    return 0;
}

static int inline_word_read(struct inline_cursor *c, mr_bytes *out) {
    uint8_t *begin = c->to = c->at;
    while (c->at < c->end && !inline_is_blank(*c->at)) {
        if (*c->at != '"' && *c->at != '\'') {
            *c->to++ = *c->at++;
            continue;
        }
        int err = inline_quoted_read(c);
        if (err < 0)
            return err;
    }
    *out = (mr_bytes){ begin, (size_t)(c->to - begin) };
    return 0;
}

int inline_split(uint8_t *line, size_t size, uint32_t most, mr_bytes *out_words,
                 uint32_t *out_count) {
    struct inline_cursor c = { .at = line, .end = line + size };
    for (uint32_t count = 0;; count++) {
        while (c.at < c.end && inline_is_blank(*c.at))
            c.at++;
        if (c.at == c.end) {
            *out_count = count;
            return 0;
        }
        if (count == most)
            return error_set(MR_ETOOBIG, "Protocol error: more than %u words in a line",
                             (unsigned)most);
        int err = inline_word_read(&c, &out_words[count]);
        if (err < 0)
            return err;
    }
}
