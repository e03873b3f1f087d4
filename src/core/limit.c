// Whether a stage may start a job (stage_hold) or accept one more (stage_has_room), and its high
// mark.
#include "core/limit.h"
#include "core/maker.h"

#include "base/errors.h"
#include "base/mutant.h"

uint64_t stage_jobs(const struct stage *s) {
    return s->by_status[JOB_DELAYED] + s->by_status[JOB_WAITING] + s->by_status[JOB_RUNNING] +
           s->by_status[JOB_DEAD] + s->granted_rooms + s->linked;
}

bool stage_has_room(const struct stage *s) {
    return !s->policy.max_jobs || stage_jobs(s) < s->policy.max_jobs + MUTANT(room_off_by_one);
}

// Over its high mark, as counted here or as its own shard has sent.
static bool stage_is_over(const struct stage *s) {
    return s->over || s->over_at_peer;
}

enum hold stage_hold(const struct core *c, const struct stage *s, uint32_t *out_downstream) {
    if (s->paused)
        return HOLD_PAUSED;
    if (s->policy.concurrency && s->leased >= s->policy.concurrency + MUTANT(limit_off_by_one))
        return HOLD_LIMIT;
    for (uint32_t i = 0; i < s->edge_count; i++) {
        if (s->edges[i].in_cycle || !stage_is_over(c->stages[s->edges[i].to]) ||
            MUTANT(back_pressure_ignored))
            continue;
        if (out_downstream)
            *out_downstream = s->edges[i].to;
        return HOLD_DOWNSTREAM;
    }
    if (s->policy.rate_per_h && s->rate_next_us > c->now_ms * 1000)
        return HOLD_RATE;
    return HOLD_NONE;
}

bool stage_is_choked(const struct stage *s) {
    return stage_is_over(s) && stage_in_cycle(s);
}

// ---- Rate -------------------------------------------------------------------------------------

#define HOUR_US (UINT64_C(3600) * 1000000)

static uint64_t pace_each_us(uint64_t per_h) {
    return (HOUR_US - 1) / per_h + 1; // rounded up: never above the rate
}

void pace_spend(uint64_t *next_us, uint64_t per_h, uint64_t now_ms, uint32_t jobs) {
    uint64_t now_us = now_ms * 1000;
    uint64_t earliest = now_us > PACE_SLACK_US ? now_us - PACE_SLACK_US : 0;
    if (*next_us < earliest)
        *next_us = earliest;
    *next_us += pace_each_us(per_h) * jobs;
}

void pace_return(uint64_t *next_us, uint64_t per_h, uint32_t jobs) {
    uint64_t us = pace_each_us(per_h) * jobs;
    *next_us -= us < *next_us ? us : *next_us;
}

uint32_t stage_start_most(const struct stage *s, uint32_t most) {
    uint64_t limit = s->policy.concurrency, left = limit - s->leased;
    return limit && left < most && !MUTANT(limit_ignored_by_block) ? (uint32_t)left : most;
}

void stage_started(struct core *c, struct stage *s, uint32_t jobs) {
    if (s->policy.rate_per_h)
        pace_spend(&s->rate_next_us, s->policy.rate_per_h, c->now_ms, jobs);
}

void stage_not_started(struct stage *s, uint32_t jobs) {
    if (s->policy.rate_per_h)
        pace_return(&s->rate_next_us, s->policy.rate_per_h, jobs);
}

// ---- The high mark ----------------------------------------------------------------------------

// stage_depth_changed does nothing while the depth is in this range.
static void watch_depth(struct stage *s, uint64_t quiet_from, uint64_t quiet_span) {
    s->quiet_from = quiet_from;
    s->quiet_span = quiet_span;
}

// The high mark of a stage is set in the shard where it lives.
static uint64_t stage_high_mark(const struct stage *s) {
    return s->mark_at_peer ? s->mark_at_peer : s->policy.high_mark;
}

// 0 for the default high mark, UINT64_MAX for none, else the mark.
static uint64_t mark_unless_default(uint64_t mark) {
    return mark == policy_default().high_mark ? 0 : mark ? mark : UINT64_MAX;
}

static bool stage_peers_know(const struct stage *s) {
    return s->over == s->over_notified &&
           mark_unless_default(s->policy.high_mark) == s->mark_notified;
}

static bool stage_must_notify_peers(const struct core *c, const struct stage *s) {
    return c->config.shards > 1 && c->config.peers.over && s->name_size && stage_lives_here(c, s);
}

// Sends the stage's state to the other shards.
static int stage_notify_peers(const struct core *c, struct stage *s, bool over, uint64_t mark) {
    mr_bytes name = bytes_of(s->name, s->name_size);
    int err = c->config.peers.over(c->config.peers.owner, name, over, mark);
    if (err < 0)
        return err;
    s->over_notified = over;
    s->mark_notified = mark_unless_default(mark);
    return 0;
}

int stage_notify_forgotten(const struct core *c, struct stage *s) {
    if ((!s->over_notified && !s->mark_notified) || !stage_must_notify_peers(c, s))
        return 0;
    int err = stage_notify_peers(c, s, false, policy_default().high_mark);
    return err < 0 ? error_set(err, "no memory to notify the other shards") : 0;
}

APART void stage_update_mark(struct core *c, struct stage *s) {
    uint64_t depth = s->by_status[JOB_WAITING] + s->by_status[JOB_DELAYED] + s->linked;
    uint64_t mark = stage_high_mark(s);
    bool over = s->over ? depth > mark / 2 : depth >= mark;
    over = over && mark;
    bool under = s->over && !over;
    s->over = over;
    bool not_sent = !stage_peers_know(s) && stage_must_notify_peers(c, s) &&
                    stage_notify_peers(c, s, over, s->policy.high_mark) < 0;
    if (s->linked || not_sent || (s->over_notified && !over)) // a failed notification is repeated
        watch_depth(s, 1, 0);                                 // all
    else if (over)
        watch_depth(s, mark / 2 + 1, UINT64_MAX - mark / 2); // down to the low mark
    else
        watch_depth(s, 0, mark ? mark : UINT64_MAX);
    if (under)
        stage_wake_around(c, s);
}

// If the news is the default state and the stage is not known here, nothing is stored.
int core_learn_over(struct core *c, mr_bytes stage, bool over, uint64_t mark) {
    uint32_t number = stage_find(c, stage);
    bool usual = !mark_unless_default(mark);
    int err = number || (!over && usual) ? 0 : stage_know(c, stage, &number);
    if (err < 0 || !number)
        return err;
    struct stage *s = c->stages[number];
    s->over_at_peer = over;
    s->mark_at_peer = mark_unless_default(mark);
    stage_update_mark(c, s);
    if (!over)
        stage_wake_around(c, s);
    settle(c);
    stage_forget_unused(c, stage);
    return 0;
}

void core_forget_over(struct core *c, uint32_t shard) {
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        const struct stage *s = c->stages[i];
        mr_bytes name = bytes_of(s->name, s->name_size);
        if ((s->over_at_peer || s->mark_at_peer) && route_of(c->config.shards, name) == shard)
            (void)core_learn_over(c, name, false, policy_default().high_mark); // it is known
    }
}

static bool stage_has_news(const struct core *c, const struct stage *s) {
    return stage_must_notify_peers(c, s) &&
           (s->over || mark_unless_default(s->policy.high_mark) != 0);
}

// Edges are counted down: one that is removed is replaced by the last, which was listed before.
bool core_fact_next(const struct core *c, struct fact_cursor *at, struct core_fact *out) {
    for (; at->stages < c->stage_count; at->stages++, at->in_stage = false) {
        const struct stage *s = c->stages[at->stages + 1];
        mr_bytes name = bytes_of(s->name, s->name_size);
        bool begins = !at->in_stage;
        if (begins || at->edges > s->edge_count)
            at->edges = s->edge_count;
        at->in_stage = true;
        if (begins && stage_has_news(c, s)) {
            *out = (struct core_fact){ .stage = name,
                                       .over = s->over,
                                       .high_mark = s->policy.high_mark };
            return true;
        }
        if (at->edges) {
            const struct stage *to = c->stages[s->edges[--at->edges].to];
            *out = (struct core_fact){ .stage = name,
                                       .downstream = bytes_of(to->name, to->name_size),
                                       .maker = maker_name(c, s->maker) };
            return true;
        }
    }
    return false;
}
