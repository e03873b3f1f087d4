// Disk: the file system calls that the file log uses, as a table, so that tests can run it on a
// simulated disk that tears, loses, reorders and fails. Results are 0 (or a count) or -errno.
#ifndef LOG_DISK_H
#define LOG_DISK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Only the owner may read a store, whatever the umask: bodies may be confidential.
enum { DISK_FILE_MODE = 0600, DISK_DIR_MODE = 0700 };

// Writes to a descriptor that was opened with O_DIRECT go past the page cache. Their memory, size
// and offset are multiples of this. It is the largest block size of common disks and file systems;
// one that wants more answers -EINVAL.
enum { DISK_BLOCK = 4096 };

struct disk {
    int (*open)(const struct disk *, const char *path, int flags, int mode); // a descriptor
    int (*close)(const struct disk *, int fd);
    ssize_t (*pread)(const struct disk *, int fd, void *, size_t, uint64_t at);
    // The same, but only from the page cache. -EAGAIN: it would have to wait for the disk.
    ssize_t (*pread_now)(const struct disk *, int fd, void *, size_t, uint64_t at);
    // The range will be read soon.
    void (*advise)(const struct disk *, int fd, uint64_t from, uint64_t size);
    ssize_t (*pwrite)(const struct disk *, int fd, const void *, size_t, uint64_t at);
    // The same, and syncs the file's data before it returns.
    ssize_t (*pwrite_synced)(const struct disk *, int fd, const void *, size_t, uint64_t at);
    // Allocates blocks that read as zeros; the file grows if necessary.
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
