// See json.h.
#include "cli/json.h"

#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

size_t utf8_size(const uint8_t *p, size_t size) {
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

static bool is_text(mr_bytes b) {
    size_t length;
    for (size_t i = 0; i < b.size; i += length)
        if (!(length = utf8_size((const uint8_t *)b.data + i, b.size - i)))
            return false;
    return true;
}

// What is not UTF-8 is shown as U+FFFD; only texts of people come here with such.
static void write_string(FILE *to, mr_bytes b) {
    const uint8_t *p = b.data;
    fputc('"', to);
    for (size_t i = 0, length; i < b.size; i += length ? length : 1) {
        length = utf8_size(p + i, b.size - i);
        if (!length)
            fprintf(to, "\\ufffd");
        else if (p[i] == '"' || p[i] == '\\')
            fprintf(to, "\\%c", p[i]);
        else if (p[i] < ' ' || p[i] == 127)
            fprintf(to, "\\u%04x", p[i]);
        else
            fwrite(p + i, 1, length, to);
    }
    fputc('"', to);
}

static void write_base64(FILE *to, mr_bytes b) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = b.data;
    fputc('"', to);
    for (size_t i = 0; i < b.size; i += 3) {
        size_t left = b.size - i;
        uint32_t bits = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                        (left > 2 ? p[i + 2] : 0);
        fputc(digits[bits >> 18], to);
        fputc(digits[bits >> 12 & 63], to);
        fputc(left > 1 ? digits[bits >> 6 & 63] : '=', to);
        fputc(left > 2 ? digits[bits & 63] : '=', to);
    }
    fputc('"', to);
}

static FILE *to_of(const struct json *j) {
    return j->to ? j->to : stdout;
}

static void begin(struct json *j, const char *name) {
    if (j->behind)
        fprintf(to_of(j), ", ");
    if (name)
        fprintf(to_of(j), "\"%s\": ", name);
    j->behind = true;
}

void json_open(struct json *j, const char *name, char bracket) {
    begin(j, name);
    fputc(bracket, to_of(j));
    j->behind = false;
}

void json_close(struct json *j, char bracket) {
    fputc(bracket, to_of(j));
    j->behind = true;
}

void json_end(struct json *j) {
    fputc('\n', to_of(j));
    j->behind = false;
}

void json_number(struct json *j, const char *name, uint64_t value) {
    begin(j, name);
    fprintf(to_of(j), "%" PRIu64, value);
}

void json_id(struct json *j, const char *name, uint64_t id) {
    begin(j, name);
    fprintf(to_of(j), "\"%" PRIu64 "\"", id);
}

void json_flag(struct json *j, const char *name, bool value) {
    begin(j, name);
    fprintf(to_of(j), "%s", value ? "true" : "false");
}

void json_text(struct json *j, const char *name, const char *text) {
    begin(j, name);
    write_string(to_of(j), (mr_bytes){ text, strlen(text) });
}

void json_time(struct json *j, const char *name, uint64_t ms) {
    char text[TIME_WORDS];
    json_text(j, name, time_words(text, ms, true));
}

void json_null(struct json *j, const char *name) {
    begin(j, name);
    fprintf(to_of(j), "null");
}

void json_real(struct json *j, const char *name, double value) {
    begin(j, name);
    if (isfinite(value))
        fprintf(to_of(j), "%.10g", value);
    else
        fprintf(to_of(j), "null");
}

void json_signed(struct json *j, const char *name, int64_t value) {
    begin(j, name);
    fprintf(to_of(j), "%" PRId64, value);
}

void json_bytes(struct json *j, const char *name, mr_bytes bytes) {
    char encoded[64];
    bool text = !name || is_text(bytes);
    if (name)
        snprintf(encoded, sizeof encoded, "%s%s", name, text ? "" : "-base64");
    begin(j, name ? encoded : NULL);
    if (text)
        write_string(to_of(j), bytes);
    else
        write_base64(to_of(j), bytes);
}
