// See respond.h.
#include "web/respond.h"

#include "base/errors.h"
#include "server/budget.h"
#include "web/state.h"
#include "wire/code.h"
#include "wire/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The page may load resources of this server only, and must not be in a frame.
#define POLICY                                                                                     \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "   \
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

enum { HEAD = 1024 };

static const char json_type[] = "application/json; charset=utf-8";

// ---- Heads --------------------------------------------------------------------------------------

static size_t respond_add(char *to, size_t room, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static size_t respond_add(char *to, size_t room, size_t used, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int size = vsnprintf(to + used, room - used, format, values);
    va_end(values);
    size_t now = used + (size_t)size;
    return now < room ? now : room - 1;
}

static size_t write_head(const struct http_response *r, bool keeps, char *to, size_t room) {
    size_t n =
        respond_add(to, room, 0, "HTTP/1.1 %d %s\r\n", (int)r->status, http_reason(r->status));
    if (r->status != HTTP_NOT_MODIFIED)
        n = respond_add(to, room, n, "Content-Type: %s\r\n", r->type ? r->type : json_type);
    if (!r->endless && r->status != HTTP_NOT_MODIFIED)
        n = respond_add(to, room, n, "Content-Length: %zu\r\n", r->body.size);
    if (r->packed)
        n = respond_add(to, room, n, "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n");
    if (r->etag)
        n = respond_add(to, room, n, "ETag: \"%s\"\r\n", r->etag);
    if (r->allow)
        n = respond_add(to, room, n, "Allow: %s\r\n", r->allow);
    if (r->status == HTTP_UNKNOWN)
        n = respond_add(to, room, n, "WWW-Authenticate: Bearer\r\n");
    n = respond_add(to, room, n, "Cache-Control: %s\r\n",
                    r->lasting ? "public, max-age=31536000, immutable"
                    : r->etag  ? "no-cache"
                               : "no-store");
    n = respond_add(to, room, n,
                    "Content-Security-Policy: " POLICY "\r\nX-Content-Type-Options: nosniff\r\n"
                    "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
                    "Cross-Origin-Resource-Policy: same-origin\r\n");
    return respond_add(to, room, n, "Connection: %s\r\n\r\n", keeps ? "keep-alive" : "close");
}

void respond(struct web_connection *v, const struct http_response *r) {
    char head[HEAD];
    v->lingers = v->lingers || v->in.size < v->whole; // the rest of the request is not read
    v->keeps = v->keeps && !v->lingers && !r->endless && !v->session->closing;
    size_t size = write_head(r, v->keeps, head, sizeof head);
    size_t body_size = v->head_only || r->apart ? 0 : r->body.size;
    int err = buffer_append(&v->out, head, size);
    if (err == 0 && body_size)
        err = buffer_append(&v->out, r->body.data, body_size);
    if (err < 0)
        v->session->broken = true;
    budget_spend(v->session, STEPS_COMMAND + body_size / STEP_BYTES_OUT);
    web_connection_end_request(v);
}

// ---- Errors -------------------------------------------------------------------------------------

static enum http_status status_of(enum code code) {
    switch (code) {
    case CODE_NOAUTH:
    case CODE_WRONGPASS:
        return HTTP_UNKNOWN;
    case CODE_NOPERM:
        return HTTP_FORBIDDEN;
    case CODE_TOOBIG:
        return HTTP_TOO_BIG;
    case CODE_GONE:
        return HTTP_GONE;
    case CODE_GAP:
    case CODE_STALE:
    case CODE_EXPIRED:
    case CODE_CANCELLED:
    case CODE_DEAD:
    case CODE_DRAINING:
    case CODE_BUSY:
        return HTTP_CONFLICT;
    case CODE_FULL:
    case CODE_LOADING:
    case CODE_STOPPED:
        return HTTP_FULL;
    case CODE_ERR:
    case CODE_NOPROTO:
    case CODE_EXECABORT:
    case CODES:
        break;
    }
    return HTTP_BAD;
}

static void write_refusal(struct buffer *to, const char *code, mr_bytes sentence) {
    struct doc d = { .out = to };
    doc_open(&d, NULL, '{');
    doc_text(&d, "error", mr_str(code));
    doc_text(&d, "message", sentence);
    doc_close(&d, '}');
    doc_plain(&d, "\n", 1);
}

void respond_refusal(struct web_connection *v, enum http_status status, const char *code,
                     mr_bytes sentence) {
    struct buffer *body = &v->web->scratch;
    buffer_clear(body);
    write_refusal(body, code, sentence);
    respond(v, &(struct http_response){ .status = status, .body = buffer_bytes(body) });
}

void respond_failure(struct web_connection *v, enum http_status status) {
    char why[512];
    snprintf(why, sizeof why, "%s", error_text());
    enum code code = status == HTTP_FORBIDDEN ? CODE_NOPERM
                     : status == HTTP_TOO_BIG ? CODE_TOOBIG
                     : status == HTTP_FULL    ? CODE_FULL
                                              : CODE_ERR;
    respond_refusal(v, status, code_name(code), mr_str(why));
}

size_t respond_write_full(const char *why, char *to, size_t room) {
    struct buffer body = { 0 };
    write_refusal(&body, code_name(CODE_FULL), mr_str(why));
    struct http_response r = { .status = HTTP_FULL, .body = buffer_bytes(&body) };
    size_t size = write_head(&r, false, to, room);
    size = respond_add(to, room, size, "%.*s", (int)body.size,
                       body.data ? (const char *)body.data : "");
    buffer_finish(&body);
    return size;
}

void respond_error(struct web_connection *v, mr_bytes error) {
    enum code code = CODE_ERR;
    mr_bytes sentence;
    if (!code_read(error, &code, &sentence))
        code = CODE_ERR;
    if (code == CODE_NOAUTH)
        sentence = mr_str("this server requires a token: Authorization: Bearer SECRET");
    respond_refusal(v, status_of(code), code_name(code), sentence);
}
