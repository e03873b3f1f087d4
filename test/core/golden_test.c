// Golden traces: scripts of commands, with all answers, events and records of the core.
//
//     @100 push mail key=ann "hello"        a command, at 100 ms
//         + push 1 mail:ann "hello"         a record
//         = job 1                           the answer
//
// A file of golden/ is its own expectation: commands, comments and blank lines are kept, lines that
// begin with a blank are what happened. MILLRACE_GOLDEN=write writes that down anew, to be read.
// Jobs have numbers in order of appearance; a `take` of a job can be named later as 1/2: the second
// take of job 1. After every command the log is replayed and compared, see core_fixture.h.
#include "support/core_fixture.h"
#include "support/script.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TAKES = 64, STAGES = 16 };

struct golden {
    struct core_fixture *fixture;
    char stages[STAGES][FIXTURE_TEXT]; // by number
    struct taken takes[TAKES];
    size_t take_count;
    FILE *out;
};

static struct golden *now; // for the hook, which gets the fixture only

// ---- Reading ----------------------------------------------------------------------------------

static uint64_t job_id(struct golden *g, const char *number) {
    size_t n = strtoull(number, NULL, 10);
    return n && n <= g->fixture->job_count ? g->fixture->jobs[n - 1].id : 999999999;
}

static size_t job_number(struct golden *g, uint64_t id) {
    for (size_t i = 0; i < g->fixture->job_count; i++)
        if (g->fixture->jobs[i].id == id)
            return i + 1;
    return 0;
}

// "1" is the latest take of job 1, "1/2" its second.
static struct taken take_of(struct golden *g, const char *name) {
    uint64_t id = job_id(g, name);
    const char *slash = strchr(name, '/');
    size_t which = slash ? strtoull(slash + 1, NULL, 10) : SIZE_MAX, seen = 0;
    struct taken found = { .id = id };
    for (size_t i = 0; i < g->take_count && seen < which; i++)
        if (g->takes[i].id == id) {
            found = g->takes[i];
            seen++;
        }
    return found;
}

// ---- Writing ----------------------------------------------------------------------------------

static void note_take(struct golden *g, struct taken taken) {
    assert_true(g->take_count < TAKES);
    g->takes[g->take_count++] = taken;
}

static void write_answer(struct golden *g, int err) {
    if (err < 0)
        fprintf(g->fixture->events, "= %s\n", error_name(err));
    else
        fprintf(g->fixture->events, "= ok\n");
}

static int64_t since_start(uint64_t ms) {
    return (int64_t)(ms - LATER_MS);
}

static void write_bytes(FILE *out, const char *before, mr_bytes b) {
    fprintf(out, "%s\"%.*s\"", before, (int)b.size, b.size ? (const char *)b.data : "");
}

static void write_optional(FILE *out, const struct record *r) {
    if (r->has_once)
        fprintf(out, " once");
    if (r->call)
        fprintf(out, " call");
    bool halts = r->kind == RECORD_FAIL && r->status == JOB_DEAD;
    const char *due = r->kind == RECORD_END ? "unstarted, waited since" : halts ? "halts" : "due";
    if (r->due_ms)
        fprintf(out, " %s @%" PRId64, due, since_start(r->due_ms));
    if (r->deadline_ms)
        fprintf(out, " until @%" PRId64, since_start(r->deadline_ms));
    if (r->attempts)
        fprintf(out, " of %u attempts", r->attempts);
    if (r->number)
        fprintf(out, " number %" PRIu64, r->number);
}

static void write_reasons(FILE *out, mr_bytes body) {
    struct reason reason;
    for (size_t at = 0; reasons_next(body, &at, &reason);)
        fprintf(out, " [%u: %.*s]", reason.attempt, (int)reason.text.size,
                (const char *)reason.text.data);
}

// A stage's record has all its fields; prints those that differ from the defaults.
static void write_stage(FILE *out, const struct record_stage *s) {
    struct policy plain = policy_default();
    char value[64], usual[64];
    const char *name;
    for (size_t i = 0; (name = policy_get(&s->policy, i, value, sizeof value)); i++) {
        (void)policy_get(&plain, i, usual, sizeof usual);
        if (strcmp(value, usual) != 0)
            fprintf(out, " %s=%s", name, value);
    }
    fprintf(out, "%s%s", s->paused ? " paused" : "", s->draining ? " draining" : "");
}

static void write_place(struct golden *g, const struct record *r) {
    FILE *out = g->fixture->events;
    if (r->stage && r->stage < STAGES)
        fprintf(out, " %s", g->stages[r->stage]);
    if (r->key.size)
        fprintf(out, ":%.*s", (int)r->key.size, (const char *)r->key.data);
}

static void write_body(struct golden *g, const struct record *r, mr_bytes body) {
    FILE *out = g->fixture->events;
    bool is_source = r->kind == RECORD_SOURCE || r->kind == RECORD_SOURCE_OLD;
    if (record_body_name(r->kind) && (body.size || r->kind != RECORD_END))
        write_bytes(out, " ", body);
    if (r->kind == RECORD_FAIL)
        write_reasons(out, body);
    if (r->kind == RECORD_STAGE)
        write_stage(out, &r->about->stage);
    if (is_source)
        fprintf(out, " %.*s up to %" PRIu64, (int)r->name.size, (const char *)r->name.data,
                r->about->source.highest);
}

static void write_schedule(FILE *out, const struct record *r) {
    const struct record_move *m = &r->about->move;
    if (r->kind == RECORD_SCHEDULE || r->kind == RECORD_SCHEDULE_MOVE ||
        r->kind == RECORD_SCHEDULE_DROP)
        write_bytes(out, " ", r->name);
    if (r->kind == RECORD_SCHEDULE || r->kind == RECORD_SCHEDULE_MOVE)
        fprintf(out, " next %" PRIu64 " last %" PRIu64 " pushed %" PRIu64 "%s%s", m->next_ms,
                m->last_ms, m->pushed, m->paused ? " paused" : "", m->asked ? " asked" : "");
    if (r->kind == RECORD_SCHEDULE)
        fprintf(out, " every %" PRIu64, r->about->schedule.every_ms);
}

static void write_link(FILE *out, const struct record *r) {
    static const char *const which[] = { "to", "from", "with" };
    if (r->kind < RECORD_OUTBOX || r->kind > RECORD_LINK)
        return;
    fprintf(out, " %s shard %u", which[r->kind - RECORD_OUTBOX], r->shard);
    if (r->name.size)
        write_bytes(out, " once ", r->name);
    if (r->kind == RECORD_LINK)
        fprintf(out, " acknowledged up to %" PRIu64 ", accepted", r->upto);
}

static void on_record(struct core_fixture *t, const struct record *r, mr_bytes body) {
    struct golden *g = now;
    if (r->kind == RECORD_STAGE)
        core_fixture_text(r->name, g->stages[r->stage]);
    core_fixture_learn_job(t, r->kind == RECORD_PUSH || r->kind == RECORD_ARRIVAL ? r->id : 0,
                           body);
    fprintf(t->events, "+ %s", record_kind_name(r->kind));
    if (r->id)
        fprintf(t->events, " %zu", job_number(g, r->id));
    write_place(g, r);
    if (r->kind == RECORD_END || r->kind == RECORD_FAIL || r->kind == RECORD_JOB)
        fprintf(t->events, " %s", job_status_name(r->status));
    if (r->kind == RECORD_FAIL || (r->kind == RECORD_JOB && r->attempt))
        fprintf(t->events, " attempt %u", r->attempt);
    if (r->kind == RECORD_LEASE && !r->due_ms)
        fprintf(t->events, " is over");
    if (r->kind == RECORD_EPOCH)
        fprintf(t->events, " %" PRIu64, r->epoch);
    write_link(t->events, r);
    write_schedule(t->events, r);
    write_optional(t->events, r);
    write_body(g, r, body);
    fprintf(t->events, "%s\n", r->copy ? " (copy)" : "");
}

// ---- Commands ---------------------------------------------------------------------------------

static void run_push(struct golden *g, const struct line *l) {
    struct core_fixture *t = g->fixture;
    const char *caller = option(l, 1, "call"), *room = option(l, 1, "room");
    struct push p = {
        .stage = mr_str(word(l, 1)),
        .job.key = mr_str(option(l, 1, "key")),
        .job.once = mr_str(option(l, 1, "once")),
        .body = mr_str(quoted(l, 1)),
        .job.delay_ms = number_option(l, 1, "delay"),
        .job.deadline_ms = number_option(l, 1, "deadline"),
        .job.attempts = (uint32_t)number_option(l, 1, "attempts"),
        .source = mr_str(option(l, 1, "epic")),
        .number = (uint64_t)number_option(l, 1, "number"),
        .epic = true,
        .conn = &t->conns[number_option(l, 1, "by")],
    };
    if (p.source.size)
        core_fixture_learn_epic(t, option(l, 1, "epic"));
    if (caller) {
        p.caller = &t->callers[strtol(caller, NULL, 10)];
        *p.caller = (struct caller){ .conn = p.conn };
    }
    if (room) {
        p.pusher = &t->pushers[strtol(room, NULL, 10)];
        p.pusher->conn = p.conn;
    }
    struct pushed pushed = { 0 };
    int err = try_push(t, p, &pushed);
    if (err < 0)
        write_answer(g, err);
    else
        fprintf(t->events, "= job %zu%s\n", job_number(g, pushed.id),
                pushed.repeat ? " again" : "");
}

static void write_taken(struct golden *g, const struct taken *a) {
    FILE *out = g->fixture->events;
    fprintf(out, "= take %zu %s%s%s attempt %u \"%s\"", job_number(g, a->id), a->stage,
            *a->key ? ":" : "", a->key, a->attempt, a->body);
    if (*a->state)
        fprintf(out, " state \"%s\"", a->state);
    if (a->left_ms >= 0)
        fprintf(out, " %" PRId64 " ms left", a->left_ms);
    fprintf(out, "\n");
}

static void run_take(struct golden *g, const struct line *l) {
    struct core_fixture *t = g->fixture;
    mr_bytes stage = mr_str(word(l, 1));
    struct take take = {
        .stages = &stage,
        .stage_count = 1,
        .count = (uint32_t)number_option(l, 1, "count"),
        .batch = (uint32_t)number_option(l, 1, "batch"),
        .lease_ms = number_option(l, 1, "lease"),
        .detached = has_word(l, "detached"),
        .conn = &t->conns[number_option(l, 1, "by")],
    };
    if (take.batch > take.count)
        take.count = take.batch;
    struct taken taken[32];
    size_t count = try_take(t, take, taken);
    for (size_t i = 0; i < count; i++) {
        note_take(g, taken[i]);
        write_taken(g, &taken[i]);
    }
    if (!count)
        fprintf(t->events, "= nothing\n");
}

static void run_done(struct golden *g, const struct line *l) {
    struct taken taken = take_of(g, word(l, 1));
    struct emit emits[8];
    struct done d = { .id = taken.id,
                      .token = taken.token,
                      .result = mr_str(option(l, 1, "result")),
                      .set_state = option(l, 1, "state") != NULL,
                      .state = mr_str(option(l, 1, "state")),
                      .emits = emits };
    for (int i = 2; i < l->count; i++) {
        if (strcmp(l->words[i], "emit") != 0)
            continue;
        assert_true(d.emit_count < 8);
        emits[d.emit_count++] = (struct emit){ .stage = mr_str(word(l, i + 1)),
                                               .job.key = mr_str(option(l, i + 1, "key")),
                                               .job.once = mr_str(option(l, i + 1, "once")),
                                               .body = mr_str(quoted(l, i + 1)) };
    }
    write_answer(g, try_done(g->fixture, d));
}

static void run_fail(struct golden *g, const struct line *l) {
    const char *when = option(l, 1, "retry");
    int64_t retry_ms = MR_BACKOFF;
    if (when)
        retry_ms = strcmp(when, "never") ? strtoll(when, NULL, 10) : MR_NEVER;
    write_answer(g, fail_with(g->fixture, take_of(g, word(l, 1)), quoted(l, 2), retry_ms));
}

static void run_release(struct golden *g, const struct line *l) {
    write_answer(g, release_job(g->fixture, take_of(g, word(l, 1))));
}

static void run_beat(struct golden *g, const struct line *l) {
    write_answer(g, beat(g->fixture, take_of(g, word(l, 1))));
}

static void run_cancel(struct golden *g, const struct line *l) {
    bool changed = cancel(g->fixture, job_id(g, word(l, 1)));
    fprintf(g->fixture->events, "= %s\n", changed ? "ok" : "it has ended already");
}

static void run_retry(struct golden *g, const struct line *l) {
    write_answer(g, retry(g->fixture, job_id(g, word(l, 1))));
}

static void run_drop(struct golden *g, const struct line *l) {
    write_answer(g, drop(g->fixture, job_id(g, word(l, 1))));
}

static void run_hang_up(struct golden *g, const struct line *l) {
    hang_up(g->fixture, (int)strtol(word(l, 1), NULL, 10));
}

static void run_lose(struct golden *g, const struct line *l) {
    lose(g->fixture, (int)strtol(word(l, 1), NULL, 10));
}

static void run_set(struct golden *g, const struct line *l) {
    write_answer(g, try_set(g->fixture, word(l, 1), word(l, 2), word(l, 3)));
}

static void run_pause(struct golden *g, const struct line *l) {
    pause_stage(g->fixture, word(l, 1));
}

static void run_resume(struct golden *g, const struct line *l) {
    resume_stage(g->fixture, word(l, 1));
}

static void run_pause_key(struct golden *g, const struct line *l) {
    write_answer(g, pause_key(g->fixture, word(l, 1)));
}

static void run_resume_key(struct golden *g, const struct line *l) {
    write_answer(g, resume_key(g->fixture, word(l, 1)));
}

// Schedules are of stage s.
static void run_schedule(struct golden *g, const struct line *l) {
    struct schedule_spec spec = { .name = mr_str(word(l, 1)),
                                  .every_ms = (uint64_t)number_option(l, 1, "every"),
                                  .job.key = mr_str(option(l, 1, "key")),
                                  .body = mr_str(quoted(l, 1)) };
    write_answer(g, try_schedule(g->fixture, spec, (uint64_t)number_option(l, 1, "next")));
}

static void run_schedule_act(struct golden *g, const struct line *l) {
    const char *name = word(l, 1), *act = word(l, 2);
    struct core_fixture *t = g->fixture;
    uint64_t next_ms = (uint64_t)number_option(l, 1, "next");
    write_answer(g, !strcmp(act, "drop")     ? drop_schedule(t, name)
                    : !strcmp(act, "pause")  ? pause_schedule(t, name)
                    : !strcmp(act, "resume") ? resume_schedule(t, name, next_ms)
                                             : ask_schedule(t, name));
}

static void golden_tick(struct golden *g, const struct line *l) {
    struct tick tick = { .pushes = !has_word(l, "skips"),
                         .last_ms = (uint64_t)number_option(l, 1, "last"),
                         .next_ms = (uint64_t)number_option(l, 1, "next") };
    run_tick(g->fixture, strtoull(word(l, 1), NULL, 10), tick);
}

static void run_link(struct golden *g, const struct line *l) {
    link_stages(g->fixture, word(l, 1), word(l, 2));
}

static void run_end_epic(struct golden *g, const struct line *l) {
    write_answer(g, end_epic(g->fixture, word(l, 1), strtoull(word(l, 2), NULL, 10)));
}

static void run_skip(struct golden *g, const struct line *l) {
    write_answer(g, skip_number(g->fixture, word(l, 1), strtoull(word(l, 2), NULL, 10)));
}

static void run_epic(struct golden *g, const struct line *l) {
    struct epic_info e = look_epic(g->fixture, word(l, 1));
    fprintf(g->fixture->events,
            "= next %" PRIu64 ", of %" PRIu64 ": %" PRIu64 " accepted, %" PRIu64
            " unended, %" PRIu64 " done, %" PRIu64 " dead\n",
            e.resume, e.total, e.accepted, e.waiting + e.running, e.done, e.dead);
}

static void run_look(struct golden *g, const struct line *l) {
    struct stage_info s = look_stage(g->fixture, word(l, 1));
    fprintf(g->fixture->events,
            "= waiting %" PRIu64 " running %" PRIu64 " delayed %" PRIu64 " dead %" PRIu64
            " done %" PRIu64 " held '%s'\n",
            s.waiting, s.running, s.delayed, s.dead, s.done, s.held_by);
}

static int write_job(void *arg, const struct job_info *j) {
    struct golden *g = arg;
    fprintf(g->fixture->events, " %zu", job_number(g, j->id));
    return 0;
}

static void run_channel(struct golden *g, const struct line *l) {
    static const char *const states[] = { "dormant", "ready", "in progress", "parked" };
    mr_bytes stage = mr_str(word(l, 1)), key = mr_str(word(l, 2));
    struct channel_info ch;
    if (core_look_channel(g->fixture->core, stage, key, &ch) < 0) {
        fprintf(g->fixture->events, "= unknown\n");
        return;
    }
    fprintf(g->fixture->events, "= %s%s:", states[ch.state], ch.halted ? ", halted" : "");
    must(core_each_job(g->fixture->core, stage, key, write_job, g));
    fprintf(g->fixture->events, "\n");
}

static void run_crash(struct golden *g, const struct line *l) {
    if (has_word(l, "noted"))
        crash_noted(g->fixture);
    else
        crash(g->fixture);
}

static void run_clean(struct golden *g, const struct line *l) {
    (void)l;
    clean(g->fixture);
}

static uint32_t shard(const struct line *l) {
    return (uint32_t)strtoul(word(l, 1), NULL, 10);
}

static void run_shards(struct golden *g, const struct line *l) {
    in_shards(g->fixture, shard(l));
}

static void run_outbox(struct golden *g, const struct line *l) {
    struct link_entry e = { 0 };
    while (core_link_next(g->fixture->core, shard(l), e.number, &e))
        fprintf(g->fixture->events, "= number %" PRIu64 " after %" PRIu64 " \"%s\"\n", e.number,
                e.after, core_fixture_read(g->fixture, e.at));
}

static void run_acked(struct golden *g, const struct line *l) {
    acked(g->fixture, shard(l), strtoull(word(l, 2), NULL, 10));
}

static void run_arrive(struct golden *g, const struct line *l) {
    struct link_entry e = { .stage = mr_str(word(l, 2)),
                            .key = mr_str(option(l, 2, "key")),
                            .once = mr_str(option(l, 2, "once")),
                            .number = (uint64_t)number_option(l, 2, "number"),
                            .after = (uint64_t)number_option(l, 2, "after") };
    write_answer(g, arrive(g->fixture, shard(l), e, quoted(l, 2)));
}

static const struct {
    const char *name;
    void (*run)(struct golden *, const struct line *);
} commands[] = {
    { "push", run_push },
    { "take", run_take },
    { "done", run_done },
    { "fail", run_fail },
    { "release", run_release },
    { "beat", run_beat },
    { "cancel", run_cancel },
    { "retry", run_retry },
    { "drop", run_drop },
    { "hang-up", run_hang_up },
    { "lose", run_lose },
    { "set", run_set },
    { "pause", run_pause },
    { "resume", run_resume },
    { "link", run_link },
    { "end", run_end_epic },
    { "skip", run_skip },
    { "epic", run_epic },
    { "look", run_look },
    { "channel", run_channel },
    { "crash", run_crash },
    { "clean", run_clean },
    { "shards", run_shards },
    { "outbox", run_outbox },
    { "acked", run_acked },
    { "arrive", run_arrive },
    { "tick", golden_tick },
    { "schedule", run_schedule },
    { "act", run_schedule_act },
    { "pause-key", run_pause_key },
    { "resume-key", run_resume_key },
};

// ---- The trace --------------------------------------------------------------------------------

static void command_say(struct golden *g, const char *text) {
    struct line l;
    line_split(&l, text);
    if (l.words[0][0] == '@') {
        pass_ms(g->fixture, LATER_MS + strtoull(l.words[0] + 1, NULL, 10) - g->fixture->now_ms);
        memmove(l.words, l.words + 1, (size_t)--l.count * sizeof *l.words);
    }
    for (size_t i = 0; l.count && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(commands[i].name, l.words[0])) {
            commands[i].run(g, &l);
            return;
        }
    if (l.count)
        fail_msg("there is no command '%s'", l.words[0]);
}

static void write_said(struct golden *g) {
    struct core_fixture *t = g->fixture;
    (void)fflush(t->events);
    char *rest = t->events_text, *line;
    while ((line = strsep(&rest, "\n")) && rest)
        fprintf(g->out, "    %s\n", line);
    (void)fclose(t->events);
    free(t->events_text);
    t->events = open_memstream(&t->events_text, &t->events_size);
}

static char *tell(const char *script) {
    char *text = NULL, *copy = strdup(script), *rest = copy, *line;
    size_t size = 0;
    struct golden *g = now = calloc(1, sizeof *g);
    g->out = open_memstream(&text, &size);
    g->fixture = core_fixture_create(MODE_PLAIN, (struct core_limits){ 0 });
    g->fixture->on_record = on_record;
    while ((line = strsep(&rest, "\n")) && rest) {
        if (*line == ' ')
            continue;
        fprintf(g->out, "%s\n", line);
        if (!*line || *line == '#')
            continue;
        command_say(g, line);
        write_said(g);
    }
    (void)fclose(g->out);
    core_fixture_destroy(g->fixture);
    free(g);
    free(copy);
    return text;
}

static char *file_read(const char *path) {
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    (void)fclose(file);
    return text;
}

static void file_write(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

// Prints the first difference, which is easier to read than two long texts.
static void expect_trace(const char *path, const char *expected, const char *got) {
    size_t line = 1, begins = 0, i = 0;
    for (; expected[i] && expected[i] == got[i]; i++)
        if (got[i] == '\n') {
            line++;
            begins = i + 1;
        }
    if (expected[i] != got[i])
        fail_msg("%s:%zu: expected\n%.*s\nbut\n%.*s", path, line,
                 (int)strcspn(expected + begins, "\n"), expected + begins,
                 (int)strcspn(got + begins, "\n"), got + begins);
}

static void run_trace(void **state) {
    char path[512];
    const char *mode = getenv("MILLRACE_GOLDEN");
    (void)snprintf(path, sizeof path, "%s/core/golden/%s.txt", TEST_DIR, (const char *)*state);
    char *expected = file_read(path), *got = tell(expected);
    if (mode && !strcmp(mode, "write"))
        file_write(path, got);
    else
        expect_trace(path, expected, got);
    free(got);
}

#define STORY(name)                                                                                \
    { name, run_trace, NULL, NULL, (void *)(name) }

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY("ordered-keys"),    STORY("failing-and-backing-off"),
        STORY("dead-letter"),     STORY("call-given-up"),
        STORY("expired-running"), STORY("exactly-once"),
        STORY("epic-with-gap"),   STORY("block-with-cancelled"),
        STORY("back-pressure"),   STORY("cleaning"),
        STORY("lost-workers"),    STORY("poison"),
        STORY("between-shards"),  STORY("schedules"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
