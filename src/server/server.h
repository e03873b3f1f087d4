// Server: a store, and the sessions and sockets of its clients, in one event loop or several, each
// with a thread; the log writes on a thread of its own, and the store is read on another while
// clients already hear LOADING.
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include "log/log.h"
#include "tls/tls.h"

#include <stdbool.h>
#include <stdint.h>

struct front_impl;

#define SERVER_LOOPS_AUTO UINT32_MAX

struct server_options {
    const char *store; // its URL, for people
    const char *dir;   // of the file store; NULL: in memory
    uint32_t shards;   // 0: as many as the store has, 1 if it is new
    uint32_t loops;    // 0: 1; SERVER_LOOPS_AUTO: as many as there are processors
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
    // Where clients speak something else, by a front of this kind (NULL: nowhere), and what they
    // may call that place. If it was not asked for, the server goes on when it cannot listen there.
    const struct front_impl *front;
    const char *front_host, *front_names;
    uint16_t front_port;
    bool front_asked;
    const char *auth;     // the file of tokens; NULL: whoever connects may do everything
    struct tls_files tls; // with a certificate, connections are encrypted
    int64_t drain_ms;     // how long running jobs may take to end at shutdown
    // Called once clients can connect (and again, with `loaded`, once the store is there). May be
    // NULL.
    void (*on_ready)(void *arg, const char *host, uint16_t port, bool loaded);
    void (*on_front)(void *arg, const char *host, uint16_t port); // the same of the front
    void (*on_reload)(void *arg); // called on SIGHUP, on the loop's thread. May be NULL.
    void *arg;
};

// Serves until SIGINT or SIGTERM, then drains and closes; SIGHUP has it reload. Returns 0 after an
// orderly end; errors of opening: MR_ENET (cannot listen: why), those of the log, of tokens
// (auth_file.h) and of certificates (tls/tls.h).
int server_run(const struct server_options *);

#endif
