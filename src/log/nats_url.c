// See nats_url.h. The URL is cut into pieces in place; servers, which get a scheme and a port, are
// written behind it.
#include "log/nats_url.h"

#include "base/errors.h"

#include <stdio.h>
#include <string.h>

static int url_invalid(const char *why) {
    return error_set(
        MR_EINVAL,
        "the URL of NATS: %s; it is nats://USER:PASSWORD@HOST:PORT,HOST:PORT?replicas=3"
        "&tls, and all but a host may be left out",
        why);
}

static int url_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Decodes %XX in place. False: it is not valid.
static bool percent_decode(char *text) {
    char *to = text;
    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = url_digit(from[1]), low = high < 0 ? -1 : url_digit(from[2]);
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = 0;
    return true;
}

static int url_read_user(struct nats_url *u, char *user) {
    char *colon = strchr(user, ':');
    if (colon)
        *colon++ = 0;
    if (!*user || !percent_decode(user) || (colon && !percent_decode(colon)))
        return url_invalid("the user or password is empty or not encoded as in a URL");
    u->user = user;
    u->password = colon;
    return 0;
}

static bool host_has_port(const char *host) {
    const char *bracket = strrchr(host, ']');
    return strchr(bracket ? bracket : host, ':') != NULL;
}

static int url_read_servers(struct nats_url *u, char *list, char *free_text) {
    const char *end = u->text + sizeof u->text;
    while (list) {
        char *host = list, *comma = strchr(list, ',');
        if (comma)
            *comma = 0;
        list = comma ? comma + 1 : NULL;
        if (!*host || *host == ':' || strpbrk(host, "/@"))
            return url_invalid("a server is HOST or HOST:PORT, and the user is named once");
        if (u->count == NATS_SERVERS_MOST)
            return url_invalid("it has more than 16 servers");
        int size = snprintf(free_text, (size_t)(end - free_text), "%s%s%s", NATS_SCHEME, host,
                            host_has_port(host) ? "" : ":4222");
        if (size < 0 || size >= end - free_text)
            return url_invalid("it is too long");
        u->servers[u->count++] = free_text;
        free_text += size + 1;
    }
    return 0;
}

static int url_read_replicas(struct nats_url *u, const char *value) {
    if (!value || value[0] < '1' || value[0] > '0' + NATS_REPLICAS_MOST || value[1])
        return url_invalid("replicas is a number from 1 to 5");
    u->replicas = (uint32_t)(value[0] - '0');
    return 0;
}

static int url_read_option(struct nats_url *u, char *name) {
    char *value = strchr(name, '=');
    if (value)
        *value++ = 0;
    if (strcmp(name, "replicas") == 0)
        return url_read_replicas(u, value);
    if (strcmp(name, "tls") == 0 && !value) {
        u->tls = true;
        return 0;
    }
    const struct {
        const char *name, **to;
    } files[] = {
        { "ca", &u->ca }, { "cert", &u->cert }, { "key", &u->key }, { "creds", &u->creds }
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(name, files[i].name) == 0 && value && *value && percent_decode(value)) {
            *files[i].to = value;
            return 0;
        }
    return url_invalid("its options are replicas=N, tls, ca=FILE, cert=FILE, key=FILE, creds=FILE");
}

static int url_read_options(struct nats_url *u, char *options) {
    while (options && *options) {
        char *option = options, *next = strchr(options, '&');
        if (next)
            *next++ = 0;
        options = next;
        int err = url_read_option(u, option);
        if (err < 0)
            return err;
    }
    if (!u->cert != !u->key)
        return url_invalid("cert and key belong together");
    return 0;
}

int nats_url_read(const char *url, struct nats_url *u) {
    size_t size = strnlen(url, NATS_URL_MOST);
    if (size == NATS_URL_MOST)
        return url_invalid("it is too long");
    if (strncmp(url, NATS_SCHEME, strlen(NATS_SCHEME)) != 0)
        return url_invalid("it begins with another scheme");
    *u = (struct nats_url){ 0 };
    memcpy(u->text, url, size + 1);
    char *hosts = u->text + strlen(NATS_SCHEME), *options = strchr(hosts, '?');
    if (options)
        *options++ = 0;
    int err = url_read_options(u, options);
    char *at = strchr(hosts, '@');
    if (err == 0 && at) {
        *at = 0;
        err = url_read_user(u, hosts);
        hosts = at + 1;
    }
    size_t length = strlen(hosts);
    if (length && hosts[length - 1] == '/')
        hosts[length - 1] = 0; // nats://HOST/ is a usual way to write it
    return err < 0 ? err : url_read_servers(u, hosts, u->text + size + 1);
}
