// Web: the server's front for browsers and scripts, HTTP/1.1:
//
//     bytes ─► request.c ─► guard.c: from whom, for whom? ─► route.c: which row?
//                                                               │ words of a command
//     bytes ◄─ response.c ◄─ json.c, metrics.c … ◄─ replies ◄───┘ run in the session
//
// So whatever a request does is a command of the server's table, and who may do it, what it costs
// and how it is refused is decided there. What one connection says is visit.c's; what all of them
// share, web.c's: streams of events (events.c) and what stages did lately (history.c).
//
// One thread, the server's.
#ifndef WEB_WEB_H
#define WEB_WEB_H

#include "server/front.h"

// For server_options. NULL: this build has no HTTP.
const struct front_impl *web_front(void);

#endif
