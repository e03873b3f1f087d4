// See relay.h. Each direction of a connection has one buffer: it is read into, written to the other
// side, and only then read into again, so a slow reader slows the writer and memory is bounded.
#include "cluster/relay.h"

#include "base/errors.h"
#include "base/list.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BACKLOG = 511, BUFFER = 16 << 10, WAITING_MS = 10000, CONNECTING_MS = 5000 };

struct side {
    uv_tcp_t tcp; // first, so that a handle can be cast
    struct pair *pair;
    struct side *other;
    uv_write_t write;
    uv_shutdown_t shutdown;
    uint8_t *buffer; // what was read from this side and not yet written to the other
    bool has_ended;  // its input has ended
};

// A client's connection, and the one to the target that belongs to it.
struct pair {
    struct relay *relay;
    struct list of_relay;
    struct side client, target;
    uv_connect_t connect;
    uv_timer_t timer; // runs until it is connected
    uint8_t handles;  // of it, in the event loop
    bool is_connecting, is_connected, is_closing;
    uint8_t buffers[2 * BUFFER];
};

struct relay {
    uv_tcp_t listener; // first
    uv_loop_t *loop;
    struct list pairs;
    struct relay_place target;
    uint32_t count, most;
    bool has_waiting; // a connection was not accepted yet
    bool is_closing, has_closed;
};

bool relay_place_read(const char *text, struct relay_place *out) {
    const char *colon = strrchr(text, ':');
    bool bracket = text[0] == '[';
    size_t size = colon ? (size_t)(colon - text) : 0;
    if (!colon || (bracket && (size < 2 || text[size - 1] != ']')))
        return false;
    size -= bracket ? 2 : 0;
    char *end;
    unsigned long port = strtoul(colon + 1, &end, 10);
    if (size == 0 || size >= RELAY_HOST || *end || end == colon + 1 || port == 0 || port > 65535)
        return false;
    *out = (struct relay_place){ .port = (uint16_t)port };
    memcpy(out->host, text + bracket, size);
    return true;
}

static int address_of(const struct relay_place *p, struct sockaddr_storage *out) {
    int err = uv_ip4_addr(p->host, p->port, (struct sockaddr_in *)out);
    return err < 0 ? uv_ip6_addr(p->host, p->port, (struct sockaddr_in6 *)out) : err;
}

// ---- The end of a connection ------------------------------------------------------------------

static void relay_accept(struct relay *);

static void relay_free_if_over(struct relay *r) {
    if (r->has_closed && r->count == 0)
        mem_free(r);
}

static void on_handle_closed(uv_handle_t *handle) {
    struct pair *p = handle->data;
    struct relay *r = p->relay;
    if (--p->handles)
        return;
    list_remove(&p->of_relay);
    mem_free(p);
    r->count--;
    if (r->has_waiting && !r->is_closing)
        relay_accept(r);
    relay_free_if_over(r);
}

static void pair_close(struct pair *p) {
    if (p->is_closing)
        return;
    p->is_closing = true;
    uv_close((uv_handle_t *)&p->client.tcp, on_handle_closed);
    uv_close((uv_handle_t *)&p->target.tcp, on_handle_closed);
    uv_close((uv_handle_t *)&p->timer, on_handle_closed);
}

static void on_time_over(uv_timer_t *timer) {
    pair_close(timer->data);
}

// ---- Bytes ------------------------------------------------------------------------------------

static void on_relay_room(uv_handle_t *handle, size_t size, uv_buf_t *out) {
    struct side *s = (struct side *)handle;
    (void)size;
    *out = uv_buf_init((char *)s->buffer, BUFFER);
}

static void on_relay_bytes(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf);

static void on_relay_written(uv_write_t *write, int status) {
    struct side *from = write->data;
    if (from->pair->is_closing)
        return;
    if (status < 0 || uv_read_start((uv_stream_t *)&from->tcp, on_relay_room, on_relay_bytes) < 0)
        pair_close(from->pair);
}

static void on_shut_down(uv_shutdown_t *shutdown, int status) {
    struct side *from = shutdown->data;
    if (status < 0 || from->other->has_ended)
        pair_close(from->pair);
}

// The input of one side has ended: the other one learns it; its bytes still go the other way.
static void side_end(struct side *s) {
    s->has_ended = true;
    s->shutdown.data = s;
    if (uv_shutdown(&s->shutdown, (uv_stream_t *)&s->other->tcp, on_shut_down) < 0)
        pair_close(s->pair);
}

static void on_relay_bytes(uv_stream_t *stream, ssize_t size, const uv_buf_t *buf) {
    struct side *s = (struct side *)stream;
    if (size == 0)
        return;
    (void)uv_read_stop(stream); // it cannot fail
    if (size < 0) {
        if (size == UV_EOF)
            side_end(s);
        else
            pair_close(s->pair);
        return;
    }
    uv_buf_t out = uv_buf_init(buf->base, (unsigned)size);
    s->write.data = s;
    if (uv_write(&s->write, (uv_stream_t *)&s->other->tcp, &out, 1, on_relay_written) < 0)
        pair_close(s->pair);
}

// ---- Connecting -------------------------------------------------------------------------------

static void on_connected(uv_connect_t *connect, int status) {
    struct pair *p = connect->data;
    if (p->is_closing)
        return;
    p->is_connected = status == 0;
    (void)uv_timer_stop(&p->timer);          // it cannot fail
    (void)uv_tcp_nodelay(&p->target.tcp, 1); // optional, as in connection.c
    if (status < 0 ||
        uv_read_start((uv_stream_t *)&p->client.tcp, on_relay_room, on_relay_bytes) < 0 ||
        uv_read_start((uv_stream_t *)&p->target.tcp, on_relay_room, on_relay_bytes) < 0)
        pair_close(p);
}

// Its own node is no target: it does not own the store, or there would be no relay.
static void pair_connect(struct pair *p) {
    struct sockaddr_storage address;
    p->is_connecting = true;
    p->connect.data = p;
    if (address_of(&p->relay->target, &address) < 0 ||
        uv_timer_start(&p->timer, on_time_over, CONNECTING_MS, 0) < 0 ||
        uv_tcp_connect(&p->connect, &p->target.tcp, (struct sockaddr *)&address, on_connected) < 0)
        pair_close(p);
}

static void side_init(struct pair *p, struct side *s, struct side *other, uint8_t *buffer) {
    uv_tcp_init(p->relay->loop, &s->tcp);
    s->tcp.data = p;
    s->pair = p;
    s->other = other;
    s->buffer = buffer;
}

static struct pair *pair_create(struct relay *r) {
    struct pair *p = mem_alloc(sizeof *p);
    if (!p)
        return NULL;
    p->relay = r;
    p->handles = 3;
    side_init(p, &p->client, &p->target, p->buffers);
    side_init(p, &p->target, &p->client, p->buffers + BUFFER);
    uv_timer_init(r->loop, &p->timer);
    p->timer.data = p;
    list_append(&r->pairs, &p->of_relay);
    r->count++;
    return p;
}

// libuv reports no other connection until this one is accepted.
static void relay_accept(struct relay *r) {
    struct pair *p = r->count < r->most ? pair_create(r) : NULL;
    r->has_waiting = !p;
    if (!p)
        return;
    if (uv_accept((uv_stream_t *)&r->listener, (uv_stream_t *)&p->client.tcp) < 0) {
        pair_close(p);
        return;
    }
    (void)uv_tcp_nodelay(&p->client.tcp, 1);
    if (r->target.port)
        pair_connect(p);
    else if (uv_timer_start(&p->timer, on_time_over, WAITING_MS, 0) < 0)
        pair_close(p);
}

static void on_client(uv_stream_t *listener, int status) {
    if (status == 0)
        relay_accept((struct relay *)listener);
}

void relay_to(struct relay *r, const struct relay_place *target) {
    if (r->target.port == target->port && strcmp(r->target.host, target->host) == 0)
        return;
    r->target = *target;
    for (struct list *l = r->pairs.next, *next; l != &r->pairs; l = next) {
        struct pair *p = list_entry(l, struct pair, of_relay);
        next = l->next;
        if (p->is_connecting)
            pair_close(p);
        else if (r->target.port && !p->is_closing)
            pair_connect(p);
    }
}

uint32_t relay_connections(const struct relay *r) {
    return r->count;
}

// ---- Opening and closing ----------------------------------------------------------------------

static void on_listener_closed(uv_handle_t *handle) {
    struct relay *r = (struct relay *)handle;
    r->has_closed = true;
    relay_free_if_over(r);
}

static int relay_listen(struct relay *r, struct relay_place *place) {
    struct sockaddr_storage address = { 0 };
    int size = sizeof address, err = address_of(place, &address);
    if (err == 0)
        err = uv_tcp_bind(&r->listener, (struct sockaddr *)&address, 0);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&r->listener, BACKLOG, on_client);
    if (err == 0)
        err = uv_tcp_getsockname(&r->listener, (struct sockaddr *)&address, &size);
    if (err < 0)
        return error_set(MR_ENET, "cannot listen on %s:%u: %s", place->host, place->port,
                         uv_strerror(err));
    place->port = ntohs(((struct sockaddr_in *)&address)->sin_port); // at the same place for IPv6
    return 0;
}

int relay_open(uv_loop_t *loop, struct relay_place *place, uint32_t most, struct relay **out) {
    struct relay *r = mem_alloc(sizeof *r);
    if (!r)
        return error_set(MR_ENOMEM, "no memory for a relay");
    r->loop = loop;
    r->most = most;
    list_init(&r->pairs);
    uv_tcp_init(loop, &r->listener);
    int err = relay_listen(r, place);
    if (err < 0)
        relay_close(r);
    else
        *out = r;
    return err;
}

void relay_close(struct relay *r) {
    if (!r)
        return;
    r->is_closing = true;
    for (struct list *l = r->pairs.next; l != &r->pairs; l = l->next)
        pair_close(list_entry(l, struct pair, of_relay));
    uv_close((uv_handle_t *)&r->listener, on_listener_closed);
}
