// Disk: the few things that the file log asks of a file system, so that tests can put a disk
// underneath that tears, loses, reorders and fails. Results are 0 (or a count) or -errno.
#ifndef LOG_DISK_H
#define LOG_DISK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// What is stored is its owner's only, whatever the umask: bodies may be anything.
enum { DISK_FILE_MODE = 0600, DISK_DIR_MODE = 0700 };

struct disk {
    int (*open)(const struct disk *, const char *path, int flags, int mode); // a descriptor
    int (*close)(const struct disk *, int fd);
    ssize_t (*pread)(const struct disk *, int fd, void *, size_t, uint64_t at);
    // The same of what is in memory; -EAGAIN: the disk would have to be waited for.
    ssize_t (*pread_now)(const struct disk *, int fd, void *, size_t, uint64_t at);
    void (*advise)(const struct disk *, int fd, uint64_t from, uint64_t size); // read soon
    ssize_t (*pwrite)(const struct disk *, int fd, const void *, size_t, uint64_t at);
    // Real blocks that read as zeros; the file grows if need be.
    int (*allocate)(const struct disk *, int fd, uint64_t from, uint64_t size);
    int (*truncate)(const struct disk *, int fd, uint64_t size);
    int (*sync)(const struct disk *, int fd); // fdatasync
    int64_t (*size)(const struct disk *, int fd);
    int (*rename)(const struct disk *, const char *from, const char *to);
    int (*unlink)(const struct disk *, const char *path);
    int (*make_dir)(const struct disk *, const char *path);
    int (*sync_dir)(const struct disk *, const char *path);
    // Calls `each` with every name in the directory, in sorted order.
    int (*list)(const struct disk *, const char *path, int (*each)(void *arg, const char *name),
                void *arg);
    int (*lock)(const struct disk *, int fd); // -EWOULDBLOCK: another process has it
};

extern const struct disk disk_os;

#endif
