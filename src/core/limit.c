// The one predicate that says whether a stage may start, and the same for one more job in it. With
// a ledger, whoever is refused notes that its shard is held and looks once more; whoever makes a
// sum smaller has the others told (see ledger.h).
//
// What no limit asks for is not told: a stage without limits costs nothing for being in several
// shards. Of the depth, which every stage has a high mark for, only larger changes are told, so
// that all shards together know it to a part of the mark.
#include "core/limit.h"

#include "base/errors.h"

static uint64_t jobs_here(const struct stage *s) {
    return s->by_status[JOB_DELAYED] + s->by_status[JOB_WAITING] + s->by_status[JOB_RUNNING] +
           s->by_status[JOB_DEAD] + s->granted_rooms + s->linked;
}

static uint64_t depth_here(const struct stage *s) {
    return s->by_status[JOB_WAITING] + s->by_status[JOB_DELAYED] + s->linked;
}

static uint64_t running(const struct stage *s) {
    return s->ledger ? atomic_load(&s->ledger->running) : s->leased;
}

uint64_t stage_jobs(const struct stage *s) {
    return s->ledger ? atomic_load(&s->ledger->jobs) : jobs_here(s);
}

// Beyond its high mark.
static bool stage_is_over(const struct stage *s) {
    return s->ledger ? atomic_load(&s->ledger->over) : s->over;
}

uint64_t stage_rate_next_us(const struct stage *s) {
    return s->ledger ? atomic_load(&s->ledger->rate_next_us) : s->rate_next_us;
}

enum hold stage_hold(const struct core *c, const struct stage *s, uint32_t *out_downstream) {
    if (s->paused)
        return HOLD_PAUSED;
    if (s->policy.concurrency && running(s) >= s->policy.concurrency)
        return HOLD_LIMIT;
    for (uint32_t i = 0; i < s->edge_count; i++) {
        if (s->edges[i].in_cycle || !stage_is_over(c->stages[s->edges[i].to]))
            continue;
        if (out_downstream)
            *out_downstream = s->edges[i].to;
        return HOLD_DOWNSTREAM;
    }
    if (s->policy.rate_per_h && stage_rate_next_us(s) > c->now_ms * 1000)
        return HOLD_RATE;
    return HOLD_NONE;
}

// ---- What is watched --------------------------------------------------------------------------

// stage_mark looks only at depths outside of these.
static void watch_depth(struct stage *s, uint64_t quiet_from, uint64_t quiet_span) {
    s->quiet_from = quiet_from;
    s->quiet_span = quiet_span;
}

static void watch_all(struct stage *s) {
    watch_depth(s, 1, 0);
}

// ---- Rate -------------------------------------------------------------------------------------

// A tenth of a second may be caught up, so that coarse time does not lower the rate.
enum { RATE_SLACK_US = 100000 };
#define HOUR_US (UINT64_C(3600) * 1000000)

static uint64_t rate_each_us(const struct stage *s) {
    return (HOUR_US - 1) / s->policy.rate_per_h + 1; // rather fewer than too many
}

static uint64_t rate_earliest_us(const struct core *c) {
    uint64_t now_us = c->now_ms * 1000;
    return now_us > RATE_SLACK_US ? now_us - RATE_SLACK_US : 0;
}

static bool claim_rate(const struct core *c, const struct stage *s) {
    return !s->policy.rate_per_h ||
           ledger_claim_rate(s->ledger, c->now_ms * 1000, rate_earliest_us(c), rate_each_us(s));
}

// With a ledger one start was claimed.
uint32_t stage_start_most(const struct stage *s, uint32_t most) {
    uint64_t limit = s->policy.concurrency;
    if (!limit)
        return most;
    uint64_t left = s->ledger ? 1 : limit - s->leased;
    return left < most ? (uint32_t)left : most;
}

void stage_started(struct core *c, struct stage *s, uint32_t jobs) {
    if (!s->policy.rate_per_h)
        return;
    if (s->ledger) { // the first was claimed
        atomic_fetch_add(&s->ledger->rate_next_us, rate_each_us(s) * (jobs - 1));
        return;
    }
    uint64_t earliest = rate_earliest_us(c);
    if (s->rate_next_us < earliest)
        s->rate_next_us = earliest;
    s->rate_next_us += rate_each_us(s) * jobs;
}

// ---- Claims -----------------------------------------------------------------------------------

static bool goes_round(const struct stage *s) {
    return s->ledger && (s->policy.concurrency || s->policy.rate_per_h);
}

bool stage_is_next(const struct core *c, const struct stage *s) {
    return !goes_round(s) || ledger_is_next(&s->ledger->starts, c->config.shard);
}

// Those of these shards that are not this one have to look again.
static void tell_others(struct core *c, const struct stage *s, uint64_t shards) {
    uint64_t others = shards & ~(UINT64_C(1) << c->config.shard);
    if (others && c->config.events.freed)
        c->config.events.freed(c->config.owner, bytes_of(s->name, s->name_size), others);
}

// Who may start now. While all that may run do so it is nobody: the next lease that ends tells.
static uint64_t next_to_start(const struct stage *s) {
    uint64_t most = s->policy.concurrency;
    return most && running(s) >= most ? 0 : ledger_next(&s->ledger->starts);
}

static void tell_next(struct core *c, struct stage *s, uint64_t next) {
    if (next >> c->config.shard & 1)
        stage_wake(c, s);
    tell_others(c, s, next);
}

static void join_line(const struct core *c, struct ledger_line *line, bool *in_line) {
    if (!*in_line)
        ledger_join_line(line, c->config.shard);
    *in_line = true;
}

APART void stage_leave_line(struct core *c, struct stage *s) {
    if (!s->in_line)
        return;
    s->in_line = false;
    ledger_leave_line(&s->ledger->starts, c->config.shard);
    tell_next(c, s, next_to_start(s));
}

void stage_check_line(struct core *c, struct stage *s) {
    if (s->in_line && (!s->ready.head || list_empty(&s->takers)))
        stage_leave_line(c, s);
}

static bool claim_start(struct core *c, struct stage *s) {
    uint64_t most = s->policy.concurrency;
    if (!stage_is_next(c, s))
        return false;
    if (most && !ledger_claim(&s->ledger->running, &s->share.running, s->leased + 1, most))
        return false;
    s->claimed = claim_rate(c, s);
    if (!s->claimed) {
        stage_tell(c, s);
    } else if (goes_round(s)) {
        ledger_took_turn(&s->ledger->starts, c->config.shard);
        tell_others(c, s, next_to_start(s)); // this one goes on by itself, or was told before
    }
    return s->claimed;
}

// Sees to it that the shard is told when what holds the stage may do so no longer: pause comes to
// every shard by itself.
static void note_held(struct core *c, struct stage *s, enum hold hold, uint32_t holder) {
    if (hold == HOLD_PAUSED || hold == HOLD_DOWNSTREAM)
        stage_leave_line(c, s);
    else
        join_line(c, &s->ledger->starts, &s->in_line);
    if (hold == HOLD_DOWNSTREAM && c->stages[holder]->ledger)
        ledger_hold(c->stages[holder]->ledger, c->config.shard);
}

// What holds it may have changed between two looks: each is noted, and looked at again after that.
APART bool stage_claim(struct core *c, struct stage *s, bool waits) {
    for (uint32_t noted = 0, holder = s->number; !s->claimed; noted = holder, holder = s->number) {
        enum hold hold = stage_hold(c, s, &holder);
        if (hold == HOLD_NONE && claim_start(c, s))
            return true;
        if (!waits || holder == noted)
            return false;
        note_held(c, s, hold, holder);
    }
    return true;
}

APART void stage_unclaim(struct core *c, struct stage *s) {
    if (!s->claimed)
        return;
    s->claimed = false;
    if (s->policy.rate_per_h)
        atomic_fetch_sub(&s->ledger->rate_next_us, rate_each_us(s));
    stage_tell(c, s);
}

// ---- Room -------------------------------------------------------------------------------------

// Whose pushes may have a place now. While there is none it is nobody: the next job that goes
// tells.
static uint64_t next_for_room(const struct stage *s) {
    uint64_t most = s->policy.max_jobs;
    return most && stage_jobs(s) >= most ? 0 : ledger_next(&s->ledger->rooms);
}

APART void stage_leave_rooms(struct core *c, struct stage *s) {
    if (!s->in_rooms)
        return;
    s->in_rooms = false;
    ledger_leave_line(&s->ledger->rooms, c->config.shard);
    tell_next(c, s, next_for_room(s));
}

void stage_check_rooms(struct core *c, struct stage *s) {
    if (s->in_rooms && list_empty(&s->pushers))
        stage_leave_rooms(c, s);
}

static bool claim_place(struct core *c, struct stage *s, uint64_t jobs) {
    if (!ledger_is_next(&s->ledger->rooms, c->config.shard) ||
        !ledger_claim(&s->ledger->jobs, &s->share.jobs, jobs, s->policy.max_jobs))
        return false;
    ledger_took_turn(&s->ledger->rooms, c->config.shard);
    tell_others(c, s, next_for_room(s)); // this one goes on by itself
    return true;
}

APART bool stage_claim_room(struct core *c, struct stage *s, bool waits) {
    uint64_t jobs = jobs_here(s), most = s->policy.max_jobs;
    if (!s->ledger || !most)
        return !most || jobs < most;
    if (s->share.jobs > jobs || claim_place(c, s, jobs + 1)) // one may have been kept for it
        return true;
    if (!waits)
        return false;
    join_line(c, &s->ledger->rooms, &s->in_rooms);
    return claim_place(c, s, jobs + 1);
}

APART bool stage_is_choked(struct core *c, struct stage *s) {
    if (!stage_is_over(s) || !stage_in_cycle(s))
        return false;
    if (s->ledger)
        ledger_hold(s->ledger, c->config.shard);
    return stage_is_over(s);
}

// ---- The ledger -------------------------------------------------------------------------------

int stage_join_ledger(struct core *c, struct stage *s) {
    if (s->ledger || !c->config.ledger || c->config.shards == 1)
        return 0;
    s->ledger = c->config.ledger(c->config.ledger_owner, bytes_of(s->name, s->name_size));
    if (!s->ledger)
        return error_set(MR_ENOMEM, "no memory for a stage's limits");
    watch_all(s);
    return 0;
}

void stage_leave_ledger(struct stage *s, uint32_t shard) {
    if (!s->ledger)
        return;
    (void)ledger_tell(s->ledger, &s->share, &(struct ledger_share){ 0 });
    if (s->in_line)
        ledger_leave_line(&s->ledger->starts, shard);
    if (s->in_rooms)
        ledger_leave_line(&s->ledger->rooms, shard);
    s->in_line = s->in_rooms = false;
    s->ledger = NULL;
    watch_all(s);
}

enum { DEPTH_PARTS = 64 }; // of the high mark: how exactly all shards together know the depth

static uint64_t depth_step(const struct core *c, const struct stage *s) {
    return s->policy.high_mark / ((uint64_t)DEPTH_PARTS * c->config.shards);
}

static struct ledger_share share_now(const struct core *c, const struct stage *s) {
    const struct policy *policy = &s->policy;
    uint64_t depth = policy->high_mark ? depth_here(s) : 0, told = s->share.depth;
    uint64_t change = depth > told ? depth - told : told - depth;
    return (struct ledger_share){
        .running = policy->concurrency ? s->leased + s->claimed : 0,
        .jobs = policy->max_jobs ? jobs_here(s) : 0,
        .depth = change > depth_step(c, s) ? depth : told,
    };
}

// After all was told: which changes are to be told next.
static void watch_share(const struct core *c, struct stage *s) {
    uint64_t step = depth_step(c, s), told = s->share.depth;
    if (s->policy.concurrency || s->policy.max_jobs || s->linked)
        watch_all(s);
    else if (!s->policy.high_mark)
        watch_depth(s, 0, UINT64_MAX);
    else if (told > step)
        watch_depth(s, told - step, 2 * step + 1);
    else
        watch_depth(s, 0, told + step + 1);
}

bool stage_share_is_right(const struct core *c, const struct stage *s) {
    if (!s->ledger)
        return true;
    struct ledger_share now = share_now(c, s);
    return s->share.running == now.running && s->share.jobs == now.jobs &&
           s->share.depth == now.depth && !s->claimed && (!s->in_line || !list_empty(&s->takers)) &&
           (!s->in_rooms || !list_empty(&s->pushers));
}

APART void stage_tell(struct core *c, struct stage *s) {
    struct ledger_share now = share_now(c, s);
    struct ledger_less less = ledger_tell(s->ledger, &s->share, &now);
    bool under = ledger_turn(s->ledger, s->policy.high_mark);
    uint64_t held = under ? ledger_release(s->ledger) : 0;
    watch_share(c, s);
    if (under)
        stage_wake_around(c, s);
    tell_others(c, s, held);
    if (less.running)
        tell_next(c, s, next_to_start(s));
    if (less.jobs)
        tell_next(c, s, next_for_room(s));
}

APART void stage_mark_turn(struct core *c, struct stage *s) {
    if (s->ledger) {
        stage_tell(c, s);
        return;
    }
    uint64_t depth = depth_here(s);
    bool over = s->over ? depth > s->policy.high_mark / 2 : depth >= s->policy.high_mark;
    over = over && s->policy.high_mark;
    bool under = s->over && !over;
    s->over = over;
    if (over || s->linked)
        watch_all(s);
    else
        watch_depth(s, 0, s->policy.high_mark ? s->policy.high_mark : UINT64_MAX);
    if (under)
        stage_wake_around(c, s);
}

void core_wake(struct core *c, mr_bytes stage) {
    uint32_t number = stage_find(c, stage);
    if (!number)
        return;
    stage_wake_around(c, c->stages[number]);
    settle(c);
    stage_check_line(c, c->stages[number]);
}
