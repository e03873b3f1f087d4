// Stopping a server. The first loop decides; it sends messages to the others, which report when
// they are ready:
//
//     signal ─► all: start nothing ─► no leases, or time is up ─► all: give back, send, close
//            ─► no connections ─► all: a barrier, no sessions ─► the store is closed
//            ─► all: close the handles, end the thread
//
// A second signal skips the waiting. A node of a cluster first hands over its shards (places.h).
#ifndef SERVER_STOP_H
#define SERVER_STOP_H

#include <uv.h>

struct loop;
struct server;

// In the first loop.
void stop_on_signal(uv_signal_t *, int number);
void stop_drain(struct server *);     // waits for running jobs, for as long as drain_ms says
void stop_close_all(struct server *); // does not wait for them

// In the thread of the loop.
void stop_note_leases(struct loop *);   // at the end of a turn while the server stops
void stop_go_on(struct loop *);         // a session has ended while the server stops
void stop_without_store(struct loop *); // another node may own the store by now

#endif
