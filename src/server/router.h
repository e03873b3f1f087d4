// Router: finds the loop that runs a command, and forwards the command to it. No other code knows
// which loop has a shard.
//
//     loop 0                                     loop 1
//     connection ─ session ─ router ─ requests ─► inbox ─ remote session ─ shards of loop 1
//                     ▲                                         │
//                     └─ replies, in order ◄─ inbox ◄───────────┘
//
// A server of several loops has a host for each, with a thread of its own. A host owns some of the
// shards and some of the connections. A command about another loop's shards is run there by
// a remote session: it is created with the connection's first such command, has its identity and
// rights, holds its leases, and ends with it. Requests are sent as they were received, all of one
// turn together, and so are replies.
//
// Replies keep their order because a connection has requests under way in one loop only: it waits
// for their replies before it sends to another. A remote session pauses when its replies are not
// read, as any session does: bytes count as sent when the connection has accepted them.
//
// Some commands concern several loops (gather.h): lists are concatenated, counts are added, and a
// TAKE waits in each of its loops until one of them has the reservation and answers.
//
// With one loop there is no router: host->loops is NULL.
#ifndef SERVER_ROUTER_H
#define SERVER_ROUTER_H

#include "server/host.h"
#include "server/loops.h"

#include <stdbool.h>
#include <stdint.h>

struct command;
struct holds;
struct loop_message;
struct remote;
struct session;

// ---- For a host, in its own thread --------------------------------------------------------------

// In a turn: handles the messages in the inbox, which may close any connection of the loop. False:
// the inbox was empty.
bool router_receive(struct host *);
// At the end of a turn: sends the requests that were collected for other loops.
void router_send(struct host *);
// Sends the released replies of a remote session to its connection, or reports that it is over.
void router_send_replies(struct session *);
// Closes a remote session that uses too much memory, and its connection.
void router_close_remote(struct session *);
// Bytes of memory for the clients of all loops.
uint64_t router_client_bytes(const struct host *);
// Publishes how many bytes the clients of this loop use, after it has closed what it had to.
void router_note_client_bytes(struct host *);
// Sends the message of a shard to a shard of another loop. MR_ENOMEM: nothing was sent.
int router_send_message(struct host *, struct message *);
// In a cluster, in the first loop: a shard may be reached now, so commands that wait for it go on.
void router_place_changed(struct host *);
// In a cluster: jobs that its connection has taken go back without a counted attempt.
void router_give_back(struct session *);
bool router_uses(const struct session *, uint32_t loop); // it has a session there
// In a cluster: the shard leaves this node. Sessions that hold nothing are made anew where it goes,
// the others end with their connections; `at_once`: without the replies that were not sent.
void remotes_leave(struct host *, bool at_once);

// ---- For a session ----------------------------------------------------------------------------

// Whether this loop runs the command. False: it was forwarded, or has to wait for the replies that
// are under way: see router_must_wait. The arity was checked.
bool router_is_here(struct session *, const struct command *, const mr_bytes *words,
                    uint32_t count);
// Whether the request has to wait, because replies of another loop are under way.
bool router_must_wait(struct session *, const mr_bytes *words, uint32_t count);

// Whether requests are under way in other loops.
bool router_is_waiting(const struct session *);

// Whether commands about that stage are run by a remote session; and passes held sources of the
// stage to it (holds.h).
bool router_runs_elsewhere(const struct session *, mr_bytes stage);
void router_hold(struct session *, mr_bytes stage, const struct holds *);

// The totals of its remote sessions, as last reported.
struct remote_work {
    uint64_t leases, async_calls, taken, ended;
    bool holds; // sources of refused pushes
};
struct remote_work router_work(const struct session *);

// The id of a session's connection; of a remote session, that of the connection it works for.
uint64_t router_id(const struct session *);

// Updates the remote sessions after a change of identity or settings, or the end of the input.
void router_identity_changed(struct session *);
void router_drained(struct session *); // its client has read replies
bool router_unblock(struct session *); // ends a TAKE that waits in another loop; false: none
void router_leave(struct session *);   // the session ends

// Reserves the take of a remote session for this loop. False: another loop has reserved it.
bool router_reserves(struct session *);
bool router_may_reserve(const struct session *); // whether it is free, or this loop's
void router_end_reservation(struct session *);   // it waits no longer

#endif
