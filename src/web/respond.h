// Answers to requests, as bytes: heads that every response has, JSON of what commands replied,
// errors with the status that their code stands for.
#ifndef WEB_RESPOND_H
#define WEB_RESPOND_H

#include "web/request.h"
#include "web/route.h"

struct visit;

struct http_response {
    enum http_status status;
    const char *type; // of the body; NULL: JSON
    mr_bytes body;
    const char *etag;  // NULL: it is not to be kept
    const char *allow; // which methods there are; NULL: that was not the question
    bool packed;       // the body is gzip
    bool lasting;      // the same path never has another body
    bool endless;      // what is sent is all that will ever come: no size is known
};

// Writes all of it behind what the visit has to send already, and ends the request.
void respond(struct visit *, const struct http_response *);

// {"error": CODE, "message": SENTENCE}; and then the connection is closed, if that was not read
// through.
void respond_refusal(struct visit *, enum http_status, const char *code, mr_bytes sentence);
void respond_wrong(struct visit *, enum http_status); // ERR, and error_text()

// The same without a visit: all of a response. Returns its size.
size_t respond_write_full(const char *why, char *to, size_t room);

// What the row of the table makes of replies; the first may be an error.
void respond_replies(struct visit *, const struct route *, const struct replies *);

// ---- The rows that have their own ---------------------------------------------------------------

void respond_health(struct visit *, const struct replies *);
void respond_info(struct visit *, const struct replies *);
void respond_stage(struct visit *, const struct replies *);
void respond_policies(struct visit *, const struct replies *);
void respond_metrics(struct visit *, const struct replies *); // metrics.c
void respond_events(struct visit *, const struct replies *);  // events.c

// A file of the page, by its path. False: there is none.
bool respond_page(struct visit *, const struct http_request *);

#endif
