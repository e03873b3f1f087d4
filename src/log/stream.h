// Stream: what a log needs from a replicated store (log_stream.c is the log on top of it).
//
//     claim ─► epoch ─► append at the tail, append, … ─► trim the head
//
// A stream holds the batches of one shard, in order. Its owner is who claimed it last: a claim
// raises the epoch, and an append names its epoch and the tail that it expects, so the append of a
// former owner is refused by the store itself. A batch has a position, an end (the position where
// the next one may begin) and two parts: heads, which are read at every opening, and bodies, which
// are read on request.
//
//     positions   at            end = tail
//     ────────────┼──────────────┼────────►
//        batch    │ bodies│heads │           a byte of bodies is at batch.at + its offset
//
// Calls wait for the store; they belong on threads of their own, never on an event loop. One
// stream is one connection: one thread at a time uses it. All calls but close return a
// stream_result, or a negative MR_… code with an error text that names the store and the way out:
// MR_EFULL (the store is out of space), MR_EPERM (rights), MR_EINVAL (the store is not as it was
// set up), MR_ECORRUPT, MR_ENOMEM.
#ifndef LOG_STREAM_H
#define LOG_STREAM_H

#include "base/buffer.h"
#include "base/errors.h"
#include "millrace.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum stream_result {
    STREAM_DONE = 0,
    STREAM_FENCED,      // another owner has claimed the stream: final
    STREAM_IN_DOUBT,    // the append or claim may have happened, or may yet happen
    STREAM_UNAVAILABLE, // nothing happened; try again later. error_text() says why
};

struct stream_batch {
    uint64_t at, end;
    mr_bytes heads, bodies;
};

enum { STREAM_OWNER = 160 };

struct stream_state {
    uint64_t epoch;      // of the last claim; 0: never claimed
    uint64_t head, tail; // positions; equal when there are no batches
    uint64_t bytes;      // what the store needs for the stream, about
    // Whom the last claim has named (stream_store), "" if it was never claimed or the owner has
    // released it; and for how long, by the store's clock, it has not appended or beaten. They only
    // suggest who should claim.
    char owner[STREAM_OWNER];
    uint64_t silent_ms;
};

// What an acknowledged append survives, for INFO, the notices and the page.
struct stream_promise {
    bool replicated;    // at least one other machine has it on disk
    char text[192];     // one sentence
    const char *remedy; // what to do for a promise of more, as a command
};

enum stream_part { STREAM_HEADS, STREAM_BODIES };

struct stream {
    const struct stream_impl *impl;
};

// Borrowed until the callback returns; bodies are empty if not asked for. A negative code ends the
// reading, which then returns it.
typedef int stream_each(void *arg, const struct stream_batch *);

struct stream_impl {
    // Makes the caller the owner, durably: raises the epoch, if `expected` is still the epoch (0:
    // never claimed), otherwise STREAM_FENCED. Who wants to take over looks first: so a claim that
    // the store carries out too late never takes the stream from a later owner. Appends that were
    // in doubt have happened or will never happen when it returns STREAM_DONE.
    // A claim can be in doubt, too: the owner then claims again with the same `expected`, and must
    // not be fenced by itself. So the store keeps with the epoch which claim raised it: a random
    // number of this `struct stream` and a count of its claims. A claim also succeeds if the last
    // one was an earlier claim of this same stream. Earlier only: a claim that was in doubt may
    // still sit in a backend, and must not raise the epoch behind the one that was answered.
    int (*claim)(struct stream *, uint64_t expected, struct stream_state *out);
    // Appends the batch if `epoch` owns the stream and ends at `tail`; batch->at >= tail.
    // STREAM_DONE: it is as durable as the promise says.
    int (*append)(struct stream *, uint64_t epoch, uint64_t tail, const struct stream_batch *);
    // Passes the batches that begin at or after `from` and before `upto`, ascending, until about
    // `max_bytes` are read. `out_next`: where to continue.
    int (*read)(struct stream *, uint64_t from, uint64_t upto, size_t max_bytes, bool with_bodies,
                stream_each *, void *arg, uint64_t *out_next);
    // Appends up to `size` bytes of a part of the batch that contains position `at` to `out`:
    // bodies from `at` + `offset` on, heads from `offset` on. MR_EGONE: it was trimmed.
    int (*get)(struct stream *, uint64_t at, enum stream_part, size_t offset, size_t size,
               struct buffer *out);
    // Removes the batches that end at or below `upto`. STREAM_FENCED if `epoch` does not own it.
    int (*trim)(struct stream *, uint64_t epoch, uint64_t upto);
    // Whether `epoch` still owns the stream. Proves it for the instant when the call began.
    int (*beat)(struct stream *, uint64_t epoch);
    int (*look)(struct stream *, struct stream_state *out);
    // The owner needs the stream no longer: another one may claim it without waiting.
    int (*release)(struct stream *, uint64_t epoch);
    // Ends a call that another thread is waiting in, and all later ones: STREAM_UNAVAILABLE or
    // STREAM_IN_DOUBT. Any thread.
    void (*interrupt)(struct stream *);
    void (*close)(struct stream *);
};

// Opens streams of one store. A log opens several: one to write, one to read.
struct stream_store {
    // Does not wait for the store: the first call connects. MR_ENOMEM, MR_EINVAL.
    int (*open)(struct stream_store *, uint32_t shard, struct stream **out);
    // Of a store that was begun (replicated.h), after closing its streams. Results of streams.
    int (*commit)(struct stream_store *);
    void (*close)(struct stream_store *); // after its streams
};

// What making a store has done.
enum store_made { STORE_THERE, STORE_MADE, STORE_UPGRADED };

// The code of a result for callers that know no streams: MR_ENET, with the same text, if the store
// was not available or the call is in doubt.
static inline int stream_failed(int result) {
    return result <= 0 ? result : error_set(MR_ENET, "%s", error_text());
}

#endif
