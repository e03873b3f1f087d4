// Writing past the page cache (O_DIRECT). A batch is written in one of two ways:
//
//     usual     pwrite into the page cache; fdatasync if the policy is `always`
//     direct    pwrite of whole blocks from the batch's own memory; with `always` the same call
//               also syncs it
//
// Direct saves the copy into the cache. With `always` any batch is written so: one call takes less
// time than two. With the other policies a small batch is in the cache long before it could be on
// the disk; only from LOG_DIRECT bytes on, when so much is written that new pages for the cache are
// what limits it, direct is faster. Recently written batches stay in memory for readers
// (LOG_RECENT); what is older is read from the file through the cache, which the kernel keeps
// consistent with direct writes.
//
// Blocks. The memory of a batch begins where a block of the file begins. What stands before the
// batch in its first block was written earlier, and is written again as it was; the rest of its
// last block is filled with zeros, which are there already:
//
//     file     ──┬────────────────┬────────────────┬────────────────┬──
//                │ written ▓▓▓ batch ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ zeros  │
//                └────────────────┴────────────────┴────────────────┘
//
// So the format is that of usual writes, and bytes on the disk never change: a torn write leaves
// each sector as it was, or with the same bytes followed by new ones. The page cache also writes
// whole blocks, so a disk that tears sectors themselves is no more dangerous in this way.
//
// Where the file system refuses direct writes, when a file is opened or at the first write, all
// batches are written in the usual way, as are those in whose segment there is no room for whole
// blocks.
#include "log/file.h"

#include <errno.h>
#include <fcntl.h>

_Alignas(DISK_BLOCK) const uint8_t zeros_ahead[ZEROS_AHEAD];

static uint64_t blocks_up(uint64_t offset) {
    return (offset + DISK_BLOCK - 1) & ~(uint64_t)(DISK_BLOCK - 1);
}

static bool direct_applies(const struct file_log *l, const struct log_batch *b,
                           const struct segment *s) {
    uint64_t least = l->options.direct_least;
    if (!least && l->options.sync != LOG_SYNC_ALWAYS)
        least = LOG_DIRECT;
    return !l->direct.refused && b->size >= least &&
           blocks_up(offset_of(l, b->at) + b->size) <= s->capacity;
}

static void direct_close(struct file_log *l) {
    if (l->direct.fd >= 0)
        l->disk->close(l->disk, l->direct.fd);
    l->direct.fd = -1;
}

static bool direct_open(struct file_log *l, const struct segment *s) {
    if (l->direct.fd >= 0 && l->direct.number == s->number)
        return true;
    direct_close(l);
    char path[LOG_PATH];
    segment_path(path, l->dir, s->number, "seg");
    int fd = l->disk->open(l->disk, path, O_WRONLY | O_DIRECT, 0);
    l->direct.refused = fd == -EINVAL || fd == -EOPNOTSUPP;
    l->direct.fd = fd < 0 ? -1 : fd;
    l->direct.number = s->number;
    return fd >= 0;
}

// Puts the bytes before the batch in its first block in front of it. False: they cannot be read.
static bool direct_begin(const struct file_log *l, struct log_batch *b, const struct segment *s) {
    size_t before = (size_t)(b->data - b->room);
    uint64_t at = b->at - before;
    if (before && at != l->direct.block_at)
        return disk_read_all(l->disk, s->fd, b->room, before, offset_of(l, at)) == (int64_t)before;
    memcpy(b->room, l->direct.block, before);
    return true;
}

// Writes whole blocks. -errno; -EINVAL also if the file system writes less than a block.
static int blocks_write(const struct file_log *l, const uint8_t *from, uint64_t size, uint64_t at,
                        bool sync) {
    const struct disk *d = l->disk;
    while (size > 0) {
        ssize_t n = (sync ? d->pwrite_synced : d->pwrite)(d, l->direct.fd, from, size, at);
        if (n < DISK_BLOCK)
            return n < 0 ? (int)n : -EINVAL;
        n -= n % DISK_BLOCK;
        from += n;
        at += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

// Zeros do not change what is on the disk, so they need not be synced.
bool direct_write(struct file_log *l, struct log_batch *b, const struct segment *s,
                  uint64_t zeros_upto, bool sync, int *out_err) {
    if (!direct_applies(l, b, s) || !direct_open(l, s) || !direct_begin(l, b, s))
        return false;
    uint64_t begin = offset_of(l, b->at) & ~(uint64_t)(DISK_BLOCK - 1);
    uint64_t end = offset_of(l, b->at) + b->size, upto = blocks_up(end);
    memset(b->data + b->size, 0, (size_t)(upto - end));
    int err = 0;
    if (zeros_upto > upto && zeros_upto % DISK_BLOCK == 0)
        err = blocks_write(l, zeros_ahead, zeros_upto - upto, upto, false);
    if (err == 0)
        err = blocks_write(l, b->room, upto - begin, begin, sync);
    if (err == -EINVAL || err == -EOPNOTSUPP) {
        l->direct.refused = true;
        direct_close(l);
        return false;
    }
    *out_err = err;
    return true;
}

void direct_keep(struct file_log *l, const struct log_batch *b) {
    struct direct_writer *d = &l->direct;
    uint64_t end = b->at + b->size, used = offset_of(l, end) % DISK_BLOCK, at = end - used;
    bool begins = b->at <= at, known = used && (begins || at == d->block_at);
    if (known && begins)
        memcpy(d->block, b->data + (at - b->at), used);
    else if (known)
        memcpy(d->block + (b->at - at), b->data, b->size);
    d->block_at = known ? at : UINT64_MAX;
}

void direct_finish(struct file_log *l) {
    direct_close(l);
}
