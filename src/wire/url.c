// See url.h.
#include "wire/url.h"

#include "base/errors.h"
#include "wire/number.h"
#include "wire/port.h"

#include <stdio.h>
#include <string.h>

static int refuse_url(const char *what) {
    return error_set(MR_EINVAL,
                     "%s: the URL of a server is millrace://HOST:PORT, with a secret "
                     "millrace://SECRET@HOST:PORT; millraces:// is the same with TLS, and "
                     "unix:PATH its socket file",
                     what);
}

static bool copy_url_part(char *to, size_t room, const char *from, size_t size) {
    if (size >= room)
        return false;
    memcpy(to, from, size);
    to[size] = 0;
    return true;
}

static int url_hex_digit(char c) {
    char small = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// Copies it with every %XX as the byte it stands for.
static bool decode_url_part(char *to, size_t room, const char *from, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < size; i++) {
        int byte = (unsigned char)from[i];
        if (byte == '%') {
            bool whole = i + 2 < size;
            int high = whole ? url_hex_digit(from[i + 1]) : -1;
            int low = whole ? url_hex_digit(from[i + 2]) : -1;
            byte = high < 0 || low < 0 ? 0 : high << 4 | low;
            i += 2;
        }
        if (!byte || used + 1 >= room)
            return false;
        to[used++] = (char)byte;
    }
    to[used] = 0;
    return true;
}

// USER:SECRET, or the secret alone.
static int read_url_user(struct engine_url *u, const char *text, size_t size) {
    const char *colon = memchr(text, ':', size);
    size_t user = colon ? (size_t)(colon - text) : 0, skip = user + (colon != NULL);
    if (!decode_url_part(u->user, sizeof u->user, text, user) ||
        !decode_url_part(u->secret, sizeof u->secret, text + skip, size - skip))
        return refuse_url("user or secret are too long, or have a % that is not %25");
    return 0;
}

static bool is_port(const char *text) {
    uint64_t port;
    return number_parse(mr_str(text), &port) == 0 && port > 0 && port <= UINT16_MAX;
}

static int read_url_node(struct url_node *n, const char *text) {
    const char *close = text[0] == '[' ? strchr(text, ']') : NULL;
    const char *colon = strrchr(close ? close : text, ':');
    const char *host = close ? text + 1 : text;
    const char *end = close ? close : colon ? colon : text + strlen(text);
    if (end == host || !copy_url_part(n->host, sizeof n->host, host, (size_t)(end - host)))
        return refuse_url("the host is missing or too long");
    if (close && close[1] && colon != close + 1)
        return refuse_url("only the port may stand behind the address in brackets");
    const char *port = colon ? colon + 1 : WIRE_PORT;
    if (!is_port(port) || !copy_url_part(n->port, sizeof n->port, port, strlen(port)))
        return refuse_url("the port is a number from 1 to 65535");
    return 0;
}

static int add_url_node(struct engine_url *u, const char *text) {
    if (u->node_count == URL_NODES)
        return refuse_url("it names more than eight nodes");
    struct url_node *n = &u->nodes[u->node_count];
    int err = read_url_node(n, text);
    if (err < 0)
        return err;
    bool v6 = strchr(n->host, ':') != NULL;
    size_t used = strlen(u->place), room = sizeof u->place - used;
    int size = snprintf(u->place + used, room, "%s%s%s%s:%s", u->node_count++ ? "," : "",
                        v6 ? "[" : "", n->host, v6 ? "]" : "", n->port);
    return (size_t)size < room ? 0 : refuse_url("the hosts are too long");
}

// HOST:PORT, or several with commas between them.
static int read_url_nodes(struct engine_url *u, char *text) {
    int err = 0;
    for (char *node = text, *next; err == 0 && node; node = next) {
        next = strchr(node, ',');
        if (next)
            *next++ = 0;
        err = add_url_node(u, node);
    }
    if (err == 0)
        snprintf(u->where, sizeof u->where, "millrace%s://%s", u->secure ? "s" : "", u->place);
    return err;
}

static int read_url_server(struct engine_url *u, const char *text) {
    const char *at = strrchr(text, '@');
    int err = at ? read_url_user(u, text, (size_t)(at - text)) : 0;
    char place[sizeof u->place];
    const char *begin = at ? at + 1 : text;
    const char *slash = strchr(begin, '/');
    size_t size = slash ? (size_t)(slash - begin) : strlen(begin);
    if (err >= 0 && slash && slash[1])
        err = refuse_url("nothing may follow the port");
    if (err >= 0 && !copy_url_part(place, sizeof place, begin, size))
        err = refuse_url("the host is too long");
    return err < 0 ? err : read_url_nodes(u, place);
}

// PATH, or //[USER:SECRET@]/PATH.
static int read_url_file(struct engine_url *u, const char *text) {
    const char *path = text;
    if (strncmp(text, "//", 2) == 0) {
        const char *begin = text + 2;
        const char *slash = strchr(begin, '/');
        path = slash ? slash : begin + strlen(begin);
        size_t size = (size_t)(path - begin);
        if (size && begin[size - 1] != '@')
            return refuse_url("before the path only a secret may stand, as unix://SECRET@/PATH");
        int err = size ? read_url_user(u, begin, size - 1) : 0;
        if (err < 0)
            return err;
    }
    size_t size = strlen(path);
    if (!size || size >= URL_FILE || !copy_url_part(u->nodes[0].host, URL_HOST, path, size))
        return refuse_url("the path of a socket file has 1 to 107 bytes");
    u->node_count = 1;
    snprintf(u->place, sizeof u->place, "unix:%s", path);
    snprintf(u->where, sizeof u->where, "unix:%s", path);
    return 0;
}

static int read_url_store(struct engine_url *u, const char *text) {
    if (store_url_read(text, &u->store) < 0)
        return error_set(MR_EINVAL,
                         "the URL '%.200s' is none of " STORE_SCHEMES ", millrace://HOST:PORT, "
                         "unix:PATH and, with TLS, millraces://HOST:PORT",
                         strchr(text, '@') ? "..." : text); // there may be a secret in it
    u->local = true;
    snprintf(u->where, sizeof u->where, "%s", text);
    return 0;
}

static const char plain_scheme[] = "millrace://", secure_scheme[] = "millraces://",
                  file_scheme[] = "unix:";

// What stands behind the scheme; NULL: it is another one.
static const char *behind_scheme(const char *text, const char *scheme) {
    size_t size = strlen(scheme);
    return strncmp(text, scheme, size) == 0 ? text + size : NULL;
}

bool url_is_of_server(const char *text) {
    return behind_scheme(text, plain_scheme) || behind_scheme(text, secure_scheme) ||
           behind_scheme(text, file_scheme);
}

int url_read(const char *text, struct engine_url *out) {
    struct engine_url u = { 0 };
    const char *secure = behind_scheme(text, secure_scheme);
    const char *plain = behind_scheme(text, plain_scheme);
    const char *file = behind_scheme(text, file_scheme);
    int err;
    u.secure = secure != NULL;
    if (secure || plain)
        err = read_url_server(&u, secure ? secure : plain);
    else if (file)
        err = read_url_file(&u, file);
    else
        err = read_url_store(&u, text);
    if (err >= 0)
        *out = u;
    return err;
}
