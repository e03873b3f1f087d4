// See delivery_headers.h.
#include "cli/delivery_headers.h"

#include "base/errors.h"
#include "base/limits.h"
#include "base/text.h"
#include "tls/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    LINE = 64 + 3 * (KEY_MOST > META_MOST ? KEY_MOST : META_MOST),
    TRACE_MOST = 512,
    HEADER_LINE_MOST = 8192
};

// ---- Given on the command line ------------------------------------------------------------------

static bool is_header_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_set_by_us(const char *line, size_t name) {
    static const char *const ours[] = { "content-length", "transfer-encoding", "expect",
                                        "connection",     "trailer",           "upgrade" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strlen(ours[i]) == name && strncasecmp(line, ours[i], name) == 0)
            return true;
    return (name >= 9 && strncasecmp(line, "millrace-", 9) == 0) ||
           (name >= 8 && strncasecmp(line, "webhook-", 8) == 0);
}

static int header_check(const char *line) {
    size_t name = 0;
    while (is_header_name(line[name]))
        name++;
    if (!name || line[name] != ':')
        return error_set(MR_EINVAL, "'%.100s' is not a header: NAME: VALUE", line);
    for (const char *c = line + name; *c; c++)
        if ((unsigned char)*c < ' ' ? *c != '\t' : *c == 127)
            return error_set(MR_EINVAL, "the header %.*s has a control character", (int)name, line);
    if (is_set_by_us(line, name))
        return error_set(MR_EINVAL, "the header %.*s is set by each delivery itself", (int)name,
                         line);
    return 0;
}

static int header_file_read(const char *path, int (*each)(const char *, void *), void *arg) {
    char line[HEADER_LINE_MOST + 2];
    FILE *file = fopen(path, "re");
    int err = 0;
    if (!file)
        return error_set(MR_EIO, "%s cannot be read: %s", path, strerror(errno));
    while (err >= 0 && fgets(line, sizeof line, file)) {
        if (strlen(line) == sizeof line - 1)
            err =
                error_set(MR_EINVAL, "a line of %s has more than %d bytes", path, HEADER_LINE_MOST);
        line[strcspn(line, "\r\n")] = 0;
        if (err >= 0 && *line)
            err = header_check(line);
        if (err >= 0 && *line)
            err = each(line, arg);
    }
    if (err >= 0 && ferror(file))
        err = error_set(MR_EIO, "%s cannot be read", path);
    fclose(file);
    return err < 0 ? err : 0;
}

int header_option_read(const char *value, int (*each)(const char *, void *), void *arg) {
    if (value[0] == '@')
        return header_file_read(value + 1, each, arg);
    int err = header_check(value);
    return err < 0 ? err : each(value, arg);
}

// ---- Of a job -----------------------------------------------------------------------------------

// "NAME: " with the bytes behind it, escaped.
static void header_escape(char line[LINE], const char *name, mr_bytes bytes) {
    static const char hex[] = "0123456789ABCDEF";
    const uint8_t *p = bytes.data;
    char *to = line + snprintf(line, LINE, "%s: ", name);
    for (size_t i = 0; i < bytes.size; i++) {
        if (p[i] > ' ' && p[i] <= '~' && p[i] != '%') {
            *to++ = (char)p[i];
            continue;
        }
        *to++ = '%';
        *to++ = hex[p[i] >> 4];
        *to++ = hex[p[i] & 15];
    }
    *to = 0;
}

// Version, trace, parent and flags, in hexadecimal digits of a fixed number each.
static bool is_traceparent(const char *text, size_t size) {
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    if (size != sizeof form - 1)
        return false;
    for (size_t i = 0; i < size; i++)
        if (form[i] == 'x' ? !strchr("0123456789abcdef", text[i]) || !text[i] : text[i] != '-')
            return false;
    return true;
}

static bool is_tracestate(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return size > 0 && size <= TRACE_MOST;
}

static int trace_header(const char *name, const char *text, size_t size,
                        int (*each)(const char *, void *), void *arg) {
    char line[TRACE_MOST + 32];
    snprintf(line, sizeof line, "%s: %.*s", name, (int)size, text);
    return each(line, arg);
}

// Libraries of this project put {"traceparent": "…"} into the metadata.
static int trace_headers(mr_bytes meta, int (*each)(const char *, void *), void *arg) {
    if (is_traceparent(meta.data, meta.size))
        return trace_header("traceparent", meta.data, meta.size, each, arg);
    json_t *object = json_loadb(meta.data, meta.size, 0, NULL);
    json_t *parent = json_object_get(object, "traceparent");
    json_t *state = json_object_get(object, "tracestate");
    int err = 0;
    if (json_is_string(parent) &&
        is_traceparent(json_string_value(parent), json_string_length(parent))) {
        err = trace_header("traceparent", json_string_value(parent), json_string_length(parent),
                           each, arg);
        if (err >= 0 && json_is_string(state) &&
            is_tracestate(json_string_value(state), json_string_length(state)))
            err = trace_header("tracestate", json_string_value(state), json_string_length(state),
                               each, arg);
    }
    json_decref(object);
    return err;
}

int job_headers(const mr_job *job, int (*each)(const char *, void *), void *arg) {
    char line[LINE];
    mr_bytes key = mr_job_key(job), meta = mr_job_meta(job);
    int64_t left_ms = mr_job_left_ms(job);
    snprintf(line, sizeof line, "Millrace-Id: %" PRIu64, mr_job_id(job));
    int err = each(line, arg);
    snprintf(line, sizeof line, "Millrace-Stage: %s", mr_job_stage(job));
    err = err < 0 ? err : each(line, arg);
    snprintf(line, sizeof line, "Millrace-Attempt: %u", mr_job_attempt(job));
    err = err < 0 ? err : each(line, arg);
    if (err >= 0 && key.size) {
        header_escape(line, "Millrace-Key", key);
        err = each(line, arg);
    }
    if (err >= 0 && left_ms != MR_FOREVER) {
        snprintf(line, sizeof line, "Millrace-Deadline-Ms: %" PRId64, left_ms);
        err = each(line, arg);
    }
    if (err >= 0 && meta.size) {
        header_escape(line, "Millrace-Meta", meta);
        err = each(line, arg);
    }
    return err < 0 || !meta.size ? err : trace_headers(meta, each, arg);
}

// ---- Signatures ---------------------------------------------------------------------------------

int sign_key_read(const char *path, struct sign_key *out) {
    static const char prefix[] = "whsec_";
    struct sign_key key = { 0 };
    char line[2 * SIGN_KEY_MOST] = "";
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(MR_EIO, "%s cannot be read: %s", path, strerror(errno));
    bool is_read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    line[strcspn(line, "\r\n")] = 0;
    size_t size = strlen(line), behind = sizeof prefix - 1;
    bool is_base64 = size > behind && memcmp(line, prefix, behind) == 0;
    mr_bytes text = { line + (is_base64 ? behind : 0), size - (is_base64 ? behind : 0) };
    if (!is_read || text.size > SIGN_KEY_MOST)
        return error_set(MR_EINVAL, "%s has no key of at most %d bytes in its first line", path,
                         SIGN_KEY_MOST);
    memcpy(key.bytes, text.data, text.size);
    key.size = text.size;
    if (is_base64 && !text_base64_read(text, key.bytes, &key.size))
        return error_set(MR_EINVAL, "what %s has behind whsec_ is not base64", path);
    if (key.size < SIGN_KEY_LEAST)
        return error_set(MR_EINVAL, "the key in %s has less than %d bytes", path, SIGN_KEY_LEAST);
    uint8_t trial[DIGEST_SIZE];
    int err = digest_sign((mr_bytes){ key.bytes, key.size }, NULL, 0, trial);
    if (err < 0)
        return err;
    *out = key;
    return 0;
}

int sign_headers(const struct sign_key *key, const mr_job *job, int64_t now_s,
                 int (*each)(const char *, void *), void *arg) {
    char before[64], line[128], letters[64] = "";
    uint8_t digest[DIGEST_SIZE];
    snprintf(before, sizeof before, "%" PRIu64 ".%" PRId64 ".", mr_job_id(job), now_s);
    mr_bytes parts[] = { mr_str(before), mr_job_body(job) };
    int err = digest_sign((mr_bytes){ key->bytes, key->size }, parts, 2, digest);
    if (err < 0)
        return err;
    text_base64((mr_bytes){ digest, sizeof digest }, letters);
    snprintf(line, sizeof line, "webhook-id: %" PRIu64, mr_job_id(job));
    err = each(line, arg);
    snprintf(line, sizeof line, "webhook-timestamp: %" PRId64, now_s);
    err = err < 0 ? err : each(line, arg);
    snprintf(line, sizeof line, "webhook-signature: v1,%s", letters);
    return err < 0 ? err : each(line, arg);
}
