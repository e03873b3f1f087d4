// See request.h.
#include "web/request.h"

#include "base/errors.h"
#include "web/limits.h"
#include "wire/number.h"

#include <string.h>

const char *http_reason(enum http_status status) {
    switch (status) {
    case HTTP_OK:
        return "OK";
    case HTTP_NOT_MODIFIED:
        return "Not Modified";
    case HTTP_BAD:
        return "Bad Request";
    case HTTP_UNKNOWN:
        return "Unauthorized";
    case HTTP_FORBIDDEN:
        return "Forbidden";
    case HTTP_GONE:
        return "Not Found";
    case HTTP_METHOD:
        return "Method Not Allowed";
    case HTTP_PACKED:
        return "Not Acceptable";
    case HTTP_SLOW:
        return "Request Timeout";
    case HTTP_CONFLICT:
        return "Conflict";
    case HTTP_TOO_BIG:
        return "Content Too Large";
    case HTTP_TYPE:
        return "Unsupported Media Type";
    case HTTP_EXPECT:
        return "Expectation Failed";
    case HTTP_HOST:
        return "Misdirected Request";
    case HTTP_HEAD_TOO_BIG:
        return "Request Header Fields Too Large";
    case HTTP_BROKEN:
        return "Internal Server Error";
    case HTTP_CHUNKED:
        return "Not Implemented";
    case HTTP_FULL:
        return "Service Unavailable";
    case HTTP_VERSION:
        return "HTTP Version Not Supported";
    }
    return "";
}

static int request_refuse(enum http_status status, const char *why) {
    error_set(MR_EINVAL, "%s", why);
    return -(int)status;
}

static char header_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

bool http_begins(mr_bytes text, const char *with) {
    const char *p = text.data;
    size_t size = strlen(with);
    for (size_t i = 0; i < size; i++)
        if (i >= text.size || header_lower(p[i]) != with[i])
            return false;
    return true;
}

bool http_same(mr_bytes text, const char *with) {
    return text.size == strlen(with) && http_begins(text, with);
}

// ---- Parts of a line ----------------------------------------------------------------------------

// Characters of methods and of names of headers.
static bool is_token(char c) {
    return (c >= '0' && c <= '9') || (header_lower(c) >= 'a' && header_lower(c) <= 'z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static mr_bytes cut(const char *from, const char *to) {
    return (mr_bytes){ from, (size_t)(to - from) };
}

static mr_bytes trimmed(const char *from, const char *to) {
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return cut(from, to);
}

// Whether a list such as "gzip, br;q=0.5" has this word, and not with q=0.
static bool lists(mr_bytes list, const char *word) {
    const char *at = list.data, *end = at + list.size;
    while (at < end) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *to = comma ? comma : end, *mark = memchr(at, ';', (size_t)(to - at));
        mr_bytes weight = mark ? trimmed(mark + 1, to) : (mr_bytes){ "", 0 };
        bool refused = http_begins(weight, "q=0") && !memchr(weight.data, '.', weight.size);
        if (http_same(trimmed(at, mark ? mark : to), word) && !refused)
            return true;
        at = comma ? comma + 1 : end;
    }
    return false;
}

// ---- The first line -----------------------------------------------------------------------------

static enum http_method method_of(mr_bytes word) {
    static const char *const names[] = {
        [HTTP_GET] = "GET", [HTTP_HEAD] = "HEAD", [HTTP_POST] = "POST"
    };
    for (int i = 0; i < HTTP_OTHER; i++)
        if (word.size == strlen(names[i]) && memcmp(word.data, names[i], word.size) == 0)
            return (enum http_method)i;
    return HTTP_OTHER;
}

static int read_version(mr_bytes version, struct http_request *out) {
    if (version.size != 8 || memcmp(version.data, "HTTP/", 5) != 0)
        return request_refuse(HTTP_BAD, "the request is not HTTP");
    char minor = ((const char *)version.data)[7];
    if (memcmp(version.data, "HTTP/1.", 7) != 0 || minor < '0' || minor > '9')
        return request_refuse(HTTP_VERSION, "the server supports only HTTP/1.1");
    out->keep_alive = minor != '0';
    return 0;
}

static int read_target(const char *from, const char *to, struct http_request *out) {
    if (from == to || *from != '/')
        return request_refuse(HTTP_BAD, "the target must be a path that begins with /");
    for (const char *c = from; c < to; c++)
        if (*c <= ' ' || *c > '~')
            return request_refuse(
                HTTP_BAD, "a path must have printable ASCII characters only; others as %XX");
    const char *mark = memchr(from, '?', (size_t)(to - from));
    out->path = cut(from, mark ? mark : to);
    out->query = mark ? cut(mark + 1, to) : (mr_bytes){ "", 0 };
    return 0;
}

static int read_first(const char *from, const char *to, struct http_request *out) {
    const char *blank = memchr(from, ' ', (size_t)(to - from));
    const char *second = blank ? memchr(blank + 1, ' ', (size_t)(to - blank - 1)) : NULL;
    if (!second || blank == from)
        return request_refuse(HTTP_BAD, "a request must begin with method, path and HTTP/1.1");
    for (const char *c = from; c < blank; c++)
        if (!is_token(*c))
            return request_refuse(HTTP_BAD, "the method is malformed");
    out->method = method_of(cut(from, blank));
    int err = read_version(cut(second + 1, to), out);
    return err < 0 ? err : read_target(blank + 1, second, out);
}

// ---- Headers ------------------------------------------------------------------------------------

static int read_length(mr_bytes value, struct http_request *out) {
    if (number_parse(value, &out->body_size) < 0)
        return request_refuse(HTTP_BAD, "Content-Length is not a number");
    return 0;
}

static int read_expect(mr_bytes value, struct http_request *out) {
    out->expects_continue = http_same(value, "100-continue");
    return out->expects_continue ? 0
                                 : request_refuse(HTTP_EXPECT, "Expect supports only 100-continue");
}

// The field of the request for a header that is kept unchanged.
static mr_bytes *field_of(struct http_request *r, mr_bytes name) {
    return http_same(name, "host")            ? &r->host
           : http_same(name, "origin")        ? &r->origin
           : http_same(name, "authorization") ? &r->authorization
           : http_same(name, "content-type")  ? &r->content_type
           : http_same(name, "if-none-match") ? &r->if_none_match
                                              : NULL;
}

static int read_header_field(mr_bytes name, mr_bytes value, bool *has_length,
                             struct http_request *out) {
    mr_bytes *field = field_of(out, name);
    if (field && field->data)
        return request_refuse(
            HTTP_BAD, "Host, Origin, Authorization and similar headers must not be repeated");
    if (field)
        *field = value;
    else if (http_same(name, "transfer-encoding"))
        return request_refuse(HTTP_CHUNKED,
                              "chunked bodies are not supported: send Content-Length");
    else if (http_same(name, "expect"))
        return read_expect(value, out);
    else if (http_same(name, "accept-encoding"))
        out->accepts_gzip = out->accepts_gzip || lists(value, "gzip");
    else if (http_same(name, "connection"))
        out->keep_alive = (out->keep_alive || lists(value, "keep-alive")) && !lists(value, "close");
    else if (http_same(name, "content-length")) {
        if (*has_length)
            return request_refuse(HTTP_BAD, "Content-Length must not be repeated");
        *has_length = true;
        return read_length(value, out);
    }
    return 0;
}

static int read_request_line(const char *from, const char *to, bool *has_length,
                             struct http_request *out) {
    const char *colon = memchr(from, ':', (size_t)(to - from));
    if (!colon || colon == from)
        return request_refuse(HTTP_BAD, "a header must be NAME: VALUE");
    for (const char *c = from; c < colon; c++)
        if (!is_token(*c))
            return request_refuse(HTTP_BAD, "a header must begin with a name and a colon");
    for (const char *c = colon + 1; c < to; c++)
        if ((uint8_t)*c < ' ' ? *c != '\t' : *c == 127)
            return request_refuse(HTTP_BAD, "a header has a control character");
    return read_header_field(cut(from, colon), trimmed(colon + 1, to), has_length, out);
}

static int read_header_lines(const char *at, const char *end, struct http_request *out) {
    bool has_length = false;
    for (int lines = 0; at < end; lines++) {
        const char *to = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (lines == WEB_HEADERS)
            return request_refuse(HTTP_HEAD_TOO_BIG, "a request has at most 64 headers");
        int err = read_request_line(at, to, &has_length, out);
        if (err < 0)
            return err;
        at = to + 2;
    }
    return 0;
}

// ---- The head -----------------------------------------------------------------------------------

// The size of the head; 0: it is not complete.
static size_t head_size(const uint8_t *data, size_t size, size_t *searched) {
    size_t from = *searched > 3 ? *searched - 3 : 0;
    const uint8_t *end = memmem(data + from, size - from, "\r\n\r\n", 4);
    *searched = size;
    return end ? (size_t)(end - data) + 4 : 0;
}

ptrdiff_t http_request_read(const uint8_t *data, size_t size, size_t *searched,
                            struct http_request *out) {
    if (size && *data == '*') // refused at once, since a RESP client sends no empty line
        return request_refuse(HTTP_BAD, "this address speaks HTTP, not the protocol of Redis: "
                                        "clients connect to the address of --listen");
    size_t head = data ? head_size(data, size, searched) : 0;
    if (head > WEB_HEAD || (!head && size >= WEB_HEAD))
        return request_refuse(HTTP_HEAD_TOO_BIG,
                              "the headers of a request have at most 16384 bytes");
    if (!head)
        return 0;
    struct http_request r = { 0 };
    const char *first = (const char *)data, *end = first + head - 2; // behind the last line
    const char *line = memmem(first, head, "\r\n", 2);
    int err = read_first(first, line, &r);
    if (err == 0)
        err = read_header_lines(line + 2, end, &r);
    if (err < 0)
        return err;
    *out = r;
    return (ptrdiff_t)head;
}
