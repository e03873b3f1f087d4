// See sim_nodes.h. The parts are in the order of what they stand for: wires, the turns of loops
// (loop.c), shards that come and go (places.c), and decisions (node.c).
#include "support/sim_nodes.h"

#include "base/errors.h"
#include "log/log_stream.h"
#include "support/sim_plants.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 300,
    LOOK_SOON_MS = 60,
    DIAL_MS = 1500,
    DIAL_AGAIN_MS = 200,
    FORMER_LINK_MS = 1500,
    DRAIN_MS = 800,
    OPENING_MOST = 2,
    SEGMENT = 1 << 10,
    FILE_SEGMENT = 16 << 10,
    WINDOW = 1 << 20,
    BUSY_MS = 6,
    IDLE_MS = 60,
    IDLE_STEPS = 6,
    SELDOM = 6,
};

uint64_t sim_nodes_roll(struct sim_nodes *w, uint64_t below) {
    uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static bool chance(struct sim_nodes *w, uint64_t one_in) {
    return sim_nodes_roll(w, one_in) == 0;
}

uint64_t sim_nodes_now_ms(const struct sim_nodes *w) {
    return sim_store_now_ms(w->store);
}

static void note_text(const struct sim_nodes *w, const char *format, va_list values) {
    if (!w->prints)
        return;
    fprintf(stderr, "%8" PRIu64 " ", sim_nodes_now_ms(w));
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
}

void sim_nodes_note(struct sim_nodes *w, const char *format, ...) {
    va_list values;
    va_start(values, format);
    note_text(w, format, values);
    va_end(values);
}

void sim_nodes_fail(struct sim_nodes *w, const char *format, ...) {
    va_list values;
    va_start(values, format);
    if (!w->failure[0])
        vsnprintf(w->failure, sizeof w->failure, format, values);
    va_end(values);
    sim_nodes_note(w, "FAILURE %s", w->failure);
}

// ---- Time ---------------------------------------------------------------------------------------

static const struct sim_node *current; // whose code runs: a host's clock has no argument

static uint64_t sim_node_now_ms(const struct sim_node *n) {
    return sim_nodes_now_ms(n->all) + n->ahead_ms;
}

static uint64_t current_now_ms(void) {
    return sim_node_now_ms(current);
}

static uint64_t clock_now_ms(void *node) {
    return sim_node_now_ms(node);
}

static uint64_t clock_wall_ms(void *node) {
    const struct sim_node *n = node;
    return UINT64_C(1700000000000) + sim_node_now_ms(n) + (uint64_t)n->wall_ahead_ms;
}

static uint64_t clock_random(void *node) {
    return sim_nodes_roll(((struct sim_node *)node)->all, UINT64_MAX);
}

// An opening waits for the store. Others only read: that stops the node, and not the others.
static void clock_wait_until(void *node, uint64_t at_ms) {
    struct sim_node *n = node;
    uint64_t now_ms = sim_node_now_ms(n), ms = at_ms > now_ms ? at_ms - now_ms : 1;
    if (n->is_opening)
        sim_store_advance(n->all->store, ms);
    else
        n->ahead_ms += ms;
}

static bool runs(const struct sim_node *n) {
    return n->is_alive && n->paused_until_ms <= sim_nodes_now_ms(n->all);
}

// The others go on within this call, as they do while a thread has sent a request.
void sim_node_pause_in_append(struct sim_node *n) {
    struct sim_nodes *w = n->all;
    uint64_t ms = n->pause_in_append_ms, until_ms = sim_nodes_now_ms(w) + ms;
    const struct sim_node *before = current;
    if (!ms || w->is_nested)
        return;
    n->pause_in_append_ms = 0;
    n->paused_until_ms = UINT64_MAX;
    w->is_nested = true;
    sim_nodes_note(w, "node %d is paused in an append", n->index);
    while (!w->failure[0] && sim_nodes_now_ms(w) < until_ms)
        w->others(w->others_arg);
    sim_nodes_note(w, "node %d goes on with an append", n->index);
    w->is_nested = false;
    n->paused_until_ms = 0;
    w->reached.paused_in_append++;
    current = before;
}

// ---- Wires --------------------------------------------------------------------------------------

static struct sim_wire *wire_make(struct sim_nodes *w, int from, int to) {
    struct sim_wire *x = NULL;
    for (int i = 0; !x && i < SIM_WIRES; i++)
        x = w->wires[i].is_used ? NULL : &w->wires[i];
    if (!x || !w->nodes[to].is_alive)
        return NULL;
    w->wire_count = x - w->wires < w->wire_count ? w->wire_count : (int)(x - w->wires) + 1;
    *x = (struct sim_wire){ .is_used = true, .from = from, .to = to };
    current = &w->nodes[to];
    int err = session_create(&w->nodes[to].front, &x->sessions[1]);
    assert(err == 0);
    x->sessions[1]->owner = x;
    return x;
}

// An end has closed: what it has sent still arrives, and what it is sent is lost.
static void wire_end(struct sim_wire *x, int end) {
    x->closed[end] = true;
    x->pipes[end].ended = true;
    buffer_finish(&x->pipes[!end].bytes);
    x->sessions[end] = NULL;
    if (!x->closed[!end])
        return;
    buffer_finish(&x->pipes[0].bytes);
    buffer_finish(&x->pipes[1].bytes);
    x->is_used = false;
}

static struct sim_node *wire_node(struct sim_nodes *w, const struct sim_wire *x, int end) {
    return &w->nodes[end ? x->to : x->from];
}

// As connection_close.
static void session_hang_up(struct sim_nodes *w, struct sim_wire *x, int end) {
    struct sim_node *n = wire_node(w, x, end);
    struct session *s = x->sessions[end];
    current = n;
    host_begin(&n->front);
    if (s->front)
        s->front->impl->close(s->front);
    session_destroy(s);
    wire_end(x, end);
}

void sim_wire_cut(struct sim_nodes *w, struct sim_wire *x) {
    sim_nodes_note(w, "wire %d (%d to %d) is cut", (int)(x - w->wires), x->from, x->to);
    x->is_cut = true;
    for (int i = 0; i < 2; i++) {
        struct buffer *b = &x->pipes[i].bytes;
        b->size = b->size ? sim_nodes_roll(w, b->size + 1) : 0;
        x->pipes[i].ended = true;
    }
}

static void pipe_consume(struct sim_pipe *p, size_t size) {
    memmove(p->bytes.data, p->bytes.data + size, p->bytes.size - size);
    p->bytes.size -= size;
}

static bool wire_is_apart(const struct sim_nodes *w, const struct sim_wire *x) {
    return x->from >= 0 && w->apart_until_ms[x->from][x->to] > sim_nodes_now_ms(w);
}

static bool wire_is_silent(const struct sim_nodes *w, const struct sim_wire *x) {
    uint64_t now_ms = sim_nodes_now_ms(w);
    return x->silent_until_ms > now_ms ||
           (x->from < 0 && w->nodes[x->to].unreachable_until_ms > now_ms);
}

static size_t some_bytes(struct sim_nodes *w, size_t size) {
    return chance(w, 4) ? 1 + sim_nodes_roll(w, size) : size;
}

// As on_read of connection.c.
static void wire_deliver(struct sim_nodes *w, struct sim_wire *x, int end) {
    struct sim_pipe *p = &x->pipes[!end];
    struct session *s = x->sessions[end];
    size_t room;
    if (!s || wire_is_apart(w, x) || wire_is_silent(w, x) || s->broken ||
        !runs(wire_node(w, x, end)))
        return;
    struct sim_node *n = wire_node(w, x, end);
    current = n;
    if (!p->bytes.size && p->ended) {
        session_hang_up(w, x, end);
        return;
    }
    uint8_t *to = p->bytes.size ? front_room(s, &room) : NULL;
    if (!to)
        return;
    size_t size = some_bytes(w, p->bytes.size);
    size = size < room ? size : room;
    memcpy(to, p->bytes.data, size);
    pipe_consume(p, size);
    w->idle_steps = 0;
    host_begin(&n->front);
    front_receive(s, size);
    if (front_is_over(s))
        session_touch_prompt(s);
}

// As connection_write.
static void wire_write(struct sim_nodes *w, struct sim_wire *x, int end) {
    struct session *s = x->sessions[end];
    mr_bytes ready = front_ready(s);
    if (ready.size && (x->is_cut || x->closed[!end])) {
        session_hang_up(w, x, end);
        return;
    }
    if (ready.size && !s->broken) {
        size_t size = some_bytes(w, ready.size);
        int err = buffer_append(&x->pipes[end].bytes, ready.data, size);
        assert(err == 0);
        front_sent(s, size);
        w->idle_steps = 0;
        if (size < ready.size)
            session_offer(s);
    }
    if (s->broken || (front_is_over(s) && !front_ready(s).size))
        session_hang_up(w, x, end);
}

struct sim_wire *sim_wire_connect(struct sim_nodes *w, int node) {
    const struct sim_node *n = &w->nodes[node];
    bool reached = n->is_alive && n->unreachable_until_ms <= sim_nodes_now_ms(w);
    return reached ? wire_make(w, -1, node) : NULL;
}

void sim_wire_send(struct sim_wire *x, mr_bytes bytes) {
    if (x->is_cut || x->closed[1])
        return;
    int err = buffer_append(&x->pipes[0].bytes, bytes.data, bytes.size);
    assert(err == 0);
}

bool sim_wire_is_readable(const struct sim_nodes *w, const struct sim_wire *x) {
    return (x->pipes[1].bytes.size || x->pipes[1].ended) && !wire_is_silent(w, x);
}

ptrdiff_t sim_wire_read(struct sim_nodes *w, struct sim_wire *x, void *to, size_t room) {
    struct sim_pipe *p = &x->pipes[1];
    if (!p->bytes.size || wire_is_silent(w, x))
        return sim_wire_is_readable(w, x) ? -1 : 0;
    size_t size = some_bytes(w, p->bytes.size);
    size = size < room ? size : room;
    memcpy(to, p->bytes.data, size);
    pipe_consume(p, size);
    return (ptrdiff_t)size;
}

bool sim_wire_receive(struct sim_nodes *w, struct sim_wire *x, struct buffer *to) {
    int err = buffer_reserve(to, x->pipes[1].bytes.size + 1);
    assert(err == 0);
    ptrdiff_t size = sim_wire_read(w, x, to->data + to->size, to->capacity - to->size);
    to->size += size > 0 ? (size_t)size : 0;
    return size >= 0;
}

void sim_wire_close(struct sim_nodes *w, struct sim_wire *x) {
    (void)w;
    wire_end(x, 0);
}

void sim_wire_describe(struct sim_nodes *w, const struct sim_wire *x) {
    const struct session *s = x->sessions[1];
    sim_nodes_note(w, "wire %d to node %d: cut %d, closed %d %d, bytes %zu %zu",
                   (int)(x - w->wires), x->to, x->is_cut, x->closed[0], x->closed[1],
                   x->pipes[0].bytes.size, x->pipes[1].bytes.size);
    if (!s)
        return;
    sim_nodes_note(w,
                   "  waits %d, input %zu, route %d, gather %d, broken %d, closing %d, unsent %zu",
                   s->wait.kind != NULL, s->in.size, s->route ? (int)s->route->shard_loop - 1 : -1,
                   s->gather != NULL, s->broken, s->closing, session_unsent(s));
    for (uint32_t i = 1; s->remotes && i <= SIM_SHARDS; i++) {
        const struct remote *r = s->remotes[i];
        if (r)
            sim_nodes_note(
                w,
                "  shard %u: place %d, made %d, link %d, under way %" PRIu64 ", to send %" PRIu64
                ", kept %" PRIu64 " of %" PRIu64 ", session %d, moved %d, over %d, queued %d",
                i - 1, (int)w->nodes[x->to].loops.places[i].at, r->is_made, r->link != NULL,
                r->under_way, r->request_count, r->kept_count - r->kept_replies, r->kept_count,
                r->session != NULL, r->has_moved, r->is_over, !list_empty(&r->of_outgoing));
    }
}

void sim_nodes_describe(struct sim_nodes *w) {
    for (int i = 0; i < SIM_NODES; i++)
        for (uint32_t k = 0; k < SIM_SHARDS; k++) {
            const struct sim_place *p = &w->nodes[i].places[k];
            if (p->phase != SIM_RUNS)
                continue;
            sim_nodes_note(w, "node %d has shard %u, leaving %d, leases %" PRIu64, i, k,
                           (int)p->leaving, host_leases(&p->host));
            const struct list *all = &p->host.sessions;
            for (const struct list *l = all->next; l != all; l = l->next) {
                const struct session *s = list_entry(l, struct session, of_host);
                if (session_leases(s))
                    sim_nodes_note(w,
                                   "  session %" PRIu64 " for connection %" PRIu64
                                   " of %s holds %" PRIu64 ", waits %d",
                                   s->id, s->remote->identity.id,
                                   s->remote->from ? "another node" : "this node",
                                   session_leases(s), s->wait.kind != NULL);
            }
        }
}

// ---- Turns --------------------------------------------------------------------------------------

static bool host_has_turn(const struct host *h) {
    return h->in_turn || !list_empty(&h->touched) || !list_empty(&h->resuming) ||
           !list_empty(&h->outgoing) || !list_empty(&h->ready) || host_has_backlog(h);
}

static bool place_is_served(const struct sim_node *n, uint32_t shard) {
    enum shard_place at = n->loops.places[shard + 1].at;
    return at == PLACE_HERE || at == PLACE_LEAVING;
}

static void break_sessions(struct host *h, uint32_t loop) {
    for (struct list *l = h->sessions.next; l != &h->sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (router_uses(s, loop) || session_serves_node(s)) {
            s->broken = true;
            session_offer(s);
        }
    }
}

// An owner that another node has taken over from must have found out before it sends anything.
static void expect_owned(struct sim_node *n, const struct sim_place *p) {
    struct stream_state stored;
    struct log_state log;
    if (n->all->disk)
        return;
    shard_look(group_shard(p->group, p->shard), &log);
    sim_store_look(n->all->store, p->shard, &stored);
    if (stored.epoch > log.epoch && strcmp(stored.owner, n->address) != 0)
        sim_nodes_fail(n->all, "node %d sends replies of shard %u, which %s owns", n->index,
                       p->shard, stored.owner);
}

// A log that says that another owner has claimed its stream must be right.
static void expect_cause(const struct sim_place *p) {
    struct stream_state stored;
    struct log_state log;
    shard_look(group_shard(p->group, p->shard), &log);
    sim_store_look(p->node->all->store, p->shard, &stored);
    if (strstr(log.stopped, "has claimed") && stored.epoch <= log.epoch)
        sim_nodes_fail(p->node->all, "the log of shard %u has stopped, but no node has claimed it",
                       p->shard);
}

// As place_lost.
static void place_is_lost(struct sim_place *p) {
    struct host *h = &p->host;
    if (p->was_lost || p->leaving == SIM_HAS_LEFT)
        return;
    if (p->node->all->disk) { // one failed log ends the server
        p->node->has_failed = true;
        return;
    }
    expect_cause(p);
    sim_nodes_note(p->node->all, "node %d has lost shard %u%s", p->node->index, p->shard,
                   h->stopped ? ": its log has stopped" : "");
    p->was_lost = true;
    host_begin(h);
    host_give_back(h);
    host_stop_changes(h, "the store was not reached for so long that another node may own it");
    p->leaving = SIM_GIVES_BACK;
    h->is_leaving = h->stopping = h->is_paused = true;
}

static void lose_place(struct host *h, void *place) {
    (void)h;
    place_is_lost(place);
}

static void run_in_loop(struct sim_node *n, uint32_t loop, void (*run)(struct host *, void *),
                        void *arg) {
    int err = loops_run(&n->loops, loop, run, arg);
    assert(err == 0);
}

// As places_check.
static void front_check(struct sim_node *n) {
    uint64_t now_ms = sim_node_now_ms(n);
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        struct sim_place *p = &n->places[i];
        if (p->phase != SIM_RUNS || !place_is_served(n, i))
            continue;
        uint64_t owned_ms = shard_owned_ms(group_shard(p->group, i));
        bool over = owned_ms != UINT64_MAX && now_ms >= owned_ms + SIM_UNOWNED_MS;
        bool ignored = n->all->plant == PLANT_PAUSED_GRANTS || n->all->plant == PLANT_UNOWNED;
        if (!over || ignored)
            continue;
        if (n->loops.places[i + 1].at == PLACE_HERE)
            run_in_loop(n, i + 1, lose_place, p);
        n->loops.places[i + 1].at = PLACE_LEAVING;
        break_sessions(&n->front, i + 1);
    }
}

static void expect_no_stale_reply(struct sim_node *n, const struct session *s) {
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        const struct sim_place *p = &n->places[i];
        if (p->phase == SIM_RUNS && place_is_served(n, i) && !s->broken &&
            (router_uses(s, i + 1) || session_serves_node(s)))
            expect_owned(n, p);
    }
}

static void front_flush(struct sim_node *n) {
    struct host *h = &n->front;
    struct list *mark = &n->flush_mark;
    host_durable(h);
    front_check(n);
    list_append(&h->ready, mark);
    while (h->ready.next != mark) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        struct sim_wire *x = s->owner;
        list_remove(&s->of_ready);
        if (s->remote) { // of a command that asks all loops
            router_send_replies(s);
            continue;
        }
        if (front_ready(s).size)
            expect_no_stale_reply(n, s);
        wire_write(n->all, x, x->sessions[1] == s);
    }
    list_remove(mark);
}

static void front_turn(struct sim_node *n) {
    current = n;
    host_begin(&n->front);
    plant_in_inbox(n, 0);
    (void)router_receive(&n->front);
    plant_in_requests(n);
    host_end(&n->front);
    front_flush(n);
    router_note_client_bytes(&n->front);
}

static bool place_has_lost(const struct sim_place *p) {
    const struct sim_node *n = p->node;
    if (p->host.stopped)
        return true;
    return n->all->plant != PLANT_UNOWNED &&
           !host_owns_store(&p->host, sim_node_now_ms(n), SIM_UNOWNED_MS);
}

static void place_flush(struct sim_place *p) {
    struct host *h = &p->host;
    struct list *mark = &p->flush_mark;
    host_durable(h);
    if (place_has_lost(p)) {
        place_is_lost(p);
        return;
    }
    list_append(&h->ready, mark);
    while (h->ready.next != mark) {
        struct session *s = list_entry(h->ready.next, struct session, of_ready);
        list_remove(&s->of_ready);
        if (p->node->all->plant == PLANT_BEFORE_DURABLE)
            session_release(s, UINT64_MAX);
        router_send_replies(s);
    }
    list_remove(mark);
}

static bool all_answered(struct host *h) {
    return list_empty(&h->held) && list_empty(&h->ready) && list_empty(&h->touched) &&
           host_durable_turn(h) == h->turn;
}

// As place_leave_on.
static void place_leave_further(struct sim_place *p) {
    struct host *h = &p->host;
    if (p->leaving == SIM_LEAVES && host_leases(h) == 0) {
        p->leaving = SIM_GIVES_BACK;
        h->is_paused = true;
        return;
    }
    if (p->leaving != SIM_GIVES_BACK || !(p->was_lost || all_answered(h)))
        return;
    p->leaving = SIM_HAS_LEFT;
    remotes_leave(h, p->was_lost);
    host_detach(h);
    p->phase = SIM_GONE;
}

// As on_leave_over.
static void place_give_back(struct sim_place *p) {
    p->leaving = SIM_GIVES_BACK;
    host_begin(&p->host);
    host_give_back(&p->host);
    p->host.is_paused = true;
}

static void place_turn(struct sim_place *p) {
    struct host *h = &p->host;
    current = p->node;
    if (p->leaving == SIM_LEAVES && sim_node_now_ms(p->node) >= p->leave_at_ms)
        place_give_back(p);
    host_begin(h);
    plant_in_inbox(p->node, p->shard + 1);
    (void)router_receive(h);
    host_end(h);
    plant_in_replies(p);
    place_flush(p);
    router_note_client_bytes(h);
    if (p->leaving)
        place_leave_further(p);
}

// What the thread of the log does; and on_durable.
static void place_write(struct sim_place *p) {
    current = p->node;
    log_flush(p->log, false);
    place_flush(p);
}

// ---- Shards that come
// -----------------------------------------------------------------------------

static void no_wake(void *arg) {
    (void)arg; // every turn looks into the inbox
}

static void reset_peer(struct host *h, void *shard) {
    uint32_t other = (uint32_t)(uintptr_t)shard;
    if (h->first < h->end && h->first != other)
        peers_reset(shard_peers(h->parts[h->first].shard), other);
}

static void reset_all_peers(struct host *h, void *arg) {
    (void)arg;
    for (uint32_t i = 0; i < h->shards; i++)
        reset_peer(h, (void *)(uintptr_t)i);
}

// As place_is_reachable.
static void place_reachable(struct sim_node *n, uint32_t loop) {
    current = n;
    host_begin(&n->front);
    router_place_changed(&n->front);
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        if (i + 1 != loop && n->places[i].phase == SIM_RUNS)
            run_in_loop(n, i + 1, reset_peer, (void *)(uintptr_t)(loop - 1));
}

// Opens the stream log in the place of the memory log; if that fails, the memory log stays.
static struct log *stream_instead(void *place, struct log *memory) {
    struct sim_place *p = place;
    struct log_options options = {
        .inline_writer = true,
        .segment_size = SEGMENT,
        .stream = { .window_bytes = WINDOW,
                    .beat_ms = SIM_BEAT_MS,
                    .max_unowned_ms = p->node->all->plant == PLANT_UNOWNED ? 0 : SIM_UNOWNED_MS,
                    .clock = &p->node->clock,
                    .owner = p->node->address,
                    .expects_epoch = true,
                    .expected_epoch = p->expected.epoch,
                    .expected_owner = p->expected.owner,
                    .known_ends = p->node->known_ends },
    };
    struct log *log;
    int err = log_stream_open(&p->store, p->shard, &options, &log);
    p->not_opened = err < 0;
    if (err < 0 && err != MR_ENET && err != MR_EBUSY)
        sim_nodes_fail(p->node->all, "shard %u: %s", p->shard, error_text());
    if (err < 0)
        return memory;
    log_close(memory);
    p->log = log;
    return log;
}

// The same with a log of files. A disk that has just failed does not open it.
static struct log *file_instead(void *place, struct log *memory) {
    struct sim_place *p = place;
    struct sim_nodes *w = p->node->all;
    char dir[32];
    struct log_options options = { .inline_writer = true,
                                   .segment_size = FILE_SEGMENT,
                                   .disk = sim_disk_disk(w->disk) };
    snprintf(dir, sizeof dir, "/shard-%u", p->shard);
    struct log *log;
    int err = log_file_open(dir, &options, &log);
    p->not_opened = err < 0;
    if (err < 0 && err != MR_EIO && err != MR_EFULL)
        sim_nodes_fail(w, "shard %u: %s", p->shard, error_text());
    if (err < 0)
        return memory;
    log_close(memory);
    p->log = log;
    return log;
}

static void place_create(struct sim_node *n, uint32_t shard) {
    struct sim_place *p = &n->places[shard];
    *p = (struct sim_place){ .node = n,
                             .shard = shard,
                             .phase = SIM_OPENING,
                             .expected = n->seen.shard[shard],
                             .store.open = sim_node_open_stream };
    int err = host_init(&p->host, "sim:");
    assert(err == 0);
    p->host.loop = shard + 1;
    p->host.clock = current_now_ms;
    p->host.node = &n->info;
    loops_add(&n->loops, &p->host, no_wake, NULL);
}

static void place_free(struct sim_place *p) {
    current = p->node;
    host_finish(&p->host);
    p->phase = SIM_ABSENT;
}

static void shard_event(struct sim_node *n, uint32_t shard, bool serves) {
    n->shard[shard].is_opening = n->shard[shard].is_leaving = false;
    n->shard[shard].is_here = serves;
    n->look_at_ms = 0;
}

static void place_set_node(struct sim_node *n, uint32_t loop, int owner) {
    int before = n->of[loop].node;
    if (before >= 0 && before != owner) {
        n->of[loop].former = before;
        n->of[loop].former_ms = sim_node_now_ms(n) + FORMER_LINK_MS;
    }
    if (owner >= 0 && n->of[loop].former == owner)
        n->of[loop].former = -1;
    n->of[loop].node = owner;
}

static void place_open(struct sim_place *p) {
    struct sim_node *n = p->node;
    struct group_options options = {
        .store = store_in(NULL),
        .shards = SIM_SHARDS,
        .is_one = true,
        .one = p->shard,
        .log = { .inline_writer = true,
                 .wrap = n->all->disk ? file_instead : stream_instead,
                 .wrap_arg = p },
        .world = { clock_wall_ms, clock_now_ms, clock_random, n },
    };
    current = n;
    host_group_options(&p->host, &options);
    n->is_opening = true;
    int err = group_open(&options, &p->group);
    n->is_opening = false;
    bool opened = err == 0 && !p->not_opened;
    sim_nodes_note(n->all, "node %d %s shard %u%s%s", n->index,
                   opened ? "has opened" : "did not open", p->shard, opened ? "" : ": ",
                   opened ? "" : error_text());
    if (err < 0 && err != MR_ENET && err != MR_ESTOPPED && err != MR_EBUSY && err != MR_EIO &&
        err != MR_EFULL)
        sim_nodes_fail(n->all, "shard %u: %s", p->shard, error_text());
    if (!opened) {
        n->has_failed = n->all->disk != NULL;
        if (err == 0)
            group_close(p->group);
        loops_remove(&n->loops, p->shard + 1);
        place_free(p);
        shard_event(n, p->shard, false);
        return;
    }
    err = host_load(&p->host, p->group);
    assert(err == 0);
    plant_in_core(p);
    p->phase = SIM_RUNS;
    n->all->reached.opened++;
    n->loops.places[p->shard + 1].at = PLACE_HERE;
    n->loops.places[p->shard + 1].link = NULL;
    place_set_node(n, p->shard + 1, -1);
    run_in_loop(n, p->shard + 1, reset_all_peers, NULL);
    place_reachable(n, p->shard + 1);
    shard_event(n, p->shard, true);
}

// ---- Shards that go
// -------------------------------------------------------------------------------

static void begin_leave(struct host *h, void *place) {
    struct sim_place *p = place;
    if (p->leaving >= SIM_GIVES_BACK)
        return;
    p->leaving = SIM_LEAVES;
    h->is_leaving = h->stopping = true;
    p->leave_at_ms = sim_node_now_ms(p->node) + DRAIN_MS;
}

static void place_leave(struct sim_node *n, uint32_t shard) {
    if (n->loops.places[shard + 1].at != PLACE_HERE)
        return;
    sim_nodes_note(n->all, "node %d leaves shard %u", n->index, shard);
    run_in_loop(n, shard + 1, begin_leave, &n->places[shard]);
    n->loops.places[shard + 1].at = PLACE_LEAVING;
}

static void place_collect(struct sim_place *p) {
    struct sim_node *n = p->node;
    n->loops.places[p->shard + 1].at = PLACE_UNKNOWN;
    loops_remove(&n->loops, p->shard + 1);
    p->phase = SIM_CLOSING;
}

static void place_close(struct sim_place *p) {
    struct sim_node *n = p->node;
    current = n;
    sim_nodes_note(n->all, "node %d has %s shard %u", n->index, p->was_lost ? "lost" : "left",
                   p->shard);
    n->all->reached.lost += p->was_lost;
    n->all->reached.left += !p->was_lost;
    bool left = !p->was_lost;
    group_close(p->group);
    place_free(p);
    host_begin(&n->front);
    for (struct list *l = n->front.sessions.next; left && l != &n->front.sessions; l = l->next) {
        struct session *s = list_entry(l, struct session, of_host);
        if (session_serves_node(s))
            node_link_send_free(s, p->shard + 1);
    }
    shard_event(n, p->shard, false);
}

// ---- Other nodes
// ----------------------------------------------------------------------------------

static void on_link(void *arg, struct node_link *link, const char *why) {
    struct sim_link *k = arg;
    struct sim_node *n = k->node;
    bool ready = node_link_is_ready(link);
    sim_nodes_note(n->all, "node %d: link to %d %s%s%s", n->index, k->to,
                   ready ? "is ready" : "has ended", why ? ": " : "", why ? why : "");
    n->all->reached.links += ready;
    if (!ready)
        k->link = NULL;
    for (uint32_t i = 1; i <= SIM_SHARDS; i++) {
        if (n->of[i].former == k->to && !ready)
            n->of[i].former = -1;
        if (n->of[i].node != k->to)
            continue;
        n->loops.places[i].link = k->link;
        if (ready)
            place_reachable(n, i);
    }
}

static void link_dial(struct sim_link *k) {
    struct sim_node *n = k->node;
    struct session *s;
    k->tried_ms = sim_node_now_ms(n);
    struct sim_wire *x = wire_make(n->all, n->index, k->to);
    current = n;
    if (!x)
        return;
    struct node_link_hello hello = {
        .secret = "secret", .cluster = "sim", .node = n->address, .shards = SIM_SHARDS
    };
    int err = session_create(&n->front, &s);
    if (err == 0)
        err = node_link_create(s, &hello, &k->link);
    assert(err == 0);
    s->owner = x;
    x->sessions[0] = s;
    session_offer(s);
    node_link_watch(k->link, on_link, k);
    for (uint32_t i = 1; i <= SIM_SHARDS; i++)
        if (n->of[i].node == k->to)
            n->loops.places[i].link = k->link;
}

static void link_tend(struct sim_link *k) {
    struct sim_node *n = k->node;
    uint64_t now_ms = sim_node_now_ms(n);
    bool owns = false;
    for (uint32_t i = 1; i <= SIM_SHARDS; i++)
        owns = owns || n->of[i].node == k->to;
    if (!k->link && owns && now_ms - k->tried_ms >= DIAL_AGAIN_MS)
        link_dial(k);
    else if (k->link && !node_link_is_ready(k->link) && now_ms - k->tried_ms >= DIAL_MS)
        node_link_end(k->link);
}

static void links_tend(struct sim_node *n) {
    uint64_t now_ms = sim_node_now_ms(n);
    current = n;
    host_begin(&n->front);
    for (int i = 0; i < SIM_NODES; i++)
        link_tend(&n->links[i]);
    for (uint32_t i = 1; i <= SIM_SHARDS; i++) {
        int former = n->of[i].former;
        if (former < 0 || now_ms < n->of[i].former_ms)
            continue;
        n->of[i].former = -1;
        if (n->links[former].link)
            node_link_reset(n->links[former].link, i);
    }
}

// As server_set_owner.
static void set_owner(struct sim_node *n, uint32_t shard, int owner) {
    uint32_t i = shard + 1;
    enum shard_place at = n->loops.places[i].at;
    if (at == PLACE_HERE || at == PLACE_LEAVING)
        return;
    if (owner == n->of[i].node && (at == PLACE_ON_NODE || owner < 0))
        return;
    place_set_node(n, i, owner);
    struct node_link *link = owner >= 0 ? n->links[owner].link : NULL;
    n->loops.places[i].link = link;
    n->loops.places[i].at = owner >= 0 ? PLACE_ON_NODE : PLACE_UNKNOWN;
    if (link && node_link_is_ready(link))
        place_reachable(n, i);
    else if (owner >= 0)
        links_tend(n);
}

static void on_moved(void *node, uint32_t loop, bool is_closed) {
    struct sim_node *n = node;
    enum shard_place at = n->loops.places[loop].at;
    n->all->reached.moved++;
    if (at != PLACE_ON_NODE && !(at == PLACE_UNKNOWN && is_closed))
        return;
    n->loops.places[loop].at = PLACE_UNKNOWN;
    n->look_at_ms = 0;
}

// ---- Decisions
// ------------------------------------------------------------------------------------

static int note_read(void *node, const struct board_note *note) {
    struct cluster_seen *c = &((struct sim_node *)node)->seen;
    struct node_seen *seen = &c->node[c->nodes++];
    *seen = (struct node_seen){ .link_version = LINK_VERSION,
                                .is_draining = !strcmp(note->value, "draining"),
                                .age_ms = note->age_ms };
    snprintf(seen->address, sizeof seen->address, "%s", note->key);
    return 0;
}

static bool read_store(struct sim_node *n) {
    struct sim_nodes *w = n->all;
    uint64_t now_ms = sim_nodes_now_ms(w), board_ms = sim_board_now_ms(w->notes);
    sim_board_advance(w->notes, now_ms > board_ms ? now_ms - board_ms : 0);
    if (n->cut_until_ms > now_ms ||
        board_put(n->board, n->address, n->is_drained ? "draining" : "serving") != STREAM_DONE)
        return false;
    n->seen.shards = SIM_SHARDS;
    n->seen.nodes = 0;
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        if (w->looks[i]->impl->look(w->looks[i], &n->seen.shard[i]) != STREAM_DONE)
            return false;
    return board_notes(n->board, note_read, n) == STREAM_DONE;
}

static void node_act(struct sim_node *n, uint32_t i, enum plan_act what) {
    uint32_t opening = 0;
    bool leaves = false;
    for (uint32_t k = 0; k < SIM_SHARDS; k++) {
        opening += n->shard[k].is_opening;
        leaves = leaves || n->shard[k].is_leaving;
    }
    if (n->shard[i].is_opening || n->shard[i].is_leaving)
        return;
    if (what == PLAN_OPEN && opening < OPENING_MOST && n->places[i].phase == SIM_ABSENT) {
        n->shard[i].is_opening = true;
        place_create(n, i);
    } else if (what == PLAN_LEAVE && (!leaves || n->is_drained)) {
        n->shard[i].is_leaving = true;
        place_leave(n, i);
    }
}

static int node_index(const struct sim_nodes *w, const char *address) {
    for (int i = 0; i < SIM_NODES; i++)
        if (strcmp(w->nodes[i].address, address) == 0)
            return i;
    return -1;
}

// A server on files opens all its shards.
static void node_open_all(struct sim_node *n) {
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        if (n->places[i].phase == SIM_ABSENT)
            node_act(n, i, PLAN_OPEN);
    n->look_at_ms = sim_nodes_now_ms(n->all) + LOOK_MS;
}

static void node_look_at_store(struct sim_node *n) {
    struct node_plan plan;
    bool has[SIM_SHARDS], soon = false;
    current = n;
    if (n->all->disk) {
        node_open_all(n);
        return;
    }
    if (read_store(n)) {
        for (uint32_t i = 0; i < SIM_SHARDS; i++)
            has[i] = n->shard[i].is_here;
        plan_make(&n->seen, n->address, n->is_drained, has, SIM_TAKEOVER_MS, &plan);
        for (uint32_t i = 0; i < SIM_SHARDS; i++) {
            node_act(n, i, plan.shard[i].act);
            set_owner(n, i, node_index(n->all, plan.shard[i].owner));
        }
        soon = plan.expects;
    }
    links_tend(n);
    n->look_at_ms = sim_nodes_now_ms(n->all) + (soon ? LOOK_SOON_MS : LOOK_MS);
}

// ---- Life
// -------------------------------------------------------------------------------------------

void sim_node_start(struct sim_node *n) {
    struct sim_nodes *w = n->all;
    sim_nodes_note(w, "node %d starts", n->index);
    n->is_alive = true;
    n->is_dying = n->is_drained = n->has_failed = false;
    n->ahead_ms = sim_nodes_roll(w, 100000);
    n->paused_until_ms = n->cut_until_ms = n->look_at_ms = n->pause_in_append_ms = 0;
    n->clock = (struct log_clock){ clock_now_ms, clock_wait_until, n };
    n->info = (struct host_node){
        .cluster = "sim",
        .address = n->address,
        .secret = "secret",
        .promise = "",
        .seen = &n->seen,
        .owned_ms = w->disk ? 0 : SIM_TAKEOVER_MS - SIM_UNOWNED_MS,
    };
    current = n;
    loops_init(&n->loops, SIM_SHARDS + 1, true);
    int err = host_init(&n->front, "sim:");
    assert(err == 0);
    n->front.clock = current_now_ms;
    n->front.node = &n->info;
    loops_add(&n->loops, &n->front, no_wake, NULL);
    n->loops.places[0].at = PLACE_HERE;
    n->loops.on_moved = on_moved;
    n->loops.arg = n;
    host_load_none(&n->front, SIM_SHARDS);
    for (uint32_t i = 0; i <= SIM_SHARDS; i++)
        n->of[i].node = n->of[i].former = -1;
    for (int i = 0; i < SIM_NODES; i++)
        n->links[i] = (struct sim_link){ .node = n, .to = i };
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        n->places[i] = (struct sim_place){ .node = n, .shard = i };
        n->shard[i].is_here = n->shard[i].is_opening = n->shard[i].is_leaving = false;
        n->known_ends[i] = 0;
    }
}

// The store does not hear of what it still does: only memory is freed.
void sim_node_kill(struct sim_node *n) {
    struct sim_nodes *w = n->all;
    sim_nodes_note(w, "node %d dies", n->index);
    n->is_dying = true;
    for (int i = 0; i < SIM_WIRES; i++)
        for (int end = 0; end < 2; end++) {
            struct sim_wire *x = &w->wires[i];
            if (x->is_used && x->sessions[end] && wire_node(w, x, end) == n)
                session_hang_up(w, x, end);
        }
    current = n;
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        if (n->places[i].phase == SIM_RUNS)
            host_detach(&n->places[i].host);
        if (n->places[i].phase != SIM_ABSENT && n->places[i].phase != SIM_CLOSING)
            loops_remove(&n->loops, i + 1);
    }
    while (!list_empty(&n->loops.inboxes[0].messages)) {
        host_begin(&n->front);
        (void)router_receive(&n->front);
        host_end(&n->front);
    }
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        struct sim_place *p = &n->places[i];
        if (p->phase != SIM_ABSENT && p->phase != SIM_OPENING)
            group_close(p->group);
        if (p->phase != SIM_ABSENT)
            place_free(p);
    }
    host_finish(&n->front);
    loops_finish(&n->loops);
    n->is_alive = false;
}

void sim_nodes_lose_disk(struct sim_nodes *w, enum sim_survival how, uint64_t seed) {
    sim_nodes_note(w, "the server dies; what was not synced %s",
                   how == SIM_KEEP ? "stays" : "may be lost");
    sim_disk_crash(w->disk);
    sim_node_kill(&w->nodes[0]);
    sim_disk_restart(w->disk, how, seed);
}

struct sim_nodes *sim_nodes_create(uint64_t seed, bool on_files) {
    struct sim_nodes *w = calloc(1, sizeof *w);
    w->random = seed;
    w->node_count = on_files ? 1 : SIM_NODES;
    w->disk = on_files ? sim_disk_create() : NULL;
    w->store = sim_store_create(seed);
    w->notes = sim_board_create(SIM_SHARDS);
    struct stream_store *streams = sim_store_streams(w->store);
    for (uint32_t i = 0; i < SIM_SHARDS; i++) {
        int err = streams->open(streams, i, &w->looks[i]);
        assert(err == 0);
    }
    for (int i = 0; i < SIM_NODES; i++) {
        struct sim_node *n = &w->nodes[i];
        n->all = w;
        n->index = i;
        snprintf(n->address, sizeof n->address, "10.0.0.%d:7000", i + 1);
        n->board = sim_board_open(w->notes);
        if (i < w->node_count)
            sim_node_start(n);
    }
    return w;
}

void sim_nodes_destroy(struct sim_nodes *w) {
    for (int i = 0; i < SIM_NODES; i++)
        if (w->nodes[i].is_alive)
            sim_node_kill(&w->nodes[i]);
    for (int i = 0; i < SIM_WIRES; i++)
        for (int end = 0; end < 2; end++)
            buffer_finish(&w->wires[i].pipes[end].bytes);
    for (int i = 0; i < SIM_NODES; i++)
        board_close(w->nodes[i].board);
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        w->looks[i]->impl->close(w->looks[i]);
    sim_board_destroy(w->notes);
    sim_store_destroy(w->store);
    if (w->disk)
        sim_disk_destroy(w->disk);
    free(w);
}

// ---- Steps
// ------------------------------------------------------------------------------------------

// What wakes a loop. Timers do, too, and are seen a little later here.
static bool loop_has_work(struct sim_node *n, const struct host *h) {
    return host_has_turn(h) || !list_empty(&n->loops.inboxes[h->loop].messages);
}

static void place_step(struct sim_place *p) {
    struct sim_nodes *w = p->node->all;
    switch (p->phase) {
    case SIM_ABSENT:
        break;
    case SIM_OPENING:
        if (chance(w, 5))
            place_open(p);
        break;
    case SIM_RUNS:
        if (chance(w, host_durable_turn(&p->host) != p->host.turn ? 2 : SELDOM))
            place_write(p);
        if (chance(w, p->leaving || loop_has_work(p->node, &p->host) ? 2 : SELDOM))
            place_turn(p);
        break;
    case SIM_GONE:
        if (chance(w, 2))
            place_collect(p);
        break;
    case SIM_CLOSING:
        if (chance(w, 3))
            place_close(p);
        break;
    }
}

static void node_step(struct sim_node *n) {
    struct sim_nodes *w = n->all;
    if (!runs(n))
        return;
    if (n->look_at_ms <= sim_nodes_now_ms(w) && chance(w, 2))
        node_look_at_store(n);
    if (chance(w, loop_has_work(n, &n->front) ? 2 : SELDOM))
        front_turn(n);
    uint32_t first = (uint32_t)sim_nodes_roll(w, SIM_SHARDS);
    for (uint32_t i = 0; i < SIM_SHARDS; i++)
        place_step(&n->places[(first + i) % SIM_SHARDS]);
}

// The power has gone, or a log has failed.
static void disk_step(struct sim_nodes *w) {
    bool crashed = sim_disk_crashed(w->disk);
    uint64_t seed = sim_nodes_roll(w, UINT64_MAX);
    if (!w->nodes[0].is_alive || !(crashed || w->nodes[0].has_failed))
        return;
    enum sim_survival how = crashed ? (enum sim_survival)(seed % SIM_SURVIVALS) : SIM_KEEP;
    sim_nodes_lose_disk(w, how, seed);
}

// While no connection has had anything to deliver for some steps, time goes faster.
void sim_nodes_step(struct sim_nodes *w) {
    w->reached.steps++;
    if (w->disk)
        disk_step(w);
    bool idle = w->idle_steps++ >= IDLE_STEPS;
    sim_store_advance(w->store, chance(w, 20) ? sim_nodes_roll(w, 100)
                                              : sim_nodes_roll(w, idle ? IDLE_MS : BUSY_MS));
    int first = (int)sim_nodes_roll(w, SIM_NODES);
    for (int i = 0; i < SIM_NODES; i++)
        node_step(&w->nodes[(first + i) % SIM_NODES]);
    int from = (int)sim_nodes_roll(w, (uint64_t)w->wire_count + 1), count = w->wire_count;
    for (int i = 0; i < count; i++) {
        struct sim_wire *x = &w->wires[(from + i) % count];
        for (int end = 0; end < 2 && x->is_used; end++)
            if (!chance(w, 3))
                wire_deliver(w, x, end);
    }
}
