// See links.h. What was accepted in a turn is acknowledged when that turn is durable; what was
// accepted since then waits for the next acknowledgement.
#include "server/links.h"

#include "base/mem.h"

enum { AHEAD = 1024, REST_MS = 100 };

struct link {
    uint64_t sent;      // the last number that was accepted …
    uint64_t sent_turn; // … and when
    uint32_t ahead;     // how many of them are not acknowledged
    struct {
        uint64_t turn; // 0: none is under way
        uint64_t upto;
        uint32_t count;
    } ack;
};

struct links {
    uint64_t turn;        // that was durable when they were pumped last
    uint64_t rests_until; // after a failure: engine time; 0: none
    struct link link[];   // from each shard to each
};

struct links *links_create(uint32_t shards) {
    return mem_alloc(sizeof(struct links) + (size_t)shards * shards * sizeof(struct link));
}

void links_destroy(struct links *l) {
    mem_free(l);
}

static bool any_left(const struct host *h) {
    uint64_t left = 0;
    for (uint32_t i = 0; i < h->shards; i++)
        left += core_links(h->parts[i].core);
    return left > 0;
}

bool links_can_move(struct host *h) {
    const struct links *l = h->links;
    return host_now_ms(h) >= l->rests_until && any_left(h) && host_durable_turn(h) > l->turn;
}

int64_t links_next_ms(const struct host *h) {
    uint64_t now = host_now_ms(h), until = h->links->rests_until;
    return until > now ? (int64_t)(until - now) : -1;
}

static int acknowledge(struct host *h, uint32_t from, uint32_t to, struct link *l) {
    if (!l->ack.turn || l->ack.turn > h->links->turn)
        return 0;
    int err = core_link_acked(h->parts[from].core, to, l->ack.upto);
    if (err < 0)
        return err;
    l->ahead -= l->ack.count;
    l->ack.turn = 0;
    return 0;
}

// The one before it never came: what was sent begins anew at the oldest.
static void begin_again(struct link *l) {
    *l = (struct link){ 0 };
}

static int send_one(struct host *h, uint32_t from, uint32_t to, const struct link_entry *e) {
    buffer_clear(&h->scratch);
    int err = shard_read(h->parts[from].shard, e->at, &h->scratch);
    return err < 0 ? err : core_link_accept(h->parts[to].core, from, e, buffer_bytes(&h->scratch));
}

static int send(struct host *h, uint32_t from, uint32_t to, uint64_t durable_at, struct link *l) {
    struct link_entry e;
    int err = 0;
    while (l->ahead < AHEAD && core_link_next(h->parts[from].core, to, l->sent, &e) &&
           e.at < durable_at) {
        err = send_one(h, from, to, &e);
        if (err < 0)
            break;
        l->sent = e.number;
        l->sent_turn = h->turn + 1; // this one
        l->ahead++;
    }
    core_link_arrived(h->parts[from].core, to, l->sent);
    if (err == MR_EGAP)
        begin_again(l);
    return err;
}

// What was accepted before an earlier acknowledgement may be durable by now as well: nobody would
// come back for it.
static int carry(struct host *h, uint32_t from, uint32_t to, uint64_t durable_at) {
    struct link *l = &h->links->link[from * h->shards + to];
    int err = acknowledge(h, from, to, l);
    if (err == 0)
        err = send(h, from, to, durable_at, l);
    if (!l->ahead || l->ack.turn)
        return err;
    l->ack.turn = l->sent_turn;
    l->ack.upto = l->sent;
    l->ack.count = l->ahead;
    int acked = acknowledge(h, from, to, l);
    return err < 0 ? err : acked;
}

static int pump_from(struct host *h, uint32_t from) {
    struct log_state log;
    shard_look(h->parts[from].shard, &log);
    int first_err = 0;
    for (uint32_t to = 0; to < h->shards; to++) {
        int err = to == from ? 0 : carry(h, from, to, log.durable);
        first_err = first_err ? first_err : err;
    }
    return first_err;
}

// What cannot be carried now is tried again a while later.
void links_pump(struct host *h) {
    struct links *l = h->links;
    if (!links_can_move(h))
        return;
    l->turn = host_durable_turn(h);
    int err = 0;
    for (uint32_t from = 0; from < h->shards; from++)
        if (core_links(h->parts[from].core))
            err = pump_from(h, from) < 0 ? -1 : err;
    l->rests_until = err < 0 ? host_now_ms(h) + REST_MS : 0;
    l->turn = err < 0 ? 0 : l->turn;
}
