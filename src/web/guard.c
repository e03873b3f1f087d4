// See guard.h.
#include "web/guard.h"

#include "base/errors.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME = 256 };

static int guard_refuse(enum http_status status, const char *why) {
    error_set(MR_EINVAL, "%s", why);
    return (int)status;
}

// ---- Host ---------------------------------------------------------------------------------------

// Removes port and brackets: "localhost:7412", "[::1]:7412". False: it is malformed.
static bool host_name_of(mr_bytes host, char out[NAME]) {
    const char *from = host.data, *end = from + host.size;
    bool brackets = host.size && *from == '[';
    from += brackets;
    const char *to = memchr(from, brackets ? ']' : ':', (size_t)(end - from));
    if (!to && brackets)
        return false;
    if (!to)
        to = end;
    const char *port = to + brackets;
    bool ported = port < end;
    if (to == from || to - from >= NAME || (ported && *port != ':'))
        return false;
    for (const char *c = port + ported; c < end; c++)
        if (*c < '0' || *c > '9')
            return false;
    snprintf(out, NAME, "%.*s", (int)(to - from), from);
    return true;
}

static bool host_is_address(const char *name, uint8_t out[16]) {
    memset(out, 0, 16);
    return inet_pton(AF_INET, name, out) == 1 || inet_pton(AF_INET6, name, out) == 1;
}

static bool host_is_loopback(const char *name, const uint8_t address[16]) {
    static const uint8_t v6[16] = { [15] = 1 };
    return strcasecmp(name, "localhost") == 0 ||
           (strchr(name, ':') ? memcmp(address, v6, 16) == 0 : address[0] == 127);
}

static bool host_is_named(const char *names, const char *name) {
    size_t size = strlen(name);
    for (const char *at = names; at && *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        if (length == size && strncasecmp(at, name, size) == 0)
            return true;
        at += length;
    }
    return false;
}

// Any name can be made to resolve to this machine (DNS rebinding), so only known names count; a
// numeric address cannot be redirected.
static bool is_ours(const struct guard *g, const char *name) {
    static const uint8_t all[16];
    uint8_t asked[16], ours[16];
    bool digits = host_is_address(name, asked);
    if (host_is_named(g->names, name) || host_is_loopback(name, asked))
        return true;
    return digits && host_is_address(g->address, ours) &&
           (memcmp(ours, all, 16) == 0 || memcmp(ours, asked, 16) == 0);
}

static int check_host(const struct guard *g, mr_bytes host) {
    char name[NAME];
    if (!host.data || !host_name_of(host, name))
        return guard_refuse(HTTP_BAD, "the header Host is missing or malformed");
    if (is_ours(g, name))
        return 0;
    error_set(MR_EINVAL, "'%.100s' is not a name of this server; --http-name adds names", name);
    return HTTP_HOST;
}

// ---- Origin -------------------------------------------------------------------------------------

static bool is_same_origin(mr_bytes origin, mr_bytes host) {
    const char *p = origin.data;
    size_t scheme = http_begins(origin, "http://") ? 7 : http_begins(origin, "https://") ? 8 : 0;
    return scheme && origin.size - scheme == host.size &&
           strncasecmp(p + scheme, host.data, host.size) == 0;
}

// A form on another site cannot send this type without a CORS preflight, which is refused.
static bool is_json(mr_bytes type) {
    static const char json[] = "application/json";
    size_t size = sizeof json - 1;
    const char *p = type.data;
    return type.data && http_begins(type, json) &&
           (type.size == size || p[size] == ';' || p[size] == ' ');
}

// A browser adds no Bearer token by itself, and a page of another site would need a preflight,
// which is refused, to send one: so the Origin of a request with a token does not matter.
static int check_post(const struct http_request *r) {
    if (!is_json(r->content_type))
        return guard_refuse(HTTP_TYPE, "a POST needs the header Content-Type: application/json");
    if (guard_secret(r).size)
        return 0;
    if (!r->origin.data)
        return guard_refuse(HTTP_FORBIDDEN,
                            "a POST without a Bearer token needs the header Origin: "
                            "http:// followed by the value of Host");
    if (!is_same_origin(r->origin, r->host))
        return guard_refuse(HTTP_FORBIDDEN, "requests from pages of another origin are refused "
                                            "unless they have a Bearer token");
    return 0;
}

int guard_check(const struct guard *g, const struct http_request *r) {
    int status = check_host(g, r->host);
    return status || r->method != HTTP_POST ? status : check_post(r);
}

mr_bytes guard_secret(const struct http_request *r) {
    static const char scheme[] = "bearer ";
    size_t size = sizeof scheme - 1;
    if (!r->authorization.data || !http_begins(r->authorization, scheme))
        return (mr_bytes){ 0 };
    return (mr_bytes){ (const char *)r->authorization.data + size, r->authorization.size - size };
}
