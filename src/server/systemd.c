// See systemd.h.
#include "server/systemd.h"

#include "base/clock.h"
#include "base/errors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// ---- Messages to systemd ----------------------------------------------------------------------

// A name that begins with @ is abstract: its first byte is 0.
static socklen_t notify_address(struct sockaddr_un *out) {
    const char *name = getenv("NOTIFY_SOCKET");
    size_t size = name ? strlen(name) : 0;
    if (size < 2 || size > sizeof out->sun_path || (name[0] != '/' && name[0] != '@'))
        return 0;
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path, name, size);
    if (name[0] == '@')
        out->sun_path[0] = 0;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
}

void systemd_notify(const char *format, ...) {
    struct sockaddr_un to;
    socklen_t to_size = notify_address(&to);
    if (!to_size)
        return;
    char text[512];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t sent = sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                          (const struct sockaddr *)&to, to_size);
    (void)sent; // a failure is ignored: the server does not depend on it
    close(fd);
}

void systemd_notify_reloading(void) {
    systemd_notify("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, monotonic_us());
}

static uint64_t systemd_number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static bool is_for_another(const char *name) {
    return getenv(name) && systemd_number(name) != (uint64_t)getpid();
}

uint64_t systemd_watchdog_ms(void) {
    uint64_t us = systemd_number("WATCHDOG_USEC");
    if (!us || is_for_another("WATCHDOG_PID"))
        return 0;
    return us < 2000 ? 1 : us / 2000;
}

// ---- Socket activation ------------------------------------------------------------------------

enum { FIRST_FD = 3 };

static int check_listens(int fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 || !listens)
        return error_set(MR_EINVAL, "the socket from systemd does not listen: the unit needs "
                                    "ListenStream=");
    return 0;
}

static int address_write(int fd, char *out) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un file;
    } a = { 0 };
    socklen_t size = sizeof a;
    char host[INET6_ADDRSTRLEN];
    if (getsockname(fd, &a.any, &size) < 0)
        return error_set(MR_EINVAL, "the socket from systemd has no address: %s", strerror(errno));
    if (a.any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof host);
        snprintf(out, SYSTEMD_ADDRESS, "%s:%u", host, ntohs(a.v4.sin_port));
    } else if (a.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof host);
        snprintf(out, SYSTEMD_ADDRESS, "[%s]:%u", host, ntohs(a.v6.sin6_port));
    } else if (a.any.sa_family == AF_UNIX && a.file.sun_path[0]) {
        snprintf(out, SYSTEMD_ADDRESS, "unix:%.*s", (int)sizeof a.file.sun_path, a.file.sun_path);
    } else {
        return error_set(MR_EINVAL, "the socket from systemd has neither a TCP address nor a path");
    }
    return 0;
}

int systemd_socket(int *out_fd, char out_address[SYSTEMD_ADDRESS]) {
    bool is_ours = getenv("LISTEN_PID") && !is_for_another("LISTEN_PID");
    uint64_t count = is_ours ? systemd_number("LISTEN_FDS") : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (!count)
        return 0;
    if (count > 1)
        return error_set(MR_EINVAL,
                         "systemd has passed %" PRIu64 " sockets: the server supports one", count);
    int err = check_listens(FIRST_FD);
    if (err == 0)
        err = address_write(FIRST_FD, out_address);
    if (err < 0)
        return err;
    fcntl(FIRST_FD, F_SETFD, FD_CLOEXEC);
    *out_fd = FIRST_FD;
    return 0;
}
