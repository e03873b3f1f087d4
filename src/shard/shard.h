// Shard: one core, one log, one owner. It gives the core the time, appends its records to the log,
// tells which position must be durable before replies may be sent, keeps the log short, and replays
// it at opening.
//
//     shard_begin ─► core_push, core_take, core_done … ─► shard_end ─► position to wait for
//         │                        │                          │
//     time moves on         records are collected             the log's writer is woken
//
// One thread at a time between shard_begin and shard_end, which the owner's lock or loop ensures;
// any thread may call shard_wait and shard_read, without the lock.
#ifndef SHARD_SHARD_H
#define SHARD_SHARD_H

#include "core/core.h"
#include "log/open.h"
#include "shard/peers.h"
#include "shard/ticks.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct shard;

// The sources of time and randomness; NULL functions: the system's.
struct shard_world {
    uint64_t (*wall_ms)(void *arg); // CLOCK_REALTIME: read at opening, and for schedules
    uint64_t (*boot_ms)(void *arg); // CLOCK_BOOTTIME: followed from then on
    uint64_t (*random)(void *arg);
    void *arg;
};

uint64_t world_wall_ms(const struct shard_world *);
uint64_t world_boot_ms(const struct shard_world *);

struct shard_options {
    struct store_url store; // of this shard
    struct log_options log;
    struct core_limits limits;
    struct core_events events;
    struct core_quotas quotas;
    void *owner; // passed to the events and for the quotas
    struct shard_world world;
    uint32_t shard, shards;    // which of how many: 0 of 1 when both are 0
    const atomic_bool *cancel; // any thread may set it to cancel an opening; may be NULL
    bool never_replayed;       // of a store in memory that is never copied: see core.h
};

// Opens the log, replays it, counts a failed attempt for each job that ran when the engine died,
// and begins a new epoch, durably. Errors are the log's and the core's, and MR_ECANCELLED; nothing
// is then left open, and the store is as it was.
int shard_open(const struct shard_options *, struct shard **out);

// The same in two steps, for several shards with one time: shard_load opens and replays the log.
// shard_start begins the epoch at `now_ms`, the latest instant that any of the shards has recorded
// or the wall clock; `boot_ms` is the boot time of that instant. No other call is allowed in
// between.
int shard_load(const struct shard_options *, struct shard **out);
uint64_t shard_recorded_ms(const struct shard *);
int shard_start(struct shard *, uint64_t now_ms, uint64_t boot_ms);
// Frees a shard that was not started, or whose opening failed as a whole. Takes NULL.
void shard_abandon(struct shard *);

// Makes everything durable and frees. After this clean close the next opening counts no failed
// attempts. Takes NULL.
void shard_close(struct shard *);

struct core *shard_core(struct shard *);

// Runs its schedules; what they need beside the core.
struct ticks *shard_ticks(struct shard *);

// Its messages to the other shards of the engine; NULL: there are no other shards.
struct peers *shard_peers(struct shard *);

// Begins a turn: moves the core to the present. MR_ESTOPPED: the log has failed; queries still
// work.
int shard_begin(struct shard *);

// The same, but calls `deliver` before anything that is due is handled: commands that were accepted
// before this turn come before what the time does. Not called if the log has failed.
int shard_begin_with(struct shard *, void (*deliver)(void *arg), void *arg);

// The present of this turn as boot time; does not read the clock.
uint64_t shard_boot_ms(const struct shard *);

// Ends a turn and wakes the log's writer. Answers and events of this turn may be passed on when the
// log is durable up to the returned position (shard_wait). Never waits.
uint64_t shard_end(struct shard *);

// The same, but another thread may write instead of the log's (enum flush_by); with FLUSH_BY_CALLER
// it waits for a disk that was quick last.
uint64_t shard_end_by(struct shard *, enum flush_by);

// The position of the entry that was appended last.
uint64_t shard_last_at(const struct shard *);

uint64_t shard_position(const struct shard *); // the same, within a turn

int shard_wait(struct shard *, uint64_t at);

// Whether everything up to `at` is durable now. Any thread.
bool shard_is_durable(struct shard *, uint64_t at);

// The latest instant (base/clock.h) at which its log is known to have owned its store; UINT64_MAX:
// always. Any thread.
uint64_t shard_owned_ms(const struct shard *);

// Whether the log has failed. Any thread.
bool shard_has_stopped(const struct shard *);

// Appends an entry's body to `out`. MR_EGONE: the cleaner has moved it; get its position from the
// core again. Any thread.
int shard_read(struct shard *, uint64_t at, struct buffer *out_body);
int shard_read_head(struct shard *, uint64_t at, struct buffer *out_head); // the same of its head
// The same if it is in memory. MR_EAGAIN, without an error text: it would have to wait for the disk
// or the network. In a turn.
int shard_read_now(struct shard *, uint64_t at, struct buffer *out_body);
int shard_read_head_now(struct shard *, uint64_t at, struct buffer *out_head);
// Prefetches an entry that will be read soon. In a turn.
void shard_expect(struct shard *, uint64_t at);

// The shard itself reads emits for other shards and reasons of jobs that fail again. An owner that
// must not wait for the log sets `elsewhere`: then what is not in memory is not read in a turn; the
// core, the cleaner and the links try again later. After each turn the owner takes the wanted
// positions, reads them in another thread (shard_read), and passes on in a turn what that answered.
// shard_keep takes the bytes.
void shard_read_elsewhere(struct shard *, bool elsewhere);
enum { SHARD_WANTED = 256 };
uint32_t shard_take_wanted(struct shard *, uint64_t *out_at, uint32_t most);
void shard_keep(struct shard *, uint64_t at, int err, struct buffer *bytes);

// For peers.c. MR_EAGAIN, without an error text: it is wanted. Others as shard_read.
int shard_read_own(struct shard *, uint64_t at, struct buffer *out_body);
void shard_want(struct shard *, uint64_t at);
bool shard_has_kept(const struct shard *, uint64_t at);

// Whether pushes wait that the log has refused, and it has room now: a turn lets them go on.
bool shard_has_log_room(struct shard *);

// Milliseconds until the owner has to run a turn (shard_begin, shard_end) even without commands: 0:
// now; -1: never.
int64_t shard_next_ms(struct shard *);

// Whether shard_clean would do something.
bool shard_can_clean(struct shard *);

// Does a bounded piece of cleaning if the log is too long (clean.c). Between shard_begin and
// shard_end. `out_more`: there is more to do now. Errors are the core's and the log's; nothing is
// lost by one, and shard_next_ms says when to retry.
int shard_clean(struct shard *, bool *out_more);

// While it is pinned the log is not shortened, so that a backup can read it, unless room is short.
// In a turn.
void shard_pin(struct shard *, bool is_pinned);

// As log_scan; of a log in files any thread.
int shard_scan(struct shard *, uint64_t from, size_t max_bytes, log_each *, void *arg,
               uint64_t *out_next);

// How many damaged entries that are still needed the cleaner has found, and where the last one is.
// A job, result or state with a damaged body cannot be read; a damaged head is restored from the
// index. Borrowed until the next turn.
uint64_t shard_damage(const struct shard *, const char **out_where);

void shard_look(struct shard *, struct log_state *out);

#endif
