// See index.h. The checksum of the content is computed block by block, each seeded with the sum
// before it, so that the builder keeps only one block in memory.
#include "log/index.h"

#include "base/errors.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>

enum { INDEX_HEADER = 64, INDEX_BLOCK = 256 << 10, INDEX_ENTRY = 12 };

static const char index_magic[8] = "MRINDEX\n";

//      0       8         12   16       24      32     40     48            56    64
//      │ magic │ version │ 0  │ number │ count │ size │ seal │ content sum │ sum │
static void index_header_put(uint8_t *raw, const struct index_builder *b, uint64_t seal) {
    memset(raw, 0, INDEX_HEADER);
    memcpy(raw, index_magic, sizeof index_magic);
    store_u32(raw + 8, LOG_FORMAT);
    store_u64(raw + 16, b->number);
    store_u64(raw + 24, b->count);
    store_u64(raw + 32, b->size);
    store_u64(raw + 40, seal);
    store_u64(raw + 48, b->sum);
    store_u64(raw + 56, XXH3_64bits(raw, 56));
}

static void index_path(char *out, const struct index_builder *b, const char *suffix) {
    segment_path(out, b->dir, b->number, suffix);
}

static void index_abandon(struct index_builder *b) {
    if (!b->active)
        return;
    char path[LOG_PATH];
    index_path(path, b, "idx.tmp");
    b->disk->close(b->disk, b->fd);
    b->disk->unlink(b->disk, path);
    b->active = false;
}

void index_begin(struct index_builder *b, const struct disk *disk, const char *dir,
                 uint64_t number) {
    index_abandon(b);
    if (!b->block)
        b->block = mem_resize(NULL, INDEX_BLOCK);
    if (!b->block)
        return;
    *b = (struct index_builder){ .disk = disk, .dir = dir, .number = number, .block = b->block };
    char path[LOG_PATH];
    index_path(path, b, "idx.tmp");
    b->fd = disk->open(disk, path, O_RDWR | O_CREAT | O_TRUNC, DISK_FILE_MODE);
    b->active = b->fd >= 0;
}

void index_finish(struct index_builder *b) {
    index_abandon(b);
    mem_free(b->block);
    *b = (struct index_builder){ 0 };
}

static void index_block_write(struct index_builder *b) {
    b->sum = XXH3_64bits_withSeed(b->block, b->filled, b->sum);
    uint64_t at = INDEX_HEADER + b->size - b->filled;
    if (disk_write_all(b->disk, b->fd, b->block, b->filled, at) < 0)
        index_abandon(b);
    b->filled = 0;
}

static void index_block_add(struct index_builder *b, const uint8_t *data, size_t size) {
    while (size > 0 && b->active) {
        size_t part = size < INDEX_BLOCK - b->filled ? size : INDEX_BLOCK - b->filled;
        memcpy(b->block + b->filled, data, part);
        b->filled += part;
        b->size += part;
        data += part;
        size -= part;
        if (b->filled == INDEX_BLOCK)
            index_block_write(b);
    }
}

void index_add(struct index_builder *b, const struct walk_frame *f) {
    if (!b->active || !frame_is_entry(&f->frame))
        return;
    uint8_t fields[INDEX_ENTRY];
    store_u32(fields, (uint32_t)(f->at / 8));
    store_u32(fields + 4, f->frame.head_size);
    store_u32(fields + 8, f->frame.body_size);
    index_block_add(b, fields, sizeof fields);
    index_block_add(b, f->raw + ENTRY_FRAME, f->frame.head_size);
    b->count++;
}

uint64_t index_end(struct index_builder *b, uint64_t seal) {
    if (b->active && b->filled > 0)
        index_block_write(b);
    if (!b->active)
        return 0;
    uint8_t raw[INDEX_HEADER];
    char from[LOG_PATH], to[LOG_PATH];
    index_header_put(raw, b, seal);
    index_path(from, b, "idx.tmp");
    index_path(to, b, "idx");
    if (disk_write_all(b->disk, b->fd, raw, sizeof raw, 0) < 0 ||
        b->disk->rename(b->disk, from, to) < 0) {
        index_abandon(b);
        return 0;
    }
    b->disk->close(b->disk, b->fd);
    b->active = false;
    return INDEX_HEADER + b->size;
}

static bool index_header_get(const uint8_t *raw, uint64_t number, struct index *out,
                             uint64_t *out_size) {
    if (memcmp(raw, index_magic, sizeof index_magic) != 0 || load_u32(raw + 8) != LOG_FORMAT ||
        load_u64(raw + 56) != XXH3_64bits(raw, 56) || load_u64(raw + 16) != number)
        return false;
    out->count = load_u64(raw + 24);
    out->seal = load_u64(raw + 40);
    *out_size = load_u64(raw + 32);
    return true;
}

static uint64_t content_sum(const struct buffer *content) {
    uint64_t sum = 0;
    for (size_t at = 0; at < content->size; at += INDEX_BLOCK) {
        size_t left = content->size - at;
        sum =
            XXH3_64bits_withSeed(content->data + at, left < INDEX_BLOCK ? left : INDEX_BLOCK, sum);
    }
    return sum;
}

static int index_unusable(const char *path) {
    return error_set(MR_EGONE, "%s: the index is missing or wrong", path);
}

// Whether its entries are in order, do not overlap and end before the seal, and are as many as the
// header says. The checksum alone does not prove that this engine wrote the file.
static bool index_is_sound(const struct index *x, uint64_t capacity) {
    if (x->seal % 8 || x->seal < SEGMENT_START || x->seal > capacity - ENTRY_FRAME)
        return false;
    if (!x->content.size)
        return !x->count;
    const uint8_t *at = x->content.data, *end = at + x->content.size;
    uint64_t next = SEGMENT_START, count = 0;
    for (; at < end && count < x->count; count++) {
        if (end - at < INDEX_ENTRY || (size_t)(end - at) - INDEX_ENTRY < load_u32(at + 4))
            return false;
        uint64_t from = (uint64_t)load_u32(at) * 8;
        struct log_frame f = { .head_size = load_u32(at + 4), .body_size = load_u32(at + 8) };
        if (from < next || from >= x->seal || frame_size(&f) > x->seal - from)
            return false;
        next = from + frame_size(&f);
        at += INDEX_ENTRY + f.head_size;
    }
    return at == end && count == x->count;
}

static int index_load_fd(struct index *x, const struct disk *d, int fd, const char *path,
                         uint64_t number, uint64_t capacity) {
    uint8_t raw[INDEX_HEADER];
    uint64_t size;
    int64_t n = disk_read_all(d, fd, raw, sizeof raw, 0);
    if (n < 0)
        return disk_failed(path, "read", (int)n);
    int64_t file_size = d->size(d, fd);
    if (!index_header_get(raw, number, x, &size) || file_size < INDEX_HEADER ||
        size != (uint64_t)file_size - INDEX_HEADER)
        return index_unusable(path);
    buffer_clear(&x->content);
    int err = buffer_reserve(&x->content, (size_t)size);
    if (err < 0)
        return err;
    n = disk_read_all(d, fd, x->content.data, (size_t)size, INDEX_HEADER);
    if (n < 0)
        return disk_failed(path, "read", (int)n);
    x->content.size = (size_t)size;
    x->file_bytes = (uint64_t)file_size;
    bool usable = content_sum(&x->content) == load_u64(raw + 48) && index_is_sound(x, capacity);
    return usable ? 0 : index_unusable(path);
}

int index_load(struct index *x, const struct disk *d, const char *dir, uint64_t number,
               uint64_t capacity) {
    char path[LOG_PATH];
    segment_path(path, dir, number, "idx");
    int fd = d->open(d, path, O_RDONLY, 0);
    if (fd == -ENOENT)
        return index_unusable(path);
    if (fd < 0)
        return disk_failed(path, "open", fd);
    int err = index_load_fd(x, d, fd, path, number, capacity);
    d->close(d, fd);
    return err;
}

int index_walk(const struct index *x, uint64_t base, log_each *each, void *arg) {
    const uint8_t *at = x->content.data;
    for (uint64_t i = 0; i < x->count; i++) {
        struct log_seen seen = { .at = base + (uint64_t)load_u32(at) * 8,
                                 .head = { at + INDEX_ENTRY, load_u32(at + 4) },
                                 .body_size = load_u32(at + 8) };
        int err = each(arg, &seen);
        if (err < 0)
            return err;
        at += INDEX_ENTRY + seen.head.size;
    }
    return 0;
}
