// Groups take turns: where a stage has `group on`, ready is a ring of groups, and each group has a
// line of its ready channels.
//
//     turns ──► group ──► group ──► …     may start, in the order of their turns
//                 └──► ready ──► channel ──► channel …
//     held  ──► group ──► …               have ready channels, but their limits hold them
//
// The first channel of the first group starts a block, and the group goes to the tail. So a group
// waits for one block of each other group at most, however many jobs these have. The head of the
// stage's ready line is a copy of that first channel, and its count is that of all groups, so that
// code that starts jobs need not know groups.
//
// A key with nothing behind its slash ("acme/") names no channel: each of its jobs is its own
// channel, as a job without a key is, and its owner is the group. The group of a channel stands
// behind its key, so that neither jobs nor channels are larger for having one.
//
// A group that is held leaves `turns` with its start, and comes back when a job is answered or its
// timer fires. When the limits are changed, all that are held go back to `turns` at once, and those
// at its front that may not start are passed over one by one: no command pays for all groups.
//
// A group is forgotten when nothing uses it. After a start at group-rate it has a timer until the
// rate has forgotten that start, and is kept so long: emptying a group gives it no more starts.
// When a stage ends its groups, those that wait for their timers are not visited: they are of an
// earlier era of the stage, so that no key finds them, and their timers forget them.
// Neither turns nor starts are recorded: after a restart groups begin in the order of their first
// channels, with fresh rates.
#include "core/group.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <assert.h>

// ---- Keys -------------------------------------------------------------------------------------

mr_bytes group_of_key(mr_bytes key) {
    const char *slash = key.size ? memchr(key.data, '/', key.size) : NULL;
    return slash ? bytes_of(key.data, (size_t)(slash - (const char *)key.data)) : key;
}

bool key_is_unordered(mr_bytes key) {
    return key.size && group_of_key(key).size == key.size - 1;
}

mr_bytes group_name(const struct core *c, const struct key_group *g) {
    mr_bytes key = pool_at(&c->keys, g->key);
    return bytes_of(key.data, key.size - 1);
}

uint32_t group_add_key(struct core *c, uint32_t stage, mr_bytes key, int *out_err) {
    uint8_t copy[KEY_MOST + sizeof(uint32_t)];
    uint32_t group, number;
    assert(key.size <= KEY_MOST);
    int err = group_use(c, stage, key, &group);
    if (err < 0) {
        *out_err = err;
        return 0;
    }
    memcpy(copy, key.data, key.size);
    memcpy(copy + key.size, &group, sizeof group);
    number = pool_add(&c->keys, bytes_of(copy, key.size + sizeof group));
    if (number)
        return number;
    group_release(c, group);
    *out_err = error_set(MR_ENOMEM, "no memory for a channel");
    return 0;
}

// ---- Groups by name ---------------------------------------------------------------------------

struct group_key {
    uint32_t stage;
    mr_bytes name;
};

static uint32_t group_hash(const struct group_key *k) {
    return (uint32_t)bytes_hash(k->name, k->stage);
}

// Its stage has ended all groups that it had; no key and no list leads to this one.
static bool group_has_ended(const struct core *c, const struct key_group *g) {
    return g->era != c->stages[g->stage]->group_era;
}

static bool group_has_key(const void *owner, uint32_t number, const void *key) {
    const struct core *c = owner;
    const struct key_group *g = group_at(c, number);
    const struct group_key *k = key;
    return g->stage == k->stage && !group_has_ended(c, g) && bytes_equal(group_name(c, g), k->name);
}

// Unused channels that are cached keep groups, too.
static int group_reserve(struct core *c, struct stage *s) {
    if (c->groups.used >= c->groups.limit)
        channels_forget_idle(c, s);
    if (c->groups.used >= c->groups.limit)
        return error_set(MR_EFULL,
                         "%u groups are known, which is the limit: one is forgotten when its jobs "
                         "have ended and its keys keep no state",
                         c->groups.used);
    int err = slab_reserve(&c->groups, 1);
    return err < 0 ? err : map_reserve(&c->by_group, 1);
}

static int group_make(struct core *c, const struct group_key *k, uint32_t *out) {
    uint8_t copy[KEY_MOST + 1];
    int err = group_reserve(c, c->stages[k->stage]);
    if (err < 0)
        return err;
    assert(k->name.size <= KEY_MOST);
    if (k->name.size)
        memcpy(copy, k->name.data, k->name.size);
    copy[k->name.size] = '/';
    uint32_t name = pool_add(&c->keys, bytes_of(copy, k->name.size + 1));
    if (!name)
        return error_set(MR_ENOMEM, "no memory for a group");
    uint32_t number = slab_take(&c->groups);
    struct key_group *g = group_at(c, number);
    g->number = number;
    g->stage = k->stage;
    g->era = c->stages[k->stage]->group_era;
    g->key = name;
    map_put(&c->by_group, group_hash(k), number);
    *out = number;
    return 0;
}

static void group_forget(struct core *c, struct key_group *g) {
    struct stage *s = c->stages[g->stage];
    struct group_key k = { g->stage, group_name(c, g) };
    map_remove(&c->by_group, group_hash(&k), g->number);
    pool_remove(&c->keys, g->key);
    list_remove(&g->of_ring);
    if (s->groups && s->groups->keyless == g->number)
        s->groups->keyless = 0;
    g->key = 0;
    g->timer_ms = 0;
    slab_give(&c->groups, g->number);
}

int group_use(struct core *c, uint32_t stage, mr_bytes key, uint32_t *out) {
    struct group_key k = { stage, group_of_key(key) };
    uint32_t number = map_find(&c->by_group, group_hash(&k), group_has_key, c, &k);
    int err = number ? 0 : group_make(c, &k, &number);
    if (err < 0)
        return err;
    group_at(c, number)->users++;
    if (!k.name.size && c->stages[stage]->groups)
        c->stages[stage]->groups->keyless = number;
    *out = number;
    return 0;
}

void group_release(struct core *c, uint32_t number) {
    struct key_group *g = group_at(c, number);
    assert(g->users);
    if (!--g->users && !g->timer_ms)
        group_forget(c, g);
}

static uint32_t group_of_job(const struct stage *s, const struct job *j) {
    return j->owner & OWNER_GROUPED ? j->owner & ~OWNER_GROUPED : s->groups->keyless;
}

struct key_group *group_of(const struct core *c, const struct stage *s, chan ref) {
    if (!(ref & CHAN_KEYED))
        return group_at(c, group_of_job(s, job_at(c, ref)));
    struct stage_groups *gs = s->groups;
    if (gs->recent != ref) {
        gs->recent = ref;
        gs->recent_group = channel_group(c, channel_at(c, ref));
    }
    return group_at(c, gs->recent_group);
}

void group_leave(struct core *c, const struct stage *s, const struct job *j) {
    if (!job_is_keyed(j))
        group_release(c, group_of_job(s, j));
}

// ---- Limits -----------------------------------------------------------------------------------

// A change of group-rate begins anew for all groups.
static uint64_t group_next_us(const struct stage *s, const struct key_group *g) {
    return s->policy.group_rate_per_h && g->rates == s->groups->rates ? g->rate_next_us : 0;
}

enum hold group_hold(const struct core *c, const struct stage *s, const struct key_group *g) {
    if (s->policy.group_concurrency &&
        g->leased >= s->policy.group_concurrency + MUTANT(group_limit_off_by_one))
        return HOLD_GROUP_LIMIT;
    return group_next_us(s, g) > c->now_ms * 1000 ? HOLD_GROUP_RATE : HOLD_NONE;
}

// When the rate allows the next start; after that, when it has forgotten the last one. 0: it has.
static uint64_t group_timer_at(const struct core *c, const struct stage *s,
                               const struct key_group *g) {
    uint64_t next_us = group_next_us(s, g);
    uint64_t starts_ms = (next_us + 999) / 1000;
    uint64_t forgets_ms = (next_us + PACE_SLACK_US + 999) / 1000;
    if (!next_us || forgets_ms <= c->now_ms)
        return 0;
    return starts_ms > c->now_ms ? starts_ms : forgets_ms;
}

// There is room for a timer. An earlier one is set again when it fires.
static void group_set_timer(struct core *c, const struct stage *s, struct key_group *g) {
    uint64_t at_ms = group_timer_at(c, s, g);
    if (!at_ms || (g->timer_ms && g->timer_ms <= at_ms))
        return;
    if (g->timer_ms)
        timer_forget(c);
    g->timer_ms = at_ms;
    heap_put(&c->timers, at_ms, timer_value(TIMER_SERVE, SERVE_GROUP | g->number));
}

// ---- Turns ------------------------------------------------------------------------------------

static bool group_is_held(const struct stage *s, const struct key_group *g) {
    return !list_empty(&g->of_ring) && g->held == s->groups->changes;
}

static void group_enlist(struct stage *s, struct key_group *g, bool held) {
    list_append(held ? &s->groups->held : &s->groups->turns, &g->of_ring);
    g->held = held ? s->groups->changes : 0;
}

enum { PASSED_AT_ONCE = 1000 }; // groups

void groups_refresh(struct core *c, struct stage *s) {
    struct list *first = list_first(&s->groups->turns);
    struct key_group *g = NULL;
    for (uint32_t i = 0; first; i++, first = list_first(&s->groups->turns)) {
        g = list_entry(first, struct key_group, of_ring);
        if (group_hold(c, s, g) == HOLD_NONE)
            break;
        if (i == PASSED_AT_ONCE) {
            stage_serve_later(c, s, c->now_ms + 1);
            first = NULL;
            break;
        }
        list_remove(&g->of_ring);
        group_enlist(s, g, true);
        c->steps++;
    }
    s->ready.head = first ? g->ready.head : 0;
}

// Puts the group where it belongs: to the tail, if that is not the list it is in.
static void group_place(struct core *c, struct stage *s, struct key_group *g) {
    bool may_start = group_hold(c, s, g) == HOLD_NONE, listed = !list_empty(&g->of_ring);
    if (listed && (!g->ready.count || group_is_held(s, g) == may_start)) {
        list_remove(&g->of_ring);
        listed = false;
    }
    if (!listed && g->ready.count)
        group_enlist(s, g, !may_start);
    groups_refresh(c, s);
}

void group_add_ready(struct core *c, struct stage *s, struct key_group *g, chan ref,
                     enum place place) {
    job_line_add(c, &g->ready, ref, place);
    s->ready.count++;
    group_place(c, s, g);
    stage_wake(c, s);
}

void group_remove_ready(struct core *c, struct stage *s, struct key_group *g, chan ref,
                        bool starts) {
    job_line_remove(c, &g->ready, ref);
    s->ready.count--;
    if (!starts)
        group_place(c, s, g);
}

void group_count_jobs(struct core *c, struct stage *s, struct key_group *g, int32_t more) {
    uint32_t before = g->jobs;
    g->jobs += (uint32_t)more;
    s->groups->with_jobs += (g->jobs != 0) - (before != 0);
    depths_move(c, &s->groups->by_jobs, g->number, before, g->jobs);
}

uint32_t group_start_most(struct core *c, const struct stage *s, uint32_t most) {
    uint64_t limit = s->policy.group_concurrency;
    uint64_t left = limit - group_whose_turn_it_is(s)->leased;
    if (s->policy.group_rate_per_h && heap_reserve(&c->timers, 2) < 0) // one is for the lease
        return 0;
    return limit && left < most ? (uint32_t)left : most;
}

void group_started(struct core *c, struct stage *s, struct lease *l) {
    struct key_group *g = group_whose_turn_it_is(s);
    l->group = g->number;
    g->users++;
    g->leased += l->count;
    if (s->policy.group_rate_per_h) {
        g->rate_next_us = group_next_us(s, g);
        g->rates = s->groups->rates;
        pace_spend(&g->rate_next_us, s->policy.group_rate_per_h, c->now_ms, l->count);
        group_set_timer(c, s, g);
    }
    if (!MUTANT(group_keeps_its_turn))
        list_remove(&g->of_ring);
    group_place(c, s, g);
}

void group_not_started(struct core *c, const struct lease *l) {
    const struct stage *s = c->stages[l->stage];
    struct key_group *g = l->group ? group_at(c, l->group) : NULL;
    if (g && group_next_us(s, g))
        pace_return(&g->rate_next_us, s->policy.group_rate_per_h, l->count);
}

// Places the group if it was held and may start now.
static void group_wake(struct core *c, struct stage *s, struct key_group *g) {
    if (!group_is_held(s, g) || group_hold(c, s, g) != HOLD_NONE)
        return;
    group_place(c, s, g);
    stage_wake(c, s);
}

void group_answered(struct core *c, const struct lease *l, uint64_t jobs) {
    struct key_group *g = group_at(c, l->group);
    g->leased -= (uint32_t)jobs;
    if (!MUTANT(group_not_woken))
        group_wake(c, c->stages[l->stage], g);
}

// The entry that was popped leaves room for the next timer.
void group_fires(struct core *c, uint32_t number) {
    struct key_group *g = group_at(c, number);
    struct stage *s = c->stages[g->stage];
    g->timer_ms = 0;
    if (!group_has_ended(c, g))
        group_set_timer(c, s, g);
    if (!g->users && !g->timer_ms)
        group_forget(c, g);
    else
        group_wake(c, s, g);
}

// ---- Walking ----------------------------------------------------------------------------------

static chan first_ready_from(const struct stage_groups *gs, const struct list *node) {
    if (node == &gs->turns)
        node = gs->held.next;
    return node == &gs->held ? 0 : list_entry(node, struct key_group, of_ring)->ready.head;
}

chan stage_first_ready(const struct stage *s) {
    return s->groups ? first_ready_from(s->groups, s->groups->turns.next) : s->ready.head;
}

chan stage_next_ready(const struct core *c, const struct stage *s, chan ref) {
    chan next = link_of(c, ref)->next;
    if (next || !s->groups)
        return next;
    return first_ready_from(s->groups, group_of(c, s, ref)->of_ring.next);
}

// ---- Policies ---------------------------------------------------------------------------------

static int groups_begin(struct core *c, struct stage *s) {
    struct stage_groups *gs = mem_alloc(sizeof *gs);
    if (!gs)
        return error_set(MR_ENOMEM, "no memory for groups");
    list_init(&gs->turns);
    list_init(&gs->held);
    gs->changes = 1;
    s->groups = gs;
    c->grouped_stages++;
    return 0;
}

void groups_end(struct core *c, struct stage *s) {
    if (!s->groups)
        return;
    channels_forget_idle(c, s);
    assert(list_empty(&s->groups->turns) && list_empty(&s->groups->held));
    mem_free(s->groups);
    s->groups = NULL;
    s->group_era++;
    s->ready = (struct job_line){ 0 };
    c->grouped_stages--;
}

int groups_prepare_change(struct core *c, struct stage *s) {
    uint64_t jobs = s->leases;
    for (int status = JOB_DELAYED; status <= JOB_RUNNING; status++)
        jobs += s->by_status[status];
    const char *left = jobs ? "jobs: DRAIN it, and set group when they have ended"
                       : s->by_status[JOB_DEAD] ? "dead jobs: RETRY or DROP them first"
                       : s->paused_keys         ? "paused keys: RESUME them first"
                       : s->states.count
                           ? "states: set state-ttl, and group when they are forgotten"
                           : NULL;
    if (left)
        return error_set(MR_EINVAL, "group cannot change while stage %.*s has %s", s->name_size,
                         s->name, left);
    channels_forget_idle(c, s); // they were made without a group, or with one
    return s->policy.group ? groups_begin(c, s) : 0;
}

void groups_policy_changed(struct core *c, struct stage *s, const struct policy *before) {
    bool rate = before->group_rate_per_h != s->policy.group_rate_per_h;
    bool limits = rate || before->group_concurrency != s->policy.group_concurrency;
    if (!s->policy.group)
        groups_end(c, s);
    if (!s->groups || !limits)
        return;
    s->groups->rates += rate;
    s->groups->changes++; // so that none is held
    list_append_all(&s->groups->turns, &s->groups->held);
    groups_refresh(c, s);
}

// ---- Opening ----------------------------------------------------------------------------------

static bool has_stage_with_groups(const struct core *c) {
    for (uint32_t i = 1; i <= c->stage_count; i++)
        if (c->stages[i]->policy.group)
            return true;
    return false;
}

static bool channel_is_unordered(const struct core *c, const struct channel *ch) {
    return c->stages[ch->stage]->policy.group && key_is_unordered(channel_key(c, ch));
}

static int open_unordered_job(struct core *c, uint32_t number) {
    const struct channel *ch = channel_at(c, job_at(c, number)->owner);
    uint32_t group;
    int err = group_use(c, ch->stage, channel_key(c, ch), &group);
    if (err == 0)
        replay_set_owner(c, number, OWNER_GROUPED | group);
    return err;
}

int groups_open_jobs(struct core *c) {
    if (!has_stage_with_groups(c))
        return 0;
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < c->jobs.next_new; i++)
        if (job_is_keyed(job_at(c, i)) &&
            channel_is_unordered(c, channel_at(c, job_at(c, i)->owner)))
            err = open_unordered_job(c, i);
    for (uint32_t i = 1; i <= c->stage_count; i++)
        if (c->stages[i]->policy.group)
            channels_forget_idle(c, c->stages[i]);
    for (uint32_t i = 1; err == 0 && i < c->channels.next_new; i++)
        if (channel_at(c, i)->key && channel_is_unordered(c, channel_at(c, i)))
            err = error_set(MR_ECORRUPT,
                            "stage %u has groups, and a key that names no channel has "
                            "a state or a lease",
                            channel_at(c, i)->stage);
    return err;
}

static int groups_open_stages(struct core *c) {
    int err = 0;
    for (uint32_t i = 1; err == 0 && i <= c->stage_count; i++)
        if (c->stages[i]->policy.group)
            err = groups_begin(c, c->stages[i]);
    return err;
}

static int groups_open_channel(struct core *c, uint32_t number) {
    struct channel *ch = channel_at(c, number);
    struct stage *s = c->stages[ch->stage];
    int err = 0;
    uint32_t key = group_add_key(c, ch->stage, channel_key(c, ch), &err);
    if (!key)
        return err;
    pool_remove(&c->keys, ch->key);
    ch->key = key;
    ch->grouped = true;
    group_count_jobs(c, s, group_of(c, s, number | CHAN_KEYED), (int32_t)ch->jobs.count);
    return 0;
}

// A job with OWNER_GROUPED uses its group already.
static int groups_open_job(struct core *c, uint32_t number) {
    const struct job *j = job_at(c, number);
    struct stage *s = stage_of(c, j);
    bool ended = j->status >= JOB_DONE && j->status != JOB_DEAD;
    if (!s->groups || ended || job_is_keyed(j))
        return 0;
    uint32_t group;
    int err = j->owner & OWNER_GROUPED ? 0 : group_use(c, s->number, (mr_bytes){ 0 }, &group);
    if (err == 0 && chan_state(c, number) != CHANNEL_DORMANT)
        group_count_jobs(c, s, group_of(c, s, number), 1);
    return err;
}

static void groups_open_lease(struct core *c, struct lease *l) {
    struct stage *s = l->count ? c->stages[l->stage] : NULL;
    if (!s || !s->groups)
        return;
    struct key_group *g = group_of(c, s, l->channel);
    l->group = g->number;
    g->users++;
    g->leased += l->count;
}

static void groups_open_ready(struct core *c, struct stage *s) {
    chan ref = s->ready.head, next;
    s->ready = (struct job_line){ 0 };
    for (; ref; ref = next) {
        next = link_of(c, ref)->next;
        *link_of(c, ref) = (struct line_link){ 0 };
        group_add_ready(c, s, group_of(c, s, ref), ref, AT_TAIL);
    }
}

int groups_open(struct core *c) {
    if (!has_stage_with_groups(c))
        return 0;
    int err = groups_open_stages(c);
    for (uint32_t i = 1; err == 0 && i < c->channels.next_new; i++)
        if (channel_at(c, i)->key && c->stages[channel_at(c, i)->stage]->groups)
            err = groups_open_channel(c, i);
    for (uint32_t i = 1; err == 0 && i < c->jobs.next_new; i++)
        if (job_at(c, i)->owner)
            err = groups_open_job(c, i);
    for (uint32_t i = 1; err == 0 && i < c->leases.next_new; i++)
        groups_open_lease(c, lease_at(c, i));
    for (uint32_t i = 1; err == 0 && i <= c->stage_count; i++)
        if (c->stages[i]->groups)
            groups_open_ready(c, c->stages[i]);
    return err;
}
