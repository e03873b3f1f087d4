// The greeting: selects the protocol, authenticates, and checks that this is a millrace server that
// has read its store.
//
//     HELLO 3 [AUTH user secret] [SETNAME name]   ─► a map: server millrace, id …
//     CLIENT CANCELS ON                           ─► OK: it will send the ids of jobs that must
//     stop INFO persistence                            ─► loading:1, and later loading:0
#include "base/bytes.h"
#include "base/errors.h"
#include "client/state.h"
#include "wire/replies.h"
#include "wire/request.h"

enum { HELLO_WORDS = 7 };

static int greet_write_hello(struct client_link *l) {
    const struct client *c = l->client;
    mr_bytes words[HELLO_WORDS] = { mr_str("HELLO"), mr_str("3") };
    size_t count = 2;
    if (c->secret) {
        words[count++] = mr_str("AUTH");
        words[count++] = mr_str(c->user ? c->user : "default");
        words[count++] = mr_str(c->secret);
    }
    if (c->name) {
        words[count++] = mr_str("SETNAME");
        words[count++] = mr_str(c->name);
    }
    return request_write(&l->out, words, count);
}

int greet_probe(struct client_link *l) {
    mr_bytes words[] = { mr_str("INFO"), mr_str("persistence") };
    return request_write(&l->out, words, 2);
}

int greet_write(struct client_link *l) {
    mr_bytes cancels[] = { mr_str("CLIENT"), mr_str("CANCELS"), mr_str("ON") };
    int err = greet_write_hello(l);
    if (err >= 0)
        err = request_write(&l->out, cancels, 3);
    return err < 0 ? err : greet_probe(l);
}

static int not_a_server(const struct client_link *l) {
    return error_set(MR_ENET,
                     "what listens on %s is not a millrace server: is the port right? One is "
                     "started with: millrace serve --listen %s",
                     l->client->where, l->client->where);
}

static int read_hello(struct client_link *l, const struct response_value *v) {
    struct hello_reply hello = { 0 };
    if (v->type != RESPONSE_MAP || !reply_read(&hello_replies, v, &hello) ||
        !bytes_equal(hello.server, mr_str("millrace")))
        return not_a_server(l);
    if (hello.id)
        l->session = hello.id;
    l->owned_ms = hello.owned_ms;
    return 0;
}

static bool says_loading(const struct response_value *v) {
    static const char loading[] = "loading:1";
    return memmem(v->bytes.data, v->bytes.size, loading, sizeof loading - 1) != NULL;
}

int greet_read(struct client_link *l, const struct response_value *v) {
    if (v->type == RESPONSE_ERROR) {
        mr_bytes sentence;
        int err = error_read(v->bytes, &sentence);
        return error_set(err, "%s refuses: %.*s", l->client->where, (int)sentence.size,
                         (const char *)sentence.data);
    }
    switch (l->greeted++) {
    case 0:
        return read_hello(l, v);
    case 1:
        return v->type == RESPONSE_SIMPLE ? 0 : not_a_server(l);
    }
    if (v->type != RESPONSE_BULK)
        return not_a_server(l);
    l->state = says_loading(v) ? LINK_LOADING : LINK_UP;
    return 0;
}
