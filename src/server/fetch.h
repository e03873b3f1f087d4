// Fetch: what is not in memory is read from the log by another thread before the reply is written,
// so that a slow disk or network delays only the client that needs it:
//
//     command ─► fetch_look: in memory? ─► reply
//                      │ no: noted                       another thread
//                      └─► the session waits ─► fetch_read ─► fetch_end ─► the command goes on
//
// The bytes stay with the session, by position, until the command is answered; fetch_look finds
// them there. If the cleaner has moved an entry meanwhile, it is fetched again from its new
// position. After a TAKE the leases are renewed, and jobs that were cancelled or have expired are
// omitted.
#ifndef SERVER_FETCH_H
#define SERVER_FETCH_H

#include "server/session.h"

enum fetch_part {
    FETCH_BODY,
    FETCH_HEAD,
    FETCH_PIECE, // entries from that position on (shard/backup.h) …
    FETCH_HEADS, // … and the same without bodies
};

// An entry of a log that is read, or was.
struct fetch_entry {
    uint64_t at;
    uint64_t upto; // of a piece: entries from there on are left out
    uint32_t shard;
    enum fetch_part part;
    int err;             // what reading it has answered
    struct buffer bytes; // what was read
};

struct fetch {
    struct session *session; // NULL: it was destroyed, or it is for a shard
    enum fetch_purpose purpose;
    struct host *host;
    void *owner;            // for the code that starts the thread
    struct list of_session; // while it is read …
    struct fetch *next;     // … and afterwards, among those that the session keeps
    char error[256];        // the message of the last entry that could not be read
    struct grant *grants;   // of a TAKE; stages and keys must be looked up again
    size_t grant_count;
    size_t looked; // the entry behind the one found last: they are looked up in order
    size_t count;
    struct fetch_entry entries[];
};

// Appends the part of an entry to `out`. MR_EAGAIN, without an error text: it is not in memory, and
// was noted: the command writes no reply and calls fetch_wait. Without another thread
// (host.fetch is NULL) it is read here. Other errors as shard_read, and MR_ENOMEM.
int fetch_look(struct session *, uint32_t shard, uint64_t at, enum fetch_part, struct buffer *out);

// The same for a piece of the shard's log up to `upto`. A log in memory is read here.
int fetch_piece(struct session *, uint32_t shard, uint64_t at, uint64_t upto, enum fetch_part,
                struct buffer *out);

// Whether something was noted since the command began, or was resumed.
bool fetch_is_needed(const struct session *);

// Has the noted entries read; the session waits meanwhile, and owns the state. False: there is no
// memory; it has replied with that error, and the state is still the caller's.
bool fetch_wait(struct session *, const struct wait_kind *, void *state, size_t bytes);

// The same; writes no reply. MR_ENOMEM.
int fetch_try_wait(struct session *, const struct wait_kind *, void *state, size_t bytes);

// The same for the end of a CALL with LATER, for which the session does not wait. False: there is
// no memory.
bool fetch_for_call(struct session *);

// Replies to a TAKE. False: its session waits until the bodies are read.
bool fetch_grants(struct session *, const struct grant *, size_t count);

// Begins to read what the host's shards want (shard_take_wanted). At the end of a turn.
void fetch_for_shards(struct host *);

// Reads all entries. Any thread.
void fetch_read(struct fetch *);

// Lets the command go on after the entries were read. In a turn.
void fetch_end(struct fetch *);

// Frees what was read for this purpose.
void fetch_forget(struct session *, enum fetch_purpose);

// The session is destroyed.
void fetch_leave(struct session *);

#endif
