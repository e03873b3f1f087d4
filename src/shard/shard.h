// Shard: one core, one log, one owner. It feeds the core with time, carries its records into the
// log, says what must be durable before anything may be shown, keeps the log short, and brings
// everything back at opening.
//
//     shard_begin ─► core_push, core_take, core_done … ─► shard_end ─► position to wait for
//         │                        │                          │
//     time moves on         records gather             the log's writer is woken
//
// One thread at a time between shard_begin and shard_end (the owner's lock or loop sees to that);
// shard_wait and shard_read may be called by any thread, without the lock.
#ifndef SHARD_SHARD_H
#define SHARD_SHARD_H

#include "core/core.h"
#include "log/log.h"
#include "shard/peers.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shard;

// Where time and chance come from; NULL functions mean the system's.
struct shard_world {
    uint64_t (*wall_ms)(void *arg); // CLOCK_REALTIME: read once, at opening
    uint64_t (*boot_ms)(void *arg); // CLOCK_BOOTTIME: followed from then on
    uint64_t (*random)(void *arg);
    void *arg;
};

uint64_t world_wall_ms(const struct shard_world *);
uint64_t world_boot_ms(const struct shard_world *);

struct shard_options {
    const char *dir; // of the file log; NULL: the memory log
    struct log_options log;
    struct core_limits limits;
    struct core_events events;
    void *owner; // handed to the events
    struct shard_world world;
    uint32_t shard, shards;    // which of how many: 0 of 1 when both are 0
    const atomic_bool *cancel; // any thread sets it to end an opening; NULL: nobody does
};

// Opens the log, replays it, counts an attempt for whatever ran when the engine died, and begins a
// new epoch, durably. Errors are the log's and the core's, and MR_ECANCELLED; nothing is then left
// open, and the store is as it was.
int shard_open(const struct shard_options *, struct shard **out);

// The same in two steps, for shards that agree on the time: the log is opened and replayed; then,
// when the latest instant that any of them has recorded is known, it starts with that as the
// present (`now_ms`, which is `boot_ms` of the world's boot time). Nothing else may be called in
// between.
int shard_load(const struct shard_options *, struct shard **out);
uint64_t shard_recorded_ms(const struct shard *);
int shard_start(struct shard *, uint64_t now_ms, uint64_t boot_ms);
// Frees a shard that was not started, or whose opening failed as a whole. Takes NULL.
void shard_abandon(struct shard *);

// Makes everything durable and frees. A shard closed in peace counts no attempts at its next
// opening. Takes NULL.
void shard_close(struct shard *);

struct core *shard_core(struct shard *);

// What it tells the other shards of its engine; NULL: there are none.
struct peers *shard_peers(struct shard *);

// Moves the core to the present. MR_ESTOPPED: the log has failed; looks still work.
int shard_begin(struct shard *);

// The instant that it was moved to, as boot time: the clock is not read again.
uint64_t shard_boot_ms(const struct shard *);

// Wakes the log's writer. What commands and events of this turn told may be shown when the log is
// durable up to the position returned (shard_wait). If an id block was reserved, waits for it here.
uint64_t shard_end(struct shard *);

uint64_t shard_position(const struct shard *); // the same, within a turn

int shard_wait(struct shard *, uint64_t at);

// Whether everything up to `at` is durable now. Any thread.
bool shard_is_durable(struct shard *, uint64_t at);

// Whether the log has failed. Any thread.
bool shard_has_stopped(const struct shard *);

// Appends an entry's body to `out`. MR_EGONE: it has moved; ask the core again. Any thread.
int shard_read(struct shard *, uint64_t at, struct buffer *out_body);
// The same if it is in memory. MR_EAGAIN, without a sentence: the disk would have to be waited for.
// In a turn.
int shard_read_now(struct shard *, uint64_t at, struct buffer *out_body);
// The entry there will be read soon. In a turn.
void shard_expect(struct shard *, uint64_t at);
int shard_read_head(struct shard *, uint64_t at, struct buffer *out_head); // the same of its head

// Milliseconds until the shard wants to be driven again (shard_begin, shard_end) although nobody
// calls: 0 now, -1 never.
int64_t shard_next_ms(struct shard *);

// Does a bounded piece of cleaning if the log has grown beyond twice what lives in it plus two
// segments. Between shard_begin and shard_end. `out_more`: there is more to do now. Errors are the
// core's and the log's; nothing is lost by one, and shard_next_ms says when it is tried again.
int shard_clean(struct shard *, bool *out_more);

// How many damaged entries the cleaner has met that are still needed, and where the last one is.
// Where the body is damaged it stays with its job, result or state, which cannot be read; a head is
// restored from the index. Borrowed until the next turn.
uint64_t shard_damage(const struct shard *, const char **out_where);

void shard_look(struct shard *, struct log_state *out);

#endif
