// Relay: passes the connections of clients on to another node, byte by byte.
//
//     client ─► this node ─► the node that owns the store
//            ◄─           ◄─
//
// Bytes are not looked at: a client authenticates, and encrypts, with the node that owns the store.
// While that node is not known, connections wait. When it changes, connections to the former one
// are closed: clients connect again. One thread: that of the event loop.
#ifndef CLUSTER_RELAY_H
#define CLUSTER_RELAY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum { RELAY_HOST = 64 };

// A numeric address; port 0: none.
struct relay_place {
    char host[RELAY_HOST];
    uint16_t port;
};

struct relay;

// Listens at `place` in the event loop; sets its port if that was 0. At most `most_connections`
// are open; others wait in the system's queue. MR_ENET: it cannot listen; MR_ENOMEM.
int relay_open(uv_loop_t *, struct relay_place *place, uint32_t most_connections,
               struct relay **out);

// From now on connections go to `target`; port 0: they wait.
void relay_to(struct relay *, const struct relay_place *target);

uint32_t relay_connections(const struct relay *);

// Closes all connections and stops listening; the relay is freed by the event loop. Takes NULL.
void relay_close(struct relay *);

// Reads "HOST:PORT" or "[HOST]:PORT". False: it is neither.
bool relay_place_read(const char *text, struct relay_place *out);

#endif
