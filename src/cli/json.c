// See json.h.
#include "cli/json.h"

#include "base/text.h"
#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// What is not UTF-8 is shown as U+FFFD; only texts of people come here with such.
static void write_string(FILE *to, mr_bytes b) {
    const uint8_t *p = b.data;
    fputc('"', to);
    for (size_t i = 0, length; i < b.size; i += length ? length : 1) {
        length = text_letter(p + i, b.size - i);
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
    char letters[64];
    const size_t most = sizeof letters / 4 * 3;
    fputc('"', to);
    for (size_t i = 0; i < b.size; i += most) {
        mr_bytes some = { (const uint8_t *)b.data + i, b.size - i < most ? b.size - i : most };
        text_base64(some, letters);
        fwrite(letters, 1, text_base64_size(some.size), to);
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
    bool text = !name || text_is_utf8(bytes);
    if (name)
        snprintf(encoded, sizeof encoded, "%s%s", name, text ? "" : "-base64");
    begin(j, name ? encoded : NULL);
    if (text)
        write_string(to_of(j), bytes);
    else
        write_base64(to_of(j), bytes);
}
