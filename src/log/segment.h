// Segment: one file of the file log, which holds the positions from number × segment size on.
//
//     ┌────────┬───────┬───────┬─────────────┬──────┬─────────┐
//     │ header │ entry │ entry │ …           │ seal │  zeros  │   capacity bytes, preallocated
//     └────────┴───────┴───────┴─────────────┴──────┴─────────┘
//     0        SEGMENT_START
//
// A segment gets its name only after its header is on the disk. It is sealed after the next one is
// created, and synced before anything is written there: so a crash can tear only the last segment
// with entries.
#ifndef LOG_SEGMENT_H
#define LOG_SEGMENT_H

#include "log/disk.h"
#include "log/frame.h"
#include "millrace.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SEGMENT_START = 64,
    SEGMENT_SIZE_MIN = 1 << 10,
    SEGMENT_SIZE_MAX = 1 << 30,
    LOG_FORMAT = 1, // the version of everything on disk
    LOG_PATH = 4096,
};

struct segment {
    uint64_t number;
    uint64_t capacity;    // bytes of its file
    uint64_t seal;        // offset of its seal; 0: not sealed, or not known
    uint64_t index_bytes; // bytes of its index file, as far as known
    uint32_t users;       // readers that hold it
    int fd;               // -1: not open
    bool is_spare;        // its file still has the spare's name
    bool trimmed;         // removed: the last reader frees it
};

// Sets the error "file: cannot do: reason". MR_EFULL, MR_ENOMEM or MR_EIO. `err` is -errno.
int disk_failed(const char *path, const char *doing, int err);

// A path in `dir`: DIR/name, or DIR/number.suffix. `out` has LOG_PATH bytes.
void path_make(char *out, const char *dir, const char *name);
void segment_path(char *out, const char *dir, uint64_t number, const char *suffix);

// The number in "0123456789abcdef.suffix". False: no such name.
bool segment_name_parse(const char *name, const char *suffix, uint64_t *out_number);

// Writes everything, also after short writes. -errno.
int disk_write_all(const struct disk *, int fd, const void *, size_t size, uint64_t at);

// Reads up to the end of the file; the rest of `to` is zeroed. The bytes read, or -errno.
int64_t disk_read_all(const struct disk *, int fd, void *to, size_t size, uint64_t at);

// Renames a file of the directory and syncs the directory. 0 or -errno.
int disk_rename(const struct disk *, const char *dir, const char *from, const char *to);

// Syncs the parent of a directory, so that the directory's name is durable. MR_EIO.
int disk_sync_above(const struct disk *, const char *dir);

// Positions are below this, so that additions do not overflow.
#define POSITION_MOST (UINT64_C(1) << 62)

// Whether a segment size is allowed, and whether a segment number is with this size.
bool segment_size_is_possible(uint64_t size);
bool segment_number_is_possible(uint64_t number, uint64_t segment_size);

// The header of a segment file. Reading: MR_ECORRUPT (also a header with impossible values),
// MR_EIO.
int segment_header_write(const struct disk *, int fd, const struct segment *,
                         uint64_t segment_size);
int segment_header_read(const struct disk *, int fd, const char *path, struct segment *out,
                        uint64_t *out_segment_size);

// Walk: the frames of a segment file one after another, read through a large window.
struct walk {
    const struct disk *disk;
    const char *path; // for error sentences; borrowed
    int fd;
    uint64_t base;  // the position of the file's first byte
    uint64_t at;    // the offset of the next frame
    uint64_t limit; // no frame reaches beyond this offset …
    uint64_t room;  // … and only a seal beyond this one, if not 0: it leaves room for the seal
    bool bodies;    // check the bodies …
    bool damaged;   // … and return frames with a damaged body, too
    size_t step;    // bytes to read at once; 0: WALK_STEP
    uint8_t *window;
    uint64_t window_from;
    size_t window_size, window_capacity;
};

enum { WALK_STEP = 1 << 20 };

// The frame at offset `at` of the file, borrowed until the next call. `raw` begins with the frame;
// the head follows it, and the body if the walk checks bodies.
struct walk_frame {
    uint64_t at;
    struct log_frame frame;
    const uint8_t *raw;
    bool damaged; // the body is damaged, if bodies are checked
};

// The limit of a walk: the capacity, or the end of the file if that is smaller.
uint64_t walk_limit(const struct walk *, uint64_t capacity);

// 1: a valid frame; the walk moves past it. 0: there is none here; the walk does not move. MR_EIO,
// MR_ENOMEM.
int walk_next(struct walk *, struct walk_frame *out);

// As walk_next at the first offset in [walk->at, upto) that has a valid frame. 0: there is none.
int walk_find(struct walk *, uint64_t upto, struct walk_frame *out);

// The offset after the last byte from `from` on that is not zero; `from` if there is none.
int walk_content_end(struct walk *, uint64_t from, uint64_t *out_end);

void walk_finish(struct walk *);

static inline mr_bytes walk_head(const struct walk_frame *f) {
    return (mr_bytes){ f->raw + ENTRY_FRAME, f->frame.head_size };
}

#endif
