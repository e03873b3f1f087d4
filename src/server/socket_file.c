// See socket_file.h. Servers that start at the same time lock the directory in turn: else one
// could remove the file that another has just created, because nothing listens on it yet.
#include "server/socket_file.h"

#include "base/errors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE = 511, LOCK_TRIES = 200, LOCK_PAUSE_NS = 5000000 };

static_assert(sizeof((struct sockaddr_un *)0)->sun_path == SOCKET_FILE_PATH, "the system's limit");

static int socket_file_address(const char *path, struct sockaddr_un *out) {
    size_t size = strlen(path);
    if (!size || size >= sizeof out->sun_path)
        return error_set(MR_EINVAL,
                         "cannot listen on unix:%.40s%s: the path of a socket has 1 to %d bytes, "
                         "this one has %zu",
                         path, size > 40 ? "..." : "", SOCKET_FILE_PATH - 1, size);
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(out->sun_path, path, size);
    return 0;
}

static int socket_file_refuse(const char *path, int failed) {
    return error_set(MR_ENET, "cannot listen on unix:%s: %s%s", path, strerror(failed),
                     failed == ENOENT ? "; its directory must exist" : "");
}

// A lock of the directory, until the descriptor is closed. -1: it cannot be read, or no lock was
// free for a second; the server then starts without.
static int lock_directory(const char *path) {
    char name[SOCKET_FILE_PATH] = ".";
    const char *slash = strrchr(path, '/');
    if (slash)
        snprintf(name, sizeof name, "%.*s", (int)(slash - path) + 1, path);
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        (void)nanosleep(&(struct timespec){ .tv_nsec = LOCK_PAUSE_NS }, NULL);
    return fd;
}

// 0: a process listens there; else why a connection is refused.
static int probe_listener(const struct sockaddr_un *at) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int failed = connect(fd, (const struct sockaddr *)at, sizeof *at) < 0 ? errno : 0;
    close(fd);
    return failed == EAGAIN ? 0 : failed; // its queue is full
}

static int remove_stale(const struct sockaddr_un *at) {
    const char *path = at->sun_path;
    struct stat file;
    if (lstat(path, &file) < 0)
        return errno == ENOENT ? 0 : socket_file_refuse(path, errno);
    if (!S_ISSOCK(file.st_mode))
        return error_set(MR_EINVAL,
                         "cannot listen on unix:%s: a file that is no socket is there, and stays; "
                         "choose another path, or remove it",
                         path);
    int failed = probe_listener(at);
    if (!failed)
        return error_set(MR_ENET,
                         "cannot listen on unix:%s: another server listens there; stop it, or "
                         "choose another path",
                         path);
    if (failed != ECONNREFUSED || unlink(path) < 0)
        return error_set(MR_ENET, "cannot replace the socket unix:%s: %s", path,
                         strerror(failed != ECONNREFUSED ? failed : errno));
    return 0;
}

// Linux gives the file the permissions of the descriptor without those of the umask, so they are
// never wider than `mode`; chmod adds what the umask has removed.
static int bind_file(int fd, const struct sockaddr_un *at, mode_t mode, struct socket_file *out) {
    struct stat file;
    const char *path = at->sun_path;
    if (fchmod(fd, mode) < 0 || bind(fd, (const struct sockaddr *)at, sizeof *at) < 0)
        return socket_file_refuse(path, errno);
    if (lstat(path, &file) == 0 && ((file.st_mode & 0777) == mode || chmod(path, mode) == 0) &&
        listen(fd, QUEUE) == 0) {
        *out = (struct socket_file){ .device = file.st_dev, .inode = file.st_ino };
        snprintf(out->path, sizeof out->path, "%s", path);
        return 0;
    }
    int failed = errno;
    (void)unlink(path);
    return socket_file_refuse(path, failed);
}

int socket_file_create(const char *path, mode_t mode, struct socket_file *out, int *out_fd) {
    struct sockaddr_un at;
    int err = socket_file_address(path, &at);
    if (err < 0)
        return err;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return socket_file_refuse(path, errno);
    int directory = lock_directory(path);
    err = remove_stale(&at);
    if (err == 0)
        err = bind_file(fd, &at, mode, out);
    if (directory >= 0)
        close(directory);
    if (err < 0)
        close(fd);
    else
        *out_fd = fd;
    return err;
}

void socket_file_remove(struct socket_file *f) {
    struct stat now;
    if (f->path[0] && lstat(f->path, &now) == 0 && now.st_dev == f->device &&
        now.st_ino == f->inode)
        (void)unlink(f->path); // the next server replaces one that cannot be removed
    f->path[0] = 0;
}
