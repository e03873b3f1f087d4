// File log: segments in a directory, one owner who appends, one writer who makes it durable.
//
//     owner ──► batches [being written][gathering] ──► writer ──► segment files
//                    │                                   │
//     readers ◄──────┴── not yet, or just written        ├─ a spare: the next segment
//             ◄───────── pread, segment held             └─ store file (where the log begins)
//
//     head ≤ synced ≤ written ≤ tail
//
// While one batch is being written and synced the next gathers. A batch never spans segments. When
// a group does not fit into the last segment, the owner seals that in its batch and goes on in the
// next, which the writer puts in place before it writes the seal.
//
// Room. A new segment is made of the spare, which is allocated ahead of need: real blocks, so that
// no write meets a full disk. When the spare has been used and the disk has no room for another,
// what is left of the last segment is kept for what makes room:
//
//     ├── commits ──────────────────────┬── cleaner ─┤
//     0                                3/4     capacity       pushes get MR_EFULL at once
//
// The writer tries to make a spare again after a trim and once a second.
//
// The files behind this header: log_file.c (the owner's side and the readers'), file_writer.c
// (the writer's), file_spare.c (the spare and new segments), file_read.c, file_window.c (reading
// ahead), file_open.c, file_recover.c.
#ifndef LOG_FILE_H
#define LOG_FILE_H

#include "log/disk.h"
#include "log/index.h"
#include "log/log.h"
#include "log/ring.h"
#include "log/segment.h"
#include "log/store.h"

#include <pthread.h>

enum {
    GATHER_LIMIT = 8 << 20,      // bytes not yet written, beyond which an append waits
    BATCH_CAPACITY = 256 << 10,  // what a batch begins with
    ZEROS_AHEAD = 256 << 10,     // written at once in front of small batches
    RECENT_BATCHES = 8,          // kept for readers when they are written …
    RECENT_CAPACITY = 512 << 10, // … unless they are larger than this
    OPEN_SEGMENTS = 64,          // descriptors kept for reading, about
    FULL_RETRY_MS = 1000,
    WINDOWS = 4,             // rows of entries that are read ahead at once …
    WINDOW_SIZE = 256 << 10, // … and bytes of each
};

// Bytes of one segment on their way to the disk.
struct log_batch {
    struct log_batch *next;
    uint64_t at; // position of the first byte
    uint8_t *data;
    size_t size, capacity;
    bool closed; // taken by the writer, or sealed
    bool seal;   // ends with the segment's seal
};

// Entries that are read one after another.
struct window {
    uint64_t at;   // position of the first byte
    size_t size;   // bytes that are there
    uint64_t next; // behind the entry that was read last; 0: none was
    uint64_t upto; // what was written when it was taken
    uint64_t used; // the one used longest ago is given up for another row
    uint8_t *data; // WINDOW_SIZE bytes; NULL: nothing was read ahead yet
    bool taken;    // by a reader
};

struct file_log {
    struct log base;
    struct log_options options;
    const struct disk *disk;
    char *dir;
    int lock_fd, store_fd;
    uint32_t shift; // segment number = position >> shift
    bool threaded;  // the writer thread runs, from opening to closing
    pthread_t writer;

    pthread_mutex_t lock; // guards everything below; dropped around I/O
    pthread_cond_t work;  // for the writer
    pthread_cond_t done;  // for those who wait for the writer
    struct ring segments;
    uint32_t open_segments;
    uint64_t head, tail;            // where to begin and to go on
    uint64_t opened_at;             // the tail when it was opened
    uint64_t written, synced;       // handed to the system; on the disk
    uint64_t durable;               // what the sync policy promises of it
    uint64_t flush_to, sync_to;     // asked to be written; to be synced whatever the policy
    uint64_t trim_to;               // number of the segment that is to be the first
    uint64_t sync_at_ms;            // when an interval ends; 0: nothing waits for it
    struct log_batch *first, *last; // oldest first; the last gathers unless closed
    struct log_batch *idle;         // one for reuse
    struct log_batch *recent[RECENT_BATCHES]; // written last: what is taken soon after its push
    uint32_t recent_next;                     // whose place the next one takes
    uint64_t pending;                         // bytes in batches
    int spare_fd;
    bool has_spare;
    bool spare_failed;       // the last try to make one
    uint64_t spare_retry_ms; // when to try again
    char spare_reason[128];  // why it failed
    uint64_t bytes;
    bool full, closing;
    struct window windows[WINDOWS]; // of one that is taken, its reader's but for that mark
    uint64_t window_uses;
    char stopped[sizeof(((struct log_state *)0)->stopped)];

    struct store store;         // writer only, as the two below
    struct index_builder index; // of the last segment
    uint64_t zeroed;            // up to here its blocks were written before
};

static inline uint64_t segment_of(const struct file_log *l, uint64_t at) {
    return at >> l->shift;
}

static inline uint64_t segment_base(const struct file_log *l, uint64_t number) {
    return number << l->shift;
}

static inline uint64_t offset_of(const struct file_log *l, uint64_t at) {
    return at & ((UINT64_C(1) << l->shift) - 1);
}

static inline struct segment *segment_last(const struct file_log *l) {
    return ring_at(&l->segments, l->segments.next - 1);
}

// "FILE: offset N: what; repair with …" MR_ECORRUPT.
int log_damaged(const struct file_log *, uint64_t number, uint64_t offset, const char *what);

// ---- file_writer.c; the lock is held ----------------------------------------------------------

// Does one piece of the writer's work. False: there is none.
bool writer_step(struct file_log *);

// Waits until the writer has done something; does it itself if there is no thread.
void writer_await(struct file_log *);

// Tells the writer that there is work.
void writer_wake(struct file_log *);

// Tells everybody who waits, and through on_durable the owner; drops the lock for that.
void writer_notify(struct file_log *);

// Stops the log for good; the reason is this thread's last error.
void writer_stop(struct file_log *);

// The writer's thread.
void *writer_main(void *log);

// ---- file_spare.c -----------------------------------------------------------------------------

// Finds the spare that an earlier owner left. Only while opening.
int spare_adopt(struct file_log *);

// Allocates the spare. The lock is held, and dropped meanwhile.
void spare_fill(struct file_log *);

// True if there is none and making it has not just failed.
bool spare_due(const struct file_log *);

// Takes the spare for segment `s`; the lock is held.
void spare_take(struct file_log *, struct segment *s);

// Writes the header into the spare and gives it the segment's name, durably. Writer only.
int segment_place(struct file_log *, struct segment *);

// ---- log_file.c; the lock is held -------------------------------------------------------------

// Opens the segment's file if it is not and holds it, so that neither trimming nor anything else
// closes it. MR_EIO.
int segment_hold(struct file_log *, struct segment *);
void segment_release(struct file_log *, struct segment *);

// Closes and frees; takes NULL.
void segment_destroy(struct file_log *, struct segment *);

void batch_destroy(struct log_batch *); // takes NULL

// Frees a log that has no writer's thread any more; takes half-opened ones. Not under the lock.
void file_log_destroy(struct file_log *);

extern const struct log_impl file_log_impl;

// ---- file_read.c: parts of log_impl -----------------------------------------------------------

int file_log_replay(struct log *, log_each *, void *arg);
int file_log_read(struct log *, uint64_t at, struct buffer *out_head, struct buffer *out_body);
int file_log_read_now(struct log *, uint64_t at, struct buffer *out_body);

// Reads from a position on, as much as there is; the segment is held. Unless it may wait: only what
// is in memory, or -EAGAIN. -errno.
int64_t segment_read(const struct file_log *, const struct segment *, uint64_t at, bool wait,
                     void *to, size_t size);
int file_log_scan(struct log *, uint64_t from, size_t max_bytes, log_each *, void *arg,
                  uint64_t *out_next);

// ---- file_window.c ----------------------------------------------------------------------------

// The window of the row that the entry at `at` goes on with, or else one to begin a row with; the
// caller clears `taken`. NULL: all are taken. The lock is held.
struct window *window_take(struct file_log *, uint64_t at);

// What the window has from `at` on; NULL: nothing.
const uint8_t *window_find(const struct window *, uint64_t at, size_t *out_size);

// Reads a window that begins at `at` if this goes on with its row, and says what is there. NULL:
// read it otherwise. The segment is held.
const uint8_t *window_read(const struct file_log *, const struct segment *, struct window *,
                           uint64_t at, bool wait, size_t *out_size);

// An entry of this size was read at `at`: the row goes on behind it.
void window_note(struct window *, uint64_t at, uint64_t size);

void windows_finish(struct file_log *);

// A walk over the segment's frames from offset `from` on; `path` is a buffer of LOG_PATH bytes that
// lives as long. The segment is held meanwhile.
struct walk segment_walk(const struct file_log *, const struct segment *, char *path,
                         uint64_t from);

// ---- file_open.c ------------------------------------------------------------------------------

// A log with nothing open yet, for file_log_destroy. NULL: no memory.
struct file_log *file_log_make(const char *dir, const struct log_options *);
void file_log_set_size(struct file_log *, uint64_t segment_size);

// ---- file_recover.c ---------------------------------------------------------------------------

// What stands in a segment that may have been torn.
struct recovered {
    uint64_t end;     // offset behind the last whole group
    uint64_t synced;  // offset below which all was known to be synced
    uint64_t content; // offset behind the last byte that is not zero, if not sealed
    uint64_t damaged; // offset of the first entry with a damaged body that was moved here; 0: none
    bool sealed;
};

// Looks at a segment and decides what of it counts; changes nothing. MR_ECORRUPT if what does not
// count had been synced.
int segment_examine(struct file_log *, struct segment *, struct recovered *out);

// Finds the end of the log, cuts what is torn behind it (unless read-only) and sets the positions.
int file_log_recover(struct file_log *);

// Sets the positions of a log that was just made.
void file_log_begin(struct file_log *);

#endif
