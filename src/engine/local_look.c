// Looking and acting: what is known of stages and jobs, and the few things a person decides.
//
// Looks work also when the log has stopped. What lies in the log is read without the lock; if the
// cleaner has moved it meanwhile, the core is asked again where it is.
#include "base/bytes.h"
#include "base/errors.h"
#include "core/record.h"
#include "engine/local.h"

#include <inttypes.h>
#include <stdio.h>

enum { READ_TRIES = 10 }; // each follows one move by the cleaner

// ---- Reading ----------------------------------------------------------------------------------

static int home_find(struct local_shard *s, mr_id id, enum home home, uint64_t *out_at) {
    struct job_info info;
    pthread_mutex_lock(&s->lock);
    int err = core_look_job(s->core, id, &info);
    pthread_mutex_unlock(&s->lock);
    if (err < 0)
        return err;
    switch (home) {
    case HOME_BODY:
        *out_at = info.at;
        break;
    case HOME_REASONS:
        *out_at = info.reasons_at;
        break;
    case HOME_STATE:
        *out_at = info.state_at;
        break;
    }
    return 0;
}

static int read_moving(struct local_shard *s, mr_id id, enum home home, uint64_t at,
                       int (*read)(struct shard *, uint64_t, struct buffer *), struct buffer *out) {
    int err = MR_EGONE;
    for (int tries = 0; err == MR_EGONE && tries < READ_TRIES; tries++) {
        buffer_clear(out);
        err = read(s->shard, at, out);
        if (err == MR_EGONE && home_find(s, id, home, &at) < 0)
            return err;
    }
    return err;
}

int local_read(struct local_shard *s, mr_id id, enum home home, uint64_t at, struct buffer *out) {
    int err = read_moving(s, id, home, at, shard_read, out);
    if (err >= 0)
        err = buffer_reserve(out, 1);
    if (err < 0)
        return err;
    out->data[out->size] = 0;
    return 0;
}

// ---- Waiting for an empty stage ---------------------------------------------------------------

struct empty_waiter {
    struct waiter waiter;
    struct list of_empties;
    mr_bytes stage;
};

static bool stage_is_empty(struct local_shard *s, mr_bytes stage) {
    struct stage_info info;
    if (core_look_stage(s->core, stage, &info) < 0)
        return true;
    return info.waiting == 0 && info.delayed == 0 && info.running == 0 && info.linked == 0;
}

void local_check_empties(struct local_shard *s) {
    for (struct list *l = s->empties.next, *next; l != &s->empties; l = next) {
        next = l->next;
        struct empty_waiter *w = list_entry(l, struct empty_waiter, of_empties);
        if (!stage_is_empty(s, w->stage))
            continue;
        list_remove(l);
        local_notify(s, &w->waiter);
    }
}

static int wait_empty_at(struct local_shard *s, mr_bytes stage, uint64_t until_ms) {
    struct empty_waiter w = { .stage = stage };
    int err = local_begin(s);
    if (err < 0)
        return err;
    if (stage_is_empty(s, stage))
        return local_end_durable(s, 0);
    list_append(&s->empties, &w.of_empties);
    local_end_keep(s);
    if (local_wait(s, &w.waiter, until_ms))
        return local_wait_durable(s, w.waiter.at, 0);
    list_remove(&w.of_empties);
    local_end(s);
    return w.waiter.err;
}

static bool all_are_empty(struct local_engine *e, mr_bytes stage) {
    bool empty = true;
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_lock(&e->shards[i]->lock);
    for (uint32_t i = 0; empty && i < e->count; i++)
        empty = stage_is_empty(e->shards[i], stage) && push_inbox_is_empty(&e->shards[i]->inbox);
    for (uint32_t i = 0; i < e->count; i++)
        pthread_mutex_unlock(&e->shards[i]->lock);
    return empty;
}

// Other shards may have emits on their way to it. Waits at one shard after another; when the last
// one is empty, a look at all of them at once finds out whether work has gone from one to another.
int local_stage_wait_empty(struct engine *base, mr_bytes stage, int64_t wait_ms) {
    struct local_engine *e = (struct local_engine *)base;
    uint64_t until_ms = wait_ms ? local_until(wait_ms) : 0;
    int err;
    do {
        err = 0;
        for (uint32_t i = 0; err >= 0 && i < e->count; i++)
            err = wait_empty_at(e->shards[i], stage, until_ms);
    } while (err >= 0 && e->count > 1 && !all_are_empty(e, stage));
    if (err != MR_EAGAIN)
        return err;
    return error_set(MR_EAGAIN, "stage '%.*s' was not empty within %" PRId64 " ms", (int)stage.size,
                     (const char *)stage.data, wait_ms);
}

// ---- Looking ----------------------------------------------------------------------------------

static int look_stage(struct local_shard *s, mr_bytes stage, struct stage_info *out) {
    struct stage_info info;
    local_enter(s);
    int err = core_look_stage(s->core, stage, &info);
    uint64_t at = local_end(s);
    if (err < 0)
        return err;
    shard_wait(s->shard, at); // looks go on when the log has stopped
    *out = info;
    return 0;
}

// The strings are this thread's until its next look.
static void fill_stage_info(const struct stage_info *from, mr_bytes stage, mr_stage_info *out) {
    static _Thread_local char name[STAGE_NAME_MOST + 1], held_by[sizeof from->held_by];
    snprintf(name, sizeof name, "%.*s", (int)stage.size, (const char *)stage.data);
    memcpy(held_by, from->held_by, sizeof held_by);
    *out = (mr_stage_info){ STAGE_INFO_MEMBERS(MEMBER_FROM) };
    out->name = name;
    out->held_by = held_by;
}

// Emits that have not arrived at its shard yet; they count as waiting.
static uint64_t linked_to(struct local_engine *e, mr_bytes stage) {
    uint64_t linked = 0;
    for (uint32_t i = 0; e->count > 1 && i < e->count; i++) {
        pthread_mutex_lock(&e->shards[i]->lock);
        linked += core_linked(e->shards[i]->core, stage);
        pthread_mutex_unlock(&e->shards[i]->lock);
    }
    return linked;
}

int local_stage_look(struct engine *base, mr_bytes stage, mr_stage_info *out) {
    struct stage_info info;
    int err = look_stage(shard_of_stage(base, stage), stage, &info);
    if (err < 0)
        return err;
    info.waiting += linked_to((struct local_engine *)base, stage);
    fill_stage_info(&info, stage, out);
    return 0;
}

int local_stage_why(struct engine *base, mr_bytes stage, char *out, size_t size) {
    struct local_engine *e = (struct local_engine *)base;
    struct stage_info info;
    int err = look_stage(shard_of_stage(base, stage), stage, &info);
    if (err < 0)
        return err;
    info.name = stage;
    info.waiting += linked_to(e, stage);
    if (!atomic_load(&e->stopped)) {
        stage_why(&info, out, size);
        return 0;
    }
    pthread_mutex_lock(&e->lock);
    snprintf(
        out, size,
        "Nothing is accepted or started because the log has failed (%s): repair what it names, "
        "then open the engine again; what was recorded before is kept.",
        e->why_stopped);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

int local_check(struct engine *base) {
    struct local_engine *e = (struct local_engine *)base;
    return atomic_load(&e->stopped) ? local_error_stopped(e) : 0;
}

// The names of a shard's stages, each followed by a 0 byte.
static int gather_names(struct local_shard *s, struct buffer *out) {
    int err = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; err >= 0 && i < core_stage_places(s->core); i++) {
        mr_bytes name = core_stage_name(s->core, i);
        if (name.size)
            err = buffer_append(out, name.data, name.size);
        if (err >= 0 && name.size)
            err = buffer_append(out, "", 1);
    }
    pthread_mutex_unlock(&s->lock);
    return err;
}

// 1: `each` wants no more.
static int stages_of_shard(struct local_shard *s, int (*each)(const mr_stage_info *, void *arg),
                           void *arg) {
    struct buffer names = { 0 };
    int err = gather_names(s, &names);
    for (size_t at = 0; err == 0 && at < names.size;) {
        mr_bytes name = mr_str((const char *)names.data + at);
        char held_by[sizeof((struct stage_info *)0)->held_by];
        mr_stage_info info;
        at += name.size + 1;
        err = local_stage_look(&s->engine->base, name, &info);
        if (err == MR_EGONE) {
            err = 0;           // it was forgotten meanwhile
        } else if (err >= 0) { // `each` may look at other stages
            info.name = name.data;
            info.held_by = memcpy(held_by, info.held_by, sizeof held_by);
            err = each(&info, arg) != 0;
        }
    }
    buffer_finish(&names);
    return err;
}

int local_stages(struct engine *base, int (*each)(const mr_stage_info *, void *arg), void *arg) {
    struct local_engine *e = (struct local_engine *)base;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < e->count; i++)
        err = stages_of_shard(e->shards[i], each, arg);
    return err < 0 ? err : 0;
}

// ---- Lists of jobs ----------------------------------------------------------------------------

// What is copied of a job under the lock; its key stands in `keys`, unless it has ended.
struct job_row {
    mr_job_info info;
    uint32_t key_size;
    bool has_key, has_progress;
    uint64_t at, reasons_at;
    char progress[PROGRESS_MOST + 1];
};

struct job_rows {
    struct buffer rows, keys;
    mr_bytes key; // only of this one; empty: all
    uint32_t count, most, looked;
    int err;
};

static void job_row_set_progress(struct job_row *row, const struct job_progress *p) {
    row->has_progress = true;
    row->info.progress_done = p->done;
    row->info.progress_total = p->total;
    memcpy(row->progress, p->text.data, p->text.size); // zeros follow
}

static int job_row_add(void *arg, const struct job_info *from) {
    struct job_rows *r = arg;
    struct job_row row = { .info = { JOB_INFO_MEMBERS(MEMBER_FROM) },
                           .key_size = (uint32_t)from->key.size,
                           .has_key = job_status_has_key(from->status),
                           .at = from->at,
                           .reasons_at = from->reasons_at };
    row.info.status = job_status_name(from->status);
    if (from->has_progress)
        job_row_set_progress(&row, &from->progress);
    r->looked++;
    if (r->key.size && !bytes_equal(r->key, from->key))
        return r->looked == LOOKED_MOST;
    r->err = buffer_append(&r->rows, &row, sizeof row);
    if (r->err >= 0)
        r->err = buffer_append(&r->keys, from->key.data, from->key.size);
    r->count++;
    return r->err < 0 || r->count == r->most || r->looked == LOOKED_MOST;
}

static int job_rows_gather(struct local_shard *s, const struct job_walk *w, bool all,
                           struct job_rows *out) {
    local_enter(s);
    core_take_steps(s->core); // so that those of this walk are counted
    int err =
        all ? core_walk_all(s->core, w, job_row_add, out) : core_walk(s->core, w, job_row_add, out);
    shard_wait(s->shard, local_end(s)); // looks go on when the log has stopped
    if (err == WALK_CUT && !out->count)
        return error_set(MR_ETOOBIG, "none of these is among the first %d jobs that were looked at",
                         LOOKED_MOST);
    return err < 0 ? err : out->err;
}

// The key of a job that has ended is only in the log. Empty: the job was forgotten meanwhile.
static mr_bytes ended_key(struct local_shard *s, const struct job_row *row, struct buffer *head) {
    struct record record;
    if (read_moving(s, row->info.id, HOME_BODY, row->at, shard_read_head, head) < 0 ||
        record_decode(buffer_bytes(head), NULL, &record) < 0)
        return (mr_bytes){ 0 };
    return record.key;
}

// Without the lock. Returns what `each` does.
static int job_row_call(struct local_shard *s, struct job_row *row, mr_bytes key,
                        int (*each)(const mr_job_info *, void *arg), void *arg) {
    struct buffer head = { 0 }, reasons = { 0 };
    char reason[REASON_MOST + 1] = "";
    row->info.key = row->has_key ? key : ended_key(s, row, &head);
    if (row->reasons_at &&
        local_read(s, row->info.id, HOME_REASONS, row->reasons_at, &reasons) >= 0) {
        mr_bytes last = reasons_last(buffer_bytes(&reasons));
        snprintf(reason, sizeof reason, "%.*s", (int)last.size, (const char *)last.data);
    }
    row->info.reason = reason;
    row->info.progress_text = row->has_progress ? row->progress : NULL;
    int stop = each(&row->info, arg);
    buffer_finish(&head);
    buffer_finish(&reasons);
    return stop;
}

static int check_status(const mr_job_filter *f, struct job_walk *out) {
    if (f->status && !job_status_find(mr_str(f->status), &out->status))
        return error_set(MR_EINVAL,
                         "status '%.40s' is none of running, waiting, delayed, dead, done, "
                         "expired, cancelled",
                         f->status);
    if (f->status && f->key.size && !job_status_has_key(out->status))
        return error_set(MR_EINVAL, "jobs that have ended are not listed by their key");
    return 0;
}

int local_jobs(struct engine *base, mr_bytes stage, const mr_job_filter *f,
               int (*each)(const mr_job_info *, void *arg), void *arg) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct job_walk walk = { .stage = stage, .key = f->key, .from = f->from, .steps = LOOKED_MOST };
    struct job_rows r = { .key = f->key, .most = f->count ? f->count : LISTED_MOST };
    int err = check_status(f, &walk);
    if (err >= 0)
        err = job_rows_gather(s, &walk, !f->status, &r);
    const uint8_t *key = r.keys.data;
    int stop = 0;
    for (size_t at = 0; err >= 0 && !stop && at < r.rows.size; at += sizeof(struct job_row)) {
        struct job_row row;
        memcpy(&row, r.rows.data + at, sizeof row);
        stop = job_row_call(s, &row, bytes_of(key, row.key_size), each, arg);
        key = row.key_size ? key + row.key_size : key;
    }
    buffer_finish(&r.rows);
    buffer_finish(&r.keys);
    return err < 0 ? err : 0;
}

// ---- Dead jobs --------------------------------------------------------------------------------

struct dead_list {
    struct buffer ids;
    int err;
};

static int dead_note(void *arg, const struct job_info *info) {
    struct dead_list *dead = arg;
    dead->err = buffer_append(&dead->ids, &info->id, sizeof info->id);
    return dead->err < 0;
}

static int dead_gather(struct local_shard *s, mr_bytes stage, struct dead_list *out) {
    local_enter(s);
    int err = core_each_dead(s->core, stage, dead_note, out);
    shard_wait(s->shard, local_end(s));
    return err < 0 ? err : out->err;
}

struct dead_job {
    struct buffer key, reasons;
    uint64_t reasons_at;
};

// MR_EGONE: it is not dead any more.
static int dead_look(struct local_shard *s, mr_id id, struct dead_job *out) {
    struct job_info info;
    pthread_mutex_lock(&s->lock);
    int err = core_look_job(s->core, id, &info);
    if (err >= 0 && info.status != JOB_DEAD)
        err = MR_EGONE;
    if (err >= 0) {
        buffer_clear(&out->key);
        err = buffer_append(&out->key, info.key.data, info.key.size);
        out->reasons_at = info.reasons_at;
    }
    pthread_mutex_unlock(&s->lock);
    buffer_clear(&out->reasons);
    if (err >= 0 && out->reasons_at)
        err = local_read(s, id, HOME_REASONS, out->reasons_at, &out->reasons);
    return err;
}

// 1: `each` wants no more; MR_EGONE: it is not dead any more.
static int dead_show(struct local_shard *s, mr_id id,
                     int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct dead_job job = { 0 };
    int err = dead_look(s, id, &job);
    if (err >= 0) {
        mr_bytes last = reasons_last(buffer_bytes(&job.reasons));
        char reason[REASON_MOST + 1];
        snprintf(reason, sizeof reason, "%.*s", (int)last.size, (const char *)last.data);
        err = each(id, buffer_bytes(&job.key), reason, arg) != 0;
    }
    buffer_finish(&job.key);
    buffer_finish(&job.reasons);
    return err;
}

int local_dead(struct engine *base, mr_bytes stage,
               int (*each)(mr_id, mr_bytes key, const char *reason, void *arg), void *arg) {
    struct local_shard *s = shard_of_stage(base, stage);
    struct dead_list dead = { 0 };
    int err = dead_gather(s, stage, &dead);
    for (size_t at = 0; err == 0 && at < dead.ids.size; at += sizeof(mr_id)) {
        mr_id id;
        memcpy(&id, dead.ids.data + at, sizeof id);
        err = dead_show(s, id, each, arg);
        err = err == MR_EGONE ? 0 : err;
    }
    buffer_finish(&dead.ids);
    return err < 0 ? err : 0;
}

// ---- Acting -----------------------------------------------------------------------------------

int local_stage_set(struct engine *base, mr_bytes stage, mr_bytes policy, mr_bytes value) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_set(s->core, stage, policy, value));
}

int local_stage_pause(struct engine *base, mr_bytes stage) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_pause(s->core, stage));
}

int local_stage_pause_key(struct engine *base, mr_bytes stage, mr_bytes key) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_pause_key(s->core, stage, key));
}

int local_stage_resume_key(struct engine *base, mr_bytes stage, mr_bytes key) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_resume_key(s->core, stage, key));
}

int local_stage_drain(struct engine *base, mr_bytes stage) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_drain(s->core, stage));
}

int local_stage_resume(struct engine *base, mr_bytes stage) {
    struct local_shard *s = shard_of_stage(base, stage);
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_resume(s->core, stage));
}

int local_by_id(struct engine *base, mr_id id, int (*act)(struct local_shard *, mr_id, void *arg),
                void *arg) {
    struct local_engine *e = (struct local_engine *)base;
    uint32_t first = route_of_id(e->count, id);
    int err = act(e->shards[first], id, arg);
    for (uint32_t i = 1; err == MR_EGONE && i < e->count; i++)
        err = act(e->shards[(first + i) % e->count], id, arg);
    return err;
}

static int retry_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_retry(s->core, id));
}

int local_retry(struct engine *base, mr_id id) {
    return local_by_id(base, id, retry_at, NULL);
}

static int due_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    bool changed;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_due(s->core, id, &changed));
}

int local_due(struct engine *base, mr_id id) {
    return local_by_id(base, id, due_at, NULL);
}

static int drop_at(struct local_shard *s, mr_id id, void *arg) {
    (void)arg;
    int err = local_begin(s);
    return err < 0 ? err : local_end_durable(s, core_drop(s->core, id));
}

int local_drop(struct engine *base, mr_id id) {
    return local_by_id(base, id, drop_at, NULL);
}
