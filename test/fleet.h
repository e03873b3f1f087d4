// Fleet: the shards of one engine, as bare cores, each with a log of its own of which only a prefix
// is durable; and a post that carries what travels over their links as badly as the caller likes.
//
//     core 0 ── log ──┐                      ┌── mail: entries, to be lost, repeated, reordered
//     core 1 ── log ──┼── over ── post
//     core 2 ── log ──┘                      └── acknowledgements, likewise
//
// The fleet only does what it is told to: syncing, sending, delivering and waking are sentences.
// A failed check prints the seed, which replays the run, and ends the test.
#ifndef TEST_FLEET_H
#define TEST_FLEET_H

#include "base/errors.h"
#include "core/core.h"
#include "core/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { FLEET_SHARDS = 4, FLEET_STAGES = 4, FLEET_MAIL = 64, FLEET_HELD = 64, FLEET_TAKERS = 4 };
enum { FLEET_TEXT = 32, FLEET_PUSHERS = 4 };

// What the fleet can be made to do wrong, to prove that it would be noticed.
enum fleet_fault {
    FAULT_NONE,
    FAULT_TAKEN_TWICE, // a repeat is not recognised
    FAULT_OVERTAKING,  // nothing says what comes before an entry
    FAULT_LOST_LETTER, // what was lost is acknowledged
    FAULT_EARLY_SEND,  // an entry is sent before it is durable
    FAULT_EARLY_ACK,   // it is acknowledged before it is durable there
    FAULT_LOST_OUTBOX, // an entry is not replayed
    FAULT_LOST_MARK,   // what was accepted is not replayed
    FAULT_DEAF,        // nobody is told that a stage is not over its mark any more
    FLEET_FAULTS,
};

struct fleet_entry {
    uint64_t at;
    size_t head_size, body_size;
    uint8_t *bytes; // head, then body
    bool last;      // of its group
};

struct fleet_shard {
    struct core *core;
    struct fleet_entry *log;
    size_t count, capacity, durable; // entries
    uint64_t end, opens;
    struct conn conn;
    struct taker takers[FLEET_TAKERS];
    bool waits[FLEET_TAKERS];
    struct pusher pushers[FLEET_PUSHERS];
    bool has_room[FLEET_PUSHERS]; // was told so
    unsigned to_wake;             // stages of which it has to hear whether they are over
    uint64_t sent[FLEET_SHARDS];  // the last number put into the mail, for each shard
    struct fleet *fleet;
};

// An entry on its way, or its acknowledgement on the way back.
struct fleet_mail {
    uint32_t from, to;
    struct link_entry entry;
    char stage[FLEET_TEXT], key[FLEET_TEXT], once[FLEET_TEXT], body[FLEET_TEXT];
    uint64_t durable_at; // acknowledgements: when the receiver has this much
};

struct fleet_held {
    uint32_t shard;
    uint64_t id;
    struct token token;
    char stage[FLEET_TEXT], key[FLEET_TEXT], body[FLEET_TEXT];
    uint8_t state[64];
    size_t state_size;
};

struct fleet {
    uint32_t shards;
    uint64_t seed, dice, now_ms;
    char names[FLEET_STAGES][FLEET_TEXT]; // of stages, as they appear
    bool over[FLEET_STAGES];              // as their shards have told, with their high marks
    uint64_t marks[FLEET_STAGES];
    struct fleet_shard shard[FLEET_SHARDS];
    struct fleet_mail mail[FLEET_MAIL], acks[FLEET_MAIL];
    size_t mail_count, ack_count;
    struct fleet_held held[FLEET_HELD]; // granted and not answered
    size_t held_count;
    size_t told; // how often shards were told
    bool deaf;   // nothing that a shard has to tell can be noted
    enum fleet_fault fault;
    jmp_buf *on_fail; // where to go on when a check fails; NULL: the test ends
};

struct fleet *fleet_create(uint32_t shards, uint64_t seed);
void fleet_destroy(struct fleet *);
void fleet_forget(struct fleet *); // the same, after a check has failed
uint64_t fleet_roll(struct fleet *, uint64_t below);
_Noreturn void fleet_fail(const struct fleet *, const char *file, int line, const char *what);

#define fleet_must(fleet, condition)                                                               \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fleet_fail(fleet, __FILE__, __LINE__, #condition);                                     \
    } while (0)

// ---- Time, logs, crashes ------------------------------------------------------------------------

void fleet_pass(struct fleet *, uint64_t ms);
void fleet_sync(struct fleet *, uint32_t shard);                  // all of its log is durable
void fleet_sync_some(struct fleet *, uint32_t shard);             // perhaps not quite all
void fleet_clean(struct fleet *, uint32_t shard, size_t entries); // the oldest that are durable
// The shard is lost with what was not durable, or with some of that; and comes back.
void fleet_crash(struct fleet *, uint32_t shard);
void fleet_crash_all(struct fleet *);
int fleet_open(struct fleet *, uint32_t shard); // after core_destroy: what it answered

// ---- Everywhere ---------------------------------------------------------------------------------

uint32_t fleet_home(const struct fleet *, const char *stage); // the shard that it lives in
void fleet_set(struct fleet *, const char *stage, const char *name, const char *value);
void fleet_check(struct fleet *); // invariants of all cores
uint64_t fleet_sum(const struct fleet *, const char *stage, enum job_status);

// ---- Work ---------------------------------------------------------------------------------------

int fleet_push(struct fleet *, uint32_t shard, const struct push *);
void fleet_wait(struct fleet *, uint32_t shard, int taker, const char *stage); // NULL: any
void fleet_answered(struct fleet *, size_t held);                              // forgets it
void fleet_wake(struct fleet *, uint32_t shard);                               // as it was told to
bool fleet_wake_all(struct fleet *); // until nobody is told any more; false: nobody was

// ---- The post -----------------------------------------------------------------------------------

bool fleet_send(struct fleet *, uint32_t from, uint32_t to); // the next durable entry; false: none
void fleet_resend(struct fleet *, uint32_t from, uint32_t to); // the oldest comes next
// Delivers a letter; if it was refused for a gap, the sender begins again. `keep`: it will come
// once more.
void fleet_deliver(struct fleet *, size_t mail, bool keep);
void fleet_lose_mail(struct fleet *, size_t mail);
bool fleet_ack(struct fleet *, size_t ack, bool keep); // false: not durable yet
void fleet_lose_ack(struct fleet *, size_t ack);
bool fleet_carry_all(struct fleet *); // everything that can be, well; false: there was nothing

#endif
