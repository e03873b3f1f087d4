// Board: one connection to a replicated store, with which the nodes of a cluster coordinate.
//
//     look    the state of all shards: who owns them, and since when the owner was not seen
//     notes   short texts that all nodes read and write: key, value, age
//     promise what an acknowledged commit survives
//
// Notes are hints: which nodes are alive, who should own a shard, which node is to be drained.
// Whether a node owns a shard is decided by claims alone (stream.h).
//
// Calls wait for the store; they belong on threads of their own, never on an event loop. One thread
// at a time uses a board. Calls return a stream_result, or a negative MR_… code with an error text,
// as those of streams do. After STREAM_IN_DOUBT a change may have happened, or may yet happen;
// repeating it is safe. A failed call leaves its outputs as they were.
#ifndef LOG_BOARD_H
#define LOG_BOARD_H

#include "base/store_url.h"
#include "log/stream.h"

#include <stdint.h>

enum {
    BOARD_KEY_MOST = 128, // bytes, at least 1; UTF-8 like values
    BOARD_VALUE_MOST = 1024,
    BOARD_NOTES_MOST = 4096,
};

struct board {
    const struct board_impl *impl;
};

struct board_note {
    const char *key, *value;
    uint64_t age_ms; // since it was put, by the store's clock
};

// The note is borrowed until the callback returns. A negative code ends the reading, which then
// returns it. The callback must not use the board.
typedef int board_each(void *arg, const struct board_note *);

// What the functions below need from a store. Keys and values were checked.
struct board_impl {
    int (*look)(struct board *, uint32_t shards, struct stream_state *out);
    int (*notes)(struct board *, board_each *, void *arg);
    int (*put)(struct board *, const char *key, const char *value);
    int (*put_new)(struct board *, const char *key, const char *value);
    int (*remove)(struct board *, const char *key);
    int (*promise)(struct board *, struct stream_promise *out);
    void (*interrupt)(struct board *);
    void (*close)(struct board *);
};

// Does not wait for the store: the first call connects. MR_EINVAL: a name is not valid, or this
// build has no such store; MR_ENOMEM.
int board_open(const struct store_url *, struct board **out);

// The states of shards 0 to `shards` - 1: in PostgreSQL at one moment, in NATS one after another.
// MR_EINVAL: the store has fewer.
int board_look(struct board *, uint32_t shards, struct stream_state *out);

// Passes all notes, ordered by the bytes of their keys; at most BOARD_NOTES_MOST.
int board_notes(struct board *, board_each *, void *arg);

// Writes a note, or replaces it; its age begins anew. MR_EINVAL: key or value are not as the limits
// above say; MR_EFULL: there are BOARD_NOTES_MOST others.
int board_put(struct board *, const char *key, const char *value);

// Writes a note if there is none with this key: STREAM_DONE either way. Errors of board_put.
int board_put_new(struct board *, const char *key, const char *value);

// Removes a note; STREAM_DONE also if there is none.
int board_remove(struct board *, const char *key);

// What the server promises that this board has written to: several may accept connections, as a
// former primary does, but not commit.
int board_promise(struct board *, struct stream_promise *out);

// Ends a call that another thread is waiting in, and all later ones: STREAM_UNAVAILABLE or
// STREAM_IN_DOUBT. Any thread.
void board_interrupt(struct board *);

void board_close(struct board *); // takes NULL

#endif
