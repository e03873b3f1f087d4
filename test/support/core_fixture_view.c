// Everything visible of a core as one text; and second cores, which are replayed from the records.
#include "core_fixture.h"

#include <inttypes.h>
#include <stdlib.h>

// ---- Everything visible, as a text ------------------------------------------------------------

struct view {
    struct core_fixture *fixture;
    struct core *core;
    FILE *out;
    bool restarted; // without what a restart changes: leases and the backoff of releases
};

// Leases end with a restart, and releases are not recorded.
static bool is_unsure(const struct core_fixture *t, uint64_t id) {
    struct job_info j;
    for (size_t i = 0; i < t->job_count; i++)
        if (t->jobs[i].id == id && t->jobs[i].released)
            return true;
    return core_look_job(t->core, id, &j) == 0 && j.status == JOB_RUNNING;
}

static void view_policy(const struct view *v, const struct policy *p) {
    char value[128];
    const char *name;
    for (size_t i = 0; (name = policy_get(p, i, value, sizeof value)); i++)
        fprintf(v->out, " %s=%s", name, value);
}

static bool is_plain(const struct policy *policy) {
    struct policy plain = policy_default();
    char is[64], would_be[64];
    for (size_t i = 0; policy_get(policy, i, is, sizeof is); i++)
        if (!policy_get(&plain, i, would_be, sizeof would_be) || strcmp(is, would_be) != 0)
            return false;
    return true;
}

static void view_stage(const struct view *v, size_t index) {
    struct stage_info s;
    if (!core_stage_at(v->core, index, &s))
        return;
    if (!s.pushed && !s.paused && !s.draining && is_plain(s.policy))
        return; // perhaps only named by a take, which is not recorded
    fprintf(v->out, "stage %.*s: unended %" PRIu64, (int)s.name.size, (const char *)s.name.data,
            s.waiting + s.running);
    fprintf(v->out, " delayed %" PRIu64 " dead %" PRIu64 " states %" PRIu64, s.delayed, s.dead,
            s.states);
    fprintf(v->out, " pushed %" PRIu64 " done %" PRIu64 " failed %" PRIu64, s.pushed, s.done,
            s.failed);
    fprintf(v->out, " expired %" PRIu64 " cancelled %" PRIu64 " wasted %" PRIu64, s.expired,
            s.cancelled, s.wasted_wait_ms);
    fprintf(v->out, "%s%s", s.paused ? " paused" : "", s.draining ? " draining" : "");
    fprintf(v->out, " maker %" PRIu64, s.maker);
    view_policy(v, s.policy);
    if (!v->restarted)
        fprintf(v->out, " running %" PRIu64 " ready %" PRIu64 " parked %" PRIu64 " held '%s'",
                s.running, s.ready, s.parked, s.held_by);
    fprintf(v->out, "\n");
}

static void view_job(const struct view *v, const struct core_fixture_job *known) {
    struct job_info j;
    if (core_look_job(v->core, known->id, &j) < 0)
        return;
    bool runs = j.status == JOB_RUNNING && v->restarted;
    fprintf(v->out, "job %s: %s attempt %u of %u age %" PRId64 " left %" PRId64, known->body,
            job_status_name(runs ? JOB_WAITING : j.status), j.attempt - runs, j.attempts, j.age_ms,
            j.left_ms);
    if (!v->restarted || !is_unsure(v->fixture, known->id))
        fprintf(v->out, " due %" PRId64, j.due_ms);
    fprintf(v->out, " of %.*s:%.*s", (int)j.stage.size, (const char *)j.stage.data, (int)j.key.size,
            j.key.size ? (const char *)j.key.data : "");
    fprintf(v->out, " body '%s'", core_fixture_read(v->fixture, j.at));
    if (j.meta_size)
        fprintf(v->out, " META of %u bytes", j.meta_size);
    if (j.maker)
        fprintf(v->out, " counts for %" PRIu64, j.maker);
    fprintf(v->out, " state '%s'", core_fixture_read(v->fixture, j.state_at));
    struct reason r;
    mr_bytes reasons = { 0 };
    const struct core_fixture_entry *k =
        j.reasons_at ? core_fixture_entry_at(v->fixture, j.reasons_at) : NULL;
    if (k)
        reasons = bytes_of(k->bytes + k->head_size, k->body_size);
    for (size_t at = 0; reasons_next(reasons, &at, &r);)
        fprintf(v->out, " [%u %" PRIu64 " %.*s]", r.attempt, r.time_ms, (int)r.text.size,
                (const char *)r.text.data);
    fprintf(v->out, "\n");
}

static int view_in_order(void *arg, const struct job_info *j) {
    const struct view *v = arg;
    fprintf(v->out, " %s", core_fixture_name(v->fixture, j->id));
    return 0;
}

int core_fixture_view_order(struct core_fixture *t, const char *key, FILE *out) {
    struct view v = { .fixture = t, .core = t->core, .out = out };
    return core_each_job(t->core, mr_str("s"), mr_str(key), view_in_order, &v);
}

static int note_unsure(void *arg, const struct job_info *j) {
    return is_unsure(arg, j->id) ? 1 : 2; // the head only
}

static void view_channel(struct view *v, const struct core_fixture_key *key) {
    static const char *const names[] = { "dormant", "ready", "in progress", "parked" };
    mr_bytes stage = mr_str(key->stage), name = mr_str(key->key);
    struct channel_info ch, now;
    if (core_look_channel(v->core, stage, name, &ch) < 0) {
        // In progress and empty, it is not known to a second core.
        return;
    }
    bool unsure = core_look_channel(v->fixture->core, stage, name, &now) == 0 &&
                  (now.state == CHANNEL_IN_PROGRESS ||
                   core_each_job(v->fixture->core, stage, name, note_unsure, v->fixture) == 1);
    if (v->restarted && unsure && !ch.depth && !ch.has_state && !ch.halted && !ch.paused)
        return;
    fprintf(v->out, "channel %s:%s", key->stage, key->key);
    if (!v->restarted || !unsure)
        fprintf(v->out, " %s for %" PRId64, names[ch.state], ch.parked_ms);
    fprintf(v->out, "%s%s%s", ch.halted ? " halted" : "", ch.has_state ? " with state" : "",
            ch.paused ? " paused" : "");
    (void)core_each_job(v->core, stage, name, view_in_order, v);
    fprintf(v->out, "\n");
}

static void view_epic(const struct view *v, const char *name) {
    struct epic_info e;
    if (core_epic(v->core, mr_str(FIXTURE_EPICS), mr_str(name), &e) < 0)
        return;
    fprintf(v->out, "epic %s: %" PRIu64 " next, %" PRIu64 " total, %" PRIu64 " accepted", name,
            e.resume, e.total, e.accepted);
    fprintf(v->out, ", %" PRIu64 " unended, %" PRIu64 " done, %" PRIu64 " dead", //
            e.waiting + e.running, e.done, e.dead);
    fprintf(v->out, ", %" PRIu64 " cancelled, %" PRIu64 " expired", e.cancelled, e.expired);
    if (e.then.size || e.then_pushed || e.stopped || e.forget_ms)
        fprintf(v->out, ", then '%.*s'%s%s, forgotten after %" PRIu64, (int)e.then.size,
                e.then.size ? (const char *)e.then.data : "", e.then_pushed ? " pushed" : "",
                e.stopped ? ", stopped" : "", e.forget_ms);
    fprintf(v->out, ", maker %" PRIu64 "\n", e.maker);
}

static void view_schedule(const struct view *v, const struct schedule_info *s) {
    fprintf(v->out, "schedule %.*s of %.*s: '%.*s' %" PRIu64 " '%.*s' missed %d", (int)s->name.size,
            (const char *)s->name.data, (int)s->stage.size, (const char *)s->stage.data,
            (int)s->cron.size, s->cron.size ? (const char *)s->cron.data : "", s->every_ms,
            (int)s->zone.size, s->zone.size ? (const char *)s->zone.data : "", s->missed);
    fprintf(v->out, " next %" PRId64 " last %" PRId64 " pushed %" PRIu64 " %" PRIu64 "%s",
            s->next_at, s->last_at, s->pushed, s->last_id, s->paused ? " paused" : "");
    fprintf(v->out, " key '%.*s' deadline %" PRIu64 " attempts %u body '%s' of %" PRIu64 "\n",
            (int)s->key.size, s->key.size ? (const char *)s->key.data : "", s->deadline_ms,
            s->attempts, core_fixture_read(v->fixture, s->at), s->body_size);
}

static int schedule_order(const void *a, const void *b) {
    const struct schedule_info *x = a, *y = b;
    char one[2 * FIXTURE_TEXT], other[2 * FIXTURE_TEXT];
    (void)snprintf(one, sizeof one, "%.*s %.*s", (int)x->stage.size, (const char *)x->stage.data,
                   (int)x->name.size, (const char *)x->name.data);
    (void)snprintf(other, sizeof other, "%.*s %.*s", (int)y->stage.size,
                   (const char *)y->stage.data, (int)y->name.size, (const char *)y->name.data);
    return strcmp(one, other);
}

// By name: a restart may change their places.
static void view_schedules(const struct view *v) {
    struct schedule_info all[FIXTURE_KEYS];
    mr_bytes stage, name;
    size_t count = 0;
    for (uint32_t i = 0; i < core_schedule_places(v->core); i++)
        if (count < FIXTURE_KEYS && core_schedule_at(v->core, i, &stage, &name))
            core_schedule_look_at(v->core, i, &all[count++]);
    qsort(all, count, sizeof *all, schedule_order);
    for (size_t i = 0; i < count; i++)
        view_schedule(v, &all[i]);
}

static void view_link(const struct view *v, uint32_t shard) {
    struct link_entry e = { 0 };
    fprintf(v->out, "shard %u: up to %" PRIu64, shard, core_link_mark(v->core, shard));
    while (core_link_next(v->core, shard, e.number, &e))
        fprintf(v->out, " %" PRIu64 " after %" PRIu64 " %.*s:%.*s '%s'", e.number, e.after,
                (int)e.stage.size, (const char *)e.stage.data, (int)e.key.size,
                e.key.size ? (const char *)e.key.data : "", core_fixture_read(v->fixture, e.at));
    fprintf(v->out, "\n");
}

char *core_fixture_view(struct core_fixture *t, struct core *core, bool restarted) {
    char *text = NULL;
    size_t size = 0;
    struct view v = { t, core, open_memstream(&text, &size), restarted };
    for (size_t i = 0; i < core_stage_places(core); i++)
        view_stage(&v, i);
    for (size_t i = 0; i < t->job_count; i++)
        view_job(&v, &t->jobs[i]);
    for (size_t i = 0; i < t->key_count; i++)
        view_channel(&v, &t->keys[i]);
    for (size_t i = 0; i < t->epic_count; i++)
        view_epic(&v, t->epics[i]);
    view_schedules(&v);
    for (uint32_t i = 1; i < t->shards; i++)
        view_link(&v, i);
    (void)fclose(v.out);
    return text;
}

void core_fixture_expect_same(const char *what, const char *before, const char *after) {
    if (strcmp(before, after) != 0)
        fail_msg("%s: it was\n%s\nand is\n%s", what, before, after);
}

void core_fixture_check(const struct core *core, const char *what) {
    if (core_check(core) < 0)
        fail_msg("%s: %s", what, error_text());
}

// ---- Second cores -----------------------------------------------------------------------------

// A second core may write, but not into our log.
struct aside {
    struct core_fixture *fixture;
    uint64_t end;
};

static int aside_append(void *owner, const struct entry *e, size_t count, enum room room,
                        uint64_t *out_at) {
    struct aside *a = owner;
    (void)room;
    for (size_t i = 0; i < count; i++) {
        out_at[i] = a->end;
        a->end += entry_size(e[i].head.size, e[i].body.size);
    }
    return 0;
}

static int aside_read(void *owner, uint64_t at, struct buffer *out_body) {
    return core_fixture_sink_read(((struct aside *)owner)->fixture, at, out_body);
}

static struct core *second_core(struct aside *a, size_t entries) {
    struct core_config config = {
        .limits = a->fixture->limits,
        .shards = a->fixture->shards,
        .sink = { aside_append, aside_read, .owner = a },
    };
    struct core *core;
    assert_int_equal(core_create(&config, &core), 0);
    must(core_fixture_replay_into(a->fixture, entries, core));
    must(core_open(core, a->fixture->now_ms, 77));
    must(core_advance(core, a->fixture->now_ms));
    core_fixture_check(core, "replayed");
    return core;
}

void replay(struct core_fixture *t) {
    struct aside a = { t, t->log_end };
    struct core *core = second_core(&a, t->log_count);
    char *here = core_fixture_view(t, t->core, true), *there = core_fixture_view(t, core, true);
    core_fixture_expect_same("replayed", here, there);
    assert_int_equal(core_live_bytes(t->core), core_live_bytes(core));
    free(here);
    free(there);
    core_destroy(core);
}

static int retry_first(void *arg, const struct job_info *j) {
    *(uint64_t *)arg = j->id;
    return 1;
}

static void free_stage(struct core *core, mr_bytes stage) {
    uint64_t dead = 0;
    must(core_resume(core, stage));
    must(core_set(core, stage, mr_str("high-mark"), mr_str("none")));
    while (core_each_dead(core, stage, retry_first, &dead) == 1)
        must(core_retry(core, dead));
}

static bool work_off_one(struct core *core, mr_bytes stage) {
    struct take take = { .stages = &stage, .stage_count = 1 };
    struct grant g;
    size_t count;
    if (core_take(core, &take, &g, &count) < 0)
        return false;
    must(core_done(core, &(struct done){ .id = g.id, .token = g.token }));
    return true;
}

// Every live job of a log can still end, within a few days.
static void finish_all(const struct core_fixture *t, struct core *core) {
    uint64_t until = core_now(core) + UINT64_C(3) * 24 * 3600 * 1000;
    struct stage_info s;
    size_t stages = core_stage_places(core);
    for (size_t i = 0; i < stages; i++)
        if (core_stage_at(core, i, &s))
            free_stage(core, s.name);
    for (size_t i = 0; i < t->key_count; i++)
        if (*t->keys[i].key && stage_name_check(mr_str(t->keys[i].stage)) == 0)
            must(core_resume_key(core, mr_str(t->keys[i].stage), mr_str(t->keys[i].key)));
    for (uint64_t next = 0; next <= until;) {
        for (size_t i = 0; i < stages; i++)
            while (core_stage_at(core, i, &s) && work_off_one(core, s.name)) {
            }
        next = core_next(core);
        if (next <= until)
            must(core_advance(core, next));
    }
    for (size_t i = 0; i < stages; i++)
        if (core_stage_at(core, i, &s))
            assert_int_equal(s.waiting + s.running + s.delayed + s.dead + s.parked, 0);
    core_fixture_check(core, "finished");
}

void core_fixture_finish_every_prefix(struct core_fixture *t) {
    for (size_t i = 0; i < t->log_count; i++) {
        if (!t->log[i].last)
            continue;
        struct aside a = { t, t->log_end };
        struct core *core = second_core(&a, i + 1);
        finish_all(t, core);
        core_destroy(core);
    }
}
