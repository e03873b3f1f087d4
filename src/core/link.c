// Links: an emit for another shard is an entry in an outbox. Its number comes from the shard's ids,
// which always increase, even after a crash that lost some; so the receiver only keeps the highest
// number it has accepted. An entry names the unacknowledged entry before it: the receiver notices a
// lost or overtaken entry, and the sender starts again from the oldest.
#include "core/link.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/limit.h"
#include "core/maker.h"

#include <assert.h>
#include <inttypes.h>

enum { ACKS_UNWRITTEN = 256 }; // at most this many are sent again to a shard after a crash

static int link_get(struct core *c, uint32_t shard, struct link_end **out) {
    assert(shard < SHARDS_MOST);
    if (shard >= c->link_count) {
        struct link_end *links = mem_resize(c->links, (shard + 1) * sizeof *links);
        if (!links)
            return error_set(MR_ENOMEM, "no memory for a link");
        memset(links + c->link_count, 0, (shard + 1 - c->link_count) * sizeof *links);
        c->links = links;
        c->link_count = shard + 1;
    }
    *out = &c->links[shard];
    return 0;
}

static void link_set_home(struct core *c, struct link_end *l, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, l->at, l->size);
    l->at = at;
    l->size = size;
    l->unwritten = 0;
}

static struct record record_of_link(const struct core *c, uint32_t shard, uint64_t accepted) {
    return (struct record){ .kind = RECORD_LINK,
                            .time_ms = c->now_ms,
                            .shard = shard,
                            .number = accepted,
                            .upto = c->links[shard].acked };
}

int link_record(struct core *c, uint32_t shard, enum room room) {
    struct record r = record_of_link(c, shard, c->links[shard].accepted);
    int err = out_write(c, &r, room);
    if (err < 0)
        return err;
    link_set_home(c, &c->links[shard], c->out.at[0], out_size(c, 0));
    return 0;
}

int links_record_acked(struct core *c) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < c->link_count; i++)
        if (c->links[i].unwritten)
            err = link_record(c, i, ROOM_COMMIT);
    return err;
}

// ---- The outbox -------------------------------------------------------------------------------

uint32_t emit_route(const struct core *c, const struct emit *e) {
    return route_of(c->config.shards, e->stage);
}

static bool outbox_has_number(const void *owner, uint32_t entry, const void *number) {
    return outbox_at(owner, entry)->number == *(const uint64_t *)number;
}

uint32_t outbox_find(const struct core *c, uint64_t number) {
    return map_find(&c->outbox_by_number, number_hash(number), outbox_has_number, c, &number);
}

static void outbox_free(struct core *c, uint32_t entry) {
    const struct outbox *o = outbox_at(c, entry);
    if (o->key)
        pool_remove(&c->keys, o->key);
    if (o->once)
        pool_remove(&c->keys, o->once);
    slab_give(&c->outbox, entry);
}

// Makes an entry that is in no outbox yet; adding it later cannot fail. The caller fills in all but
// the key and the once.
static int outbox_create(struct core *c, uint32_t to, mr_bytes key, mr_bytes once, uint32_t *out) {
    struct link_end *l = NULL;
    int err = link_get(c, to, &l);
    if (err < 0)
        return err;
    size_t prepared = c->outbox.used - map_count(&c->outbox_by_number);
    if ((err = map_reserve(&c->outbox_by_number, prepared + 1)) < 0)
        return err;
    uint32_t entry = slab_take(&c->outbox);
    if (!entry)
        return error_set(MR_ENOMEM, "no memory for an outbox");
    struct outbox *o = outbox_at(c, entry);
    o->to = (uint16_t)to;
    o->key = key.size ? pool_add(&c->keys, key) : 0;
    o->once = once.size ? pool_add(&c->keys, once) : 0;
    if ((key.size && !o->key) || (once.size && !o->once)) {
        outbox_free(c, entry);
        return error_set(MR_ENOMEM, "no memory for an outbox");
    }
    *out = entry;
    return 0;
}

// Delays become instants of this shard, because the entry may wait for long; core_link_next says
// what is left of them.
int outbox_prepare(struct core *c, const struct push *p, uint32_t to, struct push_plan *out) {
    struct push_plan plan = { .push = p, .linked = true, .maker = c->job_maker };
    int err = stage_get(c, p->stage, &plan.stage);
    if (err < 0)
        return err;
    if ((err = maker_reserve_job(c, plan.maker)) < 0)
        return err;
    if ((err = outbox_create(c, to, p->job.key, p->job.once, &plan.channel)) < 0)
        return err;
    plan.id = c->next_id;
    c->next_id += c->config.id_step;
    struct outbox *o = outbox_at(c, plan.channel);
    o->number = plan.id;
    o->stage = (uint16_t)plan.stage;
    o->attempts = p->job.attempts;
    o->meta_size = (uint16_t)p->job.meta.size;
    o->due_ms = p->job.delay_ms ? c->now_ms + (uint64_t)p->job.delay_ms : 0;
    o->deadline_ms = p->job.deadline_ms ? c->now_ms + (uint64_t)p->job.deadline_ms : 0;
    *out = plan;
    return 0;
}

void outbox_undo(struct core *c, uint32_t entry) {
    outbox_free(c, entry);
}

void outbox_add_record(struct core *c, const struct push_plan *plan) {
    const struct outbox *o = outbox_at(c, plan->channel);
    struct record r = { .kind = RECORD_OUTBOX,
                        .time_ms = c->now_ms,
                        .stage = plan->stage,
                        .name = plan->push->job.once,
                        .key = plan->push->job.key,
                        .due_ms = o->due_ms,
                        .deadline_ms = o->deadline_ms,
                        .attempts = o->attempts,
                        .meta_size = o->meta_size,
                        .maker = plan->maker,
                        .shard = o->to,
                        .number = o->number };
    out_add(c, &r, out_join(c, plan->push));
}

void outbox_set_home(struct core *c, uint32_t entry, uint64_t at, uint32_t size) {
    struct outbox *o = outbox_at(c, entry);
    home_add(c, at, size);
    home_remove(c, o->at, o->size);
    o->at = at;
    o->size = size;
}

static void link_append(struct core *c, struct link_end *l, uint32_t entry) {
    outbox_at(c, entry)->next = 0;
    if (l->last)
        outbox_at(c, l->last)->next = entry;
    else
        l->first = entry;
    l->last = entry;
}

// Replay may see the cleaner's copy of an earlier one behind it.
static void stage_note_emit(struct stage *s, uint64_t number) {
    s->last_emit = number > s->last_emit ? number : s->last_emit;
}

// Appends an entry; it counts from now on. After maker_reserve_job.
static void outbox_append(struct core *c, uint32_t entry, uint64_t maker, uint64_t at,
                          uint32_t size) {
    struct outbox *o = outbox_at(c, entry);
    o->maker = maker_add(c, maker, MADE_JOB);
    link_append(c, &c->links[o->to], entry);
    map_put(&c->outbox_by_number, number_hash(o->number), entry);
    outbox_set_home(c, entry, at, size);
    c->stages[o->stage]->linked++;
    c->stages[o->stage]->outboxed++;
    stage_note_emit(c->stages[o->stage], o->number);
}

void outbox_send(struct core *c, const struct push_plan *plan, uint64_t at, uint32_t size) {
    outbox_append(c, plan->channel, plan->maker, at, size);
    stage_update_mark(c, c->stages[plan->stage]);
}

// Frees an entry that was taken out of its list; returns its stage.
static struct stage *outbox_forget(struct core *c, uint32_t entry) {
    const struct outbox *o = outbox_at(c, entry);
    struct stage *s = c->stages[o->stage];
    map_remove(&c->outbox_by_number, number_hash(o->number), entry);
    home_remove(c, o->at, o->size);
    s->linked -= o->number > c->links[o->to].arrived;
    s->outboxed--;
    maker_remove(c, o->maker, MADE_JOB);
    outbox_free(c, entry);
    return s;
}

uint64_t core_links(const struct core *c) {
    return c->outbox.used;
}

uint64_t core_linked(struct core *c, mr_bytes stage) {
    uint32_t number = stage_find(c, stage);
    return number ? c->stages[number]->linked : 0;
}

static int64_t delay_left(const struct core *c, const struct outbox *o) {
    return o->due_ms > c->now_ms ? (int64_t)(o->due_ms - c->now_ms) : 0;
}

static int64_t deadline_left(const struct core *c, const struct outbox *o) {
    if (!o->deadline_ms)
        return 0;
    return o->deadline_ms > c->now_ms ? (int64_t)(o->deadline_ms - c->now_ms) : LINK_EXPIRED;
}

bool core_link_next(struct core *c, uint32_t to, uint64_t after, struct link_entry *out) {
    if (to >= c->link_count)
        return false;
    uint32_t before = after ? outbox_find(c, after) : 0, entry = c->links[to].first;
    if (before && outbox_at(c, before)->to == to)
        entry = outbox_at(c, before)->next;
    else
        before = 0;
    for (; entry && outbox_at(c, entry)->number <= after; entry = outbox_at(c, entry)->next)
        before = entry;
    if (!entry)
        return false;
    const struct outbox *o = outbox_at(c, entry);
    const struct stage *s = c->stages[o->stage];
    *out = (struct link_entry){
        .number = o->number,
        .after = before ? outbox_at(c, before)->number : 0,
        .at = o->at,
        .meta_size = o->meta_size,
        .stage = bytes_of(s->name, s->name_size),
        .now_ms = c->now_ms,
        .delay_ms = delay_left(c, o),
        .deadline_ms = deadline_left(c, o),
        .attempts = o->attempts,
        .maker = maker_name(c, s->maker),
        .job_maker = maker_name(c, o->maker),
    };
    if (o->key)
        out->key = pool_at(&c->keys, o->key);
    if (o->once)
        out->once = pool_at(&c->keys, o->once);
    return true;
}

uint64_t core_link_highest(const struct core *c) {
    return c->next_id - 1;
}

static int link_check_shard(const struct core *c, uint32_t shard) {
    if (shard < c->config.shards && shard != c->config.shard)
        return 0;
    return error_set(MR_EINVAL, "shard %" PRIu32 " of %" PRIu32 " has no link with shard %" PRIu32,
                     c->config.shard, c->config.shards, shard);
}

void core_link_arrived(struct core *c, uint32_t to, uint64_t upto) {
    if (to >= c->link_count)
        return;
    struct link_end *l = &c->links[to];
    uint32_t before = outbox_find(c, l->arrived);
    uint32_t entry =
        before && outbox_at(c, before)->to == to ? outbox_at(c, before)->next : l->first;
    for (; entry && outbox_at(c, entry)->number <= upto; entry = outbox_at(c, entry)->next) {
        struct stage *s = c->stages[outbox_at(c, entry)->stage];
        l->arrived = outbox_at(c, entry)->number;
        s->linked--;
        stage_update_mark(c, s);
    }
    settle(c);
}

void core_link_restarted(struct core *c, uint32_t to) {
    if (to >= c->link_count)
        return;
    struct link_end *l = &c->links[to];
    uint64_t arrived = l->arrived;
    l->arrived = 0;
    for (uint32_t entry = l->first; entry && outbox_at(c, entry)->number <= arrived;
         entry = outbox_at(c, entry)->next) {
        struct stage *s = c->stages[outbox_at(c, entry)->stage];
        s->linked++;
        stage_update_mark(c, s);
    }
    settle(c);
}

int core_link_acked(struct core *c, uint32_t to, uint64_t upto) {
    int err = link_check_shard(c, to);
    if (err < 0 || to >= c->link_count)
        return err;
    struct link_end *l = &c->links[to];
    while (l->first && outbox_at(c, l->first)->number <= upto) {
        uint32_t entry = l->first;
        l->first = outbox_at(c, entry)->next;
        l->last = l->first ? l->last : 0;
        l->acked = outbox_at(c, entry)->number;
        l->unwritten++;
        stage_update_mark(c, outbox_forget(c, entry));
    }
    if (l->unwritten >= ACKS_UNWRITTEN)
        (void)link_record(c, to, ROOM_COMMIT); // else the next acknowledgement retries
    settle(c);
    return 0;
}

// ---- Arrivals ---------------------------------------------------------------------------------

uint64_t core_link_mark(const struct core *c, uint32_t from) {
    return from < c->link_count ? c->links[from].accepted : 0;
}

static struct record record_of_arrival(const struct core *c, const struct push_plan *plan,
                                       uint32_t from, uint64_t number) {
    return (struct record){ .kind = RECORD_ARRIVAL,
                            .time_ms = c->now_ms,
                            .id = plan->id,
                            .stage = plan->stage,
                            .key = plan->push->job.key,
                            .position = plan->position,
                            .has_once = plan->has_once,
                            .once = plan->once,
                            .due_ms = plan->due_ms,
                            .deadline_ms = plan->deadline_ms,
                            .attempts = plan->push->job.attempts,
                            .meta_size = (uint32_t)plan->push->job.meta.size,
                            .maker = plan->maker,
                            .shard = from,
                            .number = number };
}

// Writes a new stage and a new link first, then the job: replay needs them before the ARRIVAL.
static int arrival_write(struct core *c, const struct push_plan *plan, uint32_t from,
                         uint64_t number) {
    struct stage *s = c->stages[plan->stage];
    struct link_end *l = &c->links[from];
    bool new_stage = !s->recorded, new_link = !l->size;
    int err = out_begin(c, 3, plan->push->job.key.size);
    if (err == 0)
        err = out_reserve_joined(c, push_joined_size(plan->push));
    if (err < 0)
        return err;
    struct record r;
    struct record_about about;
    if (new_stage) {
        r = record_of_stage(c, s, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    if (new_link) {
        r = record_of_link(c, from, l->accepted);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    r = record_of_arrival(c, plan, from, number);
    out_add(c, &r, out_join(c, plan->push));
    if ((err = out_commit(c, ROOM_COMMIT)) < 0)
        return err;
    if (new_stage)
        stage_set_home(c, s, c->out.at[0], out_size(c, 0));
    if (new_link)
        link_set_home(c, l, c->out.at[new_stage], out_size(c, new_stage));
    return 0;
}

static int arrival_make(struct core *c, struct push_plan *plan, uint32_t from,
                        const struct link_entry *e) {
    int err = job_reserve(c, 1, true);
    if (err < 0)
        return err;
    if (plan->has_once && (err = once_reserve(c, 1)) < 0)
        return err;
    if ((err = ids_reserve(c, 1)) < 0)
        return err;
    if ((err = push_plan_prepare(c, plan)) < 0)
        return err;
    if (e->deadline_ms == LINK_EXPIRED)
        plan->deadline_ms = c->now_ms;
    if ((err = arrival_write(c, plan, from, e->number)) < 0) {
        push_plan_unpin(c, plan);
        return err;
    }
    size_t last = c->out.count - 1;
    uint32_t job = push_plan_apply(c, plan, c->out.at[last], out_size(c, last));
    if (plan->deadline_ms && plan->deadline_ms <= c->now_ms)
        (void)job_end(c, job, JOB_EXPIRED); // if this fails, its timer ends it
    return 0;
}

// An emit whose `once` was used before makes no job, but makes a call wanted without callers. A
// LINK record stores its number.
static int arrival_repeat(struct core *c, const struct push_plan *plan, uint32_t from,
                          uint64_t number) {
    struct job *j = plan->repeat_job ? job_at(c, plan->repeat_job) : NULL;
    bool wants = j && j->status < JOB_DONE && !(j->flags & JOB_WANTED_FOR_GOOD);
    int err = out_begin(c, 2, 0);
    if (err < 0)
        return err;
    struct record r = record_of_link(c, from, number);
    out_add(c, &r, (mr_bytes){ 0 });
    if (wants) {
        r = (struct record){ .kind = RECORD_WANT, .time_ms = c->now_ms, .id = j->id };
        out_add(c, &r, (mr_bytes){ 0 });
    }
    if ((err = out_commit(c, ROOM_COMMIT)) < 0)
        return err;
    link_set_home(c, &c->links[from], c->out.at[0], out_size(c, 0));
    if (wants)
        j->flags |= JOB_WANTED_FOR_GOOD;
    return 0;
}

// A delayed job must not become due before one that the sender has made due earlier, although it
// may have travelled faster. So, while such jobs are not due, the times of the two shards count as
// far apart as for those. A larger difference is not the transport's: the sender's time has jumped.
static int64_t link_delay(const struct core *c, const struct link_end *l,
                          const struct link_entry *e) {
    enum { TRANSPORT_MOST_MS = 1000 };
    uint64_t faster = l->ahead_ms - (c->now_ms - e->now_ms);
    bool adds = e->delay_ms && c->now_ms < l->ahead_until_ms && faster <= TRANSPORT_MOST_MS;
    return e->delay_ms + (adds ? (int64_t)faster : 0);
}

static void link_note_delay(const struct core *c, struct link_end *l, const struct link_entry *e,
                            int64_t delay_ms) {
    uint64_t due_ms = c->now_ms + (uint64_t)delay_ms;
    if (!e->delay_ms)
        return;
    l->ahead_ms = due_ms - (e->now_ms + (uint64_t)e->delay_ms);
    l->ahead_until_ms = due_ms > l->ahead_until_ms ? due_ms : l->ahead_until_ms;
}

// A stage that is missing is made for the maker that the sender has counted it for.
static int arrival_begin(struct core *c, const struct push *push, const struct link_entry *e,
                         struct push_plan *out) {
    uint64_t before = c->maker, of_jobs = c->job_maker;
    c->maker = e->maker;
    c->job_maker = e->job_maker;
    c->is_arrival = true;
    int err = push_plan_begin(c, push, out);
    c->is_arrival = false;
    c->maker = before;
    c->job_maker = of_jobs;
    return err;
}

static int link_accept_entry(struct core *c, uint32_t from, const struct link_entry *e,
                             mr_bytes joined) {
    int64_t delay_ms = link_delay(c, &c->links[from], e);
    struct push push = { .stage = e->stage,
                         .body = bytes_of(joined.data, joined.size - e->meta_size),
                         .job = { .key = e->key,
                                  .meta = bytes_tail(joined, e->meta_size),
                                  .once = e->once,
                                  .delay_ms = delay_ms,
                                  .deadline_ms =
                                      e->deadline_ms == LINK_EXPIRED ? 1 : e->deadline_ms,
                                  .attempts = e->attempts } };
    // No push_check: the sender checked the sizes, and the limits may be lower since.
    struct push_plan plan;
    int err = arrival_begin(c, &push, e, &plan);
    if (err < 0)
        return err;
    err = plan.is_repeat ? arrival_repeat(c, &plan, from, e->number)
                         : arrival_make(c, &plan, from, e);
    if (err == 0)
        link_note_delay(c, &c->links[from], e, delay_ms);
    return err;
}

int core_link_accept(struct core *c, uint32_t from, const struct link_entry *e, mr_bytes body) {
    struct link_end *l = NULL;
    int err = link_check_shard(c, from);
    if (err < 0)
        return err;
    if ((err = link_get(c, from, &l)) < 0)
        return err;
    if (e->number <= l->accepted && !MUTANT(emit_accepted_twice))
        return 0;
    if (e->after > l->accepted && !MUTANT(missing_emit_not_noticed))
        return error_set(MR_EGAP, "%" PRIu64 " of shard %" PRIu32 " is missing", e->after, from);
    err = link_accept_entry(c, from, e, body);
    if (err == 0)
        l->accepted = e->number;
    else
        stage_forget_unused(c, e->stage);
    settle(c);
    return err;
}

// ---- Replay -----------------------------------------------------------------------------------

static int link_of_record(struct core *c, const struct record *r, struct link_end **out) {
    if (r->shard >= SHARDS_MOST)
        return error_set(MR_ECORRUPT, "a record names shard %" PRIu32, r->shard);
    return link_get(c, r->shard, out);
}

int link_restore_mark(struct core *c, const struct record *r) {
    struct link_end *l = NULL;
    int err = link_of_record(c, r, &l);
    if (err == 0 && r->number > l->accepted && !MUTANT(link_mark_forgotten_in_replay))
        l->accepted = r->number;
    return err;
}

// Only from the front, which is nearly all: copies by the cleaner that are out of order go after
// sorting.
static void link_forget_acked(struct core *c, struct link_end *l) {
    while (l->first && outbox_at(c, l->first)->number <= l->acked) {
        uint32_t entry = l->first;
        l->first = outbox_at(c, entry)->next;
        (void)outbox_forget(c, entry);
    }
    l->last = l->first ? l->last : 0;
}

bool links_lead_to(const struct core *c, const struct stage *s) {
    for (uint32_t i = 0; s->outboxed && i < c->link_count; i++)
        for (uint32_t n = c->links[i].first; n; n = outbox_at(c, n)->next)
            if (outbox_at(c, n)->stage == s->number && outbox_at(c, n)->number > c->links[i].acked)
                return true;
    return false;
}

void links_forget_acked(struct core *c) {
    for (uint32_t i = 0; i < c->link_count; i++) {
        struct link_end *l = &c->links[i];
        uint32_t entry = l->first, next;
        for (l->first = l->last = 0; entry; entry = next) {
            next = outbox_at(c, entry)->next;
            if (outbox_at(c, entry)->number > l->acked)
                link_append(c, l, entry);
            else
                (void)outbox_forget(c, entry);
        }
    }
}

int link_restore(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct link_end *l = NULL;
    int err = link_restore_mark(c, r);
    if (err < 0)
        return err;
    if ((err = link_of_record(c, r, &l)) < 0)
        return err;
    link_set_home(c, l, at, size);
    if (r->upto > l->acked)
        l->acked = r->upto;
    link_forget_acked(c, l);
    return 0;
}

int outbox_restore(struct core *c, const struct record *r, uint64_t at, uint32_t size) {
    struct link_end *l = NULL;
    struct stage *s;
    int err = link_of_record(c, r, &l);
    if (err < 0)
        return err;
    if ((err = stage_get_number(c, r->stage, &s)) < 0)
        return err;
    if (r->number <= l->acked) {
        stage_note_emit(s, r->number);
        return 0;
    }
    if (r->number > c->highest_id)
        c->highest_id = r->number;
    uint32_t entry = outbox_find(c, r->number);
    if (entry) {
        outbox_set_home(c, entry, at, size);
        return 0;
    }
    if ((err = maker_reserve_job(c, r->maker)) < 0)
        return err;
    if ((err = outbox_create(c, r->shard, r->key, r->name, &entry)) < 0)
        return err;
    struct outbox *o = outbox_at(c, entry);
    o->number = r->number;
    o->stage = (uint16_t)r->stage;
    o->attempts = r->attempts;
    o->meta_size = (uint16_t)r->meta_size;
    o->due_ms = r->due_ms;
    o->deadline_ms = r->deadline_ms;
    outbox_append(c, entry, r->maker, at, size);
    return 0;
}

// The cleaner's copies come after entries with higher numbers, so the list has to be sorted.
static void link_sort(struct core *c, struct link_end *l, struct heap *order) {
    for (uint32_t entry = l->first; entry; entry = outbox_at(c, entry)->next)
        heap_put(order, outbox_at(c, entry)->number, entry);
    l->first = l->last = 0;
    while (order->count)
        link_append(c, l, heap_pop(order).value);
    link_forget_acked(c, l);
}

// The records of acknowledged emits may be gone.
static void links_note_emits(struct core *c) {
    for (uint32_t i = 1; c->link_count && i <= c->stage_count; i++) {
        struct stage *s = c->stages[i];
        uint32_t to = route_of(c->config.shards, bytes_of(s->name, s->name_size));
        if (s->maker && to < c->link_count)
            stage_note_emit(s, c->links[to].acked);
    }
}

// Not every acknowledgement is recorded, but only acknowledged entries are trimmed: the others were
// copied before. The log may still have them, if it was closed before they were removed.
static void link_note_trimmed(const struct core *c, struct link_end *l) {
    for (uint32_t entry = l->first; entry; entry = outbox_at(c, entry)->next) {
        const struct outbox *o = outbox_at(c, entry);
        if (o->at < c->trim_mark && o->number > l->acked)
            l->acked = o->number;
    }
}

int links_open(struct core *c) {
    struct heap order = { 0 };
    int err = c->outbox.used ? heap_reserve(&order, c->outbox.used) : 0;
    for (uint32_t i = 0; err == 0 && i < c->link_count; i++) {
        link_note_trimmed(c, &c->links[i]);
        link_sort(c, &c->links[i], &order);
    }
    heap_finish(&order);
    links_note_emits(c);
    return err;
}
