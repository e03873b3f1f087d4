// See shard_set.h.
#include "shard_set.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void shard_set_fail(const struct shard_set *f, const char *file, int line, const char *what) {
    if (f->on_fail)
        longjmp(*f->on_fail, line);
    fprintf(stderr, "%s:%d: %s\n  seed %" PRIu64 "; last error: %s\n", file, line, what, f->seed,
            error_text());
    abort();
}

uint64_t shard_set_random(struct shard_set *f, uint64_t below) {
    uint64_t z = f->dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static void text(mr_bytes b, char out[SHARD_SET_TEXT]) {
    (void)snprintf(out, SHARD_SET_TEXT, "%.*s", (int)b.size, b.size ? (const char *)b.data : "");
}

// ---- Logs -------------------------------------------------------------------------------------

static void log_add(struct shard_set_shard *s, const struct entry *e, bool last) {
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->log = realloc(s->log, s->capacity * sizeof *s->log);
    }
    struct shard_set_entry *k = &s->log[s->count++];
    *k = (struct shard_set_entry){ s->end, e->head.size, e->body.size, NULL, last };
    k->bytes = malloc(e->head.size + e->body.size + 1);
    memcpy(k->bytes, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(k->bytes + e->head.size, e->body.data, e->body.size);
    s->end += entry_size(e->head.size, e->body.size);
}

static int sink_append(void *owner, const struct entry *e, size_t count, enum room room,
                       uint64_t *out_at) {
    struct shard_set_shard *s = owner;
    (void)room;
    for (size_t i = 0; i < count; i++) {
        out_at[i] = s->end;
        log_add(s, &e[i], i + 1 == count);
    }
    return 0;
}

static const struct shard_set_entry *log_find(const struct shard_set_shard *s, uint64_t at) {
    for (size_t i = 0; at >= s->trimmed && i < s->count; i++)
        if (s->log[i].at == at)
            return &s->log[i];
    return NULL;
}

static mr_bytes log_body(const struct shard_set_shard *s, uint64_t at) {
    const struct shard_set_entry *k = at ? log_find(s, at) : NULL;
    shard_set_must(s->set, k || !at);
    return k ? bytes_of(k->bytes + k->head_size, k->body_size) : (mr_bytes){ 0 };
}

static int sink_read(void *owner, uint64_t at, struct buffer *out_body) {
    mr_bytes body = log_body(owner, at);
    return buffer_append(out_body, body.data, body.size);
}

static void log_cut(struct shard_set_shard *s, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++)
        free(s->log[i].bytes);
    memmove(s->log + from, s->log + upto, (s->count - upto) * sizeof *s->log);
    s->count -= upto - from;
}

static uint64_t durable_end(const struct shard_set_shard *s) {
    return s->durable == s->count ? s->end : s->log[s->durable].at;
}

void shard_set_sync(struct shard_set *f, uint32_t shard) {
    f->shard[shard].durable = f->shard[shard].count;
}

void shard_set_sync_some(struct shard_set *f, uint32_t shard) {
    struct shard_set_shard *s = &f->shard[shard];
    size_t upto = s->durable + shard_set_random(f, s->count - s->durable + 1);
    while (upto > s->durable && !s->log[upto - 1].last)
        upto--;
    s->durable = upto;
}

static void log_remove_trimmed(struct shard_set_shard *s) {
    size_t count = 0;
    while (count < s->count && s->log[count].at < s->trimmed)
        count++;
    log_cut(s, 0, count);
    s->durable -= count;
}

// Now and then what was trimmed is still in the log when the shard is opened next.
void shard_set_clean(struct shard_set *f, uint32_t shard, size_t entries) {
    struct shard_set_shard *s = &f->shard[shard];
    log_remove_trimmed(s);
    size_t count = entries < s->durable ? entries : s->durable;
    while (count && !s->log[count - 1].last)
        count--;
    for (size_t i = 0; i < count; i++) {
        struct shard_set_entry k = s->log[i];
        shard_set_must(f, core_clean(s->core, k.at, bytes_of(k.bytes, k.head_size),
                                     bytes_of(k.bytes + k.head_size, k.body_size)) == 0);
    }
    if (!count)
        return;
    uint64_t upto = count < s->count ? s->log[count].at : s->end;
    shard_set_must(f, core_trimmed(s->core, upto) == 0);
    shard_set_sync(f, shard);
    s->trimmed = upto;
    if (shard_set_random(f, 2))
        log_remove_trimmed(s);
}

// ---- Events and notices of the cores ----------------------------------------------------------

static int stage_index(struct shard_set *f, mr_bytes name) {
    int i = 0;
    while (i < SHARD_SET_STAGES && *f->names[i] && !bytes_equal(name, mr_str(f->names[i])))
        i++;
    shard_set_must(f, i < SHARD_SET_STAGES);
    text(name, f->names[i]);
    return i;
}

// The owner queues the notice, which may fail.
static int on_over(void *owner, mr_bytes stage, bool over, uint64_t high_mark) {
    struct shard_set *f = ((struct shard_set_shard *)owner)->set;
    uint32_t own = (uint32_t)((struct shard_set_shard *)owner - f->shard);
    void *memory = f->notices_fail ? NULL : mem_alloc(1);
    if (!memory)
        return MR_ENOMEM;
    mem_free(memory);
    int index = stage_index(f, stage);
    shard_set_must(f, shard_set_shard_of(f, f->names[index]) == own);
    f->notified++;
    f->over[index] = over;
    f->marks[index] = high_mark;
    for (uint32_t i = 0; i < f->shards && (over || f->fault != FAULT_LOST_NOTICE); i++)
        if (i != own)
            f->shard[i].to_wake |= 1u << index;
    return 0;
}

static void on_granted(void *owner, struct taker *taker, const struct grant *g, size_t count) {
    struct shard_set_shard *s = owner;
    struct shard_set *f = s->set;
    s->waits[taker - s->takers] = false;
    for (size_t i = 0; i < count; i++) {
        shard_set_must(f, f->held_count < SHARD_SET_HELD);
        struct shard_set_held *h = &f->held[f->held_count++];
        *h = (struct shard_set_held){ .shard = (uint32_t)(s - f->shard),
                                      .id = g[i].id,
                                      .token = g[i].token };
        text(g[i].stage, h->stage);
        text(g[i].key, h->key);
        text(log_body(s, g[i].at), h->body);
        mr_bytes state = log_body(s, g[i].state_at);
        shard_set_must(f, state.size <= sizeof h->state);
        h->state_size = state.size;
        if (state.size)
            memcpy(h->state, state.data, state.size);
    }
}

static void on_room(void *owner, struct pusher *pusher) {
    struct shard_set_shard *s = owner;
    s->has_room[pusher - s->pushers] = true;
}

// ---- Life -------------------------------------------------------------------------------------

static bool is_forgotten(const struct shard_set *f, const struct shard_set_entry *k) {
    return (f->fault == FAULT_LOST_OUTBOX && k->bytes[0] == RECORD_OUTBOX && k->at % 3 == 0) ||
           (f->fault == FAULT_LOST_MARK && k->bytes[0] == RECORD_LINK);
}

int shard_set_open(struct shard_set *f, uint32_t shard) {
    struct shard_set_shard *s = &f->shard[shard];
    struct core_config config = {
        .sink = { sink_append, sink_read, .owner = s },
        .events = { .granted = on_granted, .room = on_room },
        .owner = s,
        .peers = { .over = on_over, .owner = s },
        .shard = shard,
        .shards = f->shards,
    };
    s->core = NULL;
    int err = core_create(&config, &s->core);
    for (size_t i = 0; err == 0 && i < s->count; i++)
        err =
            is_forgotten(f, &s->log[i])
                ? 0
                : core_replay(s->core, s->log[i].at, bytes_of(s->log[i].bytes, s->log[i].head_size),
                              (uint32_t)s->log[i].body_size);
    if (err == 0)
        err = core_open(s->core, f->now_ms, ++s->opens);
    if (err == 0)
        err = core_advance(s->core, f->now_ms);
    if (err == 0)
        core_join(s->core, &s->conn);
    shard_set_sync(f, shard);
    log_remove_trimmed(s);
    return err;
}

struct shard_set *shard_set_create(uint32_t shards, uint64_t seed) {
    struct shard_set *f = calloc(1, sizeof *f);
    *f = (struct shard_set){ .shards = shards,
                             .seed = seed,
                             .dice = seed * UINT64_C(0x2545f4914f6cdd1d) + 1,
                             .now_ms = 1000000 };
    for (int i = 0; i < SHARD_SET_STAGES; i++)
        f->marks[i] = policy_default().high_mark;
    for (uint32_t i = 0; i < shards; i++) {
        f->shard[i].set = f;
        f->shard[i].end = 64;
        shard_set_must(f, shard_set_open(f, i) == 0);
    }
    return f;
}

static void shard_close(struct shard_set_shard *s) {
    for (int i = 0; i < SHARD_SET_TAKERS && s->core; i++)
        if (s->waits[i])
            core_take_leave(s->core, &s->takers[i]);
    memset(s->waits, 0, sizeof s->waits);
    memset(s->takers, 0, sizeof s->takers);
    memset(s->pushers, 0, sizeof s->pushers);
    memset(s->has_room, 0, sizeof s->has_room);
    core_destroy(s->core);
    s->core = NULL;
}

void shard_set_forget(struct shard_set *f) {
    for (uint32_t i = 0; i < f->shards; i++) {
        shard_close(&f->shard[i]);
        log_cut(&f->shard[i], 0, f->shard[i].count);
        free(f->shard[i].log);
    }
    free(f);
}

void shard_set_destroy(struct shard_set *f) {
    shard_set_check(f);
    shard_set_forget(f);
}

// Its leases are lost, and the acknowledgements that waited for its log.
static void crash_around(struct shard_set *f, uint32_t shard) {
    for (size_t i = 0; i < f->held_count;)
        if (f->held[i].shard == shard)
            shard_set_answered(f, i);
        else
            i++;
    for (size_t i = 0; i < f->ack_count;)
        if (f->acks[i].to == shard && f->acks[i].durable_at > durable_end(&f->shard[shard]))
            shard_set_lose_ack(f, i);
        else
            i++;
    memset(f->shard[shard].sent, 0, sizeof f->shard[shard].sent);
}

void shard_set_crash(struct shard_set *f, uint32_t shard) {
    struct shard_set_shard *s = &f->shard[shard];
    shard_set_sync_some(f, shard);
    crash_around(f, shard);
    s->end = durable_end(s);
    log_cut(s, s->durable, s->count);
    shard_close(s);
    for (int i = 0; i < SHARD_SET_STAGES; i++)
        if (shard_set_shard_of(f, f->names[i]) == shard) {
            f->over[i] = false;
            f->marks[i] = policy_default().high_mark;
        }
    shard_set_must(f, shard_set_open(f, shard) == 0);
    for (uint32_t i = 0; i < f->shards; i++) // what lived there may have held the others
        f->shard[i].to_wake = (1u << SHARD_SET_STAGES) - 1;
}

void shard_set_crash_all(struct shard_set *f) {
    for (uint32_t i = 0; i < f->shards; i++)
        shard_set_crash(f, i);
}

void shard_set_pass(struct shard_set *f, uint64_t ms) {
    f->now_ms += ms;
    for (uint32_t i = 0; i < f->shards; i++)
        shard_set_must(f, core_advance(f->shard[i].core, f->now_ms) == 0);
}

// ---- Everywhere -------------------------------------------------------------------------------

uint32_t shard_set_shard_of(const struct shard_set *f, const char *stage) {
    return route_of(f->shards, mr_str(stage));
}

void shard_set_set(struct shard_set *f, const char *stage, const char *name, const char *value) {
    uint32_t home = shard_set_shard_of(f, stage);
    (void)stage_index(f, mr_str(stage));
    shard_set_must(f,
                   core_set(f->shard[home].core, mr_str(stage), mr_str(name), mr_str(value)) == 0);
    shard_set_sync(f, home);
}

static void look(const struct shard_set *f, uint32_t shard, const char *stage,
                 struct stage_info *out) {
    if (core_look_stage(f->shard[shard].core, mr_str(stage), out) < 0)
        *out = (struct stage_info){ 0 };
}

uint64_t shard_set_sum(const struct shard_set *f, const char *stage, enum job_status status) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < f->shards; i++) {
        struct stage_info s;
        look(f, i, stage, &s);
        sum += status == JOB_RUNNING ? s.running : status == JOB_WAITING ? s.waiting : s.delayed;
    }
    return sum;
}

void shard_set_check(struct shard_set *f) {
    for (uint32_t i = 0; i < f->shards; i++)
        shard_set_must(f, core_check(f->shard[i].core) == 0);
}

// ---- Work -------------------------------------------------------------------------------------

int shard_set_push(struct shard_set *f, uint32_t shard, const struct push *p) {
    struct pushed pushed;
    (void)stage_index(f, p->stage);
    return core_push(f->shard[shard].core, p, &pushed);
}

void shard_set_wait(struct shard_set *f, uint32_t shard, int taker, const char *stage) {
    struct shard_set_shard *s = &f->shard[shard];
    if (s->waits[taker])
        return;
    mr_bytes stages[SHARD_SET_STAGES];
    size_t count = 0;
    for (int i = 0; i < SHARD_SET_STAGES && *f->names[i]; i++)
        if (!stage || !strcmp(stage, f->names[i]))
            stages[count++] = mr_str(f->names[i]);
    struct take take = { .stages = stages,
                         .stage_count = count,
                         .conn = &s->conn,
                         .lease_ms = 100000000,
                         .taker = &s->takers[taker] };
    struct grant g;
    size_t granted;
    int err = count ? core_take(s->core, &take, &g, &granted) : 0;
    if (err == 0 && count)
        on_granted(s, &s->takers[taker], &g, granted);
    else if (err == MR_EAGAIN)
        s->waits[taker] = true;
    else
        shard_set_must(f, err == 0 || err == MR_ENOMEM);
}

void shard_set_answered(struct shard_set *f, size_t held) {
    f->held[held] = f->held[--f->held_count];
}

void shard_set_wake(struct shard_set *f, uint32_t shard) {
    unsigned stages = f->shard[shard].to_wake;
    f->shard[shard].to_wake = 0;
    for (int i = 0; i < SHARD_SET_STAGES; i++)
        if (stages >> i & 1 && *f->names[i] && shard_set_shard_of(f, f->names[i]) != shard)
            shard_set_must(f, core_learn_over(f->shard[shard].core, mr_str(f->names[i]), f->over[i],
                                              f->marks[i]) == 0);
}

bool shard_set_wake_all(struct shard_set *f) {
    bool any = false;
    for (uint32_t i = 0; i < f->shards; i++)
        if (f->shard[i].to_wake) {
            any = true;
            shard_set_wake(f, i);
            i = UINT32_MAX; // from the first again
        }
    return any;
}

// ---- Messages ---------------------------------------------------------------------------------

bool shard_set_send(struct shard_set *f, uint32_t from, uint32_t to) {
    struct shard_set_shard *s = &f->shard[from];
    struct shard_set_message *m = &f->messages[f->message_count];
    struct link_entry e;
    if (f->message_count == SHARD_SET_MESSAGES || !core_link_next(s->core, to, s->sent[to], &e) ||
        (e.at >= durable_end(s) && f->fault != FAULT_EARLY_SEND))
        return false;
    *m = (struct shard_set_message){ .from = from, .to = to, .entry = e };
    text(e.stage, m->stage);
    text(e.key, m->key);
    text(e.once, m->once);
    text(log_body(s, e.at), m->body);
    s->sent[to] = e.number;
    f->message_count++;
    return true;
}

void shard_set_resend(struct shard_set *f, uint32_t from, uint32_t to) {
    f->shard[from].sent[to] = 0;
}

void shard_set_lose_message(struct shard_set *f, size_t message) {
    if (f->fault == FAULT_LOST_MESSAGE && f->ack_count < SHARD_SET_MESSAGES)
        f->acks[f->ack_count++] = f->messages[message];
    f->messages[message] = f->messages[--f->message_count];
}

void shard_set_lose_ack(struct shard_set *f, size_t ack) {
    f->acks[ack] = f->acks[--f->ack_count];
}

void shard_set_deliver(struct shard_set *f, size_t message, bool keep) {
    struct shard_set_message m = f->messages[message];
    struct shard_set_shard *to = &f->shard[m.to];
    (void)stage_index(f, mr_str(m.stage));
    m.entry.stage = mr_str(m.stage);
    m.entry.key = mr_str(m.key);
    m.entry.once = mr_str(m.once);
    if (f->fault == FAULT_OVERTAKING)
        m.entry.after = 0;
    if (f->fault == FAULT_TAKEN_TWICE && m.entry.number == core_link_mark(to->core, m.from))
        m.entry.number++; // of no entry: numbers are further apart
    int err = core_link_accept(to->core, m.from, &m.entry, mr_str(m.body));
    shard_set_must(f, err == 0 || err == MR_EGAP || err == MR_ENOMEM || err == MR_ESTOPPED);
    if (err == MR_EGAP)
        shard_set_resend(f, m.from, m.to);
    if (err == 0)
        core_link_arrived(f->shard[m.from].core, m.to, m.entry.number);
    if (err == 0 && f->ack_count < SHARD_SET_MESSAGES) {
        m.durable_at = to->end;
        f->acks[f->ack_count++] = m;
    }
    if (!keep && (err == 0 || err == MR_EGAP))
        shard_set_lose_message(f, message);
}

bool shard_set_ack(struct shard_set *f, size_t ack, bool keep) {
    const struct shard_set_message *m = &f->acks[ack];
    if (m->durable_at > durable_end(&f->shard[m->to]) && f->fault != FAULT_EARLY_ACK)
        return false;
    shard_set_must(f, core_link_acked(f->shard[m->from].core, m->to, m->entry.number) == 0);
    if (!keep)
        shard_set_lose_ack(f, ack);
    return true;
}

bool shard_set_deliver_all(struct shard_set *f) {
    bool any = false;
    for (uint32_t i = 0; i < f->shards; i++)
        shard_set_sync(f, i);
    for (uint32_t from = 0; from < f->shards; from++)
        for (uint32_t to = 0; to < f->shards; to++)
            while (shard_set_send(f, from, to))
                any = true;
    for (size_t left = f->message_count; left > 0; left--) { // in order
        any = true;
        shard_set_deliver(f, 0, true);
        memmove(f->messages, f->messages + 1, --f->message_count * sizeof *f->messages);
    }
    for (uint32_t i = 0; i < f->shards; i++)
        shard_set_sync(f, i);
    while (f->ack_count) {
        any = true;
        shard_set_must(f, shard_set_ack(f, 0, false));
    }
    for (uint32_t from = 0; from < f->shards && !any; from++)
        for (uint32_t to = 0; to < f->shards; to++) { // what was lost before
            any = any || (core_links(f->shard[from].core) && f->shard[from].sent[to]);
            shard_set_resend(f, from, to);
        }
    return any;
}
