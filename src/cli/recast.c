// See recast.h. The sink of every core that is copied decides by the kind of a record: gathered,
// left out, or written to one shard or all.
#include "cli/recast.h"

#include "base/errors.h"
#include "base/mem.h"

#include <string.h>

#define COPIED (UINT64_C(1) << 63) // added to positions in the copy: the store has none there
enum { SHARD_SHIFT = 56 };         // which of its shards

// ---- Rosters ----------------------------------------------------------------------------------

static struct recast_item *item_at(const struct roster *r, uint32_t number) {
    return &r->items[number - 1];
}

static mr_bytes item_name(const struct recast_item *i) {
    return bytes_of(i->name, i->size);
}

static bool has_name(const void *roster, uint32_t number, const void *name) {
    return bytes_equal(item_name(item_at(roster, number)), *(const mr_bytes *)name);
}

struct alias {
    uint32_t shard;
    uint64_t number;
};

static bool has_alias(const void *roster, uint32_t number, const void *alias) {
    const struct alias *a = alias;
    return item_at(roster, number)->number[a->shard] == a->number;
}

static uint32_t alias_hash(struct alias a) {
    return number_hash(a.number << 6 | a.shard);
}

// What the copy calls it; 0: it is not known (any more).
static uint32_t roster_find(const struct roster *r, uint32_t shard, uint64_t number) {
    struct alias a = { shard, number };
    return map_find(&r->by_number, alias_hash(a), has_alias, r, &a);
}

static int roster_grow(struct roster *r) {
    if (r->count < r->capacity)
        return 0;
    uint32_t capacity = r->capacity ? 2 * r->capacity : 16;
    struct recast_item *items = mem_resize(r->items, capacity * sizeof *items);
    if (!items)
        return error_set(MR_ENOMEM, "no memory for the names of a store");
    r->items = items;
    r->capacity = capacity;
    return 0;
}

// Notes what a shard calls it, for the first time. New items come behind those that are there: of
// one shard everything keeps its number, unless some were given up.
static int roster_note(struct roster *r, uint32_t shard, uint64_t number, mr_bytes name,
                       struct recast_item **out) {
    uint32_t hash = (uint32_t)bytes_hash(name, 0),
             found = map_find(&r->by_name, hash, has_name, r, &name);
    int err = roster_grow(r);
    if (err == 0)
        err = map_reserve(&r->by_name, 1);
    if (err == 0)
        err = map_reserve(&r->by_number, 1);
    if (err < 0)
        return err;
    if (!found) {
        found = ++r->count;
        struct recast_item *item = item_at(r, found);
        *item = (struct recast_item){ .size = (uint8_t)name.size };
        memcpy(item->name, name.data, name.size);
        map_put(&r->by_name, hash, found);
    }
    item_at(r, found)->number[shard] = number;
    map_put(&r->by_number, alias_hash((struct alias){ shard, number }), found);
    *out = item_at(r, found);
    return 0;
}

static void roster_finish(struct roster *r) {
    mem_free(r->items);
    map_finish(&r->by_name);
    map_finish(&r->by_number);
}

// ---- Gathering --------------------------------------------------------------------------------

static void add_stage(struct record_stage *sum, const struct record_stage *s, bool first) {
    if (first) {
        *sum = *s;
        return;
    }
    sum->pushed += s->pushed;
    sum->done += s->done;
    sum->failed += s->failed;
    sum->dead += s->dead;
    sum->expired += s->expired;
    sum->cancelled += s->cancelled;
    sum->vain_ms += s->vain_ms;
}

static void add_source(struct record_source *sum, const struct record_source *s) {
    struct epic_seen seen = { .highest = sum->highest }, more = { .highest = s->highest };
    memcpy(seen.bitmap, sum->bitmap, sizeof seen.bitmap);
    memcpy(more.bitmap, s->bitmap, sizeof more.bitmap);
    epic_seen_add(&seen, &more);
    sum->highest = seen.highest;
    memcpy(sum->bitmap, seen.bitmap, sizeof sum->bitmap);
    sum->epic = sum->epic || s->epic;
    sum->total = s->total > sum->total ? s->total : sum->total;
    sum->accepted += s->accepted;
    sum->done += s->done;
    sum->dead += s->dead;
    sum->cancelled += s->cancelled;
    sum->expired += s->expired;
}

static int write_stage(struct recast *, uint32_t number);

// One that appears because an emit arrives is written at once: what comes before was.
static int gather_stage(struct recast_from *f, const struct record *r) {
    struct recast *c = f->recast;
    struct recast_item *item;
    uint32_t before = c->stages.count;
    if (roster_find(&c->stages, f->shard, r->stage))
        return 0;
    int err = roster_note(&c->stages, f->shard, r->stage, r->name, &item);
    if (err < 0)
        return err;
    bool first = c->stages.count > before;
    add_stage(&item->about.stage, &r->about->stage, first);
    return first && c->copied ? write_stage(c, c->stages.count) : 0;
}

static int gather_source(struct recast_from *f, const struct record *r) {
    struct recast_item *item;
    if (roster_find(&f->recast->sources, f->shard, r->source))
        return 0;
    int err = roster_note(&f->recast->sources, f->shard, r->source, r->name, &item);
    if (err == 0)
        add_source(&item->about.source, &r->about->source);
    return err;
}

static void gather_epoch(struct recast *c, const struct record *r) {
    c->epoch.epoch = r->epoch > c->epoch.epoch ? r->epoch : c->epoch.epoch;
    c->epoch.next_id = r->next_id > c->epoch.next_id ? r->next_id : c->epoch.next_id;
    c->epoch.time_ms = r->time_ms > c->epoch.time_ms ? r->time_ms : c->epoch.time_ms;
}

// ---- Writing ----------------------------------------------------------------------------------

static int write_to(struct recast *c, uint32_t to, const struct record *r, mr_bytes body) {
    uint8_t head[RECORD_MAX];
    struct entry e = { .head = { head, record_encode(r, head) }, .body = body };
    int err = log_append(c->to[to], &e, 1, ROOM_PUSH, &c->last_at[to]);
    if (err < 0)
        return err;
    c->copied++;
    c->bytes += entry_size(e.head.size, e.body.size);
    return 0;
}

static int write_to_all(struct recast *c, const struct record *r) {
    int err = 0;
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++)
        err = write_to(c, to, r, (mr_bytes){ 0 });
    return err;
}

// What was counted is in the first shard.
static int write_stage(struct recast *c, uint32_t number) {
    const struct recast_item *item = item_at(&c->stages, number);
    struct record_about all = item->about, none = { .stage = { .paused = all.stage.paused,
                                                               .draining = all.stage.draining,
                                                               .policy = all.stage.policy } };
    int err = 0;
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++)
        err = write_to(c, to,
                       &(struct record){ .kind = RECORD_STAGE,
                                         .time_ms = c->epoch.time_ms,
                                         .stage = number,
                                         .name = item_name(item),
                                         .about = to ? &none : &all },
                       (mr_bytes){ 0 });
    return err;
}

// Only dead jobs can change what was counted: they are counted where they are.
static struct record_source source_share(const struct recast *c, const struct recast_item *item,
                                         uint32_t to) {
    struct record_source share = item->about.source;
    for (uint32_t i = 1; !to && i < c->to_count; i++)
        share.dead -= item->dead[i];
    if (to) {
        share.accepted = share.done = share.cancelled = share.expired = 0;
        share.dead = item->dead[to];
    }
    return share;
}

static int write_source(struct recast *c, uint32_t number) {
    const struct recast_item *item = item_at(&c->sources, number);
    int err = 0;
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++) {
        struct record_about about = { .source = source_share(c, item, to) };
        err = write_to(c, to,
                       &(struct record){ .kind = RECORD_SOURCE,
                                         .time_ms = c->epoch.time_ms,
                                         .source = number,
                                         .name = item_name(item),
                                         .about = &about },
                       (mr_bytes){ 0 });
    }
    return err;
}

// ---- Where to ---------------------------------------------------------------------------------

// As route.h says for a push; what nobody can ask for but by its id goes where ids are looked for.
// What follows about the same job goes where that went.
static uint32_t route(const struct recast *c, const struct record *r) {
    const struct recast_item *stage = item_at(&c->stages, r->stage);
    if (c->to_count == 1 || (r->id && r->id == c->job))
        return c->to_count == 1 ? 0 : c->job_to;
    if (r->key.size)
        return route_of(c->to_count, item_name(stage), r->key, (mr_bytes){ 0 });
    if (r->has_once)
        return route_of_once(c->to_count, r->once);
    if (r->number && r->source)
        return route_of_number(c->to_count, item_name(item_at(&c->sources, (uint32_t)r->source)),
                               r->number);
    return route_of_id(c->to_count, r->id);
}

static bool is_seen(const void *recast, uint32_t value, const void *name) {
    const struct recast *c = recast;
    return memcmp(c->onces.data + (value - 1) * sizeof(struct hash128), name,
                  sizeof(struct hash128)) == 0;
}

// A spent name may have been anybody's key: it is in every shard, and so may come from several.
static int write_once(struct recast *c, const struct record *r) {
    uint32_t hash = (uint32_t)r->once.low;
    if (map_find(&c->once, hash, is_seen, c, &r->once))
        return 0;
    int err = map_reserve(&c->once, 1);
    if (err == 0)
        err = buffer_append(&c->onces, &r->once, sizeof r->once);
    if (err < 0)
        return err;
    map_put(&c->once, hash, (uint32_t)(c->onces.size / sizeof r->once));
    return write_to_all(c, r);
}

static int write_job(struct recast *c, struct record *r, mr_bytes body, uint32_t *out_to) {
    uint32_t to = route(c, r);
    c->job = r->id;
    c->job_to = *out_to = to;
    if (r->kind == RECORD_JOB && r->status == JOB_DEAD && r->source)
        item_at(&c->sources, (uint32_t)r->source)->dead[to]++;
    return write_to(c, to, r, body);
}

// Numbers of stages and sources become those of the copy. A source that was dropped has none.
static int translate(const struct recast_from *f, struct record *r) {
    if (r->stage) {
        r->stage = roster_find(&f->recast->stages, f->shard, r->stage);
        if (!r->stage)
            return error_set(MR_ECORRUPT, "a record names a stage that is not there");
    }
    if (r->kind == RECORD_ARRIVAL)
        r->kind = RECORD_PUSH, r->source = r->number = 0;
    if (r->source)
        r->source = roster_find(&f->recast->sources, f->shard, r->source);
    if (!r->source)
        r->number = 0;
    return 0;
}

// ---- The sink ---------------------------------------------------------------------------------

static int take_record(struct recast_from *f, struct record *r, mr_bytes body, uint32_t *out_to) {
    struct recast *c = f->recast;
    int err;
    switch (r->kind) {
    case RECORD_STAGE:
        return gather_stage(f, r);
    case RECORD_SOURCE:
        return gather_source(f, r);
    case RECORD_EPOCH:
        gather_epoch(c, r);
        return 0;
    case RECORD_ONCE:
        err = translate(f, r);
        return err < 0 ? err : write_once(c, r);
    case RECORD_PUSH:
    case RECORD_ARRIVAL:
    case RECORD_JOB:
    case RECORD_END:
    case RECORD_FAIL:
    case RECORD_STATE:
    case RECORD_LEASE:
        err = translate(f, r);
        return err < 0 ? err : write_job(c, r, body, out_to);
    case RECORD_RETRY:
    case RECORD_DROP:
    case RECORD_WANT:
    case RECORD_SOURCE_DROP:
    case RECORD_STAGE_DROP:
    case RECORD_TRIM:
    case RECORD_OUTBOX:
    case RECORD_LINK:
        return 0;
    }
    return 0;
}

static int recast_append(void *owner, const struct entry *entries, size_t count, enum room room,
                         uint64_t *out_at) {
    struct recast_from *f = owner;
    (void)room; // there is no hurry to use what is kept for an engine in need
    for (size_t i = 0; i < count; i++) {
        struct record_about about;
        struct record r;
        uint32_t to = 0;
        int err = record_decode(entries[i].head, &about, &r);
        if (err == 0)
            err = take_record(f, &r, entries[i].body, &to);
        if (err < 0)
            return err;
        out_at[i] = COPIED | (uint64_t)to << SHARD_SHIFT | f->recast->last_at[to];
    }
    return 0;
}

static int recast_read(void *owner, uint64_t at, struct buffer *out_body) {
    const struct recast_from *f = owner;
    uint64_t position = at & ((UINT64_C(1) << SHARD_SHIFT) - 1);
    if (at < COPIED)
        return log_read(f->log, at, NULL, out_body);
    return log_read(f->recast->to[(at & ~COPIED) >> SHARD_SHIFT], position, NULL, out_body);
}

// ---- All of it --------------------------------------------------------------------------------

static int load(struct recast *c, uint32_t shard) {
    struct recast_from *f = &c->from[shard];
    struct loaded l = { .shard = shard, .shards = c->from_count };
    struct log_state log;
    f->recast = c;
    f->shard = shard;
    struct core_sink sink = { .append = recast_append, .read = recast_read, .owner = f };
    int err = store_load(f->log, &sink, &l);
    f->core = l.core;
    if (err == 0)
        err = core_open(f->core, 0, 0);
    log_look(f->log, &log);
    return err < 0 ? err : core_clean_own(f->core, log.head, log.tail); // stages and sources first
}

static int arrive(struct recast *c, uint32_t from, uint32_t to) {
    struct link_entry e;
    struct buffer body = { 0 };
    uint64_t last = 0;
    int err = 0;
    while (err == 0 && core_link_next(c->from[from].core, to, last, &e)) {
        last = e.number;
        buffer_clear(&body);
        err = log_read(c->from[from].log, e.at, NULL, &body);
        if (err == 0)
            err = core_link_accept(c->from[to].core, from, &e, buffer_bytes(&body));
    }
    buffer_finish(&body);
    return err < 0 || !last ? err : core_link_acked(c->from[from].core, to, last);
}

int recast_begin(struct recast *c) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < c->from_count; i++)
        err = load(c, i);
    c->epoch.kind = RECORD_EPOCH;
    if (err == 0)
        err = write_to_all(c, &c->epoch);
    for (uint32_t i = 1; err == 0 && i <= c->stages.count; i++)
        err = write_stage(c, i);
    for (uint32_t i = 0; err == 0 && i < c->from_count * c->from_count; i++)
        if (i / c->from_count != i % c->from_count)
            err = arrive(c, i / c->from_count, i % c->from_count);
    return err;
}

int recast_entry(struct recast *c, uint32_t from, const struct log_seen *seen) {
    return core_clean(c->from[from].core, seen->at, seen->head, seen->body);
}

// Emits that have arrived since it was written may have taken more ids than were reserved then.
int recast_end(struct recast *c) {
    int err = write_to_all(c, &c->epoch);
    for (uint32_t i = 1; err == 0 && i <= c->sources.count; i++)
        err = write_source(c, i);
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++) {
        log_flush(c->to[to], true);
        err = log_wait(c->to[to], c->last_at[to]);
    }
    return err;
}

void recast_finish(struct recast *c) {
    for (uint32_t i = 0; i < c->from_count; i++)
        core_destroy(c->from[i].core);
    roster_finish(&c->stages);
    roster_finish(&c->sources);
    map_finish(&c->once);
    buffer_finish(&c->onces);
}
