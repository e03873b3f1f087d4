// Ledger: what the limits of a stage are counted by when several shards share them (rule 14).
//
//     shard 0  share ──┐                       ┌── claim: one more, unless that is beyond the limit
//     shard 1  share ──┼──► struct ledger_stage ◄── tell: my share is now so much
//     shard 2  share ──┘    sums over all      └── hold: tell me when there is less of it
//
// Every core keeps its share of each sum, changes the sums by what its share has changed, and takes
// from them before it starts or accepts what a limit counts: by compare and swap, so a limit is
// never exceeded at any number of threads. There are no locks.
//
// Nobody is held for ever: who is refused sets its shard's bit in `held` and then looks once more;
// who makes a sum smaller looks at `held` afterwards, clears it, and has those shards told. One of
// the two sees the other, because all of it is sequentially consistent.
//
// Starts and room go round. A shard that has work and takers, and may not start for a limit or a
// rate, stands in the line `starts`; one whose pushes wait for a place among max-jobs in `rooms`.
// Who comes next is the first in the line behind the shard that had its turn last, and nobody else
// may go before it. Whoever has changed that (a start, a lease that ended, a job that went, a shard
// that left the line) has the next one told; who has stepped into the line looks once more. So the
// shard that is next when nothing changes any more was told after the last change, and none is
// passed over.
//
// The owner of the shards owns the ledger, one zeroed struct for each name of a stage that it is
// asked for, until every core has been destroyed. Any thread.
#ifndef CORE_LEDGER_H
#define CORE_LEDGER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ledger_line {
    _Atomic uint64_t shards; // bit n: shard n waits for its turn
    _Atomic uint32_t last;   // the shard that has had it last
};

struct ledger_stage {
    _Atomic uint64_t running;      // leases, where concurrency is limited
    _Atomic uint64_t jobs;         // that count in max-jobs, places kept for pushers included
    _Atomic uint64_t depth;        // waiting, delayed, on their way: where there is a high mark
    _Atomic uint64_t rate_next_us; // when the rate allows the next start
    _Atomic uint64_t held;         // bit n: shard n waits for the depth to become less
    _Atomic bool over;             // beyond its high mark, and not yet down to the low one
    struct ledger_line starts, rooms;
};

// What one shard has in the sums.
struct ledger_share {
    uint64_t running, jobs, depth;
};

// Raises a share, and the sum by as much, unless the sum would exceed `limit` (0: none).
bool ledger_claim(_Atomic uint64_t *sum, uint64_t *share, uint64_t share_now, uint64_t limit);

struct ledger_less {
    bool running, jobs;
};

// Changes all sums to what the share is now; says which have become less.
struct ledger_less ledger_tell(struct ledger_stage *, struct ledger_share *,
                               const struct ledger_share *now);

// Takes one start, `each_us` of the rate's time, unless that is in the future; what is further back
// than `earliest_us` is not made up for.
bool ledger_claim_rate(struct ledger_stage *, uint64_t now_us, uint64_t earliest_us,
                       uint64_t each_us);

// Puts `over` right after the depth or the high mark (0: none) has changed. True if it is not over
// any more.
bool ledger_turn(struct ledger_stage *, uint64_t high_mark);

// The shard waits for something to become less. It looks again after this.
void ledger_hold(struct ledger_stage *, uint32_t shard);

// Something has become less: the shards that wait for it, which then do so no longer.
uint64_t ledger_release(struct ledger_stage *);

// A shard steps into a line, or out of it.
void ledger_join_line(struct ledger_line *, uint32_t shard);
void ledger_leave_line(struct ledger_line *, uint32_t shard);

// Whether nobody in the line comes before this shard; and whom it is the turn of (0: nobody's).
bool ledger_is_next(struct ledger_line *, uint32_t shard);
uint64_t ledger_next(struct ledger_line *);

// It has had its turn: everybody else comes before it now.
void ledger_took_turn(struct ledger_line *, uint32_t shard);

#endif
