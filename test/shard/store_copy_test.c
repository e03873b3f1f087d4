// Copies of a store in which emits are on their way from one shard to another: whatever of them was
// accepted or acknowledged when the engine ended, in the copy each is there once, and in order.
#include "base/errors.h"
#include "shard/group.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SHARDS = 3, ROUNDS = 6, EMITS = 4, KEYS = 5, DUE_MS = 60000 };

static uint64_t wall_ms = 1000000;

static uint64_t read_clock(void *arg) {
    (void)arg;
    return wall_ms;
}

static struct group *open_group(const char *dir, uint32_t shards) {
    struct group_options o = { .store = store_in(dir),
                               .shards = shards,
                               .log = { .sync = LOG_SYNC_NONE, .segment_size = 1 << 16 },
                               .world = { .wall_ms = read_clock, .boot_ms = read_clock } };
    struct group *g = NULL;
    if (group_open(&o, &g) < 0)
        fail_msg("%s", error_text());
    return g;
}

static void begin(struct group *g, uint32_t shard) {
    assert_int_equal(shard_begin(group_shard(g, shard)), 0);
}

static void end(struct group *g, uint32_t shard) {
    struct shard *s = group_shard(g, shard);
    assert_int_equal(shard_wait(s, shard_end(s)), 0);
}

static struct core *core_of(struct group *g, uint32_t shard) {
    return shard_core(group_shard(g, shard));
}

static int take(struct group *g, uint32_t shard, const char *stage, struct grant *out) {
    mr_bytes name = mr_str(stage);
    struct take t = { .stages = &name, .stage_count = 1 };
    size_t count;
    return core_take(core_of(g, shard), &t, out, &count);
}

// ---- The store --------------------------------------------------------------------------------

// One job of `a` that emits to many shards: bodies contain shard, round and number.
static void emit_some(struct group *g, uint32_t shard, int round) {
    struct push push = { .stage = mr_str("a"), .body = mr_str("x") };
    struct pushed pushed;
    struct grant grant;
    struct emit emits[EMITS + 2] = { 0 };
    char bodies[EMITS][16], keys[EMITS][16];
    for (int i = 0; i < EMITS; i++) {
        snprintf(bodies[i], sizeof bodies[i], "%u %d", shard, round * EMITS + i);
        snprintf(keys[i], sizeof keys[i], "k%d", (round + i) % KEYS);
        emits[i] = (struct emit){ .stage = mr_str("b"),
                                  .job.key = mr_str(keys[i]),
                                  .body = mr_str(bodies[i]) };
    }
    emits[EMITS] =
        (struct emit){ .stage = mr_str("once"), .job.key = mr_str("k0"), .job.once = mr_str("n") };
    for (int i = 0; i < EMITS; i += 2) // G12: META goes with its job
        emits[i].job.meta = mr_str(keys[i]);
    emits[EMITS + 1] = (struct emit){ .stage = mr_str("later"),
                                      .job.key = mr_str(keys[0]),
                                      .job.delay_ms = DUE_MS };
    begin(g, shard);
    assert_int_equal(core_push(core_of(g, shard), &push, &pushed), 0);
    assert_int_equal(take(g, shard, "a", &grant), 0);
    struct done done = {
        .id = grant.id, .token = grant.token, .emits = emits, .emit_count = EMITS + 2
    };
    assert_int_equal(core_done(core_of(g, shard), &done), 0);
    end(g, shard);
}

// Carries the first `most` of a link, and acknowledges the first `acked` of these.
static void carry(struct group *g, uint32_t from, uint32_t to, int most, int acked) {
    struct link_entry e;
    struct buffer body = { 0 };
    uint64_t after = 0;
    for (int i = 0; i < most && core_link_next(core_of(g, from), to, after, &e); i++) {
        after = e.number;
        body.size = 0;
        assert_int_equal(shard_read(group_shard(g, from), e.at, &body), 0);
        begin(g, to);
        assert_int_equal(core_link_accept(core_of(g, to), from, &e, buffer_bytes(&body)), 0);
        end(g, to);
        if (i + 1 == acked) {
            begin(g, from);
            assert_int_equal(core_link_acked(core_of(g, from), to, after), 0);
            end(g, from);
        }
    }
    buffer_finish(&body);
}

enum { MAKER = 7 };

// A stage and an epic that a token has made, and a job that counts for it.
static void make_numbered(struct group *g) {
    uint32_t shard = route_of(group_count(g), mr_str("numbered"));
    struct maker_quota quota = { .most.of[QUOTA_JOBS] = 5 };
    struct push push = { .stage = mr_str("numbered"), .body = mr_str("body") };
    struct pushed pushed;
    begin(g, shard);
    struct core *core = core_of(g, shard);
    core_act_for(core, MAKER, &quota);
    assert_int_equal(core_push(core, &push, &pushed), 0);
    struct emit then = { .stage = mr_str("after"), .body = mr_str("x"), .job.key = mr_str("k") };
    assert_int_equal(core_epic_end(core, mr_str("numbered"), mr_str("e"), 1), 0);
    assert_int_equal(core_epic_then(core, mr_str("numbered"), mr_str("e"), &then), 0);
    assert_int_equal(core_epic_forget(core, mr_str("numbered"), mr_str("e"), 60000), 0);
    core_act_for(core, 0, NULL);
    end(g, shard);
}

// U7, G13: a copy keeps who has made what. G4: and what follows the end of an epic.
static void expect_numbered(struct group *g) {
    uint32_t shard = route_of(group_count(g), mr_str("numbered"));
    struct stage_info stage;
    struct epic_info epic;
    assert_int_equal(core_look_stage(core_of(g, shard), mr_str("numbered"), &stage), 0);
    assert_int_equal(core_epic(core_of(g, shard), mr_str("numbered"), mr_str("e"), &epic), 0);
    assert_int_equal(stage.maker, MAKER);
    assert_int_equal(epic.maker, MAKER);
    struct quotas used;
    core_used(core_of(g, shard), MAKER, &used);
    assert_int_equal(used.of[QUOTA_JOBS], 1);
    assert_int_equal(used.of[QUOTA_BYTES], 4);
    assert_true(bytes_equal(epic.then, mr_str("after")));
    assert_int_equal(epic.forget_ms, 60000);
    begin(g, shard);
    assert_int_equal(core_epic_skip(core_of(g, shard), mr_str("numbered"), mr_str("e"), 1), 0);
    end(g, shard);
    assert_int_equal(core_epic(core_of(g, shard), mr_str("numbered"), mr_str("e"), &epic), 0);
    assert_true(epic.over && epic.then_pushed);
}

// Links in every state: nothing delivered, some, all; acknowledged or not.
static void make_store(const char *dir, int variant) {
    static const int carried[][2] = { { 0, 0 }, { 999, 0 }, { 3, 1 }, { 2, 2 }, { 999, 5 } };
    struct group *g = open_group(dir, SHARDS);
    for (int round = 0; round < ROUNDS; round++)
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            emit_some(g, shard, round);
    make_numbered(g);
    for (uint32_t from = 0; from < SHARDS; from++)
        for (uint32_t to = 0; to < SHARDS; to++) {
            const int *how = carried[(from * SHARDS + to + (uint32_t)variant) % 5];
            if (from != to)
                carry(g, from, to, how[0], how[1]);
        }
    group_close(g);
}

static void copy_store(const char *from, const char *to, uint32_t shards) {
    char from_url[96], to_url[96], count[8];
    snprintf(from_url, sizeof from_url, "file:%s", from);
    snprintf(to_url, sizeof to_url, "file:%s", to);
    snprintf(count, sizeof count, "%u", shards);
    char *words[] = { MILLRACE, "store", "copy", from_url, to_url, "--shards", count, NULL };
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    int status;
    assert_int_equal(posix_spawn_file_actions_init(&quiet), 0);
    assert_int_equal(posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0), 0);
    assert_int_equal(posix_spawn(&pid, MILLRACE, &quiet, NULL, words, environ), 0);
    assert_int_equal(posix_spawn_file_actions_destroy(&quiet), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

// ---- What is in it ----------------------------------------------------------------------------

// Takes and ends everything of a stage; of `b` each channel's bodies come in order.
static int work_off(struct group *g, const char *stage) {
    int last[KEYS][SHARDS], count = 0, metas = 0;
    memset(last, -1, sizeof last);
    for (uint32_t i = 0; i < group_count(g); i++) {
        struct grant grant;
        begin(g, i);
        while (take(g, i, stage, &grant) == 0) {
            struct buffer body = { 0 };
            unsigned shard = 0;
            int number = 0, key = ((const char *)grant.key.data)[1] - '0';
            assert_int_equal(shard_read(group_shard(g, i), grant.at, &body), 0);
            mr_bytes meta = bytes_tail(buffer_bytes(&body), grant.meta_size);
            assert_true(!meta.size || bytes_equal(meta, grant.key));
            metas += meta.size > 0;
            body.size -= meta.size;
            assert_int_equal(buffer_append(&body, "", 1), 0);
            if (sscanf((const char *)body.data, "%u %d", &shard, &number) == 2) {
                assert_true(number > last[key][shard]);
                last[key][shard] = number;
            }
            struct done done = { .id = grant.id, .token = grant.token };
            assert_int_equal(core_done(core_of(g, i), &done), 0);
            buffer_finish(&body);
            count++;
        }
        end(g, i);
    }
    assert_int_equal(metas, strcmp(stage, "b") == 0 ? (EMITS + 1) / 2 * SHARDS * ROUNDS : 0);
    return count;
}

static void expect_all(const char *dir) {
    struct group *g = open_group(dir, 0);
    for (uint32_t i = 0; i < group_count(g); i++)
        assert_int_equal(core_links(core_of(g, i)), 0);
    expect_numbered(g);
    assert_int_equal(work_off(g, "b"), SHARDS * ROUNDS * EMITS);
    assert_int_equal(work_off(g, "once"), 1);
    assert_int_equal(work_off(g, "later"), 0);
    wall_ms += DUE_MS;
    assert_int_equal(work_off(g, "later"), SHARDS * ROUNDS);
    wall_ms -= DUE_MS;
    group_close(g);
}

static void E4_emits_on_their_way_arrive_in_a_copy(void **state) {
    (void)state;
    static const uint32_t counts[] = { 1, 2, 3, 7 };
    for (int variant = 0; variant < 5; variant++) {
        char dir[] = "/tmp/millrace-copy-XXXXXX", from[64], to[64];
        assert_non_null(mkdtemp(dir));
        snprintf(from, sizeof from, "%s/from", dir);
        make_store(from, variant);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            snprintf(to, sizeof to, "%s/to-%u", dir, counts[i]);
            copy_store(from, to, counts[i]);
            expect_all(to);
        }
        folder_remove(dir);
    }
}

// ---- Schedules and paused keys ----------------------------------------------------------------

enum { STAGES = 6, LATER_MS = 100000 };

static const char *stage_named(char out[16], int number) {
    snprintf(out, 16, "stage-%d", number);
    return out;
}

// Each stage has a schedule that has pushed once, one that is paused, and a paused key with a job.
static void make_schedules(const char *dir) {
    struct group *g = open_group(dir, SHARDS);
    for (int i = 0; i < STAGES; i++) {
        char name[16];
        mr_bytes stage = mr_str(stage_named(name, i));
        uint32_t shard = route_of(SHARDS, stage);
        struct core *core = core_of(g, shard);
        struct schedule_spec spec = { .stage = stage,
                                      .name = mr_str("runs"),
                                      .every_ms = LATER_MS,
                                      .missed = MISSED_ONE,
                                      .zone = mr_str("UTC"),
                                      .body = mr_str("body"),
                                      .job = { .key = mr_str("k"), .meta = mr_str("meta") } };
        struct push push = { .stage = stage, .body = mr_str("x"), .job.key = mr_str("held") };
        struct due_schedule due;
        struct pushed pushed;
        begin(g, shard);
        core_act_for(core, MAKER, NULL);
        assert_int_equal(core_schedule_set(core, &spec, wall_ms), 0);
        core_act_for(core, 0, NULL);
        assert_true(core_tick_due(core, wall_ms, &due));
        struct tick tick = { .pushes = true, .last_ms = wall_ms, .next_ms = wall_ms + LATER_MS };
        assert_int_equal(core_tick(core, due.place, wall_ms, &tick), 0);
        spec.name = mr_str("paused");
        spec.cron = mr_str("30 2 * * *");
        spec.zone = mr_str("Europe/Berlin");
        assert_int_equal(core_schedule_set(core, &spec, wall_ms + 1), 0);
        assert_int_equal(core_schedule_pause(core, stage, spec.name), 0);
        assert_int_equal(core_pause_key(core, stage, mr_str("held")), 0);
        assert_int_equal(core_push(core, &push, &pushed), 0);
        end(g, shard);
    }
    group_close(g);
}

static void expect_schedule(struct core *core, mr_bytes stage, struct shard *shard) {
    struct schedule_info runs, paused;
    struct buffer body = { 0 };
    assert_int_equal(core_schedule(core, stage, mr_str("runs"), &runs), 0);
    assert_int_equal(runs.last_ms, wall_ms);
    assert_int_equal(runs.next_ms, wall_ms + LATER_MS);
    assert_int_equal(runs.pushed, 1);
    assert_int_equal(runs.every_ms, LATER_MS);
    assert_int_equal(runs.missed, MISSED_ONE);
    assert_true(bytes_equal(runs.key, mr_str("k")));
    assert_int_equal(shard_read(shard, runs.at, &body), 0);
    assert_true(bytes_equal(buffer_bytes(&body), mr_str("bodymeta")) && runs.meta_size == 4);
    buffer_finish(&body);
    assert_int_equal(core_schedule(core, stage, mr_str("paused"), &paused), 0);
    assert_true(paused.paused && !paused.next_ms && !paused.pushed);
    assert_true(bytes_equal(paused.cron, mr_str("30 2 * * *")));
    assert_true(bytes_equal(paused.zone, mr_str("Europe/Berlin")));
}

// The job of the tick can be taken, the one of the paused key only when that is resumed. The next
// tick comes when it is due.
static void expect_schedules(const char *dir) {
    struct group *g = open_group(dir, 0);
    for (int i = 0; i < STAGES; i++) {
        char name[16];
        mr_bytes stage = mr_str(stage_named(name, i));
        uint32_t shard = route_of(group_count(g), stage);
        struct core *core = core_of(g, shard);
        struct grant grant;
        begin(g, shard);
        expect_schedule(core, stage, group_shard(g, shard));
        assert_int_equal(take(g, shard, name, &grant), 0);
        assert_true(bytes_equal(grant.key, mr_str("k")));
        assert_int_equal(take(g, shard, name, &grant), MR_EAGAIN);
        assert_int_equal(core_resume_key(core, stage, mr_str("held")), 0);
        assert_int_equal(take(g, shard, name, &grant), 0);
        assert_true(bytes_equal(grant.key, mr_str("held")));
        end(g, shard);
    }
    wall_ms += LATER_MS;
    for (int i = 0; i < STAGES; i++) {
        char name[16];
        mr_bytes stage = mr_str(stage_named(name, i));
        uint32_t shard = route_of(group_count(g), stage);
        struct schedule_info runs;
        begin(g, shard);
        assert_int_equal(core_schedule(core_of(g, shard), stage, mr_str("runs"), &runs), 0);
        assert_int_equal(runs.pushed, 2);
        end(g, shard);
    }
    wall_ms -= LATER_MS;
    group_close(g);
}

static void G1_schedules_and_paused_keys_are_in_a_copy_with_other_shards(void **state) {
    (void)state;
    static const uint32_t counts[] = { 1, 2, 3, 7 };
    char dir[] = "/tmp/millrace-copy-XXXXXX", from[64], to[64];
    assert_non_null(mkdtemp(dir));
    snprintf(from, sizeof from, "%s/from", dir);
    make_schedules(from);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(to, sizeof to, "%s/to-%u", dir, counts[i]);
        copy_store(from, to, counts[i]);
        expect_schedules(to);
    }
    folder_remove(dir);
}

// ---- Stores of an older version ---------------------------------------------------------------

static mr_bytes body_of(struct group *g, uint32_t shard, uint64_t at, struct buffer *out) {
    buffer_clear(out);
    assert_int_equal(shard_read(group_shard(g, shard), at, out), 0);
    return buffer_bytes(out);
}

// Bodies of stage mail contain key and number: k1-1, k1-2.
static int work_off_mail(struct group *g, uint32_t shard) {
    int last[8] = { 0 }, count = 0;
    struct grant grant;
    struct buffer body = { 0 };
    begin(g, shard);
    for (; take(g, shard, "mail", &grant) == 0; count++) {
        mr_bytes text = body_of(g, shard, grant.at, &body);
        const char *p = text.data;
        if (grant.key.size)
            assert_int_equal(p[3] - '0', ++last[p[1] - '0']);
        struct done done = { .id = grant.id, .token = grant.token };
        assert_int_equal(core_done(core_of(g, shard), &done), 0);
    }
    end(g, shard);
    buffer_finish(&body);
    return count;
}

static void expect_old(const char *dir) {
    struct group *g = open_group(dir, 0);
    uint32_t n = group_count(g), mail = route_of(n, mr_str("mail"));
    uint32_t lines = route_of(n, mr_str("lines")), in = route_of(n, mr_str("in"));
    struct stage_info info;
    struct epic_info book, over;
    struct channel_info channel;
    struct pushed pushed;
    assert_int_equal(core_look_stage(core_of(g, mail), mr_str("mail"), &info), 0);
    assert_int_equal(info.policy->max_jobs, 100);
    assert_int_equal(info.waiting, 14);
    struct push named = { .stage = mr_str("mail"),
                          .job.once = mr_str("first"),
                          .body = mr_str("x") };
    begin(g, mail);
    assert_int_equal(core_push(core_of(g, mail), &named, &pushed), 0);
    assert_true(pushed.repeat);
    end(g, mail);
    assert_int_equal(work_off_mail(g, mail), 14);
    assert_int_equal(core_epic(core_of(g, lines), mr_str("lines"), mr_str("book"), &book), 0);
    assert_int_equal(book.resume, 6);
    assert_int_equal(book.total, 9);
    assert_int_equal(book.waiting, 5);
    assert_int_equal(core_epic(core_of(g, lines), mr_str("lines"), mr_str("over"), &over), 0);
    assert_int_equal(over.resume, 2);
    assert_true(over.over);
    assert_int_equal(core_look_channel(core_of(g, in), mr_str("in"), mr_str("a"), &channel), 0);
    assert_true(channel.has_state);
    assert_int_equal(work_off(g, "out"), 6);
    group_close(g);
}

// Made by 0.1: one of three shards by key, with emits on their way, and one of a single shard.
static void stores_of_an_older_version_are_read(void **state) {
    (void)state;
    static const uint32_t counts[] = { 1, 3, 4 };
    static const char *const stores[] = { TEST_DIR "/data/by-key", TEST_DIR "/data/one-shard" };
    wall_ms += UINT64_C(1700000000000);
    for (int store = 0; store < 2; store++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            char dir[] = "/tmp/millrace-copy-XXXXXX", from[64], to[64];
            assert_non_null(mkdtemp(dir));
            snprintf(from, sizeof from, "%s/from", dir);
            snprintf(to, sizeof to, "%s/to", dir);
            char *words[] = { "cp", "-r", (char *)(uintptr_t)stores[store], from, NULL };
            pid_t pid;
            int status;
            assert_int_equal(posix_spawnp(&pid, "cp", NULL, NULL, words, environ), 0);
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_int_equal(status, 0);
            copy_store(from, to, counts[i]);
            expect_old(to);
            if (store == 1)
                expect_old(from); // it opens as it is
            folder_remove(dir);
        }
    wall_ms -= UINT64_C(1700000000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E4_emits_on_their_way_arrive_in_a_copy),
        cmocka_unit_test(G1_schedules_and_paused_keys_are_in_a_copy_with_other_shards),
        cmocka_unit_test(stores_of_an_older_version_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
