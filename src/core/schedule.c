// Schedules: pushes that repeat. The owner says when (core.h); this file keeps them, and pushes a
// tick in one group with the record that says that it was.
//
//     SCHEDULE          the push, and where the schedule stands: its home
//     PUSH, MOVE        a tick: last and next instant are part of MOVE
//     MOVE              PAUSE, RESUME, NOW, and ticks that are skipped
//     DROP
//
// A record names its schedule by stage and name, so it has one place in the order of the log, and
// needs no number of its own. The body stays in the log, and is read for each tick.
#include "core/limit.h"
#include "core/maker.h"

#include "base/cron.h"
#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <inttypes.h>

static const char *const missed_names[] = { "skip", "one", "all" };

const char *missed_name(enum missed missed) {
    return missed_names[missed];
}

bool missed_find(mr_bytes name, enum missed *out) {
    for (int i = MISSED_SKIP; i <= MISSED_ALL; i++) {
        if (bytes_are_word(name, missed_names[i])) {
            *out = (enum missed)i;
            return true;
        }
    }
    return false;
}

struct schedule_key {
    uint32_t stage;
    mr_bytes name;
};

static uint32_t schedule_key_hash(const struct schedule_key *k) {
    return (uint32_t)bytes_hash(k->name, k->stage);
}

static bool schedule_has_key(const void *owner, uint32_t number, const void *key) {
    const struct schedule *s = schedule_at(owner, number);
    const struct schedule_key *k = key;
    return s->stage == k->stage && bytes_equal(s->name, k->name);
}

uint32_t schedule_find(const struct core *c, uint32_t stage, mr_bytes name) {
    struct schedule_key k = { stage, name };
    return map_find(&c->schedule_by_name, schedule_key_hash(&k), schedule_has_key, c, &k);
}

static int schedule_unknown(mr_bytes stage, mr_bytes name) {
    return error_set(MR_EGONE, "stage %.*s has no schedule '%.*s'",
                     (int)(stage.size < STAGE_NAME_MOST ? stage.size : STAGE_NAME_MOST),
                     stage.size ? (const char *)stage.data : "",
                     (int)(name.size < SCHEDULE_NAME_MOST ? name.size : SCHEDULE_NAME_MOST),
                     name.size ? (const char *)name.data : "");
}

static int schedule_get(struct core *c, mr_bytes stage, mr_bytes name, uint32_t *out) {
    uint32_t number = stage_find(c, stage);
    number = number ? schedule_find(c, number, name) : 0;
    if (!number)
        return schedule_unknown(stage, name);
    *out = number;
    return 0;
}

// ---- Timers -----------------------------------------------------------------------------------

static bool tick_is_current(const void *owner, struct heap_entry e) {
    const struct core *c = owner;
    return e.value < c->schedules.next_new && schedule_at(c, e.value)->text &&
           schedule_at(c, e.value)->timer_ms == e.at_ms;
}

enum { TICKS_TIDIED = 4 };

static void tick_clear_timer(struct core *c, struct schedule *s) {
    if (s->timer_ms == NO_TIMER)
        return;
    s->timer_ms = NO_TIMER;
    heap_forget(&c->ticks);
    if (heap_wants_filter(&c->ticks))
        heap_filter_some(&c->ticks, tick_is_current, c, TICKS_TIDIED);
}

// After heap_reserve.
static void tick_set_timer_at(struct core *c, uint32_t number, uint64_t at_ms) {
    struct schedule *s = schedule_at(c, number);
    if (s->timer_ms == at_ms)
        return;
    tick_clear_timer(c, s);
    s->timer_ms = at_ms;
    if (at_ms != NO_TIMER)
        heap_put(&c->ticks, at_ms, number);
}

static void tick_set_timer(struct core *c, uint32_t number) {
    const struct record_move *m = &schedule_at(c, number)->move;
    bool never = m->paused || !m->next_ms;
    tick_set_timer_at(c, number, m->asked ? 0 : never ? NO_TIMER : m->next_ms);
}

// ---- Texts ------------------------------------------------------------------------------------

static mr_bytes text_put(uint8_t **at, mr_bytes text) {
    mr_bytes kept = { *at, text.size };
    if (text.size)
        memcpy(*at, text.data, text.size);
    *at += text.size;
    return kept;
}

static size_t text_size(const struct schedule *s) {
    return s->name.size + s->key.size + s->when.cron.size + s->when.zone.size;
}

// Copies the texts that `s` borrows into a block of its own.
static int schedule_own_texts(struct schedule *s) {
    uint8_t *text = mem_alloc(text_size(s)), *at = text;
    if (!text)
        return error_set(MR_ENOMEM, "no memory for a schedule");
    s->text = text;
    s->name = text_put(&at, s->name);
    s->key = text_put(&at, s->key);
    s->when.cron = text_put(&at, s->when.cron);
    s->when.zone = text_put(&at, s->when.zone);
    return 0;
}

// ---- Making and forgetting --------------------------------------------------------------------

static struct record record_of_schedule(const struct core *c, const struct schedule *s,
                                        enum record_kind kind, struct record_about *about) {
    about->schedule = s->when;
    about->move = s->move;
    struct record r = {
        .kind = kind, .time_ms = c->now_ms, .stage = s->stage, .name = s->name, .about = about
    };
    if (kind == RECORD_SCHEDULE) {
        r.key = s->key;
        r.attempts = s->attempts;
        r.maker = maker_name(c, s->maker);
    }
    return r;
}

static void schedule_set_home(struct core *c, struct schedule *s, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, s->at, s->size);
    s->at = at;
    s->size = size;
}

// Reserves what schedule_add needs.
static int schedule_reserve(struct core *c, uint64_t maker) {
    int err = map_reserve(&c->schedule_by_name, 1);
    if (err == 0)
        err = slab_reserve(&c->schedules, 1);
    if (err == 0)
        err = heap_reserve(&c->ticks, 1);
    return err < 0 ? err : maker_reserve(c, maker);
}

static uint32_t schedule_add(struct core *c, uint32_t stage, mr_bytes name, uint64_t maker) {
    uint32_t number = slab_take(&c->schedules);
    struct schedule_key k = { stage, name };
    *schedule_at(c, number) = (struct schedule){ .stage = stage,
                                                 .hash = schedule_key_hash(&k),
                                                 .timer_ms = NO_TIMER,
                                                 .maker = maker_add(c, maker, MADE_SCHEDULE) };
    map_put(&c->schedule_by_name, schedule_at(c, number)->hash, number);
    c->stages[stage]->schedules++;
    return number;
}

// Replaces what a schedule says and where it stands by that of `now`, whose text it takes.
static void schedule_assign(struct core *c, uint32_t number, const struct schedule *now) {
    struct schedule *s = schedule_at(c, number);
    c->schedule_bytes += text_size(now);
    c->schedule_bytes -= s->text ? text_size(s) : 0;
    mem_free(s->text);
    s->text = now->text;
    s->name = now->name;
    s->key = now->key;
    s->when = now->when;
    s->move = now->move;
    s->attempts = now->attempts;
    s->body_size = now->body_size;
    s->catching_up = false;
}

void schedule_forget(struct core *c, uint32_t number) {
    struct schedule *s = schedule_at(c, number);
    tick_clear_timer(c, s);
    map_remove(&c->schedule_by_name, s->hash, number);
    c->stages[s->stage]->schedules--;
    c->schedule_bytes -= text_size(s);
    home_remove(c, s->at, s->size);
    maker_remove(c, s->maker, MADE_SCHEDULE);
    mem_free(s->text);
    s->text = NULL;
    slab_give(&c->schedules, number);
}

void schedules_finish(struct core *c) {
    for (uint32_t i = 1; i < c->schedules.next_new; i++)
        mem_free(schedule_at(c, i)->text);
}

// ---- SCHEDULE ---------------------------------------------------------------------------------

static int schedule_check_names(const struct schedule_spec *p) {
    if (!p->name.size || p->name.size > SCHEDULE_NAME_MOST)
        return error_set(MR_EINVAL, "the name of a schedule has 1 to %d bytes, not %zu",
                         SCHEDULE_NAME_MOST, p->name.size);
    if (p->cron.size > CRON_MOST)
        return error_set(MR_EINVAL, "a cron expression of %zu bytes is too long: %d at most",
                         p->cron.size, CRON_MOST);
    if (p->zone.size > ZONE_NAME_MOST)
        return error_set(MR_EINVAL, "the name of a time zone has up to %d bytes, not %zu",
                         ZONE_NAME_MOST, p->zone.size);
    return 0;
}

static struct push push_of_spec(const struct schedule_spec *p) {
    return (struct push){ .stage = p->stage, .body = p->body, .job = p->job };
}

static int schedule_check_spec(struct core *c, const struct schedule_spec *p) {
    struct push push = push_of_spec(p);
    int err = schedule_check_names(p);
    if (err < 0)
        return err;
    if (!p->cron.size && (p->every_ms < EVERY_LEAST_MS || p->every_ms > TIME_MOST_MS))
        return error_set(MR_EINVAL,
                         "an interval of %" PRIu64 " ms is not possible: %d ms to 100 years",
                         p->every_ms, EVERY_LEAST_MS);
    if (p->job.once.size || p->job.delay_ms)
        return error_set(MR_EINVAL, "the jobs of a schedule have no once and no delay");
    return push_check(c, &push);
}

// For one more.
static int schedule_check_share(struct core *c) {
    uint32_t share = maker_share(c, c->limits.max_schedules);
    if (c->schedules.used >= c->limits.max_schedules)
        return error_set(MR_EFULL,
                         "%u schedules are known, which is the limit: SCHEDULE … DROP forgets one",
                         c->schedules.used);
    if (c->maker && maker_count(c, MADE_SCHEDULE) >= share)
        return error_set(MR_EFULL,
                         "this token has made %u schedules%s, its share of %u: SCHEDULE … DROP "
                         "forgets one",
                         share, maker_where(c), c->limits.max_schedules);
    return quota_check(c, QUOTA_SCHEDULES, 1);
}

static bool keeps_instants(const struct schedule *s, const struct schedule_spec *p) {
    return s->when.every_ms == (p->cron.size ? 0 : p->every_ms) &&
           bytes_equal(s->when.cron, p->cron) && bytes_equal(s->when.zone, p->zone);
}

// What the schedule will be: `before` is the one of this name, or NULL.
static struct schedule schedule_planned(const struct schedule *before, uint32_t stage,
                                        const struct schedule_spec *p, uint64_t next_ms) {
    struct schedule s = { .stage = stage,
                          .maker = before ? before->maker : 0,
                          .name = p->name,
                          .key = p->job.key,
                          .attempts = p->job.attempts,
                          .body_size = (uint32_t)p->body.size,
                          .when = { .every_ms = p->cron.size ? 0 : p->every_ms,
                                    .missed = p->missed,
                                    .deadline_ms = (uint64_t)p->job.deadline_ms,
                                    .cron = p->cron,
                                    .zone = p->zone,
                                    .meta_size = (uint32_t)p->job.meta.size } };
    if (before)
        s.move = before->move;
    if (!before || !keeps_instants(before, p))
        s.move.next_ms = s.move.paused ? 0 : next_ms;
    return s;
}

static int schedule_write(struct core *c, const struct schedule *s, uint64_t maker,
                          const struct push *push) {
    struct stage *stage = c->stages[s->stage];
    bool new_stage = !stage->recorded;
    struct record_about about;
    int err = out_begin(c, 2, RECORD_MAX);
    if (err == 0)
        err = out_reserve_joined(c, push_joined_size(push));
    if (err < 0)
        return err;
    struct record r;
    if (new_stage) {
        r = record_of_stage(c, stage, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    r = record_of_schedule(c, s, RECORD_SCHEDULE, &about);
    r.maker = maker;
    out_add(c, &r, out_join(c, push));
    if ((err = out_commit(c, ROOM_PUSH)) < 0)
        return err;
    if (new_stage)
        stage_set_home(c, stage, c->out.at[0], out_size(c, 0));
    return 0;
}

int core_schedule_check(struct core *c, const struct schedule_spec *p) {
    uint32_t stage = stage_find(c, p->stage);
    int err = stage_name_check(p->stage);
    if (err == 0)
        err = schedule_check_spec(c, p);
    if (err < 0)
        return err;
    return stage && schedule_find(c, stage, p->name) ? 0 : schedule_check_share(c);
}

static int schedule_try(struct core *c, const struct schedule_spec *p, uint64_t next_ms) {
    uint32_t stage = 0, number = 0;
    int err = schedule_check_spec(c, p);
    if (err < 0)
        return err;
    if ((err = memory_check(c, entry_size(HEAD_MAX, p->body.size))) < 0)
        return err;
    if ((err = stage_get_if_room(c, p->stage, &stage)) < 0)
        return err;
    number = schedule_find(c, stage, p->name);
    if (!number && (err = schedule_check_share(c)) < 0)
        return err;
    if ((err = schedule_reserve(c, c->maker)) < 0)
        return err;
    const struct schedule *before = number ? schedule_at(c, number) : NULL;
    uint64_t maker = before ? maker_name(c, before->maker) : c->maker;
    struct schedule now = schedule_planned(before, stage, p, next_ms);
    struct push push = push_of_spec(p);
    if ((err = schedule_own_texts(&now)) < 0)
        return err;
    if ((err = schedule_write(c, &now, maker, &push)) < 0) {
        mem_free(now.text);
        return err;
    }
    if (!number)
        number = schedule_add(c, stage, p->name, maker);
    schedule_assign(c, number, &now);
    size_t last = c->out.count - 1;
    schedule_set_home(c, schedule_at(c, number), c->out.at[last], out_size(c, last));
    tick_set_timer(c, number);
    return 0;
}

int core_schedule_set(struct core *c, const struct schedule_spec *p, uint64_t next_ms) {
    int err = schedule_try(c, p, next_ms);
    if (err < 0)
        stage_forget_unused(c, p->stage);
    return err;
}

int core_schedule_drop(struct core *c, mr_bytes stage, mr_bytes name) {
    uint32_t number = 0;
    int err = schedule_get(c, stage, name, &number);
    if (err < 0)
        return err;
    const struct schedule *s = schedule_at(c, number);
    struct record r = {
        .kind = RECORD_SCHEDULE_DROP, .time_ms = c->now_ms, .stage = s->stage, .name = s->name
    };
    if ((err = out_write(c, &r, ROOM_COMMIT)) < 0)
        return err;
    struct stage *of = c->stages[s->stage];
    schedule_forget(c, number);
    stage_drop_if_idle(c, of);
    return 0;
}

// ---- Moving on --------------------------------------------------------------------------------

static void out_add_move(struct core *c, const struct schedule *s, const struct record_move *move) {
    struct record_about about;
    struct record r = record_of_schedule(c, s, RECORD_SCHEDULE_MOVE, &about);
    about.move = *move;
    out_add(c, &r, (mr_bytes){ 0 });
}

// Records where the schedule stands now, without a push.
static int schedule_move(struct core *c, uint32_t number, const struct record_move *move) {
    struct schedule *s = schedule_at(c, number);
    int err = heap_reserve(&c->ticks, 1);
    if (err < 0)
        return err;
    if ((err = out_begin(c, 1, s->name.size)) < 0)
        return err;
    out_add_move(c, s, move);
    if ((err = out_commit(c, ROOM_COMMIT)) < 0)
        return err;
    s->move = *move;
    tick_set_timer(c, number);
    return 0;
}

int core_schedule_pause(struct core *c, mr_bytes stage, mr_bytes name) {
    uint32_t number = 0;
    int err = schedule_get(c, stage, name, &number);
    if (err < 0)
        return err;
    struct record_move move = schedule_at(c, number)->move;
    if (move.paused)
        return 0;
    move.paused = true;
    move.next_ms = 0;
    return schedule_move(c, number, &move);
}

int core_schedule_resume(struct core *c, mr_bytes stage, mr_bytes name, uint64_t next_ms) {
    uint32_t number = 0;
    int err = schedule_get(c, stage, name, &number);
    if (err < 0)
        return err;
    struct record_move move = schedule_at(c, number)->move;
    if (!move.paused)
        return 0;
    move.paused = false;
    move.next_ms = next_ms;
    return schedule_move(c, number, &move);
}

int core_schedule_now(struct core *c, mr_bytes stage, mr_bytes name) {
    uint32_t number = 0;
    int err = schedule_get(c, stage, name, &number);
    if (err < 0)
        return err;
    struct record_move move = schedule_at(c, number)->move;
    if (move.asked)
        return 0; // the one that was asked for before is not pushed yet
    move.asked = true;
    return schedule_move(c, number, &move);
}

// ---- Ticks ------------------------------------------------------------------------------------

uint64_t core_tick_next(const struct core *c) {
    return heap_next(&c->ticks);
}

bool core_tick_due(struct core *c, uint64_t wall_ms, struct due_schedule *out) {
    while (heap_next(&c->ticks) <= wall_ms) {
        struct heap_entry e = heap_pop(&c->ticks);
        c->steps++;
        if (!tick_is_current(c, e)) {
            c->ticks.idle -= c->ticks.idle > 0;
            continue;
        }
        struct schedule *s = schedule_at(c, e.value);
        s->timer_ms = NO_TIMER;
        *out = (struct due_schedule){ .place = e.value,
                                      .cron = s->when.cron,
                                      .zone = s->when.zone,
                                      .every_ms = s->when.every_ms,
                                      .next_ms = s->move.next_ms,
                                      .last_ms = s->move.last_ms,
                                      .missed = (enum missed)s->when.missed,
                                      .asked = s->move.asked,
                                      .catching_up = s->catching_up,
                                      .body_size = s->body_size };
        return true;
    }
    return false;
}

// core_tick_due has just popped an entry, so there is room for one.
void core_tick_later(struct core *c, uint32_t place, uint64_t wall_ms) {
    tick_set_timer_at(c, place, wall_ms);
}

static int tick_read_body(struct core *c, const struct schedule *s) {
    buffer_clear(&c->tick_body);
    if (!s->body_size && !s->when.meta_size)
        return 0;
    return c->config.sink.read(c->config.sink.owner, s->at, &c->tick_body);
}

// The job counts for the token that has made the schedule.
static int tick_plan(struct core *c, const struct push *p, uint64_t maker, struct push_plan *plan) {
    uint64_t before = c->job_maker;
    c->job_maker = maker_counts_jobs(c, maker) ? maker : 0;
    int err = push_plan_begin(c, p, plan);
    c->job_maker = before;
    if (err < 0)
        return err;
    if ((err = job_reserve(c, 1, plan->has_options)) < 0)
        return err;
    if ((err = ids_reserve(c, 1)) < 0)
        return err;
    return push_plan_prepare(c, plan);
}

// The push and the move are one group: both survive, or neither does.
static int tick_write(struct core *c, const struct schedule *s, const struct push_plan *plan,
                      const struct record_move *move) {
    int err = out_begin(c, 2, s->key.size + s->name.size);
    if (err == 0)
        err = out_reserve_joined(c, push_joined_size(plan->push));
    if (err < 0)
        return err;
    out_add_push(c, plan);
    if (!MUTANT(tick_not_recorded))
        out_add_move(c, s, move);
    return out_commit(c, ROOM_PUSH);
}

static int tick_push(struct core *c, uint32_t number, struct record_move *move) {
    struct schedule *s = schedule_at(c, number);
    const struct stage *stage = c->stages[s->stage];
    struct push_plan plan;
    int err = tick_read_body(c, s);
    if (err < 0)
        return err;
    mr_bytes joined = buffer_bytes(&c->tick_body);
    if (joined.size < s->when.meta_size)
        return error_set(MR_ECORRUPT, "the body of a schedule is not whole");
    struct push p = { .stage = bytes_of(stage->name, stage->name_size),
                      .body = bytes_of(joined.data, joined.size - s->when.meta_size),
                      .job = { .key = s->key,
                               .meta = bytes_tail(joined, s->when.meta_size),
                               .deadline_ms = (int64_t)s->when.deadline_ms,
                               .attempts = s->attempts } };
    if ((err = tick_plan(c, &p, maker_name(c, s->maker), &plan)) < 0)
        return err;
    move->pushed++;
    move->last_id = plan.id;
    move->asked = false;
    if ((err = tick_write(c, s, &plan, move)) < 0) {
        push_plan_unpin(c, &plan);
        return err;
    }
    s->move = *move;
    push_plan_apply(c, &plan, c->out.at[0], out_size(c, 0));
    return 0;
}

enum { TICK_BODY_KEPT = 64 << 10 }; // a larger buffer is freed after the tick

int core_tick(struct core *c, uint32_t place, uint64_t wall_ms, const struct tick *t) {
    struct schedule *s = schedule_at(c, place);
    struct record_move move = s->move;
    if (t->last_ms)
        move.last_ms = t->last_ms;
    if (t->next_ms)
        move.next_ms = t->next_ms;
    int err = t->pushes ? tick_push(c, place, &move) : schedule_move(c, place, &move);
    if (c->tick_body.capacity > TICK_BODY_KEPT)
        buffer_finish(&c->tick_body);
    due_spend(c, 1);
    if (err < 0) {
        tick_set_timer_at(c, place, wall_ms + RETRY_AFTER_MS);
        return err;
    }
    s->catching_up = t->catching_up;
    tick_set_timer(c, place);
    settle(c);
    return 0;
}

// ---- Queries ----------------------------------------------------------------------------------

static struct schedule_info schedule_info_of(const struct core *c, const struct schedule *s) {
    const struct stage *stage = c->stages[s->stage];
    const struct record_move *m = &s->move;
    return (struct schedule_info){ .name = s->name,
                                   .stage = bytes_of(stage->name, stage->name_size),
                                   .cron = s->when.cron,
                                   .every_ms = s->when.every_ms,
                                   .zone = s->when.zone,
                                   .missed = (enum missed)s->when.missed,
                                   .paused = m->paused,
                                   .next_at = m->next_ms ? (int64_t)m->next_ms : -1,
                                   .last_at = m->last_ms ? (int64_t)m->last_ms : -1,
                                   .next_ms = m->next_ms,
                                   .last_ms = m->last_ms,
                                   .pushed = m->pushed,
                                   .last_id = m->last_id,
                                   .key = s->key,
                                   .deadline_ms = s->when.deadline_ms,
                                   .attempts = s->attempts,
                                   .body_size = s->body_size,
                                   .shard = c->config.shard,
                                   .at = s->at,
                                   .meta_size = s->when.meta_size };
}

int core_schedule(struct core *c, mr_bytes stage, mr_bytes name, struct schedule_info *out) {
    uint32_t number = 0;
    int err = schedule_get(c, stage, name, &number);
    if (err == 0)
        *out = schedule_info_of(c, schedule_at(c, number));
    return err;
}

uint32_t core_schedule_places(const struct core *c) {
    return c->schedules.next_new;
}

int core_schedule_place(struct core *c, mr_bytes stage, mr_bytes name, uint32_t *out) {
    return schedule_get(c, stage, name, out);
}

bool core_schedule_at(const struct core *c, uint32_t place, mr_bytes *out_stage,
                      mr_bytes *out_name) {
    if (!place || place >= c->schedules.next_new || !schedule_at(c, place)->text)
        return false;
    const struct schedule *s = schedule_at(c, place);
    const struct stage *stage = c->stages[s->stage];
    *out_stage = bytes_of(stage->name, stage->name_size);
    *out_name = s->name;
    return true;
}

void core_schedule_look_at(struct core *c, uint32_t place, struct schedule_info *out) {
    c->steps++;
    *out = schedule_info_of(c, schedule_at(c, place));
}

// ---- Records ----------------------------------------------------------------------------------

int schedule_copy(struct core *c, uint32_t number, mr_bytes body) {
    struct schedule *s = schedule_at(c, number);
    struct record_about about;
    struct record r = record_of_schedule(c, s, RECORD_SCHEDULE, &about);
    r.copy = true;
    int err = out_begin(c, 1, RECORD_MAX);
    if (err < 0)
        return err;
    out_add(c, &r, body);
    if ((err = out_commit(c, ROOM_CLEAN)) < 0)
        return err;
    schedule_set_home(c, s, c->out.at[0], out_size(c, 0));
    return 0;
}

// Where a schedule stands: the next tick comes after the last one.
static int move_check(const struct record *r) {
    const struct record_move *m = &r->about->move;
    if (!r->stage || !r->name.size || r->name.size > SCHEDULE_NAME_MOST)
        return error_set(MR_ECORRUPT, "a schedule without a stage or a name");
    if (m->next_ms ? m->paused || m->next_ms <= m->last_ms : !m->paused)
        return error_set(MR_ECORRUPT, "a schedule whose next tick is not possible");
    return 0;
}

int schedule_check(const struct record *r, uint32_t body_size) {
    const struct record_schedule *s = &r->about->schedule;
    struct cron cron;
    int err = record_check_schedule(r);
    if (err == 0)
        err = move_check(r);
    if (err < 0)
        return err;
    if (s->every_ms ? s->every_ms < EVERY_LEAST_MS || s->cron.size : cron_parse(s->cron, &cron) < 0)
        return error_set(MR_ECORRUPT, "a schedule without instants");
    if (s->meta_size > body_size)
        return error_set(MR_ECORRUPT, "a schedule without its META");
    return 0;
}

int schedule_check_move(const struct core *c, const struct record *r) {
    uint32_t number = schedule_find(c, r->stage, r->name);
    int err = record_check_move(r);
    if (err == 0)
        err = move_check(r);
    if (err < 0 || !number)
        return err;
    const struct record_move *before = &schedule_at(c, number)->move, *m = &r->about->move;
    if (m->last_ms < before->last_ms || m->pushed < before->pushed)
        return error_set(MR_ECORRUPT, "a schedule goes back to an earlier tick");
    return 0;
}

int schedule_restore(struct core *c, const struct record *r, uint64_t at, uint32_t size,
                     uint32_t body_size) {
    struct stage *stage;
    uint32_t number = schedule_find(c, r->stage, r->name);
    struct schedule now = { .name = r->name,
                            .key = r->key,
                            .attempts = r->attempts,
                            .body_size = body_size - r->about->schedule.meta_size,
                            .when = r->about->schedule,
                            .move = r->about->move };
    int err = stage_get_number(c, r->stage, &stage);
    if (err == 0)
        err = schedule_reserve(c, r->maker);
    if (err == 0)
        err = schedule_own_texts(&now);
    if (err < 0)
        return err;
    if (!number)
        number = schedule_add(c, r->stage, r->name, r->maker);
    schedule_assign(c, number, &now);
    schedule_set_home(c, schedule_at(c, number), at, size);
    return 0;
}

// A schedule that is not known here stands in a copy further on, which has this.
void schedule_restore_move(struct core *c, const struct record *r) {
    uint32_t number = schedule_find(c, r->stage, r->name);
    if (number)
        schedule_at(c, number)->move = r->about->move;
}

int schedules_open(struct core *c) {
    int err = heap_reserve(&c->ticks, c->schedules.used);
    for (uint32_t i = 1; err == 0 && i < c->schedules.next_new; i++)
        if (schedule_at(c, i)->text)
            tick_set_timer(c, i);
    return err;
}
