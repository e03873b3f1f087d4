// Requests: any command of the wire, over connections of a client, and its reply as it came. This
// is for commands that engine.h has no call for.
//
//     client_request, client_flush ─► link ─► I/O thread … reply ─► `ready_fd` becomes readable
//     client_reply   ◄── the oldest one that has not been returned yet
//
// Nothing says whether a command may be repeated, so none is sent twice: a request fails when its
// connection is lost, before or while it waits for the reply. The connection comes back by itself,
// and requests that are made then are sent.
#ifndef CLIENT_REQUEST_H
#define CLIENT_REQUEST_H

#include "client/client.h"
#include "wire/response.h"

struct client_connection;

// A connection of the engine `client`, which client_open made: the one it has, then further ones.
// `ready_fd` is an eventfd of the caller, which is written to when there is a reply; several
// connections may share one. MR_ENOMEM. All of them are to be closed before the engine is. A
// connection belongs to one thread at a time.
int client_connection_open(struct engine *client, int ready_fd, struct client_connection **out);
void client_connection_close(struct client_connection *); // replies that are missing are dropped

// Puts a request behind those before it, to be sent by client_flush. Copies the words. MR_ENET (or
// why the server refuses this client): there is no connection just now; MR_ETOOBIG, MR_ENOMEM.
int client_request(struct client_connection *, const mr_bytes *words, size_t count);

// Sends the requests of all connections. Without a wait; any thread.
void client_flush(struct engine *client);

// The next reply: 1, and its values until the next call for this connection; 0: it has not come;
// MR_ENET: the connection was lost before; MR_ENOMEM. An error of the server is a reply.
int client_reply(struct client_connection *, const struct response_value **out);

#endif
