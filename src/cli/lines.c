// See lines.h.
#include "cli/lines.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <errno.h>
#include <unistd.h>

enum { READ_SIZE = 64 << 10 };

// Moves what is left to the front: lines that were returned are not needed any more.
static void compact(struct lines *l) {
    if (!l->start)
        return;
    memmove(l->bytes.data, l->bytes.data + l->start, l->bytes.size - l->start);
    l->bytes.size -= l->start;
    l->scanned -= l->start;
    l->start = 0;
}

int lines_read(struct lines *l, int fd) {
    compact(l);
    int err = buffer_reserve(&l->bytes, READ_SIZE);
    if (err < 0)
        return err;
    ssize_t got = read(fd, l->bytes.data + l->bytes.size, READ_SIZE);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (got < 0)
        return error_set(MR_EIO, "the input cannot be read: %s", strerror(errno));
    l->bytes.size += (size_t)got;
    l->ended = got == 0;
    return 0;
}

// Byte by byte, so that it does not matter in which pieces they came.
static void drop(struct lines *l, const uint8_t *from, const uint8_t *to) {
    l->dropped += (uint64_t)(to - from);
    for (const uint8_t *p = from; p < to; p++)
        l->dropped_hash = (l->dropped_hash ^ *p) * UINT64_C(0x100000001b3);
}

// The line has no end yet: what it has beyond LINE_MOST is not kept.
static void shorten(struct lines *l) {
    if (l->bytes.size - l->start > LINE_MOST) {
        drop(l, l->bytes.data + l->start + LINE_MOST, l->bytes.data + l->bytes.size);
        l->bytes.size = l->start + LINE_MOST;
    }
    l->scanned = l->bytes.size;
}

static uint64_t line_hash(const struct lines *l, mr_bytes text) {
    uint64_t hash = bytes_hash(text, 0);
    return l->dropped ? hash ^ l->dropped_hash ^ l->dropped : hash;
}

static void return_line(struct lines *l, const uint8_t *end, struct line *out) {
    const uint8_t *begin = l->bytes.data + l->start;
    const uint8_t *most = (size_t)(end - begin) > LINE_MOST ? begin + LINE_MOST : end;
    drop(l, most, end);
    mr_bytes text = { begin, (size_t)(most - begin) };
    *out = (struct line){ .number = ++l->number,
                          .text = text,
                          .size = text.size + l->dropped,
                          .hash = line_hash(l, text) };
    l->dropped = l->dropped_hash = 0;
}

bool lines_next(struct lines *l, struct line *out) {
    size_t left = l->bytes.size - l->scanned;
    const uint8_t *end = left ? memchr(l->bytes.data + l->scanned, l->delimiter, left) : NULL;
    bool last = !end && l->ended && (l->bytes.size > l->start || l->dropped);
    if (!end && !last) {
        shorten(l);
        return false;
    }
    return_line(l, last ? l->bytes.data + l->bytes.size : end, out);
    l->start = l->scanned = last ? l->bytes.size : (size_t)(end - l->bytes.data) + 1;
    return true;
}

void lines_finish(struct lines *l) {
    buffer_finish(&l->bytes);
}
