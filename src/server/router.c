// The side of the connection: which loop runs a command, requests to its remote sessions, and their
// replies. See router.h and remote.h.
#include "server/router.h"

#include "base/errors.h"
#include "base/hints.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "server/answer.h"
#include "server/budget.h"
#include "server/command.h"
#include "server/gather.h"
#include "server/node_link.h"
#include "server/remote.h"
#include "wire/number.h"
#include "wire/request.h"

#include <assert.h>
#include <string.h>

enum {
    MOST_UNDER_WAY = 1024,          // requests that a connection has in another loop …
    MOST_BYTES_UNDER_WAY = 4 << 20, // … and bytes of them, after which it waits for the replies
    KEPT_IDLE = 4 << 10,            // bytes of a buffer for requests while there are none
    ACK_LEAST = LIMIT_UNSENT_PAUSE / 4 // bytes of replies, unless requests go to the same loop
};

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

struct remote *remote_create(struct loops *loops, uint32_t client_loop, uint32_t shard_loop) {
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
    r->loops = loops;
    r->client_loop = client_loop;
    r->shard_loop = shard_loop;
    list_init(&r->of_outgoing);
    list_init(&r->of_link);
    return r;
}

void remote_free(struct remote *r) {
    list_remove(&r->of_outgoing);
    list_remove(&r->of_link);
    buffer_finish(&r->requests);
    buffer_finish(&r->kept);
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
        s->remotes[shard_loop] = remote_create(s->host->loops, s->host->loop, shard_loop);
    if (s->remotes && s->remotes[shard_loop]) {
        s->remotes[shard_loop]->client = s;
        return s->remotes[shard_loop];
    }
    s->broken = true;
    session_touch(s);
    return NULL;
}

static void send_later(struct remote *r) {
    if (list_empty(&r->of_outgoing))
        list_append(&r->client->host->outgoing, &r->of_outgoing);
}

// In a cluster requests may wait for long, so they count as memory of their connection.
static void count_requests(struct remote *r) {
    size_t now = r->requests.capacity + r->kept.capacity;
    if (!r->loops->is_cluster || now == r->counted)
        return;
    session_hold(r->client, now - r->counted);
    r->counted = now;
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
    r->request_count++;
    r->bytes_under_way += r->requests.size - before;
    count_requests(r);
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

// To the remote session, wherever it is.
static void remote_post(struct remote *r, struct loop_message *m) {
    if (!r->link) {
        loop_send(r->loops, r->shard_loop, m);
        return;
    }
    node_link_send(r->link, r->id, m);
    loop_message_free(m);
}

static bool remote_post_count(struct remote *r, enum loop_message_kind kind, uint64_t count) {
    struct loop_message *m = loop_message_create(kind, r);
    if (!m)
        return false;
    m->count = count;
    remote_post(r, m);
    return true;
}

// In a cluster: whether the shard is where a session can be made for the connection.
static bool place_is_ready(const struct loops *l, uint32_t loop) {
    enum shard_place at = l->places[loop].at;
    return !l->is_cluster || at == PLACE_HERE ||
           (at == PLACE_ON_NODE && node_link_is_ready(l->places[loop].link));
}

static void choose_place(struct remote *r) {
    const struct loops *l = r->loops;
    if (l->is_cluster && l->places[r->shard_loop].at == PLACE_ON_NODE)
        node_link_add(l->places[r->shard_loop].link, r);
}

static void answer_empty(struct remote *);

// A shard moves while a TAKE asks it for jobs: jobs of other shards do not wait until it has an
// owner again.
static bool skip_moving_shard(struct remote *r) {
    bool ready = place_is_ready(r->loops, r->shard_loop);
    if (!r->loops->is_cluster || r->is_made || !gather_does_without(r->client, ready))
        return false;
    answer_empty(r);
    return true;
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
    if (!r->is_made)
        choose_place(r);
    *m->identity = now;
    m->count = !r->is_made;
    bool gives_back = !r->is_made && r->client->gives_back;
    r->known = now;
    r->is_made = true;
    remote_post(r, m);
    return !gives_back || remote_post_count(r, LOOP_GIVE_BACK, 0);
}

static bool send_holds(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_HOLDS, r);
    m = m && (m->holds = mem_alloc(sizeof *m->holds)) ? m : (loop_message_free(m), NULL);
    if (!m)
        return false;
    *m->holds = r->holds;
    r->holds = (struct holds){ 0 };
    r->has_held = true;
    remote_post(r, m);
    return true;
}

// In a cluster requests are kept until they have replies: a shard that leaves does not run them.
static int keep_requests(struct remote *r) {
    if (!r->loops->is_cluster)
        return 0;
    r->kept_count += r->request_count;
    return buffer_append(&r->kept, r->requests.data, r->requests.size);
}

static bool send_requests(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_REQUESTS, r);
    if (!m || keep_requests(r) < 0) {
        loop_message_free(m);
        return false;
    }
    m->bytes = r->requests;
    r->requests = (struct buffer){ 0 };
    r->request_count = 0;
    m->reserved = r->reserved;
    r->reserved = NULL;
    count_requests(r);
    remote_post(r, m);
    return true;
}

static bool send_ack(struct remote *r) {
    if (!remote_post_count(r, LOOP_SENT, r->to_ack))
        return false;
    r->to_ack = 0;
    return true;
}

// Without memory for a message the session ends, which closes its connection.
static void remote_send(struct remote *r) {
    if (r->client->broken)
        return; // its connection is closed, and what it has taken was given back
    if (r->request_count && skip_moving_shard(r))
        return;
    if (!r->is_made && !place_is_ready(r->loops, r->shard_loop)) {
        list_append(&r->client->host->parked, &r->of_outgoing);
        return;
    }
    bool holds = r->holds.count || r->holds.over;
    // A front sends nothing until it has all replies to a request, which are few.
    bool reads = r->client->front || !session_is_paused(r->client);
    bool acks = reads && r->to_ack && (r->requests.size || r->to_ack >= ACK_LEAST);
    if (send_identity(r) && (!holds || send_holds(r)) && (!acks || send_ack(r)) &&
        (!r->requests.size || send_requests(r)))
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

void router_place_changed(struct host *h) {
    for (struct list *l; (l = list_first(&h->parked)) != NULL;) {
        list_remove(l);
        list_append(&h->outgoing, l);
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
            loops_wake(l, i);
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

// Ends a TAKE, which may wait for the place of its shard. Without memory for the message it waits
// until its timeout.
static void remote_unblock(struct remote *r) {
    if (r->is_made)
        (void)remote_post_count(r, LOOP_UNBLOCK, 0);
    else
        answer_empty(r);
}

bool router_unblock(struct session *s) {
    if (!s->taking)
        return false;
    router_send(s->host);
    if (s->gather)
        gather_cancel(s);
    else if (s->route && s->route->under_way)
        remote_unblock(s->route);
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

// Of a session on another node nothing is left here.
static void remote_end(struct remote *r) {
    struct loop_message *end = r->end;
    r->end = NULL;
    if (r->is_made && !r->link) {
        loop_send(r->loops, r->shard_loop, end);
        return;
    }
    if (r->is_made) {
        node_link_send(r->link, r->id, end);
        node_link_remove(r->link, r);
    }
    loop_message_free(end);
    remote_free(r);
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
        remote_end(r);
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

static struct destination destination_of_shard(const struct host *h, mr_bytes word) {
    uint64_t shard;
    if (number_parse(word, &shard) < 0 || shard >= h->shards)
        return destination_loop(h, h->loop);
    return destination_loop(h, loop_of_shard(h->loops, h->shards, (uint32_t)shard));
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
        if (h->stopping && h->loops->is_cluster)
            return destination_loop(h, h->loop); // no job starts for its clients: TAKE waits
        return destination_of_several(s, c, words, count);
    case SCOPE_LEASES:
    case SCOPE_JOBS:
    case SCOPE_LIST:
    case SCOPE_SERVER:
        return destination_of_several(s, c, words, count);
    case SCOPE_CLIENT:
        return destination_of_client(h, words, count);
    case SCOPE_SHARD:
        return destination_of_shard(h, words[1]);
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
    if (s->taking && s->host->loops->is_cluster && c && c->scope == SCOPE_STAGES)
        return true; // one end of a TAKE is noted
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
    list_remove(&r->of_outgoing);
    remote_send(r);
    remote_unblock(r);
}

void router_return(struct session *s, uint32_t loop, uint64_t jobs) {
    struct remote *r = s->remotes[loop];
    if (r->is_made && !remote_post_count(r, LOOP_RETURN, jobs)) {
        s->broken = true; // they go back with the connection
        session_touch(s);
    }
}

bool router_is_reachable(const struct session *s, uint32_t loop) {
    const struct remote *r = s->remotes ? s->remotes[loop] : NULL;
    return loop == s->host->loop || (r && r->is_made) || place_is_ready(s->host->loops, loop);
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

// So many more have replies. Large buffers are not kept for the next requests.
static void forget_requests(struct remote *r, uint64_t replies) {
    r->kept_replies += replies;
    if (r->kept_replies < r->kept_count)
        return;
    r->kept_replies = r->kept_count = 0;
    if (r->kept.capacity > KEPT_IDLE)
        buffer_finish(&r->kept);
    else
        buffer_clear(&r->kept);
    count_requests(r);
}

static void accept_replies(struct remote *r, uint64_t count, mr_bytes bytes) {
    struct session *s = r->client;
    r->under_way -= count;
    if (r->loops->is_cluster)
        forget_requests(r, count);
    if (s->gather) {
        if (!r->under_way)
            r->bytes_under_way = 0;
        gather_receive(s, r->shard_loop, bytes);
        return;
    }
    struct reply *reply = session_reply(s);
    if (!reply->err)
        reply->err = buffer_append(&s->out, bytes.data, bytes.size);
    s->replies += count;
    session_touch(s);
    if (s->route == r && !r->under_way)
        routed_all(s);
}

static void remote_receive_replies(struct remote *r, struct loop_message *m) {
    if (!r->client || m->count > r->under_way)
        return;
    r->work = m->work;
    r->to_ack += m->bytes.size;
    if (r->to_ack >= ACK_LEAST)
        send_later(r);
    accept_replies(r, m->count, buffer_bytes(&m->bytes));
}

// Whether the first of the requests that this loop has written is a TAKE.
static bool begins_with_take(const struct buffer *requests) {
    static const char size_of_name[] = { '$', '4', '\r', '\n' };
    const char *at = (const char *)requests->data, *end = at + requests->size;
    at = memchr(at, '\n', requests->size); // of the number of its words
    return at && end - at > 8 && memcmp(at + 1, size_of_name, sizeof size_of_name) == 0 &&
           word_is((mr_bytes){ at + 5, 4 }, "TAKE");
}

// If the only request is a TAKE that was not sent yet, it will not be.
static void answer_empty(struct remote *r) {
    if (r->under_way != 1 || r->request_count != 1 || !begins_with_take(&r->requests))
        return;
    uint64_t replies = r->kept_replies; // this request was not kept
    buffer_finish(&r->requests);
    r->request_count = 0;
    accept_replies(r, 1, mr_str("*0\r\n"));
    r->kept_replies = replies;
}

// A connection that loses its session in one shard is closed, by no fault of its own: jobs that it
// has taken from other shards go back without a counted attempt.
static void give_back_others(struct session *s, const struct remote *lost) {
    s->gives_back = s->host->loops->is_cluster;
    for (uint32_t i = 0; s->host->loops->is_cluster && i < s->host->loops->count; i++)
        if (s->remotes[i] && s->remotes[i] != lost && s->remotes[i]->is_made &&
            !MUTANT(leases_of_lost_node_count))
            (void)remote_post_count(s->remotes[i], LOOP_GIVE_BACK, 0); // else they count an attempt
}

void router_give_back(struct session *s) {
    if (s->remotes)
        give_back_others(s, NULL);
}

// Replies that are under way are lost. The client of a front waits for one, so its connection is
// closed at once.
static void remote_has_closed(struct remote *r, bool at_once) {
    struct session *s = r->client;
    if (!s)
        return;
    give_back_others(s, r);
    s->broken = s->broken || at_once || s->front || s->gather;
    if (s->route == r)
        s->route = NULL; // its replies will not come
    session_close(s);
}

// ---- Shards that move, and links that are lost --------------------------------------------------

// The offset behind so many requests.
static size_t skip_requests(const struct host *h, struct buffer *b, uint64_t count) {
    struct request reader = { 0 };
    size_t at = 0;
    uint32_t words;
    for (; count; count--) {
        ptrdiff_t used = request_read(&reader, &h->request_limits, b->data + at, b->size - at,
                                      h->arguments, &words);
        assert(used > 0); // this loop has written them
        at += (size_t)used;
    }
    return at;
}

// Has requests without a reply sent again, before those that were not sent yet.
static int request_again(struct remote *r) {
    struct buffer again = { 0 };
    size_t at = skip_requests(r->client->host, &r->kept, r->kept_replies);
    int err = buffer_append(&again, r->kept.data + at, r->kept.size - at);
    if (err == 0 && r->requests.size && !MUTANT(requests_lost_in_a_move))
        err = buffer_append(&again, r->requests.data, r->requests.size);
    if (err < 0) {
        buffer_finish(&again);
        return err;
    }
    buffer_finish(&r->requests);
    r->requests = again;
    r->request_count += r->kept_count - r->kept_replies;
    r->kept_count = r->kept_replies = 0;
    buffer_finish(&r->kept);
    count_requests(r);
    return 0;
}

static void remote_unmake(struct remote *r) {
    node_link_remove(r->link, r);
    r->is_made = false;
    r->work = (struct remote_work){ 0 };
    r->to_ack = 0;
}

// The loop of the shards may still have messages that name the struct, so it ends as if the
// connection had, and another one takes its place. NULL: no memory.
static struct remote *remote_replace(struct remote *r) {
    struct session *s = r->client;
    struct remote *next = remote_create(r->loops, r->client_loop, r->shard_loop);
    if (!next)
        return NULL;
    next->client = s;
    next->kept = r->kept;
    next->kept_count = r->kept_count;
    next->kept_replies = r->kept_replies;
    next->requests = r->requests;
    next->request_count = r->request_count;
    next->under_way = r->under_way;
    next->bytes_under_way = r->bytes_under_way;
    next->holds = r->holds;
    next->has_held = r->has_held;
    next->counted = r->counted;
    r->kept = r->requests = (struct buffer){ 0 };
    list_remove(&r->of_outgoing);
    s->remotes[r->shard_loop] = next;
    if (s->route == r)
        s->route = next;
    r->client = NULL;
    remote_end(r);
    return next;
}

// The session is made anew where the shard is by then.
static void remote_has_moved(struct remote *r) {
    struct session *s = r->client;
    if (!s)
        return; // its end was sent
    if (r->link && r->link == r->loops->places[r->shard_loop].link)
        r->loops->on_moved(r->loops->arg, r->shard_loop, false);
    if (r->link)
        remote_unmake(r);
    else
        r = remote_replace(r);
    if (!r) {
        s->broken = true;
        session_touch(s);
        return;
    }
    if (r->has_held || (r->kept_count > r->kept_replies && request_again(r) < 0)) {
        r->client->broken = true;
        session_touch(r->client);
        return;
    }
    if (r->under_way)
        send_later(r);
}

bool router_uses(const struct session *s, uint32_t loop) {
    return s->remotes && s->remotes[loop] && s->remotes[loop]->is_made;
}

void router_lost_link(struct remote *r) {
    struct session *s = r->client;
    const struct remote_work *w = &r->work;
    bool holds =
        r->under_way > r->request_count || w->leases || w->async_calls || w->holds || r->has_held;
    if (!holds) {
        remote_has_moved(r);
        return;
    }
    remote_unmake(r);
    give_back_others(s, r);
    s->broken = true;
    session_touch(s);
}

// From a session that works for a connection of another node.
static void pass_back(struct remote *r, struct loop_message *m) {
    bool is_last = m->kind == LOOP_MOVED && r->end; // the other node ends it no more
    node_link_send(r->from, r->id, m);
    if (is_last)
        node_link_end_remote(r->from, r);
}

// ---- Receiving --------------------------------------------------------------------------------

// False: there is no memory for it now; it is handled again later.
static bool receive_shard_message(struct host *h, const struct message *m) {
    struct shard *to = h->parts[m->to].shard;
    return peers_receive(shard_peers(to), m) >= 0;
}

void router_handle(struct host *h, struct loop_message *m) {
    struct remote *r = m->remote;
    if (m->kind == LOOP_RUN) {
        m->drop = NULL;
        m->run(h, m->arg);
    } else if (m->kind == LOOP_ENDED)
        remote_free(r);
    else if (r->from)
        pass_back(r, m);
    else if (m->kind == LOOP_REPLIES)
        remote_receive_replies(r, m);
    else if (m->kind == LOOP_CLOSED)
        remote_has_closed(r, m->count);
    else if (m->kind == LOOP_MOVED)
        remote_has_moved(r);
}

// The loop has ended before it could make the session.
static void remote_was_not_made(struct remote *r) {
    struct loop_message moved = { .kind = LOOP_MOVED, .remote = r };
    if (r->from)
        pass_back(r, &moved);
    else
        remote_has_moved(r);
}

// The loop has ended, and with it the sessions in it. A message between shards may be lost: they
// send it again (shard/peers.h).
static void handle_undelivered(struct host *h, struct loop_message *m) {
    const struct loops *l = h->loops;
    if (m->kind == LOOP_END)
        remote_free(m->remote);
    else if (m->kind == LOOP_IDENTITY && m->count)
        remote_was_not_made(m->remote);
    else if (m->kind == LOOP_SHARD_MESSAGE && l->places[m->loop].at == PLACE_ON_NODE &&
             node_link_is_ready(l->places[m->loop].link))
        node_link_send(l->places[m->loop].link, 0, m);
}

static bool loop_message_handle(struct host *h, struct loop_message *m) {
    if (m->loop != h->loop)
        handle_undelivered(h, m);
    else if (m->kind == LOOP_SHARD_MESSAGE)
        return receive_shard_message(h, m->message);
    else if (m->kind < LOOP_REPLIES)
        remote_handle(h, m);
    else
        router_handle(h, m);
    return true;
}

static void inbox_take(struct inbox *in, struct list *out) {
    pthread_mutex_lock(&in->lock);
    list_append_all(out, &in->messages);
    pthread_mutex_unlock(&in->lock);
}

// These messages are handled again later, before all others.
static void inbox_put_back(struct inbox *in, struct list *messages) {
    pthread_mutex_lock(&in->lock);
    list_append_all(messages, &in->messages);
    list_append_all(&in->messages, messages);
    pthread_mutex_unlock(&in->lock);
}

static void router_follow_backup(struct host *h) {
    if (atomic_load_explicit(&h->backup->number, memory_order_acquire) != h->backup_seen)
        backup_catch_up(h);
}

bool router_receive(struct host *h) {
    struct inbox *in = &h->loops->inboxes[h->loop];
    struct list messages = { 0 };
    router_follow_backup(h);
    inbox_take(in, &messages);
    bool any = !list_empty(&messages);
    for (struct list *l; (l = list_first(&messages)) != NULL;) {
        struct loop_message *m = list_entry(l, struct loop_message, of_inbox);
        router_follow_backup(h);
        if (!loop_message_handle(h, m)) {
            inbox_put_back(in, &messages);
            h->messages_delayed = true;
            break;
        }
        list_remove(l);
        loop_message_free(m);
    }
    return any;
}
