// Fetch: bodies that are on the disk only are read by another thread before they are told, so that
// a slow disk holds up nobody but who asked:
//
//     TAKE ─► leased ─► in memory? ─► answered
//                           │ no                           another thread
//                           └─► the session waits ─► fetch_read ─► fetch_end ─► answered
//
// The leases are renewed then, and what nobody wants any more is left out. The thread only brings
// the bodies into memory; what is told is looked up and read afterwards, because the cleaner may
// have moved it.
#ifndef SERVER_FETCH_H
#define SERVER_FETCH_H

#include "server/session.h"

struct fetch {
    struct session *session; // NULL: it has gone
    struct host *host;
    void *owner; // of the thread that reads it
    size_t count;
    struct grant grants[]; // stages and keys are to be looked up again
};

// Answers a TAKE. False: its session waits until that can be done.
bool fetch_grants(struct session *, const struct grant *, size_t count);

// Whether the command has to wait, since the job's body or result is on the disk only: it does so,
// with that state, and goes on when it was read.
bool fetch_first(struct session *, const struct job_info *, const struct wait_kind *, void *state,
                 size_t bytes);

// Reads all of it. Any thread.
void fetch_read(const struct fetch *);

// It was read. In a turn. Frees it.
void fetch_end(struct fetch *);

#endif
