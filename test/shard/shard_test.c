// The shard: what comes back after reopening, what time does, how long the log gets, and what a
// disk that fails costs. Real core, real logs; the clock is in the test's hands.
#include "base/errors.h"
#include "shard/repair.h"
#include "shard/running.h"
#include "shard/shard.h"
#include "support/folder.h"
#include "support/sim_disk.h"
#include "support/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALL_SEGMENT = 16 << 10 };

// ---- A shard in a directory of its own --------------------------------------------------------

struct rig {
    char dir[64];
    struct shard_options options;
    uint64_t wall_ms, boot_ms;
    struct shard *shard;
    struct core *core;
    struct conn conn;
};

static uint64_t rig_wall(void *arg) {
    return ((struct rig *)arg)->wall_ms;
}

static uint64_t rig_boot(void *arg) {
    return ((struct rig *)arg)->boot_ms;
}

static void rig_open(struct rig *r) {
    if (shard_open(&r->options, &r->shard) < 0)
        fail_msg("%s", error_text());
    r->core = shard_core(r->shard);
    core_join(r->core, &r->conn);
    assert_int_equal(core_check(r->core), 0);
}

static void rig_reopen(struct rig *r) {
    shard_close(r->shard);
    rig_open(r);
}

static int rig_setup(void **state) {
    struct rig *r = calloc(1, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "/tmp/shard_test.XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->wall_ms = 1700000000000;
    r->options = (struct shard_options){
        .store = store_in(r->dir),
        .log = { .segment_size = SMALL_SEGMENT, .inline_writer = true },
        .world = { .wall_ms = rig_wall, .boot_ms = rig_boot, .arg = r },
    };
    rig_open(r);
    *state = r;
    return 0;
}

static int rig_teardown(void **state) {
    struct rig *r = *state;
    shard_close(r->shard);
    folder_remove(r->dir);
    free(r);
    return 0;
}

// Copies all files into a new directory: what another process finds if this one is killed now.
static void copy_dir(const char *from, char *to) {
    DIR *d = opendir(from);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        int in = openat(dirfd(d), e->d_name, O_RDONLY);
        char path[400];
        snprintf(path, sizeof path, "%s/%s", to, e->d_name);
        int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        char block[65536];
        for (ssize_t n; (n = read(in, block, sizeof block)) > 0;)
            assert_int_equal(write(out, block, (size_t)n), n);
        close(in);
        close(out);
    }
    closedir(d);
}

// The engine dies: a copy of the directory is all that is left, and it is opened.
static void rig_die(struct rig *r) {
    char dir[64] = "/tmp/shard_test.XXXXXX";
    assert_non_null(mkdtemp(dir));
    copy_dir(r->dir, dir);
    shard_close(r->shard);
    folder_remove(r->dir);
    memcpy(r->dir, dir, sizeof dir);
    rig_open(r);
}

// ---- One command a turn -----------------------------------------------------------------------

static void begin(struct rig *r) {
    if (shard_begin(r->shard) < 0)
        fail_msg("%s", error_text());
}

static void end(struct rig *r) {
    uint64_t at = shard_end(r->shard);
    assert_int_equal(shard_wait(r->shard, at), 0);
    assert_true(shard_is_durable(r->shard, at));
}

static void pass_ms(struct rig *r, uint64_t ms) {
    r->boot_ms += ms;
    begin(r);
    end(r);
}

static struct pushed push_once(struct rig *r, const char *stage, const char *key, const char *once,
                               const char *body) {
    struct push push = { .stage = mr_str(stage),
                         .job.key = mr_str(key),
                         .job.once = mr_str(once),
                         .body = mr_str(body) };
    struct pushed pushed = { 0 };
    begin(r);
    assert_int_equal(core_push(r->core, &push, &pushed), 0);
    end(r);
    return pushed;
}

static uint64_t push(struct rig *r, const char *key, const char *body) {
    return push_once(r, "s", key, NULL, body).id;
}

struct taken {
    uint64_t id;
    struct token token;
    uint32_t attempt;
    char body[64], state[64];
};

static bool try_take(struct rig *r, struct taken *out) {
    mr_bytes stage = mr_str("s");
    struct take take = { .stages = &stage, .stage_count = 1, .conn = &r->conn };
    struct grant grant;
    size_t count = 0;
    begin(r);
    int err = core_take(r->core, &take, &grant, &count);
    end(r);
    if (err == MR_EAGAIN)
        return false;
    assert_int_equal(err, 0);
    *out = (struct taken){ .id = grant.id, .token = grant.token, .attempt = grant.attempt };
    struct buffer body = { 0 }, state = { 0 };
    assert_int_equal(shard_read(r->shard, grant.at, &body), 0);
    if (grant.state_at)
        assert_int_equal(shard_read(r->shard, grant.state_at, &state), 0);
    snprintf(out->body, sizeof out->body, "%.*s", (int)body.size, (char *)body.data);
    snprintf(out->state, sizeof out->state, "%.*s", (int)state.size, (char *)state.data);
    buffer_finish(&body);
    buffer_finish(&state);
    return true;
}

static struct taken take(struct rig *r) {
    struct taken t;
    assert_true(try_take(r, &t));
    return t;
}

static void expect_none(struct rig *r) {
    struct taken t;
    assert_false(try_take(r, &t));
}

static int done_with(struct rig *r, struct taken t, const char *result, const char *state) {
    begin(r);
    int err = core_done(r->core, &(struct done){ .id = t.id,
                                                 .token = t.token,
                                                 .result = mr_str(result),
                                                 .set_state = state != NULL,
                                                 .state = mr_str(state) });
    end(r);
    return err;
}

static void done(struct rig *r, struct taken t) {
    assert_int_equal(done_with(r, t, "ok", NULL), 0);
}

static void fail_job(struct rig *r, struct taken t) {
    begin(r);
    assert_int_equal(core_fail(r->core, t.id, &t.token, mr_str("no"), 0), 0);
    end(r);
}

static void set(struct rig *r, const char *name, const char *value) {
    begin(r);
    assert_int_equal(core_set(r->core, mr_str("s"), mr_str(name), mr_str(value)), 0);
    end(r);
}

static struct stage_info look(struct rig *r) {
    struct stage_info info;
    assert_int_equal(core_look_stage(r->core, mr_str("s"), &info), 0);
    return info;
}

static enum job_status status_of(struct rig *r, uint64_t id) {
    struct job_info job;
    assert_int_equal(core_look_job(r->core, id, &job), 0);
    return job.status;
}

static void clean_all(struct rig *r) {
    for (bool more = true; more;) {
        begin(r);
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
    }
}

static void deliver_plain(void *arg) {
    struct rig *r = arg;
    struct push push = {
        .stage = mr_str("s"), .job.key = mr_str("k"), .body = mr_str("plain"), .promised = true
    };
    struct pushed pushed;
    assert_int_equal(core_push(r->core, &push, &pushed), 0);
}

// R15: a push that was accepted before a delayed job was due is in front of it, also if it is
// delivered later.
static void R15_what_was_accepted_comes_before_what_is_due(void **state) {
    struct rig *r = *state;
    struct push delayed = {
        .stage = mr_str("s"), .job.key = mr_str("k"), .job.delay_ms = 50, .body = mr_str("delayed")
    };
    struct pushed pushed;
    begin(r);
    assert_int_equal(core_push(r->core, &delayed, &pushed), 0);
    assert_true(core_promises_room(r->core, mr_str("s"), 10));
    end(r);
    r->boot_ms += 200;
    assert_int_equal(shard_begin_with(r->shard, deliver_plain, r), 0);
    end(r);
    struct taken first = take(r);
    assert_string_equal(first.body, "plain");
    done(r, first);
    assert_string_equal(take(r).body, "delayed");
}

// ---- Reopening --------------------------------------------------------------------------------

// T16, T17: a producer that restarts goes on; what was not confirmed comes before what is new.
static void unfinished_work_comes_back_first(void **state) {
    struct rig *r = *state;
    push(r, "k", "1");
    push(r, "k", "2");
    done(r, take(r));
    struct taken held = take(r);
    rig_reopen(r);
    push(r, "k", "3");
    struct taken again = take(r);
    assert_string_equal(again.body, "2");
    assert_int_equal(again.id, held.id);
    assert_int_equal(again.attempt, 1);
    assert_int_equal(done_with(r, held, "late", NULL), MR_ESTALE);
    done(r, again);
    assert_string_equal(take(r).body, "3");
}

// T18: no reply is sent before its records are stored: its position is durable only after a sync.
static void a_reply_comes_after_storage(void **state) {
    struct rig *r = *state;
    struct pushed pushed;
    begin(r);
    struct push p = { .stage = mr_str("s"), .body = mr_str("x") };
    uint64_t before = shard_end(r->shard);
    assert_true(shard_is_durable(r->shard, before));
    begin(r);
    assert_int_equal(core_push(r->core, &p, &pushed), 0);
    struct log_state log;
    shard_look(r->shard, &log);
    assert_true(log.durable < log.tail);
    uint64_t at = shard_end(r->shard);
    assert_true(at > before);
    assert_int_equal(shard_wait(r->shard, at), 0);
    assert_true(shard_is_durable(r->shard, at));
    // A turn that writes nothing still stands behind what was written before it.
    begin(r);
    assert_int_equal(shard_end(r->shard), at);
}

// T19: what is confirmed and no longer retained leaves storage.
static void confirmed_work_leaves_storage(void **state) {
    struct rig *r = *state;
    set(r, "retention", "1h,1");
    char body[1024];
    memset(body, 'x', sizeof body);
    body[sizeof body - 1] = 0;
    struct log_state log;
    for (int i = 0; i < 500; i++) {
        push(r, "k", body);
        done(r, take(r));
        clean_all(r);
        shard_look(r->shard, &log);
        assert_true(log.tail - log.head <= 2 * core_live_bytes(r->core) + 3 * SMALL_SEGMENT);
    }
    assert_true(log.head > 0 && log.tail > 500 * sizeof body);
    rig_reopen(r);
    expect_none(r);
    assert_int_equal(look(r).done, 500);
}

// State, result, counters and retained jobs (F15) come back as they were.
static void everything_comes_back(void **state) {
    struct rig *r = *state;
    uint64_t first = push(r, "k", "1");
    push(r, "k", "2");
    push(r, "other", "3");
    assert_int_equal(done_with(r, take(r), "result", "kept"), 0);
    fail_job(r, take(r));
    struct stage_info before = look(r);
    rig_reopen(r);
    struct stage_info after = look(r);
    assert_int_equal(after.pushed, before.pushed);
    assert_int_equal(after.done, before.done);
    assert_int_equal(after.failed, before.failed);
    assert_int_equal(after.waiting, before.waiting);
    assert_int_equal(status_of(r, first), JOB_DONE);
    struct job_info job;
    struct buffer result = { 0 };
    assert_int_equal(core_look_job(r->core, first, &job), 0);
    assert_int_equal(shard_read(r->shard, job.at, &result), 0);
    assert_true(bytes_equal(buffer_bytes(&result), mr_str("result")));
    buffer_finish(&result);
    bool met_state = false;
    for (struct taken t; try_take(r, &t);)
        met_state = met_state || (strcmp(t.body, "2") == 0 && strcmp(t.state, "kept") == 0);
    assert_true(met_state);
}

// F13: a job without attempts left is dead, also after reopening, and can be tried again.
static void the_dead_come_back_dead(void **state) {
    struct rig *r = *state;
    set(r, "attempts", "1");
    uint64_t id = push(r, "k", "x");
    fail_job(r, take(r));
    assert_int_equal(status_of(r, id), JOB_DEAD);
    rig_reopen(r);
    assert_int_equal(status_of(r, id), JOB_DEAD);
    expect_none(r);
    begin(r);
    assert_int_equal(core_retry(r->core, id), 0);
    end(r);
    rig_reopen(r);
    assert_int_equal(take(r).id, id);
}

enum { DEAD_NAMES = 200 };

static int note_dead(void *arg, const struct job_info *info) {
    char *names = arg;
    size_t used = strlen(names);
    snprintf(names + used, DEAD_NAMES - used, " %llu", (unsigned long long)info->id);
    return 0;
}

// U22: jobs that died within one millisecond keep their order.
static void U22_the_dead_of_one_instant_keep_their_order(void **state) {
    struct rig *r = *state;
    set(r, "attempts", "1");
    struct taken t[6];
    for (int i = 0; i < 6; i++)
        push(r, "", "x");
    for (int i = 0; i < 6; i++)
        t[i] = take(r);
    static const int order[] = { 4, 1, 5, 0, 3, 2 };
    for (int i = 0; i < 6; i++)
        fail_job(r, t[order[i]]);
    char before[DEAD_NAMES] = "", after[DEAD_NAMES] = "";
    (void)core_each_dead(r->core, mr_str("s"), note_dead, before);
    rig_reopen(r);
    (void)core_each_dead(r->core, mr_str("s"), note_dead, after);
    assert_int_equal(look(r).dead, 6);
    assert_string_equal(before, after);
}

// U15: ids follow on over a restart; after a crash some are skipped, and none is given twice.
static void U15_ids_follow_on_over_a_restart(void **state) {
    struct rig *r = *state;
    uint64_t id = push(r, "k", "x");
    for (int i = 0; i < 3; i++) {
        rig_reopen(r);
        assert_int_equal(push(r, "k", "x"), ++id);
    }
    for (int i = 0; i < 3; i++) { // whatever was given is forgotten meanwhile
        for (struct taken t; try_take(r, &t);)
            done(r, t);
        set(r, "retention", "1ms,0");
        pass_ms(r, 5000);
        rig_die(r);
        uint64_t next = push(r, "k", "x");
        assert_true(next > id);
        id = next;
    }
}

static uint64_t log_head(struct rig *r) {
    struct log_state log;
    shard_look(r->shard, &log);
    return log.head;
}

// Changes a byte of the file of the first segment, where this text stands.
static void damage_text(struct rig *r, const char *text) {
    char path[128], bytes[SMALL_SEGMENT];
    snprintf(path, sizeof path, "%s/0000000000000000.seg", r->dir);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    const char *found = memmem(bytes, sizeof bytes, text, strlen(text));
    assert_non_null(found);
    assert_int_equal(pwrite(fd, "?", 1, found - bytes), 1);
    close(fd);
}

static int read_body(struct rig *r, uint64_t id) {
    struct job_info info;
    struct buffer body = { 0 };
    assert_int_equal(core_look_job(r->core, id, &info), 0);
    int err = shard_read(r->shard, info.at, &body);
    buffer_finish(&body);
    return err;
}

static void note_problem(void *arg, const struct log_problem *p) {
    (void)arg, (void)p;
}

// Pushes, works off and cleans until the head of the log moves, or for a while. The last answer of
// the cleaner.
static int work_until_trimmed(struct rig *r, const char *body) {
    uint64_t head = log_head(r);
    int err = 0;
    for (int i = 0; i < 200 && log_head(r) == head; i++) {
        struct taken t;
        push(r, "", body);
        while (try_take(r, &t))
            done(r, t);
        bool more;
        begin(r);
        err = shard_clean(r->shard, &more);
        end(r);
        r->boot_ms += 1000; // the cleaner pauses after a failure
    }
    return err;
}

static uint64_t position_of(struct rig *r, uint64_t id) {
    struct job_info info;
    assert_int_equal(core_look_job(r->core, id, &info), 0);
    return info.at;
}

// A rig whose disk is simulated, with three jobs of stage "other" in the first segment and much
// else behind them, opened again.
struct head_rig {
    struct rig rig;
    struct sim_disk *sim;
    uint64_t before, damaged, behind; // ids
};

static const char first_segment[] = "/store/0000000000000000.seg";

static void head_rig_begin(struct head_rig *h, const char *body) {
    struct rig *r = &h->rig;
    *h = (struct head_rig){ .sim = sim_disk_create(), .rig.wall_ms = 1700000000000 };
    r->options =
        (struct shard_options){ .store = store_in("/store"),
                                .log = { .segment_size = SMALL_SEGMENT,
                                         .inline_writer = true,
                                         .disk = sim_disk_disk(h->sim) },
                                .world = { .wall_ms = rig_wall, .boot_ms = rig_boot, .arg = r } };
    rig_open(r);
    h->before = push_once(r, "other", "", "", "before it").id;
    h->damaged = push_once(r, "other", "", "", "to be damaged").id;
    h->behind = push_once(r, "other", "", "", "behind it").id;
    for (int i = 0; i < 40; i++)
        push(r, "", body);
    rig_reopen(r);
}

static void head_rig_end(struct head_rig *h) {
    shard_close(h->rig.shard);
    sim_disk_destroy(h->sim);
}

// Changes a byte of the entry of the job that is to be damaged.
static void head_rig_damage(struct head_rig *h, uint64_t offset) {
    uint64_t size, at = position_of(&h->rig, h->damaged) + offset;
    uint8_t *bytes = sim_disk_file(h->sim, first_segment, &size);
    assert_true(at < size);
    bytes[at] ^= 0x55;
    sim_disk_touch(h->sim, first_segment);
}

static void expect_damage_reported(struct rig *r) {
    const char *where;
    assert_int_equal(shard_damage(r->shard, &where), 1);
    assert_non_null(strstr(where, "/store/0000000000000000.seg: damaged at offset"));
    assert_non_null(strstr(where, "millrace store repair file:/store"));
}

enum { FRAME_BODY_SUM = 16, FRAME_BODY_SUM_END = 24, FRAME_AND_SOME_HEAD = 40 };

// U9: an entry whose frame or head is damaged, whichever byte, moves on with the head that the
// index has. With its body too, unless the sum of that is what was damaged.
static void U9_the_cleaner_restores_a_damaged_head(void **state) {
    (void)state;
    char body[1000] = "";
    memset(body, 'x', sizeof body - 1);
    for (uint64_t offset = 0; offset < FRAME_AND_SOME_HEAD; offset++) {
        struct head_rig h;
        struct rig *r = &h.rig;
        head_rig_begin(&h, body);
        head_rig_damage(&h, offset);
        assert_int_equal(read_body(r, h.damaged), MR_ECORRUPT);
        assert_int_equal(work_until_trimmed(r, body), 0);
        assert_true(log_head(r) > 0);
        expect_damage_reported(r);
        bool sum = offset >= FRAME_BODY_SUM && offset < FRAME_BODY_SUM_END;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(read_body(r, h.before), 0);
            assert_int_equal(read_body(r, h.damaged), sum ? MR_ECORRUPT : 0);
            assert_int_equal(read_body(r, h.behind), 0);
            rig_reopen(r);
        }
        head_rig_end(&h);
    }
}

// U9: without an index it cannot be passed: its segment stays while anything in it is needed, which
// is reported once, and goes when nothing is.
static void U9_the_cleaner_waits_at_a_head_that_it_cannot_restore(void **state) {
    (void)state;
    char body[1000] = "";
    struct head_rig h;
    struct rig *r = &h.rig;
    memset(body, 'x', sizeof body - 1);
    head_rig_begin(&h, body);
    head_rig_damage(&h, 0);
    sim_disk_remove(h.sim, "/store/0000000000000000.idx");
    uint64_t head = log_head(r);
    assert_int_equal(work_until_trimmed(r, body), MR_ECORRUPT);
    assert_int_equal(log_head(r), head);
    expect_damage_reported(r);
    assert_int_equal(read_body(r, h.before), 0);
    assert_int_equal(read_body(r, h.behind), 0);
    begin(r);
    assert_int_equal(core_drop(r->core, h.damaged), 0);
    assert_int_equal(core_drop(r->core, h.behind), 0);
    end(r);
    assert_int_equal(work_until_trimmed(r, body), 0);
    assert_true(log_head(r) > head);
    expect_damage_reported(r); // still once
    rig_reopen(r);
    assert_int_equal(read_body(r, h.before), 0);
    head_rig_end(&h);
}

// U16: a damaged body does not keep the cleaner from what lies behind it: it is copied, stays
// damaged, and is reported.
static void U16_the_cleaner_passes_a_damaged_body(void **state) {
    struct rig *r = *state;
    char body[1000] = "";
    memset(body, 'x', sizeof body - 1);
    uint64_t damaged = push_once(r, "other", "", "", "to be damaged").id;
    uint64_t whole = push_once(r, "other", "", "", "not this one").id;
    for (int i = 0; i < 40; i++)
        push(r, "", body);
    rig_reopen(r); // nothing of it is in memory any more
    damage_text(r, "to be damaged");
    uint64_t head = log_head(r);
    for (int i = 0; i < 400 && log_head(r) == head; i++) {
        struct taken t;
        push(r, "", body);
        while (try_take(r, &t))
            done(r, t);
        bool more;
        begin(r);
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
    }
    assert_true(log_head(r) > head);
    const char *where;
    assert_int_equal(shard_damage(r->shard, &where), 1);
    assert_non_null(strstr(where, "0000000000000000.seg: damaged at offset"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_body(r, damaged), MR_ECORRUPT);
        assert_int_equal(read_body(r, whole), 0);
        rig_reopen(r);
    }
    // A check finds it where it is now; a repair gives it up, and nothing else.
    shard_close(r->shard);
    struct shard_repair repaired;
    assert_true(log_file_check(r->dir, NULL, NULL, note_problem, NULL) > 0);
    assert_int_equal(shard_repair(&(struct shard_place){ .dir = r->dir }, &repaired), 0);
    assert_int_equal(log_file_check(r->dir, NULL, NULL, note_problem, NULL), 0);
    rig_open(r);
    assert_int_equal(read_body(r, whole), 0);
    struct job_info info;
    assert_int_equal(core_look_job(r->core, damaged, &info), MR_EGONE);
}

// F14: every policy is replayed, and pause too.
static void every_policy_is_replayed(void **state) {
    struct rig *r = *state;
    static const char *const policies[][2] = {
        { "max-jobs", "7" },     { "max-channel", "6" },    { "lease", "5s" },
        { "attempts", "4" },     { "backoff", "2s..8s" },   { "on-dead", "halt" },
        { "overlap", "never" },  { "dedupe-window", "3s" }, { "retention", "9s,11" },
        { "concurrency", "12" }, { "rate", "13" },          { "max-states", "14" },
        { "state-ttl", "15s" },  { "high-mark", "16" },
    };
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        set(r, policies[i][0], policies[i][1]);
    begin(r);
    assert_int_equal(core_pause(r->core, mr_str("s")), 0);
    end(r);
    struct policy before = *look(r).policy;
    for (int round = 0; round < 2; round++) {
        rig_reopen(r);
        char was[64], is[64];
        const char *name;
        for (size_t i = 0; (name = policy_get(&before, i, was, sizeof was)); i++) {
            policy_get(look(r).policy, i, is, sizeof is);
            assert_string_equal(is, was);
        }
        assert_true(look(r).paused);
    }
}

// F15: order is that of before, whatever was reopened in between.
static void order_survives(void **state) {
    struct rig *r = *state;
    char body[16];
    for (int i = 0; i < 60; i++) {
        snprintf(body, sizeof body, "%d", i);
        push(r, i % 2 ? "odd" : "even", body);
        if (i % 7 == 0)
            rig_reopen(r);
    }
    int last[2] = { -2, -1 };
    for (int i = 0; i < 60; i++) {
        struct taken t = take(r);
        int number = (int)strtol(t.body, NULL, 10);
        assert_int_equal(number, last[number % 2] + 2);
        last[number % 2] = number;
        if (i % 5 == 0 && number + 2 < 60) { // held at reopening: it returns to the head
            rig_reopen(r);
            t = take(r);
            while (strtol(t.body, NULL, 10) != number)
                t = take(r);
        }
        done(r, t);
        rig_reopen(r);
    }
}

// F19: names are remembered.
static void dedupe_survives(void **state) {
    struct rig *r = *state;
    struct pushed first = push_once(r, "s", "k", "name", "x");
    rig_reopen(r);
    struct pushed again = push_once(r, "s", "k", "name", "y");
    assert_true(again.repeat);
    assert_int_equal(again.id, first.id);
    done(r, take(r));
    rig_reopen(r);
    assert_true(push_once(r, "s", "k", "name", "z").repeat);
    expect_none(r);
    pass_ms(r, 2 * 3600 * 1000);
    assert_false(push_once(r, "s", "k", "name", "new").repeat);
}

// ---- Time -------------------------------------------------------------------------------------

// F30: the wall clock jumps an hour while the engine runs: nothing expires early or late.
static void a_running_engine_does_not_see_the_wall_clock(void **state) {
    struct rig *r = *state;
    struct pushed pushed;
    struct push p = { .stage = mr_str("s"), .body = mr_str("x"), .job.deadline_ms = 60000 };
    begin(r);
    assert_int_equal(core_push(r->core, &p, &pushed), 0);
    end(r);
    for (int hours = -1; hours <= 1; hours += 2) {
        r->wall_ms += (uint64_t)(hours * 3600 * 1000);
        pass_ms(r, 20000);
        assert_int_equal(status_of(r, pushed.id), JOB_WAITING);
        assert_in_range(shard_next_ms(r->shard), 1, 60000);
    }
    pass_ms(r, 20001);
    assert_int_equal(status_of(r, pushed.id), JOB_EXPIRED);
}

// F30: a wall clock behind the log does not take time back; one ahead of it does move time.
static void time_never_goes_back_over_reopening(void **state) {
    struct rig *r = *state;
    pass_ms(r, 5000);
    push(r, "k", "x");
    uint64_t recorded = core_now(r->core);
    r->wall_ms -= 3600 * 1000;
    r->boot_ms = 0; // the machine was rebooted
    rig_reopen(r);
    assert_true(core_now(r->core) >= recorded);
    uint64_t now = core_now(r->core);
    pass_ms(r, 10);
    assert_int_equal(core_now(r->core), now + 10);
    r->wall_ms += 10 * 3600 * 1000;
    rig_reopen(r);
    assert_int_equal(core_now(r->core), r->wall_ms);
}

// A delayed job is due by engine time, and shard_next_ms returns when that is.
static void the_shard_reports_when_its_next_turn_is_due(void **state) {
    struct rig *r = *state;
    struct push p = { .stage = mr_str("s"), .body = mr_str("x"), .job.delay_ms = 700 };
    struct pushed pushed;
    begin(r);
    assert_int_equal(core_push(r->core, &p, &pushed), 0);
    end(r);
    assert_int_equal(shard_next_ms(r->shard), 700);
    r->boot_ms += 700;
    assert_int_equal(shard_next_ms(r->shard), 0);
    pass_ms(r, 0);
    assert_int_equal(take(r).id, pushed.id);
}

// ---- Rule 22: poison --------------------------------------------------------------------------

static void a_job_that_kills_its_engine_dies(void **state) {
    struct rig *r = *state;
    set(r, "attempts", "3");
    set(r, "backoff", "1ms..1ms");
    uint64_t poison = push(r, "k", "poison"), behind = push(r, "k", "behind");
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        struct taken t = take(r);
        assert_int_equal(t.id, poison);
        assert_int_equal(t.attempt, attempt);
        rig_die(r);
        pass_ms(r, 2);
    }
    assert_int_equal(status_of(r, poison), JOB_DEAD);
    assert_int_equal(take(r).id, behind);
}

static void a_peaceful_end_counts_no_attempt(void **state) {
    struct rig *r = *state;
    push(r, "k", "x");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(take(r).attempt, 1);
        rig_reopen(r);
    }
    struct taken t = take(r);
    done(r, t);
    rig_die(r); // it runs no more
    assert_int_equal(status_of(r, t.id), JOB_DONE);
}

static void write_running(struct rig *r, const void *data, size_t size) {
    char path[96];
    snprintf(path, sizeof path, "%s/running", r->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
}

static void foreign_notes_are_passed_over(void **state) {
    struct rig *r = *state;
    uint64_t id = push(r, "k", "x");
    uint8_t junk[5003];
    uint64_t dice = 5;
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (uint8_t)dice_next(&dice);
    for (size_t size = 0; size <= sizeof junk; size += 5003) {
        shard_close(r->shard);
        write_running(r, junk, size);
        rig_open(r);
        assert_int_equal(status_of(r, id), JOB_WAITING);
        struct taken t = take(r);
        assert_int_equal(t.attempt, 1);
    }
}

static int count_left(void *arg, uint64_t id, uint32_t attempt) {
    uint64_t *sum = arg;
    sum[0]++;
    sum[1] += id * attempt;
    return 0;
}

// Notes beyond the first 4096 slots: the file grows, and all of them are found.
static void many_notes_are_kept(void **state) {
    (void)state;
    char dir[] = "/tmp/shard_test.XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct running *running;
    enum { MANY = 20000 };
    assert_int_equal(running_open(dir, &running), 0);
    running_forget_left(running);
    uint64_t expected[2] = { 0 }, found[2] = { 0 };
    for (uint64_t id = 1; id <= MANY; id++)
        running_begin(running, id * 977, (uint32_t)(id % 9 + 1));
    for (uint64_t id = 1; id <= MANY; id++)
        if (id % 3)
            running_end(running, id * 977);
        else
            count_left(expected, id * 977, (uint32_t)(id % 9 + 1));
    running_close(running, false);
    assert_int_equal(running_open(dir, &running), 0);
    assert_int_equal(running_each_left(running, count_left, found), 0);
    assert_memory_equal(found, expected, sizeof found);
    running_forget_left(running);
    running_close(running, false);
    found[0] = 0;
    assert_int_equal(running_open(dir, &running), 0);
    assert_int_equal(running_each_left(running, count_left, found), 0);
    assert_int_equal(found[0], 0);
    running_close(running, true);
    assert_int_equal(rmdir(dir), 0);
}

// ---- The length of the log --------------------------------------------------------------------

static void expect_short(struct rig *r) {
    struct log_state log;
    shard_look(r->shard, &log);
    assert_true(log.tail - log.head <= 2 * core_live_bytes(r->core) + 2 * log.segment_size);
}

// F16: endless failing and releasing; one old job is there all the while.
static void the_log_stays_short(void **state) {
    struct rig *r = *state;
    uint64_t old = push(r, "old", "has been here for long");
    set(r, "attempts", "60000");
    set(r, "retention", "1s,10");
    push(r, "k", "x");
    struct log_state log;
    struct taken pinned = take(r);
    assert_int_equal(pinned.id, old);
    for (int i = 0; i < 5000; i++) {
        struct taken t = take(r);
        begin(r);
        if (i % 2)
            assert_int_equal(core_fail(r->core, t.id, &t.token, mr_str("again"), 0), 0);
        else
            assert_int_equal(core_release(r->core, t.id, &t.token, 0), 0);
        bool more;
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
        begin(r);
        assert_int_equal(core_beat(r->core, pinned.id, &pinned.token), 0);
        end(r);
        pass_ms(r, 1001);
    }
    clean_all(r);
    shard_look(r->shard, &log);
    assert_true(log.head > 2 * SMALL_SEGMENT);
    expect_short(r);
    done(r, pinned);
    rig_reopen(r);
    assert_int_equal(status_of(r, old), JOB_DONE);
    assert_int_equal(look(r).waiting, 1);
}

// After any history the log comes down to its bound.
static void a_long_backlog_that_has_ended_leaves_little(void **state) {
    struct rig *r = *state;
    set(r, "retention", "1h,5");
    char body[200];
    memset(body, 'b', sizeof body);
    body[sizeof body - 1] = 0;
    for (int i = 0; i < 3000; i++)
        push(r, i % 3 ? "k" : "", body);
    for (struct taken t; try_take(r, &t);)
        done(r, t);
    clean_all(r);
    expect_short(r);
    struct log_state log;
    shard_look(r->shard, &log);
    assert_true(log.tail - log.head < 4 * SMALL_SEGMENT);
    rig_reopen(r);
    expect_none(r);
    assert_int_equal(look(r).done, 3000);
}

// The memory log is cleaned too, also where a body is larger than its segments.
static void the_memory_log_stays_short(void **state) {
    (void)state;
    struct rig r = { .options = { .log = { .segment_size = SMALL_SEGMENT },
                                  .world = { .wall_ms = rig_wall, .boot_ms = rig_boot } } };
    r.options.world.arg = &r;
    rig_open(&r);
    set(&r, "retention", "1h,1");
    enum { BIG = 100000 };
    char *body = calloc(1, BIG + 1);
    memset(body, 'b', BIG);
    push(&r, "old", "stays");
    struct log_state log;
    for (int i = 0; i < 200; i++) {
        push(&r, "k", body + (i % 3 ? BIG - 100 : 0));
        struct taken t = take(&r);
        while (strcmp(t.body, "stays") == 0)
            t = take(&r);
        done(&r, t);
        clean_all(&r);
        shard_look(r.shard, &log);
        assert_true(log.bytes <= 2 * core_live_bytes(r.core) + 2 * SMALL_SEGMENT + 2 * BIG);
    }
    assert_int_equal(look(&r).done, 200);
    assert_int_equal(core_check(r.core), 0);
    free(body);
    shard_close(r.shard);
}

// As an engine does in every turn.
static void report_memory(struct rig *r) {
    struct log_state log;
    shard_look(r->shard, &log);
    core_set_outside_memory(r->core, log.memory);
}

static int try_push(struct rig *r, const char *body) {
    struct push push = { .stage = mr_str("s"), .body = mr_str(body) };
    struct pushed pushed;
    begin(r);
    report_memory(r);
    int err = core_push(r->core, &push, &pushed);
    end(r);
    return err;
}

// How many fit.
static int fill(struct rig *r, const char *body) {
    int count = 0, before;
    do {
        before = count;
        begin(r);
        report_memory(r);
        end(r);
        clean_all(r);
        while (try_push(r, body) == 0)
            count++;
    } while (count > before);
    return count;
}

// Fills it, works off a quarter of that, and fills it again.
static void refill(struct rig *r) {
    char body[1000];
    memset(body, 'b', sizeof body);
    body[sizeof body - 1] = 0;
    set(r, "retention", "1h,1");
    int count = fill(r, body);
    for (int i = 0; i < count / 4; i++)
        done(r, take(r));
    int more = fill(r, body);
    assert_in_range(more, count / 8, count / 4 + 1);
    assert_int_equal(look(r).waiting, count - count / 4 + more);
}

// F25: finished jobs make room although more than that is live.
static void F25_a_full_disk_has_room_again_where_nothing_lives(void **state) {
    struct rig *r = *state;
    r->options.log.max_bytes = 20 * SMALL_SEGMENT;
    rig_reopen(r);
    refill(r);
}

// F25: not even the end of a lease has room. It is tried again and again, but refuses no turn.
static void F25_a_turn_begins_though_what_is_due_cannot_be_recorded(void **state) {
    struct rig *r = *state;
    struct taken t;
    int err;
    r->options.log.max_bytes = 4 * SMALL_SEGMENT;
    rig_reopen(r);
    while (try_push(r, "") == 0)
        continue;
    do { // what a snooze records is the shortest
        t = take(r);
        begin(r);
        err = core_release(r->core, t.id, &t.token, 3600000);
        end(r);
    } while (err == 0);
    assert_int_equal(err, MR_EFULL);
    for (int i = 0; i < 3; i++) {
        pass_ms(r, 60000);
        assert_int_equal(look(r).running, 1);
    }
}

static void open_in_memory(struct rig *r, uint64_t max_memory) {
    *r = (struct rig){ .options = { .log = { .segment_size = SMALL_SEGMENT },
                                    .limits = { .max_memory = max_memory },
                                    .world = { .wall_ms = rig_wall, .boot_ms = rig_boot } } };
    r->options.world.arg = r;
    rig_open(r);
}

static void F51_full_memory_has_room_again_where_nothing_lives(void **state) {
    struct rig r;
    (void)state;
    open_in_memory(&r, 40 * SMALL_SEGMENT);
    refill(&r);
    shard_close(r.shard);
}

// F51: and dead entries behind long-lived ones make room, too.
static void F51_full_memory_has_room_as_long_as_little_lives(void **state) {
    struct rig r;
    char body[1000];
    (void)state;
    open_in_memory(&r, 160 * SMALL_SEGMENT);
    set(&r, "retention", "1h,1");
    memset(body, 'b', sizeof body);
    body[sizeof body - 1] = 0;
    while (core_live_bytes(r.core) < 96 * SMALL_SEGMENT) {
        assert_int_equal(try_push(&r, body), 0);
        take(&r); // and it takes long
    }
    for (int i = 0; i < 2000; i++) {
        if (try_push(&r, body) < 0) {
            clean_all(&r);
            assert_int_equal(try_push(&r, body), 0);
        }
        done(&r, take(&r));
    }
    assert_int_equal(core_check(r.core), 0);
    shard_close(r.shard);
}

// F16: jobs done in the order of their pushes leave segments without live entries: these are
// trimmed unread.
static void dead_segments_are_not_read(void **state) {
    (void)state;
    struct sim_disk *sim = sim_disk_create();
    struct rig r = { .options = { .store = store_in("/store"),
                                  .log = { .segment_size = SMALL_SEGMENT,
                                           .inline_writer = true,
                                           .disk = sim_disk_disk(sim) },
                                  .world = { .wall_ms = rig_wall, .boot_ms = rig_boot } } };
    r.options.log.direct_least = UINT64_MAX; // else the writer reads the headers of segments
    r.options.world.arg = &r;
    rig_open(&r);
    set(&r, "retention", "1h,1");
    struct log_state log;
    uint64_t reads = 0;
    for (int i = 0; i < 2000; i++) {
        push(&r, i % 2 ? "k" : "", "body");
        done(&r, take(&r));
        uint64_t before = sim_disk_reads(sim);
        clean_all(&r);
        reads += sim_disk_reads(sim) - before;
    }
    shard_look(r.shard, &log);
    assert_true(log.head > 8 * SMALL_SEGMENT);
    assert_int_equal(reads, 0);
    assert_int_equal(core_check(r.core), 0);
    rig_reopen(&r);
    expect_none(&r);
    assert_int_equal(look(&r).done, 2000);
    shard_close(r.shard);
    sim_disk_destroy(sim);
}

// Other threads read while the owner works and the cleaner moves entries: they get the entry, or
// MR_EGONE.
struct reading {
    struct shard *shard;
    _Atomic uint64_t at;
    _Atomic bool over;
    _Atomic uint64_t found, gone;
};

static void *read_on(void *arg) {
    struct reading *reading = arg;
    while (!reading->over) {
        uint64_t at = reading->at;
        struct buffer body = { 0 };
        int err = at ? shard_read(reading->shard, at, &body) : MR_EGONE;
        if (err == 0 && shard_wait(reading->shard, at) == 0) {
            assert_true(bytes_equal(buffer_bytes(&body), mr_str("a body to be found")));
            reading->found++;
        } else {
            assert_int_equal(err, MR_EGONE);
            reading->gone++;
        }
        buffer_finish(&body);
    }
    return NULL;
}

static void others_read_meanwhile(void **state) {
    struct rig *r = *state;
    shard_close(r->shard);
    r->options.log.inline_writer = false;
    r->options.log.sync = LOG_SYNC_NONE;
    rig_open(r);
    set(r, "retention", "1h,1");
    struct reading reading = { .shard = r->shard };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_on, &reading), 0);
    for (int i = 0; i < 4000 || reading.found < 100; i++) {
        uint64_t id = push(r, "k", "a body to be found");
        struct job_info job;
        assert_int_equal(core_look_job(r->core, id, &job), 0);
        reading.at = job.at;
        done(r, take(r));
        bool more;
        begin(r);
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
    }
    reading.over = true;
    pthread_join(thread, NULL);
    struct log_state log;
    shard_look(r->shard, &log);
    assert_true(log.head > SMALL_SEGMENT);
}

static uint64_t work_and_clean(struct rig *r, int times) {
    for (int i = 0; i < times; i++) {
        bool more;
        push(r, "k", "a body");
        done(r, take(r));
        begin(r);
        assert_int_equal(shard_clean(r->shard, &more), 0);
        end(r);
    }
    return log_head(r);
}

// G14: while a backup reads the log, nothing is removed from it; afterwards it is.
static void G14_a_pinned_log_is_not_shortened(void **state) {
    struct rig *r = *state;
    set(r, "retention", "1h,1");
    uint64_t head = work_and_clean(r, 4000);
    assert_true(head > SMALL_SEGMENT);
    shard_pin(r->shard, true);
    assert_int_equal(work_and_clean(r, 4000), head);
    assert_false(shard_can_clean(r->shard));
    shard_pin(r->shard, false);
    assert_true(work_and_clean(r, 4000) > head);
}

// A log that has failed is not cleaned in a loop.
static void a_failed_log_is_left_alone(void **state) {
    (void)state;
    struct sim_disk *sim = sim_disk_create();
    struct rig r = { .options = { .store = store_in("/store"),
                                  .log = { .segment_size = SMALL_SEGMENT,
                                           .inline_writer = true,
                                           .disk = sim_disk_disk(sim) },
                                  .world = { .wall_ms = rig_wall, .boot_ms = rig_boot } } };
    r.options.world.arg = &r;
    rig_open(&r);
    char body[200] = { 0 };
    memset(body, 'b', sizeof body - 1);
    set(&r, "retention", "1h,5");
    for (int i = 0; i < 1000; i++) {
        push(&r, "k", body);
        done(&r, take(&r));
    }
    sim_disk_break(sim, SIM_WRITES, EIO);
    int steps = 0;
    bool more = true;
    for (; more && steps < 1000; steps++) {
        more = false;
        if (shard_begin(r.shard) < 0)
            break;
        shard_clean(r.shard, &more);
        shard_end(r.shard);
    }
    assert_true(steps < 1000);
    assert_int_equal(shard_begin(r.shard), MR_ESTOPPED);
    assert_true(strlen(error_text()) > 0);
    assert_int_equal(look(&r).done, 1000); // reading still works
    assert_true(shard_next_ms(r.shard) != 0);
    shard_close(r.shard);
    sim_disk_destroy(sim);
}

// ---- Nothing is issued twice ------------------------------------------------------------------

struct scene {
    struct workload *story;
    struct sim_disk *sim;
    struct shard_options options;
};

static void scene_begin(struct scene *s, uint64_t seed, enum log_sync sync) {
    s->story = calloc(1, sizeof *s->story);
    s->sim = sim_disk_create();
    s->options = (struct shard_options){ .store = store_in("/store"),
                                         .log = { .sync = sync,
                                                  .segment_size = SMALL_SEGMENT,
                                                  .inline_writer = true,
                                                  .disk = sim_disk_disk(s->sim) } };
    workload_begin(s->story, seed);
}

static void scene_end(struct scene *s) {
    must(s->story, workload_open(s->story, &s->options) == 0);
    workload_drain(s->story);
    workload_close(s->story);
    sim_disk_destroy(s->sim);
    free(s->story);
}

// With sync none a crash loses whatever was not synced; ids and tokens still never repeat.
static void ids_and_tokens_never_repeat(void **state) {
    (void)state;
    uint64_t losses = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct scene s;
        scene_begin(&s, seed, LOG_SYNC_NONE);
        s.story->forgets = true;
        for (int round = 0; round < 10; round++) {
            must(s.story, workload_open(s.story, &s.options) == 0);
            must(s.story, workload_go_on(s.story, 150) == 0);
            sim_disk_crash_at(s.sim, sim_disk_calls(s.sim) + 1);
            workload_close(s.story);
            sim_disk_restart(s.sim, round % SIM_SURVIVALS, seed);
        }
        losses += s.story->losses;
        scene_end(&s);
    }
    assert_true(losses > 0);
}

// T21: of a disk's writing calls, one in ten fails. The shard stops, is opened again and goes on.
static void with_a_disk_that_fails_all_complete(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct scene s;
        scene_begin(&s, seed, LOG_SYNC_ALWAYS);
        while (s.story->step < 300) {
            uint64_t within = workload_roll(s.story, 20);
            sim_disk_fail_at(s.sim, sim_disk_calls(s.sim) + 1 + within, EIO);
            int err = workload_open(s.story, &s.options);
            if (err >= 0)
                err = workload_go_on(s.story, 300);
            must(s.story, err >= 0 || workload_is_cut(err));
            workload_close(s.story);
        }
        sim_disk_fail_at(s.sim, 0, 0);
        scene_end(&s);
    }
}

int main(void) {
#define RIGGED(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
    const struct CMUnitTest tests[] = {
        RIGGED(unfinished_work_comes_back_first),
        RIGGED(R15_what_was_accepted_comes_before_what_is_due),
        RIGGED(a_reply_comes_after_storage),
        RIGGED(confirmed_work_leaves_storage),
        RIGGED(everything_comes_back),
        RIGGED(the_dead_come_back_dead),
        RIGGED(U16_the_cleaner_passes_a_damaged_body),
        cmocka_unit_test(U9_the_cleaner_restores_a_damaged_head),
        cmocka_unit_test(U9_the_cleaner_waits_at_a_head_that_it_cannot_restore),
        RIGGED(U22_the_dead_of_one_instant_keep_their_order),
        RIGGED(U15_ids_follow_on_over_a_restart),
        RIGGED(every_policy_is_replayed),
        RIGGED(order_survives),
        RIGGED(dedupe_survives),
        RIGGED(a_running_engine_does_not_see_the_wall_clock),
        RIGGED(time_never_goes_back_over_reopening),
        RIGGED(the_shard_reports_when_its_next_turn_is_due),
        RIGGED(a_job_that_kills_its_engine_dies),
        RIGGED(a_peaceful_end_counts_no_attempt),
        RIGGED(foreign_notes_are_passed_over),
        cmocka_unit_test(many_notes_are_kept),
        RIGGED(the_log_stays_short),
        RIGGED(a_long_backlog_that_has_ended_leaves_little),
        cmocka_unit_test(the_memory_log_stays_short),
        RIGGED(F25_a_full_disk_has_room_again_where_nothing_lives),
        RIGGED(F25_a_turn_begins_though_what_is_due_cannot_be_recorded),
        cmocka_unit_test(F51_full_memory_has_room_again_where_nothing_lives),
        cmocka_unit_test(F51_full_memory_has_room_as_long_as_little_lives),
        cmocka_unit_test(dead_segments_are_not_read),
        RIGGED(others_read_meanwhile),
        RIGGED(G14_a_pinned_log_is_not_shortened),
        cmocka_unit_test(a_failed_log_is_left_alone),
        cmocka_unit_test(ids_and_tokens_never_repeat),
        cmocka_unit_test(with_a_disk_that_fails_all_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
