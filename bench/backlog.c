// A large backlog in a file store: what a queued job costs in memory and on disk, whether pushing
// and taking stay as fast, and how long opening it again takes. 1 KiB bodies, sync policy none, so
// that the speed of the disk is not measured.
//
//     backlog DIR COUNT plain|keyed|once|deadline|delay
//     backlog DIR COUNT all [REPEATS]
//
// By kind of job: bytes of memory per queued job, of the process and of what is allocated for it.
// The difference between kinds is the cost of a channel, a deadline …; the log writes without a
// thread here, because the size of that thread's buffers varies.
//
// `all`: push and take at 10,000 and at COUNT queued; closing; opening again, warm and with the
// files out of the cache; draining; then a history after which one job in ten is still queued.
// After both, the size of the log compared with 2 × live + two segments.
#include "bench/keys.h"
#include "bench/measure.h"

#include "base/errors.h"
#include "shard/shard.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>

enum { BODY = 1024, SHALLOW = 10000, BURST = 1000, BURSTS = 100, TURN = 100 };
enum { DAY_MS = 24 * 3600 * 1000, SETTLE_MS = 20000, TRIM_MS = 2000 };

enum kind { PLAIN, KEYED, ONCE, DEADLINE, DELAY, KINDS };
static const char *const kind_names[KINDS] = { "plain", "keyed", "once", "deadline", "delay" };

struct run {
    const char *dir;
    struct shard *shard;
    struct core *core;
    struct conn conn;
    struct keys keys;
    struct buffer body;
    uint64_t pushed;
    enum kind kind;
    bool inline_writer;
};

static void try(int err, const char *what) {
    if (err < 0)
        must(err, what, error_text());
}

static void run_open(struct run *r) {
    struct shard_options o = { .store = store_in(r->dir),
                               .log = { .sync = LOG_SYNC_NONE,
                                        .inline_writer = r->inline_writer } };
    try(shard_open(&o, &r->shard), "open");
    r->core = shard_core(r->shard);
    core_join(r->core, &r->conn);
}

static void run_close(struct run *r) {
    try(core_leave(r->core, &r->conn), "leave");
    shard_close(r->shard);
}

// ---- Jobs -------------------------------------------------------------------------------------

static void push_one(struct run *r, enum kind kind) {
    static const char body[BODY];
    char once[24];
    struct push p = { .stage = mr_str("bench"), .body = { body, sizeof body } };
    switch (kind) {
    case PLAIN:
    case KINDS:
        break;
    case KEYED:
        p.job.key = keys_at(&r->keys, r->pushed);
        break;
    case ONCE:
        p.job.once = (mr_bytes){ once, (size_t)snprintf(once, sizeof once, "%" PRIu64, r->pushed) };
        break;
    case DEADLINE:
        p.job.deadline_ms = DAY_MS;
        break;
    case DELAY:
        p.job.delay_ms = DAY_MS;
        break;
    }
    struct pushed pushed;
    try(core_push(r->core, &p, &pushed), "push");
    r->pushed++;
}

static void take_one(struct run *r) {
    mr_bytes stage = mr_str("bench");
    struct take t = { .stages = &stage, .stage_count = 1, .conn = &r->conn };
    struct grant g;
    size_t count;
    try(core_take(r->core, &t, &g, &count), "take");
    buffer_clear(&r->body);
    try(shard_read(r->shard, g.at, &r->body), "read");
    struct done d = { .id = g.id, .token = g.token };
    try(core_done(r->core, &d), "done");
}

static void turn(struct run *r, uint64_t pushes, uint64_t takes, enum kind kind) {
    bool more;
    try(shard_begin(r->shard), "begin");
    for (uint64_t i = 0; i < pushes; i++)
        push_one(r, kind);
    for (uint64_t i = 0; i < takes; i++)
        take_one(r);
    try(shard_clean(r->shard, &more), "clean");
    (void)shard_end(r->shard);
}

static void turns(struct run *r, uint64_t pushes, uint64_t takes) {
    while (pushes || takes) {
        uint64_t push = pushes < TURN ? pushes : TURN, take = takes < TURN ? takes : TURN;
        turn(r, push, take, r->kind);
        pushes -= push;
        takes -= take;
    }
}

// Cleans until nothing more is due soon.
static void settle(struct run *r) {
    for (int ms = 0; ms < SETTLE_MS; ms++) {
        turn(r, 0, 0, PLAIN);
        int64_t next = shard_next_ms(r->shard);
        if (next < 0 || next > 50)
            return;
        if (next > 0)
            usleep(1000);
    }
}

// ---- What is measured -------------------------------------------------------------------------

static void measure_rates(struct run *r, const char *push_name, const char *take_name) {
    struct lap push = { 0 }, take = { 0 };
    for (int i = 0; i < BURSTS; i++) {
        struct lap start = lap_begin();
        turns(r, BURST, 0);
        lap_add(&push, lap_end(start));
        start = lap_begin();
        turns(r, 0, BURST);
        lap_add(&take, lap_end(start));
    }
    lap_tell(push_name, push, (uint64_t)BURSTS * BURST);
    lap_tell(take_name, take, (uint64_t)BURSTS * BURST);
}

// Takes the store's files out of the system's cache, as far as they are written.
static void chill(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_NOFOLLOW);
        if (fd < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    if (d)
        closedir(d);
}

static void reopen(struct run *r, const char *name) {
    struct lap start = lap_begin();
    run_open(r);
    lap_tell(name, lap_end(start), 1);
}

// What the log takes up, and what it may. The writer removes what was given up in its own time.
static void tell_disk(struct run *r, const char *name) {
    struct log_state log;
    settle(r);
    shard_look(r->shard, &log);
    uint64_t live = core_live_bytes(r->core);
    printf("%s_at_once_bytes %" PRIu64 "\n", name, log.bytes);
    for (int ms = 0; ms < TRIM_MS && log.bytes > 2 * live + 2 * log.segment_size; ms++) {
        usleep(1000);
        settle(r);
        shard_look(r->shard, &log);
    }
    printf("%s_bytes %" PRIu64 "\n%s_live_bytes %" PRIu64 "\n%s_most_bytes %" PRIu64 "\n", name,
           log.bytes, name, live, name, 2 * live + 2 * log.segment_size);
    fflush(stdout);
}

static void measure_all(struct run *r, uint64_t count, uint64_t repeats) {
    uint64_t rss = rss_bytes();
    turns(r, SHALLOW, 0);
    for (uint64_t i = 0; i < repeats; i++)
        measure_rates(r, "push_shallow", "take_shallow");
    struct lap start = lap_begin();
    turns(r, count - SHALLOW, 0);
    lap_tell("fill", lap_end(start), count - SHALLOW);
    printf("job_rss_bytes %.1f\n", (double)(rss_bytes() - rss) / (double)count);
    for (uint64_t i = 0; i < repeats; i++)
        measure_rates(r, "push_deep", "take_deep");
    start = lap_begin();
    run_close(r);
    lap_tell("close", lap_end(start), 1);
    for (uint64_t i = 0; i < repeats; i++) {
        reopen(r, "open_warm");
        run_close(r);
        chill(r->dir);
        reopen(r, "open_cold");
        if (i + 1 < repeats)
            run_close(r);
    }
    start = lap_begin();
    turns(r, 0, count);
    lap_tell("drain", lap_end(start), count);
    tell_disk(r, "drained");
    for (uint64_t i = 0; i < count / 20; i++) {
        turn(r, 9, 9, PLAIN);
        turn(r, 1, 0, DELAY);
    }
    tell_disk(r, "churned");
}

static uint64_t allocated_bytes(void) {
#ifdef __GLIBC__
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
#else
    return rss_bytes();
#endif
}

static void measure_memory(struct run *r, uint64_t count) {
    uint64_t rss = rss_bytes(), allocated = allocated_bytes();
    turns(r, count, 0);
    printf("job_rss_bytes %.1f\n", (double)(rss_bytes() - rss) / (double)count);
    printf("job_bytes %.1f\n", (double)(allocated_bytes() - allocated) / (double)count);
}

int main(int argc, char **argv) {
    const char *name = argc > 3 ? argv[3] : "plain";
    struct run r = { .dir = argc > 1 ? argv[1] : NULL };
    uint64_t count = argument(argc, argv, 2, 0), repeats = argument(argc, argv, 4, 3);
    while (r.kind < KINDS && strcmp(kind_names[r.kind], name) != 0)
        r.kind++;
    bool all = strcmp(name, "all") == 0;
    if (!r.dir || count < SHALLOW || (r.kind == KINDS && !all)) {
        fprintf(stderr, "backlog DIR COUNT [plain|keyed|once|deadline|delay|all [REPEATS]]\n");
        return 2;
    }
    if (all)
        r.kind = PLAIN;
    if (r.kind == KEYED)
        r.keys = keys_make(count);
    r.inline_writer = !all;
    run_open(&r);
    if (all)
        measure_all(&r, count, repeats);
    else
        measure_memory(&r, count);
    run_close(&r);
    buffer_finish(&r.body);
    free(r.keys.names);
    return 0;
}
