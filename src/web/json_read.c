// See json_read.h. `expected` is the state; the kinds of open brackets are bits.
#include "web/json_read.h"

#include "base/errors.h"
#include "base/text.h"

#include <string.h>

enum { PIECE = 64 << 10 };

// Names the position `at` in the text.
static int refuse_json(const struct json_read *j, const char *why) {
    return error_set(MR_EINVAL, "the body is not JSON: %s (at byte %zu)", why, j->at);
}

static int refuse_bound(const char *what, int most) {
    return error_set(MR_ETOOBIG, "the body has %s than %d; send it as a string instead", what,
                     most);
}

static uint8_t bit_of(uint32_t depth) {
    return (uint8_t)(1u << (depth - 1) % 8);
}

bool json_read_in_object(const struct json_read *j) {
    return j->depth && j->objects[(j->depth - 1) / 8] & bit_of(j->depth);
}

// ---- Strings ------------------------------------------------------------------------------------

static int hex4(const uint8_t *p) {
    int code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
                    : p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
                    : p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

// Writes a code point as UTF-8 and returns its size.
static size_t write_letter(uint32_t code, uint8_t *to) {
    static const uint8_t first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size; i-- > 1; code >>= 6)
        to[i] = (uint8_t)(0x80 | (code & 0x3f));
    to[0] = (uint8_t)(first[size] | code);
    return size;
}

// \u and four digits, or two of these for a code point above U+FFFF. Returns the bytes used; 0:
// invalid.
static size_t read_code(const uint8_t *p, size_t size, uint32_t *out) {
    int high = size >= 6 ? hex4(p + 2) : -1;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return 0;
    *out = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000)
        return 6;
    int low = size >= 12 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8) : -1;
    if (low < 0xdc00 || low >= 0xe000)
        return 0;
    *out = 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
    return 12;
}

static int read_escape(struct json_read *j, const uint8_t *p, size_t size, size_t *out_used) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = size > 1 && p[1] ? strchr(from, p[1]) : NULL;
    uint32_t code;
    *out_used = found ? 2 : size > 1 && p[1] == 'u' ? read_code(p, size, &code) : 0;
    if (!*out_used)
        return refuse_json(
            j, "a backslash must be followed by one of \"\\/bfnrt, or u and four digits");
    if (found)
        code = (uint8_t)to[found - from];
    j->piece = (mr_bytes){ j->letter, write_letter(code, j->letter) };
    return 0;
}

// The number of bytes up to the next quote, backslash or error; at most `most`, and the rest of one
// character.
static size_t plain_size(const uint8_t *p, size_t size, size_t most) {
    size_t at = 0, letter = 1;
    while (letter && at < size && at < most) {
        bool plain = p[at] >= ' ' && p[at] < 0x80 && p[at] != '"' && p[at] != '\\';
        letter = plain ? 1 : p[at] < 0x80 ? 0 : text_letter(p + at, size - at);
        at += letter;
    }
    return at;
}

static int read_string(struct json_read *j, const uint8_t *p, size_t size, size_t steps,
                       size_t *out_used, enum json_token *out) {
    size_t plain = plain_size(p, size, steps < PIECE ? steps : PIECE);
    int err = 0;
    *out = JSON_PIECE;
    if (plain) {
        j->piece = (mr_bytes){ p, plain };
        *out_used = plain;
    } else if (size && *p == '"') {
        j->in_string = false;
        j->expected = j->is_name ? JSON_COLON : JSON_COMMA_OR_CLOSE;
        *out = j->is_name ? JSON_NAME : JSON_STRING;
        *out_used = 1;
    } else if (size && *p == '\\') {
        err = read_escape(j, p, size, out_used);
    } else {
        err = refuse_json(j, size ? "a string must be UTF-8 without control characters"
                                  : "a string does not end");
    }
    return err;
}

static enum json_token begin_string(struct json_read *j, bool is_name, size_t *out_used) {
    j->from = j->at;
    j->in_string = true;
    j->is_name = is_name;
    *out_used = 1;
    j->piece = (mr_bytes){ "", 0 };
    return JSON_PIECE; // an empty one
}

// ---- Numbers and words --------------------------------------------------------------------------

static size_t digits(const uint8_t *p, size_t size) {
    size_t count = 0;
    while (count < size && p[count] >= '0' && p[count] <= '9')
        count++;
    return count;
}

// The size of the number at `p`; 0: it is not a number.
static size_t json_number_size(const uint8_t *p, size_t size) {
    size_t at = size && *p == '-', whole = digits(p + at, size - at);
    if (!whole || (whole > 1 && p[at] == '0'))
        return 0;
    at += whole;
    if (at < size && p[at] == '.') {
        size_t part = digits(p + at + 1, size - at - 1);
        at = part ? at + 1 + part : 0;
    }
    if (at && at < size && (p[at] | 32) == 'e') {
        size_t sign = at + 1 < size && (p[at + 1] == '-' || p[at + 1] == '+');
        size_t power = digits(p + at + 1 + sign, size - at - 1 - sign);
        at = power ? at + 1 + sign + power : 0;
    }
    return at;
}

static size_t word_size(const uint8_t *p, size_t size) {
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t length = strlen(words[i]);
        if (size >= length && memcmp(p, words[i], length) == 0)
            return length;
    }
    return 0;
}

static int read_scalar(struct json_read *j, const uint8_t *p, size_t size, size_t *out_used) {
    bool word = *p >= 'a' && *p <= 'z';
    size_t seen = size <= WEB_NUMBER ? size : WEB_NUMBER + 1;
    size_t used = word ? word_size(p, size) : json_number_size(p, seen);
    if (used > WEB_NUMBER)
        return refuse_bound("a number with more digits", WEB_NUMBER);
    if (!used)
        return refuse_json(j, "this is not a value");
    j->expected = JSON_COMMA_OR_CLOSE;
    *out_used = used;
    return 0;
}

// ---- Brackets -----------------------------------------------------------------------------------

static int open_bracket(struct json_read *j, bool object) {
    if (j->depth == WEB_DEPTH)
        return refuse_bound("a deeper nesting", WEB_DEPTH);
    j->depth++;
    uint8_t *bits = &j->objects[(j->depth - 1) / 8];
    *bits = (uint8_t)(object ? *bits | bit_of(j->depth) : *bits & ~bit_of(j->depth));
    j->expected = object ? JSON_NAME_OR_CLOSE : JSON_VALUE_OR_CLOSE;
    return 0;
}

static int close_bracket(struct json_read *j, bool object) {
    if (object != json_read_in_object(j))
        return refuse_json(j, object ? "a list must end with ]" : "an object must end with }");
    j->depth--;
    j->expected = j->depth ? JSON_COMMA_OR_CLOSE : JSON_NOTHING;
    return 0;
}

static int json_read_value(struct json_read *j, const uint8_t *p, size_t size, size_t *out_used,
                           enum json_token *out) {
    if (++j->values > WEB_JSON_VALUES)
        return refuse_bound("more values", WEB_JSON_VALUES);
    j->from = j->at;
    *out_used = 1;
    if (*p == '{' || *p == '[') {
        *out = JSON_OPEN;
        return open_bracket(j, *p == '{');
    }
    if (*p == '"') {
        *out = begin_string(j, false, out_used);
        return 0;
    }
    *out = JSON_SCALAR;
    return read_scalar(j, p, size, out_used);
}

// ---- Tokens -------------------------------------------------------------------------------------

// Reads a bracket, colon or comma between values. Sets JSON_MORE if it is not a token.
static int read_sign(struct json_read *j, uint8_t sign, size_t *out_used, enum json_token *out) {
    bool may_close = j->expected == JSON_COMMA_OR_CLOSE || j->expected == JSON_VALUE_OR_CLOSE ||
                     j->expected == JSON_NAME_OR_CLOSE;
    bool may_name = j->expected == JSON_NAME_NEXT || j->expected == JSON_NAME_OR_CLOSE;
    *out_used = 1;
    *out = JSON_MORE;
    if (may_close && (sign == '}' || sign == ']')) {
        *out = JSON_CLOSE;
        return close_bracket(j, sign == '}');
    }
    if (may_name && sign == '"') {
        *out = begin_string(j, true, out_used);
        return 0;
    }
    if (j->expected == JSON_COLON && sign == ':') {
        j->expected = JSON_VALUE;
        return 0;
    }
    if (j->expected == JSON_COMMA_OR_CLOSE && sign == ',') {
        j->expected = json_read_in_object(j) ? JSON_NAME_NEXT : JSON_VALUE;
        return 0;
    }
    return refuse_json(j, may_name                    ? "a name in quotes is missing"
                          : j->expected == JSON_COLON ? "a colon is missing"
                          : j->expected == JSON_NOTHING
                              ? "there is text after the end of the object"
                              : "a comma or a bracket is missing");
}

static int read_token(struct json_read *j, const uint8_t *p, size_t size, size_t steps,
                      size_t *out_used, enum json_token *out) {
    if (j->in_string)
        return read_string(j, p, size, steps, out_used, out);
    bool closes = size && (*p == ']' || *p == '}');
    bool value = j->expected == JSON_VALUE || (j->expected == JSON_VALUE_OR_CLOSE && !closes);
    if (j->expected == JSON_FIRST && (!size || *p != '{'))
        return error_set(MR_EINVAL, "the body must be a JSON object, such as {}");
    if (!size)
        return refuse_json(j, "the end is missing");
    if (value || j->expected == JSON_FIRST)
        return json_read_value(j, p, size, out_used, out);
    return read_sign(j, *p, out_used, out);
}

static bool json_is_blank(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int json_read_next(struct json_read *j, mr_bytes text, size_t *steps, enum json_token *out) {
    const uint8_t *p = text.data;
    enum json_token token = JSON_MORE;
    while (token == JSON_MORE) {
        if (!*steps)
            break;
        if (!j->in_string && j->at < text.size && json_is_blank(p[j->at])) {
            j->at++;
            --*steps;
            continue;
        }
        if (j->expected == JSON_NOTHING && j->at == text.size) {
            token = JSON_END;
            break;
        }
        size_t used = 0;
        int err = read_token(j, p + j->at, text.size - j->at, *steps, &used, &token);
        if (err < 0)
            return err;
        j->at += used;
        *steps -= used < *steps ? used : *steps;
    }
    *out = token;
    return 0;
}
