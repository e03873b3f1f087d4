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
struct server;
struct stream_state;
struct uv_loop_s;

#define SERVER_LOOPS_AUTO UINT32_MAX

// What has become of a shard of a node.
enum shard_event {
    SHARD_SERVES,     // it was opened, and commands run
    SHARD_NOT_OPENED, // for this error
    SHARD_LEFT,       // it was handed over: another node may claim it
    SHARD_LOST,       // another node may own it: for this error
    SHARD_MOVED,      // a node that was said to own it does not serve it any more
    SHARD_IS_FREE,    // that node has closed it: another one may claim it
};

// For a node of a cluster (cluster/node.h): shards come and go while the server runs. All calls are
// in the thread of the first loop.
struct server_cluster {
    uint32_t shards; // of the store: at most SERVER_SHARDS
    // When clients can connect; the node may use the event loop, whose handles are closed with
    // those of the server. MR_…: the server ends.
    int (*started)(void *arg, struct server *, struct uv_loop_s *, uint16_t port,
                   uint16_t http_port);
    void (*changed)(void *arg, uint32_t shard, enum shard_event, int err, const char *text);
    void (*stopping)(void *arg); // no shards are opened any more
    void (*closing)(void *arg);  // the event loop ends when the node has nothing under way in it
    void *arg;
};
enum { SERVER_SHARDS = 63 };

struct server_options {
    const char *store; // its URL, for messages
    struct store_url store_url;
    uint32_t shards; // 0: as many as the store has, 1 if it is new
    uint32_t loops;  // 0: 1; SERVER_LOOPS_AUTO: as many as there are processors
    bool no_polling; // loops sleep as soon as nothing is to be done
    enum log_sync sync;
    uint32_t interval_ms;
    uint64_t max_bytes;        // of memory, see host_memory; 0: none
    uint64_t max_client_bytes; // of memory for clients; 0: see host_client_limit
    uint32_t max_body;
    uint32_t max_clients, max_per_address; // connections; 0: as in limits.h
    uint64_t max_unread_ms;                // how long replies may stay unread; 0: as in limits.h
    uint64_t max_idle_ms;                  // how long a connection may do nothing; 0: for ever
    const char *host;                      // to listen on; NULL: no TCP
    uint16_t port;                         // 0: any free one
    int listen_fd;                         // a socket that listens there already; 0: none
    const char *unix_path;                 // of a Unix-domain socket to listen on; NULL: none
    uint32_t unix_mode;                    // permissions of its file
    int unix_fd;                           // a socket that listens there already; 0: none
    // A front (HTTP) and where it listens; NULL: none. If the address was not set by the user, the
    // server runs without the front when it cannot listen there.
    const struct front_impl *front;
    const char *front_host, *front_names;
    uint16_t front_port;
    int front_fd; // a socket that listens there already; 0: none
    bool front_asked;
    const char *auth;     // the file of tokens; NULL: no token is required
    struct tls_files tls; // with a certificate, connections are encrypted
    int64_t drain_ms;     // how long running jobs may take to end at shutdown
    // Called when clients can connect, and again, with `loaded`, when the store was read; `host` is
    // NULL without TCP. May be NULL.
    void (*on_ready)(void *arg, const char *host, uint16_t port, bool loaded);
    void (*on_front)(void *arg, const char *host, uint16_t port); // the same for the front
    // For a node of a cluster: the server ends, with MR_ESTOPPED, as soon as its log has stopped or
    // is not known to have owned the store within this time: another node goes on. 0: it serves
    // lists and looks when its log has stopped.
    uint64_t max_unowned_ms;
    const struct host_node *node;         // what INFO says about it; NULL: it is no node
    const struct server_cluster *cluster; // of a node; NULL: it is none, and opens all shards
    struct log_stream_options stream;
    void (*on_reload)(void *arg); // called on SIGHUP, on the loop's thread. May be NULL.
    void (*on_stop)(void *arg);   // the same when it begins to wait for running jobs. May be NULL.
    void *arg;
};

// Serves until SIGINT or SIGTERM, then drains and closes; reloads on SIGHUP. Returns 0 after an
// orderly end. Errors at the start: MR_ENET (cannot listen), those of the log, of tokens
// (auth_file.h) and of certificates (tls/tls.h).
int server_run(const struct server_options *);

// Opens a shard of the store, if epoch and owner are still as they were seen: see SHARD_SERVES.
void server_open_shard(struct server *, uint32_t shard, const struct stream_state *seen);
// Hands a shard over: running jobs may end first, for as long as drain_ms says. See SHARD_LEFT.
// False: it is not here, or there is no memory now; nothing has changed.
bool server_leave_shard(struct server *, uint32_t shard);
// Another node, at this address ("HOST:PORT"), owns a shard; NULL: none does.
void server_set_owner(struct server *, uint32_t shard, const char *address);
// Whether a shard that was opened here has ids that do not name their shards; and tells that one of
// another node has.
bool server_has_foreign_ids(const struct server *);
void server_set_foreign_ids(struct server *);
void server_fail_node(struct server *, int err); // ends it with this error, which has a text

#endif
