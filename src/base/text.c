// See text.h.
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

size_t text_letter(const uint8_t *p, size_t size) {
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || length > size)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    bool surrogate = p[0] == 0xed && p[1] >= 0xa0;
    bool beyond = p[0] == 0xf4 && p[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : length;
}

// U+061C, U+200E and U+200F, U+202A to U+202E, U+2066 to U+2069.
uint32_t text_direction(const uint8_t *p, size_t size) {
    if (size == 2)
        return p[0] == 0xd8 && p[1] == 0x9c ? 0x061c : 0;
    if (size != 3 || p[0] != 0xe2)
        return 0;
    uint32_t code = 0x2000u | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    bool turns = code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                 (code >= 0x2066 && code <= 0x2069);
    return turns ? code : 0;
}

bool text_is_utf8(mr_bytes b) {
    size_t length;
    for (size_t i = 0; i < b.size; i += length)
        if (!(length = text_letter((const uint8_t *)b.data + i, b.size - i)))
            return false;
    return true;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void text_base64(mr_bytes b, char *to) {
    const uint8_t *p = b.data;
    for (size_t i = 0; i < b.size; i += 3) {
        size_t left = b.size - i;
        uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);
        *to++ = digits[bits >> 18];
        *to++ = digits[bits >> 12 & 63];
        *to++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[bits & 63] : '=';
    }
}

static uint32_t digit_value(char c) {
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (uint32_t)(at - digits) : 64;
}

bool text_base64_read(mr_bytes letters, uint8_t *to, size_t *out_size) {
    const char *p = letters.data;
    size_t size = 0;
    if (letters.size % 4)
        return false;
    for (size_t i = 0; i < letters.size; i += 4) {
        bool last = i + 4 == letters.size;
        uint32_t padding = last && p[i + 3] == '=' ? p[i + 2] == '=' ? 2 : 1 : 0, bits = 0;
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t value = k >= 4 - padding ? 0 : digit_value(p[i + k]);
            if (value > 63)
                return false;
            bits = bits << 6 | value;
        }
        if (bits & ((1u << 8 * padding) - 1))
            return false;
        to[size++] = (uint8_t)(bits >> 16);
        if (padding < 2)
            to[size++] = (uint8_t)(bits >> 8);
        if (padding < 1)
            to[size++] = (uint8_t)bits;
    }
    *out_size = size;
    return true;
}

const char *age_words(char *out, uint64_t ms) {
    uint64_t s = ms / 1000;
    if (ms < 1000)
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 "ms", ms);
    else if (s < 10)
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 ".%" PRIu64 "s", s, ms / 100 % 10);
    else if (s < 60)
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 "s", s);
    else if (s < 3600)
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 48 * 3600)
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        (void)snprintf(out, AGE_WORDS, "%" PRIu64 "d", s / (24 * 3600));
    return out;
}
