// See json.h.
#include "cli/json.h"

#include "cli/output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static struct doc *doc_of(struct json *j) {
    j->doc.out = &j->text;
    j->doc.spaced = true;
    return &j->doc;
}

static void json_print(struct json *j) {
    if (j->text.size)
        fwrite(j->text.data, 1, j->text.size, j->to ? j->to : stdout);
    buffer_clear(&j->text);
}

static void raw(struct json *j, const char *name, const char *text) {
    doc_raw(doc_of(j), name, text);
    json_print(j);
}

void json_open(struct json *j, const char *name, char bracket) {
    doc_open(doc_of(j), name, bracket);
    json_print(j);
}

void json_close(struct json *j, char bracket) {
    doc_close(doc_of(j), bracket);
    json_print(j);
}

void json_end(struct json *j) {
    fputc('\n', j->to ? j->to : stdout);
    if (j->doc.err)
        complain("no memory: the JSON above is not complete");
    buffer_finish(&j->text);
    j->doc = (struct doc){ 0 };
}

void json_number(struct json *j, const char *name, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    raw(j, name, text);
}

void json_id(struct json *j, const char *name, uint64_t id) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, id);
    json_text(j, name, text);
}

void json_flag(struct json *j, const char *name, bool value) {
    raw(j, name, value ? "true" : "false");
}

void json_text(struct json *j, const char *name, const char *text) {
    doc_text(doc_of(j), name, mr_str(text));
    json_print(j);
}

void json_time(struct json *j, const char *name, uint64_t ms) {
    char text[TIME_WORDS];
    json_text(j, name, time_words(text, ms, true));
}

void json_none(struct json *j, const char *name) {
    raw(j, name, "null");
}

void json_double(struct json *j, const char *name, double value) {
    char text[32];
    snprintf(text, sizeof text, "%.10g", value);
    raw(j, name, isfinite(value) ? text : "null");
}

void json_signed(struct json *j, const char *name, int64_t value) {
    doc_number(doc_of(j), name, value);
    json_print(j);
}

void json_bytes(struct json *j, const char *name, mr_bytes bytes) {
    doc_bytes(doc_of(j), name, bytes);
    json_print(j);
}
