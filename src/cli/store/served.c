// See served.h. Every request is answered before the next one is sent. A lost connection ends the
// backup: the server then may shorten its logs.
#include "cli/store/served.h"

#include "base/errors.h"
#include "base/mem.h"
#include "cli/store/store.h"
#include "client/request.h"
#include "core/route.h"
#include "shard/backup.h"
#include "wire/code.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { PART_FIELDS = 4, POLL_MS = 200 };

struct served {
    struct engine *client;
    struct client_connection *connection;
    int ready_fd;
    uint32_t shards;
    struct {
        uint64_t head, end, segment_size;
    } parts[SHARDS_MOST];
};

struct served_shard {
    struct log base;
    struct served *served;
    uint32_t shard;
};

// ---- Requests -----------------------------------------------------------------------------------

static int served_refused(const struct response_value *reply) {
    mr_bytes sentence;
    enum code code;
    int err = code_read(reply->bytes, &code, &sentence) ? code_error(code) : MR_EIO;
    return error_set(err, "%.*s", (int)sentence.size, (const char *)sentence.data);
}

// A signal of `store copy` sets store_interrupted, and is noticed here.
static int served_wait(const struct served *v) {
    struct pollfd ready = { .fd = v->ready_fd, .events = POLLIN };
    uint64_t count;
    if (store_interrupted)
        return error_set(MR_ECANCELLED, "interrupted");
    if (poll(&ready, 1, POLL_MS) < 0 && errno != EINTR)
        return error_set(MR_EIO, "no reply can be waited for: %s", strerror(errno));
    if (ready.revents && read(v->ready_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return error_set(MR_EIO, "no reply can be waited for: %s", strerror(errno));
    return 0;
}

// The reply is valid until the next request.
static int served_ask(struct served *v, const mr_bytes *words, size_t count,
                      const struct response_value **out) {
    int err = client_request(v->connection, words, count);
    client_flush(v->client);
    while (err == 0) {
        int has = client_reply(v->connection, out);
        if (has < 0)
            return has;
        if (has)
            return (*out)->type == RESPONSE_ERROR ? served_refused(*out) : 0;
        err = served_wait(v);
    }
    return err;
}

// Appends the piece to `out`.
static int served_piece(const struct served_shard *s, uint64_t from, bool bodies,
                        struct buffer *out) {
    char shard[24], position[24];
    snprintf(shard, sizeof shard, "%u", s->shard);
    snprintf(position, sizeof position, "%" PRIu64, from);
    const mr_bytes words[] = { mr_str("BACKUP"), mr_str(shard), mr_str(position), mr_str("HEADS") };
    const struct response_value *reply;
    int err = served_ask(s->served, words, bodies ? 3 : 4, &reply);
    if (err < 0)
        return err;
    if (reply->type != RESPONSE_BULK)
        return error_set(MR_EIO, "the server answers BACKUP with what is no piece of a log");
    return buffer_append(out, reply->bytes.data, reply->bytes.size);
}

// ---- The log ------------------------------------------------------------------------------------

static struct served_shard *served_shard_of(struct log *base) {
    return (struct served_shard *)base;
}

// The piece is copied: `each` may read other entries, by further requests.
static int served_walk(struct log *base, uint64_t from, bool bodies, log_each *each, void *arg,
                       uint64_t *out_next) {
    struct buffer piece = { 0 };
    int err = served_piece(served_shard_of(base), from, bodies, &piece);
    uint64_t next = from;
    if (err == 0)
        err = backup_unpack(buffer_bytes(&piece), bodies, each, arg, &next);
    buffer_finish(&piece);
    if (err == 0 && next <= from)
        err = error_set(MR_EIO, "the server does not get beyond position %" PRIu64, from);
    if (err == 0)
        *out_next = next;
    return err;
}

static int served_replay(struct log *base, log_each *each, void *arg) {
    const struct served_shard *s = served_shard_of(base);
    int err = 0;
    for (uint64_t at = s->served->parts[s->shard].head;
         err == 0 && at < s->served->parts[s->shard].end;)
        err = served_walk(base, at, false, each, arg, &at);
    return err;
}

static int served_scan(struct log *base, uint64_t from, size_t max_bytes, log_each *each, void *arg,
                       uint64_t *out_next) {
    (void)max_bytes; // a piece is about as large
    return served_walk(base, from, true, each, arg, out_next);
}

struct served_entry {
    uint64_t at;
    struct buffer *head, *body;
    bool found;
};

static int served_keep(void *arg, const struct log_seen *seen) {
    struct served_entry *e = arg;
    if (seen->at != e->at)
        return 0;
    e->found = true;
    int err = e->head ? buffer_append(e->head, seen->head.data, seen->head.size) : 0;
    return err == 0 && e->body ? buffer_append(e->body, seen->body.data, seen->body.size) : err;
}

static int served_read(struct log *base, uint64_t at, struct buffer *out_head,
                       struct buffer *out_body) {
    struct served_entry e = { .at = at, .head = out_head, .body = out_body };
    uint64_t next;
    int err = served_walk(base, at, true, served_keep, &e, &next);
    if (err == 0 && !e.found)
        err = error_set(MR_EINVAL, "no entry begins at %" PRIu64, at);
    return err;
}

static int served_trim(struct log *base, uint64_t upto) {
    (void)base, (void)upto;
    return error_set(MR_EPERM, "the log of a server is only read");
}

static void served_look(struct log *base, struct log_state *out) {
    const struct served_shard *s = served_shard_of(base);
    uint64_t head = s->served->parts[s->shard].head, end = s->served->parts[s->shard].end;
    *out = (struct log_state){ .head = head,
                               .tail = end,
                               .durable = end,
                               .bytes = end - head,
                               .segment_size = s->served->parts[s->shard].segment_size };
}

static void served_log_close(struct log *base) {
    mem_free(served_shard_of(base));
}

static const struct log_impl served_impl = { .replay = served_replay,
                                             .scan = served_scan,
                                             .read = served_read,
                                             .trim = served_trim,
                                             .look = served_look,
                                             .close = served_log_close };

int served_log(struct served *v, uint32_t shard, struct log **out) {
    struct served_shard *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "no memory for a log");
    *s = (struct served_shard){ .base.impl = &served_impl, .served = v, .shard = shard };
    *out = &s->base;
    return 0;
}

// ---- Opening ------------------------------------------------------------------------------------

static int served_read_parts(struct served *v, const struct response_value *reply) {
    bool good = reply->type == RESPONSE_ARRAY && reply->count >= 1 && reply->count <= SHARDS_MOST;
    v->shards = good ? reply->count : 0;
    const struct response_value *at = reply + 1;
    for (uint32_t i = 0; good && i < v->shards; i++, at += 1 + PART_FIELDS) {
        good = at->type == RESPONSE_ARRAY && at->count == PART_FIELDS;
        for (uint32_t k = 1; good && k <= PART_FIELDS; k++)
            good = at[k].type == RESPONSE_INTEGER && at[k].integer >= 0;
        good = good && at[4].integer > 0;
        if (!good)
            break;
        v->parts[i].head = (uint64_t)at[2].integer;
        v->parts[i].end = (uint64_t)at[3].integer;
        v->parts[i].segment_size = (uint64_t)at[4].integer;
    }
    return good ? 0 : error_set(MR_EIO, "the server answers BACKUP with what is no list of shards");
}

static int served_connect(struct served *v, const struct address *a) {
    struct client_options options = { .user = a->url.user[0] ? a->url.user : NULL,
                                      .secret = a->secret[0] ? a->secret : NULL,
                                      .name = "millrace-store-copy",
                                      .tls = a->tls,
                                      .refuses_full = true };
    v->ready_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (v->ready_fd < 0)
        return error_set(MR_EIO, "no eventfd: %s", strerror(errno));
    int err = client_open(a->text, &options, &v->client);
    return err < 0 ? err : client_connection_open(v->client, v->ready_fd, &v->connection);
}

int served_open(const struct address *a, struct served **out, uint32_t *out_shards) {
    const mr_bytes words[] = { mr_str("BACKUP"), mr_str("BEGIN") };
    const struct response_value *reply;
    struct served *v = mem_alloc(sizeof *v);
    if (!v)
        return error_set(MR_ENOMEM, "no memory for a backup");
    v->ready_fd = -1;
    int err = served_connect(v, a);
    if (err == 0)
        err = served_ask(v, words, 2, &reply);
    if (err == 0)
        err = served_read_parts(v, reply);
    if (err < 0) {
        served_close(v);
        return err;
    }
    *out = v;
    *out_shards = v->shards;
    return 0;
}

void served_close(struct served *v) {
    if (!v)
        return;
    if (v->connection)
        client_connection_close(v->connection);
    if (v->client)
        (void)v->client->impl->close(v->client); // nothing of it is in use any more
    if (v->ready_fd >= 0)
        close(v->ready_fd);
    mem_free(v);
}
