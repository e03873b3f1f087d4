// Checks every invariant of the core by a full scan. For tests.
#include "core/epic.h"
#include "core/group.h"
#include "core/link.h"
#include "core/maker.h"

#include "base/errors.h"

#include <inttypes.h>

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return error_set(MR_ECORRUPT, __VA_ARGS__);                                            \
    } while (0)

struct tally {
    uint64_t ready, parked, jobs, live_bytes;
    uint64_t made_jobs, made_bytes;   // that count for a maker
    uint64_t group_users, group_jobs; // as channels, jobs and leases have them
};

static int check_line(const struct core *c, const struct job_line *l, const char *what) {
    uint32_t count = 0, last = 0;
    for (uint32_t ref = l->head; ref; ref = link_of(c, ref)->next) {
        EXPECT(link_of(c, ref)->prev == last, "a %s line is broken", what);
        EXPECT(++count <= l->count, "a %s line has a repeat", what);
        last = ref;
    }
    EXPECT(count == l->count && last == l->tail, "a %s line is miscounted", what);
    return 0;
}

static int check_queue(const struct core *c, const struct channel *ch) {
    const struct job *before = NULL;
    for (uint32_t n = ch->jobs.head; n; n = job_at(c, n)->link.next) {
        const struct job *j = job_at(c, n);
        EXPECT(j->status == JOB_WAITING || j->status == JOB_RUNNING,
               "job %" PRIu64 " is %s but in a channel", j->id,
               job_status_name((enum job_status)j->status));
        EXPECT(!before || before->position < j->position ||
                   (before->position == j->position && before->id < j->id),
               "job %" PRIu64 " stands before %" PRIu64 " out of order", before->id, j->id);
        EXPECT(!before || before->status == JOB_RUNNING || j->status == JOB_WAITING,
               "job %" PRIu64 " overtook %" PRIu64, j->id, before->id);
        before = j;
    }
    return 0;
}

// C1: the states partition the channels; dormant means no work, ready and parked mean work.
static int check_channel(const struct core *c, chan ref, struct tally *t) {
    const struct channel *ch = channel_at(c, ref);
    const struct job *head = ch->jobs.head ? job_at(c, ch->jobs.head) : NULL;
    int err = check_line(c, &ch->jobs, "channel");
    if (err < 0)
        return err;
    EXPECT(ch->paused == (pause_find(c, ref) != 0), "a channel and its pause disagree");
    switch ((enum channel_state)ch->channel_state) {
    case CHANNEL_DORMANT:
        EXPECT(!head && !ch->halted, "a dormant channel has work");
        EXPECT(ch->idle == (!ch->pins && !ch->state && !ch->paused),
               "an idle channel is not listed as such");
        break;
    case CHANNEL_READY:
        t->ready++;
        EXPECT(head && head->status == JOB_WAITING, "a ready channel has no work");
        EXPECT(!channel_is_halted(c, ch) && !ch->paused && job_due(c, head) <= c->now_ms,
               "a ready channel may not start");
        break;
    case CHANNEL_PARKED:
        t->parked++;
        EXPECT(channel_is_halted(c, ch) || is_late(c) || (head && ch->paused) ||
                   (head && job_due(c, head) > c->now_ms),
               "a parked channel has no reason to be");
        break;
    case CHANNEL_IN_PROGRESS:
        EXPECT(lease_at(c, ch->link.next)->channel == ref, "a channel and its lease disagree");
        break;
    }
    EXPECT(!head || head->status != JOB_RUNNING || ch->channel_state == CHANNEL_IN_PROGRESS,
           "a running job's channel is not in progress");
    const struct stage *s = c->stages[ch->stage];
    EXPECT(ch->grouped == (s->groups != NULL), "a channel has a group without groups");
    EXPECT(!s->groups || key_has_channel(s, channel_key(c, ch)), "a key names no channel");
    t->group_users += ch->grouped;
    t->group_jobs += ch->grouped ? ch->jobs.count : 0;
    return check_queue(c, ch);
}

static int check_unkeyed(const struct core *c, uint32_t number, struct tally *t) {
    const struct job *j = job_at(c, number);
    enum channel_state state = chan_state(c, number);
    t->ready += state == CHANNEL_READY;
    t->parked += state == CHANNEL_PARKED;
    if (stage_of(c, j)->groups) {
        t->group_users += j->status < JOB_DONE || j->status == JOB_DEAD;
        t->group_jobs += state != CHANNEL_DORMANT;
    }
    switch ((enum job_status)j->status) {
    case JOB_WAITING:
        EXPECT(state == (job_due(c, j) > c->now_ms ? CHANNEL_PARKED : CHANNEL_READY) ||
                   (is_late(c) && state == CHANNEL_PARKED),
               "job %" PRIu64 " waits in the wrong state", j->id);
        break;
    case JOB_RUNNING:
        EXPECT(state == CHANNEL_IN_PROGRESS && lease_at(c, j->link.next)->channel == number,
               "job %" PRIu64 " runs without a lease", j->id);
        break;
    case JOB_DELAYED:
    case JOB_DONE:
    case JOB_DEAD:
    case JOB_EXPIRED:
    case JOB_CANCELLED:
        EXPECT(state == CHANNEL_DORMANT, "job %" PRIu64 " is a channel still", j->id);
        break;
    }
    return 0;
}

static int check_jobs(const struct core *c, struct tally *t) {
    uint64_t by_status[JOB_CANCELLED + 1] = { 0 };
    for (uint32_t i = 1; i < c->jobs.next_new; i++) {
        const struct job *j = job_at(c, i);
        if (job_find(c, j->id) != i)
            continue;
        EXPECT(attr_job(c, j->attrs) == i, "job %" PRIu64 " has another's attributes", j->id);
        t->jobs++;
        t->live_bytes += j->size;
        const struct attr *reasons = job_attr(c, j, ATTR_REASONS);
        t->live_bytes += reasons ? reasons->small : 0;
        by_status[j->status]++;
        EXPECT(j->status < JOB_DONE || j->status == JOB_DEAD || !job_maker(c, j),
               "job %" PRIu64 " has ended and still counts", j->id);
        t->made_jobs += job_maker(c, j) != 0;
        t->made_bytes += job_maker_bytes(c, j);
        EXPECT(!(j->flags & JOB_HALTS) ||
                   (j->status == JOB_DEAD && !channel_reaches(c, channel_at(c, j->owner), i)),
               "job %" PRIu64 " halts nothing", j->id);
        int err = job_is_keyed(j) ? 0 : check_unkeyed(c, i, t);
        if (err < 0)
            return err;
    }
    EXPECT(t->jobs == c->jobs.used && t->jobs == idmap_count(&c->by_id), "jobs are miscounted");
    for (uint32_t i = 1; i <= c->stage_count; i++)
        for (int status = 0; status <= JOB_CANCELLED; status++)
            by_status[status] -= c->stages[i]->by_status[status];
    for (int status = 0; status <= JOB_CANCELLED; status++)
        EXPECT(!by_status[status], "%s jobs are miscounted",
               job_status_name((enum job_status)status));
    return 0;
}

// The slots count exactly the unended jobs, each in the slot of its time.
static int check_ages(const struct core *c, const struct stage *s) {
    uint64_t counted = 0, unended = 0;
    for (uint32_t i = 0; i < s->ages.used; i++) {
        EXPECT(!i || s->ages.slots[i - 1].from_ms < s->ages.slots[i].from_ms,
               "ages are out of order");
        counted += s->ages.slots[i].count;
    }
    for (int status = JOB_DELAYED; status <= JOB_RUNNING; status++)
        unended += s->by_status[status];
    EXPECT(counted == unended, "%" PRIu64 " jobs are not ended, %" PRIu64 " have an age", unended,
           counted);
    EXPECT(!s->ages.used || s->ages.slots[0].count, "the oldest slot is empty");
    (void)c;
    return 0;
}

static int check_stages(const struct core *c, struct tally *t) {
    uint64_t ready = 0, parked = 0, leases = 0, granted = 0;
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        const struct stage *s = c->stages[i];
        EXPECT(list_empty(&s->of_starved) || !list_empty(&s->pushers), "no push is starved");
        EXPECT(!s->ended.count || stage_set_next(&c->ended_stages, i, i),
               "a stage is not listed for its ended jobs");
        granted += s->granted_rooms;
        const struct job_line *lines[] = { &s->ready, &s->parked, &s->delayed,
                                           &s->dead,  &s->ended,  &s->idle };
        static const char *const names[] = {
            "ready", "parked", "delayed", "dead", "ended", "idle"
        };
        for (size_t k = s->groups != NULL; k < sizeof lines / sizeof *lines; k++) {
            int err = check_line(c, lines[k], names[k]);
            if (err < 0)
                return err;
        }
        int err = check_ages(c, s);
        if (err < 0)
            return err;
        EXPECT(s->delayed.count == s->by_status[JOB_DELAYED], "delayed jobs are miscounted");
        EXPECT(s->dead.count == s->by_status[JOB_DEAD], "dead jobs are miscounted");
        EXPECT(s->ended.count ==
                   s->by_status[JOB_DONE] + s->by_status[JOB_EXPIRED] + s->by_status[JOB_CANCELLED],
               "ended jobs are miscounted");
        ready += s->ready.count;
        parked += s->parked.count;
        leases += s->leases;
        t->live_bytes += s->size;
        for (uint32_t n = s->first_spent; n;) {
            const struct spent *sp = slab_at(&c->spents, n);
            t->live_bytes += sp->id ? sp->size : 0;
            n = sp->next;
        }
        for (uint32_t n = s->states.head; n;) {
            const struct state *st = slab_at(&c->states, n);
            t->live_bytes += st->size;
            n = st->link.next;
        }
    }
    EXPECT(ready == t->ready, "%" PRIu64 " channels are ready, %" PRIu64 " stand in line", t->ready,
           ready);
    EXPECT(parked == t->parked, "%" PRIu64 " channels are parked, %" PRIu64 " stand in line",
           t->parked, parked);
    EXPECT(leases == c->leases.used, "leases are miscounted");
    EXPECT(granted || !c->granted_bytes, "granted room is miscounted");
    return 0;
}

// ---- Groups -----------------------------------------------------------------------------------

// The groups of a stage in `turns` or `held`: each has ready channels, and counts in `out_ready`.
static int check_ring(const struct core *c, const struct stage *s, const struct list *ring,
                      uint64_t *out_ready) {
    for (const struct list *l = ring->next; l != ring; l = l->next) {
        const struct key_group *g = list_entry(l, struct key_group, of_ring);
        int err = check_line(c, &g->ready, "group's ready");
        if (err < 0)
            return err;
        EXPECT(g->ready.count && g->stage == s->number, "a group has a turn, but nothing to start");
        EXPECT((ring == &s->groups->held) == (g->held == s->groups->changes),
               "a group does not know whether it is held");
        *out_ready += g->ready.count;
    }
    return 0;
}

static int check_turns(const struct core *c, const struct stage *s) {
    uint64_t ready = 0;
    int err = check_ring(c, s, &s->groups->turns, &ready);
    if (err == 0)
        err = check_ring(c, s, &s->groups->held, &ready);
    if (err < 0)
        return err;
    EXPECT(ready == s->ready.count, "ready channels of groups are miscounted");
    const struct list *first = list_first(&s->groups->turns);
    const struct key_group *g = first ? list_entry(first, struct key_group, of_ring) : NULL;
    EXPECT(s->ready.head == (g ? g->ready.head : 0) || s->serve_at_ms,
           "the first group's channel is not the next to start");
    EXPECT(!s->ready.head || group_hold(c, s, g) == HOLD_NONE, "a held group has its turn");
    return 0;
}

static int check_groups(const struct core *c, const struct tally *t) {
    uint64_t users = 0, jobs = 0, leased = 0, stages = 0, used = 0;
    for (uint32_t i = 1; i < c->groups.next_new; i++) {
        const struct key_group *g = group_at(c, i);
        if (!g->key)
            continue;
        EXPECT(g->users || g->timer_ms, "a group is not forgotten");
        EXPECT(!g->users || g->era == c->stages[g->stage]->group_era,
               "a group that has ended is used");
        used++;
        users += g->users;
        jobs += g->jobs;
        leased += g->leased;
    }
    uint64_t of_leases = 0;
    for (uint32_t i = 1; i < c->leases.next_new; i++) {
        const struct lease *l = lease_at(c, i);
        users -= l->count && l->group;
        for (uint32_t k = l->next; l->group && k < l->count; k++)
            of_leases += l->block ? l->block[k].id != 0 : 1;
    }
    EXPECT(used == c->groups.used && used == map_count(&c->by_group), "groups are miscounted");
    EXPECT(users == t->group_users, "%" PRIu64 " users of groups, %" PRIu64 " are there", users,
           t->group_users);
    EXPECT(jobs == t->group_jobs, "jobs of groups are miscounted");
    EXPECT(leased == of_leases, "leased jobs of groups are miscounted");
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        stages += c->stages[i]->groups != NULL;
        int err = c->stages[i]->groups ? check_turns(c, c->stages[i]) : 0;
        if (err < 0)
            return err;
    }
    EXPECT(stages == c->grouped_stages, "stages with groups are miscounted");
    return 0;
}

// The makers count exactly the stages, sources, schedules, jobs and emits under way that have one.
static bool makers_are_right(const struct core *c, const struct tally *t) {
    uint64_t made = t->made_jobs, bytes = 0;
    for (uint32_t i = 1; i < c->makers.next_new; i++) {
        const struct maker *m = slab_at(&c->makers, i);
        bytes += maker_of_name(c, m->name) == i ? m->bytes : 0;
    }
    if (bytes != t->made_bytes)
        return false;
    for (uint32_t i = 1; i <= c->stage_count; i++)
        made += c->stages[i]->maker != 0;
    for (uint32_t i = 1; i < c->sources.next_new; i++)
        made += source_at(c, i)->in_use && source_at(c, i)->maker;
    for (uint32_t i = 1; i < c->schedules.next_new; i++)
        made += schedule_at(c, i)->text && schedule_at(c, i)->maker;
    return c->makers.used == map_count(&c->maker_by_name) && made == c->made;
}

static bool sources_are_right(const struct core *c, struct tally *t) {
    uint64_t sources = 0, thens = 0;
    for (uint32_t i = 1; i < c->sources.next_new; i++) {
        const struct source *s = source_at(c, i);
        const struct epic_orders *o = s->in_use ? s->orders : NULL;
        sources += s->in_use && s->stage;
        thens += o && o->then_stage;
        t->live_bytes += s->in_use ? s->size : 0;
        t->live_bytes += o ? o->size : 0;
    }
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        sources -= c->stages[i]->sources;
        thens -= c->stages[i]->thens;
    }
    return !sources && !thens;
}

// Each schedule is found by its name, and counted by its stage.
static int check_schedules(const struct core *c, struct tally *t) {
    uint64_t count = 0, of_stages = 0;
    for (uint32_t i = 1; i < c->schedules.next_new; i++) {
        const struct schedule *s = schedule_at(c, i);
        if (!s->text)
            continue;
        count++;
        t->live_bytes += s->size;
        EXPECT(schedule_find(c, s->stage, s->name) == i, "a schedule is lost");
        EXPECT(s->move.next_ms > s->move.last_ms || !s->move.next_ms, "a tick would come again");
        EXPECT(s->move.paused || s->timer_ms != NO_TIMER, "a schedule has no timer");
    }
    for (uint32_t i = 1; i <= c->stage_count; i++)
        of_stages += c->stages[i]->schedules;
    EXPECT(count == of_stages && count == map_count(&c->schedule_by_name) &&
               count == c->schedules.used,
           "schedules are miscounted");
    return 0;
}

// Entries are in order, and the stages count them.
static int check_all_links(const struct core *c, struct tally *t) {
    uint64_t count = 0, counts = 0, linked = 0, outboxed = 0;
    for (uint32_t i = 0; i < c->link_count; i++) {
        const struct link_end *l = &c->links[i];
        uint64_t before = l->acked;
        t->live_bytes += l->size;
        for (uint32_t n = l->first; n; n = outbox_at(c, n)->next) {
            const struct outbox *o = outbox_at(c, n);
            EXPECT(o->number > before && o->to == i, "an outbox is out of order");
            EXPECT(outbox_find(c, o->number) == n, "an entry of an outbox is lost");
            EXPECT(o->next || l->last == n, "an outbox has lost its end");
            before = o->number;
            t->live_bytes += o->size;
            t->made_jobs += o->maker != 0;
            counts += o->number > l->arrived;
            count++;
        }
        EXPECT(l->first || !l->last, "an empty outbox has an end");
    }
    for (uint32_t i = 1; i <= c->stage_count; i++) {
        linked += c->stages[i]->linked;
        outboxed += c->stages[i]->outboxed;
    }
    EXPECT(count == c->outbox.used && count == outboxed && counts == linked,
           "outboxes are miscounted");
    return 0;
}

static int check_live(const struct core *c) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < c->live.size; i++)
        bytes += c->live.bytes[i];
    EXPECT(c->live.unknown || bytes == c->live_bytes,
           "%" PRIu64 " bytes live, %" PRIu64 " by their positions", c->live_bytes, bytes);
    return 0;
}

int core_check(const struct core *c) {
    struct tally t = { .live_bytes = c->epoch_size + c->trim_size };
    int err;
    for (uint32_t i = 1; i < c->channels.next_new; i++)
        if (channel_at(c, i)->key && (err = check_channel(c, i | CHAN_KEYED, &t)) < 0)
            return err;
    if ((err = check_jobs(c, &t)) < 0)
        return err;
    if ((err = check_stages(c, &t)) < 0)
        return err;
    if ((err = check_all_links(c, &t)) < 0)
        return err;
    if ((err = check_schedules(c, &t)) < 0)
        return err;
    if ((err = check_groups(c, &t)) < 0)
        return err;
    uint64_t recorded = 0, leased = 0;
    for (uint32_t i = 1; i < c->leases.next_new; i++) {
        const struct lease *l = lease_at(c, i);
        EXPECT(!l->record || lease_find_recorded(c, l->serial) == i, "a lease's record is lost");
        t.live_bytes += l->record ? l->record->size : 0;
        recorded += l->record != NULL;
        for (uint32_t k = l->next; k < l->count; k++)
            leased += l->block ? l->block[k].id != 0 : 1;
    }
    for (uint32_t i = 1; i <= c->stage_count; i++)
        leased -= c->stages[i]->leased;
    EXPECT(!leased, "leased jobs are miscounted");
    EXPECT(recorded == map_count(&c->recorded_leases), "recorded leases are miscounted");
    EXPECT(makers_are_right(c, &t), "makers are miscounted");
    for (uint32_t i = 1; i <= c->stage_count; i++)
        EXPECT(!c->stages[i]->known_only || (c->stages[i]->name_size && !c->stages[i]->recorded),
               "stage %u is used, but counts as known only", i);
    EXPECT(sources_are_right(c, &t), "sources of stages are miscounted");
    uint64_t paused = c->pauses.used;
    for (uint32_t i = 1; i <= c->stage_count; i++)
        paused -= c->stages[i]->paused_keys;
    EXPECT(!paused, "paused channels are miscounted");
    for (uint32_t i = 1; i < c->pauses.next_new; i++)
        t.live_bytes += pause_at(c, i)->size;
    EXPECT(t.live_bytes == c->live_bytes, "%" PRIu64 " bytes live, %" PRIu64 " are counted",
           t.live_bytes, c->live_bytes);
    return check_live(c);
}
