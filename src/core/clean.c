// Cleaning: records that are still needed are copied to the tail of the log, so that the head can
// be trimmed. An entry is needed if it is the home of something (record.h); the copy becomes the
// home.
#include "core/epic.h"
#include "core/link.h"

#include "base/mutant.h"

// Writes one copy; its position and size are then out.at[0] and out_size(0).
static int write_copy(struct core *c, struct record *r, mr_bytes body) {
    r->copy = true;
    r->time_ms = c->now_ms;
    int err = out_begin(c, 1, 0);
    if (err < 0)
        return err;
    out_add(c, r, body);
    return out_commit(c, ROOM_CLEAN);
}

static int clean_job(struct core *c, mr_bytes body, uint32_t number) {
    struct job *j = job_at(c, number);
    struct record r = record_of_job(c, j);
    r.copy = true;
    int err = slab_reserve(&c->attrs, 1);
    if (err < 0)
        return err;
    err = job_attr(c, j, ATTR_REASONS) ? reasons_of(c, j, &c->reasons) : MR_EGONE;
    if (err == MR_EAGAIN)
        return err; // they are being read
    bool failed = err == 0;
    if ((err = out_begin(c, 2, 0)) < 0)
        return err;
    out_add(c, &r, body);
    if (failed) { // the copy of its reasons follows: replay needs the job first
        r = (struct record){ .kind = RECORD_FAIL,
                             .copy = true,
                             .time_ms = c->now_ms,
                             .id = j->id,
                             .stage = stage_of(c, j)->number,
                             .attempt = j->attempt,
                             .status = r.status };
        out_add(c, &r, buffer_bytes(&c->reasons));
    }
    if ((err = out_commit(c, ROOM_CLEAN)) < 0)
        return err;
    job_set_home(c, j, c->out.at[0], out_size(c, 0));
    if (failed)
        job_set_reasons(c, j, c->out.at[1], out_size(c, 1));
    return 0;
}

static int clean_spent(struct core *c, uint64_t at, const struct record *old) {
    struct spent *sp = old->has_once ? once_spent(c, old->once) : NULL;
    if (!sp || sp->at != at || MUTANT(once_not_copied))
        return 0;
    struct record r = { .kind = RECORD_ONCE,
                        .id = sp->id,
                        .stage = old->stage,
                        .has_once = true,
                        .once = sp->name,
                        .pushed_ms = sp->ended_ms };
    int err = write_copy(c, &r, (mr_bytes){ 0 });
    if (err == 0)
        once_set_home(c, sp, c->out.at[0], out_size(c, 0));
    return err;
}

// Memory does not have the key of an ended job: it comes from the old record.
static int copy_ended(struct core *c, uint32_t number, mr_bytes body, const struct record *old) {
    struct job *j = job_at(c, number);
    struct record r = record_of_job(c, j);
    r.key = old->key;
    int err = write_copy(c, &r, body);
    if (err < 0)
        return err;
    job_set_home(c, j, c->out.at[0], out_size(c, 0));
    j->flags &= (uint8_t)~JOB_END_UNWRITTEN;
    return 0;
}

static int clean_end(struct core *c, uint64_t at, mr_bytes body, const struct record *old) {
    uint32_t number = job_find(c, old->id);
    if (!number || job_at(c, number)->at != at)
        return clean_spent(c, at, old);
    return copy_ended(c, number, body, old);
}

int clean_fail_record(struct core *c, uint64_t at, mr_bytes body, struct record *old) {
    uint32_t number = job_find(c, old->id);
    struct job *j = number ? job_at(c, number) : NULL;
    const struct attr *a = j ? job_attr(c, j, ATTR_REASONS) : NULL;
    if (!a || a->value != at)
        return 0;
    int err = slab_reserve(&c->attrs, 1);
    if (err < 0)
        return err;
    if ((err = write_copy(c, old, body)) < 0)
        return err;
    job_set_reasons(c, j, c->out.at[0], out_size(c, 0));
    return 0;
}

static int clean_stage(struct core *c, uint64_t at, uint32_t number) {
    struct stage *s = number <= c->stage_count ? c->stages[number] : NULL;
    return s && s->recorded && s->at == at ? stage_record(c, s, ROOM_CLEAN) : 0;
}

static int clean_source(struct core *c, uint64_t at, uint64_t number) {
    uint32_t index = source_find_number(c, number);
    struct source *s = index ? source_at(c, index) : NULL;
    return s && s->size && s->at == at ? source_record(c, s, ROOM_CLEAN) : 0;
}

static int clean_state(struct core *c, uint64_t at, mr_bytes body, const struct record *old) {
    chan ref = channel_find(c, old->stage, old->key);
    uint32_t number = ref ? channel_at(c, ref)->state : 0;
    struct state *st = number ? slab_at(&c->states, number) : NULL;
    if (!st || st->at != at || MUTANT(state_not_copied))
        return 0;
    struct record r = {
        .kind = RECORD_STATE, .stage = old->stage, .key = old->key, .due_ms = st->time_ms
    }; // the copy keeps the time of the state
    int err = write_copy(c, &r, body);
    if (err < 0)
        return err;
    home_add(c, c->out.at[0], out_size(c, 0));
    home_remove(c, st->at, st->size);
    st->at = c->out.at[0];
    st->size = out_size(c, 0);
    return 0;
}

int clean_pause_record(struct core *c, uint64_t at, mr_bytes body, struct record *old) {
    (void)body;
    chan ref = channel_find(c, old->stage, old->key);
    uint32_t number = ref ? pause_find(c, ref) : 0;
    if (!number || pause_at(c, number)->at != at)
        return 0;
    int err = write_copy(c, old, (mr_bytes){ 0 });
    if (err == 0)
        pause_set_home(c, number, c->out.at[0], out_size(c, 0));
    return err;
}

int clean_outbox_record(struct core *c, uint64_t at, mr_bytes body, struct record *old) {
    uint32_t entry = outbox_find(c, old->number);
    if (!entry || outbox_at(c, entry)->at != at)
        return 0;
    int err = write_copy(c, old, body);
    if (err == 0)
        outbox_set_home(c, entry, c->out.at[0], out_size(c, 0));
    return err;
}

static int clean_link(struct core *c, uint64_t at, uint32_t shard) {
    bool is_home = shard < c->link_count && c->links[shard].size && c->links[shard].at == at;
    return is_home ? link_record(c, shard, ROOM_CLEAN) : 0;
}

static int clean_lease(struct core *c, uint64_t at, uint64_t serial) {
    uint32_t number = lease_find_recorded(c, serial);
    struct lease *l = number ? lease_at(c, number) : NULL;
    return l && l->record->at == at && !MUTANT(lease_not_copied)
               ? lease_write(c, l, l->until_ms, ROOM_CLEAN)
               : 0;
}

void trim_set_home(struct core *c, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, c->trim_at, c->trim_size);
    c->trim_at = at;
    c->trim_size = size;
}

static int clean_mark(struct core *c, struct record *mark) {
    bool is_epoch = mark->kind == RECORD_EPOCH;
    int err = write_copy(c, mark, (mr_bytes){ 0 });
    if (err < 0)
        return err;
    if (is_epoch)
        epoch_set_home(c, c->out.at[0], out_size(c, 0));
    else
        trim_set_home(c, c->out.at[0], out_size(c, 0));
    return 0;
}

static bool position_is_between(uint64_t at, uint64_t from, uint64_t upto) {
    return at >= from && at < upto;
}

static int clean_own_marks(struct core *c, uint64_t from, uint64_t upto) {
    struct record epoch = { .kind = RECORD_EPOCH, .epoch = c->epoch, .next_id = c->id_reserved };
    struct record trim = { .kind = RECORD_TRIM, .upto = c->trim_mark };
    int err = 0;
    if (c->epoch_size && position_is_between(c->epoch_at, from, upto))
        err = clean_mark(c, &epoch);
    if (err == 0 && c->trim_size && position_is_between(c->trim_at, from, upto))
        err = clean_mark(c, &trim);
    return err;
}

static int clean_own_stages(struct core *c, uint64_t from, uint64_t upto, uint32_t *most,
                            uint32_t *passed) {
    int err = 0;
    for (; *most && *passed < c->stage_count; ++*passed, --*most) {
        uint32_t i = *passed + 1;
        if (position_is_between(c->stages[i]->at, from, upto))
            err = clean_stage(c, c->stages[i]->at, i);
        if (err < 0)
            return err;
    }
    return 0;
}

static int clean_own_sources(struct core *c, uint64_t from, uint64_t upto, uint32_t *most,
                             uint32_t *passed) {
    int err = 0;
    for (; *most && *passed + 1 < c->sources.next_new; ++*passed, --*most) {
        const struct source *s = source_at(c, *passed + 1);
        if (s->in_use && position_is_between(s->at, from, upto))
            err = clean_source(c, s->at, s->number);
        if (err < 0)
            return err;
    }
    return 0;
}

static int clean_own_links(struct core *c, uint64_t from, uint64_t upto, uint32_t *most,
                           uint32_t *passed) {
    int err = 0;
    for (; *most && *passed < c->link_count; ++*passed, --*most) {
        if (position_is_between(c->links[*passed].at, from, upto))
            err = clean_link(c, c->links[*passed].at, *passed);
        if (err < 0)
            return err;
    }
    return 0;
}

int core_clean_own(struct core *c, uint64_t from, uint64_t upto, uint32_t most,
                   struct clean_cursor *next) {
    uint32_t left = most;
    int err = next->marks ? 0 : clean_own_marks(c, from, upto);
    next->marks = err == 0;
    if (err == 0)
        err = clean_own_stages(c, from, upto, &left, &next->stages);
    if (err == 0)
        err = clean_own_sources(c, from, upto, &left, &next->sources);
    if (err == 0)
        err = clean_own_links(c, from, upto, &left, &next->links);
    c->steps += most - left;
    return err < 0 ? err : left == 0;
}

APART static int copy_end(struct core *c, uint32_t number, mr_bytes head, mr_bytes body) {
    int err = out_begin(c, 1, 0);
    if (err < 0)
        return err;
    out_add_copy(c, head, body);
    if ((err = out_commit(c, ROOM_CLEAN)) < 0)
        return err;
    job_set_home(c, job_at(c, number), c->out.at[0], out_size(c, 0));
    return 1;
}

// The record names a source that was dropped since.
static bool names_dropped_source(const struct core *c, const struct job *j) {
    const struct attr *source = j->flags & JOB_HAS_SOURCE ? job_attr(c, j, ATTR_SOURCE) : NULL;
    return source && source_at(c, source->small)->dropped;
}

// Fast path: most records are no longer needed, and most that are needed belong to ended jobs,
// which do not change. Both cases work without decoding. 1: the entry is handled.
static int clean_plain(struct core *c, uint64_t at, mr_bytes head, mr_bytes body) {
    enum record_kind kind;
    uint64_t id;
    bool once;
    if (!record_peek(head, &kind, &id, &once))
        return 0;
    uint32_t number = job_find(c, id);
    bool is_home = number && job_at(c, number)->at == at;
    if (!is_home)
        return once ? 0 : 1;
    bool changed = once || names_dropped_source(c, job_at(c, number));
    return kind == RECORD_END && !changed ? copy_end(c, number, head, body) : 0;
}

// ---- The table --------------------------------------------------------------------------------

int clean_job_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    uint32_t number = job_find(c, r->id);
    const struct job *j = number ? job_at(c, number) : NULL;
    if (!j || j->at != at)
        return 0;
    return j->status == JOB_DONE ? copy_ended(c, number, (mr_bytes){ 0 }, r)
                                 : clean_job(c, body, number);
}

int clean_end_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    return clean_end(c, at, body, r);
}

int clean_once_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return clean_spent(c, at, r);
}

int clean_stage_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return clean_stage(c, at, r->stage);
}

int clean_source_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return clean_source(c, at, r->source);
}

int clean_state_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    return clean_state(c, at, body, r);
}

int clean_schedule_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    uint32_t number = schedule_find(c, r->stage, r->name);
    return number && schedule_at(c, number)->at == at ? schedule_copy(c, number, body) : 0;
}

int clean_epic_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    uint32_t source = source_find_number(c, r->source);
    const struct epic_orders *o = source ? source_at(c, source)->orders : NULL;
    return o && o->at == at ? orders_copy(c, source) : 0;
}

int clean_epoch_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return c->epoch_size && c->epoch_at == at ? clean_mark(c, r) : 0;
}

int clean_trim_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return c->trim_size && c->trim_at == at ? clean_mark(c, r) : 0;
}

int clean_link_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return clean_link(c, at, r->shard);
}

int clean_lease_record(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)body;
    return clean_lease(c, at, r->serial);
}

// Of kinds that are never a home: copies of homes contain their effects.
int clean_nothing(struct core *c, uint64_t at, mr_bytes body, struct record *r) {
    (void)c, (void)at, (void)body, (void)r;
    return 0;
}

#define CLEANER(kind, number, name, fields, check, apply, clean, ...) [RECORD_##kind] = clean,

static int (*const cleaners[])(struct core *, uint64_t at, mr_bytes body,
                               struct record *) = { RECORD_KINDS(CLEANER) };

APART static int clean_decoded(struct core *c, uint64_t at, mr_bytes head, mr_bytes body) {
    struct record r;
    int err = record_decode(head, NULL, &r);
    return err < 0 ? err : cleaners[r.kind](c, at, body, &r);
}

enum { STEPS_CLEAN = 2 };

int core_clean(struct core *c, uint64_t at, mr_bytes head, mr_bytes body) {
    c->steps += STEPS_CLEAN;
    int plain = clean_plain(c, at, head, body);
    if (plain)
        return plain < 0 ? plain : 0;
    return clean_decoded(c, at, head, body);
}

int core_trimmed(struct core *c, uint64_t upto) {
    struct record r = { .kind = RECORD_TRIM, .time_ms = c->now_ms, .upto = upto };
    int err = out_write(c, &r, ROOM_CLEAN);
    if (err < 0)
        return err;
    trim_set_home(c, c->out.at[0], out_size(c, 0));
    c->trim_mark = upto;
    live_forget(&c->live, upto);
    return 0;
}

uint64_t core_trim_mark(const struct core *c) {
    return c->trim_mark;
}

uint64_t core_live_bytes(const struct core *c) {
    return c->live_bytes;
}
