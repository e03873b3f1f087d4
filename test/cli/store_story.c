// Stores for tests of the command: makes one with something of everything in it, or shows that two
// hold the same, down to what the next commands would answer.
//
//     store_story make DIR      store_story same DIR DIR
//     store_story die DIR       pushes a job and dies
//     store_story newer DIR     marks it as made by a later version
//     store_story small DIR     makes an empty one with small segments, for test/data
#include "support/core_stages.h"

#include "base/errors.h"
#include "log/segment.h"
#include "shard/shard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    START_MS = 1700000000,
    IDS = 4096,
    EPIC_LINES = 5,
    FILLER = 2000,
    FILLER_BYTES = 100,
    BULK = 800
};

static uint64_t now_ms = UINT64_C(1000) * START_MS;

static uint64_t wall(void *arg) {
    (void)arg;
    return now_ms;
}

static void need(bool right, const char *what) {
    if (right)
        return;
    fprintf(stderr, "%s: %s\n", what, error_text());
    exit(1);
}

struct side {
    struct shard *shard;
    struct core *core;
    struct conn conn;
};

static void side_open_sized(struct side *s, const char *dir, uint64_t segment_size) {
    struct shard_options o = { .store = store_in(dir),
                               .log = { .segment_size = segment_size, .inline_writer = true },
                               .world = { .wall_ms = wall, .boot_ms = wall } };
    need(shard_open(&o, &s->shard) == 0, dir);
    s->core = shard_core(s->shard);
    core_join(s->core, &s->conn);
    need(shard_begin(s->shard) == 0, "begin");
}

static void side_open(struct side *s, const char *dir) {
    side_open_sized(s, dir, 64 << 10);
}

// Nothing is running: what was taken has been ended.
static void side_close(struct side *s) {
    need(core_leave(s->core, &s->conn) == 0, "leave");
    need(shard_wait(s->shard, shard_end(s->shard)) == 0, "wait");
    shard_close(s->shard);
}

// ---- Making -----------------------------------------------------------------------------------

static uint64_t push(struct side *s, struct push p) {
    struct pushed pushed;
    need(core_push(s->core, &p, &pushed) == 0, "push");
    return pushed.id;
}

static struct grant take(struct side *s, const char *stage) {
    mr_bytes name = mr_str(stage);
    struct take t = { .stages = &name, .stage_count = 1, .conn = &s->conn };
    struct grant g;
    size_t count;
    need(core_take(s->core, &t, &g, &count) == 0, "take");
    return g;
}

static void done(struct side *s, const struct grant *g, const char *result, const char *state) {
    struct done d = { .id = g->id,
                      .token = g->token,
                      .result = mr_str(result),
                      .set_state = state != NULL,
                      .state = mr_str(state ? state : "") };
    need(core_done(s->core, &d) == 0, "done");
}

static void make_orders(struct side *s) {
    struct push p = { .stage = mr_str("orders"),
                      .job.key = mr_str("ann"),
                      .body = mr_str("first") };
    push(s, p);
    struct grant g = take(s, "orders");
    done(s, &g, "fine", "1");
    p.job.once = mr_str("named");
    push(s, p);
    g = take(s, "orders");
    done(s, &g, "", "2");
    for (int i = 0; i < 3; i++) {
        char once[16];
        snprintf(once, sizeof once, "again-%d", i);
        p.job.once = mr_str(once);
        push(s, p);
    }
    push(s, (struct push){ .stage = mr_str("orders"),
                           .job.key = mr_str("bob\n'\xff"),
                           .body = { "\x00\xfe\"", 3 },
                           .job.deadline_ms = 86400000,
                           .job.attempts = 3 });
    push(s,
         (struct push){ .stage = mr_str("orders"), .body = mr_str("x"), .job.delay_ms = 3600000 });
    p.job.once = (mr_bytes){ 0 };
    bool changed;
    need(core_cancel(s->core, push(s, p), &changed) == 0, "cancel");
}

static void make_mail(struct side *s) {
    const char *policies[][2] = { { "on-dead", "halt" }, { "lease", "10s" }, { "rate", "7/s" } };
    for (size_t i = 0; i < 3; i++)
        need(core_set(s->core, mr_str("mail"), mr_str(policies[i][0]), mr_str(policies[i][1])) == 0,
             "set");
    struct push p = { .stage = mr_str("mail"), .job.key = mr_str("k"), .body = mr_str("to: ann") };
    for (int i = 0; i < 3; i++)
        push(s, p);
    struct grant g = take(s, "mail");
    need(core_fail(s->core, g.id, &g.token, mr_str("no \"route\""), MR_NEVER) == 0, "fail");
    p.job.key = mr_str("other");
    push(s, p);
    now_ms += 1000;
    need(shard_begin(s->shard) == 0, "later");
    g = take(s, "mail");
    need(core_fail(s->core, g.id, &g.token, mr_str("try later"), 60000) == 0, "fail");
    need(core_pause(s->core, mr_str("mail")) == 0, "pause");
}

static void make_epic(struct side *s) {
    for (uint64_t i = 1; i <= EPIC_LINES; i++)
        push(s, (struct push){ .stage = mr_str("lines"),
                               .body = mr_str("line"),
                               .source = mr_str("file.txt"),
                               .number = i,
                               .epic = true });
    need(core_epic_end(s->core, mr_str("lines"), mr_str("file.txt"), 2 * EPIC_LINES) == 0, "epic");
    struct grant g = take(s, "lines");
    done(s, &g, "", NULL);
}

// Much that comes and goes, so that the cleaner has moved and trimmed things.
static void make_filler(struct side *s) {
    char body[FILLER_BYTES] = { 0 };
    need(core_set(s->core, mr_str("filler"), mr_str("retention"), mr_str("0,0")) == 0, "set");
    for (int i = 0; i < FILLER; i++) {
        push(s, (struct push){ .stage = mr_str("filler"), .body = { body, sizeof body } });
        struct grant g = take(s, "filler");
        done(s, &g, "", NULL);
        shard_end(s->shard);
        need(shard_begin(s->shard) == 0, "begin");
        bool more;
        need(shard_clean(s->shard, &more) == 0, "clean");
    }
}

// What waits fills several segments.
static void make_bulk(struct side *s) {
    char body[2 * FILLER_BYTES] = { 0 };
    for (int i = 0; i < BULK; i++)
        push(s, (struct push){ .stage = mr_str("bulk"), .body = { body, sizeof body } });
}

static void make(const char *dir) {
    struct side s = { 0 };
    side_open(&s, dir);
    make_orders(&s);
    make_mail(&s);
    make_filler(&s);
    make_epic(&s);
    make_bulk(&s);
    need(core_check(s.core) == 0, "check");
    side_close(&s);
}

static void make_small(const char *dir) {
    struct side s = { 0 };
    side_open_sized(&s, dir, 16 << 10);
    side_close(&s);
}

static void die(const char *dir) {
    struct side s = { 0 };
    side_open(&s, dir);
    push(&s, (struct push){ .stage = mr_str("bulk"), .body = mr_str("the last") });
    need(shard_wait(s.shard, shard_end(s.shard)) == 0, "wait");
    _exit(0);
}

// Where store.h has magic, version and sum for all versions to come.
static void newer(const char *dir) {
    enum { SLOT = 512, VERSION_AT = 8, SUM_AT = SLOT - 8 };
    char path[4096];
    uint8_t slots[2][SLOT];
    snprintf(path, sizeof path, "%s/store", dir);
    FILE *f = fopen(path, "r+");
    need(f && fread(slots, SLOT, 2, f) == 2, path);
    for (int i = 0; i < 2; i++) {
        store_u32(slots[i] + VERSION_AT, LOG_FORMAT + 1);
        store_u64(slots[i] + SUM_AT, XXH3_64bits(slots[i], SUM_AT));
    }
    rewind(f);
    need(fwrite(slots, SLOT, 2, f) == 2 && fclose(f) == 0, path);
}

// ---- Comparing --------------------------------------------------------------------------------

static void same_policy(const struct policy *a, const struct policy *b) {
    char x[64], y[64];
    for (size_t i = 0; policy_get(a, i, x, sizeof x); i++) {
        policy_get(b, i, y, sizeof y);
        need(strcmp(x, y) == 0, x);
    }
}

static void same_stages(struct side *a, struct side *b) {
    need(core_stage_count(a->core) == core_stage_count(b->core), "stages");
    for (size_t i = 0; i < core_stage_places(a->core); i++) {
        struct stage_info x, y;
        if (!core_stage_at(a->core, i, &x))
            continue;
        need(core_look_stage(b->core, x.name, &y) == 0, "stage");
        need(x.waiting == y.waiting && x.parked == y.parked && x.delayed == y.delayed, "depth");
        need(x.dead == y.dead && x.pushed == y.pushed && x.done == y.done, "counters");
        need(x.failed == y.failed && x.expired == y.expired && x.cancelled == y.cancelled, "ends");
        need(x.states == y.states && x.paused == y.paused && x.wasted_wait_ms == y.wasted_wait_ms,
             "rest");
        same_policy(x.policy, y.policy);
    }
}

static void same_body(struct side *a, uint64_t a_at, struct side *b, uint64_t b_at) {
    struct buffer x = { 0 }, y = { 0 };
    need(!a_at == !b_at, "an entry");
    if (a_at) {
        need(shard_read(a->shard, a_at, &x) == 0, "read");
        need(shard_read(b->shard, b_at, &y) == 0, "read");
    }
    need(bytes_equal(buffer_bytes(&x), buffer_bytes(&y)), "a body");
    buffer_finish(&x);
    buffer_finish(&y);
}

static void same_job(struct side *a, struct side *b, uint64_t id) {
    struct job_info x, y;
    int err = core_look_job(a->core, id, &x);
    need(core_look_job(b->core, id, &y) == err, "known");
    if (err < 0)
        return;
    need(bytes_equal(x.stage, y.stage) && bytes_equal(x.key, y.key), "names");
    need(x.status == y.status && x.attempt == y.attempt && x.attempts == y.attempts, "status");
    need(x.age_ms == y.age_ms && x.left_ms == y.left_ms && x.due_ms == y.due_ms, "times");
    same_body(a, x.at, b, y.at);
    same_body(a, x.reasons_at, b, y.reasons_at);
    same_body(a, x.state_at, b, y.state_at);
}

static void same_epic(struct side *a, struct side *b) {
    struct epic_info x, y;
    need(core_epic(a->core, mr_str("lines"), mr_str("file.txt"), &x) == 0, "epic");
    need(core_epic(b->core, mr_str("lines"), mr_str("file.txt"), &y) == 0, "epic");
    need(x.resume == y.resume && x.total == y.total && x.accepted == y.accepted, "progress");
    need(x.waiting == y.waiting && x.done == y.done, "progress");
}

static void same_repeats(struct side *a, struct side *b) {
    struct push p = { .stage = mr_str("orders"),
                      .job.key = mr_str("ann"),
                      .job.once = mr_str("named") };
    struct pushed x, y;
    need(core_push(a->core, &p, &x) == 0 && core_push(b->core, &p, &y) == 0, "push");
    need(x.repeat && y.repeat && x.id == y.id, "a once");
    p = (struct push){
        .stage = mr_str("lines"), .source = mr_str("file.txt"), .number = 1, .epic = true
    };
    need(core_push(a->core, &p, &x) == 0 && core_push(b->core, &p, &y) == 0, "push");
    need(x.repeat && y.repeat, "a number");
}

static uint64_t highest_id(struct side *s) {
    struct job_info info;
    uint64_t id = IDS;
    while (id && core_look_job(s->core, id, &info) < 0)
        id--;
    return id;
}

// New ids are new in both; then everything comes out in the same order.
static void same_order(struct side *a, struct side *b, const char *stage) {
    struct push last = { .stage = mr_str(stage), .body = mr_str("last") };
    need(core_resume(a->core, mr_str(stage)) == 0, "resume");
    need(core_resume(b->core, mr_str(stage)) == 0, "resume");
    uint64_t highest = highest_id(a), new_a = push(a, last), new_b = push(b, last);
    need(new_a > highest && new_b > highest, "a new id");
    struct grant x, y;
    do {
        now_ms += 1000;
        need(shard_begin(a->shard) == 0 && shard_begin(b->shard) == 0, "later");
        x = take(a, stage);
        y = take(b, stage);
        need(x.id == y.id || (x.id == new_a && y.id == new_b), "the order");
        need(x.attempt == y.attempt && bytes_equal(x.key, y.key), "the order");
        done(a, &x, "", NULL);
        done(b, &y, "", NULL);
    } while (x.id != new_a);
}

static void same(const char *one, const char *other) {
    struct side a = { 0 }, b = { 0 };
    now_ms += 10000;
    side_open(&a, one);
    side_open(&b, other);
    same_stages(&a, &b);
    for (uint64_t id = 1; id < IDS; id++)
        same_job(&a, &b, id);
    same_epic(&a, &b);
    same_repeats(&a, &b);
    same_order(&a, &b, "orders");
    same_order(&a, &b, "mail");
    same_order(&a, &b, "lines");
    same_order(&a, &b, "bulk");
    need(core_check(a.core) == 0 && core_check(b.core) == 0, "check");
    side_close(&a);
    side_close(&b);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "make") == 0)
        make(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "die") == 0)
        die(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "small") == 0)
        make_small(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "newer") == 0)
        newer(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "same") == 0)
        same(argv[2], argv[3]);
    else
        return 2;
    return 0;
}
