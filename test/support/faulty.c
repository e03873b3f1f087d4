// Simulates disk failures for servers in separate processes: loaded before libc (LD_PRELOAD), it
// checks before each call whether the file that MILLRACE_FAULTS names orders a failure. A line
// orders one kind, until the file is changed:
//
//     sync EIO        fdatasync and fsync fail, and pwritev2 after it has written what it syncs
//     write ENOSPC    pwrite and pwritev2 fail; "write short" writes half
//     allocate ENOSPC fallocate fails
//     open EMFILE     open fails, of files in a store
//
// "sync gate" and "open gate" make these calls wait instead: each writes a byte to the pipe
// MILLRACE_FAULTS.arrived, and goes on once it has read one from MILLRACE_FAULTS.gate.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ORDER_SHORT = -1, ORDER_GATE = -2 };

static const struct {
    const char *name;
    int value;
} errors[] = { { "EIO", EIO },       { "ENOSPC", ENOSPC },     { "EROFS", EROFS },
               { "EMFILE", EMFILE }, { "short", ORDER_SHORT }, { "gate", ORDER_GATE },
               { NULL, 0 } };

static int error_of(const char *name) {
    for (int i = 0; errors[i].name; i++)
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].value;
    return 0;
}

// 0: nothing is ordered for this kind of call.
static int ordered(const char *kind) {
    const char *path = getenv("MILLRACE_FAULTS");
    FILE *orders = path ? fopen(path, "re") : NULL;
    char what[32], error[32];
    int found = 0;
    while (orders && !found && fscanf(orders, "%31s %31s", what, error) == 2)
        if (strcmp(what, kind) == 0)
            found = error_of(error);
    if (orders)
        fclose(orders);
    return found;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int open_pipe(const char *which, int flags) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s.%s", getenv("MILLRACE_FAULTS"), which);
    int fd = REAL(open64)(path, flags | O_CLOEXEC);
    if (fd < 0)
        abort(); // the test has not made it
    return fd;
}

// Tells the test that a call is here, and waits until the test lets it go on.
static void wait_at_gate(void) {
    int arrived = open_pipe("arrived", O_WRONLY), gate = open_pipe("gate", O_RDONLY);
    char byte = 0;
    if (write(arrived, &byte, 1) != 1 || read(gate, &byte, 1) != 1)
        abort();
    close(arrived);
    close(gate);
}

static bool fails(const char *kind) {
    int error = ordered(kind);
    if (error == ORDER_GATE)
        wait_at_gate();
    if (error > 0)
        errno = error;
    return error > 0;
}

int fdatasync(int fd) {
    return fails("sync") ? -1 : REAL(fdatasync)(fd);
}

int fsync(int fd) {
    return fails("sync") ? -1 : REAL(fsync)(fd);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    if (fails("write"))
        return -1;
    if (size > 1 && ordered("write") == ORDER_SHORT)
        size /= 2;
    return REAL(pwrite64)(fd, from, size, at);
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t at, int flags) {
    if (fails("write"))
        return -1;
    struct iovec half = { pieces->iov_base, pieces->iov_len / 2 };
    bool is_short = ordered("write") == ORDER_SHORT;
    ssize_t n = REAL(pwritev64v2)(fd, is_short ? &half : pieces, is_short ? 1 : count, at, flags);
    return n >= 0 && flags & RWF_DSYNC && fails("sync") ? -1 : n;
}

int fallocate64(int fd, int mode, off64_t from, off64_t size) {
    return fails("allocate") ? -1 : REAL(fallocate64)(fd, mode, from, size);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    size_t size = strlen(path);
    bool of_store = size > 4 && (strcmp(path + size - 4, ".seg") == 0 || strstr(path, "spare"));
    return of_store && fails("open") ? -1 : REAL(open64)(path, flags, mode);
}
