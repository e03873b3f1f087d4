// See router.h. A struct loop_message goes from one loop to another; it owns its contents.
#include "server/router.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/gather.h"
#include "shard/reservation.h"
#include "wire/number.h"

#include <assert.h>
#include <string.h>

enum {
    MOST_UNDER_WAY = 1024,         // requests that a connection has in another loop …
    MOST_BYTES_UNDER_WAY = 4 << 20 // … and bytes of them, after which it waits for the replies
};

enum loop_message_kind {
    // To a remote session:
    LOOP_IDENTITY, // its connection's identity; the first one makes the remote session
    LOOP_HOLDS,    // sources that it has to hold
    LOOP_REQUESTS, // bytes; `reserved` if it is a TAKE in several loops
    LOOP_SENT,     // number of bytes of replies that the connection has accepted
    LOOP_UNBLOCK,  // its TAKE waits no longer
    LOOP_END,      // the connection has ended
    // From it:
    LOOP_REPLIES, // bytes, and how many replies they are
    LOOP_CLOSED,  // it has ended by itself; count 1: the connection must be closed at once
    LOOP_ENDED,   // the last message, after LOOP_END
    // Between shards, and for the server:
    LOOP_SHARD_MESSAGE,
    LOOP_RUN,
};

// The identity of the connection of a remote session. Compared byte by byte: unused bytes are zero.
struct identity {
    uint64_t id;
    bool resp3, cancels, input_ended;
    uint32_t level;
    char stages[SESSION_STAGES];
    char name[LIMIT_NAME + 1], token[AUTH_NAME + 1], address[64];
};

struct loop_message {
    struct list of_inbox;
    enum loop_message_kind kind;
    struct remote *remote;
    struct buffer bytes;
    uint64_t count;
    struct remote_work work;
    struct identity *identity;
    struct holds *holds;
    struct shared_reservation *reserved;
    struct message *message;
    void (*run)(struct host *, void *arg);
    void *arg;
};

// A TAKE that waits in several loops.
struct shared_reservation {
    struct reservation reservation;
    _Atomic uint32_t users;
};

// ---- Loops and inboxes --------------------------------------------------------------------------

void loops_init(struct loops *l, uint32_t count) {
    *l = (struct loops){ .count = count };
    for (uint32_t i = 0; i < count; i++) {
        list_init(&l->inboxes[i].messages);
        pthread_mutex_init(&l->inboxes[i].lock, NULL);
    }
}

void loops_add(struct loops *l, struct host *h, void (*wake)(void *arg), void *arg) {
    l->hosts[h->loop] = h;
    l->inboxes[h->loop].wake = wake;
    l->inboxes[h->loop].arg = arg;
    h->loops = l->count > 1 ? l : NULL;
}

static void loop_message_free(struct loop_message *m) {
    if (!m)
        return;
    buffer_finish(&m->bytes);
    shared_reservation_leave(m->reserved);
    mem_free(m->identity);
    mem_free(m->holds);
    if (m->message)
        message_finish(m->message);
    mem_free(m->message);
    mem_free(m);
}

void loops_finish(struct loops *l) {
    for (uint32_t i = 0; i < l->count; i++) {
        for (struct list *at; (at = list_first(&l->inboxes[i].messages)) != NULL;) {
            list_remove(at);
            loop_message_free(list_entry(at, struct loop_message, of_inbox));
        }
        pthread_mutex_destroy(&l->inboxes[i].lock);
    }
}

// Shards are distributed evenly over the loops, in order.
uint32_t loop_of_shard(const struct loops *l, uint32_t shards, uint32_t shard) {
    return l && shards ? (uint32_t)((uint64_t)shard * l->count / shards) : 0;
}

uint32_t loop_first_shard(const struct loops *l, uint32_t shards, uint32_t loop) {
    return l ? (uint32_t)(((uint64_t)loop * shards + l->count - 1) / l->count) : loop * shards;
}

static void loop_send(struct loops *l, uint32_t loop, struct loop_message *m) {
    struct inbox *in = &l->inboxes[loop];
    pthread_mutex_lock(&in->lock);
    bool was_empty = list_empty(&in->messages);
    list_append(&in->messages, &m->of_inbox);
    pthread_mutex_unlock(&in->lock);
    if (was_empty)
        in->wake(in->arg);
}

static struct loop_message *loop_message_create(enum loop_message_kind kind, struct remote *r) {
    struct loop_message *m = mem_alloc(sizeof *m);
    if (m) {
        m->kind = kind;
        m->remote = r;
    }
    return m;
}

int loops_run(struct loops *l, uint32_t loop, void (*run)(struct host *, void *arg), void *arg) {
    struct loop_message *m = loop_message_create(LOOP_RUN, NULL);
    if (!m)
        return error_set(MR_ENOMEM, "no memory for a message between loops");
    m->run = run;
    m->arg = arg;
    loop_send(l, loop, m);
    return 0;
}

int router_send_message(struct host *h, struct message *message) {
    struct loop_message *m = loop_message_create(LOOP_SHARD_MESSAGE, NULL);
    struct message *copy = m ? mem_alloc(sizeof *copy) : NULL;
    if (!copy) {
        mem_free(m);
        return MR_ENOMEM;
    }
    *copy = *message;
    message->emits = (struct buffer){ 0 };
    m->message = copy;
    loop_send(h->loops, loop_of_shard(h->loops, h->shards, copy->to), m);
    return 0;
}

// ---- Remote sessions, seen from the connection --------------------------------------------------

// Messages that must not fail are allocated in advance.
struct remote {
    struct loops *loops;
    uint32_t client_loop, shard_loop;
    struct loop_message *end, *ended, *closed; // for LOOP_END, LOOP_ENDED and LOOP_CLOSED

    // Used by the client's loop:
    struct session *client; // NULL: it has ended
    struct list of_outgoing;
    struct buffer requests;   // to be sent at the end of the turn
    uint64_t under_way;       // requests without a reply
    uint64_t bytes_under_way; // of requests, since there were none
    uint64_t to_ack;          // bytes of replies that the connection has accepted
    struct remote_work work;  // as last reported
    struct identity known;    // what was sent to it
    bool is_made;
    struct holds holds;                  // to be sent before the requests
    struct shared_reservation *reserved; // goes with the next requests

    // Used by the loop of the shards:
    struct session *session; // NULL: not yet, or over
    bool is_over;
    struct identity identity;
    uint64_t sent_bytes, sent_replies; // of replies, without acknowledgement
    uint64_t sent_ended;               // number of ends reported
};

static struct remote *remote_create(struct session *s, uint32_t shard_loop) {
    struct remote *r = mem_alloc(sizeof *r);
    if (!r)
        return NULL;
    r->end = loop_message_create(LOOP_END, r);
    r->ended = loop_message_create(LOOP_ENDED, r);
    r->closed = loop_message_create(LOOP_CLOSED, r);
    if (!r->end || !r->ended || !r->closed) {
        loop_message_free(r->end);
        loop_message_free(r->ended);
        loop_message_free(r->closed);
        mem_free(r);
        return NULL;
    }
    r->loops = s->host->loops;
    r->client_loop = s->host->loop;
    r->shard_loop = shard_loop;
    r->client = s;
    list_init(&r->of_outgoing);
    return r;
}

static void remote_free(struct remote *r) {
    buffer_finish(&r->requests);
    shared_reservation_leave(r->reserved);
    loop_message_free(r->end);
    loop_message_free(r->ended);
    loop_message_free(r->closed);
    mem_free(r);
}

// NULL: no memory, and the session ends.
static struct remote *remote_get(struct session *s, uint32_t shard_loop) {
    if (!s->remotes)
        s->remotes = mem_alloc(s->host->loops->count * sizeof *s->remotes);
    if (s->remotes && !s->remotes[shard_loop])
        s->remotes[shard_loop] = remote_create(s, shard_loop);
    if (s->remotes && s->remotes[shard_loop])
        return s->remotes[shard_loop];
    s->broken = true;
    session_touch(s);
    return NULL;
}

static void send_later(struct remote *r) {
    if (list_empty(&r->of_outgoing))
        list_append(&r->client->host->outgoing, &r->of_outgoing);
}

static int remote_request(struct remote *r, const mr_bytes *words, uint32_t count) {
    size_t before = r->requests.size;
    int err = request_write(&r->requests, words, count);
    if (err < 0) {
        r->client->broken = true;
        session_touch(r->client);
        return err;
    }
    r->under_way++;
    r->bytes_under_way += r->requests.size - before;
    send_later(r);
    return 0;
}

static struct identity identity_of(const struct session *s) {
    struct identity i;
    memset(&i, 0, sizeof i);
    i.id = s->id;
    i.resp3 = s->reply.resp3;
    i.cancels = s->cancels;
    i.input_ended = s->input_ended;
    i.level = s->level;
    memcpy(i.stages, s->stages, strlen(s->stages));
    memcpy(i.name, s->name, strlen(s->name));
    strncpy(i.address, s->address, sizeof i.address - 1);
    if (s->who && s->who->name.size <= AUTH_NAME)
        memcpy(i.token, s->who->name.data, s->who->name.size);
    return i;
}

static bool send_identity(struct remote *r) {
    struct identity now = identity_of(r->client);
    // identity_of clears the padding. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (r->is_made && memcmp(&now, &r->known, sizeof now) == 0)
        return true;
    struct loop_message *m = loop_message_create(LOOP_IDENTITY, r);
    m = m && (m->identity = mem_alloc(sizeof now)) ? m : (loop_message_free(m), NULL);
    if (!m)
        return false;
    *m->identity = now;
    r->known = now;
    r->is_made = true;
    loop_send(r->loops, r->shard_loop, m);
    return true;
}

static bool send_holds(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_HOLDS, r);
    m = m && (m->holds = mem_alloc(sizeof *m->holds)) ? m : (loop_message_free(m), NULL);
    if (!m)
        return false;
    *m->holds = r->holds;
    r->holds = (struct holds){ 0 };
    loop_send(r->loops, r->shard_loop, m);
    return true;
}

static bool send_requests(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_REQUESTS, r);
    if (!m)
        return false;
    m->bytes = r->requests;
    r->requests = (struct buffer){ 0 };
    m->reserved = r->reserved;
    r->reserved = NULL;
    loop_send(r->loops, r->shard_loop, m);
    return true;
}

static bool send_ack(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_SENT, r);
    if (!m)
        return false;
    m->count = r->to_ack;
    r->to_ack = 0;
    loop_send(r->loops, r->shard_loop, m);
    return true;
}

// Without memory for a message the session ends, which closes its connection.
static void remote_send(struct remote *r) {
    bool holds = r->holds.count || r->holds.over;
    bool sent =
        send_identity(r) && (!holds || send_holds(r)) && (!r->requests.size || send_requests(r));
    // A front sends nothing until it has all replies to a request, which are few.
    bool reads = r->client->front || !session_is_paused(r->client);
    if (sent && r->to_ack && reads)
        sent = send_ack(r);
    if (sent)
        return;
    r->client->broken = true;
    session_touch(r->client);
}

void router_send(struct host *h) {
    for (struct list *l; (l = list_first(&h->outgoing)) != NULL;) {
        list_remove(l);
        remote_send(list_entry(l, struct remote, of_outgoing));
    }
}

// ---- Memory for clients -------------------------------------------------------------------------

uint64_t router_client_bytes(const struct host *h) {
    uint64_t bytes = h->buffered;
    for (uint32_t i = 0; i < h->loops->count; i++)
        bytes += i == h->loop ? 0 : atomic_load(&h->loops->client_bytes[i]);
    return bytes;
}

// A loop that has more than its share closes some connections when it wakes up. It is woken here,
// because this loop has made the sum too large.
void router_note_client_bytes(struct host *h) {
    struct loops *l = h->loops;
    uint64_t limit = host_client_limit(h);
    if (atomic_exchange(&l->client_bytes[h->loop], h->buffered) >= h->buffered ||
        router_client_bytes(h) <= limit)
        return;
    for (uint32_t i = 0; i < l->count; i++)
        if (i != h->loop && atomic_load(&l->client_bytes[i]) > limit / l->count)
            l->inboxes[i].wake(l->inboxes[i].arg);
}

APART void router_identity_changed(struct session *s) {
    for (uint32_t i = 0; i < s->host->loops->count; i++)
        if (s->remotes[i])
            send_later(s->remotes[i]);
}

void router_drained(struct session *s) {
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++)
        if (s->remotes[i] && s->remotes[i]->to_ack)
            send_later(s->remotes[i]);
}

static void send_to_all(struct session *s, enum loop_message_kind kind) {
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++) {
        struct remote *r = s->remotes[i];
        struct loop_message *m =
            r && r->under_way && r->is_made ? loop_message_create(kind, r) : NULL;
        if (m)
            loop_send(r->loops, r->shard_loop, m);
    }
}

bool router_unblock(struct session *s) {
    if (!s->taking)
        return false;
    router_send(s->host);
    if (s->gather)
        gather_cancel(s);
    else
        send_to_all(s, LOOP_UNBLOCK);
    return true;
}

bool router_is_waiting(const struct session *s) {
    return s->route || s->gather;
}

struct remote_work router_work(const struct session *s) {
    struct remote_work sum = { 0 };
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++) {
        const struct remote *r = s->remotes[i];
        sum.leases += r ? r->work.leases : 0;
        sum.async_calls += r ? r->work.async_calls : 0;
        sum.taken += r ? r->work.taken : 0;
        sum.ended += r ? r->work.ended : 0;
    }
    return sum;
}

uint64_t router_id(const struct session *s) {
    return s->remote ? s->remote->identity.id : s->id;
}

void router_leave(struct session *s) {
    gather_destroy(s->gather);
    s->gather = NULL;
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++) {
        struct remote *r = s->remotes[i];
        if (!r)
            continue;
        list_remove(&r->of_outgoing);
        r->client = NULL;
        shared_reservation_leave(r->reserved); // of requests that were not sent yet
        r->reserved = NULL;
        struct loop_message *end = r->end;
        r->end = NULL;
        if (r->is_made)
            loop_send(r->loops, r->shard_loop, end);
        else
            loop_message_free(end), remote_free(r);
    }
    mem_free(s->remotes);
    s->remotes = NULL;
}

// ---- Destinations -----------------------------------------------------------------------------

uint32_t router_loop_of_stage(const struct host *h, mr_bytes stage) {
    return loop_of_shard(h->loops, h->shards, route_of(h->shards, stage));
}

uint32_t router_loop_of_id(const struct host *h, uint64_t id) {
    return loop_of_shard(h->loops, h->shards, route_of_id(h->shards, id));
}

bool router_runs_elsewhere(const struct session *s, mr_bytes stage) {
    const struct host *h = s->host;
    return h->loops && h->shards && !s->remote && router_loop_of_stage(h, stage) != h->loop;
}

void router_hold(struct session *s, mr_bytes stage, const struct holds *more) {
    struct remote *r = remote_get(s, router_loop_of_stage(s->host, stage));
    if (!r)
        return; // the session ends
    holds_merge(&r->holds, more);
    send_later(r);
}

bool router_has_shards(const struct host *h, uint32_t loop) {
    return loop_first_shard(h->loops, h->shards, loop) <
           loop_first_shard(h->loops, h->shards, loop + 1);
}

struct destination {
    enum { DESTINATION_HERE, DESTINATION_LOOP, DESTINATION_GATHER } kind;
    uint32_t loop;
};

static struct destination destination_loop(const struct host *h, uint32_t loop) {
    return (struct destination){ loop == h->loop ? DESTINATION_HERE : DESTINATION_LOOP, loop };
}

// A word that is no id is refused by any loop.
static struct destination destination_of_id(const struct host *h, mr_bytes word) {
    uint64_t id = 0;
    (void)number_parse(word, &id);
    return h->foreign_ids ? (struct destination){ .kind = DESTINATION_GATHER }
                          : destination_loop(h, router_loop_of_id(h, id));
}

static struct destination destination_of_client(const struct host *h, const mr_bytes *words,
                                                uint32_t count) {
    uint64_t id;
    if (count != 3 || !word_is(words[1], "UNBLOCK") || number_parse(words[2], &id) < 0 || !id)
        return destination_loop(h, h->loop);
    return destination_loop(h, (uint32_t)((id - 1) % h->loops->count));
}

static struct destination destination_of_several(const struct session *s, const struct command *c,
                                                 const mr_bytes *words, uint32_t count) {
    uint32_t loop;
    return gather_is_one(s, c, words, count, &loop)
               ? destination_loop(s->host, loop)
               : (struct destination){ .kind = DESTINATION_GATHER };
}

static struct destination destination_of_scope(const struct session *s, const struct command *c,
                                               const mr_bytes *words, uint32_t count) {
    const struct host *h = s->host;
    uint64_t id;
    switch (c->scope) {
    case SCOPE_NONE:
        break;
    case SCOPE_STAGE:
        return destination_loop(h, router_loop_of_stage(h, words[1]));
    case SCOPE_JOB:
        return destination_of_id(h, words[1]);
    case SCOPE_EITHER:
        if (number_parse(words[1], &id) == 0) // of a job, or the name of a stage anywhere
            return (struct destination){ .kind = DESTINATION_GATHER };
        return destination_loop(h, router_loop_of_stage(h, words[1]));
    case SCOPE_STAGES:
    case SCOPE_LEASES:
    case SCOPE_JOBS:
    case SCOPE_LIST:
    case SCOPE_SERVER:
        return destination_of_several(s, c, words, count);
    case SCOPE_CLIENT:
        return destination_of_client(h, words, count);
    }
    return destination_loop(h, h->loop);
}

// A remote session runs every command in its own loop.
static struct destination destination_of(const struct session *s, const struct command *c,
                                         const mr_bytes *words, uint32_t count) {
    const struct host *h = s->host;
    if (!c || count - 1 < c->least || !h->shards || s->remote)
        return destination_loop(h, h->loop);
    return destination_of_scope(s, c, words, count);
}

// A command that MULTI queues is answered in this loop.
bool router_must_wait(struct session *s, const mr_bytes *words, uint32_t count) {
    const struct command *c = command_row(words[0]);
    if (!s->route)
        return false;
    struct remote *r = s->route;
    struct destination to = multi_queues(s, c) ? destination_loop(s->host, s->host->loop)
                                               : destination_of(s, c, words, count);
    bool same = to.kind == DESTINATION_LOOP && to.loop == r->shard_loop;
    if (same && r->under_way < MOST_UNDER_WAY && r->bytes_under_way < MOST_BYTES_UNDER_WAY)
        return false;
    return true;
}

static bool is_in_exec(const struct session *s) {
    return multi_is_running(s);
}

APART bool router_is_here(struct session *s, const struct command *c, const mr_bytes *words,
                          uint32_t count) {
    struct destination to = destination_of(s, c, words, count);
    if (to.kind == DESTINATION_HERE)
        return true;
    if (to.kind == DESTINATION_GATHER || is_in_exec(s)) {
        gather_begin(s, c, words, count, to.kind == DESTINATION_LOOP ? &to.loop : NULL);
        return false;
    }
    if (c->scope == SCOPE_STAGES)
        gather_note_take(s, words, count);
    struct remote *r = remote_get(s, to.loop);
    if (r && remote_request(r, words, count) == 0) {
        s->route = r;
        s->forwarded = true;
    }
    return false;
}

// ---- For gather.c -----------------------------------------------------------------------------

int router_request(struct session *s, uint32_t loop, const mr_bytes *words, uint32_t count,
                   struct shared_reservation *reserved) {
    struct remote *r = remote_get(s, loop);
    if (!r)
        return MR_ENOMEM;
    if (reserved) {
        atomic_fetch_add(&reserved->users, 1);
        r->reserved = reserved;
    }
    return remote_request(r, words, count);
}

void router_unblock_at(struct session *s, uint32_t loop) {
    struct remote *r = s->remotes[loop];
    remote_send(r);
    list_remove(&r->of_outgoing);
    struct loop_message *m = loop_message_create(LOOP_UNBLOCK, r);
    if (m)
        loop_send(r->loops, r->shard_loop, m); // without memory the TAKE waits until its timeout
}

struct shared_reservation *shared_reservation_create(void) {
    struct shared_reservation *c = mem_alloc(sizeof *c);
    if (!c)
        return NULL;
    atomic_init(&c->reservation.word, RESERVATION_OPEN);
    atomic_init(&c->users, 1);
    return c;
}

void shared_reservation_withdraw(struct shared_reservation *c) {
    (void)reservation_withdraw(&c->reservation); // a loop that has it answers
}

void shared_reservation_leave(struct shared_reservation *c) {
    if (c && atomic_fetch_sub(&c->users, 1) == 1)
        mem_free(c);
}

bool router_reserves(struct session *s) {
    uint32_t loop = s->host->loop;
    return !s->reserved || reservation_claim(&s->reserved->reservation, loop) ||
           reservation_word(&s->reserved->reservation) == RESERVATION_OF + loop;
}

bool router_may_reserve(const struct session *s) {
    uint32_t now = reservation_word(&s->reserved->reservation);
    return now == RESERVATION_OPEN || now == RESERVATION_OF + s->host->loop;
}

void router_end_reservation(struct session *s) {
    shared_reservation_leave(s->reserved);
    s->reserved = NULL;
}

// ---- Remote sessions, in their own loop -------------------------------------------------------

static void remote_close(struct remote *r) {
    r->is_over = true;
    if (!r->session)
        return;
    host_begin(r->session->host);
    session_destroy(r->session);
    r->session = NULL;
}

// Sent at most once.
static void send_closed(struct remote *r, bool at_once) {
    struct loop_message *m = r->closed;
    r->closed = NULL;
    if (!m)
        return;
    m->count = at_once;
    loop_send(r->loops, r->client_loop, m);
}

void router_close_remote(struct session *s) {
    struct remote *r = s->remote;
    remote_close(r);
    send_closed(r, true);
}

// Sends replies that were released and not sent yet. False: there is no memory for them.
static bool send_replies(struct session *s, struct remote *r) {
    mr_bytes ready = session_ready(s);
    size_t more = ready.size - r->sent_bytes;
    if (!more && s->ended == r->sent_ended)
        return true;
    struct loop_message *m = loop_message_create(LOOP_REPLIES, r);
    if (!m ||
        (more && buffer_append(&m->bytes, (const uint8_t *)ready.data + r->sent_bytes, more) < 0)) {
        loop_message_free(m);
        return false;
    }
    m->count = s->released_replies - r->sent_replies;
    m->work = (struct remote_work){ session_leases(s), s->async_count, s->taken, s->ended };
    r->sent_bytes = ready.size;
    r->sent_replies = s->released_replies;
    r->sent_ended = s->ended;
    loop_send(r->loops, r->client_loop, m);
    return true;
}

void router_send_replies(struct session *s) {
    struct remote *r = s->remote;
    bool sent = !s->broken && send_replies(s, r);
    if (sent && !(s->closing && session_unsent(s) == r->sent_bytes))
        return; // after the end of the client's input, commands that arrived before it may follow
    remote_close(r);
    send_closed(r, false);
}

// No second session is created after the first has ended: a command must not run if an earlier one
// did not.
static void identity_set(struct host *h, struct remote *r, const struct identity *i) {
    if (r->is_over)
        return;
    if (!r->session) {
        if (session_create(h, &r->session) < 0)
            return;
        h->connections--; // the connection was counted in its own loop
        r->session->remote = r;
    }
    struct session *s = r->session;
    r->identity = *i;
    s->reply.resp3 = i->resp3;
    s->cancels = i->cancels;
    session_work_for(s, i->stages, i->level);
    s->address = r->identity.address;
    memcpy(s->name, i->name, sizeof s->name);
    s->who = h->auth && i->token[0] ? auth_named(h->auth, mr_str(i->token)) : NULL;
    if (i->input_ended && !s->input_ended)
        session_end_input(s);
}

static void remote_receive_requests(struct remote *r, struct loop_message *m) {
    struct session *s = r->session;
    if (!s) {
        send_closed(r, false);
        return;
    }
    router_end_reservation(s); // of a TAKE that was refused
    s->reserved = m->reserved;
    m->reserved = NULL;
    session_feed(s, m->bytes.data, m->bytes.size);
}

static void remote_receive_ack(struct remote *r, size_t size) {
    if (!r->session)
        return;
    r->sent_bytes -= size;
    session_sent(r->session, size);
}

static void remote_unblock_take(struct session *s) {
    if (s && take_waits(s))
        wait_time_out(s);
}

static void remote_receive_end(struct remote *r) {
    remote_close(r);
    struct loop_message *ended = r->ended;
    r->ended = NULL;
    loop_send(r->loops, r->client_loop, ended);
}

// ---- Replies ----------------------------------------------------------------------------------

static void routed_all(struct session *s) {
    s->route->bytes_under_way = 0;
    s->route = NULL;
    s->taking = false;
    if (s->wait.kind && !s->wait.for_turn) // a command that was deferred
        wait_wake(s, WAKE_READY);
    else
        session_offer(s); // it may be over
}

static void remote_receive_replies(struct remote *r, struct loop_message *m) {
    struct session *s = r->client;
    if (!s)
        return;
    r->work = m->work;
    r->under_way -= m->count;
    r->to_ack += m->bytes.size;
    send_later(r);
    if (s->gather) {
        if (!r->under_way)
            r->bytes_under_way = 0;
        gather_receive(s, r->shard_loop, buffer_bytes(&m->bytes));
        return;
    }
    struct reply *reply = session_reply(s);
    if (!reply->err)
        reply->err = buffer_append(&s->out, m->bytes.data, m->bytes.size);
    s->replies += m->count;
    session_touch(s);
    if (s->route == r && !r->under_way)
        routed_all(s);
}

// Replies that are under way are lost. The client of a front waits for one, so its connection is
// closed at once.
static void remote_has_closed(struct remote *r, bool at_once) {
    if (!r->client)
        return;
    r->client->broken = r->client->broken || at_once || r->client->front;
    session_close(r->client);
}

// ---- Receiving --------------------------------------------------------------------------------

// False: there is no memory for it now; it is handled again later.
static bool receive_shard_message(struct host *h, const struct message *m) {
    struct shard *to = h->parts[m->to].shard;
    return peers_receive(shard_peers(to), m) >= 0;
}

static bool loop_message_handle(struct host *h, struct loop_message *m) {
    struct remote *r = m->remote;
    switch (m->kind) {
    case LOOP_IDENTITY:
        identity_set(h, r, m->identity);
        break;
    case LOOP_HOLDS:
        if (r->session)
            holds_merge(&r->session->holds, m->holds);
        break;
    case LOOP_REQUESTS:
        remote_receive_requests(r, m);
        break;
    case LOOP_SENT:
        remote_receive_ack(r, m->count);
        break;
    case LOOP_UNBLOCK:
        remote_unblock_take(r->session);
        break;
    case LOOP_END:
        remote_receive_end(r);
        break;
    case LOOP_REPLIES:
        remote_receive_replies(r, m);
        break;
    case LOOP_CLOSED:
        remote_has_closed(r, m->count);
        break;
    case LOOP_ENDED:
        remote_free(r);
        break;
    case LOOP_SHARD_MESSAGE:
        return receive_shard_message(h, m->message);
    case LOOP_RUN:
        m->run(h, m->arg);
        break;
    }
    return true;
}

static struct loop_message *inbox_next(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    struct list *l = list_first(&in->messages);
    if (l)
        list_remove(l);
    pthread_mutex_unlock(&in->lock);
    return l ? list_entry(l, struct loop_message, of_inbox) : NULL;
}

// The message is handled again later, before all others.
static void inbox_put_back(struct inbox *in, struct loop_message *m) {
    pthread_mutex_lock(&in->lock);
    list_append(in->messages.next, &m->of_inbox); // before the first
    pthread_mutex_unlock(&in->lock);
}

bool router_receive(struct host *h) {
    struct inbox *in = &h->loops->inboxes[h->loop];
    bool any = false;
    for (struct loop_message *m; (m = inbox_next(in)) != NULL; any = true) {
        if (loop_message_handle(h, m)) {
            loop_message_free(m);
            continue;
        }
        inbox_put_back(in, m);
        h->messages_delayed = true;
        break;
    }
    return any;
}
