// Inside the stream log (log_stream.h): one owner that appends, a writer thread, a reader thread.
//
//     owner ──► batches [in memory … │ being sent │ gathering] ──► writer ──► store
//                  │        window   │  unsent                       ▲
//     readers ◄────┴── else ◄── reader's connection ◄────────────────┤
//     owner's scan ◄── fetched batches ◄── reader thread ◄───────────┘
//
//     head ≤ durable ≤ tail
//
// One append is in flight; the next batch gathers meanwhile. A batch holds whole groups, so the
// store's atomic append is what keeps a group together. A batch lies within one segment, an aligned
// range of positions; the batch that would cross a boundary begins there. A batch that was sent
// once is never changed, so that it can be sent again bit by bit.
//
// In doubt. When the store does not say whether an append has happened, looking cannot tell: it may
// happen later. The writer claims the stream again, which settles it, and compares the tail.
//
// The files behind this header: log_stream.c (the owner's side), stream_writer.c, stream_reader.c
// (replay, reads, scans), stream_batch.c (the encoding).
#ifndef LOG_STREAM_LOG_H
#define LOG_STREAM_LOG_H

#include "base/clock.h"
#include "log/log_stream.h"
#include "log/notify.h"
#include "log/ring.h"
#include "log/stream_batch.h"

#include <pthread.h>

enum {
    STREAM_START = 64,          // no entry has position 0
    STREAM_BATCH = 2 << 20,     // a batch of this size takes no further group
    STREAM_BEAT_MS = 2000,      // how often an idle owner proves that it owns the stream
    STREAM_RETRY_MS = 50,       // the first pause before the store is tried again …
    STREAM_RETRY_MAX_MS = 1000, // … and the longest
    STREAM_FULL_MS = 1000,      // pause before a store without space is tried again
    STREAM_SLOW_MS = 1000,      // a call that takes longer counts as an outage
    STREAM_CLOSE_MS = 5000,     // how long closing waits for the store
    STREAM_READ_MS = 30000,     // how long a reader waits for the store
    STREAM_CLAIMS = 5,          // claims at opening while the answer is in doubt
    STREAM_PIECE = 1 << 20,     // bytes read at once
    STREAM_SHIFT_MAX = 30,
};

// A batch in memory. Closed ones never change; `users` keep them from being freed.
struct memory_batch {
    struct stream_batch batch; // the parts are set when it is closed
    struct buffer heads, bodies;
    uint64_t before; // the end of the batch in front
    uint32_t count;  // entries
    uint32_t users;
    bool closed, dropped;
};

// What the reader thread reads for the owner's scan.
struct scan_fetch {
    enum { FETCH_NONE, FETCH_WANTED, FETCH_READY } state;
    uint64_t from, next; // positions: the range that was read
    size_t bytes;        // wanted
    struct ring batches; // memory_batch
    int err;             // why it ends at `next`; 0: no failure
    char error_text[256];
};

struct stream_log {
    struct log base;
    struct log_options options;
    struct stream_store *store;
    uint32_t shard;
    uint32_t shift;           // segment number = position >> shift
    struct stream *appending; // the writer's connection
    struct stream *reading;   // the readers', guarded by reading_lock
    bool threaded;            // both threads run, from opening to closing
    pthread_t writer, reader;
    _Atomic uint64_t owned_ms;    // when the last successful proof of ownership was sent
    pthread_mutex_t reading_lock; // never taken while `lock` is held

    pthread_mutex_t lock;    // guards everything below; dropped around calls of the store
    pthread_cond_t work;     // for the writer
    pthread_cond_t fetching; // for the reader thread
    pthread_cond_t done;     // for threads that wait for the writer
    struct ring batches;     // memory_batch; the last one may be gathering
    uint64_t unsent;         // the number of the first one that is not durable
    uint64_t head, tail;     // first position; next position to append at
    uint64_t stored;         // the tail that the store has, as far as known
    uint64_t durable;        // the same, but at least STREAM_START
    uint64_t flush_to;       // requested: send up to here
    uint64_t unsent_bytes, window_bytes;
    uint64_t epoch;
    uint64_t trim_to;      // requested, a segment's start …
    uint64_t trim_after;   // … once this is durable …
    uint64_t trimmed;      // … and done
    bool in_doubt;         // whether the first unsent batch is in the store
    uint64_t sent_ms;      // when the call in progress began; 0: none
    uint64_t outage_ms;    // since when the store has not answered; 0: it does
    uint64_t retry_at_ms;  // not before then is the store called
    uint32_t retry_ms;     // the last pause
    uint64_t append_at_ms; // not before then is a batch sent: the store was out of space
    bool full, closing, ended;
    struct scan_fetch fetch;
    char stopped[sizeof(((struct log_state *)0)->stopped)];
    char outage[sizeof(((struct log_state *)0)->outage)];
};

static inline uint64_t stream_segment_base(const struct stream_log *l, uint64_t at) {
    return at >> l->shift << l->shift;
}

static inline uint64_t stream_now_ms(const struct stream_log *l) {
    const struct log_clock *c = l->options.stream.clock;
    return c ? c->now_ms(c->arg) : monotonic_ms();
}

static inline struct memory_batch *stream_batch_last(const struct stream_log *l) {
    return ring_at(&l->batches, l->batches.next - 1);
}

static inline uint64_t memory_batch_size(const struct memory_batch *b) {
    return b->heads.size + b->bodies.size;
}

// The memory it takes, which is more than its size if it is small or has grown.
static inline uint64_t memory_batch_held(const struct memory_batch *b) {
    return sizeof *b + b->heads.capacity + b->bodies.capacity;
}

// ---- log_stream.c; the lock is held -----------------------------------------------------------

// "the stream of shard N: what": MR_ECORRUPT.
int stream_damaged(const struct stream_log *, uint64_t at, const char *what);

// The store ends at `tail`, below what is known to have been acknowledged: MR_ECORRUPT.
int stream_has_lost(const struct stream_log *, uint64_t known_end, uint64_t tail);

// Notes the end of what is in the store (log_stream_options.known_ends).
void stream_note_end(const struct stream_log *, uint64_t end);

// Ends the gathering of a batch, so that it never changes again. Moves the tail to its end.
void stream_batch_close(struct stream_log *, struct memory_batch *);

void memory_batch_destroy(struct memory_batch *); // takes NULL

// Holds a closed batch while the lock is dropped, and gives it back.
void memory_batch_hold(struct memory_batch *);
void memory_batch_release(struct memory_batch *);

// Frees a batch as soon as no thread uses it.
void memory_batch_drop(struct memory_batch *);

// ---- stream_writer.c; the lock is held --------------------------------------------------------

// Does the most urgent piece of the writer's work. False: there is none, or not yet.
bool stream_writer_step(struct stream_log *);

// When there will be work again; UINT64_MAX: not without a call of the owner.
uint64_t stream_writer_next_ms(const struct stream_log *);

// Tells the store that it needs the stream no longer, if everything is durable. A hint only: the
// answer does not matter.
void stream_release(struct stream_log *);

// Drops batches from memory that are trimmed or do not fit the window.
void stream_window_shrink(struct stream_log *);

void *stream_writer_main(void *log);

// ---- stream_reader.c: parts of log_impl -------------------------------------------------------

int stream_log_replay(struct log *, log_each *, void *arg);
int stream_log_read(struct log *, uint64_t at, struct buffer *out_head, struct buffer *out_body);
int stream_log_read_now(struct log *, uint64_t at, struct buffer *out_head,
                        struct buffer *out_body);
int stream_log_scan(struct log *, uint64_t from, size_t max_bytes, log_each *, void *arg,
                    uint64_t *out_next);
void *stream_reader_main(void *log);

// Drops what was fetched. The lock is held.
void stream_fetch_clear(struct stream_log *);

#endif
