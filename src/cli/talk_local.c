// Without a server: a host in this process, a session a connection. What the loop of a server does
// with sockets is done here with buffers.
#include "cli/talk_state.h"

#include "base/errors.h"
#include "base/mem.h"
#include "server/session.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct local {
    struct host host;
    struct group *group;
    int durable; // an eventfd: the log has synced
};

// On the thread of the log's writer.
static void log_is_durable(void *arg) {
    const struct local *l = arg;
    uint64_t one = 1;
    ssize_t wrote = write(l->durable, &one, sizeof one);
    (void)wrote; // it fails only when it is readable anyway
}

static int local_start(struct local *l, const struct address *a) {
    struct group_options options = { .dir = a->url.dir,
                                     .log = { .on_durable = log_is_durable, .arg = l } };
    int err = host_init(&l->host, a->url.where);
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
    l->durable = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int err = l->durable < 0 ? error_set(MR_EIO, "no eventfd: %s", strerror(errno))
                             : local_start(l, &ts->address);
    if (err < 0) {
        if (l->durable >= 0)
            close(l->durable);
        mem_free(l);
        return err;
    }
    ts->engine = l;
    return 0;
}

static void local_close(struct talks *ts) {
    struct local *l = ts->engine;
    if (!l)
        return;
    host_end(&l->host);
    host_finish(&l->host);
    group_close(l->group);
    close(l->durable);
    mem_free(l);
}

static int local_join(struct talks *ts, struct talk *t) {
    struct local *l = ts->engine;
    struct session *s;
    int err = session_create(&l->host, &s);
    if (err < 0)
        return err;
    s->owner = t;
    t->session = s;
    return 0;
}

static void local_leave(struct talk *t) {
    struct local *l = t->talks->engine;
    host_begin(&l->host);
    session_destroy(t->session);
}

static void feed(struct talk *t) {
    size_t room;
    uint8_t *to;
    while (t->out_sent < t->out.size && (to = session_room(t->session, &room))) {
        size_t left = t->out.size - t->out_sent, size = left < room ? left : room;
        memcpy(to, t->out.data + t->out_sent, size);
        session_receive(t->session, size);
        t->out_sent += size;
    }
    if (t->out_sent == t->out.size) {
        buffer_clear(&t->out);
        t->out_sent = 0;
    }
}

// What may be shown goes to its connection. 1: there was some.
static int collect(struct host *h) {
    int got = 0;
    host_durable(h);
    while (!list_empty(&h->ready)) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        struct talk *t = s->owner;
        list_remove(&s->of_ready);
        mr_bytes ready = session_ready(s);
        int err = ready.size ? buffer_append(&t->in, ready.data, ready.size) : 0;
        if (err < 0)
            return err;
        session_sent(s, ready.size);
        if (session_is_over(s))
            return error_set(MR_ENET, "the session was closed");
        got |= ready.size > 0;
    }
    return got;
}

static int run_all(struct talks *ts) {
    struct host *h = &((struct local *)ts->engine)->host;
    int got = 0;
    do {
        host_begin(h);
        for (struct talk *t = ts->first; t; t = t->next)
            feed(t);
        host_end(h);
        int some = collect(h);
        if (some < 0)
            return some;
        got |= some;
    } while (h->in_turn || !list_empty(&h->resuming)); // what was shown lets sessions go on
    return got;
}

static int local_turn(struct talks *ts, int fd, int64_t wait_ms) {
    struct local *l = ts->engine;
    struct pollfd fds[3] = { [2] = { .fd = l->durable, .events = POLLIN } };
    int got = run_all(ts);
    if (got < 0)
        return got;
    int64_t next_ms = host_next_ms(&l->host);
    if (got || (next_ms >= 0 && (wait_ms < 0 || next_ms < wait_ms)))
        wait_ms = got ? 0 : next_ms;
    int readable = talks_wait(ts, fds, 3, fd, wait_ms), err = 0;
    uint64_t times;
    ssize_t rung = read(l->durable, &times, sizeof times);
    (void)rung; // or not
    if (readable >= 0 && !got)
        err = run_all(ts);
    return err < 0 ? err : readable;
}

const struct talk_impl local_talk = { .open = local_open,
                                      .close = local_close,
                                      .join = local_join,
                                      .leave = local_leave,
                                      .turn = local_turn };
