// Simulated replicated store: streams (log/stream.h) in memory that fail as real ones do.
//
//     changes   claim │ append │ append │ trim │ append         one sequence for all streams
//                                       └ replicated            and all are replicated in order
//
// The primary has all changes, its standby those up to `replicated`. A change that is answered with
// STREAM_DONE is replicated, and all before it. A failover goes back to what is replicated; one
// that loses more is a store that was set up wrongly. Everything follows from the seed. Any thread.
#ifndef TEST_SUPPORT_SIM_STREAM_H
#define TEST_SUPPORT_SIM_STREAM_H

#include "log/log.h"
#include "log/stream.h"

#include <stdbool.h>
#include <stdint.h>

enum sim_fault {
    SIM_UNAVAILABLE,    // nothing happens, and the caller hears it
    SIM_DELAY,          // it takes three seconds
    SIM_REQUEST_LOST,   // in doubt: it has not happened and will not
    SIM_REPLY_LOST,     // in doubt: it has happened
    SIM_LATE,           // in doubt: it is in a backend still, and happens later if it then may
    SIM_WAIT_CANCELLED, // in doubt: it has happened on the primary, but is not replicated
    SIM_FAILOVER,       // the primary dies before the call
    SIM_SPACE,          // out of space, this time
    SIM_RIVAL,          // another owner claims before the call
    SIM_FAULTS,
};

// Mistakes of a store, or of a log that takes a doubt for an answer, for tests of the tests.
enum sim_mistake {
    SIM_SOUND,
    SIM_NO_FENCE,       // an append is not compared with the epoch
    SIM_KEY_FENCE,      // a former owner's append is refused only while its position is taken
    SIM_DOUBT_IS_YES,   // an append in doubt is answered as done
    SIM_DOUBT_IS_NO,    // an append in doubt is answered as not done
    SIM_WARNING_IS_YES, // one whose wait for the standby was cancelled is answered as done
    SIM_MISTAKES,
};

enum sim_call { SIM_CLAIM, SIM_APPEND, SIM_TRIM, SIM_BEAT, SIM_READ, SIM_CALLS };

struct sim_store;

struct sim_store *sim_store_create(uint64_t seed);
void sim_store_destroy(struct sim_store *);
struct stream_store *sim_store_streams(struct sim_store *);
void sim_store_make(struct sim_store *, enum sim_mistake);
// Whom the claims of this stream name. Borrowed until the store is destroyed.
void sim_stream_name(struct stream *, const char *owner);

// A clock that only moves when it is waited for, or with delays.
const struct log_clock *sim_store_clock(struct sim_store *);
uint64_t sim_store_now_ms(struct sim_store *);
void sim_store_advance(struct sim_store *, uint64_t ms);

// The next calls of this kind meet these faults, one after another.
void sim_store_plan(struct sim_store *, enum sim_call, enum sim_fault);

// From now on a call meets each fault with this probability, in per mille.
void sim_store_chance(struct sim_store *, enum sim_fault, uint32_t per_mille);

// Every call is unavailable while it lasts; for `ms` of the simulated clock, or until ended.
void sim_store_outage(struct sim_store *, uint64_t ms);
void sim_store_outage_end(struct sim_store *);

// The standby is away for `ms` of the simulated clock: every change meets SIM_WAIT_CANCELLED. When
// it is back it gets what it lacks, or, if the primary dies, takes over without that. 0: it is
// back.
void sim_store_standby_away(struct sim_store *, uint64_t ms, bool dies);

// Streams may have this many bytes in all (0: no bound).
void sim_store_space(struct sim_store *, uint64_t bytes);

// What still sits in a backend happens now, if it may.
void sim_store_let_late(struct sim_store *);

// The primary dies now. The standby lacks what is not replicated, and `lost` changes more.
void sim_store_failover(struct sim_store *, uint32_t lost);

// The state of a stream, whatever faults there are.
void sim_store_look(struct sim_store *, uint32_t shard, struct stream_state *out);

// How many calls of a kind there were.
uint64_t sim_store_calls(struct sim_store *, enum sim_call);

// How many of them met a fault.
uint64_t sim_store_faults(struct sim_store *, enum sim_fault);

// How often an owner has released its stream.
uint64_t sim_store_released(struct sim_store *);

// For tests with threads: appends wait until they are let go.
void sim_store_hold(struct sim_store *, bool hold);
void sim_store_await(struct sim_store *); // until one waits

// The batch that contains a position, to damage it; NULL: there is none.
struct stream_batch *sim_store_batch(struct sim_store *, uint32_t shard, uint64_t at);
void sim_store_forget(struct sim_store *, uint32_t shard, uint64_t at); // removes that batch

#endif
