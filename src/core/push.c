// Handing in: a push is checked, found to be new or a repeat, let in or held back, written down,
// and only then made. Emits are born the same way, but are never held back.
#include "core/limit.h"

#include "base/errors.h"

#include <inttypes.h>

#define MOST_MS (INT64_C(100) * 365 * 24 * 3600 * 1000)

static int check_size(const char *what, size_t size, size_t most) {
    if (size <= most)
        return 0;
    return error_set(MR_ETOOBIG, "%s of %zu bytes is too large: %zu at most", what, size, most);
}

static int check_time(const char *what, int64_t ms) {
    if (ms >= 0 && ms <= MOST_MS)
        return 0;
    return error_set(MR_EINVAL, "%s of %" PRId64 " ms is not possible: 0 to 100 years", what, ms);
}

int push_check(struct core *c, const struct push *p) {
    int err = 0;
    if ((err = check_size("a key", p->key.size, c->limits.max_key)) < 0)
        return err;
    if ((err = check_size("a once", p->once.size, c->limits.max_once)) < 0)
        return err;
    if ((err = check_size("a body", p->body.size, c->limits.max_body)) < 0)
        return err;
    if ((err = check_time("a delay", p->delay_ms)) < 0)
        return err;
    if ((err = check_time("a deadline", p->deadline_ms)) < 0)
        return err;
    if (p->attempts > UINT16_MAX)
        return error_set(MR_EINVAL, "%" PRIu32 " attempts are too many: 65535 at most",
                         p->attempts);
    if (p->source.size && !p->number)
        return error_set(MR_EINVAL, "numbers of a source start at 1");
    return 0;
}

uint64_t position_next(struct core *c) {
    uint64_t earliest = (c->now_ms << POSITION_SHIFT) + 1;
    c->last_position = c->last_position + 1 > earliest ? c->last_position + 1 : earliest;
    return c->last_position;
}

// ---- Ids --------------------------------------------------------------------------------------

enum { ID_BLOCK = 1 << 20 };

APART int ids_reserve_block(struct core *c, enum room room) {
    uint64_t step = c->config.id_step;
    struct record r = { .kind = RECORD_EPOCH,
                        .time_ms = c->now_ms,
                        .epoch = c->epoch,
                        .next_id = c->next_id + ID_BLOCK * step };
    int err = out_write(c, &r, room);
    if (err < 0)
        return err;
    epoch_set_home(c, c->out.at[0], out_size(c, 0));
    c->id_limit = r.next_id;
    return 0;
}

int ids_reserve(struct core *c, uint32_t count) {
    bool is_there = c->next_id + count * c->config.id_step <= c->id_limit;
    return is_there ? 0 : ids_reserve_block(c, ROOM_COMMIT);
}

int core_return_ids(struct core *c) {
    if (c->next_id == c->id_limit)
        return 0;
    struct record r = {
        .kind = RECORD_EPOCH, .time_ms = c->now_ms, .epoch = c->epoch, .next_id = c->next_id
    };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    epoch_set_home(c, c->out.at[0], out_size(c, 0));
    c->id_limit = c->next_id;
    return 0;
}

void epoch_set_home(struct core *c, uint64_t at, uint32_t size) {
    home_add(c, at, size);
    home_remove(c, c->epoch_at, c->epoch_size);
    c->epoch_at = at;
    c->epoch_size = size;
}

// ---- Birth ------------------------------------------------------------------------------------

static bool is_dressed(const struct push *p) {
    return p->once.size | (uint64_t)p->delay_ms | (uint64_t)p->deadline_ms | p->attempts |
           p->source.size | p->number | (uintptr_t)p->caller;
}

static int birth_look_at_source(struct core *c, struct birth *b) {
    const struct push *p = b->push;
    int err = source_get(c, p, b->stage, &b->source);
    if (err < 0)
        return err;
    struct source *s = source_at(c, b->source);
    if (!source_has_seen(s, p->number))
        return source_check_gap(p, s);
    b->is_repeat = true;
    b->repeat_id = source_id(s, p->number);
    b->repeat_job = b->repeat_id ? job_find(c, b->repeat_id) : 0;
    return 0;
}

static void birth_look_at_once(struct core *c, struct birth *b) {
    const struct push *p = b->push;
    b->has_once = true;
    b->once = once_name(p->stage, p->key, p->once);
    b->repeat_id = once_find(c, c->stages[b->stage], b->once, &b->repeat_job);
    b->is_repeat = b->repeat_id != 0;
}

APART static int birth_look_at_dress(struct core *c, struct birth *b) {
    int err = b->push->source.size ? birth_look_at_source(c, b) : 0;
    if (err == 0 && !b->is_repeat && b->push->once.size)
        birth_look_at_once(c, b);
    return err;
}

// Finds out what a push is about, and whether it is a repeat. Makes no job.
int birth_look(struct core *c, const struct push *p, struct birth *b) {
    *b = (struct birth){ .push = p, .dressed = is_dressed(p) || is_late(c) };
    int err = stage_get(c, p->stage, &b->stage);
    if (err < 0)
        return err;
    return b->dressed ? birth_look_at_dress(c, b) : 0;
}

// When it is to be delivered; 0: at once. Where delayed jobs of the channel may be due and not yet
// delivered it goes behind them, as if it were delayed itself, until none can be.
static uint64_t birth_due(const struct core *c, const struct birth *b) {
    if (b->push->delay_ms)
        return c->now_ms + (uint64_t)b->push->delay_ms;
    return is_late(c) && b->channel && channel_at(c, b->channel)->pins ? c->now_ms + 1 : 0;
}

// Makes sure that nothing can fail once the record is written. Who prepares others before
// birth_make pins the channels.
int birth_prepare(struct core *c, struct birth *b) {
    const struct push *p = b->push;
    int err = 0;
    if (p->key.size && (err = channel_get(c, b->stage, p->key, &b->channel)) < 0)
        return err;
    if (b->channel) // the job that this one will be linked to
        __builtin_prefetch(job_at(c, channel_at(c, b->channel)->jobs.tail), 1);
    if (b->source && (err = source_keep_ids(source_at(c, b->source))) < 0)
        return err;
    b->id = c->next_id;
    c->next_id += c->config.id_step;
    b->due_ms = birth_due(c, b);
    b->deadline_ms = p->deadline_ms ? c->now_ms + (uint64_t)p->deadline_ms : 0;
    b->position = b->due_ms ? b->due_ms << POSITION_SHIFT : position_next(c);
    return 0;
}

// Keeps its channel from being forgotten for the sake of another one.
void birth_pin(struct core *c, struct birth *b) {
    b->pinned = b->channel != 0;
    if (b->pinned)
        channel_pin(c, b->channel);
}

void birth_unpin(struct core *c, struct birth *b) {
    if (b->pinned)
        channel_unpin(c, b->channel);
    b->pinned = false;
}

APART static void job_dress(struct core *c, uint32_t number, const struct birth *b) {
    struct job *j = job_at(c, number);
    const struct push *p = b->push;
    if (b->has_once)
        once_remember(c, number, b->once);
    if (p->attempts)
        job_add_attr(c, j, ATTR_COUNTS)->small = p->attempts;
    if (b->deadline_ms)
        job_set_deadline(c, number, b->deadline_ms);
    if (b->source) {
        struct source *s = source_at(c, b->source);
        source_attach(c, j, b->source, p->number);
        s->unended[j->status]++;
        s->seen.accepted++;
        source_see(s, p->number, j->id);
    }
    if (p->caller)
        job_add_attr(c, j, ATTR_CALL);
}

uint32_t birth_make(struct core *c, struct birth *b, uint64_t at, uint32_t size) {
    struct stage *s = c->stages[b->stage];
    uint32_t number = job_create(c, b->id);
    struct job *j = job_at(c, number);
    j->owner = b->channel ? b->channel : b->stage;
    j->position = b->position;
    j->time_ms = c->now_ms;
    j->status = b->due_ms ? JOB_DELAYED : JOB_WAITING;
    s->by_status[j->status]++;
    job_set_home(c, j, at, size);
    if (!b->push->caller)
        j->flags |= JOB_WANTED_FOR_GOOD;
    if (b->dressed)
        job_dress(c, number, b);
    s->pushed++;
    rate_count(&s->in, c->now_ms);
    ages_add(&s->ages, c->now_ms, c->now_ms);
    if (b->due_ms) {
        line_add(c, &s->delayed, number, AT_TAIL); // ids grow
        job_set_due(c, number, b->due_ms);         // a delayed job keeps the channel pinned
        if (!b->pinned)
            birth_pin(c, b);
    } else {
        channel_deliver(c, number);
        birth_unpin(c, b);
    }
    stage_mark(c, s);
    return number;
}

// ---- Room -------------------------------------------------------------------------------------

static size_t push_size(const struct push *p) {
    return p->body.size + p->key.size + p->once.size;
}

// Other limits than max-jobs.
static int check_limits(struct core *c, const struct birth *b) {
    struct stage *s = c->stages[b->stage];
    const struct policy *policy = &s->policy;
    bool bounded = policy->max_channel && b->push->key.size;
    chan ref = bounded ? channel_find(c, b->stage, b->push->key) : 0;
    if (ref) {
        const struct channel *ch = channel_at(c, ref);
        if (ch->jobs.count >= policy->max_channel)
            return error_set(MR_EFULL,
                             "this channel of stage %.*s holds %u jobs, which is its "
                             "max-channel",
                             s->name_size, s->name, ch->jobs.count);
    }
    int err = memory_check(c, entry_size(RECORD_MAX, push_size(b->push)));
    if (err < 0)
        return err;
    if (s->edge_count && stage_is_choked(s))
        return error_set(MR_EFULL, "stage %.*s is part of a cycle and over its high-mark",
                         s->name_size, s->name);
    return 0;
}

static int check_room(struct core *c, const struct birth *b) {
    struct stage *s = c->stages[b->stage];
    if (!stage_has_room(s))
        return error_set(MR_EFULL, "stage %.*s holds %" PRIu64 " jobs, which is its max-jobs",
                         s->name_size, s->name, stage_jobs(s));
    return check_limits(c, b);
}

// Whoever was told and finds no room all the same takes its old place again.
static void pushers_insert(struct stage *s, struct pusher *p) {
    struct list *before = s->pushers.next;
    while (before != &s->pushers && list_entry(before, struct pusher, of_stage)->order < p->order)
        before = before->next;
    list_append(before, &p->of_stage);
}

APART static int wait_for_room(struct core *c, const struct birth *b) {
    struct pusher *waiting = b->push->pusher;
    size_t bytes = push_size(b->push);
    if (!waiting)
        return MR_EFULL;
    if (c->room_bytes + bytes > c->limits.max_room_bytes)
        return error_set(MR_EFULL, "pushes of %" PRIu64 " bytes wait for room already",
                         c->room_bytes);
    waiting->stage = b->stage;
    waiting->bytes = (uint32_t)bytes;
    c->room_bytes += bytes;
    c->room_pushes++;
    if (waiting->conn)
        list_append(&waiting->conn->pushers, &waiting->of_conn);
    if (!b->first)
        waiting->order = ++c->last_pusher;
    pushers_insert(c->stages[b->stage], waiting);
    return MR_EAGAIN;
}

// Lets a push in, or makes it wait behind those that wait already.
static int push_admit(struct core *c, const struct birth *b) {
    struct stage *s = c->stages[b->stage];
    if (s->draining)
        return error_set(MR_EDRAINING, "stage %.*s is draining: it takes no pushes until resumed",
                         s->name_size, s->name);
    if (!b->first && !list_empty(&s->pushers)) {
        error_set(MR_EFULL, "other pushes to stage %.*s wait for room", s->name_size, s->name);
        return wait_for_room(c, b);
    }
    int err = check_room(c, b);
    return err < 0 ? wait_for_room(c, b) : 0;
}

static void pusher_unlink(struct core *c, struct pusher *p) {
    c->room_pushes -= !list_empty(&p->of_stage);
    list_remove(&p->of_conn);
    list_remove(&p->of_stage);
    c->room_bytes -= p->bytes;
    p->bytes = 0;
}

// Whether the push that has waited longest has no room.
static bool stage_is_full(struct core *c, struct stage *s) {
    const struct pusher *first = list_entry(s->pushers.next, struct pusher, of_stage);
    return memory_check(c, entry_size(RECORD_MAX, first->bytes)) < 0 || stage_is_choked(s) ||
           !stage_has_room(s);
}

// When the stage drains, all are told, and refused when they push again.
APART void push_rooms(struct core *c, struct stage *s) {
    while (!list_empty(&s->pushers) && (s->draining || !stage_is_full(c, s))) {
        struct pusher *p = list_entry(s->pushers.next, struct pusher, of_stage);
        pusher_unlink(c, p);
        p->granted = true;
        s->granted_rooms++;
        if (p->conn)
            list_append(&p->conn->pushers, &p->of_conn);
        if (c->config.events.room)
            c->config.events.room(c->config.owner, p);
        if (s->policy.max_channel && !s->draining)
            break; // it may have waited for its channel only: one at a time
    }
}

void pusher_leave(struct core *c, struct pusher *p) {
    struct stage *s = p->stage ? c->stages[p->stage] : NULL;
    if (!s)
        return;
    pusher_unlink(c, p);
    if (p->granted)
        s->granted_rooms--;
    *p = (struct pusher){ .conn = p->conn };
    stage_mark(c, s);
    stage_wake(c, s);
    stage_forget_unused(c, bytes_of(s->name, s->name_size));
}

void core_push_leave(struct core *c, struct pusher *p) {
    pusher_leave(c, p);
    settle(c);
}

// ---- The command ------------------------------------------------------------------------------

static int want_for_good(struct core *c, struct job *j) {
    struct record r = { .kind = RECORD_WANT, .time_ms = c->now_ms, .id = j->id };
    int err = out_write(c, &r, ROOM_COMMIT);
    if (err < 0)
        return err;
    j->flags |= JOB_WANTED_FOR_GOOD;
    return 0;
}

static bool has_ended(const struct job *j) {
    return j->status >= JOB_DONE;
}

APART static int push_repeat(struct core *c, const struct birth *b, struct pushed *out) {
    struct pushed told = { .id = b->repeat_id, .repeat = true };
    struct job *j = b->repeat_job ? job_at(c, b->repeat_job) : NULL;
    if (b->push->caller && !j)
        return error_set(MR_EGONE, "that call was made before and its result is no longer kept");
    struct source *s = b->source ? source_at(c, b->source) : NULL;
    int err = 0;
    if (s && !source_has_seen(s, b->push->number)) // it is its name that was used before
        err = source_note(c, b->source, b->stage, b->push->number, b->repeat_id);
    if (err < 0)
        return err;
    if (j && has_ended(j)) {
        told.ended = true;
        told.outcome = outcome_of(c, j);
    } else if (j && b->push->caller) {
        err = caller_attach(c, b->repeat_job, b->push->caller);
    } else if (j && !(j->flags & JOB_WANTED_FOR_GOOD)) {
        err = want_for_good(c, j);
    }
    if (err < 0)
        return err;
    *out = told;
    return 0;
}

// Writes a stage or source that the log does not know yet, then the push itself: replay counts the
// push after it has met the counters.
static int push_write(struct core *c, const struct birth *b) {
    struct stage *s = c->stages[b->stage];
    struct source *source = b->source ? source_at(c, b->source) : NULL;
    bool new_stage = !s->recorded, new_source = source && (!source->size || !source->stage);
    int err = out_begin(c, 3, b->push->key.size);
    if (err < 0)
        return err;
    struct record r;
    struct record_about about;
    if (new_stage) {
        r = record_of_stage(c, s, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    if (new_source) {
        r = record_of_source(c, source, b->stage, &about);
        out_add(c, &r, (mr_bytes){ 0 });
    }
    out_add_push(c, b);
    if ((err = out_commit(c, ROOM_PUSH)) < 0)
        return err;
    if (new_stage)
        stage_set_home(c, s, c->out.at[0], out_size(c, 0));
    if (new_source) {
        source_set_home(c, source, c->out.at[new_stage], out_size(c, new_stage));
        source_adopt(c, b->source, b->stage);
    }
    return 0;
}

static int push_new(struct core *c, struct birth *b, struct pushed *out) {
    int err = push_admit(c, b);
    if (err < 0)
        return err;
    if ((err = job_reserve(c, 1, b->dressed)) < 0)
        return err;
    if (b->has_once && (err = once_reserve(c, 1)) < 0)
        return err;
    if ((err = ids_reserve(c, 1)) < 0)
        return err;
    if ((err = birth_prepare(c, b)) < 0)
        return err;
    if ((err = push_write(c, b)) < 0)
        return err;
    size_t last = c->out.count - 1;
    uint32_t job = birth_make(c, b, c->out.at[last], out_size(c, last));
    if (b->push->caller)
        caller_link(c, job, b->push->caller);
    *out = (struct pushed){ .id = b->id };
    return 0;
}

// Gives up the place that was kept for a pusher; true if there was one.
static bool room_use(struct core *c, struct pusher *p) {
    if (!p || !p->granted)
        return false;
    struct stage *s = c->stages[p->stage];
    list_remove(&p->of_conn);
    p->granted = false;
    s->granted_rooms--;
    return true;
}

static int push_looked(struct core *c, const struct push *p, bool first, struct pushed *out) {
    struct birth b;
    int err = push_check(c, p);
    if (err < 0)
        return err;
    if ((err = birth_look(c, p, &b)) < 0)
        return err;
    b.first = first;
    err = b.is_repeat ? push_repeat(c, &b, out) : push_new(c, &b, out);
    if (b.source && err == 0)
        source_accepted(c, p, source_at(c, b.source));
    return err;
}

static int push(struct core *c, const struct push *p, bool first, struct pushed *out) {
    int err = push_looked(c, p, first, out);
    if (err < 0 && err != MR_EGAP && p->source.size && p->number)
        source_refused(c, p);
    return err;
}

// Not the push's fault: it may be said again, and finds its place kept.
static bool is_passing(int err) {
    return err == MR_ENOMEM || err == MR_EFULL || err == MR_EIO || err == MR_ESTOPPED;
}

static void room_keep(struct core *c, struct pusher *p) {
    p->granted = true;
    c->stages[p->stage]->granted_rooms++;
    if (p->conn)
        list_append(&p->conn->pushers, &p->of_conn);
}

HOT int core_push(struct core *c, const struct push *p, struct pushed *out) {
    bool first = room_use(c, p->pusher);
    int err = push(c, p, first, out);
    if (first && is_passing(err))
        room_keep(c, p->pusher);
    else if (first && err != MR_EAGAIN) // the next one is told, should the place be left
        stage_wake(c, c->stages[p->pusher->stage]);
    settle(c);
    if (err < 0)
        stage_forget_unused(c, p->stage);
    return err;
}
