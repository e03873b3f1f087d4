// Loops: what the event loops of a server share: who has which shards, and an inbox for each loop,
// through which the others send it messages.
//
// In a server, each loop has some of the shards and some of the connections. In a node of a cluster
// the first loop has all connections and no shard; loop n + 1 has shard n while this node owns that
// shard, and does not run otherwise. Other nodes own the other shards: links (node_link.h) carry
// the messages to them. So commands and messages between shards are routed in one way, wherever a
// shard is.
//
//     server             loop 0: shards 0 1    loop 1: shards 2 3
//     node of a cluster  loop 0: connections   loop 1: shard 0    loop 2: on another node …
#ifndef SERVER_LOOPS_H
#define SERVER_LOOPS_H

#include "base/buffer.h"
#include "base/list.h"
#include "server/backup.h"
#include "server/limits.h"
#include "server/usage.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct host;
struct log_state;
struct node_link;
struct loop_message;

// Where the shard of a loop is, in a cluster.
enum shard_place {
    PLACE_UNKNOWN, // no node owns it, or its owner cannot be reached: commands wait
    PLACE_HERE,
    PLACE_LEAVING, // here, but not for long: only for sessions that hold something in it
    PLACE_ON_NODE, // on the node at the other end of the link
};

struct loops {
    uint32_t count;
    bool is_cluster; // then the loops are as described above
    struct host *hosts[LOOPS_MOST];
    struct inbox {
        pthread_mutex_t lock;
        bool open;            // the loop runs: else messages go to the first loop
        struct list messages; // struct loop_message
        void (*wake)(void *arg);
        void *arg;
    } inboxes[LOOPS_MOST];
    struct backup backup;
    struct usage usage;                        // of tokens
    _Atomic uint64_t client_bytes[LOOPS_MOST]; // memory for clients when a loop's last turn ended

    // In a cluster, of the first loop's thread:
    // The node at the end of a link does not serve it any more; and has closed it.
    void (*on_moved)(void *arg, uint32_t loop, bool is_closed);
    void (*look)(void *arg, struct log_state *out); // finds an outage of a shard's log
    void *arg;                                      // of these
    struct {
        enum shard_place at;
        struct node_link *link;
    } places[LOOPS_MOST];
};

void loops_init(struct loops *, uint32_t count, bool is_cluster);
// A host is added before its thread runs. Any thread calls the wake function when it has put a
// message into an empty inbox.
void loops_add(struct loops *, struct host *, void (*wake)(void *arg), void *arg);
// In a cluster: the loop's thread has ended. Messages that it has not handled are handled by the
// first loop.
void loops_remove(struct loops *, uint32_t loop);
void loops_finish(struct loops *);

// The loop that a shard belongs to, and the first shard of a loop.
uint32_t loop_of_shard(const struct loops *, uint32_t shards, uint32_t shard);
uint32_t loop_first_shard(const struct loops *, uint32_t shards, uint32_t loop);

void loops_wake(struct loops *, uint32_t loop); // has a turn soon

// Runs a function in a turn of a loop, in order with all other messages to that loop. If the loop
// does not run, it is not called. Any thread. MR_ENOMEM.
int loops_run(struct loops *, uint32_t loop, void (*run)(struct host *, void *arg), void *arg);

// The same with an argument that `run` takes over; if it is not called, `drop` frees it.
int loops_give(struct loops *, uint32_t loop, void (*run)(struct host *, void *arg),
               void (*drop)(void *arg), void *arg);

#endif
