// Taking over several shards. Stages that are all in one shard are that shard's business; else they
// are tried in the order they are named, and if there is nothing, the take waits at all of their
// shards.
#include "base/errors.h"
#include "base/mem.h"
#include "engine/spread.h"

static struct spread *spread_of(const struct spread_puller *p) {
    return (struct spread *)p->base.engine;
}

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

// What of it one shard is asked for; `stages` has room for the names.
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

static int try_stages(struct spread_puller *p, const struct pull *pull, mr_job **out) {
    int err = MR_EAGAIN;
    for (size_t i = 0; err == MR_EAGAIN && i < pull->stage_count; i++) {
        struct pull one = pull_stage(pull, i);
        err = local_try(p->pullers[route_of(spread_of(p)->count, one.stages[0])], &one, out);
    }
    return err;
}

// ---- Waiting at all of them -------------------------------------------------------------------

static void leave_all(struct ask *a) {
    for (uint64_t left = a->seated; left; left &= left - 1)
        local_unseat(a->takers[__builtin_ctzll(left)]);
    a->seated = 0;
}

// While trying: asks one shard. 0 and errors end the trying, MR_EAGAIN does not.
static int seat_at(struct ask *a, uint32_t shard, const struct pull *pull, bool stay) {
    uint64_t bit = UINT64_C(1) << shard;
    if (a->seated & bit)
        local_unseat(a->takers[shard]);
    a->seated |= bit;
    int err = local_seat(a->takers[shard], pull, stay);
    if (err != MR_EAGAIN)
        atomic_store(&a->claim, err < 0 ? ASK_OVER : ASK_OF + shard);
    return err;
}

static int seat_by_stage(struct ask *a, uint64_t shards, uint32_t count, const struct pull *pull) {
    int err = MR_EAGAIN;
    for (size_t i = 0; pull->stage_count > 1 && err == MR_EAGAIN && i < pull->stage_count; i++) {
        struct pull one = pull_stage(pull, i);
        uint32_t shard = route_of(count, one.stages[0]);
        if (shards >> shard & 1)
            err = seat_at(a, shard, &one, false);
    }
    for (uint64_t left = shards; err == MR_EAGAIN && left; left &= left - 1) {
        mr_bytes stages[TAKE_STAGES_MOST];
        uint32_t shard = (uint32_t)__builtin_ctzll(left);
        struct pull part = pull_of(pull, shard, count, stages);
        err = seat_at(a, shard, &part, true);
    }
    return err;
}

// 0: taken at once, by the shard that `claim` says; MR_EAGAIN: waits in the open, or was claimed.
static int ask_all(struct ask *a, uint32_t count, const struct pull *pull) {
    uint64_t shards = shards_of(count, pull);
    int err = MR_EAGAIN;
    while (err == MR_EAGAIN && shards && ask_try(a)) {
        err = seat_by_stage(a, shards, count, pull);
        shards = err == MR_EAGAIN ? ask_open(a) : 0;
    }
    return err;
}

// MR_LATER: a shard that had claimed it could not give it anything; once more.
static int wait_at_all(struct spread_puller *p, const struct pull *pull, uint64_t until_ms,
                       mr_job **out) {
    uint32_t count = spread_of(p)->count;
    struct local_taker takers[SHARDS_MOST];
    struct ask ask;
    ask_init(&ask);
    for (uint32_t i = 0; i < count; i++) {
        takers[i] = (struct local_taker){ .taker.conn = &p->pullers[i]->conn,
                                          .waiter.ask = &ask,
                                          .puller = p->pullers[i] };
        ask.takers[i] = &takers[i];
    }
    int err = ask_all(&ask, count, pull);
    if (err == MR_EAGAIN)
        err = ask_sleep(&ask, until_ms);
    leave_all(&ask);
    if (err == 0)
        err = local_hand_out(ask.takers[atomic_load(&ask.claim) - ASK_OF], out);
    ask_finish(&ask);
    return err;
}

// ---- In a loop of the program's ---------------------------------------------------------------

// Once somebody has claimed the ask, its answer is handed out when it may be shown: the loop is
// rung until then.
static int take_claimed(struct spread_puller *p, uint32_t claim, mr_job **out) {
    int err = local_collect(p->pullers[claim - ASK_OF], out);
    if (err == MR_EAGAIN)
        return err;
    leave_all(&p->ask);
    atomic_store(&p->ask.claim, ASK_OVER);
    return err;
}

static int take_in_loop(struct spread_puller *p, const struct pull *pull, mr_job **out) {
    struct spread *s = spread_of(p);
    uint32_t claim = atomic_load(&p->ask.claim);
    if (spread_has_stopped(s))
        return spread_say_stopped(s);
    if (claim == ASK_OPEN || atomic_load(&p->interrupted))
        return MR_EAGAIN;
    if (claim >= ASK_OF)
        return take_claimed(p, claim, out); // it may be given back meanwhile: see local_ask_again
    leave_all(&p->ask);
    int err = ask_all(&p->ask, s->count, pull);
    return err == 0 ? take_claimed(p, atomic_load(&p->ask.claim), out) : err;
}

// ---- The take ---------------------------------------------------------------------------------

static int take_anywhere(struct spread_puller *p, const struct pull *pull, mr_job **out) {
    int err = try_stages(p, pull, out);
    if (err != MR_EAGAIN || pull->wait_ms == 0)
        return err;
    uint64_t until_ms = local_until(pull->wait_ms);
    do
        err = wait_at_all(p, pull, until_ms, out);
    while (err == MR_LATER);
    return err;
}

int spread_take(struct puller *base, const struct pull *pull, mr_job **out) {
    struct spread_puller *p = (struct spread_puller *)base;
    uint64_t shards = shards_of(spread_of(p)->count, pull);
    if (!p->in_loop && is_one(shards))
        return local_take(&p->pullers[__builtin_ctzll(shards)]->base, pull, out);
    int err = p->in_loop ? take_in_loop(p, pull, out) : take_anywhere(p, pull, out);
    return err == MR_EAGAIN ? take_nothing_came(pull) : err;
}

// Of several shards the next take begins with the stage named first.
int spread_done_take(mr_job *job, const struct pull *pull, int *out_done, mr_job **out) {
    const struct local *e = (const struct local *)job->puller->engine;
    if (shards_of(e->spread->count, pull) == UINT64_C(1) << e->index)
        return local_done_take(job, pull, out_done, out);
    *out_done = local_done(job, FINISH_UNPIN);
    return MR_EAGAIN;
}

// ---- Pullers ----------------------------------------------------------------------------------

int spread_puller_open(struct engine *base, const struct puller_options *options,
                       struct puller **out) {
    struct spread *s = (struct spread *)base;
    struct spread_puller *p = mem_alloc(sizeof *p);
    if (!p)
        return error_set(MR_ENOMEM, "no memory for a worker");
    p->base.engine = base;
    p->in_loop = options->ring != NULL;
    ask_init(&p->ask);
    pthread_mutex_lock(&s->lock);
    list_append(&s->pullers, &p->of_spread);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->count; i++) {
        struct puller *one;
        int err = local_puller_open(&s->locals[i]->base, options, &one);
        if (err < 0) {
            spread_puller_close(&p->base);
            return err;
        }
        p->pullers[i] = (struct local_puller *)one;
        p->ask.takers[i] = &p->pullers[i]->loop_taker;
        p->pullers[i]->loop_taker.waiter.ask = &p->ask;
    }
    *out = &p->base;
    return 0;
}

void spread_puller_interrupt(struct puller *base) {
    struct spread_puller *p = (struct spread_puller *)base;
    atomic_store(&p->interrupted, true);
    for (uint32_t i = 0; i < spread_of(p)->count && p->pullers[i]; i++)
        local_puller_interrupt(&p->pullers[i]->base);
}

void spread_puller_close(struct puller *base) {
    if (!base)
        return;
    struct spread_puller *p = (struct spread_puller *)base;
    struct spread *s = spread_of(p);
    spread_puller_interrupt(base);
    for (uint32_t i = 0; i < s->count; i++)
        local_puller_close(p->pullers[i] ? &p->pullers[i]->base : NULL);
    pthread_mutex_lock(&s->lock);
    list_remove(&p->of_spread);
    pthread_mutex_unlock(&s->lock);
    ask_finish(&p->ask);
    mem_free(p);
}

void spread_tell_loop(struct puller *base) {
    struct spread_puller *p = (struct spread_puller *)base;
    for (uint32_t i = 0; i < spread_of(p)->count; i++)
        local_tell_loop(&p->pullers[i]->base);
}

int64_t spread_beat_all(struct puller *base) {
    struct spread_puller *p = (struct spread_puller *)base;
    int64_t next_ms = -1;
    for (uint32_t i = 0; i < spread_of(p)->count; i++) {
        int64_t ms = local_beat_all(&p->pullers[i]->base);
        if (next_ms < 0 || (ms >= 0 && ms < next_ms))
            next_ms = ms;
    }
    return next_ms;
}
