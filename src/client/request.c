// See request.h. A reply is copied by the I/O thread, because its values point into what a link has
// received; the caller's thread returns it.
#include "client/request.h"

#include "base/errors.h"
#include "base/mem.h"
#include "client/state.h"

#include <stdio.h>
#include <unistd.h>

struct raw_request {
    struct list of_connection;
    struct client_connection *connection; // NULL: closed, the reply is dropped
    bool answered;
    int err;                       // why there is no reply …
    char why[320];                 // … in words
    struct response_value *values; // else it, with the bytes behind the values
};

struct client_connection {
    struct client *client;
    struct client_link *link;
    int ready_fd;
    struct raw_request *returned; // its values are with the caller

    // Below the client's lock.
    struct list requests; // not returned yet, in order
    bool signalled;       // `ready_fd`, since the caller has looked
};

static void raw_request_free(struct raw_request *r) {
    if (!r)
        return;
    mem_free(r->values);
    mem_free(r);
}

// ---- Connections ------------------------------------------------------------------------------

int client_connection_open(struct engine *engine, int ready_fd, struct client_connection **out) {
    struct client *c = (struct client *)engine;
    struct client_connection *k = mem_alloc(sizeof *k);
    if (!k)
        return error_set(MR_ENOMEM, "no memory for a connection");
    k->client = c;
    k->ready_fd = ready_fd;
    list_init(&k->requests);
    pthread_mutex_lock(&c->lock);
    k->link = c->main->lent ? link_create(c, true) : c->main;
    if (k->link)
        k->link->lent = true;
    pthread_mutex_unlock(&c->lock);
    if (!k->link) {
        mem_free(k);
        return MR_ENOMEM;
    }
    *out = k;
    return 0;
}

void client_connection_close(struct client_connection *k) {
    struct client *c = k->client;
    pthread_mutex_lock(&c->lock);
    for (struct list *at; (at = list_first(&k->requests)) != NULL;) {
        struct raw_request *r = list_entry(at, struct raw_request, of_connection);
        list_remove(at);
        r->connection = NULL;
        if (r->answered)
            raw_request_free(r);
    }
    k->link->lent = false;
    k->link->closing = k->link != c->main;
    client_wake_io(c);
    pthread_mutex_unlock(&c->lock);
    raw_request_free(k->returned);
    mem_free(k);
}

// ---- Requests ---------------------------------------------------------------------------------

static bool has_bytes(const struct response_value *v) {
    return v->type <= RESPONSE_DOUBLE;
}

// One block: the values, then the bytes they point to. NULL: no memory.
static struct response_value *copy_values(const struct response_value *values, uint32_t count) {
    size_t size = count * sizeof *values;
    for (uint32_t i = 0; i < count; i++)
        size += has_bytes(&values[i]) ? values[i].bytes.size : 0;
    struct response_value *copy = mem_resize(NULL, size);
    if (!copy)
        return NULL;
    memcpy(copy, values, count * sizeof *values);
    uint8_t *to = (uint8_t *)(copy + count);
    for (uint32_t i = 0; i < count; i++) {
        if (!has_bytes(&copy[i]) || !copy[i].bytes.size)
            continue;
        memcpy(to, copy[i].bytes.data, copy[i].bytes.size);
        copy[i].bytes.data = to;
        to += copy[i].bytes.size;
    }
    return copy;
}

static void signal_ready(struct client_connection *k) {
    uint64_t one = 1;
    if (k->signalled)
        return;
    k->signalled = true;
    ssize_t written = write(k->ready_fd, &one, sizeof one);
    (void)written; // it can only be full, and is then readable
}

static void request_keep_reply(struct client *c, struct exchange *x,
                               const struct response_value *values, uint32_t count) {
    struct raw_request *r = x->owner;
    (void)c;
    if (!r->connection) {
        raw_request_free(r);
        return;
    }
    r->values = values ? copy_values(values, count) : NULL;
    if (!r->values) {
        r->err = values ? MR_ENOMEM : x->err;
        snprintf(r->why, sizeof r->why, "%s",
                 values ? "no memory for a reply" : exchange_sentence(x));
    }
    r->answered = true;
    signal_ready(r->connection);
}

int client_request(struct client_connection *k, const mr_bytes *words, size_t count) {
    struct exchange *x = exchange_new(NULL);
    struct raw_request *r = x ? mem_alloc(sizeof *r) : NULL;
    if (!r) {
        exchange_free(x);
        return error_set(MR_ENOMEM, "no memory for a request");
    }
    for (size_t i = 0; i < count; i++)
        exchange_bytes(x, words[i]);
    r->connection = k;
    x->hook = request_keep_reply;
    x->owner = r;
    x->fails_if_lost = true;
    pthread_mutex_lock(&k->client->lock);
    int err = exchange_send(k->link, x);
    if (err >= 0)
        list_append(&k->requests, &r->of_connection);
    pthread_mutex_unlock(&k->client->lock);
    if (err < 0) {
        exchange_free(x);
        raw_request_free(r);
    }
    return err;
}

void client_flush(struct engine *engine) {
    struct client *c = (struct client *)engine;
    pthread_mutex_lock(&c->lock);
    client_wake_io(c);
    pthread_mutex_unlock(&c->lock);
}

int client_reply(struct client_connection *k, const struct response_value **out) {
    raw_request_free(k->returned);
    k->returned = NULL;
    pthread_mutex_lock(&k->client->lock);
    struct list *at = list_first(&k->requests);
    struct raw_request *r = at ? list_entry(at, struct raw_request, of_connection) : NULL;
    bool answered = r && r->answered;
    if (answered)
        list_remove(at);
    k->signalled = false;
    pthread_mutex_unlock(&k->client->lock);
    if (!answered)
        return 0;
    k->returned = r;
    *out = r->values;
    return r->values ? 1 : error_set(r->err, "%s", r->why);
}
