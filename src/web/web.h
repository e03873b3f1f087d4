// Web: HTTP/1.1 for browsers and scripts, as a front of the server (server/front.h):
//
//     bytes ─► request.c ─► guard.c: Host, Origin ─► route.c: find the row
//                                                               │ words of a command
//     bytes ◄─ respond.c ◄─ info.c, metrics.c …  ◄─ replies ◄───┘ run in the session
//
// Every request runs commands of the server's table, which decides on permissions, costs and
// refusals. web_connection.c handles one connection, web.c what all connections share: timeouts,
// streams of events (events.c) and samples of stages (series.c).
//
// One thread, the server's.
#ifndef WEB_WEB_H
#define WEB_WEB_H

#include "server/front.h"

// For server_options. NULL: this build has no HTTP.
const struct front_impl *web_front(void);

#endif
