// The life of a job in one thread: push, take, done on the memory log, with a backlog of live jobs
// standing by. Prints nanoseconds a life for each size of the backlog, with and without keys.
#include "shard/shard.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEYS = 1000 };

static char keys[KEYS][16];

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct run {
    struct shard *shard;
    struct conn conn;
    uint64_t pushed;
    bool keyed;
};

static void push(struct run *r) {
    static const char body[64];
    struct push p = { .stage = mr_str("bench"), .body = { body, sizeof body } };
    if (r->keyed)
        p.key = mr_str(keys[r->pushed % KEYS]);
    struct pushed pushed;
    assert(core_push(shard_core(r->shard), &p, &pushed) == 0);
    r->pushed++;
}

static void take_and_done(struct run *r, struct buffer *body) {
    mr_bytes stage = mr_str("bench");
    struct take t = { .stages = &stage, .stage_count = 1, .conn = &r->conn };
    struct grant g;
    size_t count;
    assert(core_take(shard_core(r->shard), &t, &g, &count) == 0);
    buffer_clear(body);
    assert(shard_read(r->shard, g.at, body) == 0);
    struct done d = { .id = g.id, .token = g.token };
    assert(core_done(shard_core(r->shard), &d) == 0);
}

static void run(bool keyed, uint64_t live, uint64_t lives) {
    struct run r = { .keyed = keyed };
    struct shard_options o = { 0 };
    assert(shard_open(&o, &r.shard) == 0);
    core_join(shard_core(r.shard), &r.conn);
    struct buffer body = { 0 };
    bool more;
    for (uint64_t i = 0; i < live; i++)
        push(&r);
    double start = now_s();
    for (uint64_t i = 0; i < lives; i++) {
        assert(shard_begin(r.shard) == 0);
        push(&r);
        (void)shard_end(r.shard);
        assert(shard_begin(r.shard) == 0);
        take_and_done(&r, &body);
        assert(shard_clean(r.shard, &more) == 0);
        (void)shard_end(r.shard);
    }
    double ns = (now_s() - start) * 1e9 / (double)lives;
    printf("%-8s %10llu live  %7.1f ns\n", keyed ? "keyed" : "unkeyed", (unsigned long long)live,
           ns);
    fflush(stdout);
    assert(core_leave(shard_core(r.shard), &r.conn) == 0);
    buffer_finish(&body);
    shard_close(r.shard);
}

int main(int argc, char **argv) {
    uint64_t most = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    uint64_t lives = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000000;
    for (int i = 0; i < KEYS; i++)
        (void)snprintf(keys[i], sizeof keys[i], "key-%d", i);
    for (uint64_t live = 1000; live <= most; live *= 10)
        for (int keyed = 0; keyed < 2; keyed++)
            run(keyed, live, lives);
    return 0;
}
