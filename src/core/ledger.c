// All operations are sequentially consistent: see the top of ledger.h for what rests on it.
#include "core/ledger.h"

bool ledger_claim(_Atomic uint64_t *sum, uint64_t *share, uint64_t share_now, uint64_t limit) {
    if (*share >= share_now)
        return true;
    uint64_t more = share_now - *share, before = atomic_load(sum);
    do {
        if (limit && before + more > limit)
            return false;
    } while (!atomic_compare_exchange_weak(sum, &before, before + more));
    *share = share_now;
    return true;
}

static bool tell_one(_Atomic uint64_t *sum, uint64_t *share, uint64_t now) {
    uint64_t before = *share;
    if (before == now)
        return false;
    atomic_fetch_add(sum, now - before); // wraps when it is less
    *share = now;
    return now < before;
}

struct ledger_less ledger_tell(struct ledger_stage *l, struct ledger_share *share,
                               const struct ledger_share *now) {
    struct ledger_less less = { .running = tell_one(&l->running, &share->running, now->running),
                                .jobs = tell_one(&l->jobs, &share->jobs, now->jobs) };
    (void)tell_one(&l->depth, &share->depth, now->depth); // ledger_turn says what that frees
    return less;
}

bool ledger_claim_rate(struct ledger_stage *l, uint64_t now_us, uint64_t earliest_us,
                       uint64_t each_us) {
    uint64_t before = atomic_load(&l->rate_next_us), from;
    do {
        if (before > now_us)
            return false;
        from = before < earliest_us ? earliest_us : before;
    } while (!atomic_compare_exchange_weak(&l->rate_next_us, &before, from + each_us));
    return true;
}

// Whoever changed `over` looks at the depth again: it may have changed since, by somebody who saw
// `over` as it was before.
bool ledger_turn(struct ledger_stage *l, uint64_t high_mark) {
    bool over = atomic_load(&l->over), freed = false;
    for (;;) {
        uint64_t depth = atomic_load(&l->depth);
        bool next = high_mark && (over ? depth > high_mark / 2 : depth >= high_mark);
        if (next == over)
            return freed && !over;
        if (atomic_compare_exchange_strong(&l->over, &over, next)) {
            freed = over;
            over = next;
        }
    }
}

void ledger_hold(struct ledger_stage *l, uint32_t shard) {
    atomic_fetch_or(&l->held, UINT64_C(1) << shard);
}

uint64_t ledger_release(struct ledger_stage *l) {
    return atomic_load(&l->held) ? atomic_exchange(&l->held, 0) : 0;
}

// ---- Whose turn it is --------------------------------------------------------------------------

static uint64_t bit_of(uint32_t shard) {
    return UINT64_C(1) << shard;
}

// The first of these behind the shard that had its turn last, round and round.
static uint64_t first_of(uint64_t shards, uint32_t last) {
    uint64_t behind = shards & ~(bit_of(last) | (bit_of(last) - 1));
    uint64_t from = behind ? behind : shards;
    return from & -from;
}

void ledger_join_line(struct ledger_line *l, uint32_t shard) {
    atomic_fetch_or(&l->shards, bit_of(shard));
}

void ledger_leave_line(struct ledger_line *l, uint32_t shard) {
    atomic_fetch_and(&l->shards, ~bit_of(shard));
}

uint64_t ledger_next(struct ledger_line *l) {
    uint64_t shards = atomic_load(&l->shards);
    return shards ? first_of(shards, atomic_load(&l->last)) : 0;
}

bool ledger_is_next(struct ledger_line *l, uint32_t shard) {
    uint64_t own = bit_of(shard), shards = atomic_load(&l->shards) | own;
    return shards == own || first_of(shards, atomic_load(&l->last)) == own;
}

void ledger_took_turn(struct ledger_line *l, uint32_t shard) {
    atomic_store(&l->last, shard);
}
