// Replay: the core accepts or refuses any content of a log, and never crashes. The log's checksums
// stop damaged records; these tests are about records with a valid checksum and impossible content.
#include "support/core_fixture.h"

static int aside_append(void *owner, const struct entry *e, size_t count, enum room room,
                        uint64_t *out_at) {
    (void)owner;
    (void)e;
    (void)room;
    for (size_t i = 0; i < count; i++)
        out_at[i] = UINT64_C(1) << 40;
    return 0;
}

static int aside_read(void *owner, uint64_t at, struct buffer *out_body) {
    (void)owner;
    (void)at;
    (void)out_body;
    return MR_EGONE;
}

// Opens what is left of the log, if that can be, and works a little.
static bool opens(const struct core_fixture *t) {
    struct core_config config = { .sink = { .append = aside_append, .read = aside_read } };
    struct core *core;
    assert_int_equal(core_create(&config, &core), 0);
    int err = core_fixture_replay_into(t, t->log_count, core);
    if (err == 0)
        err = core_open(core, t->now_ms, 1);
    if (err == 0) {
        mr_bytes stage = mr_str("s");
        struct take take = { .stages = &stage, .stage_count = 1, .count = 4, .batch = 4 };
        struct grant grants[4];
        size_t count = 0;
        (void)core_advance(core, t->now_ms + 3600000);
        (void)core_take(core, &take, grants, &count);
        for (size_t i = 0; i < count; i++)
            (void)core_done(core, &(struct done){ .id = grants[i].id, .token = grants[i].token });
    }
    assert_true(err == 0 || err == MR_ECORRUPT || err == MR_EFULL);
    core_destroy(core);
    return err == 0;
}

// A log with a record of every kind.
static void tell_everything(struct core_fixture *t) {
    struct epic_info e;
    set(t, "on-dead", "halt");
    set(t, "retention", "1000,2");
    push_once(t, "k", "n", "a");
    done_with(t, take(t), "result", "state");
    uint64_t b = push(t, "k", "b");
    must(fail_with(t, take(t), "no", MR_NEVER));
    must(retry(t, b));
    must(fail_with(t, take(t), "no", 50));
    must(drop(t, b));
    call(t, 0, "m", "c", 5000);
    push_once(t, "", "m", "c");
    push_with(t,
              (struct push){ .job.key = mr_str("l"), .body = mr_str("d"), .job.delay_ms = 2000 });
    must(push_number(t, "e", 1, "e1"));
    must(end_epic(t, "e", 1));
    struct push p = { .source = mr_str("x"), .number = 1, .epic = true };
    struct pushed pushed;
    must(try_push(t, p, &pushed));
    must(core_epic_drop(t->core, mr_str("s"), mr_str("x")));
    struct taken held;
    push(t, "n", "g");
    try_take(t, (struct take){ .detached = true, .lease_ms = 100000 }, &held);
    pass_ms(t, 1500);
    must(beat(t, held));
    schedule(t, "w", "k", "tick", 1000);
    must(try_schedule(t, (struct schedule_spec){ .name = mr_str("v"), .cron = mr_str("@daily") },
                      5000));
    run_tick(t, 1000, (struct tick){ true, 1000, 2000, false });
    clean(t);
    push(t, "k", "f");
    struct taken f = take(t);
    must(snooze_job(t, f, 1000));
    assert_true(due(t, f.id));
    run_tick(t, 2000, (struct tick){ true, 2000, 3000, false });
    must(pause_schedule(t, "v"));
    must(drop_schedule(t, "v"));
    must(pause_key(t, "paused"));
    must(pause_key(t, "k"));
    must(resume_key(t, "k"));
    must(core_epic(t->core, mr_str("s"), mr_str("e"), &e));
}

static void any_byte_of_any_record_flipped(void **state) {
    struct core_fixture *t = *state;
    tell_everything(t);
    assert_true(opens(t));
    for (size_t i = 0; i < t->log_count; i++) {
        struct core_fixture_entry *k = &t->log[i];
        for (size_t at = 0; at < k->head_size; at++) {
            uint8_t right = k->bytes[at];
            static const uint8_t flips[] = { 1, 2, 4, 8, 16, 32, 64, 128, 255 };
            for (size_t f = 0; f < sizeof flips; f++) {
                k->bytes[at] = right ^ flips[f];
                (void)opens(t);
            }
            k->bytes[at] = right;
        }
    }
}

static void any_record_missing_or_repeated(void **state) {
    struct core_fixture *t = *state;
    tell_everything(t);
    for (size_t i = 0; i < t->log_count; i++) {
        struct core_fixture_entry kept = t->log[i];
        for (size_t other = 0; other < t->log_count; other++) {
            t->log[i] = t->log[other];
            (void)opens(t);
        }
        t->log[i] = kept;
    }
}

static int replay_one(const struct record *r) {
    struct core_config config = { .sink = { .append = aside_append, .read = aside_read } };
    struct core *core;
    uint8_t head[8192];
    assert_int_equal(core_create(&config, &core), 0);
    int err = core_replay(core, 64, bytes_of(head, record_encode(r, head)), 0);
    if (err == 0)
        err = core_open(core, 1, 1);
    core_destroy(core);
    return err;
}

static void names_and_keys_that_cannot_be(void **state) {
    static char text[4000];
    struct record_about about = { .stage.policy = policy_default() };
    (void)state;
    memset(text, 'a', sizeof text);
    static const size_t sizes[] = { 0, 1, 200, 201, 255, 256, 1024, 1500, 4000 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mr_bytes name = bytes_of(text, sizes[i]);
        int expected = sizes[i] >= 1 && sizes[i] <= 200 ? 0 : MR_ECORRUPT;
        struct record r = { .kind = RECORD_SOURCE_OLD, .source = 1, .name = name, .about = &about };
        assert_int_equal(replay_one(&r), expected);
        r.kind = RECORD_SOURCE;
        r.stage = 1;
        assert_int_equal(replay_one(&r), MR_ECORRUPT); // a stage without a name, or a bad name
        r = (struct record){ .kind = RECORD_STAGE, .stage = 1, .name = name, .about = &about };
        assert_int_equal(replay_one(&r), expected);
        r = (struct record){ .kind = RECORD_PUSH, .stage = 1, .id = 1, .key = name };
        assert_int_equal(replay_one(&r), MR_ECORRUPT); // a stage without a name, or a key too long
    }
    struct record r = { .kind = RECORD_STAGE, .stage = 1, .name = mr_str("a b"), .about = &about };
    assert_int_equal(replay_one(&r), MR_ECORRUPT);
    r = (struct record){ .kind = RECORD_PUSH, .stage = UINT32_MAX, .id = 1 };
    assert_true(replay_one(&r) < 0);
    r.stage = 0;
    assert_int_equal(replay_one(&r), MR_ECORRUPT);
}

// A log of records of stage 1, called s, and of jobs 1 (waiting), 2 (done), 3 (dead) and 4
// (delayed).
static struct core *replay_some(struct record_about *about) {
    const struct record log[] = {
        { .kind = RECORD_EPOCH, .epoch = 3, .next_id = 1000 },
        { .kind = RECORD_STAGE, .stage = 1, .name = mr_str("s"), .about = about },
        { .kind = RECORD_SOURCE, .stage = 1, .source = 1, .name = mr_str("e"), .about = about },
        { .kind = RECORD_PUSH, .id = 1, .stage = 1, .key = mr_str("k"), .position = 1 },
        { .kind = RECORD_PUSH, .id = 2, .stage = 1, .position = 2, .source = 1, .number = 1 },
        { .kind = RECORD_END, .id = 2, .stage = 1, .position = 3, .status = JOB_DONE },
        { .kind = RECORD_PUSH, .id = 3, .stage = 1, .key = mr_str("k"), .position = 4 },
        { .kind = RECORD_FAIL, .id = 3, .stage = 1, .attempt = 1, .status = JOB_DEAD },
        { .kind = RECORD_PUSH, .id = 4, .stage = 1, .due_ms = 9000, .position = 5 },
        { .kind = RECORD_TRIM, .upto = 64 },
        { .kind = RECORD_LINK, .shard = 1, .number = 7 },
        { .kind = RECORD_OUTBOX, .shard = 1, .number = 8, .stage = 1 },
        { .kind = RECORD_SCHEDULE, .stage = 1, .name = mr_str("w"), .about = about },
    };
    struct core_config config = { .sink = { .append = aside_append, .read = aside_read },
                                  .shards = 3 };
    struct core *core;
    uint8_t head[RECORD_MAX];
    assert_int_equal(core_create(&config, &core), 0);
    for (size_t i = 0; i < sizeof log / sizeof *log; i++)
        must(core_replay(core, 64 * (i + 1), bytes_of(head, record_encode(&log[i], head)), 0));
    return core;
}

static struct record_about good, bad, back, stuck, both, untimed, unreal, vast, endless;

static const struct record wrong[] = {
    { .kind = RECORD_DROP, .id = 2, .stage = 1, .status = JOB_DEAD },
    { .kind = RECORD_DROP, .id = 2, .stage = 1, .status = JOB_WAITING },
    { .kind = RECORD_DROP, .id = 1, .stage = 1, .status = JOB_DEAD },
    { .kind = RECORD_DROP, .id = 1, .stage = 1, .status = JOB_RUNNING },
    { .kind = RECORD_DROP, .id = 1, .stage = 2, .status = JOB_WAITING },
    { .kind = RECORD_END, .id = 1, .stage = 1, .status = JOB_DELAYED },
    { .kind = RECORD_END, .id = 1, .stage = 1, .status = JOB_DEAD },
    { .kind = RECORD_END, .id = 9, .stage = 1, .status = JOB_RUNNING },
    { .kind = RECORD_END, .id = 2, .stage = 1, .status = JOB_DONE },
    { .kind = RECORD_END, .id = 3, .stage = 1, .status = JOB_CANCELLED },
    { .kind = RECORD_END, .id = 1, .stage = 2, .status = JOB_DONE },
    { .kind = RECORD_END, .id = 0, .stage = 1, .status = JOB_DONE },
    { .kind = RECORD_END, .id = 9, .stage = 1, .status = JOB_EXPIRED, .due_ms = 5 },
    { .kind = RECORD_END, .id = 9, .stage = 1, .status = JOB_DONE, .pushed_ms = 5 },
    { .kind = RECORD_END,
      .copy = true,
      .id = 2,
      .stage = 1,
      .status = JOB_DONE,
      .source = 2,
      .number = 1 },
    { .kind = RECORD_FAIL, .id = 1, .stage = 1, .status = JOB_DONE },
    { .kind = RECORD_FAIL, .id = 2, .stage = 1, .status = JOB_WAITING },
    { .kind = RECORD_FAIL, .id = 3, .stage = 1, .status = JOB_DEAD },
    { .kind = RECORD_FAIL, .id = 1, .stage = 1, .status = JOB_WAITING, .attempt = 65535 },
    { .kind = RECORD_FAIL, .id = 1, .stage = 1, .status = JOB_DEAD, .attempt = 65536 },
    { .kind = RECORD_RETRY, .id = 1, .stage = 1 },
    { .kind = RECORD_RETRY, .id = 2, .stage = 1 },
    { .kind = RECORD_WANT },
    { .kind = RECORD_PAUSE, .stage = 1 },
    { .kind = RECORD_PAUSE, .key = { "k", 1 } },
    { .kind = RECORD_UNPAUSE, .stage = 1 },
    { .kind = RECORD_DUE, .id = 1, .stage = 1, .position = 2 },
    { .kind = RECORD_DUE, .id = 2, .stage = 1, .position = 3 },
    { .kind = RECORD_DUE, .id = 3, .stage = 1, .position = 4 },
    { .kind = RECORD_DUE, .id = 4, .stage = 2, .position = 4 },
    { .kind = RECORD_SNOOZE, .id = 1, .stage = 1 },
    { .kind = RECORD_SNOOZE, .id = 2, .stage = 1, .due_ms = 5 },
    { .kind = RECORD_SNOOZE, .id = 3, .stage = 1, .due_ms = 5 },
    { .kind = RECORD_SNOOZE, .id = 1, .stage = 2, .due_ms = 5 },
    { .kind = RECORD_SNOOZE, .id = 0, .stage = 1, .due_ms = 5 },
    { .kind = RECORD_PUSH, .id = 1, .stage = 1 },
    { .kind = RECORD_PUSH, .id = 2, .stage = 1 },
    { .kind = RECORD_PUSH, .id = UINT64_MAX, .stage = 1 },
    { .kind = RECORD_PUSH, .id = 9 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 10001 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 1, .attempts = 65536 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 1, .time_ms = UINT64_C(1) << 44 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 1, .deadline_ms = UINT64_C(1) << 44 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 1, .source = UINT64_MAX, .number = 1 },
    { .kind = RECORD_PUSH, .id = 9, .stage = 1, .source = 1, .number = UINT64_MAX },
    { .kind = RECORD_JOB, .id = 9, .stage = 1, .status = JOB_DONE },
    { .kind = RECORD_JOB, .id = 9, .stage = 1, .status = JOB_RUNNING },
    { .kind = RECORD_JOB, .id = 9, .stage = 1, .status = JOB_DELAYED },
    { .kind = RECORD_JOB, .id = 9, .stage = 1, .status = JOB_DEAD, .deadline_ms = 1 },
    { .kind = RECORD_JOB, .id = 9, .stage = 1, .status = JOB_WAITING, .pushed_ms = 1 },
    { .kind = RECORD_JOB, .id = 2, .stage = 1, .status = JOB_WAITING },
    { .kind = RECORD_JOB, .id = 1, .stage = 1, .status = JOB_WAITING, .key = { "l", 1 } },
    { .kind = RECORD_STAGE, .stage = 1, .name = { "t", 1 }, .about = &good },
    { .kind = RECORD_STAGE, .stage = 2, .name = { "s", 1 }, .about = &good },
    { .kind = RECORD_STAGE, .stage = 2, .name = { "t", 1 }, .about = &bad },
    { .kind = RECORD_SOURCE, .stage = 1, .source = 1, .name = { "f", 1 }, .about = &good },
    { .kind = RECORD_SOURCE, .stage = 1, .source = 2, .name = { "e", 1 }, .about = &good },
    { .kind = RECORD_SOURCE, .stage = 1, .source = 2, .name = { "f", 1 }, .about = &bad },
    { .kind = RECORD_SOURCE, .stage = 1, .source = 0, .name = { "f", 1 }, .about = &good },
    { .kind = RECORD_SOURCE, .source = 3, .name = { "f", 1 }, .about = &good },
    { .kind = RECORD_SOURCE_OLD, .source = 1, .name = { "f", 1 }, .about = &good },
    { .kind = RECORD_STATE, .stage = 1 },
    { .kind = RECORD_STATE, .stage = 1, .key = { "k", 1 }, .due_ms = 5 },
    { .kind = RECORD_ONCE, .stage = 1, .id = 9 },
    { .kind = RECORD_EPOCH, .epoch = 2, .next_id = 2000 },
    { .kind = RECORD_EPOCH, .epoch = UINT64_C(1) << 24, .next_id = 2000 },
    { .kind = RECORD_EPOCH, .epoch = 4, .next_id = 4 },
    { .kind = RECORD_EPOCH, .epoch = 4, .next_id = UINT64_MAX },
    { .kind = RECORD_TRIM, .upto = 1 << 20 },
    { .kind = RECORD_TRIM, .upto = 32 },
    { .kind = RECORD_LINK, .shard = 0, .number = 9 },
    { .kind = RECORD_LINK, .shard = 3, .number = 9 },
    { .kind = RECORD_OUTBOX, .shard = 2, .number = 8, .stage = 1 },
    { .kind = RECORD_OUTBOX, .shard = 1, .number = UINT64_MAX, .stage = 1 },
    { .kind = RECORD_ARRIVAL, .shard = 1, .number = 7, .id = 9, .stage = 1 },
    { .kind = RECORD_LEASE, .id = 9, .stage = 1, .serial = 1 },
    { .kind = RECORD_LEASE, .stage = 1, .serial = UINT64_C(1) << 40 },
    { .kind = RECORD_LEASE, .id = 9, .stage = 1, .serial = UINT64_C(1) << 40, .due_ms = 9 },
    { .kind = RECORD_SCHEDULE, .name = { "x", 1 }, .about = &good },
    { .kind = RECORD_SCHEDULE, .stage = 1, .about = &good },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &stuck },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &both },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &untimed },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &unreal },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &vast },
    { .kind = RECORD_SCHEDULE, .stage = 1, .name = { "x", 1 }, .about = &endless },
    { .kind = RECORD_SCHEDULE_MOVE, .stage = 1, .name = { "w", 1 }, .about = &back },
    { .kind = RECORD_SCHEDULE_MOVE, .stage = 1, .name = { "w", 1 }, .about = &stuck },
    { .kind = RECORD_SCHEDULE_MOVE, .stage = 1, .name = { "w", 1 }, .about = &endless },
    { .kind = RECORD_SCHEDULE_MOVE, .name = { "w", 1 }, .about = &good },
    { .kind = RECORD_SCHEDULE_DROP, .name = { "w", 1 } },
    { .kind = RECORD_STAGE_DROP, .stage = 1 },
};

// Schedules that cannot be: one goes back to an earlier tick, one has its next tick before its
// last, one has both a cron expression and an interval, one neither, one never fires, and so on.
static void make_schedules(void) {
    good.schedule.every_ms = 1000;
    good.move = (struct record_move){ .next_ms = 3000, .last_ms = 2000, .pushed = 5 };
    back = stuck = both = untimed = unreal = vast = endless = good;
    back.move.last_ms = 1999;
    stuck.move.next_ms = 2000;
    both.schedule.cron = mr_str("@daily");
    untimed.schedule.every_ms = 0;
    unreal.schedule = (struct record_schedule){ .cron = mr_str("0 0 31 2 *") };
    vast.schedule.missed = MISSED_ALL + 1;
    endless.move.next_ms = UINT64_C(1) << 44;
}

// U9: a record that cannot be true of the state it applies to is refused, and changes nothing.
static void U9_records_that_cannot_be(void **state) {
    (void)state;
    good.stage.policy = policy_default();
    make_schedules();
    bad = good;
    bad.stage.policy.retention_ms = UINT64_MAX;
    bad.source.highest = UINT64_MAX;
    uint8_t head[RECORD_MAX];
    struct core *core = replay_some(&good);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t size = record_encode(&wrong[i], head);
        if (core_replay(core, 4096, bytes_of(head, size), 1) != MR_ECORRUPT)
            fail_msg("wrong record %zu, a %s, was accepted", i, record_kind_name(wrong[i].kind));
    }
    must(core_open(core, 0, 1));
    must(core_check(core));
    assert_true(core_advance(core, 10000) == 0); // all of it at time 0: ages count it all the same
    must(core_check(core));
    core_destroy(core);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CORE_TEST(any_byte_of_any_record_flipped),
        CORE_TEST(any_record_missing_or_repeated),
        CORE_TEST(names_and_keys_that_cannot_be),
        CORE_TEST(U9_records_that_cannot_be),
    };
    return RUN_CORE_TESTS(tests);
}
