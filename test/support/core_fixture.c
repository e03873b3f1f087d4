// The core's environment: a log in an array, names for jobs, and the events of the core as text.
#include "core_fixture.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

static enum fixture_mode mode_now;

void must_be(const char *file, int line, const char *what, int got, int expected) {
    if (got == expected)
        return;
    fprintf(stderr, "%s:%d: %s\n  answered %s, not %s: %s\n", file, line, what,
            got < 0 ? error_name(got) : "0", expected < 0 ? error_name(expected) : "0",
            error_text());
    _fail(file, line);
}

// ---- The log ----------------------------------------------------------------------------------

static void log_add(struct core_fixture *t, const struct entry *e, bool last) {
    if (t->log_count == t->log_capacity) {
        t->log_capacity = t->log_capacity ? 2 * t->log_capacity : 64;
        t->log = realloc(t->log, t->log_capacity * sizeof *t->log);
    }
    struct core_fixture_entry *k = &t->log[t->log_count++];
    *k = (struct core_fixture_entry){ t->log_end, e->head.size, e->body.size, NULL, last };
    k->bytes = malloc(e->head.size + e->body.size + 1);
    memcpy(k->bytes, e->head.data, e->head.size);
    if (e->body.size)
        memcpy(k->bytes + e->head.size, e->body.data, e->body.size);
    t->log_end += entry_size(e->head.size, e->body.size);
}

void core_fixture_log_add(struct core_fixture *t, const struct record *r) {
    uint8_t head[RECORD_MAX];
    struct entry e = { .head = { head, record_encode(r, head) } };
    log_add(t, &e, true);
}

void core_fixture_forget_log(struct core_fixture *t, size_t count) {
    for (size_t i = 0; i < count; i++)
        free(t->log[i].bytes);
    t->log_count -= count;
    memmove(t->log, t->log + count, t->log_count * sizeof *t->log);
}

const struct core_fixture_entry *core_fixture_entry_at(const struct core_fixture *t, uint64_t at) {
    for (size_t i = 0; i < t->log_count; i++)
        if (t->log[i].at == at)
            return &t->log[i];
    return NULL;
}

static int sink_append(void *owner, const struct entry *e, size_t count, enum room room,
                       uint64_t *out_at) {
    struct core_fixture *t = owner;
    t->appends++;
    if (t->full && room != ROOM_CLEAN)
        return error_set(MR_EFULL, "the log has room for its cleaner only");
    if (t->refuse) {
        int err = t->refuse;
        t->refuse = 0;
        t->refused = true;
        return error_set(err, "the log does not take it");
    }
    for (size_t i = 0; i < count; i++) {
        struct record r;
        struct record_about about;
        out_at[i] = t->log_end;
        log_add(t, &e[i], i + 1 == count);
        assert_int_equal(record_decode(e[i].head, &about, &r), 0);
        if (t->on_record)
            t->on_record(t, &r, e[i].body);
    }
    return 0;
}

int core_fixture_sink_read(void *owner, uint64_t at, struct buffer *out_body) {
    const struct core_fixture_entry *k = core_fixture_entry_at(owner, at);
    return k ? buffer_append(out_body, k->bytes + k->head_size, k->body_size) : MR_EGONE;
}

const char *core_fixture_read(struct core_fixture *t, uint64_t at) {
    static char text[1 << 16];
    const struct core_fixture_entry *k = at ? core_fixture_entry_at(t, at) : NULL;
    if (at && !k)
        fail_msg("nothing is kept at %" PRIu64, at);
    size_t size = k && k->body_size < sizeof text ? k->body_size : 0;
    if (size)
        memcpy(text, k->bytes + k->head_size, size);
    text[size] = 0;
    return text;
}

void core_fixture_text(mr_bytes b, char out[FIXTURE_TEXT]) {
    (void)snprintf(out, FIXTURE_TEXT, "%.*s", (int)b.size, b.size ? (const char *)b.data : "");
}

// ---- Names ------------------------------------------------------------------------------------

struct core_fixture_job *core_fixture_job_of(struct core_fixture *t, uint64_t id) {
    for (size_t i = 0; i < t->job_count; i++)
        if (t->jobs[i].id == id)
            return &t->jobs[i];
    return NULL;
}

const char *core_fixture_name(const struct core_fixture *t, uint64_t id) {
    for (size_t i = 0; i < t->job_count; i++)
        if (t->jobs[i].id == id)
            return t->jobs[i].body;
    return "?";
}

void core_fixture_learn_job(struct core_fixture *t, uint64_t id, mr_bytes body) {
    if (!id || core_fixture_job_of(t, id))
        return;
    assert_true(t->job_count < FIXTURE_JOBS);
    struct core_fixture_job *j = &t->jobs[t->job_count++];
    j->id = id;
    core_fixture_text(body, j->body);
}

void core_fixture_learn_key(struct core_fixture *t, mr_bytes stage, mr_bytes key) {
    struct core_fixture_key k;
    core_fixture_text(stage, k.stage);
    core_fixture_text(key, k.key);
    for (size_t i = 0; i < t->key_count; i++)
        if (!strcmp(t->keys[i].stage, k.stage) && !strcmp(t->keys[i].key, k.key))
            return;
    if (key.size && t->key_count < FIXTURE_KEYS)
        t->keys[t->key_count++] = k;
}

void core_fixture_learn_epic(struct core_fixture *t, const char *name) {
    for (size_t i = 0; i < t->epic_count; i++)
        if (!strcmp(t->epics[i], name))
            return;
    assert_true(t->epic_count < FIXTURE_SLOTS);
    (void)snprintf(t->epics[t->epic_count++], FIXTURE_TEXT, "%s", name);
}

struct taken core_fixture_taken(struct core_fixture *t, const struct grant *g) {
    struct taken taken = { .id = g->id,
                           .token = g->token,
                           .attempt = g->attempt,
                           .left_ms = g->left_ms,
                           .lease_ms = g->lease_ms };
    core_fixture_text(g->stage, taken.stage);
    core_fixture_text(g->key, taken.key);
    mr_bytes joined = mr_str(core_fixture_read(t, g->at));
    core_fixture_text(bytes_of(joined.data, joined.size - g->meta_size), taken.body);
    core_fixture_text(bytes_tail(joined, g->meta_size), taken.meta);
    core_fixture_text(mr_str(core_fixture_read(t, g->state_at)), taken.state);
    core_fixture_learn_job(t, g->id, mr_str(taken.body));
    return taken;
}

// ---- Events -----------------------------------------------------------------------------------

static bool on_reserve(void *owner, struct taker *taker) {
    struct core_fixture *t = owner;
    return !t->unresponsive[taker - t->takers];
}

static void on_granted(void *owner, struct taker *taker, const struct grant *g, size_t count) {
    struct core_fixture *t = owner;
    for (size_t i = 0; i < count; i++) {
        t->granted[taker - t->takers] = core_fixture_taken(t, &g[i]);
        fprintf(t->events, "taker %d: %s\n", (int)(taker - t->takers),
                core_fixture_name(t, g[i].id));
    }
}

static void on_ended(void *owner, struct caller *caller, const struct outcome *o) {
    struct core_fixture *t = owner;
    const char *result = o->status == JOB_DONE ? core_fixture_read(t, o->at) : "";
    fprintf(t->events, "caller %d: %s %s%s%s\n", (int)(caller - t->callers),
            core_fixture_name(t, o->id), job_status_name(o->status), *result ? " " : "", result);
}

static void on_room(void *owner, struct pusher *pusher) {
    struct core_fixture *t = owner;
    fprintf(t->events, "room %d\n", (int)(pusher - t->pushers));
}

static void on_stop(void *owner, struct conn *conn, uint64_t id, const struct token *token,
                    int why) {
    struct core_fixture *t = owner;
    (void)token;
    fprintf(t->events, "stop %s: %s (connection %d)\n", core_fixture_name(t, id), error_name(why),
            (int)(conn - t->conns));
}

static void on_running(void *owner, uint64_t id, uint32_t attempt, bool begins) {
    struct core_fixture *t = owner;
    if (begins && t->running_count < FIXTURE_SLOTS)
        t->running[t->running_count++] = (struct core_fixture_note){ id, attempt };
    for (size_t i = 0; i < t->running_count && !begins; i++)
        if (t->running[i].id == id && t->running[i].attempt == attempt)
            t->running[i] = t->running[--t->running_count];
}

static void on_epic(void *owner, struct watcher *watcher) {
    struct core_fixture *t = owner;
    fprintf(t->events, "watcher %d\n", (int)(watcher - t->watchers));
}

// ---- Creation
// ---------------------------------------------------------------------------------------

int core_fixture_replay_into(const struct core_fixture *t, size_t count, struct core *core) {
    int err = 0;
    for (size_t i = 0; i < count && err == 0; i++) {
        const struct core_fixture_entry *k = &t->log[i];
        err = core_replay(core, k->at, bytes_of(k->bytes, k->head_size), (uint32_t)k->body_size);
    }
    return err;
}

static int on_share(void *owner, uint64_t maker) {
    struct core_fixture *t = owner;
    t->asked = maker;
    return 0;
}

void core_fixture_open(struct core_fixture *t) {
    struct core_config config = {
        .limits = t->limits,
        .shards = t->shards,
        .sink = { sink_append, core_fixture_sink_read, on_running, t },
        .events = { .reserve = on_reserve,
                    .granted = on_granted,
                    .ended = on_ended,
                    .room = on_room,
                    .stop = on_stop,
                    .epic = on_epic },
        .peers = { .share = on_share, .owner = t },
        .quotas = t->quotas,
        .owner = t,
    };
    assert_int_equal(core_create(&config, &t->core), 0);
    must(core_fixture_replay_into(t, t->log_count, t->core));
    must(core_open(t->core, t->now_ms, ++t->opens));
    must(core_advance(t->core, t->now_ms));
    for (int i = 0; i < FIXTURE_CONNS; i++)
        core_join(t->core, &t->conns[i]);
}

void core_fixture_close(struct core_fixture *t) {
    for (int i = 0; i < FIXTURE_SLOTS && t->core; i++)
        core_take_leave(t->core, &t->takers[i]);
    core_destroy(t->core);
    t->core = NULL;
    for (int i = 0; i < FIXTURE_CONNS; i++) {
        mem_free(t->conns[i].gaps); // a connection that leaves frees them
        t->conns[i].gaps = NULL;
    }
}

struct core_fixture *core_fixture_create(enum fixture_mode mode, struct core_limits limits) {
    struct core_fixture *t = calloc(1, sizeof *t);
    t->mode = mode;
    t->limits = limits;
    t->now_ms = LATER_MS;
    t->log_end = 64;
    t->events = open_memstream(&t->events_text, &t->events_size);
    core_fixture_open(t);
    return t;
}

void core_fixture_destroy(struct core_fixture *t) {
    core_fixture_close(t);
    core_fixture_forget_log(t, t->log_count);
    free(t->log);
    (void)fclose(t->events);
    free(t->events_text);
    free(t);
}

// ---- Running tests
// ------------------------------------------------------------------------------------

int core_fixture_setup(void **state) {
    *state = core_fixture_create(mode_now, (struct core_limits){ 0 });
    return 0;
}

int core_fixture_teardown(void **state) {
    struct core_fixture *t = *state;
    if (t->mode == MODE_PLAIN)
        core_fixture_finish_every_prefix(t);
    core_fixture_destroy(t);
    return 0;
}

int core_tests_run(const char *name, const struct CMUnitTest *tests, size_t count) {
    static const char *const modes[] = { "plain", "cleaned", "refused" };
    int failed = 0;
    for (mode_now = MODE_PLAIN; mode_now <= MODE_REFUSED; mode_now++) {
        char group[256];
        (void)snprintf(group, sizeof group, "%s, mode %s", name, modes[mode_now]);
        failed += _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    }
    return failed;
}
