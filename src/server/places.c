// See places.h.
#include "server/places.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "log/stream.h"
#include "server/loop.h"
#include "server/node_link.h"
#include "server/notice.h"
#include "shard/group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NODES_MOST = 64,      // as many as a set of bits has
    TEND_MS = 1000,       // between looks at links
    DIAL_MS = 3000,       // for a connection and the reply to LINK
    DIAL_AGAIN_MS = 500,  // after it has failed
    FORMER_LINK_MS = 3000 // for the last messages of a node that had the shard before
};

// Another node.
struct other_node {
    struct other_nodes *all;
    char address[NODE_ADDRESS];
    struct node_link *link; // NULL: none
    uint64_t tried_ms;
};

struct other_nodes {
    struct server *server;
    struct other_node nodes[NODES_MOST];
    uint32_t count;
    struct {
        struct other_node *node; // that owns it; NULL: this one, or none
        uint64_t former;         // bit n: nodes[n] had it before, until `former_ms`
        uint64_t former_ms;
        bool is_refused; // there is no room for its owner
    } of[LOOPS_MOST];
};

struct opening {
    uv_work_t work;
    struct loop *loop;
    uint32_t shard;
    uint64_t epoch;
    char owner[STREAM_OWNER];
    int err;
    char text[512];
};

static uint32_t shard_of_loop(const struct loop *v) {
    return v->index - 1;
}

static void report_event(struct server *server, uint32_t shard, enum shard_event event, int err,
                         const char *text) {
    const struct server_cluster *c = server->options.cluster;
    c->changed(c->arg, shard, event, err, text);
}

static uint64_t node_bit(const struct other_node *n) {
    return UINT64_C(1) << (n - n->all->nodes);
}

// Sessions on the nodes that had it before end soon, unless they have moved by then.
static void place_set_node(struct other_nodes *all, uint32_t loop, struct other_node *n) {
    struct other_node *before = all->of[loop].node;
    if (before && before != n) {
        all->of[loop].former |= node_bit(before);
        all->of[loop].former_ms = monotonic_ms() + FORMER_LINK_MS;
    }
    if (n)
        all->of[loop].former &= ~node_bit(n);
    all->of[loop].node = n;
}

// ---- Messages between shards --------------------------------------------------------------------

static void place_reset_peer(struct host *h, void *shard) {
    uint32_t other = (uint32_t)(uintptr_t)shard;
    if (h->first < h->end && h->first != other)
        peers_reset(shard_peers(h->parts[h->first].shard), other);
}

// A shard is elsewhere now: what was sent to it may not have arrived. If there is no memory for the
// message, the shards find out by themselves, later.
static void places_reset_peer(struct server *server, uint32_t loop) {
    for (uint32_t i = 1; i < server->loops.count; i++)
        if (i != loop && server->loop[i] && server->loop[i]->threaded)
            (void)loops_run(&server->loops, i, place_reset_peer, (void *)(uintptr_t)(loop - 1));
}

// A new owner begins anew with all others.
static void reset_own_peers(struct host *h, void *arg) {
    (void)arg;
    for (uint32_t i = 0; i < h->shards; i++)
        place_reset_peer(h, (void *)(uintptr_t)i);
}

static void place_is_reachable(struct server *server, uint32_t loop) {
    struct host *h = &server->loop[0]->host;
    host_begin(h);
    router_place_changed(h);
    places_reset_peer(server, loop);
    turn_plan(server->loop[0]);
}

// ---- Opening ------------------------------------------------------------------------------------

static void place_free_loop(struct server *server, struct loop *v) {
    server->loop[v->index] = NULL;
    loop_close_handles(v);
    loop_destroy(v);
}

static void opening_run(uv_work_t *work) {
    struct opening *o = work->data;
    struct server *server = o->loop->server;
    struct group_options options;
    server_group_options(server, o->loop, &options);
    options.shards = server->options.cluster->shards;
    options.is_one = true;
    options.one = o->shard;
    options.log.stream.expects_epoch = true;
    options.log.stream.expected_epoch = o->epoch;
    options.log.stream.expected_owner = o->owner;
    o->err = group_open(&options, &o->loop->group);
    if (o->err < 0)
        snprintf(o->text, sizeof o->text, "%s", error_text());
}

static int place_start_loop(struct loop *v) {
    struct auth *auth = v->server->loop[0]->host.auth;
    int err = auth ? auth_copy(auth, &v->host.auth) : 0;
    if (err == 0)
        err = host_load(&v->host, v->group);
    if (err < 0)
        return err;
    loop_set_fetch(v);
    return loop_start_thread(v);
}

static void on_opened(uv_work_t *work, int status) {
    struct opening *o = work->data;
    struct loop *v = o->loop;
    struct server *server = v->server;
    uint32_t shard = o->shard;
    (void)status; // it is never cancelled
    bool foreign = o->err == 0 && core_has_foreign_ids(shard_core(group_shard(v->group, shard)));
    if (o->err == 0 && (o->err = place_start_loop(v)) < 0) {
        snprintf(o->text, sizeof o->text, "%s", error_text());
        host_detach(&v->host);
        group_close(v->group);
    }
    if (o->err < 0) {
        loops_remove(&server->loops, v->index);
        place_free_loop(server, v);
        report_event(server, shard, SHARD_NOT_OPENED, o->err, o->text);
        if (server->stopping)
            turn_end(server->loop[0]);
    } else {
        if (foreign)
            server_set_foreign_ids(server);
        server->loops.places[v->index].at = PLACE_HERE;
        server->loops.places[v->index].link = NULL;
        place_set_node(server->links, v->index, NULL);
        (void)loops_run(&server->loops, v->index, reset_own_peers, NULL); // or they heal later
        place_is_reachable(server, v->index);
        report_event(server, shard, SHARD_SERVES, 0, "");
        if (server->stopping)
            (void)server_leave_shard(server, shard);
    }
    mem_free(o);
}

bool server_has_foreign_ids(const struct server *server) {
    return server->loop[0]->host.foreign_ids;
}

void server_set_foreign_ids(struct server *server) {
    server->loop[0]->host.foreign_ids = true;
}

static void refuse_opening(struct server *server, uint32_t shard) {
    char text[512];
    snprintf(text, sizeof text, "%s", error_text());
    report_event(server, shard, SHARD_NOT_OPENED, MR_ENOMEM, text);
}

void server_open_shard(struct server *server, uint32_t shard, const struct stream_state *seen) {
    if (server->loop[shard + 1] || server->stopping)
        return;
    struct opening *o = mem_alloc(sizeof *o);
    if (!o || loop_create(server, shard + 1) < 0) {
        if (server->loop[shard + 1]) {
            loops_remove(&server->loops, shard + 1);
            place_free_loop(server, server->loop[shard + 1]);
        }
        mem_free(o);
        refuse_opening(server, shard);
        return;
    }
    *o = (struct opening){ .loop = server->loop[shard + 1], .shard = shard, .epoch = seen->epoch };
    memcpy(o->owner, seen->owner, sizeof o->owner);
    o->work.data = o;
    (void)uv_queue_work(&server->loop[0]->uv, &o->work, opening_run,
                        on_opened); // it only fails without a callback
}

// ---- Leaving, in the loop of the shard ----------------------------------------------------------

// The timer may be due in the same round of timers in which the loop has left.
static void on_leave_over(uv_timer_t *timer) {
    struct loop *v = timer->data;
    if (v->leaving != LEAVES)
        return;
    uint64_t leases = host_leases(&v->host);
    if (leases)
        notice(NOTICE_WARN,
               "shard %" PRIu32
               " leaves; jobs that are still running go back to their channels: %" PRIu64,
               shard_of_loop(v), leases);
    v->leaving = GIVES_BACK;
    host_begin(&v->host);
    host_give_back(&v->host);
    v->host.is_paused = true;
    turn_end(v);
}

static void begin_leave(struct host *h, void *at_once) {
    struct loop *v = list_entry(h, struct loop, host);
    if (v->leaving >= GIVES_BACK)
        return;
    v->leaving = LEAVES;
    h->is_leaving = true;
    h->stopping = true; // no job starts; TAKE waits until the shard is elsewhere
    uint64_t ms = at_once ? 0 : (uint64_t)v->server->options.drain_ms;
    uv_timer_start(&v->leave_timer, on_leave_over, ms, 0);
}

static void note_gone(struct loop *v) {
    atomic_store(&v->gone, true);
    uv_stop(&v->uv);
    loops_wake(&v->server->loops, 0);
}

// Everything that was run is durable, and its replies were passed on.
static bool all_answered(struct loop *v) {
    struct host *h = &v->host;
    return list_empty(&h->held) && list_empty(&h->ready) && list_empty(&h->touched) &&
           host_durable_turn(h) == h->turn;
}

void place_leave_on(struct loop *v) {
    struct host *h = &v->host;
    if (v->leaving == LEAVES && host_leases(h) == 0) {
        v->leaving = GIVES_BACK;
        h->is_paused = true;
        turn_plan(v);
        return;
    }
    bool ready = v->leaving == GIVES_BACK && !v->fetching && (v->was_lost || all_answered(v));
    if (!ready)
        return;
    v->leaving = HAS_LEFT;
    remotes_leave(h, v->was_lost);
    host_detach(h);
    note_gone(v);
}

// Leases go back without a counted attempt; if another node owns the shard already, nothing of this
// is recorded.
void place_lost(struct loop *v) {
    struct host *h = &v->host;
    if (v->was_lost || v->leaving == HAS_LEFT)
        return;
    v->was_lost = true;
    host_begin(h);
    host_give_back(h);
    host_stop_changes(h, "the store was not reached for so long that another node may own it");
    snprintf(v->why_lost, sizeof v->why_lost, "%s", h->why_stopped);
    v->leaving = GIVES_BACK;
    h->is_leaving = h->stopping = h->is_paused = true;
    turn_plan(v);
}

// ---- Leaving, in the first loop -----------------------------------------------------------------

bool server_leave_shard(struct server *server, uint32_t shard) {
    uint32_t loop = shard + 1;
    enum shard_place at = server->loops.places[loop].at;
    if (at != PLACE_HERE || loops_run(&server->loops, loop, begin_leave, NULL) < 0)
        return at == PLACE_LEAVING;
    server->loops.places[loop].at = PLACE_LEAVING;
    return true;
}

void places_leave(struct server *server, bool at_once) {
    const struct server_cluster *c = server->options.cluster;
    if (!c)
        return;
    c->stopping(c->arg);
    for (uint32_t i = 0; i < c->shards; i++) {
        (void)server_leave_shard(server, i); // a second signal tries again
        if (at_once && server->loops.places[i + 1].at == PLACE_LEAVING)
            (void)loops_run(&server->loops, i + 1, begin_leave, server); // else its time ends it
    }
}

bool places_have_left(const struct server *server) {
    bool any = false;
    for (uint32_t i = 1; server->loops.is_cluster && i < server->loops.count; i++)
        any = any || server->loop[i];
    return !any;
}

static void closing_run(uv_work_t *work) {
    struct opening *o = work->data;
    group_close(o->loop->group);
}

// The next owner need not wait until it looks at the store.
static void notify_nodes(struct server *server, uint32_t loop) {
    struct host *h = &server->loop[0]->host;
    host_begin(h);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (session_serves_node(s))
            node_link_send_free(s, loop);
    }
}

static void on_group_closed(uv_work_t *work, int status) {
    struct opening *o = work->data;
    struct loop *v = o->loop;
    struct server *server = v->server;
    enum shard_event event = v->was_lost ? SHARD_LOST : SHARD_LEFT;
    (void)status;
    place_free_loop(server, v);
    if (event == SHARD_LEFT)
        notify_nodes(server, o->shard + 1);
    report_event(server, o->shard, event, event == SHARD_LOST ? MR_ESTOPPED : 0, o->text);
    mem_free(o);
    turn_end(server->loop[0]); // the server may stop now
}

// Closing waits for the store, so another thread does it.
static void place_collect(struct server *server, struct loop *v) {
    struct opening *o = mem_alloc(sizeof *o);
    if (!o) {
        loops_wake(&server->loops, 0); // tries again
        return;
    }
    pthread_join(v->thread, NULL);
    v->threaded = false;
    atomic_store(&v->gone, false);
    server->loops.places[v->index].at = PLACE_UNKNOWN;
    loops_remove(&server->loops, v->index);
    *o = (struct opening){ .loop = v, .shard = shard_of_loop(v) };
    snprintf(o->text, sizeof o->text, "%s", v->why_lost);
    o->work.data = o;
    (void)uv_queue_work(&server->loop[0]->uv, &o->work, closing_run,
                        on_group_closed); // it only fails without a callback
}

void places_collect(struct server *server) {
    for (uint32_t i = 1; server->loops.is_cluster && i < server->loops.count; i++)
        if (server->loop[i] && atomic_load(&server->loop[i]->gone))
            place_collect(server, server->loop[i]);
}

// ---- Replies of a shard that was lost -----------------------------------------------------------

static void lose_place(struct host *h, void *arg) {
    (void)arg;
    place_lost(list_entry(h, struct loop, host));
}

// Its loop closes these connections, too, but may not have had a turn yet.
static void place_break_sessions(struct host *h, uint32_t loop) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (router_uses(s, loop) || session_serves_node(s)) {
            s->broken = true;
            session_offer(s);
        }
    }
}

static void place_begin_loss(struct server *server, uint32_t loop) {
    struct loop *v = server->loop[loop];
    server->loops.places[loop].at = PLACE_LEAVING;
    place_break_sessions(&server->loop[0]->host, loop);
    // The store may answer before the shard's loop has a turn: the shard is lost all the same.
    if (!v->is_loss_sent)
        v->is_loss_sent = loops_run(&server->loops, loop, lose_place, NULL) == 0;
}

void places_give_up(struct server *server) {
    for (uint32_t i = 1; i < server->loops.count; i++)
        if (server->loop[i] && server->loops.places[i].at == PLACE_LEAVING)
            place_begin_loss(server, i);
}

void places_check(struct server *server) {
    uint64_t max_ms = server->options.max_unowned_ms, now_ms = monotonic_ms();
    for (uint32_t i = 1; i < server->loops.count; i++) {
        struct loop *v = server->loop[i];
        enum shard_place at = server->loops.places[i].at;
        if (!v || (at != PLACE_HERE && at != PLACE_LEAVING))
            continue;
        uint64_t owned_ms = shard_owned_ms(group_shard(v->group, i - 1));
        if (owned_ms == UINT64_MAX || now_ms < owned_ms + max_ms)
            continue;
        place_begin_loss(server, i);
    }
}

// ---- Other nodes --------------------------------------------------------------------------------

static struct other_node *other_node_find(struct other_nodes *all, const char *address) {
    for (uint32_t i = 0; i < all->count; i++)
        if (strcmp(all->nodes[i].address, address) == 0)
            return &all->nodes[i];
    return NULL;
}

static bool other_node_is_used(const struct other_nodes *all, const struct other_node *n) {
    bool used = n->link != NULL;
    for (uint32_t i = 0; i < LOOPS_MOST; i++)
        used = used || all->of[i].node == n || all->of[i].former & node_bit(n);
    return used;
}

// NULL: there are too many.
static struct other_node *other_node_add(struct other_nodes *all, const char *address) {
    struct other_node *n = other_node_find(all, address);
    for (uint32_t i = 0; !n && i < all->count; i++)
        n = other_node_is_used(all, &all->nodes[i]) ? NULL : &all->nodes[i];
    if (!n && all->count < NODES_MOST)
        n = &all->nodes[all->count++];
    if (!n || strcmp(n->address, address) == 0)
        return n;
    *n = (struct other_node){ .all = all };
    snprintf(n->address, sizeof n->address, "%s", address);
    return n;
}

static void on_link(void *arg, struct node_link *link, const char *why) {
    struct other_node *n = arg;
    struct server *server = n->all->server;
    bool ready = node_link_is_ready(link);
    if (!ready) {
        if (why && !server->stopping)
            notice(NOTICE_WARN, "no link to node %s: %s", n->address, why);
        n->link = NULL;
    }
    for (uint32_t i = 1; i < server->loops.count; i++) {
        if (!ready)
            n->all->of[i].former &= ~node_bit(n);
        if (n->all->of[i].node != n)
            continue;
        server->loops.places[i].link = n->link;
        if (ready)
            place_is_reachable(server, i);
    }
}

static void other_node_dial(struct other_node *n, uint64_t now_ms) {
    struct server *server = n->all->server;
    const struct host_node *node = server->options.node;
    struct node_place place;
    n->tried_ms = now_ms;
    if (!node_place_read(n->address, &place))
        return;
    struct node_link_hello hello = { .secret = node->secret,
                                     .cluster = node->cluster,
                                     .node = node->address,
                                     .shards = server->options.cluster->shards };
    if (connection_dial(server->loop[0], place.host, place.port, &hello, &n->link) < 0) {
        notice(NOTICE_WARN, "no link to node %s: %s", n->address, error_text());
        return;
    }
    node_link_watch(n->link, on_link, n);
    for (uint32_t i = 1; i < server->loops.count; i++)
        if (n->all->of[i].node == n)
            server->loops.places[i].link = n->link;
}

static bool other_node_owns(const struct other_nodes *all, const struct other_node *n) {
    bool owns = false;
    for (uint32_t i = 0; i < LOOPS_MOST; i++)
        owns = owns || all->of[i].node == n;
    return owns;
}

static void other_node_tend(struct other_node *n, uint64_t now_ms) {
    bool owns = other_node_owns(n->all, n);
    if (!n->link && owns && now_ms - n->tried_ms >= DIAL_AGAIN_MS)
        other_node_dial(n, now_ms);
    else if (n->link && !node_link_is_ready(n->link) && now_ms - n->tried_ms >= DIAL_MS)
        node_link_end(n->link);
}

static void reset_former(struct other_nodes *all, uint32_t loop) {
    uint64_t former = all->of[loop].former;
    all->of[loop].former = 0;
    for (uint32_t i = 0; i < all->count; i++)
        if (former & node_bit(&all->nodes[i]) && all->nodes[i].link)
            node_link_reset(all->nodes[i].link, loop);
}

static void tend_links(struct server *server) {
    struct other_nodes *all = server->links;
    uint64_t now_ms = monotonic_ms();
    const struct host *h = &server->loop[0]->host;
    host_begin(&server->loop[0]->host);
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next)
        node_link_tick(list_entry(l, struct session, of_host), now_ms);
    for (uint32_t i = 0; i < all->count && !server->stopping; i++)
        other_node_tend(&all->nodes[i], now_ms);
    for (uint32_t i = 1; i < server->loops.count; i++)
        if (all->of[i].former && now_ms >= all->of[i].former_ms)
            reset_former(all, i);
    turn_end(server->loop[0]);
}

void server_set_owner(struct server *server, uint32_t shard, const char *address) {
    struct other_nodes *all = server->links;
    uint32_t i = shard + 1;
    enum shard_place at = server->loops.places[i].at;
    if (at == PLACE_HERE || at == PLACE_LEAVING)
        return;
    struct other_node *n = address ? other_node_add(all, address) : NULL;
    if (address && !n && !all->of[i].is_refused)
        notice(NOTICE_WARN,
               "shard %" PRIu32 " is at %s, but this node has connections to %d others, and no "
               "more are possible: commands about the shard wait",
               shard, address, NODES_MOST);
    all->of[i].is_refused = address && !n;
    if (n == all->of[i].node && (at == PLACE_ON_NODE || !n))
        return;
    place_set_node(all, i, n);
    server->loops.places[i].link = n ? n->link : NULL;
    server->loops.places[i].at = n ? PLACE_ON_NODE : PLACE_UNKNOWN;
    if (n && node_link_is_ready(n->link))
        place_is_reachable(server, i);
    else if (n)
        tend_links(server);
}

static void on_tend(uv_timer_t *timer) {
    tend_links(timer->data);
}

// ---- Start and stop -----------------------------------------------------------------------------

// A node at the other end of a link does not have the shard any more.
static void on_moved(void *arg, uint32_t loop, bool is_closed) {
    struct server *server = arg;
    enum shard_place at = server->loops.places[loop].at;
    if (at != PLACE_ON_NODE && !(at == PLACE_UNKNOWN && is_closed))
        return;
    server->loops.places[loop].at = PLACE_UNKNOWN;
    report_event(server, loop - 1, is_closed ? SHARD_IS_FREE : SHARD_MOVED, 0, "");
}

// Of a node, the first loop says how the store answers its shards.
static void look_for_outage(void *arg, struct log_state *out) {
    const struct server *server = arg;
    for (uint32_t i = 1; i < server->loops.count; i++) {
        struct log_state log;
        enum shard_place at = server->loops.places[i].at;
        if (at != PLACE_HERE && at != PLACE_LEAVING)
            continue;
        shard_look(group_shard(server->loop[i]->group, i - 1), &log);
        if (!log.outage[0] || (out->outage[0] && out->waiting_since_ms <= log.waiting_since_ms))
            continue;
        memcpy(out->outage, log.outage, sizeof out->outage);
        out->waiting_since_ms = log.waiting_since_ms;
    }
}

static int make_node_context(struct server *server) {
    const struct tls_files *tls = &server->options.tls;
    return tls->cert ? tls_context_create(tls, false, &server->node_context) : 0;
}

int places_start(struct server *server) {
    const struct server_cluster *c = server->options.cluster;
    struct loop *v = server->loop[0];
    server->links = mem_alloc(sizeof *server->links);
    if (!server->links)
        return error_set(MR_ENOMEM, "no memory for a node");
    server->links->server = server;
    server->loops.places[0].at = PLACE_HERE;
    server->loops.on_moved = on_moved;
    server->loops.look = look_for_outage;
    server->loops.arg = server;
    host_load_none(&v->host, c->shards);
    server->tend_timer.data = server;
    uv_timer_init(&v->uv, &server->tend_timer);
    uv_timer_start(&server->tend_timer, on_tend, TEND_MS, TEND_MS);
    int err = make_node_context(server);
    const struct server_options *o = &server->options;
    return err < 0 ? err
                   : c->started(c->arg, server, &v->uv, o->port,
                                server->listen[LISTEN_FRONT].open ? o->front_port : 0);
}

void places_stop(struct server *server) {
    mem_free(server->links);
    tls_context_destroy(server->node_context);
}
