// See peer_set.h.
#include "support/peer_set.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEGMENT = 64 << 10, CLOCKS_APART_MS = 600000 };

uint64_t peer_set_roll(struct peer_set *s, uint64_t below) {
    uint64_t z = s->dice += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

// ---- Shards -----------------------------------------------------------------------------------

uint32_t peer_set_home(const struct peer_set *s, int stage) {
    return (uint32_t)stage % s->count;
}

static uint64_t shard_clock(void *shard) {
    const struct peer_set_shard *p = shard;
    return p->set->now_ms + (uint64_t)p->ahead_ms;
}

static uint64_t shard_random(void *shard) {
    return peer_set_roll(((struct peer_set_shard *)shard)->set, UINT64_MAX);
}

static int stage_of_taker(const struct peer_set_shard *p, const struct taker *taker) {
    return (int)((taker - &p->takers[0][0]) / PEER_SET_TAKERS);
}

static void on_granted(void *shard, struct taker *taker, const struct grant *g, size_t count) {
    struct peer_set_shard *p = shard;
    struct peer_set *s = p->set;
    int stage = stage_of_taker(p, taker);
    p->waits[stage][taker - p->takers[stage]] = false;
    for (size_t i = 0; i < count; i++) {
        peer_set_must(s, s->held_count < PEER_SET_HELD);
        s->held[s->held_count++] = (struct peer_set_held){ .shard = (uint32_t)(p - s->shards),
                                                           .stage = stage,
                                                           .id = g[i].id,
                                                           .at = g[i].at,
                                                           .state_at = g[i].state_at,
                                                           .token = g[i].token };
    }
}

static void shard_open_again(struct peer_set *s, uint32_t index) {
    struct peer_set_shard *p = &s->shards[index];
    struct shard_options options = {
        .store = store_in("/store"),
        .log = { .segment_size = SEGMENT, .inline_writer = true, .disk = sim_disk_disk(p->disk) },
        .events = { .granted = on_granted },
        .owner = p,
        .world = { shard_clock, shard_clock, shard_random, p },
        .shard = index,
        .shards = s->count,
    };
    p->ahead_ms = (int64_t)peer_set_roll(s, CLOCKS_APART_MS) - CLOCKS_APART_MS / 2;
    peer_set_must(s, shard_open(&options, &p->shard) == 0);
    core_join(shard_core(p->shard), &p->conn);
    s->opened++;
}

static void name_stages(struct peer_set *s) {
    for (int i = 0; i < PEER_SET_STAGES; i++)
        for (int n = 0;; n++) {
            (void)snprintf(s->names[i], sizeof s->names[i], "%c%d", 'a' + i, n);
            if (route_of(s->count, mr_str(s->names[i])) == peer_set_home(s, i))
                break;
        }
}

struct peer_set *peer_set_create(uint32_t shards, uint64_t seed) {
    struct peer_set *s = calloc(1, sizeof *s);
    *s = (struct peer_set){ .count = shards,
                            .seed = seed,
                            .dice = seed * UINT64_C(0x2545f4914f6cdd1d) + 1,
                            .now_ms = 1700000000000 };
    name_stages(s);
    for (uint32_t i = 0; i < shards; i++) {
        s->shards[i] = (struct peer_set_shard){ .set = s, .disk = sim_disk_create() };
        for (uint32_t k = 0; k < shards; k++)
            list_init(&s->wires[i][k]);
        shard_open_again(s, i);
    }
    return s;
}

static void shard_leave(struct peer_set *s, uint32_t index) {
    struct peer_set_shard *p = &s->shards[index];
    for (int i = 0; i < PEER_SET_STAGES; i++)
        for (int t = 0; t < PEER_SET_TAKERS; t++)
            if (p->waits[i][t])
                core_take_leave(shard_core(p->shard), &p->takers[i][t]);
    memset(p->waits, 0, sizeof p->waits);
    memset(p->takers, 0, sizeof p->takers);
    for (size_t i = 0; i < s->held_count;)
        if (s->held[i].shard == index)
            peer_set_answered(s, i);
        else
            i++;
    shard_close(p->shard);
}

void peer_set_destroy(struct peer_set *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        peer_set_must(s, core_check(shard_core(s->shards[i].shard)) == 0);
        shard_leave(s, i);
        sim_disk_destroy(s->shards[i].disk);
        for (uint32_t k = 0; k < s->count; k++)
            while (peer_set_lose(s, i, k)) {
            }
    }
    free(s);
}

struct core *peer_set_core(struct peer_set *s, uint32_t shard) {
    peer_set_must(s, shard_begin(s->shards[shard].shard) == 0);
    return shard_core(s->shards[shard].shard);
}

struct peers *peer_set_peers(struct peer_set *s, uint32_t shard) {
    (void)peer_set_core(s, shard);
    return shard_peers(s->shards[shard].shard);
}

void peer_set_sync(struct peer_set *s, uint32_t shard) {
    struct shard *p = s->shards[shard].shard;
    uint64_t at = shard_end(p);
    peer_set_must(s, shard_wait(p, at) == 0 && shard_is_durable(p, at));
}

void peer_set_pass(struct peer_set *s, uint64_t ms) {
    s->now_ms += ms;
    for (uint32_t i = 0; i < s->count; i++)
        (void)peer_set_core(s, i);
}

void peer_set_replace(struct peer_set *s, uint32_t shard, bool crash) {
    struct sim_disk *disk = s->shards[shard].disk;
    if (crash)
        sim_disk_crash(disk);
    shard_leave(s, shard);
    if (crash)
        sim_disk_restart(disk, SIM_DROP, 0);
    shard_open_again(s, shard);
    for (uint32_t i = 0; i < s->count; i++)
        if (i != shard)
            s->resets[i][shard] = s->resets[shard][i] = true;
}

// ---- Messages ---------------------------------------------------------------------------------

void peer_set_post(struct peer_set *s, uint32_t from) {
    struct message m = { 0 };
    while (peers_next(peer_set_peers(s, from), true, &m)) {
        struct peer_set_letter *l = calloc(1, sizeof *l);
        peer_set_must(s, m.from == from && m.to < s->count && m.to != from);
        peer_set_must(s, message_write(&m, &l->bytes) == 0 && l->bytes.size <= MESSAGE_MOST);
        list_append(&s->wires[from][m.to], &l->of_wire);
        s->posted++;
    }
    message_finish(&m);
}

static struct peer_set_letter *letter_take(struct peer_set *s, uint32_t from, uint32_t to) {
    struct list *l = list_first(&s->wires[from][to]);
    if (!l)
        return NULL;
    list_remove(l);
    return list_entry(l, struct peer_set_letter, of_wire);
}

static void letter_free(struct peer_set_letter *l) {
    buffer_finish(&l->bytes);
    free(l);
}

bool peer_set_deliver(struct peer_set *s, uint32_t from, uint32_t to) {
    struct peer_set_letter *l = letter_take(s, from, to);
    struct message m = { 0 };
    if (!l)
        return false;
    peer_set_must(s, message_read(buffer_bytes(&l->bytes), &m) == 0);
    peer_set_must(s, peers_receive(peer_set_peers(s, to), &m) == 0);
    message_finish(&m);
    letter_free(l);
    return true;
}

bool peer_set_lose(struct peer_set *s, uint32_t from, uint32_t to) {
    struct peer_set_letter *l = letter_take(s, from, to);
    if (!l)
        return false;
    letter_free(l);
    s->lost++;
    return true;
}

void peer_set_cut(struct peer_set *s, uint32_t a, uint32_t b) {
    while (peer_set_lose(s, a, b) || peer_set_lose(s, b, a)) {
    }
    s->resets[a][b] = s->resets[b][a] = true;
}

void peer_set_reset(struct peer_set *s, uint32_t shard, uint32_t other) {
    if (s->resets[shard][other])
        peers_reset(peer_set_peers(s, shard), other);
    s->resets[shard][other] = false;
}

void peer_set_reset_all(struct peer_set *s) {
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->count; k++)
            peer_set_reset(s, i, k);
}

bool peer_set_exchange(struct peer_set *s) {
    bool any = false;
    for (uint32_t i = 0; i < s->count; i++) {
        peer_set_sync(s, i);
        peer_set_post(s, i);
    }
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t k = 0; k < s->count; k++)
            while (peer_set_deliver(s, i, k))
                any = true;
    return any;
}

void peer_set_settle(struct peer_set *s) {
    for (int rounds = 0; peer_set_exchange(s); rounds++)
        peer_set_must(s, rounds < 10000); // messages that cause each other for ever
}

// ---- Work -------------------------------------------------------------------------------------

void peer_set_set(struct peer_set *s, int stage, const char *name, const char *value) {
    uint32_t home = peer_set_home(s, stage);
    peer_set_must(s, core_set(peer_set_core(s, home), mr_str(s->names[stage]), mr_str(name),
                              mr_str(value)) == 0);
    peer_set_sync(s, home);
}

void peer_set_wait(struct peer_set *s, int stage) {
    uint32_t home = peer_set_home(s, stage);
    struct peer_set_shard *p = &s->shards[home];
    mr_bytes name = mr_str(s->names[stage]);
    for (int t = 0; t < PEER_SET_TAKERS && s->held_count < PEER_SET_HELD / 2; t++) {
        struct take take = { .stages = &name,
                             .stage_count = 1,
                             .conn = &p->conn,
                             .lease_ms = 100000000,
                             .taker = &p->takers[stage][t] };
        struct grant g;
        size_t granted;
        if (p->waits[stage][t])
            continue;
        int err = core_take(peer_set_core(s, home), &take, &g, &granted);
        peer_set_must(s, err == 0 || err == MR_EAGAIN);
        p->waits[stage][t] = true;
        if (err == 0)
            on_granted(p, &p->takers[stage][t], &g, granted);
    }
}

void peer_set_answered(struct peer_set *s, size_t held) {
    s->held[held] = s->held[--s->held_count];
}

void peer_set_read(struct peer_set *s, uint32_t shard, uint64_t at, struct buffer *out) {
    buffer_clear(out);
    peer_set_must(s, !at || shard_read(s->shards[shard].shard, at, out) == 0);
}
