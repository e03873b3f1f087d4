// Requests of HTTP/1.1, read strictly: what clients in use send is understood, and whatever could
// mean two things to two readers is refused: folded lines, blanks before a colon, a length given
// twice, chunks.
//
//     POST /api/jobs?a=b HTTP/1.1\r\n        method, path, query
//     Host: localhost:7412\r\n               lines, of which those below are kept
//     Content-Length: 17\r\n
//     \r\n                                   the body follows
//
// What comes out points into the bytes. Pure.
#ifndef WEB_REQUEST_H
#define WEB_REQUEST_H

#include "base/buffer.h"

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OTHER };

struct http_request {
    enum http_method method;
    mr_bytes path, query; // as they were sent, with their percent signs; the query without its mark
    mr_bytes host, origin, authorization, content_type, if_none_match; // no data: not there
    uint64_t body_size;
    bool keep;    // the connection stays
    bool expects; // the body comes once it was asked for
    bool unpacks; // it takes gzip
};

// The status that says what is wrong with a request; the sentence is in error_text().
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

// Reads the head that begins at `data`. Returns its size, the empty line included; 0: it is not
// whole; negative: the status to refuse it with, after which nothing that follows can be made sense
// of. `*searched` is how many bytes are known to have no end of it: 0 at first.
ptrdiff_t http_request_read(const uint8_t *data, size_t size, size_t *searched,
                            struct http_request *out);

bool http_same(mr_bytes, const char *lower); // in any case of letters
bool http_begins(mr_bytes, const char *lower);

#endif
