// See nodes_history.h.
#include "support/nodes_history.h"

#include "core/route.h"
#include "server/answer.h"
#include "wire/number.h"
#include "wire/request.h"
#include "wire/response.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAGES = 6, KEYS = 4, NO_KEY = -1, PRODUCERS = 4, WORKERS = 6, CALLERS = 2 };
enum { CLIENTS = 1 + PRODUCERS + WORKERS + CALLERS, FIRST_WORKER = 1 + PRODUCERS };
enum { FIRST_CALLER = FIRST_WORKER + WORKERS };
enum { PIECES = 1200, COMMITS = 4000, EXPECTED = 32, HELD = 4, EMITS = 3 };
enum { STEPS = 2500, DRAIN_STEPS = 40000, QUIET_STEPS = 1500, VALUES = 512 };

// A job that was pushed, emitted or called.
struct piece {
    int stage, key;
    uint64_t group, order; // jobs of a group start in their order; group 0: none
    int commit;            // that has emitted it; -1: it was pushed
    bool is_call, acked, refused, begun, done, maybe_done, ended;
    uint64_t id, done_serial;
    uint32_t fails, most_attempts;
};

// A DONE.
struct commit {
    int piece, first, count;
    uint64_t serial, id;
    char token[48];
    enum { COMMIT_SENT, COMMIT_OK, COMMIT_REFUSED, COMMIT_UNKNOWN } state;
};

struct expected {
    enum {
        EXPECT_OK,
        EXPECT_PUSH,
        EXPECT_TAKE,
        EXPECT_DONE,
        EXPECT_END,
        EXPECT_BEAT,
        EXPECT_CALL
    } kind;
    int piece, commit;
};

struct held_job {
    int piece; // -1: none
    uint64_t id, serial;
    char token[48];
};

struct client {
    int index;
    struct sim_wire *wire; // NULL: not connected
    uint64_t connection;   // how many it had
    uint64_t connect_at_ms;
    struct buffer in;
    struct expected expected[EXPECTED];
    int expected_count;
    bool takes;
    struct held_job held[HELD];
    int again[64]; // numbers of a source, or commits, to be sent again, in order
    int again_count;
    uint64_t numbered;
    uint64_t order;
};

struct history {
    struct sim_nodes *nodes;
    const struct nodes_plan *plan;
    struct nodes_reached *reached;
    bool calm;       // no faults but shards that are handed over
    bool forgets;    // ended jobs are forgotten soon, so logs are trimmed often
    uint32_t faults; // which ones
    bool draining;   // everything is to end
    char stages[STAGES][16];
    struct piece pieces[PIECES];
    int piece_count;
    struct commit commits[COMMITS];
    int commit_count;
    struct client clients[CLIENTS];
};

static uint64_t roll(struct history *h, uint64_t below) {
    return sim_nodes_roll(h->nodes, below);
}

#define wrong(h, ...) sim_nodes_fail((h)->nodes, __VA_ARGS__)

// ---- Requests -----------------------------------------------------------------------------------

static void client_send(struct history *h, struct client *c, struct expected e, const char *text) {
    mr_bytes words[64];
    uint32_t count = 0;
    struct buffer request = { 0 };
    for (const char *at = text; *at;) {
        size_t size = strcspn(at, " ");
        words[count++] = (mr_bytes){ at, size };
        at += size + (at[size] == ' ');
    }
    int err = request_write(&request, words, count);
    assert(err == 0 && c->expected_count < EXPECTED);
    c->expected[c->expected_count++] = e;
    sim_nodes_note(h->nodes, "client %d: %s", c->index, text);
    sim_wire_send(c->wire, buffer_bytes(&request));
    buffer_finish(&request);
}

static const char *key_name(int key) {
    static const char *const names[] = { "", "k0", "k1", "k2", "k3" };
    return names[key + 1];
}

static void piece_push(struct history *h, struct client *c, int n) {
    const struct piece *p = &h->pieces[n];
    char text[200], source[64] = "", key[16] = "";
    if (c->index % 2 == 0)
        snprintf(source, sizeof source, " SOURCE p%d-%d %" PRIu64, c->index, p->stage, p->order);
    if (p->key != NO_KEY)
        snprintf(key, sizeof key, " KEY %s", key_name(p->key));
    snprintf(text, sizeof text, "%s %s %d%s%s", p->is_call ? "CALL" : "PUSH", h->stages[p->stage],
             n, key, p->is_call ? "" : source);
    client_send(h, c, (struct expected){ p->is_call ? EXPECT_CALL : EXPECT_PUSH, n, -1 }, text);
}

static int piece_make(struct history *h, int stage, int key) {
    int n = h->piece_count++;
    h->pieces[n] = (struct piece){ .stage = stage, .key = key, .commit = -1 };
    return n;
}

// In flows all jobs have keys, so that all have an order.
static int roll_key(struct history *h) {
    return h->plan->flows ? (int)roll(h, KEYS) : (int)roll(h, KEYS + 1) - 1;
}

static bool may_make(const struct history *h) {
    return !h->draining && h->piece_count < PIECES - 8;
}

// ---- Producers and callers ----------------------------------------------------------------------

// A numbered source numbers the pushes to each stage from 1, so a producer has one stage then.
static int producer_stage(struct history *h, const struct client *c) {
    if (h->plan->flows)
        return c->index % 2;
    return c->index % 2 == 0 ? c->index % STAGES : (int)roll(h, STAGES);
}

static void producer_push(struct history *h, struct client *c) {
    bool numbered = c->index % 2 == 0;
    int n = piece_make(h, producer_stage(h, c), roll_key(h));
    struct piece *p = &h->pieces[n];
    p->order = ++c->numbered;
    if (p->key != NO_KEY)
        p->group = (uint64_t)(c->index + 1) << 48 | (numbered ? 0 : c->connection) << 16 |
                   (uint64_t)(p->stage * KEYS + p->key);
    piece_push(h, c, n);
}

static void producer_act(struct history *h, struct client *c) {
    if (c->again_count && c->expected_count < EXPECTED - 1) {
        piece_push(h, c, c->again[0]);
        memmove(c->again, c->again + 1, (size_t)--c->again_count * sizeof *c->again);
        return;
    }
    bool goes_on = may_make(h) && (!h->plan->flows || roll(h, 12) == 0);
    for (int i = 0; goes_on && may_make(h) && i < 3 && c->expected_count < 12 && roll(h, 2); i++)
        producer_push(h, c);
}

static void caller_act(struct history *h, struct client *c) {
    if (c->expected_count || !may_make(h) || h->plan->flows || roll(h, 10))
        return;
    int n = piece_make(h, (int)roll(h, STAGES), roll_key(h));
    h->pieces[n].is_call = true;
    piece_push(h, c, n);
}

// ---- Workers ------------------------------------------------------------------------------------

static void send_commit(struct history *h, struct client *c, int number) {
    const struct commit *k = &h->commits[number];
    char text[512];
    int used =
        snprintf(text, sizeof text, "DONE %" PRIu64 " %s RESULT r%d", k->id, k->token, k->piece);
    for (int i = k->first; i < k->first + k->count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " EMIT %s %s %d",
                         h->stages[h->pieces[i].stage], key_name(h->pieces[i].key), i);
    client_send(h, c, (struct expected){ EXPECT_DONE, k->piece, number }, text);
}

// Stages of higher numbers follow, so that flows end.
static void emit_some(struct history *h, struct commit *k, int number) {
    const struct piece *p = &h->pieces[k->piece];
    int emits = p->stage < STAGES - 1 && may_make(h) ? (int)roll(h, EMITS) + h->plan->flows : 0;
    k->first = h->piece_count;
    for (int i = 0; i < emits; i++) {
        int stage = p->stage + 1 + (int)roll(h, (uint64_t)(STAGES - 1 - p->stage));
        // An empty key is no word of the text that is sent.
        int n = piece_make(h, stage, (int)roll(h, KEYS));
        struct piece *child = &h->pieces[n];
        child->commit = number;
        child->order = k->serial * 8 + (uint64_t)i;
        if (p->key != NO_KEY)
            child->group = UINT64_C(1) << 63 | (uint64_t)(p->stage * KEYS + p->key) << 16 |
                           (uint64_t)(child->stage * KEYS + child->key);
        k->count++;
    }
}

static void commit_job(struct history *h, struct client *c, struct held_job *j) {
    if (h->commit_count == COMMITS)
        return;
    int number = h->commit_count++;
    struct commit *k = &h->commits[number];
    *k = (struct commit){ .piece = j->piece, .serial = j->serial, .id = j->id };
    snprintf(k->token, sizeof k->token, "%s", j->token);
    emit_some(h, k, number);
    send_commit(h, c, number);
    j->piece = -1;
}

static void end_job(struct history *h, struct client *c, struct held_job *j) {
    uint64_t what = roll(h, h->draining ? 16 : 12);
    char text[200];
    if (what == 0) {
        snprintf(text, sizeof text, "BEAT %" PRIu64 " %s", j->id, j->token);
        client_send(h, c, (struct expected){ EXPECT_BEAT, j->piece, -1 }, text);
    } else if (what == 1) {
        snprintf(text, sizeof text, "RELEASE %" PRIu64 " %s", j->id, j->token);
        client_send(h, c, (struct expected){ EXPECT_END, j->piece, -1 }, text);
        j->piece = -1;
    } else if (what == 2) {
        snprintf(text, sizeof text, "FAIL %" PRIu64 " %s no RETRY 20", j->id, j->token);
        client_send(h, c, (struct expected){ EXPECT_END, j->piece, -1 }, text);
        h->pieces[j->piece].fails++;
        j->piece = -1;
    } else {
        commit_job(h, c, j);
    }
}

static int count_held(const struct client *c) {
    int count = 0;
    for (int i = 0; i < HELD; i++)
        count += c->held[i].piece >= 0;
    return count;
}

static void send_take(struct history *h, struct client *c) {
    char text[200] = "TAKE";
    int first = (int)roll(h, STAGES), count = 1 + (int)roll(h, STAGES);
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), 20, " %s", h->stages[(first + i) % STAGES]);
    snprintf(text + strlen(text), 64, " COUNT %d LEASE 3000000",
             1 + (int)roll(h, (uint64_t)(HELD - count_held(c))));
    if (roll(h, 3))
        snprintf(text + strlen(text), 32, " WAIT %d", 20 + (int)roll(h, 1000));
    client_send(h, c, (struct expected){ EXPECT_TAKE, -1, -1 }, text);
    c->takes = true;
}

static void worker_act(struct history *h, struct client *c) {
    if (c->again_count && c->expected_count < 8) {
        h->reached->repeats++;
        send_commit(h, c, c->again[--c->again_count]);
        return;
    }
    for (int i = 0; i < HELD; i++)
        if (c->held[i].piece >= 0 && c->expected_count < 8 && roll(h, 4) == 0)
            end_job(h, c, &c->held[i]);
    if (!c->takes && c->expected_count < 8 && count_held(c) < HELD && roll(h, 3) == 0)
        send_take(h, c);
}

// ---- Replies ------------------------------------------------------------------------------------

static uint64_t number_of(mr_bytes text) {
    uint64_t number = 0;
    return number_parse(text, &number) == 0 ? number : UINT64_MAX;
}

static bool is_code(const struct response_value *v, const char *code) {
    return v->type == RESPONSE_ERROR && v->bytes.size >= strlen(code) &&
           memcmp(v->bytes.data, code, strlen(code)) == 0;
}

static void piece_has_id(struct history *h, int n, uint64_t id) {
    struct piece *p = &h->pieces[n];
    if (p->id && p->id != id)
        wrong(h, "number %d has the ids %" PRIu64 " and %" PRIu64, n, p->id, id);
    for (int i = 0; !p->id && i < h->piece_count; i++)
        if (h->pieces[i].id == id)
            wrong(h, "numbers %d and %d have the id %" PRIu64, i, n, id);
    if (route_of_id(SIM_SHARDS, id) != route_of(SIM_SHARDS, mr_str(h->stages[p->stage])))
        wrong(h, "number %d has id %" PRIu64 ", which is not of its shard", n, id);
    p->id = id;
}

static void receive_push(struct history *h, int n, const struct response_value *v) {
    struct piece *p = &h->pieces[n];
    if (v->type == RESPONSE_BULK) {
        piece_has_id(h, n, number_of(v->bytes));
        p->acked = true;
    } else if (v->type == RESPONSE_NULL && h->forgets && p->begun) {
        p->acked = true; // a repeat of a push whose job has ended and was forgotten
    } else if (is_code(v, "STOPPED") && !h->calm) {
        p->refused = true;
    } else {
        wrong(h, "PUSH of %d gets '%.*s'", n, (int)v->bytes.size, (const char *)v->bytes.data);
    }
}

static void receive_call(struct history *h, int n, const struct response_value *v) {
    struct piece *p = &h->pieces[n];
    char result[16];
    snprintf(result, sizeof result, "r%d", n);
    p->ended = true;
    if (v->type == RESPONSE_BULK &&
        (v->bytes.size != strlen(result) || memcmp(v->bytes.data, result, v->bytes.size) != 0))
        wrong(h, "CALL of %d gets the result '%.*s'", n, (int)v->bytes.size,
              (const char *)v->bytes.data);
    if (v->type != RESPONSE_BULK && !(is_code(v, "STOPPED") && !h->calm))
        wrong(h, "CALL of %d gets '%.*s'", n, (int)v->bytes.size, (const char *)v->bytes.data);
}

static void expect_order(struct history *h, int n) {
    const struct piece *p = &h->pieces[n];
    for (int i = 0; p->group && !p->refused && i < h->piece_count; i++) {
        const struct piece *q = &h->pieces[i];
        if (q->group == p->group && q->begun && !q->refused && q->order > p->order)
            wrong(h, "number %d begins after number %d, which came later", n, i);
    }
}

static void expect_emitted(struct history *h, int n) {
    const struct piece *p = &h->pieces[n];
    if (p->commit < 0)
        return;
    const struct commit *k = &h->commits[p->commit];
    struct piece *parent = &h->pieces[k->piece];
    if (k->state == COMMIT_REFUSED)
        wrong(h, "number %d was emitted by a DONE that was refused", n);
    if (parent->done && parent->done_serial != k->serial)
        wrong(h, "number %d was emitted by another DONE of %d than the one that counts", n,
              k->piece);
}

static void receive_job(struct history *h, struct client *c, const struct response_value *v) {
    int n = (int)number_of(v[5].bytes);
    struct token token;
    if (n < 0 || n >= h->piece_count || token_read(v[2].bytes, &token) < 0) {
        wrong(h, "TAKE gets no job of this history");
        return;
    }
    struct piece *p = &h->pieces[n];
    uint64_t attempt = (uint64_t)v[6].integer;
    sim_nodes_note(h->nodes, "client %d takes number %d, id %" PRIu64 ", attempt %" PRIu64,
                   c->index, n, number_of(v[1].bytes), attempt);
    if (!bytes_equal(v[3].bytes, mr_str(h->stages[p->stage])))
        wrong(h, "number %d is in stage %.*s", n, (int)v[3].bytes.size,
              (const char *)v[3].bytes.data);
    piece_has_id(h, n, number_of(v[1].bytes));
    if (p->done && token.serial > p->done_serial)
        wrong(h, "number %d is taken again after its DONE", n);
    if (h->calm && attempt > p->fails + 1)
        wrong(h, "number %d has attempt %" PRIu64 " after %u failures", n, attempt, p->fails);
    expect_emitted(h, n);
    if (!p->begun)
        expect_order(h, n);
    p->begun = true;
    for (int i = 0; i < HELD; i++)
        if (c->held[i].piece < 0) {
            c->held[i] = (struct held_job){ .piece = n, .id = p->id, .serial = token.serial };
            snprintf(c->held[i].token, sizeof c->held[i].token, "%.*s", (int)v[2].bytes.size,
                     (const char *)v[2].bytes.data);
            return;
        }
    wrong(h, "TAKE gets more jobs than it wants");
}

static void receive_take(struct history *h, struct client *c, const struct response_value *v) {
    c->takes = false;
    if (is_code(v, "STOPPED") && !h->calm)
        return;
    if (v->type != RESPONSE_ARRAY) {
        wrong(h, "TAKE gets '%.*s'", (int)v->bytes.size, (const char *)v->bytes.data);
        return;
    }
    uint32_t at = 1;
    for (uint32_t i = 0; i < v->count && !h->nodes->failure[0]; i++, at = response_skip(v, at))
        receive_job(h, c, v + at);
}

static void commit_is_done(struct history *h, struct commit *k) {
    struct piece *p = &h->pieces[k->piece];
    if (p->done && p->done_serial != k->serial)
        wrong(h, "number %d is done twice", k->piece);
    p->done = true;
    p->done_serial = k->serial;
    k->state = COMMIT_OK;
    h->reached->done++;
    for (int i = k->first; i < k->first + k->count; i++) {
        h->pieces[i].acked = true;
        h->reached->linked += h->pieces[i].stage % SIM_SHARDS != p->stage % SIM_SHARDS;
    }
    h->reached->emitted += (uint64_t)k->count;
}

static void receive_done(struct history *h, struct commit *k, const struct response_value *v) {
    bool refused = is_code(v, "STALE") || is_code(v, "GONE");
    bool forgotten = h->forgets && is_code(v, "GONE");
    if (v->type == RESPONSE_SIMPLE) {
        commit_is_done(h, k);
    } else if (forgotten || (is_code(v, "STOPPED") && !h->calm)) {
        k->state = COMMIT_UNKNOWN;
        h->pieces[k->piece].maybe_done = true;
    } else if (is_code(v, "CANCELLED") && h->pieces[k->piece].is_call) {
        k->state = COMMIT_REFUSED;
    } else if (refused) {
        k->state = COMMIT_REFUSED;
    } else {
        wrong(h, "DONE of %d gets '%.*s'", k->piece, (int)v->bytes.size,
              (const char *)v->bytes.data);
    }
}

static void receive_end(struct history *h, const struct expected *e,
                        const struct response_value *v) {
    bool known = v->type == RESPONSE_SIMPLE || is_code(v, "STALE") || is_code(v, "GONE") ||
                 is_code(v, "CANCELLED") || (is_code(v, "STOPPED") && !h->calm);
    if (!known)
        wrong(h, "the end of %d gets '%.*s'", e->piece, (int)v->bytes.size,
              (const char *)v->bytes.data);
}

static void receive_beat(struct history *h, const struct expected *e,
                         const struct response_value *v) {
    bool known = v->type == RESPONSE_ARRAY || (is_code(v, "STOPPED") && !h->calm);
    if (!known)
        wrong(h, "BEAT gets no list");
    if (v->type == RESPONSE_ARRAY && v->count &&
        (v->count > 1 || number_of(v[1].bytes) != h->pieces[e->piece].id))
        wrong(h, "BEAT of %d names another job", e->piece);
}

static void receive_one(struct history *h, struct client *c, const struct response_value *v) {
    if (!c->expected_count) {
        wrong(h, "client %d gets a reply that it did not ask for", c->index);
        return;
    }
    struct expected e = c->expected[0];
    memmove(c->expected, c->expected + 1, (size_t)--c->expected_count * sizeof e);
    sim_nodes_note(h->nodes, "client %d gets type %d count %u '%.*s'", c->index, (int)v->type,
                   v->count, v->type <= RESPONSE_DOUBLE ? (int)v->bytes.size : 0,
                   v->type <= RESPONSE_DOUBLE ? (const char *)v->bytes.data : "");
    switch (e.kind) {
    case EXPECT_OK:
        if (v->type != RESPONSE_SIMPLE)
            wrong(h, "STAGE gets '%.*s'", (int)v->bytes.size, (const char *)v->bytes.data);
        break;
    case EXPECT_PUSH:
        receive_push(h, e.piece, v);
        break;
    case EXPECT_TAKE:
        receive_take(h, c, v);
        break;
    case EXPECT_DONE:
        receive_done(h, &h->commits[e.commit], v);
        break;
    case EXPECT_END:
        receive_end(h, &e, v);
        break;
    case EXPECT_BEAT:
        receive_beat(h, &e, v);
        break;
    case EXPECT_CALL:
        receive_call(h, e.piece, v);
        break;
    }
    if (is_code(v, "STOPPED") && e.kind == EXPECT_PUSH && c->index % 2 == 0 && c->again_count < 64)
        c->again[c->again_count++] = e.piece;
}

static void client_read(struct history *h, struct client *c) {
    static const struct response_limits limits = { VALUES, 1 << 16, 1 << 20, 1 << 20 };
    static struct response_value values[VALUES];
    size_t at = 0;
    while (at < c->in.size && !h->nodes->failure[0]) {
        struct response reader = { 0 };
        uint32_t count;
        ptrdiff_t used =
            response_read(&reader, &limits, c->in.data + at, c->in.size - at, values, &count);
        if (used < 0)
            wrong(h, "client %d gets what is no reply", c->index);
        if (used <= 0)
            break;
        receive_one(h, c, values);
        at += (size_t)used;
    }
    if (at)
        memmove(c->in.data, c->in.data + at, c->in.size - at);
    c->in.size -= at;
}

// ---- Connections --------------------------------------------------------------------------------

static void lose_reply(struct history *h, struct client *c, const struct expected *e) {
    bool repeats = c->again_count < 64 && (c->index % 2 == 0 || e->kind == EXPECT_DONE);
    if (e->kind == EXPECT_CALL)
        h->pieces[e->piece].ended = true;
    if (e->kind == EXPECT_PUSH && repeats)
        c->again[c->again_count++] = e->piece;
    if (e->kind != EXPECT_DONE)
        return;
    if (repeats && roll(h, 4)) {
        c->again[c->again_count++] = e->commit;
        return;
    }
    h->commits[e->commit].state = COMMIT_UNKNOWN;
    h->pieces[e->piece].maybe_done = true;
}

// Requests without a reply come before those that are still to be sent again.
static void client_lost(struct history *h, struct client *c) {
    int kept[64], kept_count = c->again_count;
    sim_nodes_note(h->nodes, "client %d has lost its connection", c->index);
    memcpy(kept, c->again, sizeof kept);
    c->again_count = 0;
    for (int i = 0; i < c->expected_count; i++)
        lose_reply(h, c, &c->expected[i]);
    for (int i = 0; i < kept_count && c->again_count < 64; i++)
        c->again[c->again_count++] = kept[i];
    c->expected_count = 0;
    c->takes = false;
    c->in.size = 0;
    for (int i = 0; i < HELD; i++)
        c->held[i].piece = -1;
    sim_wire_close(h->nodes, c->wire);
    c->wire = NULL;
    c->connect_at_ms = sim_nodes_now_ms(h->nodes) + roll(h, 200);
    h->reached->closed++;
}

static void client_connect(struct history *h, struct client *c) {
    if (sim_nodes_now_ms(h->nodes) < c->connect_at_ms)
        return;
    int node = (int)roll(h, SIM_NODES);
    c->wire = sim_wire_connect(h->nodes, node);
    c->connection++;
    if (c->wire)
        sim_nodes_note(h->nodes, "client %d connects to node %d, wire %d", c->index, node,
                       (int)(c->wire - h->nodes->wires));
}

static void client_step(struct history *h, struct client *c) {
    if (!c->wire) {
        client_connect(h, c);
        return;
    }
    bool open = true;
    if (roll(h, 3))
        open = sim_wire_receive(h->nodes, c->wire, &c->in);
    client_read(h, c);
    if (!open || (!h->calm && !h->draining && roll(h, 800) == 0)) {
        client_lost(h, c);
        return;
    }
    if (roll(h, 2))
        return;
    if (c->index >= FIRST_CALLER)
        caller_act(h, c);
    else if (c->index >= FIRST_WORKER)
        worker_act(h, c);
    else if (c->index)
        producer_act(h, c);
}

// ---- Faults -------------------------------------------------------------------------------------

const char *nodes_fault_name(enum nodes_fault fault) {
    static const char *const names[NODES_FAULTS] = {
        [FAULT_KILL] = "died",
        [FAULT_PAUSE] = "paused",
        [FAULT_CUT_STORE] = "lost the store",
        [FAULT_APART] = "lost another node",
        [FAULT_CUT_WIRE] = "wires cut",
        [FAULT_JUMP] = "clocks jumped",
        [FAULT_DRAIN] = "drained or not",
        [FAULT_OUTAGE] = "outages",
        [FAULT_PAUSE_IN_APPEND] = "paused in an append",
        [FAULT_STANDBY] = "the standby was away",
    };
    return names[fault];
}

static void fault_at(struct history *h, struct sim_node *n, enum nodes_fault fault) {
    struct sim_nodes *w = h->nodes;
    uint64_t now_ms = sim_nodes_now_ms(w), ms = 100 + roll(h, roll(h, 3) ? 1500 : 7000);
    int other = (int)roll(h, SIM_NODES);
    sim_nodes_note(w, "fault: node %d, %s, %" PRIu64 " ms", n->index, nodes_fault_name(fault), ms);
    h->reached->faults[fault]++;
    struct sim_wire *x = &w->wires[roll(h, SIM_WIRES)];
    switch (fault) {
    case FAULT_KILL:
        if (n->is_alive)
            sim_node_kill(n);
        break;
    case FAULT_PAUSE:
        n->paused_until_ms = now_ms + ms;
        break;
    case FAULT_CUT_STORE:
        n->cut_until_ms = now_ms + ms;
        break;
    case FAULT_APART:
        w->apart_until_ms[n->index][other] = w->apart_until_ms[other][n->index] = now_ms + ms;
        break;
    case FAULT_CUT_WIRE:
        if (x->is_used && !x->is_cut)
            sim_wire_cut(w, x);
        break;
    case FAULT_JUMP:
        n->ahead_ms += ms;
        break;
    case FAULT_DRAIN:
        n->is_drained = !n->is_drained;
        break;
    case FAULT_OUTAGE:
        sim_store_outage(w->store, ms / 2);
        break;
    case FAULT_PAUSE_IN_APPEND:
        n->pause_in_append_ms = 2 * ms;
        break;
    case FAULT_STANDBY:
        sim_store_standby_away(w->store, ms / 2, roll(h, 2));
        break;
    case NODES_FAULTS:
        break;
    }
}

static void fault_step(struct history *h) {
    enum nodes_fault fault = (enum nodes_fault)roll(h, NODES_FAULTS);
    struct sim_node *n = &h->nodes->nodes[roll(h, SIM_NODES)];
    if (h->faults >> fault & 1 && roll(h, 12) == 0)
        fault_at(h, n, fault);
    n = &h->nodes->nodes[roll(h, SIM_NODES)];
    if (!n->is_alive && roll(h, 60) == 0)
        sim_node_start(n);
}

static void store_faults(struct history *h, bool on) {
    static const uint32_t per_mille[SIM_FAULTS] = {
        [SIM_UNAVAILABLE] = 20, [SIM_REQUEST_LOST] = 10,   [SIM_REPLY_LOST] = 10,
        [SIM_LATE] = 10,        [SIM_WAIT_CANCELLED] = 10, [SIM_FAILOVER] = 3,
    };
    for (int i = 0; i < SIM_FAULTS; i++)
        sim_store_chance(h->nodes->store, (enum sim_fault)i, on ? per_mille[i] : 0);
}

static void faults_end(struct history *h) {
    struct sim_nodes *w = h->nodes;
    sim_nodes_note(w, "the faults end");
    store_faults(h, false);
    sim_store_outage_end(w->store);
    sim_store_standby_away(w->store, 0, false);
    memset(w->apart_until_ms, 0, sizeof w->apart_until_ms);
    w->slow_store = false;
    for (int i = 0; i < SIM_NODES; i++) {
        struct sim_node *n = &w->nodes[i];
        if (!n->is_alive)
            sim_node_start(n);
        n->paused_until_ms = n->cut_until_ms = n->pause_in_append_ms = 0;
        n->is_drained = false;
    }
}

// ---- Histories ----------------------------------------------------------------------------------

static bool fine(const struct history *h) {
    return !h->nodes->failure[0];
}

static void history_step(void *arg) {
    struct history *h = arg;
    sim_nodes_step(h->nodes);
    for (int i = 0; i < CLIENTS; i++)
        client_step(h, &h->clients[i]);
}

// Every shard has a stage.
static void choose_stages(struct history *h) {
    int number = 0;
    for (int i = 0; i < STAGES; i++)
        do
            snprintf(h->stages[i], sizeof h->stages[i], "s%d", number++);
        while (route_of(SIM_SHARDS, mr_str(h->stages[i])) != (uint32_t)i % SIM_SHARDS);
}

static void set_policies(struct history *h) {
    struct client *c = &h->clients[0];
    for (int i = 0; i < 1000 && !c->wire; i++)
        history_step(h);
    for (int i = 0; i < STAGES; i++) {
        char text[128];
        snprintf(text, sizeof text, "STAGE %s attempts 60000 backoff 1..20%s", h->stages[i],
                 h->forgets ? " retention 200ms,10 dedupe-window 200ms" : "");
        client_send(h, c, (struct expected){ .kind = EXPECT_OK }, text);
    }
    for (int i = 0; i < 5000 && c->expected_count; i++) {
        sim_nodes_step(h->nodes);
        client_step(h, c);
    }
    if (c->expected_count)
        wrong(h, "the nodes do not begin to serve");
}

static bool is_unfinished(const struct piece *p) {
    return p->acked && !p->done && !p->maybe_done && !p->is_call;
}

// A client that waits for a reply, or a job that must end. NULL: none.
static const char *find_unfinished(const struct history *h, char text[100]) {
    for (int i = 1; i < CLIENTS; i++) {
        const struct client *c = &h->clients[i];
        bool waits = c->expected_count && !(c->expected_count == 1 && c->takes);
        if (c->again_count || waits) {
            snprintf(text, 100, "client %d waits for a reply", i);
            return text;
        }
    }
    for (int i = 0; i < h->piece_count; i++)
        if (is_unfinished(&h->pieces[i])) {
            snprintf(text, 100, "number %d, id %" PRIu64 ", does not end", i, h->pieces[i].id);
            return text;
        }
    return NULL;
}

// All jobs have ended, and all emits have arrived.
static void expect_empty(struct history *h, const struct sim_place *p) {
    struct core *c = shard_core(group_shard(p->group, p->shard));
    if (core_check(c) < 0)
        wrong(h, "the core of shard %u is not consistent", p->shard);
    for (int i = 0; i < STAGES; i++) {
        struct stage_info s;
        if (core_look_stage(c, mr_str(h->stages[i]), &s) < 0)
            continue;
        uint64_t left = s.waiting + s.running + s.parked + s.delayed + s.dead;
        if (left || s.linked)
            wrong(h,
                  "shard %u: %" PRIu64 " jobs of stage %s, and %" PRIu64 " emits to it, are left",
                  p->shard, left, h->stages[i], s.linked);
    }
}

static void history_drain(struct history *h) {
    char text[100];
    h->draining = true;
    faults_end(h);
    int quiet = 0;
    for (int i = 0; fine(h) && i < DRAIN_STEPS && quiet < QUIET_STEPS; i++) {
        history_step(h);
        quiet = find_unfinished(h, text) ? 0 : quiet + 1;
    }
    if (fine(h) && find_unfinished(h, text)) {
        sim_nodes_describe(h->nodes);
        for (int i = 0; i < CLIENTS; i++)
            if (h->clients[i].wire)
                sim_wire_describe(h->nodes, h->clients[i].wire);
        wrong(h, "%s", text);
    }
    for (int i = 0; fine(h) && i < SIM_NODES; i++)
        for (uint32_t k = 0; k < SIM_SHARDS; k++)
            if (h->nodes->nodes[i].places[k].phase == SIM_RUNS)
                expect_empty(h, &h->nodes->nodes[i].places[k]);
}

static struct history *history_begin(const struct nodes_plan *plan, struct nodes_reached *reached) {
    struct history *h = calloc(1, sizeof *h);
    h->nodes = sim_nodes_create(plan->seed);
    h->nodes->prints = plan->prints;
    h->nodes->others = history_step;
    h->nodes->others_arg = h;
    h->plan = plan;
    h->reached = reached;
    h->forgets = plan->seed % 3 == 0;
    choose_stages(h);
    for (int i = 0; i < CLIENTS; i++) {
        h->clients[i].index = i;
        for (int k = 0; k < HELD; k++)
            h->clients[i].held[k].piece = -1;
    }
    h->draining = true;
    set_policies(h);
    h->draining = false;
    return h;
}

static void history_play(struct history *h) {
    h->calm = h->plan->seed % 4 == 0;
    h->faults = h->calm ? 1 << FAULT_DRAIN : (uint32_t)roll(h, 1 << NODES_FAULTS);
    if (h->plan->plant) {
        h->nodes->plant = h->plan->plant->plant;
        sim_store_make(h->nodes->store, h->plan->plant->mistake);
    }
    store_faults(h, !h->calm && roll(h, 2));
    h->nodes->slow_store = roll(h, 2) && !h->calm; // it makes shards be lost
    for (int i = 0; fine(h) && i < STEPS; i++) {
        fault_step(h);
        history_step(h);
    }
    if (fine(h))
        history_drain(h);
}

static void history_end(struct history *h) {
    struct nodes_reached *r = h->reached;
    const struct sim_nodes *w = h->nodes;
    r->histories++;
    r->steps += w->reached.steps;
    r->trims += sim_store_calls(w->store, SIM_TRIM);
    r->simulated_ms += sim_nodes_now_ms(w);
    r->opened += w->reached.opened;
    r->left += w->reached.left;
    r->lost += w->reached.lost;
    r->moved += w->reached.moved;
    for (int i = 0; i < SIM_FAULTS; i++)
        r->store_faults[i] += sim_store_faults(w->store, (enum sim_fault)i);
    for (int i = 0; i < CLIENTS; i++) {
        if (h->clients[i].wire)
            sim_wire_close(h->nodes, h->clients[i].wire);
        buffer_finish(&h->clients[i].in);
    }
    sim_nodes_destroy(h->nodes);
    free(h);
}

bool nodes_history_run(const struct nodes_plan *plan, struct nodes_reached *reached,
                       char finding[NODES_FINDING]) {
    struct history *h = history_begin(plan, reached);
    history_play(h);
    snprintf(finding, NODES_FINDING, "%s", h->nodes->failure);
    history_end(h);
    return !finding[0];
}
