// Without a server: a host in this process, and a session for each connection. Buffers take the
// place of the sockets of a server's loop.
#include "cli/talk_state.h"

#include "base/buffer.h"
#include "base/errors.h"
#include "base/mem.h"
#include "server/session.h"
#include "wire/request.h"

#include <string.h>
#include <unistd.h>

static const struct response_limits limits = {
    .values = 1 << 18, .line_size = 64 << 10, .bulk_size = 32 << 20, .size = 256 << 20
};

struct local {
    struct host host;
    struct group *group;
    struct response_value *values; // of the reply that was returned last
};

// A connection: a session and the buffers around it.
struct local_connection {
    struct session *session;
    struct buffer out; // requests …
    size_t out_sent;   // … and how much of them the session has
    struct buffer in;  // replies …
    size_t in_used;    // … and how much of them was read
    struct response reader;
    bool greeted; // the reply to HELLO was read
};

// On the thread of the log's writer: the log has synced.
static void log_is_durable(void *arg) {
    const struct talks *ts = arg;
    uint64_t one = 1;
    ssize_t wrote = write(ts->ready, &one, sizeof one);
    (void)wrote; // it fails only when it is readable anyway
}

static int local_start(struct local *l, struct talks *ts) {
    l->values = mem_alloc(limits.values * sizeof *l->values);
    if (!l->values)
        return error_set(MR_ENOMEM, "no memory for replies");
    struct group_options options = { .store = ts->address.url.store,
                                     .log = { .on_durable = log_is_durable, .arg = ts } };
    int err = host_init(&l->host, ts->address.url.where);
    if (err < 0)
        return err;
    host_group_options(&l->host, &options);
    err = group_open(&options, &l->group);
    if (err == 0)
        err = host_load(&l->host, l->group);
    if (err < 0) {
        host_finish(&l->host);
        group_close(l->group);
    }
    return err;
}

static int local_open(struct talks *ts) {
    struct local *l = mem_alloc(sizeof *l);
    if (!l)
        return error_set(MR_ENOMEM, "no memory for an engine");
    int err = local_start(l, ts);
    if (err == 0) {
        ts->engine = l;
        return 0;
    }
    mem_free(l->values);
    mem_free(l);
    return err;
}

static void local_close(struct talks *ts) {
    struct local *l = ts->engine;
    host_end(&l->host);
    host_finish(&l->host);
    group_close(l->group);
    mem_free(l->values);
    mem_free(l);
}

// The session writes replies of RESP3, as a server does for a client.
static int local_join(struct talk *t) {
    struct local *l = t->talks->engine;
    struct local_connection *k = mem_alloc(sizeof *k);
    mr_bytes hello[] = { mr_str("HELLO"), mr_str("3") };
    int err =
        k ? request_write(&k->out, hello, 2) : error_set(MR_ENOMEM, "no memory for a connection");
    if (err == 0)
        err = session_create(&l->host, &k->session);
    if (err < 0) {
        if (k)
            buffer_finish(&k->out);
        mem_free(k);
        return err;
    }
    k->session->owner = k;
    t->connection = k;
    return 0;
}

static void local_leave(struct talk *t) {
    struct local *l = t->talks->engine;
    struct local_connection *k = t->connection;
    host_begin(&l->host);
    session_destroy(k->session);
    buffer_finish(&k->out);
    buffer_finish(&k->in);
    mem_free(k);
}

static int local_send(struct talk *t, const mr_bytes *words, size_t count) {
    struct local_connection *k = t->connection;
    return request_write(&k->out, words, count);
}

static void forget_read(struct local_connection *k) {
    k->in.size -= k->in_used;
    if (k->in.size)
        memmove(k->in.data, k->in.data + k->in_used, k->in.size);
    k->in_used = 0;
}

static int local_receive(struct talk *t, const struct response_value **out) {
    const struct local *l = t->talks->engine;
    struct local_connection *k = t->connection;
    for (;;) {
        uint32_t count;
        size_t left = k->in.size - k->in_used;
        if (!left || left < k->reader.need)
            break;
        ptrdiff_t used =
            response_read(&k->reader, &limits, k->in.data + k->in_used, left, l->values, &count);
        if (used < 0)
            return (int)used;
        if (used == 0)
            break;
        k->in_used += (size_t)used;
        bool is_reply = k->greeted && l->values->type != RESPONSE_PUSH;
        k->greeted = true;
        if (!is_reply)
            continue;
        *out = l->values;
        return 1;
    }
    forget_read(k);
    return 0;
}

static void feed(struct local_connection *k) {
    size_t room;
    uint8_t *to;
    while (k->out_sent < k->out.size && (to = session_room(k->session, &room))) {
        size_t left = k->out.size - k->out_sent, size = left < room ? left : room;
        memcpy(to, k->out.data + k->out_sent, size);
        session_receive(k->session, size);
        k->out_sent += size;
    }
    if (k->out_sent == k->out.size) {
        buffer_clear(&k->out);
        k->out_sent = 0;
    }
}

// Replies that may be released go to their connections. 1: there were some.
static int talk_local_collect(struct host *h) {
    int got = 0;
    host_durable(h);
    while (!list_empty(&h->ready)) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        struct local_connection *k = s->owner;
        list_remove(&s->of_ready);
        mr_bytes ready = session_ready(s);
        int err = ready.size ? buffer_append(&k->in, ready.data, ready.size) : 0;
        if (err < 0)
            return err;
        session_sent(s, ready.size);
        if (session_is_over(s))
            return error_set(MR_ENET, "the session was closed");
        got |= ready.size > 0;
    }
    return got;
}

static int talk_local_run_all(struct talks *ts) {
    struct host *h = &((struct local *)ts->engine)->host;
    int got = 0;
    do {
        host_begin(h);
        for (struct talk *t = ts->first; t; t = t->next)
            feed(t->connection);
        host_end(h);
        int some = talk_local_collect(h);
        if (some < 0)
            return some;
        got |= some;
    } while (h->in_turn || !list_empty(&h->resuming)); // released replies let sessions go on
    return got;
}

static int local_work(struct talks *ts, int64_t *wait_ms) {
    struct local *l = ts->engine;
    int got = talk_local_run_all(ts);
    int64_t due_ms = got ? 0 : host_next_ms(&l->host);
    if (due_ms >= 0 && (*wait_ms < 0 || due_ms < *wait_ms))
        *wait_ms = due_ms;
    return got < 0 ? got : 0;
}

const struct talk_impl local_talk = { .open = local_open,
                                      .close = local_close,
                                      .join = local_join,
                                      .leave = local_leave,
                                      .send = local_send,
                                      .receive = local_receive,
                                      .work = local_work };
