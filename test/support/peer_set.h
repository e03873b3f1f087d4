// Peer set: the shards of one engine, each on its own simulated disk and with its own clock, as on
// different nodes; and their messages as bytes on wires, which the test may lose and delay.
//
//     shard 0 ── log ──┐   wire[0][1] ──►   ┌── shard 1 ── log
//     clock + 7 min    └──────────────────  ┘   clock − 3 s
//                          ◄── wire[1][0]
//
// Nothing happens by itself. What a shard has written is durable after peer_set_sync; a crash loses
// the rest. A failed check prints the seed and ends the test.
#ifndef TEST_SUPPORT_PEER_SET_H
#define TEST_SUPPORT_PEER_SET_H

#include "shard/shard.h"
#include "support/sim_disk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PEER_SET_SHARDS = 4, PEER_SET_STAGES = 4, PEER_SET_HELD = 64, PEER_SET_TAKERS = 2 };

struct peer_set_letter {
    struct list of_wire;
    struct buffer bytes;
};

struct peer_set_shard {
    struct peer_set *set;
    struct sim_disk *disk;
    struct shard *shard;
    int64_t ahead_ms; // of its clock
    struct conn conn;
    struct taker takers[PEER_SET_STAGES][PEER_SET_TAKERS];
    bool waits[PEER_SET_STAGES][PEER_SET_TAKERS];
};

struct peer_set_held {
    uint32_t shard;
    int stage;
    uint64_t id, at, state_at;
    struct token token;
};

struct peer_set {
    uint32_t count;
    uint64_t seed, dice, now_ms;
    char names[PEER_SET_STAGES][16]; // stage i lives in shard i mod count
    struct peer_set_shard shards[PEER_SET_SHARDS];
    struct list wires[PEER_SET_SHARDS][PEER_SET_SHARDS];
    bool resets[PEER_SET_SHARDS][PEER_SET_SHARDS]; // [a][b]: a has to be reset for b
    struct peer_set_held held[PEER_SET_HELD];      // leased jobs
    size_t held_count;
    uint64_t posted, lost, opened;
};

#define peer_set_must(set, condition)                                                              \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %llu, %s:%d: %s", (unsigned long long)(set)->seed, __FILE__, __LINE__,  \
                     #condition);                                                                  \
    } while (0)

struct peer_set *peer_set_create(uint32_t shards, uint64_t seed);
void peer_set_destroy(struct peer_set *);
uint64_t peer_set_roll(struct peer_set *, uint64_t below);

// ---- Shards -----------------------------------------------------------------------------------

uint32_t peer_set_home(const struct peer_set *, int stage);
struct core *peer_set_core(struct peer_set *, uint32_t shard); // begins a turn
struct peers *peer_set_peers(struct peer_set *, uint32_t shard);
void peer_set_sync(struct peer_set *, uint32_t shard);
void peer_set_pass(struct peer_set *, uint64_t ms); // on all clocks
// Another owner replays its log, perhaps without what was not durable. Messages stay on the wires;
// the resets that follow are noted.
void peer_set_replace(struct peer_set *, uint32_t shard, bool crash);

// ---- Messages ---------------------------------------------------------------------------------

void peer_set_post(struct peer_set *, uint32_t from); // puts all its messages on the wires
bool peer_set_deliver(struct peer_set *, uint32_t from, uint32_t to); // the next; false: none
bool peer_set_lose(struct peer_set *, uint32_t from, uint32_t to);    // the next; false: none
void peer_set_cut(struct peer_set *, uint32_t a, uint32_t b);         // loses all; resets are noted
void peer_set_reset(struct peer_set *, uint32_t shard, uint32_t other); // if it is noted
void peer_set_reset_all(struct peer_set *);
bool peer_set_exchange(struct peer_set *); // syncs, posts and delivers once; false: nothing came
void peer_set_settle(struct peer_set *);   // until nothing comes

// ---- Work -------------------------------------------------------------------------------------

void peer_set_set(struct peer_set *, int stage, const char *name, const char *value);
void peer_set_wait(struct peer_set *, int stage); // its takers wait; grants become `held`
void peer_set_answered(struct peer_set *, size_t held);
void peer_set_read(struct peer_set *, uint32_t shard, uint64_t at, struct buffer *out);

#endif
