// See listen.h.
#include "server/listen.h"

#include "base/errors.h"
#include "server/loop.h"

#include <unistd.h>

enum { BACKLOG = 511 };

static int bind_to(struct listen_socket *l, const char *host, uint16_t port) {
    struct sockaddr_storage address;
    int err = uv_ip4_addr(host, port, (struct sockaddr_in *)&address);
    if (err < 0)
        err = uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address);
    return err < 0 ? err : uv_tcp_bind(&l->tcp, (struct sockaddr *)&address, 0);
}

int listen_on(struct listen_socket *l, const char *host, uint16_t *port, int fd) {
    struct sockaddr_storage address;
    int err = fd ? uv_tcp_open(&l->tcp, fd) : bind_to(l, host, *port);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    int size = sizeof address;
    if (err == 0)
        err = uv_tcp_getsockname(&l->tcp, (struct sockaddr *)&address, &size);
    if (err != 0)
        return error_set(
            MR_ENET, "cannot listen on %s:%u: %s%s", host, *port, uv_strerror(err),
            err == UV_EADDRINUSE
                ? "; is another server running? Choose another port, or 0 for a free one"
                : "");
    *port = ntohs(((struct sockaddr_in *)&address)->sin_port); // at the same place for IPv6
    l->open = true;
    return 0;
}

int listen_on_file(struct listen_socket *l, const char *path, mode_t mode, int fd) {
    int err = fd ? 0 : socket_file_create(path, mode, &l->file, &fd);
    if (err < 0)
        return err;
    int failed = uv_tcp_open(&l->tcp, fd);
    if (failed == 0)
        failed = uv_listen((uv_stream_t *)&l->tcp, BACKLOG, on_connection);
    else
        close(fd);
    if (failed == 0) {
        l->open = true;
        return 0;
    }
    socket_file_remove(&l->file);
    return error_set(MR_ENET, "cannot listen on unix:%s: %s", path, uv_strerror(failed));
}

void listen_close(struct listen_socket *l) {
    socket_file_remove(&l->file);
    if (l->open)
        uv_close((uv_handle_t *)&l->tcp, NULL);
    l->open = false;
}
