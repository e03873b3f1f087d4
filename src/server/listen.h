// Listening sockets of a server: TCP, a Unix-domain socket, and the front's. All three are TCP
// handles of libuv, which accepts any stream socket in them (uv_tcp_open). The first loop's thread.
#ifndef SERVER_LISTEN_H
#define SERVER_LISTEN_H

#include "server/socket_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct loop;

// Where clients connect.
struct listen_socket {
    uv_tcp_t tcp; // first, so that a handle can be cast
    struct loop *loop;
    struct socket_file file; // of a Unix-domain socket that the server has made
    bool open;
    bool waiting;  // a connection waits to be accepted until another is closed …
    bool another;  // … or until a refusal is sent …
    bool deferred; // … or until the sockets were polled
};

enum listen_kind { LISTEN_TCP, LISTEN_UNIX, LISTEN_FRONT, LISTEN_KINDS };

// Listens on an address, or uses `fd`, which already listens. Sets `*port` to the actual port.
// MR_ENET.
int listen_on(struct listen_socket *, const char *host, uint16_t *port, int fd);

// The same for a path. Errors of socket_file_create.
int listen_on_file(struct listen_socket *, const char *path, mode_t mode, int fd);

// Accepts no more, and removes the file. Does nothing for one that is not open.
void listen_close(struct listen_socket *);

#endif
