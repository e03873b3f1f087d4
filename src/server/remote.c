// Remote sessions, in the loop of their shards. See remote.h.
#include "server/remote.h"

#include "base/mem.h"
#include "base/mutant.h"
#include "server/gather.h"
#include "shard/peers.h"

#include <string.h>

// ---- Ends -------------------------------------------------------------------------------------

static void remote_destroy_session(struct remote *r) {
    if (!r->session)
        return;
    host_begin(r->session->host);
    if (r->gives_back)
        session_give_back(r->session);
    session_destroy(r->session);
    r->session = NULL;
}

static void remote_close(struct remote *r) {
    r->is_over = true;
    remote_destroy_session(r);
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

// The session ends, and may be made again elsewhere. Without memory for the message the connection
// is closed.
static void remote_move(struct remote *r) {
    struct loop_message *m = loop_message_create(LOOP_MOVED, r);
    remote_destroy_session(r);
    r->sent_replies = r->sent_ended = 0;
    r->has_moved = true;
    if (m)
        loop_send(r->loops, r->client_loop, m);
    else
        send_closed(r, true);
}

// Whether the session holds nothing that ends with it, and everything that it has run was answered:
// a TAKE that waits, and commands behind it, were not run.
static bool is_movable(const struct session *s, const struct remote *r) {
    const struct conn *conn = &s->shard_conns[0].conn;
    return !conn->lease_count && !s->async_count && list_empty(&s->ended_calls) &&
           !s->holds.count && !s->holds.over && !conn->gap_count && !conn->gaps_over &&
           (!s->wait.kind || take_waits(s)) && s->replies == r->sent_replies &&
           !session_unsent(s) && !s->broken && !s->closing;
}

void remotes_leave(struct host *h, bool at_once) {
    for (struct list *l = h->sessions.next, *next; l != &h->sessions; l = next) {
        struct session *s = list_entry(l, struct session, of_host);
        struct remote *r = s->remote;
        next = l->next;
        if (is_movable(s, r)) {
            remote_move(r);
            continue;
        }
        remote_close(r);
        send_closed(r, at_once);
    }
}

// ---- Replies ----------------------------------------------------------------------------------

// Sends replies that were released and not sent yet. False: there is no memory for them.
static bool send_replies(struct session *s, struct remote *r) {
    mr_bytes ready = session_ready(s);
    if (!ready.size && s->ended == r->sent_ended)
        return true;
    struct loop_message *m = loop_message_create(LOOP_REPLIES, r);
    if (!m || (ready.size && buffer_append(&m->bytes, ready.data, ready.size) < 0)) {
        loop_message_free(m);
        return false;
    }
    m->count = s->released_replies - r->sent_replies;
    m->work =
        (struct remote_work){ session_leases(s), s->async_count, s->taken, s->ended,
                              s->holds.count || s->holds.over || s->shard_conns[0].conn.gap_count };
    session_pass_on(s, ready.size);
    r->sent_replies = s->released_replies;
    r->sent_ended = s->ended;
    loop_send(r->loops, r->client_loop, m);
    return true;
}

void router_send_replies(struct session *s) {
    struct remote *r = s->remote;
    bool sent = !s->broken && send_replies(s, r);
    if (sent && !(s->closing && !session_unsent(s)))
        return; // after the end of the client's input, commands that arrived before it may follow
    remote_close(r);
    send_closed(r, false);
}

// ---- Messages ---------------------------------------------------------------------------------

static int remote_make(struct host *h, struct remote *r) {
    r->has_moved = false;
    int err = session_create(h, &r->session);
    if (err < 0)
        return err;
    h->connections--; // the connection was counted in its own loop
    r->session->remote = r;
    return 0;
}

// No second session is created after the first has ended: a command must not run if an earlier one
// did not.
static void identity_set(struct host *h, struct remote *r, const struct loop_message *m) {
    const struct identity *i = m->identity;
    if (r->is_over || (r->has_moved && !m->count))
        return;
    if (!r->session && h->is_leaving) { // one that is there stays until the shard has left
        remote_move(r);
        return;
    }
    if (!r->session && remote_make(h, r) < 0)
        return;
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
    if (r->has_moved)
        return; // they are sent again
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
    if (r->session && size <= r->session->unacked)
        session_acked(r->session, size);
}

static void remote_unblock_take(struct session *s) {
    if (s && take_waits(s))
        wait_time_out(s);
}

static void remote_return(struct session *s, uint64_t jobs) {
    for (uint32_t i = s->host->first; i < s->host->end; i++)
        core_give_back_last(s->host->parts[i].core, &shard_conn_at(s, i)->conn,
                            MUTANT(surplus_not_given_back) ? 0 : jobs);
}

static void remote_receive_end(struct remote *r) {
    remote_close(r);
    struct loop_message *ended = r->ended;
    r->ended = NULL;
    loop_send(r->loops, r->client_loop, ended);
}

void remote_handle(struct host *h, struct loop_message *m) {
    struct remote *r = m->remote;
    switch (m->kind) {
    case LOOP_IDENTITY:
        identity_set(h, r, m);
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
    case LOOP_RETURN:
        if (r->session)
            remote_return(r->session, m->count);
        break;
    case LOOP_GIVE_BACK:
        r->gives_back = true; // also what it takes until its end arrives
        if (r->session)
            session_give_back(r->session);
        break;
    case LOOP_END:
        remote_receive_end(r);
        break;
    case LOOP_REPLIES:
    case LOOP_CLOSED:
    case LOOP_MOVED:
    case LOOP_ENDED:
    case LOOP_SHARD_MESSAGE:
    case LOOP_RUN:
        break; // router_receive handles them
    }
}
