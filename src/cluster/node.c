// See node.h. The store is read and written in a thread of the event loop's pool, one look at a
// time; everything else is in the thread of the server's first loop.
#include "cluster/node.h"

#include "base/clock.h"
#include "base/errors.h"
#include "base/mem.h"
#include "cluster/plan.h"
#include "log/board.h"
#include "log/replicated.h"
#include "server/host.h"
#include "server/notice.h"
#include "server/systemd.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <uv.h>

enum {
    LOOK_MS = 1000,
    LOOK_SOON_MS = 100, // when a shard is about to be this node's
    HASTY_LOOKS = 50,   // in a row, LOOK_SOON_MS apart
    PROMISE_LOOKS = 10, // how many looks apart the store is asked what it promises
    LOST_MS = 3600000,  // after this time the note about a lost node is removed
    OPENING_MOST = 2,   // shards that are opened at the same time
    CHANGES_MOST = 16,
    CHANGE_VALUE = NODE_ADDRESS,
};

// What an operator wants, on its way to the store; an empty value removes it.
struct note_change {
    char key[NODE_ADDRESS + 16], value[CHANGE_VALUE];
};

// One look at the store: what to write first, and what was read.
struct look {
    char key[NODE_ADDRESS + 16], value[BOARD_VALUE_MOST]; // the note about this node
    struct note_change changes[CHANGES_MOST];
    uint32_t change_count;
    bool asks_promise;
    uint64_t known_ends[SERVER_SHARDS]; // of the logs, before it was read
    struct cluster_seen seen;
    bool is_drained;         // by an operator
    char lost[NODE_ADDRESS]; // a node that has not written for LOST_MS; "": none
    struct stream_promise promise;
    int result;
    char text[512];
};

struct node {
    const struct node_options *options;
    struct server_options server;
    struct server_cluster cluster;
    uint64_t takeover_ms;
    char own[STREAM_OWNER]; // "ADDRESS", or "ADDRESS HTTP", as claims name it
    char address[NODE_ADDRESS], http[NODE_ADDRESS];
    struct board *board;
    struct host_node info; // for INFO and CLUSTER: points to what is above
    struct stream_promise promise;

    struct server *running;
    uint16_t port;
    uv_timer_t timer;
    uv_work_t work;
    struct look look;
    struct cluster_seen seen;                 // as last read
    struct note_change changes[CHANGES_MOST]; // for the next look
    uint32_t change_count;
    uint32_t promise_looks; // until the store is asked again what it promises
    uint32_t hasty_looks;   // in a row, because a shard has no owner, or should have another one
    uint32_t left_out;      // nodes beyond those of a cluster, as last reported
    bool is_looking, looks_again, is_stopping, is_closing;
    bool is_interrupted; // the board is of no more use
    bool is_drained;     // as last read
    bool is_outage, is_ready, has_joined;
    uint64_t wrong_since_ms;                    // since when the store is not as it was; 0: it is
    _Atomic uint64_t known_ends[SERVER_SHARDS]; // see log_stream_options
    struct {
        bool is_here, is_opening, is_leaving;
        uint64_t wrong_since_ms;  // since when its log cannot be opened; 0: it can
        char owner[NODE_ADDRESS]; // as last reported
    } shard[SERVER_SHARDS];
};

// ---- Where it is ------------------------------------------------------------------------------

static int place_check(const char *given, const char *host, uint16_t port, char out[NODE_ADDRESS]) {
    struct node_place place;
    bool all = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    if (given && !node_place_read(given, &place))
        return error_set(MR_EINVAL,
                         "'%.100s' is not the address of a node: HOST:PORT, with a "
                         "numeric HOST",
                         given);
    if (!given && all)
        return error_set(MR_EINVAL,
                         "other nodes cannot connect to %s, which stands for all addresses: "
                         "--advertise HOST:PORT says where they reach this one",
                         host);
    bool v6 = !given && strchr(host, ':');
    if (given)
        snprintf(out, NODE_ADDRESS, "%s", given);
    else
        snprintf(out, NODE_ADDRESS, "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", port);
    return 0;
}

// Known once it listens, because its port may have been chosen then.
static int node_set_address(struct node *n, uint16_t port, uint16_t http_port) {
    const struct server_options *o = &n->server;
    int err = place_check(n->options->address, o->host, port, n->address);
    if (err == 0 && o->front && http_port)
        err = place_check(n->options->http, o->front_host, http_port, n->http);
    else
        n->http[0] = 0;
    snprintf(n->own, sizeof n->own, "%s%s%s", n->address, n->http[0] ? " " : "", n->http);
    return err;
}

// ---- Looking at the store, in another thread ----------------------------------------------------

static const char *after(const char *text, const char *prefix) {
    size_t size = strlen(prefix);
    return strncmp(text, prefix, size) == 0 ? text + size : NULL;
}

// "HTTP VERSION STATE OPENING LEAVING LINK", HTTP being "-" if there is none; OPENING and LEAVING
// are sets of shards. Nodes of 0.1 write no LINK, which is that of version 1.
static void note_read_node(struct node *n, const char *address, const struct board_note *note) {
    char http[NODE_ADDRESS], version[24], state[16];
    uint64_t opening = 0, leaving = 0;
    uint32_t link_version = 1;
    if (strlen(address) >= NODE_ADDRESS ||
        sscanf(note->value, "%79s %23s %15s %" SCNx64 " %" SCNx64 " %" SCNu32, http, version, state,
               &opening, &leaving, &link_version) < 3)
        return;
    struct node_seen seen = { .is_draining = strcmp(state, "draining") == 0,
                              .opening = opening,
                              .leaving = leaving,
                              .link_version = link_version,
                              .age_ms = note->age_ms };
    snprintf(seen.address, sizeof seen.address, "%s", address);
    snprintf(seen.http, sizeof seen.http, "%s", strcmp(http, "-") == 0 ? "" : http);
    snprintf(seen.version, sizeof seen.version, "%s", version);
    cluster_seen_add(&n->look.seen, &seen, n->takeover_ms);
}

static int note_read(void *arg, const struct board_note *note) {
    struct node *n = arg;
    struct look *l = &n->look;
    const char *rest;
    bool is_node = (rest = after(note->key, "node ")) != NULL;
    if (is_node && note->age_ms > LOST_MS + n->takeover_ms && strlen(rest) < NODE_ADDRESS) {
        snprintf(l->lost, sizeof l->lost, "%s", rest);
    } else if (is_node) {
        note_read_node(n, rest, note);
    } else if ((rest = after(note->key, "move ")) != NULL) {
        unsigned long shard = strtoul(rest, NULL, 10);
        if (shard < SERVER_SHARDS)
            snprintf(l->seen.wanted[shard], NODE_ADDRESS, "%s", note->value);
    } else if ((rest = after(note->key, "drain ")) != NULL) {
        l->is_drained = l->is_drained || strcmp(rest, n->address) == 0;
    } else if (strcmp(note->key, "foreign") == 0) {
        l->seen.foreign_ids = true;
    } else if (strcmp(note->key, "secret") == 0) {
        snprintf(l->seen.secret, sizeof l->seen.secret, "%s", note->value);
    }
    return 0;
}

static int write_change(struct board *b, const struct note_change *w) {
    return w->value[0] ? board_put(b, w->key, w->value) : board_remove(b, w->key);
}

static int write_secret(struct board *b) {
    uint8_t bytes[LINK_SECRET / 2];
    char text[LINK_SECRET + 1];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return error_set(MR_EIO, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return board_put_new(b, "secret", text);
}

static int read_board(struct node *n) {
    struct look *l = &n->look;
    struct cluster_seen *c = &l->seen;
    c->nodes = c->left_out = 0;
    c->secret[0] = 0;
    memset(c->wanted, 0, sizeof c->wanted);
    l->is_drained = c->foreign_ids = false;
    l->lost[0] = 0;
    int result = board_look(n->board, c->shards, c->shard);
    return result == STREAM_DONE ? board_notes(n->board, note_read, n) : result;
}

// One for each look. A node that comes back writes its note anew.
static int remove_lost(struct node *n) {
    char key[NODE_ADDRESS + 16];
    snprintf(key, sizeof key, "drain %s", n->look.lost);
    int result = board_remove(n->board, key);
    snprintf(key, sizeof key, "node %s", n->look.lost);
    return result == STREAM_DONE ? board_remove(n->board, key) : result;
}

static int look_at_board(struct node *n) {
    struct look *l = &n->look;
    int result = board_put(n->board, l->key, l->value);
    for (uint32_t i = 0; result == STREAM_DONE && i < l->change_count; i++)
        result = write_change(n->board, &l->changes[i]);
    if (result == STREAM_DONE)
        result = read_board(n);
    if (result == STREAM_DONE && !l->seen.secret[0]) {
        result = write_secret(n->board);
        result = result == STREAM_DONE ? read_board(n) : result;
    }
    if (result == STREAM_DONE && l->lost[0])
        result = remove_lost(n);
    if (result == STREAM_DONE && l->asks_promise)
        result = board_promise(n->board, &l->promise);
    return result;
}

static void node_look_at_store(uv_work_t *work) {
    struct node *n = work->data;
    n->look.result = look_at_board(n);
    if (n->look.result != STREAM_DONE)
        snprintf(n->look.text, sizeof n->look.text, "%s", error_text());
}

// ---- Deciding -----------------------------------------------------------------------------------

static int node_check_promise(const struct node *n, const struct stream_promise *p) {
    if (!n->options->requires_replication || p->replicated)
        return 0;
    return error_set(MR_EINVAL,
                     "the store is not replicated as --require-replication demands. %s %s, or "
                     "start the node without the option",
                     p->text, p->remedy);
}

static void node_set_promise(struct node *n, const struct stream_promise *p) {
    if (strcmp(n->promise.text, p->text) != 0)
        notice(p->replicated ? NOTICE_INFO : NOTICE_WARN, "%s", p->text);
    n->promise = *p;
    n->info.is_replicated = p->replicated;
}

static void node_report_owner(struct node *n, uint32_t shard, const char *owner) {
    if (strcmp(n->shard[shard].owner, owner) == 0)
        return;
    snprintf(n->shard[shard].owner, NODE_ADDRESS, "%s", owner);
    if (!owner[0])
        return;
    if (n->cluster.shards == 1)
        notice(NOTICE_INFO, "standby on %s: %s owns the store", n->address, owner);
    else
        notice(NOTICE_INFO, "shard %" PRIu32 ": %s owns it", shard, owner);
}

static uint32_t count_opening(const struct node *n) {
    uint32_t opening = 0;
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        opening += n->shard[i].is_opening;
    return opening;
}

static bool leaves_one(const struct node *n) {
    bool leaves = false;
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        leaves = leaves || n->shard[i].is_leaving;
    return leaves;
}

// With --require-replication the store is asked again before a shard is opened. False: not yet, or
// the node ends.
static bool node_may_open(struct node *n) {
    if (!n->options->requires_replication)
        return true;
    if (!n->look.asks_promise) {
        n->promise_looks = 0;
        n->looks_again = true;
        return false;
    }
    int err = node_check_promise(n, &n->promise);
    if (err < 0)
        server_fail_node(n->running, err);
    return err == 0;
}

// One shard at a time is handed over, so that a node that joins does not stop all others at once.
static void node_act(struct node *n, uint32_t i, enum plan_act what) {
    bool busy = n->shard[i].is_opening || n->shard[i].is_leaving;
    if (busy || n->is_stopping)
        return;
    if (what == PLAN_OPEN && count_opening(n) < OPENING_MOST && node_may_open(n)) {
        n->shard[i].is_opening = true;
        server_open_shard(n->running, i, &n->seen.shard[i]);
    } else if (what == PLAN_LEAVE && (!leaves_one(n) || n->is_drained)) {
        n->shard[i].is_leaving = server_leave_shard(n->running, i);
    }
}

static void node_set_ready(struct node *n) {
    bool all = true;
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        all = all && (n->shard[i].is_here || n->shard[i].owner[0]);
    if (!all || n->is_ready)
        return;
    n->is_ready = true;
    systemd_notify("READY=1\nSTATUS=Ready");
    if (n->cluster.shards > 1 && n->server.on_ready)
        n->server.on_ready(n->server.arg, n->server.host, n->port, true);
}

// Whether another node is about to claim a shard, which clients of this one may wait for.
static bool node_waits_for_owner(const struct node *n, const struct node_plan *plan) {
    bool any = false;
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        any = any || (!n->shard[i].is_here && !plan->shard[i].owner[0]);
    return any;
}

static void node_report_left_out(struct node *n) {
    uint32_t left_out = n->seen.left_out;
    if (left_out && left_out != n->left_out)
        notice(NOTICE_WARN,
               "the cluster has %" PRIu32 " nodes, but at most %d can own shards%s; end %" PRIu32
               " of them",
               NODES_SEEN + left_out, NODES_SEEN,
               cluster_seen_lacks(&n->seen, n->address) ? ": this one does not" : "", left_out);
    n->left_out = left_out;
}

// Returns whether to look again soon. That is not so for ever: a shard that cannot be opened stays
// without an owner, and a node may not hand over the shard that should be this one's.
static bool node_follow_plan(struct node *n) {
    struct node_plan plan;
    bool has[SERVER_SHARDS];
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        has[i] = n->shard[i].is_here;
    bool owns_none = n->is_stopping || n->is_drained || cluster_seen_lacks(&n->seen, n->address);
    plan_make(&n->seen, n->address, owns_none, has, n->takeover_ms, &plan);
    node_report_left_out(n);
    for (uint32_t i = 0; i < n->cluster.shards; i++) {
        const char *owner = plan.shard[i].owner;
        node_act(n, i, plan.shard[i].act);
        server_set_owner(n->running, i, owner[0] ? owner : NULL);
        if (!n->shard[i].is_here && !n->shard[i].is_opening)
            node_report_owner(n, i, owner);
    }
    node_set_ready(n);
    bool is_hasty = plan.expects || node_waits_for_owner(n, &plan);
    n->hasty_looks = is_hasty ? n->hasty_looks + 1 : 0;
    return is_hasty && n->hasty_looks <= HASTY_LOOKS;
}

// Whether what the store answers is not believed yet: a server may be cut off from the rest of the
// store, and NATS servers that have just elected a leader may deny streams that they have.
static bool node_disbelieves(const struct node *n, uint64_t *since_ms) {
    uint64_t now_ms = monotonic_ms();
    if (!*since_ms)
        *since_ms = now_ms;
    return n->has_joined && now_ms - *since_ms < stream_store_behind_ms(&n->server.store_url);
}

static int refuse_shorter_log(struct node *n, uint32_t shard, uint64_t known, uint64_t tail) {
    bool waits = node_disbelieves(n, &n->wrong_since_ms);
    return error_set(waits ? MR_ENET : MR_ECORRUPT,
                     "the store has lost acknowledged entries: the log of shard %" PRIu32
                     " had ended at %" PRIu64 ", now it ends at %" PRIu64
                     "; bring back the server that has them, or start the nodes again to "
                     "go on without them",
                     shard, known, tail);
}

// A stream that is shorter than it was is that of a database that has lost commits: a standby of it
// was promoted that did not have them, or a backup was restored.
static int check_known_ends(struct node *n) {
    const struct look *l = &n->look;
    for (uint32_t i = 0; i < n->cluster.shards; i++) {
        uint64_t known = l->known_ends[i], tail = l->seen.shard[i].tail;
        if (n->shard[i].is_here || n->shard[i].is_opening || n->shard[i].is_leaving)
            continue; // its log checks that
        if (tail < known)
            return refuse_shorter_log(n, i, known, tail);
        if (atomic_load(&n->known_ends[i]) < tail)
            atomic_store(&n->known_ends[i], tail);
    }
    n->wrong_since_ms = 0;
    return 0;
}

static void node_note_outage(struct node *n, bool outage) {
    if (outage && !n->is_outage) {
        notice(NOTICE_WARN, "%s; trying again", n->look.text);
        n->info.outage_since_ms = monotonic_ms();
    } else if (!outage && n->is_outage) {
        notice(NOTICE_INFO, "the store answers again");
    }
    n->is_outage = outage;
    snprintf(n->info.outage, sizeof n->info.outage, "%.255s", outage ? n->look.text : "");
}

// ---- Turns --------------------------------------------------------------------------------------

static void on_node_timer(uv_timer_t *);

static void node_plan_look(struct node *n, uint64_t ms) {
    if (n->is_closing || uv_is_closing((uv_handle_t *)&n->timer))
        return;
    uv_timer_start(&n->timer, on_node_timer, ms, 0);
}

static void node_look_within(struct node *n, uint64_t ms) {
    if (!n->is_looking && uv_timer_get_due_in(&n->timer) > ms)
        node_plan_look(n, ms);
}

static void node_look_soon(struct node *n) {
    n->looks_again = n->is_looking;
    if (!n->is_looking)
        node_plan_look(n, 0);
}

// After the first answer, a store that is not replicated any more is refused by node_may_open only.
static int node_read_promise(struct node *n) {
    bool is_first = !n->promise.text[0];
    if (!n->look.asks_promise) {
        n->promise_looks -= n->promise_looks > 0;
        return 0;
    }
    node_set_promise(n, &n->look.promise);
    n->promise_looks = PROMISE_LOOKS - 1;
    return is_first ? node_check_promise(n, &n->promise) : 0;
}

// A node joins with its first look. Later, nodes of other versions are those that are refused.
static int node_check_join(struct node *n) {
    const struct node_seen *other = cluster_seen_other_version(&n->seen, n->takeover_ms);
    if (n->has_joined || !other)
        n->has_joined = true;
    else
        return error_set(MR_EINVAL,
                         "node %s runs millrace %s, which links with version %" PRIu32
                         ", this one with version %d: run the same release on all nodes",
                         other->address, other->version, other->link_version, LINK_VERSION);
    return 0;
}

// Returns when to look again.
static uint64_t node_decide(struct node *n) {
    const struct look *l = &n->look;
    bool failed = l->result < 0 && l->result != MR_ENET && l->result != MR_EFULL;
    if (failed && !n->is_stopping && !node_disbelieves(n, &n->wrong_since_ms)) {
        server_fail_node(n->running, error_set(l->result, "%s", l->text));
        return LOOK_MS;
    }
    int err = l->result == STREAM_DONE ? check_known_ends(n) : MR_ENET;
    if (l->result == STREAM_DONE && err < 0)
        snprintf(n->look.text, sizeof n->look.text, "%s", error_text());
    node_note_outage(n, err == MR_ENET);
    if (err == MR_ENET)
        return LOOK_MS;
    n->seen = l->seen;
    n->is_drained = l->is_drained;
    n->change_count -= l->change_count; // others may have come meanwhile
    memmove(n->changes, n->changes + l->change_count, n->change_count * sizeof *n->changes);
    if (n->seen.foreign_ids)
        server_set_foreign_ids(n->running);
    if (err == 0)
        err = node_check_join(n);
    if (err == 0)
        err = node_read_promise(n);
    if (err < 0) {
        server_fail_node(n->running, err);
        return LOOK_MS;
    }
    return node_follow_plan(n) ? LOOK_SOON_MS : LOOK_MS;
}

static void on_node_looked(uv_work_t *work, int status) {
    struct node *n = work->data;
    (void)status; // it is never cancelled
    n->is_looking = false;
    if (n->is_closing)
        return;
    uint64_t ms = node_decide(n);
    node_plan_look(n, n->looks_again ? 0 : ms);
    n->looks_again = false;
}

static void node_prepare_look(struct node *n) {
    struct look *l = &n->look;
    bool draining = n->is_stopping || n->is_drained;
    snprintf(l->key, sizeof l->key, "node %s", n->address);
    uint64_t opening = 0, leaving = 0;
    for (uint32_t i = 0; i < n->cluster.shards; i++) {
        opening |= (uint64_t)n->shard[i].is_opening << i;
        leaving |= (uint64_t)n->shard[i].is_leaving << i;
    }
    snprintf(l->value, sizeof l->value, "%s %s %s %" PRIx64 " %" PRIx64 " %d",
             n->http[0] ? n->http : "-", mr_version(), draining ? "draining" : "serving", opening,
             leaving, LINK_VERSION);
    memcpy(l->changes, n->changes, sizeof l->changes);
    l->change_count = n->change_count;
    l->asks_promise = n->promise_looks == 0;
    l->seen.shards = n->cluster.shards;
    for (uint32_t i = 0; i < n->cluster.shards; i++)
        l->known_ends[i] = atomic_load(&n->known_ends[i]);
}

static void on_node_timer(uv_timer_t *timer) {
    struct node *n = timer->data;
    if (n->is_looking || n->is_closing)
        return;
    node_prepare_look(n);
    n->work.data = n;
    n->is_looking = uv_queue_work(timer->loop, &n->work, node_look_at_store, on_node_looked) == 0;
}

// ---- The server ---------------------------------------------------------------------------------

static int on_change_note(void *arg, const char *key, const char *value);

// A drained node is drained until it is restarted.
static int node_end_drain(struct node *n) {
    char key[NODE_ADDRESS + 16];
    snprintf(key, sizeof key, "drain %s", n->address);
    return on_change_note(n, key, "");
}

static int on_started(void *arg, struct server *server, struct uv_loop_s *loop, uint16_t port,
                      uint16_t http_port) {
    struct node *n = arg;
    int err = node_set_address(n, port, http_port);
    if (err < 0)
        return err;
    n->running = server;
    n->port = port;
    uv_timer_init(loop, &n->timer);
    n->timer.data = n;
    node_plan_look(n, 0);
    return node_end_drain(n);
}

static void node_report_serving(struct node *n, uint32_t shard) {
    const struct server_options *o = &n->server;
    snprintf(n->shard[shard].owner, NODE_ADDRESS, "%s", n->address);
    if (server_has_foreign_ids(n->running) && !n->seen.foreign_ids)
        (void)on_change_note(n, "foreign", "1"); // if there are too many, the next opening does it
    if (n->cluster.shards > 1)
        notice(NOTICE_INFO, "shard %" PRIu32 ": this node owns it", shard);
    else if (o->on_ready)
        o->on_ready(o->arg, o->host, n->port, true);
    node_set_ready(n);
}

static void on_shard(void *arg, uint32_t shard, enum shard_event event, int err, const char *text) {
    struct node *n = arg;
    bool waits = err == MR_EBUSY || err == MR_ESTOPPED || err == MR_ENET || err == MR_EFULL ||
                 err == MR_ENOMEM || err == MR_ECANCELLED;
    if (event != SHARD_MOVED && event != SHARD_IS_FREE)
        n->shard[shard].is_opening = n->shard[shard].is_leaving = false;
    n->shard[shard].is_here = event == SHARD_SERVES;
    if (event == SHARD_SERVES)
        n->shard[shard].wrong_since_ms = 0;
    if (event == SHARD_NOT_OPENED && !waits)
        waits = node_disbelieves(n, &n->shard[shard].wrong_since_ms);
    if (event == SHARD_SERVES)
        node_report_serving(n, shard);
    else if (event == SHARD_LEFT || event == SHARD_LOST || event == SHARD_NOT_OPENED)
        n->shard[shard].owner[0] = 0;
    if (event == SHARD_LOST)
        notice(NOTICE_WARN, "shard %" PRIu32 " is lost: %s", shard, text);
    else if (event == SHARD_NOT_OPENED && waits && !n->is_stopping)
        notice(NOTICE_WARN, "shard %" PRIu32 " was not opened: %s", shard, text);
    else if (event == SHARD_NOT_OPENED && !n->is_stopping)
        server_fail_node(n->running, error_set(err, "%s", text));
    if (n->is_closing)
        return;
    // Its owner may not have left it yet; and what was not opened is not tried again at once.
    if (event == SHARD_MOVED || event == SHARD_NOT_OPENED)
        node_look_within(n, LOOK_SOON_MS);
    else
        node_look_soon(n);
}

static void on_stopping(void *arg) {
    struct node *n = arg;
    if (n->is_stopping)
        return;
    n->is_stopping = true;
    if (n->running)
        node_look_soon(n); // so that the others see that it drains
}

static void on_closing(void *arg) {
    struct node *n = arg;
    n->is_closing = true;
    n->is_interrupted = n->is_looking;
    if (n->is_interrupted)
        board_interrupt(n->board);
}

// ---- What operators want ------------------------------------------------------------------------

static int on_change_note(void *arg, const char *key, const char *value) {
    struct node *n = arg;
    if (n->change_count == CHANGES_MOST)
        return error_set(MR_EFULL, "too many changes are under way: try again in a second");
    struct note_change *w = &n->changes[n->change_count++];
    snprintf(w->key, sizeof w->key, "%s", key);
    snprintf(w->value, sizeof w->value, "%s", value);
    node_look_soon(n);
    return 0;
}

// ---- Start and end ------------------------------------------------------------------------------

static volatile sig_atomic_t was_signalled;

static void on_early_signal(int number) {
    was_signalled = number;
}

// The store has to say how many shards it has before clients can be served: one that does not
// answer is waited for. MR_ECANCELLED: a signal ends the wait.
static int node_find_shards(struct node *n) {
    struct sigaction ours = { .sa_handler = on_early_signal }, before[2];
    sigaction(SIGINT, &ours, &before[0]);
    sigaction(SIGTERM, &ours, &before[1]);
    bool reported = false;
    int err;
    while ((err = stream_store_shards(&n->server.store_url, &n->cluster.shards)) == MR_ENET &&
           !was_signalled) {
        if (!reported)
            notice(NOTICE_WARN, "%s; trying again", error_text());
        reported = true;
        uv_sleep(LOOK_MS);
    }
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    if (was_signalled)
        return error_set(MR_ECANCELLED, "stopped before the store has answered");
    if (err == 0 && n->cluster.shards > SERVER_SHARDS)
        err = error_set(MR_EINVAL, "the cluster has %u shards: a node can serve at most %d",
                        n->cluster.shards, SERVER_SHARDS);
    if (err == 0 && n->server.shards && n->server.shards != n->cluster.shards)
        err = error_set(MR_EINVAL, "the cluster has %u shard%s, not %u", n->cluster.shards,
                        n->cluster.shards == 1 ? "" : "s", n->server.shards);
    return err;
}

static int node_check_start(struct node *n) {
    if (!n->options->requires_replication)
        return 0;
    int err = board_promise(n->board, &n->look.promise);
    if (err > 0)
        return 0; // it does not answer now
    return err < 0 ? err : node_check_promise(n, &n->look.promise);
}

static void node_prepare(struct node *n) {
    const char *cluster = n->server.store_url.cluster;
    n->takeover_ms = n->options->takeover_ms ? n->options->takeover_ms : NODE_TAKEOVER_MS;
    n->server.max_unowned_ms = n->takeover_ms * 3 / 5;
    n->server.stream.beat_ms = (uint32_t)(n->takeover_ms / 5);
    n->server.stream.max_unowned_ms = n->server.max_unowned_ms;
    n->server.stream.owner = n->own;
    n->server.stream.known_ends = n->known_ends;
    n->cluster.started = on_started;
    n->cluster.changed = on_shard;
    n->cluster.stopping = on_stopping;
    n->cluster.closing = on_closing;
    n->cluster.arg = n;
    n->server.cluster = &n->cluster;
    n->info = (struct host_node){ .cluster = cluster ? cluster : STORE_CLUSTER,
                                  .address = n->address,
                                  .secret = n->seen.secret,
                                  .promise = n->promise.text,
                                  .seen = &n->seen,
                                  .takeover_ms = n->takeover_ms,
                                  .change = on_change_note,
                                  .owned_ms = n->takeover_ms * 2 / 5,
                                  .arg = n };
    n->server.node = &n->info;
}

// Others need not wait until this node counts as lost.
static void node_leave(struct node *n) {
    char key[NODE_ADDRESS + 16];
    snprintf(key, sizeof key, "node %s", n->address);
    if (!n->address[0] || n->is_outage)
        return;
    if (n->is_interrupted) {
        board_close(n->board);
        n->board = NULL;
    }
    if ((!n->board && board_open(&n->server.store_url, &n->board) < 0) ||
        board_remove(n->board, key) != STREAM_DONE)
        notice(NOTICE_DEBUG, "the node is still listed: %s", error_text());
}

static void node_close(struct node *n) {
    board_close(n->board);
    mem_free(n);
}

int node_run(const struct node_options *options) {
    struct node *n = mem_alloc(sizeof *n);
    if (!n)
        return error_set(MR_ENOMEM, "no memory for a node");
    n->options = options;
    n->server = *options->server;
    node_prepare(n);
    int err = node_set_address(n, n->server.port, n->server.front_port);
    if (err == 0)
        err = node_find_shards(n);
    if (err == 0)
        err = board_open(&n->server.store_url, &n->board);
    if (err == 0)
        err = node_check_start(n);
    if (err == 0) {
        err = server_run(&n->server);
        char text[512];
        snprintf(text, sizeof text, "%s", error_text());
        node_leave(n);
        err = err < 0 ? error_set(err, "%s", text) : err;
    }
    node_close(n);
    return err == MR_ECANCELLED ? 0 : err;
}
