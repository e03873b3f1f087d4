// Parses requests of HTTP/1.1 strictly: accepts what common clients send, and refuses everything
// that two parsers could understand differently: folded lines, blanks before a colon, a repeated
// length, chunked bodies.
//
//     POST /api/jobs?a=b HTTP/1.1\r\n        method, path, query
//     Host: localhost:7412\r\n               headers, of which those in http_request are kept
//     Content-Length: 17\r\n
//     \r\n                                   the body follows
//
// The result points into the input. Pure.
//
// HTTP is parsed by hand, on the server's own connections. libmicrohttpd would bring its own
// sockets, timeouts and TLS library: certificates, quotas and timeouts would exist twice. What is
// left for a library is the head of a request, a page of code if everything doubtful is refused
// (`web/request.c`, fuzzed). llhttp is not in Debian 12. jansson reads JSON.
#ifndef WEB_REQUEST_H
#define WEB_REQUEST_H

#include "base/buffer.h"

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

struct http_request {
    enum http_method method;
    mr_bytes path, query; // as sent, with percent escapes; the query without the question mark
    mr_bytes host, origin, authorization, content_type, if_none_match; // data is NULL if missing
    uint64_t body_size;
    bool keep_alive;
    bool expects_continue; // the client sends the body after 100 Continue
    bool accepts_gzip;
};

// Statuses of responses; for a refused request the message is in error_text().
enum http_status {
    HTTP_OK = 200,
    HTTP_NOT_MODIFIED = 304,
    HTTP_BAD = 400,
    HTTP_UNKNOWN = 401,
    HTTP_FORBIDDEN = 403,
    HTTP_GONE = 404,
    HTTP_METHOD = 405,
    HTTP_PACKED = 406,
    HTTP_SLOW = 408,
    HTTP_CONFLICT = 409,
    HTTP_TOO_BIG = 413,
    HTTP_TYPE = 415,
    HTTP_EXPECT = 417,
    HTTP_HOST = 421,
    HTTP_HEAD_TOO_BIG = 431,
    HTTP_BROKEN = 500,
    HTTP_CHUNKED = 501,
    HTTP_FULL = 503,
    HTTP_VERSION = 505,
};

const char *http_reason(enum http_status); // "Not Found"

// Parses the head of a request at `data`. Returns its size, the empty line included; 0: it is not
// complete; negative: the status of the refusal, after which the rest of the input cannot be
// parsed.
// `*searched` is the number of bytes already searched for the end of the head; initially 0.
ptrdiff_t http_request_read(const uint8_t *data, size_t size, size_t *searched,
                            struct http_request *out);

bool http_same(mr_bytes, const char *lower); // case-insensitive
bool http_begins(mr_bytes, const char *lower);

#endif
