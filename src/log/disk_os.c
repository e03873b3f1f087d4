// The real disk: each function is one system call, and handles EINTR and missing features.
#include "log/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// If a process has no stdin, stdout or stderr, a file of the store must not get such a descriptor:
// library code might write to it.
static int above_standard(int fd) {
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), why = errno;
    close(fd);
    errno = why;
    return above;
}

static int os_open(const struct disk *d, const char *path, int flags, int mode) {
    (void)d;
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, mode); // the path may be a pipe
    while (fd < 0 && errno == EINTR);
    fd = above_standard(fd);
    return fd < 0 ? -errno : fd;
}

static int os_close(const struct disk *d, int fd) {
    (void)d;
    return close(fd) < 0 ? -errno : 0;
}

static ssize_t os_pread(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    (void)d;
    ssize_t n;
    do
        n = pread(fd, to, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

// Some file systems do not support RWF_NOWAIT: there this waits for the disk.
static ssize_t os_pread_now(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    struct iovec piece = { to, size };
    ssize_t n;
    do
        n = preadv2(fd, &piece, 1, (off_t)at, RWF_NOWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        return os_pread(d, fd, to, size, at);
    return n < 0 ? -errno : n;
}

static void os_advise(const struct disk *d, int fd, uint64_t from, uint64_t size) {
    (void)d;
    (void)posix_fadvise(fd, (off_t)from, (off_t)size, POSIX_FADV_WILLNEED); // a hint only
}

static ssize_t os_pwrite(const struct disk *d, int fd, const void *from, size_t size, uint64_t at) {
    (void)d;
    ssize_t n;
    do
        n = pwrite(fd, from, size, (off_t)at);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int os_sync(const struct disk *d, int fd) {
    (void)d;
    return fdatasync(fd) < 0 ? -errno : 0;
}

// Kernels before 4.7 have no RWF_DSYNC.
static ssize_t os_pwrite_synced(const struct disk *d, int fd, const void *from, size_t size,
                                uint64_t at) {
    struct iovec piece = { (void *)(uintptr_t)from, size };
    ssize_t n;
    do
        n = pwritev2(fd, &piece, 1, (off_t)at, RWF_DSYNC);
    while (n < 0 && errno == EINTR);
    if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS))
        return n < 0 ? -errno : n;
    n = os_pwrite(d, fd, from, size, at);
    int err = n < 0 ? (int)n : os_sync(d, fd);
    return err < 0 ? err : n;
}

static int os_write_zeros(const struct disk *d, int fd, uint64_t from, uint64_t size) {
    static const char zeros[1 << 16];
    while (size > 0) {
        size_t step = size < sizeof zeros ? (size_t)size : sizeof zeros;
        ssize_t n = os_pwrite(d, fd, zeros, step, from);
        if (n < 0)
            return (int)n;
        from += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

static int os_allocate(const struct disk *d, int fd, uint64_t from, uint64_t size) {
    int err;
    do
        err = fallocate(fd, 0, (off_t)from, (off_t)size) < 0 ? -errno : 0;
    while (err == -EINTR);
    return err == -EOPNOTSUPP ? os_write_zeros(d, fd, from, size) : err;
}

static int os_truncate(const struct disk *d, int fd, uint64_t size) {
    (void)d;
    return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static int64_t os_size(const struct disk *d, int fd) {
    (void)d;
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : st.st_size;
}

static int os_rename(const struct disk *d, const char *from, const char *to) {
    (void)d;
    return rename(from, to) < 0 ? -errno : 0;
}

static int os_unlink(const struct disk *d, const char *path) {
    (void)d;
    return unlink(path) < 0 ? -errno : 0;
}

static int os_make_dir(const struct disk *d, const char *path) {
    (void)d;
    return mkdir(path, DISK_DIR_MODE) < 0 ? -errno : 0;
}

static int os_sync_dir(const struct disk *d, const char *path) {
    int fd = os_open(d, path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return fd;
    int err = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return err;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int os_list(const struct disk *d, const char *path, int (*each)(void *arg, const char *name),
                   void *arg) {
    (void)d;
    struct dirent **names;
    int count = scandir(path, &names, NULL, by_bytes);
    if (count < 0)
        return -errno;
    int err = 0;
    for (int i = 0; i < count; i++) {
        const char *name = names[i]->d_name;
        if (err == 0 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
            err = each(arg, name);
        free(names[i]);
    }
    free(names);
    return err;
}

static int os_lock(const struct disk *d, int fd) {
    (void)d;
    return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

const struct disk disk_os = {
    .open = os_open,
    .close = os_close,
    .pread = os_pread,
    .pread_now = os_pread_now,
    .advise = os_advise,
    .pwrite = os_pwrite,
    .pwrite_synced = os_pwrite_synced,
    .allocate = os_allocate,
    .truncate = os_truncate,
    .sync = os_sync,
    .size = os_size,
    .rename = os_rename,
    .unlink = os_unlink,
    .make_dir = os_make_dir,
    .sync_dir = os_sync_dir,
    .list = os_list,
    .lock = os_lock,
};
