// Spool: bytes that a command writes, of any amount, in little memory. The first SPOOL_MEMORY bytes
// stay in memory; with more, all of them move to a temporary file that has no name, and so
// disappears when it is closed, also in a crash. Zero is a valid start. One thread at a time.
#ifndef WORK_SPOOL_H
#define WORK_SPOOL_H

#include "base/buffer.h"

enum { SPOOL_MEMORY = 256 << 10 };

struct spool {
    uint64_t size;
    struct buffer memory; // all of it, while there is no file
    int file;             // 0: none
    void *map;            // of the file, made by spool_bytes
    uint64_t mapped;
};

// Appends a copy. MR_ENOMEM; MR_EIO: the temporary file (in $TMPDIR, else /tmp) cannot be made or
// written. What was appended before is still there.
int spool_append(struct spool *, const void *data, size_t size);

// Forgets what is behind the first `size` bytes.
void spool_cut(struct spool *, uint64_t size);

// All of it in one piece, borrowed until the spool changes; what is in the file is mapped, not
// read. MR_ENOMEM.
int spool_bytes(struct spool *, mr_bytes *out);

// Writes all of it to a descriptor that blocks. MR_EIO, with what the system says.
int spool_write(const struct spool *, int to);

// Forgets all but the last `size` bytes, if it has more than twice as many and no file.
void spool_keep_end(struct spool *, size_t size);

// Copies the last `size` bytes, or all if it has fewer. How many.
size_t spool_end(const struct spool *, void *out, size_t size);

// The last line, without its end, empty lines aside; cut to `size` - 1 bytes, and what is not
// printable becomes a blank. "" if there is none.
void spool_last_line(const struct spool *, char *out, size_t size);

void spool_finish(struct spool *);

// A file without a name, in $TMPDIR or /tmp; its descriptor, or MR_EIO, MR_ENOMEM.
int file_unnamed(void);

// All of it; waits while the descriptor takes no more. MR_EIO.
int file_write(int to, const void *data, size_t size);

#endif
