// Commands between the nodes of a cluster, and about them. The replies of CLUSTER are those of
// Redis where Redis has them, for clients that send commands to the owner of their slot.
#include "core/route.h"
#include "server/access.h"
#include "server/answer.h"
#include "server/cluster_view.h"
#include "server/command.h"
#include "server/loops.h"
#include "wire/code.h"
#include "wire/number.h"
#include "wire/replies.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// ---- LINK ---------------------------------------------------------------------------------------

// Takes the same time wherever the first difference is.
static bool is_secret(mr_bytes given, const char *secret) {
    size_t size = strlen(secret);
    uint8_t differs = given.size != size || !size;
    for (size_t i = 0; i < given.size && i < size; i++)
        differs |= ((const uint8_t *)given.data)[i] ^ (uint8_t)secret[i];
    return !differs;
}

// False: the error was replied.
static bool link_fits(struct session *s, const mr_bytes *words) {
    const struct host *h = s->host;
    uint64_t version = 0, shards = 0;
    bool numbers = number_parse(words[2], &version) == 0 && number_parse(words[4], &shards) == 0;
    if (numbers && version != LINK_VERSION)
        session_usage(s,
                      "this node links with version %d, the other one with %u: run the same "
                      "release of millrace on all nodes",
                      LINK_VERSION, (unsigned)version);
    else if (!bytes_equal(words[3], mr_str(h->node->cluster)))
        session_usage(s, "this is a node of cluster %s", h->node->cluster);
    else if (!numbers || shards != h->shards)
        session_usage(s, "this cluster has %u shard%s", h->shards, h->shards == 1 ? "" : "s");
    else
        return true;
    return false;
}

// The connection carries frames from now on (node_link.h).
void run_link(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    struct node_link *link;
    s->closing = true; // unless it succeeds
    if (!h->node || !h->loops || !h->loops->is_cluster) {
        session_usage(s, "this server is no node of a cluster");
        return;
    }
    if (!is_secret(a->words[1], h->node->secret)) {
        reply_error(&s->reply, code_name(CODE_WRONGPASS),
                    mr_str("that is not the secret of the nodes"));
        return;
    }
    if (!link_fits(s, a->words))
        return;
    if (node_link_create(s, NULL, &link) < 0) {
        session_usage(s, "there is no memory for a link");
        return;
    }
    s->closing = false;
    session_offer(s);
}

// ---- CLUSTER: slots -----------------------------------------------------------------------------

static uint32_t slot_first(const struct host *h, uint32_t shard) {
    return route_first_slot(h->shards, shard);
}

static uint32_t slot_last(const struct host *h, uint32_t shard) {
    return route_first_slot(h->shards, shard + 1) - 1;
}

// The node that clients send the commands of a shard to: its owner, or else this one, where they
// wait until it has one.
static void slot_node(const struct host *h, uint32_t shard, char out[NODE_ADDRESS]) {
    (void)cluster_view_shard(h, shard, out);
    if (!out[0])
        snprintf(out, NODE_ADDRESS, "%s", h->node->address);
}

static struct node_place node_place_of(const char *address) {
    struct node_place place = { 0 };
    (void)node_place_read(address, &place); // addresses were checked when they were read
    return place;
}

static void cluster_slots(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    struct reply *r = &s->reply;
    char address[NODE_ADDRESS], id[NODE_ID];
    (void)a;
    reply_array(r, h->shards);
    for (uint32_t i = 0; i < h->shards; i++) {
        slot_node(h, i, address);
        struct node_place place = node_place_of(address);
        node_id(address, id);
        reply_array(r, 3);
        reply_integer(r, slot_first(h, i));
        reply_integer(r, slot_last(h, i));
        reply_array(r, 3);
        reply_bulk(r, mr_str(place.host));
        reply_integer(r, place.port);
        reply_bulk(r, mr_str(id));
    }
}

static void write_pair(struct reply *r, const char *name, const char *value) {
    reply_bulk(r, mr_str(name));
    reply_bulk(r, mr_str(value));
}

// A node as CLUSTER SHARDS of Redis has it.
static void write_shard_node(struct reply *r, const char *address, enum shard_state state) {
    struct node_place place = node_place_of(address);
    char id[NODE_ID];
    node_id(address, id);
    reply_map(r, 7);
    write_pair(r, "id", id);
    reply_bulk(r, mr_str("port"));
    reply_integer(r, place.port);
    write_pair(r, "ip", place.host);
    write_pair(r, "endpoint", place.host);
    write_pair(r, "role", "master");
    reply_bulk(r, mr_str("replication-offset"));
    reply_integer(r, 0);
    write_pair(r, "health", state == SHARD_IS_OPENING ? "loading" : "online");
}

static void cluster_shards(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    struct reply *r = &s->reply;
    char owner[NODE_ADDRESS];
    (void)a;
    reply_array(r, h->shards);
    for (uint32_t i = 0; i < h->shards; i++) {
        enum shard_state state = cluster_view_shard(h, i, owner);
        reply_map(r, 2);
        reply_bulk(r, mr_str("slots"));
        reply_array(r, 2);
        reply_integer(r, slot_first(h, i));
        reply_integer(r, slot_last(h, i));
        reply_bulk(r, mr_str("nodes"));
        reply_array(r, owner[0] != 0);
        if (owner[0])
            write_shard_node(r, owner, state);
    }
}

static void cluster_keyslot(struct session *s, struct arguments *a) {
    reply_integer(&s->reply, route_slot(a->words[a->at]));
}

// ---- CLUSTER: texts -----------------------------------------------------------------------------

static void cluster_add_line(struct reply *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void cluster_add_line(struct reply *r, const char *format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    int size = vsnprintf(text, sizeof text, format, values);
    va_end(values);
    size = size < (int)sizeof text ? size : (int)sizeof text - 1;
    if (!r->err && size > 0)
        r->err = buffer_append(r->out, text, (size_t)size);
}

static void cluster_info(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    struct reply *r = &s->reply;
    uint32_t assigned = 0, size = 0;
    uint64_t epoch = 0, own_epoch = 0;
    char owner[NODE_ADDRESS];
    (void)a;
    for (uint32_t i = 0; i < h->shards; i++) {
        uint64_t of_shard = h->node->seen->shard[i].epoch;
        epoch = of_shard > epoch ? of_shard : epoch;
        if (cluster_view_shard(h, i, owner) != SHARD_IS_UNOWNED)
            assigned += slot_last(h, i) - slot_first(h, i) + 1;
    }
    for (uint32_t i = 0; i < h->node->seen->nodes; i++)
        size += cluster_view_count(h, h->node->seen->node[i].address, NULL) > 0;
    (void)cluster_view_count(h, h->node->address, &own_epoch);
    size_t begin = reply_bulk_begin(r);
    cluster_add_line(r, "cluster_enabled:1\r\n");
    cluster_add_line(r, "cluster_state:%s\r\n", assigned == ROUTE_SLOTS ? "ok" : "fail");
    cluster_add_line(r, "cluster_slots_assigned:%" PRIu32 "\r\n", assigned);
    cluster_add_line(r, "cluster_slots_ok:%" PRIu32 "\r\n", assigned);
    cluster_add_line(r, "cluster_slots_pfail:0\r\n");
    cluster_add_line(r, "cluster_slots_fail:%" PRIu32 "\r\n", ROUTE_SLOTS - assigned);
    cluster_add_line(r, "cluster_known_nodes:%" PRIu32 "\r\n", h->node->seen->nodes);
    cluster_add_line(r, "cluster_size:%" PRIu32 "\r\n", size);
    cluster_add_line(r, "cluster_current_epoch:%" PRIu64 "\r\n", epoch);
    cluster_add_line(r, "cluster_my_epoch:%" PRIu64 "\r\n", own_epoch);
    reply_bulk_end(r, begin);
}

// id host:port@port flags master ping pong epoch link slots
static void add_node_line(struct session *s, const struct node_seen *n) {
    const struct host *h = s->host;
    struct reply *r = &s->reply;
    struct node_place place = node_place_of(n->address);
    char id[NODE_ID], owner[NODE_ADDRESS];
    uint64_t epoch;
    bool alive = cluster_view_is_alive(h, n);
    node_id(n->address, id);
    (void)cluster_view_count(h, n->address, &epoch);
    cluster_add_line(r, "%s %s:%u@%u %smaster%s - 0 0 %" PRIu64 " %s", id, place.host, place.port,
                     place.port, cluster_view_is_self(h, n) ? "myself," : "", alive ? "" : ",fail",
                     epoch, alive ? "connected" : "disconnected");
    for (uint32_t i = 0; i < h->shards; i++) {
        (void)cluster_view_shard(h, i, owner);
        if (strcmp(owner, n->address) == 0)
            cluster_add_line(r, " %" PRIu32 "-%" PRIu32, slot_first(h, i), slot_last(h, i));
    }
    cluster_add_line(r, "\n");
}

static void cluster_nodes(struct session *s, struct arguments *a) {
    const struct cluster_seen *c = s->host->node->seen;
    (void)a;
    size_t begin = reply_bulk_begin(&s->reply);
    for (uint32_t i = 0; i < c->nodes; i++)
        add_node_line(s, &c->node[i]);
    reply_bulk_end(&s->reply, begin);
}

static void cluster_myid(struct session *s, struct arguments *a) {
    char id[NODE_ID];
    (void)a;
    node_id(s->host->node->address, id);
    reply_bulk(&s->reply, mr_str(id));
}

// ---- CLUSTER STATUS -----------------------------------------------------------------------------

static const char *node_state_name(const struct host *h, const struct node_seen *n) {
    return !cluster_view_is_alive(h, n) ? "lost" : n->is_draining ? "drains" : "serves";
}

static void write_nodes(void *arg) {
    struct session *s = arg;
    const struct host *h = s->host;
    const struct cluster_seen *c = h->node->seen;
    char id[NODE_ID];
    reply_array(&s->reply, c->nodes);
    for (uint32_t i = 0; i < c->nodes; i++) {
        const struct node_seen *n = &c->node[i];
        node_id(n->address, id);
        struct node_reply r = { .id = mr_str(id),
                                .address = mr_str(n->address),
                                .http = mr_str(n->http),
                                .version = mr_str(n->version),
                                .state = mr_str(node_state_name(h, n)),
                                .shards = cluster_view_count(h, n->address, NULL),
                                .age_ms = n->age_ms,
                                .here = cluster_view_is_self(h, n) };
        reply_write(&s->reply, &node_replies, &r);
    }
}

static void write_shards(void *arg) {
    struct session *s = arg;
    const struct host *h = s->host;
    char owner[NODE_ADDRESS];
    reply_array(&s->reply, h->shards);
    for (uint32_t i = 0; i < h->shards; i++) {
        const struct stream_state *of = &h->node->seen->shard[i];
        enum shard_state state = cluster_view_shard(h, i, owner);
        struct shard_reply r = { .shard = i,
                                 .first_slot = slot_first(h, i),
                                 .last_slot = slot_last(h, i),
                                 .owner = mr_str(owner),
                                 .state = mr_str(shard_state_name(state)),
                                 .epoch = of->epoch,
                                 .log_bytes = of->bytes,
                                 .age_ms = of->silent_ms,
                                 .moved_to = mr_str(h->node->seen->wanted[i]) };
        reply_write(&s->reply, &shard_replies, &r);
    }
}

static void cluster_status(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    (void)a;
    if (!access_role(s, ROLE_READ) || !access_all(s, "CLUSTER STATUS"))
        return;
    bool ok = cluster_view_count(h, "", NULL) == 0;
    struct cluster_reply r = { .cluster = mr_str(h->node->cluster),
                               .state = mr_str(ok ? "ok" : "fail"),
                               .nodes = { write_nodes, s, NULL },
                               .shards = { write_shards, s, NULL } };
    reply_write(&s->reply, &cluster_replies, &r);
}

// ---- CLUSTER: what an operator wants ------------------------------------------------------------

static void refuse_node(struct session *s, mr_bytes name) {
    const struct cluster_seen *c = s->host->node->seen;
    char list[400] = "";
    size_t size = 0;
    for (uint32_t i = 0; i < c->nodes && size + NODE_ADDRESS + 2 < sizeof list; i++)
        size += (size_t)snprintf(list + size, sizeof list - size, "%s%s", i ? ", " : "",
                                 c->node[i].address);
    session_usage(s, "there is no node '%.*s'; the nodes are %s",
                  (int)(name.size < 60 ? name.size : 60), (const char *)name.data, list);
}

// A node that is alive; NULL: the error was replied.
static const struct node_seen *node_named(struct session *s, mr_bytes name) {
    const struct node_seen *n = cluster_view_find(s->host, name);
    if (!n) {
        refuse_node(s, name);
        return NULL;
    }
    if (cluster_view_is_alive(s->host, n))
        return n;
    session_usage(
        s, "node %s has not written to the store for %" PRIu64 " s: its shards go to other nodes",
        n->address, n->age_ms / 1000);
    return NULL;
}

static bool may_change_cluster(struct session *s) {
    const struct host_node *n = s->host->node;
    if (!access_role(s, ROLE_ADMIN) || !access_all(s, "CLUSTER DRAIN and MOVE"))
        return false;
    if (!n->outage[0])
        return true;
    session_usage(s, "the store does not answer: %s; try again later", n->outage);
    return false;
}

static bool another_serves(const struct host *h, const struct node_seen *but) {
    const struct cluster_seen *c = h->node->seen;
    bool found = false;
    for (uint32_t i = 0; i < c->nodes; i++)
        found = found || (&c->node[i] != but && !c->node[i].is_draining &&
                          cluster_view_is_alive(h, &c->node[i]));
    return found;
}

static void cluster_drain(struct session *s, struct arguments *a) {
    const struct host_node *node = s->host->node;
    char key[NODE_ADDRESS + 16];
    const struct node_seen *n = NULL;
    if (may_change_cluster(s))
        n = node_named(s, a->words[a->at]);
    if (!n)
        return;
    if (!another_serves(s->host, n)) {
        session_usage(s,
                      "no other node serves, so the shards of %s stay there: start another one "
                      "first",
                      n->address);
        return;
    }
    snprintf(key, sizeof key, "drain %s", n->address);
    answer_ok(s, node->change(node->arg, key, "1"));
}

static bool read_shard(struct session *s, mr_bytes word, uint32_t *out) {
    uint64_t shard;
    if (number_parse(word, &shard) == 0 && shard < s->host->shards) {
        *out = (uint32_t)shard;
        return true;
    }
    session_usage(s, "there is no shard '%.*s'; the shards are 0 to %" PRIu32,
                  (int)(word.size < 60 ? word.size : 60), (const char *)word.data,
                  s->host->shards - 1);
    return false;
}

static void cluster_move(struct session *s, struct arguments *a) {
    const struct host_node *node = s->host->node;
    mr_bytes to = a->words[a->at + 1];
    const struct node_seen *n = NULL;
    uint32_t shard;
    char key[32];
    bool any = word_is(to, "ANY");
    if (!may_change_cluster(s) || !read_shard(s, a->words[a->at], &shard))
        return;
    if (!any && !(n = node_named(s, to)))
        return;
    if (n && n->is_draining) {
        session_usage(s, "node %s drains: restart it to give it shards again", n->address);
        return;
    }
    snprintf(key, sizeof key, "move %" PRIu32, shard);
    answer_ok(s, node->change(node->arg, key, n ? n->address : ""));
}

// ---- CLUSTER ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    uint32_t arguments;
    void (*run)(struct session *, struct arguments *);
} subcommands[] = {
    { "STATUS", 0, cluster_status },   { "SLOTS", 0, cluster_slots },
    { "SHARDS", 0, cluster_shards },   { "NODES", 0, cluster_nodes },
    { "INFO", 0, cluster_info },       { "MYID", 0, cluster_myid },
    { "KEYSLOT", 1, cluster_keyslot }, { "DRAIN", 1, cluster_drain },
    { "MOVE", 2, cluster_move },
};

void run_cluster(struct session *s, struct arguments *a) {
    const struct host *h = s->host;
    mr_bytes word = a->words[a->at++];
    if (!h->node || !h->loops || !h->loops->is_cluster) {
        session_usage(s, "this server is no node of a cluster: it has all shards, and a node has a "
                         "store that several servers share, such as postgres://");
        return;
    }
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (!word_is(word, subcommands[i].name) || a->count - a->at != subcommands[i].arguments)
            continue;
        subcommands[i].run(s, a);
        return;
    }
    session_usage(s, "syntax: CLUSTER %s", command_row(mr_str("CLUSTER"))->syntax);
}
