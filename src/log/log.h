// Log: entries are appended at the tail, trimmed at the head, and read by their positions.
//
//        head                                             durable      tail
//     ────┴──┬──────────────┬──────────────┬───────────────┴───┬────────┴──►  positions (u64)
//      trim  │  segment     │  segment     │  segment          │ gathering
//
// A position is a byte address in an endless log; it names an entry until that is trimmed,
// increases with every append, and is never 0. The log is the store: there is no other copy. There
// are three implementations, log_memory.c, log_file.c and log_stream.c; one test suite covers them.
//
// Only the owner appends (one thread at a time: the shard's). Any thread may read, wait and query
// what is durable. A group of entries that was appended together is replayed as a whole or not at
// all.
//
// Some failures are final: a write or sync of a file failed; another owner has fenced this one off
// the stream; or the stream has lost entries that were acknowledged. From then on every append and
// wait answers MR_ESTOPPED, and log_look says why. Reading goes on. An outage of a store that is
// reached over the network is not final: the log keeps what is not written yet, tries again, and
// continues; meanwhile log_look describes the outage.
#ifndef LOG_LOG_H
#define LOG_LOG_H

#include "base/buffer.h"
#include "base/entry.h"
#include "millrace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stream_store;

struct log {
    const struct log_impl *impl;
    atomic_bool stopped; // log_look says why
};

// An entry found by a replay or a scan. Everything is borrowed until the callback returns.
struct log_seen {
    uint64_t at;
    mr_bytes head;
    mr_bytes body;      // data is NULL in a replay: bodies are not read at opening
    uint32_t body_size; // known in a replay, too
    bool damaged;       // in a scan: the body is damaged …
    bool restored;      // … the head is damaged and comes from the index; error_text() says where
};

// Returning a negative code ends the walk, which then returns it.
typedef int log_each(void *arg, const struct log_seen *);

struct log_state {
    uint64_t head, tail, durable; // positions
    uint64_t synced; // everything below is durable whatever the sync policy; at most `durable`
    uint64_t bytes;  // total size of the log, on disk or in memory
    uint64_t memory; // the part that is in memory
    uint64_t segment_size;
    uint64_t last_size;        // bytes of the segment being written, at most segment_size
    bool full;                 // the last push did not fit
    bool behind;               // pushes are refused until more is durable (max_unwritten)
    char stopped[256];         // why the log has stopped; "" while it runs
    char outage[256];          // why the store cannot be reached; "": it can, or it is local …
    uint64_t waiting_since_ms; // … and since when (monotonic_ms); 0: it can be reached
    uint64_t epoch;            // of a stream: how often it was claimed, this owner last; else 0
};

// Which thread writes and syncs the collected entries.
enum flush_by {
    FLUSH_BY_WRITER,
    FLUSH_BY_WAITER, // a thread that calls log_wait for the last entry: the caller does that next
    FLUSH_BY_CALLER, // the caller, if it is likely to be quick
};

struct log_impl {
    int (*replay)(struct log *, log_each *, void *arg);
    int (*append)(struct log *, const struct entry *, size_t count, enum room, uint64_t *out_at);
    void (*flush)(struct log *, bool now);
    void (*flush_by)(struct log *, enum flush_by); // NULL: the writer does
    int (*wait)(struct log *, uint64_t at);
    int (*read)(struct log *, uint64_t at, struct buffer *out_head, struct buffer *out_body);
    int (*read_now)(struct log *, uint64_t at, struct buffer *out_head, struct buffer *out_body);
    void (*expect)(struct log *, uint64_t at);
    int (*scan)(struct log *, uint64_t from, size_t max_bytes, log_each *, void *arg,
                uint64_t *out_next);
    uint64_t (*segment_end)(struct log *, uint64_t at);
    int (*trim)(struct log *, uint64_t upto);
    void (*look)(struct log *, struct log_state *out);
    uint64_t (*owned_ms)(struct log *); // NULL: always owned
    void (*close)(struct log *);
};

// Passes all whole groups from head to tail to `each`, once, before the first append. MR_ECORRUPT
// with file and offset, also when `each` returns it; MR_EIO; other errors of `each`.
static inline int log_replay(struct log *l, log_each *each, void *arg) {
    return l->impl->replay(l, each, arg);
}

// Appends a group of 1 to LOG_GROUP entries; copies them. `out_at` gets a position for each.
// They are durable when log_look().durable is beyond them. MR_EFULL: no room for this kind of
// entry: on the disk, or because too much is not durable yet; MR_ETOOBIG: a group must fit in a
// segment; MR_ENOMEM; MR_ESTOPPED. Owner only.
enum { LOG_GROUP = 4096 };
static inline int log_append(struct log *l, const struct entry *e, size_t count, enum room room,
                             uint64_t *out_at) {
    return l->impl->append(l, e, count, room, out_at);
}

// Passes the collected entries to the writer and returns. With the sync policy `always` the writer
// syncs them; with the others when they are due, or at once if `now`. Owner only.
static inline void log_flush(struct log *l, bool now) {
    l->impl->flush(l, now);
}

// log_flush for a caller that needs no other thread: with FLUSH_BY_WAITER log_wait has to follow;
// with FLUSH_BY_CALLER the entries may be durable afterwards. The log may choose the writer all the
// same: file.h says when. Owner only.
static inline void log_flush_by(struct log *l, enum flush_by by) {
    if (l->impl->flush_by)
        l->impl->flush_by(l, by);
    else
        l->impl->flush(l, false);
}

// Waits until the entry at `at` and all before it are as durable as the sync policy promises;
// flushes if necessary. After log_flush(…, true) it waits for that sync, whatever the policy, and
// `durable` does not pass that point before. MR_EINVAL: nothing was appended there; MR_ESTOPPED.
// Any thread.
static inline int log_wait(struct log *l, uint64_t at) {
    return l->impl->wait(l, at);
}

// Appends the entry's head and body to the buffers (either may be NULL: not wanted). Its checksum
// is tested. MR_EGONE: trimmed meanwhile; MR_EINVAL: no entry begins there; MR_ECORRUPT; MR_EIO;
// MR_ENOMEM. Any thread.
static inline int log_read(struct log *l, uint64_t at, struct buffer *out_head,
                           struct buffer *out_body) {
    return l->impl->read(l, at, out_head, out_body);
}

// The same if the entry is in memory. MR_EAGAIN, without an error text: it would have to wait for
// the disk or the network. Owner only, so that the memory log needs no lock.
static inline int log_read_now(struct log *l, uint64_t at, struct buffer *out_head,
                               struct buffer *out_body) {
    return l->impl->read_now(l, at, out_head, out_body);
}

// Prefetches an entry that will be read soon into the processor's cache, if it is in memory. Owner
// only.
static inline void log_expect(struct log *l, uint64_t at) {
    if (l->impl->expect)
        l->impl->expect(l, at);
}

// Passes the entries from `from` on (a position from replay, append or scan, the head, or a
// segment's end), with bodies, to `each`, until about `max_bytes` are read or the tail is reached.
// `out_next` is where to continue. `each` may append. Damage that cannot be skipped ends the scan
// before it: MR_ECORRUPT only if it is at `from`. MR_EAGAIN, without an error text: what is at
// `from` is not in memory; the log fetches it and calls on_durable when the scan can be repeated.
// The file and memory logs never answer that. Owner only, but of the file log any thread.
static inline int log_scan(struct log *l, uint64_t from, size_t max_bytes, log_each *each,
                           void *arg, uint64_t *out_next) {
    return l->impl->scan(l, from, max_bytes, each, arg, out_next);
}

// The end of the segment that `at` is in, where the next one begins. Owner only.
static inline uint64_t log_segment_end(struct log *l, uint64_t at) {
    return l->impl->segment_end(l, at);
}

// Removes everything below `upto`, in whole segments, once no reader uses them. The owner has made
// sure that what is still needed has durable copies further on. Owner only.
static inline int log_trim(struct log *l, uint64_t upto) {
    return l->impl->trim(l, upto);
}

// Whether the log has stopped; cheaper than log_look. Any thread.
static inline bool log_has_stopped(const struct log *l) {
    return atomic_load_explicit(&l->stopped, memory_order_relaxed);
}

// Any thread.
static inline void log_look(struct log *l, struct log_state *out) {
    l->impl->look(l, out);
}

// The latest instant (base/clock.h) at which this log is known to have owned its store: when the
// last append or heartbeat that succeeded was sent. UINT64_MAX: no other process can own it while
// it is open. An owner answers nothing once that is too long ago. Any thread.
static inline uint64_t log_owned_ms(struct log *l) {
    return l->impl->owned_ms ? l->impl->owned_ms(l) : UINT64_MAX;
}

// Makes everything durable, ends the writer thread, frees. Takes NULL.
static inline void log_close(struct log *l) {
    if (l)
        l->impl->close(l);
}

enum log_sync { LOG_SYNC_ALWAYS, LOG_SYNC_INTERVAL, LOG_SYNC_NONE };

// A clock for tests of logs with an inline writer.
struct log_clock {
    uint64_t (*now_ms)(void *arg);
    void (*wait_until)(void *arg, uint64_t at_ms);
    void *arg;
};

// What concerns stream logs only (log_stream.h).
struct log_stream_options {
    uint64_t window_bytes; // memory of batches that are kept for readers; 0: LOG_STREAM_WINDOW
    uint32_t beat_ms;      // how often an idle owner proves its ownership; 0: 2,000
    uint32_t close_ms;     // how long closing waits for the store; 0: 5,000
    // An owner that could not prove its ownership for so long has lost it for good, because another
    // one may have decided to take over: the log stops. 0: it has not.
    uint64_t max_unowned_ms;
    const struct log_clock *clock; // NULL: base/clock.h
    const char *owner;             // what a claim writes; NULL: nothing
    // MR_EBUSY unless the stream has this epoch and this owner (NULL: any) when it claims. A claim
    // that a failover has undone leaves its epoch to another owner.
    bool expects_epoch;
    uint64_t expected_epoch;
    const char *expected_owner;
    // For each shard, the end of what this process has seen in its stream; the log keeps it up to
    // date. MR_ECORRUPT if the stream ends before: the store has lost commits. NULL: none is known.
    _Atomic uint64_t *known_ends;
    void (*close_store)(struct stream_store *); // called when the log is closed; NULL: it is not
};

struct log_options {
    enum log_sync sync;
    uint32_t interval_ms;  // LOG_SYNC_INTERVAL
    uint64_t segment_size; // 0: LOG_SEGMENT; rounded up to a power of two; a store keeps its own
    // The file of the first segment; those of later ones double up to segment_size. A power of two;
    // 0: LOG_FIRST_SEGMENT. Only of a new file log.
    uint64_t first_segment;
    uint64_t max_bytes; // 0: no limit but the disk
    // How many bytes may be not durable: beyond it pushes get MR_EFULL, commits beyond one and a
    // half times as many, the cleaner beyond twice. 0: a stream log has 64 MiB; an append to the
    // file log waits for its writer, which a thread that serves others must not.
    uint64_t max_unwritten;
    // File log: batches of at least so many bytes are written past the page cache (file_direct.c).
    // 0: any batch that is synced, and LOG_DIRECT; UINT64_MAX: none.
    uint64_t direct_least;
    // File log: memory of batches that are kept for readers after they are written; at least the
    // last one is. 0: LOG_RECENT.
    uint64_t recent_bytes;
    bool inline_writer;      // no thread: log_flush writes and syncs by itself
    bool read_only;          // to examine a store: takes no lock, writes nothing
    const struct disk *disk; // NULL: the real one
    // Called by the thread that has synced, after each sync, after a stop, and when a scan can be
    // repeated.
    void (*on_durable)(void *arg);
    void *arg;
    // log_open returns this log instead, which then owns the opened one: a seam for tests.
    struct log *(*wrap)(void *arg, struct log *);
    void *wrap_arg;
    struct log_stream_options stream;
};

enum { LOG_SEGMENT = 64 << 20, LOG_FIRST_SEGMENT = 256 << 10, LOG_UNWRITTEN = 64 << 20 };
enum { LOG_DIRECT = 512 << 10, LOG_RECENT = 16 << 20, LOG_STREAM_WINDOW = 64 << 20 };

// How many bytes of entries of this kind may be not durable, if `pushes` is the limit of pushes:
// those stop first, then commits, then the cleaner.
static inline uint64_t log_unwritten_most(uint64_t pushes, enum room room) {
    switch (room) {
    case ROOM_PUSH:
        break;
    case ROOM_COMMIT:
        return pushes + pushes / 2;
    case ROOM_CLEAN:
        return 2 * pushes;
    }
    return pushes;
}

// The memory log; ignores what concerns disks. MR_ENOMEM.
int log_memory_open(const struct log_options *, struct log **out);

// The file log in `dir`, made when missing (not when read_only). MR_EBUSY: locked, with the process
// that holds it; MR_EINVAL: not a store, or of a newer version; MR_ECORRUPT: damaged, with the
// place and how to repair it; MR_EFULL: no room to make it; MR_EIO; MR_ENOMEM. Opened `read_only`,
// it answers MR_EPERM to append and trim.
int log_file_open(const char *dir, const struct log_options *, struct log **out);

// A damaged place in a store. Borrowed until the callback returns.
struct log_problem {
    const char *file;
    uint64_t offset, size; // size 0: not known
    const char *what;
};

// Reads a whole file log, bodies too, and reports every damaged place to `each`; takes no lock and
// changes nothing. `disk` NULL: the real one. Any thread or signal handler may set `cancel` to end
// it before the next segment: MR_ECANCELLED; may be NULL. Returns how many problems there are.
// MR_EINVAL: no store; MR_EIO; MR_ENOMEM.
int log_file_check(const char *dir, const struct disk *, const atomic_bool *cancel,
                   void (*each)(void *arg, const struct log_problem *), void *arg);

enum { LOG_REPAIR_PLACES = 64 };

// What a repair removed.
struct log_repair {
    uint64_t segments; // segments that were changed; the old ones are kept as NUMBER.seg.damaged
    uint64_t missing;  // segments that were missing
    uint64_t places;   // damaged ranges; the first LOG_REPAIR_PLACES are listed
    uint64_t bytes;    // in damaged ranges
    struct {
        uint64_t segment, offset, size;
    } place[LOG_REPAIR_PLACES];
};

// Repairs a damaged file log so that it opens, and keeps every whole group that is readable. Needs
// room for a copy of each damaged segment. MR_EBUSY: a process uses it; MR_EINVAL: no store;
// MR_EFULL; MR_EIO; MR_ENOMEM.
int log_file_repair(const char *dir, const struct disk *, struct log_repair *out);

// Entries whose content was refused, by their positions.
struct log_given_up {
    const uint64_t *at; // ascending
    size_t count;
    uint64_t from; // and all entries from this position on; UINT64_MAX: none
};

// Removes these entries, and the other entries of their groups, from a file log that opens.
// Otherwise as log_file_repair.
int log_file_give_up(const char *dir, const struct disk *, const struct log_given_up *,
                     struct log_repair *out);

#endif
