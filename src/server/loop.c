// A loop: its turns, what wakes it, and its life.
//
//     poll ─► read callbacks: bytes into sessions ─► check: the turn ends, replies are sent
//
// connection.c has the code of a single connection, server.c starts the loops, stop.c stops them.
// The logic is in hosts and sessions.
#include "server/loop.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/fetch.h"
#include "server/places.h"
#include "server/stop.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { OWNED_CHECK_MS = 1000 }; // how often a node checks that it still owns the store
enum { NEWS_MESSAGES = 1, NEWS_DURABLE = 2, LOOP_SLEEPS = 4 }; // see "Waking"

// ---- Turns ------------------------------------------------------------------------------------

bool has_lost_store(const struct loop *v) {
    uint64_t max_ms = v->server->options.max_unowned_ms;
    return max_ms && (v->host.stopped || !host_owns_store(&v->host, monotonic_ms(), max_ms));
}

// Each session that is ready has its turn once; one that is ready again follows when the sockets
// were polled.
void loop_flush(struct loop *v) {
    struct host *h = &v->host;
    if (atomic_load(&v->news) & NEWS_DURABLE)
        atomic_fetch_and(&v->news, ~NEWS_DURABLE); // host_durable looks at it now
    host_durable(h);
    if (has_lost_store(v)) {
        stop_without_store(v);
        return;
    }
    if (h->loops && h->loops->is_cluster && !v->index)
        places_check(v->server); // before anything is sent
    list_append(&h->ready, &v->ready_mark);
    while (h->ready.next != &v->ready_mark) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        if (s->remote)
            router_send_replies(s);
        else
            connection_write(s->owner);
    }
    list_remove(&v->ready_mark);
}

static void on_timer(uv_timer_t *timer);

// The turn ends when the sockets were polled, which does not wait while the handle is idle.
static void on_idle(uv_idle_t *idle) {
    struct loop *v = idle->data;
    host_begin(&v->host);
}

// While sessions are in the backlog, or more is due than one turn does, there is a turn in every
// iteration of the loop, and sockets are polled in between. A timer would not do: libuv runs one
// that is due at once again and again before it polls the sockets.
static void plan_idle(struct loop *v, bool has_work) {
    if (!has_work)
        uv_idle_stop(&v->idle);
    else if (!uv_is_closing((uv_handle_t *)&v->idle))
        uv_idle_start(&v->idle, on_idle);
}

// Sets the timer only if something is due before it would fire.
static void loop_plan(struct loop *v) {
    int64_t next_ms = host_next_ms(&v->host);
    if (v->server->options.max_unowned_ms)
        next_ms = wait_shorter(next_ms, OWNED_CHECK_MS);
    plan_idle(v, next_ms == 0);
    if (next_ms == 0)
        return;
    uint64_t at = next_ms < 0 ? UINT64_MAX : uv_now(&v->uv) + (uint64_t)next_ms;
    if (at >= v->timer_at_ms)
        return;
    v->timer_at_ms = at;
    uv_timer_start(&v->timer, on_timer, (uint64_t)next_ms, 0);
}

static bool accepts_later(const struct loop *v) {
    const struct listen_socket *listen = v->server->listen;
    return v->accepted && (listen[LISTEN_TCP].deferred || listen[LISTEN_UNIX].deferred ||
                           listen[LISTEN_FRONT].deferred);
}

static bool has_turn(const struct loop *v) {
    const struct host *h = &v->host;
    return !list_empty(&v->resting) || !list_empty(&v->skipped) || accepts_later(v) || h->in_turn ||
           !list_empty(&h->touched) || !list_empty(&h->resuming) || !list_empty(&h->outgoing) ||
           !list_empty(&h->ready);
}

void turn_plan(struct loop *v) {
    if (has_turn(v))
        plan_idle(v, true);
    else
        loop_plan(v);
}

void turn_end(struct loop *v) {
    struct host *h = &v->host;
    if (has_turn(v)) {
        host_end(h);
        loop_flush(v); // sessions may continue after their replies were sent
        connections_make_room(v);
        connections_read_on(v);
        if (h->loops)
            router_note_client_bytes(h);
    }
    turn_plan(v);
    if (!v->server->lost && !v->was_lost)
        health_look(&v->health, h);
    if (v->stopping)
        stop_note_leases(v);
    if (v->leaving)
        place_leave_on(v);
}

// Messages are handled only here, where no caller uses a connection: they may close any of them.
static void receive_messages(struct loop *v) {
    if (v->leaving == HAS_LEFT)
        return; // the first loop handles them
    host_begin(&v->host);
    if (v->host.loops)
        (void)router_receive(&v->host);
    turn_end(v);
}

static void on_timer(uv_timer_t *timer) {
    struct loop *v = timer->data;
    v->timer_at_ms = UINT64_MAX;
    receive_messages(v); // there may have been no memory for some
}

// ---- Waking -----------------------------------------------------------------------------------
//
// Other threads leave a bit in `news`, and wake the loop by its eventfd only if it sleeps: a loop
// that runs looks before it sleeps. uv_async_send would also wake a loop that runs, and a woken one
// would spin until the sender is back from its write, for long if it has the sender's core.

static void loop_wake(struct loop *v, unsigned news) {
    uint64_t one = 1;
    if (atomic_fetch_or(&v->news, news) != LOOP_SLEEPS)
        return; // it runs, or was woken
    ssize_t wrote = write(v->wake_fd, &one, sizeof one);
    assert(wrote == sizeof one || errno == EAGAIN); // EAGAIN: it is readable already
}

static void on_wake(uv_poll_t *poll, int status, int events) {
    const struct loop *v = poll->data;
    uint64_t count;
    (void)status, (void)events;
    ssize_t got = read(v->wake_fd, &count, sizeof count);
    assert(got == sizeof count || errno == EAGAIN);
}

static void look_at_preemption(struct loop *v) {
    struct rusage used;
    int err = getrusage(RUSAGE_THREAD, &used);
    assert(err == 0);
    polling_look(&v->polling, (uint64_t)used.ru_nivcsw, monotonic_ns());
}

// Returns when a socket is readable or writable, another thread has left news, or it has taken too
// long. Sockets that libuv has not added to its set yet are missed, which costs nothing but the
// time.
static void poll_sockets(struct loop *v) {
    struct pollfd all = { .fd = uv_backend_fd(&v->uv), .events = POLLIN };
    while (poll(&all, 1, 0) == 0 && monotonic_ns() - v->sleeps_ns < POLL_NS)
        continue;
    if (polling_polled(&v->polling))
        look_at_preemption(v);
}

// With news the sockets are polled without waiting.
static void on_prepare(uv_prepare_t *prepare) {
    struct loop *v = prepare->data;
    if (atomic_fetch_or(&v->news, LOOP_SLEEPS)) {
        plan_idle(v, true);
    } else if (!v->server->options.no_polling && uv_backend_timeout(&v->uv) != 0) {
        v->sleeps_ns = monotonic_ns();
        if (polling_pays(&v->polling, v->sleeps_ns))
            poll_sockets(v);
    }
}

static void note_sleep(struct loop *v) {
    if (v->sleeps_ns)
        polling_slept(&v->polling, monotonic_ns() - v->sleeps_ns);
    v->sleeps_ns = 0;
}

// Called by the thread of a log; wakes the loop of its shard.
void loop_log_is_durable(void *part) {
    struct host *h = ((struct part *)part)->host;
    loop_wake(loop_of(h), NEWS_DURABLE);
}

static void read_messages(struct loop *v) {
    if (atomic_load(&v->end)) {
        loop_end(v);
        return;
    }
    receive_messages(v);
    if (!v->index)
        places_collect(v->server);
    if (v->closing)
        stop_go_on(v);
}

static void loop_read_news(struct loop *v) {
    unsigned news = atomic_exchange(&v->news, 0);
    if (news & NEWS_DURABLE)
        loop_flush(v);
    if (news & NEWS_MESSAGES)
        read_messages(v);
}

static void on_check(uv_check_t *check) {
    struct loop *v = check->data;
    note_sleep(v);
    loop_read_news(v);
    if (uv_is_closing((uv_handle_t *)check))
        return;
    v->sent = 0;
    connections_accept_on(v);
    turn_end(v);
}

static void wake_loop(void *loop) {
    loop_wake(loop, NEWS_MESSAGES);
}

// ---- Reading bodies from disk -----------------------------------------------------------------

static void read_fetch(uv_work_t *work) {
    fetch_read(work->data);
}

static void on_fetched(uv_work_t *work, int status) {
    struct fetch *f = work->data;
    struct loop *v = f->owner;
    (void)status; // it is never cancelled
    mem_free(work);
    v->fetching--;
    host_begin(&v->host);
    fetch_end(f);
    turn_end(v);
    if (v->closing)
        stop_go_on(v);
    if (v->leaving)
        place_leave_on(v);
}

static int fetch(void *server, struct fetch *f) {
    struct loop *v = server;
    uv_work_t *work = mem_alloc(sizeof *work);
    if (!work)
        return error_set(MR_ENOMEM, "no memory to read in another thread");
    work->data = f;
    f->owner = v;
    int err = uv_queue_work(&v->uv, work, read_fetch, on_fetched);
    assert(err == 0); // it only fails without a callback
    v->fetching++;
    return 0;
}

void loop_set_fetch(struct loop *v) {
    host_set_fetch(&v->host, fetch, v);
}

// ---- Creating and ending ------------------------------------------------------------------------

static void close_handle(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void loop_end(struct loop *v) {
    uv_walk(&v->uv, close_handle, NULL);
}

void loop_close_handles(struct loop *v) {
    loop_end(v);
    if (!v->threaded)
        uv_run(&v->uv, UV_RUN_DEFAULT);
}

// Handles that were not initialised because of an error need not be closed.
static int init_loop_handles(struct loop *v) {
    int err;
    if ((err = uv_check_init(&v->uv, &v->check)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->timer)) < 0 ||
        (err = uv_idle_init(&v->uv, &v->idle)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->unauthenticated_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->unread_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->inactive_timer)) < 0 ||
        (err = uv_timer_init(&v->uv, &v->leave_timer)) < 0 ||
        (err = uv_prepare_init(&v->uv, &v->prepare)) < 0 ||
        (err = uv_poll_init(&v->uv, &v->wake, v->wake_fd)) < 0 ||
        (err = uv_poll_start(&v->wake, UV_READABLE, on_wake)) < 0 ||
        (err = uv_prepare_start(&v->prepare, on_prepare)) < 0 ||
        (err = uv_check_start(&v->check, on_check)) < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->idle.data = v->check.data = v->timer.data = v;
    v->wake.data = v->prepare.data = v->leave_timer.data = v;
    v->unauthenticated_timer.data = v->unread_timer.data = v->inactive_timer.data = v;
    v->timer_at_ms = UINT64_MAX;
    return 0;
}

// Half of all, so that others can connect.
static uint32_t connections_of_token(const struct server *server) {
    uint32_t most = server->options.max_clients;
    most = most < server->most_connections ? most : server->most_connections;
    return most / 2 + most % 2;
}

// Zero is a default.
static void set_limits(struct loop *v) {
    const struct server_options *o = &v->server->options;
    v->unread.ms = o->max_unread_ms ? o->max_unread_ms : LIMIT_UNREAD_MS;
    v->inactive.ms = o->max_idle_ms;
    v->host.max_bytes = o->max_bytes;
    v->host.max_client_bytes = o->max_client_bytes;
    v->host.token_connections = connections_of_token(v->server);
    v->host.clock = monotonic_ms;
    v->host.node = o->node;
}

void loop_destroy(struct loop *v) {
    if (!v)
        return;
    host_finish(&v->host);
    if (v->has_uv) {
        int open = uv_loop_close(&v->uv);
        assert(open == 0); // every handle was closed
    }
    if (v->wake_fd >= 0)
        close(v->wake_fd);
    mem_free(v->cipher);
    mem_free(v);
}

int loop_create(struct server *server, uint32_t index) {
    struct loop *v = mem_alloc(sizeof *v);
    if (!v)
        return error_set(MR_ENOMEM, "no memory for a server");
    server->loop[index] = v;
    v->server = server;
    v->index = index;
    v->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (v->wake_fd < 0)
        return error_set(MR_EIO, "no event loop: %s", strerror(errno));
    v->cipher = mem_alloc(READ_SIZE);
    if (!v->cipher)
        return error_set(MR_ENOMEM, "no memory for a server");
    int err = host_init(&v->host, server->options.store);
    if (err < 0)
        return err;
    v->host.loop = index;
    set_limits(v);
    err = uv_loop_init(&v->uv);
    if (err < 0)
        return error_set(MR_EIO, "no event loop: %s", uv_strerror(err));
    v->has_uv = true;
    err = init_loop_handles(v);
    if (err < 0)
        return err;
    loops_add(&server->loops, &v->host, wake_loop, v); // from now on other threads wake it
    return 0;
}

void loop_watch(struct loop *v) {
    const struct server *server = v->server;
    if (!server->fronts)
        return;
    v->host.watch = server->options.front->turn;
    v->host.watcher = server->fronts;
}

void loop_end_thread(struct loop *v) {
    atomic_store(&v->end, true);
    loop_wake(v, NEWS_MESSAGES);
}

static void *loop_thread(void *loop) {
    struct loop *v = loop;
    uv_run(&v->uv, UV_RUN_DEFAULT);
    return NULL;
}

int loop_start_thread(struct loop *v) {
    loop_watch(v);
    int failed = pthread_create(&v->thread, NULL, loop_thread, v);
    if (failed)
        return error_set(MR_ENOMEM, "no thread for a loop: %s", strerror(failed));
    v->threaded = true;
    return 0;
}
