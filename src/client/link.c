// Links: each is a connection that comes back.
//
//     DOWN ─► CONNECTING ─► [SECURING] ─► GREETING ─► UP ─► lost: DOWN, for 50 ms … 5 s
//                                            └─► LOADING ─┘
//
// What was sent and not answered is sent again, in the same order, ahead of what is new.
#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "client/state.h"
#include "tls/socket.h"
#include "wire/number.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PAUSE_LEAST_MS = 50,  // before the first try to connect again …
    PAUSE_MOST_MS = 5000, // … and before every later one at most
    GREETING_MS = 5000,   // connecting and greeting take no longer
    LOADING_MS = 100,     // between questions whether the store has been read
    FIND_AGAIN_MS = 5000, // between questions where the host is
    SILENCE_MS = 15000,   // of a server that owes answers
    LANES_KEPT = 8,       // idle ones
    READ_SIZE = 64 << 10,
    REPLY_VALUES = 1 << 18,
    REPLY_LINE = 64 << 10,
    REPLY_BULK = 32 << 20,
    REPLY_SIZE = 512 << 20,
};

static const struct response_limits limits = {
    .values = REPLY_VALUES, .line_size = REPLY_LINE, .bulk_size = REPLY_BULK, .size = REPLY_SIZE
};

// ---- Life -------------------------------------------------------------------------------------

struct response_value *link_values_create(void) {
    return mem_alloc(REPLY_VALUES * sizeof(struct response_value));
}

struct client_link *link_create(struct client *c, bool lane) {
    struct client_link *l = mem_alloc(sizeof *l);
    if (!l) {
        error_set(MR_ENOMEM, "no memory for a connection");
        return NULL;
    }
    l->client = c;
    l->lane = lane;
    l->fd = -1;
    l->due_ms = l->down_since_ms = monotonic_ms();
    list_init(&l->queue);
    list_init(&l->sent);
    list_append(&c->links, &l->of_client);
    client_wake_io(c);
    return l;
}

static void fail_all(struct client_link *l, struct list *exchanges) {
    for (struct list *at; (at = list_first(exchanges)) != NULL;)
        exchange_fail(list_entry(at, struct exchange, of_link), l->err, l->why);
}

static void hang_up(struct client_link *l) {
    if (l->tls && l->fd >= 0) {
        tls_end(l->tls);
        (void)secure_send(l->tls, l->fd, NULL, 0); // the server notices anyway
    }
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
    tls_destroy(l->tls);
    l->tls = NULL;
}

void link_destroy(struct client_link *l) {
    hang_up(l);
    l->closing = true;
    l->err = MR_ENET;
    snprintf(l->why, sizeof l->why, "the connection was closed");
    fail_all(l, &l->sent);
    fail_all(l, &l->queue);
    client_jobs_leave_link(l);
    list_remove(&l->of_client);
    l->client->idle_count -= !list_empty(&l->of_idle);
    list_remove(&l->of_idle);
    if (l->puller) {
        l->puller->link = NULL;
        pthread_cond_broadcast(&l->puller->changed);
    }
    buffer_finish(&l->out);
    buffer_finish(&l->in);
    mem_free(l);
}

struct client_link *lane_borrow(struct client *c) {
    struct list *idle = list_first(&c->idle);
    if (!idle)
        return link_create(c, true);
    list_remove(idle);
    c->idle_count--;
    return list_entry(idle, struct client_link, of_idle);
}

// Keeps a few idle lanes for the next request that waits, and all that still have uses.
static void close_if_unused(struct client_link *l) {
    struct client *c = l->client;
    if (l->uses || list_empty(&l->of_idle) || c->idle_count <= LANES_KEPT)
        return;
    list_remove(&l->of_idle);
    c->idle_count--;
    l->closing = true;
    client_wake_io(c);
}

void lane_return(struct client_link *l) {
    struct client *c = l->client;
    if (l->closing)
        return;
    list_append(&c->idle, &l->of_idle);
    c->idle_count++;
    close_if_unused(l);
}

void link_unuse(struct client_link *l) {
    l->uses--;
    close_if_unused(l);
}

bool link_is_at(const struct client_link *l, const struct client_link *other) {
    size_t count = l->client->address_count;
    return l->state == LINK_UP && l->address % count == other->address % count;
}

void link_pin(struct client_link *l, const struct client_link *other) {
    l->pinned = true;
    l->address = other->address;
}

// ---- Losing it --------------------------------------------------------------------------------

static uint64_t pause_ms(struct client_link *l) {
    uint64_t most = PAUSE_LEAST_MS;
    for (uint32_t i = 1; i < l->failures && most < PAUSE_MOST_MS; i++)
        most *= 2;
    if (most > PAUSE_MOST_MS)
        most = PAUSE_MOST_MS;
    return most / 2 + client_random(l->client) % (most / 2 + 1); // so that not all come at once
}

// Requests that were sent come before those that were not. One whose caller has left is dropped.
static void unsend(struct client_link *l) {
    for (struct list *at = l->sent.next, *next; at != &l->sent; at = next) {
        struct exchange *x = list_entry(at, struct exchange, of_link);
        next = at->next;
        x->sent = false;
        x->repeated = true;
        if (x->left || x->fails_if_lost || x->acts_each_time)
            exchange_fail(x, l->err, l->why);
    }
    for (struct list *at; (at = list_first(&l->queue)) != NULL;) {
        list_remove(at);
        list_append(&l->sent, at);
    }
    for (struct list *at; (at = list_first(&l->sent)) != NULL;) {
        list_remove(at);
        list_append(MUTANT(resent_in_reverse) ? l->queue.next : &l->queue, at);
    }
}

// Requests that were not sent could be, if another address of the server answers.
static void fail_unsent(struct client_link *l) {
    for (struct list *at = l->queue.next, *next; at != &l->queue; at = next) {
        struct exchange *x = list_entry(at, struct exchange, of_link);
        next = at->next;
        if (x->fails_if_lost)
            exchange_fail(x, l->err, l->why);
    }
}

// The next time another address is tried, unless another link has decided so.
static void link_leave_address(struct client_link *l) {
    if (l->client->address == l->address)
        l->client->address++;
}

// What accepts a connection and does not greet is no server, but a proxy before one that has ended.
void link_lose(struct client_link *l, int err, const char *format, ...) {
    uint64_t now_ms = monotonic_ms();
    va_list values;
    va_start(values, format);
    vsnprintf(l->why, sizeof l->why, format, values);
    va_end(values);
    l->err = err;
    hang_up(l);
    if (l->state == LINK_CONNECTING || l->state == LINK_SECURING || l->state == LINK_GREETING)
        link_leave_address(l);
    l->state = LINK_DOWN;
    if (!l->down_since_ms)
        l->down_since_ms = now_ms;
    l->failures++;
    l->due_ms = now_ms + pause_ms(l);
    l->write_blocked = false;
    l->out_at = 0;
    l->reader = (struct response){ 0 };
    buffer_finish(&l->out);
    buffer_finish(&l->in);
    unsend(l);
    if (link_is_lost(l) || l->pinned)
        fail_unsent(l);
    l->pinned = false;
    if (!MUTANT(call_not_made_again))
        calls_resend(l);
    if (!MUTANT(jobs_go_on_without_connection))
        client_jobs_stop_link(l);
    pthread_cond_broadcast(&l->client->changed);
}

// ---- Sending ----------------------------------------------------------------------------------

static void link_watch(struct client_link *l, int operation, bool writable) {
    struct epoll_event event = { .events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = l };
    if (epoll_ctl(l->client->epoll_fd, operation, l->fd, &event) < 0)
        link_lose(l, MR_ENET, "the connection to %s cannot be watched: %s", l->client->where,
                  strerror(errno));
}

static bool has_unsent(const struct client_link *l) {
    return l->out_at < l->out.size || (l->tls && secure_is_blocked(l->tls));
}

static ssize_t link_send_some(struct client_link *l) {
    const uint8_t *data = l->out.data + l->out_at;
    size_t size = l->out.size - l->out_at;
    return l->tls ? secure_send(l->tls, l->fd, data, size) : send(l->fd, data, size, MSG_NOSIGNAL);
}

static const char *link_error_text(int failed) {
    return failed == EPROTO ? error_text() : strerror(failed);
}

static bool link_read(struct client_link *);

// A server that closes the connection may have sent the reason, which is still to be read.
static void lose_unwritten(struct client_link *l, int failed) {
    while (l->fd >= 0 && link_read(l))
        continue;
    if (l->fd >= 0)
        link_lose(l, MR_ENET, "the connection to %s is lost: %s", l->client->where,
                  link_error_text(failed));
}

static void link_write(struct client_link *l) {
    struct client *c = l->client;
    while (has_unsent(l)) {
        pthread_mutex_unlock(&c->lock);
        ssize_t size = link_send_some(l);
        int failed = errno;
        pthread_mutex_lock(&c->lock);
        if (size >= 0) {
            l->out_at += (size_t)size;
            continue;
        }
        if (failed == EINTR)
            continue;
        if (failed != EAGAIN && failed != EWOULDBLOCK) {
            lose_unwritten(l, failed);
            return;
        }
        l->out_at = buffer_compact(&l->out, l->out_at);
        if (!l->write_blocked)
            link_watch(l, EPOLL_CTL_MOD, l->write_blocked = true);
        return;
    }
    l->out_at = 0;
    if (l->out.capacity > READ_SIZE)
        buffer_finish(&l->out);
    buffer_clear(&l->out);
    if (l->write_blocked)
        link_watch(l, EPOLL_CTL_MOD, l->write_blocked = false);
}

// The server may have forgotten the source by now, and would take the number for a new one. Those
// behind it in their series would come without it.
static bool is_too_late(const struct client_link *l, struct exchange *x, uint64_t now_ms) {
    if (x->source && x->first_ms && now_ms > x->first_ms + l->client->repeat_ms)
        x->source->late = true;
    return x->source && x->source->late && !MUTANT(number_sent_again_too_late);
}

static void send_queue(struct client_link *l, uint64_t now_ms) {
    for (struct list *at; (at = list_first(&l->queue)) != NULL;) {
        struct exchange *x = list_entry(at, struct exchange, of_link);
        if (is_too_late(l, x, now_ms)) {
            exchange_fail(x, MR_ENET,
                          "the connection was lost for too long: whether the push was accepted is "
                          "not known");
            continue;
        }
        if (exchange_write(x, &l->out) < 0) {
            if (l->out.size > l->out_at)
                break; // once there is less to send there may be memory
            exchange_fail(x, MR_ENOMEM, error_text());
            continue;
        }
        if (list_empty(&l->sent))
            l->received_ms = now_ms;
        list_remove(at);
        list_append(&l->sent, at);
        x->sent = true;
        x->sent_ms = now_ms;
        x->first_ms = x->first_ms ? x->first_ms : now_ms;
    }
}

// ---- Receiving --------------------------------------------------------------------------------

static void receive_push(struct client_link *l, const struct response_value *v, uint32_t count) {
    uint64_t id;
    bool named = count >= 3 && v[1].type == RESPONSE_BULK && v[2].type == RESPONSE_BULK;
    if (!named || number_parse(v[2].bytes, &id) < 0)
        return; // later versions may send more
    if (v[1].bytes.size == 6 && memcmp(v[1].bytes.data, "cancel", 6) == 0)
        client_job_stop_id(l, id);
    else if (count >= 4 && v[1].bytes.size == 5 && memcmp(v[1].bytes.data, "ended", 5) == 0)
        calls_ended(l, id, &v[3]);
}

static void receive_greeting(struct client_link *l, const struct response_value *v) {
    int err = greet_read(l, v);
    if (err < 0) {
        link_lose(l, err, "%s", error_text());
        return;
    }
    l->probing = false;
    if (l->state == LINK_LOADING)
        l->due_ms = monotonic_ms() + LOADING_MS;
    if (l->state == LINK_LOADING || l->state == LINK_UP) {
        l->down_since_ms = 0;
        pthread_cond_broadcast(&l->client->changed);
    }
}

static void receive_reply(struct client_link *l, const struct response_value *v, uint32_t count) {
    if (v->type == RESPONSE_PUSH) {
        receive_push(l, v, count);
    } else if (l->state != LINK_UP) {
        receive_greeting(l, v);
    } else if (list_empty(&l->sent)) {
        link_lose(l, MR_ENET, "%s sends an answer without a request", l->client->where);
    } else {
        l->failures = 0;
        exchange_answer(list_entry(l->sent.next, struct exchange, of_link), v, count);
    }
}

static void lose_unlike_server(struct client_link *l) {
    link_lose(l, MR_ENET,
              "%s does not answer as a Millrace server does; is it the address of --listen?",
              l->client->where);
}

static void receive_replies(struct client_link *l) {
    size_t at = 0;
    while (at < l->in.size) {
        uint32_t count;
        ptrdiff_t used = response_read(&l->reader, &limits, l->in.data + at, l->in.size - at,
                                       l->client->values, &count);
        if (used < 0) {
            if (l->state == LINK_GREETING)
                lose_unlike_server(l);
            else
                link_lose(l, MR_ENET, "%s does not follow the protocol: %s", l->client->where,
                          error_text());
            return;
        }
        if (used == 0)
            break;
        receive_reply(l, l->client->values, count);
        if (l->fd < 0)
            return; // lost meanwhile
        at += (size_t)used;
    }
    l->in.size -= at;
    if (at && l->in.size)
        memmove(l->in.data, l->in.data + at, l->in.size);
    if (!l->in.size && l->in.capacity > READ_SIZE)
        buffer_finish(&l->in);
}

static ssize_t link_receive_some(struct client_link *l) {
    uint8_t *to = l->in.data + l->in.size;
    size_t room = l->in.capacity - l->in.size;
    return l->tls ? secure_recv(l->tls, l->fd, to, room) : recv(l->fd, to, room, 0);
}

// A server that uses TLS closes a connection that does not, without an answer.
static void lose_closed(struct client_link *l, const char *why) {
    const char *where = l->client->where;
    bool unanswered =
        l->state == LINK_GREETING && !l->greeted && !l->tls && l->client->nodes[0].port[0];
    link_lose(l, MR_ENET, "the connection to %s is lost: %s%s%s", where, why,
              unanswered ? "; a server that encrypts is at millraces://" : "",
              unanswered ? where : "");
}

// True: something came, and with TLS more may be there.
static bool link_read(struct client_link *l) {
    struct client *c = l->client;
    size_t more = l->reader.need > l->in.size ? l->reader.need - l->in.size : 0;
    if (buffer_reserve(&l->in, more > READ_SIZE ? more : READ_SIZE) < 0) {
        link_lose(l, MR_ENOMEM, "no memory for an answer of %s", c->where);
        return false;
    }
    pthread_mutex_unlock(&c->lock);
    ssize_t size = link_receive_some(l);
    int failed = errno;
    pthread_mutex_lock(&c->lock);
    if (size < 0 && (failed == EAGAIN || failed == EINTR))
        return false;
    if (size <= 0) {
        lose_closed(l, size < 0 ? link_error_text(failed) : "the server has closed it");
        return false;
    }
    l->received_ms = monotonic_ms();
    l->in.size += (size_t)size;
    receive_replies(l);
    return l->fd >= 0;
}

// ---- Connecting -------------------------------------------------------------------------------

static void lose_unconnected(struct client_link *l, int failed) {
    const struct client *c = l->client;
    link_lose(l, MR_ENET,
              "cannot reach a server at %s: %s; is it running? It is started with: millrace serve "
              "--listen %s",
              c->where, strerror(failed), c->where);
}

// Looks the host up again when all addresses have failed; not sooner, because that may take long.
static void find_again(struct client *c, const struct client_link *l, uint64_t now_ms) {
    if (l->failures > c->address_count && now_ms >= c->found_ms + FIND_AGAIN_MS)
        addresses_renew(c, now_ms);
}

static void link_connect(struct client_link *l, uint64_t now_ms) {
    uint64_t unreachable_ms = l->client->unreachable_ms;
    find_again(l->client, l, now_ms);
    l->probing = false;
    l->give_up_ms = monotonic_ms() + (unreachable_ms < GREETING_MS ? unreachable_ms : GREETING_MS);
    if (!l->pinned)
        l->address = l->client->address;
    l->host = address_host(l->client, l->address);
    l->state = LINK_CONNECTING;
    l->fd = socket_connect(address_at(l->client, l->address));
    if (l->fd < 0) {
        int failed = -l->fd;
        l->fd = -1;
        lose_unconnected(l, failed);
        return;
    }
    link_watch(l, EPOLL_CTL_ADD, true);
}

static void link_greet(struct client_link *l) {
    l->state = LINK_GREETING;
    l->greeted = 0;
    if (greet_write(l) < 0) {
        link_lose(l, MR_ENOMEM, "no memory to greet %s", l->client->where);
        return;
    }
    l->write_blocked = true; // watched already
    link_write(l);
}

// Until it is over, only what comes from the server moves it.
static void link_secure(struct client_link *l) {
    struct client *c = l->client;
    pthread_mutex_unlock(&c->lock);
    int over = secure_handshake(l->tls, l->fd), failed = errno;
    pthread_mutex_lock(&c->lock);
    if (over < 0)
        link_lose(l, MR_ENET, "no secure connection to %s: %s", c->where, link_error_text(failed));
    else
        link_watch(l, EPOLL_CTL_MOD, over || secure_is_blocked(l->tls));
    if (over > 0 && l->fd >= 0)
        link_greet(l);
}

static void link_connected(struct client_link *l) {
    struct client *c = l->client;
    int failed = -socket_error(l->fd);
    if (failed)
        lose_unconnected(l, failed);
    else if (!c->tls)
        link_greet(l);
    else if (tls_connect(c->tls, l->host, &l->tls) < 0)
        link_lose(l, MR_ENOMEM, "%s", error_text());
    else {
        l->state = LINK_SECURING;
        link_secure(l);
    }
}

void link_event(struct client_link *l, uint32_t events) {
    if (l->state == LINK_CONNECTING) {
        link_connected(l);
        return;
    }
    if (l->state == LINK_SECURING) {
        link_secure(l);
        return;
    }
    if (events & EPOLLOUT)
        link_write(l);
    if (l->fd >= 0 && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        while (link_read(l) && l->tls)
            continue;
}

// ---- Turns ------------------------------------------------------------------------------------

// How long an answer may take; UINT64_MAX: for ever. The TAKE of a worker waits at a node for
// `owned_ms`.
static uint64_t silence_ms(const struct client_link *l) {
    if (list_empty(&l->sent) || l->lane || l->lent)
        return UINT64_MAX;
    if (!l->puller)
        return SILENCE_MS;
    return l->owned_ms ? 2 * l->owned_ms + CLIENT_SLACK_MS : UINT64_MAX;
}

static bool is_silent(const struct client_link *l, uint64_t now_ms) {
    return now_ms - l->received_ms >= silence_ms(l);
}

static void link_step(struct client_link *l, uint64_t now_ms) {
    switch (l->state) {
    case LINK_DOWN:
        if (now_ms >= l->due_ms)
            link_connect(l, now_ms);
        break;
    case LINK_CONNECTING:
    case LINK_SECURING:
    case LINK_GREETING:
        if (now_ms < l->give_up_ms)
            break;
        lose_unlike_server(l);
        break;
    case LINK_LOADING:
        if (now_ms < l->due_ms)
            break;
        if (l->probing) {
            link_lose(l, MR_ENET, "%s does not say whether it has read its store",
                      l->client->where);
            break;
        }
        l->probing = true; // one probe at a time: its answer must not be taken for another's
        l->due_ms = now_ms + GREETING_MS;
        if (greet_probe(l) < 0)
            link_lose(l, MR_ENOMEM, "no memory to ask %s", l->client->where);
        break;
    case LINK_UP:
        if (!is_silent(l, now_ms))
            break;
        link_leave_address(l); // another node may answer
        link_lose(l, MR_ENET, "%s has not answered for %d ms", l->client->where,
                  (int)(now_ms - l->received_ms));
        break;
    }
}

bool link_is_lost(const struct client_link *l) {
    return l->err && l->down_since_ms && l->failures >= l->client->address_count;
}

bool link_is_unreachable(const struct client_link *l, uint64_t now_ms) {
    return l->err && l->down_since_ms && !l->puller &&
           now_ms >= l->down_since_ms + l->client->unreachable_ms;
}

void link_turn(struct client_link *l, uint64_t now_ms) {
    link_step(l, now_ms);
    if (link_is_unreachable(l, now_ms))
        fail_all(l, &l->queue);
    if (l->state == LINK_UP)
        send_queue(l, now_ms);
    if (l->state >= LINK_GREETING && !l->write_blocked && has_unsent(l))
        link_write(l);
}

uint64_t link_next_ms(const struct client_link *l) {
    uint64_t unreachable = l->down_since_ms + l->client->unreachable_ms;
    switch (l->state) {
    case LINK_DOWN:
        return !l->puller && !list_empty(&l->queue) && unreachable < l->due_ms ? unreachable
                                                                               : l->due_ms;
    case LINK_CONNECTING:
    case LINK_SECURING:
    case LINK_GREETING:
        return l->give_up_ms;
    case LINK_LOADING:
        return l->due_ms;
    case LINK_UP:
        break;
    }
    uint64_t silent_ms = silence_ms(l);
    return silent_ms == UINT64_MAX ? UINT64_MAX : l->received_ms + silent_ms;
}
