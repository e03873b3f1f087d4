// The commands of the fixture, each with its checks of recovery, and the expectations.
#include "core_fixture.h"

#include <inttypes.h>
#include <stdlib.h>

enum { REFUSED = MR_ESTOPPED };

// ---- Commands ---------------------------------------------------------------------------------

void clean(struct core_fixture *t) {
    size_t count = t->log_count;
    uint64_t upto = t->log_end; // where the copies begin
    char *before = core_fixture_view(t, t->core, false);
    for (size_t i = 0; i < count; i++) {
        struct core_fixture_entry k = t->log[i]; // the array may move
        must(core_clean(t->core, k.at, bytes_of(k.bytes, k.head_size),
                        bytes_of(k.bytes + k.head_size, k.body_size)));
    }
    must(core_trimmed(t->core, upto));
    core_fixture_forget_log(t, count);
    char *after = core_fixture_view(t, t->core, false);
    core_fixture_expect_same("cleaned", before, after);
    free(before);
    free(after);
}

// Runs a command:  struct attempt s = attempt_begin(t);  do err = core_…; while
// (attempt_repeats(&s));
struct attempt {
    struct core_fixture *fixture;
    char *before;
    bool over;
};

static struct attempt attempt_begin(struct core_fixture *t) {
    struct attempt s = { .fixture = t };
    if (t->mode == MODE_REFUSED) {
        s.before = core_fixture_view(t, t->core, false);
        t->refuse = REFUSED;
        t->refused = false;
    }
    return s;
}

static void check_restart(struct core_fixture *t) {
    if (t->mode == MODE_CLEANED)
        clean(t);
    core_fixture_check(t->core, "after a command");
    if (!t->unlike)
        replay(t);
}

static bool attempt_repeats(struct attempt *s, int err) {
    struct core_fixture *t = s->fixture;
    bool again = s->before && t->refused;
    if (again) {
        assert_int_equal(err, REFUSED);
        char *after = core_fixture_view(t, t->core, false);
        core_fixture_expect_same("refused", s->before, after);
        free(after);
    } else {
        t->refuse = 0;
        check_restart(t);
    }
    free(s->before);
    s->before = NULL;
    t->refused = false;
    return again;
}

void pass_ms(struct core_fixture *t, uint64_t ms) {
    t->now_ms += ms;
    must(core_advance(t->core, t->now_ms));
    check_restart(t);
}

static void forget_releases(struct core_fixture *t) {
    for (size_t i = 0; i < t->job_count; i++)
        t->jobs[i].released = false;
}

void crash(struct core_fixture *t) {
    core_fixture_close(t);
    t->running_count = 0;
    forget_releases(t);
    core_fixture_open(t);
    check_restart(t);
}

void crash_noted(struct core_fixture *t) {
    struct core_fixture_note notes[FIXTURE_SLOTS];
    size_t count = t->running_count;
    memcpy(notes, t->running, sizeof notes);
    crash(t);
    for (size_t i = 0; i < count; i++)
        must(core_crashed(t->core, notes[i].id, notes[i].attempt));
    check_restart(t);
}

void lose(struct core_fixture *t, int conn) {
    must(core_leave(t->core, &t->conns[conn]));
    core_join(t->core, &t->conns[conn]);
    check_restart(t);
}

int try_push(struct core_fixture *t, struct push p, struct pushed *out) {
    int err;
    if (!p.stage.size)
        p.stage = mr_str("s");
    if (!p.conn)
        p.conn = &t->conns[0];
    struct attempt s = attempt_begin(t);
    do {
        err = core_push(t->core, &p, out);
        if (err == 0)
            core_fixture_learn_job(t, out->id, p.body);
        core_fixture_learn_key(t, p.stage, p.job.key);
    } while (attempt_repeats(&s, err));
    return err;
}

uint64_t push_with(struct core_fixture *t, struct push p) {
    struct pushed pushed = { 0 };
    must(try_push(t, p, &pushed));
    assert_false(pushed.repeat);
    assert_true(pushed.id != 0);
    return pushed.id;
}

uint64_t push_to(struct core_fixture *t, const char *stage, const char *key, const char *body) {
    return push_with(
        t, (struct push){ .stage = mr_str(stage), .job.key = mr_str(key), .body = mr_str(body) });
}

uint64_t push(struct core_fixture *t, const char *key, const char *body) {
    return push_to(t, "s", key, body);
}

uint64_t push_once(struct core_fixture *t, const char *key, const char *once, const char *body) {
    struct pushed pushed = { 0 };
    struct push p = { .job.key = mr_str(key), .job.once = mr_str(once), .body = mr_str(body) };
    must(try_push(t, p, &pushed));
    return pushed.id;
}

uint64_t call(struct core_fixture *t, int caller, const char *once, const char *body,
              int64_t deadline_ms) {
    struct pushed pushed = { 0 };
    t->callers[caller] = (struct caller){ .conn = &t->conns[0] };
    struct push p = { .job.once = mr_str(once),
                      .body = mr_str(body),
                      .job.deadline_ms = deadline_ms,
                      .caller = &t->callers[caller] };
    must(try_push(t, p, &pushed));
    return pushed.id;
}

int push_number(struct core_fixture *t, const char *epic, uint64_t number, const char *body) {
    struct pushed pushed = { 0 };
    core_fixture_learn_epic(t, epic);
    return try_push(t,
                    (struct push){ .job.key = mr_str("e"),
                                   .source = mr_str(epic),
                                   .number = number,
                                   .epic = true,
                                   .body = mr_str(body) },
                    &pushed);
}

int await(struct core_fixture *t, int caller, uint64_t id, struct outcome *out) {
    t->callers[caller] = (struct caller){ .conn = &t->conns[0] };
    int err = core_await(t->core, id, &t->callers[caller], out);
    check_restart(t);
    return err;
}

void hang_up(struct core_fixture *t, int caller) {
    must(core_await_leave(t->core, &t->callers[caller]));
    check_restart(t);
}

bool cancel(struct core_fixture *t, uint64_t id) {
    bool changed = false;
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_cancel(t->core, id, &changed);
    while (attempt_repeats(&s, err));
    must(err);
    return changed;
}

size_t try_take(struct core_fixture *t, struct take take, struct taken *out) {
    struct grant grants[32];
    size_t count = 0;
    mr_bytes stage = mr_str("s");
    if (!take.stage_count) {
        take.stages = &stage;
        take.stage_count = 1;
    }
    if (!take.conn)
        take.conn = &t->conns[0];
    assert_true(take.count <= 32);
    int err = core_take(t->core, &take, grants, &count);
    for (size_t i = 0; i < count && err == 0; i++)
        out[i] = core_fixture_taken(t, &grants[i]);
    if (err != MR_EAGAIN)
        must(err);
    check_restart(t);
    return err < 0 ? 0 : count;
}

struct taken take_from(struct core_fixture *t, const char *stage) {
    mr_bytes name = mr_str(stage);
    struct taken taken = { 0 };
    if (!try_take(t, (struct take){ .stages = &name, .stage_count = 1 }, &taken))
        fail_msg("there is no work in %s", stage);
    return taken;
}

struct taken take(struct core_fixture *t) {
    return take_from(t, "s");
}

size_t take_block(struct core_fixture *t, uint32_t batch, struct taken *out) {
    return try_take(t, (struct take){ .count = batch, .batch = batch }, out);
}

void expect_take(struct core_fixture *t, const char *body) {
    struct taken taken = take(t);
    assert_string_equal(taken.body, body);
    done(t, taken);
}

void expect_no_work(struct core_fixture *t) {
    struct taken taken;
    if (try_take(t, (struct take){ 0 }, &taken))
        fail_msg("%s was there to take", taken.body);
}

void wait_for_work(struct core_fixture *t, int taker, const char *stage) {
    mr_bytes name = mr_str(stage);
    struct grant grant;
    size_t count;
    t->takers[taker] = (struct taker){ .conn = &t->conns[taker % FIXTURE_CONNS] };
    struct take take = {
        .stages = &name, .stage_count = 1, .conn = t->takers[taker].conn, .taker = &t->takers[taker]
    };
    assert_int_equal(core_take(t->core, &take, &grant, &count), MR_EAGAIN);
    check_restart(t);
}

int try_done(struct core_fixture *t, struct done d) {
    int err;
    struct attempt s = attempt_begin(t);
    for (size_t i = 0; i < d.emit_count; i++)
        core_fixture_learn_key(t, d.emits[i].stage, d.emits[i].job.key);
    do
        err = core_done(t->core, &d);
    while (attempt_repeats(&s, err));
    return err;
}

int done_again(struct core_fixture *t, struct taken taken) {
    return try_done(t, (struct done){ .id = taken.id, .token = taken.token });
}

void done(struct core_fixture *t, struct taken taken) {
    must(done_again(t, taken));
}

void done_with(struct core_fixture *t, struct taken taken, const char *result, const char *state) {
    must(try_done(t, (struct done){ .id = taken.id,
                                    .token = taken.token,
                                    .result = mr_str(result),
                                    .set_state = state != NULL,
                                    .state = mr_str(state) }));
}

void done_emit(struct core_fixture *t, struct taken taken, const char *stage, const char *key,
               const char *body) {
    struct emit emit = { .stage = mr_str(stage), .job.key = mr_str(key), .body = mr_str(body) };
    must(try_done(
        t, (struct done){ .id = taken.id, .token = taken.token, .emits = &emit, .emit_count = 1 }));
}

int fail_with(struct core_fixture *t, struct taken taken, const char *reason, int64_t retry_ms) {
    int err;
    struct attempt s = attempt_begin(t);
    if (core_fixture_job_of(t, taken.id))
        core_fixture_job_of(t, taken.id)->released = false;
    do
        err = core_fail(t->core, taken.id, &taken.token, mr_str(reason), retry_ms);
    while (attempt_repeats(&s, err));
    return err;
}

int find_unreadable(struct core_fixture *t, struct taken taken) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_unreadable(t->core, taken.id, &taken.token, mr_str("damaged"), MR_ECORRUPT);
    while (attempt_repeats(&s, err));
    return err;
}

void fail_job(struct core_fixture *t, struct taken taken) {
    must(fail_with(t, taken, "no", MR_BACKOFF));
}

int snooze_job(struct core_fixture *t, struct taken taken, int64_t delay_ms) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_release(t->core, taken.id, &taken.token, delay_ms);
    while (attempt_repeats(&s, err));
    return err;
}

int release_job(struct core_fixture *t, struct taken taken) {
    int err = core_release(t->core, taken.id, &taken.token, 0);
    if (err == 0)
        core_fixture_job_of(t, taken.id)->released = true;
    check_restart(t);
    return err;
}

int beat(struct core_fixture *t, struct taken taken) {
    int err = core_beat(t->core, taken.id, &taken.token);
    check_restart(t);
    return err;
}

int progress(struct core_fixture *t, struct taken taken, uint64_t done, const char *text) {
    int err;
    struct job_progress said = { done, 10, mr_str(text) };
    struct attempt s = attempt_begin(t);
    do
        err = core_progress(t->core, taken.id, &taken.token, &said);
    while (attempt_repeats(&s, err));
    check_restart(t);
    return err;
}

int retry(struct core_fixture *t, uint64_t id) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_retry(t->core, id);
    while (attempt_repeats(&s, err));
    return err;
}

int pause_key(struct core_fixture *t, const char *key) {
    int err;
    core_fixture_learn_key(t, mr_str("s"), mr_str(key));
    struct attempt s = attempt_begin(t);
    do
        err = core_pause_key(t->core, mr_str("s"), mr_str(key));
    while (attempt_repeats(&s, err));
    return err;
}

int resume_key(struct core_fixture *t, const char *key) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_resume_key(t->core, mr_str("s"), mr_str(key));
    while (attempt_repeats(&s, err));
    return err;
}

bool due(struct core_fixture *t, uint64_t id) {
    int err;
    bool changed = false;
    struct attempt s = attempt_begin(t);
    do
        err = core_due(t->core, id, &changed);
    while (attempt_repeats(&s, err));
    must(err);
    return changed;
}

int drop(struct core_fixture *t, uint64_t id) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_drop(t->core, id);
    while (attempt_repeats(&s, err));
    return err;
}

int try_set(struct core_fixture *t, const char *stage, const char *name, const char *value) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_set(t->core, mr_str(stage), mr_str(name), mr_str(value));
    while (attempt_repeats(&s, err));
    return err;
}

void set_on(struct core_fixture *t, const char *stage, const char *name, const char *value) {
    must(try_set(t, stage, name, value));
}

void set(struct core_fixture *t, const char *name, const char *value) {
    set_on(t, "s", name, value);
}

static void on_stage(struct core_fixture *t, int (*act)(struct core *, mr_bytes),
                     const char *stage) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = act(t->core, mr_str(stage));
    while (attempt_repeats(&s, err));
    must(err);
}

void pause_stage(struct core_fixture *t, const char *stage) {
    on_stage(t, core_pause, stage);
}

void drain_stage(struct core_fixture *t, const char *stage) {
    on_stage(t, core_drain, stage);
}

void resume_stage(struct core_fixture *t, const char *stage) {
    on_stage(t, core_resume, stage);
}

void link_stages(struct core_fixture *t, const char *from, const char *to) {
    must(core_learn_edge(t->core, mr_str(from), mr_str(to), 0));
    check_restart(t);
}

int end_epic(struct core_fixture *t, const char *name, uint64_t total) {
    int err;
    struct attempt s = attempt_begin(t);
    core_fixture_learn_epic(t, name);
    do
        err = core_epic_end(t->core, mr_str(FIXTURE_EPICS), mr_str(name), total);
    while (attempt_repeats(&s, err));
    return err;
}

int epic_then(struct core_fixture *t, const char *name, const char *stage, const char *key,
              const char *body) {
    struct emit then = { .stage = mr_str(stage), .body = mr_str(body), .job.key = mr_str(key) };
    int err;
    struct attempt s = attempt_begin(t);
    core_fixture_learn_epic(t, name);
    core_fixture_learn_key(t, mr_str(stage), mr_str(key));
    do
        err = core_epic_then(t->core, mr_str(FIXTURE_EPICS), mr_str(name), &then);
    while (attempt_repeats(&s, err));
    return err;
}

int cancel_epic(struct core_fixture *t, const char *name) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_epic_cancel(t->core, mr_str(FIXTURE_EPICS), mr_str(name));
    while (attempt_repeats(&s, err));
    return err;
}

int forget_epic(struct core_fixture *t, const char *name, uint64_t after_ms) {
    int err;
    struct attempt s = attempt_begin(t);
    core_fixture_learn_epic(t, name);
    do
        err = core_epic_forget(t->core, mr_str(FIXTURE_EPICS), mr_str(name), after_ms);
    while (attempt_repeats(&s, err));
    return err;
}

int drop_epic(struct core_fixture *t, const char *name) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_epic_drop(t->core, mr_str(FIXTURE_EPICS), mr_str(name));
    while (attempt_repeats(&s, err));
    return err;
}

int skip_number(struct core_fixture *t, const char *name, uint64_t number) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_epic_skip(t->core, mr_str(FIXTURE_EPICS), mr_str(name), number);
    while (attempt_repeats(&s, err));
    return err;
}

int watch_epic(struct core_fixture *t, int watcher, const char *name, int64_t left) {
    t->watchers[watcher] = (struct watcher){ 0 };
    return core_epic_watch(t->core, mr_str(FIXTURE_EPICS), mr_str(name), left,
                           &t->watchers[watcher]);
}

// ---- Schedules --------------------------------------------------------------------------------

int try_schedule(struct core_fixture *t, struct schedule_spec spec, uint64_t next_ms) {
    int err;
    if (!spec.stage.size)
        spec.stage = mr_str("s");
    if (!spec.cron.size && !spec.every_ms)
        spec.every_ms = 1000;
    struct attempt s = attempt_begin(t);
    do {
        err = core_schedule_set(t->core, &spec, next_ms);
        core_fixture_learn_key(t, spec.stage, spec.job.key);
    } while (attempt_repeats(&s, err));
    return err;
}

void schedule(struct core_fixture *t, const char *name, const char *key, const char *body,
              uint64_t next_ms) {
    struct schedule_spec spec = { .name = mr_str(name),
                                  .job.key = mr_str(key),
                                  .body = mr_str(body) };
    must(try_schedule(t, spec, next_ms));
}

int drop_schedule(struct core_fixture *t, const char *name) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_schedule_drop(t->core, mr_str("s"), mr_str(name));
    while (attempt_repeats(&s, err));
    return err;
}

int pause_schedule(struct core_fixture *t, const char *name) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_schedule_pause(t->core, mr_str("s"), mr_str(name));
    while (attempt_repeats(&s, err));
    return err;
}

int resume_schedule(struct core_fixture *t, const char *name, uint64_t next_ms) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_schedule_resume(t->core, mr_str("s"), mr_str(name), next_ms);
    while (attempt_repeats(&s, err));
    return err;
}

int ask_schedule(struct core_fixture *t, const char *name) {
    int err;
    struct attempt s = attempt_begin(t);
    do
        err = core_schedule_now(t->core, mr_str("s"), mr_str(name));
    while (attempt_repeats(&s, err));
    return err;
}

// A tick that is refused is due again a little later.
void run_tick(struct core_fixture *t, uint64_t wall_ms, struct tick tick) {
    struct due_schedule d;
    mr_bytes stage, name;
    struct schedule_info i;
    int err;
    struct attempt s = attempt_begin(t);
    do {
        assert_true(core_tick_due(t->core, wall_ms, &d));
        assert_true(core_schedule_at(t->core, d.place, &stage, &name));
        err = core_tick(t->core, d.place, wall_ms, &tick);
        core_schedule_look_at(t->core, d.place, &i);
        if (err == 0 && tick.pushes)
            core_fixture_learn_job(t, i.last_id, mr_str(core_fixture_read(t, i.at)));
        if (err < 0)
            expect_no_tick(t, wall_ms);
        wall_ms += 100;
    } while (attempt_repeats(&s, err));
    must(err);
}

void expect_no_tick(struct core_fixture *t, uint64_t wall_ms) {
    struct due_schedule d;
    assert_false(core_tick_due(t->core, wall_ms, &d));
}

struct schedule_info look_schedule(struct core_fixture *t, const char *name) {
    struct schedule_info s;
    must(core_schedule(t->core, mr_str("s"), mr_str(name), &s));
    return s;
}

// ---- Links ------------------------------------------------------------------------------------

void in_shards(struct core_fixture *t, uint32_t shards) {
    t->shards = shards;
    crash(t);
}

const char *stage_in(uint32_t shard, uint32_t shards) {
    static char names[4][16];
    for (int i = 0;; i++) {
        (void)snprintf(names[shard], sizeof names[shard], "out%d", i);
        if (route_of(shards, mr_str(names[shard])) == shard)
            return names[shard];
    }
}

// core_link_accept does not return the id; the records have it.
static void learn_arrivals(struct core_fixture *t, size_t from, const char *body) {
    struct record r;
    for (size_t i = from; i < t->log_count; i++)
        if (record_decode(bytes_of(t->log[i].bytes, t->log[i].head_size), NULL, &r) == 0 &&
            r.kind == RECORD_ARRIVAL)
            core_fixture_learn_job(t, r.id, mr_str(body));
}

int arrive(struct core_fixture *t, uint32_t from, struct link_entry e, const char *body) {
    int err;
    size_t before = t->log_count;
    if (!e.stage.size)
        e.stage = mr_str("s");
    core_fixture_learn_key(t, e.stage, e.key);
    struct attempt s = attempt_begin(t);
    do {
        err = core_link_accept(t->core, from, &e, mr_str(body));
        learn_arrivals(t, before, body);
    } while (attempt_repeats(&s, err));
    return err;
}

// Until the acknowledgement is recorded, a restart brings the entries back.
void acked(struct core_fixture *t, uint32_t to, uint64_t upto) {
    must(core_link_acked(t->core, to, upto));
    t->unlike = true;
    check_restart(t);
}

void expect_outbox(struct core_fixture *t, uint32_t to, const char *entries) {
    char text[1024] = "";
    size_t size = 0;
    struct link_entry e = { 0 };
    while (core_link_next(t->core, to, e.number, &e))
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%" PRIu64 ":%s",
                                 size ? " " : "", e.number, core_fixture_read(t, e.at));
    assert_string_equal(text, entries);
}

// ---- Queries ----------------------------------------------------------------------------------

struct job_info look(struct core_fixture *t, uint64_t id) {
    struct job_info info = { 0 };
    must(core_look_job(t->core, id, &info));
    return info;
}

struct stage_info look_stage(struct core_fixture *t, const char *stage) {
    struct stage_info info = { 0 };
    must(core_look_stage(t->core, mr_str(stage), &info));
    return info;
}

struct epic_info look_epic(struct core_fixture *t, const char *name) {
    struct epic_info info = { 0 };
    must(core_epic(t->core, mr_str(FIXTURE_EPICS), mr_str(name), &info));
    return info;
}

const char *reason_of(struct core_fixture *t, uint64_t id, size_t back) {
    static char texts[16][1024];
    size_t count = 0;
    const struct core_fixture_entry *k = core_fixture_entry_at(t, look(t, id).reasons_at);
    assert_non_null(k);
    struct reason r;
    for (size_t at = 0;
         count < 16 && reasons_next(bytes_of(k->bytes + k->head_size, k->body_size), &at, &r);
         count++)
        (void)snprintf(texts[count], sizeof texts[count], "%u: %.*s", r.attempt, (int)r.text.size,
                       (const char *)r.text.data);
    assert_true(back < count);
    return texts[count - 1 - back];
}

size_t records_of(struct core_fixture *t, enum record_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < t->log_count; i++)
        count += t->log[i].bytes[0] == kind;
    return count;
}

void expect_state(struct core_fixture *t, const char *key, enum channel_state state) {
    struct channel_info info;
    if (state == CHANNEL_DORMANT && core_look_channel(t->core, mr_str("s"), mr_str(key), &info) < 0)
        return; // unknown means dormant
    must(core_look_channel(t->core, mr_str("s"), mr_str(key), &info));
    assert_int_equal(info.state, state);
}

void expect_unknown(struct core_fixture *t, const char *key) {
    struct channel_info info;
    refused(MR_EGONE, core_look_channel(t->core, mr_str("s"), mr_str(key), &info));
}

void expect_order(struct core_fixture *t, const char *key, const char *bodies) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    must(core_fixture_view_order(t, key, out));
    (void)fclose(out);
    assert_string_equal(*text ? text + 1 : text, bodies);
    free(text);
}

void expect_status(struct core_fixture *t, uint64_t id, enum job_status status) {
    assert_string_equal(job_status_name(look(t, id).status), job_status_name(status));
}

void expect_held(struct core_fixture *t, const char *stage, const char *why) {
    assert_string_equal(look_stage(t, stage).held_by, why);
}

void expect_events(struct core_fixture *t, const char *lines) {
    (void)fflush(t->events);
    assert_string_equal(t->events_text, lines);
    (void)fclose(t->events);
    free(t->events_text);
    t->events = open_memstream(&t->events_text, &t->events_size);
}
