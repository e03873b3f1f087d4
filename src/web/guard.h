// Guard: whether a request may come in at all, whoever sends it. Browsers send what pages from
// anywhere tell them to; what they do not lie about is the name they looked up (Host) and the page
// that asks (Origin).
//
// Pure.
#ifndef WEB_GUARD_H
#define WEB_GUARD_H

#include "web/request.h"

struct guard {
    const char *address; // where the server listens, in digits
    const char *names;   // what else it is called, with commas between; NULL: nothing
};

// 0, or the status to refuse it with; the sentence is in error_text().
int guard_check(const struct guard *, const struct http_request *);

// The secret that the request carries; no data: none.
mr_bytes guard_secret(const struct http_request *);

#endif
