// A disk that fails when it is told to, for servers in a process of their own: loaded before libc
// (LD_PRELOAD), it looks before each call whether the file that MILLRACE_FAULTS names orders a
// failure. A line orders one kind, until the file is changed:
//
//     sync EIO        fdatasync and fsync fail
//     write ENOSPC    pwrite fails; "write short" writes half
//     allocate ENOSPC fallocate fails
//     open EMFILE     open fails, of files in a store
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const struct {
    const char *name;
    int value;
} errors[] = { { "EIO", EIO },       { "ENOSPC", ENOSPC }, { "EROFS", EROFS },
               { "EMFILE", EMFILE }, { "short", -1 },      { NULL, 0 } };

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

static bool fails(const char *kind) {
    int error = ordered(kind);
    if (error > 0)
        errno = error;
    return error > 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fdatasync(int fd) {
    return fails("sync") ? -1 : REAL(fdatasync)(fd);
}

int fsync(int fd) {
    return fails("sync") ? -1 : REAL(fsync)(fd);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    if (fails("write"))
        return -1;
    if (size > 1 && ordered("write") < 0)
        size /= 2;
    return REAL(pwrite64)(fd, from, size, at);
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
