// Writes responses: the headers of every response, JSON of the replies of commands, and errors with
// the status of their code.
#ifndef WEB_RESPOND_H
#define WEB_RESPOND_H

#include "web/request.h"
#include "web/route.h"

struct web_connection;

struct http_response {
    enum http_status status;
    const char *type; // of the body; NULL: JSON
    mr_bytes body;
    const char *etag;  // NULL: not to be cached
    const char *allow; // value of the header Allow; NULL: no such header
    bool packed;       // the body is gzip
    bool lasting;      // the body of this path never changes
    bool endless;      // a stream: no Content-Length, ends with the connection
    bool apart;        // the body is sent from where it is
};

// Appends the response to the bytes to send, and ends the request.
void respond(struct web_connection *, const struct http_response *);

// Responds with {"error": CODE, "message": SENTENCE}. Closes the connection if the request was not
// read to its end.
void respond_refusal(struct web_connection *, enum http_status, const char *code,
                     mr_bytes sentence);
void respond_failure(struct web_connection *, enum http_status); // ERR, and error_text()

// Writes a whole refusal for a connection that cannot be opened. Returns its size.
size_t respond_write_full(const char *why, char *to, size_t room);

// Responds with the error that a command has replied.
void respond_error(struct web_connection *, mr_bytes error);

// ---- Responses of single rows -------------------------------------------------------------------

void respond_health(struct web_connection *, const struct replies *);
void respond_info(struct web_connection *, const struct replies *);
void respond_stage(struct web_connection *, const struct replies *);
void respond_history(struct web_connection *, const struct replies *);
bool write_history_of_all(struct web_connection *, struct body *, size_t *left);
void respond_policies(struct web_connection *, const struct replies *);
void respond_quotas(struct web_connection *, const struct replies *);
bool write_metrics(struct web_connection *, struct body *, size_t *left);  // metrics.c
bool write_snapshot(struct web_connection *, struct body *, size_t *left); // events.c
void send_snapshot(struct web_connection *);

// Responds with the file of the page at this path. False: there is none.
bool respond_page(struct web_connection *, const struct http_request *);

#endif
