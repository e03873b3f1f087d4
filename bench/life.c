// The life of a job in one thread, without the library around it: push, take, done on one shard
// with the memory log, while a backlog of jobs is queued.
//
//     life [KEYS [LIVE [LIVES [REPEATS [A_TURN [GROUPS [SCHEDULES]]]]]]]     KEYS 0: jobs without a
//                                                                            key
// GROUPS: the stage has `group on`, and that many groups share the keys; 0: it has none.
// SCHEDULES: that many schedules are there, and none is due before next year.
// Two turns, as if producer and worker were two: push; take, read the body, done, clean. A_TURN
// lives share them, as a server's clients share the turns of its loop: then the clock is read less
// often.
#include "bench/keys.h"
#include "bench/measure.h"

#include "base/errors.h"
#include "shard/shard.h"

struct run {
    struct shard *shard;
    struct core *core;
    struct conn conn;
    struct keys keys;
    struct buffer body;
    uint64_t pushed;
};

static void try(int err, const char *what) {
    if (err < 0)
        must(err, what, error_text());
}

// Each step is a function that is not inlined, because bench/instructions counts them.
#define STEP __attribute__((noinline)) static

STEP void step_push(struct run *r) {
    static const char body[64];
    struct push p = { .stage = mr_str("bench"),
                      .job.key = keys_at(&r->keys, r->pushed),
                      .body = { body, sizeof body } };
    struct pushed pushed;
    try(core_push(r->core, &p, &pushed), "push");
    r->pushed++;
}

STEP void step_take(struct run *r, struct grant *out) {
    mr_bytes stage = mr_str("bench");
    struct take t = { .stages = &stage, .stage_count = 1, .conn = &r->conn };
    size_t count;
    try(core_take(r->core, &t, out, &count), "take");
}

STEP void step_read(struct run *r, const struct grant *g) {
    buffer_clear(&r->body);
    try(shard_read_now(r->shard, g->at, &r->body), "read");
}

STEP void step_done(struct run *r, const struct grant *g) {
    struct done d = { .id = g->id, .token = g->token };
    try(core_done(r->core, &d), "done");
}

STEP void step_begin(struct run *r) {
    try(shard_begin(r->shard), "begin");
}

STEP void step_clean(struct run *r) {
    bool more;
    try(shard_clean(r->shard, &more), "clean");
}

STEP void step_end(struct run *r) {
    (void)shard_end(r->shard);
}

static void live_some(struct run *r, uint64_t lives) {
    step_begin(r);
    for (uint64_t i = 0; i < lives; i++)
        step_push(r);
    step_end(r);
    step_begin(r);
    for (uint64_t i = 0; i < lives; i++) {
        struct grant g;
        step_take(r, &g);
        step_read(r, &g);
        step_done(r, &g);
    }
    step_clean(r);
    step_end(r);
}

// A turn for every thousand: ids are issued only when the record of their block is durable.
static void fill(struct run *r, uint64_t live) {
    for (uint64_t i = 0; i < live; i++) {
        if (i % 1000 == 0)
            step_begin(r);
        step_push(r);
        if (i % 1000 == 999)
            step_end(r);
    }
}

static void add_schedules(struct run *r, uint64_t count) {
    const uint64_t year_ms = UINT64_C(365) * 24 * 3600 * 1000;
    char name[32];
    for (uint64_t n = 0; n < count; n++) {
        snprintf(name, sizeof name, "n%" PRIu64, n);
        struct schedule_spec spec = { .stage = mr_str("bench"),
                                      .name = mr_str(name),
                                      .every_ms = year_ms + n };
        try(ticks_set(shard_ticks(r->shard), &spec), "schedule");
    }
}

int main(int argc, char **argv) {
    uint64_t live = argument(argc, argv, 2, 1000), lives = argument(argc, argv, 3, 1000000);
    uint64_t repeats = argument(argc, argv, 4, 3), a_turn = argument(argc, argv, 5, 1);
    uint64_t groups = argument(argc, argv, 6, 0);
    struct run r = { .keys = keys_make(argument(argc, argv, 1, 0)) };
    struct shard_options o = { .never_replayed = true }; // as `mem:` is opened
    try(shard_open(&o, &r.shard), "open");
    r.core = shard_core(r.shard);
    core_join(r.core, &r.conn);
    if (groups) {
        keys_divide(&r.keys, groups);
        try(core_set(r.core, mr_str("bench"), mr_str("group"), mr_str("on")), "group");
    }
    add_schedules(&r, argument(argc, argv, 7, 0));
    fill(&r, live);
    for (uint64_t i = 0; i < live * 3 / 2; i += a_turn)
        live_some(&r, a_turn); // until the log has its full length, and its memory is used again
    for (uint64_t repeat = 0; repeat < repeats; repeat++) {
        struct lap start = lap_begin();
        for (uint64_t i = 0; i < lives; i += a_turn)
            live_some(&r, a_turn);
        lap_tell("life", lap_end(start), lives);
    }
    try(core_leave(r.core, &r.conn), "leave");
    buffer_finish(&r.body);
    shard_close(r.shard);
    free(r.keys.names);
    return 0;
}
