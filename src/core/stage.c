// Stages: found by name, made when first named, woken, swept, dropped.
#include "core/group.h"
#include "core/link.h"
#include "core/maker.h"

#include "base/errors.h"
#include "base/histogram.h"
#include "base/mem.h"

#include <assert.h>

static bool is_name_byte(uint8_t b) {
    return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
           (b && strchr("._:/-", b));
}

int stage_name_check(mr_bytes name) {
    const uint8_t *p = name.data;
    if (!name.size || !p)
        return error_set(MR_EINVAL, "a stage needs a name of 1 to %d of A-Za-z0-9._:/-",
                         STAGE_NAME_MOST);
    if (name.size > STAGE_NAME_MOST)
        return error_set(MR_EINVAL, "a stage's name of %zu bytes is too long: %d at most",
                         name.size, STAGE_NAME_MOST);
    for (size_t i = 0; i < name.size; i++)
        if (!is_name_byte(p[i]))
            return error_set(MR_EINVAL,
                             "byte %zu (0x%02x) cannot be in a stage's name: A-Za-z0-9._:/- only",
                             i + 1, p[i]);
    return 0;
}

static bool stage_has_name(const void *owner, uint32_t number, const void *name) {
    const struct stage *s = ((const struct core *)owner)->stages[number];
    return bytes_equal(bytes_of(s->name, s->name_size), *(const mr_bytes *)name);
}

APART static uint32_t stage_look_up(const struct core *c, mr_bytes name) {
    return map_find(&c->stage_by_name, (uint32_t)bytes_hash(name, 0), stage_has_name, c, &name);
}

// Caches the latest result: most calls repeat it.
uint32_t stage_find(struct core *c, mr_bytes name) {
    if (!name.size || name.size > sizeof((struct stage *)0)->name)
        return 0;
    if (c->last_stage && stage_has_name(c, c->last_stage, &name))
        return c->last_stage;
    uint32_t number = stage_look_up(c, name);
    c->last_stage = number ? number : c->last_stage;
    return number;
}

static int stages_reserve(struct core *c, uint32_t number) {
    if (number > c->limits.max_stages)
        return error_set(MR_EFULL,
                         "%u stages are known, which is the limit: STAGE name REMOVE forgets one",
                         c->stage_count);
    if (number < c->stage_capacity)
        return 0;
    uint32_t capacity = c->stage_capacity ? c->stage_capacity * 2 : 16;
    while (capacity <= number)
        capacity *= 2;
    struct stage **stages = mem_resize(c->stages, capacity * sizeof *stages);
    if (!stages)
        return error_set(MR_ENOMEM, "no memory for a stage");
    memset(stages + c->stage_capacity, 0, (capacity - c->stage_capacity) * sizeof *stages);
    c->stages = stages;
    c->stage_capacity = capacity;
    return 0;
}

int stage_get_number(struct core *c, uint32_t number, struct stage **out) {
    if (!number)
        return error_set(MR_ECORRUPT, "a record names stage 0");
    int err = stages_reserve(c, number);
    if (err < 0)
        return err;
    if (!c->stages[number]) {
        struct stage *s = mem_alloc(sizeof *s);
        if (!s)
            return error_set(MR_ENOMEM, "no memory for a stage");
        s->number = number;
        s->policy = policy_default();
        list_init(&s->takers);
        list_init(&s->pushers);
        list_init(&s->of_starved);
        list_init(&s->edges_here);
        c->stages[number] = s;
        if (number > c->stage_count)
            c->stage_count = number;
    }
    *out = c->stages[number];
    return 0;
}

int stage_set_name(struct core *c, uint32_t number, mr_bytes name) {
    int err = map_reserve(&c->stage_by_name, 1);
    if (err < 0)
        return err;
    struct stage *s = c->stages[number];
    assert(!s->name_size && name.size && name.size <= sizeof s->name);
    memcpy(s->name, name.data, name.size);
    s->name_size = (uint8_t)name.size;
    map_put(&c->stage_by_name, (uint32_t)bytes_hash(name, 0), number);
    return 0;
}

// The number for a new stage: the lowest nameless one, so that the order in which numbers became
// free does not matter.
static uint32_t stage_free_number(struct core *c) {
    uint32_t *i = &c->least_nameless;
    for (*i += !*i; c->nameless_stages && *i <= c->stage_count; ++*i)
        if (!c->stages[*i]->name_size)
            return *i;
    return c->stage_count + 1;
}

static void stages_drop_idle(struct core *, uint32_t maker, enum made);

bool stage_lives_here(const struct core *c, const struct stage *s) {
    return route_of(c->config.shards, bytes_of(s->name, s->name_size)) == c->config.shard;
}

// How many stages one maker may have: its share of all, and no more than fit in the same part of
// the memory, so that they do not use up the room for the jobs of others.
static uint32_t stage_share(const struct core *c) {
    uint32_t share = maker_share(c, c->limits.max_stages);
    uint64_t fit = c->limits.max_memory / c->limits.maker_part / STAGE_BYTES;
    return c->limits.max_memory && fit < share ? (uint32_t)fit + 1 : share;
}

// Stages that count for the share of the current maker.
static uint32_t stages_of_maker(const struct core *c) {
    return maker_count(c, MADE_STAGE) + maker_count(c, MADE_ENTRY);
}

static int stage_check_counts(const struct core *c, uint32_t share) {
    if (stages_of_maker(c) >= share)
        return error_set(
            MR_EFULL,
            "this token has made %u stages%s, its share of %u: STAGE name REMOVE forgets one",
            share, maker_where(c), c->limits.max_stages);
    return quota_check(c, QUOTA_STAGES, 1);
}

// The peers are asked before the share is full, so that their answers are in time.
static int stage_check_share(struct core *c) {
    uint32_t share = stage_share(c);
    if (!c->maker || c->is_arrival)
        return 0;
    if (stages_of_maker(c) >= share / 2)
        maker_ask_peers(c, maker_find(c));
    if (stage_check_counts(c, share) == 0)
        return 0;
    stages_drop_idle(c, maker_find(c), MADE_STAGE);
    return stage_check_counts(c, share);
}

static int stage_check_known(const struct core *c) {
    if (!c->maker || maker_count(c, MADE_KNOWN) < stage_share(c))
        return 0;
    return error_set(MR_EFULL, "too many stages of other shards are known for this token");
}

enum made stage_made(const struct core *c, const struct stage *s) {
    return s->known_only ? MADE_KNOWN : stage_lives_here(c, s) ? MADE_STAGE : MADE_ENTRY;
}

APART static int stage_create(struct core *c, mr_bytes name, bool known_only, uint32_t *out) {
    int err = stage_name_check(name);
    if (err < 0)
        return err;
    struct stage *s;
    if ((err = known_only ? stage_check_known(c) : stage_check_share(c)) < 0)
        return err;
    uint32_t number = stage_free_number(c);
    if (number > c->limits.max_stages) {
        stages_drop_idle(c, 0, MADE_END);
        number = stage_free_number(c);
    }
    if ((err = map_reserve(&c->stage_by_name, 1)) < 0)
        return err;
    if ((err = maker_reserve(c, c->maker)) < 0)
        return err;
    uint32_t known = c->stage_count;
    if ((err = stage_get_number(c, number, &s)) < 0)
        return err;
    if ((err = stage_set_name(c, number, name)) < 0)
        return err;
    c->nameless_stages -= number <= known;
    s->known_only = known_only;
    s->maker = maker_add(c, c->maker, stage_made(c, s));
    *out = number;
    return 0;
}

static void stage_clear_maker(struct core *c, struct stage *s) {
    maker_remove(c, s->maker, stage_made(c, s));
    s->maker = 0;
}

// Makes a stage that was known only: from now on it counts as one of the current maker.
APART static int stage_make_known(struct core *c, struct stage *s) {
    s->known_only = false; // so that it is not dropped to make room for itself
    int err = stage_check_share(c);
    if (err == 0)
        err = maker_reserve(c, c->maker);
    s->known_only = true;
    if (err < 0)
        return err;
    stage_clear_maker(c, s);
    s->known_only = false;
    s->maker = maker_add(c, c->maker, stage_made(c, s));
    return 0;
}

int stage_get(struct core *c, mr_bytes name, uint32_t *out) {
    uint32_t number = stage_find(c, name);
    if (!number)
        return stage_create(c, name, false, out);
    int err = c->stages[number]->known_only ? stage_make_known(c, c->stages[number]) : 0;
    if (err == 0)
        *out = number;
    return err;
}

int stage_know(struct core *c, mr_bytes name, uint32_t *out) {
    uint32_t number = stage_find(c, name);
    if (!number)
        return stage_create(c, name, true, out);
    *out = number;
    return 0;
}

int stage_get_if_room(struct core *c, mr_bytes name, uint32_t *out) {
    uint32_t number = stage_find(c, name);
    int err = number && !c->stages[number]->known_only ? 0 : memory_check(c, 0);
    return err < 0 ? err : stage_get(c, name, out);
}

uint32_t stage_set_next(const struct stage_set *set, uint32_t from, uint32_t last) {
    for (uint32_t number = from; number <= last; number = (number | 63) + 1) {
        uint64_t bits = set->bits[number / 64] >> number % 64;
        if (!bits)
            continue;
        number += (uint32_t)__builtin_ctzll(bits);
        return number <= last ? number : 0;
    }
    return 0;
}

static bool stage_is_used(const struct stage *s) {
    return s->recorded || s->granted_rooms || s->sources || !list_empty(&s->takers) ||
           !list_empty(&s->pushers);
}

static bool stage_is_reported(const struct stage *s) {
    return s->edge_count || !list_empty(&s->edges_here) || s->over_at_peer || s->mark_at_peer;
}

// Makes the number free for another stage.
static void stage_clear_name(struct core *c, struct stage *s) {
    mr_bytes name = bytes_of(s->name, s->name_size);
    map_remove(&c->stage_by_name, (uint32_t)bytes_hash(name, 0), s->number);
    stage_clear_maker(c, s);
    s->name_size = 0;
    s->known_only = false;
    c->nameless_stages++;
    c->least_nameless = s->number < c->least_nameless ? s->number : c->least_nameless;
    c->last_stage = 0;
}

void stage_forget_unused(struct core *c, mr_bytes name) {
    uint32_t number = stage_find(c, name);
    struct stage *s = number ? c->stages[number] : NULL;
    if (!s || stage_is_used(s))
        return;
    if (!stage_is_reported(s)) {
        stage_clear_name(c, s);
    } else if (!s->known_only) {
        stage_clear_maker(c, s);
        s->known_only = true;
    }
}

// ---- Removing ---------------------------------------------------------------------------------

const char *stage_what_is_left(const struct core *c, const struct stage *s) {
    uint64_t unended = 0;
    for (int status = JOB_DELAYED; status <= JOB_RUNNING; status++)
        unended += s->by_status[status];
    (void)c;
    return unended || s->leases     ? "jobs that have not ended"
           : s->by_status[JOB_DEAD] ? "dead jobs (RETRY or DROP them)"
           : s->ended.count         ? "ended jobs and results (they go with its retention)"
           : s->first_spent         ? "once names (they go with its dedupe-window)"
           : s->states.count        ? "states of channels"
           : s->paused_keys         ? "paused keys (RESUME … KEY)"
           : s->sources             ? "epics or sources (EPIC … DROP)"
           : s->schedules           ? "schedules (SCHEDULE … DROP)"
           : s->thens               ? "epics whose THEN will push to it (EPIC … DROP)"
           : s->outboxed || s->over_at_peer || s->mark_at_peer ? "emits that are on their way to it"
           : !list_empty(&s->takers)                           ? "takes that wait"
           : !list_empty(&s->pushers) || s->granted_rooms      ? "pushes that wait for room"
                                                               : NULL;
}

// Resets a stage; the struct stays, for the next stage with its number.
static void stage_clear(struct core *c, struct stage *s) {
    channels_forget_idle(c, s);
    groups_end(c, s);
    stage_drop_edges(c, s);
    home_remove(c, s->at, s->size);
    if (s->name_size)
        stage_clear_name(c, s);
    mem_free(s->waits);
    mem_free(s->runs);
    struct stage kept = *s;
    memset(s, 0, sizeof *s);
    s->number = kept.number;
    s->policy = policy_default();
    s->dirty = kept.dirty;
    s->next_dirty = kept.next_dirty;
    s->serve_at_ms = kept.serve_at_ms;
    s->group_era = kept.group_era;
    list_init(&s->takers);
    list_init(&s->pushers);
    list_init(&s->of_starved); // without pushers it is not starved
    list_init(&s->edges_here);
}

// Replay sees OUTBOX records of emits to this stage before this record; so acknowledgements are
// recorded first.
static int stage_write_drop(struct core *c, const struct stage *s) {
    struct record r = { .kind = RECORD_STAGE_DROP, .time_ms = c->now_ms, .stage = s->number };
    int err = links_record_acked(c);
    return err < 0 ? err : out_write(c, &r, ROOM_COMMIT);
}

int stage_drop(struct core *c, struct stage *s) {
    int err = stage_notify_forgotten(c, s);
    if (err == 0 && s->recorded)
        err = stage_write_drop(c, s);
    if (err == 0)
        stage_clear(c, s);
    else
        stage_update_mark(c, s); // sends its mark to the peers again
    return err;
}

static bool stage_is_idle(const struct core *c, const struct stage *s) {
    struct policy plain = policy_default();
    return (s->recorded || s->known_only) && !s->paused && !s->draining &&
           !stage_what_is_left(c, s) && policy_equal(&s->policy, &plain);
}

// Whether it is the entry of a stage of another shard that counts for its maker: see maker.c.
static bool stage_is_counted_entry(const struct core *c, const struct stage *s) {
    return s->maker && !s->known_only && !stage_lives_here(c, s);
}

// If the record cannot be written, the stage stays until room is needed.
void stage_drop_if_idle(struct core *c, struct stage *s) {
    if (c->replaying || !stage_is_idle(c, s))
        return;
    if (stage_is_counted_entry(c, s))
        maker_ask_peers(c, s->maker); // its token may be gone and ask no more
    else
        (void)stage_drop(c, s);
}

enum { DROPPED_AT_ONCE = 16, STEPS_DROPPED = 20 }; // stages that make room; cost of one

// Makes room by dropping some stages that are empty and have no settings, which that maker has made
// or, if it is 0, any. A search that finds too few is not repeated in the same instant.
static void stages_drop_idle(struct core *c, uint32_t maker, enum made made) {
    uint32_t dropped = 0, looked = 0;
    if (c->replaying || c->stages_pinned || c->stages_searched_ms == c->now_ms)
        return;
    for (; looked < c->stage_count && dropped < DROPPED_AT_ONCE; looked++) {
        struct stage *s = c->stages[c->stages_searched++ % c->stage_count + 1];
        if (maker && (s->maker != maker || s->known_only != (made == MADE_KNOWN)))
            continue;
        stage_drop_if_idle(c, s);
        dropped += !s->name_size;
    }
    c->steps += looked + dropped * STEPS_DROPPED;
    if (looked == c->stage_count)
        c->stages_searched_ms = c->now_ms;
}

void stages_make_room_to_know(struct core *c) {
    if (c->maker && maker_count(c, MADE_KNOWN) + 2 > stage_share(c))
        stages_drop_idle(c, maker_find(c), MADE_KNOWN);
}

bool core_share_left(struct core *c, uint64_t maker) {
    uint64_t before = c->maker;
    c->maker = maker;
    bool left = stages_of_maker(c) < stage_share(c);
    if (!left)
        stages_drop_idle(c, maker_find(c), MADE_STAGE);
    left = stages_of_maker(c) < stage_share(c);
    c->maker = before;
    return left;
}

// If a record cannot be written, the entry stays until the next answer.
void core_share_forget(struct core *c, uint32_t shard, uint64_t maker, uint64_t upto) {
    uint32_t index = maker_of_name(c, maker), dropped = 0;
    for (uint32_t i = 1; index && i <= c->stage_count; i++) {
        struct stage *s = c->stages[i];
        if (s->maker != index || s->known_only || s->last_emit > upto || !stage_is_idle(c, s) ||
            route_of(c->config.shards, bytes_of(s->name, s->name_size)) != shard)
            continue;
        dropped += stage_drop(c, s) == 0;
    }
    c->steps += c->stage_count + dropped * STEPS_DROPPED;
}

int core_stage_remove(struct core *c, mr_bytes name) {
    uint32_t number = stage_find(c, name);
    if (!number)
        return error_set(MR_EGONE, "no stage '%.*s' is known",
                         (int)(name.size < STAGE_NAME_MOST ? name.size : STAGE_NAME_MOST),
                         name.size ? (const char *)name.data : "");
    struct stage *s = c->stages[number];
    const char *left = stage_what_is_left(c, s);
    if (left)
        return error_set(MR_EINVAL, "stage %.*s is not empty: it has %s", s->name_size, s->name,
                         left);
    return stage_drop(c, s);
}

// Replay may have restored ended jobs, names and sources that were forgotten without a record: they
// go with their stage.
void stage_replay_drop(struct core *c, uint32_t number) {
    struct stage *s = number <= c->stage_count ? c->stages[number] : NULL;
    if (!s)
        return;
    while (s->ended.head)
        job_forget(c, s->ended.head);
    onces_forget(c, s);
    leases_forget(c, number);
    if (s->outboxed)
        links_forget_acked(c);
    stage_forget_sources(c, number);
    stage_clear(c, s);
}

// ---- Waking -----------------------------------------------------------------------------------

APART void stage_wake_waiting(struct core *c, struct stage *s) {
    if (s->dirty || c->replaying)
        return;
    s->dirty = true;
    s->next_dirty = 0;
    if (c->last_dirty)
        c->stages[c->last_dirty]->next_dirty = s->number;
    else
        c->first_dirty = s->number;
    c->last_dirty = s->number;
}

// ---- Forgetting -------------------------------------------------------------------------------

static bool ended_is_due(const struct core *c, const struct stage *s) {
    if (!s->ended.head)
        return false;
    return s->ended.count > s->policy.retention_count ||
           job_at(c, s->ended.head)->time_ms + s->policy.retention_ms <= c->now_ms;
}

// Sets the sweep timer, unless an earlier one is set.
static void sweep_at(struct core *c, struct stage *s, uint64_t at_ms) {
    if (s->sweep_at_ms && s->sweep_at_ms <= at_ms)
        return;
    if (heap_reserve(&c->timers, 1) < 0)
        return; // the next end tries again
    s->sweep_at_ms = at_ms;
    heap_put(&c->timers, at_ms, timer_value(TIMER_SWEEP, s->number));
}

bool stage_forget_early(struct core *c, struct stage *s) {
    if (!s->ended.head || once_spend(c, s, job_at(c, s->ended.head)) < 0)
        return false;
    job_forget(c, s->ended.head);
    return true;
}

// Returns how many.
static uint32_t sweep_ended(struct core *c, struct stage *s, uint32_t most) {
    uint32_t count = 0;
    for (; count < most && ended_is_due(c, s); count++) {
        struct job *j = job_at(c, s->ended.head);
        if (job_has_attrs(j) && once_spend(c, s, j) < 0) { // no memory to keep the name
            sweep_at(c, s, c->now_ms + RETRY_AFTER_MS);
            break;
        }
        job_forget(c, s->ended.head);
    }
    return count;
}

// A state that a running job has read stays until the next sweep.
APART static uint32_t sweep_states(struct core *c, struct stage *s, uint32_t most) {
    uint32_t count = 0;
    for (uint32_t n = s->states.head, next; n && count < most; n = next, count++) {
        const struct state *st = slab_at(&c->states, n);
        next = st->link.next;
        if (st->time_ms + s->policy.state_ttl_ms > c->now_ms)
            break;
        if (chan_state(c, st->channel) == CHANNEL_IN_PROGRESS)
            continue;
        if (state_expire(c, st->channel) < 0) { // no room or no memory
            sweep_at(c, s, c->now_ms + RETRY_AFTER_MS);
            break;
        }
    }
    return count;
}

uint32_t stage_sweep(struct core *c, struct stage *s, uint32_t most) {
    uint32_t count = sweep_ended(c, s, most);
    if (s->first_spent)
        count += once_sweep(c, s, most - count);
    if (s->policy.state_ttl_ms)
        count += sweep_states(c, s, most - count);
    if (count == most)
        sweep_at(c, s, c->now_ms + 1);
    return count;
}

void stage_forget_ended(struct core *c, struct stage *s) {
    enum { SOME = 4 };
    if (sweep_ended(c, s, SOME) == SOME)
        sweep_at(c, s, c->now_ms + 1);
    if (s->first_spent)
        (void)once_sweep(c, s, SOME);
}

static uint64_t earlier_ms(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

// A new end cannot make the sweep earlier: if a timer is set, only names and states need a check.
void stage_plan_sweep(struct core *c, struct stage *s) {
    if (s->sweep_at_ms && !s->first_spent && !s->states.head)
        return;
    uint64_t at = UINT64_MAX;
    if (s->ended.head)
        at = earlier_ms(at, job_at(c, s->ended.head)->time_ms + s->policy.retention_ms);
    if (s->first_spent) {
        struct spent *sp = slab_at(&c->spents, s->first_spent);
        at = earlier_ms(at, sp->ended_ms + s->policy.dedupe_window_ms);
    }
    if (s->states.head && s->policy.state_ttl_ms) {
        struct state *st = slab_at(&c->states, s->states.head);
        at = earlier_ms(at, st->time_ms + s->policy.state_ttl_ms);
    }
    if (at == UINT64_MAX)
        return;
    sweep_at(c, s, at > c->now_ms ? at : c->now_ms + 1000); // overdue: retry in a second
}

int stage_record(struct core *c, struct stage *s, enum room room) {
    int err = out_begin(c, 1, s->name_size);
    if (err < 0)
        return err;
    struct record_about about;
    struct record r = record_of_stage(c, s, &about);
    out_add(c, &r, (mr_bytes){ 0 });
    if ((err = out_commit(c, room)) < 0)
        return err;
    stage_set_home(c, s, c->out.at[0], out_size(c, 0));
    return 0;
}

void stage_set_home(struct core *c, struct stage *s, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, s->at, s->size);
    s->at = at;
    s->size = size;
    s->recorded = true;
}
