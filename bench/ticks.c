// Ticks of schedules on one shard with the memory log: one schedule after another comes due, a
// second apart, while all others wait. The clock is simulated.
//
//     ticks [SCHEDULES [TICKS]]
//
// Each tick is a turn; the job that it has pushed is taken and ended in another one.
#include "bench/measure.h"

#include "base/errors.h"
#include "shard/shard.h"

enum { APART_MS = 1000 };

struct tick_run {
    uint64_t wall_ms;
    struct shard *shard;
    struct core *core;
    struct conn conn;
};

static uint64_t simulated_ms(void *arg) {
    return ((const struct tick_run *)arg)->wall_ms;
}

static void expect_done(int err, const char *what) {
    if (err < 0)
        must(err, what, error_text());
}

// Schedule n is due n seconds from now, and then whenever all others have been.
static void make_schedules(struct tick_run *r, uint64_t count) {
    char name[32];
    for (uint64_t n = 0; n < count; n++) {
        snprintf(name, sizeof name, "n%" PRIu64, n);
        struct schedule_spec spec = { .stage = mr_str("bench"),
                                      .name = mr_str(name),
                                      .every_ms = count * APART_MS,
                                      .zone = mr_str("UTC"),
                                      .body = mr_str("tick") };
        expect_done(core_schedule_set(r->core, &spec, r->wall_ms + (n + 1) * APART_MS), "schedule");
    }
}

// Not inlined, because bench/instructions counts it.
__attribute__((noinline)) static void step_tick(struct tick_run *r) {
    expect_done(shard_begin(r->shard), "begin");
    (void)shard_end(r->shard);
}

// Exactly one job was pushed.
static void end_pushed(struct tick_run *r) {
    mr_bytes stage = mr_str("bench");
    struct take t = { .stages = &stage, .stage_count = 1, .conn = &r->conn };
    struct grant g;
    size_t count;
    bool more;
    expect_done(shard_begin(r->shard), "begin");
    expect_done(core_take(r->core, &t, &g, &count), "take");
    struct done d = { .id = g.id, .token = g.token };
    expect_done(core_done(r->core, &d), "done");
    must(core_take(r->core, &t, &g, &count) == MR_EAGAIN ? 0 : MR_EINVAL, "tick", "two jobs");
    expect_done(shard_clean(r->shard, &more), "clean");
    (void)shard_end(r->shard);
}

int main(int argc, char **argv) {
    uint64_t schedules = argument(argc, argv, 1, 1000), ticks = argument(argc, argv, 2, 1000);
    struct tick_run r = { .wall_ms = UINT64_C(1700000000000) };
    struct shard_options o = { .world = {
                                   .wall_ms = simulated_ms, .boot_ms = simulated_ms, .arg = &r } };
    expect_done(shard_open(&o, &r.shard), "open");
    r.core = shard_core(r.shard);
    core_join(r.core, &r.conn);
    expect_done(shard_begin(r.shard), "begin");
    make_schedules(&r, schedules);
    (void)shard_end(r.shard);
    struct lap start = lap_begin();
    for (uint64_t i = 0; i < ticks; i++) {
        r.wall_ms += APART_MS;
        step_tick(&r);
        end_pushed(&r);
    }
    lap_tell("tick", lap_end(start), ticks);
    expect_done(core_leave(r.core, &r.conn), "leave");
    shard_close(r.shard);
    return 0;
}
