// Guard: checks of a request that do not depend on its token. A page from any site can make a
// browser send requests here; but the browser states correctly the name it looked up (Host) and the
// site of the page (Origin), so requests under foreign names and from foreign pages are refused.
//
// Pure.
#ifndef WEB_GUARD_H
#define WEB_GUARD_H

#include "web/request.h"

struct guard {
    const char *address; // the numeric address where the server listens
    const char *names;   // other names of the server, separated by commas; NULL: none
};

// Returns 0, or the status of the refusal; the message is in error_text().
int guard_check(const struct guard *, const struct http_request *);

// The Bearer secret of the request; data is NULL if there is none.
mr_bytes guard_secret(const struct http_request *);

#endif
