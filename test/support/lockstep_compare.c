// Compares everything visible of core and model.
#include "lockstep.h"

#include "model_rules.h"

#include "core/record.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

bool lockstep_differs(struct lockstep *t, const char *format, ...) {
    if (*t->why)
        return false;
    va_list args;
    va_start(args, format);
    vsnprintf(t->why, sizeof t->why, format, args);
    va_end(args);
    return false;
}

// Names for messages, formatted only when there is a difference.
static const char *name(const char *format, ...) __attribute__((format(printf, 1, 2)));

static const char *name(const char *format, ...) {
    static char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

#define SAME(t, what, core, model)                                                                 \
    do {                                                                                           \
        int64_t in_core = (int64_t)(core), in_model = (int64_t)(model);                            \
        if (in_core != in_model)                                                                   \
            return lockstep_differs(t, "%s: %s is %" PRId64 ", should be %" PRId64, what, #model,  \
                                    in_core, in_model);                                            \
    } while (0)

// ---- Stages -----------------------------------------------------------------------------------

static uint64_t count_channels(const struct model *m, int stage, enum channel_state state) {
    uint64_t count = 0;
    for (int c = 0; c < m->channel_count; c++)
        count +=
            m->channels[c].known && m->channels[c].stage == stage && m->channels[c].state == state;
    return count;
}

static uint64_t count_states(const struct model *m, int stage) {
    uint64_t count = 0;
    for (int c = 0; c < m->channel_count; c++)
        count += m->channels[c].known && m->channels[c].stage == stage && *m->channels[c].kept;
    return count;
}

static uint64_t count_takers(const struct model *m, int stage) {
    uint64_t count = 0;
    for (int i = 0; i < SLOTS; i++)
        for (int k = 0; m->takers[i].waits && k < m->takers[i].command.stage_count; k++)
            count += m->takers[i].command.stages[k] == stage;
    return count;
}

// Age of the oldest unended job of the stage; -1: none.
static int64_t oldest_of(const struct model *m, int stage) {
    int64_t oldest = -1;
    for (int i = 0; i < m->job_count; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->forgotten || j->status > JOB_RUNNING || j->stage != stage)
            continue;
        int64_t age = (int64_t)(m->now_ms - j->pushed_ms);
        oldest = age > oldest ? age : oldest;
    }
    return oldest;
}

// The core's answer is an estimate: never too young, too old by a hundredth of what it has seen, or
// by little.
static bool oldest_is_near(const struct model *m, int stage, int64_t oldest_ms) {
    int64_t truth = oldest_of(m, stage), seen = 0;
    for (int i = 0; i < m->job_count; i++)
        if (m->jobs[i].stage == stage && (int64_t)(m->now_ms - m->jobs[i].made_ms) > seen)
            seen = (int64_t)(m->now_ms - m->jobs[i].made_ms);
    return truth < 0 ? oldest_ms == -1
                     : oldest_ms >= truth && oldest_ms <= truth + seen / 100 + 100;
}

static bool compare_stage(struct lockstep *t, int stage) {
    const struct model *m = t->model;
    const struct model_stage *s = &m->stages[stage];
    struct stage_info info;
    int err = core_look_stage(t->core, mr_str(stage_names[stage]), &info);
    if (!s->known && (err == MR_EGONE || s->seen))
        return true;
    SAME(t, name("stage %s", stage_names[stage]), err, 0);
    SAME(t, name("stage %s", stage_names[stage]), info.paused, s->paused);
    SAME(t, name("stage %s", stage_names[stage]), info.draining, s->draining);
    SAME(t, name("stage %s", stage_names[stage]), info.waiting, model_count(m, stage, JOB_WAITING));
    SAME(t, name("stage %s", stage_names[stage]), info.running, model_count(m, stage, JOB_RUNNING));
    SAME(t, name("stage %s", stage_names[stage]), info.delayed, model_count(m, stage, JOB_DELAYED));
    SAME(t, name("stage %s", stage_names[stage]), info.dead, model_count(m, stage, JOB_DEAD));
    SAME(t, name("stage %s", stage_names[stage]), info.parked,
         count_channels(m, stage, CHANNEL_PARKED));
    SAME(t, name("stage %s", stage_names[stage]), info.ready, s->ready_count);
    SAME(t, name("stage %s", stage_names[stage]), info.states, count_states(m, stage));
    SAME(t, name("stage %s", stage_names[stage]), info.takers, count_takers(m, stage));
    SAME(t, name("stage %s", stage_names[stage]), info.pushed, s->pushed);
    SAME(t, name("stage %s", stage_names[stage]), info.done, s->done);
    SAME(t, name("stage %s", stage_names[stage]), info.failed, s->failed);
    SAME(t, name("stage %s", stage_names[stage]), info.expired, s->expired);
    SAME(t, name("stage %s", stage_names[stage]), info.cancelled, s->cancelled);
    if (!oldest_is_near(m, stage, info.oldest_ms))
        return lockstep_differs(t, "stage %s: oldest is %" PRId64 ", should be about %" PRId64,
                                stage_names[stage], info.oldest_ms, oldest_of(m, stage));
    SAME(t, name("stage %s", stage_names[stage]), info.wasted_wait_ms, s->wasted_wait_ms);
    return true;
}

// ---- Channels ---------------------------------------------------------------------------------

struct walk {
    uint64_t ids[MANY];
    int count;
};

static int walk_one(void *arg, const struct job_info *job) {
    struct walk *w = arg;
    if (w->count < MANY)
        w->ids[w->count++] = job->id;
    return 0;
}

static int parked_ms(const struct model *m, int channel) {
    int head = model_nth(m, channel, 0);
    bool is_held = m->channels[channel].paused || model_halted(m, channel);
    return is_held ? -1 : (int)(m->jobs[head].wait_ms - m->now_ms);
}

static bool compare_order(struct lockstep *t, int stage, int channel) {
    static struct walk walk;
    walk.count = 0;
    core_each_job(t->core, mr_str(stage_names[stage]), mr_str(t->model->channels[channel].key),
                  walk_one, &walk);
    SAME(t, name("order of stage %s", stage_names[stage]), walk.count,
         model_depth(t->model, channel));
    for (int i = 0; i < walk.count; i++)
        SAME(t, name("order of stage %s", stage_names[stage]), walk.ids[i],
             t->model->jobs[model_nth(t->model, channel, i)].id);
    return true;
}

// A dormant channel may be known for the sake of jobs that are not in it (yet, or any more).
static bool has_outsiders(const struct model *m, int stage, const char *key) {
    for (int i = 0; i < m->job_count; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->stage == stage && strcmp(j->key, key) == 0 && !j->forgotten &&
            (j->status == JOB_DELAYED || j->status == JOB_DEAD))
            return true;
    }
    return false;
}

static const char *channel_name(int stage, int key) {
    return name("channel %s/%s", stage_names[stage], key_names[key]);
}

static bool compare_channel(struct lockstep *t, int stage, int key) {
    const struct model *m = t->model;
    struct channel_info info;
    int c = model_channel_of(m, stage, key_names[key], 0);
    int err = core_look_channel(t->core, mr_str(stage_names[stage]), mr_str(key_names[key]), &info);
    if (c < 0 && err == 0 && info.state == CHANNEL_DORMANT && info.depth == 0)
        return has_outsiders(m, stage, key_names[key]) ||
               lockstep_differs(t, "%s is known", channel_name(stage, key));
    SAME(t, channel_name(stage, key), err, c < 0 ? MR_EGONE : 0);
    if (c < 0)
        return true;
    const struct model_channel *ch = &m->channels[c];
    SAME(t, channel_name(stage, key), info.state, ch->state);
    SAME(t, channel_name(stage, key), info.depth, model_depth(m, c));
    SAME(t, channel_name(stage, key), info.halted, model_halted(m, c));
    SAME(t, channel_name(stage, key), info.has_state, *ch->kept != 0);
    SAME(t, channel_name(stage, key), info.paused, ch->paused);
    int head = model_nth(m, c, 0);
    SAME(t, channel_name(stage, key), info.oldest_ms,
         head < 0 ? -1 : (int64_t)(m->now_ms - m->jobs[head].pushed_ms));
    if (ch->state == CHANNEL_PARKED)
        SAME(t, channel_name(stage, key), info.parked_ms, parked_ms(m, c));
    return compare_order(t, stage, c);
}

// The ready channels without key are visible, in their order.
static bool compare_unkeyed(struct lockstep *t, int stage) {
    static struct walk walk;
    const struct model *m = t->model;
    const struct model_stage *s = &m->stages[stage];
    int at = 0, ready[MANY];
    walk.count = 0;
    core_each_job(t->core, mr_str(stage_names[stage]), mr_str(""), walk_one, &walk);
    model_ready_order(m, stage, ready);
    for (int i = 0; i < s->ready_count; i++) {
        uint64_t solo = m->channels[ready[i]].solo;
        if (!solo)
            continue;
        if (at == walk.count)
            return lockstep_differs(t, "stage %s: unkeyed ready jobs are missing",
                                    stage_names[stage]);
        SAME(t, "unkeyed ready", walk.ids[at], m->jobs[solo - 1].id);
        at++;
    }
    SAME(t, "unkeyed ready", walk.count, at);
    return true;
}

// ---- Groups -----------------------------------------------------------------------------------

static int jobs_of_group(const struct model *m, int stage, int group) {
    int jobs = 0;
    for (int i = 0; i < m->job_count; i++)
        jobs += m->jobs[i].stage == stage && job_unended(&m->jobs[i]) && m->jobs[i].joined &&
                model_group(m->jobs[i].key) == group;
    return jobs;
}

static bool compare_group(struct lockstep *t, int stage, const struct group_info *info) {
    const struct model *m = t->model;
    char name_of_group[TEXT] = "";
    memcpy(name_of_group, info->group.data, info->group.size < TEXT ? info->group.size : TEXT - 1);
    int group = model_group(name_of_group);
    SAME(t, name("group %s", name_of_group), info->depth, jobs_of_group(m, stage, group));
    SAME(t, name("group %s", name_of_group), info->running, model_group_leased(m, stage, group));
    const char *held_by = model_group_held(m, stage, group);
    return strcmp(info->held_by, held_by) == 0 ||
           lockstep_differs(t, "group %s is held by \"%s\", should be \"%s\"", name_of_group,
                            info->held_by, held_by);
}

// Groups of fewer than two jobs are not listed.
static bool compare_groups(struct lockstep *t, int stage) {
    struct group_info top[KEYS];
    int listed = 0;
    size_t count = core_top_groups(t->core, mr_str(stage_names[stage]), top, KEYS);
    for (int g = 0; t->model->stages[stage].policy.group && g < KEYS; g++)
        listed += jobs_of_group(t->model, stage, g) > 1;
    SAME(t, name("groups of stage %s", stage_names[stage]), count, listed);
    for (size_t i = 0; i < count; i++)
        if (!compare_group(t, stage, &top[i]))
            return false;
    return true;
}

// ---- Jobs -------------------------------------------------------------------------------------

static int64_t due_of(const struct model *m, int job) {
    const struct model_job *j = &m->jobs[job];
    uint64_t at = j->status == JOB_DELAYED ? j->joins_ms : j->wait_ms;
    return at > m->now_ms ? (int64_t)(at - m->now_ms) : -1;
}

static const char *job_name(const struct model_job *j) {
    return name("job %" PRIu64, j->id);
}

static bool compare_texts(struct lockstep *t, const struct model_job *j,
                          const struct job_info *info) {
    char text[TEXT], meta[TEXT];
    const char *expected = j->status == JOB_DONE ? j->result : j->body;
    if (j->status == JOB_CANCELLED || j->status == JOB_EXPIRED)
        return true;
    lockstep_job_texts(t, info->at, info->meta_size, text, meta);
    if (j->status != JOB_DONE && strcmp(meta, j->meta) != 0)
        return lockstep_differs(t, "%s: its META is \"%s\", should be \"%s\"", job_name(j), meta,
                                j->meta);
    if (strcmp(text, expected) != 0 && !(info->at == 0 && !*expected))
        return lockstep_differs(t, "%s: its text is \"%s\", should be \"%s\"", job_name(j), text,
                                expected);
    return true;
}

// The reasons of a failed job, the latest last.
static bool compare_reasons(struct lockstep *t, const struct model_job *j,
                            const struct job_info *info) {
    struct reason reason = { 0 };
    size_t at = 0;
    uint32_t count = 0;
    mr_bytes body = lockstep_body(t, info->reasons_at);
    while (reasons_next(body, &at, &reason))
        count++;
    if (count < j->attempt && count < 10)
        return lockstep_differs(t, "%s: %u reasons for %u attempts", job_name(j), count,
                                j->attempt);
    if (*j->reason && !bytes_equal(reason.text, mr_str(j->reason)))
        return lockstep_differs(t, "%s: its reason is not \"%s\"", job_name(j), j->reason);
    if (*j->reason && !bytes_equal(reason.output, mr_str(j->reason)))
        return lockstep_differs(t, "%s: its output is not \"%s\"", job_name(j), j->reason);
    return true;
}

// How much of a running job is done, as PROGRESS has said under the lease that it has; 0: nothing.
static uint64_t progress_of(const struct model *m, const struct model_job *j) {
    for (int l = 0; l < m->lease_count; l++)
        if (m->leases[l].alive && m->leases[l].about == j->id)
            return m->leases[l].said;
    return 0;
}

static bool compare_job(struct lockstep *t, int job) {
    const struct model *m = t->model;
    const struct model_job *j = &m->jobs[job];
    struct job_info info;
    int err = core_look_job(t->core, j->id, &info);
    SAME(t, job_name(j), err, j->forgotten ? MR_EGONE : 0);
    if (j->forgotten)
        return true;
    SAME(t, job_name(j), info.id, j->id);
    SAME(t, job_name(j), info.status, j->status);
    if (!bytes_equal(info.stage, mr_str(stage_names[j->stage])))
        return lockstep_differs(t, "%s: wrong stage", job_name(j));
    bool running = j->status == JOB_RUNNING;
    SAME(t, job_name(j), info.attempt, j->attempt + (running || j->status == JOB_DONE));
    if (j->attempt > 0 && j->status <= JOB_DEAD && j->status != JOB_DONE &&
        !compare_reasons(t, j, &info))
        return false;
    SAME(t, job_name(j), info.progress.done, running ? progress_of(m, j) : 0);
    bool ended = j->status > JOB_RUNNING;
    SAME(t, job_name(j), info.age_ms, m->now_ms - (ended ? j->ended_ms : j->pushed_ms));
    if (ended)
        return compare_texts(t, j, &info);
    if (!bytes_equal(info.key, mr_str(j->key)))
        return lockstep_differs(t, "%s: wrong key", job_name(j));
    SAME(t, job_name(j), info.maker, j->maker);
    SAME(t, job_name(j), info.left_ms, j->deadline_ms ? (int64_t)(j->deadline_ms - m->now_ms) : -1);
    SAME(t, job_name(j), info.due_ms, due_of(m, job));
    return compare_texts(t, j, &info);
}

static bool compare_dead(struct lockstep *t, int stage) {
    static struct walk walk;
    const struct model *m = t->model;
    walk.count = 0;
    core_each_dead(t->core, mr_str(stage_names[stage]), walk_one, &walk);
    SAME(t, "dead", walk.count, model_count(m, stage, JOB_DEAD));
    uint64_t above_ms = 0, above_id = 0; // U22: of one instant they stand in order of ids
    for (int i = 0; i < walk.count; i++) {
        int job = model_find(m, walk.ids[i]);
        uint64_t died_ms = job < 0 ? 0 : m->jobs[job].ended_ms;
        if (job < 0 || m->jobs[job].status != JOB_DEAD || died_ms < above_ms ||
            (died_ms == above_ms && walk.ids[i] < above_id))
            return lockstep_differs(t, "dead of %s: %" PRIu64 " is not in its place",
                                    stage_names[stage], walk.ids[i]);
        above_ms = died_ms;
        above_id = walk.ids[i];
    }
    return true;
}

// ---- Epics ------------------------------------------------------------------------------------

static uint64_t count_of_source(const struct model *m, int source, enum job_status status) {
    uint64_t count = 0;
    for (int i = 0; i < m->job_count; i++)
        count += m->jobs[i].source == source && m->jobs[i].status == status;
    return count;
}

static uint64_t count_accepted(const struct model_source *s) {
    uint64_t count = 0;
    for (int i = 0; i < NUMBERS; i++)
        count += s->accepted[i];
    return count - s->skipped;
}

static bool compare_epic(struct lockstep *t, int source) {
    const struct model *m = t->model;
    const struct model_source *s = &m->sources[source];
    struct epic_info info;
    const char *what = source_names[source];
    int err = core_epic(t->core, mr_str(stage_names[source_stage(source)]), mr_str(what), &info);
    SAME(t, what, err, s->known ? 0 : MR_EGONE);
    if (!s->known)
        return true;
    uint64_t resume = 1;
    while (s->accepted[resume])
        resume++;
    SAME(t, what, info.resume, resume);
    SAME(t, what, info.total, s->total);
    SAME(t, what, info.accepted, count_accepted(s));
    SAME(t, what, info.running, count_of_source(m, source, JOB_RUNNING));
    SAME(t, what, info.waiting,
         count_of_source(m, source, JOB_WAITING) + count_of_source(m, source, JOB_DELAYED));
    SAME(t, what, info.done, count_of_source(m, source, JOB_DONE));
    SAME(t, what, info.dead, count_of_source(m, source, JOB_DEAD));
    SAME(t, what, info.cancelled, count_of_source(m, source, JOB_CANCELLED));
    SAME(t, what, info.expired, count_of_source(m, source, JOB_EXPIRED));
    SAME(t, what, info.over, model_epic_over(m, source));
    SAME(t, what, info.stopped, s->stopped);
    SAME(t, what, info.then_pushed, s->then_pushed);
    SAME(t, what, info.forget_ms, s->forget_ms);
    const char *then = s->then_waits ? stage_names[s->then.stage] : "";
    if (!bytes_equal(info.then, mr_str(then)))
        return lockstep_differs(t, "epic %s: THEN should push to '%s'", what, then);
    return true;
}

// ---- Schedules --------------------------------------------------------------------------------

static bool compare_schedule(struct lockstep *t, int schedule) {
    const struct model_schedule *s = &t->model->schedules[schedule];
    const char *what = schedule_names[schedule];
    struct schedule_info info;
    char body[TEXT];
    int err =
        core_schedule(t->core, mr_str(stage_names[schedule_stage(schedule)]), mr_str(what), &info);
    SAME(t, what, err, s->known ? 0 : MR_EGONE);
    if (!s->known)
        return true;
    SAME(t, what, info.paused, s->paused);
    SAME(t, what, info.next_ms, s->paused ? 0 : s->next_ms);
    SAME(t, what, info.last_ms, s->last_ms);
    SAME(t, what, info.pushed, s->pushed);
    SAME(t, what, info.last_id, s->last < 0 ? 0 : t->model->jobs[s->last].id);
    SAME(t, what, info.attempts, s->job.attempts);
    lockstep_text(t, info.at, body);
    if (!bytes_equal(info.key, mr_str(s->job.key)) || strcmp(body, s->job.body) != 0)
        return lockstep_differs(t, "schedule %s: its job is another", what);
    uint64_t due_ms = 0;
    if (model_first_due(t->model, &due_ms) >= 0 && core_tick_next(t->core) > due_ms)
        return lockstep_differs(t, "core_tick_next is too late");
    return true;
}

// ---- All --------------------------------------------------------------------------------------

bool lockstep_compare(struct lockstep *t) {
    for (int s = 0; s < STAGES; s++) {
        if (!compare_stage(t, s))
            return false;
        for (int k = 1; k < KEYS; k++)
            if (!compare_channel(t, s, k))
                return false;
        if (!compare_unkeyed(t, s) || !compare_groups(t, s) || !compare_dead(t, s))
            return false;
    }
    for (int j = 0; j < t->model->job_count; j++)
        if (!compare_job(t, j))
            return false;
    for (int e = 1; e < SOURCES; e++)
        if (!compare_epic(t, e))
            return false;
    for (int i = 0; i < SCHEDULES; i++)
        if (!compare_schedule(t, i))
            return false;
    uint64_t next = model_next(t->model);
    if (core_next(t->core) > next)
        return lockstep_differs(t, "core_next is %" PRIu64 ", but something is due at %" PRIu64,
                                core_next(t->core), next);
    return true;
}
