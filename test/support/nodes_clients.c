// See nodes_history.h and nodes_state.h: producers, workers and callers, and what every client does
// with its connection.
#include "support/nodes_state.h"

#include "base/bytes.h"
#include "core/route.h"
#include "server/answer.h"
#include "wire/number.h"
#include "wire/request.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { VALUES = 512 };

// ---- Requests -----------------------------------------------------------------------------------

void client_send(struct history *h, struct client *c, struct expected e, const char *text) {
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

const char *key_text(int stage, int key) {
    static const char *const names[] = { "", "k0", "k1", "k2", "k3" };
    static const char *const grouped[] = { "", "a/k0", "b/k1", "a/k2", "b/k3" };
    return stage == GROUPED_STAGE ? grouped[key + 1] : names[key + 1];
}

static void add_source(const struct client *c, const struct piece *p, char text[64]) {
    if (p->epic >= 0)
        snprintf(text, 64, " EPIC e%d %" PRIu64, p->epic, p->order);
    else if (p->is_named)
        snprintf(text, 64, " ONCE o%" PRIu64, p->order);
    else if (c->index % 2 == 0 && !p->is_call)
        snprintf(text, 64, " SOURCE p%d-%d %" PRIu64, c->index, p->stage, p->order);
}

void piece_push(struct history *h, struct client *c, int n) {
    const struct piece *p = &h->pieces[n];
    char text[200], source[64] = "", key[16] = "";
    add_source(c, p, source);
    if (p->key != NO_KEY)
        snprintf(key, sizeof key, " KEY %s", key_text(p->stage, p->key));
    snprintf(text, sizeof text, "%s %s %d%s%s%s%s", p->is_call ? "CALL" : "PUSH",
             h->stages[p->stage], n, key, source, p->is_delayed ? " DELAY 40" : "",
             p->has_deadline ? " DEADLINE 700" : "");
    client_send(h, c, (struct expected){ p->is_call ? EXPECT_CALL : EXPECT_PUSH, n, -1 }, text);
}

int piece_make(struct history *h, int stage, int key) {
    int n = h->piece_count++;
    h->pieces[n] = (struct piece){
        .stage = stage, .key = key, .commit = -1, .epic = -1, .then_of = -1, .schedule = -1
    };
    return n;
}

// In flows all jobs have keys, so that all have an order.
int roll_key(struct history *h) {
    return h->plan->flows ? (int)roll(h, KEYS) : (int)roll(h, KEYS + 1) - 1;
}

bool may_make(const struct history *h) {
    return !h->draining && h->piece_count < PUSHED_MOST;
}

// ---- Producers and callers ----------------------------------------------------------------------

// A numbered source numbers the pushes to each stage from 1, so a producer has one stage then.
static int producer_stage(struct history *h, const struct client *c) {
    if (h->plan->flows)
        return c->index % 2;
    return c->index % 2 == 0 ? c->index % STAGES : (int)roll(h, STAGES);
}

// Names and delays take a job out of the order.
static void choose_options(struct history *h, struct piece *p, bool numbered) {
    if (h->plan->flows)
        return;
    p->is_named = !numbered && roll(h, 2);
    p->is_delayed = roll(h, 12) == 0;
    p->has_deadline = !p->is_named && roll(h, 20) == 0;
    p->maybe_done = p->has_deadline;
    if (p->is_named || p->is_delayed)
        p->group = 0;
}

static void producer_push(struct history *h, struct client *c) {
    bool numbered = c->index % 2 == 0;
    int n = piece_make(h, producer_stage(h, c), roll_key(h));
    struct piece *p = &h->pieces[n];
    p->order = ++c->numbered;
    if (p->key != NO_KEY)
        p->group = (uint64_t)(c->index + 1) << 48 | (numbered ? 0 : c->connection) << 16 |
                   (uint64_t)(p->stage * KEYS + p->key);
    choose_options(h, p, numbered);
    if (p->is_named)
        p->order = (uint64_t)n;
    piece_push(h, c, n);
}

// A name that was used before: it makes no second job.
static void producer_repeat(struct history *h, struct client *c) {
    int n = h->piece_count ? (int)roll(h, (uint64_t)h->piece_count) : 0;
    if (h->piece_count && h->pieces[n].is_named && h->pieces[n].acked && c->expected_count < 8)
        piece_push(h, c, n);
}

static void producer_act(struct history *h, struct client *c) {
    if (c->again_count && c->expected_count < EXPECTED - 1) {
        piece_push(h, c, c->again[0]);
        memmove(c->again, c->again + 1, (size_t)--c->again_count * sizeof *c->again);
        return;
    }
    if (!h->draining && roll(h, 8) == 0)
        producer_repeat(h, c);
    bool goes_on = may_make(h) && (!h->plan->flows || roll(h, 12) == 0);
    for (int i = 0; goes_on && may_make(h) && i < 3 && c->expected_count < 12 && roll(h, 2); i++)
        producer_push(h, c);
}

// A caller that leaves takes away the interest in its job.
static void caller_act(struct history *h, struct client *c) {
    if (c->expected_count && !h->draining && roll(h, 100) == 0) {
        client_lost(h, c);
        return;
    }
    if (c->expected_count || !may_make(h) || h->plan->flows || roll(h, 10))
        return;
    int n = piece_make(h, (int)roll(h, STAGES), roll_key(h));
    h->pieces[n].is_call = true;
    h->pieces[n].has_deadline = roll(h, 4) == 0;
    piece_push(h, c, n);
}

// ---- Workers ------------------------------------------------------------------------------------

// Which channels have a state: the number of their last commit.
bool has_state(const struct piece *p) {
    return p->key != NO_KEY && p->stage % 2 == 1;
}

static void send_commit(struct history *h, struct client *c, int number) {
    const struct commit *k = &h->commits[number];
    char text[512];
    int used =
        snprintf(text, sizeof text, "DONE %" PRIu64 " %s RESULT r%d", k->id, k->token, k->piece);
    if (has_state(&h->pieces[k->piece]))
        used += snprintf(text + used, sizeof text - (size_t)used, " STATE %d", number);
    for (int i = k->first; i < k->first + k->count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " EMIT %s %s %d",
                         h->stages[h->pieces[i].stage],
                         key_text(h->pieces[i].stage, h->pieces[i].key), i);
    client_send(h, c, (struct expected){ EXPECT_DONE, k->piece, number }, text);
}

// How many jobs of its block were committed before.
static int block_place(const struct history *h, const struct commit *k) {
    int count = 0;
    for (const struct commit *q = h->commits; q < k; q++)
        count += strcmp(q->token, k->token) == 0;
    return count;
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
        child->order = (k->serial * BLOCK + (uint64_t)block_place(h, k)) * 8 + (uint64_t)i;
        if (p->key != NO_KEY)
            child->group = UINT64_C(1) << 63 | (uint64_t)(p->stage * KEYS + p->key) << 16 |
                           (uint64_t)(child->stage * KEYS + child->key);
        k->count++;
    }
}

int commit_make(struct history *h, int n, uint64_t serial, uint64_t id, mr_bytes token) {
    if (h->commit_count == COMMITS)
        return -1;
    int number = h->commit_count++;
    struct commit *k = &h->commits[number];
    *k = (struct commit){ .piece = n, .serial = serial, .id = id };
    snprintf(k->token, sizeof k->token, "%.*s", (int)token.size, (const char *)token.data);
    emit_some(h, k, number);
    return number;
}

static void commit_job(struct history *h, struct client *c, struct held_job *j) {
    int number = commit_make(h, j->piece, j->serial, j->id, mr_str(j->token));
    if (number < 0)
        return;
    send_commit(h, c, number);
    j->piece = -1;
}

// Those behind a job of a block go back with it.
static void let_go(struct client *c, const char *of) {
    char token[48];
    snprintf(token, sizeof token, "%s", of); // it may be one of these
    for (int i = 0; i < HELD; i++)
        if (c->held[i].piece >= 0 && strcmp(c->held[i].token, token) == 0)
            c->held[i].piece = -1;
}

static void end_job(struct history *h, struct client *c, struct held_job *j) {
    uint64_t what = roll(h, h->draining ? 16 : 12);
    char text[200];
    struct expected e = { EXPECT_END, j->piece, -1 };
    if (what == 0) {
        snprintf(text, sizeof text, "BEAT %" PRIu64 " %s", j->id, j->token);
        e.kind = EXPECT_BEAT;
    } else if (what == 1) {
        snprintf(text, sizeof text, "RELEASE %" PRIu64 " %s%s", j->id, j->token,
                 roll(h, 2) ? " DELAY 30" : "");
        j->is_ending = true;
    } else if (what == 2) {
        snprintf(text, sizeof text, "FAIL %" PRIu64 " %s no RETRY 20", j->id, j->token);
        h->pieces[j->piece].fails++;
        j->is_ending = true;
    } else {
        commit_job(h, c, j);
        return;
    }
    client_send(h, c, e, text);
}

// The jobs of a block end in order. NULL: the first of them was released or failed, which returns
// all, unless it had ended before.
static struct held_job *first_of_lease(struct client *c, struct held_job *j) {
    struct held_job *first = j;
    for (int i = 0; i < HELD; i++)
        if (c->held[i].piece >= 0 && strcmp(c->held[i].token, j->token) == 0 &&
            c->held[i].order < first->order)
            first = &c->held[i];
    return first->is_ending ? NULL : first;
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
    // A detached lease outlives a grant that is not delivered since its shard moves: that counts.
    c->takes_detached = roll(h, 6) == 0 && !h->calm;
    for (int i = 0; i < count; i++)
        snprintf(text + strlen(text), 20, " %s", h->stages[(first + i) % STAGES]);
    snprintf(text + strlen(text), 64, " COUNT %d BATCH %d%s",
             1 + (int)roll(h, (uint64_t)(HELD - count_held(c))), 1 + (int)roll(h, BLOCK),
             c->takes_detached ? " DETACHED LEASE 1500" : " LEASE 3000000");
    if (roll(h, 3))
        snprintf(text + strlen(text), 32, " WAIT %d", 20 + (int)roll(h, 1000));
    client_send(h, c, (struct expected){ EXPECT_TAKE, -1, -1 }, text);
    c->takes = true;
    c->take_step = h->nodes->reached.steps;
}

static void worker_act(struct history *h, struct client *c) {
    if (c->again_count && c->expected_count < 8) {
        h->reached->repeats++;
        send_commit(h, c, c->again[0]);
        memmove(c->again, c->again + 1, (size_t)--c->again_count * sizeof *c->again);
        return;
    }
    for (int i = 0; i < HELD; i++) {
        bool ends = c->held[i].piece >= 0 && c->expected_count < 8 && roll(h, 4) == 0;
        struct held_job *j = ends ? first_of_lease(c, &c->held[i]) : NULL;
        if (j)
            end_job(h, c, j);
    }
    if (!c->takes && c->expected_count < 8 && count_held(c) < HELD && roll(h, 3) == 0)
        send_take(h, c);
}

// ---- Replies ------------------------------------------------------------------------------------

uint64_t number_of(mr_bytes text) {
    uint64_t number = 0;
    return number_parse(text, &number) == 0 ? number : UINT64_MAX;
}

bool reply_is_code(const struct response_value *v, const char *code) {
    return v->type == RESPONSE_ERROR && v->bytes.size >= strlen(code) &&
           memcmp(v->bytes.data, code, strlen(code)) == 0;
}

// The command may or may not have been run; after a failure of the disk it was not.
bool reply_is_unsure(const struct history *h, const struct response_value *v) {
    bool disk = h->plan->files && h->faults & (1 << FAULT_DISK_ERROR | 1 << FAULT_DISK_FULL);
    return (reply_is_code(v, "STOPPED") && !h->calm) || (reply_is_code(v, "FULL") && disk);
}

// A call of the library that is made again after its job was cancelled has another id.
void piece_has_id(struct history *h, int n, uint64_t id) {
    struct piece *p = &h->pieces[n];
    if (p->id && p->id != id && !p->may_return)
        wrong(h, "number %d has the ids %" PRIu64 " and %" PRIu64, n, p->id, id);
    for (int i = 0; !p->id && i < h->piece_count; i++)
        if (h->pieces[i].id == id)
            wrong(h, "numbers %d and %d have the id %" PRIu64, i, n, id);
    if (route_of_id(SIM_SHARDS, id) != route_of(SIM_SHARDS, mr_str(h->stages[p->stage])))
        wrong(h, "number %d has id %" PRIu64 ", which is not of its shard", n, id);
    p->cancelled = p->cancelled && p->id == id;
    p->id = id;
}

static void receive_push(struct history *h, int n, const struct response_value *v) {
    struct piece *p = &h->pieces[n];
    if (v->type == RESPONSE_BULK) {
        piece_has_id(h, n, number_of(v->bytes));
        p->acked = true;
    } else if (v->type == RESPONSE_NULL && h->forgets && (p->begun || p->maybe_done)) {
        p->acked = true; // a repeat of a push whose job has ended and was forgotten
    } else if (reply_is_unsure(h, v) || (reply_is_code(v, "GAP") && h->plan->files)) {
        p->refused = true;
    } else if (p->epic >= 0 && h->epics[p->epic].is_cancelled && reply_is_code(v, "CANCELLED")) {
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
    bool ended = (p->has_deadline && reply_is_code(v, "EXPIRED")) ||
                 (p->cancel_sent && reply_is_code(v, "CANCELLED"));
    if (v->type != RESPONSE_BULK && !ended && !reply_is_unsure(h, v))
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

void commit_is_done(struct history *h, struct commit *k) {
    struct piece *p = &h->pieces[k->piece];
    if (p->done && p->done_serial != k->serial)
        wrong(h, "number %d is done twice", k->piece);
    if (p->cancelled)
        wrong(h, "number %d is done although it was cancelled", k->piece);
    if (k->state == COMMIT_OK)
        return;
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

// What a DONE has emitted, or set as a state, proves that it counts, whatever its reply was.
static void expect_emitted(struct history *h, int n) {
    const struct piece *p = &h->pieces[n];
    if (p->commit < 0)
        return;
    struct commit *k = &h->commits[p->commit];
    if (k->state == COMMIT_REFUSED)
        wrong(h, "number %d was emitted by a DONE that was refused", n);
    else
        commit_is_done(h, k);
}

// The state is that of the last commit of the channel. `serial`: of the lease that gets it.
static void expect_state(struct history *h, int n, uint64_t serial, mr_bytes state) {
    const struct piece *p = &h->pieces[n];
    uint64_t number = state.size ? number_of(state) : UINT64_MAX, known = 0;
    if (state.size && number < (uint64_t)h->commit_count) {
        struct commit *last = &h->commits[number];
        const struct piece *q = &h->pieces[last->piece];
        known = last->serial;
        if (q->stage != p->stage || q->key != p->key || last->state == COMMIT_REFUSED)
            wrong(h, "number %d has the state of number %d, which is not its", n, last->piece);
        else if (known != serial)
            commit_is_done(h, last);
    } else if (state.size) {
        wrong(h, "number %d has a state that no DONE has set", n);
    }
    for (int i = 0; i < h->commit_count; i++) {
        const struct commit *k = &h->commits[i];
        const struct piece *q = &h->pieces[k->piece];
        if (k->state == COMMIT_OK && q->stage == p->stage && q->key == p->key &&
            k->serial > known && k->serial < serial)
            wrong(h, "number %d does not have the state that number %d has set", n, k->piece);
    }
}

static int piece_of_job(struct history *h, mr_bytes body, uint64_t id) {
    uint64_t n = number_of(body);
    return n < (uint64_t)h->piece_count ? (int)n : schedule_piece(h, body, id);
}

static void expect_may_begin(struct history *h, int n, const struct taken *t) {
    struct piece *p = &h->pieces[n];
    if (p->done && t->serial > p->done_serial)
        wrong(h, "number %d is taken again after its DONE", n);
    if (p->cancelled && t->step > p->cancelled_step)
        wrong(h, "number %d is taken although it was cancelled", n);
    if (h->calm && t->attempt > p->fails + 1)
        wrong(h, "number %d has attempt %" PRIu64 " after %u failures", n, t->attempt, p->fails);
    expect_emitted(h, n);
    if (p->then_of >= 0)
        expect_epic_ended(h, n);
    // The reply may come late: if its job was cancelled or expired meanwhile, others went on.
    if (!p->begun && !p->cancel_sent && !p->has_deadline)
        expect_order(h, n);
}

int job_is_taken(struct history *h, const struct taken *t) {
    int n = piece_of_job(h, t->body, t->id);
    if (n < 0) {
        wrong(h, "client %d takes no job of this history", t->client);
        return -1;
    }
    struct piece *p = &h->pieces[n];
    sim_nodes_note(h->nodes, "client %d takes number %d, id %" PRIu64 ", attempt %" PRIu64,
                   t->client, n, t->id, t->attempt);
    if (!bytes_equal(t->stage, mr_str(h->stages[p->stage])))
        wrong(h, "number %d is in stage %.*s", n, (int)t->stage.size, (const char *)t->stage.data);
    piece_has_id(h, n, t->id);
    expect_may_begin(h, n, t);
    if (t->has_state && has_state(p))
        expect_state(h, n, t->serial, t->state);
    p->begun = true;
    return n;
}

static void hold_job(struct history *h, struct client *c, int n, mr_bytes token, uint64_t serial) {
    for (int i = 0; i < HELD; i++) {
        struct held_job *j = &c->held[i];
        if (j->piece >= 0)
            continue;
        *j = (struct held_job){ .piece = n,
                                .id = h->pieces[n].id,
                                .serial = serial,
                                .order = ++c->taken,
                                .is_detached = c->takes_detached };
        snprintf(j->token, sizeof j->token, "%.*s", (int)token.size, (const char *)token.data);
        return;
    }
    wrong(h, "TAKE gets more jobs than it wants");
}

// `first`: of its lease in this reply, which gets the state.
static void receive_job(struct history *h, struct client *c, const struct response_value *v,
                        bool first) {
    struct token token;
    if (token_read(v[2].bytes, &token) < 0) {
        wrong(h, "TAKE gets a job without a token");
        return;
    }
    struct taken taken = { .client = c->index,
                           .id = number_of(v[1].bytes),
                           .serial = token.serial,
                           .attempt = (uint64_t)v[6].integer,
                           .step = c->take_step,
                           .stage = v[3].bytes,
                           .body = v[5].bytes,
                           .has_state = first,
                           .state = v[8].bytes };
    int n = job_is_taken(h, &taken);
    if (n >= 0)
        hold_job(h, c, n, v[2].bytes, token.serial);
}

static void receive_take(struct history *h, struct client *c, const struct response_value *v) {
    c->takes = false;
    if (reply_is_unsure(h, v))
        return;
    if (v->type != RESPONSE_ARRAY) {
        wrong(h, "TAKE gets '%.*s'", (int)v->bytes.size, (const char *)v->bytes.data);
        return;
    }
    uint32_t at = 1;
    mr_bytes token = { 0 };
    for (uint32_t i = 0; i < v->count && !h->nodes->failure[0]; i++, at = response_skip(v, at)) {
        receive_job(h, c, v + at, !bytes_equal(token, v[at + 2].bytes));
        token = v[at + 2].bytes;
    }
}

// A job of a block can only end behind those before it: one of them may not have ended.
bool commit_follows(const struct history *h, const struct commit *k, int state) {
    for (const struct commit *q = h->commits; q < k; q++)
        if ((int)q->state == state && strcmp(q->token, k->token) == 0)
            return true;
    return false;
}

// Its disk had no room for it, or for one before it in its block.
static bool commits_again(const struct history *h, const struct client *c, const struct commit *k,
                          const struct response_value *v) {
    bool behind = reply_is_code(v, "ERR") &&
                  (commit_follows(h, k, COMMIT_SENT) ||
                   (h->plan->files && commit_follows(h, k, COMMIT_OK))); // it was sent again
    return c->again_count < AGAIN && (behind || (reply_is_code(v, "FULL") && h->plan->files));
}

static void receive_done(struct history *h, struct client *c, struct commit *k,
                         const struct response_value *v) {
    bool refused = reply_is_code(v, "STALE") || reply_is_code(v, "GONE");
    bool forgotten = h->forgets && reply_is_code(v, "GONE");
    if (v->type == RESPONSE_SIMPLE) {
        commit_is_done(h, k);
    } else if (commits_again(h, c, k, v)) {
        c->again[c->again_count++] = (int)(k - h->commits);
    } else if (forgotten || reply_is_unsure(h, v)) {
        k->state = COMMIT_UNKNOWN;
        h->pieces[k->piece].maybe_done = true;
        if (!forgotten)
            let_go(c, k->token);
    } else if (reply_is_code(v, "ERR") && commit_follows(h, k, COMMIT_UNKNOWN)) {
        k->state = COMMIT_REFUSED;
    } else if (reply_is_code(v, "CANCELLED") &&
               (h->pieces[k->piece].is_call || h->pieces[k->piece].cancel_sent)) {
        k->state = COMMIT_REFUSED;
    } else if (reply_is_code(v, "EXPIRED") && h->pieces[k->piece].has_deadline) {
        k->state = COMMIT_REFUSED;
    } else if (refused) {
        k->state = COMMIT_REFUSED;
    } else {
        wrong(h, "DONE of %d gets '%.*s'", k->piece, (int)v->bytes.size,
              (const char *)v->bytes.data);
    }
}

// A job that had ended before is let go of alone.
static void end_was_answered(struct client *c, int n, bool alone) {
    for (int i = 0; i < HELD; i++) {
        if (c->held[i].piece != n || !c->held[i].is_ending)
            continue;
        if (alone)
            c->held[i].piece = -1;
        else
            let_go(c, c->held[i].token);
        return;
    }
}

static void receive_end(struct history *h, struct client *c, const struct expected *e,
                        const struct response_value *v) {
    end_was_answered(c, e->piece,
                     reply_is_code(v, "CANCELLED") || reply_is_code(v, "EXPIRED") ||
                         reply_is_code(v, "GONE"));
    bool behind = reply_is_code(v, "ERR") && h->faults >> FAULT_DISK_FULL & 1; // one without room
    bool known = v->type == RESPONSE_SIMPLE || behind || reply_is_code(v, "STALE") ||
                 reply_is_code(v, "GONE") || reply_is_code(v, "CANCELLED") ||
                 reply_is_code(v, "EXPIRED") || reply_is_unsure(h, v);
    if (!known)
        wrong(h, "the end of %d gets '%.*s'", e->piece, (int)v->bytes.size,
              (const char *)v->bytes.data);
}

static void receive_beat(struct history *h, const struct expected *e,
                         const struct response_value *v) {
    bool known = v->type == RESPONSE_ARRAY || reply_is_unsure(h, v);
    if (!known)
        wrong(h, "BEAT gets no list");
    if (v->type == RESPONSE_ARRAY && v->count &&
        (v->count > 1 || number_of(v[1].bytes) != h->pieces[e->piece].id))
        wrong(h, "BEAT of %d names another job", e->piece);
}

static bool repeats_push(const struct history *h, const struct client *c, int n) {
    const struct piece *p = &h->pieces[n];
    return c->again_count < AGAIN && (c->index % 2 == 0 || p->is_named || p->epic >= 0);
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
        receive_done(h, c, &h->commits[e.commit], v);
        break;
    case EXPECT_END:
        receive_end(h, c, &e, v);
        // What was not let go of, or the rest of its block, goes back with the connection.
        c->gives_up = c->gives_up || reply_is_code(v, "FULL") || reply_is_code(v, "ERR");
        break;
    case EXPECT_BEAT:
        receive_beat(h, &e, v);
        break;
    case EXPECT_CALL:
        receive_call(h, e.piece, v);
        break;
    case EXPECT_CANCEL:
        receive_cancel(h, e.piece, v);
        break;
    case EXPECT_EPIC:
        receive_epic(h, &h->epics[e.piece], v);
        break;
    case EXPECT_SCHEDULE:
        receive_schedule(h, e.piece, v);
        break;
    }
    bool again = reply_is_unsure(h, v) || reply_is_code(v, "GAP");
    if (again && e.kind == EXPECT_PUSH && repeats_push(h, c, e.piece))
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

// All DONEs of a block are repeated, or none.
static void lose_done(struct history *h, struct client *c, const struct expected *e) {
    struct commit *k = &h->commits[e->commit];
    if (c->again_count < AGAIN && (k->serial + c->connection) % 4) {
        c->again[c->again_count++] = e->commit;
        return;
    }
    let_go(c, k->token);
    k->state = COMMIT_UNKNOWN;
    h->pieces[e->piece].maybe_done = true;
}

static void lose_reply(struct history *h, struct client *c, const struct expected *e) {
    switch (e->kind) {
    case EXPECT_CALL:
        h->pieces[e->piece].ended = true;
        break;
    case EXPECT_PUSH:
        if (repeats_push(h, c, e->piece))
            c->again[c->again_count++] = e->piece;
        break;
    case EXPECT_DONE:
        lose_done(h, c, e);
        break;
    case EXPECT_CANCEL:
        h->pieces[e->piece].maybe_done = true;
        break;
    case EXPECT_EPIC:
        epic_reply_lost(&h->epics[e->piece]);
        break;
    case EXPECT_SCHEDULE:
        schedule_reply_lost(&h->schedules[e->piece]);
        break;
    case EXPECT_END:
        end_was_answered(c, e->piece, false);
        break;
    case EXPECT_OK:
    case EXPECT_TAKE:
    case EXPECT_BEAT:
        break;
    }
}

// Requests without a reply come before those that are still to be sent again.
void client_lost(struct history *h, struct client *c) {
    int kept[AGAIN], kept_count = c->again_count;
    sim_nodes_note(h->nodes, "client %d has lost its connection", c->index);
    memcpy(kept, c->again, sizeof kept);
    c->again_count = 0;
    for (int i = 0; i < c->expected_count; i++)
        lose_reply(h, c, &c->expected[i]);
    for (int i = 0; i < kept_count && c->again_count < AGAIN; i++)
        c->again[c->again_count++] = kept[i];
    c->expected_count = 0;
    c->takes = c->gives_up = false;
    c->in.size = 0;
    for (int i = 0; i < HELD; i++)
        if (!c->held[i].is_detached)
            c->held[i].piece = -1;
    sim_wire_close(h->nodes, c->wire);
    c->wire = NULL;
    c->connect_at_ms = sim_nodes_now_ms(h->nodes) + roll(h, 200);
    h->reached->closed++;
}

static void client_connect(struct history *h, struct client *c) {
    if (sim_nodes_now_ms(h->nodes) < c->connect_at_ms)
        return;
    int node = (int)roll(h, (uint64_t)h->nodes->node_count);
    c->wire = sim_wire_connect(h->nodes, node);
    c->connection++;
    if (c->wire)
        sim_nodes_note(h->nodes, "client %d connects to node %d, wire %d", c->index, node,
                       (int)(c->wire - h->nodes->wires));
}

void client_step(struct history *h, struct client *c) {
    if (!c->wire) {
        client_connect(h, c);
        return;
    }
    bool open = true;
    if (roll(h, 3))
        open = sim_wire_receive(h->nodes, c->wire, &c->in);
    client_read(h, c);
    if (!open || c->gives_up || (!h->calm && !h->draining && roll(h, 800) == 0)) {
        client_lost(h, c);
        return;
    }
    if (roll(h, 2))
        return;
    if (c->index >= FIRST_PLANNER)
        planner_act(h, c);
    else if (c->index >= FIRST_CALLER)
        caller_act(h, c);
    else if (c->index >= FIRST_WORKER)
        worker_act(h, c);
    else if (c->index)
        producer_act(h, c);
    else
        operator_act(h, c);
}
