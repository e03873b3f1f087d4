// See router.h. A mail is one message between two loops; it owns its contents.
#include "server/router.h"

#include "base/errors.h"
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

enum mail_kind {
    // To a remote session:
    MAIL_IDENTITY, // its connection's identity; the first one makes the remote session
    MAIL_HOLDS,    // sources that it has to hold
    MAIL_REQUESTS, // bytes; `reserved` if it is a TAKE in several loops
    MAIL_SENT,     // number of bytes of replies that the connection has accepted
    MAIL_UNBLOCK,  // its TAKE waits no longer
    MAIL_END,      // the connection has ended
    // From it:
    MAIL_REPLIES, // bytes, and how many replies they are
    MAIL_CLOSED,  // it has ended by itself; count 1: the connection must be closed at once
    MAIL_ENDED,   // after MAIL_END: nothing more comes
    // Between shards, and for the server:
    MAIL_MESSAGE,
    MAIL_RUN,
};

// The identity of the connection of a remote session. Compared byte by byte: unused bytes are zero.
struct identity {
    uint64_t id;
    bool resp3, cancels, input_ended;
    uint32_t level;
    char stages[SESSION_STAGES];
    char name[LIMIT_NAME + 1], token[AUTH_NAME + 1], address[64];
};

struct mail {
    struct list of_inbox;
    enum mail_kind kind;
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
        list_init(&l->inboxes[i].mails);
        pthread_mutex_init(&l->inboxes[i].lock, NULL);
    }
}

void loops_add(struct loops *l, struct host *h, void (*wake)(void *arg), void *arg) {
    l->hosts[h->loop] = h;
    l->inboxes[h->loop].wake = wake;
    l->inboxes[h->loop].arg = arg;
    h->loops = l->count > 1 ? l : NULL;
}

static void mail_free(struct mail *m) {
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
        for (struct list *at; (at = list_first(&l->inboxes[i].mails)) != NULL;) {
            list_remove(at);
            mail_free(list_entry(at, struct mail, of_inbox));
        }
        pthread_mutex_destroy(&l->inboxes[i].lock);
    }
}

// Shards lie evenly over the loops, in order.
uint32_t loop_of_shard(const struct loops *l, uint32_t shards, uint32_t shard) {
    return l && shards ? (uint32_t)((uint64_t)shard * l->count / shards) : 0;
}

uint32_t loop_first_shard(const struct loops *l, uint32_t shards, uint32_t loop) {
    return l ? (uint32_t)(((uint64_t)loop * shards + l->count - 1) / l->count) : loop * shards;
}

static void post(struct loops *l, uint32_t loop, struct mail *m) {
    struct inbox *in = &l->inboxes[loop];
    pthread_mutex_lock(&in->lock);
    bool was_empty = list_empty(&in->mails);
    list_append(&in->mails, &m->of_inbox);
    pthread_mutex_unlock(&in->lock);
    if (was_empty)
        in->wake(in->arg);
}

static struct mail *mail_of(enum mail_kind kind, struct remote *r) {
    struct mail *m = mem_alloc(sizeof *m);
    if (m) {
        m->kind = kind;
        m->remote = r;
    }
    return m;
}

int loops_run(struct loops *l, uint32_t loop, void (*run)(struct host *, void *arg), void *arg) {
    struct mail *m = mail_of(MAIL_RUN, NULL);
    if (!m)
        return error_set(MR_ENOMEM, "no memory for a message between loops");
    m->run = run;
    m->arg = arg;
    post(l, loop, m);
    return 0;
}

int router_carry(struct host *h, struct message *message) {
    struct mail *m = mail_of(MAIL_MESSAGE, NULL);
    struct message *copy = m ? mem_alloc(sizeof *copy) : NULL;
    if (!copy) {
        mem_free(m);
        return MR_ENOMEM;
    }
    *copy = *message;
    message->emits = (struct buffer){ 0 };
    m->message = copy;
    post(h->loops, loop_of_shard(h->loops, h->shards, copy->to), m);
    return 0;
}

// ---- Remote sessions, seen from the connection --------------------------------------------------

// Mails that must not fail have their memory from the beginning.
struct remote {
    struct loops *loops;
    uint32_t home, there;
    struct mail *end, *ended, *closed; // for MAIL_END, MAIL_ENDED and MAIL_CLOSED

    // Home's:
    struct session *client; // NULL: it has gone
    struct list of_outgoing;
    struct buffer requests;   // to be sent at the end of the turn
    uint64_t under_way;       // replies that have not come
    uint64_t bytes_under_way; // of requests, since there were none
    uint64_t to_ack;          // bytes of replies that the connection has taken
    struct remote_work work;  // as last reported
    struct identity known;    // what was sent to it
    bool is_made;
    struct holds holds;                  // to be sent before the requests
    struct shared_reservation *reserved; // goes with the next requests

    // The other loop's:
    struct session *session; // NULL: not yet, or over
    bool is_over;
    struct identity identity;
    uint64_t shipped, shipped_replies; // of its replies, that were not acknowledged
    uint64_t shipped_ended;            // number of ends reported
};

static struct remote *remote_create(struct session *s, uint32_t there) {
    struct remote *r = mem_alloc(sizeof *r);
    if (!r)
        return NULL;
    r->end = mail_of(MAIL_END, r);
    r->ended = mail_of(MAIL_ENDED, r);
    r->closed = mail_of(MAIL_CLOSED, r);
    if (!r->end || !r->ended || !r->closed) {
        mail_free(r->end);
        mail_free(r->ended);
        mail_free(r->closed);
        mem_free(r);
        return NULL;
    }
    r->loops = s->host->loops;
    r->home = s->host->loop;
    r->there = there;
    r->client = s;
    list_init(&r->of_outgoing);
    return r;
}

static void remote_free(struct remote *r) {
    buffer_finish(&r->requests);
    shared_reservation_leave(r->reserved);
    mail_free(r->end);
    mail_free(r->ended);
    mail_free(r->closed);
    mem_free(r);
}

// NULL: no memory, and the session ends.
static struct remote *remote_get(struct session *s, uint32_t there) {
    if (!s->remotes)
        s->remotes = mem_alloc(s->host->loops->count * sizeof *s->remotes);
    if (s->remotes && !s->remotes[there])
        s->remotes[there] = remote_create(s, there);
    if (s->remotes && s->remotes[there])
        return s->remotes[there];
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

static bool post_identity(struct remote *r) {
    struct identity now = identity_of(r->client);
    // identity_of clears the padding. NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (r->is_made && memcmp(&now, &r->known, sizeof now) == 0)
        return true;
    struct mail *m = mail_of(MAIL_IDENTITY, r);
    m = m && (m->identity = mem_alloc(sizeof now)) ? m : (mail_free(m), NULL);
    if (!m)
        return false;
    *m->identity = now;
    r->known = now;
    r->is_made = true;
    post(r->loops, r->there, m);
    return true;
}

static bool post_holds(struct remote *r) {
    struct mail *m = mail_of(MAIL_HOLDS, r);
    m = m && (m->holds = mem_alloc(sizeof *m->holds)) ? m : (mail_free(m), NULL);
    if (!m)
        return false;
    *m->holds = r->holds;
    r->holds = (struct holds){ 0 };
    post(r->loops, r->there, m);
    return true;
}

static bool post_requests(struct remote *r) {
    struct mail *m = mail_of(MAIL_REQUESTS, r);
    if (!m)
        return false;
    m->bytes = r->requests;
    r->requests = (struct buffer){ 0 };
    m->reserved = r->reserved;
    r->reserved = NULL;
    post(r->loops, r->there, m);
    return true;
}

static bool post_ack(struct remote *r) {
    struct mail *m = mail_of(MAIL_SENT, r);
    if (!m)
        return false;
    m->count = r->to_ack;
    r->to_ack = 0;
    post(r->loops, r->there, m);
    return true;
}

// Without memory for a message the session ends, which closes its connection.
static void remote_send(struct remote *r) {
    bool holds = r->holds.count || r->holds.over;
    bool sent =
        post_identity(r) && (!holds || post_holds(r)) && (!r->requests.size || post_requests(r));
    // A front sends nothing until it has all replies to a request, which are few.
    bool reads = r->client->front || !session_is_paused(r->client);
    if (sent && r->to_ack && reads)
        sent = post_ack(r);
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

// A loop that has more than its share looks whether it has to close some when it wakes up: where
// this loop has made the sum too large, that has to be now.
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

void router_identity_changed(struct session *s) {
    for (uint32_t i = 0; i < s->host->loops->count; i++)
        if (s->remotes[i])
            send_later(s->remotes[i]);
}

void router_drained(struct session *s) {
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++)
        if (s->remotes[i] && s->remotes[i]->to_ack)
            send_later(s->remotes[i]);
}

static void post_to_all(struct session *s, enum mail_kind kind) {
    for (uint32_t i = 0; s->remotes && i < s->host->loops->count; i++) {
        struct remote *r = s->remotes[i];
        struct mail *m = r && r->under_way && r->is_made ? mail_of(kind, r) : NULL;
        if (m)
            post(r->loops, r->there, m);
    }
}

bool router_unblock(struct session *s) {
    if (!s->taking)
        return false;
    router_send(s->host);
    if (s->gather)
        gather_cancel(s);
    else
        post_to_all(s, MAIL_UNBLOCK);
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
        struct mail *end = r->end;
        r->end = NULL;
        if (r->is_made)
            post(r->loops, r->there, end);
        else
            mail_free(end), remote_free(r);
    }
    mem_free(s->remotes);
    s->remotes = NULL;
}

// ---- Which way? -------------------------------------------------------------------------------

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

struct way {
    enum { WAY_HERE, WAY_LOOP, WAY_GATHER } kind;
    uint32_t loop;
};

static struct way way_to(const struct host *h, uint32_t loop) {
    return (struct way){ loop == h->loop ? WAY_HERE : WAY_LOOP, loop };
}

// A word that is no id is refused by whichever loop it comes to.
static struct way way_of_id(const struct host *h, mr_bytes word) {
    uint64_t id = 0;
    (void)number_parse(word, &id);
    return h->foreign_ids ? (struct way){ .kind = WAY_GATHER }
                          : way_to(h, router_loop_of_id(h, id));
}

static struct way way_of_client(const struct host *h, const mr_bytes *words, uint32_t count) {
    uint64_t id;
    if (count != 3 || !word_is(words[1], "UNBLOCK") || number_parse(words[2], &id) < 0 || !id)
        return way_to(h, h->loop);
    return way_to(h, (uint32_t)((id - 1) % h->loops->count));
}

static struct way way_of_several(const struct session *s, const struct command *c,
                                 const mr_bytes *words, uint32_t count) {
    uint32_t loop;
    return gather_is_one(s, c, words, count, &loop) ? way_to(s->host, loop)
                                                    : (struct way){ .kind = WAY_GATHER };
}

static struct way way_of_scope(const struct session *s, const struct command *c,
                               const mr_bytes *words, uint32_t count) {
    const struct host *h = s->host;
    uint64_t id;
    switch (c->scope) {
    case SCOPE_NONE:
        break;
    case SCOPE_STAGE:
        return way_to(h, router_loop_of_stage(h, words[1]));
    case SCOPE_JOB:
        return way_of_id(h, words[1]);
    case SCOPE_EITHER:
        return number_parse(words[1], &id) == 0 ? way_of_id(h, words[1])
                                                : way_to(h, router_loop_of_stage(h, words[1]));
    case SCOPE_STAGES:
    case SCOPE_LEASES:
    case SCOPE_JOBS:
    case SCOPE_LIST:
    case SCOPE_SERVER:
        return way_of_several(s, c, words, count);
    case SCOPE_CLIENT:
        return way_of_client(h, words, count);
    }
    return way_to(h, h->loop);
}

// A remote session is where it has to be.
static struct way way_of(const struct session *s, const struct command *c, const mr_bytes *words,
                         uint32_t count) {
    const struct host *h = s->host;
    if (!c || count - 1 < c->least || !h->shards || s->remote)
        return way_to(h, h->loop);
    return way_of_scope(s, c, words, count);
}

// What is queued behind MULTI is answered here.
bool router_must_wait(struct session *s, const mr_bytes *words, uint32_t count) {
    const struct command *c = command_row(words[0]);
    if (!s->route)
        return false;
    struct remote *r = s->route;
    struct way way =
        multi_queues(s, c) ? way_to(s->host, s->host->loop) : way_of(s, c, words, count);
    bool same = way.kind == WAY_LOOP && way.loop == r->there;
    if (same && r->under_way < MOST_UNDER_WAY && r->bytes_under_way < MOST_BYTES_UNDER_WAY)
        return false;
    return true;
}

static bool is_in_exec(const struct session *s) {
    return multi_is_running(s);
}

bool router_is_here(struct session *s, const struct command *c, const mr_bytes *words,
                    uint32_t count) {
    struct way way = way_of(s, c, words, count);
    if (way.kind == WAY_HERE)
        return true;
    if (way.kind == WAY_GATHER || is_in_exec(s)) {
        gather_begin(s, c, words, count, way.kind == WAY_LOOP ? &way.loop : NULL);
        return false;
    }
    if (c->scope == SCOPE_STAGES)
        gather_note_take(s, words, count);
    struct remote *r = remote_get(s, way.loop);
    if (r && remote_request(r, words, count) == 0) {
        s->route = r;
        s->forwarded = true;
    }
    return false;
}

// ---- For gather.c -----------------------------------------------------------------------------

int router_ask(struct session *s, uint32_t loop, const mr_bytes *words, uint32_t count,
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
    struct mail *m = mail_of(MAIL_UNBLOCK, r);
    if (m)
        post(r->loops, r->there, m); // without memory it waits as long as it was to
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

// Once is enough.
static void post_closed(struct remote *r, bool at_once) {
    struct mail *m = r->closed;
    r->closed = NULL;
    if (!m)
        return;
    m->count = at_once;
    post(r->loops, r->home, m);
}

void router_cut_off(struct session *s) {
    struct remote *r = s->remote;
    remote_close(r);
    post_closed(r, true);
}

// Replies that may be shown and were not sent yet. False: there is no memory for them.
static bool ship_replies(struct session *s, struct remote *r) {
    mr_bytes ready = session_ready(s);
    size_t more = ready.size - r->shipped;
    if (!more && s->ended == r->shipped_ended)
        return true;
    struct mail *m = mail_of(MAIL_REPLIES, r);
    if (!m ||
        (more && buffer_append(&m->bytes, (const uint8_t *)ready.data + r->shipped, more) < 0)) {
        mail_free(m);
        return false;
    }
    m->count = s->released_replies - r->shipped_replies;
    m->work = (struct remote_work){ session_leases(s), s->async_count, s->taken, s->ended };
    r->shipped = ready.size;
    r->shipped_replies = s->released_replies;
    r->shipped_ended = s->ended;
    post(r->loops, r->home, m);
    return true;
}

void router_ship(struct session *s) {
    struct remote *r = s->remote;
    bool shipped = !s->broken && ship_replies(s, r);
    if (shipped && !(s->closing && session_unsent(s) == r->shipped))
        return; // when the client's input has ended, commands of it may still follow
    remote_close(r);
    post_closed(r, false);
}

// Once it has ended there is no other: a command must not run if one before it did not.
static void identity_set(struct host *h, struct remote *r, const struct identity *i) {
    if (r->is_over)
        return;
    if (!r->session) {
        if (session_create(h, &r->session) < 0)
            return;
        h->connections--; // it is the connection's
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

static void requests_come(struct remote *r, struct mail *m) {
    struct session *s = r->session;
    if (!s) {
        post_closed(r, false);
        return;
    }
    router_end_reservation(s); // of a TAKE that was refused
    s->reserved = m->reserved;
    m->reserved = NULL;
    session_feed(s, m->bytes.data, m->bytes.size);
}

static void bytes_were_sent(struct remote *r, size_t size) {
    if (!r->session)
        return;
    r->shipped -= size;
    session_sent(r->session, size);
}

static void remote_unblock_take(struct session *s) {
    if (s && take_waits(s))
        wait_time_out(s);
}

static void end_comes(struct remote *r) {
    remote_close(r);
    struct mail *ended = r->ended;
    r->ended = NULL;
    post(r->loops, r->home, ended);
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

static void replies_come(struct remote *r, struct mail *m) {
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
        gather_receive(s, r->there, buffer_bytes(&m->bytes));
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

// A reply that is under way will not come. The client of a front waits for just that one.
static void remote_has_closed(struct remote *r, bool at_once) {
    if (!r->client)
        return;
    r->client->broken = r->client->broken || at_once || r->client->front;
    session_close(r->client);
}

// ---- Receiving --------------------------------------------------------------------------------

// False: there is no memory for it now; it comes again.
static bool message_comes(struct host *h, const struct message *m) {
    struct shard *to = h->parts[m->to].shard;
    return peers_receive(shard_peers(to), m) >= 0;
}

static bool open_mail(struct host *h, struct mail *m) {
    struct remote *r = m->remote;
    switch (m->kind) {
    case MAIL_IDENTITY:
        identity_set(h, r, m->identity);
        break;
    case MAIL_HOLDS:
        if (r->session)
            holds_merge(&r->session->holds, m->holds);
        break;
    case MAIL_REQUESTS:
        requests_come(r, m);
        break;
    case MAIL_SENT:
        bytes_were_sent(r, m->count);
        break;
    case MAIL_UNBLOCK:
        remote_unblock_take(r->session);
        break;
    case MAIL_END:
        end_comes(r);
        break;
    case MAIL_REPLIES:
        replies_come(r, m);
        break;
    case MAIL_CLOSED:
        remote_has_closed(r, m->count);
        break;
    case MAIL_ENDED:
        remote_free(r);
        break;
    case MAIL_MESSAGE:
        return message_comes(h, m->message);
    case MAIL_RUN:
        m->run(h, m->arg);
        break;
    }
    return true;
}

static struct mail *next_mail(struct inbox *in) {
    pthread_mutex_lock(&in->lock);
    struct list *l = list_first(&in->mails);
    if (l)
        list_remove(l);
    pthread_mutex_unlock(&in->lock);
    return l ? list_entry(l, struct mail, of_inbox) : NULL;
}

// One that comes again is still the first.
static void put_back(struct inbox *in, struct mail *m) {
    pthread_mutex_lock(&in->lock);
    list_append(in->mails.next, &m->of_inbox); // before the first
    pthread_mutex_unlock(&in->lock);
}

bool router_receive(struct host *h) {
    struct inbox *in = &h->loops->inboxes[h->loop];
    bool any = false;
    for (struct mail *m; (m = next_mail(in)) != NULL; any = true) {
        if (open_mail(h, m)) {
            mail_free(m);
            continue;
        }
        put_back(in, m);
        h->messages_rest = true;
        break;
    }
    return any;
}
