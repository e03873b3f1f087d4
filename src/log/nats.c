// Connecting, calls of JetStream, and the meaning of errors.
#include "log/nats.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/list.h"
#include "base/mem.h"
#include "log/nats_cluster.h"
#include "log/nats_url.h"

#include <inttypes.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    HEADERS_MOST = 256,   // bytes of a message that its headers take
    PING_MS = 500,        // a server that does not answer …
    PINGS_OUT = 2,        // … so many pings is left
    RECONNECT_MS = 100,   // pause before a server is tried again
    PLACE_MOST = 300,     // of an error text
    CONSUMER_S = 5,       // a consumer that is not used is removed by the servers
    PULL_MESSAGES = 1000, // messages that are requested at once, …
    PULL_BYTES = 4 << 20, // … and how many bytes they have at most
    PULL_ENDS = 3,        // a consumer that only ends requests is gone
    CLOSE_MS = 300,       // how long closing waits for what is on its way
    LEAVE_MS = 1000,      // a server that carries out no call for so long is left for another one
};

// A reading in order: a consumer of JetStream, whose messages are requested in portions. They come
// to `inbox`, a subscription that lasts as long as the connection: libnats 3.4 may use a
// subscription after it was destroyed, if a message for it comes at that moment.
struct nats_pull {
    natsSubscription *inbox; // NULL: none yet
    char prefix[64];         // of the subjects that it receives
    char stream[NATS_STREAM_NAME], consumer[64];
    uint64_t request; // the number of the last request
    uint32_t left;    // how many messages of it may come
};

struct nats_session {
    struct nats_url url;
    struct nats_pull pull;
    uint32_t connect_ms, call_ms;
    uint32_t first;      // the server that is tried first
    uint64_t failing_ms; // since when no call was carried out; 0: the last one was
    uintptr_t number;    // of on_nats_error
    struct list of_sessions;
    char name[NATS_CLUSTER_NAME + 32], place[PLACE_MOST], version[32];
    jsCtx *js;
    bool worked; // JetStream has answered
    atomic_bool interrupted, denied;
    pthread_mutex_t lock;       // guards `connection` against nats_session_interrupt
    natsConnection *connection; // NULL: none
};

// libnats reports errors in a thread of its own, even when the connection was destroyed meanwhile.
// So it has the number of a session instead of its address.
static struct {
    pthread_mutex_t lock; // guards the other fields
    uintptr_t numbers;    // how many were used
    struct list all;      // of sessions, by `of_sessions`
} sessions = { .lock = PTHREAD_MUTEX_INITIALIZER, .all = { &sessions.all, &sessions.all } };

// --- making one -------------------------------------------------------------------------------

static void session_list(struct nats_session *s) {
    pthread_mutex_lock(&sessions.lock);
    s->number = ++sessions.numbers;
    list_append(&sessions.all, &s->of_sessions);
    pthread_mutex_unlock(&sessions.lock);
}

static void session_unlist(struct nats_session *s) {
    pthread_mutex_lock(&sessions.lock);
    list_remove(&s->of_sessions);
    pthread_mutex_unlock(&sessions.lock);
}

static bool nats_cluster_name_valid(const char *name) {
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return length && length <= NATS_CLUSTER_NAME && !name[length];
}

static void place_describe(struct nats_session *s) {
    size_t used = (size_t)snprintf(s->place, sizeof s->place, "NATS at ");
    for (uint32_t i = 0; i < s->url.count && used < sizeof s->place; i++)
        used += (size_t)snprintf(s->place + used, sizeof s->place - used, "%s%s", i ? "," : "",
                                 s->url.servers[i] + strlen(NATS_SCHEME));
}

int nats_session_create(const struct stream_nats_options *o, const char *purpose,
                        struct nats_session **out) {
    if (!nats_cluster_name_valid(o->cluster))
        return error_set(MR_EINVAL,
                         "the name of a cluster has 1 to %d characters from a to z, 0 to 9 and _",
                         NATS_CLUSTER_NAME);
    struct nats_session *s = mem_alloc(sizeof *s);
    if (!s)
        return error_set(MR_ENOMEM, "out of memory for a connection to NATS");
    int err = nats_url_read(o->url, &s->url);
    if (err < 0) {
        mem_free(s);
        return err;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->connect_ms = o->connect_ms ? o->connect_ms : NATS_CONNECT_MS;
    s->call_ms = o->call_ms ? o->call_ms : NATS_CALL_MS;
    snprintf(s->name, sizeof s->name, "millrace %s%s", o->cluster, purpose);
    place_describe(s);
    session_list(s);
    s->first = (uint32_t)(s->number + (uintptr_t)getpid()) % s->url.count; // spread over all
    *out = s;
    return 0;
}

static void session_disconnect(struct nats_session *s) {
    pthread_mutex_lock(&s->lock);
    natsConnection *connection = s->connection;
    s->connection = NULL;
    pthread_mutex_unlock(&s->lock);
    jsCtx_Destroy(s->js);
    s->js = NULL;
    if (connection && natsConnection_Status(connection) == NATS_CONN_STATUS_CONNECTED)
        (void)natsConnection_FlushTimeout(connection, CLOSE_MS); // answers come before its end
    if (connection)
        natsConnection_Close(connection);
    natsSubscription_Destroy(s->pull.inbox);
    s->pull = (struct nats_pull){ 0 };
    natsConnection_Destroy(connection);
}

void nats_session_destroy(struct nats_session *s) {
    if (!s)
        return;
    session_disconnect(s);
    session_unlist(s);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void nats_session_interrupt(struct nats_session *s) {
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->interrupted, true);
    if (s->connection)
        natsConnection_Close(s->connection);
    pthread_mutex_unlock(&s->lock);
}

const char *nats_session_place(const struct nats_session *s) {
    return s->place;
}

uint32_t nats_session_replicas(const struct nats_session *s) {
    return s->url.replicas;
}

// --- connecting -------------------------------------------------------------------------------

// The text of the server, without the place in libnats' source.
static const char *server_text(natsStatus status) {
    const char *text = nats_GetLastError(NULL);
    const char *after = text && text[0] == '(' ? strstr(text, "): ") : NULL;
    if (after)
        return after + 3;
    return text && *text ? text : natsStatus_GetText(status);
}

static int session_failed(const struct nats_session *s, natsStatus status) {
    if (status == NATS_NO_MEMORY)
        return error_set(MR_ENOMEM, "%s: out of memory", s->place);
    return error_set(STREAM_UNAVAILABLE, "%s: %s", s->place, server_text(status));
}

// Without a handler libnats prints errors. A missing right is only reported here.
static void on_nats_error(natsConnection *connection, natsSubscription *sub, natsStatus err,
                          void *number) {
    (void)connection, (void)sub;
    if (err != NATS_NOT_PERMITTED)
        return;
    pthread_mutex_lock(&sessions.lock);
    for (struct list *l = sessions.all.next; l != &sessions.all; l = l->next) {
        struct nats_session *s = list_entry(l, struct nats_session, of_sessions);
        if (s->number == (uintptr_t)number)
            atomic_store(&s->denied, true);
    }
    pthread_mutex_unlock(&sessions.lock);
}

static natsStatus options_set_secrets(const struct nats_url *u, natsOptions *o) {
    natsStatus status = NATS_OK;
    if (u->password)
        status = natsOptions_SetUserInfo(o, u->user, u->password);
    else if (u->user)
        status = natsOptions_SetToken(o, u->user);
    if (status == NATS_OK && u->creds)
        status = natsOptions_SetUserCredentialsFromFiles(o, u->creds, NULL);
    if (status == NATS_OK && (u->tls || u->ca || u->cert))
        status = natsOptions_SetSecure(o, true);
    if (status == NATS_OK && u->ca)
        status = natsOptions_LoadCATrustedCertificates(o, u->ca);
    if (status == NATS_OK && u->cert)
        status = natsOptions_LoadCertificatesChain(o, u->cert, u->key);
    return status;
}

static natsStatus options_set(struct nats_session *s, natsOptions *o) {
    const char *servers[NATS_SERVERS_MOST];
    for (uint32_t i = 0; i < s->url.count; i++)
        servers[i] = s->url.servers[(s->first + i) % s->url.count];
    natsStatus status = natsOptions_SetServers(o, servers, (int)s->url.count);
    if (status == NATS_OK)
        status = natsOptions_SetNoRandomize(o, true);
    if (status == NATS_OK)
        status = natsOptions_SetName(o, s->name);
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(o, s->connect_ms);
    if (status == NATS_OK)
        status = natsOptions_SetPingInterval(o, PING_MS);
    if (status == NATS_OK)
        status = natsOptions_SetMaxPingsOut(o, PINGS_OUT);
    if (status == NATS_OK)
        status = natsOptions_SetMaxReconnect(o, -1);
    if (status == NATS_OK)
        status = natsOptions_SetReconnectWait(o, RECONNECT_MS);
    if (status == NATS_OK)
        status = natsOptions_SetReconnectJitter(o, RECONNECT_MS, RECONNECT_MS);
    if (status == NATS_OK)
        status = natsOptions_SetFailRequestsOnDisconnect(o, true);
    if (status == NATS_OK)
        status = natsOptions_SetErrorHandler(o, on_nats_error, (void *)s->number);
    if (status == NATS_OK)
        status = natsOptions_SetSendAsap(o, true);
    return status == NATS_OK ? options_set_secrets(&s->url, o) : status;
}

static natsStatus session_dial(struct nats_session *s) {
    natsOptions *o = NULL;
    natsConnection *connection = NULL;
    natsStatus status = natsOptions_Create(&o);
    if (status == NATS_OK)
        status = options_set(s, o);
    if (status == NATS_OK)
        status = natsConnection_Connect(&connection, o);
    natsOptions_Destroy(o);
    if (status == NATS_OK)
        status = natsConnection_JetStream(&s->js, connection, NULL);
    if (status != NATS_OK) {
        natsConnection_Destroy(connection);
        return status;
    }
    pthread_mutex_lock(&s->lock);
    s->connection = connection;
    pthread_mutex_unlock(&s->lock);
    return NATS_OK;
}

static int session_interrupted(const struct nats_session *s) {
    return error_set(STREAM_UNAVAILABLE, "%s: interrupted", s->place);
}

// A server that is cut off from the others accepts connections, but can do nothing.
static void session_leave_server(struct nats_session *s) {
    uint64_t now_ms = monotonic_ms();
    if (!s->connection || !s->failing_ms || s->url.count == 1 || now_ms - s->failing_ms < LEAVE_MS)
        return;
    session_disconnect(s);
    s->first = (s->first + 1) % s->url.count;
    s->failing_ms = now_ms; // the next one has as much time
}

int nats_session_connect(struct nats_session *s) {
    if (atomic_load(&s->interrupted))
        return session_interrupted(s);
    if (s->connection && natsConnection_IsClosed(s->connection))
        session_disconnect(s); // it does not accept the credentials any more
    session_leave_server(s);
    natsStatus status = s->connection ? NATS_OK : session_dial(s);
    if (status != NATS_OK)
        return session_failed(s, status);
    if (atomic_load(&s->interrupted)) // while it was connecting, which nothing can end
        return session_interrupted(s);
    if (natsConnection_Status(s->connection) != NATS_CONN_STATUS_CONNECTED)
        return error_set(STREAM_UNAVAILABLE, "%s: the connection was lost", s->place);
    return STREAM_DONE;
}

uint32_t nats_session_servers(const struct nats_session *s) {
    return s->url.count;
}

size_t nats_session_payload(const struct nats_session *s) {
    int64_t most = s->connection ? natsConnection_GetMaxPayload(s->connection) : 0;
    return most > HEADERS_MOST ? (size_t)most - HEADERS_MOST : 0;
}

// --- the meaning of errors --------------------------------------------------------------------

static bool is_out_of_space(jsErrCode code, const char *text) {
    return code == JSAccountResourcesExceededErr || code == JSInsufficientResourcesErr ||
           code == JSMemoryResourcesExceededErr || code == JSStorageResourcesExceededErr ||
           (code == JSStreamStoreFailedErr &&
            (strstr(text, "exceeded") || strstr(text, "no space")));
}

// Of a call that was answered.
static int answer_meaning(struct nats_session *s, jsErrCode code, const char *text) {
    if (code == JSStreamWrongLastSequenceErr)
        return NATS_CONFLICT;
    if (code == JSNoMessageFoundErr)
        return NATS_NOTHING;
    if (code == JSStreamNotFoundErr)
        return error_set(NATS_NO_STREAM, "%s: %s", s->place, text);
    if (is_out_of_space(code, text))
        return error_set(MR_EFULL, "%s: %s; make room on its disk, or raise its limits", s->place,
                         text);
    if (code == JSStreamNameExistErr || code == JSClusterNoPeersErr ||
        code == JSStreamReplicasNotSupportedErr)
        return error_set(MR_EINVAL, "%s: %s", s->place, text);
    if ((code == JSNotEnabledErr || code == JSNotEnabledForAccountErr) && !s->worked)
        return error_set(MR_EINVAL,
                         "%s has no JetStream for this account; enable it (nats-server -js, or "
                         "jetstream in its configuration)",
                         s->place);
    return error_set(STREAM_UNAVAILABLE, "%s: %s", s->place, text);
}

static int status_meaning(struct nats_session *s, natsStatus status, jsErrCode code, bool writes) {
    const char *text = server_text(status);
    if (status == NATS_OK) {
        s->worked = true;
        return STREAM_DONE;
    }
    if (code)
        return answer_meaning(s, code, text);
    if (status == NATS_NOT_FOUND)
        return NATS_NOTHING;
    if (status == NATS_NO_MEMORY)
        return error_set(MR_ENOMEM, "%s: out of memory", s->place);
    if (status == NATS_NO_RESPONDERS)
        return error_set(STREAM_UNAVAILABLE, "%s: the stream has no leader now", s->place);
    if (atomic_exchange(&s->denied, false))
        return error_set(MR_EPERM,
                         "%s: this user lacks rights; it needs to publish to millrace.> and "
                         "$JS.API.>, and to subscribe to _INBOX.>",
                         s->place);
    return error_set(writes ? STREAM_IN_DOUBT : STREAM_UNAVAILABLE, "%s: %s", s->place,
                     status == NATS_TIMEOUT
                         ? "no answer in time; its servers may be electing a leader"
                         : natsStatus_GetText(status));
}

static int call_meaning(struct nats_session *s, natsStatus status, jsErrCode code, bool writes) {
    int meaning = status_meaning(s, status, code, writes);
    if (meaning != STREAM_UNAVAILABLE && meaning != STREAM_IN_DOUBT)
        s->failing_ms = 0;
    else if (!s->failing_ms)
        s->failing_ms = monotonic_ms();
    return meaning;
}

static jsOptions options_of_call(const struct nats_session *s) {
    jsOptions o;
    jsOptions_Init(&o);
    o.Wait = s->call_ms;
    return o;
}

// --- the version ------------------------------------------------------------------------------

// libnats does not pass it on, but a server names it to everyone who connects.
static void version_ask(struct nats_session *s, const char *host, const char *port) {
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    char info[4096];
    if (getaddrinfo(host, port, &want, &found) != 0)
        return;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval wait = { .tv_sec = 1 };
    ssize_t size = -1;
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0 &&
        connect(fd, found->ai_addr, found->ai_addrlen) == 0)
        size = recv(fd, info, sizeof info - 1, 0);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(found);
    info[size > 0 ? size : 0] = 0;
    const char *version = strstr(info, "\"version\":\"");
    if (version)
        snprintf(s->version, sizeof s->version, "%.*s", (int)strspn(version + 11, "0123456789."),
                 version + 11);
}

const char *nats_session_version(struct nats_session *s) {
    char url[256];
    if (s->version[0] || !s->connection ||
        natsConnection_GetConnectedUrl(s->connection, url, sizeof url) != NATS_OK)
        return s->version;
    char *host = strstr(url, "://"), *port = strrchr(url, ':');
    if (!host || port <= host)
        return s->version;
    host += 3;
    *port++ = 0;
    char *bracket = host[0] == '[' ? strchr(host, ']') : NULL;
    if (bracket) {
        *bracket = 0;
        host++;
    }
    version_ask(s, host, port);
    return s->version;
}

// --- messages ---------------------------------------------------------------------------------

// As the text of the error has it; 0: it does not.
static uint64_t conflict_sequence(void) {
    const char *colon = strrchr(server_text(NATS_ERR), ':');
    return colon ? strtoull(colon + 1, NULL, 10) : 0;
}

static int message_make(const struct nats_session *s, const struct nats_put *p, natsMsg **out) {
    char expected[24];
    snprintf(expected, sizeof expected, "%" PRIu64, p->expected);
    natsStatus status = natsMsg_Create(out, p->subject, NULL, p->bytes.data, (int)p->bytes.size);
    if (status == NATS_OK)
        status = natsMsgHeader_Set(*out, "Nats-Expected-Last-Sequence", expected);
    if (status == NATS_OK && p->replaces)
        status = natsMsgHeader_Set(*out, "Nats-Rollup", "sub");
    return status == NATS_OK ? 0 : session_failed(s, status);
}

int nats_session_put(struct nats_session *s, const struct nats_put *p, uint64_t *out_sequence) {
    int err = nats_session_connect(s);
    natsMsg *message = NULL;
    if (!err)
        err = message_make(s, p, &message);
    if (err) {
        natsMsg_Destroy(message);
        return err;
    }
    jsPubOptions o;
    jsPubOptions_Init(&o);
    o.MaxWait = s->call_ms;
    jsPubAck *ack = NULL;
    jsErrCode code = 0;
    natsStatus status = js_PublishMsg(&ack, s->js, message, &o, &code);
    int result = call_meaning(s, status, code, true);
    if (result == STREAM_DONE)
        *out_sequence = ack->Sequence;
    else if (result == NATS_CONFLICT)
        *out_sequence = conflict_sequence();
    jsPubAck_Destroy(ack);
    natsMsg_Destroy(message);
    return result;
}

int nats_session_last(struct nats_session *s, const char *stream, const char *subject,
                      natsMsg **out) {
    int err = nats_session_connect(s);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    jsErrCode code = 0;
    natsStatus status = js_GetLastMsg(out, s->js, stream, subject, &o, &code);
    return call_meaning(s, status, code, false);
}

int nats_session_get(struct nats_session *s, const char *stream, uint64_t sequence, natsMsg **out) {
    int err = nats_session_connect(s);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    jsErrCode code = 0;
    natsStatus status = js_GetMsg(out, s->js, stream, sequence, &o, &code);
    return call_meaning(s, status, code, false);
}

static natsStatus inbox_open(struct nats_session *s) {
    struct nats_pull *p = &s->pull;
    natsInbox *name = NULL;
    char subject[sizeof p->prefix + 2];
    if (p->inbox)
        return NATS_OK;
    natsStatus status = natsInbox_Create(&name);
    if (status != NATS_OK)
        return status;
    snprintf(p->prefix, sizeof p->prefix, "%s", (const char *)name);
    snprintf(subject, sizeof subject, "%s.*", p->prefix);
    natsInbox_Destroy(name);
    return natsConnection_SubscribeSync(&p->inbox, s->connection, subject);
}

// Makes a consumer that the servers remove by themselves. The caller destroys `out`.
static int consumer_make(struct nats_session *s, const char *stream, uint64_t from,
                         jsConsumerInfo **out) {
    jsOptions o = options_of_call(s);
    jsErrCode code = 0;
    jsConsumerConfig config;
    jsConsumerConfig_Init(&config);
    config.AckPolicy = js_AckNone;
    config.DeliverPolicy = from ? js_DeliverByStartSequence : js_DeliverNew;
    config.OptStartSeq = from;
    config.InactiveThreshold = CONSUMER_S * INT64_C(1000000000);
    natsStatus status = js_AddConsumer(out, s->js, stream, &config, &o, &code);
    return call_meaning(s, status, code, false);
}

int nats_session_follow(struct nats_session *s, const char *stream, uint64_t from) {
    struct nats_pull *p = &s->pull;
    jsConsumerInfo *info = NULL;
    int err = nats_session_connect(s);
    if (!err)
        err = call_meaning(s, inbox_open(s), 0, false);
    if (!err)
        err = consumer_make(s, stream, from ? from : 1, &info);
    if (!err) {
        snprintf(p->stream, sizeof p->stream, "%s", stream);
        snprintf(p->consumer, sizeof p->consumer, "%s", info->Name);
        p->left = 0;
    }
    jsConsumerInfo_Destroy(info);
    return err;
}

void nats_session_unfollow(struct nats_session *s) {
    jsOptions o = options_of_call(s);
    if (s->pull.consumer[0] && nats_session_connect(s) == STREAM_DONE)
        (void)js_DeleteConsumer(s->js, s->pull.stream, s->pull.consumer, &o, NULL);
    s->pull.consumer[0] = 0; // it ends by itself as well
    s->pull.request++;
}

static natsStatus messages_request(struct nats_session *s) {
    struct nats_pull *p = &s->pull;
    size_t most = nats_session_payload(s) + HEADERS_MOST;
    char subject[192], reply[sizeof p->prefix + 24], text[128];
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.MSG.NEXT.%s.%s", p->stream, p->consumer);
    snprintf(reply, sizeof reply, "%s.%" PRIu64, p->prefix, ++p->request);
    int size =
        snprintf(text, sizeof text, "{\"batch\":%d,\"max_bytes\":%zu,\"expires\":%" PRIu64 "}",
                 PULL_MESSAGES, most > PULL_BYTES ? 2 * most : (size_t)PULL_BYTES,
                 s->call_ms * UINT64_C(1000000));
    p->left = PULL_MESSAGES;
    return natsConnection_PublishRequest(s->connection, subject, reply, text, size);
}

// Messages keep the subject that they were stored with, and name their consumer in the reply; the
// end of a request comes to the subject of the request.
static bool is_of_consumer(const struct nats_pull *p, natsMsg *message) {
    const char *reply = natsMsg_GetReply(message);
    return reply && strstr(reply, p->consumer);
}

static bool is_end_of_request(const struct nats_pull *p, natsMsg *message) {
    const char *dot = strrchr(natsMsg_GetSubject(message), '.');
    return dot && strtoull(dot + 1, NULL, 10) == p->request;
}

int nats_session_next(struct nats_session *s, natsMsg **out) {
    struct nats_pull *p = &s->pull;
    uint64_t until_ms = monotonic_ms() + s->call_ms;
    for (int ends = 0;;) {
        int err = nats_session_connect(s);
        if (!err && !p->inbox)
            err = error_set(STREAM_UNAVAILABLE, "%s: the connection was lost", s->place);
        if (!err && p->left == 0)
            err = call_meaning(s, messages_request(s), 0, false);
        if (err)
            return err;
        int64_t left_ms = wait_ms_until(until_ms, monotonic_ms());
        natsMsg *message = NULL;
        natsStatus status = natsSubscription_NextMsg(&message, p->inbox, left_ms > 0 ? left_ms : 1);
        if (status != NATS_OK)
            return call_meaning(s, status, 0, false);
        if (is_of_consumer(p, message)) {
            p->left -= p->left > 0;
            *out = message;
            return STREAM_DONE;
        }
        if (is_end_of_request(p, message)) // for its bytes or its time
            p->left = 0;
        ends += p->left == 0;
        natsMsg_Destroy(message);
        if (left_ms <= 0 || ends > PULL_ENDS)
            return error_set(STREAM_UNAVAILABLE, "%s: no message in time", s->place);
    }
}

mr_bytes nats_message_bytes(natsMsg *message) {
    return (mr_bytes){ natsMsg_GetData(message), (size_t)natsMsg_GetDataLength(message) };
}

uint64_t nats_message_sequence(natsMsg *message) {
    jsMsgMetaData *meta = NULL;
    if (natsMsg_GetMetaData(&meta, message) != NATS_OK)
        return natsMsg_GetSequence(message);
    uint64_t sequence = meta->Sequence.Stream;
    jsMsgMetaData_Destroy(meta);
    return sequence;
}

// --- streams ----------------------------------------------------------------------------------

int nats_session_make(struct nats_session *s, jsStreamConfig *config) {
    int err = nats_session_connect(s);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    o.Wait = 3 * (int64_t)s->call_ms; // with replicas a leader is elected first
    jsErrCode code = 0;
    natsStatus status = js_AddStream(NULL, s->js, config, &o, &code);
    return call_meaning(s, status, code, false);
}

int nats_session_info(struct nats_session *s, const char *stream, jsStreamInfo **out) {
    int err = nats_session_connect(s);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    jsErrCode code = 0;
    natsStatus status = js_GetStreamInfo(out, s->js, stream, &o, &code);
    return call_meaning(s, status, code, false);
}

int nats_session_purge(struct nats_session *s, const char *stream, uint64_t below) {
    int err = nats_session_connect(s);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    jsErrCode code = 0;
    o.Stream.Purge.Sequence = below;
    natsStatus status = js_PurgeStream(s->js, stream, &o, &code);
    return call_meaning(s, status, code, false);
}

// A consumer says when it was made.
int nats_session_clock(struct nats_session *s, const char *stream, int64_t *out_ns) {
    jsConsumerInfo *info = NULL;
    int err = nats_session_connect(s);
    if (!err)
        err = consumer_make(s, stream, 0, &info);
    if (err)
        return err;
    jsOptions o = options_of_call(s);
    *out_ns = info->Created;
    (void)js_DeleteConsumer(s->js, stream, info->Name, &o, NULL); // it ends by itself as well
    jsConsumerInfo_Destroy(info);
    return STREAM_DONE;
}
