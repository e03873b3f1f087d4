// Free ports. The sockets listen from here on and are passed to the server: no other program can
// take a port between the search and the start.
#include "cli/dev/dev.h"

#include "base/errors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG_MOST = 128 }; // the server sets its own when it takes the socket over

// Returns a socket, or -1 with errno.
static int listen_at(uint16_t port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    if (fd < 0)
        return -1;
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    bool listens = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
                   listen(fd, BACKLOG_MOST) == 0;
    if (listens)
        return fd;
    int reason = errno;
    close(fd);
    errno = reason;
    return -1;
}

int dev_listen(uint16_t port, int *out_fd, uint16_t *out_port) {
    int fd = -1;
    uint16_t at = port;
    for (int i = 0; i < DEV_PORTS && fd < 0; i++) {
        at = (uint16_t)(port + i);
        fd = listen_at(at);
        if (fd < 0 && errno != EADDRINUSE)
            break;
    }
    if (fd < 0)
        return error_set(MR_ENET, "cannot listen on 127.0.0.1, at ports %u to %u: %s", port, at,
                         strerror(errno));
    *out_fd = fd;
    *out_port = at;
    return 0;
}
