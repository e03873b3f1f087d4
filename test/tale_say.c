// The sentences of a tale, broken while they are said, and what can be expected afterwards.
#include "tale.h"

#include <inttypes.h>
#include <stdlib.h>

enum { REFUSED = MR_ESTOPPED };

// ---- Sentences ----------------------------------------------------------------------------------

void clean(struct tale *t) {
    size_t count = t->log_count;
    char *before = tale_view(t, t->core, false);
    for (size_t i = 0; i < count; i++) {
        struct tale_entry k = t->log[i]; // the array may move
        must(core_clean(t->core, k.at, bytes_of(k.bytes, k.head_size),
                        bytes_of(k.bytes + k.head_size, k.body_size)));
    }
    must(core_trimmed(t->core, t->log_end));
    tale_forget_log(t, count);
    char *after = tale_view(t, t->core, false);
    tale_expect_same("cleaned", before, after);
    free(before);
    free(after);
}

// A sentence:  struct saying s = say(t);  do err = core_…; while (say_again(&s));
struct saying {
    struct tale *tale;
    char *before;
    bool over;
};

static struct saying say(struct tale *t) {
    struct saying s = { .tale = t };
    if (t->telling == TOLD_REFUSED) {
        s.before = tale_view(t, t->core, false);
        t->refuse = REFUSED;
        t->refused = false;
    }
    return s;
}

static void say_once(struct tale *t) {
    if (t->telling == TOLD_CLEANED)
        clean(t);
    tale_check(t->core, "said");
    if (!t->unlike)
        replay(t);
}

static bool say_again(struct saying *s, int err) {
    struct tale *t = s->tale;
    bool again = s->before && t->refused;
    if (again) {
        assert_int_equal(err, REFUSED);
        char *after = tale_view(t, t->core, false);
        tale_expect_same("refused", s->before, after);
        free(after);
    } else {
        t->refuse = 0;
        say_once(t);
    }
    free(s->before);
    s->before = NULL;
    t->refused = false;
    return again;
}

void pass_ms(struct tale *t, uint64_t ms) {
    t->now_ms += ms;
    must(core_advance(t->core, t->now_ms));
    say_once(t);
}

static void forget_releases(struct tale *t) {
    for (size_t i = 0; i < t->job_count; i++)
        t->jobs[i].released = false;
}

void crash(struct tale *t) {
    tale_close(t);
    t->running_count = 0;
    forget_releases(t);
    tale_open(t);
    say_once(t);
}

void crash_noted(struct tale *t) {
    struct tale_note notes[TALE_SEATS];
    size_t count = t->running_count;
    memcpy(notes, t->running, sizeof notes);
    crash(t);
    for (size_t i = 0; i < count; i++)
        must(core_crashed(t->core, notes[i].id, notes[i].attempt));
    say_once(t);
}

void lose(struct tale *t, int conn) {
    must(core_leave(t->core, &t->conns[conn]));
    core_join(t->core, &t->conns[conn]);
    say_once(t);
}

int try_push(struct tale *t, struct push p, struct pushed *out) {
    int err;
    if (!p.stage.size)
        p.stage = mr_str("s");
    if (!p.conn)
        p.conn = &t->conns[0];
    struct saying s = say(t);
    do {
        err = core_push(t->core, &p, out);
        if (err == 0)
            tale_meet_job(t, out->id, p.body);
        tale_meet_key(t, p.stage, p.key);
    } while (say_again(&s, err));
    return err;
}

uint64_t push_with(struct tale *t, struct push p) {
    struct pushed pushed = { 0 };
    must(try_push(t, p, &pushed));
    assert_false(pushed.repeat);
    assert_true(pushed.id != 0);
    return pushed.id;
}

uint64_t push_to(struct tale *t, const char *stage, const char *key, const char *body) {
    return push_with(
        t, (struct push){ .stage = mr_str(stage), .key = mr_str(key), .body = mr_str(body) });
}

uint64_t push(struct tale *t, const char *key, const char *body) {
    return push_to(t, "s", key, body);
}

uint64_t push_once(struct tale *t, const char *key, const char *once, const char *body) {
    struct pushed pushed = { 0 };
    struct push p = { .key = mr_str(key), .once = mr_str(once), .body = mr_str(body) };
    must(try_push(t, p, &pushed));
    return pushed.id;
}

uint64_t call(struct tale *t, int caller, const char *once, const char *body, int64_t deadline_ms) {
    struct pushed pushed = { 0 };
    t->callers[caller] = (struct caller){ .conn = &t->conns[0] };
    struct push p = { .once = mr_str(once),
                      .body = mr_str(body),
                      .deadline_ms = deadline_ms,
                      .caller = &t->callers[caller] };
    must(try_push(t, p, &pushed));
    return pushed.id;
}

int push_number(struct tale *t, const char *epic, uint64_t number, const char *body) {
    struct pushed pushed = { 0 };
    tale_meet_epic(t, epic);
    return try_push(t,
                    (struct push){ .key = mr_str("e"),
                                   .source = mr_str(epic),
                                   .number = number,
                                   .epic = true,
                                   .body = mr_str(body) },
                    &pushed);
}

int await(struct tale *t, int caller, uint64_t id, struct outcome *out) {
    t->callers[caller] = (struct caller){ .conn = &t->conns[0] };
    int err = core_await(t->core, id, &t->callers[caller], out);
    say_once(t);
    return err;
}

void hang_up(struct tale *t, int caller) {
    must(core_await_leave(t->core, &t->callers[caller]));
    say_once(t);
}

bool cancel(struct tale *t, uint64_t id) {
    bool changed = false;
    int err;
    struct saying s = say(t);
    do
        err = core_cancel(t->core, id, &changed);
    while (say_again(&s, err));
    must(err);
    return changed;
}

size_t try_take(struct tale *t, struct take take, struct taken *out) {
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
        out[i] = tale_taken(t, &grants[i]);
    if (err != MR_EAGAIN)
        must(err);
    say_once(t);
    return err < 0 ? 0 : count;
}

struct taken take_from(struct tale *t, const char *stage) {
    mr_bytes name = mr_str(stage);
    struct taken taken = { 0 };
    if (!try_take(t, (struct take){ .stages = &name, .stage_count = 1 }, &taken))
        fail_msg("there is no work in %s", stage);
    return taken;
}

struct taken take(struct tale *t) {
    return take_from(t, "s");
}

size_t take_block(struct tale *t, uint32_t batch, struct taken *out) {
    return try_take(t, (struct take){ .count = batch, .batch = batch }, out);
}

void expect_take(struct tale *t, const char *body) {
    struct taken taken = take(t);
    assert_string_equal(taken.body, body);
    done(t, taken);
}

void expect_no_work(struct tale *t) {
    struct taken taken;
    if (try_take(t, (struct take){ 0 }, &taken))
        fail_msg("%s was there to take", taken.body);
}

void wait_for_work(struct tale *t, int taker, const char *stage) {
    mr_bytes name = mr_str(stage);
    struct grant grant;
    size_t count;
    t->takers[taker] = (struct taker){ .conn = &t->conns[taker % TALE_CONNS] };
    struct take take = {
        .stages = &name, .stage_count = 1, .conn = t->takers[taker].conn, .taker = &t->takers[taker]
    };
    assert_int_equal(core_take(t->core, &take, &grant, &count), MR_EAGAIN);
    say_once(t);
}

int try_done(struct tale *t, struct done d) {
    int err;
    struct saying s = say(t);
    for (size_t i = 0; i < d.emit_count; i++)
        tale_meet_key(t, d.emits[i].stage, d.emits[i].key);
    do
        err = core_done(t->core, &d);
    while (say_again(&s, err));
    return err;
}

int done_again(struct tale *t, struct taken taken) {
    return try_done(t, (struct done){ .id = taken.id, .token = taken.token });
}

void done(struct tale *t, struct taken taken) {
    must(done_again(t, taken));
}

void done_with(struct tale *t, struct taken taken, const char *result, const char *state) {
    must(try_done(t, (struct done){ .id = taken.id,
                                    .token = taken.token,
                                    .result = mr_str(result),
                                    .set_state = state != NULL,
                                    .state = mr_str(state) }));
}

void done_emit(struct tale *t, struct taken taken, const char *stage, const char *key,
               const char *body) {
    struct emit emit = { .stage = mr_str(stage), .key = mr_str(key), .body = mr_str(body) };
    must(try_done(
        t, (struct done){ .id = taken.id, .token = taken.token, .emits = &emit, .emit_count = 1 }));
}

int fail_with(struct tale *t, struct taken taken, const char *reason, int64_t retry_ms) {
    int err;
    struct saying s = say(t);
    if (tale_job_of(t, taken.id))
        tale_job_of(t, taken.id)->released = false;
    do
        err = core_fail(t->core, taken.id, &taken.token, mr_str(reason), retry_ms);
    while (say_again(&s, err));
    return err;
}

int find_unreadable(struct tale *t, struct taken taken) {
    int err;
    struct saying s = say(t);
    do
        err = core_unreadable(t->core, taken.id, &taken.token, mr_str("damaged"), MR_NEVER);
    while (say_again(&s, err));
    return err;
}

void fail_job(struct tale *t, struct taken taken) {
    must(fail_with(t, taken, "no", MR_BACKOFF));
}

int release_job(struct tale *t, struct taken taken) {
    int err = core_release(t->core, taken.id, &taken.token);
    if (err == 0)
        tale_job_of(t, taken.id)->released = true;
    say_once(t);
    return err;
}

int beat(struct tale *t, struct taken taken) {
    int err = core_beat(t->core, taken.id, &taken.token);
    say_once(t);
    return err;
}

int retry(struct tale *t, uint64_t id) {
    int err;
    struct saying s = say(t);
    do
        err = core_retry(t->core, id);
    while (say_again(&s, err));
    return err;
}

int drop(struct tale *t, uint64_t id) {
    int err;
    struct saying s = say(t);
    do
        err = core_drop(t->core, id);
    while (say_again(&s, err));
    return err;
}

int try_set(struct tale *t, const char *stage, const char *name, const char *value) {
    int err;
    struct saying s = say(t);
    do
        err = core_set(t->core, mr_str(stage), mr_str(name), mr_str(value));
    while (say_again(&s, err));
    return err;
}

void set_on(struct tale *t, const char *stage, const char *name, const char *value) {
    must(try_set(t, stage, name, value));
}

void set(struct tale *t, const char *name, const char *value) {
    set_on(t, "s", name, value);
}

static void on_stage(struct tale *t, int (*act)(struct core *, mr_bytes), const char *stage) {
    int err;
    struct saying s = say(t);
    do
        err = act(t->core, mr_str(stage));
    while (say_again(&s, err));
    must(err);
}

void pause_stage(struct tale *t, const char *stage) {
    on_stage(t, core_pause, stage);
}

void drain_stage(struct tale *t, const char *stage) {
    on_stage(t, core_drain, stage);
}

void resume_stage(struct tale *t, const char *stage) {
    on_stage(t, core_resume, stage);
}

void link_stages(struct tale *t, const char *from, const char *to) {
    must(core_learn_edge(t->core, mr_str(from), mr_str(to)));
    say_once(t);
}

int end_epic(struct tale *t, const char *name, uint64_t total) {
    int err;
    struct saying s = say(t);
    tale_meet_epic(t, name);
    do
        err = core_epic_end(t->core, mr_str(TALE_EPICS), mr_str(name), total);
    while (say_again(&s, err));
    return err;
}

int skip_number(struct tale *t, const char *name, uint64_t number) {
    int err;
    struct saying s = say(t);
    do
        err = core_epic_skip(t->core, mr_str(TALE_EPICS), mr_str(name), number);
    while (say_again(&s, err));
    return err;
}

int watch_epic(struct tale *t, int watcher, const char *name, int64_t left) {
    t->watchers[watcher] = (struct watcher){ 0 };
    return core_epic_watch(t->core, mr_str(TALE_EPICS), mr_str(name), left, &t->watchers[watcher]);
}

// ---- Links --------------------------------------------------------------------------------------

void in_shards(struct tale *t, uint32_t shards) {
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

// The core does not say which id it gave; its records do.
static void meet_arrivals(struct tale *t, size_t from, const char *body) {
    struct record r;
    for (size_t i = from; i < t->log_count; i++)
        if (record_decode(bytes_of(t->log[i].bytes, t->log[i].head_size), NULL, &r) == 0 &&
            r.kind == RECORD_ARRIVAL)
            tale_meet_job(t, r.id, mr_str(body));
}

int arrive(struct tale *t, uint32_t from, struct link_entry e, const char *body) {
    int err;
    size_t before = t->log_count;
    if (!e.stage.size)
        e.stage = mr_str("s");
    tale_meet_key(t, e.stage, e.key);
    struct saying s = say(t);
    do {
        err = core_link_accept(t->core, from, &e, mr_str(body));
        meet_arrivals(t, before, body);
    } while (say_again(&s, err));
    return err;
}

// Until that is written down, a restart brings back what was acknowledged.
void acked(struct tale *t, uint32_t to, uint64_t upto) {
    must(core_link_acked(t->core, to, upto));
    t->unlike = true;
    say_once(t);
}

void expect_outbox(struct tale *t, uint32_t to, const char *entries) {
    char text[1024] = "";
    size_t size = 0;
    struct link_entry e = { 0 };
    while (core_link_next(t->core, to, e.number, &e))
        size += (size_t)snprintf(text + size, sizeof text - size, "%s%" PRIu64 ":%s",
                                 size ? " " : "", e.number, tale_read(t, e.at));
    assert_string_equal(text, entries);
}

// ---- Looking ------------------------------------------------------------------------------------

struct job_info look(struct tale *t, uint64_t id) {
    struct job_info info = { 0 };
    must(core_look_job(t->core, id, &info));
    return info;
}

struct stage_info look_stage(struct tale *t, const char *stage) {
    struct stage_info info = { 0 };
    must(core_look_stage(t->core, mr_str(stage), &info));
    return info;
}

struct epic_info look_epic(struct tale *t, const char *name) {
    struct epic_info info = { 0 };
    must(core_epic(t->core, mr_str(TALE_EPICS), mr_str(name), &info));
    return info;
}

const char *reason_of(struct tale *t, uint64_t id, size_t back) {
    static char texts[16][1024];
    size_t count = 0;
    const struct tale_entry *k = tale_entry_at(t, look(t, id).reasons_at);
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

size_t records_of(struct tale *t, enum record_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < t->log_count; i++)
        count += t->log[i].bytes[0] == kind;
    return count;
}

void expect_state(struct tale *t, const char *key, enum channel_state state) {
    struct channel_info info;
    if (state == CHANNEL_DORMANT && core_look_channel(t->core, mr_str("s"), mr_str(key), &info) < 0)
        return; // forgotten: dormant, and of no use
    must(core_look_channel(t->core, mr_str("s"), mr_str(key), &info));
    assert_int_equal(info.state, state);
}

void expect_unknown(struct tale *t, const char *key) {
    struct channel_info info;
    refused(MR_EGONE, core_look_channel(t->core, mr_str("s"), mr_str(key), &info));
}

void expect_order(struct tale *t, const char *key, const char *bodies) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    must(tale_view_order(t, key, out));
    (void)fclose(out);
    assert_string_equal(*text ? text + 1 : text, bodies);
    free(text);
}

void expect_status(struct tale *t, uint64_t id, enum job_status status) {
    assert_string_equal(job_status_name(look(t, id).status), job_status_name(status));
}

void expect_held(struct tale *t, const char *stage, const char *why) {
    assert_string_equal(look_stage(t, stage).held_by, why);
}

void expect_said(struct tale *t, const char *lines) {
    (void)fflush(t->said);
    assert_string_equal(t->said_text, lines);
    (void)fclose(t->said);
    free(t->said_text);
    t->said = open_memstream(&t->said_text, &t->said_size);
}
