// See reshard.h. The sink of every core that is copied looks up what to do with a record of its
// kind: leave it out, write it to the shard of its stage, or merge it with those of other shards.
#include "cli/store/reshard.h"

#include "base/errors.h"
#include "base/mem.h"
#include "core/record_layout.h"

#include <string.h>

#define COPIED (UINT64_C(1) << 63) // added to positions in the copy: the store has none there
enum { SHARD_SHIFT = 56 };         // which of its shards
enum { FLUSH_BYTES = 4 << 20 };    // a log takes only so much that is not written

// ---- Numbers and names -----------------------------------------------------------------------

static struct reshard_item *item_at(const struct roster *r, uint32_t number) {
    return &r->items[number - 1];
}

static mr_bytes item_key(const struct reshard_item *i) {
    return bytes_of(i->key, i->key_size);
}

static mr_bytes item_name(const struct reshard_item *i) {
    return bytes_of(i->key + i->key_size - i->name_size, i->name_size);
}

static mr_bytes item_scope(const struct reshard_item *i) {
    return bytes_of(i->key + i->key_size - i->name_size - i->scope_size, i->scope_size);
}

static bool has_key(const void *roster, uint32_t number, const void *key) {
    return bytes_equal(item_key(item_at(roster, number)), *(const mr_bytes *)key);
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

// The number in the copy; 0: it is not known (any more).
static uint32_t roster_find(const struct roster *r, uint32_t shard, uint64_t number) {
    struct alias a = { shard, number };
    return map_find(&r->by_number, alias_hash(a), has_alias, r, &a);
}

static int roster_grow(struct roster *r) {
    if (r->count < r->capacity)
        return 0;
    uint32_t capacity = r->capacity ? 2 * r->capacity : 16;
    struct reshard_item *items = mem_resize(r->items, capacity * sizeof *items);
    if (!items)
        return error_set(MR_ENOMEM, "no memory for the names of a store");
    r->items = items;
    r->capacity = capacity;
    return 0;
}

static uint32_t roster_add(struct roster *r, uint32_t hash, mr_bytes key,
                           const struct record *record) {
    uint32_t number = ++r->count;
    struct reshard_item *item = item_at(r, number);
    *item = (struct reshard_item){ .key_size = (uint16_t)key.size,
                                   .name_size = (uint16_t)record->name.size,
                                   .scope_size = (uint16_t)record->key.size,
                                   .record = *record,
                                   .about = *record->about };
    memcpy(item->key, key.data, key.size);
    map_put(&r->by_key, hash, number);
    return number;
}

// Notes what a shard calls the stage or source of this record, for the first time. New items are
// added at the end: those of a single shard keep their numbers, unless some were forgotten.
static int roster_note(struct roster *r, uint32_t shard, uint64_t number, mr_bytes key,
                       const struct record *record, struct reshard_item **out) {
    uint32_t hash = (uint32_t)bytes_hash(key, 0),
             found = map_find(&r->by_key, hash, has_key, r, &key);
    int err = roster_grow(r);
    if (err == 0)
        err = map_reserve(&r->by_key, 1);
    if (err == 0)
        err = map_reserve(&r->by_number, 1);
    if (err < 0)
        return err;
    if (!found)
        found = roster_add(r, hash, key, record);
    struct reshard_item *item = item_at(r, found);
    item->number[shard] = number;
    if (!item->record.maker)
        item->record.maker = record->maker;
    map_put(&r->by_number, alias_hash((struct alias){ shard, number }), found);
    *out = item;
    return 0;
}

static void roster_finish(struct roster *r) {
    mem_free(r->items);
    map_finish(&r->by_key);
    map_finish(&r->by_number);
}

// ---- Merging ---------------------------------------------------------------------------------

static uint64_t window_begin(uint64_t highest) {
    return highest >= SOURCE_WINDOW ? highest - SOURCE_WINDOW + 1 : 1;
}

static bool is_seen_by(const struct record_source *s, uint64_t n) {
    uint64_t bit = n % SOURCE_WINDOW;
    return n <= s->highest && n >= window_begin(s->highest) && s->bitmap[bit / 8] >> bit % 8 & 1;
}

// Which numbers either has seen.
static void merge_windows(struct record_source *sum, const struct record_source *s) {
    struct record_source all = *sum;
    all.highest = sum->highest > s->highest ? sum->highest : s->highest;
    memset(all.bitmap, 0, sizeof all.bitmap);
    for (uint64_t n = window_begin(all.highest); n <= all.highest; n++)
        if (is_seen_by(sum, n) || is_seen_by(s, n))
            all.bitmap[n % SOURCE_WINDOW / 8] |= (uint8_t)(1 << n % 8);
    *sum = all;
}

// How a field of two shards becomes one: the lists of record_layout.h say which way.
#define MERGE_sum(a, b) (a) += (b);
#define MERGE_either(a, b) (a) = (a) || (b);
#define MERGE_largest(a, b) (a) = (a) > (b) ? (a) : (b);
#define MERGE_first(a, b)  // stays as the first shard has it
#define MERGE_window(a, b) // see merge_windows
#define MERGE_FIELD(member, type, how, text) MERGE_##how(sum->member, s->member)

// The policy is the first shard's.
static void merge_stage(struct record_stage *sum, const struct record_stage *s) {
    RECORD_STAGE_FIELDS(MERGE_FIELD)
}

static void merge_source(struct record_source *sum, const struct record_source *s) {
    merge_windows(sum, s);
    RECORD_SOURCE_FIELDS(MERGE_FIELD)
}

// What a source is found by in any shard; `key` has RESHARD_KEY bytes.
static mr_bytes source_key(uint8_t *key, uint32_t stage, bool epic, mr_bytes scope, mr_bytes name) {
    size_t size = 0;
    memcpy(key, &stage, sizeof stage);
    size += sizeof stage;
    key[size++] = epic;
    key[size++] = (uint8_t)scope.size;
    if (scope.size)
        memcpy(key + size, scope.data, scope.size);
    size += scope.size;
    memcpy(key + size, name.data, name.size);
    return bytes_of(key, size + name.size);
}

static int reshard_write_stage(struct reshard *, uint32_t number);

// A stage that appears because an emit arrives is written at once: the others were already.
static int gather_stage(struct reshard_from *f, const struct record *r) {
    struct reshard *c = f->reshard;
    struct reshard_item *item;
    uint32_t before = c->stages.count;
    if (roster_find(&c->stages, f->shard, r->stage))
        return 0;
    int err = roster_note(&c->stages, f->shard, r->stage, r->name, r, &item);
    if (err < 0)
        return err;
    if (c->stages.count == before)
        merge_stage(&item->about.stage, &r->about->stage);
    else if (c->copied)
        err = reshard_write_stage(c, c->stages.count);
    return err;
}

static int gather_source(struct reshard_from *f, const struct record *r) {
    struct reshard *c = f->reshard;
    struct reshard_item *item;
    uint8_t text[RESHARD_KEY];
    uint32_t before = c->sources.count;
    if (roster_find(&c->sources, f->shard, r->source))
        return 0;
    uint32_t stage = r->stage ? roster_find(&c->stages, f->shard, r->stage) : 0;
    mr_bytes key = source_key(text, stage, r->about->source.epic, r->key, r->name);
    int err = roster_note(&c->sources, f->shard, r->source, key, r, &item);
    if (err < 0)
        return err;
    item->record.stage = stage;
    if (c->sources.count == before)
        merge_source(&item->about.source, &r->about->source);
    return 0;
}

static void gather_epoch(struct reshard *c, const struct record *r) {
    c->epoch.epoch = r->epoch > c->epoch.epoch ? r->epoch : c->epoch.epoch;
    c->epoch.next_id = r->next_id > c->epoch.next_id ? r->next_id : c->epoch.next_id;
    c->epoch.time_ms = r->time_ms > c->epoch.time_ms ? r->time_ms : c->epoch.time_ms;
}

// ---- Writing ---------------------------------------------------------------------------------

static int write_to(struct reshard *c, uint32_t to, const struct record *r, mr_bytes body) {
    uint8_t head[RECORD_MAX];
    struct entry e = { .head = { head, record_encode(r, head) }, .body = body };
    int err = log_append(c->to[to], &e, 1, ROOM_PUSH, &c->last_at[to]);
    if (err < 0)
        return err;
    uint64_t size = entry_size(e.head.size, e.body.size);
    c->copied++;
    c->bytes += size;
    c->unflushed[to] += size;
    if (c->unflushed[to] >= FLUSH_BYTES) {
        log_flush(c->to[to], false);
        c->unflushed[to] = 0;
    }
    return 0;
}

static int write_to_all(struct reshard *c, const struct record *r) {
    int err = 0;
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++)
        err = write_to(c, to, r, (mr_bytes){ 0 });
    return err;
}

static uint32_t home_of(const struct reshard *c, uint32_t stage) {
    return route_of(c->to_count, item_name(item_at(&c->stages, stage)));
}

// The record of an item as the copy has it. Whatever fields it has are those of the first shard.
static struct record item_record(const struct reshard *c, const struct reshard_item *item) {
    struct record r = item->record;
    r.copy = false;
    r.time_ms = c->epoch.time_ms;
    r.name = item_name(item);
    r.key = item_scope(item);
    r.about = &item->about;
    return r;
}

static int reshard_write_stage(struct reshard *c, uint32_t number) {
    struct record r = item_record(c, item_at(&c->stages, number));
    r.stage = number;
    return write_to(c, home_of(c, number), &r, (mr_bytes){ 0 });
}

static bool store_reshard_has_name(const void *roster, uint32_t number, const void *name) {
    return bytes_equal(item_name(item_at(roster, number)), *(const mr_bytes *)name);
}

static uint32_t epic_find(const struct reshard *c, const struct map *epics, mr_bytes name) {
    return map_find(epics, (uint32_t)bytes_hash(name, 0), store_reshard_has_name, &c->sources,
                    &name);
}

// Finds the epics whose stage is known by name: of several with one name the first.
static int map_epics(const struct reshard *c, struct map *out) {
    for (uint32_t i = 1; i <= c->sources.count; i++) {
        const struct reshard_item *item = item_at(&c->sources, i);
        mr_bytes name = item_name(item);
        if (!item->record.stage || !item->about.source.epic || epic_find(c, out, name))
            continue;
        int err = map_reserve(out, 1);
        if (err < 0)
            return err;
        map_put(out, (uint32_t)bytes_hash(name, 0), i);
    }
    return 0;
}

// In older stores a shard without a job of an epic does not know its stage; another shard does.
static int merge_sources(struct reshard *c) {
    struct map epics = { 0 };
    int err = map_epics(c, &epics);
    for (uint32_t i = 1; err == 0 && i <= c->sources.count; i++) {
        struct reshard_item *item = item_at(&c->sources, i);
        uint32_t found = item->record.stage ? 0 : epic_find(c, &epics, item_name(item));
        item->merged = found != 0;
        if (found)
            merge_source(&item_at(&c->sources, found)->about.source, &item->about.source);
    }
    map_finish(&epics);
    return err;
}

// A source whose stage is not known at all may be asked for in any shard.
static int reshard_write_source(struct reshard *c, uint32_t number) {
    struct record r = item_record(c, item_at(&c->sources, number));
    r.source = number;
    r.kind = r.stage ? RECORD_SOURCE : RECORD_SOURCE_OLD;
    return r.stage ? write_to(c, home_of(c, r.stage), &r, (mr_bytes){ 0 }) : write_to_all(c, &r);
}

// ---- Records of jobs -------------------------------------------------------------------------

// A record without a stage is about the job of the one before, and goes to the same shard.
static int store_reshard_write_job(struct reshard *c, struct record *r, mr_bytes body,
                                   uint32_t *out_to) {
    if (r->stage)
        c->job_to = home_of(c, r->stage);
    *out_to = c->job_to;
    return write_to(c, c->job_to, r, body);
}

// Gives stages and sources their numbers in the copy. A source that was dropped has none.
static int renumber(const struct reshard_from *f, struct record *r) {
    if (r->stage) {
        r->stage = roster_find(&f->reshard->stages, f->shard, r->stage);
        if (!r->stage)
            return error_set(MR_ECORRUPT, "a record names a stage that is not there");
    }
    if (r->kind == RECORD_ARRIVAL)
        r->kind = RECORD_PUSH, r->source = r->number = 0;
    if (r->source)
        r->source = roster_find(&f->reshard->sources, f->shard, r->source);
    if (!r->source)
        r->number = 0;
    return 0;
}

// ---- The sink --------------------------------------------------------------------------------

static int merge_record(struct reshard_from *f, const struct record *r) {
    if (r->kind == RECORD_STAGE)
        return gather_stage(f, r);
    if (r->kind != RECORD_EPOCH)
        return gather_source(f, r);
    gather_epoch(f->reshard, r);
    return 0;
}

static int take_record(struct reshard_from *f, struct record *r, mr_bytes body, uint32_t *out_to) {
    int err;
    switch (record_copy_of(r->kind)) {
    case RECORD_LEFT_OUT:
        return 0;
    case RECORD_MERGED:
        return merge_record(f, r);
    case RECORD_COPIED:
        err = renumber(f, r);
        return err < 0 ? err : store_reshard_write_job(f->reshard, r, body, out_to);
    }
    return 0;
}

static int reshard_append(void *owner, const struct entry *entries, size_t count, enum room room,
                          uint64_t *out_at) {
    struct reshard_from *f = owner;
    (void)room; // the space that is reserved for an engine on a full disk is not used
    for (size_t i = 0; i < count; i++) {
        struct record_about about;
        struct record r;
        uint32_t to = 0;
        int err = record_decode(entries[i].head, &about, &r);
        if (err == 0)
            err = take_record(f, &r, entries[i].body, &to);
        if (err < 0)
            return err;
        out_at[i] = COPIED | (uint64_t)to << SHARD_SHIFT | f->reshard->last_at[to];
    }
    return 0;
}

static int reshard_read(void *owner, uint64_t at, struct buffer *out_body) {
    const struct reshard_from *f = owner;
    uint64_t position = at & ((UINT64_C(1) << SHARD_SHIFT) - 1);
    if (at < COPIED)
        return log_read(f->log, at, NULL, out_body);
    return log_read(f->reshard->to[(at & ~COPIED) >> SHARD_SHIFT], position, NULL, out_body);
}

// ---- The whole store
// -------------------------------------------------------------------------------

static int reshard_load(struct reshard *c, uint32_t shard) {
    struct reshard_from *f = &c->from[shard];
    struct loaded l = { .shard = shard, .shards = c->from_count };
    f->reshard = c;
    f->shard = shard;
    struct core_sink sink = { .append = reshard_append, .read = reshard_read, .owner = f };
    int err = store_load(f->log, &sink, &l);
    f->core = l.core;
    return err;
}

static int reshard_open(struct reshard *c, uint32_t shard, uint64_t now_ms) {
    struct reshard_from *f = &c->from[shard];
    struct clean_cursor all = { 0 };
    struct log_state log;
    int err = core_open(f->core, now_ms, 0);
    if (err < 0)
        return err;
    log_look(f->log, &log); // stages and sources first
    return core_clean_own(f->core, log.head, log.tail, UINT32_MAX, &all);
}

// All shards are opened at one time, the latest that any has recorded: emits that are delivered
// between them keep their instants.
static int reshard_open_all(struct reshard *c) {
    uint64_t now_ms = 0;
    int err = 0;
    for (uint32_t i = 0; i < c->from_count; i++)
        now_ms = core_now(c->from[i].core) > now_ms ? core_now(c->from[i].core) : now_ms;
    for (uint32_t i = 0; err == 0 && i < c->from_count; i++)
        err = reshard_open(c, i, now_ms);
    return err;
}

static int deliver_emits(struct reshard *c, uint32_t from, uint32_t to) {
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

int reshard_begin(struct reshard *c) {
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < c->from_count; i++)
        err = reshard_load(c, i);
    if (err == 0)
        err = reshard_open_all(c);
    c->epoch.kind = RECORD_EPOCH;
    if (err == 0)
        err = write_to_all(c, &c->epoch);
    for (uint32_t i = 1; err == 0 && i <= c->stages.count; i++)
        err = reshard_write_stage(c, i);
    for (uint32_t from = 0; err == 0 && from < c->from_count; from++)
        for (uint32_t to = 0; err == 0 && to < c->from_count; to++)
            if (from != to)
                err = deliver_emits(c, from, to);
    return err;
}

int reshard_entry(struct reshard *c, uint32_t from, const struct log_seen *seen) {
    return core_clean(c->from[from].core, seen->at, seen->head, seen->body);
}

// The epoch is written again: emits that were delivered may have used more ids than it reserved.
int reshard_end(struct reshard *c) {
    int err = write_to_all(c, &c->epoch);
    if (err == 0)
        err = merge_sources(c);
    for (uint32_t i = 1; err == 0 && i <= c->sources.count; i++)
        err = item_at(&c->sources, i)->merged ? 0 : reshard_write_source(c, i);
    for (uint32_t to = 0; err == 0 && to < c->to_count; to++) {
        log_flush(c->to[to], true);
        err = log_wait(c->to[to], c->last_at[to]);
    }
    return err;
}

void reshard_finish(struct reshard *c) {
    for (uint32_t i = 0; i < c->from_count; i++)
        core_destroy(c->from[i].core);
    roster_finish(&c->stages);
    roster_finish(&c->sources);
}
