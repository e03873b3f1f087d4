// With a server: the connections of a client (client/request.h), which connect again by themselves.
#include "cli/talk_state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "client/request.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct remote {
    struct engine *engine;
    int ready; // an eventfd: there are replies
};

// A command that connects and is told that the server is full ends rather than waits.
static int remote_start(struct remote *r, const struct address *a) {
    struct client_options options = { .user = a->url.user[0] ? a->url.user : NULL,
                                      .secret = a->secret[0] ? a->secret : NULL,
                                      .tls = a->tls,
                                      .refuses_full = true };
    return client_open(a->text, &options, &r->engine);
}

static int remote_open(struct talks *ts) {
    struct remote *r = mem_alloc(sizeof *r);
    if (!r)
        return error_set(MR_ENOMEM, "no memory for a client");
    r->ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int err = r->ready < 0 ? error_set(MR_EIO, "no eventfd: %s", strerror(errno))
                           : remote_start(r, &ts->address);
    if (err < 0) {
        if (r->ready >= 0)
            close(r->ready);
        mem_free(r);
        return err;
    }
    ts->engine = r;
    return 0;
}

static void remote_close(struct talks *ts) {
    struct remote *r = ts->engine;
    if (!r)
        return;
    (void)r->engine->impl->close(r->engine); // nothing of it is in use any more
    close(r->ready);
    mem_free(r);
}

static int remote_join(struct talk *t) {
    const struct remote *r = t->talks->engine;
    struct client_connection *k;
    int err = client_connection_open(r->engine, r->ready, &k);
    if (err == 0)
        t->connection = k;
    return err;
}

static void remote_leave(struct talk *t) {
    client_connection_close(t->connection);
}

static int remote_send(struct talk *t, const mr_bytes *words, size_t count) {
    return client_request(t->connection, words, count);
}

static int remote_receive(struct talk *t, const struct response_value **out) {
    return client_reply(t->connection, out);
}

static int remote_turn(struct talks *ts, int fd, int64_t wait_ms) {
    const struct remote *r = ts->engine;
    struct pollfd fds[3] = { [2] = { .fd = r->ready, .events = POLLIN } };
    client_flush(r->engine);
    int readable = talks_wait(ts, fds, 3, fd, wait_ms);
    uint64_t times;
    ssize_t rung = read(r->ready, &times, sizeof times);
    (void)rung; // or not
    return readable;
}

const struct talk_impl remote_talk = { .open = remote_open,
                                       .close = remote_close,
                                       .join = remote_join,
                                       .leave = remote_leave,
                                       .send = remote_send,
                                       .receive = remote_receive,
                                       .turn = remote_turn };
