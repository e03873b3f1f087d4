// See node.h.
#include "cluster/node.h"

#include "base/errors.h"
#include "cluster/standby.h"
#include "log/replicated.h"
#include "log/stream_postgres.h"
#include "server/host.h"
#include "server/limits.h"
#include "server/notice.h"
#include "server/systemd.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct node {
    const struct node_options *options;
    struct server_options server;
    char own[STREAM_OWNER]; // struct node_places, as text
    struct stream_store *store;
    struct stream *stream; // of the first shard, to watch its owner
    struct relay_place wire, http;
    uint64_t takeover_ms;
    _Atomic uint64_t known_ends[CLUSTER_SHARDS_MOST]; // see log_stream_options
    struct stream_promise promise;
    char address[STREAM_OWNER];
    struct host_node info; // for INFO: points to what is above
};

// ---- Where it is ------------------------------------------------------------------------------

static void place_set(struct relay_place *to, const char *host, uint16_t port) {
    snprintf(to->host, sizeof to->host, "%s", host);
    to->port = port;
}

static int place_check(const char *given, const struct relay_place *listens,
                       struct relay_place *out) {
    bool all = strcmp(listens->host, "0.0.0.0") == 0 || strcmp(listens->host, "::") == 0;
    if (given && !relay_place_read(given, out))
        return error_set(MR_EINVAL,
                         "'%.100s' is not the address of a node: HOST:PORT, with a "
                         "numeric HOST",
                         given);
    if (!given && all)
        return error_set(MR_EINVAL,
                         "other nodes cannot connect to %s, which stands for all addresses: "
                         "--advertise HOST:PORT says where they reach this one",
                         listens->host);
    if (!given)
        *out = *listens;
    return 0;
}

// As a server alone: without HTTP, if its address is in use and was not chosen by the user.
static void node_check_http(struct node *n) {
    struct sockaddr_storage address = { 0 };
    const char *host = n->server.front_host;
    int fd = -1, on = 1;
    if (!n->server.front || n->server.front_asked ||
        (uv_ip4_addr(host, n->server.front_port, (struct sockaddr_in *)&address) < 0 &&
         uv_ip6_addr(host, n->server.front_port, (struct sockaddr_in6 *)&address) < 0))
        return;
    fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    if (is_free)
        return;
    notice(NOTICE_WARN,
           "%s:%u is in use: running without the page and the API; --http sets another address",
           host, n->server.front_port);
    n->server.front = NULL;
}

// Known once it listens, because its port may have been chosen then.
static int node_places_find(struct node *n) {
    struct node_places places = { 0 };
    int err = place_check(n->options->address, &n->wire, &places.wire);
    if (err == 0 && n->server.front)
        err = place_check(n->options->http, &n->http, &places.http);
    if (err == 0)
        node_places_write(&places, n->own);
    return err;
}

// ---- Waiting and serving ----------------------------------------------------------------------

static void on_node_owner(void *arg, const char *owner) {
    const struct node *n = arg;
    systemd_tell("READY=1\nSTATUS=Standby");
    if (owner)
        notice(NOTICE_INFO, "standby on %s:%u: %.*s owns the store", n->wire.host, n->wire.port,
               (int)strcspn(owner, " "), owner);
    else
        notice(NOTICE_INFO, "standby on %s:%u", n->wire.host, n->wire.port);
}

static int node_wait(struct node *n, enum standby_end *out_end) {
    uint32_t most = n->server.max_clients ? n->server.max_clients : LIMIT_CLIENTS;
    struct standby_options o = { .stream = n->stream,
                                 .own = n->own,
                                 .wire = &n->wire,
                                 .http = n->server.front ? &n->http : NULL,
                                 .known_end = n->known_ends,
                                 .most_connections = most,
                                 .takeover_ms = n->takeover_ms,
                                 .on_owner = on_node_owner,
                                 .arg = n };
    return standby_run(&o, out_end, &n->server.stream.expected_epoch);
}

// Whether to wait again: another node was faster, or this one has lost the store.
static bool node_goes_on(int err) {
    return err == MR_EBUSY || err == MR_ESTOPPED || err == MR_ENET;
}

static int node_serve_store(struct node *n) {
    n->server.stream.owner = n->own;
    n->server.stream.expects_epoch = true;
    n->server.stream.known_ends = n->known_ends;
    n->server.port = n->wire.port;
    n->server.front_port = n->http.port;
    return server_run(&n->server);
}

// What the store promises now. MR_ENET: it does not answer.
static int node_ask_promise(struct node *n) {
    int err = n->stream->impl->promise(n->stream, &n->promise);
    if (err > 0)
        err = error_set(MR_ENET, "%s", error_text());
    if (err == 0 && n->options->requires_replication && !n->promise.replicated)
        err = error_set(MR_EINVAL,
                        "the store is not replicated as --require-replication demands. %s %s, or "
                        "start the node without the option",
                        n->promise.text, n->promise.remedy);
    return err;
}

static void node_set_info(struct node *n) {
    const char *cluster = n->server.store_url.cluster;
    snprintf(n->address, sizeof n->address, "%.*s", (int)strcspn(n->own, " "), n->own);
    n->info = (struct host_node){ .cluster = cluster ? cluster : STORE_CLUSTER,
                                  .address = n->address,
                                  .promise = n->promise.text,
                                  .is_replicated = n->promise.replicated };
    n->server.node = &n->info;
}

// The promise is asked for anew every time: the store may have another server by now.
static int node_serve(struct node *n) {
    int err = node_ask_promise(n);
    if (err == 0) {
        notice(n->promise.replicated ? NOTICE_INFO : NOTICE_WARN, "%s", n->promise.text);
        node_set_info(n);
        err = node_serve_store(n);
    }
    if (node_goes_on(err))
        notice(NOTICE_WARN, "%s; this node waits", error_text());
    return err;
}

// A store that is not as required is refused at the start, before this node could take over; one
// that does not answer is waited for.
static int node_check_start(struct node *n) {
    int err = n->options->requires_replication ? node_ask_promise(n) : 0;
    return err == MR_ENET ? 0 : err;
}

static int node_loop(struct node *n) {
    for (;;) {
        enum standby_end end;
        int err = node_wait(n, &end);
        if (err < 0 || end == STANDBY_STOPPED)
            return err;
        err = node_serve(n);
        if (!node_goes_on(err))
            return err;
    }
}

int node_run(const struct node_options *options) {
    struct node n = { .options = options, .server = *options->server };
    signal(SIGPIPE, SIG_IGN); // of clients that close while bytes are passed on to them
    n.takeover_ms = options->takeover_ms ? options->takeover_ms : NODE_TAKEOVER_MS;
    n.server.max_unowned_ms = n.takeover_ms * 3 / 5;
    n.server.stream.beat_ms = (uint32_t)(n.takeover_ms / 5);
    place_set(&n.wire, n.server.host, n.server.port);
    node_check_http(&n);
    if (n.server.front)
        place_set(&n.http, n.server.front_host, n.server.front_port);
    int err = node_places_find(&n);
    if (err == 0)
        err = stream_store_open(&n.server.store_url, NULL, &n.store);
    if (err < 0)
        return err;
    err = n.store->open(n.store, 0, &n.stream);
    if (err == 0)
        err = node_check_start(&n);
    if (err == 0)
        err = node_loop(&n);
    if (n.stream)
        n.stream->impl->close(n.stream);
    stream_store_close(n.store);
    return err;
}
