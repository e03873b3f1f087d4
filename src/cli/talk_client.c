// With a server: the connections of a client (client/request.h), which connect again by themselves.
#include "cli/talk_state.h"

#include "client/request.h"

// A command ends if the server has no room for its connection, rather than wait for it.
static int remote_open(struct talks *ts) {
    const struct address *a = &ts->address;
    struct engine *engine;
    struct client_options options = { .user = a->url.user[0] ? a->url.user : NULL,
                                      .secret = a->secret[0] ? a->secret : NULL,
                                      .tls = a->tls,
                                      .refuses_full = true };
    int err = client_open(a->text, &options, &engine);
    if (err >= 0)
        ts->engine = engine;
    return err;
}

static void talk_client_remote_close(struct talks *ts) {
    struct engine *engine = ts->engine;
    (void)engine->impl->close(engine); // nothing of it is in use any more
}

static int remote_join(struct talk *t) {
    struct client_connection *k;
    int err = client_connection_open(t->talks->engine, t->talks->ready, &k);
    if (err == 0)
        t->connection = k;
    return err;
}

static void remote_leave(struct talk *t) {
    client_connection_close(t->connection);
}

static int talk_client_remote_send(struct talk *t, const mr_bytes *words, size_t count) {
    return client_request(t->connection, words, count);
}

static int remote_receive(struct talk *t, const struct response_value **out) {
    return client_reply(t->connection, out);
}

static int remote_work(struct talks *ts, int64_t *wait_ms) {
    (void)wait_ms;
    client_flush(ts->engine);
    return 0;
}

const struct talk_impl remote_talk = { .open = remote_open,
                                       .close = talk_client_remote_close,
                                       .join = remote_join,
                                       .leave = remote_leave,
                                       .send = talk_client_remote_send,
                                       .receive = remote_receive,
                                       .work = remote_work };
