// See store.h: URLs, locks, and sentences about them.
#include "cli/store.h"

#include "base/errors.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool begins_with(const char *url, const char *scheme) {
    return strncmp(url, scheme, strlen(scheme)) == 0;
}

const char *store_dir(const struct input *in, const char *url) {
    const char *name = in->command->name;
    if (begins_with(url, "file:") && url[strlen("file:")])
        return url + strlen("file:");
    if (begins_with(url, "file:"))
        complain("%s: 'file:' names no directory: file:DIR", name);
    else if (begins_with(url, "mem:"))
        complain("%s: a store in memory is seen by its own process only; file:DIR is possible",
                 name);
    else if (begins_with(url, "millrace"))
        complain("%s: a server's store is examined where it lies, as file:DIR", name);
    else if (strstr(url, "://"))
        complain("%s: '%.200s' is not possible here; file:DIR is", name, url);
    else
        complain("%s: '%.200s' is not the URL of a store; did you mean file:%.200s?", name, url,
                 url);
    return NULL;
}

enum cli_exit store_failed(const struct input *in, const char *dir, int err) {
    struct stat st;
    const char *name = in->command->name;
    if (stat(dir, &st) < 0)
        complain("%s: there is no store %s: %s", name, dir, strerror(errno));
    else if (!S_ISDIR(st.st_mode))
        complain("%s: %s is a file; a store is a directory", name, dir);
    else if (err == MR_EBUSY)
        complain("%s: %s; stop that first", name, error_text());
    else
        complain("%s: %s", name, error_text());
    return err == MR_EFULL ? CLI_FULL : CLI_UNOPENED;
}

static int lock_refused(int fd, const char *dir) {
    char holder[128] = { 0 };
    ssize_t size = pread(fd, holder, sizeof holder - 1, 0);
    holder[size > 0 ? strcspn(holder, "\n") : 0] = 0;
    return error_set(MR_EBUSY, "%s is in use by process %s", dir, holder[0] ? holder : "unknown");
}

int store_hold(const char *dir, int *out_fd) {
    char path[LOG_PATH];
    path_make(path, dir, "lock");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        *out_fd = -1;
        return 0;
    }
    if (fd < 0)
        return disk_failed(path, "open", -errno);
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        *out_fd = fd;
        return 0;
    }
    int err = errno == EWOULDBLOCK ? lock_refused(fd, dir) : disk_failed(path, "lock", -errno);
    close(fd);
    return err;
}

void store_note_use(const char *dir) {
    int fd = -1;
    int err = store_hold(dir, &fd);
    if (fd >= 0)
        close(fd);
    if (err == MR_EBUSY)
        complain("%s; this is how it looks now", error_text());
}
