// Taking from stages that may be in several shards. Stages that are all in one shard are taken from
// there; else they are tried in the order they are named, and if there is nothing, the take waits
// at all of their shards. A puller with a loop of its own always waits that way.
#include "base/errors.h"
#include "engine/local.h"

// The shards of these stages: bit n is shard n.
static uint64_t shards_of(uint32_t count, const struct pull *pull) {
    uint64_t shards = 0;
    for (size_t i = 0; i < pull->stage_count; i++)
        shards |= UINT64_C(1) << route_of(count, pull->stages[i]);
    return shards;
}

static bool is_one(uint64_t shards) {
    return (shards & (shards - 1)) == 0;
}

static struct pull pull_stage(const struct pull *pull, size_t i) {
    struct pull one = *pull;
    one.stages += i;
    one.stage_count = 1;
    return one;
}

// The part of the take for one shard; `stages` has room for the names.
static struct pull pull_of(const struct pull *pull, uint32_t shard, uint32_t count,
                           mr_bytes stages[TAKE_STAGES_MOST]) {
    struct pull part = *pull;
    part.stages = stages;
    part.stage_count = 0;
    for (size_t i = 0; i < pull->stage_count; i++)
        if (route_of(count, pull->stages[i]) == shard)
            stages[part.stage_count++] = pull->stages[i];
    return part;
}

// ---- Now --------------------------------------------------------------------------------------

static int try_stages(struct local_puller *p, const struct pull *pull, mr_job **out) {
    int err = MR_EAGAIN;
    for (size_t i = 0; err == MR_EAGAIN && i < pull->stage_count; i++) {
        struct pull one = pull_stage(pull, i);
        err = take_now(&p->parts[route_of(p->count, one.stages[0])], &one, out);
    }
    return err;
}

// ---- Waiting at all of them -------------------------------------------------------------------

void shared_take_leave(struct shared_take *t) {
    for (uint64_t left = t->waiting; left; left &= left - 1)
        taker_leave(t->takers[__builtin_ctzll(left)]);
    t->waiting = 0;
}

// While trying: asks one shard. 0 and errors end the trying, MR_EAGAIN does not.
static int join_at(struct shared_take *t, uint32_t shard, const struct pull *pull, bool stay) {
    uint64_t bit = UINT64_C(1) << shard;
    if (t->waiting & bit)
        taker_leave(t->takers[shard]);
    t->waiting |= bit;
    int err = taker_join(t->takers[shard], pull, stay);
    if (err != MR_EAGAIN)
        reservation_set(&t->reservation, err < 0 ? RESERVATION_OVER : RESERVATION_OF + shard);
    return err;
}

static int join_by_stage(struct shared_take *t, uint64_t shards, uint32_t count,
                         const struct pull *pull) {
    int err = MR_EAGAIN;
    for (size_t i = 0; pull->stage_count > 1 && err == MR_EAGAIN && i < pull->stage_count; i++) {
        struct pull one = pull_stage(pull, i);
        uint32_t shard = route_of(count, one.stages[0]);
        if (shards >> shard & 1)
            err = join_at(t, shard, &one, false);
    }
    for (uint64_t left = shards; err == MR_EAGAIN && left; left &= left - 1) {
        mr_bytes stages[TAKE_STAGES_MOST];
        uint32_t shard = (uint32_t)__builtin_ctzll(left);
        struct pull part = pull_of(pull, shard, count, stages);
        err = join_at(t, shard, &part, true);
    }
    return err;
}

// 0: taken at once, by the shard that has claimed it; MR_EAGAIN: it waits, or was claimed.
static int join_all(struct shared_take *t, uint32_t count, const struct pull *pull) {
    uint64_t shards = shards_of(count, pull);
    int err = MR_EAGAIN;
    while (err == MR_EAGAIN && shards && reservation_close(&t->reservation)) {
        err = join_by_stage(t, shards, count, pull);
        shards = err == MR_EAGAIN ? reservation_open(&t->reservation) : 0;
    }
    return err;
}

// MR_LATER: the shard that had claimed it could not grant anything; try again.
static int wait_at_all(struct local_puller *p, const struct pull *pull, uint64_t until_ms,
                       mr_job **out) {
    struct local_taker takers[SHARDS_MOST];
    struct shared_take take;
    shared_take_init(&take);
    for (uint32_t i = 0; i < p->count; i++) {
        takers[i] = (struct local_taker){ .taker.conn = &p->parts[i].conn,
                                          .waiter.shared = &take,
                                          .puller = &p->parts[i] };
        take.takers[i] = &takers[i];
    }
    int err = join_all(&take, p->count, pull);
    if (err == MR_EAGAIN)
        err = shared_take_sleep(&take, until_ms);
    shared_take_leave(&take);
    if (err == 0)
        err = taker_return_jobs(take.takers[reservation_word(&take.reservation) - RESERVATION_OF],
                                out);
    shared_take_finish(&take);
    return err;
}

// ---- In a loop of the program's ---------------------------------------------------------------

// Once a shard has claimed the take, its jobs are returned when they are durable: the loop is rung
// until then.
static int take_claimed(struct local_puller *p, uint32_t claim, mr_job **out) {
    int err = taker_collect(&p->parts[claim - RESERVATION_OF], out);
    if (err == MR_EAGAIN)
        return err;
    shared_take_leave(&p->loop_take);
    reservation_set(&p->loop_take.reservation, RESERVATION_OVER);
    return err;
}

static int take_in_loop(struct local_puller *p, const struct pull *pull, mr_job **out) {
    struct local_engine *e = (struct local_engine *)p->base.engine;
    struct shared_take *t = &p->loop_take;
    uint32_t claim = reservation_word(&t->reservation);
    if (atomic_load_explicit(&e->stopped, memory_order_relaxed))
        return local_error_stopped(e);
    if (claim == RESERVATION_OPEN || atomic_load(&p->interrupted))
        return MR_EAGAIN;
    if (claim >= RESERVATION_OF)
        return take_claimed(p, claim, out); // it may be given back meanwhile: see taker_try_again
    shared_take_leave(t);
    int err = join_all(t, p->count, pull);
    return err == 0 ? take_claimed(p, reservation_word(&t->reservation), out) : err;
}

// ---- The take ---------------------------------------------------------------------------------

static int take_anywhere(struct local_puller *p, const struct pull *pull, mr_job **out) {
    int err = try_stages(p, pull, out);
    if (err != MR_EAGAIN || pull->wait_ms == 0)
        return err;
    uint64_t until_ms = local_until(pull->wait_ms);
    do
        err = wait_at_all(p, pull, until_ms, out);
    while (err == MR_LATER);
    return err;
}

static int take_here(struct shard_puller *p, const struct pull *pull, mr_job **out) {
    return pull->wait_ms ? take_or_wait(p, pull, out) : take_now(p, pull, out);
}

int local_take(struct puller *base, const struct pull *pull, mr_job **out) {
    struct local_puller *p = (struct local_puller *)base;
    uint64_t shards = shards_of(p->count, pull);
    int err;
    if (p->options.ring)
        err = take_in_loop(p, pull, out);
    else if (is_one(shards))
        err = take_here(&p->parts[__builtin_ctzll(shards)], pull, out);
    else
        err = take_anywhere(p, pull, out);
    return err == MR_EAGAIN ? take_nothing_came(pull) : err;
}
