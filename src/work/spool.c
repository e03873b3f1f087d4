// Bytes in memory, then in a file. The file is read back by mapping it or in pieces, so that what a
// command has written is never in memory twice.
#include "work/spool.h"

#include "base/errors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 64 << 10, TAIL = 1024 };

static int fail_file(const char *doing) {
    return error_set(errno == ENOMEM ? MR_ENOMEM : MR_EIO, "a temporary file cannot be %s: %s",
                     doing, strerror(errno));
}

int file_unnamed(void) {
    const char *dir = getenv("TMPDIR");
    dir = dir && *dir ? dir : "/tmp";
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd < 0 ? fail_file("made") : fd;
    char path[4096]; // a file system without O_TMPFILE
    snprintf(path, sizeof path, "%s/millrace-XXXXXX", dir);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail_file("made");
    unlink(path);
    return fd;
}

int file_write(int to, const void *data, size_t size) {
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t written = write(to, at, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN) { // another process has made it non-blocking
            poll(&(struct pollfd){ .fd = to, .events = POLLOUT }, 1, -1);
            continue;
        }
        if (written < 0)
            return error_set(MR_EIO, "writing failed: %s", strerror(errno));
        at += written;
        size -= (size_t)written;
    }
    return 0;
}

static int move_to_file(struct spool *s) {
    int fd = file_unnamed();
    if (fd < 0)
        return fd;
    int err = file_write(fd, s->memory.data, s->memory.size);
    if (err < 0) {
        close(fd);
        return err;
    }
    s->file = fd;
    buffer_finish(&s->memory);
    return 0;
}

int spool_append(struct spool *s, const void *data, size_t size) {
    int err = 0;
    if (!s->file && s->size + size > SPOOL_MEMORY)
        err = move_to_file(s);
    if (err >= 0)
        err = s->file ? file_write(s->file, data, size) : buffer_append(&s->memory, data, size);
    if (err >= 0)
        s->size += size;
    return err;
}

void spool_cut(struct spool *s, uint64_t size) {
    assert(size <= s->size);
    s->size = size;
    if (!s->file)
        s->memory.size = size;
    else if (ftruncate(s->file, (off_t)size) == 0)
        lseek(s->file, (off_t)size, SEEK_SET);
}

static void unmap(struct spool *s) {
    if (s->map)
        munmap(s->map, s->mapped);
    s->map = NULL;
}

int spool_bytes(struct spool *s, mr_bytes *out) {
    if (!s->file) {
        *out = buffer_bytes(&s->memory);
        return 0;
    }
    if (!s->map || s->mapped != s->size) {
        unmap(s);
        void *map = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->file, 0);
        if (map == MAP_FAILED)
            return fail_file("mapped");
        s->map = map;
        s->mapped = s->size;
    }
    *out = (mr_bytes){ s->map, s->size };
    return 0;
}

// Copies up to `size` bytes from the place `at`. Returns how many; 0: there are no more.
static ssize_t read_at(const struct spool *s, uint64_t at, void *out, size_t size) {
    if (s->file)
        return pread(s->file, out, size, (off_t)at);
    size_t left = s->memory.size - at;
    size_t count = left < size ? left : size;
    if (count > 0)
        memcpy(out, s->memory.data + at, count);
    return (ssize_t)count;
}

int spool_write(const struct spool *s, int to) {
    if (!s->file)
        return file_write(to, s->memory.data, s->memory.size);
    uint8_t piece[PIECE];
    for (uint64_t at = 0; at < s->size;) {
        ssize_t got = read_at(s, at, piece, sizeof piece);
        if (got <= 0)
            return error_set(MR_EIO, "a temporary file cannot be read: %s",
                             got < 0 ? strerror(errno) : "it is shorter than it was");
        int err = file_write(to, piece, (size_t)got);
        if (err < 0)
            return err;
        at += (uint64_t)got;
    }
    return 0;
}

static bool is_end(char c) {
    return c == '\n' || c == '\r' || c == ' ' || c == '\t' || c == 0;
}

void spool_keep_end(struct spool *s, size_t size) {
    if (s->file || s->size <= 2 * size)
        return;
    memmove(s->memory.data, s->memory.data + s->memory.size - size, size);
    s->memory.size = size;
    s->size = size;
}

size_t spool_end(const struct spool *s, void *out, size_t size) {
    uint64_t from = s->size > size ? s->size - size : 0;
    ssize_t got = read_at(s, from, out, size);
    return got > 0 ? (size_t)got : 0;
}

void spool_last_line(const struct spool *s, char *out, size_t size) {
    char tail[TAIL];
    size_t end = spool_end(s, tail, sizeof tail);
    while (end > 0 && is_end(tail[end - 1]))
        end--;
    size_t begin = end;
    while (begin > 0 && tail[begin - 1] != '\n' && tail[begin - 1] != '\r')
        begin--;
    size_t count = end - begin < size - 1 ? end - begin : size - 1;
    for (size_t i = 0; i < count; i++) {
        unsigned char c = (unsigned char)tail[begin + i];
        out[i] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
    }
    out[count] = 0;
}

void spool_finish(struct spool *s) {
    unmap(s);
    if (s->file)
        close(s->file);
    buffer_finish(&s->memory);
    *s = (struct spool){ 0 };
}
