// See keys.h.
#include "cli/keys.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

// ---- Opening ----------------------------------------------------------------------------------

static int open_field(const char *option, const char *text, struct keys *out) {
    char *end;
    errno = 0;
    unsigned long field = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || field == 0 || errno)
        return error_set(MR_EINVAL, "%s '%.50s': fields are numbered 1, 2, 3 …", option, text);
    *out = (struct keys){ .from = KEY_FIELD, .option = option, .field = field };
    return 0;
}

static int open_regex(const char *option, const char *text, struct keys *out) {
    struct keys k = { .from = KEY_REGEX, .option = option };
    char why[128];
    int failed = regcomp(&k.regex, text, REG_EXTENDED);
    if (failed) {
        regerror(failed, &k.regex, why, sizeof why);
        return error_set(MR_EINVAL, "%s '%.200s': %s", option, text, why);
    }
    *out = k;
    return 0;
}

int keys_open(const char *field, const char *regex, const char *member, struct keys *out) {
    if (!!field + !!regex + !!member > 1)
        return error_set(MR_EINVAL, "a line has one key: give one of --key-field, --key-regex and "
                                    "--key-json");
    if (field)
        return open_field("--key-field", field, out);
    if (regex)
        return open_regex("--key-regex", regex, out);
    *out = (struct keys){ .from = member ? KEY_JSON : KEY_NONE,
                          .option = "--key-json",
                          .member = member };
    return 0;
}

int keys_read(const char *text, struct keys *out) {
    const char *rest = strchr(text, ' ');
    size_t size = rest ? (size_t)(rest - text) : 0;
    while (rest && *rest == ' ')
        rest++;
    if (size == 5 && memcmp(text, "field", size) == 0)
        return open_field("field", rest, out);
    if (size == 5 && memcmp(text, "regex", size) == 0)
        return open_regex("regex", rest, out);
    if (size != 4 || memcmp(text, "json", size) != 0 || !*rest)
        return error_set(MR_EINVAL, "'%.50s' is none of: field N, regex RE, json NAME", text);
    *out = (struct keys){ .from = KEY_JSON, .option = "json", .member = rest };
    return 0;
}

void keys_close(struct keys *k) {
    if (k->from == KEY_REGEX)
        regfree(&k->regex);
    *k = (struct keys){ 0 };
}

// ---- Finding ----------------------------------------------------------------------------------

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

mr_bytes field_find(unsigned long field, mr_bytes line) {
    const char *p = line.size ? line.data : "", *end = p + line.size;
    while (p < end) {
        while (p < end && is_blank(*p))
            p++;
        const char *begin = p;
        while (p < end && !is_blank(*p))
            p++;
        if (--field == 0)
            return (mr_bytes){ begin, (size_t)(p - begin) };
    }
    return (mr_bytes){ 0 };
}

// Sanitizers require a 0 behind the text in spite of REG_STARTEND, so it is copied, which costs
// little beside regexec.
bool regex_find(const regex_t *regex, mr_bytes line, regmatch_t match[2]) {
    char room[512], *text = line.size < sizeof room ? room : mem_alloc(line.size + 1);
    if (!text)
        return false;
    if (line.size)
        memcpy(text, line.data, line.size);
    text[line.size] = 0;
    match[0] = (regmatch_t){ .rm_so = 0, .rm_eo = (regoff_t)line.size };
    bool found = regexec(regex, text, 2, match, REG_STARTEND) == 0;
    if (text != room)
        mem_free(text);
    return found;
}

// The first group if there is one, else all that matched.
static mr_bytes find_regex(const regex_t *regex, mr_bytes line) {
    regmatch_t match[2];
    if (!regex_find(regex, line, match))
        return (mr_bytes){ 0 };
    const regmatch_t *m = &match[regex->re_nsub > 0];
    if (m->rm_so < 0)
        return (mr_bytes){ 0 };
    return (mr_bytes){ (const char *)line.data + m->rm_so, (size_t)(m->rm_eo - m->rm_so) };
}

// Numbers and truth values as they are written in JSON; what is no single value is no key.
static int append_value(const json_t *value, struct buffer *out) {
    if (json_is_string(value))
        return buffer_append(out, json_string_value(value), json_string_length(value));
    if (!json_is_number(value) && !json_is_boolean(value))
        return 0;
    char text[64];
    size_t size = json_dumpb(value, text, sizeof text, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    return buffer_append(out, text, size < sizeof text ? size : sizeof text);
}

static int find_member(const char *member, mr_bytes line, struct buffer *out) {
    json_error_t error;
    json_t *object = json_loadb(line.size ? line.data : "", line.size, JSON_ALLOW_NUL, &error);
    if (!object)
        return json_error_code(&error) == json_error_out_of_memory
                   ? error_set(MR_ENOMEM, "no memory to read a line as JSON")
                   : 0;
    int err = append_value(json_object_get(object, member), out);
    json_decref(object);
    return err;
}

int keys_look(const struct keys *k, mr_bytes line, struct buffer *room, mr_bytes *out) {
    int err = 0;
    buffer_clear(room);
    switch (k->from) {
    case KEY_NONE:
        *out = (mr_bytes){ 0 };
        break;
    case KEY_FIELD:
        *out = field_find(k->field, line);
        break;
    case KEY_REGEX:
        *out = find_regex(&k->regex, line);
        break;
    case KEY_JSON:
        err = find_member(k->member, line, room);
        if (err >= 0)
            *out = buffer_bytes(room);
        break;
    }
    return err;
}

int keys_find(const struct keys *k, mr_bytes line, struct buffer *out) {
    mr_bytes found = { 0 };
    int err = keys_look(k, line, out, &found);
    if (err < 0 || !found.size || k->from == KEY_JSON)
        return err;
    return buffer_append(out, found.data, found.size);
}

const char *keys_missing(const struct keys *k, uint64_t number, char out[KEYS_MISSING]) {
    snprintf(out, KEYS_MISSING,
             "line %" PRIu64 " has no key: %s finds none in it, so it runs in no order", number,
             k->option);
    return out;
}

mr_bytes key_channel(mr_bytes key, uint8_t room[KEY_MOST]) {
    if (key.size <= KEY_MOST)
        return key;
    struct hash128 hash = bytes_hash128(key, 0);
    memcpy(room, key.data, KEY_MOST - sizeof hash);
    memcpy(room + KEY_MOST - sizeof hash, &hash, sizeof hash);
    return (mr_bytes){ room, KEY_MOST };
}
