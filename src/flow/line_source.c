// A source of the lines of a file. A block is as many whole lines as it takes to have 256 KiB, so
// a block's number determines where in the file it begins: to go on at a block, those before it
// are read and skipped.
//
// cli/lines.h also cuts input into lines, for the command line. It differs: its caller reads when
// it likes, from any descriptor, chooses the delimiter, and gets the size and hash of lines that
// are too long. Here such a line is an error, because a flow cannot refuse a single pair.
#include "base/errors.h"
#include "base/mem.h"
#include "flow/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINES_BYTES = 256 << 10, READ_BYTES = 256 << 10, LINE_MOST = 15 << 20 };

struct line_source {
    char *path;
    int fd;
    uint64_t next;         // the block that is read next
    uint64_t size, passed; // bytes of the file, if it is one, and of them in blocks
    bool over;
    struct buffer text; // read, used up to `at`
    size_t at;
};

int line_source_open(const char *path, struct line_source **out) {
    struct line_source *l = mem_alloc(sizeof *l + strlen(path) + 1);
    if (!l)
        return error_set(MR_ENOMEM, "no memory to read %s", path);
    *l = (struct line_source){ .path = (char *)(l + 1), .next = 1 };
    memcpy(l->path, path, strlen(path) + 1);
    l->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (l->fd < 0) {
        mem_free(l);
        return error_set(MR_EIO, "cannot open %s: %s", path, strerror(errno));
    }
    struct stat about;
    l->size = fstat(l->fd, &about) == 0 && S_ISREG(about.st_mode) ? (uint64_t)about.st_size : 0;
    *out = l;
    return 0;
}

void line_source_close(struct line_source *l) {
    if (!l)
        return;
    close(l->fd);
    buffer_finish(&l->text);
    mem_free(l);
}

static int line_source_fill(struct line_source *l, mr_flow_out *out) {
    int err = buffer_reserve(&l->text, READ_BYTES);
    if (err < 0)
        return out_fail(out, err, "%s", error_text());
    l->text.size -= l->at;
    memmove(l->text.data, l->text.data + l->at, l->text.size);
    l->at = 0;
    ssize_t n;
    do
        n = read(l->fd, l->text.data + l->text.size, READ_BYTES);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return out_fail(out, MR_EIO, "cannot read %s: %s", l->path, strerror(errno));
    l->text.size += (size_t)n;
    l->over = n == 0;
    return 0;
}

// The next line, without its end. MR_FLOW_END: there is none.
static int line_source_next(struct line_source *l, mr_flow_out *out, mr_bytes *line) {
    for (size_t seen = 0;;) {
        size_t left = l->text.size - l->at;
        const char *from = left ? (const char *)l->text.data + l->at : "";
        const char *end = left > seen ? memchr(from + seen, '\n', left - seen) : NULL;
        if (end || (l->over && left)) {
            *line = (mr_bytes){ from, end ? (size_t)(end - from) : left };
            l->at += line->size + (end != NULL);
            return 0;
        }
        if (l->over)
            return MR_FLOW_END;
        seen = left;
        if (seen > LINE_MOST)
            return out_fail(out, MR_ETOOBIG, "%s has a line of more than 15 MiB", l->path);
        int err = line_source_fill(l, out);
        if (err < 0)
            return err;
    }
}

static int next_block(struct line_source *l, mr_flow_out *out, bool skip) {
    size_t bytes = 0;
    int err = 0;
    while (bytes < LINES_BYTES && err == 0) {
        mr_bytes line = { 0 };
        err = line_source_next(l, out, &line);
        if (err != 0)
            break;
        bytes += line.size + 1;
        err = skip ? 0 : mr_flow_emit(out, (mr_bytes){ 0 }, line);
    }
    if (err < 0)
        return err;
    l->next++;
    l->passed += bytes;
    return bytes ? 0 : MR_FLOW_END;
}

// If all blocks are as large as those so far.
static uint64_t blocks_of(uint64_t size, uint64_t passed, uint64_t blocks) {
    double all = (double)size / (double)passed * (double)blocks;
    return all > (double)blocks ? (uint64_t)(all + 0.999) : blocks;
}

int line_source_block(uint64_t number, mr_flow_out *out, void *arg) {
    struct line_source *l = arg;
    if (number < l->next)
        return out_fail(out, MR_EINVAL, "%s can not be read backwards", l->path);
    while (l->next < number) {
        int err = next_block(l, out, true);
        if (err == MR_FLOW_END)
            return out_fail(out, MR_EINVAL, "%s is shorter than what was read of it", l->path);
        if (err != 0)
            return err;
    }
    int err = next_block(l, out, false);
    if (err == 0 && l->size)
        (void)mr_flow_expect(out, blocks_of(l->size, l->passed, number)); // it is a source
    return err;
}
