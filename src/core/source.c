// Sources: whoever numbers its pushes. A shard keeps the highest number of each and which of the
// last SOURCE_WINDOW it has seen, so that a number met again makes no second job, for ever, at a
// few bytes a source. An epic is a source with a name, an end and progress.
#include "core/state.h"

#include "base/errors.h"
#include "base/mem.h"

#include <inttypes.h>

static bool source_has_name(const void *owner, uint32_t number, const void *name) {
    const struct source *s = source_at(owner, number);
    return bytes_equal(bytes_of(s->name, s->name_size), *(const mr_bytes *)name);
}

static uint32_t source_find(const struct core *c, mr_bytes name) {
    return map_find(&c->source_by_name, (uint32_t)bytes_hash(name, 0), source_has_name, c, &name);
}

static bool source_has_number(const void *owner, uint32_t number, const void *wanted) {
    return source_at(owner, number)->number == *(const uint64_t *)wanted;
}

uint32_t source_find_number(const struct core *c, uint64_t number) {
    return map_find(&c->source_by_number, number_hash(number), source_has_number, c, &number);
}

// Makes a source; nameless until its record is met, when replaying.
static int source_create(struct core *c, uint64_t number, uint32_t *out) {
    int err = map_reserve(&c->source_by_number, 1);
    if (err < 0)
        return err;
    if ((err = slab_reserve(&c->sources, 1)) < 0)
        return err;
    uint32_t index = slab_take(&c->sources);
    struct source *s = source_at(c, index);
    s->number = number;
    s->in_use = true;
    s->maker = c->maker;
    s->idle_since_ms = c->now_ms;
    list_append(&c->sources_by_use, &s->by_use);
    map_put(&c->source_by_number, number_hash(number), index);
    if (number >= c->next_source)
        c->next_source = number + 1;
    *out = index;
    return 0;
}

static int source_name_it(struct core *c, uint32_t index, mr_bytes name) {
    int err = map_reserve(&c->source_by_name, 1);
    if (err < 0)
        return err;
    struct source *s = source_at(c, index);
    memcpy(s->name, name.data, name.size);
    s->name_size = (uint8_t)name.size;
    s->hash = (uint32_t)bytes_hash(name, 0);
    map_put(&c->source_by_name, s->hash, index);
    return 0;
}

static void source_used(struct core *c, struct source *s, uint64_t now_ms) {
    s->idle_since_ms = now_ms;
    list_remove(&s->by_use);
    list_append(&c->sources_by_use, &s->by_use);
}

static void source_free(struct core *c, uint32_t index) {
    mem_free(source_at(c, index)->ids);
    source_at(c, index)->in_use = false;
    slab_give(&c->sources, index);
}

static void source_set_stage(struct core *, struct source *, uint32_t stage);

static void source_hide(struct core *c, uint32_t index) {
    struct source *s = source_at(c, index);
    if (s->name_size)
        map_remove(&c->source_by_name, s->hash, index);
    map_remove(&c->source_by_number, number_hash(s->number), index);
    home_remove(c, s->at, s->size);
    s->size = 0;
    s->dropped = true;
    list_remove(&s->by_use);
    mem_free(s->ids); // no number of it is asked for any more
    s->ids = NULL;
    source_set_stage(c, s, 0);
    watchers_tell_all(c, s);
}

void source_forget(struct core *c, uint32_t index) {
    source_hide(c, index);
    if (!source_at(c, index)->jobs)
        source_free(c, index);
}

static int source_drop(struct core *, uint32_t index);

// A client's source that nobody has used for a while, unused for longest; 0: there is none. Of that
// maker only, unless it is 0.
static uint32_t source_least_used(const struct core *c, uint64_t maker) {
    for (const struct list *l = c->sources_by_use.next; l != &c->sources_by_use; l = l->next) {
        const struct source *s = list_entry(l, struct source, by_use);
        if (s->idle_since_ms + c->limits.source_least_ms > c->now_ms)
            return 0; // as are all that follow
        bool is_kept = s->seen.epic && s->size;
        if (!is_kept && (!maker || s->maker == maker))
            return source_find_number(c, s->number);
    }
    return 0;
}

static uint32_t sources_of_maker(const struct core *c) {
    uint32_t count = 0;
    for (const struct list *l = c->sources_by_use.next; l != &c->sources_by_use; l = l->next)
        count += list_entry(l, struct source, by_use)->maker == c->maker;
    return count;
}

// Those that were dropped do not count: their jobs do.
static int source_make_room(struct core *c) {
    size_t known = map_count(&c->source_by_name),
           share = c->limits.max_sources / c->limits.maker_part;
    bool of_maker = c->maker && known >= share && sources_of_maker(c) >= share;
    if (!of_maker && known < c->limits.max_sources)
        return 0;
    uint32_t least = source_least_used(c, of_maker ? c->maker : 0);
    if (least)
        return source_drop(c, least);
    return of_maker
               ? error_set(MR_EFULL, "this token uses %zu sources and epics, its share of %u",
                           share, c->limits.max_sources)
               : error_set(MR_EFULL, "%zu sources and epics are known, which is the limit", known);
}

int source_get(struct core *c, mr_bytes name, bool epic, uint32_t *out) {
    if (!name.size || name.size > EPIC_NAME_MOST)
        return error_set(MR_EINVAL, "a source's name has 1 to %d bytes, not %zu", EPIC_NAME_MOST,
                         name.size);
    uint32_t found = source_find(c, name);
    if (found) {
        *out = found;
        return 0;
    }
    uint32_t index = 0;
    int err = source_make_room(c);
    if (err < 0)
        return err;
    if ((err = source_create(c, c->next_source, &index)) < 0)
        return err;
    if ((err = source_name_it(c, index, name)) < 0) {
        source_forget(c, index);
        return err;
    }
    source_at(c, index)->seen.epic = epic;
    source_plan_sweep(c);
    *out = index;
    return 0;
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
    return number + SOURCE_WINDOW <= s->seen.highest || bit_is_set(s, number);
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

// They are kept in order of source and number, so that the lowest of a source is found by halving.
struct gap {
    uint64_t source, number;
};

// Where the first stands that is not before it.
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

// The lowest refused number that is still missing, below `number`. Those before it that came
// another way meanwhile are no gaps any more.
static const struct gap *gap_below(struct conn *conn, const struct source *s, uint64_t number) {
    uint32_t from = gap_at(conn, s->number, 0), behind = from;
    while (is_gap_of(conn, behind, s->number) && source_has_seen(s, conn->gaps[behind].number))
        behind++;
    if (behind > from)
        gaps_cut(conn, from, behind);
    bool below = is_gap_of(conn, from, s->number) && conn->gaps[from].number < number;
    return below ? &conn->gaps[from] : NULL;
}

// With others, what is missing here may be there.
static bool is_alone(const struct core *c) {
    return c->config.shards == 1;
}

static int check_refused(struct conn *conn, const struct source *s, uint64_t number) {
    if (conn && conn->gaps_over)
        return error_set(MR_EFULL,
                         "more than %d numbers were refused on this connection, and must be pushed "
                         "first: connect again",
                         GAPS_MOST);
    const struct gap *g = conn ? gap_below(conn, s, number) : NULL;
    if (!g)
        return 0;
    return error_set(MR_EGAP, "%" PRIu64 " was refused and must be pushed first", g->number);
}

int core_check_gap(const struct core *c, struct conn *conn, mr_bytes source, uint64_t number) {
    uint32_t index = source_find(c, source);
    return index ? check_refused(conn, source_at(c, index), number) : 0;
}

bool core_has_seen(struct core *c, mr_bytes source, uint64_t number) {
    uint32_t index = source_find(c, source);
    if (!index)
        return false;
    source_used(c, source_at(c, index), c->now_ms);
    return source_has_seen(source_at(c, index), number);
}

int source_check_gap(const struct core *c, const struct push *p, const struct source *s) {
    int err = check_refused(p->conn, s, p->number);
    if (err < 0)
        return err;
    uint64_t resume = source_resume(s);
    if (is_alone(c) && p->number >= resume + SOURCE_WINDOW)
        return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                         resume, p->number);
    return 0;
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

// Also one that was not looked at, for its size say: whoever sent it has sent more behind it, and
// counts none of those as accepted.
void source_refused(struct core *c, const struct push *p) {
    uint32_t index = 0;
    if (!p->conn || source_get(c, p->source, p->epic, &index) < 0)
        return;
    const struct source *s = source_at(c, index);
    struct conn *conn = p->conn;
    uint32_t at = gap_at(conn, s->number, p->number);
    if (is_gap_of(conn, at, s->number) && conn->gaps[at].number == p->number)
        return;
    if (conn->gap_count == GAPS_MOST)
        conn->gaps_over = true; // none is forgotten: from now on all numbers are refused
    if (conn->gaps_over || gaps_reserve(conn) < 0)
        return; // without memory order over this refusal rests on the producer alone
    memmove(conn->gaps + at + 1, conn->gaps + at, (conn->gap_count - at) * sizeof *conn->gaps);
    conn->gaps[at] = (struct gap){ s->number, p->number };
    conn->gap_count++;
}

void source_accepted(struct core *c, const struct push *p, struct source *s) {
    source_used(c, s, c->now_ms);
    if (p->conn)
        (void)gap_below(p->conn, s, p->number); // drops what it has filled
}

void gaps_drop(struct core *c, struct conn *conn) {
    (void)c;
    mem_free(conn->gaps);
    conn->gaps = NULL;
    conn->gap_count = conn->gap_capacity = 0;
}

// ---- Progress ---------------------------------------------------------------------------------

static void source_set_stage(struct core *c, struct source *s, uint32_t stage) {
    if (s->stage == stage)
        return;
    if (s->stage)
        c->stages[s->stage]->sources--;
    if (stage)
        c->stages[stage]->sources++;
    s->stage = stage;
}

void stage_let_sources_go(struct core *c, uint32_t number) {
    for (uint32_t i = 1; c->stages[number]->sources && i < c->sources.next_new; i++)
        if (source_at(c, i)->in_use && source_at(c, i)->stage == number)
            source_set_stage(c, source_at(c, i), 0);
}

void source_attach(struct core *c, struct job *j, uint32_t index, uint64_t number) {
    struct attr *a = job_add_attr(c, j, ATTR_SOURCE);
    a->small = index;
    a->value = number;
    j->flags |= JOB_HAS_SOURCE;
    struct source *s = source_at(c, index);
    s->jobs++;
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
    *less -= *less > 0; // a SOURCE record may have said anything
    ++*counter(s, after);
    if (!list_empty(&s->watches.watchers))
        watchers_tell(c, s);
}

// An epic is known once something of it was accepted.
uint32_t epic_find(const struct core *c, mr_bytes name) {
    uint32_t index = source_find(c, name);
    return index && source_at(c, index)->seen.epic && source_at(c, index)->size ? index : 0;
}

int epic_unknown(mr_bytes name) {
    return error_set(MR_EGONE, "no epic '%.*s' is known",
                     (int)(name.size < ONCE_MOST ? name.size : ONCE_MOST),
                     name.size ? (const char *)name.data : "");
}

static struct epic_info epic_look(const struct core *c, const struct source *s) {
    uint64_t total = s->seen.total == EPIC_EMPTY ? 0 : s->seen.total, resume = source_resume(s);
    const struct stage *stage = s->stage ? c->stages[s->stage] : NULL;
    return (struct epic_info){
        .resume = resume,
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
        .over = s->seen.total && resume > total && !source_unended(s),
        .stage = stage ? bytes_of(stage->name, stage->name_size) : (mr_bytes){ 0 },
    };
}

int core_epic(struct core *c, mr_bytes name, struct epic_info *out) {
    uint32_t index = epic_find(c, name);
    if (!index)
        return epic_unknown(name);
    *out = epic_look(c, source_at(c, index));
    return 0;
}

// ---- Several shards' numbers together ---------------------------------------------------------

_Static_assert(sizeof((struct epic_seen *)0)->bitmap == SOURCE_BITMAP, "a whole window");

static int seen_by(const struct core *c, uint32_t index, struct epic_seen *out) {
    if (!index)
        return error_set(MR_EGONE, "nothing of that name is known");
    const struct record_source *seen = &source_at(c, index)->seen;
    out->highest = seen->highest;
    memcpy(out->bitmap, seen->bitmap, sizeof out->bitmap);
    return 0;
}

int core_epic_seen(struct core *c, mr_bytes name, struct epic_seen *out) {
    return seen_by(c, epic_find(c, name), out);
}

int core_source_seen(struct core *c, mr_bytes name, struct epic_seen *out) {
    return seen_by(c, source_find(c, name), out);
}

static uint64_t window_begin(uint64_t highest) {
    return highest >= SOURCE_WINDOW ? highest - SOURCE_WINDOW + 1 : 1;
}

static bool seen_in(const struct epic_seen *s, uint64_t n) {
    uint64_t bit = n % SOURCE_WINDOW;
    return n <= s->highest && n >= window_begin(s->highest) && s->bitmap[bit / 8] >> bit % 8 & 1;
}

void epic_seen_add(struct epic_seen *all, const struct epic_seen *more) {
    uint64_t highest = all->highest > more->highest ? all->highest : more->highest;
    struct epic_seen sum = { .highest = highest };
    for (uint64_t n = window_begin(highest); n <= highest; n++)
        if (seen_in(all, n) || seen_in(more, n))
            sum.bitmap[n % SOURCE_WINDOW / 8] |= (uint8_t)(1 << n % 8);
    *all = sum;
}

// Below the window nothing is missing: no producer runs further ahead.
uint64_t epic_seen_resume(const struct epic_seen *s) {
    uint64_t n = window_begin(s->highest);
    while (n <= s->highest && seen_in(s, n))
        n++;
    return n;
}

void core_fill_gaps(const struct core *c, struct conn *conn, mr_bytes source,
                    const struct epic_seen *seen) {
    uint32_t index = source_find(c, source);
    uint64_t number = index ? source_at(c, index)->number : 0;
    uint32_t at = index ? gap_at(conn, number, 0) : conn->gap_count;
    while (is_gap_of(conn, at, number)) {
        uint64_t gap = conn->gaps[at].number;
        if (gap < window_begin(seen->highest) || seen_in(seen, gap))
            gaps_cut(conn, at, at + 1);
        else
            at++;
    }
}

int core_each_epic(struct core *c, mr_bytes from,
                   int (*each)(void *, mr_bytes name, const struct epic_info *), void *arg) {
    uint32_t first = from.size ? epic_find(c, from) : 0;
    if (from.size && !first)
        return epic_unknown(from);
    int stop = 0;
    for (uint32_t i = first + 1; !stop && i < c->sources.next_new; i++) {
        const struct source *s = source_at(c, i);
        if (!s->in_use || s->dropped || !s->seen.epic || !s->size)
            continue;
        struct epic_info info = epic_look(c, s);
        stop = each(arg, bytes_of(s->name, s->name_size), &info);
    }
    return stop;
}

int source_note(struct core *c, struct source *s, uint64_t number, uint64_t id) {
    int err = source_keep_ids(s);
    if (err < 0)
        return err;
    struct record_source before = s->seen;
    uint64_t *ids = s->ids;
    s->ids = NULL; // they follow once it is written down
    source_see(s, number, id);
    err = source_record(c, s, ROOM_COMMIT);
    s->seen = before;
    s->ids = ids;
    if (err < 0)
        return err;
    source_see(s, number, id);
    watchers_tell_all(c, s);
    return 0;
}

// Changes an epic and writes it down; on failure it is as it was.
static int epic_change(struct core *c, mr_bytes name, uint64_t total, uint64_t skip) {
    uint32_t index = 0;
    int err = source_get(c, name, true, &index);
    if (err < 0)
        return err;
    struct source *s = source_at(c, index);
    struct record_source before = s->seen;
    if (total)
        s->seen.total = total;
    if (skip && !source_has_seen(s, skip))
        source_see(s, skip, 0);
    s->seen.epic = true;
    if ((err = source_record(c, s, ROOM_COMMIT)) < 0)
        s->seen = before;
    else
        watchers_tell_all(c, s);
    return err;
}

int epic_check_end(const struct epic_seen *s, uint64_t total) {
    if (total >= s->highest)
        return 0;
    return error_set(MR_EINVAL,
                     "number %" PRIu64 " of this epic is there: it can not end with %" PRIu64,
                     s->highest, total);
}

int core_epic_end(struct core *c, mr_bytes name, uint64_t total) {
    if (total == EPIC_EMPTY)
        return error_set(MR_EINVAL, "no epic has so many pushes");
    struct epic_seen seen = { 0 };
    if (is_alone(c) && core_epic_seen(c, name, &seen) >= 0) {
        int err = epic_check_end(&seen, total);
        if (err < 0)
            return err;
    }
    return epic_change(c, name, total ? total : EPIC_EMPTY, 0);
}

int core_epic_skip(struct core *c, mr_bytes name, uint64_t number) {
    if (number == 0)
        return error_set(MR_EINVAL, "numbers of an epic start at 1");
    uint32_t index = source_find(c, name);
    uint64_t resume = index ? source_resume(source_at(c, index)) : 1;
    if (is_alone(c) && number >= resume + SOURCE_WINDOW)
        return error_set(MR_EGAP, "%" PRIu64 " is missing, and %" PRIu64 " is too far ahead of it",
                         resume, number);
    return epic_change(c, name, 0, number);
}

void core_epic_expect(struct core *c, mr_bytes name, uint64_t total) {
    uint32_t index = epic_find(c, name);
    if (index)
        source_at(c, index)->expected = total;
}

// Written down, so that after a restart its numbers are not those of a later one of its name.
static int source_drop(struct core *c, uint32_t index) {
    struct record r = { .kind = RECORD_SOURCE_DROP,
                        .time_ms = c->now_ms,
                        .source = source_at(c, index)->number };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    source_forget(c, index);
    return 0;
}

int core_epic_drop(struct core *c, mr_bytes name) {
    uint32_t index = epic_find(c, name);
    if (!index)
        return epic_unknown(name);
    return source_drop(c, index);
}

// ---- Records, forgetting ----------------------------------------------------------------------

void source_set_home(struct core *c, struct source *s, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, s->at, s->size);
    s->at = at;
    s->size = size;
}

int source_record(struct core *c, struct source *s, enum room room) {
    struct record_about about;
    struct record r = record_of_source(c, s, &about);
    int err = out_write(c, &r, room);
    if (err < 0)
        return err;
    source_set_home(c, s, c->out.at[0], out_size(c, 0));
    return 0;
}

int source_check(const struct core *c, const struct record *r) {
    if (!r->source)
        return error_set(MR_ECORRUPT, "a record names source 0");
    if (!r->name.size || r->name.size > sizeof((struct source *)0)->name)
        return error_set(MR_ECORRUPT, "a source's name of %zu bytes", r->name.size);
    uint32_t index = source_find_number(c, r->source), found = source_find(c, r->name);
    bool is_named = index && source_at(c, index)->name_size;
    if (found ? found != index : is_named)
        return error_set(MR_ECORRUPT, "source %" PRIu64 " has another's name", r->source);
    const struct record_source *seen = &r->about->source;
    if (seen->highest > NUMBER_MOST || (seen->total > NUMBER_MOST && seen->total != EPIC_EMPTY))
        return error_set(MR_ECORRUPT, "source %" PRIu64 " counts too far", r->source);
    return 0;
}

// Finds or makes the source that a record names; a SOURCE record says everything about it.
int source_restore(struct core *c, const struct record *r, uint32_t *out) {
    uint32_t index = source_find_number(c, r->source);
    if (!index) {
        int err = source_create(c, r->source, &index);
        if (err < 0)
            return err;
    }
    struct source *s = source_at(c, index);
    if (r->kind == RECORD_SOURCE) {
        if (!s->name_size) {
            int err = source_name_it(c, index, r->name);
            if (err < 0)
                return err;
        }
        s->seen = r->about->source;
    }
    if (r->time_ms > s->idle_since_ms)
        source_used(c, s, r->time_ms);
    *out = index;
    return 0;
}

// An epic of which nothing was ever accepted is none.
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

// Epics are kept until dropped; a client's source only while it is used. One that cannot be dropped
// now is tried again with the next sweep.
void source_sweep(struct core *c) {
    c->sources_timer = false;
    bool any = false;
    for (uint32_t i = 1; i < c->sources.next_new; i++) {
        struct source *s = source_at(c, i);
        if (!s->in_use)
            continue;
        if (!source_is_idle(c, s) || source_drop(c, i) < 0)
            any = true;
    }
    if (any)
        source_plan_sweep(c);
}
