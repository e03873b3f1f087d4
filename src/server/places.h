// Places: the shards of a node of a cluster come and go while its server runs (server.h has the
// calls of the node). A shard that this node owns has a loop with a thread of its own:
//
//     opening ─► serves ─┬─► leaves: jobs that run may end ─► gives back ─┬─► closing ─► nowhere
//                        └─► lost: another node may own it by now ────────┘
//
// A shard of another node is reached over a link (node_link.h). Unless another thread is named, all
// functions belong to the first loop.
#ifndef SERVER_PLACES_H
#define SERVER_PLACES_H

#include <stdbool.h>

struct loop;
struct server;

// The server has begun to listen; and its loop has ended.
int places_start(struct server *);
void places_stop(struct server *);

// Before replies are sent: those of a shard that another node may own by now are not, and their
// connections are closed.
void places_check(struct server *);

// Shards that are leaving, and whose log is not durable yet, are lost: what their commands have
// done is not known.
void places_give_up(struct server *);

// After messages were received: frees loops that have ended.
void places_collect(struct server *);

// Hands all shards over because the server stops; and whether none is left. No-op without a
// cluster.
void places_leave(struct server *, bool at_once);
bool places_have_left(const struct server *);

// ---- In the loop of a shard ---------------------------------------------------------------------

void place_leave_on(struct loop *); // at the end of a turn, while it leaves
void place_lost(struct loop *);     // it is not known to own its store any more

#endif
