// Shard set: the shards of one engine, as bare cores, each with a log of which only a prefix is
// durable; and their messages, which the test may lose, repeat and reorder.
//
//     core 0 ── log ──┐            ┌── messages: entries, to be lost, repeated, reordered
//     core 1 ── log ──┼── links ───┤
//     core 2 ── log ──┘            └── acknowledgements, likewise
//
// Nothing happens by itself: the test calls functions to sync, send, deliver and wake. A failed
// check prints the seed, which replays the run, and ends the test.
#ifndef TEST_SUPPORT_SHARD_SET_H
#define TEST_SUPPORT_SHARD_SET_H

#include "base/errors.h"
#include "core/core.h"
#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum {
    SHARD_SET_SHARDS = 4,
    SHARD_SET_STAGES = 4,
    SHARD_SET_MESSAGES = 64,
    SHARD_SET_HELD = 64,
    SHARD_SET_TAKERS = 4
};
enum { SHARD_SET_TEXT = 32, SHARD_SET_PUSHERS = 4 };

// Faults to inject, to prove that the checks would notice them.
enum shard_set_fault {
    FAULT_NONE,
    FAULT_TAKEN_TWICE,  // a repeat is not recognised
    FAULT_OVERTAKING,   // entries do not name the one before
    FAULT_LOST_MESSAGE, // a lost entry is acknowledged
    FAULT_EARLY_SEND,   // an entry is sent before it is durable
    FAULT_EARLY_ACK,    // it is acknowledged before it is durable there
    FAULT_LOST_OUTBOX,  // an entry is not replayed
    FAULT_LOST_MARK,    // what was accepted is not replayed
    FAULT_LOST_NOTICE,  // no shard learns that a stage is under its mark again
    SHARD_SET_FAULTS,
};

struct shard_set_entry {
    uint64_t at;
    size_t head_size, body_size;
    uint8_t *bytes; // head, then body
    bool last;      // of its group
};

struct shard_set_shard {
    struct core *core;
    struct shard_set_entry *log;
    size_t count, capacity, durable; // entries
    uint64_t end, opens;
    uint64_t trimmed; // entries before that cannot be read any more, but may still be there
    struct conn conn;
    struct taker takers[SHARD_SET_TAKERS];
    bool waits[SHARD_SET_TAKERS];
    struct pusher pushers[SHARD_SET_PUSHERS];
    bool has_room[SHARD_SET_PUSHERS]; // it was notified of room
    unsigned to_wake;                 // stages whose high-mark state it has to learn
    uint64_t sent[SHARD_SET_SHARDS];  // the last number sent to each shard
    struct shard_set *set;
};

// An entry that was sent, or its acknowledgement.
struct shard_set_message {
    uint32_t from, to;
    struct link_entry entry;
    char stage[SHARD_SET_TEXT], key[SHARD_SET_TEXT], once[SHARD_SET_TEXT], body[SHARD_SET_TEXT];
    uint64_t durable_at; // an acknowledgement waits until this much is durable
};

struct shard_set_held {
    uint32_t shard;
    uint64_t id;
    struct token token;
    char stage[SHARD_SET_TEXT], key[SHARD_SET_TEXT], body[SHARD_SET_TEXT];
    uint8_t state[64];
    size_t state_size;
};

struct shard_set {
    uint32_t shards;
    uint64_t seed, dice, now_ms;
    char names[SHARD_SET_STAGES][SHARD_SET_TEXT]; // of stages, as they appear
    bool over[SHARD_SET_STAGES]; // as their shards have sent, with their high marks
    uint64_t marks[SHARD_SET_STAGES];
    struct shard_set_shard shard[SHARD_SET_SHARDS];
    struct shard_set_message messages[SHARD_SET_MESSAGES], acks[SHARD_SET_MESSAGES];
    size_t message_count, ack_count;
    struct shard_set_held held[SHARD_SET_HELD]; // leased jobs
    size_t held_count;
    size_t notified;   // notices sent between shards
    bool notices_fail; // all notices fail
    enum shard_set_fault fault;
    jmp_buf *on_fail; // where to jump when a check fails; NULL: the test ends
};

struct shard_set *shard_set_create(uint32_t shards, uint64_t seed);
void shard_set_destroy(struct shard_set *);
void shard_set_forget(struct shard_set *); // the same, after a check has failed
uint64_t shard_set_random(struct shard_set *, uint64_t below);
_Noreturn void shard_set_fail(const struct shard_set *, const char *file, int line,
                              const char *what);

#define shard_set_must(set, condition)                                                             \
    do {                                                                                           \
        if (!(condition))                                                                          \
            shard_set_fail(set, __FILE__, __LINE__, #condition);                                   \
    } while (0)

// ---- Time, logs, crashes ----------------------------------------------------------------------

void shard_set_pass(struct shard_set *, uint64_t ms);
void shard_set_sync(struct shard_set *, uint32_t shard);      // all of its log is durable
void shard_set_sync_some(struct shard_set *, uint32_t shard); // perhaps not quite all
// The oldest that are durable.
void shard_set_clean(struct shard_set *, uint32_t shard, size_t entries);
// Crashes a shard, which loses some or all of what was not durable, and opens it again.
void shard_set_crash(struct shard_set *, uint32_t shard);
void shard_set_crash_all(struct shard_set *);
int shard_set_open(struct shard_set *, uint32_t shard); // after core_destroy: what it answered

// ---- All shards -------------------------------------------------------------------------------

// The shard of a stage.
uint32_t shard_set_shard_of(const struct shard_set *, const char *stage);
void shard_set_set(struct shard_set *, const char *stage, const char *name, const char *value);
void shard_set_check(struct shard_set *); // invariants of all cores
uint64_t shard_set_sum(const struct shard_set *, const char *stage, enum job_status);

// ---- Work -------------------------------------------------------------------------------------

int shard_set_push(struct shard_set *, uint32_t shard, const struct push *);
void shard_set_wait(struct shard_set *, uint32_t shard, int taker, const char *stage); // NULL: any
void shard_set_answered(struct shard_set *, size_t held);                              // forgets it
void shard_set_wake(struct shard_set *, uint32_t shard); // delivers pending notices to it
bool shard_set_wake_all(struct shard_set *); // until no notices are left; false: there were none

// ---- The post ---------------------------------------------------------------------------------

// The next durable entry; false: none.
bool shard_set_send(struct shard_set *, uint32_t from, uint32_t to);
void shard_set_resend(struct shard_set *, uint32_t from, uint32_t to); // the oldest comes next
// Delivers a message; if it was refused for a gap, the sender starts again. `keep`: it stays
// queued, as a duplicate.
void shard_set_deliver(struct shard_set *, size_t message, bool keep);
void shard_set_lose_message(struct shard_set *, size_t message);
bool shard_set_ack(struct shard_set *, size_t ack, bool keep); // false: not durable yet
void shard_set_lose_ack(struct shard_set *, size_t ack);
// Without faults; false: there was nothing to deliver.
bool shard_set_deliver_all(struct shard_set *);

#endif
