// A segment file of any bytes, in which the input places whole frames: walking through
// it ends, finds no frame that reaches beyond its end, and a survey's damaged stretches follow one
// another within the file.
//
// A byte chooses what comes next: an entry, a seal, a stretch to be passed over, or bytes as they
// are; the next says how many. Bits beyond that make a frame wrong.
#include "base/buffer.h"
#include "log/survey.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILE_MOST = 1 << 15, BASE = 1 << 20 };

static struct {
    uint8_t bytes[FILE_MOST];
    size_t size;
} file;

static ssize_t read_file(const struct disk *d, int fd, void *to, size_t size, uint64_t at) {
    (void)d, (void)fd;
    size_t left = at < file.size ? file.size - at : 0, some = size < left ? size : left;
    memcpy(to, file.bytes + (some ? at : 0), some);
    return (ssize_t)some;
}

static const struct disk disk = { .pread = read_file };

static void add_entry(uint8_t what, const uint8_t *data, size_t size) {
    size_t head = size / 2;
    struct entry e = { .head = { data, head }, .body = { data + head, size - head } };
    size_t need = entry_size(head, size - head);
    if (file.size + need > FILE_MOST)
        return;
    frame_put(file.bytes + file.size, BASE + file.size, &e, what >> 2 & 15, what);
    if (what & 128)
        file.bytes[file.size + what % need] ^= 1;
    file.size += need;
}

static void add_mark(uint8_t what, size_t some) {
    size_t need = (ENTRY_FRAME + some + 7) & ~(size_t)7;
    if (file.size + need > FILE_MOST)
        return;
    uint32_t flags = what & 4 ? FRAME_SEAL : FRAME_SKIP;
    frame_put_mark(file.bytes + file.size, BASE + file.size, flags, need, what);
    file.size += need;
}

static void add_bytes(const uint8_t *data, size_t size) {
    if (file.size + size > FILE_MOST)
        return;
    if (size)
        memcpy(file.bytes + file.size, data, size);
    file.size += size;
}

static void make_file(const uint8_t *data, size_t size) {
    memset(file.bytes, 0, SEGMENT_START);
    file.size = SEGMENT_START;
    for (size_t at = 0; at + 2 <= size;) {
        uint8_t what = data[at], asked = data[at + 1];
        at += 2;
        size_t some = asked < size - at ? asked : size - at;
        if (what % 4 == 0)
            add_mark(what, asked);
        else if (what % 4 == 1)
            add_bytes(data + at, some);
        else
            add_entry(what, data + at, some);
        at += what % 4 ? some : 0;
    }
}

static struct walk walk_from(uint64_t at, bool bodies, size_t step) {
    return (struct walk){ .disk = &disk,
                          .path = "fuzz",
                          .base = BASE,
                          .at = at,
                          .limit = file.size,
                          .bodies = bodies,
                          .step = step };
}

static void walk_all(bool bodies, size_t step) {
    struct walk w = walk_from(SEGMENT_START, bodies, step);
    struct walk_frame f;
    for (uint64_t at = w.at; walk_next(&w, &f) == 1; at = w.at) {
        assert(f.at == at && w.at > at && w.at <= file.size);
        assert(walk_head(&f).size + f.frame.body_size <= w.at - at);
    }
    uint64_t from = w.at;
    if (walk_find(&w, file.size, &f) == 1)
        assert(f.at >= from && w.at <= file.size);
    walk_finish(&w);
}

static void survey_all(void) {
    struct survey s;
    struct stretch stretch;
    uint64_t before = SEGMENT_START;
    int err = survey_begin(&s, walk_from(SEGMENT_START, true, 0));
    assert(err == 0);
    while (survey_next(&s, &stretch) == 1) {
        assert(stretch.from >= before && stretch.upto > stretch.from);
        assert(stretch.upto <= file.size);
        before = stretch.upto;
    }
    survey_finish(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    make_file(data, size);
    walk_all(false, 0);
    walk_all(true, 64);
    survey_all();
    return 0;
}
