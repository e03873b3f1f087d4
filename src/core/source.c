// Sources: producers that number their pushes into a stage. The core keeps the highest number of
// each and which of the last SOURCE_WINDOW it has seen, so that a repeated number makes no second
// job, at a small cost per source. There are two kinds, each with names of its own within a stage:
// epics, which have an end and progress and are kept until they are dropped; and client libraries,
// whose names are scoped by the token that pushes, and which are forgotten when they are idle.
#include "core/epic.h"
#include "core/maker.h"

#include "base/errors.h"
#include "base/mem.h"
#include "base/mutant.h"

#include <inttypes.h>

// The name by which a source is found.
struct source_key {
    uint32_t stage; // 0: an epic of an older store, see source_find_or_stageless
    bool epic;
    mr_bytes scope, name;
};

static uint32_t source_key_hash(const struct source_key *k) {
    return (uint32_t)bytes_hash(k->name, bytes_hash(k->scope, (uint64_t)k->stage * 2 + k->epic));
}

static struct source_key source_key_of(const struct source *s) {
    return (struct source_key){ .stage = s->stage,
                                .epic = s->seen.epic,
                                .scope = bytes_of(s->scope, s->scope_size),
                                .name = bytes_of(s->name, s->name_size) };
}

static bool source_has_key(const void *owner, uint32_t number, const void *key) {
    const struct source *s = source_at(owner, number);
    const struct source_key *k = key;
    return s->stage == k->stage && s->seen.epic == k->epic &&
           bytes_equal(bytes_of(s->name, s->name_size), k->name) &&
           bytes_equal(bytes_of(s->scope, s->scope_size), k->scope);
}

static uint32_t source_find(const struct core *c, const struct source_key *k) {
    return map_find(&c->source_by_name, source_key_hash(k), source_has_key, c, k);
}

static bool source_has_number(const void *owner, uint32_t number, const void *wanted) {
    return source_at(owner, number)->number == *(const uint64_t *)wanted;
}

uint32_t source_find_number(const struct core *c, uint64_t number) {
    return map_find(&c->source_by_number, number_hash(number), source_has_number, c, &number);
}

static enum made source_made(const struct source *s) {
    return s->seen.epic ? MADE_EPIC : MADE_SOURCE;
}

// Makes a source. In replay it has no name and no maker until its record comes.
static int source_create(struct core *c, uint64_t number, bool epic, uint32_t *out) {
    int err = map_reserve(&c->source_by_number, 1);
    if (err < 0)
        return err;
    if ((err = maker_reserve(c, c->maker)) < 0)
        return err;
    if ((err = slab_reserve(&c->sources, 1)) < 0)
        return err;
    uint32_t index = slab_take(&c->sources);
    struct source *s = source_at(c, index);
    s->number = number;
    s->in_use = true;
    s->seen.epic = epic;
    s->maker = maker_add(c, c->maker, source_made(s));
    s->idle_since_ms = c->now_ms;
    list_append(&c->sources_by_use, &s->by_use);
    list_init(&s->watches.watchers);
    map_put(&c->source_by_number, number_hash(number), index);
    if (number >= c->next_source)
        c->next_source = number + 1;
    *out = index;
    return 0;
}

// In replay the stage may be known before the name. While the source is indexed its stage does not
// change.
static void source_set_stage(struct core *c, struct source *s, uint32_t stage) {
    if (s->stage)
        c->stages[s->stage]->sources--;
    s->stage = stage;
    if (stage)
        c->stages[stage]->sources++;
}

// Makes the source found by its key; after map_reserve.
static void source_index(struct core *c, uint32_t index) {
    struct source *s = source_at(c, index);
    struct source_key k = source_key_of(s);
    s->hash = source_key_hash(&k);
    s->indexed = true;
    map_put(&c->source_by_name, s->hash, index);
    c->stageless_epics += !s->stage;
}

static void source_unindex(struct core *c, uint32_t index) {
    struct source *s = source_at(c, index);
    if (!s->indexed)
        return;
    s->indexed = false;
    map_remove(&c->source_by_name, s->hash, index);
    c->stageless_epics -= !s->stage;
}

static void source_set_name(struct source *s, mr_bytes scope, mr_bytes name) {
    memcpy(s->name, name.data, name.size);
    s->name_size = (uint8_t)name.size;
    if (scope.size)
        memcpy(s->scope, scope.data, scope.size);
    s->scope_size = (uint8_t)scope.size;
}

static void source_used(struct core *c, struct source *s, uint64_t now_ms) {
    s->idle_since_ms = now_ms;
    list_remove(&s->by_use);
    list_append(&c->sources_by_use, &s->by_use);
}

void source_finish(struct core *c, uint32_t index) {
    mem_free(source_at(c, index)->ids);
    orders_finish(c, index);
}

static void source_free(struct core *c, uint32_t index) {
    mem_free(source_at(c, index)->ids);
    source_at(c, index)->in_use = false;
    slab_give(&c->sources, index);
}

static void source_hide(struct core *c, uint32_t index) {
    struct source *s = source_at(c, index);
    orders_forget(c, index);
    source_unindex(c, index);
    source_set_stage(c, s, 0);
    map_remove(&c->source_by_number, number_hash(s->number), index);
    home_remove(c, s->at, s->size);
    s->size = 0;
    s->dropped = true;
    maker_remove(c, s->maker, source_made(s));
    s->maker = 0;
    list_remove(&s->by_use);
    mem_free(s->ids); // its numbers are not needed any more
    s->ids = NULL;
    watchers_notify_all(c, s);
}

void source_forget(struct core *c, uint32_t index) {
    source_hide(c, index);
    if (!source_at(c, index)->jobs)
        source_free(c, index);
}

// The least recently used source that may be forgotten now; 0: there is none. Only of that maker,
// unless it is 0.
static uint32_t source_least_used(struct core *c, uint32_t maker) {
    for (const struct list *l = c->sources_by_use.next; l != &c->sources_by_use;
         l = l->next, c->steps++) {
        const struct source *s = list_entry(l, struct source, by_use);
        if (s->idle_since_ms + c->limits.source_least_ms > c->now_ms)
            return 0; // all that follow were used later
        bool is_kept = s->seen.epic && s->size;
        if (!is_kept && (!maker || s->maker == maker))
            return source_find_number(c, s->number);
    }
    return 0;
}

// Epics are forgotten by command only.
static int source_check_quota(struct core *c, bool epic) {
    int err = quota_check(c, epic ? QUOTA_EPICS : QUOTA_SOURCES, 1);
    if (err == 0 || epic)
        return err;
    uint32_t least = maker_find(c) ? source_least_used(c, maker_find(c)) : 0;
    return least ? source_drop(c, least) : quota_check(c, QUOTA_SOURCES, 1);
}

// Dropped sources do not count, although their structs stay until their jobs are forgotten.
static int source_make_room(struct core *c, bool epic) {
    size_t known = map_count(&c->source_by_name), share = maker_share(c, c->limits.max_sources);
    uint32_t has = maker_count(c, MADE_SOURCE) + maker_count(c, MADE_EPIC);
    bool of_maker = c->maker && has >= share;
    int err = c->quota ? source_check_quota(c, epic) : 0;
    if (err < 0)
        return err;
    if (!of_maker && known < c->limits.max_sources)
        return 0;
    uint32_t least = source_least_used(c, of_maker ? maker_find(c) : 0);
    if (least)
        return source_drop(c, least);
    return of_maker
               ? error_set(MR_EFULL, "this token uses %zu sources and epics%s, its share of %u",
                           share, maker_where(c), c->limits.max_sources)
               : error_set(MR_EFULL, "%zu sources and epics are known, which is the limit", known);
}

static int check_names(const struct source_key *k) {
    if (!k->name.size || k->name.size > EPIC_NAME_MOST)
        return error_set(MR_EINVAL, "the name of %s has 1 to %d bytes, not %zu",
                         k->epic ? "an epic" : "a source", EPIC_NAME_MOST, k->name.size);
    if (k->scope.size > SCOPE_MOST)
        return error_set(MR_EINVAL, "a scope has up to %d bytes, not %zu", SCOPE_MOST,
                         k->scope.size);
    return 0;
}

// Records of older stores do not say which stage a source belongs to: its jobs do. An epic of which
// no job is known any more is without a stage. Names of epics were unique in the whole store then,
// so it is found by its name from any stage, until a push to it or a change of it is recorded for a
// stage: from then on it belongs to that stage. Queries do not change that.
static uint32_t source_find_or_stageless(const struct core *c, const struct source_key *k) {
    uint32_t index = source_find(c, k);
    if (index || !c->stageless_epics || !k->epic)
        return index;
    struct source_key stageless = { .epic = true, .name = k->name };
    return source_find(c, &stageless);
}

void source_adopt(struct core *c, uint32_t index, uint32_t stage) {
    if (source_at(c, index)->stage)
        return;
    source_unindex(c, index);
    source_set_stage(c, source_at(c, index), stage);
    source_index(c, index);
}

static int source_get_key(struct core *c, const struct source_key *k, uint32_t *out) {
    int err = check_names(k);
    if (err < 0)
        return err;
    uint32_t index = source_find_or_stageless(c, k);
    if (index && !source_at(c, index)->stage)
        err = map_reserve(&c->source_by_name, 1); // for source_adopt
    if (err < 0)
        return err;
    if (index) {
        *out = index;
        return 0;
    }
    if ((err = source_make_room(c, k->epic)) < 0)
        return err;
    if ((err = map_reserve(&c->source_by_name, 1)) < 0)
        return err;
    if ((err = source_create(c, c->next_source, k->epic, &index)) < 0)
        return err;
    struct source *s = source_at(c, index);
    source_set_stage(c, s, k->stage);
    source_set_name(s, k->scope, k->name);
    source_index(c, index);
    source_plan_sweep(c);
    *out = index;
    return 0;
}

static struct source_key source_key_of_push(const struct push *p, uint32_t stage) {
    return (struct source_key){ .stage = stage,
                                .epic = p->epic,
                                .scope = p->epic ? (mr_bytes){ 0 } : p->scope,
                                .name = p->source };
}

int source_get(struct core *c, const struct push *p, uint32_t stage, uint32_t *out) {
    struct source_key k = source_key_of_push(p, stage);
    return source_get_key(c, &k, out);
}

// ---- Numbers ----------------------------------------------------------------------------------

static bool bit_is_set(const struct source *s, uint64_t number) {
    uint64_t bit = number % SOURCE_WINDOW;
    return s->seen.bitmap[bit / 8] >> bit % 8 & 1;
}

static void set_bit(struct source *s, uint64_t number, bool on, uint64_t id) {
    uint64_t bit = number % SOURCE_WINDOW;
    uint8_t mask = (uint8_t)(1 << bit % 8);
    s->seen.bitmap[bit / 8] = (uint8_t)((s->seen.bitmap[bit / 8] & ~mask) | (on ? mask : 0));
    if (s->ids)
        s->ids[bit] = id;
}

bool source_has_seen(const struct source *s, uint64_t number) {
    if (number > s->seen.highest)
        return false;
    return number + SOURCE_WINDOW - MUTANT(number_window_off_by_one) <= s->seen.highest ||
           bit_is_set(s, number);
}

uint64_t source_id(const struct source *s, uint64_t number) {
    if (!s->ids || number + SOURCE_WINDOW <= s->seen.highest)
        return 0;
    return s->ids[number % SOURCE_WINDOW];
}

static uint64_t source_resume(const struct source *s) {
    uint64_t n = s->seen.highest >= SOURCE_WINDOW ? s->seen.highest - SOURCE_WINDOW + 1 : 1;
    while (n <= s->seen.highest && bit_is_set(s, n))
        n++;
    return n;
}

int source_keep_ids(struct source *s) {
    if (!s->ids)
        s->ids = mem_alloc(SOURCE_WINDOW * sizeof *s->ids);
    return s->ids ? 0 : error_set(MR_ENOMEM, "no memory for a source");
}

void source_see(struct source *s, uint64_t number, uint64_t id) {
    if (number + SOURCE_WINDOW <= s->seen.highest)
        return;
    uint64_t from = s->seen.highest + 1;
    if (number >= from + SOURCE_WINDOW)
        from = number - SOURCE_WINDOW + 1;
    for (uint64_t n = from; n < number; n++)
        set_bit(s, n, false, 0);
    set_bit(s, number, true, id);
    if (number > s->seen.highest)
        s->seen.highest = number;
}

// ---- Gaps: a refused number holds its source on that connection -------------------------------

// Sorted by source and number, so that a binary search finds the lowest of a source.
struct gap {
    uint64_t source, number;
};

// The index of the first gap at or after (source, number).
static uint32_t gap_at(const struct conn *conn, uint64_t source, uint64_t number) {
    uint32_t from = 0, behind = conn->gap_count;
    while (from < behind) {
        uint32_t half = from + (behind - from) / 2;
        const struct gap *g = &conn->gaps[half];
        if (g->source < source || (g->source == source && g->number < number))
            from = half + 1;
        else
            behind = half;
    }
    return from;
}

static bool is_gap_of(const struct conn *conn, uint32_t at, uint64_t source) {
    return at < conn->gap_count && conn->gaps[at].source == source;
}

static void gaps_cut(struct conn *conn, uint32_t from, uint32_t behind) {
    memmove(conn->gaps + from, conn->gaps + behind,
            (conn->gap_count - behind) * sizeof *conn->gaps);
    conn->gap_count -= behind - from;
}

// The lowest refused number below `number` that is still missing. Removes gaps that were filled,
// perhaps through another connection.
static const struct gap *gap_below(struct conn *conn, const struct source *s, uint64_t number) {
    uint32_t from = gap_at(conn, s->number, 0), behind = from;
    while (is_gap_of(conn, behind, s->number) && source_has_seen(s, conn->gaps[behind].number))
        behind++;
    if (behind > from)
        gaps_cut(conn, from, behind);
    bool below = is_gap_of(conn, from, s->number) && conn->gaps[from].number < number;
    return below ? &conn->gaps[from] : NULL;
}

static int check_refused(struct conn *conn, const struct source *s, uint64_t number) {
    if (conn && conn->gaps_over)
        return error_set(MR_EFULL,
                         "more than %d numbers were refused on this connection, and must be pushed "
                         "first: connect again",
                         GAPS_MOST);
    const struct gap *g = conn ? gap_below(conn, s, number) : NULL;
    if (!g || MUTANT(refused_number_holds_nothing))
        return 0;
    return error_set(MR_EGAP, "%" PRIu64 " was refused and must be pushed first", g->number);
}

static int check_ahead(const struct source *s, uint64_t number) {
    uint64_t resume = source_resume(s);
    if (number < resume + SOURCE_WINDOW)
        return 0;
    return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                     resume, number);
}

int source_check_new(const struct push *p, const struct source *s) {
    if (s->orders && s->orders->cancelled && !MUTANT(cancelled_epic_takes_pushes))
        return error_set(MR_ECANCELLED,
                         "epic '%.*s' was cancelled: EPIC … DROP it to use its name again",
                         s->name_size, s->name);
    int err = check_refused(p->conn, s, p->number);
    return err < 0 ? err : check_ahead(s, p->number);
}

static int gaps_reserve(struct conn *conn) {
    if (conn->gap_count < conn->gap_capacity)
        return 0;
    uint32_t capacity = conn->gap_capacity ? 2 * conn->gap_capacity : 4;
    struct gap *gaps = mem_resize(conn->gaps, capacity * sizeof *gaps);
    if (!gaps)
        return MR_ENOMEM;
    conn->gaps = gaps;
    conn->gap_capacity = capacity;
    return 0;
}

// This includes pushes that were refused before the source was looked at, for example for their
// size: the producer has already sent later numbers, and expects none of them to be accepted.
void source_refused(struct core *c, const struct push *p) {
    uint32_t stage = 0, index = 0;
    if (!p->conn || stage_get(c, p->stage, &stage) < 0 || source_get(c, p, stage, &index) < 0)
        return;
    const struct source *s = source_at(c, index);
    struct conn *conn = p->conn;
    uint32_t at = gap_at(conn, s->number, p->number);
    if (is_gap_of(conn, at, s->number) && conn->gaps[at].number == p->number)
        return;
    if (conn->gap_count == GAPS_MOST)
        conn->gaps_over = true; // no gap may be forgotten, so from now on all numbers are refused
    if (conn->gaps_over || gaps_reserve(conn) < 0)
        return; // without memory the producer alone must keep the order after this refusal
    memmove(conn->gaps + at + 1, conn->gaps + at, (conn->gap_count - at) * sizeof *conn->gaps);
    conn->gaps[at] = (struct gap){ s->number, p->number };
    conn->gap_count++;
}

// Finds the source without making one. 0: not known.
static uint32_t source_of_push(struct core *c, const struct push *p) {
    struct source_key k = source_key_of_push(p, stage_find(c, p->stage));
    return source_find_or_stageless(c, &k);
}

bool core_has_seen(struct core *c, const struct push *p) {
    uint32_t index = source_of_push(c, p);
    return index && source_has_seen(source_at(c, index), p->number);
}

uint64_t core_source_resume(struct core *c, const struct push *p) {
    uint32_t index = source_of_push(c, p);
    return index ? source_resume(source_at(c, index)) : 1;
}

void source_accepted(struct core *c, const struct push *p, uint32_t index) {
    struct source *s = source_at(c, index);
    source_used(c, s, c->now_ms);
    if (s->orders)
        epic_settle(c, index); // a number that made no job may be the last
    if (p->conn)
        (void)gap_below(p->conn, s, p->number); // removes filled gaps
}

void gaps_drop(struct core *c, struct conn *conn) {
    (void)c;
    mem_free(conn->gaps);
    conn->gaps = NULL;
    conn->gap_count = conn->gap_capacity = 0;
}

// ---- Progress ---------------------------------------------------------------------------------

// Replay: a stage is dropped only when it has no sources, so those still listed were forgotten
// without a record.
void stage_forget_sources(struct core *c, uint32_t number) {
    for (uint32_t i = 1; c->stages[number]->sources && i < c->sources.next_new; i++) {
        const struct source *s = source_at(c, i);
        if (s->in_use && !s->dropped && s->stage == number)
            source_forget(c, i);
    }
}

void source_attach(struct core *c, struct job *j, uint32_t index, uint64_t number) {
    struct attr *a = job_add_attr(c, j, ATTR_SOURCE);
    a->small = index;
    a->value = number;
    j->flags |= JOB_HAS_SOURCE;
    struct source *s = source_at(c, index);
    s->jobs++;
    if (!s->indexed && !s->dropped) // replay: older records do not name the stage
        source_set_stage(c, s, stage_of(c, j)->number);
}

void source_detach(struct core *c, uint32_t index) {
    struct source *s = source_at(c, index);
    if (!--s->jobs && s->dropped)
        source_free(c, index);
}

static uint64_t *counter(struct source *s, enum job_status status) {
    switch (status) {
    case JOB_DELAYED:
    case JOB_WAITING:
    case JOB_RUNNING:
        return &s->unended[status];
    case JOB_DONE:
        return &s->seen.done;
    case JOB_DEAD:
        return &s->seen.dead;
    case JOB_EXPIRED:
        return &s->seen.expired;
    case JOB_CANCELLED:
        return &s->seen.cancelled;
    }
    return NULL;
}

uint64_t source_unended(const struct source *s) {
    return s->unended[JOB_DELAYED] + s->unended[JOB_WAITING] + s->unended[JOB_RUNNING];
}

APART void source_count(struct core *c, struct job *j, enum job_status before,
                        enum job_status after) {
    struct source *s = source_at(c, job_attr(c, j, ATTR_SOURCE)->small);
    uint64_t *less = counter(s, before);
    *less -= *less > 0; // a SOURCE record may contain any count
    ++*counter(s, after);
    if (!list_empty(&s->watches.watchers))
        watchers_notify(c, s);
}

bool source_is_complete(const struct source *s) {
    uint64_t total = s->seen.total == EPIC_EMPTY ? 0 : s->seen.total;
    return (s->orders && s->orders->cancelled) || (s->seen.total && source_resume(s) > total);
}

// An epic is known once it has a record.
uint32_t source_find_epic(struct core *c, mr_bytes stage, mr_bytes name) {
    struct source_key k = { .stage = stage_find(c, stage), .epic = true, .name = name };
    uint32_t index = source_find_or_stageless(c, &k);
    return index && source_at(c, index)->size ? index : 0;
}

int epic_unknown(mr_bytes stage, mr_bytes name) {
    return error_set(MR_EGONE, "stage %.*s has no epic '%.*s'",
                     (int)(stage.size < STAGE_NAME_MOST ? stage.size : STAGE_NAME_MOST),
                     stage.size ? (const char *)stage.data : "",
                     (int)(name.size < EPIC_NAME_MOST ? name.size : EPIC_NAME_MOST),
                     name.size ? (const char *)name.data : "");
}

static mr_bytes epic_stage(const struct core *c, const struct source *s) {
    const struct stage *stage = s->stage ? c->stages[s->stage] : NULL;
    return stage ? bytes_of(stage->name, stage->name_size) : (mr_bytes){ 0 };
}

static struct epic_info epic_info_of(const struct core *c, const struct source *s) {
    uint64_t total = s->seen.total == EPIC_EMPTY ? 0 : s->seen.total;
    const struct epic_orders *o = s->orders;
    return (struct epic_info){
        .resume = source_resume(s),
        .total = total,
        .accepted = s->seen.accepted,
        .waiting = s->unended[JOB_DELAYED] + s->unended[JOB_WAITING],
        .running = s->unended[JOB_RUNNING],
        .done = s->seen.done,
        .dead = s->seen.dead,
        .cancelled = s->seen.cancelled,
        .expired = s->seen.expired,
        .expected = s->expected,
        .ended = s->seen.total,
        .over = source_is_over(s),
        .then = o ? o->then.stage : (mr_bytes){ 0 },
        .then_pushed = o && o->pushed,
        .stopped = o && o->cancelled,
        .forget_ms = o ? o->forget_ms : 0,
        .maker = maker_name(c, s->maker),
        .stage = epic_stage(c, s),
    };
}

int core_epic(struct core *c, mr_bytes stage, mr_bytes name, struct epic_info *out) {
    uint32_t index = source_find_epic(c, stage, name);
    if (!index)
        return epic_unknown(stage, name);
    *out = epic_info_of(c, source_at(c, index));
    return 0;
}

uint32_t core_epic_places(const struct core *c) {
    return c->sources.next_new;
}

int core_epic_place(struct core *c, mr_bytes stage, mr_bytes name, uint32_t *out) {
    uint32_t index = source_find_epic(c, stage, name);
    if (!index)
        return epic_unknown(stage, name);
    *out = index;
    return 0;
}

bool core_epic_at(const struct core *c, uint32_t place, mr_bytes *out_stage, mr_bytes *out_name) {
    if (!place || place >= c->sources.next_new)
        return false;
    const struct source *s = source_at(c, place);
    if (!s->in_use || s->dropped || !s->seen.epic || !s->size)
        return false;
    *out_stage = epic_stage(c, s);
    *out_name = bytes_of(s->name, s->name_size);
    return true;
}

void core_epic_look_at(struct core *c, uint32_t place, struct epic_info *out) {
    c->steps += STEPS_EPIC;
    *out = epic_info_of(c, source_at(c, place));
}

void source_set_home(struct core *c, struct source *s, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, s->at, s->size);
    s->at = at;
    s->size = size;
}

static int source_write(struct core *c, struct source *s, uint32_t stage, enum room room) {
    struct record_about about;
    struct record r = record_of_source(c, s, stage, &about);
    int err = out_write(c, &r, room);
    if (err < 0)
        return err;
    source_set_home(c, s, c->out.at[0], out_size(c, 0));
    return 0;
}

void source_add_note(struct core *c, uint32_t index, uint32_t stage, uint64_t number, uint64_t id) {
    struct source *s = source_at(c, index);
    struct record_source before = s->seen;
    uint64_t *ids = s->ids;
    s->ids = NULL; // keeps the table of ids unchanged until the record is written
    source_see(s, number, id);
    struct record_about about;
    struct record r = record_of_source(c, s, stage, &about);
    out_add(c, &r, (mr_bytes){ 0 });
    s->seen = before;
    s->ids = ids;
}

void source_noted(struct core *c, uint32_t index, uint32_t stage, uint64_t number, uint64_t id,
                  size_t entry) {
    struct source *s = source_at(c, index);
    source_set_home(c, s, c->out.at[entry], out_size(c, entry));
    source_adopt(c, index, stage);
    source_see(s, number, id);
    watchers_notify_all(c, s);
}

int source_note(struct core *c, uint32_t index, uint32_t stage, uint64_t number, uint64_t id) {
    int err = source_keep_ids(source_at(c, index));
    if (err < 0)
        return err;
    if ((err = out_begin(c, 1, 0)) < 0)
        return err;
    source_add_note(c, index, stage, number, id);
    if ((err = out_commit(c, ROOM_COMMIT)) < 0)
        return err;
    source_noted(c, index, stage, number, id, 0);
    return 0;
}

int epic_get(struct core *c, mr_bytes stage, mr_bytes name, uint32_t *out_stage, uint32_t *out) {
    struct source_key k = { .epic = true, .name = name };
    int err = stage_get_if_room(c, stage, &k.stage);
    if (err == 0)
        err = source_get_key(c, &k, out);
    if (err == 0)
        *out_stage = k.stage;
    return err;
}

// Writes the record of an epic, and what its end brings about, if it has ended.
static int epic_write(struct core *c, uint32_t index, uint32_t number, bool was_over,
                      struct epic_finish *f) {
    struct source *s = source_at(c, index);
    struct record_about about;
    size_t records = 1, bytes = RECORD_MAX;
    int err = epic_finish_source(c, index, was_over, f);
    if (err < 0)
        return err;
    epic_finish_sizes(f, &records, &bytes);
    if ((err = out_begin(c, records, bytes)) < 0)
        return epic_finish_written(c, f, err);
    struct record r = record_of_source(c, s, number, &about);
    out_add(c, &r, (mr_bytes){ 0 });
    epic_finish_add(c, f);
    err = out_commit(c, ROOM_COMMIT);
    if (err == 0) {
        source_set_home(c, s, c->out.at[0], out_size(c, 0));
        source_adopt(c, index, number);
    }
    return epic_finish_written(c, f, err);
}

// Records a change of an epic, and its stage if that is new; on failure the epic is unchanged.
static int epic_change(struct core *c, uint32_t index, uint32_t number, uint64_t total,
                       uint64_t skip) {
    struct stage *stage = c->stages[number];
    struct source *s = source_at(c, index);
    int err = stage->recorded ? 0 : stage_record(c, stage, ROOM_COMMIT);
    if (err < 0)
        return err;
    struct record_source before = s->seen;
    bool was_over = source_is_over(s);
    if (total)
        s->seen.total = total;
    if (skip && !source_has_seen(s, skip))
        source_see(s, skip, 0);
    struct epic_finish f = { 0 };
    if ((err = epic_write(c, index, number, was_over, &f)) < 0) {
        s->seen = before;
        return err;
    }
    epic_finish_apply(c, &f);
    watchers_notify_all(c, s);
    settle(c);
    return 0;
}

int epic_refused(struct core *c, uint64_t first_new, mr_bytes stage, int err) {
    uint32_t made = source_find_number(c, first_new);
    if (made)
        source_forget(c, made);
    stage_forget_unused(c, stage);
    return err;
}

static int epic_end_try(struct core *c, mr_bytes stage, mr_bytes name, uint64_t total) {
    uint32_t index = 0, of = 0;
    int err = epic_get(c, stage, name, &of, &index);
    if (err < 0)
        return err;
    struct source *s = source_at(c, index);
    if (total < s->seen.highest)
        return error_set(MR_EINVAL,
                         "number %" PRIu64 " of this epic is there: it can not end with %" PRIu64,
                         s->seen.highest, total);
    return epic_change(c, index, of, total ? total : EPIC_EMPTY, 0);
}

int core_epic_end(struct core *c, mr_bytes stage, mr_bytes name, uint64_t total) {
    if (total > NUMBER_MOST)
        return error_set(MR_EINVAL, "no epic has %" PRIu64 " pushes: %" PRIu64 " at most", total,
                         NUMBER_MOST);
    uint64_t next = c->next_source;
    int err = epic_end_try(c, stage, name, total);
    return err < 0 ? epic_refused(c, next, stage, err) : 0;
}

static int epic_skip_try(struct core *c, mr_bytes stage, mr_bytes name, uint64_t number) {
    uint32_t index = 0, of = 0;
    int err = epic_get(c, stage, name, &of, &index);
    if (err < 0)
        return err;
    err = check_ahead(source_at(c, index), number);
    return err < 0 ? err : epic_change(c, index, of, 0, number);
}

int core_epic_skip(struct core *c, mr_bytes stage, mr_bytes name, uint64_t number) {
    if (number == 0)
        return error_set(MR_EINVAL, "numbers of an epic start at 1");
    uint64_t next = c->next_source;
    int err = epic_skip_try(c, stage, name, number);
    return err < 0 ? epic_refused(c, next, stage, err) : 0;
}

void core_epic_expect(struct core *c, mr_bytes stage, mr_bytes name, uint64_t total) {
    uint32_t index = source_find_epic(c, stage, name);
    if (index)
        source_at(c, index)->expected = total;
}

// This is recorded, so that after a restart its numbers are not applied to a later source of its
// name.
int source_drop(struct core *c, uint32_t index) {
    struct record r = { .kind = RECORD_SOURCE_DROP,
                        .time_ms = c->now_ms,
                        .source = source_at(c, index)->number };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    source_forget(c, index);
    return 0;
}

int core_epic_drop(struct core *c, mr_bytes stage, mr_bytes name) {
    uint32_t index = source_find_epic(c, stage, name);
    if (!index)
        return epic_unknown(stage, name);
    return source_drop(c, index);
}

// ---- Records, forgetting ----------------------------------------------------------------------

int source_record(struct core *c, struct source *s, enum room room) {
    return source_write(c, s, s->stage, room);
}

static struct source_key source_key_of_record(const struct record *r) {
    return (struct source_key){ .stage = r->kind == RECORD_SOURCE ? r->stage : 0,
                                .epic = r->about->source.epic,
                                .scope = r->key,
                                .name = r->name };
}

// Whether another source has this name, or this source has another name.
static bool is_named_otherwise(const struct core *c, const struct record *r) {
    struct source_key k = source_key_of_record(r);
    uint32_t index = source_find_number(c, r->source), found = source_find(c, &k);
    const struct source *s = index ? source_at(c, index) : NULL;
    if (!s || !s->name_size)
        return found;
    return s->indexed ? found != index : !bytes_equal(bytes_of(s->name, s->name_size), r->name);
}

int source_check(const struct core *c, const struct record *r) {
    if (!r->source)
        return error_set(MR_ECORRUPT, "a record names source 0");
    if (!r->name.size || r->name.size > EPIC_NAME_MOST)
        return error_set(MR_ECORRUPT, "a source's name of %zu bytes", r->name.size);
    if (r->key.size > SCOPE_MOST)
        return error_set(MR_ECORRUPT, "a source's scope of %zu bytes", r->key.size);
    if (is_named_otherwise(c, r))
        return error_set(MR_ECORRUPT, "source %" PRIu64 " has another's name", r->source);
    const struct record_source *seen = &r->about->source;
    if (seen->highest > NUMBER_MOST || (seen->total > NUMBER_MOST && seen->total != EPIC_EMPTY))
        return error_set(MR_ECORRUPT, "source %" PRIu64 " counts too far", r->source);
    return 0;
}

// Applies a SOURCE record; the name and the maker of a source never change.
static int source_restore_all(struct core *c, uint32_t index, const struct record *r) {
    struct source *s = source_at(c, index);
    struct stage *stage;
    int err = r->kind == RECORD_SOURCE ? stage_get_number(c, r->stage, &stage) : 0;
    if (err == 0)
        err = map_reserve(&c->source_by_name, 1);
    if (err == 0)
        err = maker_reserve(c, r->maker);
    if (err < 0)
        return err;
    uint32_t before = s->maker;
    enum made was = source_made(s); // a damaged store may say otherwise now
    uint64_t maker = s->name_size ? maker_name(c, before) : r->maker;
    if (!s->name_size)
        source_set_name(s, r->key, r->name);
    s->seen = r->about->source;
    s->maker = maker_add(c, maker, source_made(s));
    maker_remove(c, before, was);
    if (r->kind != RECORD_SOURCE || s->indexed)
        return 0;
    source_set_stage(c, s, r->stage);
    source_index(c, index);
    return 0;
}

// Finds or makes the source that a record names.
int source_restore(struct core *c, const struct record *r, uint32_t *out) {
    uint32_t index = source_find_number(c, r->source);
    int err = index ? 0 : source_create(c, r->source, false, &index);
    if (err < 0)
        return err;
    struct source *s = source_at(c, index);
    if (r->kind == RECORD_SOURCE || r->kind == RECORD_SOURCE_OLD)
        err = source_restore_all(c, index, r);
    if (err < 0)
        return err;
    if (r->time_ms > s->idle_since_ms)
        source_used(c, s, r->time_ms);
    *out = index;
    return 0;
}

// After replay the stage of each source is known, so it can be indexed. A source without a record,
// and a client's source without a stage, cannot be named any more: it is forgotten, and its jobs
// stay.
int sources_open(struct core *c) {
    int err = map_reserve(&c->source_by_name, c->sources.used);
    for (uint32_t i = 1; err == 0 && i < c->sources.next_new; i++) {
        const struct source *s = source_at(c, i);
        if (!s->in_use || s->dropped)
            continue;
        struct source_key k = source_key_of(s);
        if (s->stage && !c->stages[s->stage]->name_size)
            return error_set(MR_ECORRUPT,
                             "source %" PRIu64 " is of stage %u, whose record is missing",
                             s->number, s->stage);
        if (s->indexed)
            continue;
        if (!s->name_size || (!s->stage && !s->seen.epic))
            source_forget(c, i);
        else if (source_find(c, &k))
            return error_set(MR_ECORRUPT, "source %" PRIu64 " has another's name", s->number);
        else
            source_index(c, i);
    }
    return err;
}

// An epic without a record may be forgotten like a client's source.
static bool source_is_idle(const struct core *c, const struct source *s) {
    bool is_kept = s->dropped || (s->seen.epic && s->size);
    return !is_kept && s->idle_since_ms + c->limits.source_idle_ms <= c->now_ms;
}

void source_plan_sweep(struct core *c) {
    if (c->sources_timer || c->replaying || heap_reserve(&c->timers, 1) < 0)
        return;
    c->sources_timer = true;
    heap_put(&c->timers, c->now_ms + c->limits.source_idle_ms, timer_value(TIMER_SOURCES, 1));
}

enum { SOURCES_SWEPT = 8 }; // at the cost of one timer

static void source_sweep_one(struct core *c, uint32_t index) {
    const struct source *s = source_at(c, index);
    if (!s->in_use)
        return;
    if (!source_is_idle(c, s)) {
        c->sources_kept = true;
        return;
    }
    due_spend(c, 1);
    if (source_drop(c, index) < 0)
        c->sources_kept = true;
}

// Looks at some sources. False: there are more.
static bool source_sweep_some(struct core *c) {
    uint32_t end = c->swept + 1 + SOURCES_SWEPT;
    if (end > c->sources.next_new)
        end = c->sources.next_new;
    for (uint32_t i = c->swept + 1; i < end; i++, c->swept++)
        source_sweep_one(c, i);
    return end == c->sources.next_new;
}

// Drops idle sources of clients; epics are kept until dropped. A drop that fails is retried by the
// next sweep. Each call looks at a few sources; while there are more, the timer is due again.
void source_sweep(struct core *c) {
    if (!source_sweep_some(c)) {
        heap_put(&c->timers, c->now_ms, timer_value(TIMER_SOURCES, 1)); // one was just popped
        return;
    }
    bool again = c->sources_kept;
    c->sources_timer = c->sources_kept = false;
    c->swept = 0;
    if (again)
        source_plan_sweep(c);
}
