// Router: which loop a command is for, and how it gets there. This is the one place that knows
// where a shard is.
//
//     loop 0                                     loop 1
//     connection ─ session ─ router ─ requests ─► inbox ─ remote session ─ shards of loop 1
//                     ▲                                         │
//                     └─ replies, in order ◄─ inbox ◄───────────┘
//
// A server of several loops has a host for each, with a thread of its own. A host owns some of the
// shards and some of the connections. What a connection wants of another loop's shards is done
// there by a session that stands in for it, the remote one: it is made with the first such command,
// has the connection's identity and rights, holds its leases and waits for it, and ends with it.
// Requests travel as they were received, all of one turn together, and so do replies.
//
// Replies keep their order because a connection has requests under way to one place only: it waits
// for their replies before it goes on with another. A remote session stops when its replies are not
// read, as any session does: bytes count as sent when the connection has taken them.
//
// Some commands are about several loops: lists are put together one loop after another, sums are
// added, a TAKE waits in each of its loops and is answered by one, which the reservation decides.
//
// With one loop there is no router: host->loops is NULL.
#ifndef SERVER_ROUTER_H
#define SERVER_ROUTER_H

#include "server/host.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct command;
struct holds;
struct mail;
struct remote;
struct session;

// What the loops of a server share. Written before their threads run, but for the inboxes.
struct loops {
    uint32_t count;
    struct host *hosts[LOOPS_MOST];
    struct inbox {
        pthread_mutex_t lock;
        struct list mails; // struct mail
        bool closed;       // its loop has ended: what comes is dropped
        void (*wake)(void *arg);
        void *arg;
    } inboxes[LOOPS_MOST];
    _Atomic uint64_t client_bytes[LOOPS_MOST]; // memory for clients when a loop's last turn ended
};

// The hosts are those of the loops, in order. The wake functions are called by any thread when
// something has come into an empty inbox.
void loops_init(struct loops *, uint32_t count);
void loops_add(struct loops *, struct host *, void (*wake)(void *arg), void *arg);
void loops_finish(struct loops *);

// The loop that a shard belongs to, and the first shard of a loop.
uint32_t loop_of_shard(const struct loops *, uint32_t shards, uint32_t shard);
uint32_t loop_first_shard(const struct loops *, uint32_t shards, uint32_t loop);

// Has a function run in the turn of a loop, in order with everything else that is sent there. Any
// thread. MR_ENOMEM.
int loops_run(struct loops *, uint32_t loop, void (*run)(struct host *, void *arg), void *arg);

// ---- For a host, in its own thread --------------------------------------------------------------

// In a turn: takes in what has come, which may close any connection of the loop. False: there was
// nothing.
bool router_receive(struct host *);
// At the end of a turn: sends what was gathered for other loops.
void router_send(struct host *);
// A remote session has replies to be sent, or is over.
void router_ship(struct session *);
// A remote session takes up too much memory: it and its connection are closed.
void router_cut_off(struct session *);
// Bytes of memory for the clients of all loops.
uint64_t router_client_bytes(const struct host *);
// The loop has closed those that it had to: others learn how much its clients have now.
void router_note_client_bytes(struct host *);
// Sends the message of a shard to a shard of another loop. MR_ENOMEM: not now.
int router_carry(struct host *, struct message *);

// ---- For a session ----------------------------------------------------------------------------

// Whether the command is for this loop's shards, or for none. False: it is dealt with, or has to
// wait for the replies that are under way: see router_must_wait. The row's arity was checked.
bool router_is_here(struct session *, const struct command *, const mr_bytes *words,
                    uint32_t count);
// Whether the request must not be looked at yet, because replies of another place are under way.
bool router_must_wait(struct session *, const mr_bytes *words, uint32_t count);

// Requests are under way in other loops.
bool router_is_waiting(const struct session *);

// Whether commands about that stage are run by a remote session; and has that one hold sources of
// it (holds.h).
bool router_runs_elsewhere(const struct session *, mr_bytes stage);
void router_hold(struct session *, mr_bytes stage, const struct holds *);

// The totals of its remote sessions, as last reported.
struct remote_work {
    uint64_t leases, async_calls, taken, ended;
};
struct remote_work router_work(const struct session *);

// The id of a session's connection; of a remote session, that of the connection it works for.
uint64_t router_id(const struct session *);

// Its identity, its settings or the end of its input have changed: updates its remote sessions.
void router_identity_changed(struct session *);
void router_drained(struct session *); // its client reads again
bool router_unblock(struct session *); // it waits in TAKE in another loop: that ends
void router_leave(struct session *);   // the session ends

// Whether this take, of a remote session, may be given work: no other loop was faster.
bool router_reserves(struct session *);
bool router_may_reserve(const struct session *); // whether it still could
void router_end_reservation(struct session *);   // it does not wait any more

#endif
