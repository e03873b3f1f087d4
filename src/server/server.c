// A server: what its loops share, from the start to the end: options, files that are read again,
// the store, sockets that listen. loop.c runs a loop, stop.c stops them all.
#include "server/server.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/loop.h"
#include "server/notice.h"
#include "server/places.h"
#include "server/stop.h"
#include "server/systemd.h"

#include <assert.h>
#include <stdio.h>

// ---- Reloading --------------------------------------------------------------------------------

static void set_tokens(struct host *h, void *auth) {
    host_set_auth(h, auth);
}

static void drop_tokens(void *auth) {
    auth_destroy(auth);
}

// Other loops get what the first one has read, not what the file says by then. The loop of a shard
// that is being opened may end before it runs.
static int pass_on_tokens(struct server *server, uint32_t loop) {
    struct auth *copy;
    int err = auth_copy(server->loop[0]->host.auth, &copy);
    if (err < 0)
        return err;
    err = loops_give(&server->loops, loop, set_tokens, drop_tokens, copy);
    if (err < 0)
        auth_destroy(copy);
    return err;
}

// Reads files that may change at run time; an invalid one is reported and changes nothing.
static void reload_files(void *arg) {
    struct server *server = arg;
    struct loop *v = server->loop[0];
    host_begin(&v->host);
    pthread_mutex_lock(&server->lock);
    bool tokens = credentials_reload(&server->credentials, &v->host);
    pthread_mutex_unlock(&server->lock);
    for (uint32_t i = 1; tokens && i < server->loops.count; i++)
        if (server->loop[i] && pass_on_tokens(server, i) < 0)
            notice(NOTICE_ERROR, "a loop keeps its old tokens: %s", error_text());
    if (server->options.on_reload)
        server->options.on_reload(server->options.arg);
    turn_end(v);
}

// ---- Loading the store ------------------------------------------------------------------------

void server_group_options(struct server *server, struct loop *v, struct group_options *out) {
    const struct server_options *o = &server->options;
    *out =
        (struct group_options){ .store = o->store_url,
                                .shards = o->shards,
                                .log = { .sync = o->sync,
                                         .interval_ms = o->interval_ms,
                                         .stream = o->stream,
                                         .max_unwritten = LOG_UNWRITTEN,
                                         .on_durable = loop_log_is_durable },
                                .limits = { .max_body = o->max_body, .max_memory = o->max_bytes },
                                .never_replayed = o->store_url.scheme == STORE_IN_MEMORY,
                                .cancel = &server->cancel_load };
    host_group_options(&v->host, out);
}

static void load_store(uv_work_t *work) {
    struct server *server = work->data;
    struct group_options group;
    server_group_options(server, server->loop[0], &group);
    server->load_err = group_open(&group, &server->group);
    if (server->load_err < 0)
        snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
}

static int loop_load(struct loop *v) {
    int err = host_load(&v->host, v->server->group);
    loop_set_fetch(v);
    return err;
}

// A loop that fails here, for lack of memory, answers LOADING until the server stops.
static void other_loop_load(struct host *h, void *server) {
    (void)server;
    if (loop_load(loop_of(h)) < 0)
        notice(NOTICE_ERROR, "a loop cannot serve the store: %s", error_text());
}

static void fail_loading(struct server *server) {
    bool by_signal = server->load_err == MR_ECANCELLED;
    server->exit = by_signal ? 0 : server->load_err;
    stop_close_all(server);
}

static void on_loaded(uv_work_t *work, int status) {
    struct server *server = work->data;
    struct loop *v = server->loop[0];
    (void)status;
    server->loading_now = false;
    if (server->load_err == 0 && (server->load_err = loop_load(v)) < 0)
        snprintf(server->load_text, sizeof server->load_text, "%s", error_text());
    if (server->load_err < 0) {
        fail_loading(server);
        return;
    }
    for (uint32_t i = 1; i < server->loops.count; i++)
        (void)loops_run(&server->loops, i, other_loop_load,
                        server); // if it fails, that loop answers LOADING
    const struct server_options *o = &server->options;
    if (o->on_ready)
        o->on_ready(o->arg, o->host, o->port, true);
    systemd_notify("READY=1\nSTATUS=Ready");
    if (server->stopping) {
        stop_close_all(server);
        return;
    }
    credentials_note_exceeded(&v->host);
    host_begin(&v->host); // emits may have to be sent to other shards
    turn_end(v);
}

// ---- Starting ---------------------------------------------------------------------------------

static void end_turn(void *loop) {
    turn_end(loop);
}

static int start_fronts(struct server *server) {
    struct server_options *o = &server->options;
    struct loop *v = server->loop[0];
    if (!o->front)
        return 0;
    struct front_place place = { .loop = &v->uv,
                                 .host = &v->host,
                                 .address = o->front_host,
                                 .names = o->front_names,
                                 .turn_end = end_turn,
                                 .server = v };
    int err = o->front->start(&place, &server->fronts);
    if (err == 0)
        err = listen_on(&server->listen[LISTEN_FRONT], o->front_host, &o->front_port, o->front_fd);
    if (err == MR_ENET)
        err = error_set(err, "%s; --http sets another address", error_text());
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++)
        loop_watch(server->loop[i]);
    return o->front_asked ? err : 0;
}

static void write_listening(const struct server *server) {
    const struct server_options *o = &server->options;
    if (o->on_ready)
        o->on_ready(o->arg, o->host, o->port, false);
    if (o->front && !server->listen[LISTEN_FRONT].open)
        notice(NOTICE_WARN,
               "%s:%u is in use: running without the page and the API; --http sets another address",
               o->front_host, o->front_port);
    else if (o->front && o->on_front)
        o->on_front(o->arg, o->front_host, o->front_port);
    systemd_notify("STATUS=Reading the store %s", o->store);
}

static int init_server_handles(struct server *server) {
    uv_loop_t *uv = &server->loop[0]->uv;
    int err = 0;
    for (int i = 0; err == 0 && i < LISTEN_KINDS; i++) {
        server->listen[i].loop = server->loop[0];
        err = uv_tcp_init(uv, &server->listen[i].tcp);
    }
    if (err < 0 || (err = uv_timer_init(uv, &server->drain_timer)) < 0 ||
        (err = uv_signal_init(uv, &server->interrupt)) < 0 ||
        (err = uv_signal_init(uv, &server->terminate)) < 0 ||
        (err = reload_init(&server->reload, uv, reload_files, server)) < 0 ||
        (err = uv_signal_start(&server->interrupt, stop_on_signal, SIGINT)) < 0 ||
        (err = uv_signal_start(&server->terminate, stop_on_signal, SIGTERM)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    server->drain_timer.data = server->loading.data = server;
    server->interrupt.data = server->terminate.data = server;
    return 0;
}

static int create_loops(struct server *server) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++)
        err = loop_create(server, i);
    if (err == 0 && (err = credentials_open(&server->credentials, &server->loop[0]->host)) < 0 &&
        err != MR_ENOMEM)
        err = error_set(MR_EAUTH, "%s", error_text());
    struct auth *auth = server->loop[0] ? server->loop[0]->host.auth : NULL;
    for (uint32_t i = 1; err == 0 && auth && i < loop_count(server); i++)
        err = auth_copy(auth, &server->loop[i]->host.auth);
    return err;
}

// ---- Running ----------------------------------------------------------------------------------

static int loop_start_threads(struct server *server) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < loop_count(server); i++)
        err = loop_start_thread(server->loop[i]);
    return err;
}

// Loops whose threads run end by themselves; the handles of the others are closed here.
static void end_loops(struct server *server) {
    for (uint32_t i = 0; i < loop_count(server) && server->loop[i]; i++) {
        struct loop *v = server->loop[i];
        if (v->threaded) {
            loop_end_thread(v);
            pthread_join(v->thread, NULL);
        } else if (v->has_uv) {
            loop_close_handles(v);
        }
    }
}

static int start_listening(struct server *server) {
    struct server_options *o = &server->options;
    struct listen_socket *listen = server->listen;
    int err = o->host ? listen_on(&listen[LISTEN_TCP], o->host, &o->port, o->listen_fd) : 0;
    if (err == 0 && o->unix_path)
        err = listen_on_file(&listen[LISTEN_UNIX], o->unix_path, o->unix_mode, o->unix_fd);
    for (uint32_t i = 0; err == 0 && i < loop_count(server); i++) {
        server->loop[i]->host.port = o->port;
        server->loop[i]->host.unix_path = o->unix_path;
    }
    return err;
}

static int loop_start(struct server *server) {
    int err = create_loops(server);
    if (err == 0)
        err = init_server_handles(server);
    if (err == 0)
        err = start_listening(server);
    if (err == 0)
        err = start_fronts(server);
    return err < 0 ? err : loop_start_threads(server);
}

static int serve_as_node(struct server *server) {
    struct loop *v = server->loop[0];
    int err = places_start(server);
    if (err < 0)
        server_fail_node(server, err);
    uv_run(&v->uv, UV_RUN_DEFAULT);
    places_stop(server);
    end_loops(server);
    if (server->exit < 0)
        error_set(server->exit, "%s", server->load_text);
    return server->exit;
}

static int serve(struct server *server) {
    int err = loop_start(server);
    if (err < 0) {
        end_loops(server);
        return err;
    }
    write_listening(server);
    struct loop *v = server->loop[0];
    if (server->loops.is_cluster)
        return serve_as_node(server);
    err = uv_queue_work(&v->uv, &server->loading, load_store, on_loaded);
    assert(err == 0); // it only fails without a callback
    server->loading_now = true;
    uv_run(&v->uv, UV_RUN_DEFAULT);
    end_loops(server);
    if (server->exit < 0)
        error_set(server->exit, "%s", server->load_text);
    return server->exit;
}

// The number of processors for SERVER_LOOPS_AUTO.
static uint32_t loops_wanted(uint32_t asked) {
    uint32_t count = asked == SERVER_LOOPS_AUTO ? uv_available_parallelism() : asked ? asked : 1;
    return count < LOOPS_MOST ? count : LOOPS_MOST;
}

int server_run(const struct server_options *options) {
    struct server *server = mem_alloc(sizeof *server);
    if (!server)
        return error_set(MR_ENOMEM, "no memory for a server");
    server->options = *options;
    if (!options->max_clients)
        server->options.max_clients = LIMIT_CLIENTS;
    server->most_connections = most_descriptors();
    server->credentials = (struct credentials){ .auth = options->auth, .tls = options->tls };
    pthread_mutex_init(&server->lock, NULL);
    quota_init(&server->quota, server->options.max_clients,
               options->max_per_address ? options->max_per_address : LIMIT_CLIENTS_OF_ADDRESS,
               (struct quota_words){ "clients", "max-clients", "address", "max-per-address" });
    bool is_node = options->cluster != NULL;
    loops_init(&server->loops,
               is_node ? options->cluster->shards + 1 : loops_wanted(options->loops), is_node);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a file size limit is then an error of write
    int err = serve(server);
    socket_file_remove(&server->listen[LISTEN_UNIX].file); // after a start that failed
    for (uint32_t i = server->loops.count; i > 0; i--)
        loop_destroy(server->loop[i - 1]);
    if (server->options.front)
        server->options.front->stop(server->fronts);
    loops_finish(&server->loops);
    quota_finish(&server->quota);
    credentials_close(&server->credentials);
    pthread_mutex_destroy(&server->lock);
    mem_free(server);
    return err;
}
