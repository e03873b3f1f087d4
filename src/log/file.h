// File log: segments in a directory, one owner that appends, one writer that makes it durable: a
// thread of its own, or one that would have to wait for it.
//
//     owner ──► batches [being written][gathering] ──► writer ──► segment files
//                    │                                   │
//     readers ◄──────┴── not yet, or just written        ├─ a spare: the next segment
//             ◄───────── pread, segment held             └─ store file (where the log begins)
//
//     head ≤ synced ≤ written ≤ tail
//
// While one batch is being written and synced, the next one collects entries. A batch never spans
// segments. When a group does not fit into the last segment, the owner adds the segment's seal to
// the batch and continues in the next segment, which the writer creates before it writes the seal.
//
// Room. A new segment is made from the spare: a file that is allocated in advance, with real
// blocks, so that no write meets a full disk. When the spare has been used and the disk has no room
// for another, the rest of the last segment is reserved for operations that make room:
//
//     ├── commits ──────────────────────┬── cleaner ─┤
//     0                                3/4     capacity       pushes get MR_EFULL at once
//
// The writer retries to make a spare after a trim and once a second.
//
// Which thread writes. To wake the writer, and to sleep until it has synced, costs more than a
// small write. So while the writer sleeps, a thread that would only wait for it writes and syncs
// the batch itself (writer_replace), under `always`:
//
//   - One that waits for its entries (log_wait), if in the last LONE_SYNCS syncs no two threads
//     waited for different ones. Otherwise the writer is faster: it is awake when a sync ends, and
//     what was collected meanwhile is one batch.
//   - One that must not wait for long (FLUSH_BY_CALLER: a loop with a single client), while the
//     last QUICK_SYNCS writes and syncs, whichever thread made them, took at most QUICK_US each. So
//     a disk that becomes slow delays it once. One that hangs stops the loop, signals included,
//     until it answers: without a disk that client's commands would not be answered, either.
//
// Only one thread does the writer's work at a time. New segments, spares, trims and the end remain
// the writer's.
//
// A new store is small: the file of its first segment has LOG_FIRST_SEGMENT bytes, and each one
// after it twice as many as the last, up to the segment size. Positions do not depend on that. A
// group that does not fit into the spare makes the writer enlarge the spare first. Files never get
// smaller from one segment to the next, so copies of what one holds have room in those behind it.
//
// The files behind this header: log_file.c (the owner's side and the readers'), file_writer.c (the
// writer's), file_direct.c (past the page cache), file_spare.c (the spare and new segments),
// file_read.c, file_window.c (reading ahead), file_open.c, file_recover.c.
#ifndef LOG_FILE_H
#define LOG_FILE_H

#include "log/disk.h"
#include "log/index.h"
#include "log/log.h"
#include "log/notify.h"
#include "log/ring.h"
#include "log/segment.h"
#include "log/store.h"

#include <pthread.h>

enum {
    GATHER_LIMIT = 8 << 20,   // unwritten bytes, beyond which an append waits (max_unwritten: 0)
    BATCH_CAPACITY = 1 << 20, // of a batch; larger groups, and what is synced at once, enlarge it
    ZEROS_AHEAD = 256 << 10,  // zeros written ahead of small batches
    RECENT_BATCHES = LOG_RECENT / BATCH_CAPACITY,
    RECENT_MERGED = 512 << 10, // at most so many bytes are moved into a batch that has room
    OPEN_SEGMENTS = 64,        // approximate number of descriptors kept open for reading
    FULL_RETRY_MS = 1000,
    QUICK_US = 1000,         // a write or sync that takes longer is slow
    QUICK_SYNCS = 16,        // after so many that were not, the next one should be quick, too …
    QUICK_BYTES = 128 << 10, // … if it has at most so many bytes
    LONE_SYNCS = 16, // after so many that one thread waited for, the next one should be, too
    WINDOWS = 4,     // sequential reads that are followed at once …
    WINDOW_SIZE = 256 << 10, // … and bytes read ahead for each
};

// Bytes of one segment that are not written yet.
struct log_batch {
    struct log_batch *next;
    uint64_t at;   // position of the first byte
    uint8_t *room; // aligned memory of `capacity` bytes, a multiple of DISK_BLOCK …
    uint8_t *data; // … and the first byte in it, as far behind a block's beginning as in the file
    size_t size, capacity;
    bool closed; // taken by the writer, or sealed
    bool seal;   // ends with the segment's seal
};

// Read-ahead for entries that are read in sequence.
struct window {
    uint64_t at;   // position of the first byte
    size_t size;   // bytes of data
    uint64_t next; // the position after the entry that was read last; 0: none
    uint64_t upto; // l->written when the window was taken
    uint64_t used; // the least recently used window is reused
    uint8_t *data; // WINDOW_SIZE bytes; NULL: nothing was read ahead yet
    bool taken;    // by a reader
};

// What is needed to write past the page cache; see file_direct.c.
struct direct_writer {
    bool refused;      // by the file system
    int fd;            // -1: none is open
    uint64_t number;   // of the segment that `fd` is open for
    uint64_t block_at; // position of the last block that was written in part; UINT64_MAX: none …
    uint8_t block[DISK_BLOCK]; // … and its bytes
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
    pthread_cond_t done;  // for threads that wait for the writer
    struct ring segments;
    uint32_t open_segments;
    uint64_t head, tail;        // first position; next position to append at
    uint64_t opened_at;         // the tail when it was opened
    uint64_t written, synced;   // passed to the system; on the disk
    uint64_t durable;           // as far as the sync policy promises
    uint64_t flush_to, sync_to; // requested: write up to here; sync up to here, whatever the policy
    uint64_t trim_to;           // number of the segment that should become the first
    uint64_t sync_at_ms;        // when a sync is due (LOG_SYNC_INTERVAL); 0: none
    struct log_batch *first, *last; // oldest first; appends go to the last unless it is closed
    struct log_batch *idle;         // one for reuse
    struct log_batch *recent[RECENT_BATCHES]; // a ring of those written last, by position
    uint32_t recent_first, recent_count;
    uint64_t recent_bytes; // memory of these
    uint64_t pending;      // bytes in batches
    int spare_fd;
    bool has_spare;
    uint64_t spare_size;     // of the one that is there
    uint64_t spare_least;    // what the group that waits for it needs; 0: any size will do
    bool spare_failed;       // the last try to make one
    uint64_t spare_retry_ms; // when to try again
    char spare_reason[128];  // why it failed
    uint64_t bytes;
    bool full, closing;
    bool awake;                     // the writer's thread works, or is about to
    bool replaced;                  // another thread does its work
    uint32_t waiting;               // threads that wait until an entry is durable …
    uint64_t waits_for;             // … and the entry of the last one
    uint32_t lone_syncs;            // so many syncs in a row were for one entry that was waited for
    uint32_t quick_syncs;           // so many writes and syncs in a row were quick
    struct window windows[WINDOWS]; // a taken window belongs to its reader, except for `taken`
    uint64_t window_uses;
    char stopped[sizeof(((struct log_state *)0)->stopped)];

    struct store store;         // writer only, as is everything below
    struct index_builder index; // of the last segment
    uint64_t zeroed;            // blocks up to here were written before
    struct direct_writer direct;
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

// Does the most urgent piece of the writer's work. False: there is none.
bool writer_step(struct file_log *);

// Waits until the writer has done something; without a writer thread, does a piece of work itself.
void writer_await(struct file_log *);

// Writes and syncs the first batch instead of the writer's thread. False: the writer is at work, or
// the batch needs a new segment, or no sync is promised.
bool writer_replace(struct file_log *);

// Signals the writer that there is work.
void writer_wake(struct file_log *);

// Stops the log for good; the reason is this thread's last error.
void writer_stop(struct file_log *);

// The writer's thread.
void *writer_main(void *log);

// ---- file_direct.c; writer only, without the lock ---------------------------------------------

extern const uint8_t zeros_ahead[ZEROS_AHEAD];

// Writes a batch past the page cache, and zeros behind it up to offset `zeros_upto`; with `sync`
// the batch is on the disk afterwards. False: it has to be written in the usual way. `out_err` is 0
// or -errno.
bool direct_write(struct file_log *, struct log_batch *, const struct segment *,
                  uint64_t zeros_upto, bool sync, int *out_err);

// Remembers the last block of a batch that was written in either way.
void direct_keep(struct file_log *, const struct log_batch *);

void direct_finish(struct file_log *);

// ---- file_spare.c -----------------------------------------------------------------------------

// Uses a spare that an earlier owner left. Only while opening.
int spare_adopt(struct file_log *);

// Allocates the spare, or more of it. The lock is held, and dropped meanwhile.
void spare_fill(struct file_log *);

// True if there is none, or one that is too small, and making it has not just failed.
bool spare_due(const struct file_log *);

// Uses the spare for segment `s`; the lock is held.
void spare_take(struct file_log *, struct segment *s);

// Writes the header into the spare and gives it the segment's name, durably. Writer only.
int segment_place(struct file_log *, struct segment *);

// ---- log_file.c; the lock is held -------------------------------------------------------------

// Opens the segment's file if necessary and holds it, so that it is not closed, even by a trim.
// MR_EIO.
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
int file_log_read_now(struct log *, uint64_t at, struct buffer *out_head, struct buffer *out_body);
int file_log_scan(struct log *, uint64_t from, size_t max_bytes, log_each *, void *arg,
                  uint64_t *out_next);

// Reads up to `size` bytes from position `at`; the segment is held. With `wait` false only from the
// page cache: -EAGAIN. -errno.
int64_t segment_read(const struct file_log *, const struct segment *, uint64_t at, bool wait,
                     void *to, size_t size);

// ---- file_window.c ----------------------------------------------------------------------------

// The window whose sequence the entry at `at` continues, or else one for a new sequence; the caller
// clears `taken`. NULL: all are taken. The lock is held.
struct window *window_take(struct file_log *, uint64_t at);

// The window's data from `at` on; NULL: it has none.
const uint8_t *window_find(const struct window *, uint64_t at, size_t *out_size);

// Fills the window from `at` if that continues its sequence. NULL: the caller reads the entry by
// itself. The segment is held.
const uint8_t *window_read(const struct file_log *, const struct segment *, struct window *,
                           uint64_t at, bool wait, size_t *out_size);

// Notes that an entry of this size was read at `at`.
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

// What was found in a segment that may be torn.
struct recovered {
    uint64_t end;     // offset after the last whole group
    uint64_t synced;  // offset below which everything was synced
    uint64_t content; // offset after the last byte that is not zero, if not sealed
    uint64_t damaged; // offset of the first entry marked FRAME_DAMAGED; 0: none
    bool sealed;
};

// Finds the valid part of a segment; changes nothing. MR_ECORRUPT: a part that is not valid had
// been synced.
int segment_examine(struct file_log *, struct segment *, struct recovered *out);

// Finds the end of the log, zeroes the torn rest (unless read-only) and sets the positions.
int file_log_recover(struct file_log *);

// Sets the positions of a log that was just made.
void file_log_begin(struct file_log *);

#endif
