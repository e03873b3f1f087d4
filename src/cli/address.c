// A URL, taken apart: millrace[s]://[[USER:]SECRET@]HOST[:PORT], file:DIR or mem:.
#include "cli/talk_state.h"

#include "base/errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// Copies with %XX decoded; false: it does not fit or does not decode.
static bool decode(const char *from, size_t size, char *out, size_t room) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        int c = (unsigned char)from[i];
        if (c == '%') {
            bool whole = i + 2 < size;
            int high = whole ? digit(from[i + 1]) : -1, low = whole ? digit(from[i + 2]) : -1;
            c = high < 0 || low < 0 ? 0 : high << 4 | low;
            i += 2;
        }
        if (c == 0 || used + 1 >= room)
            return false;
        out[used++] = (char)c;
    }
    out[used] = 0;
    return true;
}

// "secret" or "user:secret".
static bool read_secret(const char *text, size_t size, struct address *a) {
    const char *colon = memchr(text, ':', size);
    size_t user = colon ? (size_t)(colon - text) : 0, skip = colon ? user + 1 : 0;
    return decode(text, user, a->user, sizeof a->user) &&
           decode(text + skip, size - skip, a->secret, sizeof a->secret);
}

static bool read_place(const char *text, struct address *a) {
    bool v6 = *text == '[';
    size_t size = strcspn(text, v6 ? "]" : ":/");
    const char *host = text + v6, *rest = text + size + (v6 && text[size] == ']');
    size_t host_size = size - v6;
    char *end = NULL;
    const char *port = *rest == ':' ? rest + 1 : WIRE_PORT;
    unsigned long number = *port >= '0' && *port <= '9' ? strtoul(port, &end, 10) : 0;
    if (!host_size || host_size >= sizeof a->host || number == 0 || number > UINT16_MAX ||
        (*end && strcmp(end, "/") != 0))
        return false;
    snprintf(a->host, sizeof a->host, "%.*s", (int)host_size, host);
    snprintf(a->port, sizeof a->port, "%lu", number);
    snprintf(a->where, sizeof a->where, "millrace%s://%s%s%s:%s", a->secure ? "s" : "",
             v6 ? "[" : "", a->host, v6 ? "]" : "", a->port);
    return *rest == ':' || !*rest || strcmp(rest, "/") == 0;
}

// What is not understood is not repeated: a secret may be in it.
static int read_server(const char *text, struct address *a) {
    const char *at = strrchr(text, '@');
    if ((at && !read_secret(text, (size_t)(at - text), a)) || !read_place(at ? at + 1 : text, a))
        return error_set(MR_EINVAL, "the engine's URL is millrace://HOST:PORT, with a secret "
                                    "millrace://SECRET@HOST:PORT; millraces:// is the same "
                                    "with TLS");
    return 0;
}

int address_read(const char *url, struct address *out) {
    struct address a = { 0 };
    int err = 0;
    a.secure = strncmp(url, "millraces://", 12) == 0;
    if (a.secure || strncmp(url, "millrace://", 11) == 0) {
        err = read_server(url + 11 + a.secure, &a);
    } else if (strcmp(url, "mem:") == 0 || (strncmp(url, "file:", 5) == 0 && url[5])) {
        a.local = true;
        a.dir = url[0] == 'f' ? url + 5 : NULL;
        snprintf(a.where, sizeof a.where, "%s", url);
    } else {
        err = error_set(MR_EINVAL, "an engine is named by millrace://HOST:PORT, with TLS "
                                   "millraces://HOST:PORT, file:DIR or mem:");
    }
    if (err == 0)
        *out = a;
    return err;
}
