// Fetch: bodies that are on disk only are read by another thread before the reply is written, so
// that a slow disk delays only the client that needs them:
//
//     TAKE ─► leased ─► in memory? ─► reply
//                           │ no                           another thread
//                           └─► the session waits ─► fetch_read ─► fetch_end ─► reply
//
// Afterwards the leases are renewed, and jobs that were cancelled or have expired are omitted. The
// thread only loads the bodies into the page cache; the reply looks them up again, because the
// cleaner may have moved them.
#ifndef SERVER_FETCH_H
#define SERVER_FETCH_H

#include "server/session.h"

struct fetch {
    struct session *session; // NULL: it was destroyed
    struct host *host;
    void *owner; // for the code that starts the thread
    size_t count;
    struct grant grants[]; // stages and keys must be looked up again
};

// Replies to a TAKE. False: its session waits until the bodies are read.
bool fetch_grants(struct session *, const struct grant *, size_t count);

// Whether the command has to wait because the job's body or result is on disk only. If so it waits,
// with this state, and continues when it was read.
bool fetch_first(struct session *, const struct job_info *, const struct wait_kind *, void *state,
                 size_t bytes);

// Reads all bodies. Any thread.
void fetch_read(const struct fetch *);

// Replies after the bodies were read, and frees it. In a turn.
void fetch_end(struct fetch *);

#endif
