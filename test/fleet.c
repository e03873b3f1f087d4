// See fleet.h.
#include "fleet.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void fleet_fail(const struct fleet *f, const char *file, int line, const char *what) {
    if (f->on_fail)
        longjmp(*f->on_fail, line);
    fprintf(stderr, "%s:%d: %s\n  seed %" PRIu64 "; last error: %s\n", file, line, what, f->seed,
            error_text());
    abort();
}

uint64_t fleet_roll(struct fleet *f, uint64_t below) {
    uint64_t z = f->dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

static void text(mr_bytes b, char out[FLEET_TEXT]) {
    (void)snprintf(out, FLEET_TEXT, "%.*s", (int)b.size, b.size ? (const char *)b.data : "");
}

// ---- Logs ---------------------------------------------------------------------------------------

static void log_add(struct fleet_shard *s, const struct entry *e, bool last) {
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->log = realloc(s->log, s->capacity * sizeof *s->log);
    }
    struct fleet_entry *k = &s->log[s->count++];
    *k = (struct fleet_entry){ s->end, e->head.size, e->body.size, NULL, last };
    k->bytes = malloc(e->head.size + e->body.size + 1);
    memcpy(k->bytes, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(k->bytes + e->head.size, e->body.data, e->body.size);
    s->end += entry_size(e->head.size, e->body.size);
}

static int sink_append(void *owner, const struct entry *e, size_t count, enum room room,
                       uint64_t *out_at) {
    struct fleet_shard *s = owner;
    (void)room;
    for (size_t i = 0; i < count; i++) {
        out_at[i] = s->end;
        log_add(s, &e[i], i + 1 == count);
    }
    return 0;
}

static const struct fleet_entry *log_find(const struct fleet_shard *s, uint64_t at) {
    for (size_t i = 0; i < s->count; i++)
        if (s->log[i].at == at)
            return &s->log[i];
    return NULL;
}

static mr_bytes log_body(const struct fleet_shard *s, uint64_t at) {
    const struct fleet_entry *k = at ? log_find(s, at) : NULL;
    fleet_must(s->fleet, k || !at);
    return k ? bytes_of(k->bytes + k->head_size, k->body_size) : (mr_bytes){ 0 };
}

static int sink_read(void *owner, uint64_t at, struct buffer *out_body) {
    mr_bytes body = log_body(owner, at);
    return buffer_append(out_body, body.data, body.size);
}

static void log_cut(struct fleet_shard *s, size_t from, size_t upto) {
    for (size_t i = from; i < upto; i++)
        free(s->log[i].bytes);
    memmove(s->log + from, s->log + upto, (s->count - upto) * sizeof *s->log);
    s->count -= upto - from;
}

static uint64_t durable_end(const struct fleet_shard *s) {
    return s->durable == s->count ? s->end : s->log[s->durable].at;
}

void fleet_sync(struct fleet *f, uint32_t shard) {
    f->shard[shard].durable = f->shard[shard].count;
}

void fleet_sync_some(struct fleet *f, uint32_t shard) {
    struct fleet_shard *s = &f->shard[shard];
    size_t upto = s->durable + fleet_roll(f, s->count - s->durable + 1);
    while (upto > s->durable && !s->log[upto - 1].last)
        upto--;
    s->durable = upto;
}

void fleet_clean(struct fleet *f, uint32_t shard, size_t entries) {
    struct fleet_shard *s = &f->shard[shard];
    size_t count = entries < s->durable ? entries : s->durable;
    while (count && !s->log[count - 1].last)
        count--;
    for (size_t i = 0; i < count; i++) {
        struct fleet_entry k = s->log[i];
        fleet_must(f, core_clean(s->core, k.at, bytes_of(k.bytes, k.head_size),
                                 bytes_of(k.bytes + k.head_size, k.body_size)) == 0);
    }
    if (!count)
        return;
    uint64_t upto = count < s->count ? s->log[count].at : s->end;
    fleet_must(f, core_trimmed(s->core, upto) == 0);
    fleet_sync(f, shard);
    log_cut(s, 0, count);
    s->durable -= count;
}

// ---- What cores tell ----------------------------------------------------------------------------

static int stage_index(struct fleet *f, mr_bytes name) {
    int i = 0;
    while (i < FLEET_STAGES && *f->names[i] && !bytes_equal(name, mr_str(f->names[i])))
        i++;
    fleet_must(f, i < FLEET_STAGES);
    text(name, f->names[i]);
    return i;
}

// An owner notes it down, which may fail.
static int on_over(void *owner, mr_bytes stage, bool over, uint64_t high_mark) {
    struct fleet *f = ((struct fleet_shard *)owner)->fleet;
    uint32_t own = (uint32_t)((struct fleet_shard *)owner - f->shard);
    void *memory = f->deaf ? NULL : mem_alloc(1);
    if (!memory)
        return MR_ENOMEM;
    mem_free(memory);
    int index = stage_index(f, stage);
    fleet_must(f, fleet_home(f, f->names[index]) == own);
    f->told++;
    f->over[index] = over;
    f->marks[index] = high_mark;
    for (uint32_t i = 0; i < f->shards && (over || f->fault != FAULT_DEAF); i++)
        if (i != own)
            f->shard[i].to_wake |= 1u << index;
    return 0;
}

static void on_granted(void *owner, struct taker *taker, const struct grant *g, size_t count) {
    struct fleet_shard *s = owner;
    struct fleet *f = s->fleet;
    s->waits[taker - s->takers] = false;
    for (size_t i = 0; i < count; i++) {
        fleet_must(f, f->held_count < FLEET_HELD);
        struct fleet_held *h = &f->held[f->held_count++];
        *h = (struct fleet_held){ .shard = (uint32_t)(s - f->shard),
                                  .id = g[i].id,
                                  .token = g[i].token };
        text(g[i].stage, h->stage);
        text(g[i].key, h->key);
        text(log_body(s, g[i].at), h->body);
        mr_bytes state = log_body(s, g[i].state_at);
        fleet_must(f, state.size <= sizeof h->state);
        h->state_size = state.size;
        if (state.size)
            memcpy(h->state, state.data, state.size);
    }
}

static void on_room(void *owner, struct pusher *pusher) {
    struct fleet_shard *s = owner;
    s->has_room[pusher - s->pushers] = true;
}

// ---- Life ---------------------------------------------------------------------------------------

static bool is_forgotten(const struct fleet *f, const struct fleet_entry *k) {
    return (f->fault == FAULT_LOST_OUTBOX && k->bytes[0] == RECORD_OUTBOX && k->at % 3 == 0) ||
           (f->fault == FAULT_LOST_MARK && k->bytes[0] == RECORD_LINK);
}

int fleet_open(struct fleet *f, uint32_t shard) {
    struct fleet_shard *s = &f->shard[shard];
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
    fleet_sync(f, shard);
    return err;
}

struct fleet *fleet_create(uint32_t shards, uint64_t seed) {
    struct fleet *f = calloc(1, sizeof *f);
    *f = (struct fleet){ .shards = shards,
                         .seed = seed,
                         .dice = seed * UINT64_C(0x2545f4914f6cdd1d) + 1,
                         .now_ms = 1000000 };
    for (int i = 0; i < FLEET_STAGES; i++)
        f->marks[i] = policy_default().high_mark;
    for (uint32_t i = 0; i < shards; i++) {
        f->shard[i].fleet = f;
        f->shard[i].end = 64;
        fleet_must(f, fleet_open(f, i) == 0);
    }
    return f;
}

static void shard_close(struct fleet_shard *s) {
    for (int i = 0; i < FLEET_TAKERS && s->core; i++)
        if (s->waits[i])
            core_take_leave(s->core, &s->takers[i]);
    memset(s->waits, 0, sizeof s->waits);
    memset(s->takers, 0, sizeof s->takers);
    memset(s->pushers, 0, sizeof s->pushers);
    memset(s->has_room, 0, sizeof s->has_room);
    core_destroy(s->core);
    s->core = NULL;
}

void fleet_forget(struct fleet *f) {
    for (uint32_t i = 0; i < f->shards; i++) {
        shard_close(&f->shard[i]);
        log_cut(&f->shard[i], 0, f->shard[i].count);
        free(f->shard[i].log);
    }
    free(f);
}

void fleet_destroy(struct fleet *f) {
    fleet_check(f);
    fleet_forget(f);
}

// What its workers held is lost, and acknowledgements that were to come when all was durable.
static void crash_around(struct fleet *f, uint32_t shard) {
    for (size_t i = 0; i < f->held_count;)
        if (f->held[i].shard == shard)
            fleet_answered(f, i);
        else
            i++;
    for (size_t i = 0; i < f->ack_count;)
        if (f->acks[i].to == shard && f->acks[i].durable_at > durable_end(&f->shard[shard]))
            fleet_lose_ack(f, i);
        else
            i++;
    memset(f->shard[shard].sent, 0, sizeof f->shard[shard].sent);
}

void fleet_crash(struct fleet *f, uint32_t shard) {
    struct fleet_shard *s = &f->shard[shard];
    fleet_sync_some(f, shard);
    crash_around(f, shard);
    s->end = durable_end(s);
    log_cut(s, s->durable, s->count);
    shard_close(s);
    for (int i = 0; i < FLEET_STAGES; i++)
        if (fleet_home(f, f->names[i]) == shard) {
            f->over[i] = false;
            f->marks[i] = policy_default().high_mark;
        }
    fleet_must(f, fleet_open(f, shard) == 0);
    for (uint32_t i = 0; i < f->shards; i++) // what lived there may have held the others
        f->shard[i].to_wake = (1u << FLEET_STAGES) - 1;
}

void fleet_crash_all(struct fleet *f) {
    for (uint32_t i = 0; i < f->shards; i++)
        fleet_crash(f, i);
}

void fleet_pass(struct fleet *f, uint64_t ms) {
    f->now_ms += ms;
    for (uint32_t i = 0; i < f->shards; i++)
        fleet_must(f, core_advance(f->shard[i].core, f->now_ms) == 0);
}

// ---- Everywhere ---------------------------------------------------------------------------------

uint32_t fleet_home(const struct fleet *f, const char *stage) {
    return route_of(f->shards, mr_str(stage));
}

void fleet_set(struct fleet *f, const char *stage, const char *name, const char *value) {
    uint32_t home = fleet_home(f, stage);
    (void)stage_index(f, mr_str(stage));
    fleet_must(f, core_set(f->shard[home].core, mr_str(stage), mr_str(name), mr_str(value)) == 0);
    fleet_sync(f, home);
}

static void look(const struct fleet *f, uint32_t shard, const char *stage, struct stage_info *out) {
    if (core_look_stage(f->shard[shard].core, mr_str(stage), out) < 0)
        *out = (struct stage_info){ 0 };
}

uint64_t fleet_sum(const struct fleet *f, const char *stage, enum job_status status) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < f->shards; i++) {
        struct stage_info s;
        look(f, i, stage, &s);
        sum += status == JOB_RUNNING ? s.running : status == JOB_WAITING ? s.waiting : s.delayed;
    }
    return sum;
}

void fleet_check(struct fleet *f) {
    for (uint32_t i = 0; i < f->shards; i++)
        fleet_must(f, core_check(f->shard[i].core) == 0);
}

// ---- Work ---------------------------------------------------------------------------------------

int fleet_push(struct fleet *f, uint32_t shard, const struct push *p) {
    struct pushed pushed;
    (void)stage_index(f, p->stage);
    return core_push(f->shard[shard].core, p, &pushed);
}

void fleet_wait(struct fleet *f, uint32_t shard, int taker, const char *stage) {
    struct fleet_shard *s = &f->shard[shard];
    if (s->waits[taker])
        return;
    mr_bytes stages[FLEET_STAGES];
    size_t count = 0;
    for (int i = 0; i < FLEET_STAGES && *f->names[i]; i++)
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
        fleet_must(f, err == 0 || err == MR_ENOMEM);
}

void fleet_answered(struct fleet *f, size_t held) {
    f->held[held] = f->held[--f->held_count];
}

void fleet_wake(struct fleet *f, uint32_t shard) {
    unsigned stages = f->shard[shard].to_wake;
    f->shard[shard].to_wake = 0;
    for (int i = 0; i < FLEET_STAGES; i++)
        if (stages >> i & 1 && *f->names[i] && fleet_home(f, f->names[i]) != shard)
            fleet_must(f, core_learn_over(f->shard[shard].core, mr_str(f->names[i]), f->over[i],
                                          f->marks[i]) == 0);
}

bool fleet_wake_all(struct fleet *f) {
    bool any = false;
    for (uint32_t i = 0; i < f->shards; i++)
        if (f->shard[i].to_wake) {
            any = true;
            fleet_wake(f, i);
            i = UINT32_MAX; // from the first again
        }
    return any;
}

// ---- The post -----------------------------------------------------------------------------------

bool fleet_send(struct fleet *f, uint32_t from, uint32_t to) {
    struct fleet_shard *s = &f->shard[from];
    struct fleet_mail *m = &f->mail[f->mail_count];
    struct link_entry e;
    if (f->mail_count == FLEET_MAIL || !core_link_next(s->core, to, s->sent[to], &e) ||
        (e.at >= durable_end(s) && f->fault != FAULT_EARLY_SEND))
        return false;
    *m = (struct fleet_mail){ .from = from, .to = to, .entry = e };
    text(e.stage, m->stage);
    text(e.key, m->key);
    text(e.once, m->once);
    text(log_body(s, e.at), m->body);
    s->sent[to] = e.number;
    f->mail_count++;
    return true;
}

void fleet_resend(struct fleet *f, uint32_t from, uint32_t to) {
    f->shard[from].sent[to] = 0;
}

void fleet_lose_mail(struct fleet *f, size_t mail) {
    if (f->fault == FAULT_LOST_LETTER && f->ack_count < FLEET_MAIL)
        f->acks[f->ack_count++] = f->mail[mail];
    f->mail[mail] = f->mail[--f->mail_count];
}

void fleet_lose_ack(struct fleet *f, size_t ack) {
    f->acks[ack] = f->acks[--f->ack_count];
}

void fleet_deliver(struct fleet *f, size_t mail, bool keep) {
    struct fleet_mail m = f->mail[mail];
    struct fleet_shard *to = &f->shard[m.to];
    (void)stage_index(f, mr_str(m.stage));
    m.entry.stage = mr_str(m.stage);
    m.entry.key = mr_str(m.key);
    m.entry.once = mr_str(m.once);
    if (f->fault == FAULT_OVERTAKING)
        m.entry.after = 0;
    if (f->fault == FAULT_TAKEN_TWICE && m.entry.number == core_link_mark(to->core, m.from))
        m.entry.number++; // of no entry: numbers are further apart
    int err = core_link_accept(to->core, m.from, &m.entry, mr_str(m.body));
    fleet_must(f, err == 0 || err == MR_EGAP || err == MR_ENOMEM || err == MR_ESTOPPED);
    if (err == MR_EGAP)
        fleet_resend(f, m.from, m.to);
    if (err == 0)
        core_link_arrived(f->shard[m.from].core, m.to, m.entry.number);
    if (err == 0 && f->ack_count < FLEET_MAIL) {
        m.durable_at = to->end;
        f->acks[f->ack_count++] = m;
    }
    if (!keep && (err == 0 || err == MR_EGAP))
        fleet_lose_mail(f, mail);
}

bool fleet_ack(struct fleet *f, size_t ack, bool keep) {
    const struct fleet_mail *m = &f->acks[ack];
    if (m->durable_at > durable_end(&f->shard[m->to]) && f->fault != FAULT_EARLY_ACK)
        return false;
    fleet_must(f, core_link_acked(f->shard[m->from].core, m->to, m->entry.number) == 0);
    if (!keep)
        fleet_lose_ack(f, ack);
    return true;
}

bool fleet_carry_all(struct fleet *f) {
    bool any = false;
    for (uint32_t i = 0; i < f->shards; i++)
        fleet_sync(f, i);
    for (uint32_t from = 0; from < f->shards; from++)
        for (uint32_t to = 0; to < f->shards; to++)
            while (fleet_send(f, from, to))
                any = true;
    for (size_t left = f->mail_count; left > 0; left--) { // in order
        any = true;
        fleet_deliver(f, 0, true);
        memmove(f->mail, f->mail + 1, --f->mail_count * sizeof *f->mail);
    }
    for (uint32_t i = 0; i < f->shards; i++)
        fleet_sync(f, i);
    while (f->ack_count) {
        any = true;
        fleet_must(f, fleet_ack(f, 0, false));
    }
    for (uint32_t from = 0; from < f->shards && !any; from++)
        for (uint32_t to = 0; to < f->shards; to++) { // what was lost before
            any = any || (core_links(f->shard[from].core) && f->shard[from].sent[to]);
            fleet_resend(f, from, to);
        }
    return any;
}
