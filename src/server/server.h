// Server: a store with the sessions and sockets of its clients, in one event loop or several, one
// thread each. The log has a writer thread; at the start another thread reads the store, while
// clients get LOADING.
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "base/store_url.h"
#include "log/log.h"
#include "tls/tls.h"

#include <stdbool.h>
#include <stdint.h>

struct front_impl;
struct host_node;

#define SERVER_LOOPS_AUTO UINT32_MAX

struct server_options {
    const char *store; // its URL, for messages
    struct store_url store_url;
    uint32_t shards; // 0: as many as the store has, 1 if it is new
    uint32_t loops;  // 0: 1; SERVER_LOOPS_AUTO: as many as there are processors
    enum log_sync sync;
    uint32_t interval_ms;
    uint64_t max_bytes;        // of memory, see host_memory; 0: none
    uint64_t max_client_bytes; // of memory for clients; 0: see host_client_limit
    uint32_t max_body;
    uint32_t max_clients, max_per_address; // connections; 0: as in limits.h
    uint64_t max_unread_ms;                // how long replies may stay unread; 0: as in limits.h
    uint64_t max_idle_ms;                  // how long a connection may do nothing; 0: for ever
    const char *host;                      // to listen on
    uint16_t port;                         // 0: any free one
    int listen_fd;                         // a socket that listens there already; 0: none
    // A front (HTTP) and where it listens; NULL: none. If the address was not set by the user, the
    // server runs without the front when it cannot listen there.
    const struct front_impl *front;
    const char *front_host, *front_names;
    uint16_t front_port;
    bool front_asked;
    const char *auth;     // the file of tokens; NULL: no token is required
    struct tls_files tls; // with a certificate, connections are encrypted
    int64_t drain_ms;     // how long running jobs may take to end at shutdown
    // Called when clients can connect, and again, with `loaded`, when the store was read. May be
    // NULL.
    void (*on_ready)(void *arg, const char *host, uint16_t port, bool loaded);
    void (*on_front)(void *arg, const char *host, uint16_t port); // the same for the front
    // For a node of a cluster: the server ends, with MR_ESTOPPED, as soon as its log has stopped or
    // is not known to have owned the store within this time: another node goes on. 0: it serves
    // lists and looks when its log has stopped.
    uint64_t max_unowned_ms;
    const struct host_node *node; // what INFO says about it; NULL: it is no node
    struct log_stream_options stream;
    void (*on_reload)(void *arg); // called on SIGHUP, on the loop's thread. May be NULL.
    void *arg;
};

// Serves until SIGINT or SIGTERM, then drains and closes; reloads on SIGHUP. Returns 0 after an
// orderly end. Errors at the start: MR_ENET (cannot listen), those of the log, of tokens
// (auth_file.h) and of certificates (tls/tls.h).
int server_run(const struct server_options *);

#endif
